"""etcd is given old data, and its revision is caught up before any node reads it: no node says that a session is
absent, or makes it, while its owner serves it. And an etcd that is out of space."""
import http.client
import http.server
import shutil
import threading

import pytest

from etcd_run import Saves
from fleet import Fleet, address
from harness import DATA, until
from hubs import Hubs

pytestmark = [pytest.mark.once, pytest.mark.timeout(120)]


@pytest.fixture(params=["direct", "hub"])
def three(request):
    fleet = Fleet("abc") if request.param == "direct" else Hubs("ahbc", hubs="h", hidden="", members="abc")
    fleet.joined()
    yield fleet
    fleet.end()


def save(fleet, folder):
    etcd = fleet.etcd.members[0]
    etcd.kill()
    shutil.copytree(etcd.data, folder)
    etcd.start()
    fleet.joined()


def restore(fleet, folder, times=20):
    """And catches up: as many keys are written as were lost, and more."""
    etcd = fleet.etcd.members[0]
    etcd.kill()
    shutil.rmtree(etcd.data)
    shutil.copytree(folder, etcd.data)
    etcd.start()
    for _ in range(times):
        fleet.etcd.put("of-the-test", {})


@pytest.mark.parametrize("on", ["serve", "stop"])
def test_a_session_that_the_directory_has_lost(three, tmp_path, on):
    fleet = three
    save(fleet, tmp_path / "old")
    fleet.make("a", "s", on_partition=on)
    fleet.ask("a", "PUT", DATA.format("s", "x"), b"first").expect(201)
    until("others know it", lambda: fleet.ask("c", "GET", "/v1/sessions/s").status == 307)
    restore(fleet, tmp_path / "old")
    seen = []

    def told():
        """c makes none, and does not say that it has none, until it knows that a has it."""
        made = fleet.ask("c", "PUT", "/v1/sessions/s", {"fleet": True, "on_partition": on})
        read = fleet.ask("c", "GET", DATA.format("s", "x"))
        seen.extend([made.status, read.status])
        assert made.status in (307, 503) and read.status in (307, 503), (made, read)
        return fleet.records().get("s", {}).get("epoch") == 2 and made.status == 307

    until("a has told that it has the session", told)
    assert fleet.ask("a", "GET", DATA.format("s", "x")).expect(200).headers["Gpubuf-Epoch"] == "2"
    fleet.agree()


def test_a_name_that_none_has_is_free_in_the_end(three, tmp_path):
    fleet = three
    save(fleet, tmp_path / "old")
    restore(fleet, tmp_path / "old")
    refused = fleet.ask("c", "PUT", "/v1/sessions/s", {"fleet": True})
    if refused.status == 503 and refused.json()["code"] == "owner_unknown":
        assert int(refused.headers["Retry-After"]) > 0
    fleet.make("c", "s")
    until("another name is absent", lambda: fleet.ask("b", "GET", "/v1/sessions/t").status == 404)


def test_a_session_that_had_moved(three, tmp_path):
    """The directory names a node that has the session no longer: the one that has it has it still."""
    fleet = three
    fleet.make("a", "s")
    fleet.ask("a", "PUT", DATA.format("s", "x"), b"first").expect(201)
    save(fleet, tmp_path / "old")

    def moved():
        reply = fleet.ask("b", "POST", "/v1/fleet/sessions/s/move", {"to": "b"})
        assert reply.status in (200, 202, 503), reply
        return reply.status < 300 or None

    until("it is on its way", moved)
    until("b has it", lambda: fleet.registered_at("b").get("s") == 2)
    fleet.ask("b", "PUT", DATA.format("s", "x"), b"second").expect(200)
    restore(fleet, tmp_path / "old")

    def told():
        made = fleet.ask("c", "PUT", "/v1/sessions/s", {"fleet": True})
        assert made.status in (307, 503), made
        return fleet.records().get("s", {}).get("node") == "b"

    until("b is its owner again", told)
    assert fleet.ask("b", "GET", DATA.format("s", "x")).expect(200).body == b"second"
    assert fleet.registered_at("b")["s"] > 2
    fleet.agree()


def test_a_node_that_is_started_just_after(tmp_path):
    """It has seen no connection end. The owner has not told yet that it has the session; another node knows that it
    may."""
    fleet = Fleet("abc", relayed="abc")
    try:
        fleet.joined()
        save(fleet, tmp_path / "old")
        fleet.make("a", "s")
        fleet.kill("c")
        fleet.to_etcd["a"].set("cut")
        restore(fleet, tmp_path / "old")
        fleet.to_etcd["b"].set("cut")  # once more: b is in doubt from here on
        fleet.to_etcd["b"].set("pass")
        until("b is in doubt", lambda: "Gpubuf-Directory-Doubt" in fleet.ask("b", "GET", "/livez").expect(200).headers)
        fleet.start("c")

        def refused():
            reply = fleet.ask("c", "GET", DATA.format("s", "x"))
            assert reply.status == 503, reply
            return reply.json()["code"] == "owner_unknown"

        until("c has asked", refused)
        fleet.to_etcd["a"].set("pass")

        def found():
            reply = fleet.ask("c", "GET", DATA.format("s", "x"))
            assert reply.status in (307, 503), reply
            return reply.status == 307

        until("c knows the owner", found)
        fleet.joined()
        fleet.agree()
    finally:
        fleet.end()


class Still(http.server.ThreadingHTTPServer):
    """A proxy before etcd that keeps its clients' connections, and their requests until etcd is there."""

    daemon_threads = True

    class RequestHandlerClass(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = until("etcd answers", lambda: self.server.forward(self.path, body))
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args):
            pass

    def __init__(self, target):
        super().__init__(("127.0.0.1", 0), self.RequestHandlerClass)
        self.mode, self.target, self.url = "pass", target, "http://127.0.0.1:%d" % self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def forward(self, path, body):
        if self.mode == "hold":
            return None
        connection = http.client.HTTPConnection(*self.target)
        try:
            connection.request("POST", path, body)
            reply = connection.getresponse()
            return reply.status, reply.read()
        except OSError:
            return None
        finally:
            connection.close()

    def set(self, mode):
        self.mode = mode

    def close(self):
        self.shutdown()
        self.server_close()


def test_a_restore_behind_a_proxy(tmp_path):
    """No connection ends, and ids, term and revision are what they were. The owner misses what it has written last."""
    fleet = Fleet("ab")
    try:
        etcd = fleet.etcd.members[0]
        for name in "ab":
            fleet.kill(name)
            fleet.to_etcd[name] = Still(address(etcd.url))
            fleet.start(name)
        fleet.joined()
        saves = Saves(etcd, tmp_path)
        saves.save()
        fleet.make("a", "s")
        fleet.ask("a", "PUT", DATA.format("s", "x"), b"first").expect(201)
        before = fleet.etcd.call("/v3/kv/range", {"key": "eA=="})["header"]
        for relay in fleet.to_etcd.values():
            relay.set("hold")
        etcd.kill()
        saves.restore(saves.items[0], "etcd-cluster")
        etcd.start()
        for _ in range(20):
            fleet.etcd.put("of-the-test", {})
        after = fleet.etcd.call("/v3/kv/range", {"key": "eA=="})["header"]
        assert {k: before[k] for k in ("cluster_id", "member_id", "raft_term")} == {
            k: after[k] for k in ("cluster_id", "member_id", "raft_term")}
        assert int(after["revision"]) > int(before["revision"])
        for relay in fleet.to_etcd.values():
            relay.set("pass")
        until("a has told that it has the session", lambda: fleet.records().get("s", {}).get("epoch") == 2)
        assert fleet.ask("a", "GET", DATA.format("s", "x")).expect(200).body == b"first"
        until("b knows the owner", lambda: fleet.ask("b", "GET", DATA.format("s", "x")).status == 307)
        fleet.agree()
    finally:
        fleet.end()


def test_a_directory_out_of_space():
    fleet = Fleet("a")
    try:
        fleet.joined()
        fleet.etcd.call("/v3/maintenance/alarm", {"action": "ACTIVATE", "memberID": "0", "alarm": "NOSPACE"})

        def said():
            state = fleet.ask("a", "GET", "/v1/fleet").expect(200).json()
            return state["state"] == "alone" and "NOSPACE" in state["why"]

        until("it says so", said)
        refused = fleet.ask("a", "POST", "/v1/sessions",
                            {"name": "s", "fleet": True}).problem(503, "directory_unavailable")
        assert "out of space" in refused["detail"]
        fleet.etcd.call("/v3/maintenance/alarm", {"action": "DEACTIVATE", "memberID": "0", "alarm": "NOSPACE"})
        fleet.joined()
        fleet.make("a", "s")
    finally:
        fleet.end()
