"""The tests that safetensors and numpy have of their own formats, with the daemon between what they write and what they
read (suites.py). Where one of them fails, the daemon judges a file, or gives a tensor, otherwise than its library."""
import importlib.util
import os

import numpy as np
import pytest

import suites

HAS_TORCH = importlib.util.find_spec("torch") is not None

# The files of safetensors' suite that run. What needs torch is skipped where that is not installed.
FILES = ["test_handle.py", "test_multithreaded.py", "test_pread_backend.py", "test_pt_comparison.py",
         "test_pt_model.py", "test_simple.py"]
LEFT = {
    "test_flax_comparison.py": "of arrays of jax, which suites.py does not compare",
    "test_mlx_comparison.py": "of arrays of mlx, which runs on Apple's machines",
    "test_paddle_comparison.py": "of arrays of paddle, which suites.py does not compare",
    "test_tf_comparison.py": "of arrays of tensorflow, which suites.py does not compare",
    "test_threadable.py": "asserts that four writes of 200 MB each overlap in time, and nothing of the format",
}
# What fails, and must: {test: why}
DIFFERENT = {
    "test_pt_comparison.py::TorchTestCase::test_odd_dtype_fp4": "the daemon has no elements of four bits",
}
SKIPPED = ("torch is not installed", "without s3 access", "Cuda is not available", "Only 1 device available",
           "MPS is not available", "HPU is not available", "Npu is not available", "requires torch 2.8")
# Of numpy's: nothing of the daemon is in them.
SLOW = {"test_large_file_support": "writes a file of 5 GB", "test_huge_header": "numpy parses ten million characters"}


@pytest.fixture
def suite():
    if not os.path.isdir(suites.folder()):
        if os.environ.get("GB_E2E_LACKING") == "skip":
            pytest.skip("safetensors' tests are not on this machine")
        pytest.fail(f"{suites.folder()} is not there: tests/e2e/venv makes it, as ./bootstrap check does")
    return os.path.join(suites.folder(), suites.SAFETENSORS)


def test_safetensors(daemon, session, tmp_path, suite):
    assert {name for name in os.listdir(suite) if name.endswith(".py")} == {*FILES, *LEFT}
    (tmp_path / "tests/data").mkdir(parents=True)  # where some of the tests write
    r = suites.run(daemon, session, tmp_path, "safetensors", [os.path.join(suite, name) for name in FILES])
    outcomes, counts = r["outcomes"], r["counts"]
    failed = {name for name, outcome in outcomes.items() if outcome == "failed"}
    assert failed == {name for name in DIFFERENT if outcomes.get(name, "skipped") != "skipped"}, r["out"]
    for name in failed:
        assert "the daemon refuses what the library writes" in r["reasons"][name]
    for name, outcome in outcomes.items():
        assert outcome != "skipped" or any(why in r["reasons"][name] for why in SKIPPED), r["reasons"][name]
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    if HAS_TORCH:
        assert passed >= 60 and counts["written"] >= 70 and counts["read"] >= 50 and counts["tensors"] >= 150, counts
        assert counts["slices"] >= 15 and counts["refused"] == 2, counts
    else:
        assert passed == 16, r["out"]
        assert counts == {"written": 25, "read": 17, "tensors": 51, "slices": 8, "slices refused": 4}


def test_numpy(daemon, session, tmp_path):
    folder = os.path.join(os.path.dirname(np.lib.__file__), "tests")
    fast = "".join(f" and not {name}" for name in SLOW)
    files = [os.path.join(folder, f"test_{name}.py") for name in ("format", "io")]
    r = suites.run(daemon, session, tmp_path, "numpy", files,
                   "-m", "not slow", "-k", f"(test_format or TestSaveLoad or TestSavezLoad){fast}")
    assert {*r["outcomes"].values()} == {"passed"} and len(r["outcomes"]) >= 50, r["out"]
    counts = r["counts"]
    assert counts["written"] >= 300 and counts["read"] >= 200 and counts["damaged"] >= 150, counts
    assert {*counts} - {"written", "read", "damaged"} == {"objects", "fields", "no numbers", "big-endian"}, counts
