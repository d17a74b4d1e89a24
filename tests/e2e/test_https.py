"""Clients over https: gpubuf (and libgpubuf by it) and the Python package, against nginx in front of a daemon."""
import json
import os
import socket
import threading

import numpy as np
import pytest
from gpubuf_cli import DONE, FAILED, NO_HOST, UNREACHABLE, USAGE, Cli
from pyclient import gpubuf

from harness import Daemon, until
from tls_servers import Authority, Strict, Terminator, gpubufd_tls, openssl

pytestmark = pytest.mark.once
PAST = ("20200101000000Z", "20200201000000Z")
AHEAD = ("20900101000000Z", "20910101000000Z")
LOCAL = "basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\nsubjectAltName=IP:127.0.0.1,DNS:localhost"
CLIENT = "basicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth"


class World:
    """A daemon, its authority and another one, and nginx with a listener for each case."""

    def __init__(self, folder):
        self.authority = Authority(folder / "tls", "--client", "ci", "--name", "gpu1.lab")
        self.other = Authority(folder / "other", "--client", "mallory")
        self.old_client = self.authority.signed("old-client", *PAST, CLIENT)
        self.daemon = Daemon("host")
        good, asks = self.authority.server, f"ssl_client_certificate {self.authority.ca}; ssl_verify_client on;"
        servers = {
            "good": {"pair": good},
            "tls12": {"pair": good, "protocols": "TLSv1.2"},
            "tls11": {"pair": good, "protocols": "TLSv1 TLSv1.1", "more": "ssl_ciphers ALL:@SECLEVEL=0;"},
            "six": {"pair": good, "address": "[::1]"},
            "wrong-name": {"pair": good, "address": "127.0.0.2"},
            "expired": {"pair": self.authority.signed("old", *PAST, LOCAL)},
            "ahead": {"pair": self.authority.signed("ahead", *AHEAD, LOCAL)},
            "unknown": {"pair": self.other.server},
            "asks": {"pair": good, "more": asks},
            "asks12": {"pair": good, "more": asks, "protocols": "TLSv1.2"},
        }
        try:
            self.nginx = Terminator(str(folder / "nginx"), self.daemon, servers)
        except BaseException:
            self.daemon.clean()
            raise
        self.urls = self.nginx.urls

    def stop(self):
        self.nginx.stop()
        self.daemon.stop()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("https"))
    yield made
    made.stop()


def cli(world, name="good", *args, **env):
    return Cli(world.urls[name], GPUBUF_CACERT=world.authority.ca, **env)


def python(world, name="good", **more):
    return gpubuf.Client(world.urls[name], **{"cacert": world.authority.ca, "socket": world.daemon.unix, **more})


def both_refuse(url, words, cacert=None, cert=None, key=None, attempts=1):
    """gpubuf ends as one that did not reach the daemon, after that many attempts, and Python raises TlsFailed; both say
    these words."""
    given = [a for option, value in (("--cacert", cacert), ("--cert", cert), ("--key", key)) if value
             for a in (option, value)]
    said = Cli(url)(*given, "-v", "ls").expect(UNREACHABLE)
    for word in words:
        assert word in said.err, said.err
    assert said.err.count("* GET ") == attempts
    assert Cli(url)(*given, "--json", "ls").expect(UNREACHABLE).json()["code"] == "tls_failed"
    with gpubuf.Client(url, cacert=cacert, cert=cert, key=key) as client:
        with pytest.raises(gpubuf.TlsFailed) as raised:
            client.list()
    for word in words:
        assert word in raised.value.detail, raised.value.detail
    assert raised.value.code == "tls_failed" and not raised.value.retryable and isinstance(raised.value,
                                                                                           ConnectionError)


# --- what works -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["good", "tls12", "six"])
def test_bytes_both_ways(world, name, tmp_path):
    data = np.arange(6 << 20, dtype=np.uint8)
    data.tofile(tmp_path / "in")
    run = cli(world, name)
    run("put", "--raw", tmp_path / "in", "x").expect()
    run("get", "--raw", "x", tmp_path / "out").expect()
    assert (tmp_path / "out").read_bytes() == data.tobytes()
    with python(world, name) as client:
        assert np.array_equal(client.get("x"), data)
        client.put("y", data.reshape(-1, 2))
        seen = []
        assert np.array_equal(client.get("y", progress=lambda done, total: seen.append(done)), data.reshape(-1, 2))
        assert seen[-1] == data.nbytes


def test_parts_over_several_connections(world, tmp_path):
    data = np.arange(40 << 18, dtype=np.uint32).tobytes()
    (tmp_path / "in").write_bytes(data)
    cli(world)("put", "--raw", "--connections", "3", tmp_path / "in", "parts").expect()
    cli(world)("get", "--raw", "--connections", "3", "parts", tmp_path / "out").expect()
    assert (tmp_path / "out").read_bytes() == data
    with python(world) as client:
        client.put("again", data, connections=3)
        assert client.get("again", connections=3).tobytes() == data


def test_the_authority_as_a_folder_and_by_options(world, tmp_path):
    folder = tmp_path / "cas"
    folder.mkdir()
    (folder / "one.pem").write_text(open(world.other.ca).read())
    (folder / "two.crt").write_text(open(world.authority.ca).read())
    (folder / "notes").write_text("no certificate")
    Cli(world.urls["good"])("--cacert", folder, "ls").expect()
    Cli(world.urls["unknown"])("--cacert", folder, "ls").expect()
    with gpubuf.Client(world.urls["good"], cacert=folder) as client:
        client.list()


def test_a_client_with_its_certificate(world, tmp_path, monkeypatch):
    cert, key = world.authority.client("ci")
    for name in ("asks", "asks12"):
        cli(world, name)("--cert", cert, "--key", key, "ls").expect()
        cli(world, name, GPUBUF_CERT=cert, GPUBUF_KEY=key)("ls").expect()
        with python(world, name, cert=cert, key=key) as client:
            client.list()
    one = tmp_path / "one.pem"
    one.write_text(open(cert).read() + open(key).read())
    cli(world, "asks", GPUBUF_CERT=str(one))("ls").expect()
    with python(world, "asks", cert=one) as client:
        client.list()
    monkeypatch.setenv("GPUBUF_CACERT", world.authority.ca)
    monkeypatch.setenv("GPUBUF_CERT", cert)
    monkeypatch.setenv("GPUBUF_KEY", key)
    with gpubuf.Client(world.urls["asks"]) as client:
        client.list()


def test_what_is_of_https_alone_does_not_touch_other_addresses(world):
    more = {"GPUBUF_CACERT": "/nowhere", "GPUBUF_CERT": "/nowhere"}
    Cli(world.daemon.url(""), **more)("ls").expect()
    Cli("unix://" + world.daemon.unix, **more)("ls").expect()
    gpubuf.Client(world.daemon.url(""), cacert="/nowhere").list()


def test_the_feed(world):
    with python(world) as client, client.feed(type="buffer.") as feed:
        cli(world)("create", "fed", "--bytes", "8").expect()
        assert next(feed)["buffer"] == "fed"
        ended = threading.Thread(target=lambda: list(feed))
        ended.start()
        feed.close()
        ended.join(30)
        assert not ended.is_alive()


def test_hosts(world):
    hosts = ",".join(world.urls[name] for name in ("good", "tls12"))
    told = [json.loads(line) for line in Cli()("--hosts", hosts, "--cacert", world.authority.ca, "--json",
                                               "ls").expect(DONE).out.splitlines()]
    assert [line["url"] for line in told] == hosts.split(",")
    said = Cli()("--hosts", hosts, "ls").expect(NO_HOST)
    assert said.out.count("failed: the certificate of https://127.0.0.1") == 2


def test_mapping_stays_on_the_socket(world):
    cli(world)("create", "mapped", "--bytes", "64", "--kind", "pageable").expect()
    said = cli(world, GPUBUF_SOCKET=world.daemon.unix)("map", "mapped").expect()
    assert "memfd" in said.out
    with python(world) as client:
        with client.map("mapped") as mapping:
            assert mapping.nbytes == 64


# --- what is refused --------------------------------------------------------------------------------------------------


def test_an_unknown_authority(world):
    both_refuse(world.urls["good"], ["CN=gpu1.lab", "was issued by CN=gpubufd authority",
                                     "which is not known here: give its certificate with", "GPUBUF_CACERT"])
    both_refuse(world.urls["unknown"], ["which is not among the authorities of " + world.authority.ca],
                world.authority.ca)


def test_a_wrong_name(world):
    both_refuse(world.urls["wrong-name"], ["it is for gpu1.lab, ", "localhost, 127.0.0.1", "and not for 127.0.0.2"],
                world.authority.ca)


def test_times(world):
    both_refuse(world.urls["expired"], ["(CN=old)", "expired at ", "2020", " days ago"], world.authority.ca)
    both_refuse(world.urls["ahead"], ["is valid only from ", "2090", "is a clock wrong?"], world.authority.ca)


def test_the_wrong_scheme(world):
    tcp = "{}:{}".format(*world.daemon.tcp)
    both_refuse("https://" + tcp, ["is asked by TLS and answers without it: is it http://" + tcp], world.authority.ca)
    plain = world.nginx.plain("good")
    both_refuse(plain, [plain + " is asked without TLS and speaks TLS: give " + world.urls["good"]])


def test_a_protocol_that_is_too_old(world):
    both_refuse(world.urls["tls11"], ["no connection by TLS (1.2 at least) to " + world.urls["tls11"]],
                world.authority.ca)


@pytest.mark.parametrize("name", ["asks", "asks12"])
def test_a_client_without_the_certificate_that_is_asked(world, name):
    both_refuse(world.urls[name], ["asks for a client's certificate: give one with", "GPUBUF_CERT"], world.authority.ca)
    for cert, key in (world.other.client("mallory"), world.old_client):
        both_refuse(world.urls[name], [f"does not accept the client's certificate {cert}"], world.authority.ca, cert,
                    key)


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_a_client_that_is_refused_within_the_handshake(world, version):
    server = Strict(world.authority, version)
    try:
        both_refuse(server.url, ["asks for a client's certificate: give one with"], world.authority.ca)
        cert, key = world.other.client("mallory")
        both_refuse(server.url, [f"does not accept the client's certificate {cert}"], world.authority.ca, cert, key)
        # This server ends the connection without a word, which may pass: the cause is looked for after the last
        # attempt.
        both_refuse(server.url.replace("https", "http"), ["is asked without TLS and speaks TLS: give " + server.url],
                    attempts=3)
    finally:
        server.stop()


def listening(world, *more, authority=None):
    pair = (authority or world.authority).server
    return Daemon("host", "--tls-listen", "127.0.0.1:0", "--tls-cert", pair[0], "--tls-key", pair[1], *more,
                  listen=("--listen", "none"))


def address_of(daemon):
    return next(a[4:] for a in daemon.addresses if a.startswith("tls:"))


def test_the_daemon_itself(world, tmp_path):
    data = np.arange(3 << 20, dtype=np.uint8).tobytes()
    (tmp_path / "in").write_bytes(data)
    with listening(world, "--tls-client-ca", world.authority.ca) as daemon:
        url = "https://" + address_of(daemon)
        run = Cli(url, GPUBUF_CACERT=world.authority.ca)
        run("put", "--raw", tmp_path / "in", "x").expect()
        cert, key = world.authority.client("ci")
        run("--cert", cert, "--key", key, "get", "--raw", "x", tmp_path / "out").expect()
        assert (tmp_path / "out").read_bytes() == data
        with gpubuf.Client(url, cacert=world.authority.ca, cert=cert, key=key) as client:
            assert client.get("x").tobytes() == data
        both_refuse(url, ["was issued by CN=gpubufd authority"])
        both_refuse(url.replace("https:", "http:"), ["is asked without TLS and speaks TLS: give " + url])
        cert, key = world.other.client("mallory")
        both_refuse(url, [f"does not accept the client's certificate {cert}"], world.authority.ca, cert, key)
        found = checks(run("--json", "doctor", "--socket", daemon.unix).expect())
        assert found["TLS"]["ok"] and "asks for a client's certificate" in found["TLS"]["detail"]


def test_the_daemon_takes_a_renewed_certificate(world, tmp_path):
    own = Authority(tmp_path / "own", "--days", "1")
    with listening(world, authority=own) as daemon:
        run = Cli("https://" + address_of(daemon), GPUBUF_CACERT=own.ca)
        assert not checks(run("--json", "doctor", "--socket", daemon.unix).expect(FAILED))["certificate's end"]["ok"]
        gpubufd_tls("renew", "--dir", own.folder)
        until("the daemon has it", lambda: checks(run("--json", "doctor", "--socket",
                                                      daemon.unix))["certificate's end"]["ok"])


def test_files_that_cannot_be_used(world, tmp_path):
    cert, key = world.authority.client("ci")
    locked = tmp_path / "locked.key"
    assert openssl("pkcs8", "-topk8", "-in", key, "-out", locked, "-passout", "pass:x").returncode == 0
    (tmp_path / "empty").mkdir()
    cases = [
        ({"cacert": "/nowhere"}, "/nowhere"),
        ({"cacert": key}, "has no certificate in PEM"),
        ({"cacert": str(tmp_path / "empty")}, "certificate in PEM"),
        ({"key": key}, "needs its certificate"),
        ({"cert": cert}, f"there is no key in {cert}"),
        ({"cert": cert, "key": "/nowhere"}, "/nowhere"),
        ({"cert": cert, "key": world.authority.server[1]}, cert),
        ({"cert": cert, "key": str(locked)}, "passphrase"),
    ]
    for more, words in cases:
        args = [a for name, value in more.items() for a in ("--" + name, value)]
        said = Cli(world.urls["good"])(*args, "ls").expect(USAGE)
        assert words in said.err, (more, said.err)
        with pytest.raises(gpubuf.BadArgument) as raised:
            gpubuf.Client(world.urls["good"], **more)
        assert words in raised.value.detail, (more, raised.value.detail)


def test_the_feed_ends_where_the_certificate_is_refused(world):
    with gpubuf.Client(world.urls["good"]) as client:
        with pytest.raises(gpubuf.TlsFailed):
            client.feed()
    Cli(world.urls["good"])("feed").expect(UNREACHABLE)


# --- tokens -----------------------------------------------------------------------------------------------------------


class Listener:
    """Answers every request, and every TLS handshake, with the same bytes; keeps what came."""

    def __init__(self, answer, address="127.0.0.1"):
        self.answer, self.heads = answer, []
        self.sock = socket.create_server((address, 0))
        self.port = self.sock.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                connection, _ = self.sock.accept()
            except OSError:
                return
            with connection:
                head = b""
                while b"\r\n\r\n" not in head and head[:1] != b"\x16":
                    data = connection.recv(65536)
                    if not data:
                        break
                    head += data
                self.heads.append(head)
                connection.sendall(self.answer)

    def stop(self):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        self.thread.join(30)


EMPTY = (b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 31\r\nConnection: close\r\n\r\n'
         b'{"items":[],"next_cursor":null}')


@pytest.mark.parametrize("url", ["http://gpu1.invalid:7070", "gpu1.invalid", "http://192.0.2.1",
                                 "http://127.0.0.1.invalid", "http://[2001:db8::1]:7070"])
def test_a_token_does_not_go_over_plain_http_to_another_machine(url):
    said = Cli(url, GPUBUF_TOKEN="gpb_x")("ls").expect(USAGE)
    assert "is not sent over plain http to" in said.err and "--plain-token" in said.err
    with pytest.raises(gpubuf.BadArgument, match="is not sent over plain http"):
        gpubuf.Client(url, token="gpb_x")
    gpubuf.Client(url, token="gpb_x", plain_token=True).close()
    gpubuf.Client(url).close()


def test_where_a_token_goes(world, monkeypatch):
    name = socket.gethostname()
    listener = Listener(EMPTY, "")
    try:
        socket.create_connection((name, listener.port), 10).close()
        until("the probe is seen", lambda: listener.heads)
    except OSError:
        name = None  # a machine that does not know its own name
    try:
        listener.heads.clear()
        for url in ("http://127.0.0.1:{}", "http://127.0.0.2:{}", "http://localhost:{}", "127.0.0.1:{}"):
            Cli(url.format(listener.port), GPUBUF_TOKEN="gpb_x")("ls").expect()
            gpubuf.Client(url.format(listener.port), token="gpb_x").list()
        assert len(listener.heads) == 8 and all(b"Authorization: Bearer gpb_x\r\n" in head for head in listener.heads)
        if name is not None:
            listener.heads.clear()
            url = f"http://{name}:{listener.port}"
            Cli(url, GPUBUF_TOKEN="gpb_x")("ls").expect(USAGE)
            assert listener.heads == []
            Cli(url, GPUBUF_TOKEN="gpb_x")("--plain-token", "ls").expect()
            Cli(url, GPUBUF_TOKEN="gpb_x", GPUBUF_PLAIN_TOKEN="1")("ls").expect()
            monkeypatch.setenv("GPUBUF_PLAIN_TOKEN", "1")
            gpubuf.Client(url, token="gpb_x").list()
            assert len(listener.heads) == 3 and all(b"Authorization: Bearer gpb_x\r\n" in head
                                                    for head in listener.heads)
    finally:
        listener.stop()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status):
    there = Listener(EMPTY)
    here = Listener(f"HTTP/1.1 {status} Elsewhere\r\nLocation: http://127.0.0.1:{there.port}/\r\nContent-Length: "
                    "0\r\n\r\n".encode())
    try:
        url = f"http://127.0.0.1:{here.port}"
        said = Cli(url, GPUBUF_TOKEN="gpb_x")("ls").expect(FAILED)
        assert f"redirects to http://127.0.0.1:{there.port}/ (status {status}), which is not followed" in said.err
        with pytest.raises(gpubuf.BrokenAnswer, match="which is not followed"):
            gpubuf.Client(url, token="gpb_x").list()
        assert len(here.heads) == 2 and there.heads == []
    finally:
        here.stop()
        there.stop()


def test_no_token_goes_to_a_server_that_is_not_trusted():
    """It is asked by TLS and does not answer so: what it hears after that has no token."""
    listener = Listener(EMPTY)
    try:
        url = f"https://127.0.0.1:{listener.port}"
        Cli(url, GPUBUF_TOKEN="gpb_x")("ls").expect(UNREACHABLE)
        with pytest.raises(gpubuf.Unreachable):
            gpubuf.Client(url, token="gpb_x").list()
        until("they are seen", lambda: len(listener.heads) >= 2)
        assert not any(b"gpb_x" in head for head in listener.heads)
    finally:
        listener.stop()


# --- doctor -----------------------------------------------------------------------------------------------------------


def checks(run):
    return {c["check"]: c for c in run.json()}


def test_doctor(world):
    found = checks(cli(world)("--json", "doctor", "--socket", world.daemon.unix).expect())
    assert found["TLS"]["ok"] and found["TLS"]["detail"].startswith("TLS1.3, AES-")
    assert found["certificate"]["ok"] and found["certificate"]["detail"].startswith("CN=gpu1.lab, issued by CN=gpubufd "
                                                                                    "authority ")
    assert (found["certificate's names"]["detail"].startswith("gpu1.lab, ")
            and "127.0.0.1" in found["certificate's names"]["detail"])
    assert found["certificate's end"]["ok"] and "82" in found["certificate's end"]["detail"] and found["daemon"]["ok"]
    found = checks(cli(world, "expired")("--json", "doctor").expect(FAILED))
    assert not found["certificate"]["ok"] and "expired at 2020-02-01" in found["certificate"]["detail"]
    assert not found["certificate's end"]["ok"] and found["certificate's end"]["detail"].startswith(
        "2020-02-01, which was ")
    assert not found["daemon"]["ok"]
    found = checks(cli(world, "wrong-name")("--json", "doctor").expect(FAILED))
    assert "and not for 127.0.0.2" in found["certificate"]["detail"]
    found = checks(cli(world, "asks")("--json", "doctor").expect(FAILED))
    assert (found["TLS"]["detail"].endswith("and the daemon asks for a client's certificate")
            and found["certificate"]["ok"])
    found = checks(Cli("https://{}:{}".format(*world.daemon.tcp))("--json", "doctor").expect(FAILED))
    assert "answers without it" in found["TLS"]["detail"]
    assert "TLS" not in checks(Cli(world.daemon.url(""))("--json", "doctor", "--socket", world.daemon.unix).expect())


def test_doctor_of_a_certificate_that_ends_soon(world, tmp_path):
    soon = Authority(tmp_path / "soon", "--days", "5")
    nginx = Terminator(str(tmp_path / "nginx"), world.daemon, {"soon": {"pair": soon.server}})
    try:
        found = checks(Cli(nginx.urls["soon"])("--json", "--cacert", soon.ca, "doctor", "--socket",
                                               world.daemon.unix).expect(FAILED))
        assert (found["certificate"]["ok"] and not found["certificate's end"]["ok"] and "gpubufd tls renew"
                in found["certificate's end"]["remedy"])
    finally:
        nginx.stop()


def test_a_renewed_certificate_is_trusted_by_the_same_clients(world, tmp_path):
    own = Authority(tmp_path / "own")
    for _ in range(2):
        nginx = Terminator(str(tmp_path / f"nginx{_}"), world.daemon, {"it": {"pair": own.server}})
        try:
            Cli(nginx.urls["it"])("--cacert", own.ca, "ls").expect()
        finally:
            nginx.stop()
        gpubufd_tls("renew", "--dir", own.folder)
    assert not os.path.exists(own.server[0] + ".new")
