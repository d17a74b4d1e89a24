"""NVIDIA Triton reads and writes exported bytes. It runs where GB_E2E_TRITON names the folder of an unpacked wheel of
nvidia-pytriton, which has a tritonserver with its Python backend, and CUDA is there."""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from conform import Session
from harness import until
from ports import free_port

np = pytest.importorskip("numpy")

WHEEL = os.environ.get("GB_E2E_TRITON", "")
COUNT = 1 << 20
CONFIG = """
backend: "python"
max_batch_size: 0
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
MODEL = """
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        # As DLPack: of an array of numpy 2 this Triton's stub takes 0 bytes.
        given = [np.from_dlpack(pb.get_input_tensor_by_name(r, "IN")) for r in requests]
        return [pb.InferenceResponse([pb.Tensor.from_dlpack("OUT", x * 2 + 1)]) for x in given]
"""


class Triton:
    def __init__(self, folder):
        server = os.path.join(WHEEL, "pytriton", "tritonserver")
        backends = folder / "backends"
        shutil.copytree(os.path.join(server, "backends"), backends)
        stubs = os.path.join(server, "python_backend_stubs", "%d.%d" % sys.version_info[:2])
        stub = shutil.copy(os.path.join(stubs, "triton_python_backend_stub"), backends / "python")
        os.chmod(stub, 0o755)
        version = folder / "models" / "affine" / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(MODEL)
        (version.parent / "config.pbtxt").write_text('name: "affine"\n' + CONFIG)
        self.log_path = folder / "log"
        self.url = f"http://127.0.0.1:{(port := free_port())}/v2/"
        binary = shutil.copy(os.path.join(server, "bin", "tritonserver"), folder)
        os.chmod(binary, 0o755)
        libraries = os.path.join(WHEEL, "nvidia_pytriton.libs")
        paths = os.pathsep.join(p for p in sys.path if p)
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(
                [binary, "--model-repository", version.parent.parent, "--backend-directory", backends, "--http-port",
                 str(port), "--http-address", "127.0.0.1", "--allow-grpc", "false", "--allow-metrics", "false"],
                stdout=log, stderr=log,
                env={**os.environ, "PYTHONPATH": paths, "LD_LIBRARY_PATH": libraries})

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(self.url + path, data, timeout=60) as r:
            return json.loads(r.read() or b"{}")

    def is_ready(self):
        assert self.process.poll() is None, self.log_path.read_text()
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            self.ask("models/affine/ready")
            return True
        return False

    def regions(self):
        return {r["name"]: r["byte_size"] for r in self.ask("cudasharedmemory/status")}

    def infer(self):
        def shared(name, region):
            parameters = {"shared_memory_region": region, "shared_memory_byte_size": 4 * COUNT}
            return {"name": name, "parameters": parameters}

        return self.ask("models/affine/infer", {
            "inputs": [{**shared("IN", "in"), "datatype": "FP32", "shape": [COUNT]}],
            "outputs": [shared("OUT", "out")]})


@pytest.fixture
def triton(tmp_path, backend):
    if not WHEEL or not backend.startswith("cuda"):
        pytest.skip("it needs CUDA and a Triton: GB_E2E_TRITON names a folder of nvidia-pytriton")
    server = Triton(tmp_path)
    try:
        until("Triton is ready", server.is_ready)
        yield server
    finally:
        server.process.terminate()
        server.process.wait(60)


def test_it_reads_and_writes_our_bytes(start, triton):
    s = Session(start())
    s.client = s.daemon.client(unix=True)
    given = np.random.default_rng(1).random(COUNT, np.float32)
    s.put("x", given.tobytes(), "?kind=ipc&dtype=float32")
    s.put("y", bytes(4 * COUNT), "?kind=ipc&dtype=float32")
    exports = {"in": s.ask("POST", "buffers/x/export").expect(200).json(),
               "out": s.ask("POST", "buffers/y/export", {"mode": "write"}).expect(200).json()}
    for name, export in exports.items():
        triton.ask(f"cudasharedmemory/region/{name}/register", export)
    assert triton.regions() == {"in": 4 * COUNT, "out": 4 * COUNT}
    answer, = triton.infer()["outputs"]
    assert answer["name"] == "OUT" and answer["shape"] == [COUNT] and "data" not in answer
    assert np.array_equal(np.frombuffer(s.data("y"), np.float32), given * 2 + 1)
    assert s.data("x") == given.tobytes()
    # What Triton maps is the memory: an upload in place is what it reads next.
    s.ask("PUT", "buffers/x/data?in_place=true", np.ones(COUNT, np.float32).tobytes()).problem(409, "mapped")
    for name, export in exports.items():
        triton.ask(f"cudasharedmemory/region/{name}/unregister", {})
        s.ask("DELETE", "/v1/leases/" + export["lease"]).expect(204)
    assert triton.regions() == {} and s.meta("x")["leases"] == s.meta("y")["leases"] == 0
    s.ask("PUT", "buffers/x/data?in_place=true", np.ones(COUNT, np.float32).tobytes()).expect(200)
    assert np.array_equal(np.frombuffer(s.data("y"), np.float32), given * 2 + 1)
