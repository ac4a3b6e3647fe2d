"""Checks whether a job may be crawled in a number of shards: the one with which it began, and settings that allow it."""

from __future__ import annotations

import logging
import math
from os import cpu_count
from shlex import quote
from typing import TYPE_CHECKING

from scrapy_aopic.core.order import order_name
from scrapy_aopic.exceptions import SettingError, StorageError, storage_errors
from scrapy_aopic.storage import Address, exists
from scrapy_aopic.storage.homes import new_name
from scrapy_aopic.storage.redis.sharding import Sharding, begin
from scrapy_aopic.web.suffixes import list_name, packed_list, use_list

from .folder_place import FolderPart, FolderPlace, store_folder
from .server_place import ServerPlace

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.core.policy import Policy

    from .place import Place

logger = logging.getLogger(__name__)


def shards_for(workers: int) -> int:
    """Shards of a job that begins in a folder with so many *workers*: two for each, and for each core that may get one later, up to eight.

    Fewer take less: each commit has a letter of each shard to each other one (docs/measurements.md). To the order their number
    makes no difference.
    """
    return 2 * max(workers, 2, min(cpu_count() or 1, 8))


def check_cut(place: Place | None, shards: int, policy: Policy, *, interval: float, folders: int = 0) -> None:
    """Do nothing if the job at *place* may be crawled in so many *shards*; ``None`` is a job in one piece in a folder.

    Args:
        folders: Job folders among which they are divided; 0 if they are in one place.
        interval: Seconds between commits.

    Raises:
        SettingError: If other settings do not go with shards.
        StorageError: If it was begun with another number, or the server cannot be reached.
    """
    if place is None:
        if shards > 1:
            raise SettingError(
                f"AOPIC_SHARDS ({shards}) needs AOPIC_WORKERS, the number of processes of this machine that crawl them, or "
                f'AOPIC_STORE = "redis", where processes of other machines find them; or AOPIC_SHARDS = "2x{shards}" for shards in the '
                "job folders of two machines. Set one of them, or AOPIC_SHARDS = 1."
            )
        return
    _check_begun(place, shards, folders, order_name(policy.order))
    if shards == 1:
        return
    if missing := policy.rules.spread - policy.spread:
        raise StorageError(
            f'The hosts of {min(missing)} are in one shard of the job in {place}, and AOPIC_HOST_RULES has "spread" for it: leave it out, '
            f"or go on with NEW, which 'scrapy aopic salvage {quote(str(place))} NEW --shards {shards}' makes. Nothing was changed."
        )
    if why := policy.why_not_in_shards:
        raise SettingError(why)
    if interval == math.inf:
        raise SettingError(
            'AOPIC_DURABILITY = "close" stores nothing before the end, so that no shard would hear of another: set a number '
            "of milliseconds, or AOPIC_SHARDS = 1."
        )


def _check_begun(place: Place, shards: int, folders: int, order: str) -> None:
    """Do nothing if the job at *place* has not begun, or began like this.

    Raises:
        StorageError: If it began otherwise, or the server cannot be reached.
    """
    sharding = place.read_sharding()
    if sharding is None:
        return
    other = f"begin another job with another {'AOPIC_REDIS_KEY' if place.folder is None else 'JOBDIR'}"
    if sharding.shards != shards:
        raise StorageError(
            f"The job in {place} has {sharding.shards} shards, and AOPIC_SHARDS is now {shards}: set AOPIC_SHARDS = {sharding.shards}, go on "
            f"with NEW, which 'scrapy aopic salvage {quote(str(place))} NEW --shards {shards}' makes, or {other}. Nothing was changed."
        )
    if sharding.folders != folders:
        is_there = "in the job folders of its workers" if sharding.folders else "in one place"
        raise StorageError(
            f"The shards of the job in {place} are {is_there}, which is fixed when a job begins: set AOPIC_SHARDS = {sharding}, or "
            f"{other}. Nothing was changed."
        )
    if sharding.order not in {"", order}:
        raise StorageError(
            f"The job in {place} is crawled in the order {sharding.order}, which is fixed when a job begins, and AOPIC_ORDER is now "
            f"{order}: set AOPIC_ORDER as all other workers have it, or {other}. Nothing was changed."
        )
    check_suffixes(place, sharding)


def check_suffixes(place: Place, sharding: Sharding) -> None:
    """Cut domains as *sharding*, that of the job at *place*, does from now on: else this process would look for hosts in other shards.

    Raises:
        StorageError: If it cannot.
    """
    if sharding.suffixes == list_name():
        return
    if why := use_list(sharding.suffixes, place.read_suffixes()):
        raise StorageError(
            f"The job in {place} is cut by a list of public suffixes ({sharding.suffixes}), but {why}. Nothing was changed."
        )
    logger.info(
        "Domains are cut by the list of public suffixes with which the job in %(job)s began, not by the one that is installed",
        {"job": place},
    )


def begin_cut(address: Address, sharding: Sharding, prepare: Callable[[], object]) -> bool:
    """Make the job at *address*, cut as *sharding* says, if there is none; returns whether there was none.

    Args:
        prepare: Does what belongs to it before, such as to put its seeds there.

    Raises:
        StorageError: If there is a job that began otherwise, maybe at this moment, or the server does not work.
    """
    is_new = begin(address, sharding, prepare, suffixes=packed_list())
    if not is_new:
        _check_begun(ServerPlace(address), sharding.shards, sharding.folders, sharding.order)
    return is_new


def open_part(job: FolderPlace, address: Address) -> FolderPart:
    """What says that the folder *job*, which the caller alone may change, has a part of the job at *address*, or is to get one.

    Raises:
        StorageError: If it has another job, or there is no job in parts at *address*.
    """
    server = ServerPlace(address)
    sharding = server.read_sharding()
    if sharding is None or not sharding.folders:
        raise StorageError(f"The job in {address} has no shards in job folders, or is gone.")
    here, part = job.read_sharding(), job.read_part()
    is_other = part.job.partition("#")[2] != address.key if part is not None else here is not None
    if is_other or (here is not None and here.shards != sharding.shards) or exists(store_folder(job.path)):
        raise StorageError(f"The folder {job} holds another job than {address}: choose another JOBDIR.")
    with storage_errors(f"The job in {job} cannot be made"):
        if part is None:
            part = FolderPart(new_name(), str(address))
            job.write_part(part)
        if here is None:
            job.write_sharding(sharding, server.read_suffixes())
    return part


def begin_in_folder(job: FolderPlace, sharding: Sharding, prepare: Callable[[], object]) -> bool:
    """Make the job in the folder *job*, cut as *sharding* says, if there is none; see :func:`begin_cut`.

    Raises:
        StorageError: If it cannot be written.
    """
    if job.has_job():
        return False
    prepare()
    with storage_errors(f"The job in {job} cannot be made"):
        job.write_sharding(sharding, packed_list())
    return True


def new_sharding(shards: int, policy: Policy, folders: int = 0) -> Sharding:
    """How a job with *policy* is cut that begins now, into so many *shards*, divided among job *folders* unless these are 0."""
    spread = " ".join(sorted(policy.spread))
    return Sharding(shards, list_name(), folders, order_name(policy.order), spread)
