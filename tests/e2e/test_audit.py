"""The audit: what it has and what it never has, its bounds, its file, and who may read it."""
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess

import pytest

from gpubuf_cli import INTERRUPTED, Cli, interrupt
from harness import DATA, binary, until
from pyclient import client_of, gpubuf
from test_full_disk import disk  # noqa: F401

S = "/v1/sessions/default"
PATHS = itertools.count()


def command(state, *words):
    out = subprocess.run([binary(), "token", *words, "--state-dir", str(state)], capture_output=True, text=True,
                         timeout=90)
    assert out.returncode == 0, out.stderr
    return out.stdout.strip()


def scoped(state):
    """The secrets of a token of each scope, and of one that is bound to a session."""
    secrets = {name: command(state, "add", name, "--scope", name) for name in ("read", "write", "admin")}
    secrets["mine"] = command(state, "add", "mine", "--scope", "admin", "--session", "mine")
    return secrets


@pytest.fixture
def guarded(start, tmp_path):
    """A daemon with tokens, its secrets, and the audit's file."""
    secrets = scoped(tmp_path / "s")
    path = tmp_path / "audit.jsonl"
    return start("--audit-file", str(path), state=str(tmp_path / "s")), secrets, path


def records(d, query="", token=None, status=200):
    return d.ask("GET", "/v1/audit?limit=1000" + query, token=token).expect(status).json()["items"]


def requests(d, token=None, query=""):
    """Oldest first."""
    return [r for r in reversed(records(d, query, token)) if r["event"] == "request"]


def lines(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


def known(d, what, count, token=None):
    """The records of that many requests, once the database has them."""
    return until(what, lambda: (lambda found: len(found) >= count and found)(requests(d, token)))


def told(found):
    """The requests that records stand for."""
    return sum(r.get("count", 1) for r in found)


def test_who_changed_what(guarded):
    d, secrets, path = guarded
    admin, write = secrets["admin"], secrets["write"]
    d.ask("POST", "/v1/sessions", {"name": "mine"}, token=write).expect(201)
    d.ask("PUT", DATA.format("mine", "x"), b"abcd", token=write).expect(201)
    d.ask("POST", "/v1/sessions/mine/buffers", {"name": "y", "bytes": 8}, token=write).expect(201)
    d.ask("GET", DATA.format("mine", "x"), token=secrets["read"]).expect(200)
    d.ask("POST", "/v1/sessions/mine/pools", {"name": "p"}, token=secrets["mine"]).expect(201)
    d.ask("DELETE", "/v1/sessions/mine/buffers/none", token=admin).problem(404, "buffer_not_found")
    with contextlib.closing(d.client(token=admin, unix=True)) as c:
        removed = c.ask("DELETE", "/v1/sessions/mine/buffers/x").expect(204)
    found = known(d, "all changes are recorded", 6, admin)
    assert removed.status == 204
    says = [(r.get("token"), r["method"], r["route"], r.get("session"), r.get("object"), r["status"], r.get("code"),
             r["bytes"]) for r in found]
    s, b = "/v1/sessions/{session}", "/v1/sessions/{session}/buffers/{buffer}"
    assert says[1] == ("write", "PUT", b + "/data", "mine", "x", 201, None, 4)
    assert says[0][:-1] == ("write", "POST", "/v1/sessions", "mine", None, 201, None)
    assert says[2][:-1] == ("write", "POST", s + "/buffers", "mine", "y", 201, None)
    assert says[3][:-1] == ("mine", "POST", s + "/pools", "mine", "p", 201, None)
    assert says[4] == ("admin", "DELETE", b, "mine", "none", 404, "buffer_not_found", 0)
    assert says[5] == ("admin", "DELETE", b, "mine", "x", 204, None, 0)
    assert len(says) == 6  # no GET
    assert {r["address"] for r in found[:5]} == {"127.0.0.1"} and found[5]["address"] == f"unix:{os.getuid()}"
    assert len({r["request_id"] for r in found}) == 6 and len({r["token_id"] for r in found}) == 3
    # The commands and the start stand before them; the file has the same without ids.
    first = [(r["event"], r.get("object")) for r in reversed(records(d, token=admin)) if r["event"] != "request"]
    assert first == [("token.added", n) for n in ("read", "write", "admin", "mine")] + [("daemon.started", None)]
    d.stop()
    written = lines(path)
    assert [r["event"] for r in written] == ["daemon.started", *["request"] * 6, "daemon.stopped"]
    assert written[1:-1] == [{k: v for k, v in r.items() if k != "id"} for r in found]


def test_refusals_are_recorded_on_every_route(guarded):
    d, secrets, _ = guarded
    d.ask("GET", "/v1/sessions", token="gpb_unknown").problem(401, "unauthenticated")
    d.ask("GET", "/v1/stats").problem(401, "unauthenticated")
    d.ask("GET", "/v1/snapshot", token=secrets["read"]).problem(403, "forbidden")
    d.ask("PUT", DATA.format("default", "x"), b"abc", token=secrets["read"]).problem(403, "forbidden")
    d.ask("GET", S, token=secrets["mine"]).problem(403, "forbidden")
    d.ask("GET", "/livez").expect(200)
    d.ask("GET", "/v1/nothing").expect(404)
    found = known(d, "the refusals", 5, secrets["admin"])
    assert [(r["method"], r["route"], r.get("token"), r["code"]) for r in found] == [
        ("GET", "/v1/sessions", None, "unauthenticated"), ("GET", "/v1/stats", None, "unauthenticated"),
        ("GET", "/v1/snapshot", "read", "forbidden"), ("PUT", "/v1/sessions/{session}/buffers/{buffer}/data", "read",
                                                       "forbidden"),
        ("GET", "/v1/sessions/{session}", "mine", "forbidden")]
    # Who may read it: administrators of the whole daemon.
    records(d, token=secrets["admin"])
    for name in ("read", "write", "mine"):
        d.ask("GET", "/v1/audit", token=secrets[name]).problem(403, "forbidden")
        d.ask("GET", "/v1/audit?session=mine", token=secrets[name]).problem(403, "forbidden")
    d.ask("GET", "/v1/audit").problem(401, "unauthenticated")


def test_a_flood_of_refusals_displaces_nothing(start, tmp_path):
    """Requests without a token push out no record of a change, whatever they ask for; repetitions are one record with a
    count."""
    state, path = str(tmp_path / "s"), tmp_path / "audit.jsonl"
    admin, reader = command(state, "add", "admin", "--scope", "admin"), command(state, "add", "reader")
    d = start("--audit-file", str(path), "--audit-rows", "1000", state=state)
    d.ask("PUT", DATA.format("default", "x"), b"abc", token=admin).expect(201)
    with contextlib.closing(d.client()) as c, contextlib.closing(d.client(token=reader)) as r:
        for i in range(300):
            c.ask("GET", "/v1/stats").problem(401, "unauthenticated")
            c.ask("DELETE", f"/v1/none/{i}").expect(404)
            c.ask("PUT", DATA.format("default", f"n{i}"), b"abc").problem(401, "unauthenticated")
            r.ask("PUT", DATA.format("default", f"n{i}"), b"abc").problem(403, "forbidden")
    d.ask("PUT", DATA.format("default", "y"), b"abc", token=admin).expect(201)

    def refused():
        return [r for r in records(d, token=admin) if r.get("object") not in ("x", "y")
                and r["event"] in ("request", "audit.refusals")]

    found = until("all refusals are told", lambda: (lambda f: told(f) == 1200 and f)(refused()))
    assert len(found) < 40
    assert {r["event"] for r in found} == {"request"} and max(r.get("count", 1) for r in found) > 20
    assert {(r.get("token"), r.get("route"), r["status"]) for r in found} == {
        (None, "/v1/stats", 401), (None, None, 404), (None, "/v1/sessions/{session}/buffers/{buffer}/data", 401),
        ("reader", "/v1/sessions/{session}/buffers/{buffer}/data", 403)}
    assert [r["object"] for r in requests(d, admin) if r["status"] == 201] == ["x", "y"]
    rows = Cli(url=d.url(""), GPUBUF_TOKEN=admin)("audit", "--status", "401").expect().table()
    assert sum(int(r["COUNT"].replace("-", "1")) for r in rows) == 600
    with client_of(d, token=admin) as c:
        assert told(c.audit(status=403)) == 300
    d.stop()
    assert told(r for r in lines(path) if r["event"] == "request") == 1202


def test_refusals_of_many_have_a_share(start, tmp_path):
    """Where the share of refusals is used up, the rest is one record, and records of changes stay."""
    state = str(tmp_path)
    admin = command(state, "add", "admin", "--scope", "admin")
    d = start("--audit-rows", "50", state=state)
    d.ask("PUT", DATA.format("default", "x"), b"abc", token=admin).expect(201)
    paths = ("stats", "sessions", "devices", "snapshot", "feed", "operations", "audit", "history")
    for method in ("GET", "PUT", "POST", "DELETE", "PATCH"):
        for path in paths:
            d.ask(method, "/v1/" + path)
    d.stop()
    d = start("--audit-rows", "50", state=state)
    found = records(d, query="&status=500", token=admin)
    assert [r["event"] for r in found] == ["audit.refusals"] and found[0]["count"] > 10
    found = records(d, token=admin)
    assert len([r for r in found if r["event"] == "request"]) == 6 and "x" in [r.get("object") for r in found]


def test_a_flood_of_requests_that_change_nothing_displaces_nothing(start, tmp_path):
    """Neither reads without a token nor verifications push out the record of a change, and no change is folded."""
    state, path = str(tmp_path / "s"), tmp_path / "audit.jsonl"
    secrets = {name: command(state, "add", name, "--scope", name) for name in ("admin", "verify", "write")}

    def changes(d):
        return [(r["method"], r["status"]) for r in requests(d, secrets["admin"]) if r["route"] == "/v1/sessions"
                and r["status"] < 300 and "count" not in r]

    d = start("--audit", "all", "--audit-rows", "1000", "--audit-file", str(path), state=state)
    d.ask("POST", "/v1/sessions", {"name": "mine"}, token=secrets["write"]).expect(201)
    with contextlib.closing(d.client()) as c:
        for _ in range(3000):
            c.ask("GET", "/livez").expect(200)
    d.stop()
    reads = [r for r in lines(path) if r.get("route") == "/livez"]
    assert told(reads) >= 3000 and len(reads) < 20
    d = start("--audit-rows", "1000", state=state)
    assert changes(d) == [("POST", 201)]

    for name in ("a", "b", "c"):
        d.ask("POST", "/v1/sessions", {"name": name}, token=secrets["write"]).expect(201)
    d.ask("PUT", DATA.format("default", "x"), b"abcd", token=secrets["write"]).expect(201)
    with contextlib.closing(d.client(token=secrets["verify"])) as v, contextlib.closing(
            d.client(token=secrets["write"])) as w:
        for i in range(1500):
            v.ask("POST", f"{S}/buffers/none{i}/verify", {}).expect(404)
        v.ask("POST", f"{S}/buffers/x/verify", {}).expect(200)
        for i in range(300):
            w.ask("DELETE", f"{S}/buffers/none{i}").expect(404)
        for _ in range(3):  # the bytes before the end are written; the end of the write before may still be under way
            until("its digest is wrong", lambda: w.ask("PUT", DATA.format("default", "x") + "?in_place=true", b"efgh",
                                                       {"Content-Digest": "sha-256=:" + "A" * 43 + "=:"}).status == 400)
    d.stop()
    d = start("--audit-rows", "1000", state=state)
    assert changes(d) == [("POST", 201)] * 4
    found = requests(d, secrets["admin"])
    assert not [r for r in found if r["route"].endswith("/verify")]
    deleted = [r for r in found if r["method"] == "DELETE"]
    assert told(deleted) == 300 and len(deleted) < 20
    assert len([r for r in found if r["status"] == 400 and "count" not in r]) == 3


def everything(folder):
    """The bytes of all files below it, the database's log included."""
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if os.path.isfile(path):
                with open(path, "rb") as f:
                    yield path, f.read()


@pytest.mark.parametrize("mode", ["changes", "all"])
def test_no_secret_is_ever_recorded(start, tmp_path, mode):
    """Whatever a client puts a secret into, neither the table nor the file has its bytes."""
    state, path = tmp_path / "s", tmp_path / "audit.jsonl"
    admin = command(state, "add", "admin", "--scope", "admin")
    d = start("--audit", mode, "--audit-file", str(path), state=str(state))
    secret = "gpb_5ec7e7" + "f00dfeed" * 7
    auth = {"Authorization": "Bearer " + admin}
    tries = [
        ("GET", "/v1/sessions", None, {"Authorization": "Bearer " + secret}),
        ("GET", "/v1/sessions", None, {"Authorization": "Basic " + secret}),
        ("PUT", DATA.format("default", "x"), b"abc", {"Authorization": secret}),
        ("PUT", DATA.format("default", "x") + "?token=" + secret, b"abc", auth),
        ("PUT", DATA.format("default", "x") + f"?{secret}=1", b"abc", auth),
        ("PUT", DATA.format("default", "x") + "?dtype=" + secret, b"abc", auth),
        ("PUT", DATA.format("default", "x"), secret.encode(), auth),
        ("POST", S + "/buffers", {"name": "y", "labels": {"k": secret}, "bytes": 8}, auth),
        ("POST", S + "/buffers", {"name": "z", secret: 1}, auth),
        ("POST", S + "/batch", {"operations": [secret]}, auth),
        ("POST", "/v1/sessions", {"name": secret + "/"}, auth),
        ("PATCH", S, {"labels": {"k": secret}}, {**auth, "Cookie": secret, "X-Token": secret,
                                                 "Idempotency-Key": secret}),
        ("GET", "/v1/audit?token=" + secret, None, auth),
        ("GET", f"/v1/audit?session={secret}&status={secret}", None, auth),
        ("DELETE", "/v1/" + secret, None, auth),
        ("DELETE", f"/v1/sessions/a%20{secret}", None, auth),
        ("GET", "/v1/stats", None, {**auth, "Referer": "http://x/?" + secret, "User-Agent": secret}),
    ]
    for method, target, body, headers in tries:
        d.ask(method, target, body, headers)
    # no request at all, and a method that there is not
    with contextlib.closing(socket.create_connection(d.tcp)) as raw:
        raw.sendall(
            f"{secret} /v1?{secret} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n\r\n".encode())
        raw.recv(4096)
    expected = sum(m != "GET" for m, *_ in tries) + 2 if mode == "changes" else len(tries)
    until("all are recorded", lambda: told(requests(d, admin)) >= expected)
    d.stop()
    assert told(lines(path)) >= expected
    rows = subprocess.run(["sqlite3", "-readonly", str(state / "gpubufd.db"), ".dump audit"], capture_output=True,
                          text=True, timeout=60)
    if rows.returncode == 0:
        assert secret not in rows.stdout and admin not in rows.stdout and "INSERT INTO audit" in rows.stdout
    with open(path) as f:
        text = f.read()
    assert secret not in text and admin not in text
    # Labels and kept answers have it where the client has put it; nothing else in the state directory has the token.
    assert not [p for p, data in everything(tmp_path) if admin.encode() in data]


def test_secrets_are_in_no_byte_of_the_database(start, tmp_path):
    """The same without anything that the database keeps on purpose."""
    state = tmp_path / "s"
    admin = command(state, "add", "admin", "--scope", "admin")
    d = start("--audit", "all", "--audit-file", str(tmp_path / "audit.jsonl"), state=str(state))
    secret = "gpb_5ec7e7" + "f00dfeed" * 7
    for token in (secret, admin):
        for method, target, body in (("GET", "/v1/stats?since=" + secret, None),
                                     ("PUT", DATA.format("default", "x") + "?format=" + secret, b"abc"),
                                     ("PUT", DATA.format("default", "x"), secret.encode()),
                                     ("POST", S + "/batch", {"operations": [{"op": secret}]})):
            d.ask(method, target, body, token=token)
    until("all are recorded", lambda: told(requests(d, admin)) >= 8)
    d.kill()  # the write-ahead log is as it was
    found = list(everything(tmp_path))
    assert any(p.endswith("audit.jsonl") and data for p, data in found) and any(p.endswith("gpubufd.db-wal") for p,
                                                                                _ in found)
    assert not [p for p, data in found if secret.encode() in data or admin.encode() in data]


def test_modes(start, tmp_path):
    """Without a token nothing is recorded unless it is asked for; a token switches it on while the daemon runs."""
    state = str(tmp_path / "s")
    d = start(state=state)
    d.put("x", b"abc").expect(201)
    assert d.get("/v1/audit") == {"items": [], "next_cursor": None, "mode": "off"}
    admin = command(state, "add", "admin", "--scope", "admin")
    until("the token is in force", lambda: d.ask("GET", "/v1").status == 401)
    d.ask("PUT", DATA.format("default", "x"), b"abc", token=admin).expect(200)
    found = known(d, "the refusals and the change", 2, admin)
    assert found[-1]["object"] == "x" and found[-1]["status"] == 200
    events = [r["event"] for r in reversed(records(d, token=admin))]
    assert events[0] == "token.added" and events[1] == "daemon.started" and events.count("daemon.started") == 1
    command(state, "revoke", "admin")
    until("no token is needed", lambda: d.ask("GET", "/v1").status == 200)
    assert d.get("/v1/audit")["mode"] == "off"
    d.stop()

    d = start("--audit", "all", state=state)
    d.ask("GET", "/v1/stats").expect(200)
    d.put("x", b"abcd").expect(200)
    d.data("x").expect(200)
    found = until("all requests", lambda: [r for r in requests(d) if r["route"]
                                           == "/v1/sessions/{session}/buffers/{buffer}/data" and r["method"] == "GET"])
    assert found[0]["bytes"] == 4 and "token" not in found[0]
    past = [r["event"] for r in reversed(records(d)) if not r["event"] == "request"]
    assert past == ["token.added", "daemon.started", "token.revoked", "daemon.stopped", "daemon.started"]
    d.stop()

    d = start("--audit", "off", "--audit-file", str(tmp_path / "never"), state=state)
    before = records(d)
    d.put("x", b"abcd").expect(200)
    d.put("y", b"abcd").expect(201)
    assert records(d) == before and not os.path.exists(tmp_path / "never")


def test_questions(start):
    d = start("--audit", "changes")
    for i in range(30):
        d.put(f"b{i}", b"abc").expect(201)
    d.ask("POST", "/v1/sessions", {"name": "other"}).expect(201)
    d.put("x", b"abc", session="other").expect(201)
    d.ask("DELETE", S + "/buffers/none").expect(404)
    known(d, "all", 33)
    assert [r["object"] for r in requests(d, query="&session=other") if "object" in r] == ["x"]
    assert len(requests(d, query="&status=4xx")) == len(requests(d, query="&status=404")) == 1
    assert len(requests(d, query="&status=2xx")) == 32 and requests(d, query="&token=none") == []
    assert requests(d, query="&until=-3600") == [] and len(requests(d, query="&since=-3600")) == 33
    seen, cursor = [], ""
    while cursor is not None:
        page = d.get("/v1/audit?limit=7" + (f"&cursor={cursor}" if cursor else ""))
        assert len(page["items"]) <= 7
        seen += page["items"]
        cursor = page["next_cursor"]
    assert seen == records(d) and [r["id"] for r in seen] == sorted((r["id"] for r in seen), reverse=True)
    for query in ("status=99", "status=6xx", "status=x", "limit=0", "cursor=x", "since=x", "since=-5&until=-10"):
        d.ask("GET", "/v1/audit?" + query).problem(400, "invalid_argument")
    d.ask("GET", "/v1/audit?session=%20").problem(400, "invalid_name")
    d.ask("GET", "/v1/audit?what=1").expect(400)


def test_bounds(start, tmp_path):
    state = str(tmp_path)
    d = start("--audit", "changes", "--audit-rows", "20", "--audit-days", "unlimited", state=state)
    for i in range(50):
        d.put(f"b{i}", b"abc").expect(201)
    last = until("the last is recorded", lambda: (lambda r: r and r[0].get("object") == "b49" and r)(records(d)))
    assert len(last) == 20 and [r["object"] for r in last] == [f"b{i}" for i in range(49, 29, -1)]
    d.stop()
    d = start("--audit", "changes", "--audit-rows", "5", state=state)
    until("the rest is gone", lambda: len(records(d)) == 5)


def test_killed(start, tmp_path):
    """What was answered a while before a kill is there, and the next start says that some may be missing."""
    state, path = str(tmp_path / "s"), tmp_path / "audit.jsonl"
    d = start("--audit", "changes", "--audit-file", str(path), state=state)
    for i in range(20):
        d.put(f"b{i}", b"abc").expect(201)
    known(d, "all", 20)
    until("all are in the file", lambda: len(lines(path)) == 21)
    for i in range(20):
        d.put(f"c{i}", b"abc").expect(201)
    d.kill()
    d = start("--audit", "changes", "--audit-file", str(path), state=state)
    d.put("after", b"abc").expect(201)
    found = until("the record after", lambda: (lambda r: r[0].get("object") == "after" and r)(records(d)))
    events = [r["event"] for r in reversed(found)]
    at = events.index("audit.gap")
    assert events[0] == "daemon.started" and set(events[1:at]) == {"request"} and 20 <= at - 1 <= 40
    assert events[at:] == ["audit.gap", "daemon.started", "request"]
    assert "count" not in next(r for r in found if r["event"] == "audit.gap")
    assert [r["object"] for r in found if r.get("object", "").startswith("b")] == [f"b{i}" for i in range(19, -1, -1)]
    d.stop()
    lines(path)  # each is whole


def test_full_disk(start, disk):  # noqa: F811
    """The disk of the database is full: requests are answered as ever, and a gap tells of what is missing."""
    disk.daemon = d = start("--audit", "changes", state=os.path.join(disk.folder, "s"), **disk.popen)
    with contextlib.closing(d.client(unix=True)) as c:
        def ask(method, target, body=None):
            return c.ask(method, target, body)

        def dropped():
            text = ask("GET", "/metrics").expect(200).body.decode()
            return int(next((line.split()[1] for line in text.splitlines()
                             if line.startswith("gpubufd_audit_dropped_total ")), 0))

        ask("DELETE", S + "/buffers/before").problem(404, "buffer_not_found")
        until("it is recorded", lambda: any(r.get("object") == "before"
                                            for r in ask("GET", "/v1/audit").json()["items"]))
        disk.fill()
        until("the database is full", lambda: ask("POST", "/v1/sessions", {"name": f"n{next(PATHS)}"}).status == 507)
        for i in range(5):
            ask("DELETE", f"{S}/buffers/during{i}").problem(404, "buffer_not_found")
        until("they are counted", lambda: dropped() >= 5)
        ask("GET", "/v1/audit").expect(200)
        disk.make_room()
        until("changes are taken", lambda: ask("POST", "/v1/sessions", {"name": f"n{next(PATHS)}"}).status == 201)
        ask("DELETE", S + "/buffers/after").problem(404, "buffer_not_found")
        found = until("it is recorded again", lambda: (lambda r: any(x.get("object") == "after" for x in r) and r)(
            ask("GET", "/v1/audit?limit=1000").json()["items"]))
        assert sum(r.get("count", 0) for r in found if r["event"] == "audit.gap") == dropped()


def test_the_file_is_rotated(guarded):
    d, secrets, path = guarded
    write = secrets["write"]

    def change(name):
        d.ask("PUT", DATA.format("default", name), b"abc", token=write).expect(201)

    change("one")
    until("the first is written", lambda: len(lines(path)) == 2)
    os.rename(path, str(path) + ".1")
    change("two")  # it is noticed
    until("there is a new file", lambda: path.exists() and [r["object"] for r in lines(path)] == ["two"])
    os.rename(path, str(path) + ".2")
    d.process.send_signal(signal.SIGHUP)
    until("the signal makes one", path.exists)
    change("three")
    until("the third is written", lambda: [r["object"] for r in lines(path)] == ["three"])
    assert [len(lines(str(path) + n)) for n in (".1", ".2")] == [2, 1]
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_a_long_file_is_rotated(start, tmp_path):
    """In the cage, too; what is older than one file is gone."""
    path, state = tmp_path / "audit.jsonl", str(tmp_path / "s")
    old = tmp_path / "audit.jsonl.1"
    d = start("--audit", "changes", "--audit-file", str(path), "--audit-file-bytes", "8K", state=state)

    def has(p, name):
        try:
            return f'"{name}"' in p.read_text()
        except FileNotFoundError:  # it is being renamed, or does not exist yet
            return False

    for i in range(200):
        d.ask("DELETE", f"{S}/buffers/none{i}").expect(404)
        if i % 20 == 19:
            until("it is written", lambda: any(has(p, f"none{i}") for p in (path, old)))
    d.stop()
    assert path.stat().st_size < 8192 <= old.stat().st_size < 20000
    assert lines(old)[-1]["object"] != "none0" and not any(r.get("object") == "none0" for r in lines(old))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["audit.jsonl", "audit.jsonl.1", "s"]


def test_a_file_that_takes_nothing(start, tmp_path):
    """Requests continue; the log says it once a minute at most, and a metric counts."""
    path = tmp_path / "audit.jsonl"
    os.symlink("/dev/full", path)
    # which permits the folder, and not that device
    d = start("--audit", "changes", "--audit-file", str(path), "--landlock", "off")

    def failures():
        text = d.ask("GET", "/metrics").expect(200).body.decode()
        return int(next((line.split()[1] for line in text.splitlines()
                         if line.startswith("gpubufd_audit_file_failures_total ")), 0))

    for i in range(10):
        d.put(f"b{i}", b"abc").expect(201)
    until("they are counted", lambda: failures() == 11)
    until("it is said", lambda: f"are not in {path}" in d.log())
    os.unlink(path)
    d.put("last", b"abc").expect(201)
    assert until("it is written again", lambda: path.exists() and lines(path))[0]["count"] == 11
    assert len(known(d, "the table has all", 11)) == 11
    assert d.stop().count("are not in") == 1


def test_a_file_that_cannot_be_had(start, tmp_path):
    d = start("--audit", "changes", "--audit-file", str(tmp_path), wait=False)
    assert d.process.wait(60) == 70
    assert f"the audit's file {tmp_path} cannot be written" in d.log()


def test_token_commands_with_a_file(tmp_path):
    path = tmp_path / "audit.jsonl"
    command(tmp_path, "add", "a", "--session", "s", "--audit-file", str(path))
    command(tmp_path, "rotate", "a", "--audit-file", str(path))
    command(tmp_path, "revoke", "a", "--audit-file", str(path))
    command(tmp_path, "add", "b", "--audit", "off", "--audit-file", str(path))
    assert [(r["event"], r["object"], r["address"], r.get("session")) for r in lines(path)] == [
        ("token.added", "a", f"unix:{os.getuid()}", "s"), ("token.rotated", "a", f"unix:{os.getuid()}", None),
        ("token.revoked", "a", f"unix:{os.getuid()}", None)]


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes files of others")
def test_a_file_that_root_makes_is_the_daemons(tmp_path):
    """The daemon's user could not write it otherwise."""
    state, path = tmp_path / "s", tmp_path / "audit.jsonl"
    state.mkdir(mode=0o700)
    os.chown(state, 65534, 65534)
    command(state, "add", "a", "--audit-file", str(path))
    assert (path.stat().st_uid, path.stat().st_gid, path.stat().st_mode & 0o7777) == (65534, 65534, 0o600)


def test_clients(guarded):
    d, secrets, _ = guarded
    cli = Cli(url=d.url(""), GPUBUF_TOKEN=secrets["admin"])
    for i in range(3):
        d.ask("PUT", DATA.format("default", f"b{i}"), b"abc", token=secrets["write"]).expect(201)
    d.ask("GET", "/v1/snapshot", token=secrets["read"]).problem(403, "forbidden")
    known(d, "all", 4, secrets["admin"])
    rows = cli("audit").expect().table()
    assert [r["EVENT"] for r in rows] == [*["token.added"] * 4, "daemon.started", *["request"] * 4]
    assert rows[-1]["WHO"] == "read" and rows[-1]["CODE"] == "forbidden" and rows[-2]["OBJECT"] == "b2"
    assert ([r["object"] for r in cli("audit", "--json", "--limit", "2", "--status", "201").expect().json()]
            == ["b2", "b1"])
    assert len(cli("audit", "--json", "--since", "-3600", "--token", "write", "-s", "default").expect().json()) == 3
    assert cli("audit", "--limit", "0").status == 2
    with client_of(d, token=secrets["admin"]) as c:
        assert [r["object"] for r in c.audit(since=-3600, session="default", status=201, limit=2)] == ["b2", "b1"]
        assert c.audit(status="4xx", token="read")[0]["code"] == "forbidden"
    with client_of(d, token=secrets["write"]) as c, pytest.raises(gpubuf.Error):
        c.audit()


def test_follow(guarded, tmp_path):
    d, secrets, _ = guarded
    cli = Cli(url=d.url(""), GPUBUF_TOKEN=secrets["admin"])
    printed = tmp_path / "printed"
    with open(printed, "wb") as out:
        follower = cli.start("audit", "--follow", "--json", "--status", "201", stdout=out)
    for i in range(2):
        d.ask("PUT", DATA.format("default", f"b{i}"), b"abc", token=secrets["write"]).expect(201)
        until("it is printed", lambda: f'"b{i}"' in printed.read_text())
    assert interrupt(follower).expect(INTERRUPTED).err == ""
    assert [json.loads(line)["object"] for line in printed.read_text().splitlines()] == ["b0", "b1"]


def test_a_revoked_token_keeps_its_name(guarded):
    """An upload under way ends with its token; the record says whose it was."""
    d, secrets, _ = guarded
    raw = d.raw()
    raw.put(DATA.format("default", "x"), 1 << 20, "Authorization: Bearer " + secrets["write"])
    raw.send(bytes(1000))
    command(d.state, "revoke", "write")
    found = known(d, "the upload has ended", 1, secrets["admin"])
    assert found[0]["token"] == "write" and found[0]["object"] == "x" and found[0]["status"] in (0, 401)
    assert [r["event"] for r in records(d, token=secrets["admin"])].count("token.revoked") == 1
