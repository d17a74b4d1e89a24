"""Transfers of arrays on a GPU: on the device if the daemon takes the array's memory, else by way of pinned host
memory.

On the device the daemon copies between the buffer and memory that it adopts for that time (see _lend). This needs the
daemon's UNIX socket, the right to adopt, and memory of cudaMalloc, which torch and CuPy use by default.
"""
from __future__ import annotations

import threading
from collections import OrderedDict
from typing import (TYPE_CHECKING, Any, ContextManager, Dict, Generic, Mapping, NamedTuple, Optional, Tuple, TypeVar,
                    cast)

from . import _arrays, _cuda, _gpu
from ._asker import conditions, given
from ._gpu import Tensor
from ._lend import Lending, Lent
from ._http import Answer, Progress
from .adoption import Adoption, legacy_offer
from .errors import (AccessDenied, BadArgument, BufferExists, BufferNotFound, BufferPartial, Busy, CannotAdopt,
                     Conflict, ContentLost, DeviceError, Error, InvalidArgument, LimitReached, LocalOnly,
                     MapNotPermitted, NotLoaded, PreconditionFailed, RangeNotSatisfiable, Unreachable, Unsupported)
from .tensors import DeviceArray
from .types import Buffer, Put

if TYPE_CHECKING:
    from .client import Client

T = TypeVar("T")
DIRECT_BYTES = 1 << 20  # smaller arrays go through the host, which is faster than the requests of a copy on the device
TURNS = 4  # a buffer may be replaced by other clients between two requests of a transfer
KNOWN_MAX = 1024
WAYS = ("vmm", "pool", "legacy")
# Errors that say that the daemon does not take this memory; the host's is taken then.
NOT_THIS = (AccessDenied, Busy, CannotAdopt, DeviceError, LimitReached, Unreachable, Unsupported)


class Recent(Generic[T]):
    """What answers said of buffers last, by session and name. It may be out of date: requests are made on condition
    that it is not."""

    def __init__(self) -> None:
        self._found: "OrderedDict[Tuple[str, str], T]" = OrderedDict()
        self._lock = threading.Lock()

    def get(self, client: "Client", name: str) -> Optional[T]:
        with self._lock:
            return self._found.get((client._session, name))

    def set(self, client: "Client", name: str, what: Optional[T]) -> None:
        with self._lock:
            self._found.pop((client._session, name), None)
            if what is not None:
                self._found[(client._session, name)] = what
                if len(self._found) > KNOWN_MAX:
                    self._found.popitem(last=False)


class Roads:
    """What a client knows of the ways to its daemon."""

    def __init__(self) -> None:
        self.lending = Lending()
        self.buffers: Recent[Buffer] = Recent()
        self.heads: Recent["Head"] = Recent()


class _NotLent(Exception):
    """The daemon does not take the memory of an array."""


def _lends(client: "Client") -> bool:
    """True if the daemon may take memory of this process."""
    lending = client._roads.lending
    if lending.refused is None:
        try:
            client._map_socket()
        except (BadArgument, Unreachable) as e:
            lending.refused = e
    return lending.refused is None


def _adopt(client: "Client", name: str, tensor: Tensor, before: int) -> Adoption:
    nbytes = tensor.nbytes + before
    try:
        return client._adopt(name, legacy_offer(tensor.pointer - before, nbytes, tensor, bytes=nbytes))
    except NOT_THIS as e:
        # A daemon without such memory, and one that does not permit it, says the same of any other array.
        if e.problem and isinstance(e, (LocalOnly, MapNotPermitted, Unsupported)):
            client._roads.lending.refused = e
        raise _NotLent from e


def _lend(client: "Client", tensor: Tensor) -> ContextManager[Lent]:
    return client._roads.lending.of(client._session, tensor, lambda name, t, before: _adopt(client, name, t, before))


class Memory:
    """Layout and conditions of the buffer that a put makes or replaces."""

    def __init__(self, what: Mapping[str, str], stream: Optional[str], if_match: Optional[str],
                 if_none_match: Optional[str], wait: Optional[float], in_place: bool, **memory: Any) -> None:
        self.dtype, self.shape = what["dtype"], list(_arrays.shape_of(what["shape"]))
        self.stream, self.if_match, self.if_none_match, self.wait, self.in_place = (stream, if_match, if_none_match,
                                                                                    wait, in_place)
        self.memory = given(**memory)

    def fits(self, found: Buffer) -> bool:
        """True if a copy of the elements replaces all of the buffer and gives it nothing that it does not have."""
        if (found["dtype"], found["shape"]) != (self.dtype, self.shape) or found["mirrored"] or found["adopted"]:
            return False
        have: Dict[str, Any] = {**found}
        device = self.memory.get("device")
        rest = {key: value for key, value in self.memory.items() if key != "device"}
        return all(have.get(key) == value for key, value in rest.items()) and (device is None or str(device)
                                                                               in map(str, found["device"].values()))


def put(client: "Client", name: str, tensor: Tensor, memory: Memory) -> Optional[Put]:
    """Puts the array by a copy on the device. Returns None if that is not possible, and then nothing was changed."""
    if tensor.nbytes < DIRECT_BYTES or client._submits or not _lends(client):
        return None
    try:
        with _lend(client, tensor) as lent:
            return _publish(client, name, tensor, lent, memory)
    except (_NotLent, AccessDenied, NotLoaded, BufferPartial, ContentLost):
        return None


def _publish(client: "Client", name: str, tensor: Tensor, lent: Lent, memory: Memory) -> Optional[Put]:
    recent = client._roads.buffers
    found = recent.get(client, name)
    for _ in range(TURNS):
        if found is None:
            try:
                found = client.info(name)
            except BufferNotFound:
                return _create(client, name, tensor, lent, memory)
        if memory.if_none_match is not None or not memory.fits(found):
            recent.set(client, name, None)
            return None
        own = memory.if_match if memory.if_match not in (None, "*") else found["etag"]
        try:
            return _copy(client, name, tensor, lent, memory, own, memory.in_place)
        except (PreconditionFailed, BufferNotFound):
            recent.set(client, name, None)
            if memory.if_match is not None:
                return None  # the other way reports it
            found = None
    return None


def _create(client: "Client", name: str, tensor: Tensor, lent: Lent, memory: Memory) -> Optional[Put]:
    """A new buffer, which is of zeros until the copy is there."""
    if memory.if_match is not None:
        return None
    where: Dict[str, Any] = ({} if {"device", "pool"} & memory.memory.keys()
                             else {"device": _cuda.load().name_of(tensor.ordinal)})
    try:
        made = client.create(name, dtype=memory.dtype, shape=memory.shape, stream=memory.stream, wait=memory.wait,
                             **where, **memory.memory)
    except BufferExists:
        return None
    try:
        return _copy(client, name, tensor, lent, memory, made["etag"], True)
    except BaseException:
        client._discard(client._below("buffers", name), conditions(made["etag"]))
        raise


def _copy(client: "Client", name: str, tensor: Tensor, lent: Lent, memory: Memory, tag: Optional[str],
          in_place: bool) -> Put:
    made = client.copy(lent.name, name, from_offset=lent.at, bytes=tensor.nbytes, stream=memory.stream,
                       in_place=in_place, wait=memory.wait, if_match=tag)
    done = cast(Put, {**made, "road": "device"})
    client._roads.buffers.set(client, name, done)
    client._roads.heads.set(client, name, Head(done["dtype"], tuple(done["shape"]), done["bytes"], done["etag"]))
    return done


# --- downloads --------------------------------------------------------------------------------------------------------


class Head(NamedTuple):
    """What a download of the buffer would be: its layout, and its entity tag."""

    dtype: str
    shape: Tuple[int, ...]
    nbytes: int
    tag: str

    @classmethod
    def of(cls, answer: Answer) -> "Head":
        shape = _arrays.shape_of(answer.header("Gpubuf-Shape"))
        return cls(answer.header("Gpubuf-Dtype") or "uint8", shape, answer.length, answer.header("ETag") or "")


class _Replaced(Exception):
    """Another client has replaced the buffer meanwhile."""


class Download(NamedTuple):
    """A download to a device. part: it takes a part of the buffer. condition: the entity tag that the caller asks
    for."""

    client: "Client"
    name: str
    query: str
    part: bool
    stream: Optional[str]
    condition: Optional[str]
    progress: Optional[Progress]

    def get(self, ordinal: int, out: Any) -> DeviceArray:
        direct = True
        for _ in range(TURNS):
            known = self._known()
            head = known or self._head(self.condition)
            tensor = _gpu.allocate(head.dtype, head.shape, ordinal) if out is None else _gpu.into(out, head.dtype,
                                                                                                  head.shape)
            try:
                road = self._fill(tensor, head, direct)
            except _Replaced:
                self.client._roads.heads.set(self.client, self.name, None)
                # A tag that did not hold since a moment ago: other processes may write the buffer, whose every answer
                # has another tag.
                direct = known is not None
                continue
            return DeviceArray(tensor, road, head.tag)
        raise PreconditionFailed(f"the buffer \"{self.name}\" was replaced by other clients during each of {TURNS} "
                                 "downloads: try again")

    def _target(self) -> str:
        return self.client._below("buffers", self.name, "data") + self.query

    def _known(self) -> Optional[Head]:
        return None if self.part or self.condition is not None else self.client._roads.heads.get(self.client, self.name)

    def _head(self, tag: Optional[str]) -> Head:
        try:
            answer = self.client._ask("HEAD", self._target(), conditions(tag))
        except Error as e:  # a HEAD has no reason
            if e.status == 412:
                raise self._other(tag) from e
            if e.status == 404:
                self.client.info(self.name)
            raise
        answer.finish()
        return Head.of(answer)

    def _other(self, tag: Optional[str]) -> PreconditionFailed:
        return PreconditionFailed(f"the buffer \"{self.name}\" has another content than {tag}", problem={"status": 412})

    def _fill(self, tensor: Tensor, head: Head, direct: bool) -> str:
        """Fills the memory, on the device if direct permits it, and returns how."""
        direct = direct and not self.part and head.nbytes >= DIRECT_BYTES and not head.tag.startswith("W/")
        for way, name in ((self._by_loan, "device"), (self._by_mapping, "mapping")):
            if direct and _lends(self.client) and way(tensor, head):
                self.client._roads.heads.set(self.client, self.name, head)
                if self.progress:
                    self.progress(tensor.nbytes, tensor.nbytes)
                return name
        self.client._transport.retry.run(lambda: self._by_host(tensor, head))
        return "host"

    def _by_loan(self, tensor: Tensor, head: Head) -> bool:
        """The daemon copies into the memory. False if it does not take it."""
        other: Optional[PreconditionFailed] = None
        try:
            with _lend(self.client, tensor) as lent:
                try:
                    self.client.copy(self.name, lent.name, offset=lent.at, bytes=head.nbytes, stream=self.stream,
                                     in_place=True, source_if_match=head.tag)
                except PreconditionFailed as e:  # the memory stays lent: the next turn takes it
                    other = e
        except (_NotLent, AccessDenied, NotLoaded, BufferPartial, ContentLost):
            return False  # the download has it, or says why not
        except (BufferNotFound, InvalidArgument, RangeNotSatisfiable):
            raise _Replaced from None  # it is gone, or shorter: the next request says so
        if other is not None and self.condition is not None:
            raise self._other(self.condition) from other
        if other is not None:
            raise _Replaced
        return True

    def _by_mapping(self, tensor: Tensor, head: Head) -> bool:
        """Memory that cannot be lent, such as cudaMallocAsync's, is filled from a mapping, if the buffer has one."""
        try:
            with self.client.map(self.name, ways=WAYS) as mapped, _gpu.lane(tensor.ordinal) as here:
                if mapped.etag != head.tag:
                    raise _Replaced
                mapped.wait_on(here.stream)
                here.copy(tensor.pointer, mapped.pointer, tensor.nbytes)
                here.sync()
                return True
        except (*NOT_THIS, BufferNotFound, Conflict, NotLoaded):
            return False

    def _by_host(self, tensor: Tensor, head: Head) -> None:
        """Receives through pinned memory."""
        answer = self.client._ask("GET", self._target(), conditions(self.condition))
        try:
            if Head.of(answer)[:3] != head[:3]:
                raise _Replaced

            def receive(view: memoryview, at: int) -> None:
                progress = self.progress
                answer.read_into(view, (lambda done, _: progress(at + done, tensor.nbytes)) if progress else None)

            if tensor.nbytes:
                with _gpu.lane(tensor.ordinal) as here:
                    here.up(tensor.pointer, tensor.nbytes, receive)
            answer.finish()
        except BaseException:
            answer.close()
            raise
