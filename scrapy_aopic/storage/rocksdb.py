"""Keeps a crawl in RocksDB: the least written to disk, and flat in memory up to 100 million pages.

1. One column family for each :class:`~scrapy_aopic.core.ports.Family`, tuned for how it is used: see
   :func:`_family_options`.
2. Every batch is one write-ahead log record, so a killed process loses no batch whose ``write()``
   returned, and a power cut none that was written with ``sync``.
3. No more than about 45 file descriptors, however large the crawl: see ``_MAX_OPEN_FILES``.
4. A snapshot is a RocksDB *secondary instance*: it replays the log of the live store into its own
   memory and never writes to the folder of the store.

Only :mod:`rocksdict` 0.3 is known to work; what it cannot do (merge operators, comparators) is not used.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
)

from scrapy_aopic.core.ports import Family
from scrapy_aopic.exceptions import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocksdict import ColumnFamily, RdictIter

    from scrapy_aopic.core.ports import Batch

logger = logging.getLogger(__name__)

_MB = 1 << 20

# RocksDB keeps ten less than this many tables open. A table that is not open costs 15 us to open, which
# made random reads 3.3 times slower with twice as many tables as descriptors; hence the large files of
# _FILE_SIZE_GROWTH, with which 100 million pages (12 GB) are about 60 tables.
_MAX_OPEN_FILES = 40

# Files of the last level are 4 times larger than those of the one above it. Measured: no more bytes
# written by compaction than with equal sizes, half as many files.
_FILE_SIZE_GROWTH = 4

# The files of a busy store change every few seconds and a snapshot opens in 0.05-0.5 s.
_SNAPSHOT_ATTEMPTS = 50


class RocksStore:
    """A RocksDB database in *folder*, or with *read_only* a snapshot of one that may be in use.

    One process at a time may have the store open; any number may have snapshots of it.

    Files: those of RocksDB, ``rocksdict-config.json`` and two log files of at most 1 MB; they may change
    without warning.
    """

    def __init__(self, folder: Path, *, memory_mb: int = 64, read_only: bool = False) -> None:
        self._folder = folder
        self._writing = threading.Lock()  # close() waits for a write in another thread
        self._broken = ""  # why nothing can be written any more
        self._scans: WeakSet[_Scan] = WeakSet()
        self._temporary = tempfile.mkdtemp(prefix="aopic-snapshot-") if read_only else None
        try:
            self._db: Rdict | None = (
                _open_secondary(folder, self._temporary, memory_mb)
                if self._temporary
                else Rdict(str(folder), _options(memory_mb), _families_options(memory_mb))
            )
            self._families = {family: self._db.get_column_family(family.name) for family in Family}
            self._handles: dict[Family, ColumnFamily] = {
                family: self._db.get_column_family_handle(family.name) for family in Family
            }
        except Exception as error:  # rocksdict raises bare Exception for everything
            self._remove_temporary()
            raise _open_error(folder, error) from error

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        # RocksDB sorts the keys itself; sorting them here as well was measured to gain nothing.
        try:
            values: list[bytes | None] = self._column(family).get(list(keys))
        except Exception as error:
            raise self._error("read", error) from error
        return values

    def scan(self, family: Family, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        options = ReadOptions()
        if stop is not None:
            options.set_iterate_upper_bound(stop)
        try:
            cursor = self._column(family).iter(options)
            cursor.seek(start)
        except Exception as error:
            raise self._error("read", error) from error
        scan = _Scan(self, cursor)
        self._scans.add(scan)
        return scan

    def write(self, batch: Batch, *, sync: bool) -> None:
        """Apply *batch* atomically; see :meth:`scrapy_aopic.core.ports.Store.write`.

        If the batch was stored but could not be forced to the disk, nobody can tell whether it would
        outlive a power cut: this is an error too, and the store refuses further writes until reopened.
        """
        with self._writing:
            db = self._writable()
            try:
                db.write(self._record(batch))
            except Exception as error:
                raise self._error("write to", error) from error
            if not sync:
                return
            # Not WriteOptions.sync: rocksdict holds the interpreter lock in write(), which would stop
            # every thread while the disk works (0.5 ms, sometimes 100 ms), but not in flush_wal().
            try:
                db.flush_wal(sync=True)
            except Exception as error:
                self._broken = f"an earlier batch could not be forced to the disk ({_cause(error)})"
                raise self._error("write to", error) from error

    def size_bytes(self) -> int:
        return sum(size for name, size in _files(self._folder) if name.endswith((".sst", ".log")) or size)

    def close(self) -> None:
        with self._writing:
            db, self._db = self._db, None
            if db is None:
                return
            # The lock of the folder is held until every object that refers to the database is gone.
            for scan in list(self._scans):
                scan.release()
            self._handles.clear()
            for part in (*self._families.values(), db):
                try:
                    part.close()
                except Exception as error:  # noqa: BLE001, PERF203 (rocksdict raises bare Exception; few parts)
                    # Closing moves rows from the log into tables; what cannot be moved stays in the log.
                    logger.warning(
                        "The store in %(folder)s was closed without tidying up: %(cause)s",
                        {"folder": self._folder, "cause": _cause(error)},
                    )
            self._families.clear()
            self._remove_temporary()

    def _column(self, family: Family) -> Rdict:
        if self._db is None:
            raise StorageError(f"The store in {self._folder} is closed; open it again.")
        return self._families[family]

    def _writable(self) -> Rdict:
        if self._temporary:
            raise StorageError(f"The snapshot of the store in {self._folder} cannot be written; open the store.")
        if self._db is None:
            raise StorageError(f"The store in {self._folder} is closed; open it again.")
        if self._broken:
            raise StorageError(f"The store in {self._folder} takes no more writes: {self._broken}; open it again.")
        return self._db

    def _record(self, batch: Batch) -> WriteBatch:
        record = WriteBatch(raw_mode=True)
        for family, rows in batch.items():
            record.set_default_column_family(self._handles[family])
            for key, value in rows.items():
                if value is None:
                    record.delete(key)
                else:
                    record[key] = value
        return record

    def _error(self, action: str, error: Exception) -> StorageError:
        if isinstance(error, StorageError):
            return error
        return StorageError(f"Cannot {action} the store in {self._folder}: {_cause(error)}.")

    def _remove_temporary(self) -> None:
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)
