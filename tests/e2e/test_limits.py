"""The test runner itself: a hanging test fails and leaves no process, the other tests continue, and shares lose no test."""
import os
import re
import signal
import subprocess
import sys

import pytest

from harness import PATIENCE_S, library, until

HERE = os.path.dirname(os.path.abspath(__file__))
HANGS = """
import subprocess, threading
import pytest

@pytest.fixture(scope="module")
def held():
    yield []
    print("the fixture has ended")

@pytest.mark.timeout(1)
def test_hangs(held):
    child = subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE)
    with open("child", "wb") as f:
        f.write(child.stdout.readline())
    held.append(1)
    threading.Thread(target=child.stdout.readline).start()
    child.wait()

def test_goes_on(held):
    assert held == []
"""
NEIGHBOURS = {
    "test_copy.py": "import pytest\n@pytest.fixture(scope='module')\ndef m():\n    yield 1\n"
                 "def test_1(m): pass\n@pytest.mark.once\ndef test_2(m, backend): pass\ndef test_3(m, backend): pass\n",
    "test_b.py": "def test_1(): pass\n",
    "test_d.py": "def test_1(backend): pass\n",
    "test_c.py": "import pytest\n@pytest.fixture(scope='module')\ndef m():\n    yield 1\ndef test_1(m): pass\ndef test_2(m): pass\n",
}


def begin(folder, files, **env):
    """pytest with the hooks of these tests, for temporary test files."""
    for name, text in files.items():
        (folder / name).write_text(text)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("GB_E2E_", "PYTEST_"))}
    return subprocess.Popen([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "conftest", "-q", *files], cwd=folder,
                            env={**clean, "PYTHONPATH": HERE, "GB_E2E_BACKENDS": "host", **env}, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)


def finished(p):
    try:
        return p.communicate(timeout=PATIENCE_S)[0]
    finally:
        p.kill()


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_one_that_hangs_fails_and_leaves_nothing(tmp_path):
    library("pytest_timeout")
    p = begin(tmp_path, {"test_hangs.py": HANGS})
    out = finished(p)
    assert p.returncode == 1 and re.search("1 failed, 1 passed", out), out
    assert "Timeout (>1.0s)" in out and "child.wait()" in out and "Stack of Thread" in out, out
    assert not runs((tmp_path / "child").read_text().strip())


def test_one_that_is_terminated_says_where_it_stood(tmp_path):
    now, child = tmp_path / "now", tmp_path / "child"
    p = begin(tmp_path, {"test_hangs.py": HANGS.replace("timeout(1)", "timeout(1000)")}, GB_E2E_NOW=str(now))
    until("its child runs", lambda: child.exists() and child.read_text().endswith("\n"))
    p.send_signal(signal.SIGTERM)
    out = finished(p)
    assert p.returncode == 128 + signal.SIGTERM, out
    said = now.read_text()
    assert said.startswith("test_hangs.py::test_hangs\n") and "in test_hangs" in said and "Thread 0x" in said, said
    assert not runs(child.read_text().strip())


@pytest.mark.parametrize("taken", [(), ("once-test_copy",), ("once-test_b",), ("host-test_copy", "once-test_b"), ("once-test_d",), ("once-test_copy", "host-test_copy")])
def test_shares_run_what_nobody_else_claimed(tmp_path, taken):
    """Whichever tests another share runs, each module's fixture is created for its tests, and ends before the next file."""
    claims = tmp_path / "claims"
    claims.mkdir()
    for name in taken:
        (claims / name).mkdir()
    p = begin(tmp_path, NEIGHBOURS, GB_E2E_CLAIMS=str(claims), GB_E2E_OUTCOMES=str(tmp_path / "outcomes"))
    out = finished(p)
    ran = {re.sub(r"\[.*", "", line.split("/")[-1].split()[-1]) for line in (tmp_path / "outcomes").read_text().splitlines()}
    claimed = {"test_copy.py::test_1": "once-test_copy", "test_copy.py::test_2": "once-test_copy", "test_copy.py::test_3": "host-test_copy",
               "test_b.py::test_1": "once-test_b", "test_d.py::test_1": "once-test_d",
               "test_c.py::test_1": "once-test_c", "test_c.py::test_2": "once-test_c"}
    assert p.returncode == 0 and ran == {test for test, name in claimed.items() if name not in taken}, out
