"""Bodies that an earlier crawl has written to its archives, in a file beside the job: a crawl writes them as revisits."""

from __future__ import annotations

from base64 import b32decode
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from scrapy_aopic.exceptions import StorageError

_PATIENCE = 10.0
"""Seconds that another process may hold the file."""

_TABLE = "CREATE TABLE IF NOT EXISTS bodies (digest BLOB PRIMARY KEY, record TEXT, url TEXT, date TEXT) WITHOUT ROWID"

_SHA1_CHARACTERS = 32

Body = tuple[str, str, str, str]
"""Digest as in ``WARC-Payload-Digest``, ID of the record (``""`` if it is not known), URL, date in ISO 8601."""


def add_bodies(path: Path, bodies: Iterable[Body]) -> int:
    """Add *bodies*, all or none, to the file at *path*, and return how many it has; of equal ones the first one counts.

    Raises:
        StorageError: If it cannot be written.
    """
    import sqlite3  # noqa: PLC0415  # no other crawl needs it

    from .sqlite import cause_of  # noqa: PLC0415

    try:
        with closing(sqlite3.connect(path, timeout=_PATIENCE)) as db:
            db.execute("PRAGMA cache_size=-64000")
            db.execute(_TABLE)
            with db:
                db.executemany(
                    "INSERT OR IGNORE INTO bodies VALUES (?, ?, ?, ?)",
                    ((_key(digest), *rest) for digest, *rest in bodies),
                )
            return int(db.execute("SELECT COUNT(*) FROM bodies").fetchone()[0])
    except sqlite3.Error as error:
        raise StorageError(f"{path} cannot be written: {cause_of(error)}.") from error


class KnownBodies:
    """The file of bodies at *path*, which exists.

    Raises:
        StorageError: If it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        import sqlite3  # noqa: PLC0415  # as above

        from .sqlite import cause_of  # noqa: PLC0415

        self._path = path
        self._error, self._cause_of = sqlite3.Error, cause_of
        try:
            self._db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=_PATIENCE, uri=True)
        except sqlite3.Error as error:
            raise StorageError(f"{path} cannot be read: {cause_of(error)}.") from error

    def find(self, digest: str) -> tuple[str, str, str] | None:
        """Record, URL and date of the body with this *digest*; ``None`` if no earlier crawl has written it.

        Raises:
            StorageError: If the file cannot be read.
        """
        try:
            row = "SELECT record, url, date FROM bodies WHERE digest = ?"
            found: tuple[str, str, str] | None = self._db.execute(row, (_key(digest),)).fetchone()
        except self._error as error:
            raise StorageError(f"{self._path} cannot be read: {self._cause_of(error)}.") from error
        return found

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def is_digest(digest: str) -> bool:
    """Whether *digest* is the SHA-1 of a body, in base 32."""
    try:
        return len(digest.removeprefix("sha1:")) == _SHA1_CHARACTERS and bool(_key(digest))
    except ValueError:
        return False


def _key(digest: str) -> bytes:
    return b32decode(digest.removeprefix("sha1:"))
