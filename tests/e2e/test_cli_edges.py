"""Edge cases of gpubuf: endless sources, signals, patterns, inaccessible sockets, ambiguous names."""
import os
import shutil
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

from gpubuf_cli import DONE, FAILED, INTERRUPTED, NOT_FOUND, TERMINATED, UNREACHABLE, USAGE, Cli, interrupt, program
from harness import PATIENCE_S, for_everybody, until
from pyclient import SOURCE
from values import npy


# --- sources without an end -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype,wide", [("float32", 4), ("uint8", 1), ("bool", 1), ("bfloat16", 2),
                                        ("float8_e4m3fn", 1), ("complex128", 16)])
def test_a_device_gives_as_many_bytes_as_the_shape_takes(cli, daemon, session, dtype, wide):
    assert cli.json("put", "/dev/zero", "z", "--shape", "100,3", "--dtype", dtype)["bytes"] == 300 * wide
    assert daemon.data("z", session).body == bytes(300 * wide)


def test_a_device_on_standard_input_and_by_cp(cli):
    with open("/dev/zero", "rb") as zero:
        p = cli.start("put", "-", "z", "--shape", "70000", stdin=zero)
        _, err = p.communicate(timeout=PATIENCE_S)
    assert p.returncode == DONE, err
    cli("cp", "/dev/urandom", "r", "--shape", "70000").expect()
    assert {b["name"]: b["bytes"] for b in cli.json("ls")} == {"z": 70000, "r": 70000}


def test_a_device_without_a_shape_is_not_read_for_ever(cli, tmp_path):
    cli.env["TMPDIR"] = str(tmp_path)
    for args in (["/dev/zero", "z"], ["/dev/zero", "z", "--dtype", "float32"], ["/dev/zero", "z", "--raw"]):
        said = cli("put", *args).expect(FAILED)
        assert "--shape" in said.err and "head -c" in said.err and "64.0 MiB" in said.err, said.err
    assert os.listdir(tmp_path) == [] and cli.json("ls") == []
    cli("put", "/dev/null", "none").expect()  # a device that ends
    assert cli.json("info", "none")["bytes"] == 0


def test_a_shape_that_is_none_is_the_daemons_to_refuse(cli):
    for shape in ("3,x", "99999999999,99999999999", "-1"):
        said = cli("put", "/dev/zero", "z", "--shape", shape).expect(FAILED)
        assert "shape" in said.err, said.err
    assert "dtype" in cli("put", "/dev/zero", "z", "--shape", "3", "--dtype", "red").expect(FAILED).err


def test_a_pipe_that_gives_more_than_its_shape_is_refused(cli):
    """All bytes of a pipe are uploaded; a device is cut at the given length."""
    cli("put", "-", "x", "--shape", "10", input=bytes(1 << 20)).expect(FAILED)
    assert cli.json("ls") == []


# --- signals ----------------------------------------------------------------------------------------------------------
def test_a_fifo_without_a_writer_can_be_left(cli, tmp_path):
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)

    def opened(p):
        return fifo in [os.readlink(f"/proc/{p.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{p.pid}/fd")
                        if os.path.lexists(f"/proc/{p.pid}/fd/{fd}")]

    for args in (["put", fifo, "x"], ["ls", "--config", fifo]):
        p = cli.start(*args, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        if args[0] == "put":
            until("it is opened", lambda: opened(p))
        p.send_signal(signal.SIGINT)
        assert p.wait(PATIENCE_S) in (INTERRUPTED, -signal.SIGINT)


@pytest.mark.parametrize("number,status", [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED),
                                           (signal.SIGHUP, 128 + signal.SIGHUP)])
@pytest.mark.parametrize("what", ["pipe", "upload", "map", "hosts"])
def test_the_exit_status_names_the_signal(cli, daemon, session, tmp_path, number, status, what):
    cli.env["TMPDIR"] = str(tmp_path)
    daemon.put("m", b"12345678", session, "?kind=pinned").expect(201)
    daemon.settled()
    args = {"pipe": ["put", "-", "x"], "upload": ["put", "-", "x", "--shape", 1 << 30],
            "map": ["map", "m", "--hold"], "hosts": ["put", "-", "x", "--hosts", "127.0.0.1:9"]}[what]
    if what == "map":
        args += ["-u", f"unix://{daemon.unix}"]
    if what == "hosts":  # a server that accepts connections and never answers
        deaf = socket.create_server(("127.0.0.1", 0))
        args = ["ls", "--hosts", f"127.0.0.1:{deaf.getsockname()[1]}", "--timeout", 1000]
    p = cli.start(*args, stdin=subprocess.PIPE, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    if what in ("pipe", "upload"):
        p.stdin.write(bytes(1 << 20))
        p.stdin.flush()
        until("the upload runs", lambda: daemon.stats()["running"]["uploads"] == 1)
    elif what == "map":
        until("it is mapped", lambda: daemon.get("/v1/leases")["items"])
    else:
        deaf.settimeout(PATIENCE_S)
        deaf.accept()
    assert interrupt(p, number).status == status
    assert os.listdir(tmp_path) == []
    if what == "hosts":
        deaf.close()
    daemon.settled()
    assert [b["name"] for b in cli.json("ls")] == ["m"]
    until("nothing is mapped", lambda: not daemon.get("/v1/leases")["items"])


@pytest.mark.parametrize("ignored", [False, True])
def test_nohup_is_heeded(cli, daemon, session, ignored):
    daemon.put("m", b"12345678", session, "?kind=pinned").expect(201)
    way = signal.SIG_IGN if ignored else signal.SIG_DFL
    p = cli.start("map", "m", "--hold", "-u", f"unix://{daemon.unix}", stdin=subprocess.PIPE,
                  preexec_fn=lambda: signal.signal(signal.SIGHUP, way))
    until("it is mapped", lambda: daemon.get("/v1/leases")["items"])
    with open(f"/proc/{p.pid}/status") as f:
        blocked = next(int(line.split()[1], 16) for line in f if line.startswith("SigBlk:"))
    assert bool(blocked >> (signal.SIGHUP - 1) & 1) != ignored  # sigwait takes a blocked signal even if it is ignored
    p.communicate(timeout=PATIENCE_S)
    assert p.returncode == DONE
    until("nothing is mapped", lambda: not daemon.get("/v1/leases")["items"])


# --- patterns ---------------------------------------------------------------------------------------------------------
def test_rm_by_patterns(cli, daemon, session):
    for name in ("v1.a", "v1.b", "v2.a", "keep"):
        daemon.put(name, b"1", session).expect(201)
    assert sorted(cli.json("rm", "v1.*", "v?.[a-c]")) == ["v1.a", "v1.b", "v2.a"]
    assert [b["name"] for b in cli.json("ls")] == ["keep"]
    said = cli("rm", "v1.*", "keep").expect(NOT_FOUND)
    assert "v1.*" in said.err and "gpubuf ls" in said.err and cli.json("ls") == []
    daemon.put("other", b"1", session).expect(201)
    assert Cli(daemon.url("")).json("rm", f"{session}/o*") == [f"{session}/other"]


# --- names ------------------------------------------------------------------------------------------------------------
def test_cp_of_a_file_that_looks_like_a_buffer(cli, tmp_path):
    (tmp_path / "x.npy").write_bytes(npy(np.arange(3)))
    said = cli("cp", "x.npy", "zz", cwd=tmp_path).expect(NOT_FOUND)
    assert "./x.npy" in said.err and "file:x.npy" in said.err and "gpubuf put x.npy zz" in said.err
    said = cli("cp", "nothing", "zz", cwd=tmp_path).expect(NOT_FOUND)
    assert "./" in said.err and "file:" in said.err
    assert "./folder/x.npy" not in cli("cp", "./x.npy", "zz", cwd=tmp_path).expect().err


# --- other resources of the daemon ------------------------------------------------------------------------------------
def test_events_and_uploads(cli, daemon, session):
    cli("events", "add", "e1", "e2").expect()
    assert {r["NAME"] for r in cli("events").expect().table()} == {"e1", "e2"}
    assert cli.json("events", "rm", "e1") == ["e1"] and [e["name"] for e in cli.json("events")] == ["e2"]
    made = daemon.ask("POST", f"/v1/sessions/{session}/uploads",
                      {"buffer": "x", "bytes": 1000}).expect(201).json()["id"]
    assert cli("uploads").expect().table()[0]["ID"] == made and cli("complete", "--", "uploads", "rm",
                                                                    "").expect().out.split() == [made]
    assert cli.json("uploads", "rm", made) == [made]
    assert [u["id"] for u in cli.json("uploads") if u["state"] == "open"] == []
    cli("uploads", "rm", "none").expect(NOT_FOUND)
    for wrong in (["uploads", "add", "x"], ["uploads", "rm"], ["operations", "end"], ["events", "x"]):
        assert "rm" in cli(*wrong).expect(USAGE).err


def test_an_operation_is_cancelled(simulated, start):
    d = start(spec=simulated("bytes=64M"))
    own, buffers = Cli(d.url("")), "/v1/sessions/default/buffers"
    d.ask("POST", buffers, {"name": "a", "bytes": 60 << 20}).expect(201)
    waits = d.ask("POST", buffers, {"name": "b", "bytes": 50 << 20},
                  {"Prefer": "respond-async, wait=60"}).expect(202).json()["id"]
    assert "\"gpubuf wait OPERATION\" waits for one" in own("operations", waits).expect(USAGE).err
    assert own("complete", "--", "operations", "rm", "").expect().out.split() == [waits]
    assert own.json("operations", "rm", waits) == [waits]
    until("it is cancelled", lambda: d.get("/v1/operations/" + waits)["state"] == "cancelled")
    own("operations", "rm", waits).expect(FAILED)
    own("operations", "rm", "none").expect(NOT_FOUND)


def test_room_that_will_never_be_there_is_not_promised(simulated, start):
    own = Cli(start(spec=simulated("bytes=64M")).url(""))
    own("put", "/dev/zero", "a", "--shape", 60 << 20).expect()
    assert "gpubuf trim" in own("put", "/dev/zero", "b", "--shape", 50 << 20).expect(FAILED).err
    said = own("put", "/dev/zero", "b", "--shape", 65 << 20).expect(FAILED)
    assert "waiting does not help" in said.err and "gpubuf trim" not in said.err, said.err


def test_reserve_and_the_head_in_ls(cli, daemon, session):
    daemon.put("m", b"12345678", session, "?mirrored=true").expect(201)
    daemon.put("x", b"1", session).expect(201)
    assert {r["NAME"]: r["HEAD"] for r in cli("ls").expect().table()} == {"m": "host", "x": "-"}
    assert cli.json("reserve", "m", "4K")["sides"]["host"]["bytes"] == 4096
    assert cli.json("reserve", "m", "100", "--side", "device", "--stream", "default")["sides"]["device"]["bytes"] == 100
    assert cli.json("reserve", "m", "--elements", "2048", "--dtype", "float32")["sides"]["host"]["bytes"] == 8192
    assert "4x" in cli("reserve", "m", "4x").expect(USAGE).err
    for wrong in ([], ["8", "--elements", "2", "--dtype", "int8"], ["--elements", "2"], ["8", "--dtype", "int8"],
                  ["8", "--elements", "2"]):
        assert "--elements N and --dtype" in cli("reserve", "m", *wrong).expect(USAGE).err
    cli("reserve", "x", "1").expect(FAILED)
    assert daemon.data("m", session).body == b"12345678"


def test_release(cli, daemon, session):
    daemon.put("m", b"12345678", session, "?mirrored=true").expect(201)
    assert "sync" in cli("release", "m").expect(FAILED).err  # only the host side has the bytes
    cli("sync", "m", "--to", "device").expect()
    assert cli.json("release", "m")["head"] == "device"
    assert daemon.data("m", session).body == b"12345678"
    assert cli.json("release", "m", "--side", "all")["head"] == "uninitialized"


# --- mirrored buffers -------------------------------------------------------------------------------------------------
def test_stats_and_top_show_what_mirrored_buffers_hold(cli, start):
    d = start()
    own = Cli(d.url(""))
    own("put", "-", "m", "--mirrored", input=bytes(3 << 20)).expect()
    own("put", "-", "n", input=bytes(1 << 20)).expect()
    assert own.json("stats")["buffers"]["mirrored"] == {"count": 1, "bytes": 3 << 20}
    own("sync", "m", "--to", "device").expect()
    for command in ("stats", "top"):
        out = own(command).expect().out
        assert "1 of them mirrored with 3.0 MiB" in out and "leases: 0" in out, out
        row = next(line.split() for line in out.splitlines() if line.startswith("mirror "))
        assert row[:4] == ["mirror", "1", "3.0", "MiB"], row
    own("rm", "m").expect()
    assert own.json("stats")["buffers"]["mirrored"] == {"count": 0, "bytes": 0}
    assert own.json("stats")["transfers"]["mirror"] == {"copies": 1, "copies_avoided": 0, "bytes": 3 << 20}


# --- pools of sessions ------------------------------------------------------------------------------------------------
def test_stats_and_top_show_the_pools_of_sessions(start):
    d = start()
    own = Cli(d.url(""))

    def table(command):
        lines = [line.split() for line in own(command).expect().out.splitlines()]
        begin = next(i for i, line in enumerate(lines) if line[:1] == ["POOL"])
        return lines[begin + 1:lines.index([], begin)] if [] in lines[begin:] else lines[begin + 1:]

    for session in "ab":
        own("sessions", "add", session).expect()
        own("-s", session, "pools", "add", "p").expect()
    own("-s", "b", "put", "-", "x", "--pool", "p", input=bytes(1 << 20)).expect()
    for command in ("stats", "top"):
        assert [row[0] for row in table(command)] == ["default", "a/p", "b/p"]
        assert [row[-1] for row in table(command)] == ["0", "0", "1"], table(command)
    for i in range(12):
        own("-s", "a", "pools", "add", f"q{i}").expect()
    assert len(table("stats")) == 15
    top = table("top")  # leaves room for the sessions
    assert top[1][0] == "b/p" and len(top) == 12 and " ".join(top[-1]) == "4 more of sessions", top


# --- the socket -------------------------------------------------------------------------------------------------------
def test_the_socket_alone_is_enough(daemon, session):
    daemon.put("x", b"12345678", session, "?kind=pinned").expect(201)
    cli = Cli(session=session, GPUBUF_SOCKET=daemon.unix)
    assert cli.json("ls")[0]["name"] == "x" and cli.json("map", "x")["way"] == "memfd"
    assert "whole path" in Cli(GPUBUF_SOCKET="relative")("ls").err or "unix:///PATH" in Cli(GPUBUF_SOCKET="relative")(
        "ls").err


@pytest.fixture
def open_folder(tmp_path):
    """A folder that every user may search, with a program that every user may run."""
    for_everybody(program(), tmp_path)
    (tmp_path / "state").mkdir()
    return tmp_path


def as_nobody(folder, args, env):
    return subprocess.run([folder / "bin/gpubuf", *args], env=env, capture_output=True, text=True, timeout=PATIENCE_S,
                          cwd="/", user=65534, group=65534, extra_groups=[])


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which takes root")
def test_a_socket_that_lets_nobody_in_says_who_may(start, open_folder):
    d = start(state=str(open_folder / "state"))
    env = {**Cli(f"unix://{d.unix}").env, "HOME": "/nonexistent"}
    for args in (["ls"], ["map", "x"]):
        said = as_nobody(open_folder, args, env)
        assert said.returncode == UNREACHABLE, said
        assert "mode 0660" in said.stderr and "group 0" in said.stderr and "user 65534" in said.stderr, said.stderr
    python = "import sys; sys.path.insert(0, sys.argv[1]); import gpubuf; gpubuf.Client(socket=sys.argv[2]).list()"
    source = shutil.copytree(os.path.join(SOURCE, "gpubuf"), open_folder / "python" / "gpubuf")
    said = subprocess.run([sys.executable, "-B", "-c", python, source.parent, d.unix], capture_output=True, text=True,
                          timeout=PATIENCE_S, cwd="/", user=65534, group=65534, extra_groups=[],
                          env={**env, "PYTHONPATH": os.pathsep.join(sys.path)})
    if "numpy" not in said.stderr:  # in a place where that user can read the libraries
        assert ("gpubuf.errors.Unreachable" in said.stderr and "mode 0660" in said.stderr
                and "group 0" in said.stderr), said.stderr
    os.chmod(open_folder / "state", 0o700)
    said = as_nobody(open_folder, ["ls"], env)
    assert said.returncode == UNREACHABLE and "may not search the folder" in said.stderr, said.stderr


def test_an_address_without_a_scheme(daemon):
    """HOST:PORT is http; a text that is no address gets an error without a connection attempt."""
    where = "{}:{}".format(*daemon.tcp)
    assert Cli()("-u", where, "info", "--json").expect().json()["name"] == "gpubufd"
    assert Cli(where)("info", "--json").expect().json()["name"] == "gpubufd"
    for wrong in ("h:x", "ftp://" + where, "/run/gpubufd.sock", where + "/below"):
        said = Cli()("-u", wrong, "info").expect(USAGE)
        assert (f'"{wrong}" is no address of a daemon: give [http://]HOST:PORT, https://HOST:PORT or unix:///PATH'
                in said.err)
