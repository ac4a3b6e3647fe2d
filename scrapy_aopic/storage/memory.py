"""A store without a disk: for crawls that need not survive, and as the model that other backends are compared with.

1. Values are in one dictionary for each family. The order of the keys is made at the first scan and then kept up to
   date, so that families that are only read by key pay nothing for it.
2. A scan pins the table that it started from; the next write works on a copy of that table. Most scans are finished or
   dropped before the next write, so copies are rare.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from weakref import WeakSet

from scrapy_aopic.core.ports import Batch, Family
from scrapy_aopic.exceptions import StorageError

_CHUNK_KEYS = 1_000
"""Keys in a chunk of the order. One flat list would move half of its keys at each insertion; a chunk moves a few KB."""

_MANY_CHANGES = 1_000
"""Changed keys, beside a quarter of all, from which sorting all keys is cheaper than single insertions."""


class MemoryStore:
    """Keeps everything in dictionaries and forgets it when closed."""

    def __init__(self) -> None:
        # The writer replaces tables and changes them, readers look into them: all under the lock.
        self._lock = threading.Lock()
        self._tables: dict[Family, _Table] = {family: _Table() for family in Family}
        self._closed = False

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._lock:
            self._check_open()
            return list(map(self._tables[family].values.get, keys))

    def scan(
        self, family: Family, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        with self._lock:
            self._check_open()
            return self._tables[family].scan(start, stop)

    def write(self, batch: Batch, *, sync: bool) -> None:
        with self._lock:
            self._check_open()
            for family, rows in batch.items():
                table = self._tables[family]
                if table.scans:
                    table = self._tables[family] = table.copy()
                table.update(rows.items())

    def size_bytes(self) -> int:
        with self._lock:
            return sum(table.size_bytes for table in self._tables.values())

    def verify(self) -> None:
        with self._lock:
            self._check_open()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._tables = {family: _Table() for family in Family}

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError("The memory store is closed; open a new one.")


class _Table:
    """One family: ``values`` by key, and their keys in order as soon as a scan has asked for it.

    Invariant: the keys of ``values`` are those of ``_order``, except for keys in ``_changed``.
    """

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.size_bytes = 0
        self.scans: WeakSet[Generator[tuple[bytes, bytes], None, None]] = WeakSet()
        self._order: _SortedKeys | None = None
        self._changed: set[bytes] = set()

    def copy(self) -> _Table:
        table = _Table()
        table.values = self.values.copy()
        table.size_bytes = self.size_bytes
        table._order = self._order.copy() if self._order else None
        table._changed = self._changed.copy()
        return table

    def update(self, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        for key, value in rows:
            before = self.values.get(key)
            if before is not None:
                self.size_bytes -= len(key) + len(before)
            if value is not None:
                self.size_bytes += len(key) + len(value)
                self.values[key] = value
            elif before is not None:
                del self.values[key]
            if self._order is not None and (before is None) is not (value is None):
                self._changed.add(key)
        if len(self._changed) > _MANY_CHANGES + len(self.values) // 4:
            self._order = None
            self._changed.clear()

    def scan(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        if self._order is None:
            self._order = _SortedKeys(self.values)
        for key in self._changed:
            if key in self.values:
                self._order.add(key)
            else:
                self._order.discard(key)
        self._changed.clear()
        pairs = self._pairs(self._order, start, stop)
        self.scans.add(pairs)
        return pairs

    def _pairs(
        self, order: _SortedKeys, start: bytes, stop: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        for key in order.between(start, stop):
            yield key, self.values[key]


class _SortedKeys:
    """Distinct keys in ascending order, in chunks none of which is empty."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        ordered = sorted(keys)
        self._chunks = [ordered[i : i + _CHUNK_KEYS] for i in range(0, len(ordered), _CHUNK_KEYS)]

    def copy(self) -> _SortedKeys:
        keys = _SortedKeys(())
        keys._chunks = [chunk.copy() for chunk in self._chunks]
        return keys

    def add(self, key: bytes) -> None:
        if not self._chunks:
            self._chunks.append([])
        chunk_index, index = self._find(key)
        chunk = self._chunks[chunk_index]
        if chunk[index : index + 1] == [key]:
            return
        chunk.insert(index, key)
        if len(chunk) > 2 * _CHUNK_KEYS:
            self._chunks[chunk_index : chunk_index + 1] = [chunk[:_CHUNK_KEYS], chunk[_CHUNK_KEYS:]]

    def discard(self, key: bytes) -> None:
        if not self._chunks:
            return
        chunk_index, index = self._find(key)
        chunk = self._chunks[chunk_index]
        if chunk[index : index + 1] == [key]:
            del chunk[index]
            if not chunk:
                del self._chunks[chunk_index]

    def between(self, start: bytes, stop: bytes | None) -> Iterator[bytes]:
        if not self._chunks:
            return
        chunk_index, begin = self._find(start)
        for chunk in islice(self._chunks, chunk_index, None):
            end = len(chunk) if stop is None else bisect_left(chunk, stop, begin)
            yield from islice(chunk, begin, end)
            if end < len(chunk):
                return
            begin = 0

    def _find(self, key: bytes) -> tuple[int, int]:
        """Where *key* is, or would be: the index of its chunk, and its index in that chunk."""
        chunk_index = max(bisect_right(self._chunks, key, key=_first) - 1, 0) if len(self._chunks) > 1 else 0
        return chunk_index, bisect_left(self._chunks[chunk_index], key)


def _first(chunk: list[bytes]) -> bytes:
    return chunk[0]
