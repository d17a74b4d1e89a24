"""gpubuf put and get --retry: transfers over connections that are cut, and what continues from where."""
import os
import re
import threading

import pytest

import test_cli_models as models
import test_tables as tables
from fleet import Relay
from gpubuf_cli import DONE, INTERRUPTED, UNREACHABLE, Cli, Terminal, interrupt
from harness import PATIENCE_S, until

BYTES = 8 << 20
PART = 1 << 20  # bytes between two cuts


class Cutter(Relay):
    """Resets a connection when PART bytes of one request, or of its answer, have passed: so often."""

    def __init__(self, target, up=0, down=0):
        super().__init__(target)
        self.up, self.down, self.watch = up, down, self.look

    def look(self, asked):
        if self.up > 0 and len(asked) > PART:
            self.up -= 1
            return "stop"
        return None

    def _step(self, link, source, sink, up):
        before = self.passed
        going = super()._step(link, source, sink, up)
        if not up:
            link.sent = getattr(link, "sent", 0) + self.passed - before
            if going and self.down > 0 and link.sent > PART:
                self.down -= 1
                return self._end(link)
        return going


@pytest.fixture
def relay(daemon):
    relays = []

    def make(**cuts):
        relays.append(Cutter(daemon.tcp, **cuts))
        return relays[-1]

    yield make
    for r in relays:
        r.close()


@pytest.fixture
def file(tmp_path):
    data = os.urandom(BYTES)
    (tmp_path / "x.bin").write_bytes(data)
    return tmp_path / "x.bin", data


def test_an_upload_goes_on_where_it_broke_off(daemon, session, relay, file):
    path, data = file
    r = relay(up=3)
    said = Cli(r.url, session)("put", path, "--retry", 3, "-v", "--json").expect()
    assert said.json()["bytes"] == BYTES and r.up == 0
    assert daemon.data("x", session).body == data
    assert len(re.findall(r"PATCH \S+ -> ", said.err)) == 4 and re.search(r"GET \S+/uploads/\S+ -> 200", said.err)
    assert not daemon.open_uploads(session)


@pytest.mark.parametrize("order", "CF")
def test_a_npy_goes_on_too(daemon, session, relay, tmp_path, order):
    np = pytest.importorskip("numpy")
    array = np.asarray(np.arange(BYTES // 4, dtype=np.float32).reshape(2, -1), order=order)
    np.save(tmp_path / "a.npy", array)
    made = Cli(relay(up=2).url, session).json("put", tmp_path / "a.npy", "--retry", 2, "--labels", "k=v")
    assert (made["dtype"], made["shape"], made["labels"]) == ("float32", list(array.shape), {"k": "v"})
    assert daemon.data("a", session).body == array.tobytes()


def test_a_safetensors_file_goes_on_too(daemon, session, relay, tmp_path):
    np = pytest.importorskip("numpy")
    body = tables.file({f"t{i}": np.full(BYTES // 16 + i, i, "uint8") for i in range(16)}, {"format": "pt"})
    (tmp_path / "m.safetensors").write_bytes(body)
    r = relay(up=3)
    said = Cli(r.url, session)("put", tmp_path / "m.safetensors", "m", "--retry", 3, "-v", "--json").expect()
    assert said.json()["dtype"] == "tensors" and r.up == 0 and len(re.findall(r"PATCH \S+ -> ", said.err)) == 4
    assert daemon.data("m", session).body == body


def test_a_model_of_several_files_goes_on_too(daemon, session, relay, tmp_path):
    np = pytest.importorskip("numpy")
    parts = {models.shard(i, 2): {f"l{i}": np.full(BYTES // 2, i, "uint8")} for i in (1, 2)}
    models.write(tmp_path / "M", parts)
    r = relay(up=4)
    said = Cli(r.url, session)("put", tmp_path / "M", "m", "--retry", 4, "-v").expect()
    assert r.up == 0 and len(re.findall(r"PATCH \S+ -> ", said.err)) == 6
    Cli(daemon.url(""), session)("get", "m", f"{tmp_path}/out/").expect()
    models.same(tmp_path / "M", tmp_path / "out")
    assert not daemon.open_uploads(session)


def test_retries_are_counted_and_nothing_is_left(daemon, session, relay, file):
    said = Cli(relay(up=3).url, session)("put", file[0], "--retry", 2).expect(UNREACHABLE)
    assert "gpubuf: " in said.err
    until("no upload is open", lambda: not daemon.open_uploads(session))
    assert Cli(daemon.url(""), session).json("ls") == []


def test_an_answer_that_is_lost_is_no_failure(daemon, session, relay, file):
    r = relay()
    r.drop_answer(lambda asked: len(asked) >= BYTES)
    assert Cli(r.url, session).json("put", file[0], "--retry", 1)["bytes"] == BYTES
    assert r.dropped == 1 and daemon.data("x", session).body == file[1]


def test_a_download_goes_on_where_it_broke_off(daemon, session, relay, file, tmp_path):
    daemon.put("x", file[1], session).expect(201)
    r = relay(down=5)
    said = Cli(r.url, session)("get", "x", tmp_path / "y", "--retry", 5).expect()
    assert (tmp_path / "y").read_bytes() == file[1] and r.down == 0 and said.err == ""
    assert Cli(relay(down=4).url, session)("get", "x", "--retry", 4).expect().raw == file[1]
    assert Cli(relay(down=1).url, session)("get", "x", tmp_path / "z", "--retry", 0).status == UNREACHABLE
    assert not (tmp_path / "z").exists()


def test_the_progress_is_of_the_whole(daemon, session, relay, file):
    t = Terminal(Cli(relay(up=2).url, session), "put", file[0], "--retry", 2)
    t.end(DONE)
    assert b"8.0 MiB  100 %" in t.text and b"gpubuf:" not in t.text


def test_an_interrupt_leaves_no_upload(daemon, session, relay, file):
    r, seen, held = relay(), threading.Event(), threading.Event()

    def hold(asked):
        if len(asked) > PART:
            seen.set()
            held.wait(PATIENCE_S)

    r.watch = hold
    p = Cli(r.url, session).start("put", file[0], "--retry", 9)
    try:
        assert seen.wait(PATIENCE_S)
        assert "nothing is half-done" in interrupt(p).expect(INTERRUPTED).err
    finally:
        held.set()
    until("no upload is open", lambda: not daemon.open_uploads(session))
