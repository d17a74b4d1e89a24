"""Sockets of tests. Without pytest and the harness: programs that tests start use them too."""
import os
import socket

PATIENCE_S = float(os.environ.get("GB_E2E_PATIENCE", 90))  # a wait that takes longer has failed


class Connected:
    """A socket of a test's own, and what came over it and is not used yet. address: (host, port), or a path."""

    def __init__(self, address, receive_bytes=None):
        self.sock = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        if receive_bytes:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(address)
        self.buffer = b""

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
