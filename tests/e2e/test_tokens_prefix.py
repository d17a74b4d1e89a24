"""A token with a prefix neither sees nor touches buffers of other names."""
import json
import os
import re
import struct

import pytest

from feed import Feed
from harness import DATA, token
from sharing import Local

S = "/v1/sessions/default"
JSON = {"Accept": "application/json"}
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture
def guarded(start, tmp_path):
    """A daemon, and secrets of an administrator, of a camera with all scopes but admin, and of another camera."""
    boss = token(tmp_path, "add", "boss", "--scope", "admin")
    cam = token(tmp_path, "add", "cam", "--scope", "write,map-write", "--prefix", "cam1-")
    other = token(tmp_path, "add", "other", "--scope", "write,map-write", "--prefix", "cam2-")
    d = start(state=str(tmp_path))
    for name in ("cam1-x", "cam2-x", "cam1"):
        d.ask("PUT", DATA.format("default", name) + "?kind=pageable", b"abcd", token=boss).expect(201)
    return d, boss, cam, other


def packed(tensors):
    """A safetensors file of tensors of one byte each."""
    head = json.dumps({t: {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i,
                       t in enumerate(tensors)}).encode()
    return struct.pack("<Q", len(head)) + head + bytes(len(tensors))


def header_of(file):
    (n,) = struct.unpack("<Q", file[:8])
    return json.loads(file[8:8 + n])


def names(reply):
    return sorted(i.get("name", i.get("buffer")) for i in reply.expect(200).json()["items"])


def routes():
    with open(os.path.join(ROOT, "src", "api", "routes.def")) as f:
        return re.findall(r'^GB_ROUTE\((\w+), "([^"]+)", \w+, \w+, (\w+), (\w+), (\w+),', f.read(), re.M)


def test_every_route_of_a_buffer_asks_for_the_prefix(guarded):
    d, _, cam, _ = guarded
    looked = 0
    for method, path, access, target, reach in routes():
        if target != "BUFFER" or access == "ADMIN":
            continue
        looked += 1
        assert reach == "NAMED"
        for name in ("cam2-x", "cam1", "cam"):
            body = None if method == "GET" else b"" if path.endswith("/data") else {}
            reply = d.ask(method, path.replace("{s}", "default").replace("{b}", name), body, token=cam)
            assert "begin with" in reply.problem(403, "forbidden")["detail"], (method, path)
    assert looked > 15


def test_every_route_that_cannot_be_limited_is_refused(guarded):
    d, _, cam, _ = guarded
    for method, path, access, target, reach in routes():
        if reach == "NEVER" and access not in ("ADMIN", "FLEET", "OPEN"):
            where = re.sub(r"\{\w+\}", "default", path)
            reply = d.ask(method, where, None if method == "GET" else {}, token=cam)
            assert "cannot be limited" in reply.problem(403, "forbidden")["detail"], (method, path)
        assert reach in ("NEVER", "FREE", "NAMED", "ASKED") and (reach != "FREE" or target != "BUFFER")


def test_what_is_free(guarded):
    d, _, cam, _ = guarded
    for method, path in (("GET", "/v1"), ("GET", "/v1/devices"), ("GET", "/v1/devices/0"), ("GET", S),
                         ("POST", S + "/heartbeat"), ("GET", S + "/pools"), ("GET", S + "/pools?limit=1"),
                         ("GET", S + "/streams"), ("GET", S + "/streams/default")):
        d.ask(method, path, token=cam).expect(200)
    for path in (S + "/sync", S + "/streams/default/sync"):
        assert d.ask("POST", path, token=cam).status in (200, 204)


def test_its_own_buffers(guarded):
    d, _, cam, _ = guarded
    d.ask("PUT", DATA.format("default", "cam1-y"), b"1234", token=cam).expect(201)
    assert d.ask("GET", DATA.format("default", "cam1-x"), token=cam).expect(200).body == b"abcd"
    d.ask("POST", S + "/buffers", {"name": "cam1-z", "bytes": 4}, token=cam).expect(201)
    d.ask("POST", S + "/buffers", {"name": "z", "bytes": 4}, token=cam).problem(403, "forbidden")
    d.ask("POST", S + "/buffers/cam1-z/copy", {"from": "cam1-x"}, token=cam).expect(200)
    for source in ("cam2-x", "default/cam2-x"):
        d.ask("POST", S + "/buffers/cam1-z/copy", {"from": source}, token=cam).problem(403, "forbidden")
    d.ask("DELETE", S + "/buffers/cam1-z", token=cam).expect(204)


def test_lists_show_only_its_own(guarded):
    d, boss, cam, other = guarded
    assert names(d.ask("GET", S + "/buffers", token=cam)) == ["cam1-x"]
    assert names(d.ask("GET", S + "/buffers", token=boss)) == ["cam1", "cam1-x", "cam2-x"]
    for i in range(5):
        d.ask("PUT", DATA.format("default", f"cam2-{i}"), b"1", token=other).expect(201)
    d.ask("PUT", DATA.format("default", "cam1-z"), b"1", token=cam).expect(201)
    seen, cursor = [], ""
    while cursor is not None:  # a page is not empty while something follows
        page = d.ask("GET", S + "/buffers?limit=1" + (f"&cursor={cursor}" if cursor else ""),
                     token=cam).expect(200).json()
        cursor = page["next_cursor"]
        assert page["items"] or cursor is None
        seen += [i["name"] for i in page["items"]]
    assert seen == ["cam1-x", "cam1-z"]


def test_uploads(guarded):
    d, boss, cam, other = guarded
    d.ask("POST", S + "/uploads", {"buffer": "cam2-u", "bytes": 4}, token=cam).problem(403, "forbidden")
    mine = d.ask("POST", S + "/uploads", {"buffer": "cam1-u", "bytes": 4}, token=cam).expect(201).json()["id"]
    theirs = d.ask("POST", S + "/uploads", {"buffer": "cam2-u", "bytes": 4}, token=other).expect(201).json()["id"]
    assert names(d.ask("GET", S + "/uploads", token=cam)) == ["cam1-u"]
    at = S + "/uploads/" + theirs
    for method, path, body, headers in (
            ("GET", at, None, {}), ("HEAD", at, None, {}), ("DELETE", at, None, {}),
            ("PUT", at + "/parts?offset=0", b"1234", {}), ("POST", at + "/complete", {}, {}),
            ("PATCH", at, b"12", {"Upload-Offset": "0", "Upload-Complete": "?0",
                                  "Content-Type": "application/partial-upload"})):
        assert d.ask(method, path, body, headers, cam).status == 404, (method, path)
    assert d.ask("GET", at, token=other).expect(200).json()["received_bytes"] == 0
    d.ask("PUT", S + f"/uploads/{mine}/parts?offset=0", b"1234", token=cam).expect(200)
    d.ask("POST", S + f"/uploads/{mine}/complete", {}, token=cam).expect(201)


def test_batches(guarded):
    d, boss, cam, _ = guarded
    for bad in ({"op": "delete", "buffer": "cam2-x"}, {"op": "create", "buffer": "z", "bytes": 4},
                {"op": "copy", "buffer": "cam1-b", "from": "cam2-x"}, {"op": "fill", "buffer": "cam2-x", "pattern": 0},
                {"op": "sync", "buffer": "cam2-x", "to": "host"}, {"op": "release", "buffer": "cam2-x",
                                                                   "side": "host"}):
        reply = d.ask("POST", S + "/batch", {"operations": [{"op": "copy", "buffer": "cam1-b", "from": "cam1-x"}, bad]},
                      token=cam)
        assert "operations[1]" in reply.problem(403, "forbidden")["detail"]
    d.ask("POST", S + "/batch", {"operations": [{"op": "copy", "buffer": "cam1-b", "from": "cam1-x"}]},
          token=cam).expect(200)
    assert names(d.ask("GET", S + "/buffers", token=boss)) == ["cam1", "cam1-b", "cam1-x", "cam2-x"]


def test_tensors(guarded):
    d, boss, cam, _ = guarded
    file = d.ask("GET", S + "/tensors", token=cam).expect(200).body
    assert list(header_of(file)) == ["cam1-x"]
    assert list(header_of(d.ask("GET", S + "/tensors?prefix=cam", token=cam).expect(200).body)) == ["cam1-x"]
    d.ask("GET", S + "/tensors?names=cam1-x,cam2-x", token=cam).problem(403, "forbidden")
    d.ask("GET", S + "/tensors?names=cam1-x", token=cam).expect(200)
    d.ask("PUT", S + "/tensors", packed(["cam1-a", "b"]), {"Content-Type": "application/x-safetensors"},
          cam).problem(403, "forbidden")
    d.ask("PUT", S + "/tensors?prefix=cam1-", packed(["a", "b"]), {"Content-Type": "application/x-safetensors"},
          cam).expect(201)
    assert names(d.ask("GET", S + "/buffers", token=boss)) == ["cam1", "cam1-a", "cam1-b", "cam1-x", "cam2-x"]


def test_the_feed(guarded):
    d, boss, cam, other = guarded
    with Feed(d, "?after=0", token=cam) as feed:
        for name, secret in (("cam2-f", other), ("cam1-f", cam)):
            d.ask("PUT", DATA.format("default", name), b"1", token=secret).expect(201)
        events = []
        while not events or events[-1].get("buffer") != "cam1-f":
            events.append(feed.next())
        assert {e.get("buffer") for e in events} == {None, "cam1-x", "cam1-f"}
    page = d.ask("GET", "/v1/feed?after=0", None, JSON, cam).expect(200).json()["items"]
    assert {e.get("buffer") for e in page} == {None, "cam1-x", "cam1-f"}
    assert ({e.get("buffer") for e in d.ask("GET", "/v1/feed?after=0", None, JSON, boss).json()["items"]}
            > {"cam2-x", "cam2-f"})


def test_leases(guarded):
    d, boss, cam, other = guarded
    with Local(d.unix, cam) as mine, Local(d.unix, other) as theirs:
        assert mine.map("cam2-x").status == 403
        a, b = mine.map("cam1-x"), theirs.map("cam2-x")
        assert a.status == b.status == 200
        for fd in a.fds + b.fds:
            os.close(fd)
        assert names(d.ask("GET", "/v1/leases", token=cam)) == ["cam1-x"]
        assert names(d.ask("GET", "/v1/leases", token=boss)) == ["cam1-x", "cam2-x"]
        for method in ("GET", "DELETE"):
            d.ask(method, "/v1/leases/" + b.json()["lease"], token=cam).problem(404, "lease_not_found")
        d.ask("GET", "/v1/leases/" + b.json()["lease"], token=boss).expect(200)
        assert mine.end(a.json()["lease"]).status == 204


def test_operations(guarded):
    d, boss, cam, other = guarded
    d.ask("PUT", DATA.format("default", "cam2-o"), b"1", token=other).expect(201)

    def begun(name, secret):
        headers = {"Prefer": "respond-async", "Content-Type": "application/json"}
        return d.ask("POST", f"{S}/buffers/{name}/verify", b"{}", headers, secret)

    mine, theirs = begun("cam1-x", cam), begun("cam2-o", other)
    ids = [r.json()["id"] for r in (mine, theirs) if r.status == 202]
    listed = [o["id"] for o in d.ask("GET", "/v1/operations", token=cam).expect(200).json()["items"]]
    assert listed == ids[:1] or mine.status != 202
    if theirs.status == 202:
        for method in ("GET", "DELETE"):
            d.ask(method, "/v1/operations/" + theirs.json()["id"], token=cam).problem(404, "operation_not_found")
        d.ask("GET", "/v1/operations/" + theirs.json()["id"], token=other).expect(200)


def test_session_and_prefix(start, tmp_path):
    boss = token(tmp_path, "add", "boss", "--scope", "write")
    both = token(tmp_path, "add", "both", "--scope", "write", "--session", "mine", "--prefix", "a-")
    d = start(state=str(tmp_path))
    d.ask("POST", "/v1/sessions", {"name": "mine"}, token=boss).expect(201)
    d.ask("PUT", DATA.format("mine", "a-x"), b"1", token=both).expect(201)
    for where in (DATA.format("mine", "b"), DATA.format("default", "a-x")):
        d.ask("PUT", where, b"1", token=both).problem(403, "forbidden")
