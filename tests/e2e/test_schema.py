"""schemathesis reads the document that a daemon serves, and sends requests that it permits and that it forbids."""
import json
import os
import re
import subprocess
import sys

import pytest

from harness import library
from record import RECORD

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.mark.once
@pytest.mark.timeout(850)
def test_nothing_undeclared(start, tmp_path):
    library("schemathesis")
    d = start("--wait-max", "1", "--slots-bytes", "8M", "--slot-bytes", "256K")
    answers = tmp_path / "answers"
    env = {**os.environ, "GB_E2E_ANSWERS": str(answers), "GB_E2E_ADDRESS": "{}:{}".format(*d.tcp), "PYTHONPATH": HERE,
           "SCHEMATHESIS_HOOKS": "schemathesis_hooks", "NO_COLOR": "1"}
    args = [sys.executable, "-m", "schemathesis.cli", "--config-file", os.path.join(HERE, "schemathesis.toml"), "run",
            d.url("/openapi.json"), "--checks", "all", "--warnings", "off"]
    done = subprocess.run(args, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-2000:]
    found = re.search(r"(\d+) generated", done.stdout)
    assert found and int(found.group(1)) > 1000, done.stdout[-3000:]
    with open(answers) as f:
        for line in f:
            RECORD.note(*json.loads(line))
    d.settled()
