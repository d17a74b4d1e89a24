"""Uploads in a content coding: decoded bytes, refusals, and that a refusal changes nothing."""
import gzip
import io
import random
import shutil
import subprocess
import zlib

import numpy as np
import pytest

from harness import DATA, SLOT, library, until
from values import crc32c, npy, payload

zstandard = library("zstandard")

ENCODERS = {"gzip": lambda data: gzip.compress(data, 1), "x-gzip": lambda data: gzip.compress(data, 1),
            "deflate": lambda data: zlib.compress(data, 1), "zstd": zstandard.ZstdCompressor().compress}
CODINGS = ["gzip", "deflate", "zstd"]
# in part incompressible, in part very compressible
PATTERN = payload(3 * SLOT + 7, 3) + bytes(5 * SLOT) + b"abcdefgh" * 1000


def shape(data):
    return f"?shape={len(data)}"


def put(daemon, session, data, coding, query="", name="x", **headers):
    return daemon.put(name, data, session, query, {"Content-Encoding": coding, **headers})


@pytest.mark.parametrize("coding", [*ENCODERS])
@pytest.mark.parametrize("size", [0, 1, 4095, 3 * SLOT + 1])
def test_what_is_decoded_is_what_is_stored(daemon, session, coding, size):
    data = payload(size)
    made = put(daemon, session, ENCODERS[coding](data), coding, shape(data)).expect(201).json()
    assert (made["bytes"], made["crc32c"], made["state"]) == (size, crc32c(data), "ready")
    assert daemon.data("x", session).body == data


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("how", ["at once", "expect", "chunked", "unix", "dribbled"])
def test_every_way_of_sending(daemon, session, coding, how):
    body = ENCODERS[coding](PATTERN)
    target = DATA.format(session, "x") + shape(PATTERN)
    r = daemon.raw(unix=how == "unix")
    header = f"Content-Encoding: {coding}"
    if how == "chunked":
        r.request("PUT", target, ["Transfer-Encoding: chunked", header])
        for at in range(0, len(body), 70001):
            piece = body[at:at + 70001]
            r.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        r.send(b"0\r\n\r\n")
    else:
        r.put(target, len(body), header, expect=how == "expect")
        if how == "expect":
            assert r.head()[0] == 100
        step = 997 if how == "dribbled" else len(body)
        for at in range(0, min(len(body), 200 * step), step):
            r.send(body[at:at + step])
        r.send(body[200 * step:])
    assert r.reply().expect(201).json()["crc32c"] == crc32c(PATTERN)
    r.close()
    assert daemon.data("x", session).body == PATTERN


@pytest.mark.parametrize("coding", CODINGS)
def test_much_out_of_little(daemon, session, coding):
    """64 MiB of zeros are a few KiB, which have all arrived long before they are decoded."""
    data = bytes(64 << 20)
    assert (put(daemon, session, ENCODERS[coding](data), coding, shape(data)).expect(201).json()["crc32c"]
            == crc32c(data))


@pytest.mark.parametrize("coding", CODINGS)
def test_npy_and_safetensors_say_their_size_themselves(daemon, session, coding):
    array = np.arange(100_000, dtype=np.float32).reshape(100, 1000)
    made = put(daemon, session, ENCODERS[coding](npy(array)), coding).expect(201).json()
    assert (made["dtype"], made["shape"]) == ("float32", [100, 1000])
    back = daemon.data("x", session, "?format=npy").body
    assert np.array_equal(np.load(io.BytesIO(back)), array)
    st = library("safetensors.numpy").save({"t": array})
    made = put(daemon, session, ENCODERS[coding](st), coding, "?format=safetensors", name="y").expect(201).json()
    assert made["shape"] == [100, 1000]
    assert daemon.data("y", session).body == array.tobytes()


def test_two_codings_one_in_the_other(daemon, session):
    data = payload(SLOT + 3)
    for codings in (["gzip", "zstd"], ["zstd", "gzip"], ["gzip", "gzip"], ["deflate", "identity", "zstd"]):
        body = data
        for coding in codings:
            body = ENCODERS.get(coding, lambda b: b)(body)
        put(daemon, session, body, ", ".join(codings), shape(data))
        assert daemon.data("x", session).body == data
    put(daemon, session, data, "gzip, gzip, gzip", shape(data)).problem(415, "unsupported_media_type")


def test_members_and_frames_are_one_stream(daemon, session):
    parts = [payload(n, n) for n in (0, 1, SLOT, 70001)]
    for coding in ("gzip", "zstd"):
        data = b"".join(parts)
        put(daemon, session, b"".join(map(ENCODERS[coding], parts)), coding, shape(data))
        assert daemon.data("x", session).body == data


def test_in_part_and_in_place(daemon, session):
    old = payload(4 * SLOT, 1)
    daemon.put("x", old, session).expect(201)
    new = payload(4 * SLOT, 2)
    put(daemon, session, ENCODERS["gzip"](new), "gzip", "?in_place=true").expect(200)
    assert daemon.data("x", session).body == new
    # Content-Length is the length of the encoded part, not the number of bytes to write.
    put(daemon, session, ENCODERS["gzip"](old[:100]), "gzip", "?offset=10").expect(200)
    assert daemon.data("x", session).body == new[:10] + old[:100] + new[110:]
    array = np.frombuffer(old[:1000], dtype=np.uint8)
    put(daemon, session, ENCODERS["zstd"](npy(array)), "zstd", "?offset=10&format=npy").expect(200)
    assert daemon.data("x", session).body == new[:10] + old[:1000] + new[1010:]


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["br", "gzip;q=1", "compress", "gzip, br", "zstd gzip", "*"])
def test_unknown_codings_are_told_which_are_known(daemon, session, coding):
    before = daemon.contents()
    r = put(daemon, session, b"x" * 100, coding, "?shape=100")
    r.problem(415, "unsupported_media_type")
    assert r.headers["Accept-Encoding"] == "gzip, deflate, zstd"
    assert daemon.contents() == before


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("exists", [False, True])
def test_a_broken_stream_changes_nothing(daemon, session, coding, exists):
    data, old = payload(2 * SLOT + 5, 7), payload(1000, 8)
    body = ENCODERS[coding](data)
    if exists:
        daemon.put("x", old, session).expect(201)
    before, used = daemon.contents(), daemon.get("/v1/sessions/" + session)["used_bytes"]
    chance = random.Random(coding)
    bad = [b"", body[:1], body[:20], body[:len(body) // 2], body[:-1], body + b"x", body + b"\0" * 8, data, b"\0" * 100]
    for _ in range(5):  # flipped compressed bits: the format's own checksum, or the size, is wrong
        at = chance.randrange(20, len(body))
        bad.append(body[:at] + bytes([body[at] ^ 0xFF]) + body[at + 1:])
    for wrong in bad:
        if coding == "zstd" and wrong[20:] != body[20:] and len(wrong) == len(body):
            continue  # these frames carry no checksum, so only Content-Digest detects the error
        r = put(daemon, session, wrong, coding, shape(data))
        assert r.status in (400, 422), (len(wrong), r)
        assert r.json()["code"] in ("invalid_encoding", "shape_mismatch"), r
    until("the quota is given back", lambda: daemon.get("/v1/sessions/" + session)["used_bytes"] == used)
    assert daemon.contents() == before


def test_too_few_and_too_many_bytes(daemon, session):
    data = payload(SLOT)
    for coding in CODINGS:
        for n in (SLOT - 1, SLOT + 1, 0):
            put(daemon, session, ENCODERS[coding](data), coding, f"?shape={n}").problem(422, "shape_mismatch")
        put(daemon, session, ENCODERS[coding](npy(np.zeros(10)))[:-30], coding).problem(400, "invalid_encoding")
        put(daemon, session, ENCODERS[coding](npy(np.zeros(10))[:-1]), coding).problem(422, "shape_mismatch")
        put(daemon, session, ENCODERS[coding](npy(np.zeros(10))[:50]), coding).problem(422, "unsupported_array")
    daemon.data("x", session).problem(404, "buffer_not_found")


@pytest.mark.parametrize("coding", CODINGS)
def test_nothing_tells_the_size(daemon, session, coding):
    for data, query in ((PATTERN, ""), (b"x" * 100, "?format=raw"), (b"", ""), (b"y" * 100, "?max_bytes=100")):
        made = put(daemon, session, ENCODERS[coding](data), coding, query)
        assert (made.status, made.json()["bytes"], made.json()["crc32c"]) == (201 if data == PATTERN else 200,
                                                                              len(data), crc32c(data))
        assert daemon.data("x", session).body == data
    put(daemon, session, ENCODERS[coding](b"x" * 101), coding, "?max_bytes=100").problem(413, "body_too_large")
    put(daemon, session, ENCODERS[coding](PATTERN)[:-20], coding).problem(400, "invalid_encoding")
    assert daemon.data("x", session).body == b"y" * 100


def test_an_in_place_upload_that_breaks_is_partial(daemon, session):
    daemon.put("x", payload(4 * SLOT), session).expect(201)
    body = gzip.compress(payload(4 * SLOT, 2), 1)
    wrong = body[:-8] + bytes(8)  # its checksum is zero
    put(daemon, session, wrong, "gzip", "?in_place=true").problem(400, "invalid_encoding")
    until("it is partial", lambda: daemon.meta("x", session)["state"] == "partial")
    daemon.data("x", session).problem(409, "buffer_partial")
    put(daemon, session, body, "gzip", "?in_place=true").expect(200)


def test_windows_beyond_8_mib_are_refused(daemon, session):
    data = payload(1000)
    for log, status in ((23, 201), (24, 400)):
        parameters = zstandard.ZstdCompressionParameters(window_log=log)
        encoder = zstandard.ZstdCompressor(compression_params=parameters).compressobj()  # it does not know the length
        r = put(daemon, session, encoder.compress(data) + encoder.flush(), "zstd", shape(data), name=f"w{log}")
        assert r.status == status, r
    assert "8 MiB" in r.problem(400, "invalid_encoding")["detail"]


def test_the_limits_of_the_daemon(start):
    d = start("--max-expanded", "1M", "--max-decoders", "1", "--stall-timeout", "2")
    million = bytes(1 << 20)
    put(d, "default", gzip.compress(million), "gzip", shape(million)).expect(201)
    before = d.contents()
    p = put(d, "default", gzip.compress(million + b"x"), "gzip",
            f"?shape={len(million) + 1}").problem(413, "body_too_large")
    assert p["limit_bytes"] == 1 << 20 and "--max-expanded" in p["detail"]
    put(d, "default", gzip.compress(npy(np.zeros(1 << 17))), "gzip").problem(413, "body_too_large")
    # A body larger than the shape is detected at the first excess byte, whatever the limit.
    put(d, "default", gzip.compress(bytes(64 << 20)), "gzip", "?shape=1").problem(422, "shape_mismatch")
    until("their memory is given back", lambda: d.contents() == before)
    body = gzip.compress(payload(5000))
    r = d.raw().put(DATA.format("default", "slow") + "?shape=5000", len(body), "Content-Encoding: gzip")
    r.send(body[:100])
    until("it is decoding", lambda: d.stats()["running"]["uploads"] == 1)
    busy = put(d, "default", gzip.compress(b"x"), "gzip", "?shape=1")
    busy.problem(503, "saturated")
    assert busy.headers["Retry-After"]
    r.reply().problem(408, "request_timeout")
    r.close()
    until("there is a decoder again", lambda: put(d, "default", gzip.compress(b"x"), "gzip", "?shape=1").status == 200)
    put(d, "default", gzip.compress(gzip.compress(b"x")), "gzip, gzip", "?shape=1").problem(503, "saturated")


def test_downloads_are_never_encoded(daemon, session):
    data = payload(1000)
    daemon.put("x", data, session).expect(201)
    for accept in ("gzip", "identity;q=0, *;q=0", "br, zstd;q=1"):
        r = daemon.data("x", session, headers={"Accept-Encoding": accept}).expect(200)
        assert r.body == data and r.headers.get("Content-Encoding") is None
        assert "Accept-Encoding" not in r.headers["Vary"]


def test_json_takes_no_coding(daemon, session):
    daemon.ask("POST", f"/v1/sessions/{session}/buffers", gzip.compress(b'{"name":"x","bytes":1}'),
               {"Content-Encoding": "gzip", "Content-Type": "application/json"}).problem(415, "unsupported_media_type")


# --- beside others ----------------------------------------------------------------------------------------------------


def test_breaking_off_anywhere_gives_everything_back(daemon, session):
    data = payload(3 * SLOT, 9)
    body = ENCODERS["zstd"](data)
    before, used = daemon.contents(), daemon.get("/v1/sessions/" + session)["used_bytes"]
    for sent in (0, 1, 17, 20000, SLOT, len(body) - 1):
        for expect in (False, True):
            r = daemon.raw().put(DATA.format(session, "x") + shape(data), len(body), "Content-Encoding: zstd",
                                 expect=expect)
            if expect:
                assert r.head()[0] == 100
            r.send(body[:sent])
            r.reset() if sent % 2 else r.close()
    until("the quota is given back", lambda: daemon.get("/v1/sessions/" + session)["used_bytes"] == used)
    assert daemon.contents() == before


def test_others_are_served_while_much_is_decoded(start):
    """One loop for all connections: bodies are decoded in pieces, between which other requests are answered."""
    d = start("--http-threads", "1", "--bulk-threads", "1")
    data = bytes(256 << 20)
    body = zlib.compress(data, 9)  # some 256 KiB
    r = d.raw().put(DATA.format("default", "x") + shape(data), len(body), "Content-Encoding: deflate").send(body)
    answered = 0
    while d.stats()["transfers"]["upload"]["count"] == 0:
        answered += 1
    r.reply().expect(201)
    r.close()
    assert answered > 3


# --- tools ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not shutil.which("curl") or not shutil.which("gzip"), reason="no curl or gzip here")
def test_curl_and_gzip_as_documented(daemon, session, tmp_path):
    array = np.arange(200_000, dtype=np.int32)
    np.save(tmp_path / "x.npy", array)
    subprocess.run(["gzip", "-k", str(tmp_path / "x.npy")], check=True, timeout=120)
    out = subprocess.run(["curl", "-sS", "-f", "-T", str(tmp_path / "x.npy.gz"), "-H", "Content-Encoding: gzip",
                          daemon.url(DATA.format(session, "x"))], capture_output=True, timeout=120)
    assert out.returncode == 0, out.stderr
    assert daemon.data("x", session).body == array.tobytes()


def test_httpx_streams_a_coded_body(daemon, session):
    httpx = library("httpx")
    body = ENCODERS["zstd"](PATTERN)
    pieces = (body[at:at + 50_000] for at in range(0, len(body), 50_000))
    r = httpx.put(daemon.url(DATA.format(session, "x") + shape(PATTERN)), content=pieces,
                  headers={"Content-Encoding": "zstd"})
    assert r.status_code == 201 and r.json()["crc32c"] == crc32c(PATTERN)
