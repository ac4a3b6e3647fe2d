"""Damaged jobs made whole, as far as anything of them is left.

Rule 1: no other process may change the job meanwhile: a repair has the lock of its folder, or the locks of all of its stores on the
server.

Rule 2: what is left is copied first, and the damaged store is not changed. A new store is made beside it, and takes its place
once it is whole, by a rename; the damaged one is kept.

Rule 3: of a job in shards, the mail between them is made to agree first. All new stores take their places in one transaction.
"""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from scrapy_aopic.core.crawl_totals import read_totals
from scrapy_aopic.core.damaged import DamagedStore
from scrapy_aopic.core.rebuild import Repaired, rebuild
from scrapy_aopic.core.shards.mending import mend_mail
from scrapy_aopic.exceptions import ANY_ERROR, StorageError, storage_errors
from scrapy_aopic.place.cutting import check_suffixes
from scrapy_aopic.place.paths import named_as_given, store_folder
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.storage import (
    Address,
    arrange,
    finish_store,
    is_finished,
    lock_job,
    make_store,
    open_for_repair,
)
from scrapy_aopic.storage.copying import copy_rows
from scrapy_aopic.storage.lock import sync_folder
from scrapy_aopic.storage.opening import open_store_at
from scrapy_aopic.storage.redis.keys import Keys
from scrapy_aopic.storage.redis.replacing import (
    Move,
    beside,
    copy_remains,
    has_store,
    kept_beside,
    put_in_place,
    remove_store,
)
from scrapy_aopic.storage.redis.server_lock import ServerLock
from scrapy_aopic.storage.registry import kind_in
from scrapy_aopic.view.auditing import audit_store
from scrapy_aopic.web.request_rows import IN_MEMORY, SLOT, url_of, values_of
from scrapy_aopic.web.stored_requests import RequestReader
from scrapy_aopic.web.suffixes import registered_domain

from .restoring import ROWS_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.core.ports import Family, Store
    from scrapy_aopic.place.place import Place


class RepairedStore(NamedTuple):
    """One store that was repaired.

    Attributes:
        done: What was made of it.
        kept: Where the damaged one is kept: its folder, or what its keys begin with.
        shard: Its number; -1 for that of a job in one piece.
        letters: Letters to other shards that are lost.
    """

    done: Repaired
    kept: str
    shard: int = -1
    letters: int = 0


def repair(place: Place, *, progress: bool = False) -> list[RepairedStore]:
    """Repair the job at *place*, which no crawl uses; leave alone what holds.

    If the process is killed, the next repair ends the same.

    Raises:
        StorageError: If the job is in use, there is none, nothing of it can be opened, or its shards are on disks.
    """
    if isinstance(place, ServerPlace):  # files and keys have only the repair of rows in common
        return _repair_on_server(place)
    folder = place.folder
    assert folder is not None
    return _repair_folder(folder, progress=progress)


# -- in a folder


def _repair_folder(job: Path, *, progress: bool) -> list[RepairedStore]:
    if not any(folder.exists() for folder in (store_folder(job), _new(store_folder(job)))):
        raise StorageError(f"There is no job in the folder {job}.")
    with (
        storage_errors(f"The job in {job} cannot be repaired"),
        lock_job(store_folder(job), "repair") as lock,
        named_as_given(lock, job),
    ):
        where = lock.around.where
        done, kept = _repair_files(store_folder(where), lock.check, progress=progress)
    if done is None:
        return []
    done.reason = done.reason.replace(str(where), str(job))
    return [RepairedStore(done, str(job / kept))]


def _new(folder: Path) -> Path:
    """Where the store is made that takes the place of the one in *folder*."""
    return folder.with_name(f"{folder.name}.new")


def _repair_files(folder: Path, check: Callable[[], None], *, progress: bool) -> tuple[Repaired | None, str]:
    """Repair the store in *folder*; *check* raises an error if the job is no longer ours.

    Returns:
        What was done, and the name of the folder of the damaged store.
    """
    from tqdm import tqdm  # noqa: PLC0415  (only when a line may be shown)

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
                closing(make_store(new, kind_in(folder))) as store,
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


# -- on a server


def _repair_on_server(job: ServerPlace) -> list[RepairedStore]:
    if not job.has_job():
        raise StorageError(f"There is no job in {job}.")
    sharding = job.read_sharding()
    if sharding is not None and sharding.disks:
        raise StorageError(
            f"The shards of the job in {job} are on the disks of its workers: repair each there, as 'scrapy aopic repair "
            "JOBDIR/aopic-home/0'; 'scrapy aopic status' shows where they are."
        )
    if sharding is not None:
        check_suffixes(job, sharding)
    one = job.address
    places = [one.of_shard(number) for number in range(sharding.shards)] if sharding is not None else [one]
    with ExitStack() as opened:
        for place in places:
            opened.callback(ServerLock(place, Keys(place), task="repair").close)
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="scrapy-aopic-")))
        stores, gaps = [], []
        for number, place in enumerate(places):
            store = make_store(folder / str(number))
            opened.callback(store.close)
            stores.append(store)
            gaps.append(_copy_remains(place, store))
        lost = mend_mail(stores, registered_domain) if sharding is not None else {}
        found: list[RepairedStore] = []
        moves: list[Move] = []
        for number, (place, store) in enumerate(zip(places, stores, strict=True)):
            if not any(gaps[number].values()) and number not in lost and _holds(store, has_begun=True):
                continue
            done, move = _repair_keys(store, gaps[number], place, folder / f"{number}.new")
            moves.append(move)
            assert move.kept is not None
            kept = Keys(move.kept).head.removesuffix(b"head").decode()
            found.append(RepairedStore(done, kept, place.shard, lost.get(number, 0)))
        if moves:
            put_in_place(moves, forget_mail=sharding.shards if sharding is not None else 0)
    return found


def _copy_remains(place: Address, store: Store) -> dict[Family, int]:
    def write(family: Family, rows: dict[bytes, bytes]) -> None:
        store.write({family: {**rows}}, sync=False)

    return copy_remains(place, write)


def _repair_keys(
    store: Store, gaps: dict[Family, int], place: Address, folder: Path
) -> tuple[Repaired, Move]:
    """Make a whole store of what is left in *store*, beside *place*."""
    kept = next(each for n in count(1) if not has_store(each := kept_beside(place, n)))
    made = beside(place)
    remove_store(made)
    with closing(make_store(folder)) as new:
        done = repair_rows(store, new)
        done.gaps = {family.name: n for family, n in gaps.items() if n}
        with closing(open_store_at(made, is_one_of_many=True)) as copy:
            copy_rows(new, copy, name=str(place), at_once=ROWS_AT_ONCE)
    return done, Move(made, place, kept)


# -- one store


def _holds(store: Store, *, has_begun: bool = False) -> bool:
    """Whether every invariant of *store* holds, and, if it *has_begun*, it has the totals of a commit."""
    try:
        store.verify()
        return (not has_begun or read_totals(store) is not None) and audit_store(store).holds
    except StorageError:
        return False


def repair_rows(
    damaged: Store, target: Store, progress: Callable[[int], object] = lambda _: None
) -> Repaired:
    """Write a whole job made of what is left in *damaged* to *target*, which is empty."""
    return rebuild(
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
