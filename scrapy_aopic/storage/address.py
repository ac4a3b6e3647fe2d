"""Where a job on a server is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMES = ("redis", "rediss", "unix")
"""What the URL of a server begins with: plain, over TLS, by a socket of the machine."""

LEASE = 10.0
"""Seconds: what the next crawl waits, at most, after one that was killed; and how long a network may be cut."""

_PORT = 6379
"""Of a server whose URL or parameters name none."""


@dataclass(frozen=True, slots=True)
class Address:
    """A Redis or Valkey server, and the beginning of a job's keys there.

    As text, it is a URL without user and password, with the key behind a ``#``.

    Attributes:
        key: What the keys of the job begin with.
        url: Of the server, as redis-py reads it; empty for parameters only.
        parameters: For redis-py's client, in addition; ``redis_cls`` is its class.
        lease: Seconds after which another process may have the job if the one that has it has died.
    """

    key: str
    url: str = field(default="", repr=False)
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)
    lease: float = LEASE

    def __str__(self) -> str:
        try:
            parts = urlsplit(self.url)
            host, port = parts.hostname, parts.port
        except ValueError:  # which may have the password in its text
            return f"redis#{self.key}"
        if parts.scheme == "unix":
            return f"unix://{parts.path}#{self.key}"
        scheme = parts.scheme or ("rediss" if self.parameters.get("ssl") else "redis")
        host = host or self.parameters.get("host", "localhost")
        port = port or self.parameters.get("port", _PORT)
        database = parts.path.strip("/") or self.parameters.get("db") or 0
        return f"{scheme}://{host}:{port}/{database}#{self.key}"
