"""The part of the safetensors format that transfers of many arrays in one request need."""
from __future__ import annotations

import json
import math
import struct
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ._arrays import Array, Payload, bytes_of, empty
from ._dtypes import OF_SAFETENSORS, SAFETENSORS
from ._http import Answer, Piece
from .errors import BadType

TYPE = "application/x-safetensors"
HEADER_MAX = 16 << 20
# The member of the metadata that has the order of axes of tensors that lie in memory in another one than C order: a
# JSON object of names and axes, the outermost first. The file's shape is that of the memory.
ORDER = "gpubuf.order"


def orders_of(metadata: Mapping[str, str]) -> Dict[str, Tuple[int, ...]]:
    """What ORDER says. A member that is no such object has no orders."""
    try:
        found = {name: tuple(axes) for name, axes in json.loads(metadata.get(ORDER, "{}")).items()}
        return {name: axes for name, axes in found.items() if sorted(axes) == list(range(len(axes)))}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def inverse_of(order: Sequence[int]) -> Tuple[int, ...]:
    """The axes that bring the memory's shape into the array's: memory.transpose(inverse) is the array."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def pieces_of(payloads: Mapping[str, Payload], metadata: Optional[Mapping[str, str]] = None) -> List[Piece]:
    """Makes a file of arrays: its header, then the bytes of each array, without a copy."""
    header: Dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, payload in payloads.items():
        if payload.dtype not in SAFETENSORS:
            raise BadType(f"{name}: safetensors has no {payload.dtype}; put it alone")
        end = at + len(payload.view)
        header[name] = {"dtype": SAFETENSORS[payload.dtype], "shape": list(payload.shape), "data_offsets": [at, end]}
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
            dtype, shape = OF_SAFETENSORS.get(entry["dtype"], str(entry["dtype"])), tuple(entry["shape"])
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
