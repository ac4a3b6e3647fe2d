"""Moves shards from one job folder to another, or lets them start over because their disk is lost.

Rule 1: the locks of the folders, on the server and on the disk, are taken first, so no worker uses them, and one that was taken for dead can
show nothing any more.

Rule 2: a shard is copied as a whole (:mod:`.backing_up`), then the server is told, then the old one is removed. The server's
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
from scrapy_aopic.job.worker_disks import open_home
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.paths import read_home, shard_folder, store_folder
from scrapy_aopic.storage import Address, exists, lock_job, open_snapshot
from scrapy_aopic.storage.disk_shard import number_of
from scrapy_aopic.storage.disk_workers import Homes, assign, machine_path, read_heads, read_homes
from scrapy_aopic.storage.redis.keys import Keys
from scrapy_aopic.storage.redis.server_lock import ServerLock
from scrapy_aopic.storage.redis.sharding import read_sharding

from .backing_up import backup

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


_TASK = "move"


def move(
    source: Path, target: Path, address: Address, numbers: Sequence[int] = (), *, progress: bool = False
) -> list[int]:
    """Move the shards *numbers* of the job at *address*, or all that are there, from the job folder *source* to *target*.

    Returns:
        The shards that are at home in *target* now because of that.

    Raises:
        StorageError: If a worker uses one of the folders, a shard is not at home in *source*, or it cannot be copied.
    """
    home = read_home(source)
    if home is None:
        raise StorageError(
            f"The folder {source} holds no shards of a job: name the JOBDIR of a worker with AOPIC_DISKS."
        )
    if target.exists() and target.samefile(source):
        raise StorageError(f"The shards are in {source} already: name another folder to move them to.")
    _check_job(address)
    with ExitStack() as opened:
        opened.enter_context(lock_job(store_folder(source), _TASK))
        _take_lock(address, home.name, opened)
        name = _open_target(target, address, opened)
        homes = read_homes(address)
        moved = [*numbers] or [
            number
            for number, each in sorted(homes.of.items())
            # the last are left of an attempt before, which ended before it had removed them
            if each == home.name or (each == name and shard_folder(source, number).exists())
        ]
        for number in moved:
            if homes.of.get(number) not in {home.name, name}:
                raise StorageError(
                    f"Shard {number} is at home in {homes.place(number)}, and not in {source}. Nothing was changed."
                )
        for number in moved:
            old, new = shard_folder(source, number), shard_folder(target, number)
            if homes.of[number] != name:
                _copy(old, new, progress=progress)
                assign(address, [number], name, machine_path(target))
            shutil.rmtree(old, ignore_errors=True)
    return moved


def begin_anew(target: Path, address: Address, numbers: Sequence[int]) -> Homes:
    """Let the shards *numbers* of the job at *address*, which are lost, begin anew in the job folder *target*.

    Its worker does so when it is started next, with what :mod:`.salvaging` has put there, if it has.

    Returns:
        Where they were at home before.

    Raises:
        StorageError: If a worker uses *target* or the folder of one of them, or has never had it open.
    """
    _check_job(address)
    with ExitStack() as opened:
        name = _open_target(target, address, opened)
        homes, heads = read_homes(address), read_heads(address)
        for number in numbers:
            if number not in homes.of or number not in heads:
                raise StorageError(
                    f"Shard {number} of the job in {address} was never open, so nothing of it can be lost: start the worker whose "
                    "it is. Nothing was changed."
                )
            store = store_folder(shard_folder(target, number))
            if exists(store) and not _is_salvaged(store):
                raise StorageError(
                    f"Shard {number} is in {target}, up to number {number_of(heads[number]):,} of its commits if it is whole: remove "
                    f"{shard_folder(target, number)} if it is lost. Nothing was changed."
                )
        for other in sorted({homes.of[number] for number in numbers} - {name}):
            _take_lock(address, other, opened)
        assign(address, numbers, name, machine_path(target), anew=True)
    return homes


def _is_salvaged(folder: Path) -> bool:
    """Whether no worker has crawled the shard in *folder*, as it was just salvaged."""
    with closing(open_snapshot(folder)) as store:
        return store.get_many(Family.META, (COMMIT_KEY,))[0] is None


def _check_job(address: Address) -> None:
    sharding = read_sharding(address)
    if sharding is None or not sharding.disks:
        raise StorageError(
            f"The job in {address} has no shards on disks, or is gone: there is nothing to move."
        )


def _open_target(target: Path, address: Address, opened: ExitStack) -> str:
    """Take *target*, and make it a place for shards if needed; returns its name."""
    opened.enter_context(lock_job(store_folder(target), _TASK))
    sharding = read_sharding(address)
    name = open_home(target, address, sharding.shards if sharding is not None else 0).name
    _take_lock(address, name, opened)
    return name


def _take_lock(address: Address, name: str, opened: ExitStack) -> None:
    where = address.of_home(name)
    opened.callback(ServerLock(where, Keys(where), task=_TASK).close)


def _copy(old: Path, new: Path, *, progress: bool) -> None:
    """Copy the shard in *old* to *new*, where may be what is left of an attempt before."""
    for left in (new, new.with_name(f"{new.name}.part")):
        shutil.rmtree(left, ignore_errors=True)
    if exists(store_folder(old)):  # else its worker has never opened it
        backup(FolderPlace(old), new, progress=progress)
