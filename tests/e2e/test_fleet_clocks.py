"""Nodes whose clocks are an hour apart: leases do not notice, and tickets are good, since each node learns by the
directory how wrong it is."""
import glob
import os
import subprocess

import pytest

from fleet import Fleet
from harness import DATA, PATIENCE_S, metric, until

pytestmark = [pytest.mark.once, pytest.mark.timeout(240)]

HOUR_S = 3600


@pytest.fixture(scope="module")
def fleet():
    """a is an hour ahead, and b an hour behind."""
    library = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    if not library and os.environ.get("GB_E2E_LACKING") == "skip":
        pytest.skip("libfaketime is not installed on this machine")
    assert library, "libfaketime is not installed: ./bootstrap deps"
    fake = {"LD_PRELOAD": library[0], "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    fleet = Fleet(tokens=True, env={"a": {**fake, "FAKETIME": f"+{HOUR_S}s"}, "b": {**fake, "FAKETIME": f"-{HOUR_S}s"}})
    fleet.joined()
    yield fleet
    fleet.joined()
    fleet.agree()
    fleet.end()


def test_each_knows_how_wrong_it_is(fleet):
    assert [round(metric(fleet[node].client(fleet.tokens[node]), "gpubufd_fleet_clock_offset_seconds") / HOUR_S)
            for node in "abc"] == [1, 1, 0]


@pytest.mark.parametrize("asked, owner", ["ab", "ba", "ac", "ca", "bc", "cb"])
def test_redirects_and_tickets_work(fleet, tmp_path, asked, owner):
    session = f"{asked}.to.{owner}"
    fleet.make(owner, session)
    (tmp_path / "x").write_bytes(b"abc")
    run = subprocess.run(["curl", "-sSfL", "--max-time", str(PATIENCE_S), "-T", tmp_path / "x", "-H",
                          f"Authorization: Bearer {fleet.tokens[asked]}", fleet[asked].url(DATA.format(session, "x"))],
                         capture_output=True)
    assert run.returncode == 0, run.stderr
    assert fleet.ask(owner, "GET", DATA.format(session, "x")).expect(200).body == b"abc"
    assert all(n["alive"] for n in fleet.ask(asked, "GET", "/v1/fleet/nodes").expect(200).json()["items"])
    client = fleet[owner].client(fleet.tokens[owner])
    renewed = metric(client, "gpubufd_fleet_renewals_total")
    until("the lease is renewed", lambda: metric(client, "gpubufd_fleet_renewals_total") > renewed)
