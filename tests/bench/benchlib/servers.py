"""The measured servers: gpubufd, the ceilings and the alternatives.

Each is started on a free loopback port from a temporary folder and ended when the case has ended."""
import ctypes
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request

GIB = 1 << 30
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PR_SET_PDEATHSIG = 1
BUFFERS = "/v1/sessions/default/buffers"


class Missing(Exception):
    """A side that cannot be measured on this machine, and why."""


class Settings:
    """The paths of the programs, and the options of the run."""

    def __init__(self, args):
        self.bin = args.bin
        self.build = os.path.dirname(os.path.dirname(args.bin))
        self.daemon = args.daemon
        self.before = args.before
        self.daemon_args = args.daemon_arg
        self.device = args.device
        self.backend = args.backend or args.device
        self.rounds = args.rounds
        self.other_rounds = args.other_rounds
        self.python = args.python
        self.work = tempfile.mkdtemp(prefix="gpubuf-bench-", dir=args.tmp)
        shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else args.tmp
        self.shm = tempfile.mkdtemp(prefix="gpubuf-bench-", dir=shm)
        self.data = tempfile.mkdtemp(prefix="gpubuf-bench-", dir=args.data or args.tmp)

    def program(self, name):
        path = os.path.join(self.bin, name)
        if not os.access(path, os.X_OK):
            raise Missing(f"no program {path} (make bench-programs)")
        return path

    def certificate(self):
        """The files of the run's certificate and its key."""
        paths = [os.path.join(self.work, name) for name in ("cert.pem", "key.pem")]
        if not os.path.exists(paths[0]):
            subprocess.run([self.program("gb-bench-raw"), "--make-cert", self.work], check=True)
        return paths

    def remove(self):
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.rmtree(self.shm, ignore_errors=True)
        shutil.rmtree(self.data, ignore_errors=True)


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def system_program(name, package, unpacked=""):
    """unpacked: a folder where `./bootstrap deps` may have put it."""
    path = shutil.which(name, path=":".join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin",
                                             os.path.join(unpacked, "usr", "bin")]))
    if not path:
        raise Missing(f"no {name} (Debian package {package})")
    return path


class Server:
    """One server process, with its children. Subclasses define `start`, and the targets that they can serve:
    put_target, get_target and poll_target return arguments for the load generator."""

    name = ""

    def __init__(self, settings, case):
        self.settings = settings
        self.case = case
        self.port = 0
        self.tls_port = 0
        self.process = None
        self.folder = tempfile.mkdtemp(prefix=self.name.replace(" ", "-") + "-",
                                       dir=settings.data if case.on_disk else settings.work)
        self.log_path = os.path.join(self.folder, "log")

    def spawn(self, command, **kwargs):
        log = open(self.log_path, "ab")
        kwargs.setdefault("stdout", log)
        self.process = subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent,
                                        cwd=self.folder, **kwargs)
        log.close()

    def spawn_and_read_port(self, command):
        self.spawn(command, stdout=subprocess.PIPE)
        line = self.process.stdout.readline().split()
        if len(line) != 2 or line[0] != b"PORT":
            raise Missing(f"{self.name} did not start: {self.log()}")
        self.port = int(line[1])

    def wait_until(self, ready, what, seconds=30):
        deadline = time.monotonic() + seconds
        while not ready():
            if self.process.poll() is not None:
                raise Missing(f"{self.name} ended with {self.process.returncode}: {self.log()}")
            if time.monotonic() > deadline:
                raise Missing(f"{self.name}: {what} did not happen in {seconds} s: {self.log()}")
            time.sleep(0.01)

    def accepts(self):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def ask(self, path, body):
        """Sends a POST; returns the reply's header."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            reply.read()
            return reply.headers

    def copy_ms(self, path, body):
        """The median of the copy times that the server reports."""
        times = []
        for _ in range(7):
            parts = dict(part.strip().split(";dur=") for part in self.ask(path, body)["Server-Timing"].split(","))
            times.append(float(parts["copy"]))
        return statistics.median(times)

    def log(self):
        try:
            with open(self.log_path, errors="replace") as f:
                return f.read()[-400:].strip().replace("\n", " | ")
        except OSError:
            return ""

    def pids(self):
        """The process and its children (a worker of a worker is not looked for)."""
        pid = self.process.pid
        found = [pid]
        try:
            with open(f"/proc/{pid}/task/{pid}/children") as f:
                found += [int(p) for p in f.read().split()]
        except OSError:
            pass
        return found

    def memory_bytes(self):
        """Resident memory of the process."""
        with open(f"/proc/{self.process.pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def cpu_fine_s(self):
        """CPU time of the process alone, in nanoseconds; Linux derives the id of its CPU clock from the process id."""
        return time.clock_gettime(~self.process.pid << 3 | 2)

    def cpu_s(self):
        total = 0
        for pid in self.pids():
            try:
                with open(f"/proc/{pid}/stat") as f:
                    fields = f.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            total += int(fields[11]) + int(fields[12])
        return total / TICKS_PER_S

    def prepare_get(self, load):
        """Puts the bodies that a GET case reads where this server finds them."""
        load(self.put_target() + ["--connections", self.case.connections, "--bytes", self.case.bytes, "--requests", 1])

    def puts_target(self):
        """Small bodies on many connections, by the engine of the polls."""
        return ["puts"] + self.put_target()[1:]

    def socket(self):
        return os.path.join(self.folder, "socket")

    def where(self):
        """The load generator's arguments for the address of this server."""
        if self.case.tls:
            return ["--port", self.tls_port, "--tls"]
        return ["--socket", self.socket()] if self.case.unix else ["--port", self.port]

    def plain(self, words):
        """A target of this server over TLS, without it."""
        at = words.index("--tls")
        return words[:at - 2] + ["--port", self.port] + words[at + 1:]

    def tls_args(self):
        """The server's arguments for its certificate, if the case is of TLS."""
        if not self.case.tls:
            return []
        cert, key = self.settings.certificate()
        return ["--tls-cert", cert, "--tls-key", key]

    def clean(self):
        """Runs after each turn: releases memory that another side needs."""

    def end(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def stop(self):
        self.end()
        if self.process and self.process.stdout:
            self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Daemon(Server):
    name = "gpubufd"
    option = "daemon"
    own_args = ()

    def program(self):
        return self.settings.daemon

    def start(self):
        if not os.access(self.program(), os.X_OK):
            raise Missing(f"no daemon at {self.program()} (--{self.option})")
        os.mkdir(self.state())
        self.begin()

    def state(self):
        return os.path.join(self.folder, "state")

    def backend(self):
        return self.settings.backend

    def begin(self):
        listen = os.path.join(self.state(), "listen")
        self.spawn([self.program(), "--listen", "127.0.0.1:0", "--socket", self.socket() if self.case.unix else "none",
                    *(["--tls-listen", "127.0.0.1:0"] if self.case.tls else []), *self.tls_args(), "--state-dir",
                    self.state(), "--backend", self.backend(), "--log-level", "warning", *self.case.daemon_args,
                    *self.own_args, *self.settings.daemon_args])
        self.wait_until(lambda: os.path.exists(listen) and self.read_port(listen), "the file `listen`", 60)

    def restart(self):
        """Another process over the same state."""
        self.end()
        self.begin()

    def read_port(self, listen):
        with open(listen) as f:
            for line in f:
                address = line.strip()
                if address.startswith("127.0.0.1:"):
                    self.port = int(address.rsplit(":", 1)[1])
                if address.startswith("tls:"):
                    self.tls_port = int(address.rsplit(":", 1)[1])
        return self.port and (self.tls_port or not self.case.tls)

    def stats_bytes(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/stats", timeout=10) as reply:
            return len(reply.read())

    def put_target(self):
        return ["put"] + self.where() + ["--path", BUFFERS + "/bench-%d/data"]

    def get_target(self):
        return ["get"] + self.where() + ["--path", BUFFERS + "/bench-%d/data"]

    def poll_target(self):
        return ["poll"] + self.where() + ["--path", "/v1/stats"]

    def poll_same_target(self):
        return self.poll_target() + ["--etag"]

    def poll_buffer_target(self, tail):
        return ["poll", "--port", self.port, "--path", BUFFERS + "/bench-0" + tail, "--etag"]

    def pairs_target(self):
        return ["pairs", "--port", self.port, "--path", BUFFERS]

    def make_buffer(self, name, size):
        self.ask(BUFFERS, {"name": name, "bytes": size})

    def action_target(self, name, action, **body):
        return ["post", "--port", self.port, "--path", f"{BUFFERS}/{name}/{action}", "--json", json.dumps(body)]


class Raw(Server):
    name = "raw"

    def words(self):
        return []

    def start(self):
        command = [self.settings.program("gb-bench-raw"), "--bytes", str(self.case.bytes), "--threads",
                   str(self.case.connections)] + self.words()
        if self.settings.device == "cuda":
            command.append("--cuda")
        if self.case.unix:
            command += ["--socket", self.socket()]
        self.spawn_and_read_port(command + self.tls_args())
        self.tls_port = self.port

    def put_target(self):
        return ["put"] + self.where()

    def get_target(self):
        return ["get"] + self.where()

    def prepare_get(self, load):
        pass


class Before(Daemon):
    """An older build."""

    name = "before"
    option = "before"

    def program(self):
        return self.settings.before


class DaemonUnsampled(Daemon):
    """The same daemon without a history."""

    name = "unsampled"
    own_args = ("--sample-interval", "0")


class Fan(Server):
    """A loop of send() over all listeners, at the case's rate, of as many bytes as the daemon's events have."""

    name = "raw"

    def start(self):
        self.spawn_and_read_port([self.settings.program("gb-bench-fan"), "--rate", str(self.case.rate), "--bytes",
                                  str(self.case.event_bytes)])


class Mhd(Server):
    """Started after the daemon: its answer has as many bytes as the daemon's statistics."""

    name = "libmicrohttpd"
    answer_bytes = 1024

    def start(self):
        self.spawn_and_read_port([self.settings.program("gb-bench-mhd"), "--bytes", str(self.answer_bytes)])

    def poll_target(self):
        return ["poll", "--port", self.port]


class RawRecorded(Raw):
    """The raw server that computes the checksum and commits a record before it answers, as the daemon does."""

    name = "raw-recorded"

    def words(self):
        return ["--record", os.path.join(self.folder, "database")]
