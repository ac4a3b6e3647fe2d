"""Begins a new job with all that can be read of a damaged one.

Rule 1: the new job keeps its own books. Pages come in by its crawl (:meth:`.crawl.Crawl.take_over`), so queue rows, places of
hosts, counts and cash are right whatever was lost. Cash and histories keep their proportions; merges of pages are not kept.

Rule 2: a page that was fetched is known as fetched, even if its request is lost. If its record is lost, its queue row says whether
it waits: a page without one was fetched, provided that there are as many queue rows as the totals say. If that is not certain, it
waits behind all others.

Rule 3: a page that waits needs its request. Links in letters to other shards wait, too: the page that had them is not fetched again.
They are sent again; if the job is cut anew, letters that were not applied are, where their pages are now.

Rule 4: what no crawl counts is copied as it is: robots.txt files, gates, directories, branches, domains, and what a crawl for a topic
has learned; links, texts and wishes if their pages are there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scrapy_aopic.exceptions import StorageError

from . import layout, walk
from .counters import Counters
from .domain import pack_domain, unpack_domain
from .duplicates import pages_of
from .layout import Family
from .ledger import TOTAL
from .records import HOST_BYTES, NO_RECORD, PAGE_BYTES, QUEUED, VISITED, HostRecord, Link, Page, host_key
from .shard import Shard, ShardId
from .shards.letters import host_name, read_letter
from .shards.receiving import paid_links

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from .crawl_totals import CrawlTotals
    from .damaged import DamagedStore
    from .policy import Policy
    from .ports import Store
    from .shards.cut import Cut

_COPIED = (
    layout.OUTSIDERS, layout.SHARED_GATES, layout.DIRECTORIES, layout.BRANCHES, layout.SAMPLED, layout.ROUNDS, layout.SEEDS_KEY,
    layout.KEYS_KEY, layout.HARVEST_KEY, layout.STRATEGY_KEY, layout.SAMPLE_KEY,
)  # fmt: skip
"""Beginnings of the keys in ``META`` whose rows are copied as they are."""

_CLAIMS = (layout.CLAIMS, layout.OWN_CLAIMS, layout.FOREIGN_CLAIMS)
"""Letters of the rows in ``CONTENT`` that go with merges of pages, and are not copied."""


@dataclass(slots=True)
class Salvaged:
    """What was read of a damaged store, and what was not.

    Attributes:
        waiting: Pages that wait in the new job.
        fetched: Pages that are known as fetched there, failed ones included.
        hosts: Hosts in the new job.
        uncertain: Pages among those that wait that may have been fetched: nothing but their requests is left.
        letters: Links in letters between shards, which are sent again, or applied if the job is cut anew.
        unrequested: Pages that waited, and whose requests are lost.
        unnamed: Pages of hosts whose names are lost.
        missing: Pages that the totals count, and of which nothing else is left; ``None`` if the totals are lost.
        gaps: Places by family where rows could not be read.
        reason: Why the store could not be opened as it was; empty if it could.
    """

    waiting: int = 0
    fetched: int = 0
    hosts: int = 0
    uncertain: int = 0
    letters: int = 0
    unrequested: int = 0
    unnamed: int = 0
    missing: int | None = None
    gaps: dict[str, int] = field(default_factory=dict)
    reason: str = ""

    @property
    def pages(self) -> int:
        """Pages that were known, in whatever state they are now."""
        return self.waiting + self.fetched + self.unrequested + self.unnamed


def together(shards: Collection[Salvaged]) -> Salvaged:
    """What was read of a job that was cut into *shards*, each of which misses the pages of all others."""
    whole = Salvaged()
    for each in shards:
        for name in ("waiting", "fetched", "hosts", "uncertain", "letters", "unrequested", "unnamed"):
            setattr(whole, name, getattr(whole, name) + getattr(each, name))
        whole.gaps = dict(Counter(whole.gaps) + Counter(each.gaps))
        whole.reason = whole.reason or each.reason
    known = [each.missing + each.pages for each in shards if each.missing is not None]
    whole.missing = max(max(known) - whole.pages, 0) if known else None
    return whole


class Salvage:
    """Writes a new job with what can be read of *source* to *target*, which is empty.

    Args:
        policy: Has the order of the job.
        now: Seconds since the epoch, by the job's clock.
        saved: The totals in *source*; ``None`` if they are lost.
        host_of: Name of the host of a request, for hosts whose record is lost.
        shard: Which shard of a job it is.
        was: How the job was cut of which *source* has what belongs to *shard* now (:mod:`.splitting`), if it is cut anew. Each shard
            has as much cash as each of those.
    """

    def __init__(
        self,
        source: DamagedStore,
        target: Store,
        policy: Policy,
        now: float,
        *,
        saved: CrawlTotals | None,
        host_of: Callable[[bytes], str],
        shard: ShardId,
        was: Cut | None = None,
    ) -> None:
        self._source, self._target, self._now, self._saved = source, target, now, saved
        self._host_of = host_of
        self._cash = self._held = 0
        self._was = was
        self._cut = shard.of / was.own.of if was is not None else 1.0
        self._unrecorded: dict[bytes, str] = {}  # with the names of their hosts
        self._result = Salvaged()
        self._seeds = 0
        self._copy(Family.META, filter(self._is_copied, source.scan(Family.META)))
        self._copy(Family.ROBOTS, source.scan(Family.ROBOTS))
        self._copy(Family.DOMAINS, self._domains())
        self._crawl = crawl = Shard(target, policy, now, shard)
        crawl.counters = Counters(since=now)
        if crawl.domains is not None:
            crawl.domains.seeds = self._seeds
        if saved is not None:
            crawl.created_at = min(saved.created_at, now)
            crawl.pages.resume(visited=0, failed=0, serial=saved.order, clock=saved.clock)

    def run(self, progress: Callable[[int], object] = lambda _: None) -> Salvaged:
        """Do it; *progress* is called with the number of further pages that were read, each of them twice."""
        source, result = self._source, self._result
        for is_waiting in (False, True):  # so that budgets count what was fetched when a host gets its place
            source.gaps.clear()  # they are met each time
            for host in walk.each_host(source, walk.each_page(source, progress)):
                self._take_host(host, is_waiting=is_waiting)
            self._take_unrecorded(is_waiting=is_waiting)
            self._cut = min(self._cut, TOTAL / max(self._held, 1))
        for key, value in source.scan(Family.META):
            if key[:1] == layout.OUTBOX:
                to = int.from_bytes(key[1:3], "big")
                if self._was is None:
                    self._take_letter(to, value)
                else:
                    self._apply_letter(value, self._was.in_shard(to))
        self._commit()
        for family in (Family.LINKS, Family.CONTENT):
            self._copy(family, self._with_pages(family))
        self._target.write({}, sync=True)
        result.hosts = self._crawl.counts.hosts
        result.gaps = {family.name: n for family, n in source.gaps.items()}
        if self._saved is not None:
            result.missing = max(self._saved.pages - result.pages, 0)
        return result

    def _copy(self, family: Family, rows: Iterable[tuple[bytes, bytes]]) -> None:
        for chunk in walk.chunks(rows):
            self._target.write({family: dict(chunk)}, sync=False)

    def _is_copied(self, row: tuple[bytes, bytes]) -> bool:
        """Whether *row* of ``META`` is copied as it is: one of a host without pages only if no other shard had pages of it."""
        key, _ = row
        is_known = (
            key[:1] == layout.OUTSIDERS and self._source.get_many(Family.HOSTS, (key[1:],))[0] is not None
        )
        return key.startswith(_COPIED) and not is_known

    def _commit(self) -> None:
        self._target.write(self._crawl.take_changes(self._now), sync=False)
        self._crawl.changes_landed()

    def _domains(self) -> Iterator[tuple[bytes, bytes]]:
        """The domains without their visited pages, which are counted as they come in."""
        for key, value in self._source.scan(Family.DOMAINS):
            try:
                domain = unpack_domain(value)
            except NO_RECORD:
                continue
            domain.visited, self._seeds = 0, self._seeds + domain.seeds
            yield key, pack_domain(domain)

    def _with_pages(self, family: Family) -> Iterator[tuple[bytes, bytes]]:
        """The rows of *family* whose pages are there."""
        for key, value in self._source.scan(family):
            if family == Family.CONTENT and key[:1] in _CLAIMS:
                continue
            keys = [key[:PAGE_BYTES]] if family == Family.LINKS else pages_of(key, value)
            pages = [walk.read_page(data) for data in self._target.get_many(Family.PAGES, keys)]
            if all(page is not None and (page.visits or family == Family.CONTENT) for page in pages):
                yield key, value

    # -- pages

    def _take_host(self, stored: walk.StoredHost, *, is_waiting: bool) -> None:
        """Take over those pages of a host that wait, or those that do not."""
        host = stored.host if stored.host is not None and host_key(stored.host.name) == stored.key else None
        if host is not None:
            self._crawl.frontier.acquaint(stored.key, host)
        for key, page, request, _ in stored.pages:
            if host is None and request and host_key(name := self._host_of(request)) == stored.key:
                host = HostRecord(name)
                self._crawl.frontier.acquaint(stored.key, host)
            if page is None or not page.is_possible:
                if host is not None and request:
                    self._unrecorded[key] = host.name
                self._result.unnamed += is_waiting and host is None and request is not None
                continue
            if page.state == QUEUED and not request and page.visits:
                page = replace(page, state=VISITED)  # noqa: PLW2901
            if (page.state == QUEUED) != is_waiting:
                self._held += 0 if is_waiting else self._cash_of(page)
                continue
            if host is None:
                self._result.unnamed += 1
            elif is_waiting and not request:
                self._result.unrequested += 1
            else:
                # Half of its cash: what a shard has sent and received is not known for certain.
                cash, part = self._cash_of(page), self._cut / 2
                history = page.history + (0 if is_waiting else cash)
                known = replace(page, cash=int(cash * part), history=int(history * part))
                self._take(key, known, request, host.name)

    def _cash_of(self, page: Page) -> int:
        """Units that *page* has, with what it is owed if that is known."""
        return max(page.cash + (self._saved.ledger.owed(page) if self._saved is not None else 0), 0)

    def _take_unrecorded(self, *, is_waiting: bool) -> None:
        """Take over those pages that wait, or do not, of which the requests are left, but not the records (rule 2)."""
        unrecorded, waiting, n = self._unrecorded, set[bytes](), 0
        for row, rest in self._source.scan(Family.QUEUE) if unrecorded else ():
            n += 1
            if (key := row[:HOST_BYTES] + rest) in unrecorded:
                waiting.add(key)
        is_whole = self._saved is not None and n == self._saved.queued
        mean = self._cash // max(self._result.waiting, 1)
        requests = self._source.get_many(Family.REQUESTS, list(unrecorded))
        for (key, name), request in zip(unrecorded.items(), requests, strict=True):
            is_certain = key in waiting
            if (is_certain or not is_whole) == is_waiting:
                cash, state = (mean if is_certain else 0), (QUEUED if is_waiting else VISITED)
                self._result.uncertain += is_waiting and not is_certain
                self._take(key, Page(state, self._crawl.pages.next_place(), cash), request, name)

    def _take(self, key: bytes, page: Page, request: bytes | None, name: str) -> None:
        result = self._result
        self._crawl.take_over(
            Link(key, name, request or b"", page.shift, priority=page.priority), page, self._now
        )
        if page.state == QUEUED:
            result.waiting += 1
            self._cash += page.cash
        else:
            result.fetched += 1
        if (result.waiting + result.fetched) % (5 * walk.CHUNK) == 0:
            self._commit()

    def _take_letter(self, to: int, data: bytes) -> None:
        """Send the links of a letter to shard *to* that may not have been applied there once more."""
        mail, totals = self._crawl.mail, self._crawl.ledger.totals
        try:
            letter = read_letter(data, mail.cut.in_shard(to))
            links = [(link, payment.units) for link, payment in paid_links(letter)]
        except StorageError:
            self._source.gaps[Family.META] = self._source.gaps.get(Family.META, 0) + 1
            return
        for link, units in [*links, *((letter.link(seed.target), 0) for seed in letter.seeds)]:
            if link.host:
                half = min(units, totals.virtual) // 2
                totals.virtual -= half
                mail.pay(to, replace(link, again=False), half)
                self._result.letters += 1

    def _apply_letter(self, data: bytes, to: Cut) -> None:
        """Do what a letter that was not applied by its shard, that of *to*, says of pages that are here now."""
        crawl, totals, letter = self._crawl, self._crawl.ledger.totals, read_letter(data, to)
        here = {
            n
            for n, host in enumerate(map(host_name, letter.hosts))
            if crawl.shard_of(host) == crawl.id.number
        }
        part = min(self._cut, totals.virtual / max(letter.units, 1)) / 2
        paid = [
            each._replace(payment=replace(each.payment, units=int(each.payment.units * part)))
            for each in paid_links(letter)
            if each.payment.target.host in here
        ]
        totals.virtual -= sum(each.payment.units for each in paid)
        seeds = [seed for seed in letter.seeds if seed.target.host in here]
        crawl.receiver.apply(replace(letter, seeds=seeds, claims=[], grants=[], bequests=[]), paid, self._now)
        self._result.letters += len(paid) + len(seeds)
        self._commit()
