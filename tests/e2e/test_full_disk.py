"""The disk of the state directory is full: reads work, changes fail, and the daemon recovers by itself."""
import contextlib
import os
import re
import resource
import shutil
import subprocess

import pytest

from conform import interface
from harness import DATA, PATIENCE_S, until

S = "/v1/sessions/default"
UNLIMITED = (resource.RLIM_INFINITY,) * 2


class Limited:
    """Without rights: no file may grow."""

    def __init__(self, folder):
        self.folder, self.popen, self.daemon = folder, {"restore_signals": False}, None

    def fill(self):
        if self.daemon and self.daemon.process.poll() is None:
            resource.prlimit(self.daemon.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        else:
            self.popen["preexec_fn"] = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))

    def make_room(self):
        resource.prlimit(self.daemon.process.pid, resource.RLIMIT_FSIZE, UNLIMITED)

    def done(self):
        pass


class Small(Limited):
    """As root: a file system of 2 MiB, and a file that fills it."""

    def __init__(self, folder):
        super().__init__(folder)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", folder], check=True, capture_output=True,
                       timeout=PATIENCE_S)

    def fill(self):
        with open(os.path.join(self.folder, "ballast"), "wb", buffering=0) as out:
            try:
                while True:
                    out.write(bytes(4096))
            except OSError:
                pass

    def make_room(self):
        os.unlink(os.path.join(self.folder, "ballast"))

    def done(self):
        subprocess.run(["umount", "-l", self.folder], check=True, timeout=PATIENCE_S)


@pytest.fixture(params=[Limited, Small])
def disk(request, tmp_path):
    try:
        disk = request.param(str(tmp_path))
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a file system; the other way is tried in any case")
    yield disk
    disk.done()


@pytest.fixture
def begin(start, disk):
    """A daemon with that disk. With a full disk at the start it writes no file of addresses, so the test uses its UNIX
    socket."""

    def go(full=False):
        if full:
            disk.fill()
        disk.daemon = d = start(state=os.path.join(disk.folder, "s"), wait=not full, **disk.popen)
        if full:
            d.addresses = ["unix:" + os.path.join(d.state, "gpubufd.sock")]
            until("it answers", lambda: answers(d) or d.process.poll() is not None)
            assert d.process.poll() is None, d.log()
        return d

    return go


def answers(d):
    try:
        with contextlib.closing(d.client(unix=True)) as c:
            return c.ask("GET", "/livez").status == 200
    except OSError:  # not yet there, or left by a killed daemon
        return False


def writable(d):
    """The metric's value, which the daemon updates at most five times a second."""
    with contextlib.closing(d.client(unix=True)) as c:
        return int(re.search(rb"\ngpubufd_store_writable (\d)\n", c.ask("GET", "/metrics").expect(200).body)[1])


def ready(d):
    with contextlib.closing(d.client(unix=True)) as c:
        return c.ask("GET", "/readyz").status == 200


def check_refusing(d):
    """Not ready, but alive and readable; each change is refused and leaves no trace."""
    with contextlib.closing(d.client(unix=True)) as c:
        before = c.ask("GET", "/v1/sessions").expect(200).json()["items"]
        made = {"name": "n"}
        c.ask("POST", "/v1/sessions", made).problem(507, "storage_full")
        assert "room" in c.ask("GET", "/readyz").problem(503, "store_unavailable")["detail"]
        checks = {x["name"]: x["ok"] for x in c.ask("GET", "/readyz?verbose").expect(503).json()["checks"]}
        del checks["storage"]  # as the disk was when it was last written to
        assert checks == {"accepting": True, "device": True, "database": False}
        c.ask("GET", "/livez").expect(200)
        c.ask("GET", "/v1/stats").expect(200)
        c.ask("GET", "/v1/stats?since=-60").expect(200)
        c.ask("GET", "/v1/feed", headers={"Accept": "application/json"}).expect(200)
        until("the metric", lambda: writable(d) == 0)
        after = c.ask("GET", "/v1/sessions").expect(200).json()["items"]
        assert [x["name"] for x in before] == [x["name"] for x in after]


def check_again(d, names):
    """The daemon becomes ready by itself, and a change acknowledged then survives a restart."""
    until("it is ready again", lambda: ready(d))
    d.addresses = d.wait_ready()
    until("the metric", lambda: writable(d) == 1)
    until("the session default", lambda: d.ask("GET", S).status == 200)
    d.put("new", b"abcd").expect(201)
    assert sorted(x["name"] for x in d.get(S + "/buffers")["items"]) == sorted([*names, "new"])


def test_full_while_it_runs(begin, disk):
    d = begin()
    d.put("b", b"abcd").expect(201)
    disk.fill()
    until("changes are refused", lambda: d.ask("PATCH", S, {"labels": {"a": "b"}}).status == 507)
    check_refusing(d)
    interface(d).check("GET", "/readyz", d.ask("GET", "/readyz").expect(503))
    d.ask("PUT", DATA.format("default", "b"), b"1234").problem(507, "storage_full")
    d.ask("DELETE", S + "/buffers/b").problem(507, "storage_full")
    assert d.data("b").body == b"abcd"
    disk.make_room()
    check_again(d, ["b"])


def test_full_at_the_first_start(begin, disk):
    d = begin(full=True)
    check_refusing(d)
    disk.make_room()
    check_again(d, [])


@pytest.mark.parametrize("crash", [False, True])
def test_full_at_a_later_start(begin, disk, crash):
    d = begin()
    d.put("b", b"abcd").expect(201)
    if crash:
        d.process.kill()
        d.process.wait(PATIENCE_S)
    else:
        d.stop()
    first = begin(full=True)
    check_refusing(first)
    with contextlib.closing(first.client(unix=True)) as c:
        assert [x["name"] for x in c.ask("GET", S + "/buffers").expect(200).json()["items"]] == ["b"]
        c.ask("DELETE", S + "/buffers/b").problem(507, "storage_full")
    disk.make_room()
    check_again(first, ["b"])
    first.stop()
    disk.popen.pop("preexec_fn", None)
    again = begin()
    assert sorted(x["name"] for x in again.get(S + "/buffers")["items"]) == ["b", "new"]


def test_stopped_while_it_is_full(begin, disk):
    """A change that was only in memory and never in the database leaves no trace."""
    d = begin(full=True)
    check_refusing(d)
    d.stop()
    names = set(os.listdir(d.state))
    assert "gpubufd.sock" not in names and "listen" not in names
    shutil.rmtree(d.state)
