"""gpubuf and the Python package within a fleet, against nodes that answer as gpubufd does: redirects, tickets,
look-ups, refusals."""
import json
import os
import ssl
import subprocess

import pytest
import secure
from fake_fleet import Fleet, fleet  # noqa: F401
from gpubuf_cli import DONE, FAILED, NOT_FOUND, SOME_HOSTS, UNREACHABLE, USAGE, Cli
from harness import PATIENCE_S
from pyclient import gpubuf

numpy = pytest.importorskip("numpy")
pytestmark = pytest.mark.once  # no memory is looked at

TOKENS = ("gpb_a", "gpb_b", "gpb_c")


@pytest.fixture
def guarded():
    """Each node has a token of its own."""
    fleet = Fleet(TOKENS)
    fleet.sessions["s"] = fleet["b"]
    yield fleet
    fleet.stop()


def asked(node):
    return [(r.method, r.path) for r in node.requests]


DATA = "/v1/sessions/s/buffers/x/data"


# --- redirects --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [5, 5 << 20])
def test_an_upload_of_a_file_follows_to_the_owner(guarded, tmp_path, size):
    data = os.urandom(size)
    (tmp_path / "x").write_bytes(data)
    a, b, c = (guarded[n] for n in "abc")
    Cli(a.url, "s", GPUBUF_TOKEN="gpb_a")("put", tmp_path / "x", "x", "--raw").expect()
    assert b.data == {("s", "x"): data} and a.data == {}
    assert asked(a) == asked(b) == [("PUT", DATA)]
    assert "ticket=" in b.requests[0].target and "Authorization" not in b.requests[0].headers
    assert Cli(c.url, "s", GPUBUF_TOKEN="gpb_c")("get", "x", "-", "--raw").expect().raw == data
    assert "Authorization" not in b.requests[-1].headers


@pytest.mark.parametrize("size", [5, 5 << 20])
def test_a_pipe_that_was_not_read_yet_follows_too(fleet, size):
    """Its length is not known, so that the client waits for the node's word before it reads."""
    data = os.urandom(size)
    Cli(fleet["a"].url, "s")("put", "-", "x", "--raw", input=data).expect()
    assert fleet["b"].data == {("s", "x"): data}


def test_python_follows_with_a_ticket(guarded):
    data = numpy.frombuffer(os.urandom(6 << 20), "uint8")
    told = []
    with gpubuf.Client(guarded["a"].url, token="gpb_a", session="s") as client:
        client.put("x", data, progress=lambda done, total: told.append(done))
        client.put("y", data[:7])
        assert (client.get("x") == data).all() and client.get("y", raw=True) == data[:7].tobytes()
        assert [b["name"] for b in client.list()] == ["x", "y"]
    assert told[-1] == len(data)
    b = guarded["b"]
    assert all("ticket=" in r.target and "Authorization" not in r.headers for r in b.requests)
    assert len(b.requests) == len(guarded["a"].requests) == 5
    assert guarded.tickets == {}


def test_python_takes_another_ticket(guarded, monkeypatch):
    monkeypatch.setattr(guarded, "tickets", Forgetful())
    with gpubuf.Client(guarded["a"].url, token="gpb_a", session="s") as client:
        assert client.put("x", numpy.zeros(3, "uint8"))["name"] == "x"
    assert [r.method for r in guarded["b"].requests] == ["PUT", "PUT"]


class Forgetful(dict):
    """Of its first ticket nothing is known."""

    first = True

    def __setitem__(self, key, value):
        if not self.first:
            super().__setitem__(key, value)
        self.first = False


def test_a_circle_ends(fleet):
    fleet["b"].fleet = other = Fleet()
    other.sessions["s"], other.tickets = fleet["a"], fleet.tickets
    try:
        Cli(fleet["a"].url, "s")("sessions", "show", "s").expect(FAILED)
        assert len(fleet["a"].requests) == len(fleet["b"].requests) == 2
        with gpubuf.Client(fleet["a"].url, session="s") as client, pytest.raises(gpubuf.OwnerUnknown,
                                                                                 match="more than 3 times"):
            client.sessions.get()
    finally:
        other.stop()


def test_refusals(fleet):
    fleet["b"].stop()
    cli = Cli(fleet["a"].url, "s")
    said = cli("ls").expect(FAILED)
    assert "of the test" in said.err and "gpubuf fleet nodes" in said.err
    assert json.loads(cli("--json", "ls").expect(FAILED).out)["absent_s"] == 12
    assert len(fleet["a"].requests) == 2  # it is answered at once, and not tried again
    with gpubuf.Client(fleet["a"].url, session="s") as client:
        with pytest.raises(gpubuf.OwnerAbsent) as told:
            client.list()
        assert told.value.retryable and told.value.retry_after == 10 and isinstance(told.value, gpubuf.Unavailable)
        fleet["a"].silent = True
        with pytest.raises(gpubuf.DirectoryUnavailable):
            client.list()


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    """(the authority's file, a context of a server at 127.0.0.1)"""
    authority = secure.Authority(tmp_path_factory.mktemp("tls"))
    authority.make("node", "/CN=node", "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.path("node.pem"), authority.path("node.key"))
    return authority.cert, context


@pytest.mark.parametrize("first, follows", [("ab", True), ("b", True), ("a", False)])
def test_no_redirect_leads_out_of_tls(certified, first, follows):
    """first: which of a, the node that is asked, and b, the owner, listen for TLS."""
    cacert, context = certified
    fleet = Fleet(TOKENS, (first, context))
    fleet.sessions["s"] = fleet["b"]
    fleet["b"].data["s", "x"] = b"abc"
    try:
        cli = Cli(fleet["a"].url, "s", GPUBUF_TOKEN="gpb_a", GPUBUF_CACERT=cacert)
        client = gpubuf.Client(fleet["a"].url, token="gpb_a", session="s", cacert=cacert)
        if follows:
            assert cli("get", "x", "-", "--raw").expect().raw == client.get("x", raw=True) == b"abc"
            assert all("Authorization" not in r.headers for r in fleet["b"].requests)
            assert Cli(fleet["a"].url, "s", GPUBUF_TOKEN="gpb_a")("ls").status == UNREACHABLE
        else:
            assert "redirects out of TLS" in cli("get", "x", "-", "--raw").expect(FAILED).err
            with pytest.raises(gpubuf.BrokenAnswer, match="out of TLS"):
                client.get("x", raw=True)
            assert fleet["b"].requests == []
        client.close()
    finally:
        fleet.stop()


# --- gpubuf fleet -----------------------------------------------------------------------------------------------------


def test_nodes_and_sessions_as_tables(fleet):
    fleet["c"].stop()
    cli = Cli(fleet["a"].url)
    rows = cli("fleet", "nodes").expect().table()
    assert [(r["NODE"], r["STATE"], r["MEMORY"], r["DEVICES"]) for r in rows] == [
        ("a", "ready", "4.0 GiB", "1"), ("b", "ready", "4.0 GiB", "1"), ("c", "absent", "4.0 GiB", "1")] or rows
    assert rows[0]["FREE"] == "1.0 GiB" and rows[0]["COMMITTED"] == "1.0 MiB"
    assert rows[0]["URL"] == fleet["a"].url and rows[0]["LABELS"] == "site=x"
    assert [n["name"] for n in cli.json("fleet", "nodes")] == ["a", "b", "c"]
    row, = cli("fleet", "sessions").expect().table()
    assert (row["SESSION"], row["NODE"], row["EPOCH"], row["QUOTA"], row["LABELS"]) == ("s", "b", "1", "1.0 MiB", "a=b")
    assert cli.json("fleet", "sessions", "--node", "a") == []
    assert "state: joined\n" in cli("fleet").expect().out == cli("fleet", "show").expect().out


def test_where_and_place(fleet):
    cli = Cli(fleet["a"].url)
    row, = cli("fleet", "where", "s").expect().table()
    assert (row["SESSION"], row["NODE"], row["OWNER"], row["URL"]) == ("s", "b", "alive",
                                                                       fleet["b"].url + "/v1/sessions/s")
    assert cli("fleet", "where", "s", "-q").expect().out == fleet["b"].url + "/v1/sessions/s\n"
    cli("fleet", "where", "none").expect(NOT_FOUND)
    row, = cli("fleet", "place", "t", "--select", "site=y", "--max-bytes", "1M", "--labels", "job=1", "--on-partition",
               "stop").expect().table()
    assert (row["SESSION"], row["NODE"]) == ("t", "c")
    assert fleet.placed == [{"name": "t", "quota": {"bytes": 1 << 20}, "labels": {"job": "1"}, "select": {"site": "y"},
                             "on_partition": "stop"}]
    cli("fleet", "place", "t", "--select", "site=y").expect(FAILED)
    assert "other labels" in cli("fleet", "place", "u", "--select", "site=z").expect(FAILED).err
    cli("fleet", "place", "u", "--select", "site").expect(USAGE)
    fleet["b"].stop()
    row, = cli("fleet", "where", "s").expect().table()
    assert row["OWNER"] == "absent for 12 s"


def test_drain_and_forget(fleet):
    cli = Cli(fleet["a"].url)
    row, = cli("fleet", "drain", "b").expect().table()
    assert (row["NODE"], row["STATE"]) == ("b", "draining") and fleet["b"].draining
    assert cli.json("fleet", "undrain", "b")["draining"] is False
    cli("fleet", "forget", "b").expect(FAILED)
    cli("fleet", "forget", "none").expect(NOT_FOUND)
    fleet["b"].stop()
    assert cli("fleet", "forget", "b").expect().out == ""
    assert [n["name"] for n in cli.json("fleet", "nodes")] == ["a", "c"]


def test_stats_and_targets(fleet):
    fleet["c"].stop()
    cli = Cli(fleet["a"].url)
    out = cli("fleet", "stats").expect().out
    assert out == "sessions: 1\n\nMISSING  WHY\nc        absent\n", out
    assert cli.json("fleet", "stats")["sums"] == {"sessions": 1}
    assert cli("fleet", "targets").expect().json() == cli.json("fleet", "targets") != []


@pytest.mark.parametrize("words", [["bad"], ["where"], ["where", "a", "b"], ["nodes", "a"], ["drain"], ["init"],
                                   ["take"], ["rm", "a", "b"]])
def test_words_that_are_none(fleet, words):
    Cli(fleet["a"].url)("fleet", *words).expect(USAGE)
    assert fleet["a"].requests == []


def test_completion_knows_nodes_and_sessions(fleet):
    cli = Cli(fleet["a"].url)
    assert cli("complete", "--", "fleet", "wh").expect().out == "where\n"
    assert cli("complete", "--", "fleet", "where", "").expect().out.split() == ["a", "b", "c", "s"]


# --- GPUBUF_FLEET -----------------------------------------------------------------------------------------------------


def test_commands_go_straight_to_the_owner(fleet):
    fleet["b"].data["s", "x"] = b"abc"
    cli = Cli(None, "s", GPUBUF_FLEET=f"{fleet['a'].url},{fleet['c'].url}")
    assert cli("get", "x", "-", "--raw").expect().raw == b"abc"
    assert asked(fleet["a"]) == [("GET", "/v1/fleet/sessions/s")]
    assert asked(fleet["b"]) == [("HEAD", "/v1"), ("GET", DATA)] and fleet["c"].requests == []


def test_the_next_node_is_asked_when_one_is_silent(fleet):
    fleet["a"].stop()
    cli = Cli(None, "s", GPUBUF_FLEET=f"{fleet['a'].url}, {fleet['c'].url}")
    cli("ls").expect()
    assert asked(fleet["c"]) == [("GET", "/v1/fleet/sessions/s")]
    fleet["c"].stop()
    assert fleet["a"].url in cli("ls").expect(UNREACHABLE).err


def test_a_token_that_the_owner_does_not_know_goes_by_tickets(guarded):
    guarded["b"].data["s", "x"] = b"abc"
    cli = Cli(None, "s", GPUBUF_FLEET=guarded["a"].url, GPUBUF_TOKEN="gpb_a")
    assert cli("get", "x", "-", "--raw").expect().raw == b"abc"
    assert asked(guarded["b"]) == [("HEAD", "/v1"), ("GET", DATA)] and "ticket=" in guarded["b"].requests[1].target


def test_what_is_in_no_directory_goes_to_the_first_node(fleet):
    cli = Cli(None, "none", GPUBUF_FLEET=fleet["a"].url)
    cli("ls").expect(NOT_FOUND)
    Cli(None, None, GPUBUF_FLEET=fleet["a"].url)("ls").expect()
    assert asked(fleet["a"])[-2:] == [("GET", "/livez"), ("GET", "/v1/sessions/default/buffers")]
    before = len(fleet["a"].requests)
    Cli(None, "s", GPUBUF_FLEET=fleet["a"].url)("--url", fleet["c"].url, "ls").expect()
    assert len(fleet["a"].requests) == before and len(fleet["c"].requests) == 1
    Cli(None, "s", GPUBUF_FLEET="ftp://a")("ls").expect(USAGE)


def test_hosts_of_the_fleet(fleet):
    cli = Cli(None, None, GPUBUF_FLEET=fleet["a"].url)
    for text, names in (("@", "abc"), ("@site=x", "ab"), ("@site=y", "c")):
        lines = [json.loads(line) for line in cli("--hosts", text, "--json", "ls").expect(DONE).out.splitlines()]
        assert [(line["host"], line["url"]) for line in lines] == [(n, fleet[n].url) for n in names]
    assert "names no host" in cli("--hosts", "@site=z", "ls").expect(USAGE).err
    cli("--hosts", "@site", "ls").expect(USAGE)
    fleet["c"].stop()
    assert cli("--hosts", "@", "ls").expect(SOME_HOSTS).out.splitlines()[-1].startswith("c: failed: ")


# --- gpubuf.Fleet -----------------------------------------------------------------------------------------------------


def test_python_lists_and_places(fleet, monkeypatch):
    monkeypatch.setenv("GPUBUF_FLEET", f"{fleet['a'].url},{fleet['c'].url}")
    with gpubuf.Fleet() as f:
        assert [n["name"] for n in f.nodes()] == ["a", "b", "c"] and f.node("b")["labels"] == {"site": "x"}
        assert f.about()["state"] == "joined" and f.stats()["missing"] == [] and len(f.targets()) == 3
        assert [s["name"] for s in f.sessions()] == ["s"] and f.sessions("a") == []
        assert f.where("s")["node"] == "b"
        with pytest.raises(gpubuf.SessionNotFound):
            f.where("none")
        placed = f.place("t", select={"site": "y"}, quota={"bytes": 1 << 20}, on_partition="stop")
        assert placed["node"] == "c" and fleet.placed[0]["quota"] == {"bytes": 1 << 20}
        with pytest.raises(gpubuf.NoNodeFits):
            f.place("u", select={"site": "z"})
        assert f.drain("b")["draining"] and not f.undrain("b")["draining"]
        with pytest.raises(gpubuf.NodeAlive):
            f.forget("b")
        fleet["a"].stop()
        assert [n["alive"] for n in f.nodes()] == [False, True, True]
        f.forget("a")
        with pytest.raises(gpubuf.NodeNotFound):
            f.node("a")
        fleet["c"].stop()
        with pytest.raises(gpubuf.Unreachable):
            f.nodes()
    monkeypatch.delenv("GPUBUF_FLEET")
    with pytest.raises(gpubuf.BadArgument):
        gpubuf.Fleet()


def test_a_client_of_a_session_goes_straight_and_moves_along(fleet):
    with gpubuf.Fleet([fleet["a"].url]) as f, f.session("s") as client:
        assert client.url == fleet["b"].url
        client.put("x", numpy.arange(4, dtype="uint8"))
        assert asked(fleet["b"]) == [("HEAD", "/v1"), ("PUT", DATA)]
        # Its owner redirects: this request follows, and the next goes to the new owner.
        fleet["c"].data["s", "x"] = b"new"
        fleet.sessions["s"] = fleet["c"]
        assert client.get("x", raw=True) == b"new"
        assert client.get("x", raw=True) == b"new" and client.url == fleet["c"].url
        assert asked(fleet["c"]) == [("GET", DATA), ("HEAD", "/v1"), ("GET", DATA)]
        # It is gone: what reads is asked of the next owner, what writes is too, because nothing was asked.
        fleet["a"].data["s", "x"] = b"newest"
        fleet.sessions["s"] = fleet["a"]
        fleet["c"].stop()
        assert client.get("x", raw=True) == b"newest" and client.url == fleet["a"].url
        fleet.sessions["s"] = fleet["b"]
        fleet["a"].unknowing = True
        client.put("y", numpy.zeros(2, "uint8"))
        assert client.url == fleet["b"].url and fleet["b"].data["s", "y"] == b"\0\0"


def test_a_client_of_a_session_with_a_token_of_one_node(guarded):
    with gpubuf.Fleet(guarded["a"].url, token="gpb_a") as f, f.session("s") as client:
        assert client.url == guarded["a"].url
        client.put("x", numpy.arange(4, dtype="uint8"))
        assert client.get("x", raw=True) == bytes(range(4))
        assert "ticket=" in guarded["b"].requests[-1].target
    with gpubuf.Fleet(guarded["a"].url, token="gpb_a") as f, pytest.raises(gpubuf.SessionNotFound):
        f.session("none")


def test_curl_follows_too(guarded, tmp_path):
    """What doc/fleet.md says of curl holds for the nodes of these tests."""
    (tmp_path / "x").write_bytes(b"abc")
    run = subprocess.run(["curl", "-sSfL", "-T", tmp_path / "x", "-H", "Authorization: Bearer gpb_a", guarded["a"].url
                          + DATA],
                         capture_output=True, timeout=PATIENCE_S)
    assert run.returncode == 0, run.stderr
    assert guarded["b"].data == {("s", "x"): b"abc"}
