"""State dicts in the Python client: with numpy arrays everywhere, with torch where it is installed."""
import sys

import numpy as np
import pytest
from pyclient import client_of, gpubuf
from gpubuf import _state

from harness import optional
from values import array_of


@pytest.fixture
def c(daemon, session):
    with client_of(daemon, session) as client:
        yield client


@pytest.fixture
def torch():
    return optional("torch")


ARRAYS = {"layer.0/weight": array_of("float32", (7, 3)), "layer.0/bias": array_of("float32", (3,), 1), "n": np.array(5)}


def test_the_names_are_those_of_a_safetensors_file(c):
    """Both ways of putting give the same buffers, and either's are read by the other."""
    mine = c.put_state_dict(ARRAYS, prefix="m.")
    seen = {b["name"]: b["labels"] for b in mine}
    for b in mine:
        c.delete(b["name"])
    theirs = {b["name"]: b["labels"] for b in c.tensors_put(ARRAYS, prefix="m.")}
    assert seen == theirs
    c.put_state_dict(ARRAYS, prefix="m.")
    got = c.tensors_get(prefix="m.")
    assert got.keys() == ARRAYS.keys() and all((got[name] == ARRAYS[name]).all() for name in ARRAYS)


def test_arrays_are_filled_in_place(c):
    c.put_state_dict(ARRAYS, prefix="m.", threads=2)
    out = {name: np.zeros_like(array) for name, array in ARRAYS.items()}
    got = c.get_state_dict(prefix="m.", out=out)
    assert all(got[name] is out[name] and (out[name] == ARRAYS[name]).all() for name in ARRAYS)
    with pytest.raises(gpubuf.BadArgument, match="no tensor 'absent'"):
        c.get_state_dict(prefix="m.", out={"absent": np.zeros(1)})
    with pytest.raises(gpubuf.BadArgument, match="the data is float32"):
        c.get_state_dict(prefix="m.", out={"layer.0/bias": np.zeros(3)})


def test_one_buffer_of_all(c):
    wte = array_of("float32", (7, 3))
    state = {**ARRAYS, "wte": wte, "lm_head.weight": wte, "part": wte[1:], "turned": wte.T, "none": np.zeros((0, 3))}
    (made,) = c.put_state_dict(state, table="m", metadata={"format": "np"}, kind="pinned")
    assert made["name"] == "m" and made["dtype"] == "tensors" and made["kind"] == "pinned" and made["etag"]
    listed = {t["name"]: t for t in c.list_tensors("m")}
    assert listed.keys() == state.keys() and listed["lm_head.weight"]["alias_of"] == "wte"
    assert sum("alias_of" in t for t in listed.values()) == 1
    assert all((c.get("m", tensor=name) == array).all() for name, array in state.items())
    (one,) = c.put_state_dict({"only": np.arange(3)}, table="one")
    assert one["dtype"] == "tensors"
    out = {name: np.zeros(array.shape, array.dtype) for name, array in state.items()}
    got = c.get_state_dict(table="m", out=out)
    assert all(got[name] is out[name] and (out[name] == array).all() for name, array in state.items())
    with pytest.raises(gpubuf.BadArgument, match="no tensor 'absent'"):
        c.get_state_dict(table="m", out={"absent": np.zeros(1)})
    for more, said in (({"table": "t", "prefix": "a"}, "prefix is for"), ({"metadata": {"a": "b"}}, "give table"),
                       ({"table": "t", "metadata": {"wte": "x"}}, "rename it"),
                       ({"table": "t", "metadata": {"lm_head.weight": "x"}}, "rename it")):
        with pytest.raises(gpubuf.BadArgument, match=said):
            c.put_state_dict(state, **more)
    with pytest.raises(gpubuf.BadArgument, match="prefix is for"):
        c.get_state_dict(table="m", prefix="a")
    with pytest.raises(gpubuf.BadType, match="'extra' is a dict"):
        c.put_state_dict({"extra": {}}, table="t")
    assert {b["name"] for b in c.list()} == {"m", "one"}


def test_elements_stay_in_their_order(c):
    """With strides=True; the file has the memory's shape and says the order."""
    wide = array_of("float32", (4, 3, 2))
    state = {"turned": wide.T, "middle": wide.transpose(1, 0, 2), "plain": wide, "column": np.ones((4, 1)),
             "tie": wide.T, "part": wide[:, ::2].T, "none": np.zeros((0, 3)).T, "scalar": np.array(5),
             "backwards": wide[::-1]}
    c.put_state_dict(state, table="m", kind="pinned", strides=True, metadata={"format": "np"})
    listed = {t["name"]: tuple(t["shape"]) for t in c.list_tensors("m")}
    assert listed["turned"] == (4, 3, 2) and listed["middle"] == (4, 3, 2) and listed["part"] == (2, 2, 4)
    with c.tensors("m") as t:
        assert t.metadata["format"] == "np"
        for name, array in state.items():
            assert t[name].shape == array.shape == tuple(t.info(name)["shape"]) and (t[name] == array).all(), name
        assert all(t[name].strides == state[name].strides for name in ("turned", "middle", "tie", "plain"))
        assert t["part"].strides == np.ascontiguousarray(state["part"]).strides  # not dense: a copy in C order
    out = {name: np.zeros(array.shape, array.dtype) for name, array in state.items()}
    got = c.get_state_dict(table="m", out=out)
    assert all(got[name] is out[name] and (out[name] == array).all() for name, array in state.items())
    with pytest.raises(gpubuf.BadArgument, match="'gpubuf.order', which strides=True writes"):
        c.put_state_dict(state, table="n", strides=True, metadata={"gpubuf.order": "{}"})
    with pytest.raises(gpubuf.BadArgument, match="give table"):
        c.put_state_dict(state, strides=True)


@pytest.mark.parametrize("order", ["", "{", "[]", "5", '{"a":5}', '{"a":[0,0]}', '{"a":[0]}', '{"a":["1",0]}',
                                   '{"a":[1,0,2]}', '{"b":[1,0]}', '{"a":null}', '{"a":{"1":0}}', "[" * 100000])
def test_an_order_of_others_that_is_none(c, order):
    """What is no order of these axes leaves the tensor as the file has it."""
    a = array_of("float32", (2, 3))
    c.put_state_dict({"a": a}, table="m", kind="pinned", metadata={"gpubuf.order": order})
    with c.tensors("m") as t:
        assert t["a"].shape == (2, 3) and (t["a"] == a).all()
    out = {"a": np.zeros((2, 3), np.float32)}
    assert (c.get_state_dict(table="m", out=out)["a"] == a).all()


def test_strides_of_torch(c, torch):
    image = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last)
    state = {"image": image, "turned": torch.ones(4, 8, dtype=torch.bfloat16).t(), "plain": torch.ones(3)}
    c.put_state_dict(state, table="m", kind="pinned", strides=True)
    got = c.get_state_dict(table="m")
    assert all(torch.equal(got[name], one) and got[name].stride() == one.stride() for name, one in state.items())
    with c.tensors("m") as t:
        mapped = t.torch()
        assert all(torch.equal(mapped[name], one) and mapped[name].stride() == one.stride()
                   for name, one in state.items())
        del mapped
    module = torch.nn.Module()
    module.image = torch.nn.Parameter(torch.empty(2, 3, 4, 5, device="meta"))
    c.put_state_dict({"image": image}, table="n", kind="pinned", strides=True)
    c.load_into(module, "n")
    assert torch.equal(module.image, image) and module.image.is_contiguous(memory_format=torch.channels_last)


def test_tied_weights_of_torch(c, torch):
    module = torch.nn.ModuleDict({"wte": torch.nn.Embedding(5, 4), "head": torch.nn.Linear(4, 5, bias=False)})
    module["head"].weight = module["wte"].weight
    state = module.to(torch.bfloat16).state_dict()
    c.put_state_dict(state, table="m")
    assert [t.get("alias_of") for t in c.list_tensors("m")] == [None, "wte.weight"]
    got = c.get_state_dict(table="m")
    assert got["head.weight"] is got["wte.weight"] and torch.equal(got["wte.weight"], state["wte.weight"])


def test_what_is_wrong(c):
    with pytest.raises(gpubuf.BadArgument, match="would be one buffer"):
        c.put_state_dict({"a/b": np.zeros(1), "a_b": np.zeros(1)})
    with pytest.raises(gpubuf.BadType, match="'extra' is a dict"):
        c.put_state_dict({"a": np.zeros(1), "extra": {}})
    for threads in (0, True, 65, "4"):
        with pytest.raises(gpubuf.BadArgument, match="threads is a whole number"):
            c.put_state_dict({"a": np.zeros(1)}, threads=threads)
    assert c.list() == []


def test_state_dicts_are_not_mixed_up(c):
    one, ten = ({"w": array_of("float32", (2,), i), "b" + str(i): np.array(i)} for i in range(2))
    c.put_state_dict(one, prefix="m1.")
    c.put_state_dict(ten, prefix="m10.")
    out = {"w": np.zeros(2, np.float32)}
    for prefix in ("m1", "m"):
        with pytest.raises(gpubuf.BadArgument, match=r"several state dicts: give one of 'm1\.', 'm10\.'"):
            c.get_state_dict(prefix=prefix, out=out)
    with pytest.raises(gpubuf.BadArgument, match=r"\"m1.w\" and \"m10.w\" both have the tensor 'w'.*prefix='m1\.'"):
        c.get_state_dict(out=out)
    assert (out["w"] == 0).all()
    c.put_state_dict({"w": np.full(2, 9, np.float32)}, prefix="m1.inner.")
    for prefix, state in (("m1.", one), ("m10.", ten)):
        assert (c.get_state_dict(prefix=prefix, out=out)["w"] == state["w"]).all()


def test_a_prefix_of_nothing(c):
    c.put_state_dict(ARRAYS, prefix="m.")
    with pytest.raises(gpubuf.BufferNotFound, match='no buffer whose name begins with "n."'):
        c.get_state_dict(prefix="n.", out={})


def test_what_is_no_state_dict(c):
    class Module:
        def state_dict(self):
            return {}

    with pytest.raises(gpubuf.BadType, match=r"give Module.state_dict\(\)"):
        c.put_state_dict(Module())
    for wrong in (lambda: c.put_state_dict([np.zeros(1)]), lambda: c.put_state_dict({1: np.zeros(1)}),
                  lambda: c.get_state_dict(prefix=3, out={})):
        with pytest.raises(gpubuf.BadType):
            wrong()


def test_a_device_that_torch_lacks(c, monkeypatch):
    class Torch:
        dtype = type("dtype", (), {})
        Tensor = type("Tensor", (), {})
        OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})
        uint8 = float32 = dtype()

        @staticmethod
        def empty(*_, device, **__):
            raise Torch.OutOfMemoryError("full") if device == "cuda:1" else RuntimeError("Found no NVIDIA driver")

    c.put("w", np.zeros(1, np.float32))
    monkeypatch.setitem(sys.modules, "torch", Torch)
    with pytest.raises(gpubuf.BadArgument, match="on cuda: Found no NVIDIA driver"):
        c.get_state_dict(device="cuda")
    with pytest.raises(gpubuf.OutOfMemory, match="full"):
        c.get_state_dict(device="cuda:1")


def test_the_first_error_ends_it():
    begun = []

    def work(i):
        begun.append(i)
        if i == 1:
            raise gpubuf.OutOfMemory("full")

    with pytest.raises(gpubuf.OutOfMemory):
        _state.each(work, [(i,) for i in range(9)], 1)
    assert begun == [0, 1], "what had not begun is left out"
    assert _state.each(lambda a, b: a + b, [(1, 2), (3, 4)], 2) == [3, 7]


def test_a_module_of_torch(c, torch):
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4),
                                 torch.nn.Conv2d(1, 2, 3)).to(memory_format=torch.channels_last)
    for kind in (torch.float32, torch.bfloat16, torch.float16):
        state = {name: t.to(kind) if t.is_floating_point() else t for name, t in module.state_dict().items()}
        c.put_state_dict(state, prefix="net.")
        got = c.get_state_dict(prefix="net.")
        assert got.keys() <= {"net." + name for name in state} | state.keys() and len(got) == len(state)
        for name, tensor in state.items():
            mine = got.get(name, got.get("net." + name))
            assert mine.dtype == tensor.dtype and mine.shape == tensor.shape and torch.equal(mine, tensor)
        out = {name: torch.zeros_like(t, memory_format=torch.contiguous_format) for name, t in state.items()}
        c.get_state_dict(prefix="net.", out=out)
        assert all(torch.equal(out[name], tensor) for name, tensor in state.items())
    other = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4), torch.nn.Conv2d(1, 2, 3))
    c.put_state_dict(module.state_dict(), prefix="net.")
    other.load_state_dict(c.get_state_dict(prefix="net."))
    assert all(torch.equal(a, b) for a, b in zip(module.state_dict().values(), other.state_dict().values()))


def test_types_of_torch(c, torch):
    for kind in (torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.bool, torch.complex64, torch.int64):
        tensor = torch.arange(12, dtype=torch.float32).reshape(3, 4).to(kind)
        c.put_state_dict({"t": tensor})
        (got,) = c.get_state_dict().values()
        raw = (lambda t: t.contiguous().view(torch.uint8))
        assert got.dtype == kind and got.shape == (3, 4) and torch.equal(raw(got), raw(tensor))
