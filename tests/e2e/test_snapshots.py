"""Snapshots for other tools: the log of allocations in RMM's columns, and the format of PyTorch's memory_viz page."""
import csv
import io
import pickle
import pickletools
import re
import time

import pytest

from conform import Session, refuse
from harness import SMALL_SLOTS, SLOT, until
from values import payload

CSV, SNAPSHOT = "/v1/allocations", "/v1/snapshot"
JSON = {"Accept": "application/json"}
# The opcodes that MemoryViz.js supports (fewer than pickle's).
PAGE_KNOWS = {"PROTO", "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "SETITEMS", "APPENDS", "BINUNICODE", "BINGET",
              "BINPUT", "BININT", "BININT1", "BININT2", "LONG1", "NEWFALSE", "NEWTRUE", "NONE"}


def rows(reply):
    assert reply.headers["Content-Type"].startswith("text/csv")
    return list(csv.DictReader(io.StringIO(reply.expect(200).body.decode())))


def log(s, query=""):
    return s.ask("GET", CSV + query, headers=JSON).expect(200).json()


@pytest.fixture
def fresh(start):
    return Session(start(*SMALL_SLOTS))


def test_rmm_columns(fresh):
    fresh.put("x", payload(SLOT))
    fresh.put("x", payload(SLOT, 1))
    fresh.delete("buffers/x")
    until("both are freed", lambda: log(fresh)["last_id"] == 4)
    r = fresh.ask("GET", CSV)
    assert r.body.startswith(b"Thread,Time,Action,Pointer,Size,Stream\n") and r.headers["Vary"] == "Accept"
    lines = rows(r)
    assert sorted(x["Action"] for x in lines) == ["allocate"] * 2 + ["free"] * 2
    held = {}  # as RMM's replay does
    for x in lines:
        assert x["Thread"] == "1" and int(x["Size"]) == SLOT and re.fullmatch(r"0x[0-9a-f]+", x["Stream"])
        assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{6}", x["Time"])
        address = int(x["Pointer"], 16)
        if x["Action"] == "allocate":
            assert address not in held
            held[address] = int(x["Size"])
        else:
            assert held.pop(address) == int(x["Size"])
    assert held == {}


def test_the_log_as_json(fresh):
    fresh.post("streams", {"name": "st"}, 201)
    fresh.put("x", payload(SLOT), "?stream=st")
    fresh.put("y", payload(10), "?kind=pinned")  # on the host, so not in the snapshot
    first = log(fresh)
    [item] = first["items"]
    assert (item["action"], item["bytes"], item["kind"], item["session"],
            item["buffer"]) == ("allocate", SLOT, "device", "default", "x")
    assert item["device"]["index"] == 0 and item["stream"] > 0 and first["last_id"] == item["id"] == 1
    long = "n" * 128
    fresh.put(long, payload(3))
    assert [x["buffer"] for x in log(fresh, "?since=1")["items"]] == ["n" * 44 + "..."]
    assert [x["id"] for x in log(fresh, "?limit=1")["items"]] == [2] and log(fresh, "?since=99")["items"] == []
    assert len(rows(fresh.ask("GET", CSV + "?since=1&limit=5"))) == 1


def test_bad_questions(s):
    refuse(s, [
        ("GET", CSV + "?limit=0", None, 400, "invalid_argument", "1 or more"),
        ("GET", CSV + "?limit=-1", None, 400, "invalid_argument", "negative"),
        ("GET", CSV + "?since=x", None, 400, "invalid_argument", "whole number"),
        ("GET", CSV + "?until=3", None, 400, "unknown_parameter", "since"),
        ("GET", SNAPSHOT + "?limit=1.5", None, 400, "invalid_argument", "whole number"),
        ("GET", SNAPSHOT + "?since=1", None, 400, "unknown_parameter", "limit"),
    ])


def test_failures_are_told(fresh, simulated):
    fresh.post("pools", {"name": "p", "max_bytes": 1 << 20}, 201)
    fresh.ask("POST", "buffers", {"name": "big", "bytes": 64 << 20, "pool": "p"}).problem(507, "out_of_memory")
    [item] = log(fresh)["items"]
    assert (item["action"] == "allocate failure" and item["pointer"] is None and item["buffer"] == "big"
            and item["free_bytes"] > 0)
    [line] = rows(fresh.ask("GET", CSV))
    assert (line["Action"], line["Pointer"], line["Size"]) == ("allocate failure", "(nil)", str(64 << 20))
    [[step]] = fresh.ask("GET", SNAPSHOT, headers=JSON).expect(200).json()["device_traces"]
    assert step["action"] == "oom" and step["device_free"] == item["free_bytes"] and step["size"] == 64 << 20


def test_the_log_is_a_ring(start):
    s = Session(start(*SMALL_SLOTS, "--allocation-log", "10"))
    for i in range(30):
        s.put("x", payload(100 + i))
    until("all are told", lambda: log(s)["last_id"] == 59)
    assert [x["id"] for x in log(s)["items"]] == list(range(50, 60)) and len(rows(s.ask("GET", CSV))) == 10
    off = Session(start(*SMALL_SLOTS, "--allocation-log", "0"))
    off.put("x", payload(100))
    assert "--allocation-log 0" in log(off)["note"] and "note" not in log(s)
    assert rows(off.ask("GET", CSV)) == [] and load(off)["device_traces"] == [[]] * len(off.get("/v1/devices")["items"])
    assert sum(len(g["blocks"]) for g in load(off)["segments"]) == 1


# --- memory_viz -------------------------------------------------------------------------------------------------------


def load(s, query=""):
    """The snapshot as pickle has all that the page relies on."""
    r = s.ask("GET", SNAPSHOT + query).expect(200)
    assert r.headers["Content-Type"] == "application/octet-stream"
    data = r.body
    assert {op.name for op, _, _ in pickletools.genops(data)} <= PAGE_KNOWS
    snapshot = pickle.loads(data)
    for g in snapshot["segments"]:
        at = g["address"]
        for b in g["blocks"]:  # each begins at the end of the last
            assert b["address"] == at and b["size"] > 0
            at += b["size"]
            assert (b["state"] == "inactive") == (b["frames"] == [])
        assert at == g["address"] + g["total_size"]
        taken = sum(b["size"] for b in g["blocks"] if b["state"] == "active_allocated")
        leaving = sum(b["size"] for b in g["blocks"] if b["state"] == "active_pending_free")
        assert g["allocated_size"] == taken and g["active_size"] == taken + leaving
    for device, trace in enumerate(snapshot["device_traces"]):
        mine = sorted((g["address"], g["address"] + g["total_size"]) for g in snapshot["segments"]
                      if g["device"] == device)
        assert all(a[1] <= b[0] for a, b in zip(mine, mine[1:]))
        live = set(mine)
        for step in reversed(trace):  # the page goes back in time and looks up the segment of each
            if step["action"] == "oom":
                continue
            extent = (step["addr"], step["addr"] + step["size"])
            if step["action"] == "segment_free":
                assert all(b <= extent[0] or extent[1] <= a for a, b in live)
                live.add(extent)
            elif step["action"] == "segment_alloc":
                live.remove(extent)
            else:
                assert any(a <= extent[0] and extent[1] <= b for a, b in live)
    return snapshot


def blocks(snapshot):
    """(session, buffer): bytes, of the allocated blocks."""
    return {(f["filename"], f["name"]): b["requested_size"] for g in snapshot["segments"] for b in g["blocks"]
            if b["state"] == "active_allocated" for f in b["frames"]}


def test_segments_are_the_buffers(fresh):
    sizes = {f"b{i}": 1000 * (i + 1) for i in range(20)}
    for name, n in sizes.items():
        fresh.put(name, payload(n))
    for i in range(0, 20, 3):
        fresh.delete(f"buffers/b{i}")
        del sizes[f"b{i}"]
    fresh.post("pools", {"name": "p"}, 201)
    fresh.put("pooled", payload(5000), "?pool=p")
    fresh.put("managed", payload(6000), "?kind=managed")
    fresh.put("both", payload(7000), "?mirrored=true")
    wanted = {("default", k): v for k, v in [*sizes.items(), ("pooled", 5000), ("managed", 6000)]}
    until("the frees are through", lambda: {**blocks(load(fresh)), ("default", "both"): 0}
          == {**wanted, ("default", "both"): 0})
    snapshot = load(fresh)
    owners = {(f["filename"], f["name"]) for g in snapshot["segments"] for f in g["frames"]}
    assert {("pool", "default"), ("pool", "p"), ("kind", "managed")} <= owners
    traces = [t for trace in snapshot["device_traces"] for t in trace]
    times = [t["time_us"] for t in traces]
    assert times == sorted(times) and abs(times[-1] / 1e6 - time.time()) < 120
    # The page merges the two consecutive steps of a free.
    for a, b in zip(traces, traces[1:]):
        assert a["action"] != "free_requested" or (b["action"], b["addr"]) == ("free_completed", a["addr"])
    assert [t for t in traces if t["frames"][0]["name"] == "b1"][0]["size"] == 2000
    as_json = fresh.ask("GET", SNAPSHOT, headers=JSON).expect(200).json()
    assert as_json == snapshot and load(fresh, "?limit=0")["device_traces"][0] == []
    assert len(load(fresh, "?limit=1")["device_traces"][0]) <= 2


def test_what_was_given_back_is_no_segment(fresh, simulated):
    """After a trim, and for a pool and a kind whose memory is freed; the trace has their allocations and frees."""
    for i in range(5):
        fresh.post("buffers", {"name": f"b{i}", "bytes": 40 << 20}, 201)
    fresh.post("pools", {"name": "p"}, 201)
    fresh.put("pooled", payload(5000), "?pool=p")
    fresh.put("managed", payload(6000), "?kind=managed")
    for name in [f"b{i}" for i in range(5) if i != 3] + ["pooled", "managed"]:
        fresh.delete(f"buffers/{name}")
    until("the frees are through", lambda: log(fresh)["last_id"] == 13)
    fresh.delete("pools/p")
    fresh.post("pools/default/trim", {"keep_bytes": 0}, 200)
    until("the pool is small", lambda: fresh.get("pools/default")["reserved_bytes"] < 160 << 20)
    snapshot = load(fresh)
    assert sum(g["total_size"] for g in snapshot["segments"]) <= fresh.get("pools/default")["reserved_bytes"]
    assert blocks(snapshot) == {("default", "b3"): 40 << 20}
    assert all(f["name"] for g in snapshot["segments"] for f in g["frames"])
    [actions] = [[t["action"] for t in trace] for trace in snapshot["device_traces"]]
    assert actions.count("segment_alloc") - actions.count("segment_free") == len(snapshot["segments"])


def test_what_readers_hold_is_pending(fresh, simulated):
    """A stalled download keeps the memory of a deleted buffer."""
    big = payload(64 << 20)
    fresh.put("x", big)
    with fresh.daemon.raw(receive_bytes=1 << 16) as r:
        r.request("GET", "/v1/sessions/default/buffers/x/data")
        until("it reads", lambda: fresh.get("/v1/stats")["running"]["downloads"] == 1)
        fresh.ask("DELETE", "buffers/x").expect(204)
        [g] = load(fresh)["segments"]
        assert [b["state"] for b in g["blocks"]] == ["active_pending_free"] and g["allocated_size"] == 0
    until("it is free", lambda: all(b["state"] == "inactive" for g in load(fresh)["segments"] for b in g["blocks"]))


def test_ten_thousand_buffers(start, simulated):
    """A large snapshot takes well under a second, and other requests are answered meanwhile."""
    s = Session(start(*SMALL_SLOTS, "--quota-buffers", "20000"))
    for first in range(0, 10000, 500):
        wave = [{"op": "create", "buffer": f"b{first + i}", "bytes": 64 + i % 7} for i in range(500)]
        s.ask("POST", "batch", {"operations": wave}).expect(200)
    began = time.monotonic()
    snapshot = load(s)
    assert len(blocks(snapshot)) == 10000 and sum(map(len, snapshot["device_traces"])) >= 10000
    assert time.monotonic() - began < 60  # holds also under a sanitizer
    assert len(rows(s.ask("GET", CSV))) >= 10000
    # At most four at a time; further requests get Retry-After.
    clients = [s.daemon.raw() for _ in range(16)]
    for c in clients:
        c.request("GET", SNAPSHOT)
    replies = [c.reply() for c in clients]
    assert {r.status for r in replies} == {200, 503} and sum(r.status == 200 for r in replies) >= 4
    for r in replies:
        assert r.status == 200 or r.problem(503, "saturated")["retryable"]
    for c in clients[8:]:  # some disconnect before the end
        c.request("GET", SNAPSHOT)
        c.close()
    until("there is room again", lambda: s.ask("GET", SNAPSHOT).status == 200)
