"""Four nodes over an etcd of three members: they see the same, race for names, and continue when members of etcd
fail."""
import os
import signal
import threading

import pytest

from etcd_run import TTL_S
from fleet import REJOIN_S, Fleet, session, within  # noqa: F401
from harness import DATA, PATIENCE_S, ROUNDS, until

pytestmark = [pytest.mark.once, pytest.mark.timeout(300)]

NODES = "abcd"


@pytest.fixture(scope="module")
def shared():
    fleet = Fleet(NODES, members=3)
    yield fleet
    fleet.end()


def start_members(fleet):
    down = [m for m in fleet.etcd.members if m.process.poll() is not None]
    for m in down:
        m.launch()
    until("etcd answers", lambda: all(m.healthy() for m in down))


@pytest.fixture
def fleet(shared):
    """Whole at the beginning; at the end each session has one owner again."""
    start_members(shared)
    for name in NODES:
        if name not in shared.living:
            shared.start(name)
    shared.joined()
    yield shared
    start_members(shared)
    shared.joined()
    shared.agree()


# --- all is well ------------------------------------------------------------------------------------------------------


def test_all_see_all_within_three_seconds(shared):
    shared.joined(patience_s=within(3))

    def seen(name):
        return [{k: n[k] for k in ("name", "alive", "draining", "labels", "urls", "uuid", "incarnation")}
                for n in shared.ask(name, "GET", "/v1/fleet/nodes").expect(200).json()["items"]]

    for name in NODES:
        assert [(n["name"], n["alive"], n["urls"]["default"]) for n in seen(name)] == [(n, True, shared.url(n))
                                                                                       for n in NODES]
        assert seen(name) == seen("a")


class Race:
    """All nodes make the same names at the same time."""

    def __init__(self, fleet, names):
        self.fleet, self.names, self.answers, self.done = fleet, names, {n: {} for n in names}, 0
        self.start = threading.Barrier(len(NODES))
        self.threads = [threading.Thread(target=self._run, args=(node,)) for node in NODES]
        for t in self.threads:
            t.start()

    def _run(self, node):
        client = self.fleet[node].client()
        try:
            for name in self.names:
                self.start.wait(PATIENCE_S)
                self.answers[name][node] = client.ask("POST", "/v1/sessions", {"name": name, "fleet": True})
                self.done += 1
        except (OSError, ValueError, threading.BrokenBarrierError):  # one was killed
            self.start.abort()

    def end(self):
        for t in self.threads:
            t.join(PATIENCE_S)
            assert not t.is_alive()


def test_of_nodes_that_make_a_name_one_has_it(fleet, session):
    names = [f"{session}.{i}" for i in range(60)]
    race = Race(fleet, names)
    race.end()
    sessions = fleet.etcd.read("sessions")
    for name in names:
        answers = race.answers[name]
        assert sorted(a.status for a in answers.values()) == [201, 409, 409, 409], (name, answers)
        owner = next(node for node, a in answers.items() if a.status == 201)
        assert sessions[name]["node"] == owner
        for node, a in answers.items():
            if node != owner:
                a.problem(409, "session_exists")
                assert a.headers["Location"] == f"{fleet.url(owner)}/v1/sessions/{name}"
    fleet.agree()


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_a_racer_that_is_killed_leaves_no_name_without_a_session(fleet, session, turn):
    race = Race(fleet, [f"{session}.{i}" for i in range(500)])
    until("they race", lambda: race.done > 4 * (5 + ord(os.urandom(1)) % 20))
    fleet.kill("b")
    race.end()
    fleet.start("b")
    fleet.joined()
    fleet.agree()
    acknowledged = [(name, node) for name, answers in race.answers.items() for node, a in answers.items() if a.status
                    == 201]
    sessions = fleet.etcd.read("sessions")
    assert acknowledged and all(sessions[name]["node"] == node for name, node in acknowledged)
    for name, answers in race.answers.items():
        assert (sorted(a.status for a in answers.values())[1:] == (len(answers) - 1) * [409]
                or not answers), (name, answers)


# --- members fail -----------------------------------------------------------------------------------------------------


def redirected(fleet, name, session):
    return fleet.ask(name, "GET", DATA.format(session, "x")).expect(307).headers["Gpubuf-Owner"] == "b"


def test_the_leader_is_killed(fleet, session):
    fleet.make("b", session)
    leader = until("etcd has a leader", fleet.etcd.leader)
    leader.kill()
    until("the others have a leader", fleet.etcd.leader)
    fleet.joined(patience_s=within(TTL_S + 3))
    fleet.make("c", session + ".2", within(TTL_S + 3))
    assert redirected(fleet, "a", session)
    leader.start()


def test_the_leader_is_stopped(fleet, session):
    """It keeps its connections and says nothing."""
    fleet.make("b", session)
    leader = until("etcd has a leader", fleet.etcd.leader)
    leader.process.send_signal(signal.SIGSTOP)
    try:
        until("the others have a leader", lambda: fleet.etcd.leader() not in (None, leader))
        fleet.joined(patience_s=within(TTL_S + 3))
        fleet.make("c", session + ".2")
        assert redirected(fleet, "a", session)
    finally:
        leader.process.send_signal(signal.SIGCONT)


def test_all_members_are_stopped(fleet, session):
    """For longer than leases last: all may have run out when etcd continues, and no session changes its owner."""
    for name in NODES:
        fleet.make(name, f"{session}.{name}")
    records = fleet.etcd.read("sessions")
    for m in fleet.etcd.members:
        m.process.send_signal(signal.SIGSTOP)
    try:
        until("all know that they are alone", lambda: fleet.states_are("alone"))
        for name in NODES:
            fleet.ask(name, "GET", f"/v1/sessions/{session}.{name}").expect(200)
    finally:
        for m in fleet.etcd.members:
            m.process.send_signal(signal.SIGCONT)
    fleet.joined(patience_s=within(REJOIN_S + TTL_S))
    assert fleet.etcd.read("sessions") == records


def test_without_a_quorum_what_is_registered_is_found(fleet, session):
    fleet.make("b", session)
    assert redirected(fleet, "a", session)
    first, second, _ = fleet.etcd.members
    first.kill()
    second.kill()
    until("all know that they are alone", lambda: fleet.states_are("alone"))
    assert redirected(fleet, "a", session), "it is remembered"
    assert redirected(fleet, "c", session), "it is read from the member that is left"
    for target, body in [("/v1/sessions", {"name": session + ".2", "fleet": True}),
                         ("/v1/fleet/sessions", {"name": session + ".3"})]:
        answers = []
        asking = threading.Thread(target=lambda t=target, b=body: answers.append(fleet.ask("c", "POST", t, b)))
        asking.start()
        asking.join(within(3))
        assert answers, "it is refused within 3 s"
        answers[0].problem(503, "directory_unavailable")
    fleet.ask("c", "GET", "/v1/sessions/none").problem(503, "directory_unavailable")
    start_members(fleet)
    fleet.joined()
    fleet.make("c", session + ".2")
    fleet.ask("c", "GET", "/v1/sessions/none").problem(404, "session_not_found")
