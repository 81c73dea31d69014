"""Asks a quota-agent whether requests may pass, and reserves what they may cost.

    quota = Client("unix:/run/quota/http.sock")
    if not (decision := quota.allow({"tenant": "acme"})).allowed: ...

Read calls.py first: it has all that the clients do. client.py does it for threads, aio.py for asyncio.
"""

from .aio import AsyncClient, AsyncReservation
from .client import Client, Reservation
from .middleware import ASGI, WSGI
from .model import Decision, Problem, QuotaError, Request, Unavailable

__all__ = [
    "ASGI",
    "AsyncClient",
    "AsyncReservation",
    "Client",
    "Decision",
    "Problem",
    "QuotaError",
    "Request",
    "Reservation",
    "Unavailable",
    "WSGI",
]
