"""Exports: a handle with an expiry for processes without a connection; and bytes that may be written without a
lease."""
import base64
import http.server
import json
import os
import resource
import subprocess
import threading

import pytest

from conform import Session
from harness import DATA, SLOT, token, until
from test_every import refuse_changes
from sharing import Local, Memory
from values import crc32c, payload

A, B = payload(SLOT + 5, 1), payload(SLOT + 5, 2)
LEASE = "/v1/leases/"
IPC = "?kind=ipc"


@pytest.fixture
def handing(start, backend):
    """Starts a daemon that can export handles: real ones, or, with simulated devices, ones that cannot be opened."""

    def go(*options, **more):
        fake = backend + ("," if ":" in backend else ":") + "legacy=fake"
        return start(*options, spec=fake if backend.startswith("host") else backend, **more)

    return go


def prepared(d, secret=None):
    """A session over the UNIX socket, with x and y in memory that has a handle."""
    s = Session(d, token=secret)
    s.client = d.client(secret, unix=True)
    if not s.get("/v1/devices/0")["kinds"]["ipc"]["supported"]:
        pytest.skip("this device has no such memory")
    for name, data in ("x", A), ("y", B):
        s.put(name, data, IPC, 201)
    return s


@pytest.fixture
def exporting(handing):
    return lambda *options, **more: prepared(handing(*options, **more))


def registered(body):
    """Triton's reading of a registration's body: handle, device and size. Triton ignores all other fields."""
    handle = base64.b64decode(body["raw_handle"]["b64"], validate=True)
    assert len(handle) == 64, "a cudaIpcMemHandle_t"
    return handle, int(body["device_id"]), int(body["byte_size"])


def export(s, name="x", status=200, **fields):
    return s.ask("POST", f"buffers/{name}/export", fields).expect(status).json()


def gone(s, lease):
    return s.ask("GET", LEASE + lease).status == 404


def test_what_triton_registers(exporting):
    s = exporting()
    given = export(s)
    assert registered(given) == (base64.b64decode(given["raw_handle"]["b64"]), 0, len(A))
    assert (given["mode"], given["offset"], given["kind"], given["buffer"],
            given["session"]) == ("read", 0, "ipc", "x", "default")
    assert given["device"] == s.meta("x")["device"] and given["generation"] == s.meta("x")["generation"]
    assert given["etag"] == s.ask("GET", "buffers/x/data").headers["ETag"]
    again, other = export(s, ttl_s=86400), export(s, "y")
    assert registered(again)[1:] == registered(given)[1:] and again["lease"] != given["lease"]
    assert registered(other)[0] != registered(given)[0]
    bare = s.ask("POST", "buffers/x/export").expect(200).json()  # no body is the same as an empty one
    assert bare["expires_at"] >= given["expires_at"] and again["expires_at"] > bare["expires_at"]
    lease = s.ask("GET", LEASE + given["lease"]).expect(200).json()
    assert lease == {"lease": given["lease"], "session": "default", "buffer": "x", "mode": "read", "way": "legacy",
                     "pid": 0, "uid": os.getuid(), "since": lease["since"], "expires_at": given["expires_at"],
                     "generation": given["generation"], "bytes": len(A), "state": "present"}
    assert lease in s.get("/v1/leases")["items"] and s.meta("x")["leases"] == 3
    for one in given, again, other, bare:
        s.delete(LEASE + one["lease"])
        s.ask("GET", LEASE + one["lease"]).problem(404, "lease_not_found")
        s.ask("DELETE", LEASE + one["lease"]).problem(404, "lease_not_found")
    assert s.meta("x")["leases"] == 0


class Triton(http.server.BaseHTTPRequestHandler):
    """A server that accepts registrations of CUDA shared memory."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.registered.append((self.path, registered(json.loads(body))))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def test_by_two_lines_of_curl(exporting):
    """The answer goes to Triton as it is."""
    s = exporting()
    triton = http.server.HTTPServer(("127.0.0.1", 0), Triton)
    triton.registered = []
    thread = threading.Thread(target=triton.serve_forever)
    thread.start()
    try:
        ours = "http://localhost/v1/sessions/default/buffers/x/export"
        theirs = f"http://127.0.0.1:{triton.server_port}/v2/cudasharedmemory/region/x/register"
        line = (f"curl -sSf --unix-socket '{s.daemon.unix}' -H 'Content-Type: application/json' -d "
                f"'{{\"ttl_s\":3600}}' {ours} | curl -sSf --noproxy '*' --data-binary @- {theirs}")
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    finally:
        triton.shutdown()
        thread.join()
        triton.server_close()
    (path, (handle, device, size)), = triton.registered
    assert path.endswith("/region/x/register") and (device, size) == (0, len(A)) and any(handle)
    lease, = s.get("/v1/leases")["items"]
    s.delete(LEASE + lease["lease"])


def test_exported_bytes_are_kept(exporting):
    """The same fields as those of a mapping."""
    s = exporting()
    given = export(s, ttl_s=3600)
    who = {"lease": given["lease"], "pid": 0, "uid": os.getuid(), "mode": "read"}
    for method, path, body in [("PUT", "buffers/x/data?in_place=true", B),
                               ("POST", "buffers/x/fill", {"pattern": 0, "in_place": True}),
                               ("DELETE", "buffers/x", None)]:
        problem = s.ask(method, path, body).problem(409, "mapped")
        holder, = problem["holders"]
        assert {k: holder[k] for k in who} == who and "exported" in problem["detail"], path
    s.put("x", B, IPC, 200)
    assert s.data("x") == B and s.ask("GET", LEASE + given["lease"]).json()["state"] == "replaced"
    assert s.get("stats")["sharing"]["held_bytes"] == len(A)
    second = export(s)
    assert s.ask("DELETE", "buffers/x?when=unmapped").expect(202).json()["held_bytes"] == len(B)
    assert s.ask("GET", LEASE + second["lease"]).json()["state"] == "deleted"
    for one in given, second:
        s.delete(LEASE + one["lease"])
    assert s.get("stats")["sharing"]["held_bytes"] == 0


def test_its_time_is_over(exporting):
    """An export for reading leaves no trace. After one for writing, importers may still write, so the bytes have no
    checksum."""
    s = exporting()
    read = export(s, ttl_s=1)
    until("its time is over", lambda: gone(s, read["lease"]))
    meta = s.meta("x")
    assert not meta["escaped"] and meta["crc32c"] == crc32c(A) and meta["leases"] == 0
    write = export(s, ttl_s=1, mode="write")
    assert write["mode"] == "write" and write["generation"] == meta["generation"] + 1
    until("its time is over", lambda: gone(s, write["lease"]))
    until("and it has ended", lambda: s.meta("x")["leases"] == 0)
    escaped(s, A)
    assert not s.put("x", B, IPC, 200)["escaped"]
    assert not s.meta("x")["escaped"]
    s.post("buffers/x/seal", {})


def escaped(s, data):
    """The bytes of x have no checksum."""
    meta = s.meta("x")
    assert meta["escaped"] and meta["crc32c"] is None
    first = s.ask("GET", "buffers/x/data")
    assert first.body == data and "Gpubuf-Crc32c" not in first.headers
    tag = first.headers["ETag"]
    again = s.ask("GET", "buffers/x/data", headers={"If-None-Match": tag}).expect(200)
    assert again.headers["ETag"] != tag
    assert s.ask("GET", "buffers/x/data", headers={"If-Range": tag, "Range": "bytes=0-7"}).status == 200
    s.ask("PUT", "buffers/x/data", data, headers={"If-Match": tag}).problem(412, "precondition_failed")
    wanted = s.ask("GET", "buffers/x/data", headers={"Want-Repr-Digest": "sha-256=1"}).expect(200)
    assert wanted.body == data and "Repr-Digest" not in wanted.headers
    assert "upload it whole" in s.ask("POST", "buffers/x/seal", {}).problem(409, "escaped")["detail"]
    verified = s.post("buffers/x/verify")
    assert verified["match"] is None and verified["crc32c"] == crc32c(data) and s.meta("x")["crc32c"] is None


def test_an_end_that_was_asked_for(exporting):
    """A client that may export also ends exports: the daemon cannot check that the importers have closed them."""
    s = exporting()
    given = export(s, mode="write")
    s.delete(LEASE + given["lease"])
    meta = s.meta("x")
    assert not meta["escaped"] and meta["generation"] == given["generation"] + 1
    tag = s.ask("GET", "buffers/x/data").headers["ETag"]
    s.ask("GET", "buffers/x/data", headers={"If-None-Match": tag}).expect(304)
    s.post("buffers/x/seal", {})
    s.ask("POST", "buffers/x/export", {"mode": "write"}).problem(409, "sealed")
    s.delete(LEASE + export(s)["lease"])


def test_what_is_asked(exporting):
    s = exporting("--max-export-ttl", "100")
    for fields, code, word in [({"ttl_s": 0}, "invalid_argument", "100"), ({"ttl_s": 101}, "invalid_argument",
                                                                           "--max-export-ttl"),
                               ({"ttl_s": "5"}, "wrong_type", "ttl_s"), ({"ttl_s": 1.5}, "wrong_type", "ttl_s"),
                               ({"ttl_s": None}, "wrong_type", "ttl_s"), ({"ttl_s": -1}, "invalid_argument", "ttl_s"),
                               ({"mode": "rw"}, "invalid_argument", "read"), ({"mode": 1}, "wrong_type", "mode"),
                               ({"ttl": 5}, "unknown_field", "ttl")]:
        assert word in s.ask("POST", "buffers/x/export", fields).problem(400, code)["detail"], fields
    s.ask("POST", "buffers/none/export", {}).problem(404, "buffer_not_found")
    s.ask("POST", "/v1/sessions/none/buffers/x/export", {}).problem(404, "session_not_found")
    for lease in "0", "-1", "x", "9" * 30, "1":
        s.ask("GET", LEASE + lease).problem(404, "lease_not_found")
    assert s.meta("x")["leases"] == 0
    s.delete(LEASE + export(s)["lease"])  # the default expiry is no longer than the maximum


def test_memory_without_a_handle(daemon, s):
    """The refusal has the reason and an alternative."""
    s.put("x", A, "?kind=pageable", 201)
    s.client = daemon.client(unix=True)
    p = s.ask("POST", "buffers/x/export", {}).problem(501, "unsupported")
    assert "legacy:" in p["detail"] and "POST .../map" in p["detail"]
    assert p["cuda"]["call"] == "cudaIpcGetMemHandle"
    assert s.meta("x")["leases"] == 0


def test_simulated_memory_has_no_handle(daemon, s, backend):
    if not backend.startswith("host"):
        pytest.skip("a GPU has handles")
    s.client = daemon.client(unix=True)
    s.buffer("x", kind="ipc", bytes=4)
    assert "GPU" in s.ask("POST", "buffers/x/export", {}).problem(501, "unsupported")["detail"]


def test_over_tcp(exporting):
    """Over TCP without tokens the caller is unknown."""
    s = exporting()
    tcp = Session(s.daemon)
    assert "UNIX socket" in tcp.ask("POST", "buffers/x/export", {}).problem(403, "map_not_permitted")["detail"]
    given = export(s)
    assert tcp.ask("GET", LEASE + given["lease"]).expect(200).json()["lease"] == given["lease"]
    tcp.ask("DELETE", LEASE + given["lease"]).problem(403, "map_not_permitted")
    s.delete(LEASE + given["lease"])
    everybody = Session(exporting("--map-gids", "any").daemon)
    given = export(everybody)
    assert everybody.ask("GET", LEASE + given["lease"]).json()["uid"] == 4294967295
    everybody.delete(LEASE + given["lease"])


def test_scopes(handing, tmp_path):
    kinds = "read", "write", "map", "map-write", "admin"
    secrets = {k: token(tmp_path, "add", k, "--scope", k) for k in kinds}
    secrets["mine"] = token(tmp_path, "add", "mine", "--scope", "read,map", "--session", "mine")
    d = handing(state=str(tmp_path))
    prepared(d, secrets["admin"])
    d.ask("POST", "/v1/sessions", {"name": "mine"}, token=secrets["write"]).expect(201)
    for target in DATA.format("mine", "x") + IPC, DATA.format("default", "m") + "?kind=pageable":
        d.ask("PUT", target, A, token=secrets["write"]).expect(201)
    path = "/v1/sessions/{}/buffers/x/export"
    table = [("read", 403, 403), ("write", 403, 403), ("map", 200, 403), ("map-write", 200, 200), ("admin", 200, 200),
             ("mine", 403, 403)]
    for scope, *wanted in table:
        got = []
        for mode in "read", "write":
            r = d.ask("POST", path.format("default"), {"mode": mode}, token=secrets[scope])
            got.append(r.status)
            if r.status == 200:
                lease = LEASE + r.json()["lease"]
                seen = {k: d.ask("GET", lease, token=secrets[k]).status for k in secrets}
                assert seen == {"read": 200, "write": 200, "map": 200, "map-write": 200, "admin": 200, "mine": 404}
                for k, status in ("read", 403), ("write", 403), ("mine", 404):
                    assert d.ask("DELETE", lease, token=secrets[k]).status == status, k
                assert d.ask("DELETE", lease, token=secrets["map"]).status == (204 if mode == "read" else 403)
                if mode == "write":
                    assert d.ask("DELETE", lease, token=secrets["map-write"]).status == 204
        assert got == wanted, scope
    mine = d.ask("POST", path.format("mine"), {}, token=secrets["mine"]).expect(200).json()
    assert d.ask("DELETE", LEASE + mine["lease"], token=secrets["mine"]).status == 204
    d.ask("POST", path.format("default"), {}).problem(401, "unauthenticated")
    assert d.ask("GET", LEASE + "1", token=secrets["map"]).status == 403, ("a lease that the token may not see is "
                                                                           "forbidden, whether it exists or not")
    with Local(d.unix, secrets["map"]) as c:  # the scope map does not permit to see the mapping of another process
        answer = c.map("m")
        os.close(answer.fds[0])
        lease = LEASE + answer.json()["lease"]
        assert c.ask("GET", lease).json()["state"] == "present"
        assert ({k: d.ask("GET", lease, token=secrets[k]).status for k in ("read", "map-write", "mine")}
                == {"read": 200, "map-write": 403, "mine": 404})


def test_while_it_is_written_in_place(exporting):
    s = exporting()
    with s.daemon.raw() as w:
        w.put(DATA.format("default", "x") + "?in_place=true", len(A)).send(A[:100])
        until("it is being written", lambda: s.daemon.stats()["running"]["uploads"] == 1)
        busy = s.ask("POST", "buffers/x/export", {})
        busy.problem(409, "buffer_busy")
        assert int(busy.headers["Retry-After"]) >= 1
    s.daemon.settled()
    assert s.meta("x")["leases"] == 0


def test_limits(exporting):
    s = exporting("--max-leases", "1")
    given = export(s)
    s.ask("POST", "buffers/x/export", {}).problem(507, "limit_reached")
    s.delete(LEASE + given["lease"])
    s.delete(LEASE + export(s)["lease"])


def test_a_full_disk(exporting):
    """An export for writing is a change: it is granted after the commit."""
    s = exporting(restore_signals=False)
    writer, reader = export(s, mode="write"), export(s, "y")
    resource.prlimit(s.daemon.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    s.ask("POST", "buffers/x/export", {"mode": "write"}).problem(507, "storage_full")
    s.delete(LEASE + reader["lease"])
    s.ask("DELETE", LEASE + writer["lease"]).problem(507, "storage_full")
    resource.prlimit(s.daemon.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    assert s.get("/v1/leases")["items"] == []
    s.delete(LEASE + export(s, mode="write")["lease"])


def test_a_database_that_refuses(exporting):
    s = exporting()
    writer = export(s, mode="write")
    refuse_changes(s.daemon)
    s.ask("POST", "buffers/y/export", {"mode": "write"}).problem(500, "store_failed")
    s.ask("DELETE", LEASE + writer["lease"]).problem(500, "store_failed")


def test_after_a_restart(handing, tmp_path):
    """After a restart memory and exports are gone, and no lease number is reused."""
    s = prepared(handing(state=str(tmp_path)))
    before = export(s, ttl_s=3600)
    s.daemon.stop()
    d = handing(state=str(tmp_path))
    s = Session(d)
    s.client = d.client(unix=True)
    s.ask("GET", LEASE + before["lease"]).problem(404, "lease_not_found")
    s.ask("DELETE", LEASE + before["lease"]).problem(404, "lease_not_found")
    s.ask("POST", "buffers/x/export", {}).problem(410, "content_lost")
    s.put("x", A, IPC, 200)
    after = export(s)
    assert int(after["lease"]) > int(before["lease"])
    s.delete(LEASE + after["lease"])


def test_ended_from_outside(daemon, s, session):
    """A mapping for writing that an administrator ends: its process can still write, so the content is tainted."""
    s.put("x", A, "?kind=pageable", 201)
    with Local(daemon.unix) as c, Memory(c.map("x", session, mode="write")) as m:
        assert s.ask("GET", LEASE + m.info["lease"]).json()["state"] == "present"
        s.delete(LEASE + m.info["lease"])
        s.ask("GET", LEASE + m.info["lease"]).problem(404, "lease_not_found")
        assert s.meta("x")["leases"] == 0
        escaped(s, A)
        m.view[:3] = b"abc"
        escaped(s, b"abc" + A[3:])
        s.put("x", A, "?in_place=true", 200)  # into the same memory
        escaped(s, A)
        s.put("x", B, "?kind=pageable", 200)
        m.view[:3] = b"abc"
        meta = s.meta("x")
        assert s.data("x") == B and not meta["escaped"] and meta["crc32c"] == crc32c(B)
        tag = s.ask("GET", "buffers/x/data").headers["ETag"]
        s.ask("GET", "buffers/x/data", headers={"If-None-Match": tag}).expect(304)
        assert s.post("buffers/x/seal", {})["sealed"]


def test_ended_by_itself(daemon, s, session):
    """The end of a connection, and the end of a mapping for reading, exclude later writes."""
    s.put("x", A, "?kind=pageable", 201)
    with Local(daemon.unix) as c:
        for mode in "write", "read":
            with Memory(c.map("x", session, mode=mode)) as m:
                lease = m.info["lease"]
            assert c.end(lease).status == 204 if mode == "write" else s.delete(LEASE + lease)
            assert not s.meta("x")["escaped"]
        os.close(c.map("x", session, mode="write").fds[0])
    until("the lease has ended", lambda: s.meta("x")["leases"] == 0)
    assert not s.meta("x")["escaped"] and s.post("buffers/x/seal", {})["sealed"]
