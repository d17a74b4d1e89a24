"""Bad requests with their expected errors. {b} is the path of a session's buffers. {d} is the path of the data of
buffer x, which holds 16 bytes and must hold them afterwards."""
import json

from values import npy, npy_header

_LONG = "a" * 129


def request(method, target, *headers, body=b"", host="Host: localhost", version="HTTP/1.1"):
    lines = [f"{method} {target} {version}", *([host] if host else []), *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def sized(method, target, body, *headers):
    return request(method, target, f"Content-Length: {len(body)}", *headers, body=body)


def sent(target, value, method="POST"):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return sized(method, target, body, "Content-Type: application/json")


SMUGGLED = b"DELETE {b}/x HTTP/1.1\r\nHost: localhost\r\n\r\n"

FRAMING = [
    ("length-and-coding", request("PUT", "{d}", "Content-Length: 5", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"
                                  + SMUGGLED), 400, "ambiguous_length"),
    ("coding-and-length", request("PUT", "{d}", "Transfer-Encoding: chunked", "Content-Length: 5", body=b"0\r\n\r\n"
                                  + SMUGGLED), 400, "ambiguous_length"),
    ("two-lengths", request("PUT", "{d}", "Content-Length: 5", "Content-Length: 6", body=b"abcdef"), 400,
     "ambiguous_length"),
    ("one-length-twice", request("PUT", "{d}", "Content-Length: 5", "Content-Length: 5", body=b"abcde"), 400,
     "ambiguous_length"),
    ("lengths-in-a-list", request("PUT", "{d}", "Content-Length: 5, 5", body=b"abcde"), 400, None),
    ("two-codings", request("PUT", "{d}", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 400,
     "ambiguous_length"),
    ("gzip", request("PUT", "{d}", "Transfer-Encoding: gzip", body=b"abcde"), 400, "ambiguous_length"),
    ("gzip-chunked", request("PUT", "{d}", "Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"), 400,
     "ambiguous_length"),
    ("chunked-twice", request("PUT", "{d}", "Transfer-Encoding: chunked, chunked", body=b"0\r\n\r\n"), 400,
     "ambiguous_length"),
    ("xchunked", request("PUT", "{d}", "Transfer-Encoding: xchunked", body=b"0\r\n\r\n" + SMUGGLED), 400,
     "ambiguous_length"),
    ("identity", request("PUT", "{d}", "Transfer-Encoding: identity", body=b"abcde"), 400, "ambiguous_length"),
    ("coding-on-get", request("GET", "/v1", "Transfer-Encoding: gzip"), 400, "ambiguous_length"),
    ("coding-1.0", request("PUT", "{d}", "Transfer-Encoding: chunked", body=b"0\r\n\r\n", version="HTTP/1.0"), 400,
     "ambiguous_length"),
    ("negative-length", request("PUT", "{d}", "Content-Length: -1"), 400, None),
    ("plus-length", request("PUT", "{d}", "Content-Length: +5", body=b"abcde"), 400, None),
    ("hex-length", request("PUT", "{d}", "Content-Length: 0x5", body=b"abcde"), 400, None),
    ("empty-length", request("PUT", "{d}", "Content-Length: ", body=b"abcde"), 400, None),
    ("word-length", request("PUT", "{d}", "Content-Length: five", body=b"abcde"), 400, None),
    ("overflowing-length", request("PUT", "{d}", "Content-Length: 18446744073709551616"), None, None),
    ("huge-length", request("PUT", "{d}", "Content-Length: 18446744073709551615"), 400, "invalid_argument"),
    ("bad-chunk", request("PUT", "{d}?shape=5", "Transfer-Encoding: chunked", body=b"zz\r\nabc\r\n0\r\n\r\n"), 400,
     None),
    ("no-length", request("PUT", "{d}"), 411, "length_required"),
    ("space-before-colon", request("PUT", "{d}", "Content-Length : 5", body=b"abcde"), 400, None),
    ("control-in-header", request("GET", "/v1", "X: a\x01b"), 400, "malformed_request"),
    ("control-in-header-name", request("GET", "/v1", "X\x01: ab"), 400, None),
    ("body-on-get", sized("GET", "/v1", b"abc"), 400, "malformed_request"),
    ("body-on-delete", sized("DELETE", "{b}/x", b"abc"), 400, "malformed_request"),
]

HOSTS = [
    ("no-host", request("GET", "/v1", host=None), 400, "malformed_request"),
    ("two-hosts", request("GET", "/v1", "Host: localhost"), 400, "malformed_request"),
    ("empty-host", request("GET", "/v1", host="Host: "), 400, "malformed_request"),
    ("other-host", request("GET", "/v1", host="Host: evil.example"), 421, "misdirected_request"),
    ("other-host-port", request("GET", "/v1", host="Host: evil.example:7070"), 421, "misdirected_request"),
    ("prefix-host", request("GET", "/v1", host="Host: localhost.evil.example"), 421, "misdirected_request"),
    ("bracket-and-dot", request("GET", "/v1", host="Host: [::1]."), 400, "malformed_request"),
    ("open-bracket", request("GET", "/v1", host="Host: [::1"), 400, "malformed_request"),
    ("cross-origin-put", sized("PUT", "{d}", b"abc", "Origin: http://evil.example"), 403, "cross_origin"),
    ("cross-origin-delete", request("DELETE", "{b}/x", "Origin: http://evil.example"), 403, "cross_origin"),
    ("null-origin", request("DELETE", "{b}/x", "Origin: null"), 403, "cross_origin"),
    ("other-port", request("DELETE", "{b}/x", "Origin: http://localhost:1"), 403, "cross_origin"),
]

SLICES = [
    *((f"slice-{n}", request("GET", "{d}?slice=" + text), 400, "invalid_argument") for n, text in (
        ("empty", ""), ("step-0", "1:2:0"), ("backwards", "::-1"), ("commas", "," * 3000), ("colons", ":" * 3000),
        ("nul", "0%00"), ("many", ":," * 1000), ("float", "1e3"), ("hex", "0x1"), ("text", "abc"), ("dots", "...."))),
    ("slice-10000-commas", request("GET", "{d}?slice=" + ":," * 10000), None, None),
    ("slice-beyond", request("GET", "{d}?slice=" + "9" * 1000), 416, "range_not_satisfiable"),
    ("slice-below", request("GET", "{d}?slice=-" + "9" * 1000), 416, "range_not_satisfiable"),
    ("slice-and-offset", request("GET", "{d}?slice=0&offset=0"), 400, "invalid_argument"),
    ("length-huge", request("GET", "{d}?offset=1&length=9223372036854775807"), 416, "range_not_satisfiable"),
    ("length-2^64", request("GET", "{d}?length=18446744073709551616"), 400, "invalid_argument"),
    ("range-and-offset", request("GET", "{d}?offset=1", "Range: bytes=0-1"), 400, "invalid_argument"),
    ("range-beyond-all", request("GET", "{d}", "Range: bytes=" + ",".join(f"{10 ** n}-" for n in range(2, 60))), 416,
     "range_not_satisfiable"),
    ("slice-write-beyond", sized("PUT", "{d}?slice=16", b""), 416, "range_not_satisfiable"),
    ("slice-write-short", sized("PATCH", "{d}?slice=0:9", b"abc"), 422, "shape_mismatch"),
    ("patch-nowhere", sized("PATCH", "{d}", b"abc"), 400, "invalid_argument"),
]

TARGETS = [
    ("no-route", request("GET", "/v2"), 404, "no_route"),
    ("trailing-slash", request("GET", "{b}/"), 400, "invalid_name"),
    ("double-slash", request("GET", "//v1"), 404, "no_route"),
    ("dots", request("GET", "/v1/../v1"), 404, "no_route"),
    ("unknown-session", request("GET", "/v1/sessions/none"), 404, "session_not_found"),
    ("unknown-buffer", request("GET", "{b}/none"), 404, "buffer_not_found"),
    ("unknown-pool", request("GET", "{s}/pools/none"), 404, "pool_not_found"),
    ("unknown-stream", request("GET", "{s}/streams/none"), 404, "stream_not_found"),
    ("unknown-device", request("GET", "/v1/devices/77"), 404, "device_not_found"),
    ("stream-of-data", request("GET", "{d}?stream=none"), 404, "stream_not_found"),
    ("pool-of-data", sized("PUT", "{b}/y/data?pool=none", b"abc"), 404, "pool_not_found"),
    ("delete-on-data", sized("DELETE", "{d}", b"abc"), 405, "method_not_allowed"),
    ("post-on-data", sized("POST", "{d}", b"abc"), 400, "invalid_argument"),
    ("method-unknown", request("BREW", "/v1"), 405, "method_not_allowed"),
    ("percent-slash", request("DELETE", "{b}/%2Fx"), 400, "invalid_name"),
    ("percent-nul", request("DELETE", "{b}/x%00"), 400, "invalid_name"),
    ("percent-dots", request("GET", "{b}/%2e%2e"), 400, "invalid_name"),
    ("percent-cut", request("GET", "{b}/x%2"), 400, None),
    ("percent-wrong", request("GET", "{b}/x%zz"), 400, None),
    ("overlong-name", request("GET", "{b}/" + _LONG), 400, "invalid_name"),
    ("overlong-name-put", sized("PUT", "{b}/" + _LONG + "/data", b"abc"), 400, "invalid_name"),
    ("hyphen-first", sized("PUT", "{b}/-x/data", b"abc"), 400, "invalid_name"),
    ("umlaut", request("GET", "{b}/%C3%A4"), 400, "invalid_name"),
    ("space", request("GET", "{b}/a%20b"), 400, "invalid_name"),
    ("overlong-utf8", request("GET", "{b}/%C0%AFx"), 400, "invalid_name"),
    ("unknown-parameter", request("GET", "{b}?nope=1"), 400, "unknown_parameter"),
    ("parameter-twice", request("GET", "{b}?limit=1&limit=2"), 400, None),
    ("parameter-of-another", request("GET", "{d}?dtype=uint8"), 400, "unknown_parameter"),
    ("long-target", request("GET", "/v1/" + "a" * 30000), None, None),
    ("many-headers", request("GET", "/v1", *(f"X{i}: 1" for i in range(100))), 431, "headers_too_large"),
    ("large-header", request("GET", "/v1", "X: " + "a" * 40000), 431, None),
    ("version-2", request("GET", "/v1", version="HTTP/2.0"), None, None),
]

NUMBERS = [(f"{key}={value[:24]}", request("GET", f"{{b}}?{key}={value}"), 400, "invalid_argument")
           for key in ("limit", "cursor") for value in ("-1", "", "abc", "1e3", "0x10", "99999999999999999999",
                                                        "%31%00", "1.5")]
NUMBERS += [("limit=0", request("GET", "{b}?limit=0"), 400, "invalid_argument"),
            ("limit=1001", request("GET", "{b}?limit=1001"), 400, "invalid_argument")]

UPLOADS = [(name, sized("PUT", "{d}" + query, body, *headers), status, code) for name, query, body, headers, status,
           code in [
               ("shape-mismatch", "?dtype=float32&shape=2,3", b"x" * 23, [], 422, "shape_mismatch"),
               ("dtype-mismatch", "?dtype=float32", b"x" * 23, [], 422, "shape_mismatch"),
               ("shape-overflow", "?dtype=uint8&shape=4294967296,4294967296", b"x", [], 400, "invalid_argument"),
               ("shape-2^63", "?dtype=uint8&shape=9223372036854775808", b"x", [], 400, "invalid_argument"),
               ("shape-negative", "?shape=-3", b"abc", [], 400, "invalid_argument"),
               ("shape-words", "?shape=a,b", b"abc", [], 400, "invalid_argument"),
               ("shape-commas", "?shape=3,,1", b"abc", [], 400, "invalid_argument"),
               ("shape-deep", "?shape=" + ",".join("1" * 17), b"x", [], None, None),
               ("dtype-object", "?dtype=object", b"abc", [], 400, "invalid_argument"),
               ("dtype-unknown", "?dtype=float7", b"abc", [], 400, "invalid_argument"),
               ("format-unknown", "?format=csv", b"abc", [], 400, "invalid_argument"),
               ("kind-unknown", "?kind=sand", b"abc", [], 400, "invalid_argument"),
               ("kind-and-pool", "?kind=pinned&pool=default", b"abc", [], 400, "invalid_argument"),
               ("pool-unknown", "?pool=none", b"abc", [], 404, "pool_not_found"),
               ("stream-unknown", "?stream=none", b"abc", [], 404, "stream_not_found"),
               ("mirrored-maybe", "?mirrored=maybe", b"abc", [], 400, "invalid_argument"),
               ("side-unknown", "?side=left", b"abc", [], 400, "invalid_argument"),
               ("in-place-maybe", "?in_place=maybe", b"abc", [], 400, "invalid_argument"),
               ("offset-beyond", "?offset=17", b"abc", [], None, None),
               ("offset-negative", "?offset=-1", b"abc", [], 400, "invalid_argument"),
               ("offset-overflow", "?offset=18446744073709551615", b"abc", [], None, None),
               ("offset-dtype", "?offset=0&dtype=uint8", b"abc", [], 400, "invalid_argument"),
               ("media-type", "", b"abc", ["Content-Type: text/html"], 415, "unsupported_media_type"),
               ("content-encoding", "", b"abc", ["Content-Encoding: br"], 415, "unsupported_media_type"),
               ("content-encodings", "?shape=3", b"abc", ["Content-Encoding: gzip, gzip, gzip"], 415,
                "unsupported_media_type"),
               ("encoding-no-size", "?format=raw", b"abc", ["Content-Encoding: gzip"], 400, "invalid_encoding"),
               ("max-bytes-maybe", "?max_bytes=some", b"abc", [], 400, "invalid_argument"),
               ("max-bytes-beyond", "?max_bytes=9223372036854775808", b"abc", [], 400, "invalid_argument"),
               ("max-bytes-less", "?max_bytes=2", b"abc", [], 413, "body_too_large"),
               ("max-bytes-offset", "?offset=0&max_bytes=2", b"abc", [], None, None),
               ("encoding-garbage", "?shape=3", b"abc", ["Content-Encoding: gzip"], 400, "invalid_encoding"),
               ("encoding-empty", "?shape=0", b"", ["Content-Encoding: gzip"], 400, "invalid_encoding"),
               ("digest-malformed", "", b"abc", ["Content-Digest: sha-256"], 400, "malformed_request"),
               ("digest-short", "", b"abc", ["Content-Digest: sha-256=:AAAA:"], 400, "malformed_request"),
               ("digest-unknown", "", b"abc", ["Content-Digest: md5=:AAAA:"], 400, "invalid_argument"),
               ("digest-wrong", "", b"abc", ["Repr-Digest: sha-256=:" + "A" * 43 + "=:"], 400, "digest_mismatch"),
               ("npy-and-shape", "?format=npy&shape=3", b"abc", [], 400, "invalid_argument"),
               ("npy-it-is-not", "?format=npy", b"x" * 100, [], None, None),
               ("npy-truncated", "", npy([1.0])[:40], [], 422, "unsupported_array"),
               ("npy-truncated-length", "", npy([1.0])[:9], [], 422, "unsupported_array"),
               ("npy-short-payload", "", npy([1.0, 2.0])[:-1], [], 422, "shape_mismatch"),
               ("npy-long-payload", "", npy([1.0, 2.0]) + b"x", [], 422, "shape_mismatch"),
               ("npy-fortran-short", "", npy_header("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }\n")
                + b"x" * 15, [], 422, "shape_mismatch"),
               ("npy-fortran-overflow", "", npy_header("{'descr': '<f4', 'fortran_order': True, 'shape': (4294967296, "
                                                       "4294967296), }\n"), [], None, None),
               ("npy-object", "", npy_header("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }\n") + b"x" * 16,
                [], 422, "unsupported_array"),
               ("npy-big-endian", "", npy_header("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }\n")
                + b"x" * 8, [], 422, "unsupported_array"),
               ("npy-record", "", npy_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }\n")
                + b"x" * 8, [], 422, "unsupported_array"),
               ("npy-unicode", "", npy_header("{'descr': '<U4', 'fortran_order': False, 'shape': (2,), }\n")
                + b"x" * 32, [], 422, "unsupported_array"),
               ("npy-negative", "", npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }\n")
                + b"x" * 8, [], None, None),
               ("npy-overflow", "", npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, "
                                               "4294967296), }\n"), [], None, None),
               ("npy-no-shape", "", npy_header("{'descr': '<f4', 'fortran_order': False, }\n") + b"x" * 8, [], None,
                None),
               ("npy-code", "", npy_header("{'descr': __import__('os'), 'fortran_order': False, 'shape': (2,), }\n")
                + b"x" * 8, [], None, None),
               ("npy-version-9", "", npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", 9)
                + b"x" * 8, [], None, None),
               ("npy-huge-header", "", b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b"x" * 50, [], None, None),
           ]]

JSON = [(name, sent(target, value, method), status, code) for name, method, target, value, status, code in [
    ("not-json", "POST", "{b}", b"{nope", 400, "malformed_json"),
    ("empty-body", "POST", "{b}", b"", 400, None),
    ("not-an-object", "POST", "{b}", [1], 400, "wrong_type"),
    ("trailing", "POST", "{b}", b'{"name": "y", "bytes": 1} x', 400, "malformed_json"),
    ("nul-byte", "POST", "{b}", b'{"name": "y\\u0000z", "bytes": 1}', 400, None),
    ("bad-utf8", "POST", "{b}", b'{"name": "\xff\xfe", "bytes": 1}', 400, "malformed_json"),
    ("nested", "POST", "{b}", b"[" * 5000, 400, "malformed_json"),
    ("duplicate-key", "POST", "{b}", b'{"name": "y", "bytes": 1, "bytes": 2}', 400, "duplicate_key"),
    ("unknown-field", "POST", "{b}", {"name": "y", "bytes": 1, "size": 1}, 400, "unknown_field"),
    ("no-name", "POST", "{b}", {"bytes": 1}, 400, "invalid_argument"),
    ("name-number", "POST", "{b}", {"name": 5, "bytes": 1}, 400, "wrong_type"),
    ("name-slash", "POST", "{b}", {"name": "a/b", "bytes": 1}, 400, "invalid_name"),
    ("name-long", "POST", "{b}", {"name": _LONG, "bytes": 1}, 400, "invalid_name"),
    ("name-empty", "POST", "{b}", {"name": "", "bytes": 1}, 400, "invalid_name"),
    ("bytes-text", "POST", "{b}", {"name": "y", "bytes": "1"}, 400, "wrong_type"),
    ("bytes-fraction", "POST", "{b}", {"name": "y", "bytes": 1.5}, 400, "wrong_type"),
    ("bytes-bool", "POST", "{b}", {"name": "y", "bytes": True}, 400, "wrong_type"),
    ("bytes-null", "POST", "{b}", {"name": "y", "bytes": None}, 400, "wrong_type"),
    ("bytes-negative", "POST", "{b}", {"name": "y", "bytes": -1}, 400, "invalid_argument"),
    ("bytes-2^64", "POST", "{b}", {"name": "y", "bytes": 1 << 64}, 400, "invalid_argument"),
    ("no-size", "POST", "{b}", {"name": "y"}, 400, None),
    ("shape-bytes", "POST", "{b}", {"name": "y", "bytes": 5, "dtype": "float32", "shape": [1]}, 422, "shape_mismatch"),
    ("shape-text", "POST", "{b}", {"name": "y", "dtype": "uint8", "shape": "3"}, 400, "wrong_type"),
    ("shape-of-text", "POST", "{b}", {"name": "y", "dtype": "uint8", "shape": ["3"]}, 400, "wrong_type"),
    ("shape-negative", "POST", "{b}", {"name": "y", "dtype": "uint8", "shape": [-3]}, 400, "invalid_argument"),
    ("shape-overflow", "POST", "{b}", {"name": "y", "dtype": "uint8", "shape": [1 << 62, 1 << 62]}, 400,
     "invalid_argument"),
    ("labels-list", "POST", "{b}", {"name": "y", "bytes": 1, "labels": []}, 400, "wrong_type"),
    ("labels-number", "POST", "{b}", {"name": "y", "bytes": 1, "labels": {"a": 1}}, 400, "wrong_type"),
    ("labels-large", "POST", "{b}", {"name": "y", "bytes": 1, "labels": {"a": "b" * 3000}}, 400, None),
    ("too-large", "POST", "{s}/pools", b'{"name": "' + b"y" * 70000 + b'"}', 413, "body_too_large"),
    ("list-too-large", "POST", "{b}", b'{"name": "' + b"y" * 1200000 + b'"}', 413, "body_too_large"),
    ("exists", "POST", "{b}", {"name": "x", "bytes": 1}, 409, "buffer_exists"),
    ("patch-bytes", "PATCH", "{b}/x", {"bytes": 1}, 400, "unknown_field"),
    ("patch-shape", "PATCH", "{b}/x", {"dtype": "float32", "shape": [5]}, 422, "shape_mismatch"),
    ("session-quota", "POST", "/v1/sessions", {"name": "bad", "quota": 5}, 400, "wrong_type"),
    ("session-quota-field", "POST", "/v1/sessions", {"name": "bad", "quota": {"byte": 5}}, 400, "unknown_field"),
    ("session-ttl", "POST", "/v1/sessions", {"name": "bad", "idle_ttl_s": -5}, 400, "invalid_argument"),
    ("session-exists", "POST", "/v1/sessions", {"name": "default"}, 409, "session_exists"),
    ("session-patch-name", "PATCH", "{s}", {"name": "other"}, 400, "unknown_field"),
    ("sync-field", "POST", "{s}/streams/default/sync", {"x": 1}, 400, "unknown_field"),
    ("pool-list", "POST", "{s}/pools", [], 400, "wrong_type"),
    ("pool-nested", "POST", "{s}/pools", b"[" * 5000, 400, "malformed_json"),
    ("pool-bytes-2^64", "POST", "{s}/pools", {"name": "y", "max_bytes": 1 << 64}, 400, "invalid_argument"),
    ("pool-device-object", "POST", "{s}/pools", {"name": "y", "device": {}}, 400, "wrong_type"),
    ("stream-nul", "POST", "{s}/streams", b'{"name": "y\\u0000z"}', 400, None),
    ("stream-name-slash", "POST", "{s}/streams", {"name": "a/b"}, 400, "invalid_name"),
    ("event-name-long", "POST", "{s}/events", {"name": _LONG}, 400, "invalid_name"),
    ("copy-from-object", "POST", "{b}/x/copy", {"from": {}}, 400, "invalid_argument"),
    ("copy-from-list", "POST", "{b}/x/copy", {"from": []}, 400, "wrong_type"),
    ("copy-from-long", "POST", "{b}/x/copy", {"from": "default/" + _LONG}, 400, "invalid_name"),
    ("copy-offset-2^64", "POST", "{b}/x/copy", {"from": "x", "offset": 1 << 64}, 400, "invalid_argument"),
    ("fill-pattern-list", "POST", "{b}/x/fill", {"pattern": [1]}, 400, "wrong_type"),
    ("fill-pattern-text", "POST", "{b}/x/fill", {"pattern": "0x" + "f" * 5000}, 400, "invalid_argument"),
    ("fill-width-2^32", "POST", "{b}/x/fill", {"pattern": 1, "width": (1 << 32) + 1}, 400, "invalid_argument"),
    ("release-nothing", "POST", "{b}/x/release", {}, 400, "invalid_argument"),
    ("trim-negative", "POST", "{s}/pools/default/trim", {"keep_bytes": -1}, 400, "invalid_argument"),
]]
JSON += [("json-media-type", sized("POST", "{b}", b"{}", "Content-Type: text/plain"), 415, "unsupported_media_type"),
         ("chunked-too-large", request("POST", "{s}/pools", "Transfer-Encoding: chunked",
                                       body=b"".join(b"4000\r\n" + b" " * 0x4000 + b"\r\n" for _ in range(5))
                                       + b"0\r\n\r\n"), 413, "body_too_large")]

ALL = [(group + ":" + c[0], *c[1:]) for group, cases in (("framing", FRAMING), ("host", HOSTS), ("slice", SLICES),
                                                         ("target", TARGETS), ("number", NUMBERS), ("upload", UPLOADS),
                                                         ("json", JSON)) for c in cases]
