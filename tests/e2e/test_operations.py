"""Asynchronous requests (Prefer: respond-async), their results and their cancellation."""
import signal
import threading

from conform import Session
from harness import DATA, SMALL_SLOTS, token, until
from values import payload

ASYNC = {"Prefer": "respond-async"}
SIZE = 1 << 20


def left(s, method, path, body=None, prefer="respond-async"):
    """The operation of a request that was answered 202."""
    r = s.ask(method, path, body, {"Prefer": prefer}).expect(202)
    assert (r.headers["Preference-Applied"] == "respond-async" and r.headers["Location"] == "/v1/operations/"
            + r.json()["id"])
    return r.json()


def look(s, op, wait=None):
    return s.ask("GET", "/v1/operations/" + op["id"], None,
                 {"Prefer": f"wait={wait}"} if wait else None).expect(200).json()


def ended(s, op, state="done"):
    op = look(s, op, 60)
    assert op["state"] == state and op["ended_at"] and op["expires_at"], op
    return op


def summary(op):
    """The operation as lists show it."""
    return {k: v for k, v in op.items() if k not in ("result", "problem")}


def test_every_kind(s):
    """A request that waits for nothing may be answered at once; then it is repeated."""
    s.buffer("a", bytes=SIZE)
    s.buffer("b", bytes=SIZE)
    s.buffer("m", bytes=SIZE, mirrored=True)
    s.post("events", {"name": "e"}, 201)
    device = s.meta("a")["device"]["index"]
    names = iter(range(10000))
    table = [  # kind, method, path, body, status of the reply; {} is a fresh name
        ("upload", "PUT", "buffers/{}/data", payload(SIZE, 1), 201),
        ("upload", "PUT", "buffers/a/data?offset=8", b"12345678", 200),
        ("create", "POST", "buffers", {"name": "{}", "bytes": 8}, 201),
        ("copy", "POST", "buffers/{}/copy", {"from": "a"}, 201),
        ("fill", "POST", "buffers/b/fill", {"pattern": 3}, 200),
        ("sync", "POST", "buffers/m/sync", {"to": "device"}, 200),
        ("release", "POST", "buffers/m/release", {"side": "all"}, 200),
        ("trim", "POST", "pools/default/trim", {}, 200),
        ("sync", "POST", "streams/default/sync", None, 200),
        ("sync", "POST", "events/e/sync", None, 200),
        ("sync", "POST", "sync", None, 204),
        ("sync", "POST", f"/v1/devices/{device}/sync", None, 204),
    ]
    for kind, method, path, body, status in table:
        def one():
            name = f"n{next(names)}"
            mine = ({k: v.format(name) if isinstance(v, str) else v for k, v in body.items()} if isinstance(body, dict)
                    else body)
            if path == "buffers/m/sync":
                s.put("m", payload(SIZE, 2))
            if path == "events/e/sync":
                s.post("events/e/record")
            r = s.ask(method, path.format(name), mine, ASYNC)
            assert r.status in (status, 202), r
            return r.json() if r.status == 202 else None

        op = until(f"{path} is left to itself", one)
        assert (op["kind"], op["session"]) == (kind, None if path.startswith("/v1") else s.name), op
        op = ended(s, op)
        assert op["status"] == status and op["problem"] is None and (op["result"] is None) == (status == 204), op
        assert op["created_at"] <= op["started_at"] <= op["ended_at"] < op["expires_at"], op


def test_the_result_is_what_the_reply_would_have_been(s):
    data = payload(3 * SIZE, 5)

    def one():
        r = s.ask("PUT", "buffers/x/data?dtype=float32", data, ASYNC)
        return r.json() if r.status == 202 else None
    op = ended(s, until("it is left to itself", one))
    assert op["result"] == s.meta("x") and op["stream"] == "default" and s.data("x") == data
    assert op["target"] == f"{s.base}/buffers/x/data"
    # A request that is refused before any work starts gets the usual answer.
    s.ask("POST", "buffers/none/fill", {"pattern": 1}, ASYNC).problem(404, "buffer_not_found")
    s.ask("POST", "buffers/x/fill", {"pattern": "?"}, ASYNC).problem(400, "invalid_argument")


def test_one_that_fails(simulated, start):
    s = Session(start(spec=simulated("bytes=64M")))
    s.buffer("a", bytes=60 << 20)
    op = ended(s, left(s, "POST", "buffers", {"name": "b", "bytes": 50 << 20}, "respond-async, wait=1"), "failed")
    assert (op["result"] is None and op["problem"]["status"] == op["status"] == 507 and op["problem"]["code"]
            == "out_of_memory")
    assert op["problem"]["instance"] == s.base + "/buffers" and s.names("buffers") == ["a"]
    assert s.get("/v1/operations?state=failed")["items"] == [summary(op)]


def test_one_that_waits_for_memory_is_cancelled(simulated, start):
    s = Session(start(spec=simulated("bytes=64M")))
    s.buffer("a", bytes=60 << 20)
    s.put("x", b"old")
    used = s.get()["used_bytes"]
    for path, body in [("buffers", {"name": "b", "bytes": 50 << 20}), ("buffers/b/copy", {"from": "a"})]:
        op = left(s, "POST", path, body, "respond-async, wait=60")
        assert op["state"] == look(s, op)["state"] == "queued" and op["started_at"] is None
        assert s.get()["used_bytes"] > used
        gone = s.ask("DELETE", "/v1/operations/" + op["id"]).expect(200).json()
        assert gone["state"] == "cancelled" and gone["problem"] is None
        until("what it held is given back", lambda: s.get()["used_bytes"] == used and s.get()["buffers"] == 2)
        assert ended(s, op, "cancelled")["started_at"] is None
        p = s.ask("DELETE", "/v1/operations/" + op["id"]).problem(409, "operation_ended")
        assert "cancelled" in p["detail"]
        s.ask("GET", "buffers/b").problem(404, "buffer_not_found")
    # The name is free, and no resource is held.
    s.delete("buffers/a")
    s.buffer("b", bytes=50 << 20)


def test_queued_work_is_cancelled(start, backend):
    d = start(*SMALL_SLOTS, spec=f"fault:place_fill@1=stall/2000:{backend}")
    s = Session(d)
    s.put("a", payload(SIZE, 1))
    s.put("b", payload(SIZE, 2))
    first = left(s, "POST", "buffers/b/fill", {"pattern": 9})  # blocks the stream
    second = left(s, "POST", "buffers/c/copy", {"from": "a"})
    assert look(s, second)["state"] == "queued"
    assert s.ask("DELETE", "/v1/operations/" + second["id"]).expect(200).json()["state"] == "cancelled"
    ended(s, first)
    ended(s, second, "cancelled")
    s.ask("GET", "buffers/c").problem(404, "buffer_not_found")
    assert s.data("b") == bytes([9]) * SIZE
    until("its memory is given back", lambda: s.get()["used_bytes"] == 2 * SIZE)


def test_what_is_written_where_it_is_cannot_be_cancelled(start, backend):
    s = Session(start(spec=f"fault:place_fill@1=stall/1500:{backend}"))
    s.put("x", b"12345678")
    op = left(s, "POST", "buffers/x/fill", {"pattern": 7, "in_place": True})
    assert op["state"] == "running" and op["started_at"]
    s.ask("DELETE", "/v1/operations/" + op["id"]).problem(409, "operation_running")
    counts = s.get("/v1/stats")["operations"]
    ended(s, op)
    assert counts["running"] == 1 and s.data("x") == b"\7" * 8
    s.ask("DELETE", "/v1/operations/" + op["id"]).problem(409, "operation_ended")


def test_limits_and_expiry(start, backend):
    d = start("--max-operations", "3", "--operation-ttl", "1", spec=f"fault:place_fill@1=stall/1500:{backend}")
    s = Session(d)
    s.put("x", b"12345678")
    ops = [left(s, "POST", "buffers/x/fill", {"pattern": 1, "bytes": 4}) for _ in range(3)]
    p = s.ask("POST", "buffers/x/fill", {"pattern": 1}, ASYNC).problem(503, "saturated")
    assert "--max-operations" in p["detail"] and p["retryable"]
    s.ask("PUT", "buffers/y/data", b"1", ASYNC).problem(503, "saturated")
    s.post("buffers/x/fill", {"pattern": 2})  # a waiting client needs no slot
    for op in ops:
        look(s, op, 60)
    until("they expire", lambda: s.get("/v1/operations")["items"] == [])
    p = s.ask("GET", "/v1/operations/" + ops[0]["id"]).problem(404, "operation_not_found")
    assert "process" in p["detail"]
    s.ask("DELETE", "/v1/operations/" + ops[0]["id"]).problem(404, "operation_not_found")
    assert sum(s.get("/v1/stats")["operations"].values()) == 0


def test_ended_ones_are_bounded(start):
    s = Session(start("--max-operations", "2"))
    s.put("x", b"12345678")
    for i in range(12):
        until("one is left to itself", lambda: s.ask("POST", "buffers/x/fill", {"pattern": i}, ASYNC).status == 202)
        until("it is done", lambda: all(op["state"] == "done" for op in s.get("/v1/operations")["items"]))
        assert len(s.get("/v1/operations")["items"]) <= 2


def test_lists(s):
    s.put("x", b"12345678")
    made = []
    while len(made) < 5:
        r = s.ask("POST", "buffers/x/fill", {"pattern": 1}, ASYNC)
        if r.status == 202:
            made.append(ended(s, r.json()))
    of = f"/v1/operations?session={s.name}"
    listed = [summary(op) for op in made]
    assert s.get(of)["items"] == listed and s.get(of)["next_cursor"] is None
    page = s.get(of + "&limit=2&state=done")
    assert page["items"] == listed[:2]
    assert s.get(f"{of}&limit=3&cursor={page['next_cursor']}")["items"] == listed[2:]
    assert s.get(of + "&state=queued")["items"] == s.get("/v1/operations?session=none")["items"] == []
    for wrong in ("state=over", "state=", "session=-", "cursor=x", "limit=0", "session="):
        assert s.ask("GET", "/v1/operations?" + wrong).status == 400, wrong
    s.ask("GET", "/v1/operations/none").problem(404, "operation_not_found")


def test_conditions_and_waits(start, backend):
    s = Session(start(spec=f"fault:place_fill@1=stall/1500:{backend}"))
    s.put("x", b"12345678")
    op = left(s, "POST", "buffers/x/fill", {"pattern": 1})
    path = "/v1/operations/" + op["id"]
    r = s.ask("GET", path, None, {"Prefer": "wait=0"}).expect(200)
    assert r.json()["state"] == "queued"
    s.ask("GET", path, None, {"If-None-Match": r.headers["ETag"]}).expect(304)
    done = s.ask("GET", path, None, {"If-None-Match": r.headers["ETag"], "Prefer": "wait=30"}).expect(200)
    assert done.json()["state"] == "done" and done.headers["ETag"] != r.headers["ETag"]
    s.ask("GET", path, None, {"If-Match": r.headers["ETag"]}).problem(412, "precondition_failed")
    assert s.client.connects == 1


def test_a_wait_that_is_over_before_the_work(start, backend):
    d = start(spec=f"fault:place_fill@1=stall/3000:{backend}")
    s = Session(d)
    s.put("x", b"12345678")
    op = left(s, "POST", "buffers/x/fill", {"pattern": 1})
    assert look(s, op, 1)["state"] == "queued"
    ended(s, op)
    assert s.client.connects == 1


def test_many_wait(start, backend):
    """On TCP and on the UNIX socket; each is answered on its own connection, which is kept."""
    d = start("--max-connections", "2000", spec=f"fault:place_fill@1=stall/3000:{backend}")
    s = Session(d)
    s.put("x", b"12345678")
    op = left(s, "POST", "buffers/x/fill", {"pattern": 1})
    raws = [d.raw(unix=i % 4 == 0).request("GET", "/v1/operations/" + op["id"], ["Prefer: wait=30"])
            for i in range(400)]
    until("all wait", lambda: s.get("/v1/stats")["operations"]["queued"] == 1)
    assert s.meta("x")["generation"] == 1
    for r in raws:
        assert r.reply().expect(200).json()["state"] == "done"
    for r in raws[:40]:
        assert r.request("GET", "/livez").reply().status == 200
    for r in raws:
        r.close()
    # Some disconnect while they wait.
    s.put("x", b"12345678")


def test_those_who_wait_may_go(start, backend):
    d = start(spec=f"fault:place_fill@1=stall/2000:{backend}")
    s = Session(d)
    s.put("x", b"12345678")
    op = left(s, "POST", "buffers/x/fill", {"pattern": 1})
    raws = [d.raw(unix=i % 2 == 0).request("GET", "/v1/operations/" + op["id"], ["Prefer: wait=30"]) for i in range(40)]
    for i, r in enumerate(raws):
        (r.reset if i % 4 < 2 else r.close)()
    ended(s, op)


def test_each_sees_its_own(start, tmp_path, backend):
    secrets = {name: token(tmp_path, "add", name, "--scope", "write", *more)
               for name, more in (("all", []), ("mine", ["--session", "mine"]), ("other", ["--session", "other"]))}
    reader = token(tmp_path, "add", "reader", "--scope", "read", "--session", "mine")
    d = start(state=str(tmp_path), spec=f"fault:place_fill@1=stall/1500:{backend}")
    for name in ("mine", "other"):
        d.ask("POST", "/v1/sessions", {"name": name}, token=secrets["all"]).expect(201)
    d.ask("PUT", DATA.format("mine", "x"), b"1234", token=secrets["mine"]).expect(201)
    r = d.ask("POST", "/v1/sessions/mine/buffers/x/fill", {"pattern": 1}, ASYNC, secrets["mine"]).expect(202)
    path = r.headers["Location"]
    for secret in (secrets["all"], secrets["mine"], reader):
        assert d.ask("GET", path, token=secret).expect(200).json()["session"] == "mine"
        assert len(d.ask("GET", "/v1/operations", token=secret).expect(200).json()["items"]) == 1
    d.ask("DELETE", path, token=reader).problem(403, "forbidden")
    d.ask("DELETE", path, token=secrets["other"]).problem(404, "operation_not_found")
    d.ask("GET", path, token=secrets["other"]).problem(404, "operation_not_found")
    assert d.ask("GET", "/v1/operations", token=secrets["other"]).expect(200).json()["items"] == []
    d.ask("GET", "/v1/operations?session=mine", token=secrets["other"]).problem(403, "forbidden")
    for secret in (None, "gpb_" + "0" * 64):
        d.ask("GET", path, token=secret).problem(401, "unauthenticated")
    d.ask("GET", path, None, {"Prefer": "wait=30"}, secrets["mine"]).expect(200)


def test_the_session_is_deleted_meanwhile(simulated, start):
    d = start(spec=simulated("bytes=64M"))
    d.ask("POST", "/v1/sessions", {"name": "s"}).expect(201)
    s = Session(d, "s")
    Session(d).buffer("a", bytes=60 << 20)
    op = left(s, "POST", "buffers", {"name": "b", "bytes": 50 << 20}, "respond-async, wait=60")
    d.ask("DELETE", "/v1/sessions/s").expect(204)
    op = ended(s, op, "failed")
    assert op["problem"]["code"] == "session_not_found" and op["status"] == 404
    d.settled()


def test_a_restart(start, tmp_path):
    d = start(state=str(tmp_path))
    s = Session(d)
    s.put("x", b"12345678")

    def one():
        r = s.ask("POST", "buffers/x/fill", {"pattern": 1}, ASYNC)
        return r.json() if r.status == 202 else None
    op = ended(s, until("it is left to itself", one))
    d.kill()
    s = Session(start(state=str(tmp_path)))
    s.ask("GET", "/v1/operations/" + op["id"]).problem(404, "operation_not_found")


def test_a_stop_lets_them_end(start, backend, tmp_path):
    d = start(spec=f"fault:place_fill@1=stall/1000:{backend}", state=str(tmp_path))
    s = Session(d)
    s.put("x", b"12345678")
    left(s, "POST", "buffers/x/fill", {"pattern": 1})
    waiting = d.raw().request("GET", "/v1/operations/" + s.get("/v1/operations")["items"][0]["id"], ["Prefer: wait=30"])
    until("it waits", lambda: s.get("/v1/stats")["operations"]["queued"] == 1)
    d.process.send_signal(signal.SIGTERM)
    assert waiting.reply().expect(200).json()["state"] == "done"
    d.finished()
    assert Session(start(state=str(tmp_path))).meta("x")["generation"] == 2


def test_a_stop_does_not_wait_for_ever(simulated, start):
    d = start("--stop-timeout", "0", spec=simulated("bytes=64M"))
    s = Session(d)
    s.buffer("a", bytes=60 << 20)
    for i in range(20):
        left(s, "POST", "buffers", {"name": f"b{i}", "bytes": 50 << 20}, "respond-async, wait=5")
    d.stop()


def test_many_at_once(s):
    """Asynchronous uploads and copies from several connections: each ends once, with its own result."""
    wrong = []

    def work(number):
        client = s.daemon.client()
        try:
            for i in range(30):
                r = client.ask("PUT", f"{s.base}/buffers/u{number}/data", payload(70000, i), ASYNC)
                if r.status == 202:
                    done = client.ask("GET", r.headers["Location"], None, {"Prefer": "wait=60"}).expect(200).json()
                    assert done["state"] == "done" and done["result"]["generation"] == i + 1, done
                assert client.ask("GET", f"{s.base}/buffers/u{number}/data").body == payload(70000, i)
        except BaseException as e:  # reported by the main thread
            wrong.append(e)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong
