"""Copies between nodes whose source is lost meanwhile: they continue at a node that has copies of it."""
import base64
import hashlib
import os
import signal

import pytest

from fleet import Fleet, session  # noqa: F401
from harness import DATA, until

pytestmark = [pytest.mark.once, pytest.mark.timeout(240)]

BIG = b"\0" + os.urandom(12_000_000)  # two parts
MIDST = 5_000_000
LEAST = 1_000_000  # of answers besides these bytes there is less


@pytest.fixture(scope="module")
def shared():
    """a is the owner, b and d keep copies, and c pulls. Each node that is a source has a relay before it."""
    fleet = Fleet("abcd", advertised="abd", tokens=True, options={"c": ["--fleet-replica-bytes", "0"]})
    fleet.joined()
    yield fleet
    fleet.end()


def whole(fleet):
    for relay in fleet.to_node.values():
        relay.left = None
        relay.set("pass")
    for name in fleet.states:
        if name not in fleet.living:
            fleet.start(name)
    fleet.joined()


@pytest.fixture
def fleet(shared):
    whole(shared)
    shared.make("c", "to")
    yield shared
    shared.ask("c", "DELETE", "/v1/sessions/to").expect(204)
    whole(shared)
    for name in shared.registered_at("a"):
        shared.ask("a", "DELETE", "/v1/sessions/" + name).expect(204)
    until("the holders have dropped their copies",
          lambda: not any(shared.ask(n, "GET", "/v1/fleet/copies").json()["items"] for n in "bd"))


def sealed(fleet, session, replicas, fill=False, **more):  # noqa: F811
    """The buffer x of a session of a, when its holders have it: their names. fill: its record tells no checksum."""
    fleet.make("a", session, replicas=replicas, **more)
    fleet.ask("a", "PUT", DATA.format(session, "x"), BIG).expect(201)
    if fill:
        fleet.ask("a", "POST", f"/v1/sessions/{session}/buffers/x/fill", {"pattern": 0, "width": 1, "offset": 0,
                                                                          "bytes": 1}).expect(200)
    fleet.ask("a", "POST", f"/v1/sessions/{session}/buffers/x/seal").expect(200)

    def known():
        reply = fleet.ask("c", "GET", DATA.format(session, "x"))
        return reply.status == 307 and reply.headers["Location"].startswith(fleet.to_node["a"].url)

    def current():
        items = fleet.ask("a", "GET", f"/v1/sessions/{session}/copies").expect(200).json()["items"]
        return (len(items) == replicas and all(h["current"] and h["buffers"] == 1 for h in items)
                and sorted(h["node"] for h in items))

    until("the node that pulls knows that the owner is there", known)
    try:
        return until("all holders have it", current) if replicas else []
    except AssertionError as e:
        raise AssertionError(fleet.ask("a", "GET", f"/v1/sessions/{session}/copies").json()) from e


def begun(fleet, source):
    r = fleet.ask("c", "POST", "/v1/sessions/to/buffers/y/copy", {"from": source},
                  {"Prefer": "respond-async"}).expect(202)
    return "/v1/operations/" + r.json()["id"]


def ended(fleet, operation):
    def look():
        op = fleet.ask("c", "GET", operation, None, {"Prefer": "wait=5"}).expect(200).json()
        return op if op["state"] not in ("queued", "running") else None

    return until("the end of the pull", look)


def done(fleet, operation):
    op = ended(fleet, operation)
    assert op["state"] == "done", op
    assert fleet.ask("c", "GET", DATA.format("to", "y")).body == BIG
    return op["result"]["pulled"]


def failed(fleet, operation):
    op = ended(fleet, operation)
    assert op["state"] == "failed", repr(op)[-900:]
    fleet.ask("c", "GET", "/v1/sessions/to/buffers/y").problem(404, "buffer_not_found")
    assert fleet.ask("c", "GET", "/v1/sessions/to/uploads").json()["items"] == []
    return op["problem"]


def narrow(fleet, names, n=MIDST):
    """From each of them that many bytes come, and then none."""
    for name in names:
        fleet.to_node[name].passed, fleet.to_node[name].left = 0, n


def lose(fleet, name):
    """The process of the node is killed when all bytes have come that its relay lets pass."""
    until("the copy is in the midst", lambda: fleet.to_node[name].mode == "hole")
    fleet.kill(name)
    fleet.to_node[name].set("cut")


def broken(fleet, session, source=None):  # noqa: F811
    narrow(fleet, "a")
    operation = begun(fleet, source or session + "/x")
    lose(fleet, "a")
    return operation


def from_url(fleet, name, session):  # noqa: F811
    return fleet.to_node[name].url + f"/v1/sessions/{session}/buffers/x"


def with_digest(fleet, session, body):  # noqa: F811
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
    return {"url": from_url(fleet, "a", session), "digest": {"sha-256": digest}}


@pytest.mark.parametrize("by", ["name", "url", "digest", "third"])
def test_it_goes_on_at_a_holder(fleet, session, by):  # noqa: F811
    (holder,) = sealed(fleet, session, 1)
    (third,) = set("bd") - {holder}
    source = {"name": session + "/x", "url": from_url(fleet, "a", session), "digest": with_digest(fleet, session, BIG),
              "third": from_url(fleet, third, session)}[by]
    narrow(fleet, holder, len(BIG) * 2)
    pulled = done(fleet, broken(fleet, session, source))
    assert pulled["failovers"] == 1 and pulled["begun_again"] == 0 and pulled["verified"], pulled
    assert pulled["received_bytes"] == len(BIG), pulled  # no byte twice
    assert fleet.to_node[holder].passed < len(BIG) - MIDST + LEAST


def test_a_holder_that_is_lost_too(fleet, session):  # noqa: F811
    sealed(fleet, session, 2)
    operation = broken(fleet, session)
    narrow(fleet, "bd", 3_000_000)
    until("it goes on", lambda: "hole" in (fleet.to_node["b"].mode, fleet.to_node["d"].mode))
    first = "b" if fleet.to_node["b"].mode == "hole" else "d"
    fleet.to_node["d" if first == "b" else "b"].left = None
    lose(fleet, first)
    pulled = done(fleet, operation)
    assert pulled["failovers"] == 2 and pulled["begun_again"] == 0 and pulled["received_bytes"] == len(BIG), pulled


def test_an_owner_that_hangs(fleet, session):  # noqa: F811
    """Connections to it stay open, and nothing comes."""
    sealed(fleet, session, 1)
    narrow(fleet, "a")
    operation = begun(fleet, {"url": from_url(fleet, "a", session), "parts": 1})
    until("the copy is in the midst", lambda: fleet.to_node["a"].mode == "hole")
    fleet["a"].process.send_signal(signal.SIGSTOP)
    try:
        pulled = done(fleet, operation)
    finally:
        fleet["a"].process.send_signal(signal.SIGCONT)
    assert pulled["failovers"] == 1 and pulled["begun_again"] == 0 and pulled["received_bytes"] == len(BIG), pulled


def test_all_are_lost(fleet, session):  # noqa: F811
    (holder,) = sealed(fleet, session, 1)
    operation = broken(fleet, session)
    fleet.kill(holder)
    problem = failed(fleet, operation)
    assert problem["code"] == "source_unreachable" and "so are all nodes that have copies" in problem["detail"], problem


def test_without_copies(fleet, session):  # noqa: F811
    sealed(fleet, session, 0)
    problem = failed(fleet, broken(fleet, session))
    assert problem["code"] == "source_unreachable" and "no node has copies of it" in problem["detail"], problem


def test_a_wrong_digest(fleet, session):  # noqa: F811
    sealed(fleet, session, 1)
    problem = failed(fleet, broken(fleet, session, with_digest(fleet, session, BIG[::-1])))
    assert problem["code"] == "digest_mismatch", problem


def test_an_owner_that_is_away_before(fleet, session):  # noqa: F811
    """Once the directory knows, and while it does not."""
    sealed(fleet, session, 1)
    fleet.kill("a")
    pulled = done(fleet, begun(fleet, from_url(fleet, "a", session)))
    assert pulled["failovers"] == 1 and pulled["received_bytes"] == len(BIG), pulled
    pulled = done(fleet, begun(fleet, session + "/x"))
    assert pulled["failovers"] == 0 and pulled["received_bytes"] == len(BIG), pulled


def test_the_owner_comes_back(fleet, session):  # noqa: F811
    """With its bytes: the holder sends requests to it again, and it has an entity tag of its own."""
    (holder,) = sealed(fleet, session, 1, durability="sync")
    operation = broken(fleet, session)
    narrow(fleet, holder, 3_000_000)
    until("it goes on", lambda: fleet.to_node[holder].mode == "hole")
    fleet.to_node["a"].set("pass")
    fleet.start("a")
    fleet.joined()
    fleet.to_node[holder].set("cut")
    fleet.to_node[holder].set("pass")
    pulled = done(fleet, operation)
    assert pulled["failovers"] == 2 and pulled["begun_again"] == 0 and pulled["received_bytes"] == len(BIG), pulled


@pytest.mark.parametrize("given", [False, True])
def test_bytes_without_a_checksum(fleet, session, given):  # noqa: F811
    """They are gone on with if a digest is given, since that is compared in the end; else the copy begins again."""
    sealed(fleet, session, 1, fill=True)
    pulled = done(fleet, broken(fleet, session, with_digest(fleet, session, BIG) if given else None))
    assert pulled["failovers"] == 1 and pulled["begun_again"] == (0 if given else 1), pulled
    assert (pulled["received_bytes"] == len(BIG)) == given


def test_a_token_of_the_source(fleet, session):  # noqa: F811
    """It says what the client may there, and opens no other node."""
    sealed(fleet, session, 1)
    problem = failed(fleet, broken(fleet, session, {"url": from_url(fleet, "a", session), "token": fleet.tokens["a"]}))
    assert problem["code"] == "source_unreachable", problem


def local(fleet, name, session):  # noqa: F811
    """A session of that name which is the node's own, with other bytes."""
    fleet.ask(name, "POST", "/v1/sessions", {"name": session}).expect(201)
    fleet.ask(name, "PUT", DATA.format(session, "x"), BIG[::-1]).expect(201)
    fleet.ask(name, "POST", f"/v1/sessions/{session}/buffers/x/seal").expect(200)


def test_a_local_session_of_that_name(fleet, session):  # noqa: F811
    """Its node is lost, and the directory has another session of the name, with copies: these are other bytes."""
    local(fleet, "b", session)
    sealed(fleet, session, 1)
    url = from_url(fleet, "b", session)
    fleet.kill("a")
    fleet.kill("b")
    problem = failed(fleet, begun(fleet, url))
    assert problem["code"] == "source_unreachable" and "at another node" in problem["detail"], problem


def test_a_holder_with_a_local_session_of_that_name(fleet, session):  # noqa: F811
    """It serves that one, whose bytes are not those that are meant."""
    for name in "bd":
        local(fleet, name, session)
    (holder,) = sealed(fleet, session, 1)
    fleet.kill("a")
    until("reads are sent to the holder", lambda: fleet.to_node[holder].url
          in fleet.ask("c", "GET", DATA.format(session, "x")).headers.get("Location", ""))
    problem = failed(fleet, begun(fleet, session + "/x"))
    assert problem["code"] == "source_refused" and "has a local session" in problem["detail"], problem
    for name in "bd":
        fleet.ask(name, "DELETE", "/v1/sessions/" + session).expect(204)
