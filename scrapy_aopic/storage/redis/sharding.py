"""How a job on a server is divided into shards, and how one process of several makes it."""

from __future__ import annotations

import json
import secrets
import time
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.exceptions import StorageError

from .connect import connect
from .keys import Keys
from .server_checks import check_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.storage.address import Address

_MADE = "made"
"""Field beside those of :class:`Sharding` with a token of the process that made the job: another job in its place has another."""

_BEGIN = 60.0
"""Seconds that a process may take to make a job, with the seeds that it starts from; then another one may try."""

_POLL = 0.1
"""Seconds until it is asked again whether another process has made the job."""


class Sharding(NamedTuple):
    """How a job on a server is cut.

    Attributes:
        shards: How many.
        suffixes: Which list of public suffixes says what a registered domain is.
        folders: Among how many job folders the shards were divided (:mod:`scrapy_aopic.storage.homes`); 0 if they are all in one place.
        order: Name of the order in which it is crawled; empty if it is not known.
        spread: Names of the domains of which each host may be in another shard, with spaces between them.
    """

    shards: int
    suffixes: str
    folders: int = 0
    order: str = ""
    spread: str = ""

    @property
    def domains(self) -> frozenset[str]:
        """The names in :attr:`spread`."""
        return frozenset(self.spread.split())

    @property
    def fields(self) -> dict[str, object]:
        """What is stored: as before there was :attr:`spread` if it is empty."""
        return {name: value for name, value in self._asdict().items() if value or name != "spread"}

    def __str__(self) -> str:
        """As ``AOPIC_SHARDS`` says it."""
        return f'"{self.folders}x{self.shards // self.folders}"' if self.folders else str(self.shards)


def read_sharding(address: Address) -> Sharding | None:
    """How the job at *address* is cut; ``None`` if there is none, or in one piece.

    Raises:
        StorageError: If the server cannot be reached, or says something else.
    """
    keys = Keys(address)
    with closing(connect(address)) as connection:
        return _read_sharding(keys, connection.ask((b"GET", keys.of_job(b"cut")))[0])


def _read_sharding(keys: Keys, data: bytes | None) -> Sharding | None:
    if data is None:
        return None
    try:
        fields = json.loads(data)
        fields.pop(_MADE, None)
        sharding = Sharding(**fields)
        shards = int(sharding.shards)
    except (ValueError, TypeError, AttributeError):
        raise keys.damaged(f"how it is cut is said by {data[:50]!r}") from None
    return sharding._replace(shards=shards)


def read_suffixes(address: Address) -> bytes | None:
    """The list of public suffixes by which the job at *address* is cut, as it was given when that began.

    Raises:
        StorageError: If the server cannot be reached.
    """
    with closing(connect(address)) as connection:
        found: bytes | None = connection.ask((b"GET", Keys(address).of_job(b"suffixes")))[0]
    return found


def begin(
    address: Address, sharding: Sharding, prepare: Callable[[], object], *, suffixes: bytes = b""
) -> bool:
    """Make the job at *address* if there is none, once *prepare* has done what belongs to it; returns whether it did.

    Args:
        suffixes: The list of public suffixes that *sharding* names; workers with another one use this one.

    Raises:
        StorageError: If there is a job in one piece, or the server does not work.
    """
    keys, token = Keys(address), secrets.token_hex(8).encode()
    sharding_key, beginning = keys.of_job(b"cut"), keys.of_job(b"beginning")
    with closing(connect(address)) as connection:
        check_server(connection, address)
        while True:
            found, head = connection.ask((b"GET", sharding_key), (b"EXISTS", keys.head))
            if _read_sharding(keys, found) is not None:
                return False
            if head:
                raise StorageError(
                    f"The job in {address} is in one piece, and AOPIC_SHARDS is now {sharding.shards}: set AOPIC_SHARDS back to 1, "
                    "cut it with 'scrapy aopic salvage --shards', or begin another job with another AOPIC_REDIS_KEY. Nothing was changed."
                )
            connection.ask((b"SET", beginning, token, b"NX", b"PX", round(_BEGIN * 1000)))
            owner, found = connection.ask((b"GET", beginning), (b"GET", sharding_key))
            if owner == token:
                if found is None:
                    break
                connection.ask((b"DEL", beginning))  # another process has made it since it was looked for
                return False
            time.sleep(_POLL)
        try:
            prepare()
            made = json.dumps({**sharding.fields, _MADE: token.decode()}).encode()
            noted = (b"SET", keys.of_job(b"suffixes"), suffixes), (b"SET", sharding_key, made, b"NX")
            connection.transact(*noted)
        finally:
            connection.ask((b"DEL", beginning))
    return True
