"""gpubuf, the Python package, curl and the page within a fleet of real daemons over a real etcd."""
import os
import shutil
import subprocess

import pytest
from etcd_run import Etcd, Nodes
from gpubuf_cli import FAILED, NOT_FOUND, UNREACHABLE, USAGE, Cli
from harness import PATIENCE_S, until
from pages import browser, numpy, rows  # noqa: F401
from pyclient import gpubuf

pytestmark = [pytest.mark.once, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def nodes():
    """A fleet that stays whole."""
    nodes = Nodes()
    yield nodes
    nodes.end()


@pytest.fixture(scope="module")
def guarded():
    """The same, each node with a token of its own."""
    nodes = Nodes(tokens=True)
    yield nodes
    nodes.end()


@pytest.fixture
def mortal():
    """One for a test that ends daemons or etcd."""
    nodes = Nodes()
    yield nodes
    nodes.end()


@pytest.fixture
def session(nodes, request):
    """A session at node b."""
    name = request.node.name.replace("[", ".").replace("]", "")
    nodes.cli("a").json("fleet", "place", name, "--select", "site=b")
    yield name
    nodes.cli("a")("sessions", "rm", name)


# --- the directory ----------------------------------------------------------------------------------------------------


def test_init_makes_the_record_once():
    etcd = Etcd()
    try:
        made = Cli().json("fleet", "init", "--etcd", f"http://127.0.0.1:1,{etcd.url}/")
        assert made["made"] and made["fleet"] == "main"
        again = Cli().json("fleet", "init", "--etcd", etcd.url)
        assert again == {**made, "made": False}
        assert made["uuid"] in Cli()("fleet", "init", "--etcd", etcd.url).expect().out
        assert Cli().json("fleet", "init", "--etcd", etcd.url, "--fleet-name", "other")["uuid"] != made["uuid"]
        for wrong in ("", "a/b", ".", "x" * 200):
            Cli()("fleet", "init", "--etcd", etcd.url, "--fleet-name=" + wrong).expect(USAGE)
        etcd.kill()
        said = Cli()("fleet", "init", "--etcd", etcd.url).expect(UNREACHABLE)
        assert "Is etcd running there" in said.err
    finally:
        etcd.end()


def test_init_at_what_is_no_etcd(nodes):
    assert "answered with status" in Cli()("fleet", "init", "--etcd", nodes.url("a")).expect(FAILED).err


def test_what_is_listed(nodes, session):
    rows_of = nodes.cli("c")("fleet", "nodes").expect().table()
    assert [(r["NODE"], r["STATE"], r["MEMORY"], r["URL"], r["LABELS"]) for r in rows_of] == [
        (n, "ready", "256.0 MiB", nodes.url(n), "site=" + n) for n in "abc"]
    assert nodes.cli("a").json("fleet", "nodes") == nodes.cli("c").json("fleet", "nodes")
    assert [s["name"] for s in nodes.cli("a").json("fleet", "sessions", "--node", "b")] == [session]
    assert nodes.cli("a").json("fleet", "sessions", "--node", "c") == []
    found = nodes.cli("c").json("fleet", "where", session)
    assert (found["node"], found["epoch"], found["owner_alive"],
            found["url"]) == ("b", 1, True, f"{nodes.url('b')}/v1/sessions/{session}")
    assert "\"gpubuf fleet place SESSION\" makes one" in nodes.cli("c")("fleet", "where", "none").expect(NOT_FOUND).err
    stats = nodes.cli("a").json("fleet", "stats")
    assert [n["node"] for n in stats["nodes"]] == ["a", "b", "c"] and stats["missing"] == []
    assert {t["labels"]["node"]: t["targets"] for t in nodes.cli("a").json("fleet", "targets")} == {
        n: [nodes.url(n).partition("//")[2]] for n in "abc"}


def test_placement(nodes):
    cli = nodes.cli("a")
    placed = cli.json("fleet", "place", "p1", "--select", "site=c", "--max-bytes", "1M", "--labels", "k=v",
                      "--on-partition", "stop")
    try:
        assert (placed["node"], placed["quota"]["bytes"], placed["labels"]) == ("c", 1 << 20, {"k": "v"})
        assert cli.json("fleet", "where", "p1")["on_partition"] == "stop"
        cli("fleet", "place", "p1").expect(FAILED)
        cli("fleet", "place", "p2", "--select", "site=none").expect(FAILED)
        assert cli("fleet", "place", "p2", "--max-bytes", "1T").expect(FAILED).err.count("gpubuf fleet nodes") == 1
    finally:
        cli("sessions", "rm", "p1").expect()
    until("it is not registered any more", lambda: nodes.cli("b")("fleet", "where", "p1").status == NOT_FOUND)


def test_sessions_add_registers(nodes):
    cli = nodes.cli("a")
    cli("sessions", "add", "added", "--fleet", "--on-partition", "stop").expect()
    try:
        found = nodes.cli("b").json("fleet", "where", "added")
        assert (found["node"], found["on_partition"]) == ("a", "stop")
        assert "when it is made" in cli("sessions", "set", "added", "--fleet").expect(USAGE).err
        cli("sessions", "add", "local").expect()
        nodes.cli("c")("fleet", "where", "local").expect(NOT_FOUND)
    finally:
        cli("sessions", "rm", "added", "local").expect()


def test_a_copy_from_another_node(nodes, session):
    nodes.cli("b", session)("put", "-", "x", "--raw", input=b"abc").expect()
    nodes.cli("a")("cp", f"{session}/x", "default/copied").expect()
    assert nodes.cli("a")("get", "default/copied", "-", "--raw").expect().out == "abc"
    nodes.cli("a")("rm", "default/copied").expect()
    said = nodes.cli("a")("cp", "nowhere/x", "default/x").expect(NOT_FOUND)
    assert "by its URL" in said.err and "sessions add" not in said.err


def test_no_node_is_named(tmp_path):
    said = Cli(GPUBUF_SOCKET=str(tmp_path / "none"))("fleet", "nodes").expect(UNREACHABLE)
    assert "GPUBUF_FLEET" in said.err


def test_drain(nodes):
    cli = nodes.cli("a")
    row, = cli("fleet", "drain", "b").expect().table()
    try:
        assert (row["NODE"], row["STATE"]) == ("b", "draining")
        until("others know", lambda: cli.json("fleet", "nodes")[1]["draining"])
        cli("fleet", "place", "d1", "--select", "site=b").expect(FAILED)
    finally:
        assert cli.json("fleet", "undrain", "b")["draining"] is False
        until("others know", lambda: not cli.json("fleet", "nodes")[1]["draining"])
    cli("fleet", "drain", "none").expect(NOT_FOUND)
    cli("fleet", "forget", "b").expect(FAILED)


# --- sessions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 9 << 20])
def test_bytes_through_every_node(nodes, session, tmp_path, size):
    data = os.urandom(size)
    (tmp_path / "x").write_bytes(data)
    for name in "abc":
        cli = nodes.cli(name, session)
        cli("put", tmp_path / "x", f"file.{name}", "--raw").expect()
        cli("put", "-", f"pipe.{name}", "--raw", input=data).expect()
        cli("put", tmp_path / "x", f"parts.{name}", "--raw", "--connections", "3").expect()
    for name in "abc":
        for kind in ("file", "pipe", "parts"):
            assert nodes.cli("abc"["bca".index(name)], session)("get", f"{kind}.{name}", "-",
                                                                "--raw").expect().raw == data
    assert len(nodes["b"].get(f"/v1/sessions/{session}/buffers")["items"]) == 9
    assert nodes["a"].get("/v1/stats")["buffers"]["count"] == 0


def test_with_the_fleet_commands_go_straight(nodes, session):
    cli = nodes.fleet_cli(session)
    cli("put", "-", "x", "--raw", input=b"abc").expect()
    said = cli("-v", "get", "x", "-", "--raw").expect()
    assert said.raw == b"abc" and " -> 307" not in said.err and "/v1/fleet/sessions/" in said.err
    assert " -> 307" in nodes.cli("a", session)("-v", "get", "x", "-", "--raw").expect().err
    assert [line.partition(":")[0] for line in nodes.fleet_cli()("--hosts", "@site=c",
                                                                 "sessions").expect().out.splitlines()] == ["c", "c"]


def test_tokens_stay_with_their_node(guarded):
    guarded.cli("a").json("fleet", "place", "s", "--select", "site=b")
    for name in "abc":
        guarded.cli(name, "s")("put", "-", name, "--raw", input=name.encode()).expect()
        assert guarded.fleet_cli("s", name)("get", name, "-", "--raw").expect().raw == name.encode()
        with gpubuf.Fleet(guarded.url(name), token=guarded.tokens[name]) as f, f.session("s") as client:
            assert client.get(name, raw=True) == name.encode() and (client.url == guarded.url("b")) == (name == "b")
            client.put("big", numpy.zeros(5 << 20, "uint8"))
    Cli(guarded.url("c"), "s", GPUBUF_TOKEN=guarded.tokens["a"])("ls").expect(FAILED)
    with gpubuf.Client(guarded.url("c"), token=guarded.tokens["c"], session="s") as client:
        assert sorted(b["name"] for b in client.list()) == ["a", "b", "big", "c"]
        assert client.sessions.get()["name"] == "s"
    said = guarded.cli("a", "s")("-v", "get", "a", "-", "--raw").expect()
    assert "ticket" not in said.err and " -> 307" in said.err


def test_curl_follows(guarded, tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    place = guarded.cli("a").json("fleet", "place", "curl", "--select", "site=c")
    assert place["node"] == "c"
    run = subprocess.run(["curl", "-sSfL", "-T", tmp_path / "x", "-H", f"Authorization: Bearer {guarded.tokens['a']}",
                          guarded.url("a") + "/v1/sessions/curl/buffers/x/data"], capture_output=True,
                         timeout=PATIENCE_S)
    assert run.returncode == 0, run.stderr
    assert guarded.cli("c", "curl")("get", "x", "-", "--raw").expect().raw == b"abc"


def test_memory_is_mapped_at_the_owner_alone(nodes, session):
    nodes.cli("a", session)("create", "x", "--bytes", "64", "--kind", "shared").expect()
    said = nodes.cli("a", session)("map", "x", "--socket", nodes["a"].unix).expect(FAILED)
    assert "Run the command on that node" in said.err
    with gpubuf.Client(socket=nodes["a"].unix, session=session) as client, pytest.raises(gpubuf.NotHere):
        client.map("x")
    nodes.cli("b", session)("map", "x", "--socket", nodes["b"].unix).expect()


def test_python(nodes, monkeypatch):
    monkeypatch.setenv("GPUBUF_FLEET", ",".join(map(nodes.url, "abc")))
    with gpubuf.Fleet() as f:
        placed = f.place("py", select={"site": "c"}, quota={"bytes": 1 << 20})
        assert placed["node"] == "c" and placed["fleet"]["epoch"] == 1
        with gpubuf.Client(nodes.url("a")) as a:
            made = a.sessions.create("mine", fleet=True, on_partition="stop")
            assert made["fleet"] == {"epoch": 1, "on_partition": "stop"} and f.where("mine")["node"] == "a"
            with pytest.raises(gpubuf.SessionExists):
                a.sessions.create("py")
        with f.session("py") as client:
            client.put("x", numpy.arange(6, dtype="float32"))
            assert client.get("x").sum() == 15 and client.url == nodes.url("c")
            with pytest.raises(gpubuf.QuotaExceeded):
                client.put("y", numpy.zeros(2 << 20, "uint8"))
            assert [b["name"] for b in client.tensors_put({"t": numpy.zeros(3)})] == ["t"]
            client.sessions.delete()
        until("it is not registered any more", lambda: "py" not in [s["name"] for s in f.sessions()])
        with gpubuf.Fleet(nodes.url("b")) as other, pytest.raises(gpubuf.SessionNotFound):
            other.where("py")
        assert [s["name"] for s in f.sessions("a")] == ["mine"]
        f.session("mine").sessions.delete()


def test_the_page(nodes, session, browser):  # noqa: F811
    page = browser.page(nodes["c"].url("/fleet"))
    try:
        page.until("the nodes and the session are there",
                   "document.querySelectorAll('#nodes tbody tr').length === 3 && document.querySelectorAll('#sessions "
                   "tbody tr').length >= 1")
        assert [row[:2] for row in rows(page, "nodes")] == [["a", "ready"], ["b", "ready"], ["c", "ready"]]
        assert [session, "b"] in [row[:2] for row in rows(page, "sessions")]
        assert page.js("document.getElementById('about').textContent") == "main · node c · joined"
        assert page.faults() == []
    finally:
        page.close()


def test_the_page_of_a_daemon_leads_to_its_fleet(nodes, daemon, browser):  # noqa: F811
    for node, shown in ((nodes["a"], True), (daemon, False)):
        page = browser.page(node.url("/"))
        try:
            page.until("the page knows", "document.body.dataset.connection === 'connected'")
            page.until("it has asked", f"performance.getEntriesByName('{node.url('/v1/fleet')}').length > 0")
            page.until("the link is as it is to be", "document.getElementById('fleet').hidden !== "
                       f"{str(shown).lower()}")
            assert page.faults() == []
        finally:
            page.close()


def test_doctor(nodes, daemon):
    checks = {c["check"]: c for c in Cli(nodes.url("a")).json("doctor")}
    assert checks["fleet"]["ok"] and checks["fleet"]["detail"] == "node a of main is joined"
    assert "fleet" not in {c["check"] for c in Cli(daemon.url("")).json("doctor")}


# --- what ends --------------------------------------------------------------------------------------------------------


def test_an_owner_that_is_gone_and_comes_back(mortal):
    cli = mortal.fleet_cli("s", "ac")
    cli.json("fleet", "place", "s", "--select", "site=b")
    cli("put", "-", "kept", "--raw", "--durability", "sync", input=b"abc").expect()
    with gpubuf.Fleet([mortal.url("a")]) as f, f.session("s") as client:
        assert client.get("kept", raw=True) == b"abc"
        mortal["b"].kill()
        said = cli("get", "kept", "-", "--raw")  # its lease may have run out already
        assert (said.status in (FAILED, UNREACHABLE) and "\"s\"" in said.err and "\"b\"" in said.err
                and "comes back with its node" in said.err)
        until("the lease has run out", lambda: not f.where("s")["owner_alive"])
        assert f.stats()["missing"][0]["node"] == "b"
        with pytest.raises(gpubuf.OwnerAbsent):
            client.get("kept", raw=True)
        said = cli("get", "kept", "-", "--raw").expect(FAILED)
        assert "comes back with its node" in said.err
        assert [r["STATE"] for r in cli("fleet", "nodes").expect().table()] == ["ready", "absent", "ready"]
        mortal["b"].clean()
        mortal.start("b")
        until("it is back", lambda: f.where("s")["owner_alive"])
        assert client.get("kept", raw=True) == client.get("kept", raw=True) == b"abc" and client.url == mortal.url("b")
    assert cli("get", "kept", "-", "--raw").expect().raw == b"abc"


def test_a_node_is_forgotten(mortal):
    cli = mortal.cli("a")
    cli.json("fleet", "place", "s", "--select", "site=b")
    mortal["b"].kill()
    until("the lease has run out", lambda: cli("fleet", "forget", "b").status == 0)
    assert [n["name"] for n in cli.json("fleet", "nodes")] == ["a", "c"] and cli.json("fleet", "sessions") == []
    cli("fleet", "where", "s").expect(NOT_FOUND)
    assert "\"b\"" in cli("fleet", "forget", "b").expect(NOT_FOUND).err


def test_without_etcd_what_is_known_goes_on(mortal):
    cli = mortal.cli("a", "s")
    cli.json("fleet", "place", "s", "--select", "site=b")
    cli("put", "-", "x", "--raw", input=b"abc").expect()
    mortal.etcd.kill()
    until("the node has noticed", lambda: mortal.state_of("a") != "joined")
    assert mortal.cli("b", "s")("get", "x", "-", "--raw").expect().raw == b"abc"
    said = cli("-t", "5", "-s", "unknown", "ls").expect(FAILED)
    assert "\"gpubuf fleet\" says why" in said.err
    cli("fleet", "place", "t").expect(FAILED)
    cli("-s", "default", "ls").expect()
    mortal.etcd.start()
    until("all have joined again", mortal.joined)
    assert cli("get", "x", "-", "--raw").expect().raw == b"abc"


def test_a_session_of_a_node_that_is_gone_is_taken(mortal):
    cli = mortal.fleet_cli("s", "ac")
    cli.json("fleet", "place", "s", "--select", "site=b")
    cli("put", "-", "x", "--raw", "--durability", "sync", input=b"old").expect()
    assert "or empty" in cli("fleet", "take", "s").expect(USAGE).err
    assert "Stop its gpubufd first" in mortal.cli("a")("fleet", "take", "s", "--force").expect(FAILED).err
    with gpubuf.Client(mortal.url("a"), session="s") as client, gpubuf.Fleet(mortal.url("c")) as f, f.session(
            "s") as straight:
        assert [b["name"] for b in client.list()] == [b["name"] for b in straight.list()] == ["x"]
        mortal["b"].kill()
        until("the lease has run out", lambda: not f.where("s")["owner_alive"])
        assert (mortal.cli("a")("fleet", "take", "s", "--force").expect().out == f"session s is at {mortal.url('a')}, "
                "at epoch 2, and empty\n")
        until("node c has looked it up again", lambda: f.where("s")["epoch"] == 2)
        straight.put("y", numpy.zeros(3, "uint8"))  # it finds the new owner
        assert straight.url == mortal.url("a") and [b["name"] for b in client.list()] == ["y"]
        mortal["b"].clean()
        mortal.start("b")
        until("its session was set aside", lambda: [s["name"] for s in mortal.cli("b").json("sessions")]
              == ["default", "s.superseded-1"])
        old = mortal.cli("b", "s.superseded-1")
        assert old("get", "x", "-", "--raw").expect().raw == b"old"
        assert old("put", "-", "x", "--raw", input=b"new").expect(FAILED).err
        with gpubuf.Client(mortal.url("b"), session="s.superseded-1") as aside, pytest.raises(gpubuf.Superseded):
            aside.delete("x")
        assert [b["name"] for b in mortal.cli("b", "s").json("ls")] == ["y"]  # redirected to a
    with gpubuf.Fleet(mortal.url("b")) as f:
        mortal["a"].kill()
        until("the lease has run out", lambda: not f.where("s")["owner_alive"])
        assert f.take("s")["fleet"]["epoch"] == 3 and f.where("s")["node"] == "b"


def test_a_session_of_a_node_that_is_gone_is_removed(mortal):
    cli = mortal.fleet_cli(None, "ac")
    cli.json("fleet", "place", "s", "--select", "site=b")
    cli.json("fleet", "place", "t", "--select", "site=b")
    cli("fleet", "rm", "s", "--force").expect(FAILED)
    mortal["b"].kill()
    until("the lease has run out", lambda: cli("fleet", "rm", "s", "--force").status == 0)
    with gpubuf.Fleet(mortal.url("a")) as f:
        f.delete("t")
    cli("fleet", "where", "s").expect(NOT_FOUND)
    assert cli.json("fleet", "sessions") == []
    mortal["b"].clean()
    mortal.start("b")
    until("its sessions were set aside", lambda: [s["name"] for s in mortal.cli("b").json("sessions")]
          == ["default", "s.superseded-1", "t.superseded-1"])


def test_the_record_of_a_lost_directory_is_made_again(mortal):
    cli = mortal.fleet_cli("s")
    cli.json("fleet", "place", "s", "--select", "site=b")
    cli("put", "-", "x", "--raw", input=b"abc").expect()
    uuid = cli.json("fleet")["fleet_uuid"]
    mortal.etcd.kill()
    shutil.rmtree(mortal.etcd.data)
    mortal.etcd.start()
    until("the nodes have noticed", lambda: all(mortal.state_of(n) != "joined" for n in "abc"))
    said = cli("fleet", "init", "--rebuild", "--etcd", mortal.etcd.url).expect()
    assert said.out.startswith(f"fleet main is made again: {uuid}\n")
    until("all have joined again", mortal.joined)
    until("the session is registered again", lambda: [(s["name"], s["node"], s["epoch"])
                                                      for s in cli.json("fleet", "sessions")] == [("s", "b", 2)])
    assert cli("get", "x", "-", "--raw").expect().raw == b"abc"
