"""Keeps a crawl in SQLite: no dependency outside Python, good to about 10 million pages.

1. One table for each :class:`~scrapy_aopic.core.ports.Family`, ``WITHOUT ROWID``, so that the rows lie in
   the order of their keys and what is near in the order is near on the disk.
2. A batch is one transaction in the write-ahead log, forced to the disk at its end even without
   ``sync``: measured, forcing costs 2 % when a batch holds a second of crawling.
3. Each value ends with a checksum of its row, because SQLite has none and would read a damaged row as it is.
   Each batch raises ``user_version``, so that the loss of batches that had landed is noticed: see :mod:`.commit_number`.
4. Writer and reader have a connection each, so that neither waits for the other. A scan of more than a few rows
   gets a connection of its own, whose read transaction is its snapshot. A scan or snapshot that stays open keeps
   SQLite from reusing the log, which grows until then.

SQLite writes 30 times more to the disk than RocksDB does for the same crawl (125-184 KB a page).
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal
from zlib import crc32

from scrapy_aopic.core.ports import Batch, Family
from scrapy_aopic.exceptions import SALVAGE, StorageError, plainly

from .commit_number import Landed, check_landed, read_landed
from .lock import lock_store, open_folder
from .store_folder import check_sizes, damaged, forget_sizes, not_made, note_sizes

FILE_NAME = "store.sqlite3"

_KEYS_PER_QUERY = 512
"""Keys in one query; SQLite before 3.32 accepts at most 999 parameters."""

_ROWS_AT_ONCE = 64
"""Rows that a scan reads before it returns; if there are fewer, as in most scans, it gives its connection back at once."""

_SEAL_BYTES = 4
"""Bytes of the checksum behind each value."""

_PAGE_BYTES = 4096
"""Bytes of a page of the file: SQLite's default."""

_LOG_PAGES = 8000
"""Pages in the log, 32 MB, from which SQLite moves them into the database; 1,000, its default, writes hot pages more often."""

_MAX_LOG_BYTES = 64 << 20
"""Bytes to which SQLite cuts its log file when it restarts it."""

_MAX_NUMBER = (1 << 31) - 1
"""Highest ``user_version``; the loss of batches beyond it, after 34 years of two a second, is not noticed."""

_PATIENCE = 30.0
"""Seconds to wait for another connection. A write transaction ends within a second; recovering a large log takes longer."""

_LOOKS = 3
"""Reads of a log that must all find damage, because another process may be restarting it, once in 32 MB."""

_SCAN_CACHE_KB = 2048
"""Kilobytes of cache for a scan, which reads each page once: about SQLite's default."""

_DAMAGED = {"file is not a database", "database disk image is malformed"}
"""What SQLite says of a file that is damaged. (Its codes SQLITE_NOTADB and SQLITE_CORRUPT are only known from Python 3.11 on.)"""


_SAYS = {
    "file is not a database": "its file is no database of SQLite",
    "database disk image is malformed": "the pages of its file do not fit together",
    "database or disk is full": "the disk is full",
    "disk I/O error": "the disk failed to read or write it",
    "attempt to write a readonly database": "its permissions do not allow it",
    "unable to open database file": "its file cannot be opened; is it a file, and do its permissions allow it?",
    "database is locked": "another program has it locked",
}
"""SQLite's messages in words for a user who has named a job folder."""


class SqliteStore:
    """A SQLite database in *folder*, or with *read_only* a snapshot of one that may be in use.

    One process at a time may have the store open; any number may have snapshots of it.

    Files: ``store.sqlite3`` with the ``-wal`` and ``-shm`` files of SQLite. The schema may change without warning.
    """

    def __init__(self, folder: Path, *, memory_mb: int = 64, read_only: bool = False) -> None:
        self._folder = folder
        self._writing = threading.Lock()  # close() waits for a write in another thread
        self._closed = False
        self._is_ready = False
        self._read_only = read_only
        self._connections: list[sqlite3.Connection] = []
        self._idle: list[sqlite3.Connection] = []  # for scans
        self._lock = None if read_only else lock_store(folder)
        self._opened = self._lock.around if self._lock else open_folder(folder)
        self._landed = Landed(self._opened.where)
        self._n_batches = 0
        cache_kb = memory_mb * 1024
        try:
            landed = read_landed(self._opened.where)
            if read_only:
                self._check_files()
                self._reader = self._connect_to_look(cache_kb)
                # The transaction, and with it the snapshot, begins with the first read.
                self._reader.execute("BEGIN")
                number = _number(self._reader)
                self._check_log()
                check_landed(folder, landed, number)
                if not self._reader.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                    raise not_made(folder)  # the tables come together
            else:
                self._check_files()
                self._probe(landed)
                forget_sizes(self._opened.where)
                # The reader's cache is dropped after every write of the writer, so it needs less.
                self._writer = self._connect(cache_kb * 3 // 4)
                self._prepare()
                self._reader = self._connect(cache_kb // 4)
                self._is_ready = True
        except (sqlite3.Error, OSError) as error:
            is_made = not self._has_journal()
            self.close()
            if isinstance(error, StorageError):
                raise
            if read_only and not is_made:
                raise not_made(folder) from error
            if str(error) in _DAMAGED:
                raise damaged(folder, cause_of(error)) from error
            raise StorageError(f"Cannot open the store in {folder}: {cause_of(error)}.") from error

    @classmethod
    def open_for_salvage(cls, folder: Path, *, memory_mb: int = 64) -> SqliteStore:
        """Open what is left of a damaged store; see :class:`~.registry.Salvages`."""
        mend_files(folder)
        return cls(folder, memory_mb=memory_mb)

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        found: dict[bytes, bytes] = {}
        # Several queries see the same moment only inside a transaction; a snapshot is always in one.
        transaction = len(keys) > _KEYS_PER_QUERY and not self._read_only
        try:
            if transaction:
                self._reader.execute("BEGIN")
            try:
                for at in range(0, len(keys), _KEYS_PER_QUERY):
                    found.update(_unsealed(family, self._find(family, keys[at : at + _KEYS_PER_QUERY])))
            finally:
                if transaction:
                    self._reader.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._error("read", error) from error
        return [found.get(key) for key in keys]

    def scan(
        self, family: Family, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        query, bounds = f"SELECT k, v FROM {family.name} WHERE k >= ?", [start]  # noqa: S608 (an enum's name)
        if stop is not None:
            query, bounds = query + " AND k < ?", [start, stop]
        try:
            connection = self._take_connection()
            # Reading the first rows begins the snapshot, which lasts as long as the cursor has more.
            cursor = connection.execute(query + " ORDER BY k", bounds)
            rows = cursor.fetchmany(_ROWS_AT_ONCE)
        except sqlite3.Error as error:
            raise self._error("read", error) from error
        if len(rows) < _ROWS_AT_ONCE:
            self._give_back(connection)
            return self._each(family, rows)
        return _SqliteScan(self, connection, cursor, _unsealed(family, chain(rows, cursor)))

    def write(self, batch: Batch, *, sync: bool) -> None:
        with self._writing:
            if self._lock is None:
                raise StorageError(
                    f"The snapshot of the store in {self._folder} cannot be written; open the store."
                )
            if not self._closed:
                self._lock.check()
            try:
                self._write(batch)
            except sqlite3.Error as error:
                raise self._error("write to", error) from error

    def size_bytes(self) -> int:
        sizes = 0
        for name in (FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm"):
            with suppress(FileNotFoundError):
                sizes += (self._opened.where / name).stat().st_size
        return sizes

    def verify(self) -> None:
        self._check("integrity_check")
        for family in Family:
            deque(self.scan(family), maxlen=0)

    def verify_structure(self) -> None:
        """Compare the pages of the file with each other: a scan cannot see that a page stands in another one's place.

        Raises:
            StorageError: What does not fit.
        """
        self._check("quick_check")

    def _check(self, how: str) -> None:
        try:
            faults = [row[0] for row in self._reader.execute(f"PRAGMA {how}(1)")]
        except sqlite3.Error as error:
            raise self._error("read", error) from error
        if faults != ["ok"]:
            raise self._error("read", sqlite3.DatabaseError("database disk image is malformed"))

    def close(self) -> None:
        with self._writing:
            self._closed = True
            self._idle.clear()
            while self._connections:
                self._connections.pop().close()
            self._landed.close()
            if self._is_ready and (self._opened.is_followed or not self._opened.is_lost):
                with suppress(OSError):
                    note_sizes(self._opened.where, "", self._sizes())
            self._is_ready = False
            if self._lock is not None:
                self._lock.release()
            self._opened.close()

    def _sizes(self) -> dict[str, int]:
        names = (FILE_NAME, f"{FILE_NAME}-wal")  # there is no log unless a snapshot is still open
        where = self._opened.where
        return {name: (where / name).stat().st_size for name in names if (where / name).exists()}

    def _check_files(self) -> None:
        log = self._opened.where / f"{FILE_NAME}-wal"
        # Opened without its database, even for reading, the log would be removed by SQLite.
        if _size(log) and not _size(log.with_name(FILE_NAME)):
            raise damaged(self._folder, f"its file {FILE_NAME} is empty or gone, but not its log")
        try:
            check_sizes(self._folder, "", self._sizes())
        except StorageError:
            # Another process may have opened the store meanwhile; then the noted sizes are gone.
            check_sizes(self._folder, "", self._sizes())

    def _probe(self, landed: int) -> None:
        """Inspect the database before anything is changed, by a connection that leaves the log of a crash alone."""
        number = 0
        path = self._opened.where / FILE_NAME
        # There is a journal only while the store is made; even reading would roll it back.
        if path.exists() and (landed or not self._has_journal()):
            uri = f"{path.as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=_PATIENCE)) as probe:
                number = _number(probe)
                if _size(path.with_name(f"{FILE_NAME}-wal")):
                    self._check_log()
        check_landed(self._folder, landed, number)

    def _has_journal(self) -> bool:
        return _size(self._opened.where / f"{FILE_NAME}-journal") > 0

    def _check_log(self) -> None:
        """Raise an error if the log has commits after a damaged one, because SQLite takes the first damage for its end.

        A single commit after those that SQLite has found may be one during which the process died, or that another
        process is writing now. Damage stays; a log that another process restarts looks damaged only once.
        """
        path, index = (self._opened.where / f"{FILE_NAME}-{part}" for part in ("wal", "shm"))
        if all(_size(path) and _lost_commits(path, index) > 1 for _ in range(_LOOKS)):
            raise StorageError(
                f"The store in {self._folder} is damaged: its log {path.name} has commits behind a damaged one. {SALVAGE}"
            )

    def _connect_to_look(self, cache_kb: int) -> sqlite3.Connection:
        """Connect for reading, maybe without the right to write in the folder, where SQLite keeps an index of its log."""
        try:
            return self._connect(cache_kb)
        except sqlite3.OperationalError:
            if any((self._opened.where / f"{FILE_NAME}-{part}").exists() for part in ("wal", "shm")):
                raise  # another process has it open, or was killed
            return self._connect(cache_kb, "&immutable=1")

    def _connect(self, cache_kb: int, more: str = "") -> sqlite3.Connection:
        uri = f"{(self._opened.where / FILE_NAME).as_uri()}?mode={'ro' if self._read_only else 'rwc'}{more}"
        connection = sqlite3.connect(
            uri, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
        )
        self._connections.append(connection)
        connection.execute(f"PRAGMA cache_size = -{cache_kb}")
        connection.execute("PRAGMA trusted_schema = OFF")  # a stranger's file may have views and triggers
        return connection

    def _prepare(self) -> None:
        """Set up the writer's connection, and the tables of a new store."""
        run = self._writer.execute
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run("PRAGMA fullfsync = ON")  # without it macOS leaves the bytes in the drive's own memory
        run(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        run(f"PRAGMA journal_size_limit = {_MAX_LOG_BYTES}")
        self._n_batches = _number(self._writer)
        _make_tables(self._writer)

    def _find(self, family: Family, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        # As many parameters as the next power of two, by repeating a key, so that a few prepared
        # statements serve every number of keys.
        n_parameters = 1 << (len(keys) - 1).bit_length()
        parameters = [*keys, *[keys[0]] * (n_parameters - len(keys))]
        marks = ",".join("?" * n_parameters)
        return self._reader.execute(f"SELECT k, v FROM {family.name} WHERE k IN ({marks})", parameters)  # noqa: S608 (an enum's name)

    def _write(self, batch: Batch) -> None:
        writer = self._writer
        writer.execute("BEGIN IMMEDIATE")
        try:
            for family, rows in batch.items():
                # In the order of the keys, so that each page of the tree is looked up once.
                writer.executemany(
                    f"INSERT INTO {family.name} VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v",  # noqa: S608 (an enum's name)
                    sorted(
                        (key, _sealed(family, key, value)) for key, value in rows.items() if value is not None
                    ),
                )
                writer.executemany(
                    f"DELETE FROM {family.name} WHERE k = ?",  # noqa: S608 (an enum's name)
                    sorted((key,) for key, value in rows.items() if value is None),
                )
            self._n_batches = min(self._n_batches + 1, _MAX_NUMBER)
            writer.execute(f"PRAGMA user_version = {self._n_batches}")
            writer.execute("COMMIT")
        except BaseException:
            if writer.in_transaction:  # SQLite has already rolled back if the disk is full
                writer.execute("ROLLBACK")
            self._n_batches = _number(writer)
            raise
        self._landed.note(self._n_batches)

    def _each(self, family: Family, rows: list[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        try:
            yield from _unsealed(family, rows)
        except sqlite3.Error as error:
            raise self._error("read", error) from error

    def _take_connection(self) -> sqlite3.Connection:
        if self._read_only:
            return self._reader  # all that it reads is as of one moment
        if self._closed:
            raise sqlite3.ProgrammingError("it is closed")
        if self._idle:
            return self._idle.pop()
        if not self._opened.is_followed:
            self._opened.check()  # else it may be a connection to another store
        return self._connect(_SCAN_CACHE_KB)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        if not self._read_only and not self._closed:
            self._idle.append(connection)

    def _error(self, action: str, error: sqlite3.Error) -> StorageError:
        cause = "it is closed; open it again" if self._closed else cause_of(error)
        return StorageError(f"Cannot {action} the store in {self._folder}: {cause}.")


def cause_of(error: sqlite3.Error | OSError) -> str:
    """The meaning of *error*, as the end of a sentence; rare errors in SQLite's own words."""
    text = str(error).rstrip(".")
    return plainly(error) if isinstance(error, OSError) else _SAYS.get(text, text)


def mend_files(folder: Path) -> None:
    """Turn what is left of the files in *folder* into a database that can be opened.

    The pages in its log are put in their places, even those behind a damaged one: each row has its own checksum. The first page
    is replaced by that of a new database, as all have the same tables in the same places. If the end is missing, reads of
    what was there fail.
    """
    path = folder / FILE_NAME
    try:
        path.touch()
        _spread_log(path, folder / f"{FILE_NAME}-wal")
        with TemporaryDirectory() as temporary:
            new = Path(temporary) / FILE_NAME
            with closing(sqlite3.connect(new, isolation_level=None)) as connection:
                _make_tables(connection)
            first = new.read_bytes()
        with path.open("r+b") as file:
            n_pages = max(-(-file.seek(0, os.SEEK_END) // _PAGE_BYTES), len(first) // _PAGE_BYTES)
            file.truncate(n_pages * _PAGE_BYTES)
            file.seek(0)
            file.write(first[:28] + n_pages.to_bytes(4, "big") + first[32:_PAGE_BYTES])
    except (sqlite3.Error, OSError) as error:
        raise StorageError(f"Cannot open the store in {folder}: {cause_of(error)}.") from error


def _spread_log(path: Path, log: Path) -> None:
    """Write the pages in the *log*, up to its last commit, into the database at *path*, and remove the log."""
    if log.exists():
        with log.open("rb") as frames, path.open("r+b") as pages:
            header = frames.read(32)
            run = header[16:24] if _is_header(header) else b""
            found: list[tuple[int, bytes]] = []
            n_pages = (_size(path) + _size(log)) // _PAGE_BYTES  # it cannot have more
            while len(frame := frames.read(24 + _PAGE_BYTES)) == 24 + _PAGE_BYTES:
                run = run or frame[8:16]
                number = int.from_bytes(frame[:4], "big")
                if frame[8:16] == run and 0 < number <= n_pages:
                    found.append((number, frame[24:]))
                    if any(frame[4:8]):  # the end of a commit
                        for at, page in found:
                            pages.seek((at - 1) * _PAGE_BYTES)
                            pages.write(page)
                        found = []
    for name in (log, path.with_name(f"{path.name}-shm")):
        name.unlink(missing_ok=True)


def _make_tables(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for family in Family:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {family.name} (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID"
        )
    connection.execute("COMMIT")


def _number(connection: sqlite3.Connection) -> int:
    """Number of the last batch in the database."""
    number: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return number


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _frames_found(path: Path) -> int:
    """Frames of the log that SQLite uses, as the index of the log at *path* says (WalIndexHdr.mxFrame)."""
    with path.open("rb") as file:
        return int.from_bytes(file.read(20)[16:], sys.byteorder)


def _lost_commits(path: Path, index: Path) -> int:
    """Commits in the log at *path* that SQLite's *index* of it lacks; see "WAL-Index Format" in SQLite's manual."""
    number = _frames_found(index)
    with path.open("rb") as file:
        header = file.read(32)
        frame_bytes = 24 + int.from_bytes(header[8:12], "big")
        if not _is_header(header):
            return 2 if len(header) == 32 else 0  # nothing behind it can be used
        commits = []
        file.seek(32 + number * frame_bytes)
        while len(frame := file.read(24)) == 24:
            number += 1
            if frame[8:16] == header[16:24] and any(frame[4:8]):
                commits.append(number)
            file.seek(frame_bytes - 24, os.SEEK_CUR)
    found = _frames_found(index)  # read last: another process may have gone on writing
    return sum(number > found for number in commits)


def _is_header(header: bytes) -> bool:
    """Whether *header*, of a log, has the checksum that it should have."""
    order: Literal["big", "little"] = "big" if header[3:4] == b"\x83" else "little"
    first = second = 0
    for at in range(0, 24, 8):
        first = first + int.from_bytes(header[at : at + 4], order) + second & 0xFFFFFFFF
        second = second + int.from_bytes(header[at + 4 : at + 8], order) + first & 0xFFFFFFFF
    return header[24:32] == first.to_bytes(4, "big") + second.to_bytes(4, "big")


def _sealed(family: Family, key: bytes, value: bytes) -> bytes:
    """*value* followed by a checksum of the row."""
    return value + crc32(value, crc32(key, family)).to_bytes(_SEAL_BYTES, "big")


def _unsealed(family: Family, rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """*rows* without the checksums, which must be right."""
    try:
        for key, data in rows:
            value = data[:-_SEAL_BYTES]
            if _sealed(family, key, value) != data:
                raise sqlite3.DatabaseError(f"the row {key.hex()} of {family.name} is damaged")
            yield key, value
    except TypeError as error:  # a value that is no bytes, which SQLite allows in any column
        raise sqlite3.DatabaseError(f"a row of {family.name} is damaged") from error


class _SqliteScan(Iterator[tuple[bytes, bytes]]):
    """The *pairs*, some of which *cursor* has still to read; gives *connection* back at the end."""

    __slots__ = ("_connection", "_cursor", "_pairs", "_store")

    def __init__(
        self,
        store: SqliteStore,
        connection: sqlite3.Connection,
        cursor: sqlite3.Cursor,
        pairs: Iterator[tuple[bytes, bytes]],
    ) -> None:
        self._store = store
        self._connection: sqlite3.Connection | None = connection
        self._cursor = cursor
        self._pairs = pairs

    def __next__(self) -> tuple[bytes, bytes]:
        try:
            return next(self._pairs)
        except StopIteration:
            self._release()
            raise
        except sqlite3.Error as error:
            raise self._store._error("read", error) from error

    def __del__(self) -> None:
        self._release()

    def _release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):  # of a store that was closed meanwhile
                self._cursor.close()
            self._store._give_back(connection)
