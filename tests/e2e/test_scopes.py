"""Each request of the interface with a token of each scope, compared with doc/http.md."""
import os
import re

import pytest

from conform import interface
from harness import token, until
from sharing import Local
from test_every import Operation
from values import one

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCOPES = ["verify", "read", "write", "map", "map-write", "admin", "fleet"]
S = "/v1/sessions/q"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
# What a request says whose required fields do not do.
BODIES = {"access": {"device": 0, "access": "read_write"}, "hold": {"ms": 1},
          "batch": {"operations": [{"op": "fill", "buffer": "b", "pattern": 1}]}, "adopt": {"way": "memfd", "bytes": 4},
          "parts": b"abcd", "tensors": one("U8", (1,), b"1"), "copy": {"from": "q/file"}}
INCLUDED = {"verify": {"verify", "read", "write", "admin"}, "read": {"read", "write", "admin"},
            "write": {"write", "admin"}, "map": {"map", "map-write", "admin"}, "map-write": {"map-write", "admin"},
            # the scopes of tokens that may do what asks for one
            "admin": {"admin"}, "fleet": {"fleet", "admin"}, "none": {None, *SCOPES}}
# a request so answered may have been refused before anything asked for a scope
UNPROVEN = {400, 401, 404, 405, 411, 415}


def table():
    """{(path, of which requests): {scope, or None: the methods}} of the document."""
    path = os.path.join(TOP, "doc", "http.md")
    if not os.path.exists(path) and os.environ.get("GB_E2E_LACKING") == "skip":
        pytest.skip("doc/http.md is not here")
    needed = {}  # {(path, of which requests, method): scopes}
    with open(path, encoding="utf-8") as f:
        rows = re.findall(r"^\| `([A-Z]+) (/[^`]*)` \| .+? \| ([^|]+) \| [0-9 ]+ \|$", f.read(), re.M)
    for method, path, cell in rows:
        for part in cell.split("; "):
            which, scopes = part.rsplit(": ", 1) if ": " in part else ("", part)
            needed[path, "" if which == "HEAD" else which, "HEAD" if which == "HEAD" else method] = scopes
    for (path, which, method), scopes in list(needed.items()):
        if method == "GET":
            needed.setdefault((path, which, "HEAD"), scopes)
    out = {}
    for (path, which, method), scopes in needed.items():
        columns = out.setdefault((path, which), {scope: set() for scope in [None, *SCOPES]})
        for scope in columns:
            if any(all(scope in INCLUDED[name] for name in word.split(" and ")) for word in scopes.split(" or ")):
                columns[scope].add(method)
    return out


class Things:
    """What the paths name. Requests may change or delete it, so it is looked after before each that changes
    something."""

    def __init__(self, daemon, secret):
        self.admin = daemon.client(secret, unix=True)
        self.names = {"device": "0", "session": "q", "pool": "p", "stream": "st", "event": "e", "buffer": "b",
                      "file": "app.js", "upload": "x", "operation": "x", "lease": "x", "checkpoint": "c"}
        self.daemon, self.secret, self.holder = daemon, secret, None

    def make(self, target, body):
        reply = self.admin.ask("POST", target, body)
        assert reply.status in (201, 409), (target, reply)

    def there(self, path):
        return self.admin.ask("GET", path).status == 200

    def operation(self):
        r = self.admin.ask("POST", f"{S}/buffers/handle/fill", {"pattern": 1}, {"Prefer": "respond-async"})
        return r.json()["id"] if r.status == 202 else None

    def exported(self, mode):
        return str(self.admin.ask("POST", f"{S}/buffers/handle/export", {"mode": mode}).expect(200).json()["lease"])

    def renew(self, path, which):
        self.make("/v1/sessions", {"name": "q"})
        for kind, name in ("pools", "p"), ("streams", "st"), ("events", "e"):
            self.make(f"{S}/{kind}", {"name": name})
        self.admin.ask("PUT", f"{S}/buffers/b/data", b"abcd")
        if "{upload}" in path and not self.there(f"{S}/uploads/{self.names['upload']}"):
            self.names["upload"] = self.admin.ask("POST", f"{S}/uploads",
                                                  {"buffer": "n",
                                                   "bytes": 4}).expect(201).headers["Location"].split("/")[-1]
        for name, query in (("handle", "kind=ipc"), ("file", "kind=pageable"), ("sides", "mirrored=true"),
                            ("durable", "durability=sync")):
            if not self.there(f"{S}/buffers/{name}"):
                self.admin.ask("PUT", f"{S}/buffers/{name}/data?{query}", b"abcd").expect(201)
        if "{checkpoint}" in path and not self.there("/v1/checkpoints/c"):
            self.make(f"{S}/checkpoints", {"name": "c", "lenient": True, "unstable": True})
        if "{operation}" in path and not self.there("/v1/operations/" + self.names["operation"]):
            self.names["operation"] = until("an operation is left", self.operation)
        if "{lease}" in path and which == "another connection's":
            if not self.holder:  # not before it is used: the first request of a connection must come soon
                self.holder = Local(self.daemon.unix, self.secret)
            self.holder.send("POST", f"{S}/buffers/file/map", {"mode": "read"})
            answer = self.holder.reply("POST")
            assert answer.status == 200, answer.body
            self.names["lease"] = str(answer.json()["lease"])
        elif "{lease}" in path:
            self.names["lease"] = self.exported("write" if which else "read")


class Request:
    """How the requests of a row are sent. which: a word of the table."""

    def __init__(self, described, method, path, which):
        described_as = "GET" if method == "HEAD" and "head" not in described.document["paths"][path] else method
        self.op, self.method, self.path, self.which = Operation(described, described_as, path), method, path, which
        self.body, self.query, self.named, self.headers = None, "", {}, list(self.op.headers)
        if self.op.schema:
            self.body = self.op.sample()
            self.headers = [h for h in self.headers if not h.startswith("Content-Type")]
        last = path.split("/")[-1]
        if last in BODIES and method != "GET" and method != "HEAD":
            self.body = BODIES[last]
        if last == "adopt":
            self.headers.append('If-Match: "no"')  # no memory is handed over
        if which.startswith("`?"):
            self.query = which.strip("`?")
        elif which.startswith("`{"):
            self.body = {**self.body, "mode": "write"}
        elif which == "a pool of the device":
            self.named["pool"] = "default"
        else:
            assert which in ("", "another connection's", "an export to write"), which

    def ask(self, daemon, things, secret):
        names = {**things.names, **self.named}
        if "{checkpoint}" in self.path:
            names["file"] = "00001.safetensors"
        names["buffer"] = {"map": "file", "export": "handle", "sync": "sides", "reserve": "sides", "release": "sides",
                           "store": "durable", "evict": "durable"}.get(self.path.split("/")[-1], "b")
        if self.path == "/v1/sessions":
            self.body = self.body and {"name": "q"}
        c = Local(daemon.unix, secret)
        try:
            c.send(self.method, self.op.path(self.query, **names), self.body, self.headers)
            return c.reply(self.method)
        finally:
            c.close()


def test_the_table(start, tmp_path, simulated):
    secrets = {scope: token(tmp_path, "add", scope, "--scope", scope) for scope in SCOPES}
    secrets["both"] = token(tmp_path, "add", "both", "--scope", "write,map-write")
    # of the connection that holds a lease
    d = start("--idle-timeout", "900", spec=simulated("legacy=fake"), state=str(tmp_path))
    described, permitted, wrong, proven = interface(d), table(), [], set()
    things = Things(d, secrets["admin"])
    paths = described.document["paths"]
    assert {path for path, _ in permitted} == set(paths)
    for (path, which), columns in permitted.items():
        methods = [m for m in METHODS if m.lower() in paths[path] or (m == "HEAD" and "get" in paths[path])]
        shown = set.union(*columns.values())
        for method in [m for m in methods if not which or m in shown]:
            request, changed = Request(described, method, path, which), True
            for scope in [None, *SCOPES]:
                if changed:
                    things.renew(path, which)
                reply = request.ask(d, things, secrets.get(scope))
                if reply.status not in (401, 403):
                    changed = method not in ("GET", "HEAD")
                may, refusal = method in columns[scope], 403 if scope else 401
                # A mapping that a token may not see answers as one that does not exist.
                refusals = (refusal, 404) if which == "another connection's" else (refusal,)
                if may != (reply.status not in refusals):
                    wrong.append(f"{method} {path} {which}, {scope}: {reply.status} {reply.body[:120]!r}")
                if scope == "admin" and reply.status in UNPROVEN:
                    wrong.append(f"{method} {path} {which}: {reply.status} proves nothing: {reply.body[:300]!r}")
                proven.add((method, path))
    assert len(proven) > 90
    assert not wrong, "\n".join(wrong)
    adopt = Request(described, "POST", S.replace("q", "{session}") + "/buffers/{buffer}/adopt", "")
    assert adopt.ask(d, things, secrets["both"]).status == 412
    things.holder.close()
