"""The configurations of nginx, HAProxy and Caddy in etc/proxy, as they stand but for addresses, files and users."""
import http.client
import json
import os
import re
import socket
import ssl

import pytest

from harness import DATA, PATIENCE_S, token, until
from proxies import Proxy, program
from secure import Authority
from values import payload

pytestmark = pytest.mark.once
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NAME, CLIENT = "gpubuf.example", "127.0.0.7"
FILES = {"nginx": "nginx.conf", "haproxy": "haproxy.cfg", "caddy": "Caddyfile"}
LIES = {"X-Forwarded-For": "192.0.2.66", "Forwarded": "for=192.0.2.66", "X-Real-IP": "192.0.2.66"}


def shipped(name):
    program(name)
    with open(os.path.join(TOP, "etc", "proxy", FILES[name]), encoding="ascii") as f:
        return f.read()


def options(text):
    """Of the daemon, from the comment at the top."""
    words = re.search(r"^# +gpubufd (.*)$", text, re.M).group(1).split()
    assert words[:2] == ["--listen", "127.0.0.1:7070"]
    return words[2:]


class Shipped(Proxy):
    """changes: further ones, as pairs."""

    def __init__(self, name, folder, daemon, pair, changes=()):
        self.pair, self.changes = pair, changes
        super().__init__(name, folder, daemon)

    def replaced(self, tcp):
        end = ";" if self.name == "nginx" else " "
        paths = "".join(f"    {x}_temp_path {self.folder}/{x};\n" for x in ("client_body", "proxy", "fastcgi", "uwsgi",
                                                                            "scgi"))
        text, own = shipped(self.name), {
            "nginx": [("user www-data;", "daemon off;\nmaster_process off;"), ("/run/nginx.pid", self.folder + "/pid"),
                      ("/var/log/nginx/", self.folder + "/"), ("listen 443 ", f"listen 127.0.0.1:{self.ports[0]} "),
                      ("/etc/ssl/gpubuf.pem", self.pair[0]), ("/etc/ssl/gpubuf.key", self.pair[1]),
                      ("http {\n", "http {\n" + paths)],
            "haproxy": [("    user haproxy\n    group haproxy\n    chroot /var/lib/haproxy\n", "    nbthread 1\n"),
                        ("/dev/log", "stdout format raw"), ("bind :443 ", f"bind 127.0.0.1:{self.ports[0]} "),
                        ("/etc/ssl/gpubuf.both", self.pair[2])],
            "caddy": [(":443 {", f":{self.ports[0]} {{\n\tbind 127.0.0.1"), ("/etc/ssl/gpubuf.pem", self.pair[0]),
                      ("/etc/ssl/gpubuf.key", self.pair[1]), ("/var/log/caddy/", self.folder + "/"),
                      ("admin off", "admin off\n\tauto_https disable_redirects")]}[self.name]
        for old, new in [*own, ("127.0.0.1:7070" + end, tcp + end), *self.changes]:
            assert old in text, old
            text = text.replace(old, new)
        return text

    def begin(self, tcp, unix):
        conf = os.path.join(self.folder, "conf")
        with open(conf, "w", encoding="ascii") as f:
            f.write(self.replaced(tcp))
        return self.spawn(conf)

    def listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.ports[0]), PATIENCE_S).close()
        except ConnectionRefusedError:
            return False
        return self.process.poll() is None


class Behind:
    """A daemon, its secrets and the proxy."""

    def __init__(self, start, name, folder, changes=()):
        state = folder / "s"
        self.secrets = {scope: token(state, "add", scope, "--scope", scope) for scope in ("write", "admin")}
        self.d = start(*options(shipped(name)), state=str(state))
        self.authority = Authority(folder)
        cert, key = self.authority.make("proxy", "/CN=" + NAME, "DNS:" + NAME)
        both = str(folder / "both.pem")
        with open(both, "w") as out:
            for path in (cert, key):
                with open(path) as f:
                    out.write(f.read())
        self.proxy = Shipped(name, str(folder / name), self.d, (cert, key, both), changes)

    def connect(self, name=NAME):
        sock = socket.create_connection(("127.0.0.1", self.proxy.ports[0]), PATIENCE_S, (CLIENT, 0))
        return self.authority.context().wrap_socket(sock, server_hostname=name)

    def start(self, method, target, body=None, headers=None, scope="write", host=NAME):
        c = http.client.HTTPConnection(host, timeout=PATIENCE_S)
        c.sock = self.connect()
        c.request(method, target, body, {"Authorization": "Bearer " + self.secrets[scope], **LIES, **(headers or {})})
        return c.getresponse()

    def ask(self, *request, **more):
        r = self.start(*request, **more)
        return r.status, r.headers, r.read()


@pytest.fixture
def behind(start, tmp_path):
    running = []

    def go(name, changes=()):
        running.append(Behind(start, name, tmp_path, changes))
        return running[-1]

    yield go
    for b in running:
        b.proxy.stop()


@pytest.mark.parametrize("name", FILES)
def test_bytes_and_who_sent_them(behind, name):
    b, x = behind(name), DATA.format("default", "x")
    data = payload((5 << 20) + 3, 1)
    status, headers, _ = b.ask("PUT", x, data)
    assert status == 201 and headers["ETag"]
    status, headers, body = b.ask("GET", x)
    assert (status, body) == (200, data)
    status, part, body = b.ask("GET", x, None, {"Range": "bytes=1048576-3145727"})
    assert (status, body) == (206, data[1 << 20:3 << 20]) and part["ETag"] == headers["ETag"]
    assert b.ask("GET", x, None, {"If-None-Match": headers["ETag"]})[0] == 304
    status, head, body = b.ask("HEAD", x)
    assert (status, body, head["Content-Length"]) == (200, b"", str(len(data)))

    def changes():
        found = json.loads(b.ask("GET", "/v1/audit", scope="admin")[2])["items"]
        return [r for r in found if r["event"] == "request" and r["method"] == "PUT"]

    record = until("the upload is in the audit", changes)[0]
    assert record["address"].split(":")[0] == CLIENT and record["token"] == "write", record  # whatever the client says


@pytest.mark.parametrize("name", FILES)
def test_events_come_as_they_happen(behind, name):
    b = behind(name)
    feed = b.start("GET", "/v1/feed?type=buffer.", None, {"Accept": "text/event-stream"})
    assert feed.status == 200
    for n in ("first", "second"):
        assert b.ask("PUT", DATA.format("default", n), b"1")[0] == 201
        while f'"{n}"'.encode() not in (line := feed.readline()):
            assert line
    feed.close()


@pytest.mark.parametrize("name", FILES)
def test_a_body_is_not_gathered(behind, name):
    """The daemon has the first half before the client sends the second."""
    b, data = behind(name), payload(4 << 20, 2)
    with b.connect() as sock:
        lines = [f"PUT {DATA.format('default', 'x')} HTTP/1.1", "Host: " + NAME, f"Content-Length: {len(data)}",
                 "Authorization: Bearer " + b.secrets["write"], "", ""]
        sock.sendall("\r\n".join(lines).encode() + data[:2 << 20])

        def running():
            return json.loads(b.ask("GET", "/v1/stats")[2])["running"]["uploads"]

        until("the upload runs", running)
        sock.sendall(data[2 << 20:])
        assert sock.recv(12) == b"HTTP/1.1 201"
    assert b.ask("GET", DATA.format("default", "x"))[2] == data


@pytest.mark.parametrize("name", FILES)
def test_other_names_and_no_token(behind, name):
    b = behind(name)
    assert b.ask("GET", "/v1", headers={"Authorization": "Basic YTpi"})[0] == 401
    assert b.ask("GET", "/v1", headers={"Host": NAME + ":8443"})[0] == 200
    assert b.ask("GET", "/v1", headers={"Host": "elsewhere.example"})[0] == 421
    for origin, status in (NAME, 200), ("other.example", 403):
        headers = {"Origin": "https://" + origin, "Content-Type": "application/json"}
        assert b.ask("PATCH", "/v1/sessions/default", "{}", headers)[0] == status
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        b.connect("elsewhere.example")


@pytest.mark.parametrize("name,short", [("nginx", [("timeout 20s", "timeout 1s"), ("timeout 60s", "timeout 1s")]),
                                        ("haproxy", [("timeout client 60s", "timeout client 1s")]),
                                        ("caddy", [("read_header 20s", "read_header 1s"), ("idle 60s", "idle 1s")])],
                         ids=FILES)
def test_a_wait_may_last_longer_than_the_bounds_of_clients(behind, name, short):
    b = behind(name, short)
    assert b.ask("PUT", DATA.format("default", "x"), b"1")[0] == 201
    target = "/v1/sessions/default/buffers/x"
    tag = b.ask("GET", target)[1]["ETag"]
    assert b.ask("GET", target, None, {"If-None-Match": tag, "Prefer": "wait=3"})[0] == 304


@pytest.mark.parametrize("name", FILES)
def test_a_client_may_wait_before_it_sends_a_body(behind, name):
    b, x = behind(name), DATA.format("default", "x")
    with b.connect() as sock:
        lines = [f"PUT {x} HTTP/1.1", "Host: " + NAME, "Content-Length: 5", "Expect: 100-continue",
                 "Authorization: Bearer " + b.secrets["write"], "", ""]
        sock.sendall("\r\n".join(lines).encode())
        answers = sock.makefile("rb")
        assert answers.readline() == b"HTTP/1.1 100 Continue\r\n"
        sock.sendall(b"bytes")
        # A proxy may say it once itself and once for the daemon.
        status = next(x for x in iter(answers.readline, b"") if x.startswith(b"HTTP/1.1 ")
                      and not x.startswith(b"HTTP/1.1 100 "))
        assert status.startswith(b"HTTP/1.1 201 ")
    assert b.ask("GET", x)[2] == b"bytes"
