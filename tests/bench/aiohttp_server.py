#!/usr/bin/env python3
"""A good alternative to gpubufd in Python: aiohttp on uvloop, with tensors kept by torch.

An upload is streamed into a pinned tensor that was made beforehand, then copied to the device. A download is one
response made of the tensor's bytes. With ?streamed=1 it is written piece by piece from pinned memory instead."""
import argparse
import asyncio
import json
import socket

import torch
import uvloop
from aiohttp import web

PIECE_BYTES = 1 << 20


class Store:
    def __init__(self, largest_bytes):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.largest_bytes = largest_bytes
        self.idle = []  # pinned tensors for reuse
        self.tensors = {}
        self.uploads = 0
        self.downloads = 0

    def take_pinned(self):
        if self.idle:
            return self.idle.pop()
        return torch.empty(self.largest_bytes, dtype=torch.uint8, pin_memory=self.device == "cuda")


async def put(request):
    store = request.app["store"]
    pinned = store.take_pinned()
    view = memoryview(pinned.numpy())
    at = 0
    async for chunk in request.content.iter_any():
        if at + len(chunk) > len(view):
            raise web.HTTPRequestEntityTooLarge(store.largest_bytes, at + len(chunk))
        view[at:at + len(chunk)] = chunk
        at += len(chunk)
    tensor = pinned[:at].to(store.device, copy=True)
    if store.device == "cuda":
        torch.cuda.synchronize()
    store.tensors[request.match_info["name"]] = tensor
    store.idle.append(pinned)
    store.uploads += 1
    return web.json_response({"bytes": at})


async def get(request):
    store = request.app["store"]
    tensor = store.tensors.get(request.match_info["name"])
    if tensor is None:
        raise web.HTTPNotFound()
    store.downloads += 1
    if "streamed" not in request.query:
        return web.Response(body=tensor.cpu().numpy().tobytes(), content_type="application/octet-stream")
    pinned = store.take_pinned()
    pinned[:tensor.numel()].copy_(tensor)
    view = memoryview(pinned.numpy())[:tensor.numel()]
    response = web.StreamResponse(headers={"Content-Length": str(len(view))})
    await response.prepare(request)
    for at in range(0, len(view), PIECE_BYTES):
        await response.write(view[at:at + PIECE_BYTES])
    await response.write_eof()
    store.idle.append(pinned)
    return response


async def stats(request):
    store = request.app["store"]
    body = {"buffers": len(store.tensors), "bytes": sum(t.numel() for t in store.tensors.values()),
            "uploads": store.uploads, "downloads": store.downloads}
    if store.device == "cuda":
        body["allocated_bytes"] = torch.cuda.memory_allocated()
        body["reserved_bytes"] = torch.cuda.memory_reserved()
    return web.Response(text=json.dumps(body), content_type="application/json")


async def serve(args):
    app = web.Application(client_max_size=1 << 40)
    app["store"] = Store(args.bytes)
    app.add_routes([web.put("/buffers/{name}", put), web.get("/buffers/{name}", get), web.get("/stats", stats)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    await web.SockSite(runner, listener).start()
    print("PORT", listener.getsockname()[1], flush=True)
    await asyncio.Event().wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=64 << 20, help="largest body")
    uvloop.install()
    asyncio.run(serve(parser.parse_args()))


main()
