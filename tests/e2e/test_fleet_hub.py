"""Nodes that know hubs alone, with and without a way to them: FLEET's row 22."""
import os
import shutil
import threading

import pytest

from fleet import session  # noqa: F401
from gpubuf_cli import FAILED, Cli
from harness import DATA, PATIENCE_S, until
from hubs import ASK, Hubs, get
from test_fleet_copies import holders, kept, put, settled

pytestmark = [pytest.mark.once, pytest.mark.timeout(240)]

MOVE = "/v1/fleet/sessions/{}/move"


@pytest.fixture(scope="module")
def shared():
    """n is in another zone than the others, so that copies come there first."""
    fleet = Hubs(options={name: ["--fleet-label", "zone=" + ("far" if name == "n" else "near")] for name in "ahkmn"})
    yield fleet
    fleet.end()


@pytest.fixture
def fleet(shared):
    """Whole at the beginning, and at one in the end."""
    shared.restore()
    yield shared
    shared.joined()
    shared.agree()


def unreachable(reply, node="n"):
    """The problem of a session that is at a node without an address."""
    problem = reply.problem(503, "node_unreachable")
    assert f'"{node}"' in problem["detail"] and "Location" not in reply.headers
    return problem


def ordered(reply, order, session=None, node="n"):
    assert reply.expect(202).json() == {"node": node, "order": order, "session": session}


# --- being there ------------------------------------------------------------------------------------------------------


def test_a_node_that_none_can_reach(fleet):
    there = fleet.nodes()
    assert sorted(there) == list("ahkmn") and all(n["alive"] for n in there.values())
    assert there["n"]["urls"] == {} and there["m"]["urls"] == {"default": fleet.url("m")}
    assert fleet.nodes("n").keys() == fleet.nodes("m").keys() == there.keys()
    for at in "an":
        assert ([t["labels"]["node"] for t in fleet.ask(at, "GET", "/v1/fleet/targets").expect(200).json()]
                == list("ahkm"))
    stats = fleet.ask("a", "GET", "/v1/fleet/stats").expect(200).json()
    assert [n["node"] for n in stats["nodes"]] == list("ahkm") and [m["node"] for m in stats["missing"]] == ["n"]
    fleet.stays("m", "n")


def test_no_session_is_placed_there(fleet, session):
    reply = fleet.ask("a", "POST", "/v1/fleet/sessions", {"name": session, "select": {"site": "n"}})
    reply.problem(507, "no_node_fits")
    placed = [fleet.ask("hkma"[i % 4], "POST", "/v1/fleet/sessions", {"name": f"{session}.{i}"}).expect(201).json()
              for i in range(10)]
    assert "n" not in {p["node"] for p in placed}
    moved, _ = fleet.follow("a", "POST", MOVE.format(placed[0]["name"]), {})
    assert moved.expect(200).json()["node"] not in ("n", placed[0]["node"])
    for p in placed:
        reply, _ = fleet.follow("a", "DELETE", "/v1/sessions/" + p["name"])
        reply.expect(204)


def test_a_session_that_it_has(fleet, session):
    made = fleet.make("n", session)
    assert made["fleet"]["epoch"] == 1
    S = "/v1/sessions/" + session
    fleet.ask("n", "PUT", DATA.format(session, "x"), b"abc").expect(201)
    for at in "ahm":
        for method, target, body in (("GET", S, None), ("GET", DATA.format(session, "x"), None),
                                     ("PUT", DATA.format(session, "x"), b"x"), ("DELETE", S, None),
                                     ("POST", S + "/buffers", {"name": "y", "bytes": 8})):
            unreachable(fleet.ask(at, method, target, body))
        assert fleet.ask(at, "GET", "/v1/fleet/sessions/" + session).expect(200).json()["node"] == "n"
    fleet.ask("a", "POST", "/v1/sessions", {"name": session, "fleet": True}).expect(409)
    # It finds what others have.
    fleet.make("m", session + ".m")
    assert fleet.ask("n", "GET", f"/v1/sessions/{session}.m").expect(307).headers["Location"].startswith(fleet.url("m"))
    assert fleet.ask("n", "GET", DATA.format(session, "x")).expect(200).body == b"abc"
    fleet.ask("n", "DELETE", S).expect(204)
    fleet.ask("m", "DELETE", S + ".m").expect(204)


# --- orders -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", "ahm")
def test_drained_by_an_order(fleet, at):
    """By a node that speaks to etcd, by a hub, and by one that knows hubs alone."""
    ordered(fleet.ask(at, "POST", "/v1/fleet/nodes/n/drain", {}), "drain")
    until("it is draining", lambda: fleet.nodes()["n"]["draining"])
    until("the order is taken out", lambda: not fleet.etcd.read("ctl"))
    assert "told by the directory to drain" in fleet["n"].log()
    ordered(fleet.ask(at, "POST", "/v1/fleet/nodes/n/undrain", {}), "undrain")
    until("it takes sessions again", lambda: not fleet.nodes()["n"]["draining"])
    until("the order is taken out", lambda: not fleet.etcd.read("ctl"))
    assert fleet.ask("n", "POST", "/v1/fleet/nodes/n/drain", {}).expect(200).json()["draining"] is True
    assert fleet.ask("n", "POST", "/v1/fleet/nodes/n/undrain", {}).expect(200).json()["draining"] is False


def test_orders_that_are_none(fleet):
    """They are taken out, and nothing is done."""
    for i, record in enumerate(({}, [], {"op": "explode"}, {"op": "move"}, {"op": "move", "session": "none"},
                                {"op": "hold", "session": "none"}, {"op": "drain", "session": 1}, {"op": "x" * 5000},
                                "")):
        fleet.etcd.put(f"ctl/n/{i}", record)
    fleet.etcd.put("ctl/n/sub/key", {"op": "undrain"})
    until("all are taken out", lambda: not fleet.etcd.read("ctl"))
    assert fleet.nodes()["n"]["draining"] is False and fleet.state("n") == "joined"


def test_more_orders_than_go_at_once(fleet):
    for i in range(150):
        fleet.etcd.put(f"ctl/n/{i:03}", {"op": "undrain"})
    until("all are taken out", lambda: not fleet.etcd.read("ctl"))


def test_an_order_to_a_node_that_is_away(fleet):
    fleet.kill("n")
    until("its lease has run out", lambda: "n" not in fleet.etcd.read("alive"))
    unreachable(fleet.ask("a", "POST", "/v1/fleet/nodes/n/drain", {}))
    unreachable(fleet.ask("m", "POST", MOVE.format("none"), {"to": "n"}))
    assert not fleet.etcd.read("ctl")
    fleet.ask("a", "POST", "/v1/fleet/nodes/none/drain", {}).problem(404, "node_not_found")


def test_a_node_that_is_forgotten_has_no_orders(fleet):
    """By a node that knows hubs alone: its transactions pass."""
    fleet.kill("n")
    until("its lease has run out", lambda: "n" not in fleet.etcd.read("alive"))
    fleet.etcd.put("ctl/n/1", {"op": "drain"})
    fleet.ask("m", "DELETE", "/v1/fleet/nodes/n").expect(204)
    assert "n" not in fleet.etcd.read("nodes") and not fleet.etcd.read("ctl")
    fleet.start("n")
    fleet.joined("n")
    assert fleet.nodes()["n"]["draining"] is False


# --- moves ------------------------------------------------------------------------------------------------------------


def test_a_session_comes_by_an_order_and_stays(fleet, session):
    fleet.make("a", session, labels={"k": "v"})
    body = os.urandom(1 << 20)
    put(fleet, "a", session, "x", body)
    put(fleet, "a", session, "open", b"changes", seal=False)
    ordered(fleet.ask("m", "POST", MOVE.format(session), {"to": "n"}), "move", session)
    until("it has come", lambda: fleet.etcd.read("sessions")[session]["node"] == "n")
    until("it is served", lambda: fleet.ask("n", "GET", "/v1/sessions/" + session).status == 200)
    assert fleet.ask("n", "GET", DATA.format(session, "x")).expect(200).body == body
    assert fleet.ask("n", "GET", DATA.format(session, "open")).expect(200).body == b"changes"
    assert fleet.ask("n", "GET", "/v1/sessions/" + session).json()["fleet"]["epoch"] == 2
    for at in "ahm":
        until("it is known", lambda at=at: fleet.ask(at, "GET", "/v1/sessions/" + session).status == 503)
        unreachable(fleet.ask(at, "GET", "/v1/sessions/" + session))
    # None could bring it from there.
    for to in "am":
        reply, by = fleet.follow("h", "POST", MOVE.format(session), {"to": to})
        unreachable(reply)
        assert by == to
    assert fleet.etcd.read("sessions")[session]["epoch"] == 2
    assert fleet.ask("n", "PUT", DATA.format(session, "open"), b"goes on").expect(200)
    fleet.ask("n", "DELETE", "/v1/sessions/" + session).expect(204)


def test_it_brings_a_session_itself(fleet, session):
    fleet.make("m", session)
    put(fleet, "m", session, "x", b"abc")
    assert fleet.ask("n", "POST", MOVE.format(session), {"to": "n"}).expect(200).json()["node"] == "n"
    assert fleet.ask("n", "GET", DATA.format(session, "x")).body == b"abc"
    fleet.ask("n", "DELETE", "/v1/sessions/" + session).expect(204)


def test_an_order_that_cannot_be_followed(fleet, session):
    """The session is on no node by then."""
    ordered(fleet.ask("a", "POST", MOVE.format(session), {"to": "n"}), "move", session)
    until("it is told", lambda: f"what the directory wants for session {session} is not done" in fleet["n"].log())
    until("the order is taken out", lambda: not fleet.etcd.read("ctl"))


# --- copies -----------------------------------------------------------------------------------------------------------


def test_copies_are_kept_there(fleet, session):
    """The owner tells it by an order; it comes, and is reported as current."""
    fleet.make("a", session, replicas=1)
    body = os.urandom(300000)
    put(fleet, "a", session, "x", body)
    assert settled(fleet, "a", session, 1, 1) == ["n"]
    copy = kept(fleet, "n")[session]
    assert fleet.ask("n", "GET", DATA.format(copy["local"], "x")).expect(200).body == body
    assert fleet.ask("n", "GET", DATA.format(session, "x")).status == 307
    put(fleet, "a", session, "y", b"later")
    assert settled(fleet, "a", session, 1, 2) == ["n"]
    fleet.ask("a", "DELETE", f"/v1/sessions/{session}/buffers/y").expect(204)
    until("the name is free", lambda: fleet.ask("a", "PUT", DATA.format(session, "y"), b"second").status == 201)
    # While the owner is away no client is sent there, and one that is there is served.
    fleet.kill("a")
    until("its lease has run out", lambda: "a" not in fleet.etcd.read("alive"))
    for at in "hm":
        for target in (DATA.format(session, "x"), f"/v1/sessions/{session}/buffers/x"):
            reply = fleet.ask(at, "GET", target)
            assert (reply.status, reply.json()["code"]) in ((503, "owner_absent"), (503, "node_unreachable")), reply
    there = fleet.ask("n", "GET", DATA.format(session, "x")).expect(200)
    assert there.body == body and there.headers["Gpubuf-Replica"] == "true"
    fleet.start("a")
    fleet.joined()
    fleet.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)
    until("they are dropped", lambda: session not in kept(fleet, "n"))


def test_its_own_sessions_have_none(fleet, session):
    """No holder could come."""
    fleet.make("n", session, replicas=1)
    put(fleet, "n", session, "x", b"abc")
    fleet.stays("n")
    assert not holders(fleet, "n", session)
    fleet.ask("n", "DELETE", f"/v1/sessions/{session}/buffers/x").expect(204)
    fleet.ask("n", "PUT", DATA.format(session, "x"), b"the name is free").expect(201)
    fleet.ask("n", "DELETE", "/v1/sessions/" + session).expect(204)


def test_it_takes_over_when_told(fleet, session):
    fleet.make("a", session, replicas=1)
    put(fleet, "a", session, "x", b"abc")
    assert settled(fleet, "a", session, 1, 1) == ["n"]
    fleet.kill("a")
    until("its lease has run out", lambda: "a" not in fleet.etcd.read("alive"))
    taken = fleet.ask("n", "POST", f"/v1/fleet/sessions/{session}/take", {"force": True}).expect(201).json()
    assert taken["fleet"]["epoch"] == 2
    assert fleet.ask("n", "GET", DATA.format(session, "x")).expect(200).body == b"abc"
    fleet.ask("n", "DELETE", "/v1/sessions/" + session).expect(204)


# --- a node that can be reached, and knows hubs alone -----------------------------------------------------------------


def test_all_else_is_as_with_etcd(fleet, session):
    fleet.make("m", session, replicas=1, quota={"bytes": 1 << 24})
    put(fleet, "m", session, "x", b"abc")
    assert settled(fleet, "m", session, 1, 1) == ["n"]
    for at in "ahkn":
        assert fleet.ask(at, "GET", DATA.format(session, "x")).expect(307).headers["Location"].startswith(
            fleet.url("m"))
    reply, by = fleet.follow("m", "POST", MOVE.format(session), {"to": "a"})
    assert by == "a" and reply.expect(200).json()["epoch"] == 2
    assert settled(fleet, "a", session, 1, 1) == ["n"]
    reply, by = fleet.follow("a", "POST", MOVE.format(session), {"to": "m"})
    assert by == "m" and reply.expect(200).json()["epoch"] == 3
    assert fleet.ask("m", "GET", DATA.format(session, "x")).expect(200).body == b"abc"
    assert fleet.ask("m", "GET", "/v1/fleet/sessions?node=m").expect(200).json()["items"][0]["name"] == session
    fleet.follow("m", "POST", "/v1/fleet/nodes/a/drain", {})[0].expect(200)
    until("it is draining", lambda: fleet.nodes("m")["a"]["draining"])
    fleet.follow("m", "POST", "/v1/fleet/nodes/a/undrain", {})[0].expect(200)
    fleet.ask("m", "DELETE", "/v1/sessions/" + session).expect(204)
    until("it is deleted", lambda: fleet.ask("n", "GET", "/v1/sessions/" + session).status in (404, 410))


def test_tenants(fleet, session):
    fleet.ask("m", "PUT", "/v1/fleet/tenants/" + session, {"limit_bytes": 10}).expect(200)
    made = {"fleet": True, "tenant": session}
    for at, name, bytes in (("m", ".1", 4), ("n", ".2", 6)):
        fleet.ask(at, "POST", "/v1/sessions", {"name": session + name, "quota": {"bytes": bytes}, **made}).expect(201)
    fleet.ask("a", "POST", "/v1/sessions", {"name": session + ".3", "quota": {"bytes": 1},
                                            **made}).problem(507, "tenant_quota_exceeded")
    fleet.ask("n", "POST", "/v1/sessions", {"name": session + ".3", "quota": {"bytes": 1},
                                            **made}).problem(507, "tenant_quota_exceeded")
    assert fleet.ask("n", "GET", "/v1/fleet/tenants/" + session).expect(200).json()["used_bytes"] == 10
    for at, name in (("m", ".1"), ("n", ".2")):
        fleet.ask(at, "DELETE", "/v1/sessions/" + session + name).expect(204)
    until("all is free", lambda: fleet.ask("n", "GET", "/v1/fleet/tenants/" + session).json()["sessions"] == 0)
    fleet.ask("m", "DELETE", "/v1/fleet/tenants/" + session).expect(204)


def test_many_sessions(fleet, session):
    """More than a page of them, and than a transaction has operations: what a node asks for as it restarts passes as
    well."""
    for i in range(140):
        fleet.make("m", f"{session}.{i:03}")
    assert len([s for s in fleet.records() if s.startswith(session)]) == 140
    listed = fleet.ask("n", "GET", "/v1/fleet/sessions?node=m&limit=1000").expect(200).json()["items"]
    assert len([s for s in listed if s["name"].startswith(session)]) == 140
    fleet.kill("m")
    fleet.start("m")
    fleet.joined("m")
    until("it has reconciled", lambda: not fleet.disagreements())
    for i in range(140):
        fleet.ask("m", "DELETE", f"/v1/sessions/{session}.{i:03}").expect(204)


def test_the_command_line(fleet, session):
    cli = Cli(fleet.url("m"))
    assert cli.json("fleet")["state"] == "joined" == Cli(fleet.url("n")).json("fleet")["state"]
    rows = {r["NODE"]: r for r in Cli(fleet.url("n"))("fleet", "nodes").expect().table()}
    assert rows["n"]["STATE"] == "ready" and rows["m"]["URL"] == fleet.url("m")
    fleet.make("m", session)
    assert cli.json("fleet", "where", session)["node"] == "m"
    assert cli("fleet", "drain", "n").expect().out == "node n, which has no address, is told to drain\n"
    until("it is draining", lambda: fleet.nodes()["n"]["draining"])
    cli("fleet", "undrain", "n").expect()
    until("it takes sessions again", lambda: not fleet.nodes()["n"]["draining"])
    assert (cli("fleet", "move", session, "--node", "n").expect().out == "node n, which has no address, is told to "
            f"bring session {session}\n")
    until("it has come", lambda: fleet.etcd.read("sessions")[session]["node"] == "n")
    assert cli.json("fleet", "where", session)["node"] == "n"
    assert 'the node "n"' in cli("fleet", "move", session, "--node", "m").expect(FAILED).err
    until("it is served", lambda: fleet.ask("n", "DELETE", "/v1/sessions/" + session).status == 204)


# --- hubs that end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hub", "hk")
def test_a_hub_that_ends(fleet, session, hub):
    """Each of the two, so that it is once the one that was asked: the nodes continue by the other, and have never been
    without their leases."""
    fleet.make("n", session, on_partition="stop")
    before = {name: fleet.ask(name, "GET", "/v1/fleet").json()["incarnation"] for name in "mn"}
    since = {name: fleet.ask(name, "GET", "/v1/fleet").json() for name in "mn"}
    fleet.kill(hub)
    fleet.stays("m", "n")
    fleet.ask("n", "PUT", DATA.format(session, "x"), b"abc").expect(201)
    ordered(fleet.ask("a", "POST", "/v1/fleet/nodes/n/drain", {}), "drain")
    until("it is draining", lambda: fleet.nodes()["n"]["draining"])
    ordered(fleet.ask("a", "POST", "/v1/fleet/nodes/n/undrain", {}), "undrain")
    until("it takes sessions again", lambda: not fleet.nodes()["n"]["draining"])
    fleet.start(hub)
    for name in "mn":
        now = fleet.ask(name, "GET", "/v1/fleet").json()
        assert (now["state"], now["incarnation"]) == ("joined", before[name])
        assert now.get("joined_at") == since[name].get("joined_at")
    fleet.ask("n", "DELETE", "/v1/sessions/" + session).expect(204)


def test_no_hub_is_left(fleet, session):
    for name in "mn":
        fleet.make(name, f"{session}.{name}")
        fleet.make(name, f"{session}.{name}.stop", on_partition="stop")
        fleet.ask(name, "PUT", DATA.format(f"{session}.{name}", "x"), b"abc").expect(201)
    fleet.kill("h")
    fleet.kill("k")
    for name in "mn":
        until("it is alone", lambda name=name: fleet.state(name) == "alone")
        assert fleet.ask(name, "PUT", DATA.format("default", "x"), b"abc").status in (200, 201)
        assert fleet.ask(name, "GET", DATA.format(f"{session}.{name}", "x")).expect(200).body == b"abc"
        fleet.ask(name, "PUT", DATA.format(f"{session}.{name}", "x"), b"new").expect(200)
        stops = f"/v1/sessions/{session}.{name}.stop"
        until("its lease may have run out", lambda stops=stops, name=name: fleet.ask(name, "GET", stops).status == 503)
        for method in ("GET", "DELETE"):
            fleet.ask(name, method, stops).problem(503, "owner_uncertain")
        fleet.ask(name, "POST", "/v1/sessions", {"name": session + ".more",
                                                 "fleet": True}).problem(503, "directory_unavailable")
        fleet.ask(name, "GET", "/v1/sessions/none").problem(503, "directory_unavailable")
    assert fleet.state("a") == "joined"
    fleet.start("k")
    fleet.joined("mn")
    for name in "mn":
        until("it serves", lambda name=name: fleet.ask(name, "GET", f"/v1/sessions/{session}.{name}.stop").status
              == 200)
        assert fleet.registered_at(name) == {f"{session}.{name}": 1, f"{session}.{name}.stop": 1}
        assert fleet.ask(name, "GET", DATA.format(f"{session}.{name}", "x")).body == b"new"
        for of in ("", ".stop"):
            fleet.ask(name, "DELETE", f"/v1/sessions/{session}.{name}{of}").expect(204)


def test_etcd_is_away(fleet):
    """A hub says so at once or after what its own requests may take; no request hangs."""
    fleet.etcd.members[0].kill()
    body = get("/gpubuf/main/meta")
    until("the hub knows", lambda: fleet.state("h") == "alone")
    reply = fleet.ask("h", "POST", ASK.format("txn", "n"), body)
    assert reply.problem(503, "directory_unavailable")["retryable"] is True and int(reply.headers["Retry-After"]) > 0
    fleet.ask("h", "POST", ASK.format("keepalive", "n"), {"ID": "1"}).problem(503, "directory_unavailable")
    fleet.ask("h", "POST", ASK.format("wait", "n"), {"wait_ms": 100}).problem(503, "directory_unavailable")
    until("the nodes know", lambda: fleet.states_are("alone", "mn"))
    fleet.etcd.members[0].start()
    fleet.joined()


def test_a_hub_that_is_told_to_stop(fleet):
    """Those that wait there are answered, and it ends; its nodes continue by the other."""
    replies = []
    threads = [threading.Thread(target=lambda i=i: replies.append(fleet.ask("h", "POST", ASK.format("wait", f"w{i}"),
                                                                            {"wait_ms": 30000})))
               for i in range(5)]
    at_once = fleet.ask("h", "POST", ASK.format("wait", "w"), {"wait_ms": 2000}).expect(200).json()
    for thread in threads:
        thread.start()
    # They are there when one that came later has been answered by a look at the directory.
    fleet.etcd.put("ctl/w/1", {"op": "drain"})
    fleet.ask("h", "POST", ASK.format("wait", "w"), {"wait_ms": 30000}).expect(200)
    fleet.etcd.delete("ctl/w/1")
    process = fleet["h"].process
    process.terminate()
    assert process.wait(PATIENCE_S) == 0
    for thread in threads:
        thread.join(PATIENCE_S)
    assert [r.status for r in replies] == [200] * 5
    assert all(r.json()["responses"] == at_once["responses"] for r in replies), replies
    fleet["h"].stop()
    fleet.stays("m", "n")


# --- two of one name --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [True, False], ids=["a copied folder", "another folder"])
def test_two_of_one_name_at_different_hubs(tmp_path, copied):
    fleet = Hubs("ahkx", members="", hidden="", known={"x": "h", "y": "k"})
    try:
        fleet.joined()
        if copied:
            fleet.kill("x")
        fleet.states["y"] = str(tmp_path / "state")
        if copied:
            shutil.copytree(fleet.states["x"], fleet.states["y"],
                            ignore=shutil.ignore_patterns("listen", "lock", "*.sock"))
            until("the lease has run out", lambda: "x" not in fleet.etcd.read("alive"))
            fleet.launch("x")
        else:
            os.mkdir(fleet.states["y"])
        fleet.launch("y", "x")
        fleet.ready("x")
        fleet.ready("y")
        until("one has joined, and the other knows", lambda: sorted([fleet.state("x"), fleet.state("y")])
              == ["duplicate", "joined"])
        joined = next(n for n in "xy" if fleet.state(n) == "joined")
        first = fleet.ask(joined, "GET", "/v1/fleet").json()["incarnation"]
        fleet.stays(joined)
        assert fleet.etcd.read("alive")["x"]["incarnation"] == first
        other = "y" if joined == "x" else "x"
        assert fleet.state(other) == "duplicate"
        if copied:
            fleet.kill(joined)
            until("the other joins", lambda: fleet.state(other) == "joined")
        fleet.kill("y")
    finally:
        fleet.end()
