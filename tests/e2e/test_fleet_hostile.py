"""A directory with records that no daemon wrote, nodes that are no daemons, and requests with another's ticket."""
import base64
import json
import re
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from directory import Fleet, state_of
from harness import DATA, PATIENCE_S, token, until

pytestmark = [pytest.mark.once, pytest.mark.timeout(240)]  # no memory is looked at

GIB = 1 << 30


class Directory:
    """Writes what it likes."""

    def __init__(self, url):
        self.url, self.keys = url, []

    def ask(self, what, **texts):
        body = json.dumps({k: base64.b64encode(v.encode()).decode() for k, v in texts.items()}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/v3/kv/{what}", body, method="POST"),
                               timeout=PATIENCE_S).close()

    def put(self, key, value):
        self.keys.append(key)
        self.ask("put", key="/gpubuf/main/" + key, value=value if isinstance(value, str) else json.dumps(value))

    def clean(self):
        while self.keys:
            self.ask("deleterange", key="/gpubuf/main/" + self.keys.pop())

    def node(self, name, url, **more):
        self.put("alive/" + name, {"uuid": "77", "incarnation": 5, "state": "ready", "free": [GIB], "committed": [0]})
        self.put("nodes/" + name, {"uuid": "77", "urls": {"default": url},
                                   "devices": [{"uuid": "u", "name": "n", "bytes": GIB}], **more})


@pytest.fixture(scope="module")
def fleet():
    f = Fleet()
    try:
        for name in "ab":
            f.node(name)
        yield f
    finally:
        f.stop()


@pytest.fixture
def nodes(fleet):
    return [fleet.nodes[n] for n in "ab"]


@pytest.fixture
def directory(fleet):
    d = Directory(fleet.etcd.url)
    yield d
    d.clean()


@pytest.fixture
def owned(nodes):
    a = nodes[0]
    a.ask("POST", "/v1/sessions", {"name": "owned", "fleet": True}).expect(201)
    yield "/v1/sessions/owned"
    a.ask("DELETE", "/v1/sessions/owned").expect(204)


# --- records ----------------------------------------------------------------------------------------------------------


def test_keys_that_are_no_names_hide_no_sessions(nodes, directory, owned):
    """More than a page of them, short ones and some that are longer than any key of a record."""
    for i in range(70):
        directory.put(f"sessions/!{i}", "{}")
        directory.put("sessions/" + "+" * 900 + str(i), "{}")
        directory.put("owned/a/" + "+" * 900 + str(i), "")
    for query in ("", "?limit=1", "?node=a", "?node=a&limit=1"):
        page = nodes[1].ask("GET", "/v1/fleet/sessions" + query).expect(200).json()
        assert [x["name"] for x in page["items"]] == ["owned"], query


def test_long_records_do_not_silence_the_directory(nodes, directory, owned):
    """Of a megabyte, more of them than an answer may have."""
    for i in range(10):
        directory.put(f"nodes/big{i}", "[" * 1000 + " " * (1 << 20))
        directory.put(f"sessions/big{i}", "[" * 1000 + " " * (1 << 20))
    b = nodes[1]
    assert [n["name"] for n in b.ask("GET", "/v1/fleet/nodes").expect(200).json()["items"]] == ["a", "b"]
    assert [s["name"] for s in b.ask("GET", "/v1/fleet/sessions").expect(200).json()["items"]] == ["owned"]
    b.ask("GET", "/v1/sessions/big1").problem(503, "directory_unavailable")
    b.ask("GET", owned).expect(307)


@pytest.mark.parametrize("url", ["ftp://h", "file:///etc/passwd", "http://u:p@h", "http://h\r\nX: y", "http://h/?x",
                                 "http://h/#x", "http://h\\@x", "//h", "http://"])
def test_a_node_with_a_url_that_is_none(nodes, directory, url):
    directory.node("evil", url)
    directory.put("sessions/evils", {"node": "evil", "epoch": 3, "claim": "x", "on_partition": "serve"})
    reply = nodes[1].ask("GET", "/v1/sessions/evils")
    reply.problem(503, "directory_unavailable")
    assert "X" not in reply.headers and "Location" not in reply.headers
    assert len(nodes[1].ask("GET", "/v1/fleet/targets").expect(200).json()) == 2


@pytest.mark.parametrize("record", ["", "{", "[]", "null", "[" * 3000, '{"node":"a\\r\\nX: '
                                    'y","epoch":1,"claim":"x","on_partition":"serve"}',
                                    '{"node":"a","epoch":18446744073709551616,"claim":"x","on_partition":"serve"}'])
def test_a_session_whose_record_is_none(nodes, directory, owned, record):
    directory.put("sessions/bad", record)
    for d in nodes:
        d.ask("GET", "/v1/sessions/bad").problem(503, "directory_unavailable")
        d.ask("POST", "/v1/sessions", {"name": "bad", "fleet": True}).problem(503, "directory_unavailable")
        assert [s["name"] for s in d.ask("GET", "/v1/fleet/sessions").expect(200).json()["items"]] == ["owned"]


def test_labels_that_prometheus_refuses(nodes, directory):
    labels = {"ok": "1", "a-b": "x", "node": "z", "__address__": "h:1", "": "e", "9": "x", 'q"\n': "v"}
    directory.node("odd", "http://127.0.0.1:1", labels=labels, version="v")
    odd = nodes[0].ask("GET", "/v1/fleet/targets").expect(200).json()[2]
    assert odd == {"targets": ["127.0.0.1:1"], "labels": {"node": "odd", "version": "v", "ok": "1"}}
    assert nodes[0].ask("GET", "/v1/fleet/nodes/odd").expect(200).json()["labels"] == labels


# --- nodes that are none ----------------------------------------------------------------------------------------------


class Other(ThreadingHTTPServer):
    """Another program at a node's address, which answers one thing to all."""
    daemon_threads = True

    class Handler(BaseHTTPRequestHandler):
        def any(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.close_connection = True
            try:
                self.server.answer(self.wfile)
            except OSError:
                pass

        do_GET = do_POST = any

        def log_message(self, *_):
            pass

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.url = "http://127.0.0.1:%d" % self.server_port
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def says(self, status, body=b"", *headers):
        lines = [f"HTTP/1.1 {status} x", *headers, *([] if status in (101, 204, 304)
                                                     else [f"Content-Length: {len(body)}"]), "", ""]
        self.answer = lambda out: out.write("\r\n".join(lines).encode() + body)


@pytest.fixture
def other(directory):
    server = Other()
    directory.node("other", server.url, labels={"site": "other"})
    yield server
    server.shutdown()
    server.thread.join()
    server.server_close()


@pytest.mark.parametrize("status, body", [(200, b"<html>"), (204, b""), (304, b""), (307, b""), (101, b"x"),
                                          (999, b"x"), (400, b"<html>\0\xff"), (401, b""), (409, b"{}"),
                                          (500, b"[" * 3000)])
def test_what_is_no_answer_of_a_node_is_not_passed_on(nodes, other, status, body):
    other.says(status, body, "Location: http://127.0.0.1:1/")
    reply = nodes[0].ask("POST", "/v1/fleet/sessions", {"name": "s", "select": {"site": "other"}})
    assert f"answered {status}" in reply.problem(507, "no_node_fits")["detail"] and "Location" not in reply.headers


@pytest.mark.parametrize("body", [b"{}", b"[]", b"<", b'{"name":"another"}', b""])
def test_a_session_that_was_made_and_cannot_be_read(nodes, other, body):
    other.says(201, body)
    nodes[0].ask("POST", "/v1/fleet/sessions", {"name": "s", "select": {"site": "other"}}).problem(500, "internal")


def test_a_node_that_redirects_a_move_has_given_the_session_away(nodes, other, directory):
    """As one does whose record in the directory is from before a restore."""
    directory.put("sessions/given", {"node": "other", "epoch": 3, "claim": "x", "on_partition": "serve"})
    other.says(307, b"", f"Location: {nodes[1].url('/v1/sessions/given')}")
    p = nodes[0].ask("POST", "/v1/fleet/sessions/given/move", {"to": "a"}).problem(503, "owner_unknown")
    assert '"other"' in p["detail"] and p["retryable"], p


def test_a_refusal_is_passed_on(nodes, other):
    other.says(403, b'{"code":"forbidden"}')
    assert (nodes[0].ask("POST", "/v1/fleet/sessions", {"name": "s", "select": {"site": "other"}}).expect(403).json()
            == {"code": "forbidden"})


def endless(out):
    out.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        out.write(b"x" * 65536)


def endless_head(out):
    out.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        out.write(b"X: " + b"y" * 4000 + b"\r\n")


def continues(out):
    while True:
        out.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


def slow(out):
    out.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        out.write(b"x")
        time.sleep(0.1)


@pytest.mark.parametrize("answer", [endless, endless_head, continues, slow, lambda out: out.write(b"no HTTP\r\n\r\n")])
def test_a_node_that_never_ends(nodes, other, answer):
    other.answer = answer
    stats = nodes[0].ask("GET", "/v1/fleet/stats").expect(200).json()
    assert {"node": "other", "why": "unreachable"} in stats["missing"] and len(stats["nodes"]) == 2
    assert nodes[0].rss_anon() < 64 << 20


# --- tickets ----------------------------------------------------------------------------------------------------------

LONG = "n" * 128


@pytest.fixture(scope="module")
def guarded(fleet, tmp_path_factory):
    """A node that redirects, and the owner of "held", which has not its tokens."""
    first, owner = (tmp_path_factory.mktemp(n) for n in ("first", "owner"))
    secrets = {n: token(first, "add", n, "--scope", "write") for n in ("write", LONG)}
    root = token(owner, "add", "root", "--scope", "admin")
    p, q = fleet.node("p", state=str(first), joined=False), fleet.node("q", state=str(owner), joined=False)
    p.token, q.token = secrets["write"], root
    for d in (p, q):
        until("it is joined", lambda: state_of(d) == "joined")
    q.ask("POST", "/v1/sessions", {"name": "held", "fleet": True}, token=root).expect(201)
    return p, q, secrets


def by_ticket(p, q, method, target, secret, body=None, headers=None):
    url = p.ask(method, target, body, headers, token=secret).expect(307).headers["Location"]
    assert url.startswith(q.url(""))
    return url[len(q.url("")):]


def test_a_ticket_is_for_one_request(guarded):
    p, q, secrets = guarded
    target = by_ticket(p, q, "PUT", DATA.format("held", "x"), secrets["write"], b"abc")
    path, _, query = target.partition("?")
    ticket = query.partition("ticket=")[2]
    q.ask("PUT", target, b"abc").expect(201)
    for method in ("GET", "HEAD", "POST", "PATCH"):
        assert q.ask(method, target, headers={"X-HTTP-Method-Override": "PUT"}).status in (401, 404, 405)
    for other in (path.replace("held", "%68eld"), path.replace("held", "Held"), path.replace("/x/", "/y/"),
                  path.replace("/x/", "/x%2F/")):
        q.ask("PUT", f"{other}?{query}", b"abc").problem(401, "ticket_invalid")
    for other in (path.replace("/buffers", "//buffers"), path.replace("/x/", "/./x/"), path.replace("/x/", "/y/../x/"),
                  path.replace("/buffers", "%2Fbuffers"), path + "/", path + ";a", path + "#"):
        q.ask("PUT", f"{other}?{query}", b"abc").problem(404, "no_route")
    for changed in (f"ticket={ticket}", f"via=1.2&ticket={ticket}", f"append=true&{query}",
                    f"via=1.1%26append=true&ticket={ticket}", query + "=", query + "%20",
                    f"via=1.1&ticket={ticket[:-1]}", f"via=1.1&ticket=.{ticket}", "via=1.1&ticket=" + "." * 3,
                    "via=1.1&ticket=" + "A" * 4000):
        q.ask("PUT", f"{path}?{changed}", b"abc").problem(401, "ticket_invalid")
    for twice in (f"{query}&ticket={ticket}", f"{query}&%74icket={ticket}", f"{query}&via=1.1"):
        q.ask("PUT", f"{path}?{twice}", b"abc").problem(400, "malformed_request")
    assert q.ask("GET", DATA.format("held", "x"), token=q.token).body == b"abc"


def test_a_token_of_a_long_name_gives_tickets(guarded):
    p, q, secrets = guarded
    q.ask("PUT", by_ticket(p, q, "PUT", DATA.format("held", "long"), secrets[LONG], b"abc"), b"abc").expect(201)


def test_a_key_is_the_same_through_another_node(guarded):
    """Each redirect has its own ticket; the request is the same."""
    p, q, secrets = guarded
    body, key = {"name": "keyed", "bytes": 64}, {"Idempotency-Key": "once"}
    targets = [by_ticket(p, q, "POST", "/v1/sessions/held/buffers", secrets["write"], body, key)]
    until("the next ticket is another", lambda: targets.append(by_ticket(p, q, "POST", "/v1/sessions/held/buffers",
                                                                         secrets["write"], body, key)) or
          targets[-1] != targets[0])
    made = q.ask("POST", targets[0], body, key).expect(201)
    again = q.ask("POST", targets[-1], body, key).expect(201)
    assert again.body == made.body
    q.ask("POST", targets[-1], {**body, "bytes": 32}, key).problem(422, "idempotency_key_reused")


def test_no_ticket_without_a_fleet(start, tmp_path):
    token(tmp_path, "add", "root", "--scope", "admin")
    d = start(state=str(tmp_path))
    for query in ("ticket=1.2.3.4", "via=1.1", "via=1.1&ticket=" + "A" * 43):
        d.ask("GET", "/v1/sessions/default?" + query).problem(401, "unauthenticated")
        assert re.search("unknown_parameter", d.ask("GET", "/livez?" + query).body.decode())
