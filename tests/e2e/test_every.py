"""Answers that every operation may give: each is produced for each operation, and compared with the document."""
import json
import os
import re
import resource
import select
import sqlite3

import pytest

from conform import interface
from harness import PATIENCE_S, token, until
from values import one

S = "/v1/sessions/default"
NAMES = {"device": "0", "session": "default", "pool": "default", "stream": "default", "event": "e", "buffer": "b",
         "op": "txn"}
SAMPLES = {"force": True, "from": "q/b", "pattern": 1, "to": "host", "side": "host", "bytes": 4, "stream": "default",
           "device": 0, "buffer": "n", "step": "freeze", "epoch": 1, "number": 1}
QUERY = {("PATCH", "/v1/sessions/{session}/buffers/{buffer}/data"): ["offset=0"],  # one of these parameters is needed
         ("POST", "/v1/fleet/directory/{op}"): ["node=fleet"]}  # the name of a token that test_scopes makes
HEADERS = {"Upload-Complete": "?1", "Upload-Offset": "0"}  # required parameters of an operation


class Operation:
    def __init__(self, described, method, route):
        self.described, self.method, self.route = described, method, route
        self.item = described.document["paths"][route][method.lower()]
        self.statuses = set(self.item["responses"])
        body = described.resolve(self.item.get("requestBody", {}))
        self.schema = body.get("content", {}).get("application/json", {}).get("schema")
        self.takes_body = bool(body)
        self.queries = [p["name"] for p in map(described.resolve, self.item.get("parameters", []))
                        if p["in"] == "query"]
        self.keyed = "Idempotency-Key" in [p["name"] for p in map(described.resolve, self.item.get("parameters", []))]
        kinds = list(body.get("content", {}))
        self.headers = [f"Content-Type: {kinds[0]}"] if len(kinds) == 1 else []
        if route == "/v1/feed":
            self.headers.append("Accept: application/json")  # the other form is an endless stream
        for p in map(described.resolve, self.item.get("parameters", [])):
            if p["in"] == "header" and p.get("required"):
                self.headers.append(f"{p['name']}: {HEADERS[p['name']]}")

    def path(self, query="", **names):
        """The target with the required parameters, and query."""
        given = QUERY.get((self.method, self.route), [])
        needed = [f"{p['name']}={int(p['schema'].get('type') == 'boolean')}"
                  for p in map(self.described.resolve, self.item.get("parameters", [])) if p["in"] == "query"
                  and p.get("required") and not any(q.startswith(p["name"] + "=") for q in given)] + given
        path = re.sub(r"{(\w+)}", lambda m: {**NAMES, **names}.get(m.group(1), "x"), self.route)
        return path + "?" * bool(needed or query) + "&".join(needed + [query] * bool(query))

    def sample(self):
        """A body of the described form, or of the first of several, if one is needed."""
        schema = self.described.resolve(self.schema)
        if "anyOf" in schema:
            schema = self.described.resolve(schema["anyOf"][0])
        more = {"bytes": 4} if self.route.endswith(("/buffers", "/uploads", "/reserve")) else {}
        return {**{name: self.value(schema["properties"][name], name) for name in schema.get("required", [])}, **more}

    def value(self, described, name):
        """SAMPLES has it, unless others are listed."""
        listed = self.described.resolve(described).get("enum")
        return SAMPLES.get(name, "n") if not listed or SAMPLES.get(name) in listed else listed[0]

    def ask(self, r, target, headers=(), host="localhost"):
        body = json.dumps(self.sample()).encode() if self.schema else b""
        size = [f"Content-Length: {len(body)}"] if self.takes_body or self.method in ("POST", "PUT", "PATCH") else []
        r.send("\r\n".join([f"{self.method} {target} HTTP/1.1", "Host: " + host, *self.headers, *size, *headers, "",
                            ""]).encode() + body)

    def send(self, r, target, headers=(), **more):
        self.ask(r, target, headers, **more)
        return self.reply(r, target)

    def reply(self, r, target):
        reply = r.reply(head_only=self.method == "HEAD")
        assert reply is not None, (self.method, target)
        if self.method != "HEAD":
            self.described.check(self.method, target, reply)
        return reply

    def told(self, daemon, target, headers=(), **more):
        with daemon.raw() as r:
            return self.send(r, target, headers, **more)

    def answered(self, daemon, status, target, headers=(), **more):
        reply = self.told(daemon, target, headers, **more)
        assert reply.status == status, (self.method, target, reply)
        return reply


def operations(daemon):
    described = interface(daemon)
    return [Operation(described, m.upper(), route) for route, item in described.document["paths"].items()
            for m in item if m in ("get", "head", "post", "put", "patch", "delete")]


def test_refused_for_what_the_request_is(start):
    """400, 403 to other origins, 414, 421 and 431 are sent before the request is routed."""
    d = start()
    for op in operations(d):
        target = op.path()
        op.answered(d, 400, op.path("no-such-parameter=1"))
        op.answered(d, 414, op.path("x" * 9000))
        op.answered(d, 431, target, [f"X-{i}: 1" for i in range(70)])
        op.answered(d, 421, target, host="elsewhere.example")
        for site in ("cross-site", "same-site", "anything-new"):
            said = op.answered(d, 403, target, [f"Sec-Fetch-Site: {site}", "Sec-Fetch-Mode: no-cors",
                                                "Sec-Fetch-Dest: image"])
            assert op.method == "HEAD" or said.json()["code"] == "cross_origin"


def test_headers_beyond_the_memory_of_a_connection(start):
    """libmicrohttpd's own answers are also 414 or 431, as plain text."""
    d = start()
    for op in operations(d):
        with d.raw() as r:
            assert op.send(r, op.path("x" * 40000)).status == 414
        with d.raw() as r:
            assert op.send(r, op.path(), ["X: " + "x" * 40000]).status == 431


def test_refused_for_its_body(start):
    """413 and 415, for operations with a body of JSON."""
    d = start("--max-json", "1K", "--max-batch", "1")
    d.put("b", b"abcd").expect(201)
    for op in operations(d):
        if op.schema:
            for status, kind, size, more in ((413, "application/json", 1 << 40, ["Expect: 100-continue"]),
                                             (415, "text/plain", 2, [])):
                with d.raw() as r:
                    r.request(op.method, op.path(), ["Content-Type: " + kind, f"Content-Length: {size}", *more],
                              b"" if more else b"{}")
                    assert op.reply(r, op.path()).status == status, op.route


def test_a_body_that_stops_is_given_up(start):
    """408. A request that is refused for its head is answered with that refusal."""
    d = start("--stall-timeout", "2")
    waiting = [(op, d.raw()) for op in operations(d) if op.schema or not op.takes_body]
    for op, r in waiting:
        r.request(op.method, op.path(), ["Content-Type: application/json", "Content-Length: 10"], b"{")
    for op, r in waiting:
        assert op.reply(r, op.path()).status == (408 if op.schema else 400), op.route
        assert r.closes()
        r.close()


def test_bytes_that_stop_are_given_up(start):
    d = start("--stall-timeout", "2")
    for name in "bcd":
        d.ask("POST", S + "/buffers", {"name": name, "bytes": 10}).expect(201)
    upload = d.ask("POST", S + "/uploads", {"buffer": "u", "bytes": 10}).expect(201).json()["id"]
    begun = d.ask("POST", S + "/buffers/r/data", b"", {"Upload-Complete": "?0"}).expect(201).headers["Location"]
    raw, part = "Content-Type: application/octet-stream", "Content-Type: application/partial-upload"
    described, waiting = interface(d), []
    for method, path, headers in [("PUT", S + "/buffers/b/data", [raw]), ("PATCH", S + "/buffers/c/data?offset=0",
                                                                          [raw]),
                                  ("POST", S + "/buffers/d/data", [raw, "Upload-Complete: ?1"]),
                                  ("PUT", S + "/tensors", [raw]), ("PUT", f"{S}/uploads/{upload}/parts?offset=0",
                                                                   [raw]),
                                  ("PATCH", begun, [part, "Upload-Offset: 0", "Upload-Complete: ?1"]),
                                  ("PUT", "/v1/checkpoints/c/files/00001.safetensors", [raw])]:
        waiting.append((method, path, d.raw()))
        waiting[-1][-1].request(method, path, [*headers, "Content-Length: 10"], b"\x01")
    for method, path, r in waiting:
        reply = r.reply()
        assert reply is not None and reply.status == 408, (method, path, reply)
        described.check(method, path, reply)
        assert r.closes()
        r.close()


def test_refused_for_who_asks(start, tmp_path):
    """401 without a token; 403 with a token of another session, or with one that may only read or only map."""
    mapper = token(tmp_path, "add", "mapper", "--scope", "map")
    reader = token(tmp_path, "add", "reader", "--scope", "read")
    other = token(tmp_path, "add", "other", "--scope", "write", "--session", "other")
    d = start(state=str(tmp_path))
    for op in operations(d):
        if "401" in op.statuses:
            assert op.answered(d, 401, op.path()).headers["Www-Authenticate"].startswith("Bearer")
        if "forbidden" in op.item["responses"].get("403", {}).get("$ref", "").lower():
            told = [op.told(d, op.path("session=default" * ("session" in op.queries)),
                            ["Authorization: Bearer " + secret]) for secret in (other, reader, mapper)]
            assert 403 in [reply.status for reply in told], (op.method, op.route, told)


def test_nothing_there(start):
    d = start()
    for op in operations(d):
        # A file that is brought makes its checkpoint; 404 hides that of another session.
        if op.route.startswith("/v1/fleet/"):
            continue  # without a fleet 501: test_fleet_api
        if (op.method, op.route) in (("POST", "/v1/sessions"), ("PUT", "/v1/sessions/{session}")):
            continue  # of a tenant: test_fleet_tenants
        if "404" in op.statuses and (op.method, op.route) != ("PUT", "/v1/checkpoints/{checkpoint}/files/{file}"):
            op.answered(d, 404, op.path(session="none", device="99", operation="none", upload="none"))


def the_one(daemon):
    c = daemon.client()
    return c if c.ask("GET", "/livez").status == 200 else None


def test_one_connection_too_many(start):
    """503 with Retry-After, before any other check."""
    d = start("--max-connections", "1")
    listed = operations(d)
    held = until("the one connection is free", lambda: the_one(d))
    held.http.sock.sendall(b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{")
    for op in listed:
        assert int(op.answered(d, 503, op.path()).headers["Retry-After"]) >= 1


def fill_later(daemon):
    """The operation; None if the work had ended before the answer."""
    r = daemon.ask("POST", "/v1/sessions/q/buffers/b/fill", {"pattern": 1}, {"Prefer": "respond-async"})
    return r.json() if r.status == 202 else None


def test_preconditions(start):
    """412 for all operations with conditions."""
    d = start()
    for op in operations(d):
        # test_adopt has that one; etcd's
        if "412" in op.statuses and "{upload}" not in op.route and not op.route.endswith(("/adopt", "/{op}")):
            d.ask("POST", "/v1/sessions", {"name": "q"})
            d.ask("POST", "/v1/sessions/q/events", {"name": "e"})
            mirrored = op.route.endswith(("/sync", "/reserve", "/release"))
            d.put("b", b"abcd", "q", "?mirrored=true" if mirrored else "")
            left = until("an operation is left", lambda: fill_later(d)) if "{operation}" in op.route else {"id": "x"}
            op.answered(d, 412, op.path(session="q", operation=left["id"]), ['If-Match: "no"'])
            d.ask("DELETE", "/v1/sessions/q")


def test_a_key_under_way(start, tmp_path):
    """409 with Retry-After: another process holds the database's lock, so that the first request does not end."""
    d = start(state=str(tmp_path))
    # without a fleet nothing is begun: test_fleet_api
    keyed = [op for op in operations(d) if op.keyed and not op.route.startswith("/v1/fleet/")]
    assert len(keyed) > 20
    database = sqlite3.connect(next(tmp_path.glob("*.db")), isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    pairs = [(op, (d.raw(), d.raw())) for op in keyed]
    for i, (op, both) in enumerate(pairs):
        for r in both:
            op.ask(r, op.path(), [f"Idempotency-Key: k{i}"])
    second = []
    for op, both in pairs:
        heard = select.select([r.sock for r in both], [], [], PATIENCE_S)[0]
        second.append(next(r for r in both if r.sock in heard))
        reply = op.reply(second[-1], op.path())
        reply.problem(409, "idempotency_key_in_use")
        assert int(reply.headers["Retry-After"]) >= 1
    database.execute("ROLLBACK")
    database.close()
    for (op, both), r in zip(pairs, second):
        first = both[0] if r is both[1] else both[1]
        assert op.reply(first, op.path()).status != 503, op.route
        for r in both:
            r.close()


@pytest.fixture
def full(start):
    """A daemon whose database is full: no file may grow."""
    d = start(restore_signals=False)
    begin_some(d)
    resource.prlimit(d.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    return d


def begin_some(d):
    d.put("b", b"abcd").expect(201)
    d.put("m", b"abcd", query="?mirrored=true").expect(201)
    d.ask("POST", "/v1/sessions", {"name": "q"}).expect(201)
    d.ask("POST", "/v1/sessions/default/pools", {"name": "q"}).expect(201)
    d.parts = d.ask("POST", S + "/uploads", {"buffer": "b", "bytes": 4}).expect(201).headers["Location"]
    begins = {"Upload-Complete": "?0", "Upload-Length": "4"}
    d.appends = d.ask("PUT", S + "/buffers/b/data?format=raw", b"", begins).expect(201).headers["Location"]


def ends_of(d):
    last = {"Content-Type": "application/partial-upload", "Upload-Offset": "0", "Upload-Complete": "?1"}
    return [("POST", d.parts + "/complete", None), ("PATCH", d.appends, b"1234", last)]


CHANGES = [("POST", "/v1/sessions", {"name": "n"}), ("PUT", "/v1/sessions/n", {}), ("PATCH", S, {"labels": {"a": "b"}}),
           ("DELETE", "/v1/sessions/q", None), ("PUT", S + "/pools/p", {}),
           ("POST", S + "/pools", {"name": "p"}), ("PATCH", S + "/pools/q", {"release_threshold_bytes": 1}),
           ("DELETE", S + "/pools/q", None), ("POST", S + "/buffers", {"name": "n", "bytes": 4}),
           ("PATCH", S + "/buffers/b", {"labels": {"a": "b"}}), ("PUT", S + "/buffers/b/data", b"1234"),
           ("PUT", S + "/buffers/n/data", b"1234"), ("POST", S + "/buffers/b/fill", {"pattern": 1}),
           ("POST", S + "/buffers/n/copy", {"from": "b"}), ("POST", S + "/buffers/m/sync", {"to": "device"}),
           ("POST", S + "/buffers/m/reserve", {"bytes": 9, "side": "host"}),
           ("POST", S + "/buffers/m/release", {"side": "all"}), ("PATCH", S + "/buffers/b/data?offset=0", b"1"),
           ("POST", S + "/buffers/n/data", b"1", {"Upload-Complete": "?1"}),
           ("PUT", S + "/tensors", one("U8", (1,), b"1")),
           ("POST", S + "/batch", {"operations": [{"op": "delete", "buffer": "b"}], "atomic": True}),
           ("POST", S + "/buffers/b/seal", {}), ("DELETE", S + "/buffers/b", None)]


def test_a_full_disk(full):
    described = interface(full)
    full.settled()
    full.ask("PUT", full.parts + "/parts?offset=0", b"1234").expect(200)
    before = full.contents()
    for method, target, body, *headers in CHANGES + ends_of(full):
        reply = full.ask(method, target, body, *headers)
        described.check(method, target, reply)
        assert reply.problem(507, "storage_full")["retryable"], target
    assert full.contents() == before
    resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    assert full.ask("PUT", S + "/buffers/b/data", b"1234").status == 200


def refuse_changes(d):
    """The database refuses changes by triggers, not because of the disk."""
    with sqlite3.connect(os.path.join(d.state, "gpubufd.db")) as database:
        for table in ("sessions", "buffers", "pools"):
            for change in ("INSERT", "UPDATE", "DELETE"):
                database.execute(f"CREATE TRIGGER no_{change}_{table} BEFORE {change} ON {table} "
                                 "BEGIN SELECT RAISE(ABORT, 'not today'); END")
    database.close()


@pytest.fixture
def refusing(start):
    """A daemon whose database refuses every change by triggers, not because of the disk."""
    d = start()
    begin_some(d)
    d.settled()
    refuse_changes(d)
    return d


def test_a_database_that_refuses(refusing):
    described = interface(refusing)
    refusing.ask("PUT", refusing.parts + "/parts?offset=0", b"1234").expect(200)
    before = refusing.contents()
    for method, target, body, *headers in CHANGES + ends_of(refusing):
        reply = refusing.ask(method, target, body, *headers)
        described.check(method, target, reply)
        assert "not today" in reply.problem(500, "store_failed")["detail"], target
    assert refusing.contents() == before
    refusing.ask("GET", "/readyz").expect(200)  # these refusals concerned single changes


def test_refused_to_a_client_at_its_bound(start):
    """429: a reply of a kilobyte has used up the bytes of many minutes."""
    every = operations(start())
    d = start("--bound-local", "--rate-bytes", "1", "--rate-requests", "0")
    until("the client is in debt", lambda: d.ask("GET", "/v1").status == 429)
    for op in every:
        said = op.answered(d, 429, op.path())
        assert int(said.headers["Retry-After"]) >= 1 and said.headers["Ratelimit"].startswith('"bytes";r=0;t=')
        assert op.method == "HEAD" or said.json()["limit"]["name"] == "bytes"
