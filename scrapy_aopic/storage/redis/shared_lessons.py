"""Lessons of the workers of a job on a server for each other, and their knowledge for workers that start later.

The server has a stream of the last lessons, the counts of all graded pages, and one worker's knowledge with its place in the
stream: a worker that starts goes on with that, and with the lessons after it.

Any worker may write the knowledge, without compare-and-set: if an older one arrives late, its reader only learns more from the
stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .connect import connect
from .keys import Keys

if TYPE_CHECKING:
    from scrapy_aopic.storage.address import Address

_KEPT = 300
"""Entries of the stream that are kept: a minute of a crawl by three workers, some MB, and 30 MB at most."""

_AT_ONCE = 64
"""Entries that are read at once."""

BEGINNING = b"0-0"
"""The place in the stream before all entries."""


class Heard(NamedTuple):
    """New lessons of the stream.

    Attributes:
        place: Place of its last entry.
        entries: New ones, oldest first.
        pages: Graded pages of the job.
        relevant: Relevant ones among them.
        has_more: Whether there may be more entries.
    """

    place: bytes
    entries: Sequence[bytes]
    pages: int
    relevant: int
    has_more: bool


class LessonBoard:
    """One worker's access to the lessons; one thread uses it at a time.

    Raises:
        StorageError: If the server cannot be reached.
    """

    def __init__(self, address: Address) -> None:
        keys = Keys(address)
        self._stream, self._known, self._grades = map(keys.of_job, (b"lessons", b"learned", b"grades"))
        self._connection = connect(address)

    def known(self) -> tuple[bytes, bytes]:
        """The place in the stream of the knowledge that was stored last, and the knowledge; the beginning and nothing if there is none."""
        data = self._connection.ask((b"GET", self._known))[0] or b""
        place, _, known = data.partition(b" ")
        return (place, known) if place.replace(b"-", b"", 1).isdigit() else (BEGINNING, b"")

    def keep(self, place: bytes, known: bytes) -> None:
        """Store what was *known* at a *place* in the stream.

        Raises:
            StorageError: If the server does not take it, or that is not known.
        """
        self._connection.transact((b"SET", self._known, place + b" " + known))

    def graded(self) -> tuple[int, int]:
        """Pages of the job that were graded, and relevant ones."""
        return _numbers(self._connection.ask((b"HMGET", self._grades, b"pages", b"relevant"))[0])

    def look(self, place: bytes) -> Heard:
        """Read the entries after *place*.

        Raises:
            StorageError: If the server cannot be reached.
        """
        entries, counts = self._connection.ask(
            (b"XRANGE", self._stream, b"(" + place, b"+", b"COUNT", _AT_ONCE),
            (b"HMGET", self._grades, b"pages", b"relevant"),
        )
        pages, relevant = _numbers(counts)
        return Heard(
            entries[-1][0] if entries else place,
            [values[1] for _, values in entries],
            pages,
            relevant,
            len(entries) == _AT_ONCE,
        )

    def tell(self, entry: bytes, pages: int, relevant: int) -> None:
        """Add *entry* to the stream, and so many graded *pages* to the counts.

        Raises:
            StorageError: If the server does not take it, or that is not known.
        """
        self._connection.transact(
            (b"XADD", self._stream, b"MAXLEN", _KEPT, b"*", b"l", entry),
            (b"HINCRBY", self._grades, b"pages", pages),
            (b"HINCRBY", self._grades, b"relevant", relevant),
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _numbers(counts: Sequence[bytes | None]) -> tuple[int, int]:
    pages, relevant = (int(count) if count and count.isdigit() else 0 for count in counts)
    return pages, relevant
