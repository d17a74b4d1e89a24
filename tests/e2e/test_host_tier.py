"""Bytes that leave a device for the memory of the host, and come back from there."""
import threading

import pytest

from conform import Session
from gpubuf_cli import FAILED, Cli
from harness import metric, until
from values import payload

LARGE = 3 << 20
PAGES = LARGE  # whole pages
ROOM = ("--spill-host-bytes", str(2 * PAGES))


def where(s, name):
    found = s.meta(name)
    return found["state"], found["tier"]


def host(s):
    return s.daemon.ask("GET", "/v1/storage").expect(200).json()["host"]


def until_used(s, used):
    until("host memory is given back", lambda: host(s)["used_bytes"] == used)


@pytest.mark.parametrize("durability, stored", [("none", None), ("sync", 1)])
def test_there_and_back(start, tmp_path, durability, stored):
    d = start(*ROOM, state=str(tmp_path))
    s = Session(d)
    before = s.put("b", payload(LARGE), "?durability=" + durability)
    tag = d.ask("HEAD", "/v1/sessions/default/buffers/b/data").headers["ETag"]
    gone = s.post("buffers/b/evict", {"to": "host"})
    assert (gone["state"], gone["tier"], gone["stored_generation"]) == ("stored", "host", stored)
    assert s.get()["used_bytes"] == 0
    assert host(s) == {"limit_bytes": 2 * PAGES, "used_bytes": PAGES, "kept_bytes": 0, "buffers": 1}
    assert metric(d, "gpubufd_spill_host_bytes") == PAGES and metric(d, "gpubufd_evictions_to_host_total") == 1
    got = d.ask("GET", "/v1/sessions/default/buffers/b/data", headers={"Range": "bytes=1000000-1999999"})
    assert got.status == 206 and got.body == payload(LARGE)[1000000:2000000]
    assert s.post("buffers/b/load")["tier"] == before["tier"]
    assert s.data("b") == payload(LARGE) and d.ask("HEAD", "/v1/sessions/default/buffers/b/data").headers["ETag"] == tag
    until_used(s, 0)
    until("the load is counted", lambda: metric(d, "gpubufd_loads_from_host_total") == 1)
    s.post("buffers/b/evict", {"to": "host"})
    s.post("buffers/b/evict", {"to": "disk"})
    assert where(s, "b") == ("stored", "disk")
    until_used(s, 0)
    assert s.data("b") == payload(LARGE)
    assert s.post("buffers/b/verify")["crc32c"] == before["crc32c"]
    s.post("buffers/b/load")
    s.post("buffers/b/evict", {"to": "host"})
    d.kill()
    d.clean()
    s = Session(start(*ROOM, state=str(tmp_path)))
    if stored:
        assert where(s, "b") == ("stored", "disk") and s.data("b") == payload(LARGE)
    else:
        assert s.meta("b")["state"] == "lost"


def test_what_spill_says(start, tmp_path):
    s = Session(start("--spill-host-bytes", str(PAGES), "--min-resident-ms", "0", state=str(tmp_path)))
    s.patch("", {"quota": {"bytes": 2 * LARGE}, "spill": "host"})
    for i, name in enumerate("abcd"):
        assert s.put(name, payload(LARGE, i))["spill"] == "host"
    assert {n: where(s, n)[1] for n in "abcd"} == {"a": "host", "b": "disk", "c": "device", "d": "device"}
    for i, name in enumerate("abcd"):
        assert s.data(name) == payload(LARGE, i)
    s.ask("DELETE", "buffers/a").expect(204)
    until_used(s, 0)
    s.put("b", payload(LARGE, 9))  # over the file; one of the others makes room
    assert sorted(where(s, n)[1] for n in "bcd") == ["device", "device", "host"]
    assert s.data("b") == payload(LARGE, 9) and s.data("c") == payload(LARGE, 2) and s.data("d") == payload(LARGE, 3)


def test_refusals(start, tmp_path):
    d = start("--spill-host-bytes", str(PAGES), state=str(tmp_path))
    s = Session(d)
    s.put("b", payload(LARGE), "?durability=none")
    s.put("c", payload(LARGE), "?durability=none")
    s.put("small", b"abcd", "?durability=none")
    s.put("pinned", payload(LARGE), "?durability=none&kind=pinned")
    assert "it is \"host\" or \"disk\"" in s.ask("POST", "buffers/b/evict",
                                                 {"to": "never"}).expect(400).json()["detail"]
    assert "it is \"host\" or \"disk\"" in s.ask("POST", "evict", {"to": "tape"}).expect(400).json()["detail"]
    assert s.ask("POST", "load", {"to": "host"}).expect(400).json()["code"] == "unknown_field"
    assert s.ask("POST", "buffers/b/evict", {"to": 1}).expect(400).json()["code"] == "wrong_type"
    for name in ("small", "pinned"):
        assert s.ask("POST", f"buffers/{name}/evict", {"to": "host"}).expect(400).json()["code"] == "invalid_argument"
    s.post("buffers/b/evict", {"to": "host"})
    refused = s.ask("POST", "buffers/c/evict", {"to": "host"}).expect(507)
    assert "--spill-host-bytes" in refused.json()["detail"] and refused.json()["limit_bytes"] == PAGES
    assert where(s, "c")[0] == "ready" and s.data("c") == payload(LARGE)
    swept = s.post("evict", {"to": "host"})
    assert swept["buffers"] == 0
    assert {x["buffer"]: x["code"] for x in swept["skipped"]} == {
        "c": "storage_full", "small": "invalid_argument", "pinned": "invalid_argument"}
    swept = s.post("evict", {"to": "disk", "prefix": "b"})
    assert (swept["buffers"], swept["bytes"]) == (1, LARGE) and where(s, "b") == ("stored", "disk")


def test_without_host_memory(start, tmp_path):
    s = Session(start(state=str(tmp_path)))
    s.put("b", payload(LARGE), "?durability=none&spill=host")
    refused = s.ask("POST", "buffers/b/evict", {"to": "host"}).expect(400)
    assert "start it with --spill-host-bytes" in refused.json()["detail"]
    assert s.post("buffers/b/evict")["tier"] == "disk"
    assert host(s) == {"limit_bytes": 0, "used_bytes": 0, "kept_bytes": 0, "buffers": 0}


def test_a_checkpoint_has_what_is_in_host_memory(start, tmp_path):
    s = Session(start(*ROOM, state=str(tmp_path)))
    s.put("a", payload(LARGE, 1), "?durability=none")
    s.put("b", payload(LARGE, 2), "?durability=sync")
    s.post("evict", {"to": "host"})
    made = s.post("checkpoints", {"name": "c1"}, 201)
    assert made["buffers"] == 2 and made["skipped_buffers"] == 0
    s.ask("DELETE", "buffers/a").expect(204)
    s.ask("DELETE", "buffers/b").expect(204)
    until_used(s, 0)
    s.daemon.ask("POST", "/v1/checkpoints/c1/verify", {}).expect(200)
    s.daemon.ask("POST", "/v1/checkpoints/c1/restore", {}).expect(200)
    assert s.data("a") == payload(LARGE, 1) and s.data("b") == payload(LARGE, 2)


def test_everything_at_once(start, tmp_path):
    """Buffers go and come from several sides; each read has the bytes of one upload, and no block is lost."""
    s = Session(start("--spill-host-bytes", str(3 * PAGES), state=str(tmp_path)))
    names = [f"b{i}" for i in range(6)]
    bodies = {payload(LARGE, i) for i in range(6)} | {payload(LARGE, 100 + i) for i in range(6)}
    wrong = []
    for i, name in enumerate(names):
        s.put(name, payload(LARGE, i), "?durability=none&spill=host")

    def play(worker):
        mine = Session(s.daemon)
        for turn in range(30):
            i = (worker + turn) % 6
            name = names[i]
            step = (worker * 7 + turn) % 5
            if step == 0:
                mine.ask("POST", f"buffers/{name}/evict", {"to": "host"})
            elif step == 1:
                mine.ask("POST", f"buffers/{name}/load", {})
            elif step == 2:
                got = mine.ask("GET", f"buffers/{name}/data")
                if got.status != 200 or got.body not in bodies:
                    wrong.append((name, got.status, len(got.body)))
            elif step == 3:
                mine.ask("POST", f"buffers/{name}/evict", {"to": "disk"})
            else:
                mine.put(name, payload(LARGE, 100 + i))

    workers = [threading.Thread(target=play, args=(k,)) for k in range(6)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert wrong == []
    for name in names:
        assert s.data(name) in bodies
        s.ask("DELETE", f"buffers/{name}").expect(204)
    until_used(s, 0)
    assert host(s)["buffers"] == 0 and host(s)["kept_bytes"] <= 3 * PAGES


def test_the_command_line(start, tmp_path):
    d = start(*ROOM, state=str(tmp_path))
    cli = Cli(d.url(""))
    cli("put", "-", "b", "--raw", "--spill", "host", input=payload(LARGE)).expect()
    assert cli("evict", "b", "--to", "host").expect().out == "b  3.0 MiB  in host memory until the daemon ends\n"
    assert cli("evict", "b", "--to", "disk").expect().out == "b  3.0 MiB  on disk until the daemon ends\n"
    cli("load", "b").expect()
    assert "1" in cli("sessions", "evict", "default", "--to", "host").expect().out
    assert Session(d).meta("b")["tier"] == "host"
    assert "it is \"host\" or \"disk\"" in cli("evict", "b", "--to", "device").expect(FAILED).err
    assert cli("get", "b", "-").expect().raw == payload(LARGE)
