"""Tables of rows in memory in front of the store: read through, written behind.

Changes collect in memory and reach the store as one atomic batch, so that a crash always leaves a state on the disk that
the core was in between two steps. While a batch is being written (in another thread) its rows are *in flight*: reads
still see them here, because the store may not have them yet. At most one batch is in flight; steps may go on meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Generic, Protocol, TypeVar

from scrapy_aopic.exceptions import SALVAGE, StorageError

from .ports import Family, Store, prefetching
from .records import NO_RECORD

T = TypeVar("T")


class RecordTable(Generic[T]):
    """Decoded records of one family behind a cache, which also answers "is it known?": the least recently used one leaves it first (LRU).

    A record from :meth:`get` may be changed in place and must then be given to :meth:`put` before the next
    call that reads: only records put and not yet committed are safe from eviction.

    Keys that were looked for in vain are remembered too: a link is looked for when it comes, and when its page is
    settled. Nothing else writes to the family, so only :meth:`put` can make one of them known.

    Args:
        capacity: Records kept beside those that wait for a commit.

    Attributes:
        put: Notes that a record, under its key, was changed or is new; under a key that is known it is the one
            from :meth:`get`.
    """

    def __init__(
        self,
        store: Store,
        family: Family,
        pack: Callable[[T], bytes],
        unpack: Callable[[bytes], T],
        capacity: int,
    ) -> None:
        self._store = store
        self._ahead = prefetching(store)
        self.family = family
        self._pack = pack
        self._unpack = unpack
        self._capacity = capacity
        # Those in the cache: they are in the store, maybe with older values.
        self._records: OrderedDict[bytes, T] = OrderedDict()
        self._absent: set[bytes] = set()
        self._in_flight: dict[bytes, T] = {}
        self._begin({})
        self.hits = 0
        self.misses = 0

    def _begin(self, fresh: dict[bytes, T]) -> None:
        self._fresh = fresh
        # A method would take twice as long, and a page makes some forty of these calls.
        self.put: Callable[[bytes, T], None] = fresh.__setitem__

    @property
    def n_changed(self) -> int:
        """Records put since the last :meth:`take`."""
        return len(self._fresh)

    def get(self, key: bytes) -> T | None:
        """The record under *key*, or ``None``."""
        record = self._records.get(key)
        if record is not None:
            self._records.move_to_end(key)
        else:  # half of all look-ups come here
            record = self._fresh.get(key)
            if record is None:
                record = self._in_flight.get(key)
        if record is not None or key in self._absent:
            self.hits += 1
        else:
            self.misses += 1
            value = self._store.get_many(self.family, (key,))[0]
            if value is None:
                self._miss((key,))
            else:
                record = self._records[key] = self._read_record(key, value)
                self._evict()
        return record

    def get_many(self, keys: Sequence[bytes]) -> list[T | None]:
        """The records under *keys*, in their order; the ones not in memory with one read of the store."""
        found = list(map(self._records.get, keys))
        fresh, in_flight, use, missing = self._fresh.get, self._in_flight.get, self._records.move_to_end, []
        for place, key in enumerate(keys):
            if found[place] is not None:
                use(key)
                continue
            record = fresh(key)
            if record is None:
                record = in_flight(key)
            if record is not None:
                found[place] = record
            elif key not in self._absent:
                missing.append(place)
        self.hits += len(keys) - len(missing)
        if missing:
            read = self._read([keys[place] for place in missing])
            for place, record in zip(missing, read, strict=True):
                found[place] = record
            self._evict()
        return found

    def prefetch(self, keys: Sequence[bytes]) -> int:
        """Begin to read the records under those of *keys* that are not in memory, if the store can do that.

        Returns:
            Number of the request to the store; 0 if there is none.
        """
        if self._ahead is None:
            return 0
        layers = (self._records, self._fresh, self._in_flight, self._absent)
        missing = [key for key in keys if not any(key in layer for layer in layers)]
        return self._ahead.prefetch(self.family, missing) if missing else 0

    def _read(self, keys: Sequence[bytes]) -> list[T | None]:
        """Bring the records under *keys*, none of them in memory, into it."""
        self.misses += len(keys)
        unpack, values = self._unpack, self._store.get_many(self.family, keys)
        try:
            new = {key: unpack(value) for key, value in zip(keys, values, strict=True) if value is not None}
        except NO_RECORD:
            new = {
                key: self._read_record(key, value)
                for key, value in zip(keys, values, strict=True)
                if value is not None
            }
        self._records.update(new)
        if len(new) < len(keys):
            self._miss([key for key in keys if key not in new])
        return list(map(new.get, keys))

    def _read_record(self, key: bytes, value: bytes) -> T:
        """The record written as *value* under *key*.

        Raises:
            StorageError: If it is damaged.
        """
        try:
            return self._unpack(value)
        except NO_RECORD as error:
            raise StorageError(
                f"The row {key.hex()} of the store's {self.family.name} cannot be understood: {SALVAGE}"
            ) from error

    def expect_none(self, key: bytes) -> None:
        """*key* is new: the store has nothing under it, and need not be asked."""
        if not (key in self._records or key in self._fresh or key in self._in_flight):
            self._miss((key,))

    def _miss(self, keys: Sequence[bytes]) -> None:
        """Remember that the store has nothing under *keys*."""
        self._absent.update(keys)
        if len(self._absent) > self._capacity:
            self._absent.clear()

    def take(self) -> dict[bytes, bytes | None]:
        """Move all changes in flight and return them as rows."""
        pack = self._pack
        self._in_flight = self._fresh
        self._begin({})
        self._absent.difference_update(self._in_flight)
        return {key: pack(record) for key, record in self._in_flight.items()}

    def landed(self) -> None:
        """The rows in flight are in the store."""
        records, landed, self._in_flight = self._records, self._in_flight, {}
        records.update({key: record for key, record in landed.items() if key not in records})
        self._evict()

    def failed(self) -> None:
        """The rows in flight did not reach the store: they are changes again."""
        self._begin({**self._in_flight, **self._fresh})
        self._in_flight = {}

    def _evict(self) -> None:
        """Let go of what is over the capacity; a record that waits for a commit is kept as one of these."""
        while len(self._records) > self._capacity:
            self._records.popitem(last=False)


_MOST_AHEAD = 10_000
"""Most values that a table keeps because they were read ahead: about a megabyte."""


class BlobTable:
    """Values of one family that are written once and read rarely; not cached, except for those read ahead."""

    def __init__(self, store: Store, family: Family) -> None:
        self._store = store
        self._prefetching = prefetching(store)
        self.family = family
        self._ahead: dict[bytes, bytes | None] = {}
        self._fresh: dict[bytes, bytes | None] = {}
        self._in_flight: dict[bytes, bytes | None] = {}

    def get(self, key: bytes) -> bytes | None:
        """The value under *key*, or ``None``."""
        for layer in (self._fresh, self._in_flight):
            if key in layer:
                return layer[key]
        if key in self._ahead:
            return self._ahead.pop(key)
        return self._store.get_many(self.family, (key,))[0]

    def peek(self, key: bytes) -> bytes:
        """The value under *key* if it is in memory, where it stays; empty if it is not, or there is none."""
        for layer in (self._fresh, self._in_flight, self._ahead):
            if key in layer:
                return layer[key] or b""
        return b""

    def is_at_hand(self, key: bytes) -> bool:
        """Whether the value under *key* is in memory."""
        return key in self._ahead or key in self._fresh or key in self._in_flight

    def prefetch(self, keys: Sequence[bytes]) -> None:
        """Begin to read the values under *keys*, for one :meth:`get_many` or :meth:`read_ahead`, if the store can do that."""
        if self._prefetching is not None:
            missing = [key for key in keys if not self.is_at_hand(key)]
            if missing:
                self._prefetching.prefetch(self.family, missing)

    def read_ahead(self, keys: Sequence[bytes]) -> None:
        """Read the values under *keys*, so that each can be got once without a read."""
        wanted = [key for key in keys if not self.is_at_hand(key)]
        if wanted:
            self._ahead.update(zip(wanted, self._store.get_many(self.family, wanted), strict=True))
            while len(self._ahead) > _MOST_AHEAD:
                del self._ahead[next(iter(self._ahead))]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values under *keys*, in their order; the ones not in memory with one read of the store."""
        found: list[bytes | None] = []
        missing: list[int] = []
        for position, key in enumerate(keys):
            layer = self._fresh if key in self._fresh else self._in_flight
            if key not in layer:
                missing.append(position)
            found.append(layer.get(key))
        if missing:
            values = self._store.get_many(self.family, [keys[position] for position in missing])
            for position, value in zip(missing, values, strict=True):
                found[position] = value
        return found

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value under *key*."""
        self.put_all({key: value})

    def put_all(self, values: Mapping[bytes, bytes]) -> None:
        """Set *values* by their keys."""
        self._fresh.update(values)
        if self._ahead:
            for key in values:
                self._ahead.pop(key, None)

    def delete(self, key: bytes) -> None:
        """Delete the value under *key*."""
        self._fresh[key] = None
        self._ahead.pop(key, None)

    def take(self) -> dict[bytes, bytes | None]:
        """Move all changes in flight and return them as rows."""
        self._in_flight, self._fresh = self._fresh, {}
        return dict(self._in_flight)

    def landed(self) -> None:
        """The rows in flight are in the store."""
        self._in_flight = {}

    def failed(self) -> None:
        """The rows in flight did not reach the store: they are changes again."""
        self._fresh = {**self._in_flight, **self._fresh}
        self._in_flight = {}


class RowTable:
    """Ordered rows of one family, read by prefix: those on the disk, overlaid with pending changes.

    Rows are taken from the front of a bucket, and a log-structured store steps over each that was deleted there
    (measured: 24 ms a scan after 200,000), so the table remembers where the rows of a bucket begin.

    Args:
        bucket_of: Gives the prefix of a key under which its row is read.
    """

    def __init__(self, store: Store, family: Family, bucket_of: Callable[[bytes], bytes]) -> None:
        self._store = store
        self.family = family
        self._bucket_of = bucket_of
        self._fresh: dict[bytes, dict[bytes, bytes | None]] = {}
        self._in_flight: dict[bytes, dict[bytes, bytes | None]] = {}
        self._begins: dict[bytes, bytes] = {}

    def put(self, key: bytes, value: bytes) -> None:
        """Insert a row."""
        self.change(self._bucket_of(key), {key: value})

    def delete(self, key: bytes) -> None:
        """Delete a row."""
        self.change(self._bucket_of(key), {key: None})

    def change(self, bucket: bytes, rows: dict[bytes, bytes | None]) -> None:
        """Insert *rows*, all of *bucket*, by their whole keys; delete those without a value."""
        self._fresh.setdefault(bucket, {}).update(rows)
        begin = self._begins.get(bucket)
        if begin is not None and (first := min(rows)) < begin:
            self._begins[bucket] = first

    def forget(self, bucket: bytes) -> None:
        """*bucket* will not be read for a while: forget where its rows begin."""
        self._begins.pop(bucket, None)

    def first(self, bucket: bytes, n: int, behind: bytes = b"") -> tuple[list[tuple[bytes, bytes]], bool]:
        """The first rows whose keys start with *bucket*, or of those behind the key *behind*.

        Returns:
            At least *n* rows (whole keys) in order, or all there are; and whether they are all.
        """
        begin = behind + b"\0" if behind else self._begins.get(bucket, bucket)
        pending = self._in_flight.get(bucket, {}) | self._fresh.get(bucket, {})
        changes = {key: value for key, value in pending.items() if key >= begin}
        # Only deletions can eat up what the store gives, so ask for that many more.
        spare = list(changes.values()).count(None)
        stored = list(islice(self._store.scan(self.family, begin, _after(bucket)), n + spare + 1))
        whole = len(stored) <= n + spare
        rows: dict[bytes, bytes | None] = dict(stored)
        end = None if whole else stored[-1][0]
        rows |= {key: value for key, value in changes.items() if end is None or key <= end}
        found = sorted((key, value) for key, value in rows.items() if value is not None)
        if found and not behind:
            self._begins[bucket] = found[0][0]
        return found, whole

    def take(self) -> dict[bytes, bytes | None]:
        """Move all changes in flight and return them as rows."""
        self._in_flight, self._fresh = self._fresh, {}
        return _flat(self._in_flight.values())

    def landed(self) -> None:
        """The rows in flight are in the store."""
        self._in_flight = {}

    def failed(self) -> None:
        """The rows in flight did not reach the store: they are changes again."""
        self._fresh |= {
            bucket: {**rows, **self._fresh.get(bucket, {})} for bucket, rows in self._in_flight.items()
        }
        self._in_flight = {}


def _flat(layers: Iterable[dict[bytes, bytes | None]]) -> dict[bytes, bytes | None]:
    return {key: value for layer in layers for key, value in layer.items()}


def _after(prefix: bytes) -> bytes | None:
    """The smallest key greater than every key that starts with *prefix*."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None


class Table(Protocol):
    """Rows of a family that are written behind."""

    family: Family

    def take(self) -> dict[bytes, bytes | None]:
        """Move all changes in flight and return them as rows."""

    def landed(self) -> None:
        """The rows in flight are in the store."""

    def failed(self) -> None:
        """The rows in flight did not reach the store: they are changes again."""


class Commits:
    """Takes the changes of all tables of a crawl.

    Args:
        tables: Those with rows of one family share no key.

    Attributes:
        has_changes: Whether anything happened since the last batch was taken; set by whoever changes something.
    """

    def __init__(self, tables: Sequence[Table]) -> None:
        self.has_changes = False
        self._tables = tables

    def take(self, totals: Mapping[bytes, bytes]) -> dict[Family, dict[bytes, bytes | None]]:
        """All changes as one batch, with the rows *totals* of the ``META`` family."""
        self.has_changes = False
        batch: dict[Family, dict[bytes, bytes | None]] = {Family.META: {**totals}}
        for table in self._tables:
            rows = table.take()
            if (before := batch.setdefault(table.family, rows)) is not rows:
                before.update(rows)
        return batch

    def landed(self) -> None:
        """The batch in flight is in the store."""
        for table in self._tables:
            table.landed()

    def failed(self) -> None:
        """The batch in flight did not reach the store; the next one will hold it too."""
        for table in self._tables:
            table.failed()
        self.has_changes = True
