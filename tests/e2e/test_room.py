"""Memory that is full makes room: who leaves, who stays, and that bytes are always right."""
import os
import random
import threading

import pytest

from conform import Session
from harness import until
from sharing import Local
from test_storage_answers import again
from values import payload

MIB = 1 << 20
OPTIONS = ("--disk-reserve", "0", "--evict-high", "0", "--min-resident-ms", "0")


@pytest.fixture
def place(start, tmp_path):
    return lambda *options: start(*OPTIONS, *options, state=str(tmp_path))


def states(s):
    return {b["name"]: b["state"] for b in s.get("buffers?limit=1000")["items"]}


def pool(s, mib, name="p"):
    return s.post("pools", {"name": name, "max_bytes": mib * MIB}, 201)


def put(s, name, mib=2, query="", seed=0, status=None):
    return s.put(name, payload(mib * MIB, seed), query, status)


def counts(s):
    found = s.get("/v1/storage")
    return found["evictions"], found["evictions_for_room"]


@pytest.mark.parametrize("what", ["pool", "quota"])
def test_more_than_fits(place, what):
    s = Session(place())
    s.patch("", {"durability": "sync"})
    if what == "pool":
        pool(s, 8)
        s.patch("", {"pool": "p"})
    else:
        s.patch("", {"quota": {"bytes": 8 * MIB}})
    for i in range(12):
        put(s, f"b{i}", seed=i)
        assert s.get()["used_bytes"] <= 8 * MIB
    assert states(s) == {f"b{i}": "stored" if i < 8 else "ready"
                         for i in range(12)}, "what was used longest ago leaves first"
    assert counts(s) == (8, 8)
    assert b'gpubufd_evictions_total{why="room"} 8\n' in s.daemon.ask("GET", "/metrics").body
    for i in range(12):
        assert s.data(f"b{i}") == payload(2 * MIB, i)
        s.post(f"buffers/b{i}/load")  # takes the place of others, too
        assert s.meta(f"b{i}")["state"] == "ready" and s.get()["used_bytes"] <= 8 * MIB
    assert s.get("/v1/storage")["reloads_within_minute"] == 12
    s.buffer("zeros", bytes=4 * MIB)
    s.copy("copied", "b0", 201)
    assert s.data("copied") == payload(2 * MIB)


def test_what_is_larger_than_all_together(place):
    """Nothing leaves in vain."""
    s = Session(place())
    pool(s, 8)
    s.patch("", {"durability": "sync", "quota": {"bytes": 16 * MIB}})
    for i in range(4):
        put(s, f"b{i}", query="?pool=p")
    assert (s.ask("PUT", "buffers/more/data?pool=p", payload(9 * MIB)).problem(507, "out_of_memory")["limit_bytes"] == 8
            * MIB)
    put(s, "stays", 4, "?pool=p&durability=none")
    assert list(states(s).values()).count("ready") == 3
    problem = s.ask("PUT", "buffers/more/data?pool=p", payload(6 * MIB)).problem(507, "out_of_memory")
    assert f"evictable_bytes: {4 * MIB} of other buffers" in problem["detail"]
    assert s.ask("PUT", "buffers/more/data", payload(14 * MIB)).problem(507, "quota_exceeded")
    assert list(states(s).values()).count("ready") == 3


def test_who_stays(place):
    d = place()
    s = Session(d)
    pool(s, 12)
    put(s, "mortal", query="?pool=p")
    put(s, "resident", query="?pool=p&durability=sync")
    assert s.patch("buffers/resident", {"resident": True})["resident"] is True
    put(s, "spills", query="?pool=p&spill=disk")
    put(s, "durable", query="?pool=p&durability=behind")
    assert s.meta("spills")["spill"] == "disk" and s.meta("durable")["spill"] == "never"
    put(s, "small", query="?pool=p")
    s.put("tiny", b"abc", "?spill=disk")
    put(s, "new", 4, "?pool=p", 7)
    found = states(s)
    assert {n for n in found if found[n] == "stored"} <= {"spills", "durable"} and "stored" in found.values()
    put(s, "newer", 2, "?pool=p", 8)
    assert {n for n, state in states(s).items() if state == "stored"} == {"spills", "durable"}
    s.ask("PUT", "buffers/newest/data?pool=p", payload(2 * MIB)).problem(507, "out_of_memory")
    for name in ("mortal", "resident", "spills", "durable", "small"):
        assert s.data(name) == payload(2 * MIB)


def test_mapped_bytes_stay(place):
    d = place()
    s = Session(d)
    s.patch("", {"durability": "sync", "quota": {"bytes": 4 * MIB}})
    for name in ("a", "b"):
        put(s, name, query="?kind=pageable")
    with Local(d.unix) as local:
        assert local.map("a", "default", mode="read").status == 200
        put(s, "c", query="?kind=pageable")
        assert states(s) == {"a": "ready", "b": "stored", "c": "ready"}
        s.ask("PUT", "buffers/d/data?kind=pageable", payload(4 * MIB)).problem(507, "quota_exceeded")


def test_the_order(place):
    """Sessions of a low priority first, then what the disk has already, then what was not used for longest."""
    d = place("--durable-lag", "3600")
    low = Session(d)
    low.patch("", {"quota": {"bytes": 10 * MIB}})
    put(low, "dirty", query="?durability=behind")
    for name in ("old", "read", "young"):
        put(low, name, query="?durability=sync")
    assert len(low.data("old")) == len(low.data("read")) == 2 * MIB
    put(low, "spills", query="?spill=disk")
    gone = []
    for i in range(4):
        put(low, f"new{i}", query="?durability=none")
        gone += [n for n, state in sorted(states(low).items()) if state == "stored" and n not in gone]
    assert gone == ["young", "old", "read", "dirty"]
    low.patch("", {"priority": 1001}, 400)
    low.patch("", {"priority": -1}, 400)
    low.patch("", {"priority": "high"}, 400)
    low.patch("", {"spill": "moon"}, 400)
    low.patch("buffers/new0", {"resident": 1}, 400)
    low.ask("PUT", "buffers/x/data?spill=tape", b"x").problem(400, "invalid_argument")
    low.ask("PATCH", "buffers/new0/data?offset=0&spill=disk", b"x").problem(400, "unknown_parameter")


@pytest.mark.parametrize("kind", ["device", "managed"])
def test_sessions_of_a_device(start, tmp_path, kind):
    """A device that is full takes from any session, the lowest priority first."""
    d = start(*OPTIONS, state=str(tmp_path), spec="host:bytes=64M")
    first, second, third = Session(d), Session(d, "second"), Session(d, "third")
    first.post("/v1/sessions", {"name": "second", "priority": 5, "durability": "sync"}, 201)
    first.post("/v1/sessions", {"name": "third", "priority": 2, "durability": "sync"}, 201)
    first.patch("", {"priority": 9})
    for i in range(3):
        put(second, f"s{i}", 8, "?kind=" + kind, i)
        put(third, f"t{i}", 8, "?kind=" + kind, 10 + i)
    put(first, "a", 24, "?kind=" + kind)
    assert "stored" in states(third).values() and "stored" not in states(second).values()
    put(first, "b", 24, "?kind=" + kind)
    assert set(states(third).values()) == {"stored"} and "stored" in states(second).values()
    for i in range(3):
        assert second.data(f"s{i}") == payload(8 * MIB, i) and third.data(f"t{i}") == payload(8 * MIB, 10 + i)


def test_settings_survive(place, start):
    d = place()
    s = Session(d)
    s.patch("", {"priority": 7, "spill": "disk", "durability": "sync"})
    put(s, "b", query="?spill=never")
    s.buffer("r", bytes=100000, resident=True)
    s = Session(again(d, start, *OPTIONS))
    found = s.get()
    assert (found["priority"], found["spill"]) == (7, "disk")
    assert (s.meta("b")["spill"], s.meta("b")["resident"]) == ("never", False)
    assert (s.meta("r")["spill"], s.meta("r")["resident"]) == ("disk", True)


def test_the_water_marks(start, tmp_path):
    s = Session(start("--disk-reserve", "0", "--min-resident-ms", "0", "--evict-high", "75", "--evict-low", "25",
                      state=str(tmp_path)))
    pool(s, 16)
    for i in range(7):
        put(s, f"b{i}", query="?pool=p&durability=sync")
    until("the pool is at its low mark", lambda: list(states(s).values()).count("ready") * 2 * MIB <= 4 * MIB)


def test_the_water_marks_of_a_small_pool(start, tmp_path):
    """The marks are percents of it, however few bytes that is: what lies below them stays."""
    s = Session(start("--min-resident-ms", "0", "--evict-high", "50", "--evict-low", "25", state=str(tmp_path)))
    for name, max_bytes in (("tiny", 8000), ("small", 15000), ("full", 15001)):
        s.post("pools", {"name": name, "max_bytes": max_bytes}, 201)
    s.put("in_tiny", payload(1000), "?pool=tiny&durability=sync")
    s.put("in_small", payload(7500), "?pool=small&durability=sync")
    s.put("in_full", payload(7600), "?pool=full&durability=sync")
    until("what is beyond its mark has left", lambda: states(s)["in_full"] == "stored")
    assert states(s) == {"in_tiny": "ready", "in_small": "ready", "in_full": "stored"}


def test_a_low_mark_above_the_high_one(start):
    d = start("--evict-high", "80", wait=False)
    assert "--evict-low 85 is above --evict-high 80" in d.finished(78)
    start("--evict-high", "0").stop()


def test_a_disk_that_is_full(place):
    """What must be written first stays, and what the disk has leaves."""
    s = Session(place("--durable-lag", "3600", "--disk-fault", "fallocate@3+=ENOSPC"))
    s.patch("", {"quota": {"bytes": 6 * MIB}})
    put(s, "clean0", query="?durability=sync")
    put(s, "clean1", query="?durability=sync")
    put(s, "spills", query="?spill=disk")
    put(s, "new0")
    put(s, "new1")
    assert states(s) == {"clean0": "stored", "clean1": "stored", "spills": "ready", "new0": "ready", "new1": "ready"}
    s.ask("PUT", "buffers/new2/data", payload(2 * MIB)).problem(507, "quota_exceeded")
    assert states(s)["spills"] == "ready" and s.data("spills") == payload(2 * MIB)


def test_bytes_that_came_just_now_stay_a_while(start, tmp_path):
    """The allocation waits until one of them may leave."""
    s = Session(start("--disk-reserve", "0", "--min-resident-ms", "700", state=str(tmp_path)))
    s.patch("", {"durability": "sync", "quota": {"bytes": 4 * MIB}})
    for i in range(5):
        put(s, f"b{i}", seed=i)
    assert list(states(s).values()).count("ready") == 2
    for i in range(5):
        assert s.data(f"b{i}") == payload(2 * MIB, i)


class Worker(threading.Thread):
    """Puts, reads, copies and deletes buffers of its own, and knows what each must hold."""

    def __init__(self, d, number, rounds):
        super().__init__()
        self.session, self.number, self.rounds, self.error = Session(d), number, rounds, None
        self.random, self.seeds = random.Random(number), {}

    def step(self, i):
        s, name = self.session, f"w{self.number}.{self.random.randrange(6)}"
        what = self.random.choice(("put", "put", "get", "get", "slice", "copy", "delete"))
        if what == "put" or name not in self.seeds:
            seed = self.number * 1000 + i
            put(s, name, 1, "?pool=p&durability=" + self.random.choice(("sync", "behind")), seed)
            self.seeds[name] = seed
        elif what == "get":
            assert s.data(name) == payload(MIB, self.seeds[name]), name
        elif what == "slice":
            assert s.data(name, "?slice=5:1000000:3") == payload(MIB, self.seeds[name])[5:1000000:3], name
        elif what == "copy":
            r = s.ask("POST", f"buffers/{name}.c/copy", {"from": name})
            assert r.status in (200, 201), r
            assert s.data(name + ".c") == payload(MIB, self.seeds[name]), name
            s.delete(f"buffers/{name}.c")
        else:
            s.delete("buffers/" + name)
            del self.seeds[name]

    def run(self):
        try:
            for i in range(self.rounds):
                self.step(i)
        except BaseException as e:  # noqa: B902
            self.error = e


def test_many_clients_over_a_small_pool(place):
    d = place()
    s = Session(d)
    pool(s, 24)
    s.patch("", {"durability": "sync", "pool": "p"})
    workers = [Worker(d, n, int(os.environ.get("GB_ROOM_ROUNDS", "25"))) for n in range(8)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert [w.error for w in workers if w.error] == []
    for w in workers:
        for name, seed in w.seeds.items():
            assert s.data(name) == payload(MIB, seed)
    found = s.get("pools/p")
    assert found["used_peak_bytes"] <= 24 * MIB and counts(s)[1] > 0


def test_the_quota_of_bytes_on_disk(place, start):
    d = place("--durable-lag", "3600")
    s = Session(d)
    assert s.get()["quota"]["stored_bytes"] is None
    assert s.patch("", {"quota": {"stored_bytes": 5 * MIB}})["quota"]["stored_bytes"] == 5 * MIB
    put(s, "a", query="?durability=sync")
    put(s, "b", query="?durability=sync")
    assert s.get()["used_stored_bytes"] == 4 * MIB
    problem = s.ask("PUT", "buffers/c/data?durability=sync", payload(2 * MIB)).problem(507, "quota_exceeded")
    assert (problem["limit_bytes"], problem["used_bytes"], problem["requested_bytes"]) == (5 * MIB, 4 * MIB, 2 * MIB)
    put(s, "a", query="?durability=sync", seed=3)  # takes the place of the stored generation
    put(s, "late", query="?durability=behind")
    s.ask("POST", "buffers/late/store", {}).problem(507, "quota_exceeded")
    put(s, "mortal")
    for name in ("mortal", "late"):
        s.ask("POST", f"buffers/{name}/evict", {}).problem(507, "quota_exceeded")
    s.ask("PATCH", "buffers/mortal", {"durability": "sync"}).problem(507, "quota_exceeded")
    assert s.meta("mortal")["durability"] == "none"
    s.copy("copied", "a", 201)
    s.ask("PATCH", "buffers/copied", {"durability": "sync"}).problem(507, "quota_exceeded")
    s.delete("buffers/b")
    assert s.post("buffers/mortal/evict")["tier"] == "disk" and s.get()["used_stored_bytes"] == 4 * MIB
    s.patch("", {"quota": {"bytes": 4 * MIB}}, 200)
    s = Session(again(d, start, *OPTIONS))
    assert s.get()["quota"]["stored_bytes"] == 5 * MIB and s.get()["used_stored_bytes"] == 2 * MIB
    assert s.data("a") == payload(2 * MIB, 3)
    s.delete("buffers/a")
    assert s.get()["used_stored_bytes"] == 0
    s.patch("", {"quota": {"stored_bytes": -1}}, 400)


def test_room_is_not_made_beyond_the_quota_on_disk(place):
    s = Session(place())
    s.patch("", {"spill": "disk", "quota": {"bytes": 4 * MIB, "stored_bytes": 2 * MIB}})
    for name in ("a", "b", "c"):
        put(s, name)
    assert sorted(states(s).values()) == ["ready", "ready", "stored"]
    s.ask("PUT", "buffers/d/data", payload(2 * MIB)).problem(507, "quota_exceeded")


@pytest.mark.parametrize("how", ["load", "restore"])
@pytest.mark.parametrize("what,code", [("pool", "out_of_memory"), ("quota", "quota_exceeded")])
def test_many_that_do_not_fit_together(place, how, what, code):
    """Those loaded together take the place of others, and not of each other; what the reply says of memory is so."""
    s = Session(place())
    if what == "pool":
        pool(s, 8)
    s.patch("", {"durability": "sync", **({"pool": "p"} if what == "pool" else {"quota": {"bytes": 8 * MIB}})})
    names = [f"b{i}" for i in range(6)]
    for i, name in enumerate(names):
        put(s, name, seed=i)
    s.post("checkpoints", {"name": "c"}, 201)
    s.post("evict", {})
    put(s, "x")
    if how == "load":
        found = s.post("load", {"prefix": "b"})
        assert (found["buffers"], found["bytes"]) == (4, 8 * MIB)
    else:
        found = s.post("/v1/checkpoints/c/restore", {"load": "eager", "replace": True})
        assert (found["buffers"], found["loaded"]) == (6, 4)
    assert found["skipped_buffers"] == 2 and [skip["code"] for skip in found["skipped"]] == [code, code]
    out = {skip["buffer"] for skip in found["skipped"]}
    assert states(s) == {"x": "stored", **{name: "stored" if name in out else "ready" for name in names}}
    assert s.post("load", {"prefix": "b"})["skipped_buffers"] == 2, "those in memory do not make way for the rest"
    assert {name for name, state in states(s).items() if state == "ready"} == set(names) - out
    s.post(f"buffers/{min(out)}/load")  # alone it takes another one's place, as always
    assert states(s)[min(out)] == "ready" and list(states(s).values()).count("ready") == 4
    for i, name in enumerate(names):
        assert s.data(name) == payload(2 * MIB, i)
