"""nginx and HAProxy in front of a daemon, each as a child process with one thread and its files in the test's folder.
Each has two listeners: one with the default configuration, to the daemon's TCP port; and one with the laxest parsing,
to the UNIX socket."""
import os
import re
import shutil
import socket
import subprocess

import pytest

from harness import PATIENCE_S, end, until
from ports import free_ports

NGINX = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/errors;
events {{ worker_connections 256; }}
http {{
    log_format forwarded '$upstream_addr $request_method $request_uri';
    access_log {folder}/forwarded forwarded;
    client_body_temp_path {folder}/client; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    large_client_header_buffers 4 128k;
    client_max_body_size 0;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host $http_host;
    proxy_next_upstream off;
    {tells}
    upstream tcp {{ server {tcp}; keepalive 1; }}
    upstream unix {{ server unix:{unix}; keepalive 1; }}
    server {{
        listen 127.0.0.1:{ports[0]};
        location / {{ proxy_pass http://tcp; }}
    }}
    server {{
        listen 127.0.0.1:{ports[1]};
        ignore_invalid_headers off;
        underscores_in_headers on;
        merge_slashes off;
        location / {{ proxy_pass http://unix; proxy_request_buffering off; proxy_buffering off; }}
    }}
}}
"""

HAPROXY = """
global
    nbthread 1
    maxconn 200
    log stdout format raw local0
defaults
    mode http
    log global
    log-format "%s %HM %HU"
    timeout connect 30s
    timeout client 60s
    timeout server 60s
    retries 0
    {tells}
    http-reuse always
    default-server pool-max-conn 1
frontend strict
    bind 127.0.0.1:{ports[0]}
    default_backend tcp
frontend lax
    bind 127.0.0.1:{ports[1]}
    option accept-invalid-http-request
    default_backend unix
backend tcp
    server daemon {tcp}
backend unix
    option accept-invalid-http-response
    server daemon unix@{unix}
"""


# The client's address, behind what the client has written itself.
TELLS = {"nginx": "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;", "haproxy": "option forwardfor"}


def program(name):
    """The program of Debian's package, which ./bootstrap check provides. Without it the test is skipped if
    GB_E2E_LACKING=skip."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin")
    if path is None and os.environ.get("GB_E2E_LACKING") == "skip":
        pytest.skip(f"{name} is not installed on this machine")
    assert path, f"{name} is not installed: ./bootstrap deps"
    return path


class Proxy:
    """name: nginx or haproxy. ways: two addresses, default and lax. tells: it tells the daemon the client's address."""

    def __init__(self, name, folder, daemon, tells=False):
        self.tells = TELLS[name] if tells else ""
        self.name, self.folder, self.log = name, folder, os.path.join(folder, "forwarded")
        self.program = program(name)
        os.mkdir(folder)
        for _ in range(5):
            self.ports = free_ports(2)
            self.process = self.begin("{}:{}".format(*daemon.tcp), daemon.unix)
            if (until(f"{name} listens or has ended", lambda: self.listens() or self.process.poll() is not None) is True
                and self.listens()):
                break
            self.process.wait(PATIENCE_S)
            assert "in use" in self.said(), self.said()  # another process took the port
        self.ways = [("127.0.0.1", port) for port in self.ports]

    def begin(self, tcp, unix):
        conf = os.path.join(self.folder, "conf")
        with open(conf, "w", encoding="ascii") as f:
            template = NGINX if self.name == "nginx" else HAPROXY
            f.write(template.format(folder=self.folder, tcp=tcp, unix=unix, ports=self.ports, tells=self.tells))
        return self.spawn(conf)

    def spawn(self, conf):
        args = {"nginx": ["-p", self.folder, "-c", conf, "-e", os.path.join(self.folder, "errors")],
                "haproxy": ["-db", "-f", conf], "caddy": ["run", "--adapter", "caddyfile", "--config", conf]}[self.name]
        out = "forwarded" if self.name == "haproxy" else "output"  # HAProxy prints its log
        # where Caddy keeps what it makes
        own = {**os.environ, "XDG_DATA_HOME": self.folder, "XDG_CONFIG_HOME": self.folder}
        with open(os.path.join(self.folder, out), "wb") as f, open(os.path.join(self.folder, "stderr"), "wb") as errors:
            return subprocess.Popen([self.program, *args], stdin=subprocess.DEVNULL, stdout=f, stderr=errors, env=own)

    def listens(self):
        try:
            for port in self.ports:
                socket.create_connection(("127.0.0.1", port), PATIENCE_S).close()
        except ConnectionRefusedError:
            return False
        return self.process.poll() is None

    def said(self):
        """Its output without the request log."""
        texts = []
        for name in ("errors", "stderr"):
            path = os.path.join(self.folder, name)
            if os.path.exists(path):
                with open(path, errors="replace") as f:
                    texts.append(f.read())
        return "".join(texts)

    def forwarded(self, at):
        """(the requests "METHOD target" that it sent to the daemon since byte `at` of its log, the log's present
        end)"""
        with open(self.log, "rb") as f:
            f.seek(at)
            data = f.read()
        whole = data[:data.rfind(b"\n") + 1]
        rows = (row.split(" ", 1) for row in whole.decode("latin-1").splitlines() if " " in row)
        return [rest for server, rest in rows if re.match(r"daemon$|unix:|[\d.]+:\d+$", server)], at + len(whole)

    def stop(self):
        end(self.process)
