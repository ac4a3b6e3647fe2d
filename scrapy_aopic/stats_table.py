"""Every stat that the package sets: its name, kind, unit, who sets it, and what it means.

1. This is the one place where a stat is written down: the tables of docs/stats.md follow from it
   (``python docs/generate.py``), and its metric is the name that a monitoring system is given.
2. Code that counts writes the whole name as a literal, so that it can be searched for; a stat that is a figure of a
   snapshot names that here instead. ``tests/docs`` compares all names in the code with this table, and the test suite all
   that are set in any crawl of a test.

To add one: a :class:`Stat` in :data:`OWN`, its name where it is counted (in a session ``stats.count``), and
``python docs/generate.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind: TypeAlias = Literal["counter", "gauge"]
"""A counter begins at 0 in each run and only grows; a gauge is as it is."""


@dataclass(frozen=True)
class Stat:
    """A stat, or a family of stats.

    Attributes:
        name: In Scrapy's stats; ``<what>`` at the end stands for each of a family.
        unit: What one of it is.
        by: Who sets it, and when if that is not at once.
        meaning: For the documentation, in Markdown as docs/stats.md has it.
        figure: Path of the figure of a snapshot that it is (:func:`scrapy_aopic.view.snapshot.figure`), if it is one.
    """

    name: str
    kind: Kind
    unit: str
    by: str
    meaning: str
    figure: str = ""

    @cached_property
    def label(self) -> str:
        """The label that distinguishes the stats of a family as metrics; empty for a single stat."""
        match = re.fullmatch(r".*/<(\w+)>", self.name)
        return match[1] if match else ""

    @cached_property
    def metric(self) -> str:
        """Its name in Prometheus: words with underscores, ``_total`` behind those of counters."""
        words = self.name.removesuffix(f"/<{self.label}>").replace("/", "_")
        prefix = "" if words.startswith("aopic_") else "scrapy_"
        return f"{prefix}{words}{'_total' if self.kind == 'counter' else ''}"

    def matches(self, name: str) -> bool:
        """Whether *name* is this stat, or one of this family."""
        if not self.label:
            return name == self.name
        stem = self.name.removesuffix(f"<{self.label}>")
        return name.startswith(stem) and len(name) > len(stem)


_SCHEDULER = "scheduler"
_CLOSING = "scheduler, every 10 seconds and when the crawl closes"
_LIVE = "scheduler, every 10 seconds"
_LINKS = "`LinkMiddleware`"
_POLITENESS = "`PolitenessMiddleware`"
_ROBOTS = "`RobotsMiddleware`"

OWN = (
    Stat(
        "aopic/pages/visited", "counter", "pages", _SCHEDULER,
        "settled as visited, redirects included",
    ),
    Stat(
        "aopic/pages/failed", "counter", "pages", _SCHEDULER,
        "settled as failed: errors, dead links, forbidden by robots.txt",
    ),
    Stat(
        "aopic/pages/unreadable", "counter", "pages", _SCHEDULER,
        "queued requests that could not be restored and were set aside as failed; they also count in "
        "`aopic/pages/failed`",
    ),
    Stat(
        "aopic/outcomes/<outcome>", "counter", "pages", _SCHEDULER,
        "settled pages that are not ordinary pages, by reason: `nofollow` and `noindex` (they ask that of robots), `redirect`, `duplicate`, `content type`, "
        "`content usage`, `http 404`, `robots.txt`, the name of an exception, or `no answer`",
    ),
    Stat(
        "aopic/errors", "counter", "errors", f"scheduler, {_POLITENESS}",
        "errors inside the scheduler, those of the store excepted, and at the end of a transfer; the first of each kind "
        "is in the log. A request that caused an error of the scheduler may be lost; a host whose transfer could not be "
        "interpreted is left alone for `AOPIC_MAX_GAP`",
    ),
    Stat(
        "aopic/topic/pages", "counter", "pages", _SCHEDULER,
        "pages that were read for the [topic](focused.md); redirects and failures are not",
    ),
    Stat(
        "aopic/topic/relevant", "counter", "pages", _SCHEDULER,
        "of these, those that are relevant; duplicates are not",
    ),
    Stat(
        "aopic/topic/harvest", "gauge", "part", _SCHEDULER,
        "part of the pages read that are relevant, over all runs of the job",
    ),
    Stat("aopic/topic/harvest_lately", "gauge", "part", _SCHEDULER, "the same of the last 500 pages"),
    Stat(
        "aopic/topic/ungraded", "counter", "pages", _SCHEDULER,
        "pages for which the function of `AOPIC_TOPIC` gave no number from 0 to 1; they count as irrelevant",
    ),
    Stat(
        "aopic/topic/unvalued", "counter", "pages", _SCHEDULER,
        "pages with links for which `AOPIC_LINK_SCORER` gave no numbers from 0 to 1, or none in time; they are valued "
        "[without it](focused.md#a-judge-of-your-own)",
    ),
    Stat(
        "aopic/topic/unlearned", "counter", "pages", _SCHEDULER,
        "pages that a strategy failed to learn from",
    ),
    Stat(
        "aopic/topic/lessons", "counter", "pages", _SCHEDULER,
        "pages of [other workers](focused.md#several-workers) that a strategy has learned from",
    ),
    Stat(
        "aopic/topic/link_auc", "gauge", "part", _SCHEDULER,
        "how well the values of links foretold which pages are relevant, of some thousand pages lately: 0.5 if not at all "
        "([Learning](focused.md#learning))",
    ),
    Stat(
        "aopic/topic/version", "gauge", "versions", _SCHEDULER,
        "of what the strategy has learned; with each, waiting pages are valued anew",
    ),
    Stat("aopic/topic/revalued", "counter", "pages", _SCHEDULER, "waiting pages that got another value from that"),
    Stat(
        "aopic/topic/refits", "counter", "refits", _SCHEDULER,
        "of strategies that learn in a thread; failed ones are counted, too",
    ),
    Stat("aopic/topic/refit_seconds", "gauge", "seconds", _SCHEDULER, "what the last of them took"),
    Stat(
        "aopic/live/pages_per_second", "gauge", "pages/s", _LIVE,
        "pages settled in the last minute; `None` in the first half second of a run, as for the next one",
        figure="rate.pages",
    ),
    Stat(
        "aopic/live/bytes_per_second", "gauge", "bytes/s", _LIVE,
        "bytes of response bodies, as transferred", figure="rate.bytes",
    ),
    Stat(
        "aopic/live/ceiling_pages_per_second", "gauge", "pages/s", _LIVE,
        "what politeness allowed in the last minute: the pages that were settled, and those that hosts could have had while they "
        "were ready",
        figure="hosts.ceiling",
    ),
    Stat(
        "aopic/live/forecast_seconds", "gauge", "seconds", _LIVE,
        "until the crawl ends; `None` if nothing says when, as for a queue that grows",
        figure="forecast.seconds",
    ),
    Stat(
        "aopic/live/connections", "gauge", "requests", _LIVE,
        "pages that the downloader has in work", figure="connections.in_use",
    ),
    Stat(
        "aopic/live/callbacks", "gauge", "pages", _LIVE,
        "pages whose transfer is over, and whose callback, items or links are not",
        figure="connections.callbacks",
    ),
    Stat(
        "aopic/live/hosts/<state>", "gauge", "hosts", _LIVE,
        "hosts by state: `ready`, `waiting`, `in_flight`, `gated`, `late`, `shelved`, `parked`, `dead`",
        figure="hosts",
    ),
    Stat(
        "aopic/live/limits/<limit>", "gauge", "1", _LIVE,
        "1 for [what limits the crawl](commands.md#what-limits-a-crawl), 0 for the others: `politeness`, "
        "`connections`, `spider`, `disk`, `machine`, `network`",
    ),
    Stat(
        "aopic/live/queue_seconds", "gauge", "seconds", _LIVE,
        "average time that pages waited in the queue; `None` before the first one",
        figure="queue_seconds",
    ),
    Stat(
        "aopic/live/order_regret", "gauge", "front queues", _LIVE,
        "how far pages in flight were below the best page that waited in memory, over about a thousand of them: what "
        "politeness costs the [order](order.md)",
        figure="regret",
    ),
    Stat(
        "aopic/live/paused", "gauge", "1", _LIVE,
        "1 while an operator has [paused](commands.md#control) the crawl, else 0",
    ),
    Stat(
        "aopic/live/blocked_pages", "gauge", "pages", _LIVE,
        "pages queued on hosts that an operator has blocked, or that have had all of their pages, as far as these had their turn",
        figure="pages.blocked",
    ),
    Stat(
        "aopic/live/commit_age_seconds", "gauge", "seconds", _LIVE,
        "age of the last commit that landed", figure="store.commit_age",
    ),
    Stat(
        "aopic/live/store_bytes", "gauge", "bytes", _LIVE,
        "size of the store; `None` on a server", figure="store.size_bytes",
    ),
    Stat(
        "aopic/live/loop_late_seconds", "gauge", "seconds", _LIVE,
        "average time that an event waited for the loop in the last minute; `None` without `PolitenessMiddleware`",
        figure="machine.loop_lag",
    ),
    Stat(
        "aopic/live/cpu", "gauge", "CPU s/s", _LIVE,
        "processor time of this process in the last minute", figure="machine.cpu",
    ),
    Stat("aopic/live/memory_bytes", "gauge", "bytes", _LIVE, "memory of this process", figure="machine.memory"),
    Stat(
        "aopic/memory/limit_bytes", "gauge", "bytes", _SCHEDULER,
        "what the process should not exceed: [`AOPIC_MEMORY_MB` and 340 MB](settings.md#memory)",
    ),
    Stat(
        "aopic/memory/most_bytes", "gauge", "bytes", _SCHEDULER,
        "the most that it had, looked at once a second",
    ),
    Stat(
        "aopic/memory/over", "counter", "seconds", _SCHEDULER,
        "for which it had more than that; the first time is a warning that names the largest page",
    ),
    Stat(
        "aopic/memory/waited", "counter", "pages", _SCHEDULER,
        "that waited until [others were read](settings.md#memory)",
    ),
    Stat(
        "aopic/memory/overtaken", "counter", "pages", _SCHEDULER,
        "of these, that were read beside the others after 20 seconds in which no callback went on; the first time is a "
        "warning that names the largest page",
    ),
    Stat(
        "aopic/memory/given_back", "counter", "times", _SCHEDULER,
        "that garbage was collected and memory given back to the system (`malloc_trim` of glibc)",
    ),
    Stat(
        "aopic/shards/held", "gauge", "shards", _LIVE,
        "of a job in [shards](many-machines.md#several-workers): those that this worker holds; in the dashboard of the "
        "whole job, those that any worker holds",
        figure="shards.held",
    ),
    Stat(
        "aopic/shards/workers", "gauge", "workers", _LIVE,
        "workers of such a job that are alive", figure="shards.alive",
    ),
    Stat(
        "aopic/shards/letters", "gauge", "letters", "the dashboard of the whole job",
        "letters between the shards of such a job that are on their way",
        figure="shards.on_the_way",
    ),
    Stat("aopic/job/queued", "gauge", "pages", _CLOSING, "pages that wait, in the whole job", figure="pages.queued"),
    Stat(
        "aopic/job/visited", "gauge", "pages", _CLOSING,
        "visited in the whole job, redirects included", figure="pages.visited",
    ),
    Stat(
        "aopic/job/failed", "gauge", "pages", _CLOSING,
        "failed in the whole job, unreadable ones included", figure="pages.failed",
    ),
    Stat("aopic/job/hosts", "gauge", "hosts", _CLOSING, "hosts that the job knows", figure="hosts.known"),
    Stat("aopic/job/dead_hosts", "gauge", "hosts", _CLOSING, "hosts that no longer respond", figure="hosts.dead"),
    Stat("aopic/job/dead_pages", "gauge", "pages", _CLOSING, "pages that wait for dead hosts", figure="pages.dead"),
    Stat(
        "aopic/cash/virtual", "gauge", "units", _CLOSING,
        "cash of the virtual page, of the 2**53 - 1 units that there are",
        figure="ledger.virtual",
    ),
    Stat(
        "aopic/cash/turns", "gauge", "turns", _CLOSING,
        "virtual time |H|: all cash ever distributed, divided by the cash that pages hold",
        figure="ledger.turns",
    ),
    Stat(
        "aopic/cash/convergence", "gauge", "1/turns", _CLOSING,
        "1/|H|: a bound of the error of each page's importance; `None` if no cash was distributed",
        figure="ledger.convergence",
    ),
    Stat("aopic/cache/hits", "counter", "page records", _CLOSING, "looked up in memory"),
    Stat("aopic/cache/misses", "counter", "page records", _CLOSING, "looked up in the store, new pages included"),
    Stat("aopic/commits", "counter", "commits", _CLOSING, "commits that landed, without the last one"),
    Stat(
        "aopic/commits/slowest_seconds", "gauge", "seconds", _CLOSING,
        "longest time from the start of a commit until the crawl noticed that it had landed",
    ),
    Stat(
        "aopic/links/unweighed", "counter", "links", _LINKS,
        "links that the function of `AOPIC_LINK_WEIGHTS` gave no weight, so that they weigh 1; the first is in the log",
    ),
    Stat(
        "aopic/links/dropped", "counter", "links", _LINKS,
        "links beyond `AOPIC_LINK_FLOOD` on one page, which were dropped",
    ),
    Stat(
        "aopic/content/copies", "counter", "pages", _SCHEDULER,
        "pages with the text and the links of a page of [another domain](content.md#copies-on-other-domains), whichever "
        "of them is the copy",
    ),
    Stat(
        "aopic/content/links_dropped", "counter", "links", _LINKS,
        "requests of [duplicates](content.md) that were dropped",
    ),
    Stat(
        "aopic/content/merged", "counter", "pages", _CLOSING,
        "pages that were merged with others: duplicates, permanent redirects, pages with a canonical page",
    ),
    Stat(
        "aopic/recrawl/visits", "counter", "visits", _SCHEDULER,
        "revisits that showed something of the page, with `AOPIC_RECRAWL`; they also count in `aopic/pages/visited`, or "
        "in `aopic/pages/failed` if the page was retired",
    ),
    Stat("aopic/recrawl/not_modified", "counter", "visits", _SCHEDULER, "of these, with the response 304"),
    Stat("aopic/recrawl/unchanged", "counter", "visits", _SCHEDULER, "of these, with the same body as before"),
    Stat(
        "aopic/recrawl/changed", "counter", "visits", _SCHEDULER,
        "of these, with another body, or with a redirect instead of a page",
    ),
    Stat(
        "aopic/recrawl/retired", "counter", "visits", _SCHEDULER,
        "of these, to pages that are gone (404, 410) and will not be revisited",
    ),
    Stat(
        "aopic/recrawl/errors", "counter", "visits", _SCHEDULER,
        "revisits that showed nothing (other errors, no response); the pages will be revisited, and also count in "
        "`aopic/pages/visited`",
    ),
    Stat(
        "aopic/politeness/transfers", "counter", "transfers", _POLITENESS,
        "transfers that ended, successful or not, by whatever component requested; robots.txt included",
    ),
    Stat("aopic/politeness/errors", "counter", "transfers", _POLITENESS, "that ended with a status of 500 or more"),
    Stat(
        "aopic/politeness/down", "counter", "transfers", _POLITENESS,
        "that ended without a response, or with one that asks to come later",
    ),
    Stat(
        "aopic/politeness/under_rules", "counter", "transfers", _POLITENESS,
        "of these, from hosts with [options of their own](politeness.md#options-of-single-hosts), by `AOPIC_HOST_RULES`",
    ),
    Stat(
        "aopic/politeness/retry_after", "counter", "responses", _POLITENESS,
        "responses with a `Retry-After` that was understood",
    ),
    Stat(
        "aopic/politeness/refused", "counter", "requests", _POLITENESS,
        "requests that were not sent, because their host must be left alone for long, or because another process may have it by now",
    ),
    Stat(
        "aopic/safety/refused", "counter", "requests", _POLITENESS,
        "requests that were not sent, because their host is not on the Internet, their port is not of the web, or a redirect "
        "would have sent a form to another site ([Safety](safety.md))",
    ),
    Stat(
        "aopic/politeness/put_back", "counter", "pages", _SCHEDULER,
        "pages that wait for their host after all retries, or whose request was refused",
    ),
    Stat(
        "aopic/loop/late_seconds/mean", "gauge", "seconds", _POLITENESS,
        "average time that events waited for the crawl because the event loop was busy ([this machine as the "
        "bottleneck](politeness.md#this-machine-as-the-bottleneck))",
    ),
    Stat(
        "aopic/loop/late_seconds/max", "gauge", "seconds", _POLITENESS,
        "the longest time that an event may have waited",
    ),
    Stat(
        "aopic/downloads/slow", "counter", "requests", _POLITENESS,
        "requests that Scrapy's own download handler made although `AOPIC_FAST_DOWNLOADS` is set, because they are "
        "[not plain](speed.md#fast-downloads)",
    ),
    Stat(
        "aopic/urls/changed", "counter", "URLs", f"scheduler, {_LINKS}",
        "URLs of requests and of rows of seed lists that were not in [normal form](urls.md) and were changed",
    ),
    Stat(
        "aopic/urls/refused/<reason>", "counter", "URLs", f"scheduler, {_LINKS}",
        "requests and rows of seed lists that were not queued because of their URL, by "
        "[reason](urls.md#why-a-url-is-refused)",
    ),
    Stat(
        "aopic/urls/slow", "counter", "URLs", _SCHEDULER,
        "URLs of links and requests that are of no [common form](measurements.md#the-forms-of-urls), or whose requests depend on more "
        "than their URL, so that Scrapy's own functions find their pages, in 20 microseconds or more; one that is "
        "among the last 20,000 is not counted again",
    ),
    Stat(
        "aopic/urls/unrewritten", "counter", "URLs", f"scheduler, {_LINKS}",
        "URLs that were not rewritten because the function of `AOPIC_URL_REWRITE` failed; the first is in the log",
    ),
    Stat(
        "aopic/hostile/codings", "counter", "responses", _SCHEDULER,
        "responses that were not read, because they are [compressed too many times](content.md#responses-that-never-end)",
    ),
    Stat(
        "aopic/hostile/attributes", "counter", "pages", _SCHEDULER,
        "pages that were not read, because an element has [too many attributes](content.md#responses-that-never-end)",
    ),
    Stat(
        "aopic/robots/put_back", "counter", "pages", _ROBOTS,
        "times that a page went back to the scheduler, because its robots.txt was fetched first or is unreachable",
    ),
    Stat("aopic/robots/unreachable", "counter", "tries", _ROBOTS, "tries that found a robots.txt unreachable"),
    Stat(
        "aopic/robots/refused", "counter", "requests", _ROBOTS,
        "requests that failed because their robots.txt is unreachable",
    ),
    Stat(
        "aopic/robots/cut", "counter", "files", _ROBOTS,
        "times that a robots.txt had [more, or longer, rules with wildcards](robots.md#how-it-is-parsed) than are kept",
    ),
    Stat(
        "aopic/robots/pages/<rule>", "counter", "pages", _LINKS,
        "pages that [ask robots](robots.md#marks-on-pages) for `noindex`, `nofollow` and the like, whether that is obeyed or not",
    ),
    Stat(
        "aopic/robots/links_dropped", "counter", "links", _LINKS,
        "links that were dropped because their page asks for that, or because of their `rel` (`AOPIC_PAGE_ROBOTS`)",
    ),
    Stat(
        "aopic/robots/items_dropped", "counter", "items", "`BroadSpider`",
        "pages without an item, because their owners ask for that (`AOPIC_PAGE_ROBOTS`, `AOPIC_CONTENT_USAGE`)",
    ),
    Stat(
        "aopic/hosts/full", "counter", "hosts", _SCHEDULER,
        "hosts that have had all the pages that they may have (`pages` of [single hosts](politeness.md#options-of-single-hosts))",
    ),
    Stat(
        "aopic/scope/too_deep", "counter", "links", _LINKS,
        "links that were dropped because they are deeper than their host may go (`depth` of "
        "[single hosts](politeness.md#options-of-single-hosts))",
    ),
    Stat(
        "aopic/scope/links_dropped", "counter", "links", _LINKS,
        "links that were dropped because their page is in another [language](urls.md#languages) than those of `AOPIC_SCOPE`",
    ),
    Stat(
        "aopic/scope/items_dropped", "counter", "items", "`BroadSpider`",
        "pages without an item, because they are in another language than those of `AOPIC_SCOPE`",
    ),
    Stat(
        "aopic/scope/undeclared", "counter", "pages", _LINKS,
        "pages that declare no language, and are taken for one of those of `AOPIC_SCOPE`; only if it has `languages`",
    ),
    Stat(
        "aopic/content_usage/pages/<use>", "counter", "pages", _LINKS,
        "pages whose owners do not want [this use](robots.md#use-of-content), `train-ai`, `search` or `tdm`, whether that is "
        "obeyed or not; of those with a mark such as `noai`, `aopic/robots/pages/<rule>` tells",
    ),
    Stat(
        "aopic/content_usage/malformed", "counter", "statements", _LINKS,
        "statements on the use of pages that mean nothing, and are taken as not said; the first is in the log",
    ),
    Stat(
        "aopic/tdmrep/requests", "counter", "requests", _ROBOTS,
        "requests for a [`tdmrep.json`](robots.md#use-of-content), redirected ones included",
    ),
    Stat("aopic/tdmrep/files", "counter", "files", _ROBOTS, "of these files, those that were there"),
    Stat(
        "aopic/tdmrep/unreachable", "counter", "tries", _ROBOTS,
        "tries that found such a file unreachable; the first is in the log",
    ),
    Stat(
        "aopic/tdmrep/malformed", "counter", "files", _ROBOTS,
        "of these files, those with something that means nothing, and is taken as not said; the first is in the log",
    ),
    Stat(
        "aopic/robots/from_store", "counter", "files", _ROBOTS,
        "times that a robots.txt was not in memory, but in the store of the job",
    ),
    Stat(
        "aopic/types/guessed", "counter", "responses", "`ContentTypeMiddleware`",
        "responses whose `Content-Type` is a list, none at all, or says nothing, and that are read as "
        "[browsers](urls.md#types-as-browsers-read-them) do; those without the header only if Scrapy would do otherwise",
    ),
    Stat("aopic/sitemaps/read", "counter", "sitemaps", _ROBOTS, "sitemaps that were read, indexes included"),
    Stat(
        "aopic/sitemaps/pages", "counter", "pages", _ROBOTS,
        "pages in them that were taken as links, known ones included",
    ),
    Stat(
        "aopic/sitemaps/left_out/<reason>", "counter", "entries", _ROBOTS,
        "what of [sitemaps](robots.md#sitemaps) is not taken: of another `domain`, no `url`, `lines` of a text that are no "
        "URLs, `too long`, `entries`, `alternates` and `sitemaps` beyond the bounds, beyond the `depth` of indexes; and the "
        "`rest` of those that are too large or end in the middle, one each",
    ),
    Stat("aopic/sitemaps/bad", "counter", "sitemaps", _ROBOTS, "sitemaps that could not be read"),
    Stat(
        "aopic/seeds/rows", "counter", "rows", _SCHEDULER,
        "rows of seed lists that were taken up, from `AOPIC_SEEDS` and `scrapy aopic seed`",
    ),
    Stat("aopic/seeds/queued", "counter", "rows", _SCHEDULER, "of these, new pages, which wait now"),
    Stat(
        "aopic/seeds/known", "counter", "rows", _SCHEDULER,
        "of these, pages that the job, or a duplicate filter of your own, knew",
    ),
    Stat(
        "aopic/seeds/dropped", "counter", "seeds", _SCHEDULER,
        "seeds that were dropped on their way to the queue, and are in none of the other numbers: to hosts that are none of "
        "`allowed_domains`, by a handler of the signal `request_scheduled`, or lost to an error; the first of each kind is in "
        "the log, and `scrapy aopic why` knows them. A seed whose URL is refused counts in `aopic/urls/refused/<reason>` instead",
    ),
    Stat(
        "aopic/seeds/unreadable", "counter", "rows", _SCHEDULER,
        "[imported](commands.md#import-redis) requests that the spider cannot make, for example because it has no such callback",
    ),
    Stat("aopic/seeds/files", "counter", "lists", _SCHEDULER, "lists that were taken up to their end"),
    Stat(
        "aopic/seeds/bad_files", "counter", "lists", _SCHEDULER,
        "waiting lists that could not be read to their end and were renamed to `.bad`; the log says which",
    ),
    Stat(
        "aopic/items/without_page", "counter", "items", "`ImportancePipeline`",
        "items whose page is not known, which pass unchanged",
    ),
    Stat("aopic/warc/records", "counter", "records", "`PagesPipeline`", "records written"),
    Stat("aopic/warc/bytes", "counter", "bytes", "`PagesPipeline`", "bytes written, after compression"),
    Stat(
        "aopic/warc/errors", "counter", "errors", "`PagesPipeline`",
        "times that the file could not be opened or written",
    ),
)  # fmt: skip
"""Stats of this package."""

SCRAPY = (
    Stat(
        "scheduler/enqueued", "counter", "requests", _SCHEDULER,
        "requests accepted: new pages, retries, and known pages with `dont_filter`",
    ),
    Stat(
        "scheduler/enqueued/disk", "counter", "requests", _SCHEDULER,
        "of these, written as bytes, with a `JOBDIR`; duplicates of a link that is not settled yet are counted, too",
    ),
    Stat(
        "scheduler/enqueued/memory", "counter", "requests", _SCHEDULER,
        "the same without `JOBDIR`, and requests that cannot be written",
    ),
    Stat("scheduler/dequeued", "counter", "requests", _SCHEDULER, "requests handed to the engine"),
    Stat("scheduler/dequeued/disk", "counter", "requests", _SCHEDULER, "of these, with a `JOBDIR`"),
    Stat("scheduler/dequeued/memory", "counter", "requests", _SCHEDULER, "of these, without one"),
    Stat(
        "scheduler/unserializable", "counter", "requests", _SCHEDULER,
        "requests that cannot be written (a lambda as callback, an object in `meta`) and are kept in memory; they are "
        "lost when the process ends",
    ),
    Stat(
        "robotstxt/request_count", "counter", "requests", _ROBOTS,
        "requests for robots.txt, redirected ones and failed tries included",
    ),
    Stat("robotstxt/response_count", "counter", "responses", _ROBOTS, "responses to these"),
    Stat("robotstxt/response_status_count/<status>", "counter", "responses", _ROBOTS, "of these, by status"),
    Stat(
        "robotstxt/exception_count/<class>", "counter", "requests", _ROBOTS,
        "requests for robots.txt without a response, by exception",
    ),
    Stat("robotstxt/forbidden", "counter", "requests", _ROBOTS, "requests that robots.txt forbids"),
    Stat(
        "dupefilter/filtered", "counter", "requests", "scheduler, `DupeFilter`",
        "requests whose page was known; as links they still receive cash",
    ),
)  # fmt: skip
"""Scrapy's stats that this package sets in the place of Scrapy's components."""

STATS = {stat.name: stat for stat in (*OWN, *SCRAPY)}
"""All stats by name."""


_MOST = 64
"""Values of a label: more than any family has reasons. What is beyond them is counted together, as ``other``."""

_LONGEST = 64
"""Characters of the value of a label."""


def find(name: str) -> Stat | None:
    """The stat called *name*, or its family; ``None`` if it is not a stat of this package."""
    return STATS.get(name) or next(
        (stat for stat in STATS.values() if stat.label and stat.matches(name)), None
    )


class Metric(NamedTuple):
    """A stat, or a family of stats, with its values in a crawl.

    Attributes:
        values: By the value of the label; of a single stat the one under the empty text.
    """

    stat: Stat
    values: dict[str, float]


def metrics_of(stats: Mapping[str, Any]) -> dict[str, Metric]:
    """The metrics of *stats* (of a crawl, by name), by the names that Prometheus has for them.

    Names that are not in the table are left out: those of other packages may be without bound. Labels are bounded, too: at
    most :data:`_MOST` values for a family, none of them a URL.
    """
    found: dict[str, Metric] = {}
    for name in sorted(stats):
        value = stats[name]
        stat = find(name)
        if stat is None or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        _, values = found.setdefault(stat.metric, Metric(stat, {}))
        label = _label(name.removeprefix(stat.name.partition("<")[0])) if stat.label else ""
        if label not in values and len(values) >= _MOST:
            label = "other"
        values[label] = values.get(label, 0) + value
    return found


def _label(text: str) -> str:
    return text if len(text) <= _LONGEST and "://" not in text else "other"
