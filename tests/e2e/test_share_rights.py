"""Rights to map, refusals and limits."""
import os
import resource
import subprocess
import sys

import pytest

from conform import Session, interface
from harness import DATA, SLOT, SMALL_SLOTS, binary, for_everybody, token, until
from test_every import refuse_changes
from sharing import Local, Memory
from values import payload

A = payload(SLOT + 5, 1)
MAPPABLE = "?kind=pageable"
MAP = "/v1/sessions/{}/buffers/{}/map"


def answered(daemon, answer, status, code=None):
    interface(daemon).check("POST", "/v1/sessions/s/buffers/b/map", answer)
    assert answer.status == status and (code is None or answer.json()["code"] == code), answer.body
    return answer


def drop(answer):
    for fd in answer.fds:
        os.close(fd)
    return answer


def test_not_over_tcp(daemon, s, session):
    s.put("x", A, MAPPABLE, 201)
    for body in {}, {"mode": "write"}:
        s.ask("POST", "buffers/x/map", body).problem(403, "local_only")
    with Local(daemon.unix) as c:  # that client does not know the answer with the descriptor
        c.send("POST", MAP.format(session, "x"), {}, version="1.0")
        assert answered(daemon, c.reply(), 403, "local_only").fds == []
    assert s.meta("x")["leases"] == 0


def test_what_is_asked(daemon, s, session):
    s.put("x", A, MAPPABLE, 201)
    with Local(daemon.unix) as c:
        for fields, code, word in [
                ({"mode": "rw"}, "invalid_argument", "read"), ({"mode": 1}, "wrong_type", "mode"),
                ({"ways": []}, "invalid_argument", "ways"), ({"ways": "memfd"}, "wrong_type", "ways"),
                ({"ways": [1]}, "wrong_type", "ways"), ({"ways": ["mmap"]}, "invalid_argument", "memfd"),
                ({"way": "memfd"}, "unknown_field", "way")]:
            assert word in answered(daemon, c.map("x", session, **fields), 400, code).json()["detail"], fields
        answered(daemon, c.map("none", session), 404, "buffer_not_found")
        answered(daemon, c.map("x", "none"), 404, "session_not_found")
        only = drop(answered(daemon, c.map("x", session, ways=["memfd", "memfd"]), 200)).json()
        assert only["way"] == "memfd" and only["passed_over"] == []
        bare = drop(c.ask("POST", MAP.format(session, "x")))
        assert bare.status == 200 and bare.json()["mode"] == "read"


def test_no_way(daemon, s, session):
    """The refusal has all reasons; the bytes can still be downloaded."""
    s.put("x", A, status=201)
    s.put("empty", b"", MAPPABLE, 201)
    with Local(daemon.unix) as c:
        detail = answered(daemon, c.map("x", session, ways=["memfd"]), 501, "unsupported").json()["detail"]
        assert "memfd:" in detail
        answered(daemon, c.map("empty", session), 501, "unsupported")
    assert s.data("x") == A and s.meta("x")["leases"] == 0


def test_while_it_is_written_in_place(daemon, s, session):
    s.put("x", A, MAPPABLE, 201)
    with daemon.raw() as w, Local(daemon.unix) as c:
        w.put(DATA.format(session, "x") + "?in_place=true", len(A)).send(A[:100])
        until("it is being written", lambda: daemon.stats()["running"]["uploads"] == 1)
        for mode in "read", "write":
            busy = answered(daemon, c.map("x", session, mode=mode), 409, "buffer_busy")
            assert int(busy.headers["Retry-After"]) >= 1
        seal = s.ask("POST", "buffers/x/seal", {})
        seal.problem(409, "buffer_busy")
        assert int(seal.headers["Retry-After"]) >= 1
    until("it is broken", lambda: s.meta("x")["state"] == "partial")
    with Local(daemon.unix) as c:
        answered(daemon, c.map("x", session), 409, "buffer_partial")
    s.ask("POST", "buffers/x/seal", {}).problem(409, "buffer_partial")


def test_after_a_restart(start, tmp_path):
    """After a restart clients keep their mapped bytes, buffers stay sealed, and old leases are unknown."""
    d = start(state=str(tmp_path))
    d.put("x", A, query=MAPPABLE).expect(201)
    d.ask("POST", "/v1/sessions/default/buffers/x/seal", {}).expect(200)
    d.put("y", A, query=MAPPABLE).expect(201)
    c = Local(d.unix)
    m = Memory(c.map("x"))
    d.stop()
    assert c.sock.recv(1) == b"" and m.bytes() == A
    d = start(state=str(tmp_path))
    assert d.get("/v1/leases")["items"] == [] and m.bytes() == A
    meta = d.meta("x")
    assert (meta["sealed"], meta["leases"], meta["state"]) == (True, 0, "lost")
    assert d.stats()["sharing"]["held_bytes"] == 0
    lost = Session(d)
    lost.ask("POST", "buffers/y/seal", {}).problem(410, "content_lost")
    with Local(d.unix) as c:
        answered(d, c.map("x"), 410, "content_lost")
    lost.delete("buffers/x")


def test_limits(start):
    d = start("--max-leases", "3")
    d.put("x", A, query=MAPPABLE).expect(201)
    with Local(d.unix) as c:
        for _ in range(2):
            given = [drop(answered(d, c.map("x"), 200)).json()["lease"] for _ in range(3)]
            answered(d, c.map("x"), 507, "limit_reached")
            assert [c.end(lease).status for lease in given] == [204] * 3
        assert d.meta("x")["leases"] == 0


def test_idle_without_a_lease(start):
    """A connection whose lease another client has ended is idle like any other."""
    d = start("--idle-timeout", "1")
    d.put("x", A, query=MAPPABLE).expect(201)
    with Local(d.unix) as c:
        lease = drop(c.map("x")).json()["lease"]
        d.ask("DELETE", "/v1/leases/" + lease).expect(204)
        assert c.sock.recv(1) == b"", "it is to be closed"


def test_the_limit_of_one_connection(daemon, s, session):
    s.put("x", A, MAPPABLE, 201)
    with Local(daemon.unix) as c, Local(daemon.unix) as other:
        for _ in range(1024):
            assert drop(c.map("x", session)).status == 200
        answered(daemon, c.map("x", session), 507, "limit_reached")
        assert drop(other.map("x", session)).status == 200
        assert s.meta("x")["leases"] == 1025
    until("all have ended", lambda: s.meta("x")["leases"] == 0)


def test_scopes(start, tmp_path):
    """Rights on data and rights to map are separate; admin has all."""
    kinds = "read", "write", "map", "map-write", "admin", "read,map", "write,map-write"
    secrets = {k: token(tmp_path, "add", k.replace(",", "-and-"), "--scope", k) for k in kinds}
    secrets["mine"] = token(tmp_path, "add", "mine", "--scope", "write,map", "--session", "mine")
    secrets["boss"] = token(tmp_path, "add", "boss", "--scope", "admin", "--session", "mine")
    d = start(state=str(tmp_path))
    d.ask("POST", "/v1/sessions", {"name": "mine"}, token=secrets["write"]).expect(201)
    for session in "default", "mine":
        d.ask("PUT", DATA.format(session, "x") + MAPPABLE, A, token=secrets["write"]).expect(201)
    table = [  # scope; the statuses of map to read, map to write, GET of the data, PUT of the data and the list
        ("read", 403, 403, 200, 403, 200), ("write", 403, 403, 200, 200, 200), ("map", 200, 403, 403, 403, 403),
        ("map-write", 200, 200, 403, 403, 403), ("read,map", 200, 403, 200, 403, 200),
        ("write,map-write", 200, 200, 200, 200, 200), ("admin", 200, 200, 200, 200, 200),
        ("mine", 403, 403, 403, 403, 200)]
    for scope, *wanted in table:
        with Local(d.unix, secrets[scope]) as c:
            got = []
            for mode in "read", "write":
                r = drop(answered(d, c.map("x", mode=mode), wanted[len(got)]))
                got.append(r.status)
                if r.status == 200:
                    assert c.end(r.json()["lease"]).status == 204
                else:
                    assert r.json()["code"] == "forbidden"
            others = [("GET", DATA.format("default", "x")), ("PUT", DATA.format("default", "x"), A),
                      ("GET", "/v1/leases")]
            got += [d.ask(*request, token=secrets[scope]).status for request in others]
            assert got == wanted, scope
    with Local(d.unix) as c:
        assert answered(d, c.map("x"), 401, "unauthenticated").headers["Www-Authenticate"]

    with Local(d.unix, secrets["mine"]) as c, Local(d.unix, secrets["map"]) as other:
        mine = drop(answered(d, c.map("x", "mine"), 200)).json()["lease"]
        answered(d, c.map("x", "mine", mode="write"), 403, "forbidden")
        theirs = drop(answered(d, other.map("x"), 200)).json()["lease"]
        assert [i["lease"] for i in c.ask("GET", "/v1/leases").json()["items"]] == [mine]
        for who, lease, status in [("mine", theirs, 404), ("map", mine, 404), ("write", mine, 403),
                                   ("boss", theirs, 404), ("boss", mine, 204), ("admin", theirs, 204)]:
            reply = d.ask("DELETE", "/v1/leases/" + lease, token=secrets[who])
            interface(d).check("DELETE", "/v1/leases/1", reply)
            assert reply.status == status, (who, reply)
            if status == 404:  # as one that does not exist
                absent = d.ask("DELETE", "/v1/leases/999999", token=secrets[who]).problem(404, "lease_not_found")
                assert reply.json()["detail"] == absent["detail"].replace("999999", lease), (who, reply)


CLIENT = """
import os, sys
sys.path.insert(0, sys.argv[1])
groups = [int(g) for g in sys.argv[5].split(",") if g]
from sharing import Local
os.setgroups(groups)
os.setgid(int(sys.argv[4]))
os.setuid(int(sys.argv[3]))
r = Local(sys.argv[2]).map("x")
print(r.status, r.json().get("code"), len(r.fds))
"""


@pytest.mark.parametrize("options, told", [
    ((), {}), (("--map-uids", "4242"), {"uid"}), (("--map-uids", "1,2", "--map-uids", "4242,3"), {"uid"}),
    (("--map-uids", "any"), {"uid", "gid", "member", "none"}), (("--map-gids", "4343"), {"gid", "member"}),
    (("--map-gids", "any"), {"uid", "gid", "member", "none"})])
def test_users(start, tmp_path, options, told):
    """Without tokens the daemon checks the peer's user: root, the daemon's own user, and listed users may map."""
    if os.geteuid() != 0:
        pytest.skip("only root can switch to another user")
    d = start(*options, state=str(tmp_path))
    d.put("x", A, query=MAPPABLE).expect(201)
    for path in [d.unix, *[str(p) for p in [tmp_path, *tmp_path.parents][:-2]]]:
        os.chmod(path, 0o777 if path == d.unix else 0o755)
    who = {"uid": ("4242", "1", ""), "gid": ("5", "4343", ""), "member": ("5", "5", "7,4343,8"),
           "none": ("5", "5", "7"), "root": ("0", "0", "")}
    here = os.path.dirname(os.path.abspath(__file__))
    for name, (uid, gid, groups) in who.items():
        out = subprocess.run([sys.executable, "-c", CLIENT, here, d.unix, uid, gid, groups], capture_output=True,
                             text=True, timeout=120)
        wanted = "200 None 1" if name in told or name == "root" else "403 map_not_permitted 0"
        assert out.stdout.strip() == wanted, (name, out.stderr)


def test_the_sockets_group_and_mode(start, tmp_path):
    """Permitted users can reach the socket by its group; others cannot."""
    if os.geteuid() != 0:
        pytest.skip("only root can switch to another user")
    for path in [str(p) for p in [tmp_path, *tmp_path.parents][:-2]]:
        os.chmod(path, 0o755)
    d = start("--socket", str(tmp_path / "s"), "--socket-group", "4343", "--socket-mode", "0620", "--map-gids", "4343")
    d.put("x", A, query=MAPPABLE).expect(201)
    here, seen = os.path.dirname(os.path.abspath(__file__)), os.stat(d.unix)
    assert (seen.st_gid, seen.st_mode & 0o7777) == (4343, 0o620)
    for uid, gid, groups, wanted in (("5", "4343", "", "200 None 1"), ("5", "5", "7,4343", "200 None 1"),
                                     ("5", "5", "7", "")):
        out = subprocess.run([sys.executable, "-c", CLIENT, here, d.unix, uid, gid, groups], capture_output=True,
                             text=True, timeout=120)
        assert out.stdout.strip() == wanted and ("PermissionError" in out.stderr) == (wanted == ""), (uid, gid, groups,
                                                                                                      out)


def test_rights_of_the_socket_that_make_no_sense(start, tmp_path):
    for option, value in (("--socket-mode", "rw"), ("--socket-mode", "0999"), ("--socket-group", "no such group")):
        assert option in start(option, value, wait=False).finished(64)
    d = start("--socket-mode", "0666", state=str(tmp_path))  # if no other user can reach the socket, the error says so
    until("the warning", lambda: "others may not search the state directory" in d.log()
          or os.stat(tmp_path).st_mode & 0o011)


@pytest.mark.parametrize("option", ["--map-uids", "--map-gids"])
@pytest.mark.parametrize("value", ["x", "-1", "4294967295", "1,y", ",".join(map(str, range(65)))])
def test_lists_that_make_no_sense(start, option, value):
    d = start(option, value, wait=False)
    assert option in d.finished(64)


def test_a_full_disk(start):
    """A mapping for writing is a change: it is granted after the commit."""
    d = start(restore_signals=False)
    d.put("x", A, query=MAPPABLE).expect(201)
    with Local(d.unix) as c, Local(d.unix) as writer:
        w = Memory(answered(d, writer.map("x", mode="write"), 200))
        resource.prlimit(d.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        answered(d, c.map("x", mode="write"), 507, "storage_full")
        w.view[:3] = b"abc"
        ended = writer.end(w.info["lease"])
        interface(d).check("DELETE", "/v1/leases/1", ended)
        assert ended.status == 507 and ended.json()["code"] == "storage_full"
        resource.prlimit(d.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        assert d.get("/v1/leases")["items"] == [] and d.data("x").body == b"abc" + A[3:]
        assert drop(answered(d, c.map("x", mode="write"), 200)).json()["generation"] > w.info["generation"]


def test_a_database_that_refuses(start):
    d = start()
    d.put("x", A, query=MAPPABLE).expect(201)
    refuse_changes(d)
    with Local(d.unix) as c:
        answered(d, c.map("x", mode="write"), 500, "store_failed")


def test_a_wait_that_ends(start):
    """A mapping waits for queued writes of the bytes, at most for the requested time."""
    d = start(*SMALL_SLOTS, spec="fault:place_fill@1=stall/3000:host")
    s = Session(d)
    s.buffer("x", kind="pageable", bytes=len(A))
    with Local(d.unix) as c:
        s.ask("POST", "buffers/x/fill", {"pattern": 7}, {"Prefer": "respond-async"}).expect(202)
        answered(d, c.map("x", headers=["Prefer: wait=0"]), 503, "timed_out")


def test_descriptors_that_nobody_takes(start, tmp_path):
    """The system limits descriptors in flight; a client beyond the limit gets an error and may retry."""
    if os.geteuid() != 0:
        pytest.skip("the limit holds for other users, and only root can switch to one")
    user = 20000 + os.getpid() % 40000  # the limit is of all processes of a user: a run beside this one has another
    daemon = for_everybody(binary(), tmp_path)
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, user, user)
    d = start("--max-connections", "32", "--stall-timeout", "600", program=[str(daemon)], state=str(state), user=user,
              group=user, extra_groups=[], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (700, 700)))
    d.put("x", A, query=MAPPABLE).expect(201)
    silent = [Local(d.unix) for _ in range(16)]
    for c in silent:
        for _ in range(60):
            c.send("POST", MAP.format("default", "x"), {})

    def mapped(status):
        with Local(d.unix) as c:
            answer = drop(c.map("x"))
            return answer if answer.status == status else None

    answer = answered(d, until("it is refused", lambda: mapped(503)), 503, "saturated")
    assert answer.headers["Connection"] == "close" and answer.json()["retryable"] and answer.headers["Retry-After"]
    assert d.ask("GET", "/v1/stats").status == 200
    for c in silent:
        c.close()
    until("their leases have ended", lambda: d.stats()["sharing"]["leases"] == 0)
    answered(d, until("it is given again", lambda: mapped(200)), 200)
