"""Copies whose source is a URL: a daemon pulls a buffer of another one, through breaks, changes and lies of the
source."""
import base64
import hashlib
import json
import signal
import socket
import threading

import pytest

import secure
from conform import Session
from etcd_run import token
from fleet import Relay
from harness import DATA, SLOT, accepted, asked, hang_up, until
from values import array_of, npy, payload

MIB = 1 << 20
ASYNC = {"Prefer": "respond-async"}
BIG = payload(40 * MIB + 12345, 7)


def ca():
    return ["--pull-ca", secure.authority().cert] if secure.EVERYWHERE else []


def place(daemon, name="x", session="default"):
    return daemon.url(f"/v1/sessions/{session}/buffers/{name}")


@pytest.fixture
def source(start):
    return start()


@pytest.fixture
def pair(start, source):
    """(a daemon with bytes, one that may pull from it)"""
    return source, start("--pull-from", source.url(""), *ca())


@pytest.fixture
def broken(start, source):
    """(a daemon with bytes, a relay before it, one that may pull by way of the relay)"""
    if secure.EVERYWHERE:
        pytest.skip("the relay's URL is of plain HTTP")
    relay = Relay(source.tcp)
    yield source, relay, start("--pull-from", relay.url)
    if not relay.ending:
        relay.close()


def pull(daemon, url, name="y", status=201, headers=None, **more):
    body = {"from": url, **more}
    return daemon.ask("POST", f"/v1/sessions/default/buffers/{name}/copy", body, headers).expect(status).json()


def begun(daemon, url, name="y", **more):
    """The operation of a pull that continues without its client."""
    return pull(daemon, url, name, 202, ASYNC, **more)["id"]


def ended(daemon, operation):
    """It, when it has ended."""
    def look():
        op = daemon.ask("GET", "/v1/operations/" + operation, None, {"Prefer": "wait=5"}).expect(200).json()
        return op if op["state"] not in ("queued", "running") else None

    return until("the end of the pull", look)


def nothing_left(daemon, name="y"):
    assert daemon.get("/v1/sessions/default/uploads")["items"] == []
    daemon.ask("GET", f"/v1/sessions/default/buffers/{name}").problem(404, "buffer_not_found")


# --- bytes ------------------------------------------------------------------------------------------------------------


def test_a_buffer_comes_with_what_it_is(pair):
    a, b = pair
    array = array_of("float32", (300, 1000))
    sa, sb = Session(a), Session(b)
    sa.put("x", npy(array))
    sa.patch("buffers/x", {"labels": {"model": "m"}})
    r = sb.ask("POST", "buffers/y/copy", {"from": place(a)}).expect(201)
    y = r.json()
    assert (y["dtype"], y["shape"], y["bytes"], y["labels"]) == ("float32", [300, 1000], array.nbytes, {"model": "m"})
    assert r.headers["Location"] == "/v1/sessions/default/buffers/y" and y["way"] == "pull"
    assert r.headers["ETag"] == sb.ask("GET", "buffers/y/data").headers["ETag"]
    assert y["pulled"] == {"etag": sa.ask("HEAD", "buffers/x/data").headers["ETag"], "generation": 1,
                           "bytes": array.nbytes, "received_bytes": array.nbytes, "parts": 1, "resumed": 0,
                           "begun_again": 0, "failovers": 0, "verified": True}
    assert y["crc32c"] == sa.meta("x")["crc32c"] and sb.data("y") == array.tobytes()
    sa.put("x", b"other")
    assert sb.data("y") == array.tobytes()
    y = sb.post("buffers/y/copy", {"from": place(a)})  # replaced, with the source's shape
    assert (y["generation"], y["bytes"], y["dtype"]) == (2, 5, "uint8") and sb.data("y") == b"other"


@pytest.mark.parametrize("parts", [1, 2, 3, 16, None])
@pytest.mark.parametrize("n", [0, 1, SLOT, 8 * MIB, 8 * MIB + 1, 17 * MIB - 1, len(BIG)])
def test_sizes_and_parts(pair, n, parts):
    a, b = pair
    a.put("x", BIG[:n])
    y = pull(b, {"url": place(a), **({"parts": parts} if parts else {})})
    assert y["pulled"]["parts"] == min(parts or 4, -(-n // (8 * MIB))) and y["pulled"]["verified"]
    assert b.data("y").body == BIG[:n]


def test_the_target_stays_where_it_is(pair):
    a, b = pair
    a.put("x", BIG)
    b.ask("POST", "/v1/sessions/default/pools", {"name": "p"}).expect(201)
    assert pull(b, place(a), "in-a-pool", pool="p")["pool"] == "p"
    assert pull(b, place(a), "pinned", kind="pinned")["kind"] == "pinned"
    assert pull(b, place(a), "pinned", 200)["kind"] == "pinned"
    assert pull(b, place(a), "on-device", device=0)["device"]["index"] == 0
    b.ask("POST", "/v1/sessions/default/buffers/n/copy", {"from": place(a),
                                                          "pool": "none"}).problem(404, "pool_not_found")
    b.ask("POST", "/v1/sessions/default/buffers/n/copy", {"from": place(a), "pool": "p",
                                                          "device": 0}).problem(400, "invalid_argument")


def test_conditions_hold_at_the_target(pair):
    a, b = pair
    a.put("x", BIG)
    pull(b, place(a), headers={"If-None-Match": "*"})
    b.ask("POST", "/v1/sessions/default/buffers/y/copy", {"from": place(a)},
          {"If-None-Match": "*"}).problem(412, "precondition_failed")
    tag = b.data("y").headers["ETag"]
    a.put("x", b"new")
    pull(b, place(a), status=200, headers={"If-Match": tag})
    b.ask("POST", "/v1/sessions/default/buffers/y/copy", {"from": place(a)},
          {"If-Match": tag}).problem(412, "precondition_failed")
    assert b.data("y").body == b"new"


def test_a_key_is_good_for_one_pull(pair):
    a, b = pair
    a.put("x", BIG)
    first = pull(b, place(a), headers={"Idempotency-Key": "k1"})
    a.put("x", b"new")
    assert pull(b, place(a), headers={"Idempotency-Key": "k1"}) == first
    assert b.data("y").body == BIG and b.meta("y")["generation"] == 1


def test_from_a_buffer_on_disk(start, tmp_path):
    a = start()
    b = start("--pull-from", a.url(""), *ca())
    a.put("x", BIG, query="?durability=sync")
    a.ask("POST", "/v1/sessions/default/buffers/x/evict").expect(200)
    pull(b, place(a), durability="sync")
    assert b.data("y").body == BIG and b.meta("y")["stored_generation"] == 1


# --- what the source must be ------------------------------------------------------------------------------------------


def test_a_digest_is_held_against_the_bytes(pair):
    a, b = pair
    a.put("x", BIG)
    sha = base64.b64encode(hashlib.sha256(BIG).digest()).decode()
    wrong = base64.b64encode(hashlib.sha256(b"").digest()).decode()
    p = b.ask("POST", "/v1/sessions/default/buffers/y/copy",
              {"from": {"url": place(a), "digest": {"sha-256": wrong}}}).problem(400, "digest_mismatch")
    assert sha in p["detail"] and "send" not in p["detail"]
    nothing_left(b)
    pull(b, {"url": place(a), "digest": {"sha-256": sha}})


def test_an_entity_tag_is_held_against_the_source(pair):
    a, b = pair
    a.put("x", BIG)
    tag = a.data("x").headers["ETag"]
    pull(b, {"url": place(a), "if_match": tag}, "z")
    a.put("x", b"new")
    p = b.ask("POST", "/v1/sessions/default/buffers/y/copy",
              {"from": {"url": place(a), "if_match": tag}}).problem(409, "source_changed")
    assert tag in p["detail"]
    b.ask("POST", "/v1/sessions/default/buffers/y/copy", {"from": place(a),
                                                          "from_if_match": tag}).problem(412, "precondition_failed")
    b.ask("POST", "/v1/sessions/default/buffers/z/copy",
          {"from": place(a), "from_if_match": a.data("x").headers["ETag"]}).expect(200)
    b.ask("GET", "/v1/sessions/default/buffers/y").problem(404, "buffer_not_found")


WRONG = {
    "offset": ({"offset": 0}, "does not go with a URL"),
    "bytes": ({"bytes": 5}, "does not go with a URL"),
    "from_offset": ({"from_offset": 5}, "does not go with a URL"),
    "in_place": ({"in_place": True}, "does not go with a URL"),
    "side": ({"side": "host"}, "does not go with a URL"),
    "tag outside": ({"from": {}, "from_if_match": '"1.1"'}, "within 'from'"),
    "labels": ({"labels": {}}, "unknown"),
    "parts 0": ({"from": {"parts": 0}}, "1 to 16"),
    "parts 17": ({"from": {"parts": 17}}, "1 to 16"),
    "parts text": ({"from": {"parts": "4"}}, "parts"),
    "tag": ({"from": {"if_match": "1.1"}}, "quotes"),
    "tag with a line": ({"from": {"if_match": '"a"\r\nX: "'}}, "quotes"),
    "token": ({"from": {"token": "a\r\nb"}}, "token"),
    "no token": ({"from": {"token": ""}}, "token"),
    "digest": ({"from": {"digest": {"md5": "a"}}}, "sha-256"),
    "unknown": ({"from": {"speed": 1}}, "permitted: url"),
    "no url": ({"from": {"url": None}}, "url"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_go_with_a_url(pair, case):
    a, b = pair
    body, words = WRONG[case]
    body = {**body, "from": {"url": place(a), **body["from"]} if "from" in body else place(a)}
    r = b.ask("POST", "/v1/sessions/default/buffers/y/copy", body)
    assert r.status == 400 and words in r.json()["detail"], r


@pytest.mark.parametrize("url", ["http://h/", "http://h/v1/sessions/s/buffers/b/data",
                                 "http://h/v1/sessions/s/buffers/b?x=1", "http://h/v1/sessions/s/buffers/b#x",
                                 "http://u:p@h/v1/sessions/s/buffers/b", "ftp://h/v1/sessions/s/buffers/b",
                                 "file:///v1/sessions/s/buffers/b", "http:///v1/sessions/s/buffers/b",
                                 "http://h:99999/v1/sessions/s/buffers/b", "http://h/v1/sessions/../buffers/b",
                                 "http://h/v1/sessions/s/buffers/%62", "http://h y/v1/sessions/s/buffers/b",
                                 "http://h\r\nX: y/v1/sessions/s/buffers/b", "://", "http://" + "h" * 1100
                                 + "/v1/sessions/s/buffers/b"])
def test_a_url_that_is_none_of_a_buffer(pair, url):
    pair[1].ask("POST", "/v1/sessions/default/buffers/y/copy", {"from": url}).problem(400, "invalid_argument")


def test_fields_of_urls_do_not_go_with_names(pair):
    b = pair[1]
    b.put("x", b"1")
    p = b.ask("POST", "/v1/sessions/default/buffers/y/copy", {"from": "x", "pool": "p"}).problem(400, "unknown_field")
    assert "'pool' of copy" in p["detail"]
    r = b.ask("POST", "/v1/sessions/default/batch",
              {"operations": [{"op": "copy", "buffer": "y", "from": place(pair[0])}]})
    assert "goes with POST .../copy alone" in r.problem(400, "invalid_argument")["detail"]


# --- permission -------------------------------------------------------------------------------------------------------


def test_only_what_the_options_name(start, source):
    source.put("x", b"1")
    alone, other = start(), start("--pull-from", "http://127.0.0.1:9")
    for d in (alone, other):
        p = d.ask("POST", "/v1/sessions/default/buffers/y/copy",
                  {"from": place(source)}).problem(403, "source_not_permitted")
        assert "--pull-from" in p["detail"] and str(source.tcp[1]) in p["detail"]


@pytest.mark.parametrize("value", ["h", "http://", "http://h/x", "ftp://h", "http://u@h", "http://h?x"])
def test_options_that_name_no_origin(start, value):
    d = start("--pull-from", value, wait=False)
    assert d.process.wait(20) == 64 and "--pull-from" in d.log()


def test_a_token_for_the_source(start, tmp_path):
    state = tmp_path / "a"
    state.mkdir()
    a = start(state=str(state))
    secret, writer = (token(str(state), "add", name, "--scope", name) for name in ("read", "write"))
    a.process.send_signal(signal.SIGHUP)
    until("the tokens are in force", lambda: a.ask("GET", "/v1/sessions").status == 401)
    a.ask("PUT", DATA.format("default", "x"), BIG, token=writer).expect(201)
    b = start("--pull-from", a.url(""), *ca(), "--audit", "all")
    p = b.ask("POST", "/v1/sessions/default/buffers/y/copy", {"from": place(a)}).problem(502, "source_refused")
    assert "401" in p["detail"] and "unauthenticated" in p["detail"]
    operation = begun(b, {"url": place(a), "token": secret})
    op = ended(b, operation)
    assert op["state"] == "done" and b.data("y").body == BIG
    assert secret not in json.dumps(op) and secret not in b.log() and secret not in json.dumps(b.get("/v1/audit"))


@pytest.mark.once
def test_a_source_with_tls(start):
    a = start(listen=secure.options())
    a.client(unix=True).ask("PUT", DATA.format("default", "x"), BIG).expect(201)
    url = f"https://localhost:{a.tcp[1]}"
    b = start("--pull-from", url, "--pull-ca", secure.authority().cert)
    y = pull(b, url + "/v1/sessions/default/buffers/x")
    assert y["pulled"]["parts"] == 4 and b.data("y").body == BIG
    stranger = start("--pull-from", url)
    p = stranger.ask("POST", "/v1/sessions/default/buffers/y/copy", {"from": url + "/v1/sessions/default/buffers/x"})
    assert "certificate" in p.problem(502, "source_unreachable")["detail"]


# --- breaks -----------------------------------------------------------------------------------------------------------


def cut_while(relay, operation, daemon, times, every):
    """Cuts all connections that many times, each when that many more bytes have passed."""
    for _ in range(times):
        before = relay.passed
        until("more bytes", lambda: relay.passed >= before + every or daemon.get("/v1/operations/" + operation)["state"]
              != "running",
              every_s=0.001)
        relay.set("cut")
        relay.set("pass")


class Counting(Relay):
    """Counts the bytes that came from the target."""

    def __init__(self, target):
        self.passed = 0
        super().__init__(target)

    def _step(self, link, source, sink, up):
        if not up:
            self.passed += 1 << 16
        return super()._step(link, source, sink, up)


def test_connections_that_break(start, source):
    if secure.EVERYWHERE:
        pytest.skip("the relay's URL is of plain HTTP")
    relay = Counting(source.tcp)
    source.put("x", BIG)
    b = start("--pull-from", relay.url)
    operation = begun(b, {"url": relay.url + "/v1/sessions/default/buffers/x"})
    cut_while(relay, operation, b, 6, 4 * MIB)
    op = ended(b, operation)
    assert op["state"] == "done", op
    pulled = op["result"]["pulled"]
    assert b.data("y").body == BIG and pulled["resumed"] > 0 and pulled["begun_again"] == 0
    assert pulled["received_bytes"] == len(BIG)  # no byte twice
    relay.close()


def held(broken, tagged=False):
    """A pull of 40 MiB that stands still within: (operation, source, relay, target). tagged: of the present bytes and
    no others."""
    source, relay, b = broken
    source.put("x", BIG)
    more = {"if_match": source.data("x").headers["ETag"]} if tagged else {}
    asked = []

    def watch(text):
        if b"/data" in text and b"GET" in text:
            asked.append(1)
            relay.mode = "deaf"
        return None

    relay.watch = watch
    operation = begun(b, {"url": relay.url + "/v1/sessions/default/buffers/x", **more})
    until("a range was asked for", lambda: asked)
    relay.watch = None
    return operation, source, relay, b


def test_a_source_that_changes_is_pulled_again(broken):
    operation, source, relay, b = held(broken)
    source.put("x", BIG[::-1])
    relay.set("cut")
    relay.set("pass")
    op = ended(b, operation)
    assert op["state"] == "done" and op["result"]["pulled"]["begun_again"] >= 1, op
    assert b.data("y").body == BIG[::-1] and op["result"]["pulled"]["generation"] == 2


def test_a_source_that_changes_against_its_tag(broken):
    operation, source, relay, b = held(broken, tagged=True)
    source.put("x", BIG[::-1])
    relay.set("cut")
    relay.set("pass")
    op = ended(b, operation)
    assert op["state"] == "failed" and op["problem"]["code"] == "source_changed", op
    nothing_left(b)


def test_a_source_that_is_deleted(broken):
    operation, source, relay, b = held(broken)
    source.ask("DELETE", "/v1/sessions/default/buffers/x").expect(204)
    relay.set("cut")
    relay.set("pass")
    op = ended(b, operation)
    assert (op["state"] == "failed" and op["problem"]["code"] == "source_refused" and "buffer_not_found"
            in op["problem"]["detail"])
    nothing_left(b)


def test_a_source_that_ends_for_good(broken):
    operation, source, relay, b = held(broken)
    relay.close()  # connections are refused from now on
    op = ended(b, operation)
    assert op["state"] == "failed" and op["problem"]["code"] == "source_unreachable" and op["problem"]["retryable"]
    nothing_left(b)


def test_a_source_that_is_not_there(start):
    port = socket.create_server(("127.0.0.1", 0))
    url = "http://127.0.0.1:%d" % port.getsockname()[1]
    port.close()
    b = start("--pull-from", url)
    p = b.ask("POST", "/v1/sessions/default/buffers/y/copy",
              {"from": url + "/v1/sessions/s/buffers/x"}).problem(502, "source_unreachable")
    assert url in p["detail"]


# --- ends -------------------------------------------------------------------------------------------------------------


def test_a_pull_is_cancelled(broken):
    operation, source, relay, b = held(broken)
    assert b.get("/v1/operations/" + operation)["state"] == "running"
    assert [u["buffer"] for u in b.get("/v1/sessions/default/uploads")["items"]] == ["y"]
    b.ask("DELETE", "/v1/operations/" + operation).expect(200)
    assert ended(b, operation)["state"] == "cancelled"
    nothing_left(b)


def test_a_pull_that_waits_for_memory_is_cancelled(start, source, simulated):
    source.put("x", BIG)
    b = start("--pull-from", source.url(""), *ca(), spec=simulated("bytes=64M"))
    b.put("full", BIG)

    def waits():
        return b.ask("POST", "/v1/sessions/default/buffers/y/copy", {"from": place(source)},
                     {"Prefer": "respond-async, wait=60"}).expect(202).json()["id"]

    operation = waits()
    until("it has its memory asked for", lambda: b.get("/v1/sessions/default/uploads")["items"])
    b.ask("DELETE", "/v1/operations/" + operation).expect(200)
    assert ended(b, operation)["state"] == "cancelled"
    nothing_left(b)
    waits()
    until("the next does", lambda: b.get("/v1/sessions/default/uploads")["items"])
    assert "stopped: in order" in b.stop()


@pytest.mark.once
def test_interim_answers_without_end(start):
    """They end with the pull."""
    listener, sent = socket.create_server(("127.0.0.1", 0)), []

    def interim():
        with listener.accept()[0] as conn:
            try:
                while True:
                    conn.sendall(b"HTTP/1.1 102 Processing\r\n\r\n")
                    sent.append(1)
            except OSError:
                pass

    threading.Thread(target=interim, daemon=True).start()
    url = "http://127.0.0.1:%d" % listener.getsockname()[1]
    b = start("--pull-from", url)
    operation = begun(b, url + "/v1/sessions/s/buffers/x")
    until("some have come", lambda: len(sent) > 100)
    b.ask("DELETE", "/v1/operations/" + operation).expect(200)
    assert ended(b, operation)["state"] == "cancelled"
    listener.close()


def test_the_session_goes(broken):
    operation, source, relay, b = held(broken)
    b.ask("POST", "/v1/sessions", {"name": "t"}).expect(201)
    b.ask("DELETE", "/v1/operations/" + operation).expect(200)
    other = b.ask("POST", "/v1/sessions/t/buffers/y/copy", {"from": relay.url + "/v1/sessions/default/buffers/x"},
                  ASYNC).expect(202)
    b.ask("DELETE", "/v1/sessions/t").expect(204)
    relay.set("pass")
    assert ended(b, other.json()["id"])["state"] in ("failed", "cancelled")


def test_a_daemon_that_stops_gives_up(broken):
    operation, source, relay, b = held(broken)
    assert "stopped: in order" in b.stop()


def test_pulls_wait_for_each_other(start, source):
    source.put("x", BIG)
    b = start("--pull-from", source.url(""), *ca(), "--pulls", "1", "--pull-rate", "1K")
    first = begun(b, place(source), "y0")
    others = [begun(b, place(source), f"y{i}") for i in range(1, 65)]
    p = b.ask("POST", "/v1/sessions/default/buffers/z/copy", {"from": place(source)}).problem(503, "saturated")
    assert "--pulls 1" in p["detail"]
    states = {o: b.get("/v1/operations/" + o)["state"] for o in (first, others[0])}
    assert states == {first: "running", others[0]: "queued"}
    for o in others:
        assert b.ask("DELETE", "/v1/operations/" + o).expect(200).json()["state"] == "cancelled"
    b.ask("DELETE", "/v1/operations/" + first).expect(200)
    assert ended(b, first)["state"] == "cancelled"
    nothing_left(b, "y0")
    assert b.get("/v1/sessions/default/buffers")["items"] == []


# --- sources that lie -------------------------------------------------------------------------------------------------

RECORD = {"bytes": 4, "dtype": "uint8", "shape": [4], "generation": 1, "labels": {}}
HEAD = 'HTTP/1.1 200 OK\r\nETag: "t"\r\nContent-Length: 4\r\nGpubuf-Generation: 1\r\n\r\n'
PART = 'HTTP/1.1 206 X\r\nETag: "t"\r\nContent-Length: 4\r\nContent-Range: bytes 0-3/4\r\n\r\nabcd'


def record(**more):
    body = json.dumps({**RECORD, **more})
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}"


class Liar:
    """Answers one request of each kind with that text, over one connection each."""

    def __init__(self, **answers):
        self.answers = {"record": record(), "head": HEAD, "part": PART, **answers}
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        self.requests = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        for conn in accepted(self.listener):
            with conn:
                text = asked(conn)
                self.requests.append(text.decode())
                kind = ("head" if text.startswith(b"HEAD") else "part" if b"/data" in text.split(b"\r\n")[0]
                        else "record")
                conn.sendall(self.answers[kind].encode())

    def close(self):
        hang_up(self.listener)


LIES = {
    "no HTTP": ({"record": "SSH-2.0-x\r\n\r\n"}, "source_refused", "not HTTP/1.1"),
    "a long head": ({"record": "HTTP/1.1 200 OK\r\nX: " + "x" * 20000}, "source_refused", "not HTTP/1.1"),
    "two lengths": ({"record": "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}"}, "source_refused",
                    "not HTTP/1.1"),
    "chunks": ({"record": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}, "source_refused",
               "chunked"),
    "no length": ({"record": "HTTP/1.1 200 OK\r\n\r\n{}"}, "source_refused", "chunked"),
    "a huge record": ({"record": "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n{"}, "source_refused", "larger"),
    "no JSON": ({"record": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n<>"}, "source_refused", "no record"),
    "a list": ({"record": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"}, "source_refused", "no record"),
    "negative bytes": ({"record": record(bytes=-1)}, "source_refused", "no record"),
    "no dtype": ({"record": record(dtype="x")}, "source_refused", "dtype"),
    "a wrong shape": ({"record": record(shape=[5])}, "source_refused", "contradict"),
    "a shape of texts": ({"record": record(shape=["4"])}, "source_refused", "shape"),
    "many dimensions": ({"record": record(shape=[1] * 40)}, "source_refused", "shape"),
    "overflow": ({"record": record(shape=[1 << 62, 8])}, "source_refused", "contradict"),
    "labels": ({"record": record(labels=[])}, "source_refused", "labels"),
    "long labels": ({"record": record(labels={"a": "x" * 5000})}, "source_refused", "labels"),
    "no tag": ({"head": HEAD.replace("ETag", "X")}, "source_refused", "entity tag"),
    "another length": ({"head": HEAD.replace("Length: 4", "Length: 5")}, "source_changed", "faster"),
    "another generation": ({"head": HEAD.replace("Generation: 1", "Generation: 2")}, "source_changed", "faster"),
    "another tag": ({"part": PART.replace('"t"', '"u"')}, "source_changed", "other bytes"),
    "another range": ({"part": PART.replace("0-3/4", "1-4/5")}, "source_refused", "another range"),
    "no range": ({"part": PART.replace("Content-Range", "X")}, "source_refused", "another range"),
    "a coding": ({"part": PART.replace("Content-Length", "Content-Encoding: gzip\r\nContent-Length")}, "source_refused",
                 "coding"),
    "a CRC": ({"head": HEAD.replace("\r\n\r\n", "\r\nGpubuf-Crc32c: 00000001\r\n\r\n")}, "source_refused", "CRC32C"),
    "a stranger": ({"record": "HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:9/x\r\nContent-Length: 0\r\n\r\n"},
                   "source_not_permitted", ":9"),
    "a redirect to nothing": ({"record": "HTTP/1.1 307 X\r\nContent-Length: 0\r\n\r\n"}, "source_refused", "redirects"),
    "a problem": ({"record": "HTTP/1.1 418 X\r\nContent-Type: application/problem+json\r\nContent-Length: 28\r\n\r\n"
                   '{"code":"tea","detail":"no"}'}, "source_refused", "418: tea: no"),
}


@pytest.mark.once
@pytest.mark.parametrize("case", LIES)
def test_a_source_that_lies(start, case):
    answers, code, words = LIES[case]
    liar = Liar(**answers)
    b = start("--pull-from", liar.url)
    r = b.ask("POST", "/v1/sessions/default/buffers/y/copy", {"from": liar.url + "/v1/sessions/s/buffers/x"})
    assert r.json()["code"] == code and words in r.json()["detail"], r
    nothing_left(b)
    liar.close()


@pytest.mark.once
def test_redirects_that_never_end(start):
    liar = Liar()
    liar.answers["record"] = f"HTTP/1.1 307 X\r\nLocation: {liar.url}/v1/x\r\nContent-Length: 0\r\n\r\n"
    b = start("--pull-from", liar.url)
    r = b.ask("POST", "/v1/sessions/default/buffers/y/copy", {"from": liar.url + "/v1/sessions/s/buffers/x"})
    assert "3 redirects" in r.problem(502, "source_refused")["detail"]
    liar.close()


@pytest.mark.once
def test_a_truthful_source_of_few_words(start):
    """It tells no checksum, and closes after each answer."""
    liar = Liar()
    b = start("--pull-from", liar.url)
    y = pull(b, {"url": liar.url + "/v1/sessions/s/buffers/x", "token": "secret"})
    assert b.data("y").body == b"abcd" and y["pulled"]["verified"] is False
    assert [r.split(" ")[0] for r in liar.requests] == ["GET", "HEAD", "GET"]
    assert all("Authorization: Bearer secret\r\n" in r and "Host: 127.0.0.1:" in r for r in liar.requests)
    assert 'If-Match: "t"\r\n' in liar.requests[2] and "Range: bytes=0-3\r\n" in liar.requests[2]
    liar.close()
