"""gpubuf backup and restore: a folder, and a server to which files are PUT. What S3 needs is in test_backup.py."""
import errno
import json
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from checkpoint_server import Daemon, checkpoint
from gpubuf_cli import DONE, FAILED, NOT_FOUND, UNREACHABLE, USAGE, Cli, Terminal
from harness import library
from values import payload

MIB = 1 << 20
BUFFERS = {"big": (1, 1, payload(11 * MIB + 5, 1)), **{f"w.{i}": (10 + i, 1, payload(1000 + i, i)) for i in range(3)}}


class Files(ThreadingHTTPServer):
    """Takes and gives files, as a server of WebDAV does. methods: those that it knows; ranges: whether it knows them, too."""
    daemon_threads = True

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def answer(self, status, body=b"", length=None):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def serve(self):
            server = self.server
            with server.lock:
                server.requests.append((self.command, self.path))
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if len(body) < int(self.headers.get("Content-Length", 0)):
                return None  # the client left
            if self.command not in server.methods:
                return self.answer(405)
            if server.password and self.headers.get("Authorization") != server.password:
                return self.answer(401)
            with server.lock:
                if self.command == "PUT":
                    server.files[self.path] = body
                    return self.answer(201)
                data = server.files.get(self.path)
                if data is None:
                    return self.answer(404)
                if self.command == "DELETE":
                    del server.files[self.path]
                    return self.answer(204)
            ranged = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")) if server.ranges else None
            body = data[int(ranged.group(1)):] if ranged else data
            if self.command == "GET" and "objects/1." in self.path and server.cuts:
                self.answer(206 if ranged else 200, body[:server.cuts.pop()], len(body))
                self.close_connection = True
                return None
            return self.answer(206 if ranged else 200, body)

        do_GET = do_HEAD = do_PUT = do_DELETE = serve

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.lock, self.files, self.requests, self.cuts = threading.Lock(), {}, [], []
        self.methods, self.ranges, self.password = {"GET", "HEAD", "PUT", "DELETE"}, True, None
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def handle_error(self, request, client_address):
        """A client that leaves is what some tests are about."""


@pytest.fixture
def daemon():
    made = Daemon()
    made.checkpoints["c1"] = checkpoint("c1", BUFFERS)
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def server():
    made = Files()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def cli(daemon, tmp_path):
    return Cli(daemon.url, HOME=str(tmp_path))


@pytest.fixture(params=["folder", "server"])
def place(request, tmp_path, server):
    return str(tmp_path / "a folder" / "ünï") if request.param == "folder" else server.url + "/a b/ünï"


def second(daemon):
    changed = {**BUFFERS, "w.1": (11, 2, payload(1001, 77))}
    del changed["w.0"]
    daemon.checkpoints["c2"] = checkpoint("c2", changed)


# --- either -------------------------------------------------------------------------------------------------------------
def test_round_trip(cli, daemon, place):
    said = cli.json("backup", "c1", place, "--part-bytes", "5M")
    assert (said["files"], said["sent_files"], said["destination"]) == (4, 4, place)
    before = daemon.checkpoints.pop("c1")
    said = cli.json("restore", place)
    assert (said["checkpoint"], said["files"], said["restored"]["buffers"]) == ("c1", 4, 4)
    assert all(daemon.checkpoints["c1"][n] == before[n] for n in before if n.endswith(".safetensors"))
    assert [json.loads(daemon.checkpoints["c1"][n]) == json.loads(before[n]) for n in ("manifest.json", "model.safetensors.index.json")]


def test_a_second_backup_sends_what_changed(cli, daemon, place):
    cli("backup", "c1", place).expect()
    second(daemon)
    said = cli("backup", "c2", place).expect().out
    assert said == f"c2  11.0 MiB in 3 files at {place}  sent 1, 5.0 KiB  kept 2  removed 2\n", said
    assert cli("-q", "backup", "c2", place).expect().out == ""
    cli("restore", place, "--name", "back", "--files-only").expect()
    assert daemon.checkpoints["back"]["00002.safetensors"] == daemon.checkpoints["c2"]["00002.safetensors"]


def test_no_backup_there(cli, place):
    assert "holds no backup" in cli("restore", place).expect(NOT_FOUND).err


def test_bytes_that_are_wrong_on_their_way_here(cli, daemon, place):
    daemon.damage = lambda name, data: data[:-1] + bytes([data[-1] ^ 1]) if name == "00001.safetensors" else data
    err = cli("backup", "c1", place).expect(FAILED).err
    assert "buffer big (file 00001.safetensors)" in err and "CRC32C" in err, err
    assert "holds no backup" in cli("restore", place).expect(NOT_FOUND).err


def test_a_daemon_that_goes_away(cli, daemon, place):
    def leave(file, at):
        daemon.shutdown()
        daemon.server_close()
        raise ConnectionError

    daemon.before_range = leave
    err = cli("backup", "c1", place).expect(UNREACHABLE).err
    assert "gpubufd" in err or "connection" in err, err


def test_progress_on_a_terminal(cli, place):
    terminal = Terminal(cli, "backup", "c1", place)
    terminal.end(DONE)
    assert b"100 %" in terminal.text and b"sent 4" in terminal.text, terminal.text


# --- a folder -----------------------------------------------------------------------------------------------------------
def test_a_folder_opens_in_tools(cli, daemon, tmp_path):
    safetensors = library("safetensors.numpy")
    cli("backup", "c1", f"file://{tmp_path}/b/c").expect()
    folder = tmp_path / "b" / "c"
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == BUFFERS.keys()
    for name, file in index["weight_map"].items():
        assert safetensors.load_file(folder / file)[name].tobytes() == BUFFERS[name][2]
    second(daemon)
    (folder / "objects" / "9.9.x.safetensors.part").write_bytes(b"of a run that was killed")
    cli("backup", "c2", folder).expect()
    assert len(os.listdir(folder / "objects")) == 3
    assert sorted(os.listdir(folder)) == ["manifest.json", "model.safetensors.index.json", "objects"]


@pytest.mark.parametrize("change,words", [(lambda p: os.truncate(p, 5000), "5000 bytes, and the backup says"), (os.unlink, "lacks the object"),
                                          (lambda p: open(p, "r+b").write(b"x"), "is damaged: its CRC32C is")])
def test_a_folder_that_is_damaged(cli, daemon, tmp_path, change, words):
    cli("backup", "c1", tmp_path / "b").expect()
    daemon.checkpoints.pop("c1")
    name = next(n for n in os.listdir(tmp_path / "b" / "objects") if n.startswith("1."))
    change(tmp_path / "b" / "objects" / name)
    said = cli("restore", tmp_path / "b")
    assert said.status in (FAILED, NOT_FOUND) and words in said.err and f"objects/{name}" in said.err and "buffer big" in said.err, said.err
    assert "manifest.json" not in daemon.checkpoints.get("c1", {})


def test_a_manifest_that_leads_out_of_the_folder(cli, daemon, tmp_path):
    cli("backup", "c1", tmp_path / "b").expect()
    daemon.checkpoints.pop("c1")
    path = tmp_path / "b" / "manifest.json"
    for object_ in ("objects/../../secret", "/etc/passwd", "objects/.x", ""):
        manifest = json.loads(path.read_text())
        manifest["objects"]["00001.safetensors"] = object_
        path.write_text(json.dumps(manifest))
        assert "names no object for the file 00001.safetensors" in cli("restore", tmp_path / "b").expect(FAILED).err


def test_a_folder_that_cannot_be_written(cli, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    err = cli("backup", "c1", tmp_path / "file" / "b").expect(FAILED).err
    assert os.strerror(errno.ENOTDIR) in err, err


# --- a server -----------------------------------------------------------------------------------------------------------
def test_a_server_without_head_delete_and_ranges(cli, daemon, server):
    server.methods, server.ranges = {"GET", "PUT"}, False
    cli("backup", "c1", server.url + "/b").expect()
    second(daemon)
    said = cli("backup", "c2", server.url + "/b").expect()
    assert "sent 3" in said.out and "2 objects of the backup before could not be removed" in said.err, said.err
    daemon.checkpoints.pop("c1")
    server.cuts = [4 * MIB]
    cli("restore", server.url + "/b", "--name", "c1").expect()
    assert daemon.checkpoints["c1"]["00001.safetensors"].endswith(BUFFERS["big"][2])


def test_a_user_from_netrc(cli, server, tmp_path):
    server.password = "Basic bWU6cHc="
    assert "~/.netrc" in cli("backup", "c1", server.url + "/b").expect(FAILED).err
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login me password pw\n")
    netrc.chmod(0o600)
    cli("backup", "c1", server.url + "/b").expect()


def test_hosts_need_places_of_their_own(daemon, tmp_path):
    cli = Cli()
    host = daemon.url.removeprefix("http://")
    said = cli("--hosts", host, "backup", "c1", tmp_path / "b")
    assert said.status != DONE and "put %h into DEST" in said.out + said.err
    cli("--hosts", host, "backup", "c1", tmp_path / "b-%h").expect()
    assert (tmp_path / f"b-{host}" / "manifest.json").exists()


def test_help_and_completion(cli):
    assert "--part-bytes" in cli("backup", "--help").expect().out and "--files-only" in cli("restore", "--help").expect().out
    assert cli("complete", "--", "backup", "--end").expect().out.split() == ["--endpoint"]
    assert cli("backup").expect(USAGE).err
