"""Fleets some of whose nodes speak to hubs instead of etcd, and the requests of such a node."""
import base64

from etcd_run import TTL_S
from fleet import Fleet
from harness import Daemon, until
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
    """Nodes of `hubs` are hubs, at ports that they keep. Those of `hidden` and `members` know the hubs alone, and none can reach those of
    `hidden`. The others know etcd alone. known: to some nodes, other hubs than all."""

    def __init__(self, names="ahkmn", hubs="hk", hidden="n", members="m", known=None, **more):
        self.hub_ports = {name: free_port() for name in hubs}
        self.hidden, self.members, self.known = hidden, members, known or {}
        super().__init__(names, **more)

    def hub_urls(self, hubs=None):
        return ",".join(f"http://127.0.0.1:{self.hub_ports[name]}" for name in hubs or self.hub_ports)

    def launch(self, name, node=None):
        by_hubs = name in self.hidden or name in self.members or name in self.known
        options = ["--fleet", self.hub_urls(self.known.get(name)) if by_hubs else "etcd:" + self.etcd.url, "--fleet-node", node or name,
                   "--fleet-label", "site=" + name, "--fleet-ttl", str(TTL_S)]
        more = {}
        if name in self.hidden:
            options += ["--advertise", "none"]
        if name in self.hub_ports:
            options += ["--fleet-hub"]
            more["listen"] = ("--listen", f"127.0.0.1:{self.hub_ports[name]}")
        self.lives[name] += 1
        self.daemons[name] = Daemon("host:bytes=64M", *options, *self.options.get(name, ()), state=self.states[name], wait=False,
                                    env=self.env.get(name), **more)

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
        return {base64.b64decode(kv["key"]).decode(): kv.get("value", "") for kv in answer.get("kvs", []) if b"/alive/" not in base64.b64decode(kv["key"])}

    def ttl(self, name):
        """Seconds that the node's lease has left; -1: it is gone."""
        return int(self.etcd.call("/v3/lease/timetolive", {"ID": self.etcd.read("nodes")[name]["uuid"]})["TTL"])

    def renews(self, name, times=2):
        """Its lease has become longer that often: each time a request of it has reached etcd."""
        for _ in range(times):
            least = TTL_S

            def risen():
                nonlocal least
                now = self.ttl(name)
                assert now >= 0, "the lease is gone"
                least = min(least, now)
                return now > least

            until("the lease is renewed", risen)
