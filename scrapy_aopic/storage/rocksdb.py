"""Keeps a crawl in RocksDB: it writes the least to the disk, and its memory stays flat up to 100 million pages.

1. One column family for each :class:`~scrapy_aopic.core.ports.Family`, tuned for how it is used: see
   :func:`_family_options`.
2. Every batch is one write-ahead log record, so a killed process loses no batch whose ``write()``
   returned, and a power cut none that was written with ``sync``.
3. No more than about 45 file descriptors, however large the crawl: see ``_MAX_OPEN_FILES``.
4. A snapshot is a *read-only instance*, which replays the log of the live store into its own memory. A *secondary*
   instance was not chosen, because it silently goes back to an older state where a table cannot be opened.
5. An incomplete commit at the end of the log had not landed when the power failed; it is cut off. Before that, and
   before RocksDB opens anything, the logs are compared with what must be there: see ``_check_logs``.

Only :mod:`rocksdict` 0.3.28 and 0.3.29 are known to work; what it cannot do (merge operators, comparators) is not used.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from errno import EAGAIN
from pathlib import Path
from typing import TypeVar, cast
from weakref import WeakSet

from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    BottommostLevelCompaction,
    Cache,
    ColumnFamily,
    CompactOptions,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
)

from scrapy_aopic.core.ports import Batch, Family
from scrapy_aopic.exceptions import StorageError, plainly_said

from .commit_number import Landed, read_landed
from .lock import lock_store, open_folder
from .rocksdb_log import check_logs, find_end
from .store_folder import check_sizes, damaged, in_use, not_made, note_sizes

_View = TypeVar("_View")

logger = logging.getLogger(__name__)

_ADDRESS_SPACE = 400
"""Megabytes that threads and caches of a database reserve; with 300 the process ends."""

_MB = 1 << 20
"""Bytes."""

_CONFIG_FILE = "rocksdict-config.json"
"""File of rocksdict's own in the folder: whether keys and values are plain bytes."""

_MAX_OPEN_FILES = 40
"""Tables that RocksDB keeps open, plus ten.

Opening a table takes 15 us, which made random reads 3.3 times slower with twice as many tables as descriptors; hence the
large files of ``_FILE_SIZE`` and ``_FILE_SIZE_GROWTH``, with which 100 million pages (6 GB) are about 30 tables.
"""

_FILE_SIZE = 128 * _MB
"""Bytes of a table in the first level."""

_FILE_SIZE_GROWTH = 4
"""Factor between the sizes of tables of a level and of the level above it.

Measured: compaction writes no more bytes than with equal sizes, and there are half as many files.
"""

_CACHED_BYTES = 2048
"""Bytes of a block that is cached, as RocksDB's table of them expects: the smallest kind, so that it is never full."""

_SNAPSHOT_ATTEMPTS = 50
"""Tries to open a snapshot. A busy store deletes files every few seconds, and a snapshot opens in 0.05 to 0.5 s."""

_ABANDONED: list[Rdict] = []
"""Databases that must neither be closed nor collected; see :meth:`RocksStore._abandon`."""


class RocksStore:
    """A RocksDB database in *folder*, or with *read_only* a snapshot of one that may be in use.

    One process at a time may have the store open; any number may have snapshots of it. One that *is_damaged* can be
    opened after :func:`mend_files`; reads of what is lost then fail.

    Files: those of RocksDB, ``rocksdict-config.json`` and two log files of at most 1 MB; they may change
    without warning.
    """

    def __init__(
        self, folder: Path, *, memory_mb: int = 64, read_only: bool = False, is_damaged: bool = False
    ) -> None:
        self._folder = folder
        self._writing = threading.Lock()  # close() waits for a write in another thread
        self._broken = ""  # why nothing can be written any more
        self._scans: WeakSet[_RocksScan] = WeakSet()
        self._db: Rdict | None = None
        self._families: dict[Family, Rdict] = {}
        self._handles: dict[Family, ColumnFamily] = {}
        self._lock = None if read_only else lock_store(folder)
        self._opened = self._lock.around if self._lock else open_folder(folder)
        where = self._opened.where
        self._landed = Landed(where)
        try:
            _check_current(where)
            _check_sizes(where)
            _check_address_space()
            if is_damaged:
                self._db = db = _open_what_is_left(where)
            else:
                self._db = db = _open_snapshot(where, memory_mb) if read_only else _open(where, memory_mb)
            self._families = {family: db.get_column_family(family.name) for family in Family}
            self._handles = {family: db.get_column_family_handle(family.name) for family in Family}
        except StorageError as error:
            self._let_go()
            raise type(error)(self._named(str(error))) from error
        except Exception as error:  # rocksdict raises bare Exception for everything
            self._let_go()
            raise _open_error(folder, self._named(_cause(error))) from error

    @classmethod
    def open_for_salvage(cls, folder: Path, *, memory_mb: int = 64) -> RocksStore:
        """Open what is left of a damaged store; see :class:`~.registry.Salvages`."""
        mend_files(folder)
        return cls(folder, memory_mb=memory_mb, is_damaged=True)

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        column = self._column(family)
        try:
            if len(keys) == 1:  # a list of one takes a microsecond more
                return [column.get(keys[0])]
            # RocksDB sorts the keys itself; sorting them here as well was measured to gain nothing.
            return cast("list[bytes | None]", column.get(list(keys)))
        except Exception as error:
            raise self._error("read", error) from error

    def scan(
        self, family: Family, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        column = self._column(family)
        options = ReadOptions()
        if stop is not None:
            options.set_iterate_upper_bound(stop)
        try:
            cursor = column.iter(options)
            cursor.seek(start)
        except Exception as error:
            raise self._error("read", error) from error
        scan = _RocksScan(self, cursor, stop)
        self._scans.add(scan)
        return scan

    def write(self, batch: Batch, *, sync: bool) -> None:
        """Apply *batch* atomically; see :meth:`scrapy_aopic.core.ports.Store.write`.

        If the batch was stored but could not be forced to the disk, it is unknown whether it would outlive a power
        cut: this is an error, too, and the store refuses further writes until it is reopened.
        """
        with self._writing:
            db = self._writable()
            if self._lock is not None:
                self._lock.check()
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
                self._broken = f"an earlier batch could not be forced to the disk ({self._named(_in_words(_cause(error)))})"
                raise self._error("write to", error) from error
            self._landed.note(db.latest_sequence_number())

    def size_bytes(self) -> int:
        return sum(_file_sizes(self._opened.where).values())

    def verify(self) -> None:
        # RocksDB compares each block that it reads with its checksum, and a scan reads them all.
        for family in Family:
            deque(self.scan(family), maxlen=0)

    def compact(self) -> None:
        """Merge all files: rows written in order stay in files of the size of a write buffer, and few can be open.

        Reads of 40 million rows in 728 files were measured to take three times as long as with all of them open.
        """
        options = CompactOptions()
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force())  # else it moves files only
        for family in self._families.values():
            family.compact_range(None, None, options)

    def close(self) -> None:
        with self._writing:
            db, self._db = self._db, None
            if db is None:
                return
            # The lock of the folder is held until every object that refers to the database is gone.
            for scan in list(self._scans):
                scan.release()
            self._handles.clear()
            self._landed.close()
            if self._lock is not None and not self._opened.is_followed and self._opened.is_lost:
                self._abandon(db)
                return
            failed: Exception | None = None
            for part in (*self._families.values(), db):
                try:
                    part.close()
                except Exception as error:  # noqa: BLE001, PERF203 (rocksdict raises nothing narrower; few parts)
                    failed = failed or error
            if failed is not None:
                # Closing moves rows from the log into tables; what cannot be moved stays in the log.
                logger.warning(
                    "The store in %(folder)s was closed without tidying up: %(cause)s",
                    {"folder": self._folder, "cause": self._named(_in_words(_cause(failed)))},
                )
            self._families.clear()
            if self._lock is not None:
                where = self._opened.where
                with suppress(OSError):
                    note_sizes(where, _generation(where), _file_sizes(where))
            if failed is None or not _is_open(self._opened.where / "LOCK"):
                self._release()  # else it may go on using the number of the open folder

    def _abandon(self, db: Rdict) -> None:
        """Leave the database open for good: it would write and remove files in a folder that is not its own."""
        db.cancel_all_background(True)
        _ABANDONED.extend((db, *self._families.values()))
        self._families.clear()
        self._release()

    def _let_go(self) -> None:
        """Release what an attempt to open it has taken."""
        self._handles.clear()
        self._families.clear()
        self._db = None
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
        self._opened.close()

    def _column(self, family: Family) -> Rdict:
        if self._db is None:
            raise StorageError(f"The store in {self._folder} is closed; open it again.")
        return self._families[family]

    def _writable(self) -> Rdict:
        if self._lock is None:
            raise StorageError(
                f"The snapshot of the store in {self._folder} cannot be written; open the store."
            )
        if self._db is None:
            raise StorageError(f"The store in {self._folder} is closed; open it again.")
        if self._broken:
            raise StorageError(
                f"The store in {self._folder} takes no more writes: {self._broken}; open it again."
            )
        return self._db

    def _record(self, batch: Batch) -> WriteBatch:
        record = WriteBatch(raw_mode=True)
        for family, rows in batch.items():
            record.set_default_column_family(self._handles[family])
            # In the order of the keys: RocksDB saves more time than sorting takes, and the time that is
            # left is spent with the interpreter lock held, 5 ms for 3,500 rows.
            for key in sorted(rows):
                value = rows[key]
                if value is None:
                    record.delete(key)
                else:
                    record[key] = value
        return record

    def _error(self, action: str, error: Exception) -> StorageError:
        return StorageError(
            f"Cannot {action} the store in {self._folder}: {self._named(_in_words(_cause(error)))}."
        )

    def _named(self, text: str) -> str:
        """*text* with the folder named as the user did."""
        return text.replace(str(self._opened.where), str(self._folder))


def mend_files(folder: Path) -> None:
    """Turn what is left of the files in *folder* into a database that can be opened."""
    try:
        _check_current(folder)
        _open_what_is_left(folder).close()
    except Exception:  # noqa: BLE001 (rocksdict raises nothing narrower)
        logger.info("More than rows and the log of %(folder)s is damaged", {"folder": folder})
    else:
        return
    for _ in range(1 + len(list(folder.glob("*.sst")))):
        try:
            # It finds all tables, but of the log only what belongs to families that have tables.
            Rdict.repair(str(folder), _options(16))
            _open_what_is_left(folder).close()
        except Exception as error:  # noqa: PERF203 (few tables)
            # It keeps tables that cannot be opened if only a part of their index or filter is damaged.
            table = re.search(r"\d+\.sst", str(error))
            if table is None or not (folder / table[0]).exists():
                raise _open_error(folder, _cause(error)) from error
            (folder / table[0]).rename(folder / f"{table[0]}.damaged")
        else:
            return


class _RocksScan(Iterator[tuple[bytes, bytes]]):
    """The pairs from where *cursor* stands to its upper bound, which is *stop*."""

    __slots__ = ("__weakref__", "_cursor", "_stop", "_store")

    def __init__(self, store: RocksStore, cursor: RdictIter, stop: bytes | None) -> None:
        self._store = store
        self._cursor: RdictIter | None = cursor
        # Never read here, but RocksDB holds a bare pointer to these bytes: without this reference the memory is
        # reused, and the scan ends wherever its new content says.
        self._stop = stop

    def __next__(self) -> tuple[bytes, bytes]:
        cursor = self._cursor
        if cursor is None:
            raise StorageError(f"The store in {self._store._folder} was closed during a scan; open it again.")
        try:
            key: bytes | None = cursor.key()
            if key is not None:
                value: bytes = cursor.value()
                cursor.next()
                return key, value
            # rocksdict's items() is a quarter faster, but takes a damaged block for the end.
            cursor.status()
        except Exception as error:
            raise self._store._error("read", error) from error
        raise StopIteration

    def release(self) -> None:
        self._cursor = None


def _is_open(path: Path) -> bool:
    """Whether this process has the file at *path* open, as RocksDB has its lock while it lives; true where nobody can say."""
    try:
        file = path.stat()
        numbers = [int(number.name) for number in Path("/dev/fd").iterdir()]
    except OSError:
        return True
    for number in numbers:
        with suppress(OSError):  # that of the folder of numbers is closed by now
            if os.path.samestat(os.fstat(number), file):
                return True
    return False


def _check_address_space() -> None:
    """Raise an error if RocksDB could not begin its threads, of which the whole process would die."""
    try:
        import resource  # noqa: PLC0415  # not on Windows

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    except (ImportError, OSError):
        return
    left = (most - pages * resource.getpagesize()) >> 20
    if most != resource.RLIM_INFINITY and left < _ADDRESS_SPACE:
        raise StorageError(
            f"RocksDB needs {_ADDRESS_SPACE} MB of address space, and the limit of this process leaves {max(left, 0)} MB: raise "
            'it (ulimit -v), or begin a job with AOPIC_STORE = "sqlite".'
        )


def _open(folder: Path, memory_mb: int) -> Rdict:
    """Open the database in *folder* for writing; a commit at the end of its log that had not landed is cut off."""
    landed = read_landed(folder)
    options = _options(memory_mb)
    if (folder / "CURRENT").exists():
        _undisturbed(folder, lambda: _check_logs(folder, landed))
        # In their place new ones would be made of those that the list of tables has lost, and their log forgotten.
        options.create_missing_column_families(not landed and not _holds_rows(folder))
    try:
        return Rdict(str(folder), options, _families_options(memory_mb))
    except Exception as error:
        if not _is_damage(error):  # above all: it is in use
            raise
        whole = _open_before_damage(folder, memory_mb, error)
        number, oldest = whole.latest_sequence_number(), _oldest_log(whole)
        whole.close()
        found = find_end(folder, oldest, number, landed)
        if found is None:
            raise
    _cut(*found)
    return Rdict(str(folder), options, _families_options(memory_mb))


def _open_what_is_left(folder: Path) -> Rdict:
    """Open the database in *folder* with what can be read of its log, and with tables of which parts can be read."""
    options = _options(16)
    options.set_wal_recovery_mode(DBRecoveryMode.skip_any_corrupted_record())
    return Rdict(str(folder), options, _families_options(16, is_damaged=True))


def _cut(log: Path, end: int) -> None:
    with log.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.truncate(end)
        os.fsync(file.fileno())
    logger.warning(
        "The last commit in the log %(log)s is not whole, as a power failure leaves one that had not landed: the "
        "crawl goes on from the commit before it; %(bytes)d bytes were cut off",
        {"log": log.name, "bytes": size - end},
    )


def _open_snapshot(folder: Path, memory_mb: int) -> Rdict:
    """Open a read-only view of *folder* of one single moment."""
    snapshot = _undisturbed(folder, lambda: _open_read_only(folder, memory_mb), lambda view: view.close())
    if snapshot is None:
        raise StorageError(
            f"The store in {folder} changes too fast for a snapshot; try again when it is less busy."
        )
    return snapshot


def _undisturbed(
    folder: Path, look: Callable[[], _View], discard: Callable[[_View], object] = lambda _: None
) -> _View | None:
    """The result of *look* for *folder* if nothing is deleted meanwhile; ``None`` if something always is.

    RocksDB first reads the list of tables, then the tables, then the log. Rows that the live store deletes in between were
    moved to tables that the view does not read, and RocksDB takes a deleted log for an empty one; so an attempt counts
    only if nothing was deleted meanwhile.
    """
    for _ in range(_SNAPSHOT_ATTEMPTS):
        before = _file_sizes(folder).keys()
        try:
            view = look()
        except Exception:
            if before == _file_sizes(folder).keys():
                raise
            continue
        if before <= _file_sizes(folder).keys():
            return view
        discard(view)
    return None


def _open_read_only(folder: Path, memory_mb: int) -> Rdict:
    landed = read_landed(folder)
    _check_logs(folder, landed)
    try:
        # Tables that are deleted later stay readable only while they are open, so all of them must be.
        return _read_only(folder, _options(memory_mb, max_open_files=-1), memory_mb)
    except Exception as error:
        if not _is_damage(error):
            raise
        whole = _open_before_damage(folder, memory_mb, error)
    find_end(folder, _oldest_log(whole), whole.latest_sequence_number(), landed)
    return whole


def _open_before_damage(folder: Path, memory_mb: int, error: Exception) -> Rdict:
    """A view of the commits before the first damage in the log; raises *error* if something else is damaged."""
    options = _options(memory_mb, max_open_files=-1)
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    try:
        return _read_only(folder, options, memory_mb)
    except Exception:  # noqa: BLE001 (rocksdict raises nothing narrower)
        raise error from None


def _check_logs(folder: Path, landed: int) -> None:
    """Raise an error if a commit is missing in the logs; RocksDB may not notice."""
    options = _options(1)
    with tempfile.TemporaryDirectory(prefix="aopic-") as without_logs:
        options.set_wal_dir(without_logs)
        tables = _read_only(folder, options, 1, Rdict.list_cf(str(folder), options))
        number, oldest = tables.latest_sequence_number(), _oldest_log(tables)
        tables.close()
    check_logs(folder, oldest, number, landed)


def _read_only(folder: Path, options: Options, memory_mb: int, names: Sequence[str] = ()) -> Rdict:
    families = _families_options(memory_mb)
    if names:
        families = {name: families[name] for name in names if name in families}
    with tempfile.TemporaryDirectory(prefix="aopic-") as view:
        where = _link_files(folder, Path(view))
        return Rdict(str(where), options, families, AccessType.read_only(False))


def _link_files(folder: Path, view: Path) -> Path:
    """Make *view* look like *folder*; returns the one to open, which is *folder* where files cannot be linked.

    rocksdict rewrites its own file whenever it opens a database, even for reading: that takes the right to write, and a
    process that opens the database at that moment may find the file empty.
    """
    try:
        for path in folder.iterdir():
            if path.name != _CONFIG_FILE:
                (view / path.name).symlink_to(path)
    except OSError:
        return folder
    with suppress(FileNotFoundError):
        shutil.copyfile(folder / _CONFIG_FILE, view / _CONFIG_FILE)
    return view


def _oldest_log(db: Rdict) -> int:
    """Number of the oldest log with rows that are in no table yet."""
    return db.property_int_value("rocksdb.min-log-number-to-keep") or 0


def _is_damage(error: Exception) -> bool:
    return "Corruption" in str(error)


def _file_sizes(folder: Path) -> dict[str, int]:
    """Sizes of the tables, write-ahead logs and lists of tables; the other files are small."""
    sizes = {}
    for path in folder.iterdir():
        if path.suffix in {".sst", ".log"} or path.name.startswith("MANIFEST"):
            try:
                sizes[path.name] = path.stat().st_size
            except FileNotFoundError:  # RocksDB deletes files in its own threads
                continue
    return sizes


def _generation(folder: Path) -> str:
    """Text that changes each time the store is opened for writing."""
    try:
        return (folder / "CURRENT").read_text("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _check_current(folder: Path) -> None:
    """Raise an error if RocksDB would overlook what is left of a store, and make a new one in its place."""
    if not (folder / "CURRENT").exists() and _holds_rows(folder):
        raise damaged(folder, "its file CURRENT is gone")


def _holds_rows(folder: Path) -> bool:
    """Whether there are files with rows in *folder*."""
    return folder.is_dir() and any(
        size for name, size in _file_sizes(folder).items() if not name.startswith("MANIFEST")
    )


def _check_sizes(folder: Path) -> None:
    generation = _generation(folder)
    try:
        check_sizes(folder, generation, _file_sizes(folder) if generation else {})
    except StorageError:
        if _generation(folder) == generation:  # else another process opened the store meanwhile
            raise


def _options(memory_mb: int, max_open_files: int = _MAX_OPEN_FILES) -> Options:
    """Make the options of the database as a whole."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_max_open_files(max_open_files)
    # The default, 64 shards, keeps up to 64 tables open whatever the limit is.
    options.set_table_cache_num_shard_bits(0)
    options.set_max_background_jobs(2)
    options.set_bytes_per_sync(_MB)  # large files reach the disk steadily, not in one burst at their end
    # Rows that are in no table yet: no more memory than the cache has, and no more log than is replayed in about 1 s.
    options.set_db_write_buffer_size(max(memory_mb, 16) * _MB)
    options.set_max_total_wal_size(max(memory_mb, 64) * _MB)
    # The default takes a damaged record in the middle of the log for its end, and forgets what came later.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    # RocksDB's diary. The option to "recycle" log files is not used: it is about the write-ahead log, and snapshots
    # cannot follow a recycled one.
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(_MB)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def _families_options(memory_mb: int, *, is_damaged: bool = False) -> dict[str, Options]:
    """Make the options of every column family; all share one cache of *memory_mb*."""
    # A look-up in it takes no lock: the reads of a page of links take a tenth less time than with the least recently used.
    cache = Cache.new_hyper_clock_cache(memory_mb * _MB, _CACHED_BYTES)
    return {
        family.name: _family_options(family, cache, memory_mb, is_damaged=is_damaged) for family in Family
    }


def _family_options(family: Family, cache: Cache, memory_mb: int, *, is_damaged: bool) -> Options:
    tables = BlockBasedOptions()
    tables.set_block_cache(cache)
    # Indexes and filters are cut into 4 KB blocks that live in the cache like any other. Whole filters
    # outgrow a shard of the cache and are then read anew at every get: 6,400 instead of 101,300 gets/s
    # with 10 million keys.
    tables.set_cache_index_and_filter_blocks(True)
    tables.set_index_type(BlockBasedIndexType.two_level_index_search())
    tables.set_partition_filters(True)
    tables.set_metadata_block_size(4096)
    # What is pinned is read when the table is opened, which then fails if a part of it is damaged.
    tables.set_pin_top_level_index_and_filter(not is_damaged)
    tables.set_pin_l0_filter_and_index_blocks_in_cache(not is_damaged)

    options = Options(raw_mode=True)
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_target_file_size_base(_FILE_SIZE)
    options.set_target_file_size_multiplier(_FILE_SIZE_GROWTH)
    options.set_compression_type(DBCompressionType.none())
    options.set_write_buffer_size(min(max(memory_mb // 4, 4), 64) * _MB)
    # Only the last level is compressed, where most rows are and few change: 36 instead of 57 bytes for a visited page,
    # 22 for its request. A read unpacks one block, so blocks are small: 3 us for 2 KB, 5 for 4 KB, 10 for 16 KB.
    if family is Family.PAGES:
        # Most links are not among the rows that are in no table yet: a filter for these, too.
        options.set_memtable_whole_key_filtering(True)
        options.set_memtable_prefix_bloom_ratio(0.02)
        tables.set_block_size(2 * 1024)
        options.set_bottommost_compression_type(DBCompressionType.zstd())
    if family is Family.REQUESTS:  # written once and read once, and only keys that exist are asked for
        options.set_compression_type(DBCompressionType.lz4())
        options.set_bottommost_compression_type(DBCompressionType.zstd())
        options.set_optimize_filters_for_hits(True)
    if family in {Family.HOSTS, Family.META}:
        options.set_write_buffer_size(4 * _MB)
    if family is not Family.QUEUE:  # which is scanned, never asked for a key
        tables.set_bloom_filter(10, False)
    options.set_block_based_table_factory(tables)
    return options


def _open_error(folder: Path, cause: str) -> StorageError:
    """Say in one sentence why the store in *folder* cannot be opened."""
    if "lock hold by current process" in cause or ("lock file" in cause and os.strerror(EAGAIN) in cause):
        return in_use(folder)
    if "olumn famil" in cause and not _holds_rows(folder):
        return not_made(folder)
    if cause.startswith("Corruption: "):
        return damaged(folder, _in_words(cause))
    return StorageError(f"Cannot open the store in {folder}: {_in_words(cause)}.")


def _in_words(cause: str) -> str:
    """RocksDB's message *cause* in words for a user who has named a job folder; rare ones as they are."""
    if "Corruption" in cause:
        file = re.search(r"\d+\.(sst|log)|MANIFEST-\d+|CURRENT", cause)
        return f"RocksDB finds {file[0] if file else 'it'} damaged"
    return plainly_said(cause) or cause


def _cause(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")
