"""gpubuf: durable buffers. Their bytes outlive the daemon; store, load and storage; and what to do about a disk's
errors."""
import glob
import os

import pytest

from gpubuf_cli import DONE, FAILED, NOT_FOUND, UNREACHABLE, USAGE, Cli
from harness import token, until
from values import payload

FILE = payload(300000, 1)  # a file of its own
SMALL = payload(1000, 2)   # in the database


def files(state):
    return glob.glob(os.path.join(str(state), "data", "*", "*.safetensors"))


def rows(cli):
    return {row["NAME"]: row for row in cli("ls").expect().table()}


class Lives:
    """A daemon that is started again on the same state."""

    def __init__(self, start, state):
        self.start, self.state, self.daemon = start, str(state), None

    def __call__(self, *options):
        if self.daemon is not None:
            self.daemon.kill()
            self.daemon.clean()
        self.daemon = self.start(*options, state=self.state)
        return Cli(self.daemon.url(""))


@pytest.fixture
def live(start, tmp_path):
    return Lives(start, tmp_path / "state")


# --- damage -----------------------------------------------------------------------------------------------------------
def spoil(state, text):
    """Another byte in the file that has the text in its header."""
    (path,) = [path for path in files(state) if text in open(path, "rb").read(4096)]
    with open(path, "r+b") as f:
        f.seek(-1, os.SEEK_END)
        byte = f.read(1)
        f.seek(-1, os.SEEK_END)
        f.write(bytes([byte[0] ^ 1]))


def test_a_scrub_names_what_is_damaged(live):
    cli = live()
    for name in ("a", "b"):
        cli("put", "-", name, "--raw", "--durability", "sync", input=FILE).expect()
    assert "DAMAGED" not in cli("ls").expect().out
    spoil(live.state, b'"a"')
    said = cli("storage", "scrub", "--rate", "1G").expect().out  # memory has the bytes
    assert "damaged: 1\nhealed: 1\n" in said and said.endswith("SESSION  DAMAGED  WHY              HEALED\ndefault  a  "
                                                               "      content_damaged  yes\n"), said
    cli = live()
    spoil(live.state, b'"b"')
    said = cli("storage", "scrub", "--rate", "1G").expect(FAILED)
    assert ("default  b        content_damaged" in said.out and "1 damaged files could not be written again from memory"
            in said.err)
    assert [row["buffer"] for row in cli("--json", "storage", "scrub").expect(FAILED).json()["found"]] == ["b"]
    assert {name: row["DAMAGED"] for name, row in rows(cli).items()} == {"a": "-", "b": "yes"}
    assert "damaged: true\n" in cli("info", "b").expect().out
    assert "from 65536 to" in cli("storage", "scrub", "--rate", "1").expect(FAILED).err
    cli("storage", "--rate", "x").expect(USAGE)


def test_what_to_do_about_lost_bytes(live):
    cli = live()
    cli("put", "-", "kept", "--raw", "--durability", "sync", input=FILE).expect()
    cli("put", "-", "mortal", "--raw", input=SMALL).expect()
    cli = live()
    said = cli("get", "mortal", "-").expect(FAILED).err
    assert "gpubufd fsck" in said and "bytes end with the daemon's process" in said
    assert "--lenient" in cli("checkpoints", "add", "c").expect(FAILED).err
    cli("checkpoints", "add", "c", "--lenient").expect()


def test_which_of_several(live):
    """An error names the buffer that it is of, and set takes several."""
    cli = live()
    for name in ("n1", "n2", "small"):
        cli("put", "-", name, "--raw", input=SMALL if name == "small" else FILE).expect()
    said = cli("evict", "n*", "s*").expect(FAILED)
    assert said.err.startswith("gpubuf: small: buffers of at most 65536 bytes"), said.err
    assert {row["NAME"]: row["STATE"] for row in cli("ls").expect().table()} == {"n1": "stored", "n2": "stored",
                                                                                 "small": "ready"}
    assert [b["spill"] for b in cli.json("set", "n*", "--spill", "disk")] == ["disk", "disk"]
    assert [b["name"] for b in cli.json("set", "n1", "small", "--resident")] == ["n1", "small"]
    assert cli.json("set", "small", "--labels", "a=b")["labels"] == {"a": "b"}
    cli("set", "no*", "--resident").expect(NOT_FOUND)
    cli("sessions", "set", "default", "--max-bytes", "1K").expect()
    said = cli("put", "-", "more", "--raw", input=FILE).expect(FAILED).err
    assert said.startswith("gpubuf: more: ") and "gpubuf sessions show" in said


# --- put, create, set -------------------------------------------------------------------------------------------------
def test_a_durable_upload_outlives_the_daemon(live, tmp_path):
    cli = live()
    said = cli("put", "-", "big", "--raw", "--durability", "sync", input=FILE).expect()
    assert said.out == "big  293.0 KiB  uint8 300000  generation 1  durability sync\n"
    cli("put", "-", "small", "--raw", "--durability", "sync", input=SMALL).expect()
    cli("create", "zeros", "--bytes", 100, "--durability", "sync").expect()
    cli("put", "-", "mortal", "--raw", input=SMALL).expect()
    cli = live()
    found = rows(cli)
    assert {n: (r["STATE"], r["DURABILITY"], r["STORED"]) for n, r in found.items()} == {
        "big": ("stored", "sync", "1"), "small": ("stored", "sync", "1"), "zeros": ("stored", "sync", "1"),
        "mortal": ("lost", "none", "-")}
    assert "durability: sync\nstored_generation: 1\n" in cli("info", "big").expect().out
    assert cli("get", "big", "-").expect().raw == FILE and cli("get", "small", "-").expect().raw == SMALL
    assert cli("get", "zeros", "-").expect().raw == bytes(100)
    err = cli("get", "mortal", "-").expect(FAILED).err
    assert "A durable buffer (--durability) is lost if its file is missing" in err


def test_a_part_of_a_stored_buffer_is_written_at_the_first_try(live):
    cli = live()
    cli("put", "-", "x", "--raw", "--durability", "sync", input=FILE).expect()
    cli = live()
    source = os.path.join(live.state, "part")
    with open(source, "wb") as f:
        f.write(b"abc")
    said = cli("put", source, "x", "--offset", 7).expect()
    assert said.out.endswith("generation 2  durability sync\n"), said.out
    assert live()("get", "x", "-").expect().raw == FILE[:7] + b"abc" + FILE[10:]


def test_parts_over_several_connections_are_durable(live, tmp_path):
    cli = live()
    (tmp_path / "big").write_bytes(payload(33 << 20, 3))
    cli("put", tmp_path / "big", "x", "--raw", "--durability", "sync", "-c", 2).expect()
    cli = live()
    cli("get", "x", tmp_path / "back", "-c", 2).expect()
    assert (tmp_path / "back").read_bytes() == (tmp_path / "big").read_bytes()


def test_durability_is_changed(live):
    cli = live("--durable-lag", "3600")
    cli("put", "-", "x", "--raw", input=FILE).expect()
    assert "DURABILITY" not in cli("ls").expect().out
    assert cli("set", "x", "--durability", "behind").expect().out.endswith("durability behind, not on disk yet\n")
    assert rows(cli)["x"]["STORED"] == "-" and not files(live.state)
    assert cli("set", "x", "--durability", "sync").expect().out.endswith("durability sync\n")
    assert rows(cli)["x"]["STORED"] == "1" and len(files(live.state)) == 1
    cli("set", "x", "--durability", "none").expect()
    until("the file is gone", lambda: not files(live.state))
    assert "durability" in cli("set", "x", "--durability", "maybe").expect(FAILED).err
    assert "--durability" in cli("set", "x").expect(USAGE).err


def test_what_is_older_on_disk_is_said(live):
    cli = live("--durable-lag", "3600")
    cli("put", "-", "x", "--raw", "--durability", "behind", input=FILE).expect()
    cli("store", "x").expect()
    said = cli("put", "-", "x", "--raw", input=SMALL).expect()
    assert said.out.endswith("generation 2  durability behind, generation 1 on disk\n"), said.out


def test_sessions_give_a_durability(live, tmp_path):
    cli = live()
    assert "DURABILITY" not in cli("sessions").expect().out
    made = cli("sessions", "add", "a", "--durability", "sync").expect().table()
    assert made[0]["DURABILITY"] == "sync"
    assert cli.json("sessions", "set", "a", "--durability", "behind")[0]["durability"] == "behind"
    assert {r["NAME"]: r["DURABILITY"] for r in cli("sessions").expect().table()} == {"default": "none", "a": "behind"}
    assert "POOL" not in cli("sessions").expect().out
    cli("pools", "add", "p", "-s", "a").expect()
    cli("sessions", "set", "a", "--pool", "p", "--durability", "sync").expect()
    assert ({r["NAME"]: (r["DURABILITY"], r["POOL"]) for r in cli("sessions").expect().table()}
            == {"default": ("none", "default"), "a": ("sync", "p")})
    assert cli.json("create", "a/x", "--bytes", 10)["durability"] == "sync"
    cli("put", "-", "a/y", "--raw", input=SMALL).expect()
    assert cli.json("info", "a/y")["stored_generation"] == 1
    (tmp_path / "t.safetensors").write_bytes(b"")
    err = cli("put", tmp_path / "t.safetensors", "--durability", "sync").expect(USAGE).err
    assert 'gpubuf sessions set default --durability sync' in err


# --- what may leave memory --------------------------------------------------------------------------------------------
def test_spill_and_resident(live, tmp_path):
    cli = live()
    said = cli("put", "-", "x", "--raw", "--spill", "disk", input=FILE).expect()
    assert said.out == "x  293.0 KiB  uint8 300000  generation 1  spill disk\n"
    assert cli("create", "y", "--bytes", 10, "--resident").expect().out.endswith("generation 1  resident\n")
    cli("put", "-", "z", "--raw", input=SMALL).expect()
    assert {n: (r["SPILL"], r["RESIDENT"], r["TIER"]) for n, r in rows(cli).items()} == {
        "x": ("disk", "-", "device"), "y": ("never", "yes", "device"), "z": ("never", "-", "device")}
    assert "spill: disk\nresident: false\n" in cli("info", "x").expect().out
    said = cli("set", "x", "--spill", "never", "--resident", "--durability", "sync").expect()
    assert said.out.endswith("generation 1  durability sync  resident\n"), said.out
    assert cli("set", "x", "--no-resident").expect().out.endswith("generation 1  durability sync\n")
    assert cli.json("set", "y", "--no-resident")["resident"] is False
    assert "SPILL" not in cli("ls").expect().out and "DURABILITY" in cli("ls").expect().out
    assert "permitted are never, host, disk" in cli("set", "x", "--spill", "tape").expect(FAILED).err
    err = cli("set", "x", "--resident", "--no-resident").expect(USAGE).err
    assert "exclude each other" in err and cli.json("info", "x")["resident"] is False
    assert "--spill" in cli("set", "x").expect(USAGE).err
    (tmp_path / "t.safetensors").write_bytes(b"")
    err = cli("put", tmp_path / "t.safetensors", "--spill", "disk").expect(USAGE).err
    assert "gpubuf sessions set default --spill disk" in err


def test_sessions_have_a_priority_and_a_spill(live):
    cli = live()
    assert "SPILL" not in cli("sessions").expect().out
    assert cli("sessions", "add", "a", "--spill", "disk").expect().table()[0]["SPILL"] == "disk"
    cli("put", "-", "a/x", "--raw", input=SMALL).expect()
    assert cli.json("info", "a/x")["spill"] == "disk"
    assert cli("sessions", "set", "a", "--spill", "never", "--priority", 7).expect().table()[0]["PRIORITY"] == "7"
    assert ({r["NAME"]: (r["SPILL"], r["PRIORITY"]) for r in cli("sessions").expect().table()}
            == {"default": ("never", "0"), "a": ("never", "7")})
    assert "0 to 1000" in cli("sessions", "set", "a", "--priority", 1001).expect(FAILED).err
    cli("sessions", "set", "a", "--priority", 0).expect()
    assert "PRIORITY" not in cli("sessions").expect().out


def test_a_full_quota_makes_room(live):
    cli = live("--min-resident-ms", "0")
    cli("sessions", "set", "default", "--max-bytes", 700000, "--spill", "disk").expect()
    for name in ("a", "b", "c"):
        cli("put", "-", name, "--raw", input=FILE).expect()
    assert {n: r["TIER"] for n, r in rows(cli).items()} == {"a": "disk", "b": "device", "c": "device"}
    cli("load", "a").expect()
    out = cli("storage").expect().out
    assert "evictions_for_room: 2\nevictions_to_host: 0\nreloads_within_minute: 1\n" in out, out
    cli("set", "a", "--resident").expect()
    cli("set", "c", "--resident").expect()
    assert rows(cli)["b"]["TIER"] == "disk" and "quota" in cli("load", "b").expect(FAILED).err
    assert cli("get", "b", "-").expect().raw == FILE


# --- store, load, storage ---------------------------------------------------------------------------------------------
def test_store(live):
    cli = live("--durable-lag", "3600")
    for name in ("w.a", "w.b"):
        cli("put", "-", name, "--raw", "--durability", "behind", input=FILE).expect()
    cli("put", "-", "plain", "--raw", input=SMALL).expect()
    assert cli("store", "w.a").expect().out == "w.a  293.0 KiB  generation 1 on disk  written\n"
    assert cli("store", "w.*").expect().out == ("w.a  293.0 KiB  generation 1 on disk  nothing to write\n"
                                                "w.b  293.0 KiB  generation 1 on disk  written\n")
    assert cli.json("store", "default/w.b") == [{"stored_generation": 1, "bytes": 300000, "wrote": False,
                                                 "buffer": "default/w.b"}]
    assert cli("-q", "store", "w.a").expect().out == ""
    assert "durability" in cli("store", "plain").expect(FAILED).err
    assert "gpubuf ls" in cli("store", "nope").expect(NOT_FOUND).err
    cli("store", "q*").expect(NOT_FOUND)
    said = cli("store", "nope", "w.a", "plain").expect(NOT_FOUND)
    assert said.out.startswith("w.a  "), "one that fails keeps no other from being stored"


def test_load(live):
    cli = live()
    for name in ("w.a", "w.b"):
        cli("put", "-", name, "--raw", "--durability", "sync", input=FILE).expect()
    cli("put", "-", "plain", "--raw", input=SMALL).expect()
    cli = live()
    assert cli("load", "w.a").expect().out == "w.a  293.0 KiB  uint8 300000  generation 1  durability sync\n"
    assert {n: r["STATE"] for n, r in rows(cli).items()} == {"w.a": "ready", "w.b": "stored", "plain": "lost"}
    assert [b["state"] for b in cli.json("load", "w.*")] == ["ready", "ready"]
    assert "are lost" in cli("load", "plain").expect(FAILED).err
    cli("load", "nope").expect(NOT_FOUND)
    numbers = cli.json("storage")
    assert (numbers["loads"], numbers["loaded_bytes"], numbers["stored_buffers"]) == (2, 600000, 0)


def test_evict(live):
    cli = live("--durable-lag", "3600")
    for name, durability in (("w.a", "behind"), ("w.b", "none")):
        cli("put", "-", name, "--raw", "--durability", durability, input=FILE).expect()
    cli("put", "-", "small", "--raw", input=SMALL).expect()
    assert cli("evict", "w.a").expect().out == "w.a  293.0 KiB  on disk\n"
    assert (cli("evict", "w.*").expect().out == "w.a  293.0 KiB  on disk\nw.b  293.0 KiB  on disk until the daemon "
            "ends\n")
    assert {n: (r["STATE"], r["STORED"], r["TIER"]) for n, r in rows(cli).items()} == {
        "w.a": ("stored", "1", "disk"), "w.b": ("stored", "-", "disk"), "small": ("ready", "-", "device")}
    assert [b["tier"] for b in cli.json("evict", "w.*")] == ["disk", "disk"]
    assert cli("-q", "evict", "default/w.a").expect().out == ""
    assert cli("get", "w.b", "-").expect().raw == FILE
    said = cli("evict", "small", "w.a").expect(FAILED)
    assert "65536" in said.err and said.out.startswith("w.a  "), "one that stays keeps no other in memory"
    assert "gpubuf ls" in cli("evict", "nope").expect(NOT_FOUND).err
    assert cli.json("storage")["evictions"] == 2
    cli = live("--data-dir", "none")
    cli("put", "-", "x", "--raw", input=FILE).expect()
    assert "--data-dir" in cli("evict", "x").expect(FAILED).err


def test_columns_of_what_is_on_disk(live):
    cli = live()
    cli("put", "-", "x", "--raw", input=FILE).expect()
    assert "TIER" not in cli("ls").expect().out
    cli("evict", "x").expect()
    assert rows(cli)["x"]["TIER"] == "disk"


def test_a_session_sleeps_and_wakes(live):
    cli = live()
    for name in ("w.a", "w.b", "x"):
        cli("put", "-", name, "--raw", input=FILE).expect()
    cli("put", "-", "w.small", "--raw", input=SMALL).expect()
    said = cli("sessions", "evict", "default", "--prefix", "w.").expect().out
    assert said == ("SESSION  MOVED      BYTES  SKIPPED\ndefault      2  585.9 KiB        1\n"
                    "\nSKIPPED  WHY\nw.small  stays in memory\n"), said
    assert cli.json("sessions", "load", "default") == [
        {"session": "default", "buffers": 2, "bytes": 600000, "skipped_buffers": 0, "skipped": []}]
    assert cli("-q", "sessions", "evict", "default").expect().out == ""
    assert {n: r["TIER"] for n, r in rows(cli).items()} == {"w.a": "disk", "w.b": "disk", "x": "disk",
                                                            "w.small": "device"}
    assert cli("sessions", "load", "default", "--prefix", "w").expect().table()[0]["MOVED"] == "2"
    assert "gpubuf sessions" in cli("sessions", "evict", "nope").expect(NOT_FOUND).err
    assert "prefix" in cli("sessions", "evict", "default", "--prefix", "-").expect(FAILED).err
    cli("sessions", "evict").expect(USAGE)


def test_a_session_that_takes_long_to_sleep(live):
    """The operation is waited for; --timeout ends the wait, not the operation."""
    cli = live("--disk-fault", "write@1=delay/4000")
    for name in ("a", "b"):
        cli("put", "-", name, "--raw", input=payload(2 << 20, 4)).expect()
    cli("-t", "1", "sessions", "evict", "default").expect(UNREACHABLE)
    until("it sleeps", lambda: {b["tier"] for b in cli.json("ls")} == {"disk"})
    assert cli("sessions", "load", "default").expect().table()[0]["MOVED"] == "2"


def test_a_load_takes_longer_than_a_request_may_wait(live):
    cli = live()
    cli("put", "-", "x", "--raw", "--durability", "sync", input=payload(3 << 20, 4)).expect()
    cli = live("--wait-max", "1", "--disk-fault", "read=delay/1500")
    said = cli("-v", "load", "x").expect()
    assert said.err.count("503 timed_out") >= 1 and "-> 200" in said.err, said.err
    assert rows(cli)["x"]["STATE"] == "ready"


def test_storage(live):
    cli = live()
    cli("put", "-", "x", "--raw", "--durability", "sync", input=FILE).expect()
    numbers = cli.json("storage")
    assert (numbers["state"], numbers["error"], numbers["dir"]) == ("ready", None, os.path.join(live.state, "data"))
    assert (numbers["writes"], numbers["written_bytes"], numbers["failures"]) == (1, 300000, 0)
    out = cli("storage").expect().out
    assert out.startswith("state: ready\n") and "written_bytes: 300000 (293.0 KiB)\n" in out
    assert live("--data-dir", "none")("storage").expect().out.startswith("state: none\n")


def test_storage_is_for_administrators(start, tmp_path):
    secret = token(tmp_path, "add", "w", "--scope", "write,map")
    boss = token(tmp_path, "add", "boss", "--scope", "admin")
    url = start(state=str(tmp_path)).url("")
    cli = Cli(url, GPUBUF_TOKEN=secret)
    assert "admin" in cli("storage").expect(FAILED).err
    checks = {c["check"]: c for c in cli("--json", "doctor").json()}
    assert checks["data folder"]["ok"] is None and "admin" in checks["data folder"]["detail"]
    assert Cli(url, GPUBUF_TOKEN=boss).json("storage")["state"] == "ready"


def test_words_are_completed(live):
    cli = live()
    cli("create", "x.1", "--bytes", 10).expect()
    assert cli("complete", "--", "put", "--durability", "").expect().out.split() == ["none", "behind", "sync"]
    assert cli("complete", "--", "set", "--spill", "").expect().out.split() == ["never", "host", "disk"]
    assert cli("complete", "--", "load", "x").expect().out.split() == ["x.1"]
    assert cli("complete", "--", "evict", "x").expect().out.split() == ["x.1"]
    assert cli("complete", "--", "sessions", "ev").expect().out.split() == ["evict"]
    assert cli("complete", "--", "sessions", "evict", "def").expect().out.split() == ["default"]
    assert cli("complete", "--", "sto").expect().out.split() == ["store", "storage"]
    assert "storage." in cli("complete", "--", "feed", "--type", "").expect().out.split()


# --- errors, and what to do about them --------------------------------------------------------------------------------
def durable(cli, name="x"):
    return cli("put", "-", name, "--raw", "--durability", "sync", input=FILE)


def data_folder(cli):
    said = cli("--json", "doctor")
    check = next(c for c in said.json() if c["check"] == "data folder")
    assert check["ok"] is not False or said.status == FAILED
    return check


def test_a_disk_without_room(live):
    cli = live("--disk-fault", "create=ENOSPC")
    err = durable(cli).expect(FAILED).err
    assert "ENOSPC" in err and "Make room on the disk" in err and '"gpubuf storage"' in err, err
    check = data_folder(cli)
    assert not check["ok"] and "state full" in check["detail"] and "--disk-reserve" in check["remedy"], check
    cli("put", "-", "x", "--raw", input=FILE).expect()
    assert rows(cli)["x"]["STATE"] == "ready"
    assert ("ENOSPC" in cli("set", "x", "--durability", "sync").expect(FAILED).err
            and cli.json("info", "x")["durability"] == "none")


@pytest.mark.parametrize("call", ["write", "sync", "dirsync"])
def test_a_disk_that_fails_once(live, call):
    cli = live("--disk-fault", f"{call}@1=EIO")
    err = durable(cli).expect(FAILED).err
    assert "EIO" in err and "Repeat the command: it tries the disk again." in err, err
    cli("info", "x").expect(NOT_FOUND)
    until("the disk was tried again", lambda: durable(cli).status == DONE)
    cli = live()
    assert cli("get", "x", "-").expect().raw == FILE and len(files(live.state)) == 1
    check = data_folder(cli)
    assert check["ok"] and check["detail"].startswith(os.path.join(live.state, "data")), check


def test_a_disk_that_fails(live):
    cli = live("--disk-fault", "write=EIO")
    durable(cli).expect(FAILED)
    check = data_folder(cli)
    assert not check["ok"] and "state failed" in check["detail"] and "kernel's log" in check["remedy"], check


def test_bytes_that_are_damaged(live):
    cli = live()
    durable(cli).expect()
    cli = live()
    with open(files(live.state)[0], "r+b") as f:
        f.seek(4096 + 1000)
        byte = f.read(1)[0]
        f.seek(4096 + 1000)
        f.write(bytes([byte ^ 1]))
    err = cli("load", "x").expect(FAILED).err
    assert "Upload it again: its file no longer has the bytes" in err, err
    durable(cli).expect()
    assert cli("get", "x", "-").expect().raw == FILE


def test_a_folder_that_is_not_there(live):
    cli = live()
    durable(cli).expect()
    live.daemon.stop()
    data, away = os.path.join(live.state, "data"), os.path.join(live.state, "away")
    os.rename(data, away)
    cli = live()
    assert rows(cli)["x"]["STATE"] == "stored"
    err = cli("load", "x").expect(FAILED).err
    assert '"gpubuf storage" says why' in err and "--durability none" in err, err
    check = data_folder(cli)
    assert not check["ok"] and "state unavailable" in check["detail"] and "mount" in check["remedy"], check
    for name in os.listdir(away):
        os.rename(os.path.join(away, name), os.path.join(data, name))
    until("the folder was found", lambda: cli("load", "x").status == DONE)
    assert cli("get", "x", "-").expect().raw == FILE


def test_a_load_that_is_not_waited_for(live):
    """A request of one's own whose body is a stream: the command says what to do, and after that it succeeds."""
    cli = live()
    durable(cli).expect()
    cli = live()
    write = ("call", "PATCH", "/v1/sessions/default/buffers/x/data?offset=0", "-", "--header",
             "Content-Type:application/octet-stream")
    err = cli(*write, input=b"abc").expect(FAILED).err
    assert '"gpubuf load" brings the bytes into memory' in err, err
    cli("load", "x").expect()
    cli(*write, input=b"abc").expect()
    assert cli("get", "x", "-").expect().raw == b"abc" + FILE[3:]


def test_a_daemon_without_a_folder(live):
    cli = live("--data-dir", "none")
    assert "--data-dir" in durable(cli).expect(FAILED).err
    check = data_folder(cli)
    assert check["ok"] is None and "--data-dir" in check["detail"]
