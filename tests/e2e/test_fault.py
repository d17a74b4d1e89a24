"""A failing device: the error has the native name and call, and no resource leaks."""
import http.client
import json
import os
import re
import select

import pytest

from harness import DATA, SLOT, SMALL_SLOTS, until
from values import payload

POOL = "/v1/sessions/default/pools/default"
BIG = payload(6 * SLOT)


@pytest.fixture
def faulty(start, backend):
    def go(rules, *options):
        return start(*SMALL_SLOTS, *options, spec=f"fault:{rules}:{backend}")

    return go


def used(d):
    return d.get(POOL)["used_bytes"], d.get("/v1/sessions/default")["used_bytes"], d.stats()["buffers"]["bytes"]


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src", "backend", "native.def")) as f:
    TEXTS = dict(re.findall(r'^GB_NATIVE\((\w+), \d+, \w+,\s+"([^"]+)"\)', f.read(), re.M))
assert TEXTS["cudaErrorMemoryAllocation"] == "out of memory"


def cuda(p, name, code):
    assert p["cuda"]["name"] == name and p["cuda"]["code"] == code and p["cuda"]["call"].startswith("cuda"), p
    assert p["cuda"]["message"] == TEXTS[name]
    return p["cuda"]["call"]


def test_out_of_memory_of_the_device(faulty):
    d = faulty("alloc@2+=cudaErrorMemoryAllocation")
    d.put("x", b"first").expect(201)
    before = used(d)
    for act in (lambda: d.put("y", payload(1000)), lambda: d.put("x", BIG),
                lambda: d.ask("POST", "/v1/sessions/default/buffers", {"name": "z", "bytes": 500})):
        p = act().problem(507, "out_of_memory")
        assert cuda(p, "cudaErrorMemoryAllocation", 2) == "cudaMallocFromPoolAsync" and p["retryable"]
    d.settled()
    assert used(d) == before and d.data("x").body == b"first"
    stats = d.stats()["allocations"]
    assert stats["failures"] >= 3 and stats["retries"] >= 3 and stats["trims"] >= 3


def test_one_failed_allocation_is_tried_again(faulty):
    d = faulty("alloc@1=cudaErrorMemoryAllocation")
    d.put("x", b"first").expect(201)
    assert d.data("x").body == b"first"


@pytest.mark.parametrize("op", ["copy", "event_record", "complete", "stream_wait", "fill", "watch"])
@pytest.mark.parametrize("nth", [1, 2, 5])
def test_a_call_that_fails_once(faulty, op, nth):
    """Each failed call is reported or retried; the next attempt works, no resource leaks, and no wrong byte is sent."""
    d = faulty(f"{op}@{nth}=cudaErrorInvalidValue")
    statuses = set()
    for i in range(8):
        r = d.put("x", payload(6 * SLOT, i))
        statuses.add(r.status)
        if r.status not in (200, 201):
            cuda(r.problem(500, "device_error"), "cudaErrorInvalidValue", 1)
        else:
            good = payload(6 * SLOT, i)
        try:
            g = d.data("x")
        except Exception:  # the body was cut off, the only way left to report the error
            continue
        statuses.add(g.status)
        if g.status == 200:
            assert g.body == good
        elif g.status != 404:
            cuda(g.problem(500, "device_error"), "cudaErrorInvalidValue", 1)
    c = d.ask("POST", "/v1/sessions/default/buffers", {"name": "z", "bytes": 500})
    assert c.status == 201 or cuda(c.problem(500, "device_error"), "cudaErrorInvalidValue", 1)
    assert statuses & {200, 201}
    d.settled()
    for name in ("x", "z"):
        assert d.ask("DELETE", f"/v1/sessions/default/buffers/{name}").status in (204, 404)
    until("all memory is given back", lambda: used(d) == (0, 0, 0))
    d.get("/readyz")


def answered(raw):
    return bool(select.select([raw.sock], [], [], 0)[0])


@pytest.mark.parametrize("rule, size", [("alloc@2=delay/1000", 5), ("alloc@2=delay/1000", len(BIG)),
                                        ("complete@2=delay/1000", len(BIG)), ("fill@1=delay/1000", 5)])
def test_a_slow_device_holds_up_no_http_loop(faulty, backend, rule, size):
    """There is one loop: if it waited for the device, no other request would be answered before the slow one."""
    if backend == "host" and not rule.startswith("fill"):
        pytest.skip("memory that the CPU reaches is taken on the loop, and nothing is copied")
    d = faulty(rule, "--http-threads", "1")
    d.put("x", b"first").expect(201)
    if rule.startswith("fill"):
        slow = d.raw().request("POST", "/v1/sessions/default/buffers", ["Content-Length: 23"],
                               b'{"name":"y","bytes":5} ')
    else:
        slow = d.raw().put(DATA.format("default", "x"), size).send(payload(size))
    polls, c = 0, d.client()
    while not answered(slow):
        c.ask("GET", "/livez").expect(200)
        polls += 1
    assert slow.reply().status in (200, 201)
    slow.close()
    hit = d.get("/v1/stats")  # a rule without a matching call on this path delays nothing
    assert polls > 50 or hit["transfers"]["upload"]["seconds"] < 0.9, polls


@pytest.mark.parametrize("rules", ["copy@3=cudaErrorIllegalAddress", "complete@3=cudaErrorECCUncorrectable",
                                   "alloc@2=cudaErrorLaunchFailure", "event_record@9=cudaErrorIllegalAddress",
                                   "stream_query@9=cudaErrorIllegalAddress"])
def test_a_device_that_dies(faulty, backend, rules):
    call = rules.split("@")[0]
    if call in (("copy", "complete", "event_record") if backend == "host" else ("stream_query",)):
        pytest.skip("where the CPU writes the memory itself nothing is copied, and the stream is asked and no event")
    d = faulty(rules)
    d.put("x", b"first")

    def dead():
        d.put("y", BIG)
        try:
            d.data("y")
        except Exception:
            pass
        return d.ask("GET", "/readyz").status == 503

    until("it dies", dead)
    d.ask("GET", "/livez").expect(200)
    d.ask("GET", "/readyz").problem(503, "device_lost")
    checks = d.ask("GET", "/readyz?verbose").expect(503).json()["checks"]
    assert [c["ok"] for c in checks if c["name"] == "device"] == [False]
    for act in (lambda: d.put("z", b"1"), lambda: d.put("z", BIG),
                lambda: d.ask("POST", "/v1/sessions/default/buffers", {"name": "z", "bytes": 5})):
        p = act().problem(503, "device_lost")
        assert p["cuda"]["name"].startswith("cudaError") and not p["retryable"]
    gone = d.data("x")
    assert (gone.status, gone.json()["code"]) in ((503, "device_lost"), (410, "content_lost"))
    until("buffers are reported lost", lambda: d.meta("x")["state"] == "lost")
    d.get("/v1/stats")
    with d.raw() as r:
        assert r.put(DATA.format("default", "z"), 1 << 30, expect=True).reply().status == 503 and r.continues == 0
    d.stop()


def test_transfers_under_way_when_the_device_dies(faulty, backend):
    d = faulty(("alloc@12" if backend == "host" else "copy@40") + "=cudaErrorIllegalAddress")
    raws = [d.raw().put(DATA.format("default", f"x{i}") + "?dtype=uint8", len(BIG), expect=i % 2) for i in range(8)]
    for cut in range(0, len(BIG), SLOT):
        for r in raws:
            try:
                r.send(BIG[cut:cut + SLOT])
            except OSError:
                pass
    for _ in range(60):
        if d.put("more", BIG).status == 503:
            break
    for r in raws:
        try:
            reply = r.reply()
        except OSError:
            reply = None
        assert reply is None or reply.status == 201 or reply.problem(503, "device_lost")
        r.close()
    d.settled()
    d.ask("GET", "/readyz").problem(503, "device_lost")


def test_the_process_can_end_for_its_supervisor(faulty):
    d = faulty("alloc@2=cudaErrorLaunchFailure", "--exit-on-device-loss")
    d.put("x", b"1").expect(201)
    d.put("y", b"1")
    d.finished(75)


def test_a_pool_that_is_full(start, backend):
    if not backend.startswith("host"):
        pytest.skip("only a simulated device can be made small")
    d = start(*SMALL_SLOTS, spec=backend + ("," if ":" in backend else ":") + "bytes=16M")
    d.put("x", bytes(10 << 20)).expect(201)
    before = used(d)
    p = d.put("y", bytes(10 << 20)).problem(507, "out_of_memory")
    assert p["requested_bytes"] == 10 << 20 and p["cuda"]["name"] == "cudaErrorMemoryAllocation"
    d.put("y", bytes(20 << 20)).problem(507, "out_of_memory")
    d.settled()
    assert used(d) == before
    waiting = d.raw().put(DATA.format("default", "y") + "?dtype=uint8", 10 << 20, "Prefer: wait=30").send(bytes(SLOT))
    until("it waits", lambda: d.stats()["running"]["uploads"] == 1)
    d.ask("DELETE", "/v1/sessions/default/buffers/x").expect(204)
    waiting.send(bytes((10 << 20) - SLOT))
    assert waiting.reply().status == 201
    waiting.close()


def test_bytes_that_come_too_late_leave_no_header_behind(faulty, backend):
    if backend != "host:discrete":
        pytest.skip("needs a simulated device that is reached by copies only")
    # The upload makes three copies, the download's first block is the fourth.
    d = faulty("copy@5=stall/4000", "--wait-max", "1", "--takeover-bytes", "4M")
    body = payload(3 * SLOT)
    d.put("x", body).expect(201)
    r = d.data("x")
    assert "did not come" in r.problem(503, "timed_out")["detail"]
    assert r.headers.get_all("Content-Type") == ["application/problem+json"] and r.headers["ETag"] is None
    d.settled()
    assert until("the stream is through", lambda: d.data("x").status == 200) and d.data("x").body == body


@pytest.mark.parametrize("nth", [7, 8, 9, 10, 12])
def test_a_copy_that_is_read_ahead_fails(faulty, nth):
    """Of six tensors in one reply a copy fails while an earlier tensor is sent: all slots come back, the daemon
    continues."""
    count, size = 6, SLOT + 1000
    header = {f"t{i}": {"dtype": "U8", "shape": [size], "data_offsets": [i * size, (i + 1) * size]}
              for i in range(count)}
    head = json.dumps(header).encode()
    d = faulty(f"copy@{nth}=cudaErrorInvalidValue")
    put = d.ask("PUT", "/v1/sessions/default/tensors", len(head).to_bytes(8, "little") + head + payload(count * size))
    assert put.status in (200, 201, 500)
    for _ in range(3):
        try:
            got = d.ask("GET", "/v1/sessions/default/tensors")
            assert got.status in (200, 404, 500)
        except (http.client.HTTPException, ConnectionError):
            pass  # cut off: an error after the head can be said in no other way
    d.settled()
