"""The Python client's own parsing of an answer's head, with heads that a daemon, a proxy or something else may send."""
import socket
import threading

import pytest

from harness import asked
from pyclient import client_of, gpubuf

JSON = b'{"name":"x"}'
FIELDS = b"Content-Length: %d\r\n" % len(JSON)


@pytest.fixture
def answers():
    """A server that answers each request with the next of a list of bytes, and closes the connection behind the
    last."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(30)
    given = []

    def serve():
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        listener.close()  # the client may look whether TLS is spoken here
        with connection:
            for answer in given:
                if not asked(connection):
                    return
                connection.sendall(answer)

    thread = threading.Thread(target=serve)

    def start(*answers):
        given.extend(answers)
        thread.start()
        return gpubuf.Client(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=20)

    yield start
    listener.close()
    thread.join(30)
    assert not thread.is_alive()


GOOD = {
    "plain": b"HTTP/1.1 200 OK\r\n" + FIELDS + b"\r\n" + JSON,
    "no reason": b"HTTP/1.1 200\r\n" + FIELDS + b"\r\n" + JSON,
    "lines of LF": b"HTTP/1.1 200 OK\n" + FIELDS.replace(b"\r", b"") + b"\n" + JSON,
    "another case": b"HTTP/1.1 200 OK\r\n" + FIELDS.lower() + b"\r\n" + JSON,
    "no space": b"HTTP/1.1 200 OK\r\n" + FIELDS.replace(b": ", b":") + b"\r\n" + JSON,
    "spaces": b"HTTP/1.1 200 OK\r\n" + FIELDS.replace(b": ", b": \t ").replace(b"\r\n", b" \r\n") + b"\r\n" + JSON,
    "folded": b"HTTP/1.1 200 OK\r\nX-A: a\r\n\tb\r\n" + FIELDS + b"\r\n" + JSON,
    "a folded length": b"HTTP/1.1 200 OK\r\nContent-Length:\r\n 12\r\n\r\n" + JSON,
    "103 before": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n" + FIELDS + b"\r\n" + JSON,
    "latin": b"HTTP/1.1 200 OK\r\nX-A: \xe9\xff\r\n" + FIELDS + b"\r\n" + JSON,
    "100 before": b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\nHTTP/1.1 200 OK\r\n" + FIELDS + b"\r\n" + JSON,
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\n" + JSON[:5] + b"\r\n7\r\n" + JSON[5:]
    + b"\r\n0\r\n\r\n",
    "to the end": b"HTTP/1.1 200 OK\r\n\r\n" + JSON,
    "1.0": b"HTTP/1.0 200 OK\r\n" + FIELDS + b"\r\n" + JSON,
    "one length twice": b"HTTP/1.1 200 OK\r\n" + FIELDS + FIELDS + b"\r\n" + JSON,
    "many fields": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 99 + FIELDS + b"\r\n" + JSON,
}


@pytest.mark.parametrize("case", GOOD)
def test_a_head_that_is_one(answers, case):
    with answers(GOOD[case]) as c:
        assert c.info("x")["name"] == "x"


BAD = {
    "no version": b"200 OK\r\n" + FIELDS + b"\r\n" + JSON,
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "HTTP/2": b"HTTP/2 200\r\n" + FIELDS + b"\r\n" + JSON,
    "no status": b"HTTP/1.1\r\n\r\n",
    "a status of four": b"HTTP/1.1 2000 OK\r\n" + FIELDS + b"\r\n" + JSON,
    "a status of letters": b"HTTP/1.1 2OO OK\r\n" + FIELDS + b"\r\n" + JSON,
    "a status below 100": b"HTTP/1.1 099 OK\r\n" + FIELDS + b"\r\n" + JSON,
    "no colon": b"HTTP/1.1 200 OK\r\n" + FIELDS + b"what is this\r\n\r\n" + JSON,
    "no name": b"HTTP/1.1 200 OK\r\n" + FIELDS + b": x\r\n\r\n" + JSON,
    "a space before the colon": b"HTTP/1.1 200 OK\r\nContent-Length : 12\r\n\r\n" + JSON,
    "folded at first": b"HTTP/1.1 200 OK\r\n a: b\r\n" + FIELDS + b"\r\n" + JSON,
    "too many fields": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 101 + FIELDS + b"\r\n" + JSON,
    "a long field": b"HTTP/1.1 200 OK\r\nA: " + b"b" * (1 << 16) + b"\r\n" + FIELDS + b"\r\n" + JSON,
    "a long status line": b"HTTP/1.1 200 " + b"b" * (1 << 16) + b"\r\n" + FIELDS + b"\r\n" + JSON,
    "cut off": b"HTTP/1.1 200 OK\r\nContent-Le",
    "two lengths": b"HTTP/1.1 200 OK\r\n" + FIELDS + b"Content-Length: 3\r\n\r\n" + JSON,
    "a length that is none": b"HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n" + JSON,
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n" + JSON,
    "a length of 19 digits": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000000000\r\n\r\n" + JSON,
    "a length of 5000 digits": b"HTTP/1.1 200 OK\r\nContent-Length: " + b"1" * 5000 + b"\r\n\r\n" + JSON,
    "CR alone": b"HTTP/1.1 200 OK\r\n" + FIELDS + b"\r\r\n" + JSON,
    "blanks in a name": b"HTTP/1.1 200 OK\r\nsome words: b\r\n" + FIELDS + b"\r\n" + JSON,
    "folded without end": b"HTTP/1.1 200 OK\r\nA: b\r\n" + b" c\r\n" * 100 + FIELDS + b"\r\n" + JSON,
    "another encoding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n" + FIELDS + b"\r\n" + JSON,
}


@pytest.mark.parametrize("case", BAD)
def test_a_head_that_is_none(answers, case):
    with answers(BAD[case]) as c, pytest.raises((gpubuf.BrokenAnswer, gpubuf.Unreachable)) as caught:
        c.info("x")
    assert "GET /v1/sessions/default/buffers/x" in str(caught.value)


def test_a_connection_goes_on_after_each_answer(answers):
    """A 304 and the answer to a HEAD have no body, whatever their Content-Length is."""
    none = b"HTTP/1.1 204 No Content\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"
    same = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n"
    with answers(none, head, same, GOOD["plain"]) as c:
        c._ask("DELETE", "/a", {}).finish()
        c._ask("HEAD", "/b", {}).finish()
        c._ask("GET", "/c", {}).finish()
        assert c.info("x")["name"] == "x"


def test_an_answer_without_a_body_that_is_called_chunked(answers):
    with answers(b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", GOOD["plain"]) as c:
        c._ask("DELETE", "/a", {}).finish()
        assert c.info("x")["name"] == "x"


def test_after_an_answer_that_was_not_read(daemon, session):
    """As an interrupt leaves it: the next request takes another connection."""
    daemon.put("x", b"12345", session).expect(201)
    with client_of(daemon, session) as c:
        c._ask("GET", c._below("buffers", "x", "data"), {})
        assert c.info("x")["bytes"] == 5
        c._ask("GET", c._below("buffers", "x", "data"), {})
        assert c.get("x", raw=True) == b"12345"


def test_what_cannot_be_sent(daemon):
    with client_of(daemon) as c:
        for path in ("/v1/\u20ac", "/v1/a\r\nX: y", "/v1/a b"):
            with pytest.raises(gpubuf.BadArgument, match="cannot be sent"):
                c.request("GET", path)
        assert c.request("GET", "/v1")


def test_a_small_body_that_is_refused_before_its_end(tmp_path):
    """The answer counts, and not that the connection was closed behind it."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    told = threading.Event()

    def serve():
        connection, _ = listener.accept()
        with connection:
            connection.recv(1)
            connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        told.set()

    thread = threading.Thread(target=serve)
    thread.start()
    with gpubuf.Client(socket=str(tmp_path / "s"), timeout=20) as c, pytest.raises(gpubuf.BodyTooLarge):
        c.put("x", bytes(1 << 16))
    assert told.wait(20)
    thread.join(20)
    listener.close()
