"""Repetition in the Python client: what the daemon says may succeed later, and transfers over connections that
break."""
import socket
import threading

import numpy as np
import pytest
from pyclient import client_of, gpubuf
from gpubuf import _retry

from harness import PATIENCE_S, accepted, hang_up
from values import payload

BIG = 13 << 20


class Breaking:
    """A proxy in front of a daemon. up, down: bytes to the daemon and from it after which a connection breaks, one for
    each connection to come; None: it does not break."""

    def __init__(self, address):
        self.address, self.up, self.down, self.connections = address, [], [], 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        for client in accepted(self.listener):
            self.connections += 1
            daemon = socket.socket(socket.AF_UNIX)
            daemon.settimeout(PATIENCE_S)
            daemon.connect(self.address)
            for source, target, limits in ((client, daemon, self.up), (daemon, client, self.down)):
                limit = limits.pop(0) if limits else None
                threading.Thread(target=self._pump, args=(source, target, limit), daemon=True).start()

    @staticmethod
    def _pump(source, target, left):
        try:
            while data := source.recv(65536 if left is None else min(65536, left)):
                target.sendall(data)
                left = None if left is None else left - len(data)
                if left == 0:
                    break
        except OSError:
            pass
        for end in (source, target):
            hang_up(end)

    def close(self):
        hang_up(self.listener)


@pytest.fixture
def proxy(daemon):
    p = Breaking(daemon.unix)
    yield p
    p.close()


@pytest.fixture
def slept(monkeypatch):
    """The pauses, which take no time."""
    pauses = []
    monkeypatch.setattr(_retry, "sleep", pauses.append)
    return pauses


@pytest.fixture
def c(proxy, session, slept):
    with gpubuf.Client(proxy.url, session=session, retries=3) as client:
        yield client


def test_an_upload_goes_on(c, proxy):
    data = np.frombuffer(payload(BIG), np.uint8)
    told = []
    proxy.up = [5 << 20, 5 << 20, None]
    made = c.put("x", data, progress=lambda *n: told.append(n))
    assert (made["generation"], made["bytes"], made["road"]) == (1, BIG, "host") and made["etag"].startswith('"')
    assert c.get("x", raw=True) == data.tobytes() and proxy.connections == 3 and told[-1] == (BIG, BIG)


def test_the_upload_of_a_table_goes_on(c, proxy):
    arrays = {f"t{i}": np.full(BIG // 8 + i, i, np.uint8) for i in range(8)}
    proxy.up = [5 << 20, 5 << 20, None]
    made, = c.put_state_dict(arrays, table="m", metadata={"format": "pt"})
    assert made["dtype"] == "tensors" and made["generation"] == 1 and proxy.connections == 3
    assert all((c.get("m", tensor=name) == a).all() for name, a in arrays.items())


def test_an_upload_whose_answer_is_lost(c, proxy):
    data = np.frombuffer(payload(BIG), np.uint8)
    c.about()
    c._transport.drop()
    proxy.down = [700, None]  # the answers to the begin and a part of the one to the whole
    made = c.put("x", data)
    assert made["generation"] == 1 and c.get("x", raw=True) == data.tobytes()


def test_an_upload_gives_up(proxy, session, slept, daemon):
    with gpubuf.Client(proxy.url, session=session, retries=2) as c:
        proxy.up = [5 << 20]

        def gone(done, total):
            proxy.close()  # no further connection is taken

        with pytest.raises(gpubuf.Unreachable):
            c.put("x", np.zeros(BIG, np.uint8), progress=gone)
        assert slept
    with client_of(daemon, session) as c:
        assert c.list() == []


@pytest.mark.parametrize("raw", [False, True])
def test_a_download_goes_on(c, proxy, raw):
    data = np.frombuffer(payload(BIG), np.uint8)
    c.put("x", data)
    c._transport.drop()
    proxy.down, before = [6 << 20, 5 << 20, None], proxy.connections
    got = c.get("x", raw=raw)
    assert (got if raw else got.tobytes()) == data.tobytes() and proxy.connections >= before + 3


def test_a_download_of_what_was_replaced_begins_anew(c, proxy, daemon):
    first, second = np.zeros(BIG, np.uint8), np.ones(BIG, np.uint8)
    c.put("x", first)
    c._transport.drop()
    proxy.down = [6 << 20, None]
    with client_of(daemon, c.session) as other:
        put = threading.Event()

        def replace(done, total):
            if not put.is_set() and done >= 4 << 20:
                put.set()
                other.put("x", second)

        got = c.get("x", progress=replace)
        assert got.min() == got.max() == 1, "no mixture"


def test_parts_go_on(c, proxy):
    data = np.frombuffer(payload(70 << 20), np.uint8)
    proxy.up = [None, 9 << 20, 9 << 20]
    assert c.put("x", data, connections=3)["generation"] == 1
    proxy.down = [None, 3 << 20, 3 << 20]
    assert (c.get("x", connections=3) == data).all()


def test_what_was_carried_out_is_not_repeated(c, proxy):
    """The answer is lost; the repetition has the same key and gets the first answer."""
    c.create("x", bytes=8)
    for ask in (lambda: c.create("y", bytes=8), lambda: c.fill("x", 1), lambda: c.delete("y")):
        c._transport.drop()
        proxy.down = [20, None]
        ask()
    assert c.info("x")["generation"] == 2 and "y" not in c


def test_a_conditional_upload_is_not_repeated(c, proxy):
    """Its answer is lost, and it may have been carried out: the repetition would be refused for what the first one
    did."""
    proxy.down = [20, None]
    with pytest.raises((gpubuf.Unreachable, gpubuf.BrokenAnswer)):
        c.put("x", np.zeros(5), if_none_match="*")
    assert c.info("x")["generation"] == 1


def test_without_retries(proxy, session, slept):
    with gpubuf.Client(proxy.url, session=session) as c:
        proxy.up = [5 << 20]
        with pytest.raises(gpubuf.Unreachable):
            c.put("x", np.zeros(BIG, np.uint8))
        assert slept == [] and c.list() == []


# --- errors that name a time ------------------------------------------------------------------------------------------


class Answers:
    """A transport's ask that raises what it is given."""

    def __init__(self, *errors):
        self.errors, self.keys = list(errors), []

    def __call__(self, method, target, headers=None, *_):
        self.keys.append((headers or {}).get("Idempotency-Key"))
        if self.errors:
            raise self.errors.pop(0)
        raise gpubuf.BufferNotFound("at last")


def asked(c, monkeypatch, *errors):
    answers = Answers(*errors)
    monkeypatch.setattr(c._transport, "ask", answers)
    return answers


def test_the_daemons_time_is_kept(c, slept, monkeypatch):
    answers = asked(c, monkeypatch, gpubuf.TooManyRequests("rate", retry_after=7), gpubuf.Saturated("full"),
                    gpubuf.Draining("ends"))
    with pytest.raises(gpubuf.BufferNotFound):
        c.fill("x", 1)
    assert (slept[0] == 7 and 0 < slept[1] <= 0.2 < slept[2] * 2 <= 0.8 and len(set(answers.keys)) == 1
            and answers.keys[0])


@pytest.mark.parametrize("error", [gpubuf.QuotaExceeded("q", problem={"retryable": False}), gpubuf.TimedOut("t"),
                                   gpubuf.InvalidName("n"), gpubuf.TlsFailed("t"), gpubuf.Closed("c")],
                         ids=lambda e: type(e).__name__)
def test_what_is_not_repeated(c, slept, monkeypatch, error):
    asked(c, monkeypatch, error)
    with pytest.raises(type(error)):
        c.info("x")
    assert slept == []


def test_it_gives_up(c, slept, monkeypatch):
    answers = asked(c, monkeypatch, *[gpubuf.Saturated("full") for _ in range(9)])
    with pytest.raises(gpubuf.Saturated):
        c.info("x")
    assert len(answers.keys) == 4 and len(slept) == 3
    for wrong in (-1, 1.5, True, "3"):
        with pytest.raises(gpubuf.BadArgument, match="retries is a whole number"):
            gpubuf.Client("http://127.0.0.1:1", retries=wrong)
