"""A shard whose disk is lost begins anew, by what the server knows of it (:mod:`scrapy_aopic.storage.homes`)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_aopic.core.crawl_totals import read_totals
from scrapy_aopic.core.shards.rebuilt_mail import start_lost_shard
from scrapy_aopic.storage.homes import read_lost_shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scrapy_aopic.core.policy import Policy
    from scrapy_aopic.core.shards.cut import ShardId
    from scrapy_aopic.storage import Address
    from scrapy_aopic.storage.disk_shard import DiskShard

logger = logging.getLogger(__name__)


def start_lost(
    store: DiskShard, shard: ShardId, board: Address, policy: Policy, now: float, *, alive: Iterable[str]
) -> Sequence[int]:
    """Begin *shard* in *store*, with what was salvaged there, unless others may know more of it.

    Args:
        board: Server of the job.
        now: Seconds since the epoch.
        alive: Tokens of the workers that live.

    Returns:
        The shards that may, and that are to be opened first; nothing was written then.

    Raises:
        StorageError: If the server cannot be reached, or something is damaged.
    """
    known, state, awaited = read_lost_shard(board, shard, alive)
    if awaited:
        return awaited
    saved = read_totals(store)
    store.write(start_lost_shard(shard, known, policy, now, store), sync=True)
    counts = state.counts if state is not None else (0, 0, 0, 0)
    logger.warning(
        "Shard %(number)d of the crawl in %(folder)s begins anew, because its disk is lost: of its %(pages)d pages, %(visited)d "
        "of them visited, %(salvaged)d were salvaged; all others are found again as links and seeds lead to them, and their cash "
        "is with the virtual page",
        {
            "number": shard.number,
            "folder": board,
            "pages": sum(counts[:3]),
            "visited": counts[1],
            "salvaged": saved.pages if saved is not None else 0,
        },
    )
    return ()
