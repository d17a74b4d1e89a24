"""Processes that map and die at any moment."""
import os
import random
import signal
import time

import pytest

from badclient import Footprint
from harness import DATA, ROUNDS, SLOT, until
from sharing import Local, Memory, kill, spawn
from values import payload

SIZE = SLOT + 99
A = payload(SIZE, 1)
MAPPABLE = "?kind=pageable"
IMPORTERS, AT_A_TIME = 250 * ROUNDS, 20


def importer(path, session, seed):
    """Maps, reads and sends requests until it is killed; never returns."""
    rng = random.Random(seed)
    while True:
        c = Local(path)
        for _ in range(rng.randrange(1, 4)):
            answer = c.map("x", session, mode=rng.choice(("read", "read", "write")))
            if answer.status == 409:  # another process's mapping for writing was just being committed
                assert answer.json()["code"] == "buffer_busy", answer.body
                continue
            m = Memory(answer)
            if m.writable:
                m.view[:8] = A[:8]
            assert m.bytes() == A
            if rng.random() < 0.5:
                c.end(m.info["lease"])
        what = rng.randrange(5)
        if what == 0:
            c.sock.sendall(b"PUT " + DATA.format(session, "y").encode() + b" HTTP/1.1\r\nHost: h\r\nContent-Length: "
                           b"9000000\r\n\r\nabc")
            time.sleep(60)
        if what == 1:
            c.sock.sendall(b"POST /v1/sessions/")
            time.sleep(60)
        if what == 2:
            c.send("GET", DATA.format(session, "big"))
            time.sleep(60)
        if what == 3:
            c.send("POST", f"/v1/sessions/{session}/buffers/x/map", {"mode": "write"})  # without reading the answer
        c.close()


def sharing_of(daemon, session):
    return daemon.get(f"/v1/sessions/{session}/stats")["sharing"]


@pytest.mark.timeout(120 + 120 * ROUNDS)
def test_importers_killed_at_random(daemon, session):
    daemon.put("x", A, session, MAPPABLE).expect(201)
    daemon.put("big", bytes(4 << 20), session, MAPPABLE).expect(201)
    kept = Footprint(daemon, session)
    maps = sharing_of(daemon, session)["maps"]
    rng, alive = random.Random(5), []
    try:
        for i in range(IMPORTERS):
            alive.append(spawn(importer, daemon.unix, session, i))
            if len(alive) == AT_A_TIME:
                time.sleep(rng.random() * 0.01)  # so that the moment is random
                kill(alive.pop(rng.randrange(AT_A_TIME)))
        until("the last ones map", lambda: daemon.meta("x", session)["leases"] > 0)
    finally:
        for pid in alive:
            kill(pid)
    until("all leases have ended", lambda: sharing_of(daemon, session)["leases"] == 0)
    sharing = sharing_of(daemon, session)
    assert sharing["held_bytes"] == 0 and sharing["maps"] == sharing["unmaps"] > maps + IMPORTERS // 10
    assert [i for i in daemon.get("/v1/leases?limit=1000")["items"] if i["session"] == session] == []
    assert daemon.meta("x", session)["leases"] == 0
    kept.same()
    assert daemon.data("x", session).body == A
    # The last reader may release it a moment later.
    until("it is not in use", lambda: daemon.put("x", A, session, "?in_place=true").status == 200)
    daemon.ask("DELETE", f"/v1/sessions/{session}/buffers/x").expect(204)


def test_killed_in_a_row(daemon, s, session):
    """The daemon notices each end at once, without further requests."""
    s.put("x", A, MAPPABLE, 201)
    for seed in range(50):
        pid = os.fork()
        if pid == 0:
            try:
                c = Local(daemon.unix)
                Memory(c.map("x", session, mode=("read", "write")[seed % 2]))
                os.kill(os.getpid(), signal.SIGKILL)
            finally:
                os._exit(1)
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
        until("its lease has ended", lambda: s.meta("x")["leases"] == 0)


def test_the_daemon_is_killed(start, tmp_path):
    """The clients keep their mappings."""
    d = start(state=str(tmp_path))
    d.put("x", A, query=MAPPABLE).expect(201)
    with Local(d.unix) as c, Memory(c.map("x")) as m:
        d.kill()
        assert c.sock.recv(1) == b"" and m.bytes() == A
        again = start(state=str(tmp_path))
        again.put("x", bytes(SIZE), query=MAPPABLE).expect(200)
        assert m.bytes() == A
