"""A client for threads. It may be used by several at once."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from typing import Any, Mapping, Sequence, TypeVar, cast

from . import address as addresses
from .calls import Calls, NotSent, Options, Post, Reply, Sleep, Steps, Ticket
from .model import Decision, Request, totals

T = TypeVar("T")
MAX_ANSWER = 4 << 20  # bytes


class Client:
    """Asks a quota-agent.

    address is HOST:PORT or unix:PATH; options are those of calls.Options. Decisions never raise because the
    agent is away: the failure mode decides. They raise Problem where the question is a mistake.
    """

    def __init__(self, address: str, **options: Any) -> None:
        self._calls = Calls(Options(**options))
        self._pool = _Pool(addresses.parse(address), self._calls.options.connections)

    def allow(
        self, attributes: Mapping[str, str], units: int = 1, costs: Mapping[str, int] | None = None
    ) -> Decision:
        """Decides one request."""
        return self.decide([Request(attributes, units, costs or {})])[0]

    def decide(self, requests: Sequence[Request]) -> list[Decision]:
        """Decides 1 to 1,024 requests in one call, each by itself."""
        return self._run(self._calls.decide(requests))

    def reserve(
        self,
        attributes: Mapping[str, str],
        units: int = 1,
        costs: Mapping[str, int] | None = None,
        *,
        expires: int = 60,
    ) -> Reservation:
        """Reserves what a request may cost at most, for 1 to 3,600 seconds. Use it in a with statement."""
        request = Request(attributes, units, costs or {})
        request, decision, id = self._run(self._calls.reserve(request, expires))
        return Reservation(self, request, decision, id)

    @property
    def unaccounted(self) -> int:
        """Units that were let pass while the agent was away; they are in no ledger."""
        return self._calls.unaccounted

    def close(self) -> None:
        """Closes idle connections."""
        self._pool.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _run(self, steps: Steps[T]) -> T:
        got: Reply | Exception | None = None
        while True:
            try:
                step = steps.send(got)
            except StopIteration as end:
                return cast(T, end.value)
            if isinstance(step, Sleep):
                time.sleep(step.seconds)
                got = None
                continue
            try:
                got = self._pool.post(step)
            except (OSError, http.client.HTTPException) as e:
                got = e


class Reservation(Ticket):
    __doc__ = Ticket.__doc__

    def __init__(self, client: Client, request: Request, decision: Decision, id: str) -> None:
        super().__init__(request, decision, id)
        self._client = client

    def extend(self, units: int = 0, costs: Mapping[str, int] | None = None) -> Decision:
        """Reserves more, all or nothing."""
        return self._client._run(self._client._calls.extend(self, units, costs or {}))

    def commit(self, units: int = 1, costs: Mapping[str, int] | None = None) -> bool:
        """Ends the reservation with what the request cost in all. True if it had expired and is booked late."""
        return self._client._run(self._client._calls.commit(self, totals(units, costs)))

    def cancel(self) -> None:
        """Ends the reservation: the request cost nothing."""
        self._client._run(self._client._calls.cancel(self))

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._client._run(self._client._calls.end(self, kind is not None))


class _Pool:
    """At most `most` connections, kept alive. The one that was used last is used next."""

    def __init__(self, where: addresses.Address, most: int) -> None:
        self._where = where
        self._free = threading.BoundedSemaphore(most)
        self._idle: list[http.client.HTTPConnection] = []

    def post(self, post: Post) -> Reply:
        """Sends and reads. Raises NotSent, OSError or HTTPException."""
        if not self._free.acquire(timeout=max(post.until - time.monotonic(), 0)):
            raise NotSent("every connection is busy")
        try:
            connection = self._take(post.until)
            kept = False
            try:
                connection.request("POST", post.path, post.body, _headers(post))
                answer = connection.getresponse()
                body = answer.read(MAX_ANSWER)
                kept = answer.isclosed() and not answer.will_close
            finally:
                if kept:
                    self._idle.append(connection)
                else:
                    connection.close()
            return Reply(answer.status, lambda name: answer.headers.get_all(name) or [], body)
        finally:
            self._free.release()

    def _take(self, until: float) -> http.client.HTTPConnection:
        left = max(until - time.monotonic(), 0.001)
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                break  # another thread was faster
            if _is_open(connection):
                connection.sock.settimeout(left)
                return connection
            connection.close()
        connection = _Connection(self._where, left)
        try:
            connection.connect()
        except OSError as e:
            connection.close()
            raise NotSent(f"{self._where.path or self._where.host}: {e}") from e
        return connection

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def _headers(post: Post) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    if post.key:
        headers["Idempotency-Key"] = post.key
    return headers


def _is_open(connection: http.client.HTTPConnection) -> bool:
    """Whether an idle connection is open still: there is nothing to read, not even its end."""
    connection.sock.setblocking(False)
    try:
        connection.sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


class _Connection(http.client.HTTPConnection):
    """A connection over TCP, or over a Unix socket."""

    def __init__(self, where: addresses.Address, timeout: float) -> None:
        super().__init__(where.host, where.port or None, timeout=timeout)
        self._path = where.path

    def connect(self) -> None:
        if not self._path:
            return super().connect()
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
