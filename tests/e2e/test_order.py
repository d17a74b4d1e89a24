"""The order of data on streams, sentence by sentence: what a request sees of those before it, and what it waits for.
test_order_programs.py has random programs."""
import base64
import gzip
import hashlib
import signal

import pytest

from conform import Session
from harness import DATA, SMALL_SLOTS, until
from test_operations import ASYNC, look
from test_uploads import Upload
from values import crc32c, payload, safetensors_of

HELD_MS = 1500
LONG_MS = 10000
SIZE = 64
LARGE = 1 << 20
BODY = 1 << 17  # more than is read before an upload begins
OLD = payload(SIZE, 1)


@pytest.fixture
def h(s):
    """A session with streams a and b, and an event e. x, y and z have the bytes OLD."""
    prepare(s)
    return s


def prepare(s):
    for name in "ab":
        s.post("streams", {"name": name}, 201)
    s.post("events", {"name": "e"}, 201)
    for name in "xyz":
        s.put(name, OLD)


def hold(s, stream="a", ms=HELD_MS):
    s.post(f"streams/{stream}/hold", {"ms": ms})


def left(s, method, path, body=None, headers=None):
    """The operation of a request that waits, or one that looks like it if the answer has come."""
    r = s.ask(method, path, body, {**ASYNC, **(headers or {})})
    if r.status == 202:
        return r.json()
    good = r.status < 400
    return {"state": "done" if good else "failed", "status": r.status, "result": r.json() if good else None,
            "problem": None if good else r.json()}


def ended(s, op, state="done"):
    op = look(s, op, 60) if "id" in op else op
    assert op["state"] == state, op
    return op


def fill(s, name, pattern, headers=None, **fields):
    """A fill on stream a."""
    return left(s, "POST", f"buffers/{name}/fill", {"pattern": pattern, "stream": "a", **fields}, headers)


def copy(s, name, source, **fields):
    return left(s, "POST", f"buffers/{name}/copy", {"from": source, "stream": "a", **fields})


def still_held(s, stream="a"):
    assert s.get("streams/" + stream)["busy"], "the hold ended too soon to show anything"


def etag(s, name, more=0):
    """The tag of the bytes that the buffer has; more: as it will be after that many writes."""
    id_, generation, run = s.ask("HEAD", f"buffers/{name}/data").headers["ETag"].strip('"').split(".")
    return f'"{id_}.{int(generation) + more}.{run}"'


def waiting_get(s, name, stream):
    """A GET on a connection of its own."""
    return s.daemon.raw().request("GET", DATA.format(s.name, name) + "?stream=" + stream)


def finished(raw):
    r = raw.reply()
    raw.close()
    return r


def failed(s, op, status, code):
    op = ended(s, op, "failed")
    assert (op["status"], op["problem"]["code"]) == (status, code), op
    return op["problem"]["detail"]


# --- on one stream ----------------------------------------------------------------------------------------------------


def test_a_copy_behind_a_fill_copies_what_it_writes(h):
    hold(h)
    ops = [fill(h, "z", 7), copy(h, "y", "z"), copy(h, "new", "y")]
    still_held(h)
    assert [ended(h, op)["result"]["generation"] for op in ops] == [2, 2, 1]
    assert h.data("z") == h.data("y") == h.data("new") == b"\7" * SIZE


def test_a_download_behind_a_fill_gives_the_generation_that_it_says(h):
    hold(h)
    op = fill(h, "x", 7)
    r = h.ask("GET", "buffers/x/data?stream=a").expect(200)
    assert (r.body, r.headers["Gpubuf-Generation"]) == (b"\7" * SIZE, "2") and r.headers["ETag"] == etag(h, "x")
    assert ended(h, op)["result"]["generation"] == 2
    hold(h)
    op = fill(h, "x", 8, offset=0, bytes=8)
    part = h.ask("GET", "buffers/x/data?stream=a", None, {"Range": "bytes=4-11"}).expect(206)
    assert part.body == b"\10" * 4 + b"\7" * 4 and part.headers["Gpubuf-Generation"] == "3"
    hold(h)
    fill(h, "x", 9, offset=0, bytes=8)
    part = h.ask("GET", "buffers/x/data?slice=::2&stream=a").expect(200)
    assert part.body == b"\11" * 4 + b"\7" * 28 and part.headers["Gpubuf-Generation"] == "4"


def test_fills_of_both_halves(h):
    hold(h)
    ops = [fill(h, "x", i + 1, offset=offset, bytes=32) for i, offset in enumerate((0, 32, 16))]
    still_held(h)
    assert [ended(h, op)["result"]["generation"] for op in ops] == [2, 3, 4]
    assert h.data("x") == b"\1" * 16 + b"\3" * 32 + b"\2" * 16


@pytest.mark.parametrize("query", ["", "&offset=8", "&slice=::2", "&offset=8&in_place=true"])
def test_an_upload_follows_and_is_followed(h, query):
    data = OLD if not query else OLD[:32]
    wanted = bytearray(b"\7" * SIZE)
    wanted[slice(None, None, 2) if "slice" in query else slice(0, SIZE) if not query else slice(8, 40)] = data
    hold(h)
    first = fill(h, "x", 7)
    up = left(h, "PUT", "buffers/x/data?stream=a" + query, data)
    second = copy(h, "y", "x")
    last = fill(h, "x", 9, offset=0, bytes=1)
    r = h.ask("GET", "buffers/x/data?stream=a").expect(200)
    assert r.body == b"\11" + bytes(wanted[1:])
    assert [ended(h, op)["result"]["generation"] for op in (first, up, second, last)] == [2, 3, 2, 4]
    assert h.data("y") == bytes(wanted)


@pytest.mark.parametrize("query,part", [(f"kind={kind}", part) for kind in ("device", "managed", "pinned", "pageable")
                                        for part in ("", "&offset=8", "&slice=::2")
                                        if part != "&slice=::2" or kind in ("device", "managed")]
                         + [("mirrored=true", ""), ("mirrored=true", "&offset=8")])
def test_a_held_stream_keeps_no_upload_from_its_last_byte(h, query, part):
    """Of memory that the CPU writes as well: a fill that is sent after the body follows it."""
    old, data = payload(2 * BODY, 2), payload(BODY if part else 2 * BODY, 3)
    if h.ask("PUT", f"buffers/k/data?{query}", old).status == 501:
        pytest.skip("the device has no memory of that kind")
    hold(h)
    up = left(h, "PUT", "buffers/k/data?stream=a" + part, data)
    last = fill(h, "k", 9, offset=0, bytes=16)
    still_held(h)
    wanted = bytearray(old)
    at = 8 if "offset" in part else 0
    wanted[slice(None, None, 2) if "slice" in part else slice(at, at + len(data))] = data
    wanted[:16] = b"\11" * 16
    assert [ended(h, op)["result"]["generation"] for op in (up, last)] == [2, 3]
    assert h.data("k") == bytes(wanted)


def test_a_held_stream_keeps_no_tensors_from_their_last_byte(h):
    data = payload(BODY, 4)
    hold(h)
    up = left(h, "PUT", "tensors?stream=a", safetensors_of(x=data, new=data))
    last = fill(h, "new", 9, offset=0, bytes=16)
    still_held(h)
    assert ended(h, up) and ended(h, last)
    assert (h.data("x"), h.data("new")) == (data, b"\11" * 16 + data[16:])


def test_a_verify_reads_what_the_earlier_ones_write(h):
    hold(h)
    fill(h, "x", 7)
    op = left(h, "POST", "buffers/x/verify?stream=a")
    fill(h, "x", 8)
    result = ended(h, op)["result"]
    assert (result["crc32c"], result["generation"]) == (crc32c(b"\7" * SIZE), 2)


@pytest.mark.parametrize("kind", ["pinned", "shared", "managed", "pageable"])
def test_every_kind(h, kind):
    if h.ask("PUT", f"buffers/k/data?kind={kind}", OLD).status == 501:
        pytest.skip("the device has no memory of that kind")
    hold(h)
    ops = [fill(h, "k", 7), copy(h, "y", "k"), fill(h, "k", 8, offset=0, bytes=32), copy(h, "k", "y", bytes=8)]
    assert h.data("k", "?stream=a") == b"\7" * 8 + b"\10" * 24 + b"\7" * 32
    assert h.data("y") == b"\7" * SIZE and all(ended(h, op) for op in ops)


def test_sides_of_a_mirrored_buffer(h):
    h.put("m", OLD, "?mirrored=true")
    hold(h)
    ops = [fill(h, "m", 7, side="device"), left(h, "POST", "buffers/m/sync", {"to": "host", "stream": "a"}),
           fill(h, "m", 8, side="host", offset=0, bytes=32), copy(h, "y", "m"),
           left(h, "POST", "buffers/m/sync", {"to": "device", "stream": "a"})]
    assert h.data("m", "?stream=a") == b"\10" * 32 + b"\7" * 32
    results = [ended(h, op)["result"] for op in ops]
    assert results[1]["copied"] is results[4]["copied"] is True and h.meta("m")["head"] == "synced"
    assert h.data("y") == b"\10" * 32 + b"\7" * 32


def test_a_mirrored_buffer_is_written_beside_those_that_read_it(h):
    h.put("m", OLD, "?mirrored=true")
    hold(h)
    get = waiting_get(h, "m", "a")
    until("the GET waits", lambda: h.get("/v1/stats")["running"]["downloads"])
    ops = [fill(h, "m", 7, offset=0, bytes=8), left(h, "PUT", "buffers/m/data?stream=a", b"8" * SIZE)]
    ops += [fill(h, "m", 9, offset=0, bytes=8)]
    assert h.data("m", "?stream=a") == b"\11" * 8 + b"8" * 56
    assert finished(get).expect(200).body == OLD and [ended(h, op)["result"]["generation"] for op in ops] == [2, 3, 4]


def test_writes_in_place(h):
    hold(h)
    ops = [fill(h, "x", 1, in_place=True), fill(h, "x", 2, offset=0, bytes=8),
           fill(h, "x", 3, offset=4, bytes=8, in_place=True), copy(h, "y", "x"), fill(h, "z", 4)]
    assert h.data("x", "?stream=a") == b"\2" * 4 + b"\3" * 8 + b"\1" * 52
    assert all(ended(h, op) for op in ops) and h.data("y") == h.data("x")


def test_a_write_in_place_waits_for_its_source(h):
    """One that fails leaves no bytes that were never committed."""
    hold(h)
    fill(h, "x", 7)
    bad = fill(h, "x", 8, {"If-Match": etag(h, "x")})
    op = copy(h, "y", "x", in_place=True)
    failed(h, bad, 412, "precondition_failed")
    failed(h, op, 409, "dependency_failed")
    assert h.data("y") == OLD and h.meta("y")["state"] == "ready"


def test_an_upload_behind_the_deletion_of_a_sealed_buffer(h):
    h.post("buffers/x/seal")
    hold(h)
    batch = left(h, "POST", "batch", {"operations": [op("fill", "y", pattern=1), op("delete", "x")], "stream": "a"})
    made = left(h, "PUT", "buffers/x/data?stream=a", b"new")
    assert ended(h, batch) and ended(h, made)["status"] == 201 and h.data("x") == b"new"


def test_deletes_creates_and_seals(h):
    hold(h)
    ops = [fill(h, "x", 7), copy(h, "y", "x")]
    h.delete("buffers/x?stream=a")
    assert all(ended(h, op) for op in ops) and h.data("y") == b"\7" * SIZE  # the delete waited for its bytes alone
    h.ask("GET", "buffers/x/data?stream=a").problem(404, "buffer_not_found")
    hold(h)
    first = fill(h, "y", 1)
    batch = left(h, "POST", "batch", {"operations": [{"op": "delete", "buffer": "y"}], "stream": "a"})
    gone, made = fill(h, "y", 2), left(h, "POST", "buffers", {"name": "y", "bytes": 8, "stream": "a"})
    filled = fill(h, "y", 3, offset=0, bytes=4)
    assert h.data("y", "?stream=a") == b"\3" * 4 + bytes(4)
    failed(h, gone, 404, "buffer_not_found")
    assert [ended(h, op)["status"] for op in (first, batch, made, filled)] == [200, 200, 201, 200]
    hold(h)
    op = fill(h, "z", 7)
    assert h.post("buffers/z/seal?stream=a")["generation"] == 2
    assert ended(h, op) and h.data("z") == b"\7" * SIZE


def test_what_leaves_memory_behind_a_fill_is_what_it_wrote(start):
    s = Session(start("--spill-host-bytes", "16777216"))
    prepare(s)
    s.put("l", payload(LARGE))
    hold(s)
    op = fill(s, "l", 7)
    gone = ended(s, left(s, "POST", "buffers/l/evict?stream=a", {"to": "host"}))["result"]
    assert ended(s, op) and (gone["generation"], gone["tier"]) == (2, "host") and s.data("l") == b"\7" * LARGE


def test_bytes_that_are_on_disk_alone_keep_the_order(start):
    """An eviction that waits takes them from memory; what comes behind it loads them, and keeps its place."""
    s = Session(start())
    prepare(s)
    for name in "vw":
        s.put(name, OLD, "?durability=sync&stream=a")
    hold(s)
    ops = [fill(s, "v", 7), left(s, "POST", "buffers/v/evict?stream=a"), fill(s, "v", 1, offset=0, bytes=8)]
    ops += [left(s, "POST", "batch", {"operations": [op("fill", "v", pattern=p, offset=4, bytes=8)], "stream": "a"})
            for p in (2, 3)]
    ops += [fill(s, "v", 4, offset=6, bytes=8), copy(s, "x", "v", bytes=16)]
    evicted = left(s, "POST", "buffers/w/evict?stream=a")
    copied = copy(s, "made", "w")
    s.delete("buffers/made?stream=a")
    assert all(ended(s, one)["status"] < 300 for one in (*ops, evicted, copied))
    assert s.data("v", "?stream=a") == b"\1" * 4 + b"\3" * 2 + b"\4" * 8 + b"\7" * 50
    assert s.data("x")[:16] == s.data("v")[:16]
    s.ask("HEAD", "buffers/made").expect(404)


def test_a_copy_has_its_source_also_when_that_is_on_disk_alone(start):
    """Later writes of the source wait until the copy has its bytes."""
    s = Session(start())
    prepare(s)
    s.put("v", payload(LARGE, 3), "?durability=sync")
    for i in range(4):
        old = s.data("v")
        s.post("buffers/v/evict")
        if i % 2:
            operations = [op("fill", "y", pattern=1), op("copy", "z", **{"from": "v", "bytes": SIZE, "in_place": True}),
                          op("copy", "made", **{"from": "v"}), op("fill", "v", pattern=i, offset=0, bytes=1)]
            copied = left(s, "POST", "batch", {"operations": operations, "stream": "a"})
        else:
            copied = copy(s, "made", "v")
        ops = [left(s, "PUT", "buffers/v/data?stream=a", payload(LARGE, i)), fill(s, "v", 1, offset=5, bytes=5)]
        assert all(ended(s, one)["status"] in (200, 201) for one in (copied, *ops))
        assert s.data("made") == old and s.data("v")[5:10] == b"\1" * 5
        assert not i % 2 or s.data("z") == old[:SIZE]
        s.delete("buffers/made")


@pytest.mark.parametrize("kind", ["device", "pinned", "managed"])
def test_an_encoded_body_takes_its_place_with_its_last_byte(h, kind):
    """Also before it is decoded, and before its memory is there."""
    names = [f"k{i}" for i in range(6)]
    if h.ask("PUT", f"buffers/k0/data?kind={kind}", OLD).status == 501:
        pytest.skip("the device has no memory of that kind")
    for name in names[1:]:
        h.put(name, OLD, "?kind=" + kind)
    hold(h)
    ops = [(left(h, "PUT", f"buffers/{n}/data?stream=a", gzip.compress(payload(SIZE, 5)), {"Content-Encoding": "gzip"}),
            fill(h, n, 9, offset=0, bytes=4)) for n in names]
    still_held(h)
    assert [[ended(h, op)["result"]["generation"] for op in both] for both in ops] == [[2, 3]] * len(names)
    assert all(h.data(n) == b"\11" * 4 + payload(SIZE, 5)[4:] for n in names)


@pytest.mark.parametrize("query", ["", "&side=device", "&in_place=true"])
def test_an_upload_of_the_whole_continues_behind_a_failed_write(h, query):
    name = "x" if "in_place" in query else "m"
    if name == "m":
        h.put("m", OLD, "?mirrored=true")
    hold(h)
    fill(h, name, 7)
    bad = fill(h, name, 8, {"If-Match": etag(h, name)})
    whole = left(h, "PUT", f"buffers/{name}/data?stream=a" + query, payload(SIZE, 6))
    failed(h, bad, 412, "precondition_failed")
    assert ended(h, whole) and h.data(name) == payload(SIZE, 6)


def test_a_completion_takes_its_place_before_its_bytes_are_read(h):
    """The reading that a digest asks for waits for the stream; what is sent meanwhile follows the completion."""
    upload = Upload(h, "x", bytes=SIZE, stream="a")
    upload.part(0, OLD).expect(200)
    hold(h)
    digest = base64.b64encode(hashlib.sha256(OLD).digest()).decode()
    done = left(h, "POST", upload.path + "/complete", {"digest": {"sha-256": digest}})
    last = fill(h, "x", 9, offset=0, bytes=8)
    still_held(h)
    assert [ended(h, op)["result"]["generation"] for op in (done, last)] == [2, 3]
    assert h.data("x") == b"\11" * 8 + OLD[8:]
    again = Upload(h, "x", bytes=SIZE, stream="a")
    again.part(0, payload(SIZE, 9)).expect(200)
    hold(h)
    wrong = left(h, "POST", again.path + "/complete", {"digest": {"sha-256": digest}})
    part, whole = fill(h, "x", 8, offset=0, bytes=8), fill(h, "x", 7)
    still_held(h)
    failed(h, wrong, 400, "digest_mismatch")
    failed(h, part, 409, "dependency_failed")
    assert ended(h, whole)["result"]["generation"] == 4


# --- uploads of slow clients ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "&offset=0"])
def test_an_upload_takes_its_place_with_its_last_byte(h, query):
    """A client that sends slowly holds up no other, and comes after all that was accepted meanwhile."""
    h.put("l", payload(LARGE))
    data = payload(LARGE // 2 if query else LARGE, 5)
    slow = h.daemon.raw().put(DATA.format(h.name, "l") + "?stream=a" + query, len(data)).send(data[:LARGE // 4])
    until("it has begun", lambda: h.get("/v1/stats")["running"]["uploads"] == 1)
    assert h.fill("l", 7, stream="a")["generation"] == 2 and h.data("l", "?stream=a") == b"\7" * LARGE
    assert h.copy("n", "l", 201, stream="a") and h.data("n") == b"\7" * LARGE
    hold(h)
    op = fill(h, "l", 8)
    slow.send(data[LARGE // 4:])
    r = finished(slow).expect(200)
    assert (ended(h, op)["result"]["generation"], r.json()["generation"]) == (3, 4)
    assert h.data("l") == data + b"\10" * (LARGE - len(data))


def test_an_upload_that_breaks_off_was_never_there(h):
    slow = h.daemon.raw().put(DATA.format(h.name, "x") + "?stream=a", LARGE).send(payload(LARGE // 2))
    until("it has begun", lambda: h.get("/v1/stats")["running"]["uploads"] == 1)
    hold(h)
    op = fill(h, "x", 7, offset=0, bytes=8)
    slow.close()
    assert ended(h, op)["result"]["generation"] == 2 and h.data("x") == b"\7" * 8 + OLD[8:]


# --- between streams --------------------------------------------------------------------------------------------------


def test_an_event_carries_the_order(h):
    hold(h)
    first = fill(h, "x", 7)
    h.post("events/e/record", {"stream": "a"})
    later = fill(h, "x", 8)
    h.post("events/e/wait", {"stream": "b"})
    op = copy(h, "y", "x", stream="b")
    r = h.ask("GET", "buffers/y/data?stream=b").expect(200)
    assert r.body == b"\7" * SIZE and r.headers["Gpubuf-Generation"] == "2"
    assert [ended(h, o)["result"]["generation"] for o in (first, later, op)] == [2, 3, 2]
    assert h.data("x") == b"\10" * SIZE


def test_an_order_reaches_over_several_streams(h):
    h.post("events", {"name": "f"}, 201)
    hold(h)
    fill(h, "x", 7)
    for event, of, at in (("e", "a", "b"), ("f", "b", "default")):
        h.post(f"events/{event}/record", {"stream": of})
        h.post(f"events/{event}/wait", {"stream": at})
    part = left(h, "PUT", "buffers/x/data?offset=60", b"1234")
    assert h.data("x") == b"\7" * 60 + b"1234" and ended(h, part)["result"]["generation"] == 3


@pytest.mark.parametrize("again", [False, True])
def test_what_waits_on_a_stream_that_is_deleted(h, again):
    """It ends as if the stream were there, and another stream of the name has nothing of it."""
    hold(h)
    first = fill(h, "x", 7)
    h.post("events/e/record", {"stream": "a"})
    h.post("events/e/wait", {"stream": "b"})
    ops = [first, fill(h, "x", 8, stream="b", offset=0, bytes=8), copy(h, "y", "x", stream="b")]
    part = left(h, "PUT", "buffers/x/data?stream=b&offset=60", b"1234")
    h.delete("streams/b")
    if again:
        h.post("streams", {"name": "b"}, 201)
    still_held(h)
    assert [ended(h, op)["status"] for op in ops] == [200] * 3 and ended(h, part)["status"] == 200
    assert h.data("x") == b"\10" * 8 + b"\7" * 52 + b"1234" and h.data("y") == b"\10" * 8 + b"\7" * 56


def test_without_an_order_the_last_committed_generation_is_seen(h):
    hold(h)
    op = fill(h, "x", 7)
    for query in ("", "?stream=b"):
        r = h.ask("GET", "buffers/x/data" + query).expect(200)
        assert (r.body, r.headers["Gpubuf-Generation"]) == (OLD, "1")
    assert h.copy("y", "x", stream="b") and h.data("y") == OLD
    assert h.post("buffers/x/verify?stream=b")["crc32c"] == crc32c(OLD)
    still_held(h)
    ended(h, op)
    assert h.data("x", "?stream=b") == b"\7" * SIZE


def test_the_default_is_a_stream_of_the_session(h):
    hold(h, "default")
    op = left(h, "POST", "buffers/x/fill", {"pattern": 7})
    assert h.data("x") == h.data("x", "?stream=default") == b"\7" * SIZE and ended(h, op)


# --- conditions and failures ------------------------------------------------------------------------------------------


def test_conditions_are_decided_when_the_turn_comes(h):
    now, then = etag(h, "x"), etag(h, "x", 1)
    hold(h)
    good = [fill(h, "x", 7), fill(h, "x", 8, {"If-Match": then}), copy(h, "y", "x", from_if_match=etag(h, "x", 2))]
    fill(h, "z", 1)
    r = h.ask("POST", "buffers/z/copy", {"from": "x", "stream": "a", "from_if_match": now}, ASYNC)
    r.problem(412, "precondition_failed")
    still_held(h)
    up = left(h, "PUT", "buffers/x/data?stream=a", OLD, {"If-Match": etag(h, "x", 2)})
    assert [ended(h, op)["result"]["generation"] for op in (*good, up)] == [2, 3, 2, 4]
    assert (h.data("x"), h.data("y"), h.data("z")) == (OLD, b"\10" * SIZE, b"\1" * SIZE)


def test_what_depends_on_a_write_that_failed_says_so(h):
    hold(h)
    first = fill(h, "x", 7)
    bad = fill(h, "x", 8, {"If-Match": etag(h, "x")})
    dependent = [fill(h, "x", 9, offset=0, bytes=8), copy(h, "y", "x"),
                 left(h, "PUT", "buffers/x/data?stream=a&offset=3", b"123")]
    still_held(h)
    assert ended(h, first)["result"]["generation"] == 2
    failed(h, bad, 412, "precondition_failed")
    for op in dependent:
        assert "If-Match" in failed(h, op, 409, "dependency_failed"), op
    assert h.data("y") == OLD and h.data("x", "?stream=a") == b"\7" * SIZE  # which was accepted after the failure


def test_a_read_behind_a_write_that_fails_gives_the_old_bytes(h):
    hold(h)
    fill(h, "x", 7)
    bad = fill(h, "x", 8, {"If-Match": etag(h, "x")})
    verified = left(h, "POST", "buffers/x/verify?stream=a")
    r = h.ask("GET", "buffers/x/data?stream=a").expect(200)
    assert (r.body, r.headers["Gpubuf-Generation"]) == (b"\7" * SIZE, "2")
    failed(h, bad, 412, "precondition_failed")
    result = ended(h, verified)["result"]
    assert (result["crc32c"], result["generation"]) == (crc32c(b"\7" * SIZE), 2)


def test_what_does_not_depend_on_it_is_carried_out(h):
    hold(h)
    fill(h, "x", 7)
    bad = fill(h, "x", 8, {"If-Match": etag(h, "x")})
    good = [fill(h, "x", 9), fill(h, "x", 1, offset=0, bytes=8), copy(h, "y", "x")]
    assert [ended(h, op)["result"]["generation"] for op in good] == [3, 4, 2]
    failed(h, bad, 412, "precondition_failed")
    assert h.data("x") == h.data("y") == b"\1" * 8 + b"\11" * 56


def test_a_cancelled_one_is_one_that_failed(h):
    hold(h)
    ops = [fill(h, "x", 1, offset=0, bytes=8), fill(h, "x", 2, offset=8, bytes=8), fill(h, "x", 3, offset=16, bytes=8)]
    copied = copy(h, "y", "x")
    h.ask("DELETE", "/v1/operations/" + ops[1]["id"]).expect(200)
    still_held(h)
    after = fill(h, "x", 4, offset=24, bytes=8)
    assert ended(h, ops[0])["result"]["generation"] == 2
    ended(h, ops[1], "cancelled")
    assert "cancelled" in failed(h, ops[2], 409, "dependency_failed")
    failed(h, copied, 409, "dependency_failed")
    # This one builds on those that wait, and says so.
    failed(h, after, 409, "dependency_failed")
    assert h.data("x") == b"\1" * 8 + OLD[8:]
    hold(h)
    op = fill(h, "z", 1, offset=0, bytes=8)
    h.ask("DELETE", "/v1/operations/" + op["id"]).expect(200)
    assert ended(h, fill(h, "z", 2, offset=8, bytes=8))["result"]["generation"] == 2, "the cancelled one had ended"
    assert h.data("z") == OLD[:8] + b"\2" * 8 + OLD[16:]


@pytest.mark.parametrize("query", ["", "?mirrored=true"])
def test_one_that_fails_first_hides_no_earlier_one(h, query):
    """What waited for it sees what those before it write, or says that it failed."""
    h.delete("buffers/x")
    h.put("x", OLD, query)
    hold(h)
    first = fill(h, "x", 7)
    cancelled = copy(h, "x", "y")
    get = waiting_get(h, "x", "a")
    until("the GET waits", lambda: h.get("/v1/stats")["http"]["suspended"])
    h.ask("DELETE", "/v1/operations/" + cancelled["id"]).expect(200)
    still_held(h)
    r = finished(get).expect(200)
    assert (r.body, r.headers["Gpubuf-Generation"]) == (b"\7" * SIZE, "2") and ended(h, first)
    hold(h)
    batch = left(h, "POST", "batch", {"operations": [
        op("fill", "x", pattern=8), op("copy", "x", **{"from": "none"}), op("copy", "z", **{"from": "x"}),
        op("fill", "x", pattern=9, offset=0, bytes=8)], "stream": "a"})
    results = ended(h, batch)["result"]["results"]
    assert [r["status"] for r in results[:2]] == [200, 404]
    codes = [r["problem"] and r["problem"]["code"] for r in results[2:]]
    assert set(codes) <= {None, "dependency_failed"}, codes
    assert h.data("z") == (OLD if codes[0] else b"\10" * SIZE)
    assert h.data("x") == (b"" if codes[1] else b"\11" * 8) + b"\10" * (64 if codes[1] else 56)


# --- batches ----------------------------------------------------------------------------------------------------------


def op(word, buffer, **fields):
    return {"op": word, "buffer": buffer, **fields}


@pytest.mark.parametrize("atomic", [False, True])
def test_a_batch_sees_itself_and_is_one_commit(h, atomic):
    operations = [op("fill", "x", pattern=7), op("copy", "y", **{"from": "x"}),
                  op("fill", "y", pattern=1, offset=0, bytes=8)]
    operations += [op("fill", "x", pattern=i % 256, offset=i % 2 * 32, bytes=32) for i in range(200)]
    operations += [op("copy", "z", **{"from": "x"})]
    hold(h)
    before = h.get("/v1/stats")["store"]["commits"]
    waits = left(h, "POST", "batch", {"operations": operations, "stream": "a", "atomic": atomic})
    last = copy(h, "x", "z", bytes=1)
    still_held(h)
    result = ended(h, waits)["result"]
    assert (result["done"], result["failed"]) == (len(operations), 0)
    assert ended(h, last)["result"]["generation"] == 203
    # The housekeeper has commits of its own.
    assert h.get("/v1/stats")["store"]["commits"] <= before + 20
    assert h.data("y") == b"\1" * 8 + b"\7" * 56
    assert h.data("z") == h.data("x") == bytes([198]) * 32 + bytes([199]) * 32


def test_a_batch_has_one_place(h):
    """Also one that waits for commits of its own."""
    hold(h)
    waits = left(h, "POST", "batch", {"operations": [
        op("fill", "x", pattern=1), op("fill", "x", pattern=2, in_place=True), op("copy", "y", **{"from": "x"}),
        op("delete", "z"), op("copy", "z", **{"from": "x"}), op("fill", "x", pattern=3, offset=0, bytes=8)],
        "stream": "a"})
    after = [fill(h, "x", 4, offset=60, bytes=4), copy(h, "y", "z", bytes=8)]
    still_held(h)
    assert [r["status"] for r in ended(h, waits)["result"]["results"]] == [200, 200, 200, 204, 201, 200]
    assert all(ended(h, o) for o in after)
    assert (h.data("x"), h.data("y")) == (b"\3" * 8 + b"\2" * 52 + b"\4" * 4, b"\2" * SIZE)


def test_an_atomic_batch_that_is_refused_leaves_all_as_it_was(h):
    hold(h)
    fill(h, "x", 7)
    waits = left(h, "POST", "batch", {"operations": [
        op("fill", "x", pattern=1), op("copy", "y", **{"from": "x"}),
        op("copy", "z", **{"from": "y", "from_if_match": etag(h, "y")})], "stream": "a", "atomic": True})
    after = fill(h, "y", 2, offset=0, bytes=8)
    failed(h, waits, 412, "precondition_failed")
    failed(h, after, 409, "dependency_failed")
    assert (h.data("x"), h.data("y"), h.data("z")) == (b"\7" * SIZE, OLD, OLD)


def test_what_builds_on_a_refused_operation_of_a_batch_fails(h):
    """As behind a request of its own; what writes all of the buffer continues. The others of the batch do as if the
    operation had not been there."""
    hold(h)
    fill(h, "y", 7)
    batch = left(h, "POST", "batch", {"operations": [
        op("delete", "y"), op("copy", "x", **{"from": "y"}), op("fill", "z", pattern=5, offset=0, bytes=8),
        op("copy", "z", **{"from": "y"}), op("fill", "z", pattern=6, offset=4, bytes=8)], "stream": "a"})
    behind = [fill(h, "x", 2, offset=0, bytes=8), copy(h, "new", "x")]
    whole, part = fill(h, "x", 3), fill(h, "z", 4, offset=0, bytes=2)
    still_held(h)
    assert [r["status"] for r in ended(h, batch)["result"]["results"]] == [204, 404, 200, 404, 200]
    for one in behind:
        assert "no buffer named" in failed(h, one, 409, "dependency_failed")
    assert ended(h, whole) and ended(h, part)
    assert (h.data("x"), h.data("z")) == (b"\3" * SIZE, b"\4" * 2 + b"\5" * 2 + b"\6" * 8 + OLD[12:])


def test_a_copy_makes_what_a_refused_batch_was_to_make(h):
    hold(h)
    fill(h, "x", 7)
    batch = left(h, "POST", "batch", {"operations": [
        op("copy", "made", **{"from": "x"}), op("fill", "none", pattern=3)], "stream": "a", "atomic": True})
    ops = [copy(h, "made", "y"), fill(h, "made", 1, offset=0, bytes=8)]
    failed(h, batch, 404, "buffer_not_found")
    assert [ended(h, one)["status"] for one in ops] == [201, 200] and h.meta("made")["generation"] == 2
    assert h.data("made") == b"\1" * 8 + OLD[8:]


def test_an_atomic_batch_that_is_refused_leaves_a_mirrored_buffer_as_it_was(h):
    h.put("m", OLD, "?mirrored=true")
    hold(h)
    first = fill(h, "m", 7, offset=0, bytes=8)
    operations = [op("fill", "m", pattern=1, offset=4, bytes=8), op("fill", "none", pattern=3)]
    waits = left(h, "POST", "batch", {"operations": operations, "stream": "a", "atomic": True})
    failed(h, waits, 404, "buffer_not_found")
    assert ended(h, first) and h.data("m") == b"\7" * 8 + OLD[8:]
    operations[1]["buffer"] = "x"
    assert ended(h, left(h, "POST", "batch", {"operations": operations, "stream": "a", "atomic": True}))
    assert h.data("m") == b"\7" * 4 + b"\1" * 8 + OLD[12:]


def test_a_batch_that_writes_durable_buffers_twice(h):
    for name in "vw":
        h.put(name, OLD, "?durability=behind")
    for atomic in (True, False):
        h.post("batch", {"operations": [
            op("fill", "v", pattern=1), op("fill", "w", pattern=2), op("fill", "v", pattern=3, offset=0, bytes=8),
            op("copy", "w", offset=8, bytes=16, **{"from": "v"}), op("fill", "v", pattern=4, offset=4, bytes=8)],
            "stream": "a", "atomic": atomic})
        for name in "vw":
            h.post(f"buffers/{name}/evict")
        assert h.data("v") == b"\3" * 4 + b"\4" * 8 + b"\1" * 52
        assert h.data("w") == b"\2" * 8 + b"\3" * 8 + b"\1" * 8 + b"\2" * 40


# --- many, and the end ------------------------------------------------------------------------------------------------


def test_a_thousand_wait_and_end(h):
    hold(h)
    ops = [fill(h, "x", i % 251, offset=i % 2 * 32, bytes=32) for i in range(1000)]
    assert h.daemon.ask("GET", "/livez").status == 200
    assert [ended(h, o)["result"]["generation"] for o in ops] == list(range(2, 1002))
    assert h.data("x") == bytes([998 % 251]) * 32 + bytes([999 % 251]) * 32
    assert h.meta("x")["generation"] == 1001


def test_the_session_ends_while_requests_wait(start):
    d = start(*SMALL_SLOTS)
    d.ask("POST", "/v1/sessions", {"name": "one"}).expect(201)
    s, other = Session(d, "one"), Session(d)
    prepare(s)
    hold(s, ms=LONG_MS)
    hold(s, "b", ms=LONG_MS)
    ops = [fill(s, "x", 1), fill(s, "x", 2, offset=0, bytes=8), copy(s, "y", "x")]
    get = waiting_get(s, "y", "a")
    s.post("events/e/record", {"stream": "a"})
    s.post("events/e/wait", {"stream": "b"})
    ops.append(left(s, "PUT", "buffers/x/data?stream=b&offset=3", b"123"))
    d.ask("DELETE", "/v1/sessions/one").expect(204)
    for o in ops:
        found = look(other, o, 60)
        assert found["state"] in ("done", "failed") and found["ended_at"], found
    assert finished(get).status in (200, 404, 409)
    until("its memory is free", lambda: other.get("pools/default")["used_bytes"] == 0)


def test_a_stream_is_deleted_while_requests_wait(h):
    hold(h)
    ops = [fill(h, "x", 1), fill(h, "x", 2, offset=0, bytes=8), copy(h, "y", "x")]
    h.delete("streams/a")
    h.post("streams", {"name": "a"}, 201)
    again = fill(h, "z", 3)
    assert all(ended(h, o) for o in (*ops, again))
    assert h.data("x") == h.data("y") == b"\2" * 8 + b"\1" * 56 and h.data("z") == b"\3" * SIZE


def test_a_stop_ends_the_waits(start):
    d = start(*SMALL_SLOTS, "--stop-timeout", "5")
    s = Session(d)
    prepare(s)
    hold(s, ms=LONG_MS)
    for i in range(50):
        fill(s, "x", i, offset=0, bytes=8)
        copy(s, "y", "x")
    get = waiting_get(s, "y", "a")
    d.process.send_signal(signal.SIGTERM)
    r = get.reply()
    assert r is None or r.status in (200, 409, 503)
    get.close()
    d.finished()


@pytest.mark.parametrize("rule", ["place_fill@2", "event_record@30", "alloc@9"])
def test_a_device_that_dies_ends_the_waits(start, backend, rule):
    s = Session(start(*SMALL_SLOTS, spec=f"fault:{rule}=cudaErrorIllegalAddress:{backend}"))
    prepare(s)
    hold(s, ms=200)
    ops = []
    for i in range(20):
        for path, body in (("buffers/x/fill", {"pattern": i, "offset": i, "bytes": 8}),
                           ("buffers/y/copy", {"from": "x"})):
            r = s.daemon.ask("POST", f"{s.base}/{path}", {**body, "stream": "a"}, ASYNC)
            ops += [r.json()] if r.status == 202 else []
    for o in ops:
        found = s.ask("GET", "/v1/operations/" + o["id"], None, {"Prefer": "wait=60"}).expect(200).json()
        assert found["state"] in ("done", "failed"), found
        if found["state"] == "failed":
            assert found["problem"]["code"] in ("device_lost", "device_error", "dependency_failed", "content_lost")
    s.daemon.settled()


def test_tensors_are_those_behind_the_writes_of_the_stream(h):
    hold(h)
    fill(h, "x", 7)
    assert h.ask("GET", "tensors?names=x,y").expect(200).body.endswith(OLD * 2)
    assert h.ask("GET", "tensors?names=x,y&stream=a").expect(200).body.endswith(b"\7" * SIZE + OLD)
