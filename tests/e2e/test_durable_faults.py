"""The disk fails on the way: the answer says so, what was there is there, nothing is left over, and the next upload succeeds."""
import pytest

from durable import BEHIND, SIZES, SYNC, aside, becomes_tidy, failing, path_of, ready, storage, store
from feed import Feed
from harness import DATA, until
from values import payload

A, B, C = (payload(SIZES[2], i) for i in range(3))
FULL, FAILED = (507, "storage_full"), (500, "storage_failed")
ERRORS = {"ENOSPC": FULL, "EDQUOT": FULL, "EIO": FAILED, "EROFS": FAILED}
# Calls of a whole upload to a buffer that is there, and which of the errors each can have.
CALLS = {"create": ("EIO", "ENOSPC", "EDQUOT", "EROFS"), "fallocate": ("ENOSPC", "EDQUOT", "EIO"), "write": ("EIO", "ENOSPC", "EDQUOT", "EROFS"),
         "truncate": ("EIO",), "rename": ("EIO", "ENOSPC"), "sync": ("EIO", "ENOSPC", "EDQUOT"), "dirsync": ("EIO",), "mkdir": ("ENOSPC", "EROFS"), "statvfs": ("EIO",)}


@pytest.mark.parametrize("call, error", [(c, e) for c, errors in CALLS.items() for e in errors])
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
    d = lives()
    assert d.data("x").body == B and d.data("x").headers["ETag"] == new.headers["ETag"] and d.data("small").body == b"inline"
    assert aside(d.state) == []
    becomes_tidy(d.state)


def wal(lives, tmp_path, at, *options):
    return lives(*options, env=failing(str(tmp_path), "gpubufd.db-wal", at))


@pytest.mark.parametrize("size", SIZES[:2])
@pytest.mark.parametrize("killed", (False, True))
def test_the_commit_fails(lives, tmp_path, size, killed):
    """Once: the row is either version, and its file is there. Without a death the old one for certain, and the next upload succeeds."""
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
