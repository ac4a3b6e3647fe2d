"""Copies every row of a damaged store on a server that is as it was written, wherever it lies."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from scrapy_aopic.core.layout import Family

from .connect import connect
from .keys import Keys
from .replacing import leaves_of
from .rows import unseal

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.storage.address import Address

    from .connection import Reply

_AT_ONCE = 100
"""Leaves that are read at once: a megabyte at most, mostly."""


def copy_remains(place: Address, write: Callable[[Family, dict[bytes, bytes]], object]) -> dict[Family, int]:
    """Call *write* with each family of the store at *place* and some of its rows, until it had all that can be read.

    Returns:
        Rows and leaves of each family that are missing or cannot be read.

    Raises:
        StorageError: If the server cannot be reached.
    """
    keys, gaps = Keys(place), dict[Family, int]()
    with closing(connect(place)) as connection:
        found = leaves_of(connection, keys)
        for family in Family:
            (reply,) = connection.inquire((b"SMEMBERS", keys.separators[family]))
            expected = {keys.leaf(family, each) for each in reply} if isinstance(reply, list) else set()
            leaves = sorted(found[family])
            gaps[family] = len(expected ^ {*leaves})
            for begin in range(0, len(leaves), _AT_ONCE):
                replies = connection.inquire(
                    *((b"HGETALL", leaf) for leaf in leaves[begin : begin + _AT_ONCE])
                )
                for reply in replies:
                    rows, bad = _rows(family, reply)
                    gaps[family] += bad
                    if rows:
                        write(family, rows)
    return gaps


def _rows(family: Family, reply: Reply) -> tuple[dict[bytes, bytes], int]:
    """The rows in the reply for a leaf that are as they were written, and how many are not."""
    if not isinstance(reply, list):
        return {}, 1
    pairs = iter(reply)
    rows = {key: unseal(family, key, stored) for key, stored in zip(pairs, pairs, strict=True)}
    good = {key: value for key, value in rows.items() if value is not None}
    return good, len(rows) - len(good)
