"""Rows of a list that have been checked, in a file beside the job until the list is whole: who is killed goes on behind them."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from scrapy_aopic.exceptions import ExchangeError
from scrapy_aopic.place.remote_files import is_remote, version_of
from scrapy_aopic.storage.known_bodies import Body, is_digest
from scrapy_aopic.storage.named_files import is_file
from scrapy_aopic.storage.store_folder import open_beside

from .earlier_crawl import SCHEMES, beginning
from .seed_lists import Row, is_list_url

_FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
"""Numbers of the errors of a disk, or of a part of it, that has no room."""


@contextmanager
def checking(folder: Path, sources: Sequence[str], options: object, scheme: str) -> Iterator[CheckedRows]:
    """The rows of *sources* that a call with the same *options* has checked which was killed, to go on with.

    Args:
        folder: Where they are kept; they are removed at the end of the block, unless what ends it is no fault of the lists, and the disk has room.
        scheme: What makes fingerprints of the pages, if they are no seeds but were fetched.
    """
    state = repr(([_state(source) for source in sources], options, scheme))
    name = hashlib.blake2b(state.encode(), digest_size=12).hexdigest()
    file, path = open_beside(folder / f"{name}.checked", keeps=True)
    is_over = False
    try:
        with file:
            yield CheckedRows(file, scheme)
        is_over = True
    except (ExchangeError, OSError) as error:
        is_over = isinstance(error, ExchangeError) or error.errno in _FULL
        raise
    finally:
        if is_over:
            path.unlink(missing_ok=True)


def _state(source: str) -> object:
    """What changes with the list *source*."""
    if is_remote(source):
        return source, version_of(source) if is_list_url(source) else ""
    path = Path(source).absolute()
    found = path.stat() if is_file(path) else None
    # Of a pipe nobody knows whether it is the same one.
    return str(path), (found.st_size, found.st_mtime_ns) if found is not None else time.time_ns()


class _SumsOfList:
    """What the rows of a list add up to: all rows, those that can be used, and their scores, if they have any."""

    def __init__(self) -> None:
        self.rows = 0
        self.n = 0
        self.total = 0.0
        self.has_scores = False

    @property
    def mean(self) -> float:
        return self.total / self.n if self.has_scores else 1.0


class CheckedRows:
    """Rows that have been checked, in *file* until the mean scores of their lists are known.

    Rule: the file has a line of JSON for each row, which begins with the number of its list: with URL and score of a seed; with URL,
    fingerprint, digest, record and date of a fetched page; with null, the reason, and what is wrong, if anything, of one that is
    left out.

    Attributes:
        bad: Rows with which something is wrong.
        first_bad: What is wrong with the first of these.
        left_out: All rows that are not used, by reasons.
    """

    def __init__(self, file: IO[bytes], scheme: str = "") -> None:
        self._file = file
        self._fingerprint = SCHEMES[scheme] if scheme else None
        self._lists: defaultdict[int, _SumsOfList] = defaultdict(_SumsOfList)
        self._n_lists = 0
        self.bad = 0
        self.first_bad = ""
        self.left_out: Counter[str] = Counter()
        whole = 0
        for line in file:
            try:
                self._count(json.loads(line) if line.endswith(b"\n") else ())
            except (ValueError, TypeError, LookupError):  # what follows is read again
                break
            whole += len(line)
        file.seek(whole)
        file.truncate()

    @property
    def n(self) -> int:
        """Rows that can be used."""
        return sum(each.n for each in self._lists.values())

    def add(self, source: str, rows: Iterable[Row]) -> None:
        """Check all *rows* of the next list, which is *source*, but for those that are in the file.

        Raises:
            ExchangeError: If it has scores by which nothing can be shared.
        """
        number, write = self._n_lists, self._file.write
        self._n_lists += 1
        sums = self._lists[number]
        for row in islice(rows, sums.rows, None):
            line = (number, *self._values(row))
            self._count(line)
            write(json.dumps(line).encode() + b"\n")
        if sums.n and not 0 < sums.mean < math.inf:
            raise ExchangeError(
                f"The scores in {source} add up to {sums.total}, so nothing can be shared by them."
            )

    def _values(self, row: Row) -> tuple[object, ...]:
        if row.reason:
            return None, row.reason, row.error
        if self._fingerprint is None:
            return row.url, row.score
        number, found = beginning(self._fingerprint("GET", row.url, b"")), row.found
        return (
            row.url,
            number,
            found.digest if is_digest(found.digest) else "",
            found.record,
            _iso(found.date),
        )

    def _count(self, line: Sequence[Any]) -> None:
        number, url, value, *more = line
        sums = self._lists[number]
        sums.rows += 1
        if url is None:
            self.left_out[value] += 1
            self.bad += bool(more[0])
            self.first_bad = self.first_bad or more[0]
            return
        sums.n += 1
        sums.has_scores = not more and value is not None
        sums.total += value or 0.0

    def _lines(self) -> Iterator[list[Any]]:
        self._file.seek(0)
        return (line for line in map(json.loads, self._file) if line[1] is not None)

    def seeds(self) -> Iterator[tuple[str, float | None]]:
        """URLs of the seeds, and what each is worth."""
        means = {number: sums.mean for number, sums in self._lists.items()}
        return (
            (url, None if score is None else score / means[number]) for number, url, score in self._lines()
        )

    def numbers(self) -> Iterator[int]:
        """Beginnings of the fingerprints of the fetched pages."""
        return (line[2] for line in self._lines())

    def bodies(self) -> Iterator[Body]:
        """Their bodies, as far as the lists name them."""
        return ((digest, record, url, date) for _, url, _, digest, record, date in self._lines() if digest)


def _iso(date: str) -> str:
    """*date*, as archives and indexes have it, in ISO 8601."""
    if "T" in date:
        return date
    digits = "".join(filter(str.isdigit, date))[:14].ljust(14, "0")
    return f"{digits[:4]}-{digits[4:6]}-{digits[6:8]}T{digits[8:10]}:{digits[10:12]}:{digits[12:]}Z"
