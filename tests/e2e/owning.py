"""Clients that own memory which the daemon adopts: in the test's own process, and as processes that can be killed.

As a program: owning.py SOCKET SESSION BUFFER SIZE makes that many zeros, has them adopted, and prints the answer as a
line of JSON. Then it carries out commands from its standard input: "digest" prints the bytes' SHA-256, "write OFFSET
HEX" writes."""
import fcntl
import json
import mmap
import os
import socket
import sys

from connected import PATIENCE_S
from record import RECORD
from sharing import Local, Program, obey

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Owned:
    """Memory of this process in a memfd: view, fd."""

    def __init__(self, size, data=None, seals=fcntl.F_SEAL_SHRINK, flags=os.MFD_ALLOW_SEALING, offset=0):
        self.size, self.offset = size, offset
        self.fd = os.memfd_create("owned", os.MFD_CLOEXEC | flags)
        os.ftruncate(self.fd, offset + size)
        if seals:
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
        self.whole = mmap.mmap(self.fd, offset + size)
        self.view = memoryview(self.whole)[offset:]
        if data is not None:
            self.view[:] = data

    def bytes(self):
        return bytes(self.view)

    def close(self):
        if self.fd >= 0:
            self.view.release()
            self.whole.close()
            os.close(self.fd)
        self.fd = -1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Owner(Local):
    """A connection over which memory is adopted."""

    def ask_adopt(self, buffer, session="default", headers=(), **fields):
        """The socket that receives the descriptor, or the answer if the daemon gave no socket."""
        target = f"/v1/sessions/{session}/buffers/{buffer}/adopt"
        self.send("POST", target, fields, headers)
        fds = []
        while b"\r\n\r\n" not in self.buffer:
            if not self._more(fds):
                raise ConnectionError(f"the connection ended: {self.buffer!r}")
        if not fds:
            return self.noted(target)
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        assert head == b"HTTP/1.1 103 Early Hints" and len(fds) == 1, head
        given = socket.socket(fileno=fds[0])
        given.settimeout(PATIENCE_S)
        return given

    def noted(self, target):
        answer = self.reply("POST")
        RECORD.note("POST", target, answer.status, answer.headers)
        return answer

    def adopt(self, buffer, fds, session="default", headers=(), say=b"x", **fields):
        """The final answer. fds: the descriptors, sent in one message; none: the socket is closed instead."""
        box = self.ask_adopt(buffer, session, headers, **{"way": "memfd", **fields})
        if not isinstance(box, socket.socket):
            return box
        with box:
            if fds:
                socket.send_fds(box, [say], fds)
        return self.noted(f"/v1/sessions/{session}/buffers/{buffer}/adopt")

    def own(self, buffer, memory, session="default", **fields):
        """Adopts an Owned."""
        if "dtype" not in fields:
            fields["bytes"] = memory.size
        if memory.offset:
            fields["offset"] = memory.offset
        answer = self.adopt(buffer, [memory.fd], session, **fields)
        assert answer.status == 201, answer.body
        return answer.json()


class Process(Program):
    """This file as a program."""

    def __init__(self, daemon, session, buffer, size):
        super().__init__(__file__, daemon.unix, session, buffer, size)


def main(path, session, buffer, size):
    memory, owner = Owned(int(size)), Owner(path)
    print(json.dumps(owner.own(buffer, memory, session)), flush=True)
    for word in obey(memory.view):
        raise ValueError(word)


if __name__ == "__main__":
    main(*sys.argv[1:])
