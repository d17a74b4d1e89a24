"""A lease: a connection over the UNIX socket, to which the daemon binds a mapping.

http.client cannot receive descriptors and takes 103 for the final answer, so this module implements the exchange itself.
"""
from __future__ import annotations

import io
import http.client
import json
import math
import os
import select
import socket
import threading
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ._address import Address, why_not
from ._epochs import Epochs
from ._http import head_of
from .errors import BadArgument, BrokenAnswer, Error, Unreachable, error_of

JSON = "Content-Type: application/json"
FDS = 4  # the most descriptors with one answer
HEAD_MAX, BODY_MAX = 64 << 10, 1 << 20
END_S = 10.0  # the longest wait for the end of a lease; the lease ends in any case


class Lease:
    """A connection and the grant over it: the document, and descriptors, which the new owner takes with take_fd."""

    def __init__(self, address: Address, token: Optional[str], timeout: float, epochs: Epochs) -> None:
        assert address.unix is not None
        self._path, self._token, self._epochs = address.unix, token, epochs
        # Reentrant: the garbage collector may free the last array in the thread that holds it.
        self._pid, self._lock, self._buffer = os.getpid(), threading.RLock(), b""
        self._fds: List[int] = []
        self._give: Optional[int] = None
        self._asked = ("", "")  # method and path of the last request
        self.document: Dict[str, Any] = {}
        self._sock: Optional[socket.socket] = socket.socket(socket.AF_UNIX)
        try:
            self._sock.settimeout(timeout)
            self._sock.connect(self._path)
        except OSError as e:
            self.close()
            raise Unreachable(f"there is no daemon at unix://{self._path}: {why_not(self._path, e)}") from e

    def ask(self, path: str, body: Mapping[str, Any], wait: Optional[float], give: Optional[int] = None) -> None:
        """Requests the lease; raises the daemon's error. give: a descriptor that the daemon asks for first."""
        assert self._sock is not None
        if wait is not None:
            self._sock.settimeout((self._sock.gettimeout() or 0) + wait)
        try:
            self._give = give
            prefer = [f"Prefer: wait={math.ceil(wait)}"] if wait is not None else []
            self._send("POST", path, json.dumps(body).encode(), [JSON, *prefer])
            status, data = self._answer("POST " + path)
            try:
                self.document = json.loads(data)
            except ValueError as e:
                raise BrokenAnswer(f"POST {path}: the answer is no JSON: {data[:100]!r}") from e
            if status not in (200, 201):
                raise error_of(status, self.document if isinstance(self.document, dict) else {})
        except BaseException as e:
            self.close()
            if isinstance(e, OSError) and not isinstance(e, Error):
                raise Unreachable(f"POST {path}: the connection to unix://{self._path} broke: {e}") from e
            raise

    def copy(self, path: str, body: Mapping[str, Any]) -> None:
        """Sends another request over the connection; the connection's own leases do not conflict with it."""
        with self._lock:
            if self._sock is None:
                raise BadArgument("the lease has ended")
            try:
                self._send("POST", path, json.dumps(body).encode(), [JSON])
                status, data = self._answer("POST " + path)
            except OSError as e:
                raise Unreachable(f"POST {path}: the connection to unix://{self._path} broke: {e}") from e
        if status >= 300:
            try:
                problem = json.loads(data)
            except ValueError as e:
                raise BrokenAnswer(f"POST {path}: the answer is no JSON: {data[:100]!r}") from e
            raise error_of(status, problem if isinstance(problem, dict) else {})

    def look(self) -> Optional[Dict[str, Any]]:
        """The lease as the daemon has it now; None when it has ended."""
        path = f"/v1/leases/{self.document['lease']}"
        with self._lock:
            if self._sock is None:
                return None
            try:
                self._send("GET", path, b"", [])
                status, data = self._answer("GET " + path)
            except OSError as e:
                if isinstance(e, TimeoutError) or self.alive:
                    raise Unreachable(f"GET {path}: no answer from unix://{self._path}: {e}") from e
                return None  # the connection has ended, and the lease with it
        try:
            answer = json.loads(data)
        except ValueError as e:
            raise BrokenAnswer(f"GET {path}: the answer is no JSON: {data[:100]!r}") from e
        if status == 404:
            return None
        if status != 200 or not isinstance(answer, dict):
            raise error_of(status, answer if isinstance(answer, dict) else {})
        return answer

    def _send(self, method: str, path: str, body: bytes, fields: List[str]) -> None:
        assert self._sock is not None
        token = [f"Authorization: Bearer {self._token}"] if self._token is not None else []
        self._asked = method, path
        epoch = [f"{name}: {value}" for name, value in self._epochs.fields(path).items()]
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *token, *epoch, *fields, "", ""]
        self._sock.sendall("\r\n".join(lines).encode("latin-1") + body)

    def _more(self) -> None:
        assert self._sock is not None
        data, fds, flags, _ = socket.recv_fds(self._sock, 1 << 16, FDS, socket.MSG_CMSG_CLOEXEC)
        self._fds += fds
        if flags & socket.MSG_CTRUNC or len(self._fds) > FDS:
            raise BrokenAnswer("the daemon sent more descriptors than can be taken; is the limit of open files reached?")
        if not data:
            raise BrokenAnswer("the connection ended before the answer did")
        if self._give is not None and self._fds:
            with socket.socket(fileno=self._fds.pop(0)) as box:
                socket.send_fds(box, [b"x"], [self._give])
            self._give = None
        self._buffer += data

    def _answer(self, what: str) -> Tuple[int, bytes]:
        """Status and body of the next final answer."""
        while True:
            while b"\r\n\r\n" not in self._buffer:
                if len(self._buffer) > HEAD_MAX:
                    raise BrokenAnswer(f"{what}: the answer's head does not end")
                self._more()
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            try:
                _, status, _, fields = head_of(io.BytesIO(head + b"\r\n\r\n"))
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

    def take_fd(self) -> int:
        """The next descriptor; the caller owns it."""
        if not self._fds:
            raise BrokenAnswer(f"no descriptor came with the lease, which goes by {self.document.get('way')}")
        return self._fds.pop(0)

    @property
    def alive(self) -> bool:
        """True while the daemon keeps the connection."""
        with self._lock:
            if self._sock is None:
                return False
            poll = select.poll()
            poll.register(self._sock, select.POLLIN)
            try:
                # The daemon sends nothing without a request; readable means closed.
                return not poll.poll(0)
            except OSError:
                return False

    def end(self) -> None:
        """Ends the lease and waits until the daemon has ended it, so that a following write does not conflict with it."""
        with self._lock:
            if self._sock is not None and self._pid == os.getpid():
                try:
                    self._sock.settimeout(END_S)
                    self._send("DELETE", f"/v1/leases/{self.document['lease']}", b"", [])
                    self._answer("DELETE")
                except (OSError, Error):
                    pass  # its connection ends, and the lease with it
        self.close()

    def give_up(self, path: str, created_at: str, side: Optional[str] = None) -> None:
        """Deletes the adopted buffer, if it still is the same one, or releases the adopted side, and closes."""
        with self._lock:
            if self._sock is not None and self._pid == os.getpid():
                try:
                    self._sock.settimeout(END_S)
                    self._send("GET", path, b"", [])
                    status, data = self._answer("GET")
                    found = json.loads(data) if status == 200 else {}
                    if found.get("adopted") and found.get("created_at") == created_at:
                        self._end_of(path, found, side)
                except (OSError, ValueError, Error):
                    pass  # its connection ends, and the buffer is lost with it
        self.close()

    def _end_of(self, path: str, found: Dict[str, Any], side: Optional[str]) -> None:
        if side is None:
            self._send("DELETE", path, b"", [])
            self._answer("DELETE")
            return
        other = "device" if side == "host" else "host"
        sides = found["sides"]
        if sides[side]["owned"]:
            return
        if sides[side]["current"] and not sides[other]["current"]:
            self._send("POST", path + "/sync", json.dumps({"to": other}).encode(), [JSON])
            self._answer("POST")
        self._send("POST", path + "/release", json.dumps({"side": side}).encode(), [JSON])
        self._answer("POST")

    def close(self) -> None:
        """Ends the lease without waiting. In a forked child the lease stays with the parent."""
        with self._lock:
            sock, self._sock = self._sock, None
            fds, self._fds = self._fds, []
        for fd in fds:
            os.close(fd)
        if sock is not None:
            sock.close()
