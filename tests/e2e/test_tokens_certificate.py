"""A client's certificate that names a token's subject is as good as its secret."""
import hashlib
import http.client
import json
import signal
import ssl

import pytest

import secure
from harness import DATA, PATIENCE_S, token, until


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Certificates of clients and their authority."""
    authority = secure.Authority(tmp_path_factory.mktemp("clients"), "clients")
    authority.make("cam", "/O=Example/CN=cam1", "DNS:cam1.example,URI:spiffe://example/cam1", "clientAuth")
    authority.make("other", "/O=Example/CN=other", "DNS:other.example", "clientAuth")
    return authority


def ask(d, client, who, method, target, body=None, secret=None, headers=None):
    context = ssl.create_default_context(cafile=secure.authority().cert)
    if who:
        context.load_cert_chain(client.path(who + ".pem"), client.path(who + ".key"))
    c = http.client.HTTPSConnection(*d.tcp, timeout=PATIENCE_S, context=context)
    try:
        c.request(method, target, body, {**(headers or {}), **({"Authorization": "Bearer " + secret} if secret
                                                               else {})})
        r = c.getresponse()
        return r.status, r.read()
    finally:
        c.close()


@pytest.fixture
def guarded(start, tmp_path, client):
    state = tmp_path / "state"
    boss = token(state, "add", "boss", "--scope", "admin")
    token(state, "add", "cam", "--scope", "write", "--subject", "CN=cam1,O=Example", "--prefix", "cam1-")
    cert, key = secure.authority().pair
    d = start("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", client.cert, state=str(state),
              listen=("--listen", "none", "--tls-listen", "127.0.0.1:0"))
    return d, boss


def test_alone_or_with_a_bearer(guarded, client):
    d, boss = guarded
    mine, other = DATA.format("default", "cam1-x"), DATA.format("default", "x")
    assert ask(d, client, "cam", "PUT", mine, b"1")[0] == 201
    assert ask(d, client, "cam", "PUT", other, b"1")[0] == 403
    assert ask(d, client, "cam", "PUT", other, b"1", boss)[0] == 201  # the bearer decides
    assert ask(d, client, "cam", "PUT", mine, b"1", "unknown")[0] == 401
    assert ask(d, client, "other", "PUT", mine, b"1")[0] == 401
    assert ask(d, client, "other", "PUT", mine, b"1", boss)[0] == 401  # both must be known


def test_operations_of_certificates(guarded, client):
    """The request continues without its connection."""
    d, boss = guarded
    for i in range(20):
        status, body = ask(d, client, "cam", "POST",
                           f"/v1/sessions/default/buffers/cam1-{i}/fill" if i else "/v1/sessions/default/buffers",
                           json.dumps({"name": "cam1-0", "bytes": 1 << 20} if not i else {"pattern": i}),
                           headers={"Prefer": "respond-async", "Content-Type": "application/json"})
        assert status in (201, 202, 404), body
    assert ask(d, client, "cam", "GET", "/v1/operations")[0] == 200


def test_revoked(guarded, client):
    d, boss = guarded
    assert ask(d, client, "cam", "GET", "/v1")[0] == 200
    token(d.state, "revoke", "cam")
    until("it is refused", lambda: ask(d, client, "cam", "GET", "/v1")[0] == 401)


def listening(d, context):
    c = http.client.HTTPSConnection(*d.tcp, timeout=PATIENCE_S, context=context)
    c.request("GET", "/v1/feed", None, {"Accept": "text/event-stream"})
    r = c.getresponse()
    assert r.status == 200
    return c, r


def test_authorities_that_change_are_in_force_on_kept_connections(start, tmp_path, client):
    """One connection is by an authority that stays, another by one that goes."""
    others = secure.Authority(tmp_path, "others")
    others.make("robot", "/CN=robot", "DNS:robot.example", "clientAuth")
    state, both = tmp_path / "state", tmp_path / "both.pem"
    token(state, "add", "cam", "--scope", "write", "--subject", "dns:cam1.example")
    token(state, "add", "robot", "--scope", "write", "--subject", "dns:robot.example")
    both.write_text(open(client.cert).read() + open(others.cert).read())
    cert, key = secure.authority().pair
    d = start("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", both, state=str(state),
              listen=("--listen", "none", "--tls-listen", "127.0.0.1:0"))

    def context(authority, name):
        made = ssl.create_default_context(cafile=secure.authority().cert)
        made.load_cert_chain(authority.path(name + ".pem"), authority.path(name + ".key"))
        return made

    contexts = [context(client, "cam"), context(others, "robot")]
    kept = [http.client.HTTPSConnection(*d.tcp, timeout=PATIENCE_S, context=c) for c in contexts]
    feeds = [listening(d, c) for c in contexts]

    def asks(c):
        c.request("GET", "/v1")
        r = c.getresponse()
        return r.status, r.headers["Connection"], r.read().decode()

    assert [asks(c)[0] for c in kept] == [200, 200]
    both.write_text(open(client.cert).read())
    d.process.send_signal(signal.SIGHUP)
    until("the files were read", lambda: "certificates were read again" in d.log())
    status, connection, said = asks(kept[1])
    assert (status, connection) == (401, "close") and "--tls-client-ca" in said
    assert asks(kept[0])[:2] == (200, None)
    while feeds[1][1].readline():  # it ends
        pass
    put = http.client.HTTPSConnection(*d.tcp, timeout=PATIENCE_S, context=contexts[0])
    put.request("PUT", DATA.format("default", "x"), b"1")
    assert put.getresponse().status == 201
    until("the other one hears of it", lambda: b"created" in feeds[0][1].readline(), every_s=0)
    for c in (*kept, put, feeds[0][0], feeds[1][0]):
        c.close()


def test_the_audit_names_a_certificate_without_a_subject(guarded, client):
    """By its first name, else by its fingerprint."""
    d, boss = guarded
    client.make("named", "/", "DNS:named.example,URI:spiffe://example/named", "clientAuth")
    client.make("bare", "/", "dirName:other", "clientAuth\n[other]\nCN=in another form")
    with open(client.path("bare.pem"), encoding="ascii") as f:
        bare = "sha256:" + hashlib.sha256(ssl.PEM_cert_to_DER_cert(f.read())).hexdigest()
    for who in ("cam", "named", "bare"):
        ask(d, client, who, "PUT", DATA.format("default", "cam1-x"), b"1")

    def names():
        records = json.loads(ask(d, client, None, "GET", "/v1/audit?limit=1000", secret=boss)[1])["items"]
        return {r["certificate"] for r in records if "certificate" in r}

    until("all are named", lambda: names() == {"CN=cam1,O=Example", "dns:named.example", bare})
