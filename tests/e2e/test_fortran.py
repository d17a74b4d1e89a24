"""Arrays in Fortran order: stored in C order, with numpy's values."""
import gzip
import io
import random

import numpy as np
import pytest

import values
from harness import DATA, SLOT, library
from test_resumable import append, create, offset
from test_slice_writes import client  # noqa: F401
from test_slices import KINDS, index_of, quoted, random_slice

DTYPES = (*values.DTYPES, "bfloat16")
# Short and long columns, a column of more than one slot, rows that a slot takes many of, planes, many axes, axes of one
# step.
LARGE = [("uint8", (3, 700_001)), ("float64", (200_003, 3)), ("float32", (1000, 1001)), ("int16", (130, 70, 60)),
         ("complex128", (7, 300, 40)), ("bool", (2,) * 15 + (24,)), ("float16", (1, 700, 1, 900)),
         ("complex64", (5, 4, 3, 2, 1, 300, 2))]


def dtype_of(name):
    return np.dtype(library("ml_dtypes").bfloat16 if name == "bfloat16" else name)


def made(dtype, shape, seed=0):
    """C-ordered."""
    if dtype == "bfloat16":
        return values.array_of("uint16", shape, seed).view(dtype_of(dtype))
    return values.array_of(dtype, shape, seed)


def fortran(array):
    """As numpy.save writes it: not contiguous in C order, or the header says False."""
    out = io.BytesIO()
    np.save(out, np.asarray(array, order="F"))
    return out.getvalue()


def check(client, path, array):
    r = client.ask("GET", path).expect(200)
    assert ((r.headers["Gpubuf-Shape"] or "") == ",".join(map(str, array.shape)) and r.headers["Gpubuf-Dtype"]
            == str(array.dtype))
    assert r.body == array.tobytes()
    return r


@pytest.fixture
def path(session):
    return DATA.format(session, "x")


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type(daemon, path, dtype):
    for seed, shape in enumerate([(2, 3), (3, 1, 5), (40, 1, 30, 2), (2,) * 9, (4, 0, 3), (5,), ()]):
        array = made(dtype, shape, seed)
        assert (b"'fortran_order': True" in fortran(array)) == (min(shape, default=0) > 0 and sum(n > 1 for n in shape)
                                                                > 1)
        daemon.ask("PUT", path, fortran(array)).expect(200 if seed else 201)
        check(daemon, path, array)


@pytest.mark.parametrize("dtype, shape", LARGE)
@pytest.mark.parametrize("kind", ("device", "pinned"))
def test_large(daemon, path, kind, dtype, shape):
    array = made(dtype, shape)
    daemon.ask("PUT", f"{path}?kind={kind}", fortran(array)).expect(201)
    check(daemon, path, array)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(daemon, path, kind):
    array = made("int32", (300, 20, 50))
    r = daemon.ask("PUT", f"{path}?kind={kind}", fortran(array))
    if r.status == 501:
        pytest.skip(r.json()["detail"])
    check(daemon, path, array)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version(daemon, path, version):
    array = made("float32", (30, 40))
    daemon.ask("PUT", path, values.npy(np.asfortranarray(array), version)).expect(201)
    check(daemon, path, array)


def test_encoded_chunked_and_in_place(daemon, session, path):
    array = made("float32", (700, 300))
    daemon.ask("PUT", path, gzip.compress(fortran(array), 1), {"Content-Encoding": "gzip"}).expect(201)
    check(daemon, path, array)
    array = made("float32", (300, 700), 1)
    daemon.ask("PUT", path + "?in_place=true", fortran(array)).expect(200)
    check(daemon, path, array)
    with daemon.raw() as r:
        array = made("int16", (500, 400), 2)
        r.request("PUT", path, ["Transfer-Encoding: chunked"])
        for at in range(0, len(fortran(array)), 77_777):
            piece = fortran(array)[at:at + 77_777]
            r.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        r.send(b"0\r\n\r\n")
        assert r.reply().status == 200
    check(daemon, path, array)


def test_a_checksum_is_that_of_what_is_stored(daemon, session, path):
    array = made("float32", (30, 40))
    made_of = daemon.ask("PUT", path, fortran(array)).expect(201).json()
    assert made_of["crc32c"] in (None, values.crc32c(array.tobytes()))
    r = daemon.ask("GET", path, headers={"Want-Repr-Digest": "sha-256=1"}).expect(200)
    assert r.headers.get("Gpubuf-Crc32c", values.crc32c(array.tobytes())) == values.crc32c(array.tobytes())
    assert np.array_equal(np.load(io.BytesIO(daemon.ask("GET", path + "?format=npy").expect(200).body)), array)


@pytest.mark.parametrize("seed", range(12))
def test_into_a_slice(client, path, seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(rng.integers(1, 12 if seed % 2 else 60)) for _ in range(4 if seed % 2 else 3))
    array = np.array(values.array_of(values.DTYPES[seed % len(values.DTYPES)], shape, seed))
    client.ask("PUT", f"{path}?kind={('device', 'pinned')[seed % 2]}", values.npy(array)).expect(201)
    for i in range(5):
        text = random_slice(rng, shape)
        part = values.array_of(str(array.dtype), array[index_of(text)].shape, i)
        client.ask("PATCH", f"{path}?slice={quoted(text)}" + ("&in_place=true" if i == 3 else ""),
                   fortran(part)).expect(200)
        array[index_of(text)] = part
        check(client, path, array)


def test_at_an_offset(daemon, path):
    whole = np.array(values.array_of("int16", (100, 1000)))
    part = values.array_of("int16", (300, 70), 1)
    daemon.ask("PUT", path, values.npy(whole)).expect(201)
    daemon.ask("PATCH", path + "?offset=2002", fortran(part)).expect(200)
    whole.reshape(-1)[1001:1001 + part.size] = part.reshape(-1)
    check(daemon, path, whole)
    for at in (whole.nbytes - part.nbytes + 2, 2**63 - 2):
        daemon.ask("PATCH", f"{path}?offset={at}", fortran(part)).problem(422, "shape_mismatch")
    daemon.ask("PATCH", path + "?slice=:,:7", fortran(part)).problem(422, "shape_mismatch")
    check(daemon, path, whole)


def test_a_body_that_breaks_off_changes_nothing(daemon, session, path):
    array = made("float32", (1000, 1000))
    daemon.ask("PUT", path, values.npy(array)).expect(201)
    for form, problem in ((fortran(array)[:-1], "shape_mismatch"), (fortran(array) + b"x", "shape_mismatch")):
        daemon.ask("PUT", path, form).problem(422, problem)
    with daemon.raw() as r:
        r.request("PUT", path, [f"Content-Length: {len(fortran(array))}"], fortran(array)[:2 * SLOT + 1001])
    check(daemon, path, array)
    assert daemon.settled()


@pytest.mark.parametrize("kind", ("device", "pinned"))
@pytest.mark.parametrize("seed", range(3))
def test_resumed_at_any_byte(daemon, s, kind, seed):
    rng = random.Random(seed)
    array = made("float64", [(401, 700), (3, 90_001), (50, 60, 70)][seed], seed)
    data = fortran(array)
    path = create(s, length=len(data), query="?kind=" + kind).expect(201).headers["Location"]
    at = 0
    for _ in range(12):  # a connection that broke may be read from later
        more = min(len(data) - at - 1, rng.randrange(rng.choice([3, 100, SLOT, 4 * SLOT])))
        with daemon.raw() as r:
            r.request("PATCH", path, ["Content-Type: application/partial-upload", f"Upload-Offset: {at}",
                                      "Upload-Complete: ?1", f"Content-Length: {len(data) - at}"], data[at:at + more])
        at = offset(s, path)
    for _ in range(13):
        r = append(s, path, at, data[at:], complete=True)
        if r.status != 409:
            break
        at = offset(s, path)
    assert r.expect(201).json()["shape"] == list(array.shape)
    assert s.data("x") == array.tobytes()


def test_several_requests(s):
    array = made("float16", (300, 400, 3))
    data = fortran(array)
    path = create(s, length=len(data), body=data[:50]).expect(201).headers["Location"]
    for at in range(50, len(data), 100_003):
        r = append(s, path, at, data[at:at + 100_003],
                   complete=at + 100_003 >= len(data)).expect(201 if at + 100_003 >= len(data) else 204)
    assert r.json()["crc32c"] in (None, values.crc32c(array.tobytes())) and s.data("x") == array.tobytes()
