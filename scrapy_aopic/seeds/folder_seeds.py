"""Seeds that wait beside a job: a folder of lists, put there at any time, taken up while its crawl runs.

Rule 1: ``<JOBDIR>/aopic-seeds/`` holds a file for each time that seeds were given, named in their order. A file appears
there whole, by a rename, after all of its rows have been checked. Its name ends with a digest of its rows: a list that is given
again while it waits, as after a kill, does not wait twice.

Rule 2: a row is ``[URL, worth]`` as a line of JSON: worth in seeds' cash, or null for what every seed gets. One that is more than
a URL has the request as a third part: bytes as :mod:`scrapy_aopic.web.request_rows` writes them, in base 64.

:mod:`.seed_lists` reads what users give; :mod:`.inbox` takes up what waits.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from base64 import b64decode, b64encode
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, NamedTuple

from tqdm import tqdm

from scrapy_aopic.exceptions import ExchangeError, plainly
from scrapy_aopic.storage.lock import lock_briefly, sync_names
from scrapy_aopic.storage.store_folder import unfinished

from .seed_lists import Row, read_seeds, url_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

START = "0-start.jsonl"
"""Name of the list that a job starts from (``AOPIC_SEEDS``): before all others."""

_SUFFIX = ".jsonl"

_BEING_WRITTEN = "list"
"""Beside what a list is written to, until it is whole."""


class Seed(NamedTuple):
    """A page to begin with.

    Attributes:
        worth: Its cash in units of a seed's cash; ``None`` for a seed without a score.
        request: All of its request, if that is more than its URL.
    """

    url: str
    worth: float | None
    request: bytes = b""

    def line(self) -> str:
        """As it waits."""
        more = (b64encode(self.request).decode(),) if self.request else ()
        return json.dumps((self.url, self.worth, *more)) + "\n"


class Given(NamedTuple):
    """What :func:`give` found.

    Attributes:
        rows: Seeds that wait now.
        bad: Rows left out.
        first_bad: What is wrong with the first of them.
    """

    rows: int
    bad: int
    first_bad: str


def lists(folder: Path) -> list[Path]:
    """The lists that wait in *folder*, in their order."""
    return sorted(folder.glob(f"*{_SUFFIX}"))


def give(
    folder: Path, sources: Sequence[str], *, name: str = "", skip_bad: bool = False, progress: bool = False
) -> Given:
    """Let all seeds that *sources* name wait in *folder*, or none of them if one cannot be used.

    A list with scores gets as much cash as a list of that length without; it is shared in proportion to the scores.

    Args:
        sources: URLs, and paths of lists.
        name: Name of the file, for one that replaces what was given before under the same name.
        skip_bad: Leave out bad rows instead of refusing all.

    Raises:
        ExchangeError: If a list cannot be read, has a bad row, or nothing is left.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile("w+", encoding="ascii", dir=folder) as file:
            checked = _Checked(file)
            for source in sources:
                rows = tqdm(_rows(source), unit=" rows", disable=None if progress else True, leave=False)
                checked.add(source, rows)
            checked.require(sources, skip_bad=skip_bad)
            _publish(folder, name, checked.lines())
    except OSError as error:
        raise ExchangeError(f"Seeds cannot be put into {folder}: {plainly(error)}.") from error
    return Given(checked.n, checked.bad, checked.first_bad)


def wait(folder: Path, lines: Iterable[str]) -> None:
    """Let *lines*, rows that have been checked, wait in *folder* as a list of their own.

    Raises:
        ExchangeError: If they cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _publish(folder, "", lines)
    except OSError as error:
        raise ExchangeError(f"Seeds cannot be put into {folder}: {plainly(error)}.") from error


def _rows(source: str) -> Iterator[Row]:
    if "://" in source:
        return iter((Row(source, None, url_error(source)),))
    if not Path(source).exists():
        raise ExchangeError(f"{source} is neither a file nor a URL with http:// or https://.")
    return read_seeds(Path(source))


class _Checked:
    """Rows that have been checked, in *file* until the mean score of their list is known.

    Attributes:
        n: Rows that can be used.
        bad: Rows that cannot.
        first_bad: What is wrong with the first of these.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._means: list[float | None] = []
        self.n = 0
        self.bad = 0
        self.first_bad = ""

    def add(self, source: str, rows: Iterable[Row]) -> None:
        """Check all *rows* of the list *source*.

        Raises:
            ExchangeError: If it has scores by which nothing can be shared.
        """
        n, total, has_scores = 0, 0.0, False
        write, number = self._file.write, len(self._means)
        for row in rows:
            if row.error:
                self.bad += 1
                self.first_bad = self.first_bad or row.error
                continue
            n += 1
            total += row.score or 0.0
            has_scores = row.score is not None
            write(json.dumps((row.url, row.score, number)) + "\n")
        mean = total / n if has_scores else 1.0
        if not 0 < mean < math.inf:
            raise ExchangeError(
                f"The scores in {source} add up to {total}, so nothing can be shared by them."
            )
        self._means.append(mean if has_scores else None)
        self.n += n

    def require(self, sources: Sequence[str], *, skip_bad: bool) -> None:
        """Raise what is wrong with *sources* as a whole.

        Raises:
            ExchangeError: If there are bad rows, which are not to be skipped, or no others.
        """
        if self.bad and not skip_bad:
            raise ExchangeError(
                f"{self.first_bad}. Bad rows: {self.bad} of {self.n + self.bad}, so none was taken: correct them, or "
                "leave them out with scrapy aopic seed --skip-bad."
            )
        if not self.n:
            raise ExchangeError(f"There are no seeds in {', '.join(sources)}.")

    def lines(self) -> Iterator[str]:
        """The rows as they wait."""
        self._file.seek(0)
        for line in self._file:
            url, score, number = json.loads(line)
            mean = self._means[number]
            yield Seed(url, None if mean is None else score / mean).line()


def _publish(folder: Path, name: str, lines: Iterable[str]) -> None:
    """Let *lines* wait, all at once and for good, under *name*, or under a new one: once, if the same list waits already."""
    digest = hashlib.blake2b(digest_size=8)
    with unfinished(folder / _BEING_WRITTEN) as (file, put):
        for line in lines:
            data = line.encode("ascii")
            digest.update(data)
            file.write(data)
        if name:
            put(folder / name)
        else:
            with lock_briefly(folder.with_name(f"{folder.name}.lock"), folder):
                name = f"{time.time_ns():020}-{digest.hexdigest()}{_SUFFIX}"
                if not any(is_same(path.name, name) for path in lists(folder)):
                    put(folder / name)
    sync_names(folder)


def is_same(name: str, other: str) -> bool:
    """Whether two lists with new names have the same rows: then they were given twice, as after a kill."""
    return name != START and name.partition("-")[2] == other.partition("-")[2]


def read_row(line: bytes) -> Seed:
    """The seed that waits as *line*.

    Raises:
        ValueError: If it is none.
    """
    row = json.loads(line)
    if not (isinstance(row, list) and len(row) in (2, 3)):
        raise ValueError(f"{line[:200]!r} is no row")
    url, worth, *more = row
    if error := url_error(url):
        raise ValueError(error)
    if worth is not None and not (isinstance(worth, (int, float)) and 0 <= worth < math.inf):
        raise ValueError(f"{worth!r} is no worth of {url}")
    return Seed(url, worth, b64decode(more[0], validate=True) if more else b"")
