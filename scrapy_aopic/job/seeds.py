"""Seeds that wait beside a job: a folder of lists, put there at any time, taken up while its crawl runs.

``<JOBDIR>/aopic-seeds/`` holds a file for each time that seeds were given, named in their order. A file appears
there whole, by a rename. How far it was taken up is written to the store with each commit, in the same batch as
what its rows changed; so after a crash it goes on with the first row that the store knows nothing of, and the
file is removed when the store holds its last row.

A row is ``[URL, worth]`` as a line of JSON: worth in seeds' cash, or null for what every seed gets.
"""

from __future__ import annotations

import json
import logging
import math
import os
import secrets
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, NamedTuple

from tqdm import tqdm

from scrapy_aopic.exceptions import ExchangeError
from scrapy_aopic.storage.lock import sync_folder, sync_names

from .seed_lists import Row, read_seeds, url_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from .job import Job

logger = logging.getLogger(__name__)

START = "0-start.jsonl"
"""Name of the list that a job starts from (``AOPIC_SEEDS``): before all others."""

_SUFFIX = ".jsonl"

_LOOK = 1.0
"""Seconds between looks into the folder."""

_ROWS = 200
"""Rows at a time: some 30 ms of the event loop."""

_REST = 3
"""Times as long as a turn took, the event loop is left to the crawl."""


class Seed(NamedTuple):
    """A page to begin with.

    Attributes:
        worth: Its cash in units of a seed's cash; ``None`` for a seed without a score.
    """

    url: str
    worth: float | None


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


# -- seeds are given


def give(
    folder: Path, sources: Sequence[str], *, name: str = "", skip_bad: bool = False, progress: bool = False
) -> Given:
    """Let seeds wait in *folder*: all that *sources* name, or none if one of them cannot be used.

    The seeds of a list with scores get as much cash as so many seeds without, in proportion to their scores.

    Args:
        sources: URLs, and paths of lists.
        name: Name of the file, for one that replaces what was given before under the same name.
        skip_bad: Leave out bad rows instead of refusing all.

    Raises:
        ExchangeError: If a list cannot be read, has a bad row, or nothing is left.
    """
    rows = bad = 0
    first_bad = ""
    means: list[float | None] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile("w+", encoding="ascii", dir=folder) as checked:
            for source in sources:
                n, total, has_scores = 0, 0.0, False
                for row in tqdm(_rows(source), unit=" rows", disable=None if progress else True, leave=False):
                    if row.error:
                        bad += 1
                        first_bad = first_bad or row.error
                        continue
                    n += 1
                    total += row.score or 0.0
                    has_scores = row.score is not None
                    checked.write(json.dumps((row.url, row.score, len(means))) + "\n")
                mean = total / n if has_scores else 1.0
                if not 0 < mean < math.inf:
                    raise ExchangeError(
                        f"The scores in {source} add up to {total}, so nothing can be shared by them."
                    )
                means.append(mean if has_scores else None)
                rows += n
            if bad and not skip_bad:
                raise ExchangeError(
                    f"{first_bad}. Bad rows: {bad} of {rows + bad}, so none was taken: correct them, or leave them out "
                    "with scrapy aopic seed --skip-bad."
                )
            if not rows:
                raise ExchangeError(f"There are no seeds in {', '.join(sources)}.")
            checked.seek(0)
            _publish(folder, name or _new_name(), _lines(checked, means))
    except OSError as error:
        raise ExchangeError(f"Seeds cannot be put into {folder}: {error}.") from error
    return Given(rows, bad, first_bad)


def _rows(source: str) -> Iterator[Row]:
    if "://" in source:
        return iter((Row(source, None, url_error(source)),))
    if not Path(source).exists():
        raise ExchangeError(f"{source} is neither a file nor a URL with http:// or https://.")
    return read_seeds(Path(source))


def _lines(checked: IO[str], means: list[float | None]) -> Iterator[str]:
    for line in checked:
        url, score, number = json.loads(line)
        mean = means[number]
        yield json.dumps((url, None if mean is None else score / mean)) + "\n"


def _new_name() -> str:
    return f"{time.time_ns():020}-{secrets.token_hex(4)}{_SUFFIX}"


def _publish(folder: Path, name: str, lines: Iterator[str]) -> None:
    """Write *lines* under *name*, all at once and for good."""
    hidden = folder / f"{name}.part"
    try:
        with hidden.open("w", encoding="ascii") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(folder / name)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    sync_names(folder)


# -- seeds are taken up


class Inbox:
    """The lists of *folder*, taken up a few rows at a time.

    Args:
        where: Path to the folder, if another one than for messages.
        take: Called with each row.
        count: Called with the name of a stat to increase.

    Attributes:
        turn_at: Instant of the next turn, while a list is being taken up.
    """

    def __init__(
        self,
        folder: Path,
        job: Job,
        take: Callable[[Seed], None],
        count: Callable[[str], None],
        *,
        where: Path | None = None,
    ) -> None:
        self._folder = folder
        self._where = where or folder
        self._job = job
        self._take = take
        self._count = count
        self._file: IO[bytes] | None = None
        self._name = ""
        self._ended: set[str] = set()
        self._to_remove: dict[str, bool] = {}
        self._removed: list[str] = []
        self._syncing: Future[object] | None = None
        self._look_at = 0.0
        self.turn_at = 0.0
        # Removed just before a crash, or at the end of a run.
        self._removed = [name for name in job.taken if not (self._where / name).exists()]
        if self._removed and self._where.exists():
            sync_folder(self._where)
        self._forget()

    @property
    def is_open(self) -> bool:
        """Whether a list is being taken up."""
        return self._file is not None

    @property
    def is_starting(self) -> bool:
        """Whether that is the list that the job starts from."""
        return self._file is not None and self._name == START

    def has_rows(self) -> bool:
        """Whether rows wait; looks into the folder if none is known of."""
        return self._file is not None or self._open_next()

    def turn(self, now: float) -> int:
        """Take up some rows, unless it is too soon; *now* is in seconds of any clock. Returns how many."""
        self._tidy()
        if self._file is None and now >= self._look_at:
            self._look_at = now + _LOOK
            self._open_next()
        if self._file is None or now < self.turn_at:
            return 0
        began = time.perf_counter()
        rows = 0
        while rows < _ROWS and self._file is not None:
            rows += self._row(self._file)
        self.turn_at = now + (0.0 if self.is_starting else (1 + _REST) * (time.perf_counter() - began))
        return rows

    def close(self) -> None:
        """The job is closed: remove what its last commit holds."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._tidy(is_last=True)

    def _open_next(self) -> bool:
        """Open the first list that was not taken up yet, where the job left it."""
        names = (path.name for path in lists(self._where))
        self._name = next((name for name in names if name not in self._ended), "")
        if not self._name:
            return False
        try:
            self._file = (self._where / self._name).open("rb")
            self._file.seek(self._job.taken.get(self._name, 0))
        except OSError as error:
            self._end(error)
        return self._file is not None

    def _row(self, file: IO[bytes]) -> int:
        """Take up the next row; returns 1, or 0 if there is none."""
        try:
            line = file.readline()
            if not line:
                self._end()
                return 0
            seed = _seed(line)
        except (OSError, ValueError, RecursionError) as error:
            self._end(error)
            return 0
        # Before it is taken: a row that makes the scheduler fail is not tried again.
        self._job.taken[self._name] = self._job.taken.get(self._name, 0) + len(line)
        self._take(seed)
        return 1

    def _end(self, error: Exception | None = None) -> None:
        """Nothing more is to come of the list, because of *error* if there is one."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._ended.add(self._name)
        self._to_remove[self._name] = error is not None
        self._count("aopic/seeds/files" if error is None else "aopic/seeds/bad_files")
        if error is not None:
            logger.error(
                "The seeds in %(path)s cannot be read after byte %(taken)d (%(error)s): what follows is not taken. "
                "The file gets the name %(name)s.bad; give its list again.",
                {
                    "path": self._folder / self._name,
                    "taken": self._job.taken.get(self._name, 0),
                    "error": error,
                    "name": self._name,
                },
            )

    def _tidy(self, *, is_last: bool = False) -> None:
        """Remove the lists whose rows the store holds, and rename those that cannot be read.

        How far a list was taken up is forgotten only when its name is gone for good: if a power failure brought it
        back, its rows would count again.
        """
        if self._syncing is not None and self._syncing.done():
            error, self._syncing = self._syncing.exception(), None
            if error is None:
                self._forget()
        if self._syncing is not None or (self._to_remove and self._job.is_lost):
            return
        for name, is_bad in list(self._to_remove.items()):
            if self._job.landed.get(name, 0) < self._job.taken.get(name, 0):
                continue
            del self._to_remove[name]
            path = self._where / name
            try:
                if is_bad:
                    path.replace(path.with_name(f"{name}.bad"))
                else:
                    path.unlink()
            except OSError as error:
                logger.warning(
                    "%(path)s was taken up and cannot be removed: %(error)s",
                    {"path": self._folder / name, "error": error.strerror},
                )
            else:
                self._removed.append(name)
        if self._removed and not is_last:  # then the next run does
            self._syncing = self._job.run(partial(sync_folder, self._where))

    def _forget(self) -> None:
        removed, self._removed = self._removed, []
        for name in removed:
            self._job.taken.pop(name, None)


def _seed(line: bytes) -> Seed:
    """The row written as *line*.

    Raises:
        ValueError: If it is none.
    """
    row = json.loads(line)
    if not (isinstance(row, list) and len(row) == 2):
        raise ValueError(f"{line[:200]!r} is no row")
    url, worth = row
    if error := url_error(url):
        raise ValueError(error)
    if worth is not None and not (isinstance(worth, (int, float)) and 0 <= worth < math.inf):
        raise ValueError(f"{worth!r} is no worth of {url}")
    return Seed(url, worth)
