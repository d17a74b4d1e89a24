"""Damage of the files of checkpoints: scrubs, verify and fsck find it, and say where it is."""
import os

import pytest

from durable import DATA_AT, NONE, SYNC, becomes_tidy, file_of, path_of, storage
from feed import Feed
from harness import metric, until
from test_checkpoints import at, folder, make, restore, verified
from test_fsck import fsck, offline
from test_scrub import DAMAGE, SIZE, flip, scrub
from values import payload

pytestmark = pytest.mark.once  # the disk's own work

MANIFEST = "manifest.json"


def view(d, name="c1"):
    return d.get(at(name))


def copied(lives, *options):
    """A checkpoint whose files have no other name: "a" and "b" are linked, and their buffers have gone; "m" was
    written."""
    d = lives(*options)
    for i, n in enumerate("ab"):
        d.put(n, payload(SIZE, i), query=SYNC).expect(201)
    d.put("m", payload(SIZE, 2), query=NONE).expect(201)
    make(d, "c1").expect(201)
    for n in "abm":
        d.ask("DELETE", path_of(n)).expect(204)
    becomes_tidy(d.state)
    return d


def test_files_are_read_once(lives):
    """However many names they have."""
    d = lives()
    for i, n in enumerate("ab"):
        d.put(n, payload(SIZE, i), query=SYNC).expect(201)
    d.put("m", payload(SIZE, 2), query=NONE).expect(201)
    for c in ("c1", "c2"):
        make(d, c, names=["a", "b"]).expect(201)
    make(d, "c3").expect(201)
    restore(d, "c3", prefix="old.").expect(200)
    r = scrub(d).expect(200).json()
    assert (r["files"], r["bytes"], r["damaged"]) == (3, 3 * SIZE, 0)  # old.m is the third, and c3's file of m
    d.put("a", payload(SIZE, 7), query=SYNC).expect(200)
    for n in ("b", "m", "old.a", "old.b", "old.m"):
        d.ask("DELETE", path_of(n)).expect(204)
    becomes_tidy(d.state)
    r = scrub(d).expect(200).json()  # a's new file, and of checkpoints a and b once each and m, with their headers
    assert (r["files"], r["bytes"], r["damaged"]) == (4, 4 * SIZE + 3 * DATA_AT, 0)
    assert view(d)["damaged_files"] == 0 and view(d)["damaged"] == []


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_scrub_names_the_damaged_file(lives, kind):
    d = copied(lives)
    path = os.path.join(folder(d, "c1"), "00002.safetensors")
    DAMAGE[kind](path)
    reason = "content_lost" if kind == "missing" else "content_damaged"
    with Feed(d) as feed:
        r = scrub(d).expect(200).json()
        assert (r["files"], r["damaged"], r["healed"], r["skipped"]) == (3, 1, 0, 0)
        event = feed.find("checkpoint.damaged")
        assert (event["session"], event["buffer"], event["detail"]) == ("default", "b", "00002.safetensors of c1")
    seen = view(d)
    assert (seen["damaged_files"], seen["damaged"]) == (1, [{"file": "00002.safetensors", "code": reason}])
    assert d.get("/v1/checkpoints")["items"] == [seen] and metric(d, "gpubufd_scrub_damaged_total") == 1
    assert verified(d, "c1")["damaged"] == [{"buffer": "b", "file": "00002.safetensors", "code": reason}]
    d.kill()
    found = fsck(d.state, status=1)
    assert (found["findings"], found["checkpoints"], found["buffers"]) == (1, 1, 0)
    (item,) = found["items"]
    assert item["file"] == "checkpoints/c1/00002.safetensors" and item["kind"] == ("missing" if kind == "missing"
                                                                                   else "damaged")
    assert fsck(d.state, "--quick", status=0 if "block" in kind else 1)["findings"] == (0 if "block" in kind else 1)


def test_what_is_sound_again_is_no_longer_named(lives):
    d = copied(lives)
    path = os.path.join(folder(d, "c1"), "00001.safetensors")
    flip(path, DATA_AT + 5)
    with Feed(d) as feed:
        assert verified(d, "c1")["match"] is False
        assert feed.find("checkpoint.damaged")["buffer"] == "a"
    assert view(d)["damaged_files"] == 1
    flip(path, DATA_AT + 5)
    assert scrub(d).expect(200).json()["damaged"] == 0
    assert view(d)["damaged_files"] == 0
    flip(path, DATA_AT + 5)
    assert scrub(d).expect(200).json()["damaged"] == 1
    flip(path, DATA_AT + 5)
    assert verified(d, "c1")["match"] is True and view(d)["damaged"] == []


def test_a_file_of_several_names_is_damaged_under_each(lives):
    d = lives()
    d.put("a", payload(SIZE), query=SYNC).expect(201)
    for c in ("c1", "c2"):
        make(d, c).expect(201)
    d = lives()  # memory has the bytes no more
    flip(file_of(d, "a"), DATA_AT)
    with Feed(d) as feed:
        r = scrub(d).expect(200).json()
        assert (r["files"], r["damaged"], r["healed"]) == (3, 3, 0)
        assert feed.find("buffer.damaged")["buffer"] == "a"
        assert {feed.find("checkpoint.damaged")["detail"] for _ in range(2)} == {"00001.safetensors of c1",
                                                                                 "00001.safetensors of c2"}
    d.ask("DELETE", at("c2")).expect(204)
    assert scrub(d).expect(200).json()["damaged"] == 2


@pytest.mark.parametrize("how", ("bit", "cut", "missing"))
def test_a_damaged_manifest_is_told(lives, how):
    d = copied(lives)
    path = os.path.join(folder(d, "c1"), MANIFEST)
    with open(path, "rb") as f:
        text = f.read()
    if how == "missing":
        os.unlink(path)
    else:  # a digit of a checksum: the text is JSON as before
        at_digit = text.index(b'"file_crc32c":"') + 15
        other = b"0" if text[at_digit:at_digit + 1] != b"0" else b"1"
        with open(path, "wb") as f:
            f.write(text[:at_digit] + other + text[at_digit + 1:] if how == "bit" else text[:-20])
    reason = "content_lost" if how == "missing" else "content_damaged"
    with Feed(d) as feed:
        r = scrub(d).expect(200).json()
        assert (r["files"], r["damaged"]) == (1, 1)
        assert feed.find("checkpoint.damaged")["detail"] == "manifest.json of c1"
    assert view(d)["damaged"] == [{"file": MANIFEST, "code": reason}]
    d.ask("POST", at("c1", "/verify"), {}).problem(404 if how == "missing" else 410, "checkpoint_not_found" if how
                                                   == "missing" else reason)
    d.kill()
    found = fsck(d.state, status=0 if how == "missing" else 1)
    (item,) = found["items"]
    if how == "missing":
        assert item["kind"] == "partial" and item["file"] == "checkpoints/c1"
    else:
        assert item["kind"] == "damaged" and item["file"] == "checkpoints/c1/" + MANIFEST
    with open(path, "wb") as f:
        f.write(text)
    assert fsck(d.state)["findings"] == 0 and verified(lives(), "c1")["match"] is True


def test_fsck_reads_the_folders(lives):
    """What was left there is reported, and is no finding; nor is a file that is damaged before its checkpoint is
    brought."""
    d = lives()
    d.put("a", payload(SIZE), query=SYNC).expect(201)
    d.put("m", payload(SIZE, 1), query=NONE).expect(201)
    make(d, "c1").expect(201)
    d.ask("PUT", at("c2", "/files/00001.safetensors"), b"x" * 100).expect(201)
    d.kill()
    os.mkdir(os.path.join(folder(d, ".c3")))
    r = fsck(d.state)
    # a's file has two names
    assert (r["findings"], r["checkpoints"], r["files"], r["read_bytes"]) == (0, 1, 3, 2 * SIZE)
    assert sorted((i["kind"], i["file"]) for i in r["items"]) == [("partial", "checkpoints/c2"),
                                                                  ("unfinished", "checkpoints/.c3")]
    assert "1 checkpoints, 3 files" in offline("fsck", d.state)
    assert os.path.isdir(folder(d, ".c3"))  # fsck changes nothing
    d = lives()
    assert not os.path.exists(folder(d, ".c3")) and d.get(at("c2"))["state"] == "incomplete"


def test_a_header_that_is_not_the_manifests(lives):
    """A whole file of another checkpoint, of the same length."""
    d = copied(lives)
    d.kill()
    one, two = (os.path.join(folder(d, "c1"), f"0000{i}.safetensors") for i in (1, 2))
    os.rename(one, one + ".x")
    os.rename(two, one)
    os.rename(one + ".x", two)
    r = fsck(d.state, "--quick", status=1)
    assert r["findings"] == 2 and all(i["kind"] == "damaged" and "header" in i["detail"] for i in r["items"])


def test_scrubs_come_by_themselves_for_checkpoints_alone(lives):
    d = copied(lives)
    d = lives("--scrub-interval", "1", "--scrub-rate", "1G")
    until("a pass has ended", lambda: storage(d)["scrub"]["last_ended"])
    assert storage(d)["scrub"]["files"] == 3


def test_a_checkpoint_that_goes_while_it_is_read(lives):
    d = copied(lives)
    op = scrub(d, {"rate": 65536}, {"Prefer": "respond-async"}).expect(202).json()
    until("it reads", lambda: storage(d)["scrub"]["bytes"] > 0)
    d.ask("DELETE", at("c1")).expect(204)
    r = scrub(d).expect(200).json()  # and makes it fast
    assert r["damaged"] == 0
    d.ask("GET", f"/v1/operations/{op['id']}", headers={"Prefer": "wait=10"}).expect(200)


@pytest.mark.parametrize("rule,found", (("read@4=EIO", (1, 0)), ("read@4=EACCES", (0, 1))))
def test_a_disk_that_gives_nothing_back(lives, rule, found):
    """An error of the medium is damage; what the process lacks is not. The start reads marker and manifest, and the
    scrub the manifest."""
    copied(lives)
    d = lives("--disk-fault", rule)
    r = scrub(d).expect(200).json()
    assert (r["damaged"], r["skipped"]) == found


def test_a_checkpoint_whose_manifest_is_damaged_is_kept(lives):
    """One that clients left is removed after --orphan-ttl. One whose manifest cannot be read at the start may be
    mended."""
    d = copied(lives)
    d.ask("PUT", at("c2", "/files/00001.safetensors"), b"x" * 100).expect(201)
    d.kill()
    path = os.path.join(folder(d, "c1"), MANIFEST)
    flip(path, 200)
    for c in ("c1", "c2"):
        os.utime(folder(d, c), (1, 1))
    d = lives("--orphan-ttl", "1")
    seen = view(d)
    assert seen["state"] == "incomplete" and seen["damaged"] == [{"file": MANIFEST, "code": "content_damaged"}]
    until("the other one is swept", lambda: d.ask("GET", at("c2")).status == 404)
    assert os.path.exists(path) and view(d) == seen
    d.kill()
    flip(path, 200)
    d = lives("--orphan-ttl", "1")
    assert view(d)["state"] == "complete" and verified(d, "c1")["match"] is True


@pytest.mark.parametrize("rule", ("read@2=EACCES", "read@2=EIO"))
def test_a_manifest_that_cannot_be_read_at_the_start(lives, rule):
    """What may pass is tried again; what the medium does not give back is damage."""
    copied(lives)
    d = lives("--disk-fault", rule)
    if "EIO" in rule:
        assert view(d)["state"] == "incomplete" and view(d)["damaged_files"] == 1
    else:
        until("it is there", lambda: d.ask("GET", at("c1")).status == 200)
        assert view(d)["state"] == "complete"
