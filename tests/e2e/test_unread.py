"""Replies that clients read slowly or not at all; and lists, whose pages are bounded."""
import contextlib
import socket
import time

import pytest

import secure
from conform import Session
from harness import SMALL_SLOTS, until
from test_numbers import seen

PAGE = 1 << 20  # the byte limit of a page
RECORD = 8192  # the size limit of a record
LABEL = "x" * 1900
LONG = "/v1/sessions/default/buffers?limit=1000"
QUICK = (*SMALL_SLOTS, "--stall-timeout", "1", "--idle-timeout", "3600")
FAR = 1448  # bytes of a segment, as over Ethernet: the kernel then buffers much less of a reply than over the loopback


def label(what, n):
    return {"name": f"{what}{n:04}", "labels": {"long": LABEL}}


def crowd(daemon):
    """Buffers whose list is twice as long as a page."""
    s = Session(daemon)
    for at in range(0, 1000, 250):
        batch = [{"op": "create", "buffer": x["name"], "bytes": 8, "labels": x["labels"]}
                 for x in (label("b", n) for n in range(at, at + 250))]
        assert s.post("batch", {"operations": batch})["failed"] == 0
    return s


@contextlib.contextmanager
def far(daemon, unix, window=None):
    """A hand-written connection: harness.Raw cannot set options before connect."""
    with socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as c:
        if not unix:
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, FAR)
        if window and not unix:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        c.settimeout(60)
        c.connect(daemon.unix if unix else daemon.tcp)
        yield c if unix or not secure.EVERYWHERE else secure.wrap(c)


def ask(c, target, times=1):
    c.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * times)


def number(daemon, name):
    return seen(daemon)[("gpubufd_http_" + name, frozenset())]


def waiting(daemon):
    return number(daemon, "reply_memory_bytes")


def kept(daemon, c):
    """The daemon still has the connection; the second one is that of the metrics request."""
    return number(daemon, "connections") > 1


@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
@pytest.mark.parametrize("times", [1, 8], ids=["one", "pipelined"])
def test_a_client_that_never_reads_is_gone(start, unix, times):
    d = start(*QUICK, "--min-rate", "1")  # a megabyte at one byte a second: twelve days
    crowd(d).client.close()
    with far(d, unix, window=4096) as c:
        ask(c, LONG, times)
        if not unix or times > 1:  # else the socket would buffer the whole reply
            until("the reply waits", lambda: waiting(d) > 0)
        until("its memory is given back and the connection has ended", lambda: waiting(d) == 0 and not kept(d, c))
    assert d.get(LONG)["next_cursor"]


@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_a_slow_client_gets_all_of_it(start, unix):
    """Reads for some stall timeouts, far above the rate, and the connection continues."""
    d = start(*QUICK, "--min-rate", "10K")
    whole = d.client().ask("GET", LONG) if crowd(d) else None
    with far(d, unix, window=65536) as c:
        ask(c, LONG, 4)  # the others are not lost
        got = b""
        while got.count(b"HTTP/1.1 200") < 4:
            data = c.recv(32768)
            assert data, f"dropped after {len(got)} bytes"
            got += data
            time.sleep(0.05)  # the rate under test
        head, body = got.split(b"\r\n\r\n", 1)
        assert body[:len(whole.body)] == whole.body and b"connection: close" not in head.lower()


def test_one_below_the_rate_is_dropped(start):
    """At this rate the whole megabyte would have arrived in the permitted time."""
    d = start(*QUICK, "--min-rate", "500K")
    crowd(d).client.close()
    with far(d, False, window=65536) as c:
        ask(c, LONG, 8)
        got = 0
        with contextlib.suppress(ConnectionResetError):
            while data := c.recv(16384):
                got += len(data)
                assert got < 8 * PAGE, "it got all"
                time.sleep(0.05)
    until("its memory is given back", lambda: waiting(d) == 0)


@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_replies_have_a_budget(start, unix):
    d = start(*SMALL_SLOTS, "--max-reply-memory", "1M")
    s = crowd(d)
    with far(d, unix, window=4096) as c:
        ask(c, LONG, 8)
        until("the reply waits and no other fits", lambda: s.ask("GET", LONG).status == 503)
        refused = number(d, "replies_refused_total")
        p = s.ask("GET", LONG).problem(503, "saturated")
        assert "--max-reply-memory" in p["detail"] and p["retryable"]
        r = s.ask("POST", "batch", {"operations": [{"op": "delete", "buffer": "b0000"}]})
        assert "nothing was done" in r.problem(503, "saturated")["detail"] and r.headers["Retry-After"] == "1"
        s.meta("b0000")  # the connection is open, and small replies pass
        s.buffer("more", bytes=8)
        until("it was counted", lambda: number(d, "replies_refused_total") >= refused + 2)
    until("the client's end gives it back", lambda: waiting(d) == 0)
    assert s.get(LONG)["next_cursor"]
    s.post("batch", {"operations": [{"op": "delete", "buffer": "b0000"}]})


def test_the_metrics_are_read_while_long_replies_are_not(start):
    d = start(*SMALL_SLOTS, "--max-reply-memory", "1M")
    s = crowd(d)
    for n in range(60):
        s.post("/v1/sessions", {"name": f"m{n}"}, 201)
        s.post(f"/v1/sessions/m{n}/pools", {"name": "p"}, 201)
    until("the metrics are a long reply", lambda: len(d.ask("GET", "/metrics").expect(200).body) > 1 << 16)
    with far(d, False, window=4096) as c:
        ask(c, LONG, 8)
        until("the reply waits and no other fits", lambda: s.ask("GET", LONG).status == 503)
        d.ask("GET", "/metrics").expect(200)


def pages(s, target, limit=1000):
    """Reads all items by cursors; no page exceeds the limit."""
    items, cursor, count = [], "", 0
    while cursor is not None:
        r = s.ask("GET", f"{target}limit={limit}" + (f"&cursor={cursor}" if cursor else "")).expect(200)
        assert len(r.body) < PAGE + RECORD
        page = r.json()
        assert page["items"] or not items
        items, cursor, count = items + page["items"], page["next_cursor"], count + 1
    return items, count


def test_lists_end_at_a_size(start):
    d = start(*SMALL_SLOTS)
    s = crowd(d)
    for n in range(600):
        s.post("/v1/sessions", label("s", n), 201)
    for n in range(20):
        s.post("streams", {"name": f"st{n}"}, 201)
    items, count = pages(s, "buffers?")
    assert [x["name"] for x in items] == [f"b{n:04}" for n in range(1000)] and count > 2
    items, count = pages(s, "/v1/sessions?")
    assert [x["name"] for x in items] == ["default"] + [f"s{n:04}" for n in range(600)] and count > 1
    assert len(pages(s, "streams?")[0]) == 21 and pages(s, "streams?")[1] == 1
    assert len(pages(s, "buffers?", limit=10)[0]) == 1000


def test_the_list_of_operations_has_no_results(start):
    d = start(*SMALL_SLOTS)
    s = crowd(d)
    names = [f"b{n:04}" for n in range(1000)]
    wanted = {"operations": [{"op": "fill", "buffer": x, "pattern": 1} for x in names]}
    done = [s.ask("POST", "batch", wanted, {"Prefer": "respond-async"}).expect(202).json() for _ in range(8)]
    failed = s.ask("POST", "buffers/b0000/copy", {"from": "none"}, {"Prefer": "respond-async"})
    for op in done:
        whole = s.ask("GET", "/v1/operations/" + op["id"], None, {"Prefer": "wait=60"}).expect(200)
        assert whole.json()["state"] == "done" and len(whole.json()["result"]["results"]) == 1000
    assert failed.status in (202, 404)
    r = s.ask("GET", "/v1/operations?limit=1000").expect(200)
    assert len(r.body) < len(whole.body) / 10
    listed = r.json()["items"]
    assert [x["id"] for x in listed][:8] == [x["id"] for x in done]
    assert not any("result" in x or "problem" in x for x in listed)
