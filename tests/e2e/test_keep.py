"""Memory that outlives the daemon: after a kill, a restart or a stop the next daemon has the same bytes, entity tags
and links, and says truthfully what it has not."""
import json
import os
import random
import resource
import signal
import threading

import pytest

from harness import DATA, Daemon, until

A, B = (bytes(random.Random(n).randbytes(70_001)) for n in (1, 2))
KEEP = ("--keep", "process")


def kinds(backend):
    return ("shared",) if backend.startswith("cuda") else ("shared", "pinned", "pageable")


def keeper_of(state):
    """The pid of the keeper of a state folder, by the socket that it listens on; None: it has ended."""
    path = os.path.join(state, "keeper.sock")
    with open("/proc/net/unix") as f:
        inodes = {line.split()[6] for line in f if line.split()[7:] == [path]}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if not f.read().startswith(b"gpubufd-keeper\0"):
                    continue
            if any(os.readlink(f"/proc/{pid}/fd/{fd}").strip("socket:[]") in inodes
                   for fd in os.listdir(f"/proc/{pid}/fd")):
                return int(pid)
        except OSError:
            pass
    return None


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class House:
    """A state folder, its daemon, and the keeper behind it."""

    def __init__(self, backend, state, *options):
        self.backend, self.state, self.options = backend, str(state), options
        self.daemon = None
        self.start()

    def start(self, **popen):
        self.daemon = Daemon(self.backend, *KEEP, *self.options, state=self.state, **popen)
        return self.daemon

    def kill(self):
        self.daemon.process.kill()
        self.daemon.process.wait()

    def again(self, how=signal.SIGKILL):
        self.daemon.process.send_signal(how)
        self.daemon.process.wait()
        return self.start()

    def check(self):
        """What readyz says of the keeper."""
        checks = self.daemon.get("/readyz?verbose=true")["checks"]
        return next(c for c in checks if c["name"] == "keeper")

    def metric(self, name):
        for line in self.daemon.ask("GET", "/metrics").expect(200).body.decode().splitlines():
            if line.startswith(f"gpubufd_{name} "):
                return float(line.split()[1])
        raise AssertionError(name)

    def stop(self):
        pid = keeper_of(self.state)
        self.daemon.stop()
        if pid:
            os.kill(pid, signal.SIGTERM)
            until("the keeper has ended", lambda: keeper_of(self.state) is None)


@pytest.fixture
def house(backend, tmp_path):
    made = []

    def make(*options):
        made.append(House(backend, tmp_path / "state", *options))
        return made[-1]

    os.mkdir(tmp_path / "state")
    yield make
    for h in made:
        h.stop()


def tags(daemon, names):
    """Of the bytes. Other forms also count changes of the record since the start."""
    return {n: daemon.data(n).expect(200).headers["etag"].strip('"').split("-")[0] for n in names}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_the_next_daemon_has_the_same_bytes(house, backend, how):
    h = house()
    for kind in kinds(backend):
        h.daemon.put(kind, A, query=f"?kind={kind}&dtype=uint8").expect(201)
        h.daemon.put(kind, B, query=f"?kind={kind}").expect(200)
    h.daemon.put("gone", A).expect(201)
    h.daemon.ask("POST", "/v1/sessions/default/buffers", {"name": "zeros", "bytes": 5000, "kind": "shared"}).expect(201)
    before = tags(h.daemon, [*kinds(backend), "zeros"])
    used = h.daemon.get("/v1/sessions/default")["used_bytes"]
    h.again(how)
    assert tags(h.daemon, before) == before
    assert all(h.daemon.data(k).body == B for k in kinds(backend))
    assert h.daemon.data("zeros").body == bytes(5000)
    h.daemon.data("gone").problem(410, "content_lost")
    assert h.daemon.meta("gone")["state"] == "lost"
    assert h.metric("kept") == h.metric("kept_found") == len(before) and h.check()["ok"]
    assert h.daemon.get("/v1/sessions/default")["used_bytes"] == used - len(A)
    # What was taken over is written, grows old and is freed as all memory is.
    h.daemon.put("shared", A, query="?kind=shared").expect(200)
    for name in before:
        h.daemon.ask("DELETE", f"/v1/sessions/default/buffers/{name}").expect(204)
    until("the memory is freed", lambda: h.metric("kept") == h.metric("kept_bytes") == 0)
    until("the keeper has the ledger alone", lambda: descriptors(keeper_of(h.state)) == 3 + 2 + 1)


def test_a_quota_that_was_lowered_loses_nothing(house, backend):
    h = house()
    for kind in kinds(backend):
        h.daemon.put(kind, A, query=f"?kind={kind}").expect(201)
    h.daemon.ask("PATCH", "/v1/sessions/default", {"quota": {"bytes": len(A), "pinned_bytes": 1}}).expect(200)
    h.again()
    assert all(h.daemon.data(kind).expect(200).body == A for kind in kinds(backend))
    assert h.daemon.get("/v1/sessions/default")["used_bytes"] == len(A) * len(kinds(backend))
    h.daemon.put("more", A, query="?kind=shared").problem(507, "quota_exceeded")


def test_several_restarts_and_writes_between_them(house):
    h = house()
    h.daemon.put("x", A, query="?kind=shared").expect(201)
    for n, body in enumerate((B, A, B + A, A + B)):
        h.again()
        assert h.daemon.meta("x")["generation"] == n + 1
        h.daemon.put("x", body, query="?kind=shared").expect(200)
        h.again()
        assert h.daemon.data("x").expect(200).body == body
        part = os.urandom(1000)
        h.daemon.ask("PATCH", DATA.format("default", "x"), part, {"Content-Range": "bytes 500-1499/*"})
    assert h.metric("kept") == 1


def test_links_seals_and_tables_are_as_they_were(house):
    h = house()
    table = json.dumps({"a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
                        "b": {"dtype": "F32", "shape": [2], "data_offsets": [3, 11]}}).encode()
    file = len(table).to_bytes(8, "little") + table + b"abc" + bytes(range(8))
    h.daemon.put("m", file, query="?kind=shared&format=safetensors").expect(201)
    h.daemon.ask("POST", "/v1/sessions/default/buffers/m/seal").expect(200)
    h.daemon.ask("POST", "/v1/sessions/default/buffers/current/copy", {"from": "m", "share": True}).expect(201)
    before = tags(h.daemon, ("m", "current"))
    whole = h.daemon.data("m").body
    h.again()
    assert tags(h.daemon, ("m", "current")) == before
    assert h.daemon.data("current").body == h.daemon.data("m").body == whole
    assert h.daemon.data("m", query="?tensor=b&format=raw").expect(200).body == bytes(range(8))
    assert h.daemon.meta("m")["sealed"] and h.daemon.meta("current")["link"] == "m"
    assert h.metric("links") == 1 and h.metric("kept") == 1
    h.daemon.ask("DELETE", "/v1/sessions/default/buffers/m").expect(204)
    assert h.daemon.data("current").body == whole
    h.again()
    assert h.daemon.data("current").body == whole


def test_durable_buffers_are_in_memory_at_once(house):
    h = house()
    h.daemon.put("s", A, query="?kind=shared&durability=sync").expect(201)
    h.daemon.put("b", A, query="?kind=shared&durability=behind").expect(201)
    before = tags(h.daemon, ("s", "b"))
    h.again()
    meta = h.daemon.meta("s")
    assert meta["state"] == "ready" and meta["stored_generation"] == meta["generation"] == 1
    assert tags(h.daemon, ("s", "b")) == before and h.daemon.data("b").body == A
    until("the latest bytes are stored", lambda: h.daemon.meta("b")["stored_generation"] == 1)
    os.kill(keeper_of(h.state), signal.SIGKILL)
    until("the keeper is gone", lambda: keeper_of(h.state) is None)
    h.again()
    assert h.daemon.meta("s")["state"] == "stored" and h.daemon.data("s").body == h.daemon.data("b").body == A
    assert tags(h.daemon, ("s", "b")) == before


def begun(daemon, name, body, query):
    """An upload of which half has come."""
    raw = daemon.raw().put(DATA.format("default", name) + query, len(body), expect=True)
    assert raw.head()[0] == 100
    return raw.send(body[:len(body) // 2])


def test_an_upload_under_way_leaves_the_earlier_bytes(house):
    h = house()
    h.daemon.put("x", A, query="?kind=shared").expect(201)
    before = tags(h.daemon, "x")
    half = begun(h.daemon, "x", B, "?kind=shared")
    h.again()
    half.close()
    assert tags(h.daemon, "x") == before and h.daemon.data("x").body == A and h.metric("kept") == 1


def test_a_write_in_place_under_way_leaves_a_partial_buffer(house):
    h = house()
    h.daemon.put("x", A, query="?kind=shared").expect(201)
    h.daemon.put("y", A, query="?kind=shared").expect(201)
    h.daemon.put("y", B, query="?in_place=true").expect(200)
    before = tags(h.daemon, "y")
    half = begun(h.daemon, "x", B, "?in_place=true")
    until("it is being overwritten", lambda: h.daemon.data("x").status == 409)
    h.again()
    half.close()
    assert h.daemon.meta("x")["state"] == "partial" and tags(h.daemon, "y") == before
    h.daemon.data("x").problem(409, "buffer_partial")
    h.again()
    assert h.daemon.meta("x")["state"] == "partial"
    h.daemon.put("x", A, query="?in_place=true").expect(200)
    h.again()
    assert h.daemon.data("x").expect(200).body == A and h.daemon.data("y").body == B


def test_a_keeper_that_is_killed_is_missed(house):
    h = house()
    h.daemon.put("x", A, query="?kind=shared").expect(201)
    os.kill(keeper_of(h.state), signal.SIGKILL)
    until("the daemon knows", lambda: not h.check()["ok"])
    assert "has ended" in h.check()["detail"] and h.metric("keeper_up") == 0
    h.daemon.put("y", A, query="?kind=shared").expect(201)  # everything else works
    assert h.daemon.data("x").body == h.daemon.data("y").body == A
    h.again()
    h.daemon.data("x").problem(410, "content_lost")
    h.daemon.put("x", B, query="?kind=shared").expect(200)
    h.again()
    assert h.daemon.data("x").body == B


def test_a_keeper_that_hangs_is_replaced(house):
    h = house()
    h.daemon.put("x", A, query="?kind=shared").expect(201)
    pid = keeper_of(h.state)
    os.kill(pid, signal.SIGSTOP)
    h.daemon.put("y", A, query="?kind=shared").expect(201)  # no request waits for it
    h.again()
    until("it was killed", lambda: not os.path.exists(f"/proc/{pid}/fd/3"))
    assert keeper_of(h.state) not in (None, pid) and h.check()["ok"]
    h.daemon.data("x").problem(410, "content_lost")


def test_without_a_daemon_it_ends_and_gives_all_back(house):
    h = house("--keep-for", "1")
    h.daemon.put("x", A, query="?kind=shared").expect(201)
    h.kill()
    until("the keeper has ended", lambda: keeper_of(h.state) is None)
    assert not os.path.exists(os.path.join(h.state, "keeper.sock"))
    h.start()
    h.daemon.data("x").problem(410, "content_lost")


def test_a_keeper_of_nothing_ends_with_the_daemon(house):
    h = house()
    h.daemon.put("x", A, query="?kind=shared").expect(201)
    h.daemon.ask("DELETE", "/v1/sessions/default/buffers/x").expect(204)
    h.daemon.process.terminate()
    h.daemon.process.wait()
    until("the keeper has ended", lambda: keeper_of(h.state) is None)
    assert not os.path.exists(os.path.join(h.state, "keeper.sock"))
    h.start()


def test_what_a_keeper_has_no_descriptors_for_is_told(house):
    few = 40
    h = house()
    resource.prlimit(keeper_of(h.state), resource.RLIMIT_NOFILE, (few, few))
    names = [f"b{i}" for i in range(2 * few)]
    for name in names:
        h.daemon.put(name, A, query="?kind=shared").expect(201)
    until("it is told", lambda: not h.check()["ok"])
    assert "no descriptor left" in h.check()["detail"]
    left_out = 2 * few - (few - 6)  # it has the standard descriptors, two sockets and the ledger
    until("all are told", lambda: h.metric("kept_left_out_total") == left_out)
    h.again()
    states = [h.daemon.meta(n)["state"] for n in names]
    assert states.count("lost") == left_out and states.count("ready") == 2 * few - left_out
    assert all(h.daemon.data(n).body == A for n, s in zip(names, states) if s == "ready")


def test_off_keeps_nothing_and_starts_no_process(backend, tmp_path):
    with Daemon(backend, "--keep", "off", state=str(tmp_path)) as daemon:
        daemon.put("x", A, query="?kind=shared").expect(201)
        assert keeper_of(str(tmp_path)) is None
        assert "keeper" not in [c["name"] for c in daemon.get("/readyz?verbose=true")["checks"]]
        daemon.process.kill()
        daemon.process.wait()
    with Daemon(backend, "--keep", "off", state=str(tmp_path)) as daemon:
        daemon.data("x").problem(410, "content_lost")


ROUNDS = int(os.environ.get("GB_E2E_KEEP_KILLS", "8"))


@pytest.mark.timeout(120 + 20 * ROUNDS)
def test_kills_at_random_under_load_lose_no_acknowledged_byte(house):
    """Four clients write buffers of their own, in whole and in place; each remembers what was acknowledged, and what it
    asked for last. After a kill every buffer has either, or is partial if its last write was in place."""
    h = house()
    rng = random.Random(7)
    acknowledged, asked = {}, {}

    def work(n, daemon, seed):
        own = random.Random(seed)
        while True:
            name = f"w{n}.{own.randrange(6)}"
            body = own.randbytes(own.choice((100, 5000, 300_000)))
            in_place = own.random() < 0.4 and len(acknowledged.get(name) or b"") == len(body)
            delete = not in_place and own.random() < 0.1
            asked[name] = (None if delete else body, in_place)
            try:
                if delete:
                    r = daemon.ask("DELETE", f"/v1/sessions/default/buffers/{name}")
                else:
                    r = daemon.put(name, body, query="?in_place=true" if in_place else "?kind=shared")
            except OSError:
                return
            if r.status in (200, 201, 204):
                acknowledged[name] = asked.pop(name)[0]
            elif r.status == 404:
                asked.pop(name)
            else:
                return

    for round in range(ROUNDS):
        threads = [threading.Thread(target=work, args=(n, h.daemon, 100 * round + n)) for n in range(4)]
        for t in threads:
            t.start()
        threading.Event().wait(0.05 + rng.random() * 0.3)  # so that the moment is random
        assert h.check()["ok"]
        h.kill()
        for t in threads:
            t.join()
        h.start()
        for name in sorted({*acknowledged, *asked}):
            r = h.daemon.data(name)
            now = None if r.status == 404 else r.body
            last, in_place = asked.pop(name, (acknowledged.get(name), False))
            if r.status == 409:
                assert in_place and r.json()["code"] == "buffer_partial", (round, name)
                h.daemon.ask("DELETE", f"/v1/sessions/default/buffers/{name}").expect(204)
                now = None
            else:
                assert r.status in (200, 404), (round, name, r.status, r.body[:300])
                assert now in (acknowledged.get(name), last), (round, name, in_place)
            acknowledged[name] = now
    live = sum(b is not None for b in acknowledged.values())
    assert h.metric("kept") == live
    assert descriptors(keeper_of(h.state)) <= live + 8
