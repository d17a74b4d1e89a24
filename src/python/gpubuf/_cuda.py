"""The CUDA driver by ctypes, opened when device memory is first mapped: imports the memory that the daemon exports.

Installing or importing this package does not need CUDA. The names and numbers are those of cuda.h.
"""
from __future__ import annotations

import ctypes
import os
import threading
import uuid
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_ulonglong, c_void_p
from typing import Any, Callable, Dict, Hashable, List, Optional, Sequence, Set, Tuple

from ._pools import Shared
from .errors import BadArgument, DeviceError, Unsupported

HANDLE_POSIX_FD = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
LOCATION_DEVICE = 1
ACCESS_READ, ACCESS_READ_WRITE = 1, 3
LAZY_PEER_ACCESS = 1
ATTRIBUTE_BUFFER = 7  # CU_POINTER_ATTRIBUTE_BUFFER_ID: no two allocations of a process have the same
ATTRIBUTE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
HANDLE_BYTES = 64


class Handle(ctypes.Structure):
    """CUipcMemHandle, CUipcEventHandle or CUmemPoolPtrExportData: 64 opaque bytes."""

    _fields_ = [("bytes", c_char * HANDLE_BYTES)]


class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", c_int)]


class Uuid(ctypes.Structure):
    _fields_ = [("bytes", c_char * 16)]


# Driver functions with the types of their arguments; all return CUresult.
FUNCTIONS: Dict[str, Tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetUuid_v2": (POINTER(Uuid), c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (POINTER(c_void_p),),
    "cuCtxSynchronize": (),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuMemImportFromShareableHandle": (POINTER(c_ulonglong), c_void_p, c_int),
    "cuMemAddressReserve": (POINTER(c_uint64), c_size_t, c_size_t, c_uint64, c_ulonglong),
    "cuMemMap": (c_uint64, c_size_t, c_size_t, c_ulonglong, c_ulonglong),
    "cuMemSetAccess": (c_uint64, c_size_t, POINTER(Access), c_size_t),
    "cuMemUnmap": (c_uint64, c_size_t),
    "cuMemRelease": (c_ulonglong,),
    "cuMemAddressFree": (c_uint64, c_size_t),
    "cuMemPoolImportFromShareableHandle": (POINTER(c_void_p), c_void_p, c_int, c_ulonglong),
    "cuMemPoolImportPointer": (POINTER(c_uint64), c_void_p, POINTER(Handle)),
    "cuMemPoolGetAccess": (POINTER(c_int), c_void_p, POINTER(Location)),
    "cuMemPoolSetAccess": (c_void_p, POINTER(Access), c_size_t),
    "cuMemPoolDestroy": (c_void_p,),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemFreeHost": (c_void_p,),
    "cuMemHostAlloc": (POINTER(c_void_p), c_size_t, c_uint),
    "cuMemcpyDtoDAsync_v2": (c_uint64, c_uint64, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuIpcGetMemHandle": (POINTER(Handle), c_uint64),
    "cuMemGetAddressRange_v2": (POINTER(c_uint64), POINTER(c_size_t), c_uint64),
    "cuPointerGetAttribute": (c_void_p, c_int, c_uint64),
    "cuIpcOpenMemHandle_v2": (POINTER(c_uint64), Handle, c_uint),
    "cuIpcCloseMemHandle": (c_uint64,),
    "cuIpcOpenEventHandle": (POINTER(c_void_p), Handle),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventSynchronize": (c_void_p,),
    "cuEventDestroy_v2": (c_void_p,),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
}


class Driver:
    """libcuda.so.1, or a test's replacement."""

    def __init__(self, library: Any) -> None:
        self._library, self.pid = library, os.getpid()
        self.kept: Set[int] = set()  # devices whose context stays until the process ends
        self.pools: Shared[c_void_p] = Shared()
        self.pointers: Shared[int] = Shared()  # into those
        self._call("cuInit", 0)
        count = c_int()
        self._call("cuDeviceGetCount", byref(count))
        self.uuids: List[str] = []
        for ordinal in range(count.value):
            found = Uuid()
            self._call("cuDeviceGetUuid_v2", byref(found), self.device(ordinal))
            self.uuids.append(str(uuid.UUID(bytes=ctypes.string_at(byref(found), 16))))

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a driver function. Raises DeviceError if it fails."""
        self._call(name, *arguments)

    def _call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._library, name, None)
        if function is None:
            raise Unsupported(f"this driver has no {name}: install a newer one")
        function.argtypes, function.restype = FUNCTIONS[name], c_int
        code = function(*arguments)
        if code != 0:
            text = c_char_p()
            self._library.cuGetErrorName(code, byref(text))
            word = (text.value or b"unknown").decode()
            raise DeviceError(problem={"detail": f"the driver of this process refused {name}: {word} ({code})",
                                       "status": 500, "cuda": {"name": word, "code": code, "call": name,
                                                               "domain": "cuda"}})

    def device(self, ordinal: int) -> int:
        """The driver's own number of a device."""
        device = c_int()
        self._call("cuDeviceGet", byref(device), ordinal)
        return device.value

    def ordinal_of(self, identity: str) -> int:
        """This process's number of the device that the daemon names by UUID."""
        bare = identity.partition("-")[2].lower()
        if bare not in self.uuids:
            raise Unsupported(f"the buffer is on device {identity}, which this process does not see "
                              "(CUDA_VISIBLE_DEVICES?)")
        return self.uuids.index(bare)

    def name_of(self, ordinal: int) -> str:
        """The device's UUID, as the daemon writes it."""
        return f"GPU-{self.uuids[ordinal]}"

    def ordinal_at(self, pointer: int) -> int:
        """The device that the memory is on."""
        ordinal = c_int()
        self._call("cuPointerGetAttribute", byref(ordinal), ATTRIBUTE_ORDINAL, pointer)
        return ordinal.value

    def allocation_at(self, pointer: int) -> int:
        """A number of the allocation that the pointer is into; an allocation at the same address later has another."""
        number = c_ulonglong()
        self._call("cuPointerGetAttribute", byref(number), ATTRIBUTE_BUFFER, pointer)
        return number.value

    def give_legacy(self, pointer: int, nbytes: int) -> Tuple[bytes, int, str]:
        """Exports memory of this process: the handle of the allocation, the offset of the memory in it, and the
        device's name. Waits for the device's work."""
        ordinal, base, size, handle = self.ordinal_at(pointer), c_uint64(), c_size_t(), Handle()
        memory = Memory(self, self.device(ordinal))
        try:
            memory.enter()
            try:
                self._call("cuMemGetAddressRange_v2", byref(base), byref(size), pointer)
                self._call("cuIpcGetMemHandle", byref(handle), base)
            finally:
                memory.leave()
        finally:
            memory.close()
        if pointer + nbytes > base.value + size.value:
            raise BadArgument("the tensor ends beyond the memory that the driver knows there")
        return bytes(bytearray(handle)), pointer - base.value, self.name_of(ordinal)

    def open(self, way: str, ordinal: int, fd: Optional[int], handle: bytes, map_bytes: int, offset: int,
             writable: bool, pool: Optional[str] = None, access: Sequence[int] = ()) -> "Memory":
        """Imports memory. The caller closes fd. pool: its id, by which it is imported once. access: other devices that
        are to reach it."""
        if access and way == "legacy":
            raise BadArgument("memory of kind ipc is opened to other devices by the program (cuCtxEnablePeerAccess), "
                              "not by access_devices")
        memory = Memory(self, self.device(ordinal))
        try:
            memory.enter()
            try:
                if way == "vmm":
                    memory.open_vmm(_fd(fd), map_bytes, writable, access)
                elif way == "pool":
                    memory.open_pool(_fd(fd), _handle(handle), pool, access)
                else:
                    memory.open_legacy(_handle(handle))
            finally:
                memory.leave()
        except BaseException:
            memory.close()
            raise
        memory.pointer += offset
        return memory


def _fd(fd: Optional[int]) -> int:
    if fd is None:
        raise ValueError("no descriptor came")
    return fd


def _handle(data: bytes) -> Handle:
    if len(data) != HANDLE_BYTES:
        raise ValueError(f"the handle has {len(data)} bytes, not {HANDLE_BYTES}")
    return Handle.from_buffer_copy(data)


class Memory:
    """Imported memory in the device's primary context, which torch, CuPy and the CUDA runtime use as well."""

    def __init__(self, driver: Driver, device: int) -> None:
        self._driver, self._device, self._pid = driver, device, os.getpid()
        self.pointer = 0
        self._undo: List[Tuple[Callable[..., None], Tuple[Any, ...]]] = []  # last first
        self._event: Optional[int] = None
        self._finished: Optional[int] = None
        self._lock = threading.RLock()
        context = c_void_p()
        driver.call("cuDevicePrimaryCtxRetain", byref(context), device)
        self._context = context

    def enter(self) -> None:
        self._driver.call("cuCtxPushCurrent_v2", self._context)

    def leave(self) -> None:
        self._driver.call("cuCtxPopCurrent_v2", byref(c_void_p()))

    def _later(self, name: str, *arguments: Any) -> None:
        self._undo.append((self._driver.call, (name, *arguments)))

    def open_vmm(self, fd: int, size: int, writable: bool, others: Sequence[int]) -> None:
        call, handle, base = self._driver.call, c_ulonglong(), c_uint64()
        call("cuMemImportFromShareableHandle", byref(handle), c_void_p(fd), HANDLE_POSIX_FD)
        self._later("cuMemRelease", handle)
        call("cuMemAddressReserve", byref(base), size, 0, 0, 0)
        self._later("cuMemAddressFree", base, size)
        call("cuMemMap", base, size, 0, handle, 0)
        self._later("cuMemUnmap", base, size)
        for device in (self._device, *others):
            access = Access(Location(LOCATION_DEVICE, device), ACCESS_READ_WRITE if writable else ACCESS_READ)
            call("cuMemSetAccess", base, size, byref(access), 1)
        self.pointer = base.value

    def open_pool(self, fd: int, handle: Handle, identity: Optional[str], others: Sequence[int]) -> None:
        # Without an identity nothing is shared. A child of fork begins again.
        call, pools, pointers = self._driver.call, self._driver.pools, self._driver.pointers
        key: Tuple[Hashable, ...] = (identity if identity is not None else object(), self._device, self._pid)
        pool = pools.take(key, lambda: self._import_pool(fd))
        self._undo.append((pools.leave, (key,)))
        for device in others:
            call("cuMemPoolSetAccess", pool, byref(Access(Location(LOCATION_DEVICE, device), ACCESS_READ_WRITE)), 1)
        pointer = (key, bytes(bytearray(handle)))
        self.pointer = pointers.take(pointer, lambda: self._import_pointer(pool, handle))
        self._undo.append((pointers.leave, (pointer,)))

    def _import_pool(self, fd: int) -> Tuple[c_void_p, Callable[[], None]]:
        call, pool, flags = self._driver.call, c_void_p(), c_int()
        call("cuMemPoolImportFromShareableHandle", byref(pool), c_void_p(fd), HANDLE_POSIX_FD, 0)
        try:
            where = Location(LOCATION_DEVICE, self._device)
            call("cuMemPoolGetAccess", byref(flags), pool, byref(where))
            if flags.value != ACCESS_READ_WRITE:
                call("cuMemPoolSetAccess", pool, byref(Access(where, ACCESS_READ_WRITE)), 1)
        except BaseException:
            call("cuMemPoolDestroy", pool)
            raise
        return pool, lambda: call("cuMemPoolDestroy", pool)

    def _import_pointer(self, pool: c_void_p, handle: Handle) -> Tuple[int, Callable[[], None]]:
        call, base = self._driver.call, c_uint64()
        call("cuMemPoolImportPointer", byref(base), pool, byref(handle))
        return base.value, lambda: call("cuMemFree_v2", base)

    def open_legacy(self, handle: Handle) -> None:
        base = c_uint64()
        self._driver.call("cuIpcOpenMemHandle_v2", byref(base), handle, LAZY_PEER_ACCESS)
        self._later("cuIpcCloseMemHandle", base)
        self.pointer = base.value

    def open_event(self, handle: bytes) -> None:
        """The event that is recorded after the buffer's last queued write."""
        self._event = self._open_event(handle)

    def open_finished(self, handle: bytes) -> None:
        """The event that this process records behind its own work."""
        self._finished = self._open_event(handle)

    def _open_event(self, handle: bytes) -> Optional[int]:
        event = c_void_p()
        self.enter()
        try:
            self._driver.call("cuIpcOpenEventHandle", byref(event), _handle(handle))
        finally:
            self.leave()
        self._later("cuEventDestroy_v2", event)
        return event.value

    def keep_context(self) -> None:
        """Creating a context takes a tenth of a second or more: a process without one keeps it from its first mapping
        on."""
        if self._device not in self._driver.kept:
            self._driver.call("cuDevicePrimaryCtxRetain", byref(c_void_p()), self._device)
            self._driver.kept.add(self._device)

    def wait_on(self, stream: int) -> None:
        with self._lock:
            if self._event is None:
                return
            self.enter()
            try:
                self._driver.call("cuStreamWaitEvent", c_void_p(stream), c_void_p(self._event), 0)
            finally:
                self.leave()

    def finish_on(self, stream: int) -> None:
        with self._lock:
            if self._finished is None:
                raise BadArgument("the mapping has no event for its end: map with finished_event=True")
            self.enter()
            try:
                self._driver.call("cuEventRecord", c_void_p(self._finished), c_void_p(stream))
            finally:
                self.leave()

    def close(self) -> None:
        """Waits for the device's work, which may use the memory, then releases it. Repeated calls have no effect."""
        with self._lock:
            undo, self._undo, self._event, self._finished = self._undo, [], None, None
            context, self._context = self._context, c_void_p()
        if not context or self._pid != os.getpid():
            return  # a forked child has no driver state
        driver = self._driver
        steps = [(driver.call, ("cuCtxSynchronize",)), *reversed(undo),
                 (driver.call, ("cuCtxPopCurrent_v2", byref(c_void_p()))),
                 (driver.call, ("cuDevicePrimaryCtxRelease_v2", self._device))]
        driver.call("cuCtxPushCurrent_v2", context)
        for call, arguments in steps:
            try:
                call(*arguments)
            except DeviceError:
                pass  # a dead context cannot free the memory; the process's end does


_loaded: Optional[Driver] = None
_loading = threading.Lock()


def load() -> Driver:
    """The driver of this machine. Raises Unsupported without one, and in a process that was forked after CUDA's
    start."""
    global _loaded
    with _loading:
        if _loaded is None:
            try:
                library = ctypes.CDLL("libcuda.so.1")
            except OSError as e:
                raise Unsupported(
                    f"the buffer is in device memory and this process finds no CUDA driver: {e}") from None
            _loaded = Driver(library)
        if _loaded.pid != os.getpid():
            raise Unsupported("CUDA does not work in a process that was forked from one that uses it: start it by "
                              "spawn, as by torch's DataLoader(multiprocessing_context=\"spawn\")")
        return _loaded
