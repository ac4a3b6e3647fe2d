"""The board of the workers of one machine: a file, which answers what a server answers workers of several.

Nothing in it is needed to go on with the job: letters and states are copies of what commits hold. So it begins empty whenever
nobody crawls the job, and is not forced onto the disk. Who has a shard does not stand in it: that is the lock of its store
(:mod:`.folder_workers`).
"""

from __future__ import annotations

import sqlite3
import time
from itertools import repeat
from typing import TYPE_CHECKING, Any

from scrapy_aopic.exceptions import StorageError

from .address import BOARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from .redis.connection import Argument, Command, Reply

_PATIENCE = 10.0
"""Seconds that another worker may hold the file: ten thousand times what a turn takes."""

_READS = {b"GET", b"HGET", b"HGETALL", b"HMGET", b"SMEMBERS", b"TIME", b"XRANGE"}

_TABLE = "CREATE TABLE IF NOT EXISTS rows (key BLOB, field BLOB, value BLOB, PRIMARY KEY (key, field)) WITHOUT ROWID"


class FileBoard:
    """The board in *job_folder*, with those calls of a :class:`~.redis.connection.Connection` that workers need.

    Raises:
        StorageError: If it cannot be opened.
    """

    run = b""  # it has one run as long as somebody crawls
    n_opened = 1

    def __init__(self, job_folder: Path) -> None:
        self._path = job_folder / "aopic-shards" / BOARD
        self._seeds = job_folder / "aopic-seeds"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                self._path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
            for each in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=OFF", _TABLE):
                self._db.execute(each)
        except (OSError, sqlite3.Error) as error:
            raise self._error(error) from error

    def pin(self, run: bytes = b"") -> bytes:
        """Its run."""
        return run or self.run

    def ask(self, *commands: Command) -> list[Reply]:
        """The replies to *commands*, which are carried out as one.

        Raises:
            StorageError: If the file cannot be read or written; none of them is carried out then.
        """
        kind = "DEFERRED" if all(command[0] in _READS for command in commands) else "IMMEDIATE"
        try:
            self._db.execute(f"BEGIN {kind}")
            with self._db:
                return [self._reply(*command) for command in commands]
        except sqlite3.Error as error:
            raise self._error(error) from error

    transact = write = ask_at_once = ask

    def checked(self, replies: Iterable[Reply]) -> list[Reply]:
        """None of *replies* is an error."""
        return list(replies)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._db.close()

    def _error(self, error: Exception) -> StorageError:
        return StorageError(f"The board of the workers in {self._path} cannot be used: {error}.")

    def _reply(self, name: Argument, *arguments: Argument) -> Reply:
        answer: Callable[..., Reply] = getattr(self, f"_{bytes(name).decode().lower()}")  # type: ignore[arg-type]
        return answer(*map(_bytes, arguments))

    def _rows(self, key: bytes, more: str = "", *values: object) -> list[tuple[bytes, bytes]]:
        query = f"SELECT field, value FROM rows WHERE key = ? {more}"  # noqa: S608 (no text of strangers)
        return self._db.execute(query, (key, *values)).fetchall()

    def _put(self, key: bytes, fields: Iterable[bytes], values: Iterable[bytes]) -> None:
        self._db.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", zip(repeat(key), fields, values))

    def _get(self, key: bytes) -> Reply:
        return self._hget(key, b"")

    def _set(self, key: bytes, value: bytes) -> None:
        self._put(key, [b""], [value])

    def _hset(self, key: bytes, *pairs: bytes) -> None:
        self._put(key, pairs[::2], pairs[1::2])

    def _hsetnx(self, key: bytes, field: bytes, value: bytes) -> None:
        if self._hget(key, field) is None:
            self._put(key, [field], [value])

    def _hget(self, key: bytes, field: bytes) -> Reply:
        return self._hmget(key, field)[0]

    def _hdel(self, key: bytes, *fields: bytes) -> None:
        self._db.executemany("DELETE FROM rows WHERE key = ? AND field = ?", zip(repeat(key), fields))

    def _hgetall(self, key: bytes) -> Reply:
        return [part for row in self._rows(key) for part in row]

    def _hmget(self, key: bytes, *fields: bytes) -> Reply:
        found = [self._rows(key, "AND field = ?", field) for field in fields]
        return [rows[0][1] if rows else None for rows in found]

    def _hincrby(self, key: bytes, field: bytes, n: bytes) -> int:
        value = int(self._hmget(key, field)[0] or 0) + int(n)
        self._put(key, [field], [b"%d" % value])
        return value

    def _smembers(self, _: bytes) -> Reply:
        """The lists of seeds that wait, which are files of the job folder."""
        return [path.name.encode() for path in self._seeds.glob("*.jsonl")]

    def _time(self) -> Reply:
        return [*map(int, divmod(time.time() * 1e6, 1e6))]

    def _xadd(self, key: bytes, *arguments: bytes) -> None:
        number = self._hincrby(b"last:" + key, b"", b"1")
        self._put(key, [b"%016d-0" % number], arguments[-1:])
        if arguments[0] == b"MAXLEN":
            last = b"%016d-0" % (number - int(arguments[1]))
            self._db.execute("DELETE FROM rows WHERE key = ? AND field <= ?", (key, last))

    _xdel = _hdel

    def _pexpire(self, key: bytes, _: bytes) -> None:
        """Nothing: the board itself ends with the workers."""

    def _xrange(self, key: bytes, start: bytes, _: bytes, __: bytes, most: bytes) -> Reply:
        rows = self._rows(key, "AND field > ? ORDER BY field LIMIT ?", start[1:], int(most))
        return [(field, [b"", value]) for field, value in rows]


def _bytes(argument: Any) -> bytes:
    return argument if isinstance(argument, bytes) else str(argument).encode()
