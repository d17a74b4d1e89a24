"""Start with many stored buffers, and bytes that come back from the disk."""
import os
import sqlite3
import statistics
import time

from . import measure, servers
from .cases import KIB, MIB, Case
from .durable import Disk, DurableDaemon, describe
from .measure import Side
from .servers import BUFFERS, GIB
from .watching import Asker

INLINE_BYTES = 64 * KIB


# --- start ------------------------------------------------------------------------------------------------------------


class Empty(DurableDaemon):
    name = "empty"


class Start(Case):
    """The time from the start of the process until it listens, with N stored buffers, against a start without any. The
    state is made of the rows of one buffer and, for bodies in files, of files that have their length alone: a start
    reads no bytes."""

    mode = "put"
    unit = "s"
    on_disk = True
    named_only = True
    lower_is_better = True
    connections = 1
    count = 100000
    rest_s = 0
    daemon_args = ("--max-buffers", "200000", "--quota-buffers", "200000", "--disk-reserve", "0")

    def need_bytes(self):
        return 1024 * MIB

    def fill(self, settings, server):
        """Stops the daemon over a state of that many buffers."""
        measure.load(settings, server.put_target() + ["--bytes", self.bytes, "--requests", 1])
        server.end()
        path = os.path.join(server.state(), "gpubufd.db")
        db = sqlite3.connect(path)
        with db:
            for table, own in (("buffers", {"id": "id + n", "name": "name || '-' || n"}),
                               ("stored", {"buffer_id": "buffer_id + n"})):
                columns = [name for (name,) in db.execute(f"SELECT name FROM pragma_table_info('{table}')")]
                values = [own.get(name, name) for name in columns]
                db.execute(f"WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < {self.count - 1})"
                           f" INSERT INTO {table}({', '.join(columns)}) SELECT {', '.join(values)} FROM {table}, t")
            names = db.execute("SELECT buffer_id, file_generation, file_tag FROM stored").fetchall()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()
        for buffer, generation, tag in names if self.bytes > INLINE_BYTES else []:
            folder = os.path.join(server.state(), "data", f"{buffer & 255:02x}")
            os.makedirs(folder, 0o700, exist_ok=True)
            fd = os.open(os.path.join(folder, f"{buffer}.{generation}.{tag:08x}.safetensors"), os.O_WRONLY | os.O_CREAT,
                         0o600)
            os.truncate(fd, 4096 + self.bytes)
            os.close(fd)
        os.sync()

    def timed_start(self, server):
        began = time.monotonic()
        server.begin()
        return time.monotonic() - began

    def turn(self, server):
        result = {"s": self.timed_start(server), "errors": 0, "server_cpu_s": 0}
        stored = Asker(server.port).json("/v1/storage")["stored_buffers"]
        result["cpu_s"] = server.cpu_s()
        if stored != (0 if server.name == "empty" else self.count):
            raise measure.TurnFailed(f"{stored} stored buffers are known of {self.count}")
        server.end()
        # The same without what the kernel kept of the database.
        with open(os.path.join(server.state(), "gpubufd.db"), "rb") as db:
            os.posix_fadvise(db.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        result["cold_s"] = self.timed_start(server)
        server.end()
        return result

    def run(self, settings, notes):
        describe(settings, self, notes)
        with self.started(settings, [DurableDaemon, Empty], notes) as running:
            self.fill(settings, running["gpubufd"])
            running["empty"].end()
            self.sides = [Side("ours", running["gpubufd"], None, "s"), Side("empty", running["empty"], None, "s")]
            for _ in range(settings.rounds):
                for side in self.sides:
                    side.turns.append(self.turn(side.server))
        return self.sides

    def extra(self, ours):
        each = (ours.median() - self.sides[1].median()) / self.count
        return {"us a buffer": 1e6 * each, "s of CPU": ours.median("cpu_s"),
                "s, database not cached": ours.median("cold_s")}


# --- back from the disk -----------------------------------------------------------------------------------------------


class Restarted(DurableDaemon):
    """Behind each turn another process over the same state, where all bytes are on disk alone."""

    def clean(self):
        self.restart()
        time.sleep(self.case.rest_s)


class Memory(servers.Daemon):
    """Another daemon with the same bytes in memory."""

    name = "own memory"


class Reads(Disk):
    """Reads the files that the daemon wrote; deletes none."""

    def clean(self):
        time.sleep(self.case.rest_s)

    def read(self, *words):
        return self.tool("read", *words)


class FromDisk(Case):
    mode = "get"
    on_disk = True
    named_only = True
    connections = 1
    rest_s = 1
    count = 1  # of buffers

    def need_bytes(self):
        return 4 * self.count * self.bytes + 512 * MIB

    def store(self, settings, server):
        """Makes the buffers; they have names of their own, and one connection at a time reads them."""
        for i in range(self.count):
            target = [str(word).replace("%d", str(i)) for word in server.put_target()]
            measure.load(settings, target + ["--bytes", self.bytes, "--requests", 1])

    def run(self, settings, notes):
        describe(settings, self, notes)
        with self.started(settings, [Restarted, Reads] + ([Memory] if self.memory else []), notes) as running:
            ours, disk = running["gpubufd"], running["disk"]
            self.store(settings, ours)
            files = ours.files()
            ours.clean()
            sides = [Side("ours", ours, lambda: self.turn(settings, ours)),
                     Side("O_DIRECT read", disk, lambda: disk.read(*files))]
            if self.memory:
                self.store(settings, running["own memory"])
                sides.append(Side("own memory", running["own memory"],
                                  lambda: self.turn(settings, running["own memory"])))
            else:
                sides.append(Side("read into new memory", disk, lambda: disk.read("--fresh", *files)))
            measure.interleave(sides, settings.rounds)
        self.sides = sides
        return sides


class Load(FromDisk):
    """A load by request, against O_DIRECT reads of the same file at the depth of eight, into memory that is used again
    and into memory that no page is behind. The kernel has to clear the latter, as that of a buffer on the host
    backend."""

    memory = False
    bytes = GIB

    def turn(self, settings, server):
        asker = Asker(server.port)
        began = time.monotonic()
        asker.ask("POST", f"{BUFFERS}/bench-0/load", {})
        seconds = time.monotonic() - began
        state = asker.json(f"{BUFFERS}/bench-0")["state"]
        if state != "ready":
            raise measure.TurnFailed(f"after the load the buffer is {state}")
        return {"bytes": self.bytes, "seconds": seconds, "bytes_per_s": self.bytes / seconds, "errors": 0}

    def extra(self, ours):
        return {}


class ColdGet(FromDisk):
    """Downloads of bytes that are on disk alone, each of another buffer, against the slower of such reads and the same
    downloads from memory."""

    memory = True
    count = 16
    bytes = 64 * MIB

    def turn(self, settings, server):
        results = [measure.load(settings, ["get"] + server.where() + ["--path", f"{BUFFERS}/bench-{i}/data", "--bytes",
                                                                      self.bytes, "--requests", 1])
                   for i in range(self.count)]
        seconds = sum(result["seconds"] for result in results)
        cold = Asker(server.port).json("/v1/storage")["cold_reads"]
        if server.name == "gpubufd" and cold != self.count:
            raise measure.TurnFailed(f"{cold} of {self.count} downloads came from the disk")
        return {"bytes": self.count * self.bytes, "seconds": seconds, "bytes_per_s": self.count * self.bytes / seconds,
                "errors": sum(result["errors"] for result in results)}

    def extra(self, ours):
        least = [min(turns) for turns in zip(*(side.values() for side in self.sides[1:]))]
        return {"of the slower": statistics.median(a / b for a, b in zip(ours.values(), least))}


def start_cases():
    for key, text, size in (("rows", "1 KiB", KIB), ("files", "64 KiB and one byte", INLINE_BYTES + 1)):
        yield Start(f"durable-start-{key}", f"start with 100,000 stored buffers of {text}", {"ours": 1}, bytes=size,
                    limits={"us a buffer": 5})
    yield Load("durable-load1g", "load of 1 GiB", {"O_DIRECT read": 0.9})
    yield ColdGet("durable-get64m", "cold GET 64 MiB, x1", {"of the slower": 0.85})
