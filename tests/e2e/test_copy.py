"""Copies between buffers and fills, made by the device."""
import numpy as np
import pytest

from conform import Session, refuse
from harness import SLOT, token, until
from values import array_of, npy, payload

MIB = 1 << 20
A, B = payload(5 * SLOT + 11, 1), payload(5 * SLOT + 11, 2)


def kinds(daemon):
    return [k for k, v in daemon.get("/v1/devices/0")["kinds"].items() if v["supported"]]


def test_a_whole_buffer(s):
    array = array_of("float32", (100, 7))
    s.put("x", npy(array))
    r = s.ask("POST", "buffers/y/copy", {"from": "x"}).expect(201)
    y = r.json()
    assert (y["dtype"], y["shape"], y["bytes"], y["generation"], y["crc32c"]) == ("float32", [100, 7], 2800, 1,
                                                                                  s.meta("x")["crc32c"])
    assert r.headers["Location"] == s.base + "/buffers/y" and y["way"] in ("device", "host")
    assert {"queue", "copy", "total"} <= set(r.timing())
    assert r.headers["ETag"] == s.ask("GET", "buffers/y/data").headers["ETag"]
    assert s.data("y") == array.tobytes() == s.data("x")
    s.put("x", b"other")
    assert s.data("y") == array.tobytes()
    # the existing buffer keeps its size, dtype and shape
    r = s.ask("POST", "buffers/y/copy", {"from": "x"}).expect(200)
    assert r.json()["generation"] == 2 and (r.json()["bytes"], r.json()["dtype"]) == (2800, "float32")
    assert s.data("y") == b"other" + array.tobytes()[5:]


def test_parts(s):
    s.put("x", A)
    s.put("y", B)
    y = s.copy("y", "x", from_offset=7, offset=SLOT - 3, bytes=2 * SLOT)
    want = bytearray(B)
    want[SLOT - 3:3 * SLOT - 3] = A[7:7 + 2 * SLOT]
    assert s.data("y") == bytes(want) and (y["generation"], y["bytes"]) == (2, len(B))
    y = s.copy("y", "x", from_offset=len(A) - 5, offset=0)  # the rest of the source from there on
    want[:5] = A[-5:]
    assert s.data("y") == bytes(want) and y["crc32c"] is None
    s.copy("y", "x", in_place=True, bytes=10)
    want[:10] = A[:10]
    assert s.data("y") == bytes(want)
    s.copy("z", "x", 201, from_offset=3, bytes=50)
    assert s.data("z") == A[3:53] and (s.meta("z")["dtype"], s.meta("z")["shape"]) == ("uint8", [50])


def test_within_one_buffer(s):
    s.put("x", A)
    s.copy("x", "x", from_offset=0, offset=10, bytes=3 * SLOT)  # the old bytes are read, the new ones are written
    want = A[:10] + A[:3 * SLOT] + A[3 * SLOT + 10:]
    assert s.data("x") == want
    p = s.ask("POST", "buffers/x/copy", {"from": "x", "from_offset": 0, "offset": 10, "bytes": 11, "in_place": True})
    assert "overlap" in p.problem(400, "invalid_argument")["detail"]
    s.copy("x", "x", from_offset=0, offset=SLOT, bytes=SLOT, in_place=True)
    want = want[:SLOT] + want[:SLOT] + want[2 * SLOT:]
    assert s.data("x") == want
    s.copy("x", "x")
    assert s.data("x") == want


def test_between_sessions(daemon, s):
    other = Session(daemon)
    other.put("src", A)
    s.copy("x", "default/src", 201)
    assert s.data("x") == A and s.get()["used_bytes"] == len(A)
    s.ask("POST", "buffers/y/copy", {"from": "src"}).problem(404, "buffer_not_found")
    s.ask("POST", "buffers/y/copy", {"from": "nobody/src"}).problem(404, "session_not_found")
    other.delete("buffers/src")
    assert s.data("x") == A


def test_between_all_kinds(daemon, s):
    have = kinds(daemon)
    assert {"device", "pageable"} <= set(have)
    for i, one in enumerate(have):
        s.put("src-" + one, payload(3 * SLOT + 5, i), f"?kind={one}")
    for i, one in enumerate(have):
        for two in have:
            name = f"{one}-{two}"
            s.put(name, B[:3 * SLOT + 5], f"?kind={two}")
            w = s.copy(name, "src-" + one)
            assert (w["kind"], w["bytes"]) == (two, 3 * SLOT + 5) and w["way"] != "none", name
            assert s.data(name) == payload(3 * SLOT + 5, i), name
            s.copy(name, "src-" + one, from_offset=1, offset=SLOT, bytes=SLOT, in_place=True)
            want = bytearray(payload(3 * SLOT + 5, i))
            want[SLOT:2 * SLOT] = want[1:SLOT + 1]
            assert s.data(name) == bytes(want), name


def test_the_way_is_told(s, backend):
    s.put("d", A)
    s.put("h", A, "?kind=pageable")
    s.put("h2", B, "?kind=pageable")
    assert s.copy("d2", "d", 201)["way"] == "device"
    assert "way" not in s.fill("d", 0, bytes=0)
    assert s.copy("h2", "h")["way"] == "host"
    assert s.copy("d2", "h")["way"] == "to_device"
    assert s.copy("h2", "d")["way"] == "from_device"
    assert s.data("d2") == s.data("h2") == A
    s.buffer("empty", bytes=0)
    assert s.copy("e2", "empty", 201)["way"] == "none" and s.data("e2") == b""


def test_zero_bytes(s):
    s.put("x", A)
    s.put("y", B)
    s.copy("y", "x", bytes=0)
    s.copy("y", "x", from_offset=len(A), offset=len(B))
    s.fill("y", 1, bytes=0)
    s.fill("y", 1, offset=len(B))
    assert s.data("y") == B


def test_fill(s):
    s.buffer("x", dtype="uint32", shape=[1000])
    x = s.fill("x", 0xDEADBEEF, 4)
    assert s.data("x") == np.full(1000, 0xDEADBEEF, "<u4").tobytes() and (x["dtype"], x["shape"],
                                                                          x["generation"]) == ("uint32", [1000], 2)
    s.fill("x", "0xFEDCBA9876543210", 8, offset=8, bytes=16)
    want = np.full(1000, 0xDEADBEEF, "<u4")
    want[2:6] = [0x76543210, 0xFEDCBA98] * 2
    assert s.data("x") == want.tobytes()
    s.fill("x", 0xABCD, 2, offset=2, bytes=2, in_place=True)
    s.fill("x", 255, offset=7, bytes=1, in_place=True)
    s.fill("x", (1 << 63) - 1, 8, offset=3992)
    raw = bytearray(want.tobytes())
    raw[2:4], raw[7:8], raw[3992:] = b"\xcd\xab", b"\xff", b"\xff" * 7 + b"\x7f"
    assert s.data("x") == bytes(raw)
    assert s.meta("x")["crc32c"] is None and s.meta("x")["generation"] == 6


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_fill_every_kind(daemon, s, width):
    pattern = 0x1122334455667788 & ((1 << 8 * width) - 1)
    for kind in kinds(daemon):
        s.buffer(kind, bytes=3 * SLOT, kind=kind)
        s.fill(kind, pattern, width)
        assert s.data(kind) == pattern.to_bytes(width, "little") * (3 * SLOT // width), kind
        s.fill(kind, 0, width, offset=2 * width, bytes=width, in_place=True)
        assert (s.data(kind)[:4 * width] == pattern.to_bytes(width, "little") * 2 + bytes(width)
                + pattern.to_bytes(width, "little"))


def test_refusals(s):
    s.put("x", bytes(100))
    s.put("y", bytes(100))
    copy, fill = "buffers/y/copy", "buffers/y/fill"
    refuse(s, [
        ("POST", copy, {}, 400, "invalid_argument", "'from'"),
        ("POST", copy, {"from": 5}, 400, "wrong_type", "a string"),
        ("POST", copy, {"from": "a/b/c"}, 400, "invalid_name", "from"),
        ("POST", copy, {"from": "/x"}, 400, "invalid_name", "from"),
        ("POST", copy, {"from": ""}, 400, "invalid_name", "from"),
        ("POST", copy, {"from": "none"}, 404, "buffer_not_found", "none"),
        ("POST", copy, {"from": "x", "from_offset": 101}, 400, "invalid_argument", "101"),
        ("POST", copy, {"from": "x", "from_offset": 1, "bytes": 100}, 400, "invalid_argument", "100"),
        ("POST", copy, {"from": "x", "offset": 1, "bytes": 100}, 400, "invalid_argument", "100"),
        ("POST", copy, {"from": "x", "offset": 101, "bytes": 0}, 400, "invalid_argument", "101"),
        ("POST", copy, {"from": "x", "offset": 2**63 - 1, "bytes": 2**63 - 1}, 400, "invalid_argument", ""),
        ("POST", copy, {"from": "x", "offset": -1}, 400, "invalid_argument", "negative"),
        ("POST", copy, {"from": "x", "in_place": 1}, 400, "wrong_type", "true or false"),
        ("POST", copy, {"from": "x", "pattern": 1}, 400, "unknown_field", "from_offset"),
        ("POST", copy, {"from": "x", "from_if_match": "1.1.a"}, 400, "invalid_argument", "quotes"),
        ("POST", copy, {"from": "x", "from_if_match": ""}, 400, "invalid_argument", "quotes"),
        ("POST", copy, {"from": "x", "from_if_match": "*"}, 400, "invalid_argument", "one entity tag"),
        ("POST", copy, {"from": "x", "from_if_match": 'W/"1"'}, 400, "invalid_argument", "quotes"),
        ("POST", copy, {"from": "x", "from_if_match": '""'}, 400, "invalid_argument", "quotes"),
        ("POST", copy, {"from": "x", "from_if_match": '"a", "b"'}, 400, "invalid_argument", "one entity tag"),
        ("POST", copy, {"from": "x", "from_if_match": f'"{"a" * 126}"'}, 400, "invalid_argument", "quotes"),
        ("POST", copy, {"from": "x", "from_if_match": f'"{"a" * 125}"'}, 412, "precondition_failed", "aaa"),
        ("POST", copy, {"from": "x", "from_if_match": 1}, 400, "wrong_type", "a string"),
        ("POST", "buffers/new/copy", {"from": "x", "offset": 1}, 404, "buffer_not_found", "new"),
        ("POST", fill, {}, 400, "invalid_argument", "'pattern'"),
        ("POST", fill, {"pattern": 256}, 400, "invalid_argument", "0x100"),
        ("POST", fill, {"pattern": "0x10000", "width": 2}, 400, "invalid_argument", "2 bytes"),
        ("POST", fill, {"pattern": "ff"}, 400, "invalid_argument", "hexadecimal"),
        ("POST", fill, {"pattern": -1}, 400, "invalid_argument", "negative"),
        ("POST", fill, {"pattern": 2**64 - 1}, 400, "invalid_argument", "2^63 - 1"),
        ("POST", fill, {"pattern": 1, "width": 3}, 400, "invalid_argument", "1, 2, 4 or 8"),
        ("POST", fill, {"pattern": 1, "width": 0}, 400, "invalid_argument", "1, 2, 4 or 8"),
        ("POST", fill, {"pattern": 1, "width": 4, "bytes": 6}, 400, "invalid_argument", "6"),
        ("POST", fill, {"pattern": 1, "width": 4, "offset": 2}, 400, "invalid_argument", "2"),
        ("POST", fill, {"pattern": 1, "width": 8}, 400, "invalid_argument", "100"),
        ("POST", fill, {"pattern": 1, "bytes": 101}, 400, "invalid_argument", "101"),
        ("POST", fill, {"pattern": 1, "from": "x"}, 400, "unknown_field", "pattern"),
        ("POST", "buffers/none/fill", {"pattern": 1}, 404, "buffer_not_found", "none"),
    ])
    assert s.meta("y")["generation"] == 1 and s.data("y") == bytes(100) and "new" not in s.names("buffers")


def test_a_condition_on_the_source(s):
    """The bytes that are copied are those of the tag; a batch and a copy in place know the condition too."""
    s.put("x", b"first")
    s.ask("POST", "buffers", {"name": "y", "bytes": 5}).expect(201)
    old = s.ask("GET", "buffers/x/data").headers["ETag"]
    body = {"from": "x", "from_if_match": old}
    s.ask("POST", "buffers/y/copy", body).expect(200)
    s.ask("POST", "buffers/z/copy", body).expect(201)
    s.put("x", b"later")
    new = s.ask("GET", "buffers/x/data").headers["ETag"]
    for more in ({}, {"in_place": True}, {"from_if_match": s.ask("GET", "buffers/x").headers["ETag"]}):
        p = s.ask("POST", "buffers/y/copy", {**body, **more}).problem(412, "precondition_failed")
        assert new in p["detail"] and {**body, **more}["from_if_match"] in p["detail"]
    s.ask("POST", "buffers/new/copy", body).problem(412, "precondition_failed")
    r = s.ask("POST", "batch", {"operations": [{"op": "copy", "buffer": "y", **body}]}).json()
    assert (r["results"][0]["status"], r["results"][0]["problem"]["code"]) == (412, "precondition_failed")
    assert s.data("y") == s.data("z") == b"first" and "new" not in s.names("buffers")
    s.ask("POST", "buffers/y/copy", {**body, "from_if_match": new}).expect(200)
    assert s.data("y") == b"later"
    s.ask("POST", "buffers/y/copy", {"from": "none", "from_if_match": new}).problem(404, "buffer_not_found")


def test_conditions(s):
    s.put("x", b"12345")
    tag = s.ask("GET", "buffers/x/data").headers["ETag"]
    s.post("buffers/x/fill", {"pattern": 1}, 200, {"If-Match": tag})
    assert s.ask("POST", "buffers/x/fill", {"pattern": 2}, {"If-Match": tag}).problem(412, "precondition_failed")
    s.put("y", b"1")
    s.ask("POST", "buffers/x/copy", {"from": "y"}, {"If-None-Match": "*"}).problem(412, "precondition_failed")
    s.post("buffers/z/copy", {"from": "y"}, 201, {"If-None-Match": "*"})
    assert s.data("x") == b"\1" * 5


def test_old_readers_finish_undisturbed(s):
    body = payload(40 * SLOT)
    s.put("x", body)
    s.put("y", bytes(40 * SLOT))
    raw = s.daemon.raw(receive_bytes=4096)
    raw.request("GET", s.base + "/buffers/x/data")
    _, headers = raw.head()
    s.ask("POST", "buffers/x/fill", {"pattern": 1, "in_place": True}).problem(409, "buffer_busy")
    s.copy("x", "y")
    s.fill("x", 7)
    assert raw.exactly(int(headers["Content-Length"])) == body
    raw.close()
    assert s.data("x") == b"\7" * (40 * SLOT)


def test_quota_counts_copies(daemon):
    daemon.ask("POST", "/v1/sessions", {"name": "small-copies", "quota": {"bytes": 1000, "buffers": 2}}).expect(201)
    s = Session(daemon, "small-copies")
    s.put("x", bytes(600))
    p = s.ask("POST", "buffers/y/copy", {"from": "x"}).problem(507, "quota_exceeded")
    assert (p["limit_bytes"], p["used_bytes"], p["requested_bytes"]) == (1000, 600, 600)
    # needs memory for both contents at a time
    s.ask("POST", "buffers/x/fill", {"pattern": 1}).problem(507, "quota_exceeded")
    s.fill("x", 1, in_place=True)
    assert s.data("x") == b"\1" * 600 and s.get()["used_bytes"] == 600
    daemon.ask("DELETE", "/v1/sessions/small-copies").expect(204)


def test_a_source_that_is_lost(s):
    s.post("pools", {"name": "p"}, 201)
    s.put("x", b"1", "?pool=p")
    s.put("y", b"2")
    s.delete("pools/p?force=true")
    s.ask("POST", "buffers/y/copy", {"from": "x"}).problem(410, "content_lost")
    s.ask("POST", "buffers/z/copy", {"from": "x"}).problem(410, "content_lost")
    assert s.data("y") == b"2" and "z" not in s.names("buffers")


def test_what_is_lost_can_be_written_as_a_whole(s):
    s.post("pools", {"name": "p"}, 201)
    s.put("x", payload(100), "?pool=p")
    s.put("y", payload(100, 1))
    s.delete("pools/p?force=true")
    for path, body in (("copy", {"from": "y", "bytes": 50}), ("fill", {"pattern": 1, "offset": 1})):
        s.ask("POST", "buffers/x/" + path, body).problem(410, "content_lost")
    assert s.copy("x", "y")["state"] == "ready" and s.data("x") == payload(100, 1)


def test_counted(daemon, s):
    def count():
        t = s.daemon.stats()["transfers"]
        return [t["copy"]["count"], t["copy"]["bytes"], t["fill"]["count"], t["fill"]["bytes"]]

    s.put("x", bytes(1000))
    before = count()
    s.copy("y", "x", 201)
    s.copy("y", "x", bytes=10)
    s.fill("y", 1)
    assert [b - a for a, b in zip(before, count())] == [2, 1010, 1, 1000]


def test_a_batch_of_small_copies_on_one_stream(s):
    """All copies run, in order: the last one wins."""
    s.post("streams", {"name": "a"}, 201)
    for i in range(16):
        s.put(f"src{i}", bytes([i]) * 64)
    s.buffer("x", bytes=64 * 16)
    for i in range(200):
        s.post("buffers/x/copy", {"from": f"src{i % 16}", "offset": 64 * (i % 16), "stream": "a", "in_place": True})
    assert s.data("x") == b"".join(bytes([i]) * 64 for i in range(16))
    assert s.meta("x")["generation"] == 201
    until("nothing runs", lambda: s.daemon.stats()["running"]["writes"] == 0)


@pytest.fixture
def tenants(start, tmp_path):

    secrets = {n: token(tmp_path, "add", n, "--scope", "write", "--session", n) for n in ("one", "two")}
    secrets["all"] = token(tmp_path, "add", "all", "--scope", "write")
    secrets["admin"] = token(tmp_path, "add", "admin", "--scope", "admin")
    d = start(state=str(tmp_path))
    for n in ("one", "two"):
        d.ask("POST", "/v1/sessions", {"name": n}, token=secrets["all"]).expect(201)
        d.ask("PUT", f"/v1/sessions/{n}/buffers/x/data", n.encode(), token=secrets["all"]).expect(201)
    return d, secrets


def test_a_copy_takes_rights_to_both_sessions(tenants):
    d, secrets = tenants
    one = Session(d, "one", secrets["one"])
    one.copy("y", "x", 201)
    one.copy("y", "one/x")
    one.ask("POST", "buffers/z/copy", {"from": "two/x"}).problem(403, "forbidden")
    one.ask("POST", "buffers/z/copy", {"from": "two/none"}).problem(403, "forbidden")
    one.ask("POST", "/v1/sessions/two/buffers/z/copy", {"from": "one/x"}).problem(403, "forbidden")
    Session(d, "one", secrets["all"]).copy("z", "two/x", 201)
    assert one.data("z") == b"two"


def test_attributes_take_an_administrator(tenants):
    d, secrets = tenants
    for who in ("one", "all"):
        Session(d, "one", secrets[who]).ask("GET", "buffers/x?attributes=true").problem(403, "forbidden")
    a = Session(d, "one", secrets["admin"]).attributes("x")
    assert a["memory_type"] in ("device", "unregistered", "host", "managed")
    assert "attributes" not in Session(d, "one", secrets["one"]).get("buffers/x?attributes=false")
