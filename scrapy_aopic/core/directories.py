"""How many pages of each directory of a host were fetched, up to the number at which a directory is full.

A page of a full directory waits one front queue lower (:meth:`.pages.Pages.lower`), so that a crawl does not finish one
directory of a host before it begins others. A directory is what :attr:`.policy.Policy.directory_of` gives for a request.

Rule 1: a count never falls, and is written no more once the directory is full.

Rule 2: two directories of a host whose digests are equal count as one, which moves their pages by one front queue at most;
so a digest of a few bytes is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .layout import DIRECTORIES
from .ports import Family, Store
from .records import HOST_BYTES, part_digest
from .tables import RecordTable

MOST_COUNTED = 255
"""Largest number of pages at which a directory can be full: a count is one byte."""


class Directories:
    """The counts of fetched pages of directories.

    Args:
        directory_of: The directory of a request, as bytes, empty for none; ``None`` to count nothing.
        full: Fetched pages at which a directory is full, at most :data:`MOST_COUNTED`; 0 if none ever is.
        capacity: Counts kept in memory.

    Attributes:
        full: The same; 0 if nothing is counted.
    """

    def __init__(
        self, store: Store, directory_of: Callable[[bytes], bytes] | None, full: int, capacity: int
    ) -> None:
        # Bytearrays, since a record of a table is changed in place.
        self.table = RecordTable(store, Family.META, bytes, _unpack, capacity)
        self._directory_of = directory_of
        self.full = full if directory_of is not None else 0

    def _row(self, page: bytes, request: bytes) -> bytes:
        """Key of the row of the directory of *request*; empty if it is in none that is counted."""
        directory = self._directory_of(request) if self.full and self._directory_of is not None else b""
        return DIRECTORIES + page[:HOST_BYTES] + part_digest(directory) if directory else b""

    def is_full(self, page: bytes, request: bytes) -> bool:
        """Whether the directory of *request*, which is that of the page under the key *page*, is full."""
        row = self._row(page, request)
        fetched = self.table.get(row) if row else None
        return fetched is not None and fetched[0] >= self.full

    def count(self, page: bytes, request: bytes) -> None:
        """Count the page under the key *page*, which was fetched by *request* for the first time."""
        row = self._row(page, request)
        if not row:
            return
        fetched = self.table.get(row) or bytearray(1)
        if fetched[0] < self.full:
            fetched[0] += 1
            self.table.put(row, fetched)

    def read_ahead(self, pages: Iterable[bytes], requests: Iterable[bytes]) -> None:
        """Read the counts for *requests* of *pages*, by their keys, with one read of the store."""
        rows = {self._row(page, request): None for page, request in zip(pages, requests, strict=True)}
        rows.pop(b"", None)
        if rows:
            self.table.get_many(list(rows))


def _unpack(data: bytes) -> bytearray:
    return bytearray((data[0],))
