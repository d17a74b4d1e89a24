"""Client.tensors and Client.load_into on a GPU, by torch. Needs a GPU and torch."""
import gc
import json
import subprocess
import sys
import time

import pytest
from pyclient import gpubuf
from test_python_shared import quiet
from test_python_tensors import RUN, in_another, network
from test_tables import META, file, some

from harness import BACKENDS, optional, torch_with_gpu
from tensors import file_of

if "cuda" not in BACKENDS:
    pytest.skip("no GPU is asked for (GB_E2E_BACKENDS)", allow_module_level=True)
WAYS = ("vmm", "pool", "legacy")
MIB = 1 << 20


@pytest.fixture
def torch(backend):
    if backend != "cuda":
        pytest.skip("there is no GPU behind this backend")
    return torch_with_gpu()


@pytest.fixture(params=WAYS)
def put(request, torch, c, s):
    """Puts a file into memory that is mapped this way. Returns the way."""
    if request.param == "pool":
        c.pools.create("shared", exportable=True)
    where = {"vmm": "?kind=shared", "pool": "?pool=shared", "legacy": "?kind=ipc"}[request.param]

    def go(name, body):
        s.put(name, body, where)
        return request.param

    return go


def test_tensors(torch, c, s, put):
    way = put("m", file(some(), META))
    for mode in ("read", "write"):
        with c.tensors("m", mode) as t:
            assert t.mapping.way == way and [t.info(name) for name in t] == c.list_tensors("m") and t.metadata == META
            assert len([x for x in c.leases.list() if x["session"] == c.session]) == 1
            every = t.torch()
            for name, a in some().items():
                on = t[name]
                assert isinstance(on, gpubuf.DeviceArray) and on.readonly == (mode == "read")
                assert (on.numpy() == a).all()
                for seen in (t.torch(name), every[name], on.torch()):
                    assert seen.is_cuda and seen.shape == a.shape and (seen.cpu().numpy() == a).all()
                    assert not a.nbytes or seen.data_ptr() == on.pointer
            assert every["last"].untyped_storage().nbytes() == some()["last"].nbytes
            if mode == "write":
                t.torch("b")[2:4] = 77
                torch.cuda.synchronize()
                assert s.data("m", "?tensor=b&format=raw")[2:4] == b"MM"
            del every, seen, on
        gc.collect()
        assert quiet(c)


def test_cupy(torch, c, put):
    cupy = optional("cupy")
    put("m", file(some(), META))
    with c.tensors("m", "write") as t:
        for seen in (cupy.from_dlpack(t["last"]), cupy.asarray(t["last"])):
            assert seen.data.ptr == t["last"].pointer and (cupy.asnumpy(seen) == some()["last"]).all()
        del seen
    gc.collect()
    assert quiet(c)


def test_work_that_is_queued_is_waited_for(torch, c, put):
    """A fill that still runs when the buffer is mapped is complete for every stream."""
    put("x", bytes(256 * MIB))
    other = torch.cuda.Stream()
    for turn in range(1, 6):
        op = c.submit(c.fill, "x", turn, in_place=True)
        with c.tensors("x") as t, torch.cuda.stream(other):
            assert bool((t.torch("x") == turn).all())
        c.operations.wait(op)
        gc.collect()
        assert quiet(c)
    gc.collect()
    assert quiet(c)


def test_load_into(torch, c, put):
    first = network(torch)
    arrays = {name: x.detach().numpy() for name, x in first.state_dict().items() if name != "head.weight"}
    put("m", file(arrays))
    there = network(torch, "meta", 1)
    before = torch.cuda.memory_allocated()
    assert c.load_into(there, "m").on_meta == ["scale"]
    assert torch.cuda.memory_allocated() == before, "nothing was allocated, and nothing copied"
    there.scale = torch.full((4,), 2.0, device="cuda")
    assert there.head.weight is there.embed.weight and there.head.weight.is_cuda
    x = torch.arange(8)
    assert torch.allclose(there(x.cuda()).cpu(), first(x), atol=1e-5)
    del there
    gc.collect()
    assert quiet(c)


def test_in_processes_that_are_spawned(torch, c, put):
    put("m", file(some(), META))
    with c.tensors("m") as t:
        said, wrong = in_another(t, "import torch; print(x.torch('b').cpu().numpy().sum(), x.mapping.lease)")
        assert said.split()[0] == str(some()["b"].sum()) and said.split()[1] != t.mapping.lease, wrong
        assert t.mapping.current
    assert quiet(c)


def test_a_child_of_fork_is_told(torch, c, put, daemon):
    """CUDA does not work there, and the parent's mapping stays."""
    put("m", file(some(), META))
    program = RUN + f"""
import os, gpubuf
c = gpubuf.Client(socket={daemon.unix!r}, session={c.session!r})
t = c.tensors("m")
pid = os.fork()
if pid == 0:
    try:
        len(t)
    except gpubuf.Unsupported as e:
        print(e, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(t.mapping.current, t["b"].numpy().sum(), t.close())"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert "spawn" in run.stdout and f"True {some()['b'].sum()}" in run.stdout, run
    assert quiet(c)


def test_a_write_into_a_read_mapping(torch, c, s, put):
    """vmm: CUDA's error, in a process of its own; the bytes stay, and the daemon serves."""
    way = put("m", file(some(), META))
    if way != "vmm":
        pytest.skip("memory that is mapped this way can be written")
    with c.tensors("m") as t:
        line = "import torch; y = x.torch('last'); y += 1; torch.cuda.synchronize(); print('done')"
        said, wrong = in_another(t, line)
        assert "done" not in said and "CUDA" in wrong
        assert (t["last"].numpy() == some()["last"]).all()
    assert s.data("m") == file(some(), META) and quiet(c)


@pytest.mark.parametrize("count,each", [(129, 2 * MIB), (30000, 256)])
def test_the_time_of_many(torch, c, s, count, each, capsys):
    """Prints it, and asserts only that the bytes are right: client.tensors in a process whose CUDA has started."""
    header = {f"model.layers.{i}.w": {"dtype": "BF16", "shape": [each // 2], "data_offsets": [i * each, (i + 1) * each]}
              for i in range(count)}
    body = file_of(json.dumps(header).encode(), bytes(count * each))
    s.put("m", body, "?kind=shared")
    c.map("m").close()  # starts CUDA
    opened, every = [], []
    for _ in range(5):
        begin = time.perf_counter()
        t = c.tensors("m")
        opened.append(time.perf_counter() - begin)
        all_of_them = t.torch()
        every.append(time.perf_counter() - begin)
        assert len(all_of_them) == count and not all_of_them[f"model.layers.{count - 1}.w"].any()
        del all_of_them
        assert t.close()
    with capsys.disabled():
        print(f"\n{count} tensors: client.tensors in {1e3 * min(opened):.2f} ms, with all tensors of torch in "
              f"{1e3 * min(every):.2f} ms (the best of 5)")
    assert quiet(c)
