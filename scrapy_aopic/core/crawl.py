"""One crawl on one store: the port of :mod:`.api`, answered by the owners of what it is about.

====================  ====================================================================================
:mod:`.leases`        which leases are held
:mod:`.pages`         page records, requests, and where each page waits
:mod:`.ledger`        who holds how much cash
:mod:`.frontier`      which host is next, and when
:mod:`.settling`      what follows from a visit
:mod:`.merging`       pages that are one
:mod:`.revisits`      visited pages that are visited again
:mod:`.domain_links`  registered domains that link to each other
:mod:`.kept_links`    links that are kept, and scores on the known graph
:mod:`.counters`      what the job has done, which decides nothing
====================  ====================================================================================

Between two calls the sum of all cash is :data:`~scrapy_aopic.core.ledger.TOTAL` (a shard of a job sends some of it away,
and gets some, see :mod:`.shard`), the seen-set is the page table, and a queued page has exactly one queue row, so none of them can disagree with another; :mod:`.audit` checks it. A leased
page stays queued in the store until it is settled: a process that dies loses nothing.

Time is given by the caller, in seconds since the epoch; nothing here reads a clock.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple
from math import inf
from typing import TYPE_CHECKING, Any

from scrapy_aopic.exceptions import StorageError

from .api import ORDINARY, Counts, Ending, Findings, HostsByPlace, Lease, Settled
from .branches import Branches
from .counters import Counters, QueueTimes, read_counters
from .crawl_totals import CrawlTotals, read_totals
from .directories import Directories
from .domain_links import DomainLinks
from .domains import Domains
from .duplicates import Duplicates, Judgement, Text
from .focus.harvest import read_harvest
from .focus.leads import Lead, Leads, unpack_lead
from .focus.sample import LabelSample, Sampled
from .frontier.frontier import Empty, Frontier, NotBefore, Standing, Taken, Unlocated
from .kept_links import KeptLinks, Scores
from .layout import ASLEEP_KEY, COUNTERS_KEY, GISTS, HARVEST_KEY, KEYS_KEY, TOTALS_KEY, URL_KEYS
from .leases import Leases
from .ledger import Ledger, Totals
from .merging import Merging
from .mirrors import Mirrors
from .order import LARGEST_VALUE, order_name
from .pages import Pages
from .politeness import Gap, Pace, Silence, TransferResult
from .ports import Family, Store, prefetching
from .records import HOST_BYTES, QUEUED, Link, Page, host_key, serial_of
from .revisits.due import DuePages
from .revisits.hints import Hints
from .revisits.rates import Rates
from .revisits.revisits import ByIntervals, InRounds, Revisits
from .revisits.wake_times import WakeTimes
from .revisits.worth import Worth
from .settling import Settling, check_links
from .shards.cut import WHOLE, ShardId
from .shards.mail import Mail, open_cut
from .shards.receiving import Receiver
from .shards.remote_pages import RemotePages
from .tables import BlobTable, Commits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from .focus.strategy import Chance
    from .frontier.host_state import HostState
    from .graph import Ranking
    from .policy import Policy
    from .revisits.intervals import Recrawl
    from .revisits.rounds import Round


_NEARLY = 5
"""Binary digits within which a page's value is what it was, 3 %: less than a front queue."""

_RANKED = 255
"""Places of the heap of ready hosts, eight levels of it, whose ranks are told to other workers: some 20 us with each commit."""

_PAGES_A_DIRECTORY = 4
"""Page records in memory for each count of a directory there, which takes half as much."""


def _new_keys(store: Store, policy: Policy, *, is_new: bool) -> bytes:
    """The mark on page keys that *store* lacks; empty if it lacks none, or if the kind of its keys is not known."""
    if is_new:
        return URL_KEYS if policy.has_url_keys else b""
    was_known = store.get_many(Family.META, (KEYS_KEY,))[0] == URL_KEYS
    return b"other" if was_known and not policy.has_url_keys else b""


def _read_totals(store: Store, policy: Policy) -> CrawlTotals | None:
    """The totals of the last commit, ``None`` for a new job, which must have been crawled in the order of *policy*."""
    saved, order = read_totals(store), order_name(policy.order)
    if saved is not None and saved.order_name != order:
        raise StorageError(
            f"This job was crawled in the order {saved.order_name}, and AOPIC_ORDER is now {order}: set AOPIC_ORDER back, or "
            "use a new job folder. Nothing was changed."
        )
    return saved


class Crawl:
    """The ledger, the frontier and the seen-set of one job.

    Methods without a docstring are those of :class:`.api.SessionPort` and :class:`.api.CrawlPort`, which describe them.

    Args:
        store: Its store. The caller writes there what :meth:`take_changes` returns.
        policy: How cash is spent.
        now: Seconds since the epoch.
        shard: Which shard of a job it is (:class:`~.shard.Shard`).

    Attributes:
        politeness: For how long hosts are left alone.
        leases: The pages handed out and not settled.
        commits: What has changed since the last commit.
        scores: Scores on the known graph, if the order looks at that.
        counters: Counts of what was done, in all runs.
        harvest: How many pages were relevant, in all runs of a crawl for a topic.
        sample: Pages set aside for people to label.

    Raises:
        StorageError: If the store was written in another format, or in another order, or is of another shard.
    """

    def __init__(self, store: Store, policy: Policy, now: float, shard: ShardId = WHOLE) -> None:
        self._policy = policy
        self.politeness = policy.politeness
        saved = _read_totals(store, policy)
        cut = open_cut(store, policy, shard, is_new=saved is None)
        totals = saved.ledger if saved is not None else Totals()
        self.mail = Mail(store, cut, totals)
        self._open_hosts(store)
        rates = Rates(saved.rates if saved is not None else ())
        was_asleep = saved is not None and (
            saved.window is None or store.get_many(Family.META, (ASLEEP_KEY,))[0] is not None
        )
        self._open_pages(store, totals, rates, now, has_sleepers=was_asleep)
        self._open_visits(store)
        self.commits = Commits(
            [
                *self.frontier.tables,
                *self.pages.tables,
                *([self.domains.table] if self.domains is not None else []),
                self._links.table,
                self._robots,
                self._wishes,
                self.sample.table,
                *self._leads.tables,
                self.mail,
                *self._duplicates.tables,
                *self._remote.tables,
            ]
        )
        self._begin(store, saved, now)

    def _open_hosts(self, store: Store) -> None:
        """Hosts and their domains."""
        policy, order, cut = self._policy, self._policy.order, self.mail.cut
        self.domains = (
            Domains(
                store,
                policy.domain_of,
                order.budget,
                order.allowance,
                is_own=cut.is_own if cut.has_others else None,
                budgets=policy.rules.budgets,
                spread=policy.spread if cut.has_others else (),
            )
            if order.uses_domains
            else None
        )
        if self.domains is not None:
            self.mail.way_of = self.domains.sponsors.way
        self.frontier = Frontier(
            store,
            order,
            self.domains,
            politeness=policy.politeness,
            domain_of=policy.domain_of if policy.by_domain else None,
            uses_addresses=policy.by_address,
            looks_up=policy.looks_up,
            connections=policy.connections,
            max_active=policy.max_active,
            most_pages=policy.rules.giving("pages"),
            waits_for=lambda key: policy.waits_for(self.pages.request(key)),
            lower=self._lower,
        )
        self.domain_links = DomainLinks(self.domains, self.frontier) if self.domains is not None else None
        # Data about robots.txt files is only stored here, so that it is in the same commits.
        self._robots = BlobTable(store, Family.ROBOTS)

    def _open_pages(
        self, store: Store, totals: Totals, rates: Rates, now: float, *, has_sleepers: bool
    ) -> None:
        """Pages, their cash, and when they are visited again."""
        policy, order, recrawl = self._policy, self._policy.order, self._policy.recrawl
        self.ledger = Ledger(
            totals,
            policy.window,
            share=policy.share,
            endowment=policy.endowment if order.uses_endowments else 0.0,
            spending=policy.spending,
            is_once=recrawl is None,
            averages=recrawl is not None,
        )
        wake_times = WakeTimes(self.frontier.index)
        self._wishes = BlobTable(store, Family.CONTENT)
        hints = Hints(self._wishes)
        self._due = DuePages(self.frontier.index, recrawl.share if recrawl is not None else 0.0)
        self.leases = Leases(now)
        self._leads = Leads(store)
        self.sample = LabelSample(store)
        n_counts = policy.page_cache // _PAGES_A_DIRECTORY
        self._mirrors = (
            Mirrors(self.domains, order.mirror_pages, lambda data: policy.waits_for(data)[0], policy.key_at)
            if self.domains is not None and order.mirror_pages and policy.key_at is not None
            else None
        )
        self.pages = Pages(
            store,
            ledger=self.ledger,
            order=order,
            frontier=self.frontier,
            leases=self.leases,
            wake_times=wake_times,
            due=self._due,
            worth=Worth(self._recrawl_of, rates, hints, self.ledger, order)
            if recrawl is not None and not recrawl.once
            else None,
            is_chosen=policy.is_chosen if policy.chosen else None,
            leads=self._leads,
            directories=Directories(store, policy.directory_of, order.directory_pages, n_counts),
            branches=Branches(store, order, policy.group_of, n_counts),
            mirrors=self._mirrors,
            capacity=policy.page_cache,
            mail=self.mail,
            bonus_of=policy.rules.giving("worth"),
            purpose_of=policy.purpose_of,
            networks=policy.networks,
        )
        parts: dict[str, Any] = {
            "rates": rates,
            "due": self._due,
            "pages": self.pages,
            "frontier": self.frontier,
        }
        if recrawl is None:
            self._revisits = Revisits(**parts)
        elif recrawl.once:
            self._revisits = InRounds(
                recrawl, self._recrawl_of, wake_times, hints, store=store, now=now, **parts
            )
        else:
            self._revisits = ByIntervals(
                self._recrawl_of, wake_times, hints, has_sleepers=has_sleepers, **parts
            )

    def _open_visits(self, store: Store) -> None:
        """What follows from visits, here and in other shards."""
        policy, order = self._policy, self._policy.order
        adds_scores = order.counts_links and not order.values_links
        self._duplicates = duplicates = Duplicates(
            store, is_near=policy.is_near, site_of=self._site_of, most=policy.same_words
        )
        self._remote = RemotePages(
            store, self.mail, self.pages, self.ledger, duplicates, adds_scores=adds_scores
        )
        self._merging = Merging(
            self.pages,
            self.leases,
            duplicates,
            self._site_of,
            adds_scores=adds_scores,
            remote=self._remote,
            mirrors=self._mirrors,
        )
        self.scores = Scores(store, order, self.pages)
        self._links = KeptLinks(
            store,
            is_on=policy.keep_links or policy.recrawl is not None or self.scores.is_on,
            has_elsewhere=self.mail.cut.has_others,
        )
        self._settling = Settling(
            leases=self.leases,
            pages=self.pages,
            ledger=self.ledger,
            order=order,
            frontier=self.frontier,
            domain_links=self.domain_links,
            merging=self._merging,
            revisits=self._revisits,
            links=self._links,
            scores=self.scores,
            mail=self.mail,
            wishes=self._wishes,
        )
        self.receiver = Receiver(
            self.mail,
            seeder=self,
            pages=self.pages,
            ledger=self.ledger,
            frontier=self.frontier,
            domain_links=self.domain_links,
            merging=self._merging,
            remote=self._remote,
        )
        self._ahead, self._prefetching = getattr(store, "read_ahead", 0), prefetching(store)

    def _begin(self, store: Store, saved: CrawlTotals | None, now: float) -> None:
        """Begin the job, or go on with it as of the commit that wrote *saved*."""
        self.started_at = self.created_at = now
        self.is_resumed = saved is not None
        self.was_clean = True
        self._not_before = 0.0
        self.counters = Counters(since=now, is_whole=True)
        self._queue_times = QueueTimes()
        self.harvest, self._new_keys = (
            read_harvest(store),
            _new_keys(store, self._policy, is_new=saved is None),
        )
        if saved is not None:
            self.counters = read_counters(store, saved.saved_at) or Counters(since=now)
            self._resume(saved, now)
        self._queue_times.note(self.pages.serial + 1, now)

    def _recrawl_of(self, key: bytes) -> Recrawl:
        """How the page under *key* is revisited, if pages are."""
        recrawl = self._policy.recrawl
        assert recrawl is not None, "nothing is revisited"
        rules = self._policy.rules
        host = self.frontier.host(key[:HOST_BYTES]) if "revisit" in rules.options else None
        return recrawl.under(rules.of(host.name)) if host is not None else recrawl

    def _resume(self, saved: CrawlTotals, now: float) -> None:
        """Go on where the run that wrote *saved* stopped, or died."""
        self.pages.resume(visited=saved.visited, failed=saved.failed, serial=saved.order, clock=saved.clock)
        if self.domains is not None:
            self.domains.seeds, self.domains.seeds_elsewhere = saved.seeds, saved.ledger.elsewhere.seeds
        self.created_at = saved.created_at
        self.was_clean = saved.is_clean
        leased = self.frontier.load(saved, now, crashed_at=saved.crashed_at if self.was_clean else now)
        self._not_before = saved.not_before  # a clean stop in the pause after a crash does not end it
        if not self.was_clean:
            self._pause_after_crash(saved, leased, now)
        self.pages.readmit(now)

    def _pause_after_crash(
        self, saved: CrawlTotals, leased: Sequence[tuple[bytes, float]], now: float
    ) -> None:
        """Leave hosts alone whose last transfer may have gone unnoticed: those *leased*, at instants, and all others."""
        politeness, seen = self._policy.politeness, saved.saved_at + saved.commit_within
        for key, leased_at in leased:
            host = politeness.of(self.frontier.places.expect(key, "a lease").name)
            self.frontier.defer_all(key, host.pause_after_crash(now, leased_at, seen))
        # Hosts that the dead process first fetched from after its last commit cannot be distinguished from others.
        pause = politeness.pause_after_crash(now, saved.saved_at, seen)
        self._not_before = max(self._not_before, pause)

    # -- what is known

    @property
    def counts(self) -> Counts:
        return Counts(self.frontier.queued, self.pages.n_visited, self.pages.n_failed, self.frontier.n_hosts)

    def __len__(self) -> int:
        return self.frontier.pending

    @property
    def order_name(self) -> str:
        return type(self._policy.order).__name__

    @property
    def n_merged(self) -> int:
        return self._merging.n_merged + self._remote.n_merged

    def page(self, key: bytes) -> Page | None:
        return self.pages.get(key)

    def find(self, key: bytes, host: str, lease: Lease | None = None) -> Page | None:
        del host, lease  # of a job in shards, they say where to look
        return self.pages.get(key)

    def find_many(self, keys: Sequence[bytes], hosts: Sequence[str], lease: Lease) -> list[Page | None]:
        del hosts, lease
        return self.pages.get_many(keys)

    def request(self, key: bytes) -> bytes:
        return self.pages.request(key)

    def is_from_before(self, page: Page | None) -> bool:
        return page is not None and self.pages.is_from_before(page)

    def worth(self, key: bytes, page: Page) -> tuple[float, int]:
        del key  # of a job in shards, it says which shard knows
        return self.ledger.importance(page), self.ledger.cash(page)

    @property
    def totals(self) -> Totals:
        return self.ledger.totals

    @property
    def round(self) -> Round | None:
        return self._revisits.round

    @property
    def cache_hits(self) -> tuple[int, int]:
        return self.pages.table.hits, self.pages.table.misses

    # -- waiting

    def has_work(self, now: float) -> bool:
        places = self.frontier.places
        nobody_waits_for = places.dead_pages + places.blocked_pages
        waits = len(self) > nobody_waits_for and not self.frontier.n_stranded
        return waits or self._revisits.is_walking or places.dead.opens_at <= max(now, self._not_before)

    def when(self) -> NotBefore | Empty:
        return self._later(self.frontier.when())

    def best(self, now: float) -> Standing | None:
        """How good the best page seems that may be leased at *now*; ``None`` if there seems to be none.

        Of several shards, the one in which that is the least has the best page of all.
        """
        return self.frontier.best(now) if now >= self._not_before else None

    def awaited(self) -> tuple[float, str]:
        instant, name = self.frontier.awaited()
        return max(instant, self._not_before), name

    def _later(self, when: NotBefore | Empty) -> NotBefore | Empty:
        """Earliest instant for the whole crawl, if the frontier says *when*."""
        instant = min(when.instant if isinstance(when, NotBefore) else inf, self._revisits.when())
        is_held = isinstance(when, NotBefore) and when.is_held
        return NotBefore(max(instant, self._not_before), is_held) if instant != inf else Empty()

    # -- pages come in

    def seed(
        self, link: Link, now: float, *, is_endowed: bool = True, worth: float = 1.0, found_on: bytes = b""
    ) -> bool:
        page = self.pages.get(link.key)
        if page is not None and not (link.again or self._is_for_more(link, page)):
            return False
        check_links("seed", (link,))
        self.commits.has_changes = True
        if page is not None:
            self.pages.repeat(link, page, now)
            return True
        self.pages.add(link, now, worth=worth if is_endowed else 0.0)
        if self.domain_links is not None and found_on:
            self.domain_links.found(link.key[:HOST_BYTES], found_on[:HOST_BYTES], now)
        elif self.domain_links is not None and is_endowed:
            self.domain_links.vouch(link.key, now)
        return True

    def _is_for_more(self, link: Link, page: Page) -> bool:
        """Whether *link* is for something else than what *page*, which is known, was requested for."""
        if link.is_unfiltered:
            return self.pages.differs(link)
        self.commits.has_changes |= bool(page.purpose)
        return self.pages.is_for_more(link, page)

    def enrich(self, key: bytes, now: float, worth: float) -> int:
        """Give the known page under *key* the cash of *worth* seeds out of the virtual page; returns the units."""
        self.commits.has_changes = True
        return self.pages.enrich(key, worth, now)

    def take_over(self, link: Link, known: Page, now: float) -> None:
        """Let the page of *link*, which is not known here, be as far as in another job; see :meth:`.pages.Pages.take_over`."""
        self.commits.has_changes = True
        self.pages.take_over(link, known, now)

    # -- what will be wanted

    @property
    def prefetches(self) -> bool:
        return self._prefetching is not None

    def prefetch_text(self, lease: Lease, text: Text, key: bytes = b"") -> None:
        self._merging.prefetch(lease, text, key)

    def prefetch_links(self, keys: Sequence[bytes], hosts: Sequence[str], lease: Lease) -> int:
        del hosts, lease
        return self.pages.table.prefetch(keys)

    def has_come(self, number: int, lease: Lease | None = None) -> bool:
        del lease
        return not number or self._prefetching is None or self._prefetching.has_come(number)

    # -- leases

    def lease(self, now: float, hold_late: float = 0.0) -> Lease | Unlocated | NotBefore | Empty:
        if now < self._not_before:
            return self.when()
        if self._revisits.step(now):
            self.commits.has_changes = True
        taken = self.frontier.take(now, hold_late)
        while self._is_free_for_revisits(taken, now, hold_late) and self._revisits.let_in_one(now):
            self.commits.has_changes = True
            taken = self.frontier.take(now, hold_late)
        if isinstance(taken, Unlocated):
            return taken
        if not isinstance(taken, Taken):
            return self._later(taken)
        page = self.pages.lease(taken.page, now)
        self._note_wait(page, now)
        self._due.fetched()
        self.commits.has_changes = True
        host = self.frontier.active[taken.host]
        return self.leases.begin(
            taken.page, host.name, self.pages.request(taken.page), page.cash, page.visits
        )

    def _lower(self, key: bytes, now: float) -> bool:
        """Let the page under *key*, which is next, wait lower if there is a reason; whether it does from now on."""
        if self._ahead:
            behind = self.frontier.next_of(key[:HOST_BYTES], self._ahead + 1)
            behind = [each for each in behind if each != key][: self._ahead]
            self.pages.read_ahead((key, *behind))
            if self._prefetching is not None:
                self.pages.prefetch(behind)
        is_lowered = self.pages.lower(key, now)
        self.commits.has_changes |= is_lowered
        return is_lowered

    def expects(self, now: float, within: float) -> bool:
        """Whether a host in its budget is free, or may be, *within* so many seconds."""
        return now >= self._not_before and self.frontier.expects(now, within)

    def _is_free_for_revisits(
        self, taken: Taken | Unlocated | NotBefore | Empty, now: float, hold_late: float
    ) -> bool:
        """Whether a page may be revisited that nothing has paid for, as *taken* is nothing, and nothing is soon."""
        if isinstance(taken, (Taken, Unlocated)) or (isinstance(taken, NotBefore) and taken.is_held):
            return False
        return not (
            hold_late
            and self._policy.recrawl is not None
            and self.frontier.expects(now, hold_late, has_more=True)
        )

    def _note_wait(self, page: Page, now: float) -> None:
        """Count for how long *page*, which is leased now, has waited."""
        queued_at = self._queue_times.queued_at(serial_of(page.place))
        if queued_at is not None:
            self.counters.waited += 1
            self.counters.waited_seconds += max(now - queued_at, 0.0)

    def release(self, lease: Lease, now: float) -> Ending:
        ending = self.leases.end_transfer(lease)
        if ending == Ending.OK:
            self.frontier.release(lease.key, now)
            self._revisits.released(lease.key[:HOST_BYTES])
            self.commits.has_changes = True
        return ending

    def announce(self, lease: Lease, links: Sequence[Link], now: float, n_links: int = 0) -> list[Link]:
        given = self._settling.announce(lease, links, now, n_links)
        self.commits.has_changes = True
        self._queue_times.note(self.pages.serial, now)
        return given

    def settle(self, lease: Lease, links: Sequence[Link], now: float, found: Findings = ORDINARY) -> Settled:
        settled = self._settling.settle(lease, links, now, found)
        if settled.ending == Ending.OK:
            self.commits.has_changes = True
            self.counters.settled(found.outcome, found.wishes)
            if self._policy.order.values_links:
                self._leads.drop(lease.key)
            if found.value:
                self.harvest.note(is_relevant=found.is_relevant)
            self._queue_times.note(self.pages.serial, now)
        return settled

    def put_back(self, lease: Lease, link: Link, now: float, *, has_failed: bool = False) -> Ending:
        standing = self.leases.standing(lease)
        if standing == Ending.OK:
            self.leases.end(lease)
            self._merging.drop_verdict(lease.key)
            self.pages.put_back(lease, link, now, has_failed=has_failed)
            self._settling.put_back(lease)
            self.counters.put_back += 1
            self.commits.has_changes = True
        return standing

    # -- hosts

    def transferred(self, name: str, result: TransferResult, now: float) -> Gap:
        self.commits.has_changes = True
        self.counters.transferred(result)
        return self.frontier.transferred(host_key(name), name, result, now)

    def hold(self, host: bytes, origin: str, not_before: float, *, is_for_all: bool) -> None:
        self.commits.has_changes = True
        self.frontier.hold(host, origin, Silence(0, not_before, is_for_all))

    def defer(self, host: bytes, not_before: float, transfer: float | None = None) -> None:
        """Leave the host under key *host* alone until *not_before*; a transfer from it took *transfer* seconds, if one was made."""
        self.commits.has_changes = True
        self.frontier.defer(host, not_before, transfer)

    def charge(self, host: bytes, seconds: float, before: float, now: float) -> None:
        self.commits.has_changes = True
        self.frontier.charge(host, seconds, before, now)

    def lift(self, host: bytes, origin: str, now: float) -> float:
        self.commits.has_changes = True
        return self.frontier.lift(host, origin, now)

    def set_crawl_delay(self, name: str, seconds: float, now: float) -> None:
        self.commits.has_changes = True
        self.frontier.set_crawl_delay(host_key(name), name, seconds, now)

    def allow(self, name: str, what: int) -> None:
        self.commits.has_changes = True
        self.frontier.allow(host_key(name), what)

    def allowed(self, name: str) -> int:
        host = self.frontier.host(host_key(name))
        return host.allowed if host is not None else 0

    def locate(self, host: Unlocated, address: str, now: float) -> None:
        self.commits.has_changes = True
        self.frontier.locate(host.key, address, now)

    def not_before(self, host: bytes) -> float:
        return max(self.frontier.not_before(host), self._not_before)

    @property
    def paused_until(self) -> float:
        return self._not_before

    def pages_left(self, name: str) -> int | None:
        host = self.frontier.host(host_key(name))
        return self.frontier.places.pages_left(host) if host is not None else None

    def longest_gap(self, name: str) -> float:
        return self._policy.politeness.longest(self.frontier.host(host_key(name)) or Pace(name))

    def is_dead(self, host: bytes, origin: str = "") -> bool:
        known = self.frontier.host(host)
        return known is not None and self._policy.politeness.is_given_up(known, origin)

    def silent_until(self, host: bytes, origin: str) -> float:
        known = self.frontier.host(host) or self.frontier.outsiders.find(host)
        silence = known.silent.get(origin) if known is not None and known.silent else None
        return silence.until if silence is not None else 0.0

    def down(self, host: bytes, origin: str = "") -> int:
        known = self.frontier.host(host)
        if known is None:
            return 0
        silence = known.silent.get(origin) if known.silent else None
        return max(known.down, silence.n if silence is not None else 0)

    @property
    def active_hosts(self) -> list[Collection[HostState]]:
        return [self.frontier.active.values()]

    @property
    def hosts_by_place(self) -> HostsByPlace:
        places = self.frontier.places
        return HostsByPlace(
            self.frontier.n_hosts,
            places.n_ready,
            len(places.waiting),
            sum(places.shelves.counts.values()),
            places.parked.n,
            places.dead.n,
        )

    @property
    def n_waiting(self) -> int:
        """Hosts that could be requested, also those over their budgets."""
        places = self.frontier.places
        late = sum(map(len, places.late.in_memory.values()))
        return places.n_ready + late + sum(places.shelves.counts.values())

    @property
    def waiting_ranks(self) -> dict[int, int]:
        """How many of them have each rank, by its first two bytes, the best the lowest; of many some, mostly good ones."""
        some = self.frontier.places.ready.some(_RANKED)
        return Counter(int.from_bytes(rank[:2], "big") for rank, _, _ in some)

    @property
    def dead(self) -> tuple[int, int]:
        places = self.frontier.places
        return places.dead.n, places.dead_pages

    @property
    def stranded(self) -> int:
        return self.frontier.n_stranded

    @property
    def blocked(self) -> tuple[int, int]:
        places = self.frontier.places
        return len(places.blocked), places.blocked_pages

    def block(self, is_blocked: Callable[[str], str] | None, now: float) -> None:
        self.commits.has_changes = True
        self.frontier.places.block(is_blocked, now)

    def _site_of(self, key: bytes) -> bytes:
        """Key of the registered domain of the page under *key*."""
        host = self.frontier.host(key[:HOST_BYTES])
        return host_key(self._policy.domain_of(host.name)) if host is not None else key[:HOST_BYTES]

    # -- pages that are the same, see :mod:`.merging`

    def judge(self, lease: Lease, text: Text | None, key: bytes = b"") -> Judgement:
        self.commits.has_changes = True
        return self._merging.judge(lease, text, key)

    def give_way(self, lease: Lease, other: bytes, key: bytes = b"") -> bool:
        return self._merging.give_way(lease, other, key)

    def same_as(self, key: bytes) -> bytes:
        return self._merging.same_as(key)

    # -- data of callers, stored in the same commits

    def robots(self, key: bytes) -> bytes | None:
        return self._robots.get(key)

    def keep_robots(self, key: bytes, data: bytes) -> None:
        self._robots.put(key, data)
        self.commits.has_changes = True

    # -- strategies that learn from links, see :mod:`.focus.strategy`

    def strategy(self) -> bytes | None:
        return self._leads.learned

    def keep_strategy(self, data: bytes) -> None:
        self._leads.keep_learned(data)
        self.commits.has_changes = True

    def begin_sample(self, size: int, chance: Chance) -> None:
        self.sample.begin(size, chance)

    def set_aside(self, key: bytes, page: Sampled, text: Callable[[], str]) -> None:
        del key  # of a job in shards, it says which shard has it
        self.sample.offer(page, text)

    def lead(self, key: bytes) -> bytes:
        return self._leads.get(key) or b""

    def gist(self, key: bytes) -> bytes:
        return self._wishes.get(GISTS + key) or b""

    def revalue(
        self, worth: Callable[[Lead], int | None], now: float, begin: bytes, n: int
    ) -> tuple[int, bytes]:
        rows, end = self._leads.after(begin, n)
        n_changed = 0
        for (key, data), page in zip(rows, self.pages.get_many([key for key, _ in rows]), strict=True):
            lead = unpack_lead(data)
            if page is None or page.state != QUEUED or key in self.leases or lead is None:
                continue
            value = worth(lead)
            before = page.score & LARGEST_VALUE
            if value is not None and abs(value - before) > before >> _NEARLY:
                self.pages.revalue(key, page, value, now)
                n_changed += 1
        self.commits.has_changes |= n_changed > 0
        return n_changed, end

    # -- orders that look at the whole graph

    def rescored(self, scores: Ranking, now: float, begin: int = 0, n: int | None = None) -> int:
        """Give *n* pages from number *begin* on the *scores* that :meth:`.kept_links.Scores.task` gave; returns the next *begin*."""
        self.commits.has_changes = True
        return self.scores.apply(scores, now, begin, n)

    # -- commits

    @property
    def has_changes(self) -> bool:
        return self.commits.has_changes

    @property
    def n_changed(self) -> int:
        return self.pages.table.n_changed

    def take_changes(self, now: float, *, is_clean: bool = False) -> dict[Family, dict[bytes, bytes | None]]:
        totals = self._saved(now, is_clean=is_clean).pack()
        rows = {TOTALS_KEY: totals, COUNTERS_KEY: self.counters.pack(now), **self._revisits.rows(now)}
        if self.harvest.pages:
            rows[HARVEST_KEY] = self.harvest.pack()
        if self._new_keys:
            rows[KEYS_KEY] = self._new_keys
        return self.commits.take(rows)

    def changes_landed(self) -> None:
        self.commits.landed()
        self._new_keys = b""

    def changes_failed(self) -> None:
        self.commits.failed()

    def _saved(self, now: float, *, is_clean: bool) -> CrawlTotals:
        policy, frontier, pages = self._policy, self.frontier, self.pages
        places = frontier.places
        return CrawlTotals(
            order_name=order_name(policy.order),
            created_at=self.created_at,
            saved_at=now,
            ledger=self.ledger.totals,
            window=astuple(policy.window) if policy.recrawl is not None else None,
            queued=frontier.queued,
            visited=pages.n_visited,
            failed=pages.n_failed,
            hosts=frontier.n_hosts,
            order=pages.serial,
            clock=pages.clock,
            visits=frontier.budgets.own_visits,
            rates=self._revisits.rates.counts,
            seeds=self.domains.seeds if self.domains is not None else 0,
            shelved=places.shelves.counts,
            parked=places.parked.n,
            dead=places.dead.n,
            dead_pages=places.dead_pages,
            commit_within=policy.commit_within,
            is_clean=is_clean,
            crashed_at=places.crashed_at,
            not_before=self._not_before,
        )
