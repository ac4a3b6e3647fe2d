"""Adds seeds to a job at any time: makes cash of scores, and writes rows that a running crawl takes up.

Rule: a row is ``[URL, worth]`` as a line of JSON: worth in seeds' cash, or null for what every seed gets. One that is more than
a URL has the request as a third part: bytes as :mod:`scrapy_aopic.web.request_rows` writes them, in base 64.

:mod:`.seed_lists` reads what users give, :mod:`scrapy_aopic.place.seed_files` keeps what waits, and :mod:`.inbox` takes it up.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, NamedTuple

from scrapy_aopic.exceptions import ExchangeError, StorageError, plainly
from scrapy_aopic.place.seed_files import put_list

from .seed_lists import Row, read_seeds, url_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scrapy_aopic.place.place import Place


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


class Added(NamedTuple):
    """The result of :func:`add_seeds`.

    Attributes:
        rows: Seeds that wait now.
        bad: Rows left out.
        first_bad: What is wrong with the first of them.
    """

    rows: int
    bad: int
    first_bad: str


def add_seeds(
    place: Place, sources: Sequence[str], *, name: str = "", skip_bad: bool = False, progress: bool = False
) -> Added:
    """Let all seeds that *sources* name wait for the job at *place*, or none of them if one cannot be used.

    A list with scores gets as much cash as a list of that length without; it is shared in proportion to the scores.

    Args:
        sources: URLs, and paths of lists.
        name: Name of the list that is made, for one that replaces what was added before under the same name.
        skip_bad: Leave out bad rows instead of refusing all.

    Raises:
        ExchangeError: If a list cannot be read, has a bad row, or nothing is left.
        StorageError: If a server does not take them.
    """
    from tqdm import tqdm  # noqa: PLC0415  (only when a line may be shown)

    try:
        with place.adding_seeds() as folder, TemporaryFile("w+", encoding="ascii", dir=folder) as file:
            checked = _Checked(file)
            for source in sources:
                rows = tqdm(_rows(source), unit=" rows", disable=None if progress else True, leave=False)
                checked.add(source, rows)
            checked.require(sources, skip_bad=skip_bad)
            put_list(folder, checked.lines(), name)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise ExchangeError(f"Seeds cannot be added to {place}: {plainly(error)}.") from error
    return Added(checked.n, checked.bad, checked.first_bad)


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
