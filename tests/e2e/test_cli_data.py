"""gpubuf's put, get and cp: files, pipes, formats, parts, and the state after an interruption."""
import io
import os
import signal
import socket
import subprocess

import numpy as np
import pytest

from gpubuf_cli import DONE, FAILED, INTERRUPTED, NOT_FOUND, UNREACHABLE, UNREAD, USAGE, Cli, interrupt, program
from harness import PATIENCE_S, library, until
from values import npy, payload

SIZE = 3 * (1 << 20) + 17


@pytest.fixture
def array():
    return np.arange(12, dtype="float32").reshape(3, 4)


# --- formats ----------------------------------------------------------------------------------------------------------
def test_a_npy_goes_up_and_comes_back(cli, array, tmp_path):
    file = tmp_path / "weights.npy"
    file.write_bytes(npy(array))
    put = cli.json("put", file)
    assert (put["name"], put["dtype"], put["shape"]) == ("weights", "float32", [3, 4])
    back = tmp_path / "back.npy"
    got = cli.json("get", "weights", back)
    assert (got["bytes"], got["shape"], got["file"]) == (back.stat().st_size, [3, 4], str(back))
    assert back.read_bytes() == file.read_bytes()
    assert np.array_equal(np.load(io.BytesIO(cli("get", "weights", "--npy").expect().raw)), array)
    assert cli("get", "weights").expect().raw == array.tobytes()
    cli("get", "weights", back, "--raw").expect()
    assert back.read_bytes() == array.tobytes()


def test_raw_bytes_with_a_shape(cli, array, daemon, session, tmp_path):
    file = tmp_path / "x.bin"
    file.write_bytes(array.tobytes())
    assert "float32 4x3" in cli("put", file, "y", "--dtype", "float32", "--shape", "4,3").expect().out
    assert daemon.meta("y", session)["shape"] == [4, 3]
    file.write_bytes(npy(array))
    assert cli.json("put", file, "z", "--raw")["dtype"] == "uint8"
    assert daemon.data("z", session).body == npy(array)


def test_slices_and_ranges(cli, array, tmp_path):
    cli("put", "-", "x", input=npy(array)).expect()
    part = tmp_path / "part.npy"
    cli("get", "x", part, "--slice", "0:2,1:3").expect()
    assert np.array_equal(np.load(part), array[0:2, 1:3])
    assert cli("get", "x", "--offset", 8, "--bytes", 12).expect().raw == array.tobytes()[8:20]
    cli("put", "-", "x", "--slice", "1", input=np.full(4, 9, dtype="float32").tobytes()).expect()
    array[1] = 9
    cli("put", "-", "x", "--offset", 0, "--raw", input=np.float32(5).tobytes()).expect()
    array[0, 0] = 5
    assert cli("get", "x").expect().raw == array.tobytes()


def test_tensors_of_a_file_and_back(cli, array, tmp_path):
    st = library("safetensors.numpy")
    tensors = {"layer.0.w": array, "layer.0.b": np.ones(3, dtype="float16")}
    file, back = tmp_path / "m.safetensors", tmp_path / "b.safetensors"
    st.save_file(tensors, file)
    assert "2 tensors" in cli("put", file, "--prefix", "v1.").expect().out
    assert {b["name"] for b in cli.json("ls")} == {"v1.layer.0.w", "v1.layer.0.b"}
    cli("get", "v1.*", back).expect()
    for name, value in st.load_file(back).items():
        assert np.array_equal(value, tensors[name.removeprefix("v1.")])
    cli("get", "v1.layer.0.w,v1.layer.0.b", back).expect()
    assert len(st.load_file(back)) == 2
    cli("get", "v1.layer.0.b", back).expect()
    assert len(st.load_file(back)) == 1


NONE = {"lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "git lfs pull"),
        "text": (b"no safetensors at all", "does not begin as"), "empty": (b"", "ends at byte 0"),
        "no-brace": (b"\x10" + bytes(7) + b"[1]" + bytes(30), "does not begin as")}


@pytest.mark.parametrize("case", NONE)
def test_a_file_that_is_not_what_its_ending_says(cli, session, tmp_path, case):
    body, word = NONE[case]
    cli("put", "-", "m", "--dtype", "uint8", input=b"before").expect()
    for ending in ("safetensors", "npy"):
        file = tmp_path / f"{case}.{ending}"
        file.write_bytes(body)
        for more in ((), ("--retry", 1), ("--in-place",)):
            said = cli("put", file, "m", *more).expect(FAILED).err
            assert "--raw stores" in said and (ending == "npy" or word in said), said
        if ending == "safetensors" and body:
            assert word in cli("put", file).expect(FAILED).err
        assert cli("get", "m", "-", "--raw").expect().raw == b"before"
        for more in (("--raw",), ("--dtype", "uint8")):
            cli("put", file, "raw", *more).expect()
            assert cli("get", "raw", "-", "--raw").expect().raw == body
    cli("put", "-", "m", input=body).expect()  # standard input has no name
    assert cli("get", "m", "-", "--raw").expect().raw == body


def test_kinds_pools_and_in_place(cli, daemon, session):
    assert cli.json("put", "-", "p", "--kind", "pinned", input=b"12345678")["kind"] == "pinned"
    cli("put", "-", "p", "--in-place", input=b"87654321").expect()
    assert daemon.data("p", session).body == b"87654321" and daemon.meta("p", session)["kind"] == "pinned"
    assert cli.json("put", "-", "m", "--mirrored", input=b"12345678")["mirrored"] is True


# --- pipes ------------------------------------------------------------------------------------------------------------
def test_through_pipes_of_a_shell(cli, tmp_path):
    data = payload(SIZE, 7)
    (tmp_path / "in").write_bytes(data)
    line = 'cat in | "$0" put - big -q && "$0" get big | cmp - in && "$0" get big - | wc -c'
    out = subprocess.run(["sh", "-c", line, program()], env=cli.env, cwd=tmp_path, capture_output=True, text=True,
                         timeout=120)
    assert (out.returncode, out.stdout.strip(), out.stderr) == (0, str(SIZE), ""), out


def test_a_pipe_whose_length_only_its_content_tells(cli, daemon, session, tmp_path):
    array = np.arange(1 << 18, dtype="int32")
    for args, data in ((["put", "-", "n"], npy(array)), (["put", "-", "n", "--shape", len(array), "--dtype", "int32"],
                                                         array.tobytes())):
        p = cli.start(*args, stdin=subprocess.PIPE)
        for at in range(0, len(data), 100001):
            p.stdin.write(data[at:at + 100001])
            p.stdin.flush()
        p.stdin.close()
        assert p.wait(30) == DONE, p.stderr.read()
        p.stdout.close(), p.stderr.close()
        assert daemon.data("n", session).body == array.tobytes()


def test_raw_bytes_of_a_pipe_are_sent_as_they_come(cli, daemon, session, tmp_path):
    cli.env["TMPDIR"] = str(tmp_path / "not-there")
    cli("put", "-", "r", input=b"0123456789abcdefgh").expect()
    assert daemon.data("r", session).body == b"0123456789abcdefgh"
    cli("put", "-", "none", input=b"").expect()
    assert daemon.meta("none", session)["bytes"] == 0
    cli("put", "-", "r", "--offset", 3, input=b"xyz").expect()
    assert daemon.data("r", session).body == b"012xyz6789abcdefgh"
    cli("put", "-", "r", "--max-bytes", 4, input=b"0123").expect()
    assert daemon.data("r", session).body == b"0123"
    assert "permits 4" in cli("put", "-", "r", "--max-bytes", 4, input=b"01234").expect(FAILED).err
    assert daemon.data("r", session).body == b"0123"


def said_of(*args, data):
    """The first bytes of the request by which gpubuf sends what comes from a pipe."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        p = Cli(f"http://127.0.0.1:{server.getsockname()[1]}").start(*args, stdin=subprocess.PIPE)
        p.stdin.write(data)
        p.stdin.close()
        with server.accept()[0] as conn:
            head = b""
            while b"\r\n\r\n" not in head:
                head += conn.recv(65536)
        p.kill()
        p.wait(PATIENCE_S)
        p.stdout.close(), p.stderr.close()
        return head.partition(b"\r\n\r\n")[0].decode().lower()


def test_a_short_pipe_goes_with_its_length():
    """The daemon takes no more memory than that; of a long pipe it learns the length at the end."""
    array = npy(np.arange(6, dtype="int16"))
    for data in (b"", b"abc", array, bytes((1 << 20) - 1)):
        head = said_of("put", "-", "x", data=data)
        assert f"\r\ncontent-length: {len(data)}" in head and "chunked" not in head, head
    for args, size in (([], 1 << 20), (["--shape", 100], 100), (["--in-place"], 100)):
        head = said_of("put", "-", "x", *args, data=bytes(size))
        assert "transfer-encoding: chunked" in head and "content-length" not in head, head


def test_standard_input_that_is_a_file_is_read_from_where_it_stands(cli, daemon, session, tmp_path):
    (tmp_path / "f").write_bytes(b"0123456789")
    with open(tmp_path / "f", "rb") as f:
        os.lseek(f.fileno(), 4, os.SEEK_SET)
        p = cli.start("put", "-", "tail", stdin=f)
        out, err = p.communicate(timeout=90)
    assert p.returncode == DONE, err
    assert daemon.data("tail", session).body == b"456789"


def test_a_reader_that_leaves_ends_it_without_a_word(cli):
    cli("put", "-", "big", input=payload(SIZE, 1)).expect()
    p = cli.start("get", "big")
    p.stdout.read(10)
    p.stdout.close()
    err = p.stderr.read().decode()
    assert p.wait(30) == UNREAD and err == "", err
    p.stderr.close()


# --- parts ------------------------------------------------------------------------------------------------------------
def test_parts_over_several_connections(cli, daemon, session, tmp_path):
    data = payload(70 * (1 << 20) + 5, 3)
    (tmp_path / "big").write_bytes(data)
    assert cli.json("put", tmp_path / "big", "-c", 3, "--raw")["bytes"] == len(data)
    cli("get", "big", tmp_path / "back", "-c", 3).expect()
    assert (tmp_path / "back").read_bytes() == data
    assert daemon.open_uploads(session) == []


# --- cp with files ----------------------------------------------------------------------------------------------------
def test_cp_from_and_to_files(cli, array, tmp_path):
    (tmp_path / "x.npy").write_bytes(npy(array))
    cli("cp", "./x.npy", "x", cwd=tmp_path).expect()
    cli("cp", "x", "file:y.npy", cwd=tmp_path).expect()
    assert (tmp_path / "y.npy").read_bytes() == npy(array)
    cli("cp", tmp_path / "y.npy", "z").expect()
    assert cli("cp", "z", "-").expect().raw == array.tobytes()
    cli("cp", "-", "w", input=b"abc").expect()
    assert cli("cp", "w", "/dev/stdout").expect().raw.startswith(b"abc")


# --- after an interruption --------------------------------------------------------------------------------------------
def test_a_download_leaves_no_file_when_it_fails(cli, tmp_path):
    old = tmp_path / "old"
    old.write_bytes(b"old")
    for target in (old, tmp_path / "new"):
        cli("get", "nope", target).expect(NOT_FOUND)
    assert old.read_bytes() == b"old" and os.listdir(tmp_path) == ["old"]
    assert "cannot be written" in cli("get", "nope", tmp_path / "no" / "folder").expect(FAILED).err


def test_a_download_keeps_the_mode_of_the_file_it_replaces(cli, tmp_path):
    cli("put", "-", "x", input=b"new bytes here").expect()
    old = tmp_path / "old"
    old.write_bytes(b"old")
    old.chmod(0o640)
    cli("get", "x", old).expect()
    assert old.read_bytes() == b"new bytes here" and old.stat().st_mode & 0o777 == 0o640


def test_files_that_cannot_be_read(cli, tmp_path):
    assert "No such file" in cli("put", tmp_path / "nope").expect(FAILED).err
    assert "folder" in cli("put", tmp_path).expect(USAGE).err
    bad = tmp_path / "bad name.npy"
    bad.write_bytes(b"\x93NUMPY\x01\x00")
    assert "gpubuf: " in cli("put", bad).expect(FAILED).err
    assert cli.json("ls") == []


@pytest.mark.parametrize("how", ["stalled", "flowing"])
def test_an_interrupted_put_changes_nothing(cli, daemon, session, how):
    cli("put", "-", "x", input=b"the old bytes").expect()
    before = daemon.meta("x", session)
    daemon.settled()
    p = cli.start("put", "-", "x", "--dtype", "uint8", "--shape", 1 << 30, stdin=subprocess.PIPE)
    p.stdin.write(bytes(1 << 20))
    p.stdin.flush()
    until("the upload runs", lambda: daemon.stats()["running"]["uploads"] == 1)
    if how == "flowing":
        p.stdin.write(bytes(4 << 20))
        p.stdin.flush()
    said = interrupt(p)
    assert said.status == INTERRUPTED and "nothing is half-done" in said.err
    daemon.settled()
    assert daemon.meta("x", session) == before and daemon.data("x", session).body == b"the old bytes"
    assert daemon.open_uploads(session) == []


def test_an_interrupted_put_in_place_does_not_say_that_nothing_happened(cli, daemon, session):
    cli("put", "-", "x", input=bytes(1 << 20)).expect()
    daemon.settled()
    p = cli.start("put", "-", "x", "--in-place", "--shape", 1 << 20, stdin=subprocess.PIPE)
    p.stdin.write(bytes(1 << 19))
    p.stdin.flush()
    until("the upload runs", lambda: daemon.stats()["running"]["uploads"] == 1)
    said = interrupt(p)
    assert said.status == INTERRUPTED and said.err == "gpubuf: interrupted\n"
    daemon.settled()
    assert daemon.meta("x", session)["state"] == "partial"
    assert "whole again" in cli("get", "x").expect(FAILED).err


def test_an_interrupted_put_in_parts_leaves_no_open_upload(cli, daemon, session, tmp_path):
    with open(tmp_path / "big", "wb") as f:
        f.truncate(2 << 30)
    p = cli.start("put", tmp_path / "big", "x", "--raw", "-c", 2)
    until("parts are on their way", lambda: daemon.open_uploads(session))
    assert interrupt(p).status == INTERRUPTED
    assert daemon.open_uploads(session) == [] and cli.json("ls") == []


def test_an_interrupted_get_leaves_no_file(cli, daemon, session, tmp_path):
    cli("sessions").expect()
    daemon.ask("POST", f"/v1/sessions/{session}/buffers", {"name": "x", "bytes": 1 << 30}).expect(201)
    os.mkfifo(tmp_path / "slow")  # the pipe is not read: the download stalls
    daemon.settled()
    reader = os.open(tmp_path / "slow", os.O_RDONLY | os.O_NONBLOCK)
    p = cli.start("get", "x", tmp_path / "slow")
    until("the download runs", lambda: daemon.stats()["running"]["downloads"] == 1)
    said = interrupt(p)
    os.close(reader)
    assert said.status == INTERRUPTED
    for signals in ([signal.SIGINT], [signal.SIGINT] * 2, [signal.SIGKILL]):
        p = cli.start("get", "x", tmp_path / "file")
        until("it has begun", lambda: writes_in(p, tmp_path) or p.poll() is not None)
        for number in signals:
            p.send_signal(number)
        p.communicate(timeout=120)
        assert p.returncode in (DONE, INTERRUPTED, -signal.SIGKILL)
        assert sorted(os.listdir(tmp_path)) == (["file", "slow"] if p.returncode == DONE else ["slow"])
        (tmp_path / "file").unlink(missing_ok=True)


def writes_in(p, folder):
    """gpubuf has a file open there, which may have no name yet."""
    try:
        return any(os.readlink(f.path).startswith(str(folder)) for f in os.scandir(f"/proc/{p.pid}/fd"))
    except OSError:
        return False


def test_a_pipe_without_end(cli, daemon):
    """The length of a pipe is unknown before its end: the wait is limited by the option, and can be interrupted."""
    p = cli.start("put", "-", "x", stdin=subprocess.PIPE)
    p.stdin.write(bytes(1 << 20))
    p.stdin.flush()
    until("it is sent", lambda: daemon.stats()["running"]["uploads"] == 1)
    assert interrupt(p).status == INTERRUPTED
    p = cli.start("put", "-", "x", "-t", "1", stdin=subprocess.PIPE)
    p.wait(timeout=120)
    assert p.returncode == FAILED
    p.communicate(timeout=PATIENCE_S)
    assert cli.json("ls") == []


def test_a_link_is_followed(cli, tmp_path):
    cli("put", "-", "x", input=b"bytes").expect()
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    cli("get", "x", tmp_path / "link").expect()
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"bytes"
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]


def test_the_daemon_dies_in_the_middle(start, tmp_path):
    d = start()
    cli = Cli(d.url(""))
    p = cli.start("put", "-", "x", "--dtype", "uint8", "--shape", 1 << 30, stdin=subprocess.PIPE)
    p.stdin.write(bytes(1 << 20))
    p.stdin.flush()
    until("the upload runs", lambda: d.stats()["running"]["uploads"] == 1)
    d.kill()
    try:
        p.stdin.write(bytes(64 << 20))
    except BrokenPipeError:
        pass
    try:
        p.stdin.close()
    except BrokenPipeError:
        pass
    assert p.wait(30) == UNREACHABLE, p.stderr.read()
    p.stdout.close(), p.stderr.close()
