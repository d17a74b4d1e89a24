"""What a client sees at the nodes of a fleet: redirects before the body, tickets, loops that end; and a daemon in no
fleet."""
import base64
import hashlib
import hmac
import json
import os
import subprocess
import time
import urllib.parse

import pytest

from etcd_run import token
from fleet import with_tokens
from harness import DATA, PATIENCE_S, Daemon, until

pytestmark = [pytest.mark.once, pytest.mark.timeout(240)]

BIG = os.urandom(5_000_000)


fleet = pytest.fixture(scope="module")(with_tokens)


@pytest.fixture
def session(fleet, request):
    """A session of node b."""
    name = request.node.name.replace("[", ".").replace("]", "")
    fleet.make("b", name)
    yield name
    fleet.ask("b", "DELETE", "/v1/sessions/" + name).expect(204)


def curl(fleet, name, target, *args, input=None):
    """curl -L at that node: (status, redirects, body)."""
    run = subprocess.run(["curl", "-sSL", "--max-time", str(PATIENCE_S), "-H", "Authorization: Bearer "
                          f"{fleet.tokens[name]}", "-w",
                          "\n%{http_code} %{num_redirects}", *args, fleet[name].url(target)], input=input,
                         capture_output=True)
    assert run.returncode == 0, run.stderr
    body, _, said = run.stdout.rpartition(b"\n")
    return (*map(int, said.split()), body)


# --- redirects --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["file", "chunked", "stdin", "binary"])
@pytest.mark.parametrize("name", "abc")
def test_an_upload_by_curl_reaches_the_owner(fleet, session, tmp_path, way, name):
    (tmp_path / "x").write_bytes(BIG)
    args = {"file": ["-T", tmp_path / "x"], "chunked": ["-T", tmp_path / "x", "-H", "Transfer-Encoding: chunked"],
            "stdin": ["-T", "-"], "binary": ["-X", "PUT", "-H", "Content-Type: application/octet-stream",
                                             "--data-binary", f"@{tmp_path}/x"]}[way]
    target = DATA.format(session, "x") + f"?dtype=uint8&shape={len(BIG)}"
    status, redirects, _ = curl(fleet, name, target, *args, input=BIG if way == "stdin" else None)
    assert (status, redirects) == (201, int(name != "b"))
    assert fleet.ask("b", "GET", DATA.format(session, "x")).expect(200).body == BIG
    assert fleet.ask("a", "GET", "/v1/stats").json()["buffers"]["count"] == 0


@pytest.mark.parametrize("name", "ac")
def test_other_requests_by_curl_reach_the_owner(fleet, session, name):
    data = DATA.format(session, "x")
    fleet.ask("b", "PUT", data, b"0123456789").expect(201)
    assert curl(fleet, name, data, "-r", "2-4") == (206, 1, b"234")
    assert curl(fleet, name, data + "?offset=1", "-X", "PATCH", "-H", "Content-Type: application/octet-stream",
                "--data-binary", "ab")[:2] == (200, 1)
    assert fleet.ask("b", "GET", data).expect(200).body == b"0ab3456789"
    assert curl(fleet, name, f"/v1/sessions/{session}/buffers/x", "-X", "PATCH", "-H", "Content-Type: application/json",
                "-d", '{"labels":{"k":"v"}}')[:2] == (200, 1)
    assert json.loads(curl(fleet, name, f"/v1/sessions/{session}/buffers/x")[2])["labels"] == {"k": "v"}
    assert curl(fleet, name, f"/v1/sessions/{session}/buffers/x", "-X", "DELETE")[:2] == (204, 1)
    assert curl(fleet, name, f"/v1/sessions/{session}/buffers/x")[:2] == (404, 1)
    status, redirects, body = curl(fleet, name, "/v1/sessions/none/buffers/x")
    assert (status, redirects, json.loads(body)["code"]) == (404, 0, "session_not_found")


@pytest.mark.parametrize("expect", [False, True])
def test_the_redirect_comes_before_the_body(fleet, session, expect):
    with fleet["a"].raw() as raw:
        reply = raw.put(DATA.format(session, "x"), len(BIG), f"Authorization: Bearer {fleet.tokens['a']}",
                        expect=expect).reply()
        assert raw.continues == 0
    reply.expect(307)
    assert (reply.headers["Gpubuf-Owner"], reply.headers["Gpubuf-Epoch"],
            reply.headers["Cache-Control"]) == ("b", "1", "no-store")
    assert (reply.json()["node"], reply.json()["epoch"]) == ("b", 1)
    assert reply.headers["Location"].startswith(fleet["b"].url(DATA.format(session, "x")) + "?via=1.1&ticket=")
    with fleet["b"].raw() as raw:
        target = reply.headers["Location"].removeprefix(fleet.url("b"))
        raw.put(target, 3).send(b"abc").reply().expect(201)


def test_who_may_not_here_is_told_nothing(fleet, session):
    reply = fleet["a"].ask("GET", DATA.format(session, "x"), token=fleet.tokens["b"])
    reply.problem(401, "unauthenticated")
    assert reply.headers.get("Location") is None


# --- tickets ----------------------------------------------------------------------------------------------------------


def ticket_of(fleet, method, target):
    """(target at b without the ticket, ticket) of what a redirects."""
    reply = fleet.ask("a", method, target, b"" if method == "PUT" else None).expect(307)
    return reply.headers["Location"].removeprefix(fleet.url("b")).split("&ticket=")


def unpadded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(fleet, ticket, method, target, node, expires):
    """The ticket as a node of the fleet would make it for that."""
    kid, _, who, _ = ticket.split(".")
    key = base64.b64decode(fleet.etcd.read("keys")[kid]["key"])
    who = base64.urlsafe_b64decode(who + "=" * (-len(who) % 4)).decode()
    path, _, query = target.partition("?")
    text = "".join(f"{len(part)}:{part}" for part in ("gpubuf ticket 1", method, path, query, node, str(expires), who))
    return ".".join([kid, str(expires), unpadded(who.encode()),
                     unpadded(hmac.new(key, text.encode(), hashlib.sha256).digest())])


@pytest.fixture
def given(fleet, session):
    """(target, ticket) of a GET that is permitted."""
    fleet.ask("b", "PUT", DATA.format(session, "x"), b"abc").expect(201)
    target, ticket = ticket_of(fleet, "GET", DATA.format(session, "x"))
    assert fleet["b"].ask("GET", f"{target}&ticket={ticket}").expect(200).body == b"abc"
    return target, ticket


def test_without_its_ticket_a_request_needs_a_token(fleet, given):
    fleet["b"].ask("GET", given[0]).problem(401, "unauthenticated")


@pytest.mark.parametrize("part", range(4))
def test_an_altered_ticket(fleet, given, part):
    target, ticket = given
    parts = ticket.split(".")
    parts[part] = ("1" if parts[part][0] != "1" else "2") + parts[part][1:]
    fleet["b"].ask("GET", f"{target}&ticket={'.'.join(parts)}").problem(401, "ticket_invalid")
    fleet["b"].ask("GET", f"{target}&ticket={ticket}").expect(200)


def test_a_ticket_is_for_one_request_at_one_node(fleet, session, given):
    target, ticket = given
    fleet.ask("b", "PUT", DATA.format(session, "y"), b"secret").expect(201)
    path, _, query = target.partition("?")
    fleet["b"].ask("GET", f"{DATA.format(session, 'y')}?{query}&ticket={ticket}").problem(401, "ticket_invalid")
    fleet["b"].ask("GET", f"{path}?offset=1&{query}&ticket={ticket}").problem(401, "ticket_invalid")
    fleet["b"].ask("GET", f"{path}?via=2.1&ticket={ticket}").problem(401, "ticket_invalid")
    fleet["b"].ask("GET", f"{path}?ticket={ticket}").problem(401, "ticket_invalid")
    fleet["b"].ask("PUT", f"{target}&ticket={ticket}", b"new").problem(401, "ticket_invalid")
    fleet["c"].ask("GET", f"{target}&ticket={ticket}").problem(401, "ticket_invalid")
    assert fleet.ask("b", "GET", path).expect(200).body == b"abc"


def test_a_ticket_lives_five_minutes(fleet, given):
    target, ticket = given
    expires, now = int(ticket.split(".")[1]), int(time.time())
    assert signed(fleet, ticket, "GET", target, "b", expires) == ticket
    for at, status in [(now + 120, 200), (now - 30, 401), (now + 3600, 401)]:
        reply = fleet["b"].ask("GET", f"{target}&ticket={signed(fleet, ticket, 'GET', target, 'b', at)}")
        reply.expect(200) if status == 200 else reply.problem(401, "ticket_invalid")


def test_a_revoked_token_gives_no_ticket(fleet, session):
    fleet.ask("b", "PUT", DATA.format(session, "x"), b"abc").expect(201)
    short, target = token(fleet.states["a"], "add", "short", "--scope", "read"), DATA.format(session, "x")
    reply = until("the node knows the token", lambda: redirected(fleet, target, short))
    assert fleet["b"].ask("GET", reply.headers["Location"].removeprefix(fleet.url("b"))).expect(200).body == b"abc"
    fleet["a"].ask("PUT", target, b"new", token=short).problem(403, "forbidden")
    token(fleet.states["a"], "revoke", "short")
    until("the node knows that it is revoked", lambda: not redirected(fleet, target, short))
    reply = fleet["a"].ask("GET", target, token=short)
    reply.problem(401, "unauthenticated")
    assert reply.headers.get("Location") is None


def redirected(fleet, target, secret):
    reply = fleet["a"].ask("GET", target, token=secret)
    return reply if reply.status == 307 else None


# --- loops ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def point(fleet):
    """Sets the owner of the session "ghost" in the directory, which no node has."""

    def to(node, epoch):
        fleet.etcd.put("sessions/ghost", {"node": node, "epoch": epoch, "claim": "of-the-test", "on_partition": "serve",
                                          "labels": {}, "quota": None, "state": "live"})

    yield to
    fleet.etcd.delete("sessions/ghost")


def hop(fleet, url, **more):
    """The answer of the node that the URL names."""
    parts = urllib.parse.urlsplit(url)
    node = next(d for name, d in fleet.daemons.items() if d.tcp[1] == parts.port)
    return node.ask("GET", f"{parts.path}?{parts.query}" if parts.query else parts.path, **more)


def test_a_node_never_redirects_to_itself(fleet, point):
    point("b", 1)
    fleet.ask("b", "GET", "/v1/sessions/ghost").problem(503, "owner_unknown")
    reply = fleet.ask("a", "GET", "/v1/sessions/ghost").expect(307)
    hop(fleet, reply.headers["Location"]).problem(503, "owner_unknown")


def test_what_is_remembered_leads_on_to_the_owner(fleet, point):
    """a remembers b; the directory says c by now, at the epoch after."""
    point("b", 1)
    fleet.ask("a", "GET", "/v1/sessions/ghost").expect(307)
    point("c", 2)
    reply = fleet.ask("a", "GET", "/v1/sessions/ghost").expect(307)
    assert reply.headers["Gpubuf-Owner"] == "b"
    reply = hop(fleet, reply.headers["Location"]).expect(307)
    assert ((reply.headers["Gpubuf-Owner"], reply.headers["Gpubuf-Epoch"]) == ("c", "2")
            and "via=2.2&" in reply.headers["Location"])
    hop(fleet, reply.headers["Location"]).problem(503, "owner_unknown")


def test_an_owner_of_the_same_epoch_is_not_followed(fleet, point):
    """b and c name each other."""
    point("b", 1)
    reply = fleet.ask("a", "GET", "/v1/sessions/ghost").expect(307)
    point("c", 1)
    hop(fleet, reply.headers["Location"]).problem(503, "owner_unknown")


def test_hops_are_bounded(fleet, point):
    """The owner changes before each hop."""
    point("c", 1)
    fleet.ask("b", "GET", "/v1/sessions/ghost").expect(307)
    url, owners = fleet.url("a") + "/v1/sessions/ghost", []
    for epoch, owner in enumerate("bcab", 2):
        point(owner, epoch)
        reply = hop(fleet, url, token=fleet.tokens["a"]) if not owners else hop(fleet, url)
        if reply.status != 307:
            break
        owners.append(reply.headers["Gpubuf-Owner"])
        url = reply.headers["Location"]
    reply.problem(503, "owner_unknown")
    assert owners == ["b", "c", "a"]


# --- without a fleet --------------------------------------------------------------------------------------------------


def test_a_daemon_in_no_fleet_is_as_before(fleet):
    assert "gb-fleet" in fleet["a"].threads()
    with Daemon("host:bytes=64M") as daemon:
        assert "gb-fleet" not in daemon.threads()
        assert daemon.get("/v1/fleet") == {"state": "none"}
        for target in ("/v1/fleet/nodes", "/v1/fleet/sessions", "/v1/fleet/sessions/x", "/v1/fleet/stats",
                       "/v1/fleet/targets"):
            daemon.ask("GET", target).problem(501, "unsupported")
        for target in ("/v1/sessions/none", DATA.format("none", "x")):
            daemon.ask("GET", target).problem(404, "session_not_found")
        daemon.ask("POST", "/v1/sessions", {"name": "x", "fleet": True}).problem(501, "unsupported")
        made = daemon.ask("POST", "/v1/sessions", {"name": "x"}).expect(201)
        assert made.json()["fleet"] is None and made.headers.get("Gpubuf-Epoch") is None
        assert "gpubufd_fleet" not in daemon.ask("GET", "/metrics").expect(200).body.decode()
