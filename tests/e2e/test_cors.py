"""OPTIONS, and pages of other origins: the origins that --cors-origin names may ask and read, all others are
refused."""
import http.server
import threading

import pytest
from harness import DATA, token
from pages import browser  # noqa: F401

GOOD = "https://dash.example"
CROSS = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
PREFLIGHT = {**CROSS, "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers":
             "authorization,content-type,if-match"}
X = DATA.format("default", "x")
OTHERS = ("null", "https://dash.example.evil.example", "https://evil.example/https://dash.example",
          "https://DASH.example", "http://dash.example", "https://dash.example:443", "https://dash.example:444",
          "https://xdash.example", "https://dash.example/", "https://dash.example https://a", "*", "")
CORS = "access-control-"


def cors_of(reply):
    return {k: v for k, v in reply.headers.items() if k.lower().startswith(CORS)}


@pytest.mark.parametrize("unix", [False, True])
def test_options(daemon, unix):
    c = daemon.client(unix=unix)
    for path, methods in ((X, "GET, HEAD, PUT, PATCH, POST"), ("/v1/sessions", "GET, HEAD, POST"),
                          ("/livez", "GET, HEAD"), ("/v1/sessions/none", None)):
        reply = c.ask("OPTIONS", path, None, {}).expect(204)
        assert reply.body == b"" and "OPTIONS" in reply.headers["Allow"].split(", ")
        assert methods is None or {*reply.headers["Allow"].split(", ")} == {*methods.split(", "), "OPTIONS"}, path
        assert not cors_of(reply) and "Vary" not in reply.headers
    c.ask("OPTIONS", "/v1/nothing/here").problem(404, "no_route")
    assert c.connects == 1
    daemon.ask("OPTIONS", X, None, {"Origin": GOOD, **PREFLIGHT}).problem(403, "cross_origin")


def test_without_the_option_nothing_is_said(daemon, session):
    daemon.put("x", b"abc", session).expect(201)
    for method, path in (("GET", "/v1"), ("GET", DATA.format(session, "x")), ("OPTIONS", "/v1"), ("GET", "/v1/none")):
        reply = daemon.ask(method, path, None, {"Origin": GOOD})
        assert not cors_of(reply) and "Origin" not in reply.headers.get("Vary", ""), (method, path)


def test_an_origin_asks_and_reads(start, backend, tmp_path):
    token(tmp_path, "add", "other", "--scope", "read")
    secret = token(tmp_path, "add", "dash", "--scope", "read,write")
    d = start("--cors-origin", "http://127.0.0.1:3000", "--cors-origin", GOOD, state=str(tmp_path))
    from_page = {"Origin": GOOD, **CROSS}
    reply = d.ask("OPTIONS", X, None, {"Origin": GOOD, **PREFLIGHT}).expect(204)  # a preflight has no token
    assert reply.headers["Access-Control-Allow-Origin"] == GOOD and reply.headers["Vary"] == "Origin"
    assert {"PUT", "GET"} <= {*reply.headers["Access-Control-Allow-Methods"].split(", ")}
    assert reply.headers["Access-Control-Allow-Headers"] == PREFLIGHT["Access-Control-Request-Headers"]
    assert int(reply.headers["Access-Control-Max-Age"]) > 0 and "Access-Control-Allow-Credentials" not in reply.headers
    there = d.ask("OPTIONS", "/v1/sessions/default", None, {"Origin": GOOD, **PREFLIGHT}).expect(204).headers
    absent = d.ask("OPTIONS", "/v1/sessions/absent", None, {"Origin": GOOD, **PREFLIGHT}).expect(204).headers
    # not whether it is there
    assert {**there, "Date": 0, "X-Request-Id": 0} == {**absent, "Date": 0, "X-Request-Id": 0}
    for size in (3, 3 << 20):
        body = bytes(size)
        put = d.ask("PUT", X, body, from_page, secret)
        assert put.status in (200, 201) and put.headers["Access-Control-Allow-Origin"] == GOOD
        got = d.ask("GET", X, None, from_page, secret).expect(200)
        assert (got.body == body and got.headers["Access-Control-Allow-Origin"] == GOOD
                and "ETag" in got.headers["Access-Control-Expose-Headers"])
        assert "Origin" in [v for k, v in got.headers.items() if k == "Vary"] or "Origin" in got.headers["Vary"]
    for path in ("/v1", "/v1/stats", "/metrics", "/v1/sessions/default/buffers/none"):  # canned ones and errors
        assert d.ask("GET", path, None, from_page, secret).headers["Access-Control-Allow-Origin"] == GOOD, path
    # the page can read why
    assert d.ask("GET", X, None, from_page).expect(401).headers["Access-Control-Allow-Origin"] == GOOD
    reply = d.ask("GET", "/v1", None, {"Host": "elsewhere.example", **from_page}, secret).expect(421)
    assert reply.headers["Access-Control-Allow-Origin"] == GOOD
    plain = d.ask("GET", "/v1", None, {}, secret).expect(200)
    assert not cors_of(plain) and plain.headers["Vary"] == "Origin"


def test_a_page_may_read_what_is_documented(start):
    """Of the fields that replies have; a browser gives the usual ones without being told."""
    d = start("--cors-origin", GOOD)
    document = d.get("/openapi.json")
    answers = [*document["components"]["responses"].values(),
               *(r for path in document["paths"].values() for op in path.values() if isinstance(op, dict)
                 for r in op.get("responses", {}).values())]
    fields = {name.lower() for answer in answers for name in answer.get("headers", {})}
    exposed = {name.strip().lower() for name in d.ask("GET", "/v1", None,
                                                      {"Origin": GOOD}).headers["Access-Control-Expose-Headers"].split(
                                                          ",")}
    of_nodes = {"gpubuf-directory-time", "gpubuf-directory-doubt"}
    assert len(fields) > 20
    assert {f for f in fields if f.startswith(("gpubuf-", "upload-", "repr-", "idempotency-"))} - of_nodes <= exposed
    assert {"etag", "link", "location", "retry-after", "server-timing", "accept-ranges",
            "content-range"} <= fields & exposed


@pytest.mark.parametrize("origin", OTHERS)
def test_others_are_refused(start, origin):
    d = start("--cors-origin", GOOD)
    d.put("x", b"abc").expect(201)
    for method, body, more in (("GET", None, CROSS), ("PUT", b"abc", CROSS), ("OPTIONS", None, PREFLIGHT),
                               ("PUT", b"abc", {}), ("DELETE", None, {})):
        if origin == "" and not more:
            continue
        reply = d.ask(method, X if method != "DELETE" else "/v1/sessions/default", body, {"Origin": origin, **more})
        assert reply.status == 403 and not cors_of(reply), (method, reply)
    two = d.raw().request("PUT", X, ["Origin: " + GOOD, "Origin: https://evil.example", "Sec-Fetch-Site: cross-site",
                                     "Content-Length: 1"], b"x").reply()
    assert two.status == 403 and not cors_of(two)
    assert not cors_of(d.ask("GET", X, None, {"Origin": origin}))


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):  # noqa: N802
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title>")

    def log_message(self, *args):
        pass


@pytest.fixture
def elsewhere():
    """The address of a page of another origin."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_in_a_browser(start, browser, elsewhere, tmp_path):  # noqa: F811
    secret = token(tmp_path, "add", "dash", "--scope", "admin")
    d = start("--cors-origin", elsewhere, state=str(tmp_path))
    page = browser.page(elsewhere + "/")
    said = page.js(f"""(async () => {{
        const at = {d.url(X)!r}, headers = {{Authorization: 'Bearer ' + {secret!r}}};
        const put = await fetch(at, {{method: 'PUT', headers: {{...headers, 'Content-Type': 'application/octet-stream'}}, body: new Uint8Array([1, 2, 3])}});
        const got = await fetch(at, {{headers}});
        const none = await fetch(at.replace('/x/', '/none/'), {{headers}});
        return [put.status, got.status, got.headers.get('ETag'), [...new Uint8Array(await got.arrayBuffer())], none.status, (await none.json()).code];
    }})()""")
    assert said[:2] == [201, 200] and said[2] and said[3] == [1, 2, 3] and said[4] == 404, said
    page.close()


def test_in_a_browser_others_are_refused(start, browser, elsewhere):  # noqa: F811
    d = start("--cors-origin", GOOD)
    page = browser.page(elsewhere + "/")
    said = page.js(f"""(async () => {{
        const ask = (options) => fetch({d.url("/v1/sessions")!r}, options).then((r) => r.status, (e) => e.name);
        return [await ask({{}}), await ask({{method: 'POST', body: '{{"name": "evil"}}'}}), await ask({{mode: 'no-cors'}}),
                await ask({{method: 'PUT'}})];
    }})()""")
    assert said == ["TypeError"] * 4, said
    assert [s["name"] for s in d.get("/v1/sessions")["items"]] == ["default"]
    page.close()


@pytest.mark.parametrize("origin,why", [
    ("*", "name the origins"), ("null", "serve the page"), ("dash.example", "begins with"),
    ("https://Dash.example", "lower case"), ("https://dashE", "lower case"),
    ("https://dash.example/", "without a path"), ("https://dash.example?x", "without a path"),
    ("https://dash.example:443", "usual port"), ("http://a:80", "usual port"), ("https://", "names a host"),
    ("https://:8080", "names a host"), ("https://*.example", "no patterns"), ("https://a*", "no patterns"),
    ("https://a:0", "1 to 65535"), ("https://a:99999", "1 to 65535"), ("https://a:65536", "1 to 65535"),
    ("https://a:080", "without zeros"), ("https://a:", "SCHEME"), ("https://a:1x", "SCHEME"),
    ("https://a:+1", "SCHEME"), ("https://a b", "begins with"), ("https://a:1/x", "SCHEME"), ("ftp://a", "begins with"),
    ("HTTPS://a", "in lower case"), ("https://" + "a." * 127, "253"), ("https://" + "a" * 64 + ".x", "63"),
    ("http://a..b", "a dot too many"), ("http://.a", "a dot too many"), ("http://a..", "a dot too many"),
    ("http://.", "a dot too many"), ("https://a.example.", "leave out the dot"),
    ("https://a.example.:8443", "leave out the dot"), ("https://bücher.example", "xn--"), ("https://a%62", "SCHEME"),
    ("https://u@a", "no user"), ("https://a.1", "is an address"), ("https://1.2.3", "is an address"),
    ("https://256.1.1.1", "is an address"), ("https://127.000.0.1", "is an address"),
    ("https://0x7f000001", "is an address"), ("https://2130706433", "is an address"),
    ("http://[::1", "an IPv6 address"), ("http://[]", "an IPv6 address"), ("http://[a]", "an IPv6 address"),
    ("http://[fe80::1%eth0]", "an IPv6 address"), ("http://[::1]x", "SCHEME"), ("http://[0:0:0:0:0:0:0:1]", "as [::1]"),
    ("http://[2001:DB8::1]", "as [2001:db8::1]"), ("http://[2001:db8::0:1]", "as [2001:db8::1]"),
    ("http://[::ffff:192.168.0.1]", "as [::ffff:c0a8:1]"), ("http://[1::2:0:0:0:3]", "as [1:0:0:2::3]"),
    ("http://[::1]:80", "usual port")])
def test_what_is_no_origin(start, origin, why):
    d = start("--cors-origin", origin, wait=False)
    assert why in d.finished(64)


def test_what_is_an_origin(start):
    """As browsers write them."""
    origins = ["https://dash.example", "http://localhost:3000", "http://a", "https://a_b.example",
               "https://xn--bcher-kva.example", "http://127.0.0.1:3000", "https://a:80", "http://a:443",
               "http://[::1]:8080", "http://[::]", "http://[2001:db8::1]", "http://[1:0:0:2::3]",
               "http://[1:0:2:3:4:5:6:7]", "http://[::ffff:c0a8:1]", "https://" + "a" * 63 + ".x", "https://a:65535",
               "https://1a.2b", "https://0x7g"]
    d = start(*[word for origin in origins for word in ("--cors-origin", origin)])
    for origin in origins:
        assert d.ask("GET", "/v1", None, {"Origin": origin,
                                          **CROSS}).expect(200).headers["Access-Control-Allow-Origin"] == origin
