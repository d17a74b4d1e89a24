"""The page of a daemon with durable buffers: where the bytes of each are."""
import json

from pages import browser, look, open_page, rows  # noqa: F401
from values import payload


def durable(page):
    """State, place of the bytes and durability of each buffer."""
    return {row[0]: tuple(row[-3:]) for row in rows(page, "buffers")}


def test_where_the_bytes_are(start, open_page, tmp_path):
    d = start("--durable-lag", "3600", state=str(tmp_path))
    for name, word in (("s", "sync"), ("b", "behind"), ("n", "none")):
        d.put(name, payload(100), query=f"?dtype=uint8&shape=100&durability={word}").expect(201)
    d.ask("POST", "/v1/sessions/default/buffers/b/store", {}).expect(200)
    d.put("b", payload(100, 1), query="?dtype=uint8&shape=100").expect(200)
    page = open_page(d)
    page.until("all are there", "document.querySelectorAll('#buffers tbody tr').length === 3")
    assert durable(page) == {"s": ("ready", "device, disk", "sync"), "b": ("ready", "device; disk has generation 1",
                                                                           "behind"), "n": ("ready", "device", "none")}
    page.keep("durable")


def test_what_may_leave_memory_is_told(start, open_page):
    d = start()
    d.put("x", payload(100), query="?dtype=uint8&shape=100&spill=disk").expect(201)
    d.ask("PATCH", "/v1/sessions/default/buffers/x", {"resident": True}).expect(200)
    d.put("plain", payload(100), query="?dtype=uint8&shape=100").expect(201)
    page = open_page(d)
    for name, told in (("x", " · durability none · spill disk · resident · changed "),
                       ("plain", " · durability none · changed ")):
        look(page, name)
        page.until("it is told", f"document.getElementById('look-about').textContent.includes({json.dumps(told)})")
        page.click("#look-close")


def test_after_a_restart(start, open_page, tmp_path):
    d = start(state=str(tmp_path))
    for name, word in (("s", "sync"), ("n", "none")):
        d.put(name, payload(100), query=f"?dtype=uint8&shape=100&durability={word}").expect(201)
    d.stop()
    d = start(state=str(tmp_path))
    page = open_page(d)
    page.until("both are there", "document.querySelectorAll('#buffers tbody tr').length === 2")
    assert durable(page) == {"s": ("stored", "disk", "sync"), "n": ("lost", "–", "none")}
    assert page.js("[...document.querySelectorAll('#buffers td.bad')].map(c => c.innerText)") == ["lost"]
    d.ask("POST", "/v1/sessions/default/buffers/s/load", {}).expect(200)
    page.until("it was loaded", "document.querySelector('#buffers tbody').textContent.includes('device, disk')")
    page.choose("#feed-type", "buffer")
    page.until("the feed says so", "document.getElementById('feed').textContent.includes('buffer.loaded')")


def where(page):
    """The places of a session's bytes, and the widths in percent of its bar: in memory, and with what has left it."""
    row = next(row for row in rows(page, "sessions") if row[0] == "default")
    return row[6], page.js("['used', 'reserved'].map(c => Number.parseFloat(document.querySelector(`#sessions "
                           ".${c}`).style.width))")


def test_where_the_bytes_of_a_session_are(start, open_page):
    d = start("--spill-host-bytes", "8M", spec="host:discrete")
    size = 1 << 20
    for name, query in (("a", "&spill=host"), ("b", "&durability=sync"), ("c", ""), ("d", "&kind=pinned")):
        d.put(name, payload(size), query="?dtype=uint8&shape=1048576" + query).expect(201)
    page = open_page(d)
    page.until("all are in memory", "document.getElementById('sessions').textContent.includes('device 3.00 MiB, host "
               "1.00 MiB')")
    assert where(page) == ("device 3.00 MiB, host 1.00 MiB", [0, 0])  # there is no quota
    d.ask("POST", "/v1/sessions/default/buffers/a/evict", {"to": "host"}).expect(200)
    d.ask("POST", "/v1/sessions/default/buffers/b/evict", {}).expect(200)
    page.until("two have left", "document.getElementById('sessions').textContent.includes('device 1.00 MiB, host 2.00 "
               "MiB, disk 1.00 MiB')")
    assert where(page)[1] == [50, 100]
    assert {name: row[1] for name, row in durable(page).items()} == {"a": "host", "b": "disk", "c": "device",
                                                                     "d": "host"}
    d.ask("PATCH", "/v1/sessions/default", {"quota": {"bytes": 8 * size}}).expect(200)
    page.until("the quota is known", "document.getElementById('sessions').textContent.includes('8.00 MiB')")
    assert where(page)[1] == [25, 50]
    page.keep("places")
