"""The test runner itself: a hanging test fails and leaves no process, the other tests continue, and the sets lose no
test."""
import os
import re
import signal
import subprocess
import sys

import pytest

import picked
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
    "test_copy.py": "import pytest\ndef test_1(): pass\n@pytest.mark.once\ndef test_2(backend): pass\ndef "
                    "test_3(backend): pass\n@pytest.mark.rest\ndef test_4(backend): pass\n",
    "test_d.py": "import pytest\ndef test_1(backend): pass\n@pytest.mark.rest\ndef test_2(): pass\n",
}


def begin(folder, files, *options, **env):
    """pytest with the hooks of these tests, for temporary test files."""
    for name, text in files.items():
        (folder / name).write_text(text)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("GB_E2E_", "PYTEST_"))}
    return subprocess.Popen([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "conftest", "-q", *options,
                             *files], cwd=folder,
                            env={**clean, "PYTHONPATH": HERE, "GB_E2E_BACKENDS": "host", **env}, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


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


@pytest.mark.parametrize("workers", [0, 2])
def test_one_that_is_terminated_says_where_it_stood(tmp_path, workers):
    if workers:
        library("xdist")
    hangs = HANGS.replace("timeout(1)", "timeout(1000)")
    files = {f"test_{name}.py": hangs.replace('"child"', f'"{name}"') for name in "ab"[:max(workers, 1)]}
    p = begin(tmp_path, files, *(("-n", str(workers), "--dist", "loadfile") if workers else ()),
              GB_E2E_NOW=str(tmp_path))
    children = [tmp_path / name[5] for name in files]
    until("their children run", lambda: all(child.exists() and child.read_text().endswith("\n") for child in children))
    p.send_signal(signal.SIGTERM)
    out = finished(p)
    assert p.returncode == 128 + signal.SIGTERM, out
    said = {now.read_text() for now in tmp_path.glob("*.now")}
    assert {text.splitlines()[0] for text in said} == {f"{name}::test_hangs" for name in files}, said
    assert all("in test_hangs" in text and "Thread 0x" in text for text in said), said
    assert not any(runs(child.read_text().strip()) for child in children)


@pytest.mark.parametrize("workers", [0, 2])
def test_each_test_is_in_one_set(tmp_path, workers):
    """What depends on memory runs on each backend; check has the first backend, and what is not marked for the rest."""
    if workers:
        library("xdist")
    check = {"test_copy.py::test_1", "test_copy.py::test_2[host]", "test_copy.py::test_3[host]",
             "test_d.py::test_1[host]"}
    rest = {"test_copy.py::test_3[host:discrete]", "test_copy.py::test_4[host]", "test_copy.py::test_4[host:discrete]",
            "test_d.py::test_2"}
    for name, wanted in (("check", check), ("rest", rest), ("all", check | rest)):
        outcomes = tmp_path / name
        p = begin(tmp_path, NEIGHBOURS, *(("-n", str(workers), "--dist", "loadfile") if workers else ()),
                  GB_E2E_SET=name, GB_E2E_BACKENDS="host host:discrete", GB_E2E_OUTCOMES=str(outcomes))
        out = finished(p)
        assert p.returncode == 0 and set(outcomes.read_text().splitlines()) == {"passed " + test
                                                                                for test in wanted}, out


def test_what_the_lists_name_is_there():
    named = {*picked.OF_MEMORY, *picked.REST, *picked.LONG, *("test_" + file for file, _ in picked.QUICK)}
    assert not [name for name in sorted(named) if not os.path.exists(os.path.join(HERE, name + ".py"))]
    for file, test in picked.QUICK:
        with open(os.path.join(HERE, f"test_{file}.py"), encoding="utf-8") as f:
            assert f"\ndef {test}(" in f.read(), (file, test)
