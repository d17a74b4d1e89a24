"""Rates in the page, and the number of requests that they need."""
import time

import pytest
from bursts import BURST, bursts, rate
from pages import browser, open_page, rows  # noqa: F401


def asked(page, seconds):
    """The number of requests that the page makes meanwhile."""
    page.js("1")
    before = len(page.urls)
    time.sleep(seconds)
    page.js("1")
    return page.urls[before:]


def test_rates_of_what_comes_in_bursts(start, open_page):
    d = start("--sample-interval", "2")
    page = open_page(d)
    with bursts(d):
        page.until("it was watched for long enough", "!document.getElementById('now-up').textContent.includes('–')")
        time.sleep(6)
        seen = []
        for _ in range(16):
            seen.append([rate(page.text(f"#now-{way}")) for way in ("up", "down")])
            time.sleep(0.25)
        points = page.js("Chart.getChart('chart-rates').data.datasets.map(s => s.data.filter(p => p.y !== null).map(p "
                         "=> [p.x, p.y]))")
        none = page.js("document.getElementById('chart-split').closest('figure').innerText.includes('No copies on this "
                       "device')")
        page.keep("rates")
    assert none == d.get("/v1/devices/0")["cpu_access"]
    assert all(0.7 * BURST < x < 1.3 * BURST for both in seen for x in both), seen
    for line in points:
        assert len(line) >= 3 and all(b[0] - a[0] >= 1000 for a, b in zip(line, line[1:])), line
        # one of the daemon's samples of 2 s may contain an additional burst
        assert max(y for _, y in line) < 2.1 * BURST, line


@pytest.mark.once  # the page's own work
def test_the_window(start, open_page):
    page = open_page(start())
    # A burst of 50 each second, sampled every fraction of a second; after 40 s another daemon answers.
    made = """import('/ui/rates.js').then(({speed, thinned}) => {
      const samples = [];
      for (let at = 0; at < 40000; at += samples.length % 3 ? 110 : 640) samples.push({at, n: 50 * Math.floor(at / 1000)});
      samples.push(null);
      for (let at = 40000; at < 50000; at += 400) samples.push({at, n: 50 * Math.floor((at - 40000) / 1000)});
      return {all: samples.map((s, i) => [s && s.at, speed(samples, i, 'n')]), picked: thinned(samples, 5000, 10000).map(({sample}) => sample && sample.at)}; })"""
    said = page.js(made)
    for at, per_s in said["all"]:
        young = at is None or at < 5000 or 40000 <= at < 45000
        assert (per_s is None) if young else abs(per_s - 50) <= 50 * 1.1 / 5, (at, per_s)
    times = [at for at in said["picked"] if at is not None]
    assert None in said["picked"] and [at // 10000 for at in times] == [1, 2, 3, 4], said["picked"]


@pytest.mark.once  # the page's own work
def test_it_asks_little(start, open_page):
    d = start()
    for i in range(5):
        d.ask("POST", "/v1/sessions", {"name": f"s{i}"}).expect(201)
        d.put("x", b"1234", f"s{i}", "?dtype=uint8&shape=4").expect(201)
    page = open_page(d)
    page.until("all is there", "document.querySelectorAll('#buffers tbody tr').length === 5")
    time.sleep(5)  # the page reads a recent change again
    idle = asked(page, 8)
    assert len(idle) <= 8, idle
    with bursts(d):
        busy = asked(page, 8)
    assert len(busy) <= 48 and not [u for u in busy if "/s1/" in u], busy

    def soon(i):
        began = time.monotonic()
        d.put(f"new{i}", b"1234", query="?dtype=uint8&shape=4").expect(201)
        page.until("it is there", f"document.getElementById('buffers').textContent.includes('new{i}')")
        return time.monotonic() - began < 2

    assert any([soon(i) for i in range(3)])
    d.ask("DELETE", "/v1/sessions/s1").expect(204)
    page.until("a session goes", "!document.getElementById('sessions').textContent.includes('s1')")
    assert len(rows(page, "sessions")) == 5
