"""The client: uploads and downloads of arrays as named buffers, and operations on buffers."""
from __future__ import annotations

import base64
import copy
import os
import time
from collections.abc import Mapping as MappingType
from collections.abc import Sequence as SequenceType
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from itertools import islice
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Type, Union, cast

from . import _arrays, _gpu, _kinds, _models, _parts, _resume, _roads, _safetensors, _state, _tls, _torch, _values
from ._address import choose, find_socket, map_socket, of_socket
from ._arrays import Array, Key, Payload, Shape, shape_list
from ._asker import Asker, Left, Moment, conditions, given, path_of, query_of, span, tagged, words
from ._collections import Devices, Events, Leases, Operations, Pools, Sessions, Streams
from ._dtypes import Dtype, given_name, name_of
from ._feed import Feed
from ._names import Names
from ._http import Progress, Transport
from .adoption import Adoption, Offer, offer_of, open_adoption, shared_array
from .errors import (BadArgument, BadType, BufferBusy, BufferNotFound, NotLoaded, PreconditionFailed, TensorNotFound,
                     TimedOut, error_of)
from .mapping import Mapping as Mapped
from .mapping import open_mapping
from .tables import Tensors
from .types import (AuditRecord, BatchReply, Buffer, Exported, LastTransfer, ListedBuffer, ListedTensor, Loaded,
                    ModelPut, Operation, Put, Scrubbed, Storage, Stored, TensorGiven, Verified)

BUSY_S = 2.0  # the daemon commits a grant for writing to the database; a retry comes after that
LOADS_MAX = 3  # loads of one put: the buffer may have to leave memory again before the bytes come
LOAD_S = 60  # a store may take as long, and so may the daemon's wait for a load
SCRUB_S = 24 * 3600.0
PULL_S = 7 * 86400  # a copy from another daemon is answered when all is there
RAW = {"Content-Type": "application/octet-stream"}


class Client(Names):
    """A daemon, and one of its sessions.

    Args:
        url: ``https://HOST:PORT``, ``http://HOST:PORT``, the same without ``http://``, or
            ``unix:///path/to/gpubufd.sock``.
        socket: path of the daemon's UNIX socket, for all requests if no url is given, else only for ``map``; default
            ``GPUBUF_SOCKET``.
        token: bearer token; default ``GPUBUF_TOKEN``. Over plain http it goes to a loopback address only.
        session: the session that names of buffers belong to.
        timeout: seconds without a byte after which a request is given up.
        cacert: of https: a file of PEM, or a folder of such files, with the authorities that are trusted in place of
            the system's; default ``GPUBUF_CACERT``.
        cert, key: of https: this client's certificate and its key, in PEM; default ``GPUBUF_CERT`` and ``GPUBUF_KEY``.
            Without a key it is in the certificate's file.
        retries: how often a request is repeated after an error that says that it may succeed later, and after a
            connection that broke; by default not at all. The daemon's Retry-After is kept. A broken upload or download
            of more than 4 MiB continues where it stood. What was carried out is not carried out again, because
            repetitions have the same Idempotency-Key.
        plain_token: permits the token over plain http to other machines; default ``GPUBUF_PLAIN_TOKEN=1``.

    Without url and socket, requests go to ``GPUBUF_URL``, else ``GPUBUF_SOCKET``, else the default UNIX socket of a
    daemon on this machine, else ``http://127.0.0.1:7070``. No request is sent before the first call.

    Any thread may use it. Each has its own persistent connection, which is closed with the thread, by ``close``, or at
    the end of the ``with`` statement. Every method raises :class:`gpubuf.Error` if the daemon refuses the request. If
    the call itself is wrong, it raises :class:`gpubuf.BadCall`, which is also a ValueError or a TypeError.

    Attributes: ``sessions``, ``pools``, ``streams``, ``events``, ``devices``, ``operations``, ``leases``.
    """

    def __init__(self, url: Optional[str] = None, socket: Optional[str] = None, token: Optional[str] = None,
                 session: str = "default", *, timeout: float = 120.0, cacert: Optional[str] = None,
                 cert: Optional[str] = None, key: Optional[str] = None, plain_token: bool = False,
                 retries: int = 0) -> None:
        for name, value in (("url", url), ("token", token)):
            if value is not None and not isinstance(value, str):
                raise BadType(f"{name} is text, not {value!r}")
        if socket is not None and not isinstance(socket, (str, os.PathLike)):
            raise BadType(f"socket is a path, not {socket!r}")
        token = token if token is not None else os.environ.get("GPUBUF_TOKEN") or None
        address = choose(url, socket)
        if token is not None and not (plain_token or os.environ.get("GPUBUF_PLAIN_TOKEN") == "1"):
            _tls.check_token_road(address)
        trust = _tls.Trust(cacert, cert, key) if address.tls else None
        transport = Transport(address, token, timeout, trust, retries)
        transport.files = (cacert, cert, key)
        super().__init__(transport, session)
        self._begin(map_socket(socket, self._transport.address))

    def _begin(self, socket: Optional[str]) -> None:
        self._socket, self._roads = socket, _roads.Roads()
        self._collect()

    def _collect(self) -> None:
        t, s = self._transport, self._session
        self.sessions = Sessions(t, s)
        self.pools = Pools(t, s)
        self.streams = Streams(t, s)
        self.events = Events(t, s)
        self.devices = Devices(t, s)
        self.operations = Operations(t, s)
        self.leases = Leases(t, s)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"gpubuf.Client({self.url!r}, session={self._session!r})"

    def close(self) -> None:
        """Closes the connections of all threads. Mappings have their own connections and stay."""
        self._roads.lending.close()
        self._transport.close()

    @property
    def url(self) -> str:
        """The address that requests go to."""
        return str(self._transport.address)

    @property
    def session(self) -> str:
        """The session that names of buffers, pools, streams and events belong to."""
        return self._session

    def with_session(self, session: str) -> "Client":
        """A client of the same daemon in another session; it shares the connections."""
        path_of(session)
        other = copy.copy(self)
        other._session = session
        other._collect()
        return other

    # --- bytes --------------------------------------------------------------------------------------------------------

    def put(self, name: str, array: Any, *, stream: Optional[str] = None, wait: Optional[float] = None,
            in_place: bool = False, offset: Optional[int] = None, slice: Optional[Key] = None,
            tensor: Optional[str] = None, progress: Optional[Progress] = None, if_match: Optional[str] = None,
            if_none_match: Optional[str] = None,
            kind: Optional[str] = None, pool: Optional[str] = None, device: Union[int, str, None] = None,
            mirrored: Optional[bool] = None, side: Optional[str] = None, dtype: Optional[Dtype] = None,
            shape: Optional[Shape] = None, durability: Optional[str] = None, spill: Optional[str] = None,
            labels: Optional[Mapping[str, str]] = None, connections: int = 1) -> Put:
        """Uploads an array, which makes the buffer or replaces its content, all or nothing.

        Args:
            array: a numpy array, a tensor of another library, a column or a table of numbers, a list of numbers, or any
                object with a buffer (bytes, memoryview, mmap). It is sent without a copy if its elements are in C order
                and little-endian. Masked elements, missing values and a list whose numbers no type has are BadArgument.
                An array on a GPU is copied on the device if the daemon is on this machine, else it goes through pinned
                memory of the host; ``road`` of the result says which (``device``, ``host``). The bytes of an .npz, a
                .pt, a .safetensors, a pickle or a zip archive are stored as they are, with a warning (StoredAsBytes).
            stream: the stream whose order the write keeps.
            wait: seconds to wait for memory if none is free.
            in_place: overwrite the present memory instead of filling new memory and swapping it in.
            offset: write at this byte of an existing buffer.
            slice: write these elements of an existing buffer; numpy's basic indexing, as text or as Python objects:
                ``numpy.s_[0:16, 3]``. The client asks for the buffer's layout first: the array must have its type and
                the shape of the slice, where axes of length 1 do not count (else ShapeMismatch).
            tensor: of a buffer of many tensors: write this one, or slice or offset of it.
            progress: called with the bytes sent and the total; an exception of it ends the upload without a change.
            if_match: upload only if this is the buffer's etag.
            if_none_match: ``"*"``: upload only if no buffer has that name.
            kind, pool, device, mirrored: of the memory; see POST /v1/sessions/{session}/buffers.
            side: the side of a mirrored buffer to write.
            dtype: the type of bytes, or of numbers and lists of numbers, which are converted; BadArgument if a number
                does not fit: a float may be rounded to what a type of floats has, and an integer must be the same. An
                array has its own, and another one is BadArgument, except that an array of uint8 is bytes if shape is
                given too. It is a name of the daemon's, numpy's, torch's or safetensors', or an object: ``"bfloat16"``,
                ``"f4"``, ``"F32"``, ``torch.float32``, ``numpy.float32``.
            shape: the shape of these elements.
            durability: ``sync``: the bytes are on the daemon's disk when the call returns, and survive its process and
                a power loss. ``behind``: they are there soon after. ``none``: they are in memory alone. Without it an
                existing buffer keeps its own, and a new one has its session's.
            spill: ``disk``: bytes that are not durable may go to the daemon's disk when others want the memory, and
                come back when they are needed; they end with its process. ``host``: to its host memory first.
                ``never``: they stay. Without it as with durability.
            labels: are set when the content is there; a label that the buffer has already stays unless it is named.
            connections: send more than 32 MiB in parts over this many connections at a time, from this call's own
                threads, also all or nothing. Parts of a buffer, writes in place, a side and ``submit`` use one
                connection.

        Returns:
            The buffer's new metadata; ``etag`` and ``generation`` are those of this content.
        """
        _parts.check(connections)
        if labels is not None:
            return self._labelled(name, labels, lambda: self.put(
                name, array, stream=stream, wait=wait, in_place=in_place, offset=offset, slice=slice, tensor=tensor,
                progress=progress, if_match=if_match, if_none_match=if_none_match, kind=kind, pool=pool, device=device,
                mirrored=mirrored, side=side, dtype=dtype, shape=shape, durability=durability, spill=spill,
                connections=connections))
        _kinds.warn(array, dtype)
        typed = given_name(dtype)
        whole = offset is None and slice is None and tensor is None
        payload = self._payload(name, array, typed, shape, offset, slice, tensor)
        what = _values.layout(payload, typed, shape) if whole else {}
        if whole and side is None and not mirrored and isinstance(payload.owner, _gpu.Tensor):
            memory = _roads.Memory(what, stream, if_match, if_none_match, wait, in_place, kind=kind, pool=pool,
                                   device=device, durability=durability, spill=spill)
            done = _roads.put(self, name, payload.owner, memory)
            if done is not None:
                if progress:
                    progress(payload.owner.nbytes, payload.owner.nbytes)
                return done
        headers = conditions(if_match, if_none_match, wait)
        if (connections > 1 and len(payload.view) > _parts.PART_BYTES and what and not in_place and side is None
            and not self._submits):
            fields = given(stream=stream, kind=kind, pool=pool, device=device, mirrored=mirrored, durability=durability,
                           spill=spill)
            layout = {"dtype": what["dtype"], "shape": list(_arrays.shape_of(what["shape"]))}
            return cast(Put, _parts.put(self, name, payload, {**layout, **fields}, headers, wait or 0, connections,
                                        progress))
        query = query_of({"format": "raw", **what, **given(
            stream=stream, offset=offset, slice=None if slice is None else _arrays.slice_text(slice), tensor=tensor,
            kind=kind, pool=pool, device=device, mirrored=mirrored, side=side, durability=durability, spill=spill,
            in_place=True if in_place else None)})
        target = self._below("buffers", name, "data") + query
        if whole and not in_place and side is None and not self._submits and self._transport.retry.retries and \
                len(payload.view) > _resume.RESUME_BYTES:
            sent = _resume.Upload(self, target, {**RAW, **headers}, [payload.view], progress, wait or 0).run()
            return cast(Put, {**(sent or self.info(name)), "road": "host"})
        request = ("PUT", target, {**RAW, **headers}, [payload.view], progress, wait or 0)
        for loads_left in reversed(range(LOADS_MAX + 1)):
            try:
                made = cast(Put, {**tagged(*self._exchange(*request)), "road": "host"})
                break
            except NotLoaded:
                # A write into a part of a buffer whose bytes are on disk alone: the daemon began to load them.
                if loads_left == 0:
                    raise
                self._load(name)
        return made

    def _payload(self, name: str, array: Any, dtype: Optional[str], shape: Optional[Shape], offset: Optional[int],
                 slice: Optional[Key], tensor: Optional[str]) -> Payload:
        """What a put sends."""
        if slice is not None:
            _arrays.slice_text(slice)  # says what is no slice before the buffer is asked for
        if slice is not None or (tensor is not None and offset is None):
            found = self.info(name) if tensor is None else self._tensor(name, tensor)
            return _values.elements_of(found, "..." if slice is None else slice, array, dtype, shape)
        return (_values.payload_of if offset is None else _values.bytes_at)(array, dtype, shape)

    def _tensor(self, name: str, tensor: str) -> ListedTensor:
        """Dtype and shape of one tensor of a buffer."""
        for found in self._pages(self._below("buffers", name, "tensors"), {"prefix": tensor}):
            if found["name"] == tensor:
                return cast(ListedTensor, found)
        raise TensorNotFound(f"the buffer \"{name}\" has no tensor named \"{tensor}\"")

    def _labelled(self, name: str, labels: Mapping[str, str], put: Callable[[], Put]) -> Put:
        """A put, and the labels of what it made."""
        if self._submits:
            raise BadArgument("an operation of put sets no labels: give them with update when it is done")
        if not isinstance(labels, MappingType) or not all(isinstance(text, str) for pair in labels.items()
                                                          for text in pair):
            raise BadType(f"labels are names and values, both text, not {labels!r}")
        made = put()
        try:
            return cast(Put, {**self.update(name, labels=labels, if_match=made["etag"]), "road": made["road"]})
        except PreconditionFailed:
            # another client has replaced it meanwhile; the labels are the buffer's, and the tag stays this content's
            return cast(Put, {**made, "labels": self.update(name, labels=labels)["labels"]})

    def get(self, name: str, *, slice: Optional[Key] = None, out: Any = None, raw: bool = False,
            offset: Optional[int] = None, length: Optional[int] = None, tensor: Optional[str] = None,
            stream: Optional[str] = None, if_match: Optional[str] = None, progress: Optional[Progress] = None,
            connections: int = 1, device: Any = None) -> Any:
        """Downloads a buffer, or a part of it, straight into an array.

        Args:
            slice: only these elements; numpy's basic indexing with steps of at least 1, as text or as Python objects.
            out: receive into this array, which must have the dtype and shape of the result. It may be on a GPU.
            raw: return bytes instead of an array, for types that numpy lacks if ml_dtypes is not installed.
            offset, length: only these bytes; needs raw.
            tensor: of a buffer of many tensors: this one, or slice or offset of it.
            stream: the stream whose order the download keeps.
            if_match: download only if this is the content's etag, as ``put`` returned it (else PreconditionFailed).
            progress: called with the bytes received and the total; an exception of it ends the download.
            connections: fetch more than 32 MiB in parts of one generation over this many connections at a time. A
                buffer that is replaced meanwhile, or that another process maps for writing, comes over one connection.
            device: ``"cuda"``, ``"cuda:1"`` or a torch.device: to memory on this GPU; ``"cpu"`` is as without it, for
                out on the host. On the daemon's machine the bytes stay on the device, else they come through pinned
                memory of the host. connections and raw are of the host.

        Returns:
            A numpy array; bytes with raw; :class:`gpubuf.DeviceArray` with device; out if it was given.
        """
        if raw and out is not None:
            raise BadArgument("raw gives bytes: it takes no out")
        if not raw and (offset is not None or length is not None):
            raise BadArgument("bytes at an offset have no shape: take them with raw=True, or give a slice")
        query = query_of(given(format="raw", stream=stream, offset=offset, length=length, tensor=tensor,
                               slice=None if slice is None else _arrays.slice_text(slice)))
        _parts.check(connections)
        where = _gpu.target_of(device, out)
        if where is not None:
            if raw:
                raise BadArgument("raw gives bytes on the host: it takes neither a device nor an array on one")
            part = slice is not None or tensor is not None
            there = _roads.Download(self, name, query, part, stream, if_match, progress).get(where, out)
            return there if out is None else out
        if connections > 1 and offset is None and length is None:
            whole = _parts.get(self, name, query, out, raw, if_match, connections, progress)
            if whole is not None:
                return whole.tobytes() if raw else whole if out is None else out
        target, fields = self._below("buffers", name, "data") + query, conditions(if_match)
        answer = self._ask("GET", target, fields)
        if raw and progress is None and not self._transport.retry.retries:
            return answer.read()
        try:
            if raw:
                array = _arrays.empty("uint8", (answer.length,), None)
            else:
                if answer.header("Gpubuf-Dtype") == "tensors":
                    raise BadArgument(f"\"{name}\" holds many tensors: name one (tensor=), or take the bytes with raw")
                array = _arrays.empty(answer.header("Gpubuf-Dtype") or "uint8",
                                      _arrays.shape_of(answer.header("Gpubuf-Shape")), out)
            if array.nbytes != answer.length:
                raise answer.broken(f"{answer.length} bytes come for {array.dtype} {array.shape}")
        except BaseException:
            answer.close()
            raise
        _resume.receive(self, target, fields, answer, _arrays.bytes_of(array), progress)
        return array.tobytes() if raw else array if out is None else out

    def tensors_put(self, arrays: Mapping[str, Any], *, prefix: Optional[str] = None, stream: Optional[str] = None,
                    kind: Optional[str] = None, pool: Optional[str] = None, device: Union[int, str, None] = None,
                    wait: Optional[float] = None, progress: Optional[Progress] = None) -> List[ListedBuffer]:
        """Uploads many arrays in one request: all of them become visible, or none. prefix is put before each name."""
        if not isinstance(arrays, MappingType):
            raise BadType(f"arrays are names and arrays, not a {type(arrays).__name__}")
        pieces = _safetensors.pieces_of({name: _gpu.payload_of(array) for name, array in arrays.items()})
        query = query_of(given(prefix=prefix, stream=stream, kind=kind, pool=pool, device=device))
        headers = {"Content-Type": _safetensors.TYPE, **conditions(wait=wait)}
        made = self._exchange("PUT", self._below("tensors") + query, headers, pieces, progress, wait or 0)[1]
        return cast(List[ListedBuffer], made["items"])

    def tensors_get(self, names: Optional[Sequence[str]] = None, *, prefix: Optional[str] = None,
                    label: Optional[str] = None, stream: Optional[str] = None) -> Dict[str, Array]:
        """Downloads many buffers in one request, as of one moment: by names, by a prefix, by a label (``name`` or
        ``name=value``), or all."""
        if isinstance(names, str):
            raise BadType("names is a list of names; one buffer is had with get")
        query = query_of(given(names=None if names is None else ",".join(words("names", names)), prefix=prefix,
                               label=label, stream=stream))
        answer = self._ask("GET", self._below("tensors") + query, {"Accept": _safetensors.TYPE})
        return _safetensors.read(answer)

    def put_state_dict(self, tensors: Mapping[str, Any], *, prefix: str = "", threads: int = 4,
                       stream: Optional[str] = None, kind: Optional[str] = None, pool: Optional[str] = None,
                       device: Union[int, str, None] = None, durability: Optional[str] = None,
                       wait: Optional[float] = None, table: Optional[str] = None,
                       metadata: Optional[Mapping[str, str]] = None, strides: bool = False) -> List[Put]:
        """Puts each tensor of a torch module's ``state_dict()`` as a buffer, several at a time; see ``put``. Tensors on
        a GPU stay there.

        prefix is put before each name. The names are those of PUT /tensors: characters that a name may not have become
        ``_``, and then the label ``safetensors.name`` has the tensor's own. Each tensor is replaced whole or not at
        all, but not all of them in one step; ``tensors_put`` does that, by way of the host.

        table: puts all of them into one buffer of that name instead, in one step, by way of the host. A tensor that is
        there by several names is stored once, and ``tensors``, ``get`` and ``list_tensors`` have each of the names.
        metadata is the ``__metadata__`` of its file. Tensors of other strides are stored in C order. With strides the
        elements of a tensor that is transposed or permuted stay in the order that they have in memory, and ``tensors``,
        ``load_into`` and ``get_state_dict`` give them with the same shape and strides. The file has the shape of the
        memory, and the order in its metadata as ``gpubuf.order``; other readers of the file see that shape."""
        if table is not None:
            if prefix:
                raise BadArgument("prefix is for a buffer of each tensor; leave it out with table")
            return [self._put_table(table, _state.pieces(tensors, metadata or {}, strides), wait, given(
                stream=stream, kind=kind, pool=pool, device=device, durability=durability))]
        if metadata is not None or strides:
            raise BadArgument("metadata and strides are of one buffer of all: give table, too")
        more = given(stream=stream, kind=kind, pool=pool, device=device, durability=durability, wait=wait)
        return _state.put(self, tensors, prefix, threads, more)

    def put_model(self, folder: Union[str, "os.PathLike[str]"], name: str, *, kind: Optional[str] = None,
                  pool: Optional[str] = None, device: Union[int, str, None] = None, durability: Optional[str] = None,
                  spill: Optional[str] = None, wait: Optional[float] = None) -> ModelPut:
        """Uploads a model as frameworks store it, as ``gpubuf put DIR NAME`` does: the files that
        ``model.safetensors.index.json`` names, else ``model.safetensors``, else the only safetensors file of the
        folder. folder may also be one safetensors file.

        All files are compared with the index first; BadArgument says what is missing or wrong, and nothing was
        uploaded. A model of one file is the buffer name. Of several, each is a buffer of its own, and they are
        published in one step: ``tensors``, ``load_into`` and ``get_state_dict(table=)`` take the model by its name, and
        see the old version or the new one. The files of the old one are deleted then; who maps them keeps them.

        Args:
            kind, pool, device, durability, spill, wait: of each buffer; see ``put``.
        """
        return _models.put(self, os.fspath(folder), name, given(kind=kind, pool=pool, device=device,
                                                                durability=durability, spill=spill), wait)

    def _put_table(self, name: str, pieces: List[Any], wait: Optional[float], query: Dict[str, Any],
                   if_none_match: Optional[str] = None) -> Put:
        target = self._below("buffers", name, "data") + query_of({"format": "safetensors", "pack": True, **query})
        headers = {"Content-Type": _safetensors.TYPE, **conditions(None, if_none_match, wait)}
        if self._transport.retry.retries and not self._submits and sum(map(len, pieces)) > _resume.RESUME_BYTES and \
                len(pieces[0]) < _safetensors.HEADER_MAX:
            made = _resume.Upload(self, target, headers, pieces, None, wait or 0).run() or self.info(name)
        else:
            made = tagged(*self._exchange("PUT", target, headers, pieces, None, wait or 0))
        return cast(Put, {**made, "road": "host"})

    def get_state_dict(self, *, prefix: str = "", device: Any = "cpu", out: Optional[Mapping[str, Any]] = None,
                       threads: int = 4, table: Optional[str] = None) -> Dict[str, Any]:
        """The tensors that ``put_state_dict`` has put, or PUT /tensors, for a module's ``load_state_dict``. With out, a
        ``state_dict()``, the tensors of those names are filled in place, and nothing is allocated. table: those of that
        buffer, or of that model in several files; :meth:`tensors` has them without a copy."""
        if table is not None:
            if prefix:
                raise BadArgument("prefix is for a buffer of each tensor; leave it out with table")
            return _state.get_table(self, table, device, out, threads)
        return _state.get(self, prefix, device, out, threads)

    # --- buffers ------------------------------------------------------------------------------------------------------

    def create(self, name: str, *, bytes: Optional[int] = None, dtype: Optional[Dtype] = None,
               shape: Optional[Shape] = None, kind: Optional[str] = None, pool: Optional[str] = None,
               stream: Optional[str] = None, device: Union[int, str, None] = None, mirrored: Optional[bool] = None,
               labels: Optional[Mapping[str, str]] = None, durability: Optional[str] = None,
               spill: Optional[str] = None, resident: Optional[bool] = None, wait: Optional[float] = None,
               tensors: Optional[Sequence[TensorGiven]] = None,
               metadata: Optional[Mapping[str, str]] = None) -> Buffer:
        """Makes a buffer of zeros from bytes, or from dtype and shape, or from tensors: ``{"name": "w", "dtype": "F32",
        "shape": [2, 3]}`` of each; metadata is that of their file. durability, spill: see ``put``. resident: the bytes
        leave memory on request alone, never to make room for others."""
        body = given(name=name, bytes=bytes, dtype=given_name(dtype),
                     shape=None if shape is None else shape_list(shape), kind=kind, pool=pool, stream=stream,
                     device=device, mirrored=mirrored, labels=labels, durability=durability, spill=spill,
                     resident=resident, metadata=metadata,
                     tensors=None if tensors is None else [{**t, "dtype": given_name(t["dtype"])} for t in tensors])
        return cast(Buffer, self._tagged("POST", self._below("buffers"), None, body, conditions(wait=wait), wait or 0))

    def info(self, name: str, *, attributes: bool = False) -> Buffer:
        """A buffer's metadata. With attributes, also the driver's attributes of its memory (needs scope admin), by a
        second request."""
        path = self._below("buffers", name)
        found = cast(Buffer, self._tagged("GET", path))
        if attributes:
            found["attributes"] = self._get(path, {"attributes": True})["attributes"]
        return found

    def list_tensors(self, name: str, *, prefix: str = "") -> List[ListedTensor]:
        """The tensors of a buffer in the order of their bytes, or those whose names begin with prefix. A buffer that is
        one tensor has a list of one. Of a model in several files: those of each, with the buffer that has them."""
        query = given(prefix=prefix or None)

        def of(buffer: str) -> List[ListedTensor]:
            return cast(List[ListedTensor], self._all(self._below("buffers", buffer, "tensors"), query))

        def of_model(model: _models.Model) -> List[ListedTensor]:
            return [ListedTensor(**{**tensor, "buffer": file.buffer})
                    for file in model.files for tensor in _models.of_file(model, file, of)]

        try:
            return of(name)
        except BufferNotFound as e:
            return _models.whole(self, name, e, of_model)

    def _metadata_of(self, name: str) -> Dict[str, str]:
        """The metadata of a buffer's table."""
        _, answer = self._json("GET", self._below("buffers", name, "tensors"), {"limit": 1})
        return cast(Dict[str, str], answer["metadata"] or {})

    def last_transfer(self, name: str) -> Optional[LastTransfer]:
        """The times of the last upload or download of at least 1 MiB of the bytes that the buffer has now. None if
        there was none."""
        return cast(Optional[LastTransfer], self._json("GET", self._below("buffers", name),
                                                       {"last_transfer": True})[1]["last_transfer"])

    def update(self, name: str, *, labels: Optional[Mapping[str, Optional[str]]] = None, dtype: Optional[Dtype] = None,
               shape: Optional[Shape] = None, durability: Optional[str] = None, spill: Optional[str] = None,
               resident: Optional[bool] = None, if_match: Optional[str] = None) -> Buffer:
        """Changes labels (a label of None is removed), dtype and shape of the same bytes, the durability, spill or
        resident. With durability ``sync`` the bytes are on disk when the call returns."""
        body = given(labels=labels, dtype=given_name(dtype), shape=None if shape is None else shape_list(shape),
                     durability=durability, spill=spill, resident=resident)
        return cast(Buffer, self._tagged("PATCH", self._below("buffers", name), None, body, conditions(if_match)))

    def delete(self, name: str, *, when: Optional[str] = None, stream: Optional[str] = None,
               if_match: Optional[str] = None, missing_ok: bool = False) -> bool:
        """Removes a buffer, after earlier writes of it on the stream. Raises Mapped while another process maps it. With
        when="unmapped" the name is removed at once, the memory is freed at the last unmap, and the result is False.
        missing_ok: a buffer that does not exist is no error."""
        try:
            answer, _ = self._json("DELETE", self._below("buffers", name), given(when=when, stream=stream),
                                   headers=conditions(if_match))
        except BufferNotFound:
            if not missing_ok:
                raise
            return True
        return answer.status != 202

    def copy(self, source: str, name: str, *, from_offset: Optional[int] = None, offset: Optional[int] = None,
             bytes: Optional[int] = None, stream: Optional[str] = None, in_place: bool = False,
             side: Optional[str] = None, wait: Optional[float] = None, if_match: Optional[str] = None,
             token: Optional[str] = None, source_if_match: Optional[str] = None, connections: Optional[int] = None,
             digest: Optional[Mapping[str, str]] = None, kind: Optional[str] = None, pool: Optional[str] = None,
             device: Union[int, str, None] = None, durability: Optional[str] = None, share: bool = False) -> Buffer:
        """Copies a buffer (``name`` or ``session/name``), or bytes of it, on the device. Makes the target if it does
        not exist. source_if_match: the tag that the source's bytes must have, as ``put`` returns it. share: the target
        becomes a link to a sealed buffer of its session, whose bytes both have then, in one memory.

        source may be the URL of a buffer of another daemon, which this one may copy from: all of it then. It goes over
        several connections, and its checksum is compared. With a URL go: token, of that daemon; digest, such as
        ``{"sha-256": base64}``; and for a new buffer kind, pool, device and durability."""
        body = given(from_offset=from_offset, offset=offset, bytes=bytes, stream=stream, side=side,
                     in_place=True if in_place else None, kind=kind, pool=pool, device=device, durability=durability,
                     share=True if share else None)
        if not isinstance(source, str):
            raise BadType(f"the source of a copy is a name or a URL, not {source!r}")
        if "://" not in source:
            for word, value in (("token", token), ("connections", connections), ("digest", digest)):
                if value is not None:
                    raise BadArgument(f"{word} goes with the URL of a buffer, and {source!r} is a name")
            return self._write(name, "copy", {"from": source, **given(from_if_match=source_if_match), **body}, if_match,
                               wait)
        body["from"] = {"url": source, **given(token=token, if_match=source_if_match, parts=connections, digest=digest)}
        return self._write(name, "copy", body, if_match, wait, PULL_S)

    def pull(self, name: str, url: Optional[str] = None, *, file: Optional[str] = None,
             headers: Optional[Mapping[str, str]] = None, format: Optional[str] = None, dtype: Optional[Dtype] = None,
             shape: Optional[Shape] = None, pack: bool = False, source_if_match: Optional[str] = None,
             connections: Optional[int] = None, digest: Optional[Mapping[str, str]] = None, kind: Optional[str] = None,
             pool: Optional[str] = None, device: Union[int, str, None] = None, durability: Optional[str] = None,
             labels: Optional[Mapping[str, str]] = None, stream: Optional[str] = None, wait: Optional[float] = None,
             if_match: Optional[str] = None) -> Buffer:
        """Has the daemon bring a buffer's bytes itself: from a URL of any server over HTTP that it may copy from, or
        from a file of its machine, below its ``--files-from``. ``copy`` takes the URL of another daemon's buffer.

        Args:
            headers: of the requests to the URL's own host, such as ``{"Authorization": "Bearer ..."}``.
            format: ``auto``, ``raw``, ``npy`` or ``safetensors``. auto (the default) looks at the bytes and the name; a
                safetensors file of several tensors becomes a table, with pack also one of a single tensor.
            dtype, shape: of raw bytes.
            source_if_match: the entity tag that the source must have, as a result's ``pulled`` has it.
            connections: how many at a time, 1 to 16; of a file: threads.
            digest: of the file, ``{"sha-256": base64}``."""
        if (url is None) == (file is None):
            raise BadArgument("pull takes url, or file")
        body = given(from_url=url, from_file=file, headers=headers, format=format, dtype=given_name(dtype),
                     shape=None if shape is None else shape_list(shape), pack=True if pack else None,
                     if_match=source_if_match, parts=connections, digest=digest, kind=kind, pool=pool, device=device,
                     durability=durability, labels=labels, stream=stream)
        return self._write(name, "copy", body, if_match, wait, PULL_S)

    def fill(self, name: str, pattern: Union[int, str, float, complex, Any], width: Optional[int] = None, *,
             offset: Optional[int] = None, bytes: Optional[int] = None, stream: Optional[str] = None,
             in_place: bool = False, side: Optional[str] = None, wait: Optional[float] = None,
             if_match: Optional[str] = None) -> Buffer:
        """Repeats a pattern over a buffer, on the device.

        Args:
            pattern: an int, or text such as ``"0xff"``, is a number of width bytes (1, 2, 4 or 8; default 1), whatever
                the buffer's dtype. A float, a complex number, a bool or a number of numpy's is an element: it is
                converted to the buffer's dtype, which the client asks for first, and takes no width. ``fill("x", 1.0)``
                makes a buffer of ones; ``fill("x", 1)`` makes all its bytes 1.
            offset, bytes: fill only these bytes."""
        if _values.is_element(pattern):
            if width is not None:
                raise BadArgument("width is the bytes of an int: a float or a number of numpy's is an element of the "
                                  "buffer's dtype")
            pattern, width = _values.pattern_of(pattern, self.info(name)["dtype"])
        elif not isinstance(pattern, (int, str)):
            raise BadType(f"a pattern is a number or text such as \"0xff\", not a {type(pattern).__name__}")
        if isinstance(pattern, int) and pattern >= 1 << 63:
            pattern = hex(pattern)
        body = {"pattern": pattern, "width": 1 if width is None else width,
                **given(offset=offset, bytes=bytes, stream=stream, side=side,
                        in_place=True if in_place else None)}
        return self._write(name, "fill", body, if_match, wait)

    def sync(self, name: str, to: str = "device", *, stream: Optional[str] = None,
             wait: Optional[float] = None) -> Buffer:
        """Brings one side of a mirrored buffer (host, device) up to date. Streams, sessions and devices have their own
        sync."""
        return self._write(name, "sync", {"to": to, **given(stream=stream)}, None, wait)

    def reserve(self, name: str, nbytes: Optional[int] = None, side: Optional[str] = None, *,
                elements: Optional[int] = None, dtype: Optional[Dtype] = None, stream: Optional[str] = None,
                wait: Optional[float] = None) -> Buffer:
        """Gives one side of a mirrored buffer (host, device) memory of at least nbytes, or elements of dtype, ahead of
        an upload. What is large enough stays."""
        body = given(bytes=nbytes, side=side, elements=elements, dtype=given_name(dtype), stream=stream)
        return self._write(name, "reserve", body, None, wait)

    def release(self, name: str, side: str, *, stream: Optional[str] = None) -> Buffer:
        """Frees the memory of one side of a mirrored buffer: host, device or all."""
        return self._write(name, "release", {"side": side}, None, None, stream=stream)

    def seal(self, name: str, *, stream: Optional[str] = None) -> Buffer:
        """Makes the content immutable for ever; deletion remains possible."""
        return self._write(name, "seal", {}, None, None, stream=stream)

    def store(self, name: str, *, stream: Optional[str] = None) -> Stored:
        """Writes the bytes of a durable buffer to the daemon's disk, if they are not there yet."""
        return cast(Stored, self._post(self._below("buffers", name, "store"), {}, given(stream=stream),
                                       patience=LOAD_S))

    def load(self, name: str) -> Buffer:
        """Brings the bytes of a buffer from the daemon's disk into memory, if they are not there yet. Reads and writes
        do that themselves; the first one after a start waits for it. The call waits as long as the load takes."""
        return self._load(name)

    def evict(self, name: str, *, to: Optional[str] = None, stream: Optional[str] = None,
              if_match: Optional[str] = None) -> Buffer:
        """Takes the bytes of a buffer out of memory. to: "disk", or "host" for the host's memory, from where they come
        back faster; by default where the buffer's spill says, else to the disk. Bytes of a durable buffer that are not
        on disk yet are stored first. Other bytes end with the daemon's process; of these, buffers of at most 64 KiB
        stay in memory."""
        path = self._below("buffers", name, "evict")
        return cast(Buffer, self._tagged("POST", path, given(stream=stream), given(to=to), conditions(if_match),
                                         LOAD_S))

    @contextmanager
    def awake(self, prefix: Optional[str] = None) -> Iterator["Client"]:
        """``with client.awake("llama."): ...`` brings the bytes of the session's buffers into memory, or of those whose
        names begin with prefix, and takes them out of memory at the end. It raises the error of the first buffer that
        could not be loaded, as one that does not fit beside the others, and takes the others out again."""
        try:
            for skipped in self.sessions.load(prefix=prefix)["skipped"]:
                detail = (f"the bytes of \"{skipped['buffer']}\" could not be brought into memory beside those of the "
                          "others")
                raise error_of(0, {"code": skipped["code"], "detail": detail})
            yield self
        finally:
            self.sessions.evict(prefix=prefix)

    def _load(self, name: str) -> Buffer:
        while True:
            try:
                answer = self._transport.ask("POST", self._below("buffers", name, "load"), patience=LOAD_S)
                return cast(Buffer, tagged(answer, answer.json()))
            except TimedOut:  # the daemon's longest wait of a request has ended; the load continues
                continue

    def _write(self, name: str, action: str, body: Mapping[str, Any], if_match: Optional[str], wait: Optional[float],
               patience: float = 0, stream: Optional[str] = None) -> Buffer:
        path = self._below("buffers", name, action)
        return cast(Buffer, self._tagged("POST", path, given(stream=stream), body, conditions(if_match, wait=wait),
                                         patience or wait or 0))

    def verify(self, name: str, *, digest: Optional[Mapping[str, str]] = None,
               algorithms: Optional[Sequence[str]] = None, stream: Optional[str] = None,
               wait: Optional[float] = None) -> Verified:
        """Reads the bytes and compares them with the recorded checksum, and with digests ({"sha-256": base64}) if
        given."""
        body = given(digest=digest, algorithms=None if algorithms is None else words("algorithms", algorithms))
        return cast(Verified, self._post(self._below("buffers", name, "verify"), body, given(stream=stream),
                                         headers=conditions(wait=wait), patience=wait or 60))

    # --- more ---------------------------------------------------------------------------------------------------------

    def map(self, name: str, mode: str = "read", *, ways: Optional[Sequence[str]] = None, wait: Optional[float] = None,
            access_devices: Sequence[int] = (), finished_event: bool = False) -> Mapped:
        """Maps a buffer's memory into this process, over the daemon's UNIX socket; see :class:`gpubuf.Mapping`.

        Args:
            mode: ``read``, or ``write`` to read and write.
            ways: the ways to try, of vmm, pool, legacy, memfd.
            wait: seconds to wait for queued writes of the buffer, and for other processes that begin to map it for
                writing (then BufferBusy; default 2).
            access_devices: other devices that are to reach the memory, by CUDA's numbers in this process; of the ways
                vmm and pool. A pool stays open to them while this process maps any of its memory.
            finished_event: with an event for :meth:`gpubuf.Mapping.finish_on`.
        """
        if mode not in ("read", "write"):
            raise BadArgument(f"mode is 'read' or 'write', not {mode!r}")
        t, where, pause = self._transport, of_socket(self._map_socket()), 0.002
        options = given(ways=None if ways is None else words("ways", ways), finished_event=finished_event or None)
        body = {"mode": mode, **options}
        again = {**options, **({"access_devices": tuple(access_devices)} if access_devices else {})}
        end = time.monotonic() + (wait if wait is not None else BUSY_S)
        while True:
            try:
                return open_mapping(where, t.token, t.timeout, t.epochs, self._below("buffers", name, "map"), body,
                                    wait, access_devices, self, again)
            except BufferBusy:
                if time.monotonic() + pause > end:
                    raise
                time.sleep(pause)
                pause = min(2 * pause, 0.1)

    def tensors(self, name: str, mode: str = "read", *, ways: Optional[Sequence[str]] = None,
                wait: Optional[float] = None, access_devices: Sequence[int] = ()) -> Tensors:
        """The tensors of a buffer by their names, as arrays over one mapping of its memory, without a copy:
        ``with client.tensors("m") as t: t["wte"]``; see :class:`gpubuf.Tensors`. The arguments are those of ``map``.
        The name may be that of a model in several files, as ``gpubuf put DIR NAME`` makes it: then they are all
        tensors of all files. If one of its files is missing, BufferNotFound says which."""
        options = given(ways=None if ways is None else words("ways", ways), wait=wait)
        return Tensors(self, name, mode, {**options, **({"access_devices": tuple(access_devices)} if access_devices else
                                                        {})})

    def load_into(self, module: Any, name: Union[str, Sequence[str]], *, mode: str = "read", strict: bool = True,
                  ways: Optional[Sequence[str]] = None, wait: Optional[float] = None,
                  access_devices: Sequence[int] = ()) -> Loaded:
        """Makes the tensors of a buffer those of a torch module, also of one on the device meta, without a copy: each
        parameter and each buffer of its state dict is then the mapped memory, on the device where that is. The lease
        lasts as long as one of them.

        The names are those of ``module.state_dict()``. BadArgument says what is missing, not in the module, or of
        another dtype or shape, and then nothing was changed. A parameter that the module has by several names is one
        afterwards, too; the first of the names that the buffer has counts. ``tie_weights`` of the module is called if
        names are missing.

        Args:
            module: a ``torch.nn.Module``.
            name: the buffer, or the model in several files; or several that have the tensors between them.
            mode: ``read``: parameters need no gradients, and are not to be written (see :class:`gpubuf.Tensors`);
                ``write``: what is written is in the buffer, and parameters need gradients as before.
            strict: without it, what is missing stays as it was, and what the module has not is left out.
            ways, wait, access_devices: see ``map``.

        Returns:
            The names that were left as they are; on_meta of it are to be filled before the module works."""
        names = [name] if isinstance(name, str) else words("name", name)
        with ExitStack() as opened:
            tables = [opened.enter_context(self.tensors(one, mode, ways=ways, wait=wait, access_devices=access_devices))
                      for one in names]
            return _torch.load_into(module, tables, strict)

    def export(self, name: str, *, ttl: Optional[int] = None, mode: str = "read",
               wait: Optional[float] = None) -> Exported:
        """CUDA's legacy handle of a buffer of kind ipc, for processes without a connection to the daemon. NVIDIA Triton
        registers its ``json.dumps`` as CUDA shared memory.

        The export ends ttl seconds from now (default 300), or by ``leases.end`` after all importers have closed it.
        Until then the bytes are neither freed nor rewritten. Raises Unsupported if the memory has no such handle;
        ``map`` works instead.

        Args:
            mode: ``read``, or ``write`` if the importers write.
            wait: seconds to wait for queued writes of the buffer.
        """
        body = {"mode": mode, **given(ttl_s=ttl)}
        return cast(Exported, self._post(self._below("buffers", name, "export"), body, headers=conditions(wait=wait),
                                         patience=wait or 30))

    def adopt(self, name: str, source: Any, *, dtype: Optional[Dtype] = None, shape: Optional[Shape] = None,
              nbytes: Optional[int] = None, offset: Optional[int] = None, way: Optional[str] = None,
              map_bytes: Optional[int] = None, device: Union[int, str, None] = None, side: Optional[str] = None,
              wait: Optional[float] = None, handle: Optional[bytes] = None) -> Adoption:
        """Makes memory of this process a buffer, over the daemon's UNIX socket; see :class:`gpubuf.Adoption`.

        Args:
            source: an array of ``shared_array``, or a view of one; a GPU tensor in memory of cudaMalloc (torch's
                default); or a descriptor: a memfd, or with way="vmm" the result of cuMemExportToShareableHandle, or
                with way="pool" that of cudaMemPoolExportToShareableHandle.
            dtype, shape, nbytes, offset: the part of a descriptor's memory; for other sources, values that override the
                source's own.
            handle: with way="pool", the 64 bytes of cudaMemPoolExportPointer; offset counts from that pointer.
            map_bytes: with way="vmm", the size of the whole allocation if it is larger than the bytes need.
            side: host or device: the memory is that side of a mirrored buffer, which may exist. An array without
                elements takes the side's memory away.
        """
        offer = offer_of(source, given(dtype=given_name(dtype), shape=None if shape is None else shape_list(shape),
                                       bytes=nbytes, offset=offset, way=way, map_bytes=map_bytes, device=device,
                                       side=side, handle=None if handle is None else base64.b64encode(handle).decode()))
        return self._adopt(name, offer, wait)

    def _adopt(self, name: str, offer: Offer, wait: Optional[float] = None) -> Adoption:
        t = self._transport
        return open_adoption(of_socket(self._map_socket()), t.token, t.timeout, t.epochs, self._below("buffers", name),
                             offer, wait)

    @staticmethod
    def shared_array(shape: Shape, dtype: Dtype = "uint8") -> Array:
        """A numpy array of zeros in memory that can be adopted."""
        return shared_array(shape_list(shape), name_of(dtype))

    def _map_socket(self) -> str:
        """The daemon's socket: the given one, or a default socket if the same daemon answers there."""
        if self._socket is None and self._transport.address.host in ("127.0.0.1", "::1", "localhost"):
            found = find_socket()
            if found is not None:
                with Client(socket=found, token=self._transport.token, timeout=self._transport.timeout) as there:
                    if there.about()["started_at"] == self.about()["started_at"]:
                        self._socket = found
        if self._socket is None:
            raise BadArgument(f"mapping takes the daemon's UNIX socket, and {self.url} is none: give "
                              "Client(socket=PATH)")
        return self._socket

    def batch(self, operations: Sequence[Mapping[str, Any]], *, atomic: bool = False, stream: Optional[str] = None,
              wait: Optional[float] = None) -> BatchReply:
        """Many small actions in one request: ``{"op": "create"|"delete"|"copy"|"fill"|"sync"|"release", "buffer": name,
        ...}``. Each sees what those before it will have written. atomic: all or none. The error of a failed action is
        in its place of ``results`` and not raised."""
        if not isinstance(operations, SequenceType) or not all(isinstance(o, MappingType) for o in operations):
            raise BadType(f"operations are a list of dicts, not {operations!r}")
        body = {"operations": [_values.named(o) for o in operations], **given(atomic=True if atomic else None,
                                                                              stream=stream)}
        return cast(BatchReply, self._post(self._below("batch"), body, headers=conditions(wait=wait),
                                           patience=wait or 0))

    def submit(self, method: Callable[..., Any], *args: Any, **more: Any) -> Operation:
        """Starts a call as an operation: ``op = client.submit(client.copy, "a", "b")``, later
        ``client.operations.wait(op)``.

        Takes methods of the client and of its collections. A call that is done at once returns a finished operation
        with an empty id."""
        owner = getattr(method, "__self__", None)
        if not isinstance(owner, Asker):
            raise BadType("submit takes a method of the client, such as client.copy")
        owner = copy.copy(owner)
        owner._submits = True
        try:
            result = getattr(owner, method.__name__)(*args, **more)
        except Left as left:
            return left.operation
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return Operation(id="", kind=method.__name__, target="", session=owner._session, stream=None, state="done",
                         created_at=now, started_at=now, ended_at=now, expires_at=None, status=None, result=result,
                         problem=None)

    def stats(self, *, since: Optional[Moment] = None, until: Optional[Moment] = None,
              step: Optional[float] = None) -> Dict[str, Any]:
        """The daemon's statistics. With since, until or step, their history: ``items`` from since to until (a datetime,
        RFC 3339, or seconds from now, as -3600). Each step has min, mean, max and last, or delta and rate_per_s (by
        covered_s)."""
        return cast(Dict[str, Any], self._get(path_of("stats"), span(since, until, step)))

    def storage(self) -> Storage:
        """The folder of the bytes of durable buffers: its state, its room, and what was written and loaded. Needs scope
        admin."""
        return cast(Storage, self._get(path_of("storage")))

    def scrub(self, *, rate: Optional[int] = None) -> Scrubbed:
        """Reads all files of that folder to find damage, and returns at the end with the buffers that are damaged.
        rate: bytes a second at most, by default the daemon's --scrub-rate. Needs scope admin."""
        return cast(Scrubbed, self._post(path_of("storage", "scrub"), given(rate=rate), patience=SCRUB_S))

    def feed(self, *, after: Optional[int] = None, type: Union[str, Sequence[str], None] = None,
             patience: Optional[float] = None) -> Feed:
        """Events of all sessions from now on, or after the event with that id (0: all that the daemon still has): ``for
        event in client.feed(type="buffer."): ...``. The feed has its own connection, so that the loop may use the
        client.

        Args:
            type: only events whose type begins with this text, or with one of these. ``feed.gap``, for events that the
                daemon no longer has, always comes.
            patience: seconds to wait for an unreachable daemon before Unreachable is raised; without it, for ever."""
        return Feed(self._transport, after, type, patience)

    def audit(self, *, since: Optional[Moment] = None, until: Optional[Moment] = None, session: Optional[str] = None,
              token: Optional[str] = None, status: Union[int, str, None] = None,
              limit: Optional[int] = None) -> List[AuditRecord]:
        """Which client changed what, and what was refused, newest first. Needs scope admin.

        Args:
            since: a datetime, RFC 3339, or seconds from now, as -3600; until likewise.
            token: name of a token.
            status: 403, or "4xx" for all of a class.
            limit: at most that many; without it, all."""
        query = {**span(since, until, None), **given(session=session, token=token, status=status)}
        return cast(List[AuditRecord], list(islice(self._pages(path_of("audit"), query), limit)))

    def about(self) -> Dict[str, Any]:
        """Version, backend and links of the daemon."""
        return cast(Dict[str, Any], self._get("/v1"))

    def request(self, method: str, path: str, body: Any = None, *, query: Optional[Mapping[str, Any]] = None,
                headers: Optional[Mapping[str, str]] = None) -> Any:
        """Any request whose body and answer are JSON, for routes without a method here."""
        return self._json(method, path, query, body, headers)[1]

