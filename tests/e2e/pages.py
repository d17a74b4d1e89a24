"""Helpers of the tests of the page: one browser for each test file, its pages, and tensors to show."""
import contextlib
import io
import json
import os

import pytest

from browser import Browser
from harness import binary, library

numpy = library("numpy")
# Screenshots of the states, in the build folder; "make clean" removes them.
SHOTS = os.path.join(os.path.dirname(os.path.abspath(binary())), "tests", "log", "page")


def npy(array):
    f = io.BytesIO()
    numpy.save(f, array)
    return f.getvalue()


@pytest.fixture(scope="module")
def browser():
    b = Browser()
    os.makedirs(SHOTS, exist_ok=True)
    yield b
    b.close()


@pytest.fixture
def open_page(browser, backend):
    """Opens the page of a daemon and waits for its numbers. At the end there must be no complaints but the permitted
    ones."""
    with contextlib.ExitStack() as end:

        def go(daemon, *size, wait="connected", permitted=(), at="", **more):
            page = browser.page(daemon.url("/") + at, *size, **more)
            end.callback(page.close)

            def check():
                faults = [f for f in page.faults() if not any(p in f for p in permitted)]
                assert not faults, faults
                strange = [u for u in page.urls if not u.startswith(("http://127.0.0.1:", "about:", "blob:"))]
                assert not strange and "gpb_" not in json.dumps(page.urls)

            end.callback(check)
            page.keep = (lambda name,
                         whole=False: page.shot(os.path.join(SHOTS, f"{name}-{backend.replace(':', '-')}.png"), whole))
            page.until("the page knows", f"document.body.dataset.connection === '{wait}'")
            return page

        yield go


def rows(page, table):
    """The table as a reader sees it: a list of lists of texts."""
    return page.js(f"[...document.querySelectorAll('#{table} tbody tr')].map(r => [...r.cells].map(c => "
                   "c.textContent))")


def names(page, table="buffers"):
    return [row[0] for row in rows(page, table)]


def human(n):
    unit = 0
    while n >= 1024:
        n, unit = n / 1024, unit + 1
    return (f"{n:.0f} B" if unit == 0 else f"{n:.{2 if n < 10 else 1 if n < 100 else 0}f} "
            f"{('KiB', 'MiB', 'GiB', 'TiB')[unit - 1]}")


def furnish(d):
    d.ask("POST", "/v1/sessions", {"name": "training", "quota": {"bytes": 1 << 30}}).expect(201)
    d.ask("POST", "/v1/sessions/training/pools", {"name": "activations", "max_bytes": 1 << 27}).expect(201)
    y, x = numpy.mgrid[0:200, 0:300]
    d.put("waves", npy((numpy.sin(x / 20) * numpy.cos(y / 15)).astype("f4")), "training").expect(201)
    for i in range(8):
        d.put(f"layer{i}.weight", npy(numpy.full((64 * (i + 1), 128), i, "f2"))).expect(201)
    d.put("act", npy(numpy.zeros((512, 512), "f4")), "training", "?pool=activations").expect(201)


def look(page, name):
    page.until("the buffer is listed", "[...document.querySelectorAll('#buffers tbody button')].some(b => "
               f"b.textContent === {json.dumps(name)})")
    page.js("[...document.querySelectorAll('#buffers tbody button')].find(b => b.textContent === "
            f"{json.dumps(name)}).click()")
    page.until("it was read", "document.getElementById('look-read').textContent.startsWith('Read ')")


def said(text, bad=False):
    """An expression: the dialog of a buffer says that text."""
    return (f"document.querySelector('#look-said{'.bad' if bad else ':not(.bad)'}')"
            f"?.textContent.includes({json.dumps(text)})")
