"""Three nodes and etcd, to which things happen at random: etcd is killed, saved and restored, nodes are killed and cut
off from it, sessions are moved, deleted and made by several at once; while clients write and read through every node.
Whatever came to pass, there is one owner at a time, no read is stale, and no acknowledged write is lost.

GB_E2E_CHECKER_S=3600 lets it run for that long, GB_E2E_CHECKER_SEED=N begins with that seed."""
import http.client
import json
import os
import random
import shutil
import tempfile
import threading
import time
import urllib.parse

import pytest

from etcd_run import Saves
from fleet import Fleet
from harness import DATA, ROUNDS, until
from owners import History, Op

LONG_S = float(os.environ.get("GB_E2E_CHECKER_S", "0"))
SEED = os.environ.get("GB_E2E_CHECKER_SEED")
STEPS = 30
NODES = "abc"
PATIENCE_S = 5  # of a client
pytestmark = [pytest.mark.once, pytest.mark.timeout(LONG_S + 300)]


# --- clients ----------------------------------------------------------------------------------------------------------


class Clients:
    """Threads that write to and read from the sessions `names` by way of each node, and note it."""

    def __init__(self, fleet, history, names, seed):
        self.fleet, self.history, self.names = fleet, history, names
        self.ended, self.problems, self.acknowledged = threading.Event(), [], 0
        self.threads = [threading.Thread(target=self.run, args=(node, kind, seed), daemon=True) for node in NODES
                        for kind in ("write", "read")]
        for thread in self.threads:
            thread.start()

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()
        assert not self.problems, self.problems[0]

    def run(self, node, kind, seed):
        chance = random.Random(f"{seed} {node} {kind}")
        try:
            while not self.ended.wait(0.004 + 0.02 * chance.random()):
                op = self.history.begin(kind, chance.choice(self.names), node)
                self.carry_out(op)
                self.acknowledged += op.kind == "write" and op.done
        except Exception as e:  # noqa: BLE001
            self.problems.append(e)

    def carry_out(self, op, **more):
        target, durable = DATA.format(op.name, "x"), "?durability=sync"
        if op.kind == "write":
            return self.ask(op, "PUT", target + durable, b"%012d" % op.value)
        if op.kind == "read":
            return self.ask(op, "GET", target)
        if op.kind == "make":
            return self.ask(op, "POST", "/v1/sessions", json.dumps({"name": op.name, "fleet": True, **more}).encode())
        if op.kind == "delete":
            return self.ask(op, "DELETE", "/v1/sessions/" + op.name)
        return self.ask(op, "POST", f"/v1/fleet/sessions/{op.name}/move", json.dumps({"to": more["to"]}).encode())

    def ask(self, op, method, target, body=None):
        """Follows redirects. An answer that did not come may have been one of success; a connection that was refused
        was none."""
        if not self.fleet.daemons[op.via].addresses:  # it is being started
            return op
        at = self.fleet.daemons[op.via].tcp
        for _ in range(5):
            connection = http.client.HTTPConnection(*at, timeout=PATIENCE_S)
            try:
                connection.connect()
                op.maybe = op.maybe or method != "GET"
                connection.request(method, target, body)
                reply = connection.getresponse()
                text = reply.read()
            except (OSError, http.client.HTTPException) as e:
                op.status = type(e).__name__
                op.maybe = op.maybe and not isinstance(e, ConnectionRefusedError)
                return op
            finally:
                connection.close()
            if reply.status != 307:
                break
            op.maybe = False
            to = urllib.parse.urlsplit(reply.headers["Location"])
            at, target = (to.hostname, to.port), f"{to.path}?{to.query}"
        self.learn(op, at, reply, text)
        return op

    def learn(self, op, at, reply, text):
        code = json.loads(text).get("code") if reply.status >= 400 else None
        op.status = code or reply.status
        op.node = next((n for n, d in self.fleet.daemons.items() if d.addresses and d.tcp == at), None)
        op.epoch = int(reply.headers["Gpubuf-Epoch"]) if "Gpubuf-Epoch" in reply.headers else None
        op.done = reply.status < 300
        op.maybe = not op.done and op.kind != "read" and (reply.status >= 500 or reply.status == 409) and code not in (
            "session_exists", "owner_unknown", "owner_absent", "directory_unavailable")
        if op.kind == "read" and op.done:
            op.value, op.saw = int(text), "value"
        elif code == "session_not_found":
            op.saw = "gone"
        elif code == "buffer_not_found":
            op.saw = "empty"
        elif reply.status >= 400 and code not in EXPECTED:
            raise AssertionError(f"{op.kind} {op.name} via {op.via}: {reply.status} {text[:300]!r}")
        op.ended = time.monotonic()


EXPECTED = {"session_exists", "owner_unknown", "owner_absent", "owner_uncertain", "directory_unavailable", "superseded",
            "session_moving", "node_unreachable", "buffer_busy", "saturated", "node_alive", "source_unreachable",
            "invalid_argument", "draining"}


# --- what happens -----------------------------------------------------------------------------------------------------


class Round:
    def __init__(self, fleet, seed, folder):
        self.fleet, self.seed, self.random, self.history = fleet, seed, random.Random(seed), History()
        self.names = {f"r{seed}.{i}.{on}": on for i in range(2) for on in ("serve", "stop")}
        self.are, self.done, self.saves = dict.fromkeys(NODES, "up"), [], Saves(fleet.etcd.members[0], folder)
        self.etcd = fleet.etcd.members[0]
        self.clients = None

    def say(self, what):
        self.done.append(f"{time.monotonic() % 10000:9.3f} {what}")

    def node(self, *states):
        fits = [n for n, state in self.are.items() if state in states]
        return self.random.choice(fits) if fits else None

    def run(self):
        for i, name in enumerate(self.names):
            self.make_at(NODES[i % 3], name)
        self.saves.save()
        self.clients = Clients(self.fleet, self.history, list(self.names), self.seed)
        try:
            for _ in range(STEPS):
                self.step()
            self.heal()
        finally:
            self.clients.end()
        self.last_look()
        self.check()

    def step(self):
        what = self.random.choices(
            [self.go_on, self.save, self.copy, self.restore, self.kill_etcd, self.kill, self.start, self.cut, self.mend,
             self.move, self.delete, self.make, self.expire, self.join], [12, 3, 2, 5, 2, 3, 6, 4, 8, 8, 3, 6, 2, 8])[0]
        if (what == self.mend and not self.node("cut")) or (what == self.start and not self.node("down")):
            return self.step()
        self.say(f"{what.__name__} {self.are}")
        return what()

    # Of clients.

    def go_on(self):
        """Until clients have written some more, or cannot."""
        before, end = self.clients.acknowledged, time.monotonic() + 2
        until("clients have gone on", lambda: self.clients.acknowledged >= before + 20 or time.monotonic() > end)

    def operate(self, kind, name, via, **more):
        op = self.history.begin(kind, name, via)
        Clients.carry_out(self.clients or self.quiet(), op, **more)
        return op

    def quiet(self):
        clients = Clients.__new__(Clients)
        clients.fleet, clients.history = self.fleet, self.history
        return clients

    def make_at(self, node, name):
        return until("the session is made",
                     lambda: (op := self.operate("make", name, node, on_partition=self.names[name])).done and op)

    def move(self):
        to, name = self.node("up"), self.random.choice(list(self.names))
        if to:
            self.say(f"  {self.operate('move', name, to, to=to)}")

    def delete(self):
        via, name = self.node("up"), self.random.choice(list(self.names))
        if via:
            self.say(f"  {self.operate('delete', name, via)}")

    def make(self):
        """By all nodes that are up, at the same time."""
        name = self.random.choice(list(self.names))
        threads = [threading.Thread(target=lambda n=n:
                                    self.say(f"  {self.operate('make', name, n, on_partition=self.names[name])}"))
                   for n, state in self.are.items() if state == "up"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    # Of nodes.

    def cut(self):
        if node := self.node("up"):
            how = self.random.choice(["hole", "cut", "deaf"])
            self.history.leaves(node)
            self.fleet.to_etcd[node].set(how)
            self.are[node] = "cut"
            self.say(f"  {node}: {how}")

    def mend(self):
        if node := self.node("cut"):
            self.fleet.to_etcd[node].set("pass")
            self.are[node] = "up"

    def kill(self):
        if node := self.node("up", "cut"):
            self.history.leaves(node)
            self.fleet.kill(node)
            self.are[node] = "down"
            self.say(f"  {node}")

    def start(self):
        if node := self.node("down"):
            self.fleet.to_etcd[node].set("pass")
            self.fleet.start(node)
            self.are[node] = "up"
            self.say(f"  {node}")

    def expire(self):
        """Until the leases of those that are away have run out."""
        away = {n for n, state in self.are.items() if state != "up"}
        until("leases have run out", lambda: not away & {n for n in self.fleet.etcd.read("alive")
                                                         if self.fleet.to_etcd[n].mode != "deaf"})

    def join(self):
        """Until those that are up have joined."""
        up = [n for n, state in self.are.items() if state == "up"]
        if up:
            self.fleet.joined(up)
        for node in up:
            self.history.returns(node)

    # Of the directory.

    def save(self):
        self.saves.save()

    def copy(self):
        self.kill_etcd(self.saves.copy)

    def kill_etcd(self, meanwhile=lambda: None):
        self.etcd.kill()
        meanwhile()
        self.etcd.start()

    def restore(self):
        """Often its revision is caught up before a node reads it."""
        path, token = self.random.choice(self.saves.items), self.random.choice(["etcd-cluster", f"t{len(self.done)}"])
        catches_up, shut = self.random.random() < 0.7, [n for n, state in self.are.items() if state == "up"]
        self.say(f"  {os.path.basename(path)} {token} {catches_up}")
        self.etcd.kill()
        self.saves.restore(path, token)
        for node in shut:
            self.fleet.to_etcd[node].set("cut")
        self.history.restores.append(time.monotonic())
        self.etcd.start()
        if catches_up:
            self.catch_up()
        for node in shut:
            self.fleet.to_etcd[node].set("pass")

    def catch_up(self):
        for _ in range(4):
            self.fleet.etcd.call("/v3/kv/txn", {"success": [
                {"request_put": {"key": "eA==", "value": ""}}]})
        for _ in range(self.random.randrange(400)):
            self.fleet.etcd.put("of-the-test", {})

    # The end.

    def heal(self):
        for node in NODES:
            self.fleet.to_etcd[node].set("pass")
            if self.are[node] == "down":
                self.fleet.start(node)
            self.are[node] = "up"
        self.join()
        self.fleet.agree()

    def last_look(self):
        """Each node says of each name what it is."""
        for name in self.names:
            for node in NODES:
                until("the name is known", lambda: self.operate("read", name, node).saw)

    def check(self):
        for name, on in self.names.items():
            if found := list(self.history.wrong(name, on == "serve")):
                raise AssertionError(f"{len(found)} of {name}, {len(self.history.of[name])} operations\n"
                                     + "\n".join(found[:5]) + "\n" + self.history.around(name, "\n".join(found[:5]))
                                     + f"\naway: {dict(self.history.away)}, restores: "
                                     f"{self.history.restores}")


def test_random_restores_moves_and_kills(tmp_path_factory):
    seed = int(SEED) if SEED else random.randrange(1 << 32)
    end = time.monotonic() + LONG_S
    fleet, turns, operations, acknowledged = None, 0, 0, 0
    try:
        while turns < ROUNDS or time.monotonic() < end:
            fleet = fleet or Fleet(NODES, relayed=NODES)
            fleet.joined()
            turns += 1
            folder = tempfile.mkdtemp(prefix="gbe-saves-")
            one = Round(fleet, seed, folder)
            try:
                one.run()
            except BaseException as e:
                logs = "\n".join(f"--- {n}\n{d.log()[-3000:]}" for n, d in fleet.daemons.items())
                raise AssertionError(f"seed {seed}, round {turns}: {e}\n" + "\n".join(one.done) + "\n" + logs) from e
            finally:
                shutil.rmtree(folder)
            operations += sum(map(len, one.history.of.values()))
            acknowledged += one.clients.acknowledged
            print(f"seed {seed}: {operations} operations, {acknowledged} acknowledged writes, {turns} rounds",
                  flush=True)
            seed += 1
    finally:
        if fleet:
            fleet.end()


# --- the checker itself -----------------------------------------------------------------------------------------------


def op(kind, begun, ended, value=None, node="a", epoch=1, done=True, saw=None, maybe=False):
    made = Op(kind, "s", node, value)
    made.begun, made.ended, made.done, made.saw, made.node, made.epoch, made.maybe = (begun, ended, done, saw, node,
                                                                                      epoch, maybe)
    return made


MADE = op("make", 0, 1)


@pytest.mark.parametrize("what, ops", [
    (None, [op("write", 1, 2, 1), op("read", 3, 4, 1, saw="value")]),
    (None, [op("write", 1, 2, 1), op("write", 3, 9, 2, done=False, maybe=True), op("read", 4, 5, 1, saw="value"),
            op("read", 6, 7, 2, saw="value")]),
    ("stale", [op("write", 1, 2, 1), op("write", 3, 4, 2), op("read", 5, 6, 1, saw="value")]),
    ("stale", [op("write", 1, 2, 1), op("write", 3, 9, 2, done=False, maybe=True), op("read", 4, 5, 2, saw="value"),
               op("read", 6, 7, 1, saw="value")]),
    ("gone", [op("write", 1, 2, 1), op("read", 3, 4, saw="gone", done=False)]),
    (None, [op("write", 2, 3, 1), op("delete", 4, 5), op("read", 6, 7, saw="gone", done=False)]),
    ("empty", [op("write", 2, 3, 1), op("read", 6, 7, saw="empty", done=False)]),
    ("stale", [op("write", 2, 3, 1), op("delete", 4, 5), op("read", 6, 7, 1, saw="value")]),
    ("made twice", [op("make", 2, 3, node="b")]),
    (None, [op("delete", 2, 3), op("make", 4, 5, node="b")]),
    ("two owners", [op("write", 2, 3, 1), op("write", 4, 5, 2, node="b")]),
    ("two owners", [op("write", 2, 3, 1, epoch=2), op("write", 4, 5, 2, node="b")]),
    ("at one epoch", [op("write", 2, 5, 1), op("write", 3, 4, 2, node="b")]),
    (None, [op("write", 2, 3, 1), op("write", 4, 5, 2, node="b", epoch=2)]),
    ("never written", [op("read", 4, 5, 7, saw="value")]),
])
def test_the_checker_finds(what, ops):
    history = History()
    history.of["s"] = [MADE, *ops]
    found = list(history.wrong("s", False))
    assert (not found) if what is None else any(what in text for text in found), found


def test_what_is_not_promised():
    history = History()
    history.of["s"] = [MADE, op("write", 1, 2, 1), op("make", 5, 6, node="b"), op("write", 7, 8, 2, node="b"),
                       op("write", 9, 10, 3), op("read", 11, 12, 2, saw="value", node="b")]
    assert list(history.wrong("s", True))
    history.restores, history.away = [3], {"a": [[2.5, 20]], "b": []}
    assert not list(history.wrong("s", True))
    assert list(history.wrong("s", False))
