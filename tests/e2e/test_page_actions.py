"""The page's dialogs of a session and of a buffer: what they show, download, copy, seal and delete, and what they say
when that is refused."""
import json
import os
import shutil
import subprocess
import sys

import pytest
from harness import token, until
from pages import browser, furnish, look, npy, numpy, open_page, rows, said  # noqa: F401

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def open_session(page, name):
    page.until("the session is listed", "[...document.querySelectorAll('#sessions tbody button')].some(b => "
               f"b.textContent === {json.dumps(name)})")
    page.js("[...document.querySelectorAll('#sessions tbody tr')].find(r => r.cells[0].textContent === "
            f"{json.dumps(name)}).cells[2].click()")
    page.until("it is open", "document.getElementById('session').open && document.querySelectorAll('#session-numbers "
               "div').length > 0")


def downloads(page, folder):
    page.browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder),
                      browserContextId=page.context)


def lines(page):
    return dict(page.js("[...document.querySelectorAll('#look-line-list input')].map(i => [i.dataset.line, i.value])"))


def test_a_session(start, open_page):
    """Its row opens it: numbers, history, pools and buffers; all follow changes."""
    d = start("--sample-interval", "1")
    furnish(d)
    page = open_page(d)
    open_session(page, "training")
    assert (sorted(row[0] for row in rows(page, "session-buffers")) == ["act", "waves"]
            and [row[0] for row in rows(page, "session-pools")] == ["activations"])
    numbers = dict(page.js("[...document.querySelectorAll('#session-numbers div')].map(d => [...d.children].map(c => "
                           "c.textContent))"))
    assert (numbers["Buffers"] == "2 of 100\u202f000" and numbers["In buffers"].endswith("of 1.00 GiB")
            and numbers["On disk"] == "0 B no limit")
    assert ("durability none" in page.text("#session-about")
            and page.js("document.title").startswith("training · 127.0.0.1:"))
    page.until("its history has come", "/in buffers 1[.]23 MiB, at "
               "most/.test(document.getElementById('chart-session-bytes').ariaLabel)")
    d.put("more", npy(numpy.zeros(10, "f4")), "training").expect(201)
    page.until("the new buffer is there", "document.querySelectorAll('#session-buffers tbody tr').length === 3")
    page.until("and counted", "document.getElementById('session-numbers').textContent.includes('3 of 100')")
    page.keep("session")
    page.js("[...document.querySelectorAll('#session-buffers button')].find(b => b.textContent === 'waves').click()")
    page.until("the buffer is open above it", "document.getElementById('look').open && "
               "document.getElementById('session').open")
    page.key("Escape", 27)
    page.until("the session stays", "!document.getElementById('look').open && document.getElementById('session').open")


@pytest.mark.once
def test_a_session_that_is_not_there(start, open_page):
    page = open_page(start(), at="#session=nothing", permitted=["404 (Not Found)"])
    page.until("it says so", "document.getElementById('session-said').textContent.includes('nothing')")


def test_download(start, open_page, tmp_path):
    d = start()
    array = npy((numpy.arange(3000) % 7).astype("f4").reshape(30, 100))
    d.put("x", array).expect(201)
    page = open_page(d)
    downloads(page, tmp_path)
    look(page, "x")
    page.click("#look-download")
    until("the file is there", lambda: (tmp_path / "x.npy").exists() and (tmp_path / "x.npy").read_bytes() == array)
    page.until("it says so", said("x.npy goes to the browser's downloads"))


def test_download_with_a_token(start, open_page, tmp_path):
    secret = token(tmp_path, "add", "writer", "--scope", "write")
    d = start(state=str(tmp_path))
    array = npy(numpy.arange(12, dtype="i8"))
    d.ask("PUT", "/v1/sessions/default/buffers/x/data", array, token=secret).expect(201)
    page = open_page(d, wait="token", at="#buffer=default%2Fx", permitted=["401 (Unauthorized)"])
    page.until("the token is asked for", "document.getElementById('token').open")
    page.fill("#token-value", secret)
    page.key("Enter", 13, "\r")
    page.until("the address's buffer is read then", "document.getElementById('look-read').textContent.startsWith('Read "
               "')")
    downloads(page, tmp_path)
    page.click("#look-download")
    until("the file is there", lambda: (tmp_path / "x.npy").exists() and (tmp_path / "x.npy").read_bytes() == array)
    assert secret not in page.js("document.documentElement.outerHTML + [...document.querySelectorAll('input')].map(i "
                                 "=> i.value)")
    assert page.js("localStorage.length + document.cookie.length") == 0
    run_lines(page, d, array, {"GPUBUF_TOKEN": secret}, tmp_path)
    assert all("GPUBUF_TOKEN" in line for line in lines(page).values())


def run_lines(page, d, array, environment, folder):
    """Both lines give the bytes, run as they were copied."""
    page.browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"],
                      browserContextId=page.context)
    page.click("#look-lines summary")
    work = folder / "lines"
    work.mkdir()
    for label, line in lines(page).items():
        assert d.url("") in line
        page.click(f"#look-line-list .line:has([data-line={label}]) button")
        page.until("it is copied", said(f"The {label} line was copied"))
        assert page.js("navigator.clipboard.readText()") == line
        command = ["bash", "-c", line] if label == "curl" else [sys.executable, "-c",
                                                                line + "; import numpy; numpy.save('python.npy', x)"]
        subprocess.run(command, cwd=work, check=True,
                       env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "src", "python"), **environment})
    assert (work / "x.npy").read_bytes() == array and (work / "python.npy").read_bytes() == array


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl is installed")
def test_the_lines(start, open_page, tmp_path):
    d = start()
    array = npy(numpy.arange(6, dtype="f8").reshape(2, 3))
    d.put("x", array).expect(201)
    page = open_page(d)
    look(page, "x")
    run_lines(page, d, array, {}, tmp_path)
    assert not any("TOKEN" in line for line in lines(page).values())
    page.keep("lines")


def test_seal_and_delete_ask_first(start, open_page):
    d = start()
    d.put("x", npy(numpy.arange(6, dtype="f8"))).expect(201)
    page = open_page(d)
    look(page, "x")
    page.click("#look-seal")
    page.until("it asks", "document.getElementById('sure').open && document.activeElement.id === 'sure-no'")
    page.click("#sure-no")
    page.until("nothing was done", "!document.getElementById('sure').open && "
               "!document.getElementById('look-seal').disabled")
    assert not d.meta("x")["sealed"]
    page.click("#look-seal")
    page.click("#sure-yes")
    page.until("it is sealed", said("Sealed"))
    assert d.meta("x")["sealed"] and " · sealed · " in page.text("#look-about")
    assert page.js("document.getElementById('look-seal').disabled") and page.text("#look-seal") == "Sealed"
    page.until("the table says so", "document.querySelector('#buffers tbody').textContent.includes('device, sealed')")
    page.click("#look-delete")
    page.until("it asks, with what is lost", "document.getElementById('sure').open && "
               "document.getElementById('sure-text').textContent.includes('48 B of generation 1')")
    page.keep("delete")
    page.key("Escape", 27)
    page.until("nothing was done", "!document.getElementById('sure').open && "
               "!document.getElementById('look-delete').disabled")
    assert d.meta("x")
    page.click("#look-delete")
    page.click("#sure-yes")
    page.until("the dialog closes", "!document.getElementById('look').open")
    assert d.data("x").status == 404
    page.until("the row is gone", "document.querySelectorAll('#buffers tbody tr').length === 0")
    assert page.js("location.hash") == ""


def test_what_has_changed_meanwhile_is_not_deleted(start, open_page):
    d = start()
    d.put("x", b"1234", query="?dtype=uint8&shape=4").expect(201)
    page = open_page(d, permitted=["412 (Precondition Failed)"])
    look(page, "x")
    d.put("x", b"12345678", query="?dtype=uint8&shape=8").expect(200)
    for action in ("delete", "seal"):
        page.click(f"#look-{action}")
        page.click("#sure-yes")
        page.until("it says why not, and what to do", said("close it and open it again", bad=True))
        assert d.data("x").body == b"12345678" and not d.meta("x")["sealed"]
        page.js("document.getElementById('look-said').textContent = ''")


def test_refusals_have_a_remedy(start, open_page, tmp_path):
    """A token that may only read, and a buffer that went."""
    writer, reader = token(tmp_path, "add", "writer", "--scope", "write"), token(tmp_path, "add", "reader", "--scope",
                                                                                 "read")
    d = start(state=str(tmp_path))
    d.ask("PUT", "/v1/sessions/default/buffers/x/data", npy(numpy.arange(12, dtype="i8")), token=writer).expect(201)
    page = open_page(d, wait="token", permitted=["401 (Unauthorized)", "403 (Forbidden)", "404 (Not Found)"])
    page.fill("#token-value", reader)
    page.key("Enter", 13, "\r")
    look(page, "x")
    page.click("#look-delete")
    page.click("#sure-yes")
    page.until("it says what would do", said("Press Token to give one that permits it", bad=True))
    d.ask("DELETE", "/v1/sessions/default/buffers/x", token=writer).expect(204)
    page.click("#look-download")
    page.until("it says why not", said("default", bad=True))
