"""Fleets some of whose nodes speak to hubs instead of etcd, and the requests of such a node."""
import base64
import time

from etcd_run import TTL_S
from fleet import Fleet
from harness import Daemon
from ports import free_port

ASK = "/v1/fleet/directory/{}?node={}"


def key64(key):
    return base64.b64encode(key if isinstance(key, bytes) else key.encode()).decode()


def get(*keys, **more):
    """The body of a transaction that reads them."""
    return {"success": [{"request_range": {"key": key64(key), **more}} for key in keys]}


def put(key, value="{}", **more):
    return {"success": [{"request_put": {"key": key64(key), "value": key64(value), **more}}]}


def delete(key, end=None):
    return {"success": [{"request_delete_range": {"key": key64(key), **({"range_end": key64(end)} if end else {})}}]}


class Hubs(Fleet):
    """Nodes of `hubs` are hubs, at ports that they keep. Those of `hidden` and `members` know the hubs alone, and none
    can reach those of `hidden`. The others know etcd alone. known: to some nodes, other hubs than all."""

    def __init__(self, names="ahkmn", hubs="hk", hidden="n", members="m", known=None, of_etcd=1, **more):
        self.hub_ports = {name: free_port() for name in hubs}
        self.hidden, self.members, self.known, self.names = hidden, members, known or {}, {}
        super().__init__(names, of_etcd, **more)

    def hub_urls(self, hubs=None):
        return ",".join(f"http://127.0.0.1:{self.hub_ports[name]}" for name in hubs or self.hub_ports)

    def launch(self, name, node=None):
        self.names[name] = node or name
        by_hubs = name in self.hidden or name in self.members or name in self.known
        options = ["--fleet", self.hub_urls(self.known.get(name)) if by_hubs else "etcd:" + self.etcd.url,
                   "--fleet-node", node or name, "--fleet-label", "site=" + name, "--fleet-ttl", str(TTL_S)]
        more = {}
        if name in self.hidden:
            options += ["--advertise", "none"]
        if name in self.hub_ports:
            options += ["--fleet-hub"]
            more["listen"] = ("--listen", f"127.0.0.1:{self.hub_ports[name]}")
        self.lives[name] += 1
        self.daemons[name] = Daemon("host:bytes=64M", *options, *self.options.get(name, ()), state=self.states[name],
                                    wait=False, env=self.env.get(name), program=self.build(name), **more)

    def nodes(self, at="a"):
        return {n["name"]: n for n in self.ask(at, "GET", "/v1/fleet/nodes").expect(200).json()["items"]}

    def follow(self, at, method, target, body=None, headers=None):
        """As curl -L does. Returns the reply and the node that gave it."""
        for _ in range(4):
            reply = self.ask(at, method, target, body, headers)
            if reply.status != 307:
                return reply, at
            url = reply.headers["Location"]
            at = next(n for n in self.living if url.startswith(self.url(n) + "/"))
            target = url[len(self.url(at)):]
        raise AssertionError("it is sent from node to node")

    def written(self):
        """All of etcd but what nodes write about themselves all the time."""
        answer = self.etcd.call("/v3/kv/range", {"key": key64(b"\0"), "range_end": key64(b"\0")})
        return {base64.b64decode(kv["key"]).decode(): kv.get("value", "") for kv in answer.get("kvs", [])
                if b"/alive/" not in base64.b64decode(kv["key"])}

    def stays(self, *names):
        """For longer than a lease lasts that is not renewed, they have theirs and have joined."""
        end = time.monotonic() + TTL_S + 1
        while time.monotonic() < end:
            alive = self.etcd.read("alive")
            for name in names:
                assert (self.names.get(name, name) in alive and self.state(name)
                        == "joined"), (name, self.ask(name, "GET", "/v1/fleet").json())
            time.sleep(0.05)
