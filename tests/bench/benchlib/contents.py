"""Bytes that leave memory and come back, checkpoints and scrubs, each against the disk or the copy that it is made of.

Sweeps of a session do the work, because a request for each buffer would measure requests."""
import contextlib
import json
import os
import random
import statistics
import threading
import time

from . import measure
from .cases import KIB, MIB, Case
from .durable import Disk, DurableDaemon, describe
from .measure import Side
from .servers import BUFFERS, GIB
from .watching import Asker

SESSION = "/v1/sessions/default"
FILE_BYTES = 64 * KIB + 4096  # more than the database takes


class Contents(DurableDaemon):
    """Keeps its buffers from one turn to the next."""

    def begin(self):
        super().begin()
        self.asker = Asker(self.port)
        self.asker.http.timeout = 600

    def post(self, path, **body):
        return json.loads(self.asker.ask("POST", path, body)[1])

    def put(self, name, size, query):
        measure.load(self.settings, ["put"] + self.where() + ["--path", f"{BUFFERS}/{name}/data?{query}", "--bytes",
                                                              size, "--requests", 1])

    def sweep(self, what, count, **body):
        """The seconds that it took to move the bytes of that many buffers."""
        began = time.perf_counter()
        moved = self.post(f"{SESSION}/{what}", **body)
        seconds = time.perf_counter() - began
        if moved["buffers"] != count or moved["skipped_buffers"]:
            raise measure.TurnFailed(f"{what}: {moved['buffers']} of {count} buffers, skipped {moved['skipped'][:3]}")
        return seconds

    def delete(self, path):
        self.asker.ask("DELETE", path)

    def clean(self):
        time.sleep(self.case.rest_s)


class Reads(Disk):
    """Deletes nothing."""

    def clean(self):
        time.sleep(self.case.rest_s)


def moved(count, size, seconds):
    return {"bytes": count * size, "seconds": seconds, "bytes_per_s": count * size / seconds,
            "us": 1e6 * seconds / count, "errors": 0}


class Moves(Case):
    """`count` buffers of `bytes`; `query` says how they are made."""

    mode = "put"
    on_disk = True
    named_only = True
    connections = 1
    rest_s = 1
    daemon_args = ("--disk-reserve", "0", "--evict-high", "0", "--scrub-interval", "0")
    ours_kind = Contents
    disk_kind = Reads
    query = "durability=none&spill=disk"

    def need_bytes(self):
        return 3 * self.count * self.bytes + 512 * MIB

    def make(self, server):
        for i in range(self.count):
            server.put(f"bench-{i}", self.bytes, self.query)

    @contextlib.contextmanager
    def ready(self, settings, notes):
        describe(settings, self, notes)
        with self.started(settings, [self.ours_kind, self.disk_kind], notes) as running:
            self.make(running["gpubufd"])
            yield running["gpubufd"], running["disk"]

    def measured(self, settings, sides):
        self.sides = sides
        measure.interleave(sides, settings.rounds)
        return sides


# --- out of memory and back -------------------------------------------------------------------------------------------


class EvictClean(Moves):
    """The disk has the bytes: nothing is written."""

    unit = "us"
    lower_is_better = True
    query = "durability=sync"

    def turn(self, server):
        seconds = server.sweep("evict", self.count)
        server.sweep("load", self.count)
        return moved(self.count, self.bytes, seconds)

    def run(self, settings, notes):
        with self.ready(settings, notes) as (ours, _):
            return self.measured(settings, [Side("ours", ours, lambda: self.turn(ours), "us")])


class EvictDirty(Moves):
    """The bytes are written without a sync, to new files of the same size on both sides."""

    disk_kind = Disk
    connections = 4  # of the disk's side: as many files at a time as the daemon has threads for them

    def turn(self, server):
        seconds = server.sweep("evict", self.count)
        server.sweep("load", self.count)
        for i in range(self.count):  # else the disk would have the bytes
            server.post(f"{BUFFERS}/bench-{i}/fill", pattern=i)
        return moved(self.count, self.bytes, seconds)

    def run(self, settings, notes):
        with self.ready(settings, notes) as (ours, disk):
            return self.measured(settings, [
                Side("ours", ours, lambda: self.turn(ours)),
                Side("O_DIRECT write", disk, lambda: disk.write(self.count // self.connections, "--unsynced"))])


class Reload(Moves):
    """Of spilled bytes, or with `query` of durable ones. The other side reads the same files, into memory that is used
    again."""

    def turn(self, server):
        seconds = server.sweep("load", self.count)
        server.sweep("evict", self.count)
        return moved(self.count, self.bytes, seconds)

    def run(self, settings, notes):
        with self.ready(settings, notes) as (ours, disk):
            ours.sweep("evict", self.count)
            return self.measured(settings, [
                Side("ours", ours, lambda: self.turn(ours)),
                Side("O_DIRECT read", disk, lambda: disk.tool("read", *ours.files())),
                Side("read into new memory", disk, lambda: disk.tool("read", "--fresh", *ours.files()))])


class Discrete(Contents):
    """Of a device that the CPU does not reach: bytes go to host memory by copies."""

    def backend(self):
        return "host:discrete" if self.settings.backend == "host" else self.settings.backend

    def copy(self, direction):
        """The daemon's own measurement of one copy of 64 MiB of page-locked memory."""
        copies = self.post("/v1/devices/0/selftest")["copies"]
        found = [c for c in copies if c["kind"] == "pinned" and c["direction"] == direction and c["bytes"] == 64 * MIB]
        if not found:
            raise measure.TurnFailed(f"the selftest has no copy {direction} of 64 MiB")
        return {"bytes_per_s": 1e9 * found[0]["gigabytes_per_s"], "seconds": found[0]["microseconds"] / 1e6,
                "bytes": 64 * MIB, "errors": 0}


class HostTier(Moves):
    """To host memory, or back from there, against a copy of such memory."""

    ours_kind = Discrete
    rest_s = 0
    query = "durability=none&spill=host"
    daemon_args = Moves.daemon_args + ("--spill-host-bytes", "2G")

    def turn(self, server):
        out = server.sweep("evict", self.count, to="host")
        back = server.sweep("load", self.count)
        return moved(self.count, self.bytes, out if self.direction == "from_device" else back)

    def run(self, settings, notes):
        with self.ready(settings, notes) as (ours, _):
            return self.measured(settings, [Side("ours", ours, lambda: self.turn(ours)),
                                            Side("copy", ours, lambda: ours.copy(self.direction))])


# --- memory for half of it --------------------------------------------------------------------------------------------


class Lru:
    """Memory for `room` buffers, where the least recently used one leaves."""

    def __init__(self, room, there):
        self.room = room
        self.there = list(there)[-room:]

    def hits(self, trace):
        found = 0
        for i in trace:
            found += i in self.there
            self.there = [j for j in self.there if j != i][1 - self.room:] + [i]
        return found


class Zipf(Moves):
    """Uses, by Zipf's law, of durable buffers in a pool that holds half of them: a load, if the bytes are not in
    memory, and a download, or with loads=False the download alone, which may be served from the disk. The model takes
    the same trace: hits at the speed of downloads from memory, the others at that of O_DIRECT reads, both measured in
    the same round."""

    mode = "get"
    query = "durability=sync&pool=half"
    uses = 60
    loads = True
    daemon_args = Moves.daemon_args[:2] + ("--evict-high", "0", "--scrub-interval", "0", "--min-resident-ms", "0")

    def make(self, server):
        server.post(f"{SESSION}/pools", name="half", max_bytes=self.count // 2 * self.bytes)
        super().make(server)
        server.put("warm-0", self.bytes, "durability=none&spill=never")
        chosen = random.Random(7)
        names = list(range(self.count))
        chosen.shuffle(names)
        self.trace = chosen.choices(names, [1 / (i + 1) for i in range(self.count)], k=self.uses)
        self.lru = Lru(self.count // 2, range(self.count))

    def get(self, server, name):
        return measure.load(server.settings, ["get"] + server.where() + ["--path", f"{BUFFERS}/{name}/data", "--bytes",
                                                                         self.bytes, "--requests", 1])["seconds"]

    def use(self, server, i):
        began = time.perf_counter()
        if self.loads:
            server.post(f"{BUFFERS}/bench-{i}/load")
        return time.perf_counter() - began + self.get(server, f"bench-{i}")

    def from_disk(self, server):
        counts = server.asker.json("/v1/storage")
        return counts["loads"] + counts["cold_reads"]

    def turn(self, server, disk):
        took = {True: [], False: []}
        count = self.from_disk(server)
        for i in self.trace:
            seconds = self.use(server, i)
            before, count = count, self.from_disk(server)
            took[count == before].append(seconds)
        hits, misses = len(took[True]), len(took[False])
        memory = statistics.median(self.get(server, "warm-0") for _ in range(5))
        read = disk.tool("read", *server.files()[:4])["seconds"] / 4
        seconds = sum(took[True]) + sum(took[False])
        return {**moved(self.uses, self.bytes, seconds), "of the model": (hits * memory + misses * read) / seconds,
                "percent hits": 100 * hits / self.uses, "points beyond LRU": 100 * (hits - self.lru.hits(self.trace))
                / self.uses,
                "ms a hit": 1000 * statistics.fmean(took[True] or [0]), "ms a hit, model": 1000 * memory,
                "ms a miss": 1000 * statistics.fmean(took[False] or [0]), "ms a miss, model": 1000 * read}

    def run(self, settings, notes):
        with self.ready(settings, notes) as (ours, disk):
            return self.measured(settings, [Side("ours", ours, lambda: self.turn(ours, disk))])

    def extra(self, ours):
        return {key: ours.median(key) for key in ours.turns[0] if key not in moved(1, 1, 1) and key != "server_cpu_s"}


# --- checkpoints ------------------------------------------------------------------------------------------------------


class Links(Reads):
    """As many links in a new folder, which is synced as the folder of a checkpoint is."""

    def links(self, files):
        at = os.path.join(self.folder, "links")
        os.mkdir(at)
        fd = os.open(at, os.O_RDONLY)
        began = time.perf_counter()
        for i, path in enumerate(files):
            os.link(path, os.path.join(at, f"{i:05}"))
        os.fsync(fd)
        seconds = time.perf_counter() - began
        os.close(fd)
        for entry in os.scandir(at):
            os.unlink(entry.path)
        os.rmdir(at)
        return moved(len(files), self.case.bytes, seconds)


class CheckpointLinks(Moves):
    unit = "us"
    lower_is_better = True
    bytes = FILE_BYTES
    query = "durability=sync"
    disk_kind = Links

    def turn(self, server):
        began = time.perf_counter()
        made = server.post(f"{SESSION}/checkpoints", name="c")
        seconds = time.perf_counter() - began
        server.delete("/v1/checkpoints/c")
        if made["buffers"] != self.count or made["written_bytes"]:
            raise measure.TurnFailed(f"{made['buffers']} of {self.count} buffers, {made['written_bytes']} bytes were "
                                     "written")
        return moved(self.count, self.bytes, seconds)

    def run(self, settings, notes):
        with self.ready(settings, notes) as (ours, disk):
            return self.measured(settings, [Side("ours", ours, lambda: self.turn(ours), "us"),
                                            Side("link", disk, lambda: disk.links(ours.files()), "us")])


class CheckpointWrites(Moves):
    """Of buffers that are not durable, with a sync on both sides. A download from memory is faster than the disk."""

    query = "durability=none"
    disk_kind = Disk
    connections = 4

    def turn(self, server):
        began = time.perf_counter()
        made = server.post(f"{SESSION}/checkpoints", name="c")
        seconds = time.perf_counter() - began
        server.delete("/v1/checkpoints/c")
        if made["written_bytes"] != self.count * self.bytes:
            raise measure.TurnFailed(f"{made['written_bytes']} bytes were written")
        return moved(self.count, self.bytes, seconds)

    def run(self, settings, notes):
        with self.ready(settings, notes) as (ours, disk):
            return self.measured(settings, [Side("ours", ours, lambda: self.turn(ours)),
                                            Side("O_DIRECT write", disk,
                                                 lambda: disk.write(self.count // self.connections))])


class CheckpointStall(CheckpointWrites):
    """The longest that an upload of 1 KiB over another buffer takes while checkpoints are made, and without."""

    unit = "ms"
    lower_is_better = True

    def writes(self, server, until):
        asker, longest, count = Asker(server.port), 0, 0
        while not until.is_set() or count == 0:
            began = time.perf_counter()
            asker.http.request("PUT", f"{BUFFERS}/small/data", b"x" * KIB)
            asker.http.getresponse().read()
            longest, count = max(longest, time.perf_counter() - began), count + 1
        return {"ms": 1000 * longest, "writes": count, "errors": 0}

    def beside(self, server, work):
        ended, result = threading.Event(), {}
        thread = threading.Thread(target=lambda: result.update(self.writes(server, ended)))
        thread.start()
        try:
            work()
        finally:
            ended.set()
            thread.join()
        return result

    def run(self, settings, notes):
        with self.ready(settings, notes) as (ours, _):
            def checkpoint():
                began = time.perf_counter()
                ours.post(f"{SESSION}/checkpoints", name="c")
                self.took = time.perf_counter() - began
                ours.delete("/v1/checkpoints/c")
            return self.measured(settings, [Side("ours", ours, lambda: self.beside(ours, checkpoint), "ms"),
                                            Side("own alone", ours,
                                                 lambda: self.beside(ours, lambda:
                                                                     time.sleep(getattr(self, "took", 1))), "ms")])


# --- scrubs -----------------------------------------------------------------------------------------------------------


class Scrub(Moves):
    """Uploads that are not durable, with a scrub at 32 MB/s and without, and the CPU of such a scrub alone."""

    query = "durability=sync"
    rate = 32000000
    seconds = 3
    rest_s = 0
    daemon_args = Moves.daemon_args[:4] + ("--scrub-interval", "0")

    def scrub(self, server):
        """Begins one, or joins the one that runs."""
        server.asker.ask("POST", "/v1/storage/scrub", {"rate": self.rate}, {"Prefer": "respond-async"})
        if server.asker.json("/v1/storage")["scrub"]["state"] != "running":
            raise measure.TurnFailed("the scrub has ended")

    def upload(self, settings, server):
        return measure.load(settings, server.plain_target() + ["--bytes", 64 * MIB, "--seconds", self.seconds])

    def idle_cpu(self, server):
        before = server.cpu_fine_s()
        time.sleep(self.seconds)
        return 100 * (server.cpu_fine_s() - before) / self.seconds

    def beside(self, settings, server):
        self.alone.append(self.idle_cpu(server))
        self.scrub(server)
        self.cpu.append(self.idle_cpu(server))
        result = self.upload(settings, server)
        self.scrub(server)  # it ran all the time
        server.post("/v1/storage/scrub", rate=1 << 40)  # to its end
        return result

    def run(self, settings, notes):
        self.cpu, self.alone = [], []
        with self.ready(settings, notes) as (ours, _):
            return self.measured(settings, [Side("ours", ours, lambda: self.beside(settings, ours)),
                                            Side("own alone", ours, lambda: self.upload(settings, ours))])

    def extra(self, ours):
        return {"percent of a core": statistics.median(self.cpu) - statistics.median(self.alone)}


def content_cases():
    yield EvictClean("contents-evict-clean", "evict, clean, a buffer of 1 MiB", {"ours": 60}, count=256, bytes=MIB)
    yield EvictDirty("contents-evict-disk", "evict to disk, 64 MiB", {"O_DIRECT write": 0.85}, count=8, bytes=64 * MIB)
    yield Reload("contents-reload-disk", "reload from disk, spilled, 64 MiB", {"O_DIRECT read": 0.9}, count=8,
                 bytes=64 * MIB)
    yield Reload("contents-load-all", "load of all, durable, 64 MiB", {"O_DIRECT read": 0.9}, count=16, bytes=64 * MIB,
                 query="durability=sync")
    for key, text, direction in (("evict", "evict to host memory", "from_device"),
                                 ("reload", "reload from host memory", "to_device")):
        yield HostTier(f"contents-{key}-host", f"{text}, 64 MiB", {"copy": 0.9}, count=8, bytes=64 * MIB,
                       direction=direction)
    yield Zipf("contents-zipf", "Zipf, load and GET 64 MiB, memory for half",
               {"of the model": 0.85, "points beyond LRU": -3}, count=16, bytes=64 * MIB)
    yield Zipf("contents-zipf-get", "Zipf, GET 64 MiB, memory for half", {"of the model": 0.85}, count=16,
               bytes=64 * MIB, loads=False)
    yield CheckpointLinks("contents-checkpoint-links", "checkpoint, a durable buffer", {"ours": 60}, count=1000)
    yield CheckpointWrites("contents-checkpoint-writes", "checkpoint, not durable, 64 MiB", {"O_DIRECT write": 0.85},
                           count=8, bytes=64 * MIB)
    yield CheckpointStall("contents-checkpoint-stall", "longest PUT 1 KiB beside a checkpoint", {"ours": 5}, count=8,
                          bytes=64 * MIB)
    yield Scrub("contents-scrub", "PUT 64 MiB beside a scrub", {"own alone": 0.97}, count=1, bytes=GIB,
                limits={"percent of a core": 2})
