"""Who may ask a hub for what: tokens, forged requests, and the options of hubs and of those that know them."""
import collections
import os
import shutil
import subprocess
import tempfile
import threading

import pytest

from etcd_run import token
from gpubuf_cli import environment
from harness import PATIENCE_S, Daemon, binary, until
from hubs import ASK, Hubs, delete, get, put

pytestmark = [pytest.mark.once, pytest.mark.timeout(120)]

NODE = "/gpubuf/main/nodes/"
GRANT_S = 600


class Guarded(Hubs):
    """h is a hub with tokens, and n a node that knows it alone, by a token of its own name. secrets: of all tokens of
    h."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="gbe-hub-")
        self.secrets, h = {}, os.path.join(self.folder, "h")
        os.mkdir(h)
        for name, scope in (("n", "fleet"), ("other", "fleet"), ("n2", "fleet"), ("reader", "read"),
                            ("writer", "write"), ("root", "admin"), ("both", "read,fleet")):
            self.secrets[name] = token(h, "add", name, "--scope", scope)
        with open(os.path.join(self.folder, "secret"), "w") as f:
            f.write(self.secrets["n"] + "\n")
        self.prepared = h
        super().__init__("ahn", hubs="h", members="",
                         options={"n": ["--fleet-token", os.path.join(self.folder, "secret")]})

    def launch(self, name, node=None):
        if name == "h" and self.prepared:
            shutil.copytree(self.prepared, self.states[name], dirs_exist_ok=True)
            self.prepared = None
        if name == "h":
            self.tokens["h"] = self.secrets["root"]
        super().launch(name, node)

    def as_(self, name, op, body, node=None, query=""):
        """As the token of that name; None: as none."""
        return self["h"].ask("POST", ASK.format(op, name if node is None else node) + query, body, None,
                             self.secrets.get(name))

    def end(self):
        super().end()
        shutil.rmtree(self.folder)


@pytest.fixture(scope="module")
def shared():
    fleet = Guarded()
    yield fleet
    fleet.end()


@pytest.fixture
def fleet(shared):
    shared.joined()
    yield shared
    shared.joined()


def test_the_right_token_joins(fleet):
    assert fleet.nodes()["n"]["alive"]
    assert fleet.as_("n", "txn", get("/gpubuf/main/meta")).expect(200).json()["responses"][0]["response_range"]["kvs"]
    fleet.as_("both", "txn", get("/gpubuf/main/meta")).expect(200)
    # The admin's token may ask for all.
    for node in ("n", "a", "none"):
        fleet.as_("root", "txn", get("/gpubuf/main/meta"), node).expect(200)


def test_what_etcd_refuses_is_passed_on(fleet):
    """A record with a lease that is not there; nothing is written."""
    before = fleet.written()
    answer = fleet.as_("n", "txn", put("/gpubuf/main/nodes/n", lease="4242")).expect(404).json()
    assert answer["code"] == 5 and "lease not found" in answer["message"] and fleet.written() == before


def test_other_tokens(fleet):
    body = get("/gpubuf/main/meta")
    for op in ("txn", "grant", "keepalive", "timetolive", "revoke", "wait", "nothing"):
        fleet.as_(None, op, body, "n").problem(401, "unauthenticated")
        for name in ("reader", "writer"):
            fleet.as_(name, op, body).problem(403, "forbidden")
        for name, node in (("other", "n"), ("n2", "n"), ("n", "n2"), ("both", "n"), ("n", "N")):
            problem = fleet.as_(name, op, body, node).problem(403, "forbidden")
            assert f'"{name}"' in problem["detail"] and f'"{node}"' in problem["detail"]
    fleet["h"].ask("POST", ASK.format("txn", "n"), body, None, fleet.secrets["n"][:-1]
                   + "x").problem(401, "unauthenticated")
    # Nor is that scope good for anything else.
    h, secret = fleet["h"], fleet.secrets["n"]
    for method, target, sent in (("GET", "/v1/sessions", None), ("GET", "/v1/fleet", None),
                                 ("GET", "/v1/fleet/nodes", None), ("PUT", "/v1/sessions/default/buffers/x/data", b"x"),
                                 ("POST", "/v1/fleet/nodes/a/drain", {}),
                                 ("POST", "/v1/fleet/copies", {"session": "x"})):
        h.ask(method, target, sent, None, secret).problem(403, "forbidden")


def test_what_is_no_request(fleet):
    for node in ("", "a%20b", "x" * 200, "a/b", "%00"):
        reply = fleet.as_("root", "txn", get("/gpubuf/main/meta"), node)
        assert reply.status == 400, reply
    fleet["h"].ask("POST", "/v1/fleet/directory/txn", {}, None, fleet.secrets["root"]).problem(400, "invalid_argument")
    fleet.as_("n", "txn", {}, query="&more=1").problem(400, "unknown_parameter")
    fleet.as_("n", "nothing", {}).problem(400, "invalid_argument")
    fleet.as_("n", "txn", [1]).problem(400, "invalid_argument")
    fleet["h"].ask("GET", ASK.format("txn", "n"), None, None, fleet.secrets["n"]).expect(405)
    for op in ("txn", "keepalive", "wait"):
        fleet.as_("n", op, "{").expect(400)
        fleet.as_("n", op, b"{}\0").expect(400)


def test_a_node_that_is_no_hub(fleet):
    fleet.ask("a", "POST", ASK.format("txn", "n"), get("/gpubuf/main/meta")).problem(501, "unsupported")


# --- forged requests --------------------------------------------------------------------------------------------------


@pytest.fixture
def victims(fleet):
    """Keys of other fleets and programs, and a lease of another node. None of it changes, nor what a lists."""
    call = fleet.etcd.call
    call("/v3/lease/grant", {"ID": "777", "TTL": GRANT_S})
    for request in (put("/gpubuf/other/meta"), put("/gpubuf/mainX/nodes/n"), put("/registry/secret", "s3cret"),
                    put("/gpubuf/main/ctl/other/1"), put("/gpubuf/main/nodes/other", '{"uuid":"777","urls":{}}'),
                    put("/gpubuf/main/alive/other", "{}", lease="777"), put("/gpubuf/main0")):
        call("/v3/kv/txn", request)
    before = fleet.written()
    yield before
    assert fleet.written() == before
    assert "other" in fleet.etcd.read("alive") and "n" in fleet.etcd.read("alive")
    assert int(call("/v3/lease/timetolive", {"ID": "777"})["TTL"]) > 0
    call("/v3/lease/revoke", {"ID": "777"})
    for key in ("/gpubuf/other/meta", "/gpubuf/mainX/nodes/n", "/registry/secret", "/gpubuf/main/ctl/other/1",
                "/gpubuf/main/nodes/other", "/gpubuf/main0"):
        call("/v3/kv/txn", delete(key))


FORBIDDEN = {
    "another's record": put(NODE + "other"),
    "another's life": put("/gpubuf/main/alive/other"),
    "a name that begins alike": put(NODE + "n2"),
    "the fleet's record": put("/gpubuf/main/meta"),
    "the fleet's record deleted": delete("/gpubuf/main/meta"),
    "another's life deleted": delete("/gpubuf/main/alive/other"),
    "a node deleted that lives": delete(NODE + "other"),
    "another's orders deleted": delete("/gpubuf/main/ctl/other/", "/gpubuf/main/ctl/other0"),
    "all orders deleted": delete("/gpubuf/main/ctl/", "/gpubuf/main/ctl0"),
    "all nodes deleted": delete(NODE, NODE[:-1] + "0"),
    "all of the fleet deleted": delete("/gpubuf/main/a", "/gpubuf/main0"),
    "another fleet": put("/gpubuf/other/meta"),
    "another fleet read": get("/gpubuf/other/meta"),
    "a longer name of a fleet": put("/gpubuf/mainX/nodes/n"),
    "what is behind the fleet": get("/gpubuf/main0"),
    "all there is": get("/gpubuf/main/a", range_end="AA=="),
    "up to another fleet": get("/gpubuf/main/a", range_end="L2dwdWJ1Zi9vdGhlcg=="),
    "a key of others": get("/registry/secret"),
    "one among others": {"success": get("/gpubuf/main/meta")["success"] + put(NODE + "other")["success"]},
    "if a comparison fails": {"compare": [{"key": "L2dwdWJ1Zi9tYWluL21ldGE=", "target": "CREATE", "result": "EQUAL",
                                           "create_revision": "0"}],
                              "success": get("/gpubuf/main/meta")["success"],
                              "failure": put(NODE + "other")["success"]},
    "a comparison with others": {"compare": [{"key": "L3JlZ2lzdHJ5L3NlY3JldA==", "target": "CREATE", "result": "EQUAL",
                                              "create_revision": "0"}]},
}
MALFORMED = {
    "all there is, as etcd spells it too": get("/gpubuf/main/a", rangeEnd="AA=="),
    "all deleted, as etcd spells it too": {"success": [{"request_delete_range": {"key": "L2dwdWJ1Zi9tYWluL2E=",
                                                                                 "rangeEnd": "AA=="}}]},
    "a transaction within": {"success": [{"request_txn": put(NODE + "other")}]},
    "an operation as etcd spells it too":
    {"success": [{"requestPut": put(NODE + "other")["success"][0]["request_put"]}]},
    "two operations in one": {"success": [{**get("/gpubuf/main/meta")["success"][0],
                                           **put(NODE + "other")["success"][0]}]},
    "too many": get(*["/gpubuf/main/meta"] * 129),
}


def test_forged_transactions(fleet, victims):
    for what, body in FORBIDDEN.items():
        reply = fleet.as_("n", "txn", body)
        assert (reply.status, reply.json()["code"]) == (403, "forbidden"), (what, reply)
    for what, body in MALFORMED.items():
        reply = fleet.as_("n", "txn", body)
        assert (reply.status, reply.json()["code"]) == (400, "invalid_argument"), (what, reply)
    # A token that may do everything asks as a node too.
    assert fleet.as_("root", "txn", put("/gpubuf/other/meta"), "n").problem(403, "forbidden")


def test_leases_of_others(fleet, victims):
    a = fleet.etcd.read("nodes")["a"]["uuid"]
    for lease in ("777", a, "4711"):
        for op in ("keepalive", "revoke"):
            fleet.as_("n", op, {"ID": lease}).problem(403, "forbidden")
    # Once the owner has used it at this hub it is known whose it is, and not another's for that.
    fleet.as_("other", "keepalive", {"ID": "777"}).expect(200)
    for op in ("keepalive", "revoke"):
        fleet.as_("n", op, {"ID": "777"}).problem(403, "forbidden")
    fleet.as_("n", "grant", {"ID": "777", "TTL": "30"}).expect(412)
    fleet.as_("n", "keepalive", {"ID": "777"}).problem(403, "forbidden")
    assert fleet.as_("n", "timetolive", {"ID": "777"}).expect(200).json()["ID"] == "777"
    for bad in ({}, {"ID": "0"}, {"ID": "-1"}, {"ID": "x"}, {"ID": "1", "TTL": "1000000000"}, {"ID": "1", "TTL": "0"},
                {"ID": "1"}):
        fleet.as_("n", "grant", bad).problem(400, "invalid_argument")


def test_one_request_that_etcd_refuses_is_not_for_others(fleet):
    """Readings of a moment are sent as one: that of a revision to come is refused, and the others are answered."""
    replies = collections.defaultdict(list)

    def asks(what, body):
        for _ in range(20):
            replies[what].append(fleet.as_("n", "txn", body).status)

    threads = [threading.Thread(target=asks, args=args)
               for args in (("bad", get("/gpubuf/main/meta", revision="999999999")),
                             *[(f"good{i}", get("/gpubuf/main/meta")) for i in range(4)])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(replies.pop("bad")) == {400}
    assert list(replies.values()) == [[200] * 20] * 4


def test_orders_of_others_are_not_told(fleet):
    fleet.etcd.put("ctl/other/1", {"op": "drain"})
    try:
        fleet.as_("n2", "wait", {"wait_ms": 30000}, "other").problem(403, "forbidden")
        told = fleet.as_("other", "wait", {"wait_ms": 30000}).expect(200).json()
        assert len(told["responses"][0]["response_range"]["kvs"]) == 1
        assert "kvs" not in fleet.as_("n2", "wait",
                                      {"wait_ms": 1000}).expect(200).json()["responses"][0]["response_range"]
        for ms in (0, -1, 30001, "x", None):
            fleet.as_("other", "wait", {"wait_ms": ms}).problem(400, "invalid_argument")
    finally:
        fleet.etcd.delete("ctl/other/1")


def test_a_ticket_is_no_token(fleet):
    """Of a redirect for an admin's request, whose rights it has: it is for that request alone."""
    h, root = fleet["h"], fleet.secrets["root"]
    url = fleet["h"].ask("POST", "/v1/fleet/nodes/a/drain", {}, None, root).expect(307).headers["Location"]
    assert url.startswith(fleet.url("a")) and "ticket=" in url
    query = url.partition("?")[2]
    for node in ("n", "a", "root"):
        h.ask("POST", ASK.format("txn", node) + "&" + query, get("/gpubuf/main/meta")).problem(401, "ticket_invalid")
    h.ask("POST", "/v1/fleet/directory/txn?" + query, get("/gpubuf/main/meta")).problem(401, "ticket_invalid")


# --- options ----------------------------------------------------------------------------------------------------------


def refused(folder, *options):
    run = subprocess.run([binary(), "--backend", "host:bytes=64M", "--state-dir", str(folder / "state"), "--listen",
                          "127.0.0.1:0", *options],
                         capture_output=True, text=True, timeout=PATIENCE_S, env=environment())
    assert run.returncode > 0, run
    return run.stderr + run.stdout


def test_options_that_do_not_go_together(tmp_path):
    (tmp_path / "secret").write_text("abc\n")
    hub, etcd = ("--fleet", "http://127.0.0.1:1"), ("--fleet", "etcd:http://127.0.0.1:1")
    assert "--fleet-hub" in refused(tmp_path, *hub, "--fleet-hub")
    assert "--fleet-hub" in refused(tmp_path, "--fleet-hub")
    assert "--fleet-token" in refused(tmp_path, "--fleet-token", str(tmp_path / "secret"))
    assert "--fleet-token is for hubs" in refused(tmp_path, *etcd, "--fleet-token", str(tmp_path / "secret"))
    for advertise in (("none", "http://10.0.0.1:1"), ("http://10.0.0.1:1", "none"), ("none", "x=http://10.0.0.1:1")):
        said = refused(tmp_path, *hub, *[word for a in advertise for word in ("--advertise", a)])
        assert "--advertise" in said, said
    for wrong in ("http://", "http://a b", "127.0.0.1:7070", "etcd:http://127.0.0.1:1,127.0.0.1:2",
                  "http://127.0.0.1:1,etcd:http://127.0.0.1:1", "hub:http://a:1", "http://127.0.0.1:1,", ",",
                  "ftp://a:1", ",".join(f"http://127.0.0.1:{i}" for i in range(1, 10))):
        said = refused(tmp_path, "--fleet", wrong)
        assert "--fleet" in said or "no endpoint" in said, (wrong, said)


@pytest.mark.parametrize("text", [None, "", "\n", "  \n", "two words\n", "a\tb", "x" * 300 + "\n", "\nabc\n"],
                         ids=["missing", "empty", "a line", "blanks", "two words", "a tab", "long", "the second line"])
def test_files_that_have_no_secret(tmp_path, text):
    path = tmp_path / "secret"
    if text is not None:
        path.write_text(text)
    said = refused(tmp_path, "--fleet", "http://127.0.0.1:1", "--fleet-token", str(path))
    assert "--fleet-token" in said and str(path) in said
    if text and text.strip():
        assert text.strip() not in said


@pytest.mark.parametrize("text", ["no token of that hub\n".replace(" ", ""), None], ids=["a wrong one", "none"])
def test_a_node_that_is_not_let_in(fleet, tmp_path, text):
    """It serves alone, and says why."""
    (tmp_path / "secret").write_text(text or "")
    with Daemon("host:bytes=64M", "--fleet", fleet.hub_urls(), "--fleet-node", "x", "--advertise", "none",
                *(["--fleet-token", str(tmp_path / "secret")] if text else [])) as daemon:
        why = until("it knows why", lambda: (f := daemon.get("/v1/fleet"))["state"] == "alone" and "401"
                    in (f["why"] or "") and f["why"])
        assert fleet.hub_urls() in why
        assert daemon.put("x", b"abc").status == 201
