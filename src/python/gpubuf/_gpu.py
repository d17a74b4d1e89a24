"""Arrays of this process on a GPU: what they are, copies of them, and their bytes by way of pinned memory.

A lane is a stream with two pieces of pinned memory. Copies between host and device go through the pieces in turn, so
that one piece is on the network while the other is on the bus.
"""
from __future__ import annotations

import ctypes
import math
import os
import threading
from contextlib import contextmanager
from ctypes import byref, c_uint64, c_void_p
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from . import _arrays, _cuda, _dlpack, _dtypes, _torch
from ._arrays import Payload
from .errors import BadArgument, BadType, Error

STEP = 8 << 20  # bytes of a piece
LANES_KEPT = 4  # of each device, for later transfers
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
UNTIMED = 2  # CU_EVENT_DISABLE_TIMING
PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE


class Tensor(NamedTuple):
    """Elements in C order on a device of this process. owner keeps the memory alive. axes: those of the array, by their
    places in shape; empty: the same."""

    pointer: int
    nbytes: int
    dtype: str
    shape: Tuple[int, ...]
    ordinal: int
    owner: Any
    axes: Tuple[int, ...] = ()

    @property
    def seen(self) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
        """Shape and strides of the array; the strides in elements."""
        axes = self.axes or tuple(range(len(self.shape)))
        strides = tuple(math.prod(self.shape[axis + 1 :]) for axis in axes)
        return tuple(self.shape[axis] for axis in axes), strides


class Lane:
    """A stream on one device; one thread uses it at a time."""

    def __init__(self, driver: _cuda.Driver, ordinal: int) -> None:
        self._driver, self._pieces, self._events = driver, [0, 0], [0, 0]
        device, context, stream = driver.device(ordinal), c_void_p(), c_void_p()
        # The context stays until the process ends, as that of a mapping does.
        driver.call("cuDevicePrimaryCtxRetain", byref(context), device)
        self._context = context
        self._call("cuStreamCreate", byref(stream), NON_BLOCKING)
        self.stream = stream.value or 0

    def _call(self, name: str, *arguments: Any) -> None:
        self._driver.call("cuCtxPushCurrent_v2", self._context)
        try:
            self._driver.call(name, *arguments)
        finally:
            self._driver.call("cuCtxPopCurrent_v2", byref(c_void_p()))

    def close(self) -> None:
        """Frees what the lane has, once its work is done."""
        for slot in (0, 1):
            if self._pieces[slot]:
                self._call("cuMemFreeHost", c_void_p(self._pieces[slot]))
            if self._events[slot]:
                self._call("cuEventDestroy_v2", c_void_p(self._events[slot]))
        self._call("cuStreamDestroy_v2", c_void_p(self.stream))

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Queues a copy on the device."""
        if nbytes:
            self._call("cuMemcpyDtoDAsync_v2", target, source, nbytes, c_void_p(self.stream))

    def sync(self) -> None:
        """Waits for all that is queued."""
        self._call("cuStreamSynchronize", c_void_p(self.stream))

    def wait_for(self, stream: int) -> None:
        """Waits for the work that is queued on another stream of the device."""
        self._call("cuStreamSynchronize", c_void_p(stream))

    def allocate(self, nbytes: int) -> int:
        pointer = c_uint64()
        self._call("cuMemAlloc_v2", byref(pointer), nbytes)
        return pointer.value

    def free(self, pointer: int) -> None:
        self._call("cuMemFree_v2", pointer)

    def _piece(self, slot: int) -> int:
        """The address of a piece of pinned memory, made at its first use."""
        if not self._pieces[slot]:
            memory, event = c_void_p(), c_void_p()
            self._call("cuEventCreate", byref(event), UNTIMED)
            self._events[slot] = event.value or 0
            self._call("cuMemHostAlloc", byref(memory), STEP, PORTABLE)
            self._pieces[slot] = memory.value or 0
        return self._pieces[slot]

    def _view(self, slot: int, n: int) -> memoryview:
        return memoryview((ctypes.c_ubyte * n).from_address(self._piece(slot))).cast("B")

    def _mark(self, slot: int) -> None:
        self._call("cuEventRecord", c_void_p(self._events[slot]), c_void_p(self.stream))

    def _wait(self, slot: int) -> None:
        self._call("cuEventSynchronize", c_void_p(self._events[slot]))

    def down(self, pointer: int, nbytes: int) -> Iterator[memoryview]:
        """The bytes of device memory, piece by piece; a piece is valid until the next one is asked for."""
        cuts = [(at, min(STEP, nbytes - at)) for at in range(0, nbytes, STEP)]

        def queue(i: int) -> None:
            at, n = cuts[i]
            self._call("cuMemcpyDtoHAsync_v2", c_void_p(self._piece(i % 2)), pointer + at, n, c_void_p(self.stream))
            self._mark(i % 2)

        if cuts:
            queue(0)
        for i, (_, n) in enumerate(cuts):
            if i + 1 < len(cuts):
                queue(i + 1)
            self._wait(i % 2)
            yield self._view(i % 2, n)

    def read(self, pointer: int, nbytes: int) -> bytes:
        """A few bytes of device memory, without pinned memory."""
        here = ctypes.create_string_buffer(nbytes)
        self._call("cuMemcpyDtoHAsync_v2", ctypes.cast(here, c_void_p), pointer, nbytes, c_void_p(self.stream))
        self.sync()
        return here.raw

    def up(self, pointer: int, nbytes: int, receive: Callable[[memoryview, int], None]) -> None:
        """Fills device memory piece by piece. receive fills the view with the bytes from an offset on."""
        for i, at in enumerate(range(0, nbytes, STEP)):
            n, slot = min(STEP, nbytes - at), i % 2
            view = self._view(slot, n)
            if i > 1:
                self._wait(slot)
            receive(view, at)
            self._call("cuMemcpyHtoDAsync_v2", pointer + at, c_void_p(self._piece(slot)), n, c_void_p(self.stream))
            self._mark(slot)
        self.sync()


_free: Dict[Tuple[int, int, int], List[Lane]] = {}
_lock = threading.RLock()  # reentrant: the garbage collector may free a block in the thread that holds it


def _driver_of(ordinal: int) -> _cuda.Driver:
    """The driver, which has such a device."""
    driver = _cuda.load()
    if not 0 <= ordinal < len(driver.uuids):
        raise BadArgument(f"this process sees {len(driver.uuids)} devices of CUDA, and cuda:{ordinal} is none of them "
                          "(CUDA_VISIBLE_DEVICES?)")
    return driver


@contextmanager
def lane(ordinal: int) -> Iterator[Lane]:
    """A lane on that device, for this thread alone. At the end its work is done, also after an error."""
    driver = _driver_of(ordinal)
    key = (id(driver), os.getpid(), ordinal)
    with _lock:
        kept = _free.setdefault(key, [])
        found: Optional[Lane] = kept.pop() if kept else None
    if found is None:
        found = Lane(driver, ordinal)
    broken = False
    try:
        yield found
    except BaseException:
        try:
            found.sync()
        except Error:
            broken = True  # the error that is on its way says more
        raise
    finally:
        with _lock:
            if not broken and len(kept) < LANES_KEPT:
                kept.append(found)
                found = None
        if found is not None and not broken:
            found.close()


# --- arrays -----------------------------------------------------------------------------------------------------------


def ordinal_of(source: Any) -> Optional[int]:
    """The device that an array of any library is on; None if it is not on a GPU of CUDA."""
    if source is None or isinstance(source, (np.ndarray, np.generic, bytes, bytearray, memoryview, int, float, complex,
                                             list, tuple)):
        return None
    if hasattr(source, "__dlpack_device__"):
        try:
            kind, number = source.__dlpack_device__()
        except Exception:  # of several devices, for instance: numpy gathers it, or says why not
            return None
        return int(number) if int(kind) in _dlpack.GPU_DEVICES else None
    about = getattr(source, "__cuda_array_interface__", None)
    if not about:
        return None
    pointer = int(about["data"][0] or 0)  # 0 of an array without elements, which any device has
    return _cuda.load().ordinal_at(pointer) if pointer else 0


def take(source: Any, ordinal: int, *, write: bool = False) -> Tensor:
    """The memory of an array on a GPU. The work that its library had queued on it is done. write: as of
    _dlpack.take."""
    plain, named = _torch.plain(source)
    with lane(ordinal) as here:
        if hasattr(plain, "__dlpack__"):
            taken = _dlpack.take(plain, here.stream, write=write)
            if not taken.contiguous:
                raise BadType(f"the elements of the {type(source).__name__} do not lie in C order: give "
                              "tensor.contiguous(), or cupy.ascontiguousarray(array)")
            tensor = Tensor(taken.pointer, math.prod(taken.shape) * _dtypes.width(taken.dtype), taken.dtype,
                            taken.shape, ordinal, (taken.guard, source))
        else:
            tensor = _of_interface(here, plain, ordinal, write)
        here.sync()
    return tensor._replace(dtype=named) if named else tensor


def _of_interface(here: Lane, source: Any, ordinal: int, write: bool) -> Tensor:
    about = source.__cuda_array_interface__
    kind, shape, strides = np.dtype(about["typestr"]), tuple(about["shape"]), about.get("strides")
    if about.get("mask") is not None:
        raise BadType("the array has a mask, which a buffer cannot have: put the data alone")
    if not _arrays.in_c_order(kind, shape, strides):
        raise BadType("the elements of the array do not lie in C order: give cupy.ascontiguousarray(array)")
    if write and about["data"][1]:
        raise BadArgument(f"the {type(source).__name__} is read-only: give an array that can be written")
    # Before version 3 the interface did not say which stream: CUDA's legacy default stream waits for those that block
    # on it.
    stream = about.get("stream") if about.get("version", 0) >= 3 else 1
    if stream is not None:
        here.wait_for(int(stream))
    nbytes = math.prod(shape) * kind.itemsize
    return Tensor(int(about["data"][0] or 0), nbytes, _dtypes.name_of(kind), shape, ordinal, source)


class Staged:
    """Bytes on a device as the body of a request: they come through pinned memory while they are sent. It can be sent
    again."""

    def __init__(self, tensor: Tensor, at: int = 0, nbytes: Optional[int] = None) -> None:
        self._tensor, self._at = tensor, at
        self._nbytes = tensor.nbytes - at if nbytes is None else nbytes

    def __len__(self) -> int:
        return self._nbytes

    def __getitem__(self, key: slice) -> "Staged":
        start, stop, _ = key.indices(self._nbytes)
        return Staged(self._tensor, self._at + start, max(0, stop - start))

    def views(self) -> Iterator[memoryview]:
        with lane(self._tensor.ordinal) as here:
            yield from here.down(self._tensor.pointer + self._at, self._nbytes)


def payload_of(source: Any) -> Payload:
    """The payload of an array, wherever it is."""
    ordinal = ordinal_of(source)
    if ordinal is None:
        return _arrays.payload_of(source)
    return payload_of_tensor(take(source, ordinal))


def payload_of_tensor(tensor: Tensor) -> Payload:
    return Payload(Staged(tensor), tensor.dtype, tensor.shape, tensor)


def device_of(device: Any) -> int:
    """The number of a device: of "cuda", "cuda:1", 1, or torch.device("cuda", 1)."""
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    kind, _, number = str(device).partition(":")
    if kind != "cuda" or (number and not number.isdigit()):
        raise BadArgument(f"device is \"cuda\", \"cuda:N\", N or \"cpu\", not {device!r}")
    if number:
        return int(number)
    current = _torch.current_device()
    return current if current is not None else 0


def target_of(device: Any, out: Any) -> Optional[int]:
    """The GPU that a download is to go to: device's or out's; None for the host."""
    theirs = ordinal_of(out)
    if device is None:
        return theirs
    if str(device).partition(":")[0] != "cpu":
        return device_of(device)
    if theirs is not None:
        raise BadArgument(f"out is on cuda:{theirs}, and device is {device!r}")
    return None


# --- memory of ours ---------------------------------------------------------------------------------------------------


class Block:
    """Device memory of the driver, freed with its last user."""

    pointer = 0  # until __init__ has run

    def __init__(self, ordinal: int, nbytes: int) -> None:
        self._ordinal, self._pid, self.pointer = ordinal, os.getpid(), 0
        if nbytes:
            with lane(ordinal) as here:
                self.pointer = here.allocate(nbytes)

    def __del__(self) -> None:
        pointer, self.pointer = self.pointer, 0
        if not pointer or self._pid != os.getpid():
            return
        try:
            with lane(self._ordinal) as here:
                here.free(pointer)
        except Exception:
            pass  # the driver is closing down, and frees it


def allocate(dtype: str, shape: Sequence[int], ordinal: int) -> Tensor:
    """Memory on a device: of torch's allocator if this process uses torch on a GPU, else of the driver's."""
    nbytes = math.prod(shape) * _dtypes.width(dtype)
    _driver_of(ordinal)
    theirs = _torch.memory(nbytes, ordinal)
    if theirs is not None:
        return take(theirs, ordinal)._replace(dtype=dtype, shape=tuple(shape))
    block = Block(ordinal, nbytes)
    return Tensor(block.pointer, nbytes, dtype, tuple(shape), ordinal, block)


def copied(tensor: Tensor, ready: Callable[[int], None]) -> Tensor:
    """A copy of device memory, which is complete. ready: makes a stream wait for what is still written there."""
    made = allocate(tensor.dtype, tensor.shape, tensor.ordinal)
    with lane(tensor.ordinal) as here:
        ready(here.stream)
        here.copy(made.pointer, tensor.pointer, tensor.nbytes)
        here.sync()
    return made._replace(axes=tensor.axes)


def into(out: Any, dtype: str, shape: Tuple[int, ...]) -> Tensor:
    """The memory of an array that is to receive elements of that type and shape."""
    ordinal = ordinal_of(out)
    if ordinal is None:
        raise BadType(f"out is to be an array on a GPU, as device says, not a {type(out).__name__}")
    tensor = take(out, ordinal, write=True)
    if (tensor.dtype, tensor.shape) != (dtype, tuple(shape)):
        raise BadArgument(f"out is {tensor.dtype} {tensor.shape}; the data is {dtype} {tuple(shape)}")
    return tensor
