"""The calls of a quota-agent, without any input or output.

Each call is a generator. It yields a Post or a Sleep, is sent what came of it, and returns its result. The
clients of quota.client and quota.aio only do what it yields, so both behave alike.
"""

from __future__ import annotations

import json
import random
import secrets
import threading
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Generator, List, Mapping, Sequence, Tuple, TypeVar, Union

from .backoff import AGAIN, Backoff, may_repeat
from .fields import stated_wait
from .held import Held
from .model import Decision, Malformed, Problem, QuotaError, Request, Unavailable, totals

MAX_REQUESTS = 1024  # of one decide


@dataclass(frozen=True)
class Options:
    """How a client behaves. Times are in seconds."""

    timeout: float = 2.0  # of a call, its retries included
    failure_mode: str = "closed"  # while the agent is away requests are denied; or "open": allowed, unbilled
    retries: int = 2  # of calls that may be repeated
    connections: int = 8  # to the agent at most; further calls wait for one
    held: int = 4096  # denials that are remembered at most
    longest_hold: float = 1.0  # how long a denial is believed without asking; policies change within a second

    def __post_init__(self) -> None:
        if self.failure_mode not in ("open", "closed"):
            raise ValueError(f"failure_mode is {self.failure_mode!r}; open or closed")
        if not 0 < self.timeout <= 3600 or self.retries < 0 or self.connections < 1:
            raise ValueError("timeout is above 0 and at most 3600, retries 0 or more, connections 1 or more")


@dataclass(frozen=True)
class Post:
    """A request to send, and to have answered before the monotonic clock says until."""

    path: str
    body: bytes
    key: str  # its Idempotency-Key; "" for none
    until: float


@dataclass(frozen=True)
class Sleep:
    seconds: float


@dataclass(frozen=True)
class Reply:
    """What a Post is answered. header returns the lines of a header."""

    status: int
    header: Callable[[str], List[str]]
    body: bytes


class NotSent(OSError):
    """No connection could be had, so nothing was sent."""


T = TypeVar("T")
Steps = Generator[Union[Post, Sleep], Union[Reply, Exception, None], T]


class Ticket:
    """A reservation: what a request may cost, until it is known what it did. One task at a time uses it.

    Leaving its with statement ends it, unless commit or cancel did. One of these that failed is repeated. Without one,
    it commits what use said, else all that was reserved, or cancels where an exception leaves the block.
    """

    def __init__(self, request: Request, decision: Decision, id: str) -> None:
        self.decision = decision
        self.id = id  # any client may commit it; "" where the agent has none, because of the failure mode
        # Reserved so far: less than was asked for where the policy knows what is likely.
        self._units, self._costs = (request.units, dict(request.costs)) if decision.allowed else (0, {})
        self._used: dict[str, Any] | None = None
        self._total: Mapping[str, Any] | None = None  # what the last commit said, failed or not
        self._cancelled = False  # cancel came after it
        self._ended = not decision.allowed

    @property
    def allowed(self) -> bool:
        return self.decision.allowed

    def reserved(self, cost: str = "requests") -> int:
        """The units of a cost that are reserved. To use more, extend before; where that is denied, stop."""
        return self._units if cost == "requests" else self._costs.get(cost, 0)

    def use(self, units: int = 1, costs: Mapping[str, int] | None = None) -> None:
        """Notes what has been used so far, in all. The agent hears of it with the next extend."""
        self._used = totals(units, costs)

    def _grow(self, units: int, costs: Mapping[str, int]) -> None:
        self._units += units
        for name, more in costs.items():
            self._costs[name] = self._costs.get(name, 0) + more


class Calls:
    """The calls, with what they share: the denials held, and whether the agent is away."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.unaccounted = 0  # units that failure_mode "open" let pass
        self._backoff = Backoff(retries=options.retries)
        self._held: Held[Decision] = Held(options.held, options.longest_hold)
        self._away_until = 0.0
        self._lock = threading.Lock()

    def decide(self, requests: Sequence[Request]) -> Steps[List[Decision]]:
        """Decides each request by itself."""
        if not 1 <= len(requests) <= MAX_REQUESTS:
            raise ValueError(f"{len(requests)} requests; 1 to {MAX_REQUESTS}")
        denied = [self._denied_before(r) for r in requests]
        asked = [r for r, d in zip(requests, denied) if d is None]
        answers = iter((yield from self._ask(asked)) if asked else ())
        return [d or next(answers) for d in denied]

    def _ask(self, requests: Sequence[Request]) -> Steps[List[Decision]]:
        body = {"requests": [r.body() for r in requests], "timeout_ms": self._timeout_ms()}
        try:
            answer = yield from self._guarded("decide", body)
            decisions = answer.get("decisions")
            if not isinstance(decisions, list) or len(decisions) != len(requests):
                raise Malformed(f"not {len(requests)} decisions")
            decisions = [Decision.read(d) for d in decisions]
        except Unavailable:
            return [self._blind(r.units) for r in requests]
        for request, decision in zip(requests, decisions):
            self._remember(request, decision)
        return decisions

    def reserve(self, request: Request, expires: int) -> Steps[Tuple[Request, Decision, str]]:
        """Reserves what a request may cost. Returns it with the units that are reserved, and the reservation's id."""
        if (denial := self._denied_before(request)) is not None:
            return request, denial, ""
        body = {**request.body(), "expires_seconds": expires, "timeout_ms": self._timeout_ms()}
        try:
            answer = yield from self._guarded("reserve", body)
            decision = Decision.read(answer.get("decision"))
            reservation = answer.get("reservation")
            id = reservation.get("id") if isinstance(reservation, dict) else None
            if decision.allowed and not isinstance(id, str):
                raise Malformed("allowed, and no reservation")
        except Unavailable:
            return request, self._blind(request.units), ""
        self._remember(request, decision)
        has = reservation.get("reserved") if isinstance(reservation, dict) else None
        if isinstance(has, dict):  # older agents do not say, and reserve what is asked for
            request = replace(request, units=has.get("units", 0), costs=has.get("costs", {}))
        return request, decision, id or ""

    def extend(self, ticket: Ticket, units: int, costs: Mapping[str, int]) -> Steps[Decision]:
        """Reserves more, all or nothing."""
        if ticket._ended:
            raise ValueError("the reservation has ended, or was denied")
        if not ticket.id:
            decision = self._blind(0)
        else:
            body = {"id": ticket.id, **totals(units, costs), "timeout_ms": self._timeout_ms()}
            if ticket._used is not None:
                body["used"] = ticket._used
            try:
                answer = yield from self._call("extend", body)
                decision = Decision.read(answer.get("decision"))
            except Unavailable:
                decision = self._blind(0)  # the commit will bill it
        if decision.allowed:
            ticket._grow(units, costs)
        return decision

    def commit(self, ticket: Ticket, total: Mapping[str, Any]) -> Steps[bool]:
        """Ends a reservation with what the request cost in all. Returns whether it had expired."""
        if not ticket.decision.allowed:
            raise ValueError("a request that was denied costs nothing")
        ticket._total, ticket._cancelled = total, False
        late = False
        if ticket.id:
            answer = yield from self._call("commit", {"id": ticket.id, **total})
            late = answer.get("late") is True
        ticket._ended = True
        return late

    def cancel(self, ticket: Ticket) -> Steps[None]:
        """Ends a reservation: the request cost nothing."""
        ticket._cancelled = True
        if ticket.id:
            yield from self._call("cancel", {"id": ticket.id})
        ticket._ended = True

    def end(self, ticket: Ticket, failed: bool) -> Steps[None]:
        """Ends a reservation whose block is left, as Ticket says."""
        if ticket._ended:
            return
        if ticket._cancelled or ticket._total is not None:  # the caller's last word, which did not get through
            try:
                if ticket._cancelled:
                    yield from self.cancel(ticket)
                else:
                    yield from self.commit(ticket, ticket._total)
            except Exception:
                if not failed:
                    raise  # else the block's own exception goes on
        elif ticket._used is not None:
            yield from self.commit(ticket, ticket._used)
        elif failed:
            yield from self.cancel(ticket)
        else:
            yield from self.commit(ticket, totals(ticket._units, ticket._costs))

    def _timeout_ms(self) -> int:
        """Half of the call's time: the agent answers, and spends nothing, before the caller gives up."""
        return max(1, int(self.options.timeout * 500))

    def _denied_before(self, request: Request) -> Decision | None:
        held = self._held.ask(request.key(), time.monotonic())
        return replace(held[1], retry_after=held[0]) if held else None

    def _remember(self, request: Request, decision: Decision) -> None:
        if not decision.allowed:
            self._held.deny(request.key(), decision.retry_after, decision, time.monotonic())

    def _blind(self, units: int) -> Decision:
        """The failure mode's decision."""
        if self.options.failure_mode == "closed":
            return Decision(allowed=False, reason="unknown", status=503, retry_after=1)
        with self._lock:
            self.unaccounted += units
        return Decision(allowed=True, reason="unknown", status=200)

    def _guarded(self, name: str, body: Mapping[str, Any]) -> Steps[Dict[str, Any]]:
        """A call that the failure mode can answer: while the agent is away, it is only tried now and then."""
        if time.monotonic() < self._away_until:
            raise Unavailable("the agent was away a moment ago")
        try:
            answer = yield from self._call(name, body)
        except Unavailable:
            self._away_until = time.monotonic() + self._backoff.longest * random.uniform(0.5, 1)
            raise
        return answer

    def _call(self, name: str, body: Mapping[str, Any]) -> Steps[Dict[str, Any]]:
        """Makes a call, and makes it again where that does no harm. Raises Problem or Unavailable."""
        keyed = name in ("decide", "reserve") and self.options.retries > 0
        until = time.monotonic() + self.options.timeout
        post = Post(f"/v1/{name}", json.dumps(body).encode(), secrets.token_hex(16) if keyed else "", until)
        attempt = 0
        while True:
            got = yield post
            if isinstance(got, Reply) and got.status == 200:
                return read_object(got)
            error, again, stated = judge(name, got)
            left = until - time.monotonic()
            wait = self._backoff.wait(
                attempt=attempt, again=again, stated=stated, left=left, place=random.random()
            )
            if wait is None:
                raise error
            yield Sleep(wait)
            attempt += 1


def judge(name: str, got: Reply | Exception | None) -> tuple[Exception, bool, float | None]:
    """What a call that failed raises, whether it may be made again, and the wait that is stated."""
    repeatable = name != "extend"  # decide and reserve by their key; commit and cancel have the same end twice
    error: QuotaError
    if not isinstance(got, Reply):
        failure = "connect" if isinstance(got, NotSent) else "lost"
        error = Unavailable(f"{name}: {got or type(got).__name__}")
        error.__cause__ = got
        return error, may_repeat(repeatable=repeatable, failure=failure), None
    stated = stated_wait(got.header, time.time())
    if got.status == 409 and name in ("decide", "reserve"):
        return Unavailable(f"{name}: an earlier attempt is under way"), True, stated
    if got.status >= 500 or got.status in AGAIN:
        error = Unavailable(f"{name}: answered {got.status}")
        return error, may_repeat(repeatable=repeatable, status=got.status), stated
    return read_problem(got), False, stated


def read_object(reply: Reply) -> Dict[str, Any]:
    try:
        answer = json.loads(reply.body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Malformed("the answer is no JSON object")
    return answer


def read_problem(reply: Reply) -> Problem:
    said: Any = {}
    if (reply.header("Content-Type") or [""])[0].partition(";")[0].strip() == "application/problem+json":
        try:
            said = json.loads(reply.body)
        except ValueError:
            pass
    said = said if isinstance(said, dict) else {}
    return Problem(reply.status, str(said.get("title", "")), str(said.get("detail", "")))
