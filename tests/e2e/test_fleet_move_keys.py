"""What requests with an Idempotency-Key were answered goes with their session to another node."""
import base64
import json
import signal
import threading

import pytest

from etcd_run import token
from fleet import fleet, session, shared, with_tokens  # noqa: F401
from harness import DATA, until
from ownership import one_writer_each
from test_fleet_move import HANDOVER, moved, moves

pytestmark = [pytest.mark.once, pytest.mark.timeout(240)]

BYTES = {"Content-Type": "application/octet-stream"}
WHOLE = {**BYTES, "Upload-Complete": "?1"}


def keyed(fleet, name, key, method, target, body=None, headers=None, secret=None):
    """Asks that node, and follows its redirect."""
    headers = {**(headers or {}), "Idempotency-Key": key}
    ask = ((lambda n, t: fleet[n].ask(method, t, body, headers, secret)) if secret
           else (lambda n, t: fleet.ask(n, method, t, body, headers)))
    reply = ask(name, target)
    if reply.status == 307:
        url = reply.headers["Location"]
        at = next(n for n in fleet.states if url.startswith(fleet.url(n))
                  or (n in fleet.to_node and url.startswith(fleet.to_node[n].url)))
        reply = fleet[at].ask(method, url[url.index("/v1/"):], body, headers)
    return reply


def changes(session):
    """A change by each kind of route that takes a key: (key, method, target, body, headers)."""
    path = "/v1/sessions/" + session
    return [
        ("post", "POST", DATA.format(session, "posted"), b"1234", WHOLE),
        ("patch", "PATCH", DATA.format(session, "x") + "?offset=0", b"5", BYTES),
        ("fill", "POST", path + "/buffers/x/fill", {"pattern": "0x7", "width": 1, "offset": 4}, None),
        ("copy", "POST", path + "/buffers/y/copy", {"from": "x"}, None),
        ("create", "POST", path + "/buffers", {"name": "z", "bytes": 4}, None),
        ("labels", "PATCH", path + "/buffers/x", {"labels": {"a": "b"}}, None),
        ("session", "PATCH", path, {"labels": {"c": "d"}}, None),
        ("batch", "POST", path + "/batch", {"operations": [{"op": "create", "buffer": "w", "bytes": 4},
                                                           {"op": "fill", "buffer": "x", "pattern": 1}]}, None),
        ("stream", "POST", path + "/streams", {"name": "st"}, None),
        ("pool", "POST", path + "/pools", {"name": "p"}, None),
        ("seal", "POST", path + "/buffers/z/seal", {}, None),
        ("delete", "DELETE", path + "/buffers/w", None, None),
        ("refused", "POST", path + "/buffers/none/fill", {"pattern": 1}, None),
        ("bytes", "POST", path + "/buffers", {"name": "bytes", "bytes": 1 << 40}, None),
    ]


def generations(fleet, name, session):
    return {b["name"]: b["generation"] for b in fleet.ask(name, "GET",
                                                          f"/v1/sessions/{session}/buffers").json()["items"]}


def same(first, again):
    assert (again.status, again.body) == (first.status, first.body), (first, again)
    assert again.headers["Idempotency-Replayed"] == "true", again.headers
    assert again.headers.get("ETag") == first.headers.get("ETag")


def test_each_is_answered_as_before(fleet, session):
    fleet.make("a", session)
    fleet.ask("a", "PUT", DATA.format(session, "x"), bytes(16)).expect(201)
    first = {c[0]: keyed(fleet, "a", *c) for c in changes(session)}
    assert {k: r.status for k, r in first.items()} == {
        **dict.fromkeys(("post", "copy", "create", "stream", "pool"), 201),
        **dict.fromkeys(("patch", "fill", "labels", "session", "batch", "seal"), 200), "delete": 204, "refused": 404,
        "bytes": first["bytes"].status}
    moved(fleet, session, "b")
    for at, name, epoch in (("b", "a", 2), ("c", "c", 3), ("a", "b", 4)):
        if epoch > 2:
            moved(fleet, session, at, at=name, former={3: "b", 4: "c"}[epoch], epoch=epoch)
        before = generations(fleet, at, session)
        for key, method, target, body, headers in changes(session):
            for asked in (at, name):
                again = keyed(fleet, asked, key, method, target, body, headers)
                if key == "bytes" and first[key].status == 507:
                    assert "Idempotency-Replayed" not in again.headers  # it may be tried again, so that it was not kept
                else:
                    same(first[key], again)
        keyed(fleet, name, "patch", "PATCH", DATA.format(session, "x") + "?offset=0", b"6",
              BYTES).problem(422, "idempotency_key_reused")
        keyed(fleet, name, "fill", "POST", f"/v1/sessions/{session}/buffers/x/fill",
              {"pattern": 8}).problem(422, "idempotency_key_reused")
        assert generations(fleet, at, session) == before
    # A later session of the name knows none of them.
    fleet.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)
    fleet.make("a", session)
    assert keyed(fleet, "a", "post", "POST", DATA.format(session, "posted"), b"1234", WHOLE).status == 201
    assert "x" not in generations(fleet, "a", session)
    fleet.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)


def test_many(fleet, session):
    """More than the owner tells at once, some of them while the session is on its way."""
    fleet.make("a", session)
    fleet.ask("a", "PUT", DATA.format(session, "x"), bytes(16)).expect(201)
    target = f"/v1/sessions/{session}/buffers/x/fill"
    first = [keyed(fleet, "a", f"k{i}", "POST", target, {"pattern": i % 200}) for i in range(430)]
    ended, more = threading.Event(), []

    def go_on():
        while not ended.is_set():
            reply = fleet.ask("a", "POST", target, {"pattern": len(more) % 200}, {"Idempotency-Key": f"m{len(more)}"})
            if reply.status != 200:
                return
            more.append(reply)

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        until("some more were made", lambda: len(more) > 3)
        moved(fleet, session, "b")
    finally:
        ended.set()
        thread.join(20)
    for i, reply in enumerate(first):
        same(reply, keyed(fleet, "b", f"k{i}", "POST", target, {"pattern": i % 200}))
    for i, reply in enumerate(more):
        same(reply, keyed(fleet, "b", f"m{i}", "POST", target, {"pattern": i % 200}))
    assert (keyed(fleet, "b", "new", "POST", target, {"pattern": 1}).expect(200).headers.get("Idempotency-Replayed")
            is None)
    fleet.ask("b", "DELETE", "/v1/sessions/" + session).expect(204)


def test_what_the_move_interrupts_may_be_repeated(fleet, session):
    """Its key is free: nothing was carried out."""
    fleet.make("a", session)
    fleet.ask("a", "PUT", DATA.format(session, "x"), bytes(300_000)).expect(201)
    with fleet["a"].raw() as r:
        r.request("PATCH", DATA.format(session, "x") + "?offset=0",
                  ["Content-Length: 300000", "Content-Type: application/octet-stream", "Idempotency-Key: k"],
                  b"n" * 150_000)
        moved(fleet, session, "b")
        try:
            r.send(b"n" * 150_000)
        except OSError:
            pass
        r.reply().problem(503, "session_moving")
    reply = keyed(fleet, "a", "k", "PATCH", DATA.format(session, "x") + "?offset=0", b"n" * 300_000, BYTES).expect(200)
    assert "Idempotency-Replayed" not in reply.headers
    assert fleet.ask("b", "GET", DATA.format(session, "x")).body == b"n" * 300_000
    fleet.ask("b", "DELETE", "/v1/sessions/" + session).expect(204)


def test_what_a_crash_left_without_an_answer(fleet, session):
    """It was carried out before the owner was killed, and is not carried out again at the next owner."""
    fleet.make("a", session, durability="sync")
    fleet.ask("a", "PUT", DATA.format(session, "x"), b"0000").expect(201)
    fleet.kill("a")
    fleet.options["a"] = ["--disk-fault", "before_key@1=kill"]
    fleet.start("a")
    fleet.joined()


    def ask():
        try:
            keyed(fleet, "a", "k", "PATCH", DATA.format(session, "x") + "?offset=0", b"1",
                  BYTES).problem(503, "not_loaded")
        except OSError:
            pass
        return fleet["a"].process.poll() is not None

    until("it is killed", ask)
    fleet.kill("a")
    del fleet.options["a"]
    fleet.start("a")
    fleet.joined()
    assert fleet.ask("a", "GET", DATA.format(session, "x")).body == b"1000"
    moved(fleet, session, "b")
    keyed(fleet, "a", "k", "PATCH", DATA.format(session, "x") + "?offset=0", b"1",
          BYTES).problem(409, "idempotency_answer_lost")
    fleet.ask("b", "DELETE", "/v1/sessions/" + session).expect(204)


def gives(name):
    """The transaction that gives a session to that node."""
    return (lambda asked: b"/v3/kv/txn" in asked and base64.b64encode(f"/gpubuf/main/owned/{name}/".encode())[:-4]
            in asked)


@pytest.mark.parametrize("victim", ["owner", "target", "early_target"])
@pytest.mark.parametrize("carried", [True, False])
def test_a_node_is_killed_in_the_midst(fleet, session, victim, carried):
    """While the session is given from c to a. Whichever node has it knows what was carried out."""
    fleet.make("c", session, durability="sync")
    fleet.ask("c", "PUT", DATA.format(session, "x"), bytes(16)).expect(201)
    change = ("k", "PATCH", DATA.format(session, "x") + "?offset=0", b"5", BYTES)
    first = keyed(fleet, "c", *change).expect(200)
    relay, heard = fleet.to_etcd["c"], threading.Event()

    def watch(asked):
        if not gives("a")(asked):
            return None
        heard.set()
        return "drop" if carried else "stop"

    relay.watch = watch

    def attempt():
        try:
            moves(fleet, session, "a", to="a")
        except OSError:
            pass

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    assert heard.wait(60)
    if carried:
        until("the directory has it", lambda: fleet.records()[session]["node"] == "a")
    name = "c" if victim == "owner" else "a"
    fleet.kill(name)
    relay.watch = None
    if victim == "target":
        thread.join(90)
    fleet.start(name)
    thread.join(90)
    fleet.joined()
    fleet.agree()
    owner = fleet.records()[session]["node"]
    assert owner == "a" or not carried
    until("the owner serves it", lambda: fleet.ask(owner, "GET", DATA.format(session, "x")).status == 200)
    generation = generations(fleet, owner, session)
    until("it is not frozen any more", lambda: fleet.ask(owner, "PUT", DATA.format(session, "other"), b"1").status
          in (200, 201))
    for at in "abc":
        same(first, keyed(fleet, at, *change))
    assert generations(fleet, owner, session)["x"] == generation["x"]
    one_writer_each(fleet, [session])
    fleet.ask(owner, "DELETE", "/v1/sessions/" + session).expect(204)


def test_leftovers_of_a_move_that_failed(fleet, session):
    """What the new node has learnt ends with what had come."""
    fleet.make("c", session)
    fleet.ask("c", "PUT", DATA.format(session, "x"), bytes(16)).expect(201)
    keyed(fleet, "c", "k", "PATCH", DATA.format(session, "x") + "?offset=0", b"5", BYTES).expect(200)
    kept = lambda: fleet.ask("a", "GET", "/metrics").body.decode().split("\ngpubufd_idempotency_keys ")[1].split(
        "\n")[0]
    before = kept()
    fleet.to_node["c"].watch = lambda asked: "drop" if b'"step":"give"' in asked else None
    thread = threading.Thread(target=lambda: moves(fleet, session, "a", to="a"), daemon=True)
    thread.start()
    until("a has learnt of it", lambda: kept() != before)
    fleet.kill("c")
    thread.join(90)
    fleet.to_node["c"].watch = None
    fleet.start("c")
    fleet.joined()
    if fleet.records()[session]["node"] == "c":
        until("it has forgotten it", lambda: kept() == before)
    fleet.ask(fleet.records()[session]["node"], "DELETE", "/v1/sessions/" + session).expect(204)


@pytest.mark.parametrize("body", [{"step": "keys"}, {"step": "keys", "after": -1},
                                  {"step": "keys", "after": 0, "last": 1}])
def test_keys_that_cannot_be_told(fleet, body):
    assert fleet.ask("a", "POST", HANDOVER.format("s"), body).status == 400


def test_the_owner_tells_them_to_another_node(fleet, session):
    fleet.make("a", session)
    fleet.ask("a", "POST", HANDOVER.format("none"), {"step": "keys", "after": 0}).problem(503, "owner_unknown")
    nothing = fleet.ask("a", "POST", HANDOVER.format(session), {"step": "keys", "after": 0}).expect(200).json()
    assert (nothing["keys"], nothing["more"], nothing["open"]) == ([], False, False)
    answer = keyed(fleet, "a", "k", "POST", DATA.format(session, "x"), b"1", WHOLE).expect(201)
    told = fleet.ask("a", "POST", HANDOVER.format(session), {"step": "keys", "after": 0}).expect(200).json()
    assert [(k["status"], json.loads(k["body"])) for k in told["keys"]] == [(201, answer.json())]
    assert "ETag: " + answer.headers["ETag"] in told["keys"][0]["headers"]
    again = fleet.ask("a", "POST", HANDOVER.format(session),
                      {"step": "keys", "after": told["after"]}).expect(200).json()
    assert again["keys"] == []
    fleet.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)


# --- with tokens ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded():
    yield from with_tokens()


def test_with_tokens(guarded, session):
    """A client has a token of a. Elsewhere it is known by the ticket that a gives it; another token has keys of its
    own."""
    secrets = {name: token(guarded.states["a"], "add", name, "--scope", "write") for name in ("one", "two")}
    guarded["a"].process.send_signal(signal.SIGHUP)
    until("the tokens are in force", lambda: all(guarded["a"].ask("GET", "/v1/sessions", token=s).status == 200
                                                 for s in secrets.values()))
    guarded.make("a", session)
    guarded.ask("a", "PUT", DATA.format(session, "x"), bytes(16)).expect(201)
    change = ("k", "PATCH", DATA.format(session, "x") + "?offset=0", b"5", BYTES)
    first = keyed(guarded, "a", *change, secret=secrets["one"]).expect(200)
    reply = guarded.ask("a", "POST", f"/v1/fleet/sessions/{session}/move", {"to": "b"})
    url = reply.headers["Location"]
    guarded["b"].ask("POST", url[url.index("/v1/"):], {"to": "b"}).expect(200)
    same(first, keyed(guarded, "a", *change, secret=secrets["one"]))
    assert "Idempotency-Replayed" not in keyed(guarded, "a", *change, secret=secrets["two"]).expect(200).headers
    url = guarded.ask("b", "POST", f"/v1/fleet/sessions/{session}/move", {"to": "a"}).headers["Location"]
    guarded["a"].ask("POST", url[url.index("/v1/"):], {"to": "a"}).expect(200)
    for secret in secrets.values():
        assert keyed(guarded, "a", *change, secret=secret).expect(200).headers["Idempotency-Replayed"] == "true"
    guarded.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)
