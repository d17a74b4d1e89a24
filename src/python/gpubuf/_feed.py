"""The daemon's events as they happen, with reconnection."""
from __future__ import annotations

import threading
import time
from collections import deque
from types import TracebackType
from typing import Any, Deque, Iterator, List, Optional, Sequence, Type, Union, cast

from ._asker import path_of, query_of, words
from ._http import Answer, Transport
from .errors import BadArgument, BadType, Error, Unreachable, not_pickled
from .types import FeedEvent

TYPE = "text/event-stream"
QUIET_S = 60.0  # added to the client's timeout: a daemon sends a heartbeat every 15 s by default
AGAIN_S = 2.0  # unless the daemon sends a retry time
AGAIN_MAX_S = 60.0
EVENT_MAX_BYTES = 1 << 20


class Feed(Iterator[FeedEvent]):
    """Events, from ``Client.feed``. Each is a dict with ``id``, ``at`` and ``type``, and those of ``session``,
    ``pool``, ``buffer``, ``device``, ``bytes``, ``count``, ``generation``, ``head``, ``lease``, ``detail`` that apply.

    Iteration waits for the next event. If the connection is lost, the feed connects again and resumes after the last
    event that it returned. The feed ends with ``close``, which any thread may call, with the ``with`` statement, or
    with the client's ``close``. Any error ends it, too, except that the daemon cannot be reached.

    Attributes: ``last_id``, the id of the last event: ``client.feed(after=feed.last_id)`` resumes the feed in a later
    program.
    """

    _built = False  # an interrupt may come before the members are there

    def __init__(self, transport: Transport, after: Optional[int], type: Union[str, Sequence[str], None],
                 patience: Optional[float]) -> None:
        self._transport = transport.alone()
        self._ended = threading.Event()
        self._lock = threading.Lock()  # guards all members below; the thread that holds it reads
        self._answer: Optional[Answer] = None
        self._lines: Deque[bytes] = deque()
        self._rest = b""
        self._ready: Optional[FeedEvent] = None
        self._again_s, self._patience, self.last_id = AGAIN_S, patience, after
        self._built = True
        if after is not None and (isinstance(after, bool) or not isinstance(after, int)):
            raise BadType(f"after is the id of an event, not {after!r}")
        if after is not None and after < 0:
            raise BadArgument(f"{after} is the id of no event")
        types = type if type is None or isinstance(type, str) else ",".join(words("type", type))
        self._target = path_of("feed") + query_of({"type": types})
        transport.close_too(self)
        try:
            with self._lock:
                # connects at once, so that all events from now on are received, however late the caller reads them
                self._open()
        except BaseException:
            self.close()
            raise
        if self._ended.is_set():
            self.close()

    def __enter__(self) -> "Feed":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def __del__(self) -> None:
        if self._built:
            self._ended.set()
            self._drop()

    def __reduce__(self) -> Any:
        raise not_pickled(self, "give the other process the client and last_id (client.feed(after=last_id))")

    def close(self) -> None:
        """Ends the feed; a thread that waits for an event leaves its loop."""
        self._ended.set()
        self._transport.interrupt()
        if self._lock.acquire(blocking=False):  # else the thread that holds the lock cleans up
            try:
                self._drop()
            finally:
                self._lock.release()

    def __next__(self) -> FeedEvent:
        try:
            with self._lock:
                event = self._next()
        finally:
            if self._ended.is_set():
                self.close()
        if event is None:
            raise StopIteration
        return event

    # --- reading events, by the thread that holds the lock ------------------------------------------------------------

    def _next(self) -> Optional[FeedEvent]:
        lost: Optional[float] = None
        while not self._ended.is_set():
            try:
                if self._answer is None:
                    self._open()
                    lost = None
                event, self._ready = self._ready, None
                while event is None and not self._ended.is_set():
                    event = self._block()
                return None if self._ended.is_set() else event
            except Error as e:
                self._drop()
                if self._ended.is_set():
                    break
                if not (isinstance(e, Unreachable) and e.retryable or e.status in (429, 503)):
                    self._ended.set()
                    raise
                lost = time.monotonic() if lost is None else lost
                left = AGAIN_MAX_S if self._patience is None else lost + self._patience - time.monotonic()
                if left <= 0:
                    raise
                self._ended.wait(min(self._again_s, left))
            except BaseException:
                self._drop()  # the connection ended within a block: events that were not returned come again
                raise
        return None

    def _open(self) -> None:
        headers = {"Accept": TYPE}
        if self.last_id is not None:
            headers["Last-Event-ID"] = str(self.last_id)
        answer = self._transport.ask("GET", self._target, headers, patience=QUIET_S)
        if not (answer.header("Content-Type") or "").lower().startswith(TYPE):
            raise answer.broken(f"the answer is no feed but {answer.header('Content-Type') or 'nothing'}")
        self._answer = answer
        self._ready = self._block()  # the first block has no event, only the feed's present id

    def _drop(self) -> None:
        answer, self._answer = self._answer, None
        self._lines.clear()
        self._rest, self._ready = b"", None
        self._transport.drop()
        if answer is not None:
            answer.close()

    def _block(self) -> Optional[FeedEvent]:
        """The next block: an event, or None if the block only sets a value."""
        data: List[bytes] = []
        last = self.last_id
        while True:
            line = self._line()
            if not line:
                break
            name, _, value = line.partition(b":")
            value = value[1:] if value.startswith(b" ") else value
            if name == b"data":
                data.append(value)
            elif name == b"id" and value.isdigit():
                last = int(value)
            elif name == b"retry" and value.isdigit():
                self._again_s = min(int(value) / 1000, AGAIN_MAX_S)
        event = self._event(b"\n".join(data)) if data else None
        self.last_id = last
        return event

    def _event(self, data: bytes) -> FeedEvent:
        answer = cast(Answer, self._answer)
        event = answer.parse(data)
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            raise answer.broken(f"this is no event of gpubufd: {data[:100]!r}")
        return cast(FeedEvent, event)

    def _line(self) -> bytes:
        answer = cast(Answer, self._answer)
        while not self._lines:
            piece = answer.read_some()
            if not piece:
                raise Unreachable("the feed ended")
            *whole, self._rest = (self._rest + piece).split(b"\n")
            if len(self._rest) > EVENT_MAX_BYTES:
                raise answer.broken(f"an event of the feed has more than {EVENT_MAX_BYTES} bytes")
            self._lines.extend(whole)
        return self._lines.popleft().rstrip(b"\r")
