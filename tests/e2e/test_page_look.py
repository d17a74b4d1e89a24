"""The page's view of a tensor: correct pixels and counts, and only a slice of a large one."""
import json

import pytest
from harness import library
from pages import browser, look, npy, numpy, open_page  # noqa: F401
from test_tables import file


def pixels(page):
    return page.js("(() => { const c = document.getElementById('look-picture');"
                   " return [c.height, c.width, [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]]; "
                   "})()")


def counts(page):
    return {k: int(v.replace("\u202f", "")) for k, v in page.js("[...document.querySelectorAll('#look-counts tbody "
                                                                "tr')].map(r => [...r.cells].map(c => c.textContent))")}


def test_a_picture_and_its_histogram(start, open_page):
    d = start()
    array = (numpy.arange(48).reshape(6, 8) % 7).astype("i2")
    d.put("x", npy(array)).expect(201)
    d.put("rgb", npy(numpy.arange(60, dtype="u1").reshape(4, 5, 3))).expect(201)
    y, x = numpy.mgrid[0:2000, 0:3000]
    d.put("large", npy((numpy.sin(x / 200) * numpy.cos(y / 150)).astype("f4"))).expect(201)
    page = open_page(d)
    look(page, "x")
    page.choose("#look-mode", "grey")
    assert [page.text(f"#look-{k}") for k in ("min", "max", "elements")] == ["0", "6", "48"]
    assert abs(float(page.text("#look-mean")) - array.mean()) < 1e-5
    rows_, columns, rgba = pixels(page)
    want = numpy.repeat(numpy.floor(255 * array / 6 + 0.5).astype("u1")[..., None], 4, 2)
    want[..., 3] = 255
    assert (rows_, columns) == (6, 8) and rgba == want.ravel().tolist()
    assert counts(page) == {str(k): int((array == k).sum()) for k in range(7)}
    assert page.text("#look-read").startswith("Read all 48 elements") and "part" not in page.text("#look")
    page.fill("#look-slice", "1:3,::2")
    page.click("#look-form button")
    page.until("the slice was read", "document.getElementById('look-read').textContent.includes('2 × 4')")
    part = array[1:3, ::2]
    assert counts(page) == {str(k): int((part == k).sum()) for k in range(part.min(), part.max() + 1)}
    page.click("#look-close")
    look(page, "rgb")
    assert numpy.array_equal(numpy.array(pixels(page)[2]).reshape(20, 4)[:, :3], numpy.arange(60).reshape(20, 3))
    page.click("#look-close")
    asked = len(page.urls)
    look(page, "large")
    page.until("a part alone was read", "/of 22[.]9 MiB/.test(document.getElementById('look-read').textContent)")
    assert ("mean and counts are of this part only" in page.text("#look-read") and "min of this part"
            in page.text("#look-numbers"))
    edges = page.js("Chart.getChart('look-histogram').data.labels")
    assert len(edges) == 32 and max(map(len, edges)) <= 6 and "0" in edges, edges
    assert all("slice=" in u for u in page.urls[asked:] if "/data" in u)
    assert sum(counts(page).values()) == int(page.text("#look-elements").replace("\u202f", "")) < array.size * 10000
    page.keep("picture")


@pytest.mark.once
def test_the_tensors_of_a_model(start, open_page):
    """One buffer that holds many: the first is shown, others by name, also those that were not offered."""
    d = start()
    arrays = {f"layer.{i:04}": numpy.full((2, 3), i % 7, "i2") for i in range(1002)}
    arrays["layer.0001"] = numpy.arange(6, dtype="i2").reshape(2, 3)
    d.put("m", file(arrays, {"tied": "layer.0001"})).expect(201)
    d.put("none", file({}), query="?pack=true").expect(201)
    page = open_page(d)
    look(page, "m")
    assert page.js("document.getElementById('look-tensor').value") == "layer.0000"
    assert page.js("document.getElementById('look-tensors').options.length") == 1000
    for name, most in (("layer.0001", 5), ("layer.1001", 0), ("tied", 5)):
        page.choose("#look-tensor", name)
        page.until("it was read", f"document.getElementById('look-max')?.textContent === '{most}' && document."
                   "getElementById('look-read').textContent.startsWith('Read all 6 elements (2 × 3), 12 B of 12 B')")
    page.choose("#look-tensor", "layer.2000")
    page.until("it is refused", "document.getElementById('look-read').textContent.includes('no tensor named "
               "layer.2000')")
    assert page.js("document.getElementById('look-shown').hidden")
    page.click("#look-close")
    page.js("[...document.querySelectorAll('#buffers tbody button')].find(b => b.textContent === 'none').click()")
    page.until("it holds none", "document.getElementById('look-read').textContent === 'The buffer holds no tensor'")
    page.keep("tensors")


def test_which_version_a_link_is(start, open_page):
    d = start()
    for name in ("m-v1", "m-v2"):
        d.put(name, file({"w": numpy.arange(6, dtype="i2")})).expect(201)
        d.ask("POST", f"/v1/sessions/default/buffers/{name}/seal").expect(200)
    link = {"from": "m-v1", "share": True}
    d.ask("POST", "/v1/sessions/default/buffers/current/copy", link).expect(201)
    page = open_page(d)
    shown = "[...document.querySelectorAll('#buffers tbody tr')].some(r => r.textContent.includes('link to %s'))"
    page.until("the list says it", shown % "m-v1")
    look(page, "current")
    assert "link to m-v1" in page.text("#look-about")
    page.click("#look-close")
    d.ask("POST", "/v1/sessions/default/buffers/current/copy", {**link, "from": "m-v2"}).expect(200)
    page.until("the list follows", shown % "m-v2")


BOX = "(r => [r.x, r.y, r.width, r.height])(document.getElementById('look-picture').getBoundingClientRect())"
INSIDE = ("(([p, f]) => p.left >= f.left && p.right <= f.right && p.top >= f.top && p.bottom <= "
          "f.bottom)(['#look-picture', '.frame'].map(s => document.querySelector(s).getBoundingClientRect()))")


@pytest.mark.once
def test_a_picture_keeps_the_proportions_of_its_tensor(start, open_page):
    """Also where the steps of the axes differ, on a narrow screen, and for a picture of colours; the last element is at
    its corner."""
    d = start()
    shapes = {"wide": (40, 1200), "tall": (1200, 40), "flat": (200, 300), "square": (700, 700), "stack": (2, 30, 30),
              "rgb": (20, 50, 3)}
    for name, shape in shapes.items():
        d.put(name, npy((numpy.arange(numpy.prod(shape)) % 251).astype("u1").reshape(shape))).expect(201)
    d.put("line", npy(numpy.arange(200, dtype="i2"))).expect(201)
    for size in ((1280, 900), (360, 740)):
        page = open_page(d, *size)
        for name, shape in shapes.items():
            look(page, name)
            x, y, width, height = page.js(BOX)
            rows_, columns = shape[:2] if name == "rgb" else shape[-2:]
            assert abs(width / height / (columns / rows_) - 1) < 0.03 and page.js(INSIDE), (name, width, height)
            assert not page.js("document.getElementById('look-stretched').checkVisibility()")
            shown = page.js("[document.getElementById('look-picture').height, "
                            "document.getElementById('look-picture').width]")
            page.js(f"document.getElementById('look-picture').dispatchEvent(new PointerEvent('pointermove', "
                    f"{{clientX: {x + width - 0.1}, clientY: {y + height - 0.1}}}))")
            assert page.text("#look-point").startswith(f"[{shown[0] - 1}, {shown[1] - 1}] = "), (name, page.text(
                "#look-point"))
            page.click("#look-close")
        look(page, "wide")
        page.fill("#look-slice", "0:20:2,..., ::10")
        page.click("#look-form button")
        page.until("the slice was read", "document.getElementById('look-read').textContent.includes('10 × 120')")
        assert page.js(BOX)[2] / page.js(BOX)[3] == pytest.approx(32, 0.03)
        assert page.js("document.getElementById('look-stretched').checkVisibility()")
        page.click("#look-close")
        look(page, "line")
        assert page.js("document.getElementById('look-stretched').checkVisibility()") and page.js(INSIDE)


def test_a_slice_that_is_wrong_or_too_large(start, open_page):
    d = start()
    d.put("x", npy(numpy.zeros((3000, 1000), "f4"))).expect(201)
    page = open_page(d, permitted=["400 (Bad Request)", "416 ("])
    look(page, "x")
    for text, word in (("5000,0", "axis"), ("huh", "slice"), (":,:", "at most")):
        page.fill("#look-slice", text)
        page.click("#look-form button")
        page.until("it says why not",
                   f"document.querySelector('#look-read.bad')?.textContent.includes({json.dumps(word)})")


def test_every_dtype(start, open_page):
    ml_dtypes = library("ml_dtypes")
    d = start()
    page = open_page(d)
    for name in ("bool", "uint8", "int8", "uint16", "int16", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2",
                 "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float8_e3m4", "float8_e4m3",
                 "float8_e4m3b11fnuz"):
        dtype = numpy.dtype(getattr(ml_dtypes, name, name))
        codes = numpy.arange(2 if name == "bool" else 256 ** dtype.itemsize, dtype=f"u{dtype.itemsize}")
        with numpy.errstate(invalid="ignore"):
            want = codes.view(dtype).astype("f8")
        got = page.js(f"import('/ui/decode.js').then(m => [...m.decode('{name}', new "
                      f"Uint{8 * dtype.itemsize}Array({codes.size}).map((_, i) => i).buffer)].map(String))")
        assert numpy.array_equal(numpy.array([float(x.replace("Infinity", "inf")) for x in got]), want,
                                 equal_nan=True), name
    for name in ("uint32", "int32", "uint64", "int64", "float32", "float64"):
        some = numpy.array([0, 1, 5, 100, 2**31 - 1], name) if "u" in name else numpy.array([0, 1, -5, 100, -(2**31)],
                                                                                            name)
        got = page.js(f"import('/ui/decode.js').then(m => [...m.decode('{name}', new "
                      f"Uint8Array({list(some.tobytes())}).buffer)])")
        assert got == some.astype("f8").tolist(), name
