"""Copies of jobs, also of those that are running.

A copy is made row by row from a snapshot: it shares no file with its source, and each row is compared with its checksum.
Until it is whole it has another name, and its store cannot be opened; what a backup left behind that was killed is removed by the next
one. The copy of a job in shards has a store for each of them, all as
of one moment (:mod:`scrapy_aopic.place.folder_place`).

A copy that is put onto a server, from where any machine crawls it, is there only when all of it is: of a job in shards, how it is
cut is noted last; the store of a job in one piece is made beside its place, and renamed. While it is being made, the locks of its
stores are held, so that no crawl begins with half of it. What a restore left behind that was killed is removed by the next one.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from scrapy_aopic.exceptions import StorageError, storage_errors
from scrapy_aopic.place.folder_place import FolderPlace, named_as_given, seeds_folder, store_folder
from scrapy_aopic.place.seed_files import lists
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.place.stored_control import copy_control
from scrapy_aopic.seeds.offsets import read_offsets
from scrapy_aopic.storage import Address, closing_all, copy_store, lock_job
from scrapy_aopic.storage.copying import copy_rows
from scrapy_aopic.storage.lock import killed_task, sync_names
from scrapy_aopic.storage.opening import open_store_at
from scrapy_aopic.storage.redis.connect import connect
from scrapy_aopic.storage.redis.replacing import beside, put_in_place, remove_store
from scrapy_aopic.storage.redis.server_checks import check_server
from scrapy_aopic.storage.redis.sharding import begin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.place.place import Place


def backup(
    source: Place, target: Path, *, progress: bool = False, at_end: Callable[[], object] = lambda: None
) -> int:
    """Copy the job at *source*, as of its last commit, to the folder *target*, which must not exist.

    Args:
        at_end: Called when all is copied, just before *target* is there.

    Returns:
        Rows copied.

    Raises:
        StorageError: If there is no job, it cannot be read, or the copy cannot be written.
    """
    check_job(source)
    with making(target, "backup") as part:
        n = _copy(source, part, progress=progress)
        at_end()
        return n


def check_job(source: Place) -> None:
    """Do nothing if there is a job at *source*.

    Raises:
        StorageError: If there is none.
    """
    if not source.has_job():
        kind = "the folder " if source.folder is not None else ""
        raise StorageError(f"There is no job in {kind}{source}.")


@contextmanager
def making(target: Path, task: str) -> Iterator[Path]:
    """An empty folder, which becomes the folder *target* at the end of the block, and is removed if that raises an error.

    What is left of a process that was killed during the same *task* is removed first.

    Raises:
        StorageError: If *target* exists, or it cannot be written.
    """
    part = target.parent / f"{target.name}.part"
    with storage_errors(f"The job folder {target} cannot be made"):
        _check_free(target)
        if not _is_left(part, task):
            _check_free(part)
        lock = lock_job(store_folder(part), task)
        try:
            with lock, named_as_given(lock, part):
                lock.check()  # another process may just have made it the target
                _clear(lock.around.where)
                yield lock.around.where
                lock.check()
                _check_free(target)  # a rename may end on it, if it is empty
                if sys.platform != "win32":  # which renames no folder in which a file is open
                    part.rename(target)  # before the lock is empty: it says who has left what is not renamed
            if sys.platform == "win32":
                part.rename(target)
            sync_names(target)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise


def _is_left(part: Path, task: str) -> bool:
    """Whether the folder *part* is what a *task* has left that was killed, if only before it had written to its lock."""
    if killed_task(store_folder(part)) == task:
        return True
    lock = f"{store_folder(part).name}.lock"
    return part.is_dir() and all(path.name == lock and not path.stat().st_size for path in part.iterdir())


def _check_free(path: Path) -> None:
    if path.exists():
        raise StorageError(f"{path} exists; remove it, or name another folder.")


def _clear(part: Path) -> None:
    """Remove what a task has left in the folder *part*, which was killed; its lock stays, for it is ours now."""
    store = store_folder(part)
    for path in part.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.stem != store.name or path.suffix != ".lock":
            path.unlink()


def copy_beside(source: Place, copy: FolderPlace) -> None:
    """Copy what lies beside the stores of the job at *source*: control, state of the spider, seeds, pages of an earlier crawl."""
    copy_control(source, copy)
    source.copy_beside(copy.path)
    if (earlier := source.read_earlier()) is not None:
        copy.write_earlier([earlier])


def _copy(source: Place, target: Path, *, progress: bool) -> int:
    from tqdm import tqdm  # noqa: PLC0415  (only when a line may be shown)

    copy = FolderPlace(target)
    copy_beside(source, copy)  # before the snapshots: a list that is taken up to its end is removed
    sharding = source.read_sharding()
    with (
        closing_all(source.open_snapshots()) as stores,
        tqdm(unit=" rows", unit_scale=True, disable=None if progress else True, leave=False) as line,
    ):
        taken, waiting = read_offsets(stores[0]).names, source.seed_names()
        for path in lists(seeds_folder(target)):
            if path.name not in taken and path.name not in waiting:  # all of it is in the snapshot
                path.unlink()
        n = 0
        for number in source.shards_here():
            store, folder = stores[number], copy.stores(sharding)[number]
            folder.parent.mkdir(exist_ok=True)
            name = str(source) if sharding is None else f"{source} (shard {number})"
            kind = source.store_kind(number)
            n += copy_store(store, folder, name=name, kind=kind, progress=line.update)
        if source.folder is not None and (part := FolderPlace(source.folder).read_part()) is not None:
            copy.write_part(part)
        if sharding is not None:
            copy.write_sharding(sharding, source.read_suffixes())
        return n


ROWS_AT_ONCE = 2_000
"""Rows in a transaction: some milliseconds of the server, on which others may crawl."""


def restore(
    source: Path, target: Address, *, progress: bool = False, at_end: Callable[[], object] = lambda: None
) -> int:
    """Put the job in the folder *source*, which no crawl uses, to *target*, where there is none; returns rows copied.

    Args:
        at_end: Called when all is copied, just before the job is there.

    Raises:
        StorageError: If there is no job in the folder or one on the server, one cannot be read, or the other not written.
    """
    from tqdm import tqdm  # noqa: PLC0415  (only when a line may be shown)

    copy, place = FolderPlace(source), ServerPlace(target)
    check_job(copy)
    if place.has_job():
        raise StorageError(
            f"There is a job in {target}: remove its keys first, or give the restored one another key. Nothing was changed."
        )
    if (part := copy.read_part()) is not None:
        raise StorageError(
            f"The folder {source} has only a part of the job in {part.job}. Nothing was changed."
        )
    with closing(connect(target)) as link:
        check_server(link, target)
    place.note_moved("")
    n, sharding = 0, copy.read_sharding()
    with (
        closing_all(copy.open_snapshots()) as stores,
        ExitStack() as opened,
        tqdm(unit=" rows", unit_scale=True, disable=None if progress else True, leave=False) as line,
    ):
        put_beside(copy, place)  # first: it is part of it

        def put(store: Store, where: Address, name: str) -> Store:
            nonlocal n
            remove_store(where)  # of a restore that was killed
            made = open_store_at(where, is_one_of_many=True)
            opened.callback(made.close)
            n += copy_rows(store, made, name=name, at_once=ROWS_AT_ONCE, progress=line.update)
            return made

        def put_shards() -> None:
            for number, store in enumerate(stores):
                put(store, target.of_shard(number), f"{source} (shard {number})")
            at_end()

        if sharding is None:
            put(stores[0], beside(target), str(copy)).close()
            at_end()
            put_in_place(beside(target), target)
        elif (
            not begin(target, sharding, put_shards, suffixes=copy.read_suffixes())
            or place.read_sharding() != sharding
        ):
            raise StorageError(
                f"Another process has begun a job in {target} meanwhile: stop it, remove its keys, and restore again."
            )
    return n


def put_beside(source: FolderPlace, place: ServerPlace) -> None:
    """Put to *place* what lies beside the stores of the job in *source*: control, seeds, pages of an earlier crawl."""
    copy_control(source, place)
    place.add_seeds(lists(seeds_folder(source.path)))
    if (earlier := source.read_earlier()) is not None:
        place.write_earlier([earlier])
