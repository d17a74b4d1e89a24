"""GET /v1/feed: events as they happen."""
import os
import re
import signal
import sqlite3
import subprocess

import pytest

from conform import interface
from feed import Feed
from harness import DATA, PATIENCE_S, binary, until

JSON = {"Accept": "application/json"}


def page(d, query="", token=None):
    reply = d.ask("GET", "/v1/feed" + query, None, JSON, token)
    return reply.expect(200).json()


def told(d, kind):
    """The logged events of that type, once there is one."""
    return until(kind, lambda: page(d, f"?after=0&limit=1000&type={kind}")["items"])


def kinds(events):
    return [e["type"] for e in events]


# --- events -----------------------------------------------------------------------------------------------------------


def test_sessions_and_buffers(daemon):
    with Feed(daemon, "?type=session.,buffer.") as feed:
        daemon.ask("POST", "/v1/sessions", {"name": "told"}).expect(201)
        daemon.ask("PATCH", "/v1/sessions/told", {"labels": {"a": "b"}}).expect(200)
        daemon.put("x", b"12345678", "told").expect(201)
        daemon.put("x", b"1234", "told").expect(200)
        daemon.ask("PATCH", "/v1/sessions/told/buffers/x", {"labels": {"a": "b"}}).expect(200)
        daemon.ask("DELETE", "/v1/sessions/told/buffers/x").expect(204)
        daemon.put("y", b"12", "told").expect(201)
        daemon.ask("DELETE", "/v1/sessions/told").expect(204)
        events = feed.take(8)
    assert kinds(events) == ["session.created", "session.changed", "buffer.created", "buffer.replaced",
                             "buffer.changed", "buffer.deleted", "buffer.created", "session.deleted"]
    assert all(e["session"] == "told" for e in events)
    assert [(e["buffer"], e["bytes"], e["generation"]) for e in events[2:6]] == [
        ("x", 8, 1), ("x", 4, 2), ("x", 4, 2), ("x", 4, 2)]
    assert events[-1]["count"] == 1 and events[2]["pool"] == "default" and events[2]["device"]["index"] == 0
    ids = [e["id"] for e in events]
    assert ids == sorted(set(ids))


def test_sides_of_a_mirrored_buffer(daemon, session):
    """What a sync moves is the head; what a side is given or gives back stands in the detail."""
    path = f"/v1/sessions/{session}/buffers/m"
    with Feed(daemon, "?type=buffer.") as feed:
        daemon.put("m", bytes(64), session, "?mirrored=true").expect(201)
        for action, body in (("sync", {"to": "device"}), ("reserve", {"bytes": 4096, "side": "host"}),
                             ("release", {"side": "host"})):
            daemon.ask("POST", f"{path}/{action}", body).expect(200)
        daemon.ask("PATCH", path, {"labels": {"a": "b"}}).expect(200)
        events = feed.take(5)
    assert kinds(events) == ["buffer.created"] + ["buffer.changed"] * 4
    assert [(e["head"], e.get("detail")) for e in events] == [
        ("host", None), ("synced", "device side: 64 bytes, 0 before"), ("synced", "host side: 4096 bytes, 64 before"),
        ("device", "host side: 0 bytes, 4096 before"), ("device", None)]


def test_what_is_told_is_true(daemon, session):
    with Feed(daemon, "?type=buffer.created") as feed:
        for i in range(20):
            daemon.ask("PUT", DATA.format(session, f"b{i}"), b"x").expect(201)
            e = feed.find("buffer.created", session=session)
            assert daemon.meta(e["buffer"], session)["generation"] == e["generation"]


def test_pools(daemon, session):
    path = f"/v1/sessions/{session}/pools"
    with Feed(daemon, "?type=pool.,buffer.lost") as feed:
        daemon.ask("POST", path, {"name": "p"}).expect(201)
        daemon.ask("PATCH", path + "/p", {"release_threshold_bytes": 0}).expect(200)
        daemon.ask("POST", path + "/p/trim", {"keep_bytes": 0}).expect(200)
        daemon.put("x", b"1", session, "?pool=p").expect(201)
        daemon.ask("DELETE", path + "/p?force=true").expect(204)
        events = feed.take(5)
    assert kinds(events) == ["pool.created", "pool.changed", "pool.trimmed", "pool.deleted", "buffer.lost"]
    assert all(e["session"] == session for e in events) and all(e["pool"] == "p" for e in events[:4])
    assert events[4]["count"] == 1


def test_an_expiry(start):
    d = start()
    with Feed(d, "?type=session.") as feed:
        d.ask("POST", "/v1/sessions", {"name": "brief", "idle_ttl_s": 1}).expect(201)
        assert kinds(feed.take(2)) == ["session.created", "session.expired"]


def test_leases(daemon, session):
    daemon.put("x", b"1234", session, "?kind=pinned").expect(201)
    with Feed(daemon, "?type=lease.", unix=True) as feed:
        with daemon.raw(unix=True) as raw:
            raw.request("POST", f"/v1/sessions/{session}/buffers/x/map", ["Content-Length: 2"], b"{}")
            while raw.head()[0] != 200:
                pass
        granted, ended = feed.take(2)
    assert kinds([granted, ended]) == ["lease.granted", "lease.ended"]
    assert granted["lease"] == ended["lease"] and granted["buffer"] == "x"


def test_refusals_are_counted_not_told_each(start, simulated):
    d = start(spec=simulated("bytes=64M"))
    d.ask("POST", "/v1/sessions", {"name": "small", "quota": {"bytes": 100}}).expect(201)
    with Feed(d, "?type=quota.,memory.") as feed:
        for _ in range(200):
            d.ask("POST", "/v1/sessions/small/buffers", {"name": "x", "bytes": 1000}).expect(507)
            d.ask("POST", "/v1/sessions/default/buffers", {"name": "x", "bytes": 1 << 30}).expect(507)
        seen = {"quota.exceeded": 0, "memory.exhausted": 0}
        events = 0
        while min(seen.values()) < 200:
            e = feed.next()
            events += 1
            seen[e["type"]] += e.get("count", 1)
            assert re.search(r"limit_bytes \d+, used_bytes \d+, requested_bytes (\d+)",
                             e["detail"]).group(1) == str(e["bytes"])
            assert (e["session"], e["bytes"]) == (("small", 1000) if e["type"][0] == "q" else ("default", 1 << 30))
    assert max(seen.values()) == 200 and events < 100


def test_a_device_fails(start, backend):
    d = start(spec=f"fault:alloc@2+=cudaErrorIllegalAddress:{backend}")
    d.put("kept", b"x").expect(201)
    with Feed(d) as feed:
        assert d.put("y", bytes(1 << 20)).status >= 500
        feed.find("device.failed", detail="cudaErrorIllegalAddress")
        feed.find("buffer.lost", session="default", count=1)


# --- over time --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_resume_across_a_restart(start, tmp_path, how):
    d = start(state=str(tmp_path))
    for i in range(10):
        d.put(f"b{i}", b"x").expect(201)
    first = until("all are told", lambda: page(d, "?after=0&type=buffer.")["items"][9:]
                  and page(d, "?after=0")["items"])
    seen = [e["id"] for e in first]
    d.process.send_signal(how)
    d.process.wait(PATIENCE_S)
    d = start(state=str(tmp_path))
    with Feed(d, headers=[f"Last-Event-ID: {seen[4]}"]) as feed:
        events = feed.take(len(seen) - 5)
        assert [e["id"] for e in events] == seen[5:]
        assert feed.next()["type"] == ("daemon.stopping" if how == signal.SIGTERM else "feed.gap")
        started = feed.next()
        assert (started["type"] == "daemon.started" and started["id"] > seen[-1] and ("detail" in started)
                == (how == signal.SIGKILL))
        assert feed.find("buffer.lost", session="default")["count"] == 10
        d.put("later", b"x").expect(201)
        assert feed.find("buffer.created")["buffer"] == "later"


def test_a_pool_is_lost(start, simulated, tmp_path):
    d = start(spec=simulated("devices=2"), state=str(tmp_path))
    d.ask("POST", "/v1/sessions/default/pools", {"name": "far", "device": 1}).expect(201)
    d.stop()
    d = start(spec=simulated("devices=1"), state=str(tmp_path))
    lost, = told(d, "pool.lost")
    assert (lost["pool"], lost["session"]) == ("far", "default")


def test_a_gap(start, tmp_path):
    d = start("--feed-max", "20", state=str(tmp_path))
    for i in range(40):
        d.put(f"b{i}", b"x").expect(201)
    until("the last event is received", lambda: "b39" in [e.get("buffer") for e in page(d)["items"][-1:]])
    last = page(d)["last_id"]
    d.stop()
    with sqlite3.connect(os.path.join(tmp_path, "gpubufd.db")) as db:
        assert db.execute("SELECT count(*), max(type) FROM feed WHERE type != 'x'").fetchone()[0] == 20
    d = start("--feed-max", "20", state=str(tmp_path))
    with Feed(d, "?after=1") as feed:
        gap, e = feed.take(2)
        assert gap["type"] == "feed.gap" and 1 < gap["id"] < e["id"] and e["type"] == "buffer.created"
        assert feed.find("buffer.created", buffer="b39")["id"] == last
    items = page(d, "?after=1&limit=3")["items"]
    assert items[0] == {**gap, "at": items[0]["at"]} and items[1] == e
    with Feed(d, f"?after={1 << 50}") as feed:
        assert feed.next()["type"] == "feed.gap"
        d.put("b0", b"y").expect(200)
        assert feed.next()["buffer"] == "b0"
    ahead = page(d, f"?after={1 << 50}")
    gap, = ahead["items"]
    assert gap["type"] == "feed.gap" and ahead["last_id"] <= gap["id"] < 1 << 50 and ahead["next_cursor"] is None
    assert page(d, f"?after={gap['id']}")["items"] == []


def test_further_back_than_memory(start):
    d = start()
    c = d.client()
    for i in range(1300):
        c.ask("POST", "/v1/sessions/default/buffers", {"name": "x", "bytes": 0}).expect(201)
        c.ask("DELETE", "/v1/sessions/default/buffers/x").expect(204)
    until("all are told", lambda: len(page(d, "?limit=1000")["items"]) == 1000 and page(d)["last_id"] >= 2602)
    with Feed(d, "?after=0") as a, Feed(d, "?after=5&type=buffer.deleted") as b:
        ids = [e["id"] for e in a.take(2602)]
        assert ids == list(range(ids[0], ids[0] + 2602))
        assert kinds(b.take(1299)) == ["buffer.deleted"] * 1299
    got, after = [], 0
    while after is not None:
        p = page(d, f"?after={after}&limit=1000")
        got, after = got + p["items"], p["next_cursor"]
    assert [e["id"] for e in got] == ids


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_page(daemon, session):
    check = interface(daemon).check
    daemon.put("x", b"1", session).expect(201)
    until("the event is received", lambda: [e for e in page(daemon)["items"] if e.get("session") == session
                                            and "buffer" in e])
    reply = daemon.ask("GET", "/v1/feed?limit=2", None, JSON).expect(200)
    check("GET", "/v1/feed", reply)
    two = reply.json()
    assert len(two["items"]) == 2 and two["next_cursor"] is None and two["items"][-1]["id"] == two["last_id"]
    one = page(daemon, f"?after={two['items'][0]['id'] - 1}&limit=1")
    assert one["items"] == two["items"][:1] and one["next_cursor"] == str(two["items"][0]["id"])


@pytest.mark.parametrize("query, headers", [
    ("?type=nothing.", {}), ("?type=", {}), ("?type=buffer.,x", {}), ("?after=x", {}), ("?after=-1", {}),
    ("?limit=5", {}), ("?limit=0", JSON), ("?limit=1001", JSON), ("?unknown=1", {}), ("", {"Last-Event-ID": "x"}),
    ("", {"Last-Event-ID": ""})])
def test_what_cannot_be_asked(daemon, query, headers):
    assert daemon.ask("GET", "/v1/feed" + query, None, headers).status == 400


def test_head_and_http_1_0(daemon, session):
    r = daemon.ask("HEAD", "/v1/feed").expect(200)
    assert r.headers["Content-Type"] == "text/event-stream" and r.body == b""
    with Feed(daemon, version="1.0") as feed:
        daemon.put("x", b"1", session).expect(201)
        feed.find("buffer.created", session=session)


def test_tokens(start, tmp_path):
    def token(*args):
        done = subprocess.run([binary(), "token", *args, "--state-dir", str(tmp_path)], capture_output=True, text=True,
                              check=True, timeout=PATIENCE_S)
        return (done.stdout.split() or [""])[-1]

    every, mine = token("add", "all", "--scope", "write"), token("add", "mine", "--scope", "read", "--session", "mine")
    d = start(state=str(tmp_path))
    for name in ("mine", "other"):
        d.ask("POST", "/v1/sessions", {"name": name}, token=every).expect(201)
    with Feed(d) as feed:
        assert feed.status == 401
    with Feed(d, "?after=0", token=mine) as own, Feed(d, "?after=0", token=every) as both:
        for name in ("other", "mine"):
            d.ask("PUT", DATA.format(name, "x"), b"1", token=every).expect(201)
        assert both.find("buffer.created")["session"] == "other"
        events = []
        while not events or events[-1]["type"] != "buffer.created":
            events.append(own.next())
        assert kinds(events) == ["daemon.started", "session.created", "buffer.created"]
        assert {e.get("session") for e in events} == {None, "mine"}
        assert {e.get("session") for e in page(d, "?after=0", token=mine)["items"]} == {None, "mine"}
        token("revoke", "mine")
        while own.next() is not None:
            pass
        d.ask("PUT", DATA.format("mine", "y"), b"1", token=every).expect(201)
        both.find("buffer.created", buffer="y")  # the other token's listener stays


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_the_limit_of_listeners(start):
    """Half of such a small number is reserved for the UNIX socket."""
    d = start("--max-feed-listeners", "6")
    held = [Feed(d) for _ in range(3)]
    d.ask("GET", "/v1/feed").problem(503, "saturated")
    page(d)
    held.append(Feed(d, unix=True))
    held.pop(0).close()
    until("there is room again", lambda: Feed(d).status == 200)
    for feed in held:
        feed.close()


def test_heartbeats(start):
    d = start("--feed-heartbeat", "1")
    with Feed(d) as feed:
        assert feed.until(b"\n\n").startswith(b": ")
        assert feed.until(b"\n\n").startswith(b": ")


@pytest.mark.timeout(300)
def test_one_that_does_not_read_is_dropped(start):
    d = start("--stall-timeout", "1")
    c = d.client()
    with Feed(d, receive_bytes=4096) as slow, Feed(d) as quick:
        names = [f"{'n' * 100}{i}" for i in range(50)]
        makes = [{"op": "create", "buffer": name, "bytes": 0} for name in names]
        removes = [{"op": "delete", "buffer": name} for name in names]
        for _ in range(160):
            answer = c.ask("POST", "/v1/sessions/default/batch", {"operations": makes + removes}).expect(200).json()
            assert answer["failed"] == 0
            quick.take(2 * len(names))
        last = None
        while (e := slow.next()) is not None:
            last = e
        assert last["id"] < page(d)["last_id"]
        with Feed(d, f"?after={last['id']}") as again:
            assert again.next()["id"] > last["id"]


def test_the_stop(start):
    d = start()
    feeds = [Feed(d), Feed(d, unix=True), Feed(d, "?type=daemon.")]
    d.put("x", b"1").expect(201)
    d.stop()
    for feed, expected in zip(feeds, (["buffer.created"], ["buffer.created"], [])):
        events = []
        while (e := feed.next()) is not None:
            events.append(e["type"])
        assert events == expected + ["daemon.stopping"]
        feed.close()
