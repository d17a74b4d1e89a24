"""The Python client: durable buffers, whose bytes outlive the daemon."""
import pickle

import numpy as np
import pytest
from pyclient import client_of, gpubuf

from harness import until
from test_cli_durable import files

ARRAY = np.arange(80000, dtype=np.float32).reshape(200, 400)


class Lives:
    """Clients of a daemon that is started again on the same state."""

    def __init__(self, start, state):
        self.start, self.state, self.daemon = start, str(state), None

    def __call__(self, *options, session="default"):
        if self.daemon is not None:
            self.daemon.kill()
            self.daemon.clean()
        self.daemon = self.start(*options, state=self.state)
        return client_of(self.daemon, session)


@pytest.fixture
def live(start, tmp_path):
    return Lives(start, tmp_path / "state")


def test_a_durable_array_outlives_the_daemon(live):
    with live() as c:
        made = c.put("x", ARRAY, durability="sync")
        assert (made["durability"], made["generation"], made["stored_generation"],
                made["state"]) == ("sync", 1, 1, "ready")
        c.create("zeros", bytes=100, durability="sync")
        c.put("mortal", ARRAY)
    with live() as c:
        found = {b["name"]: (b["state"], b["stored_generation"]) for b in c.list()}
        assert found == {"x": ("stored", 1), "zeros": ("stored", 1), "mortal": ("lost", None)}
        assert (c.get("x", if_match=made["etag"]) == ARRAY).all() and c.get("zeros", raw=True) == bytes(100)
        assert (c.get("x", slice=np.s_[3, 5:9]) == ARRAY[3, 5:9]).all()
        with pytest.raises(gpubuf.ContentLost):
            c.get("mortal")


def test_a_write_into_a_part_loads_the_rest(live):
    want = ARRAY.copy()
    with live() as c:
        c.put("x", ARRAY, durability="sync")
    with live() as c:
        assert c.put("x", np.full(4, 7, np.float32), slice=np.s_[3, 5:9])["stored_generation"] == 2
        want[3, 5:9] = 7
        assert (c.get("x") == want).all() and c.storage()["loads"] == 1
    with live() as c:
        done = c.submit(c.put, "x", np.full(4, 8, np.float32), slice=np.s_[4, 5:9])
        if done["id"]:
            c.operations.wait(done)
        want[4, 5:9] = 8
        assert (c.get("x") == want).all()


def test_parts_over_several_connections(live):
    big = np.arange(9 << 20, dtype=np.uint32)
    with live() as c:
        assert c.put("x", big, durability="sync", connections=3)["stored_generation"] == 1
    with live() as c:
        assert (c.get("x", connections=3) == big).all()


def test_store_load_and_storage(live):
    with live("--durable-lag", "3600") as c:
        assert c.put("x", ARRAY, durability="behind")["stored_generation"] is None
        assert c.store("x") == {"stored_generation": 1, "bytes": ARRAY.nbytes, "wrote": True}
        assert c.store("x")["wrote"] is False
        assert c.put("x", ARRAY + 1)["stored_generation"] == 1
        c.store("x")
    with live() as c:
        assert c.storage()["stored_buffers"] == 1
        loaded = c.load("x")
        assert loaded["state"] == "ready" and loaded["etag"] and c.load("x") == loaded
        now = c.storage()
        assert (now["state"], now["error"], now["stored_buffers"], now["loads"],
                now["loaded_bytes"]) == ("ready", None, 0, 1, ARRAY.nbytes)
        assert c.update("x", durability="none")["stored_generation"] is None
        with pytest.raises(gpubuf.InvalidArgument, match="durability"):
            c.store("x")
        assert c.update("x", durability="sync")["stored_generation"] == 2
        with pytest.raises(gpubuf.BufferNotFound):
            c.load("y")
        with pytest.raises(gpubuf.InvalidArgument):
            c.put("x", ARRAY, durability="maybe")


def test_a_load_takes_longer_than_a_request_may_wait(live):
    with live() as c:
        c.put("x", np.zeros(3 << 20, np.uint8), durability="sync")
    with live("--wait-max", "1", "--disk-fault", "read=delay/500") as c:
        assert c.put("x", b"abc", offset=3)["generation"] == 2
        assert c.storage()["loads"] == 1


def test_mapping_and_copies_load(live):
    with live() as c:
        c.put("x", ARRAY, durability="sync", kind="shared")
        c.put("y", ARRAY, durability="sync", kind="shared")
    with live() as c:
        with c.map("x"):
            assert c.info("x")["state"] == "ready" and (c.get("x") == ARRAY).all()
        assert (c.copy("y", "z")["state"], c.info("y")["state"]) == ("ready", "ready") and (c.get("z") == ARRAY).all()


def test_sessions_give_a_durability(live):
    with live() as c:
        assert c.sessions.create("s", durability="behind")["durability"] == "behind"
        assert c.sessions.update("s", durability="sync")["durability"] == "sync"
        s = c.with_session("s")
        assert s.tensors_put({"a": ARRAY, "b": ARRAY})[0]["name"] == "a"
        assert {b["name"]: b["stored_generation"] for b in s.list()} == {"a": 1, "b": 1}
    with live(session="s") as s:
        back = s.tensors_get()
        assert set(back) == {"a", "b"} and (back["a"] == ARRAY).all()


def test_what_may_leave_memory(live):
    with live() as c:
        made = c.put("x", ARRAY, spill="disk")
        assert (made["spill"], made["resident"]) == ("disk", False)
        assert c.put("x", ARRAY)["spill"] == "disk", "an existing buffer keeps its own"
        assert c.create("y", bytes=10, spill="disk", resident=True)["resident"] is True
        changed = c.update("x", spill="never", resident=True)
        assert (changed["spill"], changed["resident"], changed["generation"]) == ("never", True, 2)
        assert c.update("x", resident=False)["resident"] is False and c.info("x")["spill"] == "never"
        big = np.arange(9 << 20, dtype=np.uint32)
        assert c.put("parts", big, spill="disk", connections=3)["spill"] == "disk"
        with pytest.raises(gpubuf.InvalidArgument, match="spill"):
            c.put("x", ARRAY, spill="tape")


def test_a_full_quota_makes_room(live):
    with live("--min-resident-ms", "0") as c:
        made = c.sessions.create("s", quota={"bytes": 2 * ARRAY.nbytes}, spill="disk", priority=3)
        assert (made["spill"], made["priority"]) == ("disk", 3)
        assert c.sessions.update("s", priority=4)["priority"] == 4 and c.sessions.get("s")["spill"] == "disk"
        with pytest.raises(gpubuf.InvalidArgument, match="priority"):
            c.sessions.update("s", priority=1001)
        s = c.with_session("s")
        for n, name in enumerate("abc"):
            s.put(name, ARRAY + n)
        assert {b["name"]: b["tier"] for b in s.list()} == {"a": "disk", "b": "device", "c": "device"}
        assert s.load("a")["tier"] == "device"
        assert {b["name"]: b["tier"] for b in s.list()} == {"a": "device", "b": "disk", "c": "device"}
        assert all((s.get(name) == ARRAY + n).all() for n, name in enumerate("abc"))
        now = c.storage()
        assert (now["evictions"], now["evictions_for_room"], now["reloads_within_minute"]) == (2, 2, 1)


# --- errors -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fault, error", [("create=ENOSPC", "StorageFull"), ("write@1=EIO", "StorageFailed")])
def test_a_disk_that_refuses(live, fault, error):
    with live("--disk-fault", fault) as c:
        with pytest.raises(getattr(gpubuf, error)) as raised:
            c.put("x", ARRAY, durability="sync")
        assert raised.value.retryable and "disk" in raised.value.detail
        with pytest.raises(gpubuf.BufferNotFound):
            c.info("x")
        assert c.put("x", ARRAY)["state"] == "ready"


def test_damage_and_absence(live, tmp_path):
    with live() as c:
        c.put("x", ARRAY, durability="sync")
    with live() as c:
        with open(files(live.state)[0], "r+b") as f:
            f.seek(4096 + 5)
            f.write(b"\xff\xff")
        with pytest.raises(gpubuf.ContentDamaged) as raised:
            c.load("x")
        assert isinstance(raised.value, gpubuf.Conflict) and not raised.value.retryable
        c.put("x", ARRAY)
    live.daemon.stop()
    (tmp_path / "state" / "data").rename(tmp_path / "away")
    with live() as c:
        with pytest.raises(gpubuf.StorageUnavailable) as raised:
            c.load("x")
        assert isinstance(raised.value, gpubuf.Unavailable) and raised.value.retry_after == 1
        assert pickle.loads(pickle.dumps(raised.value)).code == "storage_unavailable"
        assert c.storage()["state"] == "unavailable"


def test_evict(live):
    with live("--durable-lag", "3600") as c:
        made = c.put("x", ARRAY)
        c.put("kept", ARRAY, durability="behind")
        assert made["tier"] == "device"
        gone = c.evict("x", if_match=c.info("x")["etag"])
        assert (gone["state"], gone["tier"], gone["stored_generation"], gone["etag"]) == ("stored", "disk", None,
                                                                                          c.info("x")["etag"])
        assert c.evict("kept")["stored_generation"] == 1 and c.sessions.get()["used_bytes"] == 0
        assert (c.get("x", if_match=made["etag"]) == ARRAY).all()
        assert c.put("x", np.full(4, 7, np.float32),
                     slice=np.s_[3, 5:9])["tier"] == "device", "a write into a part loads the rest"
        c.put("small", np.zeros(4))
        with pytest.raises(gpubuf.BadRequest):
            c.evict("small")
        with pytest.raises(gpubuf.PreconditionFailed):
            c.evict("x", if_match="7.3")
        c.evict("x")
    with live() as c:
        assert {b["name"]: b["tier"] for b in c.list()} == {"x": None, "kept": "disk", "small": None}


def test_evict_to_host_memory(live):
    with live("--spill-host-bytes", "64M") as c:
        c.put("x", ARRAY, spill="host")
        assert c.evict("x")["tier"] == "host" == c.info("x")["tier"] and c.storage()["host"]["buffers"] == 1
        assert (c.get("x") == ARRAY).all()
        assert c.evict("x", to="disk")["tier"] == "disk"
        c.load("x")
        assert c.sessions.evict(to="host")["buffers"] == 1 and c.storage()["evictions_to_host"] == 2
        with pytest.raises(gpubuf.BadRequest, match="host"):
            c.evict("x", to="tape")


def test_a_session_sleeps_and_wakes(live):
    with live() as c:
        for name in ("w.a", "w.b", "other"):
            c.put(name, ARRAY)
        c.put("w.small", np.zeros(4))
        assert c.sessions.evict(prefix="w.") == {
            "buffers": 2, "bytes": 2 * ARRAY.nbytes, "skipped_buffers": 1,
            "skipped": [{"buffer": "w.small", "code": "invalid_argument"}]}
        with c.awake("w.") as awake:
            assert awake is c and {b["name"]: b["tier"] for b in c.list()} == dict.fromkeys(("w.a", "w.b", "other",
                                                                                             "w.small"), "device")
        assert {b["name"] for b in c.list() if b["tier"] == "disk"} == {"w.a", "w.b"}
        with pytest.raises(ZeroDivisionError):
            with c.awake():
                1 / 0
        assert {b["name"] for b in c.list() if b["tier"] == "disk"} == {"w.a", "w.b", "other"}
        assert c.sessions.load() == {"buffers": 3, "bytes": 3 * ARRAY.nbytes, "skipped_buffers": 0, "skipped": []}
        c.sessions.create("t")
        assert c.sessions.load("t")["buffers"] == 0 == c.sessions.evict("t")["buffers"]


def test_a_session_that_cannot_wake(live):
    with live() as c:
        for name in ("a", "b"):
            c.put(name, ARRAY)
        c.sessions.evict()
        c.sessions.update(quota={"bytes": ARRAY.nbytes})
        with pytest.raises(gpubuf.QuotaExceeded):
            with c.awake():
                pytest.fail("not all is in memory")
        assert c.sessions.get()["used_bytes"] == 0


def test_a_load_that_is_not_waited_for(live):
    with live() as c:
        c.put("x", ARRAY, durability="sync")
    with live() as c:
        patch = ("PATCH", "/v1/sessions/default/buffers/x/data?offset=0", {"Content-Type": "application/octet-stream"})
        with pytest.raises(gpubuf.NotLoaded) as raised:
            c._transport.ask(*patch, [memoryview(b"abc")])
        assert raised.value.retryable and raised.value.retry_after == 1
        until("the bytes are in memory", lambda: c.info("x")["state"] == "ready")
        c._transport.ask(*patch, [memoryview(b"abc")]).read()
        assert c.get("x", raw=True)[:3] == b"abc"
