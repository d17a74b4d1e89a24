"""Safetensors files of one tensor, as the reference library writes and reads them."""
import io
import struct

import numpy as np
import pytest

import values
from tensors import TYPE, TYPES, file_of, ml_dtypes, one, safetensors, width
from values import payload


@pytest.mark.parametrize("dtype,name", TYPES)
def test_every_type(daemon, session, dtype, name):
    data = payload(6 * width(dtype)) if dtype != "bool" else bytes(6)
    body = one(name, (2, 3), data, "x.weight")
    assert safetensors.deserialize(body)[0][1]["dtype"] == name  # the reference library agrees that it is such a file
    made = daemon.put("x", body, session).expect(201).json()
    assert (made["dtype"], made["shape"], made["bytes"]) == (dtype, [2, 3], len(data))
    assert daemon.data("x", session).body == data
    for ask in ({"query": "?format=safetensors"}, {"headers": {"Accept": TYPE}}):
        r = daemon.data("x", session, **ask).expect(200)
        assert r.headers["Content-Type"] == TYPE
        assert safetensors.deserialize(r.body) == [("x", {"dtype": name, "shape": [2, 3], "data": bytearray(data)})]


@pytest.mark.parametrize("dtype", ("float32", "int64", "bool", "float16", "complex64"))
def test_the_library_reads_it(daemon, session, dtype):
    for i, shape in enumerate(((), (0,), (3, 0, 2), (7,), (33, 5, 4))):
        array = values.array_of(dtype, shape)
        daemon.put(f"x{i}", safetensors.numpy.save({"t": array}), session).expect(201)
        back = safetensors.numpy.load(daemon.data(f"x{i}", session, "?format=safetensors").body)[f"x{i}"]
        assert back.dtype == array.dtype and back.shape == array.shape and back.tobytes() == array.tobytes()


@pytest.mark.parametrize("how", ({"query": "?format=safetensors"}, {"headers": {"Content-Type": TYPE}},
                                 {"headers": {"Content-Type": "application/vnd.safetensors"}}, {}))
def test_every_way_to_say_it(daemon, session, how):
    array = values.array_of("float32", (100, 101))
    body = safetensors.numpy.save({"t": array})
    made = daemon.put("x", body, session, **how).expect(201).json()
    assert made["shape"] == [100, 101]
    half = [body[:5], body[5:50], body[50:]]  # chunked, in pieces that cut the header
    daemon.put("y", iter(half), session, **how).expect(201)
    assert daemon.data("x", session).body == daemon.data("y", session).body == array.tobytes()


GOOD = one("U8", (4,), b"abcd")
TWICE = file_of(
    b'{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"x":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}',
    b"abcd")
HOLE = file_of(b'{"x":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}', b"abcd")
DAMAGED = {"a newline more": GOOD + b"\n", "a byte less": GOOD[:-1], "no data": GOOD[:-4],
           "another size": one("U8", (5,), b"abcd"), "a tensor twice": TWICE, "a hole": HOLE,
           "half a header": GOOD[:20], "its brace alone": GOOD[:9], "its first name": GOOD[:11], "longer than it is":
           struct.pack("<Q", 4000) + GOOD[8:], "shorter than it is": struct.pack("<Q", 30) + GOOD[8:],
           "a zeroed header": GOOD[:14] + bytes(len(GOOD) - 14), "no tensor": file_of(b"{}"),
           "no tensor, spaces": file_of(b"{   }"), "no tensor, metadata": file_of(b'{"__metadata__":{}}'),
           "an unknown type": GOOD.replace(b"U8", b"X8"), "a size beyond 64 bits":
           file_of(b'{"x":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}}')}


# PUT of /tensors takes a file of no tensor.
SEVERAL = ("no tensor", "no tensor, spaces", "no tensor, metadata")


def chunks(body):
    return iter([piece for piece in (body[:5], body[5:10], body[10:]) if piece])


def refused(reply):
    assert reply.status == 422, (reply.status, reply.body)
    assert reply.json()["code"] in ("unsupported_array", "shape_mismatch")
    return reply.json()["detail"]


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_file_is_refused_however_it_comes(daemon, session, what):
    """A good buffer stays, and the answer says how the bytes are stored if they are meant."""
    body = DAMAGED[what]
    daemon.put("x", GOOD, session).expect(201)
    ways = ({}, {"headers": {"Content-Type": TYPE}}, {"headers": {"Content-Type": "application/octet-stream"}},
            {"query": "?format=safetensors"}, {"headers": {"Expect": "100-continue"}},
            {"query": "?offset=0"})
    for how in ways:
        for sent in (body, chunks(body)):
            refused(daemon.put("x", sent, session, **how))
    for sent in (body, chunks(body)):
        refused(daemon.put("y", sent, session))
    assert "?format=raw" in refused(daemon.put("y", body, session))
    refused(daemon.ask("PUT", f"/v1/sessions/{session}/tensors", body) if what not in SEVERAL
            else daemon.put("y", body, session))
    assert daemon.data("x", session).body == b"abcd" and daemon.meta("x", session)["generation"] == 1
    daemon.data("y", session).problem(404, "buffer_not_found")
    daemon.put("x", body, session, "?format=raw").expect(200)
    assert daemon.data("x", session).body == body


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_file_that_is_appended(daemon, session, what):
    """An upload in several requests, cut within the header and behind it."""
    body = DAMAGED[what]
    daemon.put("x", GOOD, session).expect(201)
    for at in {3, 9, 12, len(body) - 1} & set(range(1, len(body))):
        r = daemon.put("x", body[:at], session, headers={"Upload-Complete": "?0"})
        if r.status == 201:
            append = {"Content-Type": "application/partial-upload", "Upload-Offset": str(at), "Upload-Complete": "?1"}
            r = daemon.ask("PATCH", r.headers["Location"], body[at:], append)
        assert 400 <= r.status < 500, (at, r.body)
        if r.status != 422:  # its length is known by now, and an append that goes beyond it is refused by that
            assert r.json()["code"] == "upload_length_mismatch"
    assert daemon.data("x", session).body == b"abcd"


def test_what_only_looks_like_it_is_raw(daemon, session):
    bodies = (struct.pack("<Q", 20) + b"{" + b"x" * 40, file_of(b"{" + b"x" * 100, payload(1000)), GOOD[:8],
              b"\x00" * 8 + b"[1]", np.array([5, 8827, 7]).tobytes(), np.array([3, 0x7d7b]).tobytes(),
              b'message {"a":1}', struct.pack("<Q", 1 << 40) + b'{"a":1}')
    for i, body in enumerate(bodies):
        made = daemon.put(f"x{i}", body, session).expect(201).json()
        assert (made["dtype"], made["bytes"]) == ("uint8", len(body)) and "warning" not in made, i
        assert daemon.data(f"x{i}", session).body == body, i
    for body in (GOOD, DAMAGED["an unknown type"]):
        assert daemon.put("z", body, session, "?format=raw").status in (200, 201)
        assert daemon.data("z", session).body == body


ARCHIVES = {b"PK\x03\x04": "zip archive", b"PK\x05\x06": "empty zip", b"\x1f\x8b\x08\x00": "gzip",
            b"\x28\xb5\x2f\xfd": "zstd", b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00": "pickle",
            b"\x80\x02}q\x00": "pickle", b"\x80\x02\x8a\nl\xfc": "pickle", b"\x89HDF\r\n\x1a\n": "HDF5",
            b"GGUF\x03\x00": "GGUF"}


@pytest.mark.parametrize("begin", ARCHIVES, ids=ARCHIVES.values())
def test_archives_are_stored_with_a_warning(daemon, session, begin):
    body = begin + bytes(30)
    for sent in (body, chunks(body)):
        made = daemon.put("x", sent, session).json()
        assert ARCHIVES[begin] in made["warning"] and "?format=raw" in made["warning"]
    r = daemon.put("y", body[:7], session, headers={"Upload-Complete": "?0", "Upload-Length": str(len(body))})
    append = {"Content-Type": "application/partial-upload", "Upload-Offset": "7", "Upload-Complete": "?1"}
    made = daemon.ask("PATCH", r.expect(201).headers["Location"], body[7:], append).expect(201).json()
    assert ARCHIVES[begin] in made["warning"]
    assert daemon.data("x", session).body == daemon.data("y", session).body == body
    assert "warning" not in daemon.put("x", body, session, "?format=raw").expect(200).json()
    assert "warning" not in daemon.put("x", body, session, "?dtype=uint8").expect(200).json()
    assert "warning" not in daemon.meta("y", session)


def test_refusals(daemon, session):
    good = one("U8", (4,), b"abcd")
    said = "?format=safetensors"
    for body, status, code in ((good + b"x", 422, "shape_mismatch"), (good[:-1], 422, "shape_mismatch"),
                               (b"", 422, "unsupported_array"), (good[:8], 422, "unsupported_array"),
                               (good[:30], 422, "unsupported_array"), (b"\x93NUMPY\x01\x00\x10\x00\x00\x00", 422,
                                                                       "unsupported_array"),
                               (file_of(b"{}"), 422, "unsupported_array"),
                               (file_of(b"{   }"), 422, "unsupported_array"),
                               (struct.pack("<Q", 100_000_001) + b"{" + bytes(100), 413, "body_too_large"),
                               (one("F4", (4,), b"ab"), 422, "unsupported_array"),
                               (one("U8", (4,), b"abc"), 422, "unsupported_array")):
        daemon.put("x", body, session, said).problem(status, code)
    daemon.put("x", good, session, said + "&dtype=uint8").problem(400, "invalid_argument")
    daemon.put("x", good, session, "?format=tar").problem(400, "invalid_argument")
    daemon.data("x", session).problem(404, "buffer_not_found")
    daemon.put("x", payload(16), session, "?dtype=complex128").expect(201)
    for ask in ({"query": said}, {"headers": {"Accept": TYPE}}):
        daemon.data("x", session, **ask).problem(406, "not_acceptable")


def test_a_part_of_a_buffer(daemon, session):
    daemon.put("x", bytes(16), session, "?dtype=float32").expect(201)
    daemon.put("x", one("F32", (2,), b"\x01" * 8), session, "?offset=4").expect(200)
    assert daemon.data("x", session).body == bytes(4) + b"\x01" * 8 + bytes(4)
    daemon.put("x", one("I32", (2,), bytes(8)), session, "?offset=4").problem(422, "shape_mismatch")


def test_ranges_and_tags(daemon, session):
    data = payload(4096)
    made = daemon.put("x", one("U8", (4096,), data), session).expect(201)
    whole = daemon.data("x", session, "?format=safetensors")
    tag = whole.headers["ETag"]
    assert tag != made.headers["ETag"]
    head = len(whole.body) - len(data)
    assert head % 8 == 0
    for first, last in ((0, 0), (0, head - 1), (head - 3, head + 5), (head, head + 99), (1000, len(whole.body) - 1)):
        r = daemon.data("x", session, "?format=safetensors", headers={"Range": f"bytes={first}-{last}",
                                                                      "If-Range": tag})
        assert r.expect(206).body == whole.body[first:last + 1]
    daemon.data("x", session, "?format=safetensors", headers={"If-None-Match": tag}).expect(304)
    daemon.put("x", data, session, headers={"If-Match": tag}).expect(200)
    daemon.data("x", session, "?format=safetensors", headers={"If-Match": tag}).problem(412, "precondition_failed")


def test_bfloat16_as_npy(daemon, session):
    """The file of numpy.save for an ml_dtypes array: only bfloat16 can be recognized."""
    array = np.arange(12, dtype=ml_dtypes.bfloat16).reshape(3, 4)
    out = io.BytesIO()
    np.save(out, array)
    assert daemon.put("x", out.getvalue(), session).expect(201).json()["dtype"] == "bfloat16"
    body = daemon.data("x", session, "?format=npy").expect(200).body
    assert body == out.getvalue()
    assert np.array_equal(np.load(io.BytesIO(body)).view(ml_dtypes.bfloat16), array)
    for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu, np.dtype("V2")):
        out = io.BytesIO()
        np.save(out, np.zeros(4, dtype))
        detail = daemon.put("y", out.getvalue(), session).problem(422, "unsupported_array")["detail"]
        assert "?dtype=" in detail and "safetensors" in detail
    head = b"{'descr': '<f1', 'fortran_order': False, 'shape': (4,), }".ljust(117) + b"\n"  # numpy.save of float8_e5m2
    body = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + b"\x3c" * 4
    assert daemon.put("z", body, session).expect(201).json()["dtype"] == "float8_e5m2"
    assert "safetensors" in daemon.data("z", session, "?format=npy").problem(406, "not_acceptable")["detail"]
