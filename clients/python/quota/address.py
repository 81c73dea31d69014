"""Where an agent is."""

from __future__ import annotations

from typing import NamedTuple


class Address(NamedTuple):
    """A TCP address, or the path of a Unix socket."""

    host: str
    port: int
    path: str  # empty for TCP


def parse(address: str) -> Address:
    """Reads HOST:PORT, http://HOST:PORT or unix:PATH."""
    if address.startswith("unix:"):
        path = address[len("unix:") :]
        if path.startswith("//"):
            path = path[2:]
        if path:
            return Address("localhost", 0, path)
    else:
        bare = address[len("http://") :].rstrip("/") if address.startswith("http://") else address
        host, _, port = bare.rpartition(":")
        if host and port.isascii() and port.isdigit() and 0 < int(port) < 65536:
            return Address(host.strip("[]"), int(port), "")
    raise ValueError(f"{address!r} is no address; HOST:PORT, http://HOST:PORT or unix:PATH")
