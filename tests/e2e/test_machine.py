"""The memory of the machine: a control group bounds it, and an allocation beyond it is refused before the kernel kills
the daemon."""
import contextlib
import os
import time

import pytest

from harness import until

MIB = 1 << 20
PIECE = 50 * MIB


@pytest.fixture
def group():
    """A control group of 400 MiB; skips where none can be made. Named before start, so that it outlives the daemons."""
    for folder, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        path = f"{folder}/gbe-{os.getpid()}-{time.monotonic_ns()}"
        with contextlib.suppress(OSError):
            os.mkdir(path)
            try:
                with open(f"{path}/{limit}", "w") as f:
                    f.write(str(400 * MIB))
            except OSError:
                os.rmdir(path)
                raise
            yield path
            until("its last process has left", lambda: removed(path))  # noqa: B023
            return
    pytest.skip("no control group of memory can be made here")


def removed(path):
    with contextlib.suppress(OSError):
        os.rmdir(path)
        return True
    return False


def in_group(start, group, *options, **more):
    def join():
        with open(f"{group}/cgroup.procs", "w") as f:
            f.write(str(os.getpid()))

    return start(*options, preexec_fn=join, **more)


def fill(daemon, query=""):
    """Uploads until one is refused. Returns how many were stored, and the refusal."""
    for i in range(20):
        r = daemon.put(f"b{i}", bytes(PIECE), query=query)
        if r.status != 201:
            return i, r.expect(507).json()
    raise AssertionError("20 pieces fit into a group of 400 MiB")


def test_the_size_is_the_groups(group, start, simulated):
    d = in_group(start, group, spec=simulated("peers=no"))
    device = d.get("/v1/devices/0")
    assert device["total_bytes"] == 200 * MIB and device["free_bytes"] <= 200 * MIB
    stored, refusal = fill(d)
    assert stored in (3, 4) and refusal["code"] == "out_of_memory"


@pytest.mark.parametrize("kind", ["", "?kind=managed", "?kind=pageable"])
def test_a_size_beyond_the_group_does_not_kill(group, start, simulated, kind):
    d = in_group(start, group, spec=simulated("bytes=2G,devices=2"))
    assert d.get("/v1/devices/0")["free_bytes"] < 400 * MIB
    stored, refusal = fill(d, kind)
    assert 4 <= stored <= 7 and refusal["retryable"] and refusal["cuda"]["name"] == "cudaErrorMemoryAllocation"
    assert "control group" in refusal["detail"] and refusal["requested_bytes"] == PIECE
    assert PIECE * stored <= refusal["used_bytes"] <= refusal["limit_bytes"] < 400 * MIB
    until("the reading shows it", lambda: d.get("/v1/devices/1")["free_bytes"] < PIECE)
    for name in ("b0", "b1"):
        d.ask("DELETE", f"/v1/sessions/default/buffers/{name}").expect(204)
    d.put("again", bytes(PIECE), query=kind).expect(201)
