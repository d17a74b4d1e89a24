"""Mixed load for some seconds: tests/soak/run in full takes an hour."""
import os
import subprocess
import sys

import pytest
from harness import binary


@pytest.mark.once
@pytest.mark.timeout(180)
def test_mixed_load_leaves_nothing(backend):
    run = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "soak", "run")
    out = subprocess.run([sys.executable, run, "--minutes", "0.2", "--row", "6", "--backend", backend, "--daemon",
                          binary()],
                         capture_output=True, text=True, timeout=170)
    wrong = [line.strip() for line in out.stdout.splitlines() if line.startswith("  ")]
    assert out.returncode == 0 and "PASS" in out.stdout, f"{wrong}\n{out.stdout}{out.stderr}"
