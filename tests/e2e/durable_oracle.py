"""What buffers may have after a restart, told from what was sent and what was acknowledged, and nothing else.

A state is what one name has: its bytes by their SHA-256 (None: lost), its durability, its labels and whether it is
sealed; GONE where there is no such buffer. A request says beforehand which states it leads to. Whatever becomes of it,
after a restart each name has its last acknowledged state or that of a request that was never answered; one request of
several names that says it is atomic has led to all of its states or to none. What a buffer with durability "behind" had
since it was last known to be on disk may come back instead, and a buffer with "none" is lost. An entity tag names the
same bytes for ever."""
import hashlib
import threading
from dataclasses import dataclass, replace

GONE = None
LOST = None


def digest(data):
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class State:
    sha: str | None
    durability: str = "sync"
    labels: tuple = ()
    sealed: bool = False
    instead: tuple = ()  # bytes that may be there in place of these

    def permits(self, found, power):
        """power: of what was never synced, any part may be missing."""
        if found is GONE:
            return power and self.durability != "sync"
        if power and self.durability == "none":
            return found.sha is LOST
        if (found.durability, found.labels, found.sealed) != (self.durability, self.labels, self.sealed) and not (
                power and self.durability == "behind"):
            return False
        if self.durability == "none":
            return found.sha is LOST
        return found.sha == self.sha or found.sha in self.instead


def successor(old, sha, durability, labels=(), sealed=False):
    """The state that follows `old` by a change of bytes or of durability; sha: what the bytes are afterwards."""
    if durability != "behind":
        return State(sha, durability, labels, sealed)
    if old is GONE or old.durability == "none":
        instead = (LOST,)
    else:
        instead = tuple(dict.fromkeys((*old.instead, old.sha)))
    return State(sha, durability, labels, sealed, instead)


def described(state):
    if state is GONE:
        return "gone"
    return f"{(state.sha or 'lost')[:8]} {state.durability} {dict(state.labels)}{' sealed' if state.sealed else ''}" + (
        f" or {[(s or 'lost')[:8] for s in state.instead]}" if state.instead else "")


class Request:
    """changes: {name: its state if the request is carried out}. Without a word of how it ended it may or may not have
    been."""

    def __init__(self, oracle, changes, atomic):
        self.oracle, self.changes, self.atomic = oracle, changes, atomic

    def acknowledged(self):
        with self.oracle.lock:
            self.oracle.open.remove(self)
            for name, state in self.changes.items():
                self.oracle.put(name, state)

    def refused(self):
        """The daemon has said that nothing was changed."""
        with self.oracle.lock:
            self.oracle.open.remove(self)


class Oracle:
    def __init__(self):
        self.lock = threading.Lock()
        self.states = {}  # name: state; acknowledged
        self.past = {}    # name: [sha]; all that it ever had, so that a fault can say what came back
        self.open = []    # requests without an answer
        self.tags = {}    # entity tag: sha
        self.faults = []

    def put(self, name, state):
        self.states[name] = state
        if state is not GONE and state.sha is not LOST:
            self.past.setdefault(name, []).append(state.sha)

    def state(self, name):
        return self.states.get(name, GONE)

    def begin(self, changes, atomic=False):
        with self.lock:
            self.open.append(Request(self, changes, atomic))
            return self.open[-1]

    def on_disk(self, name):
        """The daemon has said that these bytes are stored: nothing before them may come back."""
        with self.lock:
            self.states[name] = replace(self.states[name], instead=())

    def tag(self, tag, sha):
        with self.lock:
            if self.tags.setdefault(tag, sha) != sha:
                self.faults.append(f"the tag {tag} named {self.tags[tag][:8]} and names {sha[:8]} now")

    def restarted(self, found, power=False):
        """found: {name: state} of all buffers that there are. Notes what must not be, and continues from what there
        is."""
        for name in sorted({*self.states, *found, *(n for r in self.open for n in r.changes)}):
            self.check(name, found.get(name, GONE), power)
        for r in self.open:
            if r.atomic:
                self.check_atomic(r, found, power)
        for name in {*self.states, *found}:
            self.put(name, found.get(name, GONE))
        self.open = []
        return self.faults

    def check(self, name, found, power):
        may = [self.state(name)] + [r.changes[name] for r in self.open if name in r.changes]
        if any(found is GONE if s is GONE else s.permits(found, power) for s in may):
            return
        older = ""
        if self.state(name) is GONE and name in self.past:
            older = " (deleted before)"
        elif found is not GONE and found.sha in self.past.get(name, ()):
            older = " (older bytes)"
        self.faults.append(f"{name} has {described(found)}{older}, and may have {' | '.join(map(described, may))}")

    def check_atomic(self, request, found, power):
        def led(name):
            new, old = request.changes[name], self.state(name)
            is_new = found.get(name) is GONE if new is GONE else new.permits(found.get(name, GONE), power)
            is_old = found.get(name) is GONE if old is GONE else old.permits(found.get(name, GONE), power)
            return {is_new and "new", is_old and "old"} - {False}

        if not set.intersection(*map(led, request.changes)):
            self.faults.append(f"a request of {sorted(request.changes)} was carried out in part: " +
                               str({n: described(found.get(n, GONE)) for n in request.changes}))
