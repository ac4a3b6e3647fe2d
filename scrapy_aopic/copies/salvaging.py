"""Begins a new job in a new folder with what can be read of a damaged one, which is left as it is.

Rule 1: the new job takes its name when it is whole (:func:`.backing_up.making`), so a salvage that was killed can be given again.

Rule 2: of a job in shards, each store is read and made by itself; their mail begins anew. So the folder has a copy of a job in
shards, as a backup has it, which is restored to a server.

Rule 3: shards of a folder that has a part of a job go on in the same job. It takes them up as it does shards that are lost, by what
the others know of them (:mod:`scrapy_aopic.core.shards.rebuilt_mail`), but with their pages.
"""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scrapy_aopic.core import walk
from scrapy_aopic.core.crawl_totals import CrawlTotals, read_damaged_totals
from scrapy_aopic.core.damaged import DamagedStore
from scrapy_aopic.core.layout import CLOCK_KEY, SHARD, TOTALS_KEY, Family
from scrapy_aopic.core.order import order_name
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.records import NO_RECORD, pack
from scrapy_aopic.core.salvage import Salvage, Salvaged, together
from scrapy_aopic.core.shards.cut import WHOLE, Cut, ShardId
from scrapy_aopic.core.splitting import split
from scrapy_aopic.exceptions import ANY_ERROR, StorageError
from scrapy_aopic.job.clock import JobClock, read_mark
from scrapy_aopic.place.cutting import check_suffixes, new_sharding
from scrapy_aopic.place.folder_place import FolderPart, FolderPlace
from scrapy_aopic.storage import arrange, finish_store, make_store
from scrapy_aopic.storage.homes import new_name
from scrapy_aopic.storage.opening import Damaged
from scrapy_aopic.web.request_rows import IN_MEMORY, SLOT, url_of, values_of, waits_for
from scrapy_aopic.web.suffixes import packed_list, registered_domain

from .backing_up import check_job, copy_beside, making

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy_aopic.place.place import Place


_DEFAULT = Policy()


def salvage_job(
    source: Place, target: Path, given: Policy = _DEFAULT, *, shards: int = 1, progress: bool = False
) -> dict[int, Salvaged]:
    """Make a new job in the folder *target*, which must not exist, with what is left of the one at *source*.

    Args:
        given: Has the order of the job, if it is none of this package or its name is lost, and rules, by which domains are spread if
            it is cut.
        shards: How many the new job has, if the one at *source* is in one piece.

    Returns:
        What was read of each shard, by number; of a job in one piece, all under 0.

    Raises:
        StorageError: If a crawl has the job open, there is none, nothing of it can be opened, it cannot be cut, or *target* cannot
            be made.
    """
    from tqdm import tqdm  # noqa: PLC0415  (only when a line may be shown)

    check_job(source)
    part = FolderPlace(source.folder).read_part() if source.folder is not None else None
    sharding = source.read_sharding()
    if sharding is not None:
        check_suffixes(source, sharding)
    if shards > 1:
        if sharding is not None:
            raise StorageError(
                f"The job in {source} has {sharding.shards} shards already, which is as many as it will have. Nothing was changed."
            )
        sharding = new_sharding(shards, replace(given, spread=given.rules.spread))._replace(order="")
        suffixes = packed_list()
    elif sharding is not None:
        suffixes = source.read_suffixes()
    names = sharding.domains if sharding is not None else frozenset()
    policy = Policy(order=given.order, domain_of=registered_domain, spread=names, waits_for=waits_for)
    found: dict[int, Salvaged] = {}
    with (
        making(target, "salvage") as where,
        tqdm(unit=" pages", unit_scale=True, disable=None if progress else True, leave=False) as line,
    ):
        new = FolderPlace(where)
        copy_beside(source, new)
        copies = where / "damaged"
        with source.opening_damaged(copies) as stores, ExitStack() as opened:
            if shards > 1:
                first = DamagedStore(stores[0][1].store)
                if why := _examine(first, policy, WHOLE)[1].why_not_in_shards:
                    raise StorageError(f"The job cannot be cut: {why}")
            whole = Cut(ShardId(0, shards), registered_domain, names)
            cut = shards > 1 and _cut(stores[0][1], copies / "cut", whole, opened, line.update)
            for shard, damaged in cut or stores:
                folder = new.stores(sharding)[shard.number]
                folder.parent.mkdir(parents=True, exist_ok=True)
                found[shard.number] = _salvage_store(damaged, folder, policy, shard, line.update, cut=shards)
        shutil.rmtree(copies)
        if part is not None:
            new.write_part(FolderPart(new_name(), part.job))
        if sharding is not None:
            new.write_sharding(sharding, suffixes)
    return found if shards == 1 else {0: together(found.values())}


def _cut(
    damaged: Damaged, folder: Path, cut: Cut, opened: ExitStack, progress: Callable[[int], object]
) -> list[tuple[ShardId, Damaged]]:
    """Divide the rows of a store among those of a *cut* in *folder*, which *opened* closes."""
    source, n, parts = DamagedStore(damaged.store), cut.own.of, []
    for number in range(n):
        path = folder / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        store = make_store(path, damaged.kind)
        opened.callback(store.close)
        parts.append((ShardId(number, n), Damaged(store, damaged.kind)))
    split(source, [part.store for _, part in parts], cut, progress)
    first = parts[0][1]._replace(reason=damaged.reason, gaps=Counter(damaged.gaps) + Counter(source.gaps))
    return [(parts[0][0], first), *parts[1:]]


def _salvage_store(
    damaged: Damaged,
    folder: Path,
    policy: Policy,
    shard: ShardId,
    progress: Callable[[int], object],
    *,
    cut: int = 1,
) -> Salvaged:
    """Make a new store in *folder* with what is left of a *damaged* one."""
    source = DamagedStore(damaged.store)
    saved, policy = _examine(source, policy, shard)
    clock = _clock_of(source)
    with closing(make_store(folder, damaged.kind)) as store:
        work = Salvage(source, store, policy, clock(), saved=saved, host_of=host_of, shard=shard, cut=cut)
        done = work.run(progress)
        store.write({Family.META: {CLOCK_KEY: pack(clock.mark())}}, sync=True)
        arrange(store)
    finish_store(folder)
    done.reason = damaged.reason
    for family, n in damaged.gaps.items():
        done.gaps[family.name] = done.gaps.get(family.name, 0) + n
    return done


def _examine(source: DamagedStore, policy: Policy, shard: ShardId) -> tuple[CrawlTotals | None, Policy]:
    """The totals in *source*, if they can be read, and *policy* with its order, if it can be salvaged as *shard*."""
    totals, of_shard = source.get_many(Family.META, (TOTALS_KEY, SHARD))
    saved = read_damaged_totals(totals)
    if shard == WHOLE and of_shard is not None:
        raise StorageError(
            "This is one shard of a job: salvage the JOBDIR of the worker that has it, or all of the job."
        )
    given = order_name(policy.order)
    name = saved.order_name if saved is not None else given
    own = policy.order if name == given else walk.find_order(name)
    if own is None:
        raise StorageError(
            f"The job was crawled in the order {name}, which is none of this package: name its class with -s AOPIC_ORDER=."
        )
    return saved, replace(policy, order=own)


def _clock_of(source: DamagedStore) -> JobClock:
    """The clock of the job in *source*; that of this machine if it is lost."""
    try:
        return JobClock(read_mark(source))
    except NO_RECORD:
        return JobClock()


def host_of(request: bytes) -> str:
    """Name of the host of a stored *request*; empty if it cannot be known."""
    try:
        slot = values_of(request).get("meta", {}).get(SLOT) if request[:1] != IN_MEMORY else None
        return str(slot) if slot is not None else urlsplit(url_of(request)).hostname or ""
    except ANY_ERROR:
        return ""
