"""The files and folders in a job folder.

``aopic/`` holds the store of a job in one piece and may change without warning between format versions; seeds wait in
``aopic-seeds/`` (see :mod:`.seed_files`); beside them is what Scrapy itself keeps.

A worker's job folder may have shards of a job on a server. Then each is a job folder of its own, such as ``aopic-home/3``, which
commands can be given. ``aopic-home/home.json`` says of which job they are, and how the folder is called among those of the
job. So it may be moved to another path, or to another machine, but not copied: two folders of one name cannot be crawled at
once.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.exceptions import StorageError, plainly, storage_errors
from scrapy_aopic.storage import exists
from scrapy_aopic.storage.lock import Lock, sync_names
from scrapy_aopic.storage.named_files import read_given
from scrapy_aopic.storage.store_folder import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_HOME = "aopic-home"
_HOME_FILE = "home.json"

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


# -- shards on the disk of a worker


class Home(NamedTuple):
    """The file ``home.json``: of which job the shards in a job folder are.

    Attributes:
        name: How it is called among the folders of the job.
        job: Address of the job as text, without user and password.
        shards: How many the job has.
    """

    name: str
    job: str
    shards: int


def shard_folder(job_folder: Path, number: int) -> Path:
    """Where in a job folder a shard is: a job folder of its own."""
    return job_folder / _HOME / str(number)


def read_home(job_folder: Path) -> Home | None:
    """The home file of *job_folder*; ``None`` if it has no shards.

    Raises:
        StorageError: If that cannot be read.
    """
    path = job_folder / _HOME / _HOME_FILE
    try:
        fields = json.loads(read_given(path))
        return Home(str(fields["name"]), str(fields["job"]), int(fields["shards"]))
    except FileNotFoundError:
        if shards_on_disk(job_folder):
            raise StorageError(
                f"The file {path} is gone, which says of which job the shards in {job_folder} are: put it back from a copy of "
                "the folder. Nothing was changed."
            ) from None
        return None
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise StorageError(
            f"The file {path} cannot be read: {plainly(error)}. Nothing was changed."
        ) from error


def write_home(job_folder: Path, home: Home) -> None:
    """Let *job_folder*, whose lock the caller has, be *home*.

    Raises:
        StorageError: If there is a job in one piece in it, or it cannot be written.
    """
    if exists(store_folder(job_folder)):
        raise StorageError(
            f"The folder {job_folder} holds a job in one piece, so no shard of another job can be put there: choose another "
            "JOBDIR."
        )
    folder = job_folder / _HOME
    with storage_errors(f"The folder {folder} cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / _HOME_FILE, json.dumps(home._asdict()) + "\n")
        sync_names(folder)


def shards_on_disk(job_folder: Path) -> list[int]:
    """Numbers of the shards of which there is a store in *job_folder*, in order."""
    folder = job_folder / _HOME
    if not folder.is_dir():
        return []
    named = sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
    return [number for number in named if exists(store_folder(shard_folder(job_folder, number)))]


def check_no_home(job_folder: Path) -> None:
    """Raise an error if *job_folder* is a place for shards, because a job in one piece is about to be opened in it.

    Raises:
        StorageError: If it is.
    """
    if (home := read_home(job_folder)) is not None:
        raise StorageError(
            f"The folder {job_folder} holds shards of the job in {home.job}: set AOPIC_SHARDS = {home.shards} and AOPIC_DISKS as "
            "they were, or choose another JOBDIR."
        )
