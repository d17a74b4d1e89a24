"""gpubuf feed: events, a line each, until the command is ended."""
import json
import select
import signal

import pytest

from connected import line_of
from gpubuf_cli import DONE, FAILED, INTERRUPTED, TERMINATED, UNREACHABLE, USAGE, NO_HOST, Cli, Terminal, interrupt
from harness import PATIENCE_S


def lines(process, count):
    return [line_of(process.stdout).decode().rstrip("\n") for _ in range(count)]


def started(cli, *args):
    """The feed is connected: new events are printed. With after=0 the daemon's start comes first."""
    p = cli.start("feed", "--after", 0, *args)
    first = line_of(p.stdout).decode()
    assert "daemon.started" in first, first
    return p


@pytest.fixture
def own(start):
    d = start()
    return d, Cli(d.url(""))


def test_so_many_events(own):
    d, cli = own
    d.put("x", b"1").expect(201)
    said = cli("feed", "--after", 0, "--limit", 2).expect().out.splitlines()
    assert [line.split()[2] for line in said] == ["daemon.started", "session.created"]
    said = cli("feed", "--after", 0, "--type", "buffer.", "--limit", 1).expect().out
    assert said.split()[2] == "buffer.created"
    assert "--limit" in cli("feed", "--limit", 0).expect(USAGE).err


def test_a_line_an_event(own):
    d, cli = own
    p = started(cli)
    assert lines(p, 1)[0].split()[2:] == ["session.created", "default"]
    d.ask("POST", "/v1/sessions", {"name": "s", "quota": {"bytes": 9}}).expect(201)
    d.put("x", bytes(2048)).expect(201)
    d.ask("POST", "/v1/sessions/default/pools", {"name": "p"}).expect(201)
    d.put("y", b"1", query="?pool=p").expect(201)
    d.ask("DELETE", "/v1/sessions/default/pools/p?force=true").expect(204)
    d.ask("POST", "/v1/sessions/s/buffers", {"name": "z", "bytes": 10}).expect(507)
    got = lines(p, 7)
    assert [line.split("  ", 1)[1] for line in got] == [
        "session.created   s", "buffer.created    default/x  device 0  2.0 KiB",
        "pool.created      default  pool p  device 0", "buffer.created    default/y  pool p  device 0  1 B",
        "pool.deleted      default  pool p  device 0", got[5].split("  ", 1)[1], got[6].split("  ", 1)[1]]
    assert got[5].split("  ", 1)[1].startswith("buffer.lost       default") and "  1 buffer" in got[5]
    assert got[6].split("  ", 1)[1].startswith("quota.exceeded    s  ") and "  10 B" in got[6]
    said = interrupt(p)
    assert (said.status, said.err) == (INTERRUPTED, "")


def test_json_lines_types_and_where_it_begins(own):
    d, cli = own
    for name in ("a", "b"):
        d.put(name, b"1").expect(201)
    d.ask("DELETE", "/v1/sessions/default/buffers/a").expect(204)
    p = cli.start("feed", "--json", "--after", 0, "--type", "buffer.created,daemon.")
    events = [json.loads(line) for line in lines(p, 3)]
    assert [(e["type"], e.get("buffer")) for e in events] == [("daemon.started", None), ("buffer.created", "a"),
                                                              ("buffer.created", "b")]
    assert interrupt(p, signal.SIGTERM).status == TERMINATED
    p = cli.start("feed", "--json", "--after", events[1]["id"])
    after = [json.loads(line) for line in lines(p, 2)]
    assert [e["type"] for e in after] == ["buffer.created", "buffer.deleted"] and after[0] == events[2]
    assert interrupt(p).status == INTERRUPTED


def test_from_now_on_and_of_one_session(own):
    d, cli = own
    d.ask("POST", "/v1/sessions", {"name": "s"}).expect(201)
    p = cli.start("feed", "--json", "--session", "s")
    made = 0
    while not select.select([p.stdout], [], [], 0.05)[0]:
        d.put(f"x{made}", b"1").expect(201)
        d.put(f"x{made}", b"1", "s").expect(201)
        made += 1
        assert made < 20 * PATIENCE_S
    first = json.loads(lines(p, 1)[0])
    assert first["type"] == "buffer.created" and first["session"] == "s"
    d.stop()
    rest = [json.loads(line) for line in interrupt_when(p, b"daemon.stopping").splitlines()]
    assert [e.get("session", "s") for e in rest] == ["s"] * len(rest) and rest[-1]["type"] == "daemon.stopping"


def interrupt_when(p, mark):
    """Reads to the line with the mark; returns the text."""
    text = b""
    while mark not in text:
        line = line_of(p.stdout)
        assert line, f"it ended without {mark!r}: {text[-400:]!r}"
        text += line
    interrupt(p)
    return text


def test_it_goes_on_across_a_restart(start, tmp_path):
    d = start(state=str(tmp_path))
    cli = Cli("unix://" + d.unix)
    p = started(cli, "--type", "daemon.,buffer.")
    d.put("x", b"1").expect(201)
    assert "default/x" in lines(p, 1)[0]
    d.stop()
    assert "daemon.stopping" in lines(p, 1)[0]
    d = start(state=str(tmp_path))
    d.put("y", b"1").expect(201)
    got = lines(p, 3)
    assert "daemon.started" in got[0] and "buffer.lost" in got[1] and "default/y" in got[2]
    said = interrupt(p)
    assert said.status == INTERRUPTED and said.err.count("it goes on when the daemon answers again") == 1


def test_patience(own):
    d, cli = own
    p = started(cli, "--timeout", 1)
    d.stop()
    out, err = p.communicate(timeout=PATIENCE_S)
    assert p.returncode == UNREACHABLE and b"did not answer again for" in err
    assert cli("feed", "--timeout", 1).expect(UNREACHABLE).out == ""


def test_nobody_reads_it_any_more(own):
    p = started(own[1])
    p.stdout.close()
    assert p.wait(PATIENCE_S) == DONE and p.stderr.read() == b""
    p.stderr.close()
    with open("/dev/full", "wb") as full:
        p = own[1].start("feed", "--after", 0, stdout=full)
        assert b"standard output cannot be written" in p.communicate(timeout=PATIENCE_S)[1] and p.returncode == FAILED


def test_on_a_terminal(own):
    d, cli = own
    t = Terminal(cli, "feed", "--after", "0")
    t.read(b"daemon.started")
    d.put("x", b"1").expect(201)
    t.read(b"default/x")
    t.type(b"\x03")
    t.end(INTERRUPTED)
    assert b"interrupted" not in t.text


def test_what_is_refused(own):
    d, cli = own
    assert "no type of event" in cli("feed", "--type", "nothing").expect(FAILED).err
    assert cli("feed", "--type", "nothing", "--json").expect(FAILED).json()["code"] == "invalid_argument"
    assert "takes no" in cli("stats", "--after", 1).expect(USAGE).err
    assert "follows one daemon" in cli("--hosts", "{}:{}".format(*d.tcp), "feed").expect(NO_HOST).out
