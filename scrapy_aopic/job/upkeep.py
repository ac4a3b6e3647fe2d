"""Copies of jobs, also of those that are running, and jobs that are mended.

A copy is made row by row from a snapshot, so that it shares no file with its source, and each row has been compared
with its checksum. Until it is whole it has another name, and a store in it that nobody opens. What mends a job works beside it in the same way, and exchanges the stores at the end.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from contextlib import closing, contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tqdm import tqdm

from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.repair import Mended, mend
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage import (
    arrange,
    copy_store,
    exists,
    finish_store,
    is_finished,
    lock_job,
    make_store,
    open_damaged,
    open_snapshot,
)
from scrapy_aopic.storage.lock import sync_folder, sync_names
from scrapy_aopic.web.request_rows import url_of

from .job import STATE_FILE, read_taken, store_folder
from .seeds import lists, seeds_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.storage.lock import Lock


def backup(source: Path, target: Path, *, progress: bool = False) -> int:
    """Copy the job in the folder *source* as of its last commit to *target*, which must not exist.

    Returns:
        Rows copied.

    Raises:
        StorageError: If there is no job, it cannot be read, or the copy cannot be written.
    """
    if not exists(store_folder(source)):
        raise StorageError(f"There is no job in the folder {source}.")
    part = target.with_name(target.name + ".part")
    try:
        for path in (target, part):
            if path.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        part.mkdir(parents=True)
        try:
            with lock_job(store_folder(part), "backup") as lock, _called(lock, part):
                rows = _copy(source, lock.around.where, progress=progress)
                lock.check()
            if target.exists():  # on which a rename may end, if it is empty
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
            part.rename(target)  # Windows does not while the lock is open
            sync_names(target)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    except FileExistsError as error:
        raise StorageError(
            f"{error.filename} exists; remove it, or copy the job to another folder."
        ) from error
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"The copy {target} cannot be written: {error}.") from error
    return rows


def _copy(source: Path, target: Path, *, progress: bool) -> int:
    if (source / STATE_FILE).exists():
        _copy_file(source / STATE_FILE, target / STATE_FILE)
    # Before the snapshot: a list that is taken up to its end is removed.
    seeds_folder(target).mkdir()
    for path in lists(seeds_folder(source)):
        with suppress(FileNotFoundError):
            _copy_file(path, seeds_folder(target) / path.name)
    with closing(open_snapshot(store_folder(source))) as store:
        taken, waiting = read_taken(store), {path.name for path in lists(seeds_folder(source))}
        for path in lists(seeds_folder(target)):
            if path.name not in taken and path.name not in waiting:  # all of it is in the snapshot
                path.unlink()
        with tqdm(unit=" rows", unit_scale=True, disable=None if progress else True, leave=False) as line:
            return copy_store(store, store_folder(source), store_folder(target), line.update)


def _copy_file(source: Path, target: Path) -> None:
    shutil.copy2(source, target)
    with target.open("rb+") as file:
        os.fsync(file.fileno())
    sync_folder(target.parent)


def repair(job: Path, *, progress: bool = False) -> tuple[Mended | None, Path | None]:
    """Mend the job in the folder *job*, which no crawl uses; one in which everything holds is left as it is.

    Killed at any moment and called again, it ends the same.

    Returns:
        What was mended, and the folder of the damaged store; ``None`` if there was nothing to mend.

    Raises:
        StorageError: If the job is in use, there is none, or nothing of it can be opened.
    """
    if not any(folder.exists() for folder in (store_folder(job), _new(store_folder(job)))):
        raise StorageError(f"There is no job in the folder {job}.")
    try:
        with lock_job(store_folder(job), "repair") as lock, _called(lock, job):
            where = lock.around.where
            mended, kept = _repair(store_folder(where), lock.check, progress=progress)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"The job in {job} cannot be mended: {error}.") from error
    if mended is not None:
        mended.reason = mended.reason.replace(str(where), str(job))
    return mended, job / kept if kept else None


@contextmanager
def _called(lock: Lock, job: Path) -> Iterator[None]:
    """Let errors call the folder of the job that is locked by the name that its user gave it."""
    where = str(lock.around.where)
    try:
        yield
    except StorageError as error:
        raise type(error)(str(error).replace(where, str(job))) from error
    except OSError as error:
        if isinstance(error.filename, str):
            error.filename = error.filename.replace(where, str(job))
        raise


def _new(folder: Path) -> Path:
    """Where the store is made that takes the place of the one in *folder*."""
    return folder.with_name(f"{folder.name}.new")


def _repair(folder: Path, check: Callable[[], None], *, progress: bool) -> tuple[Mended | None, str]:
    """Mend the store in *folder*; *check* raises an error if this must not be done any more.

    Returns:
        What was mended, and the name of the folder of the damaged store.
    """
    copy, new = folder.with_name(f"{folder.name}.copy"), _new(folder)
    if not folder.exists() and is_finished(new):  # killed between the two renames
        new.rename(folder)
    for left in (copy, new):
        shutil.rmtree(left, ignore_errors=True)
    if not folder.exists():
        raise StorageError(f"There is no job in the folder {folder.parent}.")
    try:
        damaged, reason = open_damaged(folder, copy)
        with closing(damaged):
            if is_finished(folder) and not reason and _holds(damaged):
                return None, ""
            with (
                closing(make_store(new, damaged)) as store,
                tqdm(unit=" pages", unit_scale=True, disable=None if progress else True, leave=False) as line,
            ):
                mended = mend(damaged, store, _host_of, time.time(), line.update)
                mended.reason = reason
                arrange(store)
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    finish_store(new)
    kept = next(
        path for n in count(1) if not (path := folder.with_name(f"{folder.name}.damaged-{n}")).exists()
    )
    check()
    folder.rename(kept)
    new.rename(folder)
    sync_folder(folder.parent)
    return mended, kept.name


def _holds(store: Store) -> bool:
    try:
        store.verify()
        return audit(store).holds
    except StorageError:
        return False


def _host_of(request: bytes) -> str:
    try:
        return urlsplit(url_of(request)).hostname or ""
    except ValueError:
        return ""
