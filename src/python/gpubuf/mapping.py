"""A buffer's memory, mapped into this process without a copy."""
from __future__ import annotations

import sys
import threading
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Dict, List, Mapping as Fields, Optional, Sequence, Tuple, Type, cast

import numpy as np

from . import _dlpack, _dtypes, _gpu
from ._address import Address
from ._arrays import Array
from ._epochs import Epochs
from ._lease import Lease
from ._regions import DeviceRegion, HostRegion, Region, open_region
from .errors import BadArgument, BadType, PreconditionFailed
from .types import DeviceId, PassedOver

if TYPE_CHECKING:
    from .client import Client


class Mapping:
    """A mapped buffer; made by :meth:`gpubuf.Client.map`.

    Host memory (way ``memfd``) is accessible by ``numpy.asarray(m)``, ``m.array()`` and every consumer of
    ``__array_interface__`` or DLPack (``torch.from_dlpack(m)``). Device memory is accessible by
    ``torch.from_dlpack(m)``, ``cupy.asarray(m)`` and every consumer of DLPack or ``__cuda_array_interface__``. The
    consumer's stream waits on the device for writes that the daemon had queued before. A mapping for reading is
    read-only: its arrays refuse writes, and a DLPack consumer whose protocol lacks that flag gets BufferError. torch
    (2.15, for example) ignores the flag. On the host a write through its tensor then goes into a copy of the page,
    which this process alone has; no other process and no download sees it. On a GPU such a write is an error of CUDA
    that ends the use of the device by this process, or with the ways pool and legacy it changes the buffer. To write,
    map with mode="write".

    Host memory can be mapped if its kind is shared, pinned or pageable of the host backend. Device memory can be mapped
    if its kind is shared or ipc, or if its pool is exportable. Other memory is refused with the reasons (Unsupported);
    Client.get copies it instead.

    The lease lasts until the ``with`` statement has ended (or :meth:`unmap` was called) and no array uses the memory;
    arrays made from it remain valid after that. An array made by ``__cuda_array_interface__`` holds the mapping itself.
    Until the lease ends, the daemon neither frees nor rewrites the bytes. Any thread may use the mapping.

    A pickled mapping maps again in the process that loads it, by a client as of the one that made it. A mapping for
    reading raises PreconditionFailed there if the buffer has other bytes by then; one for writing maps what the buffer
    has. A child of fork reads host memory that its parent had mapped; the lease is the parent's.

    The mapping of a buffer of many tensors is of its bytes: dtype is ``tensors``, and arrays are of uint8.
    Client.tensors gives arrays of the tensors.

    Attributes:
        lease, session, buffer: the daemon's names.
        mode: ``read`` or ``write``. way: ``memfd``, ``vmm``, ``pool`` or ``legacy``.
        passed_over: the ways that were not possible, each with its reason.
        dtype, shape, nbytes: of the tensor.
        generation, etag: of the content.
        device, kind: where the memory is, and what kind it is.
    """

    def __init__(self, lease: Lease, region: Region, client: "Optional[Client]" = None,
                 options: Optional[Fields[str, Any]] = None) -> None:
        d: Dict[str, Any] = lease.document
        self._lease, self._lock, self._lent = lease, threading.Lock(), False
        self._region: Optional[Region] = region
        self.lease: str = d["lease"]
        self.session: str = d["session"]
        self.buffer: str = d["buffer"]
        self.mode: str = d["mode"]
        self.way: str = d["way"]
        self.passed_over: List[PassedOver] = d.get("passed_over") or []
        self.dtype: str = d["dtype"]
        self.shape: Tuple[int, ...] = tuple(d["shape"])
        self.nbytes: int = d["bytes"]
        self.generation: int = d["generation"]
        self.etag: str = d["etag"]
        self.device = cast(DeviceId, d["device"])
        self.kind: str = d["kind"]
        self._elements = "uint8" if self.dtype == _dtypes.TABLE else self.dtype
        self._client, self._options = client, options or {}  # that made it, and the further arguments of its map
        # For a mapping that is dropped without unmap; the garbage collector must not wait.
        self._end = weakref.finalize(self, region.end, False)

    def __repr__(self) -> str:
        state = "unmapped" if self._region is None else self.mode
        return f"<gpubuf.Mapping {self.session}/{self.buffer} {self.dtype}{list(self.shape)} by {self.way}, {state}>"

    def __enter__(self) -> "Mapping":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.unmap()

    def __reduce__(self) -> Any:
        if self._client is None or self._region is None:
            raise BadType(f"{self!r} is not pickled: pickle what is mapped, or the client and the name")
        return map_again, (self._client, self.buffer, self.mode, self._options, self.etag)

    @property
    def readonly(self) -> bool:
        """True if it was mapped for reading."""
        return self.mode != "write"

    @property
    def alive(self) -> bool:
        """True while the daemon keeps the lease. Without the daemon the bytes can still be read here, but no other
        process shares them."""
        return self._lease.alive

    @property
    def current(self) -> bool:
        """Asks the daemon whether the mapped bytes still are the buffer's content. False if the content was replaced or
        deleted, the lease was ended, or the daemon cannot be reached."""
        found = self._lease.look()
        return found is not None and found.get("state") == "present"

    def load(self, source: str, *, source_offset: int = 0, offset: int = 0, nbytes: Optional[int] = None) -> None:
        """The daemon copies bytes of the buffer ``source`` ("session/buffer", or "buffer" of this session) into the
        mapped memory at ``offset``: ``nbytes``, or all from ``source_offset`` on. The copy is complete when the call
        returns. With ``Client.copy`` for the other direction, a pinned buffer serves as a slab that moves bytes without
        a socket. This must be the only mapping of the buffer; else ``Mapped`` is raised."""
        self._open()
        body: Dict[str, Any] = {"from": source, "from_offset": source_offset, "offset": offset, "in_place": True}
        if nbytes is not None:
            body["bytes"] = nbytes
        self._lease.copy(f"/v1/sessions/{self.session}/buffers/{self.buffer}/copy", body)

    def unmap(self) -> bool:
        """Ends the mapping, like the end of the ``with`` statement. Repeated calls have no effect.

        Returns True if the lease has ended. Returns False if arrays still use the memory; then the last of them ends
        it. Waits for device work that uses the memory."""
        with self._lock:
            region, self._region = self._region, None
            lent = self._lent
        if region is None:
            return not self._lease.alive
        if lent:
            return False  # a user of __cuda_array_interface__ holds this object, and its finalizer holds the region
        self._end.detach()
        return region.end(True)

    def close(self) -> bool:
        """The same as :meth:`unmap`."""
        return self.unmap()

    def _open(self) -> Region:
        region = self._region
        if region is None:
            raise BadArgument(f"{self.session}/{self.buffer} is unmapped")
        return region

    def _host(self) -> memoryview:
        region = self._open()
        if not isinstance(region, HostRegion) or region.view is None:
            raise BadType(f"{self.session}/{self.buffer} is in device memory, which numpy does not reach; "
                          "torch.from_dlpack and cupy.asarray do, and Client.get copies it")
        return region.view

    # --- host memory --------------------------------------------------------------------------------------------------

    def array(self) -> Array:
        """The memory as a numpy array; bfloat16 and float8 need ml_dtypes."""
        return np.frombuffer(self._host(), _dtypes.numpy_dtype(self._elements)).reshape(self.shape)

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        if self._elements not in _dtypes.NUMPY or not isinstance(self._open(), HostRegion):
            # numpy then calls __array__, which raises the reason or converts.
            raise AttributeError("__array_interface__")
        view = self._host()
        # An object with a buffer instead of an address: numpy holds the object, and the object holds the memory.
        return {"shape": self.shape, "typestr": np.dtype(self._elements).str, "data": view[:], "version": 3}

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Array:
        array = self.array()
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise BadArgument(f"an array of {dtype} would be a copy of this one of {array.dtype}")
            return array.astype(dtype)
        return array.copy() if copy else array

    # --- both ---------------------------------------------------------------------------------------------------------

    def __dlpack_device__(self) -> Tuple[int, int]:
        """Kind and number of the device: (1, 0) for host memory, (2, n) for CUDA's device n of this process."""
        return self._open().device

    def __dlpack__(self, *, stream: Optional[int] = None, max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Optional[Tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        """A DLPack capsule. stream: the consumer's stream, which waits on the device for the buffer's queued writes;
        -1: no wait. copy: True for a copy, which is complete and can be written."""
        with self._lock:
            region = self._open()
            if dl_device is not None and tuple(dl_device) != region.device:
                raise BufferError(f"the memory is on DLPack device {region.device}, not {tuple(dl_device)}")
            if isinstance(region, HostRegion) and stream not in (None, -1):
                raise BufferError("host memory is in no stream's order: stream must be None")
            if isinstance(region, DeviceRegion) and stream == 0:
                raise BufferError("stream 0 is ambiguous; give 1 for the legacy default stream, 2 for the thread's")
            if isinstance(region, HostRegion) and not region.harmless and not copy:
                raise BufferError("the system gives this process no pages that are copied when they are written "
                                  "(RLIMIT_DATA, vm.overcommit_memory), so that a write of the consumer would end it: "
                                  "take numpy.asarray, ask for copy=True, or map with mode='write'")
            pointer, owner = region.pointer()
            if not copy:
                capsule = _dlpack.give(owner, pointer, region.device, self._elements, self.shape, self.readonly,
                                       max_version)
        if copy:
            return self._copied(region, pointer, owner, max_version)
        if isinstance(region, DeviceRegion) and stream != -1:
            region.ready(1 if stream is None else stream)
        return capsule

    def _copied(self, region: Region, pointer: int, owner: Any, max_version: Optional[Tuple[int, int]]) -> Any:
        """A capsule over a copy, which the consumer may write."""
        if isinstance(region, DeviceRegion):
            source = _gpu.Tensor(pointer, self.nbytes, self._elements, self.shape, region.device[1], owner)
            made: Any = _gpu.copied(source, region.ready)
            pointer = made.pointer
        else:
            made = owner.copy()
            pointer = made.ctypes.data
        return _dlpack.give(made, pointer, region.device, self._elements, self.shape, False, max_version, True)

    def __jax_array__(self) -> Any:
        """For jax.numpy.asarray, which otherwise would take dtype for numpy's."""
        jax = sys.modules["jax"]
        return jax.numpy.asarray(self.array()) if isinstance(self._open(), HostRegion) else jax.dlpack.from_dlpack(self)

    # --- device memory ------------------------------------------------------------------------------------------------

    @property
    def pointer(self) -> int:
        """The address in this process (see wait_on). It is valid as long as this mapping."""
        return self._open().pointer()[0]

    def wait_on(self, stream: int = 1) -> None:
        """Makes a CUDA stream wait for writes that were queued before the mapping; 1 is the legacy default stream. Only
        users of ``pointer`` need it, and only for device memory."""
        region = self._open()
        if isinstance(region, DeviceRegion):
            region.ready(stream)

    def finish_on(self, stream: int = 1) -> None:
        """Says that the work which is queued on a CUDA stream now is this process's last on the memory; 1 is the legacy
        default stream. The daemon waits for that work before it writes or frees the memory, also if this process ends
        before. For device memory that was mapped with ``finished_event=True``; host memory needs none, and nothing is
        done."""
        region = self._open()
        if isinstance(region, DeviceRegion):
            region.memory.finish_on(stream)

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        with self._lock:
            region = self._region
            if not isinstance(region, DeviceRegion):
                raise AttributeError("__cuda_array_interface__: the memory is the host's, or unmapped")
            if self._elements not in _dtypes.NUMPY:
                raise AttributeError(f"__cuda_array_interface__ has no {self.dtype}; DLPack does: torch.from_dlpack")
            self._lent = True
        region.ready(1)
        return {"shape": self.shape, "typestr": np.dtype(self._elements).str,
                "data": (region.memory.pointer, self.readonly), "version": 3, "strides": None, "stream": 1}


def open_mapping(address: Address, token: Optional[str], timeout: float, epochs: Epochs, path: str,
                 body: Fields[str, Any], wait: Optional[float], access: Sequence[int] = (),
                 client: "Optional[Client]" = None, options: Optional[Fields[str, Any]] = None) -> Mapping:
    """Takes a lease and maps the granted memory; access: other devices that are to reach it. client, options: with
    which a pickled copy maps again."""
    lease = Lease(address, token, timeout, epochs)
    lease.ask(path, body, wait)
    return Mapping(lease, open_region(lease, access), client, options)


def content_of(etag: str) -> str:
    """The part of an entity tag that stays while another process may write the bytes."""
    return etag.partition(".w")[0].strip('"')


def map_again(client: "Client", name: str, mode: str, options: Fields[str, Any], etag: str) -> Mapping:
    """Maps in this process what another one had mapped, with that entity tag."""
    made = client.map(name, mode, **options)
    if mode == "read" and content_of(made.etag) != content_of(etag):
        made.unmap()
        raise PreconditionFailed(f"\"{name}\" has other bytes ({made.etag}) than the process had mapped that the "
                                 f"mapping comes from ({etag}): map it anew there")
    return made
