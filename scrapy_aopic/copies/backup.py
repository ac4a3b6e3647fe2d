"""Copies of jobs, also of those that are running.

A copy is made row by row from a snapshot: it shares no file with its source, and each row is compared with its checksum.
Until it is whole it has another name, and its store cannot be opened; what a backup left behind that was killed is removed by the next
one. The copy of a job in shards has a store for each of them, all as
of one moment (:mod:`scrapy_aopic.place.copied_shards`).
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING

from tqdm import tqdm

from scrapy_aopic.exceptions import StorageError, plainly
from scrapy_aopic.place.copied_shards import part_folder, parts_folder, write_parts
from scrapy_aopic.place.cutting import find_suffixes
from scrapy_aopic.place.kept_control import copy_control
from scrapy_aopic.place.paths import STATE_FILE, named_as_given, seeds_folder, store_folder, store_place
from scrapy_aopic.seeds.folder_seeds import lists
from scrapy_aopic.seeds.offsets import read_offsets
from scrapy_aopic.seeds.server_seeds import ServerSeeds
from scrapy_aopic.storage import Address, copy_store, exists, lock_job
from scrapy_aopic.storage.lock import killed_task, sync_folder, sync_names
from scrapy_aopic.view.views import open_stores
from scrapy_aopic.view.whole_job import find_cut

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.storage.redis.membership import JobCut


_TASK = "backup"
"""What the lock of a copy says that is being made, and of one whose backup was killed."""


def backup(source: Path | Address, target: Path, *, progress: bool = False) -> int:
    """Copy the job in the folder *source*, or on a server, as of its last commit to *target*, which must not exist.

    Returns:
        Rows copied.

    Raises:
        StorageError: If there is no job, it cannot be read, or the copy cannot be written.
    """
    if not exists(store_place(source)) and find_cut(source) is None:
        where = source if isinstance(source, Address) else f"the folder {source}"
        raise StorageError(f"There is no job in {where}.")
    part = target.parent / f"{target.name}.part"
    try:
        _check_free(target)
        if not _is_left(part):
            _check_free(part)
        lock = lock_job(store_folder(part), _TASK)
        try:
            with lock, named_as_given(lock, part):
                _clear(lock.around.where)
                rows = _copy(source, lock.around.where, progress=progress)
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
    except FileExistsError as error:
        raise StorageError(
            f"{error.filename} exists; remove it, or copy the job to another folder."
        ) from error
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"The copy {target} cannot be written: {plainly(error)}.") from error
    return rows


def _is_left(part: Path) -> bool:
    """Whether the folder *part* is what a backup has left that was killed, if only before it had written to its lock."""
    if killed_task(store_folder(part)) == _TASK:
        return True
    lock = f"{store_folder(part).name}.lock"
    return part.is_dir() and all(path.name == lock and not path.stat().st_size for path in part.iterdir())


def _check_free(path: Path) -> None:
    if path.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


def _clear(part: Path) -> None:
    """Remove what a backup has left in the folder *part*, which was killed; its lock stays, for it is ours now."""
    store = store_folder(part)
    for path in part.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.stem != store.name or path.suffix != ".lock":
            path.unlink()


def _copy(source: Path | Address, target: Path, *, progress: bool) -> int:
    copy_control(source, target)
    if isinstance(source, Address):
        return _copy_from_server(source, target, progress=progress)
    if (source / STATE_FILE).exists():
        _copy_file(source / STATE_FILE, target / STATE_FILE)
    # Before the snapshot: a list that is taken up to its end is removed.
    seeds_folder(target).mkdir()
    for path in lists(seeds_folder(source)):
        with suppress(FileNotFoundError):
            _copy_file(path, seeds_folder(target) / path.name)
    cut = find_cut(source)
    places = [part_folder(source, n) for n in range(cut.shards)] if cut else [store_folder(source)]
    with ExitStack() as opened:
        stores = _open(source, opened)
        taken, waiting = read_offsets(stores[0]).names, {path.name for path in lists(seeds_folder(source))}
        for path in lists(seeds_folder(target)):
            if path.name not in taken and path.name not in waiting:  # all of it is in the snapshot
                path.unlink()
        return _copy_stores(source, stores, places, target, cut, progress=progress)


def _open(source: Path | Address, opened: ExitStack) -> list[Store]:
    stores = open_stores(source)
    for store in stores:
        opened.callback(store.close)
    return stores


def _copy_stores(
    source: Path | Address,
    stores: Sequence[Store],
    places: Sequence[Path | Address],
    target: Path,
    cut: JobCut | None,
    *,
    progress: bool,
) -> int:
    """Copy *stores*, those of *source* at *places*, to the job folder *target*; returns the number of rows."""
    with tqdm(unit=" rows", unit_scale=True, disable=None if progress else True, leave=False) as line:
        if cut is None:
            return copy_store(stores[0], places[0], store_folder(target), line.update)
        parts_folder(target).mkdir()
        n = 0
        for number, (store, place) in enumerate(zip(stores, places, strict=True)):
            n += copy_store(store, place, part_folder(target, number), line.update)
        write_parts(target, cut, find_suffixes(source))
        return n


def _copy_from_server(source: Address, target: Path, *, progress: bool) -> int:
    waiting = seeds_folder(target)
    waiting.mkdir()
    server = ServerSeeds(
        source, waiting
    )  # before the snapshot: a list that is taken up to its end is removed
    cut = find_cut(source)
    places = [source.of_shard(number) for number in range(cut.shards)] if cut else [source]
    with closing(server), ExitStack() as opened:
        stores = _open(source, opened)
        taken, still = read_offsets(stores[0]).names, server.names()
        for path in lists(waiting):
            if path.name not in taken and path.name not in still:  # all of it is in the snapshot
                path.unlink()
        return _copy_stores(source, stores, places, target, cut, progress=progress)


def _copy_file(source: Path, target: Path) -> None:
    shutil.copy2(source, target)
    with target.open("rb+") as file:
        os.fsync(file.fileno())
    sync_folder(target.parent)
