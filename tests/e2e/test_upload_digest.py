"""Completing an upload with a digest of the whole, computed from the memory itself; and concurrent requests."""
import base64
import hashlib
import json

import pytest

from conform import Session
from harness import SLOT, until
from test_uploads import SIZE, Upload, held, offered
from values import crc32c, payload


def sha(data, name="sha256"):
    return base64.b64encode(hashlib.new(name, data).digest()).decode()


def of(data):
    return {"digest": {"sha-256": sha(data)}}


@pytest.mark.parametrize("kind", ["device", "shared", "managed", "pinned", "pageable", "ipc"])
def test_a_wrong_one_leaves_the_old_bytes(daemon, s, kind):
    """The upload stays and can be corrected."""
    if kind not in offered(daemon):
        s.ask("POST", "uploads", {"buffer": "x", "bytes": 5, "kind": kind}).problem(501, "unsupported")
        return
    old, data = payload(100, 1), payload(SIZE, 2)
    wrong = data[:SLOT] + bytes([data[SLOT] ^ 1]) + data[SLOT + 1:]
    s.put("x", old, f"?kind={kind}")
    before = s.meta("x")
    u = Upload(s, kind=kind)
    u.part(0, wrong[:SLOT]).expect(200)
    u.complete(of(data)).problem(409, "upload_incomplete")
    u.part(SLOT, wrong[SLOT:]).expect(200)
    for _ in range(2):
        detail = u.complete(of(data)).problem(400, "digest_mismatch")["detail"]
        assert sha(data) in detail and sha(wrong) in detail
    u.complete({"digest": {"sha-256": sha(wrong), "sha-512": sha(data, "sha512")}}).problem(400, "digest_mismatch")
    assert s.data("x") == old and s.meta("x") == before and u.get()["state"] == "open"
    u.part(f"{SLOT}&replace=true", data[SLOT:]).expect(200)
    u.complete(of(data), {"If-Match": '"other"'}).problem(412, "precondition_failed")
    u.complete({**of(data), "crc32c": crc32c(wrong)}).problem(400, "digest_mismatch")
    u.complete({"digest": {"sha-256": sha(data), "sha-512": sha(data, "sha512")}, "crc32c": crc32c(data)}).expect(200)
    assert s.data("x") == data and s.meta("x")["crc32c"] == crc32c(data)
    assert held(s) == ({"count": 0, "bytes": 0}, SIZE)


def test_a_mirrored_buffer(s):
    data = payload(SIZE, 2)
    s.put("x", b"old", "?mirrored=true")
    u = Upload(s)
    u.part(0, data).expect(200)
    u.complete(of(b"x")).problem(400, "digest_mismatch")
    assert s.data("x") == b"old"
    assert u.complete(of(data)).expect(200).json()["mirrored"] is True
    assert s.data("x") == data


def test_of_nothing(s):
    u = Upload(s, bytes=0)
    u.complete(of(b"x")).problem(400, "digest_mismatch")
    u.complete(of(b"")).expect(201)


@pytest.mark.parametrize("digest, code", [
    ({"md5": "x"}, "invalid_argument"), ({"sha-256": "x"}, "invalid_argument"), ({"sha-256": 1}, "wrong_type"),
    ("x", "wrong_type"),
])
def test_malformed(s, digest, code):
    u = Upload(s, bytes=0)
    u.complete({"digest": digest}).problem(400, code)
    assert u.get()["state"] == "open"


def test_again_with_a_key(s):
    u = Upload(s)
    data = payload(SIZE, 4)
    u.part(0, data).expect(200)
    for _ in range(2):  # it may be corrected, so the answer is not stored
        r = u.complete(of(b"x"), {"Idempotency-Key": "a"})
        assert r.problem(400, "digest_mismatch")["retryable"] and "Idempotency-Replayed" not in r.headers
    first = u.complete(of(data), {"Idempotency-Key": "b"}).expect(201)
    again = u.complete(of(data), {"Idempotency-Key": "b"}).expect(201)
    assert again.body == first.body and again.headers["Idempotency-Replayed"] == "true"


@pytest.mark.parametrize("end", ["complete", "upload", "session"])
def test_while_it_is_computed(start, backend, end):
    """The digest waits behind a stalled fill on the stream."""
    d = start(spec=f"fault:place_fill@1=stall/3000:{backend}")
    d.ask("POST", "/v1/sessions", {"name": "digest"}).expect(201)
    s = Session(d, "digest")
    data = payload(SIZE, 3)
    s.put("x", b"old")
    s.put("y", b"12345678")
    u = Upload(s)
    u.part(0, data).expect(200)

    def send(target, fields):
        body = json.dumps(fields).encode()
        return d.raw().request("POST", target, [f"Content-Length: {len(body)}"], body)

    fill = send(s.base + "/buffers/y/fill", {"pattern": 1})
    until("the fill is under way", lambda: s.get("/v1/stats")["running"]["writes"] == 1)
    complete = send(u.path + "/complete", of(data))
    until("the digest is being computed", lambda: u.part(0, b"x").expect(409).json()["code"] == "upload_busy")
    r = u.complete()
    assert r.problem(409, "upload_busy") and r.headers["Retry-After"] == "1"
    assert u.get()["state"] == "open"
    if end == "complete":
        complete.reply().expect(200)
        assert s.data("x") == data
        return
    if end == "upload":
        u.delete().expect(204)
        complete.reply().expect(404)
        fill.reply().expect(200)
        assert s.data("x") == b"old" and held(s) == ({"count": 0, "bytes": 0}, 11)
    else:
        d.ask("DELETE", s.base).expect(204)
        complete.reply().expect(404)
    u.part(0, b"x").expect(404)
