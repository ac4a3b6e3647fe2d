"""Connects to a server, importing the Redis library only then; and finds the jobs on it."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, cast

from scrapy_aopic.exceptions import StorageError, plainly

from .keys import Keys

if TYPE_CHECKING:
    from scrapy_aopic.storage.address import Address

    from .connection import Connection

_MOST_SCANS = 2_000
"""Batches of 1,000 keys that are searched for jobs, at most."""


def connect(address: Address) -> Connection:
    """A new connection to the server of *address*.

    Raises:
        SettingError: If the URL or a parameter is wrong.
        StorageError: If the server cannot be reached, or refuses the login; or if redis-py is missing.
    """
    if address.folder is not None:
        from scrapy_aopic.storage.board import FileBoard  # noqa: PLC0415 (only for several workers)

        return cast("Connection", FileBoard(address.folder))
    try:
        from .connection import Connection  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise needs_library(address, error) from error
    return Connection(address)


def needs_library(address: Address, error: ImportError) -> StorageError:
    """The error for a job at *address* that cannot be opened because of *error*."""
    return StorageError(
        f"The store in {address} needs redis and hiredis, of which one {plainly(error)}: pip install redis hiredis."
    )


def find_jobs(address: Address) -> list[str]:
    """Keys of the jobs in the database of *address*, in their order.

    Raises:
        StorageError: If the server cannot be reached.
    """
    found: set[bytes] = set()
    with closing(connect(address)) as connection:
        parts = connection.walk((b"SCAN",), (b"MATCH", b"{*}:[ch]*", b"COUNT", 1_000))
        for names in islice(parts, _MOST_SCANS):
            found |= {name.rpartition(b"}:")[0] for name in names if name.endswith((b"}:head", b"}:cut"))}
    return sorted(name[1:].decode("utf-8", "replace") for name in found)


def exists_at(address: Address) -> bool:
    """Whether there is a job at *address*.

    Raises:
        StorageError: If the server cannot be reached, or the job is of another format.
    """
    keys, connection = Keys(address), connect(address)
    with closing(connection):
        head, cut = connection.ask((b"GET", keys.head), (b"EXISTS", keys.of_job(b"cut")))
        return bool(cut) or keys.read_head(head) is not None
