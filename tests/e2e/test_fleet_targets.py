"""The list of targets that a fleet gives Prometheus: of all nodes that are registered, also of those that are away."""
import json
import re
import subprocess
import urllib.parse
import urllib.request

import pytest

from fleet import Fleet
from harness import PATIENCE_S, until
from ports import free_url
from proxies import program

pytestmark = [pytest.mark.once, pytest.mark.timeout(240)]


@pytest.fixture
def fleet():
    fleet = Fleet("abc")
    fleet.joined()
    yield fleet
    fleet.joined()
    fleet.agree()
    fleet.end()


class Prometheus:
    """It asks node a for targets each second, and these for their numbers."""

    def __init__(self, fleet, folder):
        self.url = free_url()
        (folder / "p.yml").write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [
            {"job_name": "fleet", "http_sd_configs": [{"url": fleet["a"].url("/v1/fleet/targets"),
                                                       "refresh_interval": "1s"}]}]}))
        with open(folder / "log", "wb") as log:
            self.process = subprocess.Popen([program("prometheus"), f"--config.file={folder}/p.yml",
                                             f"--storage.tsdb.path={folder}/data", "--web.listen-address="
                                             + self.url.partition("//")[2]], stdout=log, stderr=log)
        self.log = folder / "log"

    def get(self, path, **query):
        assert self.process.poll() is None, self.log.read_text()
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}",
                                        timeout=PATIENCE_S) as r:
                return json.load(r)["data"]
        except OSError:  # it is starting
            return None

    def query(self, expression):
        return {r["metric"].get("node"): float(r["value"][1]) for r in (self.get("query", query=expression)
                                                                        or {"result": []})["result"]}

    def targets(self):
        """The nodes that it has."""
        data = self.get("targets", state="active") or {"activeTargets": []}
        return {t["labels"]["node"] for t in data["activeTargets"]}

    def refusals(self):
        """How often it was refused the list."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=PATIENCE_S) as r:
            return float(re.search(r"^prometheus_sd_http_failures_total (\S+)$", r.read().decode(), re.M).group(1))

    def end(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)


def targets(fleet, name="a"):
    return {t["labels"]["node"]: t["targets"] for t in fleet.ask(name, "GET", "/v1/fleet/targets").expect(200).json()}


def test_prometheus_sees_who_is_away(fleet, tmp_path):
    addresses = {name: [fleet.url(name).partition("//")[2]] for name in "abc"}
    assert targets(fleet) == targets(fleet, "c") == addresses
    assert all(t["labels"]["site"] == t["labels"]["node"] for t in fleet.ask("a", "GET", "/v1/fleet/targets").json())
    prometheus = Prometheus(fleet, tmp_path)
    try:
        until("all are up", lambda: prometheus.query("up") == {"a": 1, "b": 1, "c": 1})
        fleet.kill("c")
        until("one is down", lambda: prometheus.query("up") == {"a": 1, "b": 1, "c": 0})
        until("the fleet knows it", lambda: not fleet.ask("a", "GET", "/v1/fleet/nodes/c").json()["alive"])
        assert targets(fleet) == addresses
        etcd = fleet.etcd.members[0]
        etcd.kill()
        until("they know that they are alone", lambda: fleet.states_are("alone"))
        fleet.ask("a", "GET", "/v1/fleet/targets").problem(503, "directory_unavailable")
        failures = prometheus.refusals()
        until("its list was refused", lambda: prometheus.refusals() > failures)
        assert prometheus.targets() == {"a", "b", "c"}, "no target is dropped while the directory is silent"
        etcd.start()
        fleet.joined()
        until("the lease has run out", lambda: fleet.ask("b", "DELETE", "/v1/fleet/nodes/c").status == 204)
        until("it is gone from the list", lambda: set(targets(fleet)) == {"a", "b"})
        until("Prometheus has let go of it", lambda: prometheus.targets() == {"a", "b"})
    finally:
        prometheus.end()
