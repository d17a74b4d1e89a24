"""Records the daemons' answers in a run; tests compare all of them with the interface's document."""
import json
import re

LINE = re.compile(rb"^(GET|HEAD|POST|PUT|PATCH|DELETE) (\S+) HTTP/1\.[01]\r?$", re.M)
# Headers of every answer, or of the connection; operations do not describe them.
# Strict-Transport-Security: of every reply over TLS where it is asked for. Server: of the proxies that tests start.
COMMON = {"Date", "Strict-Transport-Security", "Server", "Content-Length", "Content-Type", "Connection",
          "Transfer-Encoding", "Cache-Control", "X-Content-Type-Options", "Cross-Origin-Resource-Policy",
          # the last three of registered sessions
          "Idempotency-Replayed", "Ratelimit", "Ratelimit-Policy", "X-Request-Id", "Gpubuf-Epoch", "Gpubuf-Fleet",
          # with --cors-origin
          "Gpubuf-Replica", "Vary", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers"}


# Headers in replies to reads: they prevent content sniffing, and reading by pages of other origins. A refusal by
# libmicrohttpd itself is no problem document.
EVERY = {"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin"}
OWN = (400, 413, 414, 431)


class Record:
    def __init__(self):
        self.seen = {}  # (method, path, status) -> [names of headers, media types]

    def note(self, method, target, status, headers):
        """headers: anything with keys(); names in any case."""
        path = re.sub(r"^https?://[^/]+", "", target).split("?")[0]
        names, kinds = self.seen.setdefault((method.upper(), path, int(status)), (set(), set()))
        names.update(name.title() for name in headers.keys())
        said = {name.title(): value for name, value in headers.items()}
        if method.upper() in ("GET", "HEAD") and int(status) >= 200 and not (int(status) in OWN
                                                                             and said.get("Content-Type")
                                                                             != "application/problem+json"):
            assert {name: said.get(name) for name in EVERY} == EVERY, (method, target, status, said)
            assert said.get("Cache-Control"), (method, target, status, said)
        # A reply without a body has the headers of another reply: of a 200, of a GET.
        if int(status) != 304 and (method.upper() != "HEAD" or int(status) >= 400):
            kinds.update(value.split(";")[0].strip() for name, value in headers.items() if name.title()
                         == "Content-Type")

    def save(self, path):
        with open(path, "w", encoding="utf-8") as f:
            json.dump([[*key, sorted(names), sorted(kinds)] for key, (names, kinds) in self.seen.items()], f)

    def load(self, path):
        with open(path, encoding="utf-8") as f:
            for *key, names, kinds in json.load(f):
                into = self.seen.setdefault(tuple(key), (set(), set()))
                into[0].update(names)
                into[1].update(kinds)

    def by_operation(self, interface):
        """{(method, route): {status: (names, media types)}}; HEAD counts as its GET unless it is described."""
        found = {}
        for (method, path, status), (names, kinds) in self.seen.items():
            route = interface.route(method, path)
            if route is None and method == "HEAD":
                method, route = "GET", interface.route("GET", path)
            if route is not None:
                into = found.setdefault((method, route), {}).setdefault(status, (set(), set()))
                into[0].update(names)
                into[1].update(kinds)
        return found


RECORD = Record()


def requests_in(data):
    """(method, target) of each request line in the bytes to send."""
    return [(m.decode(), t.decode("latin-1")) for m, t in LINE.findall(data)] if b" HTTP/1." in data else []
