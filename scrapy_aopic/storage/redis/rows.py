"""Rows as a server stores them, and as it replies with them.

A value is stored with a checksum of family, key and value behind it, because Redis checks nothing that is in its memory
or in its append-only file. :class:`Scan` reads the rows of leaves in the order of their keys, a few leaves at a time, as they were
when that began.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from scrapy_aopic.core.ports import Family

from .leaves import Leaves, Rows

if TYPE_CHECKING:
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


_MOST_AT_ONCE = 16
"""Leaves that are read at once, at most; the first request is for one, because most scans want a few rows."""


class LeafSource(Protocol):
    """A store or a view that a scan reads from."""

    def read_leaves(self, scan: Scan, separators: Sequence[bytes], /) -> list[Rows]:
        """The leaves *separators* as they were when *scan* began."""


class Scan(Iterator[tuple[bytes, bytes]]):
    """The rows of the leaves *separators* within *bounds*, the second of which they do not reach; leaf by leaf.

    Attributes:
        family: Family of the rows.
        saved: Leaves that changed after the scan began, and before it came to them.
    """

    __slots__ = (
        "__weakref__",
        "_at",
        "_keys",
        "_n",
        "_rows",
        "_separators",
        "_source",
        "_start",
        "_stop",
        "family",
        "saved",
    )

    def __init__(
        self,
        source: LeafSource,
        keys: Keys,
        family: Family,
        bounds: tuple[bytes, bytes | None],
        separators: list[bytes],
    ) -> None:
        self._source = source
        self._keys = keys
        self.family = family
        self._start, self._stop = bounds
        self._separators = separators
        self._at = 0
        self._n = 1
        self._rows: Iterator[tuple[bytes, bytes]] = iter(())
        self.saved: dict[bytes, Rows] = {}

    def ahead(self, touched: Iterable[bytes]) -> list[bytes]:
        """The leaves of *touched* that it has yet to read, and that are not saved."""
        to_come = {*self._separators[self._at :]}
        return [each for each in touched if each in to_come and each not in self.saved]

    def __next__(self) -> tuple[bytes, bytes]:
        while True:
            for row in self._rows:
                return row
            if self._at == len(self._separators):
                raise StopIteration
            self._rows = iter(self._next_rows())

    def _next_rows(self) -> list[tuple[bytes, bytes]]:
        separators = self._separators[self._at : self._at + self._n]
        leaves = self._source.read_leaves(self, separators)
        self._at += len(separators)
        self._n = min(2 * self._n, _MOST_AT_ONCE)
        rows: list[tuple[bytes, bytes]] = []
        for n, leaf in enumerate(leaves, self._at - len(leaves)):
            if not leaf:
                raise self._keys.damaged(f"a leaf of {self.family.name} is gone")
            pairs = sorted(leaf.items())
            after = self._separators[n + 1 : n + 2]
            if pairs[0][0] < self._separators[n] or (after and pairs[-1][0] >= after[0]):
                raise self._keys.damaged(f"a leaf of {self.family.name} has rows of another one")
            rows += pairs
        start, stop = self._start, self._stop
        if rows and (rows[0][0] < start or (stop is not None and rows[-1][0] >= stop)):
            rows = [row for row in rows if row[0] >= start and (stop is None or row[0] < stop)]
        return rows
