"""A real etcd, and daemons as the nodes of a fleet around it."""
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.request

import pytest

from gpubuf_cli import Cli
from harness import PATIENCE_S, Daemon, until
from ports import free_port

SMALL = ("--slots-bytes", "1M", "--fleet-ttl", "6")


class Etcd:
    """One member. Where it is not installed the test is skipped by its name."""

    def __init__(self):
        if shutil.which("etcd") is None:
            pytest.skip("etcd is not installed on this machine")
        self.folder = tempfile.mkdtemp(prefix="gbe-etcd-")
        self.url, self.peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self.process = None
        self.start()

    def start(self):
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(
                ["etcd", "--data-dir", os.path.join(self.folder, "data"), "--listen-client-urls", self.url,
                 "--advertise-client-urls", self.url, "--listen-peer-urls", self.peer, "--initial-advertise-peer-urls",
                 self.peer, "--initial-cluster", "default=" + self.peer], stdout=log, stderr=log)
        until("etcd answers", self.healthy)

    def healthy(self):
        assert self.process.poll() is None
        try:
            return urllib.request.urlopen(self.url + "/health", timeout=PATIENCE_S).status == 200
        except OSError:
            return False

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Fleet:
    def __init__(self):
        self.etcd = Etcd()
        self.nodes = {}
        try:
            Cli()("fleet", "init", "--etcd", self.etcd.url).expect(0)
        except BaseException:
            self.etcd.stop()
            raise

    def node(self, name, *options, joined=True, **more):
        d = Daemon("host:bytes=64M", "--fleet", "etcd:" + self.etcd.url, "--fleet-node", name, *SMALL, *options, **more)
        d.name = name
        self.nodes[name] = d
        if joined:
            self.joined(d)
        return d

    def joined(self, d, state="joined"):
        until(f"{d.name} is {state}", lambda: state_of(d) == state)

    def stop(self):
        try:
            for d in self.nodes.values():
                if d.process.poll() is None:
                    d.stop()
        finally:
            for d in self.nodes.values():
                d.clean()
            self.etcd.stop()


def state_of(d, token=None):
    return d.ask("GET", "/v1/fleet", token=token or getattr(d, "token", None)).expect(200).json()["state"]
