"""Several daemons as one: nodes, where sessions are, and clients that follow a session to its owner."""
from __future__ import annotations

import os
import threading
import time
from types import TracebackType
from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar, Union, cast

from . import _tls
from ._address import Address, of_url
from ._asker import Asker, given, path_of
from ._epochs import Epochs
from ._retry import SAFE
from ._http import Answer, Piece, Progress, Transport
from .client import Client
from .errors import BadArgument, Error, NodeUnreachable, OwnerAbsent, OwnerUnknown, Superseded, Unreachable, not_pickled
from .types import (FleetSession, FleetState, FleetStats, Kept, ListedSession, Moved, Node, Owner, Placed, QuotaGiven,
                    Target, Tenant)

T = TypeVar("T")
PLACE_S = 10.0  # as many seconds as the node that places may wait for others
MOVE_S = 3600
ORDER_S = 60.0  # in which an order reaches a node that has no address


class Fleet:
    """The nodes of a fleet.

    Args:
        urls: addresses of any nodes, as a list or with commas between them; default ``GPUBUF_FLEET``. They are asked in
            this order until one answers, beginning with the one that answered last.
        token, timeout, cacert, cert, key, plain_token: as of :class:`gpubuf.Client`. Nodes that do not know the token
            are reached by way of one that does.

    Any thread may use it. It can be used in a ``with`` statement.
    """

    def __init__(self, urls: Union[str, Sequence[str], None] = None, token: Optional[str] = None, *,
                 timeout: float = 120.0, cacert: Optional[str] = None, cert: Optional[str] = None,
                 key: Optional[str] = None, plain_token: bool = False) -> None:
        named = urls if urls is not None else os.environ.get("GPUBUF_FLEET") or ""
        listed = [url for url in named.replace(",", " ").split() if url] if isinstance(named, str) else list(named)
        if not listed:
            raise BadArgument("a fleet takes the address of at least one node: Fleet(urls) or GPUBUF_FLEET")
        self._token = token if token is not None else os.environ.get("GPUBUF_TOKEN") or None
        self._plain = plain_token or os.environ.get("GPUBUF_PLAIN_TOKEN") == "1"
        self._timeout, self._tls = timeout, (cacert, cert, key)
        self._epochs = Epochs()  # clients of sessions have them, too
        self._nodes = [Asker(self._transport(of_url(url)), "default") for url in listed]
        self._first = 0

    def __reduce__(self) -> Any:
        raise not_pickled(self, "give the other process its addresses, and call Fleet(urls) there")

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"gpubuf.Fleet({[str(node._transport.address) for node in self._nodes]!r})"

    def close(self) -> None:
        """Closes the connections. Clients of sessions have their own, and stay."""
        for node in self._nodes:
            node._transport.close()

    # --- nodes --------------------------------------------------------------------------------------------------------

    def about(self) -> FleetState:
        """What the node that answers is in its fleet."""
        return cast(FleetState, self._any(lambda node: node._get(path_of("fleet"))))

    def nodes(self) -> List[Node]:
        """All nodes that are registered, those that are not alive included."""
        return cast(List[Node], self._any(lambda node: node._get(path_of("fleet", "nodes"))["items"]))

    def node(self, name: str) -> Node:
        """One node."""
        return cast(Node, self._any(lambda node: node._get(path_of("fleet", "nodes", name))))

    def drain(self, name: str) -> Node:
        """Has new sessions placed elsewhere. Needs scope admin."""
        return self._set_draining(name, True)

    def undrain(self, name: str) -> Node:
        """Ends the effect of drain. Needs scope admin."""
        return self._set_draining(name, False)

    def _set_draining(self, name: str, draining: bool) -> Node:
        path = path_of("fleet", "nodes", name, "drain" if draining else "undrain")
        node = self._any(lambda asked: asked._post(path))
        if "order" not in node:
            return cast(Node, node)
        return self._heard(lambda: self.node(name), lambda told: told["draining"] == draining, ORDER_S, name)

    def _heard(self, look: Callable[[], T], done: Callable[[T], bool], within_s: float, name: str) -> T:
        """What a node that has no address does when it has heard an order."""
        end = time.monotonic() + within_s
        while not done(seen := look()):
            if time.monotonic() > end:
                raise NodeUnreachable(f"the node {name!r} was told, and has not done it in {within_s:.0f} s")
            time.sleep(0.2)
        return seen

    def forget(self, name: str) -> None:
        """Takes a node that is not alive, and its sessions, out of the directory. Needs scope admin."""
        self._any(lambda node: node._json("DELETE", path_of("fleet", "nodes", name)))

    def stats(self) -> FleetStats:
        """Sums over all nodes, and which did not answer."""
        return cast(FleetStats, self._any(lambda node: node._get(path_of("fleet", "stats"))))

    def targets(self) -> List[Target]:
        """The nodes as Prometheus's http_sd takes them."""
        return cast(List[Target], self._any(lambda node: node._get(path_of("fleet", "targets"))))

    # --- sessions -----------------------------------------------------------------------------------------------------

    def sessions(self, node: Optional[str] = None) -> List[FleetSession]:
        """The sessions that are registered, or those of one node."""
        return cast(List[FleetSession], self._any(lambda asked: asked._all(path_of("fleet", "sessions"),
                                                                           given(node=node))))

    def where(self, name: str) -> Owner:
        """The owner of a session. Raises SessionNotFound only if the directory confirms it."""
        found = cast(Owner, self._any(lambda node: node._get(path_of("fleet", "sessions", name))))
        self._epochs.rise(name, found.get("epoch") or 0)
        return found

    def tenants(self) -> List[Tenant]:
        """The tenants, whose sessions have a limit together: the sum of their quotas."""
        return cast(List[Tenant], self._any(lambda node: node._get(path_of("fleet", "tenants")))["items"])

    def set_tenant(self, name: str, limit_bytes: Optional[int]) -> Tenant:
        """Makes a tenant, or changes its limit; None: no limit. Needs scope admin."""
        path = path_of("fleet", "tenants", name)
        return cast(Tenant, self._any(lambda node: node._json("PUT", path, None, {"limit_bytes": limit_bytes})[1]))

    def delete_tenant(self, name: str) -> None:
        """Removes a tenant; its sessions stay. Needs scope admin."""
        self._any(lambda node: node._json("DELETE", path_of("fleet", "tenants", name)))

    def copies(self) -> List[Kept]:
        """What the node that answers keeps of other nodes' sessions. ``Client.sessions.copies`` gives the nodes that
        keep some of one."""
        return cast(List[Kept], self._any(lambda node: node._get(path_of("fleet", "copies")))["items"])

    def place(self, name: str, *, select: Optional[Mapping[str, str]] = None, quota: Optional[QuotaGiven] = None,
              labels: Optional[Mapping[str, str]] = None, idle_ttl_s: Optional[int] = None,
              durability: Optional[str] = None, spill: Optional[str] = None, priority: Optional[int] = None,
              on_partition: Optional[str] = None, failover_after_s: Optional[int] = None,
              replicas: Optional[int] = None, tenant: Optional[str] = None) -> Placed:
        """Makes a session at a node that has room for its quota, and registers it. ``session`` gives a client of it.

        Args:
            select: labels that the node must have.
            on_partition: what the owner does while it is cut off from the directory: ``serve`` (the default) or
                ``stop``.
            failover_after_s, replicas, tenant, quota, labels, idle_ttl_s, durability, spill, priority: as of
                ``Client.sessions.create``."""
        body = given(name=name, select=select, quota=quota, labels=labels, idle_ttl_s=idle_ttl_s, durability=durability,
                     spill=spill, priority=priority, on_partition=on_partition, failover_after_s=failover_after_s,
                     replicas=replicas, tenant=tenant)
        placed = cast(Placed, self._any(lambda node: node._post(path_of("fleet", "sessions"), body, patience=PLACE_S),
                                        once=True))
        self._epochs.made(name, (placed.get("fleet") or {}).get("epoch") or 0)
        return placed

    def move(self, name: str, to: Optional[str] = None, *, select: Optional[Mapping[str, str]] = None) -> Moved:
        """Brings a session to another node, with pools, streams and buffers, and returns when it is there, which may
        take minutes. Its owner serves on meanwhile. Writers wait for a moment, five seconds at most, and get
        SessionMoving; entity tags begin again. Needs scope admin.

        Args:
            to: the node; None: the fleet chooses one that does not drain.
            select: labels that the node must have, without ``to``."""
        path = path_of("fleet", "sessions", name, "move")
        moved = cast(Moved, self._any(lambda node: node._post(path, given(to=to, select=select), patience=MOVE_S),
                                      once=True))
        if "order" in moved:
            there = self._heard(lambda: self.where(name), lambda found: found["node"] == to, MOVE_S, str(to))
            moved = Moved(name=name, node=there["node"], epoch=there["epoch"])
        self._epochs.rise(name, moved.get("epoch") or 0)
        return moved

    def take(self, name: str, *, empty: bool = False) -> ListedSession:
        """Makes a node the owner of a session whose owner is not alive: the first node of this fleet that answers, so
        that ``Fleet(url).take(name)`` says which it is. The session begins with the copies of sealed buffers that the
        node has, else empty; if others have some, it raises CopiesRemain unless ``empty`` is true. The former owner
        sets aside what it has when it is back. Raises NodeAlive if the owner is alive. Needs scope admin."""
        path = path_of("fleet", "sessions", name, "take")
        taken = cast(ListedSession, self._any(lambda node: node._post(path, given(force=True, empty=empty or None)),
                                              once=True))
        self._epochs.rise(name, (taken.get("fleet") or {}).get("epoch") or 0)
        return taken

    def delete(self, name: str) -> None:
        """Takes a session whose owner is not alive out of the directory for good: the owner sets it aside when it is
        back. Raises NodeAlive if the owner is alive: ``session(name).sessions.delete()`` asks that. Needs scope
        admin."""
        self._any(lambda node: node._json("DELETE", path_of("fleet", "sessions", name), {"force": True}))

    def session(self, name: str) -> Client:
        """A client of the session's owner. It asks the directory again if the owner redirects, is not reached, was
        superseded, or does not have the session, and makes the request once more; one whose outcome is unknown is
        repeated only if it reads. Mappings take the UNIX socket of a daemon on this machine."""
        return cast(Client, Client._over(_OwnerTransport(self, name), name, os.environ.get("GPUBUF_SOCKET") or None))

    # --- within -------------------------------------------------------------------------------------------------------

    def _transport(self, address: Address) -> Transport:
        if self._token is not None and not self._plain:
            _tls.check_token_road(address)
        transport = Transport(address, self._token, self._timeout, _tls.Trust(*self._tls) if address.tls else None)
        transport.files, transport.epochs = self._tls, self._epochs
        return transport

    def _any(self, ask: Callable[[Asker], T], once: bool = False) -> T:
        """The answer of the first node that is reached. once: a request that may have been carried out is not
        repeated."""
        first, count = self._first, len(self._nodes)
        for i in range(count):
            at = (first + i) % count
            try:
                result = ask(self._nodes[at])
            except Unreachable as e:
                if i + 1 == count or (once and e.asked):
                    raise
                continue
            self._first = at
            return result
        raise AssertionError("a fleet has a node")

    def _usual(self) -> Address:
        """The node that answered last."""
        return self._nodes[self._first]._transport.address

    def _owner(self, name: str) -> Tuple[Optional[Address], bool]:
        """The address of the session's owner, and whether it takes the token. Without either, requests go by way of the
        usual node, which redirects."""
        found = self.where(name)
        url = str(found.get("url") or "").partition("/v1/sessions/")[0]
        if not found.get("owner_alive") or not url:
            return None, True
        try:
            there = self._transport(of_url(url))
        except BadArgument:  # the token may not go there over plain http
            return None, False
        try:
            there.ask("HEAD", "/v1").close()
        except Error as e:
            return None, e.status != 401
        finally:
            there.close()
        return there.address, True


class _OwnerTransport(Transport):
    """Connections to the owner of one session, wherever that is."""

    def __init__(self, fleet: Fleet, session: str) -> None:
        path_of(session)
        self._fleet, self._session = fleet, session
        self._lost = False  # the owner may be another one
        self._takes = True  # the owner may take the token
        self._moving = threading.Lock()
        self._past: List[Any] = []  # connections of other threads to former owners: an answer may be under way there
        super().__init__(fleet._usual(), fleet._token, fleet._timeout, fleet._nodes[fleet._first]._transport.trust)
        self.files, self.epochs = fleet._tls, fleet._epochs
        self._resolve()

    def _redirected(self) -> None:
        self._lost = self._takes  # the session is elsewhere: the next request goes there at once

    def _resolve(self) -> None:
        """Finds the owner. Raises what the directory says."""
        with self._moving:
            owner, self._takes = self._fleet._owner(self._session)
            address = owner if owner is not None else self._fleet._usual()
            if address != self.address:
                usual = self._fleet._transport(address)
                self._past.append(self._local)
                self.address, self.trust, self._local = address, usual.trust, threading.local()
            self._lost = False

    def ask(self, method: str, target: str, headers: Optional[Mapping[str, str]] = None,
            body: Optional[Sequence[Piece]] = None, progress: Optional[Progress] = None, patience: float = 0) -> Answer:
        if self._lost:
            self._resolve()
        try:
            return super().ask(method, target, headers, body, progress, patience)
        except (OwnerUnknown, OwnerAbsent, Superseded):  # nothing was done
            self._resolve()
        except Unreachable as e:
            if e.asked and method not in SAFE:
                self._lost = True
                raise
            self._resolve()
        return super().ask(method, target, headers, body, progress, patience)
