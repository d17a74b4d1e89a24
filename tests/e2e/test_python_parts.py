"""The Python client's transfers in parts: the same bytes, all or nothing, one generation; and its own refusals."""
import threading

import numpy as np
import pytest
from pyclient import client_of, gpubuf

from gpubuf import _parts
from values import payload

PART = 1 << 20
MANY = 5 * PART + 12


@pytest.fixture
def c(daemon, session, monkeypatch):
    monkeypatch.setattr(_parts, "PART_BYTES", PART)
    with client_of(daemon, session) as client:
        yield client


@pytest.fixture
def asked(c, monkeypatch):
    """[(method, target, thread)] of all requests; a function put into .before is called before each."""
    class Asked(list):
        before = None

    seen, ask = Asked(), c._transport.ask

    def spy(method, target, *args, **more):
        if seen.before:
            seen.before(method, target)
        seen.append((method, target, threading.get_ident()))
        return ask(method, target, *args, **more)

    monkeypatch.setattr(c._transport, "ask", spy)
    return seen


def parts_of(asked, method):
    return [(target, thread) for m, target, thread in asked if m == method and ("/parts?" in target or method == "GET")]


# --- the same bytes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("connections", [2, 3, 64])
def test_there_and_back(c, asked, connections):
    array = np.frombuffer(payload(MANY), "float32")[: MANY // 4].reshape(1, -1)
    meta = c.put("x", array, connections=connections, kind="pinned")
    assert ((meta["dtype"], meta["shape"], meta["kind"], meta["generation"]) == ("float32", [1, MANY // 4], "pinned", 1)
            and meta["etag"])
    sent = parts_of(asked, "PUT")
    assert len(sent) == 6 and threading.get_ident() not in {t for _, t in sent}
    del asked[:]
    got = c.get("x", connections=connections)
    assert (got.dtype, got.shape) == (array.dtype, array.shape) and got.tobytes() == array.tobytes()
    assert len(parts_of(asked, "GET")) == 6 and asked[0][0] == "HEAD"
    assert c.get("x", raw=True, connections=connections) == array.tobytes()
    out = np.empty_like(array)
    assert c.get("x", out=out, connections=connections) is out and out.tobytes() == array.tobytes()
    assert c.get("x", slice=np.s_[0, : MANY // 8], connections=connections).tobytes() == array[0, : MANY // 8].tobytes()
    assert c.verify("x")["match"]


def test_what_goes_over_one_connection(c, asked):
    data = payload(MANY)
    c.put("x", data[:PART], connections=4)
    c.put("x", data, connections=1)
    c.put("x", data, connections=4, in_place=True)
    c.put("x", data[: 2 * PART], connections=4, offset=PART)
    assert c.submit(c.put, "x", data, connections=4)["state"] in ("queued", "running", "done")
    assert c.get("x", raw=True, offset=5, length=3 * PART, connections=4) is not None
    assert parts_of(asked, "PUT") == [] and len(parts_of(asked, "GET")) == 1


@pytest.mark.parametrize("empty", [0, 1])
def test_few_bytes(c, empty):
    c.put("x", bytes(empty), connections=8)
    assert c.get("x", raw=True, connections=8) == bytes(empty)


def test_parts_are_few_enough():
    for total in (1, PART, _parts.PART_BYTES * _parts.PARTS_MAX, _parts.PART_BYTES * _parts.PARTS_MAX + 1, 1 << 50):
        cut = _parts.cut(total)
        assert len(cut) <= _parts.PARTS_MAX and cut[0].offset == 0 and sum(p.length for p in cut) == total
        assert all(a.offset + a.length == b.offset for a, b in zip(cut, cut[1:]))


# --- progress ---------------------------------------------------------------------------------------------------------


def test_progress_comes_to_the_callers_thread(c):
    told = []

    def progress(done, total):
        told.append((done, total, threading.get_ident()))

    data = payload(MANY)
    for move in (lambda: c.put("x", data, connections=3, progress=progress),
                 lambda: c.get("x", connections=3, progress=progress)):
        del told[:]
        move()
        assert [t[0] for t in told] == sorted({t[0] for t in told}) and told[-1][:2] == (MANY, MANY)
        assert {t[2] for t in told} == {threading.get_ident()}


def test_what_progress_raises_ends_it_and_nothing_changed(c, daemon, session):
    c.put("x", b"old")
    old = c.info("x")

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        c.put("x", payload(MANY), connections=3, progress=stop)
    assert c.info("x") == old and daemon.open_uploads(session) == []
    c.put("x", payload(MANY))
    with pytest.raises(KeyboardInterrupt):
        c.get("x", connections=3, progress=stop)
    assert c.get("x", raw=True) == payload(MANY)


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_part_that_fails_ends_all(c, asked, daemon, session):
    def fail(method, target):
        if "/parts?offset=%d" % (3 * PART) in target:
            raise gpubuf.Unreachable("made up")

    asked.before = fail
    with pytest.raises(gpubuf.Unreachable, match="made up"):
        c.put("x", payload(MANY), connections=2)
    asked.before = None
    assert daemon.open_uploads(session) == [] and c.list() == []


def test_conditions(c, daemon, session):
    c.put("x", payload(MANY), connections=2, if_none_match="*")
    for wrong in ({"if_none_match": "*"}, {"if_match": "1.1.none"}):
        with pytest.raises(gpubuf.PreconditionFailed):
            c.put("x", payload(MANY), connections=2, **wrong)
    tag = c.put("x", payload(MANY), connections=2)["etag"]
    assert (c.put("x", payload(MANY, 2), connections=2, if_match=tag)["generation"] == 3
            and daemon.open_uploads(session) == [])
    with pytest.raises(gpubuf.PreconditionFailed):
        c.get("x", connections=2, if_match=tag)
    with pytest.raises(gpubuf.BufferNotFound, match="none"):
        c.get("none", connections=2)


@pytest.mark.parametrize("named", [False, True])
def test_a_buffer_that_is_replaced_meanwhile(c, asked, daemon, session, named):
    """Never bytes of two generations: the later generation, or an error if the caller named the earlier."""
    tag = c.put("x", payload(MANY, 1))["etag"]
    new, replaced = payload(MANY, 2), []

    def replace(method, target):
        if method == "GET" and not replaced:
            replaced.append(daemon.put("x", new, session).expect(200))

    asked.before = replace
    if named:
        with pytest.raises(gpubuf.PreconditionFailed):
            c.get("x", connections=2, if_match=tag)
    else:
        assert c.get("x", raw=True, connections=2) == new
    assert replaced


def test_a_buffer_that_is_mapped_for_writing(c):
    c.put("x", payload(MANY), kind="pinned")
    with c.map("x", "write"):
        assert c.get("x", raw=True, connections=3) == payload(MANY)


# --- wrong calls ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call, builtin", [
    (lambda c: c.put("x", b"1", connections=0), ValueError), (lambda c: c.put("x", b"1", connections=65), ValueError),
    (lambda c: c.get("x", connections=True), ValueError), (lambda c: c.get("x", connections="2"), ValueError),
    (lambda c: c.put("", b"1"), ValueError), (lambda c: c.put("x", object()), TypeError),
    (lambda c: c.put("x", [[1], [1, 2]]), TypeError), (lambda c: c.put("x", b"123", dtype="float32"), ValueError),
    (lambda c: c.put("x", b"123", dtype="red"), TypeError), (lambda c: c.put("x", b"123", shape="no"), TypeError),
    (lambda c: c.put("x", b"1", wait="long"), TypeError), (lambda c: c.put("x", b"1", if_match="a\r\nb: c"),
                                                           ValueError),
    (lambda c: c.get("x", raw=True, out=np.empty(1)), ValueError), (lambda c: c.get("x", slice=1.5), TypeError),
    (lambda c: c.create("x", bytes=1, labels={"a": object()}), TypeError), (lambda c: c.map("x", "append"), ValueError),
    (lambda c: c.submit(len, 1), TypeError), (lambda c: c.tensors_get("x"), TypeError),
    (lambda c: c.with_session(""), ValueError), (lambda c: gpubuf.Client("http://h:99999"), ValueError),
    (lambda c: c.get("x", slice=np.array([True, False])), TypeError), (lambda c: c.create("x", dtype="int8", shape=1.5),
                                                                       TypeError),
    (lambda c: c.create("x", dtype="int8", shape="4"), TypeError), (lambda c: c.create("x", dtype=3, shape=1),
                                                                    TypeError),
    (lambda c: gpubuf.Client(timeout="a"), TypeError), (lambda c: gpubuf.Client(timeout=0), ValueError),
    (lambda c: c.list(prefix=3), TypeError), (lambda c: gpubuf.Client(5), TypeError),
    (lambda c: gpubuf.Client(socket=5), TypeError), (lambda c: gpubuf.Client(token=5), TypeError),
    (lambda c: c.tensors_put([1]), TypeError), (lambda c: c.tensors_get(3), TypeError),
    (lambda c: c.tensors_get([3]), TypeError), (lambda c: c.copy(3, "x"), TypeError),
    (lambda c: c.map("x", ways=3), TypeError), (lambda c: c.batch(3), TypeError), (lambda c: c.batch([3]), TypeError),
    (lambda c: c.feed(type=3), TypeError), (lambda c: c.verify("x", algorithms="md5"), TypeError),
    (lambda c: c.checkpoint("x", names=3), TypeError), (lambda c: c.put("x", b"1", if_match=3), TypeError),
    (lambda c: gpubuf.Client("h:x"), ValueError), (lambda c: gpubuf.Client(token="a b"), ValueError),
])
def test_a_wrong_call_is_an_error_of_ours_and_pythons(c, asked, call, builtin):
    with pytest.raises(gpubuf.BadCall) as e:
        call(c)
    assert (isinstance(e.value, builtin) and isinstance(e.value, gpubuf.Error) and e.value.detail
            and not e.value.retryable)
    # No request was sent, except if the header itself could not be sent.
    assert [a for a in asked if a[0] != "PUT"] == [] and c.list() == []


def test_a_closed_client(daemon):
    c = client_of(daemon)
    c.close()
    with pytest.raises(gpubuf.Closed) as e:
        c.list()
    assert isinstance(e.value, RuntimeError) and isinstance(e.value, gpubuf.Error)
