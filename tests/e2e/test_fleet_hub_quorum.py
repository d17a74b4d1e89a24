"""An etcd without a majority: what one member of it can answer, nodes have by hubs as well as from etcd itself."""
import pytest

from harness import until
from hubs import Hubs

pytestmark = [pytest.mark.once, pytest.mark.timeout(240)]


@pytest.fixture
def fleet():
    fleet = Hubs("ahm", hubs="h", hidden="", of_etcd=3)
    yield fleet
    fleet.agree()
    fleet.end()


def test_sessions_are_found_and_none_is_made(fleet):
    fleet.joined()
    fleet.make("a", "there")
    etcd = fleet.etcd.members
    for member in etcd[1:]:
        member.kill()
    for at in "hm":
        reply = fleet.ask(at, "GET", "/v1/sessions/there")
        assert (reply.status, reply.headers["Location"].partition("?")[0]) == (307, fleet.url("a")
                                                                               + "/v1/sessions/there"), reply
        assert fleet.ask(at, "POST", "/v1/sessions", {"name": "new",
                                                      "fleet": True}).problem(503, "directory_unavailable")["retryable"]
        assert fleet.ask(at, "GET", "/v1/sessions/none").status == 503  # that it is nowhere, a majority alone can say
    for member in etcd[1:]:
        member.launch()
    until("etcd answers", lambda: all(m.healthy() for m in etcd))
    fleet.joined()
    fleet.make("m", "new")
    until("it is nowhere", lambda: fleet.ask("m", "GET", "/v1/sessions/none").status == 404)
