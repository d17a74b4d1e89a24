"""Runs last: compares the answers of whole runs, whose records GB_E2E_RECORDS names, with the document."""
import os

import pytest

from conform import interface
from harness import BACKENDS, Daemon
from record import COMMON, RECORD


# Answers of checkpoints that no test brings about yet: faults, limits and work in the background.
UNTRIED = set("""
DELETE /v1/checkpoints/{c} 500
GET /v1/checkpoints/{c} 304
GET /v1/checkpoints/{c}/files/{file} 206 as application/json
GET /v1/checkpoints/{c}/files/{file} 304 Vary
GET /v1/checkpoints/{c}/files/{file} 409
GET /v1/checkpoints/{c}/files/{file} 410
GET /v1/checkpoints/{c}/files/{file} 500
POST /v1/checkpoints/{c}/restore 202
POST /v1/checkpoints/{c}/restore 500
POST /v1/checkpoints/{c}/restore 501
POST /v1/checkpoints/{c}/restore 507
POST /v1/checkpoints/{c}/verify 202
POST /v1/checkpoints/{c}/verify 409 Retry-After
POST /v1/checkpoints/{c}/verify 410
POST /v1/checkpoints/{c}/verify 422
POST /v1/checkpoints/{c}/verify 500
POST /v1/checkpoints/{c}/verify 501
POST /v1/checkpoints/{c}/verify 507
POST /v1/sessions/{s}/checkpoints 202
POST /v1/sessions/{s}/checkpoints 501
PUT /v1/checkpoints/{c}/files/{file} 202
PUT /v1/checkpoints/{c}/files/{file} 404
PUT /v1/checkpoints/{c}/files/{file} 409 Retry-After
PUT /v1/checkpoints/{c}/files/{file} 411
PUT /v1/checkpoints/{c}/files/{file} 413
PUT /v1/checkpoints/{c}/files/{file} 415
PUT /v1/checkpoints/{c}/files/{file} 422
PUT /v1/checkpoints/{c}/files/{file} 500
PUT /v1/checkpoints/{c}/files/{file} 501
PUT /v1/checkpoints/{c}/files/{file} 507
""".strip().split("\n"))


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
    missing = sorted(gaps - UNTRIED)
    assert not missing, "declared, and produced by no test:\n" + "\n".join(missing)


def test_all_that_was_produced_is_declared(described):
    missing = list(_gaps(RECORD.by_operation(described), described.declared(), COMMON))
    assert not missing, "produced, and not declared:\n" + "\n".join(missing)
