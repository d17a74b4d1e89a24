"""The HTTP of this package: connections, requests and answers. All of it that speaks to a daemon goes through this
module.

A Transport has a persistent connection for each thread; bodies are sent from and received into the caller's memory. Its
connections are those of http.client, made quick for small requests: a request leaves in one piece, and the head of an
answer is parsed without the email package, which took half of the time of a small request. Passing is for the answers
that bring descriptors."""
from __future__ import annotations

import http.client
import io
import json
import os
import select
import socket
import threading
import time
import types
import weakref
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Protocol, Sequence, Tuple, Union
from urllib.parse import urlsplit, urlunsplit

from . import _tls
from ._address import Address, of_url, why_not
from ._epochs import Epochs
from ._retry import Retry, SAFE
from .errors import (BadArgument, BadType, BodyTooLarge, BrokenAnswer, Closed, Error, OwnerUnknown, TicketInvalid,
                     Unauthenticated, Unreachable, error_of)

Progress = Callable[[int, int], None]
STEP = 4 << 20  # bytes between two calls of a progress function
# A longer body waits for the daemon's 100 Continue, so that a refusal comes before the bytes. Below this size the wait
# would cost more than it saves.
EXPECT_BYTES = 4 << 20
JOINED_BYTES = 64 << 10  # a body of at most this leaves with the head
CONTINUE_S = 2.0  # for a server that never sends it
# of the daemon's text, for a client whose caller writes no headers
SEND_TOKEN = "send the header Authorization: Bearer TOKEN"
GIVE_TOKEN = "give Client(token=...), or set GPUBUF_TOKEN"
SAID = (("seal it first (POST .../seal)", "seal it first (client.seal)"),
        ("GET .../tensors lists its", "client.list_tensors has its"), ("?tensor=", "tensor="), ("?slice=", "slice="),
        ("?format=raw", "raw=True"))
HOPS_MAX = 3  # redirects of one request within a fleet
LINE_MAX = 64 << 10
FIELDS_MAX = 100
LENGTH_DIGITS = 18
FDS = 4  # the most descriptors with one answer
HEAD_MAX, BODY_MAX = 64 << 10, 1 << 20  # of an answer that may bring some


# --- heads and connections --------------------------------------------------------------------------------------------


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
    if (len(words) < 2 or not words[0].startswith("HTTP/1.") or len(words[1]) != 3 or not words[1].isdecimal()
        or words[1] < "100"):
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


def _head_of(fp: Any) -> Tuple[int, int, str, http.client.HTTPMessage]:
    """Version (10 or 11), status, reason and fields of an answer; raises HTTPException."""
    return (*_status(fp), _fields(fp))


class Response(http.client.HTTPResponse):
    """An answer whose head is parsed here."""

    def __init__(self, sock: socket.socket, debuglevel: int = 0, method: Optional[str] = None,
                 url: Optional[str] = None) -> None:
        super().__init__(sock, debuglevel, method, url)
        self._bodiless = method == "HEAD"

    def begin(self) -> None:
        if self.headers is not None:
            return
        self.version, self.status, self.reason, fields = _head_of(self.fp)
        while self.status < 200 and self.status != http.client.SWITCHING_PROTOCOLS:  # the answer is still to come
            self.version, self.status, self.reason, fields = _head_of(self.fp)
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
        """The value of a field that says where the body ends; another value, or two, could hide a further answer in
        it."""
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


def _quiet(sock: socket.socket) -> bool:
    """True if nothing can be read from a connection without a request. Readable means closed."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return not poll.poll(0)


def _answers_plainly(address: Address) -> bool:
    """True if HTTP answers without TLS; the request has no token."""
    connection = Connection(address.host, address.port, timeout=_tls.PROBE_S)
    try:
        connection.connect()
        connection.putrequest("HEAD", "/livez")
        connection.endheaders()
        connection.flush()
        connection.getresponse()
        return True
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


# --- over a UNIX socket, with descriptors -----------------------------------------------------------------------------


class Passing:
    """Requests over one connection whose answers bring descriptors, also with interim answers. http.client cannot
    receive descriptors."""

    def __init__(self, path: str, token: Optional[str], timeout: float, epochs: Epochs) -> None:
        self._token, self._epochs, self._buffer = token, epochs, b""
        self._asked = ("", "")  # method and path of the last request
        self.fds: List[int] = []  # that came; the caller owns those that it takes out
        self.give: Optional[int] = None  # a descriptor that the daemon asks for, by another one that it sends first
        self.sock = socket.socket(socket.AF_UNIX)
        try:
            self.sock.settimeout(timeout)
            self.sock.connect(path)
        except BaseException:
            self.sock.close()
            raise

    def send(self, method: str, path: str, body: bytes = b"", fields: Sequence[str] = ()) -> None:
        token = [f"Authorization: Bearer {self._token}"] if self._token is not None else []
        self._asked = method, path
        epoch = [f"{name}: {value}" for name, value in self._epochs.fields(path).items()]
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *token, *epoch,
                 *fields, "", ""]
        self.sock.sendall("\r\n".join(lines).encode("latin-1") + body)

    def _more(self) -> None:
        data, fds, flags, _ = socket.recv_fds(self.sock, 1 << 16, FDS, socket.MSG_CMSG_CLOEXEC)
        self.fds += fds
        if flags & socket.MSG_CTRUNC or len(self.fds) > FDS:
            raise BrokenAnswer("the daemon sent more descriptors than can be taken; is the limit of open files "
                               "reached?")
        if not data:
            raise BrokenAnswer("the connection ended before the answer did")
        if self.give is not None and self.fds:
            with socket.socket(fileno=self.fds.pop(0)) as box:
                socket.send_fds(box, [b"x"], [self.give])
            self.give = None
        self._buffer += data

    def answer(self, what: str) -> Tuple[int, bytes]:
        """Status and body of the next final answer."""
        while True:
            while b"\r\n\r\n" not in self._buffer:
                if len(self._buffer) > HEAD_MAX:
                    raise BrokenAnswer(f"{what}: the answer's head does not end")
                self._more()
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            try:
                _, status, _, fields = _head_of(io.BytesIO(head + b"\r\n\r\n"))
            except http.client.HTTPException as e:
                raise BrokenAnswer(f"{what}: this is no answer of gpubufd: {e!r}") from e
            if status >= 200:
                break
        self._epochs.take(*self._asked, status, fields)
        length = fields.get("Content-Length", "0" if status == 204 else "")
        if not length.isdigit() or int(length) > BODY_MAX:
            raise BrokenAnswer(f"{what}: the answer has a Content-Length of {length!r}")
        while len(self._buffer) < int(length):
            self._more()
        data, self._buffer = self._buffer[: int(length)], self._buffer[int(length) :]
        return status, data

    def quiet(self) -> bool:
        """True while the daemon keeps the connection: it sends nothing without a request, so that readable means
        closed."""
        return _quiet(self.sock)

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds = []
        self.sock.close()


# --- requests and answers ---------------------------------------------------------------------------------------------


def _elsewhere(response: http.client.HTTPResponse) -> Optional[str]:
    """The URL at another node of a fleet, if the answer is a redirect there: its query has the parameter via."""
    location = response.headers.get("Location")
    if response.status != 307 or location is None:
        return None
    parts = urlsplit(location)
    named = any(pair.startswith("via=") for pair in parts.query.split("&"))
    return location if named and parts.scheme in ("http", "https") and parts.hostname and not parts.username else None


class Source(Protocol):
    """Bytes that are not in host memory, such as those of a GPU. They come view by view when they are sent, each time
    from the beginning."""

    def __len__(self) -> int: ...

    def __getitem__(self, key: slice) -> "Source": ...

    def views(self) -> Iterator[memoryview]: ...


Piece = Union[memoryview, Source]  # of a body


class Closable(Protocol):
    def close(self) -> None: ...


class _Stopped(BaseException):
    """Wraps an exception of the caller's progress function, so that it is not taken for a broken connection."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__(reason)
        self.reason = reason


def _tell(progress: Progress, done: int, total: int) -> None:
    try:
        progress(done, total)
    except BaseException as e:
        raise _Stopped(e) from e


class _Held:
    """The connection of one thread in one process; closed when the thread ends, or with the client."""

    def __init__(self, http_connection: Connection) -> None:
        self.http = http_connection
        self.sock: Optional[socket.socket] = None  # http.client drops the socket if the daemon announced that it closes
        self.answer: Optional[http.client.HTTPResponse] = None
        self.pid = os.getpid()

    def __del__(self) -> None:
        if hasattr(self, "http"):  # an interrupt may come before
            self.close()

    def close(self) -> None:
        self.http.close()

    def usable(self) -> bool:
        """False if the daemon has closed it, if it belongs to the parent of this forked process, or if an exchange was
        interrupted."""
        if self.pid != os.getpid() or not (self.answer is None or self.answer.isclosed()):
            return False
        if self.http.sock is None:
            return True
        return _quiet(self.http.sock)


class Answer:
    """The head of an answer of status 2xx or 304. The body must be read to its end, or the answer closed."""

    def __init__(self, transport: "Transport", response: http.client.HTTPResponse, request: str) -> None:
        self._transport = transport
        self._response = response
        self._request = request
        self.received = 0  # bytes that the last read_into has received
        self.status = response.status

    def header(self, name: str) -> Optional[str]:
        return self._response.headers.get(name)

    @property
    def length(self) -> int:
        """Bytes of the body."""
        value = self.header("Content-Length")
        if value is None or not value.isdigit():
            raise self.broken("the answer gives no Content-Length")
        return int(value)

    def read(self) -> bytes:
        try:
            return self._response.read()
        except (http.client.HTTPException, OSError, ValueError) as e:
            raise self.ended(f"the answer broke off: {e}") from e

    def read_some(self) -> bytes:
        """Reads available bytes of the body, waiting for at least one; empty at its end. Raises Unreachable if the body
        is cut off."""
        try:
            return self._response.read1(1 << 16)
        except (http.client.HTTPException, OSError, ValueError) as e:
            self.close()
            raise Unreachable(f"{self._request}: the answer broke off: {e}") from e

    def read_into(self, view: memoryview, progress: Optional[Progress] = None) -> None:
        """Fills the view with the next bytes of the body."""
        have, total, self.received = 0, len(view), 0
        step = STEP if progress or self._transport.trust or self._transport.retry.retries else max(total, 1)
        try:
            while have < total:
                n = self._response.readinto(view[have : have + step])
                if n <= 0:
                    raise self.ended(f"the answer ended after {have} of {total} bytes")
                have += n
                self.received = have
                if progress:
                    _tell(progress, have, total)
        except (http.client.HTTPException, OSError) as e:
            if isinstance(e, Error):
                raise
            raise self.ended(f"the answer broke off: {e}") from e
        except _Stopped as e:
            self.close()
            raise e.reason from None
        except BaseException:
            self.close()
            raise

    def json(self) -> Any:
        return self.parse(self.read())

    def parse(self, data: bytes) -> Any:
        try:
            return json.loads(data)
        except ValueError as e:
            raise self.broken(f"the answer is no JSON: {data[:100]!r}") from e

    def finish(self) -> None:
        """Reads to the end of the body, so that the connection can be used again."""
        if self.read():
            raise self.broken("more comes than was said")

    def broken(self, text: str) -> BrokenAnswer:
        self.close()
        return BrokenAnswer(f"{self._request}: {text}")

    def ended(self, text: str) -> Error:
        """The error of a body that broke off. The daemon breaks it off if the token has ended, which a further request
        shows."""
        error = self.broken(text)
        if self._transport.lets_in():
            return error
        return Unauthenticated(f"{error.detail}: the token ended while the answer came (it was revoked, or has "
                               "expired)")

    def close(self) -> None:
        """Discards the rest of the body."""
        self._transport.drop()
        self._response.close()  # the response owns the socket if the daemon announced that it closes


_Request = Tuple[str, Optional[Mapping[str, str]], Optional[Sequence[Piece]], Optional[Progress], float]


class Transport:
    """Sends requests to one address. Any thread may use it: each has its own connection."""

    def __init__(self, address: Address, token: Optional[str], timeout: float, trust: Optional[_tls.Trust] = None,
                 retries: int = 0) -> None:
        if token is not None and (not token or any(c.isspace() for c in token)):
            raise BadArgument("a token is one word")
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
            raise BadType(f"timeout is a number of seconds, not {timeout!r}")
        if not timeout > 0:
            raise BadArgument(f"timeout is more than 0 seconds, not {timeout!r}")
        self.address, self.token, self.timeout, self.trust = address, token, timeout, trust
        self._local: Any = threading.local()
        self._all: "weakref.WeakSet[Closable]" = weakref.WeakSet()
        self._lock = threading.Lock()
        self._closed = False
        self.epochs = Epochs()
        self.retry = Retry(retries)
        self._spoken = False  # HTTP has been answered: the scheme of the URL is right
        self._nodes: Dict[Address, "Transport"] = {}  # of a fleet, to which requests were redirected
        # of Trust, where a redirect leads to https
        self.files: Tuple[Optional[str], Optional[str], Optional[str]] = (None, None, None)

    def close(self) -> None:
        """Closes the connections of all threads."""
        with self._lock:
            self._closed = True
            held = list(self._all)
        for one in held:
            one.close()

    def alone(self) -> "Transport":
        """A separate connection to the same daemon, which belongs to no thread; only one thread may use it at a
        time."""
        other = Transport(self.address, self.token, self.timeout, self.trust)
        other._local = types.SimpleNamespace()
        other.epochs = self.epochs
        return other

    def close_too(self, thing: Closable) -> None:
        """Closes it with the connections."""
        with self._lock:
            if self._closed:
                raise Closed("the client is closed")
            self._all.add(thing)

    def interrupt(self) -> None:
        """Shuts the connection down, so that a thread that reads from it sees its end at once. Has no effect in a
        forked child."""
        held: Optional[_Held] = getattr(self._local, "held", None)
        if held is not None and held.sock is not None and held.pid == os.getpid():
            try:
                held.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the connection has ended

    def drop(self) -> None:
        """Closes this thread's connection in the middle of an exchange."""
        held: Optional[_Held] = getattr(self._local, "held", None)
        if held is not None:
            held.http.close()
            self._local.held = None

    def lets_in(self) -> bool:
        """False if the daemon answers, and does not know the token any more."""
        if self.token is None and (self.trust is None or self.trust.cert is None):
            return True
        other = self.alone()
        try:
            other.ask("HEAD", "/v1").close()
        except Error as e:
            return e.status != 401
        finally:
            other.close()
        return True

    def broken(self, text: str) -> BrokenAnswer:
        self.drop()
        return BrokenAnswer(text)

    def _connection(self) -> Tuple[_Held, bool]:
        """This thread's connection, and whether it has been used before."""
        held: Optional[_Held] = getattr(self._local, "held", None)
        if held is not None and held.usable() and held.http.sock is not None:
            return held, True
        self._local.held = None
        a = self.address
        if a.unix is not None:
            fresh: Connection = UnixConnection(a.unix, self.timeout)
        elif self.trust is not None:
            fresh = SecureConnection(a.host, a.port, timeout=self.timeout, context=self.trust.context)
        else:
            fresh = Connection(a.host, a.port, timeout=self.timeout)
        held = _Held(fresh)
        self.close_too(held)
        try:
            fresh.connect()
        except OSError as e:
            if self.trust is not None:
                self.trust.explain(a, e, _answers_plainly)
            why = why_not(a.unix, e) if a.unix is not None else e.strerror or e
            error = Unreachable(f"there is no daemon at {a}: {why}")
            error.asked = False
            raise error from e
        held.sock = fresh.sock
        self._local.held = held
        return held, False

    def ask(self, method: str, target: str, headers: Optional[Mapping[str, str]] = None,
            body: Optional[Sequence[Piece]] = None, progress: Optional[Progress] = None, patience: float = 0) -> Answer:
        """Sends a request, and again to the node of a fleet that has the session. Returns the answer if it is 2xx or
        304, else raises the error that the problem document describes.

        patience: the longest time in seconds that the request permits the daemon to wait before it answers."""
        request = (method, headers, body, progress, patience)
        try:
            return self._ask_nodes(target, request)
        except TicketInvalid:  # it has ended on the way: there is another
            return self._ask_nodes(target, request)

    def _ask_nodes(self, target: str, request: "_Request") -> Answer:
        place, path, shown = self, self.address.prefix + target, target.partition("?")[0]
        for hops in range(HOPS_MAX + 1):
            answer = place._ask_here(path, *request, shown)
            location = _elsewhere(answer._response)
            if location is None:
                return answer
            answer.read()
            parts = urlsplit(location)
            place = self._node(of_url(f"{parts.scheme}://{parts.netloc}"), place)
            path = urlunsplit(("", "", parts.path, parts.query, ""))
            self._redirected()
        raise OwnerUnknown(f"the nodes of the fleet redirect more than {HOPS_MAX} times, at last to {place.address}")

    def _redirected(self) -> None:
        """A node of a fleet has named another one."""

    def _node(self, address: Address, before: "Transport") -> "Transport":
        """The connections to a node of the fleet. The token goes to no other host or port: a ticket takes its place."""
        if address == self.address._replace(prefix=""):
            return self
        if before.address.tls and not address.tls:
            raise BrokenAnswer(f"{before.address} redirects out of TLS, to {address}, which is not followed: the nodes "
                               "of the fleet are to advertise addresses of https")
        with self._lock:
            node = self._nodes.get(address)
        if node is None:
            trust = (self.trust or _tls.Trust(*self.files)) if address.tls else None
            node = Transport(address, None, self.timeout, trust)
            node.epochs = self.epochs
            self.close_too(node)
            with self._lock:
                node = self._nodes.setdefault(address, node)
        return node

    def _ask_here(self, target: str, method: str, headers: Optional[Mapping[str, str]], body: Optional[Sequence[Piece]],
                  progress: Optional[Progress], patience: float, shown: str) -> Answer:
        """Sends a request to this address. Also returns a redirect within a fleet. shown: the target in texts, without
        a ticket."""
        what = f"{method} {shown}"
        while True:
            held, used = self._connection()
            connection = held.http
            connection.sock.settimeout(self.timeout + patience)
            try:
                held.answer = response = self._exchange(connection, method, target, self.epochs.fields(shown, headers),
                                                        body, progress)
                break
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as e:
                self.drop()
                # The persistent connection had ended before the request: the daemon did not carry it out, so a retry is
                # safe.
                if not (used and method in SAFE):
                    self._explain(e, used)
                    raise Unreachable(f"{what}: the connection to {self.address} broke: {e}") from e
            except http.client.HTTPException as e:
                self.drop()
                self._explain(e, used)
                raise self.broken(f"{what}: this is no answer of gpubufd: {e!r}") from e
            except socket.timeout as e:
                self.drop()
                raise Unreachable(f"{what}: {self.address} did not answer within {self.timeout + patience:g} s") from e
            except OSError as e:
                self.drop()
                self._explain(e, used)
                raise Unreachable(f"{what}: the connection to {self.address} broke: {e}") from e
            except _Stopped as e:
                self.drop()
                raise e.reason from None
            except BaseException:
                self.drop()
                raise
        answer = Answer(self, response, what)
        self._spoken |= response.status != 400
        if response.status == 304 or 200 <= response.status < 300 or _elsewhere(response) is not None:
            self.epochs.take(method, shown, response.status, response.headers)
            return answer
        error = self._refusal(answer, method)
        self.epochs.take(method, shown, response.status, response.headers, error.code)
        raise error

    def _explain(self, error: Exception, used: bool) -> None:
        """Raises TlsFailed if a connection that was new failed for TLS."""
        if used:
            return
        if self.trust is not None:
            self.trust.explain(self.address, error, _answers_plainly)
        elif not self._spoken:
            _tls.explain_plain(self.address)

    def _exchange(self, connection: Connection, method: str, target: str, headers: Dict[str, str],
                  body: Optional[Sequence[Piece]], progress: Optional[Progress]) -> http.client.HTTPResponse:
        length = sum(map(len, body or ()))
        expect = length >= EXPECT_BYTES and not self.address.tls
        try:
            connection.putrequest(method, target, skip_accept_encoding=True)
        except (TypeError, ValueError, http.client.InvalidURL) as e:
            raise BadArgument(f"the path {target!r} cannot be sent: {e}") from e
        try:
            if self.token is not None:
                connection.putheader("Authorization", "Bearer " + self.token)
            for name, value in headers.items():
                connection.putheader(name, value)
        except (TypeError, ValueError) as e:
            raise BadArgument(f"a header field cannot be sent: {e}") from e
        if body is not None:
            connection.putheader("Content-Length", str(length))
        elif method not in SAFE:
            connection.putheader("Content-Length", "0")
        if expect:
            connection.putheader("Expect", "100-continue")
        connection.endheaders()
        if length <= JOINED_BYTES:
            try:
                connection.flush(b"".join(bytes(view) for view in _views(body or ())))
            except (BrokenPipeError, ConnectionResetError):
                if not length:
                    raise
                # refused during the body: the answer may be readable
            if progress and length:
                _tell(progress, length, length)
            return connection.getresponse()
        connection.flush()
        if body is not None and (not expect or self._goes_on(connection)):
            try:
                _send(connection, body, length, progress, self.trust is not None)
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused during the body: the answer may be readable
        return connection.getresponse()

    @staticmethod
    def _goes_on(connection: Connection) -> bool:
        """True if the daemon sends 100 Continue; False if the final answer came instead."""
        sock, end = connection.sock, time.monotonic() + CONTINUE_S
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        while poll.poll(max(0.0, end - time.monotonic()) * 1000):
            head = sock.recv(4096, socket.MSG_PEEK)
            if b"\r\n\r\n" in head and head.startswith(b"HTTP/1.1 100"):
                sock.recv(head.index(b"\r\n\r\n") + 4)
                return True
            if not b"HTTP/1.1 100".startswith(head[:12]) or not head or time.monotonic() > end:
                return False
            time.sleep(0.001)  # half of a 100: the peeked bytes stay readable, so that poll would not wait for the rest
        return True

    def _refusal(self, answer: Answer, method: str) -> Error:
        data = answer.read()  # reads nothing after a HEAD, and then the connection is free again
        try:
            problem = json.loads(data)
            if (self.trust is None and not self._spoken and isinstance(problem, dict) and problem.get("code")
                == "malformed_request"):
                self.drop()
                _tls.explain_plain(self.address)
            if isinstance(problem, dict) and isinstance(problem.get("code"), str):
                if answer.status == 401 and self.token is None:
                    problem["detail"] = str(problem.get("detail")).replace(SEND_TOKEN, GIVE_TOKEN)
                for said, here in SAID:
                    problem["detail"] = str(problem.get("detail")).replace(said, here)
                return error_of(answer.status, problem, answer.header("Retry-After"))
        except ValueError:
            pass
        text = data[:200].decode("utf-8", "replace").strip()
        to = answer.header("Location")
        if 300 <= answer.status < 400:
            return self.broken(f"{method}: {self.address} redirects to {to} (status {answer.status}), which is not "
                               "followed: give the daemon's own address")
        if answer.status == 400:
            self.drop()
            if self.trust is None and not self._spoken:
                _tls.explain_plain(self.address)
            elif self.trust is not None and b"SSL certificate" in data:
                return self.trust.refused(self.address)
        if answer.status == 413:
            return BodyTooLarge(f"{method}: the answer has the status 413 and is not a gpubufd's: a proxy in between "
                                "bounds the size of bodies (of nginx: client_max_body_size)")
        return error_of(answer.status, {"detail": f"{method}: status {answer.status} {text}".rstrip()},
                        answer.header("Retry-After"))


def _views(body: Sequence[Piece]) -> Iterator[memoryview]:
    for piece in body:
        if isinstance(piece, memoryview):
            yield piece
        else:
            yield from piece.views()


def _send(connection: Connection, body: Sequence[Piece], total: int, progress: Optional[Progress],
          tls: bool) -> None:
    done = 0
    for piece in _views(body):
        step = STEP if progress or tls else max(len(piece), 1)  # OpenSSL takes less than 2 GiB at a time
        for at in range(0, len(piece), step):
            part = piece[at : at + step]
            connection.sock.sendall(part)
            done += len(part)
            if progress:
                _tell(progress, done, total)
