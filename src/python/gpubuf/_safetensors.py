"""The part of the safetensors format that transfers of many arrays in one request need."""
from __future__ import annotations

import json
import math
import struct
from typing import Any, Dict, List, Mapping, Tuple

from ._arrays import Array, Payload, bytes_of, empty
from ._transport import Answer, Piece
from .errors import BadType

TYPE = "application/x-safetensors"
HEADER_MAX = 16 << 20

_OF: Dict[str, str] = {
    "bool": "BOOL", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64", "int8": "I8", "int16": "I16", "int32": "I32",
    "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0",
    "complex64": "C64",
}
_DTYPE = {word: dtype for dtype, word in _OF.items()}


def pieces_of(payloads: Mapping[str, Payload]) -> List[Piece]:
    """Makes a file of arrays: its header, then the bytes of each array, without a copy."""
    header: Dict[str, Any] = {}
    at = 0
    for name, payload in payloads.items():
        if payload.dtype not in _OF:
            raise BadType(f"{name}: safetensors has no {payload.dtype}; put it alone")
        end = at + len(payload.view)
        header[name] = {"dtype": _OF[payload.dtype], "shape": list(payload.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [memoryview(struct.pack("<Q", len(text)) + text), *(p.view for p in payloads.values())]


def _take(answer: Answer, n: int) -> bytes:
    data = bytearray(n)
    answer.read_into(memoryview(data))
    return bytes(data)


def read(answer: Answer) -> Dict[str, Array]:
    """Reads the arrays of a file while it is received, each into its own memory."""
    try:
        (length,) = struct.unpack("<Q", _take(answer, 8))
        if length > HEADER_MAX:
            raise ValueError(f"its header has {length} bytes")
        parsed = json.loads(_take(answer, length))
        entries: List[Tuple[int, int, str, Dict[str, Any]]] = sorted(
            (*entry["data_offsets"], name, entry) for name, entry in parsed.items() if name != "__metadata__")
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise answer.broken(f"this is no safetensors file: {e}") from e
    found: Dict[str, Array] = {}
    at = 0
    try:
        for begin, end, name, entry in entries:
            dtype, shape = _DTYPE.get(entry["dtype"], str(entry["dtype"])), tuple(entry["shape"])
            array = empty(dtype, shape, None)
            if begin != at or end != at + array.nbytes or math.prod(shape) != array.size:
                raise answer.broken(f"the safetensors file has {name} out of place")
            answer.read_into(bytes_of(array))
            at += array.nbytes
            found[name] = array
        answer.finish()
    except BaseException:
        answer.close()
        raise
    return {name: found[name] for name in parsed if name != "__metadata__"}
