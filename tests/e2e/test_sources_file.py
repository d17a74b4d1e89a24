"""Copies from files below --files-from (from_file). test_sources.py has those from servers over HTTP."""
import os
import random
import socket
import threading
import time

import numpy as np
import pytest

from conform import Session
from etcd_run import token
from harness import SLOT, SMALL_SLOTS, Daemon, metric, until
from sources import ASYNC, MIB, digest, ended, left_tidy, nothing_left
from test_sources import DAMAGED, FORMS, what_a_name_promises
from test_tables import META, file, some
from values import array_of, npy, one, payload

BIG = payload(40 * MIB + 12345, 7)
GOOD = file(some(), META)


def take(s, name, buffer="m", status=201, headers=None, **more):
    return s.post(f"buffers/{buffer}/copy", {"from_file": name, **more}, status, headers)


def refused(s, name, status, code, *words, **more):
    p = s.ask("POST", "buffers/m/copy", {"from_file": name, **more}).problem(status, code)
    assert all(word in p["detail"] for word in words), p["detail"]
    nothing_left(s)
    return p


def tag(path):
    st = os.stat(path)
    return f'"{st.st_size}-{st.st_mtime_ns}-{st.st_ino}"'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def shared_daemon(folder, backend):
    with Daemon(backend, *SMALL_SLOTS, "--files-from", str(folder)) as d:
        yield d


@pytest.fixture
def f(shared_daemon):
    """The default session of a daemon that reads the folder; its buffers are gone afterwards."""
    yield from left_tidy(shared_daemon)


def write(folder, name, data):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return name


# --- bytes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 3, 16, None])
@pytest.mark.parametrize("n", [0, 1, SLOT, 8 * MIB, 8 * MIB + 1, 17 * MIB - 1, len(BIG)])
def test_sizes_and_parts(f, folder, n, parts):
    name = write(folder, "llama/bytes.bin", BIG[:n])
    m = take(f, name, **({"parts": parts} if parts else {}))
    pulled = m["pulled"]
    assert f.data("m") == BIG[:n] and (m["way"], m["bytes"], m["dtype"]) == ("pull", n, "uint8")
    assert (pulled["bytes"], pulled["received_bytes"], pulled["generation"], pulled["verified"]) == (n, n, None, False)
    assert pulled["etag"] == tag(folder / name) and pulled["parts"] <= (parts or 4)
    assert (pulled["resumed"], pulled["begun_again"], pulled["failovers"]) == (0, 0, 0)


def test_64_mib(f, folder):
    data = payload(64 * MIB, 3)
    m = take(f, write(folder, "64.bin", data), digest={"sha-256": digest(data)}, parts=8)
    assert m["pulled"]["parts"] == 8 and f.data("m") == data


@pytest.mark.parametrize("case", [case for case in FORMS if "type" not in case or case == "a dtype"])
def test_forms(f, folder, case):
    name, body, more, dtype, shape = FORMS[case]
    m = take(f, write(folder, name, body), **more)
    assert m["dtype"] == dtype and (shape is None or m["shape"] == shape)
    if dtype == "tensors" or more.get("format") == "raw":
        assert f.data("m") == body


def test_a_large_table(f, folder):
    arrays = {f"layer.{i}": array_of("float32", (257, 1000), i) for i in range(9)} | {"tiny": np.ones(3, "uint8")}
    body = file(arrays, META)
    name = write(folder, "large.safetensors", body)
    for parts in (1, 4):
        take(f, name, "m", 201 if parts == 1 else 200, parts=parts, digest={"sha-256": digest(body)})
        assert f.data("m") == body
        assert f.data("m", "?tensor=layer.3&slice=7&format=raw") == arrays["layer.3"][7].tobytes()
    assert f.get("buffers/m/tensors")["file_bytes"] == len(body)


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_changes_nothing(f, folder, case):
    body, word = DAMAGED[case]
    name = write(folder, "bad.safetensors", body)
    f.put("m", b"before")
    r = f.ask("POST", "buffers/m/copy", {"from_file": name, "format": "safetensors"})
    assert r.status == 422 and word in r.json()["detail"], r
    assert f.data("m") == b"before" and f.meta("m")["generation"] == 1


def test_a_file_that_is_not_what_its_name_says(f, folder):
    what_a_name_promises(f, lambda name, body: write(folder, name, body), "from_file")


def test_a_digest_and_a_tag(f, folder):
    for name, body in (("x.bin", BIG), ("x.npy", npy(array_of("float32", (3000, 1001)))), ("m.safetensors", GOOD),
                       ("one.safetensors", one("F32", (3000, 1001), payload(12012000)))):
        write(folder, name, body)
        r = f.ask("POST", "buffers/m/copy", {"from_file": name, "digest": {"sha-256": digest(b"")}})
        assert "sha-256" in r.problem(400, "digest_mismatch")["detail"]
        nothing_left(f)
        m = take(f, name, digest={"sha-256": digest(body)}, if_match=tag(folder / name))
        assert m["pulled"]["etag"] == tag(folder / name)
        f.delete("buffers/m")
        refused(f, name, 409, "source_changed", tag(folder / name), if_match='"1-2-3"')
        assert "if_match" in f.ask("POST", "buffers/m/copy", {"from_file": name, "if_match": "1"}).problem(
            400, "invalid_argument")["detail"]


def test_where_it_lies(f, folder):
    name = write(folder, "x.bin", bytes(range(256)) * 100)
    assert take(f, name, "pinned", kind="pinned")["kind"] == "pinned"
    assert take(f, name, "labelled", labels={"model": "llama"})["labels"] == {"model": "llama"}
    assert take(f, name, "on-device", device=0)["device"]["index"] == 0
    assert take(f, name, "shaped", dtype="float32", shape=[10, 640])["shape"] == [10, 640]
    f.ask("POST", "buffers/none/copy", {"from_file": name, "pool": "none"}).problem(404, "pool_not_found")


@pytest.mark.parametrize("more", [{"from": "x"}, {"headers": {"X": "a"}}, {"from_offset": 0}, {"offset": 0},
                                  {"bytes": 5}, {"in_place": True}, {"side": "host"}, {"share": True},
                                  {"from_if_match": '"1.1"'}])
def test_what_does_not_go_with_it(f, folder, more):
    r = f.ask("POST", "buffers/m/copy", {"from_file": write(folder, "x.bin", b"1"), **more})
    assert r.status == 400 and next(iter(more)).removeprefix("from_if") in r.json()["detail"], r
    nothing_left(f)


# --- which files ------------------------------------------------------------------------------------------------------


def bind(path):
    """A socket; its path may be longer than an address takes."""
    folder = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


@pytest.fixture
def place(folder, tmp_path):
    """The folder with all that might lead out of it, beside it a file that is no part of it."""
    outside = folder.parent / "secret.bin"
    outside.write_bytes(b"secret")
    below = folder / "odd"
    if not below.exists():
        write(folder, "odd/deep/file.bin", b"here")
        os.symlink("deep/file.bin", below / "link")
        os.symlink("deep", below / "linked-folder")
        os.symlink("../odd/link", below / "link-to-a-link")
        os.symlink("../../secret.bin", below / "out")
        os.symlink(str(outside), below / "absolute")
        os.symlink("..", below / "up")
        os.symlink(str(folder / "odd" / "deep" / "file.bin"), below / "absolute-to-here")
        os.symlink("loop", below / "loop")
        os.symlink("nothing", below / "dangling")
        os.symlink("/proc/self/fd/0", below / "magic")
        os.symlink("/etc/passwd", below / "passwd")
        os.mkfifo(below / "fifo")
        bind(below / "socket")
        (below / "closed.bin").write_bytes(b"closed")
        os.chmod(below / "closed.bin", 0)
        (below / "closed").mkdir()
        (below / "closed" / "file.bin").write_bytes(b"closed")
        os.chmod(below / "closed", 0)
    return below


PERMITTED = ["odd/deep/file.bin", "odd/link", "odd/linked-folder/file.bin", "odd/link-to-a-link", "odd/./deep/file.bin",
             "odd//deep/file.bin", "odd/deep/../deep/file.bin", "odd/up/odd/link", "./odd/link"]


@pytest.mark.parametrize("name", PERMITTED)
def test_links_that_stay_below(f, place, name):
    """What a name goes through does not matter, as long as it stays below; a daemon may also refuse dots."""
    r = f.ask("POST", "buffers/m/copy", {"from_file": name})
    if "." in name.replace("file.bin", "") or "//" in name:
        assert r.status in (201, 400), r
    if "." not in name.replace("file.bin", "") and "//" not in name:
        r.expect(201)
    if r.status == 201:
        assert f.data("m") == b"here"


OUT = ["../secret.bin", "odd/../../secret.bin", "odd/out", "odd/absolute", "odd/up/../secret.bin", "odd/magic",
       "odd/passwd", "/etc/passwd", "/", "..", "odd/up/..", "odd/absolute-to-here"]


@pytest.mark.parametrize("name", OUT)
def test_names_that_lead_out(f, place, name):
    r = f.ask("POST", "buffers/m/copy", {"from_file": name})
    assert r.status in (400, 403) and r.json()["code"] in ("source_not_permitted", "invalid_argument"), r
    assert "secret" not in r.json()["detail"].replace(name, "")
    nothing_left(f)


NO_FILE = {"nothing": (404, "source_not_found"), "odd/dangling": (404, "source_not_found"),
           "odd/deep/file.bin/x": (404, "source_not_found"), "odd/nothing/x": (404, "source_not_found"),
           "odd/loop": (403, "source_not_permitted"), "odd": (502, "source_refused"), ".": (502, "source_refused"),
           "odd/fifo": (502, "source_refused"), "odd/deep/": (400, "invalid_argument"),
           "odd/link/": (400, "invalid_argument"), "odd/closed.bin": (502, "source_refused"),
           "odd/closed/file.bin": (502, "source_refused"), "odd/socket": (502, "source_refused")}


@pytest.mark.parametrize("name", NO_FILE)
def test_what_is_no_file(f, place, name):
    """Nor one that can be read: root's daemon has given up to read what it has no right to."""
    p = refused(f, name, *NO_FILE[name])
    assert name in p["detail"] and not p["retryable"]


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 5000, "/".join(["x"] * 3000), 5, None, ["x"], {"path": "x"}])
def test_what_is_no_name(f, name):
    r = f.ask("POST", "buffers/m/copy", {"from_file": name})
    assert r.status in (400, 404) and r.json()["detail"], r
    nothing_left(f)


def test_names_of_other_letters(f, folder):
    for name in ("häß lich/ü%20+?&#.bin", "a'b\"c\\d.bin", "-x", "x\ny", "\U0001f600"):
        write(folder, name, name.encode())
        take(f, name)
        assert f.data("m") == name.encode()
        f.delete("buffers/m")


def test_without_the_option(start):
    s = Session(start())
    assert "--files-from" in refused(s, "x", 403, "source_not_permitted")["detail"]


def test_several_folders(start, tmp_path):
    """The first that has the file."""
    for name, files in (("a", {"x": b"ax", "both": b"a"}), ("b", {"y": b"by", "both": b"b"})):
        for file_name, data in files.items():
            write(tmp_path, f"{name}/{file_name}", data)
    s = Session(start("--files-from", str(tmp_path / "a"), "--files-from", str(tmp_path / "b")))
    for name, data in (("x", b"ax"), ("y", b"by"), ("both", b"a")):
        take(s, name, name)
        assert s.data(name) == data
    refused_of = s.ask("POST", "buffers/m/copy", {"from_file": "none"})
    assert refused_of.status == 404


@pytest.mark.parametrize("value", ["nothing", "file"])
def test_options_that_name_no_folder(start, tmp_path, value):
    (tmp_path / "file").write_bytes(b"")
    d = start("--files-from", str(tmp_path / value), wait=False)
    assert d.process.wait(20) != 0 and "files-from" in d.log()


def test_a_folder_by_a_link(start, tmp_path):
    """What the option names may be a link; its files may be."""
    write(tmp_path, "real/x", b"1")
    os.symlink("real", tmp_path / "link")
    s = Session(start("--files-from", str(tmp_path / "link")))
    take(s, "x")
    assert s.data("m") == b"1"


# --- files that change ------------------------------------------------------------------------------------------------


@pytest.fixture
def slow(start, tmp_path):
    """(session, path, operation) of a copy that has begun to read the file, and takes seconds."""
    path = tmp_path / "files" / "x.bin"
    path.parent.mkdir()
    path.write_bytes(BIG)
    s = Session(start("--files-from", str(path.parent), "--pull-rate", "16M"))
    operation = take(s, "x.bin", "m", 202, ASYNC)["id"]
    until("bytes of it", lambda: (s.get("/v1/operations/" + operation)["progress"] or {}).get("bytes"))
    return s, path, operation


def append(path):
    with open(path, "ab") as f:
        f.write(b"x")


def overwrite(path):
    with open(path, "r+b") as f:
        f.write(b"x")


def overwrite_and_set_the_time(path):
    """As a copy that keeps times does."""
    before = os.stat(path)
    overwrite(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = {"append": append, "overwrite": overwrite, "overwrite, same time": overwrite_and_set_the_time,
           "cut": lambda path: os.truncate(path, MIB), "empty": lambda path: os.truncate(path, 0)}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes(slow, change):
    s, path, operation = slow
    CHANGES[change](path)
    op = ended(s, operation)
    assert op["state"] == "failed" and op["problem"]["code"] == "source_changed", op
    nothing_left(s)


@pytest.mark.parametrize("deleted", [True, False])
def test_a_file_that_is_replaced_or_deleted(slow, deleted):
    """The name has other bytes by now, though those that were begun are there as long as the file is open."""
    s, path, operation = slow
    if deleted:
        os.unlink(path)
    else:
        (path.parent / "new").write_bytes(BIG)
        os.replace(path.parent / "new", path)
    op = ended(s, operation)
    assert op["state"] == "failed" and op["problem"]["code"] == "source_changed", op
    nothing_left(s)


def test_a_file_that_has_just_been_written(f, folder):
    """A change that follows at once could leave the time as it is, so the file is read when it has come to rest."""
    for i in range(10):
        name = write(folder, "fresh.bin", bytes([i]) * MIB)
        written_ns = os.stat(folder / name).st_ctime_ns
        take(f, name, status=201 if i == 0 else 200)
        assert f.data("m") == bytes([i]) * MIB and time.time_ns() - written_ns >= 20_000_000


def test_a_file_that_is_written_again_and_again(f, folder):
    """In place, each version by one write: a copy has the whole of one, or is refused."""
    versions = [bytes([i]) * 3 * MIB for i in range(4)]
    path = folder / write(folder, "written.bin", versions[0])
    ends, copies = threading.Event(), []

    def writes():
        i = 0
        while not ends.wait(random.random() * (0.005 if i % 20 else 0.1)):
            i += 1
            with open(path, "r+b", buffering=0) as out:
                out.write(versions[i % 4])

    writer = threading.Thread(target=writes)
    writer.start()
    until_s = time.monotonic() + 4
    try:
        while time.monotonic() < until_s:
            r = f.ask("POST", "buffers/m/copy", {"from_file": "written.bin"})
            copies.append(r.status)
            assert r.status in (200, 201) and f.data("m") in versions or r.problem(409, "source_changed")["retryable"]
    finally:
        ends.set()
        writer.join()
    assert take(f, "written.bin", status=200 if "m" in f.names("buffers") else 201)
    assert f.data("m") in versions


def test_progress_and_cancel(slow):
    s, path, operation = slow
    assert s.daemon.open_uploads(s.name)[0]["buffer"] == "m"
    op = s.get("/v1/operations/" + operation)
    assert op["state"] == "running" and 0 < op["progress"]["bytes"] < op["progress"]["total_bytes"] == len(BIG)
    s.ask("DELETE", "/v1/operations/" + operation).expect(200)
    assert ended(s, operation)["state"] == "cancelled"
    nothing_left(s)


def test_a_daemon_that_stops_gives_up(slow):
    s, path, operation = slow
    assert "stopped: in order" in s.daemon.stop()


# --- what it becomes --------------------------------------------------------------------------------------------------


def test_the_daemon_counts(f, folder):
    names = ("gpubufd_pulls_total", "gpubufd_pulled_bytes_total")
    f.daemon.settled()
    before = [metric(f.daemon, name) for name in names]
    take(f, write(folder, "x.bin", BIG[:5000]))
    until("it is counted", lambda: [metric(f.daemon, name) for name in names] == [before[0] + 1, before[1] + 5000])


def test_kept_on_disk(lives, folder):
    d = lives("--files-from", str(folder))
    s = Session(d)
    m = take(s, write(folder, "m.safetensors", GOOD), durability="sync")
    assert (m["durability"], m["stored_generation"]) == ("sync", 1)
    take(s, write(folder, "x.bin", BIG), "x", durability="sync")
    s = Session(lives("--files-from", str(folder)))
    assert s.data("m") == GOOD and s.data("x") == BIG


def test_scopes(start, folder, tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    d = start("--files-from", str(folder), state=str(state))
    secrets = {scope: token(str(state), "add", scope, "--scope", scope) for scope in ("read", "write")}
    until("the tokens are in force", lambda: d.ask("GET", "/v1/sessions").status == 401)
    body, target = {"from_file": write(folder, "x.bin", b"1")}, "/v1/sessions/default/buffers/m/copy"
    d.ask("POST", target, body).problem(401, "unauthenticated")
    d.ask("POST", target, body, token=secrets["read"]).problem(403, "forbidden")
    d.ask("POST", target, body, token=secrets["write"]).expect(201)


def test_nothing_stays_open(f, folder, place):
    """After copies that worked and copies that failed, several at a time."""
    names = [write(folder, "x.bin", BIG), "odd/closed.bin", "odd/fifo", "odd", "nothing", "../x",
             write(folder, "bad.safetensors", GOOD[:-1])]

    def one_of_each(number):
        s = Session(f.daemon)
        for name in names:
            s.ask("POST", f"buffers/m{number}/copy", {"from_file": name, "parts": 4})

    def state():
        return len(os.listdir(f"/proc/{f.daemon.process.pid}/fd")), f.daemon.threads()

    def all_at_once():
        threads = [threading.Thread(target=one_of_each, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for c in f.daemon.clients[1:]:
            c.close()
        f.daemon.settled()

    all_at_once()
    before, threads = until("the connections are gone", lambda: state())
    all_at_once()
    until("no descriptor more", lambda: state()[0] <= before)
    assert state()[1] <= threads
