"""Memory does not grow with the body. GB_E2E_BIG=1; the figures are printed (pytest -s)."""
import pytest

from harness import DATA, Raw
from values import payload

SIZE = 4 << 30
BLOCK = 16 << 20
SLOTS = 64 << 20
ALLOWANCE = 32 << 20


class Peak:
    """The peak of RssAnon, sampled between blocks."""

    def __init__(self, daemon):
        self.daemon, self.start = daemon, daemon.rss_anon()
        self.most = self.start

    def look(self):
        self.most = max(self.most, self.daemon.rss_anon())

    @property
    def growth(self):
        self.look()
        return self.most - self.start


@pytest.mark.big
@pytest.mark.parametrize("expect", [True, False])
def test_4_gib_pass(start, backend, capsys, expect):
    """On the host backends the buffer itself is memory of the process; touching it first excludes it from the
    growth."""
    d = start("--slots-bytes", str(SLOTS))
    cold = d.rss_anon()
    block = payload(BLOCK)
    path = DATA.format("default", "x")
    d.ask("POST", "/v1/sessions/default/buffers", {"name": "x", "bytes": SIZE}).expect(201)
    with d.raw() as r:  # touches every page of the buffer and every slot once
        r.put(path + "?in_place=true&dtype=uint8", SIZE).send(b"")
        for _ in range(SIZE // BLOCK):
            r.send(block)
        assert r.reply().status == 200
    warm = d.rss_anon()
    up = Peak(d)
    with d.raw() as r:
        r.put(path + "?in_place=true&dtype=uint8", SIZE, expect=expect)
        if expect:
            assert r.head()[0] == 100
        for _ in range(SIZE // BLOCK):
            r.send(block)
            up.look()
        assert r.reply().status == 200
    down = Peak(d)
    with d.raw() as r:
        assert Raw.request(r, "GET", path).head()[0] == 200
        for _ in range(SIZE // BLOCK):
            assert r.exactly(BLOCK) == block
            down.look()
    with capsys.disabled():
        mib = [round(x / (1 << 20), 1) for x in (cold, warm, up.growth, down.growth)]
        print(f"\n{backend}, expect={expect}: RssAnon at start {mib[0]} MiB, with the buffer touched {mib[1]} MiB, "
              f"growth during upload {mib[2]} MiB, during download {mib[3]} MiB")
    own = SIZE if backend.startswith("host") else 0
    assert warm - cold <= own + SLOTS + ALLOWANCE
    assert up.growth <= SLOTS + ALLOWANCE and down.growth <= SLOTS + ALLOWANCE
