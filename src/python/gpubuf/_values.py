"""What a put or a fill sends for the caller's values: numbers get the type that is asked for, and arrays keep the type
that they have.

A number or a list of numbers has no type of its own, and is converted if no number changes by it. Bytes have none
either, and are elements as they are. An array is never reinterpreted: another type than its own is an error, unless
dtype and shape say what its bytes are.
"""
from __future__ import annotations

import sys
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _arrays, _gpu, _numbers
from ._arrays import Array, Key, Payload, Shape, is_bytes, is_untyped
from ._dtypes import NUMPY, name_of, numpy_dtype, width
from .errors import BadArgument, ShapeMismatch
from .types import ListedBuffer, ListedTensor

WIDTHS = (1, 2, 4, 8)  # bytes of a pattern


def converted(source: Any, dtype: str) -> Array:
    """An array of that type of numbers. A float may be rounded to what a type of floats has. Raises BadArgument if a
    number does not fit."""
    values, kind = _numbers.of_list(source), numpy_dtype(dtype)
    if kind.kind != "c" and (values.dtype.kind == "c" or any(isinstance(value, complex) for value in values.flat
                                                             if values.dtype == object)):
        raise BadArgument(f"complex numbers do not fit {dtype}")
    try:
        with np.errstate(all="ignore"):
            made: Array = (values.astype(np.float64) if values.dtype == object and dtype not in NUMPY
                           else values).astype(kind)
            if _numbers.whole_rounded(values, made):
                values = _numbers.of_list(source, exact=True)
        wrong: Sequence[Any] = values[~_numbers.kept(values, made)][:1].tolist()
    except OverflowError:  # an integer of Python's that no type has
        wrong = [max(values.flat, key=abs)]
    if len(wrong):
        raise BadArgument(f"the numbers do not fit {dtype}, which has no {wrong[0]}: give numpy.array("
                          f"{'...' if values.ndim else repr(source)}).astype({dtype!r}) if they are to be cut")
    return made


def payload_of(source: Any, dtype: Optional[str], shape: Optional[Shape]) -> Payload:
    """The payload of a whole buffer. dtype: the type that the caller gives, by the daemon's name."""
    if dtype is None:
        return _gpu.payload_of(source)
    if is_untyped(source):
        return _arrays.payload_of(converted(source, dtype))
    payload = _gpu.payload_of(source)
    if payload.dtype == dtype or is_bytes(source) or (payload.dtype == "uint8" and shape is not None):
        return payload
    raise BadArgument(f"the array is of {payload.dtype}, and dtype says {dtype}: convert it first "
                      f"({_conversion(source, dtype)}); if its bytes are such elements, give it as uint8, with dtype "
                      "and shape")


def _conversion(source: Any, dtype: str) -> str:
    return f"tensor.to(torch.{dtype})" if type(source).__module__ == "torch" else f"array.astype({dtype!r})"


def layout(payload: Payload, dtype: Optional[str], shape: Optional[Shape]) -> Dict[str, str]:
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
    return {"dtype": name, "shape": _arrays.shape_text(shape)}


def named(operation: Mapping[str, Any]) -> Dict[str, Any]:
    """An operation of a batch, its dtype by the daemon's name."""
    return ({**operation, "dtype": name_of(operation["dtype"])} if operation.get("dtype") is not None
            else dict(operation))


# --- parts of a buffer ------------------------------------------------------------------------------------------------


def bytes_at(source: Any, dtype: Optional[str], shape: Optional[Shape]) -> Payload:
    """The payload of a write at an offset, whose bytes the buffer takes as its own elements."""
    if dtype is None and is_untyped(source):
        raise BadArgument("a number or a list has no bytes of its own: give dtype, or an array")
    payload = payload_of(source, dtype, shape)
    layout(payload, dtype, shape)
    return payload


def elements_of(found: Union[ListedBuffer, ListedTensor], key: Key, source: Any, dtype: Optional[str],
                shape: Optional[Shape]) -> Payload:
    """The payload of a write of these elements of a buffer: it must have their type and shape; axes of length 1 do not
    count. Bytes may be any, which the daemon counts."""
    name, kind = found["name"], found["dtype"]
    what = "buffer" if "session" in found else "tensor"
    if dtype is not None and dtype != kind:
        raise ShapeMismatch(f"the {what} \"{name}\" is of {kind}, and dtype says {dtype}")
    if is_bytes(source):
        return _arrays.payload_of(source)
    untyped = is_untyped(source)
    payload = payload_of(source, kind if untyped else dtype, shape)
    mine = tuple(_arrays.shape_list(shape)) if shape is not None else payload.shape
    if payload.dtype != kind and dtype is None:
        raise ShapeMismatch(f"the array is of {payload.dtype}, and the {what} \"{name}\" of {kind}: convert it first "
                            f"({_conversion(source, kind)})")
    wanted = _shape_of(tuple(found["shape"]), key)
    if wanted is not None and [n for n in mine if n != 1] != [n for n in wanted if n != 1]:
        raise ShapeMismatch(f"the slice of \"{name}\" has the shape {wanted} of {kind}, and what is put {mine}")
    return payload


def _shape_of(shape: Tuple[int, ...], key: Key) -> Optional[Tuple[int, ...]]:
    """The shape of a part; None where the daemon is to say what is wrong with the slice."""
    try:
        whole: Any = np.broadcast_to(np.empty((), np.uint8), shape)
        return tuple(whole[_key_of(key) if isinstance(key, str) else key].shape)
    except (IndexError, ValueError, TypeError):
        return None


def _key_of(text: str) -> Key:
    """The indexing that a text like 0:16,3,... stands for."""
    def axis(part: str) -> Any:
        if part.strip() == "...":
            return Ellipsis
        ends = [int(end) if end.strip() else None for end in part.split(":")]
        return slice(*ends) if len(ends) > 1 else int(part)

    return tuple(axis(part) for part in text.split(","))


# --- patterns ---------------------------------------------------------------------------------------------------------


def is_element(pattern: Any) -> bool:
    """True for a value that stands for an element: a float, a complex number, a bool, or a number of numpy's. An int is
    a number of bytes."""
    return isinstance(pattern, (bool, float, complex, np.generic))


def pattern_of(value: Any, dtype: str) -> Tuple[int, int]:
    """The pattern that fills a buffer of that type with the value, and its bytes."""
    element = converted(value, dtype)
    if element.itemsize not in WIDTHS:
        raise BadArgument(f"an element of {dtype} has {element.itemsize} bytes, and a pattern at most {max(WIDTHS)}: "
                          "put an array")
    return int.from_bytes(element.tobytes(), sys.byteorder), element.itemsize
