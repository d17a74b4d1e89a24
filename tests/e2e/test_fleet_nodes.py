"""A fleet whose nodes end, start again, are hidden and are copied: sessions are refused while their owner is away, with
the reason, and are its own when it is back."""
import os
import shutil
import stat
import tempfile
import threading

import pytest

from etcd_run import TTL_S
from fleet import REJOIN_S, absent, fleet, session, shared, within  # noqa: F401
from harness import DATA, until

pytestmark = [pytest.mark.once, pytest.mark.timeout(300)]


# --- a node is away ---------------------------------------------------------------------------------------------------


def test_an_owner_that_is_killed_is_waited_for(fleet, session):  # noqa: F811
    fleet.make("b", session)
    fleet.ask("b", "PUT", DATA.format(session, "x"), b"abc").expect(201)
    record = fleet.etcd.read("sessions")[session]
    fleet.kill("b")
    for name in "ac":
        assert until("the lease has run out", lambda name=name: absent(fleet, name, session),
                     within(TTL_S + 1))["node"] == "b"
    until("it is away for long", lambda: absent(fleet, "a", session)["absent_s"] > TTL_S)
    assert fleet.etcd.read("sessions")[session] == record
    fleet.ask("a", "POST", "/v1/sessions", {"name": session, "fleet": True}).problem(409, "session_exists")
    found = fleet.ask("a", "GET", "/v1/fleet/sessions/" + session).expect(200).json()
    assert (found["node"], found["owner_alive"], found["epoch"]) == ("b", False, 1)
    fleet.start("b")
    fleet.joined(patience_s=within(REJOIN_S))
    until("others know that it is back", lambda: fleet.ask("a", "GET", "/v1/sessions/" + session).status == 307)
    assert fleet.etcd.read("sessions")[session] == record
    fleet.ask("b", "GET", DATA.format(session, "x")).problem(410, "content_lost")


def test_an_owner_that_starts_again_at_once(fleet, session):  # noqa: F811
    """Its lease has not run out, so that it has to tell itself from a twin."""
    fleet.make("b", session)
    record, alive = fleet.etcd.read("sessions")[session], fleet.etcd.read("alive")["b"]
    fleet.kill("b")
    fleet.start("b")
    fleet.ask("b", "GET", "/v1/sessions/" + session).expect(200)
    fleet.joined(patience_s=within(REJOIN_S))
    assert fleet.etcd.read("alive")["b"]["incarnation"] != alive["incarnation"]
    assert fleet.etcd.read("sessions")[session] == record

    def leads_there():
        return fleet.ask("a", "GET", "/v1/sessions/" + session).headers.get("Location", "").startswith(fleet.url("b"))

    until("others know where it is now", leads_there)


def test_one_that_leaves_is_not_waited_for(fleet, session):  # noqa: F811
    fleet.make("b", session)
    fleet["b"].stop()
    assert "b" not in fleet.etcd.read("alive")
    until("others know", lambda: absent(fleet, "a", session))
    fleet.start("b")
    fleet.joined()


def test_a_node_behind_a_hole(fleet, session):  # noqa: F811
    fleet.make("c", session)
    to_c = fleet.to_node["c"]
    assert fleet.ask("a", "GET", "/v1/fleet/stats").expect(200).json()["missing"] == []
    to_c.set("hole")
    answers = []

    def stats():
        answers.append(fleet.ask("a", "GET", "/v1/fleet/stats").expect(200).json())

    asking = [threading.Thread(target=stats) for _ in range(4)]
    for t in asking:
        t.start()
    for t in asking:
        t.join(within(3))
        assert not t.is_alive(), "no call takes longer than 3 s"
    assert [a["missing"] for a in answers] == 4 * [[{"node": "c", "why": "unreachable"}]]
    assert all([n["node"] for n in a["nodes"]] == ["a", "b"] for a in answers)

    def left_alone():
        before = to_c.accepted
        stats()
        return to_c.accepted == before

    until("it is not asked after three failures", left_alone)
    for _ in range(100):  # c itself is not asked for these
        assert fleet.ask("a", "GET", "/v1/sessions/" + session).expect(307).headers["Location"].startswith(to_c.url)
    to_c.set("pass")
    until("it is asked again", lambda: fleet.ask("a", "GET", "/v1/fleet/stats").json()["missing"] == [])


# --- twins ------------------------------------------------------------------------------------------------------------


def copy_state(fleet, name):
    def ignore(folder, names):
        return [n for n in names if n == "listen" or not (stat.S_ISREG(m := os.lstat(os.path.join(folder, n)).st_mode)
                                                          or stat.S_ISDIR(m))]

    fleet.states["twin"] = os.path.join(tempfile.mkdtemp(prefix="gbe-node-"), "state")
    shutil.copytree(fleet.states[name], fleet.states["twin"], ignore=ignore)


@pytest.fixture
def twin(fleet):
    """Nothing of it is left afterwards."""
    yield "twin"
    if "twin" in fleet.daemons:
        fleet.kill("twin")
        del fleet.daemons["twin"]
    shutil.rmtree(os.path.dirname(fleet.states.pop("twin")))


def test_a_copied_state_folder(fleet, session, twin):  # noqa: F811
    fleet.make("b", session)
    fleet.kill("b")
    copy_state(fleet, "b")
    fleet.start("b")
    fleet.joined("b")
    first = fleet.etcd.read("alive")["b"]
    fleet.launch(twin, "b")
    fleet.ready(twin)
    until("the copy knows", lambda: fleet.state(twin) == "duplicate")
    assert fleet.etcd.read("alive")["b"]["incarnation"] == first["incarnation"] and fleet.state("b") == "joined"
    fleet.ask(twin, "GET", "/v1/sessions/" + session).expect(200)
    fleet.ask(twin, "POST", "/v1/sessions", {"name": session + "2",
                                             "fleet": True}).problem(503, "directory_unavailable")
    said = fleet.ask(twin, "GET", "/v1/fleet").json()["why"]
    assert "was it copied" in said and said in fleet[twin].log()


def test_another_machine_with_the_name_of_one(fleet, twin):  # noqa: F811
    fleet.states[twin] = os.path.join(tempfile.mkdtemp(prefix="gbe-node-"), "state")
    os.mkdir(fleet.states[twin])
    fleet.launch(twin, "b")
    fleet.ready(twin)
    until("it knows", lambda: fleet.state(twin) == "duplicate")
    assert "--fleet-node" in fleet.ask(twin, "GET", "/v1/fleet").json()["why"] and fleet.state("b") == "joined"


def test_of_two_copies_that_start_at_once_one_joins(fleet, session, twin):  # noqa: F811
    fleet.make("b", session)
    fleet.kill("b")
    copy_state(fleet, "b")
    until("the lease has run out", lambda: "b" not in fleet.etcd.read("alive"))
    fleet.launch("b")
    fleet.launch(twin, "b")
    fleet.ready("b")
    fleet.ready(twin)
    until("one has joined, and the other knows", lambda: sorted([fleet.state("b"), fleet.state(twin)])
          == ["duplicate", "joined"])
    joined = next(n for n in ("b", twin) if fleet.state(n) == "joined")
    told = fleet.etcd.read("alive")["b"]["incarnation"]
    assert told == fleet.ask(joined, "GET", "/v1/fleet").json()["incarnation"]
    fleet.kill(twin)
    until("the other joins by then at the latest", lambda: fleet.state("b") == "joined")
