"""Adoption by the Python client: arrays of this process as buffers."""
import gc
import os

import numpy as np
import pytest
from pyclient import client_of, gpubuf

from harness import until
from owning import Owned


@pytest.fixture
def c(daemon, session):
    with client_of(daemon, session, unix=True) as client:
        yield client


def test_an_array(c):
    """Writes of other clients are visible at once; the array outlives the buffer."""
    a = c.shared_array((3, 4), "float32")
    assert a.shape == (3, 4) and a.dtype == np.float32 and not a.any() and a.flags.writeable
    a[:] = np.arange(12).reshape(3, 4)
    with c.adopt("x", a) as owned:
        info = c.info("x")
        assert ((owned.buffer, owned.session, owned.info["name"], info["adopted"]) == ("x", c.session, "x", True)
                and owned.alive)
        assert info["shape"] == [3, 4] and info["dtype"] == "float32" and (c.get("x") == a).all()
        c.put("x", np.ones((3, 4), np.float32))
        assert (a == 1).all()
        c.fill("x", 0, 4, offset=16, bytes=16)
        assert (a == [[1] * 4, [0] * 4, [1] * 4]).all()
        assert c.copy("x", "y")["adopted"] is False
        with pytest.raises(gpubuf.Adopted):
            c.seal("x")
        with pytest.raises(gpubuf.Adopted):
            c.map("x")
        assert "owned" in repr(owned)
    with pytest.raises(gpubuf.BufferNotFound):
        c.info("x")
    owned.release()
    assert not owned.alive and (a == [[1] * 4, [0] * 4, [1] * 4]).all() and (c.get("y") == a).all()


def test_one_side_of_a_mirrored_buffer(c):
    """As set_cpu_data: the array is the host side; the buffer and its bytes outlive it."""
    c.create("m", dtype="float32", shape=(4,), mirrored=True)
    a = c.shared_array((4,), "float32")
    a[:] = 2.5
    with c.adopt("m", a, side="host") as owned:
        assert (owned.info["head"] == "host" and owned.info["sides"]["host"]["owned"] is False
                and (c.get("m") == 2.5).all())
        c.sync("m", "device")
        c.fill("m", 0, 4)
        assert (a == 2.5).all() and c.sync("m", "host")["head"] == "synced" and not a.any()
        c.put("m", np.ones(4, np.float32))
        assert (a == 1).all() and c.info("m")["head"] == "host"
    with c.adopt("m", c.shared_array((0,)), side="host") as nothing:
        assert nothing.info["head"] == "device" and nothing.info["sides"]["host"]["owned"]
    info = c.info("m")
    assert (info["head"] == "device" and info["sides"]["host"]["bytes"] == 0 and not info["adopted"]
            and (c.get("m") == 1).all())


def test_a_part_of_an_array(c):
    a = c.shared_array((8, 16), "int64")
    a[:] = np.arange(128).reshape(8, 16)
    with c.adopt("x", a[2:4]), c.adopt("y", a[4:]):
        assert (c.get("x") == a[2:4]).all() and (c.get("y") == a[4:]).all()
        c.fill("y", 7, 8)
        assert (a[4:] == 7).all() and (a[:4] == np.arange(64).reshape(4, 16)).all()
    with pytest.raises(gpubuf.BadArgument, match="C order"):
        c.adopt("x", a[:, 1:3])


def test_a_descriptor(c):
    with Owned(4096 + 64) as m:
        with c.adopt("x", m.fd, nbytes=64, offset=4096), c.adopt("y", m.fd, dtype="uint16", shape=(2, 16)):
            c.put("x", b"a" * 64)
            assert m.bytes()[4096:] == b"a" * 64 and c.info("y")["shape"] == [2, 16]
    with Owned(64, seals=0) as unsealed, pytest.raises(gpubuf.CannotAdopt, match="F_SEAL_SHRINK"):
        c.adopt("x", unsealed.fd, nbytes=64)


def test_what_is_not_adopted(c, daemon):
    for source, error in [(np.zeros(4), gpubuf.BadArgument), (b"abc", gpubuf.BadType), ([1, 2], gpubuf.BadType),
                          (True, gpubuf.BadType)]:
        with pytest.raises(error):
            c.adopt("x", source)
    a = c.shared_array(4, "int32")
    for source, error, said in ((np.ma.masked_array(a, [0, 1, 0, 0]), gpubuf.BadArgument, "masked"),
                                (a.view(">i4"), gpubuf.BadType, "big-endian")):
        with pytest.raises(error, match=said):
            c.adopt("x", source)
    c.put("x", b"1")
    with pytest.raises(gpubuf.BufferExists):
        c.adopt("x", c.shared_array((4,)))
    assert c.stats()["sharing"]["adopted"] == 0 and c.info("x")["adopted"] is False


def test_given_up_without_an_end(c):
    """If the object is collected, its connection ends, and the buffer is lost. A new buffer of the same name is
    unaffected."""
    a = c.shared_array((64,))
    owned = c.adopt("x", a)
    del owned
    gc.collect()
    until("it is lost", lambda: c.info("x")["state"] == "lost")
    owned = c.adopt("x", a)
    c.delete("x")
    c.put("x", b"another")
    owned.release()
    assert c.get("x", raw=True) == b"another"


def test_descriptors_are_given_back(c):
    def count():
        return len(os.listdir("/proc/self/fd"))

    with c.adopt("warm", c.shared_array((8,))):
        pass
    gc.collect()
    before = count()
    for _ in range(20):
        a = c.shared_array((1000,), "float64")
        with c.adopt("x", a):
            pass
        with pytest.raises(gpubuf.Error):
            c.with_session("none").adopt("x", a)
        del a
    gc.collect()
    assert count() == before
