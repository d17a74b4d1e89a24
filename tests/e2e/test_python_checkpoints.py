"""The Python client: checkpoints of a session."""
import os

import numpy as np
import pytest
from pyclient import client_of, gpubuf

pytestmark = pytest.mark.once  # the disk's own work

ARRAY = np.arange(80000, dtype=np.float32).reshape(200, 400)


@pytest.fixture
def c(start, tmp_path):
    with client_of(start(state=str(tmp_path / "state")), "default") as client:
        client.put("w.x", ARRAY, durability="sync")
        client.put("w.y", ARRAY[0])
        client.put("other", ARRAY[1])
        yield client


def test_a_session_comes_back(c):
    made = c.checkpoint("c1", prefix="w.")
    assert (made["name"], made["session"], made["state"], made["buffers"]) == ("c1", "default", "complete", 2)
    assert (made["linked_bytes"], made["written_bytes"], made["skipped"]) == (ARRAY.nbytes, ARRAY[0].nbytes, [])
    assert (c.checkpoints() == [c.checkpoint_info("c1")] and c.checkpoints("default") == c.checkpoints()
            and c.checkpoints("absent") == [])
    c.put("w.x", ARRAY + 1)
    with pytest.raises(gpubuf.BufferExists):
        c.restore("c1")
    done = c.restore("c1", prefix="old.", load="eager")
    assert (done["checkpoint"], done["session"], done["buffers"], done["loaded"],
            done["skipped"]) == ("c1", "default", 2, 2, [])
    assert ((c.get("old.w.x") == ARRAY).all() and (c.get("old.w.y") == ARRAY[0]).all()
            and (c.get("w.x") == ARRAY + 1).all())
    assert c.restore("c1", names=["w.x"], replace=True)["replaced"] == 1 and (c.get("w.x") == ARRAY).all()
    c.sessions.create("team")
    assert c.restore("c1", into="team", device=0)["session"] == "team"
    assert (c.with_session("team").get("w.x") == ARRAY).all()
    c.delete_checkpoint("c1")
    assert c.checkpoints() == [] and (c.get("old.w.x") == ARRAY).all()
    with pytest.raises(gpubuf.CheckpointNotFound):
        c.restore("c1")


def test_another_session_and_names(c):
    c.sessions.create("team")
    c.with_session("team").put("t", ARRAY)
    assert c.checkpoint("c1", session="team")["session"] == "team"
    assert c.with_session("team").checkpoint("c2", names=["t"], lenient=True, unstable=True)["buffers"] == 1
    assert {k["name"] for k in c.checkpoints("team")} == {"c1", "c2"} and c.checkpoints("default") == []
    with pytest.raises(gpubuf.CheckpointExists):
        c.checkpoint("c1")
    with pytest.raises(gpubuf.BufferNotFound):
        c.checkpoint("c3", names=["absent"])


def test_a_lost_buffer_is_an_error_or_skipped(start, tmp_path):
    state = str(tmp_path / "state")
    first = start(state=state)
    with client_of(first, "default") as c:
        c.put("mortal", ARRAY)
        c.put("kept", ARRAY, durability="sync")
    first.kill()
    first.clean()
    with client_of(start(state=state), "default") as c:
        with pytest.raises(gpubuf.ContentLost):
            c.checkpoint("c1")
        made = c.checkpoint("c1", lenient=True)
        assert (made["buffers"], made["skipped_buffers"],
                made["skipped"]) == (1, 1, [{"buffer": "mortal", "code": "content_lost"}])


def test_damage_is_found(c, tmp_path):
    c.checkpoint("c1", names=["w.x"])
    found = c.verify_checkpoint("c1")
    assert (found["match"], found["buffers"], found["bytes"], found["damaged"]) == (True, 1, ARRAY.nbytes, [])
    c.delete("w.x")
    os.truncate(tmp_path / "state" / "data" / "checkpoints" / "c1" / "00001.safetensors", 1000)
    found = c.verify_checkpoint("c1")
    assert (found["match"], found["damaged_buffers"]) == (False, 1) and found["damaged"][0]["buffer"] == "w.x"
    with pytest.raises(gpubuf.ContentDamaged):
        c.restore("c1")


def test_a_checkpoint_in_the_background(c):
    operation = c.submit(c.checkpoint, "c1")
    if operation["id"]:
        operation = c.operations.wait(operation)
    assert operation["result"]["name"] == "c1" and c.checkpoint_info("c1")["buffers"] == 3
