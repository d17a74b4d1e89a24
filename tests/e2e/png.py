"""Makes the PNG of a screenshot smaller: 256 of its colours, and the nearest of them for all others."""
import struct
import zlib

from harness import library

numpy = library("numpy")
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunks(data):
    assert data[:8] == SIGNATURE
    at = 8
    while at < len(data):
        length = struct.unpack(">I", data[at:at + 4])[0]
        yield data[at + 4:at + 8], data[at + 8:at + 8 + length]
        at += 12 + length


def size(data):
    """(width, height)"""
    return struct.unpack(">II", next(chunks(data))[1][:8])


def average(left, up, corner):
    return (left + up) // 2


def paeth(left, up, corner):
    """The nearest of the three to left + up - corner."""
    a, b, c = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
    return left if a <= b and a <= c else up if b <= c else corner


def unfiltered(row, above, depth, guess):
    """A row whose bytes were written less what guess says of the neighbours."""
    out, row, above = [0] * len(row), row.tolist(), above.tolist()
    for i, byte in enumerate(row):
        left, corner = (out[i - depth], above[i - depth]) if i >= depth else (0, 0)
        out[i] = (byte + guess(left, above[i], corner)) & 255
    return numpy.array(out, "u1")


def pixels(data):
    """height x width x 3; of the PNGs that Chromium writes: eight bits, without interlacing, colours with or without
    alpha."""
    width, height, bits, kind, _, _, interlaced = struct.unpack(">IIBBBBB", next(chunks(data))[1])
    depth = {2: 3, 6: 4}[kind]
    assert bits == 8 and not interlaced
    rows = numpy.frombuffer(zlib.decompress(b"".join(d for name, d in chunks(data) if name == b"IDAT")),
                            "u1").reshape(height, -1)
    out = numpy.zeros((height, width * depth), "u1")
    above = out[0]
    for y, (how, row) in enumerate(zip(rows[:, 0], rows[:, 1:])):
        if how == 1:
            row = numpy.cumsum(row.reshape(-1, depth), 0, dtype="u1").ravel()
        elif how == 2:
            row = row + above
        elif how >= 3:
            row = unfiltered(row, above, depth, average if how == 3 else paeth)
        out[y] = above = row
    return out.reshape(height, width, depth)[..., :3]


def palette_of(rgb, counts):
    """The most frequent colours, and as many others, each the farthest from all before it: a small mark keeps its
    colour."""
    chosen = list(numpy.argsort(-counts, kind="stable")[:128])
    apart = numpy.full(len(rgb), 1 << 20)
    for i in range(256):
        if i == len(chosen):
            chosen.append(int(apart.argmax()))
        apart = numpy.minimum(apart, ((rgb - rgb[chosen[i]]) ** 2).sum(1))
    return rgb[chosen]


def smaller(data):
    picture = pixels(data)
    codes = picture.astype("u4") @ numpy.array([1 << 16, 1 << 8, 1], "u4")
    colours, places, counts = numpy.unique(codes, return_inverse=True, return_counts=True)
    rgb = (colours[:, None] >> numpy.array([16, 8, 0], "u4") & 255).astype("i4")
    palette = palette_of(rgb, counts)
    nearest = numpy.concatenate([((part[:, None] - palette) ** 2).sum(2).argmin(1)
                                 for part in numpy.array_split(rgb, len(rgb) // 4096 + 1)])
    height, width = codes.shape
    rows = numpy.zeros((height, width + 1), "u1")
    rows[:, 1:] = nearest[places.reshape(height, width)]

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    return SIGNATURE + b"".join([chunk(b"IHDR", header), chunk(b"PLTE", palette.astype("u1").tobytes()),
                                 chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)), chunk(b"IEND", b"")])
