"""Several pytests share the tests: each file is run by the one that claims it first, in the folder that GB_E2E_CLAIMS names."""
import itertools
import os

from harness import BACKENDS

FOLDER = os.environ.get("GB_E2E_CLAIMS")
_mine = {}


def _claims(item):
    """Whether the item belongs to this share. Tests that are the same on every backend are run by one share of all."""
    once = "once" in item.keywords or "backend" not in item.fixturenames
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
