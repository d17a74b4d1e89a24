"""`gpubufd tls`: the files of a private authority, held against openssl."""
import os
import re
import shlex
import socket
import ssl
import stat
import subprocess
from calendar import timegm
from time import strptime

import pytest

from harness import PATIENCE_S, binary, until
from tls_servers import Authority, gpubufd_tls, openssl

pytestmark = pytest.mark.once
USAGE, SOFTWARE = 64, 70
SERVER_EXTENSIONS = {
    "X509v3 Basic Constraints: critical": "CA:FALSE",
    "X509v3 Key Usage: critical": "Digital Signature",
    "X509v3 Extended Key Usage:": "TLS Web Server Authentication",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls") / "it", "--name", "gpu1.lab", "--name", "*.pool.lab", "--ip",
                     "192.0.2.9", "--client", "ci")


def text_of(path):
    return openssl("x509", "-in", path, "-noout", "-text").stdout


def extensions(path):
    """{the line that names an extension: the line below it}"""
    lines = [line.strip() for line in text_of(path).splitlines()]
    return {line: lines[n + 1] for n, line in enumerate(lines) if line.startswith("X509v3 ")}


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_files_and_their_modes(made):
    assert sorted(os.listdir(made.folder)) == ["authority", "ca.pem", "clients", "server.key", "server.pem"]
    assert mode(made.path("authority")) == mode(made.path("clients")) == 0o700
    assert mode(made.path("authority", "ca.key")) == mode(made.server[1]) == mode(made.client("ci")[1]) == 0o600
    assert mode(made.ca) == mode(made.server[0]) == 0o644


def test_openssl_verifies_them_for_what_they_are_for(made):
    for purpose, path in (("sslserver", made.server[0]), ("sslclient", made.client("ci")[0])):
        other = "sslclient" if purpose == "sslserver" else "sslserver"
        good = openssl("verify", "-x509_strict", "-purpose", purpose, "-CAfile", made.ca, path)
        assert good.returncode == 0, good.stderr
        assert openssl("verify", "-x509_strict", "-purpose", other, "-CAfile", made.ca, path).returncode != 0
    for name in ("gpu1.lab", "a.pool.lab", "localhost", socket.gethostname()):
        assert openssl("verify", "-verify_hostname", name, "-CAfile", made.ca, made.server[0]).returncode == 0, name
    for address in ("192.0.2.9", "127.0.0.1", "::1"):
        assert openssl("verify", "-verify_ip", address, "-CAfile", made.ca, made.server[0]).returncode == 0, address
    assert openssl("verify", "-verify_hostname", "gpu2.lab", "-CAfile", made.ca, made.server[0]).returncode != 0


def test_extensions(made):
    authority, server, client = extensions(made.ca), extensions(made.server[0]), extensions(made.client("ci")[0])
    assert authority["X509v3 Basic Constraints: critical"] == "CA:TRUE, pathlen:0"
    assert authority["X509v3 Key Usage: critical"] == "Certificate Sign, CRL Sign"
    assert "X509v3 Extended Key Usage:" not in authority
    assert {k: server[k] for k in SERVER_EXTENSIONS} == SERVER_EXTENSIONS
    assert client["X509v3 Extended Key Usage:"] == "TLS Web Client Authentication"
    key = authority["X509v3 Subject Key Identifier:"]
    assert server["X509v3 Authority Key Identifier:"] == client["X509v3 Authority Key Identifier:"] == key
    assert server["X509v3 Subject Key Identifier:"] not in (key, client["X509v3 Subject Key Identifier:"])
    names = server["X509v3 Subject Alternative Name:"]
    assert names.startswith("DNS:gpu1.lab, DNS:*.pool.lab, IP Address:192.0.2.9") and "DNS:localhost" in names
    for path in (made.ca, made.server[0], made.client("ci")[0]):
        text = text_of(path)
        assert "ecdsa-with-SHA256" in text and "NIST CURVE: P-256" in text and "Version: 3" in text


def test_serial_numbers_are_random_and_long(made, tmp_path):
    other = Authority(tmp_path / "other")
    serials = [openssl("x509", "-in", path, "-noout", "-serial").stdout.strip().split("=")[1]
               for path in (made.ca, made.server[0], made.client("ci")[0], other.ca, other.server[0])]
    assert len(set(serials)) == 5 and all(len(s) == 32 and int(s[0], 16) < 8 for s in serials), serials
    subjects = [openssl("x509", "-in", path, "-noout", "-subject").stdout for path in (made.ca, other.ca)]
    assert subjects[0] != subjects[1]  # two authorities of one machine differ


def test_times_begin_a_little_before(made):
    def at(which):
        said = openssl("x509", "-in", made.server[0], "-noout", which).stdout.split("=")[1].strip()
        return timegm(strptime(said, "%b %d %H:%M:%S %Y GMT"))

    assert 3600 <= int(os.stat(made.server[0]).st_mtime) - at("-startdate") < 3700
    assert at("-enddate") - at("-startdate") + 1 == 825 * 86400  # both seconds count, and Apple takes no more
    assert openssl("x509", "-in", made.server[0], "-noout", "-checkend", 824 * 86400).returncode == 0
    assert openssl("x509", "-in", made.server[0], "-noout", "-checkend", 826 * 86400).returncode == 1


def test_nothing_is_overwritten(made):
    before = {name: open(made.path(name), "rb").read() for name in ("ca.pem", "server.pem", "server.key",
                                                                    "authority/ca.key")}
    assert "is there, and nothing is overwritten" in gpubufd_tls("init", "--dir", made.folder, status=USAGE)
    assert "is there, and nothing is overwritten" in gpubufd_tls("client", "ci", "--dir", made.folder, status=USAGE)
    assert before == {name: open(made.path(name), "rb").read() for name in before}


def test_parents_are_made(tmp_path):
    gpubufd_tls("init", "--dir", tmp_path / "one" / "two" / "three")
    assert "authority" in os.listdir(tmp_path / "one" / "two" / "three")


def test_a_failure_leaves_nothing(tmp_path):
    folder = tmp_path / "half"
    folder.mkdir()
    (folder / "clients").write_text("no folder")
    assert "cannot be made" in gpubufd_tls("init", "--dir", folder, "--client", "ci", status=SOFTWARE)
    assert sorted(os.listdir(folder)) == ["authority", "clients"] and os.listdir(folder / "authority") == []


def test_client_and_renew(made, tmp_path):
    said = gpubufd_tls("client", "bob", "--dir", made.folder, "--days", "30")
    assert made.client("bob")[0] in said and "--cert bob.pem" in said
    assert openssl("verify", "-purpose", "sslclient", "-CAfile", made.ca, made.client("bob")[0]).returncode == 0
    assert openssl("x509", "-in", made.client("bob")[0], "-noout", "-checkend", 31 * 86400).returncode == 1
    own = Authority(tmp_path / "own", "--name", "a.lab", "--days", "2")
    key, names, was = (open(own.server[1]).read(), extensions(own.server[0])["X509v3 Subject Alternative Name:"],
                       open(own.server[0]).read())
    gpubufd_tls("renew", "--dir", own.folder)
    assert open(own.server[1]).read() == key and open(own.server[0]).read() != was
    assert extensions(own.server[0])["X509v3 Subject Alternative Name:"] == names
    assert openssl("x509", "-in", own.server[0], "-noout", "-checkend", 800 * 86400).returncode == 0
    said = gpubufd_tls("renew", "--dir", own.folder, "--name", "b.lab", "--ip", "192.0.2.4", "--name", "a.lab")
    assert extensions(own.server[0])["X509v3 Subject Alternative Name:"] == names + ", DNS:b.lab, IP Address:192.0.2.4"
    assert "new: b.lab, 192.0.2.4\n" in said and "gone: " not in said
    assert "--only goes with --name or --ip" in gpubufd_tls("renew", "--dir", own.folder, "--only", status=USAGE)
    said = gpubufd_tls("renew", "--dir", own.folder, "--name", "b.lab", "--ip", "192.0.2.4", "--only")
    assert extensions(own.server[0])["X509v3 Subject Alternative Name:"] == "DNS:b.lab, IP Address:192.0.2.4"
    assert "gone: a.lab" in said and "localhost" in said and "new: " not in said
    assert openssl("verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", own.ca, own.server[0]).returncode == 0
    assert not os.path.exists(own.server[0] + ".new")


def test_a_client_again(made):
    gpubufd_tls("client", "eve", "--dir", made.folder, "--days", "30")
    key = open(made.client("eve")[1]).read()
    assert "--renew makes the certificate again" in gpubufd_tls("client", "eve", "--dir", made.folder, status=USAGE)
    said = gpubufd_tls("client", "eve", "--renew", "--dir", made.folder)
    assert "for eve, until" in said and "--subject CN=eve" in said and open(made.client("eve")[1]).read() == key
    assert openssl("verify", "-purpose", "sslclient", "-CAfile", made.ca, made.client("eve")[0]).returncode == 0
    assert openssl("x509", "-in", made.client("eve")[0], "-noout", "-checkend", 800 * 86400).returncode == 0
    assert "there is no " in gpubufd_tls("client", "nobody", "--renew", "--dir", made.folder, status=USAGE)


def test_two_certificates_of_one_authority(start, tmp_path):
    made = Authority(tmp_path / "own", "--name", "gpu1.lab")
    said = gpubufd_tls("server", "store", "--name", "store.lab", "--name", "s.lab", "--dir", made.folder)
    store = made.path("servers", "store.pem"), made.path("servers", "store.key")
    assert (f"--tls-cert {store[0]} --tls-key {store[1]}" in said and mode(made.path("servers")) == 0o700
            and mode(store[1]) == 0o600)
    assert extensions(store[0])["X509v3 Subject Alternative Name:"] == "DNS:store.lab, DNS:s.lab"
    gpubufd_tls("server", "plain.lab", "--dir", made.folder)
    assert extensions(made.path("servers", "plain.lab.pem"))["X509v3 Subject Alternative Name:"] == "DNS:plain.lab"
    assert "nothing is overwritten" in gpubufd_tls("server", "store", "--dir", made.folder, status=USAGE)
    assert "new: t.lab\n" in gpubufd_tls("server", "store", "--renew", "--name", "t.lab", "--dir", made.folder)
    assert extensions(store[0])["X509v3 Subject Alternative Name:"] == "DNS:store.lab, DNS:s.lab, DNS:t.lab"
    d = start("--tls-cert", made.server[0], "--tls-key", made.server[1], "--tls-cert", store[0], "--tls-key", store[1],
              listen=("--listen", "none", "--tls-listen", "127.0.0.1:0"))
    trusted = ssl.create_default_context(cafile=made.ca)
    for name in ("gpu1.lab", "store.lab", "t.lab", "localhost"):
        with socket.create_connection(d.tcp, PATIENCE_S) as s, trusted.wrap_socket(s, server_hostname=name) as tls:
            assert tls.version()


def test_the_key_that_was_moved_away(tmp_path):
    own = Authority(tmp_path / "own")
    key = own.path("authority", "ca.key")
    os.rename(key, tmp_path / "apart")
    for words in (("renew",), ("client", "x"), ("server", "x")):
        said = gpubufd_tls(*words, "--dir", own.folder, status=USAGE)
        assert f"{key} is not there, and signs: put it back for this command" in said
    os.rename(tmp_path / "apart", key)
    gpubufd_tls("renew", "--dir", own.folder)


def test_a_certificate_for_clients_is_no_servers(made):
    cert, key = made.client("ci")
    out = subprocess.run([binary(), "--backend", "host", "--state-dir", made.path("state"), "--listen", "none",
                          "--tls-listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key], capture_output=True,
                         text=True, timeout=PATIENCE_S)
    assert out.returncode == 78 and f"{cert}: the certificate is not for servers (it is for clients)" in out.stderr
    assert "LimitNOFILE" not in out.stderr


def test_what_init_prints_works(tmp_path):
    """The commands as they stand, but for the port and the size: a token, and a daemon that begins."""
    said = gpubufd_tls("init", "--dir", tmp_path / "it", "--state-dir", tmp_path / "state")
    add, serve = (shlex.split(line)[1:] for line in said.splitlines() if line.startswith("  gpubufd "))
    made = subprocess.run([binary(), *add], capture_output=True, text=True, timeout=PATIENCE_S)
    assert made.returncode == 0, made.stderr
    serve = [word.replace(":7443", ":0") for word in serve] + ["--backend", "host", "--slots-bytes", "1M",
                                                               "--slot-bytes", "256K"]
    with subprocess.Popen([binary(), *serve], stderr=subprocess.PIPE, text=True) as daemon:
        try:
            until("it listens", lambda: (tmp_path / "state" / "listen").exists())
        finally:
            daemon.terminate()
        log = daemon.communicate(timeout=PATIENCE_S)[1]
    assert daemon.returncode == 0 and " warning " not in log.lower(), log


def test_subjects_stand_as_tokens_are_compared(made):
    made_of = made.path("dn")
    os.mkdir(made_of)
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-utf8", "-days", "2",
            "-keyout", made_of + "/key", "-out", made_of + "/pem", "-subj",
            '/O=Ex, "am"/OU=#x/CN=\u00fc \\+ a/emailAddress=a@b.c/x500UniqueIdentifier=1')
    subject = re.search(r"^subject +(.*)$", gpubufd_tls("show", made_of + "/pem"), re.M).group(1)
    assert subject == r'2.5.4.45=#0c0131,EMAIL=a@b.c,CN=ü \+ a,OU=\#x,O=Ex\, \"am\"'.replace(r"\u00fc", "\u00fc")
    out = subprocess.run([binary(), "token", "add", "x", "--subject", subject, "--state-dir", made.path("state")],
                         capture_output=True, text=True, timeout=PATIENCE_S)
    assert out.returncode == 0, out


def test_help():
    whole, one = gpubufd_tls("--help"), gpubufd_tls("client", "--help")
    assert all(word in whole for word in ("tls init", "tls server NAME", "tls client NAME", "tls renew",
                                          "tls show FILE", "--only", "--state-dir"))
    assert "--renew" in one and "--ip" not in one and "--rate-bytes" not in whole
    assert "is --name meant?" in gpubufd_tls("renew", "--nam", "x", status=USAGE)


def test_show(made):
    said = gpubufd_tls("show", made.server[0])
    assert re.search(r"^subject +CN=gpu1\.lab$", said, re.M) and re.search(r"^names +gpu1\.lab, \*\.pool\.lab, "
                                                                           r"192\.0\.2\.9, ", said, re.M)
    assert re.search(r"^for +server$", said, re.M) and re.search(r"^valid until +\d{4}-\d\d-\d\d \(82[45] days left\)$",
                                                                 said, re.M)
    print_of = openssl("x509", "-in", made.server[0], "-noout", "-fingerprint", "-sha256").stdout.split("=")[1].strip()
    assert print_of.replace(":", "").lower() in said
    both = made.path("both.pem")
    with open(both, "w") as f:
        f.write(open(made.server[0]).read() + open(made.ca).read())
    said = gpubufd_tls("show", both)
    assert said.count("subject ") == 2 and re.search(r"^for +authority$", said, re.M)
    old = made.signed("old", "20200101000000Z", "20200201000000Z", "basicConstraints=CA:FALSE")
    assert re.search(r"^valid until +2020-02-01 \(expired \d+ days ago\)$", gpubufd_tls("show", old[0]), re.M)
    assert "has no certificate in PEM" in gpubufd_tls("show", made.server[1], status=USAGE)
    assert "cannot be read" in gpubufd_tls("show", "/nowhere", status=USAGE)


@pytest.mark.parametrize("args, words", [
    ([], "permitted: init"),
    (["nix"], "permitted: init"),
    (["show"], "permitted: init"),
    (["client"], "permitted: init"),
    (["show", "x", "--days", "3"], 'tls show: there is no option "--days"'),
    (["client", "x", "--name", "y"], 'tls client: there is no option "--name"'),
    (["renew", "--client", "y"], 'tls renew: there is no option "--client"'),
    (["renew", "--renew"], 'tls renew: there is no option "--renew"'),
    (["server", "x", "--name", "y", "--only"], "--only goes with"),
    (["server"], "permitted: init"),
    (["init", "x", "y"], "one word too many"),
    (["init", "--days", "0"], "no number from 1 to 3650"),
    (["init", "--days", "3651"], "no number from 1 to 3650"),
    (["init", "--days", "3x"], "no number from 1 to 3650"),
    (["init", "--name", "192.0.2.1"], "is an address: give it with --ip"),
    (["init", "--name", "a b"], "is no host name"),
    (["init", "--ip", "gpu1"], "is no address"),
    (["init", "--name"], "--name needs a value"),
    (["init", "--nix"], "there is no option"),
    (["init", "--client", "a/b"], "client's name"),
])
def test_wrong_words(tmp_path, args, words):
    said = gpubufd_tls("--state-dir", tmp_path / "state", *args, status=USAGE)
    assert words in said
    assert not (tmp_path / "state" / "tls" / "ca.pem").exists()


def test_no_authority_and_a_wrong_key(tmp_path, made):
    assert "there is no authority" in gpubufd_tls("client", "x", "--dir", tmp_path, status=USAGE)
    own = Authority(tmp_path / "own")
    with open(made.path("authority", "ca.key")) as f, open(own.path("authority", "ca.key"), "w") as g:
        g.write(f.read())
    assert "is not the key of" in gpubufd_tls("client", "x", "--dir", own.folder, status=USAGE)


def test_the_state_directory_has_them_without_a_folder(tmp_path):
    said = gpubufd_tls("init", "--state-dir", tmp_path / "state")
    assert (tmp_path / "state" / "tls" / "server.pem").exists() and str(tmp_path / "state" / "tls" / "ca.pem") in said
    gpubufd_tls("client", "x", GPUBUFD_STATE_DIR=str(tmp_path / "state"))
    assert (tmp_path / "state" / "tls" / "clients" / "x.key").exists()
