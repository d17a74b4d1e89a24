"""Files of many tensors: one buffer for each, all of them or none."""
import gzip
import json
import struct

import pytest

import values
from harness import until
from tensors import TENSORS, TYPE, file_of, model, names, put, safetensors, same

MOST = 65536  # tensors of one file


def test_a_file_becomes_buffers(daemon, session):
    arrays = model()
    body = safetensors.numpy.save(arrays, {"format": "pt"})
    r = put(daemon, session, body, headers={"Content-Type": TYPE}).expect(201)
    reply = r.json()
    assert (reply["tensors"], reply["created"], reply["replaced"]) == (6, 6, 0)
    assert reply["bytes"] == sum(a.nbytes for a in arrays.values())
    assert {b["name"] for b in reply["items"]} == set(arrays) and all(b["generation"] == 1 for b in reply["items"])
    assert reply["items"][0] == daemon.meta(reply["items"][0]["name"], session)
    assert "copy;dur=" in r.headers["Server-Timing"]
    same(daemon, session, arrays)
    again = model(7)
    reply = put(daemon, session, iter([safetensors.numpy.save(again)])).expect(200).json()  # chunked
    assert (reply["created"], reply["replaced"]) == (0, 6) and all(b["generation"] == 2 for b in reply["items"])
    same(daemon, session, again)
    reply = put(daemon, session, gzip.compress(body), headers={"Content-Encoding": "gzip"}).expect(200).json()
    assert all(b["generation"] == 3 for b in reply["items"])
    same(daemon, session, arrays)


@pytest.mark.parametrize("size", (1, 7, 8, 9, 300, 70000))
def test_bodies_in_pieces(daemon, session, size):
    arrays = model()
    body = safetensors.numpy.save(arrays)
    pieces = [body[i:i + size] for i in range(0, 3000, size)] + [body[len(range(0, 3000, size)) * size:]]
    put(daemon, session, iter([p for p in pieces if p])).expect(201)
    same(daemon, session, arrays)


def test_no_tensors(daemon, session):
    for body in (file_of({}), file_of({"__metadata__": {"a": "b"}})):
        assert put(daemon, session, body).expect(200).json() == \
            {"items": [], "tensors": 0, "created": 0, "replaced": 0, "bytes": 0}


def test_names(daemon, session):
    arrays = {n: values.array_of("uint8", (4,), i) for i, n in enumerate(("model/0 w", "_orig.x", "plain", "größe"))}
    items = {b["name"]: b for b in put(daemon, session, safetensors.numpy.save(arrays)).expect(201).json()["items"]}
    mapped = {"model_0_w": "model/0 w", "x_orig.x": "_orig.x", "plain": None, "gr__e": "größe"}
    assert {n: b["labels"].get("safetensors.name") for n, b in items.items()} == mapped
    for name, tensor in mapped.items():
        assert daemon.data(name, session).body == arrays[tensor or name].tobytes()
        loaded = safetensors.numpy.load(daemon.data(name, session, "?format=safetensors").body)
        assert list(loaded) == [tensor or name]
    detail = put(daemon, session, safetensors.numpy.save({"a/b": arrays["plain"], "a b": arrays["plain"]})) \
        .problem(400, "invalid_name")["detail"]
    assert '"a/b"' in detail and '"a b"' in detail
    put(daemon, session, safetensors.numpy.save({"a" * 129: arrays["plain"]})).problem(400, "invalid_name")
    put(daemon, session, safetensors.numpy.save({"a" * 128: arrays["plain"]})).expect(201)


def test_prefix_and_labels(daemon, session):
    array = values.array_of("uint8", (4,))
    daemon.put("v1.w", b"old", session).expect(201)
    daemon.ask("PATCH", f"/v1/sessions/{session}/buffers/v1.w", {"labels": {"k": "v"}}).expect(200)
    put(daemon, session, safetensors.numpy.save({"w": array, "_x": array}), "?prefix=v1.").expect(201)
    assert names(daemon, session) == ["v1._x", "v1.w"]
    assert daemon.meta("v1.w", session)["labels"] == {"k": "v", "safetensors.name": "w"}
    assert daemon.meta("v1._x", session)["labels"] == {"safetensors.name": "_x"}
    put(daemon, session, safetensors.numpy.save({"v1.w": array})).expect(200)
    assert daemon.meta("v1.w", session)["labels"] == {"k": "v"}  # the name fits without a label again
    put(daemon, session, safetensors.numpy.save({"w": array}), "?prefix=_").problem(400, "invalid_name")


def test_where_they_go(daemon, session):
    daemon.ask("POST", f"/v1/sessions/{session}/streams", {"name": "side"})
    daemon.ask("POST", f"/v1/sessions/{session}/pools", {"name": "p", "max_bytes": 64 << 20})
    body = safetensors.numpy.save(model())
    items = put(daemon, session, body, "?stream=side&pool=p").expect(201).json()["items"]
    assert all((b["stream"], b["pool"]) == ("side", "p") for b in items)
    same(daemon, session, model())
    items = put(daemon, session, body, "?prefix=pinned-&kind=pinned&device=0").expect(201).json()["items"]
    assert all(b["kind"] == "pinned" for b in items)
    same(daemon, session, model(), "pinned-")
    # an existing buffer keeps its kind
    items = put(daemon, session, body, "?prefix=pinned-").expect(200).json()["items"]
    assert all(b["kind"] == "pinned" for b in items)
    for query, status, code in (("?stream=none", 404, "stream_not_found"), ("?pool=none", 404, "pool_not_found"),
                                ("?device=99", 404, "device_not_found"), ("?kind=fast", 400, "invalid_argument"),
                                ("?pool=p&device=0", 400, "invalid_argument"),
                                ("?kind=pinned&pool=p", 400, "invalid_argument"),
                                ("?in_place=true", 400, "unknown_parameter")):
        put(daemon, session, body, query + "&prefix=q").problem(status, code)
    assert not [n for n in names(daemon, session) if n.startswith("q")]


def test_mirrored_buffers_are_replaced_too(daemon, session):
    daemon.put("layer.3.uint8", b"12345678", session, "?mirrored=true").expect(201)
    arrays = model()
    body = safetensors.numpy.save(arrays)
    assert put(daemon, session, body[:-1] + b"", headers={"Content-Type": TYPE}).problem(422, "shape_mismatch")
    assert daemon.data("layer.3.uint8", session).body == b"12345678"
    put(daemon, session, body).expect(201)
    assert daemon.meta("layer.3.uint8", session)["mirrored"] is True
    same(daemon, session, arrays)


def refused_files():
    u8 = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
    yield b"", 422, "unsupported_array"
    yield b"\x02\0\0\0\0\0\0\0", 422, "unsupported_array"
    yield file_of({"a": u8}, b"abcd")[:40], 422, "unsupported_array"
    yield b"\x93NUMPY\x01\x00" + bytes(100), 422, "unsupported_array"
    yield file_of(b"{]}"), 422, "unsupported_array"
    yield file_of({"a": u8}, b"abc"), 422, "shape_mismatch"
    yield file_of({"a": u8}, b"abcde"), 422, "shape_mismatch"
    yield file_of({"a": u8, "b": u8}, b"abcdefgh"), 422, "unsupported_array"
    yield file_of({"a": {**u8, "dtype": "F4"}}, b"abcd"), 422, "unsupported_array"
    yield struct.pack("<Q", (16 << 20) + 1) + b"{" + bytes(100), 413, "body_too_large"
    many = {f"t{i}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(MOST + 1)}
    yield file_of(many), 413, "body_too_large"


def test_refusals(daemon, session):
    for body, status, code in refused_files():
        put(daemon, session, body).problem(status, code)
        put(daemon, session, iter([body[:3], body[3:]] if len(body) > 3 else [])).problem(status, code)
    good = safetensors.numpy.save(model())
    for headers, status, code in (({"Content-Type": "application/x-npy"}, 415, "unsupported_media_type"),
                                  ({"Content-Type": "text/plain"}, 415, "unsupported_media_type"),
                                  ({"If-Match": '"1"'}, 400, "invalid_argument"),
                                  ({"If-None-Match": "*"}, 400, "invalid_argument"),
                                  ({"Content-Range": "bytes 0-1/2"}, 400, "invalid_argument")):
        put(daemon, session, good, headers=headers).problem(status, code)
    put(daemon, "nowhere", good).problem(404, "session_not_found")
    assert names(daemon, session) == []


def test_quota_is_for_all_of_them(daemon):
    daemon.ask("POST", "/v1/sessions", {"name": "tight", "quota": {"bytes": 1000, "buffers": 3}}).expect(201)
    a = values.array_of("uint8", (400,))
    put(daemon, "tight", safetensors.numpy.save({"a": a, "b": a})).expect(201)
    p = put(daemon, "tight", safetensors.numpy.save({"a": a[:150], "b": a[:150]})).problem(507, "quota_exceeded")
    assert (p["limit_bytes"], p["used_bytes"], p["requested_bytes"]) == (1000, 800, 300)
    put(daemon, "tight", safetensors.numpy.save({n: a[:10] for n in "cd"})).problem(507, "quota_exceeded")
    assert put(daemon, "tight", safetensors.numpy.save({n: a[:50] for n in "abc"})).expect(201).json()["replaced"] == 2
    until("it is given back", lambda: daemon.get("/v1/sessions/tight")["used_bytes"] == 150)
    p = put(daemon, "tight", safetensors.numpy.save({"a": values.array_of("uint8", (17 << 20,))}),
            headers={"Expect": "100-continue"})
    p.problem(507, "quota_exceeded")
    daemon.ask("DELETE", "/v1/sessions/tight").expect(204)


@pytest.mark.timeout(300)
def test_the_most_tensors(daemon, session):
    header, data = {}, bytearray()
    for i in range(MOST):
        n = i % 5
        header[f"t/{i}"] = {"dtype": "U8", "shape": [n], "data_offsets": [len(data), len(data) + n]}
        data += bytes([i & 255]) * n
    reply = put(daemon, session, file_of(header, bytes(data))).expect(201).json()
    assert reply["tensors"] == MOST and len(reply["items"]) == MOST
    for i in (0, 4, 999, MOST - 1):
        assert daemon.data(f"t_{i}", session).body == bytes([i & 255]) * (i % 5)
    back = daemon.ask("GET", TENSORS.format(session)).expect(200).body
    assert len(json.loads(back[8:8 + struct.unpack("<Q", back[:8])[0]])) == MOST and len(back) > len(data)
    assert put(daemon, session, file_of(header, bytes(data))).expect(200).json()["replaced"] == MOST
    daemon.put("one", b"x", session).expect(201)
    daemon.ask("GET", TENSORS.format(session)).problem(400, "invalid_argument")


def test_a_break_changes_nothing(daemon, session):
    before, after = model(0), model(50)
    put(daemon, session, safetensors.numpy.save(before)).expect(201)
    used = daemon.get(f"/v1/sessions/{session}")["used_bytes"]
    body = safetensors.numpy.save({**after, "new": after["layer.0.float32"]})
    at = struct.unpack("<Q", body[:8])[0] + 8
    for cut in (3, 8, at - 1, at, at + 1, at + 520000, len(body) - 1):
        with daemon.raw() as c:
            c.put(TENSORS.format(session), len(body)).send(body[:cut]).half_close().closes()
    until("all is given back", lambda: daemon.get(f"/v1/sessions/{session}")["used_bytes"] == used)
    same(daemon, session, before)
    assert names(daemon, session) == sorted(before)
    put(daemon, session, body).expect(201)
    same(daemon, session, after)
