"""Copies from another daemon by URL, both on this machine, against raw sockets between two memories of the host, over
as many connections and with the checksum, and against curl from one daemon to the other."""
import os
import subprocess
import time

from . import measure, servers
from .cases import MIB, Case
from .measure import Side
from .servers import BUFFERS, GIB
from .watching import Asker


class Source(servers.Daemon):
    """The daemon that has the bytes."""

    name = "source"

    def start(self):
        super().start()
        self.case.origin = f"http://127.0.0.1:{self.port}"


class Target(servers.Daemon):
    @property
    def own_args(self):
        return ["--pull-from", self.case.origin]


class Sockets(servers.Server):
    """Is no server: each turn is a process of its own."""

    name = "sockets"

    def start(self):
        pass

    def pids(self):
        return []


def timed(total, work):
    began = time.monotonic()
    work()
    seconds = time.monotonic() - began
    return {"bytes": total, "seconds": seconds, "bytes_per_s": total / seconds, "errors": 0}


class Pull(Case):
    """`total` bytes over `connections`."""

    named_only = True
    total = GIB
    daemon_args = ("--sample-interval", "0")
    origin = ""

    def need_bytes(self):
        return 4 * self.total + 512 * MIB

    def pull(self, target):
        body = {"from": {"url": self.origin + BUFFERS + "/bench-0", "parts": self.connections}}
        return timed(self.total, lambda: Asker(target.port).ask("POST", BUFFERS + "/pulled/copy", body))

    def curl(self, target):
        """curl sends what another one receives: it has to say how much that is, or the daemon could not take memory for
        it."""
        script = 'curl -sSf "$1" | curl -sSf -X PUT -H "Content-Length: $3" -H "Transfer-Encoding:" -T - -o "$4" "$2"'

        def go():
            done = subprocess.run(["sh", "-c", script, "sh", self.origin + BUFFERS + "/bench-0/data",
                                   f"http://127.0.0.1:{target.port}{BUFFERS}/by-curl/data", str(self.total),
                                   os.devnull], capture_output=True,
                                  text=True, preexec_fn=servers.die_with_parent)
            if done.returncode:
                raise measure.TurnFailed(done.stderr.strip() or f"curl: exit {done.returncode}")

        return timed(self.total, go)

    def run(self, settings, notes):
        with self.started(settings, [Source, Target, Sockets], notes) as running:
            if len(running) < 3:
                return []
            source, target, sockets = running.values()
            measure.load(settings, source.put_target() + ["--bytes", self.total, "--requests", 1])
            words = [settings.program("gb-bench-copy"), "--connections", self.connections, "--bytes", self.total]
            sides = [Side("ours", target, lambda: self.pull(target)),
                     Side("sockets", sockets, lambda: measure.run_program(words)),
                     Side("curl", target, lambda: self.curl(target))]
            measure.interleave(sides, settings.rounds)
        return sides


def pull_cases():
    yield Pull("pull-1g-x4", "copy of 1 GiB from another daemon, 4 parts", {"sockets": 0.9, "curl": 1.0}, connections=4)
    yield Pull("pull-1g-x1", "copy of 1 GiB from another daemon, 1 part", {"sockets": 0.9, "curl": 1.0}, connections=1)
    yield Pull("pull-64m-x4", "copy of 64 MiB from another daemon, 4 parts", {"sockets": 0.8, "curl": 1.0},
               connections=4, total=64 * MIB)
