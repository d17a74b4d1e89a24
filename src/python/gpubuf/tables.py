"""The tensors of a mapped buffer by their names: one lease, one descriptor, and arrays that are made when asked for."""
from __future__ import annotations

import functools
import gc
import json
import math
import os
import struct
import threading
from collections.abc import Mapping as MappingType
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping as Fields, NamedTuple, Optional, Tuple, Type

import numpy as np

from . import _arrays, _dtypes, _gpu, _torch
from ._regions import DeviceRegion, HostRegion
from .errors import BadArgument, BadType, TensorNotFound, UnsupportedArray
from .mapping import Mapping, map_again
from .tensors import DeviceArray
from .types import ListedTensor

if TYPE_CHECKING:
    from .client import Client

ALIGN = 256  # in memory each tensor begins at a multiple of it
LENGTH = struct.Struct("<Q")  # of the header, in front of it
FIRST = 65536  # bytes of a device's memory that are read at first: most headers are shorter
SHOWN = 3  # names in an error


class Place(NamedTuple):
    """Where a tensor lies in the buffer's memory. kind: its dtype by the file's name, or the daemon's."""

    kind: str
    shape: Tuple[int, ...]
    at: int
    nbytes: int


Entry = Tuple[int, int, str, Tuple[int, ...]]  # of a header: where the bytes begin and end in the file, dtype, shape


def _entry(given: Dict[str, Any]) -> Any:
    """The entry of a tensor; the header itself and its metadata as they are. Tens of thousands of dicts and lists that
    stayed would be work for the garbage collector for ever; tuples of numbers and texts are not."""
    offsets = given.get("data_offsets")
    if not isinstance(offsets, list):
        return given
    begin, end = offsets
    return begin, end, given["dtype"], tuple(given["shape"])


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the garbage collector: new objects would make it look through all of a process with torch, which takes
    longer than a header of tens of thousands of tensors."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Table:
    """What lies in a buffer: the names of the tensors in the order of their bytes, then the aliases, which are further
    names of tensors."""

    def __init__(self, entries: Dict[str, Entry], at: List[int], metadata: Dict[str, str]) -> None:
        self._entries, self._at, self.metadata = list(entries.values()), at, metadata
        self.rows = dict(zip(entries, range(len(entries))))
        self.aliases = {name: of for name, of in sorted(metadata.items())
                        if name and of in self.rows and name not in self.rows}
        self.rows.update({name: self.rows[of] for name, of in self.aliases.items()})

    def place(self, name: str) -> Place:
        row = self.rows[name]
        begin, end, kind, shape = self._entries[row]
        return Place(kind, shape, self._at[row], end - begin)


@functools.lru_cache(None)
def _known(kind: str) -> Tuple[str, int]:
    """The daemon's name of a dtype, and the bytes of an element. Raises TypeError for what is none."""
    dtype = _dtypes.OF_SAFETENSORS.get(kind, kind)
    return dtype, _dtypes.width(dtype)


def _aligned(at: Any) -> Any:
    return (at + ALIGN - 1) // ALIGN * ALIGN


def _ends(entries: Dict[str, Entry]) -> Tuple[_arrays.Array, _arrays.Array]:
    """Where the bytes of each tensor begin and end in the file."""
    return (np.array([entry[0] for entry in entries.values()], np.int64),
            np.array([entry[1] for entry in entries.values()], np.int64))


def _follow(begins: _arrays.Array, ends: _arrays.Array) -> bool:
    """Whether each tensor begins where the one before it ends."""
    return bool((begins == np.concatenate(([0], ends))[:-1]).all() and (ends >= begins).all())


def _placed(head: int, parsed: Dict[str, Any], nbytes: int) -> Table:
    """The table of a header in memory of that many bytes. Raises ValueError or TypeError if it is none."""
    metadata = dict(parsed.pop("__metadata__", None) or {})
    entries: Dict[str, Entry] = parsed
    begins, ends = _ends(entries)
    if not _follow(begins, ends) or (begins == ends).any():
        entries = dict(sorted(parsed.items(), key=lambda item: (*item[1][:2], item[0])))
        begins, ends = _ends(entries)
        if not _follow(begins, ends):
            raise ValueError("its tensors do not follow each other")
    room = _aligned(ends - begins)
    at = _aligned(head) + np.cumsum(room) - room
    # One without bytes has no gap before it: it lies where the last byte before it ends.
    filled = np.maximum.accumulate(np.concatenate(([head], np.where(ends > begins, at + (ends - begins), head))))
    if filled[-1] != nbytes:
        raise ValueError(f"its tensors end at byte {filled[-1]} of {nbytes}")
    return Table(entries, np.where(ends > begins, at, filled[:-1]).tolist(), metadata)


class _Memory:
    """The bytes of a mapping. It begins with the header of a table."""

    def __init__(self, mapped: Mapping) -> None:
        self.mapped, self.region = mapped, mapped._open()
        self._bytes: Any = None  # the whole memory, for torch
        self._kinds: Dict[str, "np.dtype[Any]"] = {}
        if isinstance(self.region, DeviceRegion):
            # Waits until all writes that were queued before are complete; no stream has to wait for them afterwards.
            with _gpu.lane(self.region.device[1]) as here:
                self.region.ready(here.stream)
                here.sync()

    def read(self, at: int, nbytes: int) -> bytes:
        if isinstance(self.region, HostRegion):
            return bytes((self.region.view or b"")[at : at + nbytes])
        with _gpu.lane(self.region.device[1]) as here:
            return here.read(self.region.memory.pointer + at, nbytes)

    def head(self) -> Tuple[int, bytes]:
        """How long the length and the header are, and the header. Raises ValueError if they do not fit."""
        total = self.mapped.nbytes
        first = self.read(0, min(LENGTH.size if isinstance(self.region, HostRegion) else FIRST, total))
        if len(first) < LENGTH.size:
            raise ValueError("it is too short")
        end = LENGTH.size + int(LENGTH.unpack_from(first)[0])
        if end > total:
            raise ValueError("its header would be longer than the buffer")
        have = first[LENGTH.size : end]
        more = end - LENGTH.size - len(have)
        return end, have + self.read(LENGTH.size + len(have), more) if more else have

    def table(self) -> Table:
        m = self.mapped
        if m.dtype != _dtypes.TABLE:
            return Table({m.buffer: (0, m.nbytes, m.dtype, m.shape)}, [0], {})
        try:
            end, text = self.head()
            with _uncollected():
                parsed = json.loads(text, object_hook=_entry)
                if not isinstance(parsed, dict):
                    raise ValueError("its header is no JSON object")
                return _placed(end, parsed, m.nbytes)
        except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as e:
            raise UnsupportedArray(f"the table at the beginning of \"{m.buffer}\" was overwritten: {e}; upload the "
                                   "file again, or take the bytes with get(raw=True)") from e

    def array(self, place: Place, dtype: str) -> Any:
        region = self.mapped._open()
        if isinstance(region, DeviceRegion):
            pointer, owner = region.pointer()
            tensor = _gpu.Tensor(pointer + place.at if place.nbytes else 0, place.nbytes, dtype, place.shape,
                                 region.device[1], owner)
            return DeviceArray(tensor, "mapped", self.mapped.etag, self.mapped.readonly)
        kind = self._kinds.get(dtype)
        if kind is None:
            kind = self._kinds[dtype] = _dtypes.numpy_dtype(dtype, "take a tensor of torch: t.torch(name)")
        if place.nbytes == 0:
            return np.empty(place.shape, kind)
        # numpy.ndarray of a buffer would not hold it.
        return np.frombuffer(self.mapped._host(), kind, place.nbytes // kind.itemsize, place.at).reshape(place.shape)

    def tensor(self, place: Place, dtype: str) -> Any:
        if self._bytes is None:
            self._bytes = _torch.over(self.mapped, self.mapped._open())
        return _torch.part(self._bytes, place.at, place.nbytes, dtype, place.shape)

    def forget(self) -> None:
        """Drops what keeps the memory mapped."""
        self._bytes = None


class _Now(NamedTuple):
    """What a process has open."""

    pid: int
    memory: _Memory
    table: Table


_opening = threading.Lock()  # of a mapping that another process had made first


def _in_a_child() -> None:
    global _opening
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_in_a_child)


class Tensors(MappingType[str, Any]):
    """The tensors of a buffer by their names, over one mapping of its memory; made by :meth:`gpubuf.Client.tensors`.

    ``t["w"]`` is a numpy array if the memory is the host's, and a :class:`gpubuf.DeviceArray` on a GPU, which torch,
    CuPy and jax take by DLPack. ``t.torch("w")`` is a tensor of torch in both cases, ``t.torch()`` a dict of all. Each
    is made when it is asked for, without a copy. The names are in the order of the bytes; aliases are behind them. A
    buffer that is one tensor has that one, by the buffer's name.

    With mode="read" numpy arrays and DeviceArrays are read-only, and tensors of torch are not to be written: torch
    knows no read-only memory. On the host a write goes into a copy of the page, which this process alone has. On a GPU
    it is an error of CUDA that ends the use of the device by this process, or with the ways pool and legacy it changes
    the buffer. With mode="write" all see what is written.

    There is one lease, which lasts until the ``with`` statement has ended (or :meth:`close` was called) and no array
    uses the memory; arrays remain valid after that. A replacement or deletion of the buffer does not change the bytes
    here; ``t.mapping.current`` says whether they still are the buffer's.

    Pickled, and in a child of fork, it maps again at its first use, with a lease of that process: it serves in torch's
    DataLoader by fork and by spawn. With mode="read" it raises PreconditionFailed there if the buffer has other bytes
    by then. On a GPU a child of fork cannot use CUDA (Unsupported). Any thread may use it.

    Attributes:
        session, buffer: the daemon's names. mode: ``read`` or ``write``.
    """

    def __init__(self, client: "Client", name: str, mode: str, options: Fields[str, Any],
                 etag: Optional[str] = None) -> None:
        """etag: of the content that another process had mapped; then this one maps at the first use."""
        self.session, self.buffer, self.mode = client.session, name, mode
        self._client, self._options, self._etag, self._closed = client, options, etag, False
        self._now: Optional[_Now] = None
        self._ended: Optional[Mapping] = None
        if etag is None:
            self._now = self._mapped(client.map(name, mode, **options))
            self._etag = self._now.memory.mapped.etag

    def _mapped(self, mapped: Mapping) -> _Now:
        try:
            memory = _Memory(mapped)
            return _Now(os.getpid(), memory, memory.table())
        except BaseException:
            mapped.unmap()
            raise

    def _open(self) -> _Now:
        """What this process has open; it maps if another process did."""
        now = self._now
        if now is not None and now.pid == os.getpid():
            return now
        with _opening:
            if self._closed:
                raise BadArgument(f"the tensors of {self.session}/{self.buffer} are closed")
            now = self._now
            if now is None or now.pid != os.getpid():
                assert self._etag is not None
                now = self._now = self._mapped(map_again(self._client, self.buffer, self.mode, self._options,
                                                         self._etag))
            return now

    def __enter__(self) -> "Tensors":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def __reduce__(self) -> Any:
        if self._closed:
            raise BadType(f"{self!r} is not pickled")
        return Tensors, (self._client, self.buffer, self.mode, self._options, self._etag)

    def __repr__(self) -> str:
        now = self._now
        if now is None or now.pid != os.getpid():
            return f"<gpubuf.Tensors {self.session}/{self.buffer}, {'closed' if self._closed else 'not mapped yet'}>"
        m = now.memory.mapped
        return (f"<gpubuf.Tensors {self.session}/{self.buffer}: {len(now.table.rows)} tensors, {m.nbytes} bytes by "
                f"{m.way}, {self.mode}>")

    def close(self) -> bool:
        """Ends the mapping, like the end of the ``with`` statement. Repeated calls have no effect.

        Returns True if the lease has ended. Returns False if arrays still use the memory; then the last of them ends
        it."""
        with _opening:
            now, self._now, self._closed = self._now, None, True
            if now is not None:
                self._ended = now.memory.mapped
                now.memory.forget()
        return self._ended is None or self._ended.unmap()

    @property
    def mapping(self) -> Mapping:
        """The mapping of the buffer's memory: its etag, generation, device, lease, and whether it is current."""
        return self._open().memory.mapped

    @property
    def metadata(self) -> Dict[str, str]:
        """The ``__metadata__`` of the file; a copy."""
        return dict(self._open().table.metadata)

    @property
    def nbytes(self) -> int:
        """The bytes of the buffer's memory."""
        return self._open().memory.mapped.nbytes

    # --- names --------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._open().table.rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self._open().table.rows)

    def __contains__(self, name: object) -> bool:
        return name in self._open().table.rows

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def _place(self, now: _Now, name: str) -> Tuple[Place, str]:
        """The place of a tensor, and its dtype by the daemon's name."""
        try:
            place = now.table.place(name)
        except (KeyError, TypeError):
            there = ", ".join(map(repr, list(now.table.rows)[:SHOWN])) or "none"
            more = len(now.table.rows) - SHOWN
            raise TensorNotFound(f"the buffer \"{self.buffer}\" has no tensor named {name!r}; there are {there}"
                                 f"{f' and {more} more' if more > 0 else ''}") from None
        try:
            dtype, width = _known(place.kind)
            whole = {int}.issuperset(map(type, place.shape)) and min(place.shape, default=0) >= 0
            if whole and math.prod(place.shape) * width == place.nbytes:
                return place, dtype
        except TypeError:
            pass  # what stands there is no type
        raise UnsupportedArray(f"the table at the beginning of \"{self.buffer}\" was overwritten: {name!r} of "
                               f"{place.kind!r} {list(place.shape)} has {place.nbytes} bytes; upload the file again")

    def info(self, name: str) -> ListedTensor:
        """Name, dtype, shape, bytes and offset of a tensor, as ``Client.list_tensors`` has them. The memory is not
        touched."""
        now = self._open()
        place, dtype = self._place(now, name)
        found = ListedTensor(name=name, dtype=dtype, shape=list(place.shape), bytes=place.nbytes, offset=place.at)
        if name in now.table.aliases:
            found["alias_of"] = now.table.aliases[name]
        return found

    # --- arrays -------------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        now = self._open()
        return now.memory.array(*self._place(now, name))

    def torch(self, name: Optional[str] = None) -> Any:
        """A tensor of torch over the memory, or a dict of all by their names, in which an alias has the very tensor.
        They need no gradients. torch has to be imported already."""
        now = self._open()
        if name is not None:
            return now.memory.tensor(*self._place(now, name))
        aliases = now.table.aliases
        found = {one: now.memory.tensor(*self._place(now, one)) for one in now.table.rows if one not in aliases}
        return {**found, **{one: found[of] for one, of in aliases.items()}}
