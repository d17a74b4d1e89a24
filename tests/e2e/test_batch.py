"""Many operations on buffers in one request."""
import random
import threading

import pytest

from conform import Session
from harness import token, until
from values import payload

ASYNC = {"Prefer": "respond-async"}


def batch(s, *operations, headers=None, **more):
    return s.ask("POST", "batch", {"operations": list(operations), **more}, headers)


def statuses(r):
    return [x["status"] for x in r.expect(200).json()["results"]]


def op(word, buffer, **fields):
    return {"op": word, "buffer": buffer, **fields}


def commits(s):
    return s.get("/v1/stats")["store"]["commits"]


def test_every_operation(s):
    a = payload(4096, 1)
    s.put("a", a)
    s.put("m", a, "?mirrored=true")
    r = batch(s, op("create", "x", bytes=4096), op("copy", "y", **{"from": "a"}),
              op("fill", "x", pattern=7, offset=8, bytes=8), op("sync", "m", to="device"),
              op("copy", "z", **{"from": s.name + "/x"}), op("release", "m", side="host"), op("delete", "x"),
              stream="default")
    assert statuses(r) == [201, 201, 200, 200, 201, 200, 204]
    results = r.json()["results"]
    assert (r.json()["done"], r.json()["failed"]) == (7, 0)
    assert [x["op"] for x in results] == "create copy fill sync copy release delete".split()
    assert results[3]["result"]["copied"] is True and results[1]["result"]["way"] and results[6]["result"] is None
    x = bytes(8) + b"\7" * 8 + bytes(4080)
    assert s.data("y") == a and s.data("z") == x and s.data("m") == a and s.names("buffers") == ["a", "m", "y", "z"]
    assert results[4]["result"] == {**s.meta("z"), "way": results[4]["result"]["way"]}


def test_what_the_single_requests_would_have_done(s):
    """Random batches against a model of them."""
    rng, model = random.Random(5), {}
    for round in range(25):
        operations, wanted = [], []
        for _ in range(rng.randrange(1, 30)):
            name, other = rng.choice("abcdef"), rng.choice("abcdef")
            what = rng.choice(["create", "fill", "fill", "copy", "copy", "delete"])
            if what == "create":
                operations.append(op("create", name, bytes=16))
                wanted.append(409 if name in model else 201)
                model.setdefault(name, bytes(16))
            elif what == "fill":
                byte = rng.randrange(256)
                operations.append(op("fill", name, pattern=byte, offset=4, bytes=8))
                wanted.append(200 if name in model else 404)
                if name in model:
                    model[name] = model[name][:4] + bytes([byte]) * 8 + model[name][12:]
            elif what == "copy":
                operations.append(op("copy", name, **{"from": other}))
                wanted.append(404 if other not in model else 200 if name in model else 201)
                if other in model:
                    model[name] = model[other]
            else:
                operations.append(op("delete", name))
                wanted.append(204 if name in model else 404)
                model.pop(name, None)
        assert statuses(batch(s, *operations)) == wanted, operations
        assert set(s.names("buffers")) == set(model)
        assert all(s.data(n) == data for n, data in model.items())


def test_one_commit(daemon, s):
    s.put("a", b"12345678")
    before = commits(s)
    r = batch(s, *[op("copy", f"c{i}", **{"from": "a"}) for i in range(1000)])
    assert r.expect(200).json()["done"] == 1000 and r.json()["results"][999]["buffer"] == "c999"
    assert commits(s) <= before + 10  # the housekeeper has changes of its own
    assert s.get()["buffers"] == 1001 and s.data("c500") == b"12345678"
    assert statuses(batch(s, *[op("delete", f"c{i}") for i in range(1000)])) == [204] * 1000
    assert s.names("buffers") == ["a"]


def test_failures_are_told_one_by_one(s):
    s.put("a", b"12345678")
    r = batch(s, op("fill", "a", pattern=1), op("fill", "none", pattern=1),
              op("copy", "b", **{"from": "a", "from_offset": 9}), op("delete", "gone"),
              op("copy", "c", **{"from": "a"}), op("sync", "a", to="host"))
    assert statuses(r) == [200, 404, 400, 404, 201, 400] and (r.json()["done"], r.json()["failed"]) == (2, 4)
    p = r.json()["results"][1]["problem"]
    assert p["code"] == "buffer_not_found" and "none" in p["detail"] and r.json()["results"][1]["result"] is None
    assert s.data("a") == s.data("c") == b"\1" * 8


def test_a_device_error_in_the_middle(start, backend):
    s = Session(start(spec=f"fault:place_fill@2=cudaErrorInvalidValue:{backend}"))
    for name in "abc":
        s.put(name, b"12345678")
    r = batch(s, *[op("fill", name, pattern=1) for name in "abc"])
    assert sorted(statuses(r)) == [200, 200, 500]
    for x in r.json()["results"]:
        assert s.data(x["buffer"]) == (b"\1" * 8 if x["status"] == 200 else b"12345678")
        assert (x["problem"] is None) == (x["status"] == 200)


def test_all_or_none(s):
    for name in "abd":
        s.put(name, b"12345678")
    before = s.get("buffers")
    for wrong, status, code in [(op("delete", "none"), 404, "buffer_not_found"),
                                (op("fill", "c", pattern=1), 404, "buffer_not_found"),
                                (op("copy", "c", **{"from": "b", "bytes": 99}), 400, "invalid_argument"),
                                (op("release", "b", side="all"), 400, "invalid_argument")]:
        for order in (0, 1):
            operations = [op("fill", "a", pattern=1), wrong]
            operations = operations[::-1] if order else operations
            p = batch(s, *operations, atomic=True).problem(status, code)
            assert p["detail"].startswith(f"operations[{1 - order}]: ") and p["detail"].endswith("nothing was changed")
            assert s.get("buffers") == before and s.data("a") == b"12345678"
    assert statuses(batch(s, op("fill", "a", pattern=1), op("delete", "b"), op("copy", "c", **{"from": "d"}),
                          atomic=True)) == [200, 204, 201]
    assert s.data("a") == b"\1" * 8 and s.data("c") == b"12345678" and s.names("buffers") == ["a", "d", "c"]
    used = s.get()["used_bytes"]
    for operations in ([op("create", "n", bytes=8)], [op("fill", "a", pattern=1, in_place=True)],
                       [op("delete", "a"), op("copy", "n", **{"from": "a"})], [op("delete", "a")] * 2):
        p = batch(s, *operations, atomic=True).problem(400, "invalid_argument")
        assert p["detail"].startswith(f"operations[{len(operations) - 1}]: ") and "an atomic batch" in p["detail"]
    until("all that was held is given back", lambda: s.get()["used_bytes"] <= used)


def test_an_atomic_one_that_the_device_breaks(start, backend):
    s = Session(start(spec=f"fault:place_fill@2=cudaErrorInvalidValue:{backend}"))
    for name in "abc":
        s.put(name, b"12345678")
    p = batch(s, *[op("fill", name, pattern=1) for name in "abc"], atomic=True).problem(500, "device_error")
    assert "nothing was changed" in p["detail"] and all(s.data(name) == b"12345678" for name in "abc")
    assert batch(s, *[op("fill", name, pattern=1) for name in "abc"], atomic=True).expect(200).json()["done"] == 3


WRONG = [
    ({}, "operations"), ({"operations": []}, "1 to"), ({"operations": {}}, "operations"),
    ({"operations": [1]}, "operations[0]"),
    ({"operations": [{"op": "delete", "buffer": "a"}, {"op": "burn", "buffer": "a"}]}, "operations[1]"),
    ({"operations": [{"op": "delete", "buffer": "a"}, {"op": "delete"}]}, "operations[1]"),
    ({"operations": [{"op": "delete", "buffer": "a"}, {"op": "delete", "buffer": "-"}]}, "operations[1]"),
    ({"operations": [{"op": "delete", "buffer": "a"}, {"op": "delete", "buffer": "a", "to": "host"}]}, "to"),
    ({"operations": [{"op": "delete", "buffer": "a"}, {"op": "fill", "buffer": "a"}]}, "operations[1]: give 'pattern'"),
    ({"operations": [{"op": "delete", "buffer": "a"}, {"op": "fill", "buffer": "a", "pattern": 999}]}, "operations[1]"),
    ({"operations": [{"op": "delete", "buffer": "a"}, {"op": "copy", "buffer": "a"}]}, "operations[1]: give 'from'"),
    ({"operations": [{"op": "delete", "buffer": "a"}, {"op": "create", "buffer": "n"}]}, "operations[1]"),
    ({"operations": [{"op": "delete", "buffer": "a"}, {"op": "sync", "buffer": "a"}]}, "operations[1]"),
    ({"operations": [{"op": "delete", "buffer": "a"}, {"op": "release", "buffer": "a", "side": "x"}]}, "operations[1]"),
    ({"operations": [{"op": "delete", "buffer": "a"}], "stream": 1}, "stream"),
    ({"operations": [{"op": "delete", "buffer": "a"}], "atomic": 1}, "atomic"),
    ({"operations": [{"op": "delete", "buffer": "a"}], "more": 1}, "more"),
]


@pytest.mark.parametrize("body, word", WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_named_and_nothing_is_changed(s, body, word):
    s.put("a", b"12345678")
    r = s.ask("POST", "batch", body).expect(400)
    assert word in r.json()["detail"] and s.names("buffers") == ["a"]


def test_limits(start, backend):
    s = Session(start("--max-batch", "3"))
    s.put("a", b"12345678")
    assert statuses(batch(s, *[op("copy", f"c{i}", **{"from": "a"}) for i in range(3)])) == [201] * 3
    p = batch(s, *[op("delete", f"c{i}") for i in range(4)]).problem(400, "invalid_argument")
    assert "--max-batch" in p["detail"] and len(s.names("buffers")) == 4
    s.ask("POST", "batch", b" " * (68 << 10)).problem(413, "body_too_large")
    s.ask("POST", "batch", b" " * (66 << 10)).expect(400)


def test_streams_and_sessions(daemon, s):
    s.post("streams", {"name": "st"}, 201)
    s.put("a", b"12345678")
    other = s.name + "-other"
    daemon.ask("POST", "/v1/sessions", {"name": other}).expect(201)
    daemon.put("o", b"87654321", other).expect(201)
    r = batch(s, op("fill", "a", pattern=1), op("copy", "o", **{"from": other + "/o"}, stream="default"), stream="st")
    assert statuses(r) == [200, 201] and [x["result"]["stream"] for x in r.json()["results"]] == ["st", "default"]
    assert s.data("o") == b"87654321"
    assert statuses(batch(s, op("fill", "a", pattern=1, stream="none"))) == [404]
    s.ask("POST", "/v1/sessions/none/batch", {"operations": [op("delete", "a")]}).problem(404, "session_not_found")
    daemon.ask("DELETE", "/v1/sessions/" + other).expect(204)


def test_rights(start, tmp_path):
    secrets = {n: token(tmp_path, "add", n, "--scope", "write", *more) for n,
               more in (("all", []), ("mine", ["--session", "mine"]))}
    d = start(state=str(tmp_path))
    d.ask("POST", "/v1/sessions", {"name": "mine"}, token=secrets["all"]).expect(201)
    d.ask("POST", "/v1/sessions/default/buffers", {"name": "x", "bytes": 8}, token=secrets["all"]).expect(201)
    body = {"operations": [op("create", "a", bytes=8), op("copy", "b", **{"from": "default/x"})]}
    p = d.ask("POST", "/v1/sessions/mine/batch", body, token=secrets["mine"]).problem(403, "forbidden")
    assert p["detail"].startswith("operations[1]")
    assert d.ask("GET", "/v1/sessions/mine/buffers", token=secrets["mine"]).json()["items"] == []
    d.ask("POST", "/v1/sessions/mine/batch", body, token=secrets["all"]).expect(200)


def test_with_a_key_and_left_to_itself(start, backend, tmp_path):
    d = start(spec=f"fault:place_fill@1=stall/1500:{backend}", state=str(tmp_path))
    s = Session(d)
    s.put("a", b"12345678")
    operations = [op("fill", "a", pattern=1), op("copy", "b", **{"from": "a"}), op("delete", "none")]
    first = batch(s, *operations, headers={**ASYNC, "Idempotency-Key": "k"}).expect(202)
    assert first.json()["kind"] == "batch"
    batch(s, *operations, headers={"Idempotency-Key": "k"}).problem(409, "idempotency_key_in_use")
    done = s.ask("GET", first.headers["Location"], None, {"Prefer": "wait=30"}).expect(200).json()
    assert done["state"] == "done" and done["result"]["done"] == 2
    again = batch(s, *operations, headers={"Idempotency-Key": "k"}).expect(200)
    assert again.json() == done["result"] and again.headers["Idempotency-Replayed"] == "true"
    d.kill()
    s = Session(start(state=str(tmp_path)))
    assert batch(s, *operations, headers={"Idempotency-Key": "k"}).expect(200).body == again.body
    assert s.meta("a")["generation"] == 2


def test_side_by_side(s):
    """Batches that use each other's buffers: each ends, and every buffer is in the state that one of them left."""
    names, wrong = [f"b{i}" for i in range(12)], []
    for name in names:
        s.put(name, bytes(64))

    def work(number):
        rng, client = random.Random(number), s.daemon.client()
        try:
            for _ in range(25):
                picked = rng.sample(names, 8)
                body = {"operations": [op("fill", n, pattern=number) for n in picked], "atomic": number % 2 == 0}
                r = client.ask("POST", s.base + "/batch", body)
                assert r.status == 200 or r.json()["retryable"], r
        except BaseException as e:  # reported by the main thread
            wrong.append(e)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 7)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong
    for name in names:
        data = s.data(name)
        assert data == data[:1] * 64
    until("nothing is held", lambda: s.get()["used_bytes"] == 64 * len(names))


def test_the_client_goes_and_the_wait_ends(start, backend):
    """Begun actions complete, and no request waits for the others."""
    d = start("--wait-max", "1", spec=f"fault:place_fill@1=stall/2500:{backend}")
    s = Session(d)
    s.put("a", b"12345678")
    p = batch(s, op("fill", "a", pattern=1), op("delete", "c"), op("create", "c", bytes=1)).problem(503, "timed_out")
    assert "2 of 3" in p["detail"]
    until("the fill is done", lambda: s.meta("a")["generation"] == 2)
    assert s.names("buffers") == ["a"]
    d.settled()


def test_copies_read_one_moment(s):
    """Two buffers that are always written as one are copied as one, also where the copies begin in several turns."""
    for name in "ab":
        s.put(name, bytes(64))
    done, wrong = threading.Event(), []

    def write():
        client = s.daemon.client()
        try:
            for n in range(10**6):
                fills = [op("fill", name, pattern=n % 256) for name in "ab"]
                client.ask("POST", s.base + "/batch", {"operations": fills, "atomic": True}).expect(200)
                if done.is_set():
                    return
        except BaseException as e:  # reported by the main thread
            wrong.append(e)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for round in range(40):
            copies = [op("copy", f"c{i}", **{"from": "ab"[i % 2]}) for i in range(80)]
            assert batch(s, *copies, atomic=round % 2 == 0).expect(200).json()["done"] == 80
            assert len({s.data(f"c{i}") for i in (0, 1, 2, 39, 40, 78, 79)}) == 1
    finally:
        done.set()
        writer.join()
    assert not wrong, wrong
