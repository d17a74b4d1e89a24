"""The role of etc/ansible: its playbook is well formed, and a daemon takes the options and tokens that it writes.
tests/packages/inside runs all of it in a root of its own, with the packages."""
import grp
import json
import os
import pwd
import shutil
import stat
import subprocess

import pytest

from gpubuf_cli import DONE, FAILED, Cli
from harness import PATIENCE_S, binary

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "etc", "ansible")
SECRETS = {"vault_gpubufd_writer": "gpb_" + "1" * 64, "vault_gpubufd_watch": "gpb_" + "2" * 64}

pytestmark = [pytest.mark.skipif(shutil.which("ansible-playbook") is None, reason="ansible-core is not installed"),
              pytest.mark.skipif(not os.path.isdir(FOLDER), reason="a bundle has no role")]


@pytest.fixture
def play(tmp_path):
    """Runs ansible-playbook with these variables, on this machine, whose services are not asked for."""
    def run(*args, status=0, **variables):
        (tmp_path / "vars.json").write_text(json.dumps({
            **SECRETS, "gpubufd_conf": f"{tmp_path}/gpubufd.conf", "gpubufd_tokens_file": f"{tmp_path}/etc/tokens",
            "gpubufd_program": binary(), "gpubufd_owner": pwd.getpwuid(os.getuid()).pw_name,
            "gpubufd_group": grp.getgrgid(os.getgid()).gr_name, "gpubufd_systemd": {"stat": {"exists": False}},
            "ansible_become": False, **variables}))
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("ANSIBLE_", "GPUBUFD_"))}
        p = subprocess.run(["ansible-playbook", "-i", os.path.join(FOLDER, "inventory.yml"),
                            os.path.join(FOLDER, "gpubufd.yml"), "-c", "local", "-e", f"@{tmp_path}/vars.json", *args],
                           capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path,
                           env={**clean, "HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1",
                                "ANSIBLE_HOME": f"{tmp_path}/a"})
        assert p.returncode == status, p.stdout + p.stderr
        assert not any(secret in p.stdout + p.stderr for secret in SECRETS.values())
        return p.stdout
    return run


CONFIGURE = ["-t", "gpubufd_configure", "-l", "gpu1", "-v", "--diff"]
OPTIONS = {"listen": ["127.0.0.1:0"], "quota-bytes": "4G", "hsts": 0, "exit-on-device-loss": True}


def test_the_playbook_is_well_formed(play):
    play("--syntax-check")
    assert play("--list-hosts").count("gpu1") == 1
    assert "Write the tokens" in play("--list-tasks")


def test_a_daemon_takes_what_it_writes(play, start, tmp_path):
    said = play(*CONFIGURE, gpubufd_options=OPTIONS)
    assert "changed=3" in said and "a restart is due" in said
    assert "changed=0" in play(*CONFIGURE, gpubufd_options=OPTIONS)
    tokens = tmp_path / "etc/tokens"
    assert stat.S_IMODE(os.stat(tokens).st_mode) == 0o640 and not any(s in tokens.read_text() for s in SECRETS.values())
    lines = (tmp_path / "gpubufd.conf").read_text().splitlines()[2:]
    assert lines == ["exit-on-device-loss = true", "hsts = 0", "listen = 127.0.0.1:0", "quota-bytes = 4G",
                     f"tokens-file = {tokens}"]
    daemon = start("--config", str(tmp_path / "gpubufd.conf"))
    for name, status in (("writer", DONE), ("watch", FAILED)):
        Cli(daemon.url(""), GPUBUF_TOKEN=SECRETS[f"vault_gpubufd_{name}"])("put", "-", "x", input=b"abc").expect(status)
    assert "gpubufd token add" in Cli(daemon.url(""))("ls").expect(FAILED).err


def test_what_does_not_fit_is_not_written(play, tmp_path):
    said = play(*CONFIGURE, gpubufd_options={"quota-bites": "4G"}, status=2)
    assert "is quota-bytes meant?" in said and not os.path.exists(tmp_path / "gpubufd.conf")


def test_a_dry_run_changes_nothing(play, tmp_path):
    play(*CONFIGURE, "--check", gpubufd_options=OPTIONS)
    assert not os.path.exists(tmp_path / "gpubufd.conf") and not os.path.exists(tmp_path / "etc")


@pytest.mark.parametrize("host", ["edge1", "gpu1"])
def test_the_options_of_the_example_are_options(play, tmp_path, host):
    """A file that they name is not there: the program is asked for the names and values alone."""
    play("-t", "gpubufd_configure", "-l", host, gpubufd_program="true")
    p = subprocess.run([binary(), "check", str(tmp_path / "gpubufd.conf")], capture_output=True, text=True,
                       timeout=PATIENCE_S)
    assert "there is no option" not in p.stdout + p.stderr and "is not" not in p.stdout + p.stderr, p.stdout + p.stderr
