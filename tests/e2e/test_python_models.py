"""Models in several files by their names: Client.tensors, load_into, list_tensors and get_state_dict."""
import json
import pickle

import numpy as np
import pytest

from pyclient import gpubuf
from test_cli_models import INDEX, arrays, document, names, same, shard, write
from test_python_shared import quiet
from test_python_tensors import descriptors, gone, in_another, mine, network
from test_tables import META, file

from harness import optional

KIND = ("--kind", "pinned")  # which every backend maps as a file


def parts_of(seed, of=3):
    return {shard(i, of): arrays(10 * seed + i, 1 if i == of else 2) for i in range(1, of + 1)}


def together(parts):
    return {name: a for part in parts.values() for name, a in part.items()}


def put(cli, folder, parts, name="m"):
    cli("put", write(folder, parts), name, *KIND).expect()
    return together(parts)


@pytest.fixture
def there(cli, tmp_path):
    """The arrays of the model m, which is in three files."""
    return put(cli, tmp_path / "M", parts_of(1))


def test_all_tensors_of_all_files(there, s, c):
    before = descriptors(c)
    with c.tensors("m") as t:
        assert list(t) == list(there) and len(t) == 5 and len(mine(c)) == 3
        for name, a in there.items():
            assert name in t and (t[name] == a).all() and not t[name].flags.writeable
        assert [t.info(name) for name in t] == c.list_tensors("m")
        assert {t.info(name)["buffer"] for name in t} == {"m.00001", "m.00002", "m.00003"}
        assert (t.buffer, t.metadata, t.current) == ("m", {"format": "pt", "note": "a \"quoted\" word"}, True)
        assert t.nbytes == sum(c.info(f"m.0000{i}")["bytes"] for i in (1, 2, 3)) and len(t.mappings) == 3
        assert "5 tensors in 3 files" in repr(t)
        with pytest.raises(gpubuf.BadArgument, match=r"has 3 mappings: t\.mappings"):
            t.mapping  # pylint: disable=pointless-statement
        with pytest.raises(gpubuf.TensorNotFound, match="the model \"m\" has no tensor named 'none'"):
            t["none"]
        kept = t["l13.0"]
        assert not t.close() and [lease["buffer"] for lease in mine(c)] == ["m.00003"], "one array uses one file"
    assert (kept == there["l13.0"]).all()
    del kept
    gone(c, before)
    filled = {name: np.zeros_like(a) for name, a in there.items()}
    c.get_state_dict(table="m", out=filled)
    assert all((filled[name] == a).all() for name, a in there.items())
    assert [tensor["name"] for tensor in c.list_tensors("m", prefix="l12.")] == ["l12.0", "l12.1"]
    with c.tensors("m", "write") as t:
        t["l12.1"][...] = 7
    assert (c.get("m.00002", tensor="l12.1") == 7).all()


def test_a_file_that_is_missing(there, c):
    before = descriptors(c)
    c.delete("m.00002")
    for use in (lambda: c.tensors("m"), lambda: c.list_tensors("m")):
        with pytest.raises(gpubuf.BufferNotFound) as error:
            use()
        for word in ("the model \"m\" is not whole", shard(2, 3), "\"m.00002\"", "gpubuf put"):
            assert word in str(error.value), word
    gone(c, before)
    with pytest.raises(gpubuf.BufferNotFound, match="\"none\""):
        c.tensors("none")
    with pytest.raises(gpubuf.BufferNotFound):
        c.tensors("n" * 128)  # too long for an index


def test_what_is_no_model(s, c):
    for text in (b"{}", b"[1]", b"\xff", b'{"gpubuf_model": 1, "shards": []}', b'{"gpubuf_model": 1}',
                 b'{"gpubuf_model": "1", "shards": [{"buffer": "a", "file": "b"}]}'):
        s.put("m.index", text, "?format=raw")
        with pytest.raises(gpubuf.BufferNotFound, match="\"m\""):
            c.tensors("m")
    s.put("m.index", b'{"gpubuf_model": 2, "shards": []}', "?format=raw")
    with pytest.raises(gpubuf.Unsupported, match="a newer gpubuf"):
        c.tensors("m")
    s.put("m", file({"w": np.arange(3, dtype="uint8")}), "?kind=pinned&pack=true")
    assert list(c.tensors("m")) == ["w"], "a buffer of that name comes first"
    assert quiet(c)


def test_two_files_with_one_tensor(s, c):
    for i in (1, 2):
        s.put(f"m.{i}", file({"w": np.arange(i, dtype="uint8"), f"b{i}": np.arange(i, dtype="uint8")},
                             {"b2": "w", f"b{3 - i}x": "w"}), "?kind=pinned")
    document = {"gpubuf_model": 1, "version": 1, "shards": [{"buffer": f"m.{i}", "file": f"{i}"} for i in (1, 2)]}
    s.put("m.index", json.dumps(document).encode(), "?format=raw")
    with pytest.raises(gpubuf.BadArgument, match=r"\"m.1\" and \"m.2\" both have a tensor 'w'"):
        c.tensors("m")
    s.put("m.2", file({"v": np.arange(9, dtype="uint8"), "b2": np.arange(2, dtype="uint8")}), "?kind=pinned")
    with c.tensors("m") as t:
        assert set(t) == {"w", "b1", "b2", "b2x", "v"} and t["b2"].tolist() == [0, 1], "a tensor before an alias"
        assert t.info("b2x") == {"name": "b2x", "dtype": "uint8", "shape": [1], "bytes": 1, "buffer": "m.1",
                                 "alias_of": "w", "offset": t.info("w")["offset"]}
    assert quiet(c)


def test_another_version_takes_its_place(there, cli, tmp_path, c):
    """Meanwhile, and between the document and the files that it names."""
    t = c.tensors("m")
    held = dict(t)
    new = put(cli, tmp_path / "N", parts_of(2))
    assert not t.current and all((held[name] == a).all() for name, a in there.items())
    held.clear()
    t.close()
    with c.tensors("m") as t:
        assert list(t) == list(new) and {m.buffer for m in t.mappings} == {f"m.0000{i}.v2" for i in (1, 2, 3)}
    found, times = gpubuf._models.find, []

    def late(client, name):
        model = found(client, name)
        if not times:
            times.append(put(cli, tmp_path / "O", parts_of(3)))
        return model

    for use in (lambda: list(c.tensors("m")), lambda: [tensor["name"] for tensor in c.list_tensors("m")]):
        times.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gpubuf._models, "find", late)
            assert use() == list(times[0])
    assert quiet(c)


def test_links_name_the_current_version(there, cli, tmp_path, c):
    new = put(cli, tmp_path / "N", parts_of(2), "m2")
    for name in ("m.index", "m2.index"):
        c.seal(name)
    for source, arrays_of in (("m", there), ("m2", new), ("m", there)):
        cli("switch", "current.index", source + ".index").expect()
        with c.tensors("current") as t:
            assert list(t) == list(arrays_of) and t.current and t.buffer == "current"
            cli("switch", "current.index", ("m2" if source == "m" else "m") + ".index").expect()
            assert not t.current and all(mapped.current for mapped in t.mappings)
    assert quiet(c)


def test_other_processes(there, cli, tmp_path, c):
    with c.tensors("m") as t:
        said, wrong = in_another(t, "print(len(x), len(x.mappings), x['l12.0'].shape, x.current)")
        assert said == "5 3 (3, 5) True", wrong
        kept = pickle.dumps(t)
    put(cli, tmp_path / "N", parts_of(2))
    again = pickle.loads(kept)
    with pytest.raises(gpubuf.PreconditionFailed, match="another one"):
        len(again)
    with c.tensors("m", "write") as t:
        kept = pickle.dumps(t)
    new = put(cli, tmp_path / "O", parts_of(3))
    with pickle.loads(kept) as again:
        assert list(again) == list(new), "for writing, what is there"
    assert quiet(c)


# --- put_model --------------------------------------------------------------------------------------------------------


def test_a_folder_as_the_cli_puts_it(s, cli, tmp_path, c):
    folder = write(tmp_path / "M", parts_of(1))
    made = c.put_model(folder, "m", kind="pinned")
    told = document(s)
    cli("put", folder, "n", *KIND).expect()
    assert json.loads(json.dumps(document(s, "n")).replace('"n.', '"m.')) == told
    assert (made["name"], made["version"], made["tensors"]) == ("m", 1, 5)
    assert made["bytes"] == sum(p.stat().st_size for p in folder.glob("*.safetensors"))
    assert [shard["name"] for shard in made["shards"]] == [f"m.0000{i}" for i in (1, 2, 3)]
    cli("get", "m", f"{tmp_path}/out/").expect()
    same(folder, tmp_path / "out")
    with c.tensors("m") as old:
        folder = write(tmp_path / "N", parts_of(2, of=2))
        assert c.put_model(str(folder) + "/", "m", kind="pinned")["version"] == 2
        assert not old.current and (old["l12.0"] == arrays(12)["l12.0"]).all()
    assert [name for name in names(s) if name.startswith("m")] == ["m.00001.v2", "m.00002.v2", "m.index"]
    cli("put", folder, "m").expect()
    assert document(s)["version"] == 3 and quiet(c)


def test_a_folder_of_one_file(s, tmp_path, c):
    for i, called in enumerate(("model.safetensors", "x.safetensors", shard(1, 1))):
        folder = write(tmp_path / str(i), {called: {"w": np.arange(3, dtype="uint8")}}, index=i == 2)
        made = c.put_model(folder, "one")
        assert (made["version"], made["tensors"], names(s)) == (None, 1, ["one"])
        assert s.data("one") == (folder / called).read_bytes() and s.meta("one")["dtype"] == "tensors"
        assert c.put_model(folder / called, "one")["tensors"] == 1 and s.data("one") == (folder / called).read_bytes()
    with pytest.raises(gpubuf.BadArgument, match="\"one\" is a buffer.*nothing was uploaded"):
        c.put_model(write(tmp_path / "M", parts_of(1)), "one")
    c.put_model(tmp_path / "M", "m")
    with pytest.raises(gpubuf.BadArgument, match="\"m\" is a model of several files"):
        c.put_model(folder, "m")


def broken(folder, what):
    first = folder / shard(1, 3)
    body, index = first.read_bytes(), json.loads((folder / INDEX).read_text())
    if what == "missing":
        first.unlink()
    elif what in ("cut", "long", "none", "empty"):
        first.write_bytes({"cut": body[:-1], "long": body + b"x", "none": b"text", "empty": b""}[what])
    elif what == "damaged":
        first.write_bytes(body.replace(b"data_offsets", b"data_offsetz"))
    elif what == "twice":
        (folder / shard(2, 3)).write_bytes(body)
    else:
        index["weight_map"].update({"elsewhere": {"l11.0": shard(2, 3)}, "nowhere": {"more": shard(2, 3)},
                                    "outside": {"more": "../x"}}.get(what, {}))
        (folder / INDEX).write_text("{" if what == "no json" else json.dumps({} if what == "no map" else index))


@pytest.mark.parametrize("what, word", [
    ("missing", "cannot be read"), ("cut", "by its header"), ("long", "by its header"), ("none", "no safetensors file"),
    ("empty", "cannot be read"), ("damaged", "damaged"), ("twice", "is a tensor of"), ("elsewhere", "which is in"),
    ("nowhere", "in no file"), ("outside", "no file in this folder"), ("no json", INDEX), ("no map", "weight_map")])
def test_a_folder_that_is_no_model_uploads_nothing(s, tmp_path, c, what, word):
    folder = write(tmp_path / "M", parts_of(1))
    broken(folder, what)
    with pytest.raises(gpubuf.BadArgument, match=word) as error:
        c.put_model(folder, "m")
    assert "nothing was uploaded" in str(error.value) and names(s) == []
    with pytest.raises(gpubuf.BadArgument, match="0 files that end in"):
        (tmp_path / "E").mkdir()
        c.put_model(tmp_path / "E", "m")


def test_an_upload_that_fails_leaves_the_old_model(s, tmp_path, c):
    c.put_model(write(tmp_path / "M", parts_of(1)), "m")
    before = document(s), names(s)
    folder = write(tmp_path / "N", {shard(i, 2): {f"t{i}": np.zeros(200_000, "uint8")} for i in (1, 2)})
    s.patch("", {"quota": {"bytes": 300_000}})
    with pytest.raises(gpubuf.QuotaExceeded):
        c.put_model(folder, "m")
    assert (document(s), names(s)) == before
    s.patch("", {"quota": {"bytes": None}})

    put = gpubuf.Client._put_table

    def other(*given):
        """Another one publishes while this one uploads."""
        s.put("m.index", json.dumps({**before[0], "version": 7}).encode(), "?format=raw")
        return put(c, *given)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(gpubuf.PreconditionFailed):
        patch.setattr(c, "_put_table", other)
        c.put_model(folder, "m")
    assert document(s)["version"] == 7 and names(s) == before[1]


@pytest.mark.parametrize("there", [True, False])
def test_an_answer_to_the_publication_that_is_lost(s, tmp_path, c, there):
    put = gpubuf.Client.put

    def lost(name, document, **more):
        if there:
            put(c, name, document, **more)
        raise gpubuf.Unreachable("the connection broke")

    folder = write(tmp_path / "M", parts_of(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(c, "put", lost)
        if there:
            assert c.put_model(folder, "m", kind="pinned")["version"] == 1
        else:
            with pytest.raises(gpubuf.Unreachable):
                c.put_model(folder, "m")
    if there:
        with c.tensors("m") as t:
            assert len(t) == 5 and t.metadata == META
    else:
        assert names(s) == []


def test_a_module_and_a_state_dict(s, cli, tmp_path, c):
    torch = optional("torch")
    first = network(torch)
    whole = {name: tensor.detach().numpy() for name, tensor in first.state_dict().items() if name != "head.weight"}
    put(cli, tmp_path / "M", {shard(i, 2): {name: a for name, a in whole.items() if name.startswith(word)}
                              for i, word in ((1, "embed"), (2, "norm"))})
    made = network(torch, "meta")
    assert c.load_into(made, "m") == ([], [], ["scale"]) and len(mine(c)) == 2
    made.scale = torch.full((4,), 2.0)
    assert torch.equal(made(torch.arange(8)), first(torch.arange(8)))
    with c.tensors("m") as t:
        every = t.torch()
        assert list(every) == list(t) and all(torch.equal(every[name], first.state_dict()[name]) for name in every)
        del every
    got = c.get_state_dict(table="m")
    assert got.keys() == whole.keys() and all((got[name].numpy() == a).all() for name, a in whole.items())
    assert (network(torch, seed=3).load_state_dict(got, strict=False).missing_keys) == ["head.weight"]
    filled = {name: torch.zeros_like(tensor) for name, tensor in got.items()}
    assert c.get_state_dict(table="m", out=filled).keys() == got.keys()
    assert all(torch.equal(filled[name], got[name]) for name in got)
    c.delete("m.00001", when="unmapped")
    with pytest.raises(gpubuf.BufferNotFound, match=shard(1, 2)):
        c.get_state_dict(table="m")
    with pytest.raises(gpubuf.BufferNotFound, match=shard(1, 2)):
        c.load_into(made, "m")
    del made
