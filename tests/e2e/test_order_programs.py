"""Random programs of requests on streams, compared with the model of order_model.py. GB_ORDER_SEEDS=N plays N of them,
GB_ORDER_FIRST names the first."""
import os
import random
import select
import time

from harness import DATA, SMALL_SLOTS
from order_model import EVENTS, MIRRORED, PINNED, PLAIN, STREAMS, Generator, Interpreter, State

SEEDS = int(os.environ.get("GB_ORDER_SEEDS", "0"))
FIRST = int(os.environ.get("GB_ORDER_FIRST", "1"))
SECONDS = 20  # that random programs run for if GB_ORDER_SEEDS does not say how many
ASYNC = {"Prefer": "respond-async"}


class Runner:
    """Plays a program in a session of its own. The daemon has one loop, so that a request is accepted when requests
    that were sent after it have been answered."""

    def __init__(self, daemon, seed):
        self.d, self.seed = daemon, seed
        self.program = Generator(seed)
        self.rng = random.Random(-seed)
        self.name = f"order-{seed}"
        daemon.ask("POST", "/v1/sessions", {"name": self.name}).expect(201)
        self.client, self.base = daemon.client(), "/v1/sessions/" + self.name
        self.readers, self.idle, self.open = [], [], []
        self.ops, self.now = [], 0
        self.known = {}  # {name: [id, generation that the accepted writes lead to, or None]}
        self.run_of = None

    def ask(self, method, path, body=None, headers=None):
        return self.client.ask(method, path if path.startswith("/") else f"{self.base}/{path}", body, headers)

    def tick(self):
        self.now += 1
        return self.now

    def begin(self):
        for name in STREAMS[1:]:
            self.ask("POST", "streams", {"name": name}).expect(201)
        for name in EVENTS:
            self.ask("POST", "events", {"name": name}).expect(201)
        first = {}
        for name, size in self.program.sizes.items():
            data = self.rng.randbytes(size)
            query = {MIRRORED: "?mirrored=true", PINNED: "?kind=pinned"}.get(name, "")
            if self.program.durable and name in PLAIN:
                query = "?durability=behind"
            self.ask("PUT", f"buffers/{name}/data{query}", data).expect(201)
            tag = self.ask("HEAD", f"buffers/{name}/data").headers["ETag"].strip('"').split(".")
            self.run_of = tag[2]
            self.known[name] = [int(tag[0]), int(tag[1])]
            first[name] = State(True, data, int(tag[1]), int(tag[0]), head="host" if name == MIRRORED else None)
        return first

    # --- what is sent -------------------------------------------------------------------------------------------------

    def headers_of(self, op):
        headers = dict(ASYNC)
        if op.condition in ("tag", "old"):
            known = self.known[op.buffer]
            if known[0] is None:
                op.condition = "*"
            else:
                op.tag = (known[0], known[1] - (op.condition == "old"))
                op.condition = None
                headers["If-Match"] = f'"{op.tag[0]}.{op.tag[1]}.{self.run_of}"'
        if op.condition:
            headers["If-Match" if op.condition == "*" else "If-None-Match"] = "*"
        return headers

    def expect_write(self, op):
        """What the next tag will be if all writes succeed."""
        known = self.known[op.buffer]
        if op.what in ("delete", "create"):
            known[0] = None
        elif op.what in ("put", "fill", "copy"):
            known[1] += 1

    @staticmethod
    def body_of(op):
        body = {k: v for k, v in op.fields.items() if k != "size"}
        if op.source:
            body["from"] = op.source
        if op.what == "create":
            body["bytes"] = op.fields["size"]
        return body

    def send_write(self, op):
        headers = self.headers_of(op)
        body = {**self.body_of(op), "stream": op.stream}
        if op.what == "put":
            fields = {"stream": op.stream, **op.fields}
            query = "&".join(f"{k}={str(v).lower()}" for k, v in fields.items())
            r = self.ask("PUT", f"buffers/{op.buffer}/data?{query}", op.data, headers)
        elif op.what == "delete":
            r = self.ask("DELETE", f"buffers/{op.buffer}?stream={op.stream}", None, headers)
        elif op.what == "create":
            r = self.ask("POST", "buffers", {**body, "name": op.buffer}, headers)
        elif op.what == "seal":
            r = self.ask("POST", f"buffers/{op.buffer}/seal?stream={op.stream}")
        else:
            r = self.ask("POST", f"buffers/{op.buffer}/{op.what}", body, headers)
        self.expect_write(op)
        self.answered(op, r)

    def send_batch(self, op):
        operations = [{"op": p.what, "buffer": p.buffer, **self.body_of(p)} for p in op.parts]
        for part in op.parts:
            part.sent = op.sent
            self.expect_write(part)
        body = {"operations": operations, "stream": op.stream, "atomic": op.fields["atomic"]}
        self.answered(op, self.ask("POST", "batch", body, ASYNC))

    def send_get(self, op):
        """On a connection of its own, which has been used before."""
        if not self.idle:
            self.idle.append(self.d.raw())
            self.idle[-1].request("GET", "/livez").reply().expect(200)
        raw = self.idle.pop()
        query, headers = f"?stream={op.stream}", []
        if "range" in op.fields:
            headers = ["Range: bytes={}-{}".format(op.fields["range"][0], op.fields["range"][1] - 1)]
        elif "slice" in op.fields:
            query += "&slice={}:{}:{}".format(*op.fields["slice"])
        raw.request("GET", DATA.format(self.name, op.buffer) + query, headers)
        self.readers.append((op, raw))
        for _ in range(3):
            self.ask("GET", "/livez").expect(200)
        self.take_reads()

    def send(self, op):
        op.sent = self.tick()
        if op.what == "get":
            self.send_get(op)
        elif op.what in ("verify", "evict"):
            self.answered(op, self.ask("POST", f"buffers/{op.buffer}/{op.what}?stream={op.stream}", None, ASYNC))
        elif op.what in ("record", "wait"):
            self.answered(op, self.ask("POST", f"events/{op.fields['event']}/{op.what}", {"stream": op.stream}))
        elif op.what == "hold":
            self.answered(op, self.ask("POST", f"streams/{op.stream}/hold", op.fields))
        elif op.what == "batch":
            self.send_batch(op)
        elif op.what == "join":
            self.join()
        elif op.what == "cancel":
            self.cancel(op)
        else:
            self.send_write(op)

    # --- what comes back ----------------------------------------------------------------------------------------------

    def answered(self, op, r):
        if r.status == 202:
            self.open.append((op, r.json()["id"]))
        else:
            self.ended(op, r.status, r.json() if r.body else None)

    def ended(self, op, status, answer):
        op.ended, op.status = self.tick(), status
        op.code = (answer or {}).get("code") if status >= 400 else None
        op.result = answer if status < 400 else None
        if op.what == "verify" and status < 400:
            op.data = answer["crc32c"].encode()
        for part, result in zip(op.parts or [], (answer or {}).get("results", [{}] * len(op.parts or []))):
            part.ended = op.ended
            part.status = result.get("status", status)
            part.code = (result.get("problem") or {}).get("code")
            part.result = result.get("result")

    def take_reads(self, wait=False):
        """The answers to GETs that have come; all of them with wait."""
        for op, raw in list(self.readers):
            if not wait and not select.select([raw.sock], [], [], 0)[0]:
                continue
            r = raw.reply()
            self.readers.remove((op, raw))
            self.idle.append(raw)
            op.ended, op.status = self.tick(), r.status
            if r.status < 400:
                op.data, op.result = r.body, {"generation": int(r.headers["Gpubuf-Generation"])}
            else:
                op.code = r.json()["code"]

    def cancel(self, op):
        """One of those that have not ended, as far as is known."""
        open_ = [(o, id_) for o, id_ in self.open if o.what != "batch"]
        if not open_:
            return
        other, id_ = self.rng.choice(open_)
        r = self.ask("DELETE", "/v1/operations/" + id_)
        op.status, op.fields = r.status, {"operation": other.sent}
        if r.status == 200:
            self.open.remove((other, id_))
            other.cancelled = True
            self.ended(other, 499, {"code": "cancelled"})

    def join(self):
        for op, id_ in self.open:
            answer = self.ask("GET", "/v1/operations/" + id_, None, {"Prefer": "wait=20"}).expect(200).json()
            assert answer["state"] in ("done", "failed"), (str(op), answer)
            self.ended(op, answer["status"], answer["result"] or answer["problem"])
        self.open = []
        self.take_reads(wait=True)
        self.program.joined()

    # --- all of it ----------------------------------------------------------------------------------------------------

    def close(self):
        for raw in self.idle + [raw for _, raw in self.readers]:
            raw.close()
        self.ask("DELETE", self.base).expect(204)
        self.client.close()

    def run(self):
        first = self.begin()
        for _ in range(self.rng.randrange(8, 40)):
            op = self.program.next()
            self.ops.append(op)
            self.send(op)
        self.join()
        model = Interpreter(first, self.ops)
        model.run()
        for name in self.program.sizes:
            self.compare(name, model.state(name))
        self.close()

    def compare(self, name, state):
        r = self.ask("GET", f"buffers/{name}/data")
        if not state.there:
            r.problem(404, "buffer_not_found")
            return
        assert r.expect(200).body == state.data, f"{name} is {r.body[:64].hex()}, not {state.data[:64].hex()}"
        meta = self.ask("GET", "buffers/" + name).json()
        found = meta["generation"], meta["sealed"], meta["head"]
        assert found == (state.generation, state.sealed, state.head), f"{name}: {found}, not {state}"

    def story(self):
        head = f"GB_ORDER_FIRST={self.seed} GB_ORDER_SEEDS=1; buffers of {self.program.size} bytes"
        return "\n".join([head] + [f"{op.sent} {op}" for op in self.ops])


def test_random_programs(start):
    d = start(*SMALL_SLOTS, "--http-threads", "1")
    end = time.monotonic() + SECONDS
    seed = FIRST
    while seed < FIRST + SEEDS if SEEDS else time.monotonic() < end:
        runner = Runner(d, seed)
        try:
            runner.run()
        except AssertionError as e:
            raise AssertionError(f"{e}\n{runner.story()}") from None
        seed += 1
    print(f"{seed - FIRST} programs")
