"""The client's attributes sessions, pools, streams, events, devices, operations and leases."""
from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, Optional, Union, cast

from ._asker import Asker, Moment, conditions, given, path_of, span
from .errors import Cancelled, SessionExists, TimedOut, error_of
from .types import (Device, Event, Exported, Hold, Holder, Lease, ListedSession, Operation, Pool, QuotaGiven,
                    ReuseGiven, Session, Stream, Swept)

WAIT_S = 60  # the daemon's longest wait of one request
SWEEP_S = 3600  # what moves the bytes of a session may take as long


class Sessions(Asker):
    """Namespaces. Without a name, methods use the client's own session."""

    def list(self) -> List[ListedSession]:
        """All sessions."""
        return cast(List[ListedSession], self._all(path_of("sessions")))

    def create(self, name: str, *, labels: Optional[Mapping[str, str]] = None, quota: Optional[QuotaGiven] = None,
               idle_ttl_s: Optional[int] = None, durability: Optional[str] = None, spill: Optional[str] = None,
               priority: Optional[int] = None, fleet: Optional[bool] = None, on_partition: Optional[str] = None,
               failover_after_s: Optional[int] = None, replicas: Optional[int] = None, tenant: Optional[str] = None,
               exist_ok: bool = False) -> Session:
        """Makes a session. fleet: registers it in the daemon's fleet; on_partition (serve, stop) is what the daemon
        does while it is cut off from the directory. replicas: nodes that are to have copies of its sealed buffers; with
        on_partition="stop" one of them takes it over when the daemon was away for failover_after_s seconds. tenant:
        whose it is, of the fleet's tenants; it needs quota["bytes"]. durability (none, behind, sync) and spill (never,
        host, disk) are those of buffers that are made without one. Buffers of sessions of a lower priority (0 to 1000)
        leave memory first. With exist_ok, returns an existing session unchanged."""
        try:
            body = given(name=name, labels=labels, quota=quota, idle_ttl_s=idle_ttl_s, durability=durability,
                         spill=spill, priority=priority, fleet=fleet, on_partition=on_partition,
                         failover_after_s=failover_after_s, replicas=replicas, tenant=tenant)
            return cast(Session, self._tagged("POST", path_of("sessions"), None, body))
        except SessionExists:
            if not exist_ok:
                raise
            return self.get(name)

    def copies(self, name: Optional[str] = None) -> List[Holder]:
        """The nodes of the fleet that have copies of its sealed buffers, or are about to."""
        return cast(List[Holder], self._get(self._below("copies", session=name))["items"])

    def get(self, name: Optional[str] = None) -> Session:
        """One session."""
        return cast(Session, self._tagged("GET", self._below(session=name)))

    def update(self, name: Optional[str] = None, *, labels: Optional[Mapping[str, Optional[str]]] = None,
               quota: Optional[QuotaGiven] = None, idle_ttl_s: Optional[int] = None, pool: Optional[str] = None,
               durability: Optional[str] = None, spill: Optional[str] = None, priority: Optional[int] = None,
               replicas: Optional[int] = None, if_match: Optional[str] = None) -> Session:
        """Changes the given settings; a label of None is removed. pool: the current pool of its device from now on;
        "default", "default.1": that device's own again. durability, spill: of buffers that are made from now on without
        one. replicas: nodes that are to have copies of the sealed buffers."""
        body = given(labels=labels, quota=quota, idle_ttl_s=idle_ttl_s, pool=pool, durability=durability, spill=spill,
                     priority=priority, replicas=replicas)
        return cast(Session, self._tagged("PATCH", self._below(session=name), None, body, conditions(if_match)))

    def delete(self, name: Optional[str] = None, *, if_match: Optional[str] = None) -> None:
        """Removes a session with all its contents, in stream order."""
        self._json("DELETE", self._below(session=name), headers=conditions(if_match))

    def heartbeat(self, name: Optional[str] = None) -> Dict[str, Any]:
        """Resets the session's idle timer."""
        return cast(Dict[str, Any], self._post(self._below("heartbeat", session=name)))

    def stats(self, name: Optional[str] = None, *, since: Optional[Moment] = None, until: Optional[Moment] = None,
              step: Optional[float] = None) -> Dict[str, Any]:
        """Its transfers, allocations and buffers. With since, until or step, its history (see ``Client.stats``)."""
        return cast(Dict[str, Any], self._get(self._below("stats", session=name), span(since, until, step)))

    def sync(self, name: Optional[str] = None, *, wait: Optional[float] = None) -> None:
        """Waits until all its queued work is done; TimedOut after wait seconds (default 30, at most 60)."""
        self._post(self._below("sync", session=name), headers=conditions(wait=wait), patience=wait or 30)

    def evict(self, name: Optional[str] = None, *, prefix: Optional[str] = None, to: Optional[str] = None) -> Swept:
        """Takes the bytes of its buffers out of memory, or of those whose names begin with prefix, as ``Client.evict``
        does. Buffers that are refused are skipped."""
        return self._sweep("evict", name, given(prefix=prefix, to=to))

    def load(self, name: Optional[str] = None, *, prefix: Optional[str] = None) -> Swept:
        """Brings the bytes of its buffers from the disk into memory, or of those whose names begin with prefix. Buffers
        that cannot be loaded are skipped."""
        return self._sweep("load", name, given(prefix=prefix))

    def _sweep(self, action: str, name: Optional[str], body: Dict[str, Any]) -> Swept:
        return cast(Swept, self._post(self._below(action, session=name), body, patience=SWEEP_S))


class Pools(Asker):
    """Pools of stream-ordered memory: the device's own (default, default.N) and the session's."""

    def list(self) -> List[Pool]:
        """All pools that the session can use."""
        return cast(List[Pool], self._all(self._below("pools")))

    def create(self, name: str, *, device: Union[int, str, None] = None, max_bytes: Optional[int] = None,
               release_threshold_bytes: Optional[int] = None, reuse: Optional[ReuseGiven] = None,
               exportable: Optional[bool] = None) -> Pool:
        """Makes a pool. release_threshold_bytes: 2**64 - 1 keeps all memory, as without. exportable: its buffers can
        be mapped by other processes."""
        body = given(name=name, device=device, max_bytes=max_bytes, release_threshold_bytes=release_threshold_bytes,
                     reuse=reuse, exportable=exportable)
        return cast(Pool, self._post(self._below("pools"), body))

    def get(self, name: str = "default") -> Pool:
        """One pool, with its present and peak use."""
        return cast(Pool, self._get(self._below("pools", name)))

    def update(self, name: str, *, release_threshold_bytes: Optional[int] = None,
               reuse: Optional[ReuseGiven] = None) -> Pool:
        """Changes what is given."""
        body = given(release_threshold_bytes=release_threshold_bytes, reuse=reuse)
        return cast(Pool, self._json("PATCH", self._below("pools", name), None, body)[1])

    def delete(self, name: str, *, force: bool = False) -> None:
        """Removes a pool. With force, its buffers are lost; without, a pool with buffers is not removed."""
        self._json("DELETE", self._below("pools", name), {"force": True} if force else None)

    def trim(self, name: str = "default", *, keep_bytes: int = 0) -> Pool:
        """Returns unused memory to the device; released_bytes has the amount."""
        return cast(Pool, self._post(self._below("pools", name, "trim"), {"keep_bytes": keep_bytes}))

    def reset_peak(self, name: str = "default") -> Pool:
        """Resets the peaks to the present use."""
        return cast(Pool, self._post(self._below("pools", name, "reset-peak")))

    def stats(self, name: str = "default", *, since: Optional[Moment] = None, until: Optional[Moment] = None,
              step: Optional[float] = None) -> Dict[str, Any]:
        """Its use and its counters. With since, until or step, its history (see ``Client.stats``)."""
        return cast(Dict[str, Any], self._get(self._below("pools", name, "stats"), span(since, until, step)))

    def access(self, name: str, device: Union[int, str], access: str) -> Pool:
        """Permits another device to access the pool's memory (read_write), or revokes that (none)."""
        return cast(Pool, self._post(self._below("pools", name, "access"), {"device": device, "access": access}))


class Streams(Asker):
    """Named streams of the session; the stream "default" always exists."""

    def list(self) -> List[Stream]:
        """All streams."""
        return cast(List[Stream], self._all(self._below("streams")))

    def create(self, name: str) -> Stream:
        """Makes a stream."""
        return cast(Stream, self._post(self._below("streams"), {"name": name}))

    def get(self, name: str = "default") -> Stream:
        """One stream; busy is true while work is queued on it."""
        return cast(Stream, self._get(self._below("streams", name)))

    def delete(self, name: str) -> None:
        """Removes a stream once its work is done."""
        self._json("DELETE", self._below("streams", name))

    def sync(self, name: str = "default", *, wait: Optional[float] = None) -> Stream:
        """Waits until its queued work is done; TimedOut after wait seconds (default 30, at most 60)."""
        path = self._below("streams", name, "sync")
        return cast(Stream, self._post(path, headers=conditions(wait=wait), patience=wait or 30))

    def hold(self, name: str = "default", ms: int = 1000, *, device: Union[int, str] = 0) -> Hold:
        """Keeps its part on the device busy for ms milliseconds, at most 10000, and returns at once. Needs scope
        admin."""
        return cast(Hold, self._post(self._below("streams", name, "hold"), {"ms": ms, "device": device}))


class Events(Asker):
    """Points in the order of a stream."""

    def list(self) -> List[Event]:
        """All events of the session."""
        return cast(List[Event], self._all(self._below("events")))

    def create(self, name: str) -> Event:
        """Makes an event."""
        return cast(Event, self._post(self._below("events"), {"name": name}))

    def get(self, name: str) -> Event:
        """One event; done is true once the work that it was recorded after is done."""
        return cast(Event, self._get(self._below("events", name)))

    def delete(self, name: str) -> None:
        """Removes an event."""
        self._json("DELETE", self._below("events", name))

    def record(self, name: str, stream: Optional[str] = None) -> Event:
        """Records it on a stream, after all work that is queued there."""
        return cast(Event, self._post(self._below("events", name, "record"), given(stream=stream)))

    def wait(self, name: str, stream: Optional[str] = None) -> Event:
        """Lets a stream wait for it, on the device; does not wait itself."""
        return cast(Event, self._post(self._below("events", name, "wait"), given(stream=stream)))

    def sync(self, name: str, *, wait: Optional[float] = None) -> Event:
        """Waits until the work that it was last recorded behind is done; TimedOut after wait seconds (default 30, at
        most 60)."""
        path = self._below("events", name, "sync")
        return cast(Event, self._post(path, headers=conditions(wait=wait), patience=wait or 30))


class Devices(Asker):
    """GPUs, by index or UUID."""

    def list(self) -> List[Device]:
        """All devices of the daemon."""
        return cast(List[Device], self._get(path_of("devices"))["items"])

    def get(self, device: Union[int, str] = 0) -> Device:
        """One device: its memory, its kinds of memory, and its capabilities, with a reason for each missing one."""
        return cast(Device, self._get(path_of("devices", str(device))))

    def stats(self, device: Union[int, str] = 0, *, since: Optional[Moment] = None, until: Optional[Moment] = None,
              step: Optional[float] = None) -> Dict[str, Any]:
        """Its memory and health. With since, until or step, its history (see ``Client.stats``)."""
        return cast(Dict[str, Any], self._get(path_of("devices", str(device), "stats"), span(since, until, step)))

    def sync(self, device: Union[int, str] = 0, *, wait: Optional[float] = None) -> None:
        """Waits until all work queued on it is done; TimedOut after wait seconds (default 30, at most 60)."""
        self._post(path_of("devices", str(device), "sync"), headers=conditions(wait=wait), patience=wait or 30)

    def selftest(self, device: Union[int, str] = 0, *, wait: Optional[float] = None) -> Dict[str, Any]:
        """Rates and microseconds of copies, allocations and pinning on the device; takes seconds. Needs scope admin."""
        path = path_of("devices", str(device), "selftest")
        return cast(Dict[str, Any], self._post(path, headers=conditions(wait=wait), patience=wait or 30))


class Operations(Asker):
    """Asynchronous operations (see ``Client.submit``)."""

    def list(self, *, state: Optional[str] = None, all_sessions: bool = False) -> List[Operation]:
        """Operations of this session, or of all sessions that the token may see. Only get() has their results and
        problems."""
        query = given(state=state, session=None if all_sessions else self._session)
        return cast(List[Operation], self._all(path_of("operations"), query))

    def get(self, operation: Union[str, Operation]) -> Operation:
        """One operation as it is now."""
        return self._look(operation, None)

    def _look(self, operation: Union[str, Operation], wait: Optional[float]) -> Operation:
        name = operation if isinstance(operation, str) else operation["id"]
        return cast(Operation, self._get(path_of("operations", name), headers=conditions(wait=wait),
                                         patience=wait or 0))

    def wait(self, operation: Union[str, Operation], timeout: Optional[float] = None) -> Operation:
        """Waits for the end of an operation, and raises its error if it failed. Raises TimedOut after timeout
        seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        if not isinstance(operation, str) and not operation["id"]:
            return operation  # the operation was done at once
        while True:
            left = WAIT_S if end is None else max(0.0, end - time.monotonic())
            # The daemon waits whole seconds; shorter waits poll.
            now = self._look(operation, min(WAIT_S, int(left)))
            if now["state"] in ("done", "failed", "cancelled"):
                break
            if end is not None and time.monotonic() >= end:
                raise TimedOut(f"the operation {now['id']} is {now['state']} after {timeout:g} s")
            if left < 1:
                time.sleep(min(left, 0.02))
        problem = now.get("problem")
        if problem:
            raise error_of(int(now.get("status") or 500), problem)
        if now["state"] == "cancelled":
            raise Cancelled(f"the operation {now['id']} was cancelled")
        return now

    def cancel(self, operation: Union[str, Operation]) -> Operation:
        """Cancels an operation that is still queued."""
        name = operation if isinstance(operation, str) else operation["id"]
        return cast(Operation, self._json("DELETE", path_of("operations", name))[1])


class Leases(Asker):
    """Leases: the mappings and exports of buffers."""

    def list(self) -> List[Lease]:
        """All leases that the token may see."""
        return cast(List[Lease], self._all(path_of("leases")))

    def get(self, lease: Union[str, Lease]) -> Lease:
        """One lease as it is now; state describes the mapped bytes. Raises LeaseNotFound if the lease has ended."""
        return cast(Lease, self._get(path_of("leases", lease if isinstance(lease, str) else lease["lease"])))

    def end(self, lease: Union[str, Lease, Exported]) -> None:
        """Ends a lease of another process, which needs scope admin, or an export, after its importers have closed it. A
        mapping of this process ends with Mapping.unmap()."""
        self._json("DELETE", path_of("leases", lease if isinstance(lease, str) else lease["lease"]))
