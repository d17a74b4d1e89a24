"""A safetensors file of many tensors against one body of the same size, up and down."""
import json
import os
import struct
import urllib.request

from . import measure, servers
from .cases import MIB, Case
from .measure import Side

TENSORS = "/v1/sessions/default/tensors"


def write_file(path, count, size):
    """`count` float32 tensors that make a file of about `size` bytes. Returns how many it has."""
    each = size // count // 4 * 4
    header = {f"layer.{i}.weight": {"dtype": "F32", "shape": [each // 4], "data_offsets": [i * each, (i + 1) * each]}
              for i in range(count)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    block = os.urandom(MIB)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        left = count * each
        while left > 0:
            left -= f.write(block[:left])
        return f.tell()


class Tensors(Case):
    requests = 8
    tensors = 200

    def need_bytes(self):
        return 5 * self.bytes + 512 * MIB

    def turn(self, settings, target, size):
        words = ["--connections", 1, "--bytes", size, "--requests", self.requests]
        return lambda: measure.load(settings, target + words)

    def put_words(self, ours, path, body):
        return ["put", "--port", ours.port, "--path", path, "--body", body, "--expect"]

    def get_words(self, ours, path):
        return ["get", "--port", ours.port, "--path", path]

    def length(self, ours, path):
        head = urllib.request.Request(f"http://127.0.0.1:{ours.port}{path}", method="HEAD")
        with urllib.request.urlopen(head) as answer:
            return int(answer.headers["Content-Length"])

    def run(self, settings, notes):
        body = os.path.join(settings.work, "tensors.safetensors")
        size = write_file(body, self.tensors, self.bytes)
        one = servers.BUFFERS + "/bench-one/data?format=raw"
        with self.started(settings, [servers.Daemon], notes) as running:
            ours = running["gpubufd"]
            put = {"ours": self.put_words(ours, TENSORS, body), "one body": self.put_words(ours, one, body)}
            if self.mode == "put":
                sides = [Side(name, ours, self.turn(settings, words, size)) for name, words in put.items()]
            else:
                for words in put.values():
                    measure.load(settings, words + ["--bytes", size, "--requests", 1])
                paths = {"ours": TENSORS + "?prefix=layer", "one body": one}
                sides = [Side(name, ours, self.turn(settings, self.get_words(ours, path), self.length(ours, path)))
                         for name, path in paths.items()]
            measure.interleave(sides, settings.rounds)
        os.unlink(body)
        return sides


def tensor_cases():
    for mode, what in (("put", "PUT"), ("get", "GET")):
        yield Tensors(f"tensors-{mode}", f"{what} 200 tensors, 64 MiB", {"one body": 0.95}, mode=mode, bytes=64 * MIB,
                      requests=16)
        yield Tensors(f"tensors-{mode}-1g", f"{what} 200 tensors, 1 GiB", {"one body": 0.95}, mode=mode,
                      bytes=1024 * MIB, requests=2)
