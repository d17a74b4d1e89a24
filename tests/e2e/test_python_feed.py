"""Client.feed: events as they happen, across lost connections."""
import gc
import json
import os
import socket
import threading
import time

import pytest
from pyclient import client_of, gpubuf

from harness import PATIENCE_S, token, until

GENTLE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def types(events):
    return [e["type"] for e in events]


def take(feed, count):
    return [next(feed) for _ in range(count)]


@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_it_hears(start, unix):
    with client_of(start(), unix=unix) as c:
        for name in ("old", "older"):
            c.put(name, b"1")
        with c.feed() as feed:
            c.put("x", b"12345", kind="shared")  # by the client's own connection, before an event was requested
            c.delete("x")
            made, deleted = take(feed, 2)
            assert (made["type"], made["session"], made["buffer"], made["bytes"], made["device"]["index"]) == (
                "buffer.created", "default", "x", 5, 0)
            assert deleted["type"] == "buffer.deleted" and feed.last_id == deleted["id"] > made["id"]
        with pytest.raises(StopIteration):
            next(feed)
        page = c.request("GET", "/v1/feed", query={"after": 0}, headers={"Accept": "application/json"})
        with c.feed(after=0) as feed:
            assert take(feed, len(page["items"])) == page["items"] and page["items"][-1] == deleted
        with c.feed(after=made["id"]) as feed:
            assert next(feed) == deleted
        for kinds in ("buffer.deleted,daemon.", ["buffer.deleted", "daemon."]):
            with c.feed(after=0, type=kinds) as feed:
                assert types(take(feed, 2)) == ["daemon.started", "buffer.deleted"]


def test_what_is_refused(start, tmp_path):
    state = str(tmp_path)
    secret = token(state, "add", "all", "--scope", "admin")
    d = start(state=state)
    with client_of(d, token=secret) as c:
        before = descriptors()
        with pytest.raises(gpubuf.InvalidArgument, match="no type of event"):
            c.feed(type="nothing")
        for after, error in ((-1, ValueError), ("1", TypeError), (True, TypeError)):
            with pytest.raises(error):
                c.feed(after=after)
        assert descriptors() == before
        feed = c.feed(after=0)
        assert next(feed)["type"] == "daemon.started"
    with pytest.raises(StopIteration):  # its client is closed
        next(feed)
    assert descriptors() == before
    with pytest.raises(gpubuf.Closed):
        c.feed()
    with client_of(d) as c, pytest.raises(gpubuf.Unauthenticated):
        c.feed()
    d.stop()
    with client_of(d) as c, pytest.raises(gpubuf.Unreachable):
        c.feed()


def test_it_goes_on_across_a_restart(start, tmp_path):
    d = start(state=str(tmp_path))
    with gpubuf.Client(socket=d.unix) as c, c.feed(after=0, type=("daemon.", "buffer.")) as feed:
        assert next(feed)["type"] == "daemon.started"
        c.put("x", b"1")
        assert next(feed)["buffer"] == "x"
        d.stop()
        assert next(feed)["type"] == "daemon.stopping"
        d = start(state=str(tmp_path))
        c.put("y", b"1")
        assert types(take(feed, 2)) == ["daemon.started", "buffer.lost"] and next(feed)["buffer"] == "y"


def test_patience(start):
    d = start()
    with client_of(d) as c, c.feed(after=0, patience=0.2) as feed:
        assert next(feed)["type"] == "daemon.started"
        d.stop()
        began = time.monotonic()
        with pytest.raises(gpubuf.Unreachable):
            for _ in feed:
                pass
        assert 0.2 <= time.monotonic() - began < PATIENCE_S
        with pytest.raises(gpubuf.Unreachable):  # the feed was not closed: it can be read again
            next(feed)


def test_a_token_that_is_taken_away_ends_it(start, tmp_path):
    state = str(tmp_path)
    secret = token(state, "add", "all", "--scope", "admin")
    token(state, "add", "other", "--scope", "admin")
    d = start(state=state)
    with client_of(d, token=secret) as c, c.feed(after=0) as feed:
        assert next(feed)["type"] == "daemon.started"
        token(state, "revoke", "all")
        with pytest.raises(gpubuf.Unauthenticated):
            for _ in feed:
                pass
        with pytest.raises(StopIteration):
            next(feed)


@pytest.mark.parametrize("of", ["feed", "client"])
def test_another_thread_ends_it(daemon, of):
    before, threads = descriptors(), threading.active_count()
    c = client_of(daemon)
    feed = c.feed(type="daemon.")
    heard = []
    reader = threading.Thread(target=lambda: heard.extend(feed))
    reader.start()
    time.sleep(0.1)  # the thread waits by now, or will find the feed closed
    (feed if of == "feed" else c).close()
    reader.join(10)  # not only at the daemon's next heartbeat, after 15 s
    assert not reader.is_alive() and heard == []
    c.close()
    assert (descriptors(), threading.active_count()) == (before, threads)


def test_who_forgets_it_leaves_nothing(daemon):
    with client_of(daemon) as c:
        c.about()
        before = descriptors()
        for event in c.feed(after=0):
            assert event["id"]
            break
        assert descriptors() == before
        made = []
        t = threading.Thread(target=lambda: made.append(c.feed(after=0)))  # the thread ends before the feed is read
        t.start()
        t.join(PATIENCE_S)
        assert next(made[0])["type"] == "daemon.started"
        made.clear()
        assert descriptors() == before


# --- connections that end at any byte ---------------------------------------------------------------------------------


class Teller:
    """Sends the next answer on each connection and closes it; records the requests."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.server.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while self.answers:
            with self.server.accept()[0] as s:
                lines = s.recv(65536).decode().split("\r\n")
                self.asked.append((lines[0].split()[1], next((x[15:] for x in lines if x.startswith("Last-Event-ID: ")),
                                                             None)))
                s.sendall(self.answers.pop(0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.close()


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(n):
    return (b"id: %d\nevent: buffer.created\ndata: %s\n\n"
            % (n, json.dumps({"id": n, "type": "buffer.created"}).encode()))


def test_every_place_to_end_at():
    """A connection that ends anywhere in its second event loses no event and repeats none."""
    first = chunk(b"retry: 1\nid: 4\n\n")
    whole = GENTLE + first + chunk(event(5)) + chunk(b": word\n\n") + chunk(event(6))
    last = GENTLE + first.replace(b"4", b"6") + chunk(event(7).replace(b"\n", b"\r\n"))
    for cut in range(len(GENTLE + first + chunk(event(5))), len(whole) + 1, 3):
        second = GENTLE + first + chunk(event(6))
        heard_6 = whole[:cut].endswith(b"\n\n") or whole[:cut].endswith(b"\n\n\r\n") or whole[:cut].endswith(b"\n\n\r")
        heard_6 = heard_6 and cut > len(whole) - 4
        with Teller(whole[:cut], *([last] if heard_6 else [second, last])) as t, gpubuf.Client(t.url) as c:
            with c.feed(type="buffer.") as feed:
                assert [e["id"] for e in take(feed, 3)] == [5, 6, 7], cut
            assert t.asked == [("/v1/feed?type=buffer.", x) for x in ([None, "6"] if heard_6 else [None, "5", "6"])]


def test_what_passes_and_what_does_not():
    begun = GENTLE + chunk(b"retry: 1\nid: 4\n\n")
    busy = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"
    for bad, error in ((b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", gpubuf.NotFound),
                       (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n",
                        gpubuf.BrokenAnswer),
                       (begun + chunk(b"data: {[}\n\n"), gpubuf.BrokenAnswer),
                       (begun + chunk(b"data: {}\n\n"), gpubuf.BrokenAnswer),
                       (begun + chunk(b"x" * (3 << 19)), gpubuf.BrokenAnswer)):
        with Teller(begun + chunk(event(5)), busy, b"", begun + chunk(event(6)), bad) as t, gpubuf.Client(t.url) as c:
            with c.feed(after=3) as feed:
                assert [e["id"] for e in take(feed, 2)] == [5, 6]
                with pytest.raises(error):
                    next(feed)
                assert list(feed) == [], "it is over"
            until("all were asked", lambda: len(t.asked) == 5)
            assert [x[1] for x in t.asked] == ["3", "5", "5", "5", "6"]
