"""Begins a new job in a new folder with what can be read of a damaged one, which is left as it is.

Rule 1: the new job takes its name when it is whole (:func:`.backing_up.making`), so a salvage that was killed can be given again.

Rule 2: of a job in shards, each store is read and made by itself; their mail begins anew. So the folder has a copy of a job in
shards, as a backup has it, which is restored to a server.

Rule 3: a job that gets another number of shards is divided row by row into parts of one store, which are then read one after the other.
Links in letters between its shards are applied.

Rule 4: shards of a folder that has a part of a job go on in the same job. It takes them up as it does shards that are lost, by what
the others know of them (:mod:`scrapy_aopic.core.shards.rebuilt_mail`), but with their pages.
"""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scrapy_aopic.core import walk
from scrapy_aopic.core.crawl_totals import CrawlTotals, read_damaged_totals
from scrapy_aopic.core.damaged import DamagedStore
from scrapy_aopic.core.layout import CLOCK_KEY, SHARD, TOTALS_KEY, Family
from scrapy_aopic.core.order import order_name
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.ports import StorePart
from scrapy_aopic.core.records import NO_RECORD, pack
from scrapy_aopic.core.salvage import Salvage, Salvaged, together
from scrapy_aopic.core.shards.cut import WHOLE, Cut, ShardId
from scrapy_aopic.core.splitting import Splitting
from scrapy_aopic.exceptions import ANY_ERROR, StorageError
from scrapy_aopic.job.clock import JobClock, read_mark
from scrapy_aopic.place.cutting import check_suffixes, new_sharding
from scrapy_aopic.place.folder_place import FolderPart, FolderPlace
from scrapy_aopic.storage import arrange, finish_store, make_store
from scrapy_aopic.storage.homes import new_name
from scrapy_aopic.storage.opening import Damaged
from scrapy_aopic.storage.redis.sharding import Sharding
from scrapy_aopic.web.request_rows import IN_MEMORY, SLOT, url_of, values_of, waits_for
from scrapy_aopic.web.suffixes import packed_list, registered_domain

from .backing_up import check_job, copy_beside, making

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from pathlib import Path

    from scrapy_aopic.place.place import Place


_DEFAULT = Policy()


def salvage_job(
    source: Place, target: Path, given: Policy = _DEFAULT, *, shards: int = 0, progress: bool = False
) -> dict[int, Salvaged]:
    """Make a new job in the folder *target*, which must not exist, with what is left of the one at *source*.

    Args:
        given: Has the order of the job, if it is none of this package or its name is lost, and rules, by which domains are spread if
            it is cut, beside those that are.
        shards: Into how many the new job is cut; 0 to leave it as it is.

    Returns:
        What was read of each shard, by number; of a job that is cut, or in one piece, all under 0.

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
        if shards and sharding.folders:
            raise StorageError(
                f"The shards of the job in {source} are in several job folders: bring them to one of them first ('scrapy aopic "
                "move'). Nothing was changed."
            )
    was = cut = sharding or Sharding(1, "")
    if shards:
        spread = (was.domains | given.rules.spread) if shards > 1 else ()
        cut = new_sharding(shards, replace(given, spread=frozenset(spread)))._replace(order=was.order)
    old, new = (Cut(ShardId(0, each.shards), registered_domain, each.domains) for each in (was, cut))
    policy = Policy(order=given.order, domain_of=registered_domain, spread=cut.domains, waits_for=waits_for)
    done: dict[int, Salvaged] = {}
    with (
        making(target, "salvage") as where,
        tqdm(unit=" pages", unit_scale=True, disable=None if progress else True, leave=False) as line,
    ):
        place = FolderPlace(where)
        copy_beside(source, place)
        copies = where / "damaged"
        with (
            source.opening_damaged(copies) as left,
            closing(
                _divided(left, copies / "cut", (old, new if shards else None), policy, line.update)
            ) as stores,
        ):
            for shard, damaged in stores:
                folder = place.stores(cut if cut.shards > 1 else None)[shard.number]
                folder.parent.mkdir(parents=True, exist_ok=True)
                done[shard.number] = _salvage_store(
                    damaged, folder, policy, shard, line.update, was=old if shards else None
                )
        shutil.rmtree(copies)
        if part is not None:
            place.write_part(FolderPart(new_name(), part.job))
        if cut.shards > 1:
            place.write_sharding(cut, packed_list())
    return {0: together(done.values())} if shards else done


def _divided(
    stores: Iterable[tuple[ShardId, Damaged]],
    folder: Path,
    cuts: tuple[Cut, Cut | None],
    policy: Policy,
    progress: Callable[[int], object],
) -> Generator[tuple[ShardId, Damaged]]:
    """What each shard has of *stores*, all of it in one store in *folder*; *cuts* say which it was in before, and is in from now on, if
    that is another one."""
    old, new = cuts
    if new is None:
        yield from stores
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    kind, reason, gaps = None, "", Counter[Family]()
    with closing(make_store(folder)) as whole:  # in one, as each that is open takes memory
        parts = [StorePart(whole, number) for number in range(new.own.of + old.own.of)]
        splitting = Splitting(parts, old, new)
        for shard, damaged in stores:
            source = DamagedStore(damaged.store)
            if new.has_others and (why := _examine(source, policy, shard)[1].why_not_in_shards):
                raise StorageError(f"The job cannot be cut: {why}")
            splitting.add(source, shard.number, progress)
            kind, reason = kind or damaged.kind, reason or damaged.reason
            gaps += Counter(damaged.gaps) + Counter(source.gaps)
        splitting.finish()
        for number in range(new.own.of):
            yield ShardId(number, new.own.of), Damaged(parts[number], kind, reason, gaps)
            reason, gaps = "", Counter()


def _salvage_store(
    damaged: Damaged,
    folder: Path,
    policy: Policy,
    shard: ShardId,
    progress: Callable[[int], object],
    *,
    was: Cut | None,
) -> Salvaged:
    """Make a new store in *folder* with what is left of a *damaged* one."""
    source = DamagedStore(damaged.store)
    saved, policy = _examine(source, policy, shard)
    clock = _clock_of(source)
    with closing(make_store(folder, damaged.kind)) as store:
        work = Salvage(source, store, policy, clock(), saved=saved, host_of=host_of, shard=shard, was=was)
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
