"""The Python client's other methods: resources, operations, the daemon's address, and that every route has a method."""
import asyncio
import contextlib
import os
import re
import socket
import threading
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from pyclient import ROOT, client_of, gpubuf

from harness import token, until
from values import payload

# Routes without a method, with the reason. Client.request reaches them.
EXCEPT = {
    "livez": "for supervisors", "readyz": "for supervisors", "openapi": "for people and tools",
    "metrics": "for Prometheus", "web_page": "for browsers", "web_fleet": "for browsers", "web_file": "for browsers",
    "allocation_list": "a file for RMM's tools", "memory_snapshot": "a file for PyTorch's memory_viz",
    "data_patch": "put with offset or slice", "data_post": "for appends", "upload_list": "for clients that break off",
    "upload_create": "the same", "upload_get": "the same", "upload_append": "the same", "upload_delete": "the same",
    "upload_part": "the same", "upload_complete": "the same",
    "checkpoint_file_get": "for gpubuf checkpoints get", "checkpoint_file_put": "for gpubuf checkpoints put",
    "fleet_session_handover": "nodes ask it of each other", "fleet_session_copies": "the same",
    "fleet_copies_wanted": "the same", "fleet_directory": "nodes ask it of hubs",
    "fleet_tenant_get": "tenants() has it",
    "session_put": "create(exist_ok=True)", "pool_put": "create, and get where it exists", "stream_put": "the same",
}


def test_every_route_has_a_method(monkeypatch):
    """Each method is called once without a daemon; its request is compared with the list of routes."""
    with open(os.path.join(ROOT, "src", "api", "routes.def")) as f:
        routes = re.findall(r'^GB_ROUTE\((\w+), "([^"]+)", (\w+),', f.read(), re.M)
    asked = set()

    class Asked(Exception):
        pass

    def ask(self, method, target, *_, **__):
        asked.add((method, target.partition("?")[0]))
        raise Asked

    def lease(self, path, *_):
        asked.add(("POST", path))
        raise Asked

    monkeypatch.setattr(gpubuf.client.Transport, "ask", ask)
    monkeypatch.setattr("gpubuf._lease.Lease.__init__", lambda *_: None)
    monkeypatch.setattr("gpubuf._lease.Lease.ask", lease)
    c = gpubuf.Client(socket="/nowhere", session="S")
    f = gpubuf.Fleet("http://nowhere")
    a = np.zeros(1)
    calls = [
        (c.put, "B", a), (c.get, "B"), (c.tensors_put, {"B": a}), (c.tensors_get,), (c.create, "B"), (c.info, "B"),
        (c.last_transfer, "B"), (c.list_tensors, "B"), (c.list,), (c.update, "B"), (c.delete, "B"),
        (c.copy, "A", "B"), (c.pull, "B", "http://h/x"), (c.fill, "B", 0), (c.sync, "B"), (c.reserve, "B", 9, "host"),
        (c.release, "B", "all"), (c.seal, "B"), (c.store, "B"),
        (c.load, "B"), (c.evict, "B"), (c.storage,), (c.scrub,), (c.verify, "B"), (c.map, "B"),
        (c.adopt, "B", c.shared_array((4,))), (c.export, "B"), (c.batch, []), (c.feed,), (c.stats,), (c.audit,),
        (c.about,), (c.sessions.list,), (c.sessions.copies,), (c.sessions.create, "S"), (c.sessions.get,),
        (c.sessions.update,), (c.sessions.delete,), (c.sessions.heartbeat,), (c.sessions.stats,), (c.sessions.sync,),
        (c.sessions.evict,), (c.sessions.load,), (c.pools.list,), (c.pools.create, "P"), (c.pools.get, "P"),
        (c.pools.update, "P"), (c.pools.delete, "P"), (c.pools.trim, "P"), (c.pools.reset_peak, "P"),
        (c.pools.access, "P", 0, "none"), (c.pools.stats, "P"), (c.devices.stats, 0), (c.streams.list,),
        (c.streams.create, "T"), (c.streams.get, "T"), (c.streams.delete, "T"), (c.streams.sync, "T"),
        (c.streams.hold, "T"), (c.devices.selftest, 0), (c.events.list,), (c.events.create, "E"), (c.events.get, "E"),
        (c.events.delete, "E"), (c.events.record, "E"), (c.events.wait, "E"), (c.events.sync, "E"), (c.devices.list,),
        (c.devices.get, 0),
        (c.devices.sync, 0), (c.operations.list,), (c.operations.get, "O"), (c.operations.wait, "O"),
        (c.operations.cancel, "O"), (c.leases.list,), (c.leases.get, "L"), (c.leases.end, "L"), (c.checkpoint, "C"),
        (c.checkpoints,), (c.checkpoint_info, "C"), (c.verify_checkpoint, "C"), (c.restore, "C"),
        (c.delete_checkpoint, "C"), (f.about,), (f.nodes,), (f.node, "N"), (f.drain, "N"), (f.undrain, "N"),
        (f.forget, "N"), (f.stats,), (f.targets,), (f.sessions,), (f.copies,), (f.tenants,), (f.set_tenant, "N", 1),
        (f.delete_tenant, "N"), (f.where, "S"), (f.place, "S"), (f.move, "S"), (f.take, "S"), (f.delete, "S"),
        (f.session, "S"),
    ]
    for method, *arguments in calls:
        with pytest.raises(Asked):
            method(*arguments)
    public = {m for owner in (c, c.sessions, c.pools, c.streams, c.events, c.devices, c.operations, c.leases, f)
              for kind in type(owner).__mro__ for m in vars(kind).items() if callable(m[1])
              and not m[0].startswith("_")}
    called = {method.__func__ for method, *_ in calls}
    assert {name for name, f in public if f not in called} == {"awake", "close", "with_session", "submit", "request",
                                                               "shared_array", "put_state_dict", "get_state_dict",
                                                               "tensors", "load_into"}
    names = {"session": "S", "buffer": "B", "pool": "P", "stream": "T", "event": "E", "device": "0", "operation": "O",
             "lease": "L", "checkpoint": "C", "node": "N", "tenant": "N"}
    for method, path, handler in routes:
        ours = (method, re.sub(r"{(\w+)}", lambda m: names.get(m[1], "?"), path))
        assert (ours in asked) == (handler not in EXCEPT), (method, path, handler)


def test_a_past(start):
    """The history as the daemon returns it; times may have any accepted form."""
    d = start("--sample-interval", "1")
    with client_of(d, "default") as c:
        c.put("x", np.zeros(1000, np.float32))
        until("there is a sample", lambda: c.stats(since=-60)["items"])
        began = datetime.now(timezone.utc) - timedelta(minutes=1)
        for since in (-60, began, began.astimezone(timezone(timedelta(hours=5))), began.strftime("%Y-%m-%dT%H:%M:%SZ")):
            until("the last sample has the buffer", lambda: c.stats(since=since)["items"][-1]["buffers"]["last"] == 1)
        assert c.stats(since=began, until=-1, step=10)["step_s"] == 10
        for past in (c.sessions.stats(since=-60), c.pools.stats(since=-60), c.devices.stats(since=-60)):
            assert past["source"] == "samples" and past["items"]
        over = until("two samples are past", lambda: c.stats(since=began, step=1)["items"][2:])
        span = {"since": began.strftime("%Y-%m-%dT%H:%M:%SZ"), "until": over[-1]["at"], "step": 1}
        for method, of in ((c.stats, ""), (c.devices.stats, "/devices/0"), (c.sessions.stats, "/sessions/default"),
                           (c.pools.stats, "/sessions/default/pools/default")):
            past = method(**span)
            assert past["items"] and past == c.request("GET", f"/v1{of}/stats", query=span), method


# --- resources --------------------------------------------------------------------------------------------------------


def test_buffers(c):
    assert (c.list() == [] and c.create("a", dtype="int32", shape=(2, 3), labels={"of": "test", "not": "long"})["bytes"]
            == 24)
    assert (c.get("a") == np.zeros((2, 3), np.int32)).all()
    tag = c.info("a")["etag"]
    changed = c.update("a", labels={"not": None}, dtype="float32", shape=(6,), if_match=tag)
    assert changed["labels"] == {"of": "test"} and c.get("a").dtype == np.float32
    assert c.fill("a", 0x40000000, 4)["generation"] == changed["generation"] + 1 and (c.get("a") == 2).all()
    c.fill("a", (1 << 64) - 1, 8, offset=8, bytes=8, in_place=True)
    assert c.get("a", raw=True)[8:16] == b"\xff" * 8
    c.copy("a", "b")
    c.copy(f"{c.session}/a", "b", from_offset=8, offset=0, bytes=4)
    with pytest.raises(gpubuf.PreconditionFailed, match="source"):
        c.copy("a", "b", source_if_match='"0.0"')
    for more in ({"token": "t"}, {"connections": 2}, {"digest": {"sha-256": "AAAA"}}):
        with pytest.raises(gpubuf.BadArgument, match="goes with the URL"):
            c.copy("a", "b", **more)
    assert c.get("b", raw=True)[:4] == b"\xff" * 4
    found = c.verify("b", algorithms=["sha-256"])
    assert found["match"] is None and set(found["digest"]) == {"sha-256"}, ("a part was written: there was nothing to "
                                                                            "compare with")
    assert c.verify("b")["match"] is True and c.verify("b", digest=found["digest"])["match"] is True
    assert not c.verify("b", digest={"sha-256": "A" * 43 + "="})["match"]
    assert c.last_transfer("b") is None
    c.put("large", payload(2 << 20))
    assert c.last_transfer("large")["direction"] == "upload" and c.delete("large") is True
    assert [b["name"] for b in c.list()] == ["a", "b"] and c.delete("b") is True
    with pytest.raises(gpubuf.BufferNotFound):
        c.info("b")
    c.create("m", bytes=64, mirrored=True)
    c.put("m", payload(64))
    assert c.sync("m", "device")["head"] == "synced" and c.release("m", "host")["head"] == "device"
    assert c.get("m", raw=True) == payload(64)
    assert c.reserve("m", 100, "device")["sides"]["device"] == {"bytes": 100, "current": True, "owned": True}
    assert c.reserve("m", side="device", elements=50, dtype="float32")["sides"]["device"]["bytes"] == 200
    for wrong in ({"nbytes": 9, "elements": 9, "dtype": "int8"}, {"elements": 9}, {}):
        with pytest.raises(gpubuf.InvalidArgument, match="in their place"):
            c.reserve("m", side="host", **wrong)
    assert c.info("m")["sides"]["host"] == {"bytes": 0, "current": False, "owned": True, "pinned": False}


def test_many_pages(c):
    reply = c.batch([{"op": "create", "buffer": f"b{i}", "bytes": 1} for i in range(1000)])
    assert reply["done"] == 1000 and c.create("last", bytes=1) and len(c.list()) == 1001


def test_batch(c):
    reply = c.batch([{"op": "create", "buffer": "x", "bytes": 8}, {"op": "delete", "buffer": "none"}])
    assert (reply["done"], reply["failed"]) == (1, 1) and reply["results"][1]["problem"]["code"] == "buffer_not_found"
    with pytest.raises(gpubuf.Error):
        c.batch([])


def test_sessions(daemon, c):
    name = c.session + "-more"
    made = c.sessions.create(name, labels={"a": "b"}, quota={"bytes": 100}, idle_ttl_s=60)
    assert made["quota"]["bytes"] == 100 and c.sessions.create(name, exist_ok=True)["labels"] == {"a": "b"}
    with pytest.raises(gpubuf.SessionExists):
        c.sessions.create(name)
    other = c.with_session(name)
    other.put("x", b"1")
    assert (other.session == name and other.sessions.get()["buffers"] == 1 and c.list() == []
            and other.sessions.heartbeat()["expires_at"])
    assert other.sessions.update(quota={"bytes": None}, labels={"a": None},
                                 if_match=other.sessions.get()["etag"])["labels"] == {}
    other.sessions.sync()
    assert other.sessions.stats()["session"] == name and name in [s["name"] for s in c.sessions.list()]
    c.sessions.delete(name)
    with pytest.raises(gpubuf.SessionNotFound):
        other.list()


def test_pools(c):
    assert {"default"} <= {p["name"] for p in c.pools.list()}
    made = c.pools.create("p", max_bytes=64 << 20, release_threshold_bytes=0, reuse={"allow_opportunistic": False})
    assert made["max_bytes"] and made["reuse"]["allow_opportunistic"] is False
    assert c.pools.update("p", release_threshold_bytes=2 ** 64 - 1)["release_threshold_bytes"] is None
    c.pools.update("p", release_threshold_bytes=0)
    c.put("x", payload(1000), pool="p")
    assert c.info("x")["pool"] == "p" and c.pools.get("p")["buffers"] == 1
    assert c.sessions.update(pool="p")["current_pools"][0] == "p"
    assert c.sessions.update(pool="p")["pool"] == "p" and c.sessions.update(pool="default")["pool"] == "default"
    assert c.pools.get("p")["growths"] == 1 and c.pools.get("p")["reuses"] == 0
    assert c.pools.update("p", reuse={"allow_opportunistic": True})["reuse"]["allow_opportunistic"]
    assert c.pools.reset_peak("p")["name"] == "p" and c.pools.trim("p")["name"] == "p"
    with pytest.raises(gpubuf.Busy) as e:
        c.pools.delete("p")
    assert e.value.retryable
    c.delete("x")
    c.pools.delete("p")
    with pytest.raises(gpubuf.PoolProtected):
        c.pools.delete("default")


def test_streams_events_devices(c):
    c.streams.create("s")
    c.put("x", payload(100), stream="s")
    assert {s["name"] for s in c.streams.list()} == {"default", "s"} and c.streams.get("s")["session"] == c.session
    c.events.create("e")
    assert (c.events.record("e", "s")["recorded"] and c.events.wait("e")["name"] == "e" and c.events.list()[0]["name"]
            == "e")
    assert c.events.sync("e", wait=5)["done"] and c.operations.wait(c.submit(c.events.sync, "e"))["state"] == "done"
    assert c.streams.sync("s", wait=5)["busy"] is False and c.events.get("e")["done"]
    c.events.delete("e")
    c.streams.delete("s")
    device = c.devices.list()[0]
    assert c.devices.get(device["uuid"])["index"] == device["index"] and c.devices.sync(device["index"]) is None
    for ask, error in ((lambda: c.events.get("e"), gpubuf.EventNotFound),
                       (lambda: c.streams.get("s"), gpubuf.StreamNotFound),
                       (lambda: c.devices.get(99), gpubuf.DeviceNotFound), (lambda: c.streams.delete("default"),
                                                                            gpubuf.StreamProtected)):
        with pytest.raises(error):
            ask()


def test_calls_keep_the_order_of_a_stream(start):
    """Each waits for the fill before it on the stream, and sees its bytes."""
    with client_of(start(), "default") as c:
        c.streams.create("a")
        for method, kind, more, known in (
                (c.seal, {}, {}, {"generation": 2, "sealed": True}),
                (c.release, {"mirrored": True}, {"side": "all"}, {"head": "uninitialized"}),
                (c.store, {"durability": "behind"}, {}, {"stored_generation": 2}),
                (c.evict, {"durability": "behind"}, {"to": "disk"}, {"generation": 2, "state": "stored"}),
                (c.verify, {}, {}, {}), (c.delete, {}, {}, None)):
            c.create("x", bytes=100000, **kind)
            with pytest.raises(gpubuf.StreamNotFound):
                method("x", stream="nope", **more)
            c.streams.hold("a", 500)
            filled = c.submit(c.fill, "x", 7, stream="a")
            said = method("x", stream="a", **more)
            assert c.operations.wait(filled)["state"] == "done", method
            assert said is True if known is None else known.items() <= said.items()
            assert c.delete("x", missing_ok=True)

        async def go():
            async with gpubuf.AsyncClient(c) as a:
                await a.create("x", bytes=64, mirrored=True)
                await a.put("x", bytes(64), stream="a")
                assert (await a.release("x", "all", stream="a"))["head"] == "uninitialized"
                for call in (a.seal, a.store, a.evict, a.delete):
                    with pytest.raises(gpubuf.StreamNotFound):
                        await call("x", stream="nope")

        asyncio.run(go())


def test_what_builds_on_a_write_that_failed_raises(c):
    c.streams.create("a")
    tag = c.put("x", bytes(8))["etag"]
    c.streams.hold("a", 1000)
    for more in ({}, {"if_match": tag}):
        c.submit(c.fill, "x", 7, stream="a", **more)
    with pytest.raises(gpubuf.DependencyFailed, match="If-Match") as e:
        c.copy("x", "y", stream="a")
    assert isinstance(e.value, gpubuf.Conflict) and not e.value.retryable
    assert c.copy("x", "y", stream="a")["bytes"] == 8 and c.get("y", raw=True) == b"\7" * 8


def test_the_daemon_itself(c):
    assert c.about()["name"] == "gpubufd" and c.stats()["buffers"]["count"] >= 0
    assert (c.request("GET", "/v1/sessions", query={"limit": 1})["items"]
            and c.request("POST", f"/v1/sessions/{c.session}/heartbeat", {}))
    with pytest.raises(gpubuf.NoRoute):
        c.request("GET", "/v1/moon")


# --- asynchronous operations ------------------------------------------------------------------------------------------


def test_operations(c):
    c.put("a", payload(1 << 20))
    for call in ((c.copy, "a", "b"), (c.fill, "a", 1), (c.put, "c", payload(100)), (c.verify, "a"), (c.pools.trim,),
                 (c.streams.sync,)):
        op = c.submit(*call)
        done = c.operations.wait(op, timeout=90)
        assert done["state"] == "done"
        if op["id"]:
            assert c.operations.get(op["id"])["kind"] and c.operations.wait(op["id"])["id"] == op["id"]
            assert op["id"] in [o["id"] for o in c.operations.list()]
            with pytest.raises(gpubuf.OperationEnded):
                c.operations.cancel(op)
    assert c.get("b", raw=True) == payload(1 << 20) and (c.get("a") == 1).all()
    with pytest.raises(gpubuf.BufferNotFound):
        c.operations.wait(c.submit(c.copy, "none", "d"))
    with pytest.raises(gpubuf.OperationNotFound):
        c.operations.wait("00000000-1")
    with pytest.raises(TypeError, match="takes a method of the client"):
        c.submit(print, 1)
    assert c.copy("a", "e")["name"] == "e", "what was submitted has left no trace in the client"


def needed(kind):
    """The keys that each answer of that type has."""
    names = {}
    for cls in reversed([kind, *kind.__dict__.get("__orig_bases__", ())]):
        names.update(getattr(cls, "__annotations__", {}))
    texts = {name: getattr(text, "__forward_arg__", str(text)) for name, text in names.items()}
    return {name for name, text in texts.items() if not text.startswith("NotRequired[")}, set(texts)


def test_answers_have_the_keys_of_their_types(daemon, session):
    """What a type requires is always there, so that type checkers may take it; what an answer has beside that, the type
    knows."""
    from gpubuf import types

    with client_of(daemon, session, unix=True) as c:
        array, name = np.ones(4), session + "-2"
        c.put("sealed", array)
        moved = c.submit(c.copy, "sealed", "copied")
        done = c.operations.wait(moved)
        answers = {
            types.Put: [c.put("x", array), c.put("x", array, labels={"a": "b"}), c.put("x", array[:2], slice=np.s_[:2]),
                        c.put("big", np.zeros(33 << 20, np.uint8), connections=2), *c.put_state_dict({"a/b": array})],
            types.Buffer: [c.create("new", bytes=8), c.info("x"), c.info("x", attributes=True),
                           c.update("x", labels={"c": "d"}), c.copy("x", "y"), c.fill("y", 0), c.seal("sealed"),
                           c.put("m", array, mirrored=True), c.sync("m", "device"), c.reserve("m", 64, "host"),
                           c.release("m", "host"), c.load("y")],
            types.ListedBuffer: [*c.list(), *c.tensors_put({"t": array})],
            types.Side: c.info("m")["sides"].values(),
            types.Session: [c.sessions.create(name), c.sessions.get(name), c.sessions.update(name, labels={"a": "b"})],
            types.ListedSession: c.sessions.list(),
            types.Limits: [c.sessions.get(name)["quota"]],
            types.Pool: [c.pools.create("p"), c.pools.get(), c.pools.update("p", release_threshold_bytes=0),
                         c.pools.trim("p"), c.pools.reset_peak("p"), *c.pools.list()],
            types.Reusing: [c.pools.get("p")["reuse"]],
            types.Stream: [c.streams.create("s"), c.streams.get("s"), c.streams.sync("s"), *c.streams.list()],
            types.Hold: [c.streams.hold("s", 1)],
            types.Event: [c.events.create("e"), c.events.record("e"), c.events.wait("e"), c.events.get("e"),
                          c.events.sync("e"), *c.events.list()],
            types.Device: [c.devices.get(), *c.devices.list()],
            types.Operation: [moved, done, *c.operations.list(), c.submit(c.info, "x")],
            types.Verified: [c.verify("x"), c.verify("x", algorithms=["sha-256"])],
            types.BatchReply: [c.batch([{"op": "sync", "buffer": "m", "to": "host"}])],
            types.Storage: [c.storage()],
            types.HostTier: [c.storage()["host"]],
            types.LastTransfer: [c.last_transfer("big")],
            types.AuditRecord: c.audit(limit=50),
            types.Swept: [c.sessions.evict(name)],
        }
        c.put("shared", array, kind="shared")
        with c.map("shared") as m:
            answers[types.Lease] = [c.leases.get(m.lease), *c.leases.list()]
            answers[types.PassedOver] = m.passed_over
            answers[types.DeviceId] = [m.device]
        with c.adopt("mine", c.shared_array(4)) as owned, c.feed(after=0) as feed:
            answers[types.ListedBuffer].append(owned.info)
            answers[types.FeedEvent] = [next(feed) for _ in range(5)]
        answers[types.FleetState] = [c.request("GET", "/v1/fleet")]
        for kind, found in answers.items():
            required, known = needed(kind)
            for answer in found:
                assert required <= set(answer), (kind.__name__, required - set(answer))
                if kind is not types.AuditRecord:
                    assert set(answer) <= known | {"road"} | ({"etag"} if kind is types.ListedBuffer
                                                              else set()), (kind.__name__, set(answer) - known)
        c.sessions.delete(name)
    for kind, keys in ((types.Buffer, {"bytes", "etag"}), (types.Put, {"bytes", "etag", "road"}),
                       (types.Session, {"etag", "quota"}), (types.Pool, {"reuse"})):
        assert keys <= needed(kind)[0]


def test_an_operation_that_waits(start, backend):
    with client_of(start(spec=f"fault:place_fill@1=stall/1500:{backend}")) as c:
        c.put("a", payload(1 << 20))
        op = c.submit(c.fill, "a", 1)
        with pytest.raises(TimeoutError, match=r"is (queued|running) after 0.01 s"):
            c.operations.wait(op, timeout=0.01)
        assert op["id"] and c.operations.wait(op, timeout=90)["state"] == "done"


# --- the daemon's address ---------------------------------------------------------------------------------------------


@pytest.fixture
def alone(monkeypatch):
    for name in ("GPUBUF_URL", "GPUBUF_SOCKET", "GPUBUF_TOKEN", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("gpubuf._address._candidates", lambda: [])
    return monkeypatch


def test_addresses(alone, tmp_path):
    assert gpubuf.Client().url == "http://127.0.0.1:7070"
    for url, shown in (("http://h", "http://h:80"), ("http://[::1]:7070/", "http://[::1]:7070"),
                       ("https://h/below/", "https://h:443/below"), ("unix:///a/b.sock", "unix:///a/b.sock"),
                       ("unix:///a%20b", "unix:///a b")):
        assert gpubuf.Client(url).url == shown
    for url, shown in (("h", "http://h:7070"), ("127.0.0.1:7070", "http://127.0.0.1:7070"),
                       ("[::1]:7070/", "http://[::1]:7070"), ("edge_1.lan:1", "http://edge_1.lan:1")):
        assert gpubuf.Client(url).url == shown
    for url in ("", "h:", "h:x", "h:70000", "h:1/below", "/h", "./h", ":1", "u@h:1", "[::1", "[::1]x", "a b", "http:",
                "h?x", "ftp://h", "unix://host/x", "unix:x", "http://", "http://u:p@h", "http://h?x=1"):
        with pytest.raises(ValueError):
            gpubuf.Client(url)
    for url in ("http://me:letmein@h", "me:letmein@h:1", "me:letmein@h"):
        with pytest.raises(ValueError, match="GPUBUF_TOKEN") as e:
            gpubuf.Client(url)
        assert "letmein" not in str(e.value)
    alone.setenv("GPUBUF_URL", "http://env:1")
    assert gpubuf.Client().url == "http://env:1" and gpubuf.Client("http://arg:2").url == "http://arg:2"
    assert gpubuf.Client(socket="/s").url == gpubuf.Client(socket="unix:///s").url == "unix:///s"
    alone.setenv("GPUBUF_SOCKET", "/env.sock")  # as in libgpubuf: requests go to the URL, mappings over the socket
    assert gpubuf.Client().url == "http://env:1" and gpubuf.Client()._map_socket() == "/env.sock"
    assert gpubuf.Client(socket="/s")._map_socket() == gpubuf.Client("http://h", socket="/s")._map_socket() == "/s"
    assert gpubuf.Client("unix:///u")._map_socket() == "/u"
    alone.delenv("GPUBUF_URL")
    assert gpubuf.Client().url == "unix:///env.sock" and gpubuf.Client("http://arg:2").url == "http://arg:2"
    alone.delenv("GPUBUF_SOCKET")
    with pytest.raises(ValueError, match="a token is one word"):
        gpubuf.Client(token="a b")
    with pytest.raises(ValueError, match="is no name"):
        gpubuf.Client(session="")
    with pytest.raises(ValueError, match="takes the daemon's UNIX socket"):
        gpubuf.Client("http://far:1").map("x")
    with pytest.raises(ValueError, match="'read' or 'write'"):
        gpubuf.Client(socket="/s").map("x", "append")


@pytest.mark.parametrize("user", [0, 1000])
def test_default_sockets(monkeypatch, user):
    """The candidates are those of find_socket in src/client/client.c, in its order, for root as for other users."""
    from gpubuf import _address

    machine = ["/run/gpubufd.sock", "/var/lib/gpubufd/gpubufd.sock"]
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setenv("XDG_STATE_HOME", "/xdg")
    monkeypatch.setenv("HOME", "/home/u")
    assert (_address._candidates() == ["/xdg/gpubufd/gpubufd.sock", "/home/u/.local/state/gpubufd/gpubufd.sock"]
            + machine)
    monkeypatch.setenv("XDG_STATE_HOME", "")
    assert _address._candidates() == ["/home/u/.local/state/gpubufd/gpubufd.sock"] + machine
    monkeypatch.delenv("HOME")
    assert _address._candidates() == machine


def test_the_socket_is_found(alone, daemon, start, tmp_path):
    """A daemon's default socket is found; a socket that a killed daemon left does not count."""
    alone.undo()
    alone.delenv("GPUBUF_URL", raising=False)
    alone.setenv("XDG_STATE_HOME", str(tmp_path))
    from gpubuf import _address

    usual = _address._candidates()
    assert usual[0] == f"{tmp_path}/gpubufd/gpubufd.sock"
    alone.setattr(_address, "_candidates", lambda: usual[:1])
    os.mkdir(tmp_path / "gpubufd")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(usual[0])
    assert gpubuf.Client().url == "http://127.0.0.1:7070"
    os.unlink(usual[0])
    os.symlink(daemon.unix, usual[0])
    with gpubuf.Client() as c:
        assert c.url == "unix://" + usual[0] and c.about()["name"] == "gpubufd"
    name = "found-" + os.path.basename(tmp_path)
    with gpubuf.Client(daemon.url("")) as c, gpubuf.Client(start().url("")) as stranger:
        for client in (c, stranger):
            client.put(name, payload(9), kind="pageable")
        with c.map(name) as m:
            assert bytes(m.array()) == payload(9)
        with pytest.raises(ValueError, match="takes the daemon's UNIX socket"):
            stranger.map(name)  # the default socket is another daemon's
        c.delete(name)


def test_tokens(alone, start, tmp_path):
    state = str(tmp_path)
    secret = token(state, "add", "all", "--scope", "admin")
    read_only = token(state, "add", "reader", "--scope", "read")
    d = start(state=state)
    with client_of(d) as c, pytest.raises(gpubuf.Unauthenticated):
        c.list()
    for more in ({}, {"token": "wrong"}):
        with pytest.raises(gpubuf.Unauthenticated) as e:
            client_of(d, **more).list()
        assert (("give Client(token=...), or set GPUBUF_TOKEN" in e.value.detail) == (not more)
                and "header" not in e.value.detail)
    with client_of(d, token=secret) as c:
        assert c.put("x", b"1")["bytes"] == 1
    alone.setenv("GPUBUF_TOKEN", secret)
    with client_of(d) as c:
        assert c.get("x", raw=True) == b"1"
    with client_of(d, token=read_only) as c:
        with pytest.raises(gpubuf.Forbidden) as e:
            c.put("x", b"2")
        assert isinstance(e.value, PermissionError) and e.value.status == 403


# --- answers that are none --------------------------------------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("answer, error", [
    (b"", gpubuf.Unreachable), (b"220 smtp.example ready\r\n", gpubuf.BrokenAnswer),
    (HEAD + b"Content-Length: 10\r\n\r\n12345", gpubuf.BrokenAnswer), (HEAD + b"Content-Length: 3\r\n\r\n{[}",
                                                                       gpubuf.BrokenAnswer),
    (b"HTTP/1.1 502 Bad\r\nContent-Length: 4\r\n\r\noops", gpubuf.ServerError),
    (b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\n[]", gpubuf.NotFound), (b"HTTP/1.1 200", gpubuf.BrokenAnswer),
], ids=["nothing", "smtp", "short", "no json", "proxy", "no problem", "half"])
def test_broken_answers(answer, error):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with contextlib.suppress(OSError):  # it is shut down
                while True:  # a request whose connection ended early is sent again
                    with server.accept()[0] as s:
                        s.recv(65536)
                        s.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with gpubuf.Client("http://127.0.0.1:%d" % server.getsockname()[1], timeout=90) as c:
            with pytest.raises(error):
                c.info("x")
            with pytest.raises(gpubuf.Error):
                c.get("x")
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_daemon_that_does_not_answer():
    with socket.create_server(("127.0.0.1", 0)) as server, gpubuf.Client("http://127.0.0.1:%d"
                                                                         % server.getsockname()[1], timeout=0.2) as c:
        with pytest.raises(gpubuf.Unreachable, match="did not answer within 0.2 s"):
            c.info("x")
