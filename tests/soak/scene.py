"""What a soak needs: a daemon that listens in every way, its tokens and certificates, and the clients of workers."""
import contextlib
import http.client
import json
import multiprocessing
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile

import secure
from bounding import proxy_1, proxy_2
from harness import PATIENCE_S, Client, Daemon, binary, until

SESSION = "/v1/sessions/soak"
# Sources of connections: all of 127.0.0.0/8 is this machine. Only those of PROXY begin with a header of the PROXY
# protocol.
PROXY, GREEDY, UNKNOWN = "127.0.0.9", "127.0.0.77", "127.0.0.66"
UPLOADS_MAX, LISTENERS_MAX = 12, 32  # of a token: the bounds that are met, beside the requests of an address

TOKENS = {"soak": ("--scope", "admin"), "map": ("--scope", "write,map-write", "--session", "soak"),
          "greedy": ("--scope", "write", "--session", "soak"), "crowd": ("--scope", "verify"),
          "cam": ("--scope", "write", "--session", "soak", "--prefix", "cam1-", "--subject", "CN=cam1,O=Example")}
OPTIONS = ("--sample-interval", "1", "--samples-max", "600", "--history-series", "100", "--feed-max", "5000",
           "--stop-timeout", "5", "--allocation-log", "4096", "--max-operations", "256", "--max-idempotency-keys",
           "1000", "--audit-rows", "20000", "--bound-local", "--rate-requests", "50", "--burst-requests", "100",
           "--rate-handshakes", "0", "--max-connections-per-address", "4096", "--token-rate-requests", "1000000",
           "--token-rate-bytes", "100G", "--max-waits-per-token", "256", "--max-uploads-per-token", str(UPLOADS_MAX),
           "--max-listeners-per-token", str(LISTENERS_MAX), "--proxy-protocol", PROXY)


def expect(reply, *statuses, code=None):
    if reply.status not in statuses:
        raise AssertionError(f"{reply.status}, wanted {statuses}: {reply.body[:300]!r}")
    if code:
        assert reply.json()["code"] == code, reply.body
    return reply


def command(state, *args):
    out = subprocess.run([binary(), "token", *args, "--state-dir", state], capture_output=True, text=True, timeout=90)
    assert out.returncode == 0, out.stderr
    return out.stdout.strip()


class _From(http.client.HTTPConnection):
    """Over a socket that is bound and has sent its beginning; then TLS, if there is a context."""

    def __init__(self, address, source, beginning, context):
        super().__init__(*address, timeout=PATIENCE_S)
        self.source, self.beginning, self.context = source, beginning, context

    def connect(self):
        self.sock = connected(self.host, self.port, self.source, self.beginning, self.context)


def connected(host, port, source=None, beginning=b"", context=None):
    sock = socket.create_connection((host, port), PATIENCE_S, (source, 0) if source else None)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(beginning)
        return context.wrap_socket(sock, server_hostname=host) if context else sock
    except BaseException:
        sock.close()
        raise


class Work:
    """What a worker knows: addresses, tokens, files. All workers share one."""

    def __init__(self, scene):
        daemon = scene.daemon
        self.state, self.unix, self.tokens, self.token = scene.state, daemon.unix, scene.tokens, scene.tokens["soak"]
        self.tcp, self.tls = scene.tcp, scene.tls
        self.authority, self.clients, self.others = scene.authority.cert, scene.clients, scene.others
        self.tokens_file, self.big_tag = scene.tokens_file, scene.big_tag
        self.problems = multiprocessing.SimpleQueue()
        self.stop, self.paused = multiprocessing.Event(), multiprocessing.Event()
        self.resting, self.turns = multiprocessing.Array("b", 100), multiprocessing.Array("Q", 100)

    def context(self, who=None):
        context = ssl.create_default_context(cafile=self.authority)
        if who:
            context.load_cert_chain(who + ".pem", who + ".key")
        return context

    def address(self, how):
        return self.unix if how == "unix" else self.tls if "tls" in how else self.tcp

    def client(self, how, token=None, who=None, source=None):
        """One connection. how: plain, tls, unix, proxied, proxied tls. who: a certificate, which then stands for the
        token."""
        client = Client(self.address(how), token or (None if who else self.token))
        if how == "unix":
            return client
        beginning = b""
        if "proxied" in how:
            source, beginning = (PROXY, proxy_2("192.0.2.7", b"\x03\0\x04abcd") if "tls" in how
                                 else proxy_1("2001:db8::7"))
        client.http = _From(self.address(how), source, beginning, self.context(who) if "tls" in how else None)
        return client

    def open(self, how, beginning=b"", source=None):
        """A socket. The TLS of it, if it has one, is shaken."""
        if how == "unix":
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(PATIENCE_S)
            sock.connect(self.unix)
            return sock
        return connected(*self.address(how), source, beginning, self.context() if "tls" in how else None)

    def head(self, method, target, *headers, token=None):
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token or self.token}",
                 *headers]
        return "\r\n".join(lines).encode() + b"\r\n\r\n"


def legacy(backend):
    """Simulated devices then give handles (exports)."""
    return backend + ("," if ":" in backend else ":") + "legacy=fake" if backend.startswith("host") else backend


class Scene:
    """The daemon and what changes around it while it runs."""

    def __init__(self, backend):
        self.folder = tempfile.mkdtemp(prefix="gb-soak-")
        self.state = self.path("state")
        for name in ("state", "server", "clients", "others"):
            os.mkdir(self.path(name), 0o700)
        self.authority = secure.Authority(self.path("server"))
        self.clients, self.others = (secure.Authority(self.path(n), n) for n in ("clients", "others"))
        self.clients.make("cam", "/O=Example/CN=cam1", "DNS:cam1.example", "clientAuth")
        self.clients.make("other", "/O=Example/CN=other", "DNS:other.example", "clientAuth")
        self.others.make("other", "/O=Example/CN=cam1", "DNS:cam1.example", "clientAuth")
        self.pair, self.tokens_file, self.audit_file = self.path("pair.pem"), self.path("tokens"), self.path("audit")
        self.audited, self.rows = 0, 0
        self.certify()
        self.tell_tokens()
        self.tokens = {name: command(self.state, "add", name, *more) for name, more in TOKENS.items()}
        self.daemon = Daemon(legacy(backend), "--tls-listen", "127.0.0.1:0", "--tls-cert", self.pair, "--tls-key",
                             self.pair, "--tls-client-ca", self.clients.cert, "--tokens-file", self.tokens_file,
                             "--audit-file", self.audit_file, *OPTIONS, state=self.state)
        plain, tls = ([a for a in self.daemon.addresses if a.startswith("tls:") == x and not a.startswith("unix:")]
                      for x in (False, True))
        self.tcp, self.tls = (self.numbers(x[0].removeprefix("tls:")) for x in (plain, tls))
        expect(self.ask("GET", "/v1", None), 401)
        expect(self.admin("POST", "/v1/sessions", {"name": "soak"}), 201)
        self.big_tag = expect(self.admin("PUT", f"{SESSION}/buffers/big/data", bytes(32 << 20)), 201).headers["ETag"]

    @staticmethod
    def numbers(text):
        host, port = text.rsplit(":", 1)
        return host, int(port)

    def path(self, name):
        return os.path.join(self.folder, name)

    def ask(self, method, target, token, body=None):
        client = Client(self.tcp, token)
        with contextlib.closing(client):
            return client.ask(method, target, body)

    def admin(self, method, target, body=None):
        return self.ask(method, target, self.tokens["soak"], body)

    def empty(self):
        """What the loads have stored goes: it is of any size, and no memory of the daemon's own."""
        while names := [b["name"] for b in self.admin("GET", f"{SESSION}/buffers?limit=1000").json()["items"]
                        if b["name"] != "big"]:
            for name in names:
                expect(self.admin("DELETE", f"{SESSION}/buffers/{name}"), 204)
        expect(self.admin("POST", f"{SESSION}/pools/default/trim", {}), 200)

    def _replace(self, path, text):
        with open(path + ".new", "w", encoding="ascii") as f:
            os.chmod(f.fileno(), 0o600)
            f.write(text)
        os.replace(path + ".new", path)

    def certify(self):
        """Another certificate with another key, in one file so that the daemon reads no half of it."""
        files = self.authority.make("server", "/CN=localhost", "DNS:localhost,IP:127.0.0.1")
        self._replace(self.pair, "".join(open(f, encoding="ascii").read() for f in files))
        self.certificate = ssl.PEM_cert_to_DER_cert(open(files[0], encoding="ascii").read())

    def tell_tokens(self):
        self.rows += 1
        self._replace(self.tokens_file, f"name=filed secret=a-secret-of-the-file-{self.rows} scope=read\n")

    def served(self):
        """The certificate of the listener for TLS."""
        context = ssl.create_default_context(cafile=self.authority.cert)
        with connected(*self.tls, context=context) as sock:
            return sock.getpeercert(True)

    def look_at_audit(self):
        """Each line is JSON and no secret stands in it. The daemon opens the file again after it was renamed."""
        if not os.path.exists(self.audit_file):
            return
        os.rename(self.audit_file, self.audit_file + ".old")
        self.daemon.process.send_signal(signal.SIGHUP)
        until("the audit's file is there again",
              lambda: self.admin("PATCH", SESSION, {"labels": {"row": str(self.rows)}}).status == 200 and
              os.path.exists(self.audit_file), every_s=0.1)
        with open(self.audit_file + ".old", encoding="utf-8") as f:
            for line in f:
                assert isinstance(json.loads(line), dict) and "gpb_" not in line and "a-secret" not in line, line
                self.audited += 1

    def change(self):
        """New certificates, another token in the file, another file of the audit; the daemon notices by itself or by
        SIGHUP."""
        self.certify()
        self.tell_tokens()
        self.look_at_audit()
        self.daemon.process.send_signal(signal.SIGHUP)
        until("the new certificate is served", lambda: self.served() == self.certificate, every_s=0.2)

    def stop(self):
        try:
            return self.daemon.stop()
        finally:
            self.end()

    def end(self):
        self.daemon.clean()
        shutil.rmtree(self.folder, ignore_errors=True)

