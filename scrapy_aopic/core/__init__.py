"""Decides: no I/O, no clock, no Scrapy. Time and randomness come in as arguments, decisions go out as values.

This is the door for programs that crawl without Scrapy (docs/library.md); :mod:`.api` has the rules of the calls.
Everything that is not exported here may change with any release.

What a caller does:

* :mod:`.api`: what a caller does with a crawl, in which order, and what it gets
* :mod:`.crawl`: one crawl on one store, which answers those calls through the owners below
* :mod:`.policy`: how a crawl spends cash and treats hosts, as one frozen value
* :mod:`.host_rules`: options of single hosts
* :mod:`.operator_control`: an operator's orders: pause, block, slow down

Cash:

* :mod:`.ledger`: who holds how much cash, and where a visit sends it
* :mod:`.spending`: on what the virtual page spends
* :mod:`.window`: how much of a page's past counts as its history

Pages:

* :mod:`.records`: the records of a page and of a host, and their bytes
* :mod:`.fetched`: what a page's last response was, as a number
* :mod:`.pages`: all pages, and where each waits
* :mod:`.order`: which page is next, a class for each order
* :mod:`.directories`: how many pages of each directory were fetched
* :mod:`.branches`: how many pages were fetched that single links lead to from one page
* :mod:`.settling`: the end of a visit
* :mod:`.leases`: which leases are out
* :mod:`.duplicates`: pages with the same text, or nearly
* :mod:`.merging`: pages that are one page
* :mod:`.mirrors`: origins of a domain that have the same pages
* :mod:`.revisits`: when a visited page is visited again
* :mod:`.kept_links`: the links of visited pages, if they are kept
* :mod:`.graph`: the known part of the web in memory, for orders on the whole graph
* :mod:`.focus`: how relevant pages and links are to a topic

Hosts and domains:

* :mod:`.frontier`: which host is next
* :mod:`.politeness`: when a host may be requested again
* :mod:`.robots`: what a robots.txt allows (marks on pages are read by :mod:`scrapy_aopic.web.robots_marks`, and obeyed by
  :mod:`scrapy_aopic.session.page_robots`)
* :mod:`.domain`: the record of a registered domain
* :mod:`.domains`: all registered domains
* :mod:`.sponsors`: which domains answer for a domain's fetches
* :mod:`.domain_links`: which domains link to which

Storage:

* :mod:`.ports`: what the core needs of a store
* :mod:`.layout`: every family, key and row letter, and the version of the format
* :mod:`.tables`: rows in memory: read through, written behind, all changes as one batch; and which row leaves memory next
* :mod:`.crawl_totals`: the totals that each commit writes
* :mod:`.counters`: what a job has done, over all runs
* :mod:`.printable`: text of strangers, made safe to show

Shards:

* :mod:`.shard`: a crawl of a part of a job, which exchanges mail with the other parts
* :mod:`.shards`: where each host is, and the mail

Checks:

* :mod:`.walk`: one walk over everything in a store
* :mod:`.audit`: whether every invariant holds
* :mod:`.record_checks`: whether a record can be understood, and is of what it lies under
* :mod:`.damaged`: reads what can be read of a damaged store
* :mod:`.salvage`: begins a new job with what is left of a damaged one
* :mod:`.splitting`: divides the rows of a job in one piece among shards
"""

from __future__ import annotations

from .api import Counts, CrawlPort, Ending, Findings, Lease, Settled
from .audit import audit
from .crawl import Crawl
from .fetched import Fetched
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
    "Fetched",
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
