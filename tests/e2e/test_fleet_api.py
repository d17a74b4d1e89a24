"""The interface of a fleet: without one, and with a real etcd and three nodes. Every answer is compared with the
document."""
import json
import os
import re
import select
import sqlite3
import threading
import urllib.parse

import pytest
from conform import interface
from directory import Fleet, state_of
from harness import DATA, PATIENCE_S, Daemon, token, until
from test_every import operations

pytestmark = [pytest.mark.once, pytest.mark.timeout(240)]  # no memory is looked at

LOCAL = ("/buffers/{buffer}/map", "/buffers/{buffer}/export", "/buffers/{buffer}/adopt")


def ask(d, method, target, body=None, headers=None, secret=None):
    r = d.ask(method, target, body, headers, token=secret)
    if method != "HEAD":
        interface(d).check(method, target, r)
    return r


def by_url(d, method, url, body=None, headers=None):
    """Follows a Location to that node, without a token."""
    parts = urllib.parse.urlsplit(url)
    assert parts.netloc == "{}:{}".format(*d.tcp)
    return ask(d, method, url[len(f"http://{parts.netloc}"):], body, headers)


def events(d):
    page = d.ask("GET", "/v1/feed?type=fleet.", headers={"Accept": "application/json"}).expect(200).json()
    return [e["type"] for e in page["items"]]


def names(reply):
    return [x["name"] for x in reply.json()["items"]]


# --- without a fleet --------------------------------------------------------------------------------------------------


def test_without_a_fleet(start):
    d = start()
    assert ask(d, "GET", "/v1/fleet").expect(200).json() == {"state": "none"}
    for op in operations(d):
        if op.route.startswith("/v1/fleet/"):
            op.answered(d, 501, op.path()).problem(501, "unsupported")
    ask(d, "POST", "/v1/sessions", {"name": "s", "fleet": True}).problem(501, "unsupported")
    assert ask(d, "POST", "/v1/sessions", {"name": "s"}).expect(201).json()["fleet"] is None
    ask(d, "POST", "/v1/sessions", {"name": "t", "on_partition": "stop"}).problem(400, "invalid_argument")
    ask(d, "GET", "/v1/sessions/none").problem(404, "session_not_found")
    ask(d, "GET", "/v1/sessions/s?via=1.1").problem(400, "unknown_parameter")
    threads = {open(f"/proc/{d.process.pid}/task/{t}/comm").read().strip()
               for t in os.listdir(f"/proc/{d.process.pid}/task")}
    assert "gb-http" in threads and "gb-fleet" not in threads
    assert "gpubufd_fleet" not in d.ask("GET", "/metrics").expect(200).body.decode()


@pytest.mark.parametrize("options, words", [
    (["--fleet", "ftp://127.0.0.1:1"], "--fleet"), (["--fleet", "etcd:127.0.0.1:1"], "--fleet"),
    (["--fleet", "etcd:http://127.0.0.1:1,"], "--fleet"), (["--fleet-node", "a"], "--fleet-node needs --fleet"),
    (["--advertise", "http://a:1"], "--advertise needs --fleet"),
    (["--fleet", "etcd:http://127.0.0.1:1", "--fleet-node", "a/b"], "--fleet-node"),
    (["--fleet", "etcd:http://127.0.0.1:1", "--fleet-ttl", "1"], "--fleet-ttl"),
    (["--fleet", "etcd:http://127.0.0.1:1", "--fleet-label", "node=x"], "--fleet-label"),
    (["--fleet", "etcd:http://127.0.0.1:1", "--fleet-label", "a=x,a=y"], "given twice"),
    (["--fleet", "etcd:http://127.0.0.1:1", "--fleet-cert", "x"], "go together"),
    (["--fleet", "etcd:http://127.0.0.1:1", "--advertise", "ftp://a:1"], "--advertise"),
    (["--fleet", "etcd:http://127.0.0.1:1", "--advertise", "http://a:1/path"], "--advertise"),
    (["--fleet", "etcd:http://127.0.0.1:1", "--listen", "none", "--socket", "none", "--listen", "lan=0.0.0.0:0"],
     "--advertise lan=http")])
def test_options_are_checked_before_anything_is_opened(options, words, tmp_path):
    d = Daemon("host", *options, state=str(tmp_path / "state"),
               listen=() if "--listen" in options else ("--listen", "127.0.0.1:0"), wait=False)
    try:
        assert d.process.wait(60) == 64 and words in d.log(), d.log()
        assert not (tmp_path / "state").exists()
    finally:
        d.clean()


# --- three nodes ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fleet():
    f = Fleet()
    for name in "abc":
        f.node(name, "--fleet-label", "site=" + ("x" if name == "a" else "y"))
    yield f
    f.stop()


@pytest.fixture
def nodes(fleet):
    return [fleet.nodes[n] for n in "abc"]


def test_this_node_and_all(nodes):
    a, b, c = nodes
    me = ask(b, "GET", "/v1/fleet").expect(200).json()
    assert (me["state"], me["fleet"], me["node"], me["why"], me["labels"],
            me["draining"]) == ("joined", "main", "b", None, {"site": "y"}, False)
    assert me["urls"] == {"default": b.url("")} and me["cluster_id"]
    lists = [ask(d, "GET", "/v1/fleet/nodes").expect(200).json()["items"] for d in nodes]
    assert [n["name"] for n in lists[0]] == ["a", "b", "c"] and all(n["alive"] for n in lists[0])
    assert lists[0][1]["uuid"] == me["uuid"] and lists[0][1]["incarnation"] == me["incarnation"]
    assert lists[0][0]["devices"][0]["bytes"] == 64 << 20
    assert ask(a, "GET", "/v1/fleet/nodes/b").expect(200).json()["name"] == "b"
    ask(a, "GET", "/v1/fleet/nodes/none").problem(404, "node_not_found")
    ask(a, "GET", "/v1/fleet/nodes/n%20n").problem(400, "invalid_name")
    targets = ask(c, "GET", "/v1/fleet/targets").expect(200).json()
    assert [t["targets"] for t in targets] == [["{}:{}".format(*d.tcp)] for d in nodes]
    assert targets[0]["labels"] == {"node": "a", "version": lists[0][0]["version"], "site": "x"}


def test_the_uuid_stays_with_the_state(fleet, nodes, tmp_path):
    d = fleet.node("again", state=str(tmp_path))
    uuid = ask(d, "GET", "/v1/fleet").json()["uuid"]
    assert 0 < int(uuid) < 1 << 63
    d.stop()
    d = fleet.node("again", state=str(tmp_path))
    assert ask(d, "GET", "/v1/fleet").json()["uuid"] == uuid
    d.stop()
    until("it has left", lambda: not ask(nodes[0], "GET", "/v1/fleet/nodes/again").json()["alive"])
    ask(nodes[0], "DELETE", "/v1/fleet/nodes/again").expect(204)


def test_put_confirms_where_the_session_is(nodes):
    a, b, _ = nodes
    body = {"fleet": True, "labels": {"k": "v"}, "quota": {"bytes": 4096}}
    assert ask(a, "PUT", "/v1/sessions/put", body).expect(201).headers["Gpubuf-Epoch"] == "1"
    ask(a, "PUT", "/v1/sessions/put", body).expect(200)
    for asked in (body, {}):
        r = ask(b, "PUT", "/v1/sessions/put", asked).expect(307)
        assert r.headers["Location"].startswith(a.url("/v1/sessions/put?"))
    assert ask(a, "PUT", "/v1/sessions/put", {"fleet": False}).problem(409, "session_exists")["detail"].endswith(
        ": fleet")
    ask(a, "DELETE", "/v1/sessions/put").expect(204)
    until("it is forgotten", lambda: ask(b, "GET", "/v1/fleet/sessions/put").status == 404)
    ask(b, "PUT", "/v1/sessions/put", body).expect(201)
    ask(b, "DELETE", "/v1/sessions/put").expect(204)


def test_nodes_that_put_the_same_at_once(nodes):
    """One of them makes it, the others send there."""
    for turn in range(5):
        replies, start, target = [], threading.Barrier(6), f"/v1/sessions/race{turn}"

        def put(node):
            def known():  # the directory may name the owner before the owner has the session: owner_unknown, try again
                reply = ask(node, "PUT", target, {"fleet": True})
                return None if reply.status == 503 and reply.problem(503, "owner_unknown")["retryable"] else reply

            start.wait()
            replies.append((node, until("the owner is known", known)))

        threads = [threading.Thread(target=put, args=(nodes[i % 3],)) for i in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        owner = next(node for node, reply in replies if reply.status == 201)
        assert [reply.status for _, reply in replies].count(201) == 1
        for node, reply in replies:
            assert reply.status in ((200, 201) if node is owner else (307,)), (reply, reply.body)
            assert node is owner or reply.headers["Location"].startswith(owner.url(target))
        ask(owner, "DELETE", target).expect(204)


def test_register_find_and_delete(nodes):
    a, b, _ = nodes
    r = ask(a, "POST", "/v1/sessions", {"name": "reg", "fleet": True, "on_partition": "stop", "labels": {"k": "v"},
                                        "quota": {"bytes": 4096}}).expect(201)
    assert r.json()["fleet"] == {"epoch": 1, "on_partition": "stop"} and r.headers["Gpubuf-Epoch"] == "1"
    for d in (a, b):
        where = ask(d, "GET", "/v1/fleet/sessions/reg").expect(200).json()
        assert where == {"name": "reg", "node": "a", "epoch": 1, "on_partition": "stop", "labels": {"k": "v"},
                         "url": a.url("/v1/sessions/reg"), "owner_alive": True, "absent_s": 0, "stale": False}
    assert ask(a, "GET", "/v1/sessions/reg").expect(200).headers["Gpubuf-Epoch"] == "1"
    assert "Gpubuf-Epoch" not in ask(a, "GET", "/v1/sessions/default").headers
    entry = next(x for x in ask(b, "GET", "/v1/fleet/sessions?node=a").expect(200).json()["items"]
                 if x["name"] == "reg")
    assert entry["quota"] == {"bytes": 4096} and entry["node"] == "a"
    for body in ({"name": "reg", "fleet": True}, {"name": "reg"}):
        r = ask(b, "POST", "/v1/sessions", body)
        r.problem(409, "session_exists")
        assert r.headers["Location"] == a.url("/v1/sessions/reg")
    ask(a, "POST", "/v1/sessions", {"name": "reg", "fleet": True}).problem(409, "session_exists")
    ask(a, "DELETE", "/v1/sessions/reg").expect(204)
    until("it is forgotten", lambda: ask(b, "GET", "/v1/fleet/sessions/reg").status == 404)
    ask(b, "GET", "/v1/sessions/reg").problem(404, "session_not_found")
    assert ask(b, "POST", "/v1/sessions", {"name": "reg"}).expect(201).json()["fleet"] is None
    ask(b, "DELETE", "/v1/sessions/reg").expect(204)


def test_one_that_expires_is_unregistered(nodes):
    a, b, _ = nodes
    ask(a, "POST", "/v1/sessions", {"name": "short", "fleet": True, "idle_ttl_s": 1}).expect(201)
    until("it has expired and is forgotten", lambda: "short" not in names(ask(b, "GET", "/v1/fleet/sessions")))


def test_pages_and_refusals(nodes):
    a, b, _ = nodes
    for i in range(3):
        ask(b, "POST", "/v1/sessions", {"name": f"page{i}", "fleet": True}).expect(201)
    first = ask(a, "GET", "/v1/fleet/sessions?node=b&limit=2").expect(200).json()
    assert [x["name"] for x in first["items"]] == ["page0", "page1"] and first["next_cursor"] == "page1"
    rest = ask(a, "GET", "/v1/fleet/sessions?node=b&cursor=page1").expect(200).json()
    assert [x["name"] for x in rest["items"]] == ["page2"] and rest["next_cursor"] is None
    for of in ("", "node=b&"):
        first = ask(a, "GET", f"/v1/fleet/sessions?{of}prefix=page&limit=1")
        assert names(first) == ["page0"] and "prefix=page" in first.headers["Link"]
        assert names(ask(a, "GET", f"/v1/fleet/sessions?{of}prefix=page&cursor=page0")) == ["page1", "page2"]
        assert names(ask(a, "GET", f"/v1/fleet/sessions?{of}prefix=page2")) == ["page2"]
        assert names(ask(a, "GET", f"/v1/fleet/sessions?{of}prefix=pagf")) == []
    assert names(ask(a, "GET", "/v1/fleet/sessions?node=a&prefix=page")) == []
    for query in ("limit=0", "node=%2F", "cursor=%2F", "prefix=%2F", "prefix=page&cursor=a"):
        assert ask(a, "GET", "/v1/fleet/sessions?" + query).status == 400
    ask(a, "GET", "/v1/fleet/sessions/%2F").problem(400, "invalid_name")
    ask(a, "POST", "/v1/sessions", {"name": "n", "fleet": True,
                                    "on_partition": "maybe"}).problem(400, "invalid_argument")
    ask(a, "POST", "/v1/sessions", {"name": "n", "fleet": True,
                                    "labels": {"k": "v" * 1100}}).problem(400, "invalid_argument")
    for i in range(3):
        ask(b, "DELETE", f"/v1/sessions/page{i}").expect(204)


@pytest.fixture
def elsewhere(nodes):
    """A session that node a has."""
    a = nodes[0]
    ask(a, "POST", "/v1/sessions", {"name": "there", "fleet": True}).expect(201)
    yield nodes
    ask(a, "DELETE", "/v1/sessions/there").expect(204)


def test_every_operation_of_a_session_is_redirected(elsewhere):
    a, b, _ = elsewhere
    described = interface(b)
    count = 0
    for op in operations(b):
        if not op.route.startswith("/v1/sessions/{session}"):
            continue
        target = op.path(session="there")
        reply = op.told(b, target)
        if op.route.endswith(LOCAL):
            assert reply.problem(409, "not_here")["detail"].find('"a"') > 0
            continue
        assert reply.status == 307, (op.method, op.route, reply)
        assert op.method == "HEAD" or reply.json() == {"node": "a", "url": reply.headers["Location"], "epoch": 1}
        assert reply.headers["Location"] == a.url(target) + ("&" if "?" in target else "?") + "via=1.1"
        assert (reply.headers["Gpubuf-Owner"], reply.headers["Gpubuf-Epoch"],
                reply.headers["Cache-Control"]) == ("a", "1", "no-store")
        count += 1
    assert count > 50 and isinstance(described, type(interface(a)))


def test_every_operation_of_a_session_is_superseded(elsewhere):
    """Each request knows of a higher epoch than the one before, which the directory may have denied by then."""
    a, _, _ = elsewhere
    ask(a, "POST", "/v1/sessions", {"name": "stale", "fleet": True}).expect(201)
    asked = [op for op in operations(a) if op.route.startswith("/v1/sessions/{session}")]
    for epoch, op in enumerate(asked, 2):
        reply = op.told(a, op.path(session="stale"), [f"Gpubuf-Epoch: {epoch}"])
        assert reply.status == 409 and (op.method == "HEAD" or reply.problem(409, "superseded")["epoch"]
                                        == 1), (op.method, op.route, reply)
    assert len(asked) > 50
    until("it was denied", lambda: ask(a, "DELETE", "/v1/sessions/stale").status == 204)


def test_bytes_through_another_node(elsewhere):
    a, b, c = elsewhere
    data = os.urandom(3 << 20)
    target = DATA.format("there", "x")
    with b.raw() as r:  # no byte of the body is taken before the answer
        r.put(target, len(data), expect=True)
        reply = r.reply()
        assert reply.status == 307
    assert by_url(a, "PUT", reply.headers["Location"], data).status == 201
    got = ask(c, "GET", target + "?offset=7&length=9").expect(307)
    assert "offset=7&length=9&via=1.1" in got.headers["Location"]
    assert by_url(a, "GET", got.headers["Location"]).body == data[7:16]
    head = ask(c, "HEAD", target)
    assert head.status == 307 and head.headers["Location"]
    before = int(re.search(r"^gpubufd_fleet_redirects_total (\d+)", b.ask("GET", "/metrics").expect(200).body.decode(),
                           re.M).group(1))
    assert before >= 1


def test_via(elsewhere):
    a, b, _ = elsewhere
    s = "/v1/sessions/there"
    ask(a, "GET", s + "?via=1.1").expect(200)  # it has it
    ask(b, "GET", s + "?via=1.1").problem(503, "owner_unknown")  # sent here by one that knew as much
    ask(b, "GET", s + "?via=0.3").problem(503, "owner_unknown")  # too often
    r = ask(b, "GET", s + "?via=0.2").expect(307)
    assert r.headers["Location"] == a.url(s + "?via=1.3")
    for via in ("x", "1", "1.", ".1", "1.2.3"):
        ask(b, "GET", f"{s}?via={via}").problem(400, "invalid_argument")
    ask(b, "GET", "/v1/sessions/none?via=1.1").problem(404, "session_not_found")


def test_place(nodes):
    a, b, c = nodes
    r = ask(b, "POST", "/v1/fleet/sessions", {"name": "put", "select": {"site": "x"}, "quota": {"bytes": 1 << 20},
                                              "on_partition": "stop"}).expect(201)
    made = r.json()
    assert (made["node"] == "a" == r.headers["Gpubuf-Owner"] and made["url"] == a.url("/v1/sessions/put")
            == r.headers["Location"])
    assert made["fleet"] == {"epoch": 1, "on_partition": "stop"} and made["quota"]["bytes"] == 1 << 20
    r = ask(c, "POST", "/v1/fleet/sessions", {"name": "put"})
    r.problem(409, "session_exists")
    assert r.headers["Location"] == a.url("/v1/sessions/put")
    assert "site" in ask(c, "POST", "/v1/fleet/sessions",
                         {"name": "q", "select": {"site": "z"}}).problem(507, "no_node_fits")["detail"] or True
    ask(c, "POST", "/v1/fleet/sessions", {"name": "q", "quota": {"bytes": 1 << 40}}).problem(507, "no_node_fits")
    ask(c, "POST", "/v1/fleet/sessions", {"name": "q", "priority": -1}).expect(400)
    ask(c, "POST", "/v1/fleet/sessions", {"name": "q", "select": []}).expect(400)
    ask(c, "POST", "/v1/fleet/sessions", {"select": {}}).problem(400, "invalid_argument")
    key = {"Idempotency-Key": "place1"}
    one = ask(c, "POST", "/v1/fleet/sessions", {"name": "keyed"}, key).expect(201)
    assert ask(c, "POST", "/v1/fleet/sessions", {"name": "keyed"}, key).expect(201).json() == one.json()
    ask(c, "POST", "/v1/fleet/sessions", {"name": "other"}, key).problem(422, "idempotency_key_reused")
    for d, name in ((a, "put"), (next(x for x in nodes if x.name == one.json()["node"]), "keyed")):
        ask(d, "DELETE", f"/v1/sessions/{name}").expect(204)


def test_a_key_under_way(nodes):
    """409 with Retry-After: another process holds the database's lock, so that the reply of the first is not kept."""
    a, _, c = nodes
    database = sqlite3.connect(os.path.join(c.state, "gpubufd.db"), isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    body = json.dumps({"name": "locked", "select": {"site": "x"}}).encode()
    with c.raw() as first, c.raw() as second:
        for r in (first, second):
            r.request("POST", "/v1/fleet/sessions", ["Content-Type: application/json", f"Content-Length: {len(body)}",
                                                     "Idempotency-Key: locked"], body)
        heard = select.select([first.sock, second.sock], [], [], PATIENCE_S)[0]
        early, late = (first, second) if first.sock in heard else (second, first)
        reply = early.reply()
        interface(c).check("POST", "/v1/fleet/sessions", reply)
        reply.problem(409, "idempotency_key_in_use")
        assert int(reply.headers["Retry-After"]) >= 1
        database.execute("ROLLBACK")
        database.close()
        late.reply().expect(201)
    ask(a, "DELETE", "/v1/sessions/locked").expect(204)


def test_drain(nodes):
    a, b, _ = nodes
    r = ask(b, "POST", "/v1/fleet/nodes/a/drain", {}).expect(307)
    assert r.headers["Location"].startswith(a.url("/v1/fleet/nodes/a/drain?via=0.1"))
    assert by_url(a, "POST", r.headers["Location"], {}).expect(200).json()["draining"]
    until("others see it", lambda: ask(b, "GET", "/v1/fleet/nodes/a").json()["draining"])
    ask(b, "POST", "/v1/fleet/sessions", {"name": "q", "select": {"site": "x"}}).problem(507, "no_node_fits")
    ask(b, "POST", "/v1/fleet/nodes/a/undrain", {}).expect(307)
    assert not ask(a, "POST", "/v1/fleet/nodes/a/undrain", {}).expect(200).json()["draining"]
    until("others see it", lambda: not ask(b, "GET", "/v1/fleet/nodes/a").json()["draining"])
    for verb in ("drain", "undrain"):
        ask(b, "POST", f"/v1/fleet/nodes/none/{verb}", {}).problem(404, "node_not_found")
        ask(b, "POST", f"/v1/fleet/nodes/n%20n/{verb}", {}).problem(400, "invalid_name")
        ask(b, "POST", f"/v1/fleet/nodes/a/{verb}?via=0.1", {}).problem(503, "owner_unknown")


def test_stats(nodes):
    a, b, c = nodes
    a.put("sum", b"x" * 1000).expect(201)
    b.put("sum", b"x" * 234).expect(201)
    stats = ask(c, "GET", "/v1/fleet/stats").expect(200).json()
    assert [n["node"] for n in stats["nodes"]] == ["a", "b", "c"] and stats["missing"] == []
    for key in stats["sums"]:
        assert stats["sums"][key] == sum(n["stats"][key] for n in stats["nodes"])
    assert stats["nodes"][0]["stats"]["buffer_bytes"] >= 1000 and stats["sums"]["buffer_bytes"] >= 1234
    for d in (a, b):
        d.ask("DELETE", "/v1/sessions/default/buffers/sum").expect(204)


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_tickets(fleet, tmp_path):
    """The token is known to the node that redirects alone."""
    for name in ("p", "q"):
        (tmp_path / name).mkdir()
    state = str(tmp_path / "p")
    secrets = {n: token(state, "add", n, "--scope", n) for n in ("read", "write", "admin")}
    secrets["bound"] = token(state, "add", "bound", "--scope", "write", "--session", "held")
    secrets["prefix"] = token(state, "add", "prefix", "--scope", "write", "--prefix", "pre")
    q_secret = token(str(tmp_path / "q"), "add", "root", "--scope", "admin")
    p = fleet.node("p", state=state, joined=False)
    q = fleet.node("q", state=str(tmp_path / "q"), joined=False)
    p.token, q.token = secrets["admin"], q_secret
    for d in (p, q):
        until("it is joined", lambda: state_of(d) == "joined")
    ask(q, "POST", "/v1/sessions", {"name": "held", "fleet": True}, secret=q_secret).expect(201)
    target = DATA.format("held", "x")
    ask(p, "PUT", target, b"abc").problem(401, "unauthenticated")
    ask(p, "PUT", target, b"abc", secret=secrets["read"]).problem(403, "forbidden")
    url = ask(p, "PUT", target, b"abc", secret=secrets["write"]).expect(307).headers["Location"]
    assert "via=1.1&ticket=" in url
    by_url(q, "PUT", url, b"abc").expect(201)
    url = ask(p, "GET", target, secret=secrets["read"]).expect(307).headers["Location"]
    assert by_url(q, "GET", url).expect(200).body == b"abc"
    forged = [url[:-1] + ("A" if url[-1] != "A" else "B"), url.replace("/x/data", "/y/data"),
              url.replace("via=1.1", "via=1.2"), url.replace("via=1.1", "offset=1&via=1.1"),
              re.sub("ticket=.*", "ticket=", url), re.sub("ticket=.*", "ticket=nonsense", url)]
    for false in forged:
        by_url(q, "GET", false).problem(401, "ticket_invalid")
    by_url(q, "DELETE", url.replace("/data", "")).problem(401, "ticket_invalid")
    by_url(p, "GET", url.replace(q.url(""), p.url(""))).problem(401, "ticket_invalid")  # it is for the other node
    ask(q, "GET", target).problem(401, "unauthenticated")
    # What the token of the first node may not do, its ticket may not either.
    url = ask(p, "GET", "/v1/sessions/held/buffers/x?attributes=true",
              secret=secrets["read"]).expect(307).headers["Location"]
    by_url(q, "GET", url).problem(403, "forbidden")
    # A token with a prefix gives no ticket; one that is bound to this session does, for this session.
    assert "ticket" not in ask(p, "PUT", DATA.format("held", "pre1"), b"abc",
                               secret=secrets["prefix"]).expect(307).headers["Location"]
    url = ask(p, "PUT", target, b"abcd", secret=secrets["bound"]).expect(307).headers["Location"]
    by_url(q, "PUT", url, b"abcd").expect(200)
    copy = "/v1/sessions/held/buffers/y/copy"
    url = ask(p, "POST", copy, {"from": "default/z"}, secret=secrets["bound"]).expect(307).headers["Location"]
    by_url(q, "POST", url, {"from": "default/z"}).problem(403, "forbidden")
    # Placing and asking all nodes goes by tickets too; drain of another node as well.
    made = ask(p, "POST", "/v1/fleet/sessions", {"name": "placed"}, secret=secrets["write"]).expect(201).json()
    stats = ask(p, "GET", "/v1/fleet/stats", secret=secrets["read"]).expect(200).json()
    assert {"p", "q"} <= {n["node"] for n in stats["nodes"]}
    url = ask(p, "POST", "/v1/fleet/nodes/q/drain", {}, secret=secrets["admin"]).expect(307).headers["Location"]
    assert by_url(q, "POST", url, {}).expect(200).json()["draining"]
    owner = next(d for d in fleet.nodes.values() if d.name == made["node"])
    owner.ask("DELETE", "/v1/sessions/placed", token=getattr(owner, "token", None)).expect(204)
    # The audit names the token, and neither the log nor the documents show the ticket.
    audit = ask(q, "GET", "/v1/audit", secret=q_secret).expect(200).json()["items"]
    assert "ticket:write" in [x.get("token") for x in audit]
    assert "ticket" not in by_url(q, "GET", forged[0]).problem(401, "ticket_invalid")["instance"]
    ask(q, "DELETE", "/v1/sessions/held", secret=q_secret).expect(204)
    for d in (p, q):
        log = d.stop()
        assert "ticket=" not in log
        fleet.nodes.pop(d.name)
    a = fleet.nodes["a"]
    for name in ("p", "q"):
        until("it has left", lambda: not ask(a, "GET", f"/v1/fleet/nodes/{name}").json()["alive"])
        ask(a, "DELETE", f"/v1/fleet/nodes/{name}").expect(204)


# --- networks ---------------------------------------------------------------------------------------------------------


def test_networks(fleet, tmp_path):
    a = fleet.nodes["a"]
    d = fleet.node("net", listen=("--listen", "127.0.0.1:0", "--listen", "lan=127.0.0.1:0"), state=str(tmp_path))
    lan = d.addresses[1]
    me = ask(d, "GET", "/v1/fleet").json()
    assert me["urls"] == {"default": d.url(""), "lan": "http://" + lan}
    ask(a, "POST", "/v1/sessions", {"name": "far", "fleet": True}).expect(201)
    assert ask(d, "GET", "/v1/sessions/far").status == 307
    host, port = lan.split(":")
    with Daemon.raw(Address(host, int(port))) as r:  # the other node is not in that network
        r.request("GET", "/v1/sessions/far")
        r.reply().problem(503, "node_unreachable")
    over_unix = d.client(unix=True).ask("GET", "/v1/sessions/far")
    assert over_unix.status == 307 and over_unix.headers["Location"].startswith(a.url(""))
    ask(a, "DELETE", "/v1/sessions/far").expect(204)
    d.stop()
    fleet.nodes.pop("net")
    until("it has left", lambda: not ask(a, "GET", "/v1/fleet/nodes/net").json()["alive"])
    ask(a, "DELETE", "/v1/fleet/nodes/net").expect(204)


class Address:
    def __init__(self, *tcp):
        self.tcp = tcp


# --- what is not there ------------------------------------------------------------------------------------------------


def test_an_absent_node(fleet, nodes):
    a = nodes[0]
    d = fleet.node("gone")
    ask(d, "POST", "/v1/sessions", {"name": "lost", "fleet": True}).expect(201)
    ask(a, "DELETE", "/v1/fleet/nodes/gone").problem(409, "node_alive")
    d.kill()
    fleet.nodes.pop("gone").clean()
    until("its lease has run out", lambda: not ask(a, "GET", "/v1/fleet/nodes/gone").json()["alive"])
    r = until("it counts as absent", lambda: (lambda x: x if x.status == 503
                                              else None)(ask(a, "GET", "/v1/sessions/lost")))
    p = r.problem(503, "owner_absent")
    assert ((p["node"], p["epoch"], p["on_partition"]) == ("gone", 1, "serve") and p["absent_s"] >= 0
            and r.headers["Retry-After"] == "10")
    assert ask(a, "GET", "/v1/fleet/sessions/lost").expect(200).json()["owner_alive"] is False
    assert {"node": "gone", "why": "not alive"} in ask(a, "GET", "/v1/fleet/stats").json()["missing"]
    assert "gone" in [t["labels"]["node"] for t in ask(a, "GET", "/v1/fleet/targets").json()]
    ask(a, "DELETE", "/v1/fleet/nodes/none").problem(404, "node_not_found")
    ask(a, "DELETE", "/v1/fleet/nodes/n%20n").problem(400, "invalid_name")
    ask(a, "DELETE", "/v1/fleet/nodes/gone").expect(204)
    until("its session is forgotten", lambda: ask(a, "GET", "/v1/sessions/lost").status == 404)


def test_a_silent_directory():
    """Local sessions continue; what is not known is 503, never 404."""
    f = Fleet()
    try:
        a, b = f.node("a"), f.node("b")
        for name in ("kept", "known"):
            ask(a, "POST", "/v1/sessions", {"name": name, "fleet": True}).expect(201)
        ask(b, "GET", "/v1/sessions/known").expect(307)
        f.etcd.kill()
        r = until("a look-up fails", lambda: (lambda x: x if x.status == 503
                                              else None)(ask(b, "GET", "/v1/sessions/kept")))
        assert r.problem(503, "directory_unavailable") and r.headers["Retry-After"] == "5"
        for op in operations(b):
            # the latter is a hub's
            if op.route.startswith("/v1/fleet/") and not op.route.endswith(("/copies", "/{op}")):
                reply = op.told(b, op.path(session="none", node="none"))
                assert reply.status == 503, (op.method, op.route, reply)
        assert ask(b, "GET", "/v1/sessions/known").status == 307  # remembered
        ask(b, "POST", "/v1/sessions", {"name": "new", "fleet": True}).problem(503, "directory_unavailable")
        ask(b, "POST", "/v1/fleet/sessions", {"name": "new"}).expect(503)
        until("it is alone", lambda: state_of(a) != "joined")
        r = ask(a, "GET", "/v1/sessions/kept").expect(200)
        assert re.fullmatch(r"alone; since=\d+", r.headers["Gpubuf-Fleet"]) and r.headers["Gpubuf-Epoch"] == "1"
        assert ask(a, "GET", "/v1/fleet/sessions/kept").expect(200).json()["url"] == a.url("/v1/sessions/kept")
        ask(a, "DELETE", "/v1/sessions/kept").expect(204)  # is remembered
        ask(a, "PUT", DATA.format("known", "x"), b"abc").expect(201)
        assert ask(a, "POST", "/v1/sessions", {"name": "made-alone"}).expect(201).json()["fleet"] is None
        ask(b, "POST", "/v1/fleet/nodes/b/drain", {}).expect(200)
        f.etcd.start()
        for d in (a, b):
            f.joined(d)
        until("it is forgotten", lambda: "kept" not in names(ask(b, "GET", "/v1/fleet/sessions")))
        assert "known" in names(ask(b, "GET", "/v1/fleet/sessions"))
        assert a.data("x", "known").body == b"abc"
        types = until("the last event is in the log", lambda: (lambda t: t if t.count("fleet.joined") == 2
                                                               else None)(events(a)))
        assert types[0] == "fleet.joined" and set(types) & {"fleet.alone", "fleet.expired"}
    finally:
        f.stop()


def test_sessions_stay_registered_after_a_restart(fleet, nodes, tmp_path):
    a = nodes[0]
    d = fleet.node("back", state=str(tmp_path))
    ask(d, "POST", "/v1/sessions", {"name": "stays", "fleet": True}).expect(201)
    d.stop()
    d = fleet.node("back", state=str(tmp_path))
    assert ask(d, "GET", "/v1/sessions/stays").expect(200).json()["fleet"] == {"epoch": 1, "on_partition": "serve"}
    r = until("it is found", lambda: (lambda x: x if x.status == 307 else None)(ask(a, "GET", "/v1/sessions/stays")))
    assert r.headers["Location"] == d.url("/v1/sessions/stays?via=1.1")
    ask(d, "DELETE", "/v1/sessions/stays").expect(204)
    d.stop()
    fleet.nodes.pop("back")
    until("it has left", lambda: not ask(a, "GET", "/v1/fleet/nodes/back").json()["alive"])
    ask(a, "DELETE", "/v1/fleet/nodes/back").expect(204)
    assert json.loads(ask(a, "GET", "/v1/fleet/nodes").body)["items"]
