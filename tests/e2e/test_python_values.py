"""What the Python client sends: types by every name, numbers that are converted, arrays that are not, slices that fit,
and fills."""
import mmap

import numpy as np
import pytest
from pyclient import client_of, gpubuf
from gpubuf import _dtypes

from harness import library, optional

ml_dtypes = library("ml_dtypes")


@pytest.fixture
def c(daemon, session):
    with client_of(daemon, session) as client:
        yield client


def same(got, wanted):
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape) and (got == wanted).all(), got


# --- names of types ---------------------------------------------------------------------------------------------------


NAMES = ["float32", "f4", "<f4", "single", "F32", "torch.float32", "torch.float", np.float32, np.dtype("float32"),
         np.dtype("<f4")]


@pytest.mark.parametrize("dtype", NAMES, ids=str)
def test_every_name_of_a_type(c, dtype):
    assert c.put("x", bytes(8), dtype=dtype)["dtype"] == "float32"
    assert c.put("x", [1, 2], dtype=dtype)["dtype"] == "float32"
    assert c.create("y", dtype=dtype, shape=4)["shape"] == [4] and c.info("y")["dtype"] == "float32"
    c.update("y", dtype="uint8", shape=16)
    assert (c.update("y", dtype=dtype, shape=(2, 2))["dtype"], c.info("y")["shape"]) == ("float32", [2, 2])
    assert c.batch([{"op": "create", "buffer": "z", "dtype": dtype, "shape": [2]}])["results"][0]["status"] == 201
    assert c.info("z")["dtype"] == "float32" and c.shared_array(3, dtype).dtype == np.float32


@pytest.mark.parametrize("dtype, name", [
    ("float", "float64"), ("double", "float64"), ("half", "float16"), ("int", "int64"), ("?", "bool"), ("U8", "uint8"),
    ("I8", "int8"), ("i8", "int64"), ("BF16", "bfloat16"), ("F8_E4M3", "float8_e4m3fn"), ("torch.long", "int64"),
    ("torch.double", "float64"), (float, "float64"), (int, "int64"), (bool, "bool"), (complex, "complex128"),
    (np.uint8, "uint8"), (ml_dtypes.bfloat16, "bfloat16"), (np.dtype(ml_dtypes.float8_e5m2), "float8_e5m2"),
    *((name, name) for name in (*_dtypes.NUMPY, *_dtypes.OTHERS)),
], ids=str)
def test_names_of_numpy_torch_and_safetensors(dtype, name):
    assert _dtypes.name_of(dtype) == name


@pytest.mark.parametrize("dtype", ["red", "", "U1", "f4,i4", "torch.red", "torch.f4", "O", object, np.str_, 3,
                                   ["float32"], np.dtype("U3"), "M8[s]"], ids=str)
def test_what_is_no_type(c, dtype):
    with pytest.raises(gpubuf.BadType):
        c.put("x", bytes(8), dtype=dtype)


def test_big_endian_is_no_type_of_a_buffer():
    for dtype in (">f4", np.dtype(">f4")):
        with pytest.raises(gpubuf.BadType, match="big-endian.*'<f4'"):
            _dtypes.name_of(dtype)


def test_types_of_torch():
    torch = optional("torch")
    assert [_dtypes.name_of(dtype) for dtype in (torch.float32, torch.bfloat16, torch.long)] == ["float32", "bfloat16",
                                                                                                 "int64"]


# --- what is put ------------------------------------------------------------------------------------------------------


def test_numbers_are_converted(c):
    assert c.put("l", [1, 2, 3], dtype="float32")["shape"] == [3]
    same(c.get("l"), np.array([1, 2, 3], np.float32))
    c.put("l", [[1.5, 2.5], [-1, 0]], dtype="bfloat16")
    same(c.get("l"), np.array([[1.5, 2.5], [-1, 0]], ml_dtypes.bfloat16))
    c.put("l", 7, dtype="uint8", shape=(1,))
    same(c.get("l"), np.array([7], np.uint8))
    c.put("l", [1.0, 0.0], dtype=bool)
    same(c.get("l"), np.array([True, False]))
    c.put("l", (1 + 2j, float("inf")), dtype="complex64")
    same(c.get("l"), np.array([1 + 2j, float("inf")], np.complex64))


@pytest.mark.parametrize("numbers, dtype", [([1, 300], "uint8"), ([-1], "uint64"), ([1.5], "int32"),
                                            ([float("nan")], "int8"), ([2], "bool"), ([1e6], "float16"),
                                            ([1e6], "float8_e4m3fn"), ([1j], "float32")])
def test_numbers_that_do_not_fit(c, numbers, dtype):
    with pytest.raises(gpubuf.BadArgument, match=f"fit {dtype}"):
        c.put("l", numbers, dtype=dtype)
    assert "l" not in c


def test_an_array_is_not_reinterpreted(c):
    for array in (np.ones((2, 3)), np.ones(4, np.int32), np.array([1, 2, 3, 4], np.uint8), np.float64(1),
                  memoryview(np.ones(3))):
        with pytest.raises(gpubuf.BadArgument, match=r"array is of .*dtype says float32.*astype\('float32'\)"):
            c.put("l", array, dtype="float32")
    assert "l" not in c
    same_of = np.ones((2, 3), np.float32)
    c.put("l", same_of, dtype="f4")
    same(c.get("l"), same_of)


def test_bytes_are_elements_as_they_are(c):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    with mmap.mmap(-1, 24) as mapped:
        mapped[:] = array.tobytes()
        for data in (array.tobytes(), bytearray(array.tobytes()), memoryview(array.tobytes()), mapped):
            c.put("x", data, dtype="float32", shape=(2, 3))
            same(c.get("x"), array)
    c.put("x", array.view(np.uint8), dtype="float32", shape=(3, 2))
    same(c.get("x"), array.reshape(3, 2))


def test_a_tensor_of_torch_is_not_reinterpreted(c):
    torch = optional("torch")
    with pytest.raises(gpubuf.BadArgument, match=r"tensor.to\(torch.float16\)"):
        c.put("x", torch.ones(3), dtype="float16")


# --- parts of a buffer ------------------------------------------------------------------------------------------------


@pytest.fixture
def w(c):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    c.put("w", array)
    return array.copy()


@pytest.mark.parametrize("key, value", [
    (np.s_[0:1], np.full((1, 3), 7, np.float32)), (np.s_[0], np.full((1, 3), 7, np.float32)), ("0:1,:", [7, 8, 9]),
    ("...,1", [[7], [8]]), (np.s_[1, 2], 5), (np.s_[1, 2], [5]),
    (np.s_[:, ::2], np.array([[1, 2], [3, 4]], np.float32)), ("-1", (1, 2, 3.5))], ids=str)
def test_a_slice_takes_elements_of_the_buffer(c, w, key, value):
    assert c.put("w", value, slice=key)["generation"] == 2
    key = {"0:1,:": np.s_[0:1], "...,1": np.s_[..., 1], "-1": np.s_[-1]}.get(key, key) if isinstance(key, str) else key
    w[key] = np.asarray(value).reshape(w[key].shape)
    same(c.get("w"), w)


@pytest.mark.parametrize("key, value, said", [
    (np.s_[0:1], np.ones((1, 3), np.int32), 'of int32, and the buffer "w" of float32.*astype'),
    (np.s_[0:1], np.ones((1, 3)), "of float64, and the buffer"), (np.s_[0:1], np.ones(12, np.uint8),
                                                                  "of uint8, and the buffer"),
    (np.s_[:], np.ones((3, 2), np.float32),
     r'slice of "w" has the shape \(2, 3\) of float32, and what is put \(3, 2\)'),
    (np.s_[:], np.ones(6, np.float32), r"and what is put \(6,\)"), (np.s_[0:1], 5, r"and what is put \(\)"),
    ("0:1", [1, 2], r"and what is put \(2,\)"), (np.s_[0:1], b"123", "the slice has 12 bytes")], ids=str)
def test_a_slice_takes_nothing_else(c, w, key, value, said):
    with pytest.raises(gpubuf.ShapeMismatch, match=said):
        c.put("w", value, slice=key)
    same(c.get("w"), w)


def test_bytes_and_types_of_a_slice(c, w):
    c.put("w", np.full(3, 9, np.float32).tobytes(), slice=np.s_[1])
    w[1] = 9
    c.put("w", np.full(3, 8, np.float32).view(np.uint8), slice=np.s_[0], dtype="f4", shape=3)
    w[0] = 8
    same(c.get("w"), w)
    with pytest.raises(gpubuf.ShapeMismatch, match="of float32, and dtype says int32"):
        c.put("w", bytes(12), slice=np.s_[1], dtype="int32")
    with pytest.raises(gpubuf.BadArgument, match="do not fit"):
        c.put("i", np.zeros(3, np.int32)), c.put("i", [0.5], slice=np.s_[0])
    with pytest.raises(gpubuf.RangeNotSatisfiable):
        c.put("w", [1], slice=9)
    with pytest.raises(gpubuf.BufferNotFound):
        c.put("none", [1], slice=0)


def test_an_offset_takes_bytes(c, w):
    with pytest.raises(gpubuf.BadArgument, match="no bytes of its own"):
        c.put("w", [1, 2], offset=4)
    c.put("w", [1, 2], offset=4, dtype="float32")
    w[0, 1:] = [1, 2]
    same(c.get("w"), w)


# --- fills ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype, value", [("float32", 1.0), ("float32", np.float32(2.5)), ("float32", np.int64(3)),
                                          ("float16", -1.5), ("float64", 0.1), ("int32", 7.0),
                                          ("uint64", np.uint64(2**64 - 1)), ("bool", True), ("complex64", 1 - 2j)],
                         ids=str)
def test_a_fill_with_an_element(c, dtype, value):
    c.create("x", dtype=dtype, shape=(2, 3))
    c.fill("x", value)
    same(c.get("x"), np.full((2, 3), value, dtype))


def test_a_fill_with_bytes(c):
    c.create("x", dtype="float32", shape=4)
    c.fill("x", 1)
    assert c.get("x", raw=True) == b"\1" * 16, "an int is a number of bytes"
    c.fill("x", 0x3f800000, 4)
    same(c.get("x"), np.ones(4, np.float32))
    c.fill("x", "0x40000000", 4, offset=4, bytes=8)
    same(c.get("x"), np.array([1, 2, 2, 1], np.float32))


def test_a_fill_that_is_wrong(c):
    c.create("x", dtype="int8", shape=4)
    c.create("z", dtype="complex128", shape=4)
    for name, value, more, said in (("x", 1.5, {}, "do not fit int8"), ("x", 1e9, {}, "do not fit int8"),
                                    ("x", 1.0, {"width": 4}, "width is the bytes"), ("z", 1j, {}, "16 bytes"),
                                    ("x", [1], {}, "not a list")):
        with pytest.raises(gpubuf.BadCall, match=said):
            c.fill(name, value, **more)
    assert c.get("x", raw=True) == bytes(4)
