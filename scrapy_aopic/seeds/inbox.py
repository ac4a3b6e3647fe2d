"""The seeds that wait beside a job, taken up a few rows at a time.

Rule 1: how far a list was taken up is written to the store with each commit, in the same batch as what its rows changed
(:mod:`.offsets`). So after a crash it goes on with the first row that the store knows nothing of.

Rule 2: a list is removed when the store holds its last row, and its offset is forgotten only when its name is gone for
good: if a power failure brought the file back, its rows would count again.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import partial
from typing import IO, TYPE_CHECKING

from scrapy_aopic.exceptions import StorageError, plainly
from scrapy_aopic.place.folder_place import FolderPlace, seeds_folder
from scrapy_aopic.place.seed_files import START, lists
from scrapy_aopic.storage.lock import sync_folder

from .adding import Seed, read_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from scrapy_aopic.job.job import Job

logger = logging.getLogger(__name__)

_POLL = 1.0
"""Seconds between polls of the folder."""

ROWS_A_TURN = 200
"""Rows at a time: some 30 ms of the event loop."""

_REST = 3
"""After a turn the event loop is left to the crawl for this many times as long."""


class Inbox:
    """The lists of seeds in the job folder *place*, taken up a few rows at a time.

    Args:
        take: Called with each row.
        count: Called with the name of a stat to increase.

    Attributes:
        turn_at: Instant of the next turn, while a list is being taken up.
    """

    def __init__(
        self, place: FolderPlace, job: Job, take: Callable[[Seed], None], count: Callable[[str], None]
    ) -> None:
        self._folder = seeds_folder(place.path)
        self._named = seeds_folder(place.folder)
        self._job = job
        self._offsets = job.offsets
        self._take = take
        self._count = count
        self._file: IO[bytes] | None = None
        self._name = ""
        self._ended: set[str] = set()
        self._to_remove: dict[str, bool] = {}
        self._removed: list[str] = []
        self._syncing: Future[object] | None = None
        self._polls_at = 0.0
        self.turn_at = 0.0
        # Removed just before a crash, or at the end of a run.
        self._removed = [name for name in self._offsets.names if not (self._folder / name).exists()]
        if self._removed and self._folder.exists():
            sync_folder(self._folder)
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
        """Whether rows wait; looks into the folder if no list is open."""
        return self._file is not None or self._open_next()

    def turn(self, now: float) -> int:
        """Take up some rows unless it is too soon, and return how many; *now* is in seconds of any clock."""
        self._tidy()
        if self._file is None and now >= self._polls_at:
            self._polls_at = now + _POLL
            self._open_next()
        if self._file is None or now < self.turn_at:
            return 0
        began = time.perf_counter()
        rows = 0
        while rows < ROWS_A_TURN and self._file is not None:
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
        names = (path.name for path in lists(self._folder))
        self._name = next((name for name in names if name not in self._ended), "")
        if not self._name:
            return False
        try:
            self._file = (self._folder / self._name).open("rb")
            self._file.seek(self._offsets[self._name])
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
            seed = read_row(line)
        except (OSError, ValueError, RecursionError) as error:
            self._end(error)
            return 0
        # Before it is taken: a row that makes the scheduler fail is not tried again.
        self._offsets.add(self._name, len(line))
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
                    "path": self._named / self._name,
                    "taken": self._offsets[self._name],
                    "error": plainly(error),
                    "name": self._name,
                },
            )

    def _tidy(self, *, is_last: bool = False) -> None:
        """Remove the lists whose rows the store holds, and rename those that cannot be read."""
        if self._syncing is not None and self._syncing.done():
            error, self._syncing = self._syncing.exception(), None
            if error is None:
                self._forget()
        if self._syncing is not None or (self._to_remove and self._job.is_lost):
            return
        for name, is_bad in list(self._to_remove.items()):
            if not self._offsets.is_landed(name):
                continue
            del self._to_remove[name]
            path = self._folder / name
            try:
                if is_bad:
                    path.replace(path.with_name(f"{name}.bad"))
                else:
                    path.unlink()
            except OSError as error:
                logger.warning(
                    "%(path)s was taken up and cannot be removed: %(error)s",
                    {"path": self._named / name, "error": plainly(error)},
                )
            else:
                self._removed.append(name)
        if is_last:  # the next run forgets their offsets
            if self._removed and self._job.server_seeds is not None:
                with suppress(StorageError):
                    self._job.server_seeds.remove(self._removed)
        elif self._removed:
            self._syncing = self._job.run(partial(self._make_sure, tuple(self._removed)))

    def _make_sure(self, names: Sequence[str]) -> None:
        """Make sure that the lists *names* do not come back."""
        sync_folder(self._folder)
        if self._job.server_seeds is not None:
            self._job.server_seeds.remove(names)

    def _forget(self) -> None:
        self._offsets.forget(self._removed)
        self._removed = []
