"""The page at / in headless Chromium: its numbers, uploads, token, and accessibility."""
import json

from harness import DATA, token
from pages import browser, furnish, human, look, names, npy, numpy, open_page, rows  # noqa: F401


def test_true_numbers(start, open_page):
    d = start()
    furnish(d)
    page = open_page(d)
    page.until("all buffers are there", "document.querySelectorAll('#buffers tbody tr').length === 10")
    stats, sessions = d.settled(), d.get("/v1/sessions")["items"]
    listed = [b for s in sessions for b in d.get(f"/v1/sessions/{s['name']}/buffers")["items"]]
    assert page.text("#now-buffers") == str(stats["buffers"]["count"])
    assert page.text("#now-buffer-bytes") == human(stats["buffers"]["bytes"])
    assert page.text("#now-session-count") == "2"
    assert names(page)[0] == "act" and [row[2] for row in rows(page, "buffers")] == [
        human(b["bytes"]) for b in sorted(listed, key=lambda b: -b["bytes"])]
    assert {row[0]: row[2] for row in rows(page, "sessions")} == {s["name"]: human(s["used_bytes"]) for s in sessions}
    pools = {row[0]: row for row in rows(page, "pools")}
    own = d.get("/v1/sessions/training/pools/activations")
    assert pools["activations"][4:8] == [human(own[k]) for k in ("used_bytes", "used_peak_bytes", "reserved_bytes",
                                                                 "max_bytes")]
    main = stats["pools"][0]
    assert pools["default of device 0"][4:7] == [human(main[k]) for k in ("used_bytes", "used_peak_bytes",
                                                                          "reserved_bytes")]
    page.until("used and reserved of all pools",
               "document.getElementById('now-used').textContent === "
               f"{json.dumps(human(main['used_bytes'] + own['used_bytes']))}")
    device = d.get("/v1/devices/0")
    assert human(device["total_bytes"]) in page.text("#devices") and device["uuid"] in page.text("#devices")
    page.keep("numbers", whole=True)


def test_sorts_and_filters(start, open_page):
    d = start()
    furnish(d)
    page = open_page(d)
    page.until("all buffers are there", "document.querySelectorAll('#buffers tbody tr').length === 10")
    page.click("#buffers thead th:first-child button")
    assert (names(page) == sorted(names(page)) and page.js("document.querySelector('#buffers th').ariaSort")
            == "ascending")
    page.click("#buffers thead th:first-child button")
    assert names(page) == sorted(names(page), reverse=True)
    page.fill("#filter", "layer float16")
    assert len(names(page)) == 8 and names(page, "sessions") == []
    page.fill("#filter", "training")
    assert names(page) == ["waves", "act"] and names(page, "pools") == ["activations"]
    assert "2 of 10" in page.text("#buffers caption")


def test_upload_by_the_file_input(start, open_page, tmp_path):
    d = start()
    array = numpy.random.default_rng(1).random((300, 70), numpy.float32)
    path = tmp_path / "my tensor-1.npy"
    path.write_bytes(npy(array))
    d.ask("POST", "/v1/sessions", {"name": "training"}).expect(201)
    page = open_page(d, permitted=["412 (Precondition Failed)"])
    page.until("sessions are known", "document.querySelectorAll('#sessions tbody tr').length === 2")
    page.click("#upload-open")
    page.files("#upload-file", path)
    page.until("a name is proposed", "document.getElementById('upload-name').value === 'my_tensor-1'")
    page.choose("#upload-session", "training")
    page.keep("upload")
    page.click("#upload-go")
    page.until("it is there", "document.getElementById('upload-state').textContent.includes('generation 1')")
    assert d.data("my_tensor-1", "training", headers={"Accept": "application/x-npy"}).body == path.read_bytes()
    page.click("#upload-go")
    page.until("it is not replaced unasked", "document.getElementById('upload-state').textContent.includes('exists "
               "already')")
    page.click("#upload-replace")
    page.click("#upload-go")
    page.until("it is replaced when asked", "document.getElementById('upload-state').textContent.includes('generation "
               "2')")
    page.click("#upload-close")
    page.until("the page shows it", "document.getElementById('buffers').textContent.includes('my_tensor-1')")


def test_upload_by_drop(start, open_page):
    d = start()
    page = open_page(d, permitted=["422 (Unprocessable Content)"])
    page.until("sessions are known", "document.querySelectorAll('#sessions tbody tr').length === 1")
    array = numpy.arange(12, dtype="i4").reshape(3, 4)
    drop = ("(() => { const d = new DataTransfer(); d.items.add(new File([new Uint8Array(%s)], %s));"
            " for (const kind of ['dragover', 'drop']) document.body.dispatchEvent(new DragEvent(kind, "
            "{dataTransfer: d, bubbles: true, cancelable: true})); })()")
    page.js(drop % (json.dumps(list(npy(array))), "'dropped.npy'"))
    page.until("the dialog is open", "document.getElementById('upload').open && "
               "document.getElementById('upload-name').value === 'dropped'")
    page.click("#upload-go")
    page.until("it is there", "document.getElementById('upload-state').textContent.includes('3 × 4')")
    assert numpy.array_equal(numpy.frombuffer(d.data("dropped").body, "i4"), array.ravel())
    page.js(drop % ("[1, 2, 3]", "'no.npy'"))
    page.click("#upload-go")
    page.until("what is no .npy is refused in words",
               "document.querySelector('#upload-state.bad')?.textContent.includes('.npy')")


def test_asks_for_a_token(start, open_page, tmp_path):
    secret = token(tmp_path, "add", "reader", "--scope", "read")
    d = start(state=str(tmp_path))
    page = open_page(d, wait="token", permitted=["401 (Unauthorized)"])
    page.until("the dialog is open", "document.getElementById('token').open && document.activeElement.id === "
               "'token-value'")
    page.keep("token")
    page.type("gpb_" + "0" * 64)
    page.key("Enter", 13, "\r")
    page.until("it asks again", "document.getElementById('token').open && "
               "document.getElementById('token-why').textContent.includes('was refused')")
    page.fill("#token-value", secret)
    page.key("Enter", 13, "\r")
    page.until("the page knows", "document.body.dataset.connection === 'connected' && "
               "document.querySelectorAll('#pools tbody tr').length === 1")
    assert (page.js("[Object.values(sessionStorage).length, localStorage.length, document.cookie, location.href]")
            == [1, 0, "", d.url("/")])
    page.open(d.url("/"))
    page.until("it is remembered in this tab", "document.body.dataset.connection === 'connected'")
    page.click("#token-open")
    page.click("#token-forget")
    page.until("and forgotten", "document.body.dataset.connection === 'token' && sessionStorage.length === 0")


def test_on_a_phone_and_in_the_dark(start, open_page):
    d = start()
    furnish(d)
    light, dark = open_page(d), open_page(d, 360, 740, dark=True, phone=True)
    back = "getComputedStyle(document.body).backgroundColor"
    assert light.js(back) != dark.js(back) and dark.js(back) == "rgb(16, 19, 23)"
    dark.until("all buffers are there", "document.querySelectorAll('#buffers tbody tr').length === 10")
    wide = "document.documentElement.scrollWidth > innerWidth || innerWidth > 360"
    assert not dark.js(wide)
    columns = dark.js("new Set([...document.querySelectorAll('main > section')].map(s => "
                      "s.getBoundingClientRect().left)).size")
    assert columns == 1
    rows_of = dark.js("new Set([...document.querySelectorAll('.tools > *')].map(e => "
                      "e.getBoundingClientRect().top)).size")
    assert rows_of == 2 and dark.js("document.getElementById('range').clientWidth") > 120
    assert not dark.js("[...document.querySelectorAll('.summary')].some(e => e.scrollWidth > e.clientWidth)")
    assert light.js("document.querySelector('aside').getBoundingClientRect().top === document.querySelector('main > "
                    "section').getBoundingClientRect().top")
    dark.keep("phone", whole=True)
    look(dark, "waves")
    assert not dark.js(wide) and dark.js("document.getElementById('look').scrollWidth <= 360")
    dark.keep("phone-picture")
    for theme, colour in (("light", "rgb(245, 246, 248)"), ("dark", "rgb(16, 19, 23)")):
        light.click("#theme")
        assert light.js(back) == colour and theme in light.text("#theme")
    light.open(d.url("/"))
    assert light.js(back) == "rgb(16, 19, 23)"
    light.until("all buffers are there", "document.querySelectorAll('#buffers tbody tr').length === 10")
    light.keep("dark")


REACHABLE = ("[...document.querySelectorAll('a[href], button, input, select, summary, [tabindex=\"0\"]')].filter(e => "
             "e.checkVisibility() && !e.disabled)")


def test_by_keyboard_and_screen_reader(start, open_page):
    d = start()
    furnish(d)
    page = open_page(d)
    page.until("all buffers are there", "document.querySelectorAll('#buffers tbody tr').length === 10")
    page.js("document.body.focus()")
    page.js("window.reached = new Set(); window.unseen = []; document.addEventListener('focusin', (e) => { "
            "window.reached.add(e.target); if (getComputedStyle(e.target).outlineStyle === 'none') "
            "window.unseen.push(e.target.outerHTML); })")
    for _ in range(page.js(REACHABLE + ".length") + 3):
        page.key("Tab", 9)
    missed = page.js(REACHABLE + ".filter(e => !window.reached.has(e)).map(e => e.outerHTML)")
    assert not missed and not page.js("window.unseen"), (missed, page.js("window.unseen"))
    page.js("document.querySelector('#buffers tbody button').focus()")
    page.key("Enter", 13, "\r")
    page.until("the dialog is open", "document.getElementById('look').open")
    page.until("it was read", "document.getElementById('look-read').textContent.startsWith('Read ')")
    page.js("document.getElementById('look-picture').focus()")
    page.key("ArrowRight", 39)
    page.until("an element is named", "document.getElementById('look-point').textContent.startsWith('[0, 1] = ')")
    page.key("Escape", 27)
    page.until("and closed", "!document.getElementById('look').open")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    have = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n.get("ignored")
            and "role" in n]
    roles = {role for role, _ in have}
    assert {"banner", "main", "complementary", "log", "status", "table", "image"} <= roles
    named = ("button", "textbox", "searchbox", "combobox", "link", "img", "image", "table", "log", "region", "checkbox")
    nameless = [n for n in have if n[0] in named and not n[1].strip()]
    assert not nameless, nameless
    assert page.js("[...document.querySelectorAll('table')].every(t => t.caption && t.caption.textContent)")
    assert all("line chart" in label for label in page.js("[...document.querySelectorAll('#charts canvas')].map(c => "
                                                          "c.ariaLabel)"))


def test_data_is_read_with_the_daemons_own_rules(start, open_page):
    """The daemon accepts writes of the page's own origin, and of no other."""
    d = start()
    page = open_page(d, permitted=["403 (Forbidden)", "CORS", "net::ERR"])
    target = DATA.format("default", "x") + "?format=raw"
    assert page.js(f"fetch('{target}', {{method: 'PUT', headers: {{'Content-Type': 'application/octet-stream'}}, body: "
                   f"'abc'}}).then(r => r.status)") == 201
    other = start()
    assert page.js(f"fetch('{other.url(target)}', {{method: 'PUT', body: 'abc'}}).then(r => r.status, () => "
                   "'forbidden')") == "forbidden"
    assert other.data("x").status == 404
    page.complaints.clear()
    page.js("window.forbidden.length = 0")
