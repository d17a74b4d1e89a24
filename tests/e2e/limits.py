"""Time limits of tests. pytest-timeout fails a test at its limit. This module cleans up after a failed test, and makes a terminated run
print its present position."""
import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time

import pytest

NOW = os.environ.get("GB_E2E_NOW")  # the file that names the running test
_failed = set()
_status = [0]


def descendants():
    """The living child processes of this process, and their descendants."""
    children = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as f:
            state, parent = f.read().rsplit(")", 1)[1].split()[:2]
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(pid))
    found, parents = [], [os.getpid()]
    while parents:
        below = children.get(parents.pop(), [])
        found += below
        parents += below
    return found


def end_children(patience_s=10):
    """Kills them. Their parents reap them, if they still wait for them."""
    end = time.monotonic() + patience_s
    while (left := descendants()) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _terminated(number, _):
    signal.signal(number, signal.SIG_IGN)
    if NOW:
        with open(NOW, "a") as f:
            faulthandler.dump_traceback(f)
    end_children(2)
    os._exit(128 + number)


def pytest_configure(config):
    if not config.pluginmanager.hasplugin("timeout"):
        config.addinivalue_line("markers", "timeout(seconds): the limit of a test, where pytest-timeout is installed")
    signal.signal(signal.SIGTERM, _terminated)


def pytest_runtest_logstart(nodeid):
    if NOW:
        with open(NOW, "w") as f:
            f.write(nodeid + "\n")


def pytest_runtest_logreport(report):
    if report.failed:
        _failed.add(report.nodeid)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """A failed test can leave fixtures and processes behind: all fixtures end, and then all processes that still run. The next test begins
    anew."""
    yield
    if item.nodeid not in _failed:
        return
    try:
        item.session._setupstate.teardown_exact(None)
    except BaseException as e:
        item.config.get_terminal_writer().line(f"\nafter {item.nodeid}: {e!r:.2000}")
    end_children()


def pytest_sessionfinish(exitstatus):
    _status[0] = int(exitstatus)


def pytest_unconfigure():
    """A thread that a failed test left waiting does not prevent the run's end."""
    if _failed and any(t is not threading.main_thread() and not t.daemon for t in threading.enumerate()):
        sys.stdout.flush()
        os._exit(_status[0])
