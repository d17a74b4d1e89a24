"""gpubufd fsck and recover: files and records without a daemon."""
import glob
import json
import os
import shutil
import subprocess

import pytest

from durable import DATA_AT, SYNC, aside, becomes_tidy, file_of, files, path_of, select
from harness import PATIENCE_S, binary
from test_scrub import DAMAGE, SIZE, flip
from values import payload

pytestmark = pytest.mark.once  # the disk's own work


def offline(word, state, *options, status=0):
    done = subprocess.run([binary(), word, "--state-dir", state, *options], capture_output=True, text=True,
                          timeout=PATIENCE_S, check=False)
    assert done.returncode == status, done
    return done.stdout if status < 2 else done.stderr


def fsck(state, *options, status=0):
    return json.loads(offline("fsck", state, "--json", *options, status=status))


def filled(lives, *options):
    """A daemon with files, bytes in the database, a session more and a replaced buffer, which has been killed."""
    d = lives(*options)
    for i, n in enumerate("xyz"):
        d.put(n, payload(SIZE, i), query=SYNC).expect(201)
    d.put("x", payload(SIZE, 7), query=SYNC).expect(200)
    d.put("small", payload(1000), query=SYNC).expect(201)
    d.ask("POST", "/v1/sessions", {"name": "models", "durability": "sync"}).expect(201)
    d.put("w", payload(4 * 100000, 9), session="models", query="?dtype=float32&shape=100,1000").expect(201)
    d.ask("PATCH", path_of("w", "models"), {"labels": {"layer": "1"}}).expect(200)
    d.put("w", payload(4 * 100000, 9), session="models", query="?dtype=float32&shape=100,1000").expect(200)
    becomes_tidy(d.state)
    return d


def test_clean(lives):
    d = filled(lives)
    assert "another gpubufd" in offline("fsck", d.state, status=70)  # while it runs
    d.kill()
    before = {p: os.stat(p).st_mtime_ns for p in files(d.state).values()}
    r = fsck(d.state)
    assert (r["findings"], r["buffers"], r["files"], r["read_bytes"],
            r["unnamed"]) == (0, 5, 4, 3 * SIZE + 400000 + 1000, 0)
    assert fsck(d.state, "--quick")["read_bytes"] == 0
    assert offline("fsck", d.state).startswith("0 findings: ")
    assert {p: os.stat(p).st_mtime_ns for p in files(d.state).values()} == before
    assert lives().data("x").body == payload(SIZE, 7)


@pytest.mark.parametrize("kind", DAMAGE)
def test_findings(lives, kind):
    d = filled(lives)
    path = file_of(d, "y")
    d.kill()
    DAMAGE[kind](path)
    r = fsck(d.state, status=1)
    (item,) = r["items"]
    assert (item["session"], item["buffer"], item["generation"]) == ("default", "y", 1)
    assert item["kind"] == ("missing" if kind == "missing" else "damaged") and path.endswith(item["file"])
    assert fsck(d.state, "--quick", status=0 if "block" in kind else 1)["findings"] == (0 if "block" in kind else 1)
    assert "default/y generation 1: " in offline("fsck", d.state, status=1)


def test_findings_in_the_database(lives):
    d = filled(lives)
    d.kill()
    select(d.state, "update stored set data = zeroblob(1000) where data is not null", write=True)
    (item,) = fsck(d.state, status=1)["items"]
    assert item["buffer"] == "small" and item["kind"] == "damaged" and "file" not in item


def test_the_folder_of_another_database(lives, tmp_path):
    d = filled(lives)
    d.kill()
    with open(os.path.join(d.state, "data", "GPUBUFD-DATA"), "w", encoding="ascii") as f:
        f.write("gpubufd data 1\n" + "0" * 32 + "\n")
    (item,) = fsck(d.state, status=1)["items"]
    assert item["kind"] == "marker"
    assert "no state directory" in offline("fsck", str(tmp_path / "none"), status=70)
    assert "--data-dir none" in offline("fsck", d.state, "--data-dir", "none", status=64)
    assert "no folder" in offline("fsck", d.state, "--data-dir", str(tmp_path / "none"), status=70)
    assert "--quick" in offline("fsck", d.state, "--help")


def without_database(d):
    d.kill()
    for p in glob.glob(os.path.join(d.state, "gpubufd.db*")):
        os.unlink(p)


def test_a_lost_database_is_made_again(lives):
    d = filled(lives)
    before = {(s, n): d.meta(n, session=s) for s, n in (("default", "x"), ("default", "y"), ("default", "z"),
                                                        ("models", "w"))}
    without_database(d)
    assert "gpubufd recover" in offline("fsck", d.state, status=70)
    said = offline("recover", d.state)
    assert "recoverable default/x generation 2, " in said and "4 recoverable, 0 older" in said and "--take-over" in said
    assert not os.path.exists(os.path.join(d.state, "gpubufd.db"))
    assert "--take-over" in offline("recover", d.state, "--apply", status=78)
    assert not os.path.exists(os.path.join(d.state, "gpubufd.db"))
    said = offline("recover", d.state, "--apply", "--take-over")
    assert "4 recovered, 0 older, 0 damaged, 0 refused" in said
    assert fsck(d.state)["buffers"] == 4
    assert "0 files without a record" in offline("recover", d.state)
    d = lives()
    for (s, n), was in before.items():
        b = d.meta(n, session=s)
        for key in ("bytes", "dtype", "shape", "kind", "crc32c", "generation", "labels", "sealed"):
            assert b[key] == was[key], (n, key)
        assert b["durability"] == "sync" and b["state"] == "stored"
    assert d.data("x").body == payload(SIZE, 7) and d.data("y").body == payload(SIZE, 1)
    assert d.data("w", session="models").body == payload(4 * 100000, 9)
    made = d.put("new", payload(SIZE, 3), query=SYNC).expect(201)  # its number is not one of those
    assert made.json()["generation"] == 1 and d.data("x").body == payload(SIZE, 7)
    becomes_tidy(d.state)


def test_orphans_are_taken_back(lives):
    """An older database was put back, and its daemon ran."""
    d = lives()
    d.put("old", payload(SIZE, 1), query=SYNC).expect(201)
    d.stop()
    shutil.copy(os.path.join(d.state, "gpubufd.db"), os.path.join(d.state, "copy"))
    d = lives()
    d.put("new", payload(SIZE, 2), query=SYNC).expect(201)
    d.stop()
    for p in glob.glob(os.path.join(d.state, "gpubufd.db*")):
        os.unlink(p)
    os.rename(os.path.join(d.state, "copy"), os.path.join(d.state, "gpubufd.db"))
    d = lives()
    assert len(aside(d.state)) == 1 and d.ask("GET", path_of("new")).status == 404
    d.stop()
    assert "1 recovered" in offline("recover", d.state, "--apply") and aside(d.state) == []
    d = lives()
    assert d.data("new").body == payload(SIZE, 2) and d.data("old").body == payload(SIZE, 1)


def test_what_recover_does_not_take(lives):
    """The newest whole file of each buffer; no name that is there; nothing that is damaged."""
    d = filled(lives)
    paths = {n: file_of(d, n) for n in "xyz"}
    kept = os.path.join(d.state, "kept")
    os.link(paths["x"], kept)
    d.put("x", payload(SIZE, 8), query=SYNC).expect(200)  # generation 3
    becomes_tidy(d.state)
    newest = file_of(d, "x")
    d.kill()
    os.rename(kept, paths["x"])
    assert fsck(d.state)["unnamed"] == 1
    said = offline("recover", d.state, status=1)
    assert "refused" in said and "the database has a buffer of that name" in said
    without_database(d)
    flip(newest, DATA_AT)
    flip(paths["y"], 40)
    said = offline("recover", d.state, "--apply", "--take-over", status=1)
    assert "3 recovered, 0 older, 2 damaged, 0 refused" in said
    d = lives()
    assert d.meta("x")["generation"] == 2 and d.data("x").body == payload(SIZE, 7)
    assert d.ask("GET", path_of("y")).status == 404
    assert len(aside(d.state)) == 2  # nothing is deleted


def test_older_files(lives):
    d = lives()
    d.put("x", payload(SIZE, 1), query=SYNC).expect(201)
    path = file_of(d, "x")
    os.link(path, os.path.join(d.state, "kept"))
    d.put("x", payload(SIZE, 2), query=SYNC).expect(200)
    becomes_tidy(d.state)
    without_database(d)
    os.rename(os.path.join(d.state, "kept"), path)
    assert "1 recovered, 1 older, 0 damaged, 0 refused" in offline("recover", d.state, "--apply", "--take-over")
    assert lives().data("x").body == payload(SIZE, 2)
    assert "--take-over goes with --apply" in offline("recover", d.state, "--take-over", status=64)


# --- checkpoints ------------------------------------------------------------------------------------------------------


def restored(lives):
    """A checkpoint was restored: under another name, in place, and into another session; then one buffer changed. The
    daemon has been killed."""
    d = lives()
    for i, n in enumerate("xyz"):
        d.put(n, payload(SIZE, i), query=SYNC).expect(201)
    d.ask("POST", "/v1/sessions/default/checkpoints", {"name": "c1"}).expect(201)
    d.ask("POST", "/v1/sessions", {"name": "other"}).expect(201)
    for body in ({"prefix": "old."}, {"names": ["z"], "replace": True}, {"names": ["y"], "into": "other"}):
        d.ask("POST", "/v1/checkpoints/c1/restore", body).expect(200)
    d.put("x", payload(SIZE, 7), query=SYNC).expect(200)
    d.put("old.y", payload(SIZE, 8), query=SYNC).expect(200)
    becomes_tidy(d.state)
    d.kill()
    return d


def test_restored_buffers_are_clean(lives):
    d = restored(lives)
    r = fsck(d.state)
    assert (r["findings"], r["buffers"], r["unnamed"]) == (0, 7, 0)
    assert "0 files without a record" in offline("recover", d.state)


def test_a_restored_buffer_takes_no_other_name(lives):
    """The header of a file that a restore linked is that of the checkpoint's buffer."""
    d = restored(lives)
    without_database(d)
    said = offline("recover", d.state, "--apply", "--take-over")
    assert "7 recovered, 0 older, 0 damaged, 0 refused" in said, said
    d = lives()
    found = {b["name"]: b for b in d.get("/v1/sessions/default/buffers")["items"]}
    guessed = sorted(n for n in found if n.startswith("restored."))
    assert len(guessed) == 3 and found.keys() - set(guessed) == {"x", "y", "z", "old.y"}
    assert all(b["generation"] < 10 for b in found.values())
    assert {n: d.data(n).body for n in ("x", "y", "z", "old.y")} == {
        "x": payload(SIZE, 7), "y": payload(SIZE, 1), "z": payload(SIZE, 2), "old.y": payload(SIZE, 8)}
    assert sorted(d.data(n).body for n in guessed) == sorted(payload(SIZE, i) for i in (0, 1, 2))
    for line in said.splitlines()[:-1]:
        assert ("restored from default/" in line) == ("/restored." in line or "default/z" in line), line
    d.put("new", payload(SIZE, 3), query=SYNC).expect(201)
    becomes_tidy(d.state)
    d.kill()
    assert fsck(d.state)["findings"] == 0


def test_names_that_are_free_are_the_headers(lives):
    d = restored(lives)
    without_database(d)
    for p, (number, generation, _) in [(p, k) for k, p in files(d.state).items()]:
        if not generation >> 62:
            os.unlink(p)
    said = offline("recover", d.state, "--apply", "--take-over")
    assert "4 recovered, 0 older, 0 damaged, 0 refused" in said, said
    d = lives()
    assert {b["name"] for b in d.get("/v1/sessions/default/buffers")["items"]} >= {"x", "y", "z"}
    assert d.data("x").body == payload(SIZE, 0) and d.data("z").body == payload(SIZE, 2)


def test_a_linked_orphan_beside_its_namesake(lives):
    """An older database was put back: the name of the header is another buffer's."""
    d = lives()
    d.put("x", payload(SIZE, 1), query=SYNC).expect(201)
    d.ask("POST", "/v1/sessions/default/checkpoints", {"name": "c1"}).expect(201)
    d.stop()
    shutil.copy(os.path.join(d.state, "gpubufd.db"), os.path.join(d.state, "copy"))
    d = lives()
    d.put("x", payload(SIZE, 2), query=SYNC).expect(200)
    d.ask("POST", "/v1/checkpoints/c1/restore", {"prefix": "old."}).expect(200)
    d.stop()
    for p in glob.glob(os.path.join(d.state, "gpubufd.db*")):
        os.unlink(p)
    os.rename(os.path.join(d.state, "copy"), os.path.join(d.state, "gpubufd.db"))
    d = lives()  # x's record names a file that is no longer there
    (linked,) = [n for n in aside(d.state) if int(n.split(".")[1]) >> 62]
    d.stop()
    said = offline("recover", d.state, "--apply", status=1)
    assert "1 recovered, 0 older, 0 damaged, 1 refused" in said, said
    name = "restored." + linked.split(".")[0]
    d = lives()
    assert d.data(name).body == payload(SIZE, 1) and d.meta(name)["generation"] == 1 and d.meta("x")["state"] == "lost"
