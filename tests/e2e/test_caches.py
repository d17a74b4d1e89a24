"""Caches between client and daemon: no answer to a reading request may be given again without asking."""
from conform import interface
from harness import token
from sharing import Local
from test_every import Operation
from test_scopes import S, Things

CHANGES = {"no-cache", "no-store"}


def ways(path):
    """Requests that a path answers in different ways: their headers, and what is added to the query."""
    yield [], ""
    if path.endswith("/buffers/{buffer}/data"):
        for kind in "application/x-npy", "application/vnd.safetensors":
            yield ["Accept: " + kind], ""
        for query in "format=json", "format=text", "offset=1&length=2":
            yield [], query
        yield ["Range: bytes=1-2"], ""
        yield ["Range: bytes=0-0,2-3"], ""
        yield ["Range: bytes=900-"], ""
    if path == "/readyz":
        yield [], "verbose"


def test_every_route_that_reads(start, tmp_path, simulated):
    secret = token(tmp_path, "add", "admin", "--scope", "admin")
    d = start("--idle-timeout", "900", spec=simulated("legacy=fake"), state=str(tmp_path))
    described, things, lacking, statuses = interface(d), Things(d, secret), [], {}
    c = Local(d.unix, secret)
    routes = [path for path, item in described.document["paths"].items() if "get" in item]
    assert len(routes) > 40
    for route in routes:
        things.renew(route, "")
        op = Operation(described, "GET", route)
        names = {**things.names, **({"file": "00001.safetensors"} if "{checkpoint}" in route else {})}

        def ask(method, headers, query):
            target = op.path(query, **names)
            c.send(method, target, None, op.headers + headers)
            reply = c.reply(method)
            statuses.setdefault(route, set()).add(reply.status)
            if reply.headers.get("Cache-Control") not in CHANGES:
                lacking.append(f"{method} {target} {headers}: {reply.status}, {reply.headers.get('Cache-Control')}")
            return reply

        for method in "GET", "HEAD":
            for headers, query in ways(route):
                tag = ask(method, headers, query).headers.get("Etag")
                if tag:
                    ask(method, [*headers, "If-None-Match: " + tag], query)
            ask(method, [], "never=heard")
    c.close()
    assert not lacking, "\n".join(lacking)
    answered = {route for route, seen in statuses.items() if 200 in seen}
    assert {r for r in routes if not r.startswith("/v1/fleet")} == {r for r in answered
                                                                    if not r.startswith("/v1/fleet")}
    assert statuses[S.replace("/q", "/{session}") + "/buffers/{buffer}/data"] >= {200, 206, 304, 416}
