"""`gpubufd selftest`: the table of kinds by direction by size."""
import json
import os
import subprocess

import pytest

from harness import binary

BACKENDS = os.environ.get("GB_E2E_BACKENDS", "host host:discrete").split()


def selftest(*args):
    return subprocess.run([binary(), "selftest", *args], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_kind_in_both_directions_and_every_byte(backend):
    out = selftest("--backend", backend, "--device", "0", "--json")
    assert out.returncode == 0, out.stderr
    result = json.loads(out.stdout)
    assert result["device"] == 0 and result["uuid"]
    seen = {(c["kind"], c["direction"]) for c in result["copies"]}
    assert ("device", "on device") in seen
    for kind in ("pinned", "pageable"):
        assert {(kind, "to device"), (kind, "from device")} <= seen
    measured = [c for c in result["copies"] if "error" not in c]
    assert {c["bytes"] for c in measured} >= {64 << 10, 1 << 20, 16 << 20}
    assert all(c["verified"] and c["gigabytes_per_s"] > 0 for c in measured)
    waiting = result["waiting"]
    # Behind so much earlier work, a clock around the copy measures mostly waiting.
    assert waiting["seconds_queued"] > waiting["seconds_copying"] > 0
    assert waiting["earlier_bytes"] > waiting["bytes"]


def test_the_table_for_people():
    out = selftest("--backend", "host:bytes=64M")
    assert out.returncode == 0, out.stderr
    for word in ("kind", "64 KiB", "pinned", "from device", "it waited"):
        assert word in out.stdout


def test_each_device_has_its_line():
    out = selftest("--backend", "host:devices=2,bytes=64M", "--json")
    assert out.returncode == 0, out.stderr
    assert [json.loads(line)["device"] for line in out.stdout.splitlines()] == [0, 1]


def test_a_device_that_fails_is_no_success():
    out = selftest("--backend", "fault:move@3=cudaErrorInvalidValue:host:bytes=64M")
    assert out.returncode == 70 and "cudaMemcpyAsync" in out.stdout + out.stderr


@pytest.mark.parametrize("args, named", [(["--device", "7"], "there is no device 7"), (["--device"], "--device"), (["--device", "x"], "--device"),
                                         (["now"], "now"), (["--backend", "abacus"], "abacus")])
def test_wrong_words_are_named(args, named):
    backend = [] if args[0] == "--backend" else ["--backend", "host:bytes=16M"]
    out = selftest(*backend, *args)
    assert out.returncode != 0 and named in out.stderr, out.stderr
