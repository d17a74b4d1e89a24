"""The address of a client behind proxies: the PROXY protocol, X-Forwarded-For and Forwarded. Addresses that are not
this machine's have bounds, which tell them apart here."""
import os

import secure
from bounding import SIGNATURE, From, RawFrom, limited, proxy_1, proxy_2

import pytest

from gpubuf_cli import Cli
from harness import metric, token, until
from proxies import Proxy

PROXY, DIRECT = "127.0.0.9", "127.0.0.2"
BOUND = ("--rate-requests", "1", "--burst-requests", "2")
PLAIN = ("--listen", "127.0.0.1:0", "--listen", "127.0.0.3:0")


@pytest.fixture
def proxied(start):
    return start("--proxy-protocol", PROXY, *BOUND, listen=PLAIN)


def ask(d, beginning, source=PROXY, count=1, address=None):
    """The statuses of requests on one connection that begins so; None: it ended."""
    with RawFrom(address or d.tcp, source) as r:
        r.send(beginning)
        replies = []
        for _ in range(count):
            try:
                reply = r.request("GET", "/v1").reply()
            except (ConnectionResetError, BrokenPipeError):
                reply = None
            replies.append(reply and reply.status)
            if not reply:
                break
        return replies


@pytest.mark.parametrize("header", [proxy_1, proxy_2])
def test_the_client_is_the_one_that_the_proxy_names(proxied, header):
    assert 429 in ask(proxied, header("192.0.2.1"), count=10)
    assert ask(proxied, header("192.0.2.2"))[0] == 200
    assert 429 not in ask(proxied, b"", source=DIRECT, count=10)  # this machine
    assert metric(From(proxied, DIRECT), "gpubufd_http_proxied_total") == 2


def test_addresses_of_ipv6_and_proxies_that_name_none(proxied):
    assert 429 in ask(proxied, proxy_1("2001:db8::1"), count=10)
    assert ask(proxied, proxy_1("2001:db8::2")) == [429]  # the same network
    assert ask(proxied, proxy_1("2001:db8:0:1::2")) == [200]
    for unknown in (b"PROXY UNKNOWN\r\n", SIGNATURE + b"\x20\0\0\0"):
        assert 429 not in ask(proxied, unknown, count=10)


@pytest.mark.parametrize("header", [proxy_1("192.0.2.1"), proxy_2("192.0.2.1", b"\x03\0\x04abcd")])
def test_a_header_in_pieces(proxied, header):
    c = From(proxied, DIRECT)
    with RawFrom(proxied.tcp, PROXY) as r:
        for i in range(len(header)):
            r.send(header[i:i + 1])
            c.ask("GET", "/livez").expect(200)  # others are served meanwhile
        assert r.request("GET", "/livez").reply().status == 200


@pytest.mark.parametrize("bytes_", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                                    b"PROXY TCP4 nobody 192.0.2.1 1 2\r\n", b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2", SIGNATURE
                                    + b"\x31\x11\0\x0c" + b"x" * 12, SIGNATURE + b"\x21\x11\xff\xff", b"x" * 200])
def test_another_beginning_ends_the_connection(start, bytes_):
    d = start("--proxy-protocol", PROXY, "--header-timeout", "1", listen=PLAIN)
    with RawFrom(d.tcp, PROXY) as r:
        r.send(bytes_)
        try:
            assert r.sock.recv(1) == b""
        except ConnectionResetError:
            pass
    c = From(d, DIRECT)
    until("it is counted", lambda: metric(c, "gpubufd_http_proxy_failures_total") == 1)


@pytest.mark.parametrize("header", [b"", b"PROXY TCP4 1.2.3.4", proxy_2("192.0.2.1")[:20]])
def test_one_that_ends_within_its_header_is_not_waited_for(start, header):
    """Whether it ends at once or is waited for already; its descriptor does not stay until the time-out."""
    d = start("--proxy-protocol", PROXY, "--header-timeout", "3600", "--idle-timeout", "3600", listen=PLAIN)
    c = From(d, DIRECT)
    with RawFrom(d.tcp, PROXY) as waiting:
        waiting.send(header)
        for _ in range(10):
            with RawFrom(d.tcp, PROXY) as r:
                r.send(header)
        until("the others are counted", lambda: metric(c, "gpubufd_http_proxy_failures_total") == 10)
        waiting.half_close()
        until("it is counted, too", lambda: metric(c, "gpubufd_http_proxy_failures_total") == 11)


def test_others_may_not_send_one(proxied):
    assert ask(proxied, proxy_1("192.0.2.1"), source=DIRECT)[0] in (400, None)
    assert metric(From(proxied, DIRECT), "gpubufd_http_proxied_total") == 0


def test_the_second_listener_too(proxied):
    host, port = [a for a in proxied.addresses if a.startswith("127.0.0.3")][0].rsplit(":", 1)
    assert ask(proxied, proxy_2("192.0.2.1"), address=(host, int(port))) == [200]


def test_connections_count_for_the_client_and_not_for_the_proxy(start):
    d = start("--proxy-protocol", PROXY, "--max-connections-per-address", "2", listen=PLAIN)
    held = [RawFrom(d.tcp, PROXY).send(proxy_1("192.0.2.1")) for _ in range(2)]
    assert [r.request("GET", "/livez").reply().status for r in held] == [200, 200]
    with RawFrom(d.tcp, PROXY) as r:
        reply = r.send(proxy_1("192.0.2.1")).reply()
        assert reply.problem(429, "too_many_requests")["retryable"] and reply.headers["Retry-After"] == "1"
    assert ask(d, proxy_1("192.0.2.2")) == [200]
    assert limited(From(d, DIRECT), "connections") == 1
    for r in held:
        r.close()


def test_before_tls(start):
    d = start("--proxy-protocol", PROXY, *BOUND, listen=secure.options())
    def tls(header):
        r = RawFrom(d.tcp, PROXY)
        r.send(header)
        r.sock = secure.wrap(r.sock)
        return r
    with tls(proxy_2("192.0.2.1")) as r:
        assert 429 in [r.request("GET", "/v1").reply().status for _ in range(10)]
    with tls(proxy_1("192.0.2.2")) as r:
        assert r.request("GET", "/v1").reply().status == 200


def test_a_body_behind_the_header(proxied):
    data = bytes(range(256)) * 8192
    with RawFrom(proxied.tcp, PROXY) as r:
        r.send(proxy_1("192.0.2.1")).put("/v1/sessions/default/buffers/x/data", len(data)).send(data)
        assert r.reply().status == 201
    assert From(proxied, DIRECT).ask("GET", "/v1/sessions/default/buffers/x/data").body == data


def test_waiting_for_headers_does_not_hold_up_the_end(proxied):
    r = RawFrom(proxied.tcp, PROXY).send(b"PROXY ")
    proxied.stop()
    r.close()


# --- tokens -----------------------------------------------------------------------------------------------------------


def told(d, secret=None):
    """(what GET /v1 says of access, the doctor's check)"""
    said = Cli(d.url(""), **({"GPUBUF_TOKEN": secret} if secret else {}))("--json", "doctor")
    return d.ask("GET", "/v1", token=secret).expect(200).json()["access"], {c["check"]: c["ok"]
                                                                            for c in said.json()}["tokens"]


@pytest.mark.parametrize("option", ["--trusted-proxy", "--proxy-protocol"])
def test_without_a_token_a_proxy_lets_everybody_in(start, tmp_path, option):
    d = start(option, PROXY, state=str(tmp_path))
    assert told(d) == ({"tokens": False, "proxies": True}, False)
    assert "no token is configured: all of its clients may do everything" in d.log()
    secret = token(tmp_path, "add", "one", "--scope", "write")
    until("it is in force", lambda: d.ask("GET", "/v1").status == 401)
    assert told(d, secret) == ({"tokens": True, "proxies": True}, True)
    token(tmp_path, "revoke", "one")
    until("it is no longer", lambda: d.ask("GET", "/v1", token=secret).status == 401)
    assert d.ask("GET", "/v1").status == 401  # the last token is gone, and the daemon stays closed
    assert "every request that needs one is refused" in d.stop()


def test_with_a_token_nothing_is_said(start, tmp_path):
    secret = token(tmp_path, "add", "one", "--scope", "write")
    d = start("--trusted-proxy", PROXY, state=str(tmp_path))
    assert told(d, secret) == ({"tokens": True, "proxies": True}, True) and "no token" not in d.log()
    assert told(start()) == ({"tokens": False, "proxies": False}, None)


# --- X-Forwarded-For and Forwarded ------------------------------------------------------------------------------------


FIELDS = {"x-forwarded-for": ("X-Forwarded-For", "{}"), "forwarded": ("Forwarded", "for={};proto=https")}


@pytest.mark.parametrize("option", FIELDS)
def test_forwarded(start, option):
    name, form = FIELDS[option]
    d = start("--trusted-proxy", f"{PROXY}/32", "--trusted-proxy", "unix", "--forwarded-header", option, *BOUND)

    def statuses(c, client, count=10, target="/v1"):
        return [c.ask("GET", target, None, {name: form.format(client)}).status for _ in range(count)]

    assert 429 in statuses(From(d, PROXY), "192.0.2.1")
    assert statuses(From(d, PROXY), "192.0.2.2", 1) == [200]
    assert 429 in statuses(d.client(unix=True), "192.0.2.3")
    assert 429 not in statuses(From(d, DIRECT), "192.0.2.1")  # it is no proxy: what it says is not heard
    assert 429 in statuses(From(d, PROXY), "junk")
    for unknown in ("unknown", "_x", "fe80::1%eth0", "unix:"):  # they are one client, whatever proxy they come by
        assert statuses(From(d, PROXY), unknown, 1) == statuses(d.client(unix=True), unknown, 1) == [429]
    assert 429 in statuses(From(d, PROXY), "192.0.2.4", target="/nothing")
    assert statuses(From(d, PROXY), "192.0.2.5", 1, "/nothing") == [404]


def test_the_field_that_is_not_named_is_not_read(start):
    """The proxy hands it on as its client has written it, so that a client could be another one with each request."""
    for option, field, other in [((), *FIELDS.values()), (("--forwarded-header", "forwarded"),
                                                          *reversed(FIELDS.values()))]:
        d = start("--trusted-proxy", PROXY, *option, *BOUND)
        c = From(d, PROXY)
        statuses = [c.ask("GET", "/v1", None, {other[0]: other[1].format(f"198.51.100.{i}"),
                                               field[0]: field[1].format("192.0.2.1")}).status
                    for i in range(10)]
        assert 429 in statuses


@pytest.mark.parametrize("name", ["nginx", "haproxy"])
def test_a_client_of_a_proxy_does_not_choose_its_address(start, tmp_path, name):
    d = start("--trusted-proxy", "127.0.0.1", "--trusted-proxy", "unix", "--bound-local", *BOUND)
    proxy = Proxy(name, str(tmp_path / name), d, tells=True)

    def statuses(way, source, count=10):
        with RawFrom(way, source) as r:
            said = [[f"Forwarded: for=198.51.100.{i}", f"X-Forwarded-For: 198.51.100.{i}"] for i in range(count)]
            return [r.request("GET", "/v1", lines).reply().status for lines in said]

    try:
        for way, greedy, modest in zip(proxy.ways, ("127.0.0.2", "127.0.0.4"), ("127.0.0.3", "127.0.0.5")):
            assert 429 in statuses(way, greedy)
            assert statuses(way, modest, 1) == [200]
    finally:
        proxy.stop()


def test_clients_of_a_proxy_on_the_unix_socket_are_not_local(start):
    """The audit has the client's address, a Host must be the daemon's, and nothing is mapped for the proxy's user."""
    d = start("--trusted-proxy", "unix", "--audit", "changes")
    c, told = d.client(unix=True), {"X-Forwarded-For": "192.0.2.3"}
    c.ask("POST", "/v1/sessions", {"name": "direct"}, {"Host": "anything.example"}).expect(201)
    c.ask("POST", "/v1/sessions", {"name": "refused"},
          {**told, "Host": "anything.example"}).problem(421, "misdirected_request")
    c = d.client(unix=True)
    c.ask("POST", "/v1/sessions", {"name": "proxied"}, told).expect(201)
    junk = {"X-Forwarded-For": "8.8.8.8, unix:"}
    c.ask("POST", "/v1/sessions", {"name": "junk"}, junk).expect(201)
    data = bytes(1 << 21)  # these go by the transfer loop, on one connection
    for _ in range(3):
        assert c.ask("PUT", "/v1/sessions/proxied/buffers/x/data", data, told).status in (200, 201)
    found = until("all are recorded", lambda: (lambda r: len(r) >= 7 and r)(
        [r for r in d.get("/v1/audit?limit=1000")["items"] if r["event"] == "request"]))
    own = f"unix:{os.getuid()}"
    assert sorted(r["address"] for r in found) == sorted([own, "unknown", *["192.0.2.3"] * 5])
    for said in (told, junk):
        mine = c.ask("POST", "/v1/sessions/proxied/buffers/x/map", {}, said)
        assert 400 <= mine.status < 500, mine.status
    c.ask("POST", "/v1/sessions", {"name": "refused"},
          {**junk, "Host": "anything.example"}).problem(421, "misdirected_request")
