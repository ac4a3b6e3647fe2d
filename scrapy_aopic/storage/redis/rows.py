"""Rows as a server stores them, and as it replies with them.

A value is stored with a checksum of family, key and value behind it, because Redis checks nothing that is in its memory
or in its append-only file.
"""

from __future__ import annotations

from binascii import crc_hqx
from typing import TYPE_CHECKING, TypeVar

from scrapy_aopic.core.ports import Family

from .leaves import Leaves, Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .connection import Command, Connection, Reply
    from .keys import Keys

_T = TypeVar("_T")

_CHECKSUM_BYTES = 2
"""Of a CRC-16, which notices every change of up to 16 bits in a row; four bytes would take 4 % more memory."""

_SUMS = [number.to_bytes(_CHECKSUM_BYTES, "big") for number in range(1 << 8 * _CHECKSUM_BYTES)]
"""Every checksum as it is stored: 2 MB, because making one takes as long as computing it, and a page has 70."""

AT_ONCE = 500
"""Leaves in a request that reads very many: half a megabyte of replies, and a millisecond of the server."""


def chunks(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """*items* in their order, *size* at a time."""
    return (items[begin : begin + size] for begin in range(0, len(items), size))


def seal(family: Family, rows: Mapping[bytes, bytes], keys: Iterable[bytes]) -> list[bytes]:
    """The *keys*, each followed by its value in *rows* as it is stored."""
    return [
        part
        for key in keys
        for value in (rows[key],)
        for part in (key, value + _SUMS[crc_hqx(value, crc_hqx(key, family))])
    ]


def unseal(family: Family, key: bytes, stored: bytes) -> bytes | None:
    """The value that was stored under *key*; ``None`` if it has changed."""
    value = stored[:-_CHECKSUM_BYTES]
    sum_bytes = stored[-_CHECKSUM_BYTES:]
    return value if crc_hqx(value, crc_hqx(key, family)) == (sum_bytes[0] << 8 | sum_bytes[-1]) else None


def ask_for_leaves(keys: Keys) -> list[Command]:
    """Commands whose replies :func:`read_leaves` reads."""
    return [(b"SMEMBERS", keys.separators[family]) for family in Family]


def read_leaves(replies: Sequence[Reply]) -> dict[Family, Leaves]:
    """The leaves of all families; how many rows they have is not known yet."""
    return {family: Leaves(dict.fromkeys(reply, 1)) for family, reply in zip(Family, replies, strict=True)}


def read_values(
    keys: Keys, family: Family, groups: Iterable[Sequence[bytes]], replies: Iterable[Reply]
) -> dict[bytes, bytes | None]:
    """Values by key, by the replies to ``HMGET`` of *groups* of keys.

    Raises:
        StorageError: If one was changed since it was written.
    """
    found: dict[bytes, bytes | None] = {}
    for group, reply in zip(groups, replies, strict=True):
        for key, stored in zip(group, reply, strict=True):
            if stored is None:
                found[key] = None
            elif (value := unseal(family, key, stored)) is not None:
                found[key] = value
            else:
                raise keys.damaged(
                    f"the row of {family.name} under {key.hex()} was changed since it was written"
                )
    return found


def read_rows(keys: Keys, family: Family, reply: Reply) -> Rows:
    """The rows of a leaf, by the reply to ``HGETALL``.

    Raises:
        StorageError: If one was changed since it was written.
    """
    pairs = iter(reply)
    rows: Rows = {}
    for key, stored in zip(pairs, pairs, strict=True):
        value = unseal(family, key, stored)
        if value is None:
            raise keys.damaged(f"the row of {family.name} under {key.hex()} was changed since it was written")
        rows[key] = value
    return rows


def measure(connection: Connection, keys: Keys, leaves: Mapping[Family, Leaves]) -> int:
    """Bytes of the server's memory that *leaves* take."""
    commands = [
        (b"MEMORY", b"USAGE", keys.leaf(family, each)) for family in Family for each in leaves[family].filled
    ]
    return sum(n or 0 for part in chunks(commands, AT_ONCE) for n in connection.ask(*part))
