"""gpubuf checkpoints get and put: the folder of a checkpoint out of a daemon and into another one, with damage and with
breaks."""
import fcntl
import filecmp
import json
import os
import signal
import threading

import pytest

from fleet import Relay
from gpubuf_cli import FAILED, INTERRUPTED, NOT_FOUND, USAGE, Cli, Terminal
from harness import PATIENCE_S, until
from values import payload

pytestmark = pytest.mark.once  # the disk's own work

MIB = 1 << 20
BUFFERS = {"big": payload(40 * MIB + 3, 1), "file": payload(70000, 2), "inline": payload(1000, 3),
           "mortal": payload(5000, 4)}
FIRST, SECOND = "00001.safetensors", "00002.safetensors"
FILES = sorted([FIRST, SECOND, "00003.safetensors", "00004.safetensors", "manifest.json",
                "model.safetensors.index.json"])


@pytest.fixture
def source(start, tmp_path):
    """A daemon with the checkpoint c1."""
    d = start("--disk-reserve", "0", state=str(tmp_path / "source"))
    cli = Cli(d.url(""))
    for name, data in BUFFERS.items():
        cli("put", "-", name, "--raw", *(("--durability", "sync") if name != "mortal" else ()), input=data).expect()
    cli("checkpoints", "add", "c1").expect()
    return d


@pytest.fixture
def target(start, tmp_path):
    return start("--disk-reserve", "0", state=str(tmp_path / "target"))


@pytest.fixture
def relay(request):
    made = []

    def to(daemon):
        made.append(Relay(daemon.tcp))
        return made[-1]

    yield to
    for one in made:
        one.close()


@pytest.fixture
def folder(source, tmp_path):
    """What get made of c1."""
    Cli(source.url(""))("checkpoints", "get", "c1", tmp_path / "out").expect()
    return str(tmp_path / "out")


def is_whole(folder, tmp_path):
    theirs = tmp_path / "source" / "data" / "checkpoints" / "c1"
    match, mismatch, errors = filecmp.cmpfiles(theirs, folder, FILES, shallow=False)
    return sorted(match) == FILES == sorted(os.listdir(folder)) and not mismatch and not errors


def has_all(cli, prefix=""):
    return all(cli("get", prefix + name, "-").expect().raw == data for name, data in BUFFERS.items())


def test_out_of_one_daemon_and_into_another(source, target, tmp_path):
    one, other, out = Cli(source.url("")), Cli(target.url("")), tmp_path / "out"
    said = one.json("checkpoints", "get", "c1", f"{out}/")
    assert (said["checkpoint"], said["dir"], said["files"], said["copied_files"],
            said["kept_files"]) == ("c1", str(out), 4, 4, 0)
    assert said["copied_bytes"] == said["bytes"] == sum(e["size"]
                                                        for e in json.loads((out / "manifest.json").read_text())[
                                                            "entries"])
    assert is_whole(out, tmp_path) and os.listdir(tmp_path / "source" / "data") and not os.path.exists(f"{out}.part")
    said = other.json("checkpoints", "put", f"{out}/")
    assert (said["checkpoint"], said["files"], said["copied_files"], said["kept_files"]) == ("c1", 4, 4, 0)
    assert other("checkpoints", "put", out, "--name", "c2").expect().out.endswith("copied 4, 40.1 MiB  kept 0\n")
    assert other("--quiet", "checkpoints", "put", out, "--name", "c3").expect().out == ""
    for name in ("c1", "c2", "c3"):
        other("checkpoints", "verify", name).expect()
        other("checkpoints", "restore", name, "--prefix", f"{name}.").expect()
        assert has_all(other, f"{name}.")


def test_what_is_there_is_not_copied_again(source, target, folder):
    """Nor is it an error, so that a command that is repeated until it succeeds comes to an end."""
    for daemon in (source, target):
        cli = Cli(daemon.url(""))
        cli("checkpoints", "put", folder).expect()
        for words in (("get", "c1", folder), ("put", folder)):
            said = cli.json("checkpoints", *words)
            assert (said["copied_files"], said["copied_bytes"], said["kept_files"]) == (0, 0, 4), words


def test_an_empty_folder_is_filled(source, tmp_path):
    os.mkdir(tmp_path / "out")
    Cli(source.url(""))("checkpoints", "get", "c1", ".", cwd=tmp_path / "out").expect()
    assert is_whole(tmp_path / "out", tmp_path)


def test_a_checkpoint_without_buffers(source, target, tmp_path):
    one = Cli(source.url(""))
    one("sessions", "add", "none").expect()
    one("-s", "none", "checkpoints", "add", "empty").expect()
    one("checkpoints", "get", "empty", tmp_path / "out").expect()
    Cli(target.url(""))("checkpoints", "put", tmp_path / "out").expect()
    assert Cli(target.url("")).json("checkpoints")[0]["state"] == "complete"


def change(path, at, data=b"?"):
    with open(path, "r+b") as f:
        f.seek(at)
        f.write(data)


DAMAGE = {
    "a changed byte": (lambda f: change(f"{f}/{FIRST}", 20 * MIB, b"???"),
                       f"{FIRST}, which has buffer big, is damaged"),
    "a missing file": (lambda f: os.unlink(f"{f}/{SECOND}"), f"lacks the file {SECOND}, which has buffer file"),
    "a file that is cut": (lambda f: os.truncate(f"{f}/{FIRST}", MIB), f"{FIRST}, which has buffer big, has 1048576 "
                           "bytes"),
    "a file that is too long": (lambda f: os.truncate(f"{f}/{SECOND}", MIB), f"{SECOND}, which has buffer file, has "
                                "1048576 bytes"),
    "a link": (lambda f: (os.unlink(f"{f}/{SECOND}"), os.symlink(FIRST, f"{f}/{SECOND}")), SECOND),
    "no manifest": (lambda f: os.unlink(f"{f}/manifest.json"), "has no manifest.json"),
    "half a manifest": (lambda f: os.truncate(f"{f}/manifest.json", 300), "manifest is damaged"),
    "another manifest": (lambda f: change(f"{f}/manifest.json", os.path.getsize(f"{f}/manifest.json") - 30, b"7"),
                         "manifest"),
    "no folder": (lambda f: os.rename(f, f + "?"), "No such file or directory"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_refused(target, folder, damage):
    cli = Cli(target.url(""))
    harm, words = DAMAGE[damage]
    harm(folder)
    for _ in range(2):  # what the first one left does not help the second
        err = cli("checkpoints", "put", folder).expect(FAILED).err
        assert err.startswith("gpubuf: ") and words in err, err
        assert [c["state"] for c in cli.json("checkpoints")] in ([], ["incomplete"])


def test_damage_at_the_daemon(source, tmp_path):
    change(tmp_path / "source" / "data" / "checkpoints" / "c1" / FIRST, 20 * MIB)
    err = Cli(source.url(""))("checkpoints", "get", "c1", tmp_path / "out").expect(FAILED).err
    assert FIRST in err and "CRC32C" in err and "gpubuf checkpoints verify c1" in err, err
    assert not os.path.exists(tmp_path / "out")


def test_damage_in_a_folder_that_is_there(source, folder):
    """It is said, and the folder stays as it is."""
    change(f"{folder}/{FIRST}", 20 * MIB)
    assert f"{FIRST}, which has buffer big, is damaged" in Cli(source.url(""))("checkpoints", "get", "c1",
                                                                               folder).expect(FAILED).err
    assert sorted(os.listdir(folder)) == FILES


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_get_that_ends_in_the_middle_continues(source, relay, tmp_path, number):
    out, part, via = tmp_path / "out", tmp_path / "out.part", relay(source)
    via.left = 20 * MIB
    p = Cli(via.url).start("checkpoints", "get", "c1", out)
    until("one piece is there", lambda: (part / FIRST).exists() and (part / FIRST).stat().st_size >= 16 * MIB)
    p.send_signal(number)
    p.communicate(timeout=PATIENCE_S)
    assert p.returncode == (INTERRUPTED if number == signal.SIGINT else -number)
    cli = Cli(source.url(""))
    assert not out.exists() and "has no manifest.json" in cli("checkpoints", "put", part).expect(FAILED).err
    said = cli.json("checkpoints", "get", "c1", out)
    assert said["copied_bytes"] <= said["bytes"] - 16 * MIB and is_whole(out, tmp_path) and not part.exists()


def test_a_get_continues_with_another_checkpoint(source, tmp_path):
    """What a broken run left is of other bytes, has more files, or longer ones: none of it gets into the folder."""
    part = tmp_path / "out.part"
    part.mkdir()
    (part / FIRST).write_bytes(payload(20 * MIB, 9))
    (part / SECOND).write_bytes(payload(MIB, 9))
    (part / "00005.safetensors").write_bytes(b"old")
    Cli(source.url(""))("checkpoints", "get", "c1", tmp_path / "out").expect()
    assert is_whole(tmp_path / "out", tmp_path)


def test_one_get_at_a_time(source, tmp_path):
    part = tmp_path / "out.part"
    part.mkdir()
    fd = os.open(part, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    assert "another gpubuf fills the folder" in Cli(source.url(""))("checkpoints", "get", "c1",
                                                                    tmp_path / "out").expect(FAILED).err
    os.close(fd)
    Cli(source.url(""))("checkpoints", "get", "c1", tmp_path / "out").expect()


def breaks_at(relay, file):
    """An event that is set as soon as that file is on its way, of which the daemon gets no more than the beginning."""
    reached = threading.Event()

    def watch(asked):
        if asked.startswith(b"PUT ") and file.encode() in asked[:200]:
            reached.set()
            return "stop"
        return None

    relay.watch = watch
    return reached


@pytest.mark.parametrize("restarted", [False, True])
def test_a_put_that_is_killed_continues(start, target, folder, relay, tmp_path, restarted):
    via, cli = relay(target), Cli(target.url(""))
    reached = breaks_at(via, SECOND)
    p = Cli(via.url).start("checkpoints", "put", folder)
    assert reached.wait(PATIENCE_S)
    p.kill()
    p.communicate(timeout=PATIENCE_S)
    assert cli.json("checkpoints")[0]["state"] == "incomplete"
    assert [b["file"] for b in cli.json("call", "GET", "/v1/checkpoints/c1")["brought"]] == [FIRST]
    assert "no manifest yet" in cli("checkpoints", "restore", "c1").expect(FAILED).err
    assert "not complete" in cli("checkpoints", "get", "c1", tmp_path / "no").expect(FAILED).err
    if restarted:
        target.kill()
        cli = Cli(start("--disk-reserve", "0", state=str(tmp_path / "target")).url(""))
    said = cli.json("checkpoints", "put", folder)
    assert said["kept_files"] == (0 if restarted else 1)
    cli("checkpoints", "restore", "c1").expect()
    assert has_all(cli)


def test_a_put_goes_on_when_a_connection_breaks(target, folder, relay):
    via = relay(target)
    reached = breaks_at(via, SECOND)
    p = Cli(via.url).start("checkpoints", "put", folder)
    assert reached.wait(PATIENCE_S)
    via.watch = None
    out, err = p.communicate(timeout=PATIENCE_S)
    assert p.returncode == 0, err
    Cli(target.url(""))("checkpoints", "verify", "c1").expect()


def test_a_put_replaces_what_another_checkpoint_left(target, folder):
    cli = Cli(target.url(""))
    assert target.ask("PUT", f"/v1/checkpoints/c1/files/{FIRST}", b"other bytes").status == 201
    assert cli.json("checkpoints", "put", folder)["copied_files"] == 4
    cli("checkpoints", "verify", "c1").expect()


def test_what_is_wrong_is_said(source, target, folder, tmp_path):
    cli = Cli(source.url(""))
    for words in (("get",), ("get", "c1"), ("get", "c1", "a", "b"), ("put",), ("put", "a", "b")):
        assert "gpubuf checkpoints" in cli("checkpoints", *words).expect(USAGE).err
    assert "--name" in cli("checkpoints", "get", "c1", "a", "--name", "x").expect(USAGE).err
    assert "has no name" in cli("checkpoints", "get", "c1", "").expect(USAGE).err
    assert '"c9"' in cli("checkpoints", "get", "c9", tmp_path / "no").expect(NOT_FOUND).err
    assert "No such file" in cli("checkpoints", "get", "c1", tmp_path / "no" / "no").expect(FAILED).err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_bytes(b"x")
    assert "name another folder" in cli("checkpoints", "get", "c1", tmp_path / "full").expect(FAILED).err
    assert os.listdir(tmp_path / "full") == ["x"]
    cli("checkpoints", "add", "c2").expect()
    assert "name another folder" in cli("checkpoints", "get", "c2", folder).expect(FAILED).err
    assert "--name" in cli("checkpoints", "put", folder, "--name", "c2").expect(FAILED).err
    assert "%h" in cli("--hosts", source.url(""), "checkpoints", "get", "c1", "x").out
    hosts = source.url("")
    cli("--hosts", hosts, "checkpoints", "get", "c1", tmp_path / "of-%h").expect()
    assert len([name for name in os.listdir(tmp_path) if name.startswith("of-")]) == 1


def test_progress_on_a_terminal(source, target, tmp_path):
    for daemon, words in ((source, ("get", "c1", tmp_path / "out")), (target, ("put", tmp_path / "out"))):
        terminal = Terminal(Cli(daemon.url("")), "checkpoints", *words)
        terminal.read(b"100 %")
        terminal.end(0)
