"""Slices of strided rows, against as many contiguous bytes of the same buffer."""
from . import measure, servers
from .cases import MIB, Case
from .measure import Side
from .servers import BUFFERS


class Slice(Case):
    """Half of each row of a matrix, gathered by the device, or by the CPU if it reaches the memory."""

    mode = "get"
    bytes = 64 * MIB
    requests = 16
    row = 4096

    def target(self, ours, query):
        return ["get"] + ours.where() + ["--path", BUFFERS + "/bench-%d/data?" + query, "--connections", 1, "--bytes",
                                         self.bytes, "--requests", self.requests]

    def run(self, settings, notes):
        with self.started(settings, [servers.Daemon], notes) as running:
            ours = running["gpubufd"]
            shape = f"{self.bytes // self.row},{2 * self.row}"
            measure.load(settings, ["put"] + ours.where() + [
                "--path", BUFFERS + f"/bench-%d/data?dtype=uint8&shape={shape}", "--bytes", 2 * self.bytes,
                "--requests", 1])
            sides = [Side(name, ours, lambda target=self.target(ours, query): measure.load(settings, target))
                     for name, query in (("ours", f"slice=:,:{self.row}"), ("own contiguous", f"length={self.bytes}"))]
            measure.interleave(sides, settings.rounds)
        return sides


def slice_cases(device):
    # On a GPU the bus is faster than the socket. If the CPU gathers, its copy adds to the one into the socket.
    least = {4096: 0.9, 64: 0.7} if device == "cuda" else {4096: 0.6, 64: 0.5}
    yield Slice("slice4k", "slice of 64 MiB, rows of 4 KiB", {"own contiguous": least[4096]})
    yield Slice("slice64", "slice of 64 MiB, rows of 64 B", {"own contiguous": least[64]}, row=64)
