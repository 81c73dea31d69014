"""A client for asyncio. It is used by the tasks of one loop."""

from __future__ import annotations

import asyncio
import http.client
import io
import time
from typing import Any, Mapping, Sequence, TypeVar, cast

from . import address as addresses
from .calls import Calls, NotSent, Options, Post, Reply, Sleep, Steps, Ticket
from .model import Decision, Request, totals

T = TypeVar("T")
MAX_ANSWER = 4 << 20  # bytes


class AsyncClient:
    """quota.Client for asyncio: the same methods, to be awaited."""

    def __init__(self, address: str, **options: Any) -> None:
        self._calls = Calls(Options(**options))
        self._pool = _Pool(addresses.parse(address), self._calls.options.connections)

    async def allow(
        self, attributes: Mapping[str, str], units: int = 1, costs: Mapping[str, int] | None = None
    ) -> Decision:
        """Decides one request."""
        return (await self.decide([Request(attributes, units, costs or {})]))[0]

    async def decide(self, requests: Sequence[Request]) -> list[Decision]:
        """Decides 1 to 1,024 requests in one call, each by itself."""
        return await self._run(self._calls.decide(requests))

    async def reserve(
        self,
        attributes: Mapping[str, str],
        units: int = 1,
        costs: Mapping[str, int] | None = None,
        *,
        expires: int = 60,
    ) -> AsyncReservation:
        """Reserves the most that a request may cost, for 1 to 3,600 seconds: async with await client.reserve(...)."""
        request = Request(attributes, units, costs or {})
        request, decision, id = await self._run(self._calls.reserve(request, expires))
        return AsyncReservation(self, request, decision, id)

    @property
    def unaccounted(self) -> int:
        """Units that were let pass while the agent was away; they are in no ledger."""
        return self._calls.unaccounted

    async def close(self) -> None:
        """Closes idle connections."""
        await self._pool.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def _run(self, steps: Steps[T]) -> T:
        got: Reply | Exception | None = None
        while True:
            try:
                step = steps.send(got)
            except StopIteration as end:
                return cast(T, end.value)
            if isinstance(step, Sleep):
                await asyncio.sleep(step.seconds)
                got = None
                continue
            try:
                left = max(step.until - time.monotonic(), 0)
                got = await asyncio.wait_for(self._pool.post(step), left)
            except (OSError, EOFError, ValueError, asyncio.TimeoutError, asyncio.LimitOverrunError) as e:
                got = e
            except http.client.HTTPException as e:
                got = e


class AsyncReservation(Ticket):
    __doc__ = Ticket.__doc__

    def __init__(self, client: AsyncClient, request: Request, decision: Decision, id: str) -> None:
        super().__init__(request, decision, id)
        self._client = client

    async def extend(self, units: int = 0, costs: Mapping[str, int] | None = None) -> Decision:
        """Reserves more, all or nothing."""
        return await self._client._run(self._client._calls.extend(self, units, costs or {}))

    async def commit(self, units: int = 1, costs: Mapping[str, int] | None = None) -> bool:
        """Ends the reservation with what the request cost in all. True if it had expired and is booked late."""
        return await self._client._run(self._client._calls.commit(self, totals(units, costs)))

    async def cancel(self) -> None:
        """Ends the reservation: the request cost nothing."""
        await self._client._run(self._client._calls.cancel(self))

    async def __aenter__(self) -> AsyncReservation:
        return self

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        await self._client._run(self._client._calls.end(self, kind is not None))


class _Pool:
    """At most `most` connections, kept alive. The one that was used last is used next."""

    def __init__(self, where: addresses.Address, most: int) -> None:
        self._where, self._most = where, most
        self._free: asyncio.Semaphore | None = None  # made in the loop that uses it
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def post(self, post: Post) -> Reply:
        """Sends and reads. Raises NotSent, OSError, EOFError, ValueError or HTTPException."""
        if self._free is None:
            self._free = asyncio.Semaphore(self._most)
        async with self._free:
            reader, writer = await self._take()
            kept = False
            try:
                writer.write(self._head(post) + post.body)
                await writer.drain()
                reply, kept = await _read(reader)
            finally:
                if kept:
                    self._idle.append((reader, writer))
                else:
                    writer.close()
            return reply

    async def _take(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        try:
            if self._where.path:
                return await asyncio.open_unix_connection(self._where.path)
            return await asyncio.open_connection(self._where.host, self._where.port)
        except OSError as e:
            raise NotSent(f"{self._where.path or self._where.host}: {e}") from e

    def _head(self, post: Post) -> bytes:
        host = f"[{self._where.host}]" if ":" in self._where.host else self._where.host
        lines = [
            f"POST {post.path} HTTP/1.1",
            f"Host: {host}",
            "Content-Type: application/json",
            f"Content-Length: {len(post.body)}",
        ]
        if post.key:
            lines.append(f"Idempotency-Key: {post.key}")
        return "\r\n".join(lines + ["", ""]).encode("ascii")

    async def close(self) -> None:
        while self._idle:
            _, writer = self._idle.pop()
            writer.close()
            try:
                await writer.wait_closed()
            except OSError:
                pass  # the agent was faster


async def _read(reader: asyncio.StreamReader) -> tuple[Reply, bool]:
    """An answer of HTTP/1.1, and whether its connection may be used again."""
    first, _, rest = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
    version, _, status = first.partition(b" ")
    if version != b"HTTP/1.1":
        raise http.client.BadStatusLine(repr(first))
    headers = http.client.parse_headers(io.BytesIO(rest))
    kept = headers.get("Connection", "").lower() != "close"
    if headers.get("Transfer-Encoding", "").lower() == "chunked":
        body = await _read_chunks(reader)
    elif "Content-Length" in headers:
        body = await reader.readexactly(_bounded(int(headers["Content-Length"])))
    else:
        body, kept = await reader.read(MAX_ANSWER), False
    return Reply(int(status[:3]), lambda name: headers.get_all(name) or [], body), kept


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        body += await reader.readexactly(_bounded(size + len(body)) - len(body))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass  # trailers say nothing that counts
    return body


def _bounded(size: int) -> int:
    if not 0 <= size <= MAX_ANSWER:
        raise ValueError(f"an answer of {size} bytes; at most {MAX_ANSWER}")
    return size
