"""Sends bytes in pieces, each of which the peer has read before the next is sent; compares answers with the grammar."""
import fcntl
import re
import select
import socket
import struct
import termios
import time

from connected import PATIENCE_S, Connected

STATUS = re.compile(rb"HTTP/1\.1 ([1-5]\d\d) [ -~]+$")
FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([!-~]?[ -~\t]*?)[ \t]*$")
SOCK_DIAG_BY_FAMILY = 20
SOCK_DIAG = 4  # the netlink family


class Malformed(Exception):
    """The bytes are no answer of HTTP/1.1 with a length."""


def replies(data):
    """[(status, {field: value}, body)] of bytes that contain only answers."""
    out = []
    while data:
        text, ended, data = data.partition(b"\r\n\r\n")
        if not ended:
            raise Malformed(f"a head that does not end: {text[:200]!r}")
        first, *rest = text.split(b"\r\n")
        status, fields = STATUS.match(first), [FIELD.match(line) for line in rest]
        if not status or not all(fields):
            raise Malformed(f"the head {text[:300]!r}")
        named = {}
        for m in fields:
            name = m.group(1).decode().title()
            if name in named and name in ("Content-Length", "Transfer-Encoding", "Connection", "Date"):
                raise Malformed(f"{name} twice in {text[:300]!r}")
            named[name] = m.group(2).decode()
        code = int(status.group(1))
        bodyless = code < 200 or code in (204, 304)
        if not bodyless and not named.get("Content-Length", "").isdigit():
            raise Malformed(f"no length in {text[:300]!r}")
        n = 0 if bodyless else int(named["Content-Length"])
        if len(data) < n:
            raise Malformed(f"{len(data)} bytes of a body of {n} behind {text[:100]!r}")
        if data[:n].startswith(b"HTTP/"):
            raise Malformed(f"a second head where the body should be: {data[:60]!r} behind {text[:60]!r}")
        if code >= 200:
            out.append((code, named, data[:n]))
        data = data[n:]
    return out


def unread_tcp(netlink, own, peer):
    """Bytes in the receive queue of the connection's other end; None if the kernel does not know the connection."""
    ends = (struct.pack(">HH", peer[1], own[1]) + socket.inet_aton(peer[0]).ljust(16, b"\0")
            + socket.inet_aton(own[0]).ljust(16, b"\0"))
    ask = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0,
                      0xffffffff) + ends + struct.pack("=III", 0, 0xffffffff, 0xffffffff)
    netlink.send(struct.pack("=IHHII", 16 + len(ask), SOCK_DIAG_BY_FAMILY, 1, 1, 0) + ask)
    answer = netlink.recv(4096)
    kind = struct.unpack_from("=H", answer, 4)[0]
    if kind != SOCK_DIAG_BY_FAMILY:
        return 0 if struct.unpack_from("=i", answer, 16)[0] == -2 else None  # ENOENT: the connection is gone
    return struct.unpack_from("=I", answer, 72)[0]


class Wire(Connected):
    """got: the received bytes. ended: the peer has closed or reset."""

    def __init__(self, address):
        super().__init__(address)
        self.got, self.ended = b"", False
        self.netlink = None
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        if self.sock.family == socket.AF_INET:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG)
            self.netlink.settimeout(PATIENCE_S)
            self.ends = self.sock.getsockname(), self.sock.getpeername()

    def unread(self):
        if self.netlink:
            n = unread_tcp(self.netlink, *self.ends)
            if n is not None:
                return n
        return struct.unpack("i", fcntl.ioctl(self.sock, termios.TIOCOUTQ, b"\0\0\0\0"))[0]

    def read(self, wait_s=0):
        """Reads the available bytes; True if there were any or the connection ended."""
        moved = False
        while not self.ended and select.select([self.sock], [], [], 0 if moved else wait_s)[0]:
            moved = True
            try:
                data = self.sock.recv(1 << 18)
            except OSError:
                data = b""
            self.got += data
            self.ended = not data
        return moved

    def read_on(self, patience_s, enough=lambda: False):
        """Reads until the end of the connection, or enough bytes; False if neither came."""
        end = time.monotonic() + patience_s
        while not self.ended and not enough():
            if time.monotonic() > end:
                return False
            self.read(0.05)
        return True

    def taken(self, patience_s=1):
        """Waits until the peer has read all bytes, or has answered."""
        end = time.monotonic() + patience_s
        while not self.got and not self.ended and self.unread() > 0 and time.monotonic() < end:
            self.read(0.0003)

    def feed(self, pieces):
        for piece in pieces:
            try:
                self.sock.sendall(piece)
            except OSError:  # the peer has closed: its answer is readable
                self.read()
                return self
            self.taken()
        return self

    def half_close(self):
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self, reset=False):
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        super().close()
        if self.netlink:
            self.netlink.close()
