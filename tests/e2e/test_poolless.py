"""A device without memory pools, as older Jetsons are, beside one that has them."""
import json
import subprocess

import pytest

from conform import Session
from harness import SLOT, SMALL_SLOTS, binary
from values import payload

WHY = "the device has no memory pools"


@pytest.fixture(params=[0, 1])
def beside(request, start, backend):
    """.none is the device without pools."""
    if not backend.startswith("host"):
        pytest.skip("the host backend plays such a device")
    spec = backend + ("," if ":" in backend else ":") + f"devices=2,bytes=64M,poolless={request.param}"
    s = Session(start(*SMALL_SLOTS, spec=spec))
    s.none, s.spec = request.param, spec
    return s


def own(device):
    return "default" if device == 0 else f"default.{device}"


def test_the_table_says_why(beside):
    for i, d in enumerate(beside.get("/v1/devices")["items"]):
        pools, kind = d["capabilities"]["memory_pools"], d["kinds"]["device"]
        assert pools["available"] is kind["supported"] is (i != beside.none)
        if i == beside.none:
            assert pools["reason"] == kind["reason"] == WHY and d["kinds"]["ipc"]["supported"]


@pytest.mark.parametrize("device", [0, 1])
def test_a_buffer_without_a_kind(beside, device):
    body = payload(5 * SLOT + 7)
    meta = beside.put("x", body, f"?device={device}")
    assert (meta["kind"], meta["device"]["index"]) == ("ipc" if device == beside.none else "device", device)
    assert beside.data("x") == body
    beside.put("x", b"hello", f"?offset={SLOT}")
    assert beside.data("x") == body[:SLOT] + b"hello" + body[SLOT + 5:]
    assert beside.buffer("z", bytes=100, device=device)["kind"] == meta["kind"]
    assert beside.data("z") == bytes(100)
    beside.copy("y", "x", 201)
    assert beside.meta("y")["kind"] == meta["kind"]


def test_what_needs_a_pool_is_refused_with_the_reason(beside):
    device, pool = beside.none, own(beside.none)

    def refused(method, path, body=None):
        problem = beside.ask(method, path, body).problem(501, "unsupported")
        assert WHY in problem["detail"] and '"ipc"' in problem["detail"]

    refused("PATCH", f"pools/{pool}", {"release_threshold_bytes": 0})
    refused("POST", "buffers", {"name": "x", "bytes": 10, "kind": "device", "device": device})
    refused("POST", "buffers", {"name": "x", "bytes": 10, "mirrored": True, "device": device})
    refused("PUT", f"buffers/x/data?kind=device&device={device}", b"1")
    refused("PUT", f"buffers/x/data?mirrored=true&device={device}", b"1")
    refused("PUT", f"buffers/x/data?pool={pool}", b"1")
    refused("POST", "pools", {"name": "p", "device": device})
    refused("GET", f"pools/{pool}")
    refused("GET", f"pools/{pool}/stats")
    refused("POST", f"pools/{pool}/trim", {})
    refused("POST", f"pools/{pool}/reset-peak")
    refused("POST", f"pools/{pool}/access", {"device": 1 - device, "access": "read_write"})
    refused("DELETE", f"pools/{pool}")
    beside.post("pools", {"name": "p", "device": 1 - device}, 201)


def test_statistics_leave_its_pool_out(beside):
    there = own(1 - beside.none)
    beside.put("x", b"1", f"?device={beside.none}")
    assert beside.names("pools") == [there]
    assert [p["name"] for p in beside.get("/v1/stats")["pools"]] == [there]
    stats = beside.get(f"/v1/devices/{beside.none}/stats")
    assert (stats["pools"], stats["reserved_bytes"], stats["pools_used_bytes"]) == (0, 0, 0) and stats["allocations"]["count"] == 1
    text = beside.daemon.ask("GET", "/metrics").body.decode()
    assert f'gpubufd_pool_used_bytes{{pool="{there}"' in text and f'pool="{own(beside.none)}"' not in text
    beside.ask("GET", "/v1/snapshot").expect(200)
    beside.ask("GET", "/v1/allocations").expect(200)
    beside.ask("POST", f"/v1/devices/{beside.none}/sync").expect(204)


def test_the_selftest_measures_it(beside):
    for device in (0, 1):
        out = subprocess.run([binary(), "selftest", "--device", str(device), "--json", "--backend", beside.spec],
                             capture_output=True, text=True, timeout=120)
        assert out.returncode == 0, out.stderr
        rows = json.dumps(json.loads(out.stdout))
        assert (WHY in rows) is (device == beside.none)
