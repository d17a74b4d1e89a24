"""A client of TLS 1.2 that computes nothing: it shows a certificate with an RSA key of any size, and signs with random
bytes."""
import os
import random
import socket
import struct

PATIENCE_S = 60
SHA256_RSA = bytes.fromhex("06092a864886f70d01010b0500")
RSA = bytes.fromhex("06092a864886f70d0101010500")
NAME = bytes.fromhex("300c310a300806035504030c0178")  # CN=x


def der(tag, body):
    n = len(body)
    size = n.to_bytes((n.bit_length() + 7) // 8, "big")
    return bytes([tag]) + (bytes([n]) if n < 128 else bytes([0x80 | len(size)]) + size) + body


def integer(value):
    return der(2, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def odd(bits):
    return random.getrandbits(bits) | 1 | 1 << bits - 1


def certificate(bits, exponent_bits):
    key = der(0x30, integer(odd(bits)) + integer(odd(exponent_bits)))
    times = der(0x30, der(0x17, b"250101000000Z") + der(0x17, b"350101000000Z"))
    algorithm = der(0x30, SHA256_RSA)
    tbs = der(0x30, der(0xA0, integer(2)) + integer(5) + algorithm + NAME + times + NAME +
              der(0x30, der(0x30, RSA) + der(3, b"\0" + key)))
    return der(0x30, tbs + algorithm + der(3, b"\0" + os.urandom(256)))


def message(kind, body):
    return bytes([kind]) + len(body).to_bytes(3, "big") + body


def records(body):
    pieces = [body[i:i + 16000] for i in range(0, len(body), 16000)]
    return b"".join(b"\x16\3\3" + len(p).to_bytes(2, "big") + p for p in pieces)


def extension(kind, body):
    return struct.pack(">HH", kind, len(body)) + body


def hello():
    extensions = (extension(10, bytes.fromhex("0004001d0017")) + extension(13, bytes.fromhex("0006040304010804")) +
                  extension(11, b"\1\0") + extension(0xFF01, b"\0"))
    return message(1, b"\3\3" + os.urandom(32) + b"\0" + bytes.fromhex("0002c02b") + b"\1\0"
                   + struct.pack(">H", len(extensions)) + extensions)


def alert_of(address, bits, exponent_bits):
    """The number of the alert that the server sends."""
    with socket.create_connection(address, timeout=PATIENCE_S) as sock:
        sock.sendall(records(hello()))
        said = b""
        while b"\x0e\0\0\0" not in said:  # ServerHelloDone
            piece = sock.recv(65536)
            assert piece, "the connection ended within the server's messages"
            said += piece
        shown = certificate(bits, exponent_bits)
        chain = len(shown).to_bytes(3, "big") + shown
        signature = b"\4\1" + struct.pack(">H", bits // 8) + os.urandom(bits // 8)
        sock.sendall(records(message(11, len(chain).to_bytes(3, "big") + chain) + message(16, b"\x20" + os.urandom(32))
                             + message(15, signature)))
        answer = sock.recv(7)
        assert answer[:5] == b"\x15\3\3\0\2", answer
        return answer[6]
