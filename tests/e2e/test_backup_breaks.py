"""gpubuf backup and restore where what is around them breaks: connections, disks, limits, processes; and what a checkpoint is made of."""
import errno
import http.server
import json
import os
import socket
import re
import resource
import subprocess
import threading

import pytest

from checkpoint_server import Daemon, checkpoint
from gpubuf_cli import DONE, FAILED, UNREACHABLE, Cli
from harness import PATIENCE_S
from values import payload

MIB = 1 << 20
BIG = payload(40 * MIB + 5, 1)  # three pieces of 16 MiB
MANY = {f"w.{i}": (10 + i, 1, payload(100 + i, i)) for i in range(150)}


@pytest.fixture
def daemon():
    made = Daemon()
    made.checkpoints["c1"] = checkpoint("c1", {"big": (1, 1, BIG)})
    yield made
    made.end()


@pytest.fixture
def cli(daemon, tmp_path):
    return Cli(daemon.url, HOME=str(tmp_path))


class Sink(http.server.ThreadingHTTPServer):
    """Takes files. during(number of the PUT, bytes that came so far) is called after each MiB of a large one: a status is answered at
    once, and the connection ends; 0 ends it without a word."""
    daemon_threads = True

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def answer(self, status, body=b"", **headers):
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def linger(self):
            """Bytes that are left unread would reset the connection, and take the answer with them."""
            self.connection.shutdown(socket.SHUT_WR)
            while self.rfile.read(MIB):
                pass

        def do_PUT(self):
            sink, left, parts = self.server, int(self.headers["Content-Length"]), []
            with sink.lock:
                sink.puts.append(self.path)
                number = sum(1 for path in sink.puts if "objects/" in path)
            while left:
                parts.append(self.rfile.read(min(MIB, left)))
                left -= len(parts[-1])
                if not parts[-1]:
                    return
                status = sink.during(number, sum(map(len, parts))) if len(parts[-1]) == MIB else None
                if status is not None:
                    self.close_connection = True
                    if status:
                        self.answer(status, Connection="close", **sink.headers)
                        self.linger()
                    return
            sink.files[self.path] = b"".join(parts)
            self.answer(201)

        def do_GET(self):
            data = self.server.files.get(self.path)
            self.answer(404) if data is None else self.answer(200, data)

        do_HEAD = do_GET

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.lock, self.files, self.puts, self.headers = threading.Lock(), {}, [], {}
        self.during = lambda number, came: None
        self.url = f"http://127.0.0.1:{self.server_port}/b"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def handle_error(self, request, client_address):
        """A client that leaves is what some tests are about."""


@pytest.fixture
def sink():
    made = Sink()
    yield made
    made.shutdown()
    made.server_close()


# --- a server -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("status,headers", [(0, {}), (500, {}), (503, {"Retry_After": "1"}), (429, {"Retry_After": "1"})])
def test_a_server_that_ends_an_upload_in_its_middle(cli, sink, status, headers):
    """Pieces that were read ahead are dropped, and the file begins anew."""
    sink.headers = headers
    sink.during = lambda number, came: status if number == 1 and came > 20 * MIB else None
    cli("backup", "c1", sink.url).expect()
    sent = [data for path, data in sink.files.items() if "objects/" in path]
    assert len(sent) == 1 and sent[0].endswith(BIG)
    assert len([path for path in sink.puts if "objects/" in path]) == 2


def test_a_server_that_stays_broken(cli, sink):
    """A second run sends what lacks, and the manifest of the first never was there."""
    sink.during = lambda number, came: 503
    err = cli("backup", "c1", sink.url).expect(FAILED).err
    assert "503" in err and sink.url in err, err
    assert "/b/manifest.json" not in sink.files
    sink.during = lambda number, came: None
    assert cli.json("backup", "c1", sink.url)["sent_files"] == 1


def test_a_refusal_in_the_middle_is_not_tried_again(cli, sink):
    sink.during = lambda number, came: 413 if came > 20 * MIB else None
    assert "413" in cli("backup", "c1", sink.url).expect(FAILED).err
    assert len(sink.puts) == 1


def test_a_run_that_is_killed_while_it_reads_ahead(cli, daemon, sink):
    arrived, hold = threading.Event(), threading.Event()

    def wait(number, came):
        arrived.set()
        hold.wait(PATIENCE_S)

    sink.during = wait
    process = cli.start("backup", "c1", sink.url)
    assert arrived.wait(PATIENCE_S)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    hold.set()
    assert not sink.files
    sink.during = lambda number, came: None
    assert cli.json("backup", "c1", sink.url)["sent_files"] == 1
    daemon.checkpoints.pop("c1")
    cli("restore", sink.url).expect()
    assert daemon.checkpoints["c1"]["00001.safetensors"].endswith(BIG)


def test_a_daemon_that_fails_behind_the_first_piece(cli, daemon, sink):
    """Its reason is told, not that the upload broke off for it."""
    def fail(file, at):
        if at >= 16 * MIB:
            raise ConnectionError

    daemon.before_range = fail
    said = cli("backup", "c1", sink.url)
    assert said.status == UNREACHABLE and "objects/" not in said.err, said.err
    assert not sink.files


# --- a folder -----------------------------------------------------------------------------------------------------------
def test_more_files_than_may_be_open(daemon, cli, tmp_path):
    daemon.checkpoints["c1"] = checkpoint("c1", MANY)

    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    process = cli.start("backup", "c1", tmp_path / "b", preexec_fn=few)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == DONE, err
    assert len(os.listdir(tmp_path / "b" / "objects")) == len(MANY)


def test_a_full_disk(daemon, cli, tmp_path):
    """The files that had room stay for the next run, and nothing of the one that had none."""
    at = tmp_path / "small"
    at.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", at], check=False, capture_output=True).returncode != 0:
        pytest.skip("no file system may be mounted")
    try:
        daemon.checkpoints["c1"] = checkpoint("c1", {"a": (1, 1, payload(MIB, 2)), "big": (2, 1, BIG)})
        err = cli("backup", "c1", at / "b", "-c", "1").expect(FAILED).err
        assert os.strerror(errno.ENOSPC) in err and "objects/2." in err, err
        assert [name.split(".")[0] for name in os.listdir(at / "b" / "objects")] == ["1"]
        assert not (at / "b" / "manifest.json").exists()
        subprocess.run(["mount", "-o", "remount,size=128m", at], check=True)
        assert cli.json("backup", "c1", at / "b")["kept_files"] == 1
    finally:
        subprocess.run(["umount", at], check=True)


# --- a daemon -----------------------------------------------------------------------------------------------------------
BUFFERS = {"x": payload(2 * MIB + 3, 5), "y": payload(300000, 6)}


def made(start, tmp_path, **more):
    d = start("--disk-reserve", "0", state=str(tmp_path / "state"), **more)
    cli = Cli("unix://" + d.unix)
    for name, data in BUFFERS.items():
        cli("put", "-", name, "--raw", "--durability", "sync", input=data).expect()
    cli("checkpoints", "add", "c1").expect()
    return d, cli


def files_asked(cli, place):
    """The files of the checkpoint that the client asked the daemon for."""
    said = cli("-v", "backup", "c1", place).expect()
    return re.findall(r"GET \S+/files/(\d+\.safetensors)", said.err)


def test_the_folder_of_the_daemon_is_read(start, tmp_path, sink):
    d, cli = made(start, tmp_path)
    assert files_asked(cli, sink.url) == []
    for name, data in BUFFERS.items():
        assert any(sent.endswith(data) for path, sent in sink.files.items() if "objects/" in path), name
    assert d.ask("GET", "/v1/checkpoints/c1").expect(200)


def test_a_file_that_the_folder_lacks_is_asked_for(start, tmp_path, sink):
    """Here it is one whose bytes are damaged: it is shorter, and the daemon says what it is."""
    _, cli = made(start, tmp_path)
    path = tmp_path / "state" / "data" / "checkpoints" / "c1" / "00001.safetensors"
    copy = path.read_bytes()
    path.unlink()
    path.write_bytes(copy[:-1])
    said = cli("-v", "backup", "c1", sink.url)
    assert said.status != DONE and "another size" in said.err and "files/00001.safetensors" in said.err, said.err
    assert "/b/manifest.json" not in sink.files


def test_a_damaged_byte_in_the_folder(start, tmp_path, sink):
    _, cli = made(start, tmp_path)
    path = tmp_path / "state" / "data" / "checkpoints" / "c1" / "00002.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink()
    path.write_bytes(data)
    err = cli("backup", "c1", sink.url).expect(FAILED).err
    assert "buffer y (file 00002.safetensors)" in err and "CRC32C" in err, err
    assert "/b/manifest.json" not in sink.files


def bring(d, name, files):
    for file, data in files.items():
        d.ask("PUT", f"/v1/checkpoints/{name}/files/{file}", data).expect(201)


def files_of(tmp_path, name="c1"):
    folder = tmp_path / "state" / "data" / "checkpoints" / name
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".safetensors"}


def renamed(tmp_path, name):
    manifest = json.loads((tmp_path / "state" / "data" / "checkpoints" / "c1" / "manifest.json").read_text())
    del manifest["crc32c"]  # of the manifest with its former name
    return json.dumps({**manifest, "name": name}).encode()



def test_the_last_of_two_files_of_a_name_counts(start, tmp_path):
    d, _ = made(start, tmp_path)
    files, manifest = files_of(tmp_path), renamed(tmp_path, "c2")
    bad = files["00001.safetensors"][:-1] + bytes([files["00001.safetensors"][-1] ^ 1])
    bring(d, "c2", files)
    d.ask("PUT", "/v1/checkpoints/c2/files/00001.safetensors", bad).expect(200)
    d.ask("PUT", "/v1/checkpoints/c2/files/manifest.json", manifest).problem(409, "checkpoint_incomplete")
    d.ask("PUT", "/v1/checkpoints/c2/files/00001.safetensors", files["00001.safetensors"]).expect(200)
    d.ask("PUT", "/v1/checkpoints/c2/files/manifest.json", manifest).expect(201)
    assert d.ask("POST", "/v1/checkpoints/c2/verify", {}).expect(200).json()["damaged"] == []


def test_files_that_came_to_an_earlier_process_are_read(start, tmp_path):
    """What the disk made of them meanwhile, no checksum of the upload says."""
    d, _ = made(start, tmp_path)
    files, manifest = files_of(tmp_path), renamed(tmp_path, "c2")
    bring(d, "c2", files)
    d.stop()
    path = tmp_path / "state" / "data" / "checkpoints" / "c2" / "00002.safetensors"
    with open(path, "r+b") as f:
        f.seek(-1, os.SEEK_END)
        f.write(bytes([files["00002.safetensors"][-1] ^ 1]))
    d = start("--disk-reserve", "0", state=str(tmp_path / "state"))
    d.ask("PUT", "/v1/checkpoints/c2/files/manifest.json", manifest).problem(409, "checkpoint_incomplete")
    d.ask("PUT", "/v1/checkpoints/c2/files/00002.safetensors", files["00002.safetensors"]).expect(200)
    d.ask("PUT", "/v1/checkpoints/c2/files/manifest.json", manifest).expect(201)


def test_a_download_of_a_file_that_another_one_replaces(start, tmp_path):
    """All of its blocks are of the file that was there when it began, though each is read by a task of its own."""
    d, _ = made(start, tmp_path)
    first, second = payload(24 * MIB, 7), payload(24 * MIB, 8)
    d.ask("PUT", "/v1/checkpoints/c2/files/00001.safetensors", first).expect(201)
    raw = d.raw().request("GET", "/v1/checkpoints/c2/files/00001.safetensors")
    assert raw.head()[0] == 200
    d.ask("PUT", "/v1/checkpoints/c2/files/00001.safetensors", second).expect(200)
    assert raw.exactly(len(first)) == first
    assert d.ask("GET", "/v1/checkpoints/c2/files/00001.safetensors").expect(200).body == second
