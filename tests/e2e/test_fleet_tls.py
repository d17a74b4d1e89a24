"""An etcd that asks for certificates: nodes read their files at each connection, so a renewed one needs no restart."""
import contextlib
import os
import shutil
import tempfile
import urllib.request

import pytest
import secure
from etcd_run import TTL_S, Etcd
from gpubuf_cli import Cli
from harness import PATIENCE_S, Daemon, until
from ownership import doubtless

pytestmark = [pytest.mark.once, pytest.mark.timeout(240)]


class SecureEtcd(Etcd):
    """It shows a certificate, and takes requests of clients alone that show one of its authority."""

    scheme = "https"

    def __init__(self, folder):
        self.files = folder
        self.options = ("--cert-file", self.path("etcd.pem"), "--key-file", self.path("etcd.key"), "--client-cert-auth",
                        "--trusted-ca-file", self.path("ca.pem"))
        self.renew("first")
        super().__init__()

    def renew(self, name):
        """By a new authority, of which all certificates are then: the files of before are of no use."""
        made = tempfile.mkdtemp(dir=self.files)
        authority = secure.Authority(made, name)
        # the gateway is a client of its own member
        authority.make("etcd", "/CN=etcd", "IP:127.0.0.1", "serverAuth,clientAuth")
        authority.make("node", "/CN=node", "DNS:node", "clientAuth")
        for file in ("ca.pem", "etcd.pem", "etcd.key", "node.pem", "node.key"):
            os.replace(os.path.join(made, file), self.path(file))

    def path(self, name):
        return os.path.join(self.files, name)

    def healthy(self):
        assert self.process.poll() is None
        context = secure.ssl.create_default_context(cafile=self.path("ca.pem"))
        context.load_cert_chain(self.path("node.pem"), self.path("node.key"))
        with contextlib.suppress(OSError), urllib.request.urlopen(self.url + "/health", timeout=PATIENCE_S,
                                                                  context=context) as answer:
            return answer.status == 200
        return False


@pytest.fixture
def etcd():
    folder = tempfile.mkdtemp(prefix="gbe-etcd-tls-")
    etcd = SecureEtcd(folder)
    yield etcd
    etcd.end()
    shutil.rmtree(folder)


@pytest.fixture
def node(etcd):
    of_etcd = ("--fleet-ca", etcd.path("ca.pem"), "--fleet-cert", etcd.path("node.pem"), "--fleet-key",
               etcd.path("node.key"))
    Cli()("fleet", "init", "--etcd", etcd.url, "--cacert", etcd.path("ca.pem"), "--cert", etcd.path("node.pem"),
          "--key", etcd.path("node.key")).expect()
    daemon = Daemon("host:bytes=64M", "--fleet", "etcd:" + etcd.url, "--fleet-node", "n", "--fleet-ttl", str(TTL_S),
                    *of_etcd)
    yield daemon
    daemon.stop()
    daemon.clean()


def state(node):
    return node.ask("GET", "/v1/fleet").expect(200).json()["state"]


def test_certificates_that_are_renewed(etcd, node):
    until("it has joined", lambda: state(node) == "joined")
    etcd.kill()
    until("it is alone", lambda: state(node) == "alone")
    etcd.renew("second")
    etcd.start()
    until("it has joined again", lambda: state(node) == "joined")
    doubtless(lambda: node.ask("POST", "/v1/sessions", {"name": "s", "fleet": True})).expect(201)
