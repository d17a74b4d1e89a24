"""Durable uploads, against what they promise: a raw socket that writes, syncs and commits, and the disk itself.

All sides write new files of the same size into the same file system, turn by turn. Behind each turn its files are
deleted, and the disk rests."""
import contextlib
import os
import re
import subprocess
import time

from . import measure, others, servers
from .cases import KIB, MIB, Case
from .measure import Side
from .servers import BUFFERS, GIB, Server
from .watching import Asker

IN_MEMORY = ("tmpfs", "ramfs")


def file_system(path):
    """(type, device) of the mount that has the path."""
    best = ("", "unknown", "")
    with open("/proc/self/mountinfo") as f:
        for line in f:
            fields, tail = line.split(" - ")
            at = fields.split()[4].replace("\\040", " ")
            if (path + "/").startswith(at.rstrip("/") + "/") and len(at) >= len(best[0]):
                best = (at, *tail.split()[:2])
    return best[1:]


def describe(settings, case, notes):
    """Says where the files are and what that disk is, before the first case and in the notes of each."""
    kind, device = file_system(os.path.realpath(settings.data))
    if kind in IN_MEMORY:
        raise measure.TurnFailed(f"{settings.data} is {kind}, which says nothing of a disk: --data DIR names a folder "
                                 "on one")
    if not hasattr(settings, "disk"):
        p = measure.run_program([settings.program("gb-bench-disk"), "probe", "--dir", settings.data])
        settings.disk = (f"files on {kind} ({device}); O_DIRECT in memory by {p['dio_mem_align']}, in the file by "
                         f"{p['dio_offset_align']} bytes; 4 KiB and fdatasync, overwriting {p['overwrite_p50_us']:.0f} "
                         f"us (p99 {p['overwrite_p99_us']:.0f}), appending {p['append_p50_us']:.0f} us (p99 "
                         f"{p['append_p99_us']:.0f})")
        print(settings.disk, flush=True)
    notes.append(f"{case.key}: {settings.disk}")


# --- servers ----------------------------------------------------------------------------------------------------------


class DurableDaemon(servers.Daemon):
    """Buffers of both kinds: durable ones, and others in the same process."""

    def path(self, name, durability):
        return ["--path", f"{BUFFERS}/{name}-%d/data?durability={durability}"]

    def put_target(self):
        return ["put"] + self.where() + self.path("bench", "sync")

    def plain_target(self):
        return ["put"] + self.where() + self.path("plain", "none")

    def forget(self, name):
        asker = Asker(self.port)
        for i in range(self.case.connections):
            asker.http.request("DELETE", f"{BUFFERS}/{name}-{i}")
            asker.http.getresponse().read()  # what this turn has not made is not there

    def clean(self):
        self.forget("bench")
        self.forget("plain")
        time.sleep(self.case.rest_s)

    def files(self):
        """The paths of the stored bytes, by the buffers' ids."""
        found = [os.path.join(at, name) for at, _, names in os.walk(os.path.join(self.state(), "data"))
                 for name in names if name.endswith(".safetensors")]
        return sorted(found, key=lambda path: int(os.path.basename(path).split(".")[0]))


class DurableBefore(DurableDaemon):
    name = "before"
    option = "before"

    def program(self):
        return self.settings.before


class RawDurable(servers.RawRecorded):
    """The raw server that does what the daemon promises of a durable upload, and nothing else."""

    name = "raw-durable"

    def data(self):
        return os.path.join(self.folder, "data")

    def words(self):
        os.mkdir(self.data())
        return super().words() + ["--disk", self.data()]

    def clean(self):
        for entry in os.scandir(self.data()):
            with contextlib.suppress(FileNotFoundError):  # a thread that had not ended has removed it
                os.unlink(entry.path)
        time.sleep(self.case.rest_s)


class RedisAlways(others.Redis):
    """Each turn has a log of its own; it is never rewritten while it is measured."""

    name = "redis always"
    persistence = ("--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")

    def clean(self):
        self.end()
        log = os.path.join(self.folder, "appendonlydir")
        for entry in os.scandir(log):
            os.unlink(entry.path)
        os.rmdir(log)
        self.begin()
        time.sleep(self.case.rest_s)


class Disk(Server):
    """The disk without a server: turns of gb-bench-disk and dd."""

    name = "disk"

    def start(self):
        self.settings.program("gb-bench-disk")

    def cpu_s(self):
        return 0

    def tool(self, *words):
        return measure.run_program([self.settings.program("gb-bench-disk"), *words])

    def clean(self):
        for entry in os.scandir(self.folder):
            os.unlink(entry.path)
        time.sleep(self.case.rest_s)

    def write(self, requests, *more):
        return self.tool("write", "--dir", self.folder, "--bytes", self.case.bytes, "--connections",
                         self.case.connections, "--requests", requests, *more)

    def commit(self, seconds):
        return self.tool("commit", "--dir", self.folder, "--bytes", self.case.bytes, "--connections",
                         self.case.connections, "--seconds", seconds)

    def dd(self, requests):
        """The time that dd itself tells, of files one after the other. The source is no row of zeros."""
        source = os.path.join(self.settings.shm, "source")
        if not os.path.exists(source):
            with open(source, "wb") as f:
                f.write(os.urandom(MIB) * (self.case.bytes // MIB))
        seconds = 0
        for i in range(requests):
            path = os.path.join(self.folder, f"dd-{i}")
            done = subprocess.run(["dd", f"if={source}", f"of={path}", "bs=1M", "oflag=direct", "conv=fdatasync"],
                                  capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
            took = re.search(r"copied, ([0-9.e-]+) s", done.stderr)
            if done.returncode or not took:
                raise measure.TurnFailed("dd: " + done.stderr.strip())
            seconds += float(took[1])
            os.unlink(path)
        return {"requests": requests, "errors": 0, "seconds": seconds, "bytes": requests * self.case.bytes,
                "bytes_per_s": requests * self.case.bytes / seconds, "requests_per_s": requests / seconds}


# --- uploads ----------------------------------------------------------------------------------------------------------


class DurablePut(Case):
    """`peers`: what is measured beside the ceiling: dd, direct (O_DIRECT and fdatasync of as many files at once),
    commit (SQLite alone), redis."""

    mode = "put"
    on_disk = True
    named_only = True
    requests = 0  # of each connection in a turn
    seconds = 2  # the length of a turn instead
    rest_s = 2
    peers = ()

    def need_bytes(self):
        return 8 * self.connections * self.bytes + 512 * MIB

    def kinds(self, settings):
        kinds = [DurableDaemon] + ([DurableBefore] if settings.before else []) + [RawDurable]
        kinds += [Disk] if self.peers else []
        return kinds + ([RedisAlways] if "redis" in self.peers else [])

    def turn(self, settings, target):
        words = ["--connections", self.connections, "--bytes", self.bytes]
        words += ["--requests", self.requests] if self.requests else ["--seconds", self.seconds]
        return measure.load(settings, target + words)

    def targets_of(self, running):
        """(name of the side, server, arguments of the load generator)"""
        for name, server in running.items():
            if name == "disk":
                continue
            yield "ours" if name == "gpubufd" else name, server, server.put_target()
        if "gpubufd" in running:
            yield "own, not durable", running["gpubufd"], running["gpubufd"].plain_target()

    def disk_sides(self, disk, value):
        turns = {"dd": lambda: disk.dd(self.requests), "direct": lambda: disk.write(self.requests),
                 "commit": lambda: disk.commit(self.seconds)}
        names = {"dd": "dd", "direct": "O_DIRECT write", "commit": "bare commit"}
        return [Side(names[peer], disk, turns[peer], value) for peer in self.peers if peer in turns]

    def run(self, settings, notes):
        describe(settings, self, notes)
        value = "requests_per_s" if self.unit == "k/s" else "bytes_per_s"
        with self.started(settings, self.kinds(settings), notes) as running:
            sides = [Side(name, server, lambda target=target: self.turn(settings, target), value)
                     for name, server, target in self.targets_of(running)]
            if "disk" in running:
                sides += self.disk_sides(running["disk"], value)
            measure.interleave(sides, settings.rounds)
        self.cpu = {side.name: side.cpu_ms_per_gib() for side in sides if side.turns}
        return sides

    def extra(self, ours):
        ours, plain = self.cpu.get("ours"), self.cpu.get("own, not durable")
        return {"CPU ms a GiB beyond": ours - plain} if ours and plain and self.bytes >= MIB else {}


class DurablePuts(DurablePut):
    """Small bodies, which lie in the database, by the engine of the polls. A commit of SQLite alone has as many of them
    as there are connections."""

    mode = "puts"
    unit = "k/s"
    rest_s = 0.2
    peers = ("commit",)

    def targets_of(self, running):
        for name, server, target in super().targets_of(running):
            yield name, server, ["puts"] + target[1:]


class Beside(Case):
    """Uploads that are not durable, and then polls, beside two streams of durable uploads, against both alone."""

    mode = "put"
    on_disk = True
    named_only = True
    connections = 2
    bytes = 64 * MIB
    seconds = 2
    rest_s = 2

    def need_bytes(self):
        return 8 * 3 * self.bytes + 512 * MIB

    def measured(self, settings, server):
        result = measure.load(settings, server.plain_target() + ["--connections", 1, "--bytes", self.bytes, "--seconds",
                                                                 self.seconds])
        polls = measure.load(settings, server.poll_target() + ["--connections", 64, "--seconds", self.seconds])
        return {**result, "errors": result["errors"] + polls["errors"], "polls_per_s": polls["requests_per_s"],
                "p99_ms": polls["p99_us"] / 1000}

    def beside(self, settings, server):
        words = server.put_target() + ["--connections", 2, "--bytes", self.bytes, "--seconds", 2 * self.seconds + 1]
        with measure.Background(settings, words) as streams:
            time.sleep(0.3)
            result = self.measured(settings, server)
            other = streams.result()
        return {**result, "errors": result["errors"] + other["errors"], "streams": other["bytes_per_s"]}

    def run(self, settings, notes):
        describe(settings, self, notes)
        with self.started(settings, [DurableDaemon], notes) as running:
            server = running["gpubufd"]
            self.sides = [Side("ours", server, lambda: self.beside(settings, server)),
                          Side("own alone", server, lambda: self.measured(settings, server))]
            measure.interleave(self.sides, settings.rounds)
        return self.sides

    def extra(self, ours):
        alone = self.sides[1]
        return {"p99 of polls beside / alone": ours.median("p99_ms") / alone.median("p99_ms"),
                "ms, beside": ours.median("p99_ms"), "polls beside / alone": ours.median("polls_per_s")
                / alone.median("polls_per_s"), "GB/s of the streams": ours.median("streams") / 1e9}


def durable_cases():
    cpu = {"CPU ms a GiB beyond": 150}
    yield DurablePut("durable-put64m-x1", "durable PUT 64 MiB, x1", {"raw-durable": 0.9, "dd": 0.85}, connections=1,
                     bytes=64 * MIB, requests=16, peers=("dd", "direct"), limits=cpu)
    yield DurablePut("durable-put64m-x4", "durable PUT 64 MiB, x4", {"raw-durable": 0.9, "O_DIRECT write": 0.85},
                     connections=4, bytes=64 * MIB, requests=6, peers=("direct",), limits=cpu)
    yield DurablePut("durable-put1g-x1", "durable PUT 1 GiB, x1", {"raw-durable": 0.9, "O_DIRECT write": 0.85},
                     connections=1, bytes=GIB, requests=2, peers=("direct",), limits=cpu)
    for n, least, redis in ((1, 0.75, 0.7), (16, 0.8, 3)):
        yield DurablePut(f"durable-put1m-x{n}", f"durable PUT 1 MiB, x{n}",
                         {"raw-durable": least, "redis always": redis}, connections=n, bytes=MIB, peers=("redis",))
    for n in (1, 16, 64):
        yield DurablePuts(f"durable-put1k-x{n}", f"durable PUT 1 KiB, x{n}",
                          {"bare commit": 0.7, **({"own, not durable": 0.6} if n > 1 else {})}, connections=n,
                          bytes=KIB)
    yield Beside("durable-beside", "PUT 64 MiB, not durable, beside two durable streams", {"own alone": 0.85},
                 limits={"p99 of polls beside / alone": 1.5})
