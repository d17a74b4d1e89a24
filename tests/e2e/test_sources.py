"""Copies from any server over HTTP (from_url): nginx, S3, and servers of few words. test_sources_lies.py has servers
that lie or break off, test_sources_file.py copies from files (from_file), test_pull.py those from other daemons."""
import hashlib
import itertools
import json

import numpy as np
import pytest

import secure
from conform import Session
from etcd_run import token
from harness import SLOT, SMALL_SLOTS, Daemon, metric, until
from ports import free_url
from sources import (ASYNC, MIB, S3, Nginx, Own, Plain, chunked, digest, ended, left_tidy, nothing_left, owning,
                     refused, take, until_the_end)
from tensors import safetensors
from test_tables import META, file, some
from values import array_of, file_of, npy, one, payload

BIG = payload(40 * MIB + 12345, 7)
COPY = "/v1/sessions/default/buffers/m/copy"


@pytest.fixture(scope="module")
def nginx(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nginx")
    (folder / "root").mkdir()
    server = Nginx(folder / "run", folder / "root")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def shared_daemon(nginx, backend):
    with Daemon(backend, *SMALL_SLOTS, "--pull-from", nginx.url, "--pull-from", nginx.secure_url, "--pull-ca",
                secure.authority().cert) as d:
        yield d


@pytest.fixture
def w(shared_daemon):
    """The default session of a daemon that may copy from nginx; its buffer m is gone afterwards."""
    yield from left_tidy(shared_daemon)


@pytest.fixture
def own(start):
    yield from owning(start)


# --- nginx: ranges and strong tags ------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 3, 16, None])
@pytest.mark.parametrize("n", [0, 1, SLOT, 8 * MIB, 8 * MIB + 1, 17 * MIB - 1, len(BIG)])
def test_sizes_and_parts(w, nginx, n, parts):
    url, before = nginx.write("bytes.bin", BIG[:n]), len(nginx.asked())
    m = take(w, url, **({"parts": parts} if parts else {}))
    pulled = m["pulled"]
    assert w.data("m") == BIG[:n] and (m["way"], m["bytes"], m["dtype"]) == ("pull", n, "uint8")
    assert (pulled["bytes"], pulled["received_bytes"], pulled["generation"], pulled["verified"]) == (n, n, None, False)
    assert (pulled["resumed"], pulled["begun_again"], pulled["failovers"]) == (0, 0, 0)
    assert pulled["parts"] <= max(1, -(-n // (8 * MIB)), 1) and pulled["parts"] <= (parts or 4)
    asked = nginx.asked()[before:]
    assert {method for method, *_ in asked} == {"GET"} and asked[0][3].startswith("bytes=0-")
    if n:
        tag = pulled["etag"].replace('"', "\\x22")  # as nginx writes it
        assert pulled["etag"].startswith('"') and all(tag in row[4] for row in asked[1:])
    assert w.get("buffers/m")["crc32c"]


def test_64_mib(w, nginx):
    data = payload(64 * MIB, 3)
    m = take(w, nginx.write("64.bin", data), digest={"sha-256": digest(data)}, parts=8)
    assert m["pulled"]["parts"] == 8 and w.data("m") == data


def test_the_daemon_counts(w, nginx):
    d = w.daemon
    names = ("gpubufd_pulls_total", "gpubufd_pulled_bytes_total")
    before = [metric(d, name) for name in names]
    take(w, nginx.write("bytes.bin", BIG[:5000]))
    until("it is counted", lambda: [metric(d, name) for name in names] == [before[0] + 1, before[1] + 5000])


FORMS = {
    "raw": ("x.bin", b"\1\2\3\4", {}, "uint8", [4]),
    "a dtype": ("x.bin", bytes(range(24)), {"dtype": "float32"}, "float32", [6]),
    "a shape": ("x.bin", bytes(range(24)), {"dtype": "float32", "shape": [2, 3]}, "float32", [2, 3]),
    "npy": ("x.npy", npy(array_of("int16", (3, 5))), {}, "int16", [3, 5]),
    "npy by its bytes": ("x.bin", npy(array_of("int16", (3, 5))), {}, "int16", [3, 5]),
    "npy, big": ("x.bin", npy(array_of("float32", (3000, 1001))), {}, "float32", [3000, 1001]),
    "npy of another order": ("f.npy", npy(np.asfortranarray(array_of("float32", (30, 51)))), {}, "float32", [30, 51]),
    "npy as it is": ("x.npy", npy(array_of("int16", (3, 5))), {"format": "raw"}, "uint8", None),
    "npy by name": ("x", npy(array_of("int16", (3, 5))), {"format": "npy"}, "int16", [3, 5]),
    "one tensor": ("x.safetensors", one("I16", (2, 3), bytes(range(12))), {}, "int16", [2, 3]),
    "one tensor, big": ("x.safetensors", one("F32", (3000, 1001), payload(12012000)), {}, "float32", [3000, 1001]),
    "packed": ("x.safetensors", one("I16", (2, 3), bytes(range(12))), {"pack": True}, "tensors", None),
    "a table": ("x.safetensors", file(some(), META), {}, "tensors", None),
    "a table by its type": ("typed/x", file(some(), META), {}, "tensors", None),
    "a table by word": ("x", file(some(), META), {"format": "safetensors"}, "tensors", None),
    "a table as it is": ("x.safetensors", file(some(), META), {"format": "raw"}, "uint8", None),
    "without a name": ("x", file(some(), META), {}, "uint8", None),
    "a name that lies": ("y.safetensors", b"no safetensors at all", {"format": "raw"}, "uint8", None),
}


@pytest.mark.parametrize("case", FORMS)
def test_forms(w, nginx, case):
    name, body, more, dtype, shape = FORMS[case]
    nginx.write(name.rpartition("/")[2], body)
    m = take(w, f"{nginx.url}/{name}", **more)
    assert m["dtype"] == dtype and (shape is None or m["shape"] == shape)
    if dtype == "tensors" or more.get("format") == "raw" or case == "without a name":
        assert w.data("m") == body
    words = {"dtype": more.get("dtype"), "shape": ",".join(map(str, more.get("shape", []))), "pack": more.get("pack"),
             "format": "raw" if m["dtype"] == "uint8" else None}
    w.put("same", body, "?" + "&".join(f"{k}={str(v).lower()}" for k, v in words.items() if v))
    same = w.meta("same")
    for field in ("dtype", "shape", "bytes", "crc32c"):
        assert m[field] == same[field], field


def test_a_large_table(w, nginx):
    arrays = {f"layer.{i}": array_of("float32", (257, 1000), i) for i in range(9)} | {"tiny": np.ones(3, "uint8")}
    body = file(arrays, META)
    url = nginx.write("large.safetensors", body)
    for parts in (1, 4):
        m = take(w, url, "m", 201 if parts == 1 else 200, parts=parts, digest={"sha-256": digest(body)})
        assert w.data("m") == body and m["pulled"]["bytes"] == len(body)
        back = safetensors.numpy.load(w.data("m"))
        assert all((back[n] == a).all() for n, a in arrays.items())
        assert w.data("m", "?tensor=layer.3&slice=7&format=raw") == arrays["layer.3"][7].tobytes()
        listed = w.get("buffers/m/tensors")
        assert (listed["tensors"], listed["file_bytes"]) == (10, len(body))
    take(w, url, "one", pack=True)
    assert w.data("one") == body


GOOD = file(some(), META)
DAMAGED = {
    "cut": (GOOD[:-1], "bytes"), "more": (GOOD + b"x", "bytes"), "in the header": (GOOD[:40], "header"),
    "a header that is none": (file_of(b'{"a":' + b" " * 40), "header"),
    "nothing": (b"", ""), "short": (b"\0\1\2", ""),
    "a hole": (file_of({"a": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]}}, bytes(6)), "bytes"),
}


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_changes_nothing(w, nginx, case, parts):
    body, word = DAMAGED[case]
    url = nginx.write("bad.safetensors", body)
    w.put("m", b"before")
    r = w.ask("POST", "buffers/m/copy", {"from_url": url, "format": "safetensors", "parts": parts})
    assert r.status == 422 and word in r.json()["detail"], r
    assert w.data("m") == b"before" and w.meta("m")["generation"] == 1


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 16000\n"
NONE = {"a pointer of LFS": (LFS, "git lfs pull"), "text": (b"no safetensors at all", "does not begin as"),
        "no brace": (b"\x10" + bytes(7) + b"[1]" + bytes(30), "does not begin as"), "nothing": (b"", "byte 0"),
        "a npy": (npy(array_of("int16", (3, 5))), "does not begin as")}


def what_a_name_promises(w, name_of, key):
    """A file that is called as one of a form, and is none, changes nothing, unless the request says that it is bytes.
    name_of: writes the file, and gives its name in a request."""
    w.put("m", b"before")
    for ending, case in itertools.product(("safetensors", "npy"), NONE):
        if ending in case:
            continue
        body, word = NONE[case]
        source = {key: name_of(f"none.{ending}", body)}
        word = word if ending == "safetensors" else ""
        p = w.ask("POST", "buffers/m/copy", source).problem(422, "unsupported_array")
        assert word in p["detail"], (case, p["detail"])
        assert w.data("m") == b"before" and w.meta("m")["generation"] == 1
        for more in ({"format": "raw"}, {"dtype": "uint8"})[:1 if case == "a npy" else 2]:
            w.post("buffers/raw/copy", {**source, **more}, 201)
            assert w.data("raw") == body and w.meta("raw")["dtype"] == "uint8"
            w.delete("buffers/raw")


def test_the_fields_are_named_once(w, nginx):
    for body in ({"nosuch": 1}, {"from": "x", "nosuch": 1}, {"from_url": nginx.url + "/x", "nosuch": 1}):
        detail = w.ask("POST", "buffers/m/copy", body).problem(400, "unknown_field")["detail"]
        fields = detail.partition("permitted: ")[2].split()
        assert len(fields) == len(set(fields)) and {"kind", "stream", "from_url", "labels"} <= set(fields), detail


def test_a_file_that_is_not_what_its_name_says(w, nginx):
    what_a_name_promises(w, nginx.write, "from_url")
    p = w.ask("POST", "buffers/m/copy", {"from_url": nginx.write("x", LFS).rpartition("/")[0] + "/typed/x"})
    assert "git lfs pull" in p.problem(422, "unsupported_array")["detail"]


def test_a_damaged_file_that_is_large(w, nginx):
    """The header is whole, and the end is far from it."""
    good = file({"a": array_of("float32", (3000, 1000)), "b": array_of("float32", (3000, 1000))})
    w.put("m", b"before")
    for body in (good[:-1], good + b"x"):
        r = w.ask("POST", "buffers/m/copy", {"from_url": nginx.write("bad.safetensors", body)})
        assert r.status == 422 and "bytes" in r.json()["detail"], r
        assert w.data("m") == b"before" and w.meta("m")["generation"] == 1
    bad = npy(array_of("float32", (3000, 1000)))
    for body in (bad[:-1], bad + b"x"):
        r = w.ask("POST", "buffers/m/copy", {"from_url": nginx.write("bad.npy", body)})
        assert r.status == 422, r
        assert w.data("m") == b"before"


def test_dtype_and_shape_have_to_fit(w, nginx):
    url = nginx.write("x.bin", bytes(10))
    for more, status, code in (({"dtype": "float32"}, 422, "shape_mismatch"), ({"shape": [9]}, 422, "shape_mismatch"),
                               ({"dtype": "float9"}, 400, "invalid_argument"),
                               ({"format": "gif"}, 400, "invalid_argument"),
                               ({"dtype": "tensors"}, 400, "invalid_argument")):
        p = w.ask("POST", "buffers/m/copy", {"from_url": url, **more})
        assert p.status in (status, 422 if status == 422 else 400), (more, p)
        nothing_left(w)
    url = nginx.write("x.npy", npy(array_of("int16", (3, 5))))
    assert w.ask("POST", "buffers/m/copy", {"from_url": url, "dtype": "float32"}).status in (400, 422)
    nothing_left(w)


# --- ways to a server -------------------------------------------------------------------------------------------------


def test_tls_and_redirects(w, nginx):
    nginx.write("model.safetensors", GOOD)
    for url in (nginx.secure_url + "/model.safetensors", nginx.url + "/moved/model.safetensors",
                nginx.url + "/moved/moved/moved/moved/model.safetensors"):
        take(w, url, name="m", status=201)
        assert w.data("m") == GOOD
        w.delete("buffers/m")
    p = refused(w, nginx.secure_url + "/unsecured/x", 502, "source_refused", "https")
    assert not p["retryable"]


def test_an_authority_that_is_unknown(start, nginx):
    s = Session(start("--pull-from", nginx.secure_url))
    nginx.write("x.bin", b"1")
    refused(s, nginx.secure_url + "/x.bin", 502, "source_unreachable", "certificate")


def test_redirects_have_an_end(own):
    server, s = own(b"abc")

    def turn(request, answer):
        n = int(request.target.rpartition("/")[2] or 0) if request.target[1:].isdigit() else 0
        answer.status, answer.body = 302, b""
        answer.headers.update({"Location": f"{server.origin}/{n + 1}", "Content-Length": "0"})

    server.lie = turn
    refused(s, server.url, 502, "source_refused", "redirects", "5 times")
    assert len(server.requests) == 6


@pytest.mark.parametrize("location", [None, "", "ftp://127.0.0.1/x", "http://[", "//", "http://u:p@127.0.0.1/"])
def test_redirects_to_nowhere(own, location):
    server, s = own(b"abc")

    def turn(request, answer):
        answer.status, answer.body = 302, b""
        answer.headers.update({"Location": location, "Content-Length": "0"})

    server.lie = turn
    r = s.ask("POST", "buffers/m/copy", {"from_url": server.url})
    assert r.json()["code"] in ("source_refused", "source_not_permitted"), r
    nothing_left(s)


def test_a_redirect_of_a_path_alone(own):
    server, s = own(b"abc")

    def turn(request, answer):
        if request.target == "/model":
            answer.status, answer.body = 307, b""
            answer.headers.update({"Location": "/elsewhere?a=%2F", "Content-Length": "0"})

    server.lie = turn
    take(s, server.url)
    assert s.data("m") == b"abc" and server.requests[-1].target == "/elsewhere?a=%2F"


def test_only_what_the_options_name(start, own):
    server, s = own(b"abc")
    other = free_url()
    p = refused(s, other + "/x", 403, "source_not_permitted", "--pull-from")
    assert other.rpartition(":")[2] in p["detail"]
    refused(Session(start()), server.url, 403, "source_not_permitted", "--pull-from")

    def turn(request, answer):
        answer.status, answer.body = 302, b""
        answer.headers.update({"Location": other + "/x", "Content-Length": "0"})

    server.lie = turn
    refused(s, server.url, 403, "source_not_permitted", other.rpartition(":")[2])


def test_headers_are_for_their_origin_alone(start):
    first, second = Own(b"abc" * 1000), Own(b"abc" * 1000)

    def turn(request, answer):
        answer.status, answer.body = 302, b""
        answer.headers.update({"Location": second.url, "Content-Length": "0"})

    d = start("--pull-from", first.origin, "--pull-from", second.origin, "--audit", "all")
    s = Session(d)
    headers = {"Authorization": "Bearer hush-hush", "X-Own": "yes: it is"}
    s.post("buffers/m/copy", {"from_url": first.url, "headers": headers}, 201)
    assert all(r.headers["Authorization"] == "Bearer hush-hush" and r.headers["X-Own"] == "yes: it is"
               for r in first.requests)
    first.lie = turn
    s.post("buffers/n/copy", {"from_url": first.url, "headers": headers}, 201)
    assert first.requests[-1].headers["Authorization"] == "Bearer hush-hush"
    assert second.requests and not any("Authorization" in r.headers or "X-Own" in r.headers for r in second.requests)
    operation = s.post("buffers/o/copy", {"from_url": first.url + "?sig=hush-hush", "headers": headers}, 202, ASYNC)
    op = ended(s, operation["id"])
    assert op["state"] == "done"
    assert "hush-hush" not in json.dumps(op) + d.log() + json.dumps(d.get("/v1/audit"))
    for server in (first, second):
        server.stop()


def test_a_server_that_wants_a_header(w, nginx):
    nginx.write("x.bin", b"secret")
    p = refused(w, nginx.url + "/secret/x.bin", 502, "source_refused", "401")
    assert not p["retryable"]
    give = {"from_url": nginx.url + "/secret/x.bin", "headers": {"Authorization": "Bearer hush"}}
    w.post("buffers/m/copy", give, 201)
    assert w.data("m") == b"secret"


BAD_HEADERS = {
    "a line": {"X": "a\r\nY: b"}, "a name with a line": {"X\r\nY": "a"}, "no name": {"": "a"}, "a space": {"X Y": "a"},
    "Range": {"Range": "bytes=0-1"}, "range": {"range": "bytes=0-1"}, "If-Match": {"If-Match": "*"},
    "If-None-Match": {"If-None-Match": "*"}, "Host": {"Host": "x"}, "Content-Length": {"Content-Length": "4"},
    "Connection": {"Connection": "close"}, "Transfer-Encoding": {"Transfer-Encoding": "chunked"}, "TE": {"TE": "x"},
    "Upgrade": {"Upgrade": "h2c"}, "Keep-Alive": {"Keep-Alive": "5"}, "a number": {"X": 5}, "null": {"X": None},
    "many": {f"X-{i}": "a" for i in range(17)}, "long": {"X": "a" * 100000}, "a list": ["X"], "NUL": {"X": "a\0b"},
    "empty": {"X": ""}, "blank": {"X": " "}, "blanks": {"X": "   "},
}


@pytest.mark.parametrize("case", BAD_HEADERS)
def test_headers_that_are_refused(w, nginx, case):
    nginx.write("x.bin", b"1")
    r = w.ask("POST", "buffers/m/copy", {"from_url": nginx.url + "/x.bin", "headers": BAD_HEADERS[case]})
    assert r.status in (400, 413) and ("header" in r.json()["detail"] or case in ("long", "NUL")), r
    nothing_left(w)


def test_16_headers(own):
    server, s = own(b"abc")
    s.post("buffers/m/copy", {"from_url": server.url, "headers": {f"X-{i}": f"v {i}" for i in range(16)}}, 201)
    assert all(server.requests[0].headers[f"X-{i}"] == f"v {i}" for i in range(16))


def test_a_query_is_kept_as_it_is(own):
    server, s = own(b"abc")
    query = "?a=%2f%2F+b&&X-Amz-Signature=%7e~;c=d?/&e="
    take(s, server.origin + "/p%20th/a.b" + query)
    assert {r.target for r in server.requests} == {"/p%20th/a.b" + query}
    assert server.requests[0].headers["Host"] == server.origin.removeprefix("http://")
    assert "Signature" not in s.daemon.log()


@pytest.mark.parametrize("url", [
    "", "m", "http://", "ftp://h/x", "file:///etc/passwd", "http://u:p@h/x", "http://h:99999/x",
    "http://h y/x", "http://h/x\r\nX: y", "http://h/a b", "http://h/#x", "http://h/" + "x" * 9000, 5, None,
    ["http://h/x"]])
def test_what_is_no_url(w, url):
    r = w.ask("POST", "buffers/m/copy", {"from_url": url})
    assert r.problem(400, "invalid_argument" if isinstance(url, str) else "wrong_type")["detail"]


# --- S3, and servers of few words -------------------------------------------------------------------------------------


@pytest.fixture
def s3():
    server = S3()
    yield server
    server.stop()


@pytest.mark.once
def test_presigned_urls(start, s3):
    s = Session(start("--pull-from", s3.url))
    missing = s3.client.generate_presigned_url("get_object", {"Bucket": "models", "Key": "none"}, 600)
    p = refused(s, missing, 502, "source_refused", "404")
    assert "Signature" not in p["detail"] + s.daemon.log()
    body = file({f"layer.{i}": array_of("float32", (3000, 1000), i) for i in range(2)})
    m = take(s, s3.put("llama/model.safetensors", body), parts=2)
    assert s.data("m") == body and m["dtype"] == "tensors" and m["pulled"]["parts"] == 2
    assert m["pulled"]["etag"] == f'"{hashlib.md5(body).hexdigest()}"'
    take(s, s3.put("x y/ü.bin", BIG), "x")
    assert s.data("x") == BIG


@pytest.mark.once
def test_pythons_own_server(start, tmp_path):
    """It has neither ranges nor tags."""
    (tmp_path / "m.safetensors").write_bytes(GOOD)
    (tmp_path / "big").write_bytes(BIG)
    (tmp_path / "none").write_bytes(b"")
    server = Plain(tmp_path)
    try:
        s = Session(start("--pull-from", server.url))
        for file_name, data in (("m.safetensors", GOOD), ("big", BIG), ("none", b"")):
            pulled = take(s, f"{server.url}/{file_name}", "m-" + file_name, parts=16)["pulled"]
            assert s.data("m-" + file_name) == data and pulled["etag"] is None and pulled["parts"] <= 1
    finally:
        server.stop()


@pytest.mark.parametrize("n", [0, 1, SLOT + 1, len(BIG)])
@pytest.mark.parametrize("lie", [chunked, until_the_end, None])
def test_without_ranges_or_tags(own, n, lie):
    server, s = own(BIG[:n], lie=lie, ranges=False, tag=None)
    pulled = take(s, server.url, parts=4)["pulled"]
    assert s.data("m") == BIG[:n] and pulled["etag"] is None and pulled["bytes"] == n and pulled["parts"] <= 1
    assert len(server.requests) == 1


@pytest.mark.parametrize("lie", [chunked, None])
def test_a_table_without_ranges(own, lie):
    server, s = own(GOOD, lie=lie, ranges=False, tag=None)
    assert take(s, server.origin + "/x.safetensors")["dtype"] == "tensors" and s.data("m") == GOOD
    array = npy(array_of("float32", (3000, 1001)))
    server.content = array
    assert take(s, server.url, "a")["shape"] == [3000, 1001]
    for bad in (array[:-1], array + b"x"):
        server.content = bad
        assert s.ask("POST", "buffers/b/copy", {"from_url": server.url}).status == 422
        s.ask("GET", "buffers/b").expect(404)


@pytest.mark.parametrize("tag", [None, 'W/"v1"', "v1"])
def test_ranges_without_a_strong_tag(own, tag):
    """Nothing says that two ranges are of one version."""
    server, s = own(BIG, tag=tag)
    pulled = take(s, server.url, parts=4)["pulled"]
    assert s.data("m") == BIG and pulled["parts"] == 1
    assert pulled["etag"] is None


def test_lines_before_the_answer(own):
    server, s = own(BIG[:70000])

    def early(request, answer):
        answer.status = "103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 %d" % answer.status

    server.lie = early
    take(s, server.url)
    assert s.data("m") == BIG[:70000]


# --- what it becomes --------------------------------------------------------------------------------------------------


def test_a_digest(w, nginx):
    """Of the bytes as they are sent: of the file, also where it is an array."""
    for name, body in (("x.bin", BIG), ("x.npy", npy(array_of("float32", (3000, 1001)))), ("m.safetensors", GOOD),
                       ("one.safetensors", one("F32", (3000, 1001), payload(12012000)))):
        url = nginx.write(name, body)
        for parts in (1, 4):
            p = w.ask("POST", "buffers/m/copy", {"from_url": url, "digest": {"sha-256": digest(b"")}, "parts": parts})
            assert "sha-256" in p.problem(400, "digest_mismatch")["detail"]
            nothing_left(w)
            take(w, url, digest={"sha-256": digest(body), "sha-512": digest(body, "sha512")}, parts=parts)
            w.delete("buffers/m")


def test_where_it_lies(w, nginx):
    url = nginx.write("x.bin", bytes(range(256)) * 100)
    w.ask("POST", "pools", {"name": "p"}).expect(201)
    assert take(w, url, "in-a-pool", pool="p")["pool"] == "p"
    assert take(w, url, "pinned", kind="pinned")["kind"] == "pinned"
    assert take(w, url, "pinned", status=200)["kind"] == "pinned"
    assert take(w, url, "on-device", device=0)["device"]["index"] == 0
    assert take(w, url, "labelled", labels={"model": "llama", "step": "7"})["labels"] == {"model": "llama", "step": "7"}
    w.ask("POST", "streams", {"name": "s1"}).expect(201)
    assert take(w, url, "on-stream", stream="s1")["stream"] == "s1"
    for more, status, code in (({"pool": "none"}, 404, "pool_not_found"), ({"stream": "none"}, 404, "stream_not_found"),
                               ({"pool": "p", "device": 0}, 400, "invalid_argument"),
                               ({"kind": "carpet"}, 400, "invalid_argument"),
                               ({"device": 77}, 404, "device_not_found"),
                               ({"labels": []}, 400, "wrong_type"), ({"parts": 0}, 400, "invalid_argument"),
                               ({"parts": 17}, 400, "invalid_argument"), ({"pack": "yes"}, 400, "wrong_type")):
        w.ask("POST", "buffers/none/copy", {"from_url": url, **more}).problem(status, code)
    w.delete("buffers/in-a-pool")
    w.delete("pools/p")
    w.delete("streams/s1")


@pytest.mark.parametrize("more", [{"from": "x"}, {"from_file": "x"}, {"from_offset": 0}, {"offset": 0}, {"bytes": 5},
                                  {"in_place": True}, {"side": "host"}, {"share": True}, {"from_if_match": '"1.1"'}])
def test_what_does_not_go_with_it(w, nginx, more):
    url = nginx.write("x.bin", b"12345")
    r = w.ask("POST", "buffers/m/copy", {"from_url": url, **more})
    assert r.status == 400 and next(iter(more)).removeprefix("from_if") in r.json()["detail"], r
    nothing_left(w)


def test_not_in_a_batch(w, nginx):
    r = w.ask("POST", "batch", {"operations": [{"op": "copy", "buffer": "m", "from_url": nginx.write("x", b"1")}]})
    assert r.status == 400, r


def test_conditions_hold_at_the_target(w, nginx):
    url = nginx.write("x.bin", b"one")
    take(w, url, headers={"If-None-Match": "*"})
    w.ask("POST", "buffers/m/copy", {"from_url": url}, {"If-None-Match": "*"}).problem(412, "precondition_failed")
    tag = w.ask("HEAD", "buffers/m/data").headers["ETag"]
    nginx.write("x.bin", b"two")
    take(w, url, status=200, headers={"If-Match": tag})
    w.ask("POST", "buffers/m/copy", {"from_url": url}, {"If-Match": tag}).problem(412, "precondition_failed")
    assert w.data("m") == b"two"
    first = take(w, url, "k", headers={"Idempotency-Key": "k1"})
    assert take(w, url, "k", headers={"Idempotency-Key": "k1"}) == first and w.meta("k")["generation"] == 1
    w.ask("POST", "buffers/m/seal").expect(200)
    w.ask("POST", "buffers/m/copy", {"from_url": url}).problem(409, "sealed")


def test_a_quota_and_too_little_memory(own, simulated, start):
    server, s = own(BIG)
    s.ask("POST", "/v1/sessions", {"name": "small", "quota": {"bytes": 20 * MIB}}).expect(201)
    for lie in (None, chunked):
        server.lie, server.ranges = lie, lie is None
        r = s.ask("POST", "/v1/sessions/small/buffers/m/copy", {"from_url": server.url})
        assert r.json()["code"] == "quota_exceeded", r
        assert s.get("/v1/sessions/small/uploads")["items"] == []
        assert until("it is free", lambda: s.get("/v1/sessions/small")["used_bytes"] == 0)
    little = Session(start("--pull-from", server.origin, spec=simulated("bytes=32M")))
    server.lie, server.ranges = None, True
    assert little.ask("POST", "buffers/m/copy", {"from_url": server.url}).json()["code"] == "out_of_memory"
    nothing_left(little)


def test_kept_on_disk(lives, nginx):
    d = lives("--pull-from", nginx.url)
    s = Session(d)
    url = nginx.write("m.safetensors", GOOD)
    m = take(s, url, durability="sync")
    assert (m["durability"], m["stored_generation"]) == ("sync", 1)
    take(s, nginx.write("x.bin", BIG), "x", durability="sync")
    s.post("checkpoints", {"name": "c"}, 201)
    s.delete("buffers/x")
    s = Session(lives("--pull-from", nginx.url))
    assert s.data("m") == GOOD and s.meta("m")["dtype"] == "tensors"
    s.ask("POST", "/v1/checkpoints/c/restore", {"prefix": "old."}).expect(200)
    assert s.data("old.x") == BIG and s.data("old.m") == GOOD


def test_scopes(start, nginx, tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    d = start("--pull-from", nginx.url, state=str(state))
    secrets = {scope: token(str(state), "add", scope, "--scope", scope) for scope in ("read", "write")}
    until("the tokens are in force", lambda: d.ask("GET", "/v1/sessions").status == 401)
    body = {"from_url": nginx.write("x.bin", b"1")}
    d.ask("POST", COPY, body).problem(401, "unauthenticated")
    d.ask("POST", COPY, body, token=secrets["read"]).problem(403, "forbidden")
    d.ask("POST", COPY, body, token=secrets["write"]).expect(201)


def test_bounded_memory(own):
    """No copy of the file is held: 64 MiB go through 8 MiB of slots."""
    server, s = own(payload(64 * MIB, 5), "--slots-bytes", "8M", "--slot-bytes", "256K", ranges=False)
    for kind in ("device", "pageable"):
        take(s, server.url, kind=kind)
        before = s.daemon.rss_anon()
        take(s, server.url, kind, kind=kind)
        until("only the buffer's memory is more", lambda: s.daemon.rss_anon() < before + (64 + 16) * MIB)
        s.delete("buffers/" + kind)
        s.delete("buffers/m")
