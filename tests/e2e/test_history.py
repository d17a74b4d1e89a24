"""The history of statistics: ?since=&until=&step= returns the work that was done; restarts, bounds, refusals, views."""
import sqlite3
import time
from datetime import datetime, timezone

import pytest

from harness import until
from values import payload

DAY = 86400


def items(client, target="/v1/stats", query="since=-600"):
    answer = client.get(f"{target}?{query}")
    assert answer["source"] in ("samples", "minutes", "hours")
    return answer["items"]


def total(points, counter):
    return sum(p.get(counter, {"delta": 0})["delta"] for p in points)


def database(path):
    return sqlite3.connect(f"file:{path}/gpubufd.db?mode=ro", uri=True)


def view(path, sql):
    db = database(path)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def stamp(seconds):
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_values_are_what_was_done(start, tmp_path):
    d = start("--sample-interval", "1", state=str(tmp_path))
    d.ask("POST", "/v1/sessions/default/pools", {"name": "p", "max_bytes": 64 << 20}).expect(201)
    d.put("x", payload(100000), query="?pool=p").expect(201)
    d.put("y", payload(5000)).expect(201)
    until("the uploads are in the past", lambda: total(items(d), "upload_bytes") == 105000)
    points = until("a sample of the pool in use", lambda: [
        p for p in items(d, "/v1/sessions/default/pools/p/stats") if p["used_bytes"]["last"] >= 100000])
    assert points[-1]["used_bytes"]["max"] >= 100000 and points[-1]["reserved_bytes"]["last"] >= 100000
    last = items(d)[-1]
    stats = d.stats()
    assert last["buffers"]["last"] == stats["buffers"]["count"] == 2
    assert last["buffer_bytes"]["last"] == stats["buffers"]["bytes"] == 105000
    assert last["sessions"]["last"] == stats["sessions"]["count"]
    assert "connections" in last and total(items(d), "requests") > 0
    assert total(items(d), "uploads") == stats["transfers"]["upload"]["count"] == 2
    assert total(items(d, "/v1/sessions/default/pools/p/stats"), "allocations") >= 1
    session = items(d, "/v1/sessions/default/stats")[-1]
    assert session["buffers"]["last"] == 2 and session["buffer_bytes"]["last"] == 105000
    device = items(d, "/v1/devices/0/stats")[-1]
    now = d.get("/v1/devices/0/stats")
    assert device["reserved_bytes"]["last"] == now["reserved_bytes"] >= 100000
    assert device["used_bytes"]["last"] + device["free_bytes"]["last"] == now["total_bytes"]
    pool = d.get("/v1/sessions/default/pools/p/stats")
    assert pool["fragmentation_bytes"] == pool["reserved_bytes"] - pool["used_bytes"]
    assert pool["buffers"] == 1 and pool["allocations"] >= 1
    d.ask("GET", "/v1/devices/7/stats").problem(404, "device_not_found")
    d.ask("GET", "/v1/sessions/default/pools/none/stats?since=-5").problem(404, "pool_not_found")


def test_levels_agree(start, tmp_path):
    d = start("--sample-interval", "1", state=str(tmp_path))
    d.put("x", payload(1000)).expect(201)
    until("the upload is in the past", lambda: total(items(d), "upload_bytes") == 1000)
    for step, source in ((1, "samples"), (60, "minutes"), (3600, "hours")):
        answer = d.get(f"/v1/stats?since=-900&step={step}")
        assert answer["source"] == source and answer["step_s"] == step
        assert total(answer["items"], "upload_bytes") == 1000
        for p in answer["items"]:
            used = p["buffer_bytes"]
            assert used["min"] <= used["mean"] <= used["max"]
            assert p["upload_bytes"]["rate_per_s"] == pytest.approx(p["upload_bytes"]["delta"] / p["covered_s"])


def test_rates_are_of_the_time_that_is_covered(start, tmp_path):
    """The rate is the same in a step that is not over, or shorter than a sample."""
    began = time.time()
    d = start("--sample-interval", "2", state=str(tmp_path))
    assert d.get("/v1/stats?since=-60&step=1")["step_s"] == 2
    assert d.get("/v1/stats?since=-1200")["step_s"] == 6  # a step of 5 s would have two and three samples in turn
    d.put("x", payload(100000)).expect(201)
    until("the upload is in the past", lambda: total(items(d), "upload_bytes") == 100000)
    for target in ("/v1/stats", "/v1/sessions/default/stats"):
        answer = d.get(f"{target}?since=-60&step=3600")
        took = time.time() - began
        assert answer["step_s"] == 3600 and answer["interval_s"] == 2 and "note" not in answer
        for p in answer["items"]:
            assert 0 < p["covered_s"] <= took
            assert p["upload_bytes"]["rate_per_s"] == pytest.approx(p["upload_bytes"]["delta"] / p["covered_s"])
    assert all(p["covered_s"] > 0 for p in items(d, "/v1/devices/0/stats")
               + items(d, "/v1/sessions/default/pools/default/stats"))


def test_sessions_count_what_they_did(start, tmp_path):
    d = start("--sample-interval", "1", state=str(tmp_path))
    d.ask("POST", "/v1/sessions", {"name": "a"}).expect(201)
    d.ask("PUT", "/v1/sessions/a/buffers/x/data", payload(3000)).expect(201)
    d.ask("GET", "/v1/sessions/a/buffers/x/data").expect(200)
    until("the download is in the past", lambda: total(items(d, "/v1/sessions/a/stats"), "download_bytes") == 3000)
    live = d.get("/v1/sessions/a/stats")
    points = items(d, "/v1/sessions/a/stats")
    for way in ("upload", "download"):
        assert total(points, way + "s") == live["transfers"][way]["count"] == 1
        assert total(points, way + "_bytes") == live["transfers"][way]["bytes"] == 3000
    assert total(points, "allocations") == live["allocations"]["count"] == 1
    assert total(items(d, "/v1/sessions/default/stats"), "uploads") == 0
    assert view(str(tmp_path), "select sum(uploads), sum(downloads), sum(allocations) from v_sessions where session = "
                "'a'") == [(1, 1, 1)]


def test_without_samples_the_answer_says_so(start):
    answer = start("--sample-interval", "0").get("/v1/stats?since=-60")
    assert answer["items"] == [] and answer["interval_s"] == 0 and "--sample-interval 0" in answer["note"]


def test_tag_stands_while_nothing_comes(start, tmp_path):
    d = start("--sample-interval", "3600", state=str(tmp_path))
    query = f"?since={stamp(time.time() - 3600)}&until={stamp(time.time() + 3600)}&step=3600"
    for of in ("", "/devices/0", "/sessions/default", "/sessions/default/pools/default"):
        target = f"/v1{of}/stats{query}"
        tag = d.ask("GET", target).expect(200).headers["ETag"]
        d.ask("GET", target, headers={"If-None-Match": tag}).expect(304)


def test_restarts_are_marked(start, tmp_path):
    state = str(tmp_path)
    d = start("--sample-interval", "1", state=state)
    d.put("x", payload(1000)).expect(201)
    until("the upload is in the past", lambda: total(items(d), "upload_bytes") == 1000)
    d.put("y", payload(500)).expect(201)
    assert d.get("/v1/stats?since=-60")["restarts"] == []
    d.stop()
    d = start("--sample-interval", "1", state=state)
    assert total(items(d), "upload_bytes") == 1500  # the last sample is taken at the end
    d.put("z", payload(70)).expect(201)
    d.kill()
    d = start("--sample-interval", "1", state=state)
    assert len(d.get("/v1/stats?since=-600")["restarts"]) == 2
    until("a sample of this run", lambda: len(view(state, "select * from v_daemon")) > 2)
    for p in items(d):
        for name, number in p.items():
            assert not isinstance(number, dict) or number.get("delta", 0) >= 0, (name, p)
    assert total(items(d), "upload_bytes") == d.stats()["transfers"]["upload"]["bytes"]
    assert [e for (e,) in view(state, "select how_it_ended from v_starts")] == ["stopped", "unknown", "running"]


def test_each_sample_is_one_row_with_all_levels(start, tmp_path):
    """Also when the counters are saved alone: at the end, when the remaining memory is freed."""
    state = str(tmp_path)
    for i in range(3):
        d = start("--sample-interval", "1", state=state)
        d.put(f"x{i}", payload(1000)).expect(201)
        until("samples of this run", lambda: len(view(state, "select 1 from v_devices where device = 0")) >= 2
              * (i + 1))
        d.stop()
        levels = [name for (name,) in view(state, "select name from pragma_table_info('v_daemon')")][1:]
        rows = view(state, f"select at, {', '.join(levels)} from v_daemon order by at")
        assert [row for row in rows if None in row] == []
        assert [row[0] for row in rows] == [at for (at,) in view(state, "select at from v_devices where device = 0 "
                                                                 "order by at")]
        saved = view(state, "select upload_bytes, allocations, frees from counters")[0]
    d = start("--sample-interval", "1", state=state)
    until("the next run tells what the end of the last came to", lambda: view(
        state, "select sum(upload_bytes), sum(allocations), sum(frees) from v_daemon") == [saved])
    minutes = [f"select substr(at, 1, 16), count(*) from {name} group by 1 order by 1"
               for name in ("v_daemon", "v_devices where device = 0")]
    until("each minute has as many", lambda: view(state, minutes[0]) == view(state, minutes[1]))


def fill(state, seconds, every=60):
    """Samples of earlier days, as left by a daemon that ended before it rolled them up."""
    db = sqlite3.connect(f"{state}/gpubufd.db")
    now = time.time()
    (series,) = db.execute("select id from history_series where scope = 'daemon'").fetchone()
    first = int(now - seconds) // 3600 * 3600
    db.executemany("insert or replace into history_samples(series, at_us, used_bytes, uploads) values(?, ?, ?, 1)",
                   [(series, at * 1000000, at % 100) for at in range(first, int(now) - 120, every)])
    db.execute("update history_series set minutes_until_us = 0, hours_until_us = 0")
    db.commit()
    db.close()
    return first


def test_rolled_up_and_dropped_by_age(start, tmp_path):
    state = str(tmp_path)
    start("--sample-interval", "1", state=state).stop()
    first = fill(state, 2 * DAY)
    d = start("--sample-interval", "1", state=state)
    until("the hours are there", lambda: len(view(state, "select 1 from v_daemon_hours")) >= 24)
    (at, samples, uploads) = view(state, "select at, samples, uploads from v_daemon_hours order by at limit 1")[0]
    assert at.startswith(stamp(first)[:-1]) and samples == uploads == 60
    points = items(d, query=f"since={stamp(first)}&until={stamp(first + 3600)}&step=3600")
    assert len(points) == 1 and points[0]["uploads"] == {"delta": 60, "rate_per_s": pytest.approx(1 / 60)}
    # those older than a day are deleted
    assert view(state, "select min(at_us) from history_samples")[0][0] <= time.time() * 1e6


def test_series_are_bounded(start, tmp_path):
    state = str(tmp_path)
    d = start("--sample-interval", "1", "--history-series", "3", state=state)
    for i in range(6):
        d.ask("POST", "/v1/sessions", {"name": f"s{i}"}).expect(201)
    until("samples", lambda: len(view(state, "select distinct session_id from v_sessions")) == 3)
    for i in range(6):
        d.ask("DELETE", f"/v1/sessions/s{i}").expect(204)
    d.ask("POST", "/v1/sessions", {"name": "s0"}).expect(201)
    until("what is new takes the place of what ended", lambda: items(d, "/v1/sessions/s0/stats"))
    assert len(view(state, "select * from history_series where scope = 'session'")) <= 3


def test_a_new_session_has_no_past(start, tmp_path):
    d = start("--sample-interval", "1", state=str(tmp_path))
    d.ask("POST", "/v1/sessions", {"name": "a"}).expect(201)
    until("a sample", lambda: items(d, "/v1/sessions/a/stats"))
    d.ask("DELETE", "/v1/sessions/a").expect(204)
    d.ask("POST", "/v1/sessions", {"name": "a", "idle_ttl_s": 3600}).expect(201)
    assert len(items(d, "/v1/sessions/a/stats")) <= 1
    assert len(view(str(tmp_path), "select distinct session_id from v_sessions where session = 'a'")) >= 1


BAD = [
    ("since=yesterday", "such as 2026-01-02T03:04:05Z"),
    ("since=", "such as 2026-01-02T03:04:05Z"),
    ("since=1700000000", "such as 2026-01-02T03:04:05Z"),
    ("since=-1.5", "whole seconds"),
    ("since=-99999999999", "a hundred years"),
    ("until=9999-12-31T23:59:59Z", "a hundred years"),
    ("since=2026-01-02T03:04:05", "zone"),
    ("since=2026-01-02T03:04:05CET", "zone"),
    ("since=2026-01-02T03:04:05%2B25:00", "zone"),
    ("since=2026-02-30T03:04:05Z", "not a time"),
    ("since=1960-01-01T00:00:00Z", "not a time"),
    ("since=-10&until=-20", "before until"),
    ("since=-0", "before until"),
    ("until=-10&since=-10", "before until"),
    ("step=0", "at least 1"),
    ("step=-5", "negative"),
    ("step=x", "whole number"),
    ("step=99999999999", "31536000"),
    ("since=-86400&step=10", "the least is 58"),
]


@pytest.mark.parametrize("query, says", BAD, ids=[q for q, _ in BAD])
@pytest.mark.parametrize("target", ["/v1/stats", "/v1/sessions/default/stats", "/v1/devices/0/stats",
                                    "/v1/sessions/default/pools/default/stats"])
def test_refusals(daemon, target, query, says):
    r = daemon.ask("GET", f"{target}?{query}")
    r.problem(400, "invalid_argument")
    assert says in r.json()["detail"], r


def test_times_are_read(daemon):
    at = stamp(time.time() - 100)
    for text in (at, at[:-1] + "%2B00:00", at[:-1] + "+00:00", at[:-1] + ".25Z", at[:-1] + "-00:00", "-100"):
        answer = daemon.get(f"/v1/stats?since={text}&step=60")
        assert answer["since"] <= at <= answer["until"]


def test_views_beside_the_running_daemon(start, tmp_path):
    state = str(tmp_path)
    d = start("--sample-interval", "1", state=state)
    until("samples", lambda: len(items(d, "/v1/devices/0/stats")) > 1)
    for name in ("daemon", "devices", "pools", "sessions"):
        for level in ("", "_minutes", "_hours"):
            rows = view(state, f"select at from v_{name}{level}")
            assert all(datetime.fromisoformat(at.replace("Z", "+00:00")) for (at,) in rows)
            assert rows or level
    assert view(state, "select pool, session, used_bytes from v_pools limit 1") == [("default", "", 0)]
    d.ask("POST", "/v1/sessions/default/pools", {"name": "p"}).expect(201)
    until("the pool's samples", lambda: view(state, "select 1 from v_pools where pool = 'p'"))
    assert view(state, "select distinct uuid from v_pools where device = 0") == [(d.get("/v1/devices/0")["uuid"],)]
    assert view(state, "select session, buffers, pinned_bytes from v_sessions limit 1") == [("default", 0, 0)]


def test_metrics_say_the_same(start, tmp_path):
    d = start("--sample-interval", "1", state=str(tmp_path))
    d.put("x", payload(100000)).expect(201)
    until("the upload is in the past", lambda: total(items(d), "upload_bytes") == 100000)
    lines = [line.rsplit(" ", 1) for line in d.ask("GET", "/metrics").expect(200).body.decode().splitlines()
             if line[:1] != "#"]
    metrics = {name: float(value) for name, value in lines}
    stats = d.stats()
    assert (metrics['gpubufd_transfer_bytes_total{direction="upload"}'] == stats["transfers"]["upload"]["bytes"]
            == 100000)
    assert metrics["gpubufd_buffers_bytes"] == stats["buffers"]["bytes"] == items(d)[-1]["buffer_bytes"]["last"]
    assert metrics["gpubufd_largest_allocation_bytes"] >= 100000
    pool = d.get("/v1/sessions/default/pools/default/stats")
    assert metrics['gpubufd_pool_fragmentation_bytes{pool="default",device="0"}'] == pool["fragmentation_bytes"]
    assert metrics['gpubufd_pool_used_bytes{pool="default",device="0"}'] == pool["used_bytes"]
