"""Servers that a daemon copies from by from_url: nginx, S3, python's own, and one that says what a test wants; and what
the tests of such copies share."""
import base64
import contextlib
import hashlib
import os
import re
import socket
import subprocess
import sys
import threading

import secure
from conform import Session
from harness import PATIENCE_S, accepted, asked, end, hang_up, library, until
from ports import free_port, free_ports
from proxies import program

MIB = 1 << 20
ASYNC = {"Prefer": "respond-async"}

NGINX = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/errors;
events {{ worker_connections 256; }}
http {{
    log_format asked '$server_protocol $request_method $request_uri $status "$http_range" '
                     '"$http_if_match$http_if_range" "$http_authorization"';
    access_log {folder}/asked asked;
    client_body_temp_path {folder}/client; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    types {{ application/octet-stream bin; text/html html; }}
    default_type application/octet-stream;
    server {{
        listen 127.0.0.1:{ports[0]};
        listen 127.0.0.1:{ports[1]} ssl;
        ssl_certificate {pair[0]};
        ssl_certificate_key {pair[1]};
        root {root};
        location /moved/ {{ rewrite ^/moved/(.*)$ /$1 redirect; }}
        location /secured/ {{ return 308 https://localhost:{ports[1]}/; }}
        location /unsecured/ {{ return 302 http://127.0.0.1:{ports[0]}/model.safetensors; }}
        location /whole/ {{ alias {root}/; max_ranges 0; }}
        location /untagged/ {{ alias {root}/; etag off; }}
        location /zipped/ {{ alias {root}/; gzip on; gzip_types *; gzip_min_length 1; }}
        location /typed/ {{ alias {root}/; types {{ }} default_type application/x-safetensors; }}
        location /secret/ {{ alias {root}/; if ($http_authorization != "Bearer hush") {{ return 401; }} }}
        location /slow/ {{ alias {root}/; limit_rate 256k; }}
    }}
}}
"""


class Nginx:
    """Files of a folder, by http and by https: with ranges and strong tags, and, below some names, without."""

    def __init__(self, folder, root):
        self.folder, self.root = str(folder), str(root)
        os.makedirs(self.folder)
        for _ in range(5):
            self.ports = free_ports(2)
            conf = os.path.join(self.folder, "conf")
            with open(conf, "w", encoding="ascii") as f:
                f.write(NGINX.format(folder=self.folder, root=self.root, ports=self.ports,
                                     pair=secure.authority().pair))
            self.process = subprocess.Popen(
                [program("nginx"), "-p", self.folder, "-c", conf, "-e", os.path.join(self.folder, "errors")],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            until("nginx listens or has ended", lambda: listens(*self.ports) or self.process.poll() is not None)
            if self.process.poll() is None:
                break
        self.url = f"http://127.0.0.1:{self.ports[0]}"
        self.secure_url = f"https://localhost:{self.ports[1]}"

    def write(self, name, data):
        """A file that takes the place of another in one step, as servers want it."""
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".new", "wb") as f:
            f.write(data)
        os.replace(path + ".new", path)
        return f"{self.url}/{name}"

    def asked(self):
        """The requests so far, each (method, target, status, range, condition, authorization)."""
        with open(os.path.join(self.folder, "asked"), encoding="latin-1") as f:
            rows = re.findall(r'^\S+ (\S+) (\S+) (\d+) "(.*?)" "(.*?)" "(.*?)"$', f.read(), re.M)
        return [(method, target, int(status), *rest) for method, target, status, *rest in rows]

    def stop(self):
        end(self.process)


def listens(*ports):
    try:
        for port in ports:
            socket.create_connection(("127.0.0.1", port), PATIENCE_S).close()
    except ConnectionRefusedError:
        return False
    return True


class Plain:
    """python3 -m http.server: neither ranges nor entity tags."""

    def __init__(self, root):
        self.port = free_port()
        self.process = subprocess.Popen([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory",
                                         str(root), str(self.port)], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        until("http.server listens", lambda: listens(self.port) or self.process.poll() is not None)
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self):
        end(self.process)


class S3:
    """moto's: presigned URLs, whose query names method and time."""

    def __init__(self):
        library("moto")
        self.server = library("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        self.server.start()
        self.url = "http://{}:{}".format(*self.server.get_host_and_port())
        config = library("botocore.config").Config(signature_version="s3v4", s3={"addressing_style": "path"})
        self.client = library("boto3").client("s3", endpoint_url=self.url, region_name="us-east-1", config=config,
                                              aws_access_key_id="id", aws_secret_access_key="secret")
        self.client.create_bucket(Bucket="models")

    def put(self, key, data):
        """The presigned URL of a GET."""
        self.client.put_object(Bucket="models", Key=key, Body=data)
        return self.client.generate_presigned_url("get_object", {"Bucket": "models", "Key": key}, 600)

    def stop(self):
        self.server.stop()


# --- one that says what a test wants ----------------------------------------------------------------------------------


class Request:
    def __init__(self, text, number):
        head = text.split(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
        self.method, self.target = head[0].split(" ")[:2]
        self.headers = {k.strip().title(): v.strip() for k, v in (line.split(":", 1) for line in head[1:])}
        self.number = number  # of all that the server was asked, from 1
        asked_for = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        self.first = int(asked_for.group(1)) if asked_for else None
        self.last = int(asked_for.group(2)) if asked_for and asked_for.group(2) else None


class Answer:
    """What a truthful server says; a lie changes it before it is sent."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body
        self.cut = None  # the connection ends behind that many bytes of the body
        self.hold = None  # an event that is waited for behind that many bytes
        self.held_at = 0
        self.chunked = False
        self.raw = None  # in place of all the above

    def head(self):
        headers = dict(self.headers)
        if self.chunked:
            headers.pop("Content-Length", None)
            headers["Transfer-Encoding"] = "chunked"
        lines = [f"HTTP/1.1 {self.status} As It Is", *(f"{k}: {v}" for k, v in headers.items() if v is not None)]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def tag_of(number):
    return f'"v{number}"'


class Own:
    """One content under every path. lie(request, answer) may change each answer. ranges, tag: what it offers.

    requests: all that came. Threads answer: one for each connection."""

    def __init__(self, content, lie=None, ranges=True, tag='"v1"', pair=None):
        self.content, self.lie, self.ranges, self.tag = content, lie, ranges, tag
        self.requests, self.lock, self.open = [], threading.Lock(), set()
        self.context = None
        if pair:
            import ssl
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*pair)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        name = "https://localhost" if pair else "http://127.0.0.1"
        self.origin = f"{name}:{self.listener.getsockname()[1]}"
        self.url = self.origin + "/model"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        for connection in accepted(self.listener):
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with self.lock:
            self.open.add(connection)
        with contextlib.suppress(OSError), connection:
            sock = self.context.wrap_socket(connection, server_side=True) if self.context else connection
            while text := asked(sock):
                if not self.answer(sock, text):
                    break
            hang_up(sock)
        with self.lock:
            self.open.discard(connection)

    def truth(self, request):
        content, total = self.content, len(self.content)
        headers = {"Content-Type": "application/octet-stream", "ETag": self.tag}
        conditions = [request.headers.get(name) for name in ("If-Match", "If-Range")]
        if conditions[0] not in (None, self.tag):
            return Answer(412, {**headers, "Content-Length": "0"}, b"")
        if not self.ranges or request.first is None or conditions[1] not in (None, self.tag):
            more = {"Accept-Ranges": "bytes"} if self.ranges else {}
            return Answer(200, {**headers, **more, "Content-Length": str(total)}, content)
        if request.first >= total:
            return Answer(416, {**headers, "Content-Range": f"bytes */{total}", "Content-Length": "0"}, b"")
        last = total - 1 if request.last is None else min(request.last, total - 1)
        body = content[request.first:last + 1]
        return Answer(206, {**headers, "Content-Range": f"bytes {request.first}-{last}/{total}",
                            "Content-Length": str(len(body))}, body)

    def answer(self, sock, text):
        """False: the connection ends."""
        with self.lock:
            request = Request(text, len(self.requests) + 1)
            self.requests.append(request)
        answer = self.truth(request)
        if self.lie:
            answer = self.lie(request, answer) or answer
        if answer.raw is not None:
            sock.sendall(answer.raw)
            return False
        sock.sendall(answer.head())
        if request.method == "HEAD":
            return True
        self.send(sock, answer)
        if answer.cut is not None:
            return False
        return answer.chunked or str(len(answer.body)) == answer.headers.get("Content-Length")

    @staticmethod
    def send(sock, answer):
        body = answer.body if answer.cut is None else answer.body[:answer.cut]
        if answer.hold:
            sock.sendall(body[:answer.held_at])
            answer.hold.wait(PATIENCE_S)
            body = body[answer.held_at:]
        if not answer.chunked:
            sock.sendall(body)
            return
        for at in range(0, len(body), 100000):
            piece = body[at:at + 100000]
            sock.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        if answer.cut is None:
            sock.sendall(b"0\r\n\r\n")

    def ranges_asked(self):
        return [(r.first, r.last) for r in self.requests]

    def stop(self):
        hang_up(self.listener)
        with self.lock:
            for connection in self.open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


def chunked(request, answer):
    answer.chunked = True


def until_the_end(request, answer):
    """HTTP/1.0's way: the body ends with the connection."""
    answer.headers["Content-Length"] = None
    answer.headers["Connection"] = "close"
    answer.cut = len(answer.body)


def owning(start):
    """For a fixture: makes (server, session of a daemon that may copy from it), and stops the servers afterwards."""
    servers = []

    def make(content, *options, **more):
        servers.append(Own(content, **more))
        return servers[-1], Session(start("--pull-from", servers[-1].origin, *options))

    yield make
    for server in servers:
        server.stop()


# --- copies -----------------------------------------------------------------------------------------------------------


def take(s, url, name="m", status=201, headers=None, **more):
    return s.post(f"buffers/{name}/copy", {"from_url": url, **more}, status, headers)


def refused(s, url, status, code, *words, name="m", **more):
    """And nothing of it is left."""
    p = s.ask("POST", f"buffers/{name}/copy", {"from_url": url, **more}).problem(status, code)
    assert all(word in p["detail"] for word in words), p["detail"]
    nothing_left(s, name)
    return p


def left_tidy(daemon):
    """For a fixture: the default session, whose buffers are gone afterwards, and which has no open upload then."""
    s = Session(daemon)
    yield s
    daemon.settled()
    assert not daemon.open_uploads()
    for name in s.names("buffers"):
        s.delete("buffers/" + name)


def nothing_left(s, name="m"):
    until("the upload is gone", lambda: not s.daemon.open_uploads(s.name))
    s.ask("GET", "buffers/" + name).problem(404, "buffer_not_found")
    until("its memory is free", lambda: s.get("")["used_bytes"] == 0)


def begun(s, url, name="m", **more):
    return take(s, url, name, 202, ASYNC, **more)["id"]


def ended(s, operation):
    def look():
        op = s.ask("GET", "/v1/operations/" + operation, None, {"Prefer": "wait=5"}).expect(200).json()
        return op if op["state"] not in ("queued", "running") else None

    return until("the end of the copy", look)


def digest(data, name="sha256"):
    return base64.b64encode(hashlib.new(name, data).digest()).decode()
