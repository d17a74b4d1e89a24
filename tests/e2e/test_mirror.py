"""Mirrored buffers: two sides, one head."""
import time

import pytest

from conform import Session, refuse
from harness import SLOT, SMALL_SLOTS, until
from values import payload

SIZE = 3 * SLOT + 7
A, B = payload(SIZE, 1), payload(SIZE, 2)


@pytest.fixture
def m(s):
    """The session with a mirrored buffer m of SIZE bytes that has never been written."""
    meta = s.buffer("m", bytes=SIZE, mirrored=True)
    assert (meta["mirrored"], meta["head"], meta["kind"]) == (True, "uninitialized", "device")
    return s


def head(s, name="m"):
    return s.meta(name)["head"]


def sync(s, to, copied, **fields):
    r = s.post("buffers/m/sync", {"to": to, **fields})
    assert r["copied"] is copied and r["name"] == "m" and (r["way"] != "none") == copied
    return r["head"]


def side(size, current=False, **more):
    return {"bytes": size, "current": current, "owned": True, **more}


def sides(s, name="m"):
    return s.meta(name)["sides"]


def reserve(s, size, side, **fields):
    return s.post("buffers/m/reserve", {"bytes": size, "side": side, **fields})


def release(s, side):
    return s.post("buffers/m/release", {"side": side})["head"]


def feed(s, query):
    return s.daemon.ask("GET", f"/v1/feed{query}", None, {"Accept": "application/json"}).json()


def counts(s):
    m = s.daemon.stats()["transfers"]["mirror"]
    return m["copies"], m["copies_avoided"]


def test_others_have_no_head(s):
    s.put("x", b"1")
    assert (s.meta("x")["mirrored"], s.meta("x")["head"], sides(s, "x")) == (False, None, None)
    for action, body in (("sync", {"to": "host"}), ("reserve", {"bytes": 1, "side": "host"}),
                         ("release", {"side": "all"})):
        p = s.ask("POST", f"buffers/x/{action}", body).problem(400, "invalid_argument")
        assert "mirrored" in p["detail"]


def test_uninitialized_reads_as_zeros_and_takes_no_memory(m):
    used = m.get("pools/default")["used_bytes"]
    assert m.data("m") == bytes(SIZE) and head(m) == "uninitialized"
    a = m.attributes("m")
    assert a["device_address"] is None and a["host_address"] is None
    until("it is given back", lambda: m.get("pools/default")["used_bytes"] == used)


def test_a_write_moves_the_head(m):
    m.put("m", A)
    assert head(m) == "host" and m.data("m") == A and m.attributes("m")["memory_type"] == "host"
    assert sync(m, "device", True) == "synced" and m.attributes("m")["memory_type"] == "device"
    assert m.data("m") == A
    m.put("m", B, "?side=device")
    assert head(m) == "device" and m.data("m") == B
    assert sync(m, "host", True) == "synced" and m.data("m") == B
    m.fill("m", 7)
    assert head(m) == "device" and m.data("m") == b"\7" * SIZE
    m.fill("m", 9, side="host")
    assert head(m) == "host" and m.data("m") == b"\x09" * SIZE
    m.put("src", A)
    m.copy("m", "src")
    assert head(m) == "device" and m.data("m") == A
    m.copy("m", "src", side="host")
    assert head(m) == "host" and m.data("m") == A
    m.copy("out", "m", 201)
    assert m.data("out") == A


def test_sync_copies_only_when_stale(m):
    m.put("m", A)
    before = counts(m)
    assert sync(m, "host", False) == "host"
    assert sync(m, "device", True) == "synced"
    assert sync(m, "device", False) == "synced" and sync(m, "host", False) == "synced"
    after = counts(m)
    assert (after[0] - before[0], after[1] - before[1]) == (1, 3)


@pytest.mark.parametrize("to", ["host", "device"])
def test_a_sync_of_an_uninitialized_buffer_zeroes_that_side(m, to):
    """As SyncedMemory's to_cpu and to_gpu; to the other side it is then copied."""
    generation, before = m.meta("m")["generation"], counts(m)
    assert sync(m, to, False) == to and m.data("m") == bytes(SIZE) and m.meta("m")["generation"] == generation
    now = sides(m)
    other = "device" if to == "host" else "host"
    assert now[to]["bytes"] == SIZE and now[to]["current"] and now[other]["bytes"] == 0 and not now[other]["current"]
    assert sync(m, to, False) == to and counts(m) == (before[0], before[1] + 1)
    assert sync(m, other, True) == "synced" and m.data("m") == bytes(SIZE)


def test_both_sides_are_shown(m):
    assert sides(m) == {"host": side(0, pinned=False), "device": side(0)}
    m.put("m", A)
    assert sides(m) == {"host": side(SIZE, True, pinned=True), "device": side(0)}
    sync(m, "device", True)
    assert sides(m) == {"host": side(SIZE, True, pinned=True), "device": side(SIZE, True)}
    m.fill("m", 1)
    assert sides(m) == {"host": side(SIZE, pinned=True), "device": side(SIZE, True)}
    m.put("m", b"123")  # the memory stays
    assert sides(m) == {"host": side(SIZE, True, pinned=True), "device": side(SIZE)}
    assert next(b for b in m.get("buffers")["items"] if b["name"] == "m")["sides"] == sides(m)
    assert m.post("buffers/m/release", {"side": "device"})["sides"]["device"] == side(0)


def test_reserve(m):
    """Memory ahead of an upload, which then allocates none."""
    generation = m.meta("m")["generation"]
    r = reserve(m, 2 * SIZE, "host")
    assert (r["sides"] == {"host": side(2 * SIZE, pinned=True), "device": side(0)} and (r["head"], r["bytes"])
            == ("uninitialized", SIZE))
    assert reserve(m, 2 * SIZE, "device", stream="default")["sides"]["device"] == side(2 * SIZE)
    charged, a = m.get()["used_bytes"], m.attributes("m")
    assert charged == 4 * SIZE and m.get()["used_pinned_bytes"] == 2 * SIZE
    assert m.meta("m")["generation"] == generation and m.data("m") == bytes(SIZE)
    for size in (0, 1, SIZE, 2 * SIZE):  # large enough
        assert reserve(m, size, "host")["sides"]["host"]["bytes"] == 2 * SIZE
    m.put("m", A + B)
    sync(m, "device", True)
    assert m.attributes("m") == a and m.get()["used_bytes"] == charged and m.data("m") == A + B
    assert reserve(m, 3 * SIZE, "device")["sides"]["device"] == side(3 * SIZE, True)  # current bytes are kept
    assert release(m, "host") == "device" and m.data("m") == A + B
    release(m, "all")
    until("nothing is charged", lambda: m.get()["used_bytes"] == 0)


def test_a_reserve_of_elements(m):
    """As gpu<T>(n) and cpu<T>(n)."""
    ask = {"elements": 300, "dtype": "float32", "side": "device"}
    assert m.post("buffers/m/reserve", ask)["sides"]["device"] == side(1200)
    assert m.post("buffers/m/reserve", {**ask, "dtype": "F64", "side": "host"})["sides"]["host"]["bytes"] == 2400
    assert m.post("buffers/m/reserve", {**ask, "elements": 0})["sides"]["device"] == side(1200)
    refuse(m, [
        ("POST", "buffers/m/reserve", {**ask, "bytes": 1200}, 400, "invalid_argument", "in their place"),
        ("POST", "buffers/m/reserve", {"bytes": 9, "dtype": "u1", "side": "host"}, 400, "invalid_argument", "'bytes'"),
        ("POST", "buffers/m/reserve", {"elements": 9, "side": "host"}, 400, "invalid_argument", "'dtype'"),
        ("POST", "buffers/m/reserve", {"dtype": "int8", "side": "host"}, 400, "invalid_argument", "'elements'"),
        ("POST", "buffers/m/reserve", {**ask, "dtype": "float33"}, 400, "invalid_argument", "float32"),
        ("POST", "buffers/m/reserve", {**ask, "dtype": 4}, 400, "wrong_type", "a string"),
        ("POST", "buffers/m/reserve", {**ask, "elements": 1 << 61}, 400, "invalid_argument", "elements of float32"),
        ("POST", "buffers/m/reserve", {**ask, "elements": -1}, 400, "invalid_argument", "elements"),
        ("POST", "buffers/m/reserve", {**ask, "elements": 1 << 60}, 507, "out_of_memory", str(1 << 62)),
    ])


def test_what_a_reserve_refuses(m):
    m.put("m", A)
    sync(m, "device", True)
    before = m.meta("m")
    p = m.ask("POST", "buffers/m/reserve", {"bytes": 1 << 60, "side": "device"}).problem(507, "out_of_memory")
    assert p["requested_bytes"] == 1 << 60
    refuse(m, [
        ("POST", "buffers/m/reserve", {"side": "host"}, 400, "invalid_argument", "'bytes'"),
        ("POST", "buffers/m/reserve", {"bytes": 1}, 400, "invalid_argument", "host or device"),
        ("POST", "buffers/m/reserve", {"bytes": 1, "side": "all"}, 400, "invalid_argument", "host or device"),
        ("POST", "buffers/m/reserve", {"bytes": -1, "side": "host"}, 400, "invalid_argument", "bytes"),
        ("POST", "buffers/m/reserve", {"bytes": "1", "side": "host"}, 400, "wrong_type", "bytes"),
        ("POST", "buffers/m/reserve", {"bytes": 1, "side": "host", "kind": "x"}, 400, "unknown_field", "kind"),
        ("POST", "buffers/m/reserve", {"bytes": 1, "side": "host", "stream": "none"}, 404, "stream_not_found", "none"),
        ("POST", "buffers/none/reserve", {"bytes": 1, "side": "host"}, 404, "buffer_not_found", "none"),
    ])
    m.ask("POST", "buffers/m/reserve", {"bytes": 1, "side": "host"},
          {"If-Match": '"no"'}).problem(412, "precondition_failed")
    assert m.meta("m") == before
    m.post("buffers/m/seal", {})
    m.ask("POST", "buffers/m/reserve", {"bytes": 1, "side": "host"}).problem(409, "sealed")


def test_a_reserve_counts_against_the_quota(daemon):
    daemon.ask("POST", "/v1/sessions", {"name": "reserved", "quota": {"bytes": 5000, "pinned_bytes": 1000}}).expect(201)
    s = Session(daemon, "reserved")
    s.put("m", bytes(600), "?mirrored=true")
    p = s.ask("POST", "buffers/m/reserve", {"bytes": 1200, "side": "host"}).problem(507, "quota_exceeded")
    assert (p["limit_bytes"], p["requested_bytes"]) == (1000, 1200)
    s.ask("POST", "buffers/m/reserve", {"bytes": 4500, "side": "device"}).problem(507, "quota_exceeded")
    assert sides(s)["device"]["bytes"] == 0 and s.data("m") == bytes(600)
    reserve(s, 4400, "device")
    s.ask("PUT", "buffers/n/data", b"1").problem(507, "quota_exceeded")  # what is kept counts
    s.put("m", b"1" * 4400, "?side=device")
    daemon.ask("DELETE", "/v1/sessions/reserved").expect(204)


MIB = 1 << 20


@pytest.fixture
def small(start, simulated):
    """A session with a mirrored buffer m. It may have 8 MiB of page-locked memory, and its device has 64 MiB."""
    m = Session(start("--max-pinned-bytes", "16M", *SMALL_SLOTS, spec=simulated("bytes=64M")))
    m.ask("PATCH", "", {"quota": {"pinned_bytes": 8 * MIB}}).expect(200)
    m.buffer("m", bytes=SIZE, mirrored=True)
    return m


def test_a_side_without_current_bytes_frees_first(small):
    """As the paired class, whose growth is a release and an allocation."""
    m = small
    last = feed(m, "?limit=1")["last_id"]
    for size in (40, 60, 64):  # which do not fit together
        assert reserve(m, size * MIB, "device")["sides"]["device"] == side(size * MIB)
    for size in (3, 5, 7):
        assert reserve(m, size * MIB, "host")["sides"]["host"] == side(size * MIB, pinned=True)
    assert m.get()["used_bytes"] == 71 * MIB and m.get()["used_pinned_bytes"] == 7 * MIB
    assert head(m) == "uninitialized" and m.data("m") == bytes(SIZE)
    said = [e["detail"] for e in feed(m, f"?after={last}")["items"] if e.get("buffer") == "m" and "detail" in e]
    assert said[1:3] == [f"device side: 0 bytes, {40 * MIB} before", f"device side: {60 * MIB} bytes, 0 before"]


@pytest.mark.parametrize("stream", ["a", "default"])
def test_a_growth_in_a_pool_whose_stream_is_busy(s, stream):
    """The free is behind the work of the stream that the memory was allocated on."""
    reuse = {"follow_event_dependencies": False, "allow_opportunistic": False, "allow_internal_dependencies": False}
    s.post("pools", {"name": "p", "max_bytes": 64 * MIB, "reuse": reuse}, 201)
    s.post("streams", {"name": "a"}, 201)
    s.buffer("m", bytes=SIZE, mirrored=True, pool="p")
    reserve(s, 40 * MIB, "device", stream="a")
    s.post("streams/a/hold", {"ms": 400})
    assert reserve(s, 60 * MIB, "device", stream=stream)["sides"]["device"] == side(60 * MIB)
    s.delete("buffers/m")
    s.post("streams/a/sync")
    s.delete("pools/p")


def test_a_stale_side_frees_first(small):
    m = small
    m.put("m", A)
    reserve(m, 40 * MIB, "device")
    assert reserve(m, 60 * MIB, "device")["sides"]["device"] == side(60 * MIB) and m.data("m") == A
    m.put("m", B, "?side=device")
    reserve(m, 5 * MIB, "host")
    assert reserve(m, 6 * MIB, "host")["sides"]["host"] == side(6 * MIB, pinned=True)
    assert (head(m), m.data("m")) == ("device", B)


def test_a_growth_that_fails_after_the_free(small):
    """The side is empty then, and the problem says so."""
    m = small
    reserve(m, 20 * MIB, "device")
    m.put("x", bytes(30 * MIB))
    p = m.ask("POST", "buffers/m/reserve", {"bytes": 40 * MIB, "side": "device"}).problem(507, "out_of_memory")
    assert p["retryable"] and f"the side is empty: its {20 * MIB} bytes were freed before" in p["detail"]
    assert sides(m)["device"] == side(0) and m.data("m") == bytes(SIZE)
    m.delete("buffers/x")
    reserve(m, 40 * MIB, "device")
    r = m.ask("POST", "buffers/m/reserve", {"bytes": 64 * MIB, "side": "device"},
              {"If-Match": '"no"'})
    r.problem(412, "precondition_failed")
    assert sides(m)["device"] == side(40 * MIB)


def test_what_can_never_succeed_frees_nothing(small):
    m = small
    reserve(m, 40 * MIB, "device")
    reserve(m, 4 * MIB, "host")
    p = m.ask("POST", "buffers/m/reserve", {"bytes": 65 * MIB, "side": "device"}).problem(507, "out_of_memory")
    assert not p["retryable"] and "empty" not in p["detail"]
    p = m.ask("POST", "buffers/m/reserve", {"bytes": 9 * MIB, "side": "host"}).problem(507, "quota_exceeded")
    assert (p["limit_bytes"], p["used_bytes"], p["requested_bytes"]) == (8 * MIB, 4 * MIB, 5 * MIB)
    m.ask("PATCH", "", {"quota": {"pinned_bytes": None}}).expect(200)
    m.ask("POST", "buffers/m/reserve", {"bytes": 21 * MIB, "side": "host"}).problem(507, "pinned_limit_reached")
    m.ask("PATCH", "", {"quota": {"bytes": 50 * MIB}}).expect(200)
    p = m.ask("POST", "buffers/m/reserve", {"bytes": 47 * MIB, "side": "device"}).problem(507, "quota_exceeded")
    assert (p["limit_bytes"], p["used_bytes"], p["requested_bytes"]) == (50 * MIB, 44 * MIB, 7 * MIB)
    assert sides(m) == {"host": side(4 * MIB, pinned=True), "device": side(40 * MIB)}
    reserve(m, 46 * MIB, "device")


def both(p, kept, wanted, retryable):
    assert f"the side's {kept} bytes are current" in p["detail"] and f"at once, {kept + wanted} bytes:" in p["detail"]
    assert p["requested_bytes"] == wanted and p["retryable"] is retryable


def test_a_current_side_grows_beside_its_old_memory(small):
    """The refusal says why both are needed, and does not ask to try again what cannot succeed."""
    m = small
    m.put("m", bytes(20 * MIB), "?side=device")
    m.put("x", bytes(20 * MIB))
    ask = {"bytes": 30 * MIB, "side": "device"}
    both(m.ask("POST", "buffers/m/reserve", ask).problem(507, "out_of_memory"), 20 * MIB, 30 * MIB, True)
    ask["bytes"] += 15 * MIB
    began = time.monotonic()
    p = m.ask("POST", "buffers/m/reserve", ask, {"Prefer": "wait=300"}).problem(507, "out_of_memory")
    both(p, 20 * MIB, 45 * MIB, False)
    assert time.monotonic() - began < 200  # it does not wait
    m.delete("buffers/x")
    assert reserve(m, 30 * MIB, "device")["sides"]["device"] == side(30 * MIB, True)
    m.ask("PATCH", "", {"quota": {"bytes": 60 * MIB}}).expect(200)
    p = m.ask("POST", "buffers/m/reserve", {"bytes": 37 * MIB, "side": "device"}).problem(507, "out_of_memory")
    both(p, 30 * MIB, 37 * MIB, False)
    p = m.ask("POST", "buffers/m/reserve", {"bytes": 34 * MIB, "side": "device"}).problem(507, "quota_exceeded")
    both(p, 30 * MIB, 34 * MIB, False)
    m.ask("PATCH", "", {"quota": {"bytes": None, "pinned_bytes": 50 * MIB}}).expect(200)
    release(m, "all")
    pinned = m.daemon.stats()["pinned"]
    room = pinned["limit_bytes"] - pinned["bytes"]  # beside the slots
    m.put("m", bytes(3 * MIB))
    ask = {"bytes": room - 2 * MIB, "side": "host"}
    p = m.ask("POST", "buffers/m/reserve", ask).problem(507, "pinned_limit_reached")
    both(p, 3 * MIB, room - 2 * MIB, False)
    sync(m, "device", True)  # as the refusal says
    release(m, "host")
    assert reserve(m, room - 2 * MIB, "host")["sides"]["host"] == side(room - 2 * MIB, pinned=True)


def test_a_reserve_that_is_not_waited_for(start, simulated):
    """It waits for memory, as an operation."""
    d = start(spec=simulated("bytes=16M"))
    m = Session(d)
    m.buffer("m", bytes=SIZE, mirrored=True)
    m.put("big", bytes(12 << 20))
    ask = {"bytes": 8 << 20, "side": "device"}
    m.ask("POST", "buffers/m/reserve", ask).problem(507, "out_of_memory")
    assert sides(m)["device"]["bytes"] == 0
    r = m.ask("POST", "buffers/m/reserve", ask, headers={"Prefer": "respond-async, wait=30"}).expect(202)
    assert r.json()["kind"] == "reserve"
    m.delete("buffers/big")
    until("the memory is there", lambda: sides(m)["device"]["bytes"] == 8 << 20)
    key = {"Idempotency-Key": "r1"}
    first = m.ask("POST", "buffers/m/reserve", {"bytes": 9 << 20, "side": "host"}, key).expect(200)
    again = m.ask("POST", "buffers/m/reserve", {"bytes": 9 << 20, "side": "host"}, key).expect(200)
    assert again.body == first.body and again.headers["ETag"] == first.headers["ETag"]


def test_events_have_the_head(m):
    last = feed(m, "?limit=1")["last_id"]
    m.put("head-m", A, "?mirrored=true")
    m.post("buffers/head-m/sync", {"to": "device"})
    m.post("buffers/head-m/release", {"side": "host"})
    m.put("head-x", b"1")
    until("all is told", lambda: [e for e in feed(m, f"?after={last}")["items"] if e.get("buffer") == "head-x"])
    events = feed(m, f"?after={last}")["items"]
    assert [e["head"] for e in events if e.get("buffer") == "head-m"] == ["host", "synced", "device"]
    assert not any("head" in e for e in events if e.get("buffer") == "head-x")


def test_a_sync_goes_in_the_order_of_a_stream(m):
    m.post("streams", {"name": "a"}, 201)
    m.put("m", A)
    assert sync(m, "device", True, stream="a") == "synced"
    m.post("streams/a/sync")
    m.copy("out", "m", 201)
    assert m.data("out") == A


def test_sides_are_kept_with_their_addresses(m):
    m.put("m", A)
    sync(m, "device", True)
    a = m.attributes("m")
    assert a["device_address"] and a["host_address"]
    p = m.get("pools/default")["allocations"]
    for n in (SIZE, SIZE // 2, 10, SIZE - 1):  # not larger: no memory is allocated
        m.put("m", A[:n])
        assert m.meta("m")["bytes"] == n and m.data("m") == A[:n]
        m.put("m", B[:n], "?side=device")
        assert m.data("m") == B[:n]
        sync(m, "host", True)
        assert m.data("m") == B[:n] and m.attributes("m") == a
    assert m.get("pools/default")["allocations"] == p
    m.put("m", A + B)
    assert m.data("m") == A + B and m.meta("m")["bytes"] == 2 * SIZE


def test_a_part_is_written_over_what_is_current(m):
    m.put("m", A)
    sync(m, "device", True)
    m.put("m", B, "?side=device")
    m.put("m", b"hello", "?offset=100")  # of the host side, which is stale
    want = B[:100] + b"hello" + B[105:]
    assert m.data("m") == want and head(m) == "host"
    m.fill("m", 1, offset=SLOT, bytes=10)  # of the device side, which is stale
    want = want[:SLOT] + b"\1" * 10 + want[SLOT + 10:]
    assert m.data("m") == want and head(m) == "device"
    sync(m, "host", True)
    assert m.data("m") == want


def test_a_part_of_an_uninitialized_buffer(m):
    m.put("m", b"hello", "?offset=5")
    assert m.data("m") == bytes(5) + b"hello" + bytes(SIZE - 10)


def test_release(m):
    m.put("m", A)
    p = m.ask("POST", "buffers/m/release", {"side": "host"}).problem(409, "buffer_side_current")
    assert "all" in p["detail"] or "sync" in p["detail"]
    assert release(m, "device") == "host" and m.data("m") == A
    sync(m, "device", True)
    assert release(m, "host") == "device"
    assert m.attributes("m")["memory_type"] == "device" and m.data("m") == A
    m.ask("POST", "buffers/m/release", {"side": "device"}).problem(409, "buffer_side_current")
    assert sync(m, "host", True) == "synced"
    assert release(m, "device") == "host" and m.data("m") == A
    used = m.get("pools/default")["used_bytes"]
    assert release(m, "all") == "uninitialized" and m.data("m") == bytes(SIZE)
    until("its memory is free", lambda: m.get()["used_pinned_bytes"] == 0)
    assert m.get("pools/default")["used_bytes"] <= used
    assert release(m, "all") == release(m, "host") == release(m, "device") == "uninitialized"
    m.put("m", B)
    assert head(m) == "host" and m.data("m") == B


def test_refusals(m):
    m.put("x", b"1")
    refuse(m, [
        ("POST", "buffers/m/sync", {}, 400, "invalid_argument", "'to'"),
        ("POST", "buffers/m/sync", {"to": "all"}, 400, "invalid_argument", "host or device"),
        ("POST", "buffers/m/sync", {"to": 5}, 400, "wrong_type", "a string"),
        ("POST", "buffers/m/sync", {"side": "host"}, 400, "unknown_field", "to"),
        ("POST", "buffers/none/sync", {"to": "host"}, 404, "buffer_not_found", "none"),
        ("POST", "buffers/m/release", {}, 400, "invalid_argument", "host, device or all"),
        ("POST", "buffers/m/release", {"side": "both"}, 400, "invalid_argument", "host, device or all"),
        ("POST", "buffers/none/release", {"side": "all"}, 404, "buffer_not_found", "none"),
        ("PUT", "buffers/m/data?side=both", b"1", 400, "invalid_argument", "host or device"),
        ("PUT", "buffers/m/data?mirrored=maybe", b"1", 400, "invalid_argument", "true or false"),
        ("PUT", "buffers/x/data?mirrored=true", b"1", 400, "invalid_argument", "mirrored"),
        ("PUT", "buffers/m/data?mirrored=false", b"1", 400, "invalid_argument", "mirrored"),
        ("PUT", "buffers/x/data?side=device", b"1", 400, "invalid_argument", "mirrored"),
        ("PUT", "buffers/x/data?side=host", b"1", 400, "invalid_argument", "mirrored"),
        ("PUT", "buffers/none/data?side=host", b"1", 400, "invalid_argument", "mirrored"),
        ("POST", "buffers/x/fill", {"pattern": 1, "side": "device"}, 400, "invalid_argument", "mirrored"),
        ("POST", "buffers/x/copy", {"from": "m", "bytes": 1, "side": "device"}, 400, "invalid_argument", "mirrored"),
        ("POST", "buffers/x/fill", {"pattern": 1, "side": "host"}, 400, "invalid_argument", "mirrored"),
        ("POST", "buffers/m/fill", {"pattern": 1, "side": "both"}, 400, "invalid_argument", "host or device"),
        ("POST", "buffers", {"name": "n", "bytes": 1, "mirrored": True, "kind": "pinned"}, 400, "invalid_argument",
         "mirrored"),
        ("POST", "buffers", {"name": "n", "bytes": 1, "mirrored": 1}, 400, "wrong_type", "true or false"),
        ("POST", "buffers/m/sync", {"to": "host", "stream": "none"}, 404, "stream_not_found", "none"),
    ])
    assert m.data("m") == bytes(SIZE) and head(m) == "uninitialized"


def test_made_by_its_first_upload(s):
    s.put("m", A, "?mirrored=true")
    assert (s.meta("m")["mirrored"], head(s)) == (True, "host")
    s.put("m", B)
    assert s.meta("m")["mirrored"] and s.data("m") == B
    s.put("d", A, "?mirrored=true&side=device")
    assert head(s, "d") == "device" and s.data("d") == A


def test_generations_and_conditions(m):
    m.put("m", A)
    tag = m.ask("GET", "buffers/m/data").headers["ETag"]
    generation = m.meta("m")["generation"]
    sync(m, "device", True)
    assert m.meta("m")["generation"] == generation  # the bytes are the same
    m.ask("GET", "buffers/m/data", None, {"If-None-Match": tag}).expect(304)
    m.fill("m", 1)
    assert m.meta("m")["generation"] == generation + 1
    m.ask("POST", "buffers/m/sync", {"to": "host"}, {"If-Match": tag}).problem(412, "precondition_failed")
    m.ask("POST", "buffers/m/release", {"side": "all"}, {"If-Match": tag}).problem(412, "precondition_failed")
    assert m.data("m") == b"\1" * SIZE


def test_the_host_side_counts_as_pinned(daemon):
    daemon.ask("POST", "/v1/sessions", {"name": "pinned", "quota": {"pinned_bytes": 1000}}).expect(201)
    s = Session(daemon, "pinned")
    s.put("m", bytes(600), "?mirrored=true")
    assert s.get()["used_pinned_bytes"] >= 600
    s.ask("PUT", "buffers/n/data?mirrored=true", bytes(500)).problem(507, "quota_exceeded")
    s.put("n", bytes(500), "?mirrored=true&side=device")
    s.ask("POST", "buffers/n/sync", {"to": "host"}).problem(507, "quota_exceeded")
    assert head(s, "n") == "device" and s.data("n") == bytes(500)
    daemon.ask("DELETE", "/v1/sessions/pinned").expect(204)


def test_an_upload_that_breaks_off_leaves_it_partial(m):
    m.put("m", A)
    raw = m.daemon.raw().put(m.base + "/buffers/m/data?dtype=uint8", SIZE).send(B[:2 * SLOT])
    until("it runs", lambda: m.daemon.stats()["running"]["uploads"] == 1)
    raw.close()
    until("it is partial", lambda: m.meta("m")["state"] == "partial")
    m.ask("GET", "buffers/m/data").problem(409, "buffer_partial")
    m.put("m", B)
    assert m.meta("m")["state"] == "ready" and m.data("m") == B


def test_after_a_restart(start, tmp_path):
    d = start(state=str(tmp_path))
    s = Session(d)
    s.put("m", A, "?mirrored=true")
    d.kill()
    s = Session(start(state=str(tmp_path)))
    assert (s.meta("m")["mirrored"], s.meta("m")["state"]) == (True, "lost")
    assert sides(s) == {"host": side(0, pinned=False), "device": side(0)}
    s.ask("POST", "buffers/m/reserve", {"bytes": 1, "side": "host"}).problem(410, "content_lost")
    s.put("m", B)
    assert s.meta("m")["mirrored"] and s.data("m") == B and s.post("buffers/m/sync", {"to": "device"})["copied"]


def test_a_push_that_is_not_waited_for(start, backend):
    d = start(*SMALL_SLOTS, spec=f"fault:move@1=stall/1000:{backend}")
    m = Session(d)
    m.buffer("m", bytes=SIZE, mirrored=True)
    m.put("m", A)
    r = m.ask("POST", "buffers/m/sync", {"to": "device"}, headers={"Prefer": "respond-async"}).expect(202)
    assert r.headers["Preference-Applied"] == "respond-async" and (r.json()["kind"],
                                                                   r.json()["stream"]) == ("sync", "default")
    until("the device side is current", lambda: head(m) == "synced")
    assert m.data("m") == A
    # An operation that is done already gets the usual answer.
    assert m.ask("POST", "buffers/m/sync", {"to": "device"},
                 headers={"Prefer": "respond-async"}).expect(200).json()["copied"] is False


def test_writes_that_are_not_waited_for(s):
    s.put("a", A)
    s.put("b", bytes(SIZE))
    for _ in range(20):
        assert s.ask("POST", "buffers/b/copy", {"from": "a"}, headers={"Prefer": "respond-async"}).status in (200, 202)
    until("all are done", lambda: s.meta("b")["generation"] == 21)
    assert s.data("b") == A
    assert s.ask("POST", "buffers/b/fill", {"pattern": 7}, headers={"Prefer": "respond-async"}).status in (200, 202)
    until("it is filled", lambda: s.meta("b")["generation"] == 22)
    assert s.data("b") == bytes([7]) * SIZE
