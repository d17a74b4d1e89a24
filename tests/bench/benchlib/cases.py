"""The cases that are measured, each with its sides and targets."""
import contextlib
import time

from . import measure, others, servers
from .measure import Side
from .servers import BUFFERS, GIB

MIB = 1 << 20
KIB = 1 << 10


class Case:
    """One line of the table. `targets` maps a side to the least ratio ours / side, or a further figure to the least
    that it may be; `limits` maps a further figure to the most."""

    mode = ""
    connections = 1
    bytes = 0
    unix = False  # over a UNIX socket
    tls = False
    on_disk = False  # its servers' folders are where --data says
    named_only = False  # measured only if --only names it
    limits = {}
    daemon_args = ()
    unit = "GB/s"

    def __init__(self, key, title, targets, **kwargs):
        self.key = key
        self.title = title
        self.targets = targets
        self.__dict__.update(kwargs)

    def extra(self, ours):
        """Further figures of gpubufd, by their unit."""
        return {}

    def need_bytes(self):
        """The most memory that all sides together hold."""
        return 512 * MIB

    @contextlib.contextmanager
    def started(self, settings, kinds, notes):
        """The servers by name; those that this machine cannot run are left out with a note."""
        running = {}
        try:
            for kind in kinds:
                server = kind(settings, self)
                try:
                    if (kind is servers.Mhd or self.tls) and "gpubufd" in running:
                        server.answer_bytes = running["gpubufd"].stats_bytes()
                    running[server.name] = server
                    server.start()
                except servers.Missing as why:
                    notes.append(f"{self.key}: {server.name} left out: {why}")
                    running.pop(server.name).stop()
            yield running
        finally:
            for server in running.values():
                server.stop()


class Transfer(Case):
    """Uploads or downloads. `expect`: as curl does it, a connection for each upload, and the body after 100
    Continue."""

    expect = False
    requests = 1  # of each connection in a turn
    seconds = 0  # the length of a turn instead, where the sides' rates differ much
    fair = ("gpubufd", "before", "raw", "raw-recorded")  # the servers that take part in all rounds, with whole turns

    def need_bytes(self):
        # An upload needs two generations in the daemon, one in each raw server, and one in the other server whose turn
        # it is. A download needs one in each of three.
        return (4 + self.recorded() if self.mode == "put" else 3) * self.connections * self.bytes + 512 * MIB

    def recorded(self):
        """Whether to measure also a raw socket with checksum and record. The largest bodies are left out, because they
        need much memory already."""
        return self.mode == "put" and self.bytes <= 64 * MIB

    def kinds(self, settings):
        recorded = [servers.RawRecorded] if self.recorded() else []
        if settings.before:
            return [servers.Daemon, servers.Before, servers.Raw] + (recorded if "raw-recorded" in self.targets else [])
        if self.unix or self.bytes < MIB:
            return [servers.Daemon, servers.Raw] + recorded
        if settings.device == "cuda":
            return [servers.Daemon, servers.Raw] + recorded + [others.Aiohttp]
        if self.mode == "get":
            return [servers.Daemon, servers.Raw, others.Nginx]
        return [servers.Daemon, servers.Raw] + recorded + [others.Nginx, others.Redis]

    def targets_of(self, running):
        """(name of the side, server, arguments of the load generator)"""
        for server in running.values():
            name = "ours" if server.name == "gpubufd" else server.name
            if self.mode == "get":
                yield name, server, server.get_target()
                if server.name == "nginx":
                    yield "nginx sendfile", server, server.get_sendfile_target()
                if server.name == "aiohttp":
                    yield "aiohttp streamed", server, server.get_streamed_target()
                continue
            words = server.put_target()
            if not self.expect:
                yield name, server, words
                continue
            # Neither Redis nor the raw socket supports 100 Continue; they get only the new connection.
            handshake = [] if name in ("raw", "raw-recorded", "redis") else ["--expect"]
            yield name, server, words + ["--fresh"] + handshake
            if name == "raw":
                yield "raw kept open", server, words

    def run(self, settings, notes):
        words = ["--connections", self.connections, "--bytes", self.bytes]

        def turn(server, target):
            # The other servers are several times slower; shorter turns keep the run short.
            count = self.requests if server.name in self.fair else max(1, self.requests // 4)
            length = ["--seconds", self.seconds] if self.seconds else ["--requests", count]
            return lambda: measure.load(settings, target + words + length)

        with self.started(settings, self.kinds(settings), notes) as running:
            if self.mode == "get":
                for server in running.values():
                    server.prepare_get(lambda w: measure.load(settings, w))
            value = "requests_per_s" if self.unit == "k/s" else "bytes_per_s"
            sides = [Side(name, server, turn(server, target), value) for name, server,
                     target in self.targets_of(running)]
            for side in sides:
                if side.server.name not in self.fair:
                    side.rounds = settings.other_rounds
            measure.interleave(sides, settings.rounds)
        self.cpu_us = {side.name: side.cpu_us_per_request() for side in sides}
        return sides

    def extra(self, ours):
        """The CPU time of the server for an upload, where the recorded one is the measure."""
        recorded = self.cpu_us.get("raw-recorded")
        if not recorded or "raw-recorded" not in self.targets:
            return {}
        figures = {"CPU us of an upload": self.cpu_us["ours"], "before's": self.cpu_us.get("before"),
                   "recorded's": recorded, "CPU ours / recorded": self.cpu_us["ours"] / recorded}
        return {name: value for name, value in figures.items() if value is not None}


class Poll(Case):
    mode = "poll"
    unit = "k/s"
    connections = 64
    bytes = KIB
    seconds = 1.0

    def words(self):
        return ["--connections", self.connections, "--seconds", self.seconds]

    def side(self, settings, name, server, target):
        return Side(name, server, lambda: measure.load(settings, target + self.words()), "requests_per_s")

    def run(self, settings, notes):
        kinds = [servers.Daemon, servers.Mhd, others.Nginx]
        if settings.before:
            kinds = [servers.Daemon, servers.Before, servers.Mhd]
        elif settings.device == "cuda":
            kinds.append(others.Aiohttp)
        with self.started(settings, kinds, notes) as running:
            sides = [self.side(settings, "ours" if s.name == "gpubufd" else s.name, s, s.poll_target())
                     for s in running.values()]
            measure.interleave(sides, settings.rounds)
        return sides


class NotModified(Poll):
    """304 replies for the statistics, and for a buffer's bytes and metadata, against polls with full replies."""

    def run(self, settings, notes):
        kinds = [servers.Daemon, servers.Mhd, servers.Before if settings.before else others.Nginx]
        with self.started(settings, kinds, notes) as running:
            sides = []
            ours = running.get("gpubufd")
            if ours:
                measure.load(settings, ours.put_target() + ["--bytes", KIB, "--requests", 1])
                sides = [self.side(settings, "ours", ours, ours.poll_same_target()),
                         self.side(settings, "own 200", ours, ours.poll_target()),
                         self.side(settings, "own 304 of bytes", ours, ours.poll_buffer_target("/data")),
                         self.side(settings, "own 304 of metadata", ours, ours.poll_buffer_target(""))]
            if "libmicrohttpd" in running:
                sides.append(self.side(settings, "libmicrohttpd", running["libmicrohttpd"],
                                       running["libmicrohttpd"].poll_target()))
            if "before" in running:
                sides.append(self.side(settings, "before", running["before"], running["before"].poll_same_target()))
            if "nginx" in running:
                sides.append(self.side(settings, "nginx 304", running["nginx"], running["nginx"].poll_file_target()))
            measure.interleave(sides, settings.rounds)
        return sides


class Pipeline(Poll):
    """Uploads of 4 KiB on many connections, one after another on each, against polls of the same daemon and against the
    same uploads to the raw server with checksum and record."""

    mode = "puts"
    bytes = 4 * KIB

    def words(self):
        return super().words() + ["--bytes", self.bytes]

    def run(self, settings, notes):
        kinds = [servers.Daemon] + ([servers.Before] if settings.before else []) + [servers.RawRecorded]
        with self.started(settings, kinds, notes) as running:
            sides = [self.side(settings, "ours" if s.name == "gpubufd" else s.name, s, s.puts_target())
                     for s in running.values()]
            if "gpubufd" in running:
                sides.append(self.side(settings, "own polls", running["gpubufd"], running["gpubufd"].poll_target()))
            measure.interleave(sides, settings.rounds)
        return sides


class PollBesideUploads(Poll):
    """The 99th percentile of polls while four uploads run all the time."""

    unit = "ms"
    lower_is_better = True
    bytes = 64 * MIB
    seconds = 2.0

    def need_bytes(self):
        return 4 * 4 * self.bytes + 512 * MIB

    def turn(self, settings, server):
        beside = server.put_target() + ["--connections", 4, "--bytes", self.bytes, "--expect", "--fresh", "--seconds",
                                        self.seconds + 1]
        with measure.Background(settings, beside) as uploads:
            time.sleep(0.3)  # the uploads have begun; the polls end before they do
            result = measure.load(settings, server.poll_target() + self.words())
            result["uploads"] = uploads.result()
        result["errors"] += result["uploads"]["errors"]
        result["p99_ms"] = result["p99_us"] / 1000
        result["uploads_bytes_per_s"] = result["uploads"]["bytes_per_s"]
        return result

    def extra(self, ours):
        return {"k polls/s": ours.median("requests_per_s") / 1e3, "GB/s up": ours.median("uploads_bytes_per_s") / 1e9}

    def run(self, settings, notes):
        kinds = [servers.Daemon] if settings.device == "cuda" else [servers.Daemon, others.Nginx]
        if settings.before:
            kinds = [servers.Daemon, servers.Before]
        with self.started(settings, kinds, notes) as running:
            sides = [Side("ours" if s.name == "gpubufd" else s.name, s, lambda s=s: self.turn(settings, s), "p99_ms")
                     for s in running.values()]
            measure.interleave(sides, settings.rounds)
        return sides


class Pairs(Case):
    """Create and delete a buffer by name, each durable in the database when it is acknowledged."""

    mode = "pairs"
    unit = "pairs/s"
    connections = 16
    bytes = MIB

    def run(self, settings, notes):
        with self.started(settings, [servers.Daemon] + ([servers.Before] if settings.before else []), notes) as running:
            sides = [Side("ours" if s.name == "gpubufd" else s.name, s, lambda s=s: measure.load(
                settings, s.pairs_target() + ["--connections", self.connections, "--bytes", self.bytes, "--seconds",
                                              2]),
                "requests_per_s") for s in running.values()]
            measure.interleave(sides, settings.rounds)
        return sides


class AllocationCost(Case):
    """The daemon's cost of an allocation and a free, without the requests and their records: pairs of create and delete
    of 4 KiB, less pairs of 0 bytes, which need no memory."""

    mode = "pairs"
    unit = "us"
    lower_is_better = True
    connections = 16

    def turn(self, settings, server, size):
        before = server.cpu_s()
        result = measure.load(settings, server.pairs_target() + ["--connections", self.connections, "--bytes", size,
                                                                 "--seconds", 2])
        result["us"] = 1e6 * (server.cpu_s() - before) / (result["requests_per_s"] * result["seconds"])
        return result

    def run(self, settings, notes):
        with self.started(settings, [servers.Daemon], notes) as running:
            sides = [Side(name, server, lambda size=size: self.turn(settings, server, size), "us")
                     for server in running.values() for name, size in (("ours", 4 * KIB), ("record only", 0))]
            measure.interleave(sides, max(settings.rounds, 5))
            # The column shows the difference; further figures show its two terms.
            self.whole = {side.name: side.median() for side in sides}
            for turn, less in zip(sides[0].turns, sides[1].turns):
                turn["us"] -= less["us"]
        return sides

    def extra(self, ours):
        return {"whole pair": self.whole["ours"]}


class Copy(Case):
    """Copies between two buffers of a device, against a socket server that does a plain copy for each request."""

    mode = "copy"
    unit = "GB/s"
    connections = 1
    bytes = GIB

    def need_bytes(self):
        return 6 * self.bytes

    def turn(self, settings, target):
        result = measure.load(settings, target + ["--connections", 1, "--seconds", 2])
        result["bytes_per_s"] = result["requests_per_s"] * self.bytes
        return result

    def run(self, settings, notes):
        with self.started(settings, [servers.Daemon, servers.Raw], notes) as running:
            ours, raw = running["gpubufd"], running["raw"]
            for name in ("from", "to"):
                ours.make_buffer("bench-" + name, self.bytes)
            plain = {"from": "default/bench-from"}
            sides = [Side("ours", ours, lambda: self.turn(settings, ours.action_target("bench-to", "copy",
                                                                                       in_place=True, **plain))),
                     Side("raw", raw, lambda: self.turn(settings, ["post", "--port", raw.port])),
                     Side("ours, atomic", ours, lambda: self.turn(settings,
                                                                  ours.action_target("bench-to", "copy", **plain)))]
            measure.interleave(sides, settings.rounds)
            path = BUFFERS + "/bench-to/copy"
            self.clock = raw.copy_ms("/", {}) / ours.copy_ms(path, {"in_place": True, **plain})
        return sides

    def extra(self, ours):
        return {"by the device's clock": self.clock}


class SmallCopies(Case):
    """Copies of 4 KiB, one after the other on one connection and one stream, against a request that only changes the
    record."""

    mode = "copy"
    unit = "k/s"
    connections = 1
    bytes = 4 * KIB

    def run(self, settings, notes):
        with self.started(settings, [servers.Daemon], notes) as running:
            ours = running["gpubufd"]
            for name in ("from", "to"):
                ours.make_buffer("bench-" + name, self.bytes)
            words = ["--connections", 1, "--seconds", 1]
            change = ["post", "--port", ours.port, "--path", BUFFERS + "/bench-to", "--method", "PATCH", "--json",
                      '{"labels":{"a":"b"}}']
            copy = ours.action_target("bench-to", "copy", **{"from": "default/bench-from", "in_place": True})
            sides = [Side(name, ours, lambda target=target: measure.load(settings, target + words), "requests_per_s")
                     for name, target in (("ours", copy), ("own PATCH", change), ("own GET", ours.poll_target()))]
            measure.interleave(sides, settings.rounds)
        return sides


class Batch(Case):
    """1,000 copies of 4 KiB in one request, against as many requests one after the other."""

    mode = "copy"
    unit = "k/s"
    bytes = 4 * KIB
    count = 1000

    def run(self, settings, notes):
        with self.started(settings, [servers.Daemon], notes) as running:
            ours = running["gpubufd"]
            ours.make_buffer("bench-from", self.bytes)
            copies = ",".join('{"op":"copy","buffer":"b%d","from":"bench-from"}' % i for i in range(self.count))
            whole = ["post", "--port", ours.port, "--path", BUFFERS.rsplit("/", 1)[0] + "/batch", "--json",
                     '{"operations":[%s]}' % copies]
            single = ours.action_target("b0", "copy", **{"from": "default/bench-from"})

            def turn(target, each):
                result = measure.load(settings, target + ["--connections", 1, "--seconds", 1])
                result["copies_per_s"] = result["requests_per_s"] * each
                return result

            sides = [Side(name, ours, lambda target=target, each=each: turn(target, each), "copies_per_s")
                     for name, target, each in (("ours", whole, self.count), ("one by one", single, 1))]
            measure.interleave(sides, settings.rounds)
        return sides


class Fills(Case):
    """Fills of both halves of one buffer in turn, which build on each other, on one stream: 1,000 in one request, and
    on 16 connections at a time. Beside them fills of as many buffers, and the same work of the device without requests,
    1,000 at a time."""

    mode = "fill"
    unit = "k/s"
    connections = 1
    bytes = 64 * KIB
    count = 1000

    def batch(self, ours, name):
        half = self.bytes // 2
        fills = ",".join(f'{{"op":"fill","buffer":"{name(i)}","pattern":{i % 256},"offset":{i % 2 * half},'
                         f'"bytes":{half}}}' for i in range(self.count))
        return ["post", "--port", ours.port, "--path", BUFFERS.rsplit("/", 1)[0] + "/batch", "--json",
                f'{{"operations":[{fills}]}}']

    def turn(self, settings, target, connections, each):
        result = measure.load(settings, target + ["--connections", connections, "--seconds", 1])
        result["fills_per_s"] = result["requests_per_s"] * each
        return result

    def run(self, settings, notes):
        with self.started(settings, [servers.Daemon, servers.Raw], notes) as running:
            ours, raw = running["gpubufd"], running["raw"]
            for i in range(self.count):
                ours.make_buffer(f"b{i}", self.bytes)
            half = {"pattern": 7, "bytes": self.bytes // 2}
            sides = [Side(name, server, lambda target=target, many=many, each=each: self.turn(settings, target, many,
                                                                                             each), "fills_per_s")
                     for name, server, target, many, each in (
                         ("ours", ours, self.batch(ours, lambda i: "b0"), 1, self.count),
                         ("independent", ours, self.batch(ours, lambda i: f"b{i}"), 1, self.count),
                         ("one by one", ours, ours.action_target("b0", "fill", **half), 16, 1),
                         ("one by one, independent", ours, ours.action_target("b%d", "fill", **half), 16, 1),
                         ("raw", raw, ["post", "--port", raw.port, "--path", "/fills"], 1, self.count))]
            measure.interleave(sides, settings.rounds)
        return sides


def transfers(device):
    many = 8 if device == "cuda" else 4
    put = {"expect": {1: 0.95, many: 0.90}, "at once": {1: 0.90, many: 0.80}}
    get = {"1m": {1: 0.95, many: 0.95}, "64m": {1: 0.95, many: 0.95}, "1g": {1: 0.95, many: 0.90}}
    recorded = {1: 0.90, many: 0.95}
    # Body size, and requests of each connection in a turn: about a second of work.
    sizes = [("64m", "64 MiB", 64 * MIB, {1: 32, many: 12}), ("1g", "1 GiB", GIB, {1: 3, many: 2})]
    for size, text, size_bytes, requests in sizes:
        for way, short in (("expect", "expect"), ("at once", "once")):
            for n in (1, many):
                targets = {"raw": put[way][n], "nginx": 2, "redis": 2, "aiohttp": 3}
                yield Transfer(f"put{size}-{short}-x{n}", f"PUT {text}, {way}, x{n}", targets, mode="put",
                               connections=n, bytes=size_bytes, requests=requests[n], expect=short == "expect")
    for n in (1, many):
        yield Transfer(f"put1m-expect-x{n}", f"PUT 1 MiB, expect, x{n}", {"raw": 0.85}, mode="put", connections=n,
                       bytes=MIB, requests=2000 // n, expect=True)
    for n in (1, many):
        yield Transfer(f"put1m-once-x{n}", f"PUT 1 MiB, at once, x{n}", {"raw": 0.85, "raw-recorded": recorded[n]},
                       mode="put", connections=n, bytes=MIB, seconds=1, limits={"CPU ours / recorded": 1.3})
    for size, text, size_bytes in (("64k", "64 KiB", 64 * KIB), ("4k", "4 KiB", 4 * KIB)):
        for n in (1, many):
            yield Transfer(f"put{size}-once-x{n}", f"PUT {text}, at once, x{n}", {"raw-recorded": recorded[n]},
                           mode="put", connections=n, bytes=size_bytes, seconds=1, unit="k/s")
    for n in (1, many):
        yield Transfer(f"get1m-x{n}", f"GET 1 MiB, x{n}", {"raw": get["1m"][n]}, mode="get", connections=n, bytes=MIB,
                       seconds=1)
    for size, text, size_bytes, requests in sizes:
        for n in (1, many):
            targets = {"raw": get[size][n], "nginx": 1, "aiohttp": 8}
            yield Transfer(f"get{size}-x{n}", f"GET {text}, x{n}", targets, mode="get", connections=n, bytes=size_bytes,
                           requests=requests[n])
    for mode, what in (("put", "PUT"), ("get", "GET")):
        for n in (1, many):
            yield Transfer(f"unix-{mode}64m-x{n}", f"{what} 64 MiB, UNIX socket, x{n}",
                           {"raw": 0.95 if n == 1 else 0.9}, mode=mode, connections=n, bytes=64 * MIB,
                           requests={1: 32, many: 12}[n], unix=True)


def all_cases(device):
    cases = list(transfers(device))
    cases.append(Poll("poll", "GET /v1/stats, 64 connections", {"libmicrohttpd": 0.8, "nginx": 1, "aiohttp": 5}))
    cases.append(NotModified("poll304", "304 of the statistics, 64 connections", {"libmicrohttpd": 0.95, "own 200": 1}))
    cases.append(Pipeline("pipeline", "PUT 4 KiB, 64 connections", {"own polls": 0.6}))
    cases.append(PollBesideUploads("p99", "p99 of polls beside 4 uploads", {"ours": 20}))
    cases.append(Pairs("pairs", "create + delete 1 MiB, 16 connections", {"ours": 3000}))
    cases.append(AllocationCost("alloc", "CPU of an allocation and a free", {"ours": 5}))
    cases.append(Copy("copy1g", "copy of 1 GiB on the device", {"raw": 0.95, "by the device's clock": 0.95}))
    cases.append(SmallCopies("copy4k", "copies of 4 KiB on one stream", {}))
    cases.append(Batch("batch", "1,000 copies of 4 KiB in one request", {"one by one": 3}))
    cases.append(Fills("fills", "1,000 fills of halves of 64 KiB that build on each other, in one request",
                       {"independent": 0.9}))
    return cases
