"""Programs that are started without standard descriptors: no file, database or connection takes their numbers."""
import os
import subprocess

import pytest
from harness import PATIENCE_S, binary, until

CLI = os.path.join(os.path.dirname(binary()), "gpubuf")


def without(closed, argv, **more):
    """By a shell, since Python gives a child all three."""
    shell = 'exec "$@" ' + " ".join({0: "<&-", 1: ">&-", 2: "2>&-"}[fd] for fd in closed)
    return subprocess.Popen(["sh", "-c", shell, "sh", *argv], **more)


@pytest.mark.skipif(not os.path.exists(CLI), reason="gpubuf is not beside gpubufd")
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_a_file_is_what_was_downloaded(daemon, session, tmp_path, closed):
    body = os.urandom(300000)
    daemon.put("x", body, session).expect(201)
    url = ["--url", daemon.url(""), "--session", session]
    p = without(closed, [CLI, "-v", *url, "get", "x", str(tmp_path / "x")])
    assert p.wait(PATIENCE_S) == (1 in closed)  # the line that tells of it cannot be written
    assert (tmp_path / "x").read_bytes() == body
    if 0 in closed:
        assert without(closed, [CLI, *url, "put", "-", "y"]).wait(PATIENCE_S) != 0
    if 1 in closed:
        for command in (["get", "x"], ["get", "x", "--npy"], ["cp", "x", "-"]):
            assert without(closed, [CLI, *url, *command]).wait(PATIENCE_S) != 0
        assert without(closed, [CLI, *url, "ls"]).wait(PATIENCE_S) != 0


@pytest.mark.parametrize("closed", [(0, 2), (1, 2), (0, 1), (0, 1, 2)])
def test_the_daemon(tmp_path, closed):
    state = tmp_path / "state"
    p = without(closed, [binary(), "--backend", "host", "--listen", "127.0.0.1:0", "--state-dir", str(state)],
                stderr=subprocess.DEVNULL)
    try:
        until("it listens", lambda: (state / "gpubufd.sock").exists() or p.poll() is not None)
        assert p.poll() is None
        for fd in closed:
            assert os.readlink(f"/proc/{p.pid}/fd/{fd}") == "/dev/null", fd
    finally:
        p.terminate()
        assert p.wait(PATIENCE_S) == 0
