"""Shared code of the client and its collections: paths, queries, JSON, pages."""
from __future__ import annotations

import json
import math
from datetime import datetime, timezone
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union, cast
from urllib.parse import quote, urlencode

from ._retry import SAFE
from ._http import Answer, Piece, Progress, Transport
from .errors import BadArgument, BadType, Error, not_pickled
from .types import Operation

Moment = Union[str, float, datetime]

PAGE = 1000  # items of one page; the daemon's maximum


def path_of(*parts: str) -> str:
    """A path of /v1 and the parts, each as one escaped segment."""
    for part in parts:
        if not isinstance(part, str) or not part or part in (".", ".."):
            raise BadArgument(f"{part!r} is no name")
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def words(name: str, value: Any) -> List[str]:
    """The list of texts that an argument has to be."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise BadType(f"{name} is a list of texts, not {value!r}")
    found = [*value]
    if not all(isinstance(one, str) for one in found):
        raise BadType(f"{name} is a list of texts, not {value!r}")
    return found


def given(**fields: Any) -> Dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def span(since: Optional[Moment], until: Optional[Moment], step: Optional[float]) -> Dict[str, Any]:
    """The query of a history."""
    def text(moment: Optional[Moment]) -> Union[str, float, None]:
        return (moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if isinstance(moment, datetime)
                else moment)
    return given(since=text(since), until=text(until), step=step)


def query_of(fields: Mapping[str, Any]) -> str:
    pairs = [(k, str(v).lower() if isinstance(v, bool) else str(v)) for k, v in fields.items() if v is not None]
    return "?" + urlencode(pairs, quote_via=quote, safe=",:") if pairs else ""


def conditions(if_match: Optional[str] = None, if_none_match: Optional[str] = None, wait: Optional[float] = None,
               idempotency_key: Optional[str] = None) -> Dict[str, str]:
    """Header fields of a request."""
    return given(**{
        "If-Match": _tag(if_match),
        "If-None-Match": _tag(if_none_match),
        "Prefer": f"wait={_seconds(wait)}" if wait is not None else None,
        "Idempotency-Key": idempotency_key,
    })


def _seconds(wait: float) -> int:
    try:
        return max(0, math.ceil(wait))
    except (TypeError, ValueError, OverflowError):
        raise BadType(f"wait is a number of seconds, not {wait!r}") from None


def _tag(value: Optional[str]) -> Optional[str]:
    """Puts an entity tag into quotes if it has none."""
    if value is not None and not isinstance(value, str):
        raise BadType(f"an entity tag is text, not {value!r}")
    if value is None or value == "*" or '"' in value:
        return value
    return f'"{value}"'


def tagged(answer: Answer, document: Any) -> Any:
    tag = answer.header("ETag")
    if tag is not None and isinstance(document, dict):
        document["etag"] = tag
    return document


class Left(BaseException):
    """The daemon answered 202: the operation continues in the daemon. Client.submit, which requested that, catches
    it."""

    def __init__(self, operation: Operation) -> None:
        super().__init__(operation)
        self.operation = operation


class Asker:
    """Sends requests to one daemon, in one session."""

    def __init__(self, transport: Transport, session: str) -> None:
        path_of(session)
        self._transport = transport
        self._session = session
        self._submits = False

    def __copy__(self) -> Any:
        """Shares the connections, unlike a pickled copy."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __reduce__(self) -> Any:
        raise not_pickled(self, "pickle the client that has it")

    def _below(self, *parts: str, session: Optional[str] = None) -> str:
        return path_of("sessions", session if session is not None else self._session, *parts)

    def _json(self, method: str, path: str, query: Optional[Mapping[str, Any]] = None, body: Any = None,
              headers: Optional[Mapping[str, str]] = None, patience: float = 0) -> Tuple[Answer, Any]:
        """The answer and its JSON; None if it has no body."""
        fields = dict(headers or {})
        data: Optional[List[Piece]] = None
        if body is not None:
            try:
                data = [memoryview(json.dumps(body).encode())]
            except (TypeError, ValueError) as e:
                raise BadType(f"an argument cannot be written as JSON: {e}") from e
            fields["Content-Type"] = "application/json"
        return self._exchange(method, path + query_of(query or {}), fields, data, patience=patience)

    def _exchange(self, method: str, target: str, headers: Mapping[str, str], body: Optional[Sequence[Piece]] = None,
                  progress: Optional[Progress] = None, patience: float = 0) -> Tuple[Answer, Any]:
        """A request whose answer is JSON, and which is repeated if the answer breaks off."""
        retry = self._transport.retry
        fields = retry.fields(method, headers)

        def once() -> Tuple[Answer, Any]:
            answer = self._once(method, target, fields, body, progress, patience)
            text = answer.read()
            return answer, answer.parse(text) if text or answer.status not in (202, 204, 304) else None

        return retry.run(once, retry.repeatable(method, fields))

    def _ask(self, method: str, target: str, headers: Mapping[str, str], body: Optional[Sequence[Piece]] = None,
             progress: Optional[Progress] = None, patience: float = 0) -> Answer:
        """Sends a request; the caller reads the answer."""
        retry = self._transport.retry
        fields = retry.fields(method, headers)
        return retry.run(lambda: self._once(method, target, fields, body, progress, patience),
                         retry.repeatable(method, fields))

    def _once(self, method: str, target: str, headers: Mapping[str, str], body: Optional[Sequence[Piece]] = None,
              progress: Optional[Progress] = None, patience: float = 0) -> Answer:
        """Sends a request. All requests of this package except mappings go through here. Raises Left if the operation
        continues in the daemon."""
        fields = dict(headers)
        if self._submits and method not in SAFE:
            fields["Prefer"] = ", ".join(filter(None, ("respond-async", fields.get("Prefer"))))
        answer = self._transport.ask(method, target, fields, body, progress, patience)
        if answer.status == 202 and answer.header("Preference-Applied") == "respond-async":
            raise Left(cast(Operation, answer.json()))
        return answer

    def _discard(self, path: str, headers: Optional[Mapping[str, str]] = None) -> None:
        """Deletes what a call that failed had begun. Its own errors are ignored, because the call's error is raised."""
        try:
            self._json("DELETE", path, headers=headers)
        except Error:
            pass

    def _tagged(self, *request: Any) -> Any:
        """The answer's JSON with its entity tag beside the other keys."""
        return tagged(*self._json(*request))

    def _get(self, path: str, query: Optional[Mapping[str, Any]] = None, **more: Any) -> Any:
        return self._json("GET", path, query, None, **more)[1]

    def _post(self, path: str, body: Any = None, query: Optional[Mapping[str, Any]] = None, **more: Any) -> Any:
        return self._json("POST", path, query, {} if body is None else body, **more)[1]

    def _pages(self, path: str, query: Optional[Mapping[str, Any]] = None) -> Iterator[Dict[str, Any]]:
        cursor: Optional[str] = None
        while True:
            page = self._get(path, {**(query or {}), "limit": PAGE, "cursor": cursor})
            yield from cast(List[Dict[str, Any]], page["items"])
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def _all(self, path: str, query: Optional[Mapping[str, Any]] = None) -> List[Dict[str, Any]]:
        """The items of all pages."""
        return list(self._pages(path, query))

