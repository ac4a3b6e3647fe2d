"""Puts the copy of a job that lies in a folder onto a server, from where any machine crawls it.

Rule 1: the job is there only when all of it is. Of a job in shards, how it is cut is noted last; the store of a job in one
piece is made beside its place, and renamed.

Rule 2: while it is being made, the locks of its stores are held, so that no crawl begins with half of it. What a restore left
behind that was killed is removed by the next one.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.paths import seeds_folder
from scrapy_aopic.place.seed_files import lists
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.place.stored_control import copy_control
from scrapy_aopic.storage.copying import copy_rows
from scrapy_aopic.storage.opening import open_store_at
from scrapy_aopic.storage.redis.connect import connect, exists_at
from scrapy_aopic.storage.redis.replacing import beside, put_in_place, remove_store
from scrapy_aopic.storage.redis.server_checks import check_server
from scrapy_aopic.storage.redis.sharding import Sharding, begin, read_sharding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.storage import Address

ROWS_AT_ONCE = 2_000
"""Rows in a transaction: some milliseconds of the server, on which others may crawl."""


def restore(source: Path, target: Address, *, progress: bool = False) -> int:
    """Put the job in the folder *source*, which no crawl uses, to *target*, where there is none; returns rows copied.

    Raises:
        StorageError: If there is no job in the folder or one on the server, one cannot be read, or the other not written.
    """
    from tqdm import tqdm  # noqa: PLC0415  (only when a line may be shown)

    copy, place = FolderPlace(source), ServerPlace(target)
    copy.check()
    if not copy.has_job():
        raise StorageError(f"There is no job in the folder {source}.")
    if place.has_job():
        raise StorageError(
            f"There is a job in {target}: remove its keys first, or give the restored one another key. Nothing was changed."
        )
    with closing(connect(target)) as link:
        check_server(link, target)
    with (
        ExitStack() as opened,
        tqdm(unit=" rows", unit_scale=True, disable=None if progress else True, leave=False) as line,
    ):
        stores = copy.open_snapshots()
        for store in stores:
            opened.callback(store.close)
        copy_control(copy, place)
        place.add_seeds(lists(seeds_folder(source)))  # first: they are part of it
        if (sharding := copy.read_sharding()) is None:
            return _restore_one(stores[0], str(copy), target, line.update)
        return _restore_shards(copy, stores, target, sharding, line.update)


def _restore_one(store: Store, name: str, target: Address, progress: Callable[[int], object]) -> int:
    made = beside(target)
    remove_store(made)
    with closing(open_store_at(made, is_one_of_many=True)) as copy:
        n = copy_rows(store, copy, name=name, at_once=ROWS_AT_ONCE, progress=progress)
    put_in_place(made, target)
    return n


def _restore_shards(
    source: FolderPlace,
    stores: Sequence[Store],
    target: Address,
    sharding: Sharding,
    progress: Callable[[int], object],
) -> int:
    n = 0
    with ExitStack() as opened:

        def make() -> None:
            nonlocal n
            for number, store in enumerate(stores):
                place = target.of_shard(number)
                if exists_at(place):  # of a restore that was killed
                    remove_store(place)
                copy = open_store_at(place, is_one_of_many=True)
                opened.callback(copy.close)
                name = f"{source} (shard {number})"
                n += copy_rows(store, copy, name=name, at_once=ROWS_AT_ONCE, progress=progress)

        if (
            not begin(target, sharding, make, suffixes=source.read_suffixes())
            or read_sharding(target) != sharding
        ):
            raise StorageError(
                f"Another process has begun a job in {target} meanwhile: stop it, remove its keys, and restore again."
            )
    return n
