"""Answers of the routes of checkpoints that need a fault, a limit, or a request that is seldom made."""
import base64
import os
import shutil
import threading

import pytest

from durable import NONE, SYNC, file_of, path_of
from harness import Raw, until
from test_checkpoints import HERE, at, folder, holds, make, restore
from values import payload

pytestmark = pytest.mark.once  # the disk's own work

SIZE = 3 * (1 << 20) + 5
LATER = {"Prefer": "respond-async"}
FILE = "00001.safetensors"


def kept(lives, *options):
    """A checkpoint of one linked buffer, and a daemon with these options."""
    d = lives()
    d.put("a", payload(SIZE), query=SYNC).expect(201)
    make(d, "c1").expect(201)
    return lives(*options) if options else d


def file_at(name, file=FILE):
    return at(name, "/files/" + file)


def begun(d, name, size, sent, file=FILE):
    """A connection that has sent a part of a file."""
    return Raw(d.tcp).put(file_at(name, file), size).send(sent)


# --- requests that are seldom made ------------------------------------------------------------------------------------


def test_what_the_client_has_is_not_sent(lives):
    d = kept(lives)
    tag = d.ask("GET", at("c1")).expect(200).headers["ETag"]
    d.ask("GET", at("c1"), headers={"If-None-Match": tag}).expect(304)
    whole = d.ask("GET", file_at("c1", "manifest.json")).expect(200).body
    assert d.ask("GET", file_at("c1", "manifest.json"), headers={"Range": "bytes=1-9"}).expect(206).body == whole[1:10]


def test_work_goes_on_without_the_client(lives):
    d = kept(lives)

    def later(method, target, body):
        op = d.ask(method, target, body, LATER).expect(202).json()
        until("it has ended", lambda: d.get(f"/v1/operations/{op['id']}")["state"] != "running")
        found = d.get(f"/v1/operations/{op['id']}")
        assert found["state"] == "done", found
        return found["result"]

    assert later("POST", HERE, {"name": "c2"})["buffers"] == 1
    assert later("POST", at("c2", "/verify"), {})["match"] is True
    assert later("POST", at("c2", "/restore"), {"prefix": "x."})["buffers"] == 1
    holds(d, {"a": payload(SIZE)}, "x.")


def test_a_key_is_of_one_request(lives):
    d = kept(lives)
    key = {"Idempotency-Key": "k1"}
    d.ask("POST", at("c1", "/restore"), {"prefix": "x."}, key).expect(200)
    d.ask("POST", at("c1", "/restore"), {"prefix": "y."}, key).problem(422, "idempotency_key_reused")


def test_what_a_file_must_be_sent_with(lives):
    d = kept(lives)
    d.ask("PUT", file_at("c2"), b"x", {"Content-Encoding": "gzip"}).problem(415, "unsupported_media_type")
    d.ask("PUT", file_at("c2"), iter([b"x"]), {"Transfer-Encoding": "chunked"}).problem(411, "length_required")
    other = "sha-256=:" + base64.b64encode(bytes(32)).decode() + ":"
    for i in range(30):  # the name is free when the refusal is answered
        d.ask("PUT", file_at("c2"), b"x" * 100, {"Content-Digest": other}).problem(400, "digest_mismatch")
        if i % 2:
            d.ask("GET", file_at("c2")).problem(404, "checkpoint_not_found")
    op = d.ask("PUT", file_at("c2"), b"x" * 100, LATER).expect(202).json()
    until("it has ended", lambda: d.get(f"/v1/operations/{op['id']}")["state"] == "done")
    assert d.ask("GET", file_at("c2")).expect(200).body == b"x" * 100


def test_the_manifest_waits_for_the_other_files(lives):
    d = kept(lives)
    with begun(d, "c2", 1 << 20, b"x" * 1000) as s:
        until("it has begun", lambda: d.ask("GET", at("c2")).status == 200)
        r = d.ask("PUT", file_at("c2", "manifest.json"), b"{}")
        r.problem(409, "buffer_busy")
        assert int(r.headers["Retry-After"]) >= 0
        d.ask("DELETE", at("c2")).problem(409, "buffer_busy")
        s.send(b"x" * ((1 << 20) - 1000))
        assert s.head()[0] == 201
    d.ask("PUT", file_at("c2", "manifest.json"), b"{}").problem(400, "invalid_argument")
    d.ask("DELETE", at("c2")).expect(204)


def test_a_folder_that_goes_under_an_upload(lives):
    d = kept(lives)
    with begun(d, "c2", 2 << 20, b"x" * (1 << 20)) as s:
        until("its file is there", lambda: os.path.exists(os.path.join(folder(d, "c2"), f".{FILE}.0")))
        shutil.rmtree(folder(d, "c2"))
        s.send(b"x" * (1 << 20))
        assert s.head()[0] == 404


# --- quotas and rooms -------------------------------------------------------------------------------------------------


def test_a_quota_bounds_a_restore(lives):
    d = kept(lives)
    d.ask("POST", "/v1/sessions", {"name": "small", "quota": {"buffers": 0}}).expect(201)
    restore(d, "c1", into="small").problem(507, "quota_exceeded")
    said = restore(d, "c1", into="absent").problem(404, "session_not_found")["detail"]
    assert "create it" in said and '"into"' in said


def test_linked_bytes_count_for_each_buffer(lives):
    """The quota is of what the buffers have, as if each had a file of its own. Checkpoints count for no session."""
    d = kept(lives)

    def used(session="default"):
        return d.get(f"/v1/sessions/{session}")["used_stored_bytes"]

    assert used() == SIZE
    d.put("m", payload(SIZE, 1), query=NONE).expect(201)
    make(d, "c2").expect(201)
    assert used() == SIZE  # c2's file of m is no buffer's
    restore(d, "c1", prefix="x.").expect(200)
    assert os.stat(file_of(d, "a")).st_ino == os.stat(file_of(d, "x.a")).st_ino and used() == 2 * SIZE
    d = lives()
    assert used() == 2 * SIZE
    d.ask("DELETE", path_of("a")).expect(204)
    d.ask("DELETE", at("c1")).expect(204)
    assert used() == SIZE
    d.ask("POST", "/v1/sessions", {"name": "small", "quota": {"stored_bytes": SIZE - 1}}).expect(201)
    restore(d, "c2", names=["a"], into="small").problem(507, "quota_exceeded")
    assert used("small") == 0
    d.ask("PATCH", "/v1/sessions/small", {"quota": {"stored_bytes": SIZE}}).expect(200)
    restore(d, "c2", names=["a"], into="small").expect(200)
    assert used("small") == SIZE
    restore(d, "c2", names=["a"], into="small", replace=True).expect(200)
    assert used("small") == SIZE


def test_no_room_for_a_file(lives):
    d = kept(lives, "--disk-fault", "fallocate@1=ENOSPC")
    d.ask("PUT", file_at("c2"), b"x" * 100).problem(507, "storage_full")
    d.ask("GET", at("c2")).problem(404, "checkpoint_not_found")
    with begun(d, "c2", 1 << 60, b"") as s:  # before a byte is sent
        assert s.head()[0] == 507
    d.ask("GET", at("c2")).problem(404, "checkpoint_not_found")


def test_without_a_folder(lives):
    d = lives("--data-dir", "none")
    make(d, "c1").problem(501, "unsupported")
    d.ask("PUT", file_at("c1"), b"x").problem(501, "unsupported")
    for method, more, body in (("GET", "", None), ("DELETE", "", None), ("POST", "/verify", {}),
                               ("POST", "/restore", {}), ("GET", f"/files/{FILE}", None)):
        d.ask(method, at("c1", more), body).problem(404, "checkpoint_not_found")
    assert d.get("/v1/checkpoints")["items"] == []


# --- faults of the disk -----------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_removed(lives):
    d = kept(lives, "--disk-fault", "rename@1=EIO")
    d.ask("DELETE", at("c1")).problem(500, "storage_failed")
    assert d.get(at("c1"))["state"] == "complete"
    until("the disk is well again", lambda: d.get("/v1/storage")["state"] == "ready")
    d.ask("DELETE", at("c1")).expect(204)
    assert not os.path.exists(folder(d, "c1"))


def test_a_file_that_cannot_be_read(lives):
    d = kept(lives, "--disk-fault", "read@3+=EIO")  # marker and manifest at the start
    d.ask("GET", file_at("c1")).problem(500, "storage_failed")
    d = lives()
    os.truncate(os.path.join(folder(d, "c1"), FILE), 5000)
    d.ask("GET", file_at("c1")).problem(410, "content_damaged")
    os.unlink(os.path.join(folder(d, "c1"), FILE))
    d.ask("GET", file_at("c1")).problem(410, "content_lost")


def test_a_verify_that_cannot_read(lives):
    d = kept(lives, "--disk-fault", "read@3=EIO")
    d.ask("POST", at("c1", "/verify"), {}).problem(500, "storage_failed")
    assert d.ask("POST", at("c1", "/verify"), {}).expect(200).json()["match"] is True


def test_a_restore_that_cannot_link(lives):
    d = kept(lives, "--disk-fault", "link@1=EIO")
    restore(d, "c1", prefix="x.").problem(500, "storage_failed")
    assert [b["name"] for b in d.get("/v1/sessions/default/buffers")["items"]] == ["a"]


@pytest.mark.parametrize("rule", ("sync@1=EIO", "write@1=EIO", "rename@1=EIO", "mkdir@1=EIO", "create@1=EIO",
                                  "dirsync@2=EIO"))
def test_a_file_that_cannot_be_written(lives, rule):
    d = kept(lives, "--disk-fault", rule)
    d.ask("PUT", file_at("c2"), b"x" * 100).problem(500, "storage_failed")
    until("the disk is well again", lambda: d.get("/v1/storage")["state"] == "ready")
    d.ask("PUT", file_at("c2"), b"x" * 100)
    assert [f for f in os.listdir(folder(d, "c2")) if f != ".session"] == [FILE]


# --- races ------------------------------------------------------------------------------------------------------------


def test_one_of_two_checkpoints_of_a_name(lives):
    d = kept(lives)
    statuses = []
    threads = [threading.Thread(target=lambda: statuses.append(make(d, "both").status)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert sorted(statuses) == [201, 409, 409, 409]
