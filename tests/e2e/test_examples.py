"""The scripts of etc/examples, against a daemon."""
import os
import shutil
import subprocess
import sys

import pytest

from harness import PATIENCE_S, binary, optional

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
EXAMPLES = os.path.join(ROOT, "etc", "examples")
PACKAGE = os.path.join(ROOT, "src", "python")
SECTIONS = ("Query for support", "default pool", "release threshold", "Trim", "Watermarks", "Reuse on one stream",
            "follow_event_dependencies", "allow_opportunistic", "allow_internal_dependencies", "Synchronization",
            "freed in both orders", "Access of other devices")


def play(name, *args):
    if not shutil.which("curl"):
        pytest.skip("there is no curl")
    return subprocess.run(["sh", os.path.join(EXAMPLES, name), *args], capture_output=True, text=True,
                          timeout=PATIENCE_S * 2, env={k: v for k,
                                                       v in os.environ.items() if not k.startswith("GPUBUF")})


@pytest.mark.once
@pytest.mark.timeout(600)
def test_a_resident_model(tmp_path):
    """Where torch and transformers are: a small model, by processes that map it."""
    optional("torch")
    optional("transformers")
    path = os.path.dirname(binary()) + os.pathsep + os.environ["PATH"]
    out = subprocess.run([sys.executable, os.path.join(EXAMPLES, "resident-model", "measure.py"), "--size", "tiny"],
                         capture_output=True, text=True, timeout=600, cwd=tmp_path, env={
                             **{k: v for k, v in os.environ.items() if not k.startswith("GPUBUF")}, "PATH": path,
                             "PYTHONPATH": PACKAGE, "PYTHONDONTWRITEBYTECODE": "1"})
    assert out.returncode == 0, out.stdout + out.stderr
    assert out.stdout.splitlines()[-1].split("|")[2].strip() == "yes", out.stdout


@pytest.mark.once
def test_a_script_of_python_says_what_it_lacks(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError(\"No module named 'torch'\")")
    for name, args in (("take.py", ("x", "y")), ("measure.py", ())):
        out = subprocess.run([sys.executable, os.path.join(EXAMPLES, "resident-model", name), *args],
                             capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path,
                             env={"PYTHONPATH": str(tmp_path), "PATH": "/nowhere"})
        assert (out.returncode, out.stdout, out.stderr.count("\n")) == (1, "", 1), out.stderr
        assert out.stderr.startswith(f"{name} needs torch, transformers, numpy and gpubuf"), out.stderr


@pytest.mark.once
def test_a_script_of_python_has_help():
    for name in ("take.py", "measure.py"):
        out = subprocess.run([sys.executable, os.path.join(EXAMPLES, "resident-model", name), "--help"], check=True,
                             capture_output=True, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        assert out.stdout.startswith("usage: " + name)


def test_the_stream_ordered_allocator(start, backend):
    """On simulated devices nothing is skipped but what needs a GPU's own client."""
    simulated = backend.startswith("host")
    d = start("--map-uids", "any", spec=backend + ("," if ":" in backend else ":") + "bytes=512M,devices=2,legacy=fake"
              if simulated else backend)
    out = play("stream-ordered.sh", d.url(""))
    print(out.stdout)
    assert out.returncode == 0 and "All is as the chapter says." in out.stdout, out.stdout + out.stderr
    for section in SECTIONS:
        assert section in out.stdout, section
    assert not simulated or out.stdout.count("skipped:") == 1
    assert [s["name"] for s in d.get("/v1/sessions")["items"]] == ["default"]


def test_a_script_that_cannot_do_its_work_fails():
    out = play("stream-ordered.sh", "unix:///nowhere/gpubufd.sock")
    assert out.returncode == 1 and "no gpubufd at unix:///nowhere/gpubufd.sock: " in out.stderr, out.stderr
    out = play("stream-ordered.sh", "--no-such-option")
    assert out.returncode == 2 and "--no-such-option" in out.stderr and "Usage:" in out.stderr


def test_help_of_a_script_asks_nobody():
    for option in ("-h", "--help"):
        out = play("stream-ordered.sh", option)
        assert out.returncode == 0 and out.stdout.startswith("Usage: stream-ordered.sh [URL]\n") and not out.stderr


def test_the_units_of_a_backup():
    """As systemd sees them, but for the programs, which are not installed here."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("there is no systemd")
    units = [os.path.join(EXAMPLES, f"gpubuf-backup@.{kind}") for kind in ("service", "timer")]
    out = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True,
                         timeout=PATIENCE_S)
    said = [line for line in out.stderr.splitlines() if "gpubuf-backup" in line and "is not executable" not in line]
    assert not said, out.stderr
