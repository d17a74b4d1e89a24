"""Observing the daemon: idle connections, listeners, long polls, sampling, scrapes and history."""
import http.client
import json
import os
import sqlite3
import statistics
import tempfile
import time

from . import measure, servers
from .cases import KIB, MIB, Case
from .listeners import Listeners
from .measure import Side
from .servers import BUFFERS

DAY = 86400
POOLS = 100
JSON = {"Content-Type": "application/json"}


class Asker:
    """One connection to a server, kept open. Replies are read whole and must be 2xx."""

    def __init__(self, port):
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method, path, body=None, headers=()):
        self.http.request(method, path, None if body is None else json.dumps(body),
                          {**(JSON if body else {}), **dict(headers)})
        reply = self.http.getresponse()
        data = reply.read()
        if reply.status >= 300:
            raise measure.TurnFailed(f"{method} {path} is answered with {reply.status}: {data[:200]!r}")
        return reply, data

    def json(self, path):
        return json.loads(self.ask("GET", path)[1])

    def timed_ms(self, path):
        began = time.perf_counter()
        data = self.ask("GET", path)[1]
        return 1000 * (time.perf_counter() - began), data


class Idle(Case):
    """Idle keep-alive connections: the memory of each, and the rate of polls beside them. Each round has a fresh
    daemon, because used memory is not always returned to the system."""

    mode = "idle"
    unit = "KiB"
    lower_is_better = True
    idle = 4000

    def run(self, settings, notes):
        side = None
        for _ in range(min(settings.rounds, 3)):
            with self.started(settings, [servers.Daemon], notes) as running:
                for server in running.values():
                    side = side or Side("ours", server, None, "kib_per_connection")
                    result = measure.load(settings, ["idle"] + server.poll_target()[1:] + [
                        "--connections", 64, "--seconds", 1, "--idle", self.idle, "--pid", server.process.pid])
                    result["kib_per_connection"] = result["bytes_per_connection"] / KIB
                    result["polls_kept"] = result["with"]["requests_per_s"] / result["without"]["requests_per_s"]
                    result["server_cpu_s"] = 0
                    side.turns.append(result)
                    if result["errors"] or result["still_open"] < self.idle:
                        side.failure = f"{result['errors']} errors, {result['still_open']} of {self.idle} left open"
        return [side] if side else []

    def extra(self, ours):
        return {"polls kept beside them": ours.median("polls_kept")}


class Records(Case):
    """90,000 buffers without bytes: the resident memory of each, in a core of its own (gb-bench-buffers)."""

    mode = "records"
    unit = "bytes"
    lower_is_better = True
    buffers = 90000

    def run(self, settings, notes):
        side = Side("ours", None, None, "bytes_per_buffer")
        for _ in range(min(settings.rounds, 3)):
            with tempfile.TemporaryDirectory() as folder:
                result = measure.run_program([settings.program("gb-bench-buffers"), folder, self.buffers, 0])
            side.turns.append({**result, "bytes": 0, "errors": 0, "server_cpu_s": 0})
        return [side]

    def extra(self, ours):
        return {}


class Feed(Case):
    """Listeners of /v1/feed while events occur. Each turn has a fresh server, because used memory is not always
    returned to the system."""

    unit = "core"
    lower_is_better = True
    listeners = 5000
    rate = 10
    seconds = 8

    def need_bytes(self):
        return 1024 * MIB

    def events(self, asker, listeners):
        """Causes events; returns the time until each reached the last listener, in ms."""
        made = []
        began = time.monotonic()
        for i in range(self.rate * self.seconds):
            time.sleep(max(0, began + i / self.rate - time.monotonic()))
            made.append(time.monotonic())
            if i % 2:
                asker.ask("DELETE", BUFFERS + "/event")
            else:
                asker.ask("POST", BUFFERS, {"name": "event", "bytes": 1})
        if not listeners.wait(len(made) * self.listeners):
            raise measure.TurnFailed(f"{listeners.seen} of {len(made) * self.listeners} events came")
        while len(listeners.rounds) < len(made):
            time.sleep(0.001)
        return [1000 * (there - then) for there, then in zip(listeners.rounds, made)]

    def turn(self, server):
        ours = server.name == "gpubufd"
        asker = Asker(server.port)
        for i in range(200 if ours else 0):  # memory that the first requests need does not count for the listeners
            asker.ask("POST", BUFFERS, {"name": "event", "bytes": 1})
            asker.ask("DELETE", BUFFERS + "/event")
        time.sleep(1)
        before = server.memory_bytes()
        request = b"GET /v1/feed?type=buffer. HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with Listeners(server.port, self.listeners, request, b"\nevent:") as listeners:
            listeners.heads(b"HTTP/1.1 200")
            time.sleep(0.5)
            cpu = server.cpu_s()
            time.sleep(2)
            idle = (server.cpu_s() - cpu) / 2
            listeners.begin()
            cpu, began = server.cpu_s(), time.monotonic()
            took = self.events(asker, listeners) if ours else time.sleep(self.seconds)
            seconds = time.monotonic() - began
            return {"errors": listeners.closed, "problem": "listeners were sent away", "seconds": seconds,
                    "core": (server.cpu_s() - cpu) / seconds, "idle_core": idle, "added_bytes": server.memory_bytes()
                    - before, "events": listeners.seen / self.listeners,
                    "event_bytes": listeners.bytes / max(1, listeners.seen), "worst_ms": max(took) if ours else 0,
                    "median_ms": statistics.median(took) if ours else 0, "server_cpu_s": 0}

    def run(self, settings, notes):
        sides = {}
        self.event_bytes = 256
        for _ in range(min(settings.rounds, 3)):
            for kind, name in ((servers.Daemon, "ours"), (servers.Fan, "raw")):
                with self.started(settings, [kind], notes) as running:
                    for server in running.values():
                        side = sides.setdefault(name, Side(name, server, None, "core"))
                        result = self.turn(server)
                        side.turns.append(result)
                        if name == "ours":
                            self.event_bytes = int(result["event_bytes"])
                        if result["errors"]:
                            side.failure = f"{result['errors']} listeners were sent away"
        return list(sides.values())

    def extra(self, ours):
        added = ours.median("added_bytes")
        return {"events a second": ours.median("events") / ours.median("seconds"), "MiB added": added / MIB,
                "KiB a listener": added / self.listeners / KIB, "core without events": ours.median("idle_core"),
                "ms to the last listener": ours.median("median_ms"), "the slowest": ours.median("worst_ms")}


class Wait(Case):
    """Long polls (Prefer: wait with If-None-Match): the memory of each, the rate of polls beside them, and the time
    until all of them have the change."""

    unit = "KiB"
    lower_is_better = True
    parked = 2000

    def polls(self, settings, server):
        return measure.load(settings, server.poll_target() + ["--connections", 64, "--seconds", 1])["requests_per_s"]

    def cpu_beside(self, server, seconds, work=None):
        """The share of a core used during the time, with work ten times a second."""
        cpu, began = server.cpu_s(), time.monotonic()
        for i in range(10 * seconds):
            if work:
                work(i)
            time.sleep(max(0, began + (i + 1) / 10 - time.monotonic()))
        return (server.cpu_s() - cpu) / (time.monotonic() - began)

    def turn(self, settings, server):
        asker = Asker(server.port)
        server.make_buffer("watched", KIB)
        server.make_buffer("other", KIB)
        tag = asker.ask("GET", BUFFERS + "/watched")[0].headers["ETag"]

        def change(i, name="other"):
            asker.ask("PATCH", f"{BUFFERS}/{name}", {"labels": {"a": str(i)}})

        alone = [self.polls(settings, server)]
        before = server.memory_bytes()
        request = (f"GET {BUFFERS}/watched HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=60\r\nIf-None-Match: "
                   f"{tag}\r\n\r\n")
        with Listeners(server.port, self.parked, request.encode(), b"HTTP/1.1 200") as listeners:
            listeners.begin()
            time.sleep(1)
            result = {"kib": (server.memory_bytes() - before) / self.parked / KIB,
                      "idle_core": self.cpu_beside(server, 2), "changes_core": self.cpu_beside(server, 2, change)}
            beside = [self.polls(settings, server) for _ in range(2)]
            if listeners.seen or listeners.closed:
                raise measure.TurnFailed(f"{listeners.seen} were answered and {listeners.closed} closed before the "
                                         "change")
            began = time.monotonic()
            change(0, "watched")
            if not listeners.wait(self.parked):
                raise measure.TurnFailed(f"{listeners.seen} of {self.parked} got the change")
            result["told_ms"] = 1000 * (time.monotonic() - began)
        alone.append(self.polls(settings, server))
        return {**result, "errors": 0, "kept": sum(beside) / sum(alone), "server_cpu_s": 0}

    def run(self, settings, notes):
        side = None
        for _ in range(min(settings.rounds, 3)):
            with self.started(settings, [servers.Daemon], notes) as running:
                for server in running.values():
                    side = side or Side("ours", server, None, "kib")
                    side.turns.append(self.turn(settings, server))
        return [side] if side else []

    def extra(self, ours):
        return {"polls kept beside them": ours.median("kept"), "ms until all have the change": ours.median("told_ms"),
                "core while nothing happens": ours.median("idle_core"), "core beside 10 changes a second":
                ours.median("changes_core")}


def fill_pools(server, buffers):
    """Makes pools with a number of buffers in each."""
    asker = Asker(server.port)
    session = BUFFERS.rsplit("/", 1)[0]
    for i in range(POOLS):
        asker.ask("POST", session + "/pools", {"name": f"p{i}"})
        operations = [{"op": "create", "buffer": f"b{i}.{k}", "bytes": 64, "pool": f"p{i}"} for k in range(buffers)]
        if operations:
            asker.ask("POST", session + "/batch", {"operations": operations})
    return asker


class Watch(Case):
    """The cost of sampling and scrapes with 10,000 buffers in 100 pools: the CPU time of a daemon with both, against
    one with neither. Both are idle otherwise."""

    unit = "% core"
    lower_is_better = True
    seconds = 30
    scrape_every_s = 15  # as in etc/prometheus

    def turn(self, with_, without, asker):
        cpu = [s.cpu_fine_s() for s in (with_, without)]
        began = time.monotonic()
        for i in range(self.seconds // self.scrape_every_s):
            time.sleep(max(0, began + (i + 0.5) * self.scrape_every_s - time.monotonic()))
            asker.ask("GET", "/metrics")
        time.sleep(max(0, began + self.seconds - time.monotonic()))
        share = [100 * (s.cpu_fine_s() - c) / (time.monotonic() - began) for s, c in zip((with_, without), cpu)]
        # Scrapes are far apart, so that none gets the cached reply of another.
        scrapes = []
        for _ in range(20):
            time.sleep(0.25)
            scrapes.append(asker.timed_ms("/metrics"))
        took = [t for t, _ in scrapes]
        return {"percent": share[0] - share[1], "idle_percent": share[1], "scrape_ms": statistics.median(took),
                "scrape_worst_ms": max(took), "scrape_bytes": len(scrapes[-1][1]), "errors": 0, "server_cpu_s": 0}

    def run(self, settings, notes):
        kinds = [servers.Daemon, servers.DaemonUnsampled]
        with self.started(settings, kinds, notes) as running:
            if len(running) < len(kinds):
                return []
            with_, without = running.values()
            askers = [fill_pools(server, 100) for server in (with_, without)]
            buffers = json.loads(askers[0].ask("GET", "/v1/stats")[1])["buffers"]["count"]
            if buffers != 100 * POOLS:
                raise measure.TurnFailed(f"{buffers} buffers were made")
            time.sleep(3)
            side = Side("ours", with_, None, "percent")
            for _ in range(min(settings.rounds, 3)):
                side.turns.append(self.turn(with_, without, askers[0]))
        return [side]

    def extra(self, ours):
        return {"ms of a scrape": ours.median("scrape_ms"), "the slowest": ours.median("scrape_worst_ms"),
                "KiB of it": ours.median("scrape_bytes") / KIB, "% core with neither": ours.median("idle_percent")}


class History(Case):
    """Thirty days of history of each pool, queried once each from a freshly started daemon. The database is filled as
    it would be after that time."""

    unit = "ms"
    lower_is_better = True
    daemon_args = ["--max-pools", "200", "--minutes-max", "2000000"]
    month = "since=-2592000"
    week = "since=-604700&step=600"  # minutes: the most rows that one reply reads

    def need_bytes(self):
        return 1536 * MIB

    def fill(self, path):
        """Inserts rows of minutes for a week, and of hours for thirty days."""
        db = sqlite3.connect(path)
        db.execute("PRAGMA synchronous = OFF")
        now = int(time.time())
        for table, period, keep in (("history_minutes", 60, 7 * DAY), ("history_hours", 3600, 30 * DAY)):
            names = [name for (name,) in db.execute(f"SELECT name FROM pragma_table_info('{table}')")]
            gauges = [name for name in names if name.startswith(("used_", "reserved_"))]
            columns = ["series", "at_us", "samples", *gauges, "allocations", "frees", "allocation_failures"]
            values = ["s.id", f"t.value * {period * 1000000}", str(period // 10), *["t.value % 1000000"] * len(gauges),
                      "1", "2", "0"]
            db.execute(f"WITH RECURSIVE t(value) AS (SELECT {(now - keep) // period} UNION ALL SELECT value + 1 FROM t"
                       f" WHERE value < {now // period - 1}) INSERT OR REPLACE INTO {table}({', '.join(columns)})"
                       f" SELECT {', '.join(values)} FROM history_series AS s, t")
        db.execute("UPDATE history_series SET minutes_until_us = ?, hours_until_us = ?",
                   (now // 60 * 60000000, now // 3600 * 3600000000))
        db.commit()
        rows = sum(db.execute(f"SELECT count(*) FROM history_{t}").fetchone()[0] for t in ("minutes", "hours"))
        db.close()
        return rows

    def ask(self, asker, query):
        took, points = [], set()
        for i in range(POOLS):
            ms, data = asker.timed_ms(f"/v1/sessions/default/pools/p{i}/stats?{query}")
            took.append(ms)
            points.add(len(json.loads(data)["items"]))
        if min(points) < 200:
            raise measure.TurnFailed(f"the history has {min(points)} points")
        return took

    def turn(self, server):
        server.restart()
        asker = Asker(server.port)
        month, week = self.ask(asker, self.month), self.ask(asker, self.week)
        return {"ms": statistics.median(month), "first_ms": month[0], "worst_ms": max(month),
                "week_ms": statistics.median(week), "week_worst_ms": max(week), "errors": 0, "server_cpu_s": 0}

    def run(self, settings, notes):
        with self.started(settings, [servers.Daemon], notes) as running:
            if not running:
                return []
            server = running["gpubufd"]
            fill_pools(server, 0)
            database = os.path.join(server.state(), "gpubufd.db")
            self.wait_for_series(database)
            server.end()
            rows = self.fill(database)
            notes.append(f"{self.key}: the database has {rows:,} rows of history, {os.path.getsize(database) // MIB} "
                         "MiB")
            side = Side("ours", server, None, "ms")
            for _ in range(min(settings.rounds, 3)):
                side.turns.append(self.turn(server))
        return [side]

    def wait_for_series(self, database):
        """The first sample of every pool is committed."""
        end = time.monotonic() + 60
        count = 0
        while count < POOLS:
            if time.monotonic() > end:
                raise measure.TurnFailed(f"{count} of {POOLS} pools were sampled in a minute")
            time.sleep(0.5)
            db = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
            count = db.execute("SELECT count(*) FROM history_series WHERE scope = 'pool'").fetchone()[0]
            db.close()

    def extra(self, ours):
        return {"the first": ours.median("first_ms"), "the slowest": ours.median("worst_ms"),
                "a week by minutes": ours.median("week_ms"), "its slowest": ours.median("week_worst_ms")}


def watch_cases():
    yield Idle("idle", "idle connection, 4,000 held", {"ours": 40, "polls kept beside them": 0.95})
    yield Records("records", "metadata of a buffer, 90,000 of them", {"ours": 1024})
    yield Feed("feed", "5,000 listeners of the feed, 10 events a second", {"ours": 1}, limits={"MiB added": 64})
    yield Wait("wait", "one of 2,000 GETs that wait for a change", {"ours": 40, "polls kept beside them": 0.95})
    yield Watch("watch", "sampling and scrapes, 10,000 buffers, 100 pools", {"ours": 1}, limits={"ms of a scrape": 20},
                daemon_args=["--max-pools", "200"])
    yield History("history", "thirty days of one of 100 pools", {"ours": 50})
