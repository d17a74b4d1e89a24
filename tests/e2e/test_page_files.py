"""The page's files as they are served. test_page.py tests it in a browser."""
import gzip
import re

import pytest

from conform import interface
from harness import token

TYPES = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8",
         "svg": "image/svg+xml"}


def ask(daemon, path, **headers):
    reply = daemon.ask("GET", path, None, {k.replace("_", "-"): v for k, v in headers.items()})
    interface(daemon).check("GET", path, reply)
    return reply


def files(daemon):
    """All files that the page loads, found by following its references."""
    found, todo = set(), ["/", "/fleet"]
    while todo:
        text = ask(daemon, todo.pop()).body.decode()
        names = re.findall(r'(?:src|href)="/ui/([\w.]+)"', text) + re.findall(r"^import .* from '\./([\w.]+)'", text,
                                                                              re.M)
        todo += ["/ui/" + name for name in names if name not in found]
        found.update(names)
    return sorted("/ui/" + name for name in found) + ["/", "/fleet", "/ui/index.html", "/ui/fleet.html"]


def test_plain_and_packed(daemon):
    paths = files(daemon)
    assert len(paths) > 15 and "/ui/chart.js" in paths and "/ui/style.css" in paths
    for path in paths:
        plain, packed = ask(daemon, path).expect(200), ask(daemon, path, Accept_Encoding="br, GZIP;q=0.5").expect(200)
        assert plain.headers["Content-Type"] == TYPES[path.rsplit(".", 1)[-1] if "." in path else "html"]
        assert plain.headers["Content-Encoding"] is None and packed.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(packed.body) == plain.body and len(plain.body) > 0
        assert plain.headers["ETag"] != packed.headers["ETag"]
        for reply, accept in ((plain, "gzip;q=0"), (packed, "gzip")):
            assert (ask(daemon, path, If_None_Match=reply.headers["ETag"], Accept_Encoding=accept).expect(304).body
                    == b"")
        assert ask(daemon, path, If_None_Match=packed.headers["ETag"]).status == 200
        head = daemon.ask("HEAD", path)
        assert (head.status, head.body, head.headers["Content-Length"]) == (200, b"", str(len(plain.body)))


@pytest.mark.parametrize("path", ["/", "/fleet", "/ui/app.js"])
def test_nothing_from_elsewhere(daemon, path):
    headers = ask(daemon, path).headers
    policy = dict((p.split(None, 1) + [""])[:2] for p in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
    assert headers["Access-Control-Allow-Origin"] is None


def test_no_script_or_style_within(daemon):
    for path, scripts in (("/", 2), ("/fleet", 1)):
        text = ask(daemon, path).body.decode()
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|https?://", text)
        assert re.findall(r"<script[^>]*>([^<]*)</script>", text) == [""] * scripts
    for path in files(daemon):
        if path.endswith(".js") and path != "/ui/chart.js":
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function",
                                 ask(daemon, path).body.decode()), path


def test_other_names_and_methods(daemon):
    for path in ("/ui/none.js", "/ui/..%2fstyle.css", "/ui/", "/ui"):
        ask(daemon, path).problem(404, "no_route")
    for path in ("/", "/fleet", "/ui/app.js"):
        assert daemon.ask("POST", path).problem(405, "method_not_allowed")
        daemon.ask("GET", path + "?x=1").problem(400, "unknown_parameter")


def test_the_page_needs_no_token_its_numbers_do(start, tmp_path):
    token(tmp_path, "add", "reader", "--scope", "read")
    d = start(state=str(tmp_path))
    for path in ("/", "/fleet", "/ui/app.js"):
        ask(d, path).expect(200)
    ask(d, "/v1/stats").problem(401, "unauthenticated")


def test_the_page_of_this_daemon_may_write_others_not(daemon, session):
    target = f"/v1/sessions/{session}/buffers/x/data"
    host = "{}:{}".format(*daemon.tcp)
    for origin, status in ((f"http://{host}", 201), ("http://elsewhere.example", 403), ("null", 403),
                           (f"http://{host}.example", 403)):
        assert daemon.ask("PUT", target, b"abc", {"Origin": origin}).status == status, origin


LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


def test_links_from_elsewhere(daemon):
    """Links of other origins may lead to the page only; a request without browser headers comes from no page."""
    for path in ("/", "/?from=elsewhere", "/fleet", "/ui/app.js"):
        assert daemon.ask("GET", path, headers=LINK).status == (400 if "?" in path else 200), path
        daemon.ask("GET", path, headers={**LINK, "Sec-Fetch-Dest": "iframe"}).problem(403, "cross_origin")
        daemon.ask("GET", path, headers={**LINK, "Sec-Fetch-Mode": "no-cors"}).problem(403, "cross_origin")
    for path in ("/v1", "/metrics", "/livez", "/uix", "/v1/sessions", "/v1/feed"):
        daemon.ask("GET", path, headers=LINK).problem(403, "cross_origin")
        assert daemon.ask("HEAD", path, headers=LINK).status == 403
    daemon.ask("POST", "/", headers=LINK).problem(403, "cross_origin")
    for site in ("same-origin", "none"):
        for path in ("/", "/v1", "/metrics"):
            daemon.ask("GET", path, headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "cors",
                                             "Sec-Fetch-Dest": "empty"}).expect(200)
