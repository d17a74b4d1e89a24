"""gpubuf's commands of one buffer with the name of a model in several files, and with links to it."""
import numpy as np

from gpubuf_cli import FAILED, NOT_FOUND, USAGE
from test_cli_models import NOTHING, arrays, document, folder, model, names, same, write  # noqa: F401
from test_tables import META, file
from values import payload

SHARDS = ["m.00001", "m.00002", "m.00003"]


def linked(cli, folder):
    cli("put", folder, "m").expect()
    cli("seal", "m").expect()
    cli("switch", "current", "m").expect()


# --- rm ---------------------------------------------------------------------------------------------------------------
def test_a_model_that_is_linked_stays(cli, s, folder, tmp_path):
    linked(cli, folder)
    before = names(s)
    err = cli("rm", "m").expect(FAILED).err
    assert "\"m\" is in use as \"current\", whose index current.index names the same files" in err, err
    assert "\"gpubuf rm current\" first, or \"gpubuf switch current.index OTHER.index\"" in err
    assert names(s) == before
    cli("get", "current", f"{tmp_path}/out/").expect()
    same(folder, tmp_path / "out")
    cli("rm", "current").expect()  # which has no files of its own
    assert names(s) == SHARDS + ["m.index"]
    cli("rm", "m").expect()
    assert names(s) == []


def test_a_model_whose_index_was_copied_stays(cli, s, folder, tmp_path):
    cli("put", folder, "m").expect()
    s.put("now.index", s.data("m.index"), "?format=raw")
    s.put("other.index", payload(30))
    s.put("x.index", b'{"gpubuf_model":2}', "?format=raw")
    assert "in use as \"now\"" in cli("rm", "m").expect(FAILED).err
    cli("put", model(tmp_path / "New", seed=2, of=2), "now2").expect()
    s.put("now.index", s.data("now2.index"), "?format=raw")
    cli("rm", "m").expect()
    assert "m.00001" not in names(s) and "now2.00001" in names(s)


def test_all_that_is_called_as_its_own_goes(cli, s, folder):
    cli("put", folder, "m").expect()
    for name in ("m.00002.v7", "m.other", "mm.00001", "m.0001"):
        s.put(name, payload(3))
    cli("rm", "m").expect()
    assert names(s) == ["m.0001", "m.other", "mm.00001"]


def test_files_without_an_index_are_told(cli, s, folder):
    cli("put", folder, "m").expect()
    s.delete("buffers/m.index")
    said = cli("rm", "m").expect(NOT_FOUND).err
    assert "neither a buffer \"m\" nor the index of a model, m.index; of its files 3 are left, such as m.0000" in said
    assert "\"gpubuf rm 'm.[0-9]*'\" deletes them" in said
    cli("rm", "m.[0-9]*").expect()
    assert names(s) == [] and "no buffer named \"m\"" in cli("rm", "m").expect(NOT_FOUND).err
    for call in (("info", "m"), ("rm", "m"), ("seal", "m"), ("switch", "x", "m"), ("get", "m", "f", "--tensor", "t")):
        told = cli("--json", *call).expect(NOT_FOUND).json()  # what the daemon said first, with all its members
        assert told["detail"].endswith("no buffer named \"m\"") and told["type"]


# --- seal, switch, info -----------------------------------------------------------------------------------------------
def test_a_sealed_model_is_sealed_as_a_whole(cli, s, folder, tmp_path):
    cli("put", folder, "m").expect()
    sealed = cli("seal", "m").expect().out.splitlines()
    assert [line.split()[0] for line in sealed] == SHARDS + ["m.index"] and all("sealed" in line for line in sealed)
    assert all(s.meta(name)["sealed"] for name in names(s))
    assert [b["name"] for b in cli.json("seal", f"{s.name}/m")] == SHARDS + ["m.index"]  # once more changes nothing
    err = cli("put", model(tmp_path / "New", seed=2, of=2), "m").expect(FAILED).err
    assert "the model \"m\" is sealed, and no other takes its place" in err and NOTHING in err
    assert names(s) == SHARDS + ["m.index"]
    assert "no buffer named \"no\"" in cli("seal", "no").expect(NOT_FOUND).err


def test_a_model_that_lacks_a_file_is_not_sealed_in_silence(cli, s, folder):
    cli("put", folder, "m").expect()
    s.delete("buffers/m.00002")
    assert "m.00002" in cli("seal", "m").expect(NOT_FOUND).err


def test_models_are_switched_by_their_names(cli, s, folder, tmp_path):
    other = model(tmp_path / "Other", seed=2, of=2)
    cli("put", folder, "m").expect()
    cli("put", other, "m2").expect()
    err = cli("switch", "current", "m").expect(FAILED).err
    assert "\"m.index\" is not sealed" in err and "current.index" not in names(s)
    for name in ("m", "m2"):
        cli("seal", name).expect()
    assert "link to m.index" in cli("switch", "current", "m").expect().out
    s.put("x", payload(3))
    cli("seal", "x").expect()
    said = cli("switch", "current", "m2", "y", "x").expect().out
    assert "link to m2.index" in said and "link to x" in said and s.meta("current.index")["link"] == "m2.index"
    cli("get", "current", f"{tmp_path}/out/").expect()
    same(other, tmp_path / "out")
    s.put("taken", payload(3))
    err = cli("switch", "taken", "m").expect(USAGE).err
    assert "\"taken\" a buffer, which would hide its link: \"gpubuf rm taken\"" in err
    assert "\"none\"" in cli("switch", "current", "none").expect(NOT_FOUND).err
    assert "\"none\"" in cli("switch", "current", "none", "y", "x").expect(NOT_FOUND).err


def test_info_of_a_model(cli, s, folder):
    linked(cli, folder)
    told = cli.json("info", "current")
    assert (told["name"], told["session"], told["version"], told["files"], told["tensors"]) == (
        "current", s.name, 1, 3, 5)
    assert (told["index"], told["link"], told["shards"]) == ("current.index", "m.index", document(s)["shards"])
    assert told["bytes"] == sum(x["bytes"] for x in told["shards"])
    assert "m.index" in cli("info", "current").expect().out
    assert (cli.json("info", "m")["link"], cli.json("info", "m")["sealed"]) == (None, True)


def test_links_are_listed(cli, s, folder):
    assert "LINK TO" not in cli("ls").expect().out
    linked(cli, folder)
    rows = {row["NAME"]: row for row in cli("ls").expect().table()}
    assert rows["current.index"]["LINK TO"] == "m.index" and list(rows["m.index"])[-1] != "DAMAGED"
    assert cli("ls").expect().out.splitlines()[0].endswith("LINK TO") and "DURABILITY" not in cli("ls").expect().out


# --- put and get ------------------------------------------------------------------------------------------------------
def test_a_tensor_of_a_model(cli, s, folder, tmp_path):
    cli("put", folder, "m").expect()
    value = arrays(12)["l12.1"]
    cli("get", "m", tmp_path / "k.npy", "--tensor", "l12.1").expect()
    assert (np.load(tmp_path / "k.npy") == value).all()
    assert cli("get", "m", "--tensor", "l12.1", "--slice", "0").expect().raw == value[0].tobytes()
    np.save(tmp_path / "k.npy", value + 1)
    assert "m.00002" in cli("put", tmp_path / "k.npy", "m", "--tensor", "l12.1").expect().out
    assert cli("get", "m", "--tensor", "l12.1").expect().raw == (value + 1).tobytes()
    for call in (("get", "m", tmp_path / "no", "--tensor", "x"), ("put", tmp_path / "k.npy", "m", "--tensor", "x")):
        said = cli(*call).expect(NOT_FOUND).err
        assert "no file of the model \"m\" has a tensor \"x\"; \"gpubuf ls m\" lists them" in said
    assert names(s) == SHARDS + ["m.index"]


def test_a_tensor_that_the_index_does_not_name(cli, tmp_path):
    at = write(tmp_path / "M", {"a.safetensors": arrays(1), "b.safetensors": arrays(2)})
    write(at, {"b.safetensors": {**arrays(2), "more": np.ones(3, "uint8")}}, index=False)
    cli("put", at, "m").expect()
    assert cli("get", "m", "--tensor", "more").expect().raw == b"\1\1\1"


def test_a_file_does_not_hide_a_model(cli, s, folder, tmp_path):
    cli("put", folder, "m").expect()
    (tmp_path / "one.safetensors").write_bytes(file(arrays(1), META))
    err = cli("put", tmp_path / "one.safetensors", "m").expect(FAILED).err
    assert "\"m\" is a model of 3 files, and this one of a single file would be a buffer" in err and NOTHING in err
    assert names(s) == SHARDS + ["m.index"]


def test_a_model_of_one_file_comes_into_a_new_folder(cli, s, tmp_path):
    at = write(tmp_path / "Solo", {"model.safetensors": arrays(1)}, index=False)
    cli("put", at, "solo").expect()
    cli("get", "solo", f"{tmp_path}/back/").expect()
    assert (tmp_path / "back/solo.safetensors").read_bytes() == (at / "model.safetensors").read_bytes()
    assert cli("get", "none", f"{tmp_path}/no/").expect(NOT_FOUND) and not (tmp_path / "no").exists()
    cli("get", "solo", f"{tmp_path}/no/", "--npy").expect(FAILED)
    assert not (tmp_path / "no").exists()
    assert cli("seal", "solo", "x").expect(USAGE)
