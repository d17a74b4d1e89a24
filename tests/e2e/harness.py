"""The daemon as a child process, and two clients: an ordinary one, and one that sends exact bytes."""
import contextlib
import http.client
import importlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest
import secure
from connected import PATIENCE_S, Connected
from record import RECORD, requests_in

BACKENDS = os.environ.get("GB_E2E_BACKENDS", "host host:discrete").split()
SMALL_SLOTS = ("--slots-bytes", "8M", "--slot-bytes", "256K")
SLOT = 256 * 1024  # of SMALL_SLOTS
# Tests at random moments repeat themselves as often as check has time for; CI asks for more of the same.
ROUNDS = int(os.environ.get("GB_E2E_ROUNDS", "1"))
DATA = "/v1/sessions/{}/buffers/{}/data"
# What no list in src/daemon/cage has, and a test needed.
REFUSED_CALL = re.compile(r"the system call \w+ \(\d+\) is on no list: it failed")
SANITIZERS = re.compile(r"ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|runtime error:")


# A file to which the system calls go that daemons made and that no list has: etc/collect-syscalls.
CALLS = os.environ.get("GB_E2E_SYSCALLS")
COLLECTING = {"GPUBUFD_SECCOMP": "log"} if CALLS else {}


def collect_calls(log):
    found = re.findall(r"the system call (\w+) \(\d+\) is on no list", log) if CALLS else []
    if found:
        with open(CALLS, "a", encoding="ascii") as f:
            f.writelines(f"{name}\n" for name in found)


def for_everybody(program, folder):
    """A copy of it, in a folder that every user may search from now on; for a bundle, with the files beside it."""
    for path in [str(p) for p in [folder, *folder.parents][:-2]]:
        os.chmod(path, 0o755)
    name, bundle = os.path.basename(program), os.path.dirname(os.path.dirname(os.path.abspath(program)))
    (folder / "bin").mkdir()
    if os.path.exists(os.path.join(bundle, "libexec", name)):
        (folder / "libexec").mkdir()
        shutil.copy(os.path.join(bundle, "libexec", name), folder / "libexec")
        shutil.copytree(os.path.join(bundle, "lib"), folder / "lib")
    return shutil.copy(program, folder / "bin")


def binary():
    named = os.environ.get("GB_E2E_DAEMON") or os.environ.get("GPUBUFD")
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    for path in [named] if named else [os.path.join(root, p) for p in ("build/gpubufd", "gpubufd", "bin/gpubufd")]:
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError("no gpubufd; name it in GPUBUFD")


def library(name):
    """The module of that name. With GB_E2E_LACKING=skip a test or file that needs a missing library is skipped."""
    try:
        return importlib.import_module(name)
    except ImportError:
        if os.environ.get("GB_E2E_LACKING") != "skip":
            raise
        pytest.skip(f"{name} is not installed on this machine", allow_module_level=True)


def optional(name):
    """The module of that name, which no machine has to have: without it the test is skipped."""
    return pytest.importorskip(name, reason=f"{name} is not installed on this machine")


def torch_with_gpu():
    """torch, if it sees a GPU; else the test is skipped."""
    torch = optional("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no GPU")
    return torch


def accepted(listener):
    """The connections that come, until the listener is closed."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        yield connection


def asked(connection):
    """The head of the next request, with what came behind it; cut off where the connection ends."""
    text = b""
    while b"\r\n\r\n" not in text:
        piece = connection.recv(65536)
        if not piece:
            break
        text += piece
    return text


def hang_up(sock):
    """Wakes the threads that wait for it, too, and closes it."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the other end has closed it
    sock.close()


def until(what, condition, patience_s=PATIENCE_S, every_s=0.01):
    """The first true value of condition(). Fails with an error that names `what` after patience_s."""
    end = time.monotonic() + patience_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {patience_s} s: {what}"
        time.sleep(every_s)


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def timing(self):
        """Server-Timing as {name: milliseconds}."""
        parts = (self.headers.get("Server-Timing") or "").split(",")
        return {p.split(";dur=")[0].strip(): float(p.split(";dur=")[1]) for p in parts if ";dur=" in p}

    def expect(self, status):
        assert self.status == status, f"{self.status}, wanted {status}: {self.body[:400]!r}"
        return self

    def problem(self, status, code):
        """The problem document, compared with RFC 9457 and with the expected values."""
        assert self.status == status, f"{self.status}, wanted {status} {code}: {self.body[:400]!r}"
        assert self.headers.get("Content-Type") == "application/problem+json"
        p = self.json()
        assert (p["code"], p["status"], p["type"]) == (code, status, "urn:gpubuf:error:" + code), p
        assert p["title"] and p["detail"] and p["request_id"] and isinstance(p["retryable"], bool), p
        return p

    def __repr__(self):
        return f"<{self.status} {self.body[:200]!r}>"


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Client:
    """One keep-alive connection; connects counts how often it was opened."""

    def __init__(self, address, token=None):
        unix = isinstance(address, str)
        if unix:
            self.http = _UnixConnection(address)
        elif secure.EVERYWHERE:
            self.http = http.client.HTTPSConnection(*address, timeout=PATIENCE_S, context=secure.authority().context())
        else:
            self.http = http.client.HTTPConnection(*address, timeout=PATIENCE_S)
        self.token, self.connects = token, 0

    def start(self, method, target, body=None, headers=None):
        """Sends a request and returns the response; the caller reads its body."""
        headers = dict(headers or {})
        if self.token:
            headers["Authorization"] = "Bearer " + self.token
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if self.http.sock is None:
            self.connects += 1
            self.http.connect()
        try:
            self.http.request(method, target, body, headers)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused within the body: the reply is readable
        response = self.http.getresponse()
        RECORD.note(method, target, response.status, response.headers)
        return response

    def ask(self, method, target, body=None, headers=None):
        try:
            r = self.start(method, target, body, headers)
            return Reply(r.status, r.headers, r.read())
        except Exception:
            self.http.close()
            raise

    def close(self):
        self.http.close()


class Raw(Connected):
    """A socket that sends exactly the given bytes. continues counts the received 100 Continue."""

    def __init__(self, address, receive_bytes=None):
        super().__init__(address, receive_bytes)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\0" * 8)
        self.continues, self.asked = 0, []

    def send(self, data):
        self.asked += requests_in(bytes(data))
        self.sock.sendall(data)
        return self

    def request(self, method, target, headers=(), body=b""):
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *headers]
        return self.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    def put(self, target, length, *headers, expect=False):
        """The header of an upload, without its body."""
        extra = ["Expect: 100-continue"] if expect else []
        return self.request("PUT", target, [f"Content-Length: {length}", *extra, *headers])

    def _more(self):
        data = self.sock.recv(1 << 18)
        self.buffer += data
        return bool(data)

    def head(self):
        """(status, headers) of the next answer, where 100 counts as one; None if the connection ended before it."""
        while b"\r\n\r\n" not in self.buffer:
            if not self._more():
                assert not self.buffer, f"the connection ended within a header: {self.buffer!r}"
                return None
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        status, headers = int(lines[0].split()[1]), {k.title(): v.strip() for k,
                                                     v in (x.split(":", 1) for x in lines[1:])}
        if self.asked and status >= 200:
            RECORD.note(*self.asked.pop(0), status, headers)
        return status, headers

    def exactly(self, n):
        data = self.rest(n)
        assert len(data) == n, f"the connection ended {n - len(data)} bytes early"
        return data

    def rest(self, n):
        """At most n bytes; fewer if the connection ends before."""
        parts, have = [self.buffer[:n]], min(n, len(self.buffer))
        self.buffer = self.buffer[n:]
        while have < n:
            try:
                data = self.sock.recv(min(n - have, 1 << 18))
            except ConnectionResetError:
                break
            if not data:
                break
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def reply(self, head_only=False):
        """The next answer that is not 100; None if the connection ended instead."""
        head = self.head()
        while head and head[0] == 100:
            self.continues += 1
            head = self.head()
        if head is None:
            return None
        bodyless = head_only or head[0] in (204, 304)
        return Reply(head[0], head[1], b"" if bodyless else self.exactly(int(head[1]["Content-Length"])))

    def ended(self):
        """True if the daemon has closed without sending more."""
        return not self.buffer and not self._more()

    def closes(self):
        """True if the daemon closes, after any further bytes."""
        while self._more():
            pass
        return True

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)
        return self

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()


class Daemon:
    """A running gpubufd. state: a state folder that is kept; without it the daemon gets a temporary one."""

    def __init__(self, backend, *options, state=None, listen=("--listen", "127.0.0.1:0"), env=None, wait=True,
                 program=None, **popen):
        self.own = state is None
        self.state = state or tempfile.mkdtemp(prefix="gbe-")
        self.log_path = tempfile.mktemp(prefix="gbe-log-")
        if secure.EVERYWHERE and tuple(listen) == ("--listen", "127.0.0.1:0"):
            listen = secure.options()
        keep = () if "--keep" in options else ("--keep", "off")  # no process stays behind a daemon that was killed
        args = [*(program or [binary()]), "--state-dir", self.state, *listen, *keep, *options]
        if backend:
            args += ["--backend", backend]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("GPUBUFD") and k != "NOTIFY_SOCKET"}
        if wait and os.path.exists(os.path.join(self.state, "listen")):
            os.unlink(os.path.join(self.state, "listen"))  # left by a daemon that was killed
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(args, stdout=log, stderr=log, env={**clean, **COLLECTING, **(env or {})},
                                            **popen)
        self.clients = []
        self.addresses = self.wait_ready() if wait else []

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def wait_ready(self):
        path = os.path.join(self.state, "listen")
        until("the file listen", lambda: os.path.exists(path) or self.process.poll() is not None)
        assert self.process.poll() is None, self.log()
        with open(path) as f:
            return f.read().split()

    @property
    def tcp(self):
        host, port = next(a for a in self.addresses if not a.startswith("unix:")).removeprefix("tls:").rsplit(":", 1)
        return host.strip("[]"), int(port)

    @property
    def unix(self):
        return next(a[5:] for a in self.addresses if a.startswith("unix:"))

    def url(self, path):
        return "{}://{}:{}{}".format("https" if secure.EVERYWHERE else "http", *self.tcp, path)

    def client(self, token=None, unix=False):
        c = Client(self.unix if unix else self.tcp, token)
        self.clients.append(c)
        return c

    def raw(self, unix=False, **more):
        return Raw(self.unix if unix else self.tcp, **more)

    def ask(self, method, target, body=None, headers=None, token=None):
        c = Client(self.tcp, token)
        try:
            return c.ask(method, target, body, headers)
        finally:
            c.close()

    def get(self, target):
        return self.ask("GET", target).expect(200).json()

    def put(self, name, data, session="default", query="", headers=None):
        return self.ask("PUT", DATA.format(session, name) + query, data, headers)

    def data(self, name, session="default", query="", headers=None):
        return self.ask("GET", DATA.format(session, name) + query, None, headers)

    def meta(self, name, session="default"):
        return self.get(f"/v1/sessions/{session}/buffers/{name}")

    def stats(self):
        return self.get("/v1/stats")

    def settled(self):
        """The statistics, read once no operation runs and no slot is held."""

        def quiet():
            s = self.stats()
            busy = s["running"]["uploads"] + s["running"]["downloads"] + s["slots"]["total"] - s["slots"]["free"]
            return s if busy == 0 else None

        return until("no transfer runs, all slots are free", quiet)

    def contents(self):
        """All state that clients can change; equal values before and after mean that it is unchanged."""
        self.settled()
        sessions = self.get("/v1/sessions?limit=1000")["items"]
        buffers = [self.get(f"/v1/sessions/{s['name']}/buffers?limit=1000")["items"] for s in sessions]
        return sessions, buffers, self.stats()["buffers"]

    def open_uploads(self, session="default"):
        return [u for u in self.get(f"/v1/sessions/{session}/uploads")["items"] if u["state"] == "open"]

    def threads(self):
        """Their names."""
        names, folder = set(), f"/proc/{self.process.pid}/task"
        for t in os.listdir(folder):
            # it may have ended
            with contextlib.suppress(FileNotFoundError), open(f"{folder}/{t}/comm", encoding="ascii") as f:
                names.add(f.read().strip())
        return names

    def rss_anon(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"RssAnon:\s+(\d+) kB", f.read()).group(1)) * 1024

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self, status=0):
        """SIGTERM; the exit status and an empty sanitizer report are part of every test."""
        for c in self.clients:
            c.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.finished(status)

    def finished(self, status=0):
        try:
            assert self.process.wait(PATIENCE_S) == status, self.log()
            assert not SANITIZERS.search(self.log()), self.log()
            assert not REFUSED_CALL.search(self.log()), self.log()
            return self.log()
        finally:
            self.clean()

    def clean(self):
        if self.process.poll() is None:
            self.kill()
        if os.path.exists(self.log_path):
            self.last_log = self.log()
            collect_calls(self.last_log)
            os.unlink(self.log_path)
        if self.own:
            shutil.rmtree(self.state, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None and self.process.poll() is None:
            self.stop()
        else:
            self.clean()


def starting(make):
    """For a fixture: gives a function that starts daemons by make; stops them, and checks how they end, afterwards."""
    started = []

    def go(*options, **more):
        started.append(make(*options, **more))
        return started[-1]

    yield go
    for d in started:
        try:
            if d.process.poll() is None:
                d.stop()
        finally:
            d.clean()


def token(state, *args):
    """What "gpubufd token" prints for the daemon with that state folder, which need not run."""
    out = subprocess.run([binary(), "token", *args, "--state-dir", str(state)], capture_output=True, text=True,
                         timeout=PATIENCE_S)
    assert out.returncode == 0, out.stderr
    return out.stdout.strip()


def metric(client, name):
    """The number of one line of /metrics; 0 without one, as of a counter that has counted nothing."""
    lines = client.ask("GET", "/metrics").expect(200).body.decode().splitlines()
    return float(next((line for line in lines if line.startswith(name + " ")), "0").split()[-1])


def end(process):
    """Asks it to end, and ends it if it does not."""
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(PATIENCE_S)
