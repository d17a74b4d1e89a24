"""Bytes on disk come into memory: once for all that want them, whatever happens meanwhile, and on another machine."""
import threading

import pytest

import sharing
from durable import BEHIND, NONE, SIZES, SYNC, becomes_tidy, file_of, files, load, path_of, storage
from feed import Feed
from harness import DATA, PATIENCE_S, until
from test_durable_files import flip
from values import payload

pytestmark = pytest.mark.once  # what memory there is makes no difference to a load; test_durable_kill.py has both

HELD = ("--disk-fault", "load=delay/300")  # a load begins so late
ASYNC = {"Prefer": "respond-async"}
SIZE = SIZES[2]
S = "/v1/sessions/default"
MIB = 1 << 20


def stored(lives, *options, data=payload(SIZE, 1), query=SYNC, **more):
    """A daemon that has x on disk alone."""
    d = lives()
    d.put("x", data, query=query).expect(201)
    return lives(*options, **more)


def begun(d, session="default"):
    """An operation that loads x."""
    return load(d, "x", session, ASYNC).expect(202).headers["Location"]


def outcome(d, operation):
    """The status of its reply."""
    return d.ask("GET", operation, None, {"Prefer": "wait=30"}).expect(200).json()["status"]


def together(*work):
    """What each returns; they begin together."""
    results = [None] * len(work)

    def run(i):
        results[i] = work[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(work))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(PATIENCE_S)
        assert not t.is_alive()
    return results


@pytest.mark.parametrize("size", SIZES[::2])
def test_many_wait_for_one_load(lives, size):
    data = payload(size, 1)
    d = stored(lives, *HELD, data=data)
    slices = [lambda: d.data("x", query="?slice=::2")] * 16
    for r in together(*[lambda: load(d, "x")] * 16, *slices):
        assert r.status == 200 and (r.json()["state"] == "ready" if r.body[:1] == b"{" else r.body == data[::2]), r
    assert storage(d)["loads"] == 1 and storage(d)["cold_reads"] == 0 and storage(d)["stored_buffers"] == 0


def test_one_that_leaves_takes_nothing_from_others(lives):
    d = stored(lives, *HELD)
    leaves, stays = d.raw().request("POST", path_of("x") + "/load", ["Content-Length: 0"]), begun(d)
    leaves.close()
    assert outcome(d, stays) == 200
    assert storage(d)["loads"] == 1 and d.data("x").body == payload(SIZE, 1)


def test_a_load_goes_on_when_all_have_left(lives):
    d = stored(lives, *HELD)
    d.raw().request("POST", path_of("x") + "/load", ["Content-Length: 0"]).close()
    until("it is loaded", lambda: storage(d)["loads"] == 1)
    assert d.meta("x")["state"] == "ready"


def test_a_delete_during_a_load(lives):
    d = stored(lives, *HELD)
    operation = begun(d)
    d.ask("DELETE", path_of("x")).expect(204)
    assert outcome(d, operation) == 404
    d.data("x").problem(404, "buffer_not_found")
    d.settled()
    becomes_tidy(d.state)
    d.put("x", b"new", query=SYNC).expect(201)
    d = lives()
    assert d.data("x").body == b"new"


def test_a_replacement_during_a_load(lives):
    d = stored(lives, *HELD)
    operation, new = begun(d), payload(SIZE, 2)
    made = d.put("x", new).expect(200).json()
    assert made["stored_generation"] == made["generation"] == 2
    outcome(d, operation)
    d.settled()
    assert d.data("x").body == new and d.meta("x")["generation"] == 2
    becomes_tidy(d.state)
    d = lives()
    assert d.data("x").body == new


SLOTS = ("--slots-bytes", "8M", "--slot-bytes", "1M")  # as large as a block: several threads of the disk fill one each


@pytest.mark.parametrize("size", [MIB - 1, MIB, MIB + 1, 3 * MIB, 4 * MIB + 17, 21 * MIB + 5])
def test_slots_are_read_side_by_side(lives, size):
    data = payload(size, 1)
    d = stored(lives, *SLOTS, data=data, spec="host:discrete")
    load(d, "x").expect(200)
    assert d.meta("x")["state"] == "ready" and d.data("x").body == data and storage(d)["loads"] == 1


@pytest.mark.parametrize("block", [0, 1, 2, 3, 4, 20, 21])
def test_one_of_them_is_damaged(lives, block):
    """Nothing becomes visible, and the other blocks are served from the file."""
    data = payload(21 * MIB + 5, 1)
    d = stored(lives, *SLOTS, data=data, spec="host:discrete")
    flip(file_of(d, "x"), (4096 + block * MIB) * 8)
    load(d, "x").problem(410, "content_damaged")
    assert d.meta("x")["state"] == "stored" and storage(d)["loads"] == 0
    other = (block + 1) % 21
    r = d.ask("GET", DATA.format("default", "x"), None, {"Range": f"bytes={other * MIB}-{other * MIB + 9}"}).expect(206)
    assert r.body == data[other * MIB:other * MIB + 10]


def test_many_loads_share_the_slots(lives):
    """There are fewer slots than loads would fill."""
    d = lives()
    for i in range(12):
        d.put(f"x{i}", payload(6 * MIB + i, i), query=SYNC).expect(201)
    d = lives(*SLOTS, spec="host:discrete")
    assert [r.status for r in together(*[lambda i=i: load(d, f"x{i}") for i in range(12)])] == [200] * 12
    for i in range(12):
        assert d.data(f"x{i}").body == payload(6 * MIB + i, i)


def damaged(d, feed):
    """What the feed has told so far."""
    d.put("end", b"").expect(201)
    events = []
    while not events or events[-1].get("buffer") != "end":
        events.append(feed.next())
    return [e for e in events if e["type"] == "buffer.damaged"]


def test_small_bytes_are_replaced_during_a_load(lives):
    """The database has the former ones no longer, which is no damage: those that wait get the new ones."""
    d = stored(lives, *HELD, data=b"old")
    feed, first = Feed(d), begun(d)
    d.put("x", b"new").expect(200)
    d.ask("POST", path_of("x") + "/evict", {}).expect(200)
    second = begun(d)
    assert (outcome(d, first), outcome(d, second)) == (200, 200)
    assert d.data("x").body == b"new" and storage(d)["load_failures"] == 0 and damaged(d, feed) == []


@pytest.mark.parametrize("then", ["replaced", "deleted"])
def test_small_bytes_leave_before_a_download_has_them(lives, then):
    d = lives()
    d.put("x", b"old", query=SYNC).expect(201)
    d.put("y", payload(SIZE, 1), query=SYNC).expect(201)
    d = lives(*HELD, "--disk-threads", "1")
    feed = Feed(d)
    load(d, "y", headers=ASYNC).expect(202)  # keeps the thread for a while
    download = d.raw().request("GET", DATA.format("default", "x"))
    until("the download has begun", lambda: storage(d)["cold_reads"] == 1)
    if then == "replaced":
        d.put("x", b"new", query=NONE).expect(200)
        assert download.reply().expect(200).body == b"new"
    else:
        d.ask("DELETE", path_of("x")).expect(204)
        download.reply().problem(404, "buffer_not_found")
    assert damaged(d, feed) == []


def test_a_seal_during_a_load(lives):
    d = stored(lives, *HELD)
    operation = begun(d)
    d.ask("POST", path_of("x") + "/seal", {}).expect(200)
    assert outcome(d, operation) == 200
    x = d.meta("x")
    assert (x["state"], x["sealed"], x["generation"]) == ("ready", True, 1) and d.data("x").body == payload(SIZE, 1)
    d.put("x", b"new").problem(409, "sealed")


def test_the_end_of_the_session_during_a_load(lives):
    d = lives()
    d.ask("POST", "/v1/sessions", {"name": "s", "durability": "sync"}).expect(201)
    d.put("x", payload(SIZE, 1), "s").expect(201)
    d = lives(*HELD)
    operation = begun(d, "s")
    d.ask("DELETE", "/v1/sessions/s").expect(204)
    r = d.ask("GET", operation, None, {"Prefer": "wait=30"})
    assert r.status == 404 or r.json()["status"] in (404, 409), r
    d.settled()
    becomes_tidy(d.state)
    assert files(d.state) == {}
    d.stop()


def test_a_stop_during_a_load(lives):
    d = stored(lives, *HELD)
    begun(d)
    d = lives(end="stop")
    assert d.meta("x")["state"] == "stored" and d.data("x").body == payload(SIZE, 1)


def test_a_load_waits_for_room_in_the_pool(lives):
    d = lives()
    d.ask("POST", S + "/pools", {"name": "p", "max_bytes": 16 << 20}).expect(201)
    d.put("x", payload(SIZE, 1), query=SYNC + "&pool=p").expect(201)
    d = lives()
    d.put("other", payload(SIZE, 2), query="?pool=p").expect(201)
    operation = begun(d)
    assert d.get(operation)["status"] is None
    d.ask("DELETE", path_of("other")).expect(204)
    assert outcome(d, operation) == 200
    assert d.meta("x")["pool"] == "p" and d.data("x").body == payload(SIZE, 1)


def test_a_quota_too_small_then_enough(lives):
    d = stored(lives)
    d.ask("PATCH", S, {"quota": {"bytes": SIZE - 1}}).expect(200)
    load(d, "x").problem(507, "quota_exceeded")
    assert d.data("x").body == payload(SIZE, 1) and d.meta("x")["state"] == "stored"
    d.ask("PATCH", S, {"quota": {"bytes": SIZE}}).expect(200)
    assert until("a failure is forgotten", lambda: load(d, "x").status == 200)


@pytest.mark.parametrize("size", SIZES)
def test_a_mapping_has_the_same_bytes(lives, size):
    data = payload(size, 1)
    d = stored(lives, data=data, query=SYNC + "&kind=pageable")
    with sharing.Local(d.unix) as local, sharing.Memory(local.map("x")) as memory:
        assert memory.bytes() == data
        assert storage(d)["loads"] == 1 and d.data("x").body == data
        assert local.end(memory.info["lease"]).status == 204


# --- another machine --------------------------------------------------------------------------------------------------


def test_fewer_devices(lives, simulated):
    two, one = simulated("devices=2,bytes=64M"), simulated("devices=1,bytes=64M")
    d = lives(spec=two)
    d.ask("POST", S + "/pools", {"name": "p", "device": 1}).expect(201)
    d.put("x", payload(SIZE, 1), query=SYNC + "&device=1").expect(201)
    tag = d.put("y", payload(SIZE, 2), query=SYNC + "&pool=p").expect(201).headers["ETag"]
    d = lives(spec=one)
    for name, seed in (("x", 1), ("y", 2)):
        assert d.meta(name)["state"] == "stored" and d.data(name).body == payload(SIZE, seed)
        assert load(d, name).expect(200).json()["device"]["index"] == 0
        assert d.data(name).body == payload(SIZE, seed)
    assert d.ask("GET", S + "/pools/p").expect(200).json()["state"] == "lost"
    d.put("z", payload(SIZE), query=BEHIND).expect(201)
    until("the housekeeper has looked for room", lambda: d.meta("z")["stored_generation"] == 1)
    d = lives(spec=two)
    assert d.meta("x")["state"] == "stored" and d.data("y").headers["ETag"] == tag


def test_another_backend_and_back(lives):
    shapes = {"small": 1000, "x": SIZE}
    for first, second in (("host", "host:discrete"), ("host:discrete", "host")):
        d = lives(spec=first)
        tags = {n: d.put(n, payload(size, 1), query=SYNC).headers["ETag"] for n, size in shapes.items()}
        d = lives(spec=second)
        for n, size in shapes.items():
            assert load(d, n).expect(200).json()["state"] == "ready"
            assert d.data(n).body == payload(size, 1) and d.data(n).headers["ETag"] == tags[n]
            d.ask("PATCH", DATA.format("default", n) + "?offset=3", b"abc").expect(200)
        d = lives(spec=first)
        for n, size in shapes.items():
            assert d.data(n).body[:6] == payload(size, 1)[:3] + b"abc" and d.data(n).headers["ETag"] != tags[n]


@pytest.mark.parametrize("size", SIZES[::2])
def test_a_daemon_without_a_folder_leaves_all_in_place(lives, size):
    d = lives()
    tags = {n: d.put(n, payload(size, 1), query=SYNC).headers["ETag"] for n in ("x", "y", "gone")}
    d = lives("--data-dir", "none")
    x = d.meta("x")
    assert (x["state"], x["durability"]) == ("stored", "sync")
    for r in (d.data("x"), load(d, "x")):
        r.problem(503, "storage_unavailable")
    d.put("x", b"new").problem(501, "unsupported")
    d.put("other", b"abc").expect(201)
    d.ask("PATCH", path_of("y"), {"labels": {"a": "b"}})
    d.ask("DELETE", path_of("gone")).expect(204)
    d = lives()
    for n in ("x", "y"):
        assert d.data(n).body == payload(size, 1) and d.data(n).headers["ETag"] == tags[n]
    d.data("gone").problem(404, "buffer_not_found")
    becomes_tidy(d.state)
