"""The state of a store that a process has open: its leaves, its locks, and the scans that still have to read its rows."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakSet

from scrapy_aopic.exceptions import StorageError

from .read_ahead import ReadAhead
from .rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_aopic.core.ports import Family
    from scrapy_aopic.storage.address import Address

    from .connection import Connection
    from .keys import Keys
    from .leaves import Leaves, Rows
    from .scan import Scan
    from .server_lock import ServerLock


class RedisStoreState:
    """The state of the store at *address*, which is open.

    Attributes:
        lock: The right to change it.
        reader: Connection that is used with *reading* held.
        leaves: Leaves of each family; they change with *writing* and *reading* held.
        ahead: Rows that are read before they are wanted; used with *reading* held.
        writing: One commit at a time.
        reading: Leaves and rows do not change while this is held.
        scans: Scans that may not have ended.
        to_cut: Leaves that have too many rows, or few, with these, as of the last commit.
        broken: Why it takes no more writes; empty if it takes them.
    """

    def __init__(
        self,
        address: Address,
        keys: Keys,
        lock: ServerLock,
        reader: Connection,
        leaves: dict[Family, Leaves],
    ) -> None:
        self.address = address
        self.keys = keys
        self.lock = lock
        self.reader = reader
        self.leaves = leaves
        self.ahead = ReadAhead(reader, keys)
        self.writing = threading.Lock()
        self.reading = threading.Lock()
        self.scans: WeakSet[Scan] = WeakSet()
        self.to_cut: dict[tuple[Family, bytes], Rows] = {}
        self.broken = ""
        self.is_closed = False

    def check_open(self) -> None:
        """Check that it is open.

        Raises:
            StorageError: If it is not.
        """
        if self.is_closed:
            raise StorageError(f"The store in {self.address} is closed; open it again.")

    @property
    def can_commit(self) -> bool:
        """Whether there may be another commit, as far as that is known."""
        return not (self.is_closed or self.broken or self.lock.is_lost)

    def check_writable(self) -> None:
        """Check that it is open and takes writes, as far as that is known without asking the server.

        Raises:
            LostError: If the job is another process's.
            StorageError: If it takes no writes for another reason.
        """
        self.check_open()
        if self.broken:
            raise StorageError(
                f"The store in {self.address} takes no more writes: {self.broken}; open it again."
            )
        self.lock.check()

    def rows_of(self, family: Family, separators: Sequence[bytes]) -> list[Rows]:
        """The rows of leaves, as they are on the server; used with *reading* held."""
        leaf = self.keys.leaf
        replies = self.reader.ask(*((b"HGETALL", leaf(family, each)) for each in separators))
        return [read_rows(self.keys, family, reply) for reply in replies]
