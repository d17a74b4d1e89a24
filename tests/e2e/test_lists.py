"""Lists: filters, order, cursors, and the Link to the next page."""
import pytest

S = "/v1/sessions/"
BYTES = {"a": 5, "b": 3, "c.x": 5, "c.y": 1, "d": 9, "e": 3, "f": 7}


@pytest.fixture
def buffers(daemon, session):
    """The target of a list of buffers that differ in bytes, kinds and labels."""
    for i, (name, n) in enumerate(BYTES.items()):
        body = {"name": name, "bytes": n, "kind": ("device", "pinned", "pageable")[i % 3],
                "labels": {"n": str(i % 2), "q": 'a",":\\'} if i != 3 else {}}
        daemon.ask("POST", f"{S}{session}/buffers", body).expect(201)
    return f"{S}{session}/buffers"


def names(page):
    return [i["name"] for i in page["items"]]


def follow(daemon, target):
    """The names of all pages, by their Links, each of which is the page of next_cursor."""
    pages = []
    while target:
        reply = daemon.ask("GET", target).expect(200)
        page = reply.json()
        pages.append(names(page))
        link = reply.headers.get("Link")
        assert (link is None) == (page["next_cursor"] is None), target
        if link is not None:
            assert link.startswith("</v1/") and link.endswith('>; rel="next"')
            assert link[1:link.index(">")].endswith("cursor=" + page["next_cursor"])
        target = link and link[1:link.index(">")]
    assert all(pages) or pages == [[]], "only a list of nothing has an empty page"
    return sum(pages, [])


FILTERS = {"prefix=c.": ["c.x", "c.y"], "prefix=zz": [], "kind=pinned": ["b", "d"], "state=ready": list(BYTES),
           "state=lost": [], "label=n": ["a", "b", "c.x", "d", "e", "f"], "label=n=1": ["b", "e"], "label=n=": [],
           "label=q=a%22,%22:%5C": ["a", "b", "c.x", "d", "e", "f"], "label=%22": [], "label=a": [],
           "label=n=0&kind=device&prefix=a": ["a"]}


@pytest.mark.parametrize("limit", (1, 2, 3, 7, 1000))
@pytest.mark.parametrize("query", FILTERS)
def test_filters_take_what_they_say_and_pages_are_full(daemon, buffers, query, limit):
    assert follow(daemon, f"{buffers}?{query}&limit={limit}") == FILTERS[query]
    assert len(daemon.get(f"{buffers}?{query}&limit={limit}")["items"]) == min(limit, len(FILTERS[query]))


@pytest.mark.parametrize("limit", (1, 2, 3, 7, 1000))
def test_order(daemon, buffers, limit):
    by_bytes = sorted(BYTES, key=lambda n: (BYTES[n], n))
    for sort, expected in {"name": sorted(BYTES), "-name": sorted(BYTES)[::-1], "bytes": by_bytes,
                           "-bytes": by_bytes[::-1], "created_at": list(BYTES), "-created_at": list(BYTES)[::-1],
                           "updated_at": list(BYTES)}.items():
        assert follow(daemon, f"{buffers}?limit={limit}&sort={sort}") == expected, sort
    assert follow(daemon, f"{buffers}?limit={limit}") == list(BYTES)  # by age unasked
    assert follow(daemon, f"{buffers}?sort=-bytes&label=n=0&limit={limit}") == ["d", "f", "c.x", "a"]


@pytest.mark.parametrize("query, rest", [("sort=bytes", ["a", "c.x", "f", "d"]),
                                         ("sort=-name", ["c.y", "c.x", "b", "a"]), ("label=n", ["d", "e", "f"])])
def test_a_page_goes_on_when_its_last_item_is_gone(daemon, buffers, query, rest):
    page = daemon.get(f"{buffers}?{query}&limit=3")
    daemon.ask("DELETE", f"{buffers}/{page['items'][-1]['name']}").expect(204)
    assert names(daemon.get(f"{buffers}?{query}&cursor={page['next_cursor']}")) == rest


def test_a_cursor_belongs_to_its_filters_and_order(daemon, buffers):
    queries = ("", "prefix=c.&", "label=n&", "label=n=1&", "kind=pinned&", "state=ready&", "sort=name&", "sort=-name&",
               "sort=bytes&", "prefix=c.&sort=name&")
    cursors = {q: daemon.get(f"{buffers}?{q}limit=1")["next_cursor"] for q in queries}
    for q in queries:
        for of, cursor in cursors.items():
            reply = daemon.ask("GET", f"{buffers}?{q}cursor={cursor}")
            if q == of:
                reply.expect(200)
            else:
                assert ("another prefix, label, state, kind or sort"
                        in reply.problem(400, "invalid_argument")["detail"]), (q, of)
    for bad in ("x", "1.", "1.0000000", "1.zzzzzzzz", ".00000000", "-1.00000000.a", "99999999999999999999.00000000"):
        for q in queries:
            daemon.ask("GET", f"{buffers}?{q}cursor={bad}").problem(400, "invalid_argument")


def test_bad_values_name_what_is_permitted(daemon, buffers):
    said = {"state=gone": "ready, partial, lost, stored", "kind=gpu": "device, shared",
            "sort=size": "name, created_at, updated_at, bytes", "sort=": "name, created_at",
            "sort=-": "name, created_at", "sort=--name": "name, created_at", "label=": "name=value",
            "label==x": "name=value", "label=" + 3000 * "x": "less than 2048"}
    for query, detail in said.items():
        assert detail in daemon.ask("GET", f"{buffers}?{query}").problem(400, "invalid_argument")["detail"], query
    daemon.ask("GET", f"{buffers}?prefix=%20").problem(400, "invalid_name")
    for other in ("/v1/sessions?kind=pinned", "/v1/sessions?state=ready", buffers.replace("buffers", "streams")
                  + "?label=x"):
        daemon.ask("GET", other).problem(400, "unknown_parameter")


def test_sessions(daemon):
    made = {"li.b": 2, "li.a": 0, "li.c": 1}
    for name, count in made.items():
        daemon.ask("POST", "/v1/sessions", {"name": name, "labels": {"of": name}}).expect(201)
        for i in range(count):
            daemon.ask("POST", f"{S}{name}/buffers", {"name": f"x{i}", "bytes": 10 + i}).expect(201)
    try:
        for limit in (1, 2, 3, 100):
            for query, expected in {"": ["li.b", "li.a", "li.c"], "&sort=name": ["li.a", "li.b", "li.c"],
                                    "&sort=-buffers": ["li.b", "li.c", "li.a"],
                                    "&sort=used_bytes": ["li.a", "li.c", "li.b"], "&label=of=li.c": ["li.c"]}.items():
                assert follow(daemon, f"/v1/sessions?prefix=li.&limit={limit}{query}") == expected
    finally:
        for name in made:
            daemon.ask("DELETE", S + name).expect(204)


@pytest.mark.parametrize("limit", (1, 2, 100))
def test_pools_streams_and_events(daemon, session, limit):
    standard = {what: names(daemon.get(f"{S}{session}/{what}")) for what in ("pools", "streams", "events")}
    for what in standard:
        for name in ("z", "da", "y"):
            daemon.ask("POST", f"{S}{session}/{what}", {"name": name}).expect(201)
        target = f"{S}{session}/{what}?limit={limit}"
        assert follow(daemon, target) == standard[what] + ["z", "da", "y"]
        assert follow(daemon, target + "&sort=name") == sorted(standard[what] + ["z", "da", "y"])
        assert follow(daemon, target + "&sort=-name") == sorted(standard[what] + ["z", "da", "y"])[::-1]
        assert follow(daemon, target + "&prefix=d") == standard[what] + ["da"]
    assert follow(daemon, f"{S}{session}/pools?limit={limit}&state=lost") == []
    assert set(follow(daemon, f"{S}{session}/pools?limit={limit}&sort=-used_bytes")) == {*standard["pools"], "z", "da",
                                                                                         "y"}


def test_a_link_keeps_the_query(daemon, buffers):
    link = daemon.ask(
        "GET", f"{buffers}?label=n%3D0&limit=1&cursor=0."
        f"{daemon.get(buffers + '?label=n=0&limit=1')['next_cursor'].split('.')[1]}").headers["Link"]
    assert link.startswith(f"<{buffers}?label=n%3D0&limit=1&cursor=") and link.count("cursor=") == 1


def test_a_link_is_one_target(daemon, buffers):
    """What a client wrote encoded, or wrote although it should be encoded."""
    first = daemon.ask("GET", f"{buffers}?limit=1&sort=name")
    link = daemon.ask("GET", f"{buffers}?limit=1&sort=name&%63ursor={first.json()['next_cursor']}").headers["Link"]
    assert link.count("ursor=") == 1
    target = link[1:link.index(">")]
    assert names(daemon.get(target)) != names(first.json())
    daemon.put("q1", b"a", session=buffers.split("/")[3]).expect(201)
    daemon.put("q2", b"a", session=buffers.split("/")[3]).expect(201)
    odd = 'v>;rel="next",<http://evil/>'
    for name in ("q1", "q2"):
        daemon.ask("PATCH", f"{buffers}/{name}", {"labels": {"odd": odd}}).expect(200)
    link = daemon.ask("GET", f"{buffers}?label=odd={odd}&limit=1").expect(200).headers["Link"]
    assert link.endswith('>; rel="next"') and link.count(">") == link.count("<") == 1 and link.count('"') == 2
    assert names(daemon.get(link[1:link.index(">")])) == ["q2"]
