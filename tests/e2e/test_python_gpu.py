"""Device memory in two processes, by torch: the daemon's bytes on a GPU, without a copy. Needs a GPU and torch."""
import gc
import time

import numpy as np
import pytest
from pyclient import client_of, gpubuf
from test_python_shared import Other, quiet

from harness import BACKENDS, torch_with_gpu, until
from values import array_of, payload

if "cuda" not in BACKENDS:
    pytest.skip("no GPU is asked for (GB_E2E_BACKENDS)", allow_module_level=True)
WAYS = ("vmm", "pool", "legacy")


@pytest.fixture
def torch(backend):
    if backend != "cuda":
        pytest.skip("there is no GPU behind this backend")
    return torch_with_gpu()


@pytest.fixture(params=WAYS)
def put(request, torch, c):
    """Puts arrays into memory that can be mapped this way."""
    if request.param == "pool":
        c.pools.create("shared", exportable=True)
    where = {"vmm": dict(kind="shared"), "pool": dict(pool="shared"), "legacy": dict(kind="ipc")}[request.param]

    def go(name, array):
        c.put(name, array, **where)
        return request.param

    return go


def test_torch_sees_and_writes(torch, c, daemon, put):
    array = array_of("float32", (256, 33))
    way = put("x", array)
    with c.map("x", "write", ways=[way]) as m:
        t = torch.from_dlpack(m)
        assert m.way == way and t.is_cuda and t.shape == (256, 33) and t.data_ptr() == m.pointer
        assert (t.cpu().numpy() == array).all()
        t[3] = 1.5
        torch.cuda.synchronize()
        assert daemon.data("x", c.session).body == np.concatenate([array[:3], np.full((1, 33), 1.5, np.float32),
                                                                   array[4:]]).tobytes()
        again = torch.as_tensor(m, device="cuda")  # by __cuda_array_interface__
        assert again.data_ptr() == t.data_ptr()
        del t, again
    del m
    gc.collect()
    assert quiet(c)


def test_work_that_is_queued_is_waited_for(torch, c, put):
    """A fill that still runs when the buffer is mapped is complete for the consumer's stream, whichever stream that
    is."""
    n = 256 << 20
    put("x", np.zeros(n, np.uint8))
    for turn, stream in enumerate((torch.cuda.current_stream(), torch.cuda.Stream())):
        op = c.submit(c.fill, "x", turn + 1, in_place=True)
        with torch.cuda.stream(stream), c.map("x", "write") as m:  # torch has no tensors that are read-only
            from_here = torch.from_dlpack(m)
            assert bool((from_here == turn + 1).all())
            del from_here
        del m
        gc.collect()
        c.operations.wait(op)
        assert quiet(c)


def test_two_processes(torch, c, put):
    way = put("x", np.zeros(1000, np.float32))
    other = Other(c)
    try:
        other.run(f"import torch; m = c.map('x', 'write', ways=['{way}']); t = torch.from_dlpack(m); t += 5; "
                  "torch.cuda.synchronize()")
        assert (c.get("x") == 5).all()
        with c.map("x", "write", ways=[way]) as m:
            mine = torch.from_dlpack(m)
            other.run("t *= 2; torch.cuda.synchronize()")
            assert bool((mine == 10).all())
            del mine
        other.end()
        assert quiet(c) and (c.get("x") == 10).all()
    finally:
        other.process.kill()
    c.fill("x", 0, in_place=True)


@pytest.mark.big
def test_sixteen_gib(torch, c):
    c.create("x", bytes=16 << 30, kind="shared")
    c.map("x").unmap()  # the driver is loaded
    begin = time.monotonic()
    with c.map("x", "write") as m:
        took = time.monotonic() - begin
        t = torch.from_dlpack(m)
        assert t.numel() == 16 << 30 and int(t[-1]) == 0
        del t
    del m
    gc.collect()
    print(f"mapped 16 GiB in {took * 1e3:.2f} ms")


def test_the_daemon_dies(torch, start):
    d = start()
    with client_of(d) as c:
        c.put("x", np.frombuffer(payload(4096), np.uint8), kind="shared")
        with c.map("x", "write") as m:
            t = torch.from_dlpack(m)
            d.kill()
            assert until("it is noticed", lambda: not m.alive)
            assert bytes(t.cpu().numpy()) == payload(4096), "an importer's mapping outlives the exporter"
            del t
        with pytest.raises(gpubuf.Unreachable):
            c.list()
