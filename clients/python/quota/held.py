"""Denials that say when to come again: until then the same question need not be asked."""

from __future__ import annotations

import threading
from typing import Generic, Hashable, TypeVar

T = TypeVar("T")


class Held(Generic[T]):
    """At most `most` denials, each for at most `longest` seconds. Safe for use by several threads.

    The bound on time matters: an operator may raise a limit, or another request give units back, before
    the time that a denial stated.
    """

    def __init__(self, most: int, longest: float) -> None:
        self._most, self._longest = most, longest
        self._until: dict[Hashable, tuple[float, T]] = {}  # the oldest first
        self._lock = threading.Lock()

    def deny(self, key: Hashable, wait: float, denial: T, now: float) -> None:
        """Remembers a denial that asks to stay away for `wait` seconds. Beyond the bound the oldest goes."""
        if wait <= 0 or self._most <= 0:
            return
        with self._lock:
            self._until.pop(key, None)
            if len(self._until) >= self._most:
                del self._until[next(iter(self._until))]
            self._until[key] = (now + min(wait, self._longest), denial)

    def ask(self, key: Hashable, now: float) -> tuple[float, T] | None:
        """The seconds for which a question is still held, and its denial; None where it has to be asked."""
        with self._lock:
            until, denial = self._until.get(key) or (0.0, None)
            if denial is None:
                return None
            if until <= now:
                del self._until[key]
                return None
            return until - now, denial
