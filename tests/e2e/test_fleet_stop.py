"""Sessions whose owner stops when it may not be the owner any more: on_partition is "stop"."""
import signal
import threading

import pytest

from fleet import REJOIN_S, fleet, session, within  # noqa: F401
from harness import DATA, until
from ownership import certain, heal, hide, is_set_aside, leave, ledger, shared, superseded, uncertain  # noqa: F401

pytestmark = [pytest.mark.once, pytest.mark.timeout(120)]


def make(fleet, session):  # noqa: F811
    """Of two at b the one stops, and the other serves on."""
    fleet.make("b", session, on_partition="stop")
    fleet.make("b", session + ".serve")
    fleet.ask("b", "PUT", DATA.format(session, "x"), b"abc").expect(201)


def refuses(fleet, session):  # noqa: F811
    """Any request for it is refused, and none for others."""
    at = "/v1/sessions/" + session
    for method, target, body in [
            ("GET", at, None), ("GET", at + "/buffers", None), ("GET", DATA.format(session, "x"), None),
            ("PUT", DATA.format(session, "x"), b"new"), ("PATCH", DATA.format(session, "x") + "?offset=0", b"n"),
            ("PATCH", at, {"labels": {"k": "v"}}), ("DELETE", at, None), ("DELETE", at + "/buffers/x", None),
            ("POST", at + "/buffers", {"name": "y", "dtype": "uint8", "shape": [4]}),
            ("POST", at + "/uploads", {"buffer": "m", "dtype": "uint8", "shape": [8]})]:
        uncertain(fleet.ask("b", method, target, body, {"Content-Type": "application/json"} if isinstance(body, dict)
                            else None))
    head = fleet.ask("b", "HEAD", DATA.format(session, "x")).expect(503)
    assert head.headers["Retry-After"] == "1"
    fleet.ask("b", "GET", f"/v1/sessions/{session}.serve").expect(200)
    for other in (session + ".serve", "default"):
        assert fleet.ask("b", "PUT", DATA.format(other, "x"), b"abc").status in (200, 201)


def stops_before_its_lease_ends(fleet, session):  # noqa: F811
    """Whenever the lease was seen to be gone, the node refuses."""
    while True:
        gone = "b" not in fleet.etcd.read("alive")
        reply = fleet.ask("b", "GET", "/v1/sessions/" + session)
        if gone:
            uncertain(reply)
            return
        assert reply.status == 200 or uncertain(reply)


@pytest.mark.parametrize("mode", ["hole", "cut"])
def test_an_owner_that_is_cut_off(fleet, ledger, session, mode):  # noqa: F811
    make(fleet, session)
    plain, knowing = (ledger.writer("b", session, buffer, says) for buffer,
                      says in (("plain", False), ("knowing", True)))
    plain.goes_on()
    knowing.goes_on()
    fleet.to_etcd["b"].set(mode)
    stops_before_its_lease_ends(fleet, session)
    moment = next(ledger.moments)
    refuses(fleet, session)
    assert not [w for w in ledger.acknowledged(session) if w.sent > moment]
    fleet.to_etcd["b"].set("pass")
    fleet.joined(patience_s=within(REJOIN_S))
    for w in (plain, knowing):
        w.goes_on()
        assert w.codes() == {"owner_uncertain"}, w.codes()
    assert fleet.ask("b", "GET", DATA.format(session, "x")).expect(200).body == b"abc"
    assert fleet.registered_at("b")[session] == 1 == fleet.records()[session]["epoch"]
    assert fleet.superseded_at("b") == {} or session not in str(fleet.superseded_at("b"))


def test_a_takeover_from_one_that_stops(fleet, ledger, session):  # noqa: F811
    """No write that was sent after the takeover is acknowledged by the former owner, whether its client knows epochs or
    not."""
    make(fleet, session)
    writers = [ledger.writer("b", session, buffer, says) for buffer, says in (("plain", False), ("knowing", True))]
    for w in writers:
        w.goes_on()
    hide(fleet, "b")
    ledger.take("a", session)
    # The one that knows of the other epoch may have told.
    assert (fleet.ask("b", "PUT", DATA.format(session, "x"), b"new").status in (409, 503)
            and fleet.ask("b", "GET", "/v1/sessions/" + session).status in (409, 503))
    other = ledger.writer("a", session, "other", True)
    other.goes_on()
    heal(fleet)
    is_set_aside(fleet, "b", session)
    other.goes_on()
    for w in [*writers, other]:
        w.end()
    assert not ledger.both(session), ledger.both(session)


def test_an_owner_that_sleeps(fleet, ledger, session):  # noqa: F811
    """Acceptance 7. What was sent to it meanwhile is the first that it reads when it wakes."""
    make(fleet, session)
    writers = [ledger.writer("b", session, buffer, says) for buffer, says in (("plain", False), ("knowing", True))]
    for w in writers:
        w.goes_on()
    begun = fleet["b"].raw()
    begun.put(DATA.format(session, "x"), 6).send(b"ABC")
    fleet["b"].process.send_signal(signal.SIGSTOP)
    try:
        until("the lease has run out", lambda: "b" not in fleet.etcd.read("alive"))
        ledger.take("a", session)
        other = ledger.writer("a", session, "other", True)
        other.goes_on()
        waiting = [fleet["b"].raw() for _ in range(3)]
        for raw, headers in zip(waiting, [(), ("Gpubuf-Epoch: 1",), ("Gpubuf-Epoch: 2",)]):
            raw.put(DATA.format(session, "x"), 3, *headers).send(b"new")
        begun.send(b"DEF")
    finally:
        fleet["b"].process.send_signal(signal.SIGCONT)
    for raw in [*waiting, begun]:
        reply = raw.reply()
        assert reply is None or reply.status in (307, 404, 409, 410, 503), reply
    fleet.joined()
    is_set_aside(fleet, "b", session)
    other.goes_on()
    for w in [*writers, other]:
        w.end()
    assert not ledger.both(session), ledger.both(session)
    assert fleet.ask("b", "GET", "/v1/sessions/" + session).expect(307).headers["Gpubuf-Owner"] == "a"


def test_a_change_that_ends_when_the_owner_is_uncertain(fleet, ledger, session):  # noqa: F811
    """It may have been carried out, but is not acknowledged."""
    make(fleet, session)
    raw = fleet["b"].raw()
    raw.put(DATA.format(session, "x"), 6).send(b"ABC")
    hide(fleet, "b")
    raw.send(b"DEF")
    uncertain(raw.reply())
    heal(fleet)
    assert fleet.ask("b", "GET", DATA.format(session, "x")).expect(200).body in (b"abc", b"ABCDEF")
    assert fleet.registered_at("b")[session] == 1


def test_an_owner_that_starts_without_its_directory(fleet, ledger, session):  # noqa: F811
    """It does not know what has become of the session."""
    make(fleet, session)
    fleet.kill("b")
    fleet.to_etcd["b"].set("hole")
    fleet.start("b")
    refuses(fleet, session)
    heal(fleet)
    fleet.ask("b", "GET", "/v1/sessions/" + session).expect(200)
    assert fleet.registered_at("b")[session] == 1


def test_an_owner_that_starts_after_a_takeover_never_serves(fleet, ledger, session):  # noqa: F811
    make(fleet, session)
    leave(fleet, "b")
    ledger.take("a", session)
    fleet.launch("b")
    fleet.ready("b")

    def led_on():
        reply = fleet.ask("b", "PUT", DATA.format(session, "x"), b"new")
        assert reply.status in (307, 409, 503), reply
        return reply.status == 307

    until("it leads to the new owner", led_on)
    is_set_aside(fleet, "b", session)


def test_a_directory_that_sleeps(fleet, ledger, session):  # noqa: F811
    """All leases may have run out when it continues. No session changes its owner."""
    for name in "abc":
        fleet.make(name, f"{session}.{name}", on_partition="stop")
        ledger.put(name, f"{session}.{name}", b"abc").expect(201)
    etcd = fleet.etcd.members[0].process
    etcd.send_signal(signal.SIGSTOP)
    try:
        for name in "abc":
            at = f"/v1/sessions/{session}.{name}"
            until("it does not know", lambda name=name, at=at: fleet.ask(name, "GET", at).status == 503)
            uncertain(fleet.ask(name, "GET", at))
    finally:
        etcd.send_signal(signal.SIGCONT)
    fleet.joined()
    for name in "abc":
        reply = certain(fleet, name, DATA.format(f"{session}.{name}", "x")).expect(200)
        assert (reply.body, reply.headers["Gpubuf-Epoch"]) == (b"abc", "1")


def test_a_client_that_waits(fleet, ledger, session):  # noqa: F811
    """A request that waits for a change of the session is answered in the end, and not with what another has now."""
    make(fleet, session)
    at = "/v1/sessions/" + session
    etag, answers = fleet.ask("b", "GET", at).headers["ETag"], []

    def wait():
        answers.append(fleet.ask("b", "GET", at, None, {"If-None-Match": etag, "Prefer": "wait=30"}))

    waiting = threading.Thread(target=wait)
    waiting.start()
    hide(fleet, "b")
    ledger.take("a", session)
    heal(fleet)
    is_set_aside(fleet, "b", session)
    waiting.join(60)
    assert answers and answers[0].status != 200, answers
