"""Answers that only come of what is going on at the moment: each is produced, and held against the document."""
import threading

import pytest

from conform import Session, interface
from harness import DATA, SLOT, SMALL_SLOTS, until
from values import one

S = "/v1/sessions/default"


def answered(daemon, status, code, method, path, body=None, retry=False):
    target = S + path
    reply = daemon.ask(method, target, body)
    reply.problem(status, code)
    assert ("Retry-After" in reply.headers) == retry
    interface(daemon).check(method, target, reply)


def use(name):
    return [("POST", "/buffers/k/copy", {"from": name}), ("POST", f"/buffers/{name}/copy", {"from": "k"})]


@pytest.fixture
def three(start, tmp_path):
    d = start(*SMALL_SLOTS, state=str(tmp_path))
    for name, query in ("b", ""), ("m", "?mirrored=true"), ("k", ""):
        d.put(name, b"x" * 4 * SLOT, query=query).expect(201)
    return d


def test_busy_and_partial(three):
    """While a write in place goes on, and after it broke off."""
    writers = [three.raw().put(DATA.format("default", n) + "?in_place=true", 4 * SLOT).send(b"y" * 3 * SLOT) for n in "bm"]
    until("both are written", lambda: three.stats()["running"]["uploads"] == 2)
    rows = [*use("b"), ("POST", "/buffers/b/fill", {"pattern": 1}), ("POST", "/buffers/m/sync", {"to": "device"}),
            ("POST", "/buffers/m/release", {"side": "all"}), ("DELETE", "/buffers/b", None),
            ("GET", "/tensors?names=k,b", None), ("PUT", "/tensors", one("U8", (1,), b"1", "b"))]
    for row in rows:
        answered(three, 409, "buffer_busy", *row, retry=True)
    for r in writers:
        r.reset()
    three.settled()
    assert three.meta("b")["state"] == three.meta("m")["state"] == "partial"
    for row in [("POST", "/buffers/k/copy", {"from": "b"}), ("POST", "/buffers/m/sync", {"to": "device"}),
                ("POST", "/buffers/m/release", {"side": "host"}), ("GET", "/tensors", None)]:
        answered(three, 409, "buffer_partial", *row)


def test_lost(three, start, simulated):
    state = three.state
    three.stop()
    d = start(*SMALL_SLOTS, state=state)
    for row in [("GET", "/buffers/b?attributes=true", None), *use("b"), ("POST", "/buffers/m/sync", {"to": "device"}),
                ("POST", "/buffers/m/release", {"side": "all"}), ("POST", "/buffers/b/fill", {"pattern": 1, "bytes": 4}),
                ("GET", "/tensors?prefix=b", None)]:
        answered(d, 410, "content_lost", *row)


def test_a_name_that_is_just_being_made(start, simulated, backend):
    d = start(spec=f"fault:alloc=delay/1000:{backend}")
    target, replies = S + "/buffers", []
    both = [threading.Thread(target=lambda: replies.append(d.ask("POST", target, {"name": "n", "bytes": 4}))) for _ in range(2)]
    for t in both:
        t.start()
    for t in both:
        t.join()
    for reply in replies:
        interface(d).check("POST", target, reply)
    late = next(r for r in replies if r.status != 201)
    assert late.problem(409, "buffer_busy")["retryable"] and int(late.headers["Retry-After"]) >= 1


def test_what_the_device_does_not_offer(start, backend):
    """501: the device's own word for it."""
    no = "cudaErrorNotSupported"
    d = start(*SMALL_SLOTS, spec=f"fault:kind_alloc={no},pool_create={no}:{backend}")
    d.put("b", b"x" * 1000).expect(201)
    answered(d, 501, "unsupported", "POST", "/buffers", {"name": "n", "bytes": 4, "kind": "pinned"})
    answered(d, 501, "unsupported", "PUT", "/buffers/n/data?kind=pinned", b"1")
    answered(d, 501, "unsupported", "PUT", "/tensors?kind=pinned", one("U8", (1,), b"1"))
    answered(d, 501, "unsupported", "POST", "/pools", {"name": "n"})


FAULTS = [("complete", "POST", "/streams/default/sync", {}), ("complete", "POST", "/sync", {}), ("event_record_device", "DEVICE", "", {}),
          ("pool_access_set", "POST", "/pools/q/access", {"device": 1, "access": "read_write"}), ("copy", "GET", "/buffers/b/data", None)]


@pytest.mark.parametrize("op, method, path, body", FAULTS, ids=[f[0] + f[2].replace("/", "-") for f in FAULTS])
def test_what_the_device_reports(start, op, method, path, body):
    skip = {"complete": "@3+", "copy": "@2+"}.get(op, "")
    d = start(*SMALL_SLOTS, spec=f"fault:{op}{skip}=cudaErrorInvalidValue:host:discrete,devices=2")
    s = Session(d)
    s.ask("PUT", "buffers/b/data", b"x" * 1000)
    s.ask("POST", "pools", {"name": "q"})
    path, method = ("/v1/devices/0/sync", "POST") if method == "DEVICE" else (S + path, method)
    until("it is reported", lambda: s.ask(method, path, body).status == 500)
