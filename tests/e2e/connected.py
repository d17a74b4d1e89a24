"""Sockets of tests, without pytest and the harness, because programs that tests start use them, too."""
import os
import socket

PATIENCE_S = float(os.environ.get("GB_E2E_PATIENCE", 90))  # a longer wait is a failure


class Connected:
    """A socket, and the received bytes that are not consumed yet. address: (host, port), or a path."""

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
