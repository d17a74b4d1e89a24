import itertools
import os
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import limits  # noqa: E402
import picked  # noqa: E402
from conform import Session  # noqa: E402
from durable import OPTIONS  # noqa: E402
from gpubuf_cli import Cli  # noqa: E402
from harness import REFUSED_CALL, SANITIZERS, SMALL_SLOTS, Daemon, starting  # noqa: E402
from record import RECORD  # noqa: E402

_names = itertools.count(1)
_outcomes = {}


def own_basetemp(config):
    """A folder of this run's own: whenever a pytest begins it closes /tmp/pytest-of-USER to other users, and with it
    the folders that tests of another run have opened to them. It is left where a test failed."""
    if not config.option.basetemp:
        folder = tempfile.mkdtemp(prefix="gbe-pytest-")
        config.option.basetemp = os.path.join(folder, "tmp")
        config.add_cleanup(lambda: "failed" in _outcomes.values() or shutil.rmtree(folder, ignore_errors=True))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    own_basetemp(config)
    for plugin in (limits, picked):
        config.pluginmanager.register(plugin)


def pytest_runtest_logreport(report):
    if report.failed:
        _outcomes[report.nodeid] = "failed"
    elif report.when == "call" or report.skipped:
        _outcomes.setdefault(report.nodeid, report.outcome)


def pytest_sessionfinish():
    """Each worker of pytest-xdist has a record of its own; the outcomes of all reach the process that began them."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if os.environ.get("GB_E2E_RECORD"):
        RECORD.save(os.path.join(os.environ["GB_E2E_RECORD"], f"{worker or 'alone'}.record"))
    if os.environ.get("GB_E2E_OUTCOMES") and not worker:
        with open(os.environ["GB_E2E_OUTCOMES"], "w") as f:
            f.writelines(f"{outcome} {name}\n" for name, outcome in _outcomes.items())


@pytest.fixture(scope="session", params=picked.backends())
def backend(request):
    return request.param


@pytest.fixture(scope="session")
def shared(backend):
    """[the daemon]; one that died is replaced, so that only the test which killed it fails."""
    held = [Daemon(backend, *SMALL_SLOTS)]
    yield held
    held[0].stop()


@pytest.fixture
def daemon(shared, backend):
    """One daemon for all tests of a backend; nothing may run in it when a test has ended."""
    d = shared[0]
    yield d
    try:
        assert d.process.poll() is None, d.log()
        d.settled()
    except BaseException:
        d.clean()
        shared[0] = Daemon(backend, *SMALL_SLOTS)
        raise


@pytest.fixture
def session(daemon):
    """The name of a fresh session of the shared daemon."""
    name = f"s{next(_names)}"
    daemon.ask("POST", "/v1/sessions", {"name": name}).expect(201)
    yield name
    daemon.ask("DELETE", "/v1/sessions/" + name)


@pytest.fixture
def s(daemon, session):
    """The same, with its paths; replies are held against the interface."""
    return Session(daemon, session)


@pytest.fixture
def simulated(backend):
    """The spec of the backend with more settings; skips where the devices are not simulated."""
    if not backend.startswith("host"):
        pytest.skip("only simulated devices can be set up")
    return lambda settings: backend + ("," if ":" in backend else ":") + settings


@pytest.fixture
def start(backend):
    """Starts daemons of this test's own."""
    yield from starting(lambda *options, **more: Daemon(more.pop("spec", backend), *options, **more))


@pytest.fixture
def place(start, tmp_path):
    """start, with a folder of state."""
    return lambda *options: start(*options, state=str(tmp_path))


@pytest.fixture(params=[False, True], ids=["tcp", "unix"])
def unix(request):
    return request.param


@pytest.fixture
def c(daemon, session):
    """The Python package's client, for the fresh session."""
    from pyclient import client_of
    with client_of(daemon, session) as client:
        yield client


@pytest.fixture
def cli(daemon, session):
    """gpubuf, for the fresh session."""
    return Cli(daemon.url(""), session)


@pytest.fixture
def lives(start, tmp_path):
    """Starts daemons one after the other with the same state, and durable.OPTIONS; each kills the one before it."""
    state = tmp_path / "state"
    state.mkdir()
    last = []

    def go(*options, end="kill", **more):
        if last and last[-1].process.poll() is None:
            last[-1].kill() if end == "kill" else last[-1].stop()
        for d in last:
            log = d.log() if os.path.exists(d.log_path) else ""
            assert not REFUSED_CALL.search(log) and not SANITIZERS.search(log), log
            d.clean()
        last[:] = [start(*OPTIONS, *options, **{"state": str(state), **more})]
        return last[0]

    return go
