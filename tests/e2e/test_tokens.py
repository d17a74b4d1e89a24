"""How tokens live: expiry, rotation, last use, the scope verify, and the end of what they hold."""
import json
import os
import subprocess
import time

import pytest

from feed import Feed
from harness import DATA, binary, token, until
from sharing import Local, Memory
from test_long_poll import answer, waits

MAPPABLE = "?kind=pageable"
SOON = "3s"


def said(state, *args):
    return subprocess.run([binary(), "token", *args, "--state-dir", str(state)], capture_output=True, text=True,
                          timeout=90)


def listed(state, *args):
    return {t["name"]: t for t in json.loads(token(state, "list", "--json", *args))["tokens"]}


@pytest.fixture
def boss(tmp_path):
    return token(tmp_path, "add", "boss", "--scope", "admin")


# --- time -------------------------------------------------------------------------------------------------------------


def test_a_token_expires_while_the_daemon_runs(start, tmp_path, boss):
    short = token(tmp_path, "add", "short", "--expires", SOON)
    d = start(state=str(tmp_path))
    ends = listed(tmp_path)["short"]["expires_at"]
    assert ends and not listed(tmp_path)["short"]["expired"]
    until("it is refused", lambda: d.ask("GET", "/v1", token=short).status == 401)
    assert "has expired" in d.ask("GET", "/v1", token=short).problem(401, "unauthenticated")["detail"]
    assert listed(tmp_path)["short"]["expired"] and listed(tmp_path)["short"]["expires_at"] == ends
    assert " expired" in token(tmp_path, "list")
    d.ask("GET", "/v1", token=boss).expect(200)


def test_tokens_that_have_all_expired_open_nothing(start, tmp_path):
    only = token(tmp_path, "add", "only", "--expires", "1s")
    d = start(state=str(tmp_path))
    until("it is refused", lambda: d.ask("GET", "/v1", token=only).status == 401)
    d.ask("GET", "/v1").problem(401, "unauthenticated")


@pytest.mark.parametrize("when", ["", "0", "0s", "30", "-1d", "1y", "2001-02-03T04:05:06Z", "2031-02-30T00:00:00Z",
                                  "2031-02-03", "tomorrow"])
def test_times_that_are_none(tmp_path, when):
    out = said(tmp_path, "add", "x", "--expires", when)
    assert out.returncode == 64 and "--expires" in out.stderr and out.stdout == "", out


def test_rotation_with_an_overlap(start, tmp_path, boss):
    old = token(tmp_path, "add", "ci", "--scope", "write")
    d = start(state=str(tmp_path))
    d.ask("GET", "/v1", token=old).expect(200)
    new = token(tmp_path, "rotate", "ci", "--overlap", SOON)
    assert new != old and new.startswith("gpb_")
    until("the new one is taken", lambda: d.ask("GET", "/v1", token=new).status == 200)
    d.ask("GET", "/v1", token=old).expect(200)
    assert listed(tmp_path)["ci"]["former_secret_until"]
    until("the former one is over", lambda: d.ask("GET", "/v1", token=old).status == 401)
    assert "another secret" in d.ask("GET", "/v1", token=old).problem(401, "unauthenticated")["detail"]
    assert listed(tmp_path)["ci"]["former_secret_until"] is None
    d.ask("GET", "/v1", token=new).expect(200)
    at_once = token(tmp_path, "rotate", "ci", "--overlap", "0")
    until("the former one is over", lambda: d.ask("GET", "/v1", token=new).status == 401)
    d.ask("GET", "/v1", token=at_once).expect(200)
    assert said(tmp_path, "rotate", "none").returncode == 70 and said(tmp_path, "rotate", "ci", "--overlap",
                                                                      "x").returncode == 64


def test_the_last_use(start, tmp_path, boss):
    read = token(tmp_path, "add", "read")
    d = start(state=str(tmp_path))
    assert listed(tmp_path)["read"]["last_used_at"] is None
    d.ask("GET", "/v1", token=read).expect(200)
    until("the use is known", lambda: listed(tmp_path)["read"]["last_used_at"])
    assert listed(tmp_path)["read"]["last_used_from"] == "127.0.0.1"
    first = listed(tmp_path)["read"]["last_used_at"]
    time.sleep(1)  # a use is noted once in a second
    d.client(token=read, unix=True).ask("GET", "/v1").expect(200)
    d.stop()  # what is not saved yet is saved then
    assert listed(tmp_path)["read"]["last_used_at"] > first and listed(tmp_path)["read"]["last_used_from"] == "(socket)"
    assert listed(tmp_path)["boss"]["last_used_at"] is None
    assert "(socket)" in token(tmp_path, "list")
    token(tmp_path, "revoke", "read")
    token(tmp_path, "add", "read")
    assert listed(tmp_path)["read"]["last_used_at"] is None


@pytest.mark.parametrize("words", [
    ("rotate",), ("rotate", "a", "b"), ("list", "--overlap", "1h"), ("add", "x", "--overlap", "1h"),
    ("add", "x", "--json"), ("rotate", "x", "--scope", "read"), ("add", "x", "--prefix", "a b"),
    ("add", "x", "--prefix", "-a"), ("add", "x", "--subject", ""), ("add", "x", "--subject", "x" * 256),
    ("add", "x", "--scope", "verify,none"), ("add", "x", "--expires")], ids=" ".join)
def test_words_that_are_refused(tmp_path, words):
    assert said(tmp_path, *words).returncode == 64


def test_help_and_the_nearest_option(tmp_path):
    whole, add = said(tmp_path, "--help").stdout, said(tmp_path, "add", "--help").stdout
    assert all(word in whole for word in ("token add NAME", "token rotate NAME", "--json", "--overlap", "--prefix",
                                          "--subject", "--state-dir"))
    assert ("--expires" in add and "--overlap" not in add and "--rate-bytes" not in whole and len(whole.splitlines())
            < 60)
    out = said(tmp_path, "add", "b", "--prefx", "a")
    assert (out.returncode == 64 and "is --prefix meant?" in out.stderr and "--expires" in out.stderr
            and "--rate-bytes" not in out.stderr), out
    assert "is --state-dir meant?" in said(tmp_path, "list", "--sate-dir", "x").stderr
    assert "token --help says more" in said(tmp_path, "list", "--nonsense-word").stderr
    daemon = subprocess.run([binary(), "--help"], capture_output=True, text=True, timeout=90).stdout
    assert "gpubufd tls" in daemon and "gpubufd token" in daemon and "--rate-bytes" in daemon
    own = subprocess.run([binary(), "fsck", "--help"], capture_output=True, text=True, timeout=90).stdout
    assert "--quick" in own and "--rate-bytes" not in own


def test_what_the_commands_say(tmp_path):
    out = said(tmp_path, "add", "boss", "--session", "nosuch")
    assert (out.returncode == 0 and "there is no session nosuch yet" in out.stderr and "knows it within a second"
            in out.stderr)
    assert "token rotate boss" in said(tmp_path, "add", "boss").stderr
    out = said(tmp_path, "revoke", "boss")
    assert "token boss is revoked" in out.stderr and "within a second" in out.stderr
    assert "no unit: write 30d" in said(tmp_path, "add", "x", "--expires", "30").stderr
    assert said(tmp_path, "rotate", "boss", "--overlap", "30").returncode == 64


@pytest.mark.parametrize("subject, right", [("ci", "CN=ci"), ("/CN=ci", "CN=ci"), ("cn=lower", "CN=lower"),
                                            ("CN=a,  O=b", "CN=a,O=b"), ("CN=", None), ("dns:", None),
                                            ("ip:300.1.1.1", None), ("foo:bar", None)])
def test_subjects_that_no_certificate_has(tmp_path, subject, right):
    out = said(tmp_path, "add", "x", "--subject", subject)
    assert out.returncode == 64 and f'no certificate has the subject "{subject}"' in out.stderr, out
    assert (f'"{right}" may be meant' if right else "gpubufd tls show FILE") in out.stderr


def test_a_subject_stands_for_one_token(tmp_path):
    token(tmp_path, "add", "one", "--subject", "dns:cam1.example")
    token(tmp_path, "add", "other", "--subject", "dns:cam2.example")
    out = said(tmp_path, "add", "two", "--subject", "dns:cam1.example")
    assert out.returncode == 64 and "dns:cam1.example" in out.stderr
    assert listed(tmp_path)["one"]["subject"] == "dns:cam1.example"


# --- the scope verify -------------------------------------------------------------------------------------------------


def test_verify_sees_no_contents(start, tmp_path, boss):
    verify = token(tmp_path, "add", "verify", "--scope", "verify")
    d = start(state=str(tmp_path))
    x = DATA.format("default", "x")
    d.ask("PUT", x, b"hello", token=boss).expect(201)
    head = d.ask("HEAD", x, headers={"Want-Repr-Digest": "sha-256=1"}, token=verify).expect(200)
    tag = head.headers["ETag"]
    assert head.headers["Repr-Digest"] and head.headers["Content-Length"] == "5" and head.headers["Gpubuf-Crc32c"]
    d.ask("GET", x, headers={"If-None-Match": tag}, token=verify).expect(304)
    d.ask("GET", x, headers={"If-Match": '"none"'}, token=verify).expect(412)
    for headers in ({}, {"If-None-Match": '"none"'}, {"Range": "bytes=0-1"}, {"Want-Repr-Digest": "sha-256=1"},
                    {"If-Match": tag}):
        reply = d.ask("GET", x, headers=headers, token=verify)
        assert "needs scope read" in reply.problem(403, "forbidden")["detail"] and b"hello" not in reply.body
        assert "Repr-Digest" not in reply.headers
    d.ask("GET", x + "?slice=0:1", token=verify).problem(403, "forbidden")
    for path in ("/v1", "/v1/stats", "/metrics", "/v1/sessions", "/v1/sessions/default/stats",
                 "/v1/sessions/default/buffers", "/v1/sessions/default/buffers/x", "/v1/devices", "/v1/leases",
                 "/v1/operations", "/v1/sessions/default/uploads"):
        d.ask("GET", path, token=verify).expect(200)
    assert d.ask("POST", "/v1/sessions/default/buffers/x/verify", {"algorithms": ["sha-256"]},
                 token=verify).expect(200).json()["match"]
    for method, path, body in (("GET", "/v1/sessions/default/tensors", None), ("PUT", x, b"1"),
                               ("GET", "/v1/snapshot", None), ("POST", "/v1/sessions/default/buffers/y/copy",
                                                               {"from": "x"}), ("DELETE", x[:-5], None),
                               ("POST", "/v1/sessions/default/buffers/x/export", {})):
        d.ask(method, path, body, token=verify).problem(403, "forbidden")


# --- what a token holds -----------------------------------------------------------------------------------------------


def revoke(state, how, name):
    """Ends a token that was made by `made`."""
    if how == "revoked":
        token(state, "revoke", name)


def made(d, state, how, *args):
    """A token that the daemon knows. It is made after the start, which takes longer than its life where a GPU is slow
    to begin."""
    secret = token(state, "add", "t", *args, *(("--expires", SOON) if how == "expired" else ()))
    until("the token is known", lambda: d.ask("GET", "/v1", token=secret).status == 200)
    return secret


@pytest.mark.parametrize("how", ["revoked", "expired"])
@pytest.mark.parametrize("unix", [False, True])
def test_long_polls_end(start, tmp_path, boss, how, unix):
    d = start(state=str(tmp_path))
    tag = d.ask("GET", "/v1/sessions/default", token=boss).headers["ETag"]
    mine = made(d, tmp_path, how)
    c, other = (waits(d, "/v1/sessions/default", tag, 60, unix, t) for t in (mine, boss))
    revoke(tmp_path, how, "t")
    assert answer(c)[0] == 401
    d.ask("PATCH", "/v1/sessions/default", {"labels": {"a": "b"}}, token=boss).expect(200)
    assert answer(other)[0] == 200  # another's stays


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_listeners_end(start, tmp_path, boss, how):
    d = start(state=str(tmp_path))
    mine = made(d, tmp_path, how)
    with Feed(d, token=mine) as own, Feed(d, token=boss) as other:
        revoke(tmp_path, how, "t")
        while own.next() is not None:
            pass
        d.ask("PUT", DATA.format("default", "x"), b"1", token=boss).expect(201)
        other.find("buffer.created", buffer="x")


@pytest.mark.parametrize("how", ["revoked", "expired"])
@pytest.mark.parametrize("unix", [False, True])
@pytest.mark.parametrize("length", [1000, 64 << 20])
def test_uploads_end(start, tmp_path, boss, how, unix, length):
    d = start(state=str(tmp_path))
    mine = made(d, tmp_path, how, "--scope", "write")
    with d.raw(unix=unix) as r:
        r.put(DATA.format("default", "x"), length, "Authorization: Bearer " + mine)
        r.send(b"x" * 500)
        revoke(tmp_path, how, "t")
        assert r.reply().status == 401
    d.ask("GET", "/v1/sessions/default/buffers/x", token=boss).problem(404, "buffer_not_found")


@pytest.mark.parametrize("unix", [False, True])
@pytest.mark.parametrize("length", [1000, 64 << 20])
def test_uploads_that_come_too_late(start, tmp_path, boss, unix, length):
    """The token has expired before the head. The refusal waits for no byte of the body."""
    mine = token(tmp_path, "add", "t", "--scope", "write", "--expires", "1s")
    d = start(state=str(tmp_path))
    until("it is refused", lambda: d.ask("GET", "/v1", token=mine).status == 401)
    with d.raw(unix=unix) as r:
        r.put(DATA.format("default", "x"), length, "Authorization: Bearer " + mine)
        r.send(b"x" * 500)
        assert "has expired" in r.reply().problem(401, "unauthenticated")["detail"]


@pytest.mark.parametrize("how", ["revoked", "expired"])
@pytest.mark.parametrize("unix", [False, True])
def test_downloads_end(start, tmp_path, boss, how, unix):
    d = start("--stall-timeout", "600", "--min-rate", "0", state=str(tmp_path))  # nothing else ends it
    d.ask("POST", "/v1/sessions/default/buffers", {"name": "x", "bytes": 256 << 20}, token=boss).expect(201)
    mine = made(d, tmp_path, how)
    with d.raw(unix=unix, receive_bytes=1 << 16) as r:
        r.request("GET", DATA.format("default", "x"), ["Authorization: Bearer " + mine])
        status, *_ = r.head()
        assert status == 200
        revoke(tmp_path, how, "t")
        until("the transfer is over", lambda: d.ask("GET", "/v1/stats", token=boss).json()["http"]["transfers"] == 0)


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_leases_end(start, tmp_path, boss, how):
    d = start(state=str(tmp_path))
    d.ask("PUT", DATA.format("default", "x") + MAPPABLE, b"abc", token=boss).expect(201)
    mine = made(d, tmp_path, how, "--scope", "write,map-write")
    with Local(d.unix, mine) as own, Local(d.unix, boss) as other:
        a, b = own.map("x", mode="write"), other.map("x")
        assert a.status == b.status == 200 and a.json()["expires_at"] is None
        with Memory(a) as memory:
            revoke(tmp_path, how, "t")
            until("its lease has ended", lambda: d.ask("GET", "/v1/leases/" + a.json()["lease"], token=boss).status
                  == 404)
            d.ask("GET", "/v1/leases/" + b.json()["lease"], token=boss).expect(200)
            assert bytes(memory.bytes()[:3]) == b"abc"  # the daemon cannot unmap it
            assert d.ask("GET", "/v1/sessions/default/buffers/x", token=boss).json()["escaped"]


# --- the greatest age of a lease --------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [True, False])
def test_a_lease_ends_at_its_greatest_age(start, asked):
    d = start(*(() if asked else ("--max-lease-age", "1")))
    d.ask("PUT", DATA.format("default", "x") + MAPPABLE, b"abc").expect(201)
    with Local(d.unix) as c:
        lease = c.map("x", mode="write", **({"max_age": 1} if asked else {})).json()
        assert lease["expires_at"]
        until("it has ended", lambda: d.ask("GET", "/v1/leases/" + lease["lease"]).status == 404)
        assert d.ask("GET", "/v1/sessions/default/buffers/x").json()["escaped"]
        assert c.ask("GET", "/livez").status == 200  # the connection stays
        d.ask("DELETE", "/v1/sessions/default/buffers/x").expect(204)


def test_ages_that_are_refused(start):
    d = start("--max-lease-age", "60")
    d.ask("PUT", DATA.format("default", "x") + MAPPABLE, b"abc").expect(201)
    with Local(d.unix) as c:
        for age, status in ((0, 400), (61, 400), (-1, 400), ("1", 400), (60, 200)):
            got = c.map("x", max_age=age)
            assert got.status == status, (age, got.body)
            for fd in got.fds:
                os.close(fd)
        assert "--max-lease-age" in c.map("x", max_age=61).json()["detail"]


# --- secrets from elsewhere -------------------------------------------------------------------------------------------


def given(state, *args, text=""):
    return subprocess.run([binary(), "token", *args, "--state-dir", str(state)], input=text, capture_output=True,
                          text=True, timeout=90)


def test_a_secret_that_was_made_elsewhere(start, tmp_path):
    first, second = "made-elsewhere-0123456789", "and-another-0123456789"
    out = given(tmp_path, "add", "x", "--scope", "admin", "--secret-file", "-", text=first + "\nnot this\n")
    assert out.returncode == 0 and out.stdout == "" and first not in out.stderr, out
    d = start(state=str(tmp_path))
    d.ask("GET", "/v1", token=first).expect(200)
    (tmp_path / "secret").write_text(second)
    out = given(tmp_path, "rotate", "x", "--overlap", "0", "--secret-file", str(tmp_path / "secret"))
    assert out.returncode == 0 and out.stdout == "" and second not in out.stderr, out
    until("the new one is known", lambda: d.ask("GET", "/v1", token=second).status == 200)
    until("the former one is over", lambda: d.ask("GET", "/v1", token=first).status == 401)


@pytest.mark.parametrize("text", ["", "\n", "short", "with blanks in its middle", "x" * 1023])
def test_secrets_that_are_none(tmp_path, text):
    out = given(tmp_path, "add", "x", "--secret-file", "-", text=text)
    assert out.returncode == 64 and "a secret has at " in out.stderr and out.stdout == "", out
    out = given(tmp_path, "add", "x", "--secret-file", str(tmp_path / "none"))
    assert out.returncode == 64 and "cannot be read" in out.stderr


def test_a_secret_that_cannot_be_shown(start, tmp_path, boss):
    """It is not in force, and the one before stays."""
    d, state = start(state=str(tmp_path)), ["--state-dir", str(tmp_path)]
    for words in (["add", "new"], ["rotate", "boss", "--overlap", "0"]):
        with open("/dev/full", "w") as full:
            out = subprocess.run([binary(), "token", *words, *state], stdout=full, stderr=subprocess.PIPE, text=True,
                                 timeout=90)
        assert out.returncode != 0 and "cannot be shown" in out.stderr, words
    d.ask("GET", "/v1/stats", token=boss).expect(200)
    assert [t["name"] for t in json.loads(token(tmp_path, "list", "--json"))["tokens"]] == ["boss"]


def test_the_first_token_tells_what_it_closes(tmp_path):
    def add(name):
        return subprocess.run([binary(), "token", "add", name, "--state-dir", str(tmp_path)], capture_output=True,
                              text=True, timeout=90).stderr

    assert "refuses every request without a token" in add("one")
    assert "refuses every request" not in add("two")
