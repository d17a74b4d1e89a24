"""A listener of /v1/feed."""
import json
import time

from connected import PATIENCE_S, Connected
from record import RECORD


class Event(dict):
    """The data of an event, with the id and type from its own lines."""

    def __init__(self, fields):
        super().__init__(json.loads(fields["data"]))
        assert fields["event"] == self["type"] and fields.get("id", str(self.get("id", ""))) == str(self.get("id", ""))


class Feed(Connected):
    def __init__(self, daemon, query="", headers=(), unix=False, version="1.1", token=None, receive_bytes=None):
        super().__init__(daemon.unix if unix else daemon.tcp, receive_bytes)
        lines = [f"GET /v1/feed{query} HTTP/{version}", "Host: localhost", *headers]
        lines += [f"Authorization: Bearer {token}"] if token else []
        self.sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        self.comments = 0
        head = self.until(b"\r\n\r\n").decode().split("\r\n")
        self.status = int(head[0].split()[1])
        self.headers = {k.title(): v.strip() for k, v in (line.split(":", 1) for line in head[1:] if line)}
        RECORD.note("GET", "/v1/feed", self.status, self.headers)
        if self.status == 200:
            assert self.headers["Content-Type"] == "text/event-stream" and "Content-Length" not in self.headers
            first = self.block()
            assert first == {"retry": "2000", "id": first["id"]}
            self.begins = int(first["id"])

    def until(self, mark):
        """The bytes before the mark; None at the end."""
        while mark not in self.buffer:
            data = self.sock.recv(1 << 16)
            if not data:
                return None
            self.buffer += data
        found, self.buffer = self.buffer.split(mark, 1)
        return found

    def block(self):
        text = self.until(b"\n\n")
        return None if text is None else dict(line.split(": ", 1) for line in text.decode().split("\n"))

    def next(self):
        """The next event; None at the end. Comments are counted."""
        while (block := self.block()) is not None:
            if "event" in block:
                return Event(block)
            self.comments += 1
        return None

    def take(self, count):
        return [self.next() for _ in range(count)]

    def find(self, kind, **members):
        """The next event of that type with these members."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            e = self.next()
            assert e is not None, f"the feed ended before {kind}"
            if e["type"] == kind and all(e.get(k) == v for k, v in members.items()):
                return e
        raise AssertionError(f"no {kind} {members}")
