"""Generates requests in which one parser may see another request than the next: pairs of framings, fields whose lines
have odd ends, odd targets and hosts, upgrades, and requests in a row. Names and routes are those of framing_table."""
import itertools

from framing_table import BODY, CANARY, CHUNKED, CL, LAST, ROUTES, TAG, TE, Case, head

# want: none: the request behind is never run when sent directly, and the first one may be; all: each is run; any: no
# claim about a client without a proxy.
HIDDEN = LAST + CANARY  # by a coding it ends at once, by a length it is all body
ALL = b"%d" % len(HIDDEN)

# Each is read as a length, as a coding or as neither, by one parser or another.
FRAMINGS = [
    ("length", b"Content-Length: " + ALL), ("length 0", b"Content-Length: 0"),
    ("length with plus", b"Content-Length: +" + ALL), ("length in a list", b"Content-Length: " + ALL + b", 0"),
    ("length, blank before colon", b"Content-Length : " + ALL), ("length in lower case", b"content-length:" + ALL),
    ("length with an underscore", b"Content_Length: " + ALL), ("length by Connection", b"Connection: keep-alive, "
                                                               b"Content-Length"),
    ("coding by Connection", b"Connection: Transfer-Encoding"), ("chunked", TE),
    ("chunked in capitals", b"TRANSFER-ENCODING: CHUNKED"), ("chunked behind a tab", b"Transfer-Encoding:\tchunked"),
    ("chunked, blank before colon", b"Transfer-Encoding : chunked"),
    ("chunked with an underscore", b"Transfer_Encoding: chunked"), ("x before chunked", b"Transfer-Encoding: xchunked"),
    ("identity", b"Transfer-Encoding: identity"), ("gzip and chunked", b"Transfer-Encoding: gzip, chunked"),
    ("chunked behind a vertical tab", b"Transfer-Encoding:\x0bchunked"), ("TE", b"TE: chunked"),
    ("content coding", b"Content-Encoding: chunked"), ("te of trailers", b"TE: trailers\r\nConnection: TE")]


def pairs():
    for (name, line), (other, other_line) in itertools.permutations(FRAMINGS, 2):
        yield Case("pair", f"{name}, then {other}", "put", head("put", [line, other_line]) + HIDDEN, "any")


# --- lines ------------------------------------------------------------------------------------------------------------

ENDS = [("bare LF", b"\n"), ("bare CR", b"\r"), ("CRCRLF", b"\r\r\n"), ("LFCR", b"\n\r"), ("NUL LF", b"\0\n"),
        ("NUL CRLF", b"\0\r\n"), ("CR NUL", b"\r\0"), ("CR NUL LF", b"\r\0\n"), ("a fold", b"\r\n "),
        ("a fold by a tab", b"\r\n\t"), ("LF and a fold", b"\n "), ("a line without a name", b"\r\n:\r\n"),
        ("a line without a name, LF", b"\r\n:\n"), ("LF, a line without a name", b"\n:\r\n"),
        ("a line of a NUL", b"\r\n\0\r\n"), ("a line of a NUL, LF", b"\r\n\0\n"), ("a line of blanks", b"\r\n  \r\n"),
        ("a line of a letter", b"\r\nX\r\n"), ("vertical tab", b"\x0b"), ("form feed", b"\x0c"), ("NEL", b"\xc2\x85")]


def lines():
    """Before a framing that a parser sees or does not, and before a canary that it takes for fields or for a
    request."""
    for name, end in ENDS:
        for framing, body in ((b"Content-Length: " + ALL, HIDDEN), (TE, HIDDEN), (CL, BODY + CANARY)):
            start = head("put", [])[:-4]
            yield Case("line", f"{name}, then {framing.decode()[:14]}", "put", start + b"\r\nX: a" + end + framing
                       + b"\r\n\r\n" + body, "any")
        target = b"/v1/sessions/default/buffers/canary-" + TAG
        asked = b"GET " + target + b"?:a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        start = head("get", [])[:-4]
        yield Case("line", f"{name}, then a request", "get", start + b"\r\nX: a" + end + asked, "any")
        yield Case("line", f"{name} at the end", "get", start + b"\r\nX: a" + end + b"\r\n" + CANARY, "any")


# --- targets and hosts ------------------------------------------------------------------------------------------------

def asked(first, fields, route="get", body=b""):
    return first + b"\r\n" + b"".join(f + b"\r\n" for f in fields) + b"\r\n" + body + CANARY


def targets():
    t, host = ROUTES["get"].target, b"Host: localhost"
    for name, first in [
            ("absolute", b"GET http://localhost" + t + b" HTTP/1.1"), ("absolute of another", b"GET http://evil.example"
                                                                       + t + b" HTTP/1.1"),
            ("absolute with a user", b"GET http://a@localhost" + t + b" HTTP/1.1"),
            ("absolute with a port", b"GET http://localhost:7" + t + b" HTTP/1.1"),
            ("https", b"GET https://localhost" + t + b" HTTP/1.1"),
            ("no scheme", b"GET //localhost" + t + b" HTTP/1.1"), ("no slash", b"GET " + t[1:] + b" HTTP/1.1"),
            ("a fragment", b"GET " + t + b"#x HTTP/1.1"), ("dots", b"GET /x/.." + t + b" HTTP/1.1"),
            ("encoded dots", b"GET /%2e%2e" + t + b" HTTP/1.1"),
            ("an encoded line", b"GET " + t + b"%0d%0aX:%20a HTTP/1.1"),
            ("an encoded NUL", b"GET " + t + b"%00 HTTP/1.1"), ("a backslash", b"GET \\" + t + b" HTTP/1.1"),
            ("a blank", b"GET " + t + b" x HTTP/1.1"), ("a tab", b"GET " + t + b"\tHTTP/1.1"),
            ("HTTP/0.9", b"GET " + t), ("HTTP/0.9 with a blank", b"GET " + t + b" "),
            ("HTTP/0.9 in words", b"GET " + t + b" HTTP/0.9"), ("HTTP/1.0", b"GET " + t + b" HTTP/1.0"),
            ("HTTP/1.2", b"GET " + t + b" HTTP/1.2"), ("HTTP/2.0", b"GET " + t + b" HTTP/2.0"),
            ("lower-case version", b"GET " + t + b" http/1.1"), ("CONNECT", b"CONNECT localhost:80 HTTP/1.1"),
            ("TRACE", b"TRACE " + t + b" HTTP/1.1"), ("PRI", b"PRI * HTTP/2.0"),
            ("no method", b" " + t + b" HTTP/1.1")]:
        yield Case("target", name, "get", asked(first, [host]), "any")
    for name, hosts in [
            ("none", []), ("empty", [b"Host:"]), ("two", [host, b"Host: evil.example"]), ("two alike", [host, host]),
            ("a list", [b"Host: localhost, evil.example"]), ("a path", [b"Host: localhost/v1"]),
            ("a user", [b"Host: a@localhost"]), ("a blank inside", [b"Host: localhost evil"]),
            ("blank before colon", [b"Host : localhost"]), ("a fold", [b"Host:\r\n localhost"]),
            ("a port of letters", [b"Host: localhost:x"]), ("a bracket", [b"Host: [::1"]),
            ("a NUL", [b"Host: localhost\0.evil"]), ("an underscore beside", [host, b"Ho_st: evil.example"]),
            ("dropped by Connection", [host, b"Connection: Host"]), ("of another", [b"Host: evil.example"])]:
        yield Case("host", name, "get", asked(b"GET " + t + b" HTTP/1.1", hosts), "any")


# --- upgrades and requests in a row -----------------------------------------------------------------------------------

def rows():
    get = head("get", [])
    put = head("put", [CL]) + BODY
    chunked = head("put", [TE]) + CHUNKED
    up = [b"Connection: Upgrade"]
    for name, fields in [("websocket", [*up, b"Upgrade: websocket", b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
                                        b"Sec-WebSocket-Version: 13"]),
                         ("h2c", [b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c",
                                  b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"]),
                         ("TLS", [*up, b"Upgrade: TLS/1.0"]), ("no protocol", up),
                         ("no connection", [b"Upgrade: websocket"]), ("gpubufd", [*up, b"Upgrade: gpubufd"])]:
        yield Case("upgrade", name, "get", head("get", fields) + CANARY, "any")
        yield Case("upgrade", name + ", with a body", "put", head("put", [*fields, CL]) + BODY + CANARY, "any")
        yield Case("upgrade", name + ", chunked", "put", head("put", [*fields, TE]) + CHUNKED + CANARY, "any")
    for name, data in [("two", get), ("three", get + get), ("behind a body", put), ("behind two bodies", put + put),
                       ("between", get + put + get)]:
        yield Case("row", name, "get", data + CANARY, "all")
    yield Case("row", "behind chunks", "put", chunked + CANARY, "any")
    for name, between in [("CRLF", b"\r\n"), ("LF", b"\n"), ("CR", b"\r"), ("blanks", b"  "), ("NUL", b"\0"),
                          ("a line of a NUL", b"\0\r\n"), ("a line of a NUL, LF", b"\0\n"),
                          ("a line behind a NUL", b"\0GET /x HTTP/1.1\r\n"), ("a letter", b"x"), ("a line", b"x\r\n"),
                          ("ten CRLF", b"\r\n" * 10)]:
        for kind, first in (("get", get), ("put", put), ("chunks", chunked)):
            yield Case("row", f"{name} behind {kind}", "get", first + between + CANARY, "any")
    for name, value in [("100-continue", b"100-continue"), ("in capitals", b"100-CONTINUE"), ("another", b"x"),
                        ("two", b"100-continue, x"), ("empty", b"")]:
        yield Case("expect", name, "put", head("put", [b"Expect: " + value, CL]) + BODY + CANARY, "any")
        yield Case("expect", name + ", without a body", "get", head("get", [b"Expect: " + value]) + CANARY, "any")
    for version in (b"HTTP/1.0", b"HTTP/1.1"):
        for name in (b"keep-alive", b"close", b"close, keep-alive", b"Keep-Alive, x"):
            yield Case("connection", f"{name.decode()}, {version.decode()}", "put",
                       head("put", [b"Connection: " + name, CL], version=version) + BODY + CANARY, "any")


def table():
    """{group: [Case]}"""
    groups = {}
    for generate in (pairs, lines, targets, rows):
        for case in generate():
            groups.setdefault(case.group, []).append(case)
    return groups
