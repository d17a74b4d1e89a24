"""The files: any reader of safetensors opens them, and what became of them outside is found."""
import json
import os
import shutil
import socket

import pytest

from durable import BEHIND, DATA_AT, INLINE, SYNC, aside, becomes_tidy, file_of, files, load, path_of, select, storage
from feed import Feed
from harness import DATA, until
from tensors import TYPES, safetensors, width
from values import payload

pytestmark = pytest.mark.once  # the disk's own work

# Those that the format does not have are U8 there.
EVERY = (*TYPES, *((name, "U8") for name in ("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "complex128")))
SIZE = 3 * (1 << 20) + 5
BIT = 8 * DATA_AT  # the first of the bytes


def opened(path):
    """(metadata, {name: (dtype, shape, bytes)}) by the safetensors library."""
    with open(path, "rb") as f:
        data = f.read()
    with safetensors.safe_open(path, framework="np") as f:
        metadata = f.metadata()
    return metadata, {n: (t["dtype"], list(t["shape"]), bytes(t["data"])) for n, t in safetensors.deserialize(data)}


@pytest.mark.parametrize("durability", (SYNC, BEHIND))
def test_each_dtype_opens_with_the_library(lives, durability):
    d = lives()
    for i, (dtype, name) in enumerate(EVERY):
        data = payload(2 * 40961 * width(dtype), i)
        made = d.put(dtype, data, query=f"{durability}&dtype={dtype}&shape=2,40961").expect(201).json()
        d.ask("PATCH", path_of(dtype), {"labels": {"é": "\"\\"}})
        d.ask("POST", path_of(dtype) + "/store", {}).expect(200)
        metadata, tensors = opened(file_of(d, dtype))
        shape = [2, 40961] if (dtype, name) in TYPES else [len(data)]
        assert tensors == {dtype: (name, shape, data)}, dtype
        wanted = {"session": "default", "buffer": dtype, "generation": "1", "dtype": dtype, "crc32c": made["crc32c"],
                  "bytes": str(len(data))}
        assert {k: metadata["gpubuf." + k] for k in wanted} == wanted
    becomes_tidy(d.state)


def test_files_have_no_other_readers(lives):
    d = lives()
    d.put("x", payload(SIZE), query=SYNC)
    for path in (os.path.join(d.state, "data"), os.path.dirname(file_of(d, "x"))):
        assert os.stat(path).st_mode & 0o777 == 0o700
    assert os.stat(file_of(d, "x")).st_mode & 0o777 == 0o600


# --- damage -----------------------------------------------------------------------------------------------------------


def flip(path, bit):
    with open(path, "r+b") as f:
        f.seek(bit // 8)
        byte = f.read(1)[0]
        f.seek(bit // 8)
        f.write(bytes([byte ^ 1 << bit % 8]))


def swap(path, other):
    os.rename(path, path + "-")
    os.rename(other, path)
    os.rename(path + "-", other)


def replaced(make):
    def do(path):
        os.unlink(path)
        make(path)
    return do


def elsewhere(path):
    os.rename(path, path + "-elsewhere")
    os.symlink(path + "-elsewhere", path)


def listening(path):
    """By way of a descriptor, as the path of a socket is short."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    socket.socket(socket.AF_UNIX).bind(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    os.close(folder)


KINDS = {
    "shorter": lambda path: os.truncate(path, os.path.getsize(path) - 1),
    "longer": lambda path: os.truncate(path, os.path.getsize(path) + 1), "empty": lambda path: os.truncate(path, 0),
    "missing": os.unlink, "folder": replaced(os.mkdir), "symlink": elsewhere, "pipe": replaced(os.mkfifo),
    "socket": replaced(listening)}


def three(lives):
    """A daemon with x, y and z on disk, which has ended."""
    d = lives()
    for i, n in enumerate("xyz"):
        d.put(n, payload(SIZE, i), query=SYNC).expect(201)
    paths = {n: file_of(d, n) for n in "xyz"}
    d.kill()
    return paths


def others_are_well(d):
    for i, n in enumerate("xyz"):
        if n != "x":
            assert d.data(n).body == payload(SIZE, i), n


@pytest.mark.parametrize("kind", KINDS)
def test_another_file_at_the_start(lives, kind):
    """By its kind or length: the buffer is lost, and all others are there."""
    paths = three(lives)
    KINDS[kind](paths["x"])
    d = lives()
    assert d.meta("x")["state"] == "lost"
    d.data("x").problem(410, "content_lost")
    load(d, "x").problem(410, "content_lost")
    others_are_well(d)
    if kind in ("shorter", "longer", "empty"):  # the cage moves no folders, links and pipes
        assert aside(d.state) == [os.path.basename(paths["x"])]
    assert d.put("x", payload(SIZE, 7)).expect(200).json()["stored_generation"] == 2
    d = lives()
    assert d.data("x").body == payload(SIZE, 7)
    others_are_well(d)


@pytest.mark.parametrize("kind", KINDS)
def test_another_file_under_a_running_daemon(lives, kind):
    paths = three(lives)
    d = lives()
    KINDS[kind](paths["x"])
    for _ in range(2):
        r = d.data("x")
        assert r.problem(410, r.json()["code"])["code"] in ("content_damaged", "content_lost")
    r = load(d, "x")
    assert r.status == 410, r
    others_are_well(d)
    assert d.put("x", payload(SIZE, 7)).expect(200).json()["stored_generation"] == 2
    assert d.data("x").body == payload(SIZE, 7)
    d = lives()
    assert d.data("x").body == payload(SIZE, 7)
    others_are_well(d)


def test_a_file_that_is_put_back_heals(lives):
    paths = three(lives)
    os.rename(paths["x"], paths["x"] + "-")
    d = lives()
    d.data("x").problem(410, "content_lost")
    d.kill()
    os.rename(paths["x"] + "-", paths["x"])
    d = lives()
    assert d.meta("x")["state"] == "stored" and d.data("x").body == payload(SIZE, 0)


@pytest.mark.parametrize("where, bit", {"length": 3, "header": 8 * 40, "padding": BIT - 5}.items())
def test_a_flipped_bit_of_the_header(lives, where, bit):
    paths = three(lives)
    flip(paths["x"], bit)
    d = lives()
    r = d.data("x")
    if r.status == 200:  # nothing that is looked at
        assert where == "padding" and r.body == payload(SIZE, 0)
    else:
        r.problem(410, "content_damaged")
    others_are_well(d)


@pytest.mark.parametrize("block", range(4))
def test_a_flipped_bit_of_the_bytes(lives, block):
    """Ranges of sound blocks are served, also after a load of all, which is refused."""
    paths = three(lives)
    flip(paths["x"], BIT + 8 * min(block * (1 << 20) + 1000, SIZE - 1))
    data = payload(SIZE, 0)
    d = lives()
    for i in (block, 0 if block else 3, block, 0 if block else 3):
        a, b = i << 20, min((i + 1) << 20, SIZE)
        r = d.data("x", headers={"Range": f"bytes={a}-{b - 1}"})
        if i == block:
            r.problem(410, "content_damaged")
        else:
            assert r.expect(206).body == data[a:b]
    others_are_well(d)
    d = lives()
    with Feed(d) as feed:
        load(d, "x").problem(410, "content_damaged")
        event = feed.find("buffer.damaged")
    assert event["buffer"] == "x" and event["generation"] == 1
    until("the log tells", lambda: "storage: 1 files were found damaged or missing, 1 in all" in d.log())
    load(d, "x").problem(410, "content_damaged")
    others_are_well(d)
    assert d.put("x", payload(SIZE, 7)).expect(200).json()["generation"] == 2
    assert d.data("x").body == payload(SIZE, 7)


def test_a_download_does_not_end_well_over_a_damaged_block(lives):
    paths = three(lives)
    flip(paths["x"], BIT + 8 * ((2 << 20) + 1000))
    d = lives()
    raw = d.raw().request("GET", DATA.format("default", "x"))
    status, headers = raw.head()
    if status == 200:
        assert len(raw.rest(SIZE)) < SIZE
    else:
        assert status == 410
    raw.close()
    others_are_well(d)


def test_files_in_each_others_place(lives):
    paths = three(lives)
    swap(paths["x"], paths["y"])
    d = lives()
    for n in "xy":
        d.data(n).problem(410, "content_damaged")
    assert d.data("z").body == payload(SIZE, 2)


def test_flipped_bits_of_the_database(lives):
    """Of bytes that lie there: they have their checksum too."""
    d = lives()
    for n in "xy":
        d.put(n, payload(INLINE, 1), query=SYNC).expect(201)
    d.stop()
    select(d.state, "update stored set data = zeroblob(65536) where buffer_id = (select id from buffers where name = "
           "'x')", write=True)
    d = lives()
    d.data("x").problem(410, "content_damaged")
    load(d, "x").problem(410, "content_damaged")
    assert d.data("y").body == payload(INLINE, 1)
    d.put("x", b"new").expect(200)
    d = lives()
    assert d.data("x").body == b"new"


def test_bits_that_flip_on_the_way_from_the_disk(lives):
    three(lives)
    d = lives("--disk-fault", f"read+=flip/{8 * 5000}")  # of the bytes, not of the shorter header
    d.data("x").problem(410, "content_damaged")
    d = lives()
    assert d.data("x").body == payload(SIZE, 0)  # the file itself is well


# --- the database and the folder are of different times ---------------------------------------------------------------


def test_an_older_database(lives, tmp_path):
    """Files that it does not know are orphans, and none is deleted."""
    d = lives()
    d.put("x", payload(SIZE, 1), query=SYNC)
    d.stop()
    old = (tmp_path / "state" / "gpubufd.db").read_bytes()
    d = lives()
    d.put("x", payload(SIZE, 2))
    d.put("y", payload(SIZE, 3), query=SYNC)
    d.stop()
    kept = {os.path.basename(p) for p in files(d.state).values()}
    (tmp_path / "state" / "gpubufd.db").write_bytes(old)
    d = lives()
    assert set(aside(d.state)) == kept and files(d.state) == {}
    assert d.meta("x")["state"] == "lost"
    for _ in range(3):
        d.put("x", payload(SIZE, 4)).expect(200)
    d = lives()
    assert d.data("x").body == payload(SIZE, 4) and set(aside(d.state)) == kept
    becomes_tidy(d.state)


def test_a_folder_that_is_not_there(lives, tmp_path):
    """As when its disk is not mounted: nothing is lost, and nothing is written where the disk belongs."""
    at = tmp_path / "disk"
    options = ("--data-dir", str(at), "--landlock", "off")
    d = lives(*options)
    tag = d.put("x", payload(SIZE, 1), query=SYNC).expect(201).headers["ETag"]
    small = d.put("small", b"abc", query=SYNC).expect(201).headers["ETag"]
    d.kill()
    os.rename(at, str(at) + "-")
    at.mkdir()
    d = lives(*options)
    assert storage(d)["state"] == "unavailable" and d.meta("x")["state"] == "stored"
    d.data("x").problem(503, "storage_unavailable")
    load(d, "x").problem(503, "storage_unavailable")
    d.put("y", payload(SIZE, 2), query=SYNC).problem(503, "storage_unavailable")
    d.put("y", b"abc").expect(201)
    assert d.ask("GET", "/readyz").status == 200 and list(at.iterdir()) == []
    at.rmdir()
    os.rename(str(at) + "-", at)
    until("the disk is there", lambda: storage(d)["state"] == "ready")
    assert d.data("x").body == payload(SIZE, 1) and d.data("x").headers["ETag"] == tag
    assert d.data("small").body == b"abc" and d.data("small").headers["ETag"] == small


def test_the_folder_of_another_database(lives, start, tmp_path):
    at = str(tmp_path / "disk")
    d = lives("--data-dir", at)
    d.put("x", payload(SIZE, 1), query=SYNC)
    d.stop()
    other = start("--data-dir", at, wait=False)
    assert other.process.wait(60) != 0 and "another" in other.log(), other.log()
    d = lives("--data-dir", at)
    assert d.data("x").body == payload(SIZE, 1)
    assert json.loads(d.ask("GET", "/v1/storage").body)["state"] == "ready"


def test_the_newer_database_is_put_back(lives):
    """What an older one did not know is in orphans/, from where the newer one takes it."""
    d = lives()
    d.put("x", payload(SIZE, 1), query=SYNC)
    d.stop()
    database = os.path.join(d.state, "gpubufd.db")
    shutil.copy(database, database + "-older")
    d = lives()
    tags = [d.put(n, payload(SIZE, i), query=SYNC).headers["ETag"] for i, n in ((2, "x"), (3, "y"))]
    d.stop()
    os.rename(database, database + "-newer")
    os.rename(database + "-older", database)
    d = lives()
    assert d.meta("x")["state"] == "lost" and len(aside(d.state)) == 2
    d.stop()
    os.rename(database + "-newer", database)
    d = lives()
    assert aside(d.state) == []
    for i, name in ((2, "x"), (3, "y")):
        r = d.data(name).expect(200)
        assert (r.body, r.headers["ETag"]) == (payload(SIZE, i), tags[i - 2])
    becomes_tidy(d.state)
