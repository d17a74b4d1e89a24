"""Clients that change durable buffers until the daemon dies, and tell an oracle what they sent and what was
acknowledged."""
import http.client
import random
import threading

from durable import SIZES, path_of
from durable_oracle import GONE, digest, successor
from harness import DATA, PATIENCE_S, Client
from values import payload, safetensors_of

TENSORS = 20
BUSY = {"not_loaded", "buffer_busy"}  # the same request is sent again


class Died(Exception):
    """The daemon; what it did with the last request is not known."""


class Worker(threading.Thread):
    """Works in the sessions kN and tN, which are its own. kinds: what it may do; size: of all buffers; steps: how many
    it takes."""

    def __init__(self, d, oracle, number, contents=(), kinds=None, size=None, steps=None, seed=0):
        super().__init__()
        self.d, self.oracle, self.number, self.size, self.steps = d, oracle, number, size, steps
        self.rng = random.Random(f"{seed}/{number}")
        self.session, self.other = f"k{number}", f"t{number}"
        self.contents = dict(contents)  # of its names: bytes
        self.kinds = kinds or sorted(KINDS)
        self.client, self.fault, self.done, self.died, self.serial = Client(d.tcp), None, 0, False, 0

    def run(self):
        try:
            while self.steps is None or self.done < self.steps:
                self.step()
        except Died:
            self.died = True
        except BaseException as e:
            self.fault = e
        finally:
            self.client.close()

    def step(self):
        kind = self.rng.choice(self.kinds)
        KINDS[kind](self)
        self.done += 1

    # --- requests -----------------------------------------------------------------------------------------------------

    def ask(self, method, target, body=None, headers=None):
        try:
            return self.client.ask(method, target, body, headers)
        except (OSError, http.client.HTTPException) as e:
            raise Died(f"{method} {target}") from e

    def change(self, changes, method, target, body=None, headers=None, statuses=(200, 201, 204), atomic=False):
        """Sends a request that leads to these states. {name: (bytes or GONE, state)}"""
        while True:
            request = self.oracle.begin({self.key(n): s for n, (_, s) in changes.items()}, atomic)
            r = self.ask(method, target, body, headers)
            if r.status not in statuses:
                request.refused()
                if r.status >= 400 and r.json()["code"] in BUSY:
                    continue
                raise AssertionError(f"{method} {target}: {r.status} {r.body[:400]!r}")
            request.acknowledged()
            for n, (data, state) in changes.items():
                if data is GONE:
                    self.contents.pop(self.key(n), None)
                else:
                    self.contents[self.key(n)] = data
            self.note_tag(changes, r, target)
            return r

    def note_tag(self, changes, r, target):
        tag = r.headers.get("ETag")
        if tag and len(changes) == 1 and target.split("?")[0].endswith("/data"):
            ((data, _),) = changes.values()
            self.oracle.tag(tag, digest(data))

    def key(self, name):
        return name if "/" in name else f"{self.session}/{name}"

    def state(self, name):
        return self.oracle.state(self.key(name))

    def follows(self, name, data, durability=None, labels=None):
        """The pair for change(): the buffer with these bytes."""
        old = self.state(name)
        if old is GONE:
            return data, successor(GONE, digest(data), durability or "sync", labels or ())
        return data, successor(old, digest(data), durability or old.durability,
                               old.labels if labels is None else labels)

    # --- what there is to work on -------------------------------------------------------------------------------------

    def any_size(self):
        return self.size or self.rng.choice(SIZES[:2] * 3 + SIZES[2:])

    def fresh(self, n):
        self.serial += 1
        return payload(n, hash((self.number, self.serial, self.rng.random())) & 0xFFFFFFFF)

    def name(self, prefix="x"):
        return f"{prefix}{self.rng.randrange(4)}"

    def there(self, prefix="x"):
        """The name of a buffer whose bytes are there; makes it if it is not."""
        name = self.name(prefix)
        if self.key(name) not in self.contents:
            self.new(name)
        return name

    def new(self, name, query="?durability=sync"):
        data = self.fresh(self.any_size())
        self.change({name: self.follows(name, data, "sync")}, "PUT", DATA.format(self.session, name) + query, data)

    def path(self, name):
        return path_of(name, self.session)

    # --- the kinds ----------------------------------------------------------------------------------------------------

    def do_new(self):
        name = f"n{self.rng.randrange(100)}"
        if self.state(name) is not GONE:
            return self.delete(name)
        return self.new(name)

    def do_replace(self):
        name = self.there()
        data = self.fresh(self.any_size())
        self.change({name: self.follows(name, data)}, "PUT", DATA.format(self.session, name), data)

    def overwrite(self, query):
        name = self.there()
        old = self.contents[self.key(name)]
        part = self.fresh(self.rng.choice((1, 300, len(old) // 2 + 1)))
        at = self.rng.randrange(len(old) - len(part) + 1)
        data = old[:at] + part + old[at + len(part):]
        self.change({name: self.follows(name, data)}, "PATCH", DATA.format(self.session, name) + f"?offset={at}{query}",
                    part)

    def do_patch(self):
        self.overwrite("")

    def do_in_place(self):
        self.overwrite("&in_place=true")

    def do_slice(self):
        name = self.there()
        old = self.contents[self.key(name)]
        step = self.rng.randrange(2, 9)
        data = bytearray(old)
        part = self.fresh(len(range(3, len(old), step)))
        data[3::step] = part
        self.change({name: self.follows(name, bytes(data))}, "PUT", DATA.format(self.session, name)
                    + f"?slice=3::{step}", part)

    def do_copy(self):
        name = self.there()
        data = self.contents[self.key(name)]
        to = f"c{self.rng.randrange(2)}"
        if (self.state(to) is not GONE and self.key(to) in self.contents and len(self.contents[self.key(to)])
            != len(data)):
            self.delete(to)
        self.change({to: self.follows(to, data)}, "POST", self.path(to) + "/copy", {"from": name})

    def do_fill(self):
        name = self.there()
        old = self.contents[self.key(name)]
        at, n, value = self.rng.randrange(len(old) // 2), self.rng.randrange(1, len(old) // 2), self.rng.randrange(256)
        data = old[:at] + bytes([value]) * n + old[at + n:]
        self.change({name: self.follows(name, data)}, "POST", self.path(name) + "/fill",
                    {"pattern": value, "width": 1, "offset": at, "bytes": n})

    def do_tensors(self):
        sizes = {f"w{i}": self.rng.choice((10, 1000, SIZES[1])) for i in range(TENSORS)}
        if self.size:
            sizes["w0"] = self.size
        tensors = {n: self.fresh(size) for n, size in sizes.items()}
        self.change({n: self.follows(n, data) for n, data in tensors.items()}, "PUT",
                    f"/v1/sessions/{self.session}/tensors", safetensors_of(**tensors), atomic=True)

    def do_batch(self):
        a, b = self.there(), f"b{self.rng.randrange(2)}"
        data = self.contents[self.key(a)]
        if self.state(b) is not GONE:
            self.delete(b)
        r = self.ask("POST", self.path(a) + "/load", {})
        assert r.status == 200, r
        filled = bytes([7]) * len(data)
        r = self.change({a: self.follows(a, filled), b: self.follows(b, data)}, "POST",
                        f"/v1/sessions/{self.session}/batch", {"operations": [{"op": "copy", "buffer": b, "from": a},
                                                                              {"op": "fill", "buffer": a,
                                                                               "pattern": 7}]})
        assert r.json()["failed"] == 0, r.body

    def do_complete(self):
        name = self.name("u")
        data = self.fresh(self.any_size())
        r = self.ask("POST", f"/v1/sessions/{self.session}/uploads", {"buffer": name, "bytes": len(data)})
        assert r.status == 201, r
        upload, half = r.headers["Location"], len(data) // 2
        for at, part in ((half, data[half:]), (0, data[:half])):
            r = self.ask("PUT", f"{upload}/parts?offset={at}", part)
            assert r.status == 200, r
        self.change({name: self.follows(name, data)}, "POST", upload + "/complete", {})

    def do_resume(self):
        name = self.name("u")
        data = self.fresh(self.any_size())
        half = len(data) // 2
        r = self.ask("PUT", DATA.format(self.session, name), data[:half],
                     {"Upload-Complete": "?0", "Upload-Length": str(len(data))})
        assert r.status == 201, r
        self.change({name: self.follows(name, data)}, "PATCH", r.headers["Location"], data[half:],
                    {"Content-Type": "application/partial-upload", "Upload-Offset": str(half), "Upload-Complete": "?1"})

    def do_mirrored(self):
        name, data = "m", self.fresh(self.size or SIZES[1])
        query = "" if self.state(name) is not GONE else "?mirrored=true&durability=sync"
        self.change({name: self.follows(name, data)}, "PUT", DATA.format(self.session, name) + query, data)
        self.change({name: self.follows(name, data)}, "POST", self.path(name) + "/sync",
                    {"to": self.rng.choice(("host", "device"))})

    def do_durability(self):
        name = self.there("d")
        data = self.contents[self.key(name)]
        for word in self.rng.sample(("none", "behind"), self.rng.randrange(1, 3)) + ["sync"]:
            self.change({name: self.follows(name, data, word)}, "PATCH", self.path(name), {"durability": word})

    def do_behind(self):
        """Stays behind or without durability when the daemon dies."""
        name = self.there("h")
        data = self.contents[self.key(name)]
        word = self.rng.choice(("none", "behind"))
        if self.state(name).durability != word:
            self.change({name: self.follows(name, data, word)}, "PATCH", self.path(name), {"durability": word})
        data = self.fresh(len(data))
        self.change({name: self.follows(name, data)}, "PUT", DATA.format(self.session, name), data)
        if word == "behind" and self.rng.random() < 0.5:
            r = self.ask("POST", self.path(name) + "/store", {})
            assert r.status == 200, r
            self.oracle.on_disk(self.key(name))

    def do_labels(self):
        name = self.there()
        value = str(self.rng.randrange(1000))
        data = self.contents[self.key(name)]
        self.change({name: self.follows(name, data, labels=(("v", value),))}, "PATCH", self.path(name),
                    {"labels": {"v": value}})

    def delete(self, name):
        self.change({name: (GONE, GONE)}, "DELETE", self.path(name))

    def do_delete(self):
        self.delete(self.there())

    def do_session(self):
        r = self.ask("POST", "/v1/sessions", {"name": self.other, "durability": "sync"})
        assert r.status in (201, 409), r
        names = [f"{self.other}/s{i}" for i in range(3)]
        for n in names:
            data = self.fresh(self.any_size())
            self.change({n: self.follows(n, data)}, "PUT", DATA.format(*n.split("/")), data)
        gone = [k for k, s in self.oracle.states.items() if k.startswith(self.other + "/") and s is not GONE]
        self.change({n: (GONE, GONE) for n in gone}, "DELETE", f"/v1/sessions/{self.other}", atomic=True)


KINDS = {name.removeprefix("do_"): what for name, what in vars(Worker).items() if name.startswith("do_")}


def begin(d, oracle, contents, count, **more):
    """That many workers, with what is theirs of the contents."""
    workers = []
    for n in range(count):
        d.ask("POST", "/v1/sessions", {"name": f"k{n}", "durability": "sync"})
        own = {k: v for k, v in contents.items() if k.split("/")[0] in (f"k{n}", f"t{n}")}
        workers.append(Worker(d, oracle, n, own, **more))
    for w in workers:
        w.start()
    return workers


def end(workers):
    for w in workers:
        w.join(PATIENCE_S)
        assert not w.is_alive()
    for w in workers:
        if w.fault:
            raise w.fault

