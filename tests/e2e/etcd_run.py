"""etcd as a child process, and daemons that are nodes of a fleet over it."""
import http.client
import os
import shutil
import subprocess
import tempfile

import pytest

from gpubuf_cli import Cli, environment, program
from harness import PATIENCE_S, Daemon, until
from ports import free_url

TTL_S = 3  # of a node's lease: so long an owner that has ended still counts as alive


def etcd_program():
    """The program of Debian's package etcd-server, which ./bootstrap check provides. Without it the test is skipped if
    GB_E2E_LACKING=skip."""
    path = shutil.which("etcd")
    if path is None and os.environ.get("GB_E2E_LACKING") == "skip":
        pytest.skip("etcd is not installed on this machine")
    assert path, "etcd is not installed: ./bootstrap deps"
    return path


def token(state, *args):
    """What "gpubufd token" prints for the daemon with that state folder, which need not run."""
    run = subprocess.run([os.path.join(os.path.dirname(program()), "gpubufd"), "token", *args, "--state-dir", state],
                         capture_output=True, text=True, timeout=PATIENCE_S, env=environment())
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


class Etcd:
    """One member, whose data stay over a kill and a start, for which they need not be on the disk. peers: the URLs of
    all members by their names; without them it is the only one."""

    scheme, options = "http", ()

    def __init__(self, peers=None, name="default"):
        self.folder = tempfile.mkdtemp(prefix="gbe-etcd-")
        self.data = os.path.join(self.folder, "data")
        self.name, self.url, self.peers = name, free_url(self.scheme), peers or {name: free_url()}
        self.launch()
        if peers is None:
            until("etcd answers", self.healthy)

    def launch(self):
        peer = self.peers[self.name]
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(
                [etcd_program(), "--unsafe-no-fsync", "--name", self.name, "--data-dir", self.data,
                 "--listen-client-urls", self.url, "--advertise-client-urls", self.url, "--listen-peer-urls", peer,
                 "--initial-advertise-peer-urls", peer, "--initial-cluster",
                 ",".join(f"{name}={url}" for name, url in self.peers.items()), *self.options], stdout=log, stderr=log)

    def start(self):
        self.launch()
        until("etcd answers", self.healthy)

    def healthy(self):
        assert self.process.poll() is None, open(os.path.join(self.folder, "log"), errors="replace").read()[-2000:]
        connection = http.client.HTTPConnection(self.url.partition("//")[2], timeout=PATIENCE_S)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def end(self):
        self.kill()
        shutil.rmtree(self.folder)


def etcdctl(*args):
    run = subprocess.run([os.path.join(os.path.dirname(etcd_program()), "etcdctl"), *args],
                         env={**os.environ, "ETCDCTL_API": "3"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


class Saves:
    """Snapshots of etcd, and copies of its files."""

    def __init__(self, etcd, folder):
        self.etcd, self.folder, self.items = etcd, folder, []

    def save(self):
        """By etcdctl, while it runs."""
        path = os.path.join(self.folder, str(len(self.items)))
        etcdctl("--endpoints", self.etcd.url, "snapshot", "save", path)
        self.items.append(path)

    def copy(self):
        """Of the files of an etcd that does not run."""
        path = os.path.join(self.folder, str(len(self.items)))
        shutil.copytree(self.etcd.data, path)
        self.items.append(path)

    def restore(self, path, token):
        """token: of the cluster, whose id is made of it."""
        shutil.rmtree(self.etcd.data)
        if os.path.isdir(path):
            shutil.copytree(path, self.etcd.data)
            return
        peer = self.etcd.peers[self.etcd.name]
        etcdctl("snapshot", "restore", path, "--data-dir", self.etcd.data, "--name", self.etcd.name,
                "--initial-cluster", f"{self.etcd.name}={peer}", "--initial-advertise-peer-urls", peer,
                "--initial-cluster-token", token)


class Nodes:
    """Nodes a, b and c over one etcd, with the label site of their own name."""

    def __init__(self, tokens=False):
        self.etcd = Etcd()
        self.daemons, self.states, self.tokens = {}, {}, {}
        try:
            Cli()("fleet", "init", "--etcd", self.etcd.url).expect()
            for name in "abc":
                self.states[name] = tempfile.mkdtemp(prefix="gbe-node-")
                if tokens:
                    self.tokens[name] = token(self.states[name], "add", "t", "--scope", "admin")
                self.start(name)
            until("all have joined", self.joined)
        except BaseException:
            self.end()
            raise

    def start(self, name):
        self.daemons[name] = Daemon("host:bytes=256M", "--fleet", "etcd:" + self.etcd.url, "--fleet-node", name,
                                    "--fleet-label", "site=" + name, "--fleet-ttl", str(TTL_S), state=self.states[name])

    def __getitem__(self, name):
        return self.daemons[name]

    def url(self, name):
        return self.daemons[name].url("")

    def cli(self, name, session=None, **env):
        """gpubuf of that node, by its URL."""
        return Cli(self.url(name), session, **({"GPUBUF_TOKEN": self.tokens[name]} if self.tokens else {}), **env)

    def fleet_cli(self, session=None, names="abc"):
        """gpubuf with GPUBUF_FLEET, and the token of the first."""
        return Cli(None, session, GPUBUF_FLEET=",".join(map(self.url, names)),
                   **({"GPUBUF_TOKEN": self.tokens[names[0]]} if self.tokens else {}))

    def state_of(self, name):
        return self.cli(name).json("fleet")["state"]

    def joined(self):
        return all(self.state_of(name) == "joined" for name in self.daemons) and all(
            n["alive"] for n in self.cli("a").json("fleet", "nodes"))

    def end(self):
        for daemon in self.daemons.values():
            if daemon.process.poll() is None:
                daemon.stop()
            daemon.clean()
        self.etcd.end()
        for folder in self.states.values():
            shutil.rmtree(folder)
