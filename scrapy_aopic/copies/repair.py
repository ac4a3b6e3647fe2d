"""Damaged jobs made whole, as far as anything of them is left.

The new store is made beside the damaged one, from a copy that may be opened, and takes its place at the end; the damaged
one is kept.
"""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tqdm import tqdm

from scrapy_aopic.core.damaged import DamagedStore
from scrapy_aopic.core.rebuild import Repaired
from scrapy_aopic.core.rebuild import repair as repair_store
from scrapy_aopic.exceptions import ANY_ERROR, StorageError, plainly
from scrapy_aopic.place.paths import named_as_given, store_folder
from scrapy_aopic.storage import arrange, finish_store, is_finished, lock_job, make_store, open_for_repair
from scrapy_aopic.storage.lock import sync_folder
from scrapy_aopic.view.auditing import audit_store
from scrapy_aopic.web.request_rows import IN_MEMORY, SLOT, url_of, values_of
from scrapy_aopic.web.stored_requests import RequestReader
from scrapy_aopic.web.suffixes import registered_domain

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy_aopic.core.ports import Store


def repair(job: Path, *, progress: bool = False) -> tuple[Repaired | None, Path | None]:
    """Repair the job in the folder *job*, which no crawl uses; leave it alone if every invariant holds.

    If the process is killed, the next repair ends the same.

    Returns:
        What was done, and the folder of the damaged store; ``None`` if there was nothing to repair.

    Raises:
        StorageError: If the job is in use, there is none, or nothing of it can be opened.
    """
    if not any(folder.exists() for folder in (store_folder(job), _new(store_folder(job)))):
        raise StorageError(f"There is no job in the folder {job}.")
    try:
        with lock_job(store_folder(job), "repair") as lock, named_as_given(lock, job):
            where = lock.around.where
            done, kept = _repair(store_folder(where), lock.check, progress=progress)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"The job in {job} cannot be repaired: {plainly(error)}.") from error
    if done is not None:
        done.reason = done.reason.replace(str(where), str(job))
    return done, job / kept if kept else None


def _new(folder: Path) -> Path:
    """Where the store is made that takes the place of the one in *folder*."""
    return folder.with_name(f"{folder.name}.new")


def _repair(folder: Path, check: Callable[[], None], *, progress: bool) -> tuple[Repaired | None, str]:
    """Repair the store in *folder*; *check* raises an error if the job is no longer ours.

    Returns:
        What was done, and the name of the folder of the damaged store.
    """
    copy, new = folder.with_name(f"{folder.name}.copy"), _new(folder)
    if not folder.exists() and is_finished(new):  # killed between the two renames
        new.rename(folder)
    for left in (copy, new):
        shutil.rmtree(left, ignore_errors=True)
    if not folder.exists():
        raise StorageError(f"There is no job in the folder {folder.parent}.")
    try:
        damaged, reason = open_for_repair(folder, copy)
        with closing(damaged):
            if is_finished(folder) and not reason and _holds(damaged):
                return None, ""
            with (
                closing(make_store(new, folder)) as store,
                tqdm(unit=" pages", unit_scale=True, disable=None if progress else True, leave=False) as line,
            ):
                done = repair_rows(damaged, store, line.update)
                done.reason = reason
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
    return done, kept.name


def _holds(store: Store) -> bool:
    try:
        store.verify()
        return audit_store(store).holds
    except StorageError:
        return False


def repair_rows(
    damaged: Store, target: Store, progress: Callable[[int], object] = lambda _: None
) -> Repaired:
    """Write a whole job made of what is left in *damaged* to *target*, which is empty."""
    return repair_store(
        damaged,
        target,
        host_of,
        time.time(),
        progress,
        domain_of=registered_domain,
        wrong_request=RequestReader.of(DamagedStore(damaged)),
    )


def host_of(request: bytes) -> str:
    """Name of the host of a stored *request*; empty if it cannot be known."""
    try:
        slot = values_of(request).get("meta", {}).get(SLOT) if request[:1] != IN_MEMORY else None
        return str(slot) if slot is not None else urlsplit(url_of(request)).hostname or ""
    except ANY_ERROR:
        return ""
