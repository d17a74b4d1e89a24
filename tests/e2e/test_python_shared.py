"""Mappings of the Python client against the daemon: shared memory of two processes, and the end of either."""
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from pyclient import SOURCE, at_once, client_of, gpubuf

from connected import line_of
from harness import DATA, token, until
from values import array_of, crc32c, payload

KINDS = ("shared", "pinned", "pageable")


@pytest.fixture
def c(daemon, session):
    with client_of(daemon, session) as client:
        yield client


@pytest.fixture(params=KINDS)
def kind(request, c):
    """Kinds of memory that are mapped as a file, which numpy can access; GPU memory is not."""
    c.create("probe", bytes=1, kind=request.param)
    try:
        c.map("probe", ways=["memfd"]).unmap()
    except gpubuf.Unsupported as e:
        pytest.skip(f"{request.param}: {e}")
    c.delete("probe")
    return request.param


def quiet(c):
    """No lease is left in the session."""
    return until("the leases have ended", lambda: not [x for x in c.leases.list() if x["session"] == c.session] or None)


class Other:
    """Another process with the package; it runs lines of Python and answers each with a line."""

    SETUP = f"import sys; sys.path.insert(0, {SOURCE!r}); import gpubuf, numpy as np; "

    def __init__(self, c):
        loop = "for line in sys.stdin:\n    exec(line)\n    print('done', flush=True)\n"
        program = self.SETUP + f"c = gpubuf.Client(socket={c._socket!r}, session={c.session!r})\n{loop}"
        self.process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def run(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert line_of(self.process.stdout) == "done\n", line
        return self

    def end(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait(30)
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def other(c):
    process = Other(c)
    yield process
    process.end()


# --- one memory -------------------------------------------------------------------------------------------------------


def test_the_very_bytes(c, kind):
    array = array_of("float32", (64, 33))
    c.put("x", array, kind=kind)
    with c.map("x") as m:
        assert (m.way, m.kind, m.mode, m.dtype, m.shape) == ("memfd", kind, "read", "float32", (64, 33)) and m.alive
        assert np.asarray(m).tobytes() == array.tobytes() and not np.asarray(m).flags.writeable
        assert c.info("x")["leases"] == 1
        lease = c.leases.list()[-1]
        assert (lease["lease"], lease["buffer"], lease["pid"], lease["uid"],
                lease["mode"]) == (m.lease, "x", os.getpid(), os.getuid(), "read")
        assert {p["way"] for p in m.passed_over} == {"vmm", "pool",
                                                     "legacy"} and all(p["reason"] for p in m.passed_over)
    assert c.info("x")["leases"] == 0 and not m.alive


def test_one_process_writes_the_other_downloads(daemon, c, kind, other, tmp_path):
    c.put("x", np.zeros(100_000, np.float32), kind=kind)
    before = c.info("x")
    other.run("m = c.map('x', 'write'); a = np.asarray(m); a[:] = np.arange(a.size)")
    assert c.info("x")["crc32c"] is None and c.info("x")["generation"] > before["generation"]
    got = tmp_path / "got"
    subprocess.run(["curl", "-sSf", "-o", str(got), daemon.url(DATA.format(c.session, "x"))], check=True, timeout=90)
    wanted = np.arange(100_000, dtype=np.float32)
    assert got.read_bytes() == wanted.tobytes()
    with c.map("x") as m:
        mine = np.asarray(m)
        assert (mine == wanted).all()
        other.run("a[7] = -1")
        assert mine[7] == -1, "both see one memory"
        del mine
    mapped = c.info("x")["generation"]
    other.run("del a; m.unmap()")
    wanted[7] = -1
    assert c.info("x")["generation"] > mapped and c.verify("x")["crc32c"] == crc32c(wanted.tobytes()) and quiet(c)


def test_a_killed_writer_leaves_the_buffer(c, kind, other):
    c.put("x", np.zeros(1000, np.uint8), kind=kind)
    other.run("m = c.map('x', 'write'); a = np.asarray(m); a[:500] = 5")
    with pytest.raises(gpubuf.Mapped) as e:
        c.fill("x", 1, in_place=True)
    holder = e.value.holders[0]
    assert (holder["pid"] == other.process.pid and holder["mode"] == "write" and holder["uid"] == os.getuid()
            and holder["since"])
    other.end()
    assert quiet(c)
    assert c.get("x").tolist() == [5] * 500 + [0] * 500 and c.info("x")["leases"] == 0
    c.fill("x", 1, in_place=True)
    assert (c.get("x") == 1).all()


def test_importers_killed_at_any_moment(c):
    """Forked processes that map and unmap in a loop are killed at any point: no lease is left, and the bytes are
    intact."""
    c.put("x", payload(8192), kind="pageable")
    with gpubuf.Client(socket=c._socket, session=c.session) as unix:
        for turn in range(10):
            children = []
            for _ in range(4):
                pid = os.fork()
                if pid == 0:
                    while True:
                        try:
                            with unix.map("x") as m:
                                np.asarray(m)[0]
                        except BaseException:
                            os._exit(1)
                children.append(pid)
            for _ in range(turn + 1):
                c.list()
            for pid in children:
                os.kill(pid, signal.SIGKILL)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL, "it had failed before"
    assert quiet(c) and c.info("x")["leases"] == 0 and c.get("x", raw=True) == payload(8192)
    c.fill("x", 3, in_place=True)
    assert c.delete("x")


def test_a_killed_daemon_leaves_the_bytes(start, kind):
    d = start()
    with client_of(d) as c:
        c.put("x", payload(5000), kind=kind)
        with c.map("x") as m:
            a = np.asarray(m)
            d.kill()
            assert until("it is noticed", lambda: not m.alive) and a.tobytes() == payload(5000)
            del a
        assert m.unmap() is True
        with pytest.raises(gpubuf.Unreachable):
            c.map("x")
        with pytest.raises(gpubuf.Unreachable):
            c.get("x")


def test_torch_writes_curl_reads(daemon, c, kind, tmp_path):
    try:
        import torch
    except ImportError:
        pytest.skip("torch is not installed on this machine")
    c.put("x", np.zeros((4, 5), np.float32), kind=kind)
    with c.map("x", "write") as m:
        torch.from_dlpack(m)[2] = 2.5
        assert daemon.data("x", c.session).body[40:60] == np.full(5, 2.5, np.float32).tobytes()
    assert quiet(c)


# --- rules ------------------------------------------------------------------------------------------------------------


def test_a_slab(c, kind):
    """The daemon copies into and out of the mapped memory."""
    a = array_of("float32", (1000,))
    c.put("x", a)
    c.create("slab", dtype="float32", shape=[1000], kind=kind)
    with c.map("slab", mode="write") as m:
        m.load("x")
        assert np.array_equal(np.asarray(m), a)
        np.asarray(m)[:] = -a
        c.copy("slab", "x")
        assert np.array_equal(c.get("x"), -a)
        c.put("x", a)
        m.load("x", source_offset=400, offset=40, nbytes=80)
        assert np.array_equal(np.asarray(m)[10:30], a[100:120]) and np.asarray(m)[9] == -a[9]
        with pytest.raises(gpubuf.NotFound):
            m.load("none")
        with c.map("slab"), pytest.raises(gpubuf.Mapped):
            m.load("x")
        assert m.alive
    with pytest.raises(ValueError):
        m.load("x")
    quiet(c)


def test_mapped_bytes_stay(c, kind):
    array = array_of("int32", (1000,))
    c.put("x", array, kind=kind)
    with c.map("x") as m:
        seen = np.asarray(m)
        for write in (lambda: c.put("x", array, in_place=True), lambda: c.put("x", b"\0" * 4, offset=0, in_place=True),
                      lambda: c.fill("x", 0, in_place=True), lambda: c.delete("x")):
            with pytest.raises(gpubuf.Mapped) as e:
                write()
            assert e.value.holders[0]["lease"] == m.lease and e.value.retryable
        c.put("x", array + 1)
        assert (c.get("x") == array + 1).all() and (seen == array).all(), "a replacement lies beside what is mapped"
        with c.map("x") as fresh:
            assert (np.asarray(fresh) == array + 1).all() and fresh.generation > m.generation
        del seen
    assert quiet(c) and c.delete("x") is True


def test_deleted_when_unmapped(c, kind):
    c.put("x", payload(4096), kind=kind)
    with c.map("x") as m:
        seen = np.asarray(m)
        assert c.delete("x", when="unmapped") is False
        with pytest.raises(gpubuf.NotFound):
            c.info("x")
        assert seen.tobytes() == payload(4096) and c.stats()["sharing"]["held_bytes"] >= 4096
        c.put("x", b"new", kind=kind)
        del seen
    assert quiet(c) and c.get("x", raw=True) == b"new"
    assert until("what was held is freed", lambda: c.stats()["sharing"]["held_bytes"] == 0)


def test_sealed(c, kind):
    c.put("x", payload(100), kind=kind)
    with c.map("x", "write"), pytest.raises(gpubuf.Mapped):
        c.seal("x")
    assert c.seal("x")["sealed"] is True and c.info("x")["sealed"] is True
    for write in (lambda: c.map("x", "write"), lambda: c.put("x", b"1"), lambda: c.fill("x", 0)):
        with pytest.raises(gpubuf.Sealed):
            write()
    with c.map("x") as m:
        assert np.asarray(m).tobytes() == payload(100)
    assert c.get("x", raw=True) == payload(100) and c.delete("x")


def test_what_is_mapped_is_current_or_not(daemon, c, start):
    """Until the content is replaced, the lease is ended by another client, or the daemon stops."""
    c.put("x", payload(100), kind="pageable")
    with c.map("x") as m, c.map("x") as ended:
        assert m.current and ended.current and c.leases.get(m.lease)["state"] == "present"
        c.leases.end(ended.lease)
        assert not ended.current and ended.alive and m.current
        with pytest.raises(gpubuf.LeaseNotFound):
            c.leases.get(ended.lease)
        c.put("x", payload(50), kind="pageable")
        assert not m.current and m.alive and c.leases.get(m.lease)["state"] == "replaced"
    assert not m.current, "it is unmapped"
    d = start()
    with client_of(d) as other:
        other.put("x", payload(10), kind="pageable")
        with other.map("x") as m:
            assert m.current
            d.kill()
            assert not m.current and not m.alive


def test_a_mapper_that_may_not_read_knows_its_own(start, tmp_path):
    secrets = {scope: token(tmp_path, "add", scope, "--scope", scope) for scope in ("map", "write")}
    d = start(state=str(tmp_path))
    with client_of(d, token=secrets["write"]) as writer, client_of(d, token=secrets["map"]) as c:
        writer.put("x", payload(10), kind="pageable")
        with c.map("x") as m:
            assert m.current
            writer.put("x", payload(11), kind="pageable")
            assert not m.current
            with pytest.raises(gpubuf.Forbidden):
                c.leases.get(m.lease)  # over another connection


def test_exports(start, simulated):
    """The handle, in JSON as Triton accepts it; and the state after its expiry."""
    d = start(spec=simulated("legacy=fake"))
    with client_of(d, unix=True) as c:
        c.put("x", payload(100), kind="ipc")
        given = c.export("x", ttl=3600, wait=5)
        assert (len(given["raw_handle"]["b64"]) == 88 and given["byte_size"] == 100
                and c.leases.get(given["lease"])["pid"] == 0)
        with pytest.raises(gpubuf.Mapped):
            c.delete("x")
        c.leases.end(given)
        brief = c.export("x", ttl=1, mode="write")
        until("its time is over", lambda: not [x for x in c.leases.list() if x["lease"] == brief["lease"]])
        assert until("its bytes have escaped", lambda: c.info("x")["escaped"])
        with pytest.raises(gpubuf.Escaped):
            c.seal("x")
        c.put("x", payload(100), kind="ipc")
        assert c.seal("x")["sealed"] and not c.info("x")["escaped"]
        c.put("y", payload(100), kind="pageable")
        with pytest.raises(gpubuf.Unsupported, match="Map it instead"):
            c.export("y")


def test_what_cannot_be_mapped(daemon, c):
    c.put("x", payload(100), kind="pageable")
    with pytest.raises(gpubuf.NotFound):
        c.map("none")
    with pytest.raises(gpubuf.BadRequest):
        c.map("x", ways=["carrier pigeon"])
    with pytest.raises(gpubuf.Unsupported, match="legacy"):
        c.map("x", ways=["legacy"])
    with pytest.raises(gpubuf.LocalOnly):
        c.request("POST", f"/v1/sessions/{c.session}/buffers/x/map", {})
    with pytest.raises(gpubuf.LeaseNotFound):
        c.leases.end("999999")
    with c.map("x") as m:
        c.leases.end(m.lease)  # without tokens every caller is the administrator
        assert until("it is over", lambda: c.info("x")["leases"] == 0)


def test_many_at_once(c, kind):
    """Threads of one client, each with its own mappings, beside readers over HTTP."""
    arrays = [array_of("float32", (500,), i) for i in range(4)]
    for i, a in enumerate(arrays):
        c.put(f"x{i}", a, kind=kind)
    together = threading.Barrier(8, timeout=120)

    def work(i):
        for turn in range(10):
            with c.map(f"x{(i + turn) % 4}") as m:
                assert np.asarray(m).tobytes() == arrays[(i + turn) % 4].tobytes() == c.get(m.buffer).tobytes()
        together.wait()
        for turn in range(10):
            with c.map("x0", "write") as m:
                np.asarray(m)[i] = turn

    at_once(8, work)
    assert quiet(c) and c.get("x0")[:8].tolist() == [9] * 8


def test_an_idle_lease_lasts(start):
    """The connection of a lease is always idle: the daemon's timeout for idle connections does not apply to it."""
    d = start("--idle-timeout", "1")
    with client_of(d) as c, client_of(d) as idle:
        c.put("x", payload(10), kind="pageable")
        with c.map("x") as m:
            for _ in range(2):
                idle.list()
                until("a connection without lease is closed", lambda: not idle._transport._local.held.usable())
            assert m.alive and np.asarray(m).tobytes() == payload(10) and c.info("x")["leases"] == 1


def test_who_may_map(start, tmp_path):
    """Rights to map are separate from those to read and write."""
    scopes = {"read": "read", "write": "read,write", "map": "map", "both": "read,map", "map-write": "map-write",
              "admin": "admin"}
    secrets = {name: token(tmp_path, "add", name, "--scope", scope) for name, scope in scopes.items()}
    d = start(state=str(tmp_path))
    clients = {name: client_of(d, token=secret) for name, secret in secrets.items()}
    try:
        clients["admin"].put("x", payload(100), kind="pageable")
        may = {"read": (), "write": (), "map": ("read",), "both": ("read",), "map-write": ("read", "write"),
               "admin": ("read", "write")}
        for name, c in clients.items():
            for mode in ("read", "write"):
                if mode in may[name]:
                    with c.map("x", mode) as m:
                        assert np.asarray(m).tobytes() == payload(100)
                else:
                    with pytest.raises(gpubuf.AccessDenied) as e:
                        c.map("x", mode)
                    assert isinstance(e.value, PermissionError), (name, mode)
        with clients["both"].map("x") as m:
            with pytest.raises(gpubuf.AccessDenied):
                clients["write"].leases.end(m.lease)
            assert m.alive
            clients["admin"].leases.end(m.lease)
            assert clients["admin"].info("x")["leases"] == 0
        with client_of(d) as nobody, pytest.raises(gpubuf.Unauthenticated):
            nobody.map("x")
    finally:
        for c in clients.values():
            c.close()
