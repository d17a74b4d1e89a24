"""Tenants: sessions of a fleet whose quotas together have a limit."""
import threading

import pytest

from fleet import Fleet, fleet, session  # noqa: F401
from gpubuf_cli import Cli
from harness import until

pytestmark = [pytest.mark.once, pytest.mark.timeout(120)]

MB = 1 << 20


@pytest.fixture(scope="module")
def shared():
    fleet = Fleet("abc")
    yield fleet
    fleet.end()


def limit(fleet, tenant, bytes, at="a"):
    return fleet.ask(at, "PUT", "/v1/fleet/tenants/" + tenant, {"limit_bytes": bytes}).expect(200).json()


def look(fleet, tenant, at="b"):
    return fleet.ask(at, "GET", "/v1/fleet/tenants/" + tenant).expect(200).json()


def make(fleet, at, name, tenant, bytes):
    return fleet.ask(at, "POST", "/v1/sessions", {"name": name, "fleet": True, "tenant": tenant,
                                                  "quota": {"bytes": bytes}})


def test_the_limit_is_of_all_together(fleet, session):  # noqa: F811
    t = session
    assert limit(fleet, t, 10 * MB) == {"name": t, "limit_bytes": 10 * MB, "used_bytes": 0, "sessions": 0}
    made = make(fleet, "a", session + ".1", t, 4 * MB).expect(201).json()
    assert made["fleet"]["tenant"] == t
    make(fleet, "b", session + ".2", t, 6 * MB).expect(201)
    assert look(fleet, t) == {"name": t, "limit_bytes": 10 * MB, "used_bytes": 10 * MB, "sessions": 2}
    problem = make(fleet, "c", session + ".3", t, 1).problem(507, "tenant_quota_exceeded")
    assert str(10 * MB) in problem["detail"]
    assert session + ".3" not in fleet.etcd.read("sessions")
    # Placed ones count as well.
    fleet.ask("c", "POST", "/v1/fleet/sessions", {"name": session + ".3", "tenant": t,
                                                  "quota": {"bytes": 1}}).problem(507, "tenant_quota_exceeded")
    fleet.ask("b", "DELETE", f"/v1/sessions/{session}.2").expect(204)
    until("its share is free", lambda: look(fleet, t)["used_bytes"] == 4 * MB)
    placed = fleet.ask("c", "POST", "/v1/fleet/sessions", {"name": session + ".3", "tenant": t,
                                                           "quota": {"bytes": 6 * MB}}).expect(201).json()
    assert [item["tenant"] for item in fleet.ask("a", "GET", "/v1/fleet/sessions").json()["items"]
            if item["name"] == session + ".3"] == [t]
    assert look(fleet, t)["sessions"] == 2
    assert look(fleet, t) in fleet.ask("c", "GET", "/v1/fleet/tenants").expect(200).json()["items"]
    # A move takes nothing of it.
    to = next(n for n in "abc" if n != placed["node"])
    fleet.ask(to, "POST", f"/v1/fleet/sessions/{session}.3/move", {"to": to}).expect(200)
    assert look(fleet, t)["used_bytes"] == 10 * MB
    assert fleet.ask(to, "GET", f"/v1/sessions/{session}.3").json()["fleet"]["tenant"] == t
    for at, name in (("a", ".1"), (to, ".3")):
        fleet.ask(at, "DELETE", "/v1/sessions/" + session + name).expect(204)
    until("all is free", lambda: look(fleet, t)["sessions"] == 0)
    fleet.ask("a", "DELETE", "/v1/fleet/tenants/" + t).expect(204)
    fleet.ask("a", "GET", "/v1/fleet/tenants/" + t).problem(404, "tenant_not_found")


def test_a_quota_that_is_changed(fleet, session):  # noqa: F811
    limit(fleet, session, 10 * MB)
    make(fleet, "a", session, session, 4 * MB).expect(201)
    S = "/v1/sessions/" + session
    fleet.ask("a", "PATCH", S, {"quota": {"bytes": 10 * MB}, "labels": {"k": "v"}}).expect(200)
    assert look(fleet, session)["used_bytes"] == 10 * MB
    fleet.ask("a", "PATCH", S, {"quota": {"bytes": 11 * MB}}).problem(507, "tenant_quota_exceeded")
    for more, headers, status in (({}, {"If-Match": '"s0.0"'}, 412), ({"labels": 1}, {}, 400), ({"no": 1}, {}, 400)):
        limit(fleet, session, 12 * MB)
        fleet.ask("a", "PATCH", S, {"quota": {"bytes": 11 * MB}, **more}, headers).expect(status)
        assert look(fleet, session)["used_bytes"] == 10 * MB  # the directory was not asked
    now = fleet.ask("a", "GET", S).json()
    assert now["quota"]["bytes"] == 10 * MB and now["labels"] == {"k": "v"}
    fleet.ask("a", "PATCH", S, {"quota": {"bytes": None}}).problem(400, "invalid_argument")
    fleet.ask("a", "PATCH", S, {"quota": {"bytes": 3 * MB}}).expect(200)
    until("the rest is free", lambda: look(fleet, session)["used_bytes"] == 3 * MB)
    limit(fleet, session, 2 * MB)  # what there is stays
    fleet.ask("a", "PATCH", S, {"quota": {"bytes": 4 * MB}}).problem(507, "tenant_quota_exceeded")
    limit(fleet, session, None)
    fleet.ask("a", "PATCH", S, {"quota": {"bytes": 400 * MB}}).expect(200)
    fleet.ask("a", "DELETE", "/v1/fleet/tenants/" + session).expect(204)
    fleet.ask("a", "PATCH", S, {"quota": {"bytes": 500 * MB}}).problem(404, "tenant_not_found")
    fleet.ask("a", "DELETE", S).expect(204)


def test_what_is_refused(fleet, session):  # noqa: F811
    make(fleet, "a", session, "nobody", MB).problem(404, "tenant_not_found")
    fleet.ask("a", "PUT", f"/v1/sessions/{session}", {"fleet": True,
                                                      "tenant": "nobody"}).problem(404, "tenant_not_found")
    fleet.ask("a", "POST", "/v1/fleet/sessions", {"name": session, "tenant": "nobody",
                                                  "quota": {"bytes": MB}}).problem(404, "tenant_not_found")
    limit(fleet, session, MB)
    fleet.ask("a", "POST", "/v1/sessions", {"name": session, "fleet": True,
                                            "tenant": session}).problem(507, "tenant_quota_exceeded")
    for body in ({"tenant": session, "quota": {"bytes": 1}}, {"fleet": True, "tenant": "a b", "quota": {"bytes": 1}}):
        reply = fleet.ask("a", "POST", "/v1/sessions", {"name": session, **body})
        assert reply.status == 400, reply
    fleet.ask("a", "PUT", "/v1/fleet/tenants/" + session, {"limit_bytes": -1}).expect(400)
    fleet.ask("a", "PUT", "/v1/fleet/tenants/" + session, {"limit": 1}).expect(400)
    fleet.ask("a", "DELETE", "/v1/fleet/tenants/" + session).expect(204)


def test_a_race_for_what_is_left(fleet, session):  # noqa: F811
    """Of eighteen that want a tenth each, ten get it."""
    limit(fleet, session, 10 * MB)
    replies = {}

    def one(i):
        reply = make(fleet, "abc"[i % 3], f"{session}.{i}", session, MB)
        # the record changes all the time
        while reply.status == 503 and reply.json()["code"] == "directory_unavailable":
            reply = make(fleet, "abc"[i % 3], f"{session}.{i}", session, MB)
        replies[i] = reply

    threads = [threading.Thread(target=one, args=(i,)) for i in range(18)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statuses = sorted(reply.status for reply in replies.values())
    assert statuses == [201] * 10 + [507] * 8, statuses
    assert look(fleet, session) == {"name": session, "limit_bytes": 10 * MB, "used_bytes": 10 * MB, "sessions": 10}
    for i, reply in replies.items():
        if reply.status == 201:
            fleet.ask("abc"[i % 3], "DELETE", f"/v1/sessions/{session}.{i}").expect(204)
    until("all is free", lambda: look(fleet, session)["sessions"] == 0)


def test_a_node_that_is_forgotten_and_a_session_that_is_taken(session):
    fleet = Fleet("abc")
    try:
        fleet.joined()
        limit(fleet, session, 10 * MB)
        make(fleet, "b", session + ".taken", session, 4 * MB).expect(201)
        make(fleet, "b", session + ".gone", session, 4 * MB).expect(201)
        fleet.kill("b")
        until("its lease has run out", lambda: "b" not in fleet.etcd.read("alive"))
        taken = fleet.ask("a", "POST", f"/v1/fleet/sessions/{session}.taken/take", {"force": True}).expect(201).json()
        assert taken["fleet"]["tenant"] == session and look(fleet, session, "a")["used_bytes"] == 8 * MB
        fleet.ask("a", "DELETE", "/v1/fleet/nodes/b").expect(204)
        assert look(fleet, session, "a") == {"name": session, "limit_bytes": 10 * MB, "used_bytes": 4 * MB,
                                             "sessions": 1}
        fleet.ask("a", "DELETE", f"/v1/sessions/{session}.taken").expect(204)
        until("all is free", lambda: look(fleet, session, "a")["sessions"] == 0)
    finally:
        fleet.end()


def test_the_command_line(fleet, session):  # noqa: F811
    cli = Cli(fleet.url("a"))
    assert "10.0 MiB" in cli("fleet", "tenant", session, "--max-bytes", "10M").expect().out
    cli("sessions", "add", session, "--fleet", "--tenant", session, "--max-bytes", "4M").expect()
    assert "4.0 MiB" in cli("fleet", "tenant", session).expect().out
    assert session in cli("fleet", "tenants").expect().out
    cli("sessions", "rm", session).expect()
    cli("fleet", "tenant-rm", session).expect()
