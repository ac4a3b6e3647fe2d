"""What the core asks of the world: a store that remembers.

The core owns these questions and the backends in :mod:`scrapy_aopic.storage` answer them. A backend
keeps bytes under bytes; what the bytes mean is decided in :mod:`.layout` and :mod:`.records` alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from .layout import Family

__all__ = ["Batch", "Family", "Store"]


Batch: TypeAlias = Mapping[Family, Mapping[bytes, "bytes | None"]]
"""New values by family and key; ``None`` deletes the key."""


class Store(Protocol):
    """Ordered key-value families that change only by whole batches."""

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the values of *keys*, in their order; ``None`` where a key is absent."""
        ...

    def scan(
        self, family: Family, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the pairs with ``start <= key < stop`` in ascending order of keys.

        The iterator shows the family as it was when the iterator was made, whatever is written meanwhile. ``stop=None`` means the end of the family.
        """
        ...

    def write(self, batch: Batch, *, sync: bool) -> None:
        """Apply *batch* atomically: after a crash of the process, all of it or none of it.

        With *sync* it is also on the disk when the call returns, so that it outlives a power cut. May be
        called from another thread than the reads, but never from two threads at once.

        Raises:
            StorageError: If nothing of the batch was stored; the store is still usable for reading.
        """
        ...

    def size_bytes(self) -> int:
        """Bytes that the store takes on disk (in memory, for a store without a disk)."""
        ...

    def verify(self) -> None:
        """Read all that is stored, and whatever else can tell whether the files are whole; it may take long.

        Raises:
            StorageError: What is damaged.
        """
        ...

    def close(self) -> None:
        """Release every file and lock. Idempotent. Does not write."""
        ...
