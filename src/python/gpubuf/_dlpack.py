"""DLPack by ctypes: exports memory to other libraries and imports their tensors.

A consumer holds a struct from the C allocator, with a deleter that Python runs. A consumer may call the deleter during
the interpreter's shutdown, when Python code can no longer run. At exit the deleters of all held structs are therefore
replaced by a C function without effect, and the process's end frees the memory.
"""
from __future__ import annotations

import atexit
import ctypes
import math
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from .errors import BadArgument, BadType

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
HOST_DEVICES = (CPU, CUDA_HOST)
GPU_DEVICES = (CUDA, CUDA_MANAGED)
READ_ONLY, COPIED = 1, 2  # flags
VERSION = (1, 0)
IMMUTABLE = ("jax", "jaxlib")  # libraries whose arrays never change, and whose DLPack does not say that

# dtype: (code, bits)
_CODES: Dict[str, Tuple[int, int]] = {
    "int8": (0, 8), "int16": (0, 16), "int32": (0, 32), "int64": (0, 64),
    "uint8": (1, 8), "uint16": (1, 16), "uint32": (1, 32), "uint64": (1, 64),
    "float16": (2, 16), "float32": (2, 32), "float64": (2, 64), "bfloat16": (4, 16), "complex64": (5, 64),
    "complex128": (5, 128), "bool": (6, 8), "float8_e3m4": (7, 8), "float8_e4m3": (8, 8), "float8_e4m3b11fnuz": (9, 8),
    "float8_e4m3fn": (10, 8), "float8_e4m3fnuz": (11, 8), "float8_e5m2": (12, 8), "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
}
_NAMES = {code: name for name, code in _CODES.items()}


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32), ("dtype", _DataType),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    # Functions with private prototypes: the functions of ctypes.pythonapi are shared with all modules, and so are their
    # types.
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_object, _pointer, _text = ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p
_allocate = _function("PyMem_RawMalloc", _pointer, ctypes.c_size_t)
_release = _function("PyMem_RawFree", None, _pointer)
_capsule_new = _function("PyCapsule_New", _object, _pointer, _text, _pointer)
_capsule_named = _function("PyCapsule_IsValid", ctypes.c_int, _object, _text)
_capsule_pointer = _function("PyCapsule_GetPointer", _pointer, _object, _text)
_capsule_rename = _function("PyCapsule_SetName", ctypes.c_int, _object, _text)
_nothing = ctypes.cast(ctypes.pythonapi.Py_IsInitialized, _pointer).value

_UNUSED = {b"dltensor": _Managed, b"dltensor_versioned": _Versioned}
_USED = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}
# Capsules keep the pointer to their name: these names live as long as the module.
_NAME = {name: ctypes.create_string_buffer(name) for name in (*_UNUSED, *_USED.values())}

# Address of each held struct: its type, and the owner of the memory. There is no lock, because a deleter may run at any
# point, even in a thread that holds one. Each step is a single operation of the dictionary.
_out: Dict[int, Tuple[Any, Any]] = {}


def _let_go(address: int) -> None:
    if _out.pop(address, None) is not None:
        _release(address)


def _forget(capsule: int) -> None:
    """Frees a capsule that no consumer has taken."""
    # The object is being destroyed: it is accessed by address, because a reference would revive it.
    for name in _UNUSED:
        if _is_valid(capsule, _NAME[name]):
            _let_go(_get_pointer(capsule, _NAME[name]))


_deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_let_go)
_unwanted = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_forget)
_is_valid = _function("PyCapsule_IsValid", ctypes.c_int, _pointer, _text)
_get_pointer = _function("PyCapsule_GetPointer", _pointer, _pointer, _text)


@atexit.register
def _abandon() -> None:
    for address, (kind, _) in list(_out.items()):
        kind.from_address(address).deleter = _nothing
    _kept.append(dict(_out))
    _out.clear()


_kept: list[Any] = []
for _one in (_deleter, _unwanted, _kept):
    ctypes.pythonapi.Py_IncRef(_object(_one))  # consumers hold the addresses of these callbacks


def give(owner: Any, pointer: int, device: Tuple[int, int], dtype: str, shape: Tuple[int, ...], read_only: bool,
         max_version: Optional[Tuple[int, int]], copied: bool = False,
         strides: Optional[Tuple[int, ...]] = None) -> Any:
    """Makes a capsule over memory that owner keeps alive. copied: it is a copy for this consumer. strides: in elements;
    None: C order. Raises BufferError if the memory is read-only and the consumer's protocol is too old to express
    that."""
    versioned = max_version is not None and max_version[0] >= VERSION[0]
    if read_only and not versioned:
        raise BufferError("the memory is mapped for reading, which DLPack can say from version 1.0 on: take a consumer "
                          "that asks for max_version, or map with mode='write', or ask for copy=True")
    kind, name = (_Versioned, b"dltensor_versioned") if versioned else (_Managed, b"dltensor")
    n = len(shape)
    head = (ctypes.sizeof(kind) + 15) // 16 * 16
    address = _allocate(head + 16 * max(n, 1))
    if not address:
        raise MemoryError
    ctypes.memset(address, 0, head)
    numbers = (ctypes.c_int64 * (2 * max(n, 1))).from_address(address + head)
    for i, stride in enumerate(strides or (math.prod(shape[i + 1 :]) for i in range(n))):
        numbers[i], numbers[n + i] = shape[i], stride
    managed = kind.from_address(address)
    managed.deleter = ctypes.cast(_deleter, _pointer).value
    if versioned:
        managed.major, managed.minor = VERSION
        managed.flags = (READ_ONLY if read_only else 0) | (COPIED if copied else 0)
    code, bits = _CODES[dtype]
    at = ctypes.cast(address + head, ctypes.POINTER(ctypes.c_int64))
    steps = ctypes.cast(address + head + 8 * n, ctypes.POINTER(ctypes.c_int64))
    managed.tensor = _Tensor(pointer, _Device(*device), n, _DataType(code, bits, 1), at, steps, 0)
    _out[address] = (kind, owner)
    try:
        return _capsule_new(address, _NAME[name], ctypes.cast(_unwanted, _pointer))
    except BaseException:
        _let_go(address)
        raise


# --- from others ------------------------------------------------------------------------------------------------------


class NoMemory(BadType):
    """A tensor has elements, and its library does not say where."""


class Taken(NamedTuple):
    """A tensor of another library; guard releases it. strides: in elements. view is empty if the memory is not on the
    host, or not in C order."""

    view: memoryview
    pointer: int
    dtype: str
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    device: Tuple[int, int]
    contiguous: bool
    guard: Any


class _Guard:
    _deleter: Optional[int] = None  # until __init__ has run

    def __init__(self, address: int, deleter: Optional[int]) -> None:
        self._address, self._deleter = address, deleter

    def __del__(self) -> None:
        if self._deleter:
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._deleter)(self._address)


def _ask(source: Any, stream: Optional[int], write: bool) -> Any:
    """The capsule of source. Its own exceptions are passed on."""
    order = {} if stream is None else {"stream": stream}
    version = {"max_version": VERSION}
    for more in ({**version, "copy": False}, version) if write else (version,):
        try:
            return source.__dlpack__(**order, **more)
        except TypeError:
            pass  # its protocol is older, and has no such parameter; another TypeError comes again
    return source.__dlpack__(**order)


def take(source: Any, stream: Optional[int] = None, *, write: bool = False) -> Taken:
    """The tensor that source exports. stream: of a device, the stream that source makes wait for its own work. write:
    the memory is to be written, and BadArgument is raised if that is not possible."""
    capsule = _ask(source, stream, write)
    name = next((name for name in _UNUSED if _capsule_named(capsule, name)), None)
    if name is None:
        raise BadType(f"{type(source).__name__}.__dlpack__() does not return a tensor")
    address = _capsule_pointer(capsule, name)
    managed, flags = _UNUSED[name].from_address(address), 0
    if name == b"dltensor_versioned":
        if managed.major > VERSION[0]:
            raise BadType(f"the {type(source).__name__} speaks DLPack {managed.major}.{managed.minor}, and this "
                          "package 1.x: update it")
        flags = managed.flags
    _capsule_rename(capsule, _NAME[_USED[name]])
    guard = _Guard(address, managed.deleter)
    if write and (flags & (READ_ONLY | COPIED) or type(source).__module__.partition(".")[0] in IMMUTABLE):
        raise BadArgument(f"the {type(source).__name__} is read-only: give an array that can be written")
    t = managed.tensor
    shape = tuple(t.shape[i] for i in range(t.ndim))
    kind = _NAMES.get((t.dtype.code, t.dtype.bits)) if t.dtype.lanes == 1 else None
    if kind is None:
        raise BadType(f"a tensor with DLPack type {(t.dtype.code, t.dtype.bits, t.dtype.lanes)} cannot be stored")
    plain = tuple(math.prod(shape[i + 1 :]) for i in range(t.ndim))
    strides = tuple(t.strides[i] for i in range(t.ndim)) if t.strides else plain
    contiguous = 0 in shape or all(n == 1 or mine == c for n, mine, c in zip(shape, strides, plain))
    size = math.prod(shape) * (t.dtype.bits // 8)
    here = contiguous and size > 0 and t.device.type in HOST_DEVICES
    if t.data is None and math.prod(shape):
        raise NoMemory(f"{type(source).__name__}.__dlpack__() gives no memory for {math.prod(shape)} elements: give a "
                       "numpy array of them")
    pointer = (t.data or 0) + t.byte_offset
    memory = (ctypes.c_ubyte * size).from_address(pointer) if here else bytearray(0)
    return Taken(memoryview(memory).cast("B"), pointer, kind, shape, strides, (t.device.type, t.device.id), contiguous,
                 guard)
