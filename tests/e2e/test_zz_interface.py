"""Runs last: compares the answers of whole runs, whose records GB_E2E_RECORDS names, with the document."""
import os

import pytest

from conform import interface
from harness import BACKENDS, Daemon
from record import COMMON, RECORD


# Answers that are declared, and that no test brings about: {"GET /v1/things 500": why}. One that a test brings about
# does not stand here, unless under BY_CHANCE.
UNTRIED = {}
BY_CHANCE = {f"POST /v1/fleet/directory/{{op}} {status} Gpubuf-Directory-Doubt": "what etcd refuses within a doubt"
             for status in (400, 404, 412)}


def _gaps(declared, answered, common=frozenset()):
    for operation, statuses in sorted(declared.items()):
        for status, (names, kinds) in sorted(statuses.items()):
            had = answered.get(operation, {}).get(status)
            if had is None:
                yield f"{' '.join(operation)} {status}"
                continue
            yield from (f"{' '.join(operation)} {status} {name}" for name in sorted(names - had[0] - common))
            yield from (f"{' '.join(operation)} {status} as {kind}" for kind in sorted(kinds - had[1]))


@pytest.fixture(scope="module")
def described():
    for path in os.environ["GB_E2E_RECORDS"].split():
        RECORD.load(path)
    with Daemon(BACKENDS[0]) as d:
        yield interface(d)


def test_all_that_is_declared_was_produced(described):
    gaps = set(_gaps(described.declared(), RECORD.by_operation(described)))
    missing = sorted(gaps - UNTRIED.keys() - BY_CHANCE.keys())
    assert not missing, "declared, and produced by no test:\n" + "\n".join(missing)
    tried = sorted(UNTRIED.keys() - gaps)
    assert not tried, "UNTRIED has what a test produces, or what is not declared:\n" + "\n".join(tried)


def test_all_that_was_produced_is_declared(described):
    missing = list(_gaps(RECORD.by_operation(described), described.declared(), COMMON))
    assert not missing, "produced, and not declared:\n" + "\n".join(missing)
