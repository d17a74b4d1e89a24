"""Conversion between the daemon's dtypes and arrays: bytes to send, arrays to receive into, slices as text."""
from __future__ import annotations

import importlib
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from . import _dlpack, _torch
from ._transport import Piece
from .errors import BadArgument, BadType

NUMPY = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
         "complex64", "complex128")
# The dtypes that only ml_dtypes has, with the bytes of an element.
OTHERS: Dict[str, int] = {
    "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "float8_e3m4": 1, "float8_e4m3": 1, "float8_e4m3b11fnuz": 1,
}

Array = npt.NDArray[Any]
Key = Union[str, int, slice, Tuple[Any, ...]]


class Payload(NamedTuple):
    """Bytes to send. owner keeps their memory alive."""

    view: Piece
    dtype: str
    shape: Tuple[int, ...]
    owner: Any


def width(dtype: str) -> int:
    """Bytes of an element."""
    if dtype in NUMPY:
        return np.dtype(dtype).itemsize
    if dtype in OTHERS:
        return OTHERS[dtype]
    raise BadType(f"there is no dtype {dtype!r}; there are {', '.join((*NUMPY, *OTHERS))}")


def numpy_dtype(dtype: str) -> "np.dtype[Any]":
    """numpy's or ml_dtypes' dtype of that name. Raises TypeError if the library that has it is not installed."""
    width(dtype)
    if dtype in NUMPY:
        return np.dtype(dtype)
    try:
        library = importlib.import_module("ml_dtypes")
    except ImportError:
        raise BadType(f"numpy has no {dtype}: install ml_dtypes (pip install ml_dtypes), or take the bytes with raw=True") from None
    found = getattr(library, dtype, None)
    if found is None:
        raise BadType(f"this ml_dtypes ({library.__version__}) has no {dtype}: install a newer one, or take the bytes with raw=True")
    kind: "np.dtype[Any]" = np.dtype(found)
    return kind


def dtype_name(dtype: "np.dtype[Any]") -> str:
    """The daemon's name of a dtype. Raises TypeError if the daemon cannot store it."""
    if dtype.name in NUMPY or (dtype.name in OTHERS and dtype.itemsize == OTHERS[dtype.name]):
        return dtype.name
    raise BadType(f"an array of {dtype} cannot be stored; these can: {', '.join((*NUMPY, *OTHERS))}")


def bytes_of(array: Array) -> memoryview:
    """The bytes of a contiguous array, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def payload_of(source: Any) -> Payload:
    """The payload of an array, a tensor, or any object with a buffer. It is copied only if the elements are not in C order and
    little-endian. A list of numbers is converted to an array."""
    if isinstance(source, (bytes, bytearray)):
        view = memoryview(source)
        return Payload(view, "uint8", (len(view),), source)
    source, named = _torch.plain(source)
    array = _as_array(source)
    if array is None:
        return _of_dlpack(source)
    if named:
        return Payload(bytes_of(np.ascontiguousarray(array)), named, array.shape, array)
    name = dtype_name(array.dtype)
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and not np.little_endian):
        array = array.astype(array.dtype.newbyteorder("<"))
    shape = array.shape
    array = np.ascontiguousarray(array)
    return Payload(bytes_of(array), name, shape, array)


def _as_array(source: Any) -> Optional[Array]:
    """None for another library's tensor of a type that numpy lacks."""
    if not hasattr(source, "__dlpack__") or isinstance(source, np.ndarray):
        try:
            return np.asarray(source)
        except (TypeError, ValueError) as e:
            raise BadType(f"numpy makes no array of {type(source).__name__}: {e}") from e
    if not hasattr(source, "__array__"):
        return None
    try:
        return np.asarray(source)
    except TypeError:
        return None


def _of_dlpack(source: Any) -> Payload:
    tensor = _dlpack.take(source)
    if tensor.device[0] not in _dlpack.HOST_DEVICES:
        raise BadType(f"the tensor is on device {tensor.device} of DLPack, which is neither the host nor CUDA: copy it to the host first")
    if not tensor.contiguous:
        raise BadType("the elements of the tensor do not lie in C order: give tensor.contiguous()")
    width(tensor.dtype)
    return Payload(tensor.view, tensor.dtype, tensor.shape, tensor)


def empty(dtype: str, shape: Tuple[int, ...], out: Any) -> Array:
    """Returns out if it fits, or a new array if out is None. Of a tensor of another library, the array is of its bytes."""
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
    taken = _dlpack.take(plain)
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


def shape_text(shape: Sequence[int]) -> str:
    try:
        return ",".join(str(int(n)) for n in shape)
    except (TypeError, ValueError):
        raise BadType(f"a shape is whole numbers, not {shape!r}") from None


def slice_text(key: Any) -> str:
    """Converts numpy's basic indexing to the daemon's text: (slice(0, 16), 3, ...) becomes "0:16,3,...". A string is returned unchanged."""
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
    if isinstance(n, bool) or not hasattr(n, "__index__"):
        raise BadType(f"an index is a whole number, a slice or ..., not {n!r}")
    return int(n.__index__())


def layout(payload: Payload, dtype: Optional[str], shape: Optional[Sequence[int]]) -> Dict[str, str]:
    """The query for a payload: its own dtype and shape, or those that the caller gives."""
    name = dtype if dtype is not None else payload.dtype
    if shape is None:
        if name == payload.dtype:
            shape = payload.shape
        else:
            count, rest = divmod(len(payload.view), width(name))
            if rest:
                raise BadArgument(f"{len(payload.view)} bytes are no whole number of {name}")
            shape = (count,)
    return {"dtype": name, "shape": shape_text(shape)}
