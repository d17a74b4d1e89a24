"""Client.tensors and Client.load_into: the tensors of a buffer over one mapping, in this process and in others.
test_python_tensors_gpu.py has those on a GPU."""
import asyncio
import ctypes
import functools
import gc
import json
import mmap
import multiprocessing
import os
import pickle
import subprocess
import sys
import weakref

import numpy as np
import pytest
from pyclient import SOURCE, Granter, at_once, gpubuf
from gpubuf import _cuda, _dtypes
from test_python_cuda import NAMED, UUID, FakeDriver
from test_python_map import Consumer
from test_python_shared import quiet
from test_tables import META, file, some

from harness import library, optional, until
from tensors import file_of

KIND = "?kind=pinned"  # which every backend maps as a file
RUN = f"import sys, pickle; sys.path.insert(0, {SOURCE!r}); "


@pytest.fixture
def torch():
    return optional("torch")


@pytest.fixture
def m(s):
    """A session with the buffer m, a table of some()."""
    s.put("m", file(some(), META), KIND)
    return s


def descriptors(c=None):
    """How many are open; c, whose connection is one of them, is connected first."""
    if c:
        c.about()
    return len(os.listdir("/proc/self/fd"))


def mine(c):
    return [lease for lease in c.leases.list() if lease["session"] == c.session]


def raw(s, name="m"):
    return s.data(name, "?format=raw")


def gone(c, before):
    """Neither leases nor descriptors are left."""
    gc.collect()
    assert quiet(c)
    assert until("no descriptor is left", lambda: descriptors() <= before)


# --- what is there ----------------------------------------------------------------------------------------------------


def test_names_and_arrays(m, c):
    with c.tensors("m") as t:
        listed = c.list_tensors("m")
        assert list(t) == [entry["name"] for entry in listed] and len(t) == 6 and t.metadata == META
        assert [t.info(name) for name in t] == listed
        for name, a in some().items():
            assert name in t and t[name].dtype == a.dtype and t[name].shape == a.shape and (t[name] == a).all()
            assert not t[name].flags.writeable or not a.size
        assert dict(t).keys() == t.keys() and t.get("none") is None and "none" not in t and 5 not in t
        with pytest.raises(gpubuf.TensorNotFound, match="no tensor named 'none'; there are .* and 3 more") as error:
            t["none"]
        assert isinstance(error.value, KeyError)
        assert "6 tensors" in repr(t) and "memfd" in repr(t) and t == t and t != {} and len({t}) == 1
        with pytest.raises(ValueError, match="read-only"):
            t["b"][0] = 1
        assert (t.buffer, t.session, t.mode, t.nbytes) == ("m", c.session, "read", c.info("m")["bytes"])
        assert t.mapping.current and t.mapping.etag == m.ask("HEAD", "buffers/m/data?format=raw").headers["ETag"]


def test_one_lease_and_one_descriptor(m, c):
    before = descriptors(c)
    t = c.tensors("m")
    one = descriptors() - before
    arrays = dict(t)
    assert len(mine(c)) == 1 and descriptors() - before == one and len(arrays) == 6
    with c.map("m"):
        assert descriptors() - before == 2 * one, "as many as a mapping has"
    assert not t.close() and len(mine(c)) == 1, "arrays use the memory"
    assert (arrays["last"] == some()["last"]).all()
    arrays.clear()
    gone(c, before)


def test_the_end(m, c):
    before = descriptors(c)
    t = c.tensors("m")
    a = t["last"]
    with t:
        pass
    assert not t.close(), "once more is no error, and the array is there still"
    for use in (lambda: t["b"], lambda: len(t), lambda: list(t), lambda: t.metadata, lambda: "b" in t,
                lambda: t.info("b"), lambda: t.mapping):
        with pytest.raises(gpubuf.BadArgument, match="closed"):
            use()
    assert "closed" in repr(t) and (a == some()["last"]).all()
    with pytest.raises(gpubuf.BadType, match="closed"):
        pickle.dumps(t)
    del a
    gone(c, before)
    t = c.tensors("m")
    assert int(t["scalar"]) == 5
    assert t.close() and t.close()
    c.tensors("m")  # without a close
    with c.map("m") as mapped:
        assert mapped.close() and mapped.close() and mapped.unmap()
    gone(c, before)


def test_errors_leave_no_lease(m, c):
    before = descriptors(c)
    with pytest.raises(gpubuf.BufferNotFound):
        c.tensors("none")
    with pytest.raises(gpubuf.BadArgument, match="'read' or 'write'"):
        c.tensors("m", "append")
    gone(c, before)


def test_the_buffer_is_replaced_and_deleted(m, c):
    with c.tensors("m") as t:
        assert t.mapping.current
        with pytest.raises(gpubuf.Mapped):
            c.delete("m")
        m.put("m", file(some(7), META), KIND)
        assert not t.mapping.current and (t["last"] == some()["last"]).all(), "the former bytes"
        with c.tensors("m") as new:
            assert new.mapping.current and (new["last"] == some(7)["last"]).all()
            assert not c.delete("m", when="unmapped")
            assert not new.mapping.current and (new["last"] == some(7)["last"]).all()
    assert quiet(c)


def test_errors_say_the_way_out(s, c, daemon):
    c.create("t", kind="shared", tensors=[{"name": "a.weight", "dtype": "BF16", "shape": [2]},
                                          {"name": "b", "dtype": "F32", "shape": [2]}])
    with pytest.raises(gpubuf.errors.ShapeMismatch, match="and the tensor \"a.weight\" of bfloat16"):
        c.put("t", np.ones(2, "float32"), tensor="a.weight")
    with pytest.raises(gpubuf.errors.TensorNotFound, match="client.list_tensors has its 2"):
        c.get("t", tensor="no", raw=True)
    with pytest.raises(gpubuf.errors.InvalidArgument, match=r"seal it first \(client.seal\)"):
        c.copy("t", "current", share=True)
    c.put("m", np.ones(3), kind="managed")
    said = "^\"m\" is of kind managed and cannot be mapped: upload it with kind=shared"
    with pytest.raises(gpubuf.errors.Unsupported, match=said):
        c.tensors("m")


def test_a_buffer_that_is_one_tensor(s, c):
    c.put("w", np.arange(6, dtype="int16").reshape(2, 3), kind="pinned")
    with c.tensors("w") as t:
        assert list(t) == ["w"] and (t["w"] == np.arange(6).reshape(2, 3)).all() and t.metadata == {}
        assert [t.info("w")] == c.list_tensors("w")
    s.put("p", file({"inner": np.arange(3, dtype="uint8")}), KIND + "&pack=true")
    with c.tensors("p") as t:
        assert list(t) == ["inner"] and t["inner"].tolist() == [0, 1, 2]
    s.put("none", file({}, META), KIND + "&pack=true")
    with c.tensors("none") as t:
        assert dict(t) == {} and t.metadata == META
        with pytest.raises(gpubuf.TensorNotFound, match="there are none"):
            t["x"]


def test_tens_of_thousands(s, c, monkeypatch):
    """One request for all, whatever their number."""
    arrays = {f"model.layers.{i}.w": np.full((i % 5, 3), i % 251, "uint8") for i in range(30000)}
    s.put("m", file(arrays), KIND)
    before, asked = descriptors(c), []
    monkeypatch.setattr(gpubuf.client.Transport, "ask", lambda *_, **__: asked.append(1))
    with c.tensors("m") as t:
        assert len(t) == 30000 and descriptors() - before < 5 and not asked
        for name in list(arrays)[::997]:
            assert t[name].shape == arrays[name].shape and (t[name] == arrays[name]).all()
        places = [t.info(name) for name in t]
    monkeypatch.undo()
    assert places == c.list_tensors("m")
    gone(c, before)


def test_the_order_of_the_bytes(s, c):
    """Tensors without bytes among others, and a header that has them in another order."""
    arrays = {"z": np.zeros(0, "int16"), "b": np.arange(5, dtype="uint8"), "a": np.zeros((3, 0), "float32"),
              "c": np.zeros(0, "uint8"), "d": np.arange(300, dtype="int16"), "e": np.zeros(0, "bool")}
    whole = file(arrays)
    n = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:8 + n])
    s.put("m", file_of(json.dumps(dict(sorted(header.items(), reverse=True))).encode(), whole[8 + n:]), KIND)
    with c.tensors("m") as t:
        assert [t.info(name) for name in t] == c.list_tensors("m")
        for name, a in arrays.items():
            assert t[name].dtype == a.dtype and t[name].shape == a.shape and (t[name] == a).all()


def test_aliases(s, c):
    """Tied weights, as safetensors' save_model keeps them."""
    arrays = {"wte": np.arange(6, dtype="float32"), "b": np.arange(3, dtype="uint8")}
    s.put("m", file(arrays, {"lm_head": "wte", "also": "wte", "format": "pt", "b": "wte"}), KIND)
    with c.tensors("m") as t:
        assert list(t) == ["wte", "b", "also", "lm_head"] and [t.info(name) for name in t] == c.list_tensors("m")
        assert t["lm_head"].ctypes.data == t["wte"].ctypes.data and len(t) == 4


def test_every_dtype(c):
    ml_dtypes = library("ml_dtypes")
    kinds = {name: name for name in _dtypes.SAFETENSORS if name != "complex64"}
    c.create("m", tensors=[{"name": name, "dtype": name, "shape": [3, 2]} for name in kinds], kind="pinned")
    for name in kinds:
        width = _dtypes.width(name)
        c._exchange("PUT", c._below("buffers", "m", "data") + f"?format=raw&tensor={name}",
                    {"Content-Type": "application/octet-stream"}, [memoryview(bytes(range(1, 7)) * width)])
    with c.tensors("m") as t:
        for name in kinds:
            kind = np.dtype(getattr(ml_dtypes, name) if name in _dtypes.OTHERS else name)
            assert t[name].dtype == kind and t[name].shape == (3, 2)
            assert t[name].tobytes() == bytes(range(1, 7)) * kind.itemsize


def test_a_type_without_its_library(c, monkeypatch):
    c.create("m", tensors=[{"name": "w", "dtype": "bfloat16", "shape": [3]}], kind="pinned")
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with c.tensors("m") as t:
        with pytest.raises(gpubuf.BadType, match=r"install ml_dtypes .*t\.torch"):
            t["w"]
        assert t.info("w")["dtype"] == "bfloat16"


NAMES = ["a\"b", "back\\slash", "new\nline", "tab\t", "häßlich", "\U0001f600", "a/b c", " ", "data_offsets", "\x01",
         "shape", "dtype", "__metadata", "x" * 300]


def test_unusual_names(s, c):
    arrays = {name: np.full(i + 1, i % 251, "uint8") for i, name in enumerate(NAMES)}
    s.put("m", file(arrays, {"data_offsets": "x", "": "y"}), KIND)
    with c.tensors("m") as t:
        assert list(t) == NAMES and [t.info(name) for name in t] == c.list_tensors("m")
        assert all((t[name] == a).all() for name, a in arrays.items())
        assert t.metadata == {"data_offsets": "x", "": "y"}


@pytest.mark.parametrize("style", [(",", ":"), (", ", ": ")])
def test_headers_are_read_alike(style):
    """What is found by quotation marks is what json finds, also in a header with changed bytes."""
    rng = np.random.default_rng(len(style[0]))

    def same(text):
        try:
            quick = gpubuf.tables._split(text)
            whole = gpubuf.tables._parsed(text)
        except (ValueError, LookupError, TypeError, ArithmeticError):
            return False  # a part of what is wrong is found when the tensor is used
        if quick is None:
            return False
        assert (list(quick.names), list(quick.kinds), quick.metadata) == (whole.names, whole.kinds, whole.metadata)
        assert quick.begins.tolist() == whole.begins.tolist() and quick.ends.tolist() == whole.ends.tolist()
        assert [gpubuf.tables._shape(shape) for shape in quick.shapes] == whole.shapes
        return True

    for metadata in (None, {}, {"format": "pt"}, {"ä\"}": "{\\", "": "\U0001f600"}):
        header, at = {} if metadata is None else {"__metadata__": metadata}, 0
        for i in range(int(rng.integers(1, 9))):
            shape = rng.integers(0, 30, rng.integers(0, 4)).tolist()
            end = at + int(np.prod(shape))
            header[f"häßlich.{i}" if i % 3 else f"w{i}"] = {"dtype": "U8", "shape": shape, "data_offsets": [at, end]}
            at = end
        text = json.dumps(header, separators=style, ensure_ascii=False).encode()
        assert all(same(text + end) for end in (b"", b" ", b"    \n"))
        for _ in range(300):
            i, n = int(rng.integers(0, len(text))), int(rng.integers(0, 3))
            others = bytes(rng.choice(list(b'"\\{}[]:, 0a\xff'), n).tolist())
            same(text[:i] + others + text[i + int(rng.integers(0, 3)):])
    assert not same(b"{}")
    assert not same(json.dumps({"a\nb": {"dtype": "U8", "shape": [], "data_offsets": [0, 1]}}).encode())


# --- a process that writes --------------------------------------------------------------------------------------------


def test_what_is_written(m, c):
    arrays = some()
    with c.tensors("m", "write") as t:
        t["b"][2:4] = 77
        t["last"][...] = 3
        assert m.data("m", "?tensor=b&format=raw")[2:4] == b"MM"
    arrays["b"][2:4], arrays["last"][...] = 77, 3
    assert m.data("m") == file(arrays, META) and quiet(c)


def header_of(s):
    whole = raw(s)
    return 8 + int.from_bytes(whole[:8], "little")


DAMAGE = {  # what a process writes over a header, from where on: the word of the error
    "no length": (0, b"\xff" * 8, "longer than the buffer"), "no json": (8, b"[", "Expecting|Extra data|column"),
    "no object": (8, None, "no JSON object"), "out of place": (b"[0, ", b"[1, ", "follow each other"),
    "a type": (b'"F32"', b'"F99"', "'F99'"), "a shape": (b"[33, 5]", b"[33, 6]", "has 660 bytes"),
    "negative": (b"[33, 5]", b"[33,-5]", "has 660 bytes"), "no number": (b"[33, 5]", b'["3",5]', "has 660 bytes"),
    "another end": (b"660]", b"661]", "follow each other"),
    "no offsets": (b"data_offsets", b"data_offsetz", "overwritten"),
    "utf-8": (b"layer", b"\xff\xffyer", "overwritten"), "huge": (b"[0, 660]", b"[0,1e99]", "overwritten")}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_header_that_was_overwritten(m, c, name):
    at, text, word = DAMAGE[name]
    whole = raw(m)
    if text is None:
        text = b"[]".ljust(header_of(m) - 8)
    before = descriptors(c)
    with c.map("m", "write") as mapped:
        at = whole.index(at) if isinstance(at, bytes) else at
        np.asarray(mapped)[at:at + len(text)] = np.frombuffer(text, "uint8")
    with pytest.raises(gpubuf.UnsupportedArray, match=word) as error, c.tensors("m") as t:
        t["layer.0/w"]
    assert "was overwritten" in str(error.value) and "upload the file again" in str(error.value)
    gone(c, before)


def test_the_mapping_of_a_table_is_of_its_bytes(m, c):
    with c.map("m") as mapped:
        assert (mapped.dtype, mapped.shape) == ("tensors", (mapped.nbytes,))
        for seen in (np.asarray(mapped), mapped.array(), np.array(mapped, copy=False)):
            assert seen.dtype == np.uint8 and seen.tobytes() == raw(m)
        held = Consumer(mapped)
        assert ctypes.string_at(held.data, mapped.nbytes) == raw(m) and (held.code, held.bits) == (1, 8)
        held.free()
        del seen


def test_a_write_through_a_read_only_export_is_private(m, c):
    """Consumers such as torch do not know read-only memory: the process lives, and the bytes of others stay."""
    with c.tensors("m", "write") as writer, c.tensors("m") as t:
        a = t["last"]
        writer["last"][-1, -1] = 9
        assert a[-1, -1] == 9, "what others write is seen"
        held = Consumer(t.mapping)
        assert held.flags == 1
        ctypes.memset(held.data + t.info("last")["offset"] + a.nbytes - 9, 0, 9)
        assert not a[-1, -4:].any() and writer["last"][-1, -1] == 9
        assert m.data("m", "?tensor=last&format=raw") == writer["last"].tobytes()
        writer["b"][0] = 1
        assert t["b"][0] == 1, "pages that were not written are still the buffer's"
        held.free()
        del a


def test_without_pages_that_are_copied(s, c):
    """Where the system gives none, reading works still, and an export that could end the process is refused."""
    c.put("x", np.arange(64 << 20, dtype="uint8"), kind="pinned")
    program = f"""if True:
        {RUN}
        import resource, numpy, gpubuf
        c = gpubuf.Client(socket={s.daemon.unix!r}, session={c.session!r})
        c.about()
        used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData")) << 10
        resource.setrlimit(resource.RLIMIT_DATA, (used + (40 << 20), resource.RLIM_INFINITY))
        with c.tensors("x") as t:
            assert t["x"][5] == 5 and int(t["x"][-1]) == 255 and numpy.asarray(t.mapping)[7] == 7
            try:
                t.mapping.__dlpack__(max_version=(1, 0))
            except BufferError as e:
                print(e)
        with c.map("x", "write") as m:
            m.__dlpack__(max_version=(1, 0))
        print(c.leases.list())"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert run.returncode == 0 and "RLIMIT_DATA" in run.stdout and run.stdout.endswith("[]\n"), run


# --- other processes --------------------------------------------------------------------------------------------------


def in_another(thing, line):
    """Runs a line of Python in a fresh process that has the thing, unpickled, as x."""
    program = RUN + f"x = pickle.load(sys.stdin.buffer); {line}"
    run = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(thing), capture_output=True, timeout=100)
    return run.stdout.decode().strip(), run.stderr.decode()


SUM = "print(int(x['b'].sum()), len(x), x.mapping.lease, x.mode, x.metadata['format'])"


def test_pickled_it_maps_again(m, c):
    total = int(some()["b"].sum())
    with c.tensors("m") as t:
        lease = t.mapping.lease
        said, wrong = in_another(t, "print(repr(x)); " + SUM)
        assert said.startswith("<gpubuf.Tensors") and "not mapped yet" in said, wrong
        other = said.split()[-3]
        assert said.split()[-5:] == [str(total), "6", other, "read", "pt"] and other != lease
        assert until("the other's lease has ended", lambda: [x["lease"] for x in mine(c)] == [lease])
        assert t.mapping.current
        m.put("m", b"1234567", "?tensor=b")
        said, wrong = in_another(t, SUM)
        assert not said and "PreconditionFailed" in wrong and "map it anew" in wrong
        held = pickle.dumps(t)
    again = pickle.loads(held)
    with pytest.raises(gpubuf.PreconditionFailed):
        len(again)
    m.ask("DELETE", "buffers/m").expect(204)
    with pytest.raises(gpubuf.BufferNotFound):
        len(again)
    assert again.close() and quiet(c)


def test_threads_of_another_process_map_once(m, c):
    held = pickle.dumps(c.tensors("m"))
    assert quiet(c)
    again, leases = pickle.loads(held), set()

    def use(_):
        assert int(again["b"].sum()) == int(some()["b"].sum())
        leases.add(again.mapping.lease)

    at_once(8, use)
    assert len(leases) == len(mine(c)) == 1 and again.close()
    assert quiet(c)


def test_pickled_for_writing(m, c):
    with c.tensors("m", "write") as t:
        said, wrong = in_another(t, "x['b'][0] = 250; x.close(); print('written')")
        assert said == "written", wrong
        assert t["b"][0] == 250 and m.data("m", "?tensor=b&format=raw")[0] == 250
    assert quiet(c)


def test_a_pickled_mapping(m, c):
    with c.map("m", ways=["memfd"]) as mapped:
        said, wrong = in_another(mapped, "print(x.lease, x.array().sum(), x.current, x.way)")
        assert said.split()[1:] == [str(mapped.array().sum()), "True", "memfd"], wrong
        assert said.split()[0] != mapped.lease
        again = pickle.loads(pickle.dumps(mapped))
        assert len(mine(c)) == 2 and bytes(again.array()) == bytes(mapped.array())
        assert again.close()
        m.put("m", b"1234567", "?tensor=b")
        with pytest.raises(gpubuf.PreconditionFailed):
            pickle.loads(pickle.dumps(mapped))
    with pytest.raises(gpubuf.BadType, match="unmapped"):
        pickle.dumps(mapped)
    assert quiet(c)


def forked(work):
    """What work returns in a child of fork, which ends as multiprocessing's do."""
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("fork")

    def child():
        try:
            there.send(work())
        except BaseException as e:
            there.send(e)

    process = context.Process(target=child)
    process.start()
    got = here.recv()
    process.join(60)
    assert process.exitcode == 0
    if isinstance(got, BaseException):
        raise got
    return got


def test_a_child_of_fork(m, c):
    total = some()["last"].astype("float64").sum()
    with c.tensors("m") as t, c.map("m") as mapped:
        lease = t.mapping.lease

        def use():
            first = float(t["last"].astype("float64").sum())
            own = t.mapping.lease
            seen = bytes(mapped.array()[:4])
            t.close()
            mapped.unmap()
            return first, own, seen

        for _ in range(2):
            got = forked(use)
            assert got[0] == total and got[1] not in (lease, mapped.lease) and got[2] == raw(m)[:4]
        assert until("its leases have ended", lambda: {x["lease"] for x in mine(c)} == {lease, mapped.lease})
        assert t.mapping.current and mapped.current and mapped.alive and (t["last"] == some()["last"]).all()
        forked(lambda: t["last"].sum() * 0)  # ends without a close
        assert until("its lease has ended", lambda: len(mine(c)) == 2)
        with pytest.raises(gpubuf.BadArgument, match="forked"):
            forked(lambda: mapped.current)
        with pytest.raises(gpubuf.BadArgument, match="forked"):
            forked(lambda: mapped.load("m"))
        m.put("m", b"1234567", "?tensor=b")
        with pytest.raises(gpubuf.PreconditionFailed):
            forked(lambda: len(t))
        assert mapped.alive
    assert quiet(c)


def test_a_child_of_fork_on_a_gpu(monkeypatch):
    """CUDA's start is not inherited."""
    driver = _cuda.Driver(FakeDriver())
    monkeypatch.setattr(_cuda, "_loaded", driver)
    assert _cuda.load() is driver
    with pytest.raises(gpubuf.Unsupported, match="spawn"):
        forked(lambda: bool(_cuda.load()))


def test_asyncio(m, c):
    async def main():
        a = gpubuf.AsyncClient(c)
        t = await a.tensors("m")
        return int(t["b"].sum()), t.close()

    assert asyncio.run(main()) == (int(some()["b"].sum()), True)


# --- device memory, without a device ----------------------------------------------------------------------------------


class DeviceOfMemory(FakeDriver):
    """A driver whose device memory is that of the descriptor that is imported."""

    def __init__(self):
        super().__init__()
        self.memory = None

    def called(self, name, arguments):
        plain = [getattr(a, "value", a) for a in (getattr(a, "_obj", a) for a in arguments)]
        done = super().called(name, arguments)
        if name == "cuMemImportFromShareableHandle":
            self.memory = mmap.mmap(plain[1], 0, mmap.MAP_PRIVATE)
        elif name == "cuMemAddressReserve":
            arguments[0]._obj.value = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        elif name == "cuMemcpyDtoHAsync_v2":
            ctypes.memmove(plain[0], plain[1], plain[2])
        return done


@pytest.fixture
def device(tmp_path, monkeypatch):
    """A client of a daemon that grants a table in memory of such a device, and the fake driver."""
    driver = DeviceOfMemory()
    monkeypatch.setattr("gpubuf._cuda.load", functools.cache(lambda: _cuda.Driver(driver)))
    made = []

    def go(data, mode=None):
        made.append(Granter(tmp_path, data, "tensors", (len(data),), mode, way="vmm", before=4096, offset=4096,
                            kind="shared", device={"index": 0, "uuid": NAMED}))
        return gpubuf.Client(socket=made[0].path), made[0], driver

    yield go
    for granter in made:
        granter.close()


@pytest.mark.parametrize("count", [6, 3000])
def test_on_a_device(s, c, device, count):
    """A short header, and one that does not come with the first bytes that are read."""
    many = {f"some.rather.long.name.{i}": np.full(i % 7, i % 251, "uint8") for i in range(count)}
    arrays = some() if count == 6 else many
    s.put("m", file(arrays, META), KIND)
    on_it, granter, driver = device(raw(s))
    for mode in ("read", "write"):
        with on_it.tensors("x", mode) as t:
            assert [t.info(name) for name in t] == c.list_tensors("m") and t.metadata == META
            assert len(driver.of("cuMemcpyDtoHAsync_v2")) == (1 if count == 6 else 2)
            for name, a in list(arrays.items())[::count // 6]:
                on = t[name]
                assert isinstance(on, gpubuf.DeviceArray) and (on.shape, on.dtype, on.road) == (a.shape, str(a.dtype),
                                                                                                "mapped")
                assert on.readonly == (mode == "read") and on.etag == t.mapping.etag and on.ordinal == 1
                assert ctypes.string_at(on.pointer, on.nbytes) == a.tobytes()
                held = Consumer(on)
                assert (held.flags, held.device, held.id, held.data or 0) == (mode == "read", 2, 1, on.pointer)
                held.free()
                assert on.__cuda_array_interface__["data"] == (on.pointer, mode == "read")
            driver.calls.clear()
            del on
    assert until("both leases have ended", lambda: len(granter.deleted) == 2)


def test_an_order_of_axes_on_a_device(s, c, device):
    """Consumers get the strides of a tensor whose elements stay in their order."""
    a = np.arange(24, dtype="int32").reshape(2, 3, 4).transpose(2, 0, 1)
    c.put_state_dict({"a": a, "plain": np.ones(3)}, table="m", kind="pinned", strides=True)
    on_it, granter, _ = device(raw(s))
    with on_it.tensors("x") as t:
        on = t["a"]
        assert on.shape == (4, 2, 3) and ctypes.string_at(on.pointer, on.nbytes) == a.transpose(1, 2, 0).tobytes()
        about = on.__cuda_array_interface__
        assert about["shape"] == (4, 2, 3) and about["strides"] == a.strides
        assert t["plain"].__cuda_array_interface__["strides"] is None
        held = Consumer(on)
        assert held.numbers(held.shape_at) == [4, 2, 3] and held.numbers(held.strides_at) == [1, 12, 4]
        held.free()
        del on, held
    assert until("the lease has ended", lambda: len(granter.deleted) == 1)


def test_an_array_on_a_device_holds_the_lease(s, device):
    s.put("m", file(some(), META), KIND)
    on_it, granter, driver = device(raw(s))
    t = on_it.tensors("x")
    a = t["last"]
    assert not t.close() and not granter.ended.is_set() and "cuMemUnmap" not in driver.names()
    with pytest.raises(BufferError, match="mapped for reading"):
        a.__dlpack__()
    del a
    gc.collect()
    assert granter.ended.wait(60) and "cuMemUnmap" in driver.names()
    assert UUID  # the device that the driver names


# --- torch ------------------------------------------------------------------------------------------------------------


def test_torch_sees_the_bytes(torch, m, c):
    before = descriptors(c)
    with c.tensors("m") as t:
        for name, a in some().items():
            seen = t.torch(name)
            assert seen.shape == a.shape and str(seen.dtype) == f"torch.{a.dtype}" and (seen.numpy() == a).all()
            assert seen.untyped_storage().nbytes() == a.nbytes and not seen.requires_grad and seen.is_contiguous()
        every = t.torch()
        assert list(every) == list(t) and all((every[name].numpy() == a).all() for name, a in some().items())
        with pytest.raises(gpubuf.TensorNotFound):
            t.torch("none")
        every["last"] += 1
        assert (t["last"] == some()["last"] + 1).all() and m.data("m") == file(some(), META), "a page of this process"
        seen = every["b"]
    assert (seen.numpy() == some()["b"]).all() and len(mine(c)) == 1
    del seen, every
    gone(c, before)
    with c.tensors("m", "write") as t:
        t.torch("b")[2:4] = 77
    assert m.data("m", "?tensor=b&format=raw")[2:4] == b"MM"


def test_a_read_mapping_in_torch_is_written_without_harm(torch, c):
    """In a process of its own, which a write into read-only pages would end."""
    c.put("x", np.arange(12, dtype="float32"), kind="pinned")
    with c.map("x") as mapped:
        said, wrong = in_another(mapped, "import torch; t = torch.from_dlpack(x); t += 1; print(t.sum().item())")
        assert said == "78.0", wrong
    assert c.get("x").sum() == 66


def test_types_of_torch(torch, c):
    names = [name for name in _dtypes.SAFETENSORS if hasattr(torch, name) and name != "complex64"]
    c.create("m", tensors=[{"name": name, "dtype": name, "shape": [3, 2]} for name in names], kind="pinned")
    with c.tensors("m") as t:
        for name in names:
            assert t.torch(name).dtype == getattr(torch, name) and t.torch(name).shape == (3, 2)
            assert not t.torch(name).view(torch.uint8).any()


def test_aliases_are_one_tensor(torch, s, c):
    s.put("m", file({"wte": np.arange(6, dtype="float32")}, {"lm_head": "wte"}), KIND + "&pack=true")
    with c.tensors("m") as t:
        every = t.torch()
        assert every["lm_head"] is every["wte"]
        del every


def test_without_torch(m, c, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with c.tensors("m") as t, pytest.raises(gpubuf.Unsupported, match="import torch"):
        t.torch("b")
    with pytest.raises(gpubuf.BadType, match=r"torch\.nn\.Module"):
        c.load_into(object(), "m")
    for more, said in (({"table": "m"}, r"client.tensors\('m'\)"), ({"prefix": "m"}, "client.tensors_get")):
        with pytest.raises(gpubuf.Unsupported, match="import torch first.*" + said):
            c.get_state_dict(**more)
    assert quiet(c)


def as_file(module, leave=(), **metadata):
    return file({name: tensor.detach().numpy() for name, tensor in module.state_dict().items() if name not in leave},
                metadata or None)


def network(torch, device="cpu", seed=0):
    """Has a buffer of numbers, one that is no part of its state dict, and a tied weight."""
    torch.manual_seed(seed)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(11, 4)
            self.norm = torch.nn.BatchNorm1d(4)
            self.head = torch.nn.Linear(4, 11, bias=False)
            self.head.weight = self.embed.weight
            self.register_buffer("scale", torch.full((4,), 2.0), persistent=False)

        def forward(self, x):
            return self.head(self.norm(self.embed(x)) * self.scale)

    with torch.device(device):
        return Net().eval()


def test_load_into_a_module_on_meta(torch, s, c):
    first = network(torch)
    x = torch.arange(8)
    s.put("m", as_file(first, ["head.weight"]), KIND)
    before = descriptors(c)
    there = network(torch, "meta", 1)
    got = c.load_into(there, "m")
    assert got == ([], [], ["scale"]) and got.on_meta == ["scale"] and len(mine(c)) == 1
    there.scale = torch.full((4,), 2.0)
    assert there.head.weight is there.embed.weight and isinstance(there.head.weight, torch.nn.Parameter)
    assert not any(p.requires_grad for p in there.parameters()) and torch.equal(there(x), first(x))
    assert there.embed.weight.untyped_storage().nbytes() == 11 * 4 * 4
    reference = weakref.ref(there)
    del there
    gc.collect()
    assert reference() is None
    gone(c, before)


def test_a_state_dict_and_back(torch, c):
    """Its tied weight is there once, and both names find it."""
    first = network(torch)
    c.put_state_dict(first.state_dict(), table="m", kind="pinned")
    there = network(torch, "meta")
    assert c.load_into(there, "m") == ([], [], ["scale"]) and torch.equal(there.head.weight, first.head.weight)
    with c.tensors("m") as t:
        assert {t.info(name).get("alias_of") for name in ("embed.weight", "head.weight")} & {"embed.weight",
                                                                                            "head.weight"}
        assert list(t.torch()) == list(t) and set(t) == set(first.state_dict())
    del there
    gc.collect()
    assert quiet(c)


def test_load_into_replaces_what_is_there(torch, s, c):
    first, there, x = network(torch), network(torch, seed=1), torch.arange(8)
    s.put("m", as_file(first), KIND)
    assert not torch.equal(there(x), first(x))
    there.embed.weight.mark = "kept"
    assert c.load_into(there, "m") == ([], [], []) and torch.equal(there(x), first(x))
    assert there.embed.weight.mark == "kept" and there.norm.num_batches_tracked.shape == ()
    del there
    gc.collect()
    assert quiet(c)


def test_load_into_for_writing(torch, s, c):
    first = network(torch)
    s.put("m", as_file(first, ["head.weight"]), KIND)
    there = network(torch, "meta")
    c.load_into(there, "m", mode="write")
    assert there.embed.weight.requires_grad
    with torch.no_grad():
        there.embed.weight.fill_(3)
    assert c.get("m", tensor="embed.weight").min() == 3
    del there
    gc.collect()
    assert quiet(c)


def test_what_does_not_fit_changes_nothing(torch, s, c):
    first = network(torch)
    arrays = {name: tensor.detach().numpy() for name, tensor in first.state_dict().items() if name != "head.weight"}
    del arrays["norm.bias"]
    arrays["norm.weight"] = arrays["norm.weight"].astype("float16")
    arrays["norm.running_mean"] = arrays["norm.running_mean"][:3]
    arrays["more"] = np.zeros(3, "uint8")
    s.put("m", file(arrays), KIND)
    there = network(torch, "meta")
    before = dict(there.named_parameters()), dict(there.named_buffers())
    with pytest.raises(gpubuf.BadArgument) as error:
        c.load_into(there, "m")
    for word in ("missing in the buffer: norm.bias", "not in the module: more", "strict=False", "nothing was changed",
                 "norm.weight is float16 [4] in \"m\" and float32 [4] in the module",
                 "norm.running_mean is float32 [3] in \"m\" and float32 [4] in the module", "module.to(dtype)"):
        assert word in str(error.value), word
    with pytest.raises(gpubuf.BadArgument, match="norm.weight is float16") as error:
        c.load_into(there, "m", strict=False)
    assert "missing" not in str(error.value)
    after = dict(there.named_parameters()), dict(there.named_buffers())
    assert all(a[name] is b[name] for a, b in zip(before, after) for name in a)
    arrays["norm.weight"], arrays["norm.running_mean"] = np.ones(4, "float32"), np.zeros(4, "float32")
    s.put("m", file(arrays), KIND)
    got = c.load_into(there, "m", strict=False)
    assert got == (["norm.bias"], ["more"], ["scale", "norm.bias"]) and there.norm.bias is before[0]["norm.bias"]
    lazy = torch.nn.LazyLinear(3)
    with pytest.raises(gpubuf.BadArgument, match="without a shape in the module"):
        s.put("m", file({"weight": np.zeros((3, 2), "float32"), "bias": np.zeros(3, "float32")}), KIND)
        c.load_into(lazy, "m")
    del there, error  # whose traceback has the module
    gc.collect()
    assert quiet(c)


def test_ties_that_the_device_meta_lost(torch, s, c):
    """tie_weights of a transformers' module makes them again."""
    first = network(torch)
    s.put("m", as_file(first, ["head.weight"]), KIND)
    there = network(torch, "meta")
    there.head.weight = torch.nn.Parameter(torch.empty(11, 4, device="meta"))
    with pytest.raises(gpubuf.BadArgument, match="missing in the buffer: head.weight"):
        c.load_into(there, "m")

    def tie():
        there.head.weight = there.embed.weight

    there.tie_weights = tie
    c.load_into(there, "m")
    assert there.head.weight is there.embed.weight and torch.equal(there.embed.weight, first.embed.weight)
    # the name that the file has may be either, and an alias
    s.put("m", file({"head.weight": first.head.weight.detach().numpy()}), KIND + "&pack=true")
    c.load_into(there, "m", strict=False)
    assert there.head.weight is there.embed.weight and torch.equal(there.embed.weight, first.embed.weight)
    alone = torch.nn.ModuleDict({"head": torch.nn.Linear(4, 11, bias=False, device="meta")})
    s.put("m", file({"embed.weight": first.head.weight.detach().numpy()}, {"head.weight": "embed.weight"}),
          KIND + "&pack=true")
    assert c.load_into(alone, "m") == ([], [], []) and torch.equal(alone["head"].weight, first.head.weight)


def test_a_module_in_several_buffers(torch, s, c):
    first = network(torch)
    parts = {name: tensor.detach().numpy() for name, tensor in first.state_dict().items() if name != "head.weight"}
    s.put("m.1", file({name: a for name, a in parts.items() if name.startswith("embed")}), KIND + "&pack=true")
    s.put("m.2", file({name: a for name, a in parts.items() if name.startswith("norm")}), KIND)
    there = network(torch, "meta")
    with pytest.raises(gpubuf.BadArgument, match="missing in the buffer: norm.weight"):
        c.load_into(there, "m.1")
    c.load_into(there, ["m.1", "m.2"])
    there.scale = torch.full((4,), 2.0)
    assert torch.equal(there(torch.arange(8)), first(torch.arange(8))) and len(mine(c)) == 2
    with pytest.raises(gpubuf.BadArgument, match="both have a tensor"):
        c.load_into(there, ["m.1", "m.1"])
    with pytest.raises(gpubuf.BadType, match="list of texts"):
        c.load_into(there, 5)


class Rows:
    """A data set as users write them. It stands here so that a worker that is spawned finds it."""

    def __init__(self, tensors):
        self.tensors = tensors

    def __len__(self):
        return len(self.tensors["rows"])

    def __getitem__(self, i):
        return np.array(self.tensors["rows"][i]), self.tensors.mapping.lease, os.getpid()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_of_a_data_loader(torch, s, c, start):
    rows = np.arange(64, dtype="float32").reshape(16, 4)
    s.put("m", file({"rows": rows, "other": rows}), KIND)
    with c.tensors("m") as t:
        loader = torch.utils.data.DataLoader(Rows(t), batch_size=4, num_workers=2, multiprocessing_context=start)
        got = list(loader)
        assert torch.equal(torch.cat([batch for batch, _, _ in got]), torch.from_numpy(rows))
        leases = {lease for _, of, _ in got for lease in of}
        assert len(leases) == 2 and t.mapping.lease not in leases
        assert len({int(pid) for _, _, pids in got for pid in pids} | {os.getpid()}) == 3
        del loader, got
        assert until("the workers' leases have ended", lambda: len(mine(c)) == 1)
        assert t.mapping.current and (t["rows"] == rows).all()
    assert quiet(c)
