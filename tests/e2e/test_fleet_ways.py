"""A fleet over one etcd that is away, lost, or cannot be reached: what is here is served, what is elsewhere is refused
with the reason, and in the end the directory and the nodes agree."""
import json
import shutil
import threading

import pytest

from etcd_run import TTL_S
from fleet import REJOIN_S, absent, b64, fleet, session, shared, within  # noqa: F401
from gpubuf_cli import Cli
from harness import DATA, PATIENCE_S, ROUNDS, until

pytestmark = [pytest.mark.once, pytest.mark.timeout(300)]


# --- ways to etcd -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["hole", "deaf", "cut"][: 2 if ROUNDS == 1 else 3])
def test_an_owner_without_its_directory_serves(fleet, session, mode):  # noqa: F811
    fleet.make("b", session)
    fleet.ask("b", "PUT", DATA.format(session, "x"), b"abc").expect(201)
    record = fleet.etcd.read("sessions")[session]
    fleet.to_etcd["b"].set(mode)
    until("it knows that it is alone", lambda: fleet.state("b") == "alone")
    reply = fleet.ask("b", "GET", DATA.format(session, "x")).expect(200)
    assert (reply.body == b"abc" and reply.headers["Gpubuf-Fleet"].startswith("alone; since=")
            and reply.headers["Gpubuf-Epoch"] == "1")
    fleet.ask("b", "PUT", DATA.format(session, "x") + "?in_place=true", b"ABC").expect(200)
    fleet.ask("b", "GET", "/readyz").expect(200)
    if mode != "deaf":  # its renewals arrive
        assert until("the lease has run out", lambda: absent(fleet, "a", session), within(TTL_S + 1))["node"] == "b"
    fleet.ask("b", "POST", "/v1/sessions", {"name": session + "2", "fleet": True}).problem(503, "directory_unavailable")
    reply = fleet.ask("b", "GET", "/v1/sessions/none")
    reply.problem(503, "directory_unavailable")
    assert reply.headers["Retry-After"] == "5"
    fleet.ask("b", "POST", "/v1/sessions", {"name": "local." + session}).expect(201)
    fleet.to_etcd["b"].set("pass")
    fleet.joined(patience_s=within(REJOIN_S))
    reply = fleet.ask("b", "GET", DATA.format(session, "x")).expect(200)
    assert reply.body == b"ABC" and reply.headers.get("Gpubuf-Fleet") is None and reply.headers["Gpubuf-Epoch"] == "1"
    assert fleet.etcd.read("sessions")[session] == record


def test_what_is_deleted_alone_is_unregistered_later(fleet, session):  # noqa: F811
    fleet.make("b", session)
    fleet.to_etcd["b"].set("hole")
    until("it knows that it is alone", lambda: fleet.state("b") == "alone")
    fleet.ask("b", "DELETE", "/v1/sessions/" + session).expect(204)
    assert session in fleet.etcd.read("sessions")
    fleet.to_etcd["b"].set("pass")
    until("the directory has forgotten it", lambda: session not in fleet.etcd.read("sessions"))
    fleet.make("c", session)


def makes(session):
    """Whether a request to etcd makes that session."""
    key = b64("/gpubuf/main/sessions/" + session).encode()
    return lambda asked: key in asked and b"request_put" in asked


def test_the_answer_that_a_session_was_made_is_lost(fleet, session):  # noqa: F811
    relay, dropped = fleet.to_etcd["b"], fleet.to_etcd["b"].dropped
    relay.drop_answer(makes(session))
    body, key = {"name": session, "fleet": True}, {"Idempotency-Key": '"of-the-test"'}
    first = fleet.ask("b", "POST", "/v1/sessions", body, key).expect(201)
    assert relay.dropped == dropped + 1
    again = fleet.ask("b", "POST", "/v1/sessions", body, key).expect(201)
    assert again.json() == first.json() and again.headers["Idempotency-Replayed"] == "true"
    fleet.ask("c", "POST", "/v1/sessions", body).problem(409, "session_exists")
    assert (fleet.etcd.read("sessions")[session]["node"], fleet.registered_at("b")[session]) == ("b", 1)


def test_a_session_that_may_have_been_made_is_taken_back(fleet, session):  # noqa: F811
    """All answers are lost, so that the client hears nothing else than that the directory is silent."""
    fleet.to_etcd["b"].set("deaf")
    fleet.ask("b", "POST", "/v1/sessions", {"name": session, "fleet": True}).problem(503, "directory_unavailable")
    assert session in fleet.etcd.read("sessions") and session not in fleet.registered_at("b")
    fleet.to_etcd["b"].set("pass")
    until("the directory has forgotten it", lambda: session not in fleet.etcd.read("sessions"))
    fleet.make("c", session)


def test_a_session_whose_node_ends_before_it_is_made(fleet, session):  # noqa: F811
    """The directory has it, and no client has been told; the node takes it out some seconds after it starts again."""
    fleet.to_etcd["b"].set("deaf")
    raw, body = fleet["b"].raw(), json.dumps({"name": session, "fleet": True}).encode()
    raw.request("POST", "/v1/sessions", ["Content-Type: application/json", f"Content-Length: {len(body)}"], body)
    until("the directory has it", lambda: session in fleet.etcd.read("sessions"))
    fleet.kill("b")
    raw.close()
    fleet.to_etcd["b"].set("pass")
    assert fleet.etcd.read("sessions")[session]["node"] == "b"
    fleet.start("b")
    fleet.joined("b")
    until("it is gone", lambda: session not in fleet.etcd.read("sessions"))
    assert f"b/{session}" not in fleet.etcd.read("owned")


# --- etcd -------------------------------------------------------------------------------------------------------------


class Load:
    """Clients that write and read the session of a node until it ends. What fails is kept."""

    def __init__(self, fleet, name, sessions):
        self.ended, self.done, self.failed = threading.Event(), 0, []
        self.threads = [threading.Thread(target=self._run, args=(fleet[name].client(), s)) for s in sessions]
        for t in self.threads:
            t.start()

    def _run(self, client, session):
        n = 0
        try:
            while not self.ended.is_set():
                n, data = n + 1, b"%08d" % n
                replies = client.ask("PUT", DATA.format(session, "load"),
                                     data), client.ask("GET", DATA.format(session, "load"))
                if [r.status for r in replies] not in ([200, 200], [201, 200]) or replies[1].body != data:
                    self.failed.append(replies)
                self.done += 1
        except Exception as e:
            self.failed.append(e)

    def goes_on(self):
        before = self.done
        until("the load goes on", lambda: self.done >= before + 20 or self.failed)

    def end(self):
        self.ended.set()
        for t in self.threads:
            t.join(PATIENCE_S)
        assert not self.failed, self.failed[:3]


def test_local_sessions_do_not_notice_that_etcd_is_away(fleet, session):  # noqa: F811
    fleet.make("a", session)
    fleet.ask("a", "PUT", DATA.format(session, "x"), b"abc").expect(201)
    load = Load(fleet, "a", ["default", session])
    try:
        load.goes_on()
        fleet.etcd.members[0].kill()
        until("all know that they are alone", lambda: fleet.states_are("alone"))
        load.goes_on()
        fleet.etcd.members[0].start()
        fleet.joined()
        load.goes_on()
    finally:
        load.end()
    assert fleet.ask("a", "GET", DATA.format(session, "x")).expect(200).body == b"abc"
    assert fleet.registered_at("a")[session] == 1


def test_a_directory_that_was_wiped_deletes_nothing(fleet, session):  # noqa: F811
    """Nor does one that was made in its place. With the old one all is as before."""
    etcd = fleet.etcd.members[0]
    for name in "abc":
        fleet.make(name, f"{session}.{name}")
    before = {name: fleet.registered_at(name) for name in "abc"}
    etcd.kill()
    kept = etcd.data + ".kept"
    shutil.move(etcd.data, kept)
    etcd.start()

    def all_know(text):
        return all(text in (fleet.ask(name, "GET", "/v1/fleet").json()["why"] or "") for name in "abc")

    until("all know that it is empty", lambda: all_know("has lost the record of the fleet"))
    assert Cli().json("fleet", "init", "--etcd", etcd.url)["made"]
    until("all know that it is another's", lambda: all_know("is of another fleet"))
    assert fleet.states_are("alone")
    assert fleet.etcd.read("sessions") == fleet.etcd.read("owned") == fleet.etcd.read("nodes") == {}
    assert {name: fleet.registered_at(name) for name in "abc"} == before
    reply = fleet.ask("a", "GET", f"/v1/sessions/{session}.a").expect(200)
    assert reply.headers["Gpubuf-Fleet"].startswith("alone")
    etcd.kill()
    shutil.rmtree(etcd.data)
    shutil.move(kept, etcd.data)
    etcd.start()
    fleet.joined()
    assert {name: fleet.registered_at(name) for name in "abc"} == before
