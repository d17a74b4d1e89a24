"""A wall clock that is set, or wrong at a start, makes nothing old: what is kept for a time is kept for as long as a
daemon sees pass."""
import glob
import os

import pytest

from harness import token, until

pytestmark = [pytest.mark.once, pytest.mark.timeout(240)]

YEARS = "+12y"


class Clock:
    """The wall clock of daemons; their monotonic one is the machine's."""

    def __init__(self, path):
        library = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
        if not library and os.environ.get("GB_E2E_LACKING") == "skip":
            pytest.skip("libfaketime is not installed on this machine")
        assert library, "libfaketime is not installed: ./bootstrap deps"
        self.path = str(path)
        self.env = {"LD_PRELOAD": library[0], "FAKETIME_TIMESTAMP_FILE": self.path, "FAKETIME_NO_CACHE": "1",
                    "FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}
        self.set("+0")

    def set(self, offset):
        with open(self.path + ".new", "w") as f:
            f.write(offset + "\n")
        os.rename(self.path + ".new", self.path)


@pytest.fixture
def clock(tmp_path):
    os.mkdir(tmp_path / "state")
    return Clock(tmp_path / "state" / "clock")


def audited(d):
    return d.ask("GET", "/v1/audit?limit=1000").expect(200).json()["items"]


def keyed(d):
    return d.ask("POST", "/v1/sessions", {"name": "k"}, {"Idempotency-Key": "of-before"})


def test_a_start_twelve_years_ahead(start, tmp_path, clock):
    state = str(tmp_path / "state")
    go = lambda: start("--audit", "changes", state=state, env=clock.env)  # noqa: E731
    d = go()
    for i in range(10):
        d.put(f"b{i}", b"x").expect(201)
    keyed(d).expect(201)
    before = until("all are in the audit", lambda: (found := audited(d))[11:] and found)
    d.stop()
    assert "the clock says" not in d.last_log
    clock.set(YEARS)
    d = go()
    until("its start is in the audit", lambda: audited(d)[0]["at"] > "2037" and audited(d))
    until("the log says so, once", lambda: d.log().count("the clock says") == 1)
    assert keyed(d).expect(201).headers["Idempotency-Replayed"] == "true"
    d.stop()
    clock.set("+0")
    d = go()
    after = {r["id"] for r in audited(d)}
    assert after >= {r["id"] for r in before}
    assert keyed(d).expect(201).headers["Idempotency-Replayed"] == "true"
    until("the log says that it went back", lambda: d.log().count("the clock says") == 1)


def test_a_clock_that_is_set_while_the_daemon_runs(start, tmp_path, clock):
    state = str(tmp_path / "state")
    boss = token(state, "add", "boss", "--scope", "admin")
    short = token(state, "add", "short", "--expires", "4s")
    long = token(state, "add", "long", "--expires", "1h")
    d = start("--audit", "changes", state=state, env=clock.env)
    status = lambda secret: d.ask("GET", "/v1/sessions", token=secret).status  # noqa: E731
    assert status(boss) == 200 and status(long) == 200
    clock.set("-1h")
    until("the log says so", lambda: "the clock was set from" in d.log())
    until("no token has more time by that", lambda: status(short) == 401)
    assert status(long) == 200
    clock.set(YEARS)
    until("a token ends by the clock", lambda: status(long) == 401)
    clock.set("+0")
    until("it is in force where that was wrong", lambda: status(long) == 200)
    assert status(short) == 401 and d.log().count("the clock was set from") <= 3
