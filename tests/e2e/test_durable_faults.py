"""The disk fails on the way: the answer says so, what was there is there, nothing is left over, and the next upload
succeeds."""
import os
import re
import subprocess

import pytest

from durable import BEHIND, SIZES, SYNC, aside, becomes_tidy, failing, path_of, ready, storage
from feed import Feed
from harness import DATA, until
from values import payload, safetensors_of

pytestmark = pytest.mark.once  # the disk's own work

A, B, C = (payload(SIZES[2], i) for i in range(3))
FULL, FAILED = (507, "storage_full"), (500, "storage_failed")
ERRORS = {"ENOSPC": FULL, "EDQUOT": FULL, "EIO": FAILED, "EROFS": FAILED}
ALL = os.environ.get("GB_E2E_DURABLE")
# Calls of a whole upload to a buffer that is there, and errors that each can have; with GB_E2E_DURABLE each of them.
CALLS = {"create": ("EIO", "ENOSPC", "EROFS"), "fallocate": ("ENOSPC", "EDQUOT", "EIO"),
         "write": ("EIO", "ENOSPC", "EROFS", "EDQUOT"), "truncate": ("EIO",), "rename": ("EIO", "ENOSPC"),
         "sync": ("EIO", "EDQUOT", "ENOSPC"), "dirsync": ("EIO",), "mkdir": ("ENOSPC", "EROFS"), "statvfs": ("EIO",)}


@pytest.mark.parametrize("call, error", [(c, e) for c, errors in CALLS.items() for e in (errors if ALL or c == "write"
                                                                                         else errors[:1])])
def test_one_call_fails(lives, call, error):
    d = lives()
    first = d.put("x", A, query=SYNC).expect(201)
    d.put("small", b"inline", query=SYNC)
    d = lives("--disk-fault", f"{call}@{3 if call == 'write' else 1}={error}")
    status, code = ERRORS[error]
    p = d.put("x", B).problem(status, code)
    assert p["retryable"] and (p.get("native", {}).get("name") == error or error in ("ENOSPC", "EDQUOT")), p
    if call != "statvfs":
        assert storage(d)["failures"] > 0
    r = d.data("x").expect(200)
    assert r.body == A and r.headers["ETag"] == first.headers["ETag"]
    becomes_tidy(d.state)
    d.put("other", B).expect(201)  # without durability
    assert ready(d)["error"] is None
    new = d.put("x", B).expect(200)
    assert new.headers["ETag"] != first.headers["ETag"] and d.data("x").body == B
    becomes_tidy(d.state)
    d = lives()
    assert (d.data("x").body == B and d.data("x").headers["ETag"] == new.headers["ETag"] and d.data("small").body
            == b"inline")
    assert aside(d.state) == []
    becomes_tidy(d.state)


def wal(lives, tmp_path, at, *options):
    """The start syncs its own row first."""
    return lives(*options, env=failing(str(tmp_path), "gpubufd.db-wal", 1 + at))


@pytest.mark.parametrize("size", SIZES[:2])
@pytest.mark.parametrize("killed", (False, True))
def test_the_commit_fails(lives, tmp_path, size, killed):
    """Once: the row is either version, and its file is there. Without a death the old one for certain, and the next
    upload succeeds."""
    d = lives()
    old, new = payload(size, 1), payload(size, 2)
    d.put("x", old, query=SYNC).expect(201)
    d = wal(lives, tmp_path, 1)
    r = d.put("x", new)
    assert r.status >= 500, r
    if not killed:
        assert d.data("x").body == old
        ready(d)
        assert d.data("x").body == old
        d.put("x", new).expect(200)
        assert d.data("x").body == new
        old = new
    d = lives()
    r = d.data("x").expect(200)
    assert r.body in (old, new)
    becomes_tidy(d.state)


# --- other kinds of writes --------------------------------------------------------------------------------------------

S = "/v1/sessions/default"
# How the request is sent, and what x has afterwards.
WRITES = {
    "patch": (lambda d: d.ask("PATCH", DATA.format("default", "x") + "?offset=5", b"abc"), A[:5] + b"abc" + A[8:]),
    "slice": (lambda d: d.ask("PUT", DATA.format("default", "x") + "?slice=0:5", b"abcde"), b"abcde" + A[5:]),
    "copy": (lambda d: d.ask("POST", path_of("x") + "/copy", {"from": "y"}), B),
    "fill": (lambda d: d.ask("POST", path_of("x") + "/fill", {"pattern": 7}), b"\7" * len(A)),
    "tensors": (lambda d: d.ask("PUT", S + "/tensors", safetensors_of(w=C[:70000], x=B)), B),
    "batch": (lambda d: d.ask("POST", S + "/batch", {"operations": [{"op": "fill", "buffer": "x", "pattern": 7}]}),
              b"\7" * len(A)),
    "durability": (lambda d: d.ask("PATCH", path_of("none"), {"durability": "sync"}), A),
}


PAIRS = (("create", "ENOSPC"), ("write", "EIO"), ("sync", "EIO"), ("dirsync", "EIO"))
# Each kind at one of them, the groups at two; with GB_E2E_DURABLE at all.
CASES = [(k, *p) for i, k in enumerate(WRITES) for j, p in enumerate(PAIRS)
         if ALL or (i + j) % 4 == 0 or (k in ("tensors", "batch") and (i + j) % 4 == 2)]


@pytest.mark.parametrize("kind, call, error", CASES)
def test_one_call_of_another_write_fails(lives, kind, call, error):
    """Nothing is changed, and the same request succeeds when the disk is well."""
    d = lives()
    tag = d.put("x", A, query=SYNC).expect(201).headers["ETag"]
    d.put("y", B, query=SYNC).expect(201)
    d = lives("--disk-fault", f"{call}@1={error}")
    d.put("none", C).expect(201)
    for n in "xy":
        d.ask("POST", path_of(n) + "/load", {}).expect(200)
    d.ask("PATCH", S, {"durability": "sync"}).expect(200)
    send, after = WRITES[kind]
    r = send(d)
    if kind == "batch":  # what cannot be committed together is tried once more by itself
        p = r.expect(200).json()["results"][0]
        assert p["status"] == (200 if error == "ENOSPC" else 503), p
        tag = tag if p["status"] == 503 else d.data("x").headers["ETag"]
    elif kind == "tensors" and error == "EIO" and r.status == 503:  # a file of the same request came later
        r.problem(503, "storage_unavailable")
    else:
        r.problem(*ERRORS[error])
    there = after if (kind, error) == ("batch", "ENOSPC") else A
    assert d.data("x").body == there and d.data("x").headers["ETag"] == tag and d.meta("none")["durability"] == "none"
    assert d.ask("GET", path_of("w")).status == 404
    becomes_tidy(d.state)
    ready(d)
    r = send(d)
    assert r.status in (200, 201) and (kind != "batch" or r.json()["failed"] == 0), r
    becomes_tidy(d.state)
    d = lives()
    assert d.data("x").body == after and d.data("y").body == B and (kind != "tensors" or d.data("w").body == C[:70000])


# --- a disk that stays bad --------------------------------------------------------------------------------------------


def test_a_file_is_never_synced_twice(lives, tmp_path):
    """Not after a failure either: the kernel may have dropped what it could not write."""
    lives().put("x", C, query=SYNC)
    d = lives(env={**failing(str(tmp_path), "/data/", 1), "SHIM_TELL": "1"})
    d.put("x", A, query=SYNC).problem(*FAILED)
    ready(d)
    d.put("x", B, query=SYNC).expect(200)
    synced = re.findall(r"^synced (.*/data/../.*)$", d.log(), re.M)
    assert len(synced) == 2 and len(set(synced)) == 2, d.log()
    assert d.data("x").body == B


def test_a_disk_that_stays_bad_and_gets_well(lives):
    """Durable writes are refused without a try, and all else continues; when the disk is well they are taken, without a
    restart."""
    d = lives()
    for n in ("x", "y"):
        d.put(n, A, query=SYNC).expect(201)
    d = lives("--disk-fault", ",".join(f"sync@{i}=EIO" for i in range(1, 4)))
    with Feed(d, "?type=storage.") as feed:
        d.put("x", B).problem(*FAILED)
        p = d.put("x", B).problem(503, "storage_unavailable")
        assert p["retryable"] and p["native"]["name"] == "EIO"
        assert storage(d)["state"] == "failed" and storage(d)["error"]
        check = {c["name"]: c for c in d.get("/readyz?verbose")["checks"]}["storage"]
        assert not check["ok"] and d.ask("GET", "/readyz").status == 200
        d.ask("POST", path_of("x") + "/copy", {"from": "y"}).problem(503, "storage_unavailable")
        d.put("new", A, query=SYNC).problem(503, "storage_unavailable")
        d.put("none", B).expect(201)
        assert d.data("x").body == A and d.data("none").body == B
        d.ask("PATCH", path_of("y"), {"labels": {"a": "b"}}).expect(200)
        d.ask("DELETE", path_of("y")).expect(204)
        assert feed.next()["type"] == "storage.failed"
        until("the log tells", lambda: "storage: failed: durable writes are refused: " in d.log())
        assert feed.next()["type"] == "storage.recovered"
    assert storage(d)["state"] == "ready" and {c["name"]: c
                                               for c in d.get("/readyz?verbose")["checks"]}["storage"]["ok"]
    d.put("x", B).expect(200)
    d = lives()
    assert d.data("x").body == B and d.ask("GET", path_of("y")).status == 404
    becomes_tidy(d.state)


def test_behind_waits_for_a_disk_that_gets_well(lives):
    d = lives("--disk-fault", "sync@1=EIO,sync@2=EIO")
    d.put("x", A, query=BEHIND).expect(201)
    until("it is stored", lambda: d.meta("x")["stored_generation"] == 1)
    d = lives()
    assert d.data("x").body == A
    becomes_tidy(d.state)


# --- a disk that is full ----------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path):
    """A file system of 24 MiB for the bytes alone."""
    at = tmp_path / "small"
    at.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", at], check=False,
                      capture_output=True).returncode != 0:
        pytest.skip("needs root, to mount a file system")
    yield at
    subprocess.run(["umount", "-l", at], check=False, capture_output=True)


def test_what_cannot_fit_is_refused_before_its_body(lives, small):
    d = lives("--data-dir", str(small))
    for target, length, status in (("x?durability=sync", 64 << 20, 507), ("x?durability=sync", 8 << 20, None),
                                   ("y", 64 << 20, None)):
        raw = d.raw().put(DATA.format("default", target.split("?")[0]) + "".join(target.partition("?")[1:]), length,
                          expect=True)
        got, _ = raw.head()
        assert got == (status or 100), target
        raw.close()
    d.settled()
    r = d.raw().put(DATA.format("default", "x") + SYNC, 64 << 20, expect=True).reply()
    p = r.problem(507, "storage_full")
    assert p["requested_bytes"] >= 64 << 20 and p["limit_bytes"] <= 24 << 20


def test_room_comes_back(lives, small):
    """What does not fit is 507, and the rest continues; what is deleted makes room, without a restart."""
    d = lives("--data-dir", str(small))
    d.put("x", A, query=SYNC).expect(201)
    d.put("small", b"inline", query=SYNC).expect(201)
    (small / "ballast").write_bytes(bytes(12 << 20))
    d.put("x", B).problem(507, "storage_full")
    d.ask("PATCH", DATA.format("default", "x") + "?offset=0", b"abc").problem(507, "storage_full")
    d.put("z", B, query=BEHIND).problem(507, "storage_full")
    d.put("small", b"again").expect(200)
    d.put("none", B).expect(201)
    d.ask("PATCH", path_of("x"), {"labels": {"a": "b"}}).expect(200)
    assert d.data("x").body == A
    (small / "ballast").unlink()
    until("there is room", lambda: d.put("x", B).status == 200)
    d = lives("--data-dir", str(small))
    assert d.data("x").body == B and d.data("small").body == b"again"


def test_a_file_system_that_becomes_read_only(lives, small):
    d = lives("--data-dir", str(small))
    d.put("x", A, query=SYNC).expect(201)
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    d.put("y", B, query=SYNC).problem(*FAILED)
    d.put("y", B, query=SYNC).problem(503, "storage_unavailable")
    assert d.data("x").body == A and d.put("none", B).status == 201
    d.ask("PATCH", path_of("x"), {"labels": {"a": "b"}}).expect(200)
    subprocess.run(["mount", "-o", "remount,rw", small], check=True)
    assert ready(d)["error"] is None
    d.put("y", B, query=SYNC).expect(201)
    d = lives("--data-dir", str(small))
    assert d.data("x").body == A and d.data("y").body == B
