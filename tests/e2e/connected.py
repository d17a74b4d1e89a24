"""Sockets and pipes of tests, without pytest and the harness, because programs that tests start use them, too."""
import os
import select
import socket
import time

import secure

PATIENCE_S = float(os.environ.get("GB_E2E_PATIENCE", 90))  # a longer wait is a failure



def line_of(pipe, patience_s=PATIENCE_S):
    """The next line that a child prints into the pipe, with its end; if the pipe ends first, the bytes before that."""
    reader = getattr(pipe, "buffer", pipe)  # a text pipe has one
    line, end = b"", time.monotonic() + patience_s
    os.set_blocking(reader.fileno(), False)
    try:
        while not line.endswith(b"\n"):
            readable = select.select([reader], [], [], 0)[0]
            more = reader.readline()
            line += more
            if more:
                continue
            if readable:
                break
            assert select.select([reader], [], [], max(0, end - time.monotonic()))[0], (f"no line within {patience_s} "
                                                                                        f"s, only {line!r}")
    finally:
        os.set_blocking(reader.fileno(), True)
    return line if reader is pipe else line.decode()


class Connected:
    """A socket, and the received bytes that are not consumed yet. address: (host, port), or a path."""

    def __init__(self, address, receive_bytes=None):
        self.sock = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        if receive_bytes:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(address)
        if secure.EVERYWHERE and not isinstance(address, str):
            self.sock = secure.wrap(self.sock)
        self.buffer = b""

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
