"""Devices: their capabilities, and several of them."""
import os
import re

import pytest

from conform import Session, refuse
from harness import SMALL_SLOTS, SLOT, until
from values import payload

MIB = 1 << 20


def test_the_capability_table_gives_a_reason_for_each_no(daemon, s, backend):
    d = s.get("/v1/devices/0")
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "..", "..", "src", "model", "capabilities.def")) as f:
        listed = re.findall(r"^GB_CAPABILITY\(\w+, (\w+)\)", f.read(), re.M)
    assert list(d["capabilities"]) == listed and len(listed) >= 10
    for name, c in d["capabilities"].items():
        assert c["available"] is True and "reason" not in c or c["reason"], name
    assert d["capabilities"]["memory_pools"]["available"]
    if backend == "host:discrete":
        assert not d["capabilities"]["cpu_access"]["available"] and not d["kinds"]["device"]["cpu_access"]
    if backend == "host":
        assert d["capabilities"]["cpu_access"]["available"] and d["kinds"]["device"]["cpu_access"]
    assert d["kinds"]["pinned"]["cpu_access"] and d["kinds"]["pageable"]["cpu_access"]


def test_which_driver_and_cuda(s, backend):
    """The host backend has none of them; in /metrics all are labels."""
    d = s.get("/v1/devices/0")
    releases = {name: d[name] for name in ("driver", "cuda_driver", "cuda_runtime")}
    if backend == "cuda":
        assert re.fullmatch(r"\d+\.\d+(\.\d+)?", d["driver"]) and all(re.fullmatch(r"\d+\.\d", d[n])
                                                                      for n in ("cuda_driver", "cuda_runtime"))
    else:
        assert set(releases.values()) == {None}
    text = s.daemon.ask("GET", "/metrics").body.decode()
    name, labels = d["name"], ",".join(f'{n}="{v or ""}"' for n, v in releases.items())
    assert f'\ngpubufd_device_info{{device="0",name="{name}",uuid="{d["uuid"]}",{labels}}} 1\n' in text
    v1 = s.get("/v1")
    assert f'\ngpubufd_build_info{{version="{v1["version"]}",backend="{v1["backend"]["name"]}"}} 1\n' in text


def test_by_index_and_by_uuid(s):
    d = s.get("/v1/devices/0")
    assert s.get("/v1/devices/" + d["uuid"])["uuid"] == d["uuid"] == s.get("/v1/devices")["items"][0]["uuid"]
    s.post("/v1/devices/" + d["uuid"] + "/sync", None, 204)
    assert s.post("pools", {"name": "p", "device": d["uuid"]}, 201)["device"] == {"index": 0, "uuid": d["uuid"]}
    for name in ("7", "GPU-00000000", "-1", "0x0", "a%00b", ""):
        assert s.ask("GET", "/v1/devices/" + name).status == 404
        assert s.ask("POST", f"/v1/devices/{name}/sync").status == 404


def test_who_has_the_list_is_not_sent_it_again(daemon):
    def again():
        etag = daemon.ask("GET", "/v1/devices").expect(200).headers["ETag"]
        r = daemon.ask("GET", "/v1/devices", None, {"If-None-Match": etag})
        return r.status == 304 and r.headers["ETag"] == etag and r.body == b""

    until("memory stays as it is for the time of two requests", again)
    daemon.ask("GET", "/v1/devices", None, {"If-None-Match": '"another"'}).expect(200)


def test_a_device_is_no_peer_of_itself(s):
    d = s.get("/v1/devices/0")
    assert [p["device"]["index"] for p in d["peers"]] == list(range(1, s.get("/v1")["devices"]))
    s.post("pools", {"name": "p"}, 201)
    s.ask("POST", "pools/p/access", {"device": 0, "access": "none"}).problem(400, "invalid_argument")


# --- several ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["yes", "no"])
def two(request, start, backend):
    """Two devices, peers or not; on a machine with two GPUs these."""
    if backend.startswith("host"):
        d = start(*SMALL_SLOTS, spec=backend + ("," if ":" in backend else ":") + f"devices=2,peers={request.param}")
    else:
        d = start(*SMALL_SLOTS)
        if len(d.get("/v1/devices")["items"]) < 2:
            pytest.skip("there is one device")
        if d.get("/v1/devices/0")["peers"][0]["can_access"] != (request.param == "yes"):
            pytest.skip("the devices are " + ("no " if request.param == "yes" else "") + "peers")
    s = Session(d)
    s.peers = request.param == "yes"
    return s


def test_the_peer_matrix(two):
    devices = two.get("/v1/devices")["items"]
    for i, d in enumerate(devices):
        others = [j for j in range(len(devices)) if j != i]
        assert [p["device"] for p in d["peers"]] == [{"index": j, "uuid": devices[j]["uuid"]} for j in others]
        for p in d["peers"]:
            assert p["can_access"] is two.peers and ("reason" in p) is not two.peers
        assert d["capabilities"]["peer_access"]["available"] is two.peers


def test_default_pools_of_each_device(two):
    pools = two.get("pools")["items"]
    assert [p["name"] for p in pools[:2]] == ["default", "default.1"]
    two.put("x", payload(SLOT), "?pool=default.1")
    assert two.meta("x")["device"]["index"] == 1 == two.meta("x")["device"]["index"]
    assert two.data("x") == payload(SLOT)
    until("it is used", lambda: two.get("pools/default.1")["used_bytes"] >= SLOT)
    two.ask("DELETE", "pools/default.1").problem(409, "pool_protected")


def test_copies_between_devices(two):
    body = payload(9 * SLOT + 5)
    two.put("a", body)
    two.post("pools", {"name": "p", "device": 1}, 201)
    two.put("b", bytes(len(body)), "?pool=p")
    w = two.copy("b", "a")
    assert w["way"] == ("peer" if two.peers else "staged") and w["device"]["index"] == 1 and w["pool"] == "p"
    assert two.data("b") == body
    two.fill("a", 1)
    w = two.copy("a", "b")
    assert two.data("a") == body and w["device"]["index"] == 0
    two.copy("b", "a", from_offset=3, offset=SLOT, bytes=2 * SLOT, in_place=True)
    assert two.data("b") == body[:SLOT] + body[3:3 + 2 * SLOT] + body[3 * SLOT:]


def test_access_to_a_pool_makes_copies_straight(two):
    body = payload(5 * SLOT)
    made = two.post("pools", {"name": "p"}, 201)
    assert ([a["access"] for a in made["access"]] == ["none"] * len(made["access"])
            and made["access"][0]["device"]["index"] == 1)
    two.put("a", body, "?pool=p")
    r = two.ask("POST", "pools/p/access", {"device": 1, "access": "read_write"})
    if not two.peers:
        p = r.problem(501, "unsupported")
        assert p["detail"] and {**p["cuda"], "domain": "host"} == {
            "name": "cudaErrorInvalidDevice", "code": 101, "call": "cudaMemPoolSetAccess", "domain": "host",
            "message": "invalid device ordinal"}
        assert two.get("pools/p")["access"][0]["access"] == "none"
        return
    assert r.expect(200).json()["access"][0]["access"] == "read_write"
    two.put("b", bytes(len(body)), "?pool=default.1")
    assert two.copy("b", "a")["way"] == "peer" and two.data("b") == body
    uuid = two.get("/v1/devices/1")["uuid"]
    assert two.post("pools/p/access", {"device": uuid, "access": "none"})["access"][0]["access"] == "none"
    assert two.copy("b", "a")["way"] == "staged" and two.data("b") == body  # a revoked access stays revoked


def test_work_of_a_stream_on_two_devices(two):
    two.post("streams", {"name": "a"}, 201)
    two.post("events", {"name": "e"}, 201)
    two.put("x", payload(SLOT), "?stream=a")
    assert two.get("streams/a")["devices"] == 1
    two.put("y", payload(SLOT, 1), "?stream=a&pool=default.1")
    assert two.get("streams/a")["devices"] == 2
    two.post("events/e/record", {"stream": "a"})
    two.post("events/e/wait")
    for path, status in (("streams/a/sync", 200), ("sync", 204), ("/v1/devices/0/sync", 204),
                         ("/v1/devices/1/sync", 204)):
        two.post(path, None, status)
    assert two.data("x", "?stream=a") == payload(SLOT) and two.data("y", "?stream=a") == payload(SLOT, 1)
    assert two.get("events/e")["done"]


def test_every_kind_on_the_second_device(two):
    two.post("pools", {"name": "p", "device": 1, "max_bytes": 64 * MIB}, 201)
    two.put("m", payload(SLOT), "?mirrored=true&pool=p")
    assert two.post("buffers/m/sync", {"to": "device"})["copied"] and two.attributes("m")["device"]["index"] == 1
    two.fill("m", 3)
    assert two.data("m") == b"\3" * SLOT and two.meta("m")["device"]["index"] == 1


def test_kinds_by_device(two):
    uuid = two.get("/v1/devices/1")["uuid"]
    kinds = [k for k, v in two.get("/v1/devices/1")["kinds"].items() if v["supported"]]
    for kind in kinds:
        assert two.buffer("made-" + kind, bytes=100, kind=kind, device=1)["device"]["index"] == 1
        two.put(kind, payload(SLOT), f"?kind={kind}&device={uuid}")
        assert two.meta(kind)["device"] == {"index": 1, "uuid": uuid} and two.data(kind) == payload(SLOT)
        two.put(kind, payload(SLOT, 1))  # stays where it is
        assert two.meta(kind)["device"]["index"] == 1
        two.put(kind, payload(SLOT, 2), "?device=0")
        meta = two.meta(kind)
        assert (meta["device"]["index"], meta["kind"]) == (0, kind) and two.data(kind) == payload(SLOT, 2)
        assert meta["pool"] == ("default" if kind == "device" else None)
        w = two.copy(kind, "made-" + kind, bytes=50)
        assert w["device"]["index"] == 0 and two.data(kind) == bytes(50) + payload(SLOT, 2)[50:]
    refuse(two, [
        ("POST", "buffers", {"name": "n", "bytes": 1, "device": 2}, 404, "device_not_found", "2"),
        ("POST", "buffers", {"name": "n", "bytes": 1, "device": True}, 400, "wrong_type", "UUID"),
        ("POST", "buffers", {"name": "n", "bytes": 1, "device": 1, "pool": "default"}, 400, "invalid_argument",
         "not both"),
        ("PUT", "buffers/n/data?device=2", b"1", 404, "device_not_found", "2"),
        ("PUT", "buffers/n/data?device=1&pool=default", b"1", 400, "invalid_argument", "not both"),
        ("PUT", "buffers/pinned/data?device=1&offset=1", b"1", 400, "invalid_argument", "device"),
    ])


def test_memory_of_one_device_is_not_that_of_the_other(start, simulated):
    d = start(*SMALL_SLOTS, spec=simulated("devices=2,bytes=16M"))
    s = Session(d)
    s.post("pools", {"name": "idle", "device": 0}, 201)
    s.put("i", bytes(8 * MIB), "?pool=idle")
    s.delete("buffers/i")
    until("it idles", lambda: s.get("pools/idle")["used_bytes"] == 0)
    assert s.get("pools/idle")["reserved_bytes"] >= 8 * MIB
    s.buffer("z", bytes=15 * MIB)  # the reserve of idle pools is released for it
    assert s.get("pools/idle")["reserved_bytes"] == 0
    p = s.ask("POST", "buffers", {"name": "y", "bytes": 10 * MIB}).problem(507, "out_of_memory")
    assert p["requested_bytes"] == 10 * MIB
    s.buffer("y", bytes=10 * MIB, pool="default.1")


def test_refusals(two):
    two.post("pools", {"name": "p", "device": 1}, 201)
    refuse(two, [
        ("POST", "pools/p/access", {"device": 2, "access": "none"}, 404, "device_not_found", "2"),
        ("POST", "pools/p/access", {"device": 1, "access": "none"}, 400, "invalid_argument", "1"),
        ("POST", "pools", {"name": "q", "device": 2}, 404, "device_not_found", "2"),
        ("POST", "buffers", {"name": "x", "bytes": 1, "pool": "default.2"}, 404, "pool_not_found", "default.2"),
    ])
