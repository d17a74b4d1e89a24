"""gpubuf where the user is wrong: nothing is done by halves or to another buffer than is meant, and the words say what
would be right."""
import os
import subprocess

import numpy as np
import pytest

from gpubuf_cli import DONE, FAILED, NOT_FOUND, USAGE, Cli, Terminal, program
from harness import PATIENCE_S, binary, for_everybody
from test_tables import META, some
from test_tables import file as table_file
from values import npy

PROGRAMS = {"gpubuf": program(), "gpubufd": binary()}
ALONE = Cli("http://127.0.0.1:1")


def names(cli):
    return [b["name"] for b in cli.json("ls")]


# --- put of several files ---------------------------------------------------------------------------------------------
def test_two_files_of_one_name_are_refused_before_anything_is_sent(cli, tmp_path):
    (tmp_path / "below").mkdir()
    for name in ("q.npy", "q.txt", "a.bin", "below/a.raw", "q"):
        (tmp_path / name).write_bytes(npy(np.arange(3)))
    for files, both in ((["a.bin", "q.npy", "q.txt"], "q.npy and q.txt"), (["q", "./q.npy"], "q and ./q.npy"),
                        (["a.bin", "q", "file:below/a.raw"], "a.bin and file:below/a.raw")):
        said = cli("put", *files, cwd=tmp_path).expect(USAGE)
        assert (f"{both} would both become the buffer" in said.err and "without its last ending" in said.err
                and not said.out)
    assert names(cli) == []
    cli("put", "a.bin", "./q.npy", cwd=tmp_path).expect()


@pytest.mark.parametrize("word,status,said", [
    ("/abs", FAILED, "/abs cannot be read: No such file"), ("./-x.bin", USAGE, 'the buffer "-x", which is no name'),
    ("./a b.bin", USAGE, 'the buffer "a b"'), ("-", USAGE, "standard input has no name")])
def test_all_words_are_checked_before_the_first_upload(cli, tmp_path, word, status, said):
    for name in ("x.npy", "y.npy", "-x.bin", "a b.bin"):
        (tmp_path / name).write_bytes(b"1")
    told = cli("put", "x.npy", "y.npy", word, cwd=tmp_path).expect(status)
    assert said in told.err and names(cli) == []


def test_an_error_is_of_the_file_that_it_is_of(cli, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"1")
    (tmp_path / "folder").mkdir()
    said = cli("put", "a.bin", "./folder", "--shape", "3", cwd=tmp_path).expect(FAILED)
    assert said.err.startswith("gpubuf: a: ") and "\ngpubuf: ./folder is a folder" in said.err


@pytest.mark.parametrize("line,said", [
    ("ls a b", 'ls takes at most 1 word, and "b" is one more; a pattern'), ("info a b", '"b" is one more'),
    ("get a b out/", "NAME,NAME or PREFIX*"), ("doctor a", 'doctor takes no words, and "a" is one more'),
    ("create", "usage: gpubuf create NAME")])
def test_a_word_too_many(line, said):
    err = ALONE(*line.split()).expect(USAGE).err
    assert said in err and f"usage: gpubuf {line.split()[0]}" in err


def test_a_missing_name_that_has_an_ending(cli, tmp_path):
    (tmp_path / "f1.txt").write_bytes(b"1")
    cli("put", "f1.txt", cwd=tmp_path).expect()
    for command in ("get", "rm", "info"):
        assert "called as its file without the last ending" in cli(command, "f1.txt").expect(NOT_FOUND).err
    for name in ("f2", "m-v1.00001", "nope.index", "a.v2", "x.npyx"):
        assert "ending" not in cli("info", name).expect(NOT_FOUND).err


# --- get --------------------------------------------------------------------------------------------------------------
def test_get_warns_of_an_ending_that_the_bytes_have_not(cli, daemon, session, tmp_path):
    daemon.put("x", npy(np.arange(3)), session).expect(201)
    for name in ("k.npz", "k.pt", "k.pkl"):
        said = cli("get", "x", name, cwd=tmp_path).expect()
        assert f"warning: {name} has the buffer's bytes as they are" in said.err and ".safetensors" in said.err
        assert (tmp_path / name).read_bytes() == np.arange(3).tobytes()
        for option in ("--raw", "--quiet"):
            assert cli("get", "x", name, option, cwd=tmp_path).expect().err == ""
    np.savez(tmp_path / "z.npz", a=np.arange(2))
    cli("put", "z.npz", "z", "--raw", cwd=tmp_path).expect()
    assert cli("get", "z", "again.npz", cwd=tmp_path).expect().err == ""
    assert cli("get", "x", "x.bin", cwd=tmp_path).expect().err == ""


def test_get_into_a_folder(cli, daemon, session, tmp_path):
    daemon.put("f1", b"1234", session).expect(201)
    (tmp_path / "out").mkdir()
    for to in ("out/", "out", "./out/"):
        assert cli.json("get", "f1", to, cwd=tmp_path)["file"] == to.rstrip("/") + "/f1"
        assert (tmp_path / "out/f1").read_bytes() == b"1234"
        (tmp_path / "out/f1").unlink()
    cli("cp", f"{session}/f1", "./out/", cwd=tmp_path).expect()
    assert os.listdir(tmp_path / "out") == ["f1"]
    assert cli.json("get", "f1", "new/", cwd=tmp_path)["file"] == "new/f1"
    assert "gone/on/f1 cannot be written" in cli("get", "f1", "gone/on/", cwd=tmp_path).expect(FAILED).err


def test_get_of_several(cli, daemon, session, tmp_path):
    for name in ("w1", "w2", "x"):
        daemon.put(name, b"1234", session).expect(201)
    said = cli("get", "nosuch*", "a.safetensors", cwd=tmp_path).expect(NOT_FOUND)
    assert "matches nosuch*" in said.err and os.listdir(tmp_path) == []
    cli("get", f"{session}/w*", "a.safetensors", cwd=tmp_path).expect()
    other = Cli(cli.env["GPUBUF_URL"])
    other("get", f"{session}/w*", "b.safetensors", cwd=tmp_path).expect()
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    assert "beginning of names with *" in cli("get", "w?", "c.safetensors", cwd=tmp_path).expect(USAGE).err
    for args in (["w*"], ["w*", "all.st"], ["w1,x", "all.st"]):
        assert "FILE that ends in .safetensors" in cli("get", *args, cwd=tmp_path).expect(USAGE).err
    assert sorted(os.listdir(tmp_path)) == ["a.safetensors", "b.safetensors"]


def test_a_target_that_is_full(cli, daemon, session, tmp_path):
    daemon.put("x", b"1234", session).expect(201)
    assert (cli("get", "x", "/dev/full").expect(FAILED).err == "gpubuf: /dev/full cannot be written: No space left on "
            "device\n")
    with open("/dev/full", "wb") as full:
        p = cli.start("get", "x", "-", stdout=full)
        _, err = p.communicate(timeout=PATIENCE_S)
    assert p.returncode == FAILED and err == b"gpubuf: standard output cannot be written: No space left on device\n"
    for name, status, *words in (("gpubuf", FAILED, "--version"), ("gpubuf", FAILED, "ls", "--help"),
                                 ("gpubuf", FAILED, "help"), ("gpubufd", 70, "--version"), ("gpubufd", 70, "--help"),
                                 ("gpubufd", 70, "help")):
        with open("/dev/full", "wb") as full:
            run = subprocess.run([PROGRAMS[name], *words], stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE_S)
        assert (run.returncode, run.stderr) == (status, name.encode() + b": standard output cannot be written: No "
                                                b"space left on device\n"), words


def test_words_that_a_terminal_obeys():
    """They are not repeated as they are."""
    for file in PROGRAMS.values():
        run = subprocess.run([file, "--a\x1b]0;b\x07c"], capture_output=True, timeout=PATIENCE_S)
        assert run.returncode in (USAGE, 64) and b'"--a?]0;b?c"' in run.stderr, run


# --- patterns ---------------------------------------------------------------------------------------------------------
def test_ls_of_what_is_not_there(cli, daemon, session):
    assert cli.json("ls") == [] and cli.json("ls", f"{session}/") == [] and cli.json("ls", "*") == []
    assert f'no buffer of session "{session}" matches nosuch*' in cli("ls", "nosuch*").expect(NOT_FOUND).err
    assert f'session "{session}" has no buffer named "nosuch"' in cli("ls", "nosuch").expect(NOT_FOUND).err
    assert cli("--json", "ls", "nosuch").expect(NOT_FOUND).json()["code"] == "buffer_not_found"
    assert not cli("ls", "-q", f"{session}*/nosuch").expect(NOT_FOUND).out
    daemon.put("such", b"1", session).expect(201)
    assert cli("ls", "-q", "such").expect().out == cli("ls", "-q", "s[u]*").expect().out == "such\n"


@pytest.mark.parametrize("line", ["info k*", "verify k*", "seal k?", "fill [k] 0", "map k*", "create k* --bytes 1",
                                  "cp k* b", "cp a k*", "sync k*"])
def test_commands_of_one_buffer_take_no_pattern(line):
    err = ALONE(*line.split()).expect(USAGE).err
    assert line.split()[0] + " takes no pattern" in err and "gpubuf ls '" in err


def test_rm_of_a_pattern_says_how_many(cli, daemon, session):
    def fill():
        for name in ("a1", "a2", "b"):
            daemon.put(name, b"1", session)
    fill()
    assert "deleted 2 buffers" in cli("rm", "a*", "-v").expect().err
    fill()
    assert cli("rm", "a*").expect().err == ""  # a script reads nothing
    fill()
    t = Terminal(cli, "rm", "a*")
    t.read(b"deleted 2 buffers")
    t.end(DONE)
    assert "deleted" not in cli("rm", "b", "-v").expect().err


# --- ls that picks and orders -----------------------------------------------------------------------------------------
def test_ls_picks_and_orders(cli, daemon, session):
    for name, size, labels in (("c", 1, "team=a,x=1"), ("a", 3, "team=a"), ("b", 2, "team=b,x=")):
        cli("put", "-", name, "--kind", "pinned" if name == "b" else "device", "--labels", labels,
            input=bytes(size)).expect()

    def listed(*args):
        return "".join(cli("ls", "-q", *args).expect().out.split())
    assert (listed() == "cab" and listed("--sort", "name") == "abc" and listed("--sort", "-bytes") == "abc"
            and listed("--sort=bytes") == "cba")
    assert (listed("--label", "team=a") == "ca" and listed("--labels", "x") == "cb" and listed("--labels", "team=a,x")
            == "c")
    assert listed("--labels", "x,team=b") == "b" and listed("--labels", "x=,team=a") == ""
    assert listed("--kind", "pinned") == "b" and listed("--state", "ready") == "cab" and listed("--state", "lost") == ""
    assert listed("[ab]*", "--sort", "name", "--label", "team") == "ab" and listed(f"{session}/", "--kind", "device",
                                                                                   "--sort", "name") == \
        f"{session}/a{session}/c"
    assert listed("a", "--label", "team=a") == "a"
    cli("ls", "a", "--label", "team=b").expect(NOT_FOUND)
    for wrong in (["--sort", "size"], ["--state", "red"], ["--kind", "red"]):
        assert wrong[0][2:] in cli("ls", *wrong).expect(FAILED).err
    assert "KEY=VALUE" in cli("ls", "--labels", "=v").expect(USAGE).err


# --- words ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("word,said", [
    ("cat", "gpubuf get NAME"), ("download", "is get meant?"), ("upload", "is put meant?"), ("delete", "is rm meant?"),
    ("remove", "is rm meant?"), ("mv", "gpubuf cp"), ("token", '"gpubufd token"')])
def test_words_of_other_programs(word, said):
    assert said in ALONE(word, "x").expect(USAGE).err


@pytest.mark.parametrize("option", ["--corn", "--shxxe", "--quux"])
def test_an_option_that_is_near_to_nothing_is_not_guessed_at(option):
    assert "meant?" not in ALONE("ls", option).expect(USAGE).err


def test_errors_speak_of_options(cli, daemon, session, tmp_path):
    (tmp_path / "x.npy").write_bytes(npy(np.arange(3)))
    err = cli("put", "x.npy", "a", "--dtype", "float32", cwd=tmp_path).expect(FAILED).err
    assert "give --raw to store" in err and "?format" not in err
    err = cli("--json", "put", "x.npy", "a", "--dtype", "float32", cwd=tmp_path).expect(FAILED)
    assert "?format=raw" in err.json()["detail"] and "give --raw" in err.err  # JSON is the daemon's
    cli("put", "x.npy", "a", "--dtype", "uint8", "--raw", cwd=tmp_path).expect()
    err = cli("get", "a", "y", "--npy", "--offset", "2", cwd=tmp_path).expect(FAILED).err
    assert "is had by --slice" in err and "?slice" not in err
    cli("put", "x.npy", "b", cwd=tmp_path).expect()
    err = cli("switch", "c", "b").expect(FAILED).err
    assert "is not sealed" in err and "\"gpubuf seal\" seals it, and \"gpubuf cp\" copies its bytes" in err
    (tmp_path / "m.safetensors").write_bytes(table_file(some(), META))
    cli("put", "m.safetensors", "m", cwd=tmp_path).expect()
    assert "name one with --tensor for npy" in cli("get", "m", "y.npy", cwd=tmp_path).expect(FAILED).err
    assert "\"gpubuf ls\" lists its 6" in cli("get", "m", "y", "--tensor", "no", cwd=tmp_path).expect(NOT_FOUND).err
    assert "GET .../tensors" in cli("call", "GET", f"/v1/sessions/{session}/buffers/m/data?tensor=no").expect(
        NOT_FOUND).err
    assert "--bytes N" in cli("create", "c").expect(USAGE).err
    assert cli.json("create", "c", "--shape", "2,2")["dtype"] == "uint8"
    for pattern in ("1.0", "0x", "0xg", "red", "18446744073709551616", "0x10000000000000000"):
        assert "0x and hexadecimal digits" in cli("fill", "c", pattern).expect(USAGE).err
    cli("fill", "c", "0x3f").expect()
    assert cli("get", "c").expect().raw == b"\x3f" * 4
    assert "--width bytes" in ALONE("help", "fill").expect().out


def test_a_url_with_a_path(cli):
    said = cli("ls", "-u", cli.env["GPUBUF_URL"] + "/v1").expect(FAILED)
    assert "The URL has a path" in said.err and "older" not in said.err


def test_words_of_the_fleet_that_take_no_item():
    out = ALONE("help", "fleet").expect().out
    assert "(no ITEM)" not in out and "\n  nodes  " in out and "\n  where ITEM" in out
    assert "Usage: gpubuf fleet nodes [OPTION...]" in ALONE("help", "fleet", "nodes").expect().out


# --- the configuration file -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("line,said", [
    ('url = "http://h:1"', "stands in quotes"), ("session = 'a'", "stands in quotes"),
    ("url = ftp://x", '"ftp://x" is no address'), ("url = http://me:letmein@h:1", "a user or a password")])
def test_a_value_of_the_file_that_cannot_be_meant(tmp_path, line, said):
    (tmp_path / "config").write_text("\n" + line + "\n")
    err = Cli(GPUBUF_CONFIG=str(tmp_path / "config"))("ls").expect(USAGE).err
    assert "/config:2: " in err and said in err


def test_a_host_that_is_a_group(tmp_path):
    (tmp_path / "config").write_text("[host one]\n[group all]\nhosts = one\n")
    cli = Cli(GPUBUF_CONFIG=str(tmp_path / "config"))
    assert "--group all" in cli("--host", "all", "ls").expect(USAGE).err
    assert "--host one" in cli("--group", "one", "ls").expect(USAGE).err


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which takes root")
def test_a_file_that_cannot_be_read_is_not_passed_over(tmp_path):
    for_everybody(program(), tmp_path)
    folder = tmp_path / "home/.config/gpubuf"
    folder.mkdir(parents=True)
    (folder / "config").write_text("session = mine\n")
    os.chmod(folder / "config", 0)
    env = {**Cli(HOME=str(tmp_path / "home"), XDG_CONFIG_HOME="").env}
    del env["GPUBUF_CONFIG"]

    def config():
        return subprocess.run([tmp_path / "bin/gpubuf", "config"], env=env, capture_output=True, text=True,
                              timeout=PATIENCE_S, cwd="/", user=65534, group=65534, extra_groups=[])
    said = config()
    assert said.returncode == USAGE and "config cannot be read: Permission denied" in said.stderr, said
    os.chmod(tmp_path / "home", 0o700)  # the home of another user, as under sudo: there may be no file
    assert config().returncode == DONE
