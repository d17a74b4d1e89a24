"""What other processes see of the daemon and of the programs beside it: no secret in their command lines, no memory, no
core."""
import contextlib
import fcntl
import hashlib
import os
import resource
import signal
import subprocess

import pytest

from gpubuf_cli import Cli, interrupt
from harness import DATA, SMALL_SLOTS, Daemon, binary, for_everybody, token, until

NOBODY = 65534
PLENTY = 1 << 30


def command_line(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as f:
        return f.read()


def known_to(d, secret):
    return until("the token is in force", lambda: d.ask("GET", "/v1", token=secret).status == 200)


def test_no_secret_is_in_a_command_line(start, tmp_path):
    """Of the daemon with tokens of both kinds, and of gpubuf with the token from the environment and from a file."""
    of_file, state, tokens = "a-secret-of-the-file", str(tmp_path / "s"), tmp_path / "tokens"
    tokens.write_text(f"name=one secret={of_file}\n")
    tokens.chmod(0o600)
    secret = token(state, "add", "two", "--scope", "write")
    d = start("--tokens-file", str(tokens), state=state)
    own = tmp_path / "token"
    own.write_text(secret + "\n")
    own.chmod(0o600)
    ways = (({"GPUBUF_TOKEN": secret}, ()), ({}, ("--token-file", own)))
    printed = tmp_path / "printed"
    for env, options in ways:
        with open(printed, "wb") as out:
            follower = Cli(url=d.url(""), **env).start("feed", *options, stdout=out)
        try:
            until("it prints", lambda: d.ask("PUT", DATA.format("default", "x"), b"1", token=secret)
                  and printed.stat().st_size > 0)
            assert (command_line(follower.pid).split(b"\0")[1] == b"feed"
                    and secret.encode() not in command_line(follower.pid))
        finally:
            interrupt(follower)
    known_to(d, of_file)
    line = command_line(d.process.pid)
    assert b"--tokens-file" in line
    for text in (secret, of_file, hashlib.sha256(of_file.encode()).hexdigest()):
        assert text.encode() not in line


@contextlib.contextmanager
def full_pipe():
    """A pipe without room: a writer waits. The reader's end, and the writer's."""
    reader, writer = os.pipe()
    room = fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writer, b"\n" * room)
    try:
        yield reader, writer
    finally:
        os.close(reader)
        os.close(writer)


def waits_to_write(pid):
    """In a call whose first argument is standard output."""
    with open(f"/proc/{pid}/syscall") as f:
        return f.read().split()[1:2] == ["0x1"]


@pytest.mark.parametrize("words", [("add", "one"), ("rotate", "zero")])
def test_token_commands_keep_the_secret_to_themselves(tmp_path, words):
    """While the secret waits for its reader, neither the command line nor the environment has it."""
    token(str(tmp_path), "add", "zero")
    with full_pipe() as (reader, writer):
        p = subprocess.Popen([binary(), "token", *words, "--state-dir", str(tmp_path)], stdout=writer,
                             stderr=subprocess.PIPE)
        until("it writes the secret", lambda: waits_to_write(p.pid))
        seen = command_line(p.pid)
        with open(f"/proc/{p.pid}/environ", "rb") as f:
            seen += f.read()
        secret = b""
        while len(secret) < 60:
            secret += os.read(reader, 8192).strip()
        assert b"shown this once" in p.stderr.read() and p.wait(90) == 0
        p.stderr.close()
    assert b"--state-dir" in seen and secret.startswith(b"gpb_") and secret not in seen


@pytest.mark.skipif(os.getuid() != 0, reason="only root starts a daemon of another user")
def test_a_process_of_the_same_user_sees_no_memory(tmp_path):
    """What may be dumped belongs to its user in /proc; what may not, to root."""
    program, state = for_everybody(binary(), tmp_path), tmp_path / "s"
    state.mkdir()
    os.chown(state, NOBODY, NOBODY)
    for options, owner in (((), 0), (("--core-dumps",), NOBODY)):
        d = Daemon("host", *SMALL_SLOTS, *options, state=str(state), program=[program], user=NOBODY, group=NOBODY,
                   extra_groups=())
        try:
            for name in ("mem", "environ", "maps", "fd"):
                assert os.stat(f"/proc/{d.process.pid}/{name}").st_uid == owner, name
            reader = subprocess.run(["cat", f"/proc/{d.process.pid}/environ"], user=NOBODY, group=NOBODY,
                                    extra_groups=(), capture_output=True, timeout=90)
            assert (reader.returncode == 0) == (owner == NOBODY)
            d.stop()
        finally:
            d.clean()


def test_a_crash_leaves_no_core(tmp_path):
    """The parent permits cores of any size."""
    folder = tmp_path / "cwd"
    folder.mkdir()

    def permit():
        resource.setrlimit(resource.RLIMIT_CORE, (min(PLENTY, hard), hard))

    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    hard = PLENTY if hard == resource.RLIM_INFINITY else hard
    d = Daemon("host", *SMALL_SLOTS, state=str(tmp_path / "s"), cwd=folder, preexec_fn=permit)
    try:
        assert resource.prlimit(d.process.pid, resource.RLIMIT_CORE) == (0, 0)
        os.kill(d.process.pid, signal.SIGABRT)
        end = os.waitid(os.P_PID, d.process.pid, os.WEXITED | os.WNOWAIT)
        assert (end.si_code, end.si_status) == (os.CLD_KILLED, signal.SIGABRT)  # and not CLD_DUMPED
        assert d.process.wait(90) == -signal.SIGABRT
        assert not list(folder.iterdir())
    finally:
        d.clean()
