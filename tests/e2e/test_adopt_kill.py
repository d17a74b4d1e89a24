"""Owners that die at any moment: the daemon keeps no resource of theirs and serves on."""
import os
import random
import signal
import socket
import time

import pytest

from badclient import Footprint
from harness import DATA, ROUNDS, SLOT, Client, until
from owning import Owned, Owner
from sharing import kill, spawn
from values import payload

SIZE = SLOT + 96
A = payload(SIZE, 1)
OWNERS, AT_A_TIME, NAMES = 100 * ROUNDS, 12, 6

pytestmark = pytest.mark.timeout(120 + 120 * ROUNDS)


def owner(path, session, seed):
    """Adopts, uploads, downloads, releases and disconnects until it is killed; never returns."""
    rng = random.Random(seed)
    while True:
        c, memory = Owner(path), Owned(SIZE, A)
        for _ in range(rng.randrange(1, 4)):
            name = f"x{rng.randrange(NAMES)}"
            answer = c.adopt(name, [memory.fd] * rng.choice((1, 1, 1, 0, 2)), session, bytes=SIZE)
            if answer.status not in (200, 201):
                assert answer.json()["code"] in ("buffer_exists", "cannot_adopt"), answer.body
                continue
            what = rng.randrange(6)
            if what == 0:
                c.sock.sendall(
                    f"PUT {DATA.format(session, name)} HTTP/1.1\r\nHost: h\r\nContent-Length: {SIZE}\r\n\r\n".encode()
                    + A[:SLOT])
                time.sleep(60)
            if what == 1:
                c.send("GET", DATA.format(session, name))
                time.sleep(60)
            if what == 2:
                c.send("POST", f"/v1/sessions/{session}/buffers/copy{seed % 3}/copy", {"from": name})
                break  # without reading the answer
            if what == 3:
                c.ask("DELETE", f"/v1/sessions/{session}/buffers/{name}")
            if what == 4:
                box = c.ask_adopt("never", session, way="memfd", bytes=SIZE)
                if isinstance(box, socket.socket) and rng.random() < 0.5:
                    socket.send_fds(box, [b"x"], [memory.fd] * rng.randrange(1, 4))
                time.sleep(60)
        c.close()
        memory.close()


def mappings(daemon):
    with open(f"/proc/{daemon.process.pid}/maps", encoding="ascii") as f:
        return sum("memfd:owned" in line for line in f)


def adopted(daemon):
    return daemon.stats()["sharing"]["adopted"]


def test_owners_killed_at_random(daemon, session):
    daemon.put("kept", A, session).expect(201)
    before, had = Footprint(daemon, session), adopted(daemon)
    rng, alive, seen = random.Random(7), [], set()
    client = Client(daemon.tcp)
    try:
        for i in range(OWNERS):
            alive.append(spawn(owner, daemon.unix, session, i))
            r = client.ask("GET", DATA.format(session, f"x{i % NAMES}"))
            seen.add(r.status)
            assert r.status in (200, 404, 409, 410), r
            if len(alive) == AT_A_TIME:
                time.sleep(rng.random() * 0.02)  # so that the moment is random
                kill(alive.pop(rng.randrange(AT_A_TIME)))
        until("the last ones own something", lambda: adopted(daemon) > had)
    finally:
        client.close()
        for pid in alive:
            kill(pid)
    until("nothing of theirs is mapped", lambda: adopted(daemon) == had)
    until("no copy is under way", lambda: daemon.stats()["running"]["writes"] == 0)
    assert mappings(daemon) == 0 and 200 in seen
    for buffer in daemon.get(f"/v1/sessions/{session}/buffers")["items"]:
        assert buffer["name"] == "kept" or not buffer["adopted"] or buffer["state"] == "lost", buffer
        if buffer["name"] != "kept":
            daemon.ask("DELETE", f"/v1/sessions/{session}/buffers/{buffer['name']}").expect(204)
    before.same()
    assert daemon.data("kept", session).body == A


def test_killed_in_a_row(daemon, s, session):
    """The daemon notices each end without further requests, and the name is free for the next owner."""
    for _ in range(40):
        pid = os.fork()
        if pid == 0:
            try:
                memory, c = Owned(SIZE, A), Owner(daemon.unix)
                assert c.adopt("x", [memory.fd], session, bytes=SIZE).status in (200, 201)
                os.kill(os.getpid(), signal.SIGKILL)
            finally:
                os._exit(1)
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
        until("it is lost", lambda: s.meta("x")["state"] == "lost")
    until("nothing is mapped", lambda: s.get("stats")["sharing"]["adopted"] == 0)


def test_killed_in_the_middle_of_a_download(daemon, s, session):
    """A download completes after the owner's end, because the daemon's own mapping keeps the bytes."""
    big = payload(8 << 20, 3)
    pid, out = None, os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            memory, c = Owned(len(big), big), Owner(daemon.unix)
            c.own("x", memory, session)
            os.write(out[1], b"1")
            signal.pause()
        finally:
            os._exit(1)
    assert os.read(out[0], 1) == b"1"
    with daemon.raw(receive_bytes=4096) as r:
        r.request("GET", DATA.format(session, "x"))
        status, headers = r.head()
        assert status == 200
        first = r.exactly(10000)
        kill(pid)
        until("it is lost", lambda: s.meta("x")["state"] == "lost")
        assert first + r.exactly(len(big) - 10000) == big
    until("nothing is mapped", lambda: s.get("stats")["sharing"]["adopted"] == 0)
    for fd in out:
        os.close(fd)


def test_the_daemon_is_killed(start, tmp_path):
    """The owner keeps its memory."""
    d = start(state=str(tmp_path))
    with Owned(SIZE, A) as memory, Owner(d.unix) as c:
        c.own("x", memory)
        d.kill()
        assert c.sock.recv(1) == b"" and memory.bytes() == A
        again = start(state=str(tmp_path))
        assert again.meta("x")["state"] == "lost"
