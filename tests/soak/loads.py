"""Loads of clients that behave. Each is a generator that takes a turn between two yields, and accepts only what is
right: any other status or byte is a problem."""
import base64
import gzip
import hashlib
import json
import random
import struct
import time

from harness import until
from owning import Owned, Owner
from scene import SESSION, expect
from sharing import Local, Memory

SIZES = [0, 1, 100, 4096, 16383, 16384, 16385, 70000, 262144, 1 << 20, (1 << 20) + 1, 5 << 20, 64 << 20]
SMALL = [1, 100, 4096, 65537, 1 << 20, 3 << 20]
PARTIAL = "application/partial-upload"
WAIT_S = 2  # of a request that waits


def payload(rng, size):
    return (rng.randbytes(min(size, 1 << 20)) * (max(size, 1) // (1 << 20) + 1))[:size]


def digest(data, name="sha256"):
    return base64.b64encode(hashlib.new(name, data).digest()).decode()


def gone(c, path):
    """What a turn that failed may have left."""
    expect(c.ask("DELETE", path), 204, 404)


def transfers(work, how, number):
    """Uploads and downloads of all sizes, plain, chunked, packed, as .npy and with digests, right and wrong."""
    rng, c, there = random.Random(), work.client(how), set()
    for i in range(4):
        gone(c, f"{SESSION}/buffers/t{number}-{i}")
    while True:
        size, name = rng.choice(SIZES), f"t{number}-{rng.randrange(4)}"
        data, path = payload(rng, size), f"{SESSION}/buffers/{name}/data"
        target, kind = f"{path}?dtype=uint8&shape={size}", rng.choice(["length", "chunked", "digest", "wrong digest",
                                                                       "gzip", "npy"])
        done = 200 if name in there else 201
        if kind == "wrong digest":
            expect(c.ask("PUT", target, data, {"Repr-Digest": f"sha-256=:{digest(data + b'x')}:"}), 400,
                   code="digest_mismatch")
            yield
            continue
        if kind == "chunked" and size:
            expect(c.ask("PUT", target, iter([data[i:i + 100000] for i in range(0, size, 100000)])), done)
        elif kind == "gzip":
            data = data[:3 << 20]
            target = f"{path}?dtype=uint8&shape={len(data)}"
            expect(c.ask("PUT", target, gzip.compress(data, 1), {"Content-Encoding": "gzip"}), done)
        elif kind == "npy":
            head = repr({"descr": "|u1", "fortran_order": False, "shape": (size,)}).encode()
            head += b" " * (-(len(head) + 11) % 64) + b"\n"
            expect(c.ask("PUT", path, b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + data), done)
        else:
            more = {"Content-Digest": f"sha-512=:{digest(data, 'sha512')}:"} if kind == "digest" else None
            expect(c.ask("PUT", target, data, more), done)
        there.add(name)
        got = expect(c.ask("GET", path, None, {"Want-Repr-Digest": "sha-256=1"} if kind == "digest" else None), 200)
        assert got.body == data, f"{len(got.body)} bytes came back of {len(data)}, or others"
        assert kind != "digest" or got.headers["Repr-Digest"] == f"sha-256=:{digest(data)}:", got.headers["Repr-Digest"]
        yield


def parts(work, how, number):
    """Ranges, offsets and slices of a tensor, read and written, against a copy of it here."""
    rng, c, name = random.Random(), work.client(how), f"r{number}"
    rows, columns = 300, 4000
    mine, path = bytearray(payload(rng, rows * columns)), f"{SESSION}/buffers/{name}/data"
    expect(c.ask("PUT", f"{path}?dtype=uint8&shape={rows},{columns}", bytes(mine)), 200, 201)
    while True:
        at, n = rng.randrange(len(mine) - 70000), rng.choice([1, 5, 4096, 65536])
        assert expect(c.ask("GET", path, None, {"Range": f"bytes={at}-{at + n - 1}"}), 206).body == mine[at:at + n]
        both = expect(c.ask("GET", path, None, {"Range": f"bytes=0-9,{at + 20}-{at + 29}"}), 206)
        assert (both.headers["Content-Type"].startswith("multipart/byteranges") and bytes(mine[at + 20:at + 30])
                in both.body)
        assert expect(c.ask("GET", f"{path}?offset={at}&length={n}"), 200).body == mine[at:at + n]
        row, column = rng.randrange(rows - 10), rng.randrange(columns - 10)
        got = expect(c.ask("GET", f"{path}?slice={row}:{row + 10},{column}:{column + 10}"), 200).body
        assert got == b"".join(mine[r * columns + column:r * columns + column + 10] for r in range(row, row + 10))
        expect(c.ask("GET", path, None, {"Range": f"bytes={len(mine)}-"}), 416, code="range_not_satisfiable")
        new = payload(rng, n)
        expect(c.ask("PATCH", f"{path}?offset={at}" + rng.choice(["", "&in_place=true"]), new), 200)
        mine[at:at + n] = new
        new = payload(rng, 100)
        expect(c.ask("PATCH", f"{path}?slice={row}:{row + 10},{column}:{column + 10}", new), 200)
        for r in range(10):
            mine[(row + r) * columns + column:(row + r) * columns + column + 10] = new[r * 10:r * 10 + 10]
        tag = expect(c.ask("HEAD", path), 200).headers["ETag"]
        expect(c.ask("GET", path, None, {"If-None-Match": tag}), 304)
        expect(c.ask("PUT", f"{path}?offset=0", b"x", {"If-Match": '"none"'}), 412, code="precondition_failed")
        assert expect(c.ask("GET", path), 200).body == mine
        yield


def packed(tensors):
    head, at = {}, 0
    for name, data in tensors.items():
        head[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(tensors.values())


def unpacked(file):
    (n,) = struct.unpack("<Q", file[:8])
    head = json.loads(file[8:8 + n])
    return {k: file[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]] for k,
            v in head.items() if k != "__metadata__"}


def files(work, how, number):
    """Safetensors files of several buffers, whole, broken and picked by name."""
    rng, c, first = random.Random(), work.client(how), True
    prefix = f"f{number}-"
    for i in range(5):
        gone(c, f"{SESSION}/buffers/{prefix}w{i}")
    while True:
        tensors = {f"w{i}": payload(rng, rng.choice(SMALL)) for i in range(5)}
        file = packed(tensors)
        expect(c.ask("PUT", f"{SESSION}/tensors?prefix={prefix}", file), 201 if first else 200)
        first = False
        got = unpacked(expect(c.ask("GET", f"{SESSION}/tensors?prefix={prefix}"), 200).body)
        assert {k.removeprefix(prefix): v for k, v in got.items()} == tensors, [len(v) for v in got.values()]
        got = unpacked(expect(c.ask("GET", f"{SESSION}/tensors?names={prefix}w1,{prefix}w3"), 200).body)
        assert sorted(got.values()) == sorted([tensors["w1"], tensors["w3"]])
        expect(c.ask("PUT", f"{SESSION}/tensors?prefix={prefix}", b"\xff" * 64), 400, 413, 422)
        expect(c.ask("GET", f"{SESSION}/tensors?names={prefix}none"), 404, code="buffer_not_found")
        yield


def polls(work, how, number):
    """Requests that wait: for what does not change, which park until their time has passed, and for what does."""
    c, other = work.client(how), work.client(how)
    still, moving = (f"{SESSION}/buffers/poll{number}-{k}" for k in ("still", "moving"))
    for path in (still, moving):
        expect(c.ask("PUT", path + "/data", b"1"), 200, 201)
    turn = 0
    while True:
        turn += 1
        tag = expect(c.ask("GET", still), 200).headers["ETag"]
        begin = time.monotonic()
        expect(c.ask("GET", still, None, {"If-None-Match": tag, "Prefer": f"wait={WAIT_S}"}), 304)
        assert time.monotonic() - begin > WAIT_S / 2, "it did not wait"
        for _ in range(5):
            tag = expect(c.ask("GET", moving), 200).headers["ETag"]
            c.http.request("GET", moving, None, {"If-None-Match": tag, "Prefer": "wait=30", "Authorization": "Bearer "
                                                 + work.token})
            time.sleep(0.05)
            expect(other.ask("PATCH", moving, {"labels": {"turn": f"{turn}-{_}"}}), 200)
            reply = c.http.getresponse()
            body = reply.read()
            assert reply.status == 200 and reply.headers["ETag"] != tag, (reply.status, body[:200])
        tag = expect(c.ask("GET", "/v1/stats"), 200).headers["ETag"]
        # others change it, or none
        expect(c.ask("GET", "/v1/stats", None, {"If-None-Match": tag, "Prefer": "wait=1"}), 200, 304)
        expect(c.ask("GET", f"{SESSION}/buffers?limit=100"), 200)
        expect(c.ask("GET", "/metrics"), 200)
        yield


def ended(c, reply):
    """Waits for the operation of a 202; a request that was done at once has none."""
    if reply.status == 200:
        return
    path = expect(reply, 202).headers["Location"]
    state = until("the operation has ended", lambda: (o := expect(c.ask("GET", path), 200).json())["state"]
                  not in ("queued", "running") and o)
    assert state["state"] == "done", state


def things(work, how, number):
    """Sessions, pools, streams, events, buffers, fills, copies, batches, operations, idempotency; all of it is deleted
    again."""
    rng, c, turn = random.Random(), work.client(how), 0
    gone(c, f"{SESSION}/buffers/copy{number}")
    while True:
        turn += 1
        name = f"s{number}-{turn}-{rng.randrange(1 << 30)}"
        s, size = f"/v1/sessions/{name}", rng.choice([8, 4096, 3 << 20])
        expect(c.ask("POST", "/v1/sessions", {"name": name, "quota": {"bytes": 64 << 20}}), 201)
        expect(c.ask("POST", f"{s}/pools", {"name": "p"}), 201)
        expect(c.ask("POST", f"{s}/streams", {"name": "st"}), 201)
        expect(c.ask("POST", f"{s}/events", {"name": "e"}), 201)
        expect(c.ask("POST", f"{s}/buffers", {"name": "a", "bytes": size, "pool": "p", "stream": "st"}), 201)
        expect(c.ask("POST", f"{s}/buffers/a/fill", {"pattern": 7, "stream": "st"}), 200)
        expect(c.ask("POST", f"{s}/events/e/record", {"stream": "st"}), 200)
        expect(c.ask("POST", f"{s}/events/e/wait", {}), 200)
        expect(c.ask("POST", f"{s}/buffers/b/copy", {"from": "a"}), 201)
        expect(c.ask("POST", f"{s}/buffers/b/copy", {"from": "a", "bytes": size // 2, "in_place": True}), 200)
        expect(c.ask("POST", f"{SESSION}/buffers/copy{number}/copy", {"from": f"{name}/a"}), 201)
        assert expect(c.ask("GET", f"{SESSION}/buffers/copy{number}/data"), 200).body == b"\7" * size
        expect(c.ask("DELETE", f"{SESSION}/buffers/copy{number}"), 204)
        ended(c, c.ask("POST", f"{s}/buffers/a/fill", {"pattern": "0x3f800000", "width": 4},
                       {"Prefer": "respond-async, wait=0"}))
        assert expect(c.ask("GET", f"{s}/buffers/a/data"), 200).body == b"\0\0\x80\x3f" * (size // 4)
        operations = [{"op": "create", "buffer": "x", "bytes": 4096}, {"op": "fill", "buffer": "x", "pattern": 5},
                      {"op": "copy", "buffer": "y", "from": "x"}, {"op": "delete", "buffer": "x"}]
        done = expect(c.ask("POST", f"{s}/batch", {"operations": operations}), 200).json()
        assert [r["status"] for r in done["results"]] == [201, 200, 201, 204], done
        assert expect(c.ask("GET", f"{s}/buffers/y/data"), 200).body == b"\5" * 4096
        found = [expect(c.ask("POST", f"{s}/buffers/y/verify", {"algorithms": ["sha-256"]}), 200).json()
                 for _ in range(2)]
        assert found[0]["digest"]["sha-256"] == digest(b"\5" * 4096) and found[1]["match"], found
        keyed = [expect(c.ask("POST", f"{s}/buffers", {"name": "k", "bytes": 8}, {"Idempotency-Key": f'"{name}"'}), 201)
                 for _ in range(2)]
        assert keyed[0].body == keyed[1].body
        expect(c.ask("POST", f"{s}/buffers", {"name": "k", "bytes": 8}), 409, code="buffer_exists")
        expect(c.ask("POST", f"{s}/buffers", {"name": "q", "bytes": 65 << 20}), 507, code="quota_exceeded")
        expect(c.ask("POST", f"{s}/buffers/a/fill", {"value": 7}), 400, code="unknown_field")
        expect(c.ask("POST", f"{s}/buffers/k/seal", {}), 200)
        expect(c.ask("POST", f"{s}/buffers/k/fill", {"pattern": 1}), 409, code="sealed")
        expect(c.ask("POST", f"{s}/sync", {}), 204)
        expect(c.ask("DELETE", f"{s}/pools/p"), 409, code="pool_busy")
        for buffer in "aby":
            expect(c.ask("DELETE", f"{s}/buffers/{buffer}"), 204)
        expect(c.ask("DELETE", f"{s}/pools/p"), 204)
        expect(c.ask("DELETE", s), 204)  # with what is left in it
        yield


def uploads(work, how, number):
    """Uploads that resume after a lost connection, parts in any order, and uploads that are given up."""
    rng, c = random.Random(), work.client(how)
    for upload in expect(c.ask("GET", f"{SESSION}/uploads?limit=1000"), 200).json()["items"]:
        if upload["buffer"] == f"u{number}":
            gone(c, f"{SESSION}/uploads/{upload['id']}")
    gone(c, f"{SESSION}/buffers/u{number}")
    c.close()
    while True:
        c, data = work.client(how), payload(rng, rng.choice([1000, 300000, 2 << 20]))
        path, third = f"{SESSION}/buffers/u{number}/data", len(data) // 3
        first = expect(c.ask("PUT", f"{path}?dtype=uint8&shape={len(data)}", data[:third],
                             {"Upload-Complete": "?0", "Upload-Length": str(len(data))}), 201)
        where = first.headers["Location"]
        lost = work.open(how)
        lost.sendall(work.head("PATCH", where, f"Content-Type: {PARTIAL}", f"Upload-Offset: {third}",
                               "Upload-Complete: ?1", f"Content-Length: {len(data) - third}") + data[third:2 * third])
        lost.close()
        done = {"Content-Type": PARTIAL, "Upload-Complete": "?1"}
        while True:  # the lost append may come behind, as its connection was another
            at = int(expect(c.ask("HEAD", where), 204).headers["Upload-Offset"])
            assert third <= at <= 2 * third, at
            reply = expect(c.ask("PATCH", where, data[at:], {**done, "Upload-Offset": str(at)}), 201, 409)
            if reply.status == 201:
                break
            assert at < 2 * third and reply.json()["code"] in ("upload_offset_mismatch",
                                                               "upload_busy"), (at, reply.body)
        assert expect(c.ask("GET", path), 200).body == data
        where = expect(c.ask("POST", f"{SESSION}/uploads", {"buffer": f"u{number}", "bytes": len(data)}),
                       201).headers["Location"]
        expect(c.ask("POST", where + "/complete", {}), 409, code="upload_incomplete")
        data = data[::-1]
        pieces = [(i, data[i:i + 70000]) for i in range(0, len(data), 70000)]
        rng.shuffle(pieces)
        for offset, piece in pieces:
            expect(c.ask("PUT", f"{where}/parts?offset={offset}", piece), 200)
        expect(c.ask("POST", where + "/complete", {"digest": {"sha-256": digest(b"other")}}), 400,
               code="digest_mismatch")
        expect(c.ask("POST", where + "/complete", {"digest": {"sha-256": digest(data)}}), 200)
        assert expect(c.ask("GET", path), 200).body == data
        where = expect(c.ask("POST", f"{SESSION}/uploads", {"buffer": f"u{number}", "bytes": 5 << 20}),
                       201).headers["Location"]
        expect(c.ask("DELETE", where), 204)
        expect(c.ask("DELETE", path[:-5]), 204)
        c.close()
        yield


def listeners(work, how, number):
    """Listeners of the feed that hear of a change, and pages of its log."""
    c, turn = work.client(how), 0
    while True:
        turn += 1
        ear = work.client(how)
        reply = ear.start("GET", "/v1/feed?type=buffer.", None, {"Accept": "text/event-stream"})
        assert reply.status == 200, reply.status
        name = f"l{number}-{turn}"
        expect(c.ask("PUT", f"{SESSION}/buffers/{name}/data", b"1"), 201)
        expect(c.ask("DELETE", f"{SESSION}/buffers/{name}"), 204)
        heard = b""
        while f'"{name}"'.encode() not in heard:
            more = reply.read1(65536)
            assert more, "the feed ended"
            heard = heard[-65536:] + more
        ear.close()
        page = expect(c.ask("GET", "/v1/feed?limit=50", None, {"Accept": "application/json"}), 200).json()
        assert page["items"]
        yield


def readers(work, how, number):
    """What an administrator looks at."""
    c = work.client(how)
    while True:
        for path in ("/v1/audit?status=4xx&limit=50", "/v1/allocations?limit=500", "/v1/leases", "/v1/operations",
                     "/v1/devices", "/v1/devices/0", f"{SESSION}/uploads", f"{SESSION}/pools", f"{SESSION}/streams",
                     "/v1/sessions", "/v1/stats?since=-600", "/openapi.json", "/", f"{SESSION}/stats?since=-60",
                     "/v1/snapshot?limit=500"):
            expect(c.ask("GET", path), 200)
        yield


def mappings(work, how, number):
    """Leases that end in order, with their connection, and beside a replacement; adopted memory; exports."""
    rng, token, c, turn = random.Random(), work.tokens["map"], work.client(how), 0
    data = f"{SESSION}/buffers/mapped{number}/data"
    gone(c, f"{SESSION}/buffers/handle{number}")
    while True:
        turn += 1
        expect(c.ask("PUT", data + "?kind=pinned", b"abcd" * 1000), 200, 201)
        with Local(work.unix, token) as peer:
            answer = expect(peer.map(f"mapped{number}", "soak", mode="read"), 200)
            with Memory(answer) as memory:
                assert memory.bytes() == b"abcd" * 1000
            expect(c.ask("DELETE", data[:-5]), 409, code="mapped")
            if rng.random() < 0.5:
                expect(peer.end(answer.json()["lease"]), 204)
            else:
                expect(c.ask("PUT", data, b"efgh" * 1000), 200)  # beside the mapping
        with Local(work.unix, token) as peer:
            answer = expect(peer.map(f"mapped{number}", "soak", mode="write"), 200)
            with Memory(answer) as memory:
                memory.view[:4] = b"1234"
            expect(peer.end(answer.json()["lease"]), 204)
        assert expect(c.ask("GET", data), 200).body[:4] == b"1234"
        with Owned(100000, payload(rng, 100000)) as memory, Owner(work.unix, work.token) as owner:
            owner.own(f"owned{number}-{turn}", memory, "soak")
            assert expect(c.ask("GET", f"{SESSION}/buffers/owned{number}-{turn}/data"), 200).body == memory.bytes()
        until("what its owner left is lost",
              lambda: c.ask("GET", f"{SESSION}/buffers/owned{number}-{turn}").json()["state"] == "lost")
        expect(c.ask("DELETE", f"{SESSION}/buffers/owned{number}-{turn}"), 204)
        handle = f"{SESSION}/buffers/handle{number}"
        expect(c.ask("PUT", handle + "/data?kind=ipc", b"1" * 5000), 201)
        lease = expect(c.ask("POST", handle + "/export", {"ttl_s": 60}), 200).json()["lease"]
        expect(c.ask("DELETE", handle), 409, code="mapped")
        expect(c.ask("DELETE", f"/v1/leases/{lease}"), 204)
        expect(c.ask("DELETE", handle), 204)
        expect(c.ask("DELETE", data[:-5]), 204)
        yield


def filed(work, how, number):
    """A token of the file, which changes between two rows."""
    c = work.client(how, "none yet", source=f"127.0.1.{number}")
    while True:
        with open(work.tokens_file, encoding="ascii") as f:
            c.token = f.read().split("secret=")[1].split()[0]
        until("the file's token is in force", lambda: c.ask("GET", "/v1").status == 200, every_s=0.3)
        for _ in range(20):
            expect(c.ask("GET", f"{SESSION}/buffers"), 200)
        expect(c.ask("PUT", f"{SESSION}/buffers/filed/data", b"1"), 403, code="forbidden")
        yield
