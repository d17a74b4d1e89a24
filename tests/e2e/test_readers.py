"""A client whose token permits reading alone disturbs no writer."""
import contextlib

import pytest

from harness import DATA, token, until

S = "/v1/sessions/default"
SIZE = 100000
ENDS = {"Content-Type": "application/partial-upload", "Upload-Complete": "?1"}


@pytest.fixture
def tokens(tmp_path):
    """A state folder with tokens, for starting daemons."""
    return {name: token(tmp_path, "add", name, "--scope", name) for name in ("read", "write")}


@pytest.fixture
def two(start, tokens, tmp_path):
    """A daemon, and the secrets of a reader and a writer."""

    def go(*options, **more):
        return start(*options, state=str(tmp_path), **more), tokens["read"], tokens["write"]

    return go


def begin(d, write):
    headers = {"Upload-Complete": "?0", "Upload-Length": str(SIZE)}
    r = d.ask("PUT", DATA.format("default", "x") + "?format=raw", b"", headers, token=write)
    return r.expect(201).headers["Location"]


@contextlib.contextmanager
def appending(d, path, write, unix):
    """A request that has sent half of its bytes, which the daemon has received."""
    lines = ["Authorization: Bearer " + write, f"Content-Length: {SIZE}", "Upload-Offset: 0",
             *(f"{k}: {v}" for k, v in ENDS.items())]
    with contextlib.closing(d.raw(unix=unix)) as r:
        r.request("PATCH", path, lines, b"a" * (SIZE // 2))
        until("it appends", lambda: d.ask("GET", path, token=write).expect(200).json()["running"] == 1)
        yield r


@pytest.mark.parametrize("unix", [False, True])
def test_looking_ends_no_append(two, unix):
    d, read, write = two()
    path = begin(d, write)
    with appending(d, path, write, unix) as r, contextlib.closing(d.client(read, unix=unix)) as reader:
        for _ in range(3):
            seen = reader.ask("HEAD", path).expect(204).headers
            assert int(seen["Upload-Offset"]) <= SIZE // 2 and seen["Upload-Complete"] == "?0"
            assert (seen["Upload-Length"], seen["Cache-Control"]) == (str(SIZE), "no-store")
            reader.ask("GET", path).expect(200)
            reader.ask("GET", S + "/uploads").expect(200)
        r.send(b"a" * (SIZE - SIZE // 2))
        assert r.head()[0] == 201
    assert d.ask("GET", DATA.format("default", "x"), token=write).body == b"a" * SIZE


@pytest.mark.parametrize("unix", [False, True])
def test_a_writer_ends_an_append_that_hangs(two, unix):
    d, _, write = two()
    path = begin(d, write)
    with appending(d, path, write, unix) as r, contextlib.closing(d.client(write, unix=unix)) as writer:
        stands = int(writer.ask("HEAD", path).expect(204).headers["Upload-Offset"])
        assert r.head()[0] == 409
        assert d.ask("GET", path, token=write).json()["running"] == 0
        rest = {**ENDS, "Upload-Offset": str(stands)}
        writer.ask("PATCH", path, b"a" * (SIZE - stands), rest).expect(201)


def test_a_reader_takes_no_place_of_operations(two, backend):
    """Neither while writers run, nor after they have ended."""
    d, read, write = two("--max-operations", "2", spec=f"fault:place_fill@1+=stall/300:{backend}")
    d.ask("PUT", DATA.format("default", "big"), bytes(32 << 20), token=write).expect(201)
    mine = []
    for name in "xy":
        d.ask("PUT", DATA.format("default", name), b"12345678", token=write).expect(201)
        r = d.ask("POST", f"{S}/buffers/{name}/fill", {"pattern": 1, "in_place": True}, {"Prefer": "respond-async"},
                  token=write)
        mine.append(r.expect(202).json()["id"])
    done = "/v1/operations/"
    until("they have ended", lambda: all(d.ask("GET", done + x, token=read).json()["state"] in ("done", "failed")
                                         for x in mine))
    with contextlib.closing(d.client(read)) as reader:
        left = []
        for _ in range(500):
            r = reader.ask("POST", S + "/buffers/big/verify", {"algorithms": ["sha-512"]}, {"Prefer": "respond-async"})
            assert r.status in (200, 202, 503)
            if r.status == 202:
                left.append(r.json()["id"])
            if len(left) == 4:
                break
            if r.status == 503:
                until("one ends", lambda: not reader.ask("GET", "/v1/operations?state=running").json()["items"])
        assert len(left) == 4
    for x in mine:
        d.ask("GET", done + x, token=write).expect(200)


def test_a_reader_keeps_no_keys(two):
    """A writer's stored answer stays, however many keys a reader uses."""
    d, read, write = two("--max-idempotency-keys", "3")
    d.ask("PUT", DATA.format("default", "x"), b"12345678", token=write).expect(201)
    key = {"Idempotency-Key": "mine"}
    d.ask("POST", S + "/buffers", {"name": "n", "bytes": 4}, key, token=write).expect(201)
    for i in range(6):
        r = d.ask("POST", S + "/buffers/x/verify", {}, {"Idempotency-Key": f"k{i}"}, token=read).expect(200)
        assert "Idempotency-Replayed" not in r.headers
    assert d.ask("POST", S + "/buffers/x/verify", {}, {"Idempotency-Key": "k5"}, token=read).expect(200).headers.get(
        "Idempotency-Replayed") is None
    again = d.ask("POST", S + "/buffers", {"name": "n", "bytes": 4}, key, token=write).expect(201)
    assert again.headers["Idempotency-Replayed"] == "true"


def test_verify_of_what_is_being_written(daemon, session):
    """A write in place: the reader gets the bytes before or after it."""
    path = DATA.format(session, "x")
    daemon.ask("PUT", path, b"a" * SIZE).expect(201)
    with contextlib.closing(daemon.raw()) as r:
        r.put(path + "?in_place=true", SIZE)
        r.send(b"b" * (SIZE // 2))
        verify = f"/v1/sessions/{session}/buffers/x/verify"
        # A reader at the moment in which the write begins would have it refused.
        until("it is written", lambda: daemon.stats()["running"]["uploads"] == 1)
        answer = daemon.ask("POST", verify)
        answer.problem(409, "buffer_busy")
        assert int(answer.headers["Retry-After"]) >= 1
        r.send(b"b" * (SIZE - SIZE // 2))
        assert r.head()[0] == 200
