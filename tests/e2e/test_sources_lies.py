"""Copies from servers that break off, lie, stand still or change their bytes meanwhile (from_url)."""
import gzip
import os
import threading

import pytest

from conform import Session
from harness import until
from ports import free_url
from sources import (ASYNC, MIB, Answer, begun, digest, ended, nothing_left, owning, refused, tag_of,
                     take)
from test_tables import file, some
from values import array_of, npy, payload

BIG = payload(40 * MIB + 12345, 7)
FIRST = 256 << 10  # bytes that the first request asks for
ARRAY = npy(array_of("float32", (600, 1001)).T)  # in Fortran order
TABLE = file(some())


@pytest.fixture
def own(start):
    yield from owning(start)


# --- servers that break off -------------------------------------------------------------------------------------------


def test_a_broken_connection_goes_on_at_its_last_byte(own):
    server, s = own(BIG)

    def breaks(request, answer):
        if request.number > 1 and len(answer.body) > 3 * MIB:
            answer.cut = 2 * MIB + request.number

    server.lie = breaks
    pulled = take(s, server.url, parts=3)["pulled"]
    assert s.data("m") == BIG and pulled["resumed"] >= 6 and pulled["begun_again"] == 0
    assert pulled["received_bytes"] <= len(BIG) + MIB
    assert all(r.headers.get("If-Match", r.headers.get("If-Range")) == '"v1"' for r in server.requests[1:])


@pytest.mark.parametrize("breaks", [1, 3])
def test_a_broken_connection_without_ranges_begins_again(own, breaks):
    server, s = own(BIG, ranges=False)
    server.lie = lambda request, answer: setattr(answer, "cut", 20 * MIB if request.number <= breaks else None)
    pulled = take(s, server.url)["pulled"]
    assert s.data("m") == BIG and pulled["begun_again"] == breaks
    assert pulled["received_bytes"] == len(BIG) + breaks * 20 * MIB


def test_a_server_that_breaks_off_every_time(own):
    server, s = own(BIG[:100000], ranges=False)
    server.lie = lambda request, answer: setattr(answer, "cut", 50000)
    assert refused(s, server.url, 502, "source_unreachable")["retryable"]


@pytest.mark.parametrize("content", [payload(5000, 3), TABLE, BIG])
def test_a_break_in_the_first_bytes_goes_on_where_it_was(own, content):
    """Also within the header of a file, and of what one request would have brought."""
    server, s = own(content)
    n = min(len(content), 262144)
    first = min(n // 2, 40)  # of a table: within its header

    def breaks(request, answer):
        if request.number <= 3:
            answer.cut = first if request.number == 1 else 1

    server.lie = breaks
    m = take(s, server.url, **({"format": "safetensors"} if content is TABLE else {}))
    asked = server.ranges_asked()
    assert asked[:4] == [(0, 262143), *((first + i, n - 1) for i in range(3))], asked
    assert s.data("m") == content and (m["pulled"]["resumed"], m["pulled"]["begun_again"]) == (3, 0)


def test_no_end_of_breaks_in_the_first_bytes(own):
    server, s = own(payload(5000, 3))
    server.lie = lambda request, answer: setattr(answer, "cut", 40 if request.number == 1 else 0)
    assert refused(s, server.url, 502, "source_unreachable")["retryable"]
    assert len(server.requests) == 4


def test_a_chunked_body_that_is_cut(own):
    server, s = own(BIG[:300000], ranges=False, tag=None)

    def breaks(request, answer):
        answer.chunked, answer.cut = True, 250000

    server.lie = breaks
    refused(s, server.url, 502, "source_unreachable")
    assert len(server.requests) == 4


def test_a_server_that_closes_at_once(own):
    server, s = own(b"abc")
    server.lie = lambda request, answer: setattr(answer, "raw", b"")
    refused(s, server.url, 502, "source_unreachable", server.origin)


def test_a_server_that_is_not_there(start):
    origin = free_url()
    s = Session(start("--pull-from", origin))
    refused(s, origin + "/x", 502, "source_unreachable", origin)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_tag_that_changes_begins_again(own, ranges):
    server, s = own(BIG, ranges=ranges)

    def changes(request, answer):
        if request.number == 1:
            server.content, server.tag = BIG[::-1], tag_of(2)
            answer.cut = MIB

    server.lie = changes
    pulled = take(s, server.url)["pulled"]
    assert s.data("m") == BIG[::-1] and pulled["etag"] == '"v2"' and pulled["begun_again"] == 1


def test_a_tag_that_changes_each_time(own):
    server, s = own(BIG)

    def changes(request, answer):
        server.tag = tag_of(request.number + 1)
        answer.cut = MIB if len(answer.body) > MIB else None

    server.lie = changes
    assert refused(s, server.url, 409, "source_changed")["retryable"]


def test_an_expected_tag(own):
    server, s = own(BIG)
    assert refused(s, server.url, 409, "source_changed", '"v0"', if_match='"v0"')
    assert take(s, server.url, if_match='"v1"')["pulled"]["etag"] == '"v1"'
    s.delete("buffers/m")

    def changes(request, answer):
        if request.number > 3:
            server.content, server.tag = BIG[::-1], tag_of(2)
            answer.cut = MIB

    server.lie, server.requests = changes, []
    refused(s, server.url, 409, "source_changed", if_match='"v1"', parts=4)
    server.lie = None
    for tag in (None, 'W/"v1"'):
        server.tag = tag
        p = refused(s, server.url, 409, "source_changed", "no strong entity tag", if_match='"v1"')
        assert not p["retryable"]
    for bad in ("v1", 'W/"v1"', "", '"a"\r\nX: "', 5):
        r = s.ask("POST", "buffers/m/copy", {"from_url": server.url, "if_match": bad}).expect(400)
        assert "if_match" in r.json()["detail"]


def busy(status, times, **headers):
    """That answer to the first requests."""
    def lie(request, answer):
        if request.number > times:
            return None
        return Answer(status, {"Content-Length": "14", "Content-Type": "text/plain", "ETag": '"v0"', **headers},
                      b"not now, sorry")

    return lie


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_server_that_is_busy_is_asked_again(own, status):
    server, s = own(BIG[:100000], lie=busy(status, 2, **{"Retry-After": "1"}))
    take(s, server.url)
    assert s.data("m") == BIG[:100000] and len(server.requests) >= 3


@pytest.mark.parametrize("status", [199, 204, 300, 304, 400, 401, 403, 404, 410, 416, 418, 429, 500, 503, 600, 999])
def test_a_server_that_refuses(own, status):
    server, s = own(b"abc", lie=busy(status, 999))
    if status in (204, 304, 199):
        server.lie = lambda request, answer: Answer(status, {"ETag": '"v0"'}, b"")
    r = s.ask("POST", "buffers/m/copy", {"from_url": server.url})
    assert r.status in (502, 503, 504) and r.json()["code"] in ("source_refused", "source_unreachable"), r
    if status not in (199, 204, 300, 304, 600, 999):
        assert str(status) in r.json()["detail"] and "not now, sorry" in r.json()["detail"], r
    nothing_left(s)


def test_the_words_of_a_refusal(own):
    """The first line of plain text, in what a JSON document can have; of HTML none."""
    server, s = own(b"abc")
    for kind, words, said in (("text/plain", b"first line\nsecond", "first line"),
                              ("text/plain; charset=utf-8", b"tab\there \x1b[31mred\xff" + b"y" * 90000, "here"),
                              ("application/problem+json", b'{"code":"tea","detail":"no"}', "tea"),
                              ("application/xml", b"<Error><Code>NoSuchKey</Code></Error>", "404")):
        server.lie = lambda request, answer: Answer(404, {"Content-Type": kind, "Content-Length": str(len(words))},
                                                    words)
        p = refused(s, server.url, 502, "source_refused", "404", said)
        assert "second" not in p["detail"] and "\x1b" not in p["detail"] and len(p["detail"]) < 1000


# --- servers that lie -------------------------------------------------------------------------------------------------


def headers(**more):
    def lie(request, answer):
        answer.headers.update({k.replace("_", "-"): v for k, v in more.items()})
    return lie


def status(number):
    def lie(request, answer):
        answer.status = number
    return lie


def raw(data):
    def lie(request, answer):
        answer.raw = data
    return lie


def extra(request, answer):
    answer.body += b"x" * 5000


def later(lie):
    """The first answer is true."""
    return lambda request, answer: lie(request, answer) if request.number > 1 else None


def shifted(request, answer):
    if answer.status == 206:
        first, last, total = request.first, request.first + len(answer.body) - 1, len(BIG)
        answer.headers["Content-Range"] = f"bytes {first + 1}-{last + 1}/{total + 1}"


def shorter(request, answer):
    """A range that ends before the one asked for is permitted: the rest is asked for."""
    if answer.status == 206 and len(answer.body) > 2 * MIB:
        answer.body = answer.body[:2 * MIB]
        answer.headers["Content-Length"] = str(2 * MIB)
        answer.headers["Content-Range"] = f"bytes {request.first}-{request.first + 2 * MIB - 1}/{len(BIG)}"


def grows(request, answer):
    if answer.status == 206:
        answer.headers["Content-Range"] = answer.headers["Content-Range"].rpartition("/")[0] + f"/{len(BIG) + 7}"


def zipped(request, answer):
    answer.body = gzip.compress(answer.body[:1000])
    answer.headers.update({"Content-Encoding": "gzip", "Content-Length": str(len(answer.body))})


REFUSED, CHANGED = ("source_refused",), ("source_changed", "source_refused")
BROKEN = ("source_unreachable", "source_refused")
LIES = {
    "no HTTP": (raw(b"SSH-2.0-x\r\n\r\n"), REFUSED),
    "HTTP/9": (raw(b"HTTP/9.9 200 OK\r\n\r\n"), REFUSED),
    "a long head": (raw(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2000000 + b"\r\n\r\n"), BROKEN),
    "many headers": (raw(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100000 + b"\r\n"), REFUSED),
    "headers without end": (raw(b"HTTP/1.1 200 OK\r\n" + (b"X: " + b"y" * 1000 + b"\r\n") * 400), REFUSED),
    "two lengths": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), REFUSED),
    "a negative length": (headers(Content_Length="-5"), REFUSED),
    "a length in words": (headers(Content_Length="ten"), REFUSED),
    "the largest length": (headers(Content_Length=str(2 ** 64 - 1)), REFUSED),
    "a larger length than can be": (headers(Content_Length=str(2 ** 63)), REFUSED),
    "a larger total than can be": (headers(Content_Range=f"bytes 0-{FIRST - 1}/{2 ** 64 - 1}"), REFUSED),
    "a length beyond all": (headers(Content_Length="99999999999999999999999"), REFUSED),
    "gzip": (zipped, REFUSED),
    "gzip later": (later(zipped), REFUSED),
    "another range": (shifted, REFUSED),
    "another range later": (later(shifted), CHANGED),
    "no range": (lambda q, a: headers(Content_Range=None)(q, a), REFUSED),
    "no range later": (later(headers(Content_Range=None)), REFUSED),
    "a range of lines": (headers(Content_Range="lines 0-9/10"), REFUSED),
    "a range without end": (headers(Content_Range="bytes 5-2/9"), REFUSED),
    "a total that changes": (later(grows), CHANGED),
    "200 for a later range": (later(status(200)), CHANGED),
    "chunks that are none": (lambda q, a: setattr(a, "raw", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                             b"zz\r\nabc\r\n0\r\n\r\n"), BROKEN),
    "a coding of transfer": (headers(Transfer_Encoding="gzip, chunked"), REFUSED),
    "a coding of transfer alone": (headers(Transfer_Encoding="gzip"), REFUSED),
    "an unknown coding of transfer": (headers(Transfer_Encoding="rot13"), REFUSED),
    "multipart ranges": (headers(Content_Type="multipart/byteranges; boundary=x", Content_Range=None), REFUSED),
}


@pytest.mark.parametrize("case", LIES)
def test_a_server_that_lies(own, case):
    lie, codes = LIES[case]
    server, s = own(BIG, lie=lie)
    r = s.ask("POST", "buffers/m/copy", {"from_url": server.url, "parts": 4})
    assert r.status in (502, 409) and r.json()["code"] in codes, r
    nothing_left(s)


@pytest.mark.parametrize("length", [2 ** 63, 2 ** 64 - 1])
def test_a_length_that_cannot_be(own, length):
    """Without ranges, where it could be taken for none."""
    server, s = own(b"abc", ranges=False, lie=headers(Content_Length=str(length), Connection="close"))
    refused(s, server.url, 502, "source_refused", "length")
    assert len(server.requests) == 1


@pytest.mark.parametrize("case", ["a coding of transfer", "a coding of transfer alone", "many headers",
                                  "headers without end"])
def test_a_lie_that_is_not_asked_for_again(own, case):
    server, s = own(BIG, lie=LIES[case][0])
    refused(s, server.url, 502, "source_refused", "headers" if "headers" in case else "coding")
    assert len(server.requests) == 1


def test_trailers_without_end(own):
    """They are no part of the bytes, and libcurl keeps them all."""
    trailers = b"".join(b"X-%d: " % i + b"y" * 1000 + b"\r\n" for i in range(20000))
    server, s = own(b"", lie=raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n" +
                                 trailers + b"\r\n"))
    refused(s, server.url, 502, "source_refused", "headers")
    server.lie = raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n" + trailers[:100000] +
                     b"\r\n\r\n")
    take(s, server.url)
    assert s.data("m") == b"abc"


def test_a_length_that_is_too_large(own):
    """The rest never comes."""
    for ranges in (True, False):
        server, s = own(BIG[:100000], ranges=ranges)

        def more(request, answer):
            answer.headers["Content-Length"] = str(len(answer.body) + 10)
            answer.cut = len(answer.body)

        server.lie = more
        r = s.ask("POST", "buffers/m/copy", {"from_url": server.url})
        assert r.json()["code"] in BROKEN and r.status == 502, r
        nothing_left(s)


def test_more_bytes_than_were_told(own):
    """They are no part of the answer."""
    for ranges in (True, False):
        server, s = own(BIG[:100000], lie=extra, ranges=ranges)
        r = s.ask("POST", "buffers/m/copy", {"from_url": server.url})
        assert r.status == 201 and s.data("m") == BIG[:100000] or r.json()["code"] in BROKEN, r
        if r.status == 201:
            s.delete("buffers/m")
        nothing_left(s)


def test_shorter_ranges_than_asked_for(own):
    server, s = own(BIG, lie=shorter)
    r = s.ask("POST", "buffers/m/copy", {"from_url": server.url, "parts": 2})
    if r.status == 201:
        assert s.data("m") == BIG
    else:
        r.problem(502, "source_refused")
        nothing_left(s)


def test_ranges_that_are_announced_and_not_given(own):
    """Accept-Ranges is said, and each answer is the whole."""
    server, s = own(BIG, ranges=False, lie=headers(Accept_Ranges="bytes"))
    pulled = take(s, server.url, parts=4)["pulled"]
    assert s.data("m") == BIG and pulled["parts"] == 1 and len(server.requests) == 1


def test_an_if_range_that_is_answered_with_the_whole(own):
    """Only the first range is one: the server has another version, and says 200."""
    server, s = own(BIG)

    def whole(request, answer):
        if request.number == 1:
            answer.cut = MIB
            server.tag, server.content = tag_of(2), BIG[::-1]

    server.lie = whole
    take(s, server.url)
    assert s.data("m") == BIG[::-1]


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("body", [BIG[:3 * MIB + 1], ARRAY, TABLE], ids=["raw", "npy", "table"])
def test_a_digest_that_the_server_tells(own, ranges, body):
    server, s = own(body, ranges=ranges)
    said = {}
    server.lie = lambda request, answer: answer.headers.update(said)
    named = {"format": "safetensors"} if body is TABLE else {}
    right, long = digest(body), digest(body, "sha512")
    for header, value, verified in (
            ("Repr-Digest", f"sha-256=:{right}:", True), ("repr-digest", f"md5=:AAAA:, sha-512=:{long}:", True),
            ("Repr-Digest", f"sha-512=:{digest(b'', 'sha512')}:, sha-256=:{right}:", True),
            ("x-amz-checksum-sha256", right, True), ("x-amz-checksum-sha256", right[:-1] + "=-3", False),
            ("Repr-Digest", f"sha-256={right}", False), ("Repr-Digest", "sha-256=:AAAA:", False),
            ("Repr-Digest", ",=:,sha-256=::,sha-256=:", False), ("Repr-Digest", "", False),
            ("Content-Digest", f"sha-256=:{digest(b'')}:", False)):
        said.clear()
        said[header] = value
        made = take(s, server.url, status=200 if "m" in s.names("buffers") else 201, **named)
        assert made["pulled"]["verified"] is verified, (header, value)
    s.delete("buffers/m")
    for value in (f"sha-256=:{digest(b'')}:", f"sha-512=:{digest(b'', 'sha512')}:"):
        said.clear()
        said["Repr-Digest"] = value
        refused(s, server.url, 502, "source_refused", value[:7], "'digest' in the request replaces it", **named)
        nothing_left(s)
    p = s.ask("POST", "buffers/m/copy", {"from_url": server.url, **named, "digest": {"sha-512": digest(b"", "sha512")}})
    p.problem(400, "digest_mismatch")
    said["Repr-Digest"] = f"sha-256=:{digest(b'')}:"  # the request's own counts, and not the server's
    made = take(s, server.url, **named, digest={"sha-512": long})
    assert made["pulled"]["verified"] is False


@pytest.mark.parametrize("ranges", [True, False])
def test_digests_that_contradict_each_other(own, ranges):
    """Of one kind. With two kinds sha-256 is compared, as test_a_digest_that_the_server_tells has it."""
    server, s = own(BIG[:3 * MIB + 1], ranges=ranges)
    said = {}
    server.lie = lambda request, answer: answer.headers.update(said)
    right, wrong = digest(server.content), digest(b"")
    for said in ({"Repr-Digest": f"sha-256=:{wrong}:, sha-256=:{right}:"},
                 {"Repr-Digest": f"sha-256=:{right}:, sha-256=:{wrong}:"},
                 {"Repr-Digest": f"sha-256=:{wrong}:", "repr-digest": f"sha-256=:{right}:"},
                 {"Repr-Digest": f"sha-256=:{wrong}:", "x-amz-checksum-sha256": right}):
        refused(s, server.url, 502, "source_refused", "two different digests", "'digest' in the request")
    made = take(s, server.url, digest={"sha-256": right})
    assert made["pulled"]["verified"] is False
    said = {"Repr-Digest": f"sha-256=:{right}:, sha-256=:{right}:", "x-amz-checksum-sha256": right}
    assert take(s, server.url, status=200)["pulled"]["verified"] is True


def test_other_bytes_under_the_same_tag(own):
    """Only a digest sees that."""
    server, s = own(BIG)

    def lie(request, answer):
        if request.number > 1 and answer.body:
            answer.body = bytes([answer.body[0] ^ 1]) + answer.body[1:]

    server.lie = lie
    p = s.ask("POST", "buffers/m/copy", {"from_url": server.url, "digest": {"sha-256": digest(BIG)}}).problem(
        400, "digest_mismatch")
    assert digest(BIG) in p["detail"] or "sha-256" in p["detail"]
    nothing_left(s)


# --- servers that stand still -----------------------------------------------------------------------------------------


@pytest.fixture
def held(own):
    """Makes (server, session, operation of a copy that has some bytes, event that lets the rest come)."""
    events = []

    def make(content=BIG, **more):
        go = threading.Event()
        events.append(go)
        server, s = own(content, **more.pop("server", {}))

        def hold(request, answer):
            answer.hold, answer.held_at = go, min(len(answer.body), MIB)

        server.lie = hold
        operation = begun(s, server.url, **more)
        until("the upload", lambda: s.daemon.open_uploads(s.name))
        return server, s, operation, go

    yield make
    for go in events:
        go.set()


@pytest.mark.parametrize("ranges", [True, False])
def test_progress_and_cancel(held, ranges):
    server, s, operation, go = held(server={"ranges": ranges})
    assert s.daemon.open_uploads(s.name)[0]["buffer"] == "m"
    progress = until("bytes of it", lambda: (p := s.get("/v1/operations/" + operation)["progress"])["bytes"] and p)
    assert 0 < progress["bytes"] < progress["total_bytes"] == len(BIG)
    assert s.get("/v1/operations/" + operation)["state"] == "running"
    s.ask("DELETE", "/v1/operations/" + operation).expect(200)
    assert ended(s, operation)["state"] == "cancelled"
    nothing_left(s)


def test_it_goes_on(held):
    server, s, operation, go = held()
    go.set()
    op = ended(s, operation)
    assert op["state"] == "done" and s.data("m") == BIG and op["result"]["pulled"]["bytes"] == len(BIG)


def test_a_daemon_that_stops_gives_up(held):
    server, s, operation, go = held()
    assert "stopped: in order" in s.daemon.stop()


def test_the_session_goes(held):
    server, s, operation, go = held()
    s.ask("POST", "/v1/sessions", {"name": "t"}).expect(201)
    other = s.ask("POST", "/v1/sessions/t/buffers/y/copy", {"from_url": server.url}, ASYNC).expect(202).json()["id"]
    s.ask("DELETE", "/v1/sessions/t").expect(204)
    go.set()
    assert ended(s, other)["state"] in ("failed", "cancelled")
    assert ended(s, operation)["state"] == "done"


def test_copies_wait_for_each_other(own):
    go = threading.Event()
    server, s = own(BIG[:MIB], "--pulls", "1",
                    lie=lambda q, a: (setattr(a, "hold", go), setattr(a, "held_at", 1000))[2:])
    first = begun(s, server.url)
    until("it is asked", lambda: server.requests)
    second = begun(s, server.url, "n")
    states = [s.get("/v1/operations/" + o)["state"] for o in (first, second)]
    assert states == ["running", "queued"] and len(server.requests) == 1
    go.set()
    assert [ended(s, o)["state"] for o in (first, second)] == ["done", "done"]


@pytest.mark.rest
@pytest.mark.timeout(300)
@pytest.mark.parametrize("ranges", [True, False])
def test_a_server_that_stands_still_for_good(own, ranges):
    go = threading.Event()
    server, s = own(BIG, ranges=ranges)

    def hold(request, answer):
        answer.hold, answer.held_at = go, min(len(answer.body), MIB if request.number < 3 else 0)

    server.lie = hold
    operation = begun(s, server.url, parts=1)
    op = until("the end", lambda: (o := s.get("/v1/operations/" + operation))["ended_at"] and o, 280, 1)
    go.set()
    assert op["state"] == "failed" and op["problem"]["code"] == "source_unreachable", op
    assert op["problem"]["status"] in (502, 504) and op["problem"]["retryable"]
    nothing_left(s)


@pytest.mark.rest
def test_a_server_that_stands_still_once(own):
    go = threading.Event()
    server, s = own(BIG)

    def hold(request, answer):
        if request.number == 2:
            answer.hold, answer.held_at = go, MIB

    server.lie = hold
    pulled = take(s, server.url, parts=2)["pulled"]
    go.set()
    assert s.data("m") == BIG and pulled["resumed"] >= 1


def trickling(data, piece, ends):
    """Has the server send that, and then the piece ten times a second."""
    def answer(sock, text):
        sock.sendall(data)
        while not ends.wait(0.1):
            sock.sendall(piece)
        return False

    return answer


TRICKLES = {
    "head": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
    "range": (b'HTTP/1.1 206 OK\r\nETag: "v1"\r\nContent-Length: 262144\r\n'
              b"Content-Range: bytes 0-262143/9999999\r\n\r\n", b"x"),
    "trailers": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n", b"X: y\r\n")}


@pytest.mark.rest
@pytest.mark.parametrize("where", TRICKLES)
def test_a_server_that_is_too_slow(own, where):
    """Never silent, and would hold one of --pulls for good."""
    server, s = own(BIG)
    ends = threading.Event()
    server.answer = trickling(*TRICKLES[where], ends)
    operation = begun(s, server.url)
    op = until("the end", lambda: (o := s.get("/v1/operations/" + operation))["ended_at"] and o, 60, 1)
    ends.set()
    assert op["problem"]["code"] == "source_unreachable" and op["problem"]["retryable"], op
    assert "less than 1024 bytes a second" in op["problem"]["detail"]
    nothing_left(s)


@pytest.mark.rest
def test_without_a_least_rate(own):
    """As slow as it is, it comes."""
    server, s = own(b"", "--min-rate", "0")
    ends = threading.Event()
    server.answer = trickling(b"HTTP/1.1 200 OK\r\nContent-Length: 250\r\n\r\n", b"x", ends)
    take(s, server.url)
    ends.set()
    assert s.data("m") == b"x" * 250


@pytest.mark.rest
def test_a_server_that_breaks_off_after_a_few_bytes(own):
    """Each range, so that it would take for ever."""
    server, s = own(BIG)
    server.lie = lambda request, answer: setattr(answer, "cut", 1000 if request.number > 1 else None)
    assert refused(s, server.url, 502, "source_unreachable", parts=1)["retryable"]
    assert len(server.requests) < 15


# --- afterwards ------------------------------------------------------------------------------------------------------


def test_nothing_stays_open(own):
    """After copies that worked and copies that failed."""
    server, s = own(BIG)
    lies = [None, zipped, later(shifted), lambda q, a: setattr(a, "cut", 100), later(grows), raw(b"x\r\n\r\n")]

    def round_of_all():
        for lie in lies:
            server.lie = lie
            s.ask("POST", "buffers/m/copy", {"from_url": server.url, "parts": 4})
        s.ask("DELETE", "buffers/m")
        nothing_left(s)

    def state():
        return len(os.listdir(f"/proc/{s.daemon.process.pid}/fd")), s.daemon.threads()

    round_of_all()
    before, threads = state()
    round_of_all()
    until("no descriptor more", lambda: state()[0] <= before)
    assert state()[1] <= threads
    s.daemon.settled()
