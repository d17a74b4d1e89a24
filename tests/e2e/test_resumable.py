"""Uploads that resume after a lost connection: create, HEAD, append (draft-ietf-httpbis-resumable-upload, without
104)."""
import base64
import hashlib
import random
import threading

import numpy as np
import pytest

from harness import DATA, SLOT, until
from values import crc32c, npy, payload

SIZE = 9 * SLOT + 77
IANA = "https://iana.org/assignments/http-problem-types#"
PARTIAL = {"Content-Type": "application/partial-upload"}


def create(s, name="x", body=b"", query="", length=None, method="PUT", **headers):
    h = {"Upload-Complete": "?0", **{k.replace("_", "-"): v for k, v in headers.items()}}
    if length is not None:
        h["Upload-Length"] = str(length)
    return s.ask(method, f"buffers/{name}/data{query}", body, h)


def append(s, path, offset, body, complete=False, **headers):
    h = {**PARTIAL, "Upload-Offset": str(offset), "Upload-Complete": "?1" if complete else "?0", **headers}
    return s.ask("PATCH", path, body, {k.replace("_", "-"): v for k, v in h.items()})


def head(s, path):
    r = s.ask("HEAD", path).expect(204)
    assert r.headers["Cache-Control"] == "no-store" and r.body == b""
    return r


def offset(s, path):
    return int(head(s, path).headers["Upload-Offset"])


def problem(r, status, code, slug=None):
    p = r.json()
    assert (r.status, p["code"], p["status"]) == (status, code, status), p
    assert p["type"] == (IANA + slug if slug else "urn:gpubuf:error:" + code)
    return p


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_create_and_append(s, method):
    data = payload(SIZE, 1)
    r = create(s, length=SIZE, query="?dtype=uint8", method=method).expect(201)
    path = r.headers["Location"]
    assert (r.headers["Upload-Offset"], r.headers["Upload-Complete"]) == ("0", "?0")
    assert r.json()["takes"] == "appends" and r.json()["bytes"] == SIZE
    assert append(s, path, 0, data[:1000]).expect(204).headers["Upload-Offset"] == "1000"
    h = head(s, path).headers
    assert (h["Upload-Offset"], h["Upload-Complete"], h["Upload-Length"]) == ("1000", "?0", str(SIZE))
    assert h["Upload-Limit"].startswith("max-age=")
    same = s.ask("GET", path).expect(200).headers
    assert [same[k] for k in h if k.startswith("Upload-O")] == [h["Upload-Offset"]] and same["Upload-Complete"] == "?0"
    s.ask("GET", "buffers/x").problem(404, "buffer_not_found")
    r = append(s, path, 1000, data[1000:], complete=True).expect(201)
    assert r.headers["Upload-Complete"] == "?1" and r.headers["Location"].endswith("/buffers/x")
    assert r.json()["crc32c"] == crc32c(data)
    assert s.data("x") == data
    h = head(s, path).headers
    assert (h["Upload-Offset"], h["Upload-Complete"]) == (str(SIZE), "?1")
    problem(append(s, path, SIZE, b"", complete=True), 409, "upload_completed", "completed-upload")


def test_first_bytes_and_last_request_without_any(s):
    data = payload(1000, 2)
    s.put("x", b"old")
    path = create(s, body=data[:10], length=1000, query="?format=raw").expect(201).headers["Location"]
    assert offset(s, path) == 10
    append(s, path, 10, data[10:]).expect(204)
    assert s.data("x") == b"old"
    r = append(s, path, 1000, b"", complete=True).expect(200)
    assert r.headers["ETag"] and s.data("x") == data
    r = create(s, "empty", length=0).expect(201)
    append(s, r.headers["Location"], 0, b"", complete=True).expect(201)
    assert s.data("empty") == b""


def test_the_whole_at_once_is_an_ordinary_upload(s):
    data = payload(1000, 2)
    for method in ("PUT", "POST"):
        r = s.ask(method, f"buffers/{method}/data", data, {"Upload-Complete": "?1"}).expect(201)
        assert r.headers["ETag"] and s.data(method) == data
    assert (s.ask("POST", "buffers/PUT/data", data[1:], {"Upload-Complete": "?1"}).expect(200)
            and s.data("PUT") == data[1:])
    s.ask("POST", "buffers/x/data", data).problem(400, "invalid_argument")
    until("it is given back", lambda: s.get("uploads")["items"] == [])


@pytest.mark.parametrize("seed", range(6))
def test_resets_at_any_byte(daemon, s, seed):
    """A .npy or raw bytes; each connection breaks somewhere, also within the header; every received byte is kept."""
    rng = random.Random(seed)
    a = np.arange(SIZE // 4, dtype="float32").reshape(-1, 1) if seed % 2 else None
    data = npy(a) if seed % 2 else payload(SIZE, seed)
    path = create(s, length=len(data) if seed != 3 else None).expect(201).headers["Location"]
    at = top = breaks = 0  # top: the number of bytes sent, because the daemon may process a connection later
    while at < len(data):
        few = rng.choice([3, 100, SLOT, 4 * SLOT])
        sent = min(rng.randrange(few), len(data) - at - 1)
        r = daemon.raw()
        r.request("PATCH", path, ["Content-Type: application/partial-upload", f"Upload-Offset: {at}",
                                  "Upload-Complete: ?1", f"Content-Length: {len(data) - at}"], data[at:at + sent])
        r.reset() if rng.randrange(2) else r.close()
        breaks += 1
        top = max(top, at + sent)
        new = offset(s, path)
        assert at <= new <= top
        at = new
        if breaks == 25:
            break
    for _ in range(breaks + 1):
        r = append(s, path, at, data[at:], complete=True)
        if r.status != 409:
            break
        at = offset(s, path)
    r.expect(201)
    if a is not None:
        assert (r.json()["dtype"], r.json()["shape"]) == ("float32", list(a.shape))
        assert s.data("x") == a.tobytes()
    else:
        assert s.data("x") == data
    assert daemon.settled() and s.get("stats")["open_uploads"] == {"count": 0, "bytes": 0}


def test_a_line_that_hangs_is_taken_over(daemon, s):
    data = payload(SIZE, 3)
    path = create(s, length=SIZE, query="?format=raw").expect(201).headers["Location"]
    r = daemon.raw()
    r.request("PATCH", path, ["Content-Type: application/partial-upload", "Upload-Offset: 0", "Upload-Complete: ?1",
                              f"Content-Length: {SIZE}"], data[:2 * SLOT + 5])
    until("it is under way", lambda: s.get("uploads")["items"][0]["running"] == 1)
    problem(append(s, path, 0, data), 409, "upload_busy")
    at = offset(s, path)
    assert r.reply().status == 409
    r.close()
    append(s, path, at, data[at:], complete=True).expect(201)
    assert s.data("x") == data


def test_many_at_once_and_one_gets_through(daemon, s):
    data = payload(4 * SLOT, 4)
    path = create(s, length=len(data), query="?format=raw").expect(201).headers["Location"]
    statuses = []

    def go():
        c = daemon.client()
        h = {**PARTIAL, "Upload-Offset": "0", "Upload-Complete": "?0"}
        statuses.append(c.ask("PATCH", path, data, h).status)
        c.close()

    threads = [threading.Thread(target=go) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(statuses) == [204] + [409] * 5
    append(s, path, len(data), b"", complete=True).expect(201)
    assert s.data("x") == data


def test_offsets_and_lengths(s):
    path = create(s, body=b"12345", length=100, query="?format=raw").expect(201).headers["Location"]
    r = append(s, path, 4, b"x")
    p = problem(r, 409, "upload_offset_mismatch", "mismatching-upload-offset")
    assert (p["expected-offset"], p["provided-offset"]) == (5, 4)
    assert (r.headers["Upload-Offset"], r.headers["Upload-Complete"]) == ("5", "?0")
    for body, complete, headers in ((b"x" * 96, False, {}), (b"x" * 94, True, {}),
                                    (b"x", False, {"Upload-Length": "101"}), (b"", True, {})):
        problem(append(s, path, 5, body, complete, **headers), 400, "upload_length_mismatch",
                "inconsistent-upload-length")
    for headers in ({"Content-Type": "application/octet-stream"}, {"Content-Encoding": "gzip"}):
        append(s, path, 5, b"x", **headers).problem(415, "unsupported_media_type")
    assert s.ask("PATCH", path, b"x", {"Content-Type": "text/plain"}).headers["Accept-Patch"] == PARTIAL["Content-Type"]
    for headers in ({"Upload-Offset": "five"}, {"Upload-Complete": "yes"}, {"Upload-Offset": "-1"}):
        append(s, path, 5, b"x", **headers).problem(400, "malformed_request")
    append(s, path, 5, b"x", **{"Content-Digest": "sha-256=:" + "A" * 43 + "=:"}).problem(400, "digest_mismatch")
    s.ask("PUT", path + "/parts?offset=5", b"x").problem(409, "upload_wrong_kind")
    assert offset(s, path) == 5
    s.ask("DELETE", path).expect(204)
    append(s, path, 5, b"x").problem(404, "upload_not_found")
    parts = s.ask("POST", "uploads", {"buffer": "x", "bytes": 5}).expect(201).headers["Location"]
    append(s, parts, 0, b"x").problem(409, "upload_wrong_kind")
    s.ask("DELETE", parts).expect(204)


def test_what_cannot_be_begun(s):
    before = s.get()["used_bytes"]
    for query, length, headers, status in (
            ("?format=raw", None, {}, 411), ("?offset=0", 5, {}, 404), ("?in_place=true", 5, {}, 400),
            ("?dtype=float32", 6, {}, 422), ("?dtype=float32&shape=2", 9, {}, 422),
            ("?format=raw", 5, {"Content_Encoding": "gzip"}, 415), ("?format=raw", 1 << 49, {}, 507),
            ("?format=raw", 5, {"If_Match": "*"}, 412), ("?format=raw", 2, {}, 400)):
        r = create(s, body=b"abc", query=query, length=length, **headers)
        assert r.status == status, (query, length, headers, r)
    p = create(s, body=b"\x93NUMPY\x01\x00\x06\x00{'a': ", length=100)
    assert p.status == 422, p
    create(s, body=npy(np.zeros(3)), query="?dtype=uint8", length=152).problem(400, "invalid_argument")
    until("none is left", lambda: s.get("uploads")["items"] == [])
    until("their memory is given back", lambda: s.get()["used_bytes"] == before)


def test_what_turns_out_when_it_comes(daemon, s):
    """Errors in the first bytes are reported with the first bytes."""
    path = create(s).expect(201).headers["Location"]
    append(s, path, 0, b"x" * 12).problem(411, "length_required")
    path = create(s).expect(201).headers["Location"]
    append(s, path, 0, npy(np.zeros(3, dtype="U5"))).problem(422, "unsupported_array")
    path = create(s).expect(201).headers["Location"]
    assert s.ask("PATCH", "", {"quota": {"bytes": 10}}).status == 200
    append(s, path, 0, npy(np.zeros(100))).problem(507, "quota_exceeded")
    path = create(s, length=5, query="?format=raw").expect(201).headers["Location"]
    r = daemon.raw()
    r.request("PATCH", path, ["Content-Type: application/partial-upload", "Upload-Offset: 0", "Upload-Complete: ?0",
                              "Transfer-Encoding: chunked"], b"7\r\n1234567\r\n0\r\n\r\n")
    assert r.reply().status == 413
    r.close()
    assert offset(s, path) == 5  # the bytes that there was room for
    s.ask("DELETE", path).expect(204)
    until("it is given back", lambda: s.get("uploads")["items"] == [] and s.get()["used_bytes"] == 0)


def test_refusals_of_post(daemon, s):
    for query, length, headers, status in (
            ("?format=raw", None, {}, 411), ("?stream=none", 5, {}, 404), ("?dtype=float32", 6, {}, 422),
            ("?format=raw", 5, {"Content_Encoding": "gzip"}, 415), ("?format=raw", 1 << 49, {}, 507),
            ("", 1 << 49, {}, 507), ("?pool=none", None, {}, 404), ("?format=raw", 5, {"If_Match": "*"}, 412)):
        r = create(s, query=query, length=length, method="POST", **headers)
        assert r.status == status, (query, length, headers, r)
    s.put("x", payload(SIZE))
    r = daemon.raw().put(DATA.format(s.name, "x") + "?in_place=true", SIZE).send(b"x" * 100)
    until("it has begun", lambda: daemon.stats()["running"]["uploads"] == 1)  # a reader would prevent its start
    s.ask("GET", "buffers/x/data").problem(409, "buffer_busy")
    s.ask("POST", "uploads", {"buffer": "x", "bytes": 5}).problem(409, "buffer_busy")
    create(s, length=5, query="?format=raw", method="POST").problem(409, "buffer_busy")
    r.reset()
    until("it is given back", lambda: s.get("uploads")["items"] == [])
    # never treated as complete
    for said in ("?2", "1", "?0;X=1", "?0;x=", "?0,", "?0, ?1", "?0 ?1", '"?0"', "?01", "?0;x=1;", "?0 ;x", ""):
        for method in ("POST", "PUT"):
            s.ask(method, "buffers/x/data", b"12", {"Upload-Complete": said}).problem(400, "malformed_request")
    with daemon.raw() as r:  # on two lines, it is no item
        r.put(DATA.format(s.name, "x"), 2, "Upload-Complete: ?1", "Upload-Complete: ?0").send(b"12")
        assert r.reply().status == 400


def test_parameters_of_fields_are_ignored(daemon, s):
    """RFC 9651: an item may have some that its reader does not know."""
    data = payload(100, 41)
    for more in (";x=1", ';  x;y=?0; z="a;b"', ";a=:AA==:;*k=tok/en", ";x=1.5;y=@12", "  "):
        h = {"Upload-Complete": "?0" + more, "Upload-Length": "100" + more}
        path = s.ask("POST", "buffers/x/data", data[:10], h).expect(201).headers["Location"]
        h = {**PARTIAL, "Upload-Offset": "010" + more, "Upload-Complete": "?0" + more}
        s.ask("PATCH", path, data[10:20], h).expect(204)
        h.update({"Upload-Offset": "20" + more, "Upload-Complete": "?1" + more, "Upload-Length": "100"})
        assert s.ask("PATCH", path, data[20:], h).status in (200, 201)
        assert s.data("x") == data
        s.ask("PUT", "buffers/x/data", data, {"Upload-Complete": "?1" + more, "Upload-Length": "100"
                                              + more}).expect(200)
    path = create(s, length=100).expect(201).headers["Location"]
    for name, value in (("Upload-Offset", "0;"), ("Upload-Offset", "0.0"), ("Upload-Offset", "-1;x"),
                        ("Upload-Offset", "0, 0"), ("Upload-Offset", "?0"), ("Upload-Length", "1" * 16),
                        ("Upload-Length", "five"), ("Upload-Length", "100;x=(1)"), ("Upload-Complete", "0")):
        append(s, path, 0, b"x", **{name: value}).problem(400, "malformed_request")
    assert offset(s, path) == 0


def test_what_is_misread_would_be_taken_for_the_whole(s):
    s.put("x", b"12345678")
    for method, path, headers, status, code in (
            ("PUT", "buffers/x/data", {"Upload-Complete": "?1", "Upload-Length": "5"}, 400, "upload_length_mismatch"),
            ("PUT", "buffers/x/data", {"Upload-Length": "5"}, 400, "upload_length_mismatch"),
            ("PUT", "buffers/x/data", {"Upload-Complete": "?0", "Upload-Length": "five"}, 400, "malformed_request"),
            ("PATCH", "buffers/x/data?offset=0", {"Upload-Complete": "?0"}, 400, "invalid_argument"),
            ("PUT", "tensors", {"Upload-Complete": "?0"}, 400, "invalid_argument")):
        s.ask(method, path, b"abc", headers).problem(status, code)
    assert s.data("x") == b"12345678" and s.get("uploads")["items"] == []
    path = s.ask("POST", "uploads", {"buffer": "x", "bytes": 0}).expect(201).headers["Location"]
    s.ask("POST", path + "/complete", {}, {"Repr-Digest": "sha-256=:AAAA:"}).problem(400, "invalid_argument")


def test_no_body_is_an_empty_one(daemon, s):
    """curl -X PUT sends no Content-Length."""
    r = daemon.raw().request("PUT", DATA.format(s.name, "x"), ["Upload-Complete: ?0", "Upload-Length: 5"]).reply()
    assert (r.status, r.headers["Upload-Offset"]) == (201, "0")
    assert daemon.raw().request("PUT", DATA.format(s.name, "x")).reply().status == 411


def test_npy_headers_in_pieces(s):
    a = np.arange(1000, dtype="int16").reshape(10, 100)
    for version in ((1, 0), (2, 0), (3, 0)):
        data = npy(a, version)
        path = create(s, body=data[:1]).expect(201).headers["Location"]
        at = 1
        for step in (5, 3, 2, 1, 50, 20, 100):
            append(s, path, at, data[at:at + step]).expect(204)
            at += step
            assert offset(s, path) == at
        assert head(s, path).headers["Upload-Length"] == str(len(data))
        append(s, path, at, data[at:], complete=True)
        assert s.data("x") == a.tobytes() and s.meta("x")["dtype"] == "int16"
    path = create(s, body=data[:40]).expect(201).headers["Location"]
    append(s, path, 40, data[40:60], complete=True).problem(422, "unsupported_array")
    assert s.get("uploads")["items"][-1]["state"] == "completed"  # that upload is gone


def test_safetensors(s):
    from safetensors.numpy import save

    a = np.arange(5000, dtype="float32")
    data = save({"w": a})
    path = create(s, body=data[:20], length=len(data)).expect(201).headers["Location"]
    append(s, path, 20, data[20:500]).expect(204)
    append(s, path, 500, data[500:], complete=True).expect(201)
    assert s.meta("x")["dtype"] == "float32" and s.data("x") == a.tobytes()


def promise(*bodies):
    """Content-Digest of those bytes."""
    return {"Content-Digest": f"sha-256=:{base64.b64encode(hashlib.sha256(b''.join(bodies)).digest()).decode()}:"}


A = np.arange(3 * SLOT // 4, dtype="float32").reshape(3, -1)
FORMS = {"npy": (npy(A), "", A.tobytes()), "raw": (payload(SIZE, 31), "?format=raw", None),
         "unsaid": (payload(SIZE, 32), "", None), "shape": (A.tobytes(), "?dtype=float32&shape=3," + str(A.shape[1]),
                                                            None), "short": (payload(8, 33), "", None)}


@pytest.mark.parametrize("form, told", [*((f, True) for f in FORMS), ("npy", False), ("shape", False)])
def test_bytes_with_another_digest_are_discarded(daemon, s, form, told):
    """Also those that have said already what the upload is. The client continues at once, where it stood."""
    data, query, content = FORMS[form]
    length = len(data) if told else None
    for cut in sorted({0, 4, 7, len(data) // 2}):
        if cut:
            create(s, "none", data[:cut], query, length, **promise(data[:cut], b"!")).problem(400, "digest_mismatch")
            assert not [u for u in s.get("uploads")["items"] if u["state"] == "open"]
        path = create(s, body=data[:cut], query=query, length=length,
                      **(promise(data[:cut]) if cut else {})).expect(201).headers["Location"]
        for rest, complete in ((data[cut:], True), (data[cut:], False), (data[cut:cut + 3], False),
                               (data[cut:-1] + b"?", True)):
            append(s, path, cut, rest, complete, **promise(rest, b"!")).problem(400, "digest_mismatch")
        assert append(s, path, cut, data[cut:cut + 1],
                      **promise(data[cut:cut + 1])).expect(204).headers["Upload-Offset"] == str(cut + 1)
        append(s, path, cut + 1, data[cut + 1:-1], **promise(b"!")).problem(400, "digest_mismatch")
        assert offset(s, path) == cut + 1
        append(s, path, cut + 1, data[cut + 1:], True, **promise(data[cut + 1:]))
        assert s.data("x") == (data if content is None else content)
        assert (s.meta("x")["crc32c"] == crc32c(s.data("x")) and s.meta("x")["dtype"]
                == ("float32" if form in ("npy", "shape") else "uint8"))
    until("nothing is held", lambda: s.get()["used_bytes"] == len(s.data("x")))


def test_bytes_that_are_not_compared_do_not_count(daemon, s):
    """The connection breaks before their end, or they are refused for another reason."""
    data = npy(A)
    path = create(s, query="", length=len(data)).expect(201).headers["Location"]
    for sent in (1, 200, len(data) - 1):
        r = daemon.raw()
        r.request("PATCH", path, ["Content-Type: application/partial-upload", "Upload-Offset: 0", "Upload-Complete: ?0",
                                  f"Content-Length: {len(data)}", "Content-Digest: " + promise(data)["Content-Digest"]],
                  data[:sent])
        until("it has begun", lambda: append(s, path, 5, b"").json()["code"] == "upload_busy")
        r.reset()
        assert offset(s, path) == 0
    bad = data.replace(b"float", b"fruit").replace(b"<f4", b"<q9")
    append(s, path, 0, bad, **promise(data)).problem(422, "unsupported_array")
    assert offset(s, path) == 0  # the digest would have told that these are other bytes
    append(s, path, 0, data, Repr_Digest=promise(data)["Content-Digest"]).problem(400, "invalid_argument")
    append(s, path, 0, data, True, **promise(data)).expect(201)
    assert s.data("x") == A.tobytes()


def test_conditions_outlive_bytes_that_were_discarded(s):
    data = npy(A)
    s.put("x", b"1")
    path = create(s, length=len(data), If_Match='"9"', body=b"").status
    assert path == 412
    etag = s.ask("HEAD", "buffers/x/data").headers["ETag"]
    path = create(s, length=len(data), If_Match=etag).expect(201).headers["Location"]
    append(s, path, 0, data, True, **promise(b"")).problem(400, "digest_mismatch")
    s.put("x", b"2")
    append(s, path, 0, data, True, **promise(data)).problem(412, "precondition_failed")
    assert s.data("x") == b"2"


def test_chunked_appends(daemon, s):
    data = payload(3 * SLOT, 5)
    path = create(s, length=len(data), query="?format=raw").expect(201).headers["Location"]

    def chunked(at, body, complete):
        r = daemon.raw()
        r.request("PATCH", path, ["Content-Type: application/partial-upload", f"Upload-Offset: {at}",
                                  f"Upload-Complete: ?{complete}", "Transfer-Encoding: chunked"])
        for i in range(0, len(body), 100000):
            piece = body[i:i + 100000]
            r.send(b"%x\r\n" % len(piece) + piece + b"\r\n")
        reply = r.send(b"0\r\n\r\n").reply()
        r.close()
        return reply

    assert chunked(0, data[:300001], 0).status == 204
    p = problem(chunked(300001, data[300001:-1], 1), 409, "upload_incomplete")
    assert p["missing"] == [{"offset": len(data) - 1, "bytes": 1}]
    assert chunked(len(data) - 1, data[-1:], 1).status == 201
    assert s.data("x") == data


def test_conditions_hold_at_the_end(s):
    data = payload(1000, 6)
    one, two = (create(s, body=data, length=1000, query="?format=raw",
                       If_None_Match="*").expect(201).headers["Location"]
                for _ in range(2))
    append(s, one, 1000, b"", complete=True).expect(201)
    r = append(s, two, 1000, b"", complete=True)
    r.problem(412, "precondition_failed")
    assert r.headers["Upload-Complete"] == "?1"  # announced for the whole
    s.ask("DELETE", two).expect(204)
    s.ask("DELETE", one).expect(204)
    until("it is given back", lambda: s.get("uploads")["items"] == [])


def test_quota_is_got_at_once_and_given_back(daemon, s):
    assert s.ask("PATCH", "", {"quota": {"bytes": SIZE}}).status == 200
    path = create(s, length=SIZE, query="?format=raw").expect(201).headers["Location"]
    create(s, "y", length=1, query="?format=raw").problem(507, "quota_exceeded")
    s.ask("DELETE", path).expect(204)
    until("it is given back", lambda: s.get()["used_bytes"] == 0)
    # Refused at the header, before the body.
    r = daemon.raw()
    r.request("PUT", DATA.format(s.name, "y") + "?format=raw",
              ["Upload-Complete: ?0", f"Upload-Length: {SIZE + 1}", f"Content-Length: {SIZE + 1}",
               "Expect: 100-continue"])
    assert r.head()[0] == 507
    r.close()
    until("it is given back", lambda: s.get("uploads")["items"] == [])


def test_it_ends_with_the_process_and_the_old_bytes_are_told_of(start, tmp_path):
    state = str(tmp_path)
    d = start(state=state)
    d.put("x", payload(1000, 1)).expect(201)
    h = {"Upload-Complete": "?0", "Upload-Length": "5000"}
    path = d.ask("PUT", DATA.format("default", "x") + "?format=raw", b"x" * 100, h).expect(201).headers["Location"]
    d.kill()
    d = start(state=state)
    assert d.ask("HEAD", path).status == 404
    d.ask("PATCH", path, b"", {**PARTIAL, "Upload-Offset": "100",
                               "Upload-Complete": "?0"}).problem(404, "upload_not_found")
    assert d.meta("x")["bytes"] == 1000
