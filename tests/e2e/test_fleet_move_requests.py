"""Requests of every kind that are under way at a session's owner when the session goes to another node."""
import http.client
import json
import os
import threading

import pytest

from feed import Feed
from fleet import Fleet, session  # noqa: F401
from harness import DATA, until
from test_every import operations
from test_fleet_move import moved, moves
from values import safetensors_of

pytestmark = [pytest.mark.once, pytest.mark.timeout(240)]

S = "/v1/sessions/{session}"
BIG = 12_000_000  # more than two sockets hold


@pytest.fixture(scope="module")
def pair():
    fleet = Fleet("ab")
    fleet.joined()
    yield fleet
    fleet.agree()
    fleet.end()


def scene(fleet, session, at="a"):
    """A session with one of everything that a path can name."""
    fleet.make(at, session)
    path = "/v1/sessions/" + session
    for kind, name in (("pools", "p"), ("streams", "st"), ("events", "e")):
        fleet.ask(at, "POST", f"{path}/{kind}", {"name": name}).expect(201)
    for name in "bn":
        fleet.ask(at, "PUT", DATA.format(session, name), bytes(256)).expect(201)
    return path


def freed(fleet, name="a"):
    until("the former owner has nothing left", lambda: not fleet.superseded_at(name))


def delete(fleet, name, session):
    fleet.ask(name, "DELETE", "/v1/sessions/" + session).expect(204)


# --- downloads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["data", "range", "slice", "evicted", "tensors", "twice"])
def test_a_download_ends_at_the_former_owner(pair, session, how):
    """It holds the bytes that it sends, wherever the session is by then."""
    pair.make("a", session, durability="sync" if how == "evicted" else "none")
    body = os.urandom(BIG)
    pair.ask("a", "PUT", DATA.format(session, "x") + f"?dtype=uint8&shape={BIG}", body).expect(201)
    target, headers = DATA.format(session, "x"), []
    if how == "evicted":
        pair.ask("a", "POST", f"/v1/sessions/{session}/buffers/x/evict").expect(200)
    if how == "range":
        headers, body = [f"Range: bytes=7-{BIG - 8}"], body[7:-7]
    if how == "slice":
        target, body = target + f"?slice=1:{BIG}:2", body[1::2]
    if how == "tensors":
        target = f"/v1/sessions/{session}/tensors?names=x"
    with pair["a"].raw(receive_bytes=1 << 16) as r:
        r.request("GET", target, headers)
        status, head = r.head()
        assert status in (200, 206)
        got = r.exactly(1 << 16)
        moved(pair, session, "b")
        if how == "twice":
            moved(pair, session, "a", at="b", former="b", epoch=3)
        freed(pair)
        freed(pair, "b")
        got += r.exactly(int(head["Content-Length"]) - len(got))
    assert got[len(got) - len(body):] == body
    delete(pair, "a" if how == "twice" else "b", session)


# --- every route ------------------------------------------------------------------------------------------------------


def judge(fleet, op, reply):
    """What a client is answered whose session has gone to another node while it asked: where it is, or to try again."""
    said = reply.body.decode(errors="replace") + str(reply.headers)
    assert ".superseded-" not in said and ".arriving-" not in said, (op, said)
    assert reply.headers.get("Gpubuf-Epoch") != "0", (op, said)
    if reply.status == 307:
        assert reply.headers["Location"].startswith(fleet.url("b")), (op, said)
        return 307
    problem = reply.json()
    if problem["code"] == "session_moving":
        assert problem["retryable"] and reply.headers["Retry-After"] == "1", (op, said)
    return problem["code"]


def bytes_of(op, session, upload):
    """A request that could be carried out, as far as a path with these names can."""
    if op.route.endswith("/tensors"):
        body = safetensors_of(b=bytes(256))
    else:
        body = (json.dumps({**op.sample(), **({"from": "n"} if op.route.endswith("/copy") else {})}).encode()
                if op.schema else bytes(256))
    target = op.path(session=session, upload=upload)
    lines = [f"{op.method} {target} HTTP/1.1", "Host: localhost", *op.headers]
    if op.takes_body or op.method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(body) if op.takes_body else 0}")
    return "\r\n".join([*lines, "", ""]).encode() + (body if op.takes_body else b"")


def test_half_a_request_of_every_route(pair, session):
    """Its rest comes when the session is at another node: it is not told that there is no such session."""
    path = scene(pair, session)
    upload = pair.ask("a", "POST", path + "/uploads", {"buffer": "u", "bytes": 4}).json()["id"]
    pair.ask("a", "DELETE", f"{path}/uploads/{upload}").expect(204)
    halves = []
    for op in operations(pair["a"]):
        if not op.route.startswith(S) or op.method == "HEAD":
            continue
        whole = bytes_of(op, session, upload)
        head = whole.index(b"\r\n\r\n") + 4
        cuts = [head // 2] + [head, (head + len(whole)) // 2] * (len(whole) > head)
        for cut in cuts:
            r = pair["a"].raw()
            r.sock.sendall(whole[:cut])
            halves.append((f"{op.method} {op.route} cut at {cut} of {len(whole)}", r, whole[cut:]))
    feed = Feed(pair["a"])
    moved(pair, session, "b")
    freed(pair)
    for op, r, rest in halves:
        try:
            r.sock.sendall(rest)
        except OSError:
            pass  # it was answered before
        code = judge(pair, op, r.reply())
        if code not in (307, "session_moving"):  # those that are refused for their path, body or machine alone
            assert code in ("not_here", "upload_not_found", "unsupported_array", "upload_wrong_kind"), (op, code)
        r.close()
    pair.make("a", session + ".last")
    told = []
    while not told or told[-1].get("session") != session + ".last":
        told.append(feed.next())
    assert not [e for e in told if ".superseded-" in json.dumps(e)], told
    assert [e["type"] for e in told if e.get("session") == session] == ["session.superseded"], told
    feed.close()
    assert ".superseded-" not in pair["a"].log()
    delete(pair, "a", session + ".last")
    delete(pair, "b", session)


def test_those_that_wait(pair, session):
    """For a change of what they have read, and for a stream that is held."""
    path = scene(pair, session)
    waiting = []
    for target in (path, path + "/buffers/b"):
        tag = pair.ask("a", "GET", target).headers["Etag"]
        r = pair["a"].raw()
        r.request("GET", target, [f"If-None-Match: {tag}", "Prefer: wait=60"])
        waiting.append((target, r))
    pair.ask("a", "POST", path + "/streams/st/hold", {"ms": 10000}).expect(200)
    sync = pair.ask("a", "POST", path + "/streams/st/sync", {}, {"Prefer": "respond-async"}).expect(202).json()
    fill = pair.ask("a", "POST", path + "/buffers/b/verify?stream=st", {},
                    {"Prefer": "respond-async"}).expect(202).json()
    moved(pair, session, "b")
    for target, r in waiting:
        assert judge(pair, target, r.reply()) == "session_moving"
        r.close()
    for op in (sync, fill):
        ended = until("it has ended",
                      lambda op=op: (o := pair.ask("a", "GET", f"/v1/operations/{op['id']}").json())["state"]
                      not in ("queued", "running") and o)
        assert ended["state"] == "done" or ended["problem"]["code"] == "session_moving", ended
        assert ".superseded-" not in json.dumps(ended)
    freed(pair)
    delete(pair, "b", session)


def test_a_checkpoint_whose_session_has_gone(pair, session):
    """Its files stay where they are."""
    path = scene(pair, session)
    pair.ask("a", "POST", path + "/checkpoints", {"name": session}).expect(201)
    moved(pair, session, "b")
    p = pair.ask("a", "POST", f"/v1/checkpoints/{session}/restore", {"replace": True}).problem(409, "not_here")
    assert '"b"' in p["detail"]
    pair.ask("a", "POST", f"/v1/checkpoints/{session}/restore", {"into": "none"}).problem(404, "session_not_found")
    delete(pair, "b", session)
    pair.ask("a", "DELETE", f"/v1/checkpoints/{session}").expect(204)


class Storm(threading.Thread):
    """Asks one thing after another, each where the session is as far as it knows, and notes the answers."""

    def __init__(self, fleet, session, ops, upload):
        super().__init__(daemon=True)
        self.fleet, self.session, self.ops, self.upload = fleet, session, ops, upload
        self.ended, self.wrong, self.codes = threading.Event(), [], set()
        self.start()

    def run(self):
        while not self.ended.is_set():
            for op in self.ops:
                for name in "ab":
                    try:
                        self.ask(op, name)
                    except Exception as e:  # pylint: disable=broad-except
                        self.wrong.append((op.method, op.route, name, repr(e)))
                        return

    def ask(self, op, name):
        with self.fleet[name].raw() as r:
            r.sock.sendall(bytes_of(op, self.session, self.upload))
            reply = r.reply(head_only=op.method == "HEAD")
        said = (reply.body.decode(errors="replace") if op.method != "HEAD" else "") + str(reply.headers)
        code = reply.json()["code"] if reply.status >= 400 and reply.body else reply.status
        self.codes.add(code)
        if code == "session_not_found" or ".superseded-" in said or ".arriving-" in said:
            self.wrong.append((op.method, op.route, name, said))


def test_every_route_while_it_moves(pair, session):
    """To and fro."""
    path = scene(pair, session)
    upload = pair.ask("a", "POST", path + "/uploads", {"buffer": "u", "bytes": 4}).json()["id"]
    pair.ask("a", "DELETE", f"{path}/uploads/{upload}").expect(204)
    # Not those that keep it where it is, or end it.
    ops = [op for op in operations(pair["a"]) if op.route.startswith(S)
           and not op.route.endswith(("/uploads", "/map", "/adopt", "/export", "/hold")) and (op.method, op.route)
           != ("DELETE", S)]
    storms = [Storm(pair, session, ops[i::4], upload) for i in range(4)]
    at, to, epoch = "a", "b", 2
    try:
        while epoch < 10:
            reply = moves(pair, session, at, to=to)
            if reply.status == 200:
                at, to, epoch = to, at, epoch + 1
            else:
                assert reply.json()["retryable"], reply
    finally:
        for s in storms:
            s.ended.set()
        for s in storms:
            s.join(30)
    assert not [w for s in storms for w in s.wrong], [w for s in storms for w in s.wrong]
    until("it can be deleted", lambda: pair.ask(at, "DELETE", path).status == 204)


# --- a crash between the work and its answer --------------------------------------------------------------------------


@pytest.fixture
def crashing(pair):
    """Has a node end as soon as it did the work of a request with a key, and starts it again without that. Returns how
    it went."""

    def crash(name, method, target, body, headers):
        pair.options[name] = ["--disk-fault", "before_key@1=kill"]
        pair.kill(name)
        pair.start(name)
        pair.joined()
        try:
            answer = pair.ask(name, method, target, body, headers)
            raise AssertionError(f"it answered: {answer}")
        except (OSError, http.client.HTTPException):
            pass
        del pair.options[name]
        pair.kill(name)
        pair.start(name)
        pair.joined()
        first = pair.ask(name, method, target, body, headers)
        again = pair.ask(name, method, target, body, headers)
        assert again.status == first.status, (first, again)
        return first

    yield crash
    pair.options.clear()


def lost(reply):
    return reply.status == 409 and reply.json()["code"] == "idempotency_answer_lost"


@pytest.mark.parametrize("at", "ab")
def test_a_crash_before_a_place_is_answered(pair, session, crashing, at):
    """By the node that is asked; a is chosen."""
    headers = {"Idempotency-Key": session}
    answer = crashing(at, "POST", "/v1/fleet/sessions", {"name": session, "select": {"site": "a"}}, headers)
    assert lost(answer) or answer.status == 201, answer
    assert [name for name in "ab" if session in pair.registered_at(name)] == ["a"]
    assert pair.ask("a", "GET", "/v1/sessions/" + session).expect(200).json()["fleet"]["epoch"] == 1
    pair.ask("a", "DELETE", "/v1/sessions/" + session).expect(204)


def test_a_crash_before_a_move_is_answered(pair, session, crashing):
    """By the node that takes the session: it has it once, with its bytes, and the former node has it no more."""
    pair.make("a", session)
    pair.ask("a", "PUT", DATA.format(session, "x") + "?durability=sync", b"1234").expect(201)
    headers = {"Idempotency-Key": session}
    answer = crashing("b", "POST", f"/v1/fleet/sessions/{session}/move", {"to": "b"}, headers)
    assert lost(answer) or answer.status == 200, answer
    until("it has one owner", lambda: [name for name in "ab" if session in pair.registered_at(name)] in (["a"], ["b"]))
    owner = next(name for name in "ab" if session in pair.registered_at(name))
    assert pair.ask(owner, "GET", DATA.format(session, "x")).expect(200).body == b"1234"
    assert pair.ask(owner, "GET", "/v1/sessions/" + session).json()["fleet"]["epoch"] == (2 if owner == "b" else 1)
    pair.ask(owner, "DELETE", "/v1/sessions/" + session).expect(204)
