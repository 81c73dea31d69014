"""Questions, decisions, and what can go wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Mapping


@dataclass(frozen=True)
class Request:
    """A question: may this request pass?

    attributes: what is known of it, by the policy's names (tenant, user, endpoint, ip, ...), at most 32.
    units: of requests, 0 to 1,000,000,000; 0 of everything takes nothing and asks whether one would pass.
    costs: units by the names that the policy lists as costs.
    """

    attributes: Mapping[str, str]
    units: int = 1
    costs: Mapping[str, int] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        return {"attributes": dict(self.attributes), **totals(self.units, self.costs)}

    def key(self) -> str:
        """The same for the same question."""
        return json.dumps(self.body(), sort_keys=True)


def totals(units: int, costs: Mapping[str, int] | None) -> dict[str, Any]:
    """Units and costs as a body has them."""
    return {"units": units, **({"costs": dict(costs)} if costs else {})}


@dataclass(frozen=True)
class Decision:
    """What became of a request. Times are in seconds; 0 or "" where nothing is known."""

    allowed: bool
    reason: str  # a word of the table in docs/doors.md: "limit", "suspended", "unknown", ...
    status: int  # the HTTP status that suits it: 200, 429, ...
    retry_after: float = 0  # how long a denied request should stay away
    limit: str = ""  # the limit that denied, or the tightest that allowed
    quota: int = 0  # units in each window
    window: float = 0
    remaining: int = 0
    reset: float = 0  # until the bucket is full, or its window turns
    detail: str = ""  # a sentence on a denial
    cost: str = ""  # what quota and remaining are units of; empty for requests, and for sums of several costs

    @classmethod
    def read(cls, answer: Any) -> Decision:
        """A decision of an agent's answer. Raises Malformed."""
        if not isinstance(answer, dict):
            raise Malformed("a decision is no object")

        def take(name: str, kind: Any, *otherwise: Any) -> Any:
            value = answer.get(name, *otherwise)
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise Malformed(f"a decision's {name} is {value!r}")
            return value

        number = (int, float)
        return cls(
            allowed=take("allowed", bool),
            reason=take("reason", str),
            status=take("status", int),
            retry_after=take("retry_after_seconds", number),
            limit=take("limit", str, ""),
            quota=take("quota", int, 0),
            window=take("window_seconds", number, 0),
            remaining=take("remaining", int, 0),
            reset=take("reset_seconds", number, 0),
            detail=take("detail", str, ""),
            cost=take("cost", str, ""),
        )


class QuotaError(Exception):
    """What all errors of this package are."""


class Problem(QuotaError):
    """The agent refuses the call, and would again: a mistake of the caller, or no such reservation."""

    def __init__(self, status: int, title: str = "", detail: str = "") -> None:
        super().__init__(f"{status} {title}: {detail}" if detail else f"{status} {title}".rstrip())
        self.status, self.title, self.detail = status, title, detail


class Unavailable(QuotaError):
    """The agent is away, or its answer did not come in time or cannot be understood."""


class Malformed(Unavailable):
    """The answer is none of a quota-agent."""
