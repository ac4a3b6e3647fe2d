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
from scrapy_aopic.storage.opening import closing_all, open_store_at
from scrapy_aopic.storage.redis.connect import connect
from scrapy_aopic.storage.redis.replacing import beside, put_in_place, remove_store
from scrapy_aopic.storage.redis.server_checks import check_server
from scrapy_aopic.storage.redis.sharding import begin

from .backing_up import check_job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.storage import Address

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
