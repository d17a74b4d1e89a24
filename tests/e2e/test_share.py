"""Buffers mapped by other processes: visible bytes, excluded changes, and the end of leases."""
import mmap
import os

import pytest

from conform import interface
from harness import DATA, SLOT, until
from sharing import Local, Memory, Process, digest
from values import crc32c, payload

SIZE = 2 * SLOT + 13
A, B = payload(SIZE, 1), payload(SIZE, 2)
MAPPABLE = "?kind=pageable"  # every backend exports this kind as a file


@pytest.fixture
def x(s):
    """A session with a buffer x that can be mapped on every backend."""
    s.put("x", A, MAPPABLE, 201)
    return s


@pytest.fixture
def local(daemon):
    with Local(daemon.unix) as c:
        yield c


def mapped(daemon, answer, status=200):
    """Compared with the interface."""
    interface(daemon).check("POST", "/v1/sessions/s/buffers/b/map", answer)
    assert answer.status == status, answer.body
    return answer


def leases(daemon, session):
    return [i for i in daemon.get("/v1/leases?limit=1000")["items"] if i["session"] == session]


def no_leases(daemon, session):
    until("the leases have ended", lambda: not leases(daemon, session))


def held(s):
    return s.get("stats")["sharing"]["held_bytes"]


def test_another_process_sees_the_bytes(daemon, x, session):
    meta = x.meta("x")
    assert (meta["sealed"], meta["leases"]) == (False, 0)
    before = x.get("stats")["sharing"]
    with Process(daemon, session, "x") as p:
        info = p.info
        assert p.say("digest") == digest(A)
        assert {k: info[k] for k in ("session", "buffer", "mode", "way", "bytes", "dtype", "shape", "generation",
                                     "kind", "device")} == {
                                         "session": session, "buffer": "x", "mode": "read", "way": "memfd",
                                         "kind": "pageable",
                                         **{k: meta[k] for k in ("bytes", "dtype", "shape", "generation", "device")}}
        assert (info["map_bytes"] >= info["offset"] + SIZE and info["fds"] == 1 and info["handle"] is None
                and info["event"] is None)
        assert [w["way"] for w in info["passed_over"]] == ["vmm", "pool",
                                                           "legacy"] and all(w["reason"] for w in info["passed_over"])
        assert x.ask("GET", "buffers/x/data").headers["ETag"] == info["etag"]
        lease, = x.ask("GET", "/v1/leases").expect(200).json()["items"]
        assert lease == {**{k: info[k] for k in ("lease", "session", "buffer", "mode", "way", "generation", "bytes")},
                         "pid": p.process.pid, "uid": os.getuid(), "since": lease["since"], "expires_at": None,
                         "state": "present"}
        now = x.get("stats")["sharing"]
        assert (x.meta("x")["leases"], now["leases"], now["maps"], now["held_bytes"]) == (1, 1, before["maps"] + 1, 0)
        assert p.say("end") == "204"
        assert p.say("digest") == digest(A)  # its mapping is its own
    assert leases(daemon, session) == [] and x.meta("x")["leases"] == 0
    after = x.get("stats")["sharing"]
    assert after == {"leases": 0, "held_bytes": 0, "adopted": 0, "maps": before["maps"] + 1, "unmaps": before["unmaps"]
                     + 1}


def test_for_reading_only(daemon, x, session, local):
    answer = mapped(daemon, local.map("x", session, mode="read"))
    info = answer.json()
    with pytest.raises(PermissionError):
        mmap.mmap(answer.fds[0], info["map_bytes"], mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    with pytest.raises(OSError):
        os.truncate(answer.fds[0], 0)
    with pytest.raises(OSError):
        os.pwrite(answer.fds[0], b"no", 0)
    with Memory(answer) as m:
        assert m.bytes() == A


def test_the_file_keeps_its_size(daemon, x, session, local):
    """Otherwise a process that may write could kill every other one by SIGBUS."""
    answer = mapped(daemon, local.map("x", session, mode="write"))
    for size in 0, answer.json()["map_bytes"] * 2:
        with pytest.raises(OSError):
            os.truncate(answer.fds[0], size)
    os.close(answer.fds[0])


def test_what_is_written_is_downloaded(daemon, x, session):
    before = x.meta("x")
    with Process(daemon, session, "x", "write") as p:
        granted = x.meta("x")
        assert granted["generation"] == p.info["generation"] > before["generation"] and granted["crc32c"] is None
        assert p.say("write", SLOT, B[SLOT:SLOT + 1000].hex()) == "written"
        wanted = A[:SLOT] + B[SLOT:SLOT + 1000] + A[SLOT + 1000:]
        assert x.data("x") == wanted
        assert x.ask("GET", "buffers/x/data").headers["ETag"].split(".w")[0] == p.info["etag"].split(".w")[0]
        assert p.say("end") == "204"
        after = x.meta("x")
        assert after["generation"] > granted["generation"] and after["crc32c"] is None and after["leases"] == 0
        assert x.data("x") == wanted
    verified = x.post("buffers/x/verify", {"algorithms": ["sha-256"]})
    assert verified["crc32c"] == crc32c(wanted)


def test_killed_while_it_writes(daemon, x, session):
    with Process(daemon, session, "x", "write") as p:
        p.say("write", 0, B[:100].hex())
        p.kill()
        no_leases(daemon, session)
    until("the generation rises", lambda: x.meta("x")["generation"] > p.info["generation"])
    assert x.data("x") == B[:100] + A[100:]
    x.put("x", B, "?in_place=true", 200)


@pytest.mark.parametrize("mode", ["read", "write"])
def test_mapped_bytes_are_not_touched(daemon, x, session, mode):
    """Requests that would write, free or move the bytes are refused with the list of holders."""
    x.put("y", B)
    with Process(daemon, session, "x", mode) as p:
        who = {"lease": p.info["lease"], "pid": p.process.pid, "uid": os.getuid(), "mode": mode}
        for method, path, body in [
                ("PUT", "buffers/x/data?in_place=true", B), ("PATCH", "buffers/x/data?offset=3&in_place=true", b"abc"),
                ("PUT", "buffers/x/data?offset=3&in_place=true", b"abc"),
                ("POST", "buffers/x/fill", {"pattern": 0, "in_place": True}),
                ("POST", "buffers/x/copy", {"from": "y", "in_place": True}), ("DELETE", "buffers/x", None),
                ("DELETE", "", None)]:
            problem = x.ask(method, path, body).problem(409, "mapped")
            holder, = problem["holders"]
            assert {k: holder[k] for k in who} == who and problem["retryable"], path
        p.kill()
        no_leases(daemon, session)
    assert x.data("x") == A
    x.put("x", B, "?in_place=true", 200)
    x.delete("buffers/x")


def test_many_holders(daemon, x, session):
    """At most sixteen holders are named, the oldest first."""
    clients = [Local(daemon.unix) for _ in range(20)]
    try:
        given = [Memory(mapped(daemon, c.map("x", session))) for c in clients]
        holders = x.ask("DELETE", "buffers/x").problem(409, "mapped")["holders"]
        assert [h["lease"] for h in holders] == [m.info["lease"] for m in given[:16]]
        assert x.meta("x")["leases"] == 20
        first = x.ask("GET", "/v1/leases?limit=7").expect(200).json()
        rest = x.ask("GET", "/v1/leases?cursor=" + first["next_cursor"]).expect(200).json()
        assert ([i["lease"] for i in first["items"] + rest["items"]] == [m.info["lease"] for m in given]
                and rest["next_cursor"] is None)
    finally:
        for c in clients:
            c.close()
    no_leases(daemon, session)
    assert all(m.bytes() == A for m in given)


def test_a_replacement_beside_the_mapping(daemon, x, session, local):
    with Memory(mapped(daemon, local.map("x", session))) as m:
        after = x.put("x", B, MAPPABLE, 200)
        assert after["generation"] > m.info["generation"] and after["leases"] == 0
        assert x.data("x") == B and m.bytes() == A
        assert leases(daemon, session)[0]["state"] == "replaced" and held(x) >= SIZE
        with Local(daemon.unix) as other, Memory(mapped(daemon, other.map("x", session))) as n:
            assert n.bytes() == B and n.info["generation"] == after["generation"]
            assert local.end(m.info["lease"]).status == 204
            until("the old bytes are freed", lambda: held(x) == 0)
            assert n.bytes() == B and m.bytes() == A
        no_leases(daemon, session)
    x.put("x", A, "?in_place=true", 200)


def test_deleted_when_unmapped(daemon, x, session):
    with Process(daemon, session, "x") as p:
        r = x.ask("DELETE", "buffers/x?when=unmapped").expect(202)
        assert r.json()["held_bytes"] >= SIZE
        x.ask("GET", "buffers/x").problem(404, "buffer_not_found")
        assert leases(daemon, session)[0]["state"] == "deleted" and held(x) == r.json()["held_bytes"]
        assert p.say("digest") == digest(A)
        x.put("x", B, MAPPABLE, 201)
        assert p.say("digest") == digest(A) and x.data("x") == B
        p.kill()
        until("the bytes are freed", lambda: held(x) == 0)
    x.ask("DELETE", "buffers/x?when=unmapped").expect(204)
    x.put("x", B, MAPPABLE, 201)
    for when in "later", "", "Unmapped":
        assert "unmapped" in x.ask("DELETE", "buffers/x?when=" + when).problem(400, "invalid_argument")["detail"]


def test_sealed(daemon, x, session, local):
    x.put("y", B)
    writer = mapped(daemon, local.map("x", session, mode="write"))
    os.close(writer.fds[0])
    assert len(x.ask("POST", "buffers/x/seal", {}).problem(409, "mapped")["holders"]) == 1
    assert local.end(writer.json()["lease"]).status == 204
    before = x.meta("x")
    assert x.post("buffers/x/seal", {})["sealed"] and x.post("buffers/x/seal")["sealed"]  # twice is once
    for method, path, body in [
            ("PUT", "buffers/x/data", B), ("PUT", "buffers/x/data?in_place=true", B),
            ("PATCH", "buffers/x/data?offset=0", b"1"), ("POST", "buffers/x/fill", {"pattern": 1}),
            ("POST", "buffers/x/copy", {"from": "y"})]:
        x.ask(method, path, body).problem(409, "sealed")
    x.ask("POST", "buffers/x/data", B, {"Upload-Complete": "?1"}).problem(409, "sealed")
    refused = mapped(daemon, local.map("x", session, mode="write"), 409).json()
    assert refused["code"] == "sealed"
    with Memory(mapped(daemon, local.map("x", session))) as m:
        assert m.bytes() == A and m.info["generation"] == x.meta("x")["generation"] == before["generation"]
        local.end(m.info["lease"])
    assert x.patch("buffers/x", {"labels": {"a": "b"}})["sealed"] and x.data("x") == A
    x.delete("buffers/x")
    assert not x.put("x", B, MAPPABLE, 201)["sealed"]


def test_several_processes(daemon, x, session):
    """Several processes write into their parts; readers see it at once."""
    writers = [Process(daemon, session, "x", "write") for _ in range(3)]
    readers = [Process(daemon, session, "x") for _ in range(3)]
    try:
        assert [p.info["generation"] for p in writers] == sorted({p.info["generation"] for p in writers})
        for i, p in enumerate(writers):
            p.say("write", i * 1000, B[i * 1000:(i + 1) * 1000].hex())
        wanted = B[:3000] + A[3000:]
        assert {p.say("digest") for p in readers + writers} == {digest(wanted)} and x.data("x") == wanted
        assert x.meta("x")["leases"] == 6
        writers[0].kill()
        until("one has gone", lambda: x.meta("x")["leases"] == 5)
        writers[1].say("write", 0, A[:1000].hex())
        assert {p.say("digest") for p in readers} == {digest(A[:1000] + B[1000:3000] + A[3000:])}
    finally:
        for p in writers + readers:
            p.kill()
    no_leases(daemon, session)
    assert x.data("x") == A[:1000] + B[1000:3000] + A[3000:]


def test_ends_with_the_connection_or_before(daemon, x, session, local):
    with Local(daemon.unix) as other:
        leased = []
        for c in local, local, other:
            with Memory(mapped(daemon, c.map("x", session))) as m:
                leased.append(m.info["lease"])
        assert leased == [i["lease"] for i in leases(daemon, session)]
        assert local.end(leased[0]).status == 204
        gone = local.end(leased[0])
        assert gone.status == 404 and gone.json()["code"] == "lease_not_found"
        interface(daemon).check("DELETE", "/v1/leases/1", gone)
        x.delete("/v1/leases/" + leased[1])  # without tokens every caller may
        assert [i["lease"] for i in leases(daemon, session)] == leased[2:]
    no_leases(daemon, session)
    for name in "0", "-1", "x", "9" * 30, "18446744073709551617":
        x.ask("DELETE", "/v1/leases/" + name).problem(404, "lease_not_found")


def test_one_connection_for_all(daemon, x, session, local):
    """Long answers and bodies both ways on a connection with a lease: it stays, and so does the lease."""
    big = payload(5 << 20, 3)
    x.put("big", big, MAPPABLE, 201)
    with Memory(mapped(daemon, local.map("x", session))) as m:
        for _ in range(3):
            r = local.ask("GET", DATA.format(session, "big"))
            assert r.body == big and r.headers.get("Connection") != "close"
            assert local.ask("PUT", DATA.format(session, "big"), big).status == 200
        local.send("GET", DATA.format(session, "big"))
        local.send("GET", DATA.format(session, "x"))  # behind it at once
        assert local.reply().body == big and local.reply().body == A
        assert [i["lease"] for i in leases(daemon, session)] == [m.info["lease"]] and m.bytes() == A


def test_a_question_in_pieces(daemon, x, session, local):
    """If the body comes late and slowly, another loop of the daemon answers, with the descriptor."""
    body = b'{"mode": "write", "ways": ["memfd"]}'
    for cut in 1, 10, len(body) - 1:
        head = [f"POST /v1/sessions/{session}/buffers/x/map HTTP/1.1", "Host: localhost",
                f"Content-Length: {len(body)}", "Expect: 100-continue"]
        local.sock.sendall("\r\n".join(head).encode() + b"\r\n\r\n")
        assert local.sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        local.sock.sendall(body[:cut])
        until("others are served meanwhile", lambda: x.meta("x"))
        local.sock.sendall(body[cut:])
        with Memory(mapped(daemon, local.reply())) as m:
            assert m.bytes() == A and len(leases(daemon, session)) == 1
            assert local.end(m.info["lease"]).status == 204


def test_nothing_is_kept_for_another_time(daemon, x, session, local):
    """A repeated key does not return the first descriptor, and an operation could not return one."""
    headers = ["Idempotency-Key: k", "Prefer: respond-async, wait=5"]
    first, second = (mapped(daemon, local.map("x", session, headers)) for _ in range(2))
    assert first.json()["lease"] != second.json()["lease"] and "Idempotency-Replayed" not in second.headers
    for answer in first, second:
        with Memory(answer) as m:
            assert m.bytes() == A


def test_the_daemon_copies_into_what_its_asker_maps(daemon, x, session, local):
    """A pinned buffer as a slab: bytes go through it in both directions, and other clients cannot write to it."""
    buffers = f"/v1/sessions/{session}/buffers/"
    x.post("buffers", {"name": "slab", "bytes": SIZE, "kind": "pinned"}, 201)
    x.post("buffers", {"name": "d", "bytes": SIZE}, 201)
    copied = {"from": "x", "in_place": True}
    with Memory(mapped(daemon, local.map("slab", session, mode="write"))) as slab:
        slab.view[:] = B
        assert local.ask("POST", buffers + "d/copy", {"from": "slab"}).status == 200
        assert x.data("d") == B
        x.ask("POST", "buffers/slab/copy", copied).problem(409, "mapped")
        answer = local.ask("POST", buffers + "slab/copy", copied)
        assert answer.status == 200, answer.body
        assert slab.bytes() == A == x.data("slab")
        fill = buffers + "slab/fill", {"pattern": 7, "in_place": True}
        until("the download has released it", lambda: local.ask("POST", *fill).status == 200)  # after its last byte
        assert slab.bytes() == b"\7" * SIZE
        with Local(daemon.unix) as other:
            mapped(daemon, other.map("slab", session))
            refused = local.ask("POST", buffers + "slab/copy", copied)
            assert refused.status == 409 and b'"mapped"' in refused.body
        until("the other has gone", lambda: x.meta("slab")["leases"] == 1)
        assert local.ask("POST", buffers + "slab/copy", copied).status == 200
    local.close()
    no_leases(daemon, session)
    assert x.data("slab") == A


def test_bytes_that_may_be_changing_have_no_tag_that_holds(daemon, x, session, local):
    """During a mapping for writing there is no 304, no resumed range and no If-Match with an earlier tag."""
    with Memory(mapped(daemon, local.map("x", session, mode="write"))) as m:
        tag = x.ask("GET", "buffers/x/data").headers["ETag"]
        m.view[:] = B
        r = x.ask("GET", "buffers/x/data", headers={"If-None-Match": tag})
        assert r.status == 200 and r.body == B and r.headers["ETag"] != tag
        assert x.ask("GET", "buffers/x/data", headers={"If-Range": tag, "Range": "bytes=0-7"}).status == 200
        assert x.ask("GET", "buffers/x/data?slice=0:4", headers={"If-None-Match": tag}).status == 200
        x.ask("PUT", "buffers/x/data", A, headers={"If-Match": tag}).problem(412, "precondition_failed")
        r = x.ask("GET", "buffers/x/data", headers={"Want-Repr-Digest": "sha-256=1"}).expect(200)
        assert r.body == B and "Repr-Digest" not in r.headers
    local.close()
    no_leases(daemon, session)
    r = x.ask("GET", "buffers/x/data", headers={"Want-Repr-Digest": "sha-256=1"})
    assert r.headers["Repr-Digest"]
    x.ask("GET", "buffers/x/data", headers={"If-None-Match": r.headers["ETag"]}).expect(304)
