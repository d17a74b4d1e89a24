"""gpubuf with tables and models: put DIR NAME, get NAME DIR, ls NAME, rm NAME."""
import filecmp
import json
import os
import re
import struct
import subprocess
import threading

import numpy as np
import pytest

from connected import line_of
from fleet import Relay
from gpubuf_cli import DONE, FAILED, INTERRUPTED, NOT_FOUND, UNREACHABLE, USAGE, Cli, Terminal, interrupt
from harness import PATIENCE_S
from test_tables import META, file, some
from values import file_of, payload

INDEX = "model.safetensors.index.json"
NOTHING = "nothing was uploaded"


def shard(i, of):
    return f"model-{i:05d}-of-{of:05d}.safetensors"


def arrays(seed, count=2):
    rng = np.random.default_rng(seed)
    return {f"l{seed}.{i}": rng.standard_normal((3, 5 + i)).astype("float32") for i in range(count)}


def write(folder, files, index=True, weight_map=None):
    """A model as frameworks store it; files: {name: bytes or arrays}."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else file(content, META))
    where = {t: name for name, content in files.items() if not isinstance(content, bytes) for t in content}
    where.update(weight_map or {})
    if index:
        (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 7}, "weight_map": where}, indent=2))
    return folder


def model(folder, seed=1, of=3):
    """The last file has one tensor."""
    return write(folder, {shard(i, of): arrays(10 * seed + i, 1 if i == of else 2) for i in range(1, of + 1)})


@pytest.fixture
def folder(tmp_path):
    made = model(tmp_path / "Tiny", of=3)
    (made / "config.json").write_text("{}")
    return made


def same(a, b):
    """Every file of a model, byte for byte, and no other."""
    files = sorted(str(p.relative_to(a)) for p in a.rglob("*") if p.is_file() and p.name != "config.json")
    assert files == sorted(str(p.relative_to(b)) for p in b.rglob("*") if p.is_file())
    assert filecmp.cmpfiles(a, b, files, shallow=False) == (files, [], [])


def names(s):
    return sorted(s.names("buffers?limit=1000"))


def document(s, name="m"):
    return json.loads(s.data(name + ".index"))


# --- there and back ---------------------------------------------------------------------------------------------------
def test_a_model_and_back(cli, s, folder, tmp_path):
    put = cli.json("put", f"{folder}/", "m")
    size = sum(p.stat().st_size for p in folder.glob("*.safetensors"))
    assert (put["name"], put["session"], put["version"], put["replaced"]) == ("m", s.name, 1, False)
    assert (put["tensors"], put["bytes"], [b["name"] for b in put["shards"]]) == (
        5, size, ["m.00001", "m.00002", "m.00003"])
    assert names(s) == ["m.00001", "m.00002", "m.00003", "m.index"]
    assert {s.meta(f"m.0000{i}")["dtype"] for i in (1, 2, 3)} == {"tensors"}  # that of one tensor, too
    assert (s.meta("m.index")["dtype"], s.meta("m.index")["kind"]) == ("uint8", "pageable")
    told = document(s)
    assert (told["gpubuf_model"], told["version"]) == (1, 1)
    assert told["shards"] == [{"buffer": f"m.0000{i}", "file": shard(i, 3), "tensors": 1 if i == 3 else 2,
                               "bytes": (folder / shard(i, 3)).stat().st_size} for i in (1, 2, 3)]
    assert told["index"] == {"file": INDEX, "text": (folder / INDEX).read_text()}

    said = cli("get", "m", f"{tmp_path}/out/").expect()
    assert said.out.startswith("m  4 files  ") and said.out.endswith(f" in {tmp_path}/out/\n")
    same(folder, tmp_path / "out")
    (tmp_path / "there").mkdir()
    got = cli.json("get", f"{s.name}/m", tmp_path / "there", "-c", 3)
    assert (got["files"], got["bytes"], got["folder"]) == (4, size, str(tmp_path / "there"))
    assert got["shards"] == told["shards"]
    same(folder, tmp_path / "there")
    assert cli("get", "m", f"{tmp_path}/quiet/", "-q").expect().out == ""
    same(folder, tmp_path / "quiet")


def test_files_in_folders_and_links(cli, s, tmp_path):
    """A hub's cache has links to files that are called otherwise."""
    at = write(tmp_path / "M", {"a/one.safetensors": arrays(1), "a/b/two.safetensors": arrays(2)})
    (tmp_path / "blob").write_bytes((at / "a/one.safetensors").read_bytes())
    (at / "a/one.safetensors").unlink()
    (at / "a/one.safetensors").symlink_to(tmp_path / "blob")
    assert cli("put", at, "m", "-q").expect().out == ""
    assert [x["file"] for x in document(s)["shards"]] == ["a/b/two.safetensors", "a/one.safetensors"]
    cli("get", "m", f"{tmp_path}/out/").expect()
    same(at, tmp_path / "out")


def test_names_of_every_length_and_an_index_with_all_letters(cli, s, tmp_path):
    strange = {"häßlich/\"q\"\\ \U0001f600": np.ones(2, "uint8")}
    at = write(tmp_path / "M", {shard(1, 2): strange, shard(2, 2): arrays(1)})
    index = (at / INDEX).read_bytes()
    (at / INDEX).write_bytes(index.replace(b'"metadata"', b'\r\n\t"\\u00e4"  : "\xc3\xa4" ,"metadata"'))
    name = "n" * (128 - len(".00001"))
    cli("put", at, name).expect()
    cli("get", name, f"{tmp_path}/out/").expect()
    same(at, tmp_path / "out")
    assert "too long" in cli("put", at, name).expect(USAGE).err  # of its second version: .00001.v2
    same(at, tmp_path / "out")
    assert len(names(s)) == 3


@pytest.mark.parametrize("how", ("index", "called model", "the only one"))
def test_a_model_of_one_file_is_a_buffer(cli, s, tmp_path, how):
    called = shard(1, 1) if how == "index" else "model.safetensors" if how == "called model" else "x.safetensors"
    at = write(tmp_path / "M", {called: arrays(1, 1)}, index=how == "index")
    if how == "called model":
        write(at, {"consolidated.safetensors": arrays(2)}, index=False)
    put = cli.json("put", at, "m", "--labels", "k=v")
    assert (put["name"], put["dtype"], put["labels"]) == ("m", "tensors", {"k": "v"}) and names(s) == ["m"]
    body = (at / called).read_bytes()
    assert s.data("m") == body
    assert cli("put", at, "m").expect().out.startswith("m  ") and s.meta("m")["generation"] > 1


def test_a_table_comes_as_its_file(cli, s, tmp_path):
    body = file(some(), META)
    s.put("m", body)
    for path in ("m.safetensors", "m.bin", "m", "m.pt"):
        said = cli("get", "m", path, cwd=tmp_path).expect()
        assert (tmp_path / path).read_bytes() == body and said.err == ""
    assert cli("get", "m", "-").expect().raw == cli("get", "m").expect().raw == body
    memory = s.data("m", "?format=raw")
    assert len(memory) > len(body)
    assert cli("get", "m", "--raw").expect().raw == memory
    assert cli("get", "m", "--offset", 8, "--bytes", 9).expect().raw == memory[8:17]
    assert cli("get", "m", "--tensor", "last").expect().raw == some()["last"].tobytes()
    cli("get", "m", tmp_path / "c", "-c", 4).expect()
    assert (tmp_path / "c").read_bytes() == body
    (tmp_path / "into").mkdir()
    for args, called, content in (((), "m.safetensors", body), (("--raw",), "m", memory),
                                  (("--tensor", "b"), "m", some()["b"].tobytes())):
        cli("get", "m", tmp_path / "into", *args).expect()
        assert (tmp_path / "into" / called).read_bytes() == content
    s.put("x.safetensors", body)
    s.put("plain", payload(9))
    for name, called in (("x.safetensors", "x.safetensors"), ("plain", "plain")):
        cli("get", name, f"{tmp_path}/into/").expect()
        assert (tmp_path / "into" / called).exists()
    assert sorted(os.listdir(tmp_path / "into")) == ["m", "m.safetensors", "plain", "x.safetensors"]
    said = cli("get", "m", tmp_path / "m.npy").expect(FAILED).err
    assert "npy" in said and not (tmp_path / "m.npy").exists()


def test_options_are_of_each_part(cli, s, folder):
    cli("put", folder, "m", "--kind", "pinned", "--labels", "team=a", "--spill", "disk").expect()
    for i in (1, 2, 3):
        meta = s.meta(f"m.0000{i}")
        assert (meta["kind"], meta["labels"], meta["spill"]) == ("pinned", {"team": "a"}, "disk")
    assert (s.meta("m.index")["kind"], s.meta("m.index")["spill"]) == ("pageable", "disk")


def test_progress_on_a_terminal(cli, folder, tmp_path):
    t = Terminal(cli, "put", folder, "m")
    t.end(DONE)
    assert all(f"m.0000{i} ({i} of 3)".encode() in t.text for i in (1, 2, 3)) and b"100 %" in t.text
    t = Terminal(cli, "get", "m", f"{tmp_path}/out/")
    t.end(DONE)
    assert all(f"m.0000{i} ({i} of 3)".encode() in t.text for i in (1, 2, 3))


# --- publication ------------------------------------------------------------------------------------------------------
class Watched:
    """gpubuf of a model through a relay. before["PUT m.index"] is called once, before the daemon has all of the first
    such request, and its result is what the relay does with it. What is in `stopped` never reaches the daemon."""

    def __init__(self, daemon, session):
        self.relay, self.before, self.bodies, self.stopped = Relay(daemon.tcp), {}, {}, ()
        self.relay.watch = self.look
        self.cli = Cli(self.relay.url, session)

    def look(self, asked):
        found = re.match(rb"(\S+) \S*/buffers/([^/? ]+)", asked)
        length = re.search(rb"\r\nContent-Length: (\d+)", asked)
        end = asked.find(b"\r\n\r\n") + 4
        if not found or len(asked) < end + int(length[1] if length else 0):
            return None
        what = b" ".join(found.groups()).decode()
        self.bodies[what] = asked[end:]
        if what in self.stopped:
            return "stop"
        return self.before.pop(what)() if what in self.before else None


@pytest.fixture
def watched(daemon, session):
    w = Watched(daemon, session)
    yield w
    w.relay.close()


def test_a_new_version_takes_the_place_in_one_step(cli, s, folder, watched, tmp_path):
    cli("put", folder, "m").expect()
    new, read = model(tmp_path / "New", seed=2, of=2), []

    def look():
        out = tmp_path / f"out{len(read)}"
        read.append(cli("get", "m", f"{out}/"))

    for step in ("PUT m.00001.v2", "PUT m.00002.v2", "PUT m.index"):
        watched.before[step] = look
    put = watched.cli.json("put", new, "m")
    assert (put["version"], put["replaced"], len(read)) == (2, True, 3)
    for i, said in enumerate(read):
        said.expect()
        same(folder, tmp_path / f"out{i}")
    assert names(s) == ["m.00001.v2", "m.00002.v2", "m.index"]
    cli("get", "m", f"{tmp_path}/now/").expect()
    same(new, tmp_path / "now")
    assert "version 3" in cli("put", folder, "m").expect().out
    assert names(s) == ["m.00001.v3", "m.00002.v3", "m.00003.v3", "m.index"]


def test_a_link_to_the_index_is_a_link_to_the_model(cli, s, folder, tmp_path):
    for name, source in (("m1", folder), ("m2", model(tmp_path / "second", 2))):
        cli("put", source, name).expect()
        cli("seal", name + ".index").expect()
        cli("switch", "current.index", name + ".index").expect()
        cli("get", "current", f"{tmp_path}/{name}/").expect()
        same(source, tmp_path / name)
        assert cli("ls", "current").expect().table() == cli("ls", name).expect().table()
        cli("put", folder, name).expect(FAILED)  # the shards that current names stay
        cli("get", "current", f"{tmp_path}/again-{name}/").expect()


def test_a_reader_of_the_former_version_reads_again(cli, s, folder, watched, tmp_path):
    cli("put", folder, "m").expect()
    new = model(tmp_path / "New", seed=2, of=2)
    watched.before["GET m.00002"] = lambda: cli("put", new, "m").expect() and None
    watched.cli("get", "m", f"{tmp_path}/out/").expect()
    same(new, tmp_path / "out")
    watched.before["GET m.00001.v2"] = lambda: cli("put", folder, "m").expect() and None
    assert len(watched.cli.json("ls", "m")) == 5
    assert watched.before == {}


def test_who_maps_the_former_version_keeps_it(daemon, s, folder, tmp_path):
    cli = Cli(daemon.url(""), s.name, GPUBUF_SOCKET=daemon.unix)
    cli("put", folder, "m", "--kind", "pageable").expect()
    p = cli.start("map", "m.00001", "--hold", stdin=subprocess.PIPE)
    try:
        line_of(p.stdout)
        said = cli("put", model(tmp_path / "New", seed=2, of=2), "m").expect()
        assert said.err == "" and names(s) == ["m.00001.v2", "m.00002.v2", "m.index"]
    finally:
        p.communicate(b"", PATIENCE_S)
    assert p.returncode == DONE


def test_two_uploads_at_a_time(cli, s, folder, watched, tmp_path):
    """A shard of the other has the name, or its index came first."""
    other = model(tmp_path / "Other", seed=2, of=2)
    watched.before["PUT m.00002"] = lambda: s.put("m.00002", payload(3)) and None
    said = watched.cli("put", folder, "m").expect(FAILED).err
    assert f"{shard(2, 3)}: the buffer \"m.00002\" came there meanwhile: another upload" in said
    assert "no part of the model was left" in said and names(s) == ["m.00002"]
    s.delete("buffers/m.00002")

    watched.before["PUT m.index"] = lambda: cli("put", other, "m").expect() and None
    said = watched.cli("put", folder, "m").expect(FAILED).err
    assert "another model was published as \"m\" meanwhile" in said and "no part of the model was left" in said
    assert names(s) == ["m.00001.v2", "m.00002.v2", "m.index"]
    cli("get", "m", f"{tmp_path}/out/").expect()
    same(other, tmp_path / "out")


def test_parts_of_no_model_are_told_and_stay(cli, s, folder):
    for name in ("m.00001", "m.00004.v7", "m.0001", "m.00001.v", "m.00001.v0", "m.00001.vx", "mm.00001", "m.2.00009"):
        s.put(name, payload(3))
    said = cli("put", folder, "m").expect()
    assert "warning: m.00001 and others are no part of the published model \"m\"" in said.err
    assert "version 8" in said.out
    assert {f"m.0000{i}.v8" for i in (1, 2, 3)} < set(names(s)) and len(names(s)) == 12
    assert cli("put", folder, "m", "-q").expect().err == ""
    s.delete("buffers/m.00001")
    assert "warning: m.00004.v7 is no part" in cli("put", folder, "m").expect().err


def test_an_answer_that_is_lost_is_no_failure(s, folder, watched, tmp_path):
    watched.before["PUT m.index"] = lambda: "drop"
    watched.cli("put", folder, "m").expect()
    assert watched.relay.dropped == 1 and len(names(s)) == 4
    watched.cli("get", "m", f"{tmp_path}/out/").expect()
    same(folder, tmp_path / "out")


# --- what fails in the middle -----------------------------------------------------------------------------------------
def test_a_shard_that_is_refused_takes_the_others_along(cli, s, folder, tmp_path):
    large = write(tmp_path / "L", {shard(1, 2): arrays(1), shard(2, 2): {"big": np.zeros(300000, "uint8")}})
    s.patch("", {"quota": {"bytes": 100000}})
    said = cli("put", large, "m").expect(FAILED).err
    assert said.startswith(f"gpubuf: {shard(2, 2)}: ") and "quota" in said
    assert "no part of the model was left in the daemon\n" in said and names(s) == []
    cli("put", folder, "m").expect()
    before = names(s)
    said = cli("put", large, "m", "--json").expect(FAILED)
    assert said.json()["code"] == "quota_exceeded" and "the one before is unchanged" in said.err
    assert names(s) == before
    cli("get", "m", f"{tmp_path}/out/").expect()
    same(folder, tmp_path / "out")


def test_a_connection_that_is_lost_takes_them_along(s, folder, watched):
    watched.stopped = "PUT m.00002",
    said = watched.cli("put", folder, "m", "--retry", 0).expect(UNREACHABLE).err
    assert shard(2, 3) in said and "no part of the model was left" in said and names(s) == []
    watched.stopped = ()
    watched.before["PUT m.00002"] = lambda: "stop"
    watched.cli("put", folder, "m", "--retry", 1).expect()
    assert len(names(s)) == 4


@pytest.mark.parametrize("late", (False, True))
def test_an_interrupt_takes_them_along(s, folder, watched, late):
    """Also a shard that comes when the daemon was asked to delete it."""
    seen, held, times = threading.Event(), threading.Event(), []

    def come():
        times.append(len(names(s)))
        if len(times) == 1:
            watched.before["DELETE m.00002"] = come
        elif late and len(times) == 2:
            s.put("m.00002", watched.bodies["PUT m.00002"], "?pack=true")

    watched.before["PUT m.00002"] = lambda: seen.set() or held.wait(PATIENCE_S) and "stop"
    watched.before["DELETE m.00002"] = come
    p = watched.cli.start("put", folder, "m")
    try:
        assert seen.wait(PATIENCE_S)
        said = interrupt(p).expect(INTERRUPTED).err
    finally:
        held.set()
    assert "interrupted; nothing is half-done" in said and "no part of the model was left" in said
    assert names(s) == [] and len(times) == 2


def test_an_interrupt_comes_too_late(s, folder, watched, tmp_path):
    """The index comes when the daemon was asked whether it has it."""
    seen, held, times = threading.Event(), threading.Event(), []

    def come():
        times.append(len(names(s)))
        if len(times) < 3:
            watched.before["GET m.index"] = come
        else:
            s.put("m.index", watched.bodies["PUT m.index"], "?format=raw")

    watched.before["PUT m.index"] = lambda: seen.set() or held.wait(PATIENCE_S) and "stop"
    watched.before["GET m.index"] = come
    p = watched.cli.start("put", folder, "m")
    try:
        assert seen.wait(PATIENCE_S)
        said = interrupt(p).expect()
    finally:
        held.set()
    assert said.out.startswith("m  3 files") and len(names(s)) == 4 and times == [0, 3, 3]
    watched.cli("get", "m", f"{tmp_path}/out/").expect()
    same(folder, tmp_path / "out")


def test_a_publication_that_is_not_known_is_told(s, folder, watched):
    """The daemon is gone when it was to be asked: what was uploaded may be published."""

    def lose():
        watched.relay.set("cut")
        return "stop"

    watched.before["PUT m.index"] = lose
    said = watched.cli("put", folder, "m", "--retry", 0).expect(UNREACHABLE).err
    assert "whether \"m\" was published is not known: \"gpubuf ls m\" shows it" in said
    assert names(s) == ["m.00001", "m.00002", "m.00003"]


def test_what_cannot_be_withdrawn_is_told(s, folder, watched):

    def lose():
        watched.relay.set("cut")
        return "stop"

    watched.before["PUT m.00002"] = lose
    said = watched.cli("put", folder, "m", "--retry", 0).expect(UNREACHABLE).err
    assert "m.00001 may be left of this upload, which is of no model: \"gpubuf rm\" deletes it" in said
    assert names(s) == ["m.00001"]


def test_a_former_shard_that_cannot_go_is_told(s, cli, folder, watched, tmp_path):
    cli("put", folder, "m").expect()
    watched.stopped = "DELETE m.00001",
    said = watched.cli("put", model(tmp_path / "New", seed=2, of=2), "m", "--retry", 0).expect()
    assert "warning: the new model is published, and not all of the one before could be deleted: " in said.err
    assert names(s) == ["m.00001", "m.00001.v2", "m.00002.v2", "m.index"]


# --- what is refused before anything is uploaded ----------------------------------------------------------------------
def raw_file(header, data=b""):
    return file_of(header if isinstance(header, bytes) else json.dumps(header).encode(), data)


ONE = {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}
WRONG = {
    "a file is missing": ({shard(1, 2): arrays(1)}, {"x": shard(2, 2)},
                          f"/{shard(2, 2)}, which {INDEX} names, cannot be read: No such file"),
    "an absolute name": ({shard(1, 2): arrays(1)}, {"x": "/etc/passwd"},
                         "the file of \"x\" must be the name of one in this folder, and is \"/etc/passwd\""),
    "a name that leaves": ({shard(1, 2): arrays(1)}, {"x": "a/../../x.safetensors"},
                           "in this folder, and is \"a/../../x.safetensors\""),
    "a name with a point": ({shard(1, 2): arrays(1)}, {"x": "./" + shard(1, 2)}, "in this folder, and is \"./"),
    "a name that ends in a slash": ({shard(1, 2): arrays(1)}, {"x": "a/"}, "in this folder, and is \"a/\""),
    "an empty name": ({shard(1, 2): arrays(1)}, {"x": ""}, "in this folder, and is \"\""),
    "no text": ({shard(1, 2): arrays(1)}, {"x": 5}, "must be the name of one in this folder; "),
    "an empty map": ({}, {}, f"{INDEX} has no weight_map that names the file of each tensor"),
    "a tensor that is nowhere": ({shard(1, 2): arrays(1), shard(2, 2): arrays(2)}, {"x": shard(2, 2)},
                                 f"{INDEX} says that {shard(2, 2)} has the tensor \"x\", which it has not"),
    "a tensor that is elsewhere": ({shard(1, 2): arrays(1), shard(2, 2): arrays(2)}, {"l1.0": shard(2, 2)},
                                   f"says that {shard(2, 2)} has the tensor \"l1.0\", which is in {shard(1, 2)}"),
    "a tensor in two files": ({shard(1, 2): arrays(1), shard(2, 2): {**arrays(2), **arrays(1, 1)}}, {},
                              f"\"l1.0\" is a tensor of {shard(1, 2)} and of {shard(2, 2)}"),
    "a tensor twice in a file": ({shard(1, 2): arrays(1),
                                  shard(2, 2): raw_file(b'{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},'
                                                        b'"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}',
                                                        b"ab")}, {"x": shard(2, 2)}, f"{shard(2, 2)} has \"x\" twice"),
    "a file that is cut": ({shard(1, 2): arrays(1), shard(2, 2): raw_file({"x": ONE}, b"a")}, {"x": shard(2, 2)},
                           "by its header: it is cut"),
    "a file that is too long": ({shard(1, 2): arrays(1), shard(2, 2): raw_file({"x": ONE}, b"abc")},
                                {"x": shard(2, 2)}, "by its header: it is too long"),
    "a header that is cut": ({shard(1, 2): arrays(1), shard(2, 2): raw_file({"x": ONE})[:20]}, {"x": shard(2, 2)},
                             "has 20 bytes, and its header alone"),
    "eight bytes": ({shard(1, 2): arrays(1), shard(2, 2): struct.pack("<Q", 100)}, {"x": shard(2, 2)}, "it is cut"),
    "an empty file": ({shard(1, 2): arrays(1), shard(2, 2): b""}, {"x": shard(2, 2)}, "is no safetensors file; "),
    "another file": ({shard(1, 2): arrays(1), shard(2, 2): b"PK\3\4" + payload(99)}, {"x": shard(2, 2)},
                     f"{shard(2, 2)} is no safetensors file; "),
    "a pointer of LFS": ({shard(1, 2): arrays(1),
                          shard(2, 2): b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"},
                         {"x": shard(2, 2)}, "\"git lfs pull\" brings the file"),
    "a header that is no JSON": ({shard(1, 2): arrays(1), shard(2, 2): raw_file(b'{"x":,}')}, {"x": shard(2, 2)},
                                 f"{shard(2, 2)} is not JSON: "),
    "no offsets": ({shard(1, 2): arrays(1), shard(2, 2): raw_file({"x": {"dtype": "U8", "shape": [2]}}, b"ab")},
                   {"x": shard(2, 2)}, "does not say by data_offsets where its tensor \"x\" is"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_model_that_is_wrong(cli, s, tmp_path, case):
    files, where, said = WRONG[case]
    (tmp_path / "M").mkdir()
    write(tmp_path / "M", files, weight_map=where)
    err = cli("put", tmp_path / "M", "m").expect(FAILED).err
    assert said in err and NOTHING in err and names(s) == [], err


@pytest.mark.parametrize("index,said", (
    (b"{\"weight_map\":", f"{INDEX} is not JSON: "), (b"[1]", "has no weight_map"),
    (b"{\"weight_map\":[\"a\"]}", "has no weight_map"), (b"{}", "has no weight_map"),
    (b"{\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}", f"{INDEX} has \"a\" twice"), (b"", f"{INDEX} is not JSON")))
def test_an_index_that_is_wrong(cli, s, tmp_path, index, said):
    at = model(tmp_path / "M")
    (at / INDEX).write_bytes(index)
    err = cli("put", at, "m").expect(FAILED).err
    assert said in err and NOTHING in err and names(s) == [], err


def test_folders_where_files_are_meant(cli, s, tmp_path):
    at = model(tmp_path / "M", of=2)
    (at / shard(2, 2)).unlink()
    (at / shard(2, 2)).mkdir()
    assert f"{shard(2, 2)}, which {INDEX} names, is no file" in cli("put", at, "m").expect(FAILED).err
    (at / INDEX).unlink()
    (at / INDEX).mkdir()
    assert f"{INDEX} cannot be read: " in cli("put", at, "m").expect(FAILED).err
    os.truncate(at / shard(1, 2), 0)
    (at / INDEX).rmdir()
    os.mkfifo(at / INDEX)  # which no one writes
    assert f"{INDEX} cannot be read: " in cli("put", at, "m").expect(FAILED).err
    assert names(s) == []


def test_which_file_is_meant(cli, s, tmp_path):
    (tmp_path / "M").mkdir()
    assert f"M has no model: neither {INDEX} nor a file that" in cli("put", tmp_path / "M", "m").expect(FAILED).err
    write(tmp_path / "M", {f"{c}.safetensors": arrays(1) for c in "cab"}, index=False)
    err = cli("put", tmp_path / "M", "m").expect(FAILED).err
    assert f"has 3 files that end in .safetensors, such as a.safetensors and b.safetensors, and no {INDEX}" in err
    assert f"gpubuf put {tmp_path}/M/a.safetensors NAME" in err and names(s) == []


SMALL = b'{"gpubuf_model":1,"version":%d,"shards":[{"buffer":"%s","file":"%s"}],"index":{"file":"%s","text":""}}'


def test_names_that_are_taken(cli, s, folder, tmp_path):
    one = write(tmp_path / "One", {"model.safetensors": arrays(1)}, index=False)
    s.put("m", payload(3))
    err = cli("put", folder, "m").expect(FAILED).err
    assert "\"m\" is a buffer, and this model would be 3 others beside it: \"gpubuf rm m\"" in err and NOTHING in err
    cli("rm", "m").expect()
    for wrong in (b"{}", b"no JSON", b'{"gpubuf_model":1,"shards":[]}',
                  SMALL % (0, b"m.00001", b"x", b"i"), SMALL % (10**10, b"m.00001", b"x", b"i"),
                  SMALL % (1, b"../m.00001", b"x", b"i"), SMALL % (1, b"m.00001", b"../x", b"i"),
                  SMALL % (1, b"m.00001", b"/x", b"i"), SMALL % (1, b"m.00001", b"x", b"../i")):
        s.put("m.index", wrong, "?format=raw")
        assert "the buffer \"m.index\" is not the index of a model" in cli("put", folder, "m").expect(FAILED).err
        assert cli("get", "m", f"{tmp_path}/out/").status == NOT_FOUND and not (tmp_path / "out").exists()
    s.put("m.index", SMALL % (1, b"m.00001", b"x", b"i"), "?format=raw")
    assert "m.00001" in cli("get", "m", f"{tmp_path}/out/").expect(NOT_FOUND).err  # that one is right
    s.put("m.index", b'{"gpubuf_model":2}', "?format=raw")
    assert "by a newer gpubuf" in cli("put", folder, "m").expect(FAILED).err
    assert names(s) == ["m.index"]
    s.delete("buffers/m.index")
    cli("put", folder, "m").expect()
    err = cli("put", one, "m").expect(FAILED).err
    assert "\"m\" is a model of 3 files, and this one of a single file" in err and NOTHING in err
    cli("rm", "m").expect()
    cli("put", one, "m").expect()
    assert names(s) == ["m"]


def test_an_index_that_is_damaged(cli, s, tmp_path):
    table = write(tmp_path / "One", {"model.safetensors": arrays(2)}, index=False)
    cli("put", table / "model.safetensors", "m.index").expect()
    for wrong, word in ((None, "the buffer \"m.index\" is not the index of a model"),
                        (b"no JSON", "the buffer \"m.index\" is not the index of a model"),
                        (b'{"gpubuf_model":9}', "the model \"m\" was put by a newer gpubuf than this one")):
        if wrong:
            s.put("m.index", wrong, "?format=raw")
        for words in (("ls", "m"), ("get", "m", f"{tmp_path}/out/"), ("get", "m", tmp_path / "out"), ("rm", "m")):
            assert f"{word}, and no buffer is called \"m\"" in cli(*words).expect(NOT_FOUND).err, words
    assert names(s) == ["m.index"] and sorted(os.listdir(tmp_path)) == ["One"]
    cli("rm", "m.index").expect()
    for words in (("ls", "m"), ("get", "m", tmp_path / "out"), ("rm", "m")):
        assert "is called" not in cli(*words).expect(NOT_FOUND).err


def test_words_that_do_not_fit(cli, s, folder, tmp_path):
    for option in (("--dtype", "int8"), ("--shape", "1"), ("--raw",), ("--mirrored",), ("--in-place",), ("--offset", 1),
                   ("--slice", "0"), ("--tensor", "x"), ("--side", "host"), ("--prefix", "p"), ("--max-bytes", "1M"),
                   ("-c", 2)):
        assert "the files of a model become tables" in cli("put", folder, "m", *option).expect(USAGE).err
    assert "no pattern" in cli("put", folder, "m*").expect(USAGE).err
    assert "is no name of a model" in cli("put", folder, ".m").expect(USAGE).err
    assert "is no buffer: [SESSION/]NAME" in cli("put", folder, "n" * 129).expect(USAGE).err
    assert f"Tiny is a folder; name a file, or the model that it has a name: gpubuf put {folder} NAME" in cli(
        "put", folder).expect(USAGE).err
    assert cli("put", folder, "no/m").expect(NOT_FOUND).err and names(s) == []
    cli("put", folder, "m").expect()
    for option in (("--raw",), ("--npy",), ("--offset", 1), ("--bytes", 1), ("--slice", "0"), ("--tensor", "x")):
        assert "come as they were put" in cli("get", "m", f"{tmp_path}/o/", *option).expect(USAGE).err
    for args in (("m",), ("m", "-"), ("m", tmp_path / "x"), ("m", tmp_path / "x.safetensors")):
        err = cli("get", *args).expect(USAGE).err
        assert "\"m\" is a model in several files, which go into a folder: gpubuf get m DIR/" in err
    assert os.listdir(tmp_path) == ["Tiny"]


# --- get --------------------------------------------------------------------------------------------------------------
def test_a_model_that_lacks_a_part_leaves_no_files(cli, s, folder, tmp_path):
    cli("put", folder, "m").expect()
    s.delete("buffers/m.00002")
    for call in (("get", "m", f"{tmp_path}/out/"), ("ls", "m")):
        assert "m.00002" in cli(*call).expect(NOT_FOUND).err
    assert os.listdir(tmp_path) == ["Tiny"]


def test_an_old_folder_stays_when_a_download_fails(cli, s, folder, tmp_path):
    cli("put", folder, "m").expect()
    cli("get", "m", f"{tmp_path}/out/").expect()
    cli("put", model(tmp_path / "New", seed=2), "m").expect()
    s.delete("buffers/m.00003.v2")
    cli("get", "m", f"{tmp_path}/out/").expect(NOT_FOUND)
    same(folder, tmp_path / "out")


def test_where_nothing_can_be_written(cli, folder, tmp_path):
    cli("put", folder, "m").expect()
    (tmp_path / "file").write_bytes(b"")
    assert "cannot be" in cli("get", "m", f"{tmp_path}/file/").expect(FAILED).err
    assert "cannot be" in cli("get", "m", f"{tmp_path}/no/such/").expect(FAILED).err
    assert sorted(os.listdir(tmp_path)) == ["Tiny", "file"]


# --- ls and rm --------------------------------------------------------------------------------------------------------
def test_the_tensors_of_a_table(cli, s):
    s.put("m", file(some(), META))
    items = s.get("buffers/m/tensors?limit=1000")["items"]
    assert cli.json("ls", "m") == cli.json("ls", f"{s.name}/m") == items
    rows = cli("ls", "m").expect().table()
    assert list(rows[0]) == ["TENSOR", "DTYPE", "SHAPE", "BYTES", "OFFSET"]
    assert [r["TENSOR"] for r in rows] == [t["name"] for t in items]
    by_name = {r["TENSOR"]: r for r in rows}
    assert (by_name["last"]["DTYPE"], by_name["last"]["SHAPE"]) == ("float16", "300x40")
    assert cli("ls", "m", "-q").expect().out.split("\n")[:-1] == [t["name"] for t in items]
    assert [t["name"] for t in cli.json("ls", "m", "--prefix", "la")] == ["layer.0/w", "last"]
    assert [t["name"] for t in cli.json("ls", "m", "--prefix", "hä")] == ["häßlich"]
    assert cli.json("ls", "m", "--prefix", "nope") == []


def test_all_pages_of_tensors(cli, s):
    many = {f"t{i}": np.full(1, i % 251, "uint8") for i in range(2345)}
    s.put("m", file(many))
    assert [t["name"] for t in cli.json("ls", "m")] == list(many)
    assert len(cli.json("ls", "m", "--prefix", "t1")) == 1 + 10 + 100 + 1000


def test_a_plain_buffer_is_listed_as_ever(cli, s):
    s.put("x", payload(16), "?dtype=float32")
    s.put("m", file(some()))
    assert [b["name"] for b in cli.json("ls")] == ["x", "m"]
    assert cli.json("ls", "x")[0]["kind"] == s.meta("x")["kind"]
    assert cli.json("ls", "x", "--prefix", "x") == [{"name": "x", "dtype": "float32", "shape": [4], "bytes": 16,
                                                     "offset": 0}]
    assert [b["name"] for b in cli.json("ls", "m", "--state", "ready")] == ["m"]
    assert [b["name"] for b in cli.json("ls", "m*")] == ["m"]
    assert "no buffer" in cli("ls", "nope").expect(NOT_FOUND).err
    assert "no buffer" in cli("ls", "nope", "--prefix", "x").expect(NOT_FOUND).err
    for args in ((), ("m*",), (f"{s.name}/",), ("m", "--sort", "name")):
        assert "the tensors of one buffer" in cli("ls", *args, "--prefix", "x").expect(USAGE).err


def test_the_tensors_of_a_model(cli, s, folder):
    cli("put", folder, "m").expect()
    items = cli.json("ls", "m")
    assert [(t["name"], t["buffer"]) for t in items] == [
        ("l11.0", "m.00001"), ("l11.1", "m.00001"), ("l12.0", "m.00002"), ("l12.1", "m.00002"), ("l13.0", "m.00003")]
    for t in items:
        assert t.pop("buffer") and t in s.get(f"buffers/m.0000{t['name'][2]}/tensors")["items"]
    assert [r["BUFFER"] for r in cli("ls", "m", "--prefix", "l12").expect().table()] == ["m.00002"] * 2
    assert cli("ls", f"{s.name}/m", "-q").expect().out == "l11.0\nl11.1\nl12.0\nl12.1\nl13.0\n"
    assert {b["name"] for b in cli.json("ls", "m.*")} == set(names(s))


def test_a_model_goes_as_a_whole(cli, s, folder):
    cli("put", folder, "m").expect()
    s.put("m.other", payload(3))
    assert cli.json("rm", "m") == ["m"] and names(s) == ["m.other"]
    assert "no buffer" in cli("rm", "m").expect(NOT_FOUND).err
    # An index may name the shards of another model, as a copy of it does.
    cli("put", folder, "m").expect()
    s.put("now.index", s.data("m.index"), "?format=raw")
    assert [t["buffer"] for t in cli.json("ls", "now")][0] == "m.00001"
    cli("rm", "now").expect()
    assert names(s) == ["m.00001", "m.00002", "m.00003", "m.index", "m.other"]
