"""Uploads and downloads in every form, size and way of sending."""
import io
import os
import shutil
import subprocess

import numpy as np
import pytest

import values
from harness import DATA, SLOT
from values import crc32c, payload

SIZES = [0, 1, 2, 4095, 16385, SLOT - 1, SLOT, SLOT + 1, 3 * SLOT + 7, 20 * SLOT + 3]


def round_trip(daemon, session, name, data):
    made = daemon.put(name, data, session).expect(201).json()
    assert (made["bytes"], made["crc32c"], made["state"]) == (len(data), crc32c(data), "ready")
    back = daemon.data(name, session).expect(200)
    assert back.body == data
    assert back.headers["Gpubuf-Crc32c"] == made["crc32c"]
    assert daemon.meta(name, session) == made


@pytest.mark.parametrize("size", SIZES)
def test_raw_bytes_come_back(daemon, session, size):
    round_trip(daemon, session, "x", payload(size))


def test_64_mib_come_back(daemon, session):
    round_trip(daemon, session, "x", payload(64 << 20))


def test_crc32c_is_castagnolis():
    assert crc32c(b"123456789") == "e3069283"
    assert crc32c(b"") == "00000000"
    assert crc32c(bytes(32)) == "8a9136aa"


def curl(daemon, *args, data=None):
    """(status, output) of curl as a user types it."""
    out = subprocess.run(["curl", "-sS", "-w", "%{stderr}%{http_code}", *args], input=data, capture_output=True,
                         timeout=120)
    assert out.returncode == 0, out.stderr
    return int(out.stderr), out.stdout


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")
@pytest.mark.parametrize("size", [100, SLOT + 5, 5 * SLOT + 1, (4 << 20) + 3])
@pytest.mark.parametrize("how", ["plain", "expect", "no-expect", "chunked", "unix"])
def test_curl_uploads_as_documented(daemon, session, tmp_path, size, how):
    array = np.frombuffer(payload(size), dtype=np.uint8)
    np.save(tmp_path / "x.npy", array)
    url = daemon.url(DATA.format(session, "x"))
    more = {"plain": [], "expect": ["-H", "Expect: 100-continue"], "no-expect": ["-H", "Expect:"], "chunked": [],
            "unix": ["--unix-socket", daemon.unix]}[how]
    url = url.replace("https:", "http:") if how == "unix" else url
    if how == "chunked":
        status, _ = curl(daemon, "-T", "-", url, data=(tmp_path / "x.npy").read_bytes())
    else:
        status, _ = curl(daemon, "-T", str(tmp_path / "x.npy"), *more, url)
    assert status == 201
    status, body = curl(daemon, *(more if how == "unix" else []), url)
    assert (status, body) == (200, array.tobytes())
    status, body = curl(daemon, *(more if how == "unix" else []), url + "?format=npy")
    assert np.array_equal(np.load(io.BytesIO(body)), array)
    assert daemon.meta("x", session)["crc32c"] == crc32c(array.tobytes())


def test_chunked_raw_has_the_length_of_its_shape(daemon, session):
    pieces = [payload(1000, seed=i) for i in range(900)]
    daemon.put("x", iter(pieces), session, "?dtype=uint8&shape=900,1000").expect(201)
    assert daemon.data("x", session).body == b"".join(pieces)
    for wrong in (899, 901):
        daemon.put("y", iter(pieces), session, f"?dtype=uint8&shape={wrong},1000").problem(422, "shape_mismatch")
    daemon.ask("GET", f"/v1/sessions/{session}/buffers/y").problem(404, "buffer_not_found")


@pytest.mark.parametrize("dtype", values.DTYPES)
def test_npy_of_every_dtype(daemon, session, dtype):
    for i, shape in enumerate([(), (0,), (7,), (3, 5), (2, 0, 3), (130, 129, 3)]):
        array = values.array_of(dtype, shape)
        meta = daemon.put(f"x{i}", values.npy(array), session).expect(201).json()
        assert (meta["dtype"], meta["shape"], meta["bytes"]) == (dtype, list(shape), array.nbytes)
        assert daemon.data(f"x{i}", session).body == array.tobytes()
        for ask in ({"query": "?format=npy"}, {"headers": {"Accept": "application/x-npy"}}):
            r = daemon.data(f"x{i}", session, **ask).expect(200)
            assert r.headers["Content-Type"] == "application/x-npy"
            back = np.load(io.BytesIO(r.body))
            assert back.dtype == array.dtype and back.shape == array.shape and back.tobytes() == array.tobytes()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_of_every_version(daemon, session, version):
    array = values.array_of("float32", (300, 301))
    daemon.put("x", values.npy(array, version), session).expect(201)
    assert np.array_equal(np.load(io.BytesIO(daemon.data("x", session, "?format=npy").body)), array)
    daemon.put("y", iter([values.npy(array, version)[:9], values.npy(array, version)[9:]]), session).expect(201)
    assert daemon.data("y", session).body == array.tobytes()


def test_dtypes_that_numpy_lacks(daemon, session):
    for dtype in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float8_e3m4",
                  "float8_e4m3", "float8_e4m3b11fnuz"):
        data = payload(12)
        assert daemon.put(dtype, data, session, f"?dtype={dtype}&shape=3,4").expect(201).json()["shape"] == [3, 4]
        assert daemon.data(dtype, session).body == data
        daemon.data(dtype, session, "?format=npy").problem(406, "not_acceptable")


def test_what_looks_like_npy_can_be_raw(daemon, session):
    array = values.npy(values.array_of("int16", (5,)))
    assert daemon.put("x", array, session, "?format=raw").expect(201).json()["bytes"] == len(array)
    assert daemon.data("x", session).body == array
    r = daemon.put("y", b"\x93NUMPY", session).expect(422)  # begins like a .npy and ends at once
    assert r.json()["code"] == "unsupported_array"


def test_keep_alive_after_every_kind_of_answer(daemon, session):
    c = daemon.client()
    data, big = payload(1000), payload(8 * SLOT)
    path, bpath = DATA.format(session, "x"), DATA.format(session, "big")
    steps = [
        ("GET", "/v1", None, {}, 200), ("GET", "/nowhere", None, {}, 404), ("PUT", path, data, {}, 201),
        ("GET", path, None, {}, 200), ("HEAD", path, None, {}, 200), ("GET", path, None, {"Range": "bytes=0-9"}, 206),
        ("GET", path, None, {"Range": "bytes=5000-"}, 416), ("GET", path, None, {"If-None-Match": "*"}, 304),
        ("POST", f"/v1/sessions/{session}/buffers", {"name": "y", "bytes": 5}, {}, 201),
        ("POST", f"/v1/sessions/{session}/buffers", {"name": "y", "bytes": 5}, {}, 409),
        ("POST", f"/v1/sessions/{session}/buffers", "{", {}, 400),
        ("DELETE", f"/v1/sessions/{session}/buffers/y", None, {}, 204),
        ("GET", f"/v1/sessions/{session}/buffers/y", None, {}, 404), ("GET", "/v1/stats", None, {}, 200),
        ("PATCH", f"/v1/sessions/{session}/buffers/x", {"labels": {"a": "b"}}, {}, 200),
        ("PUT", bpath, big, {}, 201), ("GET", bpath, None, {}, 200), ("HEAD", bpath, None, {}, 200),
        ("DELETE", "/v1", None, {}, 405), ("GET", bpath, None, {"Range": "bytes=1-"}, 206),
        ("GET", "/livez", None, {}, 200),
    ]
    for method, target, body, headers, status in steps:
        c.ask(method, target, body, headers).expect(status)
        assert c.connects == 1, f"the connection did not outlive {method} {target} {status}"


def test_uploads_with_100_continue(daemon, session):
    for size in (10, 2 * SLOT + 11, 12 * SLOT):
        data = payload(size)
        with daemon.raw() as r:
            r.put(DATA.format(session, "x"), size, expect=True)
            assert r.head()[0] == 100
            assert r.send(data).reply().status in (200, 201)
        assert daemon.data("x", session).body == data


def test_body_bytes_before_100_continue(daemon, session):
    """A client that sends Expect: 100-continue but does not wait."""
    for early in (1, 100, 5000, 20000, SLOT + 1):
        data = payload(4 * SLOT, seed=early)
        with daemon.raw() as r:
            head = f"PUT {DATA.format(session, 'x')} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n"
            r.send(head.encode() + b"Expect: 100-continue\r\n\r\n" + data[:early])
            r.send(data[early:])
            assert r.reply().status in (200, 201)
        assert daemon.data("x", session).body == data


def test_bytes_one_at_a_time(daemon, session):
    data = values.npy(values.array_of("int32", (9,)))
    with daemon.raw() as r:
        for byte in f"PUT {DATA.format(session, 'x')} HTTP/1.1\r\nHost: localhost\r\n".encode():
            r.send(bytes([byte]))
        r.send(f"Content-Length: {len(data)}\r\n\r\n".encode())
        for byte in data:
            r.send(bytes([byte]))
        assert r.reply().status == 201
    assert daemon.data("x", session, "?format=npy").body[-36:] == data[-36:]


def test_partial_writes(daemon, session):
    data = bytearray(payload(3 * SLOT))
    daemon.put("x", bytes(data), session, "?dtype=float32").expect(201)
    before = daemon.meta("x", session)
    for at, n in ((0, 1), (SLOT - 1, 2), (2 * SLOT, SLOT), (7, 0), (3 * SLOT, 0), (100, 2 * SLOT)):
        piece = payload(n, seed=at)
        daemon.put("x", piece, session, f"?offset={at}").expect(200)
        data[at:at + n] = piece
        assert daemon.data("x", session).body == data
    after = daemon.meta("x", session)
    assert (after["dtype"], after["shape"]) == ("float32", before["shape"])
    assert after["generation"] > before["generation"] and after["crc32c"] in (None, crc32c(bytes(data)))
    state = daemon.meta("x", session)
    assert daemon.put("x", b"12", session, f"?offset={3 * SLOT - 1}").status in (400, 413, 422)
    for beyond in (3 * SLOT + 1, 2**63 - 1):
        assert str(beyond) in daemon.put("x", b"12", session,
                                         f"?offset={beyond}").problem(422, "shape_mismatch")["detail"]
    daemon.put("x", b"12", session, "?offset=-1").problem(400, "invalid_argument")
    daemon.put("x", b"12", session, "?offset=18446744073709551616").problem(400, "invalid_argument")
    daemon.put("none", b"12", session, "?offset=0").problem(404, "buffer_not_found")
    assert daemon.meta("x", session) == state


def test_server_timing(daemon, session):
    up = daemon.put("x", payload(2 * SLOT), session).timing()
    assert set(up) == {"recv", "queue", "copy", "total"} and all(v >= 0 for v in up.values())
    assert up["total"] >= up["recv"]
    assert set(daemon.put("s", b"abc", session).timing()) == {"recv", "queue", "copy", "total"}
    assert set(daemon.data("s", session).timing()) >= {"queue", "copy", "total"}
    assert "queue" in daemon.data("x", session).timing()


@pytest.mark.big
def test_1_gib(daemon, session):
    data = payload(1 << 30)
    round_trip(daemon, session, "x", data)
    assert os.path.exists(f"/proc/{daemon.process.pid}")
