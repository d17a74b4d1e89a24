"""Bodies whose length nothing tells: memory grows with them, and what remains is exactly what came."""
import gzip
import io

import numpy as np
import pytest

from conform import Session
from durable import BEHIND, INLINE, SYNC, memory
from harness import DATA, SLOT, SMALL_SLOTS, until
from values import crc32c, npy, payload

MIB = 1 << 20
SIZES = [0, 1, 127, 128, SLOT - 1, SLOT + 1, MIB - 1, MIB, MIB + 1, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 4 * MIB + 1,
         9 * MIB + 12345]


def pieces(data, n=100003):
    return iter([data[at:at + n] for at in range(0, len(data), n)])


def used(daemon, session="default"):
    return daemon.get("/v1/sessions/" + session)["used_bytes"]


def holds(daemon, session, name, data):
    """The record, the bytes, the quota and the memory agree; nothing else is held."""
    made = daemon.meta(name, session)
    assert (made["bytes"], made["crc32c"], made["state"]) == (len(data), crc32c(data), "ready")
    assert daemon.data(name, session).body == data
    until("no other bytes are held", lambda: used(daemon, session) == len(data))


@pytest.mark.parametrize("size", SIZES)
def test_every_size(daemon, session, size):
    data = payload(size, 1)
    made = daemon.put("x", pieces(data), session).expect(201).json()
    assert (made["dtype"], made["shape"]) == ("uint8", [size])
    holds(daemon, session, "x", data)
    other = payload(size, 2)
    assert daemon.put("x", pieces(other, 7 * MIB), session).expect(200).json()["generation"] == 2
    holds(daemon, session, "x", other)


def test_100_mib_never_lie_in_host_memory(start, simulated):
    d = start(*SMALL_SLOTS, spec=simulated("bytes=512M"))
    data = payload(100 * MIB, 3)
    before = d.rss_anon()
    d.put("x", pieces(data, MIB)).expect(201)
    holds(d, "default", "x", data)
    pool = d.get("/v1/sessions/default/pools/default")
    assert pool["used_bytes"] == len(data)
    # The simulated device's memory is the host's: the segments and the buffer lie there, and nothing more.
    assert d.rss_anon() - before < 216 * MIB


@pytest.mark.parametrize("kind", ["device", "shared", "managed", "pinned", "pageable", "ipc"])
def test_every_kind(daemon, session, kind):
    if not daemon.get("/v1/devices/0")["kinds"][kind]["supported"]:
        pytest.skip("the device has none")
    for size in (0, 1000, 3 * MIB + 5):
        data = payload(size, size)
        assert daemon.put("x", pieces(data), session, f"?kind={kind}").json()["kind"] == kind
        holds(daemon, session, "x", data)


def test_a_mirrored_buffer(daemon, session):
    s = Session(daemon, session)
    for size, query in ((100, "?mirrored=true"), (3 * MIB + 1, ""), (2 * MIB, "?side=device")):
        data = payload(size, size)
        made = daemon.put("m", pieces(data), session, query)
        assert made.status in (200, 201) and made.json()["mirrored"] and made.json()["bytes"] == size
        assert daemon.data("m", session).body == data
        s.ask("POST", "buffers/m/sync", {"to": "device" if made.json()["head"] == "host" else "host"})
        assert daemon.data("m", session).body == data


def test_elements_are_whole(daemon, session):
    made = daemon.put("x", pieces(payload(400)), session, "?dtype=float32").expect(201).json()
    assert (made["dtype"], made["shape"]) == ("float32", [100])
    daemon.put("x", pieces(payload(401)), session, "?dtype=float32").problem(422, "shape_mismatch")
    assert daemon.meta("x", session)["generation"] == 1
    assert used(daemon, session) == 400


def test_forms_are_recognised_as_ever(daemon, session):
    array = np.arange(3000, dtype=np.int16).reshape(30, 100)
    made = daemon.put("x", pieces(npy(array), 50), session).expect(201).json()
    assert (made["dtype"], made["shape"]) == ("int16", [30, 100])
    data = npy(array)
    made = daemon.put("x", pieces(data), session, "?format=raw").expect(200).json()
    assert (made["dtype"], made["bytes"]) == ("uint8", len(data))
    daemon.put("x", pieces(data), session, "?dtype=uint8").problem(400, "invalid_argument")
    for n in (5, 9, 127, 200):  # too short for a header, or none
        made = daemon.put("y", pieces(b"{" * n), session)
        assert made.status in (200, 201) and made.json()["bytes"] == n
        assert daemon.data("y", session).body == b"{" * n


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_max_bytes(daemon, session):
    data = payload(3 * MIB, 4)
    for most in (3 * MIB, 3 * MIB + 1, 8 * MIB):
        assert daemon.put("x", pieces(data), session, f"?max_bytes={most}").status in (200, 201)
        holds(daemon, session, "x", data)
    for most in (0, 1, 3 * MIB - 1):
        p = daemon.put("x", pieces(data), session, f"?max_bytes={most}").problem(413, "body_too_large")
        assert str(most) in p["detail"]
    daemon.put("x", data, session, "?max_bytes=5").problem(413, "body_too_large")
    daemon.put("x", npy(np.zeros(10)), session, "?max_bytes=79").problem(413, "body_too_large")
    daemon.put("x", data, session, f"?max_bytes={1 << 50}").expect(200)  # Content-Length tells more
    daemon.put("x", pieces(data), session, f"?max_bytes={1 << 50}").problem(507, "out_of_memory")
    daemon.put("x", b"1", session, "?offset=0&max_bytes=1").problem(400, "invalid_argument")
    daemon.settled()
    holds(daemon, session, "x", data)


def test_the_quota_is_reached_in_the_midst(daemon, session):
    old = payload(1000, 5)
    daemon.put("x", old, session).expect(201)
    daemon.ask("PATCH", "/v1/sessions/" + session, {"quota": {"bytes": 5 * MIB}}).expect(200)
    daemon.put("x", pieces(payload(20 * MIB)), session).problem(507, "quota_exceeded")
    # at the end, where it is needed twice
    p = daemon.put("x", pieces(payload(3 * MIB)), session).problem(507, "quota_exceeded")
    assert "twice" in p["detail"]
    until("all is given back", lambda: used(daemon, session) == 1000)
    holds(daemon, session, "x", old)
    data = payload(2 * MIB, 6)
    daemon.put("x", pieces(data), session).expect(200)
    holds(daemon, session, "x", data)
    most = payload(3 * MIB - 1000, 7)
    daemon.put("x", pieces(most), session, f"?max_bytes={len(most)}").expect(200)  # all of it at once, and no copy
    holds(daemon, session, "x", most)


def test_a_small_quota_is_used(daemon, session):
    daemon.ask("PATCH", "/v1/sessions/" + session, {"quota": {"bytes": 700000}}).expect(200)
    for size in (1, 300000, 340000):
        data = payload(size, size)
        daemon.put("x", pieces(data), session).expect(201)
        holds(daemon, session, "x", data)
        daemon.ask("DELETE", f"/v1/sessions/{session}/buffers/x").expect(204)
    p = daemon.put("x", pieces(payload(360000)), session).problem(507, "quota_exceeded")
    assert "send Content-Length" in p["detail"]
    until("all is given back", lambda: used(daemon, session) == 0)


def test_the_device_has_no_more(start, simulated):
    d = start(spec=simulated("bytes=8M"))
    old = payload(1000, 5)
    d.put("x", old).expect(201)
    for size in (9 * MIB, 6 * MIB):
        d.put("x", pieces(payload(size))).problem(507, "out_of_memory")
        until("all is given back", lambda: used(d) == 1000)
        holds(d, "default", "x", old)


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.mark.parametrize("sent", [0, 1, 200, MIB, MIB + 1, 3 * MIB])
def test_the_client_goes_in_the_midst(daemon, session, sent):
    old = payload(1000, 5)
    daemon.put("x", old, session).expect(201)
    r = daemon.raw().request("PUT", DATA.format(session, "x"), ["Transfer-Encoding: chunked"])
    if sent:
        r.send(chunk(payload(sent)))
    if sent >= 200:
        until("it has begun", lambda: daemon.stats()["running"]["uploads"] == 1)
    assert daemon.data("x", session).body == old
    r.reset()
    until("all is given back", lambda: used(daemon, session) == 1000 and daemon.stats()["running"]["uploads"] == 0)
    holds(daemon, session, "x", old)
    r = daemon.raw().request("PUT", DATA.format(session, "x"), ["Transfer-Encoding: chunked"])
    r.send(chunk(b"abc") + b"zz\r\n")
    assert r.reply().status == 400
    r.close()
    holds(daemon, session, "x", old)


def test_the_session_goes_in_the_midst(daemon, session):
    r = daemon.raw().request("PUT", DATA.format(session, "x"), ["Transfer-Encoding: chunked"])
    r.send(chunk(payload(MIB)))
    until("it has begun", lambda: daemon.stats()["running"]["uploads"] == 1)
    daemon.ask("DELETE", "/v1/sessions/" + session).expect(204)
    r.send(chunk(payload(MIB)) + b"0\r\n\r\n")
    assert r.reply().status in (404, 410)
    r.close()
    daemon.settled()
    daemon.ask("PUT", "/v1/sessions/" + session, {})


def test_a_sealed_buffer_is_refused(daemon, session):
    s = Session(daemon, session)
    daemon.put("x", b"abc", session).expect(201)
    s.ask("POST", "buffers/x/seal", {}).expect(200)
    daemon.put("x", pieces(payload(MIB)), session).problem(409, "sealed")


# --- parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "&in_place=true"])
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_part_ends_where_the_buffer_ends(daemon, session, method, query):
    size = 3 * MIB
    want = bytearray(payload(size, 8))
    daemon.put("x", bytes(want), session).expect(201)

    def write(at, data):
        daemon.settled()  # in place, a reader that has not ended would be in the way
        return daemon.ask(method, DATA.format(session, "x") + f"?offset={at}{query}", pieces(data))

    for at, n in ((0, 0), (0, 5), (7, 2 * MIB), (size - 1, 1), (size, 0), (0, size)):
        new = payload(n, at + n)
        want[at:at + n] = new
        assert write(at, new).expect(200).json()["bytes"] == size
        assert daemon.data("x", session).body == bytes(want)
    if not query:
        p = write(size - 10, payload(11)).problem(422, "shape_mismatch")
        assert str(size - 10) in p["detail"]
        assert daemon.data("x", session).body == bytes(want)
    write(size + 1, b"").problem(422, "shape_mismatch")
    until("what was refused is given back", lambda: used(daemon, session) == size)


def test_a_slice_needs_all_of_its_bytes(daemon, session):
    daemon.put("x", payload(100), session, "?shape=10,10").expect(201)

    def write(n):
        return daemon.ask("PATCH", DATA.format(session, "x") + "?slice=:,2:4", pieces(b"a" * n, 3))

    write(20).expect(200)
    write(19).problem(422, "shape_mismatch")
    write(21).problem(422, "shape_mismatch")


def test_in_place_has_the_size_that_is_there(daemon, session):
    daemon.put("x", payload(100), session, "?dtype=float32").expect(201)
    for query in ("?in_place=true", "?in_place=true&dtype=uint8"):
        daemon.settled()
        daemon.put("x", pieces(payload(100, 2), 33), session, query).expect(200)
        assert daemon.data("x", session).body == payload(100, 2)
    daemon.settled()
    daemon.put("x", pieces(payload(101), 33), session, "?in_place=true").problem(422, "shape_mismatch")


# --- codings and durability -------------------------------------------------------------------------------------------


def test_a_coded_body_that_expands_beyond_the_limit(start):
    d = start("--max-expanded", "4M")
    d.put("x", b"old").expect(201)
    coded = gzip.compress(bytes(5 * MIB))
    d.put("x", coded, headers={"Content-Encoding": "gzip"}).problem(413, "body_too_large")
    d.put("x", pieces(coded, 100), headers={"Content-Encoding": "gzip"}).problem(413, "body_too_large")
    until("all is given back", lambda: used(d) == 3)
    d.put("x", gzip.compress(bytes(4 * MIB)), headers={"Content-Encoding": "gzip"}).expect(200)
    holds(d, "default", "x", bytes(4 * MIB))


def test_a_digest_is_checked(daemon, session):
    daemon.put("x", pieces(payload(MIB)), session, headers={"Repr-Digest": "sha-256=:" + "A" * 43
                                                            + "=:"}).problem(400, "digest_mismatch")
    daemon.data("x", session).problem(404, "buffer_not_found")
    until("all is given back", lambda: used(daemon, session) == 0)


@pytest.mark.once
@pytest.mark.parametrize("durability", [SYNC, BEHIND])
@pytest.mark.parametrize("size", [0, 1, INLINE, INLINE + 1, MIB, 3 * MIB + 5])
def test_durable_bytes_are_there_after_a_death(lives, durability, size):
    d = lives()
    data = payload(size, 9)
    d.put("x", pieces(data), query=durability).expect(201)
    until("it is on disk", lambda: d.meta("x")["stored_generation"] == 1)
    assert memory(d, "x") == data
    d = lives()
    after = d.meta("x")
    assert (after["bytes"], after["shape"], after["crc32c"]) == (size, [size], crc32c(data))
    assert memory(d, "x") == data


def test_npy_by_a_pipe_is_as_large_as_it_says(daemon, session):
    array = np.ones(300000, dtype=np.float64)
    out = io.BytesIO()
    np.save(out, array)
    daemon.put("x", pieces(out.getvalue()), session, "?max_bytes=2400000").expect(201)
    daemon.put("x", pieces(out.getvalue()), session, "?max_bytes=2399999").problem(413, "body_too_large")
    holds(daemon, session, "x", array.tobytes())
