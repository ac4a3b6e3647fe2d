"""What the core asks of the world: a store that remembers.

The core owns these questions and the backends in :mod:`scrapy_aopic.storage` answer them. A backend
keeps bytes under bytes; what the bytes mean is decided in :mod:`scrapy_aopic.core.records` alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Protocol, TypeAlias


class Family(IntEnum):
    """The key spaces of a store; each is ordered by the unsigned bytes of its keys.

    Keys start with the host (8 bytes), so that everything of one host lies together.
    """

    PAGES = 0  # host | page -> state, cash, history: small, rewritten at every credit; also the seen-set
    REQUESTS = 1  # host | page -> the request as bytes: larger, written once
    QUEUE = 2  # host | front queue | order -> page: what waits to be fetched
    HOSTS = 3  # host -> name, politeness clock, counts
    META = 4  # names -> totals of the ledger, format version, index of hosts
    DOMAINS = 5  # registered domain -> visited pages, supporters
    LINKS = 6  # host | page -> the pages it links to, if links are kept
    ROBOTS = 7  # host | scheme, name and port -> its robots.txt, and when it was asked for
    CONTENT = 8  # letter | digest, band, page or pages -> page, text or claim: core/content.py


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
