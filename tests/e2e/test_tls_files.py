"""Certificates and keys of listeners for TLS: wrong files, changed files, certificates of clients, sessions that are
resumed."""
import concurrent.futures
import os
import re
import shutil
import signal
import ssl
import subprocess
import threading

import pytest

import secure
import tls_keys
from connected import PATIENCE_S
from harness import DATA, Daemon, until
from records import context_of, s_client
from test_tls import CLOSE, VERSIONS, starts  # noqa: F401
from values import payload

pytestmark = pytest.mark.skipif(secure.EVERYWHERE, reason="these choose for themselves what goes over TLS")


@pytest.fixture
def authority(tmp_path):
    """One of the test's own, with the pair server."""
    folder = tmp_path / "authority"
    folder.mkdir()
    a = secure.Authority(folder)
    a.pair = a.server()
    return a



# --- the start --------------------------------------------------------------------------------------------------------

def refused(*options):
    d = Daemon("host", *options, listen=("--listen", "127.0.0.1:0"), wait=False)
    try:
        return d.finished(78)
    finally:
        d.clean()


def test_wrong_files(authority):
    other = authority.server("other")
    cert, key = authority.pair
    shutil.copy(key, authority.path("open.key"))
    os.chmod(authority.path("open.key"), 0o644)
    with open(authority.path("unsorted.pem"), "w") as f:
        f.write(open(authority.cert).read() + open(cert).read())
    with open(authority.path("garbage"), "w") as f:
        f.write("no certificate")
    os.chmod(authority.path("garbage"), 0o600)
    wrong = [(("none", key), "none: the certificate cannot be read (No such file or directory)"),
             (("garbage", key), "garbage: there is no certificate in PEM"),
             ((cert, "garbage"), "garbage: there is no key in PEM"),
             ((cert, "none"), "none: the key cannot be read (No such file or directory)"),
             ((cert, "open.key"), "open.key: other users may read or write the key (mode 0644); chmod 640 it"),
             ((cert, other[1]), "other.key: the key is not that of the first certificate of "),
             (("unsorted.pem", key), "unsorted.pem: the certificates are not in order")]
    for (c, k), said in wrong:
        assert said in refused("--tls-listen", "127.0.0.1:0", "--tls-cert", authority.path(c), "--tls-key",
                               authority.path(k))
    for ca, said in (("none", "none: the authority of clients cannot be read"),
                     ("garbage", "garbage: there is no certificate of an authority")):
        assert said in refused("--tls-listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--tls-client-ca",
                               authority.path(ca))


def test_options_that_do_not_fit(authority):
    cert, key = authority.pair
    assert "--tls-listen needs a certificate" in refused("--tls-listen", "127.0.0.1:0")
    assert "of no use without --tls-listen" in refused("--tls-cert", cert, "--tls-key", key)
    assert "each --tls-cert goes with one --tls-key" in refused("--tls-listen", "127.0.0.1:0", "--tls-cert", cert)


def test_a_certificate_that_has_expired(authority, starts):
    """It is served, the daemon's log says that clients refuse it, and they do."""
    d = starts(pair=authority.make("old", "/CN=localhost", "DNS:localhost", days=-1))
    assert re.search(r"\S+/old\.pem: the certificate has expired at \S+; clients refuse it", d.log())
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        d.wire(authority.context())
    d.stop()


def test_several_certificates(authority, starts):
    second, third = authority.make("second", "/CN=two", "DNS:two.example"), authority.make("third", "/CN=star",
                                                                                           "DNS:*.three.example")
    d = starts("--tls-cert", second[0], "--tls-key", second[1], "--tls-cert", third[0], "--tls-key", third[1],
               pair=authority.pair)
    for name, subject in (("localhost", "localhost"), ("two.example", "two"), ("a.three.example", "star")):
        with d.wire(authority.context(), name=name) as r:
            assert r.sock.tls.getpeercert()["subject"] == ((("commonName", subject),),)
            assert r.ask("GET", "/readyz").status == 200
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):  # it gets the first
        d.wire(authority.context(), name="strange.example")
    d.stop()


def test_names_of_certificates_are_hosts(authority, starts):
    """Over TLS, of all certificates, whatever name the client asked for; in plain HTTP they are no hosts."""
    second, third = authority.make("second", "/CN=two", "DNS:two.example"), authority.make("third", "/CN=star",
                                                                                           "DNS:*.three.example")
    d = starts("--tls-cert", second[0], "--tls-key", second[1], "--tls-cert", third[0], "--tls-key", third[1],
               pair=authority.pair)
    for host, status in (("localhost", 200), ("two.example", 200), ("TWO.example:7443", 200), ("a.three.example", 200),
                         ("b.a.three.example", 421), ("three.example", 421), (".three.example", 421),
                         ("one.example", 421), ("two", 421), ("star", 421)):
        head = f"GET /v1 HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        with d.wire(authority.context()) as r:
            assert r.send(head).reply().status == status, host
        with d.raw() as r:
            answer = r.send(head).reply()
            assert answer.status == (200 if host == "localhost" else 421), host
            assert answer.status == 200 or b"--host-name" in answer.body
    d.stop()


# --- clients' certificates --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("version", VERSIONS, ids=["1.2", "1.3"])
def test_certificates_of_clients(authority, starts, tmp_path, version):
    os.mkdir(tmp_path / "strangers")
    strangers = secure.Authority(tmp_path / "strangers", "strangers")
    d = starts("--tls-client-ca", authority.cert, pair=authority.pair)

    def asks(cert=None, key=None):
        with d.wire(context_of(authority, version, version, cert, key)) as r:
            return r.ask("GET", "/readyz").status

    assert asks() == 200 and asks(*authority.make("good", "/CN=client", "URI:spiffe://a/b", "clientAuth")) == 200
    for pair, alert in ((authority.make("over", "/CN=client", "DNS:c", "clientAuth", days=-1), "CERTIFICATE_EXPIRED"),
                        (strangers.make("strange", "/CN=client", "DNS:c", "clientAuth"), "UNKNOWN_CA"),
                        (authority.make("purpose", "/CN=client", "DNS:c", "serverAuth"), "UNSUPPORTED_CERTIFICATE")):
        with pytest.raises(ssl.SSLError, match=alert):
            asks(*pair)
    d.stop()


BAD_CERTIFICATE, DECRYPT_ERROR = 42, 51


def test_keys_that_are_costly_are_not_computed_with(authority, starts):
    """Any client may show a certificate. What computes with it would find that the signature is wrong."""
    d = starts("--tls-client-ca", authority.cert, pair=authority.pair)
    assert tls_keys.alert_of(d.tls, 2048, 17) == DECRYPT_ERROR
    assert tls_keys.alert_of(d.tls, 8192, 32) == DECRYPT_ERROR
    for bits, exponent_bits in ((2048, 33), (8200, 17), (16384, 16382), (57344, 57342)):
        assert tls_keys.alert_of(d.tls, bits, exponent_bits) == BAD_CERTIFICATE, (bits, exponent_bits)
    d.stop()


@pytest.mark.parametrize("version", VERSIONS, ids=["1.2", "1.3"])
def test_an_exponent_that_is_costly(authority, starts, version):
    """Of a certificate that is good otherwise."""
    d = starts("--tls-client-ca", authority.cert, pair=authority.pair)
    for name, exponent in (("usual", 65537), ("large", (1 << 32) + 15)):
        authority.make(name, "/CN=client", "DNS:c", "clientAuth",
                       key=("rsa", "-pkeyopt", "rsa_keygen_bits:2048", "-pkeyopt", f"rsa_keygen_pubexp:{exponent}"))

    def asks(name):
        with d.wire(context_of(authority, version, version, authority.path(name + ".pem"),
                               authority.path(name + ".key"))) as r:
            return r.ask("GET", "/readyz").status

    assert asks("usual") == 200
    with pytest.raises(ssl.SSLError, match="BAD_CERTIFICATE"):
        asks("large")
    d.stop()


@pytest.mark.parametrize("group", ["ffdhe2048", "ffdhe8192"])
def test_groups_that_are_costly_are_not_spoken(authority, starts, group):
    d = starts(pair=authority.pair)
    assert "handshake failure" in s_client(d.tls, authority, "-groups", group, send=CLOSE)
    assert "HTTP/1.1 200" in s_client(d.tls, authority, "-groups", group + ":P-256", send=CLOSE)
    d.stop()


# --- sessions ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
@pytest.mark.parametrize("shows", [False, True], ids=["without", "with"])
def test_resumption_by_openssl(authority, starts, version, shows, tmp_path):
    """Also with a client's certificate; after the authority of clients has changed a session is not resumed."""
    d = (starts("--tls-client-ca", authority.path("clients.pem"), pair=authority.pair)
         if shutil.copy(authority.cert, authority.path("clients.pem")) else None)
    cert = authority.make("good", "/CN=client", "DNS:c", "clientAuth") if shows else ()
    options = (version, *(("-cert", cert[0], "-key", cert[1]) if shows else ()))
    session = str(tmp_path / "session")
    said = s_client(d.tls, authority, *options, "-sess_out", session, send=CLOSE)
    assert "New, TLS" in said and "HTTP/1.1 200" in said
    assert ("Reused, TLS" in (said := s_client(d.tls, authority, *options, "-sess_in", session, send=CLOSE))
            and "HTTP/1.1 200" in said)
    os.mkdir(tmp_path / "others")
    shutil.copy(secure.Authority(tmp_path / "others", "others").cert, authority.path("clients.pem"))
    d.process.send_signal(signal.SIGHUP)
    until("the files were read", lambda: "certificates were read again" in d.log())
    said = s_client(d.tls, authority, *options, "-sess_in", session, send=CLOSE)
    assert "Reused, TLS" not in said and (("HTTP/1.1 200" in said) != shows), said
    assert ("unknown ca" in said) == shows
    d.stop()


@pytest.mark.parametrize("version", VERSIONS, ids=["1.2", "1.3"])
def test_resumption_by_python(authority, starts, version):
    d = starts(pair=authority.pair)
    context = context_of(authority, version, version)
    with d.wire(context) as r:
        assert r.ask("GET", "/readyz").status == 200 and not r.sock.tls.session_reused
        session = r.session
    for _ in range(2):
        with d.wire(context, session=session) as r:
            assert r.sock.tls.session_reused and r.ask("GET", "/readyz").status == 200
    d.stop()


# --- keys that change -------------------------------------------------------------------------------------------------

class Interactive:
    """openssl s_client that is typed into: each piece is read alone."""

    def __init__(self, d, authority, *options):
        self.process = subprocess.Popen(["openssl", "s_client", "-connect", "{}:{}".format(*d.tls), "-CAfile",
                                         authority.cert, "-servername", "localhost", *options], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.got, self.more = b"", threading.Condition()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()
        self.wait(b"---\n", 1)

    def _read(self):
        while data := self.process.stdout.read1(1 << 16):
            with self.more:
                self.got += data
                self.more.notify_all()
        with self.more:
            self.got += b"[ended]"
            self.more.notify_all()

    def type(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()
        fd = self.process.stdin.fileno()
        until("it is read", lambda: unread_in(fd) == 0)

    def wait(self, text, times=1):
        with self.more:
            assert self.more.wait_for(lambda: self.got.count(text) >= times or b"[ended]" in self.got,
                                      PATIENCE_S), self.got[-2000:]
            return self.got

    def close(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdin.close()
        self.process.stdout.close()


def unread_in(fd):
    import fcntl
    import struct
    import termios
    return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0]


@pytest.mark.parametrize("letter", [b"k", b"K"], ids=["own", "both"])
def test_new_keys_within_transfers(authority, starts, letter):
    """TLS 1.3: keys change in the middle of an upload's head and body, and before requests for downloads."""
    d = starts(pair=authority.pair)
    body = b"0123456789abcdef" * 20000
    client = Interactive(d, authority, "-tls1_3")
    try:
        client.type(f"PUT {DATA.format('default', 'keys')} HTTP/1.1\nHost: localhost\n".replace("\n", "\r\n").encode())
        client.type(letter + b"\n")
        client.type(f"Content-Length: {len(body)}\r\n\r\n".encode())
        for at in range(0, len(body), 80000):
            client.type(letter + b"\n")
            client.type(body[at:at + 80000])
        client.wait(b"HTTP/1.1 201")
        for i in range(2):
            client.type(letter + b"\n")
            client.type(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            client.wait(b"HTTP/1.1 200", i + 1)
        client.type(
            f"GET {DATA.format('default', 'keys')} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        got = client.wait(b"[ended]")
        assert body in got and got.count(b"KEYUPDATE") >= 6
    finally:
        client.close()
    assert d.data("keys").body == body
    d.stop()


def test_no_negotiation_anew(authority, starts):
    d = starts(pair=authority.pair)
    client = Interactive(d, authority, "-tls1_2")
    try:
        client.type(b"R\n")
        got = client.wait(b"[ended]")
        assert b"RENEGOTIATING" in got and b"no renegotiation" in got, got[-500:]
    finally:
        client.close()
    d.stop()


# --- files that change ------------------------------------------------------------------------------------------------

def serial(d, authority):
    with d.wire(authority.context()) as r:
        return r.sock.tls.getpeercert()["serialNumber"]


def busy(d, authority, stopped):
    """Uploads, downloads and polls on one connection."""
    done = 0
    with d.wire(authority.context()) as r:
        while not stopped.is_set():
            name, data = f"b{threading.get_ident()}", payload(400000, seed=done)
            r.put(DATA.format("default", name), len(data)).send(data)
            assert r.reply().status in (200, 201)
            assert r.ask("GET", DATA.format("default", name)).expect(200).body == data
            assert r.ask("GET", "/readyz").status == 200
            done += 1
    return done


@pytest.mark.parametrize("signalled", [False, True], ids=["noticed", "SIGHUP"])
def test_certificates_change_under_load(authority, starts, signalled):
    """Connections keep those that they began with; new ones get the new. A broken file changes nothing."""
    cert, key = authority.pair
    d = starts(pair=authority.pair)
    first, stopped = serial(d, authority), threading.Event()

    def change(make, said):
        count = d.log().count(said)
        make()
        if signalled:
            d.process.send_signal(signal.SIGHUP)
        until(said, lambda: d.log().count(said) > count)

    def broken():
        with open(cert, "w") as f:
            f.write("broken")

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        running = [pool.submit(busy, d, authority, stopped) for _ in range(3)]
        try:
            change(broken, "the certificates in force stay: ")
            assert serial(d, authority) == first
            seen = {first}
            for _ in range(3):
                change(authority.server, "certificates were read again")
                until("the new certificate", lambda: serial(d, authority) not in seen)
                seen.add(serial(d, authority))
            assert not any(f.done() for f in running)
        finally:
            stopped.set()
        assert all(f.result() > 0 for f in running)
    log = d.stop()
    assert re.search(r"the certificates in force stay: \S+server.pem: there is no certificate in PEM", log)
