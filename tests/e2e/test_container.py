"""The daemon in namespaces as a container has them: process 1, no capabilities, a user of its own, nothing to write but
its state."""
import os
import shutil
import signal
import tempfile

import pytest

from harness import DATA, binary, for_everybody, token, until
from values import payload

pytestmark = pytest.mark.once
USER = 10001
INSIDE = """
set -e
mount --make-rprivate /
mount --bind "$0" "$0"
mount -o remount,bind,ro /
exec setpriv --reuid {0} --regid {0} --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs "$@"
""".format(USER)


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(word) for word in f.read().split()]


def status(pid):
    with open(f"/proc/{pid}/status") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


@pytest.fixture
def contained(start, tmp_path):
    """(the daemon, the number of its process outside, a secret)"""
    if os.geteuid() or not shutil.which("unshare") or not shutil.which("setpriv"):
        pytest.skip("this takes root, unshare and setpriv")
    program = for_everybody(binary(), tmp_path)
    state = tempfile.mkdtemp(prefix="gbe-volume-")
    try:
        secret = token(state, "add", "one", "--scope", "write")
        for folder, _, names in os.walk(state):
            for path in [folder, *(os.path.join(folder, name) for name in names)]:
                os.chown(path, USER, USER)
        wrapped = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "sh", "-c", INSIDE, state,
                   program]
        d = start(state=state, program=wrapped, listen=("--listen", "0.0.0.0:0"))
        pid = until("it is the one child", lambda: children(d.process.pid))[0]
        yield d, pid, secret
        os.kill(pid, signal.SIGTERM)
        assert "stopped: in order" in d.finished()
    finally:
        shutil.rmtree(state, ignore_errors=True)


def test_it_serves_and_its_cage_is_whole(contained):
    d, pid, secret = contained
    said = status(pid)
    assert said["NSpid"].split()[-1] == "1" and said["Uid"].split() == [str(USER)] * 4, said
    assert int(said["CapEff"], 16) == int(said["CapBnd"], 16) == 0 and said["NoNewPrivs"] == "1", said
    data = payload(3 << 20, 1)
    address = ("127.0.0.1", d.tcp[1])
    for c in (d.client(secret, unix=True), d.client(secret)):
        c.http.host = address[0]
        assert c.ask("PUT", DATA.format("default", "x"), data).status in (200, 201)
        assert c.ask("GET", DATA.format("default", "x")).body == data
    c = d.client(secret, unix=True)
    cage = c.ask("GET", "/v1").json()["cage"]
    assert cage["privileges"] == "none" and not cage["core_dumps"]
    assert d.ask("GET", "/v1").status == 401
