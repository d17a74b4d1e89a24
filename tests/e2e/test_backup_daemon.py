"""gpubuf backup and restore between daemons: what one has goes to a place, and another one has the same bytes."""
import pytest

from gpubuf_cli import FAILED, NOT_FOUND, Cli
from s3_server import SECRET, Store
from test_access import token
from values import payload

MIB = 1 << 20
BUFFERS = {"big": payload(12 * MIB + 3, 1), "file": payload(70000, 2), "inline": payload(1000, 3), "w.small": payload(5000, 4)}


@pytest.fixture
def store():
    made = Store()
    yield made
    made.end()


def fill(cli, buffers=None):
    for name, data in (buffers or BUFFERS).items():
        cli("put", "-", name, "--raw", *(("--durability", "sync") if name != "w.small" else ()), input=data).expect()


def make(cli, name, session="default"):
    cli("call", "POST", f"/v1/sessions/{session}/checkpoints", f'{{"name": "{name}"}}').expect()


@pytest.fixture(params=["folder", "s3"])
def place(request, tmp_path):
    return str(tmp_path / "nas") if request.param == "folder" else "s3://tests/gpu 1"


def test_from_one_daemon_to_another(start, tmp_path, store, place):
    first = start("--disk-reserve", "0", state=str(tmp_path / "a"))
    one = Cli(first.url(""), **store.environment())
    fill(one)
    make(one, "c1")
    said = one.json("backup", "c1", place, "--part-bytes", "5M")
    assert (said["files"], said["sent_files"]) == (4, 4)
    assert one.json("backup", "c1", place)["sent_files"] == 0
    one("put", "-", "file", "--raw", "--durability", "sync", input=payload(70000, 9)).expect()
    make(one, "c2")
    said = one.json("backup", "c2", place)
    assert said["sent_files"] <= 2 and said["removed_files"] == said["sent_files"]
    first.stop()
    second = start("--disk-reserve", "0", state=str(tmp_path / "b"))
    other = Cli(second.url(""), **store.environment())
    other("restore", place).expect()
    for name, data in {**BUFFERS, "file": payload(70000, 9)}.items():
        assert other("get", name, "-").expect().raw == data, name
    err = other("restore", place, "--files-only").expect(FAILED).err
    assert '"c2" already' in err, err
    other("sessions", "add", "s2").expect()
    other("restore", place, "--name", "again", "--into", "s2", "--prefix", "v.").expect()
    assert {b["name"] for b in other.json("ls", "-s", "s2")} == {"v." + name for name in BUFFERS}
    err = other("restore", place, "--name", "third").expect(FAILED).err
    assert "gpubuf:" in err, "the buffers are there, and nothing said that they may be replaced"
    other("call", "DELETE", "/v1/checkpoints/third").expect()
    other("restore", place, "--name", "third", "--replace").expect()
    assert other("restore", place, "--name", "fourth", "--into", "nowhere").expect(NOT_FOUND).err


def test_with_a_token(start, tmp_path, store):
    secret = token(tmp_path, "add", "w", "--scope", "write")
    d = start("--disk-reserve", "0", state=str(tmp_path))
    cli = Cli(d.url(""), GPUBUF_TOKEN=secret, **store.environment())
    fill(cli, {"x": BUFFERS["file"]})
    make(cli, "c1")
    said = cli("-v", "backup", "c1", "s3://tests/p").expect()
    assert secret not in said.err and SECRET not in said.err and "PUT http" in said.err, said.err
    cli("restore", "s3://tests/p", "--name", "c2", "--replace").expect()
    assert "401" in Cli(d.url(""), GPUBUF_TOKEN="wrong", **store.environment())("-v", "backup", "c1", "s3://tests/p").expect(FAILED).err


def test_over_the_unix_socket(start, tmp_path):
    d = start("--disk-reserve", "0", state=str(tmp_path / "state"))
    cli = Cli("unix://" + d.unix)
    fill(cli)
    make(cli, "c1")
    cli("backup", "c1", tmp_path / "b").expect()
    cli("restore", tmp_path / "b", "--name", "c2", "--files-only").expect()
    cli("call", "POST", "/v1/checkpoints/c2/verify", "{}").expect()


def test_a_session_that_is_not_there(start, tmp_path):
    """Is said before any byte is moved, and how to go on."""
    one, two = (Cli(start(state=str(tmp_path / name)).url("")) for name in ("one", "two"))
    one("sessions", "add", "llm").expect()
    one("put", "-", "llm/x", "--raw", "--durability", "sync", input=b"bytes").expect()
    make(one, "c1", "llm")
    place = str(tmp_path / "place")
    one("backup", "c1", place).expect()
    said = two("restore", place).expect(NOT_FOUND).err
    assert '"llm"' in said and "gpubuf sessions add" in said and two.json("checkpoints") == []
    two("restore", place, "--files-only").expect()
    assert '"gpubuf checkpoints restore c1"' in two("restore", place).expect(FAILED).err
    two("checkpoints", "restore", "c1", "--into", "default").expect()
    assert two("get", "x", "-").expect().raw == b"bytes"
    two("sessions", "add", "llm").expect()
    two("restore", place, "--name", "again").expect()
    assert two("get", "llm/x", "-").expect().raw == b"bytes"
