"""kill -9 at any moment: acknowledged changes survive, bytes are lost and can be uploaded again."""
import os
import random
import shutil
import sqlite3
import threading

import pytest

from harness import DATA, SLOT, Client, Daemon, until
from values import crc32c, payload


class Writer(threading.Thread):
    """Creates, uploads and deletes until the daemon dies; records acknowledged and pending requests."""

    def __init__(self, address, number):
        super().__init__()
        self.client, self.number, self.rng = Client(address), number, random.Random(number)
        self.known, self.pending = {}, None  # name: metadata, or None if deleted

    def run(self):
        i = 0
        while self.step(i):
            i += 1

    def step(self, i):
        name = f"w{self.number}.{self.rng.randrange(12)}"
        path = f"/v1/sessions/s{self.number}/buffers/{name}"
        kind = self.rng.randrange(4)
        self.pending = name
        try:
            if kind == 0 and self.known.get(name):
                r = self.client.ask("DELETE", path)
                assert r.status == 204, r
                self.known[name] = None
            elif kind == 1 and self.known.get(name) is None:
                r = self.client.ask("POST", path.rsplit("/", 1)[0], {"name": name, "bytes": 100 + i})
                assert r.status == 201, r
                self.known[name] = r.json()
            else:
                r = self.client.ask("PUT", path + "/data", payload(self.rng.choice([10, 1000, 2 * SLOT]), i))
                assert r.status in (200, 201), r
                self.known[name] = r.json()
        except (OSError, ValueError) + (Exception,) as e:
            if isinstance(e, AssertionError):
                raise
            return False
        self.pending = None
        return True


def test_kill_during_a_stream_of_changes(start, tmp_path):
    state = str(tmp_path)
    known, generations = {}, {}
    for life in range(3):
        d = start(state=state)
        for n in range(3):
            d.ask("POST", "/v1/sessions", {"name": f"s{n}", "labels": {"n": str(n)}})
        before = d.stats()["transfers"]["upload"]["count"]
        writers = [Writer(d.tcp, n) for n in range(3)]
        for w in writers:
            w.known.update(known.get(w.number, {}))
            w.start()
        until("much was done", lambda: d.stats()["transfers"]["upload"]["count"] - before > 60 + 25 * life)
        d.kill()
        for w in writers:
            w.join()
        d.clean()
        db = sqlite3.connect(tmp_path / "gpubufd.db")
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        db.close()
        d = start(state=state)
        for w in writers:
            assert d.get(f"/v1/sessions/s{w.number}")["labels"] == {"n": str(w.number)}
            items = d.get(f"/v1/sessions/s{w.number}/buffers?limit=1000")["items"]
            found = {i["name"]: i for i in items}
            for name, meta in w.known.items():
                if name == w.pending:
                    continue  # neither acknowledged nor refused
                if meta is None:
                    assert name not in found
                    continue
                got = found[name]
                lost = dict(meta, state="lost", tier=None)
                assert got == lost
                generations[w.number, name] = meta["generation"]
            known[w.number] = dict(found)
        d.stop()


def test_lost_bytes_are_told_and_healed(start, tmp_path):
    d = start(state=str(tmp_path))
    old = d.put("x", payload(1000), query="?dtype=float32&shape=10,25").expect(201)
    d.kill()
    d.clean()
    d = start(state=str(tmp_path))
    meta = d.meta("x")
    assert meta == dict(old.json(), state="lost", tier=None)
    d.data("x").problem(410, "content_lost")
    d.ask("HEAD", DATA.format("default", "x")).expect(410)
    d.put("x", b"12", query="?offset=3").problem(410, "content_lost")
    assert d.stats()["buffers"]["lost"] == 1
    d.put("x", payload(8, 1), headers={"If-Match": old.headers["ETag"]}).problem(412, "precondition_failed")
    new = d.put("x", payload(8, 1), headers={"If-Match": "*"}).expect(200)
    assert new.json()["generation"] > meta["generation"] and new.json()["crc32c"] == crc32c(payload(8, 1))
    assert new.headers["ETag"] != old.headers["ETag"]
    assert d.data("x").body == payload(8, 1) and d.stats()["buffers"]["lost"] == 0


def test_an_orderly_stop_also_loses_the_bytes(start, tmp_path):
    d = start(state=str(tmp_path))
    d.put("x", b"abc").expect(201)
    d.stop()
    d = start(state=str(tmp_path))
    d.data("x").problem(410, "content_lost")
    d.ask("DELETE", "/v1/sessions/default/buffers/x").expect(204)
    d.put("x", b"abc").expect(201)


def test_the_addresses_of_a_killed_daemon_do_not_stay(start, backend, tmp_path):
    """A daemon that fails to start must not leave its predecessor's file to clients that wait for it."""
    d = start(state=str(tmp_path))
    d.kill()
    assert (tmp_path / "listen").exists()
    other = start()
    failing = Daemon(backend, state=str(tmp_path), listen=("--listen", "127.0.0.1:%d" % other.tcp[1]), wait=False)
    assert failing.process.wait(30) > 0
    failing.clean()
    assert not (tmp_path / "listen").exists()


def test_tags_are_not_reused_over_lives(start, tmp_path):
    tags = set()
    for life in range(4):
        d = start(state=str(tmp_path))
        for i in range(3):
            tags.add(d.put("x", bytes([life, i])).headers["ETag"])
            tags.add(d.data("x", query="?format=npy").headers["ETag"])
            if i == life % 3:
                d.ask("DELETE", "/v1/sessions/default/buffers/x").expect(204)
        d.kill() if life % 2 else d.stop()
        d.clean()
    assert len(tags) == 4 * 3 * 2


def test_tags_of_uploads_that_nobody_heard_of(start, tmp_path):
    """An upload whose answer was lost with the daemon may or may not be committed; its tag never names other bytes."""
    seen = {}
    for life in range(6):
        d = start(state=str(tmp_path))
        meta = d.ask("GET", DATA.format("default", "x"))
        assert meta.status in (404, 410)
        r = d.put("x", bytes([life]))
        assert seen.setdefault(r.headers["ETag"], life) == life
        raw = d.raw().put(DATA.format("default", "x"), 1).send(bytes([100 + life]))
        d.kill()
        raw.close()
        d.clean()
    assert len(seen) == 6


def test_a_damaged_database_is_not_overwritten(backend, tmp_path):
    (tmp_path / "gpubufd.db").write_bytes(b"this is no database" * 1000)
    d = Daemon(backend, state=str(tmp_path), wait=False)
    assert d.process.wait(30) > 0 and "database" in d.log()
    d.clean()
    assert (tmp_path / "gpubufd.db").read_bytes() == b"this is no database" * 1000


# --- the database's files are renamed, removed or replaced ------------------------------------------------------------


def renamed(path, old):
    os.rename(path, old)


def removed(path, old):
    os.link(path, old)
    os.unlink(path)


def replaced(path, old):
    os.rename(path, old)
    shutil.copy(old, path)


def writes(d):
    """A request of each kind that changes something."""
    return [d.put("a", b"new", query="?durability=sync"), d.put("b", b"new"),
            d.put("n", bytes(200_000), query="?durability=sync"),
            d.ask("PATCH", DATA.format("default", "b") + "?offset=1", b"x"),
            d.ask("POST", "/v1/sessions", {"name": "made"}),
            d.ask("PATCH", "/v1/sessions/default", {"labels": {"a": "b"}}),
            d.ask("POST", "/v1/sessions/default/buffers", {"name": "m", "bytes": 8}),
            d.ask("POST", "/v1/sessions/default/pools", {"name": "p"}),
            d.ask("DELETE", "/v1/sessions/default/buffers/b")]


def ready(d, status):
    until(f"readyz says {status}", lambda: d.ask("GET", "/readyz").status == status)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("how", [renamed, removed, replaced])
def test_a_file_of_the_database_goes(start, tmp_path, how, suffix):
    """What is acknowledged is there after a restart, so nothing is acknowledged: not ready, writes refused, a line in
    the log."""
    state = str(tmp_path / "state")
    d = start(state=state)
    d.put("a", b"old", query="?durability=sync").expect(201)
    d.put("b", b"old").expect(201)
    before = d.log()
    path, old = f"{state}/gpubufd.db{suffix}", str(tmp_path / "old")
    how(path, old)
    d.put("a", bytes(100_000), query="?durability=sync").expect(503)  # at once
    ready(d, 503)
    for r in writes(d):
        problem = r.expect(503).json()
        assert (path in problem["detail"] and problem["code"] in ("store_unavailable", "storage_unavailable")
                and problem["retryable"]), problem
    line = until("the log says it", lambda: next((line for line in d.log()[len(before):].splitlines() if path in line),
                                                 None))
    assert "not ready" in line and " error " in line and ("replaced" if how is replaced
                                                          else "renamed or removed") in line, line
    assert d.data("a").body == b"old" and d.data("b").body == b"old"
    assert d.ask("GET", "/v1/sessions").status == 200 and d.ask("GET", "/livez").status == 200
    os.rename(old, path)
    ready(d, 200)
    assert [r.status for r in writes(d)] == [200, 200, 201, 200, 201, 200, 201, 201, 204]
    d.kill()
    d = start(state=state)
    assert (d.data("a").body == b"new" and d.data("n").body == bytes(200_000)
            and d.get("/v1/sessions/default")["labels"] == {"a": "b"})
    assert {b["name"] for b in d.get("/v1/sessions/default/buffers")["items"]} == {"a", "m", "n"}


def test_the_folder_of_the_database_goes(start, tmp_path):
    state, old = tmp_path / "state", tmp_path / "old"
    d = start(state=str(state))
    d.put("a", b"old", query="?durability=sync").expect(201)
    state.rename(old)
    d.put("a", b"new", query="?durability=sync").expect(503)
    ready(d, 503)
    state.mkdir()  # what would start here knows nothing
    d.put("a", b"new", query="?durability=sync").expect(503)
    assert d.ask("GET", "/readyz").status == 503 and d.data("a").body == b"old"
    state.rmdir()
    old.rename(state)
    ready(d, 200)
    d.put("a", b"new", query="?durability=sync").expect(200)
    d.kill()
    assert start(state=str(state)).data("a").body == b"new"


def test_a_database_that_another_program_holds_is_no_full_disk(start, tmp_path):
    d = start(state=str(tmp_path))
    d.put("x", b"1").expect(201)
    other = sqlite3.connect(tmp_path / "gpubufd.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert "database is locked" in d.put("y", b"1").problem(500, "store_failed")["detail"]
    until("the log says so", lambda: "changes were refused" in d.log() and "not ready" in d.log())
    other.execute("ROLLBACK")
    until("it goes on", lambda: "takes changes again" in d.log())
    d.put("y", b"1").expect(201)
    said = [x for x in d.log().splitlines() if " database: " in x]
    assert all("database is locked" in x for x in said[:-1]) and not any("full" in x or "room" in x for x in said)


def rests(pid):
    """How often each thread has begun to wait, by its name."""
    found = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status") as f:
            fields = dict(line.split(":\t", 1) for line in f.read().splitlines() if ":\t" in line)
        found[fields["Name"]] = found.get(fields["Name"], 0) + int(fields["voluntary_ctxt_switches"])
    return found


def test_the_writer_of_an_idle_daemon_rests(start, tmp_path):
    """It looks after the database's files once a second, as the housekeeper looks after the rest: no thread spins."""
    d = start(state=str(tmp_path))
    d.put("x", b"1").expect(201)
    pid = d.process.pid
    first = rests(pid)
    last = until("the housekeeper ran some times", lambda: (now := rests(pid))["gb-house"] >= first["gb-house"]
                 + 8 and now)
    assert last["gb-store"] - first["gb-store"] <= 4 * (last["gb-house"] - first["gb-house"]), (first, last)
