"""Sessions that go from node to node while clients use them."""
import base64
import json
import os
import random
import re
import signal
import threading

import pytest

from etcd_run import token
from fleet import Fleet, fleet, session, shared, with_tokens, within  # noqa: F401
from gpubuf_cli import NOT_FOUND
from harness import DATA, ROUNDS, until
from ownership import cli, one_writer_each, takes_writes
from pyclient import gpubuf
from sharing import Process

pytestmark = [pytest.mark.once, pytest.mark.timeout(240)]

MOVE = "/v1/fleet/sessions/{}/move"


def moves(fleet, session, at="a", headers=None, **body):
    """Asks that node, and follows its redirect."""
    reply = fleet.ask(at, "POST", MOVE.format(session), body, headers)
    if reply.status != 307:
        return reply
    url = reply.headers["Location"]
    name = next(n for n in fleet.states if url.startswith(fleet.url(n))
                or (n in fleet.to_node and url.startswith(fleet.to_node[n].url)))
    return fleet[name].ask("POST", url[url.index("/v1/"):], body, headers)


def moved(fleet, session, to, at="a", former="a", epoch=2):
    r = moves(fleet, session, at, to=to).expect(200).json()
    assert (r["node"], r["epoch"], r["former"]) == (to, epoch, {"node": former, "epoch": epoch - 1}), r
    return r


def follow(fleet, at, method, target, body=None):
    reply = fleet.ask(at, method, target, body)
    assert reply.status == 307, reply
    return reply


def test_all_of_it(fleet, session):
    fleet.make("a", session, labels={"team": "x"}, quota={"bytes": 1 << 24, "buffers": 50}, idle_ttl_s=3600, priority=3,
               on_partition="stop")
    S = "/v1/sessions/" + session
    fleet.ask("a", "POST", S + "/pools", {"name": "own", "release_threshold_bytes": 4096}).expect(201)
    fleet.ask("a", "POST", S + "/streams", {"name": "order"}).expect(201)
    fleet.ask("a", "PATCH", S, {"pool": "own"})
    bodies = {}
    for i, query in enumerate(("dtype=float32&shape=64,16", "kind=pinned", "kind=pageable", "mirrored=true", "pool=own",
                               "stream=order")):
        bodies[f"b{i}"] = os.urandom(4096)
        fleet.ask("a", "PUT", DATA.format(session, f"b{i}") + "?" + query, bodies[f"b{i}"]).expect(201)
    bodies["empty"] = b""
    fleet.ask("a", "PUT", DATA.format(session, "empty"), b"").expect(201)
    fleet.ask("a", "POST", S + "/buffers", {"name": "zeros", "bytes": 100}).expect(201)
    bodies["zeros"] = bytes(100)
    fleet.ask("a", "PATCH", S + "/buffers/b0", {"labels": {"k": "v"}}).expect(200)
    fleet.ask("a", "POST", S + "/buffers/b1/seal").expect(200)
    before = {b["name"]: b for b in fleet.ask("a", "GET", S + "/buffers").json()["items"]}
    described = fleet.ask("a", "GET", S).json()
    r = moved(fleet, session, "b")
    assert (r["buffers"], r["skipped"], r["skipped_buffers"]) == (8, [], 0) and r["rounds"] >= 2 and r["frozen_ms"] > 0
    assert r["url"].endswith(S)
    after = {b["name"]: b for b in fleet.ask("b", "GET", S + "/buffers").json()["items"]}
    same = ("bytes", "dtype", "shape", "kind", "pool", "stream", "mirrored", "durability", "spill", "resident",
            "sealed", "labels", "state")
    for name, b in before.items():
        assert {k: after[name][k] for k in same} == {k: b[k] for k in same}, name
        assert fleet.ask("b", "GET", DATA.format(session, name)).body == bodies[name], name
    assert after.keys() == before.keys()
    is_now = fleet.ask("b", "GET", S).json()
    for key in ("name", "labels", "quota", "idle_ttl_s", "priority", "durability", "spill", "pool"):
        assert is_now[key] == described[key], key
    assert is_now["fleet"]["epoch"] == 2 and is_now["fleet"]["on_partition"] == "stop"
    assert [p["name"] for p in fleet.ask("b", "GET", S + "/pools").json()["items"]][-1] == "own"
    assert [s["name"] for s in fleet.ask("b", "GET", S + "/streams").json()["items"]] == ["default", "order"]
    # The former node has nothing left, and sends clients on.
    until("all is freed", lambda: not fleet.superseded_at("a"))
    follow(fleet, "a", "GET", DATA.format(session, "b0"))
    follow(fleet, "c", "PUT", DATA.format(session, "b0"), b"x")
    fleet.ask("b", "DELETE", S).expect(204)


# --- while clients write ----------------------------------------------------------------------------------------------


class Client(threading.Thread):
    """Writes a buffer of its own again and again, wherever the session is; the body is a number and filler.
    `acknowledged` is the highest number that was."""

    def __init__(self, fleet, session, buffer, at="a", bytes=4096, in_place=False, pause_s=0):
        super().__init__(daemon=True)
        self.pause_s = pause_s
        self.fleet, self.session, self.buffer, self.at, self.bytes, self.in_place = (fleet, session, buffer, at, bytes,
                                                                                     in_place)
        self.ended, self.acknowledged, self.sent, self.codes, self.waits = threading.Event(), 0, 0, set(), 0
        self.start()

    def put(self, body):
        return self.fleet.ask(self.at, "PUT", DATA.format(self.session, self.buffer) + "?in_place=1" * self.in_place,
                              body)

    def run(self):
        while not self.ended.is_set():
            self.sent += 1
            try:
                reply = self.put(b"%08d" % self.sent + bytes(self.bytes - 8))
            except OSError:
                self.codes.add("broken")
                self.ended.wait(0.05)
                self.at = next(iter(self.fleet.living))
                continue
            if reply.status in (200, 201):
                self.acknowledged = self.sent
                self.ended.wait(self.pause_s)
            elif reply.status == 307:
                owner = reply.headers["Gpubuf-Owner"]
                self.at = owner if owner in self.fleet.living else self.at
                self.codes.add(307)
            else:
                self.codes.add(reply.json()["code"])
                self.ended.wait(0.02)

    def goes_on(self, writes=10):
        before = self.acknowledged
        until("it goes on", lambda: self.acknowledged >= before + writes)

    def end(self):
        self.ended.set()
        self.join(20)
        assert not self.is_alive()

    def is_there(self, name):
        got = self.fleet.ask(name, "GET", DATA.format(self.session, self.buffer)).expect(200).body
        assert self.acknowledged <= int(got[:8]) <= self.sent and got[8:] == bytes(self.bytes - 8), (self.acknowledged,
                                                                                                     self.sent, got[:8])



def test_links_stay_links(fleet, session):
    """What two names share is pulled once, and shared there as well; also durable, and when the session moves on."""
    fleet.make("a", session)
    S = "/v1/sessions/" + session
    one, two = (os.urandom(1 << 20) for _ in range(2))
    for name, data in ("v1", one), ("v2", two):
        fleet.ask("a", "PUT", DATA.format(session, name) + "?durability=sync&dtype=float32", data).expect(201)
        fleet.ask("a", "POST", f"{S}/buffers/{name}/seal").expect(200)
    fleet.ask("a", "PUT", DATA.format(session, "current"), b"12", {"Content-Type": "application/octet-stream"})
    fleet.ask("a", "PATCH", S + "/buffers/current", {"labels": {"k": "v"}}).expect(200)
    for name, source in ("current", "v2"), ("before", "v1"), ("gone", "v1"):
        fleet.ask("a", "POST", f"{S}/buffers/{name}/copy", {"from": source, "share": True})
    fleet.ask("a", "PATCH", DATA.format(session, "gone") + "?offset=0", b"written").expect(200)
    before = {b["name"]: b for b in fleet.ask("a", "GET", S + "/buffers").json()["items"]}
    assert [before[name]["link"] for name in ("current", "before", "gone", "v1")] == ["v2", "v1", None, None]
    for epoch, (former, to) in enumerate((("a", "b"), ("b", "a")), 2):
        moved(fleet, session, to, at=former, former=former, epoch=epoch)
        after = {b["name"]: b for b in fleet.ask(to, "GET", S + "/buffers").json()["items"]}
        same = ("bytes", "dtype", "shape", "kind", "durability", "spill", "sealed", "labels", "state", "crc32c", "link")
        for name, b in before.items():
            assert {k: after[name][k] for k in same} == {k: b[k] for k in same}, name
        assert fleet.ask(to, "GET", S).json()["used_bytes"] == 3 << 20
        for name, data in ("current", two), ("before", one), ("gone", b"written" + one[7:]):
            assert fleet.ask(to, "GET", DATA.format(session, name)).body == data
        fleet.ask(to, "POST", f"{S}/buffers/current/copy", {"from": "v2", "share": True}).expect(200)
    fleet.ask("a", "DELETE", S).expect(204)


def test_writers_lose_nothing(fleet, session):
    fleet.make("a", session)
    clients = [Client(fleet, session, f"w{i}", in_place=i % 2 == 1, bytes=64 << 10 if i == 2 else 4096)
               for i in range(4)]
    try:
        for c in clients:
            c.goes_on()
        at = "a"
        for epoch, to in enumerate("bcab", 2):
            r = moved(fleet, session, to, at, former=at, epoch=epoch)
            assert r["frozen_ms"] > 0 and r["buffers"] == 4
            for c in clients:
                c.goes_on()
            at = to
    finally:
        for c in clients:
            c.end()
    for c in clients:
        c.is_there("b")
        permitted = {307, "session_moving", "superseded", "owner_unknown"}
        # The new owner reads the bytes while they are to be overwritten.
        assert c.codes <= permitted | ({"buffer_busy"} if c.in_place else set()), c.codes
    one_writer_each(fleet, [session])
    fleet.ask("b", "DELETE", "/v1/sessions/" + session).expect(204)


def test_what_changes_on_the_way(fleet, session):
    """Buffers that are made, replaced, relabelled, sealed and deleted while others are being pulled."""
    fleet.make("a", session)
    S = f"/v1/sessions/{session}/buffers"
    for i in range(40):
        fleet.ask("a", "PUT", DATA.format(session, f"b{i}"), b"%04d" % i * 1000).expect(201)
    ended, sealed = threading.Event(), set()

    def change():
        n = 0
        while not ended.is_set():
            n += 1
            fleet.ask("a", "DELETE", f"{S}/b{n % 40}")
            fleet.ask("a", "PUT", DATA.format(session, f"b{n % 40}"), b"%04d" % n * 900)
            fleet.ask("a", "PUT", DATA.format(session, f"new{n}"), b"%04d" % n)
            fleet.ask("a", "PATCH", f"{S}/b{(n + 7) % 40}", {"labels": {"n": str(n)}})
            if n % 5 == 0 and fleet.ask("a", "POST", f"{S}/new{n}/seal").status == 200:
                sealed.add(f"new{n}")
            if n % 3 == 0:
                fleet.ask("a", "DELETE", f"{S}/new{n - 1}")

    thread = threading.Thread(target=change, daemon=True)
    thread.start()
    try:
        moved(fleet, session, "b")
    finally:
        ended.set()
        thread.join(20)
    before = {b["name"]: b for b in every(fleet, "b", S)}
    assert len(before) >= 38
    for name, b in before.items():
        got = fleet.ask("b", "GET", DATA.format(session, name)).expect(200)
        assert (len(got.body) == b["bytes"] and len(set(got.body[i:i + 4] for i in range(0, len(got.body), 4)))
                == 1), name
        assert b["sealed"] == (name in sealed), name
        if name.startswith("new"):
            assert int(got.body[:4]) == int(name[3:])
    fleet.ask("b", "DELETE", "/v1/sessions/" + session).expect(204)


def every(fleet, name, target):
    items, cursor = [], ""
    while True:
        page = fleet.ask(name, "GET", f"{target}?limit=100{cursor}").expect(200).json()
        items += page["items"]
        if not page["next_cursor"]:
            return items
        cursor = "&cursor=" + page["next_cursor"]


def test_the_fleet_chooses(fleet, session):
    fleet.make("a", session)
    r = moves(fleet, session, "c").expect(200).json()
    assert r["node"] in "bc" and r["epoch"] == 2
    r = moves(fleet, session, "b", select={"site": "a"}).expect(200).json()
    assert r["node"] == "a" and r["epoch"] == 3 and r["buffers"] == 0
    p = moves(fleet, session, "b", select={"site": "a"}).problem(507, "no_node_fits")
    assert "lack the labels" in p["detail"]
    r = moves(fleet, session, "b", to="a").expect(200).json()
    assert (r["epoch"], r["rounds"], r["former"]["node"]) == (3, 0, "a"), "it is there already"
    fleet.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)


def test_a_local_session_of_the_name(fleet, session):
    """It hides the registered one on its node, which therefore cannot take that."""
    fleet.ask("b", "POST", "/v1/sessions", {"name": session}).expect(201)
    fleet.make("a", session)
    fleet.ask("a", "PUT", DATA.format(session, "x"), b"1").expect(201)
    moves(fleet, session, to="b").problem(409, "session_exists")
    fleet.ask("a", "PUT", DATA.format(session, "x"), b"2").expect(200)
    assert not [s for s in every(fleet, "b", "/v1/sessions") if ".arriving-" in s["name"]]
    fleet.ask("b", "DELETE", "/v1/sessions/" + session).expect(204)
    moved(fleet, session, "b")
    fleet.ask("b", "DELETE", "/v1/sessions/" + session).expect(204)


@pytest.mark.parametrize("body, status, code", [
    ({"to": "nowhere"}, 404, "node_not_found"), ({"to": "a", "select": {"x": "y"}}, 400, "invalid_argument"),
    ({"to": 1}, 400, "wrong_type"), ({"too": "a"}, 400, "unknown_field"), ({"select": []}, 400, "wrong_type"),
    ({"to": "a b"}, 400, "invalid_name")])
def test_what_it_cannot_be(fleet, session, body, status, code):
    fleet.make("a", session)
    fleet.ask("a", "POST", MOVE.format(session), body).problem(status, code)
    fleet.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)


def test_none_of_the_name(fleet):
    for body in ({}, {"to": "b"}):
        moves(fleet, "not-there", **body).problem(404, "session_not_found")
    fleet.ask("a", "POST", "/v1/sessions", {"name": "local-one"}).expect(201)
    moves(fleet, "local-one", to="b").problem(404, "session_not_found")
    fleet.ask("a", "DELETE", "/v1/sessions/local-one").expect(204)


def test_uploads_in_parts_are_waited_for(fleet, session):
    """Parts that were acknowledged would be lost."""
    fleet.make("a", session)
    r = fleet.ask("a", "POST", f"/v1/sessions/{session}/uploads", {"buffer": "x", "bytes": 4}).expect(201)
    p = moves(fleet, session, to="b").problem(409, "buffer_busy")
    assert "uploads in parts" in p["detail"]
    fleet.ask("a", "DELETE", f"/v1/sessions/{session}/uploads/" + r.json()["id"]).expect(204)
    moved(fleet, session, "b")
    fleet.ask("b", "DELETE", "/v1/sessions/" + session).expect(204)


HANDOVER = "/v1/fleet/sessions/{}/handover"


@pytest.mark.parametrize("body", [
    {}, {"step": "no"}, {"step": "freeze"}, {"step": "look"}, {"step": "thaw"}, {"step": "give", "freeze": 1},
    {"step": "arrived"}, {"step": "give", "claim": "0123", "to": "b"}, {"step": "give", "claim": "x y", "to": "b",
                                                                        "freeze": 1}])
def test_handovers_that_are_none(fleet, body):
    fleet.ask("a", "POST", HANDOVER.format("s"), body).problem(400, "invalid_argument")


def test_a_handover_step_by_step(fleet, session):
    """Which is what the other node asks for."""
    fleet.make("a", session)
    fleet.ask("a", "PUT", DATA.format(session, "x"), b"1").expect(201)
    H = HANDOVER.format(session)
    fleet.ask("a", "POST", HANDOVER.format("nothing"), {"step": "freeze", "epoch": 1}).problem(503, "owner_unknown")
    fleet.ask("a", "POST", H, {"step": "freeze", "epoch": 2}).problem(409, "superseded")
    upload = fleet.ask("a", "POST", f"/v1/sessions/{session}/uploads",
                       {"buffer": "y", "bytes": 4}).expect(201).json()["id"]
    assert fleet.ask("a", "POST", H, {"step": "freeze", "epoch": 1}).headers["Retry-After"] == "1"
    fleet.ask("a", "DELETE", f"/v1/sessions/{session}/uploads/{upload}").expect(204)
    frozen = fleet.ask("a", "POST", H, {"step": "freeze", "epoch": 1}).expect(200).json()
    assert frozen["quiet"] is True
    fleet.ask("a", "POST", H, {"step": "freeze", "epoch": 1}).problem(503, "session_moving")
    changes = [("PUT", DATA.format(session, "x"), b"2"), ("DELETE", f"/v1/sessions/{session}/buffers/x", None),
               ("PATCH", f"/v1/sessions/{session}", {"labels": {}}), ("DELETE", f"/v1/sessions/{session}", None),
               ("POST", f"/v1/sessions/{session}/streams", {"name": "s"}), ("POST", f"/v1/sessions/{session}/pools",
                                                                            {"name": "p"}),
               ("POST", f"/v1/sessions/{session}/uploads", {"buffer": "x", "bytes": 4}),
               ("PATCH", DATA.format(session, "x") + "?offset=0", b"3"),
               ("POST", f"/v1/sessions/{session}/buffers/x/seal", None),
               ("POST", f"/v1/sessions/{session}/buffers/x/fill", {"pattern": 7})]
    for method, target, body in changes:
        refused = fleet.ask("a", method, target, body)
        refused.problem(503, "session_moving")
        assert refused.headers["Retry-After"] == "1"
    assert fleet.ask("a", "GET", DATA.format(session, "x")).expect(200).body == b"1"
    assert fleet.ask("a", "POST", H, {"step": "look", "freeze": frozen["freeze"]}).expect(200).json()["quiet"] is True
    fleet.ask("a", "POST", H, {"step": "look", "freeze": frozen["freeze"] + 1}).problem(503, "session_moving")
    fleet.ask("a", "POST", H, {"step": "thaw", "freeze": frozen["freeze"]}).expect(200)
    fleet.ask("a", "PUT", DATA.format(session, "x"), b"2").expect(200)
    fleet.ask("a", "POST", H, {"step": "give", "freeze": frozen["freeze"], "to": "b",
                               "claim": "0-1"}).problem(503, "session_moving")
    frozen = fleet.ask("a", "POST", H, {"step": "freeze", "epoch": 1}).expect(200).json()
    fleet.ask("a", "POST", H, {"step": "give", "freeze": frozen["freeze"], "to": "nobody-here",
                               "claim": "0-1"}).problem(503, "node_unreachable")
    fleet.ask("a", "PUT", DATA.format(session, "x"), b"3").expect(200)  # it was refused for good, and clients continue
    assert fleet.ask("a", "POST", H, {"step": "arrived", "claim": "0-1"}).expect(200).json() == {"freed": False}
    fleet.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)


# --- slowly -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slow():
    """b brings 2 MB a second."""
    fleet = Fleet("ab", options={"b": ["--pull-rate", "2M"]})
    fleet.joined()
    yield fleet
    fleet.end()


def arriving(fleet, name="b"):
    return [s["name"] for s in every(fleet, name, "/v1/sessions") if ".arriving-" in s["name"]]


@pytest.fixture
def on_its_way(slow, session):
    """A session of a with 8 MB, which b has begun to bring: (its operation, the name under which it arrives)."""
    slow.make("a", session)
    slow.ask("a", "PUT", DATA.format(session, "small"), b"1234").expect(201)
    for i in range(4):
        slow.ask("a", "PUT", DATA.format(session, f"x{i}"), os.urandom(2_000_000)).expect(201)
    r = moves(slow, session, to="b", headers={"Prefer": "respond-async"}).expect(202)
    yield "/v1/operations/" + r.json()["id"], until("it comes", lambda: arriving(slow))[0]
    until("nothing is left", lambda: not arriving(slow))
    slow.agree()
    record = slow.records().get(session)
    if record:
        slow.ask(record["node"], "DELETE", "/v1/sessions/" + session).expect(204)


def ended(fleet, operation):
    return until("it has ended", lambda: (o := fleet.ask("b", "GET", operation).json())["state"]
                 not in ("queued", "running") and o)


def test_what_arrives_can_be_read(slow, session, on_its_way):
    """Under a name of its own, and is changed by no client."""
    operation, name = on_its_way
    until("a buffer has come", lambda: slow.ask("b", "GET", DATA.format(name, "small")).status == 200)
    slow.ask("b", "PUT", DATA.format(name, "small"), b"5").problem(503, "session_moving")
    slow.ask("b", "DELETE", "/v1/sessions/" + name).problem(503, "session_moving")
    moves(slow, session, to="b").problem(503, "session_moving")
    slow.ask("a", "PUT", DATA.format(session, "small"), b"5").expect(200)
    assert ended(slow, operation)["state"] == "done"
    assert slow.ask("b", "GET", DATA.format(session, "small")).expect(200).body == b"5"


def test_settings_change_on_the_way(slow, session):
    """What was brought when the move began is on the target as it is on the owner when the move ends."""
    slow.make("a", session, labels={"team": "x"})
    S, reuse = "/v1/sessions/" + session, {"follow_event_dependencies": False, "allow_opportunistic": False,
                                           "allow_internal_dependencies": True}
    for name in ("changed", "again", "gone", "current"):
        slow.ask("a", "POST", S + "/pools", {"name": name, "release_threshold_bytes": 4096}).expect(201)
    for name in ("kept", "gone"):
        slow.ask("a", "POST", S + "/streams", {"name": name}).expect(201)
    for i in range(4):
        slow.ask("a", "PUT", DATA.format(session, f"x{i}") + "?pool=changed", os.urandom(2_000_000)).expect(201)
    operation = "/v1/operations/" + moves(slow, session, to="b",
                                          headers={"Prefer": "respond-async"}).expect(202).json()["id"]
    stage = until("it comes", lambda: arriving(slow))[0]
    until("streams have come", lambda: len(slow.ask("b", "GET", f"/v1/sessions/{stage}/streams").json()["items"]) == 3)
    slow.ask("a", "PATCH", S + "/pools/changed", {"release_threshold_bytes": 8192, "reuse": reuse}).expect(200)
    slow.ask("a", "DELETE", S + "/pools/gone").expect(204)
    slow.ask("a", "DELETE", S + "/pools/again").expect(204)
    slow.ask("a", "POST", S + "/pools", {"name": "again", "max_bytes": 64 << 20}).expect(201)
    slow.ask("a", "POST", S + "/pools", {"name": "late"}).expect(201)
    slow.ask("a", "DELETE", S + "/streams/gone").expect(204)
    slow.ask("a", "POST", S + "/streams", {"name": "late"}).expect(201)
    slow.ask("a", "PATCH", S, {"labels": {}, "quota": {"bytes": 1 << 30, "buffers": 9}, "idle_ttl_s": 3600,
                               "priority": 2, "spill": "host", "pool": "current"}).expect(200)
    of_owner = settings(slow, "a", session)
    assert ended(slow, operation)["state"] == "done"
    assert settings(slow, "b", session) == of_owner
    slow.ask("b", "DELETE", S).expect(204)


def settings(fleet, at, session):
    S = "/v1/sessions/" + session
    pool = ("max_bytes", "release_threshold_bytes", "reuse", "exportable")
    return ({k: v for k, v in fleet.ask(at, "GET", S).json().items()
             if k in ("labels", "quota", "idle_ttl_s", "durability", "spill", "priority", "pool")},
            {p["name"]: {k: p[k] for k in pool} for p in every(fleet, at, S + "/pools") if "created_at" in p},
            {s["name"] for s in every(fleet, at, S + "/streams")})


def test_current_pools_of_several_devices():
    """They come to the devices of the same indexes; where there are fewer, the first device's pool is current."""
    two = "host:bytes=64M,devices=2"
    fleet = Fleet("abc", specs={"a": two, "b": two})
    S = "/v1/sessions/s"
    try:
        fleet.joined()
        fleet.make("a", "s")
        for name, device in (("p", 0), ("q", 1)):
            fleet.ask("a", "POST", S + "/pools", {"name": name, "device": device}).expect(201)
            fleet.ask("a", "PATCH", S, {"pool": name}).expect(200)
        assert fleet.ask("a", "GET", S).json()["current_pools"] == ["p", "q"]
        for at, former, epoch, pools in (("b", "a", 2, ["p", "q"]), ("c", "b", 3, ["p"])):
            moved(fleet, "s", at, former, former, epoch)
            assert fleet.ask(at, "GET", S).json()["current_pools"] == pools, at
    finally:
        fleet.end()


def test_it_is_cancelled(slow, session, on_its_way):
    operation, _ = on_its_way
    until("it is cancelled", lambda: slow.ask("b", "DELETE", operation).status == 200)
    assert ended(slow, operation)["state"] == "cancelled"
    assert slow.records()[session]["node"] == "a"
    slow.ask("a", "PUT", DATA.format(session, "small"), b"5").expect(200)


def test_its_session_is_deleted(slow, session, on_its_way):
    operation, _ = on_its_way
    slow.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)
    assert ended(slow, operation)["problem"]["code"] in ("session_not_found", "source_refused", "owner_unknown")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_target_ends(slow, session, on_its_way, how):
    slow["b"].process.send_signal(how)
    slow["b"].process.wait()
    slow.ask("a", "PUT", DATA.format(session, "small"), b"5").expect(200)
    slow.kill("b")
    slow.start("b")
    slow.joined()
    assert slow.records()[session]["node"] == "a"
    moved(slow, session, "b")  # what was left of the former attempt is in no way
    assert slow.ask("b", "GET", DATA.format(session, "small")).expect(200).body == b"5"


def test_the_owner_ends(slow, session, on_its_way):
    operation, _ = on_its_way
    slow.kill("a")
    assert ended(slow, operation)["state"] == "failed"
    slow.start("a")
    slow.joined()


# --- what keeps it where it is ----------------------------------------------------------------------------------------


def test_mapped_memory(slow, session):
    """The process that maps it is on the owner's machine."""
    slow.make("a", session)
    slow.ask("a", "PUT", DATA.format(session, "m") + "?kind=pageable", bytes(4096)).expect(201)
    with Process(slow["a"], session, "m", "read"):
        p = moves(slow, session, to="b").problem(409, "mapped")
        assert '"m"' in p["detail"]
        slow.ask("a", "PUT", DATA.format(session, "x"), b"1").expect(201)
    until("the lease has ended", lambda: slow.ask("a", "GET", f"/v1/sessions/{session}/buffers/m").json()["leases"]
          == 0)
    moved(slow, session, "b")
    slow.ask("b", "DELETE", "/v1/sessions/" + session).expect(204)


def test_lost_bytes_are_left_out(slow, session):
    slow.make("a", session)
    slow.ask("a", "PUT", DATA.format(session, "gone"), b"1").expect(201)
    slow.kill("a")
    slow.start("a")
    slow.joined()
    slow.ask("a", "PUT", DATA.format(session, "there"), b"2").expect(201)
    r = moved(slow, session, "b")
    assert r["skipped"] == [{"name": "gone", "code": "content_lost"}] and (r["skipped_buffers"], r["buffers"]) == (1, 1)
    slow.ask("b", "GET", DATA.format(session, "gone")).problem(404, "buffer_not_found")
    slow.ask("b", "DELETE", "/v1/sessions/" + session).expect(204)


def test_no_room(slow, session):
    slow.make("a", session)
    slow.ask("b", "POST", "/v1/sessions", {"name": "filler"}).expect(201)
    slow.ask("b", "POST", "/v1/sessions/filler/buffers", {"name": "x", "bytes": 60 << 20}).expect(201)
    slow.ask("a", "POST", f"/v1/sessions/{session}/buffers", {"name": "x", "bytes": 20 << 20}).expect(201)
    p = moves(slow, session, to="b").problem(507, "out_of_memory")
    assert '"x"' in p["detail"]
    assert not arriving(slow) and slow.records()[session]["node"] == "a"
    slow.ask("b", "DELETE", "/v1/sessions/filler").expect(204)
    slow.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)


# --- what breaks ------------------------------------------------------------------------------------------------------


@pytest.fixture
def of_c(fleet, session):
    """A session of c, which others reach by a relay."""
    fleet.make("c", session)
    fleet.ask("c", "PUT", DATA.format(session, "x"), b"1234").expect(201)
    yield session
    fleet.to_node["c"].watch = None
    fleet.to_node["c"].set("pass")
    name = fleet.records()[session]["node"]
    assert fleet.ask(name, "GET", DATA.format(session, "x")).expect(200).body == b"1234"
    one_writer_each(fleet, [session])
    fleet.ask(name, "DELETE", "/v1/sessions/" + session).expect(204)


def gives(asked):
    """The transaction that gives a session to a."""
    return b"/v3/kv/txn" in asked and base64.b64encode(b"/gpubuf/main/owned/a/") in asked


def test_the_owners_word_is_lost(fleet, of_c):
    """It has given the session, and the answer that says so does not arrive: asked again, it says the same."""
    fleet.to_node["c"].drop_answer(lambda asked: b'"step":"give"' in asked)
    r = moved(fleet, of_c, "a", "a", former="c")
    assert fleet.to_node["c"].dropped >= 1 and r["epoch"] == 2


def test_the_directorys_word_to_the_owner_is_lost(fleet, of_c):
    """The owner cannot know at once whether it has the session still: it asks until it knows, and takes no write
    meanwhile."""
    fleet.to_etcd["c"].drop_answer(gives)
    moved(fleet, of_c, "a", "a", former="c")
    assert fleet.to_etcd["c"].dropped >= 1


def test_the_directory_is_silent_to_the_owner_in_the_midst(fleet, of_c):
    """The transaction is carried out, and its owner learns that only when it hears the directory again. The other node
    asks the directory."""
    relay = fleet.to_etcd["c"]
    before = relay.dropped
    relay.drop_answer(gives)
    done = []
    thread = threading.Thread(target=lambda: done.append(moves(fleet, of_c, "a", to="a")), daemon=True)
    thread.start()
    until("the answer is lost", lambda: relay.dropped > before)
    relay.set("cut")
    until("it is served there", lambda: fleet.ask("a", "GET", DATA.format(of_c, "x")).status == 200)
    refused = fleet.ask("c", "PUT", DATA.format(of_c, "x"), b"lost")
    assert refused.status in (307, 409, 503), (refused, refused.headers)  # it may not be its own any more
    thread.join(60)
    assert done[0].expect(200).json()["epoch"] == 2
    relay.set("pass")
    until("the former owner knows", lambda: fleet.ask("c", "GET", DATA.format(of_c, "x")).status == 307)


@pytest.mark.parametrize("carried", [True, False])
def test_the_owner_is_killed_while_it_gives(fleet, of_c, carried):
    """When it is back it takes no write before the directory has said which node has the session."""
    relay, heard = fleet.to_etcd["c"], threading.Event()

    def watch(asked):
        if not gives(asked):
            return None
        heard.set()
        return "drop" if carried else "stop"

    relay.watch = watch
    done = []
    thread = threading.Thread(target=lambda: done.append(moves(fleet, of_c, "a", to="a")), daemon=True)
    thread.start()
    assert heard.wait(60)
    if carried:
        until("the directory has it", lambda: fleet.records()[of_c]["node"] == "a")
    fleet.kill("c")
    relay.watch = None
    relay.set("hole")
    fleet.start("c")
    p = fleet["c"].ask("PUT", DATA.format(of_c, "x"), b"lost").problem(503, "session_moving")
    assert "when this one ended" in p["detail"]
    relay.set("pass")
    thread.join(90)
    if carried:
        assert done[0].expect(200).json()["epoch"] == 2
        until("the former owner knows", lambda: fleet.ask("c", "GET", DATA.format(of_c, "x")).status == 307)
        return
    assert done[0].status == 503, done[0]
    until("it is the owner's again", lambda: fleet.ask("c", "PUT", DATA.format(of_c, "x"), b"1234").status == 200)
    assert fleet.records()[of_c]["epoch"] == 2


def test_the_owner_does_not_answer(fleet, of_c):
    fleet.to_node["c"].set("hole")
    moves(fleet, of_c, "a", to="a").problem(503, "node_unreachable")
    fleet.to_node["c"].set("pass")
    until("it is asked again", lambda: moves(fleet, of_c, "a", to="a").status == 200)


def test_bytes_do_not_come(fleet, of_c):
    """Every connection that brings bytes breaks."""
    fleet.to_node["c"].watch = lambda asked: "drop" if b"/buffers/x" in asked else None
    p = moves(fleet, of_c, "a", to="a").problem(502, "source_unreachable")
    assert '"x"' in p["detail"]
    assert not arriving(fleet, "a")


def test_killed_at_any_moment(shared, session):
    """Each session has one owner afterwards, and what was acknowledged is there unless the node that has it was
    killed."""
    rng = random.Random(20)
    for n in range(4 + 4 * ROUNDS):
        fleet, name = shared, f"{session}.{n}"
        fleet.make("a", name)
        client = Client(fleet, name, "w")
        client.goes_on(3)
        victim = "ab"[n % 2]
        thread = threading.Thread(target=lambda: attempt(fleet, name), daemon=True)
        thread.start()
        threading.Event().wait(rng.random() * 0.15)  # the moment is left to chance
        fleet.kill(victim)
        client.ended.wait(0.3)
        client.end()
        thread.join(60)
        fleet.start(victim)
        fleet.joined()
        fleet.agree()
        record = fleet.records()[name]
        # An owner whose target was killed lets clients change nothing until the five seconds have passed.
        until("the owner takes writes", lambda: takes_writes(fleet, record["node"], name), within(5))
        one_writer_each(fleet, [name])
        if record["node"] != victim:
            client.is_there(record["node"])
        fleet.ask(record["node"], "DELETE", "/v1/sessions/" + name).expect(204)


def attempt(fleet, session):
    try:
        moves(fleet, session, "c", to="b")
    except OSError:
        pass


# --- with tokens ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded():
    yield from with_tokens()


def test_with_tokens(guarded, session):
    """Every node has its own. What b asks of a it asks in the name of the client, which c has redirected to b."""
    guarded.make("a", session)
    body = os.urandom(3_000_000)
    guarded.ask("a", "PUT", DATA.format(session, "x"), body).expect(201)
    reply = guarded.ask("c", "POST", MOVE.format(session), {"to": "b"})
    assert reply.status == 307
    url = reply.headers["Location"]
    guarded["b"].ask("POST", MOVE.format(session), {"to": "b"}).problem(401, "unauthenticated")
    r = guarded["b"].ask("POST", url[url.index("/v1/"):], {"to": "b"}).expect(200).json()
    assert r["epoch"] == 2 and guarded.ask("b", "GET", DATA.format(session, "x")).body == body
    secret = token(guarded.states["c"], "add", "writer", "--scope", "write")
    guarded["c"].process.send_signal(signal.SIGHUP)
    until("the token is in force", lambda: guarded["c"].ask("GET", "/v1/sessions", token=secret).status == 200)
    guarded["c"].ask("POST", MOVE.format(session), {"to": "a"}, token=secret).problem(403, "forbidden")
    guarded["c"].ask("POST", HANDOVER.format(session), {"step": "freeze", "epoch": 2},
                     token=secret).problem(403, "forbidden")
    guarded.ask("b", "DELETE", "/v1/sessions/" + session).expect(204)


# --- by other clients -------------------------------------------------------------------------------------------------


def test_gpubuf(fleet, session):
    fleet.make("a", session)
    fleet.ask("a", "PUT", DATA.format(session, "x"), b"1234").expect(201)
    run = cli(fleet)
    said = run("fleet", "move", session, "--node", "b").expect().out
    assert re.fullmatch(rf"session {session} is at http://.*/v1/sessions/{session}, at epoch 2: 1 buffers, 4 B; its "
                        r"writers waited \d+ ms\n", said), said
    assert run("fleet", "move", session, "--node", "b").expect().out == f"session {session} is on node b already\n"
    assert json.loads(run("--json", "fleet", "move", session, "--select", "site=a").expect().out)["node"] == "a"
    assert "lack the labels" in run("fleet", "move", session, "--select", "site=x").expect(1).err
    run("fleet", "move", "nothing", "--node", "b").expect(NOT_FOUND)
    with gpubuf.Fleet([fleet.url(name) for name in "cb"]) as py:
        assert py.move(session, "b")["epoch"] == 4
        assert py.move(session, select={"site": "a"})["node"] == "a"
        with py.session(session) as client:
            assert bytes(client.get("x").tobytes()) == b"1234"
    fleet.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)


def test_drain_while_clients_write(fleet, session):
    """Each session has a client that writes some 50 times a second. One is mapped besides: it stays, and is named."""
    names = [f"{session}.{i:02}" for i in range(5 * ROUNDS)]
    for name in names:
        fleet.make("a", name)
    fleet.ask("a", "PUT", DATA.format(names[3], "m") + "?kind=pageable", bytes(4096)).expect(201)
    clients = [Client(fleet, name, "w", in_place=i % 2 == 1, pause_s=0.02) for i, name in enumerate(names)]
    run = cli(fleet)
    try:
        for c in clients:
            c.goes_on(3)
        with Process(fleet["a"], names[3], "m", "read"):
            r = run("--json", "fleet", "drain", "a", "--move").expect(1)
            assert re.match(rf'gpubuf: session {names[3]} stays where it is: "m" is mapped on the node "a"',
                            r.err), r.err
        said = json.loads(r.out)
        assert [m["name"] for m in said] == names and said[3]["problem"]["code"] == "mapped", said
        assert all(m["frozen_ms"] > 0 for m in said[:3] + said[4:]), said
        for c in clients:
            c.goes_on(3)
    finally:
        for c in clients:
            c.end()
        run("fleet", "undrain", "a").expect()
    records = fleet.records()
    for name, c in zip(names, clients):
        c.is_there(records[name]["node"])
        assert (records[name]["node"] == "a") == (name == names[3])
    one_writer_each(fleet, names)
    for name in names:
        fleet.ask(records[name]["node"], "DELETE", "/v1/sessions/" + name).expect(204)


def test_drain(fleet, session):
    """All registered sessions go, but for one that is in use, which is named."""
    names = [f"{session}.{i}" for i in range(4)]
    for name in names:
        fleet.make("a", name)
        fleet.ask("a", "PUT", DATA.format(name, "x") + "?kind=pageable", name.encode()).expect(201)
    run = cli(fleet)
    try:
        with Process(fleet["a"], names[1], "x", "read"):
            r = run("fleet", "drain", "a", "--move").expect(1)
            assert [line.split()[1] for line in r.out.splitlines()] == [names[0], names[2], names[3]], r.out
            assert "mapped" in r.err and names[1] not in r.out
        until("the lease has ended", lambda: fleet.ask("a", "GET",
                                                       f"/v1/sessions/{names[1]}/buffers/x").json()["leases"] == 0)
        r = run("--json", "fleet", "drain", "a", "--move").expect()
        assert [m["name"] for m in json.loads(r.out)] == [names[1]]
        for name in names:
            owner = fleet.records()[name]["node"]
            assert owner in "bc" and fleet.ask(owner, "GET", DATA.format(name, "x")).body == name.encode()
        assert run("fleet", "drain", "a", "--move").expect().out == ""
    finally:
        run("fleet", "undrain", "a").expect()
    for name in names:
        fleet.ask(fleet.records()[name]["node"], "DELETE", "/v1/sessions/" + name).expect(204)
