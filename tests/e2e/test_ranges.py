"""Range, HEAD and the conditions of a GET."""
import email
import email.policy
import io

import numpy as np
import pytest

import values
from harness import DATA, SLOT, library
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
    h = daemon.ask("HEAD", path, None, {"Range": "bytes=" + value}).expect(200)  # only GET knows ranges
    assert h.body == b"" and int(h.headers["Content-Length"]) == SIZE and "Content-Range" not in h.headers


@pytest.mark.parametrize("value", [f"{SIZE}-", f"{SIZE}-{SIZE + 5}", "-0", "99999999999999999999999-", f"{SIZE}-,-0"])
def test_beyond(daemon, path, value):
    r = daemon.ask("GET", path, None, {"Range": "bytes=" + value})
    r.problem(416, "range_not_satisfiable")
    assert r.headers["Content-Range"] == f"bytes */{SIZE}"


@pytest.mark.parametrize("value", ["bytes=5-2", "bytes=a-b", "lines=1-2", "bytes=", "bytes=-", "bytes=0-1,5-4",
                                   "bytes=,", "bytes 0-1", "bytes=" + ",".join(f"{i}-{i}" for i in range(0, 130, 2))])
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


def parts_of(r):
    """The parts of a multipart/byteranges as {"a-b/total": bytes}, read by Python's own parser."""
    head = f"Content-Type: {r.headers['Content-Type']}\r\n\r\n".encode()
    message = email.message_from_bytes(head + r.body, policy=email.policy.HTTP)
    assert message.get_content_type() == "multipart/byteranges" and "Content-Range" not in r.headers
    assert not message.defects and int(r.headers["Content-Length"]) == len(r.body)
    found = []
    for part in message.iter_parts():
        assert not part.defects and part["Content-Type"] in ("application/octet-stream", "application/x-npy")
        unit, where = part["Content-Range"].split(" ")
        assert unit == "bytes"
        found.append((where, part.get_payload(decode=True)))
    return found


def expected(whole, ranges):
    return [(f"{a}-{b}/{len(whole)}", whole[a:b + 1]) for a, b in ranges]


@pytest.mark.parametrize("value, ranges", [
    ("0-0,2-2", [(0, 0), (2, 2)]),
    ("5-9, 0-3 ,-2", [(5, 9), (0, 3), (N - 1, N)]),
    (f"0-{SLOT},{2 * SLOT}-", [(0, SLOT), (2 * SLOT, N)]),
    (f"{2 * SLOT}-,0-{2 * SLOT - 1}", [(2 * SLOT, N), (0, 2 * SLOT - 1)]),
    (f"100-200,{SIZE}-,300-400", [(100, 200), (300, 400)]),
    ("10-20,15-30,40-41,1-2", [(10, 30), (40, 41), (1, 2)]),
    (",".join(f"{i}-{i + 3}" for i in range(0, 64 * 1000, 1000)), [(i, i + 3) for i in range(0, 64 * 1000, 1000)]),
])
def test_several_ranges(daemon, path, value, ranges):
    r = daemon.ask("GET", path, None, {"Range": "bytes=" + value}).expect(206)
    assert parts_of(r) == expected(DATA_BYTES, ranges)
    assert daemon.ask("HEAD", path, None, {"Range": "bytes=" + value}).expect(200).body == b""


@pytest.mark.parametrize("value, first, last", [
    ("0-9,5-20", 0, 20), (f"3-4,{SIZE}-", 3, 4), ("3-4,-0", 3, 4), (f"5-,{SLOT}-,0-6", 0, N), ("7-7,7-7,7-7", 7, 7),
])
def test_several_that_become_one(daemon, path, value, first, last):
    r = daemon.ask("GET", path, None, {"Range": "bytes=" + value}).expect(206)
    assert r.headers["Content-Range"] == f"bytes {first}-{last}/{SIZE}" and r.body == DATA_BYTES[first:last + 1]


def test_several_ranges_of_npy(daemon, session):
    array = values.array_of("int16", (50, 1000))
    daemon.put("x", values.npy(array), session).expect(201)
    path = DATA.format(session, "x") + "?format=npy"
    whole = daemon.ask("GET", path).expect(200).body
    ranges = [(3, 9), (100, 140), (len(whole) - 5, len(whole) - 1), (20, 30), (60000, 90000)]
    r = daemon.ask("GET", path, None, {"Range": "bytes=" + ",".join(f"{a}-{b}" for a, b in ranges)}).expect(206)
    assert parts_of(r) == expected(whole, ranges)


def test_several_ranges_and_conditions(daemon, session, path):
    tag = daemon.ask("GET", path).headers["ETag"]
    several = {"Range": "bytes=0-1,5-6"}
    r = daemon.ask("GET", path, None, {**several, "If-Range": tag}).expect(206)
    assert r.headers["ETag"] == tag and len(parts_of(r)) == 2
    assert daemon.ask("GET", path, None, {**several, "If-Range": '"other"'}).expect(200).body == DATA_BYTES
    daemon.ask("GET", path, None, {**several, "If-None-Match": tag}).expect(304)
    boundaries = {daemon.ask("GET", path, None, several).headers["Content-Type"] for _ in range(5)}
    assert len(boundaries) == 5


def test_several_ranges_by_requests(daemon, path):
    requests = library("requests")
    r = requests.get(daemon.url(path), headers={"Range": "bytes=1-2,9-12"}, timeout=90)
    assert r.status_code == 206
    boundary = r.headers["Content-Type"].split("boundary=")[1].encode()
    bodies = [p.split(b"\r\n\r\n", 1)[1][:-2] for p in r.content.split(b"--" + boundary)[1:-1]]
    assert bodies == [DATA_BYTES[1:3], DATA_BYTES[9:13]]


# --- bytes at an offset -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query, first, end", [
    ("offset=0&length=1", 0, 1), ("offset=17", 17, SIZE), ("length=300000", 0, 300000), (f"offset={SIZE}", SIZE, SIZE),
    (f"offset={SIZE}&length=0", SIZE, SIZE), ("offset=5&length=0", 5, 5), (f"offset={N}&length=1", N, SIZE),
    (f"offset={SLOT - 1}&length={SLOT + 2}", SLOT - 1, 2 * SLOT + 1), (f"length={SIZE}", 0, SIZE),
])
def test_bytes_at_an_offset(daemon, path, query, first, end):
    whole = daemon.ask("GET", path)
    r = daemon.ask("GET", f"{path}?{query}").expect(200)
    assert r.body == DATA_BYTES[first:end] and int(r.headers["Content-Length"]) == end - first
    assert r.headers["ETag"] == whole.headers["ETag"] and "Content-Range" not in r.headers
    assert "Gpubuf-Crc32c" not in r.headers and "Gpubuf-Shape" not in r.headers and r.headers["Accept-Ranges"] == "none"
    h = daemon.ask("HEAD", f"{path}?{query}").expect(200)
    assert h.body == b"" and int(h.headers["Content-Length"]) == end - first
    daemon.ask("GET", f"{path}?{query}", None, {"If-None-Match": r.headers["ETag"]}).expect(304)


@pytest.mark.parametrize("query, numbers", [
    (f"offset={SIZE + 1}", [SIZE + 1, SIZE]), (f"length={SIZE + 1}", [SIZE + 1, SIZE]),
    (f"offset=1&length={SIZE}", [1, SIZE]), ("offset=9223372036854775807", [2**63 - 1, SIZE]),
    ("offset=9&length=9223372036854775807", [2**63 - 1, 9, SIZE]),
])
def test_bytes_beyond_the_end(daemon, path, query, numbers):
    r = daemon.ask("GET", f"{path}?{query}")
    p = r.problem(416, "range_not_satisfiable")
    assert all(str(n) in p["detail"] for n in numbers) and r.headers["Content-Range"] == f"bytes */{SIZE}"


@pytest.mark.parametrize("query, headers, word", [
    ("offset=-1", {}, "offset"), ("offset=x", {}, "offset"), ("length=1.5", {}, "length"), ("length=", {}, "length"),
    ("offset=9223372036854775808", {}, "offset"), ("offset=1", {"Range": "bytes=0-1"}, "Range"),
    ("offset=1&slice=0", {}, "slice"), ("length=1&format=npy", {}, "slice"),
])
def test_offsets_that_are_refused(daemon, path, query, headers, word):
    assert word in daemon.ask("GET", f"{path}?{query}", None, headers).problem(400, "invalid_argument")["detail"]


def test_bytes_at_an_offset_are_no_npy(daemon, path):
    daemon.ask("GET", path + "?offset=1", None, {"Accept": "application/x-npy"}).problem(406, "not_acceptable")
    assert (daemon.ask("GET", path + "?offset=1", None, {"Accept": "application/x-npy, */*;q=0.1"}).expect(200).body
            == DATA_BYTES[1:])


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
