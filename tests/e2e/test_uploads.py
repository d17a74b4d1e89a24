"""Uploads in parts: any order, many connections, lost connections; no byte is visible before completion."""
import random
import threading

import pytest

from harness import PATIENCE_S, SLOT, until
from values import crc32c, payload

SIZE = 12 * SLOT + 321
UPLOADS = "/v1/sessions/{}/uploads"


class Upload:
    """A started upload, with its own connection."""

    def __init__(self, s, buffer="x", headers=None, **fields):
        self.s = s
        if "bytes" not in fields and "shape" not in fields:
            fields["bytes"] = SIZE
        r = s.ask("POST", "uploads", {"buffer": buffer, **fields}, headers).expect(201)
        self.path, self.state = r.headers["Location"], r.json()

    def part(self, offset, data, client=None, headers=None):
        if client:
            return client.ask("PUT", f"{self.path}/parts?offset={offset}", data, headers)
        return self.s.ask("PUT", f"{self.path}/parts?offset={offset}", data, headers)

    def get(self):
        return self.s.ask("GET", self.path).expect(200).json()

    def complete(self, body=None, headers=None):
        return self.s.ask("POST", self.path + "/complete", body, headers)

    def delete(self):
        return self.s.ask("DELETE", self.path)

    def quiet(self):
        return until("nothing of it is under way", lambda: (lambda u: u if u["running"] == 0 else None)(self.get()))


def held(s):
    return s.get("stats")["open_uploads"], s.get()["used_bytes"]


def test_three_parts(s):
    data = payload(SIZE, 1)
    s.put("x", payload(100, 2))
    u = Upload(s, dtype="uint8", shape=[1, SIZE], labels={"a": "b"})
    assert u.state["missing"] == [{"offset": 0, "bytes": SIZE}] and u.state["state"] == "open"
    assert held(s) == ({"count": 1, "bytes": SIZE}, SIZE + 100)
    for at, end in ((SLOT + 5, 3 * SLOT), (3 * SLOT, SIZE), (0, SLOT + 5)):
        p = u.complete().problem(409, "upload_incomplete")
        assert p["missing"] == u.get()["missing"] and p["missing_ranges"] == len(p["missing"])
        r = u.part(at, data[at:end]).expect(200).json()
        assert r["crc32c"] == crc32c(data[at:end]) and r["bytes"] == end - at
    assert s.data("x") == payload(100, 2)
    assert u.get()["received_bytes"] == SIZE and u.get()["missing"] == []
    r = u.complete({"crc32c": crc32c(data)}).expect(200)
    assert s.data("x") == data
    meta = s.meta("x")
    assert (meta["shape"], meta["labels"], meta["crc32c"]) == ([1, SIZE], {"a": "b"}, crc32c(data))
    assert r.headers["ETag"] == s.ask("GET", "buffers/x/data").headers["ETag"]
    assert u.get()["state"] == "completed"
    u.complete().problem(409, "upload_completed")
    u.part(0, b"x").problem(409, "upload_completed")
    assert held(s) == ({"count": 0, "bytes": 0}, SIZE)
    u.delete().expect(204)
    u.delete().problem(404, "upload_not_found")
    assert s.data("x") == data


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_many_parts_by_many_threads_with_broken_lines(daemon, s, seed):
    rng = random.Random(seed)
    data = payload(SIZE, seed)
    u = Upload(s)
    cuts = sorted({0, SIZE, *(rng.randrange(SIZE) for _ in range(60))})
    parts = list(zip(cuts, cuts[1:]))
    rng.shuffle(parts)
    lock, failures = threading.Lock(), []

    def break_one(at, end, sent, reset):
        r = daemon.raw()
        r.request("PUT", f"{u.path}/parts?offset={at}", [f"Content-Length: {end - at}"], data[at:at + sent])
        r.reset() if reset else r.close()

    def send(at, end):
        """Waits until the part is recorded: a part of a lost connection may still be in progress."""
        client = daemon.client()
        until("the part is taken", lambda: u.part(at, data[at:end], client).status == 200)
        client.close()

    def work(seed):
        mine = random.Random(seed)
        try:
            while True:
                with lock:
                    if not parts:
                        return
                    at, end = parts.pop()
                for _ in range(mine.randrange(3)):
                    break_one(at, end, mine.randrange(end - at), mine.randrange(2))
                send(at, end)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(seed * 100 + i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(PATIENCE_S)
    assert not failures and not any(t.is_alive() for t in threads), failures
    assert u.quiet()["missing"] == []
    assert u.complete().expect(201).json()["crc32c"] == crc32c(data)
    assert s.data("x") == data


def test_missing_ranges_are_told_up_to_a_bound(s):
    u = Upload(s, bytes=1000)
    for i in range(150):
        u.part(2 * i + 1, b"x").expect(200)
    state = u.get()
    assert state["missing_ranges"] == 151 and len(state["missing"]) == state["limits"]["missing_told"] == 100
    assert state["missing"][:2] == [{"offset": 0, "bytes": 1}, {"offset": 2, "bytes": 1}]
    assert len(u.complete().problem(409, "upload_incomplete")["missing"]) == 100
    u.delete().expect(204)


def test_a_part_that_arrived_may_come_again(daemon, s):
    u = Upload(s, bytes=300)
    u.part(0, b"a" * 100).expect(200)
    u.part(100, b"b" * 100).expect(200)
    u.part(200, b"c" * 100).expect(200)
    assert u.part(100, b"b" * 100).expect(200).json()["received_bytes"] == 300
    assert u.part(0, b"a" * 100 + b"b" * 100).expect(200).json()["crc32c"] == crc32c(b"a" * 100 + b"b" * 100)
    for offset, part in ((100, b"B" * 100), (50, b"d" * 100), (0, b"a" * 99), (0, b"A" * 300)):
        u.part(offset, part).problem(409, "upload_overlap")
    r = daemon.raw().request("PUT", f"{u.path}/parts?offset=0", ["Content-Length: 200"], b"zz")
    r.reset()  # a lost connection that the daemon notices late loses no recorded bytes
    assert u.get()["missing"] == []
    u.part("50&replace=true", b"d" * 100).problem(409, "upload_overlap")
    u.part("0&replace=true", b"A" * 200).expect(200)
    data = b"A" * 200 + b"c" * 100
    assert u.complete({"crc32c": crc32c(data)}).expect(201).json()["crc32c"] == crc32c(data)
    assert s.data("x") == data


@pytest.mark.parametrize("expect", [True, False])
def test_what_is_refused_at_the_header(daemon, s, expect):
    u = Upload(s, bytes=10 * SLOT)
    busy = daemon.raw()
    busy.request("PUT", f"{u.path}/parts?offset=100", [f"Content-Length: {SLOT}"], b"x" * 10)
    until("it is under way", lambda: u.get()["running"] == 1)
    table = [("offset=0", 5 * SLOT, 409), ("offset=0", 10 * SLOT + 1, 416), ("offset=99999999", SLOT, 416),
             ("offset=18446744073709551615", SLOT, 400), ("offset=", SLOT, 400), ("", SLOT, 400)]
    u.part(5, b"").problem(400, "invalid_argument")
    for query, length, status in table:
        r = daemon.raw().put(f"{u.path}/parts?{query}", length, expect=expect)
        head = r.head()
        assert head[0] == status, (query, length, head)
        r.close()
    r = daemon.raw().request("PUT", f"{u.path}/parts?offset=0", ["Transfer-Encoding: chunked"])
    assert r.head()[0] == 411
    r.close()
    r = daemon.raw().put("/v1/sessions/default/uploads/00000000-1/parts?offset=0", SLOT, expect=expect)
    assert r.head()[0] == 404
    r.close()
    busy.reset()
    u.quiet()
    u.delete().expect(204)


def test_content_digest_of_a_part(s):
    import base64
    import hashlib

    data = payload(1000, 4)
    u = Upload(s, bytes=1000)

    def digest(of):
        return {"Content-Digest": "sha-256=:" + base64.b64encode(hashlib.sha256(of).digest()).decode() + ":"}

    u.part(0, data, headers=digest(data[1:])).problem(400, "digest_mismatch")
    assert u.quiet()["received_bytes"] == 0
    u.part(0, data, headers={"Repr-Digest": digest(data)["Content-Digest"]}).problem(400, "invalid_argument")
    u.part(0, data, headers={"Content-Encoding": "gzip"}).problem(415, "unsupported_media_type")
    u.part(0, data, headers=digest(data)).expect(200)
    u.complete().expect(201)
    assert s.data("x") == data


def test_a_wrong_checksum_leaves_the_old_bytes(s):
    old, data = payload(SIZE, 1), payload(SIZE, 2)
    s.put("x", old)
    before = s.meta("x")
    u = Upload(s)
    u.part(0, data).expect(200)
    u.complete({"crc32c": crc32c(old)}).problem(400, "digest_mismatch")
    assert s.data("x") == old and s.meta("x") == before
    u.part("0&replace=true", data).expect(200)
    u.complete({"crc32c": crc32c(data)}).expect(200)
    assert s.data("x") == data


def test_conditions_at_both_ends(s):
    old, data = payload(100, 1), payload(SIZE, 2)
    s.ask("POST", "uploads", {"buffer": "x", "bytes": 5}, {"If-Match": "*"}).problem(412, "precondition_failed")
    s.put("x", old)
    s.ask("POST", "uploads", {"buffer": "x", "bytes": 5}, {"If-None-Match": "*"}).problem(412, "precondition_failed")
    tag = s.ask("GET", "buffers/x/data").headers["ETag"]
    u = Upload(s, headers={"If-Match": tag})
    later = Upload(s)
    for one in (u, later):
        one.part(0, data).expect(200)
    later.complete(headers={"If-Match": '"other"'}).problem(412, "precondition_failed")
    later.complete(headers={"If-Match": tag}).expect(200)
    assert s.data("x") == data
    u.complete().problem(412, "precondition_failed")
    assert u.delete().status == 204
    assert held(s) == ({"count": 0, "bytes": 0}, SIZE)


def test_quota_and_memory_are_given_back(daemon, s):
    assert s.ask("PATCH", "", {"quota": {"bytes": 2 * SIZE}}).status == 200
    pool = daemon.get("/v1/sessions/default/pools/default")["used_bytes"]
    one, two = Upload(s, "x"), Upload(s, "y")
    s.ask("POST", "uploads", {"buffer": "z", "bytes": 1}).problem(507, "quota_exceeded")
    one.part(5, payload(SIZE - 5)).expect(200)
    one.delete().expect(204)
    three = Upload(s, "x")  # at once
    for u in (two, three):
        u.delete().expect(204)
    assert held(s) == ({"count": 0, "bytes": 0}, 0)
    until("its memory is free", lambda: daemon.get("/v1/sessions/default/pools/default")["used_bytes"] == pool)


def test_what_is_under_way_ends_with_it(daemon, s):
    u = Upload(s)
    r = daemon.raw()
    r.request("PUT", f"{u.path}/parts?offset=0", [f"Content-Length: {SIZE}"], b"x" * (SLOT + 9))
    until("it is under way", lambda: u.get()["running"] == 1)
    u.delete().expect(204)
    assert held(s) == ({"count": 0, "bytes": 0}, 0)
    assert r.reply().status == 404
    r.close()


def test_a_deleted_session_takes_them_along(daemon):
    pool = daemon.get("/v1/sessions/default/pools/default")["used_bytes"]
    daemon.ask("POST", "/v1/sessions", {"name": "doomed"}).expect(201)
    path = daemon.ask("POST", UPLOADS.format("doomed"), {"buffer": "x", "bytes": SIZE}).expect(201).headers["Location"]
    r = daemon.raw()
    r.request("PUT", f"{path}/parts?offset=0", [f"Content-Length: {SIZE}"], b"x" * (SLOT + 9))
    until("it is under way", lambda: daemon.get(path)["running"] == 1)
    daemon.ask("DELETE", "/v1/sessions/doomed").expect(204)
    assert r.reply().status == 404
    r.close()
    daemon.ask("GET", path).problem(404, "session_not_found")
    until("its memory is free", lambda: daemon.get("/v1/sessions/default/pools/default")["used_bytes"] == pool)


@pytest.mark.parametrize("kind", ["device", "shared", "managed", "pinned", "pageable", "ipc"])
def test_every_kind(daemon, s, kind):
    if kind not in offered(daemon):
        s.ask("POST", "uploads", {"buffer": "x", "bytes": 5, "kind": kind}).problem(501, "unsupported")
        return
    data = payload(SIZE, 7)
    u = Upload(s, kind=kind)
    u.part(SLOT + 1, data[SLOT + 1:]).expect(200)
    u.part(0, data[:SLOT + 1]).expect(200)
    assert u.complete().expect(201).json()["kind"] == kind
    assert s.data("x") == data and s.meta("x")["crc32c"] == crc32c(data)


def offered(daemon):
    kinds = daemon.get("/v1/devices/0")["kinds"]
    return {k for k, v in kinds.items() if v["supported"]}


def test_a_mirrored_buffer_is_replaced_in_one_step(s):
    old, data = payload(SIZE, 1), payload(SIZE, 2)
    s.put("x", old, "?mirrored=true")
    u = Upload(s)
    u.part(0, data[:SLOT]).expect(200)
    assert s.data("x") == old
    u.part(SLOT, data[SLOT:]).expect(200)
    assert u.complete().expect(200).json()["mirrored"] is True
    assert s.data("x") == data


def test_bad_beginnings(s):
    table = [({}, 400), ({"buffer": "x"}, 400), ({"buffer": "x", "bytes": -1}, 400),
             ({"buffer": "x", "bytes": 6, "dtype": "float32"}, 422), ({"buffer": "../x", "bytes": 6}, 400),
             ({"buffer": "x", "bytes": 1, "pool": "none"}, 404), ({"buffer": "x", "bytes": 1, "stream": "none"}, 404),
             ({"buffer": "x", "bytes": 1, "in_place": True}, 400), ({"buffer": "x", "bytes": 1 << 62}, 507)]
    for body, status in table:
        r = s.ask("POST", "uploads", body)
        assert r.status == status, (body, r)
    u = Upload(s, bytes=0)
    u.complete({"crc32c": "xyz"}).problem(400, "invalid_argument")
    u.complete({"crc32c": "00000000"}).expect(201)
    assert s.data("x") == b""


def test_limits_and_expiry(start, tmp_path):
    d = start("--max-uploads", "2", "--max-upload-bytes", "1000", "--upload-ttl", "1", state=str(tmp_path))
    path = UPLOADS.format("default")
    first = d.ask("POST", path, {"buffer": "x", "bytes": 600}).expect(201).headers["Location"]
    p = d.ask("POST", path, {"buffer": "x", "bytes": 401}).problem(507, "limit_reached")
    assert (p["limit_bytes"], p["used_bytes"], p["requested_bytes"]) == (1000, 600, 401)
    d.ask("POST", path, {"buffer": "x", "bytes": 400}).expect(201)
    d.ask("POST", path, {"buffer": "x", "bytes": 0}).problem(507, "limit_reached")
    until("they have expired", lambda: d.get(path)["items"] == [])
    d.ask("GET", first).problem(404, "upload_not_found")
    until("it is given back", lambda: d.get("/v1/sessions/default")["used_bytes"] == 0
          == d.stats()["open_uploads"]["bytes"])
    d.ask("POST", path, {"buffer": "x", "bytes": 1000}).expect(201)


def test_they_end_with_the_process(start, tmp_path):
    state = str(tmp_path)
    d = start(state=state)
    d.put("x", payload(1000, 1)).expect(201)
    path = d.ask("POST", UPLOADS.format("default"), {"buffer": "x", "bytes": 2000}).expect(201).headers["Location"]
    d.ask("PUT", path + "/parts?offset=0", b"x" * 100).expect(200)
    d.kill()
    d = start(state=state)
    for method, target in (("GET", path), ("PUT", path + "/parts?offset=0"), ("POST", path + "/complete"),
                           ("DELETE", path)):
        d.ask(method, target, b"x" if method == "PUT" else None).problem(404, "upload_not_found")
    assert d.meta("x")["bytes"] == 1000 and d.meta("x")["state"] == "lost"
    until("it is given back", lambda: d.get("/v1/sessions/default")["used_bytes"] == 0)


def test_so_many_parts_and_no_more(daemon, s):
    u = Upload(s, bytes=30000)
    limit = u.state["limits"]["parts"]
    client = daemon.client()
    for i in range(limit):
        assert u.part(2 * i, b"x", client).status == 200
    u.part(2 * limit, b"x", client).problem(507, "limit_reached")
    assert u.get()["parts"] == limit
    u.delete().expect(204)


def test_completing_needs_a_place_for_a_new_buffer(s):
    s.put("x", b"old")
    assert s.ask("PATCH", "", {"quota": {"buffers": 1}}).status == 200
    u = Upload(s, bytes=3)
    u.part(0, b"new").expect(200)
    s.delete("buffers/x")
    s.put("y", b"other")
    u.complete().problem(507, "quota_exceeded")
    s.delete("buffers/y")
    u.complete().expect(201)
    assert s.data("x") == b"new"


def test_the_list(s):
    made = [Upload(s, f"b{i}", bytes=i) for i in range(5)]
    page = s.get("uploads?limit=3")
    rest = s.get(f"uploads?limit=3&cursor={page['next_cursor']}")
    assert [u["id"] for u in page["items"] + rest["items"]] == [u.state["id"] for u in made]
    assert rest["next_cursor"] is None
    other = Upload(s, "other", bytes=1)
    assert [u["buffer"] for u in s.get("uploads?prefix=b&limit=5")["items"]] == [f"b{i}" for i in range(5)]
    assert [u["buffer"] for u in s.get("uploads?prefix=oth")["items"]] == ["other"]
    s.ask("GET", f"uploads?prefix=b&cursor={page['next_cursor']}").problem(400, "invalid_argument")
    other.delete().expect(204)
    for u in made:
        u.delete().expect(204)
    until("it is given back", lambda: s.get("uploads")["items"] == [])
    s.daemon.ask("GET", UPLOADS.format("none")).problem(404, "session_not_found")
