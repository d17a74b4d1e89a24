"""gpubuf cp from outside: a server's URL, and a file of the daemon's machine. test_cli_fleet.py has other daemons."""
import base64
import hashlib
import os
import threading

import pytest

from conform import Session
from gpubuf_cli import DONE, FAILED, NOT_FOUND, USAGE, Cli, Terminal, interrupt
from harness import until
from sources import MIB, Answer, Own, ended
from tensors import safetensors
from test_tables import META, file, some
from values import npy, payload

GOOD = file(some(), META)
BIG = payload(12 * MIB, 1)


@pytest.fixture
def place(start, tmp_path):
    """(server, daemon that may copy from it and from tmp_path/files, gpubuf)"""
    (tmp_path / "files" / "llama").mkdir(parents=True)
    (tmp_path / "files" / "llama" / "m.safetensors").write_bytes(GOOD)
    server = Own(GOOD)
    d = start("--pull-from", server.origin, "--files-from", str(tmp_path / "files"))
    yield server, d, Cli(d.url(""), "default")
    server.stop()


def test_a_url_becomes_a_buffer(place):
    server, d, cli = place
    said = cli("cp", server.origin + "/hub/model.safetensors?a=b", "m").expect()
    assert said.out.startswith("m  ") and "generation 1" in said.out
    s = Session(d)
    assert s.data("m") == GOOD and len(cli("ls", "m").expect().table()) == 6
    made = cli.json("cp", server.origin + "/x", "raw", "--raw", "--kind", "pinned", "--labels", "a=b,c=d")
    assert (made["bytes"], made["kind"], made["labels"]) == (len(GOOD), "pinned", {"a": "b", "c": "d"})
    assert made["pulled"]["etag"] == '"v1"' and made["way"] == "pull"
    server.content = bytes(range(48))
    assert cli.json("cp", server.url, "n", "--dtype", "float32", "--shape", "3,4")["shape"] == [3, 4]
    server.content = npy(some()["last"])
    assert cli.json("cp", server.url, "n")["shape"] == [300, 40]


def test_a_file_of_the_daemon_becomes_a_buffer(place, tmp_path):
    server, d, cli = place
    assert cli("cp", "daemon:llama/m.safetensors", "m").expect().out.startswith("m  ")
    assert safetensors.numpy.load(Session(d).data("m")).keys() == some().keys()
    st = os.stat(tmp_path / "files" / "llama" / "m.safetensors")
    tag = f'"{st.st_size}-{st.st_mtime_ns}-{st.st_ino}"'
    assert cli.json("cp", "daemon:llama/m.safetensors", "m", "--if-match", tag)["pulled"]["etag"] == tag
    changed = cli("cp", "daemon:llama/m.safetensors", "m", "--if-match", "1-2-3").expect(FAILED)
    assert "1-2-3" in changed.err and "Repeat the command" in changed.err
    server.tag = None
    untold = cli("cp", server.url, "m", "--if-match", "v1").expect(FAILED).err
    assert "has no strong entity tag" in untold and "Repeat the command" not in untold
    said = cli("cp", "daemon:llama/none", "m")
    assert said.status == NOT_FOUND and "none" in said.err
    assert '".."' in cli("cp", "daemon:../x", "m").expect(FAILED).err


def test_without_the_options_it_says_which(start):
    cli = Cli(start().url(""), "default")
    assert "--pull-from" in cli("cp", "https://example.org/m", "m").expect(FAILED).err
    assert "--files-from" in cli("cp", "daemon:m", "m").expect(FAILED).err


def test_digests(place):
    server, d, cli = place
    for name in ("sha256", "sha512"):
        found = hashlib.new(name, GOOD)
        text = base64.b64encode(found.digest()).decode()
        for given in (found.hexdigest(), found.hexdigest().upper(), f"{name[:3]}-{name[3:]}={text}",
                      f"{name[:3]}-{name[3:]}={found.hexdigest()}"):
            cli("cp", server.url, "m", "--digest", given).expect()
        for given in (found.hexdigest()[1:], text, "md5=" + text, "", f"{name}={text}"):
            assert "--digest" in cli("cp", server.url, "m", "--digest", given).err
    wrong = hashlib.sha256(b"").hexdigest()
    assert "sha-256" in cli("cp", server.url, "n", "--digest", wrong).expect(FAILED).err
    assert "sha-256" in cli("cp", "daemon:llama/m.safetensors", "n", "--digest", wrong).expect(FAILED).err


def test_headers(place, tmp_path):
    server, d, cli = place
    cli("cp", server.url, "m", "--header", "Authorization: Bearer a:b").expect()
    assert server.requests[-1].headers["Authorization"] == "Bearer a:b"
    (tmp_path / "h").write_text("Authorization:Bearer c\r\n\r\nX-Own:  two words\n")
    cli("cp", server.url, "m", "--header", f"@{tmp_path}/h").expect()
    assert server.requests[-1].headers["Authorization"] == "Bearer c"
    assert server.requests[-1].headers["X-Own"] == "two words"
    for given in ("hush-hush", ":hush-hush", f"@{tmp_path}/nothing"):
        said = cli("cp", server.url, "m", "--header", given).expect(USAGE)
        assert "--header" in said.err and "hush-hush" not in said.err
    (tmp_path / "h").write_text("".join(f"X-{i}: a\n" for i in range(17)))
    assert "16 headers" in cli("cp", server.url, "m", "--header", f"@{tmp_path}/h").expect(USAGE).err
    assert "Range" in cli("cp", server.url, "m", "--header", "Range: bytes=0-1").expect(FAILED).err


def test_a_token_for_daemons_is_not_shown_to_servers(place):
    server, d, cli = place
    cli.env["GPUBUF_SOURCE_TOKEN"] = "hush-hush"
    cli("cp", server.url, "m").expect()
    assert all("hush-hush" not in str(r.headers) for r in server.requests)


@pytest.mark.parametrize("status,hint", ((401, True), (403, True), (404, False), (400, False)))
def test_what_a_server_wants(place, status, hint):
    """A token for it goes into a header, and is nothing that 404 asks for."""
    server, d, cli = place
    server.lie = lambda request, answer: Answer(status, {"Content-Length": "3"}, b"no!")
    err = cli("cp", server.url, "m").expect(FAILED).err
    assert f"answers with {status}" in err and ("--header 'Authorization: Bearer TOKEN'" in err) == hint
    assert "source-token" not in err and "SOURCE_TOKEN" not in err
    err = cli("cp", f"{server.origin}/v1/sessions/s/buffers/b", "m").expect(FAILED).err
    assert f" with {status}" in err and ("--source-token-file" in err) == hint and "--header" not in err


def test_a_file_wants_no_token(place, tmp_path):
    (tmp_path / "files" / "folder").mkdir()
    err = place[2]("cp", "daemon:folder", "m").expect(FAILED).err
    assert "oken" not in err and "One copy brings one file: a model in several files takes one each" in err


def test_an_entity_tag(place):
    server, d, cli = place
    for given in ('"v1"', "v1"):  # shells take quotes away
        cli("cp", server.url, "m", "--if-match", given).expect()
    assert '"v1"' in cli("cp", server.url, "m", "--if-match", "v2").expect(FAILED).err
    s = Session(d)
    tag = s.ask("HEAD", "buffers/m/data").headers["ETag"]
    cli("cp", "m", "n", "--if-match", tag).expect()
    assert "does not hold" in (said := cli("cp", "m", "n", "--if-match", "9.9").expect(FAILED)).err or said.err
    assert s.meta("n")["generation"] == 1


@pytest.mark.parametrize("line,said", [
    ("cp http://h/x a --offset 3", "--offset"), ("cp http://h/x a --in-place", "--in-place"),
    ("cp daemon:x a --from-offset 3", "--from-offset"), ("cp daemon:x a --bytes 3", "--bytes"),
    ("cp http://h/x ./f", "copied into a buffer"), ("cp daemon:x -", "copied into a buffer"),
    ("cp a http://h/x", "SOURCE alone"), ("cp a daemon:x", "SOURCE alone"),
    ("cp http://h/x a --npy", "no effect"), ("cp http://h/x a --source-token-file f", "no effect"),
    ("cp daemon:x a --header X:y", "no effect"), ("cp a b --header X:y", "no effect"),
    ("cp a b --digest 00", "no effect"), ("cp a b --labels a=b", "no effect"), ("cp ./f b --if-match x", "no effect"),
    ("cp a ./f --digest 00", "no effect"), ("cp a b --durability sync", "no effect"),
    ("cp http://h/v1/sessions/s/buffers/b a --raw", "no effect"),
    ("cp http://h/v1/sessions/s/buffers/b a --header X:y", "no effect")])
def test_what_does_not_go_together(place, line, said):
    server, d, cli = place
    got = cli(*line.split())
    assert got.status in (USAGE, FAILED) and said in got.err, (got.status, got.err)


def test_which_urls_are_of_buffers(place):
    """Only a whole path of a buffer is a daemon's: what is below it is a file like any other."""
    server, d, cli = place
    for path in ("/v1/sessions/s/buffers/b/data", "/v1/sessions/s/buffers/b?x", "/v1/sessions/s/buffers/", "", "/"):
        cli("cp", server.origin + path, "m").expect()
        assert Session(d).data("m") == GOOD
    said = cli("cp", server.origin + "/v1/sessions/s/buffers/b", "m").expect(FAILED)
    assert "record" in said.err


def test_progress_on_a_terminal(place):
    server, d, cli = place
    go = threading.Event()
    server.content = BIG

    def hold(request, answer):
        if request.number > 1:  # the first has the beginning, by which the daemon knows the size
            answer.hold, answer.held_at = go, len(answer.body) // 2

    server.lie = hold
    t = Terminal(cli, "cp", server.url, "m")
    t.read(b" %")
    go.set()
    t.end(DONE)
    assert b"100 %" in t.text and b"of 12.0 MiB" in t.text


def test_an_interrupted_copy_goes_on_and_can_be_cancelled(place):
    server, d, cli = place
    go = threading.Event()

    def hold(request, answer):
        answer.hold, answer.held_at = go, 0

    server.lie = hold
    p = cli.start("cp", server.url, "m")
    until("it is asked", lambda: server.requests)
    interrupt(p)
    running = until("it runs", lambda: [o for o in d.get("/v1/operations")["items"] if o["state"] == "running"])
    cli("operations", "rm", running[0]["id"]).expect()
    go.set()
    assert ended(Session(d), running[0]["id"])["state"] == "cancelled"
    assert f"operation {running[0]['id']} was cancelled" in cli("wait", running[0]["id"]).expect(FAILED).err
    assert cli("--json", "wait", running[0]["id"]).expect(FAILED).json()["code"] == "cancelled"
