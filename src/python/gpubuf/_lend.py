"""Memory of this process on a GPU that is lent to the daemon for a transfer: adopted as a buffer, from or into which
the daemon copies.

Adoption takes the daemon about as long as a copy of a gigabyte. What was lent therefore stays lent for a short time, so
that the next transfer of the same array is one copy. Until then the array is kept alive, because CUDA permits memory to
be freed only after its importers have closed it.
"""
from __future__ import annotations

import math
import threading
import time
import uuid
from contextlib import contextmanager
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import _cuda
from ._gpu import Tensor
from .adoption import Adoption

KEEP_S = 0.5  # after the last transfer
KEEP_BYTES = 4 << 30  # of all arrays that stay lent; what is more is given back after its transfer
ALIGNMENT = 8  # of the place in an allocation where a buffer may begin

Adopt = Callable[[str, Tensor, int], Adoption]
Key = Tuple[str, int, int, int]


class Lent(NamedTuple):
    """A buffer of the daemon over an array's memory, which begins at a byte of it."""

    name: str
    at: int


class _Loan:
    def __init__(self, adoption: Adoption, lent: Lent, tensor: Tensor) -> None:
        self.adoption, self.lent, self.tensor = adoption, lent, tensor
        self.users, self.end = 0, 0.0

    def give_back(self) -> None:
        self.adoption.release()
        self.tensor = self.tensor._replace(owner=None)


class Lending:
    """What a client has lent. Any thread may use it."""

    def __init__(self) -> None:
        self._loans: Dict[Key, _Loan] = {}
        self._changed = threading.Condition(threading.RLock())
        self._thread: Optional[threading.Thread] = None
        self.refused: Optional[Exception] = None  # why this daemon takes nothing of this process

    @contextmanager
    def of(self, session: str, tensor: Tensor, adopt: Adopt) -> Iterator[Lent]:
        """The array's memory as a buffer of the session. adopt makes it one: of that name, and with that many bytes
        before the array."""
        key = (session, _cuda.load().allocation_at(tensor.pointer), tensor.pointer, tensor.nbytes)
        loan = self._take(key) or self._lend(key, tensor, adopt)
        try:
            yield loan.lent
        except BaseException:
            self._leave(key, loan, keep=False)
            raise
        self._leave(key, loan, keep=True)

    def _take(self, key: Key) -> Optional[_Loan]:
        with self._changed:
            loan = self._loans.get(key)
            if loan is None or not loan.adoption.alive:
                return None
            loan.users += 1
            return loan

    def _lend(self, key: Key, tensor: Tensor, adopt: Adopt) -> _Loan:
        before, name = tensor.pointer % ALIGNMENT, f"gpubuf.lent.{uuid.uuid4().hex}"
        loan = _Loan(adopt(name, tensor, before), Lent(name, before), tensor)
        loan.users = 1
        with self._changed:
            self._loans.setdefault(key, loan)  # another thread may have lent the same; then this one is not kept
        return loan

    def _leave(self, key: Key, loan: _Loan, keep: bool) -> None:
        with self._changed:
            loan.users -= 1
            self._changed.notify_all()
            loan.end = time.monotonic() + KEEP_S
            ours = self._loans.get(key) is loan
            kept = sum(other.tensor.nbytes for other in self._loans.values())
            if ours and keep and KEEP_S > 0 and kept <= KEEP_BYTES:
                self._watch()
                return
            if ours and loan.users == 0:
                del self._loans[key]
            if loan.users > 0:
                return
        loan.give_back()

    def _pop_idle(self, now: float) -> List[_Loan]:
        """Takes the loans that no transfer uses and whose time has ended. The caller holds the lock."""
        over = [key for key, loan in self._loans.items() if loan.users == 0 and loan.end <= now]
        return [self._loans.pop(key) for key in over]

    def _watch(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gpubuf-lent", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        """Gives back what was not used for a while, and ends when nothing is lent."""
        while True:
            with self._changed:
                now = time.monotonic()
                over = self._pop_idle(now)
                if not over and not self._loans:
                    self._thread = None
                    return
                if not over:
                    ends = [loan.end for loan in self._loans.values() if loan.users == 0]
                    self._changed.wait(min(ends) - now if ends else None)
            for loan in over:
                loan.give_back()

    def close(self) -> None:
        """Gives all back that no transfer uses."""
        with self._changed:
            idle = self._pop_idle(math.inf)
            self._changed.notify_all()
        for loan in idle:
            loan.give_back()
