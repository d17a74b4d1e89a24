"""Transfers of large arrays in parts, over several connections at a time, all or nothing."""
from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional

from ._arrays import Array, Payload, bytes_of, empty, shape_of
from ._asker import Asker, conditions, query_of, tagged
from ._http import Answer, Progress
from .errors import BadArgument, Error, PreconditionFailed, Unreachable

PART_BYTES = 32 << 20
PARTS_MAX = 10000  # the most parts that the daemon permits
CONNECTIONS_MAX = 64
RAW = {"Content-Type": "application/octet-stream"}


def check(connections: int) -> None:
    if isinstance(connections, bool) or not isinstance(connections, int) or not 1 <= connections <= CONNECTIONS_MAX:
        raise BadArgument(f"connections is a whole number from 1 to {CONNECTIONS_MAX}, not {connections!r}")


class Part(NamedTuple):
    offset: int
    length: int


def cut(total: int) -> List[Part]:
    """Parts of PART_BYTES, or larger parts if there would be too many."""
    size = max(PART_BYTES, -(-total // PARTS_MAX))
    return [Part(at, min(size, total - at)) for at in range(0, total, size)]


class _Given(Exception):
    """Raised within a part's transfer when another part or the caller's progress function has failed."""


class Crew:
    """Threads that take parts until none is left; the first failure ends all. Only the caller's thread reports
    progress."""

    def __init__(self, parts: List[Part], move: Callable[[Part, Progress], None]) -> None:
        self._left = list(reversed(parts))
        self._move = move
        self._total = sum(p.length for p in parts)
        self._done = 0
        self._working = 0
        self._failure: Optional[BaseException] = None
        self._changed = threading.Condition()

    def _next(self) -> Optional[Part]:
        with self._changed:
            return self._left.pop() if self._left and self._failure is None else None

    def _fail(self, why: BaseException) -> None:
        with self._changed:
            if self._failure is None:
                self._failure = why
            self._changed.notify_all()

    def _work(self) -> None:
        try:
            part = self._next()
            while part is not None:
                self._one(part)
                part = self._next()
        except _Given:
            pass
        except BaseException as e:
            self._fail(e)
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    def _one(self, part: Part) -> None:
        before = 0

        def moved(done: int, _: int) -> None:
            nonlocal before
            with self._changed:
                if self._failure is not None:
                    raise _Given
                self._done += done - before
                before = done
                self._changed.notify_all()

        self._move(part, moved)

    def run(self, connections: int, progress: Optional[Progress]) -> None:
        """Returns when all parts are done. Raises the first error of a part, or of progress, after all threads have
        stopped."""
        threads = [threading.Thread(target=self._work, name=f"gpubuf-part-{i}", daemon=True)
                   for i in range(min(connections, len(self._left)))]
        self._working = len(threads)
        started = 0
        try:
            for thread in threads:
                thread.start()
                started += 1
            self._watch(progress)
        except BaseException as e:
            self._fail(e)
            raise
        finally:
            for thread in threads[:started]:
                thread.join()
        if self._failure is not None:
            raise self._failure

    def _watch(self, progress: Optional[Progress]) -> None:
        told = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._working == 0 or self._failure is not None or self._done > told)
                done, over = self._done, self._working == 0 or self._failure is not None
            if progress and done > told:
                progress(done, self._total)
                told = done
            told = done
            if over:
                return


def put(asker: Asker, name: str, payload: Payload, what: Mapping[str, Any], headers: Dict[str, str], patience: float,
        connections: int, progress: Optional[Progress]) -> Any:
    """An upload in parts; no byte is visible before it is complete. what: dtype, shape and memory of the buffer.
    headers: conditions for the begin and for the completion."""
    body = {"buffer": name, "bytes": len(payload.view), **what}
    opened = asker._post(asker._below("uploads"), body, headers=headers, patience=patience)
    place = asker._below("uploads", opened["id"])

    def send(part: Part, moved: Progress) -> None:
        view = payload.view[part.offset : part.offset + part.length]
        asker._ask("PUT", place + "/parts" + query_of({"offset": part.offset}), RAW, [view], moved).read()

    try:
        Crew(cut(len(payload.view)), send).run(connections, progress)
        answer, document = asker._json("POST", place + "/complete", None, {}, headers, patience)
    except BaseException:
        asker._discard(place)
        raise
    return {**tagged(answer, document), "road": "host"}


def get(asker: Asker, name: str, query: str, out: Any, raw: bool, if_match: Optional[str], connections: int,
        progress: Optional[Progress]) -> Optional[Array]:
    """A download in ranges of one generation. Returns None if it is unsuitable for parts, or refused (a HEAD has no
    reason), or if the buffer was replaced meanwhile and the caller gave no etag."""
    target = asker._below("buffers", name, "data") + query
    try:
        head = asker._ask("HEAD", target, conditions(if_match))
    except Unreachable:
        raise
    except Error:
        return None
    head.finish()
    total, tag = head.length, head.header("ETag")
    if total <= PART_BYTES or tag is None or tag.startswith("W/"):
        return None
    if raw:
        array = empty("uint8", (total,), None)
    else:
        array = empty(head.header("Gpubuf-Dtype") or "uint8", shape_of(head.header("Gpubuf-Shape")), out)
    if array.nbytes != total:
        raise head.broken(f"{total} bytes come for {array.dtype} {array.shape}")
    view = bytes_of(array)

    def fetch(part: Part, moved: Progress) -> None:
        fields = {"Range": f"bytes={part.offset}-{part.offset + part.length - 1}", **conditions(tag)}

        def once() -> None:
            answer = asker._ask("GET", target, fields)
            _expect(answer, part)
            answer.read_into(view[part.offset : part.offset + part.length], moved)
            answer.finish()

        asker._transport.retry.run(once)

    try:
        Crew(cut(total), fetch).run(connections, progress)
    except PreconditionFailed:
        if if_match is not None:
            raise
        return None
    return array


def _expect(answer: Answer, part: Part) -> None:
    span = answer.header("Content-Range") or ""
    if (answer.status != 206 or not span.startswith(f"bytes {part.offset}-{part.offset + part.length - 1}/")
        or answer.length != part.length):
        raise answer.broken(f"{part.length} bytes from {part.offset} on were asked for, others came ({answer.status}, "
                            f"{span!r})")
