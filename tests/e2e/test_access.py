"""Access rights: tokens, addresses, origins."""
import os
import subprocess

import pytest

from harness import DATA, Daemon, binary, token, until


@pytest.fixture
def guarded(start, tmp_path):
    """A daemon with tokens, and its secrets."""
    secrets = {name: token(tmp_path, "add", name, "--scope", name) for name in ("read", "write", "admin")}
    secrets["mine"] = token(tmp_path, "add", "mine", "--scope", "write", "--session", "mine")
    d = start(state=str(tmp_path))
    d.ask("POST", "/v1/sessions", {"name": "mine"}, token=secrets["write"]).expect(201)
    d.ask("PUT", DATA.format("default", "x"), b"abc", token=secrets["write"]).expect(201)
    return d, secrets


def test_a_token_of_one_session(guarded):
    """What it may do in its session and elsewhere, beside an unknown token. test_scopes.py has each request with each
    scope."""
    d, secrets = guarded
    x, mine = DATA.format("default", "x"), DATA.format("mine", "y")
    table = [
        ("GET", x, None, 403), ("HEAD", x, None, 403), ("PUT", x, b"1", 403), ("PUT", mine, b"1", 201),
        ("GET", mine, None, 200), ("POST", "/v1/sessions", {"name": "mine"}, 403), ("GET", "/v1/sessions", None, 403),
        ("GET", "/v1/stats", None, 403), ("GET", "/metrics", None, 403), ("GET", "/v1/allocations", None, 403),
        ("GET", "/v1/snapshot", None, 403), ("DELETE", "/v1/sessions/default/buffers/none", None, 403),
        ("POST", "/v1/sessions/default/sync", None, 403), ("POST", "/v1/sessions/mine/sync", None, 204),
        ("POST", "/v1/devices/0/sync", None, 403), ("POST", "/v1/devices/9/selftest", None, 403),
        ("GET", "/v1/sessions/mine/pools", None, 200), ("POST", "/v1/sessions/mine/pools", {"name": "default"}, 409),
        ("PATCH", "/v1/sessions/mine/pools/default", {}, 403), ("POST", "/v1/sessions/mine/pools/default/trim", None,
                                                                200),
        ("POST", "/v1/sessions/mine/pools/default/reset-peak", None, 403),
        ("POST", "/v1/sessions/mine/streams/default/sync", None, 200),
        ("POST", "/v1/sessions/mine/streams/none/hold", {"ms": 1}, 403),
        ("POST", "/v1/sessions/default/events/e/sync", None, 403),
        ("POST", "/v1/sessions/mine/events/none/sync", None, 404),
        ("DELETE", "/v1/sessions/mine/events/none", None, 404), ("POST", "/v1/sessions/mine/buffers/z/copy",
                                                                 {"from": "default/x"}, 403),
        ("POST", "/v1/sessions/mine/buffers/y/fill", {"pattern": 1}, 200),
        ("GET", "/v1/sessions/mine/buffers/y?attributes=true", None, 403)]
    for method, target, body, status in table:
        r = d.ask(method, target, body, token="gpb_" + "0" * 64)
        assert r.status == 401 and r.headers["WWW-Authenticate"].startswith("Bearer"), (method, target, r)
        assert method == "HEAD" or r.json()["code"] == "unauthenticated"
        r = d.ask(method, target, body, token=secrets["mine"])
        assert r.status == status, (method, target, r)
        if status == 403 and method != "HEAD":
            r.problem(403, "forbidden")


def test_refused_before_the_body(guarded):
    d, secrets = guarded
    for headers, status in ((), 401), (("Authorization: Bearer " + secrets["read"],),
                                       403), (("Authorization: Basic YTpi",), 401):
        with d.raw() as r:
            assert r.put(DATA.format("default", "x"), 1 << 30, *headers, expect=True).reply().status == status
            assert r.continues == 0


def test_secrets_are_kept_hashed_and_off_the_log(guarded):
    d, secrets = guarded
    for name in ("gpubufd.db", "gpubufd.db-wal"):
        with open(f"{d.state}/{name}", "rb") as f:
            data = f.read()
        assert not any(s.encode() in data or s[4:].encode() in data for s in secrets.values())
    assert not any(s in d.log() for s in secrets.values())


def test_revoking_and_adding_take_effect_while_it_runs(guarded):
    d, secrets = guarded
    token(d.state, "revoke", "read")
    until("the token is refused", lambda: d.ask("GET", "/v1", token=secrets["read"]).status == 401)
    fresh = token(d.state, "add", "fresh")
    until("the token is taken", lambda: d.ask("GET", "/v1", token=fresh).status == 200)
    names = [line.split()[0] for line in token(d.state, "list").splitlines()[1:]]
    assert sorted(names) == ["admin", "fresh", "mine", "write"]
    token(d.state, "revoke", "fresh")
    for name in ("write", "admin", "mine"):
        assert d.ask("GET", "/v1/sessions/mine", token=secrets[name]).status == 200


@pytest.mark.parametrize("words", [("list",), ("revoke", "x")], ids=" ".join)
def test_looking_for_tokens_makes_nothing(tmp_path, words):
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "not-there" / "state", tmp_path / "empty"):
        said = subprocess.run([binary(), "token", *words, "--state-dir", place], capture_output=True, text=True,
                              timeout=60)
        assert (said.returncode == 70 and str(place) in said.stderr and "--state-dir" in said.stderr
                and said.stdout == ""), said
    assert os.listdir(tmp_path) == ["empty"] and os.listdir(tmp_path / "empty") == []
    token(tmp_path / "made", "add", "x")
    assert subprocess.run([binary(), "token", *words, "--state-dir", tmp_path / "made"], timeout=60).returncode == 0


def test_the_last_token_revoked_opens_nothing_to_others(start, tmp_path):
    """On an address that others can reach, the absence of tokens must not give access to all."""
    secret = token(tmp_path, "add", "only", "--scope", "write")
    d = start(state=str(tmp_path), listen=("--listen", "0.0.0.0:0"))
    port = int(d.addresses[0].rsplit(":", 1)[1])
    d.addresses[0] = f"127.0.0.1:{port}"
    d.ask("GET", "/v1", token=secret).expect(200)
    token(tmp_path, "revoke", "only")
    until("the token is refused", lambda: d.ask("GET", "/v1", token=secret).status == 401)
    d.ask("GET", "/v1").problem(401, "unauthenticated")


def test_revoking_the_last_token_says_what_follows(tmp_path):
    for name in ("one", "two"):
        token(tmp_path, "add", name)
    for name, said in (("one", False), ("two", True)):
        out = subprocess.run([binary(), "token", "revoke", name, "--state-dir", str(tmp_path)], capture_output=True,
                             text=True, timeout=90)
        assert out.returncode == 0 and ("serves everybody" in out.stderr) == said, out


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_listening_to_others_without_a_token_is_refused(backend, address):
    d = Daemon(backend, listen=("--listen", address), wait=False)
    assert d.process.wait(30) not in (0, None)
    log = d.log()
    d.clean()
    assert "token add" in log and address.rsplit(":", 1)[0].strip("[]") in log


def test_hosts(start):
    d = start("--host-name", "gpu.example")
    for host in ("localhost", "127.0.0.1", f"127.0.0.1:{d.tcp[1]}", "[::1]:80", "gpu.example", "GPU.example:7070",
                 # a dot at the end: the name is whole
                 "LOCALHOST", "gpu.example.", "GPU.example.:7070", "localhost.", "localhost.:1"):
        d.ask("GET", "/livez", None, {"Host": host}).expect(200)
    for host in ("gpu.example.evil.org", "xgpu.example", "evil.org", "gpu", "gpu.example..", "evil.org.",
                 "localhost.evil.org.", "."):
        d.ask("GET", "/livez", None, {"Host": host}).problem(421, "misdirected_request")
    d.client(unix=True).ask("GET", "/livez", None, {"Host": "whatever"}).expect(200)


def test_origins(daemon, session):
    own = "http://127.0.0.1:%d" % daemon.tcp[1]
    daemon.put("x", b"abc", session, headers={"Origin": own}).expect(201)
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", own + ".evil.example", "file://"):
        for method, target, body in (("PUT", DATA.format(session, "x"), b"1"),
                                     ("DELETE", f"/v1/sessions/{session}", None),
                                     ("POST", "/v1/sessions", {"name": "evil"}),
                                     ("PATCH", f"/v1/sessions/{session}", {})):
            daemon.ask(method, target, body, {"Origin": origin}).problem(403, "cross_origin")
        assert "Access-Control-Allow-Origin" not in daemon.data("x", session, headers={"Origin": origin}).headers
