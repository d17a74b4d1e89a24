"""Two processes share bytes: one writes to the mapping, through torch on a GPU or numpy on the host, and the other
downloads with curl. Either is killed at any moment, and a second daemon runs beside the first."""
import importlib.util
import random
import shutil
import subprocess
import time

import numpy as np
import pytest

from harness import DATA, PATIENCE_S, until
from share_writer import Writer

COUNT = (4 << 20) // 4 + 3  # elements: several pieces and slots, plus a remainder
PLACES = {  # library and way: how the buffer is made
    ("numpy", "memfd"): "kind=pinned", ("torch", "vmm"): "kind=shared", ("torch", "pool"): "pool=shared",
    ("torch", "legacy"): "kind=ipc"}


def lacking(backend, library):
    """The reason why this machine cannot run it, or None."""
    if shutil.which("curl") is None:
        return "there is no curl on this machine"
    if library != "torch":
        return None
    if backend != "cuda":
        return "there is no GPU behind this backend"
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed on this machine"
    return None


class Place:
    """A buffer x of int32 in a session of a daemon, by one way."""

    def __init__(self, daemon, session, library, way):
        self.daemon, self.session, self.library, self.way = daemon, session, library, way
        self.base = f"/v1/sessions/{session}"
        if way == "pool":
            daemon.ask("POST", self.base + "/pools", {"name": "shared", "exportable": True}).expect(201)
        daemon.put("x", bytes(4 * COUNT), session, f"?dtype=int32&shape={COUNT}&" + PLACES[library, way]).expect(201)

    def writer(self):
        return Writer(self.daemon.unix, self.session, "x", self.library, self.way)

    def curl(self, file):
        """A download under way."""
        return subprocess.Popen(["curl", "-sS", "-f", "--noproxy", "*", "-o", str(file),
                                 self.daemon.url(DATA.format(self.session, "x"))],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def download(self, file):
        p = self.curl(file)
        err = p.communicate(timeout=PATIENCE_S)[1]
        assert p.returncode == 0, err
        array = np.fromfile(file, np.int32)
        assert array.shape == (COUNT,)
        return array

    def leases(self):
        return [i for i in self.daemon.get("/v1/leases?limit=1000")["items"] if i["session"] == self.session]

    def free(self):
        """No process maps it any more: it can be written in place and removed."""
        until("the leases have ended", lambda: not self.leases())
        self.daemon.ask("POST", f"{self.base}/buffers/x/fill", {"pattern": 7, "width": 4, "in_place": True}).expect(200)
        self.daemon.ask("DELETE", f"{self.base}/buffers/x").expect(204)
        assert self.daemon.get(self.base + "/stats")["sharing"]["held_bytes"] == 0


@pytest.fixture(params=PLACES, ids="-".join)
def place(request, daemon, session, backend):
    library, way = request.param
    why = lacking(backend, library)
    if why:
        pytest.skip(why)
    return Place(daemon, session, library, way)


def wait_a_moment(rng, most_s):
    time.sleep(rng.random() * most_s)  # so that the moment is random


def test_what_one_writes_the_other_downloads(place, tmp_path):
    with place.writer() as w:
        for value in (1, -5, 0x12345678):
            w.fill(value)
            assert (place.download(tmp_path / "x") == value).all()
        # During writes each byte is one that was written; an element may mix two rounds, because its bytes are not read
        # atomically.
        w.go(100)
        seen = place.download(tmp_path / "x")
        last = w.stop()
        assert seen.min() >= 0 and (seen >> 8).max() <= last >> 8
        assert (place.download(tmp_path / "x") == last).all()
        refused = place.daemon.ask("DELETE", f"{place.base}/buffers/x").problem(409, "mapped")
        assert [h["pid"] for h in refused["holders"]] == [w.process.pid]
        w.end()
    assert (place.download(tmp_path / "x") == last).all()
    place.free()


@pytest.mark.timeout(300)
def test_the_writer_is_killed_at_any_moment(place, tmp_path):
    rng, before = random.Random(place.way), 0
    for turn in range(12 if place.library == "numpy" else 3):
        with place.writer() as w:
            w.go(before + 1)
            download = place.curl(tmp_path / "beside") if turn % 2 else None
            wait_a_moment(rng, 0.05)
            w.kill()
            if download:
                assert download.communicate(timeout=PATIENCE_S) and download.returncode == 0, "the download goes on"
        until("its lease has ended", lambda: not place.leases())
        left = place.download(tmp_path / "x")
        # The writer was in one round: each element is of that round or of the previous one.
        assert before < left.min() and left.max() - left.min() <= 1
        assert (place.download(tmp_path / "again") == left).all(), "a process still writes"
        assert place.daemon.meta("x", place.session)["state"] == "ready"
        before = int(left.max())
    place.free()


def test_the_downloader_is_killed_at_any_moment(place, tmp_path):
    rng = random.Random(3)
    with place.writer() as w:
        w.go(1)
        for _ in range(12):
            p = place.curl(tmp_path / "x")
            wait_a_moment(rng, 0.02)
            p.kill()
            p.communicate(timeout=PATIENCE_S)
        last = w.stop()
        place.daemon.settled()
        assert w.alive() and (place.download(tmp_path / "x") == last).all()
        w.end()
    place.free()


def test_a_second_daemon_beside_the_first(place, start, tmp_path, backend):
    """On the same device, with the same names, and killed: clients of the first daemon are unaffected."""
    second = start()
    second.ask("POST", "/v1/sessions", {"name": place.session}).expect(201)
    other = Place(second, place.session, place.library, place.way)
    with place.writer() as mine, other.writer() as theirs:
        mine.fill(1)
        theirs.fill(2)
        assert (place.download(tmp_path / "a") == 1).all() and (other.download(tmp_path / "b") == 2).all()
        assert place.daemon.meta("x", place.session)["device"] == second.meta("x", place.session)["device"]
        assert [len(p.leases()) for p in (place, other)] == [1, 1]
        theirs.go(10)
        second.kill()
        assert theirs.stop() >= 10  # the mapping stays
        until("its client has noticed", lambda: not theirs.alive())
        mine.fill(3)
        assert mine.alive() and (place.download(tmp_path / "a") == 3).all() and len(place.leases()) == 1
        mine.end()
    place.free()
