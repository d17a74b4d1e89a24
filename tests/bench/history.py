#!/usr/bin/env python3
"""What the past costs: a question over thirty days for 100 pools, and sampling with 10,000 buffers in 100 pools.

history.py GPUBUFD [--cpu SECONDS]: fills a database with thirty days, asks a daemon for them, prints milliseconds; with --cpu, how much of a core sampling
takes at the default interval against none."""
import argparse
import json
import os
import sqlite3
import subprocess
import tempfile
import time
import urllib.request

DAY = 86400
POOLS = 100


class Daemon:
    def __init__(self, program, state, *options):
        self.process = subprocess.Popen([program, "--listen", "127.0.0.1:0", "--socket", "none", "--backend", "host", "--state-dir", state,
                                         "--max-pools", "200", *options], stderr=subprocess.DEVNULL)
        while not os.path.exists(f"{state}/listen") or not open(f"{state}/listen").read().strip():
            time.sleep(0.05)
        self.address = "http://" + open(f"{state}/listen").read().split()[0]

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)

    def cpu_s(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def fill(state):
    db = sqlite3.connect(f"{state}/gpubufd.db")
    db.execute("pragma synchronous = off")
    now = int(time.time())
    for table, period, keep in (("history_minutes", 60, 30 * DAY), ("history_hours", 3600, 30 * DAY)):
        gauges = [c for (c,) in db.execute(f"select name from pragma_table_info('{table}')") if c.startswith(("used_", "reserved_"))]
        columns = ", ".join(["series", "at_us", "samples", *gauges, "allocations", "frees", "allocation_failures"])
        values = ", ".join(["s.id", f"t.value * {period * 1000000}", str(period // 10), *["t.value % 1000000"] * len(gauges), "1", "2", "0"])
        db.execute(f"with recursive t(value) as (select {(now - keep) // period} union all select value + 1 from t"
                   f" where value < {now // period - 1}) insert or replace into {table}({columns}) select {values} from history_series as s, t")
    db.execute(f"update history_series set minutes_until_us = {now // 60 * 60000000}, hours_until_us = {now // 3600 * 3600000000}")
    db.commit()
    rows = [db.execute(f"select count(*) from history_{t}").fetchone()[0] for t in ("minutes", "hours")]
    db.close()
    return rows


def timed(daemon, path, times=20):
    took = []
    for _ in range(times):
        began = time.perf_counter()
        answer = daemon.ask(path)
        took.append((time.perf_counter() - began) * 1000)
    took.sort()
    return took[0], took[len(took) // 2], took[-1], answer


def thirty_days(program):
    with tempfile.TemporaryDirectory() as state:
        d = Daemon(program, state, "--sample-interval", "1", "--minutes-max", "100000000")
        for i in range(POOLS):
            d.ask("/v1/sessions/default/pools", {"name": f"p{i}"})
        time.sleep(3)
        d.stop()
        rows = fill(state)
        size = os.path.getsize(f"{state}/gpubufd.db") / 2**20
        print(f"{rows[0]} minutes, {rows[1]} hours of {POOLS} pools and more: {size:.0f} MiB")
        d = Daemon(program, state, "--minutes-max", "100000000")
        for what in ("/v1/sessions/default/pools/p50/stats", "/v1/stats", "/v1/devices/0/stats"):
            for query in ("since=-2592000", "since=-2592000&step=3600", "since=-2592000&step=2000", "since=-604700&step=600"):
                first = timed(d, f"{what}?{query}", 1)[0]
                best, middle, worst, answer = timed(d, f"{what}?{query}")
                print(f"{what}?{query}: first {first:.1f} ms, then {best:.1f} to {worst:.1f} ms, half below {middle:.1f} ms; {len(answer['items'])} points of "
                      f"{answer['source']}")
        d.stop()


def cost(program, seconds):
    for interval in ("0", "10"):
        with tempfile.TemporaryDirectory() as state:
            d = Daemon(program, state, "--sample-interval", interval)
            for i in range(POOLS):
                d.ask("/v1/sessions/default/pools", {"name": f"p{i}"})
                d.ask("/v1/sessions/default/batch", {"operations": [{"op": "create", "buffer": f"b{i}.{k}", "bytes": 64, "pool": f"p{i}"}
                                                                    for k in range(100)]})
            time.sleep(2)
            before = d.cpu_s()
            time.sleep(seconds)
            print(f"--sample-interval {interval}: {(d.cpu_s() - before) / seconds * 100:.2f} percent of a core, "
                  f"{d.ask('/v1/stats')['buffers']['count']} buffers")
            d.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--cpu", type=float, default=0)
    arguments = parser.parse_args()
    thirty_days(arguments.program)
    if arguments.cpu:
        cost(arguments.program, arguments.cpu)
