"""gpubuf, command by command: its output as a table and as JSON, its effects, and its exit status."""
import http.server
import json
import re
import subprocess
import threading

import pytest

from gpubuf_cli import DONE, FAILED, NOT_FOUND, UNREACHABLE, USAGE, Cli
from harness import PATIENCE_S, binary, until


@pytest.fixture
def x(daemon, session):
    """A buffer of twelve float32."""
    data = bytes(range(48))
    daemon.put("x", data, session, "?dtype=float32&shape=3,4").expect(201)
    return data


# --- lists and details ------------------------------------------------------------------------------------------------
def test_ls_lists_what_there_is_as_a_table_and_as_json(cli, x, daemon, session):
    daemon.put("other", b"1" * 1536, session).expect(201)
    rows = cli("ls").expect().table()
    assert [(r["NAME"], r["DTYPE"], r["SHAPE"], r["BYTES"]) for r in rows] == [
        ("x", "float32", "3x4", "48 B"), ("other", "uint8", "1536", "1.5 KiB")]
    assert [b["name"] for b in cli.json("ls")] == ["x", "other"]
    assert [b["name"] for b in cli.json("ls", "o*")] == ["other"]
    cli("ls", "nothing*").expect(NOT_FOUND)


def test_columns_line_up(cli, x, daemon, session):
    daemon.put("a-much-longer-name", b"1" * 5000, session).expect(201)
    lines = cli("ls").expect().out.splitlines()
    head = lines[0]
    for title in ("DTYPE", "SHAPE", "KIND", "STATE"):
        at = head.index(title)
        assert all(line[at - 1] == " " and line[at] != " " for line in lines), title
    end = head.index("BYTES") + len("BYTES")
    assert all(line[end - 1] != " " and line[end] == " " for line in lines)


def test_a_list_of_several_pages_is_whole(cli, daemon, session):
    ops = [{"op": "create", "buffer": f"b{i:04}", "bytes": 1} for i in range(1003)]
    for at in (0, 1000):
        daemon.ask("POST", f"/v1/sessions/{session}/batch", {"operations": ops[at:at + 1000]}).expect(200)
    assert [b["name"] for b in cli.json("ls")] == [o["buffer"] for o in ops]


def test_info_of_a_buffer_and_of_the_daemon(cli, x, daemon, session):
    assert cli.json("info", "x") == daemon.meta("x", session)
    text = cli("info", "x").expect().out
    assert "name: x\n" in text and "shape: [3,4]\n" in text and re.search(r"^device\.index: 0$", text, re.M)
    about = cli.json("info")
    assert about["version"] and about["backend"]["name"] and about["devices"][0]["uuid"]


def test_a_name_may_bring_its_session(daemon, session, x):
    assert Cli(daemon.url("")).json("info", f"{session}/x")["session"] == session
    assert Cli(daemon.url("")).json("ls", "-s", session)[0]["name"] == "x"


def test_labels_cannot_command_the_terminal(cli, x, daemon, session):
    daemon.ask("PATCH", f"/v1/sessions/{session}/buffers/x", {"labels": {"k": "\u001b[2Jgone"}}).expect(200)
    said = cli("info", "x").expect()
    assert "?[2Jgone" in said.out and b"\x1b" not in said.raw


class Hostile(http.server.BaseHTTPRequestHandler):
    """A daemon whose texts all contain escape sequences for the terminal."""

    def answer(self):
        word = "\u001b[2J\u009b2J"
        problem = {"type": "urn:gpubuf:error:mapped", "code": "mapped", "status": 409, "title": word, "detail": word,
                   "native": {"call": word, "name": word}, "holders": [{"lease": word, "since": word, "pid": 1e300,
                                                                        "uid": -1}]}
        refused = self.path.endswith("/refused")
        body = json.dumps(problem if refused else {k: word for k in ("name", "note", "dtype", "shape")},
                          ensure_ascii=False).encode()
        self.send_response(409 if refused else 200)
        self.send_header("Content-Type", "application/problem+json" if refused else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = answer

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("args", [("trim",), ("seal", "x"), ("info", "x"), ("info", "x", "--json"),
                                  ("rm", "refused"), ("rm", "refused", "--json")])
def test_a_daemon_cannot_command_the_terminal(args):
    with http.server.HTTPServer(("127.0.0.1", 0), Hostile) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            said = Cli(f"http://127.0.0.1:{server.server_port}")(*args).expect(FAILED if "refused" in args else DONE)
        finally:
            server.shutdown()
            thread.join()
    assert "[2J" in said.out + said.err and not set("\u001b\u009b") & set(said.out + said.err), said.out + said.err
    if "--json" in args:
        assert "\u001b[2J\u009b2J" in json.loads(said.out).values()


# --- changes ----------------------------------------------------------------------------------------------------------
def test_rm_takes_several_and_goes_on_behind_one_that_is_not_there(cli, x, daemon, session):
    daemon.put("y", b"1", session).expect(201)
    said = cli("rm", "x", "nope", "y").expect(NOT_FOUND)
    assert 'no buffer named "nope"' in said.err and "gpubuf ls" in said.err and "\x1b" not in said.err
    assert cli.json("ls") == []


def test_rm_as_json_names_what_is_gone(cli, x):
    assert cli.json("rm", "x") == ["x"]
    problem = cli("--json", "rm", "x").expect(NOT_FOUND).json()
    assert problem["code"] == "buffer_not_found" and problem["status"] == 404


def test_cp_between_buffers_and_sessions(cli, x, daemon, session):
    cli("cp", "x", "y").expect()
    assert daemon.data("y", session).body == x
    cli("cp", "x", "y", "--from-offset", 8, "--offset", 4, "--bytes", 4).expect()
    assert daemon.data("y", session).body == x[:4] + x[8:12] + x[8:]
    name = session + "-more"
    cli("sessions", "add", name).expect()
    try:
        cli("cp", "x", f"{name}/z").expect()
        assert daemon.data("z", name).body == x
    finally:
        cli("sessions", "rm", name).expect()


def test_fill_whole_and_in_part(cli, x, daemon, session):
    cli("fill", "x", "0x3f800000", "--width", 4, "--offset", 16, "--bytes", 16).expect()
    assert daemon.data("x", session).body == x[:16] + bytes.fromhex("0000803f") * 4 + x[32:]
    assert cli.json("fill", "x", 7)["generation"] == 3
    assert daemon.data("x", session).body == b"\x07" * 48
    cli("fill", "x", (1 << 64) - 2, "--width", 8).expect()
    assert daemon.data("x", session).body == (b"\xfe" + b"\xff" * 7) * 6
    cli("fill", "x", 1 << 64, "--width", 8).expect(USAGE)
    assert "PATTERN" in cli("fill", "x", "red").expect(USAGE).err


def test_sync_of_a_session_a_stream_and_a_mirrored_buffer(cli, x, daemon, session):
    cli("streams", "add", "s1").expect()
    assert cli("sync").expect().out == ""
    cli("sync", "--stream", "s1").expect()
    assert "gpubuf streams" in cli("sync", "--stream", "nope").expect(NOT_FOUND).err
    daemon.put("m", x, session, "?mirrored=true").expect(201)
    assert cli.json("sync", "m", "--to", "device")["copied"] is True
    assert cli.json("sync", "m")["copied"] is False
    cli("sync", "--to", "host").expect(USAGE)


def test_verify(cli, x):
    assert cli.json("verify", "x")["match"] is True
    assert "match: true" in cli("verify", "x").expect().out
    cli("fill", "x", "1", "--bytes", "1").expect()
    assert cli.json("verify", "x")["match"] is None, "there was nothing to compare with"
    assert cli.json("verify", "x")["match"] is True


def test_sessions_are_listed_added_and_removed(cli, session):
    name = session + "-new"
    made = cli.json("sessions", "add", name, "--max-bytes", "1M", "--idle-ttl", 3600)
    try:
        assert made[0]["quota"]["bytes"] == 1 << 20 and made[0]["idle_ttl_s"] == 3600
        assert {s["name"] for s in cli.json("sessions")} >= {session, name, "default"}
        assert "exists" in cli("sessions", "add", name).expect(FAILED).err
        over = cli("-s", name, "put", "-", "x", "--raw", input=bytes((1 << 20) + 1)).expect(FAILED)
        assert "1048576" in over.err and "gpubuf rm" in over.err
    finally:
        assert cli.json("sessions", "rm", name) == [name]


def test_pools_are_listed_added_trimmed_and_removed(cli, x):
    made = cli.json("pools", "add", "p", "--max-bytes", "64M", "--release-threshold", "1M")[0]
    assert made["max_bytes"] == 64 << 20 and made["release_threshold_bytes"] == 1 << 20
    assert {p["name"] for p in cli.json("pools")} == {"default", "p"}
    cli("put", "-", "in-p", "--pool", "p", input=b"12").expect()
    assert cli.json("info", "in-p")["pool"] == "p"
    assert "--force" in cli("pools", "rm", "p").expect(FAILED).err
    assert cli.json("trim", "p", "--keep", 0)["name"] == "p"
    assert re.match(r"p: .* reserved before, .* now", cli("trim", "p").expect().out)
    cli("pools", "rm", "p", "--force").expect()
    assert [p["name"] for p in cli.json("pools")] == ["default"]
    cli("trim", "p").expect(NOT_FOUND)


def test_streams_are_listed_added_and_removed(cli):
    cli("streams", "add", "a", "b").expect()
    assert {r["NAME"] for r in cli("streams").expect().table()} == {"default", "a", "b"}
    cli("streams", "rm", "a").expect()
    assert {s["name"] for s in cli.json("streams")} == {"default", "b"}
    for wrong in (["ad", "c"], ["add"], ["rm"]):
        cli("streams", *wrong).expect(USAGE)


def test_wait_for_an_operation_that_fails(simulated, start):
    d = start(spec=simulated("bytes=64M"))
    d.ask("POST", "/v1/sessions/default/buffers", {"name": "a", "bytes": 60 << 20}).expect(201)
    late = d.ask("POST", "/v1/sessions/default/buffers", {"name": "b", "bytes": 50 << 20},
                 {"Prefer": "respond-async, wait=1"}).expect(202).json()["id"]
    said = Cli(d.url(""))("wait", late).expect(FAILED)
    assert "do not fit" in said.err and "gpubuf trim" in said.err


def test_wait_for_an_operation_that_is_done(cli, x, daemon, session):
    base = f"/v1/sessions/{session}"

    def left(method, path, body):
        """An operation that waits for nothing may be done at once; then the command is repeated."""
        reply = daemon.ask(method, base + path, body, {"Prefer": "respond-async"})
        return reply.json()["id"] if reply.status == 202 else None

    good = until("an upload is left to itself", lambda: left("PUT", "/buffers/y/data", bytes(1 << 20)))
    assert cli.json("wait", good)["state"] == "done"
    assert good in [o["id"] for o in cli.json("operations")]
    assert "gpubuf operations" in cli("wait", "nothing").expect(NOT_FOUND).err


def test_stats_and_top_where_no_terminal_is(cli, x, session):
    assert cli.json("stats")["buffers"]["count"] >= 1
    assert cli.json("stats", "--session", session)["session"] == session
    for command in (["stats"], ["top"], ["top", "--once"]):
        said = cli(*command).expect()
        assert "upload" in said.out and "POOL" in said.out and b"\x1b" not in said.raw
    both = cli.json("top")
    assert both["stats"]["sequence"] and both["sessions"]


# --- exit statuses ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("args", [
    [], ["nonsense"], ["ls", "a", "b"], ["rm"], ["ls", "--offset", "3"], ["--nonsense"], ["put"],
    ["ls", "--timeout", "soon"], ["ls", "--timeout", "-1"], ["get", "x", "--offset", "12Q"],
    ["get", "x", "--offset", "99999999T"], ["info", "a/b/c"], ["info", ""], ["info", "/x"], ["leases", "x"], ["--url"],
    ["--url", "gopher://x", "ls"], ["--token-file", "/nonexistent", "ls"], ["map", "x", "--mode", "both"],
    ["map", "x", "--ways", "vmm,carrier"], ["cp", "./a", "./b"], ["put", "-"], ["get", "x", "-", "--json"],
    ["cp", "x", "-", "--json"],
], ids=" ".join)
def test_what_cannot_be_meant_ends_with_2_and_says_what_would_be_right(cli, args):
    said = cli(*args).expect(USAGE)
    assert said.err.strip() and "%" not in said.err


def test_nobody_listens(session):
    said = Cli("http://127.0.0.1:1", session)("ls").expect(UNREACHABLE)
    assert "127.0.0.1:1" in said.err and "gpubuf doctor" in said.err and said.out == ""
    assert Cli("http://127.0.0.1:1")("--json", "ls").expect(UNREACHABLE).json()["code"] == "cannot_connect"
    assert Cli("unix:///nonexistent/s")("ls").expect(UNREACHABLE).err


def test_verbose_shows_the_requests(cli):
    assert re.search(r"^\* GET /v1/sessions/\S+/buffers\?limit=\d+ -> 200", cli("ls", "-v").expect().err, re.M)


def test_quiet_says_nothing_but_errors(cli, x):
    for args in (["cp", "x", "y"], ["fill", "y", "1"], ["streams", "add", "q"], ["rm", "y"]):
        said = cli("-q", *args).expect()
        assert said.out == said.err == "", args
    assert cli("-q", "rm", "y").expect(NOT_FOUND).err


def test_the_url_of_a_unix_socket(daemon, session, x):
    assert Cli(f"unix://{daemon.unix}", session).json("ls")[0]["name"] == "x"


def test_tokens_come_from_a_file_or_the_environment_and_are_never_shown(start, tmp_path):
    made = subprocess.run([binary(), "token", "add", "t", "--scope", "read", "--state-dir", tmp_path / "state"],
                          capture_output=True, text=True, timeout=PATIENCE_S)
    secret = re.search(r"gpb_\S+", made.stdout).group(0)
    d = start(state=str(tmp_path / "state"))
    file = tmp_path / "token"
    file.write_text(secret + "\n")
    url = d.url("")
    assert "--token-file" in Cli(url)("ls").expect(FAILED).err
    for said in (Cli(url)("ls", "-v", "--token-file", file), Cli(url, GPUBUF_TOKEN=secret)("ls", "-v")):
        assert secret not in said.expect().err + said.out
    assert "scope" in Cli(url, GPUBUF_TOKEN=secret)("streams", "add", "s").expect(FAILED).err
    file.write_text("")
    assert "empty" in Cli(url)("ls", "--token-file", file).expect(USAGE).err


def test_help_and_version():
    cli = Cli("http://127.0.0.1:1")
    assert "doctor" in cli("--help").expect().out
    assert "--slice" in cli("get", "--help").expect().out
    assert re.fullmatch(r"gpubuf \d+\.\d+\.\d+ \(libgpubuf \d+\.\d+\.\d+\)\n", cli("--version").expect(DONE).out)
