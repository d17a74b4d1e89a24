"""The tensors of a mapped buffer by their names: one lease, one descriptor, and arrays that are made when asked for."""
from __future__ import annotations

import functools
import gc
import json
import math
import os
import re
import struct
import threading
from collections.abc import Mapping as MappingType
from collections.abc import Sequence as SequenceType
from contextlib import contextmanager
from types import TracebackType
from typing import (TYPE_CHECKING, Any, Dict, Iterator, List, Mapping as Fields, NamedTuple, Optional, Sequence, Tuple,
                    Type, cast)

import numpy as np

from . import _arrays, _dtypes, _gpu, _models, _safetensors, _torch
from ._regions import DeviceRegion, HostRegion
from .errors import BadArgument, BadType, BufferNotFound, PreconditionFailed, TensorNotFound, UnsupportedArray
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
    """Where a tensor lies in the buffer's memory. kind: its dtype by the file's name, or the daemon's. shape: as it
    lies there. axes: those of the array, by their places in shape; empty: the same."""

    kind: str
    shape: Tuple[int, ...]
    at: int
    nbytes: int
    axes: Tuple[int, ...]

    @property
    def seen(self) -> List[int]:
        """The shape of the array."""
        return [self.shape[axis] for axis in self.axes] if self.axes else list(self.shape)


class _Columns(NamedTuple):
    """A header: of each tensor its name, dtype, shape (or the text of it), and where its bytes begin and end in the
    file. An object of each tensor would be work for the garbage collector for ever; columns of texts are not."""

    names: Sequence[str]
    kinds: Sequence[str]
    shapes: Sequence[Any]
    begins: _arrays.Array
    ends: _arrays.Array
    metadata: Dict[str, str]


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

    def __init__(self, columns: _Columns, at: _arrays.Array) -> None:
        self._columns, self._at, self.metadata = columns, at, columns.metadata
        self.rows = dict(zip(columns.names, range(len(columns.names))))
        self.aliases = {name: of for name, of in sorted(self.metadata.items())
                        if name and of in self.rows and name not in self.rows}
        self._axes = {self.rows[name]: _safetensors.inverse_of(order)
                      for name, order in _safetensors.orders_of(self.metadata).items() if name in self.rows}
        self.rows.update({name: self.rows[of] for name, of in self.aliases.items()})

    def place(self, name: str) -> Place:
        row, columns = self.rows[name], self._columns
        shape = columns.shapes[row]
        if isinstance(shape, str):
            shape = _shape(shape)
        axes = self._axes.get(row, ())
        return Place(columns.kinds[row], shape, int(self._at[row]), int(columns.ends[row] - columns.begins[row]),
                     axes if len(axes) == len(shape) else ())


FRONT = re.compile(rb'\{\s*(?:"__metadata__"\s*:\s*(?=\{))?')
NEXT = re.compile(rb"\s*,\s*")
LAST = re.compile(rb'":( ?)\[(\d+, ?\d+)\]\}\s*\}\s*')
QUOTES = 10  # of a tensor
TO_BLANKS = bytes(c if chr(c).isdigit() else ord(" ") for c in range(128)).ljust(256)
OF_OFFSETS = b"0123456789, "
PAD = 64  # more than the longest text that is compared


class _Texts(SequenceType[str]):
    """A piece of a text for each tensor, which is cut out when it is asked for."""

    def __init__(self, raw: bytes, begins: _arrays.Array, ends: _arrays.Array) -> None:
        self._raw, self._begins, self._ends = raw, begins, ends

    def __len__(self) -> int:
        return len(self._begins)

    def __getitem__(self, row: Any) -> Any:
        return self._raw[self._begins[row] : self._ends[row]].decode()


@functools.lru_cache(4096)
def _shape(text: str) -> Tuple[int, ...]:
    try:
        return tuple(json.loads(f"[{text}]"))
    except ValueError:
        return (-1,)  # which no tensor has


def _stands(words: _arrays.Array, at: _arrays.Array, text: bytes) -> bool:
    """Whether the text stands at all of these places. words: eight bytes from each place on."""
    for i in range(0, len(text), 8):
        part = text[i : i + 8]
        mask, wanted = (1 << 8 * len(part)) - 1, int.from_bytes(part, "little")
        if ((words[at + i] & np.uint64(mask)) != np.uint64(wanted)).any():
            return False
    return True


def _metadata(text: bytes, at: int) -> Tuple[Dict[str, str], int]:
    """The metadata that begins there, and where what follows them begins; -1: nothing does."""
    decoded = text[at:].decode()
    metadata, n = json.JSONDecoder().raw_decode(decoded)
    behind = NEXT.match(text, at + len(decoded[:n].encode()))
    return metadata, behind.end() if behind is not None else -1


def _split(text: bytes) -> Optional[_Columns]:
    """The columns of a header in the form that its writers give it, found by its quotation marks, without an object of
    each tensor. None of another one, which json reads."""
    front, metadata = FRONT.match(text), cast(Dict[str, str], {})
    at = front.end() if front is not None else -1
    if front is not None and text.startswith(b"{", at):
        metadata, at = _metadata(text, at)
    if at < 0 or text.find(b"\\", at) >= 0:  # behind a \\ a quotation mark ends no text
        return None
    raw = text[at:] + bytes(PAD)
    found = np.flatnonzero(np.frombuffer(raw, np.uint8) == ord('"'))
    if not len(found) or found[0] != 0 or len(found) % QUOTES:
        return None
    quotes = found.reshape(-1, QUOTES).T  # one row for each of a tensor's
    last = LAST.fullmatch(raw, int(quotes[9][-1]), len(raw) - PAD)
    return _cut(raw, quotes, last, metadata) if last is not None else None


def _cut(raw: bytes, quotes: _arrays.Array, last: "re.Match[bytes]", metadata: Dict[str, str]) -> Optional[_Columns]:
    blank = last[1]
    words: _arrays.Array = np.ndarray((len(raw) - 7,), "<u8", raw, strides=(1,))
    before = [b'":' + blank + b'{"dtype":' + blank + b'"', b'",' + blank + b'"shape":' + blank + b"[",
              b"]," + blank + b'"data_offsets":' + blank + b"["]
    n, places = len(blank), (quotes[1], quotes[5], quotes[8] - 2 - len(blank))
    end = quotes[0][1:] - 3 - n  # of the offsets, but the last ones
    if (not all(_stands(words, at, text) for at, text in zip(places, before)) or not _stands(words, end, b"]}," + blank)
        or (quotes[4] - quotes[1] != len(before[0]) - 1).any() or (quotes[9] - quotes[8] != 13).any()
        or (quotes[7] - quotes[5] != 8 + n).any()):
        return None
    begins = (quotes[9] + 3 + n)[:-1]
    pieces = [raw[begin:stop] for begin, stop in zip(begins.tolist(), end.tolist())]
    offsets = b" ".join([*pieces, last[2]])
    numbers = np.fromstring(offsets.translate(TO_BLANKS), np.int64, sep=" ")
    if offsets.translate(None, OF_OFFSETS) or len(numbers) != 2 * quotes.shape[1]:
        return None
    names = [raw[begin:stop].decode() for begin, stop in zip((quotes[0] + 1).tolist(), quotes[1].tolist())]
    if "__metadata__" in names:
        return None
    kinds = _Texts(raw, quotes[4] + 1, quotes[5])
    return _Columns(names, kinds, _Texts(raw, quotes[7] + 3 + n, places[2]), numbers[::2], numbers[1::2], metadata)


def _parsed(text: bytes) -> _Columns:
    """The columns of any header. Raises ValueError, LookupError or TypeError if it is none."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("its header is no JSON object")
    metadata = dict(found.pop("__metadata__", None) or {})
    tensors = list(found.values())
    return _Columns(list(found), [t["dtype"] for t in tensors], [tuple(t["shape"]) for t in tensors],
                    np.array([t["data_offsets"][0] for t in tensors], np.int64),
                    np.array([t["data_offsets"][1] for t in tensors], np.int64), metadata)


@functools.lru_cache(None)
def _known(kind: str) -> Tuple[str, int]:
    """The daemon's name of a dtype, and the bytes of an element. Raises TypeError for what is none."""
    dtype = _dtypes.OF_SAFETENSORS.get(kind, kind)
    return dtype, _dtypes.width(dtype)


def _aligned(at: Any) -> Any:
    return (at + ALIGN - 1) // ALIGN * ALIGN


def _follow(begins: _arrays.Array, ends: _arrays.Array) -> bool:
    """Whether each tensor begins where the one before it ends."""
    return bool((begins == np.concatenate(([0], ends))[:-1]).all() and (ends >= begins).all())


def _sorted(columns: _Columns) -> _Columns:
    """In the order of the bytes."""
    begins, ends, names = columns.begins.tolist(), columns.ends.tolist(), columns.names
    rows = sorted(range(len(names)), key=lambda row: (begins[row], ends[row], names[row]))
    return _Columns([names[row] for row in rows], [columns.kinds[row] for row in rows],
                    [columns.shapes[row] for row in rows], columns.begins[rows], columns.ends[rows], columns.metadata)


def _placed(head: int, columns: _Columns, nbytes: int) -> Table:
    """The table of a header in memory of that many bytes. Raises ValueError if it is none."""
    if not _follow(columns.begins, columns.ends) or (columns.begins == columns.ends).any():
        columns = _sorted(columns)
        if not _follow(columns.begins, columns.ends):
            raise ValueError("its tensors do not follow each other")
    begins, ends = columns.begins, columns.ends
    room = _aligned(ends - begins)
    at = _aligned(head) + np.cumsum(room) - room
    # One without bytes has no gap before it: it lies where the last byte before it ends.
    filled = np.maximum.accumulate(np.concatenate(([head], np.where(ends > begins, at + (ends - begins), head))))
    if filled[-1] != nbytes:
        raise ValueError(f"its tensors end at byte {filled[-1]} of {nbytes}")
    return Table(columns, np.where(ends > begins, at, filled[:-1]))


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
            alone = np.array([0], np.int64)
            return Table(_Columns([m.buffer], [m.dtype], [m.shape], alone, np.array([m.nbytes], np.int64), {}), alone)
        try:
            end, text = self.head()
            with _uncollected():
                return _placed(end, _split(text) or _parsed(text), m.nbytes)
        except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as e:
            raise UnsupportedArray(f"the table at the beginning of \"{m.buffer}\" was overwritten: {e}; upload the "
                                   "file again, or take the bytes with get(raw=True)") from e

    def array(self, place: Place, dtype: str) -> Any:
        region = self.mapped._open()
        if isinstance(region, DeviceRegion):
            pointer, owner = region.pointer()
            tensor = _gpu.Tensor(pointer + place.at if place.nbytes else 0, place.nbytes, dtype, place.shape,
                                 region.device[1], owner, place.axes)
            return DeviceArray(tensor, "mapped", self.mapped.etag, self.mapped.readonly)
        kind = self._kinds.get(dtype)
        if kind is None:
            kind = self._kinds[dtype] = _dtypes.numpy_dtype(dtype, "take a tensor of torch: t.torch(name)")
        if place.nbytes == 0:
            flat = np.empty(0, kind)
        else:  # numpy.ndarray of a buffer would not hold it
            flat = np.frombuffer(self.mapped._host(), kind, place.nbytes // kind.itemsize, place.at)
        lies = flat.reshape(place.shape)
        return lies.transpose(place.axes) if place.axes else lies

    def tensor(self, place: Place, dtype: str) -> Any:
        if self._bytes is None:
            self._bytes = _torch.over(self.mapped, self.mapped._open())
        lies = _torch.part(self._bytes, place.at, place.nbytes, dtype, place.shape)
        return lies.permute(place.axes) if place.axes else lies

    def forget(self) -> None:
        """Drops what keeps the memory mapped."""
        self._bytes = None


class _Part(NamedTuple):
    """A mapped buffer, which is all or one file of a model."""

    memory: _Memory
    table: Table


def _part_of(mapped: Mapping) -> _Part:
    try:
        memory = _Memory(mapped)
        return _Part(memory, memory.table())
    except BaseException:
        mapped.unmap()
        raise


class _Now:
    """What a process has open. index: the entity tag of a model's document; None of a buffer."""

    def __init__(self, parts: Sequence[_Part], index: Optional[str] = None) -> None:
        self.pid, self.parts, self.index = os.getpid(), parts, index
        self.rows: Dict[str, int] = parts[0].table.rows  # whose keys are the names
        if len(parts) > 1:
            self._join()

    def _join(self) -> None:
        own: Dict[str, int] = {}
        self.rows = {}
        for i, part in enumerate(self.parts):
            for name in part.table.rows:
                self.rows.setdefault(name, i)
                if name not in part.table.aliases and own.setdefault(name, i) != i:
                    first = self.parts[own[name]].memory.mapped.buffer
                    raise BadArgument(f"\"{first}\" and \"{part.memory.mapped.buffer}\" both have a tensor "
                                      f"{name!r}")
        self.rows.update(own)  # before an alias that is called as a tensor of another file

    def part(self, name: str) -> _Part:
        return self.parts[self.rows[name] if len(self.parts) > 1 else 0]

    @property
    def mappings(self) -> Tuple[Mapping, ...]:
        return tuple(part.memory.mapped for part in self.parts)


class _Was(NamedTuple):
    """What another process had open: the tag of a model's index, and each buffer with its entity tag."""

    model: Optional[str]
    parts: Sequence[Tuple[str, str]]


_opening = threading.Lock()  # of a mapping that another process had made first


def _in_a_child() -> None:
    global _opening
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_in_a_child)


class Tensors(MappingType[str, Any]):
    """The tensors of a buffer by their names, over one mapping of its memory, or those of a model in several files,
    over one mapping of each; made by :meth:`gpubuf.Client.tensors`.

    ``t["w"]`` is a numpy array if the memory is the host's, and a :class:`gpubuf.DeviceArray` on a GPU, which torch,
    CuPy and jax take by DLPack. ``t.torch("w")`` is a tensor of torch in both cases, ``t.torch()`` a dict of all. Each
    is made when it is asked for, without a copy. The names are in the order of the bytes, file by file; aliases are
    behind them. A buffer that is one tensor has that one, by the buffer's name.

    With mode="read" numpy arrays and DeviceArrays are read-only, and tensors of torch are not to be written: torch
    knows no read-only memory. On the host a write goes into a copy of the page, which this process alone has. On a GPU
    it is an error of CUDA that ends the use of the device by this process, or with the ways pool and legacy it changes
    the buffer. With mode="write" all see what is written.

    There is one lease (one of each file), which lasts until the ``with`` statement has ended (or :meth:`close` was
    called) and no array uses the memory; arrays remain valid after that. A replacement or deletion of the buffer does
    not change the bytes here; ``t.current`` says whether they still are the buffer's.

    Pickled, and in a child of fork, it maps again at its first use, with a lease of that process: it serves in torch's
    DataLoader by fork and by spawn. With mode="read" it raises PreconditionFailed there if the buffer has other bytes
    by then. On a GPU a child of fork cannot use CUDA (Unsupported). Any thread may use it.

    Attributes:
        session, buffer: the daemon's names; buffer may be that of a model. mode: ``read`` or ``write``.
    """

    def __init__(self, client: "Client", name: str, mode: str, options: Fields[str, Any],
                 was: Optional[_Was] = None) -> None:
        """was: what another process had mapped; then this one maps at the first use."""
        self.session, self.buffer, self.mode = client.session, name, mode
        self._client, self._options, self._was, self._closed = client, options, was, False
        self._now: Optional[_Now] = None
        self._ended: Tuple[Mapping, ...] = ()
        if was is None:
            now = self._now = self._mapped()
            self._was = _Was(now.index, tuple((m.buffer, m.etag) for m in now.mappings))

    def _map(self, buffer: str) -> Mapping:
        return self._client.map(buffer, self.mode, **self._options)

    def _mapped(self) -> _Now:
        try:
            return _Now([_part_of(self._map(self.buffer))])
        except BufferNotFound as e:
            return _models.whole(self._client, self.buffer, e, self._model)

    def _model(self, model: _models.Model) -> _Now:
        parts: List[_Part] = []
        try:
            for file in model.files:
                parts.append(_part_of(_models.of_file(model, file, self._map)))
            return _Now(parts, model.etag)
        except BaseException:
            for part in parts:
                part.memory.mapped.unmap()
            raise

    def _again(self, was: _Was) -> _Now:
        """Maps what another process had mapped."""
        if self.mode == "write" and was.model is not None:
            return self._mapped()
        parts: List[_Part] = []
        try:
            for buffer, etag in was.parts:
                parts.append(_part_of(map_again(self._client, buffer, self.mode, self._options, etag)))
            return _Now(parts, was.model)
        except BaseException as e:
            for part in parts:
                part.memory.mapped.unmap()
            if was.model is not None and isinstance(e, BufferNotFound):
                raise PreconditionFailed(f"the model \"{self.buffer}\" is another one than the process had mapped that "
                                         "the tensors come from: take them anew") from e
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
                assert self._was is not None
                now = self._now = self._again(self._was)
            return now

    def __enter__(self) -> "Tensors":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def __reduce__(self) -> Any:
        if self._closed:
            raise BadType(f"{self!r} is not pickled")
        return Tensors, (self._client, self.buffer, self.mode, self._options, self._was)

    def __repr__(self) -> str:
        now = self._now
        if now is None or now.pid != os.getpid():
            return f"<gpubuf.Tensors {self.session}/{self.buffer}, {'closed' if self._closed else 'not mapped yet'}>"
        files = f" in {len(now.parts)} files" if now.index is not None else ""
        return (f"<gpubuf.Tensors {self.session}/{self.buffer}: {len(now.rows)} tensors{files}, {self.nbytes} bytes by "
                f"{now.mappings[0].way}, {self.mode}>")

    def close(self) -> bool:
        """Ends the mapping, like the end of the ``with`` statement. Repeated calls have no effect.

        Returns True if the lease has ended. Returns False if arrays still use the memory; then the last of them ends
        it."""
        with _opening:
            now, self._now, self._closed = self._now, None, True
            if now is not None:
                self._ended = now.mappings
                for part in now.parts:
                    part.memory.forget()
        return all([mapped.unmap() for mapped in self._ended])

    @property
    def mapping(self) -> Mapping:
        """The mapping of the buffer's memory: its etag, generation, device, lease, and whether it is current."""
        mappings = self._open().mappings
        if len(mappings) > 1:
            raise BadArgument(f"the model \"{self.buffer}\" has {len(mappings)} mappings: t.mappings")
        return mappings[0]

    @property
    def mappings(self) -> Tuple[Mapping, ...]:
        """The mapping of each file of a model; of a buffer, its one."""
        return self._open().mappings

    @property
    def current(self) -> bool:
        """Asks the daemon whether the bytes still are the buffer's content, or the files those that the model has."""
        now = self._open()
        if now.index is not None:
            model = _models.find(self._client, self.buffer)
            if model is None or model.etag != now.index:
                return False
        return all(mapped.current for mapped in now.mappings)

    @property
    def metadata(self) -> Dict[str, str]:
        """The ``__metadata__`` of the file, or of all files of a model, of which the first one counts; a copy."""
        found: Dict[str, str] = {}
        for part in reversed(self._open().parts):
            found.update(part.table.metadata)
        return found

    @property
    def nbytes(self) -> int:
        """The bytes of the memory."""
        return sum(mapped.nbytes for mapped in self._open().mappings)

    # --- names --------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._open().rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self._open().rows)

    def __contains__(self, name: object) -> bool:
        return name in self._open().rows

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def _place(self, now: _Now, name: str) -> Tuple[_Part, Place, str]:
        """A tensor's part, place, and dtype by the daemon's name."""
        try:
            part = now.part(name)
            place = part.table.place(name)
        except (KeyError, TypeError):
            there = ", ".join(map(repr, list(now.rows)[:SHOWN])) or "none"
            more = len(now.rows) - SHOWN
            what = "buffer" if now.index is None else "model"
            raise TensorNotFound(f"the {what} \"{self.buffer}\" has no tensor named {name!r}; there are {there}"
                                 f"{f' and {more} more' if more > 0 else ''}") from None
        try:
            dtype, width = _known(place.kind)
            whole = {int}.issuperset(map(type, place.shape)) and min(place.shape, default=0) >= 0
            if whole and math.prod(place.shape) * width == place.nbytes:
                return part, place, dtype
        except TypeError:
            pass  # what stands there is no type
        raise UnsupportedArray(f"the table at the beginning of \"{part.memory.mapped.buffer}\" was overwritten: "
                               f"{name!r} of {place.kind!r} {list(place.shape)} has {place.nbytes} bytes; upload the "
                               "file again")

    def info(self, name: str) -> ListedTensor:
        """Name, dtype, shape, bytes and offset of a tensor, as ``Client.list_tensors`` has them; of a model also the
        buffer that has it. The shape is the array's, if ``put_state_dict(strides=True)`` has put it. The memory is not
        touched."""
        now = self._open()
        part, place, dtype = self._place(now, name)
        found = ListedTensor(name=name, dtype=dtype, shape=place.seen, bytes=place.nbytes, offset=place.at)
        if name in part.table.aliases:
            found["alias_of"] = part.table.aliases[name]
        if now.index is not None:
            found["buffer"] = part.memory.mapped.buffer
        return found

    # --- arrays -------------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        part, place, dtype = self._place(self._open(), name)
        return part.memory.array(place, dtype)

    def torch(self, name: Optional[str] = None) -> Any:
        """A tensor of torch over the memory, or a dict of all by their names, in which an alias has the very tensor.
        They need no gradients. torch has to be imported already."""
        now = self._open()
        if name is not None:
            return self._tensor(now, name)
        of = {one: now.part(one).table.aliases.get(one, one) for one in now.rows}
        found = {one: self._tensor(now, one) for one in now.rows if of[one] == one}
        return {one: found[of[one]] for one in now.rows}

    def _tensor(self, now: _Now, name: str) -> Any:
        part, place, dtype = self._place(now, name)
        return part.memory.tensor(place, dtype)
