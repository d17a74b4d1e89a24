"""Sessions, pools, streams, events, devices, operations and leases, as the client's attributes of these names."""
from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, Optional, Union, cast

from ._asker import Asker, Moment, conditions, given, path_of, span
from .errors import Cancelled, SessionExists, TimedOut, error_of
from .types import Device, Event, Exported, Lease, Operation, Pool, Quota, Reuse, Session, Stream

WAIT_S = 60  # the daemon's longest wait of one request


class Sessions(Asker):
    """Namespaces. Where no name is given it is the client's own."""

    def list(self) -> List[Session]:
        """All sessions."""
        return cast(List[Session], self._all(path_of("sessions")))

    def create(self, name: str, *, labels: Optional[Mapping[str, str]] = None, quota: Optional[Quota] = None,
               idle_ttl_s: Optional[int] = None, exist_ok: bool = False) -> Session:
        """Makes a session; with exist_ok gives the one that is there, as it is."""
        try:
            body = given(name=name, labels=labels, quota=quota, idle_ttl_s=idle_ttl_s)
            return cast(Session, self._tagged("POST", path_of("sessions"), None, body))
        except SessionExists:
            if not exist_ok:
                raise
            return self.get(name)

    def get(self, name: Optional[str] = None) -> Session:
        """One session."""
        return cast(Session, self._tagged("GET", self._below(session=name)))

    def update(self, name: Optional[str] = None, *, labels: Optional[Mapping[str, Optional[str]]] = None,
               quota: Optional[Quota] = None, idle_ttl_s: Optional[int] = None, if_match: Optional[str] = None) -> Session:
        """Changes what is given; a label of None is removed."""
        body = given(labels=labels, quota=quota, idle_ttl_s=idle_ttl_s)
        return cast(Session, self._tagged("PATCH", self._below(session=name), None, body, conditions(if_match)))

    def delete(self, name: Optional[str] = None, *, if_match: Optional[str] = None) -> None:
        """Removes a session with all that is in it, in stream order."""
        self._json("DELETE", self._below(session=name), headers=conditions(if_match))

    def heartbeat(self, name: Optional[str] = None) -> Dict[str, Any]:
        """Says that the session is in use: its idle time begins anew."""
        return cast(Dict[str, Any], self._post(self._below("heartbeat", session=name)))

    def stats(self, name: Optional[str] = None, *, since: Optional[Moment] = None, until: Optional[Moment] = None,
              step: Optional[float] = None) -> Dict[str, Any]:
        """Its transfers, allocations and buffers; with one of the three its past (see ``Client.stats``)."""
        return cast(Dict[str, Any], self._get(self._below("stats", session=name), span(since, until, step)))

    def sync(self, name: Optional[str] = None, *, wait: Optional[float] = None) -> None:
        """Waits until all its queued work is done; TimedOut after wait seconds (default 30, at most 60)."""
        self._post(self._below("sync", session=name), headers=conditions(wait=wait), patience=wait or 30)


class Pools(Asker):
    """Stream-ordered memory: the device's own (default, default.N) and the session's."""

    def list(self) -> List[Pool]:
        """All pools that the session can use."""
        return cast(List[Pool], self._all(self._below("pools")))

    def create(self, name: str, *, device: Union[int, str, None] = None, max_bytes: Optional[int] = None,
               release_threshold_bytes: Optional[int] = None, reuse: Optional[Reuse] = None,
               exportable: Optional[bool] = None) -> Pool:
        """Makes a pool. exportable: its buffers can be mapped by other processes."""
        body = given(name=name, device=device, max_bytes=max_bytes, release_threshold_bytes=release_threshold_bytes,
                     reuse=reuse, exportable=exportable)
        return cast(Pool, self._post(self._below("pools"), body))

    def get(self, name: str = "default") -> Pool:
        """One pool, with what it holds and held at most."""
        return cast(Pool, self._get(self._below("pools", name)))

    def update(self, name: str, *, release_threshold_bytes: Optional[int] = None, reuse: Optional[Reuse] = None) -> Pool:
        """Changes what is given."""
        body = given(release_threshold_bytes=release_threshold_bytes, reuse=reuse)
        return cast(Pool, self._json("PATCH", self._below("pools", name), None, body)[1])

    def delete(self, name: str, *, force: bool = False) -> None:
        """Removes a pool; with force also while buffers live in it, which are then lost."""
        self._json("DELETE", self._below("pools", name), {"force": True} if force else None)

    def trim(self, name: str = "default", *, keep_bytes: int = 0) -> Pool:
        """Gives memory that nobody uses back to the device; released_bytes says how much."""
        return cast(Pool, self._post(self._below("pools", name, "trim"), {"keep_bytes": keep_bytes}))

    def reset_peak(self, name: str = "default") -> Pool:
        """Lets the peaks begin anew from what is in use."""
        return cast(Pool, self._post(self._below("pools", name, "reset-peak")))

    def stats(self, name: str = "default", *, since: Optional[Moment] = None, until: Optional[Moment] = None,
              step: Optional[float] = None) -> Dict[str, Any]:
        """What it holds and did; with one of the three its past (see ``Client.stats``)."""
        return cast(Dict[str, Any], self._get(self._below("pools", name, "stats"), span(since, until, step)))

    def access(self, name: str, device: Union[int, str], access: str) -> Pool:
        """Lets another device reach the pool's memory (read_write), or no longer (none)."""
        return cast(Pool, self._post(self._below("pools", name, "access"), {"device": device, "access": access}))


class Streams(Asker):
    """Named orders of work of the session; the stream default is always there."""

    def list(self) -> List[Stream]:
        """All streams."""
        return cast(List[Stream], self._all(self._below("streams")))

    def create(self, name: str) -> Stream:
        """Makes a stream."""
        return cast(Stream, self._post(self._below("streams"), {"name": name}))

    def get(self, name: str = "default") -> Stream:
        """One stream; busy says whether work is queued on it."""
        return cast(Stream, self._get(self._below("streams", name)))

    def delete(self, name: str) -> None:
        """Removes a stream once its work is done."""
        self._json("DELETE", self._below("streams", name))

    def sync(self, name: str = "default", *, wait: Optional[float] = None) -> Stream:
        """Waits until its queued work is done; TimedOut after wait seconds (default 30, at most 60)."""
        path = self._below("streams", name, "sync")
        return cast(Stream, self._post(path, headers=conditions(wait=wait), patience=wait or 30))


class Events(Asker):
    """Points in the order of a stream."""

    def list(self) -> List[Event]:
        """All events of the session."""
        return cast(List[Event], self._all(self._below("events")))

    def create(self, name: str) -> Event:
        """Makes an event."""
        return cast(Event, self._post(self._below("events"), {"name": name}))

    def get(self, name: str) -> Event:
        """One event; done says whether what it was recorded after is done."""
        return cast(Event, self._get(self._below("events", name)))

    def delete(self, name: str) -> None:
        """Removes an event."""
        self._json("DELETE", self._below("events", name))

    def record(self, name: str, stream: Optional[str] = None) -> Event:
        """Records it on a stream, after all that is queued there."""
        return cast(Event, self._post(self._below("events", name, "record"), given(stream=stream)))

    def wait(self, name: str, stream: Optional[str] = None) -> Event:
        """Lets a stream wait for it, on the device; does not wait itself."""
        return cast(Event, self._post(self._below("events", name, "wait"), given(stream=stream)))


class Devices(Asker):
    """GPUs, by index or UUID."""

    def list(self) -> List[Device]:
        """All devices of the daemon."""
        return cast(List[Device], self._get(path_of("devices"))["items"])

    def get(self, device: Union[int, str] = 0) -> Device:
        """One device: its memory, the kinds of memory it has, what it can do and why not."""
        return cast(Device, self._get(path_of("devices", str(device))))

    def stats(self, device: Union[int, str] = 0, *, since: Optional[Moment] = None, until: Optional[Moment] = None,
              step: Optional[float] = None) -> Dict[str, Any]:
        """Its memory and how it is; with one of the three its past (see ``Client.stats``)."""
        return cast(Dict[str, Any], self._get(path_of("devices", str(device), "stats"), span(since, until, step)))

    def sync(self, device: Union[int, str] = 0, *, wait: Optional[float] = None) -> None:
        """Waits until all work queued on it is done; TimedOut after wait seconds (default 30, at most 60)."""
        self._post(path_of("devices", str(device), "sync"), headers=conditions(wait=wait), patience=wait or 30)


class Operations(Asker):
    """Work that was left to itself (respond_async=True)."""

    def list(self, *, state: Optional[str] = None, all_sessions: bool = False) -> List[Operation]:
        """Operations of this session, or of all that the token may see; their results and problems are in get() alone."""
        query = given(state=state, session=None if all_sessions else self._session)
        return cast(List[Operation], self._all(path_of("operations"), query))

    def get(self, operation: Union[str, Operation]) -> Operation:
        """One operation as it is now."""
        return self._look(operation, None)

    def _look(self, operation: Union[str, Operation], wait: Optional[float]) -> Operation:
        name = operation if isinstance(operation, str) else operation["id"]
        return cast(Operation, self._get(path_of("operations", name), headers=conditions(wait=wait), patience=wait or 0))

    def wait(self, operation: Union[str, Operation], timeout: Optional[float] = None) -> Operation:
        """Waits for the end of an operation, and raises what it failed with. TimedOut after timeout seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        if not isinstance(operation, str) and not operation["id"]:
            return operation  # was over at once
        while True:
            left = WAIT_S if end is None else max(0.0, end - time.monotonic())
            # Whole seconds: less than one is waited by asking again.
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
        """Cancels one that is still queued."""
        name = operation if isinstance(operation, str) else operation["id"]
        return cast(Operation, self._json("DELETE", path_of("operations", name))[1])


class Leases(Asker):
    """Who maps what."""

    def list(self) -> List[Lease]:
        """All leases that the token may see."""
        return cast(List[Lease], self._all(path_of("leases")))

    def get(self, lease: Union[str, Lease]) -> Lease:
        """One lease as it is now; state tells what has become of the bytes. LeaseNotFound when it has ended."""
        return cast(Lease, self._get(path_of("leases", lease if isinstance(lease, str) else lease["lease"])))

    def end(self, lease: Union[str, Lease, Exported]) -> None:
        """Ends another's lease, which takes scope admin, or an export, once its importers have let go. One's own mapping ends with
        Mapping.unmap()."""
        self._json("DELETE", path_of("leases", lease if isinstance(lease, str) else lease["lease"]))
