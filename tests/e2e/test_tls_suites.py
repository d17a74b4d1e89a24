"""Files of ordinary tests once more, with daemons that listen for TLS: their names stand here."""
import os
import subprocess
import sys

import pytest

import secure

pytestmark = [pytest.mark.once, pytest.mark.skipif(secure.EVERYWHERE, reason="this is such a run")]

# Uploads and downloads in every framing and length, bodies in parts, waits, the stop, clients that do not read. With
# GB_E2E_TLS=1 any file can be run; those that need plain bytes, refusals before a handshake or 10,000 connections fail:
# of test_traps, test_broken, test_hostile.
FILES = ["test_transfer", "test_uploads", "test_resumable", "test_long_poll", "test_stop", "test_unread"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", FILES)
def test_over_tls(name):
    here = os.path.dirname(os.path.abspath(__file__))
    own = {k: v for k, v in os.environ.items()
           if k not in ("GB_E2E_SET", "GB_E2E_RECORD", "GB_E2E_OUTCOMES", "GB_E2E_ONLY", "GB_E2E_NOW")
           and not k.startswith("PYTEST_XDIST")}
    run = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rfE", "--tb=short",
                          os.path.join(here, name + ".py")],
                         env={**own, "GB_E2E_TLS": "1", "GB_E2E_BACKENDS": "host"}, capture_output=True,
                         text=True)
    assert run.returncode == 0, (run.stdout + run.stderr)[-6000:]
