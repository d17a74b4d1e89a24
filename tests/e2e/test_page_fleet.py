"""The page at /fleet: nodes and sessions, what it says of nodes that are absent and of a directory that is silent."""
import contextlib

import pytest
from fake_fleet import Fleet
from pages import browser, rows  # noqa: F401

pytestmark = pytest.mark.once  # no memory is looked at


@pytest.fixture
def fleet():
    fleet = Fleet()
    fleet.sessions.update(s=fleet["b"], t=fleet["b"], u=fleet["c"])
    yield fleet
    fleet.stop()


@pytest.fixture
def open_fleet(browser):  # noqa: F811
    """Opens the page of a node. At the end there must be no complaints but the permitted ones."""
    with contextlib.ExitStack() as end:

        def go(node, wait="connected", permitted=()):
            page = browser.page(node.url + "/fleet")
            end.callback(page.close)

            def check():
                faults = [f for f in page.faults() if not any(p in f for p in permitted)]
                assert not faults, faults
                assert not [u for u in page.urls if not u.startswith(node.url)], page.urls

            end.callback(check)
            page.until("the page knows", f"document.body.dataset.connection === '{wait}'")
            return page

        yield go


def alarm(page):
    return page.js("document.getElementById('alarm').hidden ? '' : document.getElementById('alarm').textContent")


def test_nodes_and_sessions(fleet, open_fleet):
    fleet["a"].draining = True
    page = open_fleet(fleet["b"])
    page.until("they are there", "document.querySelectorAll('#sessions tbody tr').length === 3")
    assert rows(page, "nodes") == [
        ["a", "draining", "", "1.00 GiB", "1.00 MiB", "4.00 GiB", "1", "0", "site=x", "0.1.0"],
        ["b", "ready", "", "1.00 GiB", "1.00 MiB", "4.00 GiB", "1", "2", "site=x", "0.1.0"],
        ["c", "ready", "", "1.00 GiB", "1.00 MiB", "4.00 GiB", "1", "1", "site=y", "0.1.0"]]
    assert rows(page, "sessions")[2] == ["u", "c", "1", "1.00 MiB", "", "serve", "a=b"]
    assert page.js("[...document.querySelectorAll('#nodes tbody .bar .used')].map(b => b.style.width)") == ["75%"] * 3
    assert page.js("[...document.querySelectorAll('#nodes tbody a')].map(a => a.href)") == [fleet[n].url + "/fleet"
                                                                                            for n in "abc"]
    assert page.js("document.getElementById('about').textContent") == "main · node b · joined" and alarm(page) == ""
    page.js("document.getElementById('filter').value = 'site=y'; document.getElementById('filter').dispatchEvent(new "
            "Event('input'))")
    assert [row[0] for row in rows(page, "nodes")] == ["c"]
    assert page.js("location.hash") == "#filter=site%3Dy"
    page.call("Page.reload")
    page.until("the filter stays", "document.querySelectorAll('#nodes tbody tr').length === 1")


def test_copies(fleet, open_fleet):
    """Where the copies of a session are, and that one is lacking or its node is absent."""
    fleet.copies.update(s={"replicas": 2, "holders": ["a", "c"]}, t={"replicas": 2, "holders": ["a"]})
    page = open_fleet(fleet["b"])
    page.until("they are there", "document.querySelectorAll('#sessions tbody tr').length === 3")
    assert [row[4] for row in rows(page, "sessions")] == ["a, c", "a, 1 wanted", ""]
    assert page.js("[...document.querySelectorAll('#sessions td.bad')].map(c => c.textContent)") == ["a, 1 wanted"]
    fleet["c"].stop()
    page.until("the absent one is named", "document.querySelector('#sessions tbody td.bad')?.textContent === 'a, c "
               "(absent)'")


def test_an_absent_node(fleet, open_fleet):
    fleet["c"].stop()
    page = open_fleet(fleet["a"])
    page.until("they are there", "document.querySelectorAll('#nodes tbody tr').length === 3")
    assert rows(page, "nodes")[2] == ["c", "absent", "", "–", "–", "4.00 GiB", "1", "1", "site=y", "0.1.0"]
    assert alarm(page) == "Absent: c."
    del fleet.nodes["c"], fleet.sessions["u"]
    page.until("it was forgotten", "document.querySelectorAll('#nodes tbody tr').length === 2")
    assert alarm(page) == ""


def test_a_node_that_is_alone(fleet, open_fleet):
    page = open_fleet(fleet["a"], permitted=("503",))
    page.until("they are there", "document.querySelectorAll('#nodes tbody tr').length === 3")
    fleet["a"].state, fleet["a"].why, fleet["a"].silent = "alone", "etcd does not answer", True
    page.until("it says so", "!document.getElementById('alarm').hidden")
    assert ("etcd does not answer. It serves its own sessions." in alarm(page) and "The tables are outdated"
            in alarm(page))
    assert len(rows(page, "nodes")) == 3
    fleet["a"].state, fleet["a"].why, fleet["a"].silent = "joined", None, False
    page.until("it is back", "document.getElementById('alarm').hidden")


def test_no_fleet(fleet, open_fleet):
    fleet["a"].lonely = True
    assert alarm(open_fleet(fleet["a"])) == "This daemon is in no fleet: it was started without --fleet."


def test_a_token(fleet, open_fleet):
    fleet["a"].token = "gpb_a"
    page = open_fleet(fleet["a"], wait="token", permitted=("401",))
    page.until("it is asked for", "document.getElementById('token').open")
    page.js("document.getElementById('token-value').value = 'gpb_a'; "
            "document.getElementById('token-form').requestSubmit()")
    page.until("they are there", "document.querySelectorAll('#nodes tbody tr').length === 3")
    assert fleet["a"].requests[-1].headers["Authorization"] == "Bearer gpb_a"
