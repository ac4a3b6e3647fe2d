"""Copies and moves jobs: all of one to another place, or shards from one job folder to another; or lets these start over if their disk is lost.

Rule 1: the locks of all that is moved are taken first, and no worker of a folder lives elsewhere; one that was taken for dead ends by
itself. Whatever is killed may be given again.

Rule 2: a job is copied as a whole. Just before the copy is there, the old place notes where it is; from then on no crawl begins there,
even if the rest, which is to remove what is left, is never done.

Rule 3: a shard is copied as a whole, then the server is told, then the old one is removed. The server's word counts: whatever lies in
a folder that is not the home is no shard of the job any more, or not yet.

Rule 4: a folder that has all shards needs no server, and one that is to share them gets one: what lies beside the stores goes from one
to the other.

Rule 5: only a person can know that a disk is lost: no shard starts over unless a person says so.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING

from scrapy_aopic.core.layout import COMMIT_KEY, Family
from scrapy_aopic.exceptions import StorageError, storage_errors
from scrapy_aopic.place.cutting import open_part
from scrapy_aopic.place.folder_place import FolderPart, FolderPlace, store_folder
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.storage import Address, copy_store, exists, lock_job, open_snapshot
from scrapy_aopic.storage.disk_shard import number_of
from scrapy_aopic.storage.folder_workers import await_end, clear_board, registry_of
from scrapy_aopic.storage.homes import Homes, assign, machine_path, new_name, read_homes
from scrapy_aopic.storage.redis.sharding import begin, read_sharding

from .backing_up import backup, check_job, copy_beside, put_beside, restore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from scrapy_aopic.place.place import Place
    from scrapy_aopic.storage.redis.worker_registry import ClusterState

_TASK = "move"


def move_job(source: Place, target: Place, *, progress: bool = False) -> None:
    """Move the job at *source*, all of it, to *target*, where there is none.

    Raises:
        StorageError: If a crawl has the job open, there is none, or it cannot be read or written there.
    """
    to = str(target.folder.absolute() if target.folder is not None else target)
    if source.moved_to() != to:
        check_job(source)
    with source.taken(_TASK):
        if source.moved_to() != to or not target.has_job():  # else all but the rest was done before
            copy_job(source, target, progress=progress, at_end=partial(source.note_moved, to))
        source.remove_job()


def copy_job(
    source: Place, target: Place, *, progress: bool = False, at_end: Callable[[], object] = lambda: None
) -> int:
    """Copy the job at *source* to *target*, one of which is a folder; returns rows copied.

    Args:
        at_end: Called when all is copied, just before the copy is there.

    Raises:
        StorageError: If there is no job, or one at *target*, or it cannot be read or written.
    """
    if isinstance(target, ServerPlace):
        if source.folder is None:
            raise StorageError(
                f"The job in {source} is on a server, as its copy would be: copy it to a folder first."
            )
        return restore(source.folder, target.address, progress=progress, at_end=at_end)
    assert target.folder is not None
    return backup(source, target.folder, progress=progress, at_end=at_end)


def share(source: Path, address: Address) -> None:
    """Let the folder *source*, which has all shards of a job, be one of several of the job at *address*, where there is none.

    Raises:
        StorageError: If a crawl has the job open, it is in one piece, there is another one, or the server does not work.
    """
    job, place = FolderPlace(source), ServerPlace(address)
    sharding, path = job.read_sharding(), machine_path(source)
    if sharding is None:
        raise StorageError(
            f"The job in {source} is in one piece, or there is none: only shards can be in several folders."
        )
    if job.read_part() is not None:
        return
    with job.taken(_TASK):
        shared = sharding._replace(folders=1)
        place.note_moved("")
        begin(address, shared, partial(put_beside, job, place), suffixes=job.read_suffixes())
        homes = read_homes(address)
        if place.read_sharding() != shared or {*homes.paths.values()} - {path}:
            raise StorageError(f"There is another job in {address}: name another key. Nothing was changed.")
        name = next(iter(homes.paths), "") or new_name()
        assign(address, range(sharding.shards), name, path)
        clear_board(source)
        with storage_errors(f"The folder {source} cannot be shared"):
            job.write_sharding(shared, job.read_suffixes())
            job.write_part(FolderPart(name, str(address)))


def _unshare(folder: Path, address: Address) -> None:
    """Let *folder*, which the caller has locked, have the job at *address* without a server, as it has all shards.

    Raises:
        StorageError: If that cannot be read or written.
    """
    job, place = FolderPlace(folder), ServerPlace(address)
    place.note_moved(str(folder.absolute()))
    with storage_errors(f"The folder {folder} cannot be written"):
        copy_beside(place, job)
        job.write_part(None)
    place.remove_job()


def move(source: Path, target: Path, address: Address, numbers: Sequence[int] = ()) -> list[int]:
    """Move the shards *numbers* of the job at *address*, or all that are there, from the job folder *source* to *target*.

    If *target* has all shards then, it needs no server any more.

    Returns:
        The shards that are at home in *target* now because of that.

    Raises:
        StorageError: If a worker uses one of the folders, a shard is not at home in *source*, or it cannot be copied.
    """
    job = FolderPlace(source)
    part = job.read_part()
    if part is None:
        raise StorageError(f"The folder {source} holds no part of a job in shards.")
    if target.exists() and target.samefile(source):
        raise StorageError(f"The shards are in {source} already: name another folder to move them to.")
    with ExitStack() as opened:
        opened.enter_context(lock_job(store_folder(source), _TASK))
        if ServerPlace(address).moved_to() == str(target.absolute()):  # it was stopped when it had moved all
            opened.enter_context(lock_job(store_folder(target), _TASK))
            _unshare(target, address)
            return []
        name = _open_target(target, address, opened)
        _look(address, part.name, name)
        homes = read_homes(address)
        old, new = _stores(source), _stores(target)
        moved = [*numbers] or [
            number
            for number, each in sorted(homes.of.items())
            # the last are left of an attempt before, which ended before it had removed them
            if each == part.name or (each == name and old[number].exists())
        ]
        for number in moved:
            if homes.of.get(number) not in {part.name, name}:
                raise StorageError(
                    f"Shard {number} is {homes.where([number])}, and not in {source}. Nothing was changed."
                )
        for number in moved:
            if homes.of[number] != name:
                shutil.rmtree(new[number], ignore_errors=True)  # what is left of an attempt before
                if exists(old[number]):  # else its worker has never opened it
                    with closing(open_snapshot(old[number])) as store:
                        kind = job.store_kind(number)
                        copy_store(store, new[number], name=str(old[number]), kind=kind)
                assign(address, [number], name, machine_path(target))
            shutil.rmtree(old[number], ignore_errors=True)
        if {*read_homes(address).of.values()} == {name}:
            _unshare(target, address)
    return moved


def begin_anew(target: Path, address: Address, numbers: Sequence[int]) -> Homes:
    """Let the shards *numbers* of the job at *address*, which are lost, begin anew in the job folder *target*.

    Its worker does so when it is started next, with what :mod:`.salvaging` has put there, if it has.

    Returns:
        Where they were at home before.

    Raises:
        StorageError: If a worker uses *target* or the folder of one of them, or has never had it open.
    """
    with ExitStack() as opened:
        name = _open_target(target, address, opened)
        homes = read_homes(address)
        states = _look(address, name, *(homes.of.get(number, name) for number in numbers)).states
        stores = _stores(target)
        for number in numbers:
            if number not in states:
                raise StorageError(
                    f"Shard {number} of the job in {address} was never open, so nothing of it can be lost: start the worker whose "
                    "it is. Nothing was changed."
                )
            if exists(stores[number]) and not _is_salvaged(stores[number]):
                raise StorageError(
                    f"Shard {number} is in {target}, up to number {number_of(states[number].head):,} of its commits if it is whole: "
                    f"remove {stores[number]} if it is lost. Nothing was changed."
                )
        assign(address, numbers, name, machine_path(target), anew=True)
    return homes


def _is_salvaged(folder: Path) -> bool:
    """Whether no worker has crawled the shard in *folder*, as it was just salvaged."""
    with closing(open_snapshot(folder)) as store:
        return store.get_many(Family.META, (COMMIT_KEY,))[0] is None


def _stores(folder: Path) -> list[Path]:
    job = FolderPlace(folder)
    return job.stores(job.read_sharding())


def _open_target(target: Path, address: Address, opened: ExitStack) -> str:
    """Take *target*, and make it a place for shards if needed; returns its name."""
    opened.enter_context(lock_job(store_folder(target), _TASK))
    return open_part(FolderPlace(target), address).name


def _look(address: Address, *homes: str) -> ClusterState:
    """The states of the job at *address*, once no worker lives that has a folder with one of these names."""
    sharding = read_sharding(address)
    assert sharding is not None, "the target is of it"
    with closing(registry_of(address, sharding)) as registry:
        return await_end(registry, {*homes}, address.lock_timeout)
