"""Repetition of requests, as the daemon's errors permit it: ``retryable`` says whether, and Retry-After when."""
from __future__ import annotations

import random
import uuid
from time import sleep
from typing import Callable, Dict, Mapping, TypeVar

from .errors import BadArgument, BrokenAnswer, Error, NotLoaded, TimedOut, Unreachable

T = TypeVar("T")
PAUSE_S, PAUSE_MAX_S = 0.1, 5.0  # before the first repetition and at most, where the daemon names no time
SAFE = ("GET", "HEAD")
KEYED = ("POST", "PATCH", "DELETE")  # a repetition with the same Idempotency-Key gets the first answer
# They have remedies of their own: a load, and a longer wait.
APART = (NotLoaded, TimedOut)


class Retry:
    """How often a request is repeated."""

    def __init__(self, retries: int) -> None:
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise BadArgument(f"retries is a whole number of at least 0, not {retries!r}")
        self.retries = retries

    def permits(self, turn: int, error: Error, repeatable: bool = True) -> bool:
        """True if a request that failed for the (turn + 1)th time is to be repeated. repeatable: it does no harm if it
        was carried out and the answer was lost."""
        if turn >= self.retries or not error.retryable or isinstance(error, APART):
            return False
        lost = isinstance(error, BrokenAnswer) or (isinstance(error, Unreachable) and error.asked)
        return repeatable or not lost

    def pause(self, turn: int, error: Error) -> None:
        if error.retry_after is not None:
            sleep(error.retry_after)
        else:
            sleep(min(PAUSE_S * 2 ** min(turn, 10), PAUSE_MAX_S) * random.uniform(0.5, 1))

    def run(self, work: Callable[[], T], repeatable: bool = True) -> T:
        """Does the work, again if its error permits."""
        turn = 0
        while True:
            try:
                return work()
            except Error as e:
                if not self.permits(turn, e, repeatable):
                    raise
                self.pause(turn, e)
                turn += 1

    def fields(self, method: str, given: Mapping[str, str]) -> Dict[str, str]:
        """The header fields of a request, with a key if it may be repeated."""
        fields = dict(given)
        if self.retries and method in KEYED and "Upload-Offset" not in fields:
            fields.setdefault("Idempotency-Key", uuid.uuid4().hex)
        return fields

    @staticmethod
    def repeatable(method: str, fields: Mapping[str, str]) -> bool:
        """True for a request that does no harm if it is carried out twice. A condition would refuse what the first had
        done."""
        conditional = "If-Match" in fields or "If-None-Match" in fields
        return method in SAFE or "Idempotency-Key" in fields or (method == "PUT" and not conditional)
