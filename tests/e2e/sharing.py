"""Clients that map buffers over the UNIX socket: in the test's own process, and as processes that can be killed.

As a program: sharing.py SOCKET SESSION BUFFER MODE maps, prints the answer as a line of JSON, and then carries out
commands from its standard input: "digest" prints the bytes' SHA-256, "write OFFSET HEX" writes, "end" ends the
lease."""
import array
import hashlib
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import traceback

from connected import PATIENCE_S, Connected, line_of
from record import RECORD


class Answer:
    def __init__(self, status, headers, body, fds):
        self.status, self.headers, self.body, self.fds = status, headers, body, fds

    def json(self):
        return json.loads(self.body)


class Local(Connected):
    """One connection to the UNIX socket: requests, answers, and the descriptors that come with them."""

    def __init__(self, path, token=None):
        super().__init__(path)
        self.token = token

    def send(self, method, target, body=None, headers=(), version="1.1"):
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"{method} {target} HTTP/{version}", "Host: localhost", f"Content-Length: {len(data)}", *headers]
        if self.token:
            lines.append("Authorization: Bearer " + self.token)
        if isinstance(body, dict):
            lines.append("Content-Type: application/json")
        self.sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + data)

    def _more(self, fds):
        data, ancillary, flags, _ = self.sock.recvmsg(1 << 18, socket.CMSG_SPACE(8 * array.array("i").itemsize),
                                                      socket.MSG_CMSG_CLOEXEC)
        for level, kind, raw in ancillary:
            assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
            got = array.array("i")
            got.frombytes(raw[:len(raw) - len(raw) % got.itemsize])
            fds.extend(got)
        assert not flags & socket.MSG_CTRUNC
        self.buffer += data
        return bool(data)

    def reply(self, method="GET"):
        """The next final answer. Descriptors come only with 103."""
        fds = []
        while True:
            while b"\r\n\r\n" not in self.buffer:
                if not self._more(fds):
                    raise ConnectionError(f"the connection ended: {self.buffer!r}")
            head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
            lines = head.decode("latin-1").split("\r\n")
            status = int(lines[0].split()[1])
            if status >= 200:
                break
            assert head in (b"HTTP/1.1 103 Early Hints", b"HTTP/1.1 100 Continue"), head
            assert bool(fds) == (status == 103)
        headers = {k.title(): v.strip() for k, v in (x.split(":", 1) for x in lines[1:])}
        size = 0 if status in (204, 304) or method == "HEAD" else int(headers["Content-Length"])
        parts, have = [self.buffer], len(self.buffer)
        self.buffer = b""
        while have < size and self._more(fds):
            parts.append(self.buffer)
            have, self.buffer = have + len(self.buffer), b""
        whole = b"".join(parts)
        self.buffer = whole[size:]
        return Answer(status, headers, whole[:size], fds)

    def ask(self, method, target, body=None, headers=(), **more):
        self.send(method, target, body, headers, **more)
        answer = self.reply(method)
        RECORD.note(method, target, answer.status, answer.headers)
        return answer

    def map(self, buffer, session="default", headers=(), **fields):
        return self.ask("POST", f"/v1/sessions/{session}/buffers/{buffer}/map", fields, headers)

    def end(self, lease):
        return self.ask("DELETE", f"/v1/leases/{lease}")


class Memory:
    """Maps the bytes of a descriptor by mmap."""

    def __init__(self, answer):
        self.info = answer.json()
        assert (answer.status == 200 and self.info["way"] == "memfd" and len(answer.fds) == self.info["fds"]
                == 1), answer.body
        self.writable = self.info["mode"] == "write"
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if self.writable else 0)
        self.whole = mmap.mmap(answer.fds[0], self.info["map_bytes"], mmap.MAP_SHARED, prot)
        os.close(answer.fds[0])
        at = self.info["offset"]
        self.view = memoryview(self.whole)[at:at + self.info["bytes"]]

    def bytes(self):
        return bytes(self.view)

    def close(self):
        self.view.release()
        self.whole.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Program:
    """Runs a file of these as a program: it prints its first answer, then carries out commands, a line each."""

    def __init__(self, file, *arguments):
        self.process = subprocess.Popen([sys.executable, file, *map(str, arguments)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        line = line_of(self.process.stdout)
        assert line, "the process ended"
        self.info = json.loads(line)

    def say(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return line_of(self.process.stdout).strip()

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.process.stdin.close()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


class Process(Program):
    """This file as a program."""

    def __init__(self, daemon, session, buffer, mode="read"):
        super().__init__(__file__, daemon.unix, session, buffer, mode)


def spawn(work, *arguments):
    """A child that works until it is killed; if it ends by itself, its error is shown."""
    pid = os.fork()
    if pid == 0:
        try:
            work(*arguments)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(1)
    return pid


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL, "it had died of itself"


def digest(data):
    return hashlib.sha256(data).hexdigest()


def obey(view):
    """Carries out the commands on the bytes, a line each; yields the words of other lines to the caller."""
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "digest":
            print(digest(view), flush=True)
        elif word == "write":
            data = bytes.fromhex(rest[1])
            view[int(rest[0]):int(rest[0]) + len(data)] = data
            print("written", flush=True)
        else:
            yield word


def main(path, session, buffer, mode):
    local = Local(path)
    answer = local.map(buffer, session, mode=mode)
    memory = Memory(answer)
    print(answer.body.decode().strip(), flush=True)
    for word in obey(memory.view):
        if word == "end":
            print(local.end(memory.info["lease"]).status, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
