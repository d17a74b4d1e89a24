"""Arrays on a GPU: those that the client has received, and tensors of a mapped buffer there."""
from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import numpy as np

from . import _arrays, _dlpack, _dtypes, _gpu, _torch
from ._gpu import Tensor, lane
from .errors import BadType, not_pickled


class DeviceArray:
    """An array on a GPU; made by ``Client.get(name, device="cuda:0")`` and by :class:`gpubuf.Tensors`.

    ``torch.from_dlpack(a)``, ``cupy.from_dlpack(a)`` and ``jax.dlpack.from_dlpack(a)`` take it without a copy, and so
    does every consumer of DLPack or ``__cuda_array_interface__``. The memory lives as long as this object or an array
    that was made of it. The bytes are complete; no stream has to wait. An array of ``get`` is this process's own
    memory: later writes of the buffer do not change it. One of a mapping is the buffer's.

    Attributes:
        dtype, shape, nbytes: of the array; the dtype by the daemon's name, such as ``bfloat16``.
        pointer: its address in this process. ordinal: its device, by CUDA's number in this process.
        etag: of the content.
        road: how the bytes came: ``device`` or ``mapping`` (on the device alone), ``host`` (through pinned memory), or
            ``mapped`` (not at all: they are the buffer's own).
        readonly: True for a tensor of a buffer that is mapped for reading.
    """

    def __init__(self, tensor: Tensor, road: str, etag: str, readonly: bool = False) -> None:
        self._tensor, self.readonly = tensor, readonly
        self.dtype, self.nbytes = tensor.dtype, tensor.nbytes
        self.shape, self._strides = tensor.seen
        self.pointer, self.ordinal, self.road, self.etag = tensor.pointer, tensor.ordinal, road, etag

    def __repr__(self) -> str:
        return f"<gpubuf.DeviceArray {self.dtype}{list(self.shape)} on cuda:{self.ordinal}>"

    def __reduce__(self) -> Any:
        raise not_pickled(self, "send array.numpy(), or give the other process the client and the name (client.get, "
                          "client.map)")

    def __dlpack_device__(self) -> Tuple[int, int]:
        """Kind and number of the device: (2, n) for CUDA's device n of this process."""
        return (_dlpack.CUDA, self.ordinal)

    def __dlpack__(self, *, stream: Optional[int] = None, max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Optional[Tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        """A DLPack capsule. No stream has to wait, because the bytes are complete."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the memory is on DLPack device {self.__dlpack_device__()}, not {tuple(dl_device)}: "
                              "give device= to Client.get")
        if stream == 0:
            raise BufferError("stream 0 is ambiguous; give 1 for the legacy default stream, 2 for the thread's")
        tensor = _gpu.copied(self._tensor, lambda _: None) if copy else self._tensor
        return _dlpack.give(tensor, tensor.pointer, self.__dlpack_device__(), self.dtype, self.shape,
                            self.readonly and not copy, max_version, bool(copy), self._strides)

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        if self.dtype not in _dtypes.NUMPY:
            raise AttributeError(f"__cuda_array_interface__ has no {self.dtype}; DLPack does: torch.from_dlpack")
        kind = np.dtype(self.dtype)
        return {"shape": self.shape, "typestr": kind.str, "data": (self.pointer, self.readonly), "version": 3,
                "strides": tuple(n * kind.itemsize for n in self._strides) if self._tensor.axes else None,
                "stream": None}

    def torch(self) -> Any:
        """A tensor of torch over this memory, also of float8 types, which torch's DLPack may lack. torch does not know
        that memory is read-only: see :class:`gpubuf.Mapping`."""
        torch = _torch.module()
        if torch is None:
            raise BadType("a tensor needs torch: import torch first")
        kind = _torch.dtype_of(self.dtype)
        if self.nbytes == 0:
            return torch.empty(self.shape, dtype=kind, device=f"cuda:{self.ordinal}")
        raw = DeviceArray(self._tensor._replace(dtype="uint8", shape=(self.nbytes,), axes=()), self.road, self.etag)
        return torch.from_dlpack(raw).view(kind).as_strided(self.shape, self._strides)

    def numpy(self) -> _arrays.Array:
        """A copy on the host; bfloat16 and float8 need ml_dtypes."""
        array = _arrays.empty(self.dtype, self._tensor.shape, None)
        view, at = _arrays.bytes_of(array), 0
        with lane(self.ordinal) as here:
            for piece in here.down(self.pointer, self.nbytes):
                view[at : at + len(piece)] = piece
                at += len(piece)
        return array.transpose(self._tensor.axes) if self._tensor.axes else array
