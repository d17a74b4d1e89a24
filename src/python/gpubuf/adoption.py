"""Adoption: memory of this process as a buffer of the daemon, the opposite of a mapping."""
from __future__ import annotations

import base64
import fcntl
import mmap
import os
import weakref
from types import TracebackType
from typing import Any, Dict, Mapping as Fields, NamedTuple, Optional, Sequence, Type, cast

import numpy as np

from . import _arrays, _cuda, _dtypes, _numbers
from ._address import Address
from ._arrays import Array
from ._asker import given
from ._epochs import Epochs
from ._lease import Lease
from .errors import BadArgument, BadType, not_pickled
from .types import ListedBuffer


class SharedMemory(mmap.mmap):
    """Memory in a memfd that cannot shrink; other processes can map it by ``fd``."""

    fd: int

    def __new__(cls, nbytes: int) -> "SharedMemory":
        fd = os.memfd_create("gpubuf", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, max(nbytes, 1))
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            self = super().__new__(cls, fd, max(nbytes, 1))
        except BaseException:
            os.close(fd)
            raise
        self.fd = fd
        weakref.finalize(self, os.close, fd)
        return self


def shared_array(shape: Sequence[int], dtype: str) -> Array:
    """Zeros in a SharedMemory, which lives as long as an array over it."""
    kind = _dtypes.numpy_dtype(dtype)
    memory = SharedMemory(int(np.prod(shape, dtype=np.int64)) * kind.itemsize)
    return np.frombuffer(memory, kind, int(np.prod(shape, dtype=np.int64))).reshape(tuple(shape))


class Offer(NamedTuple):
    """The adoption request: its fields, and a descriptor if the way needs one."""

    body: Dict[str, Any]
    fd: Optional[int]
    owner: Any


def _memory_of(array: Array) -> SharedMemory:
    base: Any = array
    while isinstance(base, (np.ndarray, memoryview)):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    if not isinstance(base, SharedMemory):
        raise BadArgument("the array is in memory of this process alone: make one with Client.shared_array and write "
                          "into that")
    return base


def _of_array(source: Array) -> Offer:
    array = _numbers.array_of(source)
    if not array.flags.c_contiguous:
        raise BadArgument("the elements of the array do not lie in C order: a buffer is of whole rows")
    memory = _memory_of(array)
    start = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    body = {"way": "memfd", "dtype": _dtypes.name_of(array.dtype), "shape": list(array.shape),
            "offset": array.__array_interface__["data"][0] - start}
    return Offer(body, memory.fd, array)


def _of_device(source: Any, about: Fields[str, Any]) -> Offer:
    kind, shape, strides = np.dtype(about["typestr"]), tuple(about["shape"]), about.get("strides")
    nbytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if not _arrays.in_c_order(kind, shape, strides):
        raise BadArgument("the elements of the tensor do not lie in C order: give tensor.contiguous()")
    return legacy_offer(about["data"][0], nbytes, source, dtype=_dtypes.name_of(kind), shape=list(shape))


def legacy_offer(pointer: int, nbytes: int, owner: Any, **layout: Any) -> Offer:
    """The offer of memory of cudaMalloc. layout: its dtype and shape, or its bytes."""
    handle, offset, device = _cuda.load().give_legacy(pointer, nbytes)
    return Offer({"way": "legacy", "offset": offset, "device": device, "handle": base64.b64encode(handle).decode(),
                  **layout}, None, owner)


def offer_of(source: Any, fields: Dict[str, Any]) -> Offer:
    """fields: the caller's values, which override the source's own."""
    if isinstance(source, bool) or not isinstance(source, int):
        about = getattr(source, "__cuda_array_interface__", None)
        if about is not None:
            offer = _of_device(source, about)
        elif isinstance(source, np.ndarray):
            offer = _of_array(source)
        else:
            raise BadType(f"a {type(source).__name__} is not adopted: give an array of Client.shared_array, a tensor "
                          "on a GPU, or a descriptor")
    else:
        offer = Offer({"way": "memfd"}, source, source)
    body = {**offer.body, **fields}
    if "bytes" in fields and "shape" not in fields:
        body.pop("shape", None)
    return Offer(body, offer.fd, offer.owner)


class Adoption:
    """Memory of this process as a buffer; made by :meth:`gpubuf.Client.adopt`.

    Every client with the rights can upload to it, download it and copy it like any other buffer. These transfers access
    this process's memory directly, so that writes are visible at once. The daemon never frees the memory. The buffer
    lasts until the ``with`` statement has ended (or :meth:`release` was called). If this process ends in any way, the
    buffer is lost. The memory is kept alive until then.

    Attributes:
        buffer, session: the daemon's names.
        info: the buffer at its adoption, as of ``Client.info``.
    """

    def __init__(self, lease: Lease, path: str, owner: Any, side: Optional[str] = None) -> None:
        self._lease, self._path, self._owner, self._side = lease, path, owner, side
        self.info = cast(ListedBuffer, lease.document)
        self.buffer: str = lease.document["name"]
        self.session: str = lease.document["session"]

    def __reduce__(self) -> Any:
        raise not_pickled(self, "give the other process the client and the name of the buffer")

    def __repr__(self) -> str:
        return f"<gpubuf.Adoption {self.session}/{self.buffer}, {'owned' if self.alive else 'released'}>"

    def __enter__(self) -> "Adoption":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.release()

    @property
    def alive(self) -> bool:
        """True while the daemon is there and keeps the connection."""
        return self._lease.alive

    def release(self) -> None:
        """Deletes the buffer, if it still is this one. The buffer of a side stays: the bytes go to its other side
        first. Repeated calls have no effect. Transfers of other clients that have begun complete undisturbed: device
        memory must live until then."""
        self._lease.give_up(self._path, self.info["created_at"], self._side)
        self._owner = None


def open_adoption(address: Address, token: Optional[str], timeout: float, epochs: Epochs, path: str, offer: Offer,
                  wait: Optional[float]) -> Adoption:
    """Opens a connection and hands the offered memory over."""
    lease = Lease(address, token, timeout, epochs)
    lease.ask(path + "/adopt", given(**offer.body), wait, offer.fd)
    return Adoption(lease, path, offer.owner, offer.body.get("side"))
