"""What is left of a damaged store on a server: every row that is as it was written, wherever it lies."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from scrapy_aopic.core.layout import Family

from .connect import connect
from .keys import Keys, unseal
from .replacing import leaves_of

if TYPE_CHECKING:
    from scrapy_aopic.storage.address import Address

    from .connection import Reply

_AT_ONCE = 100
"""Leaves that are read at once: a megabyte at most, mostly."""


def copy_remains(place: Address, write: object) -> dict[Family, int]:
    """Give each row of the store at *place* that can be read to *write*, by family; returns how many places cannot be read.

    Args:
        write: Is called with a family and some of its rows.

    Raises:
        StorageError: If the server cannot be reached.
    """
    assert callable(write)
    keys, gaps = Keys(place), dict[Family, int]()
    with closing(connect(place)) as link:
        found = leaves_of(link, keys)
        for family in Family:
            (said,) = link.inquire((b"SMEMBERS", keys.separators[family]))
            expected = {keys.leaf(family, each) for each in said} if isinstance(said, list | set) else set()
            leaves = sorted(found[family])
            gaps[family] = len(expected ^ {*leaves})
            for begin in range(0, len(leaves), _AT_ONCE):
                replies = link.inquire(*((b"HGETALL", leaf) for leaf in leaves[begin : begin + _AT_ONCE]))
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
