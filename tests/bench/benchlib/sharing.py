"""Sharing: the time of a mapping, mappings per second, and copies through slabs against the bus or memcpy."""
from . import measure, servers
from .cases import MIB, Case
from .measure import Side
from .servers import GIB

# way: kind of memory, and whether it takes an exportable pool.
WAYS = {"vmm": ("shared", False), "pool": ("device", True), "legacy": ("ipc", False), "memfd": ("pinned", False)}
POOL_BYTES = 4064 * MIB  # of one allocation of a pool that is exported


class Shared(Case):
    """A daemon with a socket, and turns of gb-bench-share."""

    unix = True

    def share(self, settings, mode, server, *words):
        where = ["--socket", server.socket()] if server else []
        return measure.run_program([settings.program("gb-bench-share"), mode, *where, *words])


class Map(Shared):
    """The time of a map, by each way of sharing: the request, the descriptor, and the mapping in the client's
    process."""

    mode = "map"
    unit = "ms"
    lower_is_better = True
    count = 50

    def need_bytes(self):
        return (self.bytes if self.way == "memfd" else 0) + 512 * MIB

    def turn(self, settings, server):
        kind, pool = WAYS[self.way]
        return self.share(settings, "map", server, "--bytes", self.bytes, "--count", self.count, "--kind", kind,
                          "--way", self.way, *(["--pool"] if pool else []))

    def run(self, settings, notes):
        with self.started(settings, [servers.Daemon], notes) as running:
            sides = [Side("ours", s, lambda s=s: self.turn(settings, s), "ms") for s in running.values()]
            measure.interleave(sides, settings.rounds)
        return sides

    def extra(self, ours):
        return {"longest, ms": ours.median("most_ms")}


class Open(Shared):
    """Pairs of map and unmap, one after the other, against the same number of requests without work."""

    mode = "open"
    unit = "pairs/s"
    bytes = MIB

    def run(self, settings, notes):
        words = ["--bytes", self.bytes, "--kind", "pinned", "--seconds", 1]
        with self.started(settings, [servers.Daemon], notes) as running:
            sides = [Side(name, s, lambda s=s, mode=mode: self.share(settings, mode, s, *words), "requests_per_s")
                     for s in running.values() for name, mode in (("ours", "open"), ("own 200", "ask"))]
            measure.interleave(sides, settings.rounds)
        return sides


class Slab(Shared):
    """Copies of a whole slab: into the buffer's present memory, as a ring of slabs does it, and into new memory that is
    swapped in."""

    mode = "slab"
    down = False

    def need_bytes(self):
        return 6 * self.connections * self.bytes + 512 * MIB

    def run(self, settings, notes):
        words = ["--bytes", self.bytes, "--count", max(2, 2 * GIB // (self.bytes * self.connections)), "--clients",
                 self.connections]
        words += ["--down"] if self.down else []
        with self.started(settings, [servers.Daemon], notes) as running:
            ours = running["gpubufd"]
            sides = [Side("ours", ours, lambda: self.share(settings, "slab", ours, *words)),
                     Side("raw", ours, lambda: self.share(settings, "ceiling", None, "--device", settings.device,
                                                          *words))]
            if not self.down:
                sides.append(Side("ours, atomic", ours, lambda: self.share(settings, "slab", ours, "--atomic", *words)))
            measure.interleave(sides, settings.rounds)
        return sides


def share_cases(device):
    cuda = device == "cuda"
    for way in WAYS if cuda else ["memfd"]:
        size = (POOL_BYTES if way == "pool" else 16 * GIB) if cuda else 256 * MIB
        text = f"{size // GIB} GiB" if size % GIB == 0 else f"{size // MIB:,} MiB"
        yield Map(f"share-map-{way}", f"map of {text} by {way}", {"ours": 5}, way=way, bytes=size)
    yield Open("share-open", "map + unmap of 1 MiB, one client", {})
    for size in (256 * MIB, 64 * MIB):
        for down in (False, True):
            for n in (1, 4):
                what = "buffer -> slab" if down else "slab -> buffer"
                yield Slab(f"share-slab-{'down' if down else 'up'}{size // MIB}m-x{n}",
                           f"{what}, {size // MIB} MiB, x{n}", {"raw": 0.85 if cuda else 0.8}, bytes=size,
                           connections=n, down=down)
