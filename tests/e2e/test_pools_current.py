"""The devices' own pools, which an administrator shapes; a session's current pool; how pools count reuse and growth."""
import pytest

import values
from conform import Session
from harness import SMALL_SLOTS, token
from tensors import put, safetensors
from values import payload

MIB = 1 << 20
POLICIES = ["follow_event_dependencies", "allow_opportunistic", "allow_internal_dependencies"]


def shape(pool):
    return pool["release_threshold_bytes"], [pool["reuse"][p] for p in POLICIES]


# --- the devices' own pools -------------------------------------------------------------------------------------------


def test_administrators_shape_the_default_pool(start, tmp_path):
    secrets = {scope: token(tmp_path, "add", scope, "--scope", scope) for scope in ("read", "write", "admin")}
    bound = token(tmp_path, "add", "bound", "--scope", "admin", "--session", "default")
    d = start(state=str(tmp_path))
    read, write, admin = (Session(d, token=secrets[scope]) for scope in ("read", "write", "admin"))
    before = shape(read.get("pools/default"))
    for s in (read, write, Session(d, token=bound)):
        s.ask("PATCH", "pools/default", {"release_threshold_bytes": 0}).problem(403, "forbidden")
    Session(d, token=bound).ask("POST", "pools/default/reset-peak").problem(403, "forbidden")
    assert shape(read.get("pools/default")) == before == (None, [True] * 3)
    wanted = {"release_threshold_bytes": 5 * MIB, "reuse": {"allow_opportunistic": False}}
    assert shape(admin.patch("pools/default", wanted)) == (5 * MIB, [True, False, True])
    write.post("/v1/sessions", {"name": "other"}, 201)
    assert shape(Session(d, "other", secrets["read"]).get("pools/default")) == (5 * MIB, [True, False, True])
    admin.ask("PATCH", "pools/default", {"max_bytes": 5}).problem(400, "invalid_argument")
    admin.ask("DELETE", "pools/default").problem(409, "pool_protected")
    d.stop()
    d = start(state=str(tmp_path))
    assert shape(Session(d, token=secrets["read"]).get("pools/default")) == before


def test_without_tokens_a_local_client_shapes_the_default_pool(start):
    s = Session(start(*SMALL_SLOTS))
    s.patch("pools/default", {"release_threshold_bytes": 0})
    s.put("x", payload(MIB) * 40)
    s.delete("buffers/x")
    s.post("sync", None, 204)
    assert s.get("pools/default")["reserved_bytes"] == 0


@pytest.mark.parametrize("options, wanted", [
    (("--default-pool-threshold", "3M"), (3 * MIB, [True, True, True])),
    (("--default-pool-threshold", "0", "--default-pool-reuse", "none"), (0, [False, False, False])),
    (("--default-pool-threshold", "none", "--default-pool-reuse", "all"), (None, [True, True, True])),
    (("--default-pool-threshold", "18446744073709551615"), (None, [True, True, True])),
    (("--default-pool-threshold", "unlimited", "--default-pool-reuse", "internal,event"), (None, [True, False, True]))])
def test_options_shape_them_from_the_start(start, simulated, options, wanted):
    s = Session(start(*options, spec=simulated("devices=2,bytes=64M")))
    assert [shape(s.get("pools/" + name)) for name in ("default", "default.1")] == [wanted, wanted]


def test_an_integrated_gpu_keeps_an_eighth(start, simulated):
    d = start(spec=simulated("integrated,bytes=64M"))
    s = Session(d)
    assert s.get("pools/default")["release_threshold_bytes"] == 8 * MIB
    assert s.get("/v1/devices/0")["integrated"] and "keeps 8388608 bytes" in d.log()
    d = start("--default-pool-threshold", "unlimited", spec=simulated("integrated,bytes=64M"))
    assert Session(d).get("pools/default")["release_threshold_bytes"] is None


# --- the current pool of a session ------------------------------------------------------------------------------------


def test_the_current_pool_is_where_memory_comes_from(start):
    s = Session(start(*SMALL_SLOTS))
    assert s.get()["pool"] == "default"
    s.post("pools", {"name": "p"}, 201)
    assert s.patch("", {"pool": "p"})["pool"] == "p" == s.get()["pool"]
    s.put("uploaded", b"1")
    s.buffer("made", bytes=9)
    s.post("buffers/copied/copy", {"from": "made"}, 201)
    s.buffer("mirrored", bytes=9, mirrored=True)
    put(s.daemon, s.name, safetensors.numpy.save({"tensor": values.array_of("uint8", (4,), 1)})).expect(201)
    s.ask("POST", "batch", {"operations": [{"op": "create", "buffer": "batched", "bytes": 3}]}).expect(200)
    upload = s.post("uploads", {"buffer": "parts", "bytes": 2}, 201)
    s.ask("PUT", f"uploads/{upload['id']}/parts?offset=0", b"12").expect(200)
    s.post(f"uploads/{upload['id']}/complete", None, 201)
    s.ask("PUT", "buffers/resumed/data", b"12", {"Upload-Complete": "?1"}).expect(201)
    names = ["uploaded", "made", "copied", "mirrored", "tensor", "batched", "parts", "resumed"]
    assert {s.meta(name)["pool"] for name in names} == {"p"}
    s.put("named", b"1", "?pool=default")
    s.put("pinned", b"1", "?kind=pinned")
    assert (s.meta("named")["pool"], s.meta("pinned")["pool"]) == ("default", None)
    for word in (None, "default"):
        s.patch("", {"pool": "p"})
        assert s.patch("", {"pool": word})["pool"] == "default"
    s.put("later", b"1")
    s.put("uploaded", b"22")  # a buffer stays in its pool
    assert (s.meta("later")["pool"], s.meta("uploaded")["pool"]) == ("default", "p")


def test_what_cannot_be_the_current_pool(start, simulated):
    s = Session(start(spec=simulated("devices=2,bytes=64M")))
    s.ask("PATCH", "", {"pool": "none"}).problem(404, "pool_not_found")
    s.ask("PATCH", "", {"pool": "default.2"}).problem(404, "pool_not_found")
    s.ask("PATCH", "", {"pool": 7}).problem(400, "wrong_type")
    s.ask("PATCH", "", {"pool": "a/b"}).problem(400, "invalid_name")
    assert s.get()["pool"] == "default"


def test_each_device_has_its_own(start, simulated, tmp_path):
    """As with cudaDeviceSetMempool and cudaDeviceGetMempool: one device's leaves the others as they are."""
    spec = simulated("devices=3,poolless=2,bytes=64M")
    d = start(spec=spec, state=str(tmp_path))
    s = Session(d)
    for name, device in (("p", 0), ("p2", 0), ("q", 1)):
        s.post("pools", {"name": name, "device": device}, 201)
    assert s.get()["current_pools"] == ["default", "default.1", None]
    for pool, current, first in (("p", ["p", "default.1", None], "p"), ("q", ["p", "q", None], "p"),
                                 ("p2", ["p2", "q", None], "p2"), ("default", ["default", "q", None], "q"),
                                 ("p", ["p", "q", None], "p"), ("default.1", ["p", "default.1", None], "p"),
                                 (None, ["default", "default.1", None], "default")):
        for change in range(2):
            tag = s.ask("GET", "").headers["ETag"]
            s.patch("", {"pool": pool})
        found = s.ask("GET", "", None, {"If-None-Match": tag}).expect(200).json()
        assert (found["current_pools"], found["pool"]) == (current, first), pool
    for pool in "pq":
        s.patch("", {"pool": pool})
    d.stop()
    s = Session(start(spec=spec, state=str(tmp_path)))
    assert s.get()["current_pools"] == ["p", "q", None]
    for device, pool in ((0, "p"), (1, "q")):
        s.buffer(f"x{device}", bytes=8, device=device)
        assert s.meta(f"x{device}")["pool"] == pool
        s.delete(f"buffers/x{device}")
    tag = s.ask("GET", "").headers["ETag"]
    s.delete("pools/p")
    found = s.ask("GET", "", None, {"If-None-Match": tag}).expect(200).json()
    assert (found["current_pools"], found["pool"]) == (["default", "q", None], "q")
    (row,) = [row for row in s.daemon.get("/v1/sessions")["items"] if row["name"] == s.name]
    assert row["current_pools"] == found["current_pools"]


def test_it_ends_with_its_pool_and_survives_a_restart(start, tmp_path):
    d = start(state=str(tmp_path))
    s = Session(d)
    s.post("pools", {"name": "p"}, 201)
    s.patch("", {"pool": "p"})
    d.stop()
    s = Session(start(state=str(tmp_path)))
    assert s.get()["pool"] == "p"
    s.put("x", b"1")
    assert s.meta("x")["pool"] == "p"
    s.delete("buffers/x")
    tag = s.ask("GET", "").headers["ETag"]
    s.delete("pools/p")
    r = s.ask("GET", "", None, {"If-None-Match": tag}).expect(200)
    assert r.json()["pool"] == "default"
    s.post("pools", {"name": "p"}, 201)  # another one
    s.put("y", b"1")
    assert (s.get()["pool"], s.meta("y")["pool"]) == ("default", "default")


# --- counting ---------------------------------------------------------------------------------------------------------


def test_reuse_and_growth_are_counted(start):
    s = Session(start(*SMALL_SLOTS))
    s.post("pools", {"name": "p"}, 201)
    s.put("x", payload(MIB) * 40, "?pool=p")
    assert [s.get("pools/p")[k] for k in ("growths", "reuses", "allocations")] == [1, 0, 1]
    s.delete("buffers/x")
    s.put("x", payload(MIB) * 40, "?pool=p")
    assert [s.get("pools/p")[k] for k in ("growths", "reuses", "allocations")] == [1, 1, 2]
    text = s.daemon.ask("GET", "/metrics").body.decode()
    for name in ("growths", "reuses"):
        assert any(line.startswith(f"gpubufd_pool_{name}_total{{") and 'pool="p"' in line and line.endswith(" 1")
                   for line in text.splitlines()), name
