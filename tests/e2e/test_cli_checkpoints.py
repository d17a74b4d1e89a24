"""gpubuf checkpoints: list, add, show, verify, restore, rm."""
import os

import pytest

from gpubuf_cli import FAILED, NOT_FOUND, USAGE, Cli
from values import payload

pytestmark = pytest.mark.once  # the disk's own work

FILE = payload(300000, 1)  # a file of its own, that is linked
MORTAL = payload(1000, 2)  # in memory alone, so that it is written


@pytest.fixture
def cli(start, tmp_path):
    cli = Cli(start(state=str(tmp_path / "state")).url(""))
    cli("put", "-", "w.file", "--raw", "--durability", "sync", input=FILE).expect()
    cli("put", "-", "w.mortal", "--raw", input=MORTAL).expect()
    cli("put", "-", "other", "--raw", input=b"x").expect()
    return cli


def data(cli, name):
    return cli("get", name, "-").expect().raw


def damage(tmp_path, checkpoint):
    os.truncate(tmp_path / "state" / "data" / "checkpoints" / checkpoint / "00001.safetensors", 1000)


def test_a_checkpoint_is_added_and_listed(cli):
    assert cli.json("checkpoints") == []
    row, = cli("checkpoints", "add", "c1", "--prefix", "w.").expect().table()
    assert (row["NAME"], row["SESSION"], row["BUFFERS"], row["LINKED"], row["WRITTEN"], row["SKIPPED"]) == (
        "c1", "default", "2", "293.0 KiB", "1000 B", "0")
    cli("sessions", "add", "team").expect()
    made, = cli.json("-s", "team", "checkpoints", "add", "c2")
    assert (made["name"], made["session"], made["buffers"], made["skipped"]) == ("c2", "team", 0, [])
    rows = cli("checkpoints").expect().table()
    assert [(r["NAME"], r["SESSION"], r["STATE"], r["BUFFERS"], r["BYTES"]) for r in rows] == [
        ("c1", "default", "complete", "2", "293.9 KiB"), ("c2", "team", "complete", "0", "0 B")]
    assert all(r["AS OF (UTC)"] for r in rows)
    assert [c["name"] for c in cli.json("-s", "team", "checkpoints")] == ["c2"]
    assert "name: c1\nsession: default\nstate: complete\n" in cli("checkpoints", "show", "c1").expect().out
    shown = cli.json("checkpoints", "show", "c1", "c2")
    assert [[(e["buffer"], e["bytes"], e["generation"], e["file"]) for e in c.pop("entries")] for c in shown] == [
        [("w.file", len(FILE), 1, "00001.safetensors"), ("w.mortal", len(MORTAL), 1, "00002.safetensors")], []]
    assert shown == cli.json("checkpoints")
    lines = cli("checkpoints", "show", "c1").expect().out.splitlines()
    assert [line.split() for line in lines[-2:]] == [
        ["w.file", "293.0", "KiB", "1", "uint8", "sync", "00001.safetensors"],
        ["w.mortal", "1000", "B", "1", "uint8", "none", "00002.safetensors"]]


def test_buffers_come_back(cli):
    cli("checkpoints", "add", "c1", "--quiet").expect()
    cli("put", "-", "w.file", "--raw", "--durability", "sync", input=b"new").expect()
    assert '"w.file"' in cli("checkpoints", "restore", "c1").expect(FAILED).err
    assert data(cli, "w.file") == b"new"
    row, = cli("checkpoints", "restore", "c1", "--prefix", "old.", "--load", "eager").expect().table()
    assert (row["NAME"], row["SESSION"], row["BUFFERS"], row["REPLACED"], row["LOADED"], row["SKIPPED"]) == (
        "c1", "default", "3", "0", "3", "0")
    assert data(cli, "old.w.file") == FILE and data(cli, "old.w.mortal") == MORTAL
    assert cli.json("checkpoints", "restore", "c1", "--replace", "--load", "lazy")[0]["replaced"] == 3
    assert data(cli, "w.file") == FILE
    cli("sessions", "add", "team").expect()
    assert cli.json("checkpoints", "restore", "c1", "--into", "team")[0]["session"] == "team"
    assert data(cli, "team/w.file") == FILE


def test_some_of_the_buffers(cli):
    row, = cli("checkpoints", "add", "c1", "--only", "w.file,other").expect().table()
    assert row["BUFFERS"] == "2"
    cli("checkpoints", "restore", "c1", "--only", "w.mortal", "--prefix", "old.").expect(NOT_FOUND)
    row, = cli("checkpoints", "restore", "c1", "--only", "w.file", "--prefix", "old.").expect().table()
    assert row["BUFFERS"] == "1" and data(cli, "old.w.file") == FILE
    assert {b["name"] for b in cli.json("ls")} == {"w.file", "w.mortal", "other", "old.w.file"}
    for names in ("a,", ",a"):
        assert "--only is names" in cli("checkpoints", "restore", "c1", "--only", names).expect(USAGE).err
        assert "--only is names" in cli("checkpoints", "add", "c2", "--only", names).expect(USAGE).err


def test_a_lost_buffer_refuses_the_checkpoint_or_is_skipped(start, tmp_path):
    first = start(state=str(tmp_path / "state"))
    cli = Cli(first.url(""))
    cli("put", "-", "mortal", "--raw", input=MORTAL).expect()
    cli("put", "-", "kept", "--raw", "--durability", "sync", input=FILE).expect()
    first.kill()
    first.clean()
    cli = Cli(start(state=str(tmp_path / "state")).url(""))
    cli("checkpoints", "add", "c1").expect(FAILED)
    assert cli.json("checkpoints") == []
    out = cli("checkpoints", "add", "c1", "--lenient").expect().out
    assert out.endswith("\nSKIPPED  WHY\nmortal   content_lost\n"), out
    assert cli.json("checkpoints")[0]["buffers"] == 1


def test_damage_is_found(cli, tmp_path):
    cli("checkpoints", "add", "c1", "c2", "--prefix", "w.").expect()
    row, = cli("checkpoints", "verify", "c1").expect().table()
    assert (row["NAME"], row["MATCH"], row["BUFFERS"], row["DAMAGED"]) == ("c1", "yes", "2", "0")
    assert cli("--quiet", "checkpoints", "verify", "c1").expect().out == ""
    cli("rm", "w.file").expect()
    damage(tmp_path, "c2")
    said = cli("checkpoints", "verify", "c2").expect(FAILED)
    assert "c2 does not have the bytes that were put into it" in said.err
    assert (said.out.splitlines()[-2].split()[0] == "DAMAGED" and "content_damaged"
            in said.out.splitlines()[-1]), said.out
    answer, = cli("--json", "checkpoints", "verify", "c2").expect(FAILED).json()
    assert (answer["name"], answer["match"], answer["damaged_buffers"]) == ("c2", False, 1)
    cli("checkpoints", "restore", "c2", "--prefix", "x.").expect(FAILED)


def test_a_checkpoint_is_removed(cli):
    cli("checkpoints", "add", "c1", "c2").expect()
    assert cli("checkpoints", "rm", "c1").expect().out == "" and cli.json("checkpoints", "rm", "c2") == ["c2"]
    assert cli.json("checkpoints") == []
    for verb in ("show", "verify", "restore", "rm"):
        assert "c1" in cli("checkpoints", verb, "c1").expect(NOT_FOUND).err


def test_what_is_wrong_is_said(cli):
    for words in (("add",), ("send", "c1"), ("rm",)):
        assert "gpubuf checkpoints [add|show|verify|restore|get|put|rm CHECKPOINT...]" in cli("checkpoints",
                                                                                              *words).expect(USAGE).err
    assert "--load is lazy or eager" in cli("checkpoints", "restore", "c1", "--load", "now").expect(USAGE).err
    cli("checkpoints", "add", "c1").expect()
    assert "c1" in cli("checkpoints", "add", "c1").expect(FAILED).err
    cli("-s", "absent", "checkpoints", "add", "c2").expect(NOT_FOUND)


def test_completion_offers_checkpoints(cli):
    cli("checkpoints", "add", "c1").expect()
    assert cli("complete", "--", "checkpoints", "").expect().out.split() == ["add", "show", "verify", "restore", "get",
                                                                             "put", "rm"]
    assert cli("complete", "--", "checkpoints", "restore", "").expect().out == "c1\n"
    assert cli("complete", "--", "checkpoints", "restore", "c1", "--load", "").expect().out.split() == ["lazy", "eager"]
    assert cli("complete", "--", "checkpoints", "get", "").expect().out == "c1\n"
    for words in (("get", "c1"), ("put",)):
        assert cli("complete", "--", "checkpoints", *words, "").expect().out == ":file\n"
