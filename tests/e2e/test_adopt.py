"""Adopted memory: both sides share the same bytes; the effects of the owner's end."""
import array
import base64
import fcntl
import os
import re
import signal
import socket

import pytest

from conform import Session, interface
from harness import DATA, PATIENCE_S, SLOT, token, until
from owning import SEALS, Owned, Owner, Process
from sharing import Local, digest
from values import crc32c, payload

SIZE = 2 * SLOT + 13
A, B = payload(SIZE, 1), payload(SIZE, 2)


@pytest.fixture
def owner(daemon):
    with Owner(daemon.unix) as c:
        yield c


@pytest.fixture
def memory():
    with Owned(SIZE, A) as m:
        yield m


def told(daemon, answer, status, code=None):
    """Compared with the interface."""
    interface(daemon).check("POST", "/v1/sessions/s/buffers/b/adopt", answer)
    assert answer.status == status and (code is None or answer.json()["code"] == code), answer.body
    return answer


def lost(s, name):
    until("it is lost", lambda: s.meta(name)["state"] == "lost")
    assert "another process" in s.ask("GET", f"buffers/{name}/data").problem(410, "content_lost")["detail"]


def adopted(s):
    return s.get("stats")["sharing"]["adopted"]


# --- the bytes --------------------------------------------------------------------------------------------------------


def test_another_process_owns_them(daemon, s, session):
    used = s.get("")["used_bytes"]
    with Process(daemon, session, "x", SIZE) as p:
        info = p.info
        assert {k: info[k] for k in ("name", "session", "bytes", "dtype", "shape", "state", "adopted", "crc32c", "pool",
                                     "mirrored", "sealed")} == {
                                         "name": "x", "session": session, "bytes": SIZE, "dtype": "uint8",
                                         "shape": [SIZE], "state": "ready", "adopted": True, "crc32c": None,
                                         "pool": None, "mirrored": False, "sealed": False}
        assert info["kind"] in ("pageable", "pinned") and s.meta("x") == info and s.data("x") == bytes(SIZE)
        put = s.put("x", A, status=200)
        assert put["generation"] > info["generation"] and put["crc32c"] is None and p.say("digest") == digest(A)
        assert p.say("write", SLOT, B[SLOT:SLOT + 999].hex()) == "written"
        assert s.data("x") == A[:SLOT] + B[SLOT:SLOT + 999] + A[SLOT + 999:]
        after = s.get("")
        assert (after["used_bytes"], after["used_pinned_bytes"], adopted(s)) == (used, 0, 1)
        p.kill()
        lost(s, "x")
    until("nothing is mapped any more", lambda: adopted(s) == 0)
    assert s.meta("x")["adopted"]
    again = s.put("x", B, status=200)  # the daemon's own memory
    assert (again["adopted"], again["crc32c"],
            again["state"]) == (False, f"{crc32c(B):08x}" if isinstance(crc32c(B), int) else crc32c(B), "ready")


def test_what_is_done_with_it_is_done_in_the_owners_memory(s, session, owner, memory):
    """As with any other buffer: parts, slices, copies, fills, forms, ranges, digests, filters."""
    owner.own("x", memory, session, dtype="uint8", shape=[SIZE])
    s.put("y", B)
    s.ask("PATCH", "buffers/x/data?offset=100", b"hello").expect(200)
    wanted = A[:100] + b"hello" + A[105:]
    assert memory.bytes() == wanted == s.data("x")
    s.ask("PUT", "buffers/x/data?slice=0:10:2", b"12345").expect(200)
    wanted = bytes(b"12345"[i // 2] if i % 2 == 0 and i < 10 else wanted[i] for i in range(20)) + wanted[20:]
    assert memory.bytes() == wanted and s.data("x", "?slice=1:21:5") == wanted[1:21:5]
    assert s.copy("x", "y", from_offset=7, offset=8, bytes=1000)["crc32c"] is None
    wanted = wanted[:8] + B[7:1007] + wanted[1008:]
    assert memory.bytes() == wanted
    s.fill("x", 0x0102030405060708, 8, offset=16, bytes=64)
    wanted = wanted[:16] + bytes(range(8, 0, -1)) * 8 + wanted[80:]
    assert memory.bytes() == wanted
    assert not s.copy("z", "x", 201)["adopted"] and s.data("z") == wanted
    r = s.ask("GET", "buffers/x/data", headers={"Range": "bytes=5-24"}).expect(206)
    assert r.body == wanted[5:25]
    verified = s.post("buffers/x/verify", {"algorithms": ["sha-256"]})
    assert verified["crc32c"] == crc32c(wanted) and s.meta("x")["crc32c"] is None
    assert s.ask("GET", "buffers/x/data?format=npy").body.endswith(wanted)
    s.put("x", B, "?in_place=false", 200)
    assert memory.bytes() == B
    s.delete("buffers/x")
    until("it is released", lambda: adopted(s) == 0)
    assert memory.bytes() == B


def test_one_side_of_a_mirrored_buffer(daemon, s, session, owner, memory):
    """set_cpu_data of SyncedMemory: the head moves to that side, whose memory is another process's; the device side
    stays ours."""
    generation = s.put("m", B, "?mirrored=true&side=device")["generation"]
    tag = s.ask("GET", "buffers/m").headers["ETag"]
    told(daemon, owner.adopt("m", [], session, ['If-Match: "no"'], bytes=SIZE, side="host"), 412, "precondition_failed")
    info = told(daemon, owner.adopt("m", [memory.fd], session, [f"If-Match: {tag}"], bytes=SIZE, side="host"),
                200).json()
    assert (info["head"], info["adopted"], info["generation"], info["crc32c"]) == ("host", True, generation + 1, None)
    assert info["sides"]["host"] == {"bytes": SIZE, "current": True, "owned": False,
                                     "pinned": info["sides"]["host"]["pinned"]}
    assert info["sides"]["device"] == {"bytes": SIZE, "current": False, "owned": True} and s.data("m") == A
    assert s.get("")["used_bytes"] == SIZE and adopted(s) == 1
    assert s.post("buffers/m/sync", {"to": "device"})["copied"] and s.data("m") == A
    s.fill("m", 7)
    assert s.post("buffers/m/sync", {"to": "host"})["head"] == "synced" and memory.bytes() == b"\7" * SIZE
    s.ask("PUT", "buffers/m/data", A + B).problem(409, "adopted")
    s.ask("POST", "buffers/m/seal", {}).problem(409, "adopted")
    owner.close()
    until("the side is gone", lambda: not s.meta("m")["adopted"])
    assert (s.meta("m")["head"], s.meta("m")["state"], s.data("m")) == ("device", "ready", b"\7" * SIZE)
    until("nothing is mapped any more", lambda: adopted(s) == 0)


@pytest.mark.parametrize("current", [True, False])
def test_growing_past_an_adopted_size(daemon, s, session, owner, memory, current):
    """cpu(size) of the paired class over borrowed memory: the reference is given up, and the new memory is owned."""
    told(daemon, owner.adopt("m", [memory.fd], session, bytes=SIZE, side="host"), 201)
    if not current:
        s.put("m", B, "?side=device")
    assert s.post("buffers/m/reserve", {"bytes": SIZE, "side": "host"})["adopted"]  # it is large enough
    info = s.post("buffers/m/reserve", {"bytes": 2 * SIZE, "side": "host"})
    assert info["adopted"] is False and info["sides"]["host"] == {
        "bytes": 2 * SIZE, "current": current, "owned": True, "pinned": True}
    until("nothing is mapped any more", lambda: adopted(s) == 0)
    assert memory.bytes() == A and s.data("m") == (A if current else B)
    s.fill("m", 7, side="host")
    assert memory.bytes() == A and s.get("")["used_bytes"] == 2 * SIZE + (0 if current else SIZE)
    owner.close()
    s.post("buffers/m/sync", {"to": "device"})
    assert s.meta("m")["state"] == "ready" and s.data("m") == b"\7" * SIZE


def test_nothing_in_place_of_a_side(daemon, s, session, owner, memory):
    """reference_data with a null pointer or 0 bytes: the side has no memory, and is owned again."""
    s.put("m", B, "?mirrored=true&side=device")
    told(daemon, owner.adopt("m", [memory.fd], session, bytes=SIZE, side="host"), 200)
    s.post("buffers/m/sync", {"to": "device"})
    generation = s.meta("m")["generation"]
    told(daemon, owner.adopt("m", [], session, ['If-Match: "no"'], bytes=0, side="host"), 412, "precondition_failed")
    info = told(daemon, owner.adopt("m", [], session, bytes=0, side="host"), 200).json()
    assert (info["head"], info["adopted"], info["generation"]) == ("device", False, generation)
    assert info["sides"]["host"] == {"bytes": 0, "current": False, "owned": True, "pinned": False}
    until("nothing is mapped any more", lambda: adopted(s) == 0)
    assert s.data("m") == A == memory.bytes()
    # The only current side loses its bytes, as by any other adoption.
    info = told(daemon, owner.adopt("m", [], session, way="legacy", shape=[0], side="device"), 200).json()
    assert (info["head"], info["bytes"], info["generation"]) == ("uninitialized", SIZE, generation + 1)
    assert info["sides"]["device"] == {"bytes": 0, "current": False, "owned": True} and s.data("m") == bytes(SIZE)
    until("no memory is left", lambda: s.get("")["used_bytes"] == 0)
    s.put("x", b"1")
    told(daemon, owner.adopt("x", [], session, bytes=0, side="host"), 400, "invalid_argument")
    told(daemon, owner.adopt("n", [], session, bytes=0, side="host"), 404, "buffer_not_found")
    s.ask("POST", "buffers/m/adopt", {"way": "memfd", "bytes": 0, "side": "host"}).problem(403, "local_only")
    assert "side" in told(daemon, owner.adopt("n", [], session, bytes=0), 400, "invalid_argument").json()["detail"]
    s.put("m", B)
    s.post("buffers/m/seal", {})
    told(daemon, owner.adopt("m", [], session, bytes=0, side="host"), 409, "sealed")
    assert s.data("m") == B


def test_a_new_mirrored_buffer_over_one_side(daemon, s, session, owner, memory):
    info = told(daemon, owner.adopt("m", [memory.fd], session, bytes=SIZE, side="host"), 201).json()
    assert (info["mirrored"], info["head"], info["kind"], info["pool"]) == (True, "host", "device", "default")
    s.post("buffers/m/sync", {"to": "device"})
    assert s.post("buffers/m/release", {"side": "host"})["adopted"] is False and s.data("m") == A
    until("nothing is mapped any more", lambda: adopted(s) == 0)
    s.put("x", b"1")
    told(daemon, owner.adopt("x", [], session, bytes=SIZE, side="host"), 409, "buffer_exists")
    told(daemon, owner.adopt("n", [], session, bytes=SIZE, side="device"), 400, "invalid_argument")
    told(daemon, owner.adopt("n", [], session, bytes=SIZE, side="all"), 400, "invalid_argument")
    told(daemon, owner.adopt("n", [memory.fd], session, bytes=SIZE, side="host"), 201)
    owner.close()
    lost(s, "n")
    assert (s.meta("n")["head"], s.meta("n")["sides"]["host"]["bytes"]) == ("uninitialized", 0)


def test_a_tensor_at_an_offset(s, session, owner):
    """It keeps dtype and shape, also if raw bytes are uploaded; the memory around it is unchanged."""
    with Owned(4096 + 24 * 4, offset=4096 + 8) as m:
        m.whole[:] = b"\xee" * len(m.whole)
        info = owner.own("x", m, session, dtype="float32", shape=[2, 3, 4], offset=m.offset)
        assert (info["bytes"], info["shape"], info["dtype"]) == (96, [2, 3, 4], "float32")
        put = s.put("x", A[:96], status=200)
        assert (put["shape"], put["dtype"]) == ([2, 3, 4], "float32") and m.bytes()[:96] == A[:96]
        assert set(m.whole[:m.offset]) == {0xEE} == set(m.whole[m.offset + 96:])
        s.ask("PUT", "buffers/x/data", A[:95]).problem(422, "shape_mismatch")
        other = s.patch("buffers/x", {"dtype": "uint8", "shape": [96]})
        assert other["adopted"] and s.data("x") == A[:96]


def test_two_processes_and_one_file(daemon, s, session, memory):
    """An upload to one buffer is visible in the other; each buffer is lost with its own connection."""
    with Owner(daemon.unix) as a, Owner(daemon.unix) as b:
        a.own("x", memory, session)
        b.own("y", memory, session)
        s.put("x", B, status=200)
        assert s.data("y") == B == memory.bytes()
        a.close()
        lost(s, "x")
        until("one is released", lambda: adopted(s) == 1)
        assert s.data("y") == B


def test_no_tag_holds(s, session, owner, memory):
    """The owner may write at any time: no 304, no If-Match, no resumed range."""
    owner.own("x", memory, session)
    tag = s.ask("GET", "buffers/x/data").headers["ETag"]
    r = s.ask("GET", "buffers/x/data", headers={"If-None-Match": tag})
    assert r.status == 200 and r.headers["ETag"] != tag
    s.ask("GET", "buffers/x/data", headers={"If-Match": tag}).problem(412, "precondition_failed")
    assert s.ask("GET", "buffers/x/data", headers={"If-Range": tag, "Range": "bytes=1-2"}).status == 200
    for method in "GET", "HEAD":  # nor is there a digest
        assert "Repr-Digest" not in s.ask(method, "buffers/x/data",
                                          headers={"Want-Repr-Digest": "sha-256=1"}).expect(200).headers


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_what_wants_other_memory(daemon, s, session, owner, memory):
    owner.own("x", memory, session)
    s.put("y", B)
    s.put("z", B)
    header = b'{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
    for method, path, body in [
            ("POST", "buffers/x/seal", {}), ("PUT", "tensors", len(header).to_bytes(8, "little") + header + b"abcd"),
            ("POST", "uploads", {"buffer": "x", "bytes": SIZE}),
            ("POST", "buffers/x/data", None)]:
        headers = {"Upload-Complete": "?0", "Upload-Length": str(SIZE)} if body is None else None
        assert "another process" in s.ask(method, path, body if body is not None else b"",
                                          headers).problem(409, "adopted")["detail"], path
    with Local(daemon.unix) as c:
        answer = c.map("x", session)
        assert answer.status == 409 and answer.json()["code"] == "adopted"
        answer = c.ask("POST", f"/v1/sessions/{session}/buffers/x/export", {})
        assert answer.status == 409 and answer.json()["code"] == "adopted"
    batch = s.post("batch", {"operations": [{"op": "copy", "buffer": "x", "from": "y"},
                                            {"op": "fill", "buffer": "z", "pattern": 1}], "atomic": True},
                   status=409)
    assert batch["code"] == "adopted" and memory.bytes() == A and s.data("z") == B
    s.ask("POST", "buffers/x/sync", {"to": "host"}).problem(400, "invalid_argument")
    assert s.data("x") == A and s.meta("x")["generation"] == 1


def test_what_is_asked(daemon, s, session, owner, memory):
    target = f"/v1/sessions/{session}/buffers/x/adopt"
    for fields, code, word in [
            ({}, "invalid_argument", "way"), ({"way": "memfd"}, "invalid_argument", "bytes"),
            ({"way": "pool", "bytes": 8}, "invalid_argument", "cudaMemPoolExportPointer"),
            ({"way": "mmap", "bytes": 8}, "invalid_argument", "memfd"), ({"way": 1, "bytes": 8}, "wrong_type", "way"),
            ({"way": "memfd", "bytes": 0}, "invalid_argument", "one byte"),
            ({"way": "memfd", "bytes": 8, "offset": 4}, "invalid_argument", "multiple"),
            ({"way": "memfd", "bytes": 8, "handle": "AA"}, "invalid_argument", "legacy"),
            ({"way": "legacy", "bytes": 8}, "invalid_argument", "handle"),
            ({"way": "legacy", "bytes": 8, "handle": "AA"}, "invalid_argument", "base64"),
            ({"way": "memfd", "bytes": 8, "mode": "read"}, "unknown_field", "mode"),
            ({"way": "memfd", "bytes": 8, "map_bytes": 8}, "invalid_argument", "vmm"),
            ({"way": "vmm", "bytes": 8, "map_bytes": 4}, "invalid_argument", "map_bytes"),
            ({"way": "memfd", "bytes": -1}, "invalid_argument", "bytes"),
            ({"way": "memfd", "shape": [-2]}, "invalid_argument", "shape")]:
        detail = told(daemon, owner.ask("POST", target, fields), 400, code).json()["detail"]
        assert word in detail, (fields, detail)
    told(daemon, owner.ask("POST", target, {"way": "memfd", "dtype": "float32", "shape": [3], "bytes": 8}), 422,
         "shape_mismatch")
    told(daemon, owner.ask("POST", target, {"way": "memfd", "bytes": 8, "device": 99}), 404, "device_not_found")
    told(daemon, owner.adopt("x", [memory.fd], "none", bytes=8), 404, "session_not_found")
    s.ask("POST", "buffers/x/adopt", {"way": "memfd", "bytes": 8}).problem(403, "local_only")
    s.put("x", B)
    told(daemon, owner.adopt("x", [memory.fd], session, bytes=8), 409, "buffer_exists")
    assert s.data("x") == B and adopted(s) == 0


def test_a_pool_of_another_process(daemon, s, session, owner, memory, backend):
    """The host backend has none, and a memfd is no pool of a GPU."""
    handle = base64.b64encode(bytes(64)).decode()
    answer = owner.adopt("x", [memory.fd], session, way="pool", handle=handle, bytes=8)
    told(daemon, answer, *((501, "unsupported") if backend.startswith("host") else (422, "cannot_adopt")))
    assert s.ask("GET", "buffers/x").status == 404 and adopted(s) == 0
    assert owner.own("x", memory, session)["state"] == "ready", "the next one is taken"


def test_what_is_handed_over(daemon, s, session, owner, memory, tmp_path):
    """Each is refused with a correction, no descriptor stays open, and the next request succeeds."""
    ends, pipe = socket.socketpair(), os.pipe()
    plain = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    os.ftruncate(plain, SIZE)
    reading = os.open(f"/proc/self/fd/{memory.fd}", os.O_RDONLY)
    with Owned(SIZE, seals=0) as unsealed, Owned(SIZE, seals=0, flags=0) as never, Owned(SIZE, seals=SEALS) as good:
        still = Owned(SIZE)
        still.view.release()
        still.whole.close()
        fcntl.fcntl(still.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
        for fds, word in [
                ([], "closed"), ([memory.fd] * 2, "2 descriptors"), ([memory.fd] * 253, "253 descriptors"),
                ([unsealed.fd], "F_SEAL_SHRINK"), ([never.fd], "F_SEAL_SHRINK"), ([still.fd], "F_SEAL_WRITE"),
                ([ends[0].fileno()], "no memfd"), ([pipe[0]], "no memfd"), ([pipe[1]], "no memfd"),
                ([plain], "no memfd"), ([reading], "reading and writing"),
                ([os.open(tmp_path, os.O_PATH)], "no memfd")]:
            detail = told(daemon, owner.adopt("x", fds, session, bytes=SIZE), 422, "cannot_adopt").json()["detail"]
            assert word in detail, (word, detail)
        detail = told(daemon, owner.adopt("x", [memory.fd], session, bytes=SIZE + 1), 422,
                      "cannot_adopt").json()["detail"]
        assert str(SIZE) in detail
        s.ask("GET", "buffers/x").problem(404, "buffer_not_found")
        assert adopted(s) == 0 and owner.own("x", good, session)["state"] == "ready"
    for fd in (*pipe, plain, reading, still.fd):
        os.close(fd)
    for end in ends:
        end.close()


def test_a_byte_alone_and_nothing_at_all(daemon, s, session, owner, memory):
    box = owner.ask_adopt("x", session, way="memfd", bytes=SIZE)
    with box:
        box.send(b"x")
        told(daemon, owner.noted(f"/v1/sessions/{session}/buffers/x/adopt"), 422, "cannot_adopt")
    box = owner.ask_adopt("x", session, ["Prefer: wait=0"], way="memfd", bytes=SIZE)
    with box:
        assert "descriptor" in told(daemon, owner.noted(f"/v1/sessions/{session}/buffers/x/adopt"), 408,
                                    "request_timeout").json()["detail"]
    assert owner.own("x", memory, session)["state"] == "ready"


def test_ways_that_a_device_lacks(daemon, s, session, owner, memory, backend):
    """The host backend refuses GPU memory by name; a GPU refuses a descriptor that is not its own."""
    status, code = (501, "unsupported") if backend.startswith("host") else (422, "cannot_adopt")
    told(daemon, owner.adopt("x", [memory.fd], session, way="vmm", bytes=SIZE), status, code)
    p = told(daemon, owner.adopt("x", [], session, way="legacy", bytes=SIZE, handle="A" * 86 + "=="), status, code)
    if status == 501:
        assert p.json()["cuda"]["call"] == "cudaIpcOpenMemHandle"
    assert owner.own("x", memory, session)["state"] == "ready"


# --- limits, restarts, faults -----------------------------------------------------------------------------------------


def test_limits(start):
    d = start("--max-adopted", "3")
    s = Session(d)
    with Owned(64) as m, Owner(d.unix) as a, Owner(d.unix) as b:
        for _ in range(2):
            for i in range(3):
                (a, b)[i % 2].own(f"x{i}", m)
            assert "--max-adopted" in told(d, a.adopt("x3", [m.fd], bytes=64), 507, "limit_reached").json()["detail"]
            for i in range(3):
                s.delete(f"buffers/x{i}")
        assert d.stats()["sharing"]["adopted"] == 0


def test_the_limit_of_bytes(start):
    """Reading a sparse file allocates it, so its size counts, not its allocated blocks."""
    d = start("--max-adopted-bytes", "1M")
    with Owned(1 << 20) as big, Owned(1) as small, Owner(d.unix) as a:
        for _ in range(2):
            a.own("x", big)
            problem = told(d, a.adopt("y", [small.fd], bytes=1), 507, "limit_reached").json()
            assert "--max-adopted-bytes" in problem["detail"]
            assert [problem[f + "_bytes"] for f in ("limit", "used", "requested")] == [1 << 20, 1 << 20, 1]
            Session(d).delete("buffers/x")
            until("it is released", lambda: d.stats()["sharing"]["adopted"] == 0)
        a.own("y", small)
        told(d, a.adopt("x", [big.fd], bytes=1 << 20), 507, "limit_reached")


def test_the_limit_of_bytes_unless_said(start):
    """The limit is half of the memory, or of the control group's limit; a larger memfd cannot be backed."""
    d = start("--max-pinned-bytes", "unlimited")
    text = d.ask("GET", "/metrics").body.decode()
    limit = int(float(re.search(r"^gpubufd_adopted_limit_bytes (\S+)$", text, re.M).group(1)))
    assert 0 < limit <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    with Owned(limit + 4096) as big, Owner(d.unix) as a:
        problem = told(d, a.adopt("x", [big.fd], bytes=limit + 4096), 507, "limit_reached").json()
        assert problem["limit_bytes"] == limit


def test_the_limit_of_one_connection(daemon, s, session, owner, memory):
    for i in range(1024):
        owner.own(f"x{i}", memory, session)
    told(daemon, owner.adopt("more", [memory.fd], session, bytes=8), 507, "limit_reached")
    with Owner(daemon.unix) as other:
        other.own("more", memory, session)
    assert adopted(s) >= 1024
    owner.close()
    until("all are lost", lambda: adopted(s) == 0)
    assert s.get("stats")["buffers"]["lost"] == 1025


def test_after_a_restart(start, tmp_path, memory):
    """The record says that the bytes are lost; the owner keeps its memory."""
    d = start(state=str(tmp_path))
    with Owner(d.unix) as c:
        c.own("x", memory)
        d.stop()
        d = start(state=str(tmp_path))
        meta = d.meta("x")
        assert meta["state"] == "lost" and memory.bytes() == A and d.stats()["sharing"]["adopted"] == 0
    with Owner(d.unix) as c:
        again = told(d, c.adopt("x", [memory.fd], bytes=SIZE), 200).json()  # replaces the lost one
        assert again["adopted"] and again["generation"] > meta["generation"] and d.data("x").body == A


def test_a_device_that_refuses(start, memory):
    d = start(spec="fault:import@1=cudaErrorInvalidValue:host")
    with Owner(d.unix) as c:
        told(d, c.adopt("x", [memory.fd], bytes=SIZE), 500, "device_error")
        c.own("x", memory)
        assert d.data("x").body == A


def test_an_idle_connection_stays(start, memory):
    """Only while the connection owns a buffer."""
    d = start("--idle-timeout", "1")
    with Owner(d.unix) as c, Owner(d.unix) as idle:
        c.own("x", memory)
        idle.ask("GET", "/livez")
        assert idle.sock.recv(1) == b""  # which takes longer than the timeout
        assert d.data("x").body == A
        d.ask("DELETE", "/v1/sessions/default/buffers/x").expect(204)
        assert c.sock.recv(1) == b"", "it is to be closed"


def test_rights(start, tmp_path, memory):
    """Adoption needs the right to write data and the right to map for writing."""
    secrets = {k: token(tmp_path, "add", k.replace(",", "-and-"), "--scope", k)
               for k in ("write", "map-write", "write,map", "write,map-write", "admin")}
    d = start(state=str(tmp_path))
    for scope, status in (("write", 403), ("map-write", 403), ("write,map", 403), ("write,map-write", 201),
                          ("admin", 201)):
        with Owner(d.unix, secrets[scope]) as c:
            told(d, c.adopt("x-" + scope.replace(",", "-"), [memory.fd], bytes=SIZE), status,
                 "forbidden" if status == 403 else None)


def test_a_key_is_not_heard(daemon, s, session, owner, memory):
    """A stored answer could not receive a descriptor, nor could an operation."""
    headers = ["Idempotency-Key: k", "Prefer: respond-async, wait=20"]
    told(daemon, owner.adopt("x", [memory.fd], session, headers, bytes=SIZE), 201)
    told(daemon, owner.adopt("x", [memory.fd], session, headers, bytes=SIZE), 409, "buffer_exists")


def stopped(process):
    def state(task):
        with open(f"/proc/{process.pid}/task/{task}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[0]
    return all(state(task) == "T" for task in os.listdir(f"/proc/{process.pid}/task"))


def kernel_refuses_rights():
    """SO_PASSRIGHTS, since 6.16."""
    one, other = socket.socketpair()
    with one, other:
        try:
            one.setsockopt(socket.SOL_SOCKET, 83, 0)
        except OSError:
            return False
    return True


def test_descriptors_before_the_accept(start):
    """Unread descriptors would stay in the socket's queue; the connection of a feed reads nothing."""
    if not kernel_refuses_rights():
        pytest.skip("this kernel has no SO_PASSRIGHTS (6.16)")
    d = start()
    d.process.send_signal(signal.SIGSTOP)
    try:
        until("it has stopped", lambda: stopped(d.process))
        with socket.socket(socket.AF_UNIX) as c, Owned(64) as m:
            c.settimeout(PATIENCE_S)
            c.connect(d.unix)
            c.sendall(b"GET /v1/feed HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with pytest.raises(PermissionError):
                c.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [m.fd] * 250))])
            d.process.send_signal(signal.SIGCONT)
            assert c.recv(12) == b"HTTP/1.1 200"
    finally:
        d.process.send_signal(signal.SIGCONT)


def test_descriptors_with_a_plain_request(daemon, s, session):
    """Descriptors that the daemon did not ask for are refused if the kernel supports that; otherwise they have no
    effect."""
    with socket.socket(socket.AF_UNIX) as c, Owned(64) as m:
        c.settimeout(PATIENCE_S)
        c.connect(daemon.unix)
        text = f"GET {DATA.format(session, 'none')} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        try:
            c.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [m.fd] * 3))])
        except PermissionError:
            c.sendall(text)
        assert c.recv(12) == b"HTTP/1.1 404"


def test_a_stop_does_not_wait_for_a_descriptor(start):
    d = start("--stop-timeout", "3600")
    with Owner(d.unix) as a, a.ask_adopt("x", way="memfd", bytes=64):
        d.process.send_signal(signal.SIGTERM)
        answer = a.noted("/v1/sessions/default/buffers/x/adopt")
        assert answer.status == 503 and answer.json()["code"] == "draining"
    d.finished()
