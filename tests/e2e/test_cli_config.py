"""gpubuf's configuration file: hosts and groups by name, which of option, environment and file wins, and where no token
goes."""
import contextlib
import http.server
import json
import os
import threading

import pytest

from gpubuf_cli import DONE, NO_HOST, SOME_HOSTS, UNREACHABLE, USAGE, Cli

SECRET = "gpb_" + "s" * 40


class Asked(http.server.BaseHTTPRequestHandler):
    """Notes the path and the token of each request, and has an empty list."""

    def do_GET(self):
        self.server.asked.append((self.path.split("?")[0], self.headers.get("Authorization")))
        body = b'{"items":[],"next_cursor":null}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def listening():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Asked) as server:
        server.asked, server.url = [], f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def a():
    with listening() as server:
        yield server


@pytest.fixture
def b():
    with listening() as server:
        yield server


@pytest.fixture
def configured(tmp_path):
    """Makes the file, and gpubuf with it."""
    def make(text, mode=0o600, **env):
        (tmp_path / "config").write_text(text)
        os.chmod(tmp_path / "config", mode)
        return Cli(GPUBUF_CONFIG=str(tmp_path / "config"), **env)
    return make


def target(session="default"):
    return f"/v1/sessions/{session}/buffers"


def settings(cli, *args, **more):
    return {s["setting"]: (s["value"], s["from"].rpartition("/")[2])
            for s in cli.json(*args, "config", **more)["settings"]}


# --- hosts ------------------------------------------------------------------------------------------------------------
def test_a_host_by_its_name(configured, a, b, tmp_path):
    (tmp_path / "b.token").write_text(SECRET + "\n")
    cli = configured(f"session = all  # of every host\n[host a]\nurl = {a.url}\n\n[host b]\nurl = {b.url}\ntoken-file "
                     "= b.token\nsession = own\n")
    cli("--host", "a", "ls").expect()
    cli("--host", "b", "ls").expect()
    assert a.asked == [(target("all"), None)] and b.asked == [(target("own"), f"Bearer {SECRET}")]
    cli("--host", "b", "ls", "-s", "given").expect()
    assert b.asked[1][0] == target("given")
    cli.env["GPUBUF_HOST"] = "a"
    cli("ls").expect()
    assert len(a.asked) == 2 and "--url" in cli("--host", "a", "--url", b.url, "ls").expect(USAGE).err


def test_a_named_host_wins_over_the_environment(configured, a, b):
    cli = configured(f"session = all\n[host a]\nurl = {a.url}\ntoken = {SECRET}\n", GPUBUF_URL=b.url,
                     GPUBUF_TOKEN="gpb_other", GPUBUF_SESSION="env", GPUBUF_FLEET=b.url)
    cli("--host", "a", "ls").expect()
    assert a.asked == [(target("env"), f"Bearer {SECRET}")] and b.asked == []


def test_the_token_of_the_file_goes_to_no_other_address(configured, a, b):
    for text in (f"url = {a.url}\ntoken = {SECRET}\n", f"host = a\n[host a]\nurl = {a.url}\ntoken = {SECRET}\n"):
        cli = configured(text)
        cli("ls").expect()
        assert a.asked.pop() == (target(), f"Bearer {SECRET}")
        cli("ls", "--url", b.url).expect()
        cli("ls", "--hosts", b.url).expect()
        cli.env["GPUBUF_URL"] = b.url
        cli("ls").expect()
        assert [token for _, token in b.asked] == [None] * 3 and a.asked == []
        b.asked.clear()


def test_a_session_of_the_file_picks_names_and_not_what_is_shown(configured, a):
    """As that of the environment: of the commands that show all, only --session picks one."""
    cli = configured(f"url = {a.url}\nsession = s\n")
    cli("--json", "stats").expect()
    cli("--json", "stats", "-s", "t").expect()
    cli("ls").expect()
    assert [path for path, _ in a.asked] == ["/v1/stats", "/v1/sessions/t/stats", target("s")]


def test_without_a_url_the_name_is_the_address(configured):
    assert settings(configured("[host gpu1]\nsession = s\n"), "--host", "gpu1")["url"] == ("gpu1", "config:1")


# --- groups -----------------------------------------------------------------------------------------------------------
def test_a_group(configured, a, b):
    cli = configured(f"token = {SECRET}\n[host a]\nurl = {a.url}\ntoken = {SECRET}a\n[group all]\nhosts = a, {b.url}\n"
                     f"[group some]\nhosts = a,127.0.0.1:1\n[group none]\nhosts = 127.0.0.1:1\n")
    assert [line.partition(":")[0] for line in cli("--group", "all", "ls").expect().out.splitlines()] == ["a", "http"]
    assert a.asked == [(target(), f"Bearer {SECRET}a")] and b.asked == [(target(), f"Bearer {SECRET}")]
    told = [json.loads(line) for line in cli("--group", "some", "--json", "ls").expect(SOME_HOSTS).out.splitlines()]
    assert [(t["host"], t["url"], t["exit"], t["result"]) for t in told] == \
        [("a", a.url, DONE, []), ("127.0.0.1:1", "http://127.0.0.1:1", UNREACHABLE, None)]
    cli("--group", "none", "ls").expect(NO_HOST)
    for wrong in (["--group", "all", "--hosts", "a"], ["--group", "all", "--host", "a"],
                  ["--hosts", "a", "--host", "a"]):
        assert "one of them" in cli(*wrong, "ls").expect(USAGE).err


def test_hosts_of_a_list_are_those_of_the_file(configured, a, b):
    cli = configured(f"[host a]\nurl = {a.url}\ntoken = {SECRET}\nsession = own\njson = true\n")
    said = cli("--hosts", f"a,{b.url}", "ls").expect()
    assert a.asked == [(target("own"), f"Bearer {SECRET}")] and b.asked == [(target(), None)] and "{" not in said.out


# --- the file ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("text,line,said", [
    ("sesion = x", 1, "is session meant?"), ("\n[hots a]", 2, "[host NAME]"),
    ("[host a]\n[host a]", 2, "line 1 already"), ("[host a b]", 1, "is no name"), ("[host a", 1, "[host NAME]"),
    ("just words", 1, "name = value"), ("timeout = soon", 1, "seconds above 0"), ("json = maybe", 1, "true or false"),
    ("session =", 1, "no value"), ("session = a\nsession = b", 2, "line 1 already"), ("hosts = a", 1, "[group NAME]"),
    ("[host a]\nparallel = 3", 2, "before the sections"), ("[group g]\nurl = x", 2, "[host NAME]"),
    ("url = 'http://a'", 1, "in quotes"), ("session = \u201ca\u201d", 1, "in quotes"),
    ("cacert = ~bob/ca.pem", 1, "begins with ~"), ("cert = $HOME/c.pem", 1, "has a variable"),
    ("key = ~/${X}", 1, "has a variable"), ("\ufeffsession = a", 1, "byte-order mark"), ("[group g]", 1, "hosts ="),
    ("host = a", 1, "no [host a]"), ("token = x\ntoken-file = y", 2, "one of them")])
def test_a_line_that_does_not_fit(configured, text, line, said):
    err = configured(text)("ls").expect(USAGE).err
    assert f"/config:{line}: " in err and said in err, err


def test_what_only_a_shell_would_change(tmp_path):
    for option in ("token-file", "cacert", "cert", "key", "config", "hosts", "socket"):
        for value, said in (("~/x", "begins with ~"), ("$HOME/x", "has a variable"), ('"/x"', "in quotes")):
            words = ["doctor"] if option == "socket" else ["ls"]
            err = Cli()(f"--{option}={value}", *words).expect(USAGE).err
            assert f"--{option} " in err and said in err, err
    for variable in ("GPUBUF_CONFIG", "GPUBUF_CACERT", "GPUBUF_CERT", "GPUBUF_KEY", "GPUBUF_SOCKET"):
        err = Cli(**{variable: "~/x"})("ls").expect(USAGE).err
        assert f"{variable} begins with ~" in err
    for variable in ("GPUBUF_URL", "GPUBUF_TOKEN", "GPUBUF_SESSION"):
        err = Cli(**{variable: '"secret"'})("ls").expect(USAGE).err
        assert f"{variable} stands in quotes" in err and "secret" not in err
    marked = tmp_path / "marked"
    marked.write_bytes(b"\xef\xbb\xbfgpb_secret\n")
    for option in ("--token-file", "--hosts"):
        err = Cli()(option, marked, "ls").expect(USAGE).err
        assert "byte-order mark" in err and "gpb_" not in err, err


def test_a_token_that_others_can_read_is_refused(configured):
    for mode in (0o640, 0o604):
        err = configured(f"[host a]\ntoken = {SECRET}\n", mode)("config").expect(USAGE).err
        assert "config:2: " in err and "chmod 600" in err and SECRET not in err
    configured("[host a]\ntoken-file = t\n", 0o644)("config").expect()
    assert SECRET not in configured(SECRET, 0o644)("config").expect(USAGE).err


def test_names_that_are_not_there(configured):
    cli = configured("[host gpu1]\n[group edge]\nhosts = gpu1\n")
    assert "is gpu1 meant?" in cli("--host", "gpu2", "ls").expect(USAGE).err
    assert "is edge meant?" in cli("--group", "egde", "ls").expect(USAGE).err
    assert "there is no configuration file" in Cli()("--host", "gpu1", "ls").expect(USAGE).err
    assert "cannot be read" in Cli(GPUBUF_CONFIG="/not/there")("ls").expect(USAGE).err
    assert cli("complete", "--", "--host", "g").out == "gpu1\n" and cli("complete", "--", "--group", "").out == "edge\n"


def test_where_the_file_is(tmp_path):
    cli = Cli(HOME=str(tmp_path), XDG_CONFIG_HOME="")
    del cli.env["GPUBUF_CONFIG"]
    assert cli.json("config")["file"] is None
    for folder, name in ((".config", "home"), ("xdg", "xdg")):
        os.makedirs(tmp_path / folder / "gpubuf")
        (tmp_path / folder / "gpubuf/config").write_text(f"session = {name}\ncacert = ~/ca.pem\ncert = c.pem\n")
    assert settings(cli)["session"][0] == "home"
    cli.env["XDG_CONFIG_HOME"] = str(tmp_path / "xdg")
    found = settings(cli)
    assert found["session"][0] == "xdg" and found["cacert"][0] == f"{tmp_path}/ca.pem"
    assert found["cert"][0] == f"{tmp_path}/xdg/gpubuf/c.pem"
    assert cli.json("--config", "none", "config")["file"] is None


# --- what is in force -------------------------------------------------------------------------------------------------
def test_what_is_in_force_and_why(configured):
    cli = configured(f"session = all\ntimeout = 7\n[host a]\nurl = u:1\ntoken = {SECRET}\nquiet = true\n[group "
                     "g]\nhosts = a, b\n")
    assert settings(cli)["session"] == ("all", "config:1") and settings(cli)["url"][1] == "built in"
    found = settings(cli, "--host", "a", "-t", "3")
    assert found == {"url": ("u:1", "config:4"), "token": ("(not shown)", "config:5"), "quiet": ("true", "config:6"),
                     "session": ("all", "config:1"), "timeout": ("3", "--timeout"), "json": ("true", "--json")}
    cli.env.update(GPUBUF_URL="e:2", GPUBUF_TOKEN=SECRET, GPUBUF_SESSION="env")
    assert settings(cli)["url"] == ("e:2", "GPUBUF_URL") and settings(cli)["token"] == ("(not shown)", "GPUBUF_TOKEN")
    said = cli("config", "--host", "a").expect()
    assert SECRET not in said.out + said.err and "group g: a b\n" in said.out and "session  env" in said.out
    assert (cli.json("config")["hosts"] == [{"host": "a", "url": "u:1"}] and cli.json("config")["groups"]
            == [{"group": "g", "hosts": ["a", "b"]}])
