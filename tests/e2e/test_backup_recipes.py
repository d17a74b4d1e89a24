"""The recipes of doc/durable.md for rclone and restic, as they stand there: to a folder and to moto's S3, with damage,
and with a process that is killed."""
import glob
import os
import re
import signal
import subprocess

import pytest

from documents import blocks_of
from gpubuf_cli import FAILED, NOT_FOUND, Cli, environment, program
from harness import PATIENCE_S, library, until
from proxies import program as installed
from values import payload

pytestmark = pytest.mark.once  # the host's own work

PAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "doc", "durable.md")
MIB = 1 << 20
BUFFERS = {"big": payload(24 * MIB + 3, 1), "file": payload(70000, 2), "mortal": payload(5000, 3)}
TOOLS, STORES = ("rclone", "restic"), ("folder", "s3")

if not os.path.exists(PAGE):
    pytest.skip("a bundle has no documents", allow_module_level=True)


def recipe(tool):
    """{"folder": settings, "s3": settings, "out": script, "back": script}, each as the page has it."""
    with open(PAGE, encoding="utf-8") as f:
        text = re.search(rf"^### {tool}\n(.*?)^##", f.read(), re.S | re.M).group(1)
    blocks = [block.text for block in blocks_of(text, tool)]
    assert len(blocks) == 4 and len(re.findall("test_backup_recipes.py runs it", text)) == 4
    return dict(zip(("folder", "s3", "out", "back"), blocks))


@pytest.fixture(scope="module")
def s3():
    library("moto")
    server = library("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


class Objects:
    """What a store has, of a folder or of S3, as a test sees and harms it."""

    def __init__(self, kind, folder, s3):
        self.folder = os.path.join(folder, "nas")
        self.client = kind == "s3" and library("boto3").client("s3", endpoint_url=s3, region_name="us-east-1",
                                                               aws_access_key_id="id", aws_secret_access_key="secret",
                                                               verify=False)
        if self.client and "gpubuf" in [bucket["Name"] for bucket in self.client.list_buckets()["Buckets"]]:
            for name in self.names():
                self.remove(name)

    def names(self):
        if not self.client:
            return [os.path.relpath(p, self.folder) for p in glob.glob(f"{self.folder}/**", recursive=True)
                    if os.path.isfile(p)]
        if "gpubuf" not in [bucket["Name"] for bucket in self.client.list_buckets()["Buckets"]]:
            return []
        return [item["Key"] for item in self.client.list_objects_v2(Bucket="gpubuf").get("Contents", ())]

    def read(self, name):
        if self.client:
            return self.client.get_object(Bucket="gpubuf", Key=name)["Body"].read()
        with open(os.path.join(self.folder, name), "rb") as f:
            return f.read()

    def write(self, name, data):
        if self.client:
            self.client.put_object(Bucket="gpubuf", Key=name, Body=data)
            return
        path = os.path.join(self.folder, name)
        os.chmod(path, 0o600)  # restic's are for reading alone
        with open(path, "wb") as f:
            f.write(data)

    def remove(self, name):
        if self.client:
            self.client.delete_object(Bucket="gpubuf", Key=name)
        else:
            os.unlink(os.path.join(self.folder, name))


class Play:
    """A folder, a daemon with the checkpoint c1, and a shell that has what the page asks for."""

    def __init__(self, tool, kind, daemon, folder, s3):
        installed(tool)
        self.tool, self.kind, self.folder, self.recipe = tool, kind, str(folder), recipe(tool)
        self.objects = Objects(kind, self.folder, s3)
        self.cli = Cli(daemon.url(""))
        for name, data in BUFFERS.items():
            self.cli("put", "-", name, "--raw", *(("--durability", "sync") if name != "mortal" else ()),
                     input=data).expect()
        self.cli("checkpoints", "add", "c1").expect()
        password = os.path.join(self.folder, "password")
        with open(password, "w", encoding="utf-8") as f:
            f.write("secret\n")
        clean = {k: v for k, v in environment().items() if not k.startswith(("AWS_", "RCLONE_", "RESTIC_"))}
        self.env = {**clean, "HOME": self.folder, "GPUBUF_URL": daemon.url(""), "S3": s3, "AWS_ACCESS_KEY_ID": "id",
                    "AWS_SECRET_ACCESS_KEY": "secret", "RESTIC_PASSWORD_FILE": password,
                    "PATH": os.path.dirname(program()) + os.pathsep + os.environ["PATH"]}

    def start(self, part, **env):
        script = f"set -e\n{self.recipe[self.kind]}\n{self.recipe[part]}"
        return subprocess.Popen(["sh", "-c", script], cwd=self.folder, env={**self.env, **env},
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                start_new_session=True)

    def __call__(self, part):
        """(status, what it printed)"""
        p = self.start(part)
        out, _ = p.communicate(timeout=PATIENCE_S)
        return p.returncode, out

    def do(self, part):
        status, out = self(part)
        assert status == 0, out

    def came_back(self):
        return all(self.cli("get", "back." + name, "-").expect().raw == data for name, data in BUFFERS.items())

    def refused(self, words):
        """The way back fails with these words, and the daemon has nothing of it that can be restored."""
        status, out = self("back")
        assert status != 0 and re.search(words, out), out
        states = {c["name"]: c["state"] for c in self.cli.json("checkpoints")}
        assert states.get("c1-back") in (None, "incomplete"), states
        if "c1-back" in states:
            said = self.cli("checkpoints", "restore", "c1-back")
            assert said.status in (FAILED, NOT_FOUND), said.err  # one that has no file is removed a moment later
        assert not [b["name"] for b in self.cli.json("ls") if b["name"].startswith("back.")]


@pytest.fixture
def play(start, tmp_path, s3, tool, kind):
    return Play(tool, kind, start("--disk-reserve", "0", state=str(tmp_path / "state")), tmp_path, s3)


both = pytest.mark.parametrize("tool", TOOLS)
to_each = pytest.mark.parametrize("kind", STORES)


@both
@to_each
def test_out_and_back(play):
    play.do("out")
    play.do("out")  # what is there is no error
    play.do("back")
    assert play.came_back()


@to_each
@pytest.mark.parametrize("tool", ["rclone"])
@pytest.mark.parametrize("harm", ["a changed byte", "a missing file", "no manifest"])
def test_damage_in_the_store_of_rclone(play, harm):
    """rclone takes a store at its word; put does not."""
    play.do("out")
    name = next(n for n in play.objects.names() if n.endswith("manifest.json" if harm == "no manifest"
                                                              else "00001.safetensors"))
    if harm == "a changed byte":
        data = bytearray(play.objects.read(name))
        data[MIB] ^= 1
        play.objects.write(name, bytes(data))
    else:
        play.objects.remove(name)
    play.refused({"a changed byte": "00001.safetensors, which has buffer big, is damaged",
                  "no manifest": "has no manifest.json", "a missing file": "lacks the file 00001.safetensors, which "
                  "has buffer big"}[harm])


@to_each
@pytest.mark.parametrize("tool", ["restic"])
@pytest.mark.parametrize("harm", ["a changed byte", "a missing file"])
def test_damage_in_the_store_of_restic(play, harm):
    """restic finds it itself. What it could restore is not taken for the whole."""
    play.do("out")
    packs = {name: len(play.objects.read(name)) for name in play.objects.names()
             if name.startswith(("data/", "restic/data/"))}
    name = max(packs, key=packs.get)
    if harm == "a changed byte":
        data = bytearray(play.objects.read(name))
        data[len(data) // 3] ^= 1
        play.objects.write(name, bytes(data))
    else:
        play.objects.remove(name)
    play.refused("(?i)error|fatal")
    if os.path.isdir(os.path.join(play.folder, "back", "c1")):
        said = play.cli("checkpoints", "put", os.path.join(play.folder, "back", "c1"), "--name",
                        "c1-back").expect(FAILED)
        assert ("is damaged" in said.err or "lacks the file" in said.err or "has no manifest.json" in said.err
                or "bytes, and the manifest says" in said.err)


def kill(p):
    os.killpg(p.pid, signal.SIGKILL)
    p.communicate(timeout=PATIENCE_S)


@both
@to_each
def test_a_way_out_that_is_killed(play):
    """What it left is refused, and the same commands come to an end."""
    slow = {"RCLONE_BWLIMIT": "4M"} if play.tool == "rclone" else {}
    p = play.start("out", **slow)
    until("something is there", lambda: play.objects.names() or p.poll() is not None)
    kill(p)
    if play.tool == "rclone":
        play.refused("checkpoints put|lacks the file|has no manifest.json|bytes, and the manifest says|not found")
    play.do("out")
    play.do("back")
    assert play.came_back()


@both
@to_each
def test_a_way_back_that_is_killed(play):
    play.do("out")
    slow = {"RCLONE_BWLIMIT": "4M"} if play.tool == "rclone" else {}
    back = os.path.join(play.folder, "c1-back" if play.tool == "rclone" else "back/c1")
    p = play.start("back", **slow)
    until("something is there", lambda: os.path.isdir(back) or p.poll() is not None)
    kill(p)
    if play.tool == "rclone":
        play.cli("checkpoints", "put", back, "--name", "half").expect(FAILED)
        assert [c["name"] for c in play.cli.json("checkpoints") if c["state"] == "complete"] == ["c1"]
    status, out = play("back")
    assert status == 0 or "back." in out, out  # a restic that was too fast has restored them
    assert play.came_back()
