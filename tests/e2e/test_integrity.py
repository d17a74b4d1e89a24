"""Digests: a wrong one leaves the old bytes, for every way of upload; digests of downloads; verification of the
memory."""
import base64
import gzip
import hashlib
import io

import numpy as np
import pytest

from harness import DATA, SLOT, library, until
from values import crc32c, npy, payload

SIZE = 5 * SLOT + 11
NAMES = {"sha-256": "sha256", "sha-512": "sha512"}


def b64(data, algorithm="sha-256"):
    return base64.b64encode(hashlib.new(NAMES[algorithm], data).digest()).decode()


def field(data, algorithm="sha-256"):
    return f"{algorithm}=:{b64(data, algorithm)}:"


# --- uploads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["Content-Digest", "Repr-Digest"])
@pytest.mark.parametrize("algorithm", [*NAMES])
@pytest.mark.parametrize("size", [0, 1, SLOT, SIZE])
def test_right_digests_pass(daemon, session, header, algorithm, size):
    data = payload(size)
    daemon.put("x", data, session, headers={header: field(data, algorithm)}).expect(201)
    both = field(data, "sha-512") + ", md5=:AAAA:, " + field(data)
    daemon.put("x", data, session, headers={header: both}).expect(200)
    assert daemon.data("x", session).body == data


def ways():
    """The ways of uploading a body with a wrong digest: (name, previous content, body, query, headers, way of
    sending)"""
    data = payload(SIZE, 1)
    array = npy(np.arange(70_000, dtype=np.float32))
    plain = {}
    coded = {"Content-Encoding": "gzip"}
    for how in ("at once", "expect", "chunked", "unix"):
        yield f"raw {how}", data, "", plain, how
        yield f"npy {how}", array, "", plain, how
        yield f"gzip {how}", gzip.compress(data, 1), f"?shape={SIZE}", coded, how
        yield f"gzip npy {how}", gzip.compress(array, 1), "", coded, how
    yield "slot", payload(SLOT), "", plain, "at once"
    yield "empty", b"", "", plain, "at once"
    yield "small", b"x", "", plain, "at once"
    yield "zstd", library("zstandard").ZstdCompressor().compress(data), f"?shape={SIZE}", {"Content-Encoding":
                                                                                           "zstd"}, "expect"
    yield "another kind", data, "?kind=pinned", plain, "at once"


WAYS = list(ways())


def send(daemon, session, name, body, query, headers, how):
    r = daemon.raw(unix=how == "unix")
    target = DATA.format(session, name) + query
    lines = [f"{k}: {v}" for k, v in headers.items()]
    if how == "chunked":
        r.request("PUT", target, ["Transfer-Encoding: chunked", *lines])
        r.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n")
    else:
        r.put(target, len(body), *lines, expect=how == "expect")
        if how == "expect":
            assert r.head()[0] == 100
        r.send(body)
    reply = r.reply()
    r.close()
    return reply


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("way", WAYS, ids=[w[0] for w in WAYS])
def test_a_wrong_digest_leaves_the_old_bytes(daemon, session, way, exists):
    name, body, query, headers, how = way
    old = payload(3 * SLOT + 1, 2)
    if name.startswith("raw chunked"):
        query = f"?shape={SIZE}"
    if exists:
        daemon.put("x", old, session).expect(201)
    before, used = daemon.contents(), daemon.get("/v1/sessions/" + session)["used_bytes"]
    for algorithm in NAMES:
        for header in ("Content-Digest", "Repr-Digest"):
            wrong = {**headers, header: field(body + b"?", algorithm)}
            p = send(daemon, session, "x", body, query, wrong, how).problem(400, "digest_mismatch")
            assert (b64(body + b"?", algorithm) in p["detail"] and b64(body, algorithm) in p["detail"]
                    and header in p["detail"])
    until("the quota is given back", lambda: daemon.get("/v1/sessions/" + session)["used_bytes"] == used)
    assert daemon.contents() == before
    if exists:
        assert daemon.data("x", session).body == old
    else:
        daemon.data("x", session).problem(404, "buffer_not_found")
    good = {**headers, "Content-Digest": field(body), "Repr-Digest": field(body, "sha-512")}
    send(daemon, session, "x", body, query, good, how).expect(200 if exists else 201)


def test_a_wrong_digest_of_a_part_leaves_the_old_bytes(daemon, session):
    old, part = payload(SIZE, 1), payload(SLOT, 2)
    daemon.put("x", old, session).expect(201)
    before = daemon.contents()
    daemon.put("x", part, session, "?offset=7", {"Content-Digest": field(old)}).problem(400, "digest_mismatch")
    until("its memory is given back", lambda: daemon.contents() == before)
    assert daemon.data("x", session).body == old
    daemon.put("x", part, session, "?offset=7", {"Content-Digest": field(part)}).expect(200)
    assert daemon.data("x", session).body == old[:7] + part + old[7 + SLOT:]


@pytest.mark.parametrize("query", ["?in_place=true", "?in_place=true&offset=0"])
def test_a_wrong_digest_in_place_is_partial(daemon, session, query):
    old, new = payload(SIZE, 1), payload(SIZE, 2)
    daemon.put("x", old, session).expect(201)
    daemon.put("x", new, session, query, {"Repr-Digest": field(old)}).problem(400, "digest_mismatch")
    until("it is partial", lambda: daemon.meta("x", session)["state"] == "partial")
    daemon.data("x", session).problem(409, "buffer_partial")
    daemon.ask("POST", f"/v1/sessions/{session}/buffers/x/verify").problem(409, "buffer_partial")
    daemon.put("x", new, session, headers={"Repr-Digest": field(new)}).expect(200)
    assert daemon.data("x", session).body == new


def test_with_a_coding_both_digests_are_of_what_is_sent(daemon, session):
    data = payload(SIZE)
    body = gzip.compress(data)
    for header in ("Content-Digest", "Repr-Digest"):
        daemon.put("x", body, session, f"?shape={SIZE}", {"Content-Encoding": "gzip", header: field(data)}).problem(
            400, "digest_mismatch")
        daemon.put("x", body, session, f"?shape={SIZE}", {"Content-Encoding": "gzip", header: field(body)})
        assert daemon.data("x", session).body == data


@pytest.mark.parametrize("value,code", [("sha-256", "malformed_request"), ("sha-256=:AAAA:", "malformed_request"),
                                        ("sha-256=1", "malformed_request"), ("sha-256=:*:", "malformed_request"),
                                        ("=:AAAA:", "malformed_request"), ("md5=:AAAA:", "invalid_argument"),
                                        ("md5=:AAAA:,", "malformed_request")])
def test_malformed_digests_are_refused_before_the_body(daemon, session, value, code):
    before = daemon.contents()
    for header in ("Content-Digest", "Repr-Digest"):
        r = daemon.raw().put(DATA.format(session, "x"), 5 << 20, f"{header}: {value}", expect=True)
        r.reply().problem(400, code)
        assert r.continues == 0
        r.close()
    assert daemon.contents() == before


# --- downloads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, SLOT, SIZE])
def test_repr_digest_of_downloads(daemon, session, size):
    data = payload(size)
    daemon.put("x", data, session).expect(201)
    target = DATA.format(session, "x")
    for algorithm in NAMES:
        want = {"Want-Repr-Digest": f"{algorithm}=3, md5=10"}
        for method in ("HEAD", "GET", "GET"):
            r = daemon.ask(method, target, headers=want).expect(200)
            assert r.headers["Repr-Digest"] == field(data, algorithm)
            assert r.headers["Content-Digest"] is None
            assert method == "HEAD" or r.body == data
        if size > 20:
            r = daemon.ask("GET", target, headers={**want, "Range": "bytes=3-9"}).expect(206)
            assert r.body == data[3:10] and r.headers["Repr-Digest"] == field(data, algorithm)
        r = daemon.ask("GET", target, headers={"Want-Content-Digest": f"{algorithm}=1"}).expect(200)
        assert r.headers["Content-Digest"] == r.headers["Repr-Digest"] == field(data, algorithm)
    assert daemon.ask("GET", target).headers["Repr-Digest"] is None
    assert daemon.ask("GET", target, headers={"Want-Repr-Digest": "md5=10"}).expect(200).headers["Repr-Digest"] is None
    assert (daemon.ask("GET", target, headers={"Want-Repr-Digest": "sha-256=0"}).expect(200).headers["Repr-Digest"]
            is None)
    daemon.ask("GET", target, headers={"Want-Repr-Digest": "sha-256=x"}).problem(400, "malformed_request")
    best = {"Want-Repr-Digest": "sha-256=2, sha-512=7"}
    assert daemon.ask("GET", target, headers=best).headers["Repr-Digest"] == field(data, "sha-512")


def test_each_form_and_generation_has_its_digest(daemon, session):
    array = np.arange(70_000, dtype=np.int16).reshape(70, 1000)
    target, want = DATA.format(session, "x"), {"Want-Repr-Digest": "sha-256=1"}
    for generation in range(3):
        daemon.put("x", npy(array + generation), session)
        raw = daemon.ask("GET", target, headers=want).expect(200)
        file = daemon.ask("GET", target + "?format=npy", headers=want).expect(200)
        assert raw.headers["Repr-Digest"] == field(raw.body) and raw.body == (array + generation).tobytes()
        assert file.headers["Repr-Digest"] == field(file.body) and file.body != raw.body
    daemon.ask("PATCH", f"/v1/sessions/{session}/buffers/x", {"dtype": "uint8", "shape": [140_000]}).expect(200)
    file = daemon.ask("GET", target + "?format=npy", headers=want).expect(200)
    assert np.load(io.BytesIO(file.body)).shape == (140_000,) and file.headers["Repr-Digest"] == field(file.body)


def test_digest_requests_that_find_nothing_to_send(daemon, session):
    target, want = DATA.format(session, "x"), {"Want-Repr-Digest": "sha-256=1"}
    daemon.ask("GET", target, headers=want).problem(404, "buffer_not_found")
    tag = daemon.put("x", payload(100), session).headers["ETag"]
    unchanged = daemon.ask("GET", target, headers={**want, "If-None-Match": tag})
    assert unchanged.status == 304
    assert unchanged.headers["ETag"] == tag
    assert unchanged.headers["Vary"] == "Accept" and unchanged.headers["Content-Length"] == "100"
    daemon.ask("PATCH", target[:-5], {"dtype": "uint8", "shape": [100]}).expect(200)
    file = daemon.ask("GET", target + "?format=npy").expect(200)
    unchanged = daemon.ask("GET", target + "?format=npy", headers={"If-None-Match": file.headers["ETag"]})
    assert unchanged.status == 304 and unchanged.headers["Content-Length"] == str(len(file.body))
    daemon.ask("GET", target, headers={**want, "If-Match": '"other"'}).problem(412, "precondition_failed")
    daemon.ask("GET", target, headers={**want, "Range": "bytes=500-"}).problem(416, "range_not_satisfiable")


def test_a_buffer_that_is_replaced_while_its_digest_is_computed(daemon, session):
    """Digest, tag and bytes of a reply are of the same generation."""
    target, want = DATA.format(session, "x"), {"Want-Repr-Digest": "sha-256=1"}
    daemon.put("x", payload(8 * SLOT, 0), session).expect(201)
    for generation in range(1, 15):
        readers = [daemon.raw().request("GET", target, ["Want-Repr-Digest: sha-256=1"]) for _ in range(3)]
        daemon.put("x", payload(8 * SLOT, generation), session).expect(200)
        for r in readers:
            reply = r.reply().expect(200)
            # If the buffer is replaced between the digest and the first byte, the reply has no digest.
            assert reply.headers.get("Repr-Digest", field(reply.body)) == field(reply.body)
            r.close()
    assert daemon.ask("GET", target, headers=want).headers["Repr-Digest"] == field(payload(8 * SLOT, 14))


# --- verification -----------------------------------------------------------------------------------------------------


def verify(s, name, body=None, query="", **headers):
    return s.ask("POST", f"buffers/{name}/verify{query}", body, headers)


@pytest.mark.parametrize("size", [0, 1, SLOT, SIZE])
def test_verify_reads_the_memory(s, size):
    data = payload(size)
    s.put("x", data)
    r = verify(s, "x", {"digest": {"sha-256": b64(data)}, "algorithms": ["sha-512"]}).expect(200)
    assert r.json() == {"match": True, "crc32c": crc32c(data), "stored_crc32c": crc32c(data), "generation": 1,
                        "bytes": size, "digest": {a: b64(data, a) for a in NAMES}}
    assert r.headers["ETag"] == s.ask("HEAD", "buffers/x/data").headers["ETag"]
    assert verify(s, "x").expect(200).json()["digest"] == {}
    wrong = verify(s, "x", {"digest": {"sha-512": b64(data + b"x", "sha-512")}}).expect(200).json()
    assert wrong["match"] is False and wrong["digest"] == {"sha-512": b64(data, "sha-512")}


def test_verify_fills_in_what_was_not_known(s):
    s.buffer("x", bytes=SIZE)
    s.fill("x", 7)
    before = s.meta("x")
    assert before["crc32c"] is None
    expected = crc32c(b"\7" * SIZE)
    assert verify(s, "x").expect(200).json()["stored_crc32c"] is None
    after = s.meta("x")
    assert after["crc32c"] == expected and after["generation"] == before["generation"]
    assert verify(s, "x").expect(200).json()["stored_crc32c"] == expected
    assert s.ask("GET", "buffers/x/data").headers["Gpubuf-Crc32c"] == expected


def test_a_copy_of_the_whole_keeps_the_checksum(s):
    data = payload(SIZE)
    s.put("x", data)
    assert s.copy("y", "x", 201)["crc32c"] == crc32c(data)
    assert s.copy("y", "x", in_place=True)["crc32c"] == crc32c(data)
    assert s.copy("y", "x", bytes=SIZE - 1)["crc32c"] is None
    assert s.copy("z", "x", 201, bytes=SIZE - 1)["crc32c"] is None
    assert s.copy("y", "x")["crc32c"] == crc32c(data)
    assert verify(s, "y").json()["match"]


def test_verify_refuses(s):
    data = payload(100)
    s.put("x", data)
    tag = s.ask("HEAD", "buffers/x/data").headers["ETag"]
    verify(s, "none").problem(404, "buffer_not_found")
    verify(s, "x", query="?stream=none").problem(404, "stream_not_found")
    verify(s, "x", {"digest": {"md5": "AAAA"}}).problem(400, "invalid_argument")
    verify(s, "x", {"digest": {"sha-256": "AAAA"}}).problem(400, "invalid_argument")
    verify(s, "x", {"digest": {"sha-256": 1}}).problem(400, "wrong_type")
    verify(s, "x", {"digest": "AAAA"}).problem(400, "wrong_type")
    verify(s, "x", {"algorithms": ["md5"]}).problem(400, "invalid_argument")
    verify(s, "x", {"algorithms": "sha-256"}).problem(400, "wrong_type")
    verify(s, "x", {"algorithms": [1]}).problem(400, "wrong_type")
    verify(s, "x", {"sha-256": "AAAA"}).problem(400, "unknown_field")
    verify(s, "x", **{"If-Match": '"other"'}).problem(412, "precondition_failed")
    verify(s, "x", **{"If-Match": tag}).expect(200)
    verify(s, "x", **{"If-None-Match": tag}).problem(412, "precondition_failed")


def test_verify_of_kinds_and_mirrors(s):
    data = payload(SIZE)
    for kind in ("device", "pinned", "pageable", "managed", "shared", "ipc"):
        r = s.ask("PUT", f"buffers/{kind}/data?kind={kind}", data)
        if r.status != 501:
            assert verify(s, kind).expect(200).json()["crc32c"] == crc32c(data)
    s.buffer("m", bytes=SIZE, mirrored=True)
    assert verify(s, "m").expect(200).json()["crc32c"] == crc32c(bytes(SIZE))
    s.put("m", data)
    assert verify(s, "m", {"digest": {"sha-256": b64(data)}}).expect(200).json()["match"]


def test_verify_after_a_restart_finds_nothing(start):
    d = start()
    state, data = d.state, payload(1000)
    d.put("x", data).expect(201)
    d.kill()
    again = start(state=state)
    again.ask("POST", "/v1/sessions/default/buffers/x/verify").problem(410, "content_lost")
    assert again.meta("x")["crc32c"] == crc32c(data)
