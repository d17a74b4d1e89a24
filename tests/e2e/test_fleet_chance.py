"""Three nodes to which things happen at random, and clients that write at any of them: whatever came to pass, no client
that knows of a new owner is served by an old one, none that stops is an owner beside another, and in the end each
session has one owner and all that was acknowledged is there."""
import random
import signal

import pytest

from fleet import Fleet, fleet, session  # noqa: F401
from harness import ROUNDS, until
from ownership import ledger, whole  # noqa: F401

pytestmark = [pytest.mark.once, pytest.mark.timeout(120)]

STEPS = 60


@pytest.fixture(scope="module")
def shared():
    fleet = Fleet("abc", relayed="abc")
    yield fleet
    fleet.end()


class Chance:
    """What may happen. A node is up, hidden from etcd, asleep or down."""

    def __init__(self, fleet, ledger, names, seed):  # noqa: F811
        self.fleet, self.ledger, self.names, self.random = fleet, ledger, names, random.Random(seed)
        self.are, self.done = dict.fromkeys("abc", "up"), []

    def node(self, *states):
        fits = [n for n, state in self.are.items() if state in states]
        return self.random.choice(fits) if fits else None

    def name(self):
        return self.random.choice(self.names)

    def write(self):
        node, name = self.node("up", "hidden"), self.name()
        if node:
            says = self.random.choice([None, self.ledger.known[name] or None])
            self.ledger.put(node, name, b"%08d" % len(self.done), epoch=says)

    def hide(self):
        if node := self.node("up"):
            self.fleet.to_etcd[node].set(self.random.choice(["hole", "cut", "deaf"]))
            self.are[node] = "hidden"

    def show(self):
        if node := self.node("hidden"):
            self.fleet.to_etcd[node].set("pass")
            self.are[node] = "up"

    def sleep(self):
        if node := self.node("up"):
            self.fleet[node].process.send_signal(signal.SIGSTOP)
            self.are[node] = "asleep"

    def wake(self):
        if node := self.node("asleep"):
            self.fleet[node].process.send_signal(signal.SIGCONT)
            self.are[node] = "up"

    def kill(self):
        if node := self.node("up", "hidden", "asleep"):
            self.fleet.kill(node)
            self.are[node] = "down"

    def start(self):
        if node := self.node("down"):
            self.fleet.to_etcd[node].set("pass")
            self.fleet.start(node)
            self.are[node] = "up"

    def expire(self):
        """What is away is away for so long that all know it."""
        away = [n for n, state in self.are.items() if state != "up" and self.fleet.to_etcd[n].mode != "deaf"]
        if away:
            until("their leases have run out", lambda: not set(away) & set(self.fleet.etcd.read("alive")))

    def take(self):
        if node := self.node("up"):
            self.ledger.takes(node, self.name())

    def bury(self):
        if node := self.node("up"):
            name = self.name()
            reply = self.fleet.ask(node, "DELETE", f"/v1/fleet/sessions/{name}?force=true")
            if reply.status in (204, 503):
                self.ledger.taken[name] = (next(self.ledger.moments), None)

    def make(self):
        if node := self.node("up"):
            name = self.name()
            reply = self.fleet.ask(node, "POST", "/v1/sessions", {"name": name, "fleet": True,
                                                                  "on_partition": of(name)})
            if reply.status == 201:
                self.ledger.taken[name] = (next(self.ledger.moments), node)

    def step(self):
        what = self.random.choices(
            [self.write, self.hide, self.show, self.sleep, self.wake, self.kill, self.start, self.expire, self.take,
             self.bury, self.make],
            [30, 3, 2, 2, 4, 1, 3, 2, 8, 1, 2])[0]
        self.done.append((what.__name__, dict(self.are)))
        what()

    def end(self):
        for node, state in self.are.items():
            if state == "asleep":
                self.fleet[node].process.send_signal(signal.SIGCONT)
        whole(self.fleet)


def of(name):
    return "stop" if name.endswith("stop") else "serve"


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_whatever_happens(fleet, ledger, session, turn):  # noqa: F811
    names = [f"{session}.{i}.{on}" for i in range(2) for on in ("serve", "stop")]
    for node, name in zip("abca", names):
        fleet.make(node, name, on_partition=of(name))
    seed = random.randrange(1 << 32)
    chance = Chance(fleet, ledger, names, seed)
    try:
        for _ in range(STEPS):
            chance.step()
        chance.end()
        ledger.check()
        for name in names:
            if of(name) == "stop" and name in ledger.taken:
                assert not ledger.both(name), ledger.both(name)
    except BaseException as e:
        raise AssertionError(f"seed {seed}: {chance.done}") from e
    finally:
        chance.end()
