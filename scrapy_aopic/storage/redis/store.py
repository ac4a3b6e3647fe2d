"""Keeps a crawl in Redis or Valkey: the process that crawls keeps nothing that must survive it.

1. Rows lie in leaves: see :mod:`.leaves`. A read is one request, however many rows it is of.
2. A batch is one transaction, which also compares and moves on the head of the job: see :mod:`.writer_lease`. The
   server appends a transaction to its file as a whole, so after any crash of the server the job is as after one of
   its commits.
3. Commands are sent before the lock is taken under which the server carries them out, so that a reader waits little longer
   than the server itself needs: see :mod:`.transaction`.
4. Before a leaf changes, its rows are saved for whoever still has to see them: in memory for the scans of this store,
   on the server (``COPY``) for the views that other processes have open (:mod:`.frozen_view`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Protocol

from .connect import connect
from .keys import Keys
from .leaves import Leaves
from .replies import AT_ONCE, ask_for_leaves, chunks, measure, read_leaves, read_values
from .server_checks import check_server
from .transaction import Opened, write_together
from .writer_lease import Lease

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scrapy_aopic.core.ports import Batch, Family
    from scrapy_aopic.storage.address import Address

    from .connection import Link
    from .leaves import Rows

_SCAN_LEAVES = 16
"""Leaves that a scan reads at once, at most; it begins with one, for most scans want a few rows."""


class RedisStore:
    """The store of the job at *address*; made if there is none.

    Args:
        task: What it is opened for, for the message to others.
        is_one_of_many: Whether it is one of the stores of a job: the server was looked at, and one that another process
            has open is left to that.

    Attributes:
        opened: What of it :func:`.transaction.write_together` changes.
        read_ahead: See :class:`~scrapy_aopic.core.ports.Store`.
        most_steps: The same; some 60 rows each, for which the server needs 10 ms.
        run: Of the server, after which a store that is one of many is lost: see rule 4 of :mod:`.connection`. Shards know of
            each other what a server that has lost its end may know no more.

    Raises:
        StorageError: If another process has it open, it is damaged, or the server does not work.
        SettingError: If the address cannot be one.
    """

    read_ahead: ClassVar[int] = 8
    most_steps: ClassVar[int] = 100

    def __init__(self, address: Address, *, task: str = "crawl", is_one_of_many: bool = False) -> None:
        keys = Keys(address)
        lease = Lease(address, keys, task=task, waits=not is_one_of_many, is_pinned=is_one_of_many)
        self.run = lease.run
        links: list[Link] = []
        try:
            links += [reader := connect(address)]
            links += [writer := connect(address)]
            if is_one_of_many:
                for link in links:
                    link.pin(self.run)
            else:
                check_server(reader, address)
            leaves = read_leaves(reader.ask(*ask_for_leaves(keys)))
            _count_rows(reader, keys, leaves)
        except BaseException:
            lease.close()
            for link in links:
                link.close()
            raise
        self.opened = Opened(address, keys, lease, (reader, writer), leaves)

    # -- reading

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        opened = self.opened
        if not keys:
            opened.check()
            return []
        with opened.reading:
            opened.check()
            found = opened.ahead.take(family, keys)
            missing = [key for key in keys if key not in found] if found else keys
            if missing:
                groups = opened.leaves[family].group(missing)
                leaf = opened.keys.leaf
                asked = [(b"HMGET", leaf(family, each), *group) for each, group in groups.items()]
                replies = opened.reader.ask(*asked)
        if missing:
            found.update(read_values(opened.keys, family, groups.values(), replies))
        return [found[key] for key in keys]

    def prefetch(self, family: Family, keys: Sequence[bytes]) -> int:
        """Begin to read the values of *keys*; see :class:`scrapy_aopic.core.ports.Prefetching`."""
        opened = self.opened
        if not opened.reading.acquire(blocking=False):
            return 0  # a commit is being carried out: they are read when they are wanted
        try:
            return opened.ahead.send(family, keys, opened.leaves[family]) if not opened.is_closed else 0
        finally:
            opened.reading.release()

    def has_come(self, number: int) -> bool:
        """Whether the values of the request with that *number* are here, or will not come."""
        opened = self.opened
        if not opened.reading.acquire(blocking=False):
            return False
        try:
            return opened.is_closed or opened.ahead.has_come(number)
        finally:
            opened.reading.release()

    def scan(
        self, family: Family, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        opened = self.opened
        with opened.reading:
            opened.check()
            scan = Scan(self, opened.keys, family, (start, stop), opened.leaves[family].between(start, stop))
            opened.readings.add(scan)
            return scan

    def read_leaves(self, scan: Scan, separators: Sequence[bytes]) -> list[Rows]:
        """The leaves *separators* as they were when *scan* began."""
        opened = self.opened
        with opened.reading:
            opened.check()
            asked = [each for each in separators if each not in scan.saved]
            found = dict(zip(asked, opened.read_leaves(scan.family, asked), strict=True))
        return [scan.saved.pop(each) if each in scan.saved else found[each] for each in separators]

    # -- writing

    def write(self, batch: Batch, *, sync: bool) -> None:
        """Apply *batch* atomically; see :meth:`scrapy_aopic.core.ports.Store.write`.

        With *sync* or without, it is on the server's disk when the server's settings say: see docs/many-machines.md.

        Raises:
            LostError: If another process has opened the job meanwhile, or the server has lost commits.
        """
        del sync
        (failure,) = write_together([(self.opened, batch)], self.opened.writer)
        if failure is not None:
            raise failure

    # -- the rest

    @property
    def head(self) -> bytes:
        """What the server has of the last commit, or of who has opened the job since: token, and number of the commit."""
        return self.opened.lease.head.packed()

    def check_lease(self) -> None:
        """Do nothing if the job is still this process's, as far as that is known without asking the server.

        Raises:
            LostError: If it is not.
        """
        self.opened.lease.check()

    @property
    def is_fading(self) -> bool:
        """Whether so little is left of the lease that nothing new should be begun."""
        return self.opened.lease.is_fading

    def size_bytes(self) -> int:
        opened = self.opened
        with opened.reading:
            opened.check()
            return measure(opened.reader, opened.keys, opened.leaves)

    def verify(self) -> None:
        opened = self.opened
        for family, leaves in opened.leaves.items():
            deque(self.scan(family), maxlen=0)
            with opened.reading:
                opened.check()
                asked = [(b"HLEN", opened.keys.leaf(family, each)) for each in leaves.filled]
                found = [n for part in chunks(asked, AT_ONCE) for n in opened.reader.ask(*part)]
                if sum(found) != leaves.n_rows:
                    raise opened.keys.damaged(
                        f"{family.name} has {sum(found):,} rows, and should have {leaves.n_rows:,}"
                    )

    def close(self) -> None:
        self.opened.close()


def _count_rows(reader: Link, keys: Keys, leaves: dict[Family, Leaves]) -> None:
    for family, each_leaf in leaves.items():
        counts: dict[bytes, int] = {}
        for separators in chunks(each_leaf.filled, AT_ONCE):
            asked = [(b"HLEN", keys.leaf(family, each)) for each in separators]
            counts.update(zip(separators, reader.ask(*asked), strict=True))
        if lost := [each for each, n in counts.items() if not n]:
            raise keys.damaged(f"{len(lost):,} leaves of {family.name} are gone")
        leaves[family] = Leaves(counts)


class Source(Protocol):
    """What a scan reads from."""

    def read_leaves(self, scan: Scan, separators: Sequence[bytes], /) -> list[Rows]:
        """The leaves *separators* as they were when *scan* began."""


class Scan(Iterator[tuple[bytes, bytes]]):
    """The rows of the leaves *separators* within *bounds*, the second of which they do not reach; leaf by leaf.

    Attributes:
        family: Whose rows they are.
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
        source: Source,
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
        """Those of the leaves *touched* that it has yet to read, and that are not saved."""
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
        self._n = min(2 * self._n, _SCAN_LEAVES)
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
