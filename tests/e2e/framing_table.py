"""Generates requests with an ambiguous end: each form of a length, a coding, a chunk, a line's end, a request line or
too many fields, on each kind of route. TAG (of this length) and UPLOAD are placeholders for names that are unique to
each exchange."""
from collections import namedtuple

# want: the permitted outcomes. refuse: one error, and the connection ends. serve: the answer, and the next request gets
# its own. either: one of the two.
Case = namedtuple("Case", "group name route data want")

TAG, UPLOAD = b"@TAG@@", b"@UPLOAD@"
BODY = b"{   }"  # five bytes, and JSON
Route = namedtuple("Route", "method target fields served takes")
ROUTES = {
    "get": Route(b"GET", b"/v1/sessions/default/buffers/" + TAG, [], {404}, False),
    "json": Route(b"POST", b"/v1/sessions/" + TAG + b"/heartbeat", [b"Content-Type: application/json"], {404}, True),
    "put": Route(b"PUT", b"/v1/sessions/default/buffers/" + TAG + b"/data?shape=5", [], {200, 201}, True),
    "patch": Route(b"PATCH", b"/v1/sessions/default/uploads/" + UPLOAD,
                   [b"Content-Type: application/partial-upload", b"Upload-Offset: 0", b"Upload-Complete: ?0"], {204},
                   True),
    "unknown": Route(b"PUT", b"/v2/" + TAG, [], {404}, False),
}
CANARY = (b"DELETE /v1/sessions/default/buffers/canary-" + TAG + b" HTTP/1.1\r\nHost: localhost\r\nConnection: "
          b"close\r\n\r\n")
LAST = b"0\r\n\r\n"
CHUNKED = b"5\r\n" + BODY + b"\r\n" + LAST
TE = b"Transfer-Encoding: chunked"
CL = b"Content-Length: 5"


def lines(route, fields, version=b"HTTP/1.1", method=None, target=None):
    """The lines of the head, without line ends."""
    r = ROUTES[route]
    return [b" ".join((method or r.method, target or r.target, version)), b"Host: localhost", *r.fields, *fields]


def head(route, fields, **more):
    return b"\r\n".join(lines(route, fields, **more)) + b"\r\n\r\n"


def on(route, want):
    """On a route without a body, a well-formed body is refused as well, or the request is answered and the body left
    unread."""
    return want if ROUTES[route].takes or want == "refuse" else "either"


# --- lengths ----------------------------------------------------------------------------------------------------------

LENGTHS = [(n, [b"Content-Length:" + v], want) for n, v, want in [
    ("plain", b" 5", "serve"), ("no blank", b"5", "serve"), ("blank behind", b" 5 ", "either"),
    ("tab behind", b" 5\t", "either"), ("blanks before", b"   5", "serve"), ("tab before", b"\t5", "serve"),
    ("zero before", b" 05", "either"), ("40 zeros before", b" " + b"0" * 40 + b"5", "either"),
    ("list", b" 5, 5", "refuse"), ("list of two", b" 5, 6", "refuse"), ("comma behind", b" 5,", "refuse"),
    ("comma before", b" ,5", "refuse"), ("plus", b" +5", "refuse"), ("minus", b" -5", "refuse"),
    ("minus zero", b" -0", "refuse"), ("hex", b" 0x5", "refuse"), ("vertical tab behind", b" 5\x0b", "refuse"),
    ("form feed before", b" \x0c5", "refuse"), ("2^64", b" 18446744073709551616", "refuse"),
    ("2^64+5", b" 18446744073709551621", "refuse"), ("2^64-1", b" 18446744073709551615", "refuse"),
    ("2^63", b" 9223372036854775808", "refuse"), ("empty", b"", "refuse"), ("blank", b" ", "refuse"),
    ("two numbers", b" 5 5", "refuse"), ("NUL behind", b" 5\0", "refuse"), ("NUL before", b" \x005", "refuse"),
    ("NUL inside", b" 5\x006", "refuse"), ("fraction", b" 5.0", "refuse"), ("exponent", b" 5e0", "refuse"),
    ("parameter", b" 5;5", "refuse"), ("quoted", b' "5"', "refuse"), ("wide digit", b" \xef\xbc\x95", "refuse"),
    ("no-break blank", b" 5\xa0", "refuse"), ("folded", b"\r\n 5", "refuse"), ("folded behind", b" 5\r\n ", "refuse"),
    ("folded digit", b" 5\r\n 0", "refuse"), ("bare CR behind", b" 5\r", "refuse"),
    ("bare CR before", b"\r5", "refuse")]]
LENGTHS += [(n, fields, "refuse") for n, fields in [
    ("twice", [CL, CL]), ("twice, other case", [CL, CL.lower()]), ("5 and 6", [CL, b"Content-Length: 6"]),
    ("6 and 5", [b"Content-Length: 6", CL]),
    ("5 and empty", [CL, b"Content-Length:"]), ("blank before colon", [b"Content-Length : 5"]),
    ("tab before colon", [b"Content-Length\t: 5"]),
    ("blank before name", [b" Content-Length: 5"]), ("NUL behind name", [b"Content-Length\0: 5"]),
    ("no colon", [b"Content-Length 5"]), ("vertical tab before name", [b"\x0bContent-Length: 5"])]]


def lengths():
    n = b"%d" % len(CANARY)
    for route in ROUTES:
        for name, fields, want in LENGTHS:
            yield Case("length", name, route, head(route, fields) + BODY + CANARY, on(route, want))
        # The bytes behind it are a body by one length and a request by the other.
        for name, fields in [
                ("0 and all", [b"Content-Length: 0", b"Content-Length: " + n]),
                ("all and 0", [b"Content-Length: " + n, b"Content-Length: 0"]),
                ("list 0, all", [b"Content-Length: 0, " + n]), ("0, and all behind NUL", [b"Content-Length: 0\0" + n]),
                ("all, blank before colon", [b"Content-Length : " + n]),
                ("0, then all folded", [b"Content-Length: 0\r\n " + n])]:
            yield Case("length", name, route, head(route, fields) + CANARY, "refuse")


# --- codings ----------------------------------------------------------------------------------------------------------

CODINGS = [(n, [b"Transfer-Encoding:" + v], want) for n, v, want in [
    ("plain", b" chunked", "serve"), ("no blank", b"chunked", "serve"), ("blank behind", b" chunked ", "either"),
    ("tab behind", b" chunked\t", "either"),
    ("blanks before", b"  chunked", "serve"), ("tab before", b"\tchunked", "serve"), ("capital", b" Chunked", "serve"),
    ("capitals", b" CHUNKED", "serve"),
    ("twice in a list", b" chunked, chunked", "refuse"), ("gzip first", b" gzip, chunked", "refuse"),
    ("gzip last", b" chunked, gzip", "refuse"),
    ("identity last", b" chunked, identity", "refuse"), ("identity first", b" identity, chunked", "refuse"),
    ("identity", b" identity", "refuse"),
    ("gzip", b" gzip", "refuse"), ("vertical tab before", b" \x0bchunked", "refuse"),
    ("form feed before", b" \x0cchunked", "refuse"), ("vertical tab behind", b" chunked\x0b", "refuse"),
    ("x before", b" xchunked", "refuse"), ("x behind", b" chunkedx", "refuse"), ("quoted", b' "chunked"', "refuse"),
    ("quoted once", b" 'chunked'", "refuse"), ("parameter", b" chunked;q=1", "refuse"),
    ("comma before", b" ,chunked", "either"), ("comma behind", b" chunked,", "either"), ("empty", b"", "refuse"),
    ("blank inside", b" chun ked", "refuse"), ("folded", b"\r\n chunked", "refuse"),
    ("folded with tab", b"\r\n\tchunked", "refuse"), ("folded behind", b" chunked\r\n ", "refuse"),
    ("folded list", b" identity,\r\n chunked", "refuse"), ("NUL behind", b" chunked\0", "refuse"),
    ("NUL before", b" \0chunked", "refuse"), ("NUL inside", b" chun\0ked", "refuse"),
    ("no-break blank", b" chunked\xa0", "refuse"), ("Kelvin sign", b" chun\xe2\x84\xaaed", "refuse"),
    ("bare CR behind", b" chunked\r", "refuse"), ("bare CR before", b"\rchunked", "refuse")]]
CODINGS += [(n, fields, "refuse") for n, fields in [
    ("twice", [TE, TE]), ("and identity", [TE, b"Transfer-Encoding: identity"]),
    ("behind identity", [b"Transfer-Encoding: identity", TE]), ("behind empty", [b"Transfer-Encoding:", TE]),
    ("blank before colon", [b"Transfer-Encoding : chunked"]), ("tab before colon", [b"Transfer-Encoding\t: chunked"]),
    ("blank before name", [b" " + TE]), ("NUL behind name", [b"Transfer-Encoding\0: chunked"]),
    ("bare LF before", [b"X: a\n" + TE]), ("bare CR before name", [b"X: a\r" + TE]),
    ("no colon", [b"Transfer-Encoding chunked"])]]


def codings():
    n = b"%d" % (len(LAST) + len(CANARY))
    for route in ROUTES:
        for name, fields, want in CODINGS:
            yield Case("coding", name, route, head(route, fields) + CHUNKED + CANARY, on(route, want))
        yield Case("coding", "HTTP/1.0", route, head(route, [TE], version=b"HTTP/1.0") + CHUNKED + CANARY, "refuse")
        yield Case("coding", "HTTP/1.0, kept", route, head(route, [TE, b"Connection: keep-alive"], version=b"HTTP/1.0")
                   + CHUNKED + CANARY, "refuse")
        # Both framings: by the length all bytes are body, by the coding the canary is a request.
        for name, fields, _ in CODINGS:
            for order, both in (("before", [b"Content-Length: " + n, *fields]),
                                ("behind", [*fields, b"Content-Length: " + n])):
                if route in ("json", "put") and b"\r\n" not in b"".join(fields):
                    yield Case("both", f"{name}, length {order}", route, head(route, both) + LAST + CANARY, "refuse")


# --- chunks -----------------------------------------------------------------------------------------------------------

def sized(line, end=b"\r\n", data=BODY, behind=b"\r\n", last=LAST):
    return line + end + data + behind + last


CHUNKS = [(n, sized(v), want) for n, v, want in [
    ("plain", b"5", "serve"), ("zero before", b"05", "either"), ("15 zeros before", b"0" * 15 + b"5", "either"),
    ("16 zeros before", b"0" * 16 + b"5", "either"),
    ("2000 zeros before", b"0" * 2000 + b"5", "either"), ("20000 zeros before", b"0" * 20000 + b"5", "refuse"),
    ("blank behind", b"5 ", "either"),
    ("tab behind", b"5\t", "either"), ("blank before", b" 5", "refuse"), ("tab before", b"\t5", "refuse"),
    ("two sizes", b"5 5", "refuse"), ("comma", b"5,5", "refuse"), ("hex mark", b"0x5", "refuse"),
    ("minus", b"-5", "refuse"), ("plus", b"+5", "refuse"), ("17 digits", b"1" + b"0" * 15 + b"5", "refuse"),
    ("16 digits", b"f" * 16, "refuse"), ("2^63", b"8000000000000000", "refuse"),
    ("2^64", b"10000000000000000", "refuse"), ("empty", b"", "refuse"), ("extension alone", b";a", "refuse"),
    ("no digit", b"g", "refuse"), ("digit and letter", b"5g", "refuse"), ("fraction", b"5.0", "refuse"),
    ("NUL behind", b"5\0", "refuse"), ("NUL before", b"\x005", "refuse"), ("vertical tab", b"5\x0b", "refuse"),
    ("quoted", b'"5"', "refuse"), ("bare CR behind", b"5\r", "refuse"), ("bare CR inside", b"5;a\rb", "refuse"),
    ("bare LF inside", b"5;a\nb", "refuse"), ("bare LF before", b"\n5", "refuse"), ("CRLF before", b"\r\n5", "refuse"),
    ("NUL in extension", b"5;a\0b", "refuse"),
    ("empty extension", b"5;", "either"), ("extension", b"5;a", "either"), ("extension with value", b"5;a=b", "either"),
    ("extension in quotes", b'5;a="x;\\" y"', "either"), ("extension between blanks", b"5 ; a = b", "either"),
    ("open quotes", b'5;a="', "either")]]
CHUNKS += [(f"extension of {n}", sized(b"5;" + b"a" * n), "either" if n < 4000 else "refuse")
           for n in (1, 16, 255, 256, 1000, 20000)]
CHUNKS += [
    ("size lines of bare LF", sized(b"5", b"\n"), "refuse"), ("size line of CR", sized(b"5", b"\r"), "refuse"),
    ("size line of CRCRLF", sized(b"5", b"\r\r\n"), "refuse"),
           ("size line of LFCR", sized(b"5", b"\n\r"), "refuse"), ("size line without end", sized(b"5", b""), "refuse"),
           ("data, bare LF", sized(b"5", behind=b"\n"), "refuse"), ("data, CR", sized(b"5", behind=b"\r"), "refuse"),
           ("data, nothing", sized(b"5", behind=b""), "refuse"),
           ("data, LFCR", sized(b"5", behind=b"\n\r"), "refuse"), ("data, CRLFCRLF", sized(b"5", behind=b"\r\n\r\n"),
                                                                   "refuse"),
           ("data, CRCRLF", sized(b"5", behind=b"\r\r\n"), "refuse"),
           ("data, blank", sized(b"5", behind=b" \r\n"), "refuse"), ("data, a byte more", sized(b"5", behind=b"x\r\n"),
                                                                     "refuse"),
           ("data, two more", sized(b"5", behind=b"xx"), "refuse"),
           ("data, two less", sized(b"5", data=BODY[:3]), "refuse"), ("last, bare LF", sized(b"5", last=b"0\n\r\n"),
                                                                      "refuse"),
           ("last, LFs", sized(b"5", last=b"0\n\n"), "refuse"),
           ("end of bare LF", sized(b"5", last=b"0\r\n\n"), "refuse"), ("end of CR", sized(b"5", last=b"0\r\n\r"),
                                                                        "refuse"),
           ("end of CRCRLF", sized(b"5", last=b"0\r\n\r\r\n"), "refuse"),
           ("last of CRCR", sized(b"5", last=b"0\r\r\n\r\n"), "refuse"),
           ("last with extension", sized(b"5", last=b"0;a=b\r\n\r\n"), "either"),
           ("last of two zeros", sized(b"5", last=b"00\r\n\r\n"), "either"),
           ("last of 20000 zeros", sized(b"5", last=b"0" * 20000 + b"\r\n\r\n"), "refuse"),
           ("last, minus", sized(b"5", last=b"-0\r\n\r\n"), "refuse"),
           ("last with extension of 20000", sized(b"5", last=b"0;" + b"a" * 20000 + b"\r\n\r\n"), "refuse"),
           ("zeros alone", b"0" * 20000, "refuse"), ("extension alone, of 20000", b"5;" + b"a" * 20000, "refuse"),
           ("one byte each", b"".join(b"1\r\n%c\r\n" % c for c in BODY) + LAST, "serve"),
    ("no last", b"5\r\n" + BODY + b"\r\n", "refuse")]


def trailers(text):
    return sized(b"5", last=b"0\r\n" + text + b"\r\n")


CHUNKS += [
    ("trailer", trailers(b"X: 1\r\n"), "serve"), ("ten trailers", trailers(b"X: 1\r\n" * 10), "serve"),
    ("trailer of 1000", trailers(b"X: " + b"a" * 1000 + b"\r\n"), "either"),
           ("trailer Content-Length", trailers(b"Content-Length: 100\r\n"), "either"),
           ("trailer Transfer-Encoding", trailers(TE + b"\r\n"), "either"),
           ("trailer Host", trailers(b"Host: evil.example\r\n"), "either"), ("trailer, no colon", trailers(b"X\r\n"),
                                                                             "either"),
           ("trailer, blank before colon", trailers(b"X : 1\r\n"), "either"),
           ("trailer, folded", trailers(b"X: 1\r\n 2\r\n"), "either"), ("trailer, NUL", trailers(b"X: \0\r\n"),
                                                                        "either"),
           ("trailer, bare LF", trailers(b"X: 1\n"), "refuse"),
           ("trailer, LF in its middle", trailers(b"X: 1\nY: 2\r\n"), "refuse"),
           ("trailer, CR in its middle", trailers(b"X: 1\rY: 2\r\n"), "refuse"),
           ("trailer, LF at the end", sized(b"5", last=b"0\r\nX: 1\r\n\n"), "refuse"),
           ("trailers of 70000", trailers(b"X: 1234\r\n" * 7000), "refuse"),
           ("trailers without end", sized(b"5", last=b"0\r\n" + b"X: 1234\r\n" * 7000), "refuse"),
           ("trailer without end", sized(b"5", last=b"0\r\nX: " + b"a" * 70000), "refuse")]


def chunks():
    for route in ROUTES:
        for name, body, want in CHUNKS:
            yield Case("chunk", name, route, head(route, [TE]) + body + CANARY, on(route, want))


# --- heads ------------------------------------------------------------------------------------------------------------

def body_of(route):
    return ([CL], BODY) if ROUTES[route].method != b"GET" else ([], b"")


def ends():
    for route in ROUTES:
        fields, body = body_of(route)
        all_lines = lines(route, fields + [b"X: a"])
        whole = b"\r\n".join(all_lines) + b"\r\n\r\n"
        first, rest = whole.split(b"\r\n", 1)
        for name, data, want in [
                ("plain", whole, "serve"), ("bare LF", whole.replace(b"\r\n", b"\n"), "refuse"),
                ("bare LF behind request line", first + b"\n" + rest, "refuse"),
                ("bare LF behind Host", whole.replace(b"localhost\r\n", b"localhost\n"), "refuse"),
                ("bare LF behind the last", whole[:-4] + b"\n\r\n", "refuse"),
                ("bare LF at the end", whole[:-2] + b"\n", "refuse"), ("LFs at the end", whole[:-4] + b"\n\n",
                                                                       "refuse"),
                ("bare CR", whole.replace(b"\r\n", b"\r"), "refuse"),
                ("bare CR behind request line", first + b"\r" + rest, "refuse"),
                ("bare CR behind Host", whole.replace(b"localhost\r\n", b"localhost\r"), "refuse"),
                ("bare CR in a value", whole.replace(b"X: a", b"X: a\rb"), "refuse"),
                ("bare LF in a value", whole.replace(b"X: a", b"X: a\nb"), "refuse"),
                ("CRCRLF behind request line", first + b"\r\r\n" + rest, "refuse"),
                ("CRCRLF behind a field", whole.replace(b"X: a", b"X: a\r"), "refuse"),
                ("CRCRLF at the end", whole[:-2] + b"\r\r\n", "refuse"), ("LFCR", whole.replace(b"\r\n", b"\n\r"),
                                                                          "refuse"),
                ("folded request line", first + b"\r\n X: b\r\n" + rest, "refuse"),
                ("folded by tab", first + b"\r\n\tX: b\r\n" + rest, "refuse"),
                ("folded field", whole.replace(b"X: a", b"X: a\r\n b"), "refuse"),
                ("folded by blanks alone", whole.replace(b"X: a", b"X: a\r\n  "), "refuse"),
                ("CRLF before", b"\r\n" + whole, "either"), ("CRLFs before", b"\r\n" * 100 + whole, "either"),
                ("LF before", b"\n" + whole, "either"), ("CR before", b"\r" + whole, "refuse"),
                ("NUL before", b"\0" + whole, "refuse"), ("blank before", b" " + whole, "refuse"),
                ("no colon", whole.replace(b"X: a", b"X a"), "refuse"), ("no name", whole.replace(b"X: a", b": a"),
                                                                         "refuse"),
                ("NUL in a name", whole.replace(b"X:", b"X\0:"), "refuse"),
                ("NUL in a value", whole.replace(b"X: a", b"X: a\0b"), "refuse"),
                ("NUL at the end of a value", whole.replace(b"X: a", b"X: a\0"), "refuse"),
                ("NUL line", whole.replace(b"X: a", b"\0"), "refuse"),
                ("DEL in a value", whole.replace(b"X: a", b"X: \x7f"), "refuse"),
                ("empty value", whole.replace(b"X: a", b"X:"), "serve"),
                ("blanks behind a value", whole.replace(b"X: a", b"X: a \t "), "serve"),
                ("blank in a name", whole.replace(b"X:", b"X Y:"), "refuse"),
                ("bytes above 127 in a value", whole.replace(b"X: a", b"X: \xe4\xff"), "either")]:
            yield Case("line", name, route, data + body + CANARY, want)


BAD_VERSIONS = (b"HTTP/2.0", b"HTTP/3", b"HTTP/0.9", b"HTTP/1.1x", b"HTTP/01.1", b"HTTP/1.10", b"http/1.1", b"HTTP/1",
                b"HTTP 1.1", b"XTTP/1.1", b"HTTP/1,1", b"HTTP/-1.1")


def request_lines():
    for route, r in ROUTES.items():
        fields, body = body_of(route)
        rest = b"\r\n".join(lines(route, fields)[1:]) + b"\r\n\r\n" + body + CANARY
        m, t, v = r.method, r.target, b"HTTP/1.1"
        for name, first, want in [
                ("two blanks before target", m + b"  " + t + b" " + v, "either"),
                ("two blanks before version", m + b" " + t + b"  " + v, "either"),
                ("blank behind", m + b" " + t + b" " + v + b" ", "either"),
                ("tabs", m + b"\t" + t + b"\t" + v, "either"), ("blank in target", m + b" " + t + b" b " + v, "refuse"),
                ("NUL in target", m + b" " + t + b"\0 " + v, "refuse"), ("NUL in method", m + b"\0 " + t + b" " + v,
                                                                         "refuse"),
                ("NUL behind", m + b" " + t + b" " + v + b"\0", "refuse"), ("no version", m + b" " + t, "refuse"),
                ("method alone", m, "refuse"), ("nothing but blanks", b"   ", "refuse"),
                ("no target", m + b" " + v, "refuse"), *((f"version {x.decode()}", m + b" " + t + b" " + x, "refuse")
                                                         for x in BAD_VERSIONS),
                ("version 1.2", m + b" " + t + b" HTTP/1.2", "either"), ("version 1.0", m + b" " + t + b" HTTP/1.0",
                                                                         "either"),
                ("lower-case method", m.lower() + b" " + t + b" " + v, "either"),
                ("other method", b"BREW " + t + b" " + v, "either"), ("absolute", m + b" http://localhost" + t + b" "
                                                                      + v, "either"),
                ("absolute of another", m + b" http://evil.example" + t + b" " + v, "either"),
                ("authority", m + b" localhost:80 " + v, "either"), ("CONNECT", b"CONNECT localhost:80 " + v, "either"),
                ("asterisk", m + b" * " + v, "either"), ("OPTIONS", b"OPTIONS * " + v, "either"),
                ("fragment", m + b" " + t + b"#b " + v, "either"), ("control byte", m + b" " + t + b"\x01 " + v,
                                                                    "either"),
                ("8 KB", m + b" " + t + b"a" * 8192 + b" " + v, "either"),
                ("64 KB", m + b" " + t + b"a" * 65536 + b" " + v, "refuse"),
                ("64 KB of blanks", m + b" " * 65536 + t + b" " + v, "refuse"),
                ("64 KB of method", b"A" * 65536 + b" " + t + b" " + v, "refuse")]:
            yield Case("request line", name, route, first + b"\r\n" + rest, want)


def many():
    for route in ROUTES:
        fields, body = body_of(route)
        for name, more, want in [
                ("1000 cookies", [b"Cookie: a=1"] * 1000, "refuse"), ("7 KB", [b"X: " + b"a" * 7168], "either"),
                ("9 KB", [b"X: " + b"a" * 9216], "refuse"), ("20 KB", [b"X: " + b"a" * 20480], "refuse"),
                ("65 fields", [b"X: 1"] * 65, "refuse"), ("200 fields", [b"X: 1"] * 200, "refuse"),
                ("20 KB of name", [b"X" * 20480 + b": 1"], "refuse"), ("20 KB of blanks", [b"X:" + b" " * 20480],
                                                                       "refuse"),
                ("a cookie of 1000", [b"Cookie: " + b"a=1; " * 1000], "either"),
                ("field without end", [b"X: " + b"a" * 70000], "refuse")]:
            yield Case("many", name, route, head(route, more + fields) + body + CANARY, want)


def table():
    """{group: [Case]}"""
    groups = {}
    for generate in (lengths, codings, chunks, ends, request_lines, many):
        for case in generate():
            groups.setdefault(case.group, []).append(case)
    return groups


# Each is cut at every byte: (group, name, route).
CUT_EVERYWHERE = [
    ("chunk", "plain", "put"), ("chunk", "trailer", "json"), ("chunk", "extension", "patch"),
    ("chunk", "end of bare LF", "put"), ("chunk", "data, a byte more", "json"), ("coding", "folded", "put"),
    ("length", "NUL inside", "json"), ("line", "bare LF behind Host", "get"), ("line", "plain", "patch"),
    ("both", "plain, length behind", "put")]
