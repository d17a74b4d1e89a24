"""A GET that waits for a change: Prefer: wait=N with If-None-Match."""
import socket
import subprocess
import time

import pytest

from harness import PATIENCE_S, binary, until


def waits(d, target, etag, seconds=30, unix=False, token=None):
    c = d.client(unix=unix)
    c.http.connect()
    c.http.request("GET", target, None, {"If-None-Match": etag, "Prefer": f"wait={seconds}",
                                         **({"Authorization": f"Bearer {token}"} if token else {})})
    return c


def answer(c):
    r = c.http.getresponse()
    body = r.read()
    return r.status, r.headers, body


@pytest.mark.parametrize("unix", [False, True])
def test_statistics(daemon, session, unix):
    first = daemon.ask("GET", "/v1/stats").expect(200)
    c = waits(daemon, "/v1/stats", first.headers["ETag"], unix=unix)
    daemon.put("x", b"1", session).expect(201)
    status, headers, _ = answer(c)
    assert status == 200 and headers["ETag"] != first.headers["ETag"]


@pytest.mark.parametrize("unix", [False, True])
@pytest.mark.parametrize("of", ["session", "buffer"])
def test_one_thing(daemon, session, of, unix):
    path = f"/v1/sessions/{session}" + ("/buffers/x" if of == "buffer" else "")
    daemon.put("x", b"1", session).expect(201)
    etag = daemon.ask("GET", path).expect(200).headers["ETag"]
    c = waits(daemon, path, etag, unix=unix)
    daemon.put("other", b"1").expect(201)  # of another session: no reason to wake
    daemon.ask("PATCH", path, {"labels": {"a": "b"}}).expect(200)
    status, headers, body = answer(c)
    assert status == 200 and headers["ETag"] != etag and b'"a":"b"' in body
    daemon.ask("DELETE", "/v1/sessions/default/buffers/other")


def test_one_thing_goes(daemon, session):
    path = f"/v1/sessions/{session}/buffers/x"
    daemon.put("x", b"1", session).expect(201)
    c = waits(daemon, path, daemon.ask("GET", path).headers["ETag"])
    daemon.ask("DELETE", path).expect(204)
    assert answer(c)[0] == 404


@pytest.mark.parametrize("unix", [False, True])
def test_the_work_behind_an_event_ends(daemon, session, unix):
    base = f"/v1/sessions/{session}"
    path = base + "/events/e"
    for what in ("streams", "events"):
        daemon.ask("POST", f"{base}/{what}", {"name": "e"}).expect(201)
    first = daemon.ask("GET", path).expect(200).headers["ETag"]
    c = waits(daemon, path, first, unix=unix)
    daemon.ask("POST", base + "/streams/e/hold", {"ms": 2000}).expect(200)
    daemon.ask("POST", path + "/record", {"stream": "e"}).expect(200)
    status, headers, body = answer(c)
    assert status == 200 and b'"recorded":true,"done":false' in body
    c = waits(daemon, path, headers["ETag"], unix=unix)
    status, headers, body = answer(c)
    assert status == 200 and b'"done":true' in body
    assert daemon.ask("GET", path, None, {"If-None-Match": headers["ETag"]}).status == 304
    assert daemon.ask("GET", path, None, {"If-Match": first}).status == 412
    c = waits(daemon, path, headers["ETag"], unix=unix)
    daemon.ask("DELETE", path).expect(204)
    assert answer(c)[0] == 404


@pytest.mark.parametrize("unix", [False, True])
@pytest.mark.parametrize("path", ["/v1/stats", "/v1/sessions/default"])
def test_who_has_gone_is_not_waited_for(start, unix, path):
    d = start()
    tag = d.ask("GET", path).expect(200).headers["ETag"]
    clients = [waits(d, path, tag, 50, unix) for _ in range(40)]
    until("all wait", lambda: d.stats()["http"]["suspended"] == 40)
    for c in clients:
        c.http.close()
    until("no request waits", lambda: d.stats()["http"]["suspended"] == 0)
    until("their connections have ended", lambda: d.stats()["http"]["connections"] <= 2)


def test_who_says_no_more_has_the_answer_at_once(start):
    """The daemon cannot distinguish a half-closed connection from a closed one."""
    d = start()
    tag = d.ask("GET", "/v1/stats").expect(200).headers["ETag"]
    with d.raw() as r:
        r.request("GET", "/v1/stats", [f"If-None-Match: {tag}", "Prefer: wait=50"])
        until("it waits", lambda: d.stats()["http"]["suspended"] == 1)
        r.sock.shutdown(socket.SHUT_WR)
        assert r.reply().status == 304


@pytest.mark.parametrize("seconds", [1, "1, wait=60"])  # of several preferences the first counts
def test_nothing_happens(daemon, session, seconds):
    path = f"/v1/sessions/{session}"
    etag = daemon.ask("GET", path).headers["ETag"]
    began = time.monotonic()
    c = waits(daemon, path, etag, seconds)
    status, headers, body = answer(c)
    assert (status, headers["ETag"], body) == (304, etag, b"") and 0.9 <= time.monotonic() - began < 30
    c.http.request("GET", path, None, {})  # the connection stays
    assert answer(c)[0] == 200


def test_the_stop_waits_for_none(start):
    d = start()  # a stop cuts what still runs after 30 s, without an answer
    etag = d.ask("GET", "/v1/sessions/default").headers["ETag"]
    held = [waits(d, "/v1/sessions/default", etag, 60, unix) for unix in (False, True)]
    assert d.get("/v1/sessions/default")
    d.process.terminate()
    assert [answer(c)[0] for c in held] == [304, 304]
    d.finished()


@pytest.mark.parametrize("unix", [False, True])
def test_a_token_is_revoked(start, tmp_path, unix):
    def token(*args):
        done = subprocess.run([binary(), "token", *args, "--state-dir", str(tmp_path)], capture_output=True, text=True,
                              check=True, timeout=PATIENCE_S)
        return (done.stdout.split() or [""])[-1]

    every, brief, kept = (token("add", name, "--scope", "write") for name in ("every", "brief", "kept"))
    d = start(state=str(tmp_path))
    d.ask("PUT", "/v1/sessions/default/buffers/x/data", b"1", token=every).expect(201)
    paths = ["/v1/sessions/default", "/v1/sessions/default/buffers/x"]
    etags = [d.ask("GET", path, token=every).expect(200).headers["ETag"] for path in paths]
    held = [waits(d, path, etag, 60, unix, brief) for path, etag in zip(paths, etags)]
    others = [waits(d, path, etag, 60, unix, kept) for path, etag in zip(paths, etags)]
    token("revoke", "brief")
    assert [answer(c)[0] for c in held] == [401] * 2
    until("the token is not good for anything", lambda: d.ask("GET", "/v1", token=brief).status == 401)
    for path in paths:
        d.ask("PATCH", path, {"labels": {"a": "b"}}, token=every).expect(200)
    assert [answer(c)[0] for c in others] == [200] * 2


def test_many(start):
    d = start()
    etag = d.ask("GET", "/v1/sessions/default").headers["ETag"]
    many = [waits(d, "/v1/sessions/default", etag, 60) for _ in range(200)]
    local = [waits(d, "/v1/sessions/default", etag, 60, unix=True) for _ in range(70)]
    assert d.get("/v1/sessions/default")
    d.put("x", b"1").expect(201)
    assert {answer(c)[0] for c in many} == {200}
    assert [answer(c)[0] for c in local].count(200) >= 60  # beyond 64 waiting requests, one is answered at once
