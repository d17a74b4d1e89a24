"""?slice= against numpy's own indexing, for every kind of memory."""
import io
import itertools

import numpy as np
import pytest

import values
from harness import DATA, SLOT, library
from values import array_of

KINDS = ("device", "shared", "managed", "pinned", "pageable", "ipc")


def index_of(text):
    """The numpy index for a slice in text form."""
    def one(item):
        if item == "...":
            return Ellipsis
        numbers = [int(n) if n.strip() else None for n in item.split(":")]
        return numbers[0] if len(numbers) == 1 else slice(*numbers)
    return tuple(one(item.strip()) for item in text.split(",") if item.strip())


def quoted(text):
    return text.replace(" ", "%20").replace("+", "%2B")


def shape_of(r):
    text = r.headers["Gpubuf-Shape"]
    return tuple(int(n) for n in text.split(",")) if text else ()


def check(daemon, path, array, text, ask=None):
    """Downloads the slice, raw and as .npy."""
    wanted = np.ascontiguousarray(array[index_of(text)])
    shape = array[index_of(text)].shape
    ask = ask or daemon.ask
    raw = ask("GET", f"{path}?slice={quoted(text)}").expect(200)
    assert shape_of(raw) == shape and int(raw.headers["Content-Length"]) == wanted.nbytes
    assert raw.headers["Gpubuf-Dtype"] == str(array.dtype) and "Gpubuf-Crc32c" not in raw.headers
    assert raw.body == wanted.tobytes(), f"{array.shape}[{text}]"
    npy = ask("GET", f"{path}?slice={quoted(text)}&format=npy").expect(200)
    loaded = np.load(io.BytesIO(npy.body))
    assert loaded.dtype == array.dtype and loaded.shape == shape and loaded.tobytes() == wanted.tobytes()
    assert npy.headers["ETag"] != raw.headers["ETag"]
    return raw


def random_slice(rng, shape):
    items = []
    for dim in shape:
        if dim and rng.integers(3) == 0:
            items.append(str(rng.integers(-dim, dim)))
            continue
        start, stop = (str(rng.integers(-dim - 2, dim + 3)) if rng.integers(2) else "" for _ in range(2))
        step = f":{rng.integers(1, 4)}" if rng.integers(2) else ""
        items.append(f"{start}:{stop}{step}")
    first, end = sorted(rng.integers(0, len(shape) + 1, 2))
    if rng.integers(2) or not items:
        items[first:end] = ["..."]
    elif rng.integers(2):
        items = items[:max(1, end)]
    return ",".join(items)


@pytest.mark.parametrize("seed", range(40))
def test_random_slices(daemon, session, seed):
    rng = np.random.default_rng(seed)
    dims = int(rng.integers(0, 7))
    shape = tuple(int(rng.integers(0 if rng.integers(9) == 0 else 1, 12 if dims > 3 else 40)) for _ in range(dims))
    array = array_of(values.DTYPES[seed % len(values.DTYPES)], shape, seed)
    daemon.put("x", values.npy(array), session, "?kind=" + ("device", "pinned")[seed % 2]).expect(201)
    for _ in range(6):
        check(daemon, DATA.format(session, "x"), array, random_slice(rng, shape))


# Many slots of 256 KiB: short rows, long rows, rows longer than a slot, few elements of each row, every other element,
# more axes than a box has, and contiguous bytes.
LARGE = [
    ("float32", (4096, 1024), ":,256:512"), ("uint8", (8192, 512), ":,100:164"), ("float64", (3, 200000), ":,1:"),
    ("float32", (4096, 1024), "100:,7"), ("int16", (3000, 700), "::3,::2"),
    ("float32", (64, 64, 64, 3), "1:,::2,:63,:2"), ("uint8", (20000, 3, 3, 3), ":,:2,:2,:2"),
    ("float32", (4096, 1024), "1000:3000"), ("uint16", (7, 300001), "...,::5"),
    ("complex128", (100, 50, 40), "::2,1:,::3"), ("float32", (1500000,), "::4"),
    ("uint8", (6, 6, 6, 6, 6, 6, 6), ":5,:5,:5,:5,:5,:5,:5"),
]


@pytest.mark.parametrize("dtype, shape, text", LARGE)
@pytest.mark.parametrize("kind", ("device", "pinned"))
def test_large_slices(daemon, session, kind, dtype, shape, text):
    array = array_of(dtype, shape)
    daemon.put("x", values.npy(array), session, "?kind=" + kind).expect(201)
    check(daemon, DATA.format(session, "x"), array, text)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(daemon, session, kind):
    array = array_of("int32", (300, 20, 50))
    r = daemon.put("x", values.npy(array), session, "?kind=" + kind)
    if r.status == 501:
        pytest.skip(r.json()["detail"])
    for text in ("::2,3,10:40", "5:280,...,::7", "7", "...,0", "1,2,3"):
        check(daemon, DATA.format(session, "x"), array, text)


@pytest.mark.parametrize("side", ("host", "device"))
def test_mirrored(s, daemon, session, side):
    array = array_of("float32", (100, 100))
    s.buffer("x", dtype="float32", shape=[100, 100], mirrored=True)
    path = DATA.format(session, "x")
    check(daemon, path, np.zeros_like(array), "::3,5:")  # never written
    s.put("x", array.tobytes(), f"?offset=0&side={side}")
    check(daemon, path, array, "::3,5:")


def test_what_nobody_wrote_is_zeros(s, daemon, session):
    s.buffer("x", dtype="int64", shape=[300, 300])
    check(daemon, DATA.format(session, "x"), np.zeros((300, 300), "int64"), "1:,::2")


@pytest.fixture
def matrix(daemon, session):
    """A buffer of 1000 rows of 1000 int16, and its data's path."""
    array = array_of("int16", (1000, 1000))
    daemon.put("x", values.npy(array), session).expect(201)
    return array, DATA.format(session, "x")


def test_ranges_count_in_the_slice(daemon, matrix):
    array, path = matrix
    target = path + "?slice=::2,10:410"
    whole = array[::2, 10:410].tobytes()
    for a, b in ((0, 0), (799, 800), (5, 399999), (SLOT - 3, SLOT + 5), (1, 300001)):
        r = daemon.ask("GET", target, None, {"Range": f"bytes={a}-{b}"}).expect(206)
        assert r.body == whole[a:b + 1] and r.headers["Content-Range"] == f"bytes {a}-{b}/{len(whole)}"
    r = daemon.ask("GET", target, None, {"Range": "bytes=17-1700,-300000,5000-5001"}).expect(206)
    assert r.headers["Content-Type"].startswith("multipart/byteranges")
    for part in (whole[17:1701], whole[-300000:], whole[5000:5002]):
        assert b"\r\n\r\n" + part + b"\r\n--" in r.body
    r = daemon.ask("GET", target, None, {"Range": f"bytes={len(whole)}-"})
    r.problem(416, "range_not_satisfiable")
    assert r.headers["Content-Range"] == f"bytes */{len(whole)}"


def test_head_and_conditions(daemon, session, matrix):
    array, path = matrix
    target = path + "?slice=3:7,::2"
    g, h = daemon.ask("GET", target).expect(200), daemon.ask("HEAD", target).expect(200)
    for name in ("ETag", "Content-Type", "Content-Length", "Gpubuf-Dtype", "Gpubuf-Shape", "Gpubuf-Generation"):
        assert h.headers[name] == g.headers[name]
    assert h.body == b"" and g.headers["Gpubuf-Shape"] == "4,500"
    tag = {"If-None-Match": g.headers["ETag"]}
    daemon.ask("GET", target, None, tag).expect(304)
    daemon.ask("GET", target, None, {"If-Match": '"other"'}).problem(412, "precondition_failed")
    # The same bytes in another shape are another slice.
    daemon.ask("PATCH", path[:-5], {"shape": [2000, 500]}).expect(200)
    r = daemon.ask("GET", target, None, tag).expect(200)
    assert r.body == array.reshape(2000, 500)[3:7, ::2].tobytes()
    daemon.ask("PUT", f"{path}?offset=0", b"1", {"If-Match": g.headers["ETag"]}).problem(412, "precondition_failed")
    daemon.ask("PUT", f"{path}?offset=0", b"1", {"If-Match": r.headers["ETag"]}).expect(200)


def test_a_scalar_and_nothing(daemon, matrix):
    array, path = matrix
    r = daemon.ask("GET", path + "?slice=3,-1").expect(200)
    assert r.body == array[3, -1].tobytes() and "Gpubuf-Shape" not in r.headers
    loaded = np.load(io.BytesIO(daemon.ask("GET", path + "?slice=3,-1&format=npy").expect(200).body))
    assert loaded.shape == () and loaded == array[3, -1]
    r = daemon.ask("GET", path + "?slice=5:5").expect(200)
    assert r.body == b"" and r.headers["Gpubuf-Shape"] == "0,1000"
    daemon.ask("GET", path + "?slice=5:5", None, {"Range": "bytes=0-"}).problem(416, "range_not_satisfiable")


def test_as_safetensors(daemon, matrix):
    array, path = matrix
    load = library("safetensors.numpy").load
    r = daemon.ask("GET", path + "?slice=::2,10:20&format=safetensors").expect(200)
    assert np.array_equal(load(r.body)["x"], array[::2, 10:20]) and r.headers["Gpubuf-Shape"] == "500,10"
    assert np.array_equal(load(daemon.ask("GET", path + "?slice=3,4&format=safetensors").expect(200).body)["x"],
                          array[3, 4])
    daemon.ask("PUT", path + "?slice=1::2,10:20&format=safetensors", r.body).expect(200)
    assert np.array_equal(np.frombuffer(daemon.ask("GET", path).body, "int16").reshape(1000, 1000)[1::2, 10:20],
                          array[::2, 10:20])


@pytest.mark.parametrize("text, status, word", [
    ("", 400, "empty"), (",", 400, "empty"), ("1:2:0", 400, "step of zero"), ("::-1", 400, "negative step"),
    ("a", 400, "neither"), ("1:2:3:4", 400, "neither"), ("0,0,0", 400, "2 dimensions"), ("...,...", 400, "twice"),
    ("," * 3000, 400, "empty"), (":," * 3000, 400, "2 dimensions"), ("9" * 3000, 416, "axis 0"),
    ("1000", 416, "1000 elements"), ("0,-1001", 416, "axis 1"), ("0%00,1", 400, "neither"), ("%ff", 400, "neither"),
    ("[0:1]", 400, "neither"), ("None", 400, "neither"),
])
def test_slices_that_are_refused(daemon, matrix, text, status, word):
    p = daemon.ask("GET", f"{matrix[1]}?slice={text}").problem(status, "invalid_argument" if status
                                                               == 400 else "range_not_satisfiable")
    assert word in p["detail"], p["detail"]


def test_other_streams_and_others_meanwhile(s, daemon, session):
    """Several clients read slices of one buffer at once, on their own streams, while it is replaced."""
    first, second = (array_of("float32", (2000, 300), seed) for seed in (1, 2))
    s.post("streams", {"name": "a"}, 201)
    s.put("x", values.npy(first))
    clients = [daemon.client() for _ in range(6)]
    replies = []
    for i, client in enumerate(clients):
        replies.append(client.start("GET", DATA.format(session, "x") + "?slice=::2,100:200"
                                    + ("&stream=a" if i % 2 else "")))
    s.put("x", values.npy(second))
    for client, r in zip(clients, replies):
        assert r.status == 200
        body = r.read()
        assert body in (first[::2, 100:200].tobytes(), second[::2, 100:200].tobytes())
        client.close()
    check(daemon, DATA.format(session, "x"), second, "::2,100:200")


def test_a_client_that_leaves(daemon, session):
    array = array_of("float32", (4096, 2048))
    daemon.put("x", values.npy(array), session).expect(201)
    path = DATA.format(session, "x") + "?slice=::2,::2"
    for n in itertools.chain(range(3), (100000, 1000000)):
        client = daemon.client()
        r = client.start("GET", path)
        r.read(n)
        client.close()
    check(daemon, DATA.format(session, "x"), array, "::2,::2")
