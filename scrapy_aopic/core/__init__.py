"""What decides: no I/O, no clock, no Scrapy. Time and randomness come in as arguments, decisions go out as values.

This is the door for programs that crawl without Scrapy (docs/library.md); :mod:`.api` has the rules of the calls. All
else in here may change with any release.

In reading order: :mod:`.api` (what a caller does with a crawl), :mod:`.records` (what is remembered), :mod:`.ledger` and
:mod:`.window` (who holds how much cash), :mod:`.order` and :mod:`.domains` (what is important enough, and how much of it
a site may take), :mod:`.frontier` and :mod:`.politeness` (what is asked next, and when), :mod:`.duplicates`
(pages that are the same), :mod:`.revisits` (pages that come back), :mod:`.crawl` (all of it as one state machine),
:mod:`.ports`, :mod:`.tables` and :mod:`.caches` (how it is kept in a store), :mod:`.audit` and :mod:`.repair` (whether it
holds, and what to do if not), :mod:`.robots` (what a robots.txt allows).
"""

from __future__ import annotations

from .api import Counts, CrawlPort, Ending, Lease, Settled
from .audit import audit
from .crawl import Crawl, Policy
from .frontier.frontier import Empty, NotBefore, Unlocated
from .politeness import Gap, Outcome, Politeness
from .ports import Batch, Family, Store
from .records import Link, host_key, page_key
from .revisits import Recrawl
from .window import Window

__all__ = [
    "Batch",
    "Counts",
    "Crawl",
    "CrawlPort",
    "Empty",
    "Ending",
    "Family",
    "Gap",
    "Lease",
    "Link",
    "NotBefore",
    "Outcome",
    "Policy",
    "Politeness",
    "Recrawl",
    "Settled",
    "Store",
    "Unlocated",
    "Window",
    "audit",
    "host_key",
    "page_key",
]
