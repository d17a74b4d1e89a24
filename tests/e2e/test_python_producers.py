"""Arrays of other libraries that the Python client takes: DLPack of either version, its flags, orders and types, and
buffers of C."""
import array
import ctypes
import gc

import numpy as np
import pytest
from pyclient import gpubuf
from gpubuf import _dlpack

from harness import library, optional

ml_dtypes = library("ml_dtypes")
DEVICE = (1, 0)


class Producer:
    """A library that speaks DLPack alone. versioned: its capsules have the newer form. knows: the parameters of its
    __dlpack__."""

    def __init__(self, values, versioned=True, flags=0, major=1, knows=("max_version", "copy"), raises=None, code=None):
        self.values, self.versioned, self.flags, self.major, self.knows, self.raises = (values, versioned, flags, major,
                                                                                        knows, raises)
        self.code, self.asked, self.name = code, [], getattr(values, "dtype", None)

    def __dlpack_device__(self):
        return DEVICE

    def __dlpack__(self, **more):
        self.asked.append(more)
        if more.keys() - set(self.knows):
            raise TypeError("unexpected keyword argument")
        if self.raises:
            raise self.raises
        a = self.values
        capsule = _dlpack.give(a, a.ctypes.data, DEVICE, a.dtype.name, a.shape, False,
                               (1, 0) if self.versioned else None)
        address = list(_dlpack._out)[-1]
        kind = _dlpack._Versioned if self.versioned else _dlpack._Managed
        managed = kind.from_address(address)
        for i, step in enumerate(a.strides):
            managed.tensor.strides[i] = step // a.itemsize
        if self.code:
            managed.tensor.dtype.code, managed.tensor.dtype.bits, managed.tensor.dtype.lanes = self.code
        if self.versioned:
            managed.flags, managed.major = self.flags, self.major
        return capsule


def held():
    gc.collect()
    return len(_dlpack._out)


BASE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
ORDERS = [BASE, np.asfortranarray(BASE), BASE.T, BASE[:, ::2], BASE[::-1], BASE[:, ::-1, ::-2],
          np.broadcast_to(BASE[:1], (3, 3, 4)), BASE[:, :0], BASE[0, 0, 0:1], np.array(7.5, np.float32),
          np.broadcast_to(np.float32(3), (2, 2)), BASE.astype(ml_dtypes.bfloat16).T,
          BASE.astype(ml_dtypes.float8_e5m2)[:, ::2], BASE.astype(np.complex128).T, BASE.astype(bool).T]


@pytest.mark.parametrize("versioned", [False, True], ids=["0.x", "1.x"])
@pytest.mark.parametrize("values", ORDERS, ids=lambda a: f"{a.dtype}{list(a.shape)}{list(a.strides)}")
def test_elements_in_any_order(c, values, versioned):
    before = held()
    made = c.put("x", Producer(values, versioned))
    assert ((made["dtype"], made["shape"]) == (values.dtype.name, list(values.shape)) and c.get("x", raw=True)
            == values.tobytes())
    assert held() == before, "the producer's memory is given back"


def test_the_version_is_negotiated(c):
    """The newer form is asked for, and the older one is taken from a producer that does not know the parameter."""
    for knows, asked in ((("max_version", "copy"), [{"max_version": (1, 0)}]), ((), [{"max_version": (1, 0)}, {}])):
        for versioned in (True, False):
            source = Producer(BASE, versioned, knows=knows)
            c.put("x", source)
            assert source.asked == asked and c.get("x", raw=True) == BASE.tobytes()


def test_read_only(c):
    """It is put, and refused as the place of a download; so is a copy, whose bytes would reach no array."""
    c.put("x", BASE)
    for flags in (_dlpack.READ_ONLY, _dlpack.COPIED, 3):
        c.put("y", Producer(BASE, flags=flags))
        out = np.zeros_like(BASE)
        source = Producer(out, flags=flags)
        with pytest.raises(gpubuf.BadArgument, match="Producer is read-only"):
            c.get("x", out=source)
        assert not out.any() and source.asked == [{"max_version": (1, 0), "copy": False}]
    for knows in (("max_version", "copy"), ("max_version",), ()):
        out = np.zeros_like(BASE)
        assert c.get("x", out=Producer(out, "max_version" in knows, knows=knows)).values is out and (out == BASE).all()
    Producer.__module__, before = "jaxlib._jax", Producer.__module__
    try:
        with pytest.raises(gpubuf.BadArgument, match="read-only"):
            c.get("x", out=Producer(np.zeros_like(BASE), False))
    finally:
        Producer.__module__ = before


class Own(Exception):
    """An exception of a library's."""


@pytest.mark.parametrize("kind", [Own, RuntimeError, BufferError, TypeError, ValueError, KeyError, NotImplementedError,
                                  KeyboardInterrupt])
def test_an_exception_of_the_producer(c, kind):
    class Old:
        def __array__(self, dtype=None, copy=None):
            raise error

    error = kind("it needs a gradient")
    c.put("x", BASE)
    for call in (lambda: c.put("y", Producer(BASE, raises=error)),
                 lambda: c.put("y", Producer(BASE, raises=error, knows=())), lambda: c.put("y", Old()),
                 lambda: c.put("y", [Old()]), lambda: c.get("x", out=Producer(BASE.copy(), raises=error)),
                 lambda: c.tensors_put({"y": Producer(BASE, raises=error)})):
        with pytest.raises(kind) as caught:
            call()
        assert caught.value is error
    assert list(c) == ["x"]


def test_what_is_no_tensor(c):
    before = held()
    for source, said in ((Producer(BASE, major=2), r"DLPack 2\.0, and this package 1\.x"),
                         (Producer(BASE, code=(2, 32, 4)), r"type \(2, 32, 4\)"),
                         (Producer(BASE, code=(17, 4, 1)), r"type \(17, 4, 1\)"),
                         (Producer(BASE, code=(3, 64, 1)), "cannot be stored")):
        with pytest.raises(gpubuf.BadType, match=said):
            c.put("x", source)
        del source
    assert held() == before and list(c) == []

    class Text:
        def __dlpack__(self, **more):
            return "tensor"

    class Nowhere(Producer):
        def __dlpack__(self, **more):
            capsule = super().__dlpack__(**more)
            _dlpack._Versioned.from_address(list(_dlpack._out)[-1]).tensor.data = None
            return capsule

    for source, said in ((Text(), "does not return a tensor"), (Nowhere(BASE), "no memory for 24 elements")):
        with pytest.raises(gpubuf.BadType, match=said):
            c.put("x", source)
    c.put("x", Nowhere(BASE[:0]))
    assert c.get("x").shape == (0, 3, 4)


# --- buffers of C -----------------------------------------------------------------------------------------------------


class Record(ctypes.Structure):
    _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_double)]


@pytest.mark.parametrize("source, wanted", [
    ((ctypes.c_double * 2)(1, 2), np.array([1, 2.0])), (ctypes.c_double(1.5), np.array(1.5)),
    (((ctypes.c_int16 * 2) * 3)(), np.zeros((3, 2), np.int16)), ((ctypes.c_int32.__ctype_be__ * 2)(1, 2),
                                                                 np.array([1, 2], np.int32)),
    ((ctypes.c_byte * 1)(-1), np.array([-1], np.int8)), ((ctypes.c_bool * 2)(1, 0), np.array([True, False])),
    ((ctypes.c_char * 3)(*b"abc"), np.frombuffer(b"abc", np.uint8)), (ctypes.create_string_buffer(b"ab"),
                                                                      np.frombuffer(b"ab\0", np.uint8)),
    ((ctypes.c_ubyte * 2)(1, 255), np.array([1, 255], np.uint8)), (array.array("d", [1, 2]), np.array([1, 2.0])),
    (array.array("b", [-1]), np.array([-1], np.int8)), (array.array("Q", [2**64 - 1]),
                                                        np.array([2**64 - 1], np.uint64)),
    (memoryview(b"abcd").cast("c"), np.frombuffer(b"abcd", np.uint8)),
    (memoryview(b"abcd")[::2], np.frombuffer(b"ac", np.uint8)), (memoryview(b"abcd").cast("B", (2, 2)),
                                                                 np.frombuffer(b"abcd", np.uint8).reshape(2, 2)),
    (memoryview(np.ones((2, 2))).toreadonly(), np.ones((2, 2))),
], ids=lambda x: str(x).partition(" at 0x")[0][:50])
def test_a_buffer(c, source, wanted):
    c.put("x", source)
    got = c.get("x")
    assert got.dtype == wanted.dtype and got.shape == wanted.shape and (got == wanted).all()


def test_bytes_of_a_buffer_are_elements(c):
    values = np.arange(3, dtype=np.float32)
    for source in ((ctypes.c_ubyte * 12)(*values.tobytes()), (ctypes.c_char * 12)(*values.tobytes()),
                   memoryview(values.tobytes()).cast("c")):
        c.put("x", source, dtype="float32")
        assert c.get("x").tolist() == [0, 1, 2]
        c.put("x", source, slice=np.s_[:])
        c.put("x", source, offset=0)
        assert c.get("x").tolist() == [0, 1, 2]


@pytest.mark.parametrize("source", [(Record * 2)(), Record(), (ctypes.c_void_p * 1)(),
                                    ctypes.pointer(ctypes.c_double(1)), (ctypes.c_wchar * 2)(), array.array("u", "ab"),
                                    (ctypes.c_longdouble * 1)()], ids=lambda x: type(x).__name__)
def test_a_buffer_of_something_else(c, source):
    with pytest.raises(gpubuf.BadType, match="cannot be stored|makes no array"):
        c.put("x", source)
    assert list(c) == []


# --- libraries --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
def test_tensors_of_pyarrow(c):
    pa = library("pyarrow")
    for values in (BASE, np.asfortranarray(BASE), BASE[:, ::2]):
        values = values.copy("K")
        c.put("x", pa.Tensor.from_numpy(values))
        assert (c.get("x") == values).all()
        values.setflags(write=False)
        c.put("y", pa.Tensor.from_numpy(values))
        assert (c.get("y") == values).all()
        with pytest.raises((gpubuf.BadArgument, gpubuf.BadType), match="read-only|no memory|C order"):
            c.get("x", out=pa.Tensor.from_numpy(values))


def test_arrays_of_jax(c):
    jax = optional("jax")
    for values in (BASE, BASE.astype(ml_dtypes.bfloat16), BASE[:0], BASE.astype(bool)):
        made = c.put("x", jax.numpy.asarray(values))
        assert made["dtype"] == values.dtype.name and c.get("x", raw=True) == values.tobytes()
    with pytest.raises(gpubuf.BadArgument, match="read-only"):
        c.get("x", out=jax.numpy.asarray(values))
