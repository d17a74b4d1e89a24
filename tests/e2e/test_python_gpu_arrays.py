"""Arrays of torch, CuPy and jax on a GPU through the Python client, on the device. Needs a GPU and the library of each
test."""
import gc
import importlib

import numpy as np
import pytest
from pyclient import client_of, gpubuf

from harness import BACKENDS, optional, torch_with_gpu, until

if "cuda" not in BACKENDS:
    pytest.skip("no GPU is asked for (GB_E2E_BACKENDS)", allow_module_level=True)

N = 3 << 20  # elements; more than what goes through the host for being small
SMALL = 1000


@pytest.fixture
def c(daemon, session, backend):
    if backend != "cuda":
        pytest.skip("there is no GPU behind this backend")
    with client_of(daemon, session) as client:
        yield client


@pytest.fixture
def torch(c):
    return torch_with_gpu()


@pytest.fixture
def cupy(c):
    return optional("cupy")


@pytest.fixture
def jax(c, monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    module = optional("jax")
    try:
        if not module.devices("gpu"):
            pytest.skip("this jax has no GPU")
    except RuntimeError as e:
        pytest.skip(f"this jax has no GPU: {e}")
    importlib.import_module("jax.dlpack")
    return module


def quiet(c):
    """Nothing is lent any more."""
    until("all is given back", lambda: not [b for b in c.list() if b["name"].startswith("gpubuf.lent.")])


# --- torch ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, SMALL, N])
def test_torch(torch, c, n):
    t = torch.arange(n, dtype=torch.float32, device="cuda") * 2
    made = c.put("x", t)
    assert made["road"] == ("device" if n == N else "host"), c._roads.lending.refused
    assert (c.get("x") == t.cpu().numpy()).all()
    got = c.get("x", device="cuda:0")
    assert got.road == ("device" if n == N else "host")
    again = torch.from_dlpack(got) if n else got.torch()
    assert again.is_cuda and torch.equal(again, t) and torch.equal(got.torch(), t)
    pointer = got.pointer
    del got
    gc.collect()
    assert again.data_ptr() == pointer and torch.equal(again, t), "the tensor keeps the memory"
    out = torch.zeros_like(t)
    assert c.get("x", out=out) is out and torch.equal(out, t)
    quiet(c)


def test_work_that_is_queued_is_waited_for(torch, c):
    """The tensor is still being computed when it is put, on torch's current stream or on another one."""
    a = torch.rand(4096, 4096, device="cuda")
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            b = a
            for _ in range(30):
                b = b @ a
                b = b / b.norm()
            c.put("x", b)
            assert (c.get("x") == b.cpu().numpy()).all()
            torch.cuda._sleep(200_000_000)
            out = b.clone()
            out.zero_()
            c.get("x", out=out)  # the zeros are queued before the bytes come
            assert torch.equal(out, b)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "bool", "complex64", "int64"])
def test_types_of_torch(torch, c, name):
    kind = getattr(torch, name)
    t = (torch.arange(4 * N, device="cuda") % 7).to(torch.float32).to(kind).reshape(4, N)
    made = c.put("x", t)
    assert (made["dtype"], made["shape"], made["road"]) == (name, [4, N], "device")
    raw = (lambda t: t.reshape(-1).view(torch.uint8))
    got = c.get("x", device="cuda:0").torch()
    assert got.dtype == kind and got.shape == (4, N) and torch.equal(raw(got), raw(t))
    out = torch.empty_like(t)
    c.get("x", out=out)
    assert torch.equal(raw(out), raw(t)) and c.get("x", raw=True) == bytes(raw(t).cpu().numpy())


def test_memory_that_cannot_be_lent(torch, c):
    """A view in the middle of an allocation, with an odd begin; a tensor that is not contiguous; one with a
    gradient."""
    t = torch.arange(8 * N, dtype=torch.uint8, device="cuda")
    for at in (1, 8, 4099):
        part = t[at : at + 2 * N]
        assert c.put("x", part)["road"] == "device" and c.get("x", raw=True) == bytes(part.cpu().numpy())
    with pytest.raises(gpubuf.BadType, match=r"tensor.contiguous\(\)"):
        c.put("x", t.reshape(8, N).T)
    g = torch.ones(N, device="cuda", requires_grad=True)
    c.put("x", g)
    assert torch.equal(c.get("x", device="cuda").torch(), g.detach())


def test_a_loan_outlives_no_memory(torch, c):
    """Memory that torch gives back to CUDA and gets again, perhaps at the same address, is lent again."""
    for turn in range(5):
        t = torch.full((32 << 20,), turn, dtype=torch.uint8, device="cuda")
        c.put("x", t)
        got = c.get("x", device="cuda").torch()
        assert bool((got == turn).all())
        del t, got
        quiet(c)
        gc.collect()
        torch.cuda.empty_cache()


def test_a_state_dict(torch, c):
    module = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Conv2d(8, 8, 3),
                                 torch.nn.LayerNorm(1024)).cuda().to(torch.bfloat16)
    made = c.put_state_dict(module.state_dict(), prefix="net.")
    assert {b["road"] for b in made} == {"device", "host"}
    got = c.get_state_dict(prefix="net.", device="cuda")
    other = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Conv2d(8, 8, 3),
                                torch.nn.LayerNorm(1024)).cuda().to(torch.bfloat16)
    c.get_state_dict(prefix="net.", out=other.state_dict())
    for (name, a), b in zip(module.state_dict().items(), other.state_dict().values()):
        mine = got.get(name, got.get("net." + name))
        assert mine.is_cuda and torch.equal(a, mine) and torch.equal(a, b)
    quiet(c)


def test_a_mapped_buffer_is_copied_too(torch, c):
    """A buffer of a kind that is mapped, and a consumer whose memory cannot be lent."""
    t = torch.rand(N, device="cuda")
    made = c.put("x", t, kind="shared")
    assert (made["kind"], made["road"]) == ("shared", "device")
    with c.map("x", "write") as m:
        assert torch.equal(torch.from_dlpack(m), t)
    gc.collect()
    assert torch.equal(c.get("x", device="cuda:0").torch(), t)


# --- CuPy and jax -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "complex64", "uint8"])
def test_cupy(cupy, c, dtype):
    a = (cupy.arange(4 * N) % 251).astype(dtype).reshape(2, -1)
    made = c.put("x", a)
    assert (made["road"], made["dtype"], made["shape"]) == ("device", dtype, list(a.shape))
    assert (c.get("x") == cupy.asnumpy(a)).all()
    got = cupy.from_dlpack(c.get("x", device="cuda:0"))
    assert got.dtype == a.dtype and bool((got == a).all())
    assert bool((cupy.asarray(c.get("x", device="cuda:0")) == a).all()), "by __cuda_array_interface__"
    out = cupy.zeros_like(a)
    assert c.get("x", out=out) is out and bool((out == a).all())
    with pytest.raises(gpubuf.BadType, match="ascontiguousarray"):
        c.put("x", a.T)
    quiet(c)


def test_cupys_streams(cupy, c):
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        a = cupy.random.rand(2048, 2048, dtype=cupy.float32)
        for _ in range(20):
            a = a @ a
            a /= cupy.linalg.norm(a)
        c.put("x", a)
    assert (c.get("x") == cupy.asnumpy(a, stream=stream)).all()


def test_cupys_asynchronous_pool(cupy, c):
    """Memory of cudaMallocAsync has no handle: it goes by way of the host, or comes by a mapping."""
    with cupy.cuda.using_allocator(cupy.cuda.MemoryAsyncPool().malloc):
        a = cupy.arange(N, dtype=cupy.float32)
        out = cupy.zeros_like(a)
        c.put("x", a, kind="shared")
        assert (c.get("x") == cupy.asnumpy(a)).all()
        c.get("x", out=out)
        assert bool((out == a).all())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_jax(jax, c, dtype):
    a = jax.device_put((np.arange(4 * N) % 7).astype(np.float32).reshape(4, -1), jax.devices("gpu")[0]).astype(dtype)
    try:
        made = c.put("x", a)
    except Exception as e:
        assert dtype.startswith("float8"), e
        pytest.skip(f"this jax exports no {dtype}: {e}")
    assert (made["dtype"], made["shape"]) == (dtype, [4, N]) and made["road"] in ("device", "host")
    assert c.get("x", raw=True) == np.asarray(a).tobytes()
    try:
        got = jax.dlpack.from_dlpack(c.get("x", device="cuda:0"))
    except Exception as e:
        assert dtype.startswith("float8"), e
        pytest.skip(f"this jax imports no {dtype}: {e}")
    assert got.dtype == a.dtype and np.asarray(got).tobytes() == np.asarray(a).tobytes()
    quiet(c)
