"""The Python client: arrays into buffers and back, refusals and errors."""
import gc
import mmap
import os
import pickle
import re
import socket
import subprocess
import sys

import numpy as np
import pytest
from pyclient import ROOT, SOURCE, at_once, client_of, gpubuf

from harness import library, until
from values import DTYPES, array_of, payload

OTHERS = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
          "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz")
BIG = 9 << 20


@pytest.fixture
def c(daemon, session, unix):
    with client_of(daemon, session, unix) as client:
        yield client


def same(got, wanted):
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape) and got.tobytes() == wanted.tobytes()


# --- arrays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (3, 5, 2)], ids=str)
def test_every_dtype_and_shape(c, dtype, shape):
    array = array_of(dtype, shape)
    meta = c.put("x", array)
    assert ((meta["dtype"], meta["shape"], meta["bytes"]) == (dtype, list(shape), array.nbytes)
            and meta["etag"].startswith('"'))
    same(c.get("x"), array)
    assert c.get("x", raw=True) == array.tobytes() and c.info("x")["generation"] == meta["generation"]


@pytest.mark.parametrize("dtype", OTHERS)
def test_dtypes_of_ml_dtypes(c, dtype):
    ml_dtypes = library("ml_dtypes")
    array = np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, dtype))
    assert c.put("x", array)["dtype"] == dtype
    same(c.get("x"), array)
    same(c.get("x", slice=np.s_[1]), array[1])
    same(c.get("x", out=np.empty_like(array)), array)


def test_without_ml_dtypes(c, monkeypatch):
    c.put("x", b"\0\1\2\3", dtype="bfloat16")
    assert c.info("x")["shape"] == [2]
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(TypeError, match="install ml_dtypes.*raw=True"):
        c.get("x")
    assert c.get("x", raw=True) == b"\0\1\2\3"


def test_what_can_be_put(c, tmp_path):
    data = payload(1000)
    path = tmp_path / "file"
    path.write_bytes(data)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for source in (data, bytearray(data), memoryview(data), mapped, np.frombuffer(data, np.uint8)):
            assert c.put("x", source)["shape"] == [1000] and c.get("x", raw=True) == data
    same_of = [([1.5, 2.5], "float64"), (7, "int64"), (np.float32(3), "float32"), (memoryview(data).cast("i"), "int32")]
    for source, dtype in same_of:
        assert c.put("x", source)["dtype"] == dtype
        same(c.get("x"), np.asarray(source))
    array = array_of("float32", (6, 8))
    for other in (array.T, array[::2, 1:], np.asfortranarray(array), array.astype(">f4"), array[:, ::-1]):
        c.put("x", other)
        assert (c.get("x") == other).all() and c.info("x")["shape"] == list(other.shape)
    c.put("x", array.view(np.uint8), dtype="float32", shape=(6, 8))
    same(c.get("x"), array)


def test_tensors_of_torch(c):
    try:
        import torch
    except ImportError:
        pytest.skip("torch is not installed on this machine")
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64):
        tensor = torch.arange(12).reshape(3, 4).to(dtype)
        meta = c.put("x", tensor)
        assert (meta["dtype"], meta["shape"]) == (str(dtype).partition(".")[2], [3, 4])
        assert c.get("x", raw=True) == bytes(tensor.reshape(-1).view(torch.uint8).numpy() if dtype != torch.bool
                                             else tensor.numpy())
    assert c.put("x", torch.tensor(7.0))["shape"] == [] and c.put("x", torch.zeros(0, 3))["shape"] == [0, 3]
    c.put("x", tensor.T)
    assert (c.get("x") == tensor.T.numpy()).all()
    other = tensor.real.to(torch.bfloat16).T
    assert (c.put("x", other)["shape"] == [4, 3] and c.get("x", raw=True)
            == bytes(other.contiguous().reshape(-1).view(torch.uint8).numpy()))
    assert (c.put("x", torch.zeros(3, requires_grad=True))["shape"], c.get("x").tolist()) == ([3], [0, 0, 0])
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        tensor = torch.arange(12, dtype=torch.float32).reshape(3, 4).to(dtype)
        assert c.put("x", tensor)["dtype"] == str(dtype).partition(".")[2] and c.info("x")["shape"] == [3, 4]
        assert c.get("x", raw=True) == bytes(tensor.view(torch.uint8).numpy())
    with pytest.raises(gpubuf.BadType, match="resolve_conj"):
        c.put("x", torch.zeros(3, dtype=torch.complex64).conj())


@pytest.mark.parametrize("source", [np.array(["a"]), np.array([object()]), np.zeros(2, "i4,f4"), np.zeros(2, "M8[s]"),
                                    {"a": 1}],
                         ids=["text", "object", "record", "time", "dict"])
def test_what_cannot_be_put(c, source):
    with pytest.raises(TypeError, match="cannot be stored; these can: bool, uint8"):
        c.put("x", source)
    assert c.list() == []


def test_put_takes_no_copy(c):
    """Bytes are sent without a copy: the memory of the process grows by less than the array."""
    array = np.ones(BIG, np.uint8)
    program = f"""if True:
        import sys, tracemalloc; sys.path.insert(0, {SOURCE!r})
        import numpy as np, gpubuf
        a, out = np.ones({BIG}, np.uint8), np.empty({BIG}, np.uint8)
        c = gpubuf.Client({c.url!r}, session={c.session!r})
        tracemalloc.start()
        c.put("x", a); c.get("x", out=out)
        print(tracemalloc.get_traced_memory()[1])
        assert (out == 1).all()"""
    grown = int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                               timeout=120).stdout)
    assert grown < array.nbytes // 4


def test_parts(c):
    array = array_of("int32", (8, 6, 5)).copy()
    c.put("x", array)
    for key in (np.s_[2], np.s_[1:7:3], np.s_[..., 2], np.s_[:, -1, 1:], np.s_[3, 2, 1], np.s_[np.int64(2), :2],
                "1:3,0", np.s_[9:, :]):
        numpy_key = np.s_[1:3, 0] if isinstance(key, str) else key
        same(c.get("x", slice=key), np.ascontiguousarray(array[numpy_key]).reshape(array[numpy_key].shape))
    out = np.zeros((6, 5), np.int32)
    assert c.get("x", slice=5, out=out) is out
    same(out, array[5])
    assert c.get("x", raw=True, offset=4, length=8) == array.tobytes()[4:12]
    c.put("x", np.full((2, 5), 9, np.int32), slice=np.s_[3, 1:3])
    array[3, 1:3] = 9
    c.put("x", b"\xff" * 8, offset=16)
    array.reshape(-1)[4:6] = -1
    same(c.get("x"), array)
    for key in (np.s_[::-1], np.s_[::0]):
        with pytest.raises(ValueError, match="step of a slice is at least 1"):
            c.get("x", slice=key)
    for key in (True, 1.5, [1, 2], np.s_[None, 1]):
        with pytest.raises(TypeError, match="an index is a whole number"):
            c.get("x", slice=key)
    with pytest.raises(gpubuf.RangeNotSatisfiable):
        c.get("x", slice=8)
    with pytest.raises(gpubuf.ShapeMismatch):
        c.put("x", np.zeros(3, np.int32), slice=np.s_[3, 1:3])


def test_out_must_fit(c):
    array = array_of("float32", (4, 4))
    c.put("x", array)
    locked = np.empty((4, 4), np.float32)
    locked.flags.writeable = False
    for out in (np.empty((4, 4), np.float64), np.empty(16, np.float32), np.empty((4, 8), np.float32)[:, ::2], locked):
        with pytest.raises(ValueError, match="out "):
            c.get("x", out=out)
    with pytest.raises(TypeError, match="out must be a numpy array"):
        c.get("x", out=bytearray(64))
    for wrong in (dict(raw=True, out=array), dict(offset=3), dict(length=3)):
        with pytest.raises(ValueError, match="raw"):
            c.get("x", **wrong)
    same(c.get("x"), array)


def test_many_in_one_request(c):
    arrays = {"a": array_of("float32", (3, 4)), "b": array_of("uint8", (0, 2)), "c": np.array(7),
              "d": array_of("complex64", (5,))}
    arrays["d_strided"] = array_of("int16", (4, 6)).T
    told = []
    made = c.tensors_put(arrays, prefix="m.", progress=lambda *n: told.append(n))
    assert [m["name"] for m in made] == ["m." + n for n in arrays] and told[-1][0] == told[-1][1]
    got = c.tensors_get(prefix="m.")
    assert {n.partition(".")[2] if n.startswith("m.") else n for n in got} == set(arrays)
    for name, array in arrays.items():
        same(c.tensors_get([f"m.{name}"]).popitem()[1], np.ascontiguousarray(array).reshape(array.shape))
    with pytest.raises(gpubuf.BufferNotFound):
        c.tensors_get(["m.a", "none"])
    with pytest.raises(TypeError, match="safetensors has no complex128"):
        c.tensors_put({"z": np.zeros(2, complex)})
    with pytest.raises(TypeError, match="list of names"):
        c.tensors_get("m.a")


# --- transfers --------------------------------------------------------------------------------------------------------


def test_progress_is_told_and_can_stop(c):
    array = np.frombuffer(payload(BIG), np.uint8)
    told = []
    c.put("x", array, progress=lambda *n: told.append(n))
    assert told == [(4 << 20, BIG), (8 << 20, BIG), (BIG, BIG)]
    told.clear()
    same(c.get("x", progress=lambda *n: told.append(n)), array)
    assert told[-1] == (BIG, BIG)
    assert c.get("x", raw=True, progress=lambda *n: None) == array.tobytes()
    before = c.info("x")["generation"]
    # An exception that looks like a broken connection, too.
    for error in (KeyError("enough"), BrokenPipeError("standard output"), KeyboardInterrupt()):

        def stop(done, _, error=error):
            raise error

        with pytest.raises(type(error)):
            c.put("x", array[::-1], progress=stop)
        with pytest.raises(type(error)):
            c.get("x", progress=stop)
    assert c.info("x")["generation"] == before
    same(c.get("x"), array)


@pytest.mark.parametrize("size", [100, BIG], ids=["at once", "after 100"])
def test_conditions(c, size):
    first = np.zeros(size, np.uint8)
    tag = c.put("x", first, if_none_match="*")["etag"]
    with pytest.raises(gpubuf.PreconditionFailed):
        c.put("x", first, if_none_match="*")
    assert c.put("x", first + 1, if_match=tag)["generation"] == 2
    for ask in (lambda: c.put("x", first, if_match=tag), lambda: c.get("x", if_match=tag.strip('"')),
                lambda: c.delete("x", if_match=tag)):
        with pytest.raises(gpubuf.PreconditionFailed):
            ask()
    same(c.get("x"), first + 1)


def test_a_refusal_comes_before_the_bytes(c):
    """An upload that the header permits to refuse is refused without the body, and the connection stays."""
    c.sessions.update(quota={"bytes": 1000})
    held = c._transport._local.held.http.sock
    with pytest.raises(gpubuf.QuotaExceeded) as e:
        c.put("x", np.zeros(BIG, np.uint8), progress=lambda *_: pytest.fail("bytes were sent"))
    assert (e.value.limit_bytes == 1000 and e.value.requested_bytes == BIG and e.value.status == 507
            and isinstance(e.value, gpubuf.NoMemory))
    assert c.list() == [] and held is not None


def test_one_connection_for_each_thread(c):
    arrays = [array_of("float32", (100 + i, 70), i) for i in range(6)]
    socks = set()

    def work(i):
        for turn in range(5):
            c.put(f"t{i}", arrays[i])
            same(c.get(f"t{i}"), arrays[i])
            socks.add((i, id(c._transport._local.held.http.sock)))

    at_once(6, work)
    assert len(socks) == 6
    gc.collect()
    assert until("the threads' connections are closed", lambda: gc.collect() or len(c._transport._all) <= 1)


def test_after_a_fork(c):
    """A child does not use its parent's connection."""
    c.put("x", b"parent")
    pid = os.fork()
    if pid == 0:
        os._exit(0 if c.get("x", raw=True) == b"parent" and c.put("y", b"child")["bytes"] == 5 else 1)
    assert [c.get("x", raw=True) for _ in range(5)] == [b"parent"] * 5
    assert os.waitpid(pid, 0)[1] == 0 and c.get("y", raw=True) == b"child"


def test_a_connection_that_ended_is_made_again(start):
    d = start("--idle-timeout", "1")
    with client_of(d) as c:
        c.put("x", b"1")
        first = c._transport._local.held.http
        until("the daemon closes what is idle", lambda: not c._transport._local.held.usable())
        c.fill("x", 2)  # the request is not repeatable, so it must not fail either
        assert c._transport._local.held.http is not first and c.get("x", raw=True) == b"\2"


def test_nobody_there(tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
        for where in (dict(url=f"http://127.0.0.1:{port}"), dict(socket=str(tmp_path / "none"))):
            with pytest.raises(gpubuf.Unreachable, match="there is no daemon at") as e:
                gpubuf.Client(**where).list()
            assert isinstance(e.value, ConnectionError) and e.value.code == "unreachable" and e.value.status == 0
    closed = gpubuf.Client("http://127.0.0.1:1")
    closed.close()
    with pytest.raises(RuntimeError, match="closed"):
        closed.list()


# --- errors -----------------------------------------------------------------------------------------------------------


def test_errors_are_those_of_the_list():
    with open(os.path.join(ROOT, "include", "gpubuf", "errors.def")) as f:
        listed = re.findall(r'^GB_ERROR\(\w+, (\w+), (\d+), ([01]), "(.*)"\)$', f.read(), re.M)
    assert len(listed) > 70
    ours = [(c.code, str(c.status), str(int(c.retryable)), c.__doc__) for c in gpubuf.errors._by_code.values()
            if c.status]
    assert ours == listed
    for cls in gpubuf.errors._by_code.values():
        assert getattr(gpubuf, cls.__name__) is cls and cls.__name__ in gpubuf.__all__
        again = pickle.loads(pickle.dumps(cls("why")))
        assert type(again) is cls and again.detail == "why" and str(again) == f"why [{cls.code}]"
    bases = [(gpubuf.BufferNotFound, LookupError), (gpubuf.InvalidName, ValueError),
             (gpubuf.Forbidden, PermissionError), (gpubuf.TimedOut, TimeoutError), (gpubuf.OutOfMemory, MemoryError),
             (gpubuf.Unsupported, NotImplementedError)]
    assert all(issubclass(ours, builtin) and issubclass(ours, gpubuf.Error) for ours, builtin in bases)


def test_errors_say_what_the_daemon_said(c):
    with pytest.raises(gpubuf.BufferNotFound, match='no buffer named "none"') as e:
        c.get("none")
    p = e.value
    assert ((p.code, p.status, p.retryable, p.title) == ("buffer_not_found", 404, False, "No such buffer")
            and p.request_id and p.cuda is None)
    with pytest.raises(gpubuf.NotFound):
        c.with_session("none").list()
    with pytest.raises(gpubuf.InvalidName):
        c.put("a b", b"1")
    with pytest.raises(gpubuf.BadRequest):
        c.put("x", b"123", dtype="float32", shape=(1,))
    with pytest.raises(gpubuf.AlreadyExists):
        c.create("x", bytes=1) and c.create("x", bytes=1)
    for name in ("", ".", ".."):
        with pytest.raises(ValueError, match="is no name"):
            c.get(name)


def test_a_code_that_is_not_known_yet():
    assert type(gpubuf.errors.error_of(404, {"code": "moon_not_found", "detail": "d"})) is gpubuf.NotFound
    assert type(gpubuf.errors.error_of(418, {"code": "teapot"})) is gpubuf.BadRequest
    e = gpubuf.errors.error_of(599, {"code": "new", "cuda": {"name": "n", "code": 2, "call": "c"}})
    assert type(e) is gpubuf.ServerError and e.code == "new" and e.status == 599 and e.cuda["code"] == 2
