"""The same request again and again on one connection: its head is compared with the last one, not parsed."""
import concurrent.futures
import os
import signal
import socket
import sqlite3
import time

import pytest

import values
from harness import DATA, token, until
from test_numbers import seen
from values import payload

SIZES = [10, 4096, 64 << 10, 300 << 10, 5 << 20]


def head(target, n=None, *more, method="PUT", version="1.1"):
    length = [] if n is None else [f"Content-Length: {n}"]
    return ("\r\n".join([f"{method} {target} HTTP/{version}", "Host: localhost", *length, *more]) + "\r\n\r\n").encode()


def repeating(r, target, n, *more, times=3):
    """After these uploads the connection repeats. Returns the head."""
    h = head(target, n, *more)
    for i in range(times):
        assert r.send(h + payload(n, seed=i)).reply().status in (200, 201)
    return h


def uploaded(daemon, session, name, data):
    assert daemon.data(name, session).expect(200).body == data


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("joined", [False, True], ids=["apart", "joined"])
def test_uploads(daemon, session, unix, size, joined):
    target = DATA.format(session, "x")
    generation, etags = 0, set()
    with daemon.raw(unix) as r:
        for i in range(6):
            data = payload(size, seed=i)
            if joined:
                r.send(head(target, size) + data)
            else:
                r.send(head(target, size)).send(data)
            answer = r.reply().expect(200 if i else 201)
            meta = answer.json()
            assert meta["generation"] > generation and meta["crc32c"] == values.crc32c(data)
            generation = meta["generation"]
            etags.add(answer.headers["Etag"])
            uploaded(daemon, session, "x", data)
    assert len(etags) == 6


def closes(answer):
    return answer.headers.get("Connection") == "close"


@pytest.mark.parametrize("size", SIZES)
def test_downloads(daemon, session, unix, size):
    """The daemon may announce the end after a long one over the UNIX socket."""
    target = DATA.format(session, "x")
    r = daemon.raw(unix)
    for i in range(6):
        data = payload(size, seed=i // 2)
        daemon.put("x", data, session)
        answer = r.send(head(target, method="GET")).reply().expect(200)
        assert answer.body == data
        if closes(answer):
            assert unix and r.ended()
            r.sock.close()
            r = daemon.raw(unix)
    answer = r.send(head(target, method="HEAD")).reply(head_only=True)
    assert (answer.status, answer.headers["Content-Length"]) == (200, str(size))
    assert r.send(head(target, method="GET")).reply().body == data
    r.sock.close()


@pytest.mark.parametrize("size", SIZES)
def test_downloads_in_a_row(daemon, session, unix, size):
    data = payload(size)
    daemon.put("x", data, session)
    with daemon.raw(unix) as r:
        r.send(head(DATA.format(session, "x"), method="GET") * 8)
        for _ in range(8):
            answer = r.reply().expect(200)
            assert answer.body == data
            if closes(answer):  # it says that the others are not answered
                assert size >= 16384 and r.ended()
                break


@pytest.mark.parametrize("size", [10, 4096, 20000, 300 << 10])
def test_split_heads(daemon, session, unix, size):
    with daemon.raw(unix) as r:
        h = repeating(r, DATA.format(session, "x"), size)
        for i, at in enumerate([1, 20, len(h) - 3, len(h) - 1, len(h)]):
            data = payload(size, seed=100 + i)
            r.send(h[:at])
            time.sleep(0.05)  # the daemon sees the first part alone
            r.send(h[at:] + data)
            assert r.reply().status == 200
            uploaded(daemon, session, "x", data)
            assert r.send(h + data).reply().status == 200


def test_bytes_one_at_a_time(daemon, session, unix):
    with daemon.raw(unix) as r:
        h = repeating(r, DATA.format(session, "x"), 30)
        data = payload(30, seed=9)
        r.send(h)
        for byte in data:
            r.send(bytes([byte]))
            time.sleep(0.005)
        assert r.reply().status == 200
        uploaded(daemon, session, "x", data)
        for byte in h + data:
            r.send(bytes([byte]))
        assert r.reply().status == 200


@pytest.mark.parametrize("size", [1, 10, 4096, 8192, 8193, 20000, 300 << 10])
def test_pipelined(daemon, session, unix, size):
    """All in one send: answers come in order, and no byte is lost."""
    target, times = DATA.format(session, "x"), 12
    with daemon.raw(unix) as r:
        h = repeating(r, target, size)
        bodies = [payload(size, seed=i) for i in range(times)]
        r.send(b"".join(h + b for b in bodies) + head("/v1", method="GET"))
        have, last = 0, 0
        while have < times:
            answer = r.reply()
            if answer is None:
                break
            assert answer.expect(200).json()["crc32c"] == values.crc32c(bodies[have])
            assert answer.json()["generation"] > last
            last, have = answer.json()["generation"], have + 1
            if answer.headers.get("Connection") == "close":
                break
        assert have == times, f"{have} of {times} answers"
        assert "version" in r.reply().expect(200).json()


def test_another_head(daemon, session, unix):
    target = DATA.format(session, "x")
    with daemon.raw(unix) as r:
        h = repeating(r, target, 10)
        for other, body, status in [
                (head(target, 11), payload(11), 200), (head(target, 10, "X-More: 1"), payload(10), 200),
                (h.replace(b"localhost", b"Localhost"), payload(10), 200),
                (head(target + "?dtype=int16", 10), payload(10), 200), (head(DATA.format(session, "y"), 10),
                                                                        payload(10), 201),
                (head("/v1", method="GET"), b"", 200), (h, payload(10), 200),
                (head("/v1/sessions/nowhere/buffers/x/data", 10), payload(10), 404)]:
            answer = r.send(other + body).reply()
            assert answer.status == status
            assert r.send(h + payload(10, seed=3)).reply().status == 200
        uploaded(daemon, session, "x", payload(10, seed=3))


def test_a_head_that_only_begins_so(daemon, session, unix):
    target = DATA.format(session, "x")
    with daemon.raw(unix) as r:
        h = repeating(r, target, 10)
        longer = h[:-2] + b"X-More: 1\r\n\r\n"  # the remembered head is no prefix of it, but nearly
        assert r.send(longer + payload(10)).reply().status == 200
        assert r.send(h + payload(10)).reply().status == 200
        r.send(h[:-2])
        time.sleep(0.1)
        assert r.send(b"X-More: a/b\r\n\r\n" + payload(10, seed=8)).reply().status == 200
        uploaded(daemon, session, "x", payload(10, seed=8))


@pytest.mark.parametrize("size", [10, 8192, 8193, 60000, 64 << 10])
@pytest.mark.parametrize("joined", [False, True], ids=["apart", "joined"])
def test_refused_by_a_precondition(daemon, session, unix, size, joined):
    target = DATA.format(session, "x")
    with daemon.raw(unix) as r:
        made = daemon.put("x", payload(size), session).expect(201)
        h = head(target, size, "If-Match: " + made.headers["ETag"])
        r.send(h + payload(size, seed=1)).reply().expect(200)
        again = repeating(r, target, size)
        for i in range(4):
            if joined:
                r.send(h + payload(size, seed=2))
            else:
                r.send(h)
                time.sleep(0.05)
                r.send(payload(size, seed=2))
            r.reply().problem(412, "precondition_failed")
        assert r.send(again + payload(size, seed=7)).reply().status == 200
        uploaded(daemon, session, "x", payload(size, seed=7))


@pytest.mark.parametrize("size", [10, 8192, 60000])
@pytest.mark.parametrize("joined", [False, True], ids=["apart", "joined"])
def test_a_session_goes(daemon, unix, size, joined):
    daemon.ask("POST", "/v1/sessions", {"name": "gone"}).expect(201)
    target = DATA.format("gone", "x")
    with daemon.raw(unix) as r:
        h = repeating(r, target, size)
        daemon.ask("DELETE", "/v1/sessions/gone").expect(204)
        for _ in range(3):
            r.send(h) if not joined else None
            time.sleep(0 if joined else 0.05)
            r.send(payload(size) if not joined else h + payload(size))
            r.reply().problem(404, "session_not_found")
        daemon.ask("POST", "/v1/sessions", {"name": "gone"}).expect(201)
        assert r.send(h + payload(size, seed=5)).reply().status == 201
        assert r.send(h + payload(size, seed=6)).reply().status == 200
        uploaded(daemon, "gone", "x", payload(size, seed=6))
    daemon.ask("DELETE", "/v1/sessions/gone").expect(204)


@pytest.mark.parametrize("size", [10, 8192, 60000])
def test_pipelined_refusals(daemon, session, unix, size):
    target = DATA.format(session, "x")
    with daemon.raw(unix) as r:
        repeating(r, target, size)
        gone = head(DATA.format("absent", "x"), size)
        r.send((gone + payload(size)) * 6 + head("/livez", method="GET"))
        for _ in range(6):
            r.reply().problem(404, "session_not_found")
        assert r.reply().status == 200


def test_a_revoked_token(start, tmp_path, unix):
    secret, other = token(tmp_path, "add", "a", "--scope", "write"), token(tmp_path, "add", "b", "--scope", "admin")
    d = start(state=str(tmp_path))
    target = DATA.format("default", "x")
    with d.raw() as r, d.raw() as g:
        h = repeating(r, target, 10, "Authorization: Bearer " + secret)
        get = head(target, None, "Authorization: Bearer " + secret, method="GET")
        assert g.send(get).reply().status == g.send(get).reply().status == 200
        token(tmp_path, "revoke", "a")
        until("it is refused", lambda: r.send(h + payload(10)).reply().status == 401)
        for _ in range(3):
            r.send(h + payload(10)).reply().problem(401, "unauthenticated")
            g.send(get).reply().problem(401, "unauthenticated")
        repeating(r, target, 10, "Authorization: Bearer " + other)


@pytest.mark.parametrize("size", [10, 5000, 300 << 10])
def test_100_continue(daemon, session, unix, size):
    with daemon.raw(unix) as r:
        for i in range(5):
            data = payload(size, seed=i)
            r.put(DATA.format(session, "x"), size, expect=True)
            assert r.head()[0] == 100
            assert r.send(data).reply().status == (200 if i else 201)
            uploaded(daemon, session, "x", data)
        for i in range(5):  # one that does not wait
            data = payload(size, seed=10 + i)
            r.send(head(DATA.format(session, "x"), size, "Expect: 100-continue") + data)
            assert r.reply().status == 200
            uploaded(daemon, session, "x", data)


def test_the_end_is_announced(daemon, session, unix):
    target, data = DATA.format(session, "x"), payload(10)
    for h in (head(target, 10, "Connection: close"), head(target, 10, version="1.0")):
        with daemon.raw(unix) as r:
            repeating(r, target, 10)
            assert r.send(h + data).reply().status == 200 and r.ended()
    with daemon.raw(unix) as r:
        for i in range(4):
            assert r.send(head(target, 10, "Connection: keep-alive", version="1.0")
                          + payload(10, seed=i)).reply().status == 200
        uploaded(daemon, session, "x", payload(10, seed=3))


def test_chunked(daemon, session, unix):
    target = DATA.format(session, "x") + "?dtype=uint8&shape=10"
    h = head(target, None, "Transfer-Encoding: chunked")
    with daemon.raw(unix) as r:
        for i in range(5):
            data = payload(10, seed=i)
            r.send(h + b"4\r\n" + data[:4] + b"\r\n6\r\n" + data[4:] + b"\r\n0\r\n\r\n")
            assert r.reply().status == (200 if i else 201)
            uploaded(daemon, session, "x", data)


def test_formats(daemon, session, unix):
    """Of the same length, but the header inside the body differs."""
    arrays = [values.array_of(dtype, shape) for dtype, shape in (("int32", (4, 6)), ("uint32", (4, 6)),
                                                                 ("int32", (6, 4)), ("int16", (6, 8)))]
    bodies = [values.npy(a) for a in arrays]
    assert len({len(b) for b in bodies}) == 1
    h = head(DATA.format(session, "x"), len(bodies[0]))
    with daemon.raw(unix) as r:
        for i in range(12):
            a = arrays[i % 4]
            meta = r.send(h + bodies[i % 4]).reply().json()
            assert (meta["dtype"], meta["shape"]) == (str(a.dtype), list(a.shape))
            uploaded(daemon, session, "x", a.tobytes())
        assert r.send(h + b"x" * len(bodies[0])).reply().json()["dtype"] == "uint8"
        broken = b"\x93NUMPY" + b"\xff" * (len(bodies[0]) - 6)
        assert r.send(h + broken).reply().status == 422


def test_broken_off(daemon, session, unix):
    for size, sent in [(10, 3), (5000, 4000), (300 << 10, 200 << 10)]:
        with daemon.raw(unix) as r:
            h = repeating(r, DATA.format(session, "x"), size)
            r.send(h + payload(size, seed=7)[:sent])
            time.sleep(0.05)
            r.reset()
        with daemon.raw(unix) as r:
            h = repeating(r, DATA.format(session, "x"), size)
            r.send(h + payload(size, seed=7)[:sent]).half_close()
            assert r.reply().json()["code"] == "incomplete_body"
        daemon.settled()
        uploaded(daemon, session, "x", payload(size, seed=2))


def test_a_body_that_stalls(start):
    d = start("--stall-timeout", "1", "--slots-bytes", "8M", "--slot-bytes", "256K")
    for size, sent in [(10, 3), (10, 0), (300 << 10, 1000)]:
        with d.raw() as r:
            h = repeating(r, DATA.format("default", "x"), size)
            r.send(h + payload(size, seed=7)[:sent])
            r.reply().problem(408, "request_timeout")
            assert r.ended()
    with d.raw() as r:  # refused, and the body does not come
        h = head(DATA.format("absent", "x"), 1000)
        repeating(r, DATA.format("default", "x"), 10)
        r.send(h + payload(500))
        assert r.reply() is not None


def test_idle_for_long(daemon, session, unix):
    """The connection has gone back meanwhile."""
    with daemon.raw(unix) as r:
        h = repeating(r, DATA.format(session, "x"), 10)
        for i, pause_s in enumerate((0.9, 1.0, 1.1, 1.5)):  # on both sides of the daemon's patience
            time.sleep(pause_s)
            assert r.send(h + payload(10, seed=20 + i)).reply().status == 200
            uploaded(daemon, session, "x", payload(10, seed=20 + i))


def listens(d):
    try:
        socket.create_connection(d.tcp, 5).close()
        return True
    except ConnectionRefusedError:
        return False


@pytest.mark.parametrize("where", ["idle", "body", "head"])
def test_a_stop(start, unix, where):
    d = start()
    r = d.raw(unix)
    h = repeating(r, DATA.format("default", "x"), 5000)
    if where == "body":
        r.send(h + payload(2000))
        time.sleep(0.1)
    if where == "head":
        r.send(h[:20])
        time.sleep(0.1)
    d.process.send_signal(signal.SIGTERM)
    until("the daemon drains", lambda: not listens(d))
    if where == "body":
        answer = r.send(payload(5000)[2000:]).reply()
        assert answer and answer.status == 200 and answer.headers["Connection"] == "close"
        assert r.ended()
    elif where == "idle":
        try:
            answer = r.send(h + payload(5000)).reply()
            assert answer is None or closes(answer)
        except (BrokenPipeError, ConnectionResetError):
            pass
    d.finished()
    r.sock.close()


def test_counted(start):
    d = start()

    def requests():
        numbers = seen(d)
        return {k: v for k, v in numbers.items() if "request" in k[0] and any(x == ("method", "PUT") for x in k[1])
                and "bucket" not in k[0]}

    with d.raw() as r:
        repeating(r, DATA.format("default", "x"), 10, times=50)
        until("all are counted", lambda: any(v == 50 for v in requests().values()))


def test_many_at_once(start):
    d = start("--slots-bytes", "8M", "--slot-bytes", "256K")

    def one(i):
        with d.raw(i // 4 % 2 == 1) as r:
            size = [10, 4096, 20000, 300 << 10][i % 4]
            for j in range(20):
                data = payload(size, seed=i * 100 + j)
                assert r.send(head(DATA.format("default", f"x{i}"), size) + data).reply().status in (200, 201)
                if j % 5 == 4:
                    answer = r.send(head(DATA.format("default", f"x{i}"), method="GET")).reply()
                    assert answer.body == data
                    if closes(answer):
                        return

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        list(pool.map(one, range(64)))


def test_the_database_is_locked(start):
    """By another process: uploads wait or fail, and polls are still answered."""
    d = start()
    path = next(os.path.join(d.state, f) for f in os.listdir(d.state) if f.endswith((".db", ".sqlite", ".sqlite3")))
    rs = [d.raw() for _ in range(8)]
    hs = [repeating(r, DATA.format("default", f"x{i}"), 10) for i, r in enumerate(rs)]
    lock = sqlite3.connect(path, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    for r, h in zip(rs, hs):
        r.send(h + payload(10, seed=9))
    slowest, end = 0, time.monotonic() + 3
    while time.monotonic() < end:
        began = time.monotonic()
        d.ask("GET", "/livez").expect(200)
        d.get("/v1/sessions/default/buffers/x0")
        slowest = max(slowest, time.monotonic() - began)
    lock.execute("ROLLBACK")
    lock.close()
    assert slowest < 1, slowest
    statuses = [r.reply().status for r in rs]
    assert all(s in (200, 503, 507) for s in statuses), statuses
    for i, (r, h) in enumerate(zip(rs, hs)):
        until("uploads work", lambda: r.send(h + payload(10, seed=33)).reply().status == 200)
        uploaded(d, "default", f"x{i}", payload(10, seed=33))
        r.sock.close()


def test_a_quota_is_reached_meanwhile(daemon, unix):
    """The refusal leaves the connection in step."""
    daemon.ask("POST", "/v1/sessions", {"name": "few", "quota": {"buffers": 1}}).expect(201)
    target = DATA.format("few", "x")
    with daemon.raw(unix) as r:
        h = repeating(r, target, 10)
        daemon.ask("DELETE", "/v1/sessions/few/buffers/x").expect(204)
        daemon.put("y", b"1", "few").expect(201)
        for _ in range(3):
            assert r.send(h + payload(10)).reply().json()["code"] == "quota_exceeded"
        daemon.ask("DELETE", "/v1/sessions/few/buffers/y").expect(204)
        assert r.send(h + payload(10, seed=4)).reply().status == 201
        uploaded(daemon, "few", "x", payload(10, seed=4))
    daemon.ask("DELETE", "/v1/sessions/few").expect(204)
