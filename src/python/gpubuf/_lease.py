"""A lease: a connection over the UNIX socket, to which the daemon binds a mapping."""
from __future__ import annotations

import json
import math
import os
import threading
from typing import Any, Dict, Mapping, Optional

from ._address import Address, why_not
from ._epochs import Epochs
from ._http import Passing
from .errors import BadArgument, BrokenAnswer, Error, Unreachable, error_of

JSON = "Content-Type: application/json"
END_S = 10.0  # the longest wait for the end of a lease; the lease ends in any case


class Lease:
    """A connection and the grant over it: the document, and descriptors, which the new owner takes with take_fd."""

    def __init__(self, address: Address, token: Optional[str], timeout: float, epochs: Epochs) -> None:
        assert address.unix is not None
        self._path = address.unix
        # Reentrant: the garbage collector may free the last array in the thread that holds it.
        self._pid, self._lock = os.getpid(), threading.RLock()
        self.document: Dict[str, Any] = {}
        self._wire: Optional[Passing] = None
        try:
            self._wire = Passing(self._path, token, timeout, epochs)
        except OSError as e:
            raise Unreachable(f"there is no daemon at unix://{self._path}: {why_not(self._path, e)}") from e

    def ask(self, path: str, body: Mapping[str, Any], wait: Optional[float], give: Optional[int] = None) -> None:
        """Requests the lease; raises the daemon's error. give: a descriptor that the daemon asks for first."""
        assert self._wire is not None
        if wait is not None:
            self._wire.sock.settimeout((self._wire.sock.gettimeout() or 0) + wait)
        try:
            self._wire.give = give
            prefer = [f"Prefer: wait={math.ceil(wait)}"] if wait is not None else []
            self._wire.send("POST", path, json.dumps(body).encode(), [JSON, *prefer])
            status, data = self._wire.answer("POST " + path)
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
        self._of_this_process()
        with self._lock:
            if self._wire is None:
                raise BadArgument("the lease has ended")
            try:
                self._wire.send("POST", path, json.dumps(body).encode(), [JSON])
                status, data = self._wire.answer("POST " + path)
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
        self._of_this_process()
        with self._lock:
            if self._wire is None:
                return None
            try:
                self._wire.send("GET", path)
                status, data = self._wire.answer("GET " + path)
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

    def _of_this_process(self) -> None:
        """Two processes that used one connection would take each other's answers."""
        if self._pid != os.getpid():
            raise BadArgument("the lease belongs to the process that this one was forked from: map here (client.map)")

    def take_fd(self) -> int:
        """The next descriptor; the caller owns it."""
        if self._wire is None or not self._wire.fds:
            raise BrokenAnswer(f"no descriptor came with the lease, which goes by {self.document.get('way')}")
        return self._wire.fds.pop(0)

    @property
    def alive(self) -> bool:
        """True while the daemon keeps the connection."""
        with self._lock:
            if self._wire is None:
                return False
            try:
                return self._wire.quiet()
            except OSError:
                return False

    def end(self) -> None:
        """Ends the lease and waits until the daemon has ended it, so that a following write does not conflict with
        it."""
        with self._lock:
            if self._wire is not None and self._pid == os.getpid():
                try:
                    self._wire.sock.settimeout(END_S)
                    self._wire.send("DELETE", f"/v1/leases/{self.document['lease']}")
                    self._wire.answer("DELETE")
                except (OSError, Error):
                    pass  # its connection ends, and the lease with it
        self.close()

    def give_up(self, path: str, created_at: str, side: Optional[str] = None) -> None:
        """Deletes the adopted buffer, if it still is the same one, or releases the adopted side, and closes."""
        with self._lock:
            if self._wire is not None and self._pid == os.getpid():
                try:
                    self._wire.sock.settimeout(END_S)
                    self._wire.send("GET", path)
                    status, data = self._wire.answer("GET")
                    found = json.loads(data) if status == 200 else {}
                    if found.get("adopted") and found.get("created_at") == created_at:
                        self._end_of(path, found, side)
                except (OSError, ValueError, Error):
                    pass  # its connection ends, and the buffer is lost with it
        self.close()

    def _end_of(self, path: str, found: Dict[str, Any], side: Optional[str]) -> None:
        assert self._wire is not None
        if side is None:
            self._wire.send("DELETE", path)
            self._wire.answer("DELETE")
            return
        other = "device" if side == "host" else "host"
        sides = found["sides"]
        if sides[side]["owned"]:
            return
        if sides[side]["current"] and not sides[other]["current"]:
            self._wire.send("POST", path + "/sync", json.dumps({"to": other}).encode(), [JSON])
            self._wire.answer("POST")
        self._wire.send("POST", path + "/release", json.dumps({"side": side}).encode(), [JSON])
        self._wire.answer("POST")

    def close(self) -> None:
        """Ends the lease without waiting. In a forked child the lease stays with the parent."""
        with self._lock:
            wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()
