"""What the interface says of bytes that leave memory on request: each answer that the document has, and what comes
back."""
import os

import pytest

from conform import Session, interface
from feed import Feed
from harness import until
from sharing import Local
from test_storage_answers import again, check_storage, refusals
from values import payload

LARGE = 3 << 20  # beyond what lies in the database
SMALL = b"abcd"
S = "/v1/sessions/default"


def used(s):
    return s.get()["used_bytes"]


def where(s, name):
    found = s.meta(name)
    return found["state"], found["tier"], found["stored_generation"]


@pytest.mark.parametrize("durability, stored", [("none", None), ("behind", 1), ("sync", 1)])
def test_out_of_memory_and_back(start, durability, stored):
    d = start("--durable-lag", "3600")
    s = Session(d)
    before = s.put("b", payload(LARGE), "?durability=" + durability)
    tag = d.ask("HEAD", S + "/buffers/b/data").headers["ETag"]
    assert before["tier"] in ("device", "host") and used(s) == LARGE
    answer = s.ask("POST", "buffers/b/evict", {}).expect(200)
    gone = answer.json()
    assert (gone["state"], gone["tier"], gone["stored_generation"], gone["generation"]) == ("stored", "disk", stored, 1)
    assert answer.headers["ETag"] == s.ask("GET", "buffers/b").headers["ETag"] and used(s) == 0
    assert s.post("buffers/b/evict")["tier"] == "disk"  # again: nothing to do
    check_storage(s, stored_buffers=1, evictions=1)
    assert b'gpubufd_evictions_total{why="request"} 1\n' in d.ask("GET", "/metrics").expect(200).body
    assert s.data("b") == payload(LARGE) and d.ask("HEAD", S + "/buffers/b/data").headers["ETag"] == tag
    assert s.post("buffers/b/load")["tier"] == before["tier"] and used(s) == LARGE
    assert s.data("b") == payload(LARGE) and where(s, "b") == ("ready", before["tier"], stored)
    s.post("buffers/b/evict")
    s.put("b", payload(LARGE, 2), "?durability=" + durability)  # over bytes that are on disk alone
    assert s.data("b") == payload(LARGE, 2) and s.meta("b")["generation"] == 2


def test_what_was_spilled_ends_with_the_process(place, start):
    s = Session(place())
    for name, durability in (("spilled", "none"), ("kept", "sync")):
        s.put(name, payload(LARGE), "?durability=" + durability)
        s.post(f"buffers/{name}/evict")
    s = Session(again(s.daemon, start))
    assert where(s, "spilled") == ("lost", None, None) and where(s, "kept") == ("stored", "disk", 1)
    refusals(s, 410, "content_lost", [("POST", "buffers/spilled/evict")])


def test_spilled_bytes_become_durable(place, start):
    s = Session(place())
    s.put("b", payload(LARGE))
    s.post("buffers/b/evict")
    until("its bytes are loaded", lambda: s.ask("PATCH", "buffers/b", {"durability": "sync"}).status == 200)
    assert s.meta("b")["stored_generation"] == 1
    s = Session(again(s.daemon, start))
    assert where(s, "b") == ("stored", "disk", 1) and s.data("b") == payload(LARGE)


@pytest.mark.parametrize("loaded", [True, False])
def test_spilled_bytes_are_not_those_of_a_buffer_that_is_durable_by_now(place, start, loaded):
    """The disk has the same bytes already, but only until the process ends: they are stored before they leave
    memory."""
    s = Session(place("--durable-lag", "3600"))
    s.put("b", payload(LARGE))
    s.post("buffers/b/evict")
    if loaded:
        s.post("buffers/b/load")
    until("it is durable", lambda: s.ask("PATCH", "buffers/b", {"durability": "behind"}).status == 200)
    assert s.post("buffers/b/evict")["stored_generation"] == 1
    s = Session(again(s.daemon, start))
    assert where(s, "b") == ("stored", "disk", 1) and s.data("b") == payload(LARGE)


def test_small_bytes(start):
    s = Session(start())
    s.put("mortal", SMALL)
    assert "65536" in s.ask("POST", "buffers/mortal/evict").problem(400, "invalid_argument")["detail"]
    s.put("edge", payload(65536))
    refusals(s, 400, "invalid_argument", [("POST", "buffers/edge/evict")])
    s.put("more", payload(65537))
    s.put("durable", SMALL, "?durability=sync")
    assert s.post("buffers/more/evict")["tier"] == s.post("buffers/durable/evict")["tier"] == "disk"
    assert s.data("durable") == SMALL and s.data("more") == payload(65537)


def test_conditions_and_keys(start):
    d = start()
    s = Session(d)
    s.put("b", payload(LARGE))
    tag = s.ask("GET", "buffers/b").headers["ETag"]
    s.ask("POST", "buffers/b/evict", headers={"If-Match": '"7.3"'}).problem(412, "precondition_failed")
    key = {"Idempotency-Key": "k"}
    s.ask("POST", "buffers/b/evict", headers={"If-Match": tag, **key}).expect(200)
    s.post("buffers/b/load")
    s.ask("POST", "buffers/b/evict", headers={"If-Match": tag, **key}).expect(200)
    assert s.meta("b")["state"] == "ready", "the first answer was repeated"
    s.ask("POST", "evict", {"prefix": "b"}, key).problem(422, "idempotency_key_reused")
    s.ask("POST", "evict", {"prefix": "b"}, {"Idempotency-Key": "l"}).expect(200)
    s.ask("POST", "buffers/b/evict", headers={"Idempotency-Key": "l"}).problem(422, "idempotency_key_reused")
    refusals(s, 404, "buffer_not_found", [("POST", "buffers/none/evict")])


def test_in_the_background(start):
    s = Session(start("--disk-fault", "write+=delay/20,read@2+=delay/20"))
    s.put("b", payload(LARGE))

    def done(path):
        r = s.ask("POST", path, {}, {"Prefer": "respond-async"}).expect(202)
        found = s.ask("GET", r.headers["Location"], headers={"Prefer": "wait=30"}).expect(200).json()
        assert (found["state"], found["kind"]) == ("done", path.rsplit("/")[-1]), found
        return found["result"]

    assert done("buffers/b/evict")["state"] == "stored"
    assert done("load") == {"buffers": 1, "bytes": LARGE, "skipped_buffers": 0, "skipped": []}
    s.put("b", payload(LARGE, 2))
    assert done("evict") == {"buffers": 1, "bytes": LARGE, "skipped_buffers": 0, "skipped": []}
    assert s.data("b") == payload(LARGE, 2)


def test_a_session_sleeps_and_wakes(start):
    s = Session(start())
    for i in range(20):
        s.put(f"w.{i}", payload(100000, i), "?durability=" + ("none", "sync", "behind")[i % 3])
    s.put("w.small", SMALL)
    s.put("other", payload(100000))
    assert s.post("evict", {"prefix": "w."}) == {
        "buffers": 20, "bytes": 2000000, "skipped_buffers": 1,
        "skipped": [{"buffer": "w.small", "code": "invalid_argument"}]}
    assert used(s) == 100000 + len(SMALL) and s.meta("other")["state"] == "ready"
    assert s.post("evict")["buffers"] == 1 and used(s) == len(SMALL)
    assert s.post("load", {"prefix": "w.1"}) == {"buffers": 11, "bytes": 1100000, "skipped_buffers": 0, "skipped": []}
    assert s.post("load", {"prefix": ""})["buffers"] == 10
    assert s.post("load")["buffers"] == 0
    for i in range(20):
        assert where(s, f"w.{i}")[0] == "ready" and s.data(f"w.{i}") == payload(100000, i)
    for what in ("evict", "load"):
        for body in ({"prefix": "-"}, {"prefix": 1}, {"prefix": "x" * 129}, {"names": []}, []):
            s.ask("POST", what, body).expect(400)


def test_a_session_without_room_to_wake(start):
    s = Session(start())
    for name in ("a", "b"):
        s.put(name, payload(LARGE))
    s.post("evict")
    s.patch("", {"quota": {"bytes": LARGE}})
    found = s.post("load")
    assert (found["buffers"], found["bytes"], found["skipped_buffers"]) == (1, LARGE, 1)
    assert found["skipped"][0]["code"] == "quota_exceeded" and used(s) == LARGE


def test_at_most_a_hundred_skipped_are_told(start):
    s = Session(start())
    for i in range(101):
        s.put(f"b{i}", SMALL)
    found = s.post("evict")
    assert (found["buffers"], found["skipped_buffers"], len(found["skipped"])) == (0, 101, 100)


def test_bytes_in_use_stay(start):
    d = start()
    s = Session(d)
    s.put("b", payload(LARGE), "?durability=behind")
    r = d.raw().request("PUT", f"{S}/buffers/b/data?in_place=true", [f"Content-Length: {LARGE}"], b"x" * (1 << 20))
    until("it runs", lambda: d.stats()["running"]["uploads"] == 1)
    busy = s.ask("POST", "buffers/b/evict")
    assert busy.problem(409, "buffer_busy")["retryable"] and int(busy.headers["Retry-After"]) >= 1
    r.close()
    until("it is partial", lambda: s.meta("b")["state"] == "partial")
    refusals(s, 409, "buffer_partial", [("POST", "buffers/b/evict")])


def test_mapped_bytes_stay(start):
    d = start()
    s = Session(d)
    s.put("b", payload(LARGE), "?kind=pageable")
    for mode in ("read", "write"):
        with Local(d.unix) as local:
            assert local.map("b", "default", mode=mode).status == 200
            refusals(s, 409, "mapped", [("POST", "buffers/b/evict")])
            assert s.post("evict")["skipped"] == [{"buffer": "b", "code": "mapped"}]
        until("the lease has ended", lambda: s.meta("b")["leases"] == 0)
    assert s.data("b") == payload(LARGE)


def test_a_daemon_that_stores_nothing(start):
    s = Session(start("--data-dir", "none"))
    s.put("b", payload(LARGE))
    refusals(s, 501, "unsupported", [("POST", "buffers/b/evict")])
    assert s.post("evict") == {"buffers": 0, "bytes": 0, "skipped_buffers": 1,
                               "skipped": [{"buffer": "b", "code": "unsupported"}]}
    assert s.post("load")["buffers"] == 0


@pytest.mark.parametrize("durability", ["none", "behind"])
def test_a_disk_without_room(start, durability):
    s = Session(start("--disk-fault", "fallocate=ENOSPC", "--durable-lag", "3600"))
    s.put("b", payload(LARGE), "?durability=" + durability)
    s.ask("POST", "buffers/b/evict").problem(507, "storage_full")
    assert s.meta("b")["state"] == "ready" and s.data("b") == payload(LARGE)
    assert s.post("evict")["skipped"] == [{"buffer": "b", "code": "storage_full"}]


@pytest.mark.parametrize("durability", ["none", "behind"])
def test_a_disk_that_fails(start, durability):
    s = Session(start("--disk-fault", "write=EIO", "--durable-lag", "3600"))
    s.put("b", payload(LARGE), "?durability=" + durability)
    s.ask("POST", "buffers/b/evict").problem(500, "storage_failed")
    assert s.meta("b")["state"] == "ready" and s.data("b") == payload(LARGE)


def test_a_folder_that_is_not_there(place, start):
    d = place()
    Session(d).put("b", payload(LARGE), "?durability=sync")
    d.kill()
    data = f"{d.state}/data"
    os.rename(data, data + ".away")
    s = Session(start(state=d.state))
    s.put("new", payload(LARGE))
    s.ask("POST", "buffers/new/evict").problem(503, "storage_unavailable")
    assert s.post("load")["skipped"] == [{"buffer": "b", "code": "storage_unavailable"}]
    assert s.meta("new")["state"] == "ready"


def test_the_feed_tells(start):
    d = start()
    s = Session(d)
    assert "buffer.evicted" in interface(d).document["components"]["schemas"]["FeedEvent"]["properties"]["type"]["enum"]
    s.put("b", payload(LARGE))
    with Feed(d, "?type=buffer.evicted") as feed:
        s.post("buffers/b/evict")
        e = feed.next()
        assert {k: e[k] for k in ("type", "session", "buffer", "bytes", "generation")} == {
            "type": "buffer.evicted", "session": "default", "buffer": "b", "bytes": LARGE, "generation": 1}


def test_an_upload_in_parts_has_a_durability(start):
    s = Session(start())
    at = s.ask("POST", "uploads", {"buffer": "b", "bytes": 4, "durability": "sync"}).expect(201).headers["Location"]
    s.ask("PUT", at + "/parts?offset=0", SMALL).expect(200)
    done = s.post(at + "/complete", status=201)
    assert (done["durability"], done["stored_generation"]) == ("sync", 1)
    s.ask("POST", "uploads", {"buffer": "b", "bytes": 4, "durability": "maybe"}).expect(400)
