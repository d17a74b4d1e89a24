"""Kinds of memory: their availability, contents and attributes."""
import pytest

from conform import Session
from harness import SLOT, until
from values import array_of, crc32c, npy, payload

ALL = ["device", "shared", "managed", "pinned", "pageable", "ipc"]
MIB = 1 << 20


def support(daemon):
    return daemon.get("/v1/devices/0")["kinds"]


@pytest.fixture(params=ALL)
def kind(request, daemon):
    """A kind that device 0 has; a missing kind must have a reason."""
    has = support(daemon)[request.param]
    if not has["supported"]:
        assert has["reason"]
        pytest.skip(f"{request.param}: {has['reason']}")
    return request.param


def test_what_is_missing_is_refused_with_the_reason(daemon, s):
    table = support(daemon)
    assert list(table) == ALL and all(v["supported"] or v["reason"] for v in table.values())
    for name, has in table.items():
        r = s.ask("POST", "buffers", {"name": "x-" + name, "bytes": 10, "kind": name})
        if has["supported"]:
            assert r.expect(201).json()["kind"] == name
        else:
            p = r.problem(501, "unsupported")
            assert has["reason"] in p["detail"] and p["cuda"]["name"] == "cudaErrorNotSupported"
            s.ask("PUT", f"buffers/x-{name}/data?kind={name}", b"1").problem(501, "unsupported")
    s.ask("POST", "buffers", {"name": "y", "bytes": 1, "kind": "gpu"}).problem(400, "invalid_argument")


def test_bytes_in_and_out(s, kind):
    body = payload(9 * SLOT + 13)
    meta = s.put("x", body, f"?kind={kind}")
    assert (meta["kind"], meta["bytes"], meta["crc32c"], meta["mirrored"]) == (kind, len(body), crc32c(body), False)
    assert s.data("x") == body
    r = s.ask("GET", "buffers/x/data", None, {"Range": f"bytes={SLOT - 3}-{3 * SLOT}"}).expect(206)
    assert r.body == body[SLOT - 3:3 * SLOT + 1]
    s.put("x", b"hello", f"?offset={2 * SLOT}")
    want = body[:2 * SLOT] + b"hello" + body[2 * SLOT + 5:]
    assert s.data("x") == want and s.meta("x")["kind"] == kind
    s.put("x", want[::-1], "?in_place=true")
    assert s.data("x") == want[::-1] and s.meta("x")["kind"] == kind
    array = array_of("float64", (33, 5))
    s.put("x", npy(array))
    assert s.meta("x")["kind"] == kind and s.data("x") == array.tobytes()
    s.delete("buffers/x")


def test_created_as_zeros(s, kind):
    s.buffer("x", dtype="int16", shape=[SLOT, 3], kind=kind)
    assert s.data("x") == bytes(6 * SLOT)
    s.buffer("none", bytes=0, kind=kind)
    assert s.data("none") == b""


def test_a_pool_goes_with_device_memory_alone(s, kind):
    s.post("pools", {"name": "p"}, 201)
    r = s.ask("POST", "buffers", {"name": "x", "bytes": 10, "kind": kind, "pool": "p"})
    if kind == "device":
        assert r.expect(201).json()["pool"] == "p"
        return
    assert "pool" in r.problem(400, "invalid_argument")["detail"]
    s.ask("PUT", f"buffers/x/data?kind={kind}&pool=p", b"1").problem(400, "invalid_argument")


def test_all_is_given_back(s, kind):
    for i in range(3):
        s.put(f"x{i}", payload(MIB), f"?kind={kind}")
    assert s.get()["used_bytes"] == 3 * MIB
    assert s.get()["used_pinned_bytes"] == (3 * MIB if kind == "pinned" else 0)
    for i in range(3):
        s.delete(f"buffers/x{i}")
    until("it is", lambda: (s.get()["used_bytes"], s.get()["used_pinned_bytes"]) == (0, 0))


def test_a_buffer_changes_its_kind_with_its_content(s, kind):
    s.put("x", payload(1000))
    s.put("x", payload(1000, 1), f"?kind={kind}")
    assert s.meta("x")["kind"] == kind and s.data("x") == payload(1000, 1)
    s.put("x", payload(1000, 2), "?kind=device")
    assert s.meta("x")["kind"] == "device" and s.data("x") == payload(1000, 2)


def test_pinned_memory_has_a_quota_of_its_own(daemon):
    daemon.ask("POST", "/v1/sessions", {"name": "pins", "quota": {"pinned_bytes": 1000}}).expect(201)
    s = Session(daemon, "pins")
    s.put("x", bytes(600), "?kind=pinned")
    p = s.ask("POST", "buffers", {"name": "y", "bytes": 401, "kind": "pinned"}).problem(507, "quota_exceeded")
    assert (p["limit_bytes"], p["used_bytes"], p["requested_bytes"]) == (1000, 600, 401)
    s.ask("PUT", "buffers/y/data?kind=pinned", bytes(401)).problem(507, "quota_exceeded")
    s.put("y", bytes(5000), "?kind=pageable")
    s.put("z", bytes(5000))
    assert s.get()["used_pinned_bytes"] == 600 and s.get()["used_bytes"] == 10600
    s.delete("buffers/x")
    until("its memory is free", lambda: s.get()["used_pinned_bytes"] == 0)
    s.put("y", bytes(1000), "?kind=pinned")
    daemon.ask("DELETE", "/v1/sessions/pins").expect(204)


def test_what_the_device_knows(s, kind, backend):
    s.put("x", payload(MIB), f"?kind={kind}")
    a = s.attributes("x")
    if backend == "cuda":
        want = {"device": "device", "shared": "device", "managed": "managed", "pinned": "host",
                "pageable": "unregistered", "ipc": "device"}
        assert a["memory_type"] == want[kind], a
    if kind == "device":
        assert a["from_pool"] and a["from_this_pool"] and a["device"]["index"] == 0 and a["device_address"]
    else:
        assert not a["from_pool"] and not a["from_this_pool"]
    if kind in ("pinned", "pageable"):
        assert a["host_address"]
    if kind in ("device", "pageable"):
        assert a["context"] is None  # as CUDA answers CU_POINTER_ATTRIBUTE_CONTEXT for memory of a pool
    elif kind != "shared":
        assert int(a["context"], 16) > 0
    s.put("x", payload(MIB, 1), "?in_place=true")
    assert s.attributes("x") == a


def test_statistics_by_direction_and_kind(daemon, s, kind):
    def numbers():
        t = daemon.settled()["transfers"]
        return [t[way]["kinds"][kind][key] for way in ("upload", "download") for key in ("count", "bytes")]

    before = numbers()
    s.put("x", payload(3 * SLOT), f"?kind={kind}")
    s.data("x")
    s.ask("GET", "buffers/x/data", None, {"Range": "bytes=0-9"}).expect(206)
    assert [b - a for a, b in zip(before, numbers())] == [1, 3 * SLOT, 2, 3 * SLOT + 10]
    for way in ("upload", "download"):
        k = daemon.stats()["transfers"][way]["kinds"][kind]
        assert k["seconds_copying"] >= 0 and k["seconds_queued"] >= 0
        if not support(daemon)[kind]["cpu_access"]:
            assert k["seconds_copying"] > 0


def test_waiting_and_copying_are_told_apart(start, backend):
    """The same copy, with and without stalled work before it: its waiting counts as waiting, its duration as
    copying."""
    stall_s = 1.0
    d = start("--slots-bytes", "8M", "--slot-bytes", "256K",
              spec=f"fault:place_fill@1=stall/{int(stall_s * 1000)}:{backend}")
    s = Session(d)
    s.post("streams", {"name": "a"}, 201)
    for name in ("x", "y", "w"):
        s.buffer(name, bytes=2 * SLOT)
    body = b'{"pattern":7,"stream":"a","in_place":true}'
    raw = d.raw().request("POST", s.base + "/buffers/w/fill", [f"Content-Length: {len(body)}"], body)
    until("the stream is busy", lambda: s.get("streams/a")["busy"])
    behind = s.ask("POST", "buffers/x/copy", {"from": "y", "stream": "a", "in_place": True}).expect(200).timing()
    raw.reply().expect(200)
    raw.close()
    alone = s.ask("POST", "buffers/x/copy", {"from": "y", "stream": "a", "in_place": True}).expect(200).timing()
    assert behind["queue"] > alone["queue"] and behind["queue"] > behind["copy"]
    copy = d.stats()["transfers"]["copy"]
    assert copy["count"] == 2 and copy["seconds_queued"] * 1000 >= behind["queue"] * 0.99 - 1
    assert copy["seconds_copying"] < copy["seconds_queued"]


def test_kinds_after_a_restart(start, tmp_path):
    d = start(state=str(tmp_path))
    s = Session(d)
    have = [k for k, v in support(d).items() if v["supported"]]
    for k in have:
        s.put("x-" + k, payload(100), f"?kind={k}")
    d.kill()
    s = Session(start(state=str(tmp_path)))
    for k in have:
        assert (s.meta("x-" + k)["kind"], s.meta("x-" + k)["state"]) == (k, "lost")
        s.put("x-" + k, payload(50))
        assert s.meta("x-" + k)["kind"] == k and s.data("x-" + k) == payload(50)
    assert s.get()["used_pinned_bytes"] == (50 if "pinned" in have else 0)


@pytest.mark.parametrize("rule", ["kind_alloc@1=cudaErrorMemoryAllocation", "kind_alloc@1=cudaErrorInvalidValue"])
def test_memory_that_cannot_be_had(start, backend, rule):
    d = start(spec=f"fault:{rule}:{backend}")
    s = Session(d)
    r = s.ask("POST", "buffers", {"name": "x", "bytes": 1000, "kind": "pinned"})
    if r.status != 201:  # the daemon retries once when out of memory
        p = r.json()
        assert p["code"] in ("device_error", "out_of_memory") and p["cuda"]["name"] == rule.split("=")[1]
    assert s.get()["used_bytes"] == (1000 if r.status == 201 else 0)
    s.put("y", b"1", "?kind=pinned")
    assert s.data("y") == b"1"


def test_pinning_holds_up_no_other_request(start, backend):
    """A long allocation does not hold up other requests."""
    d = start("--http-threads", "1", spec=f"fault:kind_alloc@1=delay/3000:{backend}")
    s = Session(d)
    body = b'{"name":"x","bytes":1000,"kind":"pinned"}'
    raw = d.raw().request("POST", s.base + "/buffers", [f"Content-Length: {len(body)}"], body)
    done = 0
    while "x" not in s.names("buffers"):
        s.put("y", payload(1000, done))
        assert s.data("y") == payload(1000, done)
        done += 1
    assert done > 2  # if the others had waited, the first would have ended after x existed
    assert raw.reply().status == 201
    raw.close()


def test_the_machine_has_a_ceiling_of_pinned_memory(start):
    """Pinned buffers, host sides and slots count; a refusal names the host's memory, and all of it comes back."""
    d = start("--max-pinned-bytes", "12M", "--slots-bytes", "8M", "--slot-bytes", "256K")
    s = Session(d)

    def pinned():
        now = d.stats()["pinned"]
        assert now["limit_bytes"] == 12 * MIB
        return now["bytes"]

    slots = d.stats()["slots"]["total"] * d.stats()["slots"]["slot_bytes"]
    room = 12 * MIB - slots
    assert pinned() == slots
    s.buffer("a", bytes=room - MIB, kind="pinned")
    s.put("m", bytes(MIB), "?mirrored=true")
    assert pinned() == 12 * MIB
    for r in (s.ask("POST", "buffers", {"name": "b", "bytes": 5000, "kind": "pinned"}),
              s.ask("PUT", "buffers/b/data?kind=pinned", bytes(5000))):
        problem = r.problem(507, "pinned_limit_reached")
        assert ("host" in problem["title"] and "pool" not in problem["title"] and "--max-pinned-bytes"
                in problem["detail"])
        assert [problem[f + "_bytes"] for f in ("limit", "used", "requested")] == [12 * MIB, 12 * MIB, 8192]
        assert problem["retryable"]
    for never in (13 * MIB, room + 1):
        problem = s.ask("POST", "buffers", {"name": "c", "bytes": never,
                                            "kind": "pinned"}).problem(507, "pinned_limit_reached")
        assert problem["retryable"] is False and "delete" not in problem["detail"], ("more than all buffers together "
                                                                                     "can have")
        assert ("--slots-bytes" in problem["detail"]) == (slots > 0), problem["detail"]
    for side in (s.ask("PUT", "buffers/n/data?mirrored=true", bytes(5000)),
                 s.ask("POST", "buffers/m/reserve", {"bytes": 2 * MIB, "side": "host"})):
        problem = side.problem(507, "pinned_limit_reached")
        assert problem["retryable"] and "pageable" not in problem["detail"], "a host side has no other kind"
    refused = d.stats()["allocations"]["failures_by_reason"]
    assert refused == {"pinned_limit_reached": 6} == d.stats()["allocations_by_kind"]["pinned"]["failures_by_reason"]
    text = d.ask("GET", "/metrics").body.decode()
    assert f"\ngpubufd_pinned_bytes {12 * MIB}\n" in text and f"\ngpubufd_pinned_limit_bytes {12 * MIB}\n" in text
    assert '\ngpubufd_kind_allocation_failures_total{kind="pinned",reason="pinned_limit_reached"} 6\n' in text
    assert '\ngpubufd_allocation_failures_total{reason="limit_reached"} 0\n' in text
    s.put("p", bytes(5000), "?kind=pageable")
    s.delete("buffers/m")
    s.delete("buffers/a")
    until("the memory is given back", lambda: pinned() == slots)
