"""Where everything is written: the version of the layout, families, keys and the letters of rows, in this file alone.

A store keeps bytes under bytes, by family. Keys of most families begin with the host (8 bytes), so that everything of
one host lies together; :mod:`.records` makes them, and the records of pages, hosts and links.

``META`` holds two kinds of rows. Those with a name in small letters are single values: the totals
(:class:`~scrapy_aopic.core.crawl_totals.CrawlTotals`) and what the job adds to each commit. All others begin with a capital letter
that says what they are the index of:

======  ==========================================================================  ======================
letter  key                                                                         written by
======  ==========================================================================  ======================
``A``   host: active, in memory                                                     ``frontier.host_places``
``F``   ``\\0`` rank host: shelved and in time                                       ``frontier.host_places``
..      ``\\1`` domain rank host: shelved, its domain is over its budget             ``frontier.host_places``
..      ``\\2`` domain rank host: shelved, a link to the domain is over its budget   ``frontier.host_places``
``P``   milliseconds host: parked until then                                        ``frontier.host_places``
``D``   milliseconds host: dead until then                                          ``frontier.host_places``
``C``   host: one without any page in the crawl, whose record is the value          ``frontier.frontier``
``G``   domain or address: a gate that several hosts share                          ``frontier.gates``
``W``   milliseconds page: when its place among visited pages is looked at          ``revisits.wake_times``
``O``   page: a visited page that is due; its queue and last visit are the value    ``revisits.due``
``E``   page: one that was refused as the settings were; these are the value          ``pages``
``H``   number: a page that was set aside for people to label                       ``focus.sample``
``L``   host directory: how many of its pages were fetched, up to a few             ``directories``
``B``   host branch: how many pages are counted of it, and how many support it      ``branches``
``T``   number: a round of revisits                                               ``revisits.rounds``
``N``   nothing: which shard of its job the store holds, if the job has several     ``shards.mail``
``M``   shard number: a letter to a shard that it has not acknowledged              ``shards.mail``
``S``   shard: counts of the letters to it                                          ``shards.mail``
``R``   shard: counts of the letters from it                                        ``shards.mail``
======  ==========================================================================  ======================

Rules: a letter belongs to one line of this table; a host with queued pages has exactly one row under ``A``, ``F``,
``P`` or ``D``; whoever changes a letter, a key or a record so that the jobs in ``tests/golden`` would be misread raises
:data:`FORMAT`, and adds jobs to them.
"""

from __future__ import annotations

from enum import IntEnum

FORMAT = 1
"""Version of everything written to a store; a job of another one is refused."""


class Family(IntEnum):
    """The key spaces of a store; each is ordered by the unsigned bytes of its keys."""

    PAGES = 0  # host | page -> state, cash, history: small, rewritten at every credit; also the seen-set
    REQUESTS = 1  # host | page -> the request as bytes: larger, written once
    QUEUE = 2  # host | front queue | place -> page: what waits to be fetched
    HOSTS = 3  # host -> name, politeness clock, counts
    META = 4  # names and letters, see above
    DOMAINS = 5  # registered domain -> visited pages, supporters
    LINKS = 6  # host | page -> the pages it links to, if links are kept
    ROBOTS = 7  # host | scheme, name and port -> its robots.txt, and when it was requested
    CONTENT = 8  # letter | digest, band, page or pages -> page, text or claim


# Single values in META.

TOTALS_KEY = b"totals"
"""The totals of the crawl, written with each commit."""

SEEDS_KEY = b"seeds"
"""Bytes taken up of each list of seeds."""

CLOCK_KEY = b"clock"
"""What the job's clock needs to go on in the next process."""

COUNTERS_KEY = b"counters"
"""What the job has done, over all of its runs (:mod:`.counters`)."""

COMMIT_KEY = b"commit"
"""Number of the last commit, of a shard on the disk of a worker."""

KEYS_KEY = b"keys"
"""What the page keys of the job are made of: :data:`URL_KEYS`, or something that nobody knows but who made them."""

URL_KEYS = b"url"
"""Value under that key while each page key was made of its URL, as :mod:`scrapy_aopic.web.page_keys` does."""

HARVEST_KEY = b"harvest"
"""How many of the pages of a crawl for a topic are relevant (:mod:`.focus.harvest`)."""

STRATEGY_KEY = b"strategy"
"""What the strategy of a crawl for a topic has learned (:mod:`.focus.strategy`)."""

ASLEEP_KEY = b"asleep"
"""That some visited pages are not looked at by themselves, as runs without revisits, or by rounds, have left them."""

SAMPLE_KEY = b"sample"
"""Pages of the sample for people to label, and out of how many it was drawn (:mod:`.focus.sample`)."""

# Indexes in META.

ACTIVE, SHELVED, PARKED, DEAD = b"A", b"F", b"P", b"D"
"""Hosts with queued pages, by where they wait."""

HOST_ROWS = (ACTIVE, SHELVED, PARKED, DEAD)
"""Letters of the rows of which a host with queued pages has exactly one."""

IN_TIME, LATE, BEHIND = SHELVED + b"\0", SHELVED + b"\1", SHELVED + b"\2"
"""Beginnings of the rows of shelved hosts: in time; late by their domain's own budget; by that of a link to it."""

OUTSIDERS, SHARED_GATES = b"C", b"G"
"""Hosts without any page, and the instants at which gates that several hosts share open."""

WAKES, DUE = b"W", b"O"
"""Visited pages by the time at which their place is looked at, and by the place of those that are due."""

REFUSED = b"E"
"""Pages that were refused, with a digest of the settings by which they were."""

SAMPLED = b"H"
"""Pages that were set aside for people to label."""

DIRECTORIES = b"L"
"""Directories of hosts, with the number of their pages that were fetched (:mod:`.directories`)."""

BRANCHES = b"B"
"""Branches of hosts, with what was fetched of them (:mod:`.branches`)."""

ROUNDS = b"T"
"""Rounds of revisits by number, with what their visits have found (:mod:`.revisits.rounds`)."""

SHARD, OUTBOX, SENT, RECEIVED = b"N", b"M", b"S", b"R"
"""Which shard of its job a store holds, letters to other shards, and counts of those sent and received."""

INDEXES = (
    *HOST_ROWS,
    OUTSIDERS,
    SHARED_GATES,
    WAKES,
    DUE,
    REFUSED,
    SAMPLED,
    DIRECTORIES,
    BRANCHES,
    ROUNDS,
    SHARD,
    OUTBOX,
    SENT,
    RECEIVED,
)
"""All letters of the table above."""

# Indexes in CONTENT.

TEXTS, FIRST_OF_TEXT, BANDS, SITE_TEXTS, VARIETIES, CLAIMS = b"P", b"T", b"B", b"S", b"N", b"C"
"""Texts by page, first pages by text, pages by band of a sketch, first pages by text and domain, counts of pages with
the same words and other links, and claims of pages to be another one."""

LEADS = b"L"
"""What led to each waiting page of a crawl for a topic that learns from links (:mod:`.focus.leads`)."""

WISHES = b"W"
"""What the owner of each visited page asks: marks for robots, and how it may be used, as two texts; no row if nothing."""

GISTS = b"G"
"""What each visited page that may be relevant to the topic is about (:mod:`.focus.calibration`)."""

SHARES = b"K"
"""How the cash of a page was shared when its links were kept, if not equally among these: how many links it had, their whole
weight, and the weight of each; to pages of other shards last."""

HINTS = b"H"
"""By host: how often pages for which a hint had come had changed, and how often others had (:mod:`.revisits.hints`)."""

OWN_CLAIMS, FOREIGN_CLAIMS = b"A", b"F"
"""Claims of pages to be one of another shard, by page; claims of pages of other shards, by the page they name."""
