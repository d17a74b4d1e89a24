"""Reasons of failures, peaks, and the largest users, equal in all documents that have them."""
import contextlib
import os
import re
import sqlite3

from feed import Feed
from harness import until
from test_integrity import field
from test_metrics import samples, scrape, value

MIB = 1 << 20
S = "/v1/sessions/"


def seen(d):
    return samples(scrape(d).body.decode())


def agree(d, wanted):
    """wanted: (name, labels): number of /metrics, whose values may be some tenths of a second old."""
    def right():
        now = seen(d)
        return all(now.get((name, frozenset(labels.items())), 0) == n for name, labels, n in wanted)
    until("the metrics say so", right)


def reasons(numbers):
    assert sum(numbers["failures_by_reason"].values()) == numbers["failures"]
    return numbers["failures_by_reason"]


def test_why_memory_was_refused(start, simulated, tmp_path):
    state = str(tmp_path)
    d = start(spec=simulated("bytes=64M"), state=state)
    d.ask("POST", S[:-1], {"name": "s", "quota": {"bytes": 40 * MIB, "buffers": 9}}).expect(201)
    d.ask("POST", S + "s/pools", {"name": "p", "max_bytes": 32 * MIB}).expect(201)
    d.ask("POST", S + "s/buffers", {"name": "large", "bytes": 41 * MIB}).problem(507, "quota_exceeded")
    d.put("large", bytes(41 * MIB), "s").problem(507, "quota_exceeded")
    d.put("early", bytes(41 * MIB), "s", "?dtype=uint8").problem(507, "quota_exceeded")
    d.ask("POST", S + "s/buffers", {"name": "x", "bytes": 33 * MIB, "pool": "p"}).problem(507, "out_of_memory")
    d.ask("POST", S + "default/buffers", {"name": "x", "bytes": 65 * MIB}).problem(507, "out_of_memory")
    d.ask("POST", S + "s/buffers", {"name": "y", "bytes": 5 * MIB, "pool": "p"}).expect(201)
    d.ask("POST", S + "s/buffers", {"name": "z", "bytes": 2 * MIB, "kind": "pinned"}).expect(201)
    mine, all_ = {"quota_exceeded": 3, "pool_limit": 1}, {"quota_exceeded": 3, "pool_limit": 1, "out_of_memory": 1}
    stats, session = d.stats(), d.get(S + "s/stats")
    assert reasons(stats["allocations"]) == all_ and reasons(session["allocations"]) == mine
    pool, device = d.get(S + "s/pools/p/stats"), d.get("/v1/devices/0/stats")["allocations"]
    assert pool["failures_by_reason"] == {"pool_limit": 1} and pool["allocation_failures"] == 1
    assert reasons(d.get(S + "s/pools/p")) == {"pool_limit": 1} and pool["largest_bytes"] == 5 * MIB
    assert reasons(device) == {"pool_limit": 1, "out_of_memory": 1} == reasons(stats["allocations_by_kind"]["device"])
    assert (device["largest_bytes"], device["current_bytes"], device["count"]) == (5 * MIB, 7 * MIB, 2)
    assert (stats["allocations_by_kind"]["pinned"]["current_bytes"] == 2 * MIB
            and "managed" not in stats["allocations_by_kind"])
    agree(d, [("gpubufd_allocation_failures_total", {"reason": why}, all_.get(why, 0))
              for why in (*all_, "limit_reached", "device_error")] +
          [("gpubufd_pool_allocation_failures_total", {"session": "s", "pool": "p", "device": "0",
                                                       "reason": "pool_limit"}, 1),
           ("gpubufd_device_allocation_failures_total", {"device": "0", "reason": "out_of_memory"}, 1),
           ("gpubufd_kind_allocation_failures_total", {"kind": "device", "reason": "pool_limit"}, 1),
           ("gpubufd_session_allocation_failures_total", {"session": "s"}, 4),
           ("gpubufd_device_largest_allocation_bytes", {"device": "0"}, 5 * MIB)])
    d.stop()
    again = start(spec=simulated("bytes=64M"), state=state)
    assert reasons(again.stats()["allocations"]) == all_


def test_uploads_that_no_pool_can_ever_hold(start, simulated):
    """Requests refused by their headers are counted and reported like those that the device refuses."""
    d = start(spec=simulated("bytes=64M"))
    d.ask("POST", S + "default/pools", {"name": "p", "max_bytes": MIB}).expect(201)
    d.ask("POST", S[:-1], {"name": "small", "quota": {"bytes": 16}}).expect(201)
    with Feed(d, "?type=quota.,memory.") as feed:
        d.put("x", bytes(2 * MIB), query="?pool=p").problem(507, "out_of_memory")
        e = feed.find("memory.exhausted")
        assert ((e["pool"], e["bytes"], e.get("count", 1)) == ("p", 2 * MIB, 1) and f"requested_bytes {2 * MIB}"
                in e["detail"])
        d.put("x", bytes(65 * MIB)).problem(507, "out_of_memory")
        e = feed.find("memory.exhausted")
        assert (e["pool"], e["bytes"], e.get("count", 1)) == ("default", 65 * MIB, 1)
        d.put("x", bytes(2 * MIB), "small").problem(507, "quota_exceeded")
        d.put("y", bytes(3 * MIB), "small").problem(507, "quota_exceeded")
        first, second = feed.find("quota.exceeded"), feed.find("quota.exceeded")
        assert [(e["bytes"], e.get("count", 1)) for e in (first, second)] == [(2 * MIB, 1), (3 * MIB, 1)]
    assert reasons(d.stats()["allocations"]) == {"pool_limit": 1, "out_of_memory": 1, "quota_exceeded": 2}
    assert reasons(d.get(S + "default/pools/p")) == {"pool_limit": 1}


def test_what_an_earlier_version_counted_has_no_reason(start, tmp_path):
    """An older daemon's database, without the columns."""
    start(state=str(tmp_path)).stop()
    with contextlib.closing(sqlite3.connect(tmp_path / "gpubufd.db")) as db, db:
        columns = [c[1] for c in db.execute("PRAGMA table_info(counters)")
                   if re.match("(allocation_failures|uploads_failed)_", c[1])]
        assert len(columns) >= 15
        for column in columns:
            db.execute(f"ALTER TABLE counters DROP COLUMN {column}")
        db.execute("UPDATE counters SET allocation_failures = 5, uploads_failed = 2")
    stats = start(state=str(tmp_path)).stats()
    assert reasons(stats["allocations"]) == {"other": 5} and reasons(stats["transfers"]["upload"]) == {"other": 2}


def test_peaks_stay(daemon, session):
    for name, size in (("a", 3 * MIB), ("b", 2 * MIB)):
        daemon.ask("POST", S + session + "/buffers", {"name": name, "bytes": size}).expect(201)
    for name in "ab":
        daemon.ask("DELETE", f"{S}{session}/buffers/{name}").expect(204)
    now = until("it is freed", lambda: (lambda a: a if a["frees"] == 2
                                        else None)(daemon.get(S + session + "/stats")["allocations"]))
    assert (now["current_bytes"], now["peak_bytes"], now["largest_bytes"]) == (0, 5 * MIB, 3 * MIB)
    whole = daemon.stats()["allocations"]
    assert whole["peak_bytes"] >= 5 * MIB and whole["largest_bytes"] >= 3 * MIB


def test_why_transfers_broke_off(start, tmp_path):
    state = str(tmp_path)
    d = start(state=state)
    d.put("x", bytes(64 * MIB)).expect(201)
    d.put("y", b"abcd" * 1000, headers={"Repr-Digest": field(b"other")}).problem(400, "digest_mismatch")
    d.put("y", b"no gzip", query="?dtype=uint8&shape=7",
          headers={"Content-Encoding": "gzip"}).problem(400, "invalid_encoding")
    up = d.raw().put(S + "default/buffers/z/data?dtype=uint8", 4 * MIB).send(bytes(MIB))
    until("it runs", lambda: d.stats()["running"]["uploads"] == 1)
    up.close()
    down = d.raw().request("GET", S + "default/buffers/x/data", [])
    until("it runs", lambda: d.stats()["running"]["downloads"] == 1)
    down.close()
    up = reasons(until("all have ended", lambda: (lambda t: t if t["failures"] >= 2
                                                  else None)(d.settled()["transfers"]["upload"])))
    assert up["digest_mismatch"] == 1 and up["incomplete_body"] == 1, up
    assert set(up) <= {"digest_mismatch", "incomplete_body", "invalid_encoding"}
    until("the download has ended", lambda: reasons(d.stats()["transfers"]["download"]) == {"incomplete_body": 1})
    assert reasons(d.get(S + "default/stats")["transfers"]["upload"]) == up
    agree(d, [("gpubufd_transfer_failures_total", {"direction": "upload", "reason": why}, n) for why, n in up.items()] +
          [("gpubufd_transfer_failures_total", {"direction": "download", "reason": "incomplete_body"}, 1)])
    d.stop()
    after = start(state=state).stats()["transfers"]
    assert reasons(after["upload"]) == up and reasons(after["download"]) == {"incomplete_body": 1}


def of_sessions(d):
    return {dict(labels)["session"]: n for (name, labels), n in seen(d).items() if name == "gpubufd_session_bytes"}


def test_only_the_largest_sessions_have_series(start):
    d = start("--metrics-sessions", "3")
    for i in range(1, 31):
        d.ask("POST", S[:-1], {"name": f"s{i}"}).expect(201)
        d.put("x", bytes(1000 * i), f"s{i}").expect(201)
    shown = until("all are there", lambda: (lambda s: s if s.get("s30") == 30000 else None)(of_sessions(d)))
    assert shown == {"s30": 30000, "s29": 29000, "s28": 28000, "_other": 1000 * sum(range(1, 28))}
    now = seen(d)
    named = {(name, dict(labels)["session"]) for name, labels in now if name.startswith("gpubufd_session_")}
    assert {s for _, s in named} == set(shown) and len([n for n, s in named if s == "_other"]) == 3
    assert value(now, "gpubufd_session_upload_bytes_total", session="s30") == 30000
    assert value(now, "gpubufd_session_buffers", session="_other") == 27
    d.ask("DELETE", S + "s30").expect(204)
    until("the next has its place", lambda: set(of_sessions(d)) == {"s29", "s28", "s27", "_other"})


def test_no_series_of_sessions(start):
    d = start("--metrics-sessions", "0")
    d.put("x", b"1").expect(201)
    assert not any(name.startswith("gpubufd_session_") for name, _ in seen(d))


def test_the_daemon_in_its_statistics(start):
    d = start()
    first = d.ask("GET", "/v1/stats").expect(200)
    own = first.json()["process"]
    assert (own["cpu_seconds"] > 0 and 0 < own["resident_bytes"] <= own["virtual_bytes"] and 3 <= own["open_fds"]
            <= own["max_fds"])
    assert first.headers["ETag"].startswith('W/"')
    tag = until("nothing changes any more", lambda: (lambda a, b: a if a == b else None)(
        *(d.ask("GET", "/v1/stats").headers["ETag"] for _ in range(2))))
    # The counts of requests and time rise meanwhile without being a change.
    waiting = d.raw().request("GET", "/v1/stats", [f"If-None-Match: {tag}", "Prefer: wait=30"])
    now = until("it is seen to wait", lambda: (lambda s: s if s["http"]["suspended"] == 1 else None)(d.stats()))
    assert now["http"]["connections"] >= 2 and now["http"]["requests"] > first.json()["http"]["requests"]
    assert d.ask("GET", "/v1/stats").headers["ETag"] == tag
    for known in (tag, tag[2:], '"other", ' + tag):
        d.ask("GET", "/v1/stats", None, {"If-None-Match": known}).expect(304)
    agree(d, [("gpubufd_http_suspended", {}, 1)])
    waiting.close()
    with open(f"/proc/{d.process.pid}/limits") as f:
        assert str(d.stats()["process"]["max_fds"]) in f.read()
    assert abs(d.stats()["process"]["open_fds"] - len(os.listdir(f"/proc/{d.process.pid}/fd"))) < 8


def test_how_long_the_database_takes(daemon, session):
    before = daemon.stats()["store"]
    for i in range(20):
        daemon.put(f"x{i}", b"1", session).expect(201)
    store = daemon.stats()["store"]
    assert (store["seconds_queued"] > before["seconds_queued"] and store["seconds_committing"]
            > before["seconds_committing"])
    assert (0 < store["longest_queued_seconds"] <= store["seconds_queued"] and store["longest_commit_seconds"]
            <= store["seconds_committing"])

    def told():
        now = seen(daemon)
        return now if value(now, "gpubufd_store_queue_duration_seconds_count") >= store["changes"] else None

    now = until("the metrics say so", told)
    for name in ("queue", "commit"):
        of = f"gpubufd_store_{name}_duration_seconds_"
        rising = [value(now, of + "bucket", le=le) for le in "0.0001 0.0003 0.001 0.003 0.01 0.03 0.1 0.3 1.0 3.0 10.0 "
                  "30.0 100.0 +Inf".split()]
        assert rising == sorted(rising) and rising[-1] == value(now, of + "count") > 0
        assert value(now, of + "sum") == value(now, f"gpubufd_store_{name}_seconds_total")
