"""Clients at addresses of their own: all of 127.0.0.0/8 is this machine, and each address of it is another client of a
daemon with --bound-local."""
import socket
import struct

from harness import PATIENCE_S, Client, Raw, metric

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


class From(Client):
    def __init__(self, d, source, token=None):
        super().__init__(d.tcp, token)
        self.http.source_address = (source, 0)
        d.clients.append(self)


class RawFrom(Raw):
    """A plain socket, which may begin with anything."""

    def __init__(self, address, source):
        self.sock = socket.socket()
        self.sock.settimeout(PATIENCE_S)
        self.sock.bind((source, 0))
        self.sock.connect(address)
        self.buffer, self.continues, self.asked = b"", 0, []


def proxy_1(source):
    family, target = (6, "2001:db8::99") if ":" in source else (4, "192.0.2.99")
    return f"PROXY TCP{family} {source} {target} 4711 80\r\n".encode()


def proxy_2(source, extra=b""):
    block = (socket.inet_pton(socket.AF_INET, source) + socket.inet_pton(socket.AF_INET, "192.0.2.99")
             + struct.pack("!HH", 4711, 80) + extra)
    return SIGNATURE + struct.pack("!BBH", 0x21, 0x11, len(block)) + block


def limited(client, limit):
    return metric(client, f'gpubufd_client_limited_total{{limit="{limit}"}}')
