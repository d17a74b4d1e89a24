"""GnuTLS's own client: another implementation than openssl's, and the one whose library the daemon has."""
import subprocess

import pytest

import secure
from connected import PATIENCE_S
from harness import DATA
from proxies import program
from records import secured_address
from test_tls import TlsDaemon
from values import payload

pytestmark = pytest.mark.skipif(secure.EVERYWHERE, reason="these choose for themselves what goes over TLS")
VERSIONS = ["TLS1.2", "TLS1.3"]


@pytest.fixture(scope="module")
def d(backend):
    program("gnutls-cli")
    served = TlsDaemon(backend)
    yield served
    served.stop()


def request(path, *headers):
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers, "", ""]).encode()


def client(address, authority, *args, send=b"", name="localhost", priority="NORMAL"):
    """(its exit status, all that it says)"""
    names = ("--sni-hostname", name, "--verify-hostname", name)
    run = subprocess.run([program("gnutls-cli"), "--x509cafile", authority.cert, *names, "--priority", priority,
                          "--port", str(address[1]), *args, address[0]], input=send, capture_output=True,
                         timeout=PATIENCE_S)
    return run.returncode, run.stdout + run.stderr


def only(version):
    return f"NORMAL:-VERS-ALL:+VERS-{version}"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_get(d, version):
    data = payload(300000, 1)
    d.put("x", data)
    asked = request(DATA.format("default", "x"))
    status, said = client(d.tls, secure.authority(), "--alpn", "http/1.1", send=asked, priority=only(version))
    assert (status == 0 and b"Handshake was completed" in said and f"Description: ({version}".encode()
            in said), said[:2000]
    assert b"Application protocol: http/1.1" in said and b"HTTP/1.1 200" in said and data in said, said[:2000]


@pytest.mark.parametrize("suite", ["AES-128-GCM", "AES-256-GCM", "CHACHA20-POLY1305"])
@pytest.mark.parametrize("version", VERSIONS)
def test_suites(d, version, suite):
    status, said = client(d.tls, secure.authority(), send=request("/readyz"), priority=only(version) + ":-CIPHER-ALL:+"
                          + suite)
    assert status == 0 and b"HTTP/1.1 200" in said and f"({suite})".encode() in said, said[:2000]


@pytest.mark.parametrize("version", VERSIONS)
def test_resumption(d, version):
    args = ("--resume", "--waitresumption")
    status, said = client(d.tls, secure.authority(), *args, send=request("/readyz"), priority=only(version))
    assert status == 0 and b"This is a resumed session" in said and b"HTTP/1.1 200" in said, said[:4000]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wrong_authority_and_a_wrong_name(d, tmp_path, version):
    other = secure.Authority(tmp_path, "another authority")
    status, said = client(d.tls, other, send=request("/readyz"), priority=only(version))
    assert status != 0 and b"The certificate issuer is unknown" in said and b"HTTP/1.1" not in said, said[:2000]
    status, said = client(d.tls, secure.authority(), send=request("/readyz"), priority=only(version),
                          name="elsewhere.example")
    assert status != 0 and b"does not match" in said and b"HTTP/1.1" not in said, said[:2000]


@pytest.mark.parametrize("priority", ["NORMAL:-VERS-ALL:+VERS-TLS1.1", only("TLS1.2") + ":-CIPHER-ALL:+AES-128-CBC",
                                      only("TLS1.2") + ":-KX-ALL:+RSA"])
def test_what_is_weak_is_refused(d, priority):
    status, said = client(d.tls, secure.authority(), send=request("/readyz"), priority=priority)
    assert status != 0 and b"HTTP/1.1" not in said and b"alert" in said, said[:2000]


def test_a_certificate_of_the_client(backend, tmp_path):
    program("gnutls-cli")
    own = secure.authority()
    mine = own.make("gnutls-client", "/CN=mine", "DNS:mine", "clientAuth")
    other = secure.Authority(tmp_path, "another authority").make("theirs", "/CN=theirs", "DNS:theirs", "clientAuth")
    with TlsDaemon(backend, "--tls-client-ca", own.cert) as d:
        for version in VERSIONS:
            for (cert, key), good in ((mine, True), (other, False)):
                shown = ("--x509certfile", cert, "--x509keyfile", key)
                _, said = client(secured_address(d), own, *shown, send=request("/v1"), priority=only(version))
                assert (b"HTTP/1.1 200" in said) == good, said[:2000]


def test_the_kernel_s_part_is_told(d):
    with open("/proc/sys/net/ipv4/tcp_available_ulp") as f:
        present = "tls" in f.read().split()
    assert d.get("/v1")["kernel_tls"] == ("present, not used" if present else "absent")
    assert f"kernel TLS: {'present, not used' if present else 'absent'}" in d.log()
