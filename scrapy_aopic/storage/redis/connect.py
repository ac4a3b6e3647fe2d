"""Connects to a server, importing the Redis library only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_aopic.exceptions import StorageError, plainly

if TYPE_CHECKING:
    from scrapy_aopic.storage.address import Address

    from .connection import Link


def connect(address: Address) -> Link:
    """A new connection to the server of *address*.

    Raises:
        SettingError: If the URL or a parameter is wrong.
        StorageError: If the server cannot be reached, or does not let us in; or if redis-py is missing.
    """
    try:
        from .connection import Link  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise needs_library(address, error) from error
    return Link(address)


def needs_library(address: Address, error: ImportError) -> StorageError:
    """The error for a job at *address* that cannot be opened because of *error*."""
    return StorageError(
        f"The store in {address} needs redis and hiredis, of which one {plainly(error)}; pip install 'scrapy-aopic[redis]' brings them."
    )
