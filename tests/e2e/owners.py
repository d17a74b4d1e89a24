"""A history of what clients asked of sessions of a fleet, and what must hold of it: one owner at a time, no stale read,
no acknowledged write lost, no name said to be absent while its owner lives.

A session has one buffer here. What it holds is a register: its state is set by writes, and by making and deleting the
session. An operation has a beginning and an end by one clock, and one that ended strictly before another began was
before it; those that overlap may have been in either order. One that was not acknowledged may have been carried out at
any time after its beginning, or never."""
import bisect
import collections
import itertools
import math
import threading
import time

SETS = ("write", "make", "delete")


class Op:
    """value: what was written or read. node: the one that answered; via: the one that was asked. done: it was
    acknowledged. maybe: it was not, and may have been carried out. saw: of a read and of what was refused with a state:
    "value", "empty" or "gone"."""

    __slots__ = ("kind", "name", "via", "begun", "ended", "value", "done", "maybe", "saw", "node", "epoch", "status",
                 "void")

    def __init__(self, kind, name, via, value=None):
        self.kind, self.name, self.via, self.value = kind, name, via, value
        self.begun, self.ended, self.done, self.maybe, self.saw = time.monotonic(), math.inf, False, False, None
        self.node = self.epoch = self.status = None
        self.void = False

    def __repr__(self):
        outcome = f"{self.status} by {self.node} at epoch {self.epoch}" + (f", saw {self.saw}" if self.saw else "")
        return (f"{self.begun % 10000:9.3f} to {self.ended % 10000:9.3f} {self.kind:6} "
                f"{self.value if self.value is not None else ''} via {self.via}: {outcome}"
                + (" (by one that was cut off)" if self.void else ""))


class History:
    """of[name]: the operations of a name. away[node]: intervals in which a node was down or cut off, until it had
    joined again. restores: when the directory was given older contents."""

    def __init__(self):
        self.of, self.away, self.restores = collections.defaultdict(list), collections.defaultdict(list), []
        self.numbers, self.lock = itertools.count(1), threading.Lock()

    def begin(self, kind, name, via):
        op = Op(kind, name, via, next(self.numbers) if kind == "write" else None)
        with self.lock:
            self.of[name].append(op)
        return op

    def leaves(self, node):
        """It is down or cut off from now on."""
        if not self.away[node] or self.away[node][-1][1] < math.inf:
            self.away[node].append([time.monotonic(), math.inf])

    def returns(self, node):
        if self.away[node] and self.away[node][-1][1] == math.inf:
            self.away[node][-1][1] = time.monotonic()

    # What is exempt.

    def _void(self, ops, serves):
        """An owner of the policy `serve` that is away serves on. If the name was given to another meanwhile, what it
        says then is not said of the session."""
        given = [op for op in ops if op.kind in ("make", "move") and (op.done or op.maybe)]
        for op in ops:
            op.void = serves and op.node is not None and any(
                a <= op.ended and b >= op.begun and any(g.node != op.node and g.ended >= a for g in given) for a,
                b in self.away[op.node])

    def _lost(self, ops, op):
        """Whether the directory may have lost the name at that moment: it was restored, and the last owner was away
        since, so that it could not tell."""
        owners = {o.node for o in sorted((o for o in ops if o.done and o.ended < op.ended and o.node),
                                         key=lambda o: o.ended)[-3:]}
        return any(r <= op.ended and any(a <= op.ended and b >= max(r, a) and op.begun <= b for node in owners for a,
                                         b in self.away[node])
                   for r in self.restores)

    # What must hold.

    def wrong(self, name, serves):
        """What does not hold of that name, as texts."""
        ops = sorted(self.of[name], key=lambda op: op.begun)
        self._void(ops, serves)
        return [*self._stale(ops), *self._twice(ops), *self._epochs(ops)]

    def _stale(self, ops):
        writes = {op.value: op for op in ops if op.kind == "write"}
        effective = {}
        for op in ops:  # by when the state was surely set
            if op.kind in SETS and op.done and not op.void:
                effective[op] = op.ended
        for op in ops:
            if op.saw == "value" and op.value in writes and not op.void and not writes[op.value].void:
                w = writes[op.value]
                effective[w] = min(effective.get(w, math.inf), op.ended)
        by_begin = sorted(effective, key=lambda op: op.begun)
        begins = [op.begun for op in by_begin]
        least = [None] * (len(by_begin) + 1)  # of those from there on, the one that was effective first
        for i in range(len(by_begin) - 1, -1, -1):
            later = least[i + 1]
            least[i] = by_begin[i] if later is None or effective[by_begin[i]] < effective[later] else later
        for op in ops:
            if op.saw is None or op.void:
                continue
            if op.saw == "value" and op.value not in writes:
                yield f"never written: {op}"
                continue
            sources = [writes[op.value]] if op.saw == "value" else [
                o for o in ops if o.begun < op.ended and (o.done or o.maybe)
                and o.kind == {"empty": "make", "gone": "delete"}[op.saw]]
            if op.saw == "gone" and (not any(o.kind == "make" and o.done and o.ended < op.begun for o in ops)
                                     or self._lost(ops, op)):
                continue
            last = max((o.ended if o.done else math.inf for o in sources), default=-math.inf)
            after = least[bisect.bisect_right(begins, last)]
            if after is not None and effective[after] < op.begun:
                yield f"{'stale' if op.saw == 'value' else op.saw + ', though it is there'}: {op}\n    after {after}"

    def _twice(self, ops):
        """A session that is made while there is one, as each was made after the other one's making and before its
        deletion."""
        made = [op for op in ops if op.kind == "make" and op.done]
        for a, b in zip(made, made[1:]):
            gone = any(op.kind == "delete" and (op.done or op.maybe) and op.begun < b.ended and op.ended > a.begun
                       for op in ops)
            if not gone and not self._lost(ops, b):
                yield f"made twice: {a}\n    and {b}"

    def _epochs(self, ops):
        """Of acknowledged writes: epochs do not fall, and one epoch has one owner, as long as the session is the
        same."""
        breaks = [op for op in ops if op.kind in ("make", "delete") and (op.done or op.maybe)]
        highest = None
        acked = sorted((op for op in ops if op.kind == "write" and op.done and not op.void and op.epoch is not None),
                       key=lambda op: op.ended)
        ends = [op.ended for op in acked]
        top = []
        for op in acked:
            highest = op if highest is None or op.epoch >= highest.epoch else highest
            top.append(highest)
        for op in acked:
            i = bisect.bisect_left(ends, op.begun)
            if i == 0:
                continue
            before = top[i - 1]
            if (before.epoch > op.epoch or (before.epoch == op.epoch and before.node != op.node)) and not any(
                    b.begun < op.ended and (b.ended if b.done else math.inf) > before.begun for b in breaks):
                yield f"two owners: {before}\n    and then {op}"
        owner = {}
        for op in acked:
            other = owner.setdefault(op.epoch, op)
            if other.node != op.node and not any(b.begun < op.ended and (b.ended if b.done else math.inf) > other.begun
                                                 for b in breaks):
                yield f"two owners at one epoch: {other}\n    and {op}"

    def around(self, name, text):
        """The operations of the name, those about which something is said marked."""
        return "\n".join(("> " if repr(op) in text else "  ") + repr(op)
                         for op in sorted(self.of[name], key=lambda op: op.begun) if repr(op) in text
                         or op.kind in ("make", "delete", "move") or op.saw == "gone")
