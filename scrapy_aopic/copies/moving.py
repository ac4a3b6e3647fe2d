"""Moves shards from one job folder to another, or lets them start over because their disk is lost.

Rule 1: the locks of the folders are taken first, and no worker of theirs lives elsewhere; one that was taken for dead ends by itself.

Rule 2: a shard is copied as a whole, then the server is told, then the old one is removed. The server's
word counts: whatever lies in a folder that is not the home is no shard of the job any more, or not yet. So the command may
be stopped at any moment, and be given again.

Rule 3: only a person can know that a disk is lost: no shard starts over unless a person says so.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from scrapy_aopic.core.layout import COMMIT_KEY, Family
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.place.cutting import open_part
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.paths import store_folder
from scrapy_aopic.storage import Address, copy_store, exists, lock_job, open_snapshot
from scrapy_aopic.storage.disk_shard import number_of
from scrapy_aopic.storage.folder_workers import await_end, registry_of
from scrapy_aopic.storage.homes import Homes, assign, machine_path, read_homes
from scrapy_aopic.storage.redis.sharding import read_sharding

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from scrapy_aopic.storage.redis.worker_registry import ClusterState

_TASK = "move"


def move(source: Path, target: Path, address: Address, numbers: Sequence[int] = ()) -> list[int]:
    """Move the shards *numbers* of the job at *address*, or all that are there, from the job folder *source* to *target*.

    Returns:
        The shards that are at home in *target* now because of that.

    Raises:
        StorageError: If a worker uses one of the folders, a shard is not at home in *source*, or it cannot be copied.
    """
    part = FolderPlace(source).read_part()
    if part is None:
        raise StorageError(f"The folder {source} holds no part of a job in shards.")
    if target.exists() and target.samefile(source):
        raise StorageError(f"The shards are in {source} already: name another folder to move them to.")
    with ExitStack() as opened:
        opened.enter_context(lock_job(store_folder(source), _TASK))
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
                        copy_store(
                            store,
                            new[number],
                            name=str(old[number]),
                            kind=FolderPlace(source).store_kind(number),
                        )
                assign(address, [number], name, machine_path(target))
            shutil.rmtree(old[number], ignore_errors=True)
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
