"""The pictures of the pages for README.md and doc, of a daemon and a fleet that are made for them. They lie in the
build folder; GB_E2E_PICTURES names another one ("make pictures": doc/images)."""
import os
import shutil
import time

import pytest
from fake_fleet import Fleet
from pages import SHOTS, browser, look, npy, numpy, open_page  # noqa: F401
from png import size, smaller

OUT = os.environ.get("GB_E2E_PICTURES")
MOST = 150 << 10  # bytes of a picture
ROUNDS, PAUSE_S = (45, 1) if OUT else (2, 0)  # traffic, so that the lines of a picture for a document have some length

pytestmark = pytest.mark.once


def keep(page, name, width, height):
    """Takes the picture, without what is under the pointer or in focus."""
    page.js("document.activeElement.blur()")
    path = os.path.join(SHOTS, f"document-{name}.png")
    page.shot(path)
    with open(path, "rb") as f:
        data = smaller(f.read())
    assert size(data) == (width, height) and len(data) <= MOST, len(data)
    with open(path, "wb") as f:
        f.write(data)
    if OUT:
        os.makedirs(OUT, exist_ok=True)
        shutil.copy(path, os.path.join(OUT, f"{name}.png"))


def demo(d):
    """Two sessions with a quota, a pool, and layers of a model; one tensor that is worth a look."""
    for name, quota, labels in (("training", 1 << 30, {"team": "vision"}), ("serving", 1 << 28, {"team": "web"})):
        d.ask("POST", "/v1/sessions", {"name": name, "quota": {"bytes": quota}, "labels": labels}).expect(201)
    d.ask("POST", "/v1/sessions/training/pools", {"name": "activations", "max_bytes": 64 << 20}).expect(201)
    y, x = numpy.mgrid[0:240, 0:360]
    d.put("waves", npy((numpy.sin(x / 24) * numpy.cos(y / 18)).astype("f4")), "training").expect(201)
    d.put("act.0", npy(numpy.zeros((2048, 2048), "f4")), "training", "?pool=activations").expect(201)
    for i in range(6):
        d.put(f"layer{i}.weight", npy(numpy.full((1024, 512 * (i + 1)), i, "f2")), "training").expect(201)
        d.put(f"layer{i}.weight", npy(numpy.full((1024, 256), i, "f2")), "serving").expect(201)
    d.ask("POST", "/v1/sessions/serving/buffers/layer0.weight/seal").expect(200)


def traffic(d):
    for i in range(ROUNDS):
        d.put("batch", npy(numpy.zeros((64 + 64 * (i % 5), 3, 64, 64), "u1")), "training")
        d.data(f"layer{i % 6}.weight", "serving").expect(200)
        time.sleep(PAUSE_S)


@pytest.mark.timeout(300)
def test_a_daemon(start, open_page):
    d = start("--sample-interval", "1", spec="host:bytes=256M")
    demo(d)
    page = open_page(d, 1280, 940)
    page.until("all buffers are there", "document.querySelectorAll('#buffers tbody tr').length === 14")
    traffic(d)
    page.until("the batch is there", "document.querySelectorAll('#buffers tbody tr').length === 15")
    keep(page, "page", 1280, 940)
    look(page, "waves")
    keep(page, "buffer", 1280, 940)
    page.click("#look-close")
    page.js("[...document.querySelectorAll('#sessions button')].find(b => b.textContent === 'training').click()")
    page.until("its history has come", "/in buffers [0-9.]+ "
               "MiB/.test(document.getElementById('chart-session-bytes').ariaLabel)")
    keep(page, "session", 1280, 940)


def test_a_fleet(browser):  # noqa: F811
    fleet = Fleet()
    page = None
    try:
        fleet.sessions.update(evaluation=fleet["a"], serving=fleet["b"], training=fleet["c"])
        fleet.copies.update(serving={"replicas": 2, "holders": ["a", "c"]}, training={"replicas": 1, "holders": ["b"]})
        fleet["a"].draining = True
        page = browser.page(fleet["b"].url + "/fleet", 1280, 420)
        page.until("they are there", "document.querySelectorAll('#sessions tbody tr').length === 3")
        keep(page, "fleet", 1280, 420)
    finally:
        if page:
            page.close()
        fleet.stop()
