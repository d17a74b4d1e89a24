"""Tensors of torch on a GPU that the daemon adopts by CUDA's legacy handle."""
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
