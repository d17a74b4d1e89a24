"""Copies of sealed buffers at other nodes: who gets them, what they are good for, and that no name ever means two
things."""
import hashlib
import os
import signal

import pytest

from etcd_run import TTL_S
from fleet import Fleet, fleet, session, within  # noqa: F401
from harness import DATA, PATIENCE_S, until

pytestmark = [pytest.mark.once, pytest.mark.timeout(240)]

COPIES = "/v1/sessions/{}/copies"


@pytest.fixture(scope="module")
def shared():
    fleet = Fleet("abcd")
    yield fleet
    fleet.end()


def put(fleet, name, session, buffer, body, seal=True):
    fleet.ask(name, "PUT", DATA.format(session, buffer), body).expect(201)
    if seal:
        fleet.ask(name, "POST", f"/v1/sessions/{session}/buffers/{buffer}/seal").expect(200)


def holders(fleet, owner, session):
    return {h["node"]: h for h in fleet.ask(owner, "GET", COPIES.format(session)).expect(200).json()["items"]}


def kept(fleet, name):
    return {c["session"]: c for c in fleet.ask(name, "GET", "/v1/fleet/copies").expect(200).json()["items"]}


def settled(fleet, owner, session, count, buffers):
    """Names of the holders, when all have that many buffers and the owner knows."""

    def all_current():
        there = holders(fleet, owner, session)
        good = len(there) == count and all(h["current"] and h["buffers"] == buffers for h in there.values())
        return there if good else None

    try:
        there = until(f"{count} holders have {buffers} buffers", all_current)
    except AssertionError as e:
        raise AssertionError(holders(fleet, owner, session)) from e
    for name in there:
        assert kept(fleet, name)[session]["buffers"] == buffers
    return sorted(there)


def away(fleet, *names):
    for name in names:
        fleet.kill(name)
    until("their leases have run out", lambda: not set(names) & set(fleet.etcd.read("alive")))


def back(fleet, *names):
    for name in names:
        fleet.start(name)
    fleet.joined()


# --- holders ----------------------------------------------------------------------------------------------------------


def test_sealed_buffers_are_copied(fleet, session):  # noqa: F811
    made = fleet.make("a", session, replicas=2)
    assert made["fleet"]["replicas"] == 2
    body = os.urandom(1 << 20)
    put(fleet, "a", session, "x", body)
    put(fleet, "a", session, "open", b"changes", seal=False)
    names = settled(fleet, "a", session, 2, 1)
    assert "a" not in names
    where = fleet.ask("a", "GET", "/v1/sessions/" + session).json()["fleet"]
    assert sorted(where["holders"]) == names and "failover_after_s" not in where
    assert sorted(fleet.ask("d", "GET", "/v1/fleet/sessions/" + session).json()["holders"]) == names
    for name in names:
        copy = kept(fleet, name)[session]
        assert (copy["owner"], copy["current"], copy["problem"], copy["bytes"]) == ("a", True, None, 1 << 20)
        assert fleet.ask(name, "GET", DATA.format(copy["local"], "x")).expect(200).body == body
        fleet.ask(name, "PUT", DATA.format(copy["local"], "y"), b"x").problem(503, "session_moving")
        # The owner is there: it is asked.
        assert fleet.ask(name, "GET", DATA.format(session, "x")).status == 307
    put(fleet, "a", session, "y", b"later")
    assert settled(fleet, "a", session, 2, 2) == names
    fleet.ask("a", "PATCH", "/v1/sessions/" + session, {"replicas": 1}).expect(200)
    (one,) = settled(fleet, "a", session, 1, 2)
    assert one in names
    (other,) = set(names) - {one}
    until("the other has dropped them", lambda: session not in kept(fleet, other))
    until("and freed what it had", lambda: not [s for s in fleet.ask(other, "GET", "/v1/sessions").json()["items"]
                                                 if s["name"].startswith(session)])
    fleet.ask("a", "PATCH", "/v1/sessions/" + session, {"replicas": 0}).expect(200)
    until("there are no copies", lambda: not any(session in kept(fleet, name) for name in "bcd"))
    assert not [key for key in fleet.etcd.read("held") if key.endswith("/" + session)]
    fleet.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)


def test_pools_change_beside_copies(fleet, session):  # noqa: F811
    """With the next sealed buffer a holder has pools as the owner has them."""
    fleet.make("a", session, replicas=1)
    S = "/v1/sessions/" + session
    for name in ("own", "gone"):
        fleet.ask("a", "POST", S + "/pools", {"name": name, "release_threshold_bytes": 4096}).expect(201)
    fleet.ask("a", "PUT", DATA.format(session, "x") + "?pool=own", b"bytes").expect(201)
    fleet.ask("a", "POST", S + "/buffers/x/seal").expect(200)
    (one,) = settled(fleet, "a", session, 1, 1)
    fleet.ask("a", "PATCH", S + "/pools/own", {"release_threshold_bytes": 8192}).expect(200)
    fleet.ask("a", "DELETE", S + "/pools/gone").expect(204)
    local = kept(fleet, one)[session]["local"]
    put(fleet, "a", session, "y", b"later")
    assert settled(fleet, "a", session, 1, 2) == [one]
    pools = fleet.ask(one, "GET", f"/v1/sessions/{local}/pools").json()["items"]
    assert {p["name"]: p["release_threshold_bytes"] for p in pools if p["name"] in ("own", "gone")} == {"own": 8192}
    assert fleet.ask(one, "GET", DATA.format(local, "x")).expect(200).body == b"bytes"
    fleet.ask("a", "DELETE", S).expect(204)


def test_what_is_refused(fleet, session):  # noqa: F811
    fleet.ask("a", "POST", "/v1/sessions", {"name": session, "replicas": 1}).problem(400, "invalid_argument")
    fleet.ask("a", "POST", "/v1/sessions", {"name": session, "fleet": True,
                                            "replicas": 9}).problem(400, "invalid_argument")
    fleet.ask("a", "PATCH", "/v1/sessions/default", {"replicas": 1}).problem(400, "invalid_argument")
    fleet.ask("a", "POST", "/v1/fleet/copies", {}).problem(400, "invalid_argument")
    for body in ({}, {"step": "end"}, {"step": "begin", "node": "b"}, {"step": "begin", "number": 1}):
        fleet.ask("a", "POST", f"/v1/fleet/sessions/{session}/copies", body).problem(400, "invalid_argument")
    fleet.ask("a", "POST", f"/v1/fleet/sessions/{session}/copies",
              {"step": "done", "node": "b", "number": 1, "edition": 1}).problem(409, "superseded")


def test_what_a_holder_says(fleet, session):  # noqa: F811
    """As nodes say it to each other."""
    fleet.make("a", session, replicas=1)
    put(fleet, "a", session, "x", b"abc")
    (one,) = settled(fleet, "a", session, 1, 1)
    (listed,) = fleet.etcd.read("sessions")[session]["holders"]
    assert listed["node"] == one
    say = f"/v1/fleet/sessions/{session}/copies"
    begun = fleet.ask("a", "POST", say, {"step": "begin", **listed}).expect(200).json()
    assert begun["edition"] > 0
    fleet.ask("a", "POST", say, {"step": "done", **listed, "edition": begun["edition"], "buffers": 1, "bytes": 3,
                                 "problem": "x"}).expect(200)
    assert holders(fleet, "a", session)[one]["problem"] == "x"
    fleet.ask("a", "POST", say, {"step": "begin", "node": one, "number": listed["number"]
                                 + 1}).problem(409, "superseded")
    fleet.ask(one, "POST", "/v1/fleet/copies", {"session": session}).expect(200)
    settled(fleet, "a", session, 1, 1)
    fleet.ask("a", "GET", COPIES.format("none")).problem(404, "session_not_found")
    fleet.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)


def test_a_node_that_keeps_none(session):  # noqa: F811
    fleet = Fleet("abc", options={"b": ["--fleet-replica-bytes", "0"], "c": ["--fleet-replica-bytes", "1M"]})
    try:
        fleet.joined()
        fleet.make("a", session, replicas=2)
        put(fleet, "a", session, "x", bytes(1 << 19))
        put(fleet, "a", session, "large", bytes(1 << 20))

        def only_c():
            there = holders(fleet, "a", session)
            return list(there) == ["c"] and there["c"]["problem"] and there["c"]
        c = until("c alone has what fits", only_c)
        assert not c["current"] and "--fleet-replica-bytes" in c["problem"] and c["bytes"] <= 1 << 20
        fleet.ask("b", "POST", "/v1/fleet/copies", {"session": session}).problem(507, "limit_reached")
    finally:
        fleet.end()


def test_copies_give_way(session):  # noqa: F811
    """What the node's own clients want goes before copies, which come again when there is room for a while."""
    fleet = Fleet("ab")
    try:
        fleet.joined()
        fleet.make("a", session, replicas=1)
        put(fleet, "a", session, "x", bytes(40 << 20))
        assert settled(fleet, "a", session, 1, 1) == ["b"]
        fleet.ask("b", "PUT", DATA.format("default", "own"), bytes(60 << 20)).expect(201)
        copies = until("the copies have given way", lambda: (c := kept(fleet, "b")[session]) and c["buffers"] == 0
                       and c)
        assert "wanted for something else" in copies["problem"]
        until("the owner knows", lambda: holders(fleet, "a", session)["b"]["problem"])
    finally:
        fleet.end()


def test_other_zones_come_first(session):  # noqa: F811
    """Of three nodes that could, the one in another zone is taken each time."""
    fleet = Fleet("abcd", options={n: ["--fleet-label", "zone=" + ("far" if n == "d" else "near")] for n in "abcd"})
    try:
        fleet.joined()
        for i in range(4):
            fleet.make("a", f"{session}{i}", replicas=1)
            assert settled(fleet, "a", f"{session}{i}", 1, 0) == ["d"]
    finally:
        fleet.end()


# --- while the owner is away ------------------------------------------------------------------------------------------


def follow(fleet, at, method, target, headers=None):
    """As curl -L does. Returns the reply and the node that gave it."""
    for _ in range(4):
        reply = fleet.ask(at, method, target, None, headers)
        if reply.status != 307:
            return reply, at
        url = reply.headers["Location"]
        at = next(n for n in fleet.living if url.startswith(fleet.url(n)))
        target = url[url.index("/v1/"):]
    raise AssertionError("it is sent from node to node")


def test_sealed_bytes_are_served_while_the_owner_is_away(fleet, session):  # noqa: F811
    fleet.make("a", session, replicas=1)
    body = os.urandom(300000)
    put(fleet, "a", session, "x", body)
    put(fleet, "a", session, "open", b"changes", seal=False)
    (one,) = settled(fleet, "a", session, 1, 1)
    digest = fleet.ask("a", "GET", DATA.format(session, "x"),
                       headers={"Want-Repr-Digest": "sha-256=1"}).expect(200).headers["Repr-Digest"]
    away(fleet, "a")
    for at in "bcd":
        reply, by = follow(fleet, at, "GET", DATA.format(session, "x"), {"Want-Repr-Digest": "sha-256=1"})
        assert by == one and reply.expect(200).body == body
        assert reply.headers["Gpubuf-Replica"] == "true"
        assert reply.headers["Repr-Digest"] == digest
        part, _ = follow(fleet, at, "GET", DATA.format(session, "x"), {"Range": "bytes=100-199"})
        assert part.expect(206).body == body[100:200]
        head, _ = follow(fleet, at, "HEAD", DATA.format(session, "x"))
        assert head.expect(200).headers["Content-Length"] == "300000"
        record, _ = follow(fleet, at, "GET", f"/v1/sessions/{session}/buffers/x")
        assert record.expect(200).json()["sealed"] is True
        for method, target in (("GET", DATA.format(session, "open")), ("PUT", DATA.format(session, "x")),
                               ("GET", "/v1/sessions/" + session)):
            reply, _ = follow(fleet, at, method, target)
            assert reply.problem(503, "owner_absent")["node"] == "a"
    # No node takes over a session that does not say so.
    assert fleet.etcd.read("sessions")[session]["node"] == "a"
    back(fleet, "a")
    # The owner has lost the bytes with its process, and the holder keeps them.
    fleet.ask("a", "GET", DATA.format(session, "x")).problem(410, "content_lost")
    assert settled(fleet, "a", session, 1, 1) == [one]
    fleet.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)
    until("it has dropped them", lambda: session not in kept(fleet, one))


def test_a_holder_that_is_away_is_replaced(fleet, session):  # noqa: F811
    fleet.make("a", session, replicas=1)
    put(fleet, "a", session, "x", b"abc")
    (one,) = settled(fleet, "a", session, 1, 1)
    away(fleet, one)
    (other,) = until("another has them", lambda: (s := holders(fleet, "a", session)) and list(s) != [one] and all(
        h["current"] for h in s.values()) and list(s))
    assert other not in ("a", one)
    back(fleet, one)
    until("the former has nothing", lambda: session not in kept(fleet, one))
    fleet.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)


def test_a_directory_that_forgot_the_holders(fleet, session):  # noqa: F811
    """As after a restore of a backup from before: the owner writes them again."""
    fleet.make("a", session, replicas=1)
    put(fleet, "a", session, "x", b"abc")
    (one,) = settled(fleet, "a", session, 1, 1)
    record = fleet.etcd.read("sessions")[session]
    fleet.etcd.put("sessions/" + session, {k: v for k, v in record.items() if k != "holders"})
    fleet.etcd.delete(f"held/{one}/{session}")
    until("the holder has dropped its copies", lambda: session not in kept(fleet, one))
    until("they are written again", lambda: "holders" in fleet.etcd.read("sessions")[session])
    until("the copies come again", lambda: kept(fleet, one).get(session, {}).get("buffers") == 1)
    fleet.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)


# --- names ------------------------------------------------------------------------------------------------------------


def test_a_name_is_given_again_when_the_copies_are_gone(fleet, session):  # noqa: F811
    fleet.make("a", session, replicas=1)
    put(fleet, "a", session, "x", b"first")
    (one,) = settled(fleet, "a", session, 1, 1)
    fleet.ask("a", "DELETE", f"/v1/sessions/{session}/buffers/x").expect(204)
    until("the name is free", lambda: fleet.ask("a", "PUT", DATA.format(session, "x"), b"second").status == 201)
    fleet.ask("a", "POST", f"/v1/sessions/{session}/buffers/x/seal").expect(200)
    settled(fleet, "a", session, 1, 1)
    assert fleet.ask(one, "GET", DATA.format(kept(fleet, one)[session]["local"], "x")).body == b"second"
    # The holder is stopped: what it still has is not known, until the owner has struck it.
    pid = fleet[one].process
    pid.send_signal(signal.SIGSTOP)
    try:
        fleet.ask("a", "DELETE", f"/v1/sessions/{session}/buffers/x").expect(204)
        for _ in range(3):
            fleet.ask("a", "PUT", DATA.format(session, "x"), b"third").problem(409, "copies_remain")
            fleet.ask("a", "POST", f"/v1/sessions/{session}/buffers",
                      {"name": "x", "bytes": 8}).problem(409, "copies_remain")
        fleet.ask("a", "PUT", DATA.format(session, "other"), b"is free").expect(201)
    finally:
        pid.send_signal(signal.SIGCONT)
    until("the name is free", lambda: fleet.ask("a", "PUT", DATA.format(session, "x"), b"third").status == 201)
    fleet.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)


def test_names_after_a_restart_of_the_owner(fleet, session):  # noqa: F811
    """What the holder has is not known to the new process: no new name is given until it has said so."""
    fleet.make("a", session, replicas=1)
    put(fleet, "a", session, "x", b"first")
    (one,) = settled(fleet, "a", session, 1, 1)
    fleet[one].process.send_signal(signal.SIGSTOP)
    try:
        fleet.ask("a", "DELETE", f"/v1/sessions/{session}/buffers/x").expect(204)
        fleet.kill("a")
        fleet.start("a")
        fleet.joined("a")
        fleet.ask("a", "PUT", DATA.format(session, "x"), b"second").problem(409, "copies_remain")
        fleet.ask("a", "PUT", DATA.format(session, "new"), b"second").problem(409, "copies_remain")
    finally:
        fleet[one].process.send_signal(signal.SIGCONT)
    until("names are free", lambda: fleet.ask("a", "PUT", DATA.format(session, "x"), b"second").status == 201)
    fleet.ask("a", "PUT", DATA.format(session, "new"), b"second").expect(201)
    fleet.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)


# --- taken over -------------------------------------------------------------------------------------------------------


def test_a_session_is_taken_over_by_a_holder(fleet, session):  # noqa: F811
    S = "/v1/sessions/" + session
    fleet.make("a", session, replicas=2, on_partition="stop", failover_after_s=TTL_S + 1, labels={"k": "v"},
               quota={"bytes": 1 << 24})
    body = os.urandom(1 << 20)
    link = (S + "/buffers/current/copy", {"from": "x", "share": True})
    put(fleet, "a", session, "current", b"before", seal=False)
    put(fleet, "a", session, "open", b"changes", seal=False)
    put(fleet, "a", session, "x", body)
    fleet.ask("a", "POST", *link).expect(200)
    names = settled(fleet, "a", session, 2, 1)
    fleet.kill("a")
    owner = until("it has a new owner", lambda: (r := fleet.etcd.read("sessions")[session])["node"] != "a"
                  and r["node"], within(12 + PATIENCE_S))
    assert owner in names
    record = fleet.etcd.read("sessions")[session]
    assert record["epoch"] == 2 and owner not in [h["node"] for h in record.get("holders", [])]
    until("it is served", lambda: fleet.ask(owner, "GET", S).status == 200)
    now = fleet.ask(owner, "GET", S).json()
    assert (now["labels"] == {"k": "v"} and now["quota"]["bytes"] == 1 << 24 and now["fleet"]["failover_after_s"]
            == TTL_S + 1)
    assert fleet.ask(owner, "GET", DATA.format(session, "x")).expect(200).body == body
    for name in ("open", "current"):
        fleet.ask(owner, "GET", DATA.format(session, name)).problem(410, "content_lost")
    assert fleet.ask(owner, "POST", *link).expect(200).json()["link"] == "x"
    assert fleet.ask(owner, "GET", DATA.format(session, "current")).expect(200).body == body
    until("names are free", lambda: fleet.ask(owner, "PUT", DATA.format(session, "new"), b"x").status in (200, 201))
    fleet.ask(owner, "PUT", DATA.format(session, "open"), b"again").expect(200)
    back(fleet, "a")
    until("it is set aside", lambda: session + ".superseded-1"
          in [s["name"] for s in fleet.ask("a", "GET", "/v1/sessions").json()["items"]])
    assert fleet.ask("a", "GET", DATA.format(session, "x")).status == 307
    settled(fleet, owner, session, 2, 1)
    fleet.ask(owner, "DELETE", S).expect(204)


def test_an_owner_that_slept(fleet, session):  # noqa: F811
    """When it wakes another node is the owner: it takes no write any more."""
    fleet.make("a", session, replicas=1, on_partition="stop", failover_after_s=TTL_S + 1)
    put(fleet, "a", session, "x", b"sealed")
    settled(fleet, "a", session, 1, 1)
    fleet["a"].process.send_signal(signal.SIGSTOP)
    try:
        owner = until("it has a new owner", lambda: (r := fleet.etcd.read("sessions")[session])["node"] != "a"
                      and r["node"])
    finally:
        fleet["a"].process.send_signal(signal.SIGCONT)
    assert fleet.ask("a", "PUT", DATA.format(session, "y"), b"late").status in (307, 409, 503)
    until("it is set aside", lambda: session + ".superseded-1"
          in [s["name"] for s in fleet.ask("a", "GET", "/v1/sessions").json()["items"]])
    assert fleet.ask(owner, "GET", DATA.format(session, "x")).expect(200).body == b"sealed"
    fleet.ask(owner, "DELETE", "/v1/sessions/" + session).expect(204)


def test_an_owner_that_lives_is_not_replaced(session):
    """Its lease has run out, since it does not reach etcd; but it answers."""
    fleet = Fleet("abc", relayed="a")
    try:
        fleet.joined()
        fleet.make("a", session, replicas=1, on_partition="stop", failover_after_s=TTL_S + 1)
        put(fleet, "a", session, "x", b"sealed")
        (one,) = settled(fleet, "a", session, 1, 1)
        fleet.to_etcd["a"].set("cut")
        copies = until("the holder has asked it", lambda: (c := kept(fleet, one)[session]) and "answers"
                       in (c["problem"] or "") and c)
        assert copies["local"] and fleet.etcd.read("sessions")[session]["node"] == "a"
        fleet.to_etcd["a"].set("pass")
        fleet.joined()
        settled(fleet, "a", session, 1, 1)
        assert fleet.etcd.read("sessions")[session]["epoch"] == 1
    finally:
        fleet.end()


def test_an_operator_takes_a_session_over(fleet, session):  # noqa: F811
    """At a holder with its copies; elsewhere only if it is to be empty."""
    take = f"/v1/fleet/sessions/{session}/take"
    fleet.make("a", session, replicas=1)
    put(fleet, "a", session, "x", b"sealed")
    put(fleet, "a", session, "open", b"changes", seal=False)
    (one,) = settled(fleet, "a", session, 1, 1)
    other = next(n for n in "bcd" if n != one)
    fleet.ask(one, "POST", take, {"force": True}).problem(409, "node_alive")
    away(fleet, "a")
    problem = fleet.ask(other, "POST", take, {"force": True}).problem(409, "copies_remain")
    assert f'"{one}"' in problem["detail"]
    taken = fleet.ask(one, "POST", take, {"force": True}).expect(201).json()
    assert taken["fleet"]["epoch"] == 2 and taken["buffers"] == 2
    assert fleet.ask(one, "GET", DATA.format(session, "x")).expect(200).body == b"sealed"
    fleet.ask(one, "GET", DATA.format(session, "open")).problem(410, "content_lost")
    back(fleet, "a")
    settled(fleet, one, session, 1, 1)
    (third,) = holders(fleet, one, session)
    away(fleet, one)
    last = next(n for n in "abcd" if n not in (one, third))
    fleet.ask(last, "POST", take, {"force": True, "empty": True}).expect(201)
    assert fleet.ask(last, "GET", f"/v1/sessions/{session}").json()["buffers"] == 0
    until("the holder has dropped them", lambda: kept(fleet, third).get(session, {"buffers": 0})["buffers"] == 0)
    back(fleet, one)
    fleet.ask(last, "DELETE", "/v1/sessions/" + session).expect(204)


def test_a_move_keeps_the_copies_elsewhere(fleet, session):  # noqa: F811
    fleet.make("a", session, replicas=1)
    body = os.urandom(70000)
    put(fleet, "a", session, "x", body)
    (one,) = settled(fleet, "a", session, 1, 1)
    to = next(n for n in "bcd" if n != one)
    reply = fleet.ask(to, "POST", f"/v1/fleet/sessions/{session}/move", {"to": to}).expect(200).json()
    assert reply["node"] == to
    until("the holder follows", lambda: kept(fleet, one).get(session, {}).get("owner") == to)
    assert settled(fleet, to, session, 1, 1) == [one]
    until("names are free", lambda: fleet.ask(to, "PUT", DATA.format(session, "new"), b"x").status == 201)
    # To the holder itself: it is the owner then, and another node has the copies.
    fleet.ask(one, "POST", f"/v1/fleet/sessions/{session}/move", {"to": one}).expect(200)
    (other,) = settled(fleet, one, session, 1, 1)
    assert other != one
    assert (hashlib.sha256(fleet.ask(one, "GET", DATA.format(session, "x")).body).digest()
            == hashlib.sha256(body).digest())
    fleet.ask(one, "DELETE", "/v1/sessions/" + session).expect(204)
