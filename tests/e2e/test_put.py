"""PUT of sessions, pools and streams: made, or confirmed as they are."""
import threading

import pytest

S = "/v1/sessions/"


@pytest.fixture
def gone(daemon):
    """The target of a session that does not exist."""
    yield S + "put"
    daemon.ask("DELETE", S + "put")


def test_a_session_is_made_once_and_confirmed_then(daemon, gone):
    body = {"labels": {"b": "1", "a": "2"}, "quota": {"bytes": 1000, "buffers": None}, "idle_ttl_s": 60, "priority": 3}
    made = daemon.ask("PUT", gone, body).expect(201)
    assert made.headers["Location"] == gone and made.headers["ETag"]
    for same in (body, {**body, "labels": {"a": "2", "b": "1"}, "name": "put"}, {"priority": 3}, {}, None):
        again = daemon.ask("PUT", gone, same).expect(200)
        assert (again.json() == made.json() and again.headers["ETag"] == made.headers["ETag"]
                and "Location" not in again.headers)


def test_what_differs_is_named_and_nothing_is_changed(daemon, gone):
    made = daemon.ask("PUT", gone, {"quota": {"bytes": 1000}, "labels": {"a": "1"}}).expect(201).json()
    for body, names in (({"quota": {"bytes": 1001}}, "quota.bytes"), ({"quota": {"bytes": 1000, "pinned_bytes": 5}},
                                                                      "quota.pinned_bytes"),
                        ({"labels": {}, "priority": 7, "idle_ttl_s": 1}, "labels, idle_ttl_s, priority"),
                        ({"labels": {"a": "2"}}, "labels"), ({"durability": "behind"}, "durability"),
                        ({"spill": "disk"}, "spill")):
        detail = daemon.ask("PUT", gone, body).problem(409, "session_exists")["detail"]
        assert detail.endswith(": " + names) and '"put"' in detail, body
    assert daemon.get(gone) == made
    assert daemon.ask("POST", "/v1/sessions", {"name": "put"}).problem(409, "session_exists")


def test_create_only(daemon, session, gone):
    star = {"If-None-Match": "*"}
    for target in (gone, f"{S}{session}/pools/p", f"{S}{session}/streams/s"):
        daemon.ask("PUT", target, {}, star).expect(201)
        daemon.ask("PUT", target, {}, star).problem(412, "precondition_failed")
        daemon.ask("PUT", target, {}, {"If-None-Match": '"x"'}).problem(400, "invalid_argument")
        daemon.ask("PUT", target, {}, {"If-Match": "*"}).problem(412, "precondition_failed")
        daemon.ask("PUT", target, {}).expect(200)


def test_a_pool(daemon, session):
    target = f"{S}{session}/pools/p"
    body = {"device": 0, "max_bytes": 1 << 26, "release_threshold_bytes": 5, "reuse": {"allow_opportunistic": False},
            "exportable": False}
    made = daemon.ask("PUT", target, body).expect(201)
    assert made.headers["Location"] == target
    for same in (body, {"device": 0}, {"reuse": {"allow_opportunistic": False}}, None):
        found = daemon.ask("PUT", target, same).expect(200).json()
        assert all(found[k] == made.json()[k] for k in ("name", "max_bytes", "release_threshold_bytes", "reuse",
                                                        "created_at"))
    for other, names in (({"max_bytes": None}, "max_bytes"), ({"release_threshold_bytes": None, "exportable": True},
                                                              "exportable, release_threshold_bytes"),
                         ({"reuse": {"allow_opportunistic": True, "follow_event_dependencies": False}},
                          "follow_event_dependencies, allow_opportunistic")):
        assert daemon.ask("PUT", target, other).problem(409, "pool_exists")["detail"].endswith(": " + names)
    daemon.ask("PUT", f"{S}{session}/pools/default").expect(200)
    daemon.ask("PUT", f"{S}{session}/pools/default.77", {}).problem(409, "pool_protected")
    daemon.ask("PUT", f"{S}{session}/pools/q", {"device": 77}).problem(404, "device_not_found")


def test_a_stream(daemon, session):
    target = f"{S}{session}/streams/s"
    made = daemon.ask("PUT", target).expect(201)
    assert made.headers["Location"] == target
    assert daemon.ask("PUT", target, {"name": "s"}).expect(200).json()["created_at"] == made.json()["created_at"]
    daemon.ask("PUT", f"{S}{session}/streams/default").expect(200)


def test_what_is_refused(daemon, session):
    for target in (S + "put", f"{S}{session}/pools/p", f"{S}{session}/streams/s"):
        assert "leave the field out" in daemon.ask("PUT", target,
                                                   {"name": "other"}).problem(400, "invalid_argument")["detail"]
        daemon.ask("PUT", target, {"name": "-"}).problem(400, "invalid_name")
        daemon.ask("PUT", target, {"bytes": 5}).problem(400, "unknown_field")
        daemon.ask("PUT", target.rsplit("/", 1)[0] + "/-", {}).problem(400, "invalid_name")
    daemon.ask("PUT", S + "put", {"quota": {"bytes": -1}}).problem(400, "invalid_argument")
    daemon.ask("PUT", S + "put", {"fleet": True}).problem(501, "unsupported")
    for missing in (S + "none/pools/p", S + "none/streams/s"):
        daemon.ask("PUT", missing, {}).problem(404, "session_not_found")


@pytest.mark.parametrize("what", ("session", "pools/p", "streams/s"))
def test_many_at_once_get_the_same(daemon, gone, what):
    """One of them makes it; the others wait for that, and confirm it."""
    target = gone if what == "session" else f"{gone}/{what}"
    for _ in range(20):
        if what != "session":
            daemon.ask("PUT", gone).expect(201)
        statuses, start = [], threading.Barrier(8)

        def run():
            start.wait()
            statuses.append(daemon.ask("PUT", target, {}).status)

        threads = [threading.Thread(target=run) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert sorted(statuses) == [200] * 7 + [201]
        daemon.ask("DELETE", gone).expect(204)
