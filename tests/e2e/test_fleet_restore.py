"""A directory that lost its data, was rebuilt, is that of another fleet, or was restored from an old backup; and
records that were changed by hand, as such a backup would have them."""
import base64
import datetime
import shutil
import time

import pytest

from etcd_run import TTL_S
from fleet import Fleet, fleet, session  # noqa: F401
from harness import DATA, metric, until
from ownership import SHORT_S, aside, cli, heal, hide, is_set_aside, leave, ledger, range_of  # noqa: F401

pytestmark = [pytest.mark.once, pytest.mark.timeout(120)]


@pytest.fixture
def shared():
    """One for each test: after a directory was restored, sessions begin above each epoch that a node has seen."""
    fleet = Fleet("abc", relayed="abc", options={"c": ["--fleet-orphan-ttl", str(SHORT_S)]})
    yield fleet
    fleet.end()


class Backup:
    """Of etcd's data, as they are now."""

    def __init__(self, fleet, folder):
        self.fleet, self.etcd, self.folder = fleet, fleet.etcd.members[0], str(folder / "etcd")
        self.etcd.kill()
        shutil.copytree(self.etcd.data, self.folder)
        self.etcd.start()

    def restore(self, quick=False):
        """quick: before the nodes know that it was away. Else none of them believes that it has its lease still."""
        self.etcd.kill()
        shutil.rmtree(self.etcd.data)
        shutil.copytree(self.folder, self.etcd.data)
        if not quick:
            until("all are alone for as long as a lease lasts",
                  lambda: all(alone_s(self.fleet, n) > TTL_S for n in self.fleet.living))
        self.etcd.start()


def alone_s(fleet, name):  # noqa: F811
    """For how many seconds it has been alone."""
    self = fleet.ask(name, "GET", "/v1/fleet").json()
    return time.time() - datetime.datetime.fromisoformat(self["since"]).timestamp() if self["state"] == "alone" else 0


@pytest.fixture
def backup(fleet, tmp_path):  # noqa: F811
    """A function that makes one."""
    return lambda: Backup(fleet, tmp_path)


def why(fleet, name):  # noqa: F811
    return fleet.ask(name, "GET", "/v1/fleet").json()["why"] or ""


def wipe(fleet):  # noqa: F811
    etcd = fleet.etcd.members[0]
    etcd.kill()
    shutil.rmtree(etcd.data)
    etcd.start()
    until("all know that it is empty", lambda: all("has lost the record of the fleet" in why(fleet, name)
                                                   for name in "abc"))


def uuid_of(fleet):  # noqa: F811
    uuids = {fleet.ask(name, "GET", "/v1/fleet").expect(200).json()["fleet_uuid"] for name in "abc"}
    assert len(uuids) == 1, uuids
    return uuids.pop()


def keys(fleet):  # noqa: F811
    return {base64.b64decode(kv["key"]).decode().removeprefix("/gpubuf/main/") for kv in range_of(fleet)}


def rejoin(fleet, name, change):  # noqa: F811
    """The node is alone while change() is done to the directory."""
    fleet.to_etcd[name].set("hole")
    until("it knows that it is alone", lambda: fleet.state(name) == "alone")
    change()
    heal(fleet)


# --- lost data --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["record", "command", "named"])
def test_a_directory_that_is_rebuilt(fleet, ledger, session, way):  # noqa: F811
    """Acceptance 12. All sessions are back, at higher epochs, as the same sessions."""
    for name in "abc":
        fleet.make(name, f"{session}.{name}", labels={"of": name}, on_partition="stop" if name == "b" else "serve")
        ledger.put(name, f"{session}.{name}", name.encode()).expect(201)
    leave(fleet, "c")
    ledger.take("a", session + ".c")
    fleet.start("c")
    heal(fleet)
    before, uuid = fleet.records(), uuid_of(fleet)
    assert fleet.etcd.read("nodes") and before[session + ".c"]["epoch"] == 2
    again = {name: metric(fleet[name], "gpubufd_fleet_registered_again_total") for name in "abc"}
    wipe(fleet)
    try:
        assert uuid_of(fleet) == uuid and fleet.etcd.read("sessions") == {}
        if way == "command":
            cli(fleet)("fleet", "init", "--rebuild", "--etcd", fleet.etcd.url).expect()
        elif way == "named":
            cli(fleet)("fleet", "init", "--rebuild", "--uuid", uuid, "--etcd", fleet.etcd.url).expect()
    finally:  # as the command does
        if way == "record" or "meta" not in keys(fleet):
            fleet.etcd.put("meta", {"uuid": uuid, "schema": 1})
    fleet.joined()
    fleet.agree()
    after = fleet.records()
    assert {s: {**r, "epoch": r["epoch"] + 1} for s, r in before.items()} == after
    for name, owner in [("a", "a"), ("b", "b"), ("c", "a")]:
        shown = fleet.ask(owner, "GET", f"/v1/sessions/{session}.{name}").expect(200)
        assert shown.headers["Gpubuf-Epoch"] == str(after[f"{session}.{name}"]["epoch"])
    for name in "ab":
        assert fleet.ask(name, "GET", DATA.format(f"{session}.{name}", "x")).expect(200).body == name.encode()
        assert metric(fleet[name], "gpubufd_fleet_registered_again_total") >= again[name] + 1
    assert fleet.ask("c", "GET", f"/v1/sessions/{session}.b").expect(307).headers["Gpubuf-Epoch"] == "2"


def test_a_directory_of_another_fleet(fleet, ledger, session, backup):  # noqa: F811
    """A node that has registered sessions stays alone and says how to continue, over a restart as well. One that has
    none joins."""
    for s in fleet.registered_at("c"):
        fleet.ask("c", "DELETE", "/v1/sessions/" + s).expect(204)
        ledger.forget(s)
    until("the directory has forgotten them", lambda: not [s for s in fleet.records().values() if s["node"] == "c"])
    fleet.make("a", session)
    fleet.make("b", session + ".b", on_partition="stop")
    ledger.put("a", session, b"abc").expect(201)
    old, uuid = backup(), uuid_of(fleet)
    fleet.joined()
    try:
        wipe(fleet)
        assert cli(fleet).json("fleet", "init", "--etcd", fleet.etcd.url)["made"]
        for name in "ac":
            fleet.kill(name)
            fleet.start(name)
        until("the one has joined", lambda: fleet.state("c") == "joined")
        until("the others know", lambda: all(uuid in why(fleet, name) and "--rebuild" in why(fleet, name)
                                             for name in "a"))
        assert fleet.state("a") == "alone" == fleet.state("b") and fleet.ask("a", "GET",
                                                                             "/v1/fleet").json()["fleet_uuid"] == uuid
        assert fleet.etcd.read("sessions") == {} and set(fleet.etcd.read("nodes")) == {"c"}
        fleet.ask("a", "GET", "/v1/sessions/" + session).expect(200)
        fleet.ask("b", "GET", f"/v1/sessions/{session}.b").problem(503, "owner_uncertain")
    finally:
        old.restore()
    fleet.joined()
    assert fleet.registered_at("a")[session] == 1 == fleet.registered_at("b")[session + ".b"]
    fleet.ask("b", "GET", f"/v1/sessions/{session}.b").expect(200)


# --- an old backup ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quick", [False, True])
def test_an_old_backup(fleet, ledger, session, backup, quick):  # noqa: F811
    """Acceptance 12: the owner's epoch wins, and none is lost. What was deleted after the backup does not come back."""
    names = {n: f"{session}.{n}" for n in ("same", "gone", "new", "changed", "taken", "buried")}
    for n in ("same", "gone", "changed", "taken", "buried"):
        fleet.make("b", names[n])
        ledger.put("b", names[n], n.encode()).expect(201)
    old = backup()
    fleet.joined()
    fleet.ask("b", "DELETE", "/v1/sessions/" + names["gone"]).expect(204)
    ledger.forget(names["gone"])
    fleet.make("c", names["new"])
    ledger.put("c", names["new"], b"new").expect(201)
    fleet.ask("b", "PATCH", "/v1/sessions/" + names["changed"], {"labels": {"k": "v"}}).expect(200)
    hide(fleet, "b")
    ledger.take("a", names["taken"])
    ledger.put("a", names["taken"], b"at a").expect(201)
    ledger.buries("a", names["buried"])
    heal(fleet)
    for n in ("taken", "buried"):
        is_set_aside(fleet, "b", names[n])
    until("all is in the directory", lambda: fleet.records()[names["changed"]]["labels"] and names["gone"]
          not in fleet.records())
    old.restore(quick)
    assert quick or names["new"] not in fleet.records()
    fleet.joined()
    fleet.agree()
    records = fleet.records()
    assert {n: records[s]["node"] for n, s in names.items() if s in records} == {"same": "b", "new": "c",
                                                                                 "changed": "b", "taken": "a"}
    assert (records[names["same"]]["epoch"] == 1 and records[names["new"]]["epoch"] == 2
            and records[names["taken"]]["epoch"] == 3)
    assert records[names["changed"]]["labels"] == {"k": "v"}
    assert fleet.ask("a", "GET", DATA.format(names["taken"], "x")).expect(200).body == b"at a"
    assert fleet.ask("b", "GET", DATA.format(aside(names["taken"]), "x")).expect(200).body == b"taken"


@pytest.mark.parametrize("away", ["former", "owner", "hidden"])
def test_an_old_backup_from_before_a_takeover(fleet, ledger, session, backup, away):  # noqa: F811
    """It says b, which is away, or has set the session aside and the owner a is away, or was hidden all the time and
    knows nothing."""
    fleet.make("b", session)
    ledger.put("b", session, b"at b").expect(201)
    old = backup()
    fleet.joined()
    hide(fleet, "b")
    ledger.take("a", session)
    ledger.put("a", session, b"at a").expect(201)
    if away != "hidden":
        heal(fleet)
        is_set_aside(fleet, "b", session)
        leave(fleet, "b" if away == "former" else "a")
    old.restore()
    fleet.joined([n for n in fleet.living if fleet.to_etcd[n].mode == "pass"])
    if away == "owner":
        until("the former owner wants nothing of it", lambda: session not in fleet.records())
        fleet.start("a")
    else:
        until("it is the owner's again", lambda: fleet.records().get(session, {}).get("node") == "a")
    if away == "former":
        fleet.start("b")
    heal(fleet)
    until("its epoch is higher", lambda: fleet.registered_at("a").get(session) == 3
          == fleet.records()[session]["epoch"])
    is_set_aside(fleet, "b", session)


def test_an_old_backup_from_before_a_name_changed_hands(fleet, ledger, session, backup):  # noqa: F811
    """The session of that name was deleted at b and made again at a, at the same epoch: a cannot know which is the
    later one. It sets its own aside, unless b says first that it has none. What a has acknowledged is there."""
    fleet.make("b", session)
    old = backup()
    fleet.joined()
    fleet.ask("b", "DELETE", "/v1/sessions/" + session).expect(204)
    until("it is forgotten", lambda: session not in fleet.records())
    fleet.make("a", session)
    ledger.put("a", session, b"abc").expect(201)
    ledger.forget(session)
    old.restore()
    fleet.joined()
    fleet.agree()
    until("a has what it acknowledged", lambda: b"abc" in [fleet.ask("a", "GET", DATA.format(name, "x")).body
                                                           for name in (session, aside(session))])


# --- records that were changed ----------------------------------------------------------------------------------------


def edit(fleet, session, **members):  # noqa: F811
    fleet.etcd.put("sessions/" + session, {**fleet.etcd.read("sessions")[session], **members})


def test_a_record_that_is_missing(fleet, ledger, session):  # noqa: F811
    fleet.make("b", session, labels={"k": "v"})
    ledger.put("b", session, b"abc").expect(201)
    record = fleet.records()[session]

    def lose():
        fleet.etcd.delete("sessions/" + session)
        fleet.etcd.delete(f"owned/b/{session}")

    rejoin(fleet, "b", lose)
    until("it is registered again", lambda: fleet.records().get(session) == {**record, "epoch": 2})
    assert fleet.ask("b", "GET", DATA.format(session, "x")).expect(200).headers["Gpubuf-Epoch"] == "2"


@pytest.mark.parametrize("what", ["lower", "higher", "labels"])
def test_a_record_of_the_same_session(fleet, ledger, session, what):  # noqa: F811
    """An older one is written again at a higher epoch; the epoch of a newer one is taken over, and what the node says
    of the session is right."""
    fleet.make("b", session)
    ledger.put("b", session, b"abc").expect(201)
    rejoin(fleet, "b", lambda: edit(fleet, session, epoch=5))
    until("it is at epoch 5", lambda: fleet.registered_at("b")[session] == 5)
    record = fleet.records()[session]
    change = {"lower": {"epoch": 2}, "higher": {"epoch": 7}, "labels": {"labels": {"of": "another"}}}[what]
    rejoin(fleet, "b", lambda: edit(fleet, session, **change))
    epoch = {"lower": 6, "higher": 7, "labels": 5}[what]
    until("both say the same", lambda: fleet.records()[session] == {**record, "epoch": epoch}
          and fleet.registered_at("b")[session] == epoch)
    assert fleet.ask("b", "GET", DATA.format(session, "x")).expect(200).headers["Gpubuf-Epoch"] == str(epoch)


@pytest.mark.parametrize("epoch, state, stays", [(5, "live", False), (3, "live", False), (2, "live", True),
                                                 (3, "deleted", False), (2, "deleted", True)])
def test_a_record_of_another_session(fleet, ledger, session, epoch, state, stays):  # noqa: F811
    """The node has it at epoch 3. The one at the same or a higher epoch is right; an older one, of a node that is not
    there, is not."""
    fleet.make("b", session)
    rejoin(fleet, "b", lambda: edit(fleet, session, epoch=3))
    until("it is at epoch 3", lambda: fleet.registered_at("b")[session] == 3)
    ledger.put("b", session, b"abc", epoch=3).expect(201)

    def change():
        fleet.etcd.delete(f"owned/b/{session}")
        edit(fleet, session, epoch=epoch, claim="of-the-test", node="ghost", state=state)
        if state == "live":
            fleet.etcd.put(f"owned/ghost/{session}", "")

    rejoin(fleet, "b", change)
    if stays:
        until("it is registered again", lambda: fleet.registered_at("b").get(session) == 4)
        assert (fleet.records()[session]["node"], fleet.records()[session]["epoch"]) == ("b", 4)
    else:
        ledger.taken[session] = (next(ledger.moments), "ghost")
        is_set_aside(fleet, "b", session, 3)
        fleet.etcd.delete("sessions/" + session)
    fleet.etcd.delete(f"owned/ghost/{session}")
