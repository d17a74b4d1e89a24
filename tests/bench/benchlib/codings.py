"""Uploads in a content coding, and with a digest: their cost beyond the library's own work."""
import array
import base64
import gzip
import hashlib
import os
import random
import shutil
import struct
import subprocess

from . import measure, servers
from .cases import MIB, Case
from .measure import Side


def tensor(path, size):
    """Weights as bfloat16 would hold them, in float32: two bytes of four are zero, the others nearly random."""
    chance = random.Random(1)
    words = array.array("I", (struct.unpack("I", struct.pack("f", chance.gauss(0, 0.02)))[0] & 0xFFFF0000
                              for _ in range(MIB)))
    with open(path, "wb") as f:
        for _ in range(size // (4 * MIB)):
            f.write(words)


def encode(settings, what, plain):
    """The file that is sent and the line of the head that goes with it."""
    if what == "gzip":
        with open(plain, "rb") as f, gzip.open(plain + ".gz", "wb", 1) as out:
            shutil.copyfileobj(f, out, MIB)
        return plain + ".gz", "Content-Encoding: gzip"
    if what == "zstd":
        if not shutil.which("zstd"):
            raise servers.Missing("there is no program zstd")
        subprocess.run(["zstd", "-q", "-f", plain, "-o", plain + ".zst"], check=True)
        return plain + ".zst", "Content-Encoding: zstd"
    with open(plain, "rb") as f:
        digest = hashlib.new(what.replace("-", ""), f.read()).digest()
    return plain, f"Content-Digest: {what}=:{base64.b64encode(digest).decode()}:"


class Coded(Case):
    """Decoded bytes for each second of the server's CPU time; client and server overlap, so wall time alone says
    little. The ceiling is the CPU time of a plain upload of the sent bytes, plus that of the library alone."""

    mode = "put"
    bytes = 64 * MIB
    requests = 8

    def turn(self, settings, server, body, header):
        words = ["--path", f"{servers.BUFFERS}/bench-0/data?shape={self.bytes if header else os.path.getsize(body)}"]
        words += ["--body", body, "--bytes", os.path.getsize(body), "--requests", self.requests, "--expect"]
        before = server.cpu_s()
        result = measure.load(settings, ["put", "--port", server.port] + words
                              + (["--header", header] if header else []))
        result["cpu_s"] = server.cpu_s() - before
        return self.decoded(result)

    def decoded(self, result):
        result["bytes"] = result["requests"] * self.bytes
        result["bytes_per_s"] = result["bytes"] / result["seconds"]
        result["bytes_per_cpu_s"] = result["bytes"] / result["cpu_s"]
        return result

    def library(self, settings, server, body):
        result = measure.run_program([settings.program("gb-bench-codec"), self.what, body, self.bytes, self.requests])
        plain = self.turn(settings, server, body, None)
        self.alone.append(result["bytes_per_s"])
        for key in ("seconds", "cpu_s", "errors"):
            result[key] += plain[key]
        return self.decoded(result)

    def run(self, settings, notes):
        plain = os.path.join(settings.work, "coded")
        self.alone = []
        with self.started(settings, [servers.Daemon], notes) as running:
            ours = running["gpubufd"]
            tensor(plain, self.bytes)
            try:
                body, header = encode(settings, self.what, plain)
            except servers.Missing as why:
                raise measure.TurnFailed(str(why)) from None
            sides = [Side("ours", ours, lambda: self.turn(settings, ours, body, header), "bytes_per_cpu_s"),
                     Side("raw", ours, lambda: self.library(settings, ours, body), "bytes_per_cpu_s")]
            measure.interleave(sides, settings.rounds)
        return sides

    def extra(self, ours):
        return {"speed, of the library's alone": ours.median("bytes_per_s") / sorted(self.alone)[len(self.alone) // 2]}


def coded_cases():
    for what in ("gzip", "zstd", "sha-256", "sha-512"):
        yield Coded("coded-" + what, f"PUT 64 MiB, {what}", {"raw": 0.95}, what=what)
