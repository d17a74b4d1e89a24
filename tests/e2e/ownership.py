"""Who owns a session: what was acknowledged by whom, and that in the end each name has one owner, and nothing was lost
unsaid."""
import collections
import itertools
import re
import threading

import pytest

from fleet import Fleet, b64
from gpubuf_cli import Cli
from harness import DATA, PATIENCE_S, until

TAKE = "/v1/fleet/sessions/{}/take"
SHORT_S = 2  # what node c keeps of a session that was set aside


@pytest.fixture(scope="module")
def shared():
    """Each node with a relay before etcd. What c sets aside is soon gone; what others do stays."""
    fleet = Fleet("abc", relayed="abc", options={"c": ["--fleet-orphan-ttl", str(SHORT_S)]})
    yield fleet
    fleet.end()


def aside(session, epoch=1):
    """The name of a session that was set aside."""
    return f"{session}.superseded-{epoch}"


def hide(fleet, name, mode="hole"):
    """The node loses its way to etcd, until its lease has run out, which it knows."""
    fleet.to_etcd[name].set(mode)
    until("the lease has run out", lambda: name not in fleet.etcd.read("alive"))
    until("it knows that it is alone", lambda: fleet.state(name) == "alone")


def heal(fleet, *names):
    """They have joined again, and are at one with the directory."""
    for name in names or fleet.to_etcd:
        fleet.to_etcd[name].set("pass")
    fleet.joined(names or None)


def leave(fleet, name):
    """The daemon ends, and has given its lease back."""
    fleet[name].stop()
    assert name not in fleet.etcd.read("alive")


def doubtless(ask):
    """The answer once the node does not doubt its directory any more, as it does when etcd has begun again."""

    def answer():
        reply = ask()
        return None if reply.status == 503 and reply.json()["code"] == "owner_unknown" else reply

    return until("the directory is not in doubt", answer)


# --- what was acknowledged --------------------------------------------------------------------------------------------


class Write:
    """One, begun at the moment `sent`, which is counted with those of all others. epoch: of its answer; None: it was
    not acknowledged."""

    def __init__(self, ledger, node, data, told):
        self.node, self.data, self.told = node, data, told
        self.life, self.sent, self.epoch = ledger.fleet.lives[node], next(ledger.moments), None

    def __repr__(self):
        return f"<{self.data!r} at {self.node}, sent {self.sent}, told {self.told}, epoch {self.epoch}>"


class Ledger:
    """Writes of a test, and takeovers by force. One thread at a time writes a buffer of a session at a node."""

    def __init__(self, fleet):
        self.fleet, self.moments = fleet, itertools.count(1)
        self.writes = collections.defaultdict(list)  # by session, node, buffer
        self.taken, self.gone = {}, set()
        self.surely = {}  # moment and epoch of the last takeover that was acknowledged
        self.known = collections.Counter()  # the highest epoch that an answer had
        self.writers = []

    def put(self, node, session, data, buffer="x", epoch=None, client=None):
        """epoch: what the client says that it knows."""
        write = Write(self, node, data, epoch)
        self.writes[session, node, buffer].append(write)
        target, headers = DATA.format(session, buffer), {"Gpubuf-Epoch": str(epoch)} if epoch else None
        reply = client.ask("PUT", target, data, headers) if client else self.fleet.ask(node, "PUT", target, data,
                                                                                       headers)
        if reply.status in (200, 201):
            write.epoch = int(reply.headers["Gpubuf-Epoch"])
            self.known[session] = max(self.known[session], write.epoch)
        return reply

    def takes(self, node, session):
        """By force, from an owner that is away. What is there is not what was there, from this moment on."""
        reply = self.fleet.ask(node, "POST", TAKE.format(session), {"force": True})
        if reply.status in (201, 503):  # it may have been carried out
            self.taken[session] = (next(self.moments), node)
        if reply.status == 201:
            epoch = int(reply.headers["Gpubuf-Epoch"])
            self.surely[session] = (next(self.moments), epoch)
            self.known[session] = max(self.known[session], epoch)
        return reply

    def take(self, node, session):
        return doubtless(lambda: self.takes(node, session)).expect(201)

    def buries(self, node, session):
        """Deletes a session whose owner is away."""
        reply = doubtless(lambda: self.fleet.ask(node, "DELETE",
                                                 f"/v1/fleet/sessions/{session}?force=true")).expect(204)
        self.taken[session] = (next(self.moments), None)
        return reply

    def writer(self, node, session, buffer, says):
        return Writer(self, node, session, buffer, says)

    def forget(self, session):
        """The test has deleted it, or expects it to be gone."""
        self.gone.add(session)

    def acknowledged(self, session):
        return [w for (s, _, _), writes in self.writes.items() for w in writes if s == session and w.epoch]

    # What must hold of it.

    def backwards(self):
        """Writes that one node took though its client knew of a later owner."""
        return [w for writes in self.writes.values() for w in writes if w.epoch and w.told and w.epoch < w.told]

    def both(self, session):
        """Writes that a former owner took though they were sent when there was a new one, which had said so."""
        moment, epoch = self.surely.get(session, (0, 0))
        return [w for w in self.acknowledged(session) if w.sent > moment and w.epoch < epoch]

    def missing(self):
        """Acknowledged writes whose node has lived on, and does not have them: under the session's name, or, if that
        was taken by force, where it was set aside."""
        found = []
        for (session, node, buffer), writes in self.writes.items():
            last = max((i for i, w in enumerate(writes) if w.epoch), default=None)
            if (last is None or session in self.gone or node not in self.fleet.living or writes[last].life
                != self.fleet.lives[node]):
                continue
            may_be = {w.data for w in writes[last:]}  # what was not acknowledged may have been carried out
            places = [session] if session not in self.taken else [
                session, *(s for s in self.fleet.superseded_at(node)
                           if re.fullmatch(re.escape(session) + r"\.superseded-\d+(-\d+)?", s))]
            there = [certain(self.fleet, node, DATA.format(s, buffer)) for s in places]
            if not any(r.status == 200 and r.body in may_be for r in there):
                found.append((session, node, buffer, writes[last], list(zip(places, there))))
        return found

    def check(self):
        for w in self.writers:
            w.end()
        assert not self.backwards(), self.backwards()
        assert not self.missing(), self.missing()


class Writer(threading.Thread):
    """A client that writes a buffer of its own at one node, again and again, until it is ended. says: whether it tells
    the epoch that it knows. What is refused is tried again, as it is when the connection ends."""

    def __init__(self, ledger, node, session, buffer, says):
        super().__init__(daemon=True)
        self.ledger, self.node, self.session, self.buffer, self.says = ledger, node, session, buffer, says
        self.ended, self.acknowledged, self.refused = threading.Event(), 0, []
        ledger.writers.append(self)
        self.start()

    def run(self):
        client, ledger = self.ledger.fleet[self.node].client(), self.ledger
        for n in itertools.count():
            if self.ended.is_set():
                return
            try:
                reply = ledger.put(self.node, self.session, b"%08d" % n, self.buffer,
                                   self.says and ledger.known[self.session], client)
            except OSError:
                self.ended.wait(0.05)
                continue
            if reply.status in (200, 201):
                self.acknowledged += 1
            else:
                self.refused.append(reply)
                self.ended.wait(0.02)

    def goes_on(self, writes=5):
        before = self.acknowledged
        until("it goes on", lambda: self.acknowledged >= before + writes)

    def codes(self):
        """Of what was refused; of redirects, their status."""
        return {r.status if r.status == 307 else r.json()["code"] for r in self.refused}

    def end(self):
        self.ended.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()


# --- one owner --------------------------------------------------------------------------------------------------------


def takes_writes(fleet, name, session):
    """The epoch at which that node itself writes to the registered session; None if it does not. What it wrote is gone
    again."""
    target = f"/v1/sessions/{session}/buffers/of-the-checker"
    reply = fleet.ask(name, "PUT", target + "/data", b"checker")
    if reply.status not in (200, 201):
        assert reply.status in (307, 404, 409, 503), reply
        return None
    epoch = reply.headers.get("Gpubuf-Epoch")  # a local one of that name has none
    fleet.ask(name, "DELETE", target).expect(204)
    return epoch and int(epoch)


def one_writer_each(fleet, sessions):
    """At each session of the directory its owner alone writes, at the epoch of the directory."""
    records = fleet.records()
    for session in sessions:
        record = records.get(session)
        if record and record["node"] in fleet.living:
            certain(fleet, record["node"], "/v1/sessions/" + session)
        writing = {name: epoch for name in fleet.living if (epoch := takes_writes(fleet, name, session))}
        assert writing == ({record["node"]: record["epoch"]} if record and record["node"] in fleet.living
                           else {}), (session, writing, record)


def whole(fleet):
    """All nodes run, are joined, and agree with the directory."""
    for name in fleet.states:
        if name not in fleet.living:
            fleet.start(name)
    heal(fleet)
    fleet.agree()


@pytest.fixture
def ledger(fleet, session):
    """At the end all is whole again, each of the test's sessions has one owner, and no acknowledged write is
    missing."""
    ledger = Ledger(fleet)
    yield ledger
    for w in ledger.writers:
        w.ended.set()
    whole(fleet)
    ledger.check()
    one_writer_each(fleet, {s for s, _, _ in ledger.writes} | {s for s in fleet.records() if s.startswith(session)})


# --- what clients see -------------------------------------------------------------------------------------------------


def superseded(reply):
    """The problem of one that is not this node's any more, as far as it knows. It says what it has."""
    problem = reply.problem(409, "superseded")
    assert not problem["retryable"] and isinstance(problem["epoch"], int) and problem["node"], problem
    return problem


def read_only(reply):
    """The answer to what would change a session that was set aside."""
    problem = reply.problem(409, "superseded")
    assert not problem["retryable"] and "set aside" in problem["detail"], problem
    return problem


def certain(fleet, name, target):
    """The answer to a GET, once the node knows whether the session is its own: it may be joined and not have renewed
    its lease just now."""
    return until("the node knows", lambda: (r := fleet.ask(name, "GET", target)).status != 503 and r)


def uncertain(reply):
    problem = reply.problem(503, "owner_uncertain")
    assert problem["retryable"] and reply.headers["Retry-After"] == "1"
    return problem


def is_set_aside(fleet, name, session, epoch=1):
    """It has been renamed there, reads of it are answered and changes are not, and requests for its name lead on."""
    new = aside(session, epoch)
    until("it is set aside", lambda: fleet.superseded_at(name).get(new) == epoch)
    shown = fleet.ask(name, "GET", "/v1/sessions/" + new).expect(200)
    assert shown.json()["fleet"] == {"superseded": True, "epoch": epoch} and "Gpubuf-Epoch" not in shown.headers
    read_only(fleet.ask(name, "PUT", DATA.format(new, "new"), b"abc"))
    assert session not in fleet.fleet_of(name)
    return new


def events(fleet, name, kind):
    """Of the feed, from its beginning."""
    page = fleet.ask(name, "GET", f"/v1/feed?type={kind}&after=0&limit=1000",
                     headers={"Accept": "application/json"}).expect(200).json()
    return page["items"]


# --- the directory ----------------------------------------------------------------------------------------------------


def range_of(fleet, prefix="/gpubuf/main/"):
    """All keys below it as etcd has them."""
    return fleet.etcd.call("/v3/kv/range", {"key": b64(prefix), "range_end": b64(prefix[:-1] + "0")}).get("kvs", [])


def cli(fleet, **env):
    """gpubuf with the fleet's nodes in GPUBUF_FLEET."""
    return Cli(None, None, GPUBUF_FLEET=",".join(fleet.url(name) for name in fleet.living), **env)
