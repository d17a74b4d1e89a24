"""Many clients at the limit of a small pool, and the isolation of sessions."""
import random
import threading

from conform import Session
from harness import PATIENCE_S, until
from values import payload

MIB = 1 << 20
POOL, PIECE = 64 * MIB, 3 * MIB


class Churner(threading.Thread):
    """Allocates and frees; counts the answers."""

    def __init__(self, s, number, rounds):
        super().__init__()
        self.s, self.number, self.rounds, self.wrong = s, number, rounds, None
        self.client = s.daemon.client()
        self.made = self.refused = 0
        self.rng = random.Random(number)

    def run(self):
        try:
            for i in range(self.rounds):
                self.step(i)
        except Exception as e:  # reported by the main thread
            self.wrong = e

    def step(self, i):
        name = f"x{self.number}"
        wait = {"Prefer": "wait=20"} if self.rng.random() < 0.5 else {}
        body = {"name": name, "bytes": self.rng.randrange(1, PIECE), "pool": "p"}
        r = self.client.ask("POST", self.s.base + "/buffers", body, wait)
        if r.status == 507:
            p = r.json()
            assert p["code"] in ("out_of_memory", "quota_exceeded") and p["used_bytes"] <= p["limit_bytes"], p
            self.refused += 1
            return
        assert r.status == 201, r
        self.made += 1
        session = self.client.ask("GET", self.s.base).json()
        assert session["used_bytes"] <= session["quota"]["bytes"], session
        if i % 4 == 0:
            fresh = self.client.ask("GET", f"{self.s.base}/buffers/{name}/data", None, {"Range": "bytes=0-4095"})
            assert fresh.status == 206 and not any(fresh.body)
        r = self.client.ask("DELETE", f"{self.s.base}/buffers/{name}")
        assert r.status == 204, r


def test_sixty_four_clients_at_the_edge_of_a_pool(start):
    d = start("--http-threads", "4")
    d.ask("POST", "/v1/sessions", {"name": "edge", "quota": {"bytes": POOL + 8 * MIB}}).expect(201)
    s = Session(d, "edge")
    s.post("pools", {"name": "p", "max_bytes": POOL}, 201)
    churners = [Churner(s, n, 12) for n in range(64)]
    for c in churners:
        c.start()
    for c in churners:
        c.join(10 * PATIENCE_S)
    assert not any(c.is_alive() for c in churners), "deadlock"
    assert [c.wrong for c in churners if c.wrong] == []
    assert sum(c.made for c in churners) > 0 and sum(c.made + c.refused for c in churners) == 64 * 12
    p = until("all is given back", lambda: (lambda p: p if p["used_bytes"] == 0 else None)(s.get("pools/p")))
    until("it is given back", lambda: s.get()["used_bytes"] == 0 and s.names("buffers") == [])
    assert (p["allocations"] == p["frees"] > 0 and p["allocated_bytes"] == p["freed_bytes"] and p["used_peak_bytes"]
            <= POOL)
    s.delete("pools/p")


def test_no_session_sees_what_another_left_in_a_pool(start, simulated):
    """A pattern is written to all memory; new buffers of another session hold none of it."""
    d = start(spec=simulated("bytes=64M"))
    d.ask("POST", "/v1/sessions", {"name": "other"}).expect(201)
    one, other = Session(d), Session(d, "other")
    size, planted, read = 4 * MIB, 0, 0
    while one.ask("PUT", f"buffers/x{planted}/data", b"\xa5" * size).status == 201:
        planted += 1
    assert planted >= 12
    for i in range(planted):
        one.delete(f"buffers/x{i}")
    # Memory that was freed a moment ago may still be on its way back.
    while other.ask("POST", "buffers", {"name": f"y{read}", "bytes": size}, {"Prefer": "wait=20"} if read
                    < planted else {}).status == 201:
        assert not any(other.data(f"y{read}"))
        read += 1
    assert read >= planted


def test_no_session_sees_what_another_left_in_other_kinds(daemon, s):
    kinds = [k for k, v in daemon.get("/v1/devices/0")["kinds"].items() if v["supported"]]
    for kind in kinds:
        for i in range(4):
            Session(daemon).put("dirty", b"\xa5" * MIB, f"?kind={kind}")
            Session(daemon).delete("buffers/dirty")
            s.buffer(f"{kind}{i}", bytes=MIB, kind=kind)
            assert not any(s.data(f"{kind}{i}")), kind


def test_a_part_of_a_fresh_buffer_is_not_another_s(s):
    for i in range(4):
        Session(s.daemon).put("dirty", b"\xa5" * MIB)
        Session(s.daemon).delete("buffers/dirty")
        s.put("src", payload(100))
        s.buffer(f"x{i}", bytes=MIB)
        s.copy(f"x{i}", "src", offset=1000)
        s.fill(f"x{i}", 7, offset=5000, bytes=10)
        want = bytearray(MIB)
        want[1000:1100], want[5000:5010] = payload(100), b"\7" * 10
        assert s.data(f"x{i}") == bytes(want)


def test_what_never_fits_is_not_to_be_asked_again(start, simulated):
    """The answer is retryable only if waiting could help; a request larger than the pool or device does not wait."""
    d = start(spec=simulated("bytes=256M"))
    s = Session(d)
    s.post("pools", {"name": "p", "max_bytes": POOL}, 201)
    s.post("pools", {"name": "wide", "max_bytes": 1024 * MIB}, 201)
    held = {"name": "held", "bytes": POOL - PIECE, "pool": "p"}
    s.post("buffers", held, 201)
    for more, limit in (({"bytes": 2 * PIECE, "pool": "p"}, None), ({"bytes": POOL + 1, "pool": "p"}, POOL),
                        ({"bytes": 257 * MIB}, 256 * MIB), ({"bytes": 257 * MIB, "pool": "wide"}, 256 * MIB),
                        ({"bytes": 257 * MIB, "kind": "shared"}, 256 * MIB)):
        wait = {"Prefer": "wait=60"} if limit else {}
        p = s.ask("POST", "buffers", {"name": "x", **more}, wait).problem(507, "out_of_memory")
        assert p["retryable"] == (limit is None) == ("waiting does not help" not in p["detail"]), p
        assert limit is None or (p["limit_bytes"], p["requested_bytes"]) == (limit, more["bytes"]), p
    p = s.ask("PUT", "buffers/x/data?pool=p", bytes(POOL + 1)).problem(507, "out_of_memory")
    assert not p["retryable"] and "waiting does not help" in p["detail"]
