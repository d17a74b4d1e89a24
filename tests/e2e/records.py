"""Connections of TLS that a test makes itself, and openssl's client."""
import re
import socket
import ssl
import subprocess

from connected import PATIENCE_S
from harness import Raw
from secure import RECORD, Secured  # noqa: F401


class Wire(Raw):
    """harness.Raw over such a connection."""

    def __init__(self, address, context, receive_bytes=None, **more):
        sock = socket.socket(socket.AF_INET)
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.settimeout(PATIENCE_S)
        sock.connect(address)
        self.buffer, self.continues, self.asked = b"", 0, []
        self.sock = sock  # closed if the handshake fails
        try:
            self.sock = Secured(sock, context, **more)
        except BaseException:
            sock.close()
            raise

    @property
    def session(self):
        return self.sock.tls.session

    def ask(self, method, target, *headers, body=b""):
        return self.request(method, target, headers, body).reply()


def context_of(authority, low=ssl.TLSVersion.TLSv1_2, high=ssl.TLSVersion.TLSv1_3, cert=None, key=None):
    context = authority.context(cert, key)
    context.minimum_version, context.maximum_version = low, high
    return context


def s_client(address, authority, *args, send=b"", name="localhost"):
    """What openssl s_client says, and the answer to `send`, which should ask for the connection's end."""
    run = subprocess.run(["openssl", "s_client", "-connect", "{}:{}".format(*address), "-CAfile", authority.cert,
                          "-servername", name, "-verify_return_error", "-ign_eof", *args], input=send,
                         capture_output=True, timeout=PATIENCE_S)
    return (run.stdout + run.stderr).decode(errors="replace")


def secured_address(daemon):
    address = next(a for a in daemon.addresses if a.startswith("tls:"))
    host, port = re.fullmatch(r"tls:(.*):(\d+)", address).groups()
    return host, int(port)
