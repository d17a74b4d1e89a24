"""Copies between the nodes of a fleet: with tickets in the client's name, and to where a session is now."""
import os
import signal

import pytest

from etcd_run import token
from fleet import with_tokens
from harness import DATA, until

pytestmark = [pytest.mark.once, pytest.mark.timeout(240)]

BIG = os.urandom(20_000_000)


fleet = pytest.fixture(scope="module")(with_tokens)


@pytest.fixture
def sessions(fleet, request):
    """(a session of node a, one of node b with the buffer x)"""
    name = request.node.name.replace("[", ".").replace("]", "")
    fleet.make("a", name + ".a")
    fleet.make("b", name + ".b")
    fleet.ask("b", "PUT", DATA.format(name + ".b", "x"), BIG).expect(201)
    yield name + ".a", name + ".b"
    fleet.ask("a", "DELETE", "/v1/sessions/" + name + ".a").expect(204)
    fleet.ask("b", "DELETE", "/v1/sessions/" + name + ".b").expect(204)


def copy(fleet, to, url, name="a", **more):
    return fleet.ask(name, "POST", f"/v1/sessions/{to}/buffers/y/copy", {"from": url, **more})


def test_from_node_to_node(fleet, sessions):
    to, of = sessions
    r = copy(fleet, to, fleet.url("b") + f"/v1/sessions/{of}/buffers/x").expect(201)
    assert r.json()["way"] == "pull" and r.json()["pulled"]["parts"] == 3
    assert fleet.ask("a", "GET", DATA.format(to, "y")).body == BIG


def test_by_name(fleet, sessions):
    """As within one node: the node that has the session is looked up."""
    to, of = sessions
    r = copy(fleet, to, of + "/x").expect(201)
    assert r.json()["way"] == "pull" and fleet.ask("a", "GET", DATA.format(to, "y")).body == BIG
    copy(fleet, to, to + "/y", "b").expect(307)  # the target's node is asked first
    r = fleet.ask("a", "POST", f"/v1/sessions/{to}/buffers/z/copy", {"from": of + "/x"},
                  {"Prefer": "respond-async"}).expect(202)
    ended = lambda: fleet.ask("a", "GET", "/v1/operations/" + r.json()["id"]).json()  # noqa: E731
    until("it is there", lambda: ended()["state"] == "done")
    assert fleet.ask("a", "GET", DATA.format(to, "z")).body == BIG


def test_names_that_are_not_there(fleet, sessions):
    to, of = sessions
    p = copy(fleet, to, of + "/none").problem(502, "source_refused")
    assert "buffer_not_found" in p["detail"]
    copy(fleet, to, "nowhere/x").problem(404, "session_not_found")
    copy(fleet, to, "nowhere/x", offset=4).problem(404, "session_not_found")
    p = copy(fleet, to, of + "/x", offset=4).problem(400, "invalid_argument")
    assert "session of another node" in p["detail"]


@pytest.mark.parametrize("by", ["name", "url"])
def test_an_operation_ends_on_request_and_with_its_session(fleet, sessions, by):
    """Though the client had left while the directory was asked."""
    to, of = sessions
    source = of + "/x" if by == "name" else fleet.url("b") + f"/v1/sessions/{of}/buffers/x"
    fleet["b"].process.send_signal(signal.SIGSTOP)
    try:
        def begun(session):
            r = fleet.ask("a", "POST", f"/v1/sessions/{session}/buffers/y/copy", {"from": source},
                          {"Prefer": "respond-async"}).expect(202)
            return "/v1/operations/" + r.json()["id"]

        def state(operation):
            return fleet.ask("a", "GET", operation).expect(200).json()["state"]

        operation = begun(to)
        until("it is cancelled", lambda: fleet.ask("a", "DELETE", operation).status == 200)
        until("it has ended", lambda: state(operation) == "cancelled")
        fleet.ask("a", "POST", "/v1/sessions", {"name": "short"}).expect(201)
        operation = begun("short")
        fleet.ask("a", "DELETE", "/v1/sessions/short").expect(204)
        until("it has ended with its session", lambda: state(operation) == "failed")
    finally:
        fleet["b"].process.send_signal(signal.SIGCONT)
    fleet.joined()


def test_by_way_of_a_third_node(fleet, sessions):
    """Which sends every request on, each with a ticket of its own."""
    to, of = sessions
    copy(fleet, to, fleet.url("c") + f"/v1/sessions/{of}/buffers/x").expect(201)
    assert fleet.ask("a", "GET", DATA.format(to, "y")).body == BIG


def test_a_session_of_no_node(fleet, sessions):
    p = copy(fleet, sessions[0], fleet.url("c") + "/v1/sessions/nowhere/buffers/x").problem(502, "source_refused")
    assert "session_not_found" in p["detail"]


def test_a_stranger(fleet, sessions):
    p = copy(fleet, sessions[0], "http://127.0.0.1:9/v1/sessions/s/buffers/x").problem(403, "source_not_permitted")
    assert "no node of its fleet" in p["detail"]


def test_a_client_that_may_not_read_there(fleet, sessions):
    to, of = sessions
    secret = token(fleet.states["a"], "add", "bound", "--scope", "write", "--session", to)
    fleet["a"].process.send_signal(signal.SIGHUP)
    until("the token is in force", lambda: fleet["a"].ask("GET", "/v1/sessions/" + to, token=secret).status == 200)
    url = fleet.url("b") + f"/v1/sessions/{of}/buffers/x"
    fleet["a"].ask("POST", f"/v1/sessions/{to}/buffers/y/copy", {"from": url}, token=secret).problem(403, "forbidden")
    token(fleet.states["a"], "revoke", "bound")


def test_a_token_of_the_source_instead(fleet, sessions):
    """A client without rights here to that session, and with some there."""
    to, of = sessions
    url = {"url": fleet.url("b") + f"/v1/sessions/{of}/buffers/x", "token": fleet.tokens["b"]}
    copy(fleet, to, url).expect(201)
    copy(fleet, to, {**url, "token": "wrong"}).problem(502, "source_refused")


def test_while_the_directory_is_silent(fleet, sessions):
    to, of = sessions
    url = fleet.url("b") + f"/v1/sessions/{of}/buffers/x"
    fleet.etcd.members[0].process.send_signal(signal.SIGSTOP)
    try:
        copy(fleet, to, url).problem(503, "directory_unavailable")
    finally:
        fleet.etcd.members[0].process.send_signal(signal.SIGCONT)
    fleet.joined()
