"""gpubuf on a terminal: progress, top, completion."""
import os
import re
import shutil
import subprocess
import time

import pytest

from bursts import BURST, bursts, rate
from gpubuf_cli import DONE, INTERRUPTED, USAGE, Cli, Terminal, program

ALTERNATE, BACK = b"\x1b[?1049h", b"\x1b[?1049l"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "big.bin"
    with open(path, "wb") as f:
        f.truncate(32 << 20)
    return path


def test_progress_shows_size_rate_and_time(cli, file):
    t = Terminal(cli, "put", file, "x")
    t.end(DONE)
    last = re.split(rb"\r\x1b\[K", t.text.split(b"\n")[0])[-1].decode().strip()
    assert re.fullmatch(r"x  32\.0 MiB  100 %  \d+\.\d\d GB/s  in .*", last), t.text
    t = Terminal(cli, "get", "x", str(file) + ".back")
    t.end(DONE)
    assert b"100 %" in t.text and b"GB/s" in t.text


def test_progress_tells_what_is_left_while_it_goes_on(cli, daemon):
    t = Terminal(cli, "put", "-", "x", "--dtype", "uint8", "--shape", str(64 << 20), stdin=subprocess.PIPE)
    t.process.stdin.write(bytes(16 << 20))
    t.process.stdin.flush()
    text = t.read(b" left")
    assert re.search(rb"of 64\.0 MiB  \d+ %  [\d.]+ GB/s  .* left", text), text
    t.process.stdin.write(bytes(48 << 20))
    t.process.stdin.close()
    t.end(DONE)


def test_a_narrow_terminal_gets_narrow_lines(cli, file):
    t = Terminal(cli, "put", file, "a-rather-long-name-for-a-buffer", columns=40)
    t.end(DONE)
    for line in re.split(rb"\r\x1b\[K|\r?\n", t.text):
        if b"GB/s" in line:
            assert len(line) < 40, line


def test_silence_with_quiet_and_where_standard_error_is_a_pipe(cli, file):
    t = Terminal(cli, "put", file, "x", "--quiet")
    t.end(DONE)
    assert t.text == b""
    said = cli("put", file, "x").expect()
    assert said.err == ""


def test_an_interrupt_on_the_terminal_takes_the_line_away(cli, daemon, session):
    t = Terminal(cli, "put", "-", "x", "--dtype", "uint8", "--shape", str(64 << 20), stdin=subprocess.PIPE)
    t.process.stdin.write(bytes(1 << 20))
    t.process.stdin.flush()
    t.read(b"GB/s")
    t.type(b"\x03")
    t.end(INTERRUPTED)
    t.process.stdin.close()
    assert t.text.rstrip().endswith(b"interrupted; nothing is half-done")
    daemon.settled()
    assert cli.json("ls") == []


def test_bytes_are_not_thrown_at_a_terminal(cli):
    cli("put", "-", "x", input=b"abc").expect()
    t = Terminal(cli, "get", "x")
    t.end(USAGE)
    assert b"not for a terminal" in t.text
    t = Terminal(cli, "get", "x", "-")
    t.end(DONE)
    assert b"abc" in t.text


# --- top --------------------------------------------------------------------------------------------------------------
def test_top_lives_on_the_other_screen_and_gives_the_terminal_back(cli, daemon, session):
    t = Terminal(cli, "top", "--interval", "0.05", "-v", stderr=subprocess.PIPE)
    t.read(b"q quits")
    assert ALTERNATE in t.text
    t.read(b"POOL")
    daemon.put("fresh", bytes(12345), session).expect(201)
    t.read(b"12.1 KiB")
    for _ in range(4):  # some of these refreshes find no change
        t.text = b""
        t.read(b"q quits")
    t.type(b"q")
    before = t.before
    err = t.process.stderr.read().decode()
    assert t.end(DONE) == before
    assert t.text.rstrip().endswith(BACK)
    assert "/v1/stats -> 304" in err and "/v1/stats -> 200" in err


@pytest.mark.once  # the command's own work
def test_top_knows_the_rate_of_what_comes_in_bursts(start):
    d = start()
    t = Terminal(Cli(d.url("")), "top", "--interval", "0.2", columns=120)
    screen = t.read(b"\x1b[J")
    assert re.search(rb"upload +\d+ +[\d.]+ \w+ +[\d.]+ +[\d.]+ +-", screen), screen  # too soon
    with bursts(d):
        end = time.monotonic() + 12
        while time.monotonic() < end:
            t.text = b""
            t.read(b"q quits")
        seen = []
        for _ in range(8):
            t.text = b""
            t.read(b"q quits")
            seen += [rate(x.decode()) for x in re.findall(rb"^(?:up|down)load .* ([\d.]+ \w+/s)", t.read(b"\x1b[J"),
                                                          re.M)]
    t.type(b"q")
    t.end(DONE)
    assert len(seen) >= 12 and all(0.7 * BURST < x < 1.3 * BURST for x in seen), seen


def test_top_is_as_large_as_the_terminal(cli):
    t = Terminal(cli, "top", "--interval", "0.05", rows=6, columns=40)
    t.read(b"\x1b[J")
    t.type(b"q")
    t.end(DONE)
    screen = t.text.split(b"\x1b[H")[1].split(b"\x1b[J")[0]
    lines = [re.sub(rb"\x1b\[K|\r", b"", line) for line in screen.split(b"\n")]
    assert len(lines) <= 6 and max(map(len, lines)) <= 40, lines


def test_an_interrupt_ends_top_and_restores_the_terminal(cli):
    t = Terminal(cli, "top")
    t.read(b"q quits")
    t.type(b"\x03")
    assert t.end(INTERRUPTED) == t.before
    assert t.text.rstrip().endswith(BACK)


def test_top_says_when_the_daemon_is_gone_and_sees_it_again(start, tmp_path):
    d = start(state=str(tmp_path))
    cli = Cli(d.url(""))
    t = Terminal(cli, "top", "--interval", "0.05")
    t.read(b"q quits")
    d.kill()
    t.read(b"NO ANSWER")
    t.type(b"q")
    t.end(DONE)


# --- completion -------------------------------------------------------------------------------------------------------
def offered(cli, *words):
    return cli("complete", "--", *words).expect().out.split()


def test_completion_knows_commands_options_words_and_names(cli, session):
    cli("put", "-", "alpha", input=b"1").expect()
    cli("put", "-", "beta", input=b"1").expect()
    cli("pools", "add", "deep").expect()
    assert set(offered(cli, "s")) == {"set", "sync", "seal", "selftest", "sessions", "streams", "stats", "store",
                                      "storage", "switch"}
    assert "--when-unmapped" in offered(cli, "rm", "--") and "--slice" not in offered(cli, "rm", "--")
    assert offered(cli, "put", "x", "--kind", "p") == ["pinned", "pageable"]
    assert offered(cli, "rm", "alpha", "") == ["alpha", "beta"]
    assert offered(cli, "get", "b") == ["beta"] and offered(cli, "get", "beta", "") == [":file"]
    assert offered(cli, "cp", "a") == [":file", "alpha"]
    assert offered(cli, "put", "f", "--pool", "de") == ["default", "deep"]
    assert offered(cli, "-s", session, "pools", "r") == ["revoke", "reset-peak", "rm"]
    assert offered(cli, "call", "P") == ["POST", "PUT", "PATCH"] and offered(cli, "call", "GET", "") == []
    assert offered(cli, "pools", "set", "p", "--reuse", "e") == ["event"]
    assert session in offered(Cli(cli.env["GPUBUF_URL"]), "-s", session[:1])
    assert offered(Cli("http://127.0.0.1:1"), "rm", "") == []


def test_completion_in_bash(cli, tmp_path):
    bash = shutil.which("bash")
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "etc", "completion", "gpubuf.bash")
    cli("put", "-", "alpha", input=b"1").expect()
    (tmp_path / "file.npy").write_bytes(b"")
    for words, wanted in ((["rm", "al"], ["alpha"]), (["put", "fi"], ["file.npy"]),
                          (["se"], ["seal", "selftest", "sessions", "set"])):
        line = (f'. "{script}"; COMP_WORDS=("{program()}" "$@"); COMP_CWORD=$#; _gpubuf; printf "%s\\n" '
                f'"${{COMPREPLY[@]}}"')
        out = subprocess.run([bash, "-c", line, "-", *words], env=cli.env, cwd=tmp_path, capture_output=True, text=True,
                             timeout=90)
        assert sorted(out.stdout.split()) == wanted, out


