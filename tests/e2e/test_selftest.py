"""POST /v1/devices/{device}/selftest and `gpubuf selftest`: the tables of copies, allocations and pinning."""
import json

import pytest

from conform import Session
from gpubuf_cli import Cli
from harness import until

PUZZLE = {4096, 59400, 1 << 20, 1980000, 64 << 20}


def free(d):
    return d.get("/v1/devices/0")["free_bytes"]


def test_a_daemon_measures_its_device_and_keeps_nothing(start, simulated):
    d = start(spec=simulated("bytes=512M"))
    s = Session(d)
    before = free(d)
    result = s.ask("POST", "/v1/devices/0/selftest", None, {"Prefer": "wait=60"}).expect(200).json()
    copies = {(c["kind"], c["direction"], c.get("bytes")): c for c in result["copies"]}
    for kind in ("pinned", "pageable", "managed"):
        for direction in ("to_device", "from_device"):
            assert {b for k, w, b in copies if (k, w) == (kind, direction)} == PUZZLE
    assert {b for k, w, b in copies if (k, w) == ("device", "on_device")} == PUZZLE
    assert all(c["microseconds"] > 0 and c["gigabytes_per_s"] > 0 for c in copies.values()
               if c["kind"] in ("pinned", "device"))
    waiting = result["waiting"]
    assert waiting["bytes"] == 59400 and waiting["earlier_bytes"] > 100 * 59400
    # what stands before it is a thousand times as much
    assert waiting["waited_microseconds"] > waiting["copied_microseconds"] > 0
    cases = {(a["kind"], a["case"], a["bytes"]) for a in result["allocations"]}
    assert cases == {(k, w, b) for k in ("device", "ipc") for w in ("first", "again", "busy")
                     for b in (1980000, 64 << 20)}
    assert all("reason" in a or a["allocate_microseconds"] > 0 for a in result["allocations"])
    assert result["pinning"]["bytes"] == 64 << 20 and result["pinning"]["pin_microseconds_per_mib"] > 0
    until("all memory is back", lambda: free(d) == before)


def test_a_small_device_says_what_it_left_out(start, simulated):
    d = start(spec=simulated("bytes=16M"))
    result = d.ask("POST", "/v1/devices/0/selftest").expect(200).json()
    left = [c for c in result["copies"] if c.get("bytes") == 64 << 20]
    assert left and all("free bytes" in c["reason"] and "microseconds" not in c for c in left)
    assert any("microseconds" in c for c in result["copies"])


def test_a_reason_is_a_whole_sentence(start):
    """The longest: the ceiling of page-locked memory, with its numbers and what to do."""
    d = start("--max-pinned-bytes", "2M", "--slots-bytes", "1M", "--slot-bytes", "256K", spec="host:bytes=512M")
    result = d.ask("POST", "/v1/devices/0/selftest").expect(200).json()
    reasons = [c["reason"] for c in result["copies"] if c["kind"] == "pinned"] + [result["waiting"]["reason"]]
    assert len(reasons) == 2 and all(r.endswith("or fewer --slots-bytes") for r in reasons), reasons
    assert "or fewer --slots-bytes\n" in Cli(d.url(""))("selftest").expect().out


def test_one_at_a_time_and_in_the_background(start):
    d = start(spec="fault:pool_create@1=delay/2000:host:bytes=16M")
    s = Session(d)
    op = s.ask("POST", "/v1/devices/0/selftest", None, {"Prefer": "respond-async"}).expect(202).json()
    assert op["kind"] == "selftest"
    p = s.ask("POST", "/v1/devices/0/selftest").problem(503, "saturated")
    assert "device 0" in p["detail"]
    op = s.ask("GET", "/v1/operations/" + op["id"], None, {"Prefer": "wait=60"}).expect(200).json()
    assert op["state"] == "done" and op["result"]["copies"]
    s.ask("POST", "/v1/devices/0/selftest").expect(200)
    s.ask("POST", "/v1/devices/9/selftest").problem(404, "device_not_found")
    s.ask("POST", "/v1/devices/0/selftest", {"bytes": 1}).problem(400, "unknown_field")


def test_what_fails_has_its_reason_and_the_rest_its_times(start):
    d = start(spec="fault:kind_alloc@2=cudaErrorMemoryAllocation:host:bytes=128M")
    before = free(d)
    result = d.ask("POST", "/v1/devices/0/selftest").expect(200).json()
    failed = [c for c in result["copies"] if "bytes" not in c]
    assert [c["kind"] for c in failed] == ["shared"] and failed[0]["reason"]
    assert any(c["kind"] == "pinned" and "microseconds" in c for c in result["copies"])
    until("all memory is back", lambda: free(d) == before)
    d = start(spec="fault:alloc@1=cudaErrorMemoryAllocation:host:bytes=16M")
    d.ask("POST", "/v1/devices/0/selftest").problem(507, "out_of_memory")


@pytest.mark.parametrize("rule, status, code", [("stream_create@3=cudaErrorInvalidValue", 500, "device_error"),
                                                ("pool_create@1=cudaErrorNotSupported", 501, "unsupported")])
def test_a_device_that_cannot_be_measured(start, rule, status, code):
    d = start(spec=f"fault:{rule}:host:bytes=16M")
    d.ask("POST", "/v1/devices/0/selftest").problem(status, code)
    d.ask("POST", "/v1/devices/0/selftest").expect(200)


def test_the_command(start, simulated):
    d = start(spec=simulated("bytes=16M,devices=2"))
    cli = Cli(d.url(""), "default")
    assert cli.json("selftest", "--device", "1")["device"]["index"] == 1
    out = cli("selftest").expect().out
    for word in ("MICROSECONDS", "59.4 kB", "1.98 MB", "from_device", "cudaMalloc, cudaFree", "it waited",
                 "for each MiB"):
        assert word in out, word
    lines = cli("selftest", "--hosts", "{}:{}".format(*d.tcp), "--json").expect().out.splitlines()
    assert [json.loads(line)["result"]["device"]["index"] for line in lines] == [0]
