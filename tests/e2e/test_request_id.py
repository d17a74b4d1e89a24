"""X-Request-Id: every answer has one, and a caller's own is kept."""
import re
import select

import pytest

from harness import DATA, until

NEW = re.compile("[0-9a-f]{16}")


def asked(daemon, method, target, value=None, body=None, **headers):
    r = daemon.ask(method, target, body, {**headers, **({"X-Request-Id": value} if value is not None else {})})
    said = r.headers["X-Request-Id"]
    if r.headers.get("Content-Type") == "application/problem+json" and r.body:
        assert r.json()["request_id"] == said
    return r, said


@pytest.mark.parametrize("method,target,status", [
    ("GET", "/livez", 200), ("HEAD", "/livez", 200), ("GET", "/openapi.json", 200), ("GET", "/metrics", 200),
    ("GET", "/v1", 200), ("GET", "/", 200), ("GET", "/v1/sessions/default", 200),
    ("POST", "/v1/sessions/default/sync", 204), ("GET", "/v1/sessions/none", 404), ("DELETE", "/v1", 405),
    ("GET", "/none", 404), ("GET", "/v1?x=1", 400)])
def test_every_answer_has_one(daemon, method, target, status):
    first, second = asked(daemon, method, target), asked(daemon, method, target)
    assert first[0].status == second[0].status == status
    assert NEW.fullmatch(first[1]) and NEW.fullmatch(second[1]) and first[1] != second[1]
    for own in ("a", "-._", "7" * 128, "trace-0af7651916cd43dd8448eb211c80319c.1"):
        assert asked(daemon, method, target, own)[1] == own


@pytest.mark.parametrize("value", ["", "a b", "a/b", "x" * 129, "\xe4", "a,b", '"a"', "a;b"])
def test_one_that_is_not_well_formed_is_replaced(daemon, value):
    r, said = asked(daemon, "GET", "/v1/sessions/default", value)
    assert r.status == 200 and NEW.fullmatch(said)


def test_data_of_every_size(daemon):
    """Small ones go through libmicrohttpd, long ones leave it, and what is asked again is recognised by its head."""
    for size in (1, 100_000, 8 << 20):
        where = DATA.format("default", "x")
        with daemon.raw() as r:
            for own in ("up-1", "up-1", "up-2"):
                r.put(where, size, f"X-Request-Id: {own}").send(bytes(size))
                reply = r.reply()
                assert reply.status in (200, 201) and reply.headers["X-Request-Id"] == own
            for own in ("down-1", "down-1", None, None, "down-2"):
                r.request("GET", where, [f"X-Request-Id: {own}"] if own else [])
                reply = r.reply()
                assert reply.status == 200 and len(reply.body) == size
                assert reply.headers["X-Request-Id"] == own if own else NEW.fullmatch(reply.headers["X-Request-Id"])


def test_a_known_answer_and_a_listener(daemon):
    tag = daemon.ask("GET", "/openapi.json").headers["ETag"]
    assert asked(daemon, "GET", "/openapi.json", "known", **{"If-None-Match": tag})[0].status == 304
    assert asked(daemon, "GET", "/openapi.json", "known", **{"If-None-Match": tag})[1] == "known"
    with daemon.raw() as r:
        status, headers = r.request("GET", "/v1/feed", ["X-Request-Id: hears"]).head()
        assert status == 200 and headers["X-Request-Id"] == "hears"


def test_a_malformed_request_and_one_too_many_have_one(start):
    d = start("--max-connections", "8")
    with d.raw() as r:
        reply = r.send(b"GET /v1 HTTP/1.1\r\nX-Request-Id: mine\r\n\r\n").reply()  # without Host
        assert reply.status == 400 and reply.headers["X-Request-Id"] == reply.json()["request_id"] == "mine"
    held = [d.raw() for _ in range(12)]
    refused = until("one is refused", lambda: next((x for x in held if select.select([x.sock], [], [], 0)[0]), None))
    reply = refused.reply()
    assert reply.status == 503 and reply.headers["X-Request-Id"] == reply.json()["request_id"]
    for r in held:
        r.reset()
