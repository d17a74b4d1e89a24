"""The types of elements: the daemon's names for them, and what numpy, torch and safetensors call them."""
from __future__ import annotations

import importlib
import sys
from typing import Any, Dict, Optional

import numpy as np

from .errors import BadType

NUMPY = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32",
         "float64", "complex64", "complex128")
# The dtypes that only ml_dtypes has, with the bytes of an element.
OTHERS: Dict[str, int] = {
    "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1, "float8_e3m4": 1, "float8_e4m3": 1, "float8_e4m3b11fnuz": 1,
}
SAFETENSORS: Dict[str, str] = {
    "bool": "BOOL", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64", "int8": "I8", "int16": "I16",
    "int32": "I32", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0", "complex64": "C64",
}
OF_SAFETENSORS = {word: dtype for dtype, word in SAFETENSORS.items()}
TABLE = "tensors"  # of a buffer that holds many tensors, each with a dtype of its own
# torch's second names. Those of numpy differ: numpy's float has eight bytes.
OF_TORCH = {"half": "float16", "float": "float32", "double": "float64", "short": "int16", "int": "int32",
            "long": "int64", "cfloat": "complex64", "cdouble": "complex128"}

# a name of the daemon, numpy, torch or safetensors; a numpy.dtype, a class that numpy makes one of, or a torch.dtype
Dtype = Any


def width(dtype: str) -> int:
    """Bytes of an element."""
    if dtype in NUMPY:
        return np.dtype(dtype).itemsize
    if dtype in OTHERS:
        return OTHERS[dtype]
    raise BadType(f"there is no dtype {dtype!r}; there are {', '.join((*NUMPY, *OTHERS))}")


def numpy_dtype(dtype: str, instead: str = "take the bytes with raw=True") -> "np.dtype[Any]":
    """numpy's or ml_dtypes' dtype of that name. Raises TypeError if the library that has it is not installed. instead:
    what else the caller may do then."""
    width(dtype)
    if dtype in NUMPY:
        return np.dtype(dtype)
    try:
        library = importlib.import_module("ml_dtypes")
    except ImportError:
        raise BadType(f"numpy has no {dtype}: install ml_dtypes (pip install ml_dtypes), or "
                      f"{instead}") from None
    found = getattr(library, dtype, None)
    if found is None:
        raise BadType(f"this ml_dtypes ({library.__version__}) has no {dtype}: install a newer one, or "
                      f"{instead}")
    kind: "np.dtype[Any]" = np.dtype(found)
    return kind


def dtype_name(dtype: "np.dtype[Any]") -> str:
    """The daemon's name of a dtype. Raises TypeError if the daemon cannot store it."""
    if dtype.name in NUMPY or (dtype.name in OTHERS and dtype.itemsize == OTHERS[dtype.name]):
        return dtype.name
    raise BadType(f"an array of {dtype} cannot be stored; these can: {', '.join((*NUMPY, *OTHERS))}")


def name_of(dtype: Dtype) -> str:
    """The daemon's name of a type that the caller gives. Raises BadType without one."""
    text = dtype if isinstance(dtype, str) else str(dtype) if type(dtype).__module__ == "torch" else None
    known = _named(text) if text is not None else None
    if known is not None:
        return known
    kind = None if text is not None and text.startswith("torch.") else _numpys(dtype)
    if kind is None:
        raise BadType(f"there is no dtype {dtype!r}; there are {', '.join((*NUMPY, *OTHERS))}, and what numpy, torch "
                      "and safetensors call these")
    if kind.byteorder == ">" or (kind.byteorder == "=" and sys.byteorder == "big"):
        raise BadType(f"{kind.str!r} is big-endian, and the elements of a buffer are little-endian: give "
                      f"{'<' + kind.str[1:]!r}")
    return dtype_name(kind)


def _named(text: str) -> Optional[str]:
    """The type of a name of the daemon's, of safetensors, or of torch with the word torch before it."""
    name = text
    if text.startswith("torch."):
        name = OF_TORCH.get(text[6:], text[6:])
    elif text in OF_SAFETENSORS:
        return OF_SAFETENSORS[text]
    return name if name in NUMPY or name in OTHERS else None


def _numpys(dtype: Any) -> "Optional[np.dtype[Any]]":
    """What numpy makes of it; None for what is no type."""
    if not isinstance(dtype, (str, type, np.dtype)) and not isinstance(getattr(dtype, "dtype", None), np.dtype):
        return None
    try:
        kind: "np.dtype[Any]" = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        return None
    return kind


def given_name(dtype: Dtype) -> Optional[str]:
    """As name_of; None stays None."""
    return None if dtype is None else name_of(dtype)
