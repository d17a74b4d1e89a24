"""Loads that bring down servers of this kind: many, slow, silent and closing connections."""
import os
import random
import selectors

import pytest

from harness import DATA, SLOT, SMALL_SLOTS, Client, Raw, until
from values import payload

STATS = b"GET /v1/stats HTTP/1.1\r\nHost: localhost\r\n\r\n"


def collect(raws, n_each=1):
    """Waits until every socket has given n_each answers; returns the statuses."""
    statuses = []
    with selectors.DefaultSelector() as waiting:
        for r in raws:
            waiting.register(r.sock, selectors.EVENT_READ, r)
        while waiting.get_map():
            ready = waiting.select(30)
            assert ready, f"{len(waiting.get_map())} of {len(raws)} connections were never answered"
            for key, _ in ready:
                statuses += [key.data.reply().status for _ in range(n_each)]
                waiting.unregister(key.data.sock)
    return statuses


@pytest.mark.parametrize("count", [127, 128, 129, 256, 512])
def test_many_connections_ready_at_once(daemon, count):
    """libmicrohttpd's own loop does not answer 128 requests at once (doc/design/data-path.md, trap 1)."""
    os.kill(daemon.process.pid, 19)  # all requests have arrived when the loops poll next
    try:
        raws = [daemon.raw().send(STATS) for _ in range(count)]
    finally:
        os.kill(daemon.process.pid, 18)
    assert collect(raws) == [200] * count
    for r in raws:
        r.send(STATS)
    assert collect(raws) == [200] * count
    for r in raws:
        r.close()


def test_pipelined_requests_are_answered_in_order(daemon, session):
    for i in range(20):
        daemon.put(f"x{i}", bytes([i]) * 10, session).expect(201)
    with daemon.raw() as r:
        r.send(b"".join(f"GET {DATA.format(session, f'x{i}')} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
                        for i in range(20)))
        assert [r.reply().body for _ in range(20)] == [bytes([i]) * 10 for i in range(20)]
        r.request("PUT", DATA.format(session, "y"), ["Content-Length: 3"], b"abc" + STATS)
        assert (r.reply().status, r.reply().status) == (201, 200)


def test_a_request_behind_a_large_download(daemon, session):
    data = payload(20 * SLOT)
    daemon.put("x", data, session).expect(201)
    with daemon.raw() as r:
        r.request("GET", DATA.format(session, "x"), body=STATS)
        assert r.reply().body == data
        second = r.reply()
        assert second is None or second.status == 200


def test_a_request_behind_a_large_upload(daemon, session):
    data = payload(20 * SLOT)
    for expect in (False, True):
        with daemon.raw() as r:
            r.put(DATA.format(session, "x"), len(data), expect=expect).send(data + STATS)
            assert r.reply().status in (200, 201)
            second = r.reply()
            assert second is None or second.status == 200
        assert daemon.data("x", session).body == data


HALF = b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{"


def test_connections_up_to_the_limit(start):
    """Of 40 connections, eight are reserved for the UNIX socket; connections with a running request stay."""
    d = start("--max-connections", "40")
    local = Client(d.unix)
    local.ask("GET", "/livez").expect(200)
    busy = [d.raw().send(HALF) for _ in range(32)]
    until("all are there", lambda: local.ask("GET", "/v1/stats").json()["http"]["connections"] >= 33)
    with d.raw() as r:
        reply = r.send(STATS).reply()
        assert (reply.status == 503 and reply.json()["code"] == "saturated" and "8 are kept for the UNIX socket"
                in reply.json()["detail"])
        assert int(reply.headers["Retry-After"]) >= 1
    others = [Client(d.unix) for _ in range(7)]
    assert [c.ask("GET", "/livez").status for c in others] == [200] * 7
    for r in busy:
        r.send(b"}")
    assert collect(busy) == [400] * 32
    busy.pop().close()
    until("a place is free", lambda: d.ask("GET", "/livez").status == 200)
    for c in busy + others + [local]:
        c.close()


def test_silent_connections_lock_nobody_out(start):
    """The maximum of silent connections: a client with a request replaces one of them."""
    d = start("--max-connections", "40")
    silent = [d.raw() for _ in range(32)]
    client = Client(d.unix)
    until("all are there", lambda: client.ask("GET", "/v1/stats").json()["http"]["connections"] >= 33)
    with until("one gives way", lambda: answered(d)) as r:
        lines = d.ask("GET", "/metrics").body.decode().splitlines()
        assert any(line.startswith("gpubufd_http_displaced_total ") and line.split()[1] != "0" for line in lines), lines
        assert not any(line.startswith("gpubufd_http_refused_by_address_total ") for line in lines)
        assert r.send(STATS).reply().status == 200
    for c in silent + [client]:
        c.close()


def answered(d):
    """A connection, or None if it was refused."""
    r = d.raw().send(STATS)
    if r.reply().status == 200:
        return r
    r.close()
    return None


@pytest.fixture(scope="module")
def hasty(backend):
    """A daemon with short timeouts."""
    from harness import Daemon

    d = Daemon(backend, *SMALL_SLOTS, "--idle-timeout", "1", "--stall-timeout", "1", "--min-rate", "1M")
    yield d
    d.stop()


def test_who_says_nothing_is_dropped(hasty):
    """All at once, because each takes a second."""
    silent = [hasty.raw() for _ in range(3)]
    unfinished = [hasty.raw().send(b"GET /v1 HTTP/1.1\r\nHost: localhost\r\nX-Endless: ") for _ in range(3)]
    kept = [hasty.raw().send(STATS) for _ in range(3)]
    assert collect(kept) == [200] * 3
    until_closed = {r.sock: r for r in silent + unfinished + kept}
    drip = until_closed[unfinished[0].sock]
    for sock, r in until_closed.items():
        sock.settimeout(0.1 if r is drip else 30)
    ended = False
    while not ended:  # a header that grows and never ends is idle as well
        try:
            drip.send(b"a")
            ended = not drip._more() or drip.buffer.startswith(b"HTTP/1.1 4")
        except TimeoutError:
            continue
        except OSError:
            ended = True
    for r in silent + unfinished[1:] + kept:
        assert r.closes()


def byte_by_byte(r, data):
    """Sends slowly until an answer or the end comes."""
    r.sock.settimeout(0.2)
    for i in range(len(data)):
        try:
            r.send(data[i:i + 1])
            r._more()
        except TimeoutError:
            continue
        except OSError:
            pass
        break
    r.sock.settimeout(30)
    return r.reply()


@pytest.mark.parametrize("size", [100000, 8 * SLOT])
@pytest.mark.parametrize("expect", [True, False])
def test_a_body_at_a_few_bytes_a_second(hasty, size, expect):
    r = hasty.raw().put(DATA.format("default", "slow"), size, expect=expect)
    if expect:
        assert r.head()[0] == 100
    reply = byte_by_byte(r, payload(size))
    reply.problem(408, "request_timeout")
    hasty.ask("GET", "/v1/sessions/default/buffers/slow").problem(404, "buffer_not_found")
    hasty.settled()


def test_a_body_that_stops(hasty):
    raws = [hasty.raw().put(DATA.format("default", "stopped"), n, expect=e) for n in (1000, 8 * SLOT) for e in (0, 1)]
    for r in raws:
        r.send(b"abc")
    for r in raws:
        assert r.reply().problem(408, "request_timeout")
        assert r.closes()
    hasty.settled()


def test_a_download_that_nobody_reads(hasty):
    hasty.put("large", bytes(80 * SLOT)).expect(201)
    r = Raw(hasty.tcp, receive_bytes=4096)
    r.request("GET", DATA.format("default", "large"))
    assert r.head()[0] == 200
    hasty.settled()
    assert len(r.rest(80 * SLOT)) < 80 * SLOT


@pytest.mark.parametrize("expect", [True, False])
def test_stalled_uploads_hold_up_nobody(daemon, session, expect):
    """Twice as many as there are slots."""
    raws = []
    for i in range(64):
        r = daemon.raw().put(DATA.format(session, f"s{i}") + "?dtype=uint8", 4 * SLOT, expect=expect)
        if expect:
            assert r.head()[0] == 100
        raws.append(r.send(payload(100 + SLOT * (i % 3))))
    until("they run", lambda: daemon.stats()["running"]["uploads"] == 64)
    data = payload(6 * SLOT)
    for name in ("a", "b"):
        daemon.put(name, data, session).expect(201)
        assert daemon.data(name, session).body == data
    daemon.ask("POST", f"/v1/sessions/{session}/buffers", {"name": "c", "bytes": 10}).expect(201)
    for i, r in enumerate(raws):
        if i % 2:
            r.close()
        else:
            r.send(bytes(4 * SLOT - 100 - SLOT * (i % 3)))
            assert r.reply().status == 201
            r.close()


def test_clients_that_go_away_at_random_moments(daemon, session):
    data = payload(8 * SLOT, 9)
    daemon.put("old", data, session).expect(201)
    before = daemon.contents(), daemon.get(f"/v1/sessions/{session}/pools/default")["used_bytes"]
    rng = random.Random(20)
    for i in range(200):
        size = rng.choice([10, 5000, SLOT, 8 * SLOT])
        sent = rng.randrange(size + 1)
        r = daemon.raw()
        kind = rng.randrange(4)
        if kind == 0:
            r.request("GET", DATA.format(session, "old"))
            r.rest(rng.randrange(len(data) // 2))
        elif kind == 1:
            r.send(b"PUT " + DATA.format(session, "new").encode()[:rng.randrange(40)])
        else:
            r.put(DATA.format(session, "old"), size + 1, expect=kind == 2).send(payload(size)[:sent])
        r.reset() if rng.randrange(2) else r.close()
    daemon.settled()
    after = until("all is given back", lambda: (lambda c: c if c == before else None)(
        (daemon.contents(), daemon.get(f"/v1/sessions/{session}/pools/default")["used_bytes"])))
    assert after == before and daemon.data("old", session).body == data


def test_more_transfers_than_slots(start):
    d = start("--slots-bytes", "1M", "--slot-bytes", "256K")
    data = [payload(3 * SLOT + i, i) for i in range(24)]
    raws = [d.raw().put(DATA.format("default", f"x{i}"), len(b), expect=i % 2) for i, b in enumerate(data)]
    for cut in range(0, 4 * SLOT, 100000):
        for r, b in zip(raws, data):
            r.send(b[cut:cut + 100000])
    assert [r.reply().status for r in raws] == [201] * 24
    for r in raws:
        r.close()
    reading = [d.raw(receive_bytes=4096).request("GET", DATA.format("default", f"x{i}")) for i in range(24)]
    for r, b in reversed(list(zip(reading, data))):
        assert r.reply().body == b
        r.close()
    d.settled()
