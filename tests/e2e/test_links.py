"""Links: a buffer whose bytes are those of a sealed one, in one memory and one file."""
import os

import pytest

from conform import Session, refuse
from durable import becomes_tidy, files
from gpubuf_cli import NOT_FOUND, USAGE, Cli
from harness import until
from pyclient import client_of, gpubuf
from sharing import Local, Memory
from test_order import ended, hold, left, still_held
from values import payload

BYTES = 3 << 20
ONE, TWO = payload(BYTES, 1), payload(BYTES, 2)


def link(s, name, source, **more):
    return s.ask("POST", f"buffers/{name}/copy", {"from": source, "share": True, **more})


def used(s):
    return s.get("")["used_bytes"]


def seal(s, name, data, query="?dtype=float32"):
    s.put(name, data, query)
    s.ask("POST", f"buffers/{name}/seal").expect(200)


def delete(s, name):
    s.ask("DELETE", f"buffers/{name}").expect(204)


@pytest.fixture
def two(s):
    """A session with the sealed buffers v1 and v2."""
    seal(s, "v1", ONE)
    seal(s, "v2", TWO)
    return s


def test_a_link_takes_no_memory(two):
    before = used(two)
    made = link(two, "current", "v1").expect(201)
    v1 = two.meta("v1")
    assert made.headers["Location"].endswith("/buffers/current") and made.json()["way"] == "none"
    assert used(two) == before and made.json()["generation"] == 1 and not made.json()["sealed"]
    for field in ("bytes", "dtype", "shape", "kind", "device", "pool", "crc32c", "state"):
        assert made.json()[field] == v1[field]
    assert made.json()["link"] == "v1" and v1["link"] is None
    assert two.data("current") == ONE
    switched = link(two, "current", "v2").expect(200).json()
    assert switched["link"] == two.meta("current")["link"] == "v2"
    assert switched["generation"] == 2 and used(two) == before and two.data("current") == TWO
    link(two, "current", "v2").expect(200)
    link(two, "other", "v2").expect(201)
    assert used(two) == before and two.data("current") == two.data("other") == TWO
    link(two, "current", "v1").expect(200)
    assert two.data("current") == ONE
    delete(two, "v1")
    assert used(two) == before and two.data("current") == ONE
    delete(two, "current")
    until("its memory is free", lambda: used(two) == before - BYTES)
    delete(two, "v2")
    assert used(two) == before - BYTES and two.data("other") == TWO and two.meta("other")["link"] is None
    delete(two, "other")
    until("all memory is free", lambda: used(two) == before - 2 * BYTES)


def test_a_link_that_is_written_has_memory_of_its_own(two):
    before = used(two)
    link(two, "current", "v1").expect(201)
    two.ask("PUT", "buffers/current/data?in_place=true", TWO).problem(409, "sealed")
    two.ask("POST", "buffers/current/fill", {"pattern": 1, "in_place": True}).problem(409, "sealed")
    written = two.ask("PATCH", "buffers/current/data?offset=1", b"xy").expect(200).json()
    assert written["link"] is None and two.meta("current")["link"] is None
    assert two.data("current") == ONE[:1] + b"xy" + ONE[3:] and two.data("v1") == ONE
    assert used(two) == before + BYTES
    two.ask("PUT", "buffers/current/data?in_place=true", TWO).expect(200)
    assert two.data("v1") == ONE
    link(two, "current", "v1").expect(200)
    until("that memory is free", lambda: used(two) == before)
    two.put("current", b"1234")
    assert two.data("current") == b"1234" and two.data("v1") == ONE
    two.put("plain", TWO, "?durability=none")
    link(two, "plain", "v1").expect(200)
    until("the memory of what it had is free", lambda: used(two) == before + 4)


def test_refused(two):
    two.put("open", ONE)
    two.put("mirrored", ONE, "?mirrored=true")
    two.ask("POST", "buffers/mirrored/seal").expect(200)
    two.put("sides", ONE, "?mirrored=true")
    elsewhere = {"name": two.name + "x"}
    two.client.ask("POST", "/v1/sessions", elsewhere).expect(201)
    before = used(two)
    one = {"from": "v1", "share": True}
    refuse(two, [("POST", f"buffers/{name}/copy", body, status, code, word) for name, body, status, code, word in (
        ("c", {**one, "from": "open"}, 400, "invalid_argument", "not sealed"),
        ("c", {**one, "from": "mirrored"}, 400, "invalid_argument", "mirrored"),
        ("c", {**one, "from": "none"}, 404, "buffer_not_found", "none"),
        ("open", {**one, "from": "open"}, 400, "invalid_argument", "itself"),
        ("v2", one, 409, "sealed", "v2"),
        ("sides", one, 400, "invalid_argument", "mirrored"),
        ("c", {**one, "from": elsewhere["name"] + "/v1"}, 400, "invalid_argument", "two sessions"),
        ("c", {**one, "share": "yes"}, 400, "wrong_type", "share"),
        ("c", {**one, "from_if_match": '"1.1.a"'}, 412, "precondition_failed", ""),
        ("c", {**one, "stream": "none"}, 404, "stream_not_found", "none"),
        *(("c", {**one, field: value}, 400, "invalid_argument", field) for field, value in (
            ("offset", 0), ("from_offset", 0), ("bytes", 4), ("in_place", False), ("side", "host"))))])
    assert two.ask("GET", "buffers/c").status == 404 and used(two) == before
    two.client.ask("DELETE", "/v1/sessions/" + elsewhere["name"]).expect(204)


def test_conditions(two):
    link(two, "current", "v1").expect(201)
    tag = two.ask("HEAD", "buffers/current/data").headers["ETag"]
    source = two.ask("HEAD", "buffers/v2/data").headers["ETag"]
    body = {"from": "v2", "share": True, "from_if_match": source}
    two.ask("POST", "buffers/current/copy", body, {"If-Match": tag}).expect(200)
    two.ask("POST", "buffers/current/copy", body, {"If-Match": tag}).problem(412, "precondition_failed")
    two.ask("POST", "buffers/current/copy", body, {"If-None-Match": "*"}).problem(412, "precondition_failed")
    assert two.data("current") == TWO


def test_a_quota_counts_the_names(start):
    s = Session(start())
    seal(s, "v1", ONE)
    s.ask("PATCH", "", {"quota": {"buffers": 2, "bytes": BYTES}}).expect(200)
    link(s, "a", "v1").expect(201)
    link(s, "b", "v1").problem(507, "quota_exceeded")
    link(s, "a", "v1").expect(200)
    delete(s, "a")
    link(s, "b", "v1").expect(201)


def test_a_batch_switches_in_one_step(two):
    seal(two, "w1", payload(5, 3), "")
    seal(two, "w2", payload(5, 4), "")
    links = [{"op": "copy", "buffer": "a", "from": "v1", "share": True},
             {"op": "copy", "buffer": "b", "from": "w1", "share": True}]
    two.ask("POST", "batch", {"operations": links, "atomic": True}).expect(200)
    seen = two.meta("a")["generation"]
    links[0]["from"], links[1]["from"] = "v2", "none"
    answer = two.ask("POST", "batch", {"operations": links, "atomic": True})
    assert answer.status in (200, 207, 404, 409), answer.body
    assert two.data("a") == ONE and two.data("b") == payload(5, 3) and two.meta("a")["generation"] == seen
    links[1]["from"] = "w2"
    two.ask("POST", "batch", {"operations": links, "atomic": True}).expect(200)
    assert two.data("a") == TWO and two.data("b") == payload(5, 4)
    twice = [links[0], {"op": "fill", "buffer": "a", "pattern": 1}]
    two.ask("POST", "batch", {"operations": twice, "atomic": True}).problem(400, "invalid_argument")
    two.ask("POST", "batch", {"operations": twice}).expect(200)
    assert two.data("a") == b"\1" * BYTES and two.data("v2") == TWO


def test_a_batch_that_links_and_deletes_the_source(start):
    """The bytes keep the name that they got in the same step."""
    s = Session(start())
    seal(s, "v1", ONE, "?kind=pinned")
    link(s, "other", "v1").expect(201)
    both = [{"op": "copy", "buffer": "current", "from": "v1", "share": True}, {"op": "delete", "buffer": "v1"}]
    s.ask("POST", "batch", {"operations": both, "atomic": True}).expect(200)
    assert used(s) == BYTES and s.data("current") == s.data("other") == ONE
    local = Local(s.daemon.unix)
    mapped = Memory(local.map("current", s.name))
    assert s.meta("current")["leases"] == s.meta("other")["leases"] == 1 and bytes(mapped.view[:]) == ONE
    deletes = [{"op": "delete", "buffer": name} for name in ("current", "other")]
    s.ask("POST", "batch", {"operations": deletes, "atomic": True}).problem(409, "mapped")
    assert local.end(mapped.info["lease"]).status == 204
    local.close()
    seal(s, "v2", TWO, "?kind=pinned")
    s.ask("POST", "batch", {"operations": [{**both[0], "from": "v2"}, {"op": "delete", "buffer": "v2"}]}).expect(200)
    assert s.data("current") == TWO and s.data("other") == ONE
    s.client.ask("POST", "/v1/sessions", {"name": "gone"}).expect(201)
    gone = Session(s.daemon, "gone")
    seal(gone, "v1", ONE)
    link(gone, "a", "v1").expect(201)
    link(gone, "b", "a").problem(400, "invalid_argument")
    link(gone, "b", "v1").expect(201)
    gone.ask("POST", "batch", {"operations": [{**both[0], "buffer": "c"}, both[1]], "atomic": True}).expect(200)
    s.client.ask("DELETE", "/v1/sessions/gone").expect(204)
    assert s.data("current") == TWO


def test_in_the_order_of_a_stream(two):
    two.post("streams", {"name": "a"}, 201)
    link(two, "current", "v1").expect(201)
    hold(two)
    fill = left(two, "POST", "buffers/current/fill", {"pattern": 7, "stream": "a"})
    switched = left(two, "POST", "buffers/current/copy", {"from": "v2", "share": True, "stream": "a"})
    copied = left(two, "POST", "buffers/seen/copy", {"from": "current", "stream": "a"})
    assert two.data("current") == ONE
    still_held(two)
    assert [ended(two, op)["state"] for op in (fill, switched, copied)] == ["done"] * 3
    assert two.data("current") == two.data("seen") == TWO and two.data("v1") == ONE


def test_who_waits_and_who_listens_is_told(two):
    link(two, "current", "v1").expect(201)
    tag = two.ask("GET", "buffers/current").headers["ETag"]
    waiting = two.daemon.raw()
    waiting.request("GET", two.base + "/buffers/current", [f"If-None-Match: {tag}", "Prefer: wait=60"])
    until("it waits", lambda: two.daemon.stats()["http"]["suspended"] == 1)
    link(two, "current", "v2").expect(200)
    assert waiting.head()[0] == 200
    waiting.close()
    answer = two.client.ask("GET", "/v1/feed?after=0&limit=1000", None, {"Accept": "application/json"}).expect(200)
    told = [n["type"] for n in answer.json()["items"] if n.get("buffer") == "current" and n["session"] == two.name]
    assert told == ["buffer.created", "buffer.replaced"]


def test_a_process_keeps_the_version_that_it_mapped(start):
    s = Session(start())
    for name, data in (("v1", ONE), ("v2", TWO)):
        seal(s, name, data, "?kind=pinned")
    link(s, "current", "v1").expect(201)
    local = Local(s.daemon.unix)
    mapped = Memory(local.map("current", s.name))
    assert s.meta("current")["leases"] == s.meta("v1")["leases"] == 1
    refused = local.map("current", s.name, mode="write")
    assert (refused.status, refused.json()["code"]) == (409, "sealed")
    link(s, "current", "v2").expect(200)
    assert s.data("current") == TWO and bytes(mapped.view[:]) == ONE
    assert s.meta("current")["leases"] == 0 and s.meta("v1")["leases"] == 1
    link(s, "current", "v1").expect(200)
    assert s.meta("current")["leases"] == 1
    delete(s, "v1")
    assert bytes(mapped.view[:]) == ONE and s.meta("current")["leases"] == 1
    s.ask("DELETE", "buffers/current").problem(409, "mapped")
    assert local.end(mapped.info["lease"]).status == 204
    until("the lease has ended", lambda: s.meta("current")["leases"] == 0)
    again = Memory(local.map("current", s.name, mode="write"))
    again.view[:4] = b"mine"
    assert local.end(again.info["lease"]).status == 204
    until("it is written", lambda: s.data("current")[:4] == b"mine")
    local.close()


def test_a_lease_on_what_loses_its_last_name(start):
    s = Session(start())
    seal(s, "v1", ONE, "?kind=pinned")
    local = Local(s.daemon.unix)
    mapped = Memory(local.map("v1", s.name))
    link(s, "current", "v1").expect(201)
    delete(s, "v1")
    assert s.ask("DELETE", "buffers/current?when=unmapped").expect(202).json() == {"held_bytes": BYTES}
    assert bytes(mapped.view[:]) == ONE
    assert local.end(mapped.info["lease"]).status == 204
    until("the memory is free", lambda: used(s) == 0)
    local.close()


def test_command_line_and_python(two):
    cli = Cli(two.daemon.url(""), two.name)
    assert cli.json("switch", "current", "v1")["generation"] == 1
    assert cli("switch", "current", "v2").expect().out.split()[0] == "current"
    assert two.data("current") == TWO
    several = cli("switch", "current", "v1", f"{two.name}/other", "v2").expect().out.splitlines()
    assert [line.split()[0] for line in several] == ["current", "other"]
    assert two.data("current") == ONE and two.data("other") == TWO
    assert cli.json("switch", "current", "v2", "other", "v1")["done"] == 2
    cli("switch", "current").expect(USAGE)
    cli("switch", "current", "v1", "other").expect(USAGE)
    cli("switch", "current", "v1", "other", "none").expect(NOT_FOUND)
    cli("switch", "current", "v1", "default/other", "v2").expect(USAGE)
    assert two.data("current") == TWO and two.data("other") == ONE
    with client_of(two.daemon, session=two.name) as c:
        assert c.copy("v1", "current", share=True)["generation"] > 1
        assert bytes(c.get("current", raw=True)) == ONE
        with pytest.raises(gpubuf.Error, match="not sealed"):
            c.copy("current", "other", share=True)


# --- durable ----------------------------------------------------------------------------------------------------------


def names_of_files(d):
    return sorted(os.stat(f).st_nlink for f in files(d.state).values())


@pytest.mark.parametrize("durability", ["sync", "behind"])
def test_durable_links_are_one_file(lives, durability):
    s = Session(lives())
    seal(s, "v1", ONE, "?durability=" + durability)
    seal(s, "v2", TWO, "?durability=" + durability)
    for name in ("v1", "v2"):
        s.ask("POST", f"buffers/{name}/store", {}).expect(200)
    made = link(s, "current", "v1").expect(201).json()
    assert made["durability"] == durability and made["stored_generation"] == 1 and made["crc32c"]
    assert names_of_files(s.daemon) == [1, 2, 2]
    before = used(s)
    for name, less in (("current", 0), ("v1", BYTES)):  # each leaves memory for itself
        s.ask("POST", f"buffers/{name}/evict", {}).expect(200)
        assert s.meta(name)["state"] == "stored" and used(s) == before - less
    assert link(s, "cold", "v1").expect(201).json()["state"] == "stored"
    assert s.data("cold") == ONE
    delete(s, "cold")
    for name in ("current", "v1"):
        s.ask("POST", f"buffers/{name}/load", {}).expect(200)
    assert used(s) == before
    s.ask("POST", "buffers/current/evict", {}).expect(200)
    assert s.data("current") == ONE and s.meta("current")["state"] == "stored"  # a download reads the disk
    s.ask("POST", "buffers/current/load", {}).expect(200)
    assert used(s) == before and s.data("current") == ONE
    s = Session(lives())
    for name in ("v1", "current"):
        s.ask("POST", f"buffers/{name}/load", {}).expect(200)
    assert used(s) == BYTES and s.data("current") == s.data("v1") == ONE
    s.put("v3", b"", "?durability=" + durability)
    s.ask("PATCH", "buffers/current/data?offset=0", b"other").expect(200)
    assert s.data("v1") == ONE and s.data("current") == b"other" + ONE[5:]
    link(s, "current", "v1").expect(200)
    delete(s, "v3")
    delete(s, "v1")
    s = Session(lives())
    assert s.data("current") == ONE and s.meta("current")["crc32c"] == made["crc32c"]
    assert link(s, "current", "v2").expect(200).json()["stored_generation"] > 1
    becomes_tidy(s.daemon.state)
    assert names_of_files(s.daemon) == [2, 2]
    s.ask("POST", "buffers/current/load", {}).expect(200)
    assert s.data("current") == s.data("v2") == TWO
    assert link(s, "another", "v2").expect(201).json()["stored_generation"] == 1
    assert s.data("another") == TWO
    assert names_of_files(s.daemon) == [3, 3, 3]
    s.post("/v1/sessions/default/checkpoints", {"name": "c"}, 201)
    s = Session(lives())
    assert s.data("another") == TWO and s.meta("v2")["sealed"] and not s.meta("another")["sealed"]
    s.put("another", ONE)
    s.ask("POST", "buffers/another/store", {}).expect(200)
    s = Session(lives())
    assert s.data("another") == ONE and s.data("current") == TWO
    becomes_tidy(s.daemon.state)


def test_a_link_that_waits_for_its_source_keeps_its_place(lives):
    """The source is loaded before the link takes its place, also in a batch."""
    s = Session(lives())
    seal(s, "v1", ONE, "?durability=sync")
    for name in ("a", "b"):
        s.put(name, b"1", "?durability=none")
    s.ask("POST", "buffers/v1/evict", {}).expect(200)
    link(s, "a", "v1").expect(200)
    assert s.meta("v1")["state"] == "ready"
    s.ask("POST", "buffers/a/evict", {}).expect(200)
    s.ask("POST", "buffers/v1/evict", {}).expect(200)
    links = [{"op": "copy", "buffer": name, "from": "v1", "share": True} for name in ("a", "b")]
    assert s.ask("POST", "batch", {"operations": links}).expect(200).json()["failed"] == 0
    assert s.data("a") == s.data("b") == ONE


def test_links_that_are_loaded_together_share(lives):
    s = Session(lives())
    seal(s, "v1", ONE, "?durability=sync")
    for name in ("a", "b"):
        link(s, name, "v1").expect(201)
    s = Session(lives())
    s.ask("POST", "load", {}).expect(200)
    until("they have one memory", lambda: used(s) == BYTES)
    assert s.data("a") == s.data("b") == s.data("v1") == ONE
    assert all(s.meta(name)["state"] == "ready" for name in ("a", "b", "v1"))


@pytest.mark.parametrize("size", [BYTES, 100])
def test_a_link_is_one_after_a_restart(lives, size):
    """Whether the bytes are in a file or in the database, and whichever of the names is in memory."""
    s = Session(lives())
    seal(s, "v1", payload(size, 1), "?durability=sync")
    for name in ("current", "written", "none"):
        link(s, name, "v1").expect(201)
    s.ask("PATCH", "buffers/written/data?offset=0", b"other").expect(200)
    s.put("none", payload(size, 1))
    links = {"current": "v1", "written": None, "none": None, "v1": None}
    s.ask("POST", "buffers/current/evict", {}).expect(200)
    assert {name: s.meta(name)["link"] for name in links} == links
    s = Session(lives())
    assert {name: s.meta(name)["link"] for name in links} == links
    for name in ("current", "v1"):
        s.ask("POST", f"buffers/{name}/load", {}).expect(200)
        assert {name: s.meta(name)["link"] for name in links} == links
    s.ask("POST", "buffers/current/evict", {}).expect(200)
    assert s.meta("current")["link"] == "v1"
    listed = {b["name"]: b["link"] for b in s.get("buffers")["items"]}
    assert listed == links
    delete(s, "v1")
    seal(s, "v1", payload(size, 1), "?durability=sync")  # another one of that name and of the same bytes
    assert s.meta("current")["link"] is None
    link(s, "current", "v1").expect(200)
    s = Session(lives())
    assert s.meta("current")["link"] == "v1"
    s.ask("POST", "buffers/current/load", {}).expect(200)
    s.ask("PATCH", "buffers/current/data?offset=0", b"other").expect(200)
    assert s.meta("current")["link"] is None
    s = Session(lives())
    assert s.meta("current")["link"] is None


def test_links_that_are_loaded_before_their_source_share(lives):
    s = Session(lives())
    seal(s, "v1", ONE, "?durability=sync")
    for name in ("a", "b"):
        link(s, name, "v1").expect(201)
    s = Session(lives())
    for name in ("a", "b", "v1"):
        s.ask("POST", f"buffers/{name}/load", {}).expect(200)
        assert used(s) == BYTES
    s.ask("PATCH", "buffers/a/data?offset=0", b"other").expect(200)
    assert used(s) == 2 * BYTES and s.data("b") == s.data("v1") == ONE and s.data("a") == b"other" + ONE[5:]


def test_some_durable_and_some_not(lives):
    s = Session(lives())
    seal(s, "v1", ONE)
    s.put("kept", b"1", "?durability=sync")
    assert link(s, "kept", "v1").expect(200).json()["stored_generation"] == 2
    seal(s, "small", b"12345678", "?durability=sync")
    link(s, "small2", "small").expect(201)
    s.ask("POST", "buffers/small/evict", {}).expect(200)
    link(s, "small3", "small").expect(201)
    seal(s, "v2", TWO, "?durability=sync")
    s.put("passing", b"1", "?durability=none")
    link(s, "passing", "v2").expect(200)
    s.ask("POST", "buffers/v2/evict", {}).expect(200)
    assert s.data("passing") == TWO
    link(s, "passing", "v2").expect(200)
    s = Session(lives())
    assert s.data("kept") == ONE and s.data("small2") == s.data("small3") == b"12345678"
    assert s.meta("passing")["state"] == "lost" and s.data("v2") == TWO
    becomes_tidy(s.daemon.state)


def test_a_batch_with_a_link_of_what_is_on_disk_alone(start):
    """A link reads its source when the batch is committed: what waited for that in the batch would wait for ever."""
    s = Session(start())
    made, copied = {"op": "copy", "buffer": "b", "from": "c", "share": True}, {"op": "copy", "buffer": "a", "from": "c"}
    more, filled = {**made, "buffer": "b2"}, {"op": "fill", "buffer": "c", "pattern": 5}
    gone = {"op": "delete", "buffer": "c"}
    for operations, answers in (([made, more], [201, 201]), ([made, copied], [201, 201]), ([made, filled], [201, 409]),
                                ([made, gone], [201, 204]), ([more, made, copied, filled], [201, 201, 201, 409]),
                                ([made, copied, more, gone], [201, 201, 201, 204])):
        for atomic in (False, True):
            if atomic and filled in operations:
                continue
            seal(s, "c", ONE, "?durability=sync")
            s.post("buffers/c/evict")
            answer = s.post("batch", {"operations": operations, "atomic": atomic})
            assert [r["status"] for r in answer["results"]] == answers, operations
            if copied not in operations and gone not in operations:
                assert s.meta("c")["state"] == s.meta("b")["state"] == "stored"  # no bytes were needed
            there = [op["buffer"] for op in operations if op["op"] == "copy"] + ["c"] * (gone not in operations)
            assert all(s.data(name) == ONE for name in there)
            for name in there:
                delete(s, name)


def test_who_reads_the_source_of_a_link_does_not_wait_for_it(start):
    """And who deletes it does: the link was there first."""
    s = Session(start())
    s.post("streams", {"name": "a"}, 201)
    s.put("x", ONE)
    seal(s, "c", ONE, "?durability=sync")
    s.post("buffers/c/evict")
    hold(s)
    batch = left(s, "POST", "batch", {"operations": [{"op": "copy", "buffer": "b", "from": "c", "share": True},
                                                     {"op": "fill", "buffer": "x", "pattern": 5, "stream": "a"}]})
    copied = left(s, "POST", "buffers/d/copy", {"from": "c"})
    assert s.data("c") == ONE and ended(s, copied)["status"] == 201
    still_held(s)
    delete(s, "c")
    assert [r["status"] for r in ended(s, batch)["result"]["results"]] == [201, 200]
    assert s.data("b") == s.data("d") == ONE


def test_where_no_link_can_be_made_the_bytes_are_written(lives):
    s = Session(lives("--disk-fault", "link@1=EOPNOTSUPP"))
    seal(s, "v1", ONE, "?durability=sync")
    assert link(s, "current", "v1").expect(201).json()["stored_generation"] == 1
    assert names_of_files(s.daemon) == [1, 1]
    link(s, "more", "v1").expect(201)
    assert names_of_files(s.daemon) == [1, 2, 2]
    s = Session(lives())
    assert s.data("current") == s.data("more") == ONE
    becomes_tidy(s.daemon.state)


def test_no_link_of_what_is_on_disk_alone(lives):
    s = Session(lives("--disk-fault", "link@1=EIO"))
    seal(s, "v1", ONE, "?durability=sync")
    s.ask("POST", "buffers/v1/evict", {}).expect(200)
    assert link(s, "current", "v1").status >= 500
    s.ask("GET", "buffers/current").problem(404, "buffer_not_found")
    becomes_tidy(s.daemon.state)


@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
def test_killed_at_a_link(lives, point):
    s = Session(lives())
    seal(s, "v1", ONE, "?durability=sync")
    seal(s, "v2", TWO, "?durability=sync")
    link(s, "current", "v1").expect(201)
    d = lives("--disk-fault", f"{point}@1=kill")
    s = Session(d)
    with pytest.raises(OSError):
        link(s, "current", "v2")
    d.process.wait()
    s = Session(lives())
    assert s.data("current") == (ONE if point == "before_commit" else TWO)
    assert s.data("v1") == ONE and s.data("v2") == TWO
    becomes_tidy(s.daemon.state)
