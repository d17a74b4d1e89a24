"""kill -9 at each step of the way to the disk, and at any moment: what was acknowledged is there, and no file is left
over."""
import os
import random

import pytest

from durable import SIZES, becomes_tidy, found, killing
from durable_oracle import Oracle
from durable_work import KINDS, begin, end
from harness import PATIENCE_S, until

# GB_E2E_DURABLE=N: N rounds of everything instead of a few, and each kind of request at each step.
ROUNDS = int(os.environ.get("GB_E2E_DURABLE", "0"))
CALLS = ("create", "mkdir", "direct", "fallocate", "write", "truncate", "sync", "rename", "dirsync", "unlink",
         "statvfs", "open", "read")
# so often at the start: the marker, each of the 256 folders, and the row of the start
START = {"open": 257, "read": 1, "wal": 1}
POINTS = ("before_commit", "after_commit", "before_answer", "load")
LOG = "wal"  # the sync of SQLite's log, within COMMIT
STEPS = (*CALLS, *POINTS, LOG)


class History:
    """Daemons with one state, and what was asked of them."""

    def __init__(self, lives, folder):
        self.lives, self.folder, self.oracle, self.contents, self.d = lives, folder, Oracle(), {}, None

    def begin(self, step=None, at=1):
        """A daemon that dies by its own hand the at-th time it comes to the step."""
        if step is None:
            self.d = self.lives()
        elif step == LOG:
            self.d = self.lives(env=killing(self.folder, "gpubufd.db-wal", START[LOG] + at))
        else:
            self.d = self.lives("--disk-fault", f"{step}@{START.get(step, 0) + at}=kill")
        return self.d

    def work(self, count, **more):
        return begin(self.d, self.oracle, self.contents, count, **more)

    def died(self):
        assert self.d.process.wait(PATIENCE_S) == -9, self.d.log()

    def check(self):
        """What there is after the death, seen by a daemon without faults."""
        d = self.begin()
        states, self.contents = found(d, self.oracle)
        faults = self.oracle.restarted(states)
        assert not faults, "\n".join(faults)
        becomes_tidy(d.state)


@pytest.fixture
def history(lives, tmp_path):
    return History(lives, str(tmp_path))


@pytest.mark.parametrize("round", range(ROUNDS or 4))
def test_at_any_moment(history, round):
    """Four clients, and a death by another's hand after a number of acknowledged changes."""
    rng = random.Random(round)
    for life in range(3):
        history.begin()
        workers = history.work(4, seed=f"{round}/{life}")
        many = rng.randrange(1, 60)
        until("much was done", lambda: sum(w.done for w in workers) >= many or not any(w.is_alive() for w in workers))
        history.d.kill()
        end(workers)
        history.check()


@pytest.mark.once
@pytest.mark.parametrize("step", STEPS)
def test_at_a_step(history, step):
    """Four clients, and a death at a step of any of them."""
    rng = random.Random(step)
    for life in range(ROUNDS or 1):
        history.begin()
        end(history.work(4, steps=3, seed=f"before/{step}/{life}"))
        history.check()
        history.begin(step, rng.randrange(1, 40 if step in ("write", "statvfs", LOG) else 8))
        workers = history.work(4, seed=f"{step}/{life}", steps=60)
        end(workers)
        assert any(w.died for w in workers), f"the daemon never came to {step}"
        history.died()
        history.check()


def cases():
    """Each kind of request, at one step and of one size; with GB_E2E_DURABLE at each and of each."""
    rng = random.Random(1)
    every = [(k, s, n) for k in sorted(KINDS) for s in STEPS for n in SIZES]
    if ROUNDS:
        return every
    return [rng.choice([c for c in every if c[0] == k and c[1] in CALLS + (LOG,)]) for k in sorted(KINDS)]


@pytest.mark.once
@pytest.mark.parametrize("kind, step, size", cases())
def test_in_a_request(history, kind, step, size):
    """One client, one kind of request. Where the request does not come to the step it is carried out."""
    history.begin()
    end(history.work(1, kinds=[kind], size=size, steps=3))
    history.check()
    history.begin(step)
    end(history.work(1, kinds=[kind], size=size, steps=3, seed=step))
    history.d.kill()
    history.check()
