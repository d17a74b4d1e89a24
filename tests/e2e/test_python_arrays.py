"""Arrays on a GPU in the Python client, with a fake GPU of host memory and a real daemon; no GPU is needed."""
import ctypes
import gc
import pickle

import numpy as np
import pytest
from fake_gpu import Consumer, FakeGpu, OnGpu
from pyclient import at_once, client_of, gpubuf
from gpubuf import _dlpack, _gpu, _lend

from harness import library, until
from values import array_of

BIG = (3, 100_001)  # of float32: more than what goes through the host for being small


@pytest.fixture
def gpu(c, monkeypatch):
    monkeypatch.setattr(_gpu, "_free", {})
    return FakeGpu(monkeypatch, c.devices.list()[0]["uuid"])


def lent(c):
    return [b["name"] for b in c.list() if b["name"].startswith("gpubuf.lent.")]


def values(seed=0):
    return array_of("float32", BIG, seed)


# --- uploads ----------------------------------------------------------------------------------------------------------


def test_a_new_buffer_and_its_replacement(c, gpu):
    first, second = values(1), values(2)
    made = c.put("x", gpu.array(first))
    assert (made["road"], made["dtype"], made["shape"], made["kind"]) == ("device", "float32", list(BIG),
                                                                          c.create("k", bytes=1)["kind"])
    assert (c.get("x") == first).all()
    again = c.put("x", gpu.array(second))
    assert again["road"] == "device" and again["generation"] == made["generation"] + 1 and (c.get("x") == second).all()
    assert not [name for name, *_ in gpu.calls if "toH" in name], "no byte went through the host"


def test_the_producers_stream_is_waited_for(c, gpu):
    source = gpu.array(values())
    c.put("x", source)
    (stream,) = source.streams
    assert stream not in (None, 0, 1, -1) and gpu.streams[0] == stream, ("our stream waits for the producer's, and is "
                                                                         "complete before the copy")
    for word, waited in (({"stream": 7}, 7), ({"stream": None}, None), ({"version": 2, "stream": 9}, 1)):
        gpu.streams.clear()
        c.put("x", gpu.array(values(), "interface", **word))
        assert gpu.streams[:-1] == ([waited] if waited else []) and (c.get("x") == values()).all()


def test_memory_of_a_kind(c, gpu):
    made = c.put("x", gpu.array(values()), kind="shared", durability="none", stream="default")
    assert (made["road"], made["kind"]) == ("device", "shared")
    assert c.put("x", gpu.array(values(2)))["kind"] == "shared" and (c.get("x") == values(2)).all()
    # Another kind is another memory, which a copy does not give.
    other = c.put("x", gpu.array(values(3)), kind="pinned")
    assert (other["road"], other["kind"]) == ("host", "pinned") and (c.get("x") == values(3)).all()


@pytest.mark.parametrize("before", [np.zeros(3), np.zeros(BIG, np.int32), np.zeros((2, *BIG), np.float32)],
                         ids=["smaller", "type", "larger"])
def test_another_layout_is_replaced_whole(c, gpu, before):
    c.put("x", before)
    assert c.put("x", gpu.array(values()))["road"] == "host"
    got = c.get("x")
    assert got.shape == BIG and got.dtype == np.float32 and (got == values()).all()
    assert c.put("x", gpu.array(values(2)))["road"] == "device"


def test_a_replacement_by_another_client_is_noticed(c, gpu, daemon):
    c.put("x", gpu.array(values()))
    with client_of(daemon, c.session) as other:
        other.put("x", np.zeros(5))
        assert c.put("x", gpu.array(values(2)))["road"] == "host" and (other.get("x") == values(2)).all()
        other.delete("x")
        assert c.put("x", gpu.array(values(3)))["road"] == "device" and (other.get("x") == values(3)).all()


def test_conditions(c, gpu):
    tag = c.put("x", gpu.array(values()), if_none_match="*")["etag"]
    with pytest.raises(gpubuf.PreconditionFailed):
        c.put("x", gpu.array(values(2)), if_none_match="*")
    tag2 = c.put("x", gpu.array(values(2)), if_match=tag)["etag"]
    for wrong in (tag, '"other"'):
        with pytest.raises(gpubuf.PreconditionFailed):
            c.put("x", gpu.array(values(3)), if_match=wrong)
    with pytest.raises(gpubuf.PreconditionFailed):
        c.put("y", gpu.array(values(3)), if_match="*")
    assert (c.put("x", gpu.array(values(4)), if_match="*")["road"] == "device" and tag2 != tag
            and (c.get("x") == values(4)).all())


def test_a_failed_copy_leaves_nothing(c, gpu, monkeypatch):
    real = gpubuf.Client._json

    def fails(self, method, path, *rest, **more):
        if path.endswith("/copy"):
            raise gpubuf.DeviceError("lost")
        return real(self, method, path, *rest, **more)

    monkeypatch.setattr(gpubuf.Client, "_json", fails)
    with pytest.raises(gpubuf.DeviceError):
        c.put("x", gpu.array(values()))
    assert c.list() == [], "neither the new buffer nor the loan is left"


def test_small_arrays_and_parts_go_through_the_host(c, gpu):
    small = array_of("int16", (3, 5))
    assert c.put("x", gpu.array(small))["road"] == "host" and (c.get("x") == small).all()
    for empty in (np.zeros((0, 4), np.float32), np.float64(3).reshape(())):
        c.put("e", gpu.array(np.asarray(empty)))
        assert c.get("e").shape == empty.shape and (c.get("e") == empty).all()
    c.put("x", gpu.array(small[1]), slice=2)
    assert (c.get("x")[2] == small[1]).all()
    c.put("x", gpu.array(small[0]), offset=10)
    assert (c.get("x")[1] == small[0]).all()
    told = []
    c.put("big", gpu.array(values()), progress=lambda *n: told.append(n))
    assert told == [(values().nbytes, values().nbytes)]


def test_pieces_through_pinned_memory(c, gpu, monkeypatch):
    """Two pieces in turn; the bytes are right whatever the size is, over one connection or several."""
    monkeypatch.setattr(_gpu, "STEP", 1000)
    monkeypatch.setattr("gpubuf._parts.PART_BYTES", 2500)
    gpu.lends = False
    for n in (1, 999, 1000, 1001, 2000, 5001):
        array = array_of("uint8", (n,), n)
        for connections in (1, 3):
            assert c.put("x", gpu.array(array), connections=connections)["road"] == "host"
            got = c.get("x", device=0)
            assert got.road == "host" and (got.numpy() == array).all() and (c.get("x") == array).all()
    assert len([1 for name, *_ in gpu.calls if name == "cuMemHostAlloc"]) <= 2 * 4, "pinned memory is used again"


def test_many_in_one_request(c, gpu):
    arrays = {"a": values(), "b": array_of("int64", (3,))}
    c.tensors_put({"a": gpu.array(arrays["a"]), "b": arrays["b"]})
    assert all((c.get(name) == array).all() for name, array in arrays.items())


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_types_that_numpy_lacks(c, gpu, dtype):
    ml_dtypes = library("ml_dtypes")
    array = np.arange(1 << 21).astype(getattr(ml_dtypes, dtype)).reshape(2, -1)
    made = c.put("x", gpu.array(array))
    assert (made["dtype"], made["road"]) == (dtype, "device") and c.get("x", raw=True) == array.tobytes()
    got = c.get("x", device="cuda:0")
    seen = Consumer(got)
    assert (seen.dtype, seen.shape, seen.bytes) == (dtype, array.shape, array.tobytes()) and got.road == "device"
    with pytest.raises(AttributeError, match="DLPack does"):
        got.__cuda_array_interface__


# --- downloads --------------------------------------------------------------------------------------------------------


def test_to_the_device(c, gpu):
    c.put("x", values(), kind="pageable")
    got = c.get("x", device="cuda:0")
    assert isinstance(got, gpubuf.DeviceArray) and (got.road, got.dtype, got.shape,
                                                    got.nbytes) == ("device", "float32", BIG, values().nbytes)
    assert ((got.numpy() == values()).all() and got.__dlpack_device__() == (2, 0)
            and got.etag == c.get("x", device="cuda").etag)
    about = got.__cuda_array_interface__
    assert about["data"] == (got.pointer, False) and about["shape"] == BIG and about["typestr"] == "<f4"
    part = c.get("x", device=0, slice=np.s_[1, 5:100])
    assert part.road == "host" and (part.numpy() == values()[1, 5:100]).all()
    c.put("x", values(2))
    assert (c.get("x", device=0).numpy() == values(2)).all() and (got.numpy() == values()).all(), "it is a copy"
    c.put("x", np.arange(400_000))
    assert (c.get("x", device=0).numpy() == np.arange(400_000)).all(), "what was known of it is out of date"


def test_axes_in_another_order(c, gpu):
    """What Tensors give of a tensor that put_state_dict(strides=True) has put."""
    c.put("x", values(), kind="pageable")
    got = c.get("x", device="cuda:0")
    turned = gpubuf.DeviceArray(got._tensor._replace(axes=(1, 0)), "mapped", got.etag)
    wanted = values().T
    assert turned.shape == wanted.shape and (turned.numpy() == wanted).all()
    assert turned.numpy().strides == turned.__cuda_array_interface__["strides"] == wanted.strides
    seen = Consumer(turned)
    assert (seen.shape, seen.strides, seen.bytes) == (wanted.shape, (1, BIG[1]), values().tobytes())


def test_into_an_array(c, gpu, daemon):
    c.put("x", values())
    out = gpu.array(np.zeros(BIG, np.float32))
    assert c.get("x", out=out) is out and (out.memory == values()).all()
    c.put("x", values(2))
    count = gpu.lent
    assert c.get("x", out=out) is out and (out.memory == values(2)).all() and gpu.lent == count, "it still was lent"
    with client_of(daemon, c.session) as other:
        other.put("x", values(3))
    assert c.get("x", out=out) is out and (out.memory == values(3)).all(), "another client has replaced it"
    assert gpu.lent == count, "its memory stays lent all the same"
    with pytest.raises(gpubuf.BadArgument, match="out is float64"):
        c.get("x", out=gpu.array(np.zeros(BIG)))
    about = dict(data=(out.memory.ctypes.data, True))
    with pytest.raises(gpubuf.BadArgument, match="read-only"):
        c.get("x", out=gpu.array(np.zeros(BIG, np.float32), "interface", **about))
    with pytest.raises(gpubuf.BadType, match="on a GPU"):
        c.get("x", device=0, out=np.zeros(BIG, np.float32))
    with pytest.raises(gpubuf.BadArgument, match="raw"):
        c.get("x", device=0, raw=True)


def test_a_download_after_a_put_is_one_copy(c, gpu, monkeypatch):
    asked, ask = [], c._transport.ask
    monkeypatch.setattr(c._transport, "ask", lambda method, target, *rest: asked.append(target)
                        or ask(method, target, *rest))
    for turn in range(3):
        c.put("x", gpu.array(values(turn)))
        asked.clear()
        assert (c.get("x", device=0).numpy() == values(turn)).all()
        assert len([target for target in asked if target.endswith("/copy")]) == 1


def test_a_buffer_that_another_process_may_write(c, gpu):
    """Its tag is another one in each answer."""
    c.put("x", values(), kind="shared")
    with c.map("x", "write"):
        got = c.get("x", device=0)
        assert got.road == "host" and (got.numpy() == values()).all()


def test_what_is_not_there(c, gpu):
    with pytest.raises(gpubuf.NotFound):
        c.get("none", device=0)
    c.put("x", values())
    c.get("x", device=0)
    c.delete("x")
    with pytest.raises(gpubuf.NotFound):
        c.get("x", device=0)
    c.put("x", values())
    tag = c.info("x")["etag"]
    with pytest.raises(gpubuf.PreconditionFailed):
        c.get("x", device=0, if_match='"other"')
    assert tag and c.list()[-1]["name"] == "x"
    for device in ("tpu", "cuda:x", 3, "cuda:9"):
        with pytest.raises(gpubuf.BadArgument, match="cuda"):
            c.get("x", device=device)


# --- lifetimes --------------------------------------------------------------------------------------------------------


def test_memory_lives_as_long_as_its_users(c, gpu, monkeypatch):
    monkeypatch.setattr(_lend, "KEEP_S", 0)
    c.put("x", values())
    got = c.get("x", device=0)
    pointer, seen = got.pointer, Consumer(got)
    del got
    gc.collect()
    assert pointer in gpu.memory, "a capsule keeps it"
    seen.guard = None
    gc.collect()
    assert pointer not in gpu.memory


def test_a_loan_ends(c, gpu):
    source = gpu.array(values())
    c.put("x", source)
    c.put("y", source)
    assert gpu.lent == 1 and len(lent(c)) == 1
    until("it is given back", lambda: not lent(c))
    c.put("x", source)
    assert gpu.lent == 2
    c.close()


def test_a_loan_is_of_one_allocation(c, gpu):
    """Memory at the same address that was allocated again is lent again."""
    source = gpu.array(values())
    c.put("x", source)
    gpu.numbers[source.memory.ctypes.data] += 1 << 20
    c.put("x", source)
    assert gpu.lent == 2


def test_what_stays_lent_is_bounded(c, gpu, monkeypatch):
    monkeypatch.setattr(_lend, "KEEP_BYTES", values().nbytes)
    c.put("x", gpu.array(values()))
    c.put("y", gpu.array(values(1)))
    assert len(lent(c)) == 1
    c._roads.lending.close()
    assert not lent(c)


def test_a_place_that_is_not_aligned(c, gpu):
    memory = gpu.allocate((1 << 21,), "uint8")
    memory[:] = np.arange(1 << 21) % 251
    for at in (0, 3, 8, 13):
        view = memory[at : at + (1 << 20)]
        assert c.put("x", OnGpu(view, "uint8", view.shape))["road"] == "device" and (c.get("x") == view).all()


def test_threads(c, gpu):
    """Puts and gets of several threads; the loans are theirs or shared, and none is left."""
    arrays = [gpu.array(values(i)) for i in range(3)]

    def work(i):
        for turn in range(4):
            c.put(f"t{i}", arrays[turn % 3])
            assert (c.get(f"t{i}", device=0).numpy() == values(turn % 3)).all()

    at_once(4, work)
    until("all is given back", lambda: not lent(c))


def test_a_copy_for_a_consumer(c, gpu):
    c.put("x", values())
    got = c.get("x", device=0)
    before = gpu.streams.copy()
    capsule = got.__dlpack__(copy=True, max_version=(1, 0))
    (made,) = [address for address, (kind, _) in _dlpack._out.items() if kind is _dlpack._Versioned]
    head = _dlpack._Versioned.from_address(made)
    assert (head.flags == _dlpack.COPIED and head.tensor.data != got.pointer
            and gpu.streams[len(before) :]), "it is complete"
    assert ctypes.string_at(head.tensor.data, got.nbytes) == values().tobytes()
    memory = head.tensor.data
    del capsule
    gc.collect()
    assert memory not in gpu.memory and got.pointer in gpu.memory
    with pytest.raises(gpubuf.BadType, match=r"array\.numpy"):
        pickle.dumps(got)


# --- what cannot be ---------------------------------------------------------------------------------------------------


def test_refusals(c, gpu):
    source = gpu.array(values())
    source.refuses = BufferError("it needs a gradient")
    with pytest.raises(BufferError, match="it needs a gradient"):
        c.put("x", source)
    for word in (dict(strides=(4, 4)), dict(mask=object())):
        with pytest.raises(gpubuf.BadType, match="C order|mask"):
            c.put("x", gpu.array(values(), "interface", **word))
    assert c.list() == []


def test_an_error_of_the_driver(c, gpu, monkeypatch):
    gpu.lends = False
    source = gpu.array(values())
    for name in ("cuStreamCreate", "cuMemHostAlloc", "cuMemcpyDtoHAsync_v2", "cuEventSynchronize"):
        gpu.fails = name
        monkeypatch.setattr(_gpu, "_free", {})
        with pytest.raises(gpubuf.DeviceError, match=f"refused {name}"):
            c.put("x", source)
        gpu.fails = None
        assert c.list() == [] and c.put("y", source) and c.delete("y")


def test_without_a_socket(daemon, session, gpu):
    with gpubuf.Client(daemon.url("").replace("127.0.0.1", "localhost"), session=session) as c:
        c._map_socket = lambda: (_ for _ in ()).throw(gpubuf.BadArgument("none"))
        assert c.put("x", gpu.array(values()))["road"] == "host" and c.get("x", device=0).road == "host"
        assert isinstance(c._roads.lending.refused, gpubuf.BadArgument)


def test_without_cuda(c, monkeypatch):
    monkeypatch.setattr("gpubuf._cuda._loaded", None)
    monkeypatch.setattr("ctypes.CDLL", lambda name: (_ for _ in ()).throw(OSError(f"{name}: cannot open")))
    c.put("x", values())
    with pytest.raises(gpubuf.Unsupported, match="finds no CUDA driver: libcuda.so.1"):
        c.get("x", device="cuda:0")
