"""An etcd that asks for a user: nodes log in, log in again when etcd has forgotten them, and say why they are alone
when the user is gone."""
import http.client
import json
import os
import shutil
import tempfile

import pytest
from etcd_run import TTL_S, Etcd
from gpubuf_cli import Cli
from harness import PATIENCE_S, Daemon, until

pytestmark = [pytest.mark.once, pytest.mark.timeout(240)]


class Users:
    """etcd's own interface for them, as root."""

    def __init__(self, etcd):
        self.etcd, self.token = etcd, None

    def ask(self, path, body):
        connection = http.client.HTTPConnection(self.etcd.url.partition("//")[2], timeout=PATIENCE_S)
        try:
            connection.request("POST", "/v3/auth/" + path, json.dumps(body),
                               {"Authorization": self.token} if self.token else {})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200, text
            return json.loads(text)
        finally:
            connection.close()

    def begin(self):
        for name in ("root", "node"):
            self.ask("role/add", {"name": name})
        self.ask("role/grant", {"name": "node", "perm": {"permType": "READWRITE", "key": "L2dwdWJ1Zi8=",
                                                         "range_end": "L2dwdWJ1ZjA="}})
        self.add("root", "first", "root")
        self.add("node", "second", "node")
        self.ask("enable", {})
        self.log_in()

    def log_in(self):
        self.token = None
        self.token = self.ask("authenticate", {"name": "root", "password": "first"})["token"]

    def add(self, name, password, role):
        self.ask("user/add", {"name": name, "password": password})
        self.ask("user/grant", {"user": name, "role": role})


@pytest.fixture
def place():
    """(etcd that asks for a user, its users, a function that starts a node with a file of one)"""
    folder = tempfile.mkdtemp(prefix="gbe-user-")
    etcd = Etcd()
    users = Users(etcd)
    daemons = []

    def write(text):
        path = os.path.join(folder, "user")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text + "\n")
        return path

    def start(user):
        daemons.append(Daemon("host:bytes=64M", "--fleet", "etcd:" + etcd.url, "--fleet-node", "n", "--fleet-ttl",
                              str(TTL_S), "--fleet-user", write(user)))
        return daemons[-1]

    try:
        users.begin()
        yield etcd, users, start, write
    finally:
        for daemon in daemons:
            daemon.stop()
            daemon.clean()
        etcd.end()
        shutil.rmtree(folder)


def state(daemon):
    return daemon.ask("GET", "/v1/fleet").json()


def failed(daemon):
    line = [line for line in daemon.ask("GET", "/metrics").body.decode().splitlines()
            if line.startswith("gpubufd_fleet_failures_total ")]
    return float(line[0].split()[1]) if line else 0.0


def registered(start):
    """A node that has joined, with the registered session "kept"."""
    daemon = start("node:second")
    until("it has joined", lambda: state(daemon)["state"] == "joined")
    daemon.ask("POST", "/v1/sessions", {"name": "kept", "fleet": True}).expect(201)
    return daemon


def test_a_node_logs_in_and_again(place):
    """After a restart of etcd, which forgets its tokens."""
    etcd, users, start, write = place
    assert "user name is empty" in Cli()("fleet", "init", "--etcd", etcd.url).err
    assert "authentication failed" in Cli()("fleet", "init", "--etcd", etcd.url, "--etcd-user", write("node:wrong")).err
    Cli()("fleet", "init", "--etcd", etcd.url, "--etcd-user", write("node:second")).expect()
    daemon = registered(start)
    etcd.kill()
    etcd.start()
    until("a session can be registered", lambda: daemon.ask("POST", "/v1/sessions",
                                                            {"name": "later", "fleet": True}).status == 201)
    until("it has joined", lambda: state(daemon)["state"] == "joined")
    assert daemon.ask("GET", "/v1/sessions/kept").json()["fleet"]["epoch"] == 1


def test_a_user_that_is_deleted(place):
    """The node is alone, says why, asks seldom, and joins when the user is back."""
    etcd, users, start, write = place
    Cli()("fleet", "init", "--etcd", etcd.url, "--etcd-user", write("node:second")).expect()
    daemon = registered(start)
    users.ask("user/delete", {"name": "node"})
    until("it is alone", lambda: state(daemon)["state"] == "alone")
    assert "does not let the user in" in state(daemon)["why"]
    daemon.ask("GET", "/v1/sessions/kept").expect(200)
    before = failed(daemon)
    until("it has tried again", lambda: failed(daemon) > before)
    users.add("node", "second", "node")
    until("it has joined", lambda: state(daemon)["state"] == "joined")
    assert daemon.ask("GET", "/v1/sessions/kept").json()["fleet"]["epoch"] == 1


def test_a_wrong_password_is_told(place):
    etcd, users, start, write = place
    Cli()("fleet", "init", "--etcd", etcd.url, "--etcd-user", write("node:second")).expect()
    daemon = start("node:wrong")
    until("it says why", lambda: "authentication failed" in (state(daemon)["why"] or ""))
    assert state(daemon)["state"] == "alone"
