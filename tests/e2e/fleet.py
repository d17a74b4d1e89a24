"""Fleets for tests that hurt them: etcd of one member or several, daemons, relays before etcd and before nodes, what
the directory has, and what must hold of it in the end."""
import base64
import collections
import json
import os
import select
import shutil
import socket
import struct
import tempfile
import threading
import urllib.error
import urllib.request

import pytest
from etcd_run import TTL_S, Etcd, token
from gpubuf_cli import Cli
from harness import DATA, PATIENCE_S, Daemon, until
from ports import free_url

# What a promise may take longer on a machine with other work. Time is asserted where it is itself the promise, and by
# this alone.
SLACK_S = 7
REJOIN_S = TTL_S / 3 + 2


def within(promised_s):
    return promised_s + SLACK_S


def address(url):
    host, port = url.partition("//")[2].rsplit(":", 1)
    return host, int(port)


# --- relays -----------------------------------------------------------------------------------------------------------


def reset_at_close(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class _Link:
    """A connection of a client, and the one to the target for it."""

    def __init__(self, client, server):
        self.client, self.server, self.ended, self.asked, self.doomed = client, server, False, b"", False
        self.open = 2  # directions


class Relay:
    """TCP between clients and a target, which a test may break. mode: "pass"; "cut": connections are reset; "hole":
    they are accepted, and what is sent gets lost without a word; "deaf": requests reach the target, and no answer comes
    back. What is held back continues when the mode is "pass" again. accepted counts connections; dropped, answers that
    were not passed on; passed, bytes of the target. When `left` of these have passed, the mode is "hole". A watch is
    asked for the action with each request: "drop" has it carried out and its connection reset instead of an answer,
    "stop" resets it before the request is passed on."""

    def __init__(self, target=None):
        self.target, self.mode, self.accepted, self.dropped, self.watch = target, "pass", 0, 0, None
        self.passed, self.left = 0, None
        self.changed, self.links, self.ending = threading.Condition(), set(), False
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def set(self, mode):
        with self.changed:
            self.mode = mode
            if mode == "cut":
                for link in self.links:
                    self._end(link)
            self.changed.notify_all()

    def drop_answer(self, request):
        """The next request for which request(bytes so far) is true is carried out, and its connection is reset instead
        of an answer."""

        def watch(asked):
            if request(asked):
                self.watch = None
                return "drop"
            return None

        self.watch = watch

    def close(self):
        self.ending = True
        self.set("cut")
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _accept(self):
        while not self.ending:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._begin, args=(client,), daemon=True).start()

    def _end(self, link):
        """Both of its connections are reset as soon as its threads have ended."""
        with self.changed:
            for s in (link.client, link.server) if link.open else ():
                reset_at_close(s)
            link.ended = True
            self.changed.notify_all()

    def _waits(self, link, up):
        """Until bytes of that direction may pass; False if the connection ends instead."""
        with self.changed:
            self.changed.wait_for(lambda: self.mode in ("pass", "cut") or (self.mode == "deaf" and up)
                                  or (link and link.ended))
            return self.mode != "cut" and not (link and link.ended)

    def _begin(self, client):
        server = None
        try:
            if self._waits(None, True) and self.target:  # a node that has not started yet refuses
                server = socket.create_connection(self.target, timeout=PATIENCE_S)
        except OSError:
            pass
        if server is None:
            reset_at_close(client)
            client.close()
            return
        server.settimeout(None)
        link = _Link(client, server)
        with self.changed:
            self.links.add(link)
        threading.Thread(target=self._pump, args=(link, server, client, False), daemon=True).start()
        self._pump(link, client, server, True)

    def _pump(self, link, source, sink, up):
        try:
            while self._step(link, source, sink, up):
                pass
        except OSError:
            self._end(link)
        with self.changed:
            link.open -= 1
            if link.open == 0:
                self.links.discard(link)
                link.client.close()
                link.server.close()

    def _count(self, n):
        with self.changed:
            self.passed += n
            if self.left is not None:
                self.left -= n
                if self.left <= 0:
                    self.mode, self.left = "hole", None

    def _step(self, link, source, sink, up):
        while not select.select([source], [], [], 0.05)[0]:
            if link.ended:
                return False
        data = source.recv(1 << 16)
        if up:
            link.asked += data
            action = self.watch(link.asked) if self.watch and data else None
            if action == "stop":
                return self._end(link)
            link.doomed = link.doomed or action == "drop"
        elif link.doomed:
            self.dropped += 1
            return self._end(link)
        else:
            link.asked = b""
        if not self._waits(link, up):
            return self._end(link)
        if not up:
            self._count(len(data))
        if not data:
            sink.shutdown(socket.SHUT_WR)
            return False
        sink.sendall(data)
        return True


# --- the directory ----------------------------------------------------------------------------------------------------


class Cluster:
    """etcd of that many members."""

    def __init__(self, members=1):
        self.members = []
        peers = {f"m{i}": free_url() for i in range(members)}
        try:
            for name in peers:
                self.members.append(Etcd(peers, name))
            until("etcd answers", lambda: all(m.healthy() for m in self.members))
        except BaseException:
            self.end()
            raise

    @property
    def url(self):
        return ",".join(m.url for m in self.members)

    def leader(self):
        """The member that the others follow, or None."""
        for m in self.members:
            if m.process.poll() is not None:
                continue
            try:
                status = self.call("/v3/maintenance/status", {}, m, 1)  # it may be stopped
            except OSError:
                continue
            if status.get("leader", "0") != "0" and status["leader"] == status["header"]["member_id"]:
                return m
        return None

    def call(self, path, document, member=None, patience_s=PATIENCE_S):
        error = None
        for m in [member] if member else [m for m in self.members if m.process.poll() is None]:
            request = urllib.request.Request(m.url + path, json.dumps(document).encode(),
                                             {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=patience_s) as r:
                    return json.load(r)
            except urllib.error.HTTPError as e:
                error = OSError(f"{path}: {e.code} {e.read()[:200]!r}")
            except OSError as e:
                error = e
        raise error or OSError("no member of etcd runs")

    def read(self, kind):
        """{rest of the key: value} of all keys of that kind; a value that is no JSON is its text."""
        prefix = f"/gpubuf/main/{kind}/"
        answer = self.call("/v3/kv/range", {"key": b64(prefix), "range_end": b64(prefix[:-1] + "0")})
        return {base64.b64decode(kv["key"]).decode()[len(prefix):]: json.loads(base64.b64decode(kv.get("value", ""))
                                                                               or b"null")
                for kv in answer.get("kvs", [])}

    def put(self, key, document):
        self.call("/v3/kv/put", {"key": b64("/gpubuf/main/" + key), "value": b64(json.dumps(document) if document != ""
                                                                                 else "")})

    def delete(self, key):
        self.call("/v3/kv/deleterange", {"key": b64("/gpubuf/main/" + key)})

    def end(self):
        for m in self.members:
            m.end()


def b64(text):
    return base64.b64encode(text.encode()).decode()


# --- fleets -----------------------------------------------------------------------------------------------------------


def with_tokens():
    """Of a module's fixture: a fleet whose nodes have a token each, which is the admin's."""
    fleet = Fleet(tokens=True)
    fleet.joined()
    yield fleet
    fleet.agree()
    fleet.end()


# Another build of the daemon. With it, fleets are mixed: every second node is of it, and each is of the other one after
# its next start.
OTHER = os.environ.get("GB_E2E_OTHER")


class Fleet:
    """A node for each letter of `names`, with the label site of its own name. Nodes of `relayed` reach etcd by way of
    the relay to_etcd[name], and those of `advertised` are reached by way of the relay to_node[name]. env, options and
    specs: of some nodes, by their names. lives counts how often a node was started."""

    def __init__(self, names="abc", members=1, relayed="", advertised="", tokens=False, env=None, options=None,
                 specs=None):
        self.etcd, self.states, self.daemons, self.tokens, self.env = Cluster(members), {}, {}, {}, env or {}
        self.to_etcd, self.to_node, self.options, self.lives = {}, {}, options or {}, collections.Counter()
        self.specs = specs or {}
        try:
            Cli()("fleet", "init", "--etcd", self.etcd.url).expect()
            self.to_etcd = {name: Relay(address(self.etcd.members[0].url)) for name in relayed}
            self.to_node = {name: Relay() for name in advertised}
            for name in names:
                self.states[name] = tempfile.mkdtemp(prefix="gbe-node-")
                if tokens:
                    self.tokens[name] = token(self.states[name], "add", "t", "--scope", "admin")
                self.launch(name)
            for name in names:
                self.ready(name)
        except BaseException:
            self.end()
            raise

    def launch(self, name, node=None):
        """node: the name that it gives itself, of the state of `name`."""
        options = ["--fleet", "etcd:" + (self.to_etcd[name].url if name in self.to_etcd else self.etcd.url),
                   "--fleet-node", node or name, "--fleet-label", "site=" + name, "--fleet-ttl", str(TTL_S)]
        if name in self.to_node:
            options += ["--advertise", self.to_node[name].url]
        self.lives[name] += 1
        self.daemons[name] = Daemon(self.specs.get(name, "host:bytes=64M"), *options, *self.options.get(name, ()),
                                    state=self.states[name], wait=False, env=self.env.get(name),
                                    program=self.build(name))

    def build(self, name):
        return [OTHER] if OTHER and (ord(name[0]) + self.lives[name]) % 2 else None

    def ready(self, name):
        self.daemons[name].addresses = self.daemons[name].wait_ready()
        if name in self.to_node:
            self.to_node[name].target = self.daemons[name].tcp

    def kill(self, name):
        self.daemons[name].kill()
        self.daemons[name].clean()
        if os.path.exists(os.path.join(self.states[name], "listen")):
            os.unlink(os.path.join(self.states[name], "listen"))

    def start(self, name):
        self.launch(name)
        self.ready(name)

    def __getitem__(self, name):
        return self.daemons[name]

    @property
    def living(self):
        return {name: d for name, d in self.daemons.items() if d.process.poll() is None}

    def url(self, name):
        return self.daemons[name].url("")

    def ask(self, name, method, target, body=None, headers=None):
        return self.daemons[name].ask(method, target, body, headers, self.tokens.get(name))

    def make(self, name, session, patience_s=PATIENCE_S, **more):
        """A registered session of that node. What is refused since etcd does not answer just now is tried again, as
        clients do."""

        def made():
            reply = self.ask(name, "POST", "/v1/sessions", {"name": session, "fleet": True, **more})
            if reply.status != 201:
                assert reply.status == 503 and reply.json()["code"] in ("directory_unavailable", "owner_unknown"), reply
                return None
            return reply.json()

        return until("the session is made", made, patience_s)

    def state(self, name):
        return self.ask(name, "GET", "/v1/fleet").expect(200).json()["state"]

    def states_are(self, state, names=None):
        return all(self.state(name) == state for name in names or self.living)

    def joined(self, names=None, patience_s=PATIENCE_S):
        until("all have joined", lambda: self.states_are("joined", names), patience_s)

    def fleet_of(self, name):
        """{session: its "fleet"} of the living node, for those that have or had a place in the directory."""
        items = self.ask(name, "GET", "/v1/sessions?limit=1000").expect(200).json()["items"]
        return {s["name"]: s["fleet"] for s in items if s["fleet"]}

    def registered_at(self, name):
        """Of the living node, with their epochs."""
        return {session: f["epoch"] for session, f in self.fleet_of(name).items() if not f.get("superseded")}

    def superseded_at(self, name):
        """The same of those that were set aside, under their new names."""
        return {session: f["epoch"] for session, f in self.fleet_of(name).items() if f.get("superseded")}

    def records(self):
        """Of the directory, without those of deleted sessions."""
        return {name: s for name, s in self.etcd.read("sessions").items() if s["state"] == "live"}

    def disagreements(self):
        """Between the directory and the nodes that live."""
        sessions, owned, found = self.records(), self.etcd.read("owned"), []
        here = {name: self.registered_at(name) for name in self.living}
        if sorted(owned) != sorted(f"{s['node']}/{name}" for name, s in sessions.items()):
            found.append(f"owned/ is not of sessions/: {sorted(owned)}")
        for name, s in sessions.items():
            if s["node"] in here and name not in here[s["node"]]:
                found.append(f"{name} is on {s['node']} as the directory has it, and is not there")
        for node, of in here.items():
            for name, epoch in of.items():
                if name not in sessions or (sessions[name]["node"], sessions[name]["epoch"]) != (node, epoch):
                    found.append(f"{node} has {name} at epoch {epoch}; the directory says {sessions.get(name)}")
        return found

    def restore(self):
        """All that a test has ended runs again, and has joined."""
        if self.etcd.members[0].process.poll() is not None:
            self.etcd.members[0].start()
        for name in self.states:
            if name not in self.living:
                self.start(name)
        self.joined()

    def agree(self):
        """Each session has one owner, which has it, and no key is of a session that is not there. What is deleted goes
        from the directory a little later, so that this waits."""
        try:
            until("the directory and the nodes agree", lambda: not self.disagreements())
        except AssertionError as e:
            raise AssertionError(self.disagreements()) from e

    def end(self):
        try:
            for daemon in self.living.values():
                daemon.stop()
        finally:
            for daemon in self.daemons.values():
                daemon.clean()
            for relay in [*self.to_etcd.values(), *self.to_node.values()]:
                relay.close()
            self.etcd.end()
            for folder in self.states.values():
                shutil.rmtree(folder)


# --- what tests share -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared():
    """Each node with a relay before etcd, and c with one before itself."""
    fleet = Fleet("abc", relayed="abc", advertised="c")
    yield fleet
    fleet.end()


@pytest.fixture
def fleet(shared):
    """Whole at the beginning; at the end each session has one owner again."""
    for relay in [*shared.to_etcd.values(), *shared.to_node.values()]:
        relay.set("pass")
    shared.restore()
    yield shared
    for relay in shared.to_etcd.values():
        relay.set("pass")
    shared.joined()
    shared.agree()


@pytest.fixture
def session(request):
    return request.node.name.replace("[", ".").replace("]", "")


def absent(fleet, name, session):
    """The problem of the owner's absence as that node tells it; None while it redirects there still."""
    reply = fleet.ask(name, "GET", DATA.format(session, "x"))
    if reply.status == 307:
        return None
    problem = reply.problem(503, "owner_absent")
    assert (problem["on_partition"], problem["epoch"], problem["retryable"],
            reply.headers["Retry-After"]) == ("serve", 1, True, "10")
    return problem
