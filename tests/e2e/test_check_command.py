"""gpubufd check FILE, and gpubufd's answers to words that it does not know."""
import json
import os
import subprocess

import pytest

from harness import PATIENCE_S, SANITIZERS, binary

OK, USAGE, CONFIG = 0, 64, 78


def gpubufd(*words, status=OK, **env):
    out = subprocess.run([binary(), *map(str, words)], capture_output=True, text=True, timeout=PATIENCE_S,
                         env={**os.environ, **env})
    assert not SANITIZERS.search(out.stderr) and out.returncode == status, (words, out)
    return out


@pytest.fixture
def conf(tmp_path):
    def write(text):
        (tmp_path / "gpubufd.conf").write_text(text)
        return tmp_path / "gpubufd.conf"

    return write


def test_a_file_without_mistakes(conf, tmp_path):
    path = conf(f"# mine\nlisten = 127.0.0.1:0\nstate-dir = {tmp_path}/state\nlog-level = info\n")
    assert gpubufd("check", path).stdout == f"{path}: 3 options, no mistakes\n"
    assert json.loads(gpubufd("check", path, "--json").stdout) == {"file": str(path), "mistakes": [], "options": 3}
    assert os.listdir(tmp_path) == ["gpubufd.conf"]


def test_the_file_that_is_installed_has_none():
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.path.join(here, "..", "..", "etc", "gpubufd.conf")
    if not os.path.exists(path):
        pytest.skip("etc/gpubufd.conf is not beside the tests")
    gpubufd("check", path)


def test_each_mistake_has_its_line(conf):
    path = conf("listen = here\nlog-levle = info\nevict-low = 90\nevict-high = 80\n\nmax-json = "
                "much\nnothing\nhost-name = http://gpu1\npull-from = nowhere\nslot-bytes = 4M\nslots-bytes = 2M\n")
    said = gpubufd("check", path, status=CONFIG)
    lines = said.stderr.splitlines()
    for number, text in ((1, '--listen: "here"'), (2, "is log-level meant?"),
                         (3, "--evict-low 90 is above --evict-high 80"), (6, "max-json"), (7, "name = value"),
                         (8, "--host-name"), (9, "--pull-from"), (10, "--slot-bytes is larger")):
        assert [line for line in lines if line.startswith(f"{path}:{number}: ") and text in line], (number, text, lines)
    assert len(lines) == 8 and said.stdout == ""
    told = json.loads(gpubufd("check", path, "--json", status=CONFIG).stdout)
    assert sorted(m["line"] for m in told["mistakes"]) == [1, 2, 3, 6, 7, 8, 9, 10] and told["options"] == 7
    # the daemon itself tells the first, and does not start
    assert 'there is no option "log-levle"' in gpubufd("--config", path, status=USAGE).stderr


def test_what_the_start_would_open(conf, tmp_path):
    path = conf(f"backend = rocm\ntokens-file = {tmp_path}/none\ntls-listen = 127.0.0.1:0\ntls-cert = "
                f"{tmp_path}/c\ntls-key = {tmp_path}/k\n")
    lines = gpubufd("check", path, status=CONFIG).stderr.splitlines()
    for number, text in ((1, "unknown --backend 'rocm'; permitted: auto"), (2, "--tokens-file: "),
                         (None, f"{tmp_path}/c")):
        begins = f"{path}:{number}: " if number else f"{path}"
        assert [line for line in lines if line.startswith(begins) and text in line], (text, lines)
    assert len(lines) == 3
    assert gpubufd("check", conf("log-level = info\n")).stdout.endswith(": 1 option, no mistakes\n")


def test_mistakes_of_no_line_and_options_of_the_command_line(conf):
    path = conf("tls-listen = 127.0.0.1:0\n")
    assert f"{path}:1: --tls-listen needs a certificate" in gpubufd("check", path, status=CONFIG).stderr
    path = conf("log-level = info\n")
    assert f"{path}: --host-name" in gpubufd("--host-name", "http://x", "check", path, status=CONFIG).stderr
    assert "no mistakes" in gpubufd("check", path, GPUBUFD_LOG_LEVEL="loud").stdout


@pytest.mark.parametrize("words,status,text", [
    ((), USAGE, "check needs a FILE"), (("a", "b"), USAGE, 'one word too many: "b"'),
    (("--jsno", "a"), USAGE, "is --json meant?"), (("/nonexistent/gpubufd.conf",), CONFIG,
                                                   "cannot be read: No such file"),
    (("/",), CONFIG, "cannot be read: Is a directory"),
])
def test_what_cannot_be_checked(words, status, text):
    assert text in gpubufd("check", *words, status=status).stderr


def test_help_version_and_the_nearest_word():
    assert "gpubufd check FILE [--json]" in gpubufd("check", "--help").stdout
    assert gpubufd("-V").stdout == gpubufd("--version").stdout != ""
    assert "is check meant?" in gpubufd("chekc", "x", status=USAGE).stderr
    assert "is --state-dir meant?" in gpubufd("--statedir", "x", status=USAGE).stderr
    assert "meant?" not in gpubufd("--wholly-unknown", status=USAGE).stderr
    assert gpubufd("help").stdout == gpubufd("--help").stdout
