"""/metrics: both formats, checked by the collectors' own tools, and compared with /v1/stats."""
import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request

import pytest

from harness import PATIENCE_S, until
from ports import free_port

HERE = os.path.dirname(os.path.abspath(__file__))
RULES = os.path.join(os.path.dirname(os.path.dirname(HERE)), "etc", "prometheus")
OPEN = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"}
LINE = re.compile(r'^(\w+)(?:\{((?:\w+="[^"]*",?)+)\})? (\S+)$')


def tool(name):
    """A program of Debian's package prometheus, which ./bootstrap check puts on the path. Without it the test is
    skipped if GB_E2E_LACKING=skip."""
    path = shutil.which(name)
    if path is None and os.environ.get("GB_E2E_LACKING") == "skip":
        pytest.skip(f"{name} is not installed on this machine")
    assert path, f"{name} is not installed: ./bootstrap deps"
    return path


def run(*args, **more):
    done = subprocess.run(args, capture_output=True, text=True, timeout=PATIENCE_S, **more)
    assert done.returncode == 0, (args, done.stdout, done.stderr)
    return done.stdout + done.stderr


def scrape(daemon, headers=None):
    return daemon.ask("GET", "/metrics", None, headers).expect(200)


def samples(text):
    """{(name, labels): value}"""
    out = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = LINE.match(line).groups()
            key = name, frozenset(re.findall(r'(\w+)="([^"]*)"', labels or ""))
            assert key not in out, line
            out[key] = float(value)
    return out


def value(seen, name, **labels):
    return seen[name, frozenset(labels.items())]


def test_the_text_format(daemon):
    r = scrape(daemon)
    assert r.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert r.headers["Cache-Control"] == "no-store" and r.headers["Vary"] == "Accept"
    for accept in ("*/*", "text/plain", "application/*", "application/openmetrics-text;q=0",
                   "application/openmetrics-text;q=0.4,text/plain;q=0.5", "application/json"):
        assert scrape(daemon, {"Accept": accept}).headers["Content-Type"].startswith("text/plain"), accept
    head = daemon.ask("HEAD", "/metrics").expect(200)
    assert head.headers["Content-Type"] == r.headers["Content-Type"] and not head.body
    assert run(tool("promtool"), "check", "metrics", input=r.body.decode()) == ""


def test_openmetrics(daemon):
    r = scrape(daemon, OPEN)
    assert r.headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert scrape(daemon, {"Accept": "application/openmetrics-text"}).body.endswith(b"\n# EOF\n")
    text = r.body.decode()
    assert text.endswith("\n# EOF\n") and text.count("# EOF") == 1
    family, types = None, {}
    for line in text.splitlines()[:-1]:
        if line.startswith("# HELP "):
            family = line.split()[2]
            assert family not in types and not family.endswith("_total"), line
        elif line.startswith("# TYPE "):
            assert line.split()[2] == family
            types[family] = line.split()[3]
        elif line.startswith("# UNIT "):
            assert line.split()[2] == family and family.endswith("_" + line.split()[3]), line
        else:
            rest = LINE.match(line).group(1)[len(family):]
            assert line.startswith(family), line
            assert rest in {"counter": ("_total",), "gauge": ("",),
                            "histogram": ("_bucket", "_sum", "_count")}[types[family]], line
    for family in types:
        unit = re.search(r"_(bytes|seconds)$", family)
        assert (f"# UNIT {family} " in text) == bool(unit), family
    assert set(types.values()) == {"counter", "gauge", "histogram"}



def failures(out, name, numbers, *labels):
    """Values that the JSON leaves out are zero."""
    assert sum(numbers["failures_by_reason"].values()) == numbers.get("failures", numbers.get("allocation_failures"))
    out.update({(name, *labels, ("reason", why)): n for why, n in numbers["failures_by_reason"].items()})


def memory(out, prefix, numbers, *labels):
    for name, key in (("allocations", "count"), ("allocated_bytes", "bytes"), ("allocation_retries", "retries"),
                      ("frees", "frees"), ("freed_bytes", "freed_bytes"), ("trims", "trims")):
        out[f"{prefix}{name}_total", *labels] = numbers[key]
    out[prefix + "allocated_current_bytes", *labels] = numbers["current_bytes"]
    out[prefix + "allocated_peak_bytes", *labels] = numbers["peak_bytes"]
    failures(out, prefix + "allocation_failures_total", numbers, *labels)


def told(stats):
    """The values of /v1/stats, by the names of /metrics."""
    out = {("gpubufd_sessions",): stats["sessions"]["count"], ("gpubufd_buffers",): stats["buffers"]["count"],
           ("gpubufd_buffers_bytes",): stats["buffers"]["bytes"], ("gpubufd_lost_buffers",): stats["buffers"]["lost"],
           ("gpubufd_stored_buffers",): stats["buffers"]["stored"],
           ("gpubufd_sessions_expired_total",): stats["sessions"]["expired"],
           ("gpubufd_mirrored_buffers",): stats["buffers"]["mirrored"]["count"],
           ("gpubufd_mirrored_bytes",): stats["buffers"]["mirrored"]["bytes"],
           ("gpubufd_open_uploads_bytes",): stats["open_uploads"]["bytes"],
           ("gpubufd_fills_total",): stats["transfers"]["fill"]["count"],
           ("gpubufd_fill_bytes_total",): stats["transfers"]["fill"]["bytes"], ("gpubufd_mirror_copies_total",):
           stats["transfers"]["mirror"]["copies"],
           ("gpubufd_mirror_copies_avoided_total",): stats["transfers"]["mirror"]["copies_avoided"],
           ("gpubufd_mirror_copy_bytes_total",): stats["transfers"]["mirror"]["bytes"],
           ("gpubufd_store_commit_seconds_total",): stats["store"]["seconds_committing"],
           ("gpubufd_store_commit_longest_seconds",): stats["store"]["longest_commit_seconds"],
           ("gpubufd_store_queue_seconds_total",): stats["store"]["seconds_queued"],
           ("gpubufd_store_queue_longest_seconds",): stats["store"]["longest_queued_seconds"],
           ("gpubufd_idempotency_keys",): stats["idempotency"]["keys"],
           ("gpubufd_idempotency_keys_running",): stats["idempotency"]["under_way"],
           ("gpubufd_idempotency_replays_total",): stats["idempotency"]["replays"]}
    memory(out, "gpubufd_", stats["allocations"])
    out["gpubufd_largest_allocation_bytes",] = stats["allocations"]["largest_bytes"]
    for kind, numbers in stats["allocations_by_kind"].items():
        memory(out, "gpubufd_kind_", numbers, ("kind", kind))
        out["gpubufd_kind_largest_allocation_bytes", ("kind", kind)] = numbers["largest_bytes"]
    for name in ("leases", "held_bytes", "adopted"):
        out["gpubufd_" + name,] = stats["sharing"][name]
    for name in ("maps", "unmaps"):
        out[f"gpubufd_{name}_total",] = stats["sharing"][name]
    for name in ("uploads", "downloads", "writes"):
        out[f"gpubufd_{name}_running",] = stats["running"][name]
    for name in ("commits", "changes", "failures"):
        out[f"gpubufd_store_{name}_total",] = stats["store"][name]
    out.update({("gpubufd_pinned_bytes",): stats["pinned"]["bytes"],
                ("gpubufd_pinned_limit_bytes",): stats["pinned"]["limit_bytes"]})
    slots = stats["slots"]
    out.update({("gpubufd_slots",): slots["total"], ("gpubufd_slots_free",): slots["free"],
                ("gpubufd_slot_bytes",): slots["slot_bytes"], ("gpubufd_slot_waits_total",): slots["waits"],
                ("gpubufd_slots_in_use",): slots["in_use"], ("gpubufd_slots_wanted",): slots["waiting"],
                ("gpubufd_store_queued",): stats["store"]["queued"]})
    for state, count in stats["operations"].items():
        out["gpubufd_operations", ("state", state)] = count
    for direction in ("upload", "download", "copy"):
        t, label = stats["transfers"][direction], ("direction", direction)
        for name, key in (("transfers", "count"), ("transfer_bytes", "bytes"),
                          ("transfer_copy_seconds", "seconds_copying"), ("transfer_queue_seconds", "seconds_queued"),
                          ("transfer_seconds", "seconds")):
            if key in t:
                out[f"gpubufd_{name}_total", label] = t[key]
        if "failures" in t:
            failures(out, "gpubufd_transfer_failures_total", t, label)
        for kind, k in t.get("kinds", {}).items():
            for name, key in (("", "count"), ("_bytes", "bytes"), ("_copy_seconds", "seconds_copying"),
                              ("_queue_seconds", "seconds_queued")):
                out["gpubufd_kind_transfer" + (name or "s") + "_total", label, ("kind", kind)] = k[key]
    for p in stats["pools"]:
        where = (*((("session", p["session"]),) if "session" in p else ()), ("pool", p["name"]),
                 ("device", str(p["device"]["index"])))
        for name in ("used_bytes", "used_peak_bytes", "reserved_bytes", "reserved_peak_bytes", "kept_bytes", "buffers"):
            out["gpubufd_pool_" + name, *where] = p[name]
        for name, key in (("allocations",) * 2, ("reuses",) * 2, ("growths",) * 2, ("allocated_bytes",) * 2,
                          ("allocation_retries", "retries"), ("frees",) * 2, ("freed_bytes",) * 2, ("trims",) * 2):
            out[f"gpubufd_pool_{name}_total", *where] = p[key]
        out["gpubufd_pool_largest_allocation_bytes", *where] = p["largest_bytes"]
        failures(out, "gpubufd_pool_allocation_failures_total", p, *where)
    return {(name, frozenset(labels)): v for (name, *labels), v in out.items()}


def test_it_says_what_the_statistics_say(start):
    d = start()
    d.put("x", b"abcd" * 1000).expect(201)
    d.data("x").expect(200)
    d.put("m", b"abcd", query="?mirrored=true").expect(201)
    d.ask("POST", "/v1/sessions/default/buffers/x/fill", {"pattern": 1}).expect(200)
    d.ask("POST", "/v1/sessions/default/buffers/y/copy", {"from": "x"}).expect(201)
    d.ask("POST", "/v1/sessions/default/pools", {"name": "p"}).expect(201)
    d.put("z", b"abcd", query="?pool=p").expect(201)
    d.settled()
    differs = []

    def agree():
        # Both may be some tenths of a second old, but the values no longer change.
        one, seen = told(d.stats()), samples(scrape(d).body.decode())
        # A counter that has counted nothing has no series, and a peak that is 0.
        differs[:] = [(k, v, seen.get(k)) for k, v in one.items() if (k not in seen and v != 0)
                      or abs(seen.get(k, 0) - v) > 1e-6]
        return not differs

    try:
        until("the two agree", agree)
    except AssertionError:
        raise AssertionError(differs) from None
    seen = samples(scrape(d).body.decode())
    assert value(seen, "gpubufd_buffers") == 4 and value(seen, "gpubufd_transfers_total", direction="upload") == 3
    assert value(seen, "gpubufd_fill_bytes_total") == 4000
    # Numbers of the daemon and its pools that are not compared here are missing in /v1/stats.
    more = {name for name, _ in seen} - {name for name, _ in told(d.stats())}
    known = (r"process_|gpubufd_(audit|damaged|http|tls|device|session|client|storage|durable|disk|load|loads|cold|"
             r"evictions|spill|reloads|scrub|behind|evictable)_|gpubufd_stored_bytes$|gpubufd_clients(_pausing)?$|"
             r"gpubufd_(tables|links)(_bytes)?$|gpubufd_(keeper_up|kept(_bytes|_found|_left_out_total)?)$|"
             r"gpubufd_loads_total$|gpubufd_pool_(limit|fragmentation)_bytes$|"
             r"gpubufd_store_((queue|commit)_duration_|writable$)|gpubufd_(adopted_limit_bytes|build_info)$")
    assert all(re.match(known, name) or name.endswith("_failures_total") for name in more), more


IDLE_BYTES = 21 << 10


@pytest.mark.parametrize("form", [None, OPEN], ids=["text", "openmetrics"])
def test_an_idle_daemon_says_little(start, form):
    """What nothing has happened to has no series. Counters of which a rule or a dashboard takes the increase begin at
    0."""
    d = start()
    scrape(d, form)
    text = until("the scrape is counted", lambda: (lambda t: t if 'route="/metrics"' in t
                                                   else None)(scrape(d, form).body.decode()))
    if form is None:
        assert len(text) <= IDLE_BYTES, len(text)
    there = {name for name, _ in samples(text.replace("# EOF\n", ""))}
    assert "gpubufd_fills_total" not in there and "gpubufd_kind_trims_total" not in there
    with open(os.path.join(RULES, "rules.yml")) as f:
        counters = set(re.findall(r"\b(?:increase|rate|delta)\((gpubufd_\w+_total)", f.read()))
    assert len(counters) >= 4 and counters <= there, counters - there


def test_labels_are_bounded(daemon, session):
    daemon.ask("POST", f"/v1/sessions/{session}/pools", {"name": "mine", "max_bytes": 64 << 20}).expect(201)
    for i in range(20):
        daemon.put(f"secret-name-{i}", b"abcd", session, "?pool=mine").expect(201)

    def settled():
        text = scrape(daemon).body.decode()
        seen = samples(text)
        mine = dict(session=session, pool="mine", device="0")
        return text if seen.get(("gpubufd_pool_buffers", frozenset(mine.items()))) == 20 else None

    text = until("the pool is shown", settled)
    assert "secret-name" not in text
    seen = samples(text)
    assert value(seen, "gpubufd_pool_limit_bytes", session=session, pool="mine", device="0") >= 64 << 20
    own = [dict(labels) for name, labels in seen if name == "gpubufd_pool_buffers" and "session" not in dict(labels)]
    assert len(own) == len([p for p in daemon.stats()["pools"] if "session" not in p])
    device = daemon.get("/v1/devices/0")
    assert value(seen, "gpubufd_device_total_bytes", device="0") == device["total_bytes"]


def test_times_by_route(start):
    d = start()
    for i in range(7):
        d.get("/v1/sessions/default")
    d.ask("GET", "/v1/sessions/none").expect(404)
    d.ask("GET", "/no/such/route").expect(404)
    d.put("large", b"x" * (6 << 20)).expect(201)
    one = dict(method="GET", route="/v1/sessions/{session}")
    put = dict(method="PUT", route="/v1/sessions/{session}/buffers/{buffer}/data")
    count = "gpubufd_http_request_duration_seconds_count", frozenset(one.items())

    def ended():
        seen = samples(scrape(d).body.decode())
        whole = (seen.get(count) == 8 and ("gpubufd_http_responses_total", frozenset({**put, "status": "2xx"}.items()))
                 in seen)
        return seen if whole else None

    seen = until("all have ended", ended)
    assert value(seen, "gpubufd_http_responses_total", status="2xx", **one) == 7
    assert value(seen, "gpubufd_http_responses_total", status="4xx", **one) == 1
    assert value(seen, "gpubufd_http_responses_total", status="4xx", method="", route="") == 1
    assert value(seen, "gpubufd_http_responses_total", status="2xx", **put) == 1
    rising = [value(seen, "gpubufd_http_request_duration_seconds_bucket", le=le, **one) for le in
              "0.0001 0.0003 0.001 0.003 0.01 0.03 0.1 0.3 1.0 3.0 10.0 30.0 100.0 +Inf".split()]
    assert rising == sorted(rising) and rising[-1] == 8
    assert value(seen, "gpubufd_http_request_duration_seconds_sum", **one) > 0


def test_the_process(daemon):
    seen = samples(scrape(daemon).body.decode())
    pid = daemon.process.pid
    assert value(seen, "process_open_fds") >= 3 and value(seen, "process_cpu_seconds_total") > 0
    with open(f"/proc/{pid}/limits") as f:
        soft = re.search(r"Max open files\s+(\d+)", f.read()).group(1)
    assert value(seen, "process_max_fds") == int(soft)
    assert 0 < value(seen, "process_resident_memory_bytes") <= value(seen, "process_virtual_memory_bytes")
    assert abs(value(seen, "process_start_time_seconds") - os.stat(f"/proc/{pid}").st_mtime) < 24 * 3600


def test_the_rules():
    promtool = tool("promtool")
    run(promtool, "check", "rules", os.path.join(RULES, "rules.yml"))
    run(promtool, "test", "rules", "rules_test.yml", cwd=RULES)
    run(promtool, "check", "config", os.path.join(RULES, "prometheus.yml"))


# What the row "Contents" of the dashboard and the rules tell of bytes on disk.
CONTENTS = {"allocated_current_bytes", "stored_bytes", "evictable_bytes", "storage_free_bytes", "storage_state",
            "storage_failures_total", "storage_damaged_total", "durable_writes_total", "durable_bytes_total",
            "loads_total", "load_bytes_total", "load_failures_total", "cold_reads_total", "disk_write_seconds_bucket",
            "disk_sync_seconds_bucket", "disk_open_seconds_bucket", "behind_bytes", "behind_seconds", "evictions_total",
            "evictions_to_host_total", "loads_from_host_total", "spill_host_bytes", "reloads_within_minute_total",
            "scrub_bytes_total", "scrub_damaged_total", "scrub_healed_total"}


def names_of_what_may_come():
    """From the list: simulated devices have no health (test_health compares the list with a device that has), and
    counters and times have no series before they have a value."""
    with open(os.path.join(os.path.dirname(RULES), "..", "src", "api", "metrics.def")) as f:
        text = f.read()
    kinds = {"COUNTER": "_total", "FROM_ZERO": "_total", "GAUGE": "", "PEAK": ""}
    health = re.findall(r"^GB_METRIC\((?:HEALTH|REASON), (\w+), (\w+),", text, re.M)
    later = re.findall(r"^GB_METRIC\(\w+, (COUNTER|PEAK), (\w+),", text, re.M)
    times = re.findall(r"^GB_TIMES\((\w+),", text, re.M)
    return {f"gpubufd_{name}{kinds[kind]}" for kind, name in health + later} | {f"gpubufd_{name}_bucket"
                                                                                for name in times}


def test_rules_and_dashboard_name_what_there_is(daemon, tmp_path):
    promtool = tool("promtool")  # without it the files of etc may be missing as well
    with open(os.path.join(RULES, "rules.yml")) as f:
        asked = [re.sub(r"name: \w+|gpubufd:\S+", "", f.read())]
    with open(os.path.join(os.path.dirname(RULES), "grafana", "gpubufd.json")) as f:
        dashboard = json.load(f)
    panels = [p for p in dashboard["panels"] if p["type"] != "row"]
    assert len({p["id"] for p in dashboard["panels"]}) == len(dashboard["panels"])
    assert ({v["name"]: v.get("multi", False) and v["includeAll"] for v in dashboard["templating"]["list"]}
            == {"source": False, "instance": True})
    queries = [t["expr"] for p in panels for t in p["targets"]]
    for q in queries:
        picked = re.findall(r'\b(?:gpubufd|process)_\w+({instance=~"\$instance"[,}])?', q)
        assert picked and all(picked), q
    health = {f"gpubufd_device_{x}" for x in ("temperature_celsius", "power_watts", "utilization_ratio", "clock_event",
                                              "ecc_corrected_errors_total", "ecc_uncorrected_errors_total")}
    assert health <= set(re.findall(r"\bgpubufd_\w+", " ".join(queries)))
    rows = [i for i, p in enumerate(dashboard["panels"]) if p["type"] == "row" and p["title"] == "Contents"]
    contents = " ".join(t["expr"] for p in dashboard["panels"][rows[0] + 1:] for t in p["targets"])
    assert {f"gpubufd_{x}" for x in CONTENTS} == set(re.findall(r"\bgpubufd_\w+", contents))
    assert len(panels) >= 8 and all(re.search(r"\b(gpubufd|process)_\w+", q) for q in queries)
    named = set(re.findall(r"\b(?:gpubufd|process)_\w+", " ".join(asked + queries)))
    daemon.get("/v1")
    there = until("a request has ended", lambda: (lambda n: n if any("duration" in x for x in n) else None)(
        {name for name, _ in samples(scrape(daemon).body.decode())}))
    there = there | names_of_what_may_come()
    assert len(named) >= 20 and named <= there, named - there
    rules = [{"record": "q", "expr": q.replace("$__rate_interval", "5m"), "labels": {"n": str(i)}} for i,
             q in enumerate(queries)]
    (tmp_path / "queries.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    run(promtool, "check", "rules", str(tmp_path / "queries.yml"))


def test_a_prometheus_server_scrapes_it(daemon, session, tmp_path):
    program, port = tool("prometheus"), free_port()
    daemon.put("x", b"x" * 12345, session).expect(201)
    host, own = daemon.tcp
    (tmp_path / "p.yml").write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [
        {"job_name": "gpubufd", "static_configs": [{"targets": [f"{host}:{own}"]}]}]}))

    def query(expression):
        url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as r:
                found = json.load(r)["data"]["result"]
        except OSError:  # it is starting, or not ready
            return None
        return float(found[0]["value"][1]) if found else None

    def begin():
        with open(tmp_path / "log", "wb") as log:
            return subprocess.Popen([program, f"--config.file={tmp_path}/p.yml", f"--storage.tsdb.path={tmp_path}/data",
                                     f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)

    def right():
        assert server.poll() is None, (tmp_path / "log").read_text()
        return query("gpubufd_buffers_bytes") == wanted

    wanted = daemon.stats()["buffers"]["bytes"]
    server = begin()
    try:
        until("its number is the daemon's", right, every_s=0.2)
        assert query('up{job="gpubufd"}') == 1
        # Prometheus requests OpenMetrics, so that an unreadable document would have given no samples at all.
        assert query('count(gpubufd_kind_transfers_total{direction="upload",kind="device"})') == 1
    finally:
        server.kill()
        server.wait(PATIENCE_S)
