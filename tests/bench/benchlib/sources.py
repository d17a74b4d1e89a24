"""Copies from outside: of a file in the page cache (from_file), against as many threads that read it by pread into the
same kind of memory; and from nginx on this machine (from_url), against curl that throws the bytes away, and against
curl into an upload."""
import os
import subprocess

from . import measure, others, servers
from .cases import MIB, Case
from .measure import Side
from .pulls import Sockets, timed
from .servers import BUFFERS, GIB
from .watching import Asker


def write(path, total):
    """A file of bytes that are not all alike, in the page cache from now on."""
    block = os.urandom(MIB)
    with open(path, "wb") as f:
        for _ in range(total // MIB):
            f.write(block)


class Reader(Sockets):
    """A process of its own in each turn."""

    name = "threads"


class Target(servers.Daemon):
    """It may read the run's folder, and copy from nginx."""

    @property
    def own_args(self):
        return ["--files-from", self.settings.shm, *(["--pull-from", self.case.origin] if self.case.origin else [])]

    def copy(self, **source):
        body = {**source, "parts": self.case.connections}
        return timed(self.case.total, lambda: Asker(self.port).ask("POST", BUFFERS + "/copied/copy", body))


class Source(others.Nginx):
    name = "nginx"

    def start(self):
        super().start()
        self.case.origin = f"http://127.0.0.1:{self.port}"
        self.case.url = self.case.origin + "/sendfile/model"
        self.case.path = os.path.join(self.shm, "dav", "model")
        write(self.case.path, self.case.total)


class FromOutside(Case):
    """`total` bytes over `connections`."""

    named_only = True
    total = GIB
    daemon_args = ("--sample-interval", "0")
    origin = ""

    def need_bytes(self):
        return 4 * self.total + 512 * MIB


class FromFile(FromOutside):
    def run(self, settings, notes):
        path = os.path.join(settings.shm, "model")
        write(path, self.total)
        with self.started(settings, [Target, Reader], notes) as running:
            if len(running) < 2:
                return []
            target, reader = running.values()
            words = [settings.program("gb-bench-file"), "--path", path, "--threads", self.connections]
            words += ["--cuda"] if settings.device == "cuda" else []
            sides = [Side("ours", target, lambda: target.copy(from_file="model")),
                     Side("threads", reader, lambda: measure.run_program(words))]
            measure.interleave(sides, settings.rounds)
        os.unlink(path)
        return sides


class FromUrl(FromOutside):
    def curl(self, script, *words):
        def go():
            done = subprocess.run(["sh", "-c", script, "sh", self.url, *words], capture_output=True, text=True,
                                  preexec_fn=servers.die_with_parent)
            if done.returncode:
                raise measure.TurnFailed(done.stderr.strip() or f"curl: exit {done.returncode}")

        return timed(self.total, go)

    def run(self, settings, notes):
        client = os.path.join(os.path.dirname(settings.daemon), "gpubuf")
        with self.started(settings, [Source, Target], notes) as running:
            if len(running) < 2:
                return []
            source, target = running.values()
            through = f'curl -sSf "$1" -o - | "{client}" --url "$2" put - by-curl --raw -q'
            ours = f"http://127.0.0.1:{target.port}"
            sides = [Side("ours", target, lambda: target.copy(from_url=self.url)),
                     Side("curl", source, lambda: self.curl('curl -sSf "$1" -o /dev/null')),
                     Side("curl | put", target, lambda: self.curl(through, ours))]
            measure.interleave(sides, settings.rounds)
        return sides


def source_cases():
    for connections in (1, 4, 8, 12, 16):
        yield FromFile(f"sources-file-1g-x{connections}", f"copy of a file of 1 GiB, {connections} "
                       + ("part" if connections == 1 else "parts"), {"threads": 0.9} if connections > 1 else {},
                       connections=connections)
    yield FromUrl("sources-url-1g-x1", "copy of 1 GiB from nginx, 1 part", {"curl": 0.9, "curl | put": 1.0},
                  connections=1)
    yield FromUrl("sources-url-1g-x4", "copy of 1 GiB from nginx, 4 parts", {"curl": 1.0, "curl | put": 1.0},
                  connections=4)
