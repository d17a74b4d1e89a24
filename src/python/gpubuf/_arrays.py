"""Conversion between the daemon's dtypes and arrays: bytes to send, arrays to receive into, slices as text."""
from __future__ import annotations

import ctypes
import operator
import sys
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from . import _dlpack, _numbers, _torch
from ._dtypes import dtype_name, numpy_dtype, width
from ._http import Piece
from .errors import BadArgument, BadType, Error

Array = npt.NDArray[Any]
Key = Union[str, int, slice, Tuple[Any, ...]]
Shape = Union[int, Sequence[int]]
TYPED = ("dtype", "__dlpack__", "__array__", "__array_interface__", "__cuda_array_interface__")


class Payload(NamedTuple):
    """Bytes to send. owner keeps their memory alive."""

    view: Piece
    dtype: str
    shape: Tuple[int, ...]
    owner: Any


def bytes_of(array: Array) -> memoryview:
    """The bytes of a contiguous array, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def payload_of(source: Any) -> Payload:
    """The payload of an array, a tensor, or any object with a buffer. It is copied only if the elements are not in C
    order and little-endian. A list of numbers is converted to an array. No number changes: what would change one raises
    BadArgument."""
    if isinstance(source, (bytes, bytearray)):
        view = memoryview(source)
        return Payload(view, "uint8", (len(view),), source)
    source, named = _torch.plain(source)
    array = _as_array(source)
    if array is None:
        try:
            return _of_dlpack(source)
        except _dlpack.NoMemory:
            array = _of_buffer(source)
            if array is None:
                raise
    name = named or dtype_name(array.dtype)
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.astype(array.dtype.newbyteorder("<"))
    shape = array.shape
    array = np.ascontiguousarray(array)
    return Payload(bytes_of(array), name, shape, array)


def is_untyped(source: Any) -> bool:
    """True for a number of Python's, and for a list of numbers."""
    if any(hasattr(source, name) for name in TYPED):
        return False
    try:
        memoryview(source)
    except TypeError:
        return True
    return False


def is_bytes(source: Any) -> bool:
    """True for bytes, bytearray, mmap, and buffers of bytes or of C's char. pyarrow's have no type, and say that they
    are of signed ones."""
    if any(hasattr(source, name) for name in TYPED):
        return False
    try:
        kind = memoryview(source).format.lstrip("@=<>!")
    except TypeError:
        return False
    return kind in ("B", "c") or (kind == "b" and type(source).__module__.partition(".")[0] == "pyarrow")


def _as_array(source: Any) -> Optional[Array]:
    """None for another library's tensor that numpy does not take."""
    if is_untyped(source):
        return _numbers.typed(source)
    if is_bytes(source):
        return np.asarray(memoryview(source)).view(np.uint8)
    tensor = hasattr(source, "__dlpack__") and not isinstance(source, np.ndarray)
    if tensor and not hasattr(source, "__array__"):
        return None
    try:
        return _numbers.array_of(source)
    except TypeError as e:
        if tensor and not isinstance(e, Error):  # a type that numpy lacks
            return None
        raise


def _of_dlpack(source: Any) -> Payload:
    tensor = _dlpack.take(source)
    if tensor.device[0] not in _dlpack.HOST_DEVICES:
        raise BadType(f"the tensor is on device {tensor.device} of DLPack, which is neither the host nor CUDA: copy it "
                      "to the host first")
    width(tensor.dtype)
    if tensor.contiguous:
        return Payload(tensor.view, tensor.dtype, tensor.shape, tensor)
    array = np.ascontiguousarray(_elements_of(tensor))
    return Payload(bytes_of(array), tensor.dtype, tensor.shape, array)


def _of_buffer(source: Any) -> Optional[Array]:
    """The elements of an object with a buffer, and None for another: pyarrow before 26 gives the memory of a read-only
    tensor in no other way."""
    try:
        return np.asarray(memoryview(source))
    except TypeError:
        return None


def _elements_of(tensor: _dlpack.Taken) -> Array:
    """The elements of a tensor in host memory, in any order; numpy may lack their type."""
    size = width(tensor.dtype)
    ends = [(n - 1) * step * size for n, step in zip(tensor.shape, tensor.strides)]
    first = sum(end for end in ends if end < 0)
    memory = (ctypes.c_ubyte * (sum(map(abs, ends)) + size)).from_address(tensor.pointer + first)
    return np.ndarray(tensor.shape, f"V{size}", memoryview(memory).cast("B"), -first,
                      [step * size for step in tensor.strides])


def empty(dtype: str, shape: Tuple[int, ...], out: Any) -> Array:
    """Returns out if it fits, or a new array if out is None. Of a tensor of another library, the array is of its
    bytes."""
    if out is not None and not isinstance(out, np.ndarray):
        return _bytes_of_tensor(dtype, shape, out)
    wanted = numpy_dtype(dtype)
    if out is None:
        return np.empty(shape, wanted)
    if out.dtype != wanted or out.shape != shape:
        raise BadArgument(f"out is {out.dtype} {out.shape}; the data is {dtype} {shape}")
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise BadArgument("out must be writable and in C order")
    return out


def _bytes_of_tensor(dtype: str, shape: Tuple[int, ...], out: Any) -> Array:
    if not hasattr(out, "__dlpack__"):
        raise BadType("out must be a numpy array, or a tensor that speaks DLPack")
    plain, named = _torch.plain(out)
    taken = _dlpack.take(plain, write=True)
    if taken.device[0] not in _dlpack.HOST_DEVICES or not taken.contiguous:
        raise BadArgument("out must be in host memory, or that of a GPU of CUDA, and in C order")
    if (named or taken.dtype, taken.shape) != (dtype, shape):
        raise BadArgument(f"out is {named or taken.dtype} {taken.shape}; the data is {dtype} {shape}")
    return np.frombuffer(taken.view, np.uint8)  # the caller keeps out alive, and out its memory


def in_c_order(kind: "np.dtype[Any]", shape: Tuple[int, ...], strides: Optional[Sequence[int]]) -> bool:
    """True if elements with these strides lie in C order, as those without strides do."""
    return strides is None or tuple(strides) == np.empty(0, kind).reshape((0, *shape)).strides[1:]


def shape_of(text: Optional[str]) -> Tuple[int, ...]:
    """Parses a shape like 2,3 from a header; the header is absent for a scalar."""
    return tuple(int(n) for n in text.split(",")) if text else ()


def shape_list(shape: Shape) -> List[int]:
    """The lengths of a shape; one number is a shape of one axis, as in numpy."""
    try:
        return [operator.index(n) for n in ((shape,) if hasattr(shape, "__index__") else shape)]
    except TypeError:
        raise BadType(f"a shape is whole numbers, not {shape!r}") from None


def shape_text(shape: Shape) -> str:
    return ",".join(map(str, shape_list(shape)))


def slice_text(key: Any) -> str:
    """Converts numpy's basic indexing to the daemon's text: (slice(0, 16), 3, ...) becomes "0:16,3,...". A string is
    returned unchanged."""
    if isinstance(key, str):
        return key
    return ",".join(_axis_text(part) for part in (key if isinstance(key, tuple) else (key,)))


def _axis_text(part: Any) -> str:
    if part is Ellipsis:
        return "..."
    if isinstance(part, slice):
        ends = [str(_whole(n)) if n is not None else "" for n in (part.start, part.stop)]
        if part.step is not None:
            if _whole(part.step) < 1:
                raise BadArgument(f"the step of a slice is at least 1, not {part.step}")
            ends.append(str(_whole(part.step)))
        return ":".join(ends)
    return str(_whole(part))


def _whole(n: Any) -> int:
    try:
        if not isinstance(n, bool):
            return operator.index(n)
    except TypeError:  # an array has the method, too
        pass
    raise BadType(f"an index is a whole number, a slice or ..., not {n!r}")
