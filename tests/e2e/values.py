"""Tensors to send, and a CRC32C that is independent of the daemon's."""
import io
import json
import struct

import numpy as np

_POLYNOMIAL = np.uint32(0x82F63B78)
DTYPES = ("bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 complex64 complex128").split()


def _table():
    t = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        t = np.where(t & 1, (t >> 1) ^ _POLYNOMIAL, t >> 1).astype(np.uint32)
    return t


_TABLE = _table()


def _apply(matrix, x):
    """Multiplies matrix (32 columns over GF(2)) by every number in x."""
    x = np.asarray(x, dtype=np.uint32)
    out = np.zeros_like(x)
    for byte in range(4):
        products = np.zeros(256, dtype=np.uint32)
        for bit in range(8):
            products[1 << bit:2 << bit] = products[:1 << bit] ^ matrix[8 * byte + bit]
        out ^= products[(x >> np.uint32(8 * byte)) & np.uint32(0xFF)]
    return out


def _zeros(n):
    """The matrix that feeds n zero bytes."""
    unit = np.uint32(1) << np.arange(32, dtype=np.uint32)
    step = (_TABLE[unit & np.uint32(0xFF)] ^ (unit >> np.uint32(8))).astype(np.uint32)
    total = unit
    while n:
        if n & 1:
            total = _apply(step, total)
        step = _apply(step, step)
        n >>= 1
    return total


def crc32c(data):
    """The CRC32C as eight hexadecimal digits. Many lanes are computed at once: the CRC is linear, so lanes are joined
    by feeding zeros."""
    data = np.frombuffer(data, dtype=np.uint8)
    lanes = 1
    while lanes < 1 << 16 and lanes * lanes < data.size:
        lanes *= 2
    width = max(1, -(-data.size // lanes))
    # Leading zeros do not change a zero register; the standard initial value of all ones is applied at the end.
    grid = np.zeros(lanes * width, dtype=np.uint8)
    grid[grid.size - data.size:] = data
    grid = np.ascontiguousarray(grid.reshape(lanes, width).T)
    crc = np.zeros(lanes, dtype=np.uint32)
    for column in grid:
        crc = _TABLE[(crc ^ column) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    while crc.size > 1:
        crc = _apply(_zeros(width), crc[0::2]) ^ crc[1::2]
        width *= 2
    start = _apply(_zeros(data.size), np.uint32(0xFFFFFFFF))
    return f"{int(crc[0] ^ start) ^ 0xFFFFFFFF:08x}"


def payload(n, seed=0):
    return np.random.default_rng([seed, n]).bytes(n)


def npy(array, version=(1, 0)):
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asarray(array), version=version)
    return out.getvalue()


def npy_header(text, version=1):
    """A .npy header of exactly that text, valid or not."""
    text = text.encode()
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + text


def array_of(dtype, shape, seed=0):
    n = int(np.prod(shape, dtype=np.int64))
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, n).astype(bool).reshape(shape)
    kind = np.dtype(dtype)
    if kind.kind in "fc":
        return (rng.standard_normal(n) + (1j * rng.standard_normal(n) if kind.kind == "c"
                                          else 0)).astype(kind).reshape(shape)
    return np.frombuffer(rng.bytes(n * kind.itemsize), dtype=kind).reshape(shape)


# --- safetensors, by hand ---------------------------------------------------------------------------------------------


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def one(dtype, shape, data, name="t"):
    return file_of({name: {"dtype": dtype, "shape": list(shape), "data_offsets": [0, len(data)]}}, data)


def safetensors_of(**tensors):
    """A file of several tensors of bytes."""
    table, at = {}, 0
    for name, data in tensors.items():
        table[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [at, at + len(data)]}
        at += len(data)
    return file_of(table, b"".join(tensors.values()))
