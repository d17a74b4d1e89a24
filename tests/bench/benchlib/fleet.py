"""What being a node of a fleet costs: requests for sessions of the node itself, redirects, look-ups and registrations.

etcd and the daemons are on loopback. Requests of which each is for another session come from one raw socket in this
process, so that the client costs the same on both sides."""
import base64
import json
import os
import re
import socket
import statistics
import subprocess
import threading
import time

from . import measure, servers
from .cases import KIB, Case
from .measure import Side
from .servers import Missing, Server, free_port, system_program
from .watching import Asker

START_S = 60
SESSION = "bench"


# --- the client -------------------------------------------------------------------------------------------------------


class Wire:
    """One connection, kept open. Requests are whole before the clock starts."""

    HEAD = re.compile(rb"HTTP/1\.1 (\d+)(?:.*\r\nContent-Length: *(\d+))?", re.S | re.I)

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=START_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def ask(self, request, status):
        """The seconds to the end of the answer, and the answer."""
        began = time.perf_counter()
        self.socket.sendall(request)
        data = self.socket.recv(1 << 16)
        while data and not self.whole(data):
            more = self.socket.recv(1 << 16)
            data = more and data + more
        seconds = time.perf_counter() - began
        if not data.startswith(b"HTTP/1.1 %d " % status):
            raise measure.TurnFailed(f"{request[:60]!r} is answered with {data[:400]!r}")
        return seconds, data

    def whole(self, data):
        head, end, body = data.partition(b"\r\n\r\n")
        length = self.HEAD.match(head)[2] if end else None
        return end and (len(body) >= int(length) if length else body.endswith(b"0\r\n\r\n"))


def request(method, path, body=None):
    text = b"" if body is None else json.dumps(body).encode()
    kind = "" if body is None else f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{kind}\r\n".encode() + text


def one_by_one(port, requests, status, holds=b""):
    """A turn: each request on one connection, when the one before it is answered."""
    took = []
    with Wire(port) as wire:
        for text in requests:
            seconds, answer = wire.ask(text, status)
            if holds not in answer:
                raise measure.TurnFailed(f"{holds!r} is not in {answer[:400]!r}")
            took.append(1e6 * seconds)
    took.sort()
    return {"us": statistics.median(took), "p99_us": took[int(0.99 * len(took))], "seconds": sum(took) / 1e6,
            "requests_per_s": 1e6 * len(took) / sum(took), "errors": 0}


# --- servers ----------------------------------------------------------------------------------------------------------


class Etcd(Server):
    """The directory, with a fleet made in it. It syncs what it writes, as it does anywhere."""

    name = "etcd"

    def start(self):
        etcd = system_program("etcd", "etcd-server", os.path.join(self.settings.build, "etcd"))
        gpubuf = os.path.join(os.path.dirname(self.settings.daemon), "gpubuf")
        if not os.access(gpubuf, os.X_OK):
            raise Missing(f"no program {gpubuf}")
        self.port = free_port()
        client, peer = self.url(), f"http://127.0.0.1:{free_port()}"
        self.spawn([etcd, "--data-dir", "data", "--listen-client-urls", client, "--advertise-client-urls", client,
                    "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster",
                    "default=" + peer])
        self.wait_until(self.accepts, "a client port")
        made = subprocess.run([gpubuf, "fleet", "init", "--etcd", client], capture_output=True, text=True,
                              timeout=START_S)
        if made.returncode:
            raise Missing(f"gpubuf fleet init: {made.stderr.strip()}")
        self.case.directory = client

    def url(self):
        return f"http://127.0.0.1:{self.port}"


class Node(servers.Daemon):
    """A daemon that has joined the fleet."""

    node = "a"

    @property
    def own_args(self):
        return ["--fleet", "etcd:" + self.case.directory, "--fleet-node", self.node]

    def start(self):
        if not self.case.directory:
            raise Missing("there is no directory")
        super().start()
        self.asker = Asker(self.port)
        self.wait_until(lambda: self.asker.json("/v1/fleet")["state"] == "joined", "to join", START_S)

    def make_session(self, name, registered=True):
        self.asker.ask("POST", "/v1/sessions", {"name": name, "fleet": registered})


class Owner(Node):
    """Another node, whose the sessions are."""

    name = "owner"
    node = "b"


class Outside(servers.Daemon):
    """The same daemon in no fleet."""

    name = "without fleet"

    def make_session(self, name):
        Asker(self.port).ask("POST", "/v1/sessions", {"name": name})


# --- cases ------------------------------------------------------------------------------------------------------------


class Fleet(Case):
    named_only = True
    directory = ""  # the URL of etcd, when it has started
    daemon_args = ("--sample-interval", "0")

    def run(self, settings, notes):
        self.directory = ""
        with self.started(settings, self.kinds, notes) as running:
            if len(running) < len(self.kinds):
                return []
            sides = self.sides(settings, *running.values())
            try:
                measure.interleave(sides, settings.rounds)
            finally:
                self.end()
        return sides

    def end(self):
        """Before the servers do."""

    def extra(self, ours):
        return {"p99, us": ours.median("p99_us")}


class Own(Fleet):
    """Requests for a session of the node that is asked: one that is registered, whose answers tell more, and a local
    one."""

    unit = "k/s"
    kinds = (Etcd, Node, Outside)
    connections = 64
    seconds = 1.0

    def side(self, settings, name, server, session):
        words = [self.mode, "--port", server.port, "--path", f"/v1/sessions/{session}" + self.tail, "--connections",
                 self.connections, "--bytes", 4 * KIB, "--seconds", self.seconds]
        return Side(name, server, lambda: measure.load(settings, words), "requests_per_s")

    def sides(self, settings, _, node, outside):
        node.make_session(SESSION)
        node.make_session("local", False)
        outside.make_session(SESSION)
        return [self.side(settings, "ours", node, SESSION), self.side(settings, outside.name, outside, SESSION),
                self.side(settings, "local session", node, "local")]

    def run(self, settings, notes):
        sides = super().run(settings, notes)
        self.cpu_us = [side.cpu_us_per_request() for side in sides]
        return sides

    def extra(self, ours):
        return dict(zip(("CPU us of a request", "without fleet's", "local session's"), self.cpu_us))


class Redirect(Fleet):
    """A GET that is answered with 307 out of what the node remembers, against the same GET at the owner. The node looks
    up twice a second whether the owner is alive, which the median does not show."""

    unit = "us"
    lower_is_better = True
    kinds = (Etcd, Node, Owner)
    seconds = 2.0

    def turn(self, settings, server, status):
        result = measure.load(settings, ["poll", "--port", server.port, "--path", "/v1/sessions/" + SESSION, "--status",
                                         status, "--seconds", self.seconds])
        return {**result, "us": result["p50_us"]}

    def sides(self, settings, _, node, owner):
        owner.make_session(SESSION)
        return [Side("ours", node, lambda: self.turn(settings, node, 307), "us"),
                Side(owner.name, owner, lambda: self.turn(settings, owner, 200), "us")]


class LookUp(Fleet):
    """GETs that are answered with 307, each for a session that the node has not looked up before, against the range of
    the session's record that etcd answers without a majority."""

    unit = "us"
    lower_is_better = True
    kinds = (Etcd, Node, Owner)
    count = 500  # of a turn

    def range(self, name):
        key = base64.b64encode(f"/gpubuf/main/sessions/{name}".encode()).decode()
        return request("POST", "/v3/kv/range", {"key": key, "serializable": True})

    def sides(self, settings, etcd, node, owner):
        names = [[f"s{turn}-{i}" for i in range(self.count)] for turn in range(settings.rounds + 1)]
        for name in sum(names, []):
            owner.make_session(name)

        def turn(server, made, status, holds):
            turns = iter(names)
            return lambda: one_by_one(server.port, [made(name) for name in next(turns)], status, holds)

        return [Side("ours", node, turn(node, lambda name: request("GET", "/v1/sessions/" + name), 307,
                                        b"\r\nLocation: "), "us"),
                Side("etcd", etcd, turn(etcd, self.range, 200, b'"kvs":'), "us")]


class Register(Fleet):
    """Sessions that are made and registered, against etcd's part of that and against sessions that are local."""

    unit = "us"
    lower_is_better = True
    on_disk = True
    kinds = (Etcd, Node, Outside)
    count = 200  # of a turn
    made = 0

    def names(self):
        self.made += self.count
        return [f"r{i}" for i in range(self.made - self.count, self.made)]

    def local(self, port, **body):
        return one_by_one(port, [request("POST", "/v1/sessions", {"name": name, **body}) for name in self.names()], 201)

    def transactions(self, port):
        """The same comparison, and two keys."""
        record = {"node": "a", "epoch": 1, "claim": 32 * "0", "on_partition": "serve", "labels": {}, "state": "live"}
        texts = []
        for name in self.names():
            session, owned, value = (base64.b64encode(text.encode()).decode()
                                     for text in (f"/bench/sessions/{name}", f"/bench/owned/a/{name}",
                                                  json.dumps(record)))
            texts.append(request("POST", "/v3/kv/txn", {
                "compare": [{"key": session, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}],
                "success": [{"request_put": {"key": session, "value": value}},
                            {"request_put": {"key": owned, "value": ""}}]}))
        return one_by_one(port, texts, 200, b'"succeeded":true')

    def sides(self, settings, etcd, node, outside):
        return [Side("ours", node, lambda: self.local(node.port, fleet=True), "us"),
                Side("etcd", etcd, lambda: self.transactions(etcd.port), "us"),
                Side(outside.name, outside, lambda: self.local(outside.port), "us")]


class Writer(threading.Thread):
    """A client that writes 4 KiB fifty times a second, wherever the session is. gap: the longest time between two
    answers of success."""

    def __init__(self, ports):
        super().__init__(daemon=True)
        self.askers, self.at, self.ended, self.gap, self.last = ([Asker(port) for port in ports], 0, threading.Event(),
                                                                 0, None)
        self.start()

    def put(self):
        http = self.askers[self.at].http
        http.request("PUT", f"/v1/sessions/{SESSION}/buffers/small/data", bytes(4 * KIB))
        reply = http.getresponse()
        reply.read()
        return reply.status < 300

    def run(self):
        while not self.ended.is_set():
            if not self.put():  # the session is at the other node by now, or on the way there
                self.at = 1 - self.at
                self.ended.wait(0.001)
                continue
            now = time.perf_counter()
            self.gap = max(self.gap, now - (self.last or now))
            self.last = now
            self.ended.wait(0.02)

    def lasts(self):
        """The gap since this was asked last."""
        gap, self.gap = self.gap, 0
        return gap


class Move(Fleet):
    """A session of 1 GiB that goes from node to node, and back, while a client writes. What counts is how long its
    writers wait."""

    unit = "ms"
    lower_is_better = True
    kinds = (Etcd, Node, Owner)
    buffers, bytes = 16, 64 * KIB * KIB

    def sides(self, settings, _, node, owner):
        owner.make_session(SESSION)
        for i in range(self.buffers):
            owner.asker.ask("POST", f"/v1/sessions/{SESSION}/buffers", {"name": f"x{i}", "bytes": self.bytes})
            owner.asker.ask("POST", f"/v1/sessions/{SESSION}/buffers/x{i}/fill", {"pattern": i})
        nodes, writer = [node, owner], Writer([owner.port, node.port])

        def turn():
            to, began = nodes[0], time.perf_counter()
            nodes.reverse()
            _, data = to.asker.ask("POST", f"/v1/fleet/sessions/{SESSION}/move", {"to": to.node})
            moved, seconds = json.loads(data), time.perf_counter() - began
            writer.ended.wait(0.1)  # so that a write is answered behind it
            return {"ms": moved["frozen_ms"], "seconds": seconds, "bytes": self.buffers * self.bytes,
                    "gap_ms": 1000 * writer.lasts(), "gb_per_s": self.buffers * self.bytes / seconds / 1e9,
                    "errors": moved["skipped_buffers"]}

        self.writer = writer
        return [Side("ours", node, turn, "ms")]

    def end(self):
        self.writer.ended.set()
        self.writer.join(START_S)

    def extra(self, ours):
        return {"a writer's longest wait, ms": ours.median("gap_ms"), "whole move, GB/s": ours.median("gb_per_s")}


def fleet_cases():
    yield Own("fleet-polls", "GET of a session's metadata in a fleet, 64 connections", {"without fleet": 0.98},
              mode="poll", tail="")
    yield Own("fleet-puts", "PUT 4 KiB in a fleet, 64 connections", {"without fleet": 0.98}, mode="puts",
              tail="/buffers/bench-%d/data")
    yield Redirect("fleet-redirect", "307 for a session that is remembered", {"ours": 300})
    yield LookUp("fleet-lookup", "307 for a session that is looked up", {"ours": 1000})
    yield Register("fleet-register", "session made and registered", {})
    yield Move("fleet-move", "session of 1 GiB moved: its writers wait", {"ours": 1000})
