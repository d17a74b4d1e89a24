"""Time limits of tests. pytest-timeout fails a test at its limit. This module cleans up after a failed test, and makes
a terminated run say which tests were running, and where their threads stood."""
import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time

import pytest

WORKER = os.environ.get("PYTEST_XDIST_WORKER")
# the file that names the running test
NOW = os.environ.get("GB_E2E_NOW") and os.path.join(os.environ["GB_E2E_NOW"], f"{WORKER or 'alone'}.now")
_failed = set()
_status = [0]
_has_workers = [False]


def living():
    """{parent: [child]} of all processes."""
    children = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            state, parent = f.read().rsplit(")", 1)[1].split()[:2]
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(pid))
    return children


def descendants():
    """The living child processes of this process, and their descendants."""
    children, found, parents = living(), [], [os.getpid()]
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


def _workers():
    """The processes that pytest-xdist began; [] in one of them."""
    return living().get(os.getpid(), []) if _has_workers[0] else []


def _terminated(number, _):
    """A worker of pytest-xdist, or a pytest without workers, writes down where it stood. The process that began workers
    asks them first."""
    signal.signal(number, signal.SIG_IGN)
    workers = _workers()
    for pid in workers:
        os.kill(pid, number)
    end = time.monotonic() + 5
    while set(workers) & set(descendants()) and time.monotonic() < end:
        time.sleep(0.01)
    if NOW and not workers:
        with open(NOW, "a", encoding="utf-8") as f:
            faulthandler.dump_traceback(f)
    end_children(2)
    os._exit(128 + number)


def pytest_configure(config):
    if not config.pluginmanager.hasplugin("timeout"):
        config.addinivalue_line("markers", "timeout(seconds): the limit of a test, where pytest-timeout is installed")
    _has_workers[0] = WORKER is None and bool(getattr(config.option, "numprocesses", None))
    signal.signal(signal.SIGTERM, _terminated)


def pytest_runtest_logstart(nodeid):
    if NOW and not _has_workers[0]:
        with open(NOW, "w") as f:
            f.write(nodeid + "\n")


def pytest_runtest_logreport(report):
    if report.failed:
        _failed.add(report.nodeid)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """A failed test can leave fixtures and processes behind: all fixtures end, and then all processes that still run.
    The next test begins without them."""
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
