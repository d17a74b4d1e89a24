"""Nodes of a fleet that answer as gpubufd does to what its clients ask, and no more: redirects with tickets, look-ups,
refusals."""
import json
import os
import secrets
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

WEB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src", "web")
TYPES = {"html": "text/html; charset=utf-8", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
DTYPE = {"Gpubuf-Dtype": "uint8", "ETag": '"1.1.6f1c2a90"', "Gpubuf-Generation": "1"}


class Request:
    """What a node was asked: whether with a token or a ticket, and the body that it took."""

    def __init__(self, method, target, headers):
        self.method, self.target, self.headers, self.body = method, target, headers, None

    @property
    def path(self):
        return self.target.partition("?")[0]

    def __repr__(self):
        return f"{self.method} {self.target}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    epoch = None  # of the session that the request is for, as this node has it

    def log_message(self, *_):
        pass

    def handle_expect_100(self):
        return True  # after the decision, not before it

    def reply(self, status, document=None, headers=(), body=None):
        body = body if body is not None else b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        if self.epoch is not None:
            self.send_header("Gpubuf-Epoch", str(self.epoch))
        for name, value in dict(headers).items():
            self.send_header(name, value)
        if document is not None:
            self.send_header("Content-Type", "application/problem+json" if status >= 400 else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def problem(self, status, code, detail="of the test", headers=(), **more):
        self.reply(status, {"type": "urn:gpubuf:error:" + code, "title": code, "status": status, "code": code,
                            "detail": detail, "retryable": status in (503, 507), "request_id": "r", **more},
                   {**dict(headers), "Connection": "close"})
        self.close_connection = True

    def take_body(self):
        if self.headers.get("Expect"):
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self.headers.get("Transfer-Encoding") == "chunked":
            taken = b""
            while size := int(self.rfile.readline(), 16):
                taken += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return taken
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def any(self):
        node, fleet = self.server.node, self.server.node.fleet
        self.epoch = None
        if not node.alive:
            self.close_connection = True  # one that was open before it stopped
            return None
        request = Request(self.command, self.path, dict(self.headers))
        node.requests.append(request)
        parts = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(parts.query)
        way = [urllib.parse.unquote(w) for w in parts.path.split("/")[1:]]
        if parts.path in ("/livez",):
            return self.reply(200, body=b"ok\n")
        if way[0] == "ui" or parts.path in ("/", "/fleet"):
            return self.page_file({"/": "index.html", "/fleet": "fleet.html"}.get(parts.path, way[-1]))
        ticket = query.get("ticket", [None])[0]
        if ticket is not None:
            if fleet.tickets.pop(ticket, None) != (self.command, parts.path, node.name):
                return self.problem(401, "ticket_invalid")
        elif node.token is not None and self.headers.get("Authorization") != "Bearer " + node.token:
            return self.problem(401, "unauthenticated")
        if node.silent and way != ["v1", "fleet"]:
            return self.problem(503, "directory_unavailable", headers={"Retry-After": "0"})
        if way[:2] == ["v1", "fleet"]:
            return self.fleet_route(way[2:], query)
        if way[:2] == ["v1", "sessions"] and len(way) > 2:
            return self.session_route(request, way[2], way[3:], parts)
        return self.reply(200, {"version": "0.1.0", "backend": {"name": "host"}, "started_at": "2026-11-25T20:00:00Z",
                                "items": [], "next_cursor": None})

    def redirect(self, to, parts):
        ticket = secrets.token_hex(8)
        self.server.node.fleet.tickets[ticket] = (self.command, parts.path, to.name)
        own = [pair for pair in parts.query.split("&") if pair and pair.partition("=")[0] not in ("via", "ticket")]
        query = "&".join([*own, "via=1.1", f"ticket={ticket}"])
        self.reply(307, {"node": to.name, "url": to.url, "epoch": 1},
                   {"Location": f"{to.url}{parts.path}?{query}", "Cache-Control": "no-store", "Gpubuf-Owner": to.name,
                    "Connection": "close"})
        self.close_connection = True
        self.wfile.flush()

    def page_file(self, name):
        with open(os.path.join(WEB, name), "rb") as f:
            self.reply(200, body=f.read(), headers={"Content-Type": TYPES[name.rpartition(".")[2]]})

    def fleet_route(self, way, query):
        node, fleet = self.server.node, self.server.node.fleet
        if not way and node.lonely:
            return self.reply(200, {"state": "none"})
        if not way:
            return self.reply(200, {"state": node.state, "since": "2026-11-25T20:00:00Z", "why": node.why,
                                    "fleet": "main", "node": node.name, "uuid": "1", "incarnation": 1,
                                    "cluster_id": "7", "urls": node.urls(), "labels": node.labels,
                                    "draining": node.draining, "fleet_uuid": node.fleet_uuid})
        if way == ["nodes"]:
            return self.reply(200, {"items": [n.record() for n in fleet.nodes.values()]})
        if way[0] == "nodes":
            named = fleet.nodes.get(way[1])
            if named is None:
                return self.problem(404, "node_not_found")
            if self.command == "DELETE":
                if named.alive:
                    return self.problem(409, "node_alive")
                del fleet.nodes[named.name]
                return self.reply(204)
            if len(way) > 2:
                if named is not node:
                    return self.redirect(named, urllib.parse.urlsplit(self.path))
                self.take_body()
                node.draining = way[2] == "drain"
            return self.reply(200, named.record())
        if way == ["sessions"] and self.command == "POST":
            body = json.loads(self.take_body())
            fits = [n for n in fleet.nodes.values() if n.alive and (body.get("select") or {}).items()
                    <= n.labels.items()]
            if not fits:
                return self.problem(507, "no_node_fits", "3 nodes: 3 have other labels")
            if body["name"] in fleet.sessions:
                return self.problem(409, "session_exists")
            owner = fits[0]
            fleet.sessions[body["name"]] = owner
            fleet.placed.append(body)
            return self.reply(201, {"name": body["name"], "labels": body.get("labels") or {}, "quota": body.get("quota")
                                    or {},
                                    "node": owner.name, "url": f"{owner.url}/v1/sessions/{body['name']}",
                                    "fleet": {"epoch": 1, "on_partition": body.get("on_partition", "serve")}})
        if way == ["sessions"]:
            wanted = query.get("node", [None])[0]
            return self.reply(200, {"items": [{"name": s, "node": n.name, "epoch": 1, "on_partition": "serve",
                                               "labels": {"a": "b"}, "quota": {"bytes": 1 << 20},
                                               **fleet.copies.get(s, {})}
                                              for s, n in sorted(fleet.sessions.items()) if wanted in (None, n.name)],
                                    "next_cursor": None})
        if way == ["stats"]:
            return self.reply(200, {"nodes": [{"node": n.name, "age_s": 1, "stats": {"sessions": 1}}
                                              for n in fleet.nodes.values() if n.alive],
                                    "missing": [{"node": n.name, "why": "absent"} for n in fleet.nodes.values()
                                                if not n.alive],
                                    "sums": {"sessions": len(fleet.sessions)}})
        if way == ["targets"]:
            return self.reply(200, [{"targets": [n.url.partition("//")[2]], "labels": {"node": n.name, **n.labels}}
                                    for n in fleet.nodes.values()])
        if way[0] == "sessions" and (self.command, way[2:]) in (("POST", ["take"]), ("DELETE", [])):
            return self.force(way[1], query)
        owner, epoch = node.remembers.pop() if node.remembers else (fleet.sessions.get(way[1]),
                                                                    fleet.epochs.get(way[1], 1))
        if owner is None:
            return self.problem(404, "session_not_found")
        return self.reply(200, {"name": way[1], "node": owner.name, "epoch": epoch, "on_partition": "serve",
                                "labels": {}, "url": f"{owner.url}/v1/sessions/{way[1]}", "owner_alive": owner.alive,
                                "absent_s": 0 if owner.alive else 12, "stale": False})

    def force(self, session, query):
        """Takes the session here, or out of the directory."""
        node, fleet = self.server.node, self.server.node.fleet
        takes = self.command == "POST"
        if not (json.loads(self.take_body()).get("force") if takes else query.get("force") == ["true"]):
            return self.problem(400, "invalid_argument")
        owner = fleet.sessions.get(session)
        if owner is None:
            return self.problem(404, "session_not_found")
        if owner.alive:
            return self.problem(409, "node_alive")
        if not takes:
            del fleet.sessions[session]
            return self.reply(204)
        fleet.sessions[session], self.epoch = node, fleet.epochs.get(session, 1) + 1
        fleet.epochs[session] = self.epoch
        return self.reply(201, {"name": session, "quota": {}, "labels": {},
                                "fleet": {"epoch": self.epoch, "on_partition": "serve"}},
                          {"Location": f"/v1/sessions/{session}"})

    def superseded(self, request, session):
        """Whether this node has been told that the session, which it has, is another's. It is not told by an epoch that
        is no higher than its own."""
        node = self.server.node
        if int(request.headers.get("Gpubuf-Epoch", 0)) > node.had[session] or node.told_after == 0:
            node.told.add(session)
        node.told_after -= 1
        return session in node.told

    def session_route(self, request, session, way, parts):
        node, fleet = self.server.node, self.server.node.fleet
        owner = fleet.sessions.get(session)
        if owner is None and session != "default":
            return self.problem(404, "session_not_found")
        if node.unknowing:
            return self.problem(503, "owner_unknown")
        if session in node.had:
            self.epoch, owner = node.had[session], node
            if self.superseded(request, session):
                if node.late or not self.headers.get("Expect"):
                    self.take_body()
                return self.problem(409, "superseded", node=node.name, epoch=self.epoch)
        elif owner is not None:
            self.epoch = fleet.epochs.get(session, 1)
        if owner is not None and owner is not node:
            if not owner.alive or node.misses:
                node.misses = False
                return self.problem(503, "owner_absent", headers={"Retry-After": "10"}, node=owner.name, absent_s=12)
            if way and way[-1] == "map":
                return self.problem(409, "not_here", node=owner.name)
            return self.redirect(owner, parts)
        if node.uncertain:
            node.uncertain -= 1
            return self.problem(503, "owner_uncertain", headers={"Retry-After": "0"})
        if not way and self.command == "DELETE":
            del fleet.sessions[session]
            return self.reply(204)
        if way[:1] == ["buffers"] and way[-1] == "data":
            return self.data_route(request, session, way[1])
        if way == ["buffers"]:
            return self.reply(200, {"items": [self.buffer(session, n) for s, n in node.data if s == session],
                                    "next_cursor": None})
        request.body = self.take_body()
        return self.reply(200, {"name": way[1] if way[:1] == ["buffers"] else session, "quota": {}, "labels": {}})

    def buffer(self, session, name):
        data = self.server.node.data[session, name]
        return {"name": name, "session": session, "bytes": len(data), "dtype": "uint8", "shape": [len(data)],
                "generation": 1, "state": "ready", "kind": "device"}

    def data_route(self, request, session, name):
        node = self.server.node
        if self.command == "PUT":
            request.body = node.data[session, name] = self.take_body()
            return self.reply(201, self.buffer(session, name), {"ETag": DTYPE["ETag"]})
        data = node.data.get((session, name))
        if data is None:
            return self.problem(404, "buffer_not_found")
        return self.reply(200, body=data, headers={**DTYPE, "Gpubuf-Shape": str(len(data)),
                                                   "Content-Type": "application/octet-stream"})

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = any


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # a client that hangs up within a body


class Node:
    def __init__(self, fleet, name, token, labels, tls):
        self.fleet, self.name, self.token, self.labels = fleet, name, token, labels
        self.requests, self.data = [], {}
        self.state, self.why, self.lonely, self.fleet_uuid = ("joined", None, False,
                                                              "0f4b6a52-2b1c-4d4e-9a51-3f0c5d7e8a90")
        # sessions that it takes for its own, with their epochs; those that others have, as it has heard
        self.had, self.told = {}, set()
        self.told_after = -1  # after that many more requests for such sessions it hears so; -1: not by itself
        self.remembers = []  # (owner, epoch) of its next look-ups, when it remembers wrongly
        self.late = False  # it refuses as superseded after it has read the body
        self.misses = False  # the next request finds the owner absent
        self.uncertain = 0  # how many more requests find it uncertain
        self.alive, self.draining, self.silent, self.unknowing = True, False, False, False
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.node = self
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    def urls(self):
        return {"default": self.url, "dark": "http://127.0.0.1:1"}

    def record(self):
        return {"name": self.name, "alive": self.alive, "draining": self.draining, "version": "0.1.0",
                "labels": self.labels, "urls": self.urls(), "uuid": "1", "incarnation": 1 if self.alive else None,
                "devices": [{"uuid": "d", "name": "host", "bytes": 4 << 30, "free_bytes": 1 << 30,
                             "committed_bytes": 1 << 20}]}

    def stop(self):
        """Ends without a word, and listens no more."""
        if self.alive:
            self.alive = False
            self.server.shutdown()
            self.server.server_close()
            self.thread.join()


class Fleet:
    """Nodes a, b and c. tokens: one for each, or None. tls: names of those that listen for TLS, and their context."""

    def __init__(self, tokens=(None, None, None), tls=("", None)):
        self.sessions, self.tickets, self.placed, self.epochs = {}, {}, [], {}
        self.copies = {}  # session: replicas and holders of its entry
        self.nodes = {name: Node(self, name, token, {"site": site}, tls[1] if name in tls[0] else None)
                      for name, token, site in zip("abc", tokens, ("x", "x", "y"))}

    def __getitem__(self, name):
        return self.nodes[name]

    def stop(self):
        for node in list(self.nodes.values()):
            node.stop()


@pytest.fixture
def fleet():
    """Session s is at b."""
    fleet = Fleet()
    fleet.sessions["s"] = fleet["b"]
    yield fleet
    fleet.stop()
