"""Mappings of the Python client, against a server that grants without a daemon: the exchange, arrays, DLPack,
lifetimes."""
import ctypes
import gc
import json
import os
import struct
import subprocess
import sys
import threading
import types

import numpy as np
import pytest
from pyclient import SOURCE, Granter, gpubuf

from harness import library, optional, until
from values import DTYPES, array_of

ONE = b"HTTP/1.1 103 Early Hints\r\n\r\n"


@pytest.fixture
def grant(tmp_path):
    """Makes a Granter and a client of it."""
    made = []

    def go(*args, **more):
        granter = Granter(tmp_path, *args, **more)
        made.append(granter)
        return granter, gpubuf.Client(socket=granter.path, timeout=90)

    yield go
    for granter in made:
        granter.close()


def of_array(grant, array, **more):
    return grant(array.tobytes(), str(array.dtype), array.shape, **more)


def torch_or_skip():
    try:
        import torch
    except ImportError:
        pytest.skip("torch is not installed on this machine")
    return torch


# --- the exchange -----------------------------------------------------------------------------------------------------


def test_what_is_asked(grant):
    g, _ = grant()
    with gpubuf.Client(socket=g.path, token="secret", session="s") as c, c.map("x y", "write", ways=["memfd"],
                                                                               wait=3) as m:
        line, fields, body = g.requests[0]
        assert line == "POST /v1/sessions/s/buffers/x%20y/map HTTP/1.1" and json.loads(body) == {"mode": "write",
                                                                                                 "ways": ["memfd"]}
        assert (fields["authorization"], fields["prefer"], fields["host"]) == ("Bearer secret", "wait=3", "localhost")
        assert (m.lease, m.mode, m.way, m.dtype, m.shape, m.nbytes, m.generation) == ("17", "write", "memfd", "uint8",
                                                                                      (24,), 24, 3)
        assert (m.passed_over[0]["way"] == "vmm" and m.etag == '"1.3.x"' and m.device["uuid"] == "HOST-1"
                and m.kind == "shared")
        assert "x" in repr(m) and "write" in repr(m)
    assert g.deleted == ["DELETE /v1/leases/17 HTTP/1.1"] and g.ended.wait(10) and "unmapped" in repr(m)


def test_answers_in_pieces(grant):
    """Heads cut anywhere, preceding interim answers, no descriptor."""
    g, c = grant()
    problem = json.dumps({"code": "mapped", "status": 409, "detail": "d", "holders": [{"pid": 7}]}).encode()
    whole = (b"HTTP/1.1 100 Continue\r\n\r\n" + ONE + b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\n\r\n"
             % len(problem) + problem)
    g.answers = [[whole[i : i + 1] for i in range(len(whole))]]
    with pytest.raises(gpubuf.Mapped) as e:
        c.map("x")
    assert e.value.holders == [{"pid": 7}] and isinstance(e.value, gpubuf.Conflict)


def test_a_busy_buffer_is_asked_again(grant):
    g, c = grant()
    busy = b'{"code": "buffer_busy", "status": 409, "detail": "being mapped"}'
    whole = b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\n\r\n" % len(busy) + busy
    g.answers = [[whole], [whole]]
    with c.map("x", "write"):
        assert len(g.requests) == 3
    g.answers = [[whole]] * 2
    with pytest.raises(gpubuf.BufferBusy):
        c.map("x", "write", wait=0)
    assert len(g.answers) == 1


GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"


@pytest.mark.parametrize("answer", [
    b"SSH-2.0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", GOOD % (3, b"{[}"), GOOD % (2, b"{}"), GOOD % (2, b"[]"),
    GOOD % (1 << 30, b""), b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", b"HTTP/1.1 2x0 OK\r\n\r\n", b"x" * 70000,
], ids=["ssh", "no length", "no json", "empty", "list", "huge", "negative", "no status", "endless"])
def test_broken_answers(grant, answer):
    g, c = grant()
    g.answers = [[answer]]
    with pytest.raises(gpubuf.BrokenAnswer):
        c.map("x")
    assert g.ended.wait(10), "the lease's connection is closed"


def test_grants_that_cannot_be(grant):
    """Each grant would map other memory than it describes."""
    g, c = grant()
    right, fds = dict(g.document), lambda: len(os.listdir("/proc/self/fd"))
    g.document = {**right, "way": "vmm"}
    with pytest.raises(gpubuf.Error):
        c.map("x")  # a driver, if there is one, is opened now and keeps its own descriptors
    before = fds()
    for wrong in (dict(offset=4096), dict(bytes=5000), dict(map_bytes=1 << 20), dict(offset=-1),
                  dict(way="carrier pigeon"), dict(way="vmm"), dict(map_bytes="x"), dict(bytes=None), dict(map_bytes=0),
                  dict(bytes=23), dict(shape=[25]), dict(dtype="float128"), dict(event="AAAA")):
        g.document = {**right, **wrong}
        with pytest.raises(gpubuf.Error):
            c.map("x")
        assert until("nothing is left open", lambda: fds() <= before), wrong
    for number in (0, 5):
        g.document, g.fds = right, number
        with pytest.raises(gpubuf.BrokenAnswer, match="descriptor"):
            c.map("x")
        assert until("nothing is left open", lambda: fds() <= before)
    g.fds = 2  # more descriptors than needed are no error, and none stays open
    with c.map("x"):
        pass
    assert until("nothing is left open", lambda: fds() <= before)


def test_nobody_grants(grant, tmp_path):
    g, c = grant()
    with pytest.raises(gpubuf.Unreachable):
        gpubuf.Client(socket=str(tmp_path / "none")).map("x")
    g.answers = [[]]
    with pytest.raises(gpubuf.Unreachable):
        gpubuf.Client(socket=g.path, timeout=0.2).map("x")


# --- numpy ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (3, 5, 2)], ids=str)
def test_numpy_sees_the_bytes(grant, dtype, shape):
    array = array_of(dtype, shape)
    g, c = of_array(grant, array)
    with c.map("x") as m:
        for seen in (np.asarray(m), m.array(), np.array(m, copy=False)):
            assert (seen.dtype, seen.shape) == (array.dtype, array.shape) and seen.tobytes() == array.tobytes()
            assert not seen.flags.writeable or seen.size == 0
        assert np.asarray(m, dtype=np.complex128).dtype == np.complex128
        if array.nbytes:
            assert np.asarray(m).ctypes.data == m.array().ctypes.data == m.pointer
            os.pwrite(g.memory, b"\1" * array.nbytes, g.before)
            assert np.asarray(m).tobytes() == b"\1" * array.nbytes, "the very bytes"
            with pytest.raises(ValueError, match="read-only"):
                m.array()[...] = 0
        seen = None


def test_writes_go_through(grant):
    g, c = of_array(grant, np.zeros(6, np.float32))
    with c.map("x", "write") as m:
        assert not m.readonly
        np.asarray(m)[2] = 1.5
        m.array()[4] = 2.5
        assert np.frombuffer(g.bytes(), np.float32).tolist() == [0, 0, 1.5, 0, 2.5, 0]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_types_that_numpy_lacks(grant, dtype, monkeypatch):
    ml_dtypes = library("ml_dtypes")
    array = np.arange(4).astype(getattr(ml_dtypes, dtype))
    _, c = of_array(grant, array)
    with c.map("x") as m:
        for seen in (np.asarray(m), m.array()):
            assert seen.dtype == array.dtype and seen.tobytes() == array.tobytes()
        seen = None
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
        with pytest.raises(TypeError, match="install ml_dtypes"):
            np.asarray(m)


# --- lifetimes --------------------------------------------------------------------------------------------------------


def test_unmap_is_idempotent(grant):
    g, c = grant()
    m = c.map("x")
    assert m.alive and m.unmap() is True and m.unmap() is True and not m.alive and len(g.deleted) == 1
    for use in (m.array, lambda: np.asarray(m), lambda: m.pointer, m.__dlpack__, m.__dlpack_device__, m.wait_on):
        with pytest.raises(ValueError, match="unmapped"):
            use()


@pytest.mark.parametrize("way", ["array", "interface", "dlpack"])
def test_an_array_keeps_the_lease(grant, way):
    g, c = grant(mode="write")
    with c.map("x", "write") as m:
        a = {"array": m.array, "interface": lambda: np.asarray(m), "dlpack": lambda: np.from_dlpack(m)}[way]()
        part = a[3:9].reshape(2, 3)
        del a
    assert m.unmap() is False and m.alive and not g.ended.is_set() and not g.deleted
    os.pwrite(g.memory, b"\7", g.before + 3)
    assert part[0, 0] == 7
    del part
    gc.collect()
    assert g.ended.wait(10) and not m.alive and m.unmap() is True


def test_a_forgotten_mapping_ends(grant):
    g, c = grant()
    c.map("x")
    gc.collect()
    assert g.ended.wait(10)
    g.ended.clear()
    a = np.asarray(c.map("x"))
    gc.collect()
    assert not g.ended.wait(0.1) and a[1] == 1
    del a
    gc.collect()
    assert g.ended.wait(10)


def test_the_end_of_the_daemon_is_noticed(grant):
    g, c = grant()
    with c.map("x") as m:
        a = np.asarray(m)
        g.hang_up()
        assert until("the mapping is dead", lambda: not m.alive) and a[5] == 5, "the bytes are still there"
        del a
    assert m.unmap() is True


def test_many_threads(grant):
    g, c = grant()
    wrong = []

    def work():
        try:
            for _ in range(20):
                with c.map("x") as m:
                    assert np.asarray(m)[3] == 3 and np.from_dlpack is not None
        except BaseException as e:
            wrong.append(e)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and len(g.deleted) == 160
    m = c.map("x")
    ends = [threading.Thread(target=m.unmap) for _ in range(8)]
    for t in ends:
        t.start()
    for t in ends:
        t.join()
    assert len(g.deleted) == 161


def test_a_fork_does_not_end_it(grant):
    g, c = grant()
    m = c.map("x")
    pid = os.fork()
    if pid == 0:
        ok = np.asarray(m)[2] == 2
        m.unmap()
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0 and m.alive and not g.deleted and m.unmap() is True and len(g.deleted) == 1


# --- DLPack -----------------------------------------------------------------------------------------------------------


class Consumer:
    """A hand-written consumer of the newer protocol, because not every numpy supports it."""

    new = ctypes.pythonapi.PyCapsule_GetPointer
    new.restype, new.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.restype, rename.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
    used = ctypes.create_string_buffer(b"used_dltensor_versioned")

    def __init__(self, source, **more):
        capsule = source.__dlpack__(max_version=(1, 1), **more)
        self.address = self.new(capsule, b"dltensor_versioned")
        self.rename(capsule, self.used)
        head = ctypes.string_at(self.address, 80)
        self.major, self.minor, _, self.deleter, self.flags = struct.unpack_from("<IIQQQ", head, 0)
        self.data, self.device, self.id, self.ndim, self.code, self.bits, self.lanes = struct.unpack_from("<QiiiBBH",
                                                                                                          head, 32)
        self.shape_at, self.strides_at, self.offset = struct.unpack_from("<QQQ", head, 56)

    def numbers(self, at):
        return list((ctypes.c_int64 * self.ndim).from_address(at))

    def free(self):
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.deleter)(self.address)


def test_the_newer_protocol(grant):
    array = array_of("int16", (3, 4, 5))
    g, c = of_array(grant, array)
    with c.map("x") as m:
        t = Consumer(m)
        assert (t.major, t.flags, t.device, t.id, t.code, t.bits, t.lanes, t.offset) == (1, 1, 1, 0, 0, 16, 1, 0)
        assert t.numbers(t.shape_at) == [3, 4, 5] and t.numbers(t.strides_at) == [20, 5, 1] and t.data == m.pointer
        assert ctypes.string_at(t.data, array.nbytes) == array.tobytes()
    assert m.alive and not g.ended.is_set()
    t.free()
    gc.collect()
    assert g.ended.wait(10)
    with c.map("x", "write") as m:
        t = Consumer(m)
        assert t.flags == 0
        t.free()


def test_read_only_is_not_given_to_whoever_cannot_know(grant):
    g, c = grant()
    with c.map("x") as m:
        for version in (None, (0, 8)):
            with pytest.raises(BufferError, match="mapped for reading"):
                m.__dlpack__(max_version=version)
        if tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1):
            seen = np.from_dlpack(m)
            assert not seen.flags.writeable and seen[7] == 7
            del seen
        else:
            with pytest.raises(BufferError, match="mapped for reading"):
                np.from_dlpack(m)
    with c.map("x", "write") as m:
        assert m.__dlpack_device__() == (1, 0)
        seen = np.from_dlpack(m)
        m.array()[0] = 99
        assert seen[0] == 99 and g.bytes()[0] == 99
        for wrong in (dict(stream=1), dict(dl_device=(2, 0))):
            with pytest.raises(BufferError):
                m.__dlpack__(**wrong)
        del seen
        m.__dlpack__(copy=False, dl_device=(1, 0), stream=None)  # which no consumer takes
    gc.collect()
    assert until("both leases have ended", lambda: len(g.deleted) == 2)


def test_a_copy_for_a_consumer(grant):
    """It can be written, whatever the mapping is for, and holds no lease; a consumer of the older protocol gets one
    too."""
    array = array_of("int16", (3, 4))
    g, c = of_array(grant, array)
    for mode in ("read", "write"):
        with c.map("x", mode) as m:
            t = Consumer(m, copy=True)
            assert (t.flags, t.numbers(t.shape_at)) == (2, [3, 4]) and t.data != m.pointer
            assert ctypes.string_at(t.data, array.nbytes) == array.tobytes()
            ctypes.memset(t.data, 7, array.nbytes)
            assert (m.array() == array).all()
            m.__dlpack__(copy=True)  # which no consumer takes
        assert until("the lease has ended", lambda: len(g.deleted) == 1 + (mode == "write"))
        assert ctypes.string_at(t.data, 1) == b"\7", "the copy lives on"
        t.free()


def test_jax_takes_a_mapping(grant, monkeypatch):
    """jax.numpy.asarray asks for __jax_array__, and gives that to jax again as a numpy array. Without it, it reads
    dtype, which is text."""
    array = array_of("float32", (2, 3))
    _, c = of_array(grant, array)
    given = []
    monkeypatch.setitem(sys.modules, "jax",
                        types.SimpleNamespace(numpy=types.SimpleNamespace(asarray=lambda a: given.append(a) or "made")))
    with c.map("x") as m:
        assert m.__jax_array__() == "made" and type(given[0]) is np.ndarray and (given.pop() == array).all()


def test_jax_itself_takes_a_mapping(grant):
    jax = optional("jax")
    array = array_of("float32", (2, 3))
    _, c = of_array(grant, array)
    with c.map("x") as m:
        assert (np.asarray(jax.numpy.asarray(m)) == array).all() and (np.asarray(jax.numpy.array(m)) == array).all()


def test_tensors_outlive_the_interpreter(grant):
    """A release during interpreter shutdown runs no Python code: the process ends normally."""
    g, _ = grant(mode="write")
    program = f"""if True:
        import sys; sys.path.insert(0, {SOURCE!r})
        import ctypes, gpubuf, numpy as np
        m = gpubuf.Client(socket={g.path!r}).map("x", "write")
        unused = m.__dlpack__()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(unused))
        class Late:
            def __init__(self): self.a = np.from_dlpack(m)
        sys.modules["kept"] = np.from_dlpack(m)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(np.from_dlpack(m)))
        late = Late()
        late.me = late
        print("ready")"""
    run = subprocess.run([sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, timeout=120)
    assert (run.returncode == 0 and run.stdout == "ready\n" and "rror" not in run.stderr
            and "gnored" not in run.stderr), run.stderr
    assert g.ended.wait(10)


def test_torch_sees_the_bytes(grant):
    torch = torch_or_skip()
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    g, c = of_array(grant, array)
    with c.map("x", "write") as m:
        t = torch.from_dlpack(m)
        assert t.shape == (3, 4) and t.data_ptr() == m.pointer and t.sum() == 66
        t[1] *= 10
    assert np.frombuffer(g.bytes(), np.float32)[4:8].tolist() == [40, 50, 60, 70] and m.alive
    del t
    gc.collect()
    assert g.ended.wait(10)
    with c.map("x") as m:
        try:
            t = torch.from_dlpack(m)
        except BufferError:
            return  # a torch version without support for read-only memory in the protocol
        # newer versions accept the flag but have no read-only tensors: what they write is this process's
        assert t.data_ptr() == m.pointer and t[0].sum() == 6
        t[0] = 9
        assert m.array()[0, 1] == 9 and np.frombuffer(g.bytes(), np.float32)[1] == 1
        del t


def test_torch_of_bfloat16(grant):
    torch = torch_or_skip()
    wanted = torch.arange(6, dtype=torch.float32).to(torch.bfloat16)
    g, c = grant(bytes(wanted.view(torch.int16).numpy()), "bfloat16", (6,))
    with c.map("x", "write") as m:
        t = torch.from_dlpack(m)
        assert t.dtype == torch.bfloat16 and torch.equal(t, wanted)
        del t
