"""The page during changes: updates, the feed, history, and a daemon that stops and restarts."""

from harness import until
from pages import browser, furnish, open_page, rows  # noqa: F401


def test_follows_changes(start, open_page):
    d = start()
    page = open_page(d)
    page.until("the table is there", "document.querySelector('#buffers caption').textContent.includes('No buffers')")
    d.put("x", b"1234", query="?dtype=uint8&shape=4").expect(201)
    page.until("the buffer has come", "document.querySelectorAll('#buffers tbody tr').length === 1")
    page.until("its bytes count", "document.getElementById('now-buffer-bytes').textContent === '4 B'")
    d.put("x", b"12345678", query="?dtype=uint8&shape=8").expect(200)
    page.until("it was replaced", "document.querySelector('#buffers tbody').textContent.includes('8 B')")
    assert rows(page, "buffers")[0][7] == "2"
    d.ask("DELETE", "/v1/sessions/default/buffers/x").expect(204)
    page.until("it is gone", "document.querySelectorAll('#buffers tbody tr').length === 0")
    d.ask("POST", "/v1/sessions", {"name": "new"}).expect(201)
    page.until("the session is there", "document.getElementById('sessions').textContent.includes('new')")


def feed(page):
    return page.js("[...document.querySelectorAll('#feed li')].filter(e => e.checkVisibility()).map(e => "
                   "e.innerText.split(' ').slice(1).join(' '))")


def test_the_feed(start, open_page):
    d = start()
    d.put("early", b"1234", query="?dtype=uint8&shape=4").expect(201)
    page = open_page(d)
    page.until("earlier events are listed", "document.getElementById('feed').textContent.includes('early')")
    d.put("x", b"1234", query="?dtype=uint8&shape=4").expect(201)
    page.until("the newest is first", "/buffer.created.*default.*x.* 4 B/.test(document.querySelector('#feed "
               "li').textContent)")
    d.ask("POST", "/v1/sessions", {"name": "new"}).expect(201)
    page.until("another event", "document.querySelector('#feed li').dataset.type === 'session.created'")
    page.choose("#feed-type", "buffer")
    assert feed(page) and all(text.startswith("buffer.") for text in feed(page))
    page.choose("#feed-type", "all")
    page.click("#feed-pause")
    d.ask("DELETE", "/v1/sessions/default/buffers/x").expect(204)
    page.until("it waits", "document.getElementById('feed-state').textContent.includes('1 new')")
    assert "buffer.deleted" not in "".join(feed(page))
    page.click("#feed-pause")
    page.until("it is shown", "document.querySelector('#feed li').dataset.type === 'buffer.deleted'")
    page.keep("feed")


def test_history_is_there_when_the_page_is_opened(start, open_page):
    d = start("--sample-interval", "1")
    d.put("x", bytes(40 << 20), query=f"?dtype=uint8&shape={40 << 20}").expect(201)
    high = until("it was sampled", lambda: [i for i in d.get("/v1/stats?since=-300")["items"] if i["used_bytes"]["max"]
                                            >= 40 << 20])
    d.ask("DELETE", "/v1/sessions/default/buffers/x").expect(204)
    assert high
    page = open_page(d)
    page.until("what was is in the chart", "/used .*, at most 40[.]0 "
               "MiB/.test(document.getElementById('chart-pools').ariaLabel)")
    page.until("and the rate", "/uploads [^;]*, at most [^0]/.test(document.getElementById('chart-rates').ariaLabel)")
    assert page.text("#history-note") == ""
    page.click("#charts figure:nth-child(2) summary")
    page.until("values as a table", "document.querySelectorAll('#charts figure:nth-child(2) tbody tr').length > 0")
    for seconds in page.js("[...document.getElementById('range').options].map(o => o.value)"):
        page.choose("#range", seconds)
        until("that range was asked for", lambda: page.js("1") and d.url(f"/v1/stats?since=-{seconds}") in page.urls)
    page.until("days that were not are not drawn", "document.getElementById('history-note').textContent === 'The last "
               "5 minutes: no older data'")
    page.until("times differ", "(t => t.length > 1 && new Set(t).size === t.length)([...document.querySelectorAll("
               "'#charts figure:nth-child(2) tbody th')].map(e => e.textContent))")
    page.keep("history")


def test_the_daemon_goes_and_comes_back(start, open_page, tmp_path):
    d = start(state=str(tmp_path))
    d.put("x", b"1234", query="?dtype=uint8&shape=4").expect(201)
    page = open_page(d, permitted=["net::ERR", "503 ("])
    page.until("the buffer is there", "document.querySelectorAll('#buffers tbody tr').length === 1")
    d.stop()
    page.until("it says so", "!document.getElementById('alarm').hidden && "
               "document.getElementById('alarm').textContent.includes('has not answered for')")
    page.until("and counts", "/has not answered for [1-9][0-9]* s[.] The "
               "values/.test(document.getElementById('alarm').textContent)")
    page.keep("gone")
    d = start(state=str(tmp_path), listen=("--listen", "{}:{}".format(*d.tcp)))
    page.until("it comes back by itself", "document.body.dataset.connection === 'connected'")
    until("the daemon knows what is lost", lambda: d.stats()["buffers"]["lost"] == 1)
    page.until("what is lost is said", "document.getElementById('alarm').textContent === 'Memory is lost: 1 buffer has "
               "lost its bytes.'")
    page.until("the buffer is marked", "document.querySelector('#buffers td.bad')?.textContent === 'lost'")
    page.click("#buffers tbody button")
    page.until("there is nothing to look at", "document.querySelector('#look-read.bad')?.textContent.includes('bytes "
               "are lost')")
    assert not page.js("['look-form', 'look-shown', 'look-point'].some(id => "
                       "document.getElementById(id).checkVisibility())")
    page.keep("lost")
    page.click("#look-close")
    d.put("x", b"1234", query="?dtype=uint8&shape=4")
    page.until("the feed goes on", "document.getElementById('feed').textContent.includes('daemon.started')")
    ids = page.js("[...document.querySelectorAll('#feed li')].map(e => e.dataset.id)")
    assert len(ids) == len(set(ids)) > 0
    page.until("and all is well again", "document.getElementById('alarm').hidden")
