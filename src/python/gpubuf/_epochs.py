"""Epochs of registered sessions, as answers had them.

Requests carry them, so that an owner that was superseded, and does not know it, refuses what it would have done.
"""
from __future__ import annotations

import re
import threading
from collections import OrderedDict
from email.message import Message
from typing import Dict, Mapping, Optional
from urllib.parse import unquote

FIELD = "Gpubuf-Epoch"
SESSIONS = 64  # that are remembered; a further one takes the place of the one not used for longest
_PATH = re.compile(r"/v1/(fleet/)?sessions/([^/?]+)(/?)")


class Epochs:
    """The highest epoch of each session. Any thread may use it."""

    def __init__(self) -> None:
        self._known: "OrderedDict[str, int]" = OrderedDict()
        self._lock = threading.Lock()

    def fields(self, path: str, given: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
        """The header fields of a request, with the epoch that is known unless the caller gives one."""
        fields, match = dict(given or {}), _PATH.match(path)
        if match and not match[1] and not any(name.lower() == FIELD.lower() for name in fields):
            with self._lock:
                epoch = self._known.get(unquote(match[2]))
                if epoch is not None:
                    self._known.move_to_end(unquote(match[2]))
                    fields[FIELD] = str(epoch)
        return fields

    def rise(self, session: str, epoch: int) -> None:
        """The session has that epoch, or a higher one. 0 changes nothing."""
        if epoch <= 0:
            return
        with self._lock:
            self._known[session] = max(epoch, self._known.get(session, 0))
            self._known.move_to_end(session)
            if len(self._known) > SESSIONS:
                self._known.popitem(last=False)

    def made(self, session: str, epoch: int) -> None:
        """The session was made with that epoch: what was known was of another of that name."""
        self.forget(session)
        self.rise(session, epoch)

    def forget(self, session: str) -> None:
        with self._lock:
            self._known.pop(session, None)

    def take(self, method: str, path: str, status: int, fields: Message, code: str = "") -> None:
        """Takes what the answer to a request says. code: of its error."""
        text, match = fields.get(FIELD) or "", _PATH.match(path)
        epoch = int(text) if text.isdigit() else 0
        if match is None:
            made = _PATH.search(fields.get("Location") or "") if status == 201 and epoch else None
            if made:
                self.made(unquote(made[2]), epoch)
            return
        if epoch:
            self.rise(unquote(match[2]), epoch)
        # A session that is made under the name later may be one of another fleet or of none. What is not found by a
        # POST may be another session, the source of a copy.
        ended = method == "DELETE" and not match[1] and not match[3] and 200 <= status < 300
        if ended or (code == "session_not_found" and method != "POST"):
            self.forget(unquote(match[2]))
