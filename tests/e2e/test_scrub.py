"""Scrubs: damage on disk is found before a request meets it, and what memory still has is written again."""
import os

import pytest

from durable import DATA_AT, SYNC, aside, becomes_tidy, file_of, files, load, path_of, storage
from feed import Feed
from harness import DATA, metric, until
from values import payload

pytestmark = pytest.mark.once  # the disk's own work

SIZE = 3 * (1 << 20) + 5
FAST = {"rate": 1 << 34}
DAEMON = "/v1/storage/scrub"


def flip(path, at):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 4]))


DAMAGE = {
    "first block": lambda p: flip(p, DATA_AT), "middle block": lambda p: flip(p, DATA_AT + (1 << 20) + 7),
    "last block": lambda p: flip(p, DATA_AT + SIZE - 1), "header": lambda p: flip(p, 40),
    "shorter": lambda p: os.truncate(p, DATA_AT + SIZE - 1), "longer": lambda p: os.truncate(p, DATA_AT + SIZE + 1),
    "missing": os.unlink}


def scrub(d, body=None, headers=None):
    return d.ask("POST", DAEMON, FAST if body is None else body, headers)


def etag(d, name):
    return d.ask("HEAD", DATA.format("default", name)).headers["ETag"]


def test_sound_files_are_read_once(lives):
    d = lives()
    assert storage(d)["scrub"] == {"state": "idle", "began": None, "files": 0, "bytes": 0, "damaged": 0, "healed": 0,
                                   "skipped": 0, "last_ended": None}
    for i, n in enumerate("xy"):
        d.put(n, payload(SIZE, i), query=SYNC).expect(201)
    d.put("small", payload(1000), query=SYNC).expect(201)  # it lies in the database
    r = scrub(d).expect(200).json()
    assert (r["files"], r["bytes"], r["damaged"], r["healed"], r["skipped"]) == (2, 2 * SIZE, 0, 0, 0)
    seen = storage(d)["scrub"]
    assert (seen["state"] == "idle" and seen["files"] == 2 and seen["began"] == r["began"] and seen["last_ended"]
            >= seen["began"])
    assert metric(d, "gpubufd_scrub_bytes_total") == 2 * SIZE and metric(d, "gpubufd_scrub_damaged_total") == 0
    d = lives()
    assert storage(d)["scrub"]["last_ended"][:19] == seen["last_ended"][:19]  # the folder remembers it
    assert scrub(d).expect(200).json()["files"] == 2  # also those that are on disk alone


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_healed_from_memory(lives, kind):
    d = lives()
    for i, n in enumerate("xyz"):
        d.put(n, payload(SIZE, i), query=SYNC).expect(201)
    tag, path = etag(d, "y"), file_of(d, "y")
    DAMAGE[kind](path)
    with Feed(d) as feed:
        r = scrub(d).expect(200).json()
        assert (r["files"], r["damaged"], r["healed"]) == (3, 1, 1)
        assert [(find["buffer"], find["healed"]) for find in r["found"]] == [("y", True)] and not d.meta("y")["damaged"]
        event = feed.find("buffer.damaged")
        assert event["buffer"] == "y" and event["generation"] == 1
        event = feed.find("buffer.healed")
        assert event["buffer"] == "y" and event["generation"] == 1
    becomes_tidy(d.state)
    until("the damaged file is set aside", lambda: aside(d.state, "damaged") == ([] if kind == "missing"
                                                                                 else [os.path.basename(path)]))
    assert etag(d, "y") == tag and file_of(d, "y") != path
    assert metric(d, "gpubufd_scrub_damaged_total") == metric(d, "gpubufd_scrub_healed_total") == 1
    assert scrub(d).expect(200).json()["damaged"] == 0
    d = lives()
    assert etag(d, "y") == tag
    for i, n in enumerate("xyz"):
        assert d.data(n).body == payload(SIZE, i)
    assert scrub(d).expect(200).json()["damaged"] == 0


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_without_memory_is_told(lives, kind):
    d = lives()
    for i, n in enumerate("xy"):
        d.put(n, payload(SIZE, i), query=SYNC).expect(201)
    path = file_of(d, "x")
    d = lives()
    DAMAGE[kind](path)
    with Feed(d) as feed:
        r = scrub(d).expect(200).json()
        assert (r["files"], r["damaged"], r["healed"]) == (2, 1, 0)
        assert r["found"] == [{"session": "default", "buffer": "x", "healed": False,
                               "code": "content_lost" if kind == "missing" else "content_damaged"}]
        assert feed.find("buffer.damaged")["buffer"] == "x"
    assert d.meta("x")["damaged"] and not d.meta("y")["damaged"] and metric(d, "gpubufd_damaged_buffers") == 1
    assert scrub(d).expect(200).json()["damaged"] == 1
    assert storage(d)["damaged"] == metric(d, "gpubufd_storage_damaged_total") == 1, ("a file counts once, however "
                                                                                      "often it is read")
    assert aside(d.state, "damaged") == [] and os.path.exists(path) == (kind != "missing")
    assert d.data("y").body == payload(SIZE, 1)
    assert d.put("x", payload(SIZE, 7)).expect(200).json()["generation"] == 2
    assert not d.meta("x")["damaged"]
    until("no bytes are damaged", lambda: metric(d, "gpubufd_damaged_buffers") == 0)
    assert scrub(d).expect(200).json()["damaged"] == 0


def test_a_file_that_is_whole_again(lives):
    d = lives()
    d.put("x", payload(SIZE), query=SYNC).expect(201)
    path = file_of(d, "x")
    d = lives()
    flip(path, DATA_AT)
    d.data("x").problem(410, "content_damaged")
    d.data("x").problem(410, "content_damaged")
    load(d, "x").problem(410, "content_damaged")  # and with it the load that the downloads began
    assert d.meta("x")["damaged"] and storage(d)["damaged"] == 1
    flip(path, DATA_AT)
    assert (scrub(d).expect(200).json()["found"] == [] and not d.meta("x")["damaged"]
            and metric(d, "gpubufd_damaged_buffers") == 0)
    flip(path, DATA_AT)
    d.data("x").problem(410, "content_damaged")
    load(d, "x").problem(410, "content_damaged")
    flip(path, DATA_AT)
    until("the failed load is forgotten", lambda: load(d, "x").status == 200)
    assert not d.meta("x")["damaged"] and storage(d)["damaged"] == 2


def test_host_memory_has_better_bytes(lives):
    d = lives("--spill-host-bytes", "64M")
    d.put("x", payload(SIZE), query=SYNC).expect(201)
    flip(file_of(d, "x"), DATA_AT)
    d.ask("POST", path_of("x") + "/evict", {"to": "host"}).expect(200)
    assert scrub(d).expect(200).json()["damaged"] == 1 and d.meta("x")["damaged"]
    d.ask("POST", path_of("x") + "/load").expect(200)
    assert d.data("x").body == payload(SIZE) and d.meta("x")["damaged"]
    assert scrub(d).expect(200).json()["healed"] == 1 and not d.meta("x")["damaged"]
    d = lives()
    assert d.data("x").body == payload(SIZE)


def test_the_log_says_what_a_start_has_found(lives):
    d = lives()
    for i, n in enumerate("xy"):
        d.put(n, payload(SIZE, i), query=SYNC).expect(201)
    d.put("mortal", payload(100)).expect(201)
    assert "are lost" not in d.log()
    path = file_of(d, "x")
    d = lives()
    assert "start: 1 buffers are lost, of which 0 are durable" in d.log()
    os.rename(path, path.replace(".safetensors", "0.safetensors"))
    d = lives()
    assert "start: 2 buffers are lost, of which 1 are durable and lack their files; 0 have" in d.log()


def test_a_damaged_file_does_not_take_the_bytes_out_of_memory(lives):
    """The file cannot be written again in time, and an eviction comes first."""
    d = lives("--disk-fault", "create@3=EIO")  # of x, of y, and of the scrub's
    for i, n in enumerate("xy"):
        d.put(n, payload(SIZE, i), query=SYNC).expect(201)
    tag = etag(d, "x")
    flip(file_of(d, "x"), DATA_AT)
    r = scrub(d).expect(200).json()
    assert (r["damaged"], r["healed"]) == (1, 0)
    until("the disk is well again", lambda: storage(d)["state"] == "ready")
    d.ask("POST", path_of("x") + "/evict", {}).expect(200)
    assert d.meta("x")["state"] == "stored" and d.data("x").body == payload(SIZE, 0) and etag(d, "x") == tag
    d = lives()
    assert d.data("x").body == payload(SIZE, 0) and etag(d, "x") == tag


def test_spilled_bytes_are_scrubbed(lives):
    d = lives()
    d.put("x", payload(SIZE)).expect(201)
    d.ask("POST", path_of("x") + "/evict", {}).expect(200)
    (path,) = files(d.state).values()
    assert scrub(d).expect(200).json()["files"] == 1
    flip(path, DATA_AT)
    r = scrub(d).expect(200).json()
    assert (r["damaged"], r["healed"]) == (1, 0)
    d.data("x").problem(410, "content_damaged")


def test_bytes_that_the_disk_does_not_give_back(lives):
    """An error of the medium is damage."""
    d = lives()
    d.put("x", payload(SIZE), query=SYNC).expect(201)
    d = lives("--disk-fault", "read@3+=EIO")  # the header, a block, and then no more
    r = scrub(d).expect(200).json()
    assert (r["damaged"], r["healed"], r["skipped"]) == (1, 0, 0)


def test_a_download_that_finds_damage_posts_it(lives):
    d = lives()
    d.put("x", payload(SIZE), query=SYNC).expect(201)
    path = file_of(d, "x")
    d = lives()
    flip(path, DATA_AT + (2 << 20))
    with Feed(d) as feed:
        d.data("x", headers={"Range": f"bytes={2 << 20}-"}).problem(410, "content_damaged")
        event = feed.find("buffer.damaged")
    assert event["buffer"] == "x" and event["generation"] == 1


# --- its pace ---------------------------------------------------------------------------------------------------------


def test_a_pass_goes_on_beside_the_request_and_is_joined(lives):
    d = lives()
    d.put("x", payload(SIZE), query=SYNC).expect(201)
    op = scrub(d, {"rate": 65536}, {"Prefer": "respond-async"}).expect(202).json()
    until("it runs", lambda: storage(d)["scrub"]["state"] == "running")
    until("its thread has its name", lambda: "gb-scrub" in d.threads())
    r = scrub(d).expect(200).json()  # and makes it fast
    assert r["files"] == 1 and r["bytes"] == SIZE
    d.ask("GET", f"/v1/operations/{op['id']}", headers={"Prefer": "wait=10"}).expect(200)
    until("its result is there", lambda: d.get(f"/v1/operations/{op['id']}").get("result", {}).get("files") == 1)
    until("its thread has ended", lambda: "gb-scrub" not in d.threads())


def test_the_daemon_stops_while_a_pass_waits(lives):
    d = lives()
    d.put("x", payload(SIZE), query=SYNC).expect(201)
    scrub(d, {"rate": 65536}, {"Prefer": "respond-async"}).expect(202)
    until("it runs", lambda: storage(d)["scrub"]["state"] == "running")
    d.stop()
    d = lives()
    assert storage(d)["scrub"]["last_ended"] is None


def test_passes_come_by_themselves(lives):
    d = lives()
    d.put("x", payload(SIZE), query=SYNC).expect(201)
    d = lives("--scrub-interval", "1", "--scrub-rate", "1G")
    first = until("a pass has ended", lambda: storage(d)["scrub"]["last_ended"])
    until("another one has", lambda: storage(d)["scrub"]["last_ended"] > first)


def test_no_thread_without_files(lives):
    d = lives("--scrub-interval", "1")
    d.put("x", payload(1000), query=SYNC).expect(201)
    before = os.stat(os.path.join(d.state, "data", "GPUBUFD-DATA")).st_mtime_ns
    os.utime(os.path.join(d.state, "data", "GPUBUFD-DATA"), ns=(before, before - 10 * 10**9))
    d.put("y", payload(SIZE), query=SYNC).expect(201)
    until("a pass has ended", lambda: storage(d)["scrub"]["last_ended"])
    assert storage(d)["scrub"]["files"] == 1


def test_what_a_scrub_refuses(lives):
    d = lives("--scrub-rate", "0")
    scrub(d, {}).problem(400, "invalid_argument")
    scrub(d, {"rate": 65535}).problem(400, "invalid_argument")
    scrub(d, {"rate": (1 << 40) + 1}).problem(400, "invalid_argument")
    scrub(d, {"rate": "1"}).problem(400, "wrong_type")
    scrub(d, {"speed": 1}).problem(400, "unknown_field")
    scrub(d, {"rate": 65536}).expect(200)
    d = lives("--data-dir", "none")
    scrub(d).problem(501, "unsupported")
    assert "scrub" not in storage(d)
