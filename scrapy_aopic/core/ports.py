"""The core's port to the world: a store.

The core defines the port, and the backends in :mod:`scrapy_aopic.storage` implement it. A backend keeps bytes under
bytes; only :mod:`.layout` and :mod:`.records` know what the bytes mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias, cast

from .layout import Family

__all__ = ["Batch", "Family", "Prefetching", "Store", "StoreAround"]


Batch: TypeAlias = Mapping[Family, Mapping[bytes, "bytes | None"]]
"""New values by family and key; ``None`` deletes the key."""


class Store(Protocol):
    """Ordered key-value families that change only by whole batches.

    A store that takes as long to read ten rows as one may have an attribute ``read_ahead``: for how many pages beside
    the one that is wanted a crawl should ask. One that others have to wait for while it takes a large batch may have
    ``most_steps``: of a crawl, after which a commit is due. One whose reads take long may be :class:`Prefetching`, too.

    One process writes, and keeps much of what is stored in memory: a store on a server does not make a frontier that
    several processes share. What they could share is a :class:`~.api.CrawlPort`.

    Every failure is a :class:`~scrapy_aopic.exceptions.StorageError` whose message is one sentence for the user, with
    the folder and the cause. It contains "closed" once the store is closed, and "Cannot write" if the disk refuses a
    batch.
    """

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the values of *keys*, in their order; ``None`` where a key is absent.

        Raises:
            StorageError: If the store is closed, or a value cannot be read.
        """

    def scan(
        self, family: Family, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the pairs with ``start <= key < stop`` in ascending order of keys.

        The iterator shows the family as it was at this call, not at its first row, whatever is written meanwhile; so
        this cannot be a generator function. ``stop=None`` means the end of the family.

        Raises:
            StorageError: If the store is closed: at this call. An iterator from before ``close`` raises it at its next
                row, or at the first that it has not read yet. If a row cannot be read: here or at that row.
        """

    def write(self, batch: Batch, *, sync: bool) -> None:
        """Apply *batch* atomically: after a crash of the process, all of it or none of it.

        With *sync* it is also on the disk when the call returns, so that it outlives a power cut. May be
        called from another thread than the reads, but never from two threads at once.

        Raises:
            StorageError: If the store is closed or a view, or cannot be written. Nothing of the batch was stored, and
                the store is still usable for reading.
        """

    def size_bytes(self) -> int:
        """Bytes that the store takes on disk (in memory, for a store without a disk)."""

    def verify(self) -> None:
        """Read all that is stored from the disk, and whatever else shows whether the files are whole; may take long.

        Raises:
            StorageError: If anything is damaged, with what it is; or if the store is closed.
        """

    def close(self) -> None:
        """Release every file and lock. Idempotent. Does not write."""


class StoreAround:
    """A store as another one has it: a subclass has some calls of its own."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        return self.store.get_many(family, keys)

    def scan(
        self, family: Family, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        return self.store.scan(family, start, stop)

    def write(self, batch: Batch, *, sync: bool) -> None:
        self.store.write(batch, sync=sync)

    def size_bytes(self) -> int:
        return self.store.size_bytes()

    def verify(self) -> None:
        self.store.verify()

    def close(self) -> None:
        self.store.close()


class StorePart(StoreAround):
    """Part *number*, below 65,535, of a *store* that holds the rows of several stores."""

    def __init__(self, store: Store, number: int) -> None:
        super().__init__(store)
        self._begin, self._end = ((number + n).to_bytes(2, "big") for n in (0, 1))

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        return self.store.get_many(family, [self._begin + key for key in keys])

    def scan(
        self, family: Family, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        end = self._end if stop is None else self._begin + stop
        rows, n = self.store.scan(family, self._begin + start, end), len(self._begin)
        return ((key[n:], value) for key, value in rows)

    def write(self, batch: Batch, *, sync: bool) -> None:
        rows = {
            family: {self._begin + key: value for key, value in part.items()}
            for family, part in batch.items()
        }
        self.store.write(rows, sync=sync)


class Prefetching(Protocol):
    """An option of a :class:`Store`: to read values before they are needed, while the crawl goes on.

    Only speed depends on it: :meth:`Store.get_many` returns the same values, and waits for those that have not arrived.
    Neither method raises anything: an error shows when the values are read.
    """

    def prefetch(self, family: Family, keys: Sequence[bytes]) -> int:
        """Begin to read the values of *keys*, each of which will be wanted soon, by one :meth:`Store.get_many`.

        Returns:
            Number of the request that brings them.
        """

    def has_come(self, number: int) -> bool:
        """Whether the values of the request with that *number* are here, or will not come."""


def prefetching(store: object) -> Prefetching | None:
    """*store*, if it can do that."""
    return cast("Prefetching", store) if getattr(store, "prefetch", None) is not None else None
