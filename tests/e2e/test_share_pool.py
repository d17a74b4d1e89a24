"""Memory of pools in other processes: the pool's name, what an export leaves kept, the importer's own event. With
simulated devices the handles cannot be opened; those tests ask for what stands around them."""
import base64
import ctypes
import os

import numpy as np
import pytest

from conform import Session, interface
from harness import SLOT, torch_with_gpu, until
from pyclient import client_of
from share_writer import Writer
from sharing import Local
from test_share_gpu import lacking
from values import payload

MIB = 1 << 20
SIZE = 64 * MIB


@pytest.fixture
def giving(start, backend):
    """A daemon that exports pools and events; a session over its UNIX socket."""
    fake = backend + ("," if ":" in backend else ":") + "ipc=fake,legacy=fake"
    d = start(spec=fake if backend.startswith("host") else backend)
    s = Session(d)
    s.client = d.client(unix=True)
    can = s.get("/v1/devices/0")["capabilities"]["pool_export_fd"]
    if not can["available"]:
        pytest.skip("this device exports no pools: " + can["reason"])
    return d, s


@pytest.fixture
def local(giving):
    with Local(giving[0].unix) as c:
        yield c


def mapped(daemon, local, name, session, **fields):
    answer = local.map(name, session, **fields)
    interface(daemon).check("POST", "/v1/sessions/s/buffers/b/map", answer)
    assert answer.status == 200, answer.body
    for fd in answer.fds:
        os.close(fd)
    return answer.json()


def shared_pool(s, name="p"):
    s.post("pools", {"name": name, "exportable": True}, 201)
    return f"?pool={name}"


def free_now(s):
    """The device's free bytes, read after all that was done until now: each number of a device is as of the last look,
    and a look counts the pools first."""
    pools = lambda: s.get("/v1/devices/0/stats")["pools"]
    s.post("pools", {"name": "tick"}, 201)
    have = s.get("pools")["items"]
    until("the device was looked at", lambda: pools() == len(have))
    s.delete("pools/tick")
    until("it was again", lambda: pools() == len(have) - 1)
    return s.get("/v1/devices/0/stats")["free_bytes"]


def numbers(s):
    """The pool by all ways of looking."""
    pool, stats = s.get("pools/p"), s.get("pools/p/stats")
    everywhere, = (p for p in s.get("/v1/stats")["pools"] if p["name"] == "p")
    seen = [(p["exported"], p["kept_bytes"], p["reserved_bytes"]) for p in (pool, stats, everywhere)]
    assert seen[0] == seen[1] == seen[2]
    text = s.daemon.ask("GET", "/metrics").expect(200).body.decode()
    for word, value in (("kept", seen[0][1]), ("reserved", seen[0][2])):
        line, = (x for x in text.splitlines() if x.startswith(f"gpubufd_pool_{word}_bytes{{") and 'pool="p"' in x)
        assert float(line.split()[-1]) == value
    return seen[0]


def test_the_pool_has_a_name(giving, local):
    daemon, s = giving
    s.put("x", payload(SLOT), shared_pool(s), 201)
    s.put("y", payload(SLOT), "?pool=p", 201)
    s.put("z", payload(SLOT), shared_pool(s, "q"), 201)
    x, y, z = (mapped(daemon, local, name, s.name) for name in "xyz")
    assert x["way"] == "pool" and x["pool"] == y["pool"] and x["pool"]["name"] == "p"
    assert z["pool"]["name"] == "q" and z["pool"]["id"] != x["pool"]["id"]
    for lease in (x, y, z):
        assert local.end(lease["lease"]).status == 204
    s.delete("buffers/x")
    s.delete("buffers/y")
    s.delete("pools/p")
    s.put("x", payload(SLOT), shared_pool(s), 201)
    assert mapped(daemon, local, "x", s.name)["pool"]["id"] != x["pool"]["id"], "another pool of that name"


def test_what_was_exported_is_kept(giving, local):
    daemon, s = giving
    s.put("x", payload(SIZE), shared_pool(s), 201)
    exported, kept, reserved = numbers(s)
    assert (exported, kept) == (False, 0) and reserved >= SIZE
    free = free_now(s)
    lease = mapped(daemon, local, "x", s.name)["lease"]
    assert numbers(s) == (True, reserved, reserved)
    assert local.end(lease).status == 204
    s.delete("buffers/x")
    t = s.post("pools/p/trim")
    assert t["reserved_before_bytes"] == t["reserved_after_bytes"] == t["kept_bytes"] == reserved
    assert "until the pool is deleted" in t["note"]
    assert numbers(s) == (True, reserved, reserved)
    assert free_now(s) < free + SIZE / 2, "the device has not got it back"
    s.put("x", payload(SIZE), "?pool=p", 201)  # it is of use as before
    s.delete("buffers/x")
    s.delete("pools/p")
    assert free_now(s) >= free + SIZE / 2, "the device has it back"


def test_an_event_for_the_importers_end(giving, local):
    daemon, s = giving
    s.put("x", payload(SLOT), "?kind=ipc", 201)
    s.put("y", payload(SLOT), "?kind=pageable", 201)
    x = mapped(daemon, local, "x", s.name, finished_event=True, mode="write")
    assert len(base64.b64decode(x["finished_event"])) == 64 and "finished_event_missing" not in x
    generation = s.meta("x")["generation"]
    assert local.end(x["lease"]).status == 204, "never recorded, so it is complete"
    assert s.meta("x")["generation"] > generation
    plain = mapped(daemon, local, "x", s.name)
    assert plain["finished_event"] is None and "finished_event_missing" not in plain
    y = mapped(daemon, local, "y", s.name, finished_event=True)
    assert y["finished_event"] is None and y["finished_event_missing"]
    wrong = local.map("x", s.name, finished_event="yes")
    assert wrong.status == 400 and wrong.json()["code"] == "wrong_type"


@pytest.fixture
def torch(backend):
    why = lacking(backend, "torch")
    if why:
        pytest.skip(why)


def test_deleted_when_unmapped_by_way_of_a_pool(daemon, s, session, torch):
    """The importer is a process with torch; what it maps stays its own until it unmaps."""
    s.put("x", bytes(SIZE), shared_pool(s) + f"&dtype=int32&shape={SIZE // 4}", 201)
    with Writer(daemon.unix, session, "x", "torch", "pool") as w:
        w.fill(7)
        gone = s.ask("DELETE", "buffers/x?when=unmapped").expect(202).json()
        assert gone["held_bytes"] == SIZE
        s.ask("GET", "buffers/x").problem(404, "buffer_not_found")
        s.put("other", bytes(SIZE), "?pool=p", 201)  # not in the memory that is mapped
        w.fill(8)
        assert s.data("other") == bytes(SIZE)
        assert s.get("stats")["sharing"]["held_bytes"] == SIZE
        w.end()
    until("the memory is the pool's again", lambda: s.get("stats")["sharing"]["held_bytes"] == 0)
    assert s.get("pools/p")["exported"]


def test_trim_after_a_real_export(daemon, s, session, torch):
    """An importer has mapped and unmapped it; only the device's free bytes say whether memory went back."""
    s.put("x", bytes(SIZE), shared_pool(s) + f"&dtype=int32&shape={SIZE // 4}", 201)
    with Writer(daemon.unix, session, "x", "torch", "pool") as w:
        w.fill(7)
        w.end()
    s.delete("buffers/x")
    free = free_now(s)
    t = s.post("pools/p/trim")
    assert t["kept_bytes"] == t["reserved_after_bytes"] >= SIZE and "note" in t
    assert free_now(s) < free + SIZE / 2
    s.delete("pools/p")
    assert free_now(s) >= free + SIZE / 2, "the device has it back"


# --- this process as importer -----------------------------------------------------------------------------------------


@pytest.fixture
def c(daemon, session, torch):
    with client_of(daemon, session, unix=True) as client:
        yield client


@pytest.fixture
def t(torch):
    return torch_with_gpu()


def test_two_mappings_import_a_pool_once(c, t):
    c.pools.create("p", exportable=True)
    for n, name in enumerate("xyx"):
        c.put(name, np.full(1 << 20, n, np.int32), pool="p")
    with c.map("x", "write") as x, c.map("y") as y, c.map("x", "write") as again:
        assert x.way == y.way == "pool" and again.pointer == x.pointer
        a, b, d = (t.from_dlpack(m) if m.mode == "write" else None for m in (x, y, again))
        assert (a == 2).all() and b is None
        a.fill_(5)
        t.cuda.synchronize()
        assert (d == 5).all()
        del a, d
    assert (c.get("x") == 5).all() and (c.get("y") == 1).all()
    with c.map("y") as y:  # imported again after the last mapping has ended
        assert y.way == "pool"


@pytest.mark.parametrize("how", ["kind=shared", "pool=p", "kind=ipc"])
def test_the_daemon_waits_for_the_importers_last_work(daemon, session, c, s, t, how):
    """The connection ends while the importer's work is queued."""
    if how == "pool=p":
        shared_pool(s)
    s.put("x", bytes(SIZE), f"?dtype=int32&shape={SIZE // 4}&{how}", 201)
    m = c.map("x", "write", finished_event=True)
    a = t.from_dlpack(m)
    t.cuda.synchronize()
    t.cuda._sleep(6_000_000_000)  # some seconds
    a.fill_(9)
    m.finish_on(t.cuda.current_stream().cuda_stream)
    m._lease.close()
    until("the lease is ending", lambda: [i["state"] for i in daemon.get("/v1/leases")["items"]] == ["ending"])
    s.ask("DELETE", "buffers/x").problem(409, "mapped")
    t.cuda.synchronize()
    until("the lease has ended", lambda: not daemon.get("/v1/leases")["items"])
    assert s.data("x") == np.full(SIZE // 4, 9, np.int32).tobytes()
    del a
    m.unmap()


@pytest.mark.parametrize("how", ["kind=shared", "pool=p"])
def test_another_device_writes_what_is_mapped(c, s, t, how):
    """By a memset of the other device, which reaches only what it was let in to."""
    if t.cuda.device_count() < 2 or not t.cuda.can_device_access_peer(1, 0):
        pytest.skip("there are no two GPUs that reach each other")
    if how == "pool=p":
        shared_pool(s)
    s.put("x", bytes(SIZE), f"?dtype=int32&shape={SIZE // 4}&device=0&{how}", 201)
    with c.map("x", "write", access_devices=[1]) as m:
        with t.cuda.device(1):
            t.zeros(1, device="cuda:1")
            assert ctypes.CDLL("libcuda.so.1").cuMemsetD8_v2(ctypes.c_uint64(m.pointer), 7, ctypes.c_size_t(SIZE)) == 0
            t.cuda.synchronize()
    assert s.data("x") == b"\x07" * SIZE
