"""Device memory in the Python client, with a fake driver that records its calls; no GPU is needed."""
import ctypes
import functools
import gc
import os

import numpy as np
import pytest
from pyclient import Granter, gpubuf, handle
from gpubuf import _cuda
from test_python_map import Consumer

from harness import until

BASE = 0x7F0000000000
UUID = bytes(range(16))
NAMED = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
WAYS = ("vmm", "pool", "legacy")


class Function:
    def __init__(self, driver, name):
        self.driver, self.name = driver, name

    def __call__(self, *arguments):
        return self.driver.called(self.name, arguments)


class FakeDriver:
    """The part of libcuda that the client calls. fails: the name of a call that fails."""

    def __init__(self, devices=(b"\xff" * 16, UUID)):
        self.devices, self.calls, self.fails, self.missing, self.access = devices, [], None, None, 0

    def __getattr__(self, name):
        if not name.startswith("cu") or name == self.missing:
            raise AttributeError(name)
        return Function(self, name)

    def called(self, name, arguments):
        plain = [getattr(a, "value", a) for a in (getattr(a, "_obj", a) for a in arguments)]
        if name == self.fails:
            return 2
        give = {"cuDeviceGetCount": len(self.devices), "cuMemImportFromShareableHandle": 11,
                "cuMemAddressReserve": BASE, "cuMemPoolImportFromShareableHandle": 22, "cuMemPoolImportPointer": BASE,
                "cuIpcOpenMemHandle_v2": BASE, "cuIpcOpenEventHandle": 33, "cuDevicePrimaryCtxRetain": 44,
                "cuMemPoolGetAccess": self.access, "cuMemAlloc_v2": 0x5500, "cuStreamCreate": 66}
        if name == "cuDeviceGet":
            arguments[0]._obj.value = plain[1]
        elif name == "cuDeviceGetUuid_v2":
            ctypes.memmove(ctypes.addressof(arguments[0]._obj), self.devices[plain[1]], 16)
        elif name == "cuGetErrorName":
            arguments[1]._obj.value = b"CUDA_ERROR_OUT_OF_MEMORY"
            return 0
        elif name in give:
            arguments[0]._obj.value = give[name]
        if name in ("cuMemImportFromShareableHandle", "cuMemPoolImportFromShareableHandle"):
            os.fstat(plain[1])  # is open
        if name == "cuMemSetAccess":
            plain[2] = (plain[2].location.type, plain[2].location.id, plain[2].flags)
        self.calls.append((name, *plain))
        return 0

    def names(self):
        return [name for name, *_ in self.calls if not name.startswith(("cuCtx", "cuDeviceGet", "cuInit"))]

    def of(self, name):
        return [arguments for called, *arguments in self.calls if called == name]


@pytest.fixture
def fake(monkeypatch):
    driver = FakeDriver()
    monkeypatch.setattr("gpubuf._cuda.load", functools.cache(lambda: _cuda.Driver(driver)))
    return driver


@pytest.fixture
def grant(tmp_path):
    made = []

    def go(way, **more):
        fields = dict(offset=256, kind="device", device={"index": 0, "uuid": NAMED}, event=handle(9), map_bytes=2 << 20,
                      fds=1)
        if way in ("pool", "legacy"):
            fields["handle"] = handle(7)
        g = Granter(tmp_path, np.arange(6, dtype=np.float32).tobytes(), more.pop("dtype", "float32"), (2, 3), way=way,
                    **{**fields, **more})
        g.fds = 0 if way == "legacy" else 1
        made.append(g)
        return g, gpubuf.Client(socket=g.path, timeout=90)

    yield go
    for g in made:
        g.close()


OPENED = {
    "vmm": ["cuMemImportFromShareableHandle", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"],
    "pool": ["cuMemPoolImportFromShareableHandle", "cuMemPoolGetAccess", "cuMemPoolSetAccess",
             "cuMemPoolImportPointer"],
    "legacy": ["cuIpcOpenMemHandle_v2"],
}
CLOSED = {"vmm": ["cuMemUnmap", "cuMemAddressFree", "cuMemRelease"], "pool": ["cuMemFree_v2", "cuMemPoolDestroy"],
          "legacy": ["cuIpcCloseMemHandle"]}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", ["read", "write"])
def test_opened_and_closed(grant, fake, way, mode):
    g, c = grant(way)
    before = len(os.listdir("/proc/self/fd"))
    with c.map("x", mode) as m:
        retain, opened = ["cuDevicePrimaryCtxRetain"], [*OPENED[way], "cuIpcOpenEventHandle"]
        assert fake.names() == retain + opened + retain and m.pointer == BASE + 256 and m.__dlpack_device__() == (2, 1)
        if way == "vmm":
            assert (fake.of("cuMemMap") == [[BASE, 2 << 20, 0, 11, 0]] and fake.of("cuMemSetAccess")
                    == [[BASE, 2 << 20, (1, 1, 3 if mode == "write" else 1), 1]])
        fake.calls.clear()
    assert [n for n, *_ in fake.calls] == ["cuCtxPushCurrent_v2", "cuCtxSynchronize", "cuEventDestroy_v2", *CLOSED[way],
                                           "cuCtxPopCurrent_v2", "cuDevicePrimaryCtxRelease_v2"]
    assert g.ended.wait(10) and g.deleted and until("nothing is left open", lambda: len(os.listdir("/proc/self/fd"))
                                                    <= before)


def test_the_context_is_kept(grant, fake):
    """Otherwise a process without another context would create one for each mapping, which takes a tenth of a second or
    more."""
    g, c = grant("vmm")
    for _ in range(3):
        with c.map("x"):
            pass
        assert g.ended.wait(10)
        g.ended.clear()
    until("all but one is given back", lambda: len(fake.of("cuDevicePrimaryCtxRelease_v2")) == 3)
    assert len(fake.of("cuDevicePrimaryCtxRetain")) == 4


def test_a_pool_that_is_reached_already(grant, fake):
    fake.access = 3
    _, c = grant("pool")
    with c.map("x"):
        assert "cuMemPoolSetAccess" not in fake.names()


def test_a_pool_is_imported_once(grant, fake):
    """By its id; each pointer is imported once, too, and all ends with the last mapping."""
    g, c = grant("pool", pool={"id": "1-2", "name": "p"})
    with c.map("x") as a:
        with c.map("x") as b:
            assert a.pointer == b.pointer == BASE + 256
            g.document["handle"] = handle(8)
            with c.map("y"):
                assert [len(fake.of(n)) for n in OPENED["pool"]] == [1, 1, 1, 2]
        assert len(fake.of("cuMemFree_v2")) == 1 and not fake.of("cuMemPoolDestroy")
        g.document["pool"] = {"id": "1-3", "name": "p"}
        with c.map("x"):
            assert len(fake.of("cuMemPoolImportFromShareableHandle")) == 2
    assert len(fake.of("cuMemFree_v2")) == 3 and len(fake.of("cuMemPoolDestroy")) == 2


def test_open_to_other_devices(grant, fake):
    for way in "vmm", "pool":
        _, c = grant(way)
        fake.calls.clear()
        with c.map("x", "write", access_devices=[0]):
            if way == "vmm":
                assert [a[2] for a in fake.of("cuMemSetAccess")] == [(1, 1, 3), (1, 0, 3)]
            else:
                assert [(a[1].location.id, a[1].flags) for a in fake.of("cuMemPoolSetAccess")] == [(1, 3), (0, 3)]
    _, c = grant("legacy")
    with pytest.raises(gpubuf.BadArgument, match="cuCtxEnablePeerAccess"):
        c.map("x", access_devices=[0])


def test_the_last_work_is_told(grant, fake):
    g, c = grant("vmm", finished_event=handle(5))
    with c.map("x", finished_event=True) as m:
        assert b'"finished_event": true' in g.requests[-1][2]
        m.finish_on(7)
        assert fake.of("cuEventRecord") == [[33, 7]]
    assert len(fake.of("cuEventDestroy_v2")) == 2
    _, c = grant("vmm")
    with c.map("x") as m, pytest.raises(gpubuf.BadArgument, match="finished_event=True"):
        m.finish_on()


@pytest.mark.parametrize("way", WAYS)
def test_every_call_may_fail(grant, fake, way):
    """Imported objects are closed, the lease ends, and the error has the driver's name of it."""
    g, c = grant(way)
    for name in ["cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", *OPENED[way], "cuIpcOpenEventHandle"]:
        fake.fails, fake.calls = name, []
        g.ended.clear()
        with pytest.raises(gpubuf.DeviceError, match=f"refused {name}: CUDA_ERROR_OUT_OF_MEMORY") as e:
            c.map("x")
        assert (e.value.cuda == {"name": "CUDA_ERROR_OUT_OF_MEMORY", "code": 2, "call": name, "domain": "cuda"}
                and g.ended.wait(10))
        if name == "cuCtxPushCurrent_v2":
            continue  # nothing can be freed either
        pairs = {"cuMemImportFromShareableHandle": "cuMemRelease", "cuMemAddressReserve": "cuMemAddressFree",
                 "cuMemMap": "cuMemUnmap", "cuMemPoolImportFromShareableHandle": "cuMemPoolDestroy",
                 "cuMemPoolImportPointer": "cuMemFree_v2", "cuIpcOpenMemHandle_v2": "cuIpcCloseMemHandle",
                 "cuDevicePrimaryCtxRetain": "cuDevicePrimaryCtxRelease_v2",
                 "cuCtxPushCurrent_v2": "cuCtxPopCurrent_v2"}
        for opened, closed in pairs.items():
            assert len(fake.of(opened)) == len(fake.of(closed)), (name, opened)


def test_what_this_process_lacks(grant, fake, monkeypatch):
    g, c = grant("vmm", device={"index": 0, "uuid": "GPU-" + "0" * 8})
    with pytest.raises(gpubuf.Unsupported, match="does not see"):
        c.map("x")
    g.document["device"]["uuid"] = NAMED
    fake.missing = "cuMemImportFromShareableHandle"
    with pytest.raises(gpubuf.Unsupported, match="no cuMemImportFromShareableHandle"):
        c.map("x")
    monkeypatch.undo()
    monkeypatch.setattr("gpubuf._cuda._loaded", None)

    def none(name):
        raise OSError(f"{name}: cannot open")

    monkeypatch.setattr("ctypes.CDLL", none)
    with pytest.raises(gpubuf.Unsupported, match="finds no CUDA driver: libcuda.so.1"):
        c.map("x")
    assert isinstance(gpubuf.Unsupported(), NotImplementedError) and g.ended.wait(10)


def test_wrong_handles(grant, fake):
    g, c = grant("legacy", handle="AAAA")
    with pytest.raises(gpubuf.BrokenAnswer, match="3 bytes, not 64"):
        c.map("x")
    g.document.update(handle=handle(7), event="AAAA")
    with pytest.raises(gpubuf.BrokenAnswer, match="3 bytes, not 64"):
        c.map("x")
    assert len(fake.of("cuIpcOpenMemHandle_v2")) == len(fake.of("cuIpcCloseMemHandle")) == 1


# --- consumers --------------------------------------------------------------------------------------------------------


def test_dlpack_waits_on_the_consumers_stream(grant, fake):
    g, c = grant("vmm")
    with c.map("x", "write") as m:
        tensors = []
        for stream, waited in ((None, 1), (1, 1), (2, 2), (0xABC, 0xABC), (-1, None)):
            fake.calls.clear()
            tensors.append(Consumer(m, stream=stream))
            assert fake.of("cuStreamWaitEvent") == ([[waited, 33, 0]] if waited is not None else [])
        t = tensors[0]
        assert ((t.device, t.id, t.data, t.flags, t.code, t.bits) == (2, 1, BASE + 256, 0, 2, 32)
                and t.numbers(t.shape_at) == [2, 3])
        for wrong in (dict(stream=0), dict(dl_device=(1, 0))):
            with pytest.raises(BufferError):
                m.__dlpack__(**wrong)
        fake.calls.clear()
        m.wait_on(5)
        assert fake.of("cuStreamWaitEvent") == [[5, 33, 0]]
    assert "cuMemUnmap" not in fake.names() and m.alive and m.unmap() is False
    for t in tensors:
        assert not g.ended.is_set()
        t.free()
        gc.collect()
    assert fake.names()[-1] == "cuDevicePrimaryCtxRelease_v2" and "cuMemUnmap" in fake.names() and g.ended.wait(10)


def test_a_copy_for_a_consumer(grant, fake):
    """A stream of ours waits for the buffer's queued writes and copies; the consumer has nothing to wait for, and may
    write."""
    _, c = grant("vmm")
    with c.map("x") as m:
        fake.calls.clear()
        t = Consumer(m, copy=True, stream=7)
        waits, copies = fake.of("cuStreamWaitEvent"), fake.of("cuMemcpyDtoDAsync_v2")
        assert (waits == [[66, 33, 0]] and copies == [[0x5500, BASE + 256, 24, 66]]
                and fake.of("cuStreamSynchronize")[-1] == [66])
        assert (t.device, t.id, t.data, t.flags) == (2, 1, 0x5500, 2)
        assert m.unmap(), "the copy holds no lease"
        t.free()
    gc.collect()
    assert fake.of("cuMemFree_v2") == [[0x5500]]


def test_dlpack_of_what_is_read_only(grant, fake):
    _, c = grant("vmm")
    with c.map("x") as m:
        with pytest.raises(BufferError, match="mapped for reading"):
            m.__dlpack__(stream=1)
        t = Consumer(m, stream=1)
        assert t.flags == 1
        t.free()


def test_the_cuda_array_interface(grant, fake):
    """The consumer holds the mapping, which stays as long as the consumer's array."""
    g, c = grant("vmm")
    m = c.map("x")
    fake.calls.clear()
    assert m.__cuda_array_interface__ == {"shape": (2, 3), "typestr": "<f4", "data": (BASE + 256, True), "version": 3,
                                          "strides": None, "stream": 1}
    assert fake.of("cuStreamWaitEvent") == [[1, 33, 0]]
    taken = [m]
    assert m.unmap() is False and not hasattr(m, "__cuda_array_interface__") and m.alive
    del m
    gc.collect()
    assert "cuMemUnmap" not in fake.names()
    taken.clear()
    gc.collect()
    assert "cuMemUnmap" in fake.names() and g.ended.wait(10)


def test_numpy_does_not_reach_it(grant, fake):
    _, c = grant("vmm")
    with c.map("x") as m:
        for use in (m.array, lambda: np.asarray(m)):
            with pytest.raises(TypeError, match="is in device memory, which numpy does not reach"):
                use()
        assert not hasattr(m, "__array_interface__")
    _, c = grant("legacy", dtype="bfloat16", bytes=12)
    with c.map("x") as m:
        assert not hasattr(m, "__cuda_array_interface__") and Consumer(m).code == 4


def test_without_an_event(grant, fake):
    _, c = grant("legacy", event=None)
    with c.map("x") as m:
        m.wait_on()
        assert "cuIpcOpenEventHandle" not in fake.names() and fake.of("cuStreamWaitEvent") == []
