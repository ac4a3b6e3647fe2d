"""Where a job on a server is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SCHEMES = ("redis", "rediss", "unix")
"""Schemes of the URL of a server: plain, over TLS, through a local socket."""

BOARD = "board"
"""File beside the shards of a job in a folder, by which its workers hear of each other (:mod:`.board`)."""

LOCK_TIMEOUT = 10.0
"""Seconds for which a crawl waits at most after another one was killed, and for which the network may be cut."""

MAX_SHARDS = 256
"""Shards of a job on a server: each look at a job reads two numbers for each pair of shards that write to each other."""

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
        lock_timeout: Seconds after which the lock of a process that has died expires, so that another may have the job.
        shard: Number of the shard whose store is meant, -1 for the job itself.
        folder: The job folder whose workers share a board there, in the place of a server; ``None`` if there is a server.
    """

    key: str
    url: str = field(default="", repr=False)
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)
    lock_timeout: float = LOCK_TIMEOUT
    shard: int = -1
    folder: Path | None = None

    def of_shard(self, number: int) -> Address:
        """Where the store of a shard of the job is."""
        return replace(self, shard=number)

    def __str__(self) -> str:
        if self.shard > MAX_SHARDS:  # it has no number that a user has ever seen
            return f"{self._job()} (a store that is made beside it)"
        return self._job() if self.shard < 0 else f"{self._job()} (shard {self.shard})"

    def _job(self) -> str:
        if self.folder is not None:
            return str(self.folder)
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
