"""gpubuf --hosts: one command on many daemons, some of which are down, silent or slow."""
import json
import os
import signal
import socket

import pytest

from connected import line_of
from gpubuf_cli import DONE, INTERRUPTED, NO_HOST, NOT_FOUND, SOME_HOSTS, UNREACHABLE, UNREAD, USAGE, Cli, interrupt
from harness import Daemon, until


@pytest.fixture(scope="module")
def fleet(backend):
    daemons = [Daemon(backend) for _ in range(3)]
    for i, d in enumerate(daemons):
        d.put("x", bytes([i]) * 8).expect(201)
    yield daemons
    for d in daemons:
        d.stop()


@pytest.fixture
def deaf():
    """Accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        yield f"127.0.0.1:{s.getsockname()[1]}"


def addresses(fleet):
    return [f"127.0.0.1:{d.tcp[1]}" for d in fleet]


def lines(said):
    return [json.loads(line) for line in said.out.splitlines()]


cli = Cli()


def test_all_in_the_order_of_the_list(fleet):
    hosts = addresses(fleet)
    for order in (hosts, hosts[::-1]):
        said = cli("--hosts", ",".join(order), "--json", "ls").expect(DONE)
        assert [line["host"] for line in lines(said)] == order
        assert all(line["exit"] == 0 and line["result"][0]["name"] == "x" for line in lines(said))
        assert [line["url"] for line in lines(said)] == ["http://" + h for h in order]
    text = cli("-H", ",".join(hosts), "ls").expect(DONE).out.splitlines()
    assert len(text) == 6 and all(text[2 * i + 1].startswith(f"{h}: x     uint8") for i, h in enumerate(hosts)), text


def test_one_at_a_time_and_more_hosts_than_places(fleet):
    hosts = [f"http://{host}{'/' * n}" for host in addresses(fleet) for n in range(20)]
    for parallel in (1, 7, 1000):
        said = cli("--hosts", ",".join(hosts), "-P", parallel, "--json", "info", "x").expect(DONE)
        assert [line["host"] for line in lines(said)] == hosts
    for wrong in ("0", "100000"):
        cli("--hosts", ",".join(hosts), "-P", wrong, "ls").expect(USAGE)
    said = cli("--hosts", ",".join([*hosts, *hosts]), "--json", "info", "x").expect(DONE)
    assert [line["host"] for line in lines(said)] == hosts, "each is asked once"


def test_a_command_without_words_says_ok(fleet):
    hosts = addresses(fleet)
    said = cli("--hosts", ",".join(hosts), "sync").expect(DONE)
    assert said.out.splitlines() == [f"{h}: ok" for h in hosts]


def test_some_and_none(fleet, deaf):
    good = addresses(fleet)[0]
    hosts = ["127.0.0.1:1", good, deaf, "unix:///nonexistent"]
    said = cli("--hosts", ",".join(hosts), "--timeout", "2", "ls").expect(SOME_HOSTS)
    text = said.out.splitlines()
    assert text[0].startswith("127.0.0.1:1: failed: ") and "127.0.0.1:1" in text[0][20:]
    assert text[1].startswith(f"{good}: NAME") and text[2].startswith(f"{good}: x ")
    assert (text[3].startswith(f"{deaf}: failed: ") and text[4].startswith("unix:///nonexistent: failed: ")
            and len(text) == 5)
    told = lines(cli("--hosts", ",".join(hosts), "--timeout", "2", "--json", "info", "x").expect(SOME_HOSTS))
    assert [line["exit"] for line in told] == [UNREACHABLE, DONE, UNREACHABLE, UNREACHABLE]
    assert told[0]["error"] and told[0]["result"] is None and told[0]["problem"]["code"] == "cannot_connect"
    cli("--hosts", f"127.0.0.1:1,{deaf}", "--timeout", "1", "ls").expect(NO_HOST)
    missing = lines(cli("--hosts", ",".join(addresses(fleet)), "--json", "info", "nope").expect(NO_HOST))
    assert [(line["exit"], line["problem"]["code"]) for line in missing] == [(NOT_FOUND, "buffer_not_found")] * 3


def test_one_that_stops_answering_in_the_middle_is_killed(fleet):
    """The whole command has a time limit, not only each answer."""
    stopped = fleet[1]
    stopped.process.send_signal(signal.SIGSTOP)
    try:
        said = cli("--hosts", ",".join(addresses(fleet)), "--timeout", "2", "--json", "ls").expect(SOME_HOSTS)
    finally:
        stopped.process.send_signal(signal.SIGCONT)
    assert [line["exit"] for line in lines(said)] == [DONE, UNREACHABLE, DONE]


def test_what_verbose_shows_hides_no_reason(fleet, tmp_path):
    """The requests and times of each host go to standard error; what failed is said as without -v."""
    hosts = addresses(fleet)
    quiet, said = (cli("--hosts", ",".join(hosts), "info", "nope", *v).expect(NO_HOST) for v in ([], ["-v"]))
    assert said.out == quiet.out and said.out.count('failed: session "default" has no buffer named "nope"') == 3
    assert all(f"{h}: * GET /v1/sessions/default/buffers/nope -> 404" in said.err for h in hosts)
    told = lines(cli("--hosts", ",".join(hosts), "-v", "--json", "info", "nope").expect(NO_HOST))
    assert [line["error"] for line in told] == ['session "default" has no buffer named "nope"'] * 3
    (tmp_path / "v").write_bytes(bytes(3 << 20))
    said = cli("--hosts", ",".join(hosts), "put", tmp_path / "v", "-v").expect(DONE)
    assert len(said.out.splitlines()) == 3 and all(f"{h}: * waited " in said.err for h in hosts)
    cli("--hosts", ",".join(hosts), "rm", "v").expect(DONE)


def test_a_list_in_a_file_or_on_standard_input(fleet, tmp_path):
    hosts = addresses(fleet)
    text = f"# the fleet\n{hosts[0]}\n\n  {hosts[1]}  # the second\nunix://{fleet[2].unix}\n"
    (tmp_path / "fleet").write_text(text)
    said = cli("--hosts", tmp_path / "fleet", "--json", "info", "x").expect(DONE)
    assert [line["host"] for line in lines(said)] == [hosts[0], hosts[1], f"unix://{fleet[2].unix}"]
    assert len(lines(cli("--hosts", "-", "--json", "ls", input=text.encode()).expect(DONE))) == 3
    (tmp_path / "empty").write_text("# nobody\n")
    cli("--hosts", tmp_path / "empty", "ls").expect(USAGE)
    cli("--hosts", tmp_path, "ls").expect(USAGE)


def test_a_port_is_added_where_none_is_given():
    told = lines(cli("--hosts", "127.0.0.2,[::2],h.invalid:7,https://a.invalid", "--timeout", "3", "--json",
                     "ls").expect(NO_HOST))
    assert [line["url"] for line in told] == ["http://127.0.0.2:7070", "http://[::2]:7070", "http://h.invalid:7",
                                              "https://a.invalid"]


def test_files_of_each_host(fleet, tmp_path):
    hosts = addresses(fleet)
    cli("--hosts", ",".join(hosts), "get", "x", tmp_path / "x.%h").expect(DONE)
    assert [(tmp_path / f"x.{h}").read_bytes() for h in hosts] == [bytes([i]) * 8 for i in range(3)]
    for h in hosts:
        (tmp_path / f"up.{h}").write_bytes(h.encode())
    cli("--hosts", ",".join(hosts), "put", tmp_path / "up.%h", "y").expect(DONE)
    assert [d.data("y").body.decode() for d in fleet] == hosts
    cli("--hosts", ",".join(hosts), "put", tmp_path / f"up.{hosts[0]}", "z").expect(DONE)
    assert {d.data("z").body.decode() for d in fleet} == {hosts[0]}
    (tmp_path / "unix").mkdir()
    cli("--hosts", f"unix://{fleet[0].unix}", "get", "x", tmp_path / "unix" / "%h").expect(DONE)
    assert len(os.listdir(tmp_path / "unix")) == 1
    for wrong in (["get", "x", tmp_path / "same"], ["get", "x"], ["put", "-", "x"]):
        said = cli("--hosts", hosts[0], *wrong, input=b"").expect(NO_HOST)
        assert "failed: " in said.out


def test_what_hosts_say_cannot_command_the_terminal(fleet):
    fleet[0].ask("PATCH", "/v1/sessions/default/buffers/x", {"labels": {"k": "\u001b[2J"}}).expect(200)
    assert b"\x1b" not in cli("--hosts", addresses(fleet)[0], "info", "x").expect(DONE).raw


def test_names_of_hosts_cannot_command_the_terminal():
    said = cli("--hosts", "\x1b[2J,a:1\nb", "ls").expect(NO_HOST)
    assert "\x1b" not in said.out and len(said.out.splitlines()) == 2, said.out


def test_a_reader_that_leaves_keeps_no_host_from_being_asked(fleet):
    rd, wr = os.pipe()
    os.close(rd)
    p = cli.start("--hosts", ",".join(addresses(fleet)), "-P", "1", "fill", "x", "0", stdout=wr)
    os.close(wr)
    err = p.communicate(timeout=120)[1].decode()
    assert p.returncode == UNREAD and err == "", (p.returncode, err)
    assert all(d.data("x").body == bytes(8) for d in fleet)
    for i, d in enumerate(fleet):
        d.put("x", bytes([i]) * 8).expect(200)


def test_an_interrupt_ends_all_and_tells_what_was_done(fleet, deaf):
    good = addresses(fleet)[0]
    p = cli.start("--hosts", f"{good},{deaf}", "--json", "ls")
    first = json.loads(line_of(p.stdout))
    assert first["host"] == good and first["exit"] == DONE
    children = until("the other one runs", lambda: open(f"/proc/{p.pid}/task/{p.pid}/children").read().split())
    said = interrupt(p)
    assert said.status == INTERRUPTED and json.loads(said.out)["exit"] == INTERRUPTED
    for child in children:
        assert not os.path.exists(f"/proc/{child}")


def test_hosts_with_a_wrong_command_line_end_before_any_is_asked(fleet):
    said = cli("--hosts", ",".join(addresses(fleet)), "rm").expect(USAGE)
    assert said.out == "" and "usage" in said.err
