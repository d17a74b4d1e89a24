"""Sessions, buffers, quotas, lists, labels."""
import pytest

from harness import DATA, SLOT, until
from values import payload

S = "/v1/sessions/"


def create(daemon, session, name, status=201, **fields):
    return daemon.ask("POST", f"{S}{session}/buffers", {"name": name, **fields}).expect(status)


def test_a_fresh_buffer_is_zeros(daemon, session):
    r = create(daemon, session, "x", dtype="float32", shape=[100, 3])
    meta = r.json()
    assert (meta["bytes"], meta["shape"], meta["dtype"], meta["kind"], meta["state"]) == (1200, [100, 3], "float32",
                                                                                          "device", "ready")
    assert r.headers["Location"] == f"{S}{session}/buffers/x" and r.headers["ETag"]
    assert daemon.data("x", session).body == bytes(1200)
    assert daemon.meta("x", session) == meta and meta["device"]["uuid"]
    create(daemon, session, "x", 409, bytes=5)


def test_no_session_sees_bytes_of_another(daemon, session):
    size = 5 * SLOT + 3
    for i in range(6):
        name = f"dirty{i}"
        daemon.put(name, b"\xa5" * size, "default").expect(201)
        daemon.ask("DELETE", f"{S}default/buffers/{name}").expect(204)
        create(daemon, session, f"fresh{i}", bytes=size)
        assert daemon.data(f"fresh{i}", session).body == bytes(size)
        create(daemon, session, f"small{i}", bytes=100)
        assert daemon.data(f"small{i}", session).body == bytes(100)


def test_a_partial_write_leaves_zeros_around_it(daemon, session):
    daemon.put("dirty", b"\xa5" * SLOT * 3, session).expect(201)
    daemon.ask("DELETE", f"{S}{session}/buffers/dirty").expect(204)
    create(daemon, session, "x", bytes=3 * SLOT)
    daemon.put("x", b"hello", session, f"?offset={SLOT}").expect(200)
    assert daemon.data("x", session).body == bytes(SLOT) + b"hello" + bytes(2 * SLOT - 5)


def test_what_is_created_can_be_of_no_bytes(daemon, session):
    create(daemon, session, "x", bytes=0)
    create(daemon, session, "y", dtype="float64", shape=[])
    assert daemon.data("x", session).body == b"" and daemon.data("y", session).body == bytes(8)


@pytest.fixture
def limited(daemon):
    daemon.ask("POST", "/v1/sessions", {"name": "limited", "quota": {"bytes": 1000, "buffers": 3}}).expect(201)
    yield "limited"
    daemon.ask("DELETE", S + "limited").expect(204)


def test_quota_of_bytes(daemon, limited):
    create(daemon, limited, "a", bytes=600)
    p = daemon.ask("POST", f"{S}{limited}/buffers", {"name": "b", "bytes": 401}).problem(507, "quota_exceeded")
    assert (p["limit_bytes"], p["used_bytes"], p["requested_bytes"], p["retryable"]) == (1000, 600, 401, False)
    p = daemon.put("b", payload(401), limited).problem(507, "quota_exceeded")
    assert (p["limit_bytes"], p["used_bytes"], p["requested_bytes"]) == (1000, 600, 401)
    create(daemon, limited, "b", bytes=400)
    daemon.ask("DELETE", f"{S}{limited}/buffers/a").expect(204)
    assert daemon.get(S + limited)["used_bytes"] == 400
    daemon.put("c", payload(600), limited).expect(201)
    daemon.ask("PATCH", S + limited, {"quota": {"bytes": 10}}).expect(200)
    assert daemon.data("c", limited).body == payload(600)
    daemon.put("d", b"x", limited).problem(507, "quota_exceeded")
    daemon.ask("PATCH", S + limited, {"quota": {"bytes": None}}).expect(200)
    daemon.put("d", payload(100000), limited).expect(201)


def test_quota_of_buffers(daemon, limited):
    for name in "abc":
        create(daemon, limited, name, bytes=1)
    daemon.ask("POST", f"{S}{limited}/buffers", {"name": "d", "bytes": 1}).problem(507, "quota_exceeded")
    daemon.put("d", b"x", limited).problem(507, "quota_exceeded")
    daemon.put("a", b"y", limited).expect(200)
    daemon.ask("DELETE", f"{S}{limited}/buffers/b").expect(204)
    daemon.put("d", b"x", limited).expect(201)


def test_quota_is_held_during_an_upload_and_given_back(daemon, limited):
    daemon.ask("PATCH", S + limited, {"quota": {"bytes": 10 * SLOT}}).expect(200)
    r = daemon.raw().put(DATA.format(limited, "x") + "?dtype=uint8", 6 * SLOT)
    r.send(bytes(SLOT))
    until("it counts", lambda: daemon.get(S + limited)["used_bytes"] == 6 * SLOT)
    daemon.put("y", bytes(5 * SLOT), limited).problem(507, "quota_exceeded")
    r.close()
    until("it is given back", lambda: daemon.get(S + limited)["used_bytes"] == 0)
    daemon.put("y", bytes(5 * SLOT), limited).expect(201)
    daemon.settled()


def test_an_idle_session_ends(daemon):
    before = daemon.stats()["sessions"]["expired"]
    for name, ttl in (("brief", 1), ("lasting", 0)):
        daemon.ask("POST", "/v1/sessions", {"name": name, "idle_ttl_s": ttl}).expect(201)
    daemon.put("x", b"abc", "brief").expect(201)
    beat = daemon.ask("POST", S + "brief/heartbeat", {}).expect(200).json()
    assert beat["expires_at"] and beat["idle_ttl_s"] == 1
    assert daemon.ask("POST", S + "lasting/heartbeat").expect(200).json()["expires_at"] is None

    def gone():
        return "brief" not in [s["name"] for s in daemon.get("/v1/sessions?limit=1000")["items"]]

    until("it expires", gone)
    daemon.data("x", "brief").problem(404, "session_not_found")
    until("it is counted", lambda: daemon.stats()["sessions"]["expired"] == before + 1)
    daemon.ask("DELETE", S + "lasting").expect(204)


def test_an_upload_keeps_its_session_alive(daemon):
    daemon.ask("POST", "/v1/sessions", {"name": "busy", "idle_ttl_s": 1}).expect(201)
    daemon.ask("POST", "/v1/sessions", {"name": "clock", "idle_ttl_s": 2}).expect(201)
    r = daemon.raw().put(DATA.format("busy", "x") + "?dtype=uint8", 2 * SLOT).send(bytes(SLOT))
    until("an idle one expires", lambda: daemon.ask("GET", "/v1/sessions?limit=1000").body.find(b'"clock"') < 0)
    assert r.send(bytes(SLOT)).reply().status == 201
    r.close()
    daemon.ask("DELETE", S + "busy").expect(204)


def walk(daemon, target, limit):
    names, cursor = [], ""
    while True:
        page = daemon.get(f"{target}?limit={limit}{cursor}")
        names += [i["name"] for i in page["items"]]
        assert len(page["items"]) <= limit
        if page["next_cursor"] is None:
            return names
        cursor = "&cursor=" + page["next_cursor"]


def test_lists(daemon, session):
    names = [f"b{i}" for i in range(23)]
    for n in names:
        create(daemon, session, n, bytes=1)
    target = f"{S}{session}/buffers"
    for limit in (1, 7, 22, 23, 24, 1000):
        assert walk(daemon, target, limit) == names
    assert [i["name"] for i in daemon.get(target)["items"]] == names
    first = daemon.get(target + "?limit=5")
    for n in names[3:8]:
        daemon.ask("DELETE", f"{target}/{n}").expect(204)
    rest = daemon.get(f"{target}?limit=1000&cursor={first['next_cursor']}")
    assert [i["name"] for i in rest["items"]] == names[8:]
    assert session in walk(daemon, "/v1/sessions", 2)
    assert daemon.get(f"{target}?cursor=9223372036854775807") == {"items": [], "next_cursor": None}


def test_labels_are_merged(daemon, session):
    path = f"{S}{session}/buffers/x"
    create(daemon, session, "x", bytes=12, labels={"a": "1", "b": "2"})
    patched = daemon.ask("PATCH", path, {"labels": {"b": None, "c": "ü"}}).expect(200).json()
    assert patched["labels"] == {"a": "1", "c": "ü"}
    assert daemon.meta("x", session) == patched
    seen = daemon.ask("PATCH", path, {"dtype": "float32", "shape": [3]}).expect(200).json()
    assert (seen["dtype"], seen["shape"], seen["labels"]) == ("float32", [3], {"a": "1", "c": "ü"})
    daemon.put("x", b"other", session).expect(200)
    assert daemon.meta("x", session)["labels"] == {"a": "1", "c": "ü"}
    s = daemon.ask("PATCH", S + session, {"labels": {"owner": "me"}, "idle_ttl_s": 500}).expect(200).json()
    assert (s["labels"], s["idle_ttl_s"]) == ({"owner": "me"}, 500)
    assert daemon.get(S + session) == s


def test_deleting_a_session_frees_all(daemon):
    used = daemon.get(S + "default/pools/default")["used_bytes"]
    daemon.ask("POST", "/v1/sessions", {"name": "full"}).expect(201)
    for i in range(10):
        daemon.put(f"x{i}", payload(100000), "full").expect(201)
    assert daemon.get(S + "full")["buffers"] == 10
    assert daemon.get(S + "default/pools/default")["used_bytes"] > used
    daemon.ask("DELETE", S + "full").expect(204)
    daemon.ask("DELETE", S + "full").problem(404, "session_not_found")
    daemon.put("x", b"1", "full").problem(404, "session_not_found")
    until("the memory is free", lambda: daemon.get(S + "default/pools/default")["used_bytes"] == used)
    daemon.ask("POST", "/v1/sessions", {"name": "full"}).expect(201)
    daemon.data("x0", "full").problem(404, "buffer_not_found")
    daemon.ask("DELETE", S + "full").expect(204)


def test_default_stays(daemon):
    daemon.ask("DELETE", S + "default").problem(409, "session_protected")
    assert daemon.get(S + "default")["name"] == "default"


def test_a_session_deleted_during_an_upload(daemon):
    daemon.ask("POST", "/v1/sessions", {"name": "cut"}).expect(201)
    r = daemon.raw().put(DATA.format("cut", "x") + "?dtype=uint8", 8 * SLOT, expect=True)
    assert r.head()[0] == 100
    r.send(bytes(SLOT))
    daemon.ask("DELETE", S + "cut").expect(204)
    try:
        r.send(bytes(7 * SLOT))
    except OSError:
        pass
    assert r.reply().problem(404, "session_not_found")
    r.close()


def test_streams_pools_and_devices(daemon, session):
    assert [s["name"] for s in daemon.get(f"{S}{session}/streams")["items"]] == ["default"]
    daemon.ask("POST", f"{S}{session}/streams/default/sync").expect(200)
    daemon.put("x", payload(4 * SLOT), session, "?stream=default").expect(201)
    daemon.ask("POST", f"{S}{session}/streams/default/sync", None, {"Prefer": "wait=5"}).expect(200)
    device = daemon.get("/v1/devices/0")
    assert daemon.get("/v1/devices")["items"][0]["uuid"] == device["uuid"]
    assert daemon.get("/v1/devices/" + device["uuid"])["index"] == 0
    assert device["kinds"]["device"]["supported"] is True
    assert all(k["supported"] or k["reason"] for k in device["kinds"].values())
    pool = daemon.get(f"{S}{session}/pools/default")
    assert pool["device"] == {"index": 0, "uuid": device["uuid"]} and pool["reserved_bytes"] >= pool["used_bytes"] > 0
    daemon.ask("DELETE", f"{S}{session}/buffers/x").expect(204)
    kept = daemon.ask("POST", f"{S}{session}/pools/default/trim", {"keep_bytes": 0}).expect(200).json()
    assert kept["reserved_bytes"] >= kept["used_bytes"]
