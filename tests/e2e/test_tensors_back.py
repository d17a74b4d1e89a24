"""Many buffers as one file; files that are uploaded during other reads and writes."""
import json
import struct
import threading

import numpy as np

import values
from harness import SLOT, until
from tensors import TENSORS, TYPES, equal, file_of, get, load, model, names, put, safetensors, width
from values import payload


def test_round_trip(daemon, session):
    """The reference library reads the download, with the names that it wrote."""
    arrays = {**model(3, 40), "a/b": values.array_of("int64", (3,)), "größe": values.array_of("complex64", (2, 2)),
              'quo"ted\\\n': values.array_of("bool", (9,))}
    put(daemon, session, safetensors.numpy.save(arrays)).expect(201)
    equal(load(daemon, session), arrays)
    body = get(daemon, session).body
    head = struct.unpack("<Q", body[:8])[0]
    assert head % 8 == 0
    sizes = {"BOOL": 1, "U8": 1, "F16": 2, "F32": 4, "I64": 8, "C64": 8}
    for name, t in json.loads(body[8:8 + head]).items():
        assert t["data_offsets"][0] % sizes[t["dtype"]] == 0, name
    put(daemon, session, body, "?prefix=copy.").expect(201)
    equal(load(daemon, session, "?prefix=copy."), arrays)


def test_every_type_in_one_file(daemon, session):
    header, data = {}, b""
    for dtype, name in TYPES:
        piece = bytes(3 * width(dtype)) if dtype == "bool" else payload(3 * width(dtype), len(data))
        header[dtype] = {"dtype": name, "shape": [3], "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    put(daemon, session, file_of(header, data)).expect(201)
    got = dict(safetensors.deserialize(get(daemon, session).body))
    assert {n: t["dtype"] for n, t in got.items()} == dict(TYPES)
    for dtype, t in header.items():
        assert bytes(got[dtype]["data"]) == data[slice(*t["data_offsets"])], dtype


def test_from_a_file(daemon, session, tmp_path):
    """The library maps it, as it does for torch."""
    arrays = {"w": values.array_of("float32", (30, 7)), "b": values.array_of("int16", (5,)),
              "c": values.array_of("int64", (5,))}
    put(daemon, session, safetensors.numpy.save(arrays)).expect(201)
    path = tmp_path / "x.safetensors"
    path.write_bytes(get(daemon, session).body)
    with safetensors.safe_open(path, framework="numpy") as f:
        equal({n: f.get_tensor(n) for n in f.keys()}, arrays)
        assert np.array_equal(f.get_slice("w")[3:5], arrays["w"][3:5])


def test_selection(daemon, session):
    arrays = model()
    put(daemon, session, safetensors.numpy.save(arrays)).expect(201)
    put(daemon, session, safetensors.numpy.save(arrays), "?prefix=v2.").expect(201)
    for name, labels in (("layer.0.float32", {"part": "head", "x": ""}), ("layer.3.uint8", {"part": "tail"}),
                         ("v2.layer.3.uint8", {"part": "head"})):
        daemon.ask("PATCH", f"/v1/sessions/{session}/buffers/{name}", {"labels": labels}).expect(200)
    first, last = "layer.0.float32", "layer.3.uint8"
    for query, wanted in (("?names=" + last, [last]), (f"?names={last},{first}", [first, last]),
                          ("?prefix=v2.", list(arrays)), ("?prefix=layer.0", [first]),
                          ("?label=part%3Dhead&prefix=layer", [first]), ("?label=part&prefix=l", [first, last]),
                          ("?label=x", [first]), ("?label=part=tail", [last]), ("?label=part=none", []),
                          ("?prefix=none", [])):
        equal(load(daemon, session, query), {n: arrays[n] for n in wanted})
    for query, status, code in (("?names=none", 404, "buffer_not_found"),
                                (f"?names={first},none", 404, "buffer_not_found"), ("?names=", 400, "invalid_name"),
                                (f"?names={first},", 400, "invalid_name"), ("?prefix=", 400, "invalid_name"),
                                (f"?names={first},{first}", 400, "invalid_argument"),
                                (f"?names={first}&prefix=l", 400, "invalid_argument"),
                                # two tensors of each name
                                ("?label=", 400, "invalid_argument"), ("?label=%3Dx", 400, "invalid_argument"),
                                ("?stream=none", 404, "stream_not_found"), ("", 400, "invalid_argument")):
        get(daemon, session, query).problem(status, code)
    get(daemon, "nowhere").problem(404, "session_not_found")
    get(daemon, session, "?prefix=v2.", {"Accept": "application/x-npy"}).problem(406, "not_acceptable")


def test_head_and_tags(daemon, session):
    arrays = model()
    put(daemon, session, safetensors.numpy.save(arrays)).expect(201)
    whole = get(daemon, session).expect(200)
    head = get(daemon, session, method="HEAD").expect(200)
    assert head.body == b"" and int(head.headers["Content-Length"]) == len(whole.body)
    assert head.headers["ETag"] == whole.headers["ETag"]
    tag = {"If-None-Match": whole.headers["ETag"]}
    get(daemon, session, "", tag).expect(304)
    get(daemon, session, "?prefix=layer.1", tag).expect(200)
    daemon.put("layer.3.uint8", b"other", session).expect(200)
    get(daemon, session, "", tag).expect(200)
    get(daemon, session, "", {"If-Match": whole.headers["ETag"]}).problem(412, "precondition_failed")


def test_what_a_file_cannot_hold(daemon, session):
    daemon.put("a", bytes(16), session, "?dtype=complex128").expect(201)
    daemon.put("b", b"abcd", session).expect(201)
    assert '"a"' in get(daemon, session).problem(406, "not_acceptable")["detail"]
    assert safetensors.numpy.load(get(daemon, session, "?names=b").body)["b"].tobytes() == b"abcd"
    daemon.ask("PATCH", f"/v1/sessions/{session}/buffers/b",
               {"labels": {"safetensors.name": "__metadata__"}}).expect(200)
    get(daemon, session, "?names=b").problem(400, "invalid_argument")
    daemon.put("c", b"abcd", session).expect(201)
    daemon.ask("PATCH", f"/v1/sessions/{session}/buffers/b", {"labels": {"safetensors.name": "c"}}).expect(200)
    detail = get(daemon, session, "?names=b,c").problem(400, "invalid_argument")["detail"]
    assert '"b"' in detail and '"c"' in detail


def test_a_mirrored_buffer_that_nobody_wrote(daemon, session):
    daemon.ask("POST", f"/v1/sessions/{session}/buffers", {"name": "m", "bytes": 100000, "mirrored": True}).expect(201)
    daemon.put("n", b"abcd", session).expect(201)
    got = load(daemon, session)
    assert got["m"].tobytes() == bytes(100000) and got["n"].tobytes() == b"abcd"


def test_a_snapshot(daemon, session):
    """A buffer that is replaced or deleted during the download is sent with its old content."""
    arrays = {f"t{i}": values.array_of("uint8", (3 * SLOT + i,), i) for i in range(6)}
    put(daemon, session, safetensors.numpy.save(arrays)).expect(201)
    with daemon.raw(receive_bytes=4096) as c:
        c.request("GET", TENSORS.format(session))
        status, headers = c.head()
        assert status == 200
        for name in arrays:
            daemon.put(name, b"new", session).expect(200)
        daemon.ask("DELETE", f"/v1/sessions/{session}/buffers/t5").expect(204)
        equal(safetensors.numpy.load(c.exactly(int(headers["Content-Length"]))), arrays)
    until("the old bytes are free", lambda: daemon.get(f"/v1/sessions/{session}")["used_bytes"] == 5 * 3)


def test_a_download_that_breaks_off(daemon, session):
    arrays = {f"t{i}": values.array_of("uint8", (3 * SLOT + i,), i) for i in range(6)}
    put(daemon, session, safetensors.numpy.save(arrays)).expect(201)
    for n in (0, 100, SLOT, 7 * SLOT):
        with daemon.raw(receive_bytes=4096) as c:
            c.request("GET", TENSORS.format(session))
            c.head()
            c.exactly(n)
    daemon.settled()
    equal(load(daemon, session), arrays)


def test_thousands_back(daemon, session):
    header, data = {}, bytearray()
    for i in range(3000):
        header[f"t/{i}"] = {"dtype": "U8", "shape": [i % 50], "data_offsets": [len(data), len(data) + i % 50]}
        data += payload(i % 50, i)
    put(daemon, session, file_of(header, bytes(data))).expect(201)
    got = load(daemon, session)
    assert len(got) == 3000
    for name, t in header.items():
        assert got[name].tobytes() == data[slice(*t["data_offsets"])]


# --- all or none ------------------------------------------------------------------------------------------------------


def test_readers_see_all_or_none(daemon, session):
    """Files are replaced during downloads: no download ever mixes two."""
    arrays = [{f"t{i}": np.full(1000 + i, k, "uint8") for i in range(20)} for k in range(3)]
    bodies = [safetensors.numpy.save(a) for a in arrays]
    put(daemon, session, bodies[0]).expect(201)
    ended, errors = threading.Event(), []

    def write(k):
        c = daemon.client()
        try:
            while not ended.is_set():
                r = c.ask("PUT", TENSORS.format(session), bodies[k])
                assert r.status == 200, r
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=write, args=(k,)) for k in (1, 2)]
    for t in threads:
        t.start()
    try:
        for _ in range(60):
            seen = {int(a[0]) for a in load(daemon, session).values()}
            assert len(seen) == 1, seen
            generations = {b["generation"] for b in daemon.get(f"/v1/sessions/{session}/buffers")["items"]}
            assert generations
    finally:
        ended.set()
        for t in threads:
            t.join()
    assert not errors, errors


def test_files_that_cross(daemon, session):
    """Several uploads at once, of the same names in different orders, with single uploads between them: all end."""
    names_ = [f"t{i}" for i in range(30)]
    bodies = [safetensors.numpy.save({n: np.full(100 + k, k, "uint8")
                                      for n in sorted(names_, key=lambda n: hash((n, k)))})
              for k in range(4)]
    answers = []

    def write(k):
        c = daemon.client()
        for i in range(15):
            answers.append(c.ask("PUT", TENSORS.format(session), bodies[k]).status)
            answers.append(c.ask("PUT", f"/v1/sessions/{session}/buffers/{names_[i]}/data", b"x").status)
            answers.append(c.ask("DELETE", f"/v1/sessions/{session}/buffers/{names_[29 - i]}").status)
        answers.append(c.ask("DELETE", f"/v1/sessions/{session}/buffers/t29").status)

    threads = [threading.Thread(target=write, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not any(t.is_alive() for t in threads)
    assert set(answers) <= {200, 201, 204, 404} and len(answers) == 184
    assert put(daemon, session, bodies[0]).expect(201).json()["tensors"] == 30  # at least t29 was deleted last
    assert names(daemon, session) == sorted(names_)


def test_survives_a_kill(start, tmp_path):
    """All acknowledged records are durable; the bytes are lost and marked so."""
    d = start(state=str(tmp_path))
    put(d, "default", safetensors.numpy.save(model())).expect(201)
    d.kill()
    d.clean()
    d = start(state=str(tmp_path))
    items = d.get("/v1/sessions/default/buffers")["items"]
    assert {b["name"]: b["state"] for b in items} == {n: "lost" for n in model()}
    assert "layer." in get(d, "default").problem(410, "content_lost")["detail"]
    put(d, "default", safetensors.numpy.save(model())).expect(200)
    equal(load(d, "default"), model())
