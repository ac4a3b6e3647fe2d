"""The files and folders in a job folder.

``aopic/`` holds the store of a job in one piece and may change without warning between format versions; seeds wait in
``aopic-seeds/`` (see :mod:`.seed_files`); a job in shards is in ``aopic-shards/`` (see :mod:`.folder_place`); beside them is what Scrapy
itself keeps.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from scrapy_aopic.exceptions import StorageError, storage_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scrapy_aopic.storage.lock import Lock

STATE_FILE = "spider.state"
"""The file in which Scrapy keeps the state of the spider."""


def store_folder(job_folder: Path) -> Path:
    """Where in a job folder the store is."""
    return job_folder / "aopic"


def seeds_folder(job_folder: Path) -> Path:
    """Where in a job folder seeds wait."""
    return job_folder / "aopic-seeds"


def check_job_folder(job: Path) -> None:
    """Do nothing if *job* is a folder, or may become one.

    Raises:
        StorageError: If it is something else.
    """
    with storage_errors(f"{job} can be no job folder"):
        if job.is_dir():
            return
        if job.exists():
            raise StorageError(
                f"{job} is a file, and no job folder: give the JOBDIR of a crawl, or a new name."
            )
        if job.is_symlink():
            raise StorageError(f"{job} is a symbolic link to {job.readlink()}, which is not there.")
        for parent in job.parents:
            if parent.exists() and not parent.is_dir():
                raise StorageError(f"{job} can be no job folder, because {parent} is a file.")


@contextmanager
def named_as_given(lock: Lock, job: Path) -> Iterator[None]:
    """Make errors name the folder of the locked job as the user named it: *job*, not the path behind *lock*."""
    where = str(lock.around.where)
    try:
        yield
    except StorageError as error:
        raise type(error)(str(error).replace(where, str(job))) from error
    except OSError as error:
        if isinstance(error.filename, str):
            error.filename = error.filename.replace(where, str(job))
        raise
