"""Common clients: numpy, safetensors, requests, httpx, urllib, http.client, curl; over TCP and the UNIX socket."""
import contextlib
import http.client
import io
import shutil
import subprocess
import urllib.error
import urllib.request

import numpy as np
import pytest

from harness import DATA, SLOT, library
from record import RECORD
from values import DTYPES, array_of, npy, payload

X = "x/data"
BIG = 9 * SLOT + 13


@pytest.fixture
def base(daemon, session):
    return daemon.url(f"/v1/sessions/{session}/buffers/")


def noted(response):
    """Adds a response of requests or httpx to the record of the run."""
    RECORD.note(response.request.method, str(response.request.url), response.status_code, response.headers)
    return response


def pieces(body, sizes=(1, 100000, 7, SLOT)):
    """A generator: clients send it in chunks, without a length."""
    at, i = 0, 0
    while at < len(body):
        yield body[at:at + sizes[i % len(sizes)]]
        at, i = at + sizes[i % len(sizes)], i + 1


# --- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_by_requests(base, dtype):
    requests = library("requests")
    array = array_of(dtype, (3, 5, 7))
    with requests.Session() as http:
        assert noted(http.put(base + X, data=npy(array))).status_code == 201
        r = noted(http.get(base + X, headers={"Accept": "application/x-npy"}))
        got = np.load(io.BytesIO(r.content), allow_pickle=False)
        assert got.dtype == array.dtype and got.shape == array.shape and got.tobytes() == array.tobytes()
        meta = noted(http.get(base + "x")).json()
        assert meta["dtype"] == dtype and meta["shape"] == [3, 5, 7] and r.headers["Gpubuf-Dtype"] == dtype


def test_requests_streams_both_ways(base):
    requests = library("requests")
    body = payload(BIG)
    with requests.Session() as http:
        assert noted(http.put(f"{base}{X}?dtype=uint8&shape={BIG}", data=pieces(body))).status_code == 201
        assert noted(http.put(base + "y/data", data=io.BytesIO(body))).status_code == 201
        for name in X, "y/data":
            with noted(http.get(base + name, stream=True)) as r:
                assert b"".join(r.iter_content(10007)) == body
        assert noted(http.put(base + "z/data", data=pieces(body))).status_code == 201  # no length, no shape
        assert noted(http.get(base + "z/data")).content == body


def test_requests_keeps_its_connection(daemon, base):
    requests = library("requests")
    made = []
    with requests.Session() as http:
        for i in range(20):
            body = payload((i % 4) * SLOT + i, i)
            assert noted(http.put(base + X, data=body)).status_code == (201 if i == 0 else 200)
            assert noted(http.get(base + X)).content == body
            assert noted(http.get(base + "none")).status_code == 404
            made = [p.num_connections for p in http.adapters["http://"].poolmanager.pools._container.values()]
    assert made == [1], "a connection was lost between requests"


def test_requests_ranges_and_conditions(base):
    requests = library("requests")
    body = payload(SLOT + 100)
    tag = noted(requests.put(base + X, data=body)).headers["ETag"]
    get = lambda **headers: noted(requests.get(base + X, headers={k.replace("_", "-"): v for k,
                                                                  v in headers.items()}))  # noqa: E731
    part = get(Range="bytes=100-299")
    assert (part.status_code == 206 and part.content == body[100:300] and part.headers["Content-Range"]
            == f"bytes 100-299/{len(body)}")
    assert get(Range="bytes=-7").content == body[-7:] and get(Range=f"bytes={len(body)}-").status_code == 416
    assert get(Range="bytes=0-9", If_Range=tag).status_code == 206 and get(Range="bytes=0-9",
                                                                           If_Range='"no"').status_code == 200
    assert get(If_None_Match=tag).status_code == 304 and get(If_Match='"no"').status_code == 412
    put = lambda **headers: noted(requests.put(base + X, data=b"new", headers={k.replace("_", "-"): v for k,
                                                                               v in headers.items()}))  # noqa: E731
    assert (put(If_None_Match="*").status_code == 412 and put(If_Match=tag).status_code == 200
            and put(If_Match=tag).status_code == 412)
    assert get().content == b"new"


# --- httpx ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_httpx(daemon, session, unix):
    httpx = library("httpx")
    where = (f"http://localhost/v1/sessions/{session}/buffers/" if unix
             else daemon.url(f"/v1/sessions/{session}/buffers/"))
    body = payload(BIG)
    with httpx.Client(transport=httpx.HTTPTransport(uds=daemon.unix) if unix else None, timeout=90) as http:
        assert noted(http.put(where + X, content=body)).status_code == 201
        assert noted(http.put(f"{where}y/data?dtype=uint8&shape={BIG}", content=pieces(body))).status_code == 201
        for name in X, "y/data":
            with http.stream("GET", where + name) as r:
                assert b"".join(r.iter_bytes(9973)) == body and noted(r).status_code == 200
        part = noted(http.get(where + X, headers={"Range": "bytes=5-8"}))
        assert part.status_code == 206 and part.content == body[5:9]
        tag = part.headers["ETag"]
        assert noted(http.get(where + X, headers={"If-None-Match": tag})).status_code == 304
        assert noted(http.request("DELETE", where + "y", headers={"If-Match": '"no"'})).status_code == 412
        assert noted(http.head(where + X)).headers["Content-Length"] == str(BIG)
        assert noted(http.post(where + "y/fill", json={"pattern": 7})).status_code == 200
        assert http.get(where + "y/data").content == b"\7" * BIG


def test_httpx_many_at_once(daemon, session):
    """Concurrent requests of one asynchronous client."""
    httpx = library("httpx")
    import asyncio

    async def all_of_them():
        async with httpx.AsyncClient(base_url=daemon.url(f"/v1/sessions/{session}/buffers/"), timeout=90) as http:
            bodies = [payload(SLOT + i, i) for i in range(16)]
            put = await asyncio.gather(*(http.put(f"b{i}/data", content=b) for i, b in enumerate(bodies)))
            got = await asyncio.gather(*(http.get(f"b{i}/data") for i in range(16)))
            assert [r.status_code for r in put] == [201] * 16 and [r.content for r in got] == bodies

    asyncio.run(all_of_them())


# --- Python's own libraries -------------------------------------------------------------------------------------------


def test_urllib(daemon, base):
    body = payload(BIG)

    def ask(method, name, data=None, **headers):
        r = urllib.request.Request(base + name, data, {k.replace("_", "-"): v for k, v in headers.items()},
                                   method=method)
        try:
            with urllib.request.urlopen(r, timeout=90) as reply:
                return reply.status, reply.read(), reply.headers
        except urllib.error.HTTPError as e:
            return e.code, e.read(), e.headers

    assert ask("PUT", X, body)[0] == 415  # urllib says that it is a form
    assert ask("PUT", X, body, Content_Type="application/octet-stream")[0] == 201
    assert (ask("PUT", f"y/data?dtype=uint8&shape={BIG}", pieces(body), Content_Type="application/octet-stream")[0]
            == 201)
    assert ask("GET", X)[1] == ask("GET", "y/data")[1] == body
    assert ask("GET", X, Range="bytes=3-5")[:2] == (206, body[3:6])
    status, text, headers = ask("DELETE", "none")
    assert status == 404 and headers["Content-Type"] == "application/problem+json"
    tag = ask("GET", X)[2]["ETag"]
    assert ask("GET", X, If_None_Match=tag)[0] == 304


def test_http_client(daemon, session):
    """A body with a length and one in chunks on one connection, and a body read into the caller's memory."""
    c = http.client.HTTPConnection(*daemon.tcp, timeout=90)
    body, target = payload(BIG), DATA.format(session, "x")
    with contextlib.closing(c):
        for send in (dict(body=body), dict(body=pieces(body), encode_chunked=True,
                                           headers={"Transfer-Encoding": "chunked"})):
            c.request("PUT", f"{target}?dtype=uint8&shape={BIG}", **send)
            r = c.getresponse()
            assert r.status in (200, 201) and r.read()
            sock = c.sock
            c.request("GET", target)
            r = c.getresponse()
            view, have = bytearray(BIG), 0
            while have < BIG:
                have += r.readinto(memoryview(view)[have:])
            assert bytes(view) == body
            # After a chunked body the daemon cannot know which bytes libmicrohttpd has read, so a long download is the
            # connection's last answer.
            assert "encode_chunked" in send or c.sock is sock, "the connection was not kept"


# --- curl -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_curl(daemon, session, tmp_path, unix):
    """-T waits for 100 Continue; from a pipe it sends chunks; ranges, conditions, resumed downloads."""
    if not shutil.which("curl"):
        pytest.skip("curl is not installed on this machine")
    body = payload(BIG)
    whole, got = tmp_path / "x", tmp_path / "got"
    whole.write_bytes(body)
    base = (f"http://localhost/v1/sessions/{session}/buffers/" if unix
            else daemon.url(f"/v1/sessions/{session}/buffers/"))

    def curl(*args, stdin=None):
        way = ["--unix-socket", daemon.unix] if unix else []
        out = subprocess.run(["curl", "-sS", "-w", "%{http_code} %{num_connects}", *way, *args], input=stdin,
                             capture_output=True, timeout=120)
        assert out.returncode == 0, out.stderr
        return out.stdout.decode()

    head = tmp_path / "head"
    assert curl("-T", str(whole), "-H", "Expect: 100-continue", "-D", str(head), "-o", "/dev/null", base + X) == "201 1"
    assert head.read_text().startswith("HTTP/1.1 100 Continue")
    assert curl("-T", "-", "-o", "/dev/null", f"{base}y/data?dtype=uint8&shape={BIG}", stdin=body) == "201 1"
    assert curl("-o", str(got), base + "y/data") == "200 1" and got.read_bytes() == body
    assert curl("-r", "10-19", "-o", str(got), base + X) == "206 1" and got.read_bytes() == body[10:20]
    got.write_bytes(body[:SLOT])
    assert curl("-C", "-", "-o", str(got), base + X) == "206 1" and got.read_bytes() == body
    tag = next(line.split(": ")[1].strip() for line in head.read_text().splitlines() if line.startswith("ETag"))
    assert curl("-H", f"If-None-Match: {tag}", "-o", "/dev/null", base + X) == "304 1"
    assert curl("-X", "POST", "-H", "Content-Type: application/json", "-d", '{"pattern": 1}', "-o", "/dev/null",
                base + "y/fill") == "200 1"
    # Several transfers of one curl use the same connection.
    assert curl("-T", str(whole), "-o", "/dev/null", base + X, "--next", "-sS", "-w", "%{http_code} %{num_connects}",
                *(["--unix-socket", daemon.unix] if unix else []), "-o", str(got), base + X) == "200 1200 0"
    assert got.read_bytes() == body


# --- safetensors ------------------------------------------------------------------------------------------------------


def test_safetensors_by_requests(base):
    requests, st = library("requests"), library("safetensors.numpy")
    array = array_of("float32", (4, 6))
    with requests.Session() as http:
        assert noted(http.put(base + X, data=st.save({"weight": array}))).status_code == 201
        got = st.load(noted(http.get(base + X, params={"format": "safetensors"})).content)
        assert len(got) == 1 and (next(iter(got.values())) == array).all()
        assert noted(http.get(base + "x")).json()["dtype"] == "float32"
