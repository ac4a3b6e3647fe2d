"""Side files: what a crawl writes beside its store, such as feeds of items and archives.

Rule 1: what a visit has yielded is on the disk before the commit that holds the visit is written. So a crash repeats a visit
whose items may be lost, and items come at least once.

Rule 2: after an error of one of them nothing is committed any more, and the crawl ends: which visits it has cost is not known.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from scrapy_aopic.exceptions import StorageError, plainly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Flush = Callable[[], Iterable[tuple[str, int]]]

_NO_DISK = {errno.EINVAL, errno.ENOTSUP, errno.EROFS}
"""Errors of what cannot be synchronised, because it is on no disk: a pipe, a terminal."""


class SideFiles:
    """The side files of a job.

    Attributes:
        failure: The first error of one of them; ``None`` if there was none.
    """

    def __init__(self) -> None:
        self.failure: StorageError | None = None
        self._flushes: list[Flush] = []

    def add(self, flush: Flush) -> None:
        """Call *flush* before each commit is written.

        It writes out what this process holds back, and returns the files to synchronise, as names for messages and
        descriptors, which are closed here; and calls :meth:`fail` instead of raising an error.
        """
        self._flushes.append(flush)

    def fail(self, name: str, error: BaseException) -> None:
        """Note that the file called *name* in messages cannot be written because of *error*."""
        if self.failure is None:
            self.failure = StorageError(f"{name} cannot be written: {plainly(error)}.")

    def flush(self) -> Callable[[], None]:
        """Write out all that is held back; returns a function that waits until it is on the disk, to be called once, in any thread.

        That function raises the :attr:`failure`, if there is one.
        """
        files = [file for flush in self._flushes for file in flush()]
        return lambda: self._sync(files)

    def _sync(self, files: list[tuple[str, int]]) -> None:
        for name, descriptor in files:
            self._sync_one(name, descriptor)
        if self.failure is not None:
            raise self.failure

    def _sync_one(self, name: str, descriptor: int) -> None:
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NO_DISK:
                self.fail(name, error)
        finally:
            os.close(descriptor)
