"""A takeover, a deletion and a return that are cut at each of their requests to the directory: in the end each session
has one owner, and what was acknowledged is there."""
import threading

import pytest

from fleet import b64, fleet, session  # noqa: F401
from harness import PATIENCE_S, until
from ownership import aside, heal, hide, ledger, shared  # noqa: F401

pytestmark = [pytest.mark.once, pytest.mark.timeout(120)]

STEPS = ("reads", "looks", "writes")
HARMS = ("drop", "stop", "hole", "deaf", "kill")


def key(kind, name):
    return b64(f"/gpubuf/main/{kind}/{name}").encode()


def step_of(asked, session, former):  # noqa: F811
    """Which step of taking the session from its former owner that request is; None: it is no such."""
    if key("sessions", session) in asked:
        return "writes" if b"request_put" in asked else "reads"
    return "looks" if key("alive", former) in asked and b"request_put" not in asked else None


class Harm:
    """Is done to a node at its first request that is `step` of something. done: it was."""

    def __init__(self, fleet, name, harm, matches):
        self.fleet, self.name, self.harm, self.matches, self.done = fleet, name, harm, matches, threading.Event()
        self.relay = fleet.to_etcd[name]
        self.relay.watch = self._watch

    def _watch(self, asked):
        if self.done.is_set() or not self.matches(asked):
            return None
        self.done.set()
        self.relay.watch = None
        if self.harm in ("hole", "deaf"):
            self.relay.set(self.harm)
            return None
        if self.harm == "kill":  # the directory may get the request still
            self.fleet[self.name].process.kill()
            return None
        return self.harm

    def end(self):
        assert self.done.wait(PATIENCE_S), "the step came"
        self.relay.watch = None
        self.relay.set("pass")
        if self.harm == "kill":
            self.fleet[self.name].process.wait(PATIENCE_S)


def asked_in_vain(ask):
    """The answer; None if the node ended instead."""
    try:
        return ask()
    except OSError:
        return None


def revive(fleet, name):  # noqa: F811
    if name not in fleet.living:
        fleet.kill(name)
        fleet.start(name)
    heal(fleet, name)


@pytest.mark.parametrize("harm", HARMS)
def test_a_takeover_is_cut(fleet, ledger, session, harm):  # noqa: F811
    """Whatever its client has heard, it can be repeated until the node has the session, and the former owner keeps what
    it had."""
    names = {step: f"{session}.{step}" for step in STEPS}
    for s in names.values():
        fleet.make("b", s)
        ledger.put("b", s, b"at b").expect(201)
    hide(fleet, "b")
    for step, s in names.items():
        cut = Harm(fleet, "a", harm, lambda asked, step=step, s=s: step_of(asked, s, "b") == step)
        reply = asked_in_vain(lambda s=s: ledger.takes("a", s))
        cut.end()
        if reply is None:
            ledger.taken[s] = (next(ledger.moments), "a")
        assert reply is None or reply.status == 201 or reply.problem(503, "directory_unavailable"), reply
        revive(fleet, "a")
        again = until("the node has it", lambda s=s: (r := ledger.takes("a", s)).status != 503 and r)
        assert again.status == 201 or again.problem(409, "session_exists"), (step, again)
        assert reply is None or reply.status != 201 or again.problem(409, "session_exists")
        until("they agree on it", lambda s=s: fleet.records().get(s, {}).get("epoch")
              == fleet.registered_at("a").get(s))
    heal(fleet)
    for s in names.values():
        until("the former owner has it, or has set it aside", lambda s=s: (aside(s) in fleet.superseded_at("b")) != (
            s in fleet.registered_at("b")))


@pytest.mark.parametrize("harm", ("drop", "hole", "kill"))
def test_a_takeover_is_cut_and_the_former_owner_is_back_first(fleet, ledger, session, harm):  # noqa: F811
    fleet.make("b", session)
    ledger.put("b", session, b"at b").expect(201)
    hide(fleet, "b")
    cut = Harm(fleet, "a", harm, lambda asked: step_of(asked, session, "b") == "writes")
    reply = asked_in_vain(lambda: ledger.takes("a", session))
    assert cut.done.wait(PATIENCE_S)
    ledger.taken[session] = (next(ledger.moments), "a")
    heal(fleet, "b")  # before the other
    cut.end()
    revive(fleet, "a")
    assert reply is None or reply.status in (201, 503)
    fleet.agree()


@pytest.mark.parametrize("harm", ("drop", "stop", "hole", "kill"))
def test_a_deletion_is_cut(fleet, ledger, session, harm):  # noqa: F811
    fleet.make("b", session)
    ledger.put("b", session, b"at b").expect(201)
    hide(fleet, "b")
    cut = Harm(fleet, "a", harm, lambda asked: step_of(asked, session, "b") == "writes")
    at = f"/v1/fleet/sessions/{session}?force=true"
    reply = asked_in_vain(lambda: fleet.ask("a", "DELETE", at))
    cut.end()
    assert reply is None or reply.status == 204 or reply.problem(503, "directory_unavailable"), reply
    revive(fleet, "a")
    again = until("the directory answers", lambda: (r := fleet.ask("a", "DELETE", at)).status != 503 and r)
    assert again.status == 204 or again.problem(404, "session_not_found"), again
    assert fleet.etcd.read("sessions").get(session, {}).get("state") == "deleted", "else it rises"
    ledger.taken[session] = (next(ledger.moments), None)
    heal(fleet)
    until("it is set aside", lambda: aside(session) in fleet.superseded_at("b"))


@pytest.mark.parametrize("harm", HARMS)
def test_a_return_is_cut(fleet, ledger, session, harm):  # noqa: F811
    """At the former owner's first look at the record."""
    fleet.make("b", session)
    ledger.put("b", session, b"at b").expect(201)
    hide(fleet, "b")
    ledger.take("a", session)
    ledger.put("a", session, b"at a").expect(201)
    cut = Harm(fleet, "b", harm, lambda asked: key("sessions", session) in asked)
    fleet.to_etcd["b"].set("pass")
    cut.end()
    revive(fleet, "b")
    until("it is set aside", lambda: aside(session) in fleet.superseded_at("b"))
    assert fleet.registered_at("a")[session] == 2


@pytest.mark.parametrize("harm", HARMS)
def test_registering_again_is_cut(fleet, ledger, session, harm):  # noqa: F811
    """The directory has lost the session, and its node writes it again."""
    fleet.make("b", session)
    ledger.put("b", session, b"at b").expect(201)
    fleet.to_etcd["b"].set("hole")
    until("it knows that it is alone", lambda: fleet.state("b") == "alone")
    fleet.etcd.delete("sessions/" + session)
    fleet.etcd.delete(f"owned/b/{session}")
    cut = Harm(fleet, "b", harm, lambda asked: step_of(asked, session, "b") == "writes")
    fleet.to_etcd["b"].set("pass")
    cut.end()
    revive(fleet, "b")
    until("both say the same", lambda: session in fleet.records() and fleet.registered_at("b")[session]
          == fleet.records()[session]["epoch"] > 1)
