"""PUT and PATCH with ?slice= against numpy's own assignment, for every kind of memory."""
import numpy as np
import pytest

import values
from harness import DATA, SLOT
from test_slices import KINDS, LARGE, index_of, quoted, random_slice
from values import array_of


@pytest.fixture
def client(daemon):
    """All requests use one connection: a download has released its bytes when the daemon reads the next request, so
    that in_place may write them."""
    c = daemon.client()
    yield c
    c.close()


def write(daemon, path, array, text, seed=0, method="PUT", form="raw", query="", headers=None):
    """Writes new elements to the slice of the buffer and of the array."""
    part = array_of(str(array.dtype), array[index_of(text)].shape, seed + 100)
    body = values.npy(part) if form == "npy" else part.tobytes()
    r = daemon.ask(method, f"{path}?slice={quoted(text)}&format={form}{query}", body, headers).expect(200)
    array[index_of(text)] = part
    return r


def check(daemon, path, array):
    r = daemon.ask("GET", path).expect(200)
    assert r.body == array.tobytes() and r.headers["Gpubuf-Shape"] == ",".join(map(str, array.shape))
    return r


@pytest.mark.parametrize("seed", range(24))
def test_random_writes(daemon, client, session, seed):
    rng = np.random.default_rng(1000 + seed)
    dims = int(rng.integers(1, 6))
    shape = tuple(int(rng.integers(0 if rng.integers(9) == 0 else 1, 12 if dims > 3 else 40)) for _ in range(dims))
    array = np.array(array_of(values.DTYPES[seed % len(values.DTYPES)], shape, seed))
    daemon.put("x", values.npy(array), session, "?kind=" + ("device", "pinned")[seed % 2]).expect(201)
    path = DATA.format(session, "x")
    for i in range(5):
        write(client, path, array, random_slice(rng, shape), i, ("PUT", "PATCH")[i % 2], ("raw", "npy")[i % 2],
              "&in_place=true" if i == 3 else "")
        check(client, path, array)


@pytest.mark.parametrize("dtype, shape, text", LARGE)
@pytest.mark.parametrize("kind", ("device", "pinned"))
def test_large_writes(daemon, client, session, kind, dtype, shape, text):
    array = np.array(array_of(dtype, shape))
    daemon.put("x", values.npy(array), session, "?kind=" + kind).expect(201)
    path = DATA.format(session, "x")
    write(client, path, array, text)
    check(client, path, array)
    write(client, path, array, text, 1, query="&in_place=true")
    check(client, path, array)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(daemon, session, kind):
    array = np.array(array_of("int32", (300, 20, 50)))
    r = daemon.put("x", values.npy(array), session, "?kind=" + kind)
    if r.status == 501:
        pytest.skip(r.json()["detail"])
    path = DATA.format(session, "x")
    for i, text in enumerate(("::2,3,10:40", "5:280,...,::7", "7", "...,0", "1,2,3", "5:5")):
        write(daemon, path, array, text, i)
        check(daemon, path, array)


@pytest.mark.parametrize("side", ("host", "device"))
def test_mirrored(s, daemon, session, side):
    array = np.zeros((300, 100), "float32")
    s.buffer("x", dtype="float32", shape=[300, 100], mirrored=True)
    path = DATA.format(session, "x")
    write(daemon, path, array, "::3,5:", query="&side=" + side)
    check(daemon, path, array)
    write(daemon, path, array, "1:,::2", 1, query="&side=" + ("host" if side == "device" else "device"))
    check(daemon, path, array)


def test_into_what_nobody_wrote(s, daemon, session):
    array = np.zeros((300, 300), "int64")
    s.buffer("x", dtype="int64", shape=[300, 300])
    write(daemon, DATA.format(session, "x"), array, "1:,::2")
    check(daemon, DATA.format(session, "x"), array)


@pytest.fixture
def matrix(daemon, session):
    array = np.array(array_of("int16", (1000, 1000)))
    daemon.put("x", values.npy(array), session).expect(201)
    return array, DATA.format(session, "x")


def test_a_write_is_a_new_generation(daemon, session, matrix):
    array, path = matrix
    before = check(daemon, path, array)
    assert "Gpubuf-Crc32c" in before.headers
    r = write(daemon, path, array, "::2,3", headers={"If-Match": before.headers["ETag"]})
    after = check(daemon, path, array)
    assert r.headers["ETag"] == after.headers["ETag"] != before.headers["ETag"] and "Gpubuf-Crc32c" not in after.headers
    assert int(after.headers["Gpubuf-Generation"]) == int(before.headers["Gpubuf-Generation"]) + 1
    daemon.ask("PATCH", f"{path}?slice=0", b"\0" * 2000,
               {"If-Match": before.headers["ETag"]}).problem(412, "precondition_failed")
    check(daemon, path, array)


def test_patch_at_an_offset(daemon, matrix):
    array, path = matrix
    daemon.ask("PATCH", f"{path}?offset=2000", b"\1" * 2000).expect(200)
    array[1] = 0x0101
    check(daemon, path, array)
    daemon.ask("PATCH", path, b"\1").problem(400, "invalid_argument")
    daemon.ask("PATCH", path + "?offset=0", b"\1",
               {"Content-Range": "bytes 0-0/2000000"}).problem(400, "invalid_argument")


def test_a_body_that_comes_in_pieces(daemon, matrix):
    array, path = matrix
    part = array_of("int16", (500, 400), 5)
    pieces = iter([part.tobytes()[i:i + 77777] for i in range(0, part.nbytes, 77777)])
    daemon.ask("PUT", path + "?slice=::2,10:410&format=raw", pieces).expect(200)
    array[::2, 10:410] = part
    check(daemon, path, array)


@pytest.mark.parametrize("query, body, status, code, word", [
    ("slice=0", b"1" * 1999, 422, "shape_mismatch", "2000"), ("slice=0", b"1" * 2001, 422, "shape_mismatch", "2000"),
    ("slice=0&offset=0", b"1", 400, "invalid_argument", "offset"), ("slice=1000", b"", 416, "range_not_satisfiable",
                                                                    "1000"),
    ("slice=::0", b"", 400, "invalid_argument", "step"), ("slice=", b"", 400, "invalid_argument", "empty"),
    ("slice=0&shape=1000", b"1" * 2000, 400, "invalid_argument", "shape"), ("slice=0&kind=device", b"1" * 2000, 400,
                                                                            "invalid_argument", "kind"),
    ("slice=:,::2", values.npy(np.zeros((500, 1000), "int16")), 422, "shape_mismatch", "(1000,500)"),
    ("slice=:,::2", values.npy(np.zeros((1000, 500), "uint16")), 422, "shape_mismatch", "int16"),
    ("slice=:,::2", values.npy(np.zeros(500, "int16")), 422, "shape_mismatch", "broadcast"),
])
def test_writes_that_are_refused(daemon, matrix, query, body, status, code, word):
    array, path = matrix
    for method in ("PUT", "PATCH") if "shape=" not in query and "kind=" not in query else ("PUT",):
        p = daemon.ask(method, f"{path}?{query}", body).problem(status, code)
        assert word in p["detail"], p["detail"]
    check(daemon, path, array)


def test_no_buffer_no_slice(daemon, session):
    daemon.ask("PUT", DATA.format(session, "none") + "?slice=0", b"1").problem(404, "buffer_not_found")


@pytest.mark.parametrize("in_place", (False, True))
@pytest.mark.parametrize("kind", ("device", "pinned"))
def test_a_write_that_breaks_off(daemon, session, kind, in_place):
    array = np.array(array_of("float32", (2048, 1024)))
    daemon.put("x", values.npy(array), session, "?kind=" + kind).expect(201)
    path = DATA.format(session, "x")
    raw = daemon.raw()
    query = "?slice=:,::2&format=raw" + ("&in_place=true" if in_place else "")
    raw.put(path + query, array.nbytes // 2).send(b"\1" * (3 * SLOT))
    raw.close()
    daemon.settled()
    if not in_place:
        check(daemon, path, array)
        return
    # If no byte has been written yet, the buffer is unchanged.
    r = daemon.ask("GET", path)
    assert r.status == 409 or r.body == array.tobytes()
