"""Every stat that the package sets: its name, kind, unit, who sets it, and what it means.

1. This is the one place where a stat is written down: the tables of docs/stats.md follow from it
   (``python docs/generate.py``), and its metric is the name that a monitoring system is given.
2. Code that counts writes the whole name as a literal, so that it can be searched for; a stat that is a figure of a
   snapshot names that here instead. ``tests/docs`` compares all names in the code with this table, and the test suite all
   that are set in any crawl of a test.

To add one: a :func:`counter` or a :func:`gauge` in :data:`OWN`, its name where it is counted (in a session ``stats.count``), and
``python docs/generate.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge"]


@dataclass(frozen=True)
class Stat:
    """A stat, or a family of stats.

    Attributes:
        name: In Scrapy's stats; ``<what>`` at the end stands for each of a family.
        unit: What one of it is.
        meaning: For the documentation, in Markdown as docs/stats.md has it.
        figure: Path of the figure of a snapshot that it is (:func:`scrapy_aopic.view.snapshot.figure`), if it is one.
    """

    name: str
    kind: Kind
    unit: str
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


def counter(name: str, unit: str, meaning: str) -> Stat:
    """A stat that begins at 0 in each run, and only grows."""
    return Stat(name, "counter", unit, meaning)


def gauge(name: str, unit: str, meaning: str, figure: str = "") -> Stat:
    """A stat that is as it is, maybe that of a *figure* of a snapshot."""
    return Stat(name, "gauge", unit, meaning, figure)


OWN = (
    counter("aopic/pages/visited", "pages", "settled as visited, redirects included"),
    counter("aopic/pages/failed", "pages", "settled as failed: errors, dead links, forbidden by robots.txt"),
    counter("aopic/pages/later_tries", "pages",
        "queued again after an error of their server (5xx) or proxy, for a later try (`AOPIC_LATER_TRIES`)"),
    counter("aopic/pages/unreadable", "pages",
        "queued requests that could not be restored and were set aside as failed; they also count in "
        "`aopic/pages/failed`"),
    counter("aopic/outcomes/<outcome>", "pages",
        "settled pages that are not ordinary pages, by reason: `nofollow` and `noindex` (they ask that of robots), `redirect`, `duplicate`, `content type`, "
        "`content usage`, `http 404`, `robots.txt`, the name of an exception, or `no answer`"),
    counter("aopic/errors", "errors",
        "errors inside the scheduler, those of the store excepted, and at the end of a transfer; the first of each kind "
        "is in the log. A request that caused an error of the scheduler may be lost; a host whose transfer could not be "
        "interpreted is left alone for `AOPIC_MAX_GAP`"),
    counter("aopic/topic/pages", "pages", "pages that were read for the [topic](focused.md); redirects and failures are not"),
    counter("aopic/topic/relevant", "pages", "of these, those that are relevant; duplicates are not"),
    gauge("aopic/topic/harvest", "part", "part of the pages read that are relevant, over all runs of the job"),
    gauge("aopic/topic/harvest_lately", "part", "the same of the last 500 pages"),
    counter("aopic/topic/ungraded", "pages",
        "pages for which the function of `AOPIC_TOPIC` gave no number from 0 to 1; they count as irrelevant"),
    counter("aopic/topic/guessed", "pages",
        "pages whose grade was late: they got the mean of their host's ([judges of batches](library.md#judges-of-batches))"),
    counter("aopic/topic/unvalued", "pages",
        "pages with links for which `AOPIC_LINK_SCORER` gave no numbers from 0 to 1; they are valued "
        "[without it](focused.md#a-judge-of-your-own)"),
    counter("aopic/topic/unlearned", "pages", "pages that a strategy failed to learn from"),
    counter("aopic/topic/lessons", "pages",
        "pages of [other workers](internals.md#learning-with-several-workers) that a strategy has learned from"),
    gauge("aopic/topic/version", "versions", "of what the strategy has learned; with each, waiting pages are valued anew"),
    counter("aopic/topic/revalued", "pages", "waiting pages that got another value from that"),
    gauge("aopic/live/pages_per_second", "pages/s",
        "visits settled in the last ten seconds; `None` in the first half second of a run, as for the next one", "rate.pages"),
    gauge("aopic/live/bytes_per_second", "bytes/s", "bytes of response bodies, as transferred", "rate.bytes"),
    gauge("aopic/live/ceiling_pages_per_second", "pages/s",
        "what politeness allowed in the last ten seconds: the visits that were settled, and those that hosts could have had while they "
        "were ready", "hosts.ceiling"),
    gauge("aopic/live/forecast_seconds", "seconds",
        "until the crawl ends; `None` if nothing says when, as for a queue that grows", "forecast.seconds"),
    gauge("aopic/live/connections", "requests", "pages that the downloader has in work", "connections.in_use"),
    gauge("aopic/live/callbacks", "pages",
        "pages whose transfer is over, and whose callback, items or links are not", "connections.callbacks"),
    gauge("aopic/live/hosts/<state>", "hosts",
        "hosts by state: `ready`, `waiting`, `in_flight`, `gated`, `late`, `shelved`, `parked`, `dead`", "hosts"),
    gauge("aopic/live/limits/<limit>", "1",
        "1 for [what limits the crawl](commands.md#what-limits-a-crawl), 0 for the others: `politeness`, "
        "`connections`, `spider`, `disk`, `machine`, `network`"),
    gauge("aopic/live/queue_seconds", "seconds",
        "average time that pages waited in the queue; `None` before the first one", "queue_seconds"),
    gauge("aopic/live/order_regret", "front queues",
        "how far pages in flight were below the best page that waited in memory, over about a thousand of them: what "
        "politeness costs the [order](order.md)", "regret"),
    gauge("aopic/live/paused", "1", "1 while an operator has [paused](commands.md#control) the crawl, else 0"),
    gauge("aopic/live/blocked_pages", "pages",
        "pages queued on hosts that an operator has blocked, or that have had all of their pages, as far as these had their turn", "pages.blocked"),
    gauge("aopic/live/commit_age_seconds", "seconds", "age of the last commit that landed", "store.commit_age"),
    gauge("aopic/live/store_bytes", "bytes", "size of the store; `None` on a server", "store.size_bytes"),
    gauge("aopic/live/loop_late_seconds", "seconds",
        "average time that an event waited for the loop in the last ten seconds; `None` without `PolitenessMiddleware`", "machine.loop_lag"),
    gauge("aopic/live/standstill_seconds", "seconds",
        "most seconds without a request in the last ten though a host was due: what [pages that cost](politeness.md#what-answers-cost) "
        "may take from the others", "machine.standstill"),
    gauge("aopic/live/standstill_seconds/max", "seconds", "the most in this run", "machine.standstill_max"),
    gauge("aopic/live/cpu", "CPU s/s", "processor time of this process in the last ten seconds", "machine.cpu"),
    gauge("aopic/live/memory_bytes", "bytes", "memory of this process", "machine.memory"),
    gauge("aopic/memory/limit_bytes", "bytes",
        "what the process should not exceed: [`AOPIC_MEMORY_MB` and 340 MB](settings.md#memory)"),
    gauge("aopic/memory/most_bytes", "bytes", "the most that it had, looked at once a second"),
    counter("aopic/memory/over", "seconds",
        "for which it had more than that; the first time is a warning that names the largest page"),
    counter("aopic/memory/waited", "pages", "that waited until [others were read](settings.md#memory)"),
    counter("aopic/memory/overtaken", "pages",
        "of these, that were read beside the others after 20 seconds in which no callback went on; the first time is a "
        "warning that names the largest page"),
    counter("aopic/memory/given_back", "times",
        "that garbage was collected and memory given back to the system (`malloc_trim` of glibc)"),
    gauge("aopic/shards/held", "shards",
        "of a job in [shards](many-machines.md#several-workers): those that this worker holds; in the dashboard of the "
        "whole job, those that any worker holds", "shards.held"),
    gauge("aopic/shards/workers", "workers", "workers of such a job that are alive", "shards.alive"),
    gauge("aopic/shards/letters", "letters",
        "letters between the shards of such a job that are on their way", "shards.on_the_way"),
    gauge("aopic/job/queued", "pages", "pages that wait, in the whole job", "pages.queued"),
    gauge("aopic/job/visited", "pages", "visited in the whole job, redirects included", "pages.visited"),
    gauge("aopic/job/failed", "pages", "failed in the whole job, unreadable ones included", "pages.failed"),
    gauge("aopic/job/hosts", "hosts", "hosts that the job knows", "hosts.known"),
    gauge("aopic/job/dead_hosts", "hosts", "hosts that no longer respond", "hosts.dead"),
    gauge("aopic/job/dead_pages", "pages", "pages that wait for dead hosts", "pages.dead"),
    gauge("aopic/cash/virtual", "units",
        "cash of the virtual page, of the 2**53 - 1 units that there are", "ledger.virtual"),
    gauge("aopic/cash/turns", "turns",
        "virtual time |H|: all cash ever distributed, divided by the cash that pages hold", "ledger.turns"),
    gauge("aopic/cash/convergence", "1/turns",
        "1/|H|: a bound of the error of each page's importance; `None` if no cash was distributed", "ledger.convergence"),
    counter("aopic/cache/hits", "page records", "looked up in memory"),
    counter("aopic/cache/misses", "page records", "looked up in the store, new pages included"),
    counter("aopic/commits", "commits", "commits that landed, without the last one"),
    gauge("aopic/commits/slowest_seconds", "seconds",
        "longest time from the start of a commit until the crawl noticed that it had landed"),
    counter("aopic/links/unweighed", "links",
        "links that the function of `AOPIC_LINK_WEIGHTS` gave no weight, so that they weigh 1; the first is in the log"),
    counter("aopic/links/cut_pages", "pages",
        "pages that took [more of the processor](politeness.md#what-answers-cost) than `AOPIC_PAGE_SECONDS`, so that the rest of their "
        "links is left out; the first is in the log"),
    counter("aopic/links/dropped", "links",
        "links that were dropped: beyond those of `AOPIC_URL_LIMITS` on one page, or of weight 0 (`AOPIC_LINK_WEIGHTS`)"),
    counter("aopic/content/copies", "pages",
        "pages with the text and the links of a page of [another domain](content.md#copies-on-other-domains), whichever "
        "of them is the copy"),
    counter("aopic/content/links_dropped", "links", "requests of [duplicates](content.md) that were dropped"),
    counter("aopic/content/merged", "pages",
        "pages that were merged with others: duplicates, permanent redirects, pages with a canonical page"),
    gauge("aopic/recrawl/round", "rounds", "number of the last [round](settings.md#rounds)", "round.number"),
    counter("aopic/recrawl/new", "visits", "first visits that showed a page, with `AOPIC_RECRAWL`"),
    counter("aopic/recrawl/visits", "visits",
        "revisits that showed something of the page, with `AOPIC_RECRAWL`; they also count in `aopic/pages/visited`, or "
        "in `aopic/pages/failed` if the page is gone"),
    counter("aopic/recrawl/unchanged", "visits", "of these, with the same body as before, or with the response 304"),
    counter("aopic/recrawl/not_modified", "visits", "of these, with the response 304"),
    counter("aopic/recrawl/changed", "visits", "of all that showed something, with another body"),
    counter("aopic/recrawl/moved", "visits", "with a redirect, where the visit before had none"),
    counter("aopic/recrawl/gone", "visits", "to pages that are gone (404, 410), and were not before"),
    counter("aopic/recrawl/back", "visits", "to pages that were gone and are there"),
    counter("aopic/recrawl/failed", "visits",
        "revisits that showed nothing (other errors, no response); the pages will be revisited, and also count in "
        "`aopic/pages/visited`"),
    counter("aopic/recrawl/late", "visits",
        "revisits that came later than the longest interval of `AOPIC_RECRAWL`, or of the host's rule, by more than a tenth of it"),
    gauge("aopic/recrawl/late_seconds/max", "seconds", "by how much the latest of them came too late"),
    counter("aopic/politeness/transfers", "transfers",
        "transfers that ended, successful or not, by whatever component requested; robots.txt included"),
    counter("aopic/politeness/errors", "transfers", "that ended with a status of 500 or more"),
    counter("aopic/politeness/down", "transfers",
        "that ended without a response, or with one that asks to come later"),
    counter("aopic/politeness/under_rules", "transfers",
        "of these, from hosts with [options of their own](politeness.md#options-of-single-hosts), by `AOPIC_HOST_RULES`"),
    counter("aopic/politeness/retry_after", "responses", "responses with a `Retry-After` that was understood"),
    counter("aopic/cookies/chains", "pages",
        "redirects that began to set cookies, which are sent until the page is there ([cookies of "
        "redirects](content.md#cookies-of-redirects))"),
    counter("aopic/cookies/in_vain", "pages",
        "pages that were not fetched, because they redirect again and again, whatever cookies are sent"),
    counter("aopic/politeness/proxy_failures", "requests",
        "requests at which proxies failed once more, after they had failed 30 times for their page while others brought answers; all with `AOPIC_BACKOFF` = 0"),
    counter("aopic/politeness/repeated", "requests",
        "requests that were not sent, because their host has asked their proxy to come later; middlewares got its last answer "
        "once more ([several proxies](politeness.md#several-proxies))"),
    counter("aopic/politeness/refused", "requests",
        "requests that were not sent, because their host must be left alone for long, or because another process may have it by now"),
    counter("aopic/safety/refused", "requests",
        "requests that were not sent: their host is not on the Internet, their port is not of the web, or a redirect "
        "would have sent a form to another site ([Safety](safety.md))"),
    counter("aopic/politeness/put_back", "pages",
        "pages that wait for their host after all retries, or whose request was refused"),
    gauge("aopic/loop/late_seconds/mean", "seconds",
        "average time that events waited for the crawl because the event loop was busy ([this machine as the "
        "bottleneck](politeness.md#this-machine-as-the-bottleneck))"),
    gauge("aopic/loop/late_seconds/max", "seconds", "the longest time that an event may have waited"),
    counter("aopic/downloads/slow", "requests",
        "requests that Scrapy's own download handler made because they are [not plain](speed.md#fast-downloads)"),
    counter("aopic/urls/changed", "URLs",
        "URLs of requests and of rows of seed lists that were not in [normal form](urls.md) and were changed"),
    counter("aopic/urls/refused/<reason>", "URLs",
        "requests and rows of seed lists that were not queued because of their URL, by "
        "[reason](urls.md#why-a-url-is-refused)"),
    counter("aopic/urls/slow", "URLs",
        "URLs of links and requests that are of no [common form](decisions.md#measured-once), or whose requests depend on more "
        "than their URL. Scrapy's own functions find their pages, in 20 microseconds or more. One that is "
        "among the last 20,000 is not counted again"),
    counter("aopic/urls/unrewritten", "URLs",
        "URLs that were not rewritten because the function of `AOPIC_URL_REWRITE` failed; the first is in the log"),
    counter("aopic/hostile/framing", "responses",
        "responses that were given up, because they come in [chunks that are too small](content.md#responses-that-never-end)"),
    counter("aopic/hostile/codings", "responses",
        "responses that were not read, because they are [compressed too many times](content.md#responses-that-never-end)"),
    counter("aopic/hostile/attributes", "pages",
        "pages that were not read, because an element has [too many attributes](content.md#responses-that-never-end)"),
    counter("aopic/robots/put_back", "pages",
        "times that a page went back to the scheduler, because its robots.txt was fetched first or is unreachable"),
    counter("aopic/robots/unreachable", "tries", "tries that found a robots.txt unreachable"),
    counter("aopic/robots/refused", "requests", "requests that failed because their robots.txt is unreachable"),
    counter("aopic/robots/cut", "files",
        "times that a robots.txt had [more, or longer, rules with wildcards](evidence.md#how-robotstxt-is-parsed) than are kept"),
    counter("aopic/robots/pages/<rule>", "pages",
        "pages that [ask robots](robots.md#marks-on-pages) for `noindex`, `nofollow` and the like, whether that is obeyed or not"),
    counter("aopic/robots/links_dropped", "links",
        "links that were dropped because their page asks for that (`AOPIC_PAGE_ROBOTS`)"),
    counter("aopic/robots/items_dropped", "items",
        "pages without an item, because their owners ask for that (`AOPIC_PAGE_ROBOTS`, `AOPIC_CONTENT_USAGE`)"),
    counter("aopic/hosts/full", "hosts",
        "hosts that have had all the pages that they may have (`pages` of [single hosts](politeness.md#options-of-single-hosts))"),
    counter("aopic/scope/too_deep", "links",
        "links that were dropped because they are deeper than their host may go (`depth` of "
        "[single hosts](politeness.md#options-of-single-hosts))"),
    counter("aopic/scope/links_dropped", "links",
        "links that were dropped because their page is in another [language](urls.md#languages) than those of `AOPIC_SCOPE`"),
    counter("aopic/scope/items_dropped", "items",
        "pages without an item, because they are in another language than those of `AOPIC_SCOPE`"),
    counter("aopic/scope/undeclared", "pages",
        "pages that declare no language, and are taken for one of those of `AOPIC_SCOPE`; only if it has `languages`"),
    counter("aopic/content_usage/pages/<use>", "pages",
        "pages whose owners do not want [this use](robots.md#use-of-content), `train-ai`, `search` or `tdm`, whether that is "
        "obeyed or not; of those with a mark such as `noai`, `aopic/robots/pages/<rule>` tells"),
    counter("aopic/content_usage/malformed", "statements",
        "statements on the use of pages that mean nothing, and are taken as not said; the first is in the log"),
    counter("aopic/tdmrep/requests", "requests",
        "requests for a [`tdmrep.json`](robots.md#use-of-content), redirected ones included"),
    counter("aopic/tdmrep/files", "files", "of these files, those that were there"),
    counter("aopic/tdmrep/unreachable", "tries", "tries that found such a file unreachable; the first is in the log"),
    counter("aopic/tdmrep/malformed", "files",
        "of these files, those with something that means nothing, and is taken as not said; the first is in the log"),
    counter("aopic/robots/from_store", "files",
        "times that a robots.txt was not in memory, but in the store of the job"),
    counter("aopic/types/guessed", "responses",
        "responses whose `Content-Type` is a list, none at all, or says nothing, and that are read as "
        "[browsers](internals.md#types-as-browsers-read-them) do; those without the header only if Scrapy would do otherwise"),
    counter("aopic/sitemaps/read", "sitemaps", "sitemaps that were read, indexes included"),
    counter("aopic/sitemaps/pages", "pages", "pages in them that were taken as links, known ones included"),
    counter("aopic/sitemaps/left_out/<reason>", "entries",
        "what of [sitemaps](robots.md#sitemaps) is not taken: of another `domain`, no `url`, `lines` of a text that are no "
        "URLs, `too long`, `entries`, `alternates` and `sitemaps` beyond the bounds, beyond the `depth` of indexes. The "
        "`rest` of those that are too large or end in the middle counts as one each"),
    counter("aopic/sitemaps/bad", "sitemaps", "sitemaps that could not be read"),
    counter("aopic/seeds/rows", "rows", "rows of seed lists that were taken up, from `AOPIC_SEEDS` and `scrapy aopic seed`"),
    counter("aopic/seeds/queued", "rows", "of these, new pages, which wait now"),
    counter("aopic/seeds/known", "rows", "of these, pages that the job, or a duplicate filter of your own, knew"),
    counter("aopic/seeds/dropped", "seeds",
        "seeds that were dropped on their way to the queue, and are in none of the other numbers: to hosts that are none of "
        "`allowed_domains`, by a handler of the signal `request_scheduled`, or lost to an error. The first of each kind is in "
        "the log, and `scrapy aopic why` knows them. A seed whose URL is refused counts in `aopic/urls/refused/<reason>` instead"),
    counter("aopic/seeds/unreadable", "rows",
        "[imported](commands.md#import-redis) requests that the spider cannot make, for example because it has no such callback"),
    counter("aopic/seeds/files", "lists", "lists that were taken up to their end"),
    counter("aopic/seeds/bad_files", "lists",
        "waiting lists that could not be read to their end and were renamed to `.bad`; the log says which"),
    counter("aopic/items/without_page", "items", "items whose page is not known, which pass unchanged"),
    counter("aopic/warc/records", "records", "records written"),
    counter("aopic/warc/bytes", "bytes", "bytes written, after compression"),
    counter("aopic/warc/errors", "errors", "times that the file could not be opened or written"),
)  # fmt: skip
"""Stats of this package."""

SCRAPY = (
    counter("scheduler/enqueued", "requests", "requests accepted: new pages, retries, and known pages with `dont_filter`"),
    counter("scheduler/enqueued/disk", "requests",
        "of these, written as bytes, with a `JOBDIR`; duplicates of a link that is not settled yet are counted, too"),
    counter("scheduler/enqueued/memory", "requests", "the same without `JOBDIR`, and requests that cannot be written"),
    counter("scheduler/dequeued", "requests", "requests handed to the engine"),
    counter("scheduler/dequeued/disk", "requests", "of these, with a `JOBDIR`"),
    counter("scheduler/dequeued/memory", "requests", "of these, without one"),
    counter("scheduler/unserializable", "requests",
        "requests that cannot be written (a lambda as callback, an object in `meta`) and are kept in memory; they are "
        "lost when the process ends"),
    counter("robotstxt/request_count", "requests",
        "requests for robots.txt, redirected ones and failed tries included"),
    counter("robotstxt/response_count", "responses", "responses to these"),
    counter("robotstxt/response_status_count/<status>", "responses", "of these, by status"),
    counter("robotstxt/exception_count/<class>", "requests",
        "requests for robots.txt without a response, by exception"),
    counter("robotstxt/forbidden", "requests", "requests that robots.txt forbids"),
    counter("dupefilter/filtered", "requests",
        "requests whose page was known; as links they still receive cash"),
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
