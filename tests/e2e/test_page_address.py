"""The address of the page keeps what it shows; the title, the zone of times, the links, and the warning before memory
ends."""
import pytest
from harness import token, until
from pages import browser, furnish, look, open_page, rows  # noqa: F401

FULL = "document.getElementById('room').checkVisibility() && document.getElementById('room').textContent"


def state(page):
    return page.js("['range', 'filter', 'feed-type', 'time'].map(id => document.getElementById(id).value)")


@pytest.mark.once
def test_a_reload_a_link_and_the_back_button_keep_what_is_shown(start, open_page):
    d = start()
    furnish(d)
    page = open_page(d)
    page.until("all buffers are there", "document.querySelectorAll('#buffers tbody tr').length === 10")
    assert page.js("location.hash") == "" and page.js("document.title") == "{}:{} · gpubufd".format(*d.tcp)
    page.choose("#range", "3600")
    page.fill("#filter", "layer float16")
    page.choose("#feed-type", "buffer")
    page.choose("#time", "utc")
    there = page.js("location.href")
    want = ["3600", "layer float16", "buffer", "utc"]
    page.call("Page.reload")
    page.until("it shows the same", "document.querySelectorAll('#buffers tbody tr').length === 8")
    assert state(page) == want
    until("that range was asked for", lambda: page.js("1") and d.url("/v1/stats?since=-3600") in page.urls)
    other = open_page(d, at=there.partition("/#")[2] and "#" + there.partition("#")[2])
    other.until("another browser shows the same", "document.querySelectorAll('#buffers tbody tr').length === 8")
    assert state(other) == want and not any("float16" in u.partition("#")[0] for u in page.urls + other.urls)
    look(page, "layer1.weight")
    assert page.js("document.title") == "default/layer1.weight · {}:{} · gpubufd".format(*d.tcp)
    page.js("history.back()")
    page.until("the buffer is closed", "!document.getElementById('look').open")
    page.js("history.back()")
    page.until("the range is the one before", "document.getElementById('range').value === '300' && location.hash === "
               "''")
    page.js("history.go(2)")
    page.until("the buffer is open again", "document.getElementById('look').open && "
               "document.getElementById('range').value === '3600'")
    page.key("Escape", 27)
    page.until("and closed", "!document.getElementById('look').open && !location.hash.includes('buffer=')")
    page.js("document.querySelector('.skip').click()")
    assert page.js("document.activeElement.id") == "main" and "filter" in page.js("location.hash")
    page.js("location.hash = '#range=nonsense&buffer=x&feed=y&time=z'")
    page.until("nonsense is the default", "document.getElementById('range').value === '300'")
    assert state(page) == ["300", "", "all", ""] and not page.js("document.querySelector('dialog[open]')")


@pytest.mark.once
def test_the_zone_of_times_is_said_and_chosen(start, open_page):
    d = start()
    d.put("x", b"1234", query="?dtype=uint8&shape=4").expect(201)
    page = open_page(d)
    page.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    page.call("Page.reload")
    page.until("the buffer is there", "document.querySelectorAll('#buffers tbody tr').length === 1")
    assert page.text("#time option") == "local time (UTC+05:30)"
    utc = d.meta("x")["updated_at"][:19].replace("T", " ")
    shown = rows(page, "buffers")[0][9]
    assert (page.js(f"Date.parse('{shown.replace(' ', 'T')}Z') - Date.parse('{utc.replace(' ', 'T')}Z')") == 5.5
            * 3600000)
    page.until("events are there", "document.querySelectorAll('#feed li').length > 0")
    event = "[...document.querySelectorAll('#feed li time')].every(t => t.textContent === t.dateTime.slice(11, 19))"
    assert not page.js(event)
    page.choose("#time", "utc")
    assert rows(page, "buffers")[0][9] == utc and page.js(event)


def test_links_to_numbers_and_documents(start, open_page, tmp_path):
    secret = token(tmp_path, "add", "reader", "--scope", "read")
    d = start(state=str(tmp_path))
    page = open_page(d, wait="token", permitted=["401 (Unauthorized)"])
    page.fill("#token-value", secret)
    page.key("Enter", 13, "\r")
    page.until("the page knows", "document.body.dataset.connection === 'connected'")
    assert (page.js("[...document.querySelectorAll('footer a')].map(a => a.getAttribute('href'))")
            == ["/metrics", "/v1/stats", "/openapi.json"])
    # What would be opened is looked at, not opened: another tab has no place in this test.
    page.js("HTMLAnchorElement.prototype.click = function () { window.opened = this.href; };"
            " const make = URL.createObjectURL; URL.createObjectURL = (b) => { window.given = b; return make(b); }; "
            "null")
    page.click("footer a")
    page.until("the text was read with the token", "window.opened?.startsWith('blob:')")
    assert "# TYPE gpubufd_" in page.js("window.given.text()")
    assert page.text("#foot-said") == ""


def test_memory_that_ends_is_said_before(start, open_page, simulated):
    d = start(spec=simulated("bytes=128M"))
    d.ask("POST", "/v1/sessions", {"name": "big", "quota": {"bytes": 100 << 20}}).expect(201)
    page = open_page(d)
    page.until("the device is known", "document.getElementById('devices').textContent.includes('128 MiB')")
    assert not page.js(FULL)
    d.ask("POST", "/v1/sessions/big/buffers", {"name": "a", "dtype": "uint8", "shape": [95 << 20]}).expect(201)
    page.until("the quota is near", FULL + ".includes('Sessions are nearly at their quota: big (95 % of 100 MiB)')")
    assert "Device" not in page.text("#room")
    d.ask("POST", "/v1/sessions/default/buffers", {"name": "b", "dtype": "uint8", "shape": [24 << 20]}).expect(201)
    page.until("the device is near", FULL + ".includes('Device 0 is nearly full')")
    page.until("the sessions are those of now", FULL + ".includes('big (95.0 MiB), default (24.0 MiB)')")
    said = page.text("#room")
    assert "gpubuf sessions evict" in said and "507" in said
    page.keep("nearly-full")
    d.ask("DELETE", "/v1/sessions/big/buffers/a").expect(204)
    page.until("there is room again", f"!({FULL})")
    d.ask("POST", "/v1/sessions/big/pools", {"name": "p", "max_bytes": 32 << 20}).expect(201)
    d.ask("POST", "/v1/sessions/big/buffers", {"name": "c", "dtype": "uint8", "shape": [30 << 20],
                                               "pool": "p"}).expect(201)
    page.until("the pool is near", FULL + ".includes('Pools are nearly at their limit: big/p (93 % of 32.0 MiB)')")
