"""The daemon's information about itself, and its statistics."""
import json

from harness import SLOT, until
from values import payload


def test_the_root_says_which_backend_and_why(daemon, backend):
    root = daemon.get("/v1")
    assert root["backend"]["name"].split(":")[0] == backend.split(":")[0] and root["backend"]["note"]
    assert root["version"] and root["devices"] >= 1 and "openapi" in json.dumps(root["links"])
    lists = {path for path, of in daemon.get("/openapi.json")["paths"].items() if "get" in of and path.count("/") == 2
             and path[:4] == "/v1/"}
    assert lists <= set(root["links"].values())


def test_openapi_is_served(daemon):
    r = daemon.ask("GET", "/openapi.json").expect(200)
    assert r.headers["Content-Type"].startswith("application/") and r.json()["openapi"].startswith("3.1")
    assert "/v1/sessions/{session}/buffers/{buffer}/data" in r.json()["paths"]


def test_health(daemon):
    assert daemon.get("/livez") == {"status": "ok"}
    assert daemon.get("/readyz") == {"status": "ready"}
    for query in ("?verbose", "?verbose=true"):
        assert all(c["ok"] for c in daemon.get("/readyz" + query)["checks"])


def counters(s):
    t = s["transfers"]
    return [t[way][key] for way in ("upload", "download") for key in ("count", "bytes", "failures")]


def test_statistics_follow_what_was_done(daemon, session):
    daemon.settled()
    one, mine = counters(daemon.stats()), daemon.get(f"/v1/sessions/{session}/stats")
    assert counters(mine) == [0] * 6
    for size in (10, 3 * SLOT):
        daemon.put(f"x{size}", payload(size), session).expect(201)
        daemon.data(f"x{size}", session).expect(200)
    daemon.data("x10", session, headers={"Range": "bytes=2-4"}).expect(206)
    r = daemon.raw().put(f"/v1/sessions/{session}/buffers/z/data?dtype=uint8", 4 * SLOT).send(payload(SLOT))
    until("it runs", lambda: daemon.stats()["running"]["uploads"] == 1)
    r.close()
    stats = daemon.settled()
    change = [10 + 3 * SLOT, 10 + 3 * SLOT + 3]
    assert [b - a for a, b in zip(one, counters(stats))] == [2, change[0], 1, 3, change[1], 0]
    # The memory of what broke off is given back a moment later.
    until("only two buffers hold bytes", lambda: daemon.get(f"/v1/sessions/{session}/stats")["buffers"]["bytes"]
          == change[0])
    mine = daemon.get(f"/v1/sessions/{session}/stats")
    assert counters(mine) == [2, change[0], 1, 3, change[1], 0] and mine["buffers"] == {
        "count": 2, "bytes": change[0], "lost": 0}
    assert mine["allocations"]["count"] >= 2 and stats["transfers"]["upload"]["seconds"] > 0
    assert stats["store"]["failures"] == 0 and stats["buffers"]["bytes"] >= change[0]


def owned(d):
    return [p for p in d.stats()["pools"] if "session" in p]


def test_the_pools_of_sessions_are_among_the_others(start):
    d = start()
    plain = d.stats()
    assert [p["name"] for p in plain["pools"]] == ["default"] and not owned(d) and "pools_omitted" not in plain
    for i, session in enumerate(("a", "b"), 1):
        d.ask("POST", "/v1/sessions", {"name": session}).expect(201)
        d.ask("POST", f"/v1/sessions/{session}/pools", {"name": "p", "max_bytes": 64 << 20}).expect(201)
        d.put("x", bytes(i << 20), session, "?pool=p").expect(201)

    def agree():
        stats = d.stats()
        each = [{**p, "session": s} for s in "ab" for p in d.get(f"/v1/sessions/{s}/pools")["items"] if p["name"] == "p"
                and p.pop("access") == []]
        return [p for p in stats["pools"] if "session" in p] == each and stats["pools"][0]["name"] == "default"
    until("they are as in the lists of their sessions", agree)
    assert [(p["session"], p["name"], p["buffers"], p["used_bytes"] >= i << 20) for i, p in enumerate(owned(d), 1)] == [
        ("a", "p", 1, True), ("b", "p", 1, True)]
    d.ask("DELETE", "/v1/sessions/a/pools/p?force=true").expect(204)
    assert [p["session"] for p in owned(d)] == ["b"]
    d.ask("DELETE", "/v1/sessions/b").expect(204)
    assert owned(d) == [] and len(d.stats()["pools"]) == 1
    d.ask("POST", "/v1/sessions/a/pools", {"name": "p"}).expect(201)  # the session has a buffer again
    assert [p["session"] for p in owned(d)] == ["a"]


def test_the_pools_of_sessions_after_a_restart(start, tmp_path):
    d = start(state=str(tmp_path))
    d.ask("POST", "/v1/sessions/default/pools", {"name": "kept"}).expect(201)
    d.stop()
    assert [(p["session"], p["name"]) for p in owned(start(state=str(tmp_path)))] == [("default", "kept")]


def test_more_pools_than_are_listed_are_counted(start):
    d = start()
    for i in range(5):
        d.ask("POST", "/v1/sessions", {"name": f"s{i}"}).expect(201)
        for k in range(52):
            d.ask("POST", f"/v1/sessions/s{i}/pools", {"name": f"p{k}"}).expect(201)
    stats = d.stats()
    assert stats["pools_omitted"] == 4 and [(p["session"], p["name"]) for p in owned(d)][-2:] == [("s4", "p46"),
                                                                                                  ("s4", "p47")]
    assert len(owned(d)) == 256
    for k in range(4):
        d.ask("DELETE", f"/v1/sessions/s0/pools/p{k}").expect(204)
    assert "pools_omitted" not in d.stats() and owned(d)[-1]["name"] == "p51"


def test_the_tag_of_the_statistics_changes_when_something_changed(daemon, session):
    def tag():
        daemon.settled()
        return daemon.ask("GET", "/v1/stats").headers["ETag"]

    first = until("nothing changes any more", lambda: (lambda a, b: a if a == b else None)(tag(), tag()))
    for _ in range(20):
        daemon.ask("GET", "/v1/stats", None, {"If-None-Match": first}).expect(304)
        daemon.get("/v1/sessions/" + session)
    seen = [first]
    for act in (lambda: daemon.put("x", b"1", session), lambda: daemon.put("x", b"2", session),
                lambda: daemon.data("x", session), lambda: daemon.ask("PATCH", "/v1/sessions/" + session,
                                                                      {"idle_ttl_s": 100}),
                lambda: daemon.ask("DELETE", f"/v1/sessions/{session}/buffers/x")):
        assert act().status < 300
        seen.append(until("the tag changes", lambda: (lambda t: t if t not in seen else None)(tag())))
    assert daemon.ask("GET", "/v1/stats", None, {"If-None-Match": first}).expect(200).json()["sequence"] > 0
    assert len(set(seen)) == 6


def test_statistics_survive_a_restart(start, tmp_path):
    state = str(tmp_path)
    d = start(state=state)
    for i in range(3):
        d.put(f"x{i}", payload(1000)).expect(201)
    before = d.settled()
    d.stop()
    after = start(state=state).stats()
    assert after["transfers"]["upload"]["count"] == before["transfers"]["upload"]["count"] == 3
    assert after["transfers"]["upload"]["bytes"] == 3000
    assert after["buffers"] == {"count": 3, "bytes": 0, "lost": 3, "stored": 0, "mirrored": {"count": 0, "bytes": 0}}
