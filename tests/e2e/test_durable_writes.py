"""Uploads on their way to the disk: clients that leave, disks that are slow, and several writers of one name."""
import os
import threading

import pytest

import sharing
from durable import BEHIND, SIZES, SYNC, becomes_tidy, files, path_of, storage
from harness import DATA, PATIENCE_S, until
from values import payload

X = DATA.format("default", "x")
LARGE = 24 << 20


def begun(d, body, length=LARGE, query=SYNC):
    """An upload of which the disk has some."""
    before = set(files(d.state))
    raw = d.raw().put(X + query, length).send(body)
    until("its file is there", lambda: set(files(d.state)) - before)
    return raw


@pytest.mark.parametrize("there", (False, True))
def test_a_client_that_breaks_off_leaves_no_file(lives, there):
    d = lives()
    if there:
        d.put("x", payload(SIZES[2], 1), query=SYNC).expect(201)
    for how in ("close", "reset"):
        raw = begun(d, payload(6 << 20))
        assert [g for _, g, _ in files(d.state) if g == 0] == [0]
        getattr(raw, how)()
        becomes_tidy(d.state)
    d.settled()
    if there:
        assert d.data("x").body == payload(SIZES[2], 1) and d.meta("x")["generation"] == 1
    else:
        d.data("x").problem(404, "buffer_not_found")
    d.put("x", payload(SIZES[2], 2), query=SYNC)
    assert storage(d)["failures"] == 0
    d = lives()
    assert d.data("x").body == payload(SIZES[2], 2)


def test_a_death_in_the_middle_leaves_no_file(lives):
    d = lives()
    d.put("x", payload(SIZES[2], 1), query=SYNC).expect(201)
    raw = begun(d, payload(6 << 20))
    d = lives()
    raw.close()
    assert d.data("x").body == payload(SIZES[2], 1)
    becomes_tidy(d.state)


def test_a_body_with_the_wrong_digest_is_not_stored(lives):
    d = lives()
    d.put("x", payload(SIZES[2], 1), query=SYNC).expect(201)
    wrong = d.put("x", payload(SIZES[2], 2), headers={"Repr-Digest": f"sha-256=:{'A' * 43}=:"})
    assert wrong.problem(wrong.status, "digest_mismatch")
    becomes_tidy(d.state)
    assert d.data("x").body == payload(SIZES[2], 1) and d.meta("x")["generation"] == 1


@pytest.mark.once
def test_a_slow_disk_holds_up_none_but_its_own(lives):
    """Two durable uploads take longer than all that others do beside them."""
    d = lives("--disk-fault", "sync=delay/3000")
    slow = [threading.Thread(target=d.put, args=(f"slow{i}", payload(LARGE, i)), kwargs={"query": SYNC})
            for i in range(2)]
    for t in slow:
        t.start()
    until("both are on their way", lambda: len(files(d.state)) == 2)
    for i in range(4):
        d.put(f"fast{i}", payload(SIZES[2], i)).expect(201)
        assert d.data(f"fast{i}").body == payload(SIZES[2], i)
        d.ask("PATCH", path_of(f"fast{i}"), {"labels": {"a": "b"}}).expect(200)
        d.ask("GET", "/v1/stats").expect(200)
    assert all(t.is_alive() for t in slow)
    for t in slow:
        t.join(PATIENCE_S)
    assert d.data("slow1").body == payload(LARGE, 1) and d.settled()
    becomes_tidy(d.state)


@pytest.mark.once
def test_many_slow_uploads_leave_slots_to_others(lives):
    """More of them than there are slots for all."""
    d = lives("--disk-fault", "write=delay/60")
    total = d.stats()["slots"]["total"]
    slow = [threading.Thread(target=d.put, args=(f"slow{i}", payload(4 << 20, i)), kwargs={"query": SYNC})
            for i in range(16)]
    for t in slow:
        t.start()
    until("most are on their way", lambda: len(files(d.state)) >= 4)
    d.put("fast", payload(SIZES[2])).expect(201)
    assert d.data("fast").body == payload(SIZES[2]) and any(t.is_alive() for t in slow)
    for t in slow:
        t.join(PATIENCE_S)
    assert d.settled()["slots"]["free"] == total
    for i in range(16):
        assert d.data(f"slow{i}").body == payload(4 << 20, i)
    becomes_tidy(d.state)


def test_few_bytes_go_to_the_database_as_they_came(lives):
    """Nothing is read back from memory for them, so that no thread of the disk is needed."""
    d = lives()
    for n in (1, 1000, 65536):
        d.put("x", payload(n), query=SYNC).expect(201 if n == 1 else 200)
        assert d.meta("x")["stored_generation"] == d.meta("x")["generation"]
    assert "gb-disk" not in d.threads()
    d.put("x", payload(65537), query=SYNC).expect(200)
    assert "gb-disk" in d.threads()
    d = lives()
    assert d.data("x").expect(200).body == payload(65537)


def test_two_clients_of_one_name(lives):
    """Each is answered, and the buffer has the bytes of one of them, in memory and on disk."""
    d = lives("--disk-fault", "write=delay/2")
    for n in range(4):
        bodies, answers = [payload(SIZES[2], 2 * n + i) for i in range(2)], [None, None]

        def send(i):
            answers[i] = d.put("x", bodies[i], query=SYNC)

        threads = [threading.Thread(target=send, args=(i,)) for i in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(PATIENCE_S)
        assert any(r.status in (200, 201) for r in answers), answers
        good = {r.headers["ETag"]: b for r, b in zip(answers, bodies) if r.status in (200, 201)}
        assert all(r.status in (200, 201) or r.json()["retryable"] for r in answers), answers
        now = d.data("x")
        assert good[now.headers["ETag"]] == now.body
        becomes_tidy(d.state)
    d = lives()
    assert (d.data("x").headers["ETag"], d.data("x").body) == (now.headers["ETag"], now.body)


def test_a_delete_during_an_upload(lives):
    d = lives()
    d.put("x", payload(SIZES[2], 1), query=SYNC).expect(201)
    new = payload(LARGE, 2)
    raw = begun(d, new[:6 << 20])
    d.ask("DELETE", path_of("x")).expect(204)
    r = raw.send(new[6 << 20:]).reply()
    raw.close()
    d.settled()
    becomes_tidy(d.state)
    there = r.status in (200, 201)
    assert there or r.status in (404, 409, 412), r
    for _ in range(2):
        assert (d.data("x").body == new) if there else d.data("x").status == 404
        d = lives()
    becomes_tidy(d.state)


def test_what_is_written_all_the_time_is_stored_all_the_same(lives):
    """The lag counts from the first write that the disk has not."""
    d = lives()

    def written():
        d.put("x", payload(1000), query=BEHIND)
        return d.meta("x")["stored_generation"]

    first = until("some generation is stored", written)
    assert until("a later one is", lambda: written() > first)
    d = lives()
    assert d.data("x").expect(200).body == payload(1000)


def test_what_cannot_be_stored_holds_up_nothing(lives):
    d = lives()
    with sharing.Local(d.unix) as local:
        for i in range(70):
            d.put(f"mapped{i}", payload(1000), query=BEHIND + "&kind=shared").expect(201)
            answer = local.map(f"mapped{i}", mode="write")
            assert answer.status == 200, answer.body
            for fd in answer.fds:
                os.close(fd)
        d.put("x", payload(1000), query=BEHIND).expect(201)
        until("the last one is stored", lambda: d.meta("x")["stored_generation"] == 1)
        assert d.meta("mapped0")["stored_generation"] != d.meta("mapped0")["generation"]
