"""When a call is made again."""

from __future__ import annotations

from dataclasses import dataclass

AGAIN = frozenset({429, 502, 503, 504})  # statuses after which the same call may succeed


@dataclass(frozen=True)
class Backoff:
    """Full jitter: the wait is what the server asks for, and a random part of base * 2^attempt."""

    retries: int = 2  # calls beyond the first
    base: float = 0.05  # seconds, of the first retry
    longest: float = 1.0  # seconds that the random part may reach

    def wait(
        self, *, attempt: int, again: bool, stated: float | None, left: float, place: float
    ) -> float | None:
        """Seconds before the call is made again; None if it is not.

        attempt counts from 0; again says whether the outcome allows it at all; left is what is left of the
        call's time; place is random in [0, 1). A wait that might not end in time is not begun.
        """
        spread = min(self.longest, self.base * 2.0 ** min(attempt, 62))
        if not again or attempt >= self.retries or (stated or 0) + spread > left:
            return None
        return (stated or 0) + spread * place


def may_repeat(*, repeatable: bool, status: int = 0, failure: str = "") -> bool:
    """Whether an outcome allows the call to be made again: a status, or a failure without one.

    What was never sent ("connect") always may; else only what does no harm twice.
    """
    return failure == "connect" or (repeatable and (failure == "lost" or status in AGAIN))
