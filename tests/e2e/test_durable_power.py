"""The power goes: what was acknowledged as on disk is there, and nothing names bytes that it did not name."""
import os
import shutil

import pytest

from durable import BEHIND, NONE, OPTIONS, SIZES, SYNC, becomes_tidy, found, skipping, store
from durable_disk import Disk
from durable_oracle import GONE, Oracle, State, digest, successor
from durable_work import begin, end
from harness import until
from values import payload

pytestmark = pytest.mark.once  # the disk's own work

MEGABYTES = 256  # more than four workers fill
ROUNDS = int(os.environ.get("GB_E2E_DURABLE", "0"))


class Machine:
    """Its disk, and the same disk as it is after a loss of power."""

    def __init__(self, start, folder):
        self.start, self.folder, self.disks, self.d = start, folder, [Disk(os.path.join(folder, "0"), MEGABYTES)], None

    def on(self, *options, **more):
        os.makedirs(self.disks[-1].state, exist_ok=True)
        self.d = self.start(*OPTIONS, *options, state=self.disks[-1].state, **more)
        return self.d

    def cut(self):
        """What the kernel had not written is lost: the image is copied as it stands."""
        self.d.kill()
        self.disks.append(Disk(os.path.join(self.folder, str(len(self.disks))), image=self.disks[-1].image))
        self.disks[-2].done()

    def done(self):
        for d in self.disks:
            d.done()
            shutil.rmtree(os.path.dirname(d.at), ignore_errors=True)


@pytest.fixture
def machine(start, tmp_path):
    m = Machine(start, str(tmp_path))
    yield m
    if m.d:
        m.d.clean()
    m.done()


def fill(d, oracle):
    """Some of each kind. The syncs of some bring the others' records along, so the others come last as well."""
    def put(name, data, word):
        r = oracle.begin({"default/" + name: successor(oracle.state("default/" + name), digest(data), word)})
        answer = d.put(name, data, query="?durability=" + word)
        assert answer.status in (200, 201)
        oracle.tag(answer.headers["ETag"], digest(data))
        r.acknowledged()

    for i, size in enumerate(SIZES):
        for word in ("none", "behind", "sync"):
            put(f"{word}{i}", payload(size, i), word)
        put(f"sync{i}", payload(size, i + 10), "sync")
        put(f"gone{i}", payload(size, i), "sync")
        d.ask("DELETE", f"/v1/sessions/default/buffers/gone{i}").expect(204)
        oracle.begin({f"default/gone{i}": GONE}).acknowledged()
    for word in ("behind", "none"):
        put(word + "-last", payload(SIZES[1], 5), word)


def test_what_was_acknowledged_is_there(machine):
    oracle = Oracle()
    fill(machine.on("--durable-lag", "3600"), oracle)
    machine.cut()
    d = machine.on()
    states, _ = found(d, oracle)
    assert oracle.restarted(states, power=True) == []
    becomes_tidy(d.state)
    assert states["default/none0"].sha is None and states["default/sync2"].sha == digest(payload(SIZES[2], 12))


def test_without_syncs_it_is_not(machine, tmp_path):
    """The control: this test can fail."""
    oracle = Oracle()
    fill(machine.on("--durable-lag", "3600", env=skipping(str(tmp_path))), oracle)
    machine.cut()
    states, _ = found(machine.on(), oracle)
    assert oracle.restarted(states, power=True) != []


@pytest.mark.parametrize("round", range(ROUNDS or 2))
def test_at_any_moment(machine, round):
    oracle, contents = Oracle(), {}
    for life in range(2):
        d = machine.on()
        workers = begin(d, oracle, contents, 4, seed=f"power/{round}/{life}")
        until("much was done", lambda: sum(w.done for w in workers) >= 25 or not any(w.is_alive() for w in workers))
        machine.cut()
        end(workers)
        states, contents = found(machine.on(), oracle)
        faults = oracle.restarted(states, power=True)
        assert not faults, "\n".join(faults)
        becomes_tidy(machine.d.state)
        machine.d.kill()


def test_behind_comes_back_under_a_tag_of_its_own(machine):
    """The record of generation 2 has reached the disk, that of generation 3 has not: what comes back is neither."""
    d, oracle = machine.on("--durable-lag", "3600"), Oracle()

    def put(name, data, query):
        r = d.put(name, data, query=query)
        oracle.tag(r.headers["ETag"], digest(data))

    put("x", payload(SIZES[1], 1), BEHIND)
    store(d, "x").expect(200)
    put("x", payload(SIZES[1], 2), BEHIND)
    put("y", b"its commit syncs the log", SYNC)
    put("x", payload(SIZES[1], 3), BEHIND)
    machine.cut()
    states, _ = found(machine.on(), oracle)
    assert states["default/x"].sha in {digest(payload(SIZES[1], i)) for i in (1, 2, 3)}
    assert oracle.faults == []


def test_behind_that_was_stored_stays(machine):
    d = machine.on("--durable-lag", "3600")
    d.put("x", payload(SIZES[1], 1), query=BEHIND)
    store(d, "x").expect(200)
    d.put("z", b"", query=NONE)
    machine.cut()
    states, _ = found(machine.on())
    assert states["default/x"] == State(digest(payload(SIZES[1], 1)), "behind")
