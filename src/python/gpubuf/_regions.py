"""Mapped memory and its end: after the last use the memory is unmapped, and then the lease ends."""
from __future__ import annotations

import base64
import errno
import math
import mmap
import os
import threading
import weakref
from typing import Any, Optional, Sequence, Tuple, Union

import numpy as np

from . import _cuda, _dlpack
from ._dtypes import TABLE, width
from ._lease import Lease
from .errors import BrokenAnswer, Error


def _over(lease: Lease, wait: bool) -> None:
    if wait:
        lease.end()
    else:
        lease.close()


NORESERVE = 0x4000  # MAP_NORESERVE, which mmap of older Pythons lacks


def _pages(fd: int, size: int, writable: bool) -> Tuple[mmap.mmap, bool]:
    """Maps the descriptor, and says whether a write through the mapping is harmless. For reading, pages are private
    copies once they are written: torch has no read-only tensors, and a write into read-only pages is SIGSEGV. A limit
    of the process or a system without overcommit may refuse such pages; then they are read-only."""
    both = mmap.PROT_READ | mmap.PROT_WRITE
    if writable:
        return mmap.mmap(fd, size, mmap.MAP_SHARED, both), True
    try:
        return mmap.mmap(fd, size, mmap.MAP_PRIVATE | NORESERVE, both), True
    except OSError as e:
        if e.errno != errno.ENOMEM:
            raise
    return mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ), False


class HostRegion:
    """A mapped memfd of the daemon. Views hold the mmap, which counts them.

    view is read-only if the mapping is for reading; pages is the same memory for consumers that know no read-only
    memory, and harmless says whether these may write."""

    device = (_dlpack.CPU, 0)

    def __init__(self, lease: Lease, map_bytes: int, offset: int, nbytes: int, writable: bool) -> None:
        self._lease = lease
        self._map: Optional[mmap.mmap] = None
        self.view: Optional[memoryview] = memoryview(b"")
        self.pages: Optional[memoryview] = self.view
        self.harmless = True
        fd = lease.take_fd()
        try:
            if nbytes == 0:
                return
            if offset < 0 or offset + nbytes > map_bytes:
                raise BrokenAnswer(f"{nbytes} bytes at {offset} do not fit into a mapping of {map_bytes}")
            self._map, self.harmless = _pages(fd, map_bytes, writable)
            self.pages = memoryview(self._map)[offset : offset + nbytes]
            self.view = self.pages if writable else self.pages.toreadonly()
            # The end of the last array ends the lease, at any time.
            self._last = weakref.finalize(self._map, lease.close)
        except (OSError, ValueError) as e:
            if isinstance(e, BrokenAnswer):
                raise
            raise BrokenAnswer(f"the daemon's descriptor cannot be mapped: {e}") from e
        finally:
            os.close(fd)

    def pointer(self) -> Tuple[int, Any]:
        """The address, and the object that keeps the memory alive."""
        array = np.frombuffer(self.view or b"", np.uint8)
        return (array.ctypes.data if array.size else 0), array

    def end(self, wait: bool) -> bool:
        """Gives the region up. Returns True if it is unmapped; False if arrays still use it, and then the last of them
        ends it. wait: wait until the daemon has ended the lease."""
        views, self.view, self.pages = (self.view, self.pages), None, None
        mapped, self._map = self._map, None
        try:
            for view in views:
                if view is not None:
                    view.release()
            if mapped is not None:
                mapped.close()
                self._last.detach()
        except BufferError:
            return False
        _over(self._lease, wait)
        return True


class Hold:
    """The reference that a tensor holds to a DeviceRegion."""

    _region: "Optional[DeviceRegion]" = None  # until __init__ has run

    def __init__(self, region: "DeviceRegion") -> None:
        self._region = region

    def __del__(self) -> None:
        region, self._region = self._region, None
        if region is not None:
            region.drop()


class DeviceRegion:
    """Device memory of the daemon, opened by the driver."""

    view = None

    def __init__(self, lease: Lease, driver: "_cuda.Driver", access: Sequence[int] = ()) -> None:
        d = lease.document
        self._lease, self._lock, self._users, self._wanted = lease, threading.RLock(), 0, True
        ordinal = driver.ordinal_of(str(d["device"]["uuid"]))
        self.device = (_dlpack.CUDA, ordinal)
        handle = base64.b64decode(d["handle"]) if d.get("handle") else b""
        fd: Union[int, None] = None if d["way"] == "legacy" else lease.take_fd()
        try:
            self.memory = driver.open(d["way"], ordinal, fd, handle, int(d["map_bytes"]), int(d["offset"]),
                                      d["mode"] == "write", (d.get("pool") or {}).get("id"), access)
        finally:
            if fd is not None:
                os.close(fd)
        try:
            if d.get("event"):
                self.memory.open_event(base64.b64decode(d["event"]))
            if d.get("finished_event"):
                self.memory.open_finished(base64.b64decode(d["finished_event"]))
            self.memory.keep_context()
        except BaseException:
            self.memory.close()
            raise

    def ready(self, stream: int) -> None:
        """Makes a stream wait, on the device, for writes that were queued before the buffer was mapped."""
        self.memory.wait_on(stream)

    def hold(self) -> Hold:
        with self._lock:
            self._users += 1
        return Hold(self)

    def pointer(self) -> Tuple[int, Any]:
        return self.memory.pointer, self.hold()

    def drop(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._users == 0 and not self._wanted
        if last:
            self.memory.close()
            self._lease.close()

    def end(self, wait: bool) -> bool:
        """As in HostRegion; also waits for device work that may use the memory."""
        with self._lock:
            if not self._wanted:
                return self._users == 0
            self._wanted = False
            if self._users:
                return False
        self.memory.close()
        _over(self._lease, wait)
        return True


Region = Union[HostRegion, DeviceRegion]


def open_region(lease: Lease, access: Sequence[int] = ()) -> Region:
    """Maps the granted memory. Closes the lease on failure."""
    d = lease.document
    try:
        if math.prod(d["shape"]) * (1 if d["dtype"] == TABLE else width(d["dtype"])) != int(d["bytes"]):
            raise ValueError(f"{d['dtype']} {d['shape']} has not {d['bytes']} bytes")
        if d["way"] == "memfd":
            if d.get("event"):
                raise ValueError("host memory is complete when it is granted, and this has an event to wait for")
            return HostRegion(lease, int(d["map_bytes"]), int(d["offset"]), int(d["bytes"]), d["mode"] == "write")
        if d["way"] in ("vmm", "pool", "legacy"):
            return DeviceRegion(lease, _cuda.load(), access)
        raise BrokenAnswer(f"this version of gpubuf cannot map by {d['way']}; give ways=['memfd', 'vmm', 'pool', "
                           "'legacy']")
    except BaseException as e:
        lease.close()
        if isinstance(e, (KeyError, TypeError, ValueError)) and not isinstance(e, Error):
            raise BrokenAnswer(f"the daemon's answer lacks a field or has a wrong one: {e!r}") from e
        raise
