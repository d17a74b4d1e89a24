"""Certificates of a private authority, and servers that end TLS in front of a daemon: nginx, and openssl where a
client's certificate is refused within the handshake."""
import os
import shutil
import socket
import subprocess

import pytest

from harness import PATIENCE_S, binary, end, until
from ports import free_port, free_ports
from proxies import program

NGINX = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/errors;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/client; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    client_max_body_size 0;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host localhost;
    proxy_request_buffering off;
    proxy_buffering off;
    proxy_read_timeout 300s;
{servers}
}}
"""

SERVER = """    server {{
        listen {address}:{port} ssl;
        ssl_protocols {protocols};
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        {more}
        location / {{ proxy_pass http://{daemon}; }}
    }}
"""


def tool(name):
    path = shutil.which(name)
    if path is None and os.environ.get("GB_E2E_LACKING") == "skip":
        pytest.skip(f"{name} is not installed on this machine")
    assert path, f"{name} is not installed: ./bootstrap deps"
    return path


def openssl(*args, cwd=None, **more):
    return subprocess.run([tool("openssl"), *map(str, args)], cwd=cwd, capture_output=True, text=True,
                          timeout=PATIENCE_S, **more)


def gpubufd_tls(*args, status=0, **env):
    """`gpubufd tls ...`; its standard output, or with another status its standard error."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GPUBUFD_")}
    run = subprocess.run([binary(), "tls", *map(str, args)], capture_output=True, text=True, timeout=PATIENCE_S,
                         env={**clean, **env})
    assert run.returncode == status, (run.returncode, run.stdout, run.stderr)
    return run.stdout if status == 0 else run.stderr


class Authority:
    """What `gpubufd tls init` makes in a folder, and certificates that it would not make."""

    def __init__(self, folder, *args):
        self.folder = str(folder)
        self.said = gpubufd_tls("init", "--dir", self.folder, *args)
        self.ca = self.path("ca.pem")

    def path(self, *names):
        return os.path.join(self.folder, *names)

    @property
    def server(self):
        return self.path("server.pem"), self.path("server.key")

    def client(self, name):
        return self.path("clients", name + ".pem"), self.path("clients", name + ".key")

    def signed(self, name, start, end, extensions, key=None):
        """(certificate, key) with those times, "20200101000000Z", made by openssl from a key of this folder."""
        work = self.path(name)
        os.mkdir(work)
        key = key or self.server[1]
        with open(os.path.join(work, "conf"), "w", encoding="ascii") as f:
            f.write(f"[ca]\ndefault_ca=x\n[x]\ndatabase={work}/index\nserial={work}/serial\n"
                    f"new_certs_dir={work}\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n[e]\n{extensions}\n")
        open(os.path.join(work, "index"), "w").close()
        with open(os.path.join(work, "serial"), "w", encoding="ascii") as f:
            f.write("4711\n")
        made = openssl("req", "-new", "-key", key, "-subj", "/CN=" + name, "-out", os.path.join(work, "csr"))
        assert made.returncode == 0, made.stderr
        made = openssl("ca", "-batch", "-config", os.path.join(work, "conf"), "-cert", self.ca, "-keyfile",
                       self.path("authority", "ca.key"), "-in", os.path.join(work, "csr"), "-startdate", start,
                       "-enddate", end, "-extensions", "e", "-notext", "-out", os.path.join(work, "pem"))
        assert made.returncode == 0, made.stderr
        return os.path.join(work, "pem"), key


def accepts(address):
    try:
        socket.create_connection((address[0].strip("[]"), address[1]), PATIENCE_S).close()
    except ConnectionRefusedError:
        return False
    return True


class Process:
    def __init__(self, args, addresses):
        self.process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        until("the server listens or has ended", lambda: self.process.poll() is not None
              or all(map(accepts, addresses)))
        assert self.process.poll() is None, args

    def stop(self):
        end(self.process)


class Terminator(Process):
    """nginx with a listener for each entry of servers: {name: {"pair": (certificate, key), "address", "protocols",
    "more"}}."""

    def __init__(self, folder, daemon, servers):
        os.mkdir(folder)
        ports = dict(zip(servers, free_ports(len(servers))))
        where = {name: (entry.get("address", "127.0.0.1"), ports[name]) for name, entry in servers.items()}
        texts = [SERVER.format(address=where[name][0], port=where[name][1], certificate=entry["pair"][0],
                               key=entry["pair"][1], protocols=entry.get("protocols", "TLSv1.2 TLSv1.3"),
                               more=entry.get("more", ""), daemon="{}:{}".format(*daemon.tcp))
                 for name, entry in servers.items()]
        conf = os.path.join(folder, "conf")
        with open(conf, "w", encoding="ascii") as f:
            f.write(NGINX.format(folder=folder, servers="".join(texts)))
        self.urls = {name: "https://{}:{}".format(*at) for name, at in where.items()}
        super().__init__([program("nginx"), "-p", folder, "-c", conf, "-e", os.path.join(folder, "errors")],
                         list(where.values()))

    def plain(self, name):
        return self.urls[name].replace("https:", "http:")


class Strict(Process):
    """openssl s_server: it refuses a client without a certificate of that authority within the handshake, and answers
    none."""

    def __init__(self, authority, *args):
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        pair = authority.server
        super().__init__([tool("openssl"), "s_server", "-accept", f"127.0.0.1:{self.port}", "-cert", pair[0], "-key",
                          pair[1], "-CAfile", authority.ca, "-Verify", "1", "-verify_return_error", "-quiet", *args],
                         [("127.0.0.1", self.port)])
