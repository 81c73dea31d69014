"""WSGI and ASGI middleware: each request is decided before the application sees it."""

from __future__ import annotations

import json
import math
import posixpath
from http import HTTPStatus
from typing import Any, Awaitable, Callable, Iterable, Mapping

from .aio import AsyncClient
from .client import Client
from .model import Decision

_MOST = 999_999_999_999_999  # the largest integer of a structured field
_PROBLEMS = "https://iana.org/assignments/http-problem-types#"


class WSGI:
    """Answers what is denied; answers of the application carry RateLimit headers.

    attributes makes a request's of the WSGI environment; see wsgi_attributes for the default.
    """

    def __init__(
        self,
        app: Callable[..., Iterable[bytes]],
        client: Client,
        attributes: Callable[[Mapping[str, Any]], Mapping[str, str]] | None = None,
    ) -> None:
        self._app, self._client = app, client
        self._attributes = attributes or wsgi_attributes

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        decision = self._client.allow(self._attributes(environ))
        told = headers(decision)
        if not decision.allowed:
            body = problem(decision)
            length = ("Content-Length", str(len(body)))
            start_response(
                f"{decision.status} {_phrase(decision.status)}",
                [*told, ("Content-Type", "application/problem+json"), length],
            )
            return [body]

        def start(status: str, given: list[tuple[str, str]], *more: Any) -> Any:
            return start_response(status, [*given, *told], *more)

        return self._app(environ, start)


def wsgi_attributes(environ: Mapping[str, Any]) -> dict[str, str]:
    """tenant (X-Tenant) and user (X-User), which whoever authenticates must set or clear; ip, endpoint, method."""
    path = (environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).encode("latin-1")
    return _attributes(
        environ["REQUEST_METHOD"],
        path.decode("utf-8", "replace"),
        environ.get("HTTP_X_TENANT", ""),
        environ.get("HTTP_X_USER", ""),
        environ.get("REMOTE_ADDR", ""),
    )


class ASGI:
    """WSGI's twin. Only scopes of type http are decided; others go on to the application."""

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        client: AsyncClient,
        attributes: Callable[[Mapping[str, Any]], Mapping[str, str]] | None = None,
    ) -> None:
        self._app, self._client = app, client
        self._attributes = attributes or asgi_attributes

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        decision = await self._client.allow(self._attributes(scope))
        told = [(n.lower().encode(), v.encode()) for n, v in headers(decision)]
        if not decision.allowed:
            body = problem(decision)
            told += [
                (b"content-type", b"application/problem+json"),
                (b"content-length", str(len(body)).encode()),
            ]
            await send({"type": "http.response.start", "status": decision.status, "headers": told})
            await send({"type": "http.response.body", "body": body})
            return

        async def tell(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *told]}
            await send(message)

        await self._app(scope, receive, tell)


def asgi_attributes(scope: Mapping[str, Any]) -> dict[str, str]:
    """The same as wsgi_attributes."""
    given = {name: value.decode("latin-1") for name, value in scope["headers"]}
    ip = (scope.get("client") or ("",))[0]
    return _attributes(
        scope["method"], scope["path"], given.get(b"x-tenant", ""), given.get(b"x-user", ""), ip
    )


def _attributes(method: str, path: str, tenant: str, user: str, ip: str) -> dict[str, str]:
    all = {
        "tenant": tenant,
        "user": user,
        "ip": ip,
        "endpoint": f"{method} {clean_path(path)}",
        "method": method,
    }
    return {name: value for name, value in all.items() if value}


def clean_path(path: str) -> str:
    """A decoded path as limits match it: without empty, . and .. elements. A slash at the end stays."""
    clean = posixpath.normpath("/" + path.lstrip("/"))
    return clean + "/" if path.endswith("/") and clean != "/" else clean


def headers(decision: Decision) -> list[tuple[str, str]]:
    """What tells the caller of a decision: RateLimit-Policy and RateLimit, X-RateLimit-*, and Retry-After."""
    after = 0 if decision.allowed else math.ceil(decision.retry_after)
    told: list[tuple[str, str]] = []
    if decision.limit and decision.window > 0:
        quota, window = _per_seconds(decision.quota, decision.window)
        remaining = 0 if after else min(max(decision.remaining, 0), quota)  # nothing is there for this request
        reset = math.ceil(decision.reset)
        name = _string(decision.limit)
        unit = f";qu={_string(decision.cost)}" if decision.cost else ""
        # Where nothing is left, only a denial knows when the next unit is there.
        until = reset if remaining else after
        told = [
            ("RateLimit-Policy", f"{name};q={quota}{unit};w={window}"),
            ("RateLimit", f"{name};r={remaining}" + (f";t={until}" if remaining or after else "")),
            ("X-RateLimit-Limit", str(quota)),
            ("X-RateLimit-Remaining", str(remaining)),
            ("X-RateLimit-Reset", str(max(reset, after))),
        ]
    if after:
        told.append(("Retry-After", str(after)))
    return told


def _per_seconds(quota: int, window: float) -> tuple[int, int]:
    """A rate in whole seconds, for w knows no others, and never more than the rate."""
    seconds = math.ceil(window)
    if window != seconds:
        quota = int(quota * (seconds / window))
    return min(max(quota, 0), _MOST), seconds


def _string(text: str) -> str:
    """A structured field's string. What it cannot hold becomes "?"."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if " " <= c <= "~" else "?" for c in escaped) + '"'


def problem(decision: Decision) -> bytes:
    """The problem+json body of a denial (RFC 9457)."""
    type, title = "about:blank", _phrase(decision.status)
    if decision.status in (429, 504):
        type = _PROBLEMS + "quota-exceeded"
        title = "Request cannot be satisfied as assigned quota has been exceeded"
    elif decision.status == 503:
        type = _PROBLEMS + "temporary-reduced-capacity"
        title = "Request cannot be satisfied due to temporary server capacity constraints"
    body: dict[str, Any] = {
        "type": type,
        "title": title,
        "status": decision.status,
        "reason": decision.reason,
    }
    if decision.detail:
        body["detail"] = decision.detail
    if decision.limit and decision.status != 503:
        body["violated-policies"] = [decision.limit]
    return json.dumps(body).encode()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Denied"
