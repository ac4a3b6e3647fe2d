"""What decides: no I/O, no clock, no Scrapy. Time and randomness come in as arguments, decisions go out as values.

This is the door for programs that crawl without Scrapy (docs/library.md); :mod:`.api` has the rules of the calls. All
else in here may change with any release.

In reading order: :mod:`.api` (what a caller does with a crawl), :mod:`.crawl` (who answers it), :mod:`.policy`,
:mod:`.records` (what is remembered), :mod:`.ledger`, :mod:`.spending` and :mod:`.window` (who holds how much cash),
:mod:`.order` (which page is next), :mod:`.pages` (where each waits), :mod:`.visits` (what follows from a visit) and
:mod:`.leases`, :mod:`.frontier` and :mod:`.politeness` (which host is next, and when), :mod:`.domain`, :mod:`.domains`,
:mod:`.sponsors` and :mod:`.support` (how much of it a site may take), :mod:`.host_rules` (what is different for single hosts),
:mod:`.duplicates` and :mod:`.merging` (pages that are one),
:mod:`.revisits` (visited pages that are visited again), :mod:`.kept_links` and :mod:`.graph` (links that are kept),
:mod:`.robots` (what a robots.txt allows), :mod:`.layout`, :mod:`.saved`, :mod:`.ports`, :mod:`.tables`, :mod:`.commits`
and :mod:`.caches` (how it is kept in a store), :mod:`.shard` and :mod:`.shards` (a job in several parts), :mod:`.walk`, :mod:`.audit` and
:mod:`.rebuild` (whether it holds, and what to do if not).
"""

from __future__ import annotations

from .api import Counts, CrawlPort, Ending, Findings, Lease, Settled
from .audit import audit
from .crawl import Crawl
from .frontier.frontier import Empty, NotBefore, Unlocated
from .host_rules import HostRule, HostRules
from .policy import Policy
from .politeness import Gap, Outcome, Politeness, TransferResult
from .ports import Batch, Family, Store
from .records import Link, host_key, page_key
from .revisits import Recrawl, Version
from .shard import Received, Shard, ShardId, Sums
from .window import Window

__all__ = [
    "Batch",
    "Counts",
    "Crawl",
    "CrawlPort",
    "Empty",
    "Ending",
    "Family",
    "Findings",
    "Gap",
    "HostRule",
    "HostRules",
    "Lease",
    "Link",
    "NotBefore",
    "Outcome",
    "Policy",
    "Politeness",
    "Received",
    "Recrawl",
    "Settled",
    "Shard",
    "ShardId",
    "Store",
    "Sums",
    "TransferResult",
    "Unlocated",
    "Version",
    "Window",
    "audit",
    "host_key",
    "page_key",
]
