"""What a durable buffer is after a restart: the same, on disk, until something needs its memory."""

import pytest

import values
from durable import BEHIND, INLINE, NONE, SIZES, SYNC, becomes_tidy, files, load, memory, path_of, reads, storage, store
from feed import Feed
from harness import DATA, until
from tensors import TENSORS, safetensors
from values import crc32c, payload

# what memory there is makes no difference to what is on disk; test_durable_kill.py has both
pytestmark = pytest.mark.once

X = DATA.format("default", "x")
ASYNC = {"Prefer": "respond-async"}


def batch(d, *operations):
    r = d.ask("POST", "/v1/sessions/default/batch", {"operations": list(operations)}).expect(200)
    return [x["status"] for x in r.json()["results"]]


@pytest.mark.parametrize("size", (0, 1, INLINE, INLINE + 1, (1 << 20) - 4096, 1 << 20, (1 << 20) + 1, SIZES[2]))
def test_the_same_after_a_death(lives, size):
    d = lives()
    data = payload(size, 1)
    old = d.put("x", data, query=SYNC).expect(201)
    d.ask("PATCH", path_of("x"), {"labels": {"a": "b"}}).expect(200)
    before = d.meta("x")
    assert before["stored_generation"] == before["generation"] == 1 and before["durability"] == "sync"
    for life in range(2):
        d = lives()
        after = d.meta("x")
        assert after == {**before, "state": "stored", "tier": "disk"} and after["crc32c"] == crc32c(data)
        none = reads(d)
        got = d.ask("GET", X, None, {"If-None-Match": old.headers["ETag"]})
        assert got.status == 304 and got.headers["ETag"] == old.headers["ETag"]
        head = d.ask("HEAD", X).expect(200)
        assert (head.headers["ETag"], head.headers["Content-Length"]) == (old.headers["ETag"], str(size))
        assert reads(d) == none == (0, 0) and storage(d)["stored_buffers"] == 1
        r = d.data("x").expect(200)
        assert r.body == data and r.headers["ETag"] == old.headers["ETag"]
        assert reads(d) == (1 if size else reads(d)[0], 0)
    assert memory(d, "x") == data and d.meta("x")["state"] == "ready" and storage(d)["stored_buffers"] == 0
    assert d.data("x").headers["ETag"] == old.headers["ETag"] and d.meta("x")["crc32c"] == crc32c(data)
    new = d.put("x", b"new", headers={"If-Match": old.headers["ETag"]}).expect(200)
    assert new.json()["generation"] == new.json()["stored_generation"] == 2
    d.put("x", b"newer", headers={"If-Match": old.headers["ETag"]}).problem(412, "precondition_failed")
    d = lives()
    assert d.data("x").body == b"new" and d.data("x").headers["ETag"] == new.headers["ETag"]
    becomes_tidy(d.state)


def test_durability_lost_and_found_again(lives):
    """sync, none, sync without other bytes: each is what the answer says, however long the removal of the former file
    takes."""
    d = lives("--disk-fault", "unlink=delay/50")
    data = payload(SIZES[1])
    d.put("x", data, query=SYNC).expect(201)
    for word in ("none", "sync", "behind", "none", "sync", "none", "behind", "sync"):
        after = d.ask("PATCH", path_of("x"), {"durability": word}).expect(200).json()
        assert after["durability"] == word and (word != "sync" or after["stored_generation"] == after["generation"]
                                                == 1)
        assert word != "none" or after["stored_generation"] is None
    becomes_tidy(d.state)
    d = lives()
    assert d.data("x").expect(200).body == data


@pytest.mark.parametrize("size", SIZES[:2])
def test_none_forgets_what_is_stored(lives, size):
    d = lives()
    for first in ("sync", "behind"):
        d.put("x", payload(size), query="?durability=" + first)
        store(d, "x").expect(200)
        d.ask("PATCH", path_of("x"), {"durability": "none"}).expect(200)
        becomes_tidy(d.state)
        d = lives()
        assert d.meta("x")["state"] == "lost"
        d.data("x").problem(410, "content_lost")
        assert d.ask("GET", "/v1/storage").json()["stored_buffers"] == 0 and files(d.state) == {}
        d.put("x", payload(size, 1), query=NONE).expect(200)
        d.ask("PATCH", path_of("x"), {"durability": "behind"}).expect(200)
        d = lives()
        r = d.data("x")
        assert r.status == 410 or r.body == payload(size, 1), "bytes that were forgotten came back"


def test_none_of_a_stored_buffer_loads_it_first(lives):
    d = lives()
    d.put("x", payload(SIZES[1]), query=SYNC)
    d = lives()
    d.ask("PATCH", path_of("x"), {"durability": "none"}).expect(200)
    assert d.meta("x")["state"] == "ready" and d.data("x").body == payload(SIZES[1])


# --- behind -----------------------------------------------------------------------------------------------------------


def test_behind_comes_to_the_disk_by_itself(lives):
    d = lives()
    with Feed(d) as feed:
        d.put("x", payload(SIZES[1]), query=BEHIND).expect(201)
        stored = next(e for e in iter(feed.next, None) if e["type"] == "buffer.stored")
    assert stored["buffer"] == "x" and d.meta("x")["stored_generation"] == 1
    d = lives()
    assert d.data("x").body == payload(SIZES[1]) and d.meta("x")["generation"] == 1


def test_behind_comes_to_the_disk_while_writes_go_on(lives):
    """Each write is younger than the lag."""
    d = lives("--durable-lag", "1")

    def stored():
        d.put("x", payload(SIZES[1]), query=BEHIND)
        return d.meta("x")["stored_generation"]

    first = until("a generation is stored", stored)
    until("a later one is stored", lambda: stored() > first)


def test_an_orderly_end_stores_what_is_behind(lives):
    d = lives("--durable-lag", "3600")
    for i in range(70):
        d.put(f"x{i}", payload(1000 if i % 7 else SIZES[1], i), query=BEHIND).expect(201)
    assert d.meta("x69")["stored_generation"] is None
    d = lives(end="stop")
    for i in range(70):
        assert d.data(f"x{i}").expect(200).body == payload(1000 if i % 7 else SIZES[1], i)
    becomes_tidy(d.state)


def rolled_back(lives):
    d = lives("--durable-lag", "3600")
    first = d.put("x", payload(SIZES[1], 1), query=BEHIND).expect(201)
    assert store(d, "x").expect(200).json() == {"stored_generation": 1, "bytes": SIZES[1], "wrote": True}
    assert store(d, "x").expect(200).json()["wrote"] is False
    second = d.put("x", payload(SIZES[1], 2)).expect(200)
    assert (second.json()["generation"], second.json()["stored_generation"]) == (2, 1)
    return lives("--durable-lag", "3600"), first, second


def test_behind_is_rolled_back_under_a_generation_of_its_own(lives):
    d, first, second = rolled_back(lives)
    r = d.data("x").expect(200)
    assert r.body == payload(SIZES[1], 1) and d.meta("x")["generation"] > 2
    assert r.headers["ETag"] not in (first.headers["ETag"], second.headers["ETag"])
    assert d.meta("x")["crc32c"] == crc32c(payload(SIZES[1], 1))
    d.put("x", b"", headers={"If-Match": second.headers["ETag"]}).problem(412, "precondition_failed")
    becomes_tidy(d.state)


def test_what_was_rolled_back_and_is_sync_then_stays_as_it_is(lives):
    d, *_ = rolled_back(lives)
    after = d.ask("PATCH", path_of("x"), {"durability": "sync"}).expect(200).json()
    tag = d.data("x").headers["ETag"]
    store(d, "x").expect(200)
    for _ in range(2):
        d = lives()
        assert d.meta("x")["generation"] == after["generation"]
        assert d.data("x").headers["ETag"] == tag and d.data("x").body == payload(SIZES[1], 1)


# --- reading ----------------------------------------------------------------------------------------------------------


def test_ranges(lives):
    d = lives()
    data = payload(SIZES[2], 3)
    d.put("x", data, query=SYNC)
    d = lives()
    ends = (0, 1, 4095, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 * (1 << 20) + 5, SIZES[2] - 1)
    for i, (a, b) in enumerate(zip(ends, ends[1:])):
        r = d.data("x", headers={"Range": f"bytes={a}-{b}"}).expect(206)
        assert r.body == data[a:b + 1], (a, b)
        assert d.data("x", query=f"?offset={a}&length={b - a}").expect(200).body == data[a:b]
        d = lives()
    assert d.data("x", headers={"Range": "bytes=-5"}).expect(206).body == data[-5:]
    several = d.data("x", headers={"Range": "bytes=0-9,1048570-1048580,8388600-"}).expect(206)
    for part in (data[:10], data[1048570:1048581], data[8388600:]):
        assert b"\r\n\r\n" + part + b"\r\n--" in several.body
    d.data("x", headers={"Range": f"bytes={SIZES[2]}-"}).expect(416)


def test_forms(lives):
    d = lives()
    array = values.array_of("float32", (300, 200), 5)
    d.put("x", values.npy(array), query=SYNC).expect(201)
    d.put("y", values.npy(array[:3]), query=SYNC).expect(201)
    d = lives()
    assert d.meta("x")["shape"] == [300, 200] and d.meta("x")["dtype"] == "float32"
    forms = {f: d.data("x", query="?format=" + f).expect(200) for f in ("npy", "safetensors", "raw")}
    assert (forms["npy"].body == values.npy(array) and safetensors.numpy.load(forms["safetensors"].body)["x"].tobytes()
            == array.tobytes())
    verified = d.ask("POST", path_of("x") + "/verify", {}).expect(200).json()
    assert verified["match"] is True
    all_of_them = safetensors.numpy.load(d.ask("GET", TENSORS.format("default")).expect(200).body)
    assert all_of_them["x"].tobytes() == array.tobytes() and all_of_them["y"].tobytes() == array[:3].tobytes()
    load(d, "x").expect(200)
    for form, r in forms.items():
        now = d.data("x", query="?format=" + form).expect(200)
        assert now.body == r.body and (form != "raw" or now.headers["ETag"] == r.headers["ETag"]), form


def test_tensors_of_which_some_are_stored(lives):
    d = lives()
    arrays = {f"t{i}": values.array_of("float32", (100 * (1 + i % 3), 77), i) for i in range(6)}
    for n, a in arrays.items():
        d.put(n, values.npy(a), query=SYNC).expect(201)
    d = lives()
    for n in ("t1", "t4"):
        load(d, n).expect(200)
    got = safetensors.numpy.load(d.ask("GET", TENSORS.format("default")).expect(200).body)
    assert {n: a.tobytes() for n, a in got.items()} == {n: a.tobytes() for n, a in arrays.items()}
    some = d.ask("GET", TENSORS.format("default") + "?names=t1,t2", None, {"Range": "bytes=1000-40000"})
    assert some.status in (200, 206)


# --- what needs memory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_what_needs_memory_waits_for_it(lives, size):
    d = lives()
    data = bytearray(payload(size, 3))
    for n in "abcdefgh":
        d.put(n, data, query=SYNC).expect(201)
    d.put("m", data, query=SYNC + "&mirrored=true").expect(201)
    d = lives()
    assert d.data("a", query="?slice=1:900:7").expect(200).body == data[1:900:7]
    d.ask("POST", path_of("new") + "/copy", {"from": "b"}).expect(201)
    d.ask("POST", path_of("c") + "/copy", {"from": "d", "offset": 0, "bytes": 10, "from_offset": 20}).expect(200)
    d.ask("POST", path_of("e") + "/fill", {"pattern": 7, "offset": 3, "bytes": 10}).expect(200)
    d.ask("POST", path_of("m") + "/sync", {"to": "host"}).expect(200)
    assert d.data("new").body == data and d.data("d").body == data and d.data("m").body == data
    assert d.data("c").body == data[20:30] + data[10:] and d.data("e").body == data[:3] + b"\7" * 10 + data[13:]
    for name, query in (("f", "?offset=5"), ("g", "?offset=5&in_place=true"), ("h", "?slice=5:8")):
        r = d.ask("PATCH", DATA.format("default", name) + query, b"xyz")
        p = r.problem(503, "not_loaded")
        assert p["retryable"] and int(r.headers["Retry-After"]) > 0
        until("it is loaded", lambda: d.meta(name)["state"] == "ready")
        d.ask("PATCH", DATA.format("default", name) + query, b"xyz").expect(200)
        assert d.data(name).body == data[:5] + b"xyz" + data[8:]
    before = {n: d.data(n).headers["ETag"] for n in "abcdefgh"}
    d = lives()
    for n in "fgh":
        assert d.data(n).body == data[:5] + b"xyz" + data[8:]
    assert {n: d.data(n).headers["ETag"] for n in before} == before
    becomes_tidy(d.state)


def test_what_needs_none_does_not_load(lives):
    d = lives()
    for n in "abcd":
        d.put(n, payload(SIZES[1]), query=SYNC).expect(201)
    d = lives()
    d.put("a", b"new").expect(200)
    d.ask("PATCH", path_of("b"), {"labels": {"x": "y"}}).expect(200)
    d.ask("POST", path_of("c") + "/seal", {}).expect(200)
    d.ask("DELETE", path_of("d")).expect(204)
    assert reads(d) == (0, 0) and d.meta("b")["state"] == d.meta("c")["state"] == "stored"
    d.put("c", b"", query="?offset=0").problem(409, "sealed")
    d = lives()
    assert d.data("a").body == b"new" and d.meta("b")["labels"] == {"x": "y"} and d.meta("c")["sealed"] is True
    assert d.data("c").body == payload(SIZES[1])
    becomes_tidy(d.state)


def test_a_batch_loads_what_it_needs(lives):
    d = lives()
    for n in "ab":
        d.put(n, payload(SIZES[1]), query=SYNC).expect(201)
    d = lives()
    assert batch(d, {"op": "copy", "buffer": "new", "from": "a"}, {"op": "fill", "buffer": "b", "pattern": 7,
                                                                   "offset": 1, "bytes": 10},
                 {"op": "fill", "buffer": "a", "pattern": 1}) == [201, 200, 200]
    assert d.data("new").body == payload(SIZES[1]) and d.data("a").body == b"\1" * SIZES[1]


def part_refused(d, headers=None):
    """A batch of which one operation is refused when all are to be committed."""
    operations = [{"op": "delete", "buffer": "none"}, *({"op": "fill", "buffer": n, "pattern": 7} for n in "ab")]
    return d.ask("POST", "/v1/sessions/default/batch", {"operations": operations}, headers)


@pytest.mark.parametrize("size", SIZES[:2])
def test_behind_goes_to_the_disk_as_the_rest_of_a_batch(lives, size):
    d = lives("--durable-lag", "3600")
    for n in "ab":
        d.put(n, payload(size), query=BEHIND).expect(201)
        store(d, n).expect(200)
    assert [x["status"] for x in part_refused(d).expect(200).json()["results"]] == [404, 200, 200]
    store(d, "b").expect(200)
    d = lives()
    assert [d.data(n).expect(200).body for n in "ab"] == [b"\7" * size] * 2


@pytest.mark.parametrize("size", SIZES[:2])
@pytest.mark.parametrize("step, filled", [("before_commit@3", False), ("after_commit@3", True)])
def test_a_death_leaves_all_or_none_of_the_rest_of_a_batch(lives, size, step, filled):
    """Nor is its key known where nothing was done."""
    d = lives("--disk-fault", step + "=kill")
    for n in "ab":
        d.put(n, payload(size), query=SYNC).expect(201)
    with pytest.raises(OSError):
        part_refused(d, {"Idempotency-Key": "k"})
    d = lives()
    assert [d.data(n).expect(200).body for n in "ab"] == [b"\7" * size if filled else payload(size)] * 2
    again = part_refused(d, {"Idempotency-Key": "k"})
    if filled:
        again.problem(409, "idempotency_answer_lost")
    else:
        assert [x["status"] for x in again.expect(200).json()["results"]] == [404, 200, 200]
        assert [d.data(n).expect(200).body for n in "ab"] == [b"\7" * size] * 2


def test_a_death_leaves_all_or_none_of_what_waits_for_no_other(lives):
    """One operation would store a buffer together with one that is being written; the others have nothing to do with
    that."""
    size = SIZES[1]
    d = lives("--durable-lag", "3600", "--disk-fault", "after_commit@4=kill")
    for n in "cd":
        d.put(n, payload(size), query=SYNC).expect(201)
    d.ask("PATCH", "/v1/sessions/default", {"durability": "behind"}).expect(200)
    d.ask("PUT", TENSORS.format("default"), safetensors.numpy.save({n: values.array_of("uint8", (SIZES[2],), 1)
                                                                    for n in "ab"})).expect(201)
    writer = d.raw().put(DATA.format("default", "a") + "?in_place=true", SIZES[2]).send(bytes(1 << 20))
    until("a is being written", lambda: d.stats()["running"]["uploads"] == 1)
    with pytest.raises(OSError):
        batch(d, *({"op": "fill", "buffer": n, "pattern": 7, "bytes": 5} for n in "bcd"))
    d = lives()
    writer.close()
    assert [d.data(n).expect(200).body for n in "cd"] == [b"\7" * 5 + payload(size)[5:]] * 2
