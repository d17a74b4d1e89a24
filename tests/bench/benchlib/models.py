"""Models: one buffer of many tensors against a plain buffer of the same bytes, links, and the time until a new process
has all tensors."""
import json
import os
import subprocess
import sys

from . import measure, servers
from .cases import GIB, MIB, Case
from .measure import Side
from .servers import BUFFERS
from .tensors import write_file

HERE = os.path.dirname(os.path.abspath(__file__))
CHILD = os.path.join(HERE, "..", "python_model.py")
TENSORS = 129  # of a Llama-like model


class Whole(Case):
    """The file of a model up or down, beside the same bytes as a plain buffer."""

    bytes = 256 * MIB
    requests = 4

    def need_bytes(self):
        return 5 * self.bytes + 512 * MIB

    def run(self, settings, notes):
        body = os.path.join(settings.work, "model.safetensors")
        size = write_file(body, TENSORS, self.bytes)
        words = ["--connections", 1, "--bytes", size, "--requests", self.requests]
        with self.started(settings, [servers.Daemon], notes) as running:
            ours = running["gpubufd"]
            paths = {"ours": BUFFERS + "/bench-model/data", "plain buffer": BUFFERS + "/bench-plain/data?format=raw"}
            put = {name: ["put"] + ours.where() + ["--path", path, "--body", body] for name, path in paths.items()}
            if self.mode == "get":
                for target in put.values():
                    measure.load(settings, target + ["--connections", 1, "--bytes", size, "--requests", 1])
            targets = put if self.mode == "put" else {name: ["get"] + ours.where() + ["--path", path]
                                                      for name, path in paths.items()}
            sides = [Side(name, ours, lambda target=target: measure.load(settings, target + words))
                     for name, target in targets.items()]
            measure.interleave(sides, settings.rounds)
        os.unlink(body)
        return sides


class Link(Case):
    """The name of the current version is switched, beside a request that changes a label."""

    unit = "k/s"
    bytes = 64 * MIB

    def extra(self, ours):
        return {"ms each": 1e3 / ours.median("requests_per_s")}

    def run(self, settings, notes):
        with self.started(settings, [servers.Daemon], notes) as running:
            ours = running["gpubufd"]
            ours.make_buffer("bench-v1", self.bytes)
            ours.ask(f"{BUFFERS}/bench-v1/seal", {})
            words = ["--connections", 1, "--seconds", 1]
            link = ours.action_target("bench-current", "copy", **{"from": "bench-v1", "share": True})
            label = ["post", "--port", ours.port, "--path", BUFFERS + "/bench-current", "--method", "PATCH", "--json",
                     '{"labels":{"a":"b"}}']
            sides = [Side(name, ours, lambda target=target: measure.load(settings, target + words), "requests_per_s")
                     for name, target in (("ours", link), ("own PATCH", label))]
            measure.interleave(sides, settings.rounds)
        return sides


class Take(Case):
    """A new process takes all tensors: from the file in the page cache by safetensors, and by one map of the buffer."""

    unit = "k/s"
    unix = True
    bytes = GIB
    tensors = TENSORS

    def need_bytes(self):
        return 3 * self.bytes + 512 * MIB

    def extra(self, ours):
        return {"ms": 1e3 / ours.median("requests_per_s"), "ms until the names are there": 1e3 * ours.median("opened")}

    def child(self, settings, way, where):
        done = subprocess.run([settings.python or sys.executable, CHILD, way, where, settings.device], text=True,
                              capture_output=True, check=False)
        if done.returncode != 0:
            raise measure.TurnFailed(f"{way}: {done.stderr[-500:]}")
        took = json.loads(done.stdout)
        return {"requests_per_s": 1 / took["seconds"], "seconds": took["seconds"], "opened": took["opened"],
                "errors": 0}

    def run(self, settings, notes):
        body = os.path.join(settings.work, "model.safetensors")
        size = write_file(body, self.tensors, self.bytes)
        with self.started(settings, [servers.Daemon], notes) as running:
            ours = running["gpubufd"]
            measure.load(settings, ["put"] + ours.where() + [
                "--path", BUFFERS + "/bench-model/data?kind=shared", "--body", body, "--bytes", size, "--requests", 1])
            sides = [Side(name, ours, lambda way=way, where=where: self.child(settings, way, where), "requests_per_s")
                     for name, way, where in (("ours", "map", ours.socket()), ("safetensors", "load_file", body))]
            measure.interleave(sides, settings.rounds)
        os.unlink(body)
        return sides


def model_cases(device):
    yield Whole("model-put", "PUT a model of 129 tensors, 256 MiB", {"plain buffer": 0.95}, mode="put")
    yield Whole("model-get", "GET it", {"plain buffer": 0.95}, mode="get")
    yield Link("model-link", "switch a link", {"own PATCH": 0.8}, limits={"ms each": 1})
    yield Take("model-map", "a process takes 129 tensors, 1 GiB", {"safetensors": 10}, limits={"ms": 5})
    yield Take("model-map-30k", "a process takes 30,000 tensors, 1 GiB", {"safetensors": 2}, tensors=30000,
               limits={"ms until the names are there": 100})
