"""Every bad input gets a specific error and leaves the state unchanged."""
import json
import os
import re
import resource

import pytest

from harness import DATA, SLOT, SMALL_SLOTS, until
from hostile_table import ALL, request, sized
from values import payload

FILL = b"0123456789abcdef"


@pytest.fixture
def victim(daemon):
    if daemon.data("x").body != FILL:
        daemon.put("x", FILL)
    daemon.settled()


def fill_in(data):
    s = b"/v1/sessions/default"
    for name, path in ((b"{s}", s), (b"{b}", s + b"/buffers"), (b"{d}", s + b"/buffers/x/data")):
        data = data.replace(name, path)
    return data


@pytest.mark.parametrize("case", ALL, ids=[c[0] for c in ALL])
def test_bad_request(daemon, victim, case):
    name, data, status, code = case
    data = fill_in(data)
    before = daemon.contents()
    with daemon.raw() as r:
        try:
            r.send(data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        reply = r.reply()
        assert reply is not None, "no answer"
        assert 400 <= reply.status < 600 and reply.status not in (500, 503), reply
        if status:
            assert reply.status == status, reply
        if code:
            p = reply.problem(status, code)
            assert p["instance"].startswith("/") or name == "target:double-slash"
        elif reply.headers.get("Content-Type") == "application/problem+json":
            assert reply.json()["status"] == reply.status
    until("nothing is left of it", lambda: daemon.contents() == before)  # memory is freed after the answer
    assert daemon.data("x").body == FILL


def test_every_refusal_made_by_us_is_a_problem_document(daemon):
    r = daemon.ask("GET", "/v1/sessions/none/buffers/x")
    p = r.problem(404, "session_not_found")
    assert p["instance"] == "/v1/sessions/none/buffers/x"
    assert daemon.ask("DELETE", "/v1").headers["Allow"] == "GET, HEAD, OPTIONS"


EARLY = [
    ("PUT", "/v1/sessions/none/buffers/x/data", (), 404), ("PUT", "{d}?dtype=nope", (), 400),
    ("PUT", "{d}?nope=1", (), 400), ("PUT", "{d}?dtype=float32&shape=1", (), 422),
    ("PUT", "{d}", ("If-Match: \"no\"",), 412), ("PUT", "{d}", ("If-None-Match: *",), 412),
    ("PUT", "{d}", ("Host: evil.example",), 400), ("PUT", "{d}", ("Origin: http://evil.example",), 403),
    ("PUT", "/v2", (), 404), ("PUT", "/v1/sessions/small/buffers/y/data", (), 507),
    ("PUT", "{d}?offset=10&dtype=uint8", (), 400), ("PUT", "{d}?offset=10", (), None),
    ("PUT", "{d}", ("Content-Type: text/html",), 415), ("POST", "/v1/sessions", ("Content-Type: application/json",),
                                                        413), ("GET", "{d}", (), 400), ("DELETE", "{d}", (), 405),
    ("POST", "{d}", (), 400), ("PUT", "{d}?kind=pinned&pool=default", (), 400),
    ("PUT", "{d}", ("Transfer-Encoding: chunked",), 400),
]


@pytest.fixture
def small(daemon):
    if daemon.ask("GET", "/v1/sessions/small").status != 200:
        daemon.ask("POST", "/v1/sessions", {"name": "small", "quota": {"bytes": 1000}}).expect(201)


@pytest.mark.parametrize("method, target, headers, status", EARLY)
@pytest.mark.parametrize("size", [1 << 20, 1 << 33])
def test_refused_before_the_body(daemon, victim, small, method, target, headers, status, size):
    """A client that waits for 100 Continue gets the error instead, and sends no body."""
    with daemon.raw() as r:
        lines = [f"Content-Length: {size}", "Expect: 100-continue", *headers]
        reply = r.request(method, fill_in(target.encode()).decode(), lines).reply()
        assert r.continues == 0
        assert 400 <= reply.status < 600 and (status is None or reply.status == status), reply
        assert reply.json()["status"] == reply.status
    assert daemon.data("x").body == FILL


@pytest.mark.parametrize("size", [1000, SLOT, 1 << 20, 4 << 20])
def test_who_sends_at_once_still_reads_the_refusal(daemon, victim, small, size):
    """The answer must not be lost to a reset while the client still sends."""
    for target, status in (("/v1/sessions/none/buffers/x/data", 404), ("/v1/sessions/small/buffers/y/data?dtype=uint8",
                                                                       507),
                           (DATA.format("default", "x") + "?dtype=nope", 400), ("/v1/nowhere", 404)):
        with daemon.raw() as r:
            r.put(target, size + 1000).send(payload(size + 1000))
            assert r.reply().status == status


def test_a_part_is_not_taken_for_the_whole(daemon, victim):
    """RFC 9110, 14.5: no route that takes a body ignores Content-Range."""
    asked = 0
    for path, methods in daemon.get("/openapi.json")["paths"].items():
        target = re.sub("{[a-z]+}", lambda m: {"{session}": "default", "{buffer}": "x", "{device}": "0"}.get(m[0], "1"),
                        path)
        for method in {"put", "post", "patch"} & set(methods):
            for value in ("bytes 4-7/8", "bytes */8", "x"):
                p = daemon.ask(method.upper(), target, b"{}", {"Content-Range": value}).problem(400, "invalid_argument")
                assert "Content-Range" in p["detail"], (method, path, p)
                asked += 1
    assert asked > 150
    upload = daemon.ask("POST", "/v1/sessions/default/uploads", {"buffer": "u", "bytes": 8}).expect(201).json()["id"]
    with daemon.raw() as r:  # before the body is there
        r.put(f"/v1/sessions/default/uploads/{upload}/parts?offset=0", 4, "Content-Range: bytes 4-7/8", expect=True)
        assert r.reply().status == 400
    assert daemon.get(f"/v1/sessions/default/uploads/{upload}")["received_bytes"] == 0
    daemon.ask("DELETE", f"/v1/sessions/default/uploads/{upload}").expect(204)
    assert daemon.ask("GET", "/v1/devices", headers={"Content-Range": "bytes 0-1/2"}).status == 200


@pytest.mark.parametrize("query", ["&" * 260, "&a" * 2000, "&a1=1" * 700], ids=["empty", "names", "values"])
def test_queries_that_libmicrohttpd_has_no_room_for(start, query):
    """The request is answered as usual, and leaves no trace."""
    d = start()
    wanted = 200 if set(query) == {"&"} else 400

    def ask(times):
        for _ in range(times):
            with d.raw() as r:
                assert r.request("GET", "/v1/sessions?" + query).reply().status == wanted
        return d.stats()["process"]["resident_bytes"]

    before = ask(100)
    assert ask(1000) < before + (2 << 20)


def test_refused_and_reused(daemon, victim):
    """After a refusal with a small body the connection either continues in order or is closed; answers are never mixed
    up."""
    second = request("GET", "/v1/sessions/default/buffers/x")
    with daemon.raw() as r:
        r.send(sized("PUT", "/v1/sessions/none/buffers/x/data", SLOT // 8 * b"GET /livez HTTP/1.1\r\n") + second)
        assert r.reply().status == 404
        reply = r.reply()
        assert reply is None or reply.json()["name"] == "x"


def test_blanks_after_a_value_are_no_part_of_it(daemon):
    with daemon.raw() as r:
        r.request("GET", "/v1/feed", ["Accept: application/json", "Last-Event-ID:  1 \t "]).reply().expect(200)


def test_a_smuggled_request_never_runs(daemon, victim):
    inner = request("DELETE", "/v1/sessions/default/buffers/x")
    for lines in (["Content-Length: 4", "Transfer-Encoding: chunked"], ["Transfer-Encoding: xchunked"],
                  ["Content-Length: 0", f"Content-Length: {len(inner)}"],
                  ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
                  ["Content-Length: 0", "Transfer-Encoding:chunked"], ["Content-Length: 0x0"], ["Content-Length: 0,0"]):
        with daemon.raw() as r:
            r.send(request("PUT", "/v1/sessions/default/buffers/y/data", *lines, body=b"0\r\n\r\n" + inner))
            assert r.reply().status == 400
            assert r.closes(), f"{lines}: the connection was kept after a request with an ambiguous end"
    assert daemon.data("x").body == FILL


def test_problem_documents_are_json_whatever_the_target_holds(daemon):
    for target in ('/v1/"\\', "/v1/%22%5c%0a", "/v1/\x7f", "/v1/<script>"):
        with daemon.raw() as r:
            reply = r.request("GET", target).reply()
            assert reply.status in (400, 404) and json.loads(reply.body)["status"] == reply.status


def test_a_download_without_a_descriptor_is_refused_and_the_connection_stays(start):
    d = start(*SMALL_SLOTS)
    body = payload(4 * SLOT)
    d.put("x", body).expect(201)
    c = d.client()
    c.ask("GET", "/v1").expect(200)
    limits = resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE)

    def refused():
        """Except if an earlier connection has just freed its number."""
        open_now = {int(n) for n in os.listdir(f"/proc/{d.process.pid}/fd")}
        free = next(n for n in range(len(open_now) + 1) if n not in open_now)
        resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE, (free, limits[1]))
        r = c.ask("GET", DATA.format("default", "x"))
        return r if r.status != 200 else None

    p = until("it is refused", refused).problem(503, "saturated")
    assert p["retryable"] and "descriptor" in p["detail"]
    resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE, limits)
    assert c.ask("GET", DATA.format("default", "x")).expect(200).body == body and c.connects == 1


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("unix", [False, True])
def test_nothing_raw_reaches_the_log(start, form, unix):
    """The log of requests has targets as they were sent."""
    d = start("--log-level", "debug", "--log-format", form)
    for target in (b"/v1/\x1b[2Jgone", b"/v1/\xc2\x9b2J", b"/v1/\x9b\xff", b"/v1/\x7f\x08", "/v1/ä".encode()):
        with d.raw(unix=unix) as r:
            r.send(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            r.reply()
    def logged():
        with open(d.log_path, "rb") as f:
            return f.read()
    until("the last is logged", lambda: "/v1/ä".encode() in logged())
    for line in logged().splitlines():
        text = line.decode()  # it is UTF-8
        assert not [c for c in text if ord(c) < 32 or 127 <= ord(c) < 160], text
        if form == "json":
            json.loads(text)
    for shown in (b"\\u009b", b"\\u007f") if form == "json" else (b"x9b", b"x7f"):
        assert shown in logged()
