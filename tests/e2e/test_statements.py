"""What the documents behind the service state, and no other file asserts by itself. doc/design/statements.md lists all
statements; the numbers in a test's name are those of its table."""
import struct

import pytest

from conform import Session
from harness import SLOT, SMALL_SLOTS, torch_with_gpu, until
from owning import Owned, Owner
from pyclient import client_of
from sharing import Local
from test_share_gpu import lacking
from values import crc32c, payload

MIB = 1 << 20
BLOCK = 40 * MIB  # more than the 32 MiB by which a pool grows on a GPU
LONG = 10000
OFF = dict.fromkeys(["follow_event_dependencies", "allow_opportunistic", "allow_internal_dependencies"], False)
KINDS = ["device", "shared", "managed", "pinned", "pageable", "ipc"]


@pytest.fixture
def held(start):
    """A session of a daemon of its own with streams a and b; a is held until the daemon's stop ends the hold."""
    s = Session(start(*SMALL_SLOTS))
    for name in "ab":
        s.post("streams", {"name": name}, 201)
    s.hold = lambda ms=LONG: s.post("streams/a/hold", {"ms": ms})
    s.busy = lambda: s.get("streams/a")["busy"]
    return s


@pytest.fixture
def two(start, backend):
    """A session of a daemon with two devices."""
    simulated = backend + ("," if ":" in backend else ":") + "devices=2,bytes=64M"
    s = Session(start(*SMALL_SLOTS, spec=simulated if backend.startswith("host") else backend))
    if s.get("/v1")["devices"] < 2:
        pytest.skip("there is one device")
    return s


def here(daemon):
    """The kinds that device 0 has."""
    return [kind for kind in KINDS if daemon.get("/v1/devices/0")["kinds"][kind]["supported"]]


def at(s, name, side="device"):
    return s.attributes(name)[side + "_address"]


def given_back(s):
    until("all is given back", lambda: (s.get()["used_bytes"], s.get()["used_pinned_bytes"]) == (0, 0))


# --- T: copies on a Jetson --------------------------------------------------------------------------------------------


def test_t9_t10_a_program_works_between_two_copies(daemon, s, session, backend):
    """Allocate, copy in, a kernel, copy out, free: the kernel is another program's, on the same bytes."""
    if lacking(backend, "torch" if backend == "cuda" else "numpy"):
        pytest.skip(lacking(backend, "torch"))
    given = list(range(1000))
    assert s.buffer("x", dtype="int32", shape=[1000], kind="shared")["bytes"] == 4000
    s.put("x", struct.pack("<1000i", *given), "?in_place=true")
    with client_of(daemon, session, unix=True) as c, c.map("x", "write", finished_event=backend == "cuda") as m:
        if backend == "cuda":
            torch = torch_with_gpu()
            array = torch.from_dlpack(m)
            array.mul_(2).add_(1)
            m.finish_on(torch.cuda.current_stream().cuda_stream)
        else:
            array = m.array()
            array *= 2
            array += 1
        del array
    until("the program's work is in", lambda: s.meta("x")["leases"] == 0)
    assert s.data("x") == struct.pack("<1000i", *(2 * x + 1 for x in given))
    s.delete("buffers/x")
    given_back(s)


def test_t11_t12_t14_t15_managed_memory_is_for_one_side_at_a_time(held):
    """The CPU writes it and reads what the device wrote; during the device's work it sees no bytes of other moments."""
    if "managed" not in here(held.daemon):
        pytest.skip("no managed memory here")
    held.put("m", b"\1" * SLOT, "?kind=managed")
    held.fill("m", 9, in_place=True)
    assert held.data("m") == b"\x09" * SLOT
    held.hold(300)
    held.ask("POST", "buffers/m/fill", {"pattern": 5, "in_place": True, "stream": "a"},
             {"Prefer": "respond-async"}).expect(202)
    r = held.ask("GET", "buffers/m/data")
    while r.status != 200:
        assert r.problem(409, "buffer_busy")["retryable"]
        r = held.ask("GET", "buffers/m/data")
    assert r.body == b"\5" * SLOT


def test_t16_t17_t18_wrong_places_are_errors(s):
    """What was a crash or a wrong result of pointers and sizes."""
    body = payload(1000)
    meta = s.put("x", body, "?dtype=uint8&shape=1000")
    assert meta["crc32c"] == crc32c(body)
    for path in ("buffers/none", "buffers/none/data"):
        s.ask("GET", path).problem(404, "buffer_not_found")
    s.ask("POST", "buffers/x/copy", {"from": "none"}).problem(404, "buffer_not_found")
    assert s.ask("GET", "buffers/x/data", headers={"Range": "bytes=990-1009"}).expect(206).body == body[990:]
    s.ask("GET", "buffers/x/data", headers={"Range": "bytes=1000-"}).problem(416, "range_not_satisfiable")
    s.ask("PUT", "buffers/x/data?offset=990", bytes(11)).problem(422, "shape_mismatch")
    s.ask("POST", "buffers/x/fill", {"pattern": 1, "offset": 990, "bytes": 11}).problem(400, "invalid_argument")
    s.ask("PUT", "buffers/x/data?dtype=float32&shape=1000", bytes(3999)).problem(422, "shape_mismatch")
    assert s.data("x") == body and s.meta("x")["crc32c"] == crc32c(body)


# --- R: pageable, pinned and device memory ----------------------------------------------------------------------------


def test_r3_r6_pinned_memory_is_there_and_pageable_memory_is_promised(start, simulated):
    """The host backend's pinned memory is resident before anything is written, and its pageable memory is not."""
    d = start(spec=simulated("bytes=64M"))
    s = Session(d)

    def resident():
        with open(f"/proc/{d.process.pid}/status", encoding="ascii") as f:
            return sum(int(line.split()[1]) << 10 for line in f if line.startswith(("RssShmem", "VmSwap")))

    before = resident()
    s.buffer("promised", bytes=BLOCK, kind="pageable")
    assert resident() < before + BLOCK // 2
    s.buffer("pinned", bytes=BLOCK, kind="pinned")
    assert resident() >= before + BLOCK
    s.put("promised", bytes(BLOCK), "?in_place=true")
    assert resident() >= before + 2 * BLOCK


def test_r14_a_value_goes_from_pageable_to_device_to_pinned_memory(daemon, s):
    values = [float(i) for i in range(100)]
    values[2] = 520.25
    s.put("in", struct.pack("<100f", *values), "?kind=pageable&dtype=float32&shape=100")
    s.buffer("work", dtype="float32", shape=[100])
    s.buffer("out", dtype="float32", shape=[100], kind="pinned")
    s.copy("work", "in")
    s.copy("out", "work")
    assert struct.unpack_from("<f", s.data("out"), 8)[0] == 520.25


# --- M: host and device memory in one -----------------------------------------------------------------------------


def test_m2_a_device_is_checked_and_no_word_stands_for_the_current_one(s):
    uuid = s.get("/v1/devices/0")["uuid"]
    for name, device in (("a", {}), ("b", {"device": 0}), ("c", {"device": uuid})):
        assert s.buffer(name, bytes=100, **device)["device"] == {"index": 0, "uuid": uuid}
    s.ask("POST", "buffers", {"name": "d", "bytes": 100, "device": 99}).problem(404, "device_not_found")
    p = s.ask("POST", "buffers", {"name": "d", "bytes": 100, "device": -1}).problem(400, "invalid_argument")
    assert "without it the device is 0" in p["detail"]


@pytest.mark.parametrize("side", ["device", "host"])
def test_m6_m7_m13_memory_grows_and_never_shrinks(s, side):
    s.buffer("m", bytes=1000, mirrored=True)
    seen = []
    for n in (100, 10, 1000, 900):
        sides = s.post("buffers/m/reserve", {"bytes": n, "side": side})["sides"]
        seen.append((sides[side]["bytes"], at(s, "m", side)))
    assert [n for n, _ in seen] == [100, 100, 1000, 1000]
    assert seen[0] == seen[1] and seen[2] == seen[3]
    assert side == "device" or sides["host"]["pinned"]


def test_m10_c23_a_deletion_frees_both_sides(s):
    s.put("m", payload(SLOT), "?mirrored=true")
    s.post("buffers/m/sync", {"to": "device"})
    assert (s.get()["used_bytes"], s.get()["used_pinned_bytes"]) == (2 * SLOT, SLOT)
    s.delete("buffers/m")
    given_back(s)


def test_m12_memory_after_a_borrowed_one_is_owned_and_freed(daemon, s, session):
    """A class that forgets to set its flag back leaks it."""
    with Owned(SLOT, payload(SLOT)) as memory, Owner(daemon.unix) as owner:
        assert owner.adopt("m", [memory.fd], session, bytes=SLOT, side="host").status == 201
        assert s.meta("m")["sides"]["host"]["owned"] is False
        s.post("buffers/m/sync", {"to": "device"})
        s.post("buffers/m/release", {"side": "host"})
        s.post("buffers/m/sync", {"to": "host"})
        host = s.meta("m")["sides"]["host"]
        assert host["owned"] and host["bytes"] == SLOT and s.get()["used_pinned_bytes"] == SLOT
        s.fill("m", 0, side="host")
        assert memory.bytes() == payload(SLOT)
        s.delete("buffers/m")
        given_back(s)


def test_m15_m16_no_request_changes_the_device_of_another(two):
    for i in range(3):
        assert two.buffer(f"a{i}", bytes=100)["device"]["index"] == 0
        assert two.buffer(f"b{i}", bytes=100, device=1)["device"]["index"] == 1
        assert two.attributes(f"b{i}")["device"]["index"] == 1
        two.delete(f"buffers/a{i}")  # while requests use the other device
    assert two.buffer("c", bytes=100)["device"]["index"] == 0


def test_m17_one_pair_for_the_input_and_one_for_the_output(s):
    body = payload(SLOT)
    s.put("in", body, "?mirrored=true")
    s.buffer("out", bytes=SLOT, mirrored=True)
    s.post("buffers/in/sync", {"to": "device"})
    s.copy("out", "in")  # what a kernel would do
    assert (s.meta("in")["head"], s.meta("out")["head"]) == ("synced", "device")
    s.post("buffers/out/sync", {"to": "host"})
    assert s.meta("out")["head"] == "synced" and s.data("out") == body


# --- C: SyncedMemory ----------------------------------------------------------------------------------------------


def test_c2_no_transfer_pins_memory(start):
    d = start("--slots-bytes", "2M", "--slot-bytes", "256K")
    s = Session(d)
    pinned = d.stats()["pinned"]["bytes"]
    for kind in here(d):
        if kind != "pinned":
            s.put(kind, payload(3 * SLOT), f"?kind={kind}")
            assert s.data(kind) == payload(3 * SLOT) and d.stats()["pinned"]["bytes"] == pinned, kind


def test_c22_a_second_one_is_made_by_a_copy_alone(s):
    s.put("x", payload(100))
    s.ask("POST", "buffers", {"name": "x", "bytes": 100}).problem(409, "buffer_exists")
    s.copy("y", "x", 201)
    assert at(s, "x") != at(s, "y")
    s.fill("y", 0)
    assert s.data("x") == payload(100)


# --- F: the stream-ordered allocator ------------------------------------------------------------------------------


def test_f4_f38_phases_ask_the_device_once_and_give_all_back(s):
    """Ten phases of ten allocations on one stream; a synchronise and a trim between the loads of two applications."""
    s.post("pools", {"name": "p"}, 201)
    s.post("streams", {"name": "a"}, 201)
    for phase in range(10):
        for i in range(10):
            s.buffer(f"x{i}", bytes=(i + 1) * MIB, pool="p", stream="a")
        for i in range(10):
            s.delete(f"buffers/x{i}")
        s.post("streams/a/sync")
        if phase == 0:
            growths = s.get("pools/p")["growths"]
    p = s.get("pools/p")
    assert p["growths"] == growths <= 10 and p["reuses"] == 100 - growths
    assert s.post("pools/p/trim", {"keep_bytes": 0})["reserved_bytes"] == 0
    s.buffer("other", bytes=55 * MIB)  # another pool takes it


def test_f6_sessions_share_the_memory_of_one_pool(start):
    d = start(*SMALL_SLOTS)
    d.ask("POST", "/v1/sessions", {"name": "other"}).expect(201)
    one, other = Session(d), Session(d, "other")
    one.put("x", payload(MIB) * 40)
    address, reserved = at(one, "x"), one.get("pools/default")["reserved_bytes"]
    one.delete("buffers/x")
    one.post("sync", None, 204)
    other.buffer("y", bytes=BLOCK)
    assert at(other, "y") == address and other.get("pools/default")["reserved_bytes"] == reserved
    assert not any(other.data("y", "?offset=0&length=4096"))


@pytest.mark.parametrize("kind", ["ipc", "managed", "pinned"])
def test_f1_a_free_that_waits_for_the_device_holds_up_no_request(start, backend, kind):
    """cudaFree waits for all streams, and other calls of CUDA for it: it is called when the device is idle."""
    simulated = backend + ("," if ":" in backend else ":") + "free=waits"
    s = Session(start(*SMALL_SLOTS, spec=simulated if backend.startswith("host") else backend))
    if not s.get("/v1/devices/0")["kinds"][kind]["supported"]:
        pytest.skip("the device lacks the kind")
    for name in "ab":
        s.post("streams", {"name": name}, 201)
    for name in "xy":
        s.put(name, payload(MIB), f"?kind={kind}")
    s.post("streams/a/hold", {"ms": LONG})
    s.delete("buffers/x")
    until("the free waits", lambda: s.get("/v1/devices/0")["pending_free_bytes"] == MIB)
    assert "gpubufd_device_pending_free_bytes{" in s.daemon.ask("GET", "/metrics").expect(200).body.decode()
    s.put("z", payload(MIB), "?stream=b")
    s.put("y", payload(MIB), f"?kind={kind}")
    assert s.data("z", "?stream=b") == payload(MIB) and s.get("streams/a")["busy"]


def test_f14_f16_f17_pointers_are_known_and_freed_while_the_stream_is_busy(held):
    held.hold()
    held.buffer("x", bytes=512, stream="a")
    assert at(held, "x") and held.busy()
    held.ask("POST", "buffers/x/fill", {"pattern": 1, "stream": "a"}, {"Prefer": "respond-async"}).expect(202)
    held.buffer("y", bytes=512, stream="a")
    held.delete("buffers/y")
    assert held.busy()


def test_f30_f61_access_to_the_default_pool_is_set_and_shown(two):
    can = two.get("/v1/devices/0")["peers"][0]["can_access"]
    for access in ("read_write", "none"):
        r = two.ask("POST", "pools/default/access", {"device": 1, "access": access})
        if not can:
            r.problem(501, "unsupported")
            continue
        assert r.expect(200).json()["access"] == two.get("pools/default")["access"]
        assert [(a["device"]["index"], a["access"]) for a in r.json()["access"]][0] == (1, access)


def test_f59_a_pool_is_refused_to_a_device_that_is_no_peer_while_it_is_empty(start, simulated):
    s = Session(start(*SMALL_SLOTS, spec=simulated("devices=2,peers=no")))
    s.post("pools", {"name": "p"}, 201)
    p = s.ask("POST", "pools/p/access", {"device": 1, "access": "read_write"}).problem(501, "unsupported")
    assert p["detail"] and s.get("pools/p")["access"][0]["access"] == "none"
    s.put("x", b"1", "?pool=p")
    assert s.data("x") == b"1"


def test_f31_f67_memory_of_a_pool_that_is_not_exportable_stays_here(daemon, s, session):
    assert s.get("pools/default")["exportable"] is False
    s.post("pools", {"name": "p"}, 201)
    for pool in ("default", "p"):
        s.buffer("x-" + pool, bytes=100, pool=pool)
        with Local(daemon.unix) as local:
            refused = local.map("x-" + pool, session, ways=["pool"])
        assert refused.status == 501 and refused.json()["code"] == "unsupported"
        assert "pool: " in refused.json()["detail"]


@pytest.mark.parametrize("room", [True, False])
def test_f53_f55_internal_dependencies_are_the_last_resort(held, room):
    """While memory can be had it is taken; with the policy a full pool makes the other stream wait, without it the
    allocation fails until a synchronise."""
    reuse = {**OFF, "allow_internal_dependencies": room}
    held.post("pools", {"name": "p", "reuse": reuse, **({} if room else {"max_bytes": 64 * MIB})}, 201)
    held.buffer("x", bytes=BLOCK, pool="p", stream="a")
    before = at(held, "x")
    held.hold(LONG if room else 300)
    held.delete("buffers/x")
    y = {"name": "y", "bytes": BLOCK, "pool": "p", "stream": "b"}
    if room:
        held.post("buffers", y, 201)
        assert at(held, "y") != before
        until("b waits for nothing", lambda: not held.get("streams/b")["busy"])
        assert held.busy()
        return
    p = held.ask("POST", "buffers", y).problem(507, "out_of_memory")
    assert p["cuda"]["name"] == "cudaErrorMemoryAllocation" and p["retryable"]
    held.post("streams/a/sync")
    held.post("buffers", y, 201)
    assert at(held, "y") == before


def test_f85_a_freed_pointer_has_no_attributes(held):
    held.buffer("x", bytes=100, stream="a")
    assert at(held, "x")
    held.hold()
    held.delete("buffers/x")
    held.ask("GET", "buffers/x?attributes=true").problem(404, "buffer_not_found")
