"""The Python client as a mapping of names, pickled, in asyncio and as a file system; and the warnings about files."""
import asyncio
import copy
import io
import mmap
import multiprocessing
import pickle
import subprocess
import sys
import threading
import warnings
import zipfile

import numpy as np
import pytest
from pyclient import SOURCE, client_of, gpubuf

from harness import library
from test_tables import META, file, some
from values import array_of, payload

BIG = 13 << 20


# --- names ------------------------------------------------------------------------------------------------------------


def test_names(c):
    assert list(c) == [] and "x" not in c and 3 not in c
    for name in ("a.1", "a.2", "b"):
        c.put(name, array_of("float32", (2, 3)))
    assert list(c) == ["a.1", "a.2", "b"] and "b" in c and [b["name"] for b in c.list(prefix="a.")] == ["a.1", "a.2"]
    assert c.delete("b") is True and c.delete("b", missing_ok=True) is True
    with pytest.raises(gpubuf.BufferNotFound):
        c.delete("b")
    with pytest.raises(gpubuf.SessionNotFound):
        c.with_session("none").delete("b", missing_ok=True)
    with pytest.raises(gpubuf.SessionNotFound):
        "x" in c.with_session("none")


def test_a_list_of_some(c):
    c.put("a.1", bytes(9), labels={"model": "llama", "step": "1"})
    c.put("a.2", bytes(5), labels={"model": "other"}, kind="pageable")
    c.put("b", bytes(7))
    assert c.info("a.1")["labels"] == {"model": "llama", "step": "1"}

    def names(**some):
        return [b["name"] for b in c.list(**some)]

    assert names(sort="-bytes") == ["a.1", "b", "a.2"] and names(sort="bytes", prefix="a.") == ["a.2", "a.1"]
    assert (names(label="model") == ["a.1", "a.2"] and names(label="model=llama") == ["a.1"]
            and names(label="model", prefix="b") == [])
    assert (names(kind="pageable") == ["a.2"] and names(state="ready", sort="-name") == ["b", "a.2", "a.1"]
            and names(state="lost") == [])
    for prefix in ("a*", "a.?", "[ab]"):
        with pytest.raises(gpubuf.BadArgument, match="no pattern"):
            c.list(prefix=prefix)
    assert c.list(prefix="-") == []
    with pytest.raises(gpubuf.InvalidArgument):
        c.list(sort="size")


def test_labels_of_a_put(c):
    made = c.put("x", b"123", labels={"of": "test"})
    assert (made["labels"], made["road"]) == ({"of": "test"}, "host") and made["etag"] == c.info("x")["etag"]
    assert c.put("x", b"456", labels={"more": "1"})["labels"] == {"of": "test",
                                                                  "more": "1"} == c.put("x", b"789")["labels"]
    with pytest.raises(gpubuf.BadArgument, match="sets no labels"):
        c.submit(c.put, "x", b"1", labels={"a": "b"})
    for wrong in (["of"], {"of": None}, {1: "a"}):
        with pytest.raises(gpubuf.BadType):
            c.put("x", b"1", labels=wrong)
    with pytest.raises(gpubuf.PreconditionFailed):
        c.put("x", b"1", labels={"of": "changed"}, if_match="other")
    assert c.info("x")["labels"] == {"of": "test", "more": "1"} and c.get("x", raw=True) == b"789"


def test_labels_of_what_is_replaced_meanwhile(c, monkeypatch):
    update = c.update

    def replaced(name, **more):
        if "if_match" in more:
            c.put("x", b"theirs")
        return update(name, **more)

    monkeypatch.setattr(c, "update", replaced)
    made = c.put("x", b"mine", labels={"of": "test"})
    assert (made["generation"], made["labels"], c.get("x", raw=True),
            c.info("x")["labels"]) == (1, {"of": "test"}, b"theirs", {"of": "test"})


def test_to_the_host(c):
    c.put("x", np.arange(3))
    out = np.zeros(3, int)
    assert (c.get("x", device="cpu") == [0, 1, 2]).all() and c.get("x", device="cpu", out=out) is out and out[2] == 2


def test_a_table_for_notebooks(c):
    c.put("a.1", array_of("float32", (2, 3)))
    c.update("a.1", labels={"x": "<b>"})
    table = c._repr_html_()
    assert table.startswith("<table>") and "<td>a.1</td><td>float32</td><td>[2, 3]</td><td>24</td>" in table
    assert f"session {c.session} at" in table and "1 buffers, 24 bytes" in table


def test_pickled(c):
    c.put("x", array_of("int32", (5,)))
    again = pickle.loads(pickle.dumps(c))
    assert (again.url, again.session, again._socket, again._transport.timeout) == (c.url, c.session, c._socket,
                                                                                   c._transport.timeout)
    assert (again._transport is not c._transport and (again.get("x") == c.get("x")).all() and again.pools.list()
            == c.pools.list())
    assert copy.copy(c)._transport is c._transport and c.with_session("other")._transport is c._transport
    again.close()
    keyed = gpubuf.Client("http://127.0.0.1:1", token="secret", retries=5, timeout=7)
    other = pickle.loads(pickle.dumps(keyed))
    assert (other._transport.token, other._transport.retry.retries, other._transport.timeout) == ("secret", 5, 7)


def test_what_is_of_this_process_is_not_pickled(daemon, session):
    with client_of(daemon, session) as c:
        c.put("x", b"1", kind="shared")
        with c.adopt("y", c.shared_array(4)) as owned, c.feed() as feed:
            fleet = gpubuf.Fleet("http://127.0.0.1:1")
            for thing, said in ((owned, "the name of the buffer"), (feed, "last_id"),
                                (gpubuf.AsyncClient(c), "its client"), (c.pools, "the client that has it"),
                                (fleet, "Fleet(urls)")):
                for call in (pickle.dumps, copy.deepcopy, *(() if thing is c.pools else (copy.copy,))):
                    with pytest.raises(gpubuf.BadType, match="belongs to this process") as error:
                        call(thing)
                    assert said in str(error.value) and isinstance(error.value, TypeError)
            assert copy.copy(c.pools).list() == c.pools.list()


def test_in_a_worker_that_is_spawned(c):
    """As a DataLoader's worker gets it, by fork or spawn."""
    c.put("x", np.arange(9))
    program = f"import sys, pickle; sys.path.insert(0, {SOURCE!r}); print(pickle.load(sys.stdin.buffer).get('x').sum())"
    run = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(c), capture_output=True, timeout=60)
    assert run.stdout.strip() == b"36", run.stderr
    pool = multiprocessing.get_context("fork").Pool(2)
    got = pool.map(c.get, ["x"] * 4)
    pool.close()  # the workers end by themselves: Pool.terminate may wait for ever for one that it has just begun
    pool.join()
    assert [a.sum() for a in got] == [36] * 4


def test_a_fleets_client_is_not_pickled():
    class Owner(gpubuf.client.Transport):
        pass

    client = gpubuf.Client("http://127.0.0.1:1")
    client._transport.__class__ = Owner
    with pytest.raises(gpubuf.BadType, match=r"Fleet\(urls\)"):
        pickle.dumps(client)


# --- files that hold arrays -------------------------------------------------------------------------------------------


def npz():
    f = io.BytesIO()
    np.savez(f, a=np.zeros(3), b=np.ones(2))
    return f.getvalue()


def zipped(*names):
    f = io.BytesIO()
    with zipfile.ZipFile(f, "w") as z:
        for name in names:
            z.writestr(name, "x" * 100)
    return f.getvalue()


@pytest.mark.parametrize("data, said", [(npz(), r"tensors_put\(dict\(numpy.load"),
                                        (zipped("m/data.pkl", "m/data/0"), "torch.load"),
                                        (zipped("a.txt"), "unpack it"), (zipped("a")[:50], "unpack it"),
                                        (pickle.dumps([1, 2]), "pickle"),
                                        (file(some(), META), r"client.put_model\(path, name\)")],
                         ids=["npz", "pt", "zip", "cut", "pickle", "safetensors"])
def test_a_file_that_holds_arrays(c, data, said):
    with pytest.warns(gpubuf.StoredAsBytes, match=said) as seen:
        made = c.put("x", data)
    assert (made["dtype"], c.get("x", raw=True)) == ("uint8", data) and seen[0].filename == __file__
    with mmap.mmap(-1, len(data)) as mapped:
        mapped[:] = data
        with pytest.warns(gpubuf.StoredAsBytes, match=said):
            c.put("x", mapped)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        c.put("x", data, dtype="uint8")


@pytest.mark.parametrize("data", [b"", b"P", b"PK", payload(1000), b"\x80\x02", b"\x80\x04abc",
                                  bytearray(b"\x80\x04" + bytes(9)), bytes(16), b"\2" + bytes(7) + b"{",
                                  b"\2" + bytes(7) + b"{]", b"\3" + bytes(7) + b"{}"], ids=repr)
def test_other_bytes(c, data):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        c.put("x", data)
        c.put("x", np.frombuffer(npz(), np.uint8))


# --- asyncio ----------------------------------------------------------------------------------------------------------


def test_asyncio(c):
    async def go():
        async with gpubuf.AsyncClient(c, threads=4) as a:
            arrays = [array_of("float32", (100 + i, 7), i) for i in range(9)]
            await asyncio.gather(*(a.put(f"x{i}", array) for i, array in enumerate(arrays)))
            got = await asyncio.gather(*(a.get(f"x{i}") for i in range(9)))
            assert all((mine == array).all() for mine, array in zip(got, arrays))
            assert (len(await a.list(prefix="x", sort="-name", kind="device")) == 9 and (await a.info("x1"))["name"]
                    == "x1")
            assert len(await a.run(a.client.streams.list)) == 1
            told = []
            await a.put("big", np.zeros(BIG, np.uint8), progress=lambda *n: told.append(n))
            assert told[-1] == (BIG, BIG)
            with pytest.raises(gpubuf.BufferNotFound):
                await a.get("none")

    asyncio.run(go())
    with pytest.raises(gpubuf.Closed):
        c.list()
    with pytest.raises(gpubuf.BadType):
        gpubuf.AsyncClient("http://127.0.0.1")


def test_a_cancelled_transfer_ends(c):
    async def go():
        a = gpubuf.AsyncClient(c)
        loop, begun = asyncio.get_running_loop(), asyncio.Event()
        goes_on = threading.Event()

        def progress(done, total):
            loop.call_soon_threadsafe(begun.set)
            assert goes_on.wait(60)

        task = asyncio.create_task(a.put("x", np.zeros(BIG, np.uint8), progress=progress))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        goes_on.set()
        await asyncio.get_running_loop().run_in_executor(None, a._pool.shutdown)
        assert c.list() == []
        c.close()

    asyncio.run(go())


def test_a_feed_in_asyncio(c):
    async def go():
        a = gpubuf.AsyncClient(c)
        seen = []

        async def listen(feed):
            async for event in feed:
                seen.append((event["type"], event.get("buffer")))
                if event.get("buffer") == "last":
                    return

        after = c.feed().last_id
        feed = a.feed(after=after if after is not None else 0, type="buffer.")
        task = asyncio.create_task(listen(feed))
        await a.put("first", np.zeros(3))
        await a.put("last", np.zeros(3))
        await task
        await feed.aclose()
        assert seen and seen[-1][1] == "last"
        await a.close()

    asyncio.run(go())


# --- fsspec -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def fs(c):
    library("fsspec")
    from gpubuf.filesystem import FileSystem

    return FileSystem(url=c.url, skip_instance_cache=True)


def test_files(c, fs):
    where = f"gpubuf://{c.session}/"
    data = payload(100_000)
    with fs.open(where + "x", "wb") as f:
        f.write(data[:1000])
        f.write(data[1000:])
        assert "x" not in c, "it appears whole"
    assert (c.get("x", raw=True) == data and fs.size(where + "x") == len(data) and fs.exists(where + "x")
            and not fs.exists(where + "none"))
    with fs.open(where + "x", "rb", block_size=4096) as f:
        assert f.read(10) == data[:10]
        f.seek(50_000)
        assert f.read(5000) == data[50_000:55_000] and f.seek(-5, 2) and f.read() == data[-5:]
    assert (fs.cat(where + "x") == data and fs.cat_file(where + "x", -10) == data[-10:]
            and fs.cat_file(where + "x", 3, 9) == data[3:9])
    c.put("y", np.zeros((2, 3)))
    assert (fs.ls(where, detail=False) == [f"{c.session}/x", f"{c.session}/y"] and fs.isdir(where)
            and fs.isfile(where + "x"))
    assert c.session in fs.ls("", detail=False) and fs.glob(where + "*") == [f"{c.session}/x", f"{c.session}/y"]
    fs.cp(where + "x", where + "y")
    fs.mv(where + "x", where + "z")
    assert (fs.cat(where + "y") == data == fs.cat(where + "z") and "x" not in c and fs.info(where + "y")["shape"]
            == [len(data)])
    fs.rm(where + "y")
    fs.pipe(where + "p", b"123")
    assert c.get("p", raw=True) == b"123" and fs.modified(where + "p") >= fs.created(where + "p")
    for wrong in (lambda: fs.cat(where + "none"), lambda: fs.rm(where + "none"), lambda: fs.ls("gpubuf://none"),
                  lambda: fs.info(where + "none"), lambda: fs.open(where + "none", "rb")):
        with pytest.raises(FileNotFoundError):
            wrong()
    with pytest.raises(gpubuf.BadArgument, match="SESSION/NAME"):
        fs.open("gpubuf://only", "wb")
    with pytest.raises(gpubuf.BadArgument, match="rb or wb"):
        fs.open(where + "x", "ab")


@pytest.mark.parametrize("size", (50_000, 500))
def test_a_file_that_is_replaced_while_it_is_read(c, fs, size):
    c.put("x", payload(50_000))
    with fs.open(f"gpubuf://{c.session}/x", "rb", block_size=1000) as f:
        f.read(100)
        c.put("x", bytes(size))
        f.seek(40_000)
        with pytest.raises(gpubuf.PreconditionFailed):
            f.read(100)


def test_options_are_checked(c):
    library("fsspec")
    from gpubuf.filesystem import FileSystem

    with pytest.raises(gpubuf.BadArgument, match="no option 'sockt'; there are url, address, socket"):
        FileSystem(url=c.url, sockt="/nope", skip_instance_cache=True)
    with pytest.raises(gpubuf.BadArgument, match="SESSION/NAME"):
        FileSystem(session="a", sockett="/nope", skip_instance_cache=True)
    with pytest.raises(gpubuf.BadArgument, match="one option"):
        FileSystem(url=c.url, address=c.url, skip_instance_cache=True)
    fs = FileSystem(address=c.url, use_listings_cache=False, skip_instance_cache=True)
    assert fs._client.url == c.url and pickle.loads(pickle.dumps(fs))._client.url == c.url


def test_what_an_exception_breaks_off_is_not_stored(c, fs):
    path = f"{c.session}/broken"
    for before in (False, True):
        with pytest.raises(RuntimeError), fs.open(path, "wb") as f:
            f.write(b"half")
            raise RuntimeError
        assert fs.exists(path) == before
        fs.pipe(path, b"whole")
    assert fs.cat(path) == b"whole"


def test_all_of_a_session(c, fs):
    c.sessions.create("files", exist_ok=True)
    for name in "abc":
        fs.pipe(f"files/{name}", b"1")
    with pytest.raises(gpubuf.BadArgument):
        fs.rm("files")
    fs.rm("files/a")
    fs.rm("files", recursive=True)
    assert fs.ls("files") == [] and fs.isdir("files")
    c.sessions.delete("files")


IMPOSSIBLE = ["x/y", "x/y/z", "a b", "-x", "ä", "x" * 129, "x" * 9000, ".", "..", "/x", "a%2Fb"]


@pytest.mark.parametrize("name", IMPOSSIBLE, ids=lambda name: name[:8])
def test_names_that_cannot_be_are_not_there(c, fs, name):
    c.put("x", b"1")
    path = f"{c.session}/{name}"
    assert not fs.isdir(path) and not fs.isfile(path) and not fs.exists(path) and name not in c
    for read in (fs.info, fs.ls, fs.cat, fs.cat_file, lambda p: fs.open(p, "rb"), fs.rm_file, fs.created, fs.modified,
                 fs.size, lambda p: fs.cp_file(p, f"{c.session}/n"), lambda p: fs.cat_file(p, 0, 1),
                 lambda p: fs.mv(p, f"{c.session}/n")):
        with pytest.raises(FileNotFoundError):
            read(path)
    mapper = fs.get_mapper(c.session)
    assert (name not in mapper and mapper.get(name) is None and mapper.getitems([name, "x"], on_error="omit")
            == {"x": b"1"} and sorted(mapper) == ["x"])
    for lookup in (lambda: mapper[name], lambda: mapper.pop(name)):
        with pytest.raises(KeyError):
            lookup()
    for write in (lambda: fs.pipe_file(path, b"2"), lambda: fs.pipe_file(path, b"2", mode="create"),
                  lambda: fs.open(path, "wb").close(), lambda: fs.open(path, "xb").close(),
                  lambda: fs.cp_file(f"{c.session}/x", path), lambda: fs.mkdir(path)):
        with pytest.raises((gpubuf.BadRequest, gpubuf.BadArgument)):
            write()
    assert list(c) == ["x"]


@pytest.mark.parametrize("absent", ["none", "bad name", "-", "..", "s" * 129])
def test_a_session_that_is_not_there(c, fs, absent):
    c.put("x", b"1")
    here, there = f"{c.session}/x", f"{absent}/x"
    assert not fs.isdir(absent) and not fs.exists(there) and not fs.isdir(there) and not fs.isfile(there)
    for read in (lambda: fs.info(absent), lambda: fs.ls(absent), lambda: fs.info(there), lambda: fs.cat(there),
                 lambda: fs.cat_file(there, 0, 1), lambda: fs.open(there, "rb"), lambda: fs.rm(there),
                 lambda: fs.cp_file(there, here), lambda: fs.open(absent, "rb"), lambda: fs.cat(absent)):
        with pytest.raises(FileNotFoundError):
            read()
    for write in (lambda: fs.pipe_file(there, b"1"), lambda: fs.pipe_file(there, b"1", mode="create"),
                  lambda: fs.open(there, "wb"), lambda: fs.open(there, "xb"), lambda: fs.touch(there),
                  lambda: fs.cp_file(here, there), lambda: fs.mv(here, there)):
        with pytest.raises(FileNotFoundError if absent == "none" else (gpubuf.BadRequest, gpubuf.BadArgument)):
            write()
    assert list(c) == ["x"]


def test_a_session_is_no_file(c, fs):
    for read in (lambda: fs.open(c.session, "rb"), lambda: fs.cat_file(c.session)):
        with pytest.raises(IsADirectoryError):
            read()
    assert fs.created(c.session) <= fs.modified(c.session)


def test_a_new_file_alone(c, fs):
    """Exclusive creation: what exists is seen when the file is opened, and what comes meanwhile when it is closed."""
    path = f"gpubuf://{c.session}/x"
    with fs.open(path, "xb") as f:
        f.write(b"12")
    with fs.open(f"{c.session}/t", "x") as f:
        f.write("text")
    fs.pipe_file(f"{c.session}/p", b"34", mode="create")
    assert c.get("x", raw=True) == b"12" and c.get("t", raw=True) == b"text" and c.get("p", raw=True) == b"34"
    for again in (lambda: fs.open(path, "xb"), lambda: fs.open(path, "x"),
                  lambda: fs.pipe_file(path, b"3", mode="create"), lambda: fs.pipe({path: b"3"}, mode="create")):
        with pytest.raises(FileExistsError):
            again()
    file = fs.open(f"{c.session}/y", "xb")
    file.write(b"mine")
    c.put("y", b"theirs")
    with pytest.raises(FileExistsError, match="/y"):
        file.close()
    assert c.get("y", raw=True) == b"theirs" and c.get("x", raw=True) == b"12" and file.closed
    with pytest.raises(RuntimeError), fs.open(f"{c.session}/z", "xb") as f:
        f.write(b"half")
        raise RuntimeError
    with fs.transaction:
        with fs.open(f"{c.session}/z", "xb") as f:
            f.write(b"whole")
        assert "z" not in c
    assert c.get("z", raw=True) == b"whole"


def test_a_copy_says_what_is_missing(c, fs):
    c.put("x", b"1")
    for source, target, named in ((f"{c.session}/none", f"{c.session}/y", f"{c.session}/none"),
                                  ("none/x", f"{c.session}/y", "none/x"), (f"{c.session}/x", "none/y", "none/y"),
                                  (f"{c.session}/none", "none/y", f"{c.session}/none"), ("none", "y", "none")):
        with pytest.raises(FileNotFoundError) as error:
            fs.cp_file(source, target)
        assert error.value.args == (named,)


def test_all_of_a_session_is_copied(c, fs, tmp_path):
    """Into a session that is made, into one that exists, and into a folder of files and back."""
    other, third = c.session + "-2", c.session + "-3"
    arrays = {"a": np.arange(6.).reshape(2, 3), "b": np.zeros(0, np.int8)}
    for name, array in arrays.items():
        c.put(name, array)
    fs.cp(c.session, other, recursive=True)
    fs.mkdir(third)
    fs.cp(f"{c.session}/", f"{third}/", recursive=True)
    fs.cp(f"{c.session}/*", other)
    for session in (other, third):
        copy = c.with_session(session)
        assert sorted(copy) == ["a", "b"] and (copy.get("a") == arrays["a"]).all() and copy.info("b")["dtype"] == "int8"
    c.put("a", arrays["a"] + 1)
    fs.cp(c.session, other, recursive=True)
    assert (c.with_session(other).get("a") == arrays["a"] + 1).all() and sorted(c.with_session(other)) == ["a", "b"]
    with pytest.raises(gpubuf.BadArgument, match="no folders"):
        fs.cp(c.session, f"{other}/folder", recursive=True)
    fs.get(c.session, str(tmp_path / "files"), recursive=True)
    assert (tmp_path / "files" / "a").read_bytes() == (arrays["a"] + 1).tobytes()
    c.sessions.delete(third)
    fs.put(str(tmp_path / "files"), third, recursive=True)
    assert fs.cat(f"{third}/a") == (arrays["a"] + 1).tobytes()
    fs.mv(f"{other}/a", f"{other}/c")
    assert fs.ls(other, detail=False) == [f"{other}/b", f"{other}/c"]
    c.sessions.delete(other)
    c.sessions.delete(third)


def test_a_session_is_made(c, fs):
    name = c.session + "-made"
    fs.mkdir(f"gpubuf://{name}")
    fs.pipe(f"{name}/x", b"12")
    fs.makedirs(name, exist_ok=True)
    assert fs.ls(name, detail=False) == [f"{name}/x"]
    for again in (fs.mkdir, fs.makedirs):
        with pytest.raises(FileExistsError):
            again(name)
    for wrong in (lambda: fs.mkdir(f"{name}/folder"), lambda: fs.makedirs(f"{name}/folder", exist_ok=True),
                  lambda: fs.rmdir(name)):
        with pytest.raises(gpubuf.BadArgument):
            wrong()
    fs.makedirs(name + "-2", exist_ok=True)
    c.sessions.delete(name + "-2")
    c.sessions.delete(name)


def test_pandas(c, fs):
    pandas = library("pandas")
    import fsspec
    from gpubuf.filesystem import FileSystem

    fsspec.register_implementation("gpubuf", FileSystem, clobber=True)
    frame = pandas.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "z"]})
    options = {"url": c.url}
    frame.to_csv(f"gpubuf://{c.session}/t.csv", index=False, storage_options=options)
    assert pandas.read_csv(f"gpubuf://{c.session}/t.csv", storage_options=options).equals(frame)
