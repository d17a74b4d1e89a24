"""The cases of TLS: the daemon, the raw server and nginx over TLS 1.3 with AES-128-GCM, with the same certificate."""
import re
import subprocess
import time

from . import measure, others, servers
from .cases import KIB, MIB, Case, Poll, Transfer
from .measure import Side


def kinds_of(settings):
    return [servers.Daemon] + ([servers.Before] if settings.before else []) + [servers.Raw, others.Nginx]


def name_of(server):
    return "ours" if server.name == "gpubufd" else server.name


class TlsTransfer(Transfer):
    """Uploads or downloads at once over TLS, and the daemon's own without it."""

    tls = True
    fair = Transfer.fair + ("nginx",)

    def recorded(self):
        return False

    def kinds(self, settings):
        return kinds_of(settings)

    def targets_of(self, running):
        for server in running.values():
            words = server.get_target() if self.mode == "get" else server.put_target()
            yield name_of(server), server, words
            if server.name == "gpubufd":
                yield "own plain", server, server.plain(words)

    def extra(self, ours):
        """The CPU time of the servers for a request."""
        figures = {"CPU us of a request": self.cpu_us["ours"], "raw's": self.cpu_us.get("raw"),
                   "nginx's": self.cpu_us.get("nginx"), "plain's": self.cpu_us.get("own plain")}
        return {name: value for name, value in figures.items() if value is not None}


class TlsPoll(Poll):
    """Polls over TLS, beside as many bytes from nginx and beside the daemon's own without TLS."""

    tls = True

    def run(self, settings, notes):
        kinds = [servers.Daemon] + ([servers.Before] if settings.before else []) + [others.Nginx]
        with self.started(settings, kinds, notes) as running:
            sides = [self.side(settings, name_of(s), s, s.poll_target()) for s in running.values()]
            if "gpubufd" in running:
                ours = running["gpubufd"]
                sides.append(self.side(settings, "own plain", ours, ours.plain(ours.poll_target())))
            measure.interleave(sides, settings.rounds)
        self.cpu_us = {side.name: side.cpu_us_per_request() for side in sides}
        return sides

    def extra(self, ours):
        figures = {"CPU us of a poll": self.cpu_us["ours"], "nginx's": self.cpu_us.get("nginx"),
                   "plain's": self.cpu_us.get("own plain")}
        return {name: value for name, value in figures.items() if value is not None}


class Handshakes(Case):
    """New connections, each with one GET of 1 KiB, by many threads: all handshakes in full, or all resumed."""

    mode = "get"
    unit = "k/s"
    tls = True
    resume = False
    connections = 16
    bytes = KIB
    seconds = 1.0

    def kinds(self, settings):
        return kinds_of(settings)

    def turn(self, settings, server):
        words = server.get_target() + ["--connections", self.connections, "--bytes", self.bytes, "--seconds",
                                       self.seconds, "--fresh"]
        result = measure.load(settings, words + (["--resume"] if self.resume else []))
        # The first connection of each thread has nothing to resume.
        expected = max(0, result["connects"] - self.connections) if self.resume else 0
        if not result["errors"] and result["resumed"] != expected:
            result["errors"] = abs(expected - result["resumed"])
            result["problem"] = f"{result['resumed']} of {result['connects']} connections were resumed"
        del result["bytes"]  # the time for a GiB says nothing here
        return result

    def run(self, settings, notes):
        with self.started(settings, self.kinds(settings), notes) as running:
            for server in running.values():
                server.prepare_get(lambda words: measure.load(settings, words))
            sides = [Side(name_of(s), s, lambda s=s: self.turn(settings, s), "requests_per_s")
                     for s in running.values()]
            measure.interleave(sides, settings.rounds)
        self.cpu_us = {side.name: side.cpu_us_per_request() for side in sides}
        return sides

    def extra(self, ours):
        figures = {"CPU us of a connection": self.cpu_us["ours"], "raw's": self.cpu_us.get("raw"),
                   "nginx's": self.cpu_us.get("nginx")}
        return {name: value for name, value in figures.items() if value is not None}


class OpensslTime(Handshakes):
    """The same by `openssl s_time`, another client than ours: as many of them at once, one connection after the other,
    each with one GET over HTTP/1.0, which the server ends."""

    connections = 2
    seconds = 2

    def kinds(self, settings):
        return [servers.Daemon] + ([servers.Before] if settings.before else []) + [others.Nginx]

    def turn(self, settings, server):
        words = server.get_target()
        path = words[words.index("--path") + 1].replace("%d", "0")
        command = [servers.system_program("openssl", "openssl"), "s_time", "-connect", f"127.0.0.1:{server.tls_port}",
                   "-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256", "-www", path, "-time", str(self.seconds),
                   "-reuse" if self.resume else "-new"]
        began = time.monotonic()
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                    preexec_fn=servers.die_with_parent)
                   for _ in range(self.connections)]
        said = [p.communicate(timeout=measure.TURN_TIMEOUT_S)[0] for p in running]
        seconds = time.monotonic() - began
        done = [re.search(r"^(\d+) connections in (\d+) real seconds, (\d+) bytes", text, re.M) for text in said]
        if any(p.returncode for p in running) or not all(done):
            raise measure.TurnFailed(f"openssl s_time: {said[0][-200:]!r}")
        connects, read = sum(int(m[1]) for m in done), min(int(m[3]) for m in done)
        resumed = sum(len(re.findall("r", mark)) for text in said for mark in re.findall(r"^[rt*]+$", text, re.M))
        wrong = read < self.bytes or (resumed < connects if self.resume else resumed > 0)
        return {"requests_per_s": connects / seconds, "seconds": seconds, "errors": int(wrong),
                "problem": f"{resumed} of {connects} connections were resumed, each read {read} bytes"}


def tls_cases():
    aims = {"raw": 0.9, "nginx": 1}
    for mode, what in (("put", "PUT"), ("get", "GET")):
        for n, requests in ((1, 16), (4, 8)):
            yield TlsTransfer(f"tls-{mode}64m-x{n}", f"{what} 64 MiB over TLS, x{n}", aims, mode=mode, connections=n,
                              bytes=64 * MIB, requests=requests)
    for n in (1, 8):
        yield TlsTransfer(f"tls-put1m-x{n}", f"PUT 1 MiB over TLS, x{n}", {}, mode="put", connections=n, bytes=MIB,
                          seconds=1)
    yield TlsPoll("tls-poll", "GET /v1/stats over TLS, 64 connections", {"nginx": 0.9})
    yield Handshakes("tls-handshake-full", "new TLS connections, 16 threads", {})
    yield Handshakes("tls-handshake-resumed", "resumed TLS connections, 16 threads", {}, resume=True)
    yield OpensslTime("tls-s_time-new", "openssl s_time -new, 2 clients", {})
    yield OpensslTime("tls-s_time-reuse", "openssl s_time -reuse, 2 clients", {}, resume=True)
