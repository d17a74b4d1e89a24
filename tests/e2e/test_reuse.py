"""The reuse policies of pools, observed by the address that an allocation on another stream gets; failures of device
calls for pools, copies and kinds of memory."""
import http.client

import pytest
from conform import Session
from harness import SLOT, SMALL_SLOTS, until
from values import payload

MIB = 1 << 20
POLICIES = ["follow_event_dependencies", "allow_opportunistic", "allow_internal_dependencies"]


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_reuse_of_memory_freed_on_another_stream(start, backend, policy, on):
    """Waiting for the other stream is the last resort, so only a full pool shows it."""
    full = policy == "allow_internal_dependencies"
    size = (40 if full else 1) * MIB
    d = start(*SMALL_SLOTS, spec=f"fault:place_fill@1=stall/{3000 if full else 1500}:{backend}")
    s = Session(d)
    s.post("pools", {"name": "p", "max_bytes": 64 * MIB, "reuse": {**dict.fromkeys(POLICIES, False), policy: on}}, 201)
    for stream in "ab":
        s.post("streams", {"name": stream}, 201)
    s.put("x", payload(MIB) * (size // MIB), "?pool=p&stream=a")
    s.put("w", payload(100), "?stream=a")
    address, reserved = s.attributes("x")["device_address"], s.get("pools/p")["reserved_bytes"]
    body = b'{"pattern":7,"stream":"a","in_place":true}'
    stalled = d.raw().request("POST", s.base + "/buffers/w/fill", [f"Content-Length: {len(body)}"], body)
    until("the stream is busy", lambda: s.get("streams/a")["busy"])
    s.delete("buffers/x")  # its free is queued behind the stalled work
    if policy == "follow_event_dependencies":
        s.post("events", {"name": "e"}, 201)
        s.post("events/e/record", {"stream": "a"})
        s.post("events/e/wait", {"stream": "b"})
    if policy == "allow_opportunistic":  # the free has ended, and no client has waited for it
        stalled.reply().expect(200)
        until("the stream is idle", lambda: not s.get("streams/a")["busy"])
    r = s.ask("POST", "buffers", {"name": "y", "bytes": size, "pool": "p", "stream": "b"})
    if full and not on:
        assert r.problem(507, "out_of_memory")["cuda"]["name"] == "cudaErrorMemoryAllocation"
    else:
        r.expect(201)
        assert (s.attributes("y")["device_address"] == address) is on
        assert not any(s.data("y"))
    if on:
        assert s.get("pools/p")["reserved_bytes"] == reserved
    stalled.close()


# --- synchronizing ----------------------------------------------------------------------------------------------------

SYNCS = [("streams/a/sync", 200), ("sync", 204), ("/v1/devices/0/sync", 204), ("events/e/sync", 200)]


@pytest.fixture
def freed(start, backend):
    """A session whose pool has no policies, and kept memory that was freed on stream a."""

    def go(threshold):
        s = Session(start(*SMALL_SLOTS, spec=backend))
        s.post("pools", {"name": "p", "release_threshold_bytes": threshold, "reuse": dict.fromkeys(POLICIES, False)},
               201)
        for stream in "ab":
            s.post("streams", {"name": stream}, 201)
        s.put("x", payload(MIB) * 40, "?pool=p&stream=a")
        found = s.attributes("x")["device_address"], s.get("pools/p")["reserved_bytes"]
        s.delete("buffers/x")
        s.post("events", {"name": "e"}, 201)
        s.post("events/e/record", {"stream": "a"})
        return s, *found

    return go


@pytest.mark.parametrize("sync", [*SYNCS, None])
def test_memory_freed_before_a_sync_is_for_every_stream(freed, sync):
    """As after cudaStreamSynchronize, cudaEventSynchronize or cudaDeviceSynchronize: no policy forbids it. Without a
    sync it is other memory."""
    s, address, reserved = freed(1 << 30)
    if sync:
        s.post(sync[0], None, sync[1])
    s.post("buffers", {"name": "y", "bytes": 40 * MIB, "pool": "p", "stream": "b"}, 201)
    assert (s.attributes("y")["device_address"] == address) is bool(sync)
    assert (s.get("pools/p")["reserved_bytes"] == reserved) is bool(sync)


@pytest.mark.parametrize("sync", SYNCS)
def test_memory_above_the_threshold_is_back_when_a_sync_answers(freed, sync):
    s, _, reserved = freed(0)
    assert reserved >= 40 * MIB
    s.post(sync[0], None, sync[1])
    assert s.get("pools/p")["reserved_bytes"] == 0


# --- failing device calls ---------------------------------------------------------------------------------------------


@pytest.fixture
def faulty(start, backend):
    def go(rules):
        d = start(*SMALL_SLOTS, spec=f"fault:{rules}:{backend}")
        return Session(d)

    return go


def told(reply, name="cudaErrorInvalidValue"):
    p = reply.problem(500, "device_error")
    assert p["cuda"]["name"] == name and p["cuda"]["call"].startswith("cuda"), p
    return p


def read(s, name):
    """The bytes; None if the failure hits this call, before its answer or within it."""
    try:
        r = s.ask("GET", f"buffers/{name}/data")
    except http.client.IncompleteRead:
        return None
    if r.status == 200:
        return r.body
    if r.status != 409:
        told(r)
    return None


def test_a_pool_that_cannot_be_made(faulty):
    s = faulty("pool_create@1=cudaErrorInvalidValue")
    told(s.ask("POST", "pools", {"name": "p"}))
    assert "p" not in s.names("pools")
    s.post("pools", {"name": "p"}, 201)


@pytest.mark.parametrize("rule, path, body", [("pool_trim", "trim", None), ("pool_reset_peak", "reset-peak", None),
                                              ("pool_configure", "", {"release_threshold_bytes": 5})])
def test_a_pool_that_refuses(faulty, rule, path, body):
    s = faulty(rule + "+=cudaErrorInvalidValue")
    s.post("pools", {"name": "p"}, 201)
    before = s.get("pools/p")
    told(s.ask("PATCH" if body else "POST", "pools/p" + (path and "/" + path), body))
    after = s.get("pools/p")
    assert after["release_threshold_bytes"] == before["release_threshold_bytes"]
    s.put("x", b"1", "?pool=p")


def test_a_stream_that_cannot_be_made(faulty):
    s = faulty("stream_create@2+=cudaErrorInvalidValue")
    s.put("x", b"1")
    r = s.ask("POST", "streams", {"name": "a"})
    if r.status == 201:  # its parts are made when needed
        told(s.ask("PUT", "buffers/x/data?stream=a", b"2"))
    assert s.data("x") == b"1"


@pytest.mark.parametrize("rule", ["move", "place_fill", "event_record", "watch", "complete", "alloc", "event_elapsed"])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_write_that_fails(faulty, rule, in_place):
    """The error is reported, the old bytes stay (in place: the buffer is partial), no resource leaks, and the next call
    works."""
    body = payload(3 * SLOT)
    for nth in range(1, 6):
        s = faulty(f"{rule}@{nth}=cudaErrorInvalidValue")
        for name in ("x", "y"):
            until("it is there", lambda: s.ask("PUT", f"buffers/{name}/data", body).status in (200, 201))
        for path, what in (("copy", {"from": "x"}), ("fill", {"pattern": 5})):
            r = s.ask("POST", "buffers/y/" + path, {**what, "in_place": in_place})
            if r.status != 200:
                told(r)
                state = s.meta("y")["state"]
                assert state == "ready" or in_place, state
                got = read(s, "y")
                if state == "ready" and got:
                    assert got in (body, b"\5" * len(body))
                s.post("buffers/y/" + path, {**what, "in_place": in_place})
        assert (read(s, "y") or read(s, "y")) == b"\5" * len(body)
        for name in ("x", "y"):
            s.delete("buffers/" + name)
        until("all is given back", lambda: (s.get()["used_bytes"], s.get("pools/default")["used_bytes"]) == (0, 0))
        s.daemon.settled()
        s.daemon.stop()


@pytest.mark.parametrize("rule", ["kind_alloc", "kind_free", "move", "copy", "complete", "watch", "prefetch", "attach",
                                  "attributes"])
def test_kinds_that_fail_once(faulty, rule):
    s = faulty(rule + "@1=cudaErrorInvalidValue")
    kinds = [k for k, v in s.get("/v1/devices/0")["kinds"].items() if v["supported"]]
    failures = 0
    for kind in kinds:
        r = s.ask("PUT", f"buffers/{kind}/data?kind={kind}", payload(SLOT + 1))
        if r.status != 201:
            told(r)
            failures += 1
            s.put(kind, payload(SLOT + 1), f"?kind={kind}", 201)
        r = s.ask("GET", f"buffers/{kind}?attributes=true")
        assert r.status == 200 or told(r)
        r = s.ask("GET", f"buffers/{kind}/data")
        assert r.body == payload(SLOT + 1) if r.status == 200 else told(r)
        s.delete("buffers/" + kind)
    assert failures <= 1
    until("all is given back", lambda: (s.get()["used_bytes"], s.get()["used_pinned_bytes"]) == (0, 0))


def test_a_mirrored_buffer_whose_copy_fails(faulty):
    s = faulty("move@1=cudaErrorInvalidValue")
    s.put("m", payload(SLOT), "?mirrored=true")
    told(s.ask("POST", "buffers/m/sync", {"to": "device"}))
    assert s.meta("m")["head"] == "host" and s.data("m") == payload(SLOT)
    assert s.post("buffers/m/sync", {"to": "device"})["copied"] and s.data("m") == payload(SLOT)


@pytest.mark.parametrize("what", ["copy", "fill", "sync", "pool", "kind"])
def test_after_the_device_died(faulty, what):
    s = faulty("event_record_device@1=cudaErrorIllegalAddress")
    s.put("x", b"1")
    s.put("m", b"1", "?mirrored=true")
    s.post("streams", {"name": "a"}, 201)
    s.ask("POST", "/v1/devices/0/sync")
    until("it is dead", lambda: s.daemon.ask("GET", "/readyz").status == 503)
    for method, path, body in {"copy": [("POST", "buffers/y/copy", {"from": "x"})],
                               "fill": [("POST", "buffers/x/fill", {"pattern": 1})],
                               "sync": [("POST", "buffers/m/sync", {"to": "device"}), ("POST", "sync", None),
                                        ("POST", "streams/a/sync", None), ("POST", "/v1/devices/0/sync", None)],
                               "pool": [("POST", "pools", {"name": "p"}), ("POST", "pools/default/trim", None)],
                               "kind": [("POST", "buffers", {"name": "k", "bytes": 1, "kind": "pinned"})]}[what]:
        r = s.ask(method, path, body)
        assert (r.status, r.json()["code"]) in ((503, "device_lost"), (410, "content_lost")), (path, r)
    assert s.names("pools") == ["default"] and s.names("streams") == ["default", "a"] and s.daemon.stats()
