"""Replacing a buffer is atomic; an interrupted upload leaves bytes and generation; writes in place are different."""
import pytest

from harness import DATA, SLOT, until
from values import crc32c, payload

SIZE = 40 * SLOT  # far more than sockets and slots hold together


def slow_reader(daemon, session, name):
    """A download of which only the head has been read."""
    r = daemon.raw(receive_bytes=4096)
    status, headers = r.request("GET", DATA.format(session, name)).head()
    assert status == 200
    return r, headers


def test_readers_of_the_old_generation_finish_undisturbed(daemon, session):
    old, new = payload(SIZE, 1), payload(SIZE, 2)
    first = daemon.put("x", old, session).expect(201)
    r, headers = slow_reader(daemon, session, "x")
    assert headers["Etag"] == first.headers["ETag"]
    second = daemon.put("x", new, session).expect(200)
    assert second.headers["ETag"] != first.headers["ETag"]
    assert daemon.data("x", session).body == new
    daemon.ask("DELETE", f"/v1/sessions/{session}/buffers/x").expect(204)
    assert r.exactly(SIZE) == old
    r.close()
    daemon.data("x", session).problem(404, "buffer_not_found")


def test_readers_of_a_deleted_session_never_see_other_bytes(daemon, session):
    used = daemon.get("/v1/sessions/default/pools/default")["used_bytes"]
    daemon.ask("POST", "/v1/sessions", {"name": "doomed"}).expect(201)
    data = payload(SIZE, 3)
    daemon.put("x", data, "doomed").expect(201)
    r, _ = slow_reader(daemon, "doomed", "x")
    daemon.ask("DELETE", "/v1/sessions/doomed").expect(204)
    daemon.put("y", payload(SIZE, 4), session).expect(201)
    daemon.ask("DELETE", f"/v1/sessions/{session}/buffers/y").expect(204)
    got = r.rest(SIZE)
    assert data.startswith(got)
    r.close()
    until("its memory is free", lambda: daemon.get("/v1/sessions/default/pools/default")["used_bytes"] == used)


@pytest.mark.parametrize("expect", [True, False])
@pytest.mark.parametrize("sent", [0, 1, 20000, SLOT, SLOT + 1, 7 * SLOT + 13, SIZE - 1])
def test_an_upload_that_breaks_off_changes_nothing(daemon, session, sent, expect):
    old = payload(SIZE, 4)
    daemon.put("x", old, session).expect(201)
    before = daemon.contents()
    for name in ("x", "fresh"):
        r = daemon.raw().put(DATA.format(session, name), SIZE, expect=expect)
        if expect:
            assert r.head()[0] == 100
        r.send(payload(SIZE, 5)[:sent])
        r.reset() if sent % 2 else r.close()
    until("all is as before", lambda: daemon.contents() == before)
    assert daemon.data("x", session).body == old


def test_half_closed_in_the_middle(daemon, session):
    old = payload(1000)
    daemon.put("x", old, session).expect(201)
    for size in (2000, SIZE):
        with daemon.raw() as r:
            r.put(DATA.format(session, "x"), size).send(payload(size // 2)).half_close()
            reply = r.reply()
            assert reply is None or reply.problem(400, "incomplete_body")
        assert daemon.data("x", session).body == old


def test_in_place(daemon, session):
    old, new = payload(SIZE, 6), payload(SIZE, 7)
    assert daemon.put("x", old, session, "?in_place=true").expect(201).json()["generation"] >= 1
    before = daemon.meta("x", session)
    after = daemon.put("x", new, session, "?in_place=true").expect(200).json()
    assert after["generation"] > before["generation"] and after["crc32c"] == crc32c(new)
    assert daemon.data("x", session).body == new


def test_in_place_needs_no_second_copy(daemon):
    daemon.ask("POST", "/v1/sessions", {"name": "tight", "quota": {"bytes": SIZE}}).expect(201)
    daemon.put("x", payload(SIZE, 1), "tight").expect(201)
    p = daemon.put("x", payload(SIZE, 2), "tight").problem(507, "quota_exceeded")
    assert (p["limit_bytes"], p["used_bytes"], p["requested_bytes"]) == (SIZE, SIZE, SIZE)
    daemon.put("x", payload(SIZE, 2), "tight", "?in_place=true").expect(200)
    assert daemon.data("x", "tight").body == payload(SIZE, 2)
    daemon.ask("DELETE", "/v1/sessions/tight").expect(204)


def test_in_place_while_others_use_it(daemon, session):
    old, new = payload(SIZE, 8), payload(SIZE, 9)
    daemon.put("x", old, session).expect(201)
    r, _ = slow_reader(daemon, session, "x")
    daemon.put("x", new, session, "?in_place=true").problem(409, "buffer_busy")
    assert r.exactly(SIZE) == old
    r.close()
    daemon.settled()
    w = daemon.raw().put(DATA.format(session, "x") + "?in_place=true&dtype=uint8", SIZE, expect=True)
    assert w.head()[0] == 100
    w.send(new[:SLOT])
    daemon.data("x", session).problem(409, "buffer_busy")
    daemon.put("x", new, session, "?in_place=true").problem(409, "buffer_busy")
    assert w.send(new[SLOT:]).reply().status == 200
    w.close()
    assert daemon.data("x", session).body == new


@pytest.mark.parametrize("query", ["?in_place=true", f"?in_place=true&offset={SLOT}"])
def test_broken_in_place_is_partial_until_healed(daemon, session, query):
    old = daemon.put("x", payload(SIZE, 1), session).expect(201)
    size = SIZE - SLOT if "offset" in query else SIZE
    r = daemon.raw().put(DATA.format(session, "x") + query, size, expect=True)
    assert r.head()[0] == 100
    r.send(payload(5 * SLOT)).close()
    until("partial", lambda: daemon.meta("x", session)["state"] == "partial")
    assert daemon.meta("x", session)["crc32c"] is None
    daemon.data("x", session).problem(409, "buffer_partial")
    daemon.ask("HEAD", DATA.format(session, "x")).expect(409)
    daemon.put("x", b"12", session, "?offset=5").problem(409, "buffer_partial")
    heal = daemon.put("x", payload(SIZE, 2), session, "?in_place=true").expect(200)
    assert heal.json()["state"] == "ready" and heal.headers["ETag"] != old.headers["ETag"]
    assert daemon.data("x", session).body == payload(SIZE, 2)


def test_a_broken_write_at_an_offset_changes_nothing(daemon, session):
    old = payload(SIZE, 1)
    before = daemon.put("x", old, session).expect(201).json()
    r = daemon.raw().put(DATA.format(session, "x") + f"?offset={SLOT}", SIZE - SLOT, expect=True)
    assert r.head()[0] == 100
    r.send(payload(5 * SLOT)).close()
    daemon.settled()
    assert daemon.meta("x", session) == before and daemon.data("x", session).body == old


def test_partial_is_healed_by_a_replacement(daemon, session):
    daemon.put("x", payload(SIZE, 1), session).expect(201)
    r = daemon.raw().put(DATA.format(session, "x") + "?in_place=true", SIZE)
    r.send(payload(5 * SLOT)).close()
    until("partial", lambda: daemon.meta("x", session)["state"] == "partial")
    daemon.put("x", b"short", session).expect(200)
    assert daemon.data("x", session).body == b"short"


def test_conditions_guard_an_upload(daemon, session):
    path = DATA.format(session, "x")
    ask = daemon.ask
    ask("PUT", path, b"1", {"If-Match": "*"}).problem(412, "precondition_failed")
    one = ask("PUT", path, b"1", {"If-None-Match": "*"}).expect(201).headers["ETag"]
    ask("PUT", path, b"2", {"If-None-Match": "*"}).problem(412, "precondition_failed")
    two = ask("PUT", path, b"2", {"If-Match": one}).expect(200).headers["ETag"]
    for stale in (one, '"nothing"', "W/" + two):
        ask("PUT", path, b"3", {"If-Match": stale}).problem(412, "precondition_failed")
    ask("PUT", path, b"3", {"If-Match": f'"a", {two}'}).expect(200)
    for wrong in ("x", '"open', "", one + one):
        ask("PUT", path, b"4", {"If-Match": wrong}).problem(400, "malformed_request")
    assert daemon.data("x", session).body == b"3"
    tag = ask("GET", f"/v1/sessions/{session}/buffers/x").headers["ETag"]
    ask("PATCH", f"/v1/sessions/{session}/buffers/x", {"labels": {"k": "v"}}, {"If-Match": tag}).expect(200)
    ask("PATCH", f"/v1/sessions/{session}/buffers/x", {"labels": {"k": "w"}}, {"If-Match": tag}).problem(
        412, "precondition_failed")
    ask("DELETE", f"/v1/sessions/{session}/buffers/x", None, {"If-Match": tag}).problem(412, "precondition_failed")
    assert daemon.meta("x", session)["labels"] == {"k": "v"}


def test_a_condition_that_turns_false_during_the_body(daemon, session):
    """Two writers start from the same generation: one of them must lose."""
    tag = daemon.put("x", payload(SIZE, 1), session).headers["ETag"]
    r = daemon.raw().put(DATA.format(session, "x"), SIZE, "If-Match: " + tag, expect=True)
    assert r.head()[0] == 100
    r.send(payload(SIZE, 2)[:SLOT])
    daemon.put("x", payload(SIZE, 3), session, headers={"If-Match": tag}).expect(200)
    r.send(payload(SIZE, 2)[SLOT:]).reply().problem(412, "precondition_failed")
    r.close()
    assert daemon.data("x", session).body == payload(SIZE, 3)


def test_two_uploads_of_one_name(daemon, session):
    a, b = payload(SIZE, 1), payload(SIZE, 2)
    first = daemon.raw().put(DATA.format(session, "x"), SIZE, expect=True)
    second = daemon.raw().put(DATA.format(session, "x"), SIZE, expect=True)
    assert (first.head()[0], second.head()[0]) == (100, 100)
    second.send(b)
    assert second.reply().status == 201
    assert daemon.data("x", session).body == b
    first.send(a)
    assert first.reply().status == 200
    assert daemon.data("x", session).body == a
    assert daemon.meta("x", session)["crc32c"] == crc32c(a)
    first.close()
    second.close()


def test_etags_are_never_reused_for_other_bytes(daemon, session):
    seen = {}
    for i in range(12):
        body = bytes([i]) * 8
        tag = daemon.put("x", body, session).headers["ETag"]
        assert daemon.data("x", session).headers["ETag"] == tag
        assert seen.setdefault(tag, body) == body
        if i % 3 == 2:
            daemon.ask("DELETE", f"/v1/sessions/{session}/buffers/x").expect(204)
    assert len(seen) == 12
