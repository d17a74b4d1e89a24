"""Pools by name: settings, limits, numbers, trimming, deletion, restart."""
import pytest

from conform import Session, refuse
from harness import SLOT, token, until
from values import payload

MIB = 1 << 20
REUSE = {"follow_event_dependencies": True, "allow_opportunistic": True, "allow_internal_dependencies": True}


def settled(s, pool, used=0):
    return until(f"{pool} uses {used} bytes",
                 lambda: (lambda p: p if p["used_bytes"] == used else None)(s.get("pools/" + pool)))


def test_defaults(s):
    r = s.ask("POST", "pools", {"name": "p"}).expect(201)
    made = r.json()
    assert r.headers["Location"] == s.base + "/pools/p"
    assert (made["max_bytes"], made["release_threshold_bytes"], made["reuse"],
            made["exportable"]) == (None, None, REUSE, False)
    assert made["device"]["index"] == 0 and made["device"]["uuid"] and made["state"] == "ready"
    made.pop("note", None)
    assert s.get("pools/p") == made and s.names("pools")[0] == "default" and s.names("pools")[-1] == "p"
    assert Session(s.daemon).names("pools") == s.names("pools")[:-1]  # no other session sees it
    s.delete("pools/p")
    s.ask("GET", "pools/p").problem(404, "pool_not_found")
    s.post("pools", {"name": "p"}, 201)


def test_the_reply_says_what_a_pool_costs(s, backend):
    made = s.post("pools", {"name": "p"}, 201)
    assert made["first_use_bytes"] == (32 * MIB if backend == "cuda" else made["first_use_bytes"])
    assert ("first_use_bytes" in made["note"]) if made["first_use_bytes"] else "note" not in made


def test_what_is_given_and_changed(s):
    uuid = s.get("pools/default")["device"]["uuid"]
    given = {"name": "p", "device": uuid, "max_bytes": 64 * MIB, "release_threshold_bytes": 4096,
             "reuse": {"allow_opportunistic": False}}
    made = s.post("pools", given, 201)
    assert (made["max_bytes"], made["release_threshold_bytes"]) == (64 * MIB, 4096)
    assert made["reuse"] == {**REUSE, "allow_opportunistic": False}
    changed = s.patch("pools/p", {"release_threshold_bytes": None, "reuse": {"follow_event_dependencies": False}})
    assert changed["release_threshold_bytes"] is None and changed["max_bytes"] == 64 * MIB
    assert changed["reuse"] == {**REUSE, "allow_opportunistic": False, "follow_event_dependencies": False}
    assert s.patch("pools/p", {})["reuse"] == changed["reuse"] == s.get("pools/p")["reuse"]
    never = (1 << 64) - 1  # as CUDA has it
    assert s.patch("pools/p", {"release_threshold_bytes": 5})["release_threshold_bytes"] == 5
    assert s.patch("pools/p", {"release_threshold_bytes": never})["release_threshold_bytes"] is None
    assert s.post("pools", {"name": "never", "release_threshold_bytes": never}, 201)["release_threshold_bytes"] is None
    for number in (never - 1, never + 1):
        s.ask("PATCH", "pools/p", {"release_threshold_bytes": number}).problem(400, "invalid_argument")
    refused = s.ask("POST", "pools", {"name": "q", "max_bytes": never}).problem(400, "invalid_argument")
    assert "null" in refused["detail"]
    s.delete("pools/never")
    s.patch("pools/p", {"release_threshold_bytes": 0})
    s.put("x", payload(MIB), "?pool=p")
    s.delete("buffers/x")
    settled(s, "p")


def test_refusals(s):
    s.post("pools", {"name": "p"}, 201)
    fixed = "fixed at its creation"
    refuse(s, [
        ("POST", "pools", {"name": "p"}, 409, "pool_exists", "p"),
        ("POST", "pools", {"name": "default"}, 409, "pool_exists", "default"),
        ("POST", "pools", {}, 400, "invalid_argument", "'name'"),
        ("POST", "pools", {"name": "a/b"}, 400, "invalid_name", "name"),
        ("POST", "pools", {"name": "q", "device": 99}, 404, "device_not_found", "99"),
        ("POST", "pools", {"name": "q", "device": "GPU-none"}, 404, "device_not_found", "GPU-none"),
        ("POST", "pools", {"name": "q", "device": None}, 400, "wrong_type", "UUID"),
        ("POST", "pools", {"name": "q", "device": -1}, 400, "invalid_argument", "negative"),
        ("POST", "pools", {"name": "q", "max_bytes": 0}, 400, "invalid_argument", "null"),
        ("POST", "pools", {"name": "q", "max_bytes": "1G"}, 400, "wrong_type", "whole number"),
        ("POST", "pools", {"name": "q", "reuse": {"always": True}}, 400, "unknown_field", "allow_opportunistic"),
        ("POST", "pools", {"name": "q", "reuse": {"allow_opportunistic": 1}}, 400, "wrong_type", "true or false"),
        ("POST", "pools", {"name": "q", "exportable": "no"}, 400, "wrong_type", "true or false"),
        ("POST", "pools", {"name": "q", "labels": {}}, 400, "unknown_field", "labels"),
        ("PATCH", "pools/p", {"max_bytes": 1}, 400, "invalid_argument", fixed),
        ("PATCH", "pools/p", {"exportable": True}, 400, "invalid_argument", fixed),
        ("PATCH", "pools/p", {"device": 0}, 400, "invalid_argument", fixed),
        ("PATCH", "pools/p", {"name": "q"}, 400, "invalid_argument", fixed),
        ("PATCH", "pools/none", {}, 404, "pool_not_found", "none"),
        ("DELETE", "pools/none", None, 404, "pool_not_found", "none"),
        ("DELETE", "pools/default", None, 409, "pool_protected", "default"),
        ("DELETE", "pools/default?force=true", None, 409, "pool_protected", "default"),
        ("DELETE", "pools/p?force=maybe", None, 400, "invalid_argument", "force"),
        ("DELETE", "pools/p?force=", None, 400, "invalid_argument", "force"),
        ("POST", "pools/none/trim", {}, 404, "pool_not_found", "none"),
        ("POST", "pools/none/reset-peak", None, 404, "pool_not_found", "none"),
        ("POST", "pools/p/access", {}, 400, "invalid_argument", "device"),
        ("POST", "pools/p/access", {"device": 0}, 400, "invalid_argument", "read_write"),
        ("POST", "pools/p/access", {"device": 0, "access": "some"}, 400, "invalid_argument", "read_write"),
        ("POST", "pools/p/access", {"device": 99, "access": "none"}, 404, "device_not_found", "99"),
        ("POST", "buffers", {"name": "x", "bytes": 1, "pool": "none"}, 404, "pool_not_found", "none"),
        ("PUT", "buffers/x/data?pool=none", b"1", 404, "pool_not_found", "none"),
    ])
    Session(s.daemon, "nobody").ask("POST", "pools", {"name": "p"}).problem(404, "session_not_found")
    assert s.names("pools")[-1] == "p" and s.get("buffers")["items"] == []


def test_the_limit_is_hard_and_told(s):
    s.post("pools", {"name": "p", "max_bytes": 64 * MIB}, 201)
    s.buffer("a", bytes=40 * MIB, pool="p")
    p = s.ask("POST", "buffers", {"name": "b", "bytes": 40 * MIB, "pool": "p"}).problem(507, "out_of_memory")
    assert p["requested_bytes"] == 40 * MIB and p["limit_bytes"] == 64 * MIB and p["used_bytes"] >= 40 * MIB
    assert (p["cuda"]["name"] == "cudaErrorMemoryAllocation" and p["cuda"]["call"].startswith("cudaMalloc")
            and p["retryable"])
    assert s.get("pools/p")["failures"] >= 1
    s.buffer("b", bytes=40 * MIB)  # the device has enough memory
    s.delete("buffers/a")
    s.buffer("c", bytes=40 * MIB, pool="p")


def test_a_request_waits_for_memory(s):
    s.post("pools", {"name": "p", "max_bytes": 64 * MIB}, 201)
    s.buffer("a", bytes=40 * MIB, pool="p")
    tried = s.daemon.stats()["allocations"]["retries"]
    raw = s.daemon.raw()
    body = b'{"name":"b","bytes":%d,"pool":"p"}' % (40 * MIB)
    raw.request("POST", s.base + "/buffers", [f"Content-Length: {len(body)}", "Prefer: wait=30"], body)
    until("it has tried", lambda: s.daemon.stats()["allocations"]["retries"] > tried)
    s.delete("buffers/a")
    assert raw.reply().expect(201).json()["pool"] == "p"
    raw.close()


def test_counts_bytes_and_peaks(s):
    s.post("pools", {"name": "p"}, 201)
    assert [s.get("pools/p")[k] for k in ("allocations", "allocated_bytes", "frees", "freed_bytes", "failures",
                                          "buffers")] == [0] * 6
    s.put("x", payload(3 * MIB), "?pool=p")
    s.put("y", payload(MIB), "?pool=p")
    assert s.meta("x")["pool"] == "p"
    p = s.get("pools/p")
    assert (p["allocations"], p["allocated_bytes"], p["frees"], p["buffers"]) == (2, 4 * MIB, 0, 2)
    assert p["reserved_bytes"] >= p["used_bytes"] >= 4 * MIB and p["used_peak_bytes"] >= 4 * MIB
    s.delete("buffers/x")
    p = settled(s, "p", p["used_bytes"] - 3 * MIB)
    assert (p["frees"], p["freed_bytes"], p["buffers"]) == (1, 3 * MIB, 1) and p["used_peak_bytes"] >= 4 * MIB
    p = s.post("pools/p/reset-peak")
    assert p["used_peak_bytes"] == p["used_bytes"] < 4 * MIB and p["reserved_peak_bytes"] == p["reserved_bytes"]


def test_memory_is_kept_until_trimmed(s):
    s.post("pools", {"name": "p"}, 201)
    s.put("x", payload(3 * MIB), "?pool=p")
    s.delete("buffers/x")
    kept = settled(s, "p")["reserved_bytes"]
    assert kept >= 3 * MIB
    t = s.post("pools/p/trim", {"keep_bytes": kept})
    assert t["reserved_before_bytes"] == t["reserved_after_bytes"] == kept and "note" not in t
    t = s.post("pools/p/trim")
    assert (t["reserved_before_bytes"], t["reserved_after_bytes"]) == (kept, 0) and t["reserved_bytes"] == 0


def test_memory_above_the_threshold_goes_by_itself(s):
    s.post("pools", {"name": "p", "release_threshold_bytes": 0}, 201)
    s.put("x", payload(3 * MIB), "?pool=p")
    s.delete("buffers/x")
    until("nothing is reserved", lambda: s.get("pools/p")["reserved_bytes"] == 0)


def test_a_trim_says_why_it_left_something(s):
    s.post("pools", {"name": "p"}, 201)
    s.put("x", payload(100 * MIB), "?pool=p")
    s.delete("buffers/x")
    s.put("small", payload(1000), "?pool=p")
    t = s.post("pools/p/trim")
    assert ("note" in t) == (t["reserved_after_bytes"] > 64 * MIB)


def test_what_can_never_fit_is_refused_at_once(s):
    s.post("pools", {"name": "p", "max_bytes": 64 * MIB}, 201)
    r = s.ask("POST", "buffers", {"name": "x", "bytes": 65 * MIB, "pool": "p"}, headers={"Prefer": "wait=600"})
    assert "67108864" in r.problem(507, "out_of_memory")["detail"]
    s.put("x", b"1", "?pool=p")


def test_an_exportable_pool_gives_back_until_it_was_exported(s):
    assert s.post("pools", {"name": "p", "exportable": True}, 201)["exportable"]
    s.put("x", payload(3 * MIB), "?pool=p")
    s.delete("buffers/x")
    kept = settled(s, "p")["reserved_bytes"]
    t = s.post("pools/p/trim")
    assert t["reserved_before_bytes"] == kept and "note" not in t
    assert (t["reserved_after_bytes"], t["exported"], t["kept_bytes"]) == (0, False, 0)


def test_deletion_with_buffers_in_it(s):
    s.post("pools", {"name": "p"}, 201)
    s.put("x", payload(100), "?pool=p")
    s.put("y", payload(100))
    p = s.ask("DELETE", "pools/p").problem(409, "pool_busy")
    assert "force" in p["detail"]
    assert s.data("x") == payload(100)
    s.delete("pools/p?force=true")
    s.ask("GET", "pools/p").problem(404, "pool_not_found")
    assert s.meta("x")["state"] == "lost" and s.data("y") == payload(100)
    s.ask("GET", "buffers/x/data").problem(410, "content_lost")
    assert s.get()["used_bytes"] == 100
    s.put("x", payload(50))  # its pool is gone: it gets memory from the default pool, as a new buffer would
    assert s.data("x") == payload(50) and (s.meta("x")["state"], s.meta("x")["pool"]) == ("ready", "default")
    s.post("pools", {"name": "p"}, 201)
    s.put("z", payload(70), "?pool=p")
    s.delete("buffers/z")
    s.delete("pools/p")


def test_readers_outlive_their_pool(s):
    body = payload(40 * SLOT)
    s.post("pools", {"name": "p"}, 201)
    s.put("x", body, "?pool=p")
    raw = s.daemon.raw(receive_bytes=4096)
    raw.request("GET", s.base + "/buffers/x/data")
    status, headers = raw.head()
    s.delete("pools/p?force=true")
    s.ask("GET", "buffers/x/data").problem(410, "content_lost")
    assert status == 200 and raw.exactly(int(headers["Content-Length"])) == body
    raw.close()


def test_a_session_takes_its_pools_along(daemon):
    daemon.ask("POST", "/v1/sessions", {"name": "brief"}).expect(201)
    s = Session(daemon, "brief")
    s.post("pools", {"name": "p"}, 201)
    s.put("x", payload(MIB), "?pool=p")
    daemon.ask("DELETE", "/v1/sessions/brief").expect(204)
    daemon.ask("POST", "/v1/sessions", {"name": "brief"}).expect(201)
    assert "p" not in s.names("pools")
    daemon.ask("DELETE", "/v1/sessions/brief").expect(204)


def test_how_many(s):
    for i in range(64):
        s.post("pools", {"name": f"p{i}"}, 201)
    s.ask("POST", "pools", {"name": "more"}).problem(507, "limit_reached")
    assert len(s.names("pools")) == 64 + s.daemon.get("/v1")["devices"]
    page = s.get("pools?limit=40")
    rest = s.get(f"pools?limit=40&cursor={page['next_cursor']}")
    assert [p["name"] for p in page["items"] + rest["items"]] == s.names("pools") and rest["next_cursor"] is None
    s.delete("pools/p7")
    s.post("pools", {"name": "more"}, 201)


def test_pools_survive_a_restart(start, tmp_path):
    state = str(tmp_path)
    d = start(state=state)
    s = Session(d)
    s.post("pools", {"name": "p", "max_bytes": 64 * MIB, "release_threshold_bytes": 5,
                     "reuse": {"allow_opportunistic": False}}, 201)
    s.post("pools", {"name": "gone"}, 201)
    s.patch("pools/p", {"release_threshold_bytes": 9})
    s.delete("pools/gone")
    s.put("x", payload(MIB), "?pool=p")
    d.kill()
    s = Session(start(state=state))
    p = s.get("pools/p")
    assert (p["max_bytes"], p["release_threshold_bytes"], p["state"]) == (64 * MIB, 9, "ready")
    assert p["reuse"] == {**REUSE, "allow_opportunistic": False} and s.names("pools")[-1] == "p"
    until("it is given back", lambda: s.meta("x")["state"] == "lost" and p["used_bytes"] == 0)
    s.put("x", payload(MIB))
    assert s.meta("x")["pool"] == "p" and s.get("pools/p")["used_bytes"] >= MIB
    s.ask("POST", "pools", {"name": "p"}).problem(409, "pool_exists")


def test_a_pool_whose_device_is_missing(start, simulated, tmp_path):
    state = str(tmp_path)
    d = start(state=state, spec=simulated("devices=2"))
    Session(d).post("pools", {"name": "p", "device": 1}, 201)
    d.stop()
    s = Session(start(state=state, spec=simulated("devices=1")))
    assert s.get("pools/p")["state"] == "lost" and "p" in s.names("pools")
    s.ask("POST", "buffers", {"name": "x", "bytes": 1, "pool": "p"}).problem(404, "device_not_found")
    s.ask("POST", "pools/p/trim").problem(404, "device_not_found")
    s.ask("PATCH", "pools/p", {"release_threshold_bytes": 1}).problem(404, "device_not_found")
    s.ask("POST", "pools", {"name": "p"}).problem(409, "pool_exists")
    s.delete("pools/p")
    assert "p" not in s.names("pools")


@pytest.fixture
def guarded(start, tmp_path):

    secrets = {scope: token(tmp_path, "add", scope, "--scope", scope) for scope in ("write", "admin")}
    return start(state=str(tmp_path)), secrets


def test_the_default_pool_is_for_administrators_to_change(guarded):
    d, secrets = guarded
    write, admin = Session(d, token=secrets["write"]), Session(d, token=secrets["admin"])
    write.post("pools", {"name": "p"}, 201)
    write.patch("pools/p", {"release_threshold_bytes": 1})
    write.post("pools/p/reset-peak")
    write.post("pools/default/trim")
    write.ask("PATCH", "pools/default", {"release_threshold_bytes": 1}).problem(403, "forbidden")
    write.ask("POST", "pools/default/reset-peak").problem(403, "forbidden")
    admin.post("pools/default/reset-peak")


def test_a_mirrored_buffer_without_a_device_side_names_no_pool_that_is_gone(s):
    s.post("pools", {"name": "p"}, 201)
    made = s.buffer("m", bytes=9, mirrored=True, pool="p")
    assert made["pool"] == "p"
    s.ask("DELETE", "pools/p?force=true").expect(204)
    now = s.ask("GET", "buffers/m").expect(200)
    assert now.json()["pool"] == "default" and now.json()["state"] == "ready"
    s.post("buffers/m/sync", {"to": "device"})
    assert s.meta("m")["pool"] == "default"
