"""Tensors of torch on a GPU that the daemon adopts by CUDA's legacy handle, and allocations of a pool of this
process."""
import ctypes
import os
from ctypes import byref, c_char, c_int, c_size_t, c_uint64, c_ulonglong, c_ushort, c_void_p

import pytest

from harness import BACKENDS, library, until
from pyclient import client_of, gpubuf

if not any(b.startswith("cuda") for b in BACKENDS):
    pytest.skip("no GPU is asked for (GB_E2E_BACKENDS)", allow_module_level=True)
torch = library("torch")


@pytest.fixture
def c(daemon, session):
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    with client_of(daemon, session, unix=True) as client:
        yield client


def test_a_tensor(c):
    t = torch.arange(1 << 20, dtype=torch.float32, device="cuda").reshape(1024, 1024)
    with c.adopt("x", t) as owned:
        assert owned.info["kind"] == "ipc" and (c.get("x") == t.cpu().numpy()).all()
        c.put("x", (t * 2).cpu().numpy())
        assert (t[3, :4].cpu() == torch.tensor([6144., 6146., 6148., 6150.])).all()
        c.fill("x", 0, 4)
        assert not t.any()
        c.copy("x", "y")
    assert (c.get("y") == 0).all() and t.sum() == 0


def test_a_tensor_as_the_device_side_of_a_mirrored_buffer(c):
    """set_gpu_data of SyncedMemory; the host side stays the daemon's, and the bytes outlive the tensor."""
    t = torch.arange(1 << 18, dtype=torch.float32, device="cuda")
    c.create("m", dtype="float32", shape=(1 << 18,), mirrored=True)
    with c.adopt("m", t, side="device") as owned:
        assert owned.info["head"] == "device" and owned.info["sides"]["device"]["owned"] is False
        assert c.sync("m", "host")["head"] == "synced" and (c.get("m") == t.cpu().numpy()).all()
        c.put("m", (t * 2).cpu().numpy())
        c.sync("m", "device")
        assert t[7] == 14
        c.fill("m", 0, 4)
        assert not t.any()
    info = c.info("m")
    assert info["head"] == "host" and info["sides"]["device"]["bytes"] == 0 and not c.get("m").any()


def test_two_tensors_of_one_allocation(c):
    """The handle is that of the whole allocation: it is opened once, and each buffer begins at its own offset."""
    both = torch.zeros(2, 1 << 18, dtype=torch.int64, device="cuda")
    with c.adopt("a", both[0]), c.adopt("b", both[1]):
        c.fill("a", 1, 8)
        c.fill("b", 2, 8)
        assert (both[0] == 1).all() and (both[1] == 2).all()
        c.delete("a")
        c.fill("b", 3, 8)
        assert (both[0] == 1).all() and (both[1] == 3).all()


def test_what_is_no_handle_leaves_the_device_alive(c, daemon):
    for way in "vmm", "memfd":
        with open("/dev/null", "rb") as f, pytest.raises(gpubuf.CannotAdopt):
            c.adopt("x", f.fileno(), nbytes=4096, way=way)
    assert daemon.ask("GET", "/readyz").status == 200
    t = torch.ones(100, device="cuda")
    owned = c.adopt("x", t)
    owned._lease.close()
    until("it is lost", lambda: c.info("x")["state"] == "lost")
    assert daemon.ask("GET", "/readyz").status == 200 and (t == 1).all()


# --- pools ------------------------------------------------------------------------------------------------------------


class PoolProps(ctypes.Structure):
    """CUmemPoolProps."""

    _fields_ = [("kind", c_int), ("handles", c_int), ("where", c_int), ("device", c_int), ("security", c_void_p),
                ("most", c_size_t), ("usage", c_ushort), ("reserved", c_char * 54)]


class Pool:
    """An exportable pool in torch's context, as RMM makes them."""

    def __init__(self):
        torch.zeros(1, device="cuda")
        self.cuda, self.pool = ctypes.CDLL("libcuda.so.1"), c_void_p()
        self.call("cuMemPoolCreate", byref(self.pool), byref(PoolProps(kind=1, handles=1, where=1, device=0)))
        self.fd = c_int(-1)
        self.call("cuMemPoolExportToShareableHandle", byref(self.fd), self.pool, c_int(1), c_ulonglong(0))

    def call(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        assert code == 0, f"{name}: {code}"

    def make(self, nbytes, value):
        """An allocation full of value, and the handle of its pointer."""
        at, data = c_uint64(), (c_char * 64)()
        self.call("cuMemAllocFromPoolAsync", byref(at), c_size_t(nbytes), self.pool, None)
        self.call("cuMemsetD8_v2", at, value, c_size_t(nbytes))
        torch.cuda.synchronize()
        self.call("cuMemPoolExportPointer", byref(data), at)
        return at, data.raw

    def read(self, at, nbytes):
        data = (c_char * nbytes)()
        self.call("cuMemcpyDtoH_v2", data, at, c_size_t(nbytes))
        return data.raw

    def end(self, *memory):
        for at in memory:
            self.call("cuMemFree_v2", at)
        os.close(self.fd.value)
        self.call("cuMemPoolDestroy", self.pool)


N = (3 << 20) + 8


def test_memory_of_a_pool(c, daemon):
    pool = Pool()
    (a, handle), (b, other) = pool.make(N, 5), pool.make(N, 6)
    with c.adopt("x", pool.fd.value, way="pool", handle=handle, nbytes=N) as owned, \
            c.adopt("y", pool.fd.value, way="pool", handle=other, nbytes=N - 8, offset=8), \
            c.adopt("again", pool.fd.value, way="pool", handle=handle, nbytes=N):
        assert owned.info["kind"] == "ipc" and bytes(c.get("x")) == b"\x05" * N
        c.fill("y", 9)
        assert pool.read(b, 16) == b"\x06" * 8 + b"\x09" * 8
        c.copy("y", "z")
        c.fill("x", 7)
        assert bytes(c.get("again")) == b"\x07" * N and bytes(c.get("z")) == b"\x09" * (N - 8)
    assert pool.read(a, N) == b"\x07" * N
    pool.end(a, b)
    assert daemon.ask("GET", "/readyz").status == 200


def test_what_is_no_memory_of_a_pool(c, daemon):
    """No handle ends the daemon: neither one that CUDA refuses nor one that its importers die of."""
    pool = Pool()
    a, handle = pool.make(N, 5)
    big, large = pool.make(6 << 30, 5)
    fd = pool.fd.value
    wrong = [(fd, bytes(64), 4096), (fd, os.urandom(64), 4096), (fd, large, 4096), (fd, handle, 64 << 20),
             (fd, handle, 5 << 30)]
    with open("/dev/null", "rb") as null:
        for descriptor, data, nbytes in [*wrong, (null.fileno(), handle, 4096)]:
            with pytest.raises(gpubuf.CannotAdopt):
                c.adopt("x", descriptor, way="pool", handle=data, nbytes=nbytes)
            assert daemon.ask("GET", "/readyz").status == 200
    with c.adopt("x", fd, way="pool", handle=handle, nbytes=N):
        assert bytes(c.get("x")) == b"\x05" * N
    pool.end(a, big)


def test_the_owner_of_a_pool_goes(c, daemon):
    pool = Pool()
    a, handle = pool.make(N, 5)
    owned = c.adopt("x", pool.fd.value, way="pool", handle=handle, nbytes=N)
    owned._lease.close()
    until("it is lost", lambda: c.info("x")["state"] == "lost")
    pool.end(a)
    assert daemon.ask("GET", "/readyz").status == 200
