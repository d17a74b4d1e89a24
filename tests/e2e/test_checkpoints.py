"""Checkpoints of a session: one moment, on disk for good, and back."""
import base64
import contextlib
import json
import os
import threading

import pytest

from durable import INLINE, NONE, SYNC, becomes_tidy, file_of, files, folder_of, path_of
from feed import Feed
from harness import PATIENCE_S, token, until
from tensors import safetensors
from values import payload

pytestmark = pytest.mark.once  # the disk's own work

HERE = "/v1/sessions/default/checkpoints"
# Each way that bytes can go: (name, bytes, query).
WAYS = (("linked", 3 * (1 << 20) + 5, SYNC), ("row", 1000, SYNC), ("memory", 2 << 20, NONE), ("small", 77, NONE),
        ("empty", 0, NONE), ("edge", INLINE + 1, SYNC))


def at(name, more=""):
    return f"/v1/checkpoints/{name}{more}"


def make(d, name, **more):
    return d.ask("POST", HERE, {"name": name, **more})


def restore(d, name, **more):
    return d.ask("POST", at(name, "/restore"), more)


def verified(d, name):
    return d.ask("POST", at(name, "/verify"), {}).expect(200).json()


def folder(d, name):
    return os.path.join(folder_of(d.state), "checkpoints", name)


def fill(d, seed=0):
    """{name: bytes} of buffers that go each of the ways."""
    contents = {name: payload(size, seed + i) for i, (name, size, _) in enumerate(WAYS)}
    for name, _, query in WAYS:
        d.put(name, contents[name], query=query)
    return contents


def holds(d, contents, prefix="", session="default"):
    for name, data in contents.items():
        assert d.data(prefix + name, session).expect(200).body == data, name


def code(reply, status):
    return reply.expect(status).json()["code"]


def test_there_and_back_over_a_kill(lives):
    d = lives()
    contents = fill(d)
    d.ask("PATCH", path_of("linked"), {"labels": {"a": "b"}}).expect(200)
    d.ask("POST", path_of("memory") + "/evict", {}).expect(200)
    made = make(d, "c1").expect(201).json()
    assert (made["buffers"], made["bytes"], made["skipped"]) == (len(WAYS), sum(map(len, contents.values())), [])
    assert made["linked_bytes"] == len(contents["linked"]) + len(contents["edge"])
    assert made["linked_bytes"] + made["written_bytes"] == made["bytes"]
    fill(d, 100)
    view = d.get(at("c1"))
    d = lives()
    assert d.get(at("c1")) == view and d.get("/v1/checkpoints")["items"] == [view]
    assert verified(d, "c1")["match"] is True
    done = restore(d, "c1", prefix="old.").expect(200).json()
    assert (done["buffers"], done["bytes"], done["replaced"]) == (len(WAYS), made["bytes"], 0)
    holds(d, contents, "old.")
    assert d.meta("old.linked")["labels"] == {"a": "b"}
    d = lives()
    holds(d, contents, "old.")
    d.ask("POST", "/v1/sessions", {"name": "other"}).expect(201)
    assert restore(d, "c1", into="other", load="eager").expect(200).json()["loaded"] == len(WAYS)
    holds(d, contents, session="other")
    d.ask("DELETE", "/v1/sessions/other").expect(204)
    assert d.get("/v1/checkpoints?session=default")["items"] == [view]


def test_a_list_has_the_order_of_the_moments(lives):
    d = lives()
    names = [f"{c}{i}" for i, c in enumerate("zmbyakxc")]
    # They have no buffers, and are complete all the same.
    moments = {name: make(d, name).expect(201).json()["as_of"] for name in names}
    for _ in range(2):  # the second time after a start, whose folder has another order
        page = d.get("/v1/checkpoints?limit=3")
        items = page["items"] + d.get(f"/v1/checkpoints?cursor={page['next_cursor']}")["items"]
        assert [c["as_of"] for c in items] == sorted(moments.values())  # two may be of one millisecond
        assert {c["name"]: c["as_of"] for c in items} == moments
        d = lives()
    d.ask("DELETE", at(names[0])).expect(204)
    assert {c["name"] for c in d.get("/v1/checkpoints")["items"]} == {*names[1:]}


def test_the_library_opens_the_files_and_the_index(lives):
    d = lives()
    contents = fill(d)
    make(d, "c1").expect(201)
    restore(d, "c1", prefix="v2.").expect(200)
    make(d, "c2", prefix="v2.").expect(201)
    for name, prefix in (("c1", ""), ("c2", "v2.")):
        with open(os.path.join(folder(d, name), "model.safetensors.index.json"), encoding="utf-8") as f:
            index = json.load(f)
        assert index["weight_map"].keys() == {prefix + n for n in contents}
        assert index["metadata"]["total_size"] == sum(map(len, contents.values()))
        for tensor, file in index["weight_map"].items():
            with open(os.path.join(folder(d, name), file), "rb") as f:
                found = safetensors.deserialize(f.read())
            assert [(n, bytes(t["data"])) for n, t in found] == [(tensor, contents[tensor.removeprefix(prefix)])]


def test_links_are_independent_of_their_buffers(lives):
    d = lives()
    contents = fill(d)
    make(d, "c1").expect(201)
    assert os.stat(file_of(d, "linked")).st_nlink == 2
    d.put("linked", b"x" * (1 << 20), query=SYNC).expect(200)
    d.ask("DELETE", path_of("edge")).expect(204)
    assert verified(d, "c1")["match"] is True
    restore(d, "c1", replace=True).expect(200)
    holds(d, contents)
    assert d.meta("memory")["durability"] == "behind" and d.meta("linked")["durability"] == "sync"
    d.ask("DELETE", at("c1")).expect(204)
    assert code(d.ask("GET", at("c1")), 404) == "checkpoint_not_found" and not os.path.exists(folder(d, "c1"))
    holds(d, contents)
    d = lives()
    holds(d, contents)
    assert all(os.stat(path).st_nlink == 1 for path in files(d.state).values())


@pytest.mark.parametrize("found_by", ["scrub", "read"])
def test_no_checkpoint_is_made_of_damaged_files(lives, found_by):
    d = lives()
    fill(d)
    names = ["linked", "edge"]
    d = lives()
    path = file_of(d, "linked")
    with open(path, "rb") as f:
        good = f.read()
    with open(path, "r+b") as f:
        f.seek(5000)
        f.write(b"rot")
    if found_by == "scrub":
        assert d.ask("POST", "/v1/storage/scrub", {}).expect(200).json()["damaged"] == 1
    else:
        d.data("linked").problem(410, "content_damaged")
    assert code(make(d, "c1", names=names), 410) == "content_damaged"
    made = make(d, "c1", names=names, lenient=True).expect(201).json()
    assert made["skipped"] == [{"buffer": "linked", "code": "content_damaged"}] and verified(d, "c1")["match"] is True
    with open(path, "wb") as f:
        f.write(good)
    assert d.ask("POST", "/v1/storage/scrub", {}).expect(200).json()["damaged"] == 0
    assert make(d, "c2", names=names).expect(201).json()["buffers"] == 2 and verified(d, "c2")["match"] is True


def test_a_restore_is_all_or_none(lives):
    d = lives()
    contents = fill(d)
    make(d, "c1").expect(201)
    new = {"linked": b"new", "small": b"newer"}
    for name in contents:
        d.ask("DELETE", path_of(name)).expect(204)
    for name, data in new.items():
        d.put(name, data, query=SYNC).expect(201)
    before = d.contents()
    assert code(restore(d, "c1"), 409) == "buffer_exists"
    d.ask("POST", path_of("small") + "/seal", {}).expect(200)
    assert code(restore(d, "c1", replace=True), 409) == "sealed"
    assert code(restore(d, "c1", names=["row", "absent"]), 404) == "buffer_not_found"
    assert code(restore(d, "c1", into="absent"), 404) == "session_not_found"
    assert code(restore(d, "c1", device=99, prefix="x."), 404) == "device_not_found"
    assert code(restore(d, "c1", prefix="x" * 127), 400) == "invalid_name"
    os.truncate(os.path.join(folder(d, "c1"), "00001.safetensors"), 5000)
    assert code(restore(d, "c1", prefix="x."), 410) == "content_damaged"
    assert [b["name"] for b in d.contents()[1][0]] == [b["name"] for b in before[1][0]]
    holds(d, new)
    found = verified(d, "c1")
    assert (found["match"], found["damaged_buffers"], len(found["damaged"])) == (False, 1, 1)
    assert restore(d, "c1", names=["row"]).expect(200).json()["buffers"] == 1
    assert d.data("row").body == contents["row"]


def test_what_cannot_be_kept(lives):
    d = lives()
    d.put("gone", payload(100))
    d = lives()
    d.put("kept", payload(100, 1))
    assert code(make(d, "c1"), 410) == "content_lost"
    assert d.get("/v1/checkpoints")["items"] == [] and os.listdir(os.path.join(folder_of(d.state), "checkpoints")) == []
    made = make(d, "c1", lenient=True).expect(201).json()
    assert (made["buffers"], made["skipped"]) == (1, [{"buffer": "gone", "code": "content_lost"}])
    assert code(make(d, "c1"), 409) == "checkpoint_exists"
    assert code(make(d, "c2", names=["absent"]), 404) == "buffer_not_found"
    assert code(make(d, "c2", names=["kept", "kept"]), 400) == "invalid_argument"
    for name in ("../x", ".x", "a/b", ""):
        assert code(make(d, name), 400) == "invalid_name"
    for i in range(2, 65):
        make(d, f"c{i}", names=["kept"]).expect(201)
    assert code(make(d, "c65", names=["kept"]), 507) == "limit_reached"
    d.ask("DELETE", at("c2")).expect(204)
    make(d, "c65", names=["kept"]).expect(201)


def test_one_moment_beside_writers(lives):
    """Pairs that are written by one batch are equal in every checkpoint."""
    d = lives()
    size = 300000
    for name in ("a", "b", "x", "y"):
        d.put(name, bytes([0]) * size, query=SYNC if name < "c" else NONE)
    over = threading.Event()

    def write(one, two):
        value = 0
        while not over.is_set():
            value = value % 250 + 1
            fills = [{"op": "fill", "buffer": n, "pattern": value, "width": 1} for n in (one, two)]
            d.ask("POST", "/v1/sessions/default/batch", {"atomic": True, "operations": fills}).expect(200)

    writers = [threading.Thread(target=write, args=pair) for pair in (("a", "b"), ("x", "y"))]
    for w in writers:
        w.start()
    try:
        for i in range(20):
            make(d, f"c{i}").expect(201)
    finally:
        over.set()
        for w in writers:
            w.join(PATIENCE_S)
    values = set()
    for i in range(20):
        assert verified(d, f"c{i}")["match"] is True
        restore(d, f"c{i}", prefix=f"r{i}.").expect(200)
        a, b, x, y = (d.data(f"r{i}.{n}").expect(200).body for n in ("a", "b", "x", "y"))
        assert a == b == a[:1] * size and x == y == x[:1] * size, i
        values.add(a[0])
    assert len(values) > 1  # the writers did write


@pytest.mark.parametrize("step", ("mkdir@2", "link@1", "link@2", "create@3", "write@2", "sync@2", "dirsync@1",
                                  "dirsync@2", "rename@1", "before_commit@1", "after_commit@1"))
def test_a_kill_leaves_it_complete_or_absent(lives, step):
    d = lives()
    contents = fill(d)
    d = lives("--disk-fault", step + "=kill")
    with pytest.raises(Exception):
        make(d, "c1", lenient=True)
    assert d.process.wait(PATIENCE_S) == -9
    d = lives()
    found = d.get("/v1/checkpoints")["items"]
    if found:
        assert found[0]["state"] == "complete" and verified(d, "c1")["match"] is True
    else:
        make(d, "c1", lenient=True).expect(201)
    restore(d, "c1", prefix="old.").expect(200)
    for name in ("linked", "row", "edge"):
        assert d.data("old." + name).expect(200).body == contents[name]
    assert os.listdir(os.path.join(folder_of(d.state), "checkpoints")) == ["c1"]


@pytest.mark.parametrize("step", ("link@1", "dirsync@1", "before_commit@1", "after_commit@1"))
def test_a_kill_of_a_restore_leaves_all_or_none(lives, step):
    d = lives()
    contents = fill(d)
    make(d, "c1").expect(201)
    d = lives("--disk-fault", step + "=kill")
    with pytest.raises(Exception):
        restore(d, "c1", prefix="old.")
    assert d.process.wait(PATIENCE_S) == -9
    d = lives()
    there = [b["name"] for b in d.get("/v1/sessions/default/buffers")["items"] if b["name"].startswith("old.")]
    assert len(there) == (len(WAYS) if step.startswith("after") else 0)
    if not there:
        restore(d, "c1", prefix="old.").expect(200)
    holds(d, contents, "old.")


@pytest.mark.parametrize("rule", ("link@1=EIO", "sync@2=EIO", "create@2=ENOSPC", "rename@1=EIO"))
def test_a_disk_that_fails_leaves_nothing(lives, rule):
    d = lives()
    fill(d)
    d = lives("--disk-fault", rule)
    assert code(make(d, "c1", lenient=True), 507 if "ENOSPC" in rule else 500).startswith("storage_")
    assert d.get("/v1/checkpoints")["items"] == [] and os.listdir(os.path.join(folder_of(d.state), "checkpoints")) == []


def test_files_go_out_and_in(lives, tmp_path):
    d = lives()
    contents = fill(d)
    make(d, "c1").expect(201)
    manifest = d.ask("GET", at("c1", "/files/manifest.json")).expect(200)
    entries = manifest.json()["entries"]
    sent = {"manifest.json": manifest.body}
    for name in ("model.safetensors.index.json", *(e["file"] for e in entries)):
        sent[name] = d.ask("GET", at("c1", f"/files/{name}")).expect(200).body
    for entry in entries:
        name, crc = entry["file"], bytes.fromhex(entry["file_crc32c"])
        whole = d.ask("GET", at("c1", f"/files/{name}"))
        assert (len(whole.body) == entry["size"] and whole.headers["Repr-Digest"]
                == f"crc32c=:{base64.b64encode(crc).decode()}:")
        part = d.ask("GET", at("c1", f"/files/{name}"), None, {"Range": "bytes=4000-4095"}).expect(206)
        assert part.body == whole.body[4000:4096]
        d.ask("GET", at("c1", f"/files/{name}"), None, {"If-None-Match": whole.headers["ETag"]}).expect(304)
        assert code(d.ask("GET", at("c1", f"/files/{name}"), None, {"Range": "bytes=99999999-"}),
                    416) == "range_not_satisfiable"
    assert code(d.ask("GET", at("c1", "/files/00099.safetensors")), 404) == "checkpoint_not_found"
    assert code(d.ask("GET", at("c1", "/files/passwd")), 400) == "invalid_argument"
    assert code(d.ask("PUT", at("c1", "/files/00001.safetensors"), b"x"), 409) == "checkpoint_exists"

    assert code(d.ask("PUT", at("c2", "/files/manifest.json"), manifest.body), 409) == "checkpoint_incomplete"
    for name in sorted(sent):
        if name != "manifest.json":
            d.ask("PUT", at("c2", f"/files/{name}"), sent[name]).expect(201)
    d = lives()
    assert d.get(at("c2"))["state"] == "incomplete"
    assert code(restore(d, "c2"), 409) == "checkpoint_incomplete"
    assert code(d.ask("POST", at("c2", "/verify"), {}), 409) == "checkpoint_incomplete"
    bad = bytearray(sent["00001.safetensors"])
    bad[-1] ^= 1
    d.ask("PUT", at("c2", "/files/00001.safetensors"), bytes(bad)).expect(200)
    assert code(d.ask("PUT", at("c2", "/files/manifest.json"), manifest.body), 409) == "checkpoint_incomplete"
    assert code(d.ask("PUT", at("c2", "/files/manifest.json"), manifest.body[:-9]), 400) == "invalid_argument"
    d.ask("PUT", at("c2", "/files/00001.safetensors"), sent["00001.safetensors"]).expect(200)
    d.ask("PUT", at("c2", "/files/manifest.json"), manifest.body).expect(201)
    assert d.get(at("c2")) == {**d.get(at("c1")), "name": "c2"}
    d.ask("DELETE", at("c1")).expect(204)
    restore(d, "c2", prefix="in.").expect(200)
    holds(d, contents, "in.")


def test_tokens_see_their_own(start, tmp_path):
    d = start("--disk-reserve", "0", state=str(tmp_path))
    for s in ("one", "two"):
        d.ask("POST", "/v1/sessions", {"name": s}).expect(201)
        d.put("b", payload(100), s).expect(201)
        d.ask("POST", f"/v1/sessions/{s}/checkpoints", {"name": "of-" + s}).expect(201)
    bound = token(tmp_path, "add", "bound", "--scope", "read,write", "--session", "one")
    reads = token(tmp_path, "add", "reads", "--scope", "read", "--session", "one")

    until("both tokens are in force", lambda: d.ask("GET", "/v1/sessions", token=reads).status == 403)

    def asks(secret, method, target, body=None):
        return d.ask(method, target, body, token=secret)

    assert [c["name"] for c in asks(bound, "GET", "/v1/checkpoints").expect(200).json()["items"]] == ["of-one"]
    assert code(asks(bound, "GET", at("of-two")), 404) == "checkpoint_not_found"
    assert code(asks(bound, "GET", at("of-two", "/files/manifest.json")), 404) == "checkpoint_not_found"
    assert code(asks(bound, "DELETE", at("of-two")), 404) == "checkpoint_not_found"
    assert code(asks(bound, "POST", at("of-one", "/restore"), {"into": "two"}), 403) == "forbidden"
    asks(bound, "POST", at("of-one", "/restore"), {"prefix": "r."}).expect(200)
    asks(reads, "GET", at("of-one", "/files/manifest.json")).expect(200)
    assert code(asks(reads, "DELETE", at("of-one")), 403) == "forbidden"
    assert code(asks(reads, "POST", at("of-one", "/restore"), {"prefix": "s."}), 403) == "forbidden"
    asks(bound, "DELETE", at("of-one")).expect(204)


def test_the_feed_tells(lives):
    d = lives()
    d.put("b", payload(100)).expect(201)
    with Feed(d) as feed:
        make(d, "c1").expect(201)
        restore(d, "c1", prefix="x.").expect(200)
        d.ask("DELETE", at("c1")).expect(204)
        for kind in ("created", "restored", "deleted"):
            assert feed.find(f"checkpoint.{kind}")["detail"] == "c1"


def opened(d, name):
    """The daemon has a file of the checkpoint open."""
    fds = f"/proc/{d.process.pid}/fd"
    for fd in os.listdir(fds):
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(f"{fds}/{fd}").startswith(os.path.join(folder(d, name), "0")):
                return True
    return False


@pytest.mark.parametrize("work", ["verify", "restore"])
def test_a_checkpoint_is_deleted_while_it_is_read(lives, work):
    """The files are not there any more, which says nothing of damage; another checkpoint of that name has others."""
    d = lives()
    contents = fill(d)
    make(d, "c1").expect(201)
    d = lives("--disk-fault", {"verify": "read+=delay/100", "restore": "dirsync+=delay/500"}[work])
    before, body = files(d.state), {"prefix": "back."} if work == "restore" else {}
    operation = d.ask("POST", at("c1", "/" + work), body, {"Prefer": "respond-async"}).expect(202).headers["Location"]
    until("files are read", lambda: opened(d, "c1") if work == "verify" else files(d.state) != before)
    d.ask("DELETE", at("c1")).expect(204)
    ended = d.ask("GET", operation, None, {"Prefer": "wait=30"}).expect(200).json()
    assert (ended["status"], ended["problem"]["code"]) == (404, "checkpoint_not_found")
    assert {b["name"] for b in d.get("/v1/sessions/default/buffers")["items"]} == set(contents)
    becomes_tidy(d.state)


def test_what_is_refused_leaves_no_checkpoint(lives):
    d = lives()
    for file, body in (("manifest.json", b"{}"), ("manifest.json", b"")):
        d.ask("PUT", at("c1", "/files/" + file), body).problem(400, "invalid_argument")
    leaves = d.raw().put(at("c1", "/files/00001.safetensors"), 1 << 20)
    leaves.send(b"x" * 1000).reset()
    until("nothing is left", lambda: d.get("/v1/checkpoints")["items"] == [] and os.listdir(folder(d, "")) == [])
    d.ask("PUT", at("c1", "/files/00001.safetensors"), b"x").expect(201)
    d.ask("PUT", at("c1", "/files/manifest.json"), b"{}").problem(400, "invalid_argument")
    assert [c["state"] for c in d.get("/v1/checkpoints")["items"]] == ["incomplete"], "what came stays"


def test_more_checkpoints_than_a_session_may_have(lives):
    d = lives()
    d.put("x", b"abc", query=SYNC)
    files_of = {}
    for i in range(64):
        make(d, f"c{i}").expect(201)
    for file in ("00001.safetensors", "manifest.json"):
        files_of[file] = d.ask("GET", at("c0", "/files/" + file)).expect(200).body
    assert 'session "default"' in make(d, "more").problem(507, "limit_reached")["detail"]
    for i in range(64):
        d.ask("PUT", at(f"b{i}", "/files/00001.safetensors"), files_of["00001.safetensors"]).expect(201)
    refused = d.ask("PUT", at("more", "/files/00001.safetensors"), b"x").problem(507, "limit_reached")
    assert "no manifest yet" in refused["detail"]
    manifest = {**json.loads(files_of["manifest.json"]), "name": "b0"}
    d.ask("PUT", at("b0", "/files/manifest.json"), json.dumps(manifest)).problem(400, "invalid_argument")
    del manifest["crc32c"]  # it is of the text with the other name
    manifest = json.dumps(manifest)
    d.ask("PUT", at("b0", "/files/manifest.json"), manifest).problem(507, "limit_reached")
    d.ask("DELETE", at("c1")).expect(204)
    d.ask("PUT", at("b0", "/files/manifest.json"), manifest).expect(201)
