"""If-Match and If-None-Match on all requests that change a buffer."""
import pytest

from values import payload

ACTIONS = [("POST", "/copy", {"from": "a"}), ("POST", "/fill", {"pattern": 3}), ("POST", "/sync", {"to": "device"}),
           ("POST", "/release", {"side": "device"}), ("POST", "/verify", None), ("PATCH", "", {"labels": {"k": "v"}}),
           ("DELETE", "", None), ("PUT", "/data", payload(4096, 9)), ("PUT", "/data?offset=8", b"12345678"),
           ("PATCH", "/data?offset=8", b"12345678")]


@pytest.fixture
def m(s):
    s.put("a", payload(4096, 1))
    s.put("m", payload(4096, 2), "?mirrored=true")
    return s


@pytest.mark.parametrize("method, path, body", ACTIONS, ids=[f"{a[0]}{a[1]}" for a in ACTIONS])
def test_each(m, method, path, body):
    def ask(**headers):
        return m.ask(method, "buffers/m" + path, body, {k.replace("_", "-"): v for k, v in headers.items()})

    before = m.ask("GET", "buffers/m")
    tag, data = before.headers["ETag"], m.ask("HEAD", "buffers/m/data").headers["ETag"]
    for wrong in ({"If_Match": '"b999.1.00000000"'}, {"If_None_Match": "*"}, {"If_None_Match": f'"x", {tag}'},
                  {"If_None_Match": data}, {"If_Match": "W/" + tag}):
        ask(**wrong).problem(412, "precondition_failed")
        assert m.ask("GET", "buffers/m").body == before.body and m.data("m") == payload(4096, 2)
    ask(If_Match=tag[:-1]).problem(400, "malformed_request")
    assert ask(If_Match=f'"other", {tag}', If_None_Match='"other"').status in (200, 204)


@pytest.mark.parametrize("method, path, body", ACTIONS, ids=[f"{a[0]}{a[1]}" for a in ACTIONS])
def test_where_there_is_none(m, method, path, body):
    assert m.ask(method, "buffers/none" + path, body, {"If-Match": "*"}).status in (404, 412)
    assert m.names("buffers") == ["a", "m"]
    r = m.ask(method, "buffers/none" + path, body, {"If-None-Match": "*"})
    assert r.status == (201 if path in ("/copy", "/data") else 404), r


def test_only_one_makes_it(m):
    """If-None-Match: * on copies and uploads of one name."""
    for target, body in (("buffers/n/copy", {"from": "a"}), ("buffers/o/data", b"x")):
        method = "PUT" if target.endswith("data") else "POST"
        assert [m.ask(method, target, body, {"If-None-Match": "*"}).status for _ in range(3)] == [201, 412, 412]
