"""Options, addresses, the UNIX socket, systemd."""
import json
import os
import resource
import shutil
import socket
import stat
import subprocess

import pytest

import secure
from harness import DATA, SLOT, SMALL_SLOTS, Daemon, Raw, binary, until
from values import payload


def refused(*args, env=None, cwd=None):
    out = subprocess.run([binary(), *args], capture_output=True, text=True, timeout=90,
                         env={**os.environ, **(env or {})}, cwd=cwd)
    assert out.returncode not in (0, None) and out.returncode > 0, out
    return out.stderr + out.stdout


def test_help_and_version():
    out = subprocess.run([binary(), "--help"], capture_output=True, text=True, timeout=90)
    assert out.returncode == 0 and "--listen" in out.stdout and "GPUBUFD_" in out.stdout
    out = subprocess.run([binary(), "--version"], capture_output=True, text=True, timeout=90)
    assert out.returncode == 0 and "gpubufd" in out.stdout


def test_a_default_that_does_not_fit_is_no_warning(tmp_path):
    """The limit on open files leaves fewer connections and listeners; an error of the options comes without a word of
    that."""
    small = dict(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096)))
    for args, said, level in (((), True, "info"), (("--max-feed-listeners", "9000"), True, "warning"),
                              (("--tls-listen", "127.0.0.1:0"), False, "")):
        with subprocess.Popen(["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource", binary(),
                               "--backend", "host", "--listen", "127.0.0.1:0", "--log-format", "json",
                               "--max-connections", "2000", "--state-dir", str(tmp_path / "s"), *SMALL_SLOTS, *args],
                              stderr=subprocess.PIPE, text=True, **small) as daemon:
            if said:
                until("it listens", lambda: (tmp_path / "s" / "listen").exists() or daemon.poll())
            else:
                daemon.wait(90)
            daemon.terminate()
            log = daemon.communicate(timeout=90)[1]
        lines = [json.loads(line) for line in log.splitlines() if "LimitNOFILE" in line]
        assert [line["level"] for line in lines] == ([level] if said else []), log
        assert not said or "--max-feed-listeners 1584" in lines[0]["message"], log


@pytest.mark.parametrize("args, named", [
    (["--nope"], "--nope"), (["--listen"], "--listen"), (["--listen", "nowhere"], "nowhere"),
    (["--listen", "127.0.0.1:99999"], "99999"), (["--log-level", "loud"], "error"),
    (["--slots-bytes", "12Q"], "slots-bytes"), (["--max-pinned-bytes", "half"], "max-pinned-bytes"),
    (["--max-connections", "0"], "max-connections"), (["--max-connections", "-1"], "max-connections"),
    (["--idle-timeout", "1.5"], "idle-timeout"), (["--backend", "abacus"], "abacus"),
    (["--default-pool-threshold", "much"], "unlimited"), (["--default-pool-reuse", "event,always"], "opportunistic"),
    (["--slot-bytes", "4M", "--slots-bytes", "1M"], "--slot-bytes"), (["--map-uids", "root"], "--map-uids"),
    (["--health", "sick"], "sick"), (["--socket-mode", "rw"], "--socket-mode"),
    (["--listen", "none", "--socket", "none"], "nothing to listen on"),
    (["--max-pinned-bytes", "8M"], "--max-pinned-bytes at least"),
    (["--host-name", "https://x"], "write x, without scheme"), (["--host-name", "x:7070"], "write x, without"),
    (["--host-name", "*.x"], "no patterns"), (["--host-name", "a..b"], "a dot too many"),
    (["--host-name", "a."], "leave out the dot"), (["--host-name", "a" * 64], "63"),
    (["--trusted-proxy", "10.0.0.1/8"], "write 10.0.0.0/8 for the network, or 10.0.0.1 for the address"),
    (["--trusted-proxy", "x"], "or unix"), (["--proxy-protocol", "2001:db8::7/33"], "write 2001:db8::/33"),
    (["--backend", "fault:alloc=oops:host"], "oops"), (["stray"], "stray"), (["token", "frobnicate"], "add NAME"),
    (["--config", "/nowhere/x"], "/nowhere/x"),
])
def test_a_wrong_option_names_itself_and_what_is_permitted(tmp_path, args, named):
    before = [] if args[0] == "token" else ["--state-dir", str(tmp_path)]
    if args[0] == "--backend":
        before += ["--listen", "127.0.0.1:0"]
    text = refused(*before, *args)
    assert named in text and text.startswith("gpubufd: ") and text.endswith("token --help says more\n"
                                                                            if args[0] == "token"
                                                                            else "gpubufd --help says more\n"), text


def test_slots_that_exceed_the_ceiling_of_pinned_memory(tmp_path):
    args = ["--state-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--max-pinned-bytes", "8M"]
    text = refused(*args, "--slots-bytes", "9M")
    assert "--slots-bytes 9437184" in text and "--max-pinned-bytes at least 9437184" in text
    assert "--max-pinned-bytes at least" in refused(*args)  # the slots that are taken without the option


def test_wrong_lines_of_the_file_and_the_environment(tmp_path):
    conf = tmp_path / "conf"
    for line, named in (("nope = 1", "nope"), ("log-level = loud", "error"), ("just words", "just words"),
                        ("max-connections = -5", "max-connections")):
        conf.write_text("# comment\n" + line + "\n")
        text = refused("--config", str(conf), "--state-dir", str(tmp_path))
        assert named in text and str(conf) in text and "2" in text
    assert "GPUBUFD_LOG_LEVEL" in refused("--state-dir", str(tmp_path), env={"GPUBUFD_LOG_LEVEL": "loud"})


PATHS = ("state-dir", "data-dir", "socket", "audit-file", "access-log", "tokens-file", "tls-cert", "tls-key",
         "tls-client-ca", "fleet-user", "fleet-token", "fleet-ca", "fleet-cert", "fleet-key", "pull-ca", "health-root")
WRITTEN = [('"{}/x"', "quotes"), ("'{}/x'", "quotes"), ("\u201c{}/x\u201d", "quotes"), ('{}/"x"/y', "quotes"),
           ("~/x", "~"), ("~bob/x", "~"), ("$HOME/x", "variable"), ("{}/${{USER}}", "variable")]


@pytest.mark.parametrize("written, said", WRITTEN)
def test_what_only_a_shell_would_change(tmp_path, written, said):
    value = written.format("/srv")
    conf = tmp_path / "conf"
    conf.write_text("".join(f"{option} = {value}\n" for option in PATHS))
    lines = [line for line in refused("check", str(conf), cwd=tmp_path).splitlines() if "replaces" in line
             or "quotes" in line]
    for number, (option, line) in enumerate(zip(PATHS, lines, strict=True), 1):
        assert line.startswith(f"{conf}:{number}: {option}: {value} ") and said in line, line
    for args, env in ((["--config", str(conf)], {}), ([f"--state-dir={value}"], {}), (["--data-dir", value], {}),
                      ([], {"GPUBUFD_SOCKET": value}), ([], {"XDG_STATE_HOME": value, "STATE_DIRECTORY": value}),
                      (["--config", value], {}), (["tls", "init", "--dir", value], {}),
                      (["token", "add", "x", "--secret-file", value], {})):
        text = refused(*args, env=env, cwd=tmp_path)
        assert f"{value} " in text and said in text, text
    assert os.listdir(tmp_path) == ["conf"]


def test_quotes_around_any_value(tmp_path):
    for option, value in (("listen", '"127.0.0.1:0"'), ("host-name", "'a'"), ("log-level", '"info"'),
                          ("max-json", '"64K"'), ("tls-cert", '/a.pem, "/b.pem"'), ("fleet-name", '"main"')):
        assert "write it without" in refused(f"--{option}={value}", "--state-dir", str(tmp_path))


def test_a_byte_order_mark_is_named(tmp_path):
    conf = tmp_path / "conf"
    for text in (b"\xef\xbb\xbflog-level = info\n", b"\xef\xbb\xbf# comment\n", "log-level = info\n".encode("utf-16")):
        conf.write_bytes(text)
        for said in refused("--config", str(conf), "--state-dir", str(tmp_path)), refused("check", str(conf)):
            assert "byte-order mark" in said and str(conf) in said, said
    tokens = tmp_path / "tokens"
    tokens.write_bytes(b"\xef\xbb\xbfname=a secret=0123456789abcdef0123\n")
    tokens.chmod(0o600)
    said = refused("--tokens-file", str(tokens), "--state-dir", str(tmp_path / "s"), "--listen", "127.0.0.1:0")
    assert "byte-order mark" in said and str(tokens) in said
    assert "byte-order mark" in refused("token", "add", "x", "--state-dir", str(tmp_path / "s"), "--secret-file",
                                        str(tokens))


def test_precedence(start, tmp_path):
    """The command line before the environment before the file."""
    conf = tmp_path / "conf"
    conf.write_text("max-json = 2048\nmax-sessions = 2\nlog-level = debug\n")

    def limits(*args, **env):
        d = start("--config", str(conf), *args, env=env)
        many = 0
        while d.ask("POST", "/v1/sessions", {"name": f"s{many}"}).status == 201:
            many += 1
        return many + 1, d.ask("POST", "/v1/sessions", "{" + " " * 3000 + "}").status, " debug " in d.log()

    assert limits() == (2, 413, True)
    assert limits(GPUBUFD_MAX_SESSIONS="4", GPUBUFD_LOG_LEVEL="info") == (4, 413, False)
    assert limits("--max-sessions", "5", GPUBUFD_MAX_SESSIONS="4", GPUBUFD_MAX_JSON="8192") == (5, 400, True)


def test_json_log(start):
    import json

    d = start("--log-format", "json", "--log-level", "debug")
    d.put("x", b"a").expect(201)
    d.raw().request("GET", '/v1/"\\\x7f').reply()
    until("the upload is logged", lambda: "/buffers/x/data" in d.log())
    lines = [json.loads(line) for line in d.log().splitlines()]
    assert any("listening" in str(x) for x in lines) and any("/buffers/x/data" in str(x) for x in lines)


def test_several_addresses(start, tmp_path):
    path = str(tmp_path / "s.sock")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    d = start("--socket", path, listen=("--listen", "127.0.0.1:0", "--listen", "127.0.0.2:0", "--listen", "[::1]:0"))
    assert len(d.addresses) == 4 and len(set(d.addresses)) == 4 and "unix:" + path in d.addresses
    for a in d.addresses:
        if not a.startswith("unix:"):
            host, port = a.rsplit(":", 1)
            assert int(port) > 0
            with socket.create_connection((host.strip("[]"), int(port)), timeout=90) as s:
                s.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
                assert b" 200 " in s.recv(1000)
        assert a in d.log()
    assert not stat.S_IMODE(os.stat(path).st_mode) & 0o007
    d.stop()
    assert not os.path.exists(path) and not os.path.exists(os.path.join(d.state, "listen"))


def test_the_unix_socket(start):
    d = start()
    data = payload(6 * SLOT)
    c = d.client(unix=True)
    c.ask("PUT", DATA.format("default", "x"), data).expect(201)
    assert c.ask("GET", DATA.format("default", "x")).expect(200).body == data
    assert c.ask("GET", "/v1/stats").expect(200) and c.connects <= 2  # closes after a large download, and announces it
    with d.raw(unix=True) as r:
        r.put(DATA.format("default", "y"), len(data), expect=True)
        assert r.head()[0] == 100
        assert r.send(data).reply().status == 201
    assert d.data("y").body == data
    bound = socket.socket(socket.AF_UNIX)  # a client socket that is bound to a path (doc/design/data-path.md, trap 15)
    bound.bind(os.path.join(d.state, "c" * (100 - len(d.state))))
    bound.settimeout(30)
    bound.connect(d.unix)
    bound.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    assert bound.recv(100).startswith(b"HTTP/1.1 200")
    bound.close()


def same(path, was):
    now = os.stat(path)
    return stat.S_ISSOCK(now.st_mode) and (now.st_dev, now.st_ino) == (was.st_dev, was.st_ino)


def is_there(path, other_than=None):
    return os.path.exists(path) and (other_than is None or not same(path, other_than))


@pytest.mark.parametrize("mode, before", [("0660", 0o077), ("0606", 0o022), ("0700", 0o007)])
def test_a_unix_socket_whose_file_is_removed_is_made_again(start, tmp_path, mode, before):
    """With the rights that were asked for, whatever the mask; connections stay, and those that come find the new
    one."""
    path = str(tmp_path / "s")
    d = start("--socket", path, "--socket-mode", mode, "--socket-group", str(os.getegid()),
              preexec_fn=lambda: os.umask(before))
    old = d.client(unix=True)
    old.ask("GET", "/v1").expect(200)
    for remove in (os.unlink, lambda p: os.rename(p, p + ".away")):
        was = os.stat(path)
        remove(path)
        until("another socket is there", lambda: is_there(path, was))
        assert stat.S_IMODE(os.stat(path).st_mode) == int(mode, 8) and os.stat(path).st_gid == os.getegid()
        for _ in range(20):
            with d.raw(unix=True) as r:
                assert r.request("GET", "/readyz").reply().status == 200
    old.ask("GET", "/v1").expect(200)
    assert old.connects == 1 and sorted(os.listdir(tmp_path)) == ["s", "s.away"]
    log = d.stop()
    assert log.count(f"the file of the socket unix:{path} was removed or replaced") == 2 and not os.path.exists(path)


def test_clients_that_wait_at_a_socket_whose_file_is_removed_are_served(start):
    """They connect while the loops do not look; the file is gone when they do."""
    d = start()
    for _ in range(20):
        was, clients = os.stat(d.unix), [d.raw(unix=True) for _ in range(8)]
        os.unlink(d.unix)
        assert [r.request("GET", "/livez").reply().status for r in clients] == [200] * 8
        for r in clients:
            r.close()
        until("another socket is there", lambda was=was: is_there(d.unix, was))


def test_what_stands_in_the_place_of_a_unix_socket_stays(start, tmp_path):
    """A file, a folder or another process's socket is not removed, now or at the end; the daemon is not ready, and says
    why."""
    path, mine = str(tmp_path / "s"), str(tmp_path / "mine")
    d = start("--socket", path)
    other = socket.socket(socket.AF_UNIX)
    other.bind(mine)
    other.listen()

    def not_ready():
        return d.ask("GET", "/readyz").status == 503

    def ready():
        return d.ask("GET", "/readyz").status == 200

    for put, word in ((lambda: (tmp_path / "new").write_text("x"), "no socket"),
                      (lambda: os.rename(mine, tmp_path / "new"), "another process answers")):
        put()
        os.rename(tmp_path / "new", path)  # over the daemon's own, or what stands there
        until("it is not ready", not_ready)
        problem = d.ask("GET", "/readyz").problem(503, "socket_lost")
        assert path in problem["detail"] and word in problem["detail"] and problem["retryable"]
        checks = d.ask("GET", "/readyz?verbose").expect(503).json()["checks"]
        assert [c["ok"] for c in checks if c["name"] == "accepting"] == [False]
        os.rename(path, tmp_path / "there")
        until("it is ready", ready)
    os.rename(tmp_path / "there", path)
    until("it is not ready", not_ready)
    log = d.stop()
    assert (stat.S_ISSOCK(os.stat(path).st_mode) and "clients can reach all sockets again" in log
            and "not ready: the file of the socket" in log)
    other.close()


def test_the_folder_of_a_unix_socket_is_removed(start, tmp_path):
    folder = tmp_path / "f"
    folder.mkdir()
    d = start("--socket", str(folder / "s"))
    os.rename(folder, tmp_path / "away")
    until("it is not ready", lambda: d.ask("GET", "/readyz").status == 503)
    assert "No such file" in d.ask("GET", "/readyz").problem(503, "socket_lost")["detail"]
    os.rename(tmp_path / "away", folder)
    until("it is ready", lambda: d.ask("GET", "/readyz").status == 200)
    d.client(unix=True).ask("GET", "/v1").expect(200)


def takes_clients(path):
    with socket.socket(socket.AF_UNIX) as s:
        return s.connect_ex(path) == 0


@pytest.mark.parametrize("landlock", ["auto", "off"])
def test_the_folder_of_a_unix_socket_is_another_one(start, tmp_path, landlock):
    """Removed and made again, as often as it comes, also behind a link; connections stay."""
    folder, link = tmp_path / "above" / "f", tmp_path / "link"
    folder.mkdir(parents=True)
    link.symlink_to(folder)
    path = str(link / "s")
    d = start("--socket", path, "--socket-mode", "0600", "--landlock", landlock)
    old = d.client(unix=True)
    old.ask("GET", "/v1").expect(200)
    for _ in range(3):
        shutil.rmtree(folder)
        until("it is not ready", lambda: d.ask("GET", "/readyz").status == 503)
        assert "No such file" in d.ask("GET", "/readyz").problem(503, "socket_lost")["detail"]
        folder.mkdir()
        until("it is ready", lambda: d.ask("GET", "/readyz").status == 200)
        was = os.stat(path)
        assert stat.S_ISSOCK(was.st_mode) and stat.S_IMODE(was.st_mode) == 0o600
        d.client(unix=True).ask("GET", "/v1").expect(200)
        os.unlink(path)
        until("another socket is there", lambda: takes_clients(path))
        d.client(unix=True).ask("GET", "/v1").expect(200)
        assert os.listdir(folder) == ["s"]
    old.ask("GET", "/v1").expect(200)
    assert old.connects == 1


def test_a_folder_that_is_another_one_is_left_as_it_is(start, tmp_path):
    """What stands in the socket's place there stays, and the daemon says why it is not ready. It is ready when that is
    gone."""
    folder = tmp_path / "f"
    folder.mkdir()
    path = folder / "s"
    d = start("--socket", str(path))
    os.rename(folder, tmp_path / "away")
    folder.mkdir()
    path.write_text("x")
    until("it is not ready", lambda: d.ask("GET", "/readyz").status == 503 and "no socket"
          in d.ask("GET", "/readyz").json()["detail"])
    assert path.read_text() == "x" and os.listdir(folder) == ["s"]
    path.unlink()
    until("it is ready", lambda: d.ask("GET", "/readyz").status == 200)
    d.client(unix=True).ask("GET", "/v1").expect(200)


def test_the_file_listen_is_written_again(start):
    d = start()
    path = os.path.join(d.state, "listen")
    text = open(path, encoding="ascii").read()
    os.unlink(path)
    until("it is there again", lambda: is_there(path))
    assert open(path, encoding="ascii").read() == text
    open(path + "2", "w", encoding="ascii").write("nowhere\n")
    os.rename(path + "2", path)
    until("it is the daemon's again", lambda: open(path, encoding="ascii").read() == text)
    assert d.stop().count("is written again") == 2


def test_a_small_limit_on_the_stack(start, tmp_path):
    """ulimit -s 128: threads have stacks of a size that does not depend on it, on plain sockets and over TLS."""
    small = dict(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (128 << 10, 128 << 10)))
    d = start(**small, listen=("--listen", "127.0.0.1:0", *secure.options()[2:]))
    data = payload(9 * SLOT + 5)
    port = next(a for a in d.addresses if a.startswith("tls:")).rsplit(":", 1)[1]
    for unix in (False, True):
        c = d.client(unix=unix)
        c.ask("PUT", DATA.format("default", "x"), data).expect(200 if unix else 201)
        assert c.ask("GET", DATA.format("default", "x")).expect(200).body == data
        c.ask("POST", "/v1/sessions/default/buffers/x/verify", {"algorithms": ["sha-256"]}).expect(200)
    with Raw(("127.0.0.1", int(port))) as r:
        if not secure.EVERYWHERE:
            r.sock = secure.wrap(r.sock)
        assert r.put(DATA.format("default", "y"), len(data)).send(data).reply().status == 201
    d.ask("POST", "/v1/sessions/default/sync", {}).expect(204)
    d.ask("GET", "/metrics").expect(200)
    assert d.data("y").body == data
    d.stop()


def test_no_tcp(start):
    d = start(listen=("--listen", "none"))
    assert [a[:5] for a in d.addresses] == ["unix:"]
    d.client(unix=True).ask("GET", "/v1").expect(200)


def test_two_daemons_do_not_share_a_state_directory(start, backend):
    d = start()
    other = Daemon(backend, state=d.state, wait=False)
    assert other.process.wait(30) > 0 and d.state in other.log()
    other.clean()
    d.ask("GET", "/v1").expect(200)


def test_readiness_is_told_to_systemd(start, tmp_path):
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(str(tmp_path / "notify"))
    told.settimeout(30)
    d = start(env={"NOTIFY_SOCKET": str(tmp_path / "notify")})
    assert b"READY=1" in told.recv(4096)
    d.stop()
    said = told.recv(4096)
    while b"STOPPING=1" not in said:
        said = told.recv(4096)
    told.close()


def test_socket_activation(backend):
    listening = socket.create_server(("127.0.0.1", 0))
    early = Raw(listening.getsockname())  # connected before there is a daemon
    early.request("GET", "/livez")

    def hand_over():  # runs in the child, which has its own descriptors
        os.dup2(listening.fileno(), 3)
        os.set_inheritable(3, True)

    # LISTEN_PID must be the daemon's own process id, so a shell sets it and then executes the daemon.
    wrapper = ["/bin/sh", "-c", 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"', binary()]
    d = Daemon(backend, listen=(), program=wrapper, preexec_fn=hand_over, close_fds=False)
    assert d.tcp == listening.getsockname() and len(d.addresses) == 2
    assert early.reply().status == 200
    d.ask("GET", "/v1").expect(200)
    early.close()
    d.stop()
    listening.close()


def test_it_says_which_backend(start):
    d = start(spec="auto")
    root = d.get("/v1")["backend"]
    assert root["name"].split(":")[0] in ("cuda", "host") and root["note"] in d.log()


def test_many_devices(start):
    d = start(spec="host:devices=3,bytes=64M")
    assert len(d.get("/v1/devices")["items"]) == 3 and d.get("/v1")["devices"] == 3
    pools = [p["name"] for p in d.get("/v1/sessions/default/pools")["items"]]
    assert pools == ["default", "default.1", "default.2"]
    d.put("x", payload(SLOT), query="?pool=default.2").expect(201)
    meta = d.meta("x")
    assert (meta["pool"], meta["device"]["index"]) == ("default.2", 2)
    d.put("x", payload(5)).expect(200)
    assert d.meta("x")["pool"] == "default.2"
    until("used", lambda: d.get("/v1/sessions/default/pools/default.2")["used_bytes"] > 0)
    until("it is given back", lambda: d.get("/v1/sessions/default/pools/default.1")["used_bytes"] == 0)
