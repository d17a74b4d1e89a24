"""A Python client that openapi-python-client makes of the daemon's document: nothing is left out of it, its types are
whole, and it works."""
import json
import os
import shutil
import subprocess
import sys

import pytest

from harness import library

HERE = os.path.dirname(os.path.abspath(__file__))
BYTES = ("application/partial-upload", "application/x-npy", "application/x-safetensors", "application/vnd.safetensors",
         "multipart/byteranges")
# The generator knows few media types: these are bytes, and a problem is JSON. Classes of enumerations would need names
# for "u8" and "U8".
CONFIG = {"post_hooks": [], "literal_enums": True,
          "content_type_overrides": {**{kind: "application/octet-stream" for kind in BYTES},
                                     "application/problem+json": "application/json"}}


def run(*args, cwd, **env):
    done = subprocess.run([sys.executable, *args], cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True,
                          timeout=250)
    assert done.returncode == 0, f"{args}\n{done.stdout[-4000:]}{done.stderr[-2000:]}"


@pytest.mark.once
@pytest.mark.timeout(600)
def test_a_generated_client(start, tmp_path):
    library("openapi_python_client")
    library("mypy")
    d = start()
    (tmp_path / "openapi.json").write_bytes(d.ask("GET", "/openapi.json").expect(200).body)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    run("-m", "openapi_python_client", "generate", "--path", "openapi.json", "--config", "config.json", "--output-path",
        "gpubuf_generated", "--meta", "none", "--fail-on-warning", cwd=tmp_path)
    shutil.copy(os.path.join(HERE, "generated_use.py"), tmp_path)
    run("-m", "mypy", "--strict", "--cache-dir", "mypy", "gpubuf_generated", "generated_use.py", cwd=tmp_path)
    run("generated_use.py", d.url(""), cwd=tmp_path, PYTHONDONTWRITEBYTECODE="1")
