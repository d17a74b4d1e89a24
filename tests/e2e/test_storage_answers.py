"""What the interface says of durable buffers and of their disk: each answer that the document has, and what the numbers
tell."""

from conform import Session, interface
from harness import until
from values import payload

LARGE = 3 << 20  # beyond what lies in the database
SQUARE = "?dtype=uint8&shape=1024,3072"  # of these bytes; a slice of columns is gathered by the device
COLUMNS = "slice=0:2,0:1"
S = "/v1/sessions/default"


def check_storage(s, **wanted):
    found = s.get("/v1/storage")
    assert {k: found[k] for k in wanted} == wanted, found
    return found


def again(d, start, *options):
    """The daemon is killed, and another has its state."""
    d.kill()
    return start(*options, state=d.state)


def refusals(s, status, code, requests):
    for method, path, *body in requests:
        s.ask(method, path, *body).problem(status, code)


def test_buffers_and_sessions_tell_their_durability(start):
    d = start()
    s = Session(d)
    assert s.get()["durability"] == "none" and s.put("x", b"abcd")["durability"] == "none"
    assert s.meta("x")["stored_generation"] is None
    assert s.patch("", {"durability": "sync"})["durability"] == "sync"
    made = s.put("y", payload(LARGE))
    assert (made["durability"], made["generation"], made["stored_generation"], made["state"]) == ("sync", 1, 1, "ready")
    assert s.meta("x")["durability"] == "none"
    named = s.put("z", payload(LARGE), "?durability=none")
    assert (named["durability"], named["stored_generation"]) == ("none", None)
    assert s.buffer("zeros", bytes=4, durability="behind")["durability"] == "behind"
    assert s.patch("buffers/x", {"durability": "sync"})["stored_generation"] == 1
    assert s.patch("buffers/x", {"durability": "none"})["stored_generation"] is None
    other = s.post("/v1/sessions", {"name": "other", "durability": "behind"}, 201)
    assert other["durability"] == "behind"
    for method, path, body in (("POST", "/v1/sessions", {"name": "n", "durability": "always"}),
                               ("PATCH", "", {"durability": "always"}),
                               ("POST", "buffers", {"name": "n", "bytes": 1, "durability": 1}),
                               ("PATCH", "buffers/x", {"durability": "SYNC"}),
                               ("PUT", "buffers/x/data?durability=", b"1"),
                               ("PUT", "buffers/x/data?durability=sync&offset=0", b"1")):
        s.ask(method, path, body).expect(400)


def test_store_and_load(place, start):
    d = place("--durable-lag", "3600")
    s = Session(d)
    s.put("b", payload(LARGE), "?durability=behind")
    assert s.meta("b")["stored_generation"] is None
    assert s.post("buffers/b/store") == {"stored_generation": 1, "bytes": LARGE, "wrote": True}
    assert s.post("buffers/b/store", {}) == {"stored_generation": 1, "bytes": LARGE, "wrote": False}
    s.put("n", b"abcd")
    s.put("late", payload(LARGE), "?durability=behind")  # not stored
    s.ask("POST", "buffers/n/store").problem(400, "invalid_argument")
    assert s.post("buffers/n/load")["state"] == "ready"
    check_storage(s, state="ready", error=None, stored_buffers=0, writes=1, written_bytes=LARGE, loads=0)
    s = Session(again(d, start))
    assert s.meta("b")["state"] == "stored" and s.meta("n")["state"] == "lost"
    check_storage(s, stored_buffers=1)
    assert s.get("/v1/stats")["buffers"]["stored"] == 1 and s.get("/v1/stats")["buffers"]["lost"] == 2
    assert s.data("b") == payload(LARGE)
    check_storage(s, stored_buffers=1, cold_reads=1, loads=0)
    assert s.post("buffers/b/load")["state"] == "ready"
    check_storage(s, stored_buffers=0, loads=1, loaded_bytes=LARGE)
    refusals(s, 410, "content_lost", [("POST", "buffers/n/load"), ("POST", "buffers/late/store"),
                                      ("PATCH", "buffers/n", {"durability": "sync"})])


def test_in_the_background(place, start):
    d = place("--disk-fault", "write+=delay/20")
    s = Session(d)
    s.put("b", payload(LARGE), "?durability=behind")
    r = s.ask("POST", "buffers/b/store", headers={"Prefer": "respond-async"}).expect(202)
    assert s.ask("GET", r.headers["Location"],
                 headers={"Prefer": "wait=30"}).expect(200).json()["result"]["stored_generation"] == 1
    s = Session(again(d, start, "--disk-fault", "read@2+=delay/20"))
    r = s.ask("POST", "buffers/b/load", headers={"Prefer": "respond-async"}).expect(202)
    assert (s.ask("GET", r.headers["Location"], headers={"Prefer": "wait=30"}).expect(200).json()["result"]["state"]
            == "ready")


def test_writes_in_place_that_broke_off(start):
    d = start()
    s = Session(d)
    s.put("b", payload(LARGE), "?durability=behind")
    r = d.raw().request("PUT", f"{S}/buffers/b/data?in_place=true", [f"Content-Length: {LARGE}"], b"x" * (1 << 20))
    until("it runs", lambda: d.stats()["running"]["uploads"] == 1)
    for what in ("store", "load"):
        busy = s.ask("POST", "buffers/b/" + what)
        assert busy.problem(409, "buffer_busy")["retryable"] and int(busy.headers["Retry-After"]) >= 1
    r.close()
    until("it is partial", lambda: s.meta("b")["state"] == "partial")
    refusals(s, 409, "buffer_partial", [("POST", "buffers/b/store"), ("POST", "buffers/b/load")])


def test_a_daemon_that_stores_nothing(start):
    d = start("--data-dir", "none")
    s = Session(d)
    s.put("b", b"abcd")
    refusals(s, 501, "unsupported", [
        ("PATCH", "", {"durability": "sync"}), ("PATCH", "buffers/b", {"durability": "behind"}),
        ("PUT", "buffers/n/data?durability=sync", b"1"), ("POST", "buffers",
                                                          {"name": "n", "bytes": 1, "durability": "sync"})])
    found = s.get("/v1/storage")
    assert found["state"] == "none" and "dir" not in found and "free_bytes" not in found
    assert "storage" not in [c["name"] for c in d.get("/readyz?verbose")["checks"]]
    text = d.ask("GET", "/metrics").expect(200).body
    assert b"gpubufd_storage_" not in text and b"gpubufd_disk_" not in text and b"gpubufd_stored_buffers" not in text


def numbers(d, *names):
    lines = dict(line.rsplit(" ", 1) for line in d.ask("GET", "/metrics").expect(200).body.decode().splitlines())
    return [float(lines["gpubufd_" + name]) for name in names]


def test_numbers_of_what_is_behind_and_what_may_leave(place):
    d = place("--durable-lag", "3600")
    s = Session(d)
    behind = ("behind_buffers", "behind_bytes")
    assert numbers(d, *behind, "behind_seconds", "evictable_bytes", "stored_bytes") == [0] * 5
    for name in ("a", "b"):
        s.put(name, payload(LARGE), "?durability=behind")
    s.put("n", payload(LARGE))
    s.put("r", payload(LARGE), "?durability=behind")
    s.ask("PATCH", "buffers/r", {"resident": True}).expect(200)
    until("three are behind", lambda: numbers(d, *behind) == [3, 3 * LARGE])
    assert numbers(d, "behind_seconds")[0] > 0
    assert numbers(d, "evictable_bytes", "stored_bytes") == [2 * LARGE, 0]
    for name in ("a", "b", "r"):
        s.post(f"buffers/{name}/store")
    until("none is behind", lambda: numbers(d, *behind, "behind_seconds") == [0, 0, 0])
    s.post("buffers/a/evict")
    until("one has left", lambda: numbers(d, "evictable_bytes", "stored_bytes") == [LARGE, LARGE])
    s.ask("DELETE", "buffers/a").expect(204)
    until("none is on disk alone", lambda: numbers(d, "stored_bytes") == [0])


def test_a_load_without_room(place, start):
    """Reads that need memory are 507 at the session's quota; those from the disk are answered."""
    d = place()
    Session(d).put("b", payload(LARGE), SQUARE + "&durability=sync")
    d = again(d, start)
    s = Session(d)
    s.patch("", {"quota": {"bytes": 1}})
    refusals(s, 507, "quota_exceeded", [
        ("POST", "buffers/b/load"), ("GET", "buffers/b?attributes=true"), ("GET", "buffers/b/data?" + COLUMNS),
        ("GET", "tensors?names=b")])
    d.ask("HEAD", S + "/tensors?names=b").expect(507)
    d.ask("HEAD", f"{S}/buffers/b/data?{COLUMNS}").expect(200)
    assert s.data("b") == payload(LARGE)
    s.patch("", {"quota": {"bytes": None}})
    until("a failure is forgotten", lambda: s.ask("GET", "buffers/b/data?" + COLUMNS).status == 200)


def test_a_body_does_not_wait_for_a_load(place, start):
    d = place()
    s = Session(d)
    s.put("b", payload(LARGE), "?durability=sync")
    s = Session(again(d, start, "--disk-fault", "read@2+=delay/50"))
    r = s.ask("PATCH", "buffers/b/data?offset=5", b"abc")
    assert r.problem(503, "not_loaded")["retryable"] and int(r.headers["Retry-After"]) >= 1
    until("it is loaded", lambda: s.ask("PATCH", "buffers/b/data?offset=5", b"abc").status == 200)
    assert s.data("b")[4:9] == payload(LARGE)[4:5] + b"abc" + payload(LARGE)[8:9]


def test_a_disk_that_fails(start):
    d = start("--disk-fault", "sync+=EIO")
    s = Session(d)
    s.put("b", payload(LARGE))
    s.put("behind", payload(LARGE), "?durability=behind")
    p = s.ask("POST", "buffers/behind/store").problem(500, "storage_failed")
    assert p["native"]["name"] == "EIO" and p["retryable"]
    for method, path, body in (("POST", "buffers/behind/store", {}), ("PATCH", "buffers/b", {"durability": "sync"}),
                               ("PUT", "buffers/n/data?durability=sync", payload(LARGE))):
        refused = s.ask(method, path, body)
        assert (refused.problem(503, "storage_unavailable")["native"]["name"] == "EIO"
                and int(refused.headers["Retry-After"]) >= 1)
    assert check_storage(s, state="failed")["error"]
    told = d.get("/readyz?verbose")
    check = {c["name"]: c for c in told["checks"]}["storage"]
    assert told["status"] == "ready" and not check["ok"] and check["detail"].startswith("failed: ")
    d.ask("GET", "/readyz").expect(200)
    assert s.data("b") == payload(LARGE) and s.put("n", b"abcd")["state"] == "ready"
    assert b'gpubufd_storage_state{state="failed"} 1' in d.ask("GET", "/metrics").expect(200).body


def test_a_disk_that_cannot_be_read(place, start):
    d = place()
    s = Session(d)
    s.put("b", payload(LARGE), "?durability=sync")
    s = Session(again(d, start, "--disk-fault", "read@2+=EIO"))
    s.ask("POST", "buffers/b/load").problem(500, "storage_failed")


def test_a_disk_without_room(start):
    d = start("--disk-reserve", "1024T")
    s = Session(d)
    s.put("b", payload(LARGE), "?durability=none")
    s.put("behind", payload(100000))
    p = s.ask("PUT", "buffers/n/data?durability=sync", payload(LARGE)).problem(507, "storage_full")
    assert p["requested_bytes"] >= LARGE and p["limit_bytes"] == 0
    s.ask("PATCH", "buffers/b", {"durability": "sync"}).problem(507, "storage_full")
    s.put("small", b"abcd", "?durability=sync")  # it lies in the database
    assert s.post("buffers/small/store")["wrote"] is False
    check_storage(s, free_bytes=0)


def test_a_disk_that_fills_up(start):
    """There seems to be room until the file is begun; then the state is full until it was looked at."""
    d = start("--disk-fault", "fallocate@1=ENOSPC", "--durable-lag", "3600")
    s = Session(d)
    s.put("b", payload(LARGE), "?durability=behind")
    s.ask("POST", "buffers/b/store").problem(507, "storage_full")
    assert s.meta("b")["stored_generation"] is None
    until("the disk is well again", lambda: s.get("/v1/storage")["state"] == "ready")
    assert s.post("buffers/b/store")["wrote"] is True


def test_the_document_has_the_types_of_the_feed(start):
    d = start()
    described = interface(d).document["components"]["schemas"]["FeedEvent"]["properties"]["type"]["enum"]
    for word in ("buffer.stored", "buffer.loaded", "buffer.damaged", "buffer.rolled_back", "storage.full",
                 "storage.failed", "storage.recovered"):
        assert word in described
        d.ask("GET", f"/v1/feed?type={word}", headers={"Accept": "application/json"}).expect(200)
    p = d.ask("GET", "/v1/feed?type=disk.", headers={"Accept": "application/json"}).problem(400, "invalid_argument")
    assert "storage." in p["detail"]
