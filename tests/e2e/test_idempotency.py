"""Idempotency-Key: a repeated request gets the same answer and has no second effect, whatever happened in between."""
import contextlib
import os
import re
import sqlite3
import threading

import pytest

from conform import Session
from harness import token, until
from test_every import operations

ASYNC = {"Prefer": "respond-async"}


def key(text, **more):
    return {"Idempotency-Key": text, **more}


def same(first, again):
    assert (first.status, first.body) == (again.status, again.body), (first, again)
    assert first.headers.get("ETag") == again.headers.get("ETag")
    assert first.headers.get("Location") == again.headers.get("Location")
    assert "Idempotency-Replayed" not in first.headers and again.headers["Idempotency-Replayed"] == "true"


def test_again(s):
    s.put("x", b"12345678")
    table = [
        ("POST", "buffers", {"name": "a", "bytes": 8}, 201),
        ("POST", "buffers/x/fill", {"pattern": 1}, 200),
        ("POST", "buffers/x/copy", {"from": "a"}, 200),
        ("PATCH", "buffers/x", {"labels": {"k": "v"}}, 200),
        ("POST", "streams", {"name": "st"}, 201),
        ("POST", "streams/st/sync", None, 200),
        ("POST", "events", {"name": "e"}, 201),
        ("POST", "pools", {"name": "p", "max_bytes": 32 << 20}, 201),
        ("PATCH", "pools/p", {"release_threshold_bytes": 0}, 200),
        ("DELETE", "pools/p", None, 204),
        ("DELETE", "buffers/a", None, 204),
        ("POST", "/v1/sessions", {"name": s.name + "-made"}, 201),
        ("PATCH", f"/v1/sessions/{s.name}-made", {"labels": {"a": "b"}}, 200),
        ("DELETE", f"/v1/sessions/{s.name}-made", None, 204),
    ]
    firsts = []
    for i, (method, path, body, status) in enumerate(table):
        firsts.append(s.ask(method, path, body, key(f"{s.name}-{i}")).expect(status))
        same(firsts[-1], s.ask(method, path, body, key(f"{s.name}-{i}")))
    generation = s.meta("x")["generation"]
    for i, (method, path, body, status) in enumerate(table):  # much later, and quoted, with parameters (RFC 9651)
        same(firsts[i], s.ask(method, path, body, key(f'"{s.name}-{i}"')))
        same(firsts[i], s.ask(method, path, body, key(f'"{s.name}-{i}";v=1; w="a b"')))
    assert s.meta("x")["generation"] == generation == 3 and s.names("buffers") == ["x"]


def test_another_request(s):
    s.put("x", b"12345678")
    s.ask("POST", "buffers/x/fill", {"pattern": 1}, key("k")).expect(200)
    for method, path, body in [("POST", "buffers/x/fill", {"pattern": 2}), ("POST", "buffers/y/fill", {"pattern": 1}),
                               ("PATCH", "buffers/x", {"pattern": 1}), ("DELETE", "buffers/x", None),
                               ("POST", "buffers/x/fill", b'{"pattern":1}')]:
        p = s.ask(method, path, body, key("k")).problem(422, "idempotency_key_reused")
        assert not p["retryable"]
    assert s.data("x") == b"\1" * 8 and s.meta("x")["generation"] == 2
    # For requests that are idempotent by themselves the key is ignored.
    s.ask("PUT", "buffers/x/data", b"abc", key("k")).expect(200)
    s.ask("GET", "buffers/x", None, key("k")).expect(200)


@pytest.mark.parametrize("text", ["", '""', "x" * 256, "a b", 'a"b', "a\\b", "\xe9", '"', '"a";', '"a" b', '"a";V=1'])
def test_malformed(s, text):
    s.ask("POST", "buffers", {"name": "a", "bytes": 8}, key(text)).problem(400, "invalid_argument")
    assert s.names("buffers") == []


def test_two_keys(daemon, s):
    body = b'{"name":"a","bytes":8}'
    r = daemon.raw().request("POST", s.base + "/buffers", ["Idempotency-Key: a", "Idempotency-Key: b",
                                                           f"Content-Length: {len(body)}"], body)
    r.reply().problem(400, "invalid_argument")
    r.close()


def test_the_longest(s):
    first = s.ask("POST", "buffers", {"name": "a", "bytes": 8}, key("!" * 255)).expect(201)
    same(first, s.ask("POST", "buffers", {"name": "a", "bytes": 8}, key("!" * 255)))


def test_refusals_are_kept_when_they_would_come_again(s):
    first = s.ask("POST", "buffers/x/fill", {"pattern": 1}, key("a")).expect(404)
    s.put("x", b"12345678")
    same(first, s.ask("POST", "buffers/x/fill", {"pattern": 1}, key("a")))
    first = s.ask("POST", "buffers", {"name": "x", "bytes": 1}, key("b")).expect(409)
    s.delete("buffers/x")
    same(first, s.ask("POST", "buffers", {"name": "x", "bytes": 1}, key("b")))
    first = s.ask("POST", "buffers", b"{", key("c")).expect(400)
    same(first, s.ask("POST", "buffers", b"{", key("c")))


def test_what_may_change_is_tried_again(simulated, start):
    s = Session(start(spec=simulated("bytes=64M")))
    s.buffer("a", bytes=60 << 20)
    s.ask("POST", "buffers", {"name": "b", "bytes": 50 << 20}, key("k")).problem(507, "out_of_memory")
    s.delete("buffers/a")
    first = s.ask("POST", "buffers", {"name": "b", "bytes": 50 << 20}, key("k")).expect(201)
    same(first, s.ask("POST", "buffers", {"name": "b", "bytes": 50 << 20}, key("k")))


def test_while_the_first_is_under_way(start, backend):
    d = start(spec=f"fault:place_fill@1=stall/1500:{backend}")
    s = Session(d)
    s.put("x", b"12345678")
    body = b'{"pattern": 1}'
    first = d.raw().request("POST", s.base + "/buffers/x/fill", ["Idempotency-Key: k", f"Content-Length: {len(body)}"],
                            body)
    until("it is under way", lambda: s.get("/v1/stats")["running"]["writes"] == 1)
    r = s.ask("POST", "buffers/x/fill", body, key("k"))
    assert r.problem(409, "idempotency_key_in_use")["retryable"] and r.headers["Retry-After"] == "1"
    assert s.get("/v1/stats")["idempotency"]["under_way"] == 1
    r = first.reply().expect(200)
    again = s.ask("POST", "buffers/x/fill", body, key("k")).expect(200)
    assert (again.body, again.headers["ETag"], again.headers["Idempotency-Replayed"]) == (r.body, r.headers["Etag"],
                                                                                          "true")
    assert s.meta("x")["generation"] == 2


def test_many_connections(s):
    """Concurrent requests with one key have exactly one effect and one answer."""
    s.put("x", b"12345678")
    for round in range(10):
        answers, before = [], s.meta("x")["generation"]

        def work():
            client = s.daemon.client()
            while True:
                r = client.ask("POST", s.base + "/buffers/x/fill", {"pattern": round}, key(f"r{round}"))
                if r.status == 409:
                    assert r.json()["code"] == "idempotency_key_in_use"
                    continue
                answers.append((r.status, r.body, r.headers["ETag"]))
                return
        threads = [threading.Thread(target=work) for _ in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len(answers) == 16 and len(set(answers)) == 1 and answers[0][0] == 200
        assert s.meta("x")["generation"] == before + 1


def test_left_to_itself(start, backend):
    s = Session(start(spec=f"fault:place_fill@1=stall/1500:{backend}"))
    s.put("x", b"12345678")
    first = s.ask("POST", "buffers/x/fill", {"pattern": 1}, key("k", **ASYNC)).expect(202)
    again = s.ask("POST", "buffers/x/fill", {"pattern": 1}, key("k", **ASYNC)).expect(202)
    assert again.headers["Location"] == first.headers["Location"]
    s.ask("POST", "buffers/x/fill", {"pattern": 1}, key("k")).problem(409, "idempotency_key_in_use")
    op = s.ask("GET", first.headers["Location"], None, {"Prefer": "wait=30"}).expect(200).json()
    assert op["state"] == "done"
    last = s.ask("POST", "buffers/x/fill", {"pattern": 1}, key("k", **ASYNC)).expect(200)
    assert (last.json() == op["result"] and last.headers["Idempotency-Replayed"] == "true" and s.meta("x")["generation"]
            == 2)


def test_one_that_times_out_goes_on(start, backend):
    s = Session(start("--wait-max", "1", spec=f"fault:place_fill@1=stall/2500:{backend}"))
    s.put("x", b"12345678")
    p = s.ask("POST", "buffers/x/fill", {"pattern": 1}, key("k")).problem(503, "timed_out")
    assert "same key" in p["detail"]

    def again():
        r = s.ask("POST", "buffers/x/fill", {"pattern": 1}, key("k"))
        assert r.status == 200 or r.problem(409, "idempotency_key_in_use")
        return r.status == 200 and r
    assert until("it has ended", again).headers["Idempotency-Replayed"] == "true"
    assert s.meta("x")["generation"] == 2


def test_a_client_that_goes(start, backend):
    d = start(spec=f"fault:place_fill@1=stall/1000:{backend}")
    s = Session(d)
    s.put("x", b"12345678")
    body = b'{"pattern": 1}'
    first = d.raw().request("POST", s.base + "/buffers/x/fill", ["Idempotency-Key: k", f"Content-Length: {len(body)}"],
                            body)
    until("it is under way", lambda: s.get("/v1/stats")["running"]["writes"] == 1)
    first.reset()
    r = until("it has ended", lambda: next((r for r in [s.ask("POST", "buffers/x/fill", body, key("k"))]
                                            if r.status == 200), None))
    assert r.headers["Idempotency-Replayed"] == "true" and s.meta("x")["generation"] == 2


def test_after_a_restart(start, tmp_path):
    d = start(state=str(tmp_path))
    s = Session(d)
    made = s.ask("POST", "buffers", {"name": "a", "bytes": 8}, key("a")).expect(201)
    gone = s.ask("POST", "buffers/b/fill", {"pattern": 1}, key("b")).expect(404)
    session = s.ask("POST", "/v1/sessions", {"name": "t"}, key("c")).expect(201)
    d.kill()
    s = Session(start(state=str(tmp_path)))
    same(made, s.ask("POST", "buffers", {"name": "a", "bytes": 8}, key("a")))
    same(gone, s.ask("POST", "buffers/b/fill", {"pattern": 1}, key("b")))
    same(session, s.ask("POST", "/v1/sessions", {"name": "t"}, key("c")))
    s.ask("POST", "buffers", {"name": "a", "bytes": 9}, key("a")).problem(422, "idempotency_key_reused")
    assert s.names("buffers") == ["a"]


def names(s):
    """Without a look at the interface: that would take most of the time of thousands of buffers."""
    found, cursor = set(), ""
    while cursor is not None:
        page = s.daemon.get(f"{s.base}/buffers?limit=1000" + (cursor and "&cursor=" + cursor))
        found |= {b["name"] for b in page["items"]}
        cursor = page["next_cursor"]
    return found


def test_an_upload_that_ended_is_not_promised_again(s):
    body = {"buffer": "x", "bytes": 16}
    first = s.ask("POST", "uploads", body, key("up")).expect(201)
    again = s.ask("POST", "uploads", body, key("up")).expect(201)
    assert again.body == first.body and again.headers["Idempotency-Replayed"] == "true"
    s.ask("DELETE", first.headers["Location"]).expect(204)
    s.ask("POST", "uploads", body, key("up")).problem(409, "idempotency_answer_lost")


@pytest.mark.timeout(300)
def test_killed_in_between(start, backend, tmp_path):
    """kill -9 at any moment: afterwards the key has its answer, its answer is lost, or there was no effect; never two
    effects."""
    seen = set()
    for round in range(6 if backend == "cuda" else 24):  # a start takes seconds on a GPU
        d = start(state=str(tmp_path))
        s = Session(d)
        have = names(s)
        stop, sent = threading.Event(), []

        def work(number):
            client = d.client()
            i = 0
            while not stop.is_set():
                name = f"r{round}-{number}-{i}"
                sent.append(name)
                try:
                    if client.ask("POST", s.base + "/buffers", {"name": name, "bytes": 8}, key(name)).status != 201:
                        return
                except Exception:
                    return
                i += 1
        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for t in threads:
            t.start()
        until("some are made", lambda: len(sent) > 10 + 7 * round)
        d.kill()
        stop.set()
        for t in threads:
            t.join()
        s = Session(start(state=str(tmp_path)))
        there = names(s)
        for name in sent:
            r = s.ask("POST", "buffers", {"name": name, "bytes": 8}, key(name))
            seen.add((r.status, "Idempotency-Replayed" in r.headers))
            if name in there:  # it was carried out: neither a second time nor an ordinary refusal
                assert (r.headers.get("Idempotency-Replayed") == "true" and r.status == 201
                        or r.problem(409, "idempotency_answer_lost"))
            else:
                assert r.status == 201 and "Idempotency-Replayed" not in r.headers
        assert have <= there
        s.daemon.stop()
    assert (201, True) in seen


def test_killed_between_the_commit_and_the_answer(start, tmp_path):
    """The database after such a crash: the mark of the key, which is committed with the effect, but no answer."""
    d = start(state=str(tmp_path))
    s = Session(d)
    s.ask("POST", "buffers", {"name": "a", "bytes": 8}, key("k")).expect(201)
    d.kill()
    with sqlite3.connect(tmp_path / "gpubufd.db") as db:
        assert db.execute("UPDATE answers SET status = 0, headers = '', body = NULL").rowcount == 1
    db.close()
    s = Session(start(state=str(tmp_path)))
    for _ in range(2):
        p = s.ask("POST", "buffers", {"name": "a", "bytes": 8}, key("k")).problem(409, "idempotency_answer_lost")
        assert not p["retryable"] and "look at the resource" in p["detail"]
    s.ask("POST", "buffers", {"name": "b", "bytes": 8}, key("k")).problem(422, "idempotency_key_reused")
    assert s.names("buffers") == ["a"]


def test_bounds(start, tmp_path):
    d = start("--max-idempotency-keys", "5", state=str(tmp_path))
    s = Session(d)
    for i in range(12):
        s.ask("POST", "buffers", {"name": f"b{i}", "bytes": 8}, key(f"k{i}")).expect(201)
        assert s.get("/v1/stats")["idempotency"]["keys"] <= 5
    for i in range(8, 12):
        assert "Idempotency-Replayed" in s.ask("POST", "buffers", {"name": f"b{i}", "bytes": 8},
                                               key(f"k{i}")).expect(201).headers
    s.ask("POST", "buffers", {"name": "b0", "bytes": 8}, key("k0")).problem(409, "buffer_exists")
    d.stop()
    s = Session(start("--max-idempotency-keys", "2", state=str(tmp_path)))
    assert s.get("/v1/stats")["idempotency"]["keys"] == 2
    assert "Idempotency-Replayed" in s.ask("POST", "buffers", {"name": "b11", "bytes": 8},
                                           key("k11")).expect(201).headers


def test_too_many_under_way(start, backend):
    d = start("--max-idempotency-keys", "2", spec=f"fault:place_fill@1=stall/1500:{backend}")
    s = Session(d)
    s.put("x", b"12345678")
    for i in range(2):
        s.ask("POST", "buffers/x/fill", {"pattern": 1, "bytes": 4}, key(f"k{i}", **ASYNC)).expect(202)
    p = s.ask("POST", "buffers/x/fill", {"pattern": 1}, key("k2")).problem(503, "saturated")
    assert "--max-idempotency-keys" in p["detail"]


def test_expiry(start, tmp_path):
    d = start("--idempotency-ttl", "1", state=str(tmp_path))
    s = Session(d)
    s.ask("POST", "buffers", {"name": "a", "bytes": 8}, key("k")).expect(201)
    until("it has expired", lambda: s.ask("POST", "buffers", {"name": "a", "bytes": 8}, key("k")).status == 409)
    s.ask("POST", "buffers", {"name": "b", "bytes": 8}, key("l")).expect(201)
    d.stop()
    s = Session(start("--idempotency-ttl", "1", state=str(tmp_path)))
    until("nothing is kept", lambda: s.ask("POST", "buffers", {"name": "b", "bytes": 8}, key("l")).status == 409)


def test_each_has_its_own(start, tmp_path):
    secrets = {name: token(tmp_path, "add", name, "--scope", "write") for name in ("one", "two")}
    d = start(state=str(tmp_path))
    r = d.ask("POST", "/v1/sessions", {"name": "a"}, key("k"), secrets["one"]).expect(201)
    d.ask("POST", "/v1/sessions", {"name": "a"}, key("k"), secrets["two"]).problem(409, "session_exists")
    same(r, d.ask("POST", "/v1/sessions", {"name": "a"}, key("k"), secrets["one"]))
    d.ask("POST", "/v1/sessions", {"name": "a"}, key("k")).problem(401, "unauthenticated")


def test_a_session_of_the_same_name_is_another(s, daemon):
    name = s.name + "-again"
    for _ in range(2):
        daemon.ask("POST", "/v1/sessions", {"name": name}).expect(201)
        r = daemon.ask("POST", f"/v1/sessions/{name}/buffers", {"name": "a", "bytes": 8}, key("k")).expect(201)
        assert "Idempotency-Replayed" not in r.headers
        daemon.ask("DELETE", "/v1/sessions/" + name).expect(204)


def test_every_operation_hears_a_key(start, tmp_path):
    """A malformed key, a key of a different request, and a key whose answer was lost."""
    d = start(state=str(tmp_path))
    s = Session(d)
    s.put("b", b"12345678")
    hearing = [op for op in operations(d) if any("IdempotencyKey" in p.get("$ref", "")
                                                 for p in op.item.get("parameters", []))]
    assert len(hearing) > 20
    # outside of sessions, and in the default one
    for path in ("/v1/sessions/none", "/v1/sessions/default/buffers/none"):
        d.ask("DELETE", path, None, key("used")).expect(404)
    for op in hearing:
        op.answered(d, 400, op.path(), ["Idempotency-Key: a b"]).problem(400, "invalid_argument")
        op.answered(d, 422, op.path(), ["Idempotency-Key: used"]).problem(422, "idempotency_key_reused")
    kept = [op for i, op in enumerate(hearing) if op.told(d, op.path(session="default"),
                                                          [f"Idempotency-Key: every-{i}"]).status < 500]
    d.kill()
    with sqlite3.connect(tmp_path / "gpubufd.db") as db:
        assert db.execute("UPDATE answers SET status = 0, headers = '', body = NULL").rowcount >= len(kept)
    db.close()
    d = start(state=str(tmp_path))
    for i, op in enumerate(hearing):
        if op in kept:
            op.answered(d, 409, op.path(session="default"),
                        [f"Idempotency-Key: every-{i}"]).problem(409, "idempotency_answer_lost")


@pytest.mark.parametrize("unix", [False, True])
def test_a_bearer_however_it_is_spelt(start, tmp_path, unix):
    """The caller is identified by the token, not by the header's text."""
    secret = token(tmp_path, "add", "one", "--scope", "write")
    d = start(state=str(tmp_path))
    target, body = "/v1/sessions/default/buffers", b'{"name":"a","bytes":8}'
    again = []
    for spelt in (f"Bearer {secret}", f"bearer {secret}", f"BEARER   {secret}", f"bEaReR  {secret}"):
        with contextlib.closing(d.raw(unix=unix)) as r:
            r.request("POST", target, ["Authorization: " + spelt, "Idempotency-Key: k",
                                       "Content-Type: application/json", f"Content-Length: {len(body)}"], body)
            status, headers = r.head()
            assert status == 201
            again.append(headers.get("Idempotency-Replayed"))
    assert again == [None, "true", "true", "true"]


@pytest.mark.parametrize("unix", [False, True])
def test_two_bearers_are_none(start, tmp_path, unix):
    """Two keys are ambiguous: the request is refused, even if they are equal."""
    one, two = (token(tmp_path, "add", name, "--scope", "write") for name in ("one", "two"))
    d = start(state=str(tmp_path))
    for second in (one, two, "unknown"):
        for method, target in (("GET", "/v1"), ("DELETE", "/v1/sessions/default/buffers/x"), ("GET", "/v1/leases")):
            with contextlib.closing(d.raw(unix=unix)) as r:
                r.request(method, target, [f"Authorization: Bearer {one}", f"authorization: Bearer {second}"])
                assert r.head()[0] == 400


@pytest.mark.parametrize("headers", [{}, {"Expect": "100-continue"}, {"Transfer-Encoding": "chunked"}])
@pytest.mark.parametrize("size", [8, 2 << 20])
def test_a_refusal_before_the_body_is_answered(start, headers, size):
    """A keyed request that is refused at its headers gets the refusal, though its body is not read; then the same
    again."""
    d = start()
    answers = []
    for _ in range(2):
        with contextlib.closing(d.raw()) as r:
            length = [] if "Transfer-Encoding" in headers else [f"Content-Length: {size}"]
            r.request("PATCH", "/v1/sessions/default/buffers/none/data?offset=0",
                      ["Content-Type: application/octet-stream", "Idempotency-Key: a", *length,
                       *(f"{k}: {v}" for k, v in headers.items())], b"x" * size if not headers and size < 1024 else b"")
            answers.append(r.reply())
    assert [a.status for a in answers] == [404, 404] and answers[0].json()["code"] == "buffer_not_found"
    assert answers[1].headers["Idempotency-Replayed"] == "true"


# --- what a key is of -------------------------------------------------------------------------------------------------

PART = {"Content-Type": "application/octet-stream"}
UPLOADS = [("PATCH", "buffers/x/data?offset=2", PART), ("POST", "buffers/y/data", {"Upload-Complete": "?1", **PART})]


def chunked(size):
    return lambda body: iter([body[:size], body[size:]])


@pytest.mark.parametrize("size", [10, 300000])
@pytest.mark.parametrize("sent", [lambda body: body, chunked(7)], ids=["length", "chunked"])
@pytest.mark.parametrize("method, path, headers", UPLOADS, ids=["part", "whole"])
def test_other_bytes_are_another_request(s, method, path, headers, sent, size):
    s.put("x", b"0" * (size + 2))
    name, offset = path[8], 2 if method == "PATCH" else 0
    first = s.ask(method, path, sent(b"1" * size), key("k", **headers))
    assert first.status in (200, 201)
    for other in (b"2" * size, b"1" * (size - 1) + b"2", b"1" * (size - 1), b"1" * size + b"1", b""):
        s.ask(method, path, sent(other), key("k", **headers)).problem(422, "idempotency_key_reused")
    same(first, s.ask(method, path, sent(b"1" * size), key("k", **headers)))
    same(first, s.ask(method, path, b"1" * size, key("k", **headers)))  # however it is framed
    assert s.data(name)[offset:] == b"1" * size


@pytest.mark.parametrize("name, value", [
    ("If-Match", "*"), ("If-None-Match", '"1.1"'), ("Content-Type", "application/x-other"),
    ("Content-Encoding", "gzip"), ("Content-Digest", "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"),
    ("Upload-Complete", "?1"), ("Repr-Digest", "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"),
    ("Upload-Offset", "0"), ("Upload-Length", "8")])
def test_other_headers_are_another_request(s, name, value):
    s.put("x", b"12345678")
    s.ask("PATCH", "buffers/x/data?offset=0", b"1" * 8, key("k", **PART)).expect(200)
    s.ask("PATCH", "buffers/x/data?offset=0", b"1" * 8,
          key("k", **{**PART, name: value})).problem(422, "idempotency_key_reused")
    s.ask("PATCH", "buffers/x/data?offset=1", b"1" * 7, key("k", **PART)).problem(422, "idempotency_key_reused")
    s.ask("POST", "buffers/x/fill", {"pattern": 1}, key("f")).expect(200)
    s.ask("POST", "buffers/x/fill", {"pattern": 1}, key("f", **{name: value})).problem(422, "idempotency_key_reused")
    assert s.meta("x")["generation"] == 3


def test_one_that_broke_off_leaves_the_key_free(s, daemon):
    s.put("x", b"12345678")
    with contextlib.closing(daemon.raw()) as r:
        r.request("PATCH", s.base + "/buffers/x/data?offset=0",
                  ["Content-Type: application/octet-stream", "Idempotency-Key: k", "Content-Length: 8"], b"123")
        until("it is under way", lambda: s.get("/v1/stats")["idempotency"]["under_way"] == 1)
        r.reset()
    until("it has ended", lambda: s.get("/v1/stats")["idempotency"]["under_way"] == 0)
    first = s.ask("PATCH", "buffers/x/data?offset=0", b"abcdefgh", key("k", **PART)).expect(200)
    same(first, s.ask("PATCH", "buffers/x/data?offset=0", b"abcdefgh", key("k", **PART)))
    assert s.data("x") == b"abcdefgh"


def test_bytes_that_were_damaged_on_their_way_may_come_again(s):
    s.put("x", b"12345678")
    headers = key("k", **PART, **{"Content-Digest": "sha-256=:nFbm8BCPlwQCDUZsgVhAT8nOFC8XQgI9kWMs81p/+cA=:"})
    for body in (b"abcdefgX", b"abcdefgY"):
        s.ask("PATCH", "buffers/x/data?offset=0", body, headers).problem(400, "digest_mismatch")
    assert s.data("x") == b"12345678"


def test_another_token_has_another_key(start, tmp_path):
    """The same key of two tokens is two keys, also for the same request; each gets its own answer again."""
    secrets = [token(tmp_path, "add", name, "--scope", "read,write") for name in ("one", "two")]
    d = start(state=str(tmp_path))
    buffer = "/v1/sessions/default/buffers/x"
    headers = key("k", **PART, **{"Upload-Complete": "?1"})
    first = [d.ask("POST", buffer + "/data", body, headers, secret) for secret,
             body in zip(secrets, (b"1234", b"5678"))]
    assert [r.status for r in first] == [201, 200]
    filled = [d.ask("POST", buffer + "/fill", {"pattern": 1}, key("f"), secret).expect(200) for secret in secrets]
    for secret, body, made, fill in zip(secrets, (b"1234", b"5678"), first, filled):
        same(made, d.ask("POST", buffer + "/data", body, headers, secret))
        same(fill, d.ask("POST", buffer + "/fill", {"pattern": 1}, key("f"), secret))
    d.ask("POST", buffer + "/data", b"5678", headers, secrets[0]).problem(422, "idempotency_key_reused")
    assert [r.json()["generation"] for r in first + filled] == [1, 2, 3, 4] and first[0].body != first[1].body
    assert d.ask("GET", buffer, None, None, secrets[0]).expect(200).json()["generation"] == 4


# --- a crash between the work and its answer --------------------------------------------------------------------------

# How each request with a key is made, and what must hold when it was repeated: it was carried out once, or what it did
# ended with the process. A number is the generation of b.
S = "/v1/sessions/default"
B = S + "/buffers/b"
SYNC = {"durability": "sync"}
CRASHES = {
    ("POST", "/v1/devices/{device}/sync"): ("/v1/devices/0/sync", {}, None),
    ("DELETE", "/v1/operations/{operation}"): ("/v1/operations/none", None, None),
    ("DELETE", "/v1/checkpoints/{checkpoint}"): ("/v1/checkpoints/c", None, ("/v1/checkpoints/c", 404)),
    ("POST", "/v1/checkpoints/{checkpoint}/restore"): ("/v1/checkpoints/c/restore", {"prefix": "r."},
                                                       (S + "/buffers/r.b", 200)),
    ("POST", "/v1/fleet/sessions"): ("/v1/fleet/sessions", {"name": "f"}, None),
    ("POST", "/v1/fleet/sessions/{session}/move"): ("/v1/fleet/sessions/default/move", {}, None),
    ("POST", "/v1/fleet/sessions/{session}/take"): ("/v1/fleet/sessions/default/take", {}, None),
    ("POST", "/v1/sessions"): ("/v1/sessions", {"name": "made"}, ("/v1/sessions/made", 200)),
    ("PATCH", "/v1/sessions/{session}"): (S, {"labels": {"a": "b"}}, (S, 200)),
    ("DELETE", "/v1/sessions/{session}"): ("/v1/sessions/s", None, ("/v1/sessions/s", 404)),
    ("POST", "/v1/sessions/{session}/heartbeat"): (S + "/heartbeat", {}, None),
    ("POST", "/v1/sessions/{session}/sync"): (S + "/sync", {}, None),
    ("POST", "/v1/sessions/{session}/evict"): (S + "/evict", {}, 1),
    ("POST", "/v1/sessions/{session}/checkpoints"): (S + "/checkpoints", {"name": "d"}, ("/v1/checkpoints/d", 200)),
    ("POST", "/v1/sessions/{session}/pools"): (S + "/pools", {"name": "q", "max_bytes": 32 << 20},
                                               (S + "/pools/q", 200)),
    ("PATCH", "/v1/sessions/{session}/pools/{pool}"): (S + "/pools/p", {"release_threshold_bytes": 0}, None),
    ("DELETE", "/v1/sessions/{session}/pools/{pool}"): (S + "/pools/p", None, (S + "/pools/p", 404)),
    ("POST", "/v1/sessions/{session}/pools/{pool}/trim"): (S + "/pools/p/trim", {}, None),
    ("POST", "/v1/sessions/{session}/pools/{pool}/reset-peak"): (S + "/pools/p/reset-peak", {}, None),
    ("POST", "/v1/sessions/{session}/pools/{pool}/access"): (S + "/pools/p/access", {}, None),
    ("POST", "/v1/sessions/{session}/streams"): (S + "/streams", {"name": "t"}, None),
    ("DELETE", "/v1/sessions/{session}/streams/{stream}"): (S + "/streams/st", None, None),
    ("POST", "/v1/sessions/{session}/streams/{stream}/sync"): (S + "/streams/default/sync", {}, None),
    ("POST", "/v1/sessions/{session}/streams/{stream}/hold"): (S + "/streams/default/hold", {"seconds": 0}, None),
    ("POST", "/v1/sessions/{session}/events"): (S + "/events", {"name": "e"}, None),
    ("DELETE", "/v1/sessions/{session}/events/{event}"): (S + "/events/ev", None, None),
    ("POST", "/v1/sessions/{session}/events/{event}/record"): (S + "/events/ev/record", {}, None),
    ("POST", "/v1/sessions/{session}/events/{event}/wait"): (S + "/events/ev/wait", {}, None),
    ("POST", "/v1/sessions/{session}/events/{event}/sync"): (S + "/events/ev/sync", None, None),
    ("POST", "/v1/sessions/{session}/batch"): (S + "/batch",
                                               {"operations": [{"op": "fill", "buffer": "b", "pattern": 1}]}, 2),
    ("POST", "/v1/sessions/{session}/buffers"): (S + "/buffers", {"name": "n", "bytes": 8}, (S + "/buffers/n", 200)),
    ("PATCH", "/v1/sessions/{session}/buffers/{buffer}"): (B, {"labels": {"a": "b"}}, 1),
    ("DELETE", "/v1/sessions/{session}/buffers/{buffer}"): (B, None, (B, 404)),
    ("POST", "/v1/sessions/{session}/buffers/{buffer}/seal"): (B + "/seal", {}, 1),
    ("POST", "/v1/sessions/{session}/buffers/{buffer}/store"): (B + "/store", {}, 1),
    ("POST", "/v1/sessions/{session}/buffers/{buffer}/evict"): (B + "/evict", {}, 1),
    ("POST", "/v1/sessions/{session}/buffers/{buffer}/copy"): (B + "/copy", {"from": "o"}, 2),
    ("POST", "/v1/sessions/{session}/buffers/{buffer}/fill"): (B + "/fill", {"pattern": 1}, 2),
    ("POST", "/v1/sessions/{session}/buffers/{buffer}/sync"): (B + "/sync", {}, 1),
    ("POST", "/v1/sessions/{session}/buffers/{buffer}/reserve"): (B + "/reserve", {"side": "device", "bytes": 8}, 1),
    ("POST", "/v1/sessions/{session}/buffers/{buffer}/release"): (B + "/release", {"side": "device"}, 1),
    ("PATCH", "/v1/sessions/{session}/buffers/{buffer}/data"): (B + "/data?offset=0", b"1", 2),
    ("POST", "/v1/sessions/{session}/buffers/{buffer}/data"): (B + "/data?durability=sync", b"1" * 8, 2),
    ("POST", "/v1/sessions/{session}/uploads"): (S + "/uploads", {"buffer": "u", "bytes": 8}, None),
    ("PATCH", "/v1/sessions/{session}/uploads/{upload}"): ("{upload}", b"5678", 2),
    ("DELETE", "/v1/sessions/{session}/uploads/{upload}"): ("{upload}", None, 1),
    ("POST", "/v1/sessions/{session}/uploads/{upload}/complete"): ("{parts}/complete", {}, 2),
}


def test_each_is_crashed():
    with open(os.path.join(os.path.dirname(__file__), "../../src/api/routes.def"), encoding="utf-8") as f:
        found = re.findall(r'^GB_ROUTE\((\w+), "([^"]+)", .*, KEYED,', f.read(), re.M)
    assert sorted(found) == sorted(CRASHES), "a new one has a line in CRASHES"


@pytest.mark.parametrize("method, template", CRASHES)
@pytest.mark.parametrize("point", ["before_key@1", "before_answer@3"])
def test_a_crash_before_the_answer(start, tmp_path, method, template, point):
    """Whatever is repeated afterwards was carried out once, and its key says so or repeats what it was answered."""
    path, body, once = CRASHES[method, template]
    d = start("--disk-fault", point + "=kill", state=str(tmp_path))
    for name in "bo":
        d.put(name, b"12345678", query="?durability=sync").expect(201)
    for what, made in (("/pools", {"name": "p", "max_bytes": 32 << 20}), ("/streams", {"name": "st"}),
                       ("/events", {"name": "ev"}), ("/checkpoints", {"name": "c"})):
        d.ask("POST", S + what, made).expect(201)
    d.ask("POST", "/v1/sessions", {"name": "s"}).expect(201)
    if "{upload}" in path:
        begun = {"Upload-Complete": "?0", "Upload-Length": "8"}
        path = d.ask("POST", B + "/data", b"1234", {**PART, **begun}).expect(201).headers["Location"]
    if "{parts}" in path:
        made = d.ask("POST", S + "/uploads", {"buffer": "b", "bytes": 8}).expect(201)
        d.ask("PUT", made.headers["Location"] + "/parts?offset=0", b"abcdefgh", PART).expect(200)
        path = path.format(parts=made.headers["Location"])
    headers = key("k")
    if isinstance(body, bytes):
        append = "/uploads/" in path
        headers.update({"Content-Type": "application/partial-upload" if append else "application/octet-stream"})
        headers.update({"Upload-Complete": "?1", **({"Upload-Offset": "4"} if append else {})} if method == "POST"
                       or append else {})
    crashed = False
    try:
        d.ask(method, path, body, headers)
    except Exception:
        crashed = True
    d.kill()
    d = start(state=str(tmp_path))
    answer = d.ask(method, path, body, headers)
    lost = answer.status == 409 and answer.json()["code"] == "idempotency_answer_lost"
    again = d.ask(method, path, body, headers)
    assert again.status == answer.status, (answer, again)
    gone = template.split("{")[-1].split("}")[0] in ("operation", "stream", "event", "upload") or "/pools/" in template
    if isinstance(once, tuple):
        assert lost or answer.status < 300, answer
        d.ask("GET", once[0]).expect(once[1])
    elif once and not gone and (lost or answer.status < 300):
        assert d.meta("b")["generation"] == once
    if point.startswith("before_key"):
        assert crashed or "/fleet/" in template  # a daemon that is in none refuses that, which may change
