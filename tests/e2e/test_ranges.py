"""Range, HEAD and the conditions of a GET."""
import io

import numpy as np
import pytest

import values
from harness import DATA, SLOT
from values import payload

SIZE = 3 * SLOT + 7
DATA_BYTES = payload(SIZE)
N = SIZE - 1


@pytest.fixture
def path(daemon, session):
    daemon.put("x", DATA_BYTES, session).expect(201)
    return DATA.format(session, "x")


@pytest.mark.parametrize("value, first, last", [
    ("0-0", 0, 0), ("0-", 0, N), (f"0-{N}", 0, N), (f"0-{SIZE}", 0, N), ("0-99999999999999999999999", 0, N),
    (f"{N}-", N, N), (f"{N}-{N}", N, N), ("-1", N, N), (f"-{SIZE}", 0, N), (f"-{SIZE + 1}", 0, N),
    (f"{SLOT - 1}-{SLOT}", SLOT - 1, SLOT), (f"{SLOT}-{2 * SLOT - 1}", SLOT, 2 * SLOT - 1), ("17-300000", 17, 300000),
])
def test_one_range(daemon, path, value, first, last):
    r = daemon.ask("GET", path, None, {"Range": "bytes=" + value}).expect(206)
    assert r.headers["Content-Range"] == f"bytes {first}-{last}/{SIZE}"
    assert r.body == DATA_BYTES[first:last + 1]
    h = daemon.ask("HEAD", path, None, {"Range": "bytes=" + value})
    assert h.status in (200, 206) and h.body == b""


@pytest.mark.parametrize("value", [f"{SIZE}-", f"{SIZE}-{SIZE + 5}", "-0", "99999999999999999999999-"])
def test_beyond(daemon, path, value):
    r = daemon.ask("GET", path, None, {"Range": "bytes=" + value})
    r.problem(416, "range_not_satisfiable")
    assert r.headers["Content-Range"] == f"bytes */{SIZE}"


@pytest.mark.parametrize("value", ["bytes=5-2", "bytes=a-b", "lines=1-2", "bytes=", "bytes=-", "bytes=0-1,4-5", "bytes 0-1"])
def test_what_is_no_range_gives_the_whole(daemon, path, value):
    r = daemon.ask("GET", path, None, {"Range": value}).expect(200)
    assert r.body == DATA_BYTES and "Content-Range" not in r.headers


def test_head_says_what_get_would(daemon, path):
    h, g = daemon.ask("HEAD", path).expect(200), daemon.ask("GET", path).expect(200)
    assert h.body == b"" and int(h.headers["Content-Length"]) == SIZE
    for name in ("ETag", "Content-Type", "Accept-Ranges", "Gpubuf-Dtype", "Gpubuf-Shape", "Gpubuf-Generation"):
        assert h.headers[name] == g.headers[name]


def test_ranges_of_npy_count_in_what_is_sent(daemon, session):
    array = values.array_of("float64", (1000,))
    daemon.put("x", values.npy(array), session).expect(201)
    path = DATA.format(session, "x") + "?format=npy"
    whole = daemon.ask("GET", path).expect(200)
    assert int(daemon.ask("HEAD", path).headers["Content-Length"]) == len(whole.body)
    cut = [daemon.ask("GET", path, None, {"Range": f"bytes={a}"}).expect(206).body for a in ("0-9", "10-200", "201-")]
    assert b"".join(cut) == whole.body and np.array_equal(np.load(io.BytesIO(whole.body)), array)
    raw = daemon.ask("GET", DATA.format(session, "x"))
    assert raw.headers["ETag"] != whole.headers["ETag"] and whole.headers["Vary"] == "Accept"


def test_nothing_can_be_cut_from_nothing(daemon, session):
    daemon.put("x", b"", session).expect(201)
    assert daemon.data("x", session).expect(200).body == b""
    daemon.data("x", session, headers={"Range": "bytes=0-"}).problem(416, "range_not_satisfiable")


def test_conditions_of_a_get(daemon, path):
    ask = daemon.ask
    tag = ask("GET", path).headers["ETag"]
    for match in (tag, "W/" + tag, f'"x", {tag}', "*"):
        for method in ("GET", "HEAD"):
            r = ask(method, path, None, {"If-None-Match": match}).expect(304)
            assert r.headers["ETag"] == tag and r.body == b""
    assert ask("GET", path, None, {"If-None-Match": '"other"'}).expect(200).body == DATA_BYTES
    ask("GET", path, None, {"If-Match": tag}).expect(200)
    ask("GET", path, None, {"If-Match": "*"}).expect(200)
    ask("GET", path, None, {"If-Match": '"other"'}).problem(412, "precondition_failed")
    ask("GET", path, None, {"If-None-Match": tag, "Range": "bytes=0-1"}).expect(304)


def test_if_range(daemon, session, path):
    tag = daemon.ask("GET", path).headers["ETag"]
    part = {"Range": "bytes=5-9"}
    assert daemon.ask("GET", path, None, {**part, "If-Range": tag}).expect(206).body == DATA_BYTES[5:10]
    for other in ('"other"', "W/" + tag, "Tue, 01 Jan 2030 00:00:00 GMT"):
        assert daemon.ask("GET", path, None, {**part, "If-Range": other}).expect(200).body == DATA_BYTES
    daemon.put("x", b"0123456789", session).expect(200)
    assert daemon.ask("GET", path, None, {**part, "If-Range": tag}).expect(200).body == b"0123456789"


def test_a_304_touches_no_device(daemon, path):
    tag = daemon.ask("GET", path).headers["ETag"]
    before = daemon.settled()["transfers"]["download"]
    daemon.ask("GET", path, None, {"If-None-Match": tag}).expect(304)
    daemon.ask("HEAD", path).expect(200)
    assert daemon.settled()["transfers"]["download"] == before


def test_metadata_has_conditions_too(daemon, session, path):
    for target in (path[:-5], "/v1/sessions/" + session, "/v1/stats", "/v1", "/openapi.json"):
        daemon.settled()
        tag = daemon.ask("GET", target).expect(200).headers["ETag"]
        r = daemon.ask("GET", target, None, {"If-None-Match": tag}).expect(304)
        assert r.body == b"" and r.headers["ETag"] == tag
        daemon.ask("GET", target, None, {"If-None-Match": '"other"'}).expect(200)


@pytest.mark.parametrize("accept, form", [
    ("*/*", "raw"), ("application/*", "raw"), ("application/octet-stream", "raw"), ("application/x-npy", "npy"),
    ("application/x-npy;q=0.5, application/octet-stream", "raw"), ("application/x-npy, */*;q=0.1", "npy"), ("", "raw"),
    ("text/html", None), ("application/octet-stream;q=0", None),
])
def test_accept(daemon, path, accept, form):
    r = daemon.ask("GET", path, None, {"Accept": accept})
    if form is None:
        r.problem(406, "not_acceptable")
    else:
        assert (r.expect(200).body[:6] == b"\x93NUMPY") == (form == "npy")
