"""The client for asyncio: the same client in threads.

Threads and not streams of asyncio: a transfer spends its time in system calls and in the driver, which release the
interpreter's lock; streams would copy each byte once more and do the rest of HTTP, TLS and repetition a second time;
and mappings and CUDA block in any case.
"""
from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Coroutine, Optional, Sequence, Type, TypeVar, Union

from .client import Client
from .errors import BadType, not_pickled
from .types import FeedEvent

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")
T = TypeVar("T")
THREADS = 8


class _Given(Exception):
    """The task that waited for a transfer was cancelled."""


def _awaited(method: "Callable[Concatenate[Client, P], T]") -> (
        "Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]"):
    """The method as a coroutine."""
    async def call(self: "AsyncClient", /, *args: "P.args", **more: "P.kwargs") -> T:
        return await self.run(method, self.client, *args, **more)

    functools.update_wrapper(call, method)
    return call


def _stoppable(method: "Callable[Concatenate[Client, P], T]") -> (
        "Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]"):
    """A transfer as a coroutine; it ends when its task is cancelled."""
    async def call(self: "AsyncClient", /, *args: "P.args", **more: "P.kwargs") -> T:
        stopped, theirs = False, more.get("progress")

        def progress(done: int, total: int) -> None:
            if stopped:
                raise _Given
            if theirs is not None:
                theirs(done, total)  # type: ignore[operator]

        more["progress"] = progress
        try:
            return await self.run(method, self.client, *args, **more)
        except asyncio.CancelledError:
            stopped = True
            raise

    functools.update_wrapper(call, method)
    return call


class AsyncClient:
    """A client whose methods are coroutines; those of :class:`gpubuf.Client`, with the same arguments.

    Args:
        client: the client whose calls these are; without one, ``Client()``. Its collections are reached by ``run``:
            ``await a.run(a.client.pools.list)``.
        threads: as many calls run at a time; others wait. Each thread has its own connection.

    ``async with AsyncClient(gpubuf.Client(...)) as a: await a.put("x", array)``. The task that waits for a put or a get
    may be cancelled: the transfer then ends within 4 MiB, and the buffer is unchanged. Other calls run to their end in
    their thread.
    """

    def __init__(self, client: Optional[Client] = None, *, threads: int = THREADS) -> None:
        client = Client() if client is None else client
        if not isinstance(client, Client):
            raise BadType(f"an AsyncClient is made of a gpubuf.Client, not of a {type(client).__name__}")
        self.client = client
        self._pool = ThreadPoolExecutor(threads, "gpubuf-aio")

    def __reduce__(self) -> Any:
        raise not_pickled(self, "pickle its client, and make another one of that")

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await self.close()

    async def close(self) -> None:
        """Waits for the calls that are under way, and closes the client."""
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)
        self.client.close()

    async def run(self, function: Callable[..., T], *args: Any, **more: Any) -> T:
        """Any call in one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, functools.partial(function, *args, **more))

    put, get = _stoppable(Client.put), _stoppable(Client.get)
    tensors_put, tensors_get = _awaited(Client.tensors_put), _awaited(Client.tensors_get)
    put_state_dict, get_state_dict = _awaited(Client.put_state_dict), _awaited(Client.get_state_dict)
    create, info, list, update, delete = (_awaited(Client.create), _awaited(Client.info), _awaited(Client.list),
                                          _awaited(Client.update), _awaited(Client.delete))
    copy, fill, sync, seal, verify = (_awaited(Client.copy), _awaited(Client.fill), _awaited(Client.sync),
                                      _awaited(Client.seal), _awaited(Client.verify))
    release, pull = _awaited(Client.release), _awaited(Client.pull)
    store, load, evict, map = (_awaited(Client.store), _awaited(Client.load), _awaited(Client.evict),
                               _awaited(Client.map))
    tensors, load_into = _awaited(Client.tensors), _awaited(Client.load_into)
    batch, stats, about, request = (_awaited(Client.batch), _awaited(Client.stats), _awaited(Client.about),
                                    _awaited(Client.request))

    async def feed(self, *, after: Optional[int] = None, type: Union[str, Sequence[str],
                                                                     None] = None) -> AsyncIterator[FeedEvent]:
        """Events, as of ``Client.feed``: ``async for event in a.feed(type="buffer."): ...``. It has a thread of its
        own."""
        pool = ThreadPoolExecutor(1, "gpubuf-aio-feed")
        loop = asyncio.get_running_loop()
        feed = await loop.run_in_executor(pool, functools.partial(self.client.feed, after=after, type=type))
        try:
            while True:
                event = await loop.run_in_executor(pool, functools.partial(next, feed, None))
                if event is None:
                    return
                yield event
        finally:
            feed.close()
            pool.shutdown(wait=False)
