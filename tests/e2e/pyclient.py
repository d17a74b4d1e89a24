"""The Python package of the source tree, and a server that grants mappings without a daemon."""
import base64
import json
import os
import socket
import sys
import threading

from harness import accepted, hang_up

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src", "python"))
import gpubuf  # noqa: E402

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(gpubuf.__file__)))
ROOT = os.path.dirname(os.path.dirname(SOURCE))


def client_of(daemon, session="default", unix=False, **more):
    where = {"socket": daemon.unix} if unix else {"url": daemon.url(""), "socket": daemon.unix}
    return gpubuf.Client(session=session, **where, **more)


class Granter:
    """Answers every map request over a UNIX socket with a given reply, in a thread; records the requests and the ended
    connections."""

    def __init__(self, folder, data=bytes(range(24)), dtype="uint8", shape=None, mode=None, before=64, **fields):
        self.path = os.path.join(str(folder), f"{id(self):x}.sock")
        self.requests, self.ended, self.deleted = [], threading.Event(), []
        self.data, self.before, self.answers = data, before, []
        self.memory = os.memfd_create("granter")
        self.map_bytes = max(4096, -(-(before + len(data)) // 4096) * 4096)
        os.ftruncate(self.memory, self.map_bytes)
        os.pwrite(self.memory, data, before)
        self.document = {
            "lease": "17", "session": "default", "buffer": "x", "way": "memfd",
            "passed_over": [{"way": "vmm", "reason": "the host backend has none"}], "bytes": len(data),
            "map_bytes": self.map_bytes, "offset": before, "dtype": dtype,
            "shape": list(shape if shape is not None else (len(data),)), "generation": 3, "etag": '"1.3.x"',
            "device": {"index": 0, "uuid": "HOST-1"}, "kind": "shared", "fds": 1, "handle": None, "event": None,
            **fields,
        }
        self.mode, self.fds = mode, 1
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.connections = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        for c in accepted(self.listener):
            self.connections.append(c)
            threading.Thread(target=self._one, args=(c,), daemon=True).start()

    def _one(self, c):
        try:
            self._serve(c)
        except OSError:
            pass  # the client has closed
        c.close()
        self.ended.set()

    def _serve(self, c):
        buffer = b""
        while True:
            data = c.recv(65536)
            if not data:
                return
            buffer += data
            while b"\r\n\r\n" in buffer:
                head, rest = buffer.split(b"\r\n\r\n", 1)
                lines = head.decode().split("\r\n")
                fields = {k.lower(): v.strip() for k, v in (x.split(":", 1) for x in lines[1:])}
                n = int(fields["content-length"])
                if len(rest) < n:
                    break
                buffer = rest[n:]
                self.requests.append((lines[0], fields, rest[:n]))
                self._answer(c, lines[0].split()[0], rest[:n])

    def _answer(self, c, method, body):
        if method == "DELETE":
            self.deleted.append(self.requests[-1][0])
            c.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
            return
        if self.answers:
            for piece in self.answers.pop(0):
                c.sendall(piece)
            return
        mode = self.mode or json.loads(body)["mode"]
        again = f"/proc/self/fd/{self.memory}"
        fds = [os.open(again, os.O_RDWR if mode == "write" else os.O_RDONLY) for _ in range(self.fds)]
        if fds:
            socket.send_fds(c, [b"HTTP/1.1 103 Early Hints\r\n\r\n"], fds)
        for fd in fds:
            os.close(fd)
        text = json.dumps({"mode": mode, **self.document}).encode()
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text) + text)

    def bytes(self):
        return os.pread(self.memory, len(self.data), self.before)

    def hang_up(self):
        for c in self.connections:
            hang_up(c)

    def close(self):
        self.listener.close()
        self.hang_up()
        os.close(self.memory)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def at_once(n, work):
    """work(i) in n threads; raises the first error when all have ended."""
    wrong = []

    def one(i):
        try:
            work(i)
        except BaseException as e:
            wrong.append(e)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if wrong:
        raise wrong[0]


def handle(byte):
    return base64.b64encode(bytes([byte]) * 64).decode()
