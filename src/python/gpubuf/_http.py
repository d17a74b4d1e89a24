"""Connections of http.client, made quick for small requests: a request leaves in one piece, and the head of an answer is parsed without
the email package, which took half of the time of a small request."""
from __future__ import annotations

import http.client
import socket
from typing import Any, Callable, List, Optional, Tuple

LINE_MAX = 64 << 10
FIELDS_MAX = 100
LENGTH_DIGITS = 18


def _line(fp: Any) -> bytes:
    line: bytes = fp.readline(LINE_MAX + 1)
    if len(line) > LINE_MAX:
        raise http.client.LineTooLong("head")
    return line


def _status(fp: Any) -> Tuple[int, int, str]:
    line = _line(fp)
    if not line:
        raise http.client.RemoteDisconnected("the connection ended without an answer")
    words = line.decode("latin-1").rstrip("\r\n").split(None, 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or len(words[1]) != 3 or not words[1].isdecimal() or words[1] < "100":
        raise http.client.BadStatusLine(line.decode("latin-1"))
    return (10 if words[0] == "HTTP/1.0" else 11), int(words[1]), (words[2].strip() if len(words) > 2 else "")


def _fields(fp: Any) -> http.client.HTTPMessage:
    found: List[Tuple[str, str]] = []
    lines = 0
    while True:
        line = _line(fp)
        if line in (b"\r\n", b"\n"):
            break
        if not line:
            raise http.client.HTTPException("the head of the answer is cut off")
        lines += 1
        if lines > FIELDS_MAX:
            raise http.client.HTTPException(f"got more than {FIELDS_MAX} headers")
        text = line.decode("latin-1")
        if text[0] in " \t" and found:  # a folded value
            found[-1] = found[-1][0], f"{found[-1][1]} {text.strip()}".strip()
            continue
        name, colon, value = text.partition(":")
        if not colon or name.split() != [name]:
            raise http.client.HTTPException(f"a field of the head is no field: {text[:100]!r}")
        found.append((name, value.strip()))
    message = http.client.HTTPMessage()
    for name, value in found:
        message.set_raw(name, value)
    return message


def head_of(fp: Any) -> Tuple[int, int, str, http.client.HTTPMessage]:
    """Version (10 or 11), status, reason and fields of an answer; raises HTTPException."""
    return (*_status(fp), _fields(fp))


class Response(http.client.HTTPResponse):
    """An answer whose head is parsed here."""

    def __init__(self, sock: socket.socket, debuglevel: int = 0, method: Optional[str] = None, url: Optional[str] = None) -> None:
        super().__init__(sock, debuglevel, method, url)
        self._bodiless = method == "HEAD"

    def begin(self) -> None:
        if self.headers is not None:
            return
        self.version, self.status, self.reason, fields = head_of(self.fp)
        while self.status < 200 and self.status != http.client.SWITCHING_PROTOCOLS:  # the answer is still to come
            self.version, self.status, self.reason, fields = head_of(self.fp)
        self.code = self.status
        self.headers = self.msg = fields
        self.chunked = self._only("Transfer-Encoding", lambda value: value.lower() == "chunked") is not None
        self.chunk_left = None
        length = self._only("Content-Length", lambda value: value.isdecimal() and len(value) <= LENGTH_DIGITS)
        self.length = int(length) if length is not None and not self.chunked else None
        if self._bodiless or self.status < 200 or self.status in (http.client.NO_CONTENT, http.client.NOT_MODIFIED):
            self.length, self.chunked = 0, False
        self.will_close = self._closes() or (self.length is None and not self.chunked)

    def _only(self, name: str, fits: Callable[[str], bool]) -> Optional[str]:
        """The value of a field that says where the body ends; another value, or two, could hide a further answer in it."""
        values = set(self.headers.get_all(name) or ())
        if len(values) > 1 or not all(map(fits, values)):
            raise http.client.HTTPException(f"{name}: {', '.join(sorted(values))[:100]}")
        return values.pop() if values else None

    def _closes(self) -> bool:
        """True if the server keeps the connection for no further request."""
        said = (self.headers.get("Connection") or "").lower()
        return "close" in said if self.version == 11 else "keep-alive" not in said


class Connection(http.client.HTTPConnection):
    """Keeps the head, which http.client sends, until the caller says what leaves with it."""

    response_class = Response
    _head = b""

    def send(self, data: Any) -> None:
        self._head += data

    def flush(self, body: bytes = b"") -> None:
        """Sends the head, and the body behind it."""
        head, self._head = self._head, b""
        self.sock.sendall(head + body)


class SecureConnection(Connection, http.client.HTTPSConnection):
    """Over TLS."""


class UnixConnection(Connection):
    """Over a UNIX socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        except BaseException:
            self.close()
            raise
