"""gpubuf's map, leases and doctor: memory that this process shares with the daemon."""
import glob
import os
import re
import socket
import subprocess

import pytest

from connected import line_of
from gpubuf_cli import DONE, FAILED, INTERRUPTED, NOT_FOUND, USAGE, Cli, interrupt
from harness import token, until

HOST_KINDS = ("pinned", "pageable")


@pytest.fixture
def cli(daemon, session):
    return Cli(daemon.url(""), session, GPUBUF_SOCKET=daemon.unix)


def test_map_says_which_way_it_went_and_why_not_others(cli, daemon, session):
    for kind in HOST_KINDS:
        daemon.put(kind, b"12345678", session, "?kind=" + kind).expect(201)
        told = cli.json("map", kind)
        assert (told["way"], told["mode"], told["bytes"], told["kind"]) == ("memfd", "read", 8, kind)
        assert all(p["reason"] for p in told["passed_over"])
        assert [p["way"] for p in told["passed_over"]] == ["vmm", "pool", "legacy"]
    assert "\nway: memfd\n" in cli("map", "pinned").expect().out
    assert cli.json("map", "pinned", "--ways", "memfd")["passed_over"] == []
    assert cli.json("leases") == []
    cli("map", "nope").expect(NOT_FOUND)


def test_a_refusal_says_of_each_way_why_it_was_not_taken(cli, backend):
    if not backend.startswith("host"):
        pytest.skip("a GPU gives memory of such a pool")
    cli("pools", "add", "p", "--exportable").expect()
    cli("create", "x", "--pool", "p", "--bytes", 4096).expect()
    said = cli("map", "x").expect(FAILED).err
    assert all(way in said for way in ("vmm", "pool", "legacy", "memfd: ")), said
    assert "libcuda" in said or "CUDA driver" in said or "host backend" in said, said
    only = cli("map", "x", "--ways", "pool").expect(FAILED).err
    assert "pools of the host backend" in only and "libcuda" not in only, only


def test_what_cannot_be_said_is_an_error(cli, daemon, session):
    daemon.put("x", b"12345678", session, "?kind=pageable").expect(201)
    for more in ((), ("--hold",)):
        with open("/dev/full", "wb") as full:
            p = cli.start("map", "x", *more, stdout=full, stdin=subprocess.PIPE)
            assert b"standard output" in p.stderr.read() and p.wait(30) == FAILED
            p.stdin.close()
            p.stderr.close()
    assert cli.json("leases") == []


def test_a_mapping_is_held_listed_and_given_back(cli, daemon, session):
    daemon.put("x", b"12345678", session, "?kind=pageable").expect(201)
    p = cli.start("map", "x", "--mode", "write", "--hold", stdin=subprocess.PIPE)
    assert b"lease: " in line_of(p.stdout)
    held = cli.json("leases")
    assert [(h["buffer"], h["mode"], h["pid"]) for h in held] == [("x", "write", p.pid)]
    assert cli("leases").expect().table()[0]["BUFFER"] == "x" and cli.json("ls")[0]["leases"] == 1
    said = cli("rm", "x").expect(FAILED)
    assert f"process {p.pid}" in said.err
    assert "goes when" in cli("rm", "x", "--when-unmapped").expect().out
    assert cli.json("ls") == []
    out, err = p.communicate(timeout=90)
    assert p.returncode == DONE, err
    until("the lease has ended", lambda: cli.json("leases") == [])


def test_an_interrupt_ends_the_lease(cli, daemon, session):
    daemon.put("x", b"12345678", session, "?kind=pinned").expect(201)
    p = cli.start("map", "x", "--hold", stdin=subprocess.PIPE)
    line_of(p.stdout)
    assert interrupt(p).status == INTERRUPTED
    until("the lease has ended", lambda: cli.json("leases") == [])
    cli("rm", "x").expect()


def test_a_lease_of_another_is_ended(cli, daemon, session):
    daemon.put("x", b"12345678", session, "?kind=pinned").expect(201)
    p = cli.start("map", "x", "--hold", stdin=subprocess.PIPE)
    line_of(p.stdout)
    lease = cli.json("leases")[0]["lease"]
    assert lease in cli("complete", "--", "leases", "rm", "").expect().out.split()
    assert cli.json("leases", "rm", lease) == [lease]
    cli("rm", "x").expect()
    cli("leases", "rm", lease).expect(NOT_FOUND)
    cli("leases", "end", lease).expect(USAGE)
    p.communicate(timeout=90)
    assert p.returncode == NOT_FOUND, "it is not told that its lease had ended"


def test_an_export_is_given_out_and_taken_back(start, simulated):
    d = start(spec=simulated("legacy=fake"))
    cli = Cli("unix://" + d.unix)
    d.put("x", b"12345678", query="?kind=ipc").expect(201)
    d.put("y", b"12345678", query="?kind=pageable").expect(201)
    given = cli.json("export", "x", "--ttl", 3600, "--mode", "write")
    assert len(given["raw_handle"]["b64"]) == 88 and (given["device_id"], given["byte_size"],
                                                      given["mode"]) == (0, 8, "write")
    assert "raw_handle.b64: " in cli("export", "x").expect().out
    row = cli("leases").expect().table()[0]
    assert (row["WAY"], row["PID"]) == ("legacy", "0") and row["EXPIRES (UTC)"]
    both = [lease["lease"] for lease in cli.json("leases")]
    assert cli.json("leases", "rm", *both) == both and cli.json("leases") == []
    assert "map" in cli("export", "y").expect(FAILED).err
    cli("export", "none").expect(NOT_FOUND)
    cli("export", "x", "--mode", "both").expect(USAGE)
    assert "ttl_s" in cli("export", "x", "--ttl", 0).expect(FAILED).err
    assert "--ttl" in cli("export", "--help").expect().out


def test_map_notices_that_the_daemon_is_gone(start):
    d = start()
    d.put("x", b"12345678", query="?kind=pageable").expect(201)
    p = Cli(f"unix://{d.unix}").start("map", "x", "--hold", stdin=subprocess.PIPE)
    line_of(p.stdout)
    d.kill()
    assert p.wait(30) == FAILED
    assert b"the daemon has gone" in p.stderr.read()
    p.stdin.close(), p.stdout.close(), p.stderr.close()


def test_sealed_is_shown_and_refuses_writes(cli, daemon, session):
    daemon.put("x", b"12345678", session).expect(201)
    assert cli.json("seal", "x")["sealed"] is True
    assert cli("ls").expect().table()[0]["SEALED"] == "yes"
    cli("fill", "x", "1").expect(FAILED)
    cli("map", "x", "--mode", "write").expect(FAILED)
    cli("rm", "x").expect()


# --- doctor -----------------------------------------------------------------------------------------------------------
def checks(cli, *args, status=None):
    said = cli("--json", "doctor", *args)
    found = {c["check"]: c for c in said.json()}
    assert said.status == (FAILED if any(c["ok"] is False for c in found.values()) else DONE), found
    assert all((c["remedy"] is not None) == (c["ok"] is False) and c["detail"] for c in found.values()), found
    return found


def test_doctor_finds_sharing_in_order(cli, backend):
    found = checks(cli)
    for check in ("daemon", "access", "version", "ready", "UNIX socket", "socket's permissions", "socket's daemon",
                  "right to map", "memfd"):
        assert found[check]["ok"], found[check]
    if backend.startswith("host") and not sees_gpu():  # on a machine without a GPU, checks of GPUs are no failures
        for check in ("backend", "device 0 vmm_export_fd", "device 0 health", "kernel driver", "device files",
                      "libcuda"):
            assert found[check]["ok"] is None, found[check]
        assert "host" in found["backend"]["detail"] and cli("doctor").expect(DONE).out.count("\n--  ") >= 5
    assert cli.json("ls") == []


def sees_gpu():
    signs = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvhost-gpu")
    return any(map(os.path.exists, signs)) or any(
        open(d + "/vendor").read().strip() == "0x10de" and open(d + "/class").read().startswith("0x03")
        for d in glob.glob("/sys/bus/pci/devices/*"))


def test_doctor_for_people_gives_a_line_for_each_and_a_remedy_for_a_no(cli):
    text = cli("doctor").out
    assert re.search(r"^ok  daemon +http://", text, re.M)
    lines = text.splitlines()
    for line, after in zip(lines, lines[1:] + [""]):
        assert line.startswith(("ok  ", "--  ", "no  ", "    "))
        assert not line.startswith("no  ") or "-> " in after, line


def test_doctor_when_nobody_listens():
    found = checks(Cli("http://127.0.0.1:1", GPUBUF_SOCKET="/nonexistent/s"))
    assert not found["daemon"]["ok"] and "127.0.0.1:1" in found["daemon"]["detail"]
    assert not found["UNIX socket"]["ok"] and "/nonexistent/s" in found["UNIX socket"]["detail"]
    assert "backend" not in found and "libcuda" in found


def test_doctor_when_something_else_listens(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as s:
        said = Cli(f"http://127.0.0.1:{s.getsockname()[1]}")("doctor", "--timeout", "1")
        assert said.status == FAILED and "no  daemon" in said.out
    (tmp_path / "s").write_bytes(b"")
    assert "is no socket" in checks(Cli("http://127.0.0.1:1",
                                        GPUBUF_SOCKET=str(tmp_path / "s")))["UNIX socket"]["detail"]


def test_doctor_sees_that_a_socket_is_of_another_daemon(daemon, start):
    other = start()
    found = checks(Cli(other.url(""), GPUBUF_SOCKET=daemon.unix))
    assert (found["daemon"]["ok"] and not found["socket's daemon"]["ok"] and "another daemon"
            in found["socket's daemon"]["detail"])


def test_doctor_sees_a_token_that_is_missing_and_one_that_may_not_map(start, tmp_path):
    secret = token(tmp_path, "add", "w", "--scope", "write")
    d = start(state=str(tmp_path))
    found = checks(Cli(d.url(""), GPUBUF_SOCKET=d.unix))
    assert found["daemon"]["ok"] and not found["access"]["ok"] and "--token-file" in found["access"]["remedy"]
    assert "--token-file" in found["socket's daemon"]["remedy"]
    found = checks(Cli(d.url(""), GPUBUF_SOCKET=d.unix, GPUBUF_TOKEN=secret))
    assert (found["access"]["ok"] and not found["right to map"]["ok"]
            and "--scope map" in found["right to map"]["remedy"])
