"""make install: installed files name the folders of the installation."""
import os
import subprocess

import pytest

from harness import binary

BUILD = os.path.dirname(os.path.abspath(binary()))


@pytest.mark.parametrize("destdir", [False, True], ids=["prefix", "DESTDIR"])
def test_the_prefix_of_make_install_counts(tmp_path, destdir):
    if not os.path.exists(os.path.join(BUILD, "Makefile")):
        pytest.skip("the daemon is not in the folder that it was built in")
    root, prefix = (str(tmp_path), "/opt/elsewhere") if destdir else ("", str(tmp_path / "there"))
    clean = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "DESTDIR")}
    out = subprocess.run(["make", "-s", "install-data", f"prefix={prefix}", f"DESTDIR={root}"], cwd=BUILD, env=clean, capture_output=True,
                         text=True, timeout=600)
    assert out.returncode == 0, out.stderr
    with open(f"{root}{prefix}/lib/pkgconfig/gpubuf.pc") as f:
        fields = dict(line.strip().split("=", 1) for line in f if "=" in line)
    assert fields["prefix"] == prefix and all(value.startswith(prefix) for value in fields.values()), fields
    unit = next(os.path.join(folder, "gpubufd.service") for folder, _, names in os.walk(root + prefix) if "gpubufd.service" in names)
    with open(unit) as f:
        assert f"ExecStart={prefix}/sbin/gpubufd --config {prefix}/etc/gpubufd.conf\n" in f.read()
    assert os.path.exists(f"{root}{prefix}/include/gpubuf/gpubuf.h")
