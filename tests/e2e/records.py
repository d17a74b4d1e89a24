"""A client of TLS that decides which bytes leave when: its records are made apart from its socket."""
import re
import socket
import ssl
import subprocess

from harness import Raw
from connected import PATIENCE_S

RECORD = 16384


class Secured:
    """Used like a socket. session: of another one that is to be resumed."""

    def __init__(self, sock, context, name="localhost", session=None, shake=True):
        self.plain, self.into, self.out = sock, ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.into, self.out, server_hostname=name, session=session)
        self.cut = False  # the daemon has closed without saying so
        if shake:
            self._until(self.tls.do_handshake)

    def _flush(self):
        data = self.out.read()
        if data:
            self.plain.sendall(data)

    def _until(self, step, *args):
        while True:
            try:
                result = step(*args)
                self._flush()
                return result
            except ssl.SSLWantReadError:
                self._flush()
                data = self.plain.recv(1 << 18)
                if data:
                    self.into.write(data)
                else:
                    self.into.write_eof()

    def encrypted(self, data, size=RECORD):
        """The data in records of that many bytes."""
        view = memoryview(data)
        for at in range(0, len(view), size):
            self.tls.write(view[at:at + size])
        return self.out.read()

    def sendall(self, data, size=RECORD):
        for at in range(0, len(data), 1 << 20):
            self.plain.sendall(self.encrypted(data[at:at + (1 << 20)], size))

    def recv(self, n):
        try:
            return self._until(self.tls.read, n)
        except ssl.SSLZeroReturnError:
            return b""
        except ssl.SSLEOFError:
            self.cut = True
            return b""

    def last_words(self):
        """The record with which TLS ends, for our side alone."""
        try:
            self.tls.unwrap()
        except ssl.SSLWantReadError:
            pass
        return self.out.read()

    def __getattr__(self, name):  # settimeout, setsockopt, shutdown, close
        return getattr(self.plain, name)


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
    run = subprocess.run(["openssl", "s_client", "-connect", "{}:{}".format(*address), "-CAfile", authority.cert, "-servername", name,
                          "-verify_return_error", "-ign_eof", *args], input=send, capture_output=True, timeout=PATIENCE_S)
    return (run.stdout + run.stderr).decode(errors="replace")


def secured_address(daemon):
    address = next(a for a in daemon.addresses if a.startswith("tls:"))
    host, port = re.fullmatch(r"tls:(.*):(\d+)", address).groups()
    return host, int(port)
