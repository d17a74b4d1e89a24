"""Backups of a checkpoint, against curl that moves the same files to and from the same server, as many at a time.

The server drops what comes, and has the files that it gives out in the kernel's cache. Before each turn of a backup the files of the
checkpoint leave that cache, as files have that the daemon wrote past it: both sides read the disk. "cached" is curl with the files in
the cache, which they are in after programs have read them."""
import concurrent.futures
import os
import shutil
import subprocess
import time

from . import measure, servers
from .cases import MIB, Case
from .durable import DurableDaemon, describe
from .measure import Side
from .servers import GIB, Missing, Server
from .watching import Asker


class Sink(Server):
    """Drops uploads, and gives out the files of its folder."""

    name = "sink"

    def start(self):
        self.spawn_and_read_port([self.settings.program("gb-bench-sink"), "--dir", self.folder])

    def url(self, name):
        return f"http://127.0.0.1:{self.port}/{name}"


def gpubuf(settings):
    path = os.path.join(settings.build, "gpubuf")
    if not os.access(path, os.X_OK):
        raise Missing(f"no program {path}")
    return path


def timed(total, work):
    began = time.monotonic()
    work()
    seconds = time.monotonic() - began
    return {"bytes": total, "seconds": seconds, "bytes_per_s": total / seconds, "errors": 0}


def run(words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, preexec_fn=servers.die_with_parent)
    if done.returncode:
        raise measure.TurnFailed(done.stderr.strip() or f"{words[0]}: exit {done.returncode}")


def leave_cache(paths):
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def enter_cache(paths):
    room = bytearray(8 * MIB)
    for path in paths:
        with open(path, "rb", buffering=0) as f:
            while f.readinto(room):
                pass


class Files(Case):
    """`count` buffers of `bytes` in one checkpoint."""

    mode = "files"
    on_disk = True
    named_only = True
    unix = True
    rest_s = 1
    count = 8
    bytes = 128 * MIB

    def need_bytes(self):
        return 2 * self.count * self.bytes + 512 * MIB

    def gpubuf(self, settings, daemon, *words):
        run([gpubuf(settings), "--url", "unix://" + daemon.socket(), "--quiet", *words, "--connections", self.connections])

    def fill(self, settings, daemon):
        """Makes the checkpoint; the paths of its files."""
        for i in range(self.count):
            target = [str(word).replace("%d", str(i)) for word in daemon.put_target()]
            measure.load(settings, target + ["--bytes", self.bytes, "--requests", 1])
        run([gpubuf(settings), "--url", "unix://" + daemon.socket(), "--quiet", "checkpoints", "add", "c1"])
        folder = os.path.join(daemon.state(), "data", "checkpoints", "c1")
        return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".safetensors"))

    def each(self, paths, work):
        """work(path) of all, as many at a time as there are connections."""
        with concurrent.futures.ThreadPoolExecutor(self.connections) as pool:
            list(pool.map(work, paths))

    def run(self, settings, notes):
        describe(settings, self, notes)
        with self.started(settings, [DurableDaemon, Sink], notes) as running:
            daemon, sink = running["gpubufd"], running["sink"]
            paths = self.fill(settings, daemon)
            daemon.clean = sink.clean = lambda: time.sleep(self.rest_s)
            self.total = sum(os.path.getsize(path) for path in paths)
            self.sides = self.sides_of(settings, daemon, sink, paths, notes)
            measure.interleave(self.sides, settings.rounds)
        return self.sides


class Backup(Files):
    """The client reads the daemon's folder, and where it may not, over the daemon's socket."""

    def backup(self, settings, daemon, sink, paths):
        leave_cache(paths)
        return timed(self.total, lambda: self.gpubuf(settings, daemon, "backup", "c1", sink.url("ours")))

    def elsewhere(self, settings, daemon, sink, paths):
        """The client sees an empty folder in place of the daemon's, as in another container."""
        leave_cache(paths)
        script = 'mount -t tmpfs none "$1" && shift && exec "$@"'
        words = ["unshare", "--mount", "sh", "-c", script, "sh", os.path.join(daemon.state(), "data"), gpubuf(settings), "--url",
                 "unix://" + daemon.socket(), "--quiet", "backup", "c1", sink.url("other"), "--connections", self.connections]
        return timed(self.total, lambda: run(words))

    def curl(self, sink, paths, prepare):
        prepare(paths)
        return timed(self.total, lambda: self.each(paths, lambda path: run(["curl", "-sSf", "-T", path, sink.url(os.path.basename(path))])))

    def sides_of(self, settings, daemon, sink, paths, notes):
        sides = [Side("ours", daemon, lambda: self.backup(settings, daemon, sink, paths)),
                 Side("curl -T", sink, lambda: self.curl(sink, paths, leave_cache)),
                 Side("curl -T, cached", sink, lambda: self.curl(sink, paths, enter_cache))]
        if os.geteuid() == 0:
            sides.append(Side("over the socket", daemon, lambda: self.elsewhere(settings, daemon, sink, paths)))
        else:
            notes.append(f"{self.key}: over the socket left out: only root hides the daemon's folder from a client")
        return sides

    def extra(self, ours):
        other = next((side for side in self.sides if side.name == "over the socket" and side.turns), None)
        return {"over the socket / curl -T": measure.ratio(other, self.sides[1])} if other else {}


class Restore(Files):
    """Files alone, against curl that writes them to the same disk and syncs each."""

    def restore(self, settings, daemon, sink):
        result = timed(self.total, lambda: self.gpubuf(settings, daemon, "restore", sink.url("backup"), "--name", "back", "--files-only"))
        Asker(daemon.port).ask("DELETE", "/v1/checkpoints/back")
        return result

    def curl(self, sink, names):
        folder = os.path.join(sink.folder, "down")
        os.mkdir(folder)

        def fetch(name):
            path = os.path.join(folder, name)
            run(["curl", "-sSf", "-o", path, sink.url("backup/objects/" + name)])
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)

        result = timed(self.total, lambda: self.each(names, fetch))
        shutil.rmtree(folder)
        return result

    def sides_of(self, settings, daemon, sink, paths, notes):
        backup = os.path.join(sink.folder, "backup")
        self.gpubuf(settings, daemon, "backup", "c1", backup)
        objects = os.path.join(backup, "objects")
        enter_cache(os.path.join(objects, name) for name in os.listdir(objects))
        return [Side("ours", daemon, lambda: self.restore(settings, daemon, sink)),
                Side("curl -o, fsync", sink, lambda: self.curl(sink, os.listdir(objects)))]


def backup_cases():
    many, one = {"connections": 4}, {"connections": 1, "count": 2, "bytes": GIB // 2}
    for words, kind, title, peer in (("backup", Backup, "backup of 1 GiB", "curl -T"), ("restore", Restore, "restore of 1 GiB", "curl -o, fsync")):
        yield kind(f"durable-{words}-x4", f"{title} in 8 files, 4 at a time", {peer: 0.85}, **many)
        yield kind(f"durable-{words}-x1", f"{title} in 2 files, 1 at a time", {peer: 0.85}, **one)
