"""Tables: a buffer that holds all tensors of a safetensors file. test_safetensors.py has files of one."""
import base64
import gzip
import hashlib
import io
import json
import struct
import threading

import numpy as np
import pytest

import values
from conform import Session, refuse
from durable import becomes_tidy
from gpubuf_cli import NOT_FOUND, Cli
from harness import until
from pyclient import client_of, gpubuf
from sharing import Local, Memory
from tensors import TYPE, file_of, safetensors
from test_metrics import samples, scrape, value
from test_order import ended, fill, hold, left, prepare, still_held
from values import payload

ALIGN = 256
META = {"format": "pt", "note": "a \"quoted\" word"}
RAW = {np.dtype(name): kind for name, kind in (("float32", "F32"), ("int16", "I16"), ("uint8", "U8"), ("int64", "I64"),
                                               ("float16", "F16"), ("bool", "BOOL"))}


def file(arrays, metadata=None, blanks=0):
    """As safetensors.numpy.save, but in the order given."""
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, a in arrays.items():
        header[name] = {"dtype": RAW[a.dtype], "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    return file_of(json.dumps(header).encode() + b" " * blanks, b"".join(a.tobytes() for a in arrays.values()))


def some(seed=0):
    rng = np.random.default_rng(seed)
    return {"layer.0/w": rng.standard_normal((33, 5)).astype("float32"), "b": rng.integers(0, 99, (7,), dtype="uint8"),
            "empty": np.zeros((0, 3), "float32"), "scalar": np.array(5, "int64"),
            "häßlich": rng.integers(0, 2, (4, 3, 2)).astype("bool"),
            "last": rng.standard_normal((300, 40)).astype("float16")}


def quoted(name):
    return "".join(f"%{b:02X}" for b in name.encode())


def tensor(s, name, query="", buffer="m"):
    return s.data(buffer, f"?tensor={quoted(name)}&format=raw{query}")


@pytest.fixture
def m(s):
    """A session with the buffer m, a table of some()."""
    s.put("m", file(some(), META))
    return s


def test_a_file_and_back(s):
    for i, (arrays, metadata, blanks) in enumerate((
            (some(1), None, 0), (some(2), META, 3), ({f"t{i}": np.full((i % 9,), i % 251, "uint8") for i in range(999)},
                                                     {}, 0), ({"a": np.zeros(0, "uint8"), "b": np.zeros(0, "int16")},
                                                              META, 1))):
        body = file(arrays, metadata, blanks)
        made = s.put(f"m{i}", body)
        assert (made["dtype"], made["shape"]) == ("tensors", [made["bytes"]]) and made["bytes"] >= len(body)
        for query, headers in (("", None), ("?format=safetensors", None), ("", {"Accept": TYPE})):
            r = s.ask("GET", f"buffers/m{i}/data{query}", None, headers).expect(200)
            assert r.body == body and r.headers["Content-Type"] == TYPE
        back = safetensors.numpy.load(body)
        assert set(back) == set(arrays) and all((back[n] == a).all() for n, a in arrays.items())
        listed = s.get(f"buffers/m{i}/tensors?limit=1000")
        assert (listed["tensors"], listed["file_bytes"]) == (len(arrays), len(body))
        assert listed["metadata"] == (metadata or {})
        memory = s.data(f"m{i}", "?format=raw")
        r = s.ask("GET", f"buffers/m{i}/data", None, {"Accept": "application/octet-stream"}).expect(200)
        assert r.body == memory
        assert len(memory) == made["bytes"]
        for t in listed["items"]:
            a = arrays[t["name"]]
            assert (t["shape"], t["bytes"], RAW[np.dtype(t["dtype"])]) == (list(a.shape), a.nbytes, RAW[a.dtype])
            assert not a.nbytes or t["offset"] % ALIGN == 0
            assert memory[t["offset"]:t["offset"] + t["bytes"]] == a.tobytes()


def test_chunked_and_with_a_file_of_one(s):
    body = file(some(3))
    s.client.ask("PUT", s.base + "/buffers/m/data", iter([body[:4], body[4:300], body[300:]])).expect(201)
    assert s.data("m") == body
    one = file({"w": np.arange(6, dtype="int16")})
    assert s.put("x", one)["dtype"] == "int16" and s.put("x", one, "?pack=true")["dtype"] == "tensors"
    assert s.data("x") == one and tensor(s, "w", buffer="x") == np.arange(6, dtype="int16").tobytes()
    none = file({}, META)
    s.put("none", none, "?pack=true")
    assert s.data("none") == none and s.get("buffers/none/tensors")["items"] == []
    assert s.get("buffers/x/tensors?prefix=v")["items"] == []
    s.put("u", payload(16), "?dtype=float32")
    items = [{"name": "u", "dtype": "float32", "shape": [4], "bytes": 16, "offset": 0}]
    assert s.get("buffers/u/tensors")["items"] == s.get("buffers/u/tensors?prefix=u&limit=1")["items"] == items
    assert s.get("buffers/u/tensors?prefix=v")["items"] == s.get("buffers/u/tensors?cursor=1")["items"] == []
    assert "limit" in s.client.ask("GET", s.base + "/buffers/u/tensors?limit=1001").expect(400).json()["detail"]


def test_ranges_are_of_the_file(m):
    body = file(some(), META)
    r = m.ask("GET", "buffers/m/data")
    n, head = len(body), len(body) - sum(a.nbytes for a in some().values())
    for first, last in ((0, 0), (0, n - 1), (3, 20), (head - 2, head + 700), (head + 650, head + 670), (n - 1, n - 1)):
        part = m.ask("GET", "buffers/m/data", None, {"Range": f"bytes={first}-{last}", "If-Range": r.headers["ETag"]})
        assert part.expect(206).body == body[first:last + 1]
        assert part.headers["Content-Range"] == f"bytes {first}-{last}/{n}"
    several = m.ask("GET", "buffers/m/data", None, {"Range": f"bytes=0-9,{head - 5}-{head + 800},{n - 7}-"}).expect(206)
    assert body[:10] in several.body and body[head - 5:head + 801] in several.body and body[-7:] in several.body
    m.ask("GET", "buffers/m/data", None, {"Range": f"bytes={n}-"}).problem(416, "range_not_satisfiable")
    m.ask("GET", "buffers/m/data", None, {"If-None-Match": r.headers["ETag"]}).expect(304)
    assert m.ask("HEAD", "buffers/m/data").headers["Content-Length"] == str(n)


def test_one_tensor_in_every_form(m):
    for name, a in some().items():
        assert tensor(m, name) == a.tobytes()
        r = m.ask("GET", f"buffers/m/data?tensor={quoted(name)}&format=npy").expect(200)
        back = np.load(io.BytesIO(r.body))
        assert back.dtype == a.dtype and back.shape == a.shape and (back == a).all()
        alone = safetensors.numpy.load(m.data("m", f"?tensor={quoted(name)}&format=safetensors"))
        assert list(alone) == [name] and (alone[name] == a).all()
    a = some()["layer.0/w"]
    assert tensor(m, "layer.0/w", "&slice=3:9,::2") == a[3:9, ::2].tobytes()
    assert tensor(m, "layer.0/w", "&slice=-1,1:") == a[-1, 1:].tobytes()
    assert tensor(m, "layer.0/w", "&offset=8&length=12") == a.tobytes()[8:20]
    shown = json.loads(m.data("m", "?tensor=b&format=json"))
    assert (shown["dtype"], shown["shape"], shown["values"]) == ("uint8", [7], some()["b"].tolist())
    r = m.ask("GET", "buffers/m/data?tensor=b", None, {"Range": "bytes=2-4"}).expect(206)
    assert r.body == some()["b"].tobytes()[2:5] and r.headers["Gpubuf-Dtype"] == "uint8"


def test_lists(m):
    names = list(some())
    listed = m.get("buffers/m/tensors?limit=2")
    seen = [t["name"] for t in listed["items"]]
    while listed["next_cursor"]:
        listed = m.get(f"buffers/m/tensors?limit=2&cursor={listed['next_cursor']}")
        seen += [t["name"] for t in listed["items"]]
    assert seen == names
    assert [t["name"] for t in m.get("buffers/m/tensors?prefix=la")["items"]] == ["layer.0/w", "last"]
    r = m.ask("GET", "buffers/m/tensors")
    m.ask("GET", "buffers/m/tensors", None, {"If-None-Match": r.headers["ETag"]}).expect(304)
    m.ask("PUT", "buffers/m/data?tensor=b", bytes(7)).expect(200)
    m.ask("GET", "buffers/m/tensors", None, {"If-None-Match": r.headers["ETag"]}).expect(200)


def test_one_tensor_is_written(m):
    arrays = some()
    a = arrays["layer.0/w"] = np.arange(165, dtype="float32").reshape(33, 5)
    m.put("m", a.tobytes(), "?tensor=layer.0/w")
    part = np.full((4, 2), 7, "float32")
    npy = io.BytesIO()
    np.save(npy, part)
    m.ask("PATCH", "buffers/m/data?tensor=layer.0/w&slice=2:6,1:5:3", npy.getvalue()).expect(200)
    a[2:6, 1:5:3] = part
    fortran = io.BytesIO()
    np.save(fortran, np.asfortranarray(arrays["last"][:10] + 1))
    m.ask("PATCH", "buffers/m/data?tensor=last&slice=:10", fortran.getvalue()).expect(200)
    arrays["last"][:10] += 1
    m.ask("PATCH", "buffers/m/data?tensor=b&offset=3", b"xyz").expect(200)
    arrays["b"][3:6] = np.frombuffer(b"xyz", "uint8")
    m.put("m", file({"any": np.array(6, "int64")}), "?tensor=scalar")
    arrays["scalar"] = np.array(6, "int64")
    m.put("m", b"", "?tensor=empty")
    m.put("m", b"1234567", "?tensor=b&in_place=true")
    arrays["b"] = np.frombuffer(b"1234567", "uint8")
    assert m.data("m") == file(arrays, META) and m.meta("m")["generation"] == 8


def test_tied_weights_have_one_place(s):
    """As safetensors' save_model writes them: a member of the metadata maps the other name to the tensor's."""
    arrays = {"wte": np.arange(12, dtype="float32").reshape(3, 4), "b": np.zeros(2, "uint8")}
    metadata = {"lm_head.weight": "wte", "a": "wte", "b": "wte", "c": "none", "": "b", "format": "pt"}
    body = file(arrays, metadata)
    s.put("m", body)
    listed = s.get("buffers/m/tensors")
    assert listed["tensors"] == 2 and listed["metadata"] == metadata
    assert [(t["name"], t.get("alias_of")) for t in listed["items"]] == [
        ("wte", None), ("b", None), ("a", "wte"), ("lm_head.weight", "wte")]
    wte, alias = listed["items"][0], listed["items"][3]
    assert alias == {**wte, "name": "lm_head.weight", "alias_of": "wte"}
    walked, cursor = [], ""
    while cursor is not None:
        page = s.get("buffers/m/tensors?limit=1" + (f"&cursor={cursor}" if cursor else ""))
        walked += page["items"]
        cursor = page["next_cursor"]
    assert walked == listed["items"]
    assert [t["name"] for t in s.get("buffers/m/tensors?prefix=lm_")["items"]] == ["lm_head.weight"]
    assert tensor(s, "lm_head.weight", "&slice=1") == arrays["wte"][1].tobytes()
    assert tensor(s, "b") == bytes(2)
    s.ask("GET", "buffers/m/data?tensor=c").problem(404, "tensor_not_found")
    arrays["wte"] = arrays["wte"] + 1
    s.put("m", arrays["wte"].tobytes(), "?tensor=lm_head.weight")
    assert s.data("m") == file(arrays, metadata)
    s.buffer("laid", tensors=[{"name": "w", "dtype": "uint8", "shape": [4]}], metadata={"v": "w"})
    s.put("laid", b"1234", "?tensor=v")
    assert tensor(s, "w", buffer="laid") == b"1234"


def test_digests_are_of_the_file(s):
    def asked(query="", wanted="Want-Repr-Digest", alg="sha-256", **more):
        answer = s.client.ask("GET", f"{s.base}/buffers/m/data{query}", None, {wanted: f"{alg}=1", **more})
        return answer.headers.get(wanted[len("Want-"):])

    def told(body, alg="sha-256"):
        return f"{alg}=:{base64.b64encode(hashlib.new(alg.replace('-', ''), body).digest()).decode()}:"

    arrays = {**some(), "large": np.random.default_rng(1).integers(0, 9, (17 << 20) + 5, dtype="uint8"),
              "small": np.ones(3, "uint8")}
    body = file(arrays, META)
    s.put("m", body)
    assert asked() == asked(wanted="Want-Content-Digest") == asked(Range="bytes=5-9") == told(body)
    assert asked(alg="sha-512") == told(body, "sha-512")
    assert asked("?format=raw") == told(s.data("m", "?format=raw"))
    assert asked("?tensor=b") is None
    s.put("m", b"abc", "?tensor=small")
    arrays["small"] = np.frombuffer(b"abc", "uint8")
    assert asked() == told(file(arrays, META))
    for empty in ({}, {"a": np.zeros(0, "uint8")}):
        s.put("m", file(empty, META), "?pack=true")
        assert asked() == told(file(empty, META))


def test_a_part_of_unknown_length_is_written(m):
    def part(name, offset, body, **headers):
        return m.client.ask("PATCH", f"{m.base}/buffers/m/data?tensor={name}&offset={offset}", body, headers)

    arrays = some()
    part("b", 3, iter([b"xy", b"z"])).expect(200)
    part("b", 7, iter([])).expect(200)
    part("last", 2, gzip.compress(b"yz"), **{"Content-Encoding": "gzip"}).expect(200)
    refused = part("b", 3, iter([b"1234", b"5"])).problem(422, "shape_mismatch")
    assert refused["detail"].startswith("the tensor has 4 bytes from the offset on")
    part("b", 3, gzip.compress(b"12345"), **{"Content-Encoding": "gzip"}).problem(422, "shape_mismatch")
    arrays["b"][3:6] = np.frombuffer(b"xyz", "uint8")
    arrays["last"].reshape(-1).view("uint8")[2:4] = np.frombuffer(b"yz", "uint8")
    assert m.data("m") == file(arrays, META)


def test_what_is_refused(m):
    before = m.data("m")
    table = "holds many tensors"
    refuse(m, (
        ("PUT", "buffers/m/data?tensor=none", b"1", 404, "tensor_not_found", "GET .../tensors lists its 6"),
        ("GET", "buffers/m/data?tensor=none", None, 404, "tensor_not_found", "none"),
        ("PUT", "buffers/m/data?tensor=b", b"12345678", 422, "shape_mismatch", "7 bytes"),
        ("PATCH", "buffers/m/data?tensor=b&offset=5", b"123", 422, "shape_mismatch", "7 bytes of the tensor"),
        ("PATCH", "buffers/m/data?tensor=b&offset=8", b"", 422, "shape_mismatch", "7 bytes of the tensor"),
        ("PATCH", "buffers/m/data?tensor=b&slice=5:9", b"12345", 422, "shape_mismatch", "2 bytes"),
        ("PUT", "buffers/m/data?tensor=b", file({"x": np.zeros(7, "int64")}), 422, "shape_mismatch", "int64"),
        ("PUT", "buffers/m/data?tensor=b", file(some()), 422, "unsupported_array", "6 tensors"),
        ("PUT", "buffers/m/data?tensor=b&dtype=uint8", b"1234567", 400, "invalid_argument", "leave dtype out"),
        ("PATCH", "buffers/m/data?offset=8", b"{", 400, "invalid_argument", table),
        ("PATCH", "buffers/m/data?slice=8:9", b"{", 400, "invalid_argument", table),
        ("GET", "buffers/m/data?slice=8:9", None, 400, "invalid_argument", table),
        ("GET", "buffers/m/data?format=npy", None, 406, "not_acceptable", "?tensor="),
        ("GET", "buffers/m/data?format=json", None, 406, "not_acceptable", "?tensor="),
        ("POST", "buffers/m/fill", {"pattern": 0}, 400, "invalid_argument", table),
        ("POST", "buffers/m/fill", {"pattern": 0, "offset": 600, "bytes": 1}, 400, "invalid_argument", table),
        ("PUT", "buffers/x/data?dtype=tensors", b"1", 400, "invalid_argument", "dtype"),
        ("POST", "buffers", {"name": "x", "bytes": 4, "dtype": "tensors"}, 400, "invalid_argument", "dtype"),
        ("PATCH", "buffers/m/data?tensor=b", None, 422, "shape_mismatch", "7 bytes")))
    m.put("u", b"12345678")
    refuse(m, (
        ("GET", "buffers/u/data?tensor=b", None, 400, "invalid_argument", "is one tensor, of dtype uint8"),
        ("PUT", "buffers/u/data?tensor=b", b"1", 400, "invalid_argument", "is one tensor, of dtype uint8"),
        ("POST", "buffers/m/copy", {"from": "u"}, 400, "invalid_argument", table),
        ("POST", "buffers/m/copy", {"from": "m", "bytes": 8, "offset": 8}, 400, "invalid_argument", table),
        ("PATCH", "buffers/u", {"dtype": "tensors"}, 400, "invalid_argument", "dtype"),
        ("GET", "tensors", None, 406, "not_acceptable", "\"m\"")))
    assert m.data("m") == before and m.meta("m")["generation"] == 1


GOOD = file(some(), META)
HEAD = struct.unpack("<Q", GOOD[:8])[0] + 8


@pytest.mark.parametrize("what,body,word", [
    ("cut", GOOD[:-1], "bytes"), ("more", GOOD + b"x", "bytes"), ("no data", GOOD[:HEAD], "bytes"),
    ("within the header", GOOD[:HEAD - 9], "header"), ("twice", file_of(GOOD[8:HEAD].replace(b'"last"', b'"b"'),
                                                                       GOOD[HEAD:]), "twice"),
    ("a hole", file_of(GOOD[8:HEAD].replace(b"[0, 660]", b"[4, 660]"), GOOD[HEAD:]), "bytes")])
def test_a_damaged_file_is_refused(m, what, body, word):
    for sent in (body, iter([body[:9], body[9:]])):
        for name in ("m", "new"):
            r = m.client.ask("PUT", m.base + f"/buffers/{name}/data", sent if isinstance(sent, bytes) else
                             iter([body[:9], body[9:]]))
            assert r.status == 422 and word in r.json()["detail"], r.body
    assert m.data("m") == GOOD and m.names("buffers") == ["m"]


def test_a_header_that_a_process_overwrote(m):
    """The bytes are there still, and the file can be uploaded again."""
    raw = bytearray(m.data("m", "?format=raw"))
    raw[8:9] = b"["
    m.patch("buffers/m", {"dtype": "uint8"})
    m.ask("PATCH", "buffers/m/data?offset=0", bytes(raw[:300])).expect(200)
    m.ask("GET", "buffers/m/data?tensor=b").problem(400, "invalid_argument")
    assert m.data("m") == bytes(raw)


def test_a_layout(s):
    tensors = [{"name": "w", "dtype": "float32", "shape": [2, 3]}, {"name": "h/b", "dtype": "torch.bfloat16",
                                                                    "shape": [5]}, {"name": "s", "dtype": "I64"}]
    made = s.buffer("m", tensors=tensors, metadata=META, labels={"a": "b"})
    assert made["dtype"] == "tensors" and made["labels"] == {"a": "b"} and made["generation"] == 1
    listed = s.get("buffers/m/tensors")
    assert [(t["name"], t["dtype"], t["shape"]) for t in listed["items"]] == [
        ("w", "float32", [2, 3]), ("h/b", "bfloat16", [5]), ("s", "int64", [])] and listed["metadata"] == META
    w = np.arange(6, dtype="float32")
    s.put("m", w.tobytes(), "?tensor=w")
    back = {n: (t["dtype"], bytes(t["data"])) for n, t in safetensors.deserialize(s.data("m"))}
    assert back == {"w": ("F32", w.tobytes()), "h/b": ("BF16", bytes(10)), "s": ("I64", bytes(8))}
    empty = s.buffer("none", tensors=[])
    assert empty["dtype"] == "tensors" and safetensors.deserialize(s.data("none")) == []
    bad = {"name": "x"}
    one = {"name": "t", "dtype": "uint8"}
    refuse(s, [("POST", "buffers", {**bad, **more}, status, code, word) for more, status, code, word in (
        ({"tensors": [one, one]}, 400, "invalid_argument", "twice"),
        ({"tensors": [{"name": "t"}]}, 400, "invalid_argument", "tensors[0]"),
        ({"tensors": [one, {"name": "", "dtype": "uint8"}]}, 400, "invalid_argument", "tensors[1]"),
        ({"tensors": [{**one, "dtype": "complex128"}]}, 400, "invalid_argument", "complex128"),
        ({"tensors": [{**one, "dtype": "tensors"}]}, 400, "invalid_argument", "tensors[0]"),
        ({"tensors": [{**one, "name": "__metadata__"}]}, 400, "invalid_argument", "metadata"),
        ({"tensors": [{**one, "shap": [1]}]}, 400, "unknown_field", "shap"),
        ({"tensors": [5]}, 400, "wrong_type", "tensors[0]"), ({"tensors": 5}, 400, "wrong_type", "array"),
        ({"tensors": [one], "metadata": {"a": 1}}, 400, "wrong_type", "string"),
        ({"tensors": [one], "bytes": 4}, 400, "invalid_argument", "not both"),
        ({"tensors": [one], "mirrored": True}, 400, "invalid_argument", "not both"),
        ({"bytes": 4, "metadata": {}}, 400, "invalid_argument", "goes with"),
        ({"tensors": [{**one, "shape": [1 << 46]}]}, 507, "out_of_memory", "bytes"))])
    assert s.names("buffers") == ["m", "none"]


@pytest.mark.parametrize("kind", ["device", "pinned", "shared", "managed", "pageable"])
def test_every_kind(s, kind):
    if s.ask("POST", "buffers", {"name": "x", "kind": kind, "tensors": [{"name": "w", "dtype": "uint8",
                                                                        "shape": [999]}]}).status == 501:
        pytest.skip("the device has no memory of that kind")
    s.put("m", GOOD, f"?kind={kind}")
    s.ask("PATCH", "buffers/m/data?tensor=b&offset=3", b"x").expect(200)
    s.put("x", payload(999), "?tensor=w")
    assert tensor(s, "w", buffer="x") == payload(999)
    s.post("buffers/m2/copy", {"from": "m"}, 201)
    for name in ("m", "m2"):
        back = safetensors.numpy.load(s.data(name))
        assert (back["last"] == some()["last"]).all() and back["b"][3] == ord("x")


def test_a_mirrored_table(s):
    s.put("m", GOOD, "?mirrored=true")
    s.put("m", b"1234567", "?tensor=b&side=device")
    s.post("buffers/m/sync", {"to": "host"})
    assert tensor(s, "b") == b"1234567" and (safetensors.numpy.load(s.data("m"))["last"] == some()["last"]).all()


def test_copies_are_tables(m):
    m.copy("c", "m", 201)
    m.put("c", b"1234567", "?tensor=b")
    m.copy("c", "m")
    assert m.data("c") == GOOD
    m.put("c", b"7654321", "?tensor=b")
    assert tensor(m, "b") == some()["b"].tobytes()
    part = m.ask("POST", "buffers/part/copy", {"from": "m", "from_offset": 8, "bytes": 16}).expect(201).json()
    assert part["dtype"] == "uint8"


def test_the_order_of_a_stream(s):
    """Writes of different tensors follow each other, and a tensor is looked for in the table that the stream brings."""
    prepare(s)
    s.put("m", GOOD)
    hold(s, ms=6000)
    first = left(s, "PUT", "buffers/m/data?tensor=b&stream=a", b"1234567")
    second = left(s, "PATCH", "buffers/m/data?tensor=b&offset=2&stream=a", b"xyz")
    third = left(s, "PUT", "buffers/m/data?tensor=scalar&stream=a", bytes(8))
    still_held(s)
    assert tensor(s, "b", "&stream=a") == b"12xyz67"
    assert [ended(s, op)["result"]["generation"] for op in (first, second, third)] == [2, 3, 4]
    other = dict(reversed(some(9).items()))
    hold(s)
    whole = left(s, "PUT", "buffers/m/data?stream=a", file(other, META))
    late = left(s, "PUT", "buffers/m/data?tensor=b&stream=a", b"1234567")
    assert ended(s, whole) and ended(s, late)["result"]["generation"] == 6
    assert s.data("m") == file({**other, "b": np.frombuffer(b"1234567", "uint8")}, META)
    assert fill(s, "x", 1)


def test_more_tables_than_are_kept(m):
    """Their headers are read again from the buffers."""
    m.put("m2", GOOD)
    for i in range(70):
        m.put(f"x{i}", file({"w": np.full(5, i, "uint8")}), "?pack=true")
    assert m.data("m") == GOOD and tensor(m, "b", buffer="m2") == some()["b"].tobytes()
    for i in range(70):
        m.put(f"x{i}", bytes([255 - i]) * 5, "?tensor=w")
    m.ask("PATCH", "buffers/m/data?tensor=b&offset=0", b"abc").expect(200)
    assert tensor(m, "b") == b"abc" + some()["b"].tobytes()[3:]
    assert all(tensor(m, "w", buffer=f"x{i}") == bytes([255 - i]) * 5 for i in range(70))


def test_large_headers_leave_the_kept_ones(s):
    """Those of three of these files are more than are kept at a time."""
    bodies = [file({f"model.layers.{j}.self_attn.q_proj.weight": np.full(1, i, "uint8") for j in range(65536)})
              for i in range(3)]
    for i, body in enumerate(bodies):
        s.put(f"m{i}", body)
    last = "model.layers.65535.self_attn.q_proj.weight"
    assert [tensor(s, last, buffer=f"m{i}") for i in range(3)] == [b"\0", b"\1", b"\2"]
    s.ask("POST", "buffers", {"name": "x", "tensors": [], "metadata": {"a": "x" * 70000}}).expect(201)


def test_a_header_that_cannot_be_read_again(start):
    s = Session(start("--max-json", "16M"))
    fields = {"name": "x", "tensors": [{"name": "w", "dtype": "uint8"}], "metadata": {"a": "x" * (16 << 20)}}
    s.ask("POST", "buffers", fields).problem(413, "body_too_large")


def test_what_is_not_there_when_the_table_is_read(lives):
    """A read of a table that is not kept is refused, and the daemon stays."""
    s = Session(lives())
    s.put("m", GOOD, "?durability=sync")
    s.put("lost", GOOD)
    s = Session(lives())
    s.ask("GET", "buffers/lost/tensors").problem(410, "content_lost")
    for query in ("?stream=none", "?tensor=b&stream=none"):
        s.ask("GET", "buffers/m/data" + query).problem(404, "stream_not_found")
        s.ask("PUT", "buffers/m/data" + query, b"1234567").problem(404, "stream_not_found")
    s.ask("GET", "buffers/none/tensors").problem(404, "buffer_not_found")
    assert s.data("m") == GOOD


def test_a_table_that_the_device_does_not_give(start):
    s = Session(start(spec="fault:copy@1=cudaErrorInvalidValue:host:discrete"))
    s.buffer("m", tensors=[{"name": "w", "dtype": "uint8"}])
    s.ask("GET", "buffers/m/tensors").problem(500, "device_error")
    assert [t["name"] for t in s.get("buffers/m/tensors")["items"]] == ["w"]


@pytest.mark.parametrize("query", ["?in_place=true", "?mirrored=true"])
def test_a_tensor_behind_a_whole_write_into_present_memory(s, query):
    prepare(s)
    s.put("m", file(some(2)), query.replace("in_place=true", "pack=true"))
    hold(s)
    whole = left(s, "PUT", f"buffers/m/data{query}&stream=a", file(some(3)))
    part = left(s, "PUT", "buffers/m/data?tensor=b&stream=a", b"1234567")
    assert [ended(s, op)["result"]["generation"] for op in (whole, part)] == [2, 3]
    assert s.data("m") == file({**some(3), "b": np.frombuffer(b"1234567", "uint8")})


def test_a_tensor_of_a_table_that_is_to_be_made(s):
    prepare(s)
    hold(s)
    made = left(s, "POST", "buffers", {"name": "m", "tensors": [{"name": "w", "dtype": "uint8", "shape": [4]}],
                                       "stream": "a"})
    part = left(s, "PUT", "buffers/m/data?tensor=w&stream=a", b"1234")
    assert ended(s, made) and ended(s, part)["result"]["generation"] == 2
    assert tensor(s, "w") == b"1234"
    hold(s)
    copy = left(s, "POST", "buffers/c/copy", {"from": "m", "stream": "a"})
    part = left(s, "PATCH", "buffers/c/data?tensor=w&offset=1&stream=a", b"xy")
    assert ended(s, copy) and ended(s, part) and tensor(s, "w", buffer="c") == b"1xy4"


@pytest.mark.parametrize("kind", ["shared", "pinned"])
def test_a_process_that_writes_the_header(s, backend, kind):
    """Its table is that of the memory from the end of its lease on."""
    if kind == "shared" and not backend.startswith("host"):
        pytest.skip("this test writes through a file's memory; shared memory of a GPU lies in none")
    a, b = (file({n: np.full(4, ord(n), "uint8") for n in order}) for order in ("abc", "bac"))
    s.put("other", b)
    s.put("m", a, f"?kind={kind}")
    memory = s.data("other", "?format=raw")
    local = Local(s.daemon.unix)
    mapped = Memory(local.map("m", s.name, mode="write"))
    mapped.view[:len(memory)] = memory
    assert local.end(mapped.info["lease"]).status == 204
    until("the lease has ended", lambda: s.meta("m")["generation"] > mapped.info["generation"])
    assert [t["name"] for t in s.get("buffers/m/tensors")["items"]] == ["b", "a", "c"]
    assert s.data("m") == b and tensor(s, "b") == b"bbbb"
    s.put("m", b"1234", "?tensor=b")
    assert tensor(s, "a") == b"aaaa"
    mapped = Memory(local.map("m", s.name, mode="write"))
    mapped.view[8:9] = b"["
    assert local.end(mapped.info["lease"]).status == 204
    until("the lease has ended", lambda: s.meta("m")["generation"] > mapped.info["generation"])
    for path in ("data", "tensors", "data?tensor=b"):
        s.ask("GET", "buffers/m/" + path).problem(422, "unsupported_array")
    assert s.client.ask("HEAD", s.base + "/buffers/m/data").status == 422
    s.ask("PUT", "buffers/m/data?tensor=b", b"1234").problem(422, "unsupported_array")
    assert s.data("m", "?format=raw")[8:9] == b"["


def test_a_write_that_broke_off(s):
    body = file({**some(), "z": np.zeros(3 << 20, "uint8")}, META)
    s.put("m", body)
    raw = s.daemon.raw()
    raw.put(f"{s.base}/buffers/m/data?in_place=true", len(body)).send(body[:-5])
    until("it has begun", lambda: s.get("/v1/stats")["running"]["uploads"] == 1)
    for i in range(65):
        s.put(f"x{i}", file({"w": np.zeros(3, "uint8")}), "?pack=true")  # m is not kept then
    for path in ("data", "tensors", "data?tensor=b"):
        assert s.ask("GET", "buffers/m/" + path).expect(409).headers["Retry-After"]
    raw.close()
    until("it is partial", lambda: s.meta("m")["state"] == "partial")
    for path in ("data", "tensors", "data?tensor=b"):
        s.ask("GET", "buffers/m/" + path).problem(409, "buffer_partial")
    s.put("m", body)
    assert s.data("m") == body


def test_a_file_of_65536_tensors(s):
    rng = np.random.default_rng(3)
    arrays = {f"model.layers.{i}.w": np.full(int(n), i % 251, "uint8")
              for i, n in enumerate(rng.integers(0, 40, 65536))}
    body = file(arrays)
    s.put("m", body)
    assert s.data("m") == body and tensor(s, "model.layers.65535.w") == arrays["model.layers.65535.w"].tobytes()
    assert s.ask("GET", "buffers/m/data", None, {"Range": "bytes=5000000-5100000"}).body == body[5000000:5100001]
    assert s.get("buffers/m/tensors?prefix=model.layers.6553&limit=1000")["tensors"] == 65536
    more = file({f"t{i}": np.zeros(0, "uint8") for i in range(65537)})
    s.ask("PUT", "buffers/m/data", more).problem(413, "body_too_large")


HEADER_MAX = 100_000_000
LONG = 1 << 20  # what is longer is parsed by a thread of its own


def filled_up(arrays, header_bytes):
    """A file whose header has that many bytes, most of them metadata."""
    body = file(arrays, {"note": ""})
    n = int.from_bytes(body[:8], "little")
    at = body.index(b'"note": "') + len(b'"note": "')
    return header_bytes.to_bytes(8, "little") + body[8:at] + b"x" * (header_bytes - n) + body[at:]


def test_headers_of_every_length(s):
    """Around the length from which a thread of its own parses them, and at the end of what is read."""
    for n in (LONG - 8, LONG - 7, LONG + 1, 16 << 20):
        body = filled_up(some(), n)
        s.put("m", body)
        assert s.data("m") == body and tensor(s, "b") == some()["b"].tobytes()
        note = s.get("buffers/m/tensors")["metadata"]
        assert note is None if n > 2 * LONG else set(note["note"]) == {"x"}, "null: too long for a list"
        for wrong, code in ((body[:-1], "shape_mismatch"), (body + b"x", "shape_mismatch"), (body[:n // 2],
                                                                                             "unsupported_array"),
                            (body.replace(b'"F32"', b'"F99"', 1), "unsupported_array")):
            s.ask("PUT", "buffers/m/data", wrong).problem(422, code)
            s.ask("PUT", "buffers/m/data", iter([wrong[:100], wrong[100:]])).problem(422, code)
        assert s.data("m") == body
    one = filled_up({"w": np.arange(6, dtype="int16")}, LONG + 5)
    assert s.put("m", one)["dtype"] == "int16" and s.put("m", one, "?pack=true")["dtype"] == "tensors"
    empty = filled_up({"a": np.zeros(0, "uint8"), "b": np.zeros(0, "uint8")}, 2 * LONG)
    s.put("m", empty)
    assert s.data("m") == empty


def test_the_longest_header(s):
    body = filled_up({f"t{i}": np.full(i % 3, i % 251, "uint8") for i in range(65536)}, HEADER_MAX)
    assert int.from_bytes(body[:8], "little") == HEADER_MAX
    s.put("m", body, "?kind=pinned")
    assert s.ask("GET", "buffers/m/data", None, {"Range": "bytes=99990000-"}).body == body[99990000:]
    assert tensor(s, "t65534") == bytes([65534 % 251] * 2) and s.get("buffers/m/tensors?limit=1")["tensors"] == 65536
    with client_of(s.daemon, s.name) as c, c.tensors("m") as t:
        assert len(t) == 65536 and t["t5"].tolist() == [5, 5] and len(t.metadata["note"]) > 90_000_000
    more = struct.pack("<Q", HEADER_MAX + 1) + body[8:]
    assert "100000000" in s.ask("PUT", "buffers/m/data", more[:1000]).problem(413, "body_too_large")["detail"]
    assert "one request" in begin(s, body[:30]).problem(422, "unsupported_array")["detail"]


def test_long_headers_wait_for_memory(start):
    """Two that stop half-way hold what there is; a third one waits for one of them, and all else continues."""
    d = start()
    s = Session(d)
    half = filled_up(some(), HEADER_MAX)[:200]
    holders = [d.raw() for _ in range(2)]
    for i, r in enumerate(holders):
        r.request("PUT", f"{s.base}/buffers/h{i}/data", [f"Content-Length: {HEADER_MAX + 99999}"], half)
    body = filled_up(some(), 60_000_000)
    answers = []
    third = threading.Thread(target=lambda: answers.append(Session(d).put("m", body)))
    third.start()
    small = file(some())
    for i in range(20):
        s.put("small", small)
        assert s.data("small") == small
    s.put("long", filled_up(some(), LONG - 50))
    for r in holders:
        r.reset()
    third.join()
    assert answers[0]["dtype"] == "tensors" and s.data("m") == body


def test_on_disk(lives):
    d = lives()
    s = Session(d)
    s.put("m", GOOD, "?durability=sync")
    s.put("m", b"1234567", "?tensor=b")
    s.buffer("l", tensors=[{"name": "w", "dtype": "uint8", "shape": [70000]}], durability="sync")
    arrays = {**some(), "b": np.frombuffer(b"1234567", "uint8")}
    s.post("buffers/m/evict")
    assert s.meta("m")["state"] == "stored"
    assert s.data("m") == file(arrays, META) and tensor(s, "b") == b"1234567"
    s.post("/v1/sessions/default/checkpoints", {"name": "c"}, 201)
    s = Session(lives())
    assert s.data("m") == file(arrays, META)
    assert s.get("buffers/l/tensors")["items"][0]["shape"] == [70000] and tensor(s, "w", buffer="l") == bytes(70000)
    s.post("buffers/m/load")
    s.put("m", b"abcdefg", "?tensor=b")
    s.post("/v1/sessions", {"name": "again"}, 201)
    s.post("/v1/checkpoints/c/restore", {"into": "again"})
    again = Session(s.daemon, "again")
    assert again.data("m") == file(arrays, META) and again.meta("m")["dtype"] == "tensors"
    becomes_tidy(s.daemon.state)


def test_from_another_daemon(start, s):
    other = start("--pull-from", s.daemon.url(""))
    s.put("m", GOOD)
    o = Session(other)
    o.post("buffers/m/copy", {"from": s.daemon.url("") + s.base + "/buffers/m"}, 201)
    assert o.data("m") == GOOD and tensor(o, "b") == some()["b"].tobytes()


def test_by_the_python_client(s):
    with client_of(s.daemon, session=s.name) as c:
        s.put("m", GOOD)
        arrays = some()
        assert [(t["name"], t["dtype"], tuple(t["shape"])) for t in c.list_tensors("m")] == [
            (n, str(a.dtype), a.shape) for n, a in arrays.items()]
        assert [t["name"] for t in c.list_tensors("m", prefix="la")] == ["layer.0/w", "last"]
        for n, a in arrays.items():
            back = c.get("m", tensor=n)
            assert back.dtype == a.dtype and back.shape == a.shape and (back == a).all()
        assert (c.get("m", tensor="last", slice=np.s_[2:4, ::3]) == arrays["last"][2:4, ::3]).all()
        assert c.get("m", tensor="b", raw=True, offset=2, length=3) == arrays["b"].tobytes()[2:5]
        made = c.put("m", np.ones((33, 5), "float32"), tensor="layer.0/w")
        c.put("m", [[5, 6]], tensor="layer.0/w", slice=np.s_[3:4, :2], if_match=made["etag"])
        c.put("m", b"xy", tensor="b", offset=1)
        wanted = np.ones((33, 5), "float32")
        wanted[3, :2] = 5, 6
        assert (c.get("m", tensor="layer.0/w") == wanted).all() and bytes(c.get("m", tensor="b"))[1:3] == b"xy"
        for array, error in ((np.ones((33, 5), "int16"), gpubuf.errors.ShapeMismatch),
                             (np.ones((5, 33), "float32"), gpubuf.errors.ShapeMismatch)):
            with pytest.raises(error):
                c.put("m", array, tensor="layer.0/w")
        with pytest.raises(gpubuf.errors.TensorNotFound):
            c.put("m", np.ones(3), tensor="layer")
        with pytest.raises(gpubuf.errors.TensorNotFound):
            c.get("m", tensor="layer")
        with pytest.raises(gpubuf.errors.BadArgument, match="tensor="):
            c.get("m")
        c.create("l", tensors=[{"name": "w", "dtype": np.float32, "shape": (2, 2)}, {"name": "s", "dtype": "F16"}],
                 metadata=META)
        assert (c.get("l", tensor="w") == np.zeros((2, 2))).all() and c.get("l", tensor="s").shape == ()


def test_by_the_command_line(s, tmp_path):
    """The session's file, one tensor of it as .npy, and one that is written."""
    cli, path = Cli(s.daemon.url("")), tmp_path / "model.safetensors"
    path.write_bytes(GOOD)
    more = ("--session", s.name)
    assert "tensors" in cli("put", str(path), "m", *more).expect().out
    cli("get", "m", str(tmp_path / "back.safetensors"), *more).expect()
    assert (tmp_path / "back.safetensors").read_bytes() == GOOD
    cli("get", "m", str(tmp_path / "w.npy"), "--tensor", "layer.0/w", *more).expect()
    assert (np.load(tmp_path / "w.npy") == some()["layer.0/w"]).all()
    np.save(tmp_path / "new.npy", np.full((33, 5), 3, "float32"))
    cli("put", str(tmp_path / "new.npy"), "m", "--tensor", "layer.0/w", *more).expect()
    assert cli("get", "m", "-", "--tensor", "layer.0/w", "--slice", "0,:2", *more).expect().raw == (
        np.full(2, 3, "float32").tobytes())
    assert "lists its" in cli("get", "m", "-", "--tensor", "none", *more).expect(NOT_FOUND).err


def test_values_of_every_type(s):
    """What the reference library writes comes back byte for byte."""
    arrays = {d: values.array_of(d, (3, 4)) for d in values.DTYPES if d not in ("complex64", "complex128")}
    body = safetensors.numpy.save(arrays, metadata={"k": "v"})
    s.put("m", body)
    assert s.data("m") == body
    for d, a in arrays.items():
        assert tensor(s, d) == a.tobytes()
        assert np.load(io.BytesIO(s.data("m", f"?tensor={d}&format=npy"))).dtype == a.dtype


def test_metrics_of_tables_and_links(start):
    s = Session(start())

    seen = []

    def told(*wanted):
        """The text may be some tenths of a second old."""
        def same():
            found = samples(scrape(s.daemon).body.decode())
            seen[:] = [value(found, f"gpubufd_{name}") for name in ("tables", "tables_bytes", "links", "links_bytes")]
            return seen == list(wanted)

        assert until("they are told", same), seen

    told(0, 0, 0, 0)
    size = s.put("m", file(some()))["bytes"]
    s.put("x", b"plain")
    s.post("buffers/m/seal")
    told(1, size, 0, 0)
    for name in ("a", "b"):
        s.post(f"buffers/{name}/copy", {"from": "m", "share": True}, 201)
    told(3, 3 * size, 2, 2 * size)
    s.delete("buffers/m")
    told(2, 2 * size, 1, size)
    s.put("a", b"a write gives it memory of its own")
    told(1, size, 0, 0)
    s.delete("buffers/b")
    told(0, 0, 0, 0)


# --- in several requests ----------------------------------------------------------------------------------------------


PARTIAL = {"Content-Type": "application/partial-upload"}
MODEL = {f"t{i}": np.full((i * 37 % 300, 1 + i % 3), i % 251, "uint8") for i in range(60)}  # some are empty


def begin(s, body=b"", query="", length=None):
    told = {} if length is None else {"Upload-Length": str(length)}
    return s.ask("PUT", f"buffers/m/data{query}", body, {"Upload-Complete": "?0", **told})


def append(s, path, offset, body, complete=False, **headers):
    return s.ask("PATCH", path, body, {**PARTIAL, "Upload-Offset": str(offset),
                                       "Upload-Complete": "?1" if complete else "?0",
                                       **{k.replace("_", "-"): v for k, v in headers.items()}})


def same_as_put(s, body, name="m"):
    """The buffer is the table that a PUT of the file makes."""
    s.put("other", body, "?pack=true")
    for query in ("", "?format=raw"):
        assert s.data(name, query) == s.data("other", query)
    keys = ("dtype", "shape", "bytes", "crc32c")
    assert [s.meta(name)[key] for key in keys] == [s.meta("other")[key] for key in keys]
    assert s.post(f"buffers/{name}/verify", {})["crc32c"] == s.meta("other")["crc32c"]
    assert s.get(f"buffers/{name}/tensors?limit=1000")["items"] == s.get("buffers/other/tensors?limit=1000")["items"]


@pytest.mark.parametrize("told", [True, False])
def test_appended(s, told):
    """Each request ends anywhere: in the length, the header, a tensor, and between two."""
    for seed, arrays in enumerate((some(), MODEL, {"only": np.arange(9, dtype="int16")},
                                   {"a": np.zeros(0, "uint8"), "b": np.zeros((0, 3), "int16")})):
        body = file(arrays, META)
        head = len(body) - sum(a.nbytes for a in arrays.values())
        ends = {1, 8, 9, 20, head - 1, head, *np.random.default_rng(seed).integers(1, len(body), 12).tolist()}
        ends |= {head + sum(a.nbytes for a in list(arrays.values())[:n]) for n in (1, 2)}
        r = begin(s, b"", "?pack=true", len(body) if told else None).expect(201)
        path, at = r.headers["Location"], 0
        for end in sorted(end for end in ends if end < len(body)):
            assert append(s, path, at, body[at:end]).expect(204).headers["Upload-Offset"] == str(end)
            at, seen = end, s.ask("GET", path).json()
            if end >= head:
                assert (seen["bytes"], seen["received_bytes"]) == (len(body), end)
                assert seen["missing"] == [{"offset": end, "bytes": len(body) - end}]
        made = append(s, path, at, body[at:], complete=True).expect(200 if seed else 201)
        assert made.json()["dtype"] == "tensors" and made.headers["Upload-Complete"] == "?1"
        assert s.ask("HEAD", path).headers["Upload-Offset"] == str(len(body))
        same_as_put(s, body)


def test_appended_with_broken_connections(daemon, s):
    """What came before the break counts, also where it ends within a gap of the memory."""
    body = file(MODEL, META)
    path, at, top = begin(s, length=len(body)).expect(201).headers["Location"], 0, 0
    rng = np.random.default_rng(5)
    while at < len(body) - 300:
        sent = int(rng.integers(0, 300))
        top = max(top, at + sent)  # the daemon may see what a connection brought when the next one is there
        r = daemon.raw()
        r.request("PATCH", path, ["Content-Type: application/partial-upload", f"Upload-Offset: {at}",
                                  "Upload-Complete: ?1", f"Content-Length: {len(body) - at}"], body[at:at + sent])
        r.close()
        now = int(s.ask("HEAD", path).expect(204).headers["Upload-Offset"])
        assert at <= now <= top
        at = now
    append(s, path, at, body[at:], complete=True).expect(201)
    same_as_put(s, body)


def test_headers_of_open_uploads_are_bounded(start):
    """256 MiB of them; those of completed and deleted ones do not count."""
    s = Session(start())
    body = filled_up(some(), 15 << 20)
    for _ in range(2):
        path = begin(s, body[:100]).expect(201).headers["Location"]
        append(s, path, 100, body[100:], complete=True)
        assert s.data("m") == body
    paths = [begin(s, body[:100]).expect(201).headers["Location"] for _ in range(17)]
    assert "headers" in begin(s, body[:100]).problem(507, "limit_reached")["detail"]
    s.ask("DELETE", paths.pop()).expect(204)
    begin(s, body[:100]).expect(201)


def test_appended_with_a_wrong_digest(s):
    """The bytes are taken back, also those that said what the file is; the upload continues."""
    body = file(some(), META)
    right = lambda part: {"Content-Digest": f"sha-256=:{base64.b64encode(hashlib.sha256(part).digest()).decode()}:"}
    path = begin(s, length=len(body)).expect(201).headers["Location"]
    for at, end in ((0, len(body) - 9), (0, 30), (30, len(body) - 3000)):
        append(s, path, at, body[at:end], **right(b"other")).problem(400, "digest_mismatch")
        if at or end < 100:
            append(s, path, at, body[at:end], **right(body[at:end])).expect(204)
    at = len(body) - 3000
    append(s, path, at, body[at:], complete=True, **right(body[at:])).expect(201)
    same_as_put(s, body)


def test_appended_files_that_are_none(s):
    body = file(some(), META)
    s.put("m", b"before")
    for wrong, detail in ((body[:-1], "follow it"), (body + b"x", "follow it"), (body[:40], "header"),
                          (body.replace(b'"F32"', b'"F99"', 1), "F99"),
                          (body.replace(b"[0, 660]", b"[1, 660]", 1), "holes")):
        path = begin(s, length=len(wrong)).expect(201).headers["Location"]
        refused = append(s, path, 0, wrong, complete=True)
        assert detail in refused.problem(422, "shape_mismatch" if detail == "follow it" else
                                         "unsupported_array")["detail"]
        s.ask("GET", path).problem(404, "upload_not_found")
    path = begin(s, body[:-5]).expect(201).headers["Location"]
    refused = append(s, path, len(body) - 5, body[-5:] + b"x", complete=True).expect(400)
    assert refused.json()["code"] == "upload_length_mismatch"
    assert append(s, path, len(body) - 5, body[-5:-1]).expect(204).headers["Upload-Offset"] == str(len(body) - 1)
    s.ask("DELETE", path).expect(204)
    assert s.data("m") == b"before"


def multipart(s, body, head=None, buffer="m", **more):
    head = 8 + int.from_bytes(body[:8], "little") if head is None else head
    return s.ask("POST", "uploads", json.dumps({"buffer": buffer, "header": base64.b64encode(body[:head]).decode(),
                                                **more}).encode(), {"Content-Type": "application/json"})


def put_part(s, path, body, at, end, query=""):
    return s.ask("PUT", f"{path}/parts?offset={at}{query}", body[at:end], {"Content-Type": "application/octet-stream"})


@pytest.mark.parametrize("seed", range(3))
def test_parts_in_any_order(s, seed):
    rng = np.random.default_rng(seed)
    arrays = (some(), MODEL, {"only": np.arange(900, dtype="int16")})[seed]
    body = file(arrays, META)
    begun = multipart(s, body, **({"bytes": len(body)} if seed else {})).expect(201).json()
    assert begun["bytes"] == len(body) and begun["missing"] == [{"offset": 0, "bytes": len(body)}]
    path = f"uploads/{begun['id']}"
    places = sorted({0, len(body), *rng.integers(1, len(body), 12).tolist()})
    cuts = list(zip(places, places[1:]))
    rng.shuffle(cuts)
    got = 0
    for i, (at, end) in enumerate(cuts):
        at, end = int(at), int(end)
        told = put_part(s, path, body, at, end).expect(200).json()
        got += end - at
        assert (told["offset"], told["bytes"], told["received_bytes"]) == (at, end - at, got)
        assert told["crc32c"] == values.crc32c(body[at:end])
        if i == 3:
            assert put_part(s, path, body, at, end).expect(200).json()["crc32c"] == told["crc32c"]  # its reply was lost
            put_part(s, path, body, at, end, "&replace=true").expect(200)
            s.ask("POST", f"{path}/complete", b"{}").problem(409, "upload_incomplete")
    wrong = {"crc32c": "00000000"}
    s.ask("POST", f"{path}/complete", json.dumps(wrong).encode()).problem(400, "digest_mismatch")
    wrong = {"digest": {"sha-256": base64.b64encode(hashlib.sha256(body + b"x").digest()).decode()}}
    s.ask("POST", f"{path}/complete", json.dumps(wrong).encode()).problem(400, "digest_mismatch")
    right = {"crc32c": values.crc32c(body),
             "digest": {"sha-256": base64.b64encode(hashlib.sha256(body).digest()).decode()}}
    assert s.ask("POST", f"{path}/complete", json.dumps(right).encode()).expect(201).json()["dtype"] == "tensors"
    same_as_put(s, body)


def test_parts_that_do_not_fit(s):
    body = file(some(), META)
    head = 8 + int.from_bytes(body[:8], "little")
    for more, code, word in (({"dtype": "uint8"}, (400, "invalid_argument"), "leave 'dtype' out"),
                             ({"shape": [3]}, (400, "invalid_argument"), "leave 'shape' out"),
                             ({"bytes": len(body) + 1}, (422, "shape_mismatch"), str(len(body))),
                             ({"header": "!"}, (400, "invalid_argument"), "base64"),
                             ({"header": ""}, (422, "unsupported_array"), "0 bytes"),
                             ({"header": base64.b64encode(body[:head - 1]).decode()}, (422, "unsupported_array"),
                              f"says that it has {head}"),
                             ({"header": base64.b64encode(b"x" * 20).decode()}, (422, "unsupported_array"), "begin"),
                             ({"header": 5}, (400, "wrong_type"), "header")):
        assert word in multipart(s, body, **more).problem(*code)["detail"]
    path = f"uploads/{multipart(s, body).expect(201).json()['id']}"
    other = body[:head - 3] + b"\n" + body[head - 2:]
    assert f"byte {head - 3}" in put_part(s, path, other, 0, len(body)).problem(422, "unsupported_array")["detail"]
    put_part(s, path, other, head - 9, head).problem(422, "unsupported_array")
    put_part(s, path, body + b"x", 5, len(body) + 1).problem(416, "range_not_satisfiable")
    put_part(s, path, body, 0, head + 5).expect(200)
    assert put_part(s, path, body, 4, head).problem(409, "upload_overlap")
    s.ask("DELETE", path).expect(204)
    path = "uploads/" + s.ask("POST", "uploads", json.dumps({"buffer": "m", "bytes": len(body)}).encode()).expect(
        201).json()["id"]
    put_part(s, path, body, 0, len(body)).expect(200)
    s.ask("POST", f"{path}/complete", b"{}").expect(201)
    assert s.meta("m")["dtype"] == "uint8" and s.data("m", "?format=raw") == body, "raw without a header"
