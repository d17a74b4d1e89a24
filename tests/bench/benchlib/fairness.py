"""A modest client beside a greedy one: what it waits for a small answer."""
import time

from . import measure, servers
from .cases import BUFFERS, MIB, KIB, Case
from .measure import Side
from .watching import Asker

BOUND = 128 * MIB


class Bounded(servers.Daemon):
    """Each address of loopback is a client, with a bound on its bytes."""

    name = "bounded"
    own_args = ("--bound-local", "--rate-requests", "0", "--rate-bytes", str(BOUND))


class Fairness(Case):
    """GET of 4 KiB by a client that asks 200 times a second: alone, and beside 16 connections of another address that
    upload bodies of 16 MiB as fast as they may, without and with a bound on that client's bytes."""

    unit = "ms"
    lower_is_better = True
    connections = 16
    bytes = 16 * MIB
    seconds = 4
    every_s = 0.005

    def need_bytes(self):
        return 6 * self.connections * self.bytes + 512 * MIB

    def ask(self, server):
        """The sorted times of the modest client's requests, in ms."""
        asker = Asker(server.port)
        asker.http.source_address = ("127.0.0.2", 0)
        took = []
        began = time.monotonic()
        for i in range(int(self.seconds / self.every_s)):
            time.sleep(max(0, began + i * self.every_s - time.monotonic()))
            took.append(asker.timed_ms(BUFFERS + "/modest/data")[0])
        return sorted(took)

    def figures(self, took):
        return {"p50_ms": took[len(took) // 2], "p99_ms": took[len(took) * 99 // 100], "worst_ms": took[-1],
                "errors": 0}

    def alone(self, server):
        return {**self.figures(self.ask(server)), "greedy": 0}

    def beside(self, settings, server):
        words = server.put_target() + ["--connections", self.connections, "--bytes", self.bytes, "--seconds",
                                       self.seconds + 2]
        with measure.Background(settings, words) as greedy:
            time.sleep(1)  # the bound client has used up its burst
            result = self.figures(self.ask(server))
            other = greedy.result()
        return {**result, "errors": other["errors"], "problem": other.get("problem"), "greedy": other["bytes_per_s"]}

    def run(self, settings, notes):
        with self.started(settings, [servers.Daemon, Bounded], notes) as running:
            free, bounded = running["gpubufd"], running["bounded"]
            for server in (free, bounded):
                server.make_buffer("modest", 4 * KIB)
                measure.load(settings, ["put", "--port", server.port, "--path", BUFFERS + "/modest/data", "--bytes",
                                        4 * KIB, "--requests", 1])
            sides = [Side("ours", bounded, lambda: self.beside(settings, bounded), "p99_ms"),
                     Side("own, alone", free, lambda: self.alone(free), "p99_ms"),
                     Side("own, no bound", free, lambda: self.beside(settings, free), "p99_ms")]
            measure.interleave(sides, min(settings.rounds, 3))
        self.sides = sides
        return sides

    def extra(self, ours):
        figures = {}
        for side, text in zip(self.sides, ("beside the bound one", "alone", "beside the greedy one")):
            figures[f"p50 {text}"] = side.median("p50_ms")
            figures[f"p99 {text}"] = side.median("p99_ms")
            if side.median("greedy"):
                figures[f"its GB/s, {text}"] = side.median("greedy") / 1e9
        return figures


def fairness_cases():
    yield Fairness("fairness", "p99 of a modest client beside a greedy one that is bound", {})
