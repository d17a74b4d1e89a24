"""Answers that depend on the present activity: each is produced and compared with the document."""
import struct
import threading

import pytest

from conform import Session, interface
from harness import DATA, SLOT, SMALL_SLOTS, until
from values import npy, one

S = "/v1/sessions/default"


def answered(daemon, status, code, method, path, body=None, headers=None, retry=False):
    target = path if path.startswith("/v1") else S + path
    reply = daemon.ask(method, target, body, headers)
    assert ("Retry-After" in reply.headers) == retry, (method, path, reply)
    if method == "HEAD":
        assert reply.status == status, (path, reply.status)
    else:
        reply.problem(status, code)
        interface(daemon).check(method, target, reply)
    return reply


WHOLE, BEGINS = {"Upload-Complete": "?1"}, {"Upload-Complete": "?0"}
DIGEST = {"Want-Repr-Digest": "sha-256=1"}  # so that HEAD reads the bytes


def atomic(what, **fields):
    return ("POST", "/batch", {"operations": [{"op": what, **fields}], "atomic": True})


def appends(to, offset=0, complete=0):
    h = {"Content-Type": "application/partial-upload", "Upload-Offset": str(offset), "Upload-Complete": f"?{complete}"}
    return "PATCH", to, h


def begun(daemon, name="n", query="", size=None):
    """The location of an upload that can be appended to."""
    h = {**BEGINS, **({"Upload-Length": str(size)} if size is not None else {})}
    return daemon.ask("PUT", S + f"/buffers/{name}/data{query}", b"", h).expect(201).headers["Location"]


def parts(daemon, name="n", size=4):
    """The same for an upload in parts."""
    return daemon.ask("POST", S + "/uploads", {"buffer": name, "bytes": size}).expect(201).headers["Location"]


def use(name):
    return [("POST", "/buffers/k/copy", {"from": name}), ("POST", f"/buffers/{name}/copy", {"from": "k"})]


@pytest.fixture
def three(start, tmp_path):
    d = start(*SMALL_SLOTS, state=str(tmp_path))
    for name, query in ("b", ""), ("m", "?mirrored=true"), ("k", ""):
        d.put(name, b"x" * 4 * SLOT, query=query).expect(201)
    return d


def test_busy_and_partial(three):
    """During a write in place, and after it was interrupted."""
    writers = [three.raw().put(DATA.format("default", n) + "?in_place=true", 4 * SLOT).send(b"y" * 3 * SLOT)
               for n in "bm"]
    until("both are written", lambda: three.stats()["running"]["uploads"] == 2)
    rows = [*use("b"), ("POST", "/buffers/b/fill", {"pattern": 1}), ("POST", "/buffers/m/sync", {"to": "device"}),
            ("POST", "/buffers/m/reserve", {"bytes": 1 << 20, "side": "device"}),
            ("POST", "/buffers/m/release", {"side": "all"}), ("DELETE", "/buffers/b", None),
            ("GET", "/tensors?names=k,b", None), ("PUT", "/tensors", one("U8", (1,), b"1", "b")),
            ("POST", "/buffers/b/verify", None), ("PATCH", "/buffers/b/data?offset=0", b"1"),
            ("POST", "/buffers/b/data", b"1", WHOLE), atomic("fill", buffer="b", pattern=1),
            ("HEAD", "/tensors?names=k,b", None), ("HEAD", "/buffers/b/data", None, DIGEST),
            ("POST", "/uploads", {"buffer": "b", "bytes": 4})]
    for row in rows:
        answered(three, 409, "buffer_busy", *row, retry=True)
    for r in writers:
        r.reset()
    three.settled()
    assert three.meta("b")["state"] == three.meta("m")["state"] == "partial"
    for row in [("POST", "/buffers/k/copy", {"from": "b"}), ("POST", "/buffers/m/sync", {"to": "device"}),
                ("POST", "/buffers/m/reserve", {"bytes": 1 << 20, "side": "device"}),
                ("POST", "/buffers/m/release", {"side": "host"}), ("GET", "/tensors", None), ("HEAD", "/tensors", None),
                ("HEAD", "/buffers/b/data", None), ("PATCH", "/buffers/b/data?offset=0", b"1"),
                ("POST", "/buffers/b/verify", None)]:
        answered(three, 409, "buffer_partial", *row)


def test_lost(three, start, simulated):
    state = three.state
    three.stop()
    d = start(*SMALL_SLOTS, state=state)
    for row in [("GET", "/buffers/b?attributes=true", None), *use("b"), ("POST", "/buffers/m/sync", {"to": "device"}),
                ("POST", "/buffers/m/reserve", {"bytes": 1 << 20, "side": "device"}),
                ("POST", "/buffers/m/release", {"side": "all"}),
                ("POST", "/buffers/b/fill", {"pattern": 1, "bytes": 4}), ("GET", "/tensors?prefix=b", None),
                ("HEAD", "/tensors?prefix=b", None), ("HEAD", "/buffers/b/data", None),
                ("PATCH", "/buffers/b/data?offset=0", b"1"), ("POST", "/buffers/b/verify", None),
                atomic("copy", buffer="n", **{"from": "b"})]:
        answered(d, 410, "content_lost", *row)


@pytest.mark.parametrize("stream, code", [("default", "buffer_exists"), ("s", "buffer_busy")])
def test_a_name_that_is_just_being_made(start, simulated, backend, stream, code):
    """The second of one stream waits for the first; one of another stream gets 409 and a time."""
    d = start(spec=f"fault:kind_alloc=delay/1000:{backend}")
    d.ask("POST", S + "/streams", {"name": "s"}).expect(201)
    target, replies = S + "/buffers", []
    both = [threading.Thread(target=lambda body: replies.append(d.ask("POST", target, body)),
                             args=[{"name": "n", "bytes": 4, "kind": "pinned", "stream": name}])
            for name in ("default", stream)]
    for t in both:
        t.start()
    for t in both:
        t.join()
    for reply in replies:
        interface(d).check("POST", target, reply)
    late = next(r for r in replies if r.status != 201)
    assert late.problem(409, code)["retryable"] == (code == "buffer_busy")
    assert code == "buffer_exists" or int(late.headers["Retry-After"]) >= 1


def test_what_the_device_does_not_offer(start, backend):
    """501, with the device's own error."""
    no = "cudaErrorNotSupported"
    d = start(*SMALL_SLOTS, spec=f"fault:kind_alloc={no},pool_create={no}:{backend}")
    d.put("b", b"x" * 1000).expect(201)
    answered(d, 501, "unsupported", "POST", "/buffers", {"name": "n", "bytes": 4, "kind": "pinned"})
    answered(d, 501, "unsupported", "PUT", "/buffers/n/data?kind=pinned", b"1")
    answered(d, 501, "unsupported", "PUT", "/tensors?kind=pinned", one("U8", (1,), b"1"))
    answered(d, 501, "unsupported", "POST", "/pools", {"name": "n"})
    answered(d, 501, "unsupported", "PUT", "/pools/n", {})
    answered(d, 501, "unsupported", "POST", "/buffers/n/data?kind=pinned", b"1", WHOLE)
    answered(d, 501, "unsupported", "POST", "/uploads", {"buffer": "n", "bytes": 4, "kind": "pinned"})


@pytest.mark.parametrize("error, status, code", [("MemoryAllocation", 507, "out_of_memory"),
                                                 ("InvalidValue", 500, "device_error"),
                                                 ("NotSupported", 501, "unsupported")])
def test_memory_that_the_device_does_not_give(start, backend, error, status, code):
    d = start(*SMALL_SLOTS, spec=f"fault:alloc@2+=cudaError{error}:{backend}")
    d.put("b", b"12345678").expect(201)
    method, later, headers = appends(begun(d))
    for row in [("PATCH", "/buffers/b/data?offset=0", b"1"), ("POST", "/buffers/n/data", b"1", WHOLE),
                ("PUT", "/buffers/n/data", b"1"), ("POST", "/uploads", {"buffer": "n", "bytes": 4}),
                ("PUT", "/tensors", one("U8", (1,), b"1")), ("POST", "/buffers", {"name": "n", "bytes": 4}),
                ("POST", "/buffers/n/copy", {"from": "b"}), ("POST", "/buffers/b/fill", {"pattern": 1}),
                atomic("fill", buffer="b", pattern=1), (method, later, npy([1]), headers)]:
        answered(d, status, code, *row)


FAULTS = [("complete", "POST", "/streams/default/sync", {}), ("complete", "POST", "/sync", {}),
          ("event_sync", "POST", "/events/e/sync", {}),
          ("event_record_device", "DEVICE", "", {}), ("pool_access_set", "POST", "/pools/q/access",
                                                      {"device": 1, "access": "read_write"}),
          ("copy", "GET", "/buffers/b/data", None), ("pool_trim", "POST", "/pools/q/trim", {}),
          ("pool_reset_peak", "POST", "/pools/q/reset-peak", {}), ("attributes", "GET", "/buffers/b?attributes=true",
                                                                   None), ("copy", "GET", "/tensors", None),
          ("copy", "POST", "/buffers/b/verify", None)]


@pytest.mark.parametrize("op, method, path, body", FAULTS, ids=[f[0] + f[2].replace("/", "-") for f in FAULTS])
def test_what_the_device_reports(start, op, method, path, body):
    skip = {"complete": "@3+", "copy": "@2+"}.get(op, "")
    d = start(*SMALL_SLOTS, spec=f"fault:{op}{skip}=cudaErrorInvalidValue:host:discrete,devices=2")
    s = Session(d)
    s.ask("PUT", "buffers/b/data", b"x" * 1000)
    s.ask("POST", "pools", {"name": "q"})
    s.ask("POST", "events", {"name": "e"})
    s.ask("POST", "events/e/record")
    path, method = ("/v1/devices/0/sync", "POST") if method == "DEVICE" else (S + path, method)
    until("it is reported", lambda: s.ask(method, path, body).status == 500)


def test_bytes_that_the_device_does_not_move(start):
    """Answers of uploads in several requests, and of a HEAD that needs the bytes."""
    d = start(*SMALL_SLOTS, spec="fault:copy@2+=cudaErrorInvalidValue:host:discrete")
    d.put("b", b"x" * 1000).expect(201)
    assert d.ask("HEAD", S + "/buffers/b/data", None, DIGEST).status == 500
    answered(d, 500, "device_error", "PUT", parts(d) + "/parts?offset=0", b"1234")
    method, path, headers = appends(begun(d, query="?format=raw", size=4))
    answered(d, 500, "device_error", method, path, b"1234", headers)


def test_left_to_itself(start, backend):
    """If the allocation takes long: 202, and the upload exists later."""
    d = start(*SMALL_SLOTS, spec=f"fault:alloc@2=delay/200:{backend}")
    s = Session(d)
    s.put("b", b"12345678")

    def whole():
        path = parts(d)
        s.ask("PUT", path + "/parts?offset=0", b"1234").expect(200)
        return path + "/complete"

    for method, path, body, headers in [("PATCH", "buffers/b/data?offset=0", b"1", {}),
                                        ("POST", "buffers/n/data", b"1", WHOLE), ("POST", "buffers/b/verify", None, {}),
                                        ("PUT", "tensors", one("U8", (1,), b"1"), {}), ("POST", whole, None, {})]:
        def left():
            r = s.ask(method, path() if callable(path) else path, body, {"Prefer": "respond-async", **headers})
            return r if r.status == 202 else None

        r = until(f"{path} is left", left)
        assert s.ask("GET", r.headers["Location"], None, {"Prefer": "wait=30"}).expect(200).json()["state"] == "done"


CHUNKED = [("PATCH", "/buffers/b/data?offset=6", (), 422), ("PUT", "/buffers/n/data?max_bytes=2", (), 413),
           ("PUT", "/buffers/n/data?dtype=uint16", (), 422), ("POST", "/buffers/n/data?dtype=uint16",
                                                              ("Upload-Complete: ?1",), 422)]
HUGE = struct.pack("<Q", 1 << 40) + b"{" * 8  # the header of a safetensors file
REFUSED = [("PATCH", "/buffers/none/data?offset=0", b"1", {}, 404), ("PATCH", "/buffers/b/data?slice=99", b"1", {},
                                                                     416),
           ("PUT", "/buffers/b/data?slice=99", b"1", {}, 416), ("PATCH", "/buffers/b/data?slice=0:2", b"123", {}, 422),
           ("PATCH", "/buffers/b/data?offset=0&format=safetensors", HUGE, {}, 413),
           ("PUT", "/buffers/n/data?format=safetensors", HUGE, {}, 413),
           ("POST", "/buffers/n/data?format=safetensors", HUGE, WHOLE, 413), ("PUT", "/tensors", HUGE, {}, 413),
           ("POST", "/buffers/n/data?dtype=float32", b"12345", WHOLE, 422),
           ("POST", "/buffers/n/data", b"1", {**WHOLE, "If-Match": "*"}, 412),
           ("HEAD", "/buffers/b/data", None, {"Accept": "text/html"}, 406),
           ("HEAD", "/buffers/b/data?offset=99", None, {}, 416), ("HEAD", "/tensors", None, {"Accept": "text/html"},
                                                                  406), ("HEAD", "/tensors?names=none", None, {}, 404),
           ("HEAD", "/tensors", None, {"If-Match": '"no"'}, 412), ("GET", "/tensors", None, {"If-Match": '"no"'}, 412)]


def test_what_is_refused_of_the_bytes(start):
    d = start(*SMALL_SLOTS)
    d.put("b", b"12345678").expect(201)
    uploads = [("PUT", parts(d) + "/parts?offset=0", ())], [("PATCH", begun(d), ("Content-Type: "
                                                                                 "application/partial-upload",
                                                                                 "Upload-Offset: 0",
                                                                                 "Upload-Complete: ?0"))]
    for method, path, headers, status in [*CHUNKED, (*uploads[0][0], 411)]:
        target = path if path.startswith("/v1") else S + path
        with d.raw() as r:
            r.request(method, target, ["Transfer-Encoding: chunked", *headers], b"3\r\n123\r\n0\r\n\r\n")
            reply = r.reply()
        assert reply.status == status, (method, path, reply)
        interface(d).check(method, target, reply)
    with d.raw() as r:  # neither a length nor chunks
        r.request("PATCH", S + "/buffers/b/data?offset=0", [])
        reply = r.reply()
    assert reply.problem(411, "length_required")
    interface(d).check("PATCH", S + "/buffers/b/data?offset=0", reply)
    for method, path, body, headers, status in REFUSED:
        reply = d.ask(method, S + path, body, headers)
        assert reply.status == status, (method, path, reply)
        if method != "HEAD":
            interface(d).check(method, S + path, reply)
    tag = d.ask("GET", S + "/tensors").headers["ETag"]
    assert d.ask("HEAD", S + "/tensors", None, {"If-None-Match": tag}).status == 304
    for method, path, headers in [("PATCH", S + "/buffers/b/data?offset=0", ()),
                                  ("POST", S + "/buffers/n/data", ("Upload-Complete: ?1",)),
                                  ("PUT", S + "/tensors", ()), *uploads[0], *uploads[1]]:
        with d.raw() as r:
            r.request(method, path, ["Content-Encoding: br", "Content-Length: 1", *headers], b"1")
            reply = r.reply()
        assert reply.problem(415, "unsupported_media_type") and "gzip" in reply.headers["Accept-Encoding"]
        interface(d).check(method, path, reply)


def test_an_upload_that_is_just_being_completed(start, backend):
    """Freeing the replaced memory takes long: until then the upload is neither open nor completed."""
    if not backend.startswith("host"):
        pytest.skip("no request waits for the free: a GPU frees the old bytes later, in stream order")
    d = start(*SMALL_SLOTS, "--wait-max", "1", spec=f"fault:kind_free@1=delay/6000,kind_free@2=delay/6000:{backend}")
    d.put("b", b"12345678", query="?kind=pageable").expect(201)
    path = parts(d, "b")
    d.ask("PUT", path + "/parts?offset=0", b"1234").expect(200)
    with d.raw() as r:
        r.request("POST", path + "/complete", ["Content-Length: 0"])
        until("it is being completed", lambda: d.ask("PUT", path + "/parts?offset=0", b"1234").status == 409)
        for row in [("PUT", path + "/parts?offset=0", b"1234"), ("POST", path + "/complete", None),
                    ("DELETE", path, None)]:
            answered(d, 409, "upload_busy", *row, retry=True)
        assert r.reply().problem(503, "timed_out")
    until("it is completed", lambda: d.get(path)["state"] == "completed")
    assert d.data("b").body == b"1234"
    method, path, headers = appends(begun(d, "b", "?format=raw", 4), complete=1)
    reply = answered(d, 503, "timed_out", method, path, b"5678", headers, retry=True)
    assert reply.headers["Upload-Complete"] == "?1"
    until("it is completed", lambda: d.get(path)["state"] == "completed")
    assert d.data("b").body == b"5678"


def test_the_last_bytes_and_no_place(s):
    """An error about the whole body implies that the upload had all its bytes."""
    s.put("x", b"old")
    s.patch("", {"quota": {"buffers": 1}})
    path = s.ask("PUT", "buffers/x/data?format=raw", b"",
                 {**BEGINS, "Upload-Length": "3"}).expect(201).headers["Location"]
    s.delete("buffers/x")
    s.put("y", b"other")
    r = s.ask("PATCH", path, b"new", appends(path, complete=1)[2])
    assert r.problem(507, "quota_exceeded") and r.headers["Upload-Complete"] == "?1"
    s.delete("buffers/y")
    s.post(path + "/complete", status=201)
    assert s.data("x") == b"new"
