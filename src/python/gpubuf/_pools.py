"""Pools of daemons that this process has imported: one import for each pool and device, as long as a mapping uses
it."""
from __future__ import annotations

import threading
from typing import Callable, Dict, Generic, Hashable, Tuple, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """Things by key, each made by its first user and undone by its last one."""

    def __init__(self) -> None:
        # Reentrant: the garbage collector may end a mapping in the thread that holds it, at any moment.
        self._lock = threading.RLock()
        self._things: Dict[Hashable, Tuple[T, Callable[[], None]]] = {}
        self._users: Dict[Hashable, int] = {}

    def take(self, key: Hashable, make: Callable[[], Tuple[T, Callable[[], None]]]) -> T:
        """The thing of that key; make returns a new one, and what undoes it."""
        with self._lock:
            self._users[key] = self._users.get(key, 0) + 1  # first: from now on it stays
            try:
                if key not in self._things:
                    self._things[key] = make()
                return self._things[key][0]
            except BaseException:
                self._leave(key)
                raise

    def leave(self, key: Hashable) -> None:
        with self._lock:
            self._leave(key)

    def _leave(self, key: Hashable) -> None:
        self._users[key] -= 1
        if self._users[key] > 0:
            return
        del self._users[key]
        found = self._things.pop(key, None)
        if found is not None:
            found[1]()
