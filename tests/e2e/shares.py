"""Several pytests share the tests: each file is run by the one that claims it first, in the folder that GB_E2E_CLAIMS names."""
import itertools
import os

from harness import BACKENDS

FOLDER = os.environ.get("GB_E2E_CLAIMS")

# The files whose tests depend on where bytes lie and how they get there. All others run on one backend, whichever comes first.
OF_MEMORY = {"test_" + name for name in """
    adopt adopt_gpu batch big broken cli_data cli_map copy devices durable_oracle encodings export fault hold host_tier integrity kinds mirror
    pool_edge poolless pools pools_current pull python_cuda python_gpu python_map python_shared ranges repeat resumable room safetensors selftest
    share share_gpu share_pool slice_faults slice_writes slices streams tensors tensors_back transfer upload_digest uploads""".split()}
_mine = {}


def _claims(item):
    """Whether the item belongs to this share. Tests that are the same on every backend are run by one share of all."""
    once = "once" in item.keywords or "backend" not in item.fixturenames or item.path.stem not in OF_MEMORY
    name = ("once-" if once else "-".join(BACKENDS) + "-") + item.path.stem
    if name not in _mine:
        try:
            os.mkdir(os.path.join(FOLDER, name))
            _mine[name] = True
        except FileExistsError:
            _mine[name] = False
    return _mine[name]


def pytest_runtestloop(session):
    """pytest's own loop passes each item the next one, and keeps the next one's fixtures. Here the next file is unknown before it is
    claimed, so that the last item of a file keeps only the session's fixtures."""
    if not FOLDER or session.testsfailed or session.config.option.collectonly:
        return None
    for _, items in itertools.groupby(session.items, lambda item: item.path):
        mine = [item for item in items if _claims(item)]
        for item, following in zip(mine, [*mine[1:], session]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
    session._setupstate.teardown_exact(None)
    return True
