"""Broken clients: their resources are released, other clients are served meanwhile, and buffers are left in a defined
state."""
import errno
import json
import resource
import threading
import time

import pytest

import secure
from badclient import Bad, Footprint, Others, chunked, request
from harness import DATA, SLOT, Raw, until
from values import payload

PATIENT = ("--slots-bytes", "8M", "--slot-bytes", "256K", "--idle-timeout", "3600", "--header-timeout", "3600",
           "--stall-timeout", "3600")
HASTY = ("--slots-bytes", "8M", "--slot-bytes", "256K", "--idle-timeout", "1", "--stall-timeout", "1", "--min-rate",
         "1K")
BIG = 5 * SLOT + 77


def nameable(daemon, name, *contents, session="default"):
    """The buffer is absent, or ready with one of these contents, or partial, which a download refuses by that name."""
    meta = daemon.ask("GET", f"/v1/sessions/{session}/buffers/{name}")
    got = daemon.data(name, session)
    if meta.status == 404:
        got.problem(404, "buffer_not_found")
        return "absent"
    meta = meta.expect(200).json()
    assert meta["generation"] >= 1 or meta["state"] == "partial", meta
    if meta["state"] == "partial":
        got.problem(409, "buffer_partial")
    else:
        assert meta["state"] == "ready", meta
        assert got.expect(200).body in contents and got.headers["ETag"] == meta.get("etag", got.headers["ETag"])
    return meta["state"]


def cuts(bad, data, n):
    """n places to stop at: the line ends of the header, both ends of the body, and random ones."""
    head = data.index(b"\r\n\r\n") + 4
    fixed = [0, 1, head - 4, head - 2, head - 1, head, head + 1, head + SLOT, len(data) - 1]
    return [c for c in fixed if c < len(data)] + [bad.random.randrange(len(data)) for _ in range(n)]


KINDS = {
    "plain": lambda t, body: request("PUT", t, body),
    "expect": lambda t, body: request("PUT", t, body, "Expect: 100-continue"),
    "chunked": lambda t, body: chunked(f"{t}?dtype=uint8&shape={len(body)}", body, (1, 1000, SLOT, 17)),
    "in-place": lambda t, body: request("PUT", t + "?in_place=true", body),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_upload_that_ends_anywhere(start, kind):
    """Stops at every byte of a small plain upload, else at some places, as for a large body: closed, half closed,
    reset."""
    d = start(*PATIENT)
    bad = Bad(d, 1)
    for size, n in (20, None if kind == "plain" else 20), (BIG, 30):
        old, new = payload(size, 1), payload(size, 2)
        d.put("x", old).expect(201 if size == 20 else 200)
        data = KINDS[kind](DATA.format("default", "x"), new)
        d.settled()
        with Others(d, "default", payload(SLOT + 1)) as others:
            for cut in range(len(data)) if n is None else cuts(bad, data, n):
                bad.send_part(data, cut)
        d.settled()
        state = nameable(d, "x", old)
        assert state == "ready" or kind == "in-place"
        assert others.polls > 0
        # The whole test again, on the same daemon.
        with d.raw() as r:
            assert r.send(data).reply().status == 200
        assert d.data("x").body == new


def test_nothing_stays_of_uploads_that_end_anywhere(start):
    d = start(*PATIENT)
    bad, body = Bad(d, 2), payload(BIG)
    d.put("x", body).expect(201)
    d.settled()
    before = Footprint(d, "default")
    memory = d.rss_anon()
    for name in ("x", "new"):
        for make in KINDS.values():
            data = make(DATA.format("default", name), body)
            for cut in cuts(bad, data, 12):
                bad.send_part(data, cut)
    before.same("buffers")
    assert nameable(d, "new") == "absent"
    # The bound exceeds allocator caches, but not one leaked body.
    assert d.rss_anon() - memory < 32 << 20


def test_a_download_that_is_left_anywhere(start):
    d = start(*PATIENT)
    bad, body = Bad(d, 3), payload(BIG)
    d.put("x", body).expect(201)
    d.settled()
    before = Footprint(d, "default")
    for how in ("reset", "close"):
        for n in [1, 50, 300, 1000, SLOT, BIG, *(bad.random.randrange(BIG) for _ in range(20))]:
            assert bad.read_part(DATA.format("default", "x"), n, how)
    before.same()
    assert d.ask("DELETE", "/v1/sessions/default/buffers/x").status == 204
    until("its memory is free", lambda: d.stats()["pools"][0]["used_bytes"] == 0)


def test_clients_that_go_silent_are_given_up(start):
    """Half-open connections: in the header, in the body, before the answer is read; and connections that send a byte
    now and then."""
    d = start(*HASTY)
    body = payload(64 * SLOT)
    d.put("x", body).expect(201)
    d.settled()
    before, bad, target = Footprint(d, "default"), Bad(d, 4), DATA.format("default", "y")
    whole = request("PUT", target, payload(BIG))
    head = whole.index(b"\r\n\r\n") + 4
    with Others(d, "default", payload(1000)):
        for cut in (0, 1, head - 1, head, head + 1, head + SLOT, len(whole) - 1):
            bad.stay(whole[:cut])
        bad.stay(request("GET", DATA.format("default", "x")), receive_bytes=4096)
        slow = [bad.stay(whole[:20]), bad.stay(whole[:head + 10])]
        for r in slow:
            at = [30]

            def gone():
                """Sends another byte well before the timeout, until the daemon closes."""
                at[0] += 1
                try:
                    r.send(b"x")
                    r.sock.setblocking(False)
                    try:
                        return r.sock.recv(1 << 16) is not None
                    except BlockingIOError:
                        return False
                    finally:
                        r.sock.settimeout(90)
                except OSError:
                    return True

            until("the slow one is given up", gone, every_s=0.1)
        d.settled()
    assert d.ask("DELETE", DATA.format("default", "others")[:-5]).status == 204
    before.same()
    assert nameable(d, "y") == "absent"
    bad.let_go()


def test_64_uploads_stall_and_others_are_served(start):
    d = start(*PATIENT)
    bad, body = Bad(d, 5), payload(BIG)
    d.put("others", b"x").expect(201)
    before = Footprint(d, "default")
    data = [request("PUT", DATA.format("default", f"u{i}"), payload(BIG, i)) for i in range(64)]
    stop = [len(x) - BIG + bad.random.randrange(1, BIG) for x in data]
    for x, at in zip(data, stop):
        bad.stay(x[:at])
    until("all have begun", lambda: d.stats()["running"]["uploads"] == 64)
    with Others(d, "default", body) as others:
        others.more()
        others.more()
        for i in range(0, 64, 2):
            bad.open[i].send(data[i][stop[i]:])
            assert bad.open[i].reply().status == 201
            bad.leave(bad.open[i + 1], "reset")
    for i in range(64):
        assert nameable(d, f"u{i}", payload(BIG, i)) == ("absent" if i % 2 else "ready")
        if i % 2 == 0:
            d.ask("DELETE", f"/v1/sessions/default/buffers/u{i}").expect(204)
    for r in bad.open[::2]:
        r.close()
    before.same("buffers", "used")
    d.put("others", b"x").expect(200)
    before.same()


@pytest.mark.parametrize("size", [8 << 20, 1 << 20, (512 << 10) + 1])
def test_a_large_body_that_drips_is_seen(start, size):
    """Fewer bytes than the socket's low-water mark count as progress, too, and the connection continues afterwards."""
    d = start(*HASTY, "--slot-bytes", "1M")
    body = payload(size)
    with d.raw() as r:
        r.put(DATA.format("default", "x"), len(body), expect=True)
        assert r.head()[0] == 100
        for i in range(8):
            r.send(body[i * 50000:(i + 1) * 50000])
            time.sleep(0.25)  # the pace is under test
        r.send(body[8 * 50000:])
        assert r.reply().status == 201
        for _ in range(20):
            r.put(DATA.format("default", "x"), len(body)).send(body)
            assert r.reply().status == 200
            assert r.request("GET", "/livez").reply().status == 200
    assert d.data("x").body == body


@pytest.mark.parametrize("size", [64 << 20, 1 << 20])
def test_drops_below_the_permitted_rate(start, size):
    """Bytes that only the tick finds count as progress, but the rate is too low."""
    d = start("--min-rate", "10K", "--stall-timeout", "1")
    before = Footprint(d, "default")
    with d.raw() as r:
        r.put(DATA.format("default", "x"), size)
        done = threading.Event()

        def drip():
            while not done.wait(0.02):
                try:
                    r.send(b"x" * 10)
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            assert r.reply().problem(408, "request_timeout")["detail"].startswith("the body came at less than")
        finally:
            done.set()
            thread.join()
    before.same()


def test_ten_thousand_idle_connections(start):
    """As many connections as this process may open: silent ones, ones with half a header, and ones with one answer."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    n = min(10000, limit[1] - 500)
    d = start(*PATIENT, "--max-connections", "16384")
    assert resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE)[0] >= n + 500, "the daemon may not open as many"
    before, memory = Footprint(d, "default"), d.rss_anon()
    idle = [Raw(d.tcp) for _ in range(n)]
    for i, r in enumerate(idle):
        if i % 3 == 1:
            r.send(b"GET /livez HTTP/1.1\r\nHost: local")
        elif i % 3 == 2:
            r.request("GET", "/livez")
    for r in idle[2::3]:
        assert r.reply().status == 200
    print(f"{n} idle connections")
    with Others(d, "default", payload(SLOT)) as others:
        assert len(before.now()) and before.now()["descriptors"] >= n
        assert d.rss_anon() - memory < n * (16 << 10) * 2 + (64 << 20)
        others.more()
        for r in idle[1::300]:  # the connection with half a header still works
            assert r.send(b"host\r\n\r\n").reply().status == 200
    bad = Bad(d, 6)
    for r in idle:
        bad.leave(r, bad.random.choice(("close", "reset")))
    d.ask("DELETE", "/v1/sessions/default/buffers/others").expect(204)
    before.same()
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def test_pipelined_garbage(start):
    """Requests before the garbage are answered, the garbage is refused, and its connection is closed."""
    d = start(*PATIENT)
    d.put("x", b"abc").expect(201)
    before, bad = Footprint(d, "default"), Bad(d, 7)
    good = request("GET", "/livez")[:-4].replace(b"\r\nContent-Length: 0", b"") + b"\r\n\r\n"
    with Others(d, "default", payload(1000)):
        for garbage in (b"\0" * 50, b"\r\n\r\n\r\nHELO\r\n\r\n", bad.random.randbytes(3000), b"GET\r\n\r\n",
                        b"G" * 20000, b"POST /v1 HTTP/9.9\r\n\r\n", b"PUT /v1/sessions/default/buffers/x/data "
                        b"HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"):
            for first, status in ((good, 200), (request("PUT", DATA.format("default", "x"), b"xyz"), 200),
                                  (request("GET", "/nowhere"), 404)):
                with d.raw() as r:
                    r.send(first + garbage)
                    assert r.reply().status == status
                    try:
                        r.half_close()
                        assert r.closes()
                    except OSError as e:
                        assert e.errno in (errno.ENOTCONN, errno.ECONNRESET), "the connection was kept"
    d.ask("DELETE", "/v1/sessions/default/buffers/others").expect(204)
    before.same("used")
    assert d.data("x").body == b"xyz"


@pytest.mark.parametrize("seed", range(3))
def test_anything_at_any_moment(start, seed):
    """A few hundred clients, each breaking something, several at a time."""
    d = start(*PATIENT)
    bad, body = Bad(d, 100 + seed), payload(BIG)
    d.put("x", body).expect(201)
    d.ask("POST", "/v1/sessions/default/buffers", {"name": "others", "bytes": 1}).expect(201)
    before = Footprint(d, "default")
    makers = list(KINDS.values())
    with Others(d, "default", payload(2 * SLOT)):
        for _ in range(150):
            target = DATA.format("default", bad.random.choice(("x", "y", "z")))
            what = bad.random.randrange(5)
            data = bad.random.choice(makers)(target, body[:bad.random.choice((1, 100, SLOT, BIG))])
            cut = bad.random.randrange(len(data))
            if what == 0:
                bad.send_part(data, cut)
            elif what == 1:
                bad.stay(data[:min(cut, 4 * SLOT)])
            elif what == 2 and bad.open:
                bad.leave(bad.open.pop(bad.random.randrange(len(bad.open))), bad.random.choice(("close", "reset")))
            elif what == 3:
                bad.read_part(DATA.format("default", "x"), bad.random.randrange(1, BIG))
            else:
                bad.stay(request("GET", DATA.format("default", "x")), receive_bytes=4096)
        bad.let_go()
    d.settled()
    assert nameable(d, "y") == nameable(d, "z") == "absent"
    nameable(d, "x", body)
    d.put("x", body).expect(200)
    d.put("others", b"x").expect(200)
    before.same()


@pytest.mark.parametrize("how", ["close", "reset"])
def test_who_waits_for_memory_and_goes_has_asked_for_nothing(start, simulated, how):
    """A creation and a copy that wait for memory: after a disconnect, quota and name are free long before the wait
    would end."""
    d = start(*PATIENT, "--wait-max", "600", spec=simulated("bytes=256M"))
    d.put("x", payload(SLOT)).expect(201)
    d.ask("POST", "/v1/sessions/default/buffers", {"name": "big", "bytes": 128 << 20}).expect(201)
    d.ask("PATCH", "/v1/sessions/default", {"quota": {"buffers": 3}}).expect(200)
    bad = Bad(d, 8)

    def create(name):
        return d.ask("POST", "/v1/sessions/default/buffers", {"name": name, "bytes": 1})

    for target, body in (("/v1/sessions/default/buffers", {"name": "n", "bytes": 160 << 20}),
                         ("/v1/sessions/default/buffers/n/copy", {"from": "big"})):
        body = json.dumps(body).encode()

        def waits():
            """An early request would take the quota of the waiting one, which would then be refused and retried."""
            r = bad.stay(request("POST", target, body, "Content-Type: application/json", "Prefer: wait=500"))
            d.settled()
            if create("other").status == 507:
                return r
            delete(d, "other")
            bad.leave(r, "close")

        r = until("it waits, and its quota is taken", waits)
        create("other").problem(507, "quota_exceeded")
        bad.leave(r, how)
        until("its quota is free", lambda: create("n").status == 201)
        delete(d, "n")


@pytest.mark.parametrize("way", ["tcp", "unix", "tls"])
@pytest.mark.parametrize("lasts", [False, True])
def test_who_waits_for_memory_and_sends_no_more_is_answered(start, simulated, way, lasts):
    """A client that has closed its own side may read the answer to a change. lasts: until the daemon has asked whether
    it is there."""
    d = start(*PATIENT, "--wait-max", "600", spec=simulated("bytes=256M"),
              listen=("--listen", "127.0.0.1:0", *secure.options()[2:]))
    ask, secured = d.ask, next(a for a in d.addresses if a.startswith("tls:")).rsplit(":", 1)[1]

    def raw():
        r = Raw(("127.0.0.1", int(secured))) if way == "tls" else d.raw(unix=way == "unix")
        if way == "tls" and not secure.EVERYWHERE:
            r.sock = secure.wrap(r.sock)
        return r

    buffers = "/v1/sessions/default/buffers"
    ask("POST", buffers, {"name": "big", "bytes": 128 << 20}).expect(201)
    for name in ("n", "m"):
        r = raw()
        r.send(request("POST", buffers, json.dumps({"name": name, "bytes": 160 << 20}).encode(),
                       "Content-Type: application/json", "Prefer: wait=500"))
        until("it waits", lambda: ask("GET", "/v1/sessions/default").json()["used_bytes"] == 288 << 20)
        r.half_close()
        if lasts and way != "unix":
            assert r.head()[0] == 100
        ask("DELETE", buffers + "/big").expect(204)
        assert r.reply().status == 201
        assert r.closes()
        r.close()
        assert ask("GET", f"{buffers}/{name}").expect(200).json()["bytes"] == 160 << 20
        ask("DELETE", f"{buffers}/{name}").expect(204)
        ask("POST", buffers, {"name": "big", "bytes": 128 << 20}).expect(201)


def delete(daemon, name):
    daemon.ask("DELETE", "/v1/sessions/default/buffers/" + name).expect(204)
    return True


def test_the_wrong_method_is_told_where_it_belongs(daemon, session):
    buffer = f"/v1/sessions/{session}/buffers/x"
    p = daemon.ask("PUT", buffer, b"1").problem(405, "method_not_allowed")
    assert ".../data" in p["detail"] and "PUT" in p["detail"]
    assert ".../copy" in daemon.ask("POST", buffer, b"1").problem(405, "method_not_allowed")["detail"]
    assert "below" not in daemon.ask("DELETE", buffer + "/copy").problem(405, "method_not_allowed")["detail"]


@pytest.mark.parametrize("size", [4 << 20, 1 << 20, 9 << 20])
@pytest.mark.parametrize("unix", [False, True])
def test_clients_that_drip_keep_no_slot(start, unix, size):
    """As many stalled uploads as there are slots: each byte is progress, but other transfers get slots, too."""
    d = start("--slots-bytes", "1M", "--slot-bytes", "256K", "--min-rate", "0")
    slow = [d.raw(unix=unix).put(DATA.format("default", f"slow{i}"), size).send(payload(50000)) for i in range(4)]
    done = threading.Event()

    def drip():
        while not done.wait(0.01):
            for r in slow:
                r.send(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        until("they are under way", lambda: d.stats()["running"]["uploads"] == 4)
        d.put("x", payload(SLOT)).expect(201)
    finally:
        done.set()
        thread.join()
    for r in slow:
        r.reset()
    d.settled()
    assert d.data("x").body == payload(SLOT)
