"""gpubuf: pools, sessions, events and devices shaped from the command line, history, and `call` for the rest."""
import json
import re

import pytest

from gpubuf_cli import DONE, FAILED, NO_HOST, NOT_FOUND, SOME_HOSTS, USAGE, Cli, Terminal
from harness import until

REUSE = ("follow_event_dependencies", "allow_opportunistic", "allow_internal_dependencies")
BIG = 20 << 20


@pytest.fixture
def cli(daemon, session):
    return Cli(daemon.url(""), session)


# --- pools ------------------------------------------------------------------------------------------------------------
def reuse(pool):
    return tuple(pool["reuse"][name] for name in REUSE)


def test_pools_are_shaped_at_creation_and_later(cli, daemon, session):
    made = cli.json("pools", "add", "p", "--reuse", "event,internal", "--release-threshold", "none", "--max-bytes",
                    "64M")[0]
    assert (reuse(made) == (True, False, True) and made["release_threshold_bytes"] is None and made["max_bytes"] == 64
            << 20)
    changed = cli.json("pools", "set", "p", "--reuse", "none", "--release-threshold", "2M")
    assert reuse(changed[0]) == (False, False, False) and changed[0]["release_threshold_bytes"] == 2 << 20
    assert reuse(cli.json("pools", "set", "p", "--reuse", "all")[0]) == (True, True, True)
    assert cli.json("pools", "set", "p", "--release-threshold", "unlimited")[0]["release_threshold_bytes"] is None
    cli("pools", "set", "p", "--release-threshold", "2M").expect()
    assert cli.json("pools", "set", "p", "--release-threshold", (1 << 64) - 1)[0]["release_threshold_bytes"] is None
    cli("pools", "set", "p", "--release-threshold", "2M").expect()
    assert "unlimited" in cli("pools", "set", "p", "--release-threshold", "much").expect(USAGE).err
    kept = daemon.ask("GET", f"/v1/sessions/{session}/pools/p").expect(200).json()
    assert reuse(kept) == (True, True, True) and kept["release_threshold_bytes"] == 2 << 20
    assert "pools set takes no --max-bytes" in cli("pools", "set", "p", "--max-bytes", 1).expect(USAGE).err
    assert "nothing to set" in cli("pools", "set", "p").expect(USAGE).err
    assert "opportunistic" in cli("pools", "set", "p", "--reuse", "some").expect(USAGE).err
    assert "release_threshold_bytes: 2097152 (2.0 MiB)\n" in cli("pools", "show", "p").expect().out
    cli("pools", "show", "nope").expect(NOT_FOUND)


def test_the_peak_of_a_pool_begins_anew(cli):
    cli("pools", "add", "p").expect()
    cli("create", "x", "--pool", "p", "--bytes", "3M").expect()
    cli("rm", "x").expect()
    assert cli.json("pools", "show", "p")[0]["used_peak_bytes"] >= 3 << 20
    until("the memory is free", lambda: cli.json("pools", "show", "p")[0]["used_bytes"] == 0)
    assert cli.json("pools", "reset-peak", "p")[0]["used_peak_bytes"] == 0


def test_what_was_chosen_for_a_pool_is_shown(cli):
    row = cli("pools", "add", "p", "--reuse", "event,internal", "--max-bytes", "64M").expect().table()[0]
    assert (row["MAX"], row["THRESHOLD"], row["REUSE"]) == ("64.0 MiB", "unlimited", "event,internal")
    row = cli("pools", "set", "p", "--reuse", "all", "--release-threshold", "2M").expect().table()[0]
    assert (row["THRESHOLD"], row["REUSE"]) == ("2.0 MiB", "all")
    assert cli("pools", "set", "p", "--reuse", "none").expect().table()[0]["REUSE"] == "none"
    assert "policies" not in cli.json("pools", "set", "p", "--reuse", "all")[0]


def test_access_of_other_devices_is_granted_and_revoked(simulated, start):
    cli = Cli(start(spec=simulated("bytes=64M,devices=2")).url(""))
    cli("pools", "add", "p", "--device", 0).expect()
    peers = cli("pools", "access", "p").expect().table()
    assert [(p["POOL"], p["DEVICE"], p["ACCESS"]) for p in peers] == [("p", "1", "none")]
    assert cli.json("pools", "grant", "p", "--device", 1)[0]["access"][0]["access"] == "read_write"
    assert cli("pools", "access", "p").expect().table()[0]["ACCESS"] == "read_write"
    uuid = peers[0]["UUID"]
    assert cli("pools", "revoke", "p", "--device", uuid).expect().table()[0]["ACCESS"] == "none"
    assert "--device" in cli("pools", "grant", "p").expect(USAGE).err


# --- sessions, buffers ------------------------------------------------------------------------------------------------
def test_sessions_are_changed(cli, session):
    changed = cli.json("sessions", "set", session, "--labels", "a=1,b=2", "--max-bytes", "1G", "--max-pinned", "1M",
                       "--max-stored", "2M", "--max-buffers", 7, "--idle-ttl", 3600)[0]
    assert changed["labels"] == {"a": "1", "b": "2"} and changed["idle_ttl_s"] == 3600
    assert changed["quota"] == {"bytes": 1 << 30, "pinned_bytes": 1 << 20, "stored_bytes": 2 << 20, "buffers": 7}
    changed = cli.json("sessions", "set", session, "--labels", "a,c=3", "--max-bytes", "none", "--idle-ttl", 0)[0]
    assert (changed["labels"] == {"b": "2", "c": "3"} and changed["quota"]["bytes"] is None and changed["idle_ttl_s"]
            == 0)
    assert f"name: {session}\n" in cli("sessions", "show", session).expect().out


def test_the_pool_that_a_session_uses(cli, session):
    cli("pools", "add", "p").expect()
    assert cli.json("sessions", "set", session, "--pool", "p")[0]["pool"] == "p"
    assert cli.json("create", "x", "--bytes", 16)["pool"] == "p"
    assert cli.json("sessions", "set", session, "--pool", "p")[0]["current_pools"][0] == "p"
    assert cli.json("sessions", "set", session, "--pool", "default")[0]["pool"] == "default"
    assert cli.json("create", "y", "--bytes", 16)["pool"] == "default"
    cli("sessions", "set", session, "--pool", "nope").expect(NOT_FOUND)
    assert "gpubuf sessions set t --pool p" in cli("sessions", "add", "t", "--pool", "p").expect(USAGE).err
    cli("sessions", "show", "t").expect(NOT_FOUND)


def test_the_list_of_sessions_shows_pools_where_there_are_some(start):
    cli = Cli(start().url(""))
    assert "POOL" not in cli("sessions").expect().out
    cli("sessions", "add", "t").expect()
    cli("pools", "add", "p").expect()
    assert cli("sessions", "set", "default", "--pool", "p").expect().table()[0]["POOL"] == "p"
    assert {row["NAME"]: row["POOL"] for row in cli("sessions").expect().table()} == {"default": "p", "t": "default"}


def test_a_device_s_own_pool_undoes_that_device_s(simulated, start):
    cli = Cli(start(spec=simulated("bytes=64M,devices=2")).url(""))
    cli("pools", "add", "p").expect()
    cli("pools", "add", "q", "--device", 1).expect()
    for pool, current in (("p", ["p", "default.1"]), ("q", ["p", "q"]), ("default.1", ["p", "default.1"]),
                          ("q", ["p", "q"]), ("default", ["default", "q"])):
        assert cli.json("sessions", "set", "default", "--pool", pool)[0]["current_pools"] == current
    assert cli("sessions").expect().table()[0]["POOL"] == "q"


@pytest.mark.parametrize("command, about", [
    ("hold", {"--device": "hold the stream"}), ("sync", {"--device": "wait for all work"}),
    ("selftest", {"--device": "measure this"}), ("pools", {"--device": "grant, revoke",
                                                           "--reuse": "event, opportunistic and internal",
                                                           "reset-peak POOL...": "begin again"}),
    ("sessions", {"--pool": "with set", "add SESSION...": "make sessions"}),
    ("put", {"--side": "mirrored", "--device": "new buffer"}),
], ids=lambda v: v if isinstance(v, str) else "")
def test_help_tells_what_an_option_means_for_the_command(command, about):
    entries = re.split(r"\n  (?:-\w, )?(?! )|\n +(?=--)", Cli()(command, "--help").expect().out)
    for name, words in about.items():
        assert [e for e in entries if e.startswith(name) and words in e], (name, entries)


def test_the_default_pool_is_shaped(start):
    cli = Cli(start().url(""))
    shaped = cli.json("pools", "set", "default", "--reuse", "opportunistic", "--release-threshold", 0)[0]
    assert reuse(shaped) == (False, True, False) and shaped["release_threshold_bytes"] == 0


def test_buffers_are_made_and_changed(cli):
    made = cli.json("create", "x", "--dtype", "float32", "--shape", "3,4", "--labels", "k=v", "--kind", "pinned")
    assert (made["bytes"], made["shape"], made["labels"], made["kind"]) == (48, [3, 4], {"k": "v"}, "pinned")
    assert cli.json("set", "x", "--dtype", "int32", "--shape", "12", "--labels", "k,l=w")["labels"] == {"l": "w"}
    assert cli.json("info", "x")["dtype"] == "int32"
    assert cli.json("info", "x", "--attributes")["attributes"]["memory_type"]
    assert "nothing to set" in cli("set", "x").expect(USAGE).err
    both = cli.json("info", "x", "--attributes", "--last-transfer")
    assert both["attributes"] and both["last_transfer"] is None


def test_one_side_of_a_mirrored_buffer_is_uploaded(cli, tmp_path):
    (tmp_path / "m").write_bytes(bytes(64))
    heads = [cli.json("put", tmp_path / "m", "m", *more)["head"] for more in (["--mirrored"], ["--side", "device"],
                                                                              ["--side", "host"])]
    assert heads == ["host", "device", "host"]
    for args, said in ((["sync", "m"], "head synced  host side 64 B  device side 64 B  copied"),
                       (["sync", "m"], "head synced  host side 64 B  device side 64 B  nothing copied"),
                       (["reserve", "m", "1M"], "head synced  host side 1.0 MiB  device side 64 B"),
                       (["release", "m"], "head device  host side 0 B  device side 64 B"),
                       (["create", "n", "--bytes", 8, "--mirrored"], "head uninitialized  host side 0 B  device side 0 "
                        "B")):
        assert cli(*args).expect().out.endswith(f"  {said}\n"), args
    assert "mirrored" in cli("put", tmp_path / "m", "plain", "--side", "device").expect(FAILED).err
    assert "host" in cli("put", tmp_path / "m", "m", "--side", "up").expect(FAILED).err
    (tmp_path / "m.safetensors").write_bytes(bytes(8))
    assert "--side is of one buffer" in cli("put", tmp_path / "m.safetensors", "--side", "host").expect(USAGE).err


# --- events, syncs ----------------------------------------------------------------------------------------------------
def test_events_are_recorded_and_waited_for(cli):
    cli("streams", "add", "a", "b").expect()
    cli("events", "add", "e").expect()
    assert cli.json("events", "show", "e")[0]["recorded"] is False
    assert cli.json("events", "record", "e", "--stream", "a")[0]["stream"] == "a"
    assert cli("events", "wait", "e", "--stream", "b").expect().table()[0]["RECORDED"] == "yes"
    assert cli("events", "sync", "e").expect().table()[0]["DONE"] == "yes"
    cli("hold", "a", 3000).expect()
    cli("events", "record", "e", "--stream", "a").expect()
    assert "--timeout" in cli("events", "sync", "e", "-t", 1).expect(FAILED).err
    assert cli.json("events", "sync", "e")[0]["done"] is True
    assert cli.json("events", "record", "e")[0]["stream"] == "default"
    assert "gpubuf events add" in cli("events", "sync", "nope").expect(NOT_FOUND).err
    assert "gpubuf events add" in cli("events", "wait", "nope").expect(NOT_FOUND).err
    assert "gpubuf streams" in cli("events", "record", "e", "--stream", "nope").expect(NOT_FOUND).err
    assert cli.json("streams", "show", "a", "b")[1]["name"] == "b"


def left_fill(daemon, session, headers=None):
    """A fill of x, which waits on the held stream a."""
    return daemon.ask("POST", f"/v1/sessions/{session}/buffers/x/fill", {"pattern": 7, "stream": "a"},
                      {"Prefer": "respond-async", **(headers or {})}).expect(202).json()


@pytest.mark.parametrize("command, kind, known", [
    ("seal", [], {"generation": 2, "sealed": True}), ("release --side all", ["--mirrored"], {"head": "uninitialized"}),
    ("store", ["--durability", "behind"], {"stored_generation": 2}),
    ("evict --to disk", ["--durability", "behind"], {"generation": 2, "state": "stored"}), ("verify", [], {}),
    ("rm", [], None),
], ids=lambda v: v if isinstance(v, str) else "")
def test_what_is_done_with_a_buffer_waits_for_its_writes_on_the_stream(start, command, kind, known):
    daemon = start()
    cli = Cli(daemon.url(""))
    cli("streams", "add", "a").expect()
    cli("create", "x", "--bytes", 100000, *kind).expect()
    command = [*command.split(), "x", "--stream"]
    assert "gpubuf streams" in cli(*command, "nope").expect(NOT_FOUND).err
    assert "--stream is too long" in cli(*command, "a" * 2000).expect(USAGE).err
    cli("hold", "a", 500).expect()
    filled = left_fill(daemon, "default")
    said = cli.json(*command, "a")
    assert daemon.ask("GET", "/v1/operations/" + filled["id"]).json()["state"] == "done"
    if known is None:
        assert said == ["x"] and cli.json("ls") == []
    else:
        assert known.items() <= (said[0] if isinstance(said, list) else said).items()


def test_what_builds_on_a_write_that_failed_says_what_to_do(cli, daemon, session):
    cli("streams", "add", "a").expect()
    cli("create", "x", "--bytes", 8).expect()
    tag = daemon.ask("HEAD", f"/v1/sessions/{session}/buffers/x/data").headers["ETag"]
    cli("hold", "a", 3000).expect()
    left_fill(daemon, session)
    left_fill(daemon, session, {"If-Match": tag})
    said = cli("cp", "x", "y", "--stream", "a").expect(FAILED).err
    assert "If-Match" in said and "repeat the earlier command" in said, said
    assert cli("cp", "x", "y", "--stream", "a").expect().out.startswith("y  8 B")


def test_a_number_below_0_is_no_option(cli):
    cli("streams", "add", "a").expect()
    for number in ("-5", "-57"):
        assert f'"{number}" is no option' in cli("hold", "a", number).expect(USAGE).err
    assert "milliseconds" in cli("hold", "a", "--", "-5").expect(USAGE).err
    cli("stats", "--since", "-60").expect()


def test_a_sync_that_waits_for_long_says_what_to_do(cli):
    cli("streams", "add", "a").expect()
    cli("hold", "a", 3000).expect()
    said = cli("sync", "-t", 1).expect(FAILED).err
    assert "--timeout" in said and "gpubuf streams" in said, said
    assert [row["BUSY"] for row in cli("streams").expect().table() if row["NAME"] == "a"] == ["yes"]


def test_a_device_is_synced(cli):
    assert cli("sync", "--device", 0).expect().out == ""
    assert "gpubuf info" in cli("sync", "--device", 99).expect(NOT_FOUND).err
    cli("sync", "--device", 0, "--stream", "default").expect(USAGE)


@pytest.mark.parametrize("args", [["events", "nope", "e"], ["pools", "record", "p"], ["streams", "set", "s"],
                                  ["leases", "add", "l"], ["sessions", "grant", "s"]], ids=" ".join)
def test_a_verb_that_a_command_has_not(cli, args):
    assert f"gpubuf {args[0]} [" in cli(*args).expect(USAGE).err


# --- statistics -------------------------------------------------------------------------------------------------------
def test_history_of_daemon_session_pool_and_device(start):
    cli = Cli(start("--sample-interval", "1").url(""))
    cli("pools", "add", "p").expect()
    for where, title in (([], "SESSIONS"), (["--session", "default"], "PINNED"), (["--pool", "p"], "USED"),
                         (["--device", 0], "FREE")):
        rows = until(f"history of {where} is there", lambda: cli("stats", *where, "--since", "-600").expect().table())
        assert title in rows[0] and re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", rows[0]["AT (UTC)"])
        told = cli.json("stats", *where, "--since", "-600", "--step", 60)
        assert told["step_s"] == 60 and told["items"]
    assert "since" in cli("stats", "--since", "soon").expect(FAILED).err


def test_statistics_of_a_pool_and_a_device(cli, session):
    cli("pools", "add", "p").expect()
    assert cli.json("stats", "--pool", "p")["pool"] == "p"
    cli("create", "x", "--pool", "p", "--bytes", "1M").expect()
    now, of_pool = cli.json("stats", "--pool", "p"), cli.json("pools", "show", "p")[0]
    assert ((now["reuses"], now["growths"]) == (of_pool["reuses"], of_pool["growths"]) and now["reuses"]
            + now["growths"] == 1)
    assert f"growths: {now['growths']}\n" in cli("stats", "--pool", "p").expect().out
    assert cli.json("stats", "--device", 0)["device"]["index"] == 0
    cli("stats", "--device", 0, "--pool", "p").expect(USAGE)


def test_stats_and_top_say_what_waits(cli):
    for command in (["stats"], ["top", "--once"]):
        said = cli(*command).expect().out
        rows = {line.split()[0]: line for line in said.splitlines() if line}
        assert "WAITING (S)" in said and "transfers wait for one" in said and "upload" in rows


def test_a_live_table_says_what_each_transfer_waited(cli):
    terminal = Terminal(cli, "top")
    terminal.read(b"WAITING EACH")
    terminal.type(b"q")
    terminal.end(DONE)


# --- waited and copied ------------------------------------------------------------------------------------------------
TIMES = r"^\* waited \d+\.\d{3} ms, copied \d+\.\d{3} ms$"


def test_put_get_and_cp_say_what_they_waited_and_copied(cli, tmp_path):
    (tmp_path / "x").write_bytes(bytes(BIG))
    assert re.search(TIMES, cli("put", tmp_path / "x", "x", "-v").expect().err, re.M)
    assert re.search(TIMES, cli("cp", "x", "y", "-v").expect().err, re.M)
    for options in ([], ["--bytes", 100], ["--bytes", 3 << 20], ["--npy"]):
        assert re.search(TIMES, cli("get", "x", tmp_path / "back", "-v", *options).expect().err, re.M), options
    assert "waited" not in cli("get", "x", tmp_path / "back").expect().err


def test_the_last_large_transfer_of_a_buffer(cli, daemon, session):
    url = f"/v1/sessions/{session}/buffers/x?last_transfer=true"
    daemon.put("x", bytes(100), session).expect(201)
    assert daemon.ask("GET", url).expect(200).json()["last_transfer"] is None
    daemon.put("x", bytes(BIG), session).expect(200)
    tag = daemon.ask("GET", f"/v1/sessions/{session}/buffers/x").headers["ETag"]
    assert daemon.ask("GET", url).expect(200).json()["last_transfer"]["direction"] == "upload"
    assert len(daemon.data("x", session).body) == BIG
    reply = daemon.ask("GET", url).expect(200)
    last = reply.json()["last_transfer"]
    assert (last["direction"], last["bytes"]) == ("download", BIG) and last["queue_ms"] >= 0 and last["copy_ms"] >= 0
    assert "ETag" not in reply.headers, "a download changes these times and no tag"
    assert daemon.ask("GET", f"/v1/sessions/{session}/buffers/x").headers["ETag"] == tag
    both = daemon.ask("GET", url + "&attributes=true").expect(200).json()
    assert both["last_transfer"] == last and both["attributes"]["memory_type"]
    assert cli.json("info", "x", "--last-transfer")["last_transfer"] == last


# --- call -------------------------------------------------------------------------------------------------------------
def test_call_prints_what_it_received(cli, daemon, session, tmp_path):
    url = f"/v1/sessions/{session}"
    assert cli("call", "GET", url).expect().raw == daemon.ask("GET", url).body
    (tmp_path / "body").write_text('{"labels": {"a": "1"}}')
    assert cli("call", "PATCH", url, f"@{tmp_path / 'body'}").expect().json()["labels"] == {"a": "1"}
    assert (cli("call", "PATCH", url, "-", input=b'{"labels": {"b": "2"}}').expect().json()["labels"]
            == {"a": "1", "b": "2"})
    assert cli("call", "PATCH", url, '{"labels": {"a": null}}').expect().json()["labels"] == {"b": "2"}
    cli("call", "POST", url + "/streams", '{"name": "s"}').expect()
    assert cli("call", "DELETE", url + "/streams/s").expect().raw == b""
    daemon.put("x", b"\x00\xff", session).expect(201)
    assert cli("call", "GET", url + "/buffers/x/data").expect().raw == b"\x00\xff"


def test_call_ends_as_other_commands_do(cli, session):
    missing = cli("call", "GET", f"/v1/sessions/{session}/pools/nope").expect(NOT_FOUND)
    assert missing.json()["code"] == "pool_not_found" and "nope" in missing.err
    cli("call", "POST", f"/v1/sessions/{session}/streams", '{"name": "default"}').expect(FAILED)
    for wrong in (["GET", "v1"], ["get", "/v1"], ["POST", "/v1/sessions", "{name}"], ["GET"],
                  ["GET", "/v1", "{}", "x"]):
        assert cli("call", *wrong).expect(USAGE).err, wrong
    assert "cannot be read" in cli("call", "POST", "/v1/sessions", "@/nonexistent").expect(FAILED).err
    assert "older" not in cli("call", "GET", "/nope").expect(FAILED).err


def test_call_sends_a_header(cli, session):
    again = ["call", "POST", f"/v1/sessions/{session}/streams", '{"name": "s"}', "--header", "Idempotency-Key: once"]
    assert cli(*again).expect().out == cli(*again).expect().out, "the same key replays the answer"
    assert cli("call", "GET", "/v1", "--header", "no header").expect(USAGE).err


def test_call_sends_bytes_of_another_type(cli, session, tmp_path):
    path, raw = f"/v1/sessions/{session}/buffers/m/data", ["--header", "Content-Type: application/octet-stream"]
    (tmp_path / "bytes").write_bytes(b"\x00\xff{")
    assert "--header" in cli("call", "PUT", path, f"@{tmp_path / 'bytes'}").expect(USAGE).err
    cli("call", "PUT", path + "?mirrored=true", f"@{tmp_path / 'bytes'}", *raw).expect()
    assert (cli("call", "PUT", path + "?side=device", "-", *raw, input=b"\x01\x00\x02").expect().json()["head"]
            == "device")
    assert cli("call", "GET", path).expect().raw == b"\x01\x00\x02"
    named = ["--header", "content-type: application/json"]
    assert "not JSON" in cli("call", "POST", f"/v1/sessions/{session}/streams", "{", *named).expect(USAGE).err
    cli("call", "POST", f"/v1/sessions/{session}/streams", '{"name": "typed"}', *named).expect()


def test_call_on_a_terminal_is_indented(cli, session):
    terminal = Terminal(cli, "call", "GET", f"/v1/sessions/{session}")
    terminal.read(f'\r\n  "name": "{session}"'.encode())
    terminal.end(DONE)


def test_all_of_it_on_several_hosts(backend, start):
    hosts = ",".join(f"127.0.0.1:{start(spec=backend).tcp[1]}" for _ in range(2))
    cli = Cli()

    def told(*args, status=DONE):
        return [json.loads(line) for line in cli("--hosts", hosts, "--json", *args).expect(status).out.splitlines()]

    assert [reuse(t["result"][0]) for t in told("pools", "add", "p", "--reuse", "none")] == [(False,) * 3] * 2
    assert [t["result"][0]["release_threshold_bytes"] for t in told("pools", "set", "p", "--release-threshold",
                                                                    "1M")] == [1 << 20] * 2
    told("events", "add", "e")
    assert all(t["result"][0]["recorded"] for t in told("events", "record", "e"))
    assert all(t["result"]["step_s"] == 60 for t in told("stats", "--since", "-600", "--step", 60))
    assert [t["result"]["name"] for t in told("call", "GET", "/v1/sessions/default/pools/p")] == ["p", "p"]
    assert [t["problem"]["code"] for t in told("call", "GET", "/v1/sessions/nope",
                                               status=NO_HOST)] == ["session_not_found"] * 2
    cli("--hosts", hosts, "call", "POST", "/v1/sessions", "-").expect(NO_HOST)
    cli("--hosts", hosts, "sync", "--device", 0).expect()
    assert cli("--hosts", hosts + ",127.0.0.1:1", "call", "GET", "/v1").expect(SOME_HOSTS).out
