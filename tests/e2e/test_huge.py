"""Numbers beyond 2^63 - 1, which many clients cannot read: none is stored or sent."""
import json
import os
import sqlite3
import struct

import pytest

from harness import DATA
from values import one

S = "/v1/sessions/default"
MOST = 2**63 - 1
HUGE = [(2**64 - 1, 0), (0, 2**63), (2**62, 4, 0), (0, MOST // 2 + 1, 1)]  # the largest with an element of two bytes


def header(shape, descr="<u2"):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({', '.join(map(str, shape))},), }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def small(reply):
    """The JSON of a reply, in which no number is too large."""
    def check(text):
        assert -MOST <= int(text) <= MOST, (text, reply.body[:400])
        return int(text)
    return json.loads(reply.body, parse_int=check)


def whole(shape):
    return ",".join(map(str, shape))


@pytest.mark.parametrize("shape", HUGE, ids=whole)
@pytest.mark.parametrize("unix", [False, True])
def test_shapes(daemon, session, shape, unix):
    c = daemon.client(unix=unix)
    base = f"/v1/sessions/{session}"
    x = DATA.format(session, "x")
    c.ask("POST", base + "/buffers", {"name": "empty", "dtype": "uint16", "shape": [0]}).expect(201)
    begins = {"Upload-Complete": "?0"}
    file = one("U16", shape, b"")
    attempts = [
        ("PUT", f"{x}?dtype=uint16&shape={whole(shape)}", b"", None),
        ("POST", f"{x}?dtype=uint16&shape={whole(shape)}", b"", None),
        ("PUT", x, header(shape), None),
        ("PUT", x + "?format=npy", header(shape), None),
        ("PUT", x, file, None),
        ("PUT", x + "?format=safetensors", file, None),
        ("PUT", x, header(shape), begins),
        ("PUT", x, file, begins),
        ("PUT", base + "/tensors", file, None),
        ("PATCH", DATA.format(session, "empty") + "?format=npy&offset=0", header(shape), None),
        ("PUT", DATA.format(session, "empty") + "?format=npy&in_place=true", header(shape), None),
        ("POST", base + "/buffers", {"name": "x", "dtype": "uint16", "shape": shape}, None),
        ("POST", base + "/uploads", {"buffer": "x", "dtype": "uint16", "shape": shape}, None),
        ("PATCH", base + "/buffers/empty", {"dtype": "uint16", "shape": shape}, None),
        ("POST", base + "/batch", {"operations": [{"op": "create", "buffer": "x", "dtype": "uint16", "shape": shape}],
                                   "atomic": True}, None),
    ]
    for method, target, body, headers in attempts:
        r = c.ask(method, target, body, headers)
        told = small(r)
        assert r.status in (400, 409, 422), (method, target, r)
        assert (r.status == (422 if body in (header(shape), file) else 400) or "batch" in target
                or headers), (method, target, r)
        assert told.get("code") != "internal", told
        assert small(c.ask("GET", base + "/buffers").expect(200))["items"][0]["shape"] == [0]
        assert small(c.ask("GET", base + "/buffers").expect(200))["items"][1:] == []
        assert small(c.ask("GET", base + "/uploads").expect(200))["items"] == [], target
    c.close()


def test_the_largest(daemon, session):
    """A permitted value is stored and read again."""
    for name, shape in (("a", (MOST, 0)), ("b", (0, MOST))):
        daemon.put(name, b"", session, f"?dtype=uint8&shape={whole(shape)}").expect(201)
        daemon.ask("PUT", DATA.format(session, name + "npy"), header(shape, "|u1")).expect(201)
        daemon.ask("PUT", DATA.format(session, name + "st"), one("U8", shape, b"")).expect(201)
    items = small(daemon.ask("GET", f"/v1/sessions/{session}/buffers"))["items"]
    assert sorted(x["shape"] for x in items) == [[0, MOST]] * 3 + [[MOST, 0]] * 3
    for item in items:
        for form in ("npy", "safetensors", "raw"):
            daemon.ask("GET", DATA.format(session, item["name"]) + "?format=" + form).expect(200)


def test_numbers_of_requests(daemon, session):
    """Offsets, lengths, slices, strides and counts: refused or accepted, and no answer has a number that is too
    large."""
    base = f"/v1/sessions/{session}"
    daemon.put("x", b"abcdefgh", session).expect(201)
    x = DATA.format(session, "x")
    for n in (MOST - 7, MOST, MOST + 1, 2**64 - 1, 2**64, 10**40):
        for r in [daemon.ask("GET", f"{x}?offset={n}"), daemon.ask("GET", f"{x}?length={n}"),
                  daemon.ask("GET", f"{x}?offset={n}&length={n}"),
                  daemon.ask("GET", x, headers={"Range": f"bytes={n}-"}),
                  daemon.ask("GET", x, headers={"Range": f"bytes=0-{n}"}),
                  daemon.ask("GET", x, headers={"Range": f"bytes=-{n}"}), daemon.ask("GET", f"{x}?slice={n}:"),
                  daemon.ask("GET", f"{x}?slice=::{n}"), daemon.ask("GET", f"{x}?slice={n}"),
                  daemon.ask("PATCH", f"{x}?offset={n}", b"1"),
                  *[daemon.ask("POST", base + "/buffers", {"name": "n", "bytes": n, "kind": kind})
                    for kind in ("device", "shared", "managed", "pinned", "pageable")],
                  daemon.ask("POST", base + "/buffers", {"name": "n", "bytes": n, "mirrored": True}),
                  daemon.ask("POST", base + "/uploads", {"buffer": "n", "bytes": n}),
                  daemon.ask("POST", base + "/buffers/x/fill", {"pattern": 1, "offset": n, "bytes": n}),
                  daemon.ask("POST", base + "/buffers/x/copy", {"from": "x", "offset": n, "from_offset": n,
                                                                "bytes": n}),
                  daemon.ask("POST", base + "/pools", {"name": "n", "max_bytes": n}),
                  daemon.ask("PATCH", base, {"quota": {"bytes": n}}), daemon.ask("GET", base),
                  daemon.ask("GET", "/v1/stats")]:
            assert r.status != 500, r
            if (r.headers.get("Content-Type") or "").endswith("json") and r.body:
                small(r)
        daemon.ask("PATCH", base, {"quota": {"bytes": None}}).expect(200)
        daemon.ask("DELETE", base + "/pools/n")
        names = {b["name"] for b in small(daemon.ask("GET", base + "/buffers"))["items"]}
        assert "x" in names and names <= {"x", "n"}  # a mirrored buffer uses no memory yet


def test_what_an_earlier_version_left(start, tmp_path):
    """An older daemon accepted such values: the daemon starts and shows such a record as zero bytes in one
    dimension."""
    state = str(tmp_path)
    d = start(state=state)
    for name in ("a", "b", "c"):
        d.ask("PUT", DATA.format("default", name) + "?dtype=float32&shape=0,7", b"").expect(201)
    d.stop()
    with sqlite3.connect(os.path.join(state, "gpubufd.db")) as database:
        database.execute("UPDATE buffers SET shape = '18446744073709551615,0' WHERE name = 'a'")
        database.execute("UPDATE buffers SET shape = '4611686018427387904,4,0' WHERE name = 'b'")
    database.close()
    d = start(state=state)
    shapes = {b["name"]: b["shape"] for b in small(d.ask("GET", S + "/buffers").expect(200))["items"]}
    assert shapes == {"a": [0], "b": [0], "c": [0, 7]}
    d.ask("PUT", DATA.format("default", "a"), b"1234").expect(200)
    d.stop()
