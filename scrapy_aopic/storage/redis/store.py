"""Stores a crawl in Redis or Valkey: everything that must survive the process is on the server.

1. Rows lie in leaves: see :mod:`.leaves`. A read is one request, for any number of rows.
2. A batch is one transaction, which also compares and moves on the head of the job: see :mod:`.server_lock`. The
   server appends a transaction to its file as a whole, so after any crash of the server the job is as after one of
   its commits.
3. Commands are sent before the lock is taken under which the server carries them out, so that a reader waits little longer
   than the server itself needs: see :mod:`.transaction`.
4. Before a leaf changes, its rows are saved for scans and views that still have to read them: in memory for the scans of this
   store, on the server (``COPY``) for the views that other processes have open (:mod:`.frozen_view`).
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, ClassVar

from scrapy_aopic.exceptions import StorageError

from .connect import connect
from .keys import Keys
from .leaves import Leaves, Rows
from .rows import AT_ONCE, ask_for_leaves, chunks, measure, read_leaves, read_values
from .scan import Scan
from .server_checks import check_server
from .server_lock import LockKeeper, ServerLock
from .transaction import RedisStoreState, StoreWatch, write_batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_aopic.core.ports import Batch, Family, Store
    from scrapy_aopic.storage.address import Address

    from .connection import Connection


class RedisStore(RedisStoreState):
    """The store of the job at *address*; made if there is none.

    Args:
        task: The purpose for which it is opened, for messages of other processes.
        is_one_of_many: Whether it is one of several stores of a job: then the server was checked before, and a store that
            another process has open is refused at once.
        group: The stores with which it shares connections; by default it has its own.

    Attributes:
        read_ahead: See :class:`~scrapy_aopic.core.ports.Store`.
        most_steps: See there; a step has some 60 rows, for which the server needs 10 ms.

    Raises:
        StorageError: If another process has it open, it is damaged, or the server does not work.
        SettingError: If the address cannot be one.
    """

    read_ahead: ClassVar[int] = 8
    most_steps: ClassVar[int] = 100

    def __init__(
        self,
        address: Address,
        *,
        task: str = "crawl",
        is_one_of_many: bool = False,
        group: StoreGroup | None = None,
    ) -> None:
        keys = Keys(address)
        self._group = group or StoreGroup(address)
        self._is_alone = group is None
        with ExitStack() as opened:
            if self._is_alone:
                opened.callback(self._group.close)
            lock = ServerLock(
                address,
                keys,
                task=task,
                waits=not is_one_of_many,
                is_pinned=is_one_of_many,
                keeper=self._group.keeper,
            )
            opened.callback(lock.close)
            reader = self._group.reader(lock.run)
            with closing(connect(address)) as link:  # which others need not wait for
                if is_one_of_many:
                    link.pin(lock.run)
                else:
                    check_server(link, address)
                leaves = read_leaves(link.ask(*ask_for_leaves(keys)))
                _count_rows(link, keys, leaves)
            opened.pop_all()
        super().__init__(address, keys, lock, leaves, reader=reader, reading=self._group.reading)

    # -- reading

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        if not keys:
            self.check_open()
            return []
        with self.reading:
            self.check_open()
            found = self.ahead.take(family, keys)
            missing = [key for key in keys if key not in found] if found else keys
            if missing:
                groups = self.leaves[family].group(missing)
                leaf = self.keys.leaf
                commands = [(b"HMGET", leaf(family, each), *group) for each, group in groups.items()]
                replies = self.read(*commands)
        if missing:
            found.update(read_values(self.keys, family, groups.values(), replies))
        return [found[key] for key in keys]

    def prefetch(self, family: Family, keys: Sequence[bytes]) -> int:
        """Begin to read the values of *keys*; see :class:`scrapy_aopic.core.ports.Prefetching`."""
        if not self.reading.acquire(blocking=False):
            return 0  # a commit is being carried out: they are read when they are wanted
        try:
            return self.ahead.send(family, keys, self.leaves[family]) if not self.is_closed else 0
        finally:
            self.reading.release()

    def has_come(self, number: int) -> bool:
        """Whether the values of the request with that *number* are here, or will not come."""
        if not self.reading.acquire(blocking=False):
            return False
        try:
            return self.is_closed or self.ahead.has_come(number)
        finally:
            self.reading.release()

    def scan(
        self, family: Family, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        with self.reading:
            self.check_open()
            scan = Scan(self, self.keys, family, (start, stop), self.leaves[family].between(start, stop))
            self.scans.add(scan)
            return scan

    def read_leaves(self, scan: Scan, separators: Sequence[bytes]) -> list[Rows]:
        """The leaves *separators* as they were when *scan* began."""
        with self.reading:
            self.check_open()
            missing = [each for each in separators if each not in scan.saved]
            found = dict(zip(missing, self.rows_of(scan.family, missing), strict=True))
        return [scan.saved.pop(each) if each in scan.saved else found[each] for each in separators]

    # -- writing

    def write(self, batch: Batch, *, sync: bool) -> None:
        """Apply *batch* atomically; see :meth:`scrapy_aopic.core.ports.Store.write`.

        With *sync* or without, it is on the server's disk when the server's settings say: see docs/many-machines.md.

        Raises:
            LostError: If another process has opened the job meanwhile, or the server has lost commits.
        """
        del sync

        def write() -> None:
            if self._is_alone:
                (failure,) = self._group.write([(self, batch)])
            else:  # its first commit, for which no other has to wait
                with closing(connect(self.address)) as link:
                    link.pin(self.run)
                    (failure,) = write_batches([(self, batch)], StoreWatch(link))
            if failure is not None:
                raise failure

        self.patiently(write)

    # -- the rest

    @property
    def run(self) -> bytes:
        """Run of the server to which a store that is one of many is pinned: see rule 4 of :mod:`.connection`. After a restart,
        shards may know of letters that the server has lost."""
        return self.lock.run

    @property
    def head(self) -> bytes:
        """The head on the server: of the last commit, or of the process that has opened the job since."""
        return self.lock.head.packed()

    def check_lock(self) -> None:
        """Check that the job is still this process's, as far as that is known without asking the server.

        Raises:
            LostError: If it is not.
        """
        self.lock.check()

    @property
    def is_fading(self) -> bool:
        """Whether the lock may expire so soon that nothing new should be begun."""
        return self.lock.is_fading

    def size_bytes(self) -> int:
        with self.reading:
            self.check_open()
            return measure(self.reader, self.keys, self.leaves)

    def verify(self) -> None:
        for family, leaves in self.leaves.items():
            deque(self.scan(family), maxlen=0)
            with self.reading:
                self.check_open()
                commands = [(b"HLEN", self.keys.leaf(family, each)) for each in leaves.filled]
                found = [n for part in chunks(commands, AT_ONCE) for n in self.reader.ask(*part)]
                if sum(found) != leaves.n_rows:
                    raise self.keys.damaged(
                        f"{family.name} has {sum(found):,} rows, and should have {leaves.n_rows:,}"
                    )

    def close(self) -> None:
        with self.writing, self.reading:
            was_closed, self.is_closed = self.is_closed, True
        if not was_closed:
            self.lock.close()
            if self._is_alone:
                self._group.close()


class StoreGroup:
    """What the stores of a process share that are shards of the job at *address*: connections, however many they are.

    Attributes:
        keeper: Renews their locks.
        reading: The lock of the connection by which all are read; see :class:`~.transaction.RedisStoreState`.

    Raises:
        StorageError: If the server cannot be reached.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self.keeper = LockKeeper(address)
        self.reading = threading.Lock()
        self._reader: Connection | None = None
        self._watch: StoreWatch | None = None

    def reader(self, run: bytes) -> Connection:
        """The connection by which stores are read that are pinned to that *run* of the server.

        Raises:
            LostError: If another run is there.
            StorageError: If the server cannot be reached.
        """
        with self.reading:
            if self._reader is None or self._reader.run != run:
                if self._reader is not None:
                    self._reader.close()  # all that it reads is lost
                self._reader = connect(self._address)
                if run:
                    self._reader.pin(run)
            return self._reader

    def write(self, batches: Sequence[tuple[Store, Batch]]) -> list[StorageError | None]:
        """Write *batches*, each to a :class:`RedisStore` of its own, as one transaction; one thread at a time may.

        Returns:
            Why each was not stored, ``None`` if it was.
        """
        failures: dict[Store, StorageError | None] = {}
        by_run: dict[bytes, list[tuple[RedisStore, Batch]]] = {}
        for store, batch in batches:
            if not isinstance(store, RedisStore):
                raise TypeError(f"{store!r} is not on a server.")
            by_run.setdefault(store.run, []).append((store, batch))
        for run, some in by_run.items():
            failures.update(zip((store for store, _ in some), self._write(some, run), strict=True))
        return [failures[store] for store, _ in batches]

    def _write(
        self, batches: Sequence[tuple[RedisStore, Batch]], run: bytes
    ) -> Sequence[StorageError | None]:
        try:
            watch = self._connected(run)
        except StorageError as error:
            return [error] * len(batches)
        return write_batches(batches, watch)

    def _connected(self, run: bytes) -> StoreWatch:
        """The connection for commits to that *run* of the server.

        Raises:
            LostError: If another run is there.
            StorageError: If the server cannot be reached.
        """
        self._watch = self._watch or StoreWatch(connect(self._address))
        if self._watch.connection.run != run:
            self._watch.connection.pin(run)
        return self._watch

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self.keeper.close()
        if self._reader is not None:
            self._reader.close()
        if self._watch is not None:
            self._watch.connection.close()


def _count_rows(reader: Connection, keys: Keys, leaves: dict[Family, Leaves]) -> None:
    for family, each_leaf in leaves.items():
        counts: dict[bytes, int] = {}
        for separators in chunks(each_leaf.filled, AT_ONCE):
            commands = [(b"HLEN", keys.leaf(family, each)) for each in separators]
            counts.update(zip(separators, reader.ask(*commands), strict=True))
        if lost := [each for each, n in counts.items() if not n]:
            raise keys.damaged(f"{len(lost):,} leaves of {family.name} are gone")
        leaves[family] = Leaves(counts)
