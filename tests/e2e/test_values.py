"""?format=json and ?format=text: the values of up to 64 KiB."""
import json
import threading

import numpy as np
import pytest
from conform import interface
from harness import DATA, library, token

import values

ml_dtypes = library("ml_dtypes")
FLOAT8 = ["float8_" + name for name in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu", "e3m4", "e4m3",
                                        "e4m3b11fnuz")]
MOST = 64 * 1024


def every(name):
    """Elements of a type: all of those that have at most two bytes."""
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    if name == "bool":
        return np.array([False, True])
    if dtype.itemsize <= 2:
        return np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype)
    rng = np.random.default_rng(len(name))
    array = np.frombuffer(rng.bytes(MOST // 2), dtype).copy()
    if dtype.kind == "f":
        info = np.finfo(dtype)
        array[:9] = [0.0, -0.0, np.nan, np.inf, -np.inf, info.max, info.tiny, info.smallest_subnormal, 0.1]
    elif dtype.kind in "iu":
        array[:2] = [np.iinfo(dtype).min, np.iinfo(dtype).max]
    return array


def put(daemon, name, array):
    shape = ",".join(map(str, array.shape))
    assert (daemon.put(name, array.tobytes(), query=f"?format=raw&dtype={array.dtype.name}&shape={shape}").status
            in (200, 201))


def got(daemon, name, query):
    target = DATA.format("default", name) + query
    reply = daemon.ask("GET", target).expect(200)
    interface(daemon).check("GET", target, reply)
    return reply


def same(wanted, read):
    assert wanted.shape == read.shape
    assert ((wanted == read) & (np.signbit(wanted) == np.signbit(read)) | np.isnan(wanted) & np.isnan(read)).all()


@pytest.mark.parametrize("name", [n for n in (*values.DTYPES, "bfloat16", *FLOAT8) if not n.startswith("complex")])
def test_every_type_reads_back(daemon, name):
    array, found, lines = every(name), [], []
    put(daemon, "x", array)
    for piece in ("slice=:32768", "slice=32768:"):
        document = got(daemon, "x", "?format=json&" + piece).json()
        assert document["dtype"] == name and document["shape"] == [len(document["values"])]
        found += document["values"]
        lines += got(daemon, "x", "?format=text&" + piece).body.decode().splitlines()
    if name == "bool":
        assert found == [False, True] and lines == ["0", "1"]
    elif np.issubdtype(array.dtype, np.integer):
        assert found == [int(line) for line in lines] == array.tolist()
    else:
        assert all(isinstance(v, float) or v in ("NaN", "Infinity", "-Infinity") for v in found)
        wide = "f8" if name == "float64" else "f4"  # a float32 has the values of all that are narrower
        wanted = array.astype(wide)
        same(wanted, np.array([float(v) for v in found]).astype(wide))
        same(wanted, np.loadtxt(lines).astype(wide))


@pytest.mark.parametrize("name", ("complex64", "complex128"))
def test_complex_numbers(daemon, name):
    array = np.array([1 + 2j, -0.5 - 0.1j, complex("nan+infj"), complex("-inf-0j")], name)
    put(daemon, "x", array)
    pairs = got(daemon, "x", "?format=json").json()["values"]
    read = np.array([complex(float(re), float(im)) for re, im in pairs], name)
    text = np.array([complex(line) for line in got(daemon, "x", "?format=text").body.decode().splitlines()], name)
    for part in (np.real, np.imag):
        same(part(array), part(read))
        same(part(array), part(text))


def test_what_it_looks_like(daemon):
    put(daemon, "x", np.arange(6, dtype="f4").reshape(2, 3) / 10)
    reply = got(daemon, "x", "?format=json")
    assert reply.body == b'{"dtype":"float32","shape":[2,3],"values":[[0.0,0.1,0.2],[0.3,0.4,0.5]]}\n'
    assert reply.headers["Content-Type"] == "application/json" and reply.headers["Gpubuf-Shape"] == "2,3"
    assert int(reply.headers["Content-Length"]) == len(reply.body) and reply.headers["Accept-Ranges"] == "none"
    reply = got(daemon, "x", "?format=text")
    assert reply.body == b"0.0 0.1 0.2\n0.3 0.4 0.5\n" and reply.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert got(daemon, "x", "?format=text&slice=:,1").body == b"0.1\n0.4\n"
    assert got(daemon, "x", "?format=json&slice=1,2").json() == {"dtype": "float32", "shape": [], "values": 0.5}
    assert got(daemon, "x", "?format=text&slice=1,2").body == b"0.5\n"
    put(daemon, "x3", np.arange(8, dtype="u1").reshape(2, 2, 2))
    assert got(daemon, "x3", "?format=text").body == b"0 1\n2 3\n\n4 5\n6 7\n"
    assert got(daemon, "x3", "?format=json").json()["values"] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


@pytest.mark.parametrize("shape", ((0,), (3, 0), (0, 7), (2**40, 0), (0, 2**40)))
def test_no_elements(daemon, shape):
    put(daemon, "none", np.zeros(shape, "f4"))
    assert got(daemon, "none", "?format=json").json() == {"dtype": "float32", "shape": list(shape), "values": []}
    assert got(daemon, "none", "?format=text").body == b""


def test_how_many(daemon):
    put(daemon, "many", np.arange(MOST // 4 + 1, dtype="f4"))
    for form in ("json", "text"):
        detail = daemon.data("many", query=f"?format={form}").problem(400, "invalid_argument")["detail"]
        assert str(MOST) in detail and str(MOST + 4) in detail and "?slice=" in detail and f"format={form}" in detail
    assert got(daemon, "many", "?format=json&slice=1:").json()["values"][-1] == MOST // 4
    assert "?slice=" in daemon.data("many", query="?format=json&offset=4").problem(400, "invalid_argument")["detail"]
    assert "json" in daemon.data("many", query="?format=jsn").problem(400, "invalid_argument")["detail"]
    assert "json" not in daemon.put("many", b"1", query="?format=json").problem(400, "invalid_argument")["detail"]


def test_conditions_and_ranges(daemon):
    put(daemon, "x", np.arange(4, dtype="i4"))
    tags = {got(daemon, "x", f"?format={form}").headers["ETag"] for form in ("json", "text", "raw", "npy")}
    assert len(tags) == 4
    for form in ("json", "text"):
        reply = got(daemon, "x", f"?format={form}")
        tag = reply.headers["ETag"]
        assert daemon.data("x", query=f"?format={form}", headers={"If-None-Match": tag}).status == 304
        daemon.data("x", query=f"?format={form}", headers={"If-Match": '"no"'}).problem(412, "precondition_failed")
        assert daemon.data("x", query=f"?format={form}", headers={"Range": "bytes=0-1"}).expect(200).body == reply.body
        head = daemon.ask("HEAD", DATA.format("default", "x") + f"?format={form}").expect(200)
        assert head.headers["Content-Length"] == str(len(reply.body)) and head.headers["ETag"] == tag
        daemon.put("x", b"abcd" * 4, query="?in_place=true", headers={"If-Match": tag}).expect(200)
        daemon.put("x", b"abcd" * 4, query="?in_place=true",
                   headers={"If-Match": tag}).problem(412, "precondition_failed")


@pytest.mark.parametrize("query", ("?offset=100&length=5", "?slice=100", "?slice=100&format=json"))
def test_a_condition_is_told_before_a_range(daemon, query):
    put(daemon, "x", np.arange(4, dtype="i4"))
    beyond = daemon.data("x", query=query)
    assert beyond.problem(416, "range_not_satisfiable") and "ETag" not in beyond.headers
    failed = daemon.data("x", query=query, headers={"If-Match": '"no"'})
    assert failed.problem(412, "precondition_failed") and "Content-Range" not in failed.headers


def test_what_may_be_seen(start, tmp_path):
    """A length of text tells of values."""
    verify = token(tmp_path, "add", "v", "--scope", "verify")
    write = token(tmp_path, "add", "w", "--scope", "write")
    d = start(state=str(tmp_path))
    target = DATA.format("default", "x")
    d.ask("PUT", target, b"abcd", token=write).expect(201)
    assert d.ask("HEAD", target, token=verify).status == 200
    for form in ("json", "text"):
        assert d.ask("HEAD", f"{target}?format={form}", token=verify).status == 403
        d.ask("GET", f"{target}?format={form}", token=verify).problem(403, "forbidden")


def test_while_it_is_replaced(daemon):
    """One content or the other, never of both."""
    arrays = [np.full(MOST // 4, fill, "f4") for fill in (1, 22)]
    put(daemon, "w", arrays[0])
    ended = threading.Event()

    def write():
        i = 0
        while not ended.is_set():
            i += 1
            daemon.put("w", arrays[i % 2].tobytes(), query=f"?format=raw&dtype=float32&shape={MOST // 4}").expect(200)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(20):
            assert len(set(json.loads(daemon.data("w", query="?format=json").expect(200).body)["values"])) == 1
    finally:
        ended.set()
        writer.join()
    daemon.settled()
