"""What makes a client like a mapping of names, and what pickles it."""
from __future__ import annotations

import html
import re
from typing import Any, Dict, Iterator, List, Optional, Tuple, cast

from . import _tls
from ._address import Address
from ._asker import given
from ._checkpoints import Checkpointing
from ._http import Transport
from .errors import BadArgument, BadType, BufferNotFound
from .types import ListedBuffer

SHOWN_MAX = 100  # buffers of a table
NAME = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
PATTERN = re.compile(r"[*?\[]")


class Names(Checkpointing):
    """Part of the client."""

    _socket: Optional[str]

    def list(self, *, prefix: str = "", sort: Optional[str] = None, label: Optional[str] = None,
             state: Optional[str] = None, kind: Optional[str] = None) -> List[ListedBuffer]:
        """All buffers of the session, or those that fit all that is given.

        Args:
            prefix: their names begin so; it is no pattern.
            sort: the field of the order: ``name``, ``created_at``, ``updated_at`` or ``bytes``; with ``-`` before it
                descending. Without it the oldest come first.
            label: they have this label (``name``), or this value of it (``name=value``).
            state: ``ready``, ``partial``, ``lost`` or ``stored``.
            kind: the kind of their memory."""
        if not isinstance(prefix, str):
            raise BadType(f"prefix is text, not {prefix!r}")
        if PATTERN.search(prefix):
            raise BadArgument(f"prefix is the beginning of the names and no pattern: {PATTERN.split(prefix)[0]!r}, not "
                              f"{prefix!r}")
        query = given(prefix=prefix or None, sort=sort, label=label, state=state, kind=kind)
        if prefix and not NAME.fullmatch(prefix):
            return []  # no name begins so
        return cast(List[ListedBuffer], self._all(self._below("buffers"), query))

    def __contains__(self, name: object) -> bool:
        """``"x" in client``: the session has a buffer of that name, and not if it can have none."""
        if not isinstance(name, str) or not NAME.fullmatch(name):
            return False
        try:
            self._get(self._below("buffers", name))
        except BufferNotFound:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        """The names of the session's buffers."""
        return (str(buffer["name"]) for buffer in self._pages(self._below("buffers")))

    def _repr_html_(self) -> str:
        """A table of the buffers, for notebooks."""
        buffers, cells = self.list(), ("name", "dtype", "shape", "bytes", "kind", "state", "generation")
        head = "".join(f"<th>{cell}</th>" for cell in cells)
        rows = "".join("<tr>" + "".join(f"<td>{html.escape(_cell(buffer, cell))}</td>" for cell in cells) + "</tr>"
                       for buffer in buffers[:SHOWN_MAX])
        more = f" (the first {SHOWN_MAX})" if len(buffers) > SHOWN_MAX else ""
        title = (f"session {self._session} at {self._transport.address}: {len(buffers)} buffers, "
                 f"{sum(b['bytes'] for b in buffers):,} bytes{more}")
        return (f"<table><caption>{html.escape(title)}</caption><thead><tr>{head}</tr></thead>"
                f"<tbody>{rows}</tbody></table>")

    def __reduce__(self) -> Tuple[Any, ...]:
        """Pickled, a client is where it goes to, with its token: the copy connects by itself. Mappings and what is lent
        stay behind."""
        t = self._transport
        if type(t) is not Transport:
            raise BadType("a client of a fleet's session is not pickled: pickle the fleet's addresses, and call "
                          "Fleet(urls).session(name) there")
        return _again, (type(self), tuple(t.address), t.token, t.timeout, t.files, t.retry.retries, self._session,
                        self._socket)

    @classmethod
    def _over(cls, transport: Transport, session: str, socket: Optional[str]) -> Any:
        """A client with these connections."""
        client = cls.__new__(cls)
        Checkpointing.__init__(client, transport, session)
        client._begin(socket)
        return client

    def _begin(self, socket: Optional[str]) -> None:
        raise NotImplementedError


def _cell(buffer: ListedBuffer, cell: str) -> str:
    value = cast(Dict[str, Any], buffer)[cell]
    return f"{value:,}" if cell == "bytes" else str(value)


def _again(cls: Any, address: Any, token: Optional[str], timeout: float, files: Any, retries: int, session: str,
           socket: Optional[str]) -> Any:
    where = Address(*address)
    transport = Transport(where, token, timeout, _tls.Trust(*files) if where.tls else None, retries)
    transport.files = files
    return cls._over(transport, session, socket)
