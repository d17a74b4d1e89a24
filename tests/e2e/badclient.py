"""A client that misbehaves, the same way in every run: a seed determines its actions."""
import os
import random
import threading
import time

from harness import DATA, Client, until

ENDS = ("close", "reset") * 4 + ("half-close",)  # the daemon may notice that up to a second later


class Bad:
    """Sends parts of requests to one daemon and then breaks the connection."""

    def __init__(self, daemon, seed):
        self.daemon, self.random, self.open = daemon, random.Random(seed), []

    def raw(self, **more):
        return self.daemon.raw(unix=self.random.random() < 0.25, **more)

    def leave(self, r, how=None):
        """Ends the connection: closes it, shuts down its sending side and waits for the answer, or resets it."""
        how = how or self.random.choice(ENDS)
        if how == "reset":
            return r.reset()
        try:
            if how == "half-close":
                r.half_close()
                r.closes()
        except OSError:
            pass
        r.close()

    def send_part(self, data, cut, how=None):
        """Sends data up to byte cut, in pieces, then disconnects."""
        r = self.raw()
        at = 0
        try:
            while at < cut:
                step = min(cut - at, self.random.choice((1, 7, 100, 4096, 1 << 20)) if cut - at < 10000 else 1 << 18)
                r.send(data[at:at + step])
                at += step
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused within the body
        self.leave(r, how)

    def read_part(self, target, n, how="reset"):
        """Reads the first n bytes of an answer, then disconnects."""
        r = self.raw(receive_bytes=4096)
        r.request("GET", target, ["Connection: close"])
        got = r.rest(n)
        self.leave(r, how)
        return got

    def stay(self, data, **more):
        """Sends data and then nothing more, until let_go is called."""
        r = self.raw(**more).send(data)
        self.open.append(r)
        return r

    def let_go(self):
        for r in self.open:
            self.leave(r, self.random.choice(("close", "reset")))
        self.open = []


def request(method, target, body=b"", *headers, length=None):
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "Content-Length: "
             f"{len(body) if length is None else length}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunked(target, body, sizes, *headers):
    """The bytes of an upload in chunks; their sizes cycle through `sizes`."""
    out, at, i = [], 0, 0
    while at < len(body):
        n = min(sizes[i % len(sizes)], len(body) - at)
        out.append(b"%x\r\n" % n + body[at:at + n] + b"\r\n")
        at, i = at + n, i + 1
    head = "\r\n".join([f"PUT {target} HTTP/1.1", "Host: localhost", "Transfer-Encoding: chunked", *headers]).encode()
    return head + b"\r\n\r\n" + b"".join(out) + b"0\r\n\r\n"


class Footprint:
    """The daemon's resources: descriptors, slots, operations, quotas, memory of pools. A broken client must leave none
    of them held."""

    def __init__(self, daemon, session):
        self.daemon, self.session = daemon, session
        # the ends of earlier connections may still be pending
        samples = [self.now() for _ in range(5) if not time.sleep(0.05)]
        self.before = {**samples[-1], "descriptors": min(x["descriptors"] for x in samples)}

    def now(self):
        s = self.daemon.stats()
        return {"descriptors": len(os.listdir(f"/proc/{self.daemon.process.pid}/fd")), "free slots": s["slots"]["free"],
                "running": s["running"], "buffers": s["buffers"], "used": [p["used_bytes"] for p in s["pools"]
                                                                           if "session" not in p]}

    def open(self):
        """The daemon's descriptors; a socket is shown with its line in the system's table of connections."""
        folder = f"/proc/{self.daemon.process.pid}/"
        table = {}
        for kind in ("tcp", "tcp6", "unix"):
            with open(folder + "net/" + kind, encoding="ascii") as f:
                table.update({line.split()[9 if kind != "unix" else 6]: line.strip() for line in f.readlines()[1:]})
        links = [os.readlink(folder + "fd/" + fd) for fd in os.listdir(folder + "fd")]
        return [table.get(link[8:-1], link) if link.startswith("socket:[") else link for link in links]

    def same(self, *but):
        """Waits until all resources are as before, except the named ones."""

        def differs():
            now = self.now()
            return {k: (v, now[k]) for k, v in self.before.items()
                    if k not in but and (now[k] > v if k == "descriptors" else now[k] != v)}

        left = {}
        try:
            until("all is given back", lambda: not (left.update(left.clear() or differs()) or left))
        except AssertionError:
            raise AssertionError(f"was, is: {left}; open: {self.open()}") from None
        self.no_quota_is_held()

    def no_quota_is_held(self):
        """A quota with room for one more buffer of 10 bytes admits that buffer and no other."""
        path = "/v1/sessions/" + self.session
        had = self.daemon.get(path)["quota"]
        there = self.daemon.get(path + "/stats")["buffers"]
        tight = {"bytes": there["bytes"] + 10, "buffers": there["count"] + 1}
        self.daemon.ask("PATCH", path, {"quota": tight}).expect(200)
        self.daemon.put("probe", b"0123456789", self.session).expect(201)
        self.daemon.put("probe2", b"", self.session).problem(507, "quota_exceeded")
        self.daemon.ask("DELETE", path + "/buffers/probe").expect(204)
        self.daemon.ask("PATCH", path, {"quota": {k: had[k] for k in tight}}).expect(200)


class Others:
    """Ordinary clients beside the bad one, each on one persistent connection: small requests and whole tensors."""

    def __init__(self, daemon, session, body):
        self.daemon, self.body, self.target = daemon, body, DATA.format(session, "others")
        self.done, self.failed, self.polls, self.rounds = threading.Event(), [], 0, 0
        self.threads = [threading.Thread(target=self.run, args=(f,)) for f in (self.poll, self.transfer)]

    def run(self, turn):
        c = Client(self.daemon.tcp)
        try:
            while not self.done.wait(0.01):
                turn(c)
            assert c.connects == 1, f"the connection was lost {c.connects - 1} times"
        except Exception as e:  # reported by the test's own thread
            self.failed.append(e)
        finally:
            c.close()

    def poll(self, c):
        assert c.ask("GET", "/v1/stats").status == 200
        self.polls += 1

    def transfer(self, c):
        assert c.ask("PUT", self.target, self.body).status in (200, 201)
        assert c.ask("GET", self.target).body == self.body
        self.rounds += 1

    def more(self):
        """Waits until each was served twice more."""
        polls, rounds = self.polls + 2, self.rounds + 2
        until("others are served", lambda: self.failed or (self.polls >= polls and self.rounds >= rounds))

    def __enter__(self):
        self.daemon.ask("PUT", self.target, self.body)
        for t in self.threads:
            t.start()
        self.more()
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.more()
        finally:
            self.done.set()
            for t in self.threads:
                t.join()
        if kind is None:
            assert not self.failed, self.failed
