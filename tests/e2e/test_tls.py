"""Listeners for TLS: clients of several kinds, records in any parts, ends of every kind."""
import socket
import ssl
import struct
import subprocess
import threading

import pytest

import secure
from connected import PATIENCE_S
from harness import DATA, SMALL_SLOTS, Daemon, Raw, until
from records import RECORD, Secured, Wire, context_of, s_client, secured_address
from values import payload

pytestmark = pytest.mark.skipif(secure.EVERYWHERE, reason="these choose for themselves what goes over TLS")

MIB = 1 << 20
CLOSE = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


class TlsDaemon(Daemon):
    """Listens for both. tls: the address for TLS."""

    def __init__(self, backend, *options, pair=None, **more):
        cert, key = pair or secure.authority().pair
        super().__init__(backend, "--tls-cert", cert, "--tls-key", key, *options,
                         listen=("--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0"), **more)
        self.tls = secured_address(self)

    @property
    def tcp(self):
        host, port = next(a for a in self.addresses if a[0].isdigit()).rsplit(":", 1)
        return host, int(port)

    def wire(self, context=None, **more):
        return Wire(self.tls, context or secure.authority().context(), **more)


@pytest.fixture(scope="module")
def served(backend):
    d = TlsDaemon(backend, *SMALL_SLOTS)
    yield d
    d.stop()


@pytest.fixture
def d(served):
    yield served
    assert served.process.poll() is None, served.log()
    served.settled()


@pytest.fixture
def starts():
    """Starts daemons of a test's own; they end with it."""
    started = []

    def go(*options, **more):
        started.append(TlsDaemon("host", *SMALL_SLOTS, *options, **more))
        return started[-1]

    yield go
    for d in started:
        d.clean()


@pytest.fixture(params=VERSIONS, ids=["1.2", "1.3"])
def context(request):
    return context_of(secure.authority(), request.param, request.param)


# --- clients ----------------------------------------------------------------------------------------------------------

SUITES = [("-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"),
          ("-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"),
          ("-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"),
          ("-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"), ("-tls1_3", "-ciphersuites",
                                                                   "TLS_AES_256_GCM_SHA384"),
          ("-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256")]
REFUSED = [(("-tls1", "-cipher", "DEFAULT@SECLEVEL=0"), "alert protocol version"),
           (("-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"), "alert protocol version"),
           (("-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA256"), "alert handshake failure"),
           (("-tls1_2", "-cipher", "AES128-GCM-SHA256"), "alert handshake failure"),
           (("-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-CCM8"), "alert handshake failure")]


@pytest.mark.parametrize("options", SUITES, ids=lambda o: o[2])
def test_versions_and_suites(d, options):
    said = s_client(d.tls, secure.authority(), *options, send=CLOSE)
    assert f"Cipher is {options[2]}" in said and "HTTP/1.1 200" in said and "Verification: OK" in said, said


@pytest.mark.parametrize("options,alert", REFUSED, ids=lambda o: o[-1] if isinstance(o, tuple) else "")
def test_old_versions_and_weak_suites_are_refused(d, options, alert):
    said = s_client(d.tls, secure.authority(), *options, send=CLOSE)
    assert alert in said and "HTTP/1.1" not in said, said


@pytest.mark.parametrize("groups,hellos", [(None, 1), ("X25519:P-256", 1), ("P-256", 1), ("P-384", 1),
                                           ("P-256:X25519", 2)])
def test_the_first_key_of_a_client_is_taken(d, groups, hellos):
    """Unless it has none for X25519 and knows that: openssl sends a key for its first group alone."""
    said = s_client(d.tls, secure.authority(), "-tls1_3", "-msg", *(("-groups", groups) if groups else ()), send=CLOSE)
    assert "HTTP/1.1 200" in said and said.count("ClientHello") == hellos, said


def test_the_client_asks_for_short_records(d):
    d.put("short", payload(300000)).expect(201)
    ask = f"GET {DATA.format('default', 'short')} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    run = subprocess.run(["openssl", "s_client", "-connect", "{}:{}".format(*d.tls), "-CAfile", secure.authority().cert,
                          "-quiet", "-maxfraglen", "512", "-ign_eof", "-servername", "localhost"], input=ask,
                         capture_output=True, timeout=PATIENCE_S)
    assert run.stdout.partition(b"\r\n\r\n")[2] == payload(300000)


@pytest.mark.parametrize("version", ["--http1.0", "--http1.1", "--http2"])
def test_curl(d, version, tmp_path):
    """Of curl's protocols over TLS the daemon speaks HTTP/1.1 and HTTP/1.0; curl that prefers HTTP/2 takes HTTP/1.1."""
    body = tmp_path / "body"
    body.write_bytes(payload(5 * MIB + 1))
    url = "https://localhost:{}{}".format(d.tls[1], DATA.format("default", "curl"))
    curl = ["curl", "-sS", "--fail-with-body", "--ipv4", "--cacert", secure.authority().cert, version]
    subprocess.run([*curl, "-T", body, url], check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL)
    got = subprocess.run([*curl, "-w", "%{stderr}%{http_version} %{ssl_verify_result}", url], check=True,
                         timeout=PATIENCE_S, capture_output=True)
    assert got.stdout == payload(5 * MIB + 1) and got.stderr.decode() in ("1.1 0", "1.0 0")


def test_protocols(d):
    for offered, chosen in ((["h2", "http/1.1"], "http/1.1"), (["http/1.0"], "http/1.0"),
                            (["http/1.0", "http/1.1"], "http/1.1")):
        context = secure.authority().context()
        context.set_alpn_protocols(offered)
        with d.wire(context) as r:
            assert r.sock.tls.selected_alpn_protocol() == chosen and r.ask("GET", "/readyz").status == 200
    with d.wire() as r:
        assert r.sock.tls.selected_alpn_protocol() is None and r.ask("GET", "/readyz").status == 200
    context.set_alpn_protocols(["h2"])
    with pytest.raises(ssl.SSLError, match="(?i)no.application.protocol"):
        d.wire(context)


def test_the_wrong_protocol(d):
    """HTTP at the address for TLS gets an answer that says so; TLS at the address for HTTP fails, and something else
    than both gets an alert."""
    with Raw(d.tcp[:1] + d.tls[1:]) as r:
        assert "https://" in r.send(CLOSE).reply().problem(400, "malformed_request")["detail"]
    with socket.create_connection(d.tls, PATIENCE_S) as s:
        s.sendall(b"\x16\x03\x01\xff\xff")
        assert s.recv(4096)[:1] == b"\x15"
    with socket.create_connection(d.tcp, PATIENCE_S) as s:
        with pytest.raises((ssl.SSLError, OSError)):
            Secured(s, secure.authority().context())


# --- bytes ------------------------------------------------------------------------------------------------------------

SIZES = [0, 1, RECORD - 1, RECORD, RECORD + 1, 256 * 1024, MIB, MIB + 1, 3 * MIB + 7]


def chunked(data, size):
    pieces = [data[at:at + size] for at in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


def upload(r, target, data, how):
    if how == "chunked":
        return r.request("PUT", target + f"?dtype=uint8&shape={len(data)}", ["Transfer-Encoding: chunked"],
                         chunked(data, 10000)).reply()
    r.put(target, len(data), expect=how == "expect")
    if how == "expect" and data:
        assert r.head()[0] == 100
    return r.send(data).reply()


@pytest.mark.parametrize("how", ["length", "chunked", "expect"])
def test_sizes_of_bodies(d, context, how):
    target = DATA.format("default", "sized")
    with d.wire(context) as r:
        for size in SIZES:
            data = payload(size, seed=size)
            assert upload(r, target, data, how).status in (200, 201), size
            assert r.ask("GET", target).expect(200).body == data, size


@pytest.mark.parametrize("how", ["length", "chunked"])
def test_64_mebibytes(d, context, how):
    data = payload(64 * MIB)
    target = DATA.format("default", "large")
    with d.wire(context) as r:
        assert upload(r, target, data, how).status in (200, 201)
        assert r.ask("GET", target).expect(200).body == data
    d.ask("DELETE", "/v1/sessions/default/buffers/large").expect(204)


@pytest.mark.parametrize("record", [1, 7, 100, 5000])
def test_small_records(d, context, record):
    data = payload(20000)
    target = DATA.format("default", "records")
    head = f"PUT {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    with d.wire(context) as r:
        for _ in range(3):
            r.sock.sendall(head + data, record)
            assert r.reply().status in (200, 201)
        r.sock.sendall(head + data + f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(), record)
        assert r.reply().status == 200 and r.reply().expect(200).body == data


def test_a_wire_of_single_bytes(d, context):
    """Each byte of the records arrives alone."""
    with d.wire(context) as r:
        r.sock.plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in r.sock.encrypted(b"PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n" %
                                     DATA.format("default", "bytes").encode() + payload(100), 30):
            r.sock.plain.sendall(bytes([byte]))
        assert r.reply().status in (200, 201)
    assert d.data("bytes").body == payload(100)


@pytest.mark.parametrize("size", [1, 100])
def test_a_hello_in_many_records(d, context, size):
    """They arrive together, and no further event of the socket tells of the later ones."""
    with d.wire(context, shake=False) as r:
        with pytest.raises(ssl.SSLWantReadError):
            r.sock.tls.do_handshake()
        hello = r.sock.out.read()
        parts = [hello[at:at + size] for at in range(5, len(hello), size)]
        r.sock.plain.sendall(b"".join(hello[:3] + struct.pack("!H", len(part)) + part for part in parts))
        r.sock._until(r.sock.tls.do_handshake)
        assert r.ask("GET", "/v1").status == 200


def test_many_requests_in_a_record(d, context):
    with d.wire(context) as r:
        target = DATA.format("default", "many")
        put = f"PUT {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
        get = f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        r.sock.sendall((put + get * 3 + put + get + "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").encode())
        answers = [r.reply() for _ in range(7)]
        assert [a.status for a in answers] == [answers[0].status, 200, 200, 200, 200, 200, 200]
        assert all(answers[i].body == b"hello" for i in (1, 2, 3, 5))


def test_an_answer_does_not_wait_for_the_next_body(d, context):
    """A client may send the head of an upload behind another request, and the body after that one's answer."""
    with d.wire(context) as r:
        for before in ("/v1/stats", "/readyz", "/v1/devices"):
            r.send(f"GET {before} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() +
                   f"PUT {DATA.format('default', 'next')} HTTP/1.1\r\nHost: localhost\r\n"
                   "Content-Length: 100000\r\n\r\n".encode())
            assert r.reply().status == 200
            assert r.send(payload(100000)).reply().status in (200, 201)


@pytest.mark.parametrize("size", [100, 200 * 1024, 8 * MIB])
def test_slow_readers(d, context, size):
    data = payload(size)
    d.put("slow", data)
    with d.wire(context, receive_bytes=4096) as r:
        for _ in range(2):
            r.request("GET", DATA.format("default", "slow"), ["Range: bytes=10-"])
            assert r.head()[0] == 206
            assert b"".join(r.exactly(n) for n in [1, 70, *[5000] * ((size - 81) // 5000),
                                                   (size - 81) % 5000]) == data[10:]


def test_answers_that_nobody_reads(d, context):
    """Hundreds of requests are sent before an answer is read: all come, in their order."""
    with d.wire(context, receive_bytes=4096) as r:
        asks = ["/v1/stats", "/v1/devices"] * 200
        sent = threading.Thread(target=r.send, args=["".join(f"GET {a} HTTP/1.1\r\nHost: localhost\r\n\r\n"
                                                             for a in asks).encode()])
        sent.start()
        for i, ask in enumerate(asks):
            assert ("items" if i % 2 else "sequence") in r.reply().expect(200).json(), ask
        sent.join()


# --- ends -------------------------------------------------------------------------------------------------------------

def test_the_client_closes_its_side(d, context):
    """It has said so, its socket stays open, and the answer comes, with the end of the daemon's side behind it."""
    d.put("half", payload(300000))
    for method, target, body in (("GET", "/v1/stats", b""), ("GET", DATA.format("default", "half"), b""),
                                 ("PUT", DATA.format("default", "other"), payload(1000)),
                                 ("PUT", DATA.format("default", "other"), payload(MIB))):
        r = d.wire(context)
        r.sock.plain.sendall(r.sock.encrypted(f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                                              f"{len(body)}\r\n\r\n".encode()
                                              + body) + r.sock.last_words())
        assert r.reply().status in (200, 201), (method, target)
        assert r.closes() and not r.sock.cut
        r.close()


@pytest.mark.parametrize("end", ["words", "fin", "words and fin", "part and fin"])
@pytest.mark.parametrize("size", [10, 100000, 5 * MIB])
def test_the_client_ends_within_a_body(d, context, end, size):
    """The upload ends at once, not when the daemon's patience does."""
    d.ask("DELETE", "/v1/sessions/default/buffers/cut")
    r = d.wire(context).put(DATA.format("default", "cut"), size)
    sent = r.sock.encrypted(payload(size // 2))
    last = r.sock.encrypted(b"x") [:-1] if end == "part and fin" else r.sock.last_words() if "words" in end else b""
    r.sock.plain.sendall(sent + last)
    if "fin" in end:
        r.sock.plain.shutdown(socket.SHUT_WR)
    answer = r.reply()
    if answer:
        answer.problem(400, "incomplete_body")
    r.close()
    until("no upload runs", lambda: d.stats()["running"]["uploads"] == 0)
    d.ask("GET", "/v1/sessions/default/buffers/cut").problem(404, "buffer_not_found")


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def test_resets_at_any_point(d, context):
    d.put("reset", payload(3 * MIB))
    hello = Secured(socket.create_connection(d.tls), context, shake=False)
    with pytest.raises(ssl.SSLWantReadError):
        hello.tls.do_handshake()
    words = hello.out.read()
    hello.close()
    for cut in (0, 1, 5, 50, len(words) - 1, len(words)):
        s = socket.create_connection(d.tls)
        s.sendall(words[:cut])
        reset(s)
    s = socket.create_connection(d.tls)
    s.sendall(words)
    assert s.recv(1)
    reset(s)
    for sent in (b"", b"GET / HT", b"GET /v1/sessions/default/buffers/reset/data HTTP/1.1\r\nHost: localhost\r\n\r\n",
                 b"GET /v1/stats HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50,
                 b"PUT /v1/sessions/default/buffers/gone/data HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                 b"900000\r\n\r\n" + b"x" * 300000):
        for bytes_read in (0, 1, 20000):
            r = d.wire(context, receive_bytes=4096).send(sent)
            if b"reset" in sent:
                r.rest(bytes_read)
            reset(r.sock.plain)
    until("nothing runs", lambda: sum(d.stats()["running"][k] for k in ("uploads", "downloads")) == 0)
    assert d.wire(context).ask("GET", "/readyz").status == 200


def test_a_body_that_drips(start):
    """Bytes below the mark at which the socket wakes the daemon are seen all the same: the upload moves, and is not
    dropped."""
    d = TlsDaemon("host", *SMALL_SLOTS, "--stall-timeout", "1", "--min-rate", "0")
    try:
        with d.wire() as r:
            r.put(DATA.format("default", "drip"), 6 * MIB)
            r.send(payload(6 * MIB)[:MIB])
            for i in range(6):
                at = MIB + i * 1000
                r.send(payload(6 * MIB)[at:at + 1000])
                r.sock.settimeout(0.4)
                with pytest.raises(TimeoutError):
                    r._more()
            r.sock.settimeout(PATIENCE_S)
            assert r.send(payload(6 * MIB)[MIB + 6000:]).reply().status == 201
        d.stop()
    finally:
        d.clean()


# --- browsers ---------------------------------------------------------------------------------------------------------

def plain(d):
    host, port = next(a for a in d.addresses if a.startswith("127.")).rsplit(":", 1)
    return host, int(port)


def of_transport(r, method, target, *headers, body=b""):
    """The values of Strict-Transport-Security in an answer, whose end is awaited."""
    r.request(method, target, [*headers, f"Content-Length: {len(body)}"] if body else headers, body)
    while b"\r\n\r\n" not in r.buffer:
        assert r._more()
    lines = r.buffer.split(b"\r\n\r\n", 1)[0].decode().split("\r\n")
    return r.reply(method == "HEAD"), [x.split(": ", 1)[1] for x in lines
                                       if x.lower().startswith("strict-transport-security:")]


def test_strict_transport_security(start):
    """Of each reply over TLS, however it goes out, and of none in plain text; none without the option."""
    target = DATA.format("default", "strict")
    for option, wanted in (((), []), (("--hsts", "3600"), ["max-age=3600"])):
        d = start(*option, *SMALL_SLOTS, listen=(*secure.options(), "--listen", "127.0.0.1:0"))
        for wire, values in ((Wire(secured_address(d), secure.authority().context()), wanted), (Raw(plain(d)), [])):
            with wire as r:
                tags = {}
                for path in ("/", "/ui/app.js", "/v1", "/v1/stats", "/metrics", "/livez", "/v1/sessions/default"):
                    answer, said = of_transport(r, "GET", path)
                    assert (answer.status, said) == (200, values), path
                    tags[path] = answer.headers.get("Etag")
                for path, tag in tags.items():
                    if tag:
                        answer, said = of_transport(r, "GET", path, f"If-None-Match: {tag}")
                        assert (answer.status, answer.body, said) == (304, b"", values), path
                    answer, said = of_transport(r, "HEAD", path)
                    assert (answer.status, said) == (200, values), path
                for method, path, status in (("GET", "/nothing", 404), ("DELETE", "/v1", 405),
                                             ("GET", "/v1/sessions/none", 404)):
                    answer, said = of_transport(r, method, path)
                    assert (answer.status, answer.json()["status"], said) == (status, status, values)
                for size in (10, 1 << 20):
                    data = payload(size)
                    answer, said = of_transport(r, "PUT", target, body=data)
                    assert answer.status in (200, 201) and said == values
                    for _ in range(3):
                        answer, said = of_transport(r, "GET", target)
                        assert (answer.body == data, said) == (True, values), size
