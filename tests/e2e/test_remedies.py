"""What gpubuf, its doctor and the Python package say is wrong, and what they say to do about it."""
import os
import pickle

import pytest
from gpubuf_cli import DONE, FAILED, UNREAD, USAGE, Cli
from ports import free_port
from proxies import program
from pyclient import gpubuf

from harness import PATIENCE_S, token, until
from tls_servers import Authority, Process, Strict

pytestmark = pytest.mark.once
START = "start gpubufd"


@pytest.fixture
def tls(start, tmp_path):
    """A daemon with TLS and one token; its certificate is for cam.lab and 127.0.0.1."""
    made = Authority(tmp_path / "tls", "--name", "cam.lab", "--client", "ci")
    secret = token(tmp_path / "state", "add", "w", "--scope", "write,map")
    cert, key = made.signed("cam", "20200101000000Z", "20900101000000Z",
                            "basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n"
                            "subjectAltName=DNS:cam.lab,IP:127.0.0.1")
    d = start("--tls-listen", "0.0.0.0:0", "--tls-cert", cert, "--tls-key", key, state=str(tmp_path / "state"))
    d.port = next(a for a in d.addresses if a.startswith("tls:")).rsplit(":", 1)[1]
    d.authority, d.secret, d.home = made, secret, str(tmp_path)
    return d


def doctor(tls, url, *args, given=True, **env):
    more = {"GPUBUF_CACERT": tls.authority.ca, "GPUBUF_TOKEN": tls.secret} if given else {}
    said = Cli(url, HOME=tls.home, XDG_STATE_HOME=tls.home, **{**more, **env})("--json", "doctor", *args)
    found = {c["check"]: c for c in said.json()}
    assert said.status == (FAILED if any(c["ok"] is False for c in found.values()) else DONE), found
    return found


# --- the daemon is there, and is not spoken to ------------------------------------------------------------------------


def test_each_failure_has_its_own_remedy(tls):
    good = f"https://127.0.0.1:{tls.port}"
    untrusted = doctor(tls, good, given=False)
    assert "certificate" in untrusted["daemon"]["remedy"] and "--cacert" in untrusted["certificate"]["remedy"]
    assert untrusted["certificate's names"]["ok"]
    wrong = doctor(tls, f"https://localhost:{tls.port}")
    assert (not wrong["certificate's names"]["ok"] and "localhost is not among them"
            in wrong["certificate's names"]["detail"])
    assert ("gpubufd tls renew --name" in wrong["certificate's names"]["remedy"]
            and "certificate" in wrong["daemon"]["remedy"])
    assert "https://" in doctor(tls, f"http://127.0.0.1:{tls.port}")["daemon"]["remedy"]
    plain = doctor(tls, "https://127.0.0.1:{}".format(tls.tcp[1]))
    assert "http://" in plain["daemon"]["remedy"] and "http://" in plain["TLS"]["remedy"]
    for found in (untrusted, wrong, plain):
        assert (START not in found["daemon"]["remedy"] and found["daemon"]["detail"].count("https://")
                <= 2), found["daemon"]
        assert not found["daemon"]["detail"].startswith("https://127.0.0.1:{}: https".format(tls.tcp[1]))
    assert doctor(tls, "http://127.0.0.1:1")["daemon"]["remedy"].startswith(START)


def test_another_host_name(tls, tmp_path):
    """By a proxy of HTTP that passes the name on: the daemon answers 421."""
    host = "http://127.0.0.1:{}".format(tls.tcp[1])
    found = doctor(tls, "http://cam.invalid", http_proxy=host, given=False)
    assert (found["daemon"]["detail"].startswith("http://cam.invalid: ")
            and "--host-name" in found["daemon"]["remedy"]), found
    said = Cli("http://cam.invalid", http_proxy=host)("ls").expect(FAILED)
    assert "--host-name" in said.err


def test_a_client_certificate_that_is_missing(tmp_path):
    made = Authority(tmp_path / "tls", "--client", "ci")
    strict = Strict(made)
    try:
        said = Cli(strict.url, GPUBUF_CACERT=made.ca)("--json", "doctor", "--timeout", "5").expect(FAILED)
    finally:
        strict.stop()
    found = {c["check"]: c for c in said.json()}
    assert found["certificate"]["ok"] and "--cert FILE" in found["daemon"]["remedy"], found


def test_another_machine(tls):
    """An address of documentation, by a proxy of HTTP that is the daemon."""
    found = doctor(tls, "http://203.0.113.7", http_proxy="http://127.0.0.1:{}".format(tls.tcp[1]), given=False)
    assert "another machine" in found["UNIX socket"]["detail"] and "plain" not in found["UNIX socket"]["detail"]


def test_a_socket_that_was_not_asked_for_is_no_failure(tls):
    found = doctor(tls, f"https://127.0.0.1:{tls.port}")
    assert found["UNIX socket"]["ok"] is None and "--socket" in found["UNIX socket"]["detail"]
    assert all(c["ok"] is not False for c in found.values()), found
    assert doctor(tls, f"https://127.0.0.1:{tls.port}", "--socket", tls.unix)["memfd"]["ok"]


def test_the_days_are_those_of_tls_show(start, tmp_path):
    from tls_servers import gpubufd_tls
    made = Authority(tmp_path / "tls")
    d = start("--tls-listen", "127.0.0.1:0", "--tls-cert", made.server[0], "--tls-key", made.server[1],
              listen=("--listen", "none"))
    said = Cli("https://127.0.0.1:{}".format(d.tcp[1]), GPUBUF_CACERT=made.ca)("--json", "doctor", "--socket", d.unix)
    end = next(c["detail"] for c in said.json() if c["check"] == "certificate's end")
    assert "825 days left" in end and "(825 days left)" in gpubufd_tls("show", made.server[0])


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_tokens_that_are_in_force_and_may_not(start, tmp_path):
    secrets = {"prefix": token(tmp_path, "add", "p", "--scope", "write,map", "--prefix", "a."),
               "map": token(tmp_path, "add", "m", "--scope", "map"), "session": token(tmp_path, "add", "s", "--scope",
                                                                                      "write,map", "--session", "mine")}
    d = start(state=str(tmp_path))
    for name, secret in secrets.items():
        said = Cli(d.url(""), GPUBUF_SOCKET=d.unix, GPUBUF_TOKEN=secret)("--json", "doctor")
        bad = [c for c in said.json() if c["ok"] is False]
        assert bad and not any("that is in force" in c["remedy"] for c in bad), (name, bad)
        assert any("prefix" in c["remedy"] for c in bad), (name, bad)
    said = Cli(d.url(""), GPUBUF_SOCKET=d.unix, GPUBUF_TOKEN="gpb_x")("--json", "doctor").expect(FAILED)
    access = next(c for c in said.json() if c["check"] == "access")
    assert "is not in force" in access["remedy"] and "gpubufd token list" in access["remedy"]


def test_a_token_that_was_given_is_not_asked_for(start, tmp_path):
    token(tmp_path, "add", "w")
    d = start(state=str(tmp_path))
    (tmp_path / "secret").write_text("gpb_wrong\n")
    said = Cli(d.url(""))("--token-file", tmp_path / "secret", "ls").expect(FAILED)
    assert "The token that was given is not in force" in said.err and "Give a token" not in said.err
    assert "Give a token with --token-file" in Cli(d.url(""))("ls").expect(FAILED).err


def test_a_barred_address_is_not_asked_again(start, tmp_path):
    token(tmp_path, "add", "w")
    d = start("--bound-local", "--auth-failures", "1", state=str(tmp_path))
    bad = Cli(d.url(""), GPUBUF_TOKEN="gpb_wrong")
    said = until("it is barred", lambda: (s := bad("-v", "ls")).err.count(" 429 ") and s)
    assert said.err.count("* GET ") == 1 and "makes the wait longer" in said.err, said.err
    found = {c["check"]: c for c in bad("--json", "doctor").json()}
    assert "name the address" not in found["access"]["remedy"], found["access"]


def test_a_wait_for_a_rate_is_not_the_daemons_time(start, tmp_path):
    secret = token(tmp_path, "add", "w", "--scope", "write,map")
    d = start("--token-rate-requests", "1", "--token-burst-requests", "1", "--rate-requests", "1", "--burst-requests",
              "1", "--bound-local", state=str(tmp_path))
    cli = Cli(d.url(""), GPUBUF_TOKEN=secret)
    said = until("it had to wait", lambda: (s := cli("-v", "doctor")).err.count("/livez -> 429") and s)
    line = next(line for line in said.out.splitlines() if line.startswith("ok  daemon"))
    assert float(line.split("within ")[1].split(" ms")[0]) < 900, line


def test_python_tells_when_to_ask_again(start, tmp_path):
    secret = token(tmp_path, "add", "w")
    d = start("--token-rate-requests", "1", "--token-burst-requests", "1", state=str(tmp_path))
    with gpubuf.Client(d.url(""), token=secret) as client:
        with pytest.raises(gpubuf.TooManyRequests) as raised:
            for _ in range(20):
                client.list()
    assert raised.value.retry_after == 1 and pickle.loads(pickle.dumps(raised.value)).retry_after == 1
    assert gpubuf.Error("x").retry_after is None


def test_a_token_that_ends_during_a_download(start, tmp_path):
    boss = token(tmp_path, "add", "boss", "--scope", "admin")
    for name in ("first", "second"):
        token(tmp_path, "add", name)
    secrets = {name: token(tmp_path, "rotate", name) for name in ("first", "second")}
    d = start("--token-rate-bytes", "8M", "--token-burst-bytes", "8M", state=str(tmp_path))
    Cli(d.url(""), GPUBUF_TOKEN=boss)("create", "big", "--bytes", "64M").expect()
    p = Cli(d.url(""), GPUBUF_TOKEN=secrets["first"]).start("get", "big", "-")
    assert p.stdout.read(1 << 20)
    token(tmp_path, "revoke", "first")
    err = p.communicate(timeout=PATIENCE_S)[1].decode()
    assert p.returncode == FAILED and "which the daemon accepted before, ended while it was in use" in err, err
    ended = []

    def once(done, total):
        if not ended:
            ended.append(token(tmp_path, "revoke", "second"))

    with gpubuf.Client(d.url(""), token=secrets["second"]) as client:
        with pytest.raises(gpubuf.Unauthenticated) as raised:
            client.get("big", progress=once)
    assert "the token ended while the answer came" in raised.value.detail and raised.value.status == 401


# --- files, proxies, readers ------------------------------------------------------------------------------------------


def test_a_certificate_without_its_key(tmp_path):
    made = Authority(tmp_path / "tls", "--client", "ci")
    cert = made.client("ci")[0]
    said = Cli("https://127.0.0.1:1")("--cert", cert, "ls").expect(USAGE)
    assert f"there is no key in {cert}: give it with --key" in said.err
    with pytest.raises(gpubuf.BadArgument, match="there is no key in .*key="):
        gpubuf.Client("https://127.0.0.1:1", cert=cert)


def test_a_proxy_that_bounds_bodies(start, tmp_path):
    d = start()
    port = free_port()
    folder = tmp_path / "nginx"
    folder.mkdir()
    (folder / "conf").write_text(f"daemon off; master_process off; pid {folder}/pid; error_log "
                                 f"{folder}/errors;\nevents {{}}\nhttp {{ access_log off;\n"
                                 + "".join(f"{n}_temp_path {folder}/{n};" for n in ("client_body", "proxy", "fastcgi",
                                                                                    "uwsgi", "scgi"))
                                 + f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass "
                                 f"http://{d.tcp[0]}:{d.tcp[1]}; }} }} }}\n")
    nginx = Process([program("nginx"), "-p", str(folder), "-c", str(folder / "conf"), "-e", str(folder / "errors")],
                    [("127.0.0.1", port)])
    try:
        said = Cli(f"http://127.0.0.1:{port}")("put", "-", "x", "--raw", input=bytes(2 << 20))
        assert (said.status == FAILED and "client_max_body_size" in said.err and "behind this address"
                not in said.err), said.err
        with gpubuf.Client(f"http://127.0.0.1:{port}") as client, pytest.raises(gpubuf.BodyTooLarge,
                                                                                match="client_max_body_size"):
            client.put("x", bytes(2 << 20))
    finally:
        nginx.stop()


@pytest.mark.parametrize("words", [["ls"], ["stats"], ["--json", "ls"], ["audit"], ["call", "GET", "/v1"],
                                   ["get", "x", "-"]])
def test_a_reader_that_leaves(start, tmp_path, words):
    boss = token(tmp_path, "add", "boss", "--scope", "admin")
    d = start(state=str(tmp_path))
    cli = Cli(d.url(""), GPUBUF_TOKEN=boss)
    cli("create", "x", "--bytes", "1M").expect()
    rd, wr = os.pipe()
    os.close(rd)
    p = cli.start(*words, stdout=wr)
    os.close(wr)
    assert p.communicate(timeout=PATIENCE_S)[1] == b"" and p.returncode == UNREAD
    with open("/dev/full", "wb") as full:
        p = cli.start(*words, stdout=full)
        assert (b"cannot be written" in p.communicate(timeout=PATIENCE_S)[1] or words[0] == "get"
                and p.returncode == FAILED)


def test_the_size_of_a_file_is_said_of_the_file(start, tmp_path):
    import numpy as np
    d = start()
    cli = Cli(d.url(""))
    np.save(tmp_path / "x.npy", np.zeros((3, 4), np.float32))
    cli("put", tmp_path / "x.npy").expect()
    said = cli("get", "x", "--slice", "0:2,1:3", "part.npy", cwd=tmp_path).expect()
    assert said.out == f"x  float32 2x2  generation 1  {os.path.getsize(tmp_path / 'part.npy')} B in part.npy\n"
