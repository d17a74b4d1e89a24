"""Many connections that wait for data, read by one thread."""
import resource
import select
import socket
import threading
import time

from . import measure

PATIENCE_S = 30


def raise_nofile(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise measure.TurnFailed(f"{count} descriptors are needed, the hard limit is {hard}")
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


class Listeners:
    """`count` connections that sent the same request. Progress is the number of times that `mark` occurs in the
    replies."""

    def __init__(self, port, count, request, mark):
        raise_nofile(count + 200)
        self.mark, self.seen, self.bytes = mark, 0, 0
        self.closed = 0
        self.rounds = []  # the times at which the number of marks reached the number of connections, twice that, ...
        self.stopping = False
        self.epoll = select.epoll()
        self.socks = {}
        for _ in range(count):
            sock = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
            self.socks[sock.fileno()] = sock
            sock.sendall(request)
        self.thread = threading.Thread(target=self.read, daemon=True)

    def heads(self, expected):
        """The first bytes of each answer."""
        for sock in self.socks.values():
            head = sock.recv(4096)
            if not head.startswith(expected):
                raise measure.TurnFailed(f"a listener is answered with {head[:80]!r}")

    def begin(self):
        for fd, sock in self.socks.items():
            sock.setblocking(False)
            self.epoll.register(fd, select.EPOLLIN)
        self.thread.start()

    def read(self):
        while not self.stopping:
            for fd, _ in self.epoll.poll(0.1, 512):
                try:
                    data = self.socks[fd].recv(1 << 16)
                except BlockingIOError:
                    continue
                if not data:
                    self.closed += 1
                    self.epoll.unregister(fd)
                self.seen += data.count(self.mark)
                self.bytes += len(data)
            while self.seen >= len(self.socks) * (len(self.rounds) + 1):
                self.rounds.append(time.monotonic())

    def wait(self, seen):
        """Waits until that many marks were seen; returns whether they were."""
        end = time.monotonic() + PATIENCE_S
        while self.seen < seen and time.monotonic() < end:
            time.sleep(0.001)
        return self.seen >= seen

    def close(self):
        self.stopping = True
        if self.thread.is_alive():
            self.thread.join()
        for sock in self.socks.values():
            sock.close()
        self.epoll.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
