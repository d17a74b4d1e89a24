"""Random programs of requests on three streams and two events, and an interpreter that says how each may end.

A program has no races: a write is generated only where all unfinished writes of its buffers, and copies from them, are
before it, on its stream or by an event. So the states of a buffer follow each other in the order of acceptance. Reads
may race, and find any of the states that are committed meanwhile, whole.

The interpreter goes through a program in its order, once all has ended. The answer to a write is either what the states
of its buffers call for, or dependency_failed if an earlier write that it builds on has failed and had not ended before
the later one was sent."""
import random
from dataclasses import dataclass, field

from values import crc32c

STREAMS = ("default", "a", "b")
EVENTS = ("e", "f")
PLAIN = ("u", "v", "w")
MIRRORED, PINNED, LARGE = "m", "p", "l"
READS = ("get", "verify", "evict")  # an eviction leaves the bytes as they are
IN_PLACE_BUSY = "buffer_busy"
FOREVER = float("inf")


@dataclass
class Op:
    """A request, or an operation of a batch. sent and ended are readings of one counter at the client."""
    what: str
    stream: str
    buffer: str = None
    fields: dict = field(default_factory=dict)
    source: str = None
    clock: dict = None  # {stream: the number of the last request on it that is before this one, or this one}
    tag: tuple = None  # If-Match: (id, generation)
    condition: str = None  # "*": the buffer is there; "none": it is not
    parent: "Op" = None
    parts: list = None  # of a batch
    data: bytes = b""
    sent: float = None
    ended: float = FOREVER
    status: int = None
    code: str = None
    result: dict = None
    failed: bool = None
    cancelled: bool = False

    def is_before(self, other):
        """By streams and events, whatever the client has seen."""
        return self is not other and other.clock.get(self.stream, 0) >= self.clock[self.stream]

    def has_ended_before(self, other):
        return self.ended < other.sent

    @property
    def whole(self):
        return not ({"offset", "slice", "bytes"} & set(self.fields))

    @property
    def needs_old_bytes(self):
        return self.what in ("sync", "seal") or (self.what in ("put", "fill", "copy") and not self.whole)

    @property
    def in_place(self):
        return bool(self.fields.get("in_place")) or (self.buffer == MIRRORED and self.what != "delete")

    def __str__(self):
        if self.parts:
            return (f"batch{' atomic' if self.fields.get('atomic') else ''} [" + "; ".join(map(str, self.parts))
                    + f"] -> {self.status} {self.code or ''}")
        words = [self.what, self.buffer or self.fields.get("event") or "", "on " + self.stream]
        words += [f"{k}={v}" for k, v in self.fields.items() if k != "event"]
        words += ["from " + self.source] if self.source else []
        words += [f"data={self.data[:4].hex()}..({len(self.data)})"] if self.what == "put" else []
        words += [f"if-match={self.tag or self.condition}"] if self.tag or self.condition else []
        return " ".join(words) + f" -> {self.status} {self.code or ''} {self.generation() or ''}".rstrip()

    def generation(self):
        return (self.result or {}).get("generation")


@dataclass(frozen=True)
class State:
    """A buffer. id None: of one that was made within the program."""
    there: bool
    data: bytes = b""
    generation: int = 0
    id: int = None
    sealed: bool = False
    head: str = None


GONE = State(False)


class Generator:
    """Makes the next request; end: all that was sent has ended."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.size = self.random.choice((16, 32, 48, 64))
        self.sizes = {name: self.size for name in (*PLAIN, MIRRORED, PINNED)}
        if self.random.random() < 0.15:
            self.sizes[LARGE] = (2 << 20) + self.random.randrange(1 << 20)
        self.durable = self.random.random() < 0.3  # the plain ones; then there are evictions
        self.clocks = {s: {s: 0} for s in STREAMS}
        self.events, self.writes, self.copies = {}, {}, {}
        self.missing = set()  # perhaps
        self.held = set()
        self.failures = self.random.choice((0, 0.1, 0.3))  # how many requests have a condition that may not hold

    def joined(self):
        self.writes, self.copies = {}, {}
        self.held = set()

    def place(self, op):
        clock = self.clocks[op.stream]
        clock[op.stream] += 1
        op.clock = dict(clock)

    def orders(self, stream, ops):
        clock = self.clocks[stream]
        return all(clock.get(o.stream, 0) >= o.clock[o.stream] for o in ops)

    def may_write(self, name, stream):
        return self.orders(stream, self.writes.get(name, []) + self.copies.get(name, []))

    def note(self, op):
        self.place(op)
        if op.what not in READS:
            self.writes.setdefault(op.buffer, []).append(op)
        if op.source:
            self.copies.setdefault(op.source, []).append(op)

    def part(self, name):
        size = self.sizes[name]
        offset = self.random.randrange(size)
        return {"offset": offset, "bytes": 1 + self.random.randrange(min(size - offset, 1 << 20))}

    def write(self, stream, batch=None):
        """A write of one buffer on that stream; None if it found none without a race. batch: "", "atomic"."""
        r = self.random
        atomic = batch == "atomic"
        names = [n for n in self.sizes if self.may_write(n, stream) and not (atomic and n == MIRRORED)]
        if not names:
            return None
        name = r.choice(names)
        kinds = ["fill"] * 4 + ["copy"] * 4
        if name == MIRRORED:
            kinds += ["sync"] * 4
        elif name in PLAIN:
            kinds += ["delete"] + ([] if atomic else ["create", "create"] if name in self.missing else [])
        if batch is None:
            kinds += ["put"] * 3
        op = getattr(self, r.choice(kinds))(name, stream)
        if op is None:
            return None
        if op.what in ("fill", "copy", "put") and not atomic and r.random() < 0.15 and name != MIRRORED:
            op.fields["in_place"] = True
        if batch is None and op.what in ("fill", "copy", "put", "delete") and r.random() < self.failures:
            op.condition = r.choice(("*", "none", "tag", "tag", "old"))
        self.note(op)
        if op.what == "delete":
            self.missing.add(name)
        return op

    def fill(self, name, stream):
        width = self.random.choice((1, 1, 2, 4))
        fields = {} if self.random.random() < 0.4 else self.part(name)
        if fields.get("bytes", self.sizes[name]) % width or fields.get("offset", 0) % width:
            width = 1
        fields.update(pattern=self.random.randrange(1 << 8 * width), width=width)
        if name == MIRRORED and self.random.random() < 0.4:
            fields["side"] = "host"
        return Op("fill", stream, name, fields)

    def copy(self, name, stream):
        r = self.random
        sources = [n for n in self.sizes if self.orders(stream, self.writes.get(n, [])) and n != name]
        if not sources:
            return None
        source = r.choice(sources)
        same = self.sizes[source] == self.sizes[name]
        if name in self.missing and (source in (MIRRORED, PINNED) or not same):
            return None
        fields = {}
        if name not in self.missing and (not same or r.random() < 0.5):
            bytes_ = 1 + r.randrange(min(self.sizes[source], self.sizes[name]))
            fields = {"bytes": bytes_, "from_offset": r.randrange(self.sizes[source] - bytes_ + 1),
                      "offset": r.randrange(self.sizes[name] - bytes_ + 1)}
        if name == MIRRORED and r.random() < 0.4:
            fields["side"] = "host"
        return Op("copy", stream, name, fields, source)

    def sync(self, name, stream):
        return Op("sync", stream, name, {"to": self.random.choice(("host", "device"))})

    def delete(self, name, stream):
        return Op("delete", stream, name)

    def create(self, name, stream):
        return Op("create", stream, name, {"size": self.sizes[name]})

    def put(self, name, stream):
        r, size = self.random, self.sizes[name]
        how, fields = r.choice(("whole", "whole", "part", "slice")), {}
        length = size
        if how == "part":
            fields = self.part(name)
            length = fields.pop("bytes")
        elif how == "slice":
            first = r.randrange(size)
            last = first + 1 + r.randrange(min(size - first, 1 << 20))
            step = r.choice((1, 1, 2, 3))
            fields = {"slice": f"{first}:{last}:{step}"}
            length = len(range(first, last, step))
        if name == MIRRORED:
            fields["side"] = r.choice(("host", "device"))
        return Op("put", stream, name, fields, data=r.randbytes(length))

    def read(self):
        r = self.random
        name, stream = r.choice(list(self.sizes)), r.choice(STREAMS)
        if self.durable and name in PLAIN and r.random() < 0.5:
            op = Op("evict", stream, name)
        elif r.random() < 0.3:
            op = Op("verify", stream, name)
        else:
            fields, size = {}, self.sizes[name]
            first = r.randrange(size)
            last = first + 1 + r.randrange(size - first)
            how = r.random()
            if how < 0.2:
                fields["range"] = (first, last)
            elif how < 0.4:
                fields["slice"] = (first, last, r.choice((1, 2, 3)))
            op = Op("get", stream, name, fields)
        self.note(op)
        return op

    def batch(self, stream):
        atomic = self.random.random() < 0.5
        op = Op("batch", stream, fields={"atomic": atomic}, parts=[])
        deleted = set()
        for _ in range(self.random.randrange(2, 7)):
            part = self.write(stream, "atomic" if atomic else "")
            if part is None:
                continue
            if {part.buffer, part.source} & deleted and atomic:
                self.forget(part)
                continue
            if part.what == "delete":
                deleted.add(part.buffer)
            part.parent = op
            op.parts.append(part)
        op.clock = dict(self.clocks[stream])
        return op if op.parts else None

    def forget(self, op):
        self.writes[op.buffer].remove(op)
        if op.source:
            self.copies[op.source].remove(op)

    def order(self):
        r = self.random
        stream, event = r.choice(STREAMS), r.choice(EVENTS)
        if r.random() < 0.5 or event not in self.events:
            self.events[event] = dict(self.clocks[stream])
            return Op("record", stream, fields={"event": event})
        for name, number in self.events[event].items():
            self.clocks[stream][name] = max(number, self.clocks[stream].get(name, 0))
        return Op("wait", stream, fields={"event": event})

    def next(self):
        r = self.random
        while True:
            how = r.random()
            stream = r.choice(STREAMS)
            if how < 0.50:
                op = self.write(stream)
            elif how < 0.52:
                op = Op("cancel", stream) if self.failures else None
            elif how < 0.70:
                op = self.read()
            elif how < 0.82:
                op = self.order()
            elif how < 0.90:
                op = self.batch(stream)
            elif how < 0.95:
                op = Op("hold", stream, fields={"ms": r.choice((3, 8, 20))}) if stream not in self.held else None
                self.held.add(stream)
            elif how < 0.96:
                op = self.seal(stream)
            else:
                op = Op("join", "default")
            if op:
                return op

    def seal(self, stream):
        names = [n for n in PLAIN if self.may_write(n, stream)]
        if not names:
            return None
        op = Op("seal", stream, self.random.choice(names))
        self.note(op)
        return op


# --- the interpreter --------------------------------------------------------------------------------------------------


def patched(old, at, new):
    return old[:at] + new + old[at + len(new):]


def pattern(op, length):
    width = op.fields["width"]
    return (op.fields["pattern"].to_bytes(width, "little") * (length // width + 1))[:length]


def put_data(old, op):
    if "slice" not in op.fields:
        return patched(old, op.fields.get("offset", 0), op.data) if "offset" in op.fields else op.data
    first, last, step = map(int, op.fields["slice"].split(":"))
    out = bytearray(old)
    out[first:last:step] = op.data
    return bytes(out)


def copy_data(old, op, source):
    if op.whole:
        return source.data
    first = op.fields["from_offset"]
    return patched(old, op.fields["offset"], source.data[first:first + op.fields["bytes"]])


def fill_data(old, op):
    if op.whole:
        return pattern(op, len(old))
    return patched(old, op.fields["offset"], pattern(op, op.fields["bytes"]))


def new_head(old, op):
    """Of a mirrored buffer that was written."""
    if old.head is None:
        return None
    if op.what == "sync":
        return "synced" if old.head not in (op.fields["to"], "uninitialized") else (
            op.fields["to"] if old.head == "uninitialized" else old.head)
    return op.fields.get("side", "device")


class Interpreter:
    """first: {name: State}. all: the program; what was sent and has ended, in the order of acceptance."""

    def __init__(self, first, program):
        self.history = {name: [(None, state)] for name, state in first.items()}
        self.ops = [part for op in program for part in (op.parts or [op])]
        self.program = program

    def state(self, name):
        return self.history[name][-1][1]

    def follows_failure(self, name, op):
        """Whether the latest writes of the buffer before op that had not ended when it was sent have failed."""
        for w, _ in reversed(self.history[name][1:]):
            if w.is_before(op) and not w.has_ended_before(op):
                if not w.failed:
                    return False
                if w.what in ("put", "fill", "copy", "sync"):
                    return True
        return False

    def last_write(self, name, op):
        """The latest write of the buffer before op that had not ended when op was sent; None: all had."""
        writes = [w for w, _ in self.history[name][1:] if w.is_before(op) and not w.has_ended_before(op)]
        return writes[-1] if writes else None

    def may_depend_on_failure(self, op):
        """Whether dependency_failed is a possible answer."""
        missing = op.what == "fill" and not self.state(op.buffer).there  # and so without a length
        builds = op.needs_old_bytes or op.in_place or missing
        return (builds and self.follows_failure(op.buffer, op)) or (op.source and self.follows_failure(op.source, op))

    def may_be_busy(self, op):
        """A write in place is refused while others use the bytes."""
        return op.in_place and any(
            o is not op and op.buffer in (o.buffer if o.what in READS or o.cancelled else None, o.source)
            and o.sent <= op.ended and (o.ended >= op.sent or o.cancelled) and not op.is_before(o) for o in self.ops)

    def refusals(self, op, state):
        """The codes with which a write may be refused in that state; empty: it succeeds."""
        codes = set()
        if op.source and not self.state(op.source).there:
            codes.add("buffer_not_found")
        if not state.there and op.what not in ("create", "copy") and not (op.what == "put" and op.whole):
            codes.add("buffer_not_found")
        if state.there and op.what == "create":
            codes.add("buffer_exists")
        if state.sealed and op.what in ("put", "fill", "copy", "sync"):
            codes.add("sealed")
        wrong = ((op.condition == "*" and not state.there) or (op.condition == "none" and state.there)
                 or (op.tag is not None and op.tag != (state.id, state.generation)))
        if wrong:
            codes.add("precondition_failed")
        return codes

    def after(self, op, state):
        """(status, the buffer's state) of a write that succeeds."""
        if op.what == "delete":
            return 204, GONE
        if op.what == "create":
            return 201, State(True, bytes(op.fields["size"]), 1)
        if op.what == "seal":
            return 200, State(True, state.data, state.generation, state.id, True, state.head)
        old = state.data
        if op.what == "sync":
            new, generation = old, state.generation
        else:
            new = (put_data(old, op) if op.what == "put" else fill_data(old, op) if op.what == "fill" else
                   copy_data(old, op, self.state(op.source)))
            generation = state.generation + 1
            if op.what == "copy" and op.whole and state.there and len(new) < len(old):
                new += old[len(new):]
        if not state.there:
            return 201, State(True, new, 1)
        return 200, State(True, new, generation, state.id, state.sealed, new_head(state, op))

    def write(self, op):
        """Continues by a write of its own, or by one of a batch that was not atomic."""
        state = self.state(op.buffer)
        codes = self.refusals(op, state)
        more = ({"dependency_failed"} if self.may_depend_on_failure(op) else set()) | (
            {IN_PLACE_BUSY} if self.may_be_busy(op) else set())
        if op.what == "put" and not op.whole and self.last_write(op.buffer, op):
            more.add("buffer_not_found")  # it is to be made by a request that was not queued when the header came
        if op.what == "create" and any(o.what == "evict" and o.buffer == op.buffer for o in self.ops):
            more.add(IN_PLACE_BUSY)  # while the eviction finds that there is no buffer
        if op.in_place and op.buffer in PLAIN and any(o.what == "evict" for o in self.ops):
            more.add(IN_PLACE_BUSY)  # while its bytes go to the disk, also with those of its batch
        if op.what == "put" and (not op.whole or op.in_place) and any(o.what == "evict" for o in self.ops):
            more.add("not_loaded")
        op.failed = op.status >= 400
        if op.cancelled:
            assert op.code == "cancelled", op
        elif op.failed:
            assert op.code in codes | more, f"{op}: refused, permitted: {sorted(codes | more) or 'success alone'}"
        else:
            assert not codes, f"{op}: should have been refused: {sorted(codes)}"
            status, state = self.after(op, state)
            assert op.status == status, f"{op}: {status} expected"
            if op.generation() is not None:
                assert op.generation() == state.generation, f"{op}: generation {state.generation} expected"
        self.history[op.buffer].append((op, state))

    def atomic(self, op):
        """All or none; the parts see each other."""
        names, codes = {p.buffer for p in op.parts}, set()
        before = {n: self.history[n][:] for n in names}
        for part in op.parts:
            state = self.state(part.buffer)
            refusals = self.refusals(part, state)
            codes |= refusals | ({"dependency_failed"} if self.may_depend_on_failure(part) else set())
            part.failed = False
            if not refusals:
                status, state = self.after(part, state)
                if op.status < 400:
                    assert part.status == status, f"{part}: {status} expected"
                    assert part.generation() in (None, state.generation), f"{part}: {state.generation} expected"
            else:
                assert op.status >= 400, f"{op}: should have been refused: {sorted(refusals)} of {part}"
            self.history[part.buffer].append((part, state))
        if op.status < 400:
            return
        assert op.code in codes, f"{op}: refused, permitted: {sorted(codes) or 'success alone'}"
        for part in op.parts:
            part.failed = True
        for n in names:
            self.history[n] = before[n] + [(p, before[n][-1][1]) for p in op.parts if p.buffer == n]

    def run(self):
        for op in self.program:
            if op.what == "batch" and op.fields["atomic"]:
                self.atomic(op)
            elif op.what == "batch":
                assert op.status == 200, op
                for part in op.parts:
                    self.write(part)
            elif op.what in ("record", "wait", "hold", "join", "cancel"):
                assert op.status in (None, 200, 409), op
            elif op.what not in READS:
                self.write(op)
        for op in self.ops:
            if op.what in READS:
                self.read(op)

    # --- reads --------------------------------------------------------------------------------------------------------

    def visible(self, op):
        """The states that a read may find."""
        line = self.history[op.buffer]
        # One that has failed may have ended before earlier ones.
        first = max([0] + [i for i, (w, _) in enumerate(line) if w and (w.is_before(op) or (
            w.has_ended_before(op) and not w.failed))])
        found = [line[first][1]]
        for w, state in line[first + 1:]:
            if op.is_before(w) or w.sent > op.ended:
                break
            found.append(state)
        return found

    def read(self, op):
        found = self.visible(op)
        if op.cancelled:
            return
        if op.status >= 400:
            writes = [w for w, _ in self.history[op.buffer][1:]]
            codes = {"buffer_not_found"} if any(not s.there for s in found) else set()
            if op.what == "evict":  # others use the bytes; or the buffer was made here, and is not durable
                codes |= {IN_PLACE_BUSY} | ({"invalid_argument"} if any(s.id is None for s in found) else set())
            codes |= {IN_PLACE_BUSY} if any(w.in_place and not w.is_before(op) and not op.is_before(w)
                                            and w.ended >= op.sent and w.sent <= op.ended for w in writes) else set()
            assert op.code in codes, f"{op}: refused, permitted: {sorted(codes) or 'success alone'}"
            return
        if op.what == "evict":
            assert any(s.there for s in found), f"{op}: there is no buffer"
            return
        wanted = [(s.generation, self.part_of(op, s.data)) for s in found if s.there]
        assert (op.generation(), op.data) in wanted, (
            f"{op}: generation {op.generation()}, {op.data[:64].hex()}; permitted: "
            + (", ".join(f"{g}: {d[:64].hex()}" for g, d in wanted) or "that there is no buffer"))

    @staticmethod
    def part_of(op, data):
        if op.what == "verify":
            return crc32c(data).encode()
        if "range" in op.fields:
            return data[slice(*op.fields["range"])]
        if "slice" in op.fields:
            return data[slice(*op.fields["slice"])]
        return data
