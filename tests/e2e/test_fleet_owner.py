"""Who owns a session of a fleet: epochs, taking a session over by force, deleting that of an absent node, and what the
former owner does when it comes back."""
import json
import threading

import pytest

from fleet import b64, fleet, session  # noqa: F401
from harness import DATA, metric, until
from ownership import (SHORT_S, TAKE, aside, events, heal, hide, is_set_aside, leave, ledger,  # noqa: F401
                       range_of, read_only, shared, superseded)  # noqa: F401

pytestmark = [pytest.mark.once, pytest.mark.timeout(120)]


# --- epochs -----------------------------------------------------------------------------------------------------------


def with_epoch(fleet, name, session, epoch, method="GET"):  # noqa: F811
    return fleet.ask(name, method, "/v1/sessions/" + session, None, {"Gpubuf-Epoch": str(epoch)})


def test_a_request_may_say_the_epoch_that_it_knows(fleet, ledger, session):  # noqa: F811
    fleet.make("b", session)
    assert ledger.put("b", session, b"abc", epoch=1).expect(201).headers["Gpubuf-Epoch"] == "1"
    assert with_epoch(fleet, "b", session, 0).expect(200).headers["Gpubuf-Epoch"] == "1"
    for wrong in ("x", "-1", "1.5", "1 2", "", "99999999999999999999"):
        with_epoch(fleet, "b", session, wrong).problem(400, "invalid_argument")
    fleet.ask("b", "GET", "/v1/sessions/default", None, {"Gpubuf-Epoch": "1"}).expect(200)


def test_a_higher_epoch_that_the_directory_denies(fleet, ledger, session):  # noqa: F811
    """One client is wrong; all continue as soon as the directory has said so, and that one too."""
    fleet.make("b", session)
    ledger.put("b", session, b"abc").expect(201)
    problem = superseded(ledger.put("b", session, b"ABC", epoch=9))
    assert problem["node"] == "b"
    until("it was denied", lambda: fleet.ask("b", "GET", "/v1/sessions/" + session).status == 200)
    assert fleet.ask("b", "GET", DATA.format(session, "x")).expect(200).body == b"abc"
    until("it is served as well", lambda: with_epoch(fleet, "b", session, 9).status == 200)
    superseded(with_epoch(fleet, "b", session, 10, "DELETE"))
    until("it was denied again", lambda: with_epoch(fleet, "b", session, 1).status == 200)
    assert fleet.registered_at("b")[session] == 1 == fleet.records()[session]["epoch"]


def test_a_higher_epoch_of_the_directory(fleet, ledger, session):  # noqa: F811
    """The record is this very session's, as its claim says: it continues at that epoch."""
    fleet.make("b", session)
    ledger.put("b", session, b"abc").expect(201)
    before = fleet.ask("b", "GET", "/v1/sessions/" + session).expect(200)
    fleet.etcd.put("sessions/" + session, {**fleet.etcd.read("sessions")[session], "epoch": 5})
    superseded(with_epoch(fleet, "b", session, 5))
    after = until("the node has learnt it", lambda: (r := with_epoch(fleet, "b", session, 5)).status == 200 and r)
    assert after.headers["Gpubuf-Epoch"] == "5" and after.headers["ETag"] != before.headers["ETag"]
    assert after.json()["fleet"] == {"epoch": 5, "on_partition": "serve"}
    assert ledger.put("b", session, b"ABC", epoch=5).expect(200).headers["Gpubuf-Epoch"] == "5"
    fleet.kill("b")
    fleet.start("b")
    assert with_epoch(fleet, "b", session, 5).expect(200).headers["Gpubuf-Epoch"] == "5", "it is kept over a restart"


def test_the_epochs_of_a_name_rise(fleet, ledger, session):  # noqa: F811
    """A client that has met one session of the name is served by the next, wherever that is."""
    fleet.make("b", session)
    leave(fleet, "b")
    ledger.take("a", session)
    fleet.start("b")
    heal(fleet)
    fleet.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)
    until("it is forgotten", lambda: session not in fleet.records())
    made = fleet.make("c", session)
    assert made["fleet"]["epoch"] > 2
    ledger.put("c", session, b"abc", epoch=2).expect(201)


def test_a_higher_epoch_while_the_directory_is_silent(fleet, ledger, session):  # noqa: F811
    """The directory cannot deny it: the client that says so is refused, and all others are served."""
    fleet.make("b", session)
    fleet.make("b", session + ".2")
    ledger.put("b", session, b"abc").expect(201)
    fleet.to_etcd["b"].set("hole")
    until("it knows that it is alone", lambda: fleet.state("b") == "alone")
    ledger.put("b", session, b"def").expect(200)
    superseded(with_epoch(fleet, "b", session, 2))
    for _ in range(3):
        for epoch in 2, 10**9, 2**64 - 1:
            superseded(with_epoch(fleet, "b", session, epoch))
            superseded(with_epoch(fleet, "b", session, epoch, "DELETE"))
        superseded(ledger.put("b", session, b"ghi", epoch=2))
        ledger.put("b", session, b"def").expect(200)
        fleet.ask("b", "GET", "/v1/sessions/" + session).expect(200)
    ledger.put("b", session + ".2", b"abc").expect(201)  # the others are as they were
    heal(fleet)
    until("it was denied", lambda: with_epoch(fleet, "b", session, 2).status == 200)
    assert fleet.ask("b", "GET", DATA.format(session, "x")).expect(200).body == b"def"


# --- taking over ------------------------------------------------------------------------------------------------------


def test_take(fleet, ledger, session):  # noqa: F811
    """The new owner has the name, what the directory knew of it, and no bytes."""
    fleet.make("b", session, labels={"k": "v"}, quota={"bytes": 1 << 20}, on_partition="stop")
    ledger.put("b", session, b"abc").expect(201)
    before = fleet.records()[session]
    leave(fleet, "b")
    reply = ledger.take("a", session)
    assert reply.headers["Location"].endswith("/v1/sessions/" + session) and reply.headers["Gpubuf-Epoch"] == "2"
    made = reply.json()
    assert (made["name"], made["fleet"], made["labels"]) == (session, {"epoch": 2, "on_partition": "stop"}, {"k": "v"})
    assert made == fleet.ask("a", "GET", "/v1/sessions/" + session).expect(200).json()
    assert fleet.ask("a", "GET", f"/v1/sessions/{session}/buffers").expect(200).json()["items"] == []
    after = until("there is no way back", lambda: "former" not in (r := fleet.records()[session]) and r)
    assert {**after, "claim": before["claim"]} == {**before, "node": "a",
                                                   "epoch": 2} and after["claim"] != before["claim"]
    assert f"b/{session}" not in fleet.etcd.read("owned") and f"a/{session}" in fleet.etcd.read("owned")
    assert fleet.ask("c", "GET", "/v1/sessions/" + session).expect(307).headers["Gpubuf-Owner"] == "a"
    fleet.ask("a", "PUT", DATA.format(session, "big"), b"x" * (2 << 20)).problem(507, "quota_exceeded")
    ledger.put("a", session, b"def", epoch=2).expect(201)


@pytest.mark.parametrize("body", [None, {}, {"force": False}, {"force": "yes"}, {"force": 1},
                                  {"force": True, "more": 1}, []])
def test_take_says_force(fleet, ledger, session, body):  # noqa: F811
    fleet.make("b", session)
    assert fleet.ask("a", "POST", TAKE.format(session), body).status == 400
    assert fleet.records()[session]["node"] == "b"


def test_take_is_refused(fleet, ledger, session):  # noqa: F811
    fleet.make("b", session)
    fleet.make("a", session + ".a")
    ledger.takes("a", session + ".none").problem(404, "session_not_found")
    ledger.takes("a", "n%20n").problem(400, "invalid_name")
    assert '"b"' in ledger.takes("a", session).problem(409, "node_alive")["detail"]
    ledger.takes("a", session + ".a").problem(409, "session_exists")
    ledger.takes("a", "default").problem(409, "session_exists")
    fleet.to_etcd["c"].set("hole")
    until("it knows that it is alone", lambda: fleet.state("c") == "alone")
    ledger.takes("c", session).problem(503, "directory_unavailable")
    assert (fleet.records()[session]["node"] == "b" and not fleet.ask("c", "GET", "/v1/sessions/" + session).status
            == 200)


def test_take_where_a_local_session_has_the_name(fleet, ledger, session):  # noqa: F811
    fleet.to_etcd["a"].set("hole")
    until("it knows that it is alone", lambda: fleet.state("a") == "alone")
    fleet.ask("a", "POST", "/v1/sessions", {"name": session}).expect(201)
    fleet.make("b", session)
    heal(fleet)
    leave(fleet, "b")
    ledger.takes("a", session).problem(409, "session_exists")
    assert fleet.records()[session]["node"] == "b"
    fleet.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)
    ledger.take("a", session)


def test_of_two_that_take_one_is_faster(fleet, ledger, session):  # noqa: F811
    names = [f"{session}.{i}" for i in range(8)]
    for s in names:
        fleet.make("b", s)
    leave(fleet, "b")
    for s in names:
        start, answers = threading.Barrier(2), {}

        def take(name, s=s, start=start, answers=answers):
            start.wait(10)
            answers[name] = ledger.takes(name, s)

        both = [threading.Thread(target=take, args=(name,)) for name in "ac"]
        for t in both:
            t.start()
        for t in both:
            t.join(60)
        won = [name for name, r in answers.items() if r.status == 201]
        assert len(won) == 1, answers
        lost = answers["a" if won == ["c"] else "c"]
        # the new owner is alive
        assert lost.status == 409 and lost.json()["code"] in ("superseded", "node_alive"), lost
        assert (fleet.records()[s]["node"], fleet.records()[s]["epoch"]) == (won[0], 2)


def test_taken_and_taken_back(fleet, ledger, session):  # noqa: F811
    """Each owner gets an epoch of its own, and each former one keeps what it had."""
    fleet.make("b", session)
    ledger.put("b", session, b"at b 1").expect(201)
    hide(fleet, "b")
    ledger.take("a", session)
    ledger.put("a", session, b"at a 2").expect(201)
    heal(fleet)
    is_set_aside(fleet, "b", session)
    hide(fleet, "a")
    assert ledger.take("b", session).headers["Gpubuf-Epoch"] == "3"
    ledger.put("b", session, b"at b 3").expect(201)
    heal(fleet)
    is_set_aside(fleet, "a", session, 2)
    assert fleet.registered_at("b")[session] == 3 and fleet.superseded_at("b")[aside(session)] == 1
    for name, s, data in [("b", aside(session), b"at b 1"), ("a", aside(session, 2), b"at a 2"),
                          ("b", session, b"at b 3")]:
        assert fleet.ask(name, "GET", DATA.format(s, "x")).expect(200).body == data


def test_who_remembers_the_former_owner(fleet, ledger, session):  # noqa: F811
    """A node that has looked the session up before learns of the new owner, and never says that there is no session."""
    fleet.make("b", session)
    assert fleet.ask("c", "GET", "/v1/sessions/" + session).expect(307).headers["Gpubuf-Owner"] == "b"
    leave(fleet, "b")
    ledger.put("c", session, b"lost")
    ledger.take("a", session)

    def leads_there():
        reply = fleet.ask("c", "GET", "/v1/sessions/" + session)
        assert reply.status in (307, 503), reply
        return reply.status == 307 and reply.headers["Gpubuf-Owner"] == "a"

    until("it knows the new owner", leads_there)


# --- the former owner -------------------------------------------------------------------------------------------------


def test_a_takeover_during_a_partition(fleet, ledger, session):  # noqa: F811
    """Acceptance 8 and 9. Clients that know of the new owner are refused by the old one at once; others are served
    there until the directory can be asked."""
    fleet.make("b", session)
    plain, knowing = (ledger.writer("b", session, buffer, says) for buffer,
                      says in (("plain", False), ("knowing", True)))
    plain.goes_on()
    hide(fleet, "b")
    plain.goes_on()
    assert fleet.ask("b", "GET", "/v1/sessions/" + session).expect(200).headers["Gpubuf-Fleet"].startswith(
        "alone; since=")
    fleet.ask("a", "GET", "/v1/sessions/" + session).problem(503, "owner_absent")
    knowing.end()
    assert knowing.acknowledged and not knowing.refused
    ledger.take("a", session)
    plain.goes_on()  # curl says no epoch
    ledger.put("a", session, b"new").expect(201)
    assert fleet.ask("c", "GET", "/v1/sessions/" + session).expect(307).headers["Gpubuf-Epoch"] == "2"
    assert superseded(ledger.put("b", session, b"stale", "knowing", epoch=2))["node"] == "b"
    ledger.put("b", session, b"said no epoch", "plain2").expect(201)
    plain.goes_on()
    plain.end()
    assert not plain.refused
    heal(fleet)
    new = is_set_aside(fleet, "b", session)
    assert fleet.ask("b", "GET", "/v1/sessions/" + session).expect(307).headers["Gpubuf-Owner"] == "a"
    ids = {b["name"] for b in fleet.ask("b", "GET", f"/v1/sessions/{new}/buffers").expect(200).json()["items"]}
    assert ids == {"plain", "knowing", "plain2"}
    assert metric(fleet["b"], "gpubufd_fleet_superseded_total") >= 1


def test_what_is_set_aside_can_be_read_and_deleted(fleet, ledger, session):  # noqa: F811
    fleet.make("b", session, labels={"k": "v"})
    ledger.put("b", session, b"abc").expect(201)
    hide(fleet, "b")
    ledger.take("a", session)
    ledger.put("a", session, b"new").expect(201)
    heal(fleet)
    new = is_set_aside(fleet, "b", session)
    at = f"/v1/sessions/{new}"
    assert fleet.ask("b", "GET", DATA.format(new, "x")).expect(200).body == b"abc"
    fleet.ask("b", "HEAD", DATA.format(new, "x")).expect(200)
    assert fleet.ask("b", "GET", at).json()["labels"] == {"k": "v"}
    assert fleet.ask("b", "POST", f"{at}/buffers/x/verify", {}).status in (200, 202)
    for method, target, body in [
            ("PUT", DATA.format(new, "x"), b"ABC"), ("PATCH", DATA.format(new, "x") + "?offset=0", b"A"),
            ("PATCH", at, {"labels": {}}), ("POST", at + "/buffers", {"name": "y", "dtype": "uint8", "shape": [4]}),
            ("POST", at + "/buffers/x/seal", {}), ("PATCH", at + "/buffers/x", {"labels": {"a": "b"}}),
            ("POST", at + "/pools", {"name": "p", "max_bytes": 4096})]:
        reply = fleet.ask("b", method, target, body, {"Content-Type": "application/json"} if isinstance(body, dict)
                          else None)
        assert reply.status == 404 and reply.json()["code"] == "not_found" or read_only(reply), (method, target)
    assert fleet.ask("b", "GET", DATA.format(new, "x")).expect(200).body == b"abc"
    told = until("it was told", lambda: [e for e in events(fleet, "b", "session.superseded") if e.get("session")
                                         == session])
    assert [e["detail"] for e in told] == [new], told
    assert not any(e.get("session") == session for e in events(fleet, "b", "session.deleted"))
    fleet.ask("b", "DELETE", at).expect(204)
    ledger.forget(session)
    assert fleet.ask("a", "GET", DATA.format(session, "x")).expect(200).body == b"new"
    assert fleet.records()[session]["node"] == "a", "the end of the copy is none of the directory's business"


def test_what_is_set_aside_goes_when_it_is_idle(fleet, ledger, session):  # noqa: F811
    """Node c keeps it for two seconds."""
    fleet.make("c", session)
    ledger.put("c", session, b"abc").expect(201)
    ledger.forget(session)
    hide(fleet, "c")
    ledger.take("a", session)
    heal(fleet)
    until("it was set aside", lambda: events(fleet, "c", "session.superseded"))
    until("it is gone", lambda: aside(session) not in fleet.superseded_at("c"))
    assert fleet.ask("c", "GET", "/v1/sessions/" + session).expect(307).headers["Gpubuf-Owner"] == "a"
    assert fleet.records()[session]["node"] == "a" and SHORT_S


def test_the_new_name_is_free(fleet, ledger, session):  # noqa: F811
    """A session that has the name already keeps it."""
    fleet.make("b", session)
    ledger.put("b", session, b"abc").expect(201)
    fleet.ask("b", "POST", "/v1/sessions", {"name": aside(session)}).expect(201)
    hide(fleet, "b")
    ledger.take("a", session)
    heal(fleet)
    until("it is set aside", lambda: fleet.superseded_at("b").get(aside(session) + "-2") == 1)
    assert fleet.ask("b", "GET", DATA.format(aside(session) + "-2", "x")).expect(200).body == b"abc"
    fleet.ask("b", "PUT", DATA.format(aside(session), "y"), b"local").expect(201)


def test_a_long_name_is_cut(fleet, ledger, session):  # noqa: F811
    session = session + "." + "n" * 200
    made = fleet.ask("b", "POST", "/v1/sessions", {"name": session, "fleet": True})
    while made.status == 400:  # as long as names may be
        session = session[:-1]
        made = fleet.ask("b", "POST", "/v1/sessions", {"name": session, "fleet": True})
    made.expect(201)
    fleet.ask("b", "PUT", DATA.format(session, "x"), b"abc").expect(201)
    hide(fleet, "b")
    ledger.take("a", session)
    heal(fleet)
    new = until("it is set aside", lambda: [s for s in fleet.superseded_at("b") if s.startswith(session[:100])])[0]
    assert new.endswith(".superseded-1") and len(session) - 8 <= len(new) <= len(session)
    assert fleet.ask("b", "GET", DATA.format(new, "x")).expect(200).body == b"abc"


def test_an_owner_that_starts_after_a_takeover(fleet, ledger, session):  # noqa: F811
    """Its bytes ended with it; what is left of the session is set aside. At its second start it is as after the
    first."""
    fleet.make("b", session)
    ledger.put("b", session, b"abc").expect(201)
    fleet.kill("b")
    until("the lease has run out", lambda: "b" not in fleet.etcd.read("alive"))
    ledger.take("a", session)
    ledger.put("a", session, b"new").expect(201)
    fleet.start("b")
    heal(fleet)
    new = is_set_aside(fleet, "b", session)
    fleet.ask("b", "GET", DATA.format(new, "x")).problem(410, "content_lost")
    fleet.kill("b")
    fleet.start("b")
    heal(fleet)
    assert is_set_aside(fleet, "b", session) == new
    assert fleet.ask("b", "GET", "/v1/sessions/" + session).expect(307).headers["Gpubuf-Owner"] == "a"


def test_durable_bytes_of_one_that_is_set_aside(fleet, ledger, session):  # noqa: F811
    fleet.make("b", session)
    fleet.ask("b", "PUT", DATA.format(session, "x") + "?durability=sync", b"abc" * 100000).expect(201)
    leave(fleet, "b")
    ledger.take("a", session)
    fleet.start("b")
    heal(fleet)
    new = is_set_aside(fleet, "b", session)
    until("it is readable", lambda: fleet.ask("b", "GET", DATA.format(new, "x")).status == 200)
    assert fleet.ask("b", "GET", DATA.format(new, "x")).body == b"abc" * 100000


def test_requests_that_go_on_while_the_session_is_set_aside(fleet, ledger, session):  # noqa: F811
    """A connection that has written to the session before, an upload that has begun, and an answer that was kept."""
    fleet.make("b", session)
    target, key = DATA.format(session, "x"), {"Idempotency-Key": '"of-the-test"'}
    client = fleet["b"].client()
    for data in (b"abc", b"def"):  # the second continues where the first was
        ledger.put("b", session, data, client=client)
    made = fleet.ask("b", "POST", f"/v1/sessions/{session}/buffers", {"name": "y", "dtype": "uint8", "shape": [4]},
                     key).expect(201)
    assert made.json()["name"] == "y"
    hide(fleet, "b")
    raw = fleet["b"].raw()
    raw.put(target, 6).send(b"ABC")
    ledger.take("a", session)
    heal(fleet)
    new = is_set_aside(fleet, "b", session)
    raw.send(b"DEF")
    reply = raw.reply()
    assert reply is None or reply.status in (404, 409, 410), reply
    assert client.ask("PUT", target, b"ghi").expect(307).headers["Gpubuf-Owner"] == "a"
    again = fleet.ask("b", "POST", f"/v1/sessions/{session}/buffers", {"name": "y", "dtype": "uint8", "shape": [4]},
                      key)
    assert again.expect(307).headers["Gpubuf-Owner"] == "a"
    assert fleet.ask("b", "GET", DATA.format(new, "x")).expect(200).body == b"def"
    read_only(client.ask("PUT", DATA.format(new, "x"), b"ghi"))


def test_parts_of_an_upload_to_one_that_is_set_aside(fleet, ledger, session):  # noqa: F811
    fleet.make("b", session)
    begun = fleet.ask("b", "POST", f"/v1/sessions/{session}/uploads", {"buffer": "m", "dtype": "uint8",
                                                                       "shape": [8]}).expect(201)
    at = begun.headers["Location"].partition(fleet.url("b"))[2] or begun.headers["Location"]
    hide(fleet, "b")
    ledger.take("a", session)
    heal(fleet)
    new = is_set_aside(fleet, "b", session)
    assert fleet.ask("b", "PUT", at + "/parts/1?offset=0", b"01234567").status not in (200, 201, 204)
    assert fleet.ask("b", "GET", f"/v1/sessions/{new}/uploads").expect(200).json()["items"] == []
    fleet.ask("b", "GET", f"/v1/sessions/{new}/buffers/m").problem(404, "buffer_not_found")


# --- deleting what is away --------------------------------------------------------------------------------------------


def test_a_session_of_an_absent_node_is_deleted(fleet, ledger, session):  # noqa: F811
    """It does not rise when the node is back, and the name is free at once, at a higher epoch."""
    fleet.make("b", session, labels={"k": "v"})
    ledger.put("b", session, b"abc").expect(201)
    at = "/v1/fleet/sessions/" + session
    fleet.ask("a", "DELETE", at + "?force=true").problem(409, "node_alive")
    hide(fleet, "b")
    for query in ("", "?force=false"):
        fleet.ask("a", "DELETE", at + query).problem(400, "invalid_argument")
    ledger.buries("a", session)
    fleet.ask("a", "DELETE", at + "?force=true").problem(404, "session_not_found")
    fleet.ask("a", "GET", at).problem(404, "session_not_found")
    fleet.ask("c", "GET", "/v1/sessions/" + session).problem(404, "session_not_found")
    ledger.takes("a", session).problem(404, "session_not_found")
    assert session not in [s["name"] for s in fleet.ask("a", "GET", "/v1/fleet/sessions?limit=1000").json()["items"]]
    record = fleet.etcd.read("sessions")[session]
    assert (record["state"], record["epoch"]) == ("deleted", 1) and f"b/{session}" not in fleet.etcd.read("owned")
    assert lease_days(fleet, session) == 90
    made = fleet.make("c", session)
    assert made["fleet"]["epoch"] == 2 == fleet.records()[session]["epoch"] and lease_days(fleet, session) == 0
    heal(fleet)
    new = is_set_aside(fleet, "b", session)
    assert fleet.ask("b", "GET", DATA.format(new, "x")).expect(200).body == b"abc"
    assert fleet.ask("b", "GET", "/v1/sessions/" + session).expect(307).headers["Gpubuf-Owner"] == "c"


def lease_days(fleet, session):  # noqa: F811
    """Of the session's record, rounded; 0: it has none."""
    key = next(kv for kv in range_of(fleet) if kv["key"] == b64("/gpubuf/main/sessions/" + session))
    if key.get("lease", "0") == "0":
        return 0
    return round(int(fleet.etcd.call("/v3/lease/timetolive", {"ID": key["lease"]})["TTL"]) / 86400)


@pytest.mark.parametrize("way", ["hidden", "killed"])
def test_a_deleted_session_does_not_rise(fleet, ledger, session, way):  # noqa: F811
    fleet.make("b", session)
    ledger.put("b", session, b"abc").expect(201)
    if way == "hidden":
        hide(fleet, "b")
    else:
        fleet.kill("b")
        until("the lease has run out", lambda: "b" not in fleet.etcd.read("alive"))
    ledger.buries("a", session)
    if way == "killed":
        fleet.start("b")
    heal(fleet)
    is_set_aside(fleet, "b", session)
    for name in "abc":
        fleet.ask(name, "GET", "/v1/sessions/" + session).problem(404, "session_not_found")
    assert fleet.make("b", session)["fleet"]["epoch"] > 1, "the former owner may make it as well"
    fleet.ask("b", "DELETE", "/v1/sessions/" + session).expect(204)
    until("it is forgotten", lambda: session not in fleet.records())


def test_of_a_node_that_was_forgotten(fleet, ledger, session):  # noqa: F811
    """Its sessions are out of the directory. When it comes back they are its own again, one epoch further, unless
    another has the name."""
    fleet.make("b", session)
    fleet.make("b", session + ".2")
    ledger.put("b", session, b"abc").expect(201)
    hide(fleet, "b")
    fleet.ask("a", "DELETE", "/v1/fleet/nodes/b").expect(204)
    assert not {session, session + ".2"} & set(fleet.records())
    fleet.make("c", session + ".2")
    ledger.taken[session + ".2"] = (next(ledger.moments), "c")
    heal(fleet)
    until("it is registered again", lambda: fleet.registered_at("b").get(session) == 2)
    assert fleet.records()[session]["epoch"] == 2
    assert fleet.ask("b", "GET", DATA.format(session, "x")).expect(200).body == b"abc"
    is_set_aside(fleet, "b", session + ".2")


# --- records ----------------------------------------------------------------------------------------------------------


def test_what_is_changed_of_a_session_is_in_its_record(fleet, ledger, session):  # noqa: F811
    fleet.make("b", session, labels={"k": "v"})
    patch = {"labels": {"k": "w", "l": "m"}, "quota": {"bytes": 1 << 20}}
    fleet.ask("b", "PATCH", "/v1/sessions/" + session, patch).expect(200)
    until("the directory has it", lambda: fleet.records()[session]["labels"] == {"k": "w", "l": "m"})
    assert json.dumps(fleet.records()[session]["quota"]).find(str(1 << 20)) >= 0
    assert fleet.ask("a", "GET", "/v1/fleet/sessions/" + session).expect(200).json()["labels"] == {"k": "w", "l": "m"}
    fleet.ask("b", "PATCH", "/v1/sessions/" + session, {"quota": {"bytes": None}}).expect(200)
    until("the directory has it", lambda: fleet.records()[session]["quota"] is None or "bytes"
          not in str(fleet.records()[session]["quota"]))
    assert fleet.records()[session]["epoch"] == 1, "nothing else has changed"


@pytest.mark.parametrize("restart", [False, True])
def test_what_is_changed_while_the_directory_is_silent(fleet, ledger, session, restart):  # noqa: F811
    """It reaches the record later, over a restart as well."""
    fleet.make("b", session)
    fleet.to_etcd["b"].set("hole")
    until("it knows that it is alone", lambda: fleet.state("b") == "alone")
    fleet.ask("b", "PATCH", "/v1/sessions/" + session, {"labels": {"k": "later"}}).expect(200)
    assert fleet.records()[session]["labels"] == {}
    if restart:
        fleet.kill("b")
        fleet.to_etcd["b"].set("pass")
        fleet.start("b")
    heal(fleet)
    until("the directory has it", lambda: fleet.records()[session]["labels"] == {"k": "later"})


# --- local sessions ---------------------------------------------------------------------------------------------------


def test_a_local_session_hides_a_registered_one(fleet, ledger, session):  # noqa: F811
    """It was made while its node was alone. The node serves it, others lead to the owner, and neither ends the
    other."""
    fleet.to_etcd["b"].set("hole")
    until("it knows that it is alone", lambda: fleet.state("b") == "alone")
    fleet.ask("b", "POST", "/v1/sessions", {"name": session}).expect(201)
    fleet.ask("b", "PUT", DATA.format(session, "x"), b"local").expect(201)
    fleet.make("c", session)
    ledger.put("c", session, b"registered").expect(201)
    heal(fleet)
    reply = fleet.ask("b", "GET", DATA.format(session, "x"), headers={"Gpubuf-Epoch": "1"})
    assert reply.expect(200).body == b"local" and "Gpubuf-Epoch" not in reply.headers
    assert fleet.ask("a", "GET", DATA.format(session, "x")).expect(307).headers["Gpubuf-Owner"] == "c"
    fleet.ask("b", "DELETE", "/v1/sessions/" + session).expect(204)
    assert fleet.ask("b", "GET", DATA.format(session, "x")).expect(307).headers["Gpubuf-Owner"] == "c"
