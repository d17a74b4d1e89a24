"""gpubuf and the Python package send the epochs of a fleet's sessions along, and find the owner again when one was
superseded; nodes answer as gpubufd does."""
import re
import socket
import threading

import pytest
from etcd_run import Etcd
from fake_fleet import Fleet, fleet  # noqa: F401
from gpubuf_cli import DONE, FAILED, NOT_FOUND, UNREACHABLE, USAGE, Cli
from pyclient import gpubuf

numpy = pytest.importorskip("numpy")
pytestmark = pytest.mark.once  # no memory is looked at

DATA = "/v1/sessions/s/buffers/x/data"
UUID = "0f4b6a52-2b1c-4d4e-9a51-3f0c5d7e8a90"
OTHER = "ffffffff-2b1c-4d4e-9a51-3f0c5d7e8a90"


@pytest.fixture
def moved(fleet):
    """Session s is at c, at epoch 2. Node b had it and knows; the next look-up at a finds it at b."""
    fleet.sessions["s"], fleet.epochs["s"] = fleet["c"], 2
    fleet["b"].had["s"] = 1
    fleet["b"].told.add("s")
    fleet["a"].remembers.append((fleet["b"], 1))
    return fleet


def carried(node):
    """(method, path, epoch) of the requests for s."""
    return [(r.method, r.path, r.headers.get("Gpubuf-Epoch")) for r in node.requests
            if r.path.startswith("/v1/sessions/s")]


def cli_of(fleet, **more):
    return Cli(None, "s", GPUBUF_FLEET=fleet["a"].url, **more)


# --- gpubuf -----------------------------------------------------------------------------------------------------------


def test_a_command_carries_the_epoch_of_its_look_up(fleet):
    fleet.epochs["s"], fleet["b"].data["s", "x"] = 3, b"abc"
    assert cli_of(fleet)("get", "x", "-", "--raw").expect().raw == b"abc"
    assert carried(fleet["b"]) == [("GET", DATA, "3")]


def test_a_redirect_tells_the_epoch(fleet):
    """An owner that has an old one is unmasked, though nothing was known before."""
    fleet.epochs["s"], fleet["b"].had["s"] = 3, 2
    said = Cli(fleet["a"].url, "s")("put", "-", "x", "--raw", input=b"abc").expect(FAILED)
    assert '"gpubuf fleet where SESSION" asks the directory' in said.err
    assert carried(fleet["b"]) == [("PUT", DATA, "3")] and fleet["b"].data == {}


@pytest.mark.parametrize("words, method", [(["put", "FILE", "x", "--raw"], "PUT"), (["get", "x", "-", "--raw"], "GET"),
                                           (["rm", "x"], "DELETE"), (["load", "x"], "POST"),
                                           (["call", "GET", "/v1/sessions/s"], "GET"), (["ls"], "GET")])
def test_the_owner_is_found_again(moved, tmp_path, words, method):
    (tmp_path / "x").write_bytes(b"abc")
    moved["c"].data["s", "x"] = b"new"
    said = cli_of(moved)("-v", *[str(tmp_path / "x") if w == "FILE" else w for w in words]).expect(DONE)
    assert "the fleet is asked again" in said.err
    assert [(m, e) for m, _, e in carried(moved["b"])] == [(method, "1")]
    assert {(m, e) for m, _, e in carried(moved["c"])} == {(method, "2")}
    if words[0] == "get":
        assert said.raw == b"new"
    if words[0] == "put":
        assert moved["c"].data["s", "x"] == b"abc" and moved["b"].data == {}


def test_it_is_found_again_once(moved):
    moved["a"].remembers.append((moved["b"], 1))
    said = cli_of(moved)("ls").expect(FAILED)
    assert "of the test" in said.err and len(carried(moved["b"])) == 2 and carried(moved["c"]) == []


def test_without_the_fleet_it_is_told(moved):
    said = Cli(moved["b"].url, "s")("ls").expect(FAILED)
    assert "of the test" in said.err and len(carried(moved["b"])) == 1


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("size", [3, 3 << 20])
def test_what_was_read_of_a_pipe_is_not_sent_to_another(moved, late, size):
    """A short pipe is kept until it is answered, and can be sent again."""
    moved["b"].late = late
    lost, data = late and size > 3, bytes(range(1, 4)) * (size // 3)
    cli_of(moved)("put", "-", "x", "--dtype", "uint8", "--shape", len(data), "--raw",
                  input=data).expect(FAILED if lost else DONE)
    assert len(carried(moved["b"])) == 1 and moved["c"].data == ({} if lost else {("s", "x"): data})


def test_of_several_objects_those_that_are_left_go_to_the_new_owner(fleet):
    """The owner is superseded during a command."""
    fleet["b"].had["s"], fleet["b"].told_after = 1, 1
    fleet.epochs["s"] = 2
    fleet["a"].remembers.append((fleet["b"], 1))
    fleet.sessions["s"] = fleet["c"]
    cli_of(fleet)("rm", "x", "y", "z").expect()
    assert [(p.rpartition("/")[2], e) for _, p, e in carried(fleet["b"])] == [("x", "1"), ("y", "1")]
    assert [(p.rpartition("/")[2], e) for _, p, e in carried(fleet["c"])] == [("y", "2"), ("z", "2")]


def test_an_owner_that_is_uncertain_is_asked_again(fleet):
    fleet["b"].uncertain = 1
    cli_of(fleet)("put", "-", "x", "--raw", input=b"abc").expect()
    assert [m for m, _, _ in carried(fleet["b"])] == ["PUT", "PUT"]
    fleet["b"].uncertain = 9
    assert "Repeat the command" in cli_of(fleet)("ls").expect(FAILED).err
    assert len(carried(fleet["b"])) == 5


# --- gpubuf fleet take, rm --------------------------------------------------------------------------------------------


def test_take(fleet):
    cli = Cli(fleet["c"].url)
    said = cli("fleet", "take", "s").expect(USAGE)
    assert "or empty" in said.err and fleet["c"].requests == []
    cli("fleet", "take", "s", "--force").expect(FAILED)
    cli("fleet", "take", "none", "--force").expect(NOT_FOUND)
    fleet["b"].stop()
    assert (cli("fleet", "take", "s", "--force").expect().out == f"session s is at {fleet['c'].url}, at epoch 2, and "
            "empty\n")
    assert fleet.sessions["s"] is fleet["c"]
    fleet.sessions["s"] = fleet["b"]
    assert cli.json("fleet", "take", "s", "--force")["fleet"]["epoch"] == 3
    assert cli("fleet", "where", "s").expect().table()[0]["EPOCH"] == "3"


def test_rm(fleet):
    cli = Cli(fleet["c"].url)
    assert "sets session \"s\" aside" in cli("fleet", "rm", "s").expect(USAGE).err and fleet["c"].requests == []
    cli("fleet", "rm", "s", "--force").expect(FAILED)
    fleet["b"].stop()
    assert cli("fleet", "rm", "s", "--force").expect().out == "" and fleet.sessions == {}
    cli("fleet", "rm", "s", "--force").expect(NOT_FOUND)


# --- gpubuf fleet init --rebuild --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def etcd():
    etcd = Etcd()
    yield etcd
    etcd.end()


def rebuild(fleet, etcd, *words, **env):
    """init --rebuild of a fleet that is named by words, or main."""
    env = env or {"GPUBUF_FLEET": ",".join(n.url for n in fleet.nodes.values())}
    return Cli(**env)("fleet", "init", "--rebuild", "--etcd", etcd.url, *words)


def test_rebuild_asks_the_nodes(fleet, etcd):
    fleet["a"].stop()
    fleet["b"].fleet_uuid = None
    said = rebuild(fleet, etcd).expect()
    assert said.out.startswith(f"fleet main is made again: {UUID}\n") and "higher epochs" in said.out
    assert fleet["a"].url in said.err and "does not know the uuid" in said.err
    assert "stays as it is" in rebuild(fleet, etcd).expect().out
    assert rebuild(fleet, etcd, "--json", "--url", fleet["c"].url).expect().json() == {
        "uuid": UUID, "schema": 1, "fleet": "main", "made": False}
    for node in fleet.nodes.values():
        node.fleet_uuid = OTHER
    said = rebuild(fleet, etcd).expect(FAILED)
    assert OTHER in said.err and UUID in said.err and "etcdctl del /gpubuf/main/meta" in said.err


def test_rebuild_needs_a_uuid_that_all_agree_on(fleet, etcd):
    fleet["c"].fleet_uuid = OTHER
    said = rebuild(fleet, etcd, "--fleet-name", "none").expect(USAGE)
    assert 'of the fleet "main", not of "none"' in said.err
    said = rebuild(fleet, etcd).expect(USAGE)
    assert f'node "c" knows its fleet by the uuid {OTHER}, and node "b" says {UUID}' in said.err
    assert "and --uuid says" in rebuild(fleet, etcd, "--uuid", OTHER).expect(USAGE).err
    fleet["a"].lonely = True
    assert "it is in no fleet" in rebuild(fleet, etcd, GPUBUF_FLEET=fleet["a"].url).expect(UNREACHABLE).err
    for node in fleet.nodes.values():
        node.stop()
    assert "or give --uuid" in rebuild(fleet, etcd).expect(UNREACHABLE).err
    assert "GPUBUF_FLEET" in rebuild(fleet, etcd, GPUBUF_FLEET="").expect(USAGE).err
    assert "is no uuid" in rebuild(fleet, etcd, "--uuid", UUID + "0").expect(USAGE).err
    assert Cli()("fleet", "init", "--etcd", etcd.url, "--fleet-name", "other", "--uuid", UUID).expect(USAGE).err
    rebuild(fleet, etcd, "--uuid", OTHER, "--fleet-name", "other", GPUBUF_FLEET="").expect()
    assert Cli().json("fleet", "init", "--etcd", etcd.url, "--fleet-name", "other") == {"uuid": OTHER, "schema": 1,
                                                                                        "fleet": "other", "made": False}


# --- Python -----------------------------------------------------------------------------------------------------------


def test_python_carries_the_highest_epoch(fleet):
    fleet.epochs["s"] = 3
    with gpubuf.Client(fleet["a"].url, session="s") as client:
        client.put("x", numpy.arange(3, dtype="uint8"))
        client.get("x")
        assert ([e for _, _, e in carried(fleet["a"])] == [None, "3"] and [e for _, _, e in carried(fleet["b"])]
                == ["3", "3"])
        fleet.epochs["s"] = 2
        client.get("x")
        client.get("x")
        assert carried(fleet["b"])[-1][2] == "3"
        fleet["b"].had["s"] = 2
        with pytest.raises(gpubuf.Superseded) as told:
            client.put("x", numpy.arange(3, dtype="uint8"))
        assert told.value.status == 409 and not told.value.retryable and told.value.problem["epoch"] == 2


def test_python_forgets_a_session_that_is_gone(fleet):
    fleet.epochs["s"] = 3
    with gpubuf.Client(fleet["b"].url, session="s") as client:
        client.list()
        client.sessions.delete()
        with pytest.raises(gpubuf.SessionNotFound):
            client.list()
        assert [e for _, _, e in carried(fleet["b"])] == [None, "3", None]
        fleet.sessions["s"] = fleet["b"]
        client.list()
        del fleet.sessions["s"]
        with pytest.raises(gpubuf.SessionNotFound):
            client.list()
        fleet.sessions["s"], fleet.epochs["s"] = fleet["b"], 1
        client.list()
        client.list()
        assert [e for _, _, e in carried(fleet["b"])[3:]] == [None, "3", None, "1"]


def test_python_remembers_a_bounded_number():
    epochs = gpubuf._epochs.Epochs()
    for i in range(100):
        epochs.rise(f"s{i}", i + 1)
        epochs.fields("/v1/sessions/s0/buffers")
    assert (epochs.fields("/v1/sessions/s0") == {"Gpubuf-Epoch": "1"} and epochs.fields("/v1/sessions/s50?a=b")
            == {"Gpubuf-Epoch": "51"})
    assert epochs.fields("/v1/sessions/s36") == {} and epochs.fields("/v1/sessions/s99/") == {"Gpubuf-Epoch": "100"}
    assert epochs.fields("/v1/fleet/sessions/s0") == epochs.fields("/v1/sessions") == epochs.fields("/v1") == {}
    assert epochs.fields("/v1/sessions/s0", {"gpubuf-epoch": "9"}) == {"gpubuf-epoch": "9"}
    epochs.made("s0", 2)
    epochs.made("s99", 1)
    assert (epochs.fields("/v1/sessions/s0") == {"Gpubuf-Epoch": "2"} and epochs.fields("/v1/sessions/s99")
            == {"Gpubuf-Epoch": "1"})


def test_a_mapping_of_python_carries_it(tmp_path):
    asked, path = [], str(tmp_path / "s")
    document = b'{"code":"superseded","status":409,"detail":"of the test"}'

    def serve(listener):
        for _ in range(2):
            connection = listener.accept()[0]
            with connection, connection.makefile("rb") as lines:
                asked.append(b"".join(iter(lines.readline, b"\r\n")))
                length = int(re.search(rb"Content-Length: (\d+)", asked[-1])[1])
                lines.read(length)
                connection.sendall(b"HTTP/1.1 409 Conflict\r\nGpubuf-Epoch: 6\r\nContent-Length: %d\r\n\r\n"
                                   % len(document) + document)

    with socket.socket(socket.AF_UNIX) as listener, gpubuf.Client(socket=path, session="s") as client:
        listener.bind(path)
        listener.listen()
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        for _ in range(2):
            with pytest.raises(gpubuf.Superseded):
                client.map("x")
        server.join()
    assert b"Gpubuf-Epoch" not in asked[0] and b"Gpubuf-Epoch: 6\r\n" in asked[1]


def test_a_client_of_a_session_finds_the_owner_again(moved):
    with gpubuf.Fleet(moved["a"].url) as f, f.session("s") as client:
        assert client.url == moved["b"].url
        client.put("x", numpy.arange(3, dtype="uint8"))
        assert client.url == moved["c"].url and moved["c"].data["s", "x"] == b"\0\1\2" and moved["b"].data == {}
        assert carried(moved["b"]) == [("PUT", DATA, "1")] and carried(moved["c"]) == [("PUT", DATA, "2")]
        # Once only: the look-up leads to the same one again.
        moved.sessions["s"], moved["c"].had["s"] = moved["c"], 2
        moved["c"].told.add("s")
        with pytest.raises(gpubuf.Superseded):
            client.put("x", numpy.arange(3, dtype="uint8"))
        assert len(carried(moved["c"])) == 3


def test_a_client_of_a_session_finds_a_new_owner_of_an_absent_one(fleet):
    fleet["b"].stop()
    with gpubuf.Fleet(fleet["a"].url) as f, f.session("s") as client:
        with pytest.raises(gpubuf.OwnerAbsent):
            client.list()
        assert len(carried(fleet["a"])) == 2
        fleet["a"].misses = True
        fleet.sessions["s"], fleet.epochs["s"] = fleet["c"], 2
        client.put("x", numpy.arange(3, dtype="uint8"))
        assert client.url == fleet["c"].url and carried(fleet["c"]) == [("PUT", DATA, "2")]


def test_python_takes_and_deletes(fleet):
    with gpubuf.Fleet([fleet["c"].url]) as f:
        for call in (f.take, f.delete):
            with pytest.raises(gpubuf.NodeAlive):
                call("s")
            with pytest.raises(gpubuf.SessionNotFound):
                call("none")
        fleet["b"].stop()
        assert f.take("s")["fleet"] == {"epoch": 2, "on_partition": "serve"} and fleet.sessions["s"] is fleet["c"]
        with f.session("s") as client:
            client.list()
        assert carried(fleet["c"])[-1][2] == "2"
        fleet.sessions["s"] = fleet["b"]
        f.delete("s")
        assert fleet.sessions == {} and f.about()["fleet_uuid"] == UUID


def test_python_tells_that_an_owner_is_uncertain(fleet):
    fleet["b"].uncertain = 1
    with gpubuf.Fleet(fleet["a"].url) as f, f.session("s") as client:
        with pytest.raises(gpubuf.OwnerUncertain) as told:
            client.list()
        assert told.value.retryable and isinstance(told.value, gpubuf.Unavailable)
        client.list()
