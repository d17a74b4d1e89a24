"""A device without memory pools, as older Jetsons are, beside one that has them."""
import json
import subprocess

import pytest

from conform import Session
from harness import SLOT, SMALL_SLOTS, binary, until
from owning import Owned, Owner
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
        assert (problem["cuda"]["name"], problem["cuda"]["code"]) == ("cudaErrorNotSupported", 801)
        assert problem["cuda"]["call"] == "cudaMallocFromPoolAsync"

    refused("PATCH", f"pools/{pool}", {"release_threshold_bytes": 0})
    refused("POST", "buffers", {"name": "x", "bytes": 10, "kind": "device", "device": device})
    refused("POST", "buffers", {"name": "x", "bytes": 10, "mirrored": True, "kind": "device", "device": device})
    refused("PUT", f"buffers/x/data?kind=device&device={device}", b"1")
    refused("PUT", f"buffers/x/data?mirrored=true&kind=device&device={device}", b"1")
    refused("PUT", f"buffers/x/data?mirrored=true&pool={pool}", b"1")
    refused("PUT", f"buffers/x/data?pool={pool}", b"1")
    refused("POST", "pools", {"name": "p", "device": device})
    refused("GET", f"pools/{pool}")
    refused("GET", f"pools/{pool}/stats")
    refused("POST", f"pools/{pool}/trim", {})
    refused("POST", f"pools/{pool}/reset-peak")
    refused("POST", f"pools/{pool}/access", {"device": 1 - device, "access": "read_write"})
    refused("DELETE", f"pools/{pool}")
    beside.post("pools", {"name": "p", "device": 1 - device}, 201)


SIZE = 3 * SLOT + 7
A, B = payload(SIZE, 1), payload(SIZE, 2)


@pytest.fixture
def m(beside):
    """With a mirrored buffer m on the device without pools."""
    meta = beside.buffer("m", bytes=SIZE, mirrored=True, device=beside.none)
    assert (meta["kind"], meta["pool"], meta["head"]) == ("ipc", None, "uninitialized")
    return beside


def test_the_device_side_is_of_the_devices_own_memory(m):
    """As the two classes, whose device side is cudaMalloc's."""
    side = {"bytes": SIZE, "current": True, "owned": True}
    generation = m.meta("m")["generation"]
    r = m.post("buffers/m/sync", {"to": "device"})  # to_gpu from UNINITIALIZED: allocate, zero, the head is there
    assert (r["copied"], r["head"], r["generation"], r["kind"]) == (False, "device", generation, "ipc")
    assert r["sides"]["device"] == side and m.data("m") == bytes(SIZE)
    assert m.attributes("m")["memory_type"] == "device" and m.attributes("m")["device_address"]
    m.put("m", A, status=200)
    assert m.post("buffers/m/sync", {"to": "device"})["copied"] and m.data("m") == A
    assert m.post("buffers/m/release", {"side": "host"})["head"] == "device" and m.data("m") == A
    m.put("m", b"hello", f"?offset={SLOT}&side=device", 200)
    m.fill("m", 7, offset=0, bytes=SLOT)
    assert m.post("buffers/m/sync", {"to": "host"})["copied"]
    assert m.data("m") == b"\7" * SLOT + b"hello" + A[SLOT + 5:]
    m.put("m", B, "?side=device", 200)
    m.copy("out", "m", 201)
    assert m.data("out") == B and m.meta("out")["kind"] == "ipc" and m.meta("m")["kind"] == "ipc"
    m.post("buffers/m/release", {"side": "all"})
    m.delete("buffers/out")
    until("it is freed", lambda: m.get("")["used_bytes"] == 0)


def test_by_its_first_upload(beside):
    meta = beside.put("m", A, f"?mirrored=true&device={beside.none}")
    assert (meta["kind"], meta["pool"], meta["head"]) == ("ipc", None, "host")
    meta = beside.put("d", A, f"?mirrored=true&side=device&device={beside.none}")
    assert (meta["kind"], meta["head"]) == ("ipc", "device") and beside.data("d") == A
    there = beside.put("p", A, f"?mirrored=true&device={1 - beside.none}")
    assert (there["kind"], there["pool"]) == ("device", own(1 - beside.none))
    for query in (f"kind=ipc&device={1 - beside.none}", f"kind=managed&device={beside.none}", "kind=pinned"):
        p = beside.ask("PUT", f"buffers/x/data?mirrored=true&{query}", b"1").problem(400, "invalid_argument")
        assert "a mirrored buffer of device" in p["detail"]
    assert beside.put("i", A, f"?mirrored=true&kind=ipc&device={beside.none}")["kind"] == "ipc"


def test_a_side_of_it_is_adopted(m):
    with Owner(m.daemon.unix) as owner, Owned(SIZE, A) as memory:
        info = owner.adopt("m", [memory.fd], m.name, bytes=SIZE, side="host").json()
        assert (info["head"], info["kind"], info["device"]["index"]) == ("host", "ipc", m.none)
        assert owner.adopt("n", [memory.fd], m.name, bytes=SIZE, side="host", device=m.none).json()["pool"] is None
        assert m.post("buffers/m/sync", {"to": "device"})["copied"]
    until("the owner is gone", lambda: not m.meta("m")["adopted"])
    assert (m.meta("m")["head"], m.data("m")) == ("device", A)


def test_a_durable_one(start, simulated, tmp_path):
    """Its device had pools when it was stored."""
    s = Session(start("--disk-reserve", "0", spec=simulated("bytes=64M"), state=str(tmp_path)))
    assert s.put("m", A, "?mirrored=true&durability=sync")["kind"] == "device"
    s.ask("POST", "checkpoints", {"name": "c"}).expect(201)
    s.daemon.kill()
    s = Session(start("--disk-reserve", "0", spec=simulated("bytes=64M,poolless=0"), state=str(tmp_path)), s.name)
    assert s.meta("m")["state"] == "stored"
    loaded = s.post("buffers/m/load")
    assert (loaded["kind"], loaded["head"], s.data("m")) == ("ipc", "device", A)
    s.delete("buffers/m")
    s.ask("POST", "/v1/checkpoints/c/restore", {}).expect(200)
    assert (s.meta("m")["kind"], s.meta("m")["pool"], s.data("m")) == ("ipc", None, A)


def test_a_side_of_it_grows(m):
    """On a device of 64 MiB. Memory that is not kept is freed first."""
    mib = 1 << 20
    for size in (40, 60):
        m.post("buffers/m/reserve", {"bytes": size * mib, "side": "device"})
    p = m.ask("POST", "buffers/m/reserve", {"bytes": 65 * mib, "side": "device"}).problem(507, "out_of_memory")
    assert p["retryable"] is False and m.meta("m")["sides"]["device"]["bytes"] == 60 * mib
    m.post("buffers/m/release", {"side": "device"})
    m.put("m", bytes(40 * mib), "?side=device", 200)
    p = m.ask("POST", "buffers/m/reserve", {"bytes": 41 * mib, "side": "device"}, {"Prefer": "wait=300"}).problem(
        507, "out_of_memory")
    assert p["retryable"] is False and f"at once, {81 * mib} bytes" in p["detail"]
    assert p["limit_bytes"] == 64 * mib and m.meta("m")["sides"]["device"]["bytes"] == 40 * mib


def test_statistics_leave_its_pool_out(beside):
    there = own(1 - beside.none)
    beside.put("x", b"1", f"?device={beside.none}")
    assert beside.names("pools") == [there]
    assert [p["name"] for p in beside.get("/v1/stats")["pools"]] == [there]
    stats = beside.get(f"/v1/devices/{beside.none}/stats")
    assert ((stats["pools"], stats["reserved_bytes"], stats["pools_used_bytes"]) == (0, 0, 0)
            and stats["allocations"]["count"] == 1)
    text = beside.daemon.ask("GET", "/metrics").body.decode()
    assert f'gpubufd_pool_used_bytes{{pool="{there}"' in text and f'pool="{own(beside.none)}"' not in text
    beside.ask("GET", "/v1/snapshot").expect(200)
    beside.ask("GET", "/v1/allocations").expect(200)
    beside.ask("POST", f"/v1/devices/{beside.none}/sync").expect(204)


def test_the_selftest_measures_it(beside):
    for device in (0, 1):
        rows = json.dumps(beside.daemon.ask("POST", f"/v1/devices/{device}/selftest").expect(200).json())
        assert (WHY in rows) is (device == beside.none)


def test_the_log_says_which_devices_have_none(beside):
    said = [line for line in beside.daemon.log().splitlines() if WHY in line]
    assert len(said) == 1 and f"device {beside.none} serves without pools" in said[0], said


def test_a_device_that_is_not_there(tmp_path):
    out = subprocess.run([binary(), "--state-dir", str(tmp_path), "--listen", "none", "--backend",
                          "host:poolless=3,devices=2"],
                         capture_output=True, text=True, timeout=120)
    assert out.returncode == 64 and "poolless=3" in out.stderr and "the last is device 1" in out.stderr, out.stderr


def test_a_device_that_lost_its_pools(start, simulated, tmp_path):
    """They are said to be lost, and the session that used one has none until its device makes it again."""
    with_pools, without = simulated("bytes=64M"), simulated("bytes=64M,poolless=0")
    s = Session(start(spec=with_pools, state=str(tmp_path)))
    for name in ("p", "q"):
        s.post("pools", {"name": name}, 201)
    s.ask("PATCH", "", {"pool": "p"}).expect(200)
    s.put("lost", A, "?mirrored=true&side=device")
    s.buffer("never", bytes=SIZE, mirrored=True)
    s.daemon.stop()
    s = Session(start(spec=without, state=str(tmp_path)), s.name)
    said = [line for line in s.daemon.log().splitlines() if "is lost" in line]
    assert len(said) == 1 and "warning" in said[0] and 'pool "p" of session' in said[0] and "1 more" in said[0], said
    assert {p["name"]: p["state"] for p in s.get("pools")["items"]} == {"p": "lost", "q": "lost"}
    assert s.get("")["pool"] == "default"
    s.put("x", b"1")
    s.ask("PATCH", "", {"pool": "p"}).problem(404, "device_not_found")
    for name in ("lost", "never"):  # mirrored buffers work without pools
        assert s.meta(name)["pool"] and s.put(name, A, "?side=device", 200)["kind"] == "ipc" and s.data(name) == A
        assert s.post(f"buffers/{name}/sync", {"to": "host"})["copied"]
    s.daemon.stop()
    s = Session(start(spec=with_pools, state=str(tmp_path)), s.name)
    assert s.put("lost", B, "?side=device", 200)["kind"] == "device" and s.data("lost") == B
    assert s.get("")["pool"] == "p" and "is lost" not in s.daemon.log()
