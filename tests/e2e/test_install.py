"""make install: installed files name the folders of the installation."""
import os
import subprocess

import pytest

from documents import alike, blocks_of
from harness import binary

BUILD = os.path.dirname(os.path.abspath(binary()))
DOCUMENT = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "doc", "c.md")


def installed(*args):
    if not os.path.exists(os.path.join(BUILD, "Makefile")):
        pytest.skip("the daemon is not in the folder that it was built in")
    clean = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "DESTDIR")}
    out = subprocess.run(["make", "-s", *args], cwd=BUILD, env=clean, capture_output=True, text=True, timeout=600)
    assert out.returncode == 0, out.stderr


@pytest.mark.parametrize("destdir", [False, True], ids=["prefix", "DESTDIR"])
def test_the_prefix_of_make_install_counts(tmp_path, destdir):
    root, prefix = (str(tmp_path), "/opt/elsewhere") if destdir else ("", str(tmp_path / "there"))
    installed("install-data", f"prefix={prefix}", f"DESTDIR={root}")
    with open(f"{root}{prefix}/lib/pkgconfig/gpubuf.pc") as f:
        fields = dict(line.strip().split("=", 1) for line in f if "=" in line)
    assert fields["prefix"] == prefix and all(value.startswith(prefix) for value in fields.values()), fields
    unit = next(os.path.join(folder, "gpubufd.service") for folder, _,
                names in os.walk(root + prefix) if "gpubufd.service" in names)
    with open(unit) as f:
        assert f"ExecStart={prefix}/sbin/gpubufd --config {prefix}/etc/gpubufd.conf\n" in f.read()
    assert os.path.exists(f"{root}{prefix}/include/gpubuf/gpubuf.h")


@pytest.mark.once
def test_the_example_in_c(daemon, tmp_path):
    """The program of doc/c.md is built with the commands that stand there, against an installed library, and prints
    what stands there."""
    with open(DOCUMENT, encoding="utf-8") as f:
        blocks = blocks_of(f.read(), "doc/c.md")
    example = next(i for i, block in enumerate(blocks) if block.language == "c")
    commands = next(block.text for block in blocks if block.language == "sh")
    (tmp_path / "example.c").write_text(blocks[example].text)
    prefix = str(tmp_path / "there")
    installed("install-libLTLIBRARIES", "install-data", f"prefix={prefix}")
    env = {**os.environ, "PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig", "LD_LIBRARY_PATH": f"{prefix}/lib",
           "GPUBUF_SOCKET": daemon.unix}
    env.pop("GPUBUF_URL", None)
    ran = subprocess.run(["bash", "-ec", commands.replace("-Wall", "-Wall -Werror")], cwd=tmp_path, env=env,
                         capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0 and ran.stderr == "", ran.stdout + ran.stderr
    assert alike(blocks[example + 1].text, ran.stdout), ran.stdout
