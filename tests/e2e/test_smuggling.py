"""No request reaches the daemon past a proxy: what its log says is what the proxy's log says, request by request, for
any bytes of a client. The proxies are nginx and HAProxy, over TCP and over the UNIX socket, with the strictest and the
laxest parsing."""
import re
from collections import Counter

import pytest

from harness import until
from proxies import program
from seam import DIRECT, OWN, PROXIED, Seam, key
from smuggling_table import table

pytestmark = [pytest.mark.once, pytest.mark.timeout(300)]
TABLE = table()
SHOWN = 40
LOGS_S = 20  # a proxy may log a request only after its client has closed
UNLOGGED = {"HTTP/0.9 in words"}  # libmicrohttpd refuses it before any callback
LOCAL = {"host"}  # the UNIX socket takes any host: no web page reaches it


@pytest.fixture(scope="module")
def seam(tmp_path_factory):
    for name in ("nginx", "haproxy"):
        program(name)
    s = Seam(str(tmp_path_factory.mktemp("smuggling")))
    yield s
    s.stop()


def names(counter):
    """By name alone: the daemon may refuse a head before it knows the method."""
    out = Counter()
    for k, n in counter.items():
        if k not in OWN:
            out[k.split(" ", 1)[1]] += n
    return +out


class Logs:
    """What both logs say since it was made."""

    def __init__(self, seam, road):
        self.seam, self.proxy = seam, seam.proxies[PROXIED[road][0]]
        self.ran, self.sent = Counter(), Counter()
        self.read()
        self.ran.clear()
        self.sent.clear()

    def read(self):
        self.ran.update(names(self.seam.requests()))
        rows, self.seam.read_to[self.proxy.name] = self.proxy.forwarded(self.seam.read_to[self.proxy.name])
        self.sent.update(names(Counter(key(row) for row in rows)))

    def faults(self):
        self.read()
        out = []
        for k in self.ran.keys() | self.sent.keys():
            ran, sent = self.ran[k], self.sent[k]
            own = re.search(r"\d{6}", k)
            x = self.seam.by_key.get(own.group() if own else "")
            # A client that closed without an answer may have ended the request before the proxy sent it.
            unseen = x and (x.case.name in UNLOGGED or not x.got)
            if ran > sent or ran < sent and not unseen:
                out.append(f"{x}: the daemon saw {ran} of {k!r}, the proxy forwarded {sent}; the client got "
                           f"{x and x.got[:80]!r}")
        return out


def fail_with(faults, count):
    if faults:
        pytest.fail(f"{len(faults)} of {count}:\n" + "\n".join(faults[:SHOWN]), pytrace=False)


@pytest.mark.parametrize("group", TABLE)
@pytest.mark.parametrize("road", PROXIED)
def test_the_daemon_ran_what_the_proxy_forwarded(seam, road, group):
    logs = Logs(seam, road)
    done = [seam.proxied(case, road) for case in TABLE[group]]
    try:
        until("both logs say the same", lambda: not logs.faults(), LOGS_S)
    except AssertionError:
        pass  # told below
    faults = [f"{x}: {fault}" for x in done for fault in x.faults] + logs.faults()
    fail_with(faults, len(done))


@pytest.mark.parametrize("group", TABLE)
def test_both_sockets_read_the_same(seam, group):
    """Also: each answer that a client gets is to a request that the log has, in a row that ends at the first one
    refused."""
    cases, faults, seen = TABLE[group], [], []
    for road in DIRECT:
        seam.requests()
        done = seam.all_unjudged([(case, road) for case in cases])
        ran = names(seam.requests())
        seen.append([(ran[x.tag], ran["canary-" + x.tag]) for x in done])
        for x, (first, behind) in zip(done, seen[-1]):
            if not x.ended:
                faults.append(f"{x}: the connection does not end")
            if behind > 1 or x.case.want == "all" and not behind:
                faults.append(f"{x}: the request behind ran {behind} times, the first one {first}; came "
                              f"{x.got[:120]!r}")
    for case, tcp, unix in zip(cases, *seen):
        if tcp != unix and group not in LOCAL:
            faults.append(f"{case.group}, {case.name}: {tcp} over TCP, {unix} over the UNIX socket")
    fail_with(faults, len(cases))
