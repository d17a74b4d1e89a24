"""gpubuf, the command line, as a child process; on pipes and on a terminal."""
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

from harness import PATIENCE_S, SANITIZERS, binary

DONE, FAILED, USAGE, UNREACHABLE, NOT_FOUND = range(5)
SOME_HOSTS, NO_HOST = 6, 7
INTERRUPTED, TERMINATED, UNREAD = 128 + signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGPIPE


def program():
    """The program is beside the daemon."""
    path = os.path.join(os.path.dirname(binary()), "gpubuf")
    assert os.access(path, os.X_OK), f"{path} is not built"
    return path


def environment(**more):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GPUBUF_") and k != "COLUMNS"}
    return {**clean, "GPUBUF_CONFIG": "none", **more}


class Said:
    def __init__(self, args, status, out, err):
        self.args, self.status, self.raw, self.err = args, status, out, err
        assert not SANITIZERS.search(err), err

    @property
    def out(self):
        return self.raw.decode()

    def expect(self, status=DONE):
        assert self.status == status, (f"gpubuf {' '.join(self.args)}: {self.status}, wanted "
                                       f"{status}\n{self.raw[-400:]!r}\n{self.err}")
        return self

    def json(self):
        return json.loads(self.raw)

    def table(self):
        """Rows as {title: cell}; cells contain only single spaces."""
        lines = [line for line in self.out.splitlines() if line]
        cut = [[c.strip() for c in line.split("  ") if c.strip()] for line in lines]
        return [dict(zip(cut[0], row)) for row in cut[1:]]


class Cli:
    """gpubuf with the environment of one daemon and session."""

    def __init__(self, url=None, session=None, **env):
        self.env = environment(**({"GPUBUF_URL": url} if url else {}),
                               **({"GPUBUF_SESSION": session} if session else {}), **env)

    def start(self, *args, env=None, **more):
        more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        return subprocess.Popen([program(), *map(str, args)], env={**self.env, **(env or {})}, **more)

    def __call__(self, *args, input=None, cwd=None):
        p = self.start(*args, stdin=subprocess.DEVNULL if input is None else subprocess.PIPE, cwd=cwd)
        try:
            out, err = p.communicate(input, PATIENCE_S)
        except BaseException:
            p.kill()
            p.wait(PATIENCE_S)
            raise
        return Said([str(a) for a in args], p.returncode, out, err.decode())

    def json(self, *args, **more):
        return self("--json", *args, **more).expect().json()


class Terminal:
    """gpubuf on its own terminal, by default with all three streams."""

    def __init__(self, cli, *args, rows=40, columns=120, **streams):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave, self.text = slave, b""
        streams = {"stdin": slave, "stdout": slave, "stderr": slave, **streams}

        def own():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        self.process = cli.start(*args, preexec_fn=own, **streams)

    def read(self, until=None):
        """Reads until the text has appeared, or until the process has ended."""
        end = time.monotonic() + PATIENCE_S
        while until is None or until not in self.text:
            assert time.monotonic() < end, f"{until!r} did not come: {self.text[-600:]!r}"
            if select.select([self.master], [], [], 0.05)[0]:
                self.text += os.read(self.master, 65536)
            elif self.process.poll() is not None and not select.select([self.master], [], [], 0)[0]:
                assert until is None, f"it ended without {until!r}: {self.text[-600:]!r}"
                break
        return self.text

    def type(self, text):
        os.write(self.master, text)

    def end(self, status):
        self.read()
        assert self.process.wait(PATIENCE_S) == status, self.text[-600:]
        after = termios.tcgetattr(self.slave)
        os.close(self.slave)
        os.close(self.master)
        assert not SANITIZERS.search(self.text.decode(errors="replace"))
        return after


def interrupt(process, number=signal.SIGINT):
    process.send_signal(number)
    process.wait(PATIENCE_S)  # before its standard input is closed, because that would end it, too
    out, err = process.communicate(timeout=PATIENCE_S)
    return Said(["interrupted"], process.returncode, out or b"", (err or b"").decode())
