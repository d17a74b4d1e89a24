"""SIGTERM: running requests finish, within a bounded time."""
import http.client
import os
import re
import signal
import socket

from conform import Session
from harness import DATA, SLOT, SMALL_SLOTS, Client, Raw, until
from values import payload

BODY = payload(20 * SLOT)


def half(d, name="x", expect=True):
    r = d.raw().put(DATA.format("default", name) + "?dtype=uint8", len(BODY), expect=expect)
    if expect:
        assert r.head()[0] == 100
    return r.send(BODY[:5 * SLOT])


def turned_away(d):
    """A new connection is refused, closed or answered with 503; it does not hang."""
    c = Client(d.tcp)
    try:
        return c.ask("GET", "/readyz").status == 503
    except TimeoutError:
        raise AssertionError("a connection made while stopping was left without an answer") from None
    except (OSError, http.client.HTTPException):
        return True


def test_running_transfers_finish(start):
    d = start(*SMALL_SLOTS)
    d.put("old", BODY).expect(201)
    ups = [half(d, "a", True), half(d, "b", False)]
    down = Raw(d.tcp, receive_bytes=4096).request("GET", DATA.format("default", "old"))
    assert down.head()[0] == 200
    ready = d.client()
    ready.ask("GET", "/readyz").expect(200)
    d.process.send_signal(signal.SIGTERM)
    until("new ones are turned away", lambda: turned_away(d))
    assert all(turned_away(d) for _ in range(5))
    for r in ups:
        assert r.send(BODY[5 * SLOT:]).reply().status == 201
        r.close()
    assert down.exactly(len(BODY)) == BODY
    down.close()
    log = d.finished()
    assert "stopping" in log


def test_readiness_goes_off_first(start):
    """A connection that is within a request when the signal comes still gets 503 from /readyz."""
    d = start(*SMALL_SLOTS)
    up = half(d)
    asks = [d.raw().send(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n") for _ in range(2)]
    d.process.send_signal(signal.SIGTERM)
    until("it is stopping", lambda: "stopping" in d.log())
    answers = []
    for r in asks:
        try:
            answers.append(r.send(b"\r\n").reply())
        except OSError:
            answers.append(None)
    assert all(a is None or a.status == 503 for a in answers), answers
    assert up.send(BODY[5 * SLOT:]).reply().status == 201
    up.close()
    d.finished()


def test_a_stalled_client_does_not_hold_up_the_end(start):
    d = start(*SMALL_SLOTS, "--stop-timeout", "1")
    r, s = half(d), half(d, "y", False)
    t = Raw(d.tcp, receive_bytes=4096).request("GET", "/v1")
    d.process.send_signal(signal.SIGTERM)
    d.finished()
    for x in (r, s, t):
        x.close()


def test_a_second_signal_ends_at_once(start):
    d = start(*SMALL_SLOTS, "--stop-timeout", "3600")
    r = half(d)
    d.process.send_signal(signal.SIGTERM)
    until("it is stopping", lambda: "stopping" in d.log())
    d.process.send_signal(signal.SIGTERM)
    d.finished()
    r.close()


def test_a_further_signal_does_not_wait_for_the_device(start):
    d = start("--stop-timeout", "0", spec="fault:place_fill@1=stall/600000:host:discrete")
    s = Session(d)
    s.put("x", b"12345678")
    s.ask("POST", "buffers/x/fill", {"pattern": 1}, headers={"Prefer": "respond-async"}).expect(202)

    def ended():
        d.process.send_signal(signal.SIGTERM)
        return d.process.poll() is not None
    until("it has ended", ended, every_s=0.2)
    assert d.process.returncode == 70 and "left to its driver" in d.log()
    again = start("--stop-timeout", "0", spec="host:discrete", state=d.state)
    assert Session(again).meta("x")["state"] == "lost"


def pending(process, number):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as f:
        return int(re.search(r"^ShdPnd:\s*(\w+)$", f.read(), re.M).group(1), 16) >> (number - 1) & 1


def test_tokens_are_not_asked_for_at_the_end(start):
    """SIGHUP does not stop the daemon, even while the device is blocked."""
    d = start("--stop-timeout", "0", spec="fault:place_fill@1=stall/600000:host:discrete")
    s = Session(d)
    s.put("x", b"12345678")
    s.ask("POST", "buffers/x/fill", {"pattern": 1}, headers={"Prefer": "respond-async"}).expect(202)
    d.process.send_signal(signal.SIGTERM)
    until("the device is waited for", lambda: not os.path.exists(os.path.join(d.state, "listen")))
    d.process.send_signal(signal.SIGHUP)
    until("it has been seen", lambda: not pending(d.process, signal.SIGHUP))
    assert d.process.poll() is None
    d.process.send_signal(signal.SIGTERM)
    assert d.process.wait(60) == 70 and "a further signal" in d.log()


MEANT = {"SIGTERM", "SIGINT", "SIGHUP"}
ORDINARY = {"SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGIOT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGSEGV", "SIGXCPU",
            "SIGSYS", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU"}


def test_signals_that_mean_nothing(start):
    d = start()
    for number in [*set(signal.valid_signals()) - {signal.Signals[name] for name in MEANT | ORDINARY}]:
        d.process.send_signal(number)
        assert d.ask("GET", "/livez").status == 200, number
    assert d.process.poll() is None


def test_who_waits_is_told_at_the_end(start):
    d = start("--stop-timeout", "1", spec="fault:place_fill@1=stall/5000:host:discrete")
    s = Session(d)
    s.put("x", b"12345678")
    body = b'{"pattern":1}'
    waiting = d.raw().request("POST", s.base + "/buffers/x/fill", [f"Content-Length: {len(body)}"], body)
    until("it is under way", lambda: s.get("/v1/stats")["running"]["writes"] == 1)
    d.process.send_signal(signal.SIGTERM)
    waiting.reply().problem(503, "timed_out")
    d.finished()


def test_what_nobody_waits_for_is_bounded(start):
    s = Session(start(spec="fault:place_fill@1=stall/8000:host:discrete"))
    s.put("x", b"12345678")
    body, replies = b'{"pattern":1,"bytes":4}', []
    with s.daemon.raw() as r:
        for _ in range(22):  # pipelined, so that all are asked while the first one stalls
            for _ in range(50):
                r.request("POST", s.base + "/buffers/x/fill", [f"Content-Length: {len(body)}", "Prefer: respond-async"],
                          body)
            replies += [r.reply() for _ in range(50)]
    refused = [r for r in replies if r.status == 503]
    assert refused and all(r.problem(503, "saturated") for r in refused)
    until("all are done", lambda: s.get("/v1/stats")["running"]["writes"] == 0)


def test_idle_connections_do_not_hold_up_the_end(start):
    d = start("--stop-timeout", "3600")
    idle = [d.client() for _ in range(20)]
    for c in idle:
        c.ask("GET", "/v1").expect(200)
    silent = [socket.create_connection(d.tcp) for _ in range(5)]
    d.process.send_signal(signal.SIGINT)
    d.finished()
    for s in silent:
        s.close()


def test_what_was_acknowledged_is_stored(start, tmp_path):
    d = start(state=str(tmp_path))
    for i in range(50):
        d.ask("POST", "/v1/sessions", {"name": f"s{i}"}).expect(201)
    d.stop()
    d = start(state=str(tmp_path))
    assert {s["name"] for s in d.get("/v1/sessions?limit=1000")["items"]} == {"default", *(f"s{i}" for i in range(50))}
