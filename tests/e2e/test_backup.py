"""gpubuf backup and restore: to a bucket of S3, with all that may go wrong there. Folders and servers are in test_backup_places.py."""
import signal
import threading

import pytest

from checkpoint_server import Daemon, checkpoint
from gpubuf_cli import DONE, FAILED, NOT_FOUND, USAGE, Cli, interrupt
from harness import PATIENCE_S, until
from s3_server import SECRET, Refusal, Store
from values import payload

MIB = 1 << 20
BIG = payload(17 * MIB + 5, 1)  # four parts of 5 MiB
SMALL = {f"w.{i}": (10 + i, 1, payload(1000 + i, i)) for i in range(5)}
PARTS = ("--part-bytes", "5M")


@pytest.fixture
def store():
    made = Store()
    yield made
    made.end()


@pytest.fixture
def daemon():
    made = Daemon()
    made.checkpoints["c1"] = checkpoint("c1", {"big": (1, 1, BIG), **SMALL})
    yield made
    made.end()


@pytest.fixture
def cli(daemon, store):
    return Cli(daemon.url, **store.environment())


def to(cli, place="s3://tests/p", name="c1", *more):
    return cli("--json", "backup", name, place, *PARTS, *more)


def test_round_trip(cli, daemon, store):
    said = to(cli).expect().json()
    size = sum(len(f) for n, f in daemon.checkpoints["c1"].items() if n.endswith(".safetensors"))
    assert said == {"checkpoint": "c1", "destination": "s3://tests/p", "files": 6, "bytes": size, "sent_files": 6, "sent_bytes": size,
                    "kept_files": 0, "kept_bytes": 0, "removed_files": 0}
    assert store.count("PUT", "1.1.00c0ffee", "partNumber") == 4 and store.count("POST", "1.1.", "uploadId") == 1
    assert not store.uploads
    assert [r[1] for r in store.requests if r[0] == "PUT"][-2:] == ["p/model.safetensors.index.json", "p/manifest.json"]
    before = daemon.checkpoints.pop("c1")
    said = cli("restore", "s3://tests/p", "--into", "s2", "--prefix", "v2.", "--replace").expect()
    assert said.out.startswith("c1  ") and said.out.endswith("  restored into s2\n")
    back = daemon.checkpoints["c1"]
    assert back.keys() == before.keys() and all(back[n] == before[n] for n in before if n.endswith(".safetensors"))
    assert daemon.restored == [("c1", {"into": "s2", "prefix": "v2.", "replace": True})]
    assert daemon.requests[-2] == ("PUT", "c1", "files", "manifest.json")
    cli("restore", "s3://tests/p", "--name", "other", "--files-only").expect()
    assert len(daemon.restored) == 1 and daemon.checkpoints["other"]["00001.safetensors"] == before["00001.safetensors"]
    assert "--name" in cli("restore", "s3://tests/p").expect(FAILED).err


def test_a_second_backup_sends_what_changed(cli, daemon, store):
    to(cli).expect()
    store.forget()
    changed = {**SMALL, "w.2": (12, 2, payload(1002, 99))}
    changed.pop("w.0")
    daemon.checkpoints["c2"] = checkpoint("c2", {"a.first": (99, 1, b"new"), **changed, "big": (1, 1, BIG)})
    said = to(cli, name="c2").expect().json()
    assert (said["sent_files"], said["kept_files"], said["removed_files"]) == (2, 4, 2)
    sent = sorted(key.split("/")[-1] for method, key, _ in store.requests if method == "PUT" and "objects/" in key)
    assert [key.split(".")[:2] for key in sent] == [["12", "2"], ["99", "1"]]
    assert len([k for k in store.objects if "objects/" in k]) == 6
    cli("restore", "s3://tests/p", "--name", "back").expect()
    assert all(daemon.checkpoints["back"][f] == data for f, data in daemon.checkpoints["c2"].items() if f.endswith(".safetensors"))
    assert to(cli, name="c2").expect().json()["sent_files"] == 0


def test_what_lacks_at_the_place_is_sent_again(cli, store):
    to(cli).expect()
    key = next(k for k in store.objects if "objects/10." in k)
    with store.lock:
        store.objects[key] = store.objects[key][:-1]
    said = to(cli).expect().json()
    assert (said["sent_files"], said["kept_files"]) == (1, 5)


@pytest.mark.parametrize("place", ["s3://tests", "s3://tests/", "s3://tests/with space/ünï+cøde/=&%25/", "s3://tests//a//b"])
def test_prefixes(cli, daemon, store, place):
    to(cli, place).expect()
    prefix = place.split("tests", 1)[1].strip("/")
    assert (prefix + "/" if prefix else "") + "manifest.json" in store.objects
    daemon.checkpoints.pop("c1")
    cli("restore", place).expect()
    assert daemon.checkpoints["c1"]["00001.safetensors"].endswith(BIG)


# --- what goes wrong ----------------------------------------------------------------------------------------------------
class Once:
    """Does something at one request of the sort, and lets all later ones pass."""

    def __init__(self, what, *parameters, method="PUT", times=1):
        self.what, self.parameters, self.method, self.left, self.lock = what, parameters, method, times, threading.Lock()

    def __call__(self, handler):
        method, _, asked = handler.said
        with self.lock:
            if method != self.method or not all(p in asked for p in self.parameters) or self.left == 0:
                return
            self.left -= 1
        self.what(handler)


def hang_up(handler):
    handler.close_connection = True
    handler.connection.shutdown(2)
    raise ConnectionError


def test_a_connection_that_ends_in_a_part(cli, store):
    store.during = Once(hang_up, "partNumber", times=2)
    to(cli).expect()
    assert store.count("PUT", None, "partNumber") == 6 and not store.uploads


def test_a_store_that_is_busy(cli, store):
    def busy(handler):
        raise Refusal(503, "SlowDown", "reduce your rate", Retry_After="1")

    store.before = Once(busy, "partNumber", times=2)
    said = cli("-v", "backup", "c1", "s3://tests/p", *PARTS).expect()
    assert said.err.count("-> 503") == 2, said.err
    assert SECRET not in said.err


def test_a_store_that_stays_busy(cli, store):
    """Three tries; what was sent stays for the next run."""
    def busy(handler):
        if handler.said[2].get("partNumber") == "4":
            raise Refusal(503, "ServiceUnavailable")

    store.before = busy
    err = to(cli, "s3://tests/p", "c1", "-c", "1").expect(FAILED).err
    assert "503 ServiceUnavailable" in err and "s3://tests/p" in err
    assert store.count("PUT", None, "partNumber") == 3 + 3 and len(store.uploads) == 1
    assert "p/manifest.json" not in store.objects
    store.before = lambda handler: None
    store.forget()
    to(cli).expect()
    assert store.count("PUT", None, "partNumber") == 1 and store.count("POST", None, "uploads") == 0
    assert not store.uploads and "p/manifest.json" in store.objects


def test_a_killed_run_is_gone_on_with(cli, store):
    arrived = threading.Event()
    hold = threading.Event()

    def wait(handler):
        if handler.said[2].get("partNumber") == "4":
            arrived.set()
            hold.wait(PATIENCE_S)

    store.before = wait
    process = cli.start("backup", "c1", "s3://tests/p", *PARTS, "-c", "1")
    assert arrived.wait(PATIENCE_S)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    hold.set()
    store.before = lambda handler: None
    assert len(store.uploads) == 1 and "p/manifest.json" not in store.objects
    store.forget()
    said = to(cli).expect().json()
    assert said["sent_files"] == 6
    assert store.count("PUT", None, "partNumber") <= 2 and store.count("POST", None, "uploads") == 0
    assert store.count("GET", None, "uploadId") == 2, "parts are listed page by page"
    assert not store.uploads


@pytest.mark.parametrize("number,left", [(signal.SIGINT, 0), (signal.SIGTERM, 1)])
def test_an_interrupt_ends_the_upload_and_a_term_leaves_it(cli, store, number, left):
    arrived = threading.Event()
    hold = threading.Event()

    def wait(handler):
        if handler.said[2].get("partNumber") == "3":
            arrived.set()
            hold.wait(PATIENCE_S)

    store.before = wait
    process = cli.start("backup", "c1", "s3://tests/p", *PARTS, "-c", "1")
    assert arrived.wait(PATIENCE_S)
    said = interrupt(process, number).expect(128 + number)
    hold.set()
    assert "interrupted" in said.err
    assert len(store.uploads) == left and "p/manifest.json" not in store.objects


def test_a_refusal_ends_the_upload(cli, store):
    def refuse(handler):
        if handler.said[2].get("partNumber") == "2":
            raise Refusal(403, "AccessDenied", "not you")

    store.before = refuse
    err = to(cli).expect(FAILED).err
    assert "403 AccessDenied: not you" in err and not store.uploads
    assert "p/manifest.json" not in store.objects


def test_an_answer_to_the_last_request_is_lost(cli, store):
    """The store has the object; the second request to complete it finds no upload."""
    def complete_and_leave(handler):
        store.during = lambda handler: None
        handler.wfile, wfile = open("/dev/null", "wb"), handler.wfile
        handler.on_post(handler.said[1], handler.said[2])
        handler.wfile = wfile
        hang_up(handler)

    store.during = Once(complete_and_leave, "uploadId", method="POST")
    to(cli).expect()
    assert store.count("POST", None, "uploadId") == 2


def test_a_store_without_checksums_of_whole_objects(cli, daemon, store):
    store.whole_sums = False
    to(cli).expect()
    assert store.count("POST", None, "uploads") == 2 and not store.uploads
    daemon.checkpoints.pop("c1")
    cli("restore", "s3://tests/p").expect()


@pytest.mark.parametrize("change,words", [
    ({"AWS_SECRET_ACCESS_KEY": "wrong-one"}, ["403 SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"]),
    ({"AWS_ACCESS_KEY_ID": "AKNOBODY"}, ["403 InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"]),
    ({"AWS_REGION": "us-east-1"}, ["eu-test-1", "AWS_REGION"]),
    ({"AWS_REGION": "", "AWS_DEFAULT_REGION": "us-east-1"}, ["eu-test-1", "AWS_REGION"]),
])
def test_wrong_credentials(daemon, store, change, words):
    said = Cli(daemon.url, **store.environment(**change))("backup", "c1", "s3://tests/p").expect(FAILED)
    assert all(word in said.err for word in words), said.err
    assert "wrong-one" not in said.err and SECRET not in said.err and not store.objects


def test_a_session_token(daemon, store):
    store.token = "temporary/token+="
    Cli(daemon.url, **store.environment(AWS_SESSION_TOKEN=store.token))("backup", "c1", "s3://tests/p", *PARTS).expect()
    err = Cli(daemon.url, **store.environment(AWS_SESSION_TOKEN="old"))("backup", "c1", "s3://tests/p").expect(FAILED).err
    assert "InvalidToken" in err and '"old"' not in err


def test_a_bucket_that_is_not_there(cli):
    err = cli("backup", "c1", "s3://nothing/p").expect(NOT_FOUND).err
    assert "NoSuchBucket" in err, err


def test_a_store_that_is_not_there(daemon, store):
    store.end()
    err = Cli(daemon.url, **store.environment())("backup", "c1", "s3://tests/p").expect(FAILED).err
    assert "s3://tests/p" in err and "gpubufd" not in err, err


# --- bytes --------------------------------------------------------------------------------------------------------------
def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]


@pytest.mark.parametrize("file,buffer", [("00001.safetensors", "big"), ("00003.safetensors", "w.1")])
def test_bytes_that_are_wrong_on_their_way_here(cli, daemon, store, file, buffer):
    daemon.damage = lambda name, data: flipped(data, 4200) if name == file else data
    err = to(cli).expect(FAILED).err
    assert f"buffer {buffer} (file {file})" in err and "CRC32C" in err, err
    assert "p/manifest.json" not in store.objects


@pytest.mark.parametrize("change,words", [
    (lambda data: data[:-1], ["bytes, and the backup says"]),
    (lambda data: data + b"x", ["bytes, and the backup says"]),
    (lambda data: flipped(data, len(data) - 1), ["is damaged: its CRC32C is"]),
    (lambda data: flipped(data, 0), ["is damaged: its CRC32C is"]),
])
def test_an_object_that_is_wrong_at_the_place(cli, daemon, store, change, words):
    to(cli).expect()
    before = daemon.checkpoints.pop("c1")
    for number, buffer in ((1, "big"), (13, "w.3")):
        key = next(k for k in store.objects if f"objects/{number}." in k)
        good = store.objects[key]
        store.objects[key] = change(good)
        err = cli("restore", "s3://tests/p").expect(FAILED).err
        assert key.split("/", 1)[1] in err and f"which has buffer {buffer}" in err and all(w in err for w in words), err
        assert "manifest.json" not in daemon.checkpoints.get("c1", {}) and not daemon.restored
        store.objects[key] = good
    cli("restore", "s3://tests/p").expect()
    assert daemon.checkpoints["c1"]["00001.safetensors"] == before["00001.safetensors"]


def test_an_object_that_lacks(cli, daemon, store):
    to(cli).expect()
    daemon.checkpoints.pop("c1")
    key = next(k for k in store.objects if "objects/12." in k)
    del store.objects[key]
    err = cli("restore", "s3://tests/p").expect(NOT_FOUND).err
    assert f"lacks the object {key[2:]}" in err and "w.2" in err, err


def test_a_download_goes_on_where_it_broke(cli, daemon, store):
    to(cli).expect()
    before = daemon.checkpoints.pop("c1")
    breaks = [3 * MIB, 5 * MIB]
    store.cut_get = lambda handler: breaks.pop(0) if "objects/1." in handler.said[1] and handler.command == "GET" and breaks else None
    cli("restore", "s3://tests/p").expect()
    assert not breaks and daemon.checkpoints["c1"]["00001.safetensors"] == before["00001.safetensors"]
    assert store.count("GET", "objects/1.") == 3


@pytest.mark.parametrize("text,words", [(b'{"gpubuf_backup": 1, ', "damaged"), (b"{}", "not that of a backup"),
                                        (b'{"gpubuf_backup": 1}', "not what a gpubufd writes")])
def test_a_manifest_that_is_none(cli, store, text, words):
    store.objects["p/manifest.json"] = text
    assert words in cli("restore", "s3://tests/p").expect(FAILED).err
    assert words in to(cli).expect(FAILED).err and store.objects["p/manifest.json"] == text


def test_no_backup_there(cli):
    assert "holds no backup" in cli("restore", "s3://tests/p").expect(NOT_FOUND).err


# --- arguments ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("arguments,words", [
    (("backup", "c1", "s3://"), "no bucket"),
    (("backup", "c1", "s3://Big_Bucket/p"), "no bucket"),
    (("backup", "c1", "ftp://x/y"), "no place that is known"),
    (("backup", "c1", "https://me:pw@host/x"), "~/.netrc"),
    (("backup", "c1", "https://host/x?sig=1"), "query"),
    (("backup", "c1", "s3://tests/p", "--endpoint", "host:9000"), "endpoint"),
    (("backup", "c1", "s3://tests/p", "--endpoint", "http://me:pw@host"), "AWS_ACCESS_KEY_ID"),
    (("backup", "c1", "s3://tests/p", "--part-bytes", "4M"), "between 5M and 64M"),
    (("backup", "c1", "s3://tests/p", "--part-bytes", "65M"), "between 5M and 64M"),
    (("backup", "c1", "s3://tests/p", "-c", "65"), "between 1 and 64"),
    (("backup", "c1", "s3://tests/p", "-c", "0"), "between 1 and 64"),
    (("restore", "s3://tests/p", "--files-only", "--into", "x"), "--files-only"),
    (("backup", "c1"), "backup"),
])
def test_arguments_that_are_wrong(cli, arguments, words):
    err = cli(*arguments).expect(USAGE).err
    assert words in err and "pw" not in err.split(), err


def test_no_credentials(daemon):
    clean = Cli(daemon.url, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
    assert "AWS_ACCESS_KEY_ID in the environment" in clean("backup", "c1", "s3://tests/p").expect(USAGE).err


def test_checkpoints_that_cannot_be_sent(cli, daemon):
    assert '"nope"' in cli("backup", "nope", "s3://tests/p").expect(NOT_FOUND).err
    del daemon.checkpoints["c1"]["manifest.json"]
    assert "not complete" in cli("backup", "c1", "s3://tests/p").expect(FAILED).err


def test_another_sessions_backup_stays(cli, daemon, store):
    to(cli).expect()
    daemon.checkpoints["other"] = checkpoint("other", {"x": (1, 1, b"x")}, session="s2")
    before = dict(store.objects)
    err = to(cli, name="other").expect(FAILED).err
    assert 'the backup of session "default"' in err and store.objects == before


def test_an_empty_checkpoint(cli, daemon):
    daemon.checkpoints["none"] = checkpoint("none", {})
    assert to(cli, name="none").expect(DONE).json()["files"] == 0
    cli("restore", "s3://tests/p", "--name", "back").expect()
    until("it is there", lambda: "manifest.json" in daemon.checkpoints["back"])
