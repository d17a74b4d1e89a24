"""Compares replies with the OpenAPI document that the daemon serves."""
import json
import re

try:
    import jsonschema_rs
except ImportError:  # then only the statuses are checked
    jsonschema_rs = None

_DOCUMENT = "openapi:/document"


class Interface:
    def __init__(self, document):
        self.document = document
        self.paths = [(re.compile(re.sub(r"{\w+}", "[^/]+", re.escape(p).replace(r"\{", "{").replace(r"\}", "}"))
                                  + "$"), p)
                      for p in document["paths"]]
        self.validators = {}  # by the id of a schema, which the document holds
        if jsonschema_rs:
            self.registry = jsonschema_rs.Registry([(_DOCUMENT, document)])

    def resolve(self, node):
        while "$ref" in node:
            target = self.document
            for part in node["$ref"][2:].split("/"):
                target = target[part]
            node = target
        return node

    def validator(self, schema):
        if id(schema) not in self.validators:
            text = json.dumps(schema).replace('"#/', f'"{_DOCUMENT}#/')
            self.validators[id(schema)] = jsonschema_rs.Draft202012Validator(json.loads(text), registry=self.registry)
        return self.validators[id(schema)]

    def route(self, method, target):
        """The document's path that matches the target and has the method, or None."""
        path = target.split("?")[0]
        found = (p for pattern, p in self.paths if pattern.match(path) and method.lower() in self.document["paths"][p])
        return next(found, None)

    def operation(self, method, target):
        route = self.route(method, target)
        return self.document["paths"][route][method.lower()] if route is not None else None

    def declared(self):
        """{(method, route): {status: (names of headers, media types)}}"""
        out = {}
        for route, item in self.document["paths"].items():
            for method in set(item) & {"get", "head", "post", "put", "patch", "delete"}:
                answers = {int(k): self.resolve(v) for k, v in item[method]["responses"].items()}
                out[method.upper(), route] = {k: ({h.title() for h in v.get("headers", {})}, set(v.get("content", {})))
                                              for k, v in answers.items()}
        return out

    def check(self, method, target, reply):
        """Asserts that the document describes the reply's status, and that the body has the described form."""
        operation = self.operation(method, target)
        if operation is None:
            assert reply.status in (404, 405), f"{method} {target} is not described"
            return
        what = f"{method} {target}: {reply.status}"
        assert str(reply.status) in operation["responses"], f"{what} is not described: {reply.body[:300]!r}"
        content = self.resolve(operation["responses"][str(reply.status)]).get("content", {})
        kind = (reply.headers.get("Content-Type") or "").split(";")[0]
        if not kind.endswith("json") or jsonschema_rs is None:
            return
        assert kind in content, f"{what} as {kind} is not described"
        wrong = next(self.validator(content[kind]["schema"]).iter_errors(reply.json()), None)
        assert wrong is None, f"{what}: {wrong.message} at {wrong.instance_path} in {reply.body[:600]!r}"


_interfaces = {}


def interface(daemon):
    """The interface of this daemon; all daemons of one program have the same document."""
    r = daemon.ask("GET", "/openapi.json")
    if r.body not in _interfaces:
        _interfaces[r.body] = Interface(r.json())
    return _interfaces[r.body]


class Session:
    """A session of a daemon. Paths are relative to it; every reply is compared with the interface. All requests use one
    connection, so that a download has released its buffer when the daemon reads the next request."""

    def __init__(self, daemon, name="default", token=None):
        self.daemon, self.name, self.client = daemon, name, daemon.client(token)
        self.base, self.interface = "/v1/sessions/" + name, interface(daemon)

    def ask(self, method, path, body=None, headers=None):
        target = path if path.startswith("/v1") else self.base + ("/" + path if path else "")
        r = self.client.ask(method, target, body, headers)
        self.interface.check(method, target, r)
        return r

    def get(self, path=""):
        return self.ask("GET", path).expect(200).json()

    def post(self, path, body=None, status=200, headers=None):
        r = self.ask("POST", path, body, headers).expect(status)
        return r.json() if r.body else None

    def patch(self, path, body, status=200):
        return self.ask("PATCH", path, body).expect(status).json()

    def delete(self, path, status=204):
        return self.ask("DELETE", path).expect(status)

    def names(self, what):
        return [x["name"] for x in self.get(what)["items"]]

    def buffer(self, name, **fields):
        return self.post("buffers", {"name": name, **fields}, 201)

    def put(self, name, data, query="", status=None):
        r = self.ask("PUT", f"buffers/{name}/data{query}", data)
        assert r.status in ((200, 201) if status is None else (status,)), r
        return r.json()

    def data(self, name, query=""):
        return self.ask("GET", f"buffers/{name}/data{query}").expect(200).body

    def meta(self, name):
        return self.get("buffers/" + name)

    def attributes(self, name):
        return self.get(f"buffers/{name}?attributes=true")["attributes"]

    def copy(self, name, source, status=200, **fields):
        return self.post(f"buffers/{name}/copy", {"from": source, **fields}, status)

    def fill(self, name, pattern, width=1, status=200, **fields):
        return self.post(f"buffers/{name}/fill", {"pattern": pattern, "width": width, **fields}, status)


def refuse(session, table):
    """Each row: method, path, body, status, code and a word that the detail must contain."""
    for method, path, body, status, code, word in table:
        p = session.ask(method, path, body).problem(status, code)
        assert word in p["detail"], (method, path, body, p["detail"])
