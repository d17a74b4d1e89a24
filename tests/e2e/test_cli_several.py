"""gpubuf with several buffers, sessions and files at once: patterns over sessions, names alone, and what is there
already."""
import uuid

import numpy as np
import pytest

from gpubuf_cli import DONE, FAILED, NOT_FOUND, USAGE, Terminal
from values import npy


@pytest.fixture
def sessions(daemon):
    """Two sessions of one prefix, with three buffers."""
    prefix = "exp" + uuid.uuid4().hex[:8]
    names = [f"{prefix}-1", f"{prefix}-2"]
    for name in names:
        daemon.ask("POST", "/v1/sessions", {"name": name}).expect(201)
    for name, buffer in ((names[0], "tmp1"), (names[0], "keep"), (names[1], "tmp2")):
        daemon.put(buffer, b"1234", name).expect(201)
    yield prefix
    for name in names:
        daemon.ask("DELETE", f"/v1/sessions/{name}").expect(204)


# --- ls ---------------------------------------------------------------------------------------------------------------
def test_ls_over_sessions(cli, sessions):
    rows = cli("ls", f"{sessions}-*/tmp*").expect().table()
    assert [(r["SESSION"], r["NAME"]) for r in rows] == [(f"{sessions}-1", "tmp1"), (f"{sessions}-2", "tmp2")]
    assert [b["name"] for b in cli.json("ls", f"{sessions}-1/")] == ["tmp1", "keep"]
    assert len(cli.json("ls", f"{sessions}-?/")) == 3 and cli.json("ls", f"{sessions}-9*/*") == []
    cli("ls", f"{sessions}-9/").expect(NOT_FOUND)
    assert "SESSION" not in cli("ls", "*").expect().out


def test_ls_of_names_alone(cli, daemon, session, sessions):
    daemon.put("b", b"1", session).expect(201)
    daemon.put("a", b"1", session).expect(201)
    assert cli("ls", "-q").expect().out == "b\na\n"
    assert cli("ls", "-q", "a*").expect().out == "a\n" and cli("ls", "-q", "z*").expect(NOT_FOUND).out == ""
    assert cli("ls", "--quiet", f"{sessions}-*/tmp*").expect().out == f"{sessions}-1/tmp1\n{sessions}-2/tmp2\n"
    assert [b["name"] for b in cli.json("ls", "-q")] == ["b", "a"]


# --- rm ---------------------------------------------------------------------------------------------------------------
def test_rm_over_sessions_is_asked_for(cli, sessions):
    pattern = f"{sessions}-*/tmp*"
    said = cli("rm", pattern).expect(USAGE)
    assert "matches 2 buffers" in said.err and "--yes" in said.err
    assert len(cli.json("ls", f"{sessions}-*/")) == 3
    for typed, status, left in ((b"n\n", FAILED, 3), (b"\n", FAILED, 3), (b"y\n", DONE, 1)):
        t = Terminal(cli, "rm", pattern)
        t.read(b"delete 2 buffers")
        t.type(typed)
        t.end(status)
        assert len(cli.json("ls", f"{sessions}-*/")) == left
    said = cli("rm", pattern).expect(NOT_FOUND)
    assert "--yes" not in said.err
    assert cli.json("rm", "--yes", f"{sessions}-*/*") == [f"{sessions}-1/keep"]


def test_store_takes_patterns_of_sessions_too(cli, sessions):
    assert [b["name"] for b in cli.json("set", f"{sessions}-*/tmp*", "--labels", "k=v")] == ["tmp1", "tmp2"]


# --- put --------------------------------------------------------------------------------------------------------------
def test_several_files_have_names_of_their_own(cli, tmp_path, sessions):
    for name in "abc":
        (tmp_path / f"{name}.bin").write_bytes(name.encode() * 3)
    assert [b["name"] for b in cli.json("put", "a.bin", "b.bin", "c.bin", cwd=tmp_path)] == ["a", "b", "c"]
    assert cli("get", "b").expect().raw == b"bbb"
    assert [b["name"] for b in cli.json("put", "a.bin", "./b.bin", cwd=tmp_path)] == ["a", "b"]
    assert [b["session"] for b in cli.json("put", "a.bin", "b.bin", f"{sessions}-1/",
                                           cwd=tmp_path)] == [f"{sessions}-1"] * 2
    assert cli.json("put", "a.bin", f"{sessions}-2/", cwd=tmp_path)[0]["name"] == "a"
    said = cli("put", "a.bin", "gone.bin", "c.bin", cwd=tmp_path).expect(FAILED)
    assert "gone.bin cannot be read" in said.err and "nothing was uploaded" in said.err and not said.out
    (tmp_path / "folder").mkdir()
    said = cli("put", "a.bin", "./folder", "c.bin", cwd=tmp_path).expect(USAGE)
    assert "folder is a folder" in said.err and said.out.startswith("a ") and "\nc " in said.out
    assert "standard input has no name" in cli("put", "a.bin", "-", "c.bin", cwd=tmp_path).expect(USAGE).err


def test_the_second_of_two_files_is_not_taken_for_a_name(cli, tmp_path):
    for name in ("a.npy", "b.npy", "a"):
        (tmp_path / name).write_bytes(npy(np.arange(3)))
    said = cli("put", "a.npy", "b.npy", cwd=tmp_path).expect(USAGE)
    assert "b.npy is a file here" in said.err and cli.json("ls") == []
    for name in ("a", "c.npy"):
        assert cli.json("put", "a.npy", name, cwd=tmp_path)["name"] == name


def test_labels_of_an_upload(cli, daemon, session, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"12")
    assert cli.json("put", "a.bin", "--labels", "k=v,l=", cwd=tmp_path)["labels"] == {"k": "v", "l": ""}
    assert cli.json("put", "a.bin", "b", "--label", "k=w", cwd=tmp_path)["labels"] == {"k": "w"}
    cli("put", "a.bin", "c", "--labels", "=v", cwd=tmp_path).expect(USAGE)
    assert [b["name"] for b in cli.json("ls")] == ["a", "b"]
    (tmp_path / "t.safetensors").write_bytes(b"")
    assert "--labels is of one buffer" in cli("put", "t.safetensors", "--labels", "k=v", cwd=tmp_path).expect(USAGE).err


# --- what is there already --------------------------------------------------------------------------------------------
def test_exist_ok(cli, daemon, session):
    assert cli.json("create", "x", "--bytes", 8, "--exist-ok")["generation"] == cli.json("create", "x", "--bytes", 9,
                                                                                         "--exist-ok")["generation"]
    assert daemon.meta("x", session)["bytes"] == 8
    cli("create", "x", "--bytes", 8).expect(FAILED)
    for noun in ("pools", "streams", "events"):
        for _ in range(2):
            assert "n" in cli(noun, "add", "n", "--exist-ok").expect().out
        cli(noun, "add", "n").expect(FAILED)
    cli("sessions", "add", session, "--exist-ok").expect()
    cli("sessions", "add", session).expect(FAILED)
    cli("create", "y", "--bytes", "8", "--kind", "nonsense", "--exist-ok").expect(FAILED)


# --- archives ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name,front,what", [
    ("a.npz", b"PK\x03\x04", "a .npz archive"), ("m.pt", b"PK\x03\x04", "a zip archive"),
    ("m.pkl", b"\x80\x04", "a pickle"), ("m.bin", b"\x80\x09", None), ("x.raw", b"\x80\x04", None),
    ("s.pkl", b"\x80", None)])
def test_archives_are_stored_as_bytes_with_a_warning(cli, tmp_path, name, front, what):
    data = front + bytes(60) if front != b"\x80" else front
    (tmp_path / name).write_bytes(data)
    said = cli("put", name, "x", "--json", cwd=tmp_path).expect()
    assert said.json()["dtype"] == "uint8" and cli("get", "x").expect().raw == data
    assert (f"{name} is {what}" in said.err and "safetensors or .npy" in said.err) if what else said.err == ""
    for option in ("--raw", "--quiet"):
        assert cli("put", name, "x", option, cwd=tmp_path).expect().err == ""


def test_a_warning_of_the_daemon_is_printed(cli, tmp_path):
    (tmp_path / "x.gz").write_bytes(b"\x1f\x8b\x08\x00" + bytes(60))
    said = cli("put", "x.gz", "x", "--json", cwd=tmp_path).expect()
    assert said.json()["bytes"] == 64 and "gpubuf: warning: x: the body begins as a gzip file" in said.err
    for option in ("--raw", "--quiet"):
        assert cli("put", "x.gz", "x", option, cwd=tmp_path).expect().err == ""


@pytest.mark.parametrize("path", ("/proc/self/maps", "/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled"))
def test_files_are_read_to_their_end(cli, path):
    """The sizes of these are 0, or more than there is."""
    cli("put", path, "x").expect()
    got = cli("get", "x").expect().raw
    assert got if path == "/proc/self/maps" else got == open(path, "rb").read()
