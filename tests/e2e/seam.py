"""Exchanges with a daemon, directly and through proxies, each with unique names, and their outcomes."""
import itertools
import os
import random
import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from framing_table import BODY, CANARY, ROUTES, TAG, UPLOAD
from harness import Client, Daemon, until
from proxies import Proxy
from wire import Malformed, Wire, replies

DIRECT = ("tcp", "unix")
PROXIED = {"nginx": ("nginx", 0), "nginx-lax": ("nginx", 1), "haproxy": ("haproxy", 0), "haproxy-lax": ("haproxy", 1)}
THREADS = 8
END_S = 6  # time for a connection to end after a request with no known end
OWN = ("GET /livez", "PUT /v1/sessions/default/buffers/barrier/data")  # of this file
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
BAD = {400, 405, 411, 413, 414, 417, 422, 431, 501, 505}  # 422: the body is larger than the buffer
# libmicrohttpd ends the connection before any callback
SILENT = {"blank before", "tabs", "method alone", "nothing but blanks"}
HUGE = ("16 digits", "2^63")  # chunks whose data includes the following request; data of a broken body is kept
# the path has no query
LOGGED = re.compile(r'(?:request|refused|failed): \d+ after .* method=(\S+) .*?path=("?)(.*?)\2(?: code=\S+)?$')


class Exchange:
    """case: the request that is sent over the road; pieces: the positions at which its bytes are cut."""

    def __init__(self, case, tag, road):
        self.case, self.tag, self.road, self.upload = case, tag, road, None
        self.got, self.ended, self.faults = b"", False, []

    def data(self):
        data = self.case.data.replace(TAG, self.tag.encode())
        return data.replace(UPLOAD, self.upload.encode()) if self.upload else data

    def __str__(self):
        c = self.case
        return f"{c.group}, {c.name}, {c.route} [{self.tag} over {self.road}]"


def cut(data, at):
    at = [0, *sorted(set(at)), len(data)]
    return [data[a:b] for a, b in zip(at, at[1:])]


def at_random(seed, data):
    """One piece, or up to four, cut anywhere; long ones mostly near the beginning."""
    r = random.Random(seed)
    return [r.randrange(1, min(len(data), r.choice((300, len(data))))) for _ in range(r.choice((0, 1, 2, 3)))]


class Seam:
    def __init__(self, folder):
        self.tags, self.by_key, self.at, self.local = itertools.count(), {}, 0, threading.local()
        self.daemon = Daemon("host", "--log-level", "debug", "--http-threads", "1", "--idle-timeout", "600",
                             "--max-uploads", "100000", "--slots-bytes", "8M", "--slot-bytes", "256K")
        self.proxies, self.clients = {}, []
        try:
            for name in ("nginx", "haproxy"):
                self.proxies[name] = Proxy(name, os.path.join(folder, name), self.daemon)
        except BaseException:
            self.stop(check=False)
            raise
        self.read_to = {name: 0 for name in self.proxies}
        self.descriptors = self.open_descriptors()

    def stop(self, check=True):
        for p in self.proxies.values():
            p.stop()
        for c in self.clients:
            c.close()
        if check:
            self.daemon.stop()
        self.daemon.clean()

    def open_descriptors(self):
        return len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))

    def address(self, road):
        if road in PROXIED:
            name, way = PROXIED[road]
            return self.proxies[name].ways[way]
        return self.daemon.unix if road == "unix" else self.daemon.tcp

    def ask(self, *request):
        """Uses this thread's own connection: when the answer arrives, the daemon has handled all that it had read
        before."""
        if not hasattr(self.local, "client"):
            self.local.client = Client(self.daemon.unix)
            self.clients.append(self.local.client)
        return self.local.client.ask(*request)

    def exchange(self, case, road):
        x = Exchange(case, f"{next(self.tags):06d}", road)
        if case.route == "patch":
            r = self.ask("PUT", f"/v1/sessions/default/buffers/up{x.tag}/data?dtype=uint8&shape=1000", b"",
                         {"Upload-Complete": "?0"}).expect(201)
            x.upload = r.headers["Location"].rsplit("/", 1)[1]
            self.by_key[x.upload] = x
        self.by_key[x.tag] = x
        return x

    def behind(self, case):
        """A write whose answer shows that earlier writes are stored, too."""
        if case.route in ("put", "patch"):
            self.ask("PUT", "/v1/sessions/default/buffers/barrier/data", b"x")
        else:
            self.ask("GET", "/livez")

    # --- directly -----------------------------------------------------------------------------------------------------

    def direct(self, case, road, at=()):
        x = self.exchange(case, road)
        data = x.data()
        with Wire(self.address(road)) as w:
            w.feed(cut(data, [a for a in at if a < len(data)]))
            w.read()
            for _ in range(2):  # iterations of the daemon's loop
                if not w.ended:
                    self.behind(case)
                    w.read()
            if case.want == "serve":
                w.read_on(END_S)
            w.half_close()
            w.read_on(END_S)
            x.got, x.ended = w.got, w.ended
            w.close(reset=w.ended)
        return x

    def all_unjudged(self, jobs):
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(lambda job: self.direct(*job), jobs))

    def all_direct(self, jobs):
        """jobs: (case, road, cuts)."""
        done = self.all_unjudged(jobs)
        ran = self.requests()
        for x in done:
            x.faults += self.judge(x, ran)
        return done

    def judge(self, x, ran):
        """The fault of a direct exchange, or None."""
        canary = ran["DELETE canary-" + x.tag]
        if not x.ended:
            return [f"the connection does not end; came: {x.got[:200]!r}, the request behind it ran {canary} times"]
        try:
            answers = replies(x.got)
        except Malformed as e:
            return [f"no well-formed answer: {e}"]
        codes = [a[0] for a in answers]
        route = ROUTES[x.case.route]
        bad = BAD | (route.served if not route.takes else set())
        refused = len(codes) == 1 and canary == 0 and answers[0][1].get("Connection") == "close" and (
            codes[0] in bad or x.case.want == "either" and codes[0] >= 400)
        served = canary == 1 and len(codes) == 2 and codes[1] == 404 and b"canary-" in answers[1][2] and (
            codes[0] in route.served or x.case.want == "either" and codes[0] >= 400)
        closed = len(codes) == 1 and canary == 0 and codes[0] in route.served
        # Bytes that libmicrohttpd has read behind a chunked body cannot be given back to it, so the reply announces
        # that the connection ends.
        told = closed and b"chunked" in x.case.data.lower() and answers[0][1].get("Connection") == "close"
        silent = x.case.name in SILENT and not x.got and canary == 0
        good = {"refuse": refused or silent, "serve": served or told, "either": refused or served or closed
                or silent}[x.case.want]
        return [] if good else [f"wanted: {x.case.want}; came: {codes} and {'the end' if x.ended else 'no end'}, the "
                                f"request behind it ran {canary} times"
                                + ("" if codes else f"; bytes {x.got[:100]!r}")]

    # --- through a proxy ----------------------------------------------------------------------------------------------

    def innocent(self, x, n):
        """Another client of the proxy, on its own connection. The proxy reuses its connection to the daemon."""
        name = f"innocent{n}-{x.tag}"
        ask = (f"GET /v1/sessions/default/buffers/{name} HTTP/1.1\r\nHost: localhost\r\nX-Secret: "
               f"secret-{x.tag}\r\nConnection: close\r\n\r\n")
        with Wire(self.address(x.road)) as w:
            w.sock.sendall(ask.encode())
            if not w.read_on(END_S):
                x.faults.append(f"innocent {n} got no whole answer: {w.got[:200]!r}")
                return
        try:
            answers = replies(w.got)
        except Malformed as e:
            x.faults.append(f"innocent {n}: {e}")
            return
        if [a[0] for a in answers] != [404] or f"/{name}".encode() not in answers[0][2]:
            x.faults.append(f"innocent {n} got another's answer: {w.got[:400]!r}")

    def proxied(self, case, road, at=()):
        x = self.exchange(case, road)
        data = x.data()
        w = Wire(self.address(road))
        w.feed(cut(data, [a for a in at if a < len(data)]))
        for n in (1, 2):
            self.innocent(x, n)
            self.behind(case)
            w.read()
        if case.want == "serve":
            w.read_on(END_S, lambda: b"canary-" in w.got)
        w.close(reset=int(x.tag) % 2 == 0)
        self.innocent(x, 3)
        x.got, x.ended = w.got, w.ended
        if b"secret-" in x.got or b"innocent" in x.got:
            x.faults.append(f"what is another's came back: {x.got!r}")
        return x

    def all_proxied(self, road, jobs):
        done = [self.proxied(case, road, at) for case, at in jobs]
        proxy, ran, sent = self.proxies[PROXIED[road][0]], Counter(), Counter()

        def more():
            """Requests that the daemon ran but the proxy did not send. The proxy may log a request only after the
            client has closed."""
            ran.update(self.requests())
            rows, self.read_to[proxy.name] = proxy.forwarded(self.read_to[proxy.name])
            sent.update(key(row) for row in rows)
            spare = sent - ran
            left = Counter({k: n for k, n in (ran - sent).items() if k not in OWN and not k.startswith("PUT up")})
            # a head that libmicrohttpd refused itself: the daemon knows only the target
            for k in [k for k in left if k.startswith("unknown ")]:
                left[k] -= sum(spare[f"{m} {k.removeprefix('unknown ')}"] for m in METHODS)
            return +left

        try:
            until("the proxy knows of every request", lambda: not more(), END_S)
        except AssertionError:
            for k, n in more().items():
                own = re.search(r"[0-9a-f]{8}-\d+|\d{6}", k)
                x = self.by_key.get(own.group() if own else "", done[-1])
                x.faults.append(f"the daemon ran {n} of {k!r} more than the proxy sent; the client got {x.got[:200]!r}")
        for x in done:
            for n in (1, 2, 3):
                if ran[f"GET innocent{n}-{x.tag}"] != 1:
                    x.faults.append(f"innocent {n} ran {ran[f'GET innocent{n}-{x.tag}']} times")
        return done

    # --- the daemon's actions -----------------------------------------------------------------------------------------

    def requests(self):
        """Counter of the requests that it has answered since the last call. The log lacks only requests that are still
        running: a thread of its own writes it in order, so it has all that were answered before one of this test's when
        it has that one."""
        mark = f"mark-{next(self.tags)}"

        def written():
            with open(self.daemon.log_path, "rb") as f:
                f.seek(self.at)
                data = f.read()
            return data[:data.rfind(b"\n") + 1] if mark.encode() + b" " in data else None

        self.ask("GET", "/livez", None, {"X-Request-Id": mark})
        whole = until("the log has the request", written)
        self.at += len(whole)
        found = [LOGGED.search(row) for row in whole.decode("latin-1").split("\n")]
        return Counter(key(f"{m.group(1)} {m.group(3)}") for m in found if m)

    def stored(self, done):
        """Adds a fault if the stored bytes are not the body."""
        for x in done:
            if x.case.route == "put":
                r = self.ask("GET", f"/v1/sessions/default/buffers/{x.tag}/data")
                if r.status != 404 and r.body != BODY:
                    x.faults.append(f"stored: {r.body!r}")
            if x.upload:
                r = self.ask("HEAD", f"/v1/sessions/default/uploads/{x.upload}")
                if r.headers.get("Upload-Offset") not in ("0", str(len(BODY))) and x.case.name not in HUGE:
                    x.faults.append(f"the upload has {r.headers.get('Upload-Offset')} bytes")
                self.ask("DELETE", f"/v1/sessions/default/uploads/{x.upload}")
        self.requests()


def key(row):
    """The method, and the part that identifies a request: a name with a tag, or the whole target."""
    method, _, target = row.partition(" ")
    method = method if method in METHODS else "unknown"  # as in the daemon's log
    named = re.search(r"(?:canary-|innocent\d-|up)?(?<![0-9])\d{6}(?![0-9])|[0-9a-f]{8}-\d+(?![0-9])", target)
    return f"{method} {named.group() if named else target.partition('?')[0]}"


assert CANARY.count(TAG) == 1
