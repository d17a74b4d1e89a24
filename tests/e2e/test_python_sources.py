"""client.pull: the daemon brings bytes from a server's URL, or from a file of its machine."""
import asyncio
import base64
import hashlib

import numpy as np
import pytest

from pyclient import client_of, gpubuf
from sources import Own
from test_tables import META, file, some
from values import npy

GOOD = file(some(), META)


@pytest.fixture
def place(start, tmp_path):
    """(server, client of a daemon that may copy from it and from tmp_path)"""
    server = Own(GOOD)
    d = start("--pull-from", server.origin, "--files-from", str(tmp_path))
    with client_of(d, "default") as c:
        yield server, c
    server.stop()


def test_from_a_url(place):
    server, c = place
    made = c.pull("m", url=server.origin + "/m.safetensors", labels={"a": "b"}, kind="pinned")
    assert (made["way"], made["kind"], made["labels"]) == ("pull", "pinned", {"a": "b"})
    assert made["pulled"]["etag"] == '"v1"' and made["pulled"]["bytes"] == len(GOOD)
    assert {t["name"] for t in c.list_tensors("m")} == set(some())
    assert (c.get("m", tensor="b") == some()["b"]).all()
    server.content = bytes(range(48))
    c.pull("x", url=server.url, dtype=np.float32, shape=(3, 4), connections=2)
    assert c.get("x").shape == (3, 4) and c.get("x").dtype == np.float32
    server.content = npy(some()["last"])
    c.pull("x", url=server.url)
    assert (c.get("x") == some()["last"]).all()
    c.pull("x", url=server.url, format="raw")
    assert c.info("x")["bytes"] == len(server.content)


def test_from_a_file(place, tmp_path):
    server, c = place
    (tmp_path / "m.safetensors").write_bytes(GOOD)
    made = c.pull("m", file="m.safetensors")
    assert made["dtype"] == "tensors"
    c.pull("m", file="m.safetensors", source_if_match=made["pulled"]["etag"])
    with pytest.raises(gpubuf.SourceChanged):
        c.pull("m", file="m.safetensors", source_if_match='"1-2-3"')
    with pytest.raises(gpubuf.InvalidArgument):
        c.pull("m", file="../x")
    with pytest.raises(gpubuf.SourceNotFound):
        c.pull("m", file="none")
    one = file({"w": np.arange(6, dtype="int16")})
    (tmp_path / "one.safetensors").write_bytes(one)
    assert c.pull("one", file="one.safetensors")["dtype"] == "int16"
    assert c.pull("one", file="one.safetensors", pack=True)["dtype"] == "tensors"


def test_headers_digests_and_tags(place):
    server, c = place
    c.pull("m", url=server.url, headers={"Authorization": "Bearer x"})
    assert server.requests[-1].headers["Authorization"] == "Bearer x"
    sha = {"sha-256": base64.b64encode(hashlib.sha256(GOOD).digest()).decode()}
    tag = c.pull("m", url=server.url, digest=sha)["etag"]
    with pytest.raises(gpubuf.DigestMismatch):
        c.pull("m", url=server.url, digest={"sha-256": base64.b64encode(bytes(32)).decode()})
    c.pull("m", url=server.url, if_match=tag)
    with pytest.raises(gpubuf.PreconditionFailed):
        c.pull("m", url=server.url, if_match=tag)


def test_what_it_refuses(place):
    server, c = place
    for more in ({}, {"url": server.url, "file": "x"}):
        with pytest.raises(gpubuf.BadArgument, match="url, or file"):
            c.pull("m", **more)
    with pytest.raises(gpubuf.InvalidArgument, match="headers"):
        c.pull("m", file="x", headers={"a": "b"})
    with pytest.raises(gpubuf.SourceNotPermitted, match="--pull-from"):
        c.pull("m", url="https://example.org/x")


def test_by_asyncio(place):
    server, c = place

    async def go():
        async with gpubuf.AsyncClient(c) as a:
            return await a.pull("m", url=server.origin + "/m.safetensors")

    assert asyncio.run(go())["dtype"] == "tensors"
