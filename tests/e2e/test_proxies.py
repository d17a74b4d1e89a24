"""Daemon and proxies agree on the end of each request, for any bytes of a client: directly over TCP and the UNIX
socket, through nginx, and through HAProxy."""
import pytest

from framing_table import CUT_EVERYWHERE, ROUTES, table
from harness import until
from proxies import program
from seam import DIRECT, PROXIED, Seam, at_random

pytestmark = pytest.mark.once
TABLE = table()
SHOWN = 40


@pytest.fixture(scope="module")
def seam(tmp_path_factory):
    for name in ("nginx", "haproxy"):
        program(name)
    s = Seam(str(tmp_path_factory.mktemp("seam")))
    yield s
    s.stop()


def none_is_wrong(seam, done):
    """Faults that differ only in the route and in names share one line."""
    seam.stored(done)
    wrong = {}
    for x in done:
        for fault in x.faults:
            text = fault.replace(x.tag, "...").replace(x.upload or x.tag, "...")
            wrong.setdefault((x.case.group, x.case.name, text), []).append(x.case.route)
    shown = [f"{group}, {name} ({', '.join(sorted(set(routes)))}): {text}" for (group, name, text),
             routes in wrong.items()]
    if shown:
        pytest.fail(f"{sum(map(len, wrong.values()))} of {len(done)}, {len(shown)} kinds:\n" + "\n".join(shown[:SHOWN]),
                    pytrace=False)


@pytest.mark.parametrize("road", [*DIRECT, *PROXIED])
def test_what_is_well_formed_is_served_with_what_is_behind_it(seam, road):
    """Without this property the other tests could not fail."""
    plain = [c for group in TABLE.values() for c in group if c.name == "plain" and ROUTES[c.route].takes]
    for case in plain:
        x = seam.direct(case, road) if road in DIRECT else seam.proxied(case, road)
        told = road in DIRECT and b"chunked" in case.data and b"\r\nConnection: close\r\n" in x.got
        assert b"canary-" + x.tag.encode() in x.got or told, (case.group, case.route, x.got)


@pytest.mark.parametrize("group", TABLE)
@pytest.mark.parametrize("road", DIRECT)
def test_directly(seam, road, group):
    whole = road == "tcp"
    jobs = [(c, road, [] if (n % 2 == 0) == whole else at_random(n, c.data)) for n, c in enumerate(TABLE[group])]
    none_is_wrong(seam, seam.all_direct(jobs))


@pytest.mark.parametrize("road", DIRECT)
@pytest.mark.parametrize("which", CUT_EVERYWHERE, ids=["-".join(w).replace(" ", "_") for w in CUT_EVERYWHERE])
def test_cut_at_every_byte(seam, road, which):
    case = next(c for c in TABLE[which[0]] if c[:3] == which)
    size = len(case.data)
    none_is_wrong(seam, seam.all_direct([(case, road, at) for at in [[n] for n in range(1, size)] + [range(1, size)]]))


@pytest.mark.parametrize("group", TABLE)
@pytest.mark.parametrize("road", PROXIED)
def test_through_a_proxy(seam, road, group):
    jobs = [(c, [] if n % 2 else at_random(n, c.data)) for n, c in enumerate(TABLE[group])]
    none_is_wrong(seam, seam.all_proxied(road, jobs))


def test_nothing_is_left_of_it(seam):
    """The daemon's descriptors are those of the beginning, except for connections that proxies and the test keep."""
    kept = 2 * len(seam.proxies) + len(seam.clients)
    until("the connections of clients that have gone are closed", lambda: seam.open_descriptors() <= seam.descriptors
          + kept, 15)
