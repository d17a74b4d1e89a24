"""Files of tensors, good and damaged at random, judged by the daemon and by the reference library: both take the same
ones, and read the same from them. LENIENT and STRICT name all that they judge differently."""
import collections
import json
import math
import struct

import numpy as np
import pytest

from harness import library
from tensors import TYPES, file_of, width

safetensors = library("safetensors")

WIDTHS = {name: width(dtype) for dtype, name in TYPES}
NAMES = {dtype: name for dtype, name in TYPES}
BELOW_A_BYTE = {"F4", "F6_E2M3", "F6_E3M2"}
HEADER_MAX, DIMS_MAX, DEPTH_MAX = 100_000_000, 16, 32
ROUNDS = 60  # of each kind of damage

ONE = '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]%s}%s}'
EMPTY = '{"a":{"dtype":"U8","shape":[0,%s],"data_offsets":[0,0]}}'

# What the library reads, and the daemon refuses: {what: (why, a header for one byte of data, or none)}
LENIENT = {
    "space before the brace": ("the format says that the header begins with {", " " + ONE % ("", "")),
    "a name twice": ("the format forbids it; the library forgets the first",
                     ONE % ("", ',"b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' * 2)),
    "NUL": ("names are C strings in many programs", ONE.replace("a", "a\\u0000", 1) % ("", "")),
    "a list for an object": ("the library reads a list of the members, which the format does not know",
                             '{"a":["U8",[1],[0,1]]}'),
    "an object for a dtype": ("so too", ONE.replace('"U8"', '{"U8":null}') % ("", "")),
    "elements below a byte": ("the daemon has no such types", ONE.replace("U8", "F4").replace("[1]", "[2]") % ("", "")),
    "too many dimensions": (f"the daemon keeps at most {DIMS_MAX}",
                            ONE.replace("[1]", f"[1{',1' * DIMS_MAX}]") % ("", "")),
    "a dimension beyond 63 bits": ("numpy and torch have none such", EMPTY % (1 << 63)),
    "an empty array too large": ("without its axes of length 0 it had more than 63 bits of bytes; so numpy",
                                 EMPTY % f"{1 << 62},2"),
    "too deep": (f"of values that nobody reads, at most {DEPTH_MAX} levels",
                 ONE % (f',"x":{"[" * (DEPTH_MAX + 1)}{"]" * (DEPTH_MAX + 1)}', "")),
}

# What the daemon reads, and the library refuses.
STRICT = {
    "a number beyond doubles": ("the daemon keeps none of a value that nobody reads", ONE % (',"x":1e400', "")),
}


class Raw(str):
    """Stands in the header as it is."""


class Pairs(list):
    """An object, whose keys may repeat."""

    def set(self, key, value):
        self[:] = [(k, value if k == key else v) for k, v in self]

    def get(self, key):
        return next(v for k, v in self if k == key)


# --- good files -------------------------------------------------------------------------------------------------------

WORDS = ["w", "b", "", "layer.0/w", "häßlich", "\U0001f600", 'a"b\\c', "\x7f", "\t\n", "__metadata", "a b", "dtype",
         "\u0085"]


def one(rng, values):
    return values[rng.integers(len(values))]


def blank(rng):
    return one(rng, ["", "", "", " ", "\n\t "])


def text_of(value, rng):
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{blank(rng)}{text_of(k, rng)}{blank(rng)}:{blank(rng)}{text_of(v, rng)}" for k, v in
                              value) + blank(rng) + "}"
    if isinstance(value, list):
        return "[" + ",".join(blank(rng) + text_of(v, rng) for v in value) + blank(rng) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=bool(rng.integers(2)))
    return json.dumps(value)


def insert(rng, members, name, value):
    members.insert(int(rng.integers(len(members) + 1)), (name, value))


def good(rng):
    """(The header, the data): up to five tensors, in any order."""
    members, data = Pairs(), b""
    for i in rng.permutation(len(WORDS))[:rng.integers(6)]:
        dtype = one(rng, list(WIDTHS))
        shape = [one(rng, [0, 1, 1, 2, 3, 5]) for _ in range(rng.integers(4))]
        n = int(np.prod(shape)) * WIDTHS[dtype]
        tensor = [("dtype", dtype), ("shape", shape), ("data_offsets", [len(data), len(data) + n])]
        members.append((WORDS[i], Pairs(tensor[k] for k in rng.permutation(3))))
        data += rng.bytes(n)
    members = Pairs(members[i] for i in rng.permutation(len(members)))
    if rng.integers(3) == 0:
        insert(rng, members, "__metadata__", Pairs([("format", "pt"), ("häß", "\\\"")]))
    return members, data


# --- damage -----------------------------------------------------------------------------------------------------------

DAMAGE = {}


def damage(kind):
    """A function that changes a good file in one way: its members, its header's text, or its bytes."""

    def add(function):
        DAMAGE[function.__name__.replace("_", " ")] = kind, function
        return function
    return add


def one_of(rng, members):
    """A tensor; one without members if there are no others."""
    tensors = [v for k, v in members if k != "__metadata__"]
    return tensors[rng.integers(len(tensors))] if tensors else Pairs()


@damage("members")
def nothing(rng, members):
    pass


@damage("members")
def other_offsets(rng, members):
    for key, value in one_of(rng, members):
        if key == "data_offsets":
            value[rng.integers(2)] += one(rng, [-8, -1, 1, 4, 1 << 20])


@damage("members")
def shifted_offsets(rng, members):
    for key, value in one_of(rng, members):
        if key == "data_offsets":
            by = one(rng, [1, 4, 8])
            value[:] = [value[0] + by, value[1] + by]


@damage("members")
def turned_offsets(rng, members):
    for key, value in one_of(rng, members):
        if key == "data_offsets":
            value.reverse()


@damage("members")
def all_at_one_place(rng, members):
    at = one_of(rng, members)
    for name, value in members:
        if name != "__metadata__":
            value.set("data_offsets", list(at.get("data_offsets")))


@damage("members")
def another_shape(rng, members):
    for key, value in one_of(rng, members):
        if key == "shape":
            value.insert(int(rng.integers(len(value) + 1)), one(rng, [0, 1, 2]))


@damage("members")
def another_dtype(rng, members):
    names = [*WIDTHS, *sorted(BELOW_A_BYTE), *"F33 f32 F32\0 U128 F8_E3M4 C128 float32 bool <f4".split(" "), ""]
    one_of(rng, members).set("dtype", one(rng, names))


@damage("members")
def elements_of_four_bits(rng, members):
    tensor = one_of(rng, members)
    if tensor:
        first, last = tensor.get("data_offsets")
        tensor.set("dtype", "F4")
        tensor.set("shape", [(last - first) * 2])


NUMBERS = ["-1", "-0", "1.0", "1e0", "2E0", "01", "+1", "0x1", "1_0", str(1 << 32), str((1 << 63) - 1), str(1 << 63),
           str((1 << 64) - 1), str(1 << 64), "1" + "0" * 30, "NaN", "Infinity", "null", "true", '"1"', "[1]", "{}", "",
           "1 2", "\u0661"]
SIZES = [0, 1, 2, *(1 << n for n in (16, 31, 32, 32, 33, 48, 61, 62, 62, 63)), (1 << 64) - 1]


@damage("members")
def odd_numbers(rng, members):
    for key, value in one_of(rng, members):
        if key == one(rng, ["shape", "data_offsets"]):
            value.insert(0, Raw(one(rng, NUMBERS)))
            if len(value) > 1 and rng.integers(2):
                value.pop()


@damage("members")
def huge_shapes(rng, members):
    tensor = one_of(rng, members)
    if tensor:
        at = tensor.get("data_offsets")[0]
        shape = [one(rng, SIZES) for _ in range(rng.integers(1, 5))]
        if rng.integers(2):
            shape.insert(int(rng.integers(2)), 0)
            tensor.set("data_offsets", [at, at])
        tensor.set("shape", shape)


@damage("members")
def many_dimensions(rng, members):
    tensor = one_of(rng, members)
    if tensor:
        shape = tensor.get("shape")
        shape += [1] * int(rng.integers(DIMS_MAX - 3, DIMS_MAX + 3))


VALUES = """null true false 0 -0 1.5e-3 -1.25E+2 1e400 -1e999 "x" [] {} {"a":[1,{"b":null}]} "\\u00e9\\ud83d\\ude00"
    {"a":1,"a":2} [[[[]]]] 12345678901234567890123""".split()
NO_VALUES = ["", "[1 2]", '"\t"', *r"""1. .5 01 +1 1e 1e+ --1 1.2.3 1-2 - e NaN -Infinity True nul nulll 'x' [1,] [,1]
    {,} {"a"} {"a":} {"a":1,} {1:2} " "\x" "\u12" "\ud83d" "\udc00\ud800" /**/1 undefined [} {] 1//""".split()]


@damage("members")
def more_members(rng, members):
    tensor = one_of(rng, members)
    for _ in range(rng.integers(1, 3)):
        insert(rng, tensor, one(rng, ["extra", "strides", "", "Dtype"]), Raw(one(rng, VALUES + NO_VALUES)))


@damage("members")
def deep_values(rng, members):
    depth = one(rng, [10, 29, 30, 31, 32, 33, 34, 60, 100, 140])
    opening, closing = ("[", "]") if rng.integers(2) else ('{"a":', "}")
    one_of(rng, members).append(("extra", Raw(opening * depth + "1" + closing * depth)))


@damage("members")
def fewer_members(rng, members):
    tensor = one_of(rng, members)
    if tensor:
        tensor.pop(int(rng.integers(3)))


@damage("members")
def members_twice(rng, members):
    tensor = one_of(rng, members)
    if tensor:
        tensor.insert(int(rng.integers(4)), tensor[rng.integers(3)])


@damage("members")
def members_of_other_kinds(rng, members):
    tensor = one_of(rng, members)
    if tensor:
        tensor.set(one(rng, ["dtype", "shape", "data_offsets"]), Raw(one(rng, VALUES + NO_VALUES)))


@damage("members")
def names_twice(rng, members):
    tensors = [i for i, (k, _) in enumerate(members) if k != "__metadata__"]
    if len(tensors) > 1:
        i, k = rng.permutation(tensors)[:2]
        members[i] = members[k][0], members[one(rng, [i, k])][1]


@damage("members")
def an_entry_twice(rng, members):
    if members:
        members.insert(int(rng.integers(len(members))), members[rng.integers(len(members))])


NAMES_AS_TEXT = [*r""""\u0000" "a\u0000b" "\ud800" "\udc00x" "\u00" "\u004g" "\x41" "\/\b\f\n\r\t" "\ud83d\ude00"
    "\ud83d\u0041" w 'w' 1 null "a "\" "__METADATA__" """.split(), '"\x01"', '"\x1f"', '"\uffff\ufdd0"']


@damage("members")
def odd_names(rng, members):
    if members:
        i = int(rng.integers(len(members)))
        members[i] = Raw(one(rng, NAMES_AS_TEXT)), members[i][1]


@damage("members")
def lists_for_objects(rng, members):
    for i, (name, value) in enumerate(members):
        if name != "__metadata__" and rng.integers(2):
            members[i] = name, [value.get(k) for k in ("dtype", "shape", "data_offsets")]


@damage("members")
def objects_for_dtypes(rng, members):
    tensor = one_of(rng, members)
    if tensor:
        tensor.set("dtype", Pairs([(tensor.get("dtype"), None)]))


METADATA = r"""null {} {"a":"b"} {"a":"b","a":"c"} {"a":1} {"a":null} {"a":{}} [] "x" 1 true nul {"a":"\u0000"} {"":""}
    {"a":"b",} {"a":["b"]} [["a","b"]] {"\ud800":""}""".split()


@damage("members")
def other_metadata(rng, members):
    for _ in range(rng.integers(1, 3)):
        insert(rng, members, "__metadata__", Raw(one(rng, METADATA)))


@damage("members")
def no_objects(rng, members):
    insert(rng, members, "x", Raw(one(rng, ["null", "1", '"x"', "[]", "{}", "true"])))


BEFORE = [b" ", b"\n", b"\t \r\n", b"\xef\xbb\xbf", b"\0", b"//\n", b",", b"[", b"{"]
BEHIND = [b" ", b"    ", b"\n", b" \t\r\n", b"\0", b"\0\0\0", b"\v", b"\f", b"}", b",", b"{}", b"x", b"\xc2\xa0",
          b"\xef\xbb\xbf", b" //"]
WHOLE = [b"{}", b"{ }", b"{", b"}", b"[]", b"null", b'""', b"{}{}", b'{"__metadata__":{}}', b"\xff\xff", b"{,}"]
PIECES = [bytes([c]) for c in b'"\\{}[],:0123456789-+.eEtfn \n\t/ux\0\x1f\x7f\x80\xc0\xc3\xe0\xed\xf4\xff'] + [
    b"\xc3\xa4", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"]


@damage("text")
def something_before(rng, text):
    return one(rng, BEFORE) + text


@damage("text")
def something_behind(rng, text):
    return text + one(rng, BEHIND)


@damage("text")
def other_headers(rng, text):
    return one(rng, WHOLE)


@damage("text")
def a_cut_header(rng, text):
    return text[:rng.integers(len(text))]


@damage("text")
def another_character(rng, text):
    at = rng.integers(len(text))
    return text[:at] + one(rng, PIECES) + text[at + 1:]


@damage("text")
def one_more_character(rng, text):
    at = rng.integers(len(text) + 1)
    return text[:at] + one(rng, PIECES) + text[at:]


@damage("text")
def one_character_less(rng, text):
    at = rng.integers(len(text))
    return text[:at] + text[at + 1:]


@damage("text")
def a_doubled_part(rng, text):
    first, last = sorted(rng.integers(0, len(text) + 1, 2))
    return text[:last] + text[first:]


def flipped(data, at, bit):
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1:]


@damage("text")
def a_flipped_bit(rng, text):
    return flipped(text, int(rng.integers(len(text))), int(rng.integers(8)))


@damage("bytes")
def another_length(rng, body):
    n = struct.unpack("<Q", body[:8])[0]
    return struct.pack("<Q", one(rng, [
        n - 1, n + 1, n + 8, 0, 1, 2, len(body) - 8, len(body) - 7, len(body), HEADER_MAX, HEADER_MAX + 1, 100_000_000,
        100_000_001, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 8, (1 << 64) - 1])) + body[8:]


@damage("bytes")
def a_cut(rng, body):
    return body[:rng.integers(len(body))]


@damage("bytes")
def more_bytes(rng, body):
    return body + bytes(one(rng, [1, 8, 300]))


@damage("bytes")
def a_flipped_bit_in_the_length(rng, body):
    return flipped(body, int(rng.integers(8)), int(rng.integers(8)))


def damaged(name, rng):
    """A file with that damage; some have another beside it. Each third header has any length."""
    kind, function = DAMAGE[name]
    members, data = good(rng)
    if kind == "members":
        function(rng, members)
    text = text_of(members, rng).encode()
    if rng.integers(3):
        text += b" " * (-len(text) % 8)
    if kind == "text":
        text = function(rng, text)
    if rng.integers(6) == 0 and text:
        text = one(rng, [another_character, one_more_character, one_character_less, a_flipped_bit])(rng, text)
    body = file_of(text, data)
    return function(rng, body) if kind == "bytes" else body


# --- the judges -------------------------------------------------------------------------------------------------------


def by_library(body):
    """{name: (dtype, shape, bytes)}; None if it refuses the file."""
    try:
        return {name: (t["dtype"], t["shape"], bytes(t["data"])) for name, t in safetensors.deserialize(body)}
    except safetensors.SafetensorError:
        return None


def header_of(body):
    return body[8:8 + struct.unpack("<Q", body[:8])[0]].decode()


def depth(value):
    parts = [v for _, v in value] if isinstance(value, Pairs) else value if isinstance(value, list) else None
    return 0 if parts is None else 1 + max((depth(v) for v in parts), default=0)


def is_too_large(shape, dtype):
    """Whether it would be without its axes of length 0, each of which is possible."""
    return max(shape, default=0) < 1 << 63 <= math.prod(n for n in shape if n) * WIDTHS.get(str(dtype), 1)


def lenient(body):
    """How the library was lenient when it read this file, of LENIENT."""
    text = header_of(body)
    members = json.loads(text, object_pairs_hook=Pairs)
    tensors = [v for k, v in members if k != "__metadata__"]
    names = [k for k, _ in members]
    dtypes = [v.get("dtype") if isinstance(v, Pairs) else v[0] for v in tensors]
    shapes = [v.get("shape") if isinstance(v, Pairs) else v[1] for v in tensors]
    return {name for name, true in {
        "space before the brace": text[0] != "{",
        "a name twice": len(set(names)) < len(names),
        "NUL": "\\u0000" in text,
        "a list for an object": not all(isinstance(v, Pairs) for v in tensors),
        "an object for a dtype": not all(isinstance(d, str) for d in dtypes),
        "elements below a byte": any(d in BELOW_A_BYTE for d in dtypes if isinstance(d, str)),
        "too many dimensions": any(len(s) > DIMS_MAX for s in shapes),
        "a dimension beyond 63 bits": any(n >= 1 << 63 for s in shapes for n in s),
        "an empty array too large": any(is_too_large(s, d) for s, d in zip(shapes, dtypes)),
        "too deep": any(depth(v) > DEPTH_MAX for t in tensors if isinstance(t, Pairs) for _, v in t),
    }.items() if true}


def strict(body):
    """How the library was strict when it refused what the daemon reads, of STRICT."""
    floats = []
    json.loads(header_of(body), parse_float=lambda text: floats.append(float(text)))
    return {"a number beyond doubles"} if any(map(math.isinf, floats)) else set()


def pieces(body):
    """To be sent in chunks, of which the first may end within the length or the header."""
    return iter([body[:len(body) % 29], body[len(body) % 29:]])


class Judge:
    def __init__(self, s):
        self.client, self.path = s.client, s.base + "/buffers/x"
        self.seen, self.verdicts = collections.Counter(), collections.Counter()

    def ask(self, method, path, body=None):
        return self.client.ask(method, self.path + path, body)

    def judge(self, body):
        wanted = by_library(body)
        r = self.ask("PUT", "/data?format=safetensors&pack=true", body)
        taken = r.status in (200, 201)
        self.verdicts[wanted is not None, taken] += 1
        ways = lenient(body) if wanted is not None else strict(body) if taken else set()
        assert bool(ways) == ((wanted is not None) != taken), f"{ways}, {r}"
        self.seen.update(ways if len(ways) == 1 else [])
        if not taken:
            self.refused(body, r)
        elif not ways:
            self.same(body, wanted)

    def refused(self, body, r):
        long = len(body) > 8 and struct.unpack("<Q", body[:8])[0] > HEADER_MAX and body[8:9] == b"{"
        assert (r.status, r.json()["code"]) in ([(413, "body_too_large")] if long else
                                                [(422, "unsupported_array"), (422, "shape_mismatch")])
        r = self.ask("PUT", "/data?pack=true", pieces(body))
        assert r.status in (422, 413) or r.json()["dtype"] == "uint8", "another kind of file"

    def same(self, body, wanted):
        """The buffer is the file, and is read as the library reads it."""
        assert self.ask("GET", "/data").body == body
        listed = self.ask("GET", "/tensors?limit=1000").expect(200).json()
        memory = self.ask("GET", "/data?format=raw").body
        assert {t["name"]: (NAMES[t["dtype"]], t["shape"], memory[t["offset"]:t["offset"] + t["bytes"]])
                for t in listed["items"]} == wanted
        assert listed["metadata"] == (json.loads(header_of(body)).get("__metadata__") or {})
        assert self.ask("PUT", "/data?pack=true", pieces(body)).expect(200).json()["dtype"] == "tensors"
        if len(wanted) == 1:
            (dtype, shape, raw), = wanted.values()
            made = self.ask("PUT", "/data", body).expect(200).json()
            assert (NAMES[made["dtype"]], made["shape"], self.ask("GET", "/data").body) == (dtype, shape, raw)


@pytest.mark.parametrize("what", [*LENIENT, *STRICT])
def test_what_is_judged_differently(s, what):
    _, header = {**LENIENT, **STRICT}[what]
    judge = Judge(s)
    judge.judge(file_of(header.encode(), b"x" if "[0,1]" in header else b""))
    assert [*judge.seen] == [what] and judge.verdicts == {(what in LENIENT, what in STRICT): 1}


def test_the_same_files_are_taken(s):
    """Of each kind of damage some files, always the same ones."""
    judge, wrong = Judge(s), []
    for kind, name in enumerate(DAMAGE):
        for i in range(ROUNDS):
            body = damaged(name, np.random.default_rng([kind, i]))
            try:
                judge.judge(body)
            except AssertionError as e:
                wrong.append(f"{name}, round {i}: {str(e)[:400]}\n{body[:1000]!r}")
    assert not wrong, "\n".join(wrong[:9])
    assert min(judge.verdicts[True, True], judge.verdicts[False, False]) > 4 * len(DAMAGE), judge.verdicts
