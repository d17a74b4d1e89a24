"""Streams and events by name, syncs, and the independence of streams."""
import pytest

from conform import Session, refuse
from harness import PATIENCE_S, SLOT, SMALL_SLOTS, until
from values import payload

BIG = payload(6 * SLOT)


def idle(s, stream):
    """The daemon may query the stream while the device itself processes it."""
    until(f"{stream} is idle", lambda: not s.get("streams/" + stream)["busy"])


def test_life_of_a_stream(s):
    assert s.names("streams") == ["default"]
    r = s.ask("POST", "streams", {"name": "a"}).expect(201)
    assert r.headers["Location"] == s.base + "/streams/a"
    assert s.names("streams") == ["default", "a"] and s.get("streams/a")["created_at"]
    assert Session(s.daemon).names("streams") == ["default"]
    s.put("x", BIG, "?stream=a")
    assert s.meta("x")["stream"] == "a"
    s.post("streams/a/sync")
    idle(s, "a")
    s.delete("streams/a")
    s.ask("GET", "streams/a").problem(404, "stream_not_found")
    assert s.data("x") == BIG and s.meta("x")["stream"] == "a"
    s.put("x", BIG[::-1])
    assert s.data("x") == BIG[::-1]
    s.post("streams", {"name": "a"}, 201)
    s.delete("buffers/x")


def test_every_data_operation_takes_a_stream(s):
    s.post("streams", {"name": "a"}, 201)
    s.put("x", BIG, "?stream=a")
    assert s.data("x", "?stream=a") == BIG
    s.buffer("y", bytes=100, stream="a")
    s.copy("z", "x", 201, stream="a")
    s.fill("y", 7, stream="a")
    s.buffer("m", bytes=100, mirrored=True)
    s.fill("m", 9, stream="a")
    s.post("buffers/m/sync", {"to": "host", "stream": "a"})
    assert (s.data("z"), s.data("y"), s.data("m")) == (BIG, b"\7" * 100, b"\x09" * 100)
    unknown = {"stream": "none"}
    for method, path, body in (("PUT", "buffers/x/data?stream=none", b"1"), ("GET", "buffers/x/data?stream=none", None),
                               ("POST", "buffers", {"name": "n", "bytes": 1, **unknown}),
                               ("POST", "buffers/x/copy", {"from": "z", **unknown}),
                               ("POST", "buffers/x/fill", {"pattern": 1, **unknown}),
                               ("POST", "buffers/m/sync", {"to": "device", **unknown})):
        p = s.ask(method, path, body).problem(404, "stream_not_found")
        assert "none" in p["detail"], (method, path)
    assert s.data("x") == BIG


def test_refusals(s):
    s.post("streams", {"name": "a"}, 201)
    s.post("events", {"name": "e"}, 201)
    refuse(s, [
        ("POST", "streams", {"name": "a"}, 409, "stream_exists", "a"),
        ("POST", "streams", {"name": "default"}, 409, "stream_exists", "default"),
        ("POST", "streams", {}, 400, "invalid_argument", "'name'"),
        ("POST", "streams", {"name": ".x"}, 400, "invalid_name", "name"),
        ("POST", "streams", {"name": 5}, 400, "wrong_type", "string"),
        ("POST", "streams", {"name": "b", "device": 0}, 400, "unknown_field", "device"),
        ("DELETE", "streams/default", None, 409, "stream_protected", "default"),
        ("DELETE", "streams/none", None, 404, "stream_not_found", "none"),
        ("POST", "streams/none/sync", None, 404, "stream_not_found", "none"),
        ("POST", "events", {"name": "e"}, 409, "event_exists", "e"),
        ("POST", "events", {}, 400, "invalid_argument", "'name'"),
        ("GET", "events/none", None, 404, "event_not_found", "none"),
        ("DELETE", "events/none", None, 404, "event_not_found", "none"),
        ("POST", "events/none/record", None, 404, "event_not_found", "none"),
        ("POST", "events/none/wait", None, 404, "event_not_found", "none"),
        ("POST", "events/none/sync", None, 404, "event_not_found", "none"),
        ("POST", "events/e/sync", {"stream": "default"}, 400, "unknown_field", "stream"),
        ("POST", "events/e/record", {"stream": "none"}, 404, "stream_not_found", "none"),
        ("POST", "events/e/wait", {"stream": "none"}, 404, "stream_not_found", "none"),
        ("POST", "events/e/wait", {"stream": 5}, 400, "wrong_type", "string"),
        ("POST", "events/e/record", {"on": "a"}, 400, "unknown_field", "stream"),
        ("POST", "/v1/devices/99/sync", None, 404, "device_not_found", "99"),
    ])
    nobody = Session(s.daemon, "nobody")
    for method, path, body in (("GET", "streams", None), ("GET", "events", None), ("POST", "streams", {"name": "a"}),
                               ("POST", "events", {"name": "a"}), ("POST", "sync", None)):
        nobody.ask(method, path, body).problem(404, "session_not_found")


def test_life_of_an_event(s):
    r = s.ask("POST", "events", {"name": "e"}).expect(201)
    assert (r.headers["Location"] == s.base + "/events/e" and r.json()["recorded"] is False and r.json()["stream"]
            is None)
    s.post("events/e/wait", {"stream": "default"})  # never recorded: nothing to wait for
    assert s.post("events/e/sync")["done"] is True
    s.post("streams", {"name": "a"}, 201)
    s.put("x", BIG, "?stream=a")
    assert s.post("events/e/record", {"stream": "a"})["recorded"] and s.get("events/e")["stream"] == "a"
    s.post("events/e/wait")
    s.post("streams/default/sync")
    until("it is done", lambda: s.get("events/e")["done"])
    assert s.names("events") == ["e"] and Session(s.daemon).names("events") == []
    s.delete("events/e")
    assert s.names("events") == []


def test_how_many(s):
    for what, most in (("streams", 64), ("events", 256)):
        for i in range(most):
            s.post(what, {"name": f"n{i}"}, 201)
        s.ask("POST", what, {"name": "more"}).problem(507, "limit_reached")
        s.delete(f"{what}/n3")
        until("there is room", lambda: s.ask("POST", what, {"name": "more"}).status == 201)
    wanted = [f"n{i}" for i in range(256) if i != 3] + ["more"]
    for limit in (1, 100, 1000):
        names, cursor = [], ""
        while cursor is not None:
            page = s.get(f"events?limit={limit}" + (f"&cursor={cursor}" if cursor else ""))
            names, cursor = names + [e["name"] for e in page["items"]], page["next_cursor"]
        assert names == wanted, limit


def test_streams_and_events_end_with_the_process(start, tmp_path):
    d = start(state=str(tmp_path))
    s = Session(d)
    s.post("streams", {"name": "a"}, 201)
    s.post("events", {"name": "e"}, 201)
    s.put("x", b"1", "?stream=a")
    d.stop()
    s = Session(start(state=str(tmp_path)))
    assert s.names("streams") == ["default"] and s.names("events") == []
    s.put("x", b"2")
    assert s.data("x") == b"2"


# --- work that is stalled ---------------------------------------------------------------------------------------------

STALL_MS = 4000


@pytest.fixture
def stalled(start, backend):
    """Sessions one and two of a daemon whose first fill stalls its stream for a while; and that fill."""
    d = start(*SMALL_SLOTS, "--http-threads", "1", spec=f"fault:place_fill@1=stall/{STALL_MS}:{backend}")
    for name in ("one", "two"):
        d.ask("POST", "/v1/sessions", {"name": name}).expect(201)
    one, two = Session(d, "one"), Session(d, "two")
    one.post("streams", {"name": "a"}, 201)
    one.put("x", b"\0" * 1000)
    body = b'{"pattern":7,"stream":"a","in_place":true}'
    raw = d.raw().request("POST", one.base + "/buffers/x/fill", [f"Content-Length: {len(body)}"], body)
    until("it runs", lambda: d.stats()["running"]["writes"] == 1)
    until("the stream is busy", lambda: one.get("streams/a")["busy"])
    yield one, two, raw
    raw.close()


def test_a_stalled_stream_holds_up_nobody_else(stalled):
    one, two, raw = stalled
    for i in range(20):
        two.put("y", payload(1000, i))
        assert two.data("y") == payload(1000, i)
        two.copy("z", "y", 200 if i else 201)
        two.fill("z", i, in_place=True)
        two.post("streams/default/sync")
        two.post("sync", None, 204)
        two.buffer(f"n{i}", bytes=10)
        one.put("other", payload(1000, i))  # the same session, another stream
        assert one.data("other") == payload(1000, i)
    two.post("pools", {"name": "p"}, 201)
    two.put("w", BIG, "?pool=p")
    two.delete("buffers/w")
    assert one.get("streams/a")["busy"], "the stall ended too soon to show anything"
    assert raw.reply().expect(200).json()["generation"] == 2
    assert one.data("x") == b"\7" * 1000


def test_syncs_are_bounded(stalled):
    one, two, raw = stalled
    brief = {"Prefer": "wait=0"}
    one.post("events", {"name": "e"}, 201)
    one.post("events/e/record", {"stream": "a"})
    for path in ("streams/a/sync", "sync", "/v1/devices/0/sync", "events/e/sync"):
        p = one.ask("POST", path, None, brief).problem(503, "timed_out")
        assert p["retryable"]
    one.post("streams/default/sync", None, 200, brief)
    two.post("sync", None, 204, {"Prefer": "wait=60"})
    assert one.get("streams/a")["busy"]
    assert one.post("events/e/sync", None, 200, {"Prefer": "wait=60"})["done"] is True
    one.post("streams/a/sync", None, 200, {"Prefer": "wait=60"})
    assert raw.reply().status == 200
    for path, status in (("sync", 204), ("/v1/devices/0/sync", 204)):
        one.post(path, None, status)


def test_an_event_carries_the_order_to_another_stream(stalled):
    one, _, raw = stalled
    one.post("streams", {"name": "b"}, 201)
    one.post("events", {"name": "e"}, 201)
    one.post("events/e/record", {"stream": "a"})
    assert one.get("events/e")["done"] is False
    one.post("streams/b/sync", None, 200, {"Prefer": "wait=60"})
    one.post("events/e/wait", {"stream": "b"})
    one.ask("POST", "streams/b/sync", None, {"Prefer": "wait=0"}).problem(503, "timed_out")
    assert one.get("streams/b")["busy"]
    one.delete("events/e")  # a waiting request still waits
    one.ask("POST", "streams/b/sync", None, {"Prefer": "wait=0"}).problem(503, "timed_out")
    one.post("streams/b/sync")
    idle(one, "a")
    assert raw.reply().status == 200


def test_deleting_a_busy_stream_drains_it(stalled):
    one, two, raw = stalled
    one.delete("streams/a")
    one.ask("GET", "streams/a").problem(404, "stream_not_found")
    one.post("streams", {"name": "a"}, 201)
    one.post("streams/a/sync", None, 200, {"Prefer": "wait=60"})
    idle(one, "a")
    one.ask("POST", "/v1/devices/0/sync", None, {"Prefer": "wait=0"}).problem(503, "timed_out")
    two.put("y", b"1")
    assert raw.reply().expect(200).json()["name"] == "x" and one.data("x") == b"\7" * 1000


def test_deleting_a_session_with_a_stalled_stream(stalled):
    one, two, raw = stalled
    one.daemon.ask("DELETE", "/v1/sessions/one").expect(204)
    two.put("y", b"1")
    assert raw.reply().status in (200, 404)
    until("its memory is free", lambda: two.get("pools/default")["used_bytes"] <= 512)


def test_a_full_sync_waits_for_what_was_queued_before_it(stalled):
    one, _, raw = stalled
    one.post("sync", None, 204, {"Prefer": f"wait={int(PATIENCE_S)}"})
    idle(one, "a")
    assert raw.reply().status == 200


def test_memory_whose_stream_is_deleted_leaves_it_by_another(start, tmp_path):
    """To the disk, to host memory and into a checkpoint. The stream does not end twice."""
    s = Session(start("--max-streams", "1", "--spill-host-bytes", "64M", state=str(tmp_path)))
    ways = {"sync": ("PATCH", "buffers/sync", {"durability": "sync"}), "disk": ("POST", "buffers/disk/evict", {}),
            "host": ("POST", "buffers/host/evict", {"to": "host"}), "kept": ("POST", "checkpoints", {"name": "k"}),
            "copied": ("POST", "buffers/copy_of_it/copy", {"from": "copied"})}
    for name, way in ways.items():
        until("the last one is gone", lambda: s.ask("POST", "streams", {"name": "a"}).status == 201)
        s.ask("POST", "streams", {"name": "b"}).problem(507, "limit_reached")
        s.put(name, BIG, "?stream=a")
        s.delete("streams/a")
        until("it is gone", lambda: s.ask("POST", "streams", {"name": "b"}).status == 201)
        s.delete("streams/b")
        assert s.ask(*way).status in (200, 201), way
        assert s.data(name) == BIG
    for name in ways:
        s.delete("buffers/" + name)
    s.put("x", BIG)
    assert s.data("x") == BIG


def test_zeros_come_on_another_stream_when_theirs_is_deleted(s):
    for way in ("GET", "evict"):
        s.post("streams", {"name": "a"}, 201)
        s.buffer(way, bytes=len(BIG), stream="a")
        s.delete("streams/a")
        s.post("sync", None, 204)
        if way == "evict":
            s.post(f"buffers/{way}/evict")
        assert s.data(way) == bytes(len(BIG))
        s.delete("buffers/" + way)


def test_how_many_may_be_set(start):
    s = Session(start("--max-streams", "2", "--max-events", "1", "--max-pools", "1"))
    for noun, names in (("streams", "ab"), ("events", "a"), ("pools", "a")):
        for name in names:
            s.post(noun, {"name": name}, 201)
        s.ask("POST", noun, {"name": "z"}).problem(507, "limit_reached")
        if noun != "events":
            s.ask("PUT", noun + "/z").problem(507, "limit_reached")
            s.ask("PUT", noun + "/a").expect(200)
