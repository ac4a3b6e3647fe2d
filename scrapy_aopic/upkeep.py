"""Copies of jobs, also of those that are running.

A copy is made row by row from a snapshot, so that it shares no file with its source, and each row has been compared
with its checksum. Until it is whole it has another name, and a store in it that nobody opens.
"""

from __future__ import annotations

import shutil
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from tqdm import tqdm

from .exceptions import StorageError
from .job import read_taken, store_folder
from .seeds import lists, seeds_folder
from .storage import copy_store, exists, open_snapshot

if TYPE_CHECKING:
    from pathlib import Path

_STATE = "spider.state"
"""What Scrapy itself keeps in a job folder: ``spider.state`` of the spider."""


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
    for path in (target, part):
        if path.exists():
            raise StorageError(f"{path} exists; remove it, or copy the job to another folder.")
    try:
        part.mkdir(parents=True)
        try:
            rows = _copy(source, part, progress=progress)
            part.rename(target)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"The copy {target} cannot be written: {error}.") from error
    return rows


def _copy(source: Path, target: Path, *, progress: bool) -> int:
    if (source / _STATE).exists():
        shutil.copy2(source / _STATE, target / _STATE)
    # Before the snapshot: a list that is taken up to its end is removed.
    seeds_folder(target).mkdir()
    for path in lists(seeds_folder(source)):
        with suppress(FileNotFoundError):
            shutil.copy2(path, seeds_folder(target) / path.name)
    with closing(open_snapshot(store_folder(source))) as store:
        taken, waiting = read_taken(store), {path.name for path in lists(seeds_folder(source))}
        for path in lists(seeds_folder(target)):
            if path.name not in taken and path.name not in waiting:  # all of it is in the snapshot
                path.unlink()
        with tqdm(unit=" rows", unit_scale=True, disable=None if progress else True, leave=False) as line:
            return copy_store(store, store_folder(source), store_folder(target), line.update)
