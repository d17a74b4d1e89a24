"""What one client may take, and what the others have of it."""
import contextlib
import itertools
import socket
import ssl
import subprocess
import threading

import pytest

import secure
from bounding import From, RawFrom, limited, proxy_1, proxy_2
from feed import Feed
from harness import DATA, PATIENCE_S, Client, binary, metric, token, until
from records import secured_address
from secure import Secured

HERE, THERE = "127.0.0.2", "127.0.0.3"
NO_RATE = ("--rate-requests", "0")


def admin(d):
    """One that has no bound: over loopback's first address a test would use up its own."""
    return d.client(unix=True)


def refused(reply, limit, of="address"):
    p = reply.problem(429, "too_many_requests")
    assert (p["limit"]["name"], p["limit"]["of"], p["retryable"]) == (limit, of, True), p
    assert int(reply.headers["Retry-After"]) == p["limit"]["retry_after_s"] >= 1
    return p["limit"]


# --- requests ---------------------------------------------------------------------------------------------------------


def test_requests_of_one_address(start):
    d = start("--bound-local", "--rate-requests", "1", "--burst-requests", "5")
    c, other = From(d, HERE), From(d, THERE)
    first = c.ask("GET", "/v1/sessions/default").expect(200)
    assert first.headers["RateLimit-Policy"] == '"requests";q=5;w=5;qu="requests"'
    assert first.headers["RateLimit"].startswith('"requests";r=4;t=')
    replies = [c.ask("GET", "/v1/sessions/default") for _ in range(20)]
    assert [r.status for r in replies].count(200) < 20
    last = until("the burst is used", lambda: (r := c.ask("GET", "/v1")).status == 429 and r)
    limit = refused(last, "requests")
    assert (limit["permitted"], limit["unit"], limit["burst"]) == (1, "requests/s", 5)
    assert last.headers["RateLimit"] == f'"requests";r=0;t={limit["retry_after_s"]}'
    assert c.connects == 1  # the connection stays
    other.ask("GET", "/v1").expect(200)
    # A body that was refused at its head is not taken for a request.
    r = until("refused once more", lambda: (r := c.ask("PUT", DATA.format("default", "x"), b"x" * 1000)).status == 429
              and r)
    refused(r, "requests")
    until("the bucket fills again", lambda: c.ask("GET", "/v1").status == 200, every_s=0.2)
    assert limited(other, "requests") >= 2


def test_this_machine_has_no_bounds_unasked(start):
    d = start("--rate-requests", "1", "--burst-requests", "1", "--rate-bytes", "1", "--max-uploads-per-client", "1",
              "--max-waits-per-client", "1", "--max-listeners-per-client", "1")
    for c in (From(d, HERE), d.client(unix=True)):
        replies = [c.ask("GET", "/v1/sessions/default") for _ in range(10)]
        assert [r.status for r in replies] == [200] * 10 and "RateLimit" not in replies[0].headers
        c.ask("PUT", DATA.format("default", "x"), b"x" * (1 << 20))
        for _ in range(3):
            c.ask("POST", "/v1/sessions/default/uploads", {"buffer": "y", "bytes": 100}).expect(201)
    listeners = [Feed(d) for _ in range(3)]
    assert [x.status for x in listeners] == [200] * 3
    assert metric(d.client(), "gpubufd_clients") == 0
    for x in listeners:
        x.close()


def after_a_flood(c, method, target, status, headers=None):
    """The reply to one request more than the client may have."""
    def flood():
        r = c.ask(method, target, None, headers or {})
        assert r.status in (status, 429), r
        return r.status == 429 and r
    return until("the burst is used", flood)


@pytest.mark.parametrize("method,target,status,headers", [
    ("GET", "/nothing", 404, {}), ("GET", "/v1/nothing/at/all", 404, {}), ("DELETE", "/v1", 405, {}),
    ("BREW", "/v1", 405, {}), ("OPTIONS", "/v1", 204, {}), ("GET", "/v1?a=1&a=2", 400, {}),
    ("GET", "/v1", 421, {"Host": "elsewhere.example"}), ("GET", "/v1", 431, {"X-Long": "x" * 9000}),
])
def test_what_is_refused_counts_for_its_address(start, method, target, status, headers):
    d = start("--bound-local", "--rate-requests", "1", "--burst-requests", "3")
    c, other = From(d, HERE), From(d, THERE)
    last = after_a_flood(c, method, target, status, headers)
    refused(last, "requests")
    assert "Allow" not in last.headers
    other.ask(method, target, None, headers).expect(status)


def test_what_libmicrohttpd_refuses_counts_too(start):
    d = start("--bound-local", "--rate-requests", "1", "--burst-requests", "3")

    def ask(source):
        with RawFrom(d.tcp, source) as r:
            return r.send(b"GET /v1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1x\r\n\r\n").reply().status

    statuses = [ask(HERE) for _ in range(10)]
    assert set(statuses) == {400, 429}
    assert ask(THERE) == 400


def test_users_of_the_socket(start):
    d = start("--bound-local", "--rate-requests", "1", "--burst-requests", "3")
    first, second = d.client(unix=True), d.client(unix=True)
    until("one user has used its burst", lambda: first.ask("GET", "/v1").status == 429)
    refused(until("on each of its connections", lambda: (r := second.ask("GET", "/v1")).status == 429 and r),
            "requests")
    From(d, HERE).ask("GET", "/v1").expect(200)


# --- bytes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [3 << 20, 100 << 10])
def test_bytes_of_one_address(start, body):
    """Whole bodies arrive, however long their connections pause; small ones are paid for later."""
    d = start("--bound-local", *NO_RATE, "--rate-bytes", "4M", "--burst-bytes", "1M", "--slots-bytes", "8M",
              "--slot-bytes", "256K")
    c, other = From(d, HERE), From(d, THERE)
    data = bytes(range(256)) * (body // 256)
    rounds = (3 << 20) // body
    for i in range(rounds):
        r = until("taken", lambda: (r := c.ask("PUT", DATA.format("default", "x"), data)).status != 429 and r,
                  every_s=0.1)
        assert r.status == (201 if i == 0 else 200), r
    paused = limited(other, "bytes")
    assert paused > 0 or body < 1 << 20
    got = [until("sent", lambda: (r := c.ask("GET", DATA.format("default", "x"))).status == 200 and r, every_s=0.1)
           for _ in range(rounds)]
    assert all(r.body == data for r in got)
    before = limited(other, "bytes")
    assert before > paused or body < 1 << 20
    other.ask("PUT", DATA.format("default", "y"), data[:1 << 19]).expect(201)
    assert other.ask("GET", DATA.format("default", "y")).body == data[:1 << 19]
    assert limited(other, "bytes") == before  # the other one paused for nothing
    assert metric(other, "gpubufd_clients_pausing") == 0


def test_many_small_bodies_are_refused_at_their_head(start):
    d = start("--bound-local", *NO_RATE, "--rate-bytes", "64K", "--burst-bytes", "64K")
    c, targets = From(d, HERE), itertools.cycle(DATA.format("default", name) for name in "xy")
    for name in "xy":  # a request unlike the one before stays with libmicrohttpd, where nothing pauses
        admin(d).ask("PUT", DATA.format("default", name), b"x" * 20000).expect(201)
    r = until("refused", lambda: (r := c.ask("GET", next(targets))).status == 429 and r)
    assert refused(r, "bytes")["permitted"] == 64 << 10
    assert 'q=65536;w=1;qu="content-bytes"' in r.headers["RateLimit-Policy"]


def test_connections_of_one_client_share_its_bytes(start):
    """None of them starves, and a stopped daemon does not wait for them."""
    d = start("--bound-local", *NO_RATE, "--rate-bytes", "4M", "--slots-bytes", "8M", "--slot-bytes", "256K",
              "--stop-timeout", "1")
    other = From(d, THERE)
    clients = [From(d, HERE) for _ in range(4)]
    for i, c in enumerate(clients):
        c.http.connect()
        c.http.putrequest("PUT", DATA.format("default", f"b{i}"))
        c.http.putheader("Content-Length", str(64 << 20))
        c.http.endheaders()
        c.http.sock.setblocking(False)
    piece = b"x" * (1 << 20)

    def push():
        for c in clients:
            try:
                c.http.sock.send(piece)
            except (BlockingIOError, socket.timeout, OSError):
                pass
        return metric(other, "gpubufd_clients_pausing") >= 3

    until("several pause", push)
    other.ask("PUT", DATA.format("default", "mine"), b"1").expect(201)
    assert other.ask("GET", DATA.format("default", "mine")).body == b"1"
    clients.pop().http.sock.close()  # one that is gone while it pauses
    until("it has gone", lambda: other.ask("GET", "/v1/stats").json()["running"]["uploads"] <= 3)


def uploading(wire, name):
    """Sends a body that the daemon does not take within the test."""
    try:
        wire.put(DATA.format("default", name), 128 << 20)
        for _ in range(512):
            wire.send(b"x" * (1 << 18))
    except (OSError, ssl.SSLError):  # it was shut
        pass


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
def test_a_modest_client_beside_a_greedy_one(start, secured):
    listen = secure.options() if secured else ("--listen", "127.0.0.1:0")
    d = start("--bound-local", *NO_RATE, "--rate-bytes", "4M", "--slots-bytes", "8M", "--slot-bytes", "256K",
              "--stop-timeout", "1", listen=listen)
    wire = (lambda source: shake(d, source)) if secured else (lambda source: RawFrom(d.tcp, source))
    greedy = [wire(HERE) for _ in range(4)]
    threads = [threading.Thread(target=uploading, args=(w, f"g{i}"), daemon=True) for i, w in enumerate(greedy)]
    for t in threads:
        t.start()
    try:
        until("all pause", lambda: metric(admin(d), "gpubufd_clients_pausing") >= 3)
        with wire(THERE) as modest:
            target, data = DATA.format("default", "mine"), b"y" * 4096
            statuses = []
            for _ in range(50):
                statuses.append(modest.put(target, len(data)).send(data).reply().status)
                got = modest.request("GET", target).reply()
                assert got.body == data
                statuses += [got.status, modest.request("GET", "/v1/sessions/default").reply().status]
        assert set(statuses[1:]) == {200} and statuses[0] == 201
        until("the greedy one pauses still", lambda: metric(admin(d), "gpubufd_clients_pausing") >= 3)
    finally:
        for w in greedy:
            with contextlib.suppress(OSError):
                (w.sock.plain if secured else w.sock).shutdown(socket.SHUT_RDWR)
        for t in threads:
            t.join(PATIENCE_S)
        for w in greedy:
            w.close()


# --- what is open -----------------------------------------------------------------------------------------------------


def begin(c, name="x"):
    return c.ask("POST", "/v1/sessions/default/uploads", {"buffer": name, "bytes": 4})


def test_open_uploads(start):
    d = start("--bound-local", *NO_RATE, "--max-uploads-per-client", "2")
    c, other = From(d, HERE), From(d, THERE)
    first = begin(c).expect(201)
    resumed = c.ask("POST", DATA.format("default", "r"), b"ab", {"Upload-Complete": "?0", "Upload-Length": "4"})
    resumed.expect(201)
    assert refused(begin(c), "uploads")["permitted"] == 2
    refused(c.ask("POST", DATA.format("default", "q"), b"ab", {"Upload-Complete": "?0", "Upload-Length": "4"}),
            "uploads")
    begin(other).expect(201)
    c.ask("DELETE", first.headers["Location"]).expect(204)
    second = begin(c).expect(201).headers["Location"]
    refused(begin(c), "uploads")
    c.ask("PUT", second + "/parts?offset=0", b"abcd").expect(200)
    c.ask("POST", second + "/complete").expect(201)  # it is remembered, and no longer open
    begin(c, "z").expect(201)
    begin(c, "no name").problem(400, "invalid_name")  # what is not begun does not count
    c.ask("DELETE", resumed.headers["Location"]).expect(204)
    begin(c).expect(201)
    refused(begin(c), "uploads")


def test_uploads_end_with_their_session(start):
    d = start("--bound-local", *NO_RATE, "--max-uploads-per-client", "1")
    c = From(d, HERE)
    c.ask("POST", "/v1/sessions", {"name": "s"}).expect(201)
    c.ask("POST", "/v1/sessions/s/uploads", {"buffer": "x", "bytes": 4}).expect(201)
    refused(begin(c), "uploads")
    c.ask("DELETE", "/v1/sessions/s").expect(204)
    until("its uploads have ended", lambda: begin(c).status == 201)


def poll(d, source, tag):
    c = From(d, source)
    c.http.connect()
    c.http.request("GET", "/v1/stats", None, {"If-None-Match": tag, "Prefer": "wait=60"})
    return c


def test_waiting_requests(start):
    d = start("--bound-local", *NO_RATE, "--max-waits-per-client", "2")
    tag = admin(d).ask("GET", "/v1/stats").headers["ETag"]
    waiting = [poll(d, HERE, tag) for _ in range(2)]
    until("both wait", lambda: metric(From(d, THERE), "gpubufd_http_suspended") >= 2)
    third = From(d, HERE).ask("GET", "/v1/stats", None, {"If-None-Match": tag, "Prefer": "wait=60"})
    assert refused(third, "waits")["permitted"] == 2
    assert third.headers["RateLimit-Policy"] == '"waits";q=2;qu="concurrent-requests"'
    waiting.append(poll(d, THERE, tag))
    until("the other's too", lambda: metric(From(d, THERE), "gpubufd_http_suspended") >= 3)
    From(d, HERE).ask("GET", "/v1").expect(200)  # what does not wait is answered
    admin(d).ask("PUT", DATA.format("default", "x"), b"1").expect(201)
    assert [c.http.getresponse().status for c in waiting] == [200] * 3
    for c in waiting:
        c.close()
    tag = admin(d).ask("GET", "/v1/stats").headers["ETag"]
    waiting = [poll(d, HERE, tag) for _ in range(2)]  # they no longer count
    until("two may wait again", lambda: metric(From(d, THERE), "gpubufd_http_suspended") >= 2)
    assert limited(From(d, THERE), "waits") == 1


def listen(d, source):
    c = From(d, source).http
    c.request("GET", "/v1/feed", None, {"Accept": "text/event-stream"})
    return c, c.getresponse()


def test_listeners(start):
    d = start("--bound-local", *NO_RATE, "--max-listeners-per-client", "1")
    c, first = listen(d, HERE)
    assert first.status == 200
    assert listen(d, HERE)[1].status == 429
    other, second = listen(d, THERE)
    assert second.status == 200
    first.close()
    c.close()
    until("the place is free", lambda: listen(d, HERE)[1].status == 200)
    assert limited(From(d, THERE), "listeners") >= 1
    second.close()
    other.close()


def test_connections_of_one_address_are_told(start):
    d = start("--max-connections-per-address", "2")
    assert limited(d.client(), "connections") == 0


def test_connections_of_loopback_have_their_bound_if_it_is_asked_for(start):
    for options, wanted in ((), 200), (("--bound-local",), 429):
        d = start("--max-connections-per-address", "2", *options)
        held = [From(d, HERE) for _ in range(2)]
        for c in held:
            c.ask("GET", "/v1").expect(200)
        assert From(d, HERE).ask("GET", "/livez").status == wanted
        From(d, THERE).ask("GET", "/v1").expect(200)
        assert limited(d.client(unix=True), "connections") == (wanted == 429)


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_tokens_have_bounds_of_their_own(start, tmp_path):
    greedy, modest = (token(tmp_path, "add", name, "--scope", "write") for name in ("greedy", "modest"))
    d = start("--token-rate-requests", "1", "--token-burst-requests", "4", "--max-uploads-per-token", "1",
              state=str(tmp_path))
    here, there = From(d, HERE, greedy), From(d, THERE, greedy)
    begin(here).expect(201)
    refused(begin(there), "uploads", "token")  # from whatever address
    limit = refused(until("the burst is used", lambda: (r := there.ask("GET", "/v1")).status == 429 and r), "requests",
                    "token")
    assert limit["permitted"] == 1
    refused(until("for all of its connections", lambda: (r := here.ask("GET", "/v1")).status == 429 and r), "requests",
            "token")
    From(d, HERE, modest).ask("GET", "/v1").expect(200)
    Client(d.unix, modest).ask("GET", "/v1").expect(200)


def test_a_token_does_not_count_for_its_address(start, tmp_path):
    good = token(tmp_path, "add", "good", "--scope", "read")
    d = start("--bound-local", "--rate-requests", "1", "--burst-requests", "3", state=str(tmp_path))
    mine, none = From(d, HERE, good), From(d, HERE)
    assert [mine.ask("GET", "/v1/sessions/default").status for _ in range(10)] == [200] * 10
    assert [mine.ask("PUT", DATA.format("default", "x"), b"x").status for _ in range(10)] == [403] * 10
    refused(after_a_flood(none, "GET", "/v1/sessions/default", 401), "requests")
    mine.ask("GET", "/v1/sessions/default").expect(200)


@pytest.mark.parametrize("method,target", [("POST", "/v1/sessions"), ("PUT", DATA.format("default", "other"))])
def test_what_a_token_may_not_do_counts_for_the_token(start, tmp_path, method, target):
    reads, works = token(tmp_path, "add", "reads", "--scope", "read"), token(tmp_path, "add", "works", "--scope",
                                                                             "write", "--prefix", "mine-")
    d = start("--bound-local", "--token-rate-requests", "1", "--token-burst-requests", "3", state=str(tmp_path))
    refused(after_a_flood(From(d, HERE, reads), method, target, 403), "requests", "token")
    other = From(d, HERE, works)
    other.ask("GET", DATA.format("default", "mine-x")).expect(404)
    refused(after_a_flood(other, method, target, 403), "requests", "token")


def test_guessing_is_slowed(start, tmp_path):
    good = token(tmp_path, "add", "good", "--scope", "read")
    d = start("--bound-local", "--auth-failures", "3", state=str(tmp_path))
    guess, mine = From(d, HERE, "gpb_" + "0" * 64), From(d, HERE, good)
    assert [guess.ask("GET", "/v1").status for _ in range(3)] == [401] * 3
    first = guess.ask("GET", "/v1")
    limit = refused(first, "failures")
    assert (limit["permitted"], first.headers["Retry-After"]) == (3, "1") and "WWW-Authenticate" not in first.headers
    mine.ask("GET", "/v1").expect(200)  # a valid token of the same address
    assert From(d, THERE, "gpb_" + "1" * 64).ask("GET", "/v1").status == 401
    assert From(d, HERE).ask("GET", "/v1").status == 401  # without a token nothing is guessed
    until("the next time is longer", lambda: guess.ask("GET", "/v1").headers["Retry-After"] == "2", every_s=0.2)
    assert limited(From(d, THERE, good), "failures") >= 2


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option,value,said", [
    ("--trusted-proxy", "example.com", "an address, or a network"),
    ("--trusted-proxy", "192.0.2.0/33", "an address, or a network"),
    ("--proxy-protocol", "::1/129", "an address, or a network"),
    ("--rate-requests", "unlimited", "a whole number"),
    ("--rate-bytes", "fast", "a whole number"),
])
def test_options_that_are_wrong(backend, tmp_path, option, value, said):
    out = subprocess.run([binary(), "--state-dir", str(tmp_path), "--listen", "127.0.0.1:0", option, value],
                         capture_output=True, text=True, timeout=90)
    assert out.returncode == 64 and said in out.stderr and option in out.stderr, out.stderr


def test_a_refusal_does_not_wait_for_its_bytes(start):
    """Also where it goes out on a transfer loop, because of the body that follows."""
    d = start("--bound-local", *NO_RATE, "--rate-bytes", "1")
    c = From(d, HERE)
    until("the client is in debt", lambda: c.ask("GET", "/v1").status == 429)
    for headers in ({"Content-Length": str(1 << 20)}, {"Transfer-Encoding": "chunked"}):
        body = b"x" * (1 << 20) if "Content-Length" in headers else iter([b"x" * (1 << 20)])
        refused(From(d, HERE).ask("PUT", DATA.format("default", "x"), body), "bytes")


# --- handshakes -------------------------------------------------------------------------------------------------------

SOME = ("--rate-handshakes", "1")  # and ten at once


def shake(d, source, header=b""):
    """A connection over TLS, or None if the daemon closes it before its handshake."""
    r = RawFrom(secured_address(d), source)
    try:
        r.sock.sendall(header)
        r.sock = Secured(r.sock, secure.authority().context())
        return r
    except (OSError, ssl.SSLError):
        r.sock.close()
        return None


def shakes(d, source, count, header=b""):
    made = [shake(d, source, header) for _ in range(count)]
    for r in filter(None, made):
        assert r.request("GET", "/livez").reply().status == 200
        r.close()
    return sum(r is not None for r in made)


@pytest.fixture
def tls(start):
    return lambda *options: start(*SOME, *options, listen=(*secure.options(), "--listen", "127.0.0.1:0"))


def test_handshakes_of_one_address(tls):
    d = tls("--bound-local")
    kept = shake(d, HERE)
    until("no more are taken", lambda: shakes(d, HERE, 1) == 0)
    assert kept.request("GET", "/livez").reply().status == 200
    kept.close()
    assert shakes(d, THERE, 5) == 5
    plain = From(d, HERE)
    assert [plain.ask("GET", "/livez").status for _ in range(20)] == [200] * 20  # no handshake, no bound
    assert limited(admin(d), "handshakes") >= 1
    until("and again after a rest", lambda: shakes(d, HERE, 1) == 1, every_s=0.2)


def test_handshakes_of_this_machine_have_no_bound_unasked(tls):
    d = tls()
    assert shakes(d, HERE, 30) == 30
    assert limited(admin(d), "handshakes") == 0


def test_handshakes_count_for_the_client_of_a_proxy(tls):
    d = tls("--proxy-protocol", HERE, "--trusted-proxy", "192.0.2.0/24")
    until("no more are taken", lambda: shakes(d, HERE, 1, proxy_1("198.51.100.1")) == 0)
    assert shakes(d, HERE, 5, proxy_2("198.51.100.2")) == 5
    assert shakes(d, HERE, 30, proxy_1("192.0.2.9")) == 30  # a proxy itself
