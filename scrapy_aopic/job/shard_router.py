"""The shards that a process holds, as one crawl for its session: each call goes to the shard that it is about.

It has the calls of :class:`~scrapy_aopic.core.crawl.Crawl`, and passes each to the shard of its lease, of its host, or of its page,
if the host of that was named before.

Rule 1: a call about a shard that this process does not hold, or no longer, changes nothing. A lease of such a shard is
``STALE``; a link to such a page goes out by mail.

Rule 2: a page of another shard than that of the visit in which it is found is taken for new, even if that shard is held
here, so that the link is sent with its request: the other shard may lose its last commit, and the page with it.

Rule 3: an instant before which a host must be left alone is later by as much as this process's clock may be behind, because the
shard may be handed over to a process whose clock is right.

Rule 4: a shard that raises a :class:`~scrapy_aopic.exceptions.StorageError` is not used again; see :meth:`.cluster_shard.ClusterShard.ask`.
"""

from __future__ import annotations

import time
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from scrapy_aopic.core.api import ORDINARY, Counts, Ending, Findings, HostsByPlace, Lease, Settled
from scrapy_aopic.core.counters import Counters
from scrapy_aopic.core.duplicates import Judgement
from scrapy_aopic.core.frontier.frontier import Empty, NotBefore, Standing, Unlocated
from scrapy_aopic.core.ledger import TOTAL, Totals
from scrapy_aopic.core.politeness import Gap, Pace, TransferResult
from scrapy_aopic.core.records import HOST_BYTES, Link, Page, host_key
from scrapy_aopic.core.revisits.rounds import Round, together
from scrapy_aopic.core.shard import Shard
from scrapy_aopic.core.shards.cut import Cut, ShardId

from .shared_learning import HarvestOfJob

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from scrapy_aopic.core.focus.leads import Lead
    from scrapy_aopic.core.focus.strategy import Chance
    from scrapy_aopic.core.frontier.host_state import HostState
    from scrapy_aopic.core.policy import Policy

    from .clock import SharedClock
    from .cluster_shard import ClusterShard

_MAX_HOSTS = 50_000
"""Hosts whose shards are remembered by key, some 6 MB: many times those that are in work."""

_SOON = 0.02
"""Seconds until a shard whose last commit is too old is looked at again."""

_VALUE_SECONDS = 0.005
"""Seconds of the event loop after which no further shard's pages get new values: each read may wait for the server."""

_NUMBER_BYTES = 2
"""Bytes of the number of the shard whose pages get new values next."""

_MAX_STRANGERS = 1_000
"""Hosts of other processes' shards whose pace is remembered: only callbacks' own downloads lead to them."""


P = ParamSpec("P")
T = TypeVar("T")
Otherwise = TypeVar("Otherwise")


def _routed(
    method: Callable[Concatenate[Shard, P], T], otherwise: Otherwise, *, at: int = 0, changes: bool = False
) -> Callable[Concatenate[ShardRouter, P], T | Otherwise]:
    """*method* of the shard that an argument is about; *otherwise* is its result if that shard is not here, or not usable.

    Args:
        at: Number of that argument, which is given by position: see :meth:`ShardRouter._shard_of`.
        changes: Whether the call may change the shard.
    """

    def routed(self: ShardRouter, /, *args: P.args, **kwargs: P.kwargs) -> T | Otherwise:
        held = self._shard_of(args[at])
        if held is None:
            return otherwise
        if changes:
            held.touch()
        return held.ask(method, *args, **kwargs)

    return routed


def _pair(each: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Both sums of *each*."""
    first, second = zip((0, 0), *each, strict=True)
    return sum(first), sum(second)


class ShardRouter:
    """The shards that this process holds of the *of* shards of a job.

    Methods without a docstring are those of :class:`~scrapy_aopic.core.api.SessionPort`, which describes them.

    Attributes:
        held: The shards by number.
        counters: Counts of what this process has done.
        harvest: How many pages were relevant for a topic, of the whole job.
        created_at: When it began.
        order_name: Name of the class of the order.
        politeness: For how long hosts are left alone.
        is_resumed: Never: shards come and go, and what other workers have written beside the job is not here.
    """

    is_resumed = False

    def __init__(self, of: int, policy: Policy, clock: SharedClock) -> None:
        now = clock()
        self._clock = clock
        self.held: dict[int, ClusterShard] = {}
        self._is_blocked: Callable[[str], str] | None = None
        self.counters = Counters(since=now, is_whole=True)
        self.harvest = HarvestOfJob()
        self._sample: tuple[int, Chance] | None = None
        self.created_at = now
        self.order_name = type(policy.order).__name__
        self.politeness = policy.politeness
        self._cut = Cut(ShardId(0, of), policy.domain_of, policy.spread)
        self._by_host: dict[bytes, int] = {}
        self._early: list[tuple[Link, bool, float]] = []
        self._strangers: dict[bytes, tuple[Pace, float]] = {}

    # -- which shard

    def _number(self, name: str) -> int:
        """The shard of the host called *name*, whose key is remembered."""
        number = self._cut.of_host(name)
        if len(self._by_host) >= _MAX_HOSTS:
            self._by_host.clear()
        self._by_host[host_key(name)] = number
        return number

    def _number_of(self, key: bytes, name: str) -> int:
        """The shard of the page under *key*, if the name of its host is known here."""
        number = self._by_host.get(key[:HOST_BYTES])
        return self._number(name) if number is None else number

    def _own(self, keys: Sequence[bytes], hosts: Sequence[str], lease: Lease) -> list[bytes]:
        """Those of *keys*, of pages of the hosts called *hosts*, that belong to the shard of *lease*."""
        number = self._number(lease.host)
        return [key for key, host in zip(keys, hosts, strict=True) if self._number_of(key, host) == number]

    def _shard_of(self, what: object) -> ClusterShard | None:
        """The shard here of *what*, if it may be changed: a lease, a host, or a key of one named before."""
        if isinstance(what, bytes):
            number = self._by_host.get(what[:HOST_BYTES], -1)
        else:
            assert isinstance(what, (Lease, Unlocated, str)), what
            number = self._number(
                what.host if isinstance(what, Lease) else what if isinstance(what, str) else what.name
            )
        held = self.held.get(number)
        return held if held is not None and held.is_usable else None

    def _each(self) -> Iterator[Shard]:
        return (held.shard for held in self.held.values())

    def _usable(self) -> Iterator[ClusterShard]:
        return (held for held in self.held.values() if held.is_usable)

    def came(self, held: ClusterShard, now: float) -> None:
        """*held* has come: what was asked of all shards before is asked of it, too."""
        if self._is_blocked is not None:
            held.touch()
            held.shard.block(self._is_blocked, now)
        if self._sample is not None:
            held.touch()
            held.shard.begin_sample(*self._sample)
        early, self._early = self._early, []
        for link, is_endowed, worth in early:
            self.seed(link, now, is_endowed=is_endowed, worth=worth)

    # -- what is known

    @property
    def counts(self) -> Counts:
        """Of all shards that are held."""
        return Counts(*map(sum, zip((0, 0, 0, 0), *(shard.counts for shard in self._each()), strict=True)))

    def __len__(self) -> int:
        return sum(map(len, self._each()))

    @property
    def n_merged(self) -> int:
        """Pages that were merged with another one since the shards were opened."""
        return sum(shard.n_merged for shard in self._each())

    @property
    def round(self) -> Round | None:
        """That of the shards that are held; the latest, if they are in several."""
        return next(
            reversed(together(shard.round for shard in self._each() if shard.round is not None)), None
        )

    @property
    def cache_hits(self) -> tuple[int, int]:
        return _pair(shard.cache_hits for shard in self._each())

    @property
    def dead(self) -> tuple[int, int]:
        return _pair(shard.dead for shard in self._each())

    @property
    def stranded(self) -> int:
        return sum(shard.stranded for shard in self._each())

    @property
    def blocked(self) -> tuple[int, int]:
        return _pair(shard.blocked for shard in self._each())

    def block(self, is_blocked: Callable[[str], str] | None, now: float) -> None:
        self._is_blocked = is_blocked
        for held in self._usable():
            held.touch()
            held.shard.block(is_blocked, now)

    @property
    def totals(self) -> Totals:
        """Sums of cash over the shards that are held; the virtual time is that of one, for it is that of the job."""
        each = [shard.ledger.totals for shard in self._each()]
        return Totals(
            virtual=sum(totals.virtual for totals in each),
            balance=sum(totals.balance for totals in each) + (len(each) - 1) * TOTAL,
            distributed=sum(totals.distributed for totals in each),
            history=sum(totals.history for totals in each),
            turn=max((totals.turn for totals in each), default=0.0),
        )

    @property
    def active_hosts(self) -> list[Collection[HostState]]:
        return [hosts for shard in self._each() for hosts in shard.active_hosts]

    @property
    def hosts_by_place(self) -> HostsByPlace:
        nowhere = HostsByPlace(0, 0, 0, 0, 0, 0)
        each = (shard.hosts_by_place for shard in self._each())
        return HostsByPlace(*map(sum, zip(nowhere, *each, strict=True)))

    page = _routed(Shard.page, None)
    request = _routed(Shard.request, b"")

    def find(self, key: bytes, host: str, lease: Lease | None = None) -> Page | None:
        """The page under *key* of the host called *host*, if a shard knows it that is held.

        Args:
            lease: Lease of the page that links to it: see rule 2.
        """
        number = self._number(host)
        if lease is not None and self._number(lease.host) != number:
            return None
        held = self.held.get(number)
        return held.ask(Shard.page, key) if held is not None and not held.is_broken else None

    _find_many = _routed(Shard.find_many, (), at=2)

    def find_many(self, keys: Sequence[bytes], hosts: Sequence[str], lease: Lease) -> list[Page | None]:
        """The pages under *keys*, of the hosts called *hosts*, that the shard of *lease* knows, with one read."""
        own = self._own(keys, hosts, lease)
        pages = dict(zip(own, self._find_many(own, hosts, lease), strict=False))
        return list(map(pages.get, keys))

    def is_from_before(self, page: Page | None) -> bool:
        """Yes: that another worker starts from a page, too, must not have it fetched again."""
        del page
        return True

    def worth(self, key: bytes, page: Page) -> tuple[float, int]:
        return self._worth(key, page) or (0.0, page.cash)

    _worth = _routed(Shard.worth, None)

    # -- waiting

    def has_work(self, now: float) -> bool:
        """Whether there are pages or letters to wait for."""
        return bool(self._early) or any(held.has_work(now) for held in self.held.values())

    def when(self) -> NotBefore | Empty:
        instants = [when.instant for shard in self._each() if isinstance(when := shard.when(), NotBefore)]
        return NotBefore(min(instants)) if instants else Empty()

    def awaited(self) -> tuple[float, str]:
        return min((awaited for shard in self._each() if (awaited := shard.awaited())[1]), default=(inf, ""))

    # -- pages come in

    def seed(
        self, link: Link, now: float, *, is_endowed: bool = True, worth: float = 1.0, found_on: bytes = b""
    ) -> bool:
        """Queue a page that no page in flight pays, in whatever shard; see :meth:`scrapy_aopic.core.shard.Shard.seed`."""
        held = self._shard_of(found_on or link.host)
        if held is None:
            held, found_on = next(self._usable(), None), b""
        if held is None:
            self._early.append((link, is_endowed, worth))
            return True
        held.touch()
        return held.ask(Shard.seed, link, now, is_endowed=is_endowed, worth=worth, found_on=found_on)

    # -- what will be wanted

    @property
    def prefetches(self) -> bool:
        return any(shard.prefetches for shard in self._each())

    prefetch_text = _routed(Shard.prefetch_text, None)
    _prefetch_links = _routed(Shard.prefetch_links, 0, at=2)
    has_come = _routed(Shard.has_come, otherwise=True, at=1)

    def prefetch_links(self, keys: Sequence[bytes], hosts: Sequence[str], lease: Lease) -> int:
        return self._prefetch_links(self._own(keys, hosts, lease), hosts, lease)

    # -- leases

    def lease(self, now: float, hold_late: float = 0.0) -> Lease | Unlocated | NotBefore | Empty:
        """Hand out the best page over all shards whose host may be fetched from at *now*.

        Args:
            hold_late: See :meth:`scrapy_aopic.core.api.SessionPort.lease`; a host of any shard counts that is free by then.
        """
        first, is_held = inf, False
        ready: list[tuple[Standing | None, ClusterShard]] = []
        for held in self.held.values():
            if held.wakes_at > now:
                first = min(first, held.wakes_at)
            elif held.is_ready:
                ready.append((held.ask(Shard.best, now), held))
            elif not held.is_leaving and held.has_work(now):
                first = min(first, now + _SOON)
        # A shard may have pages to visit again although nothing stands ready in its queues.
        ready.sort(key=lambda pair: (pair[0] is None, pair[0] or ()))
        if hold_late and ready and (ready[0][0] is None or ready[0][0].is_late):
            is_held = any(held.ask(Shard.expects, now, hold_late) for held in self.held.values())
        for standing, held in ready:
            if is_held and standing is not None:
                continue
            found = held.ask(Shard.lease, now, hold_late)
            if isinstance(found, Lease):
                self._number(found.host)
                held.touch()
                return found
            if not isinstance(found, NotBefore | Empty):
                return found
            if isinstance(found, NotBefore) and found.is_held:
                is_held = True
                continue
            held.wakes_at = found.instant if isinstance(found, NotBefore) else inf
            first = min(first, held.wakes_at)
        if is_held:
            return NotBefore(min(first, now + hold_late), is_held=True)
        return NotBefore(first) if first != inf else Empty()

    release = _routed(Shard.release, Ending.STALE, changes=True)
    _announce = _routed(Shard.announce, None, changes=True)
    _settle = _routed(Shard.settle, Settled(Ending.STALE), changes=True)
    _put_back = _routed(Shard.put_back, Ending.STALE, changes=True)

    def announce(self, lease: Lease, links: Sequence[Link], now: float, n_links: int = 0) -> list[Link]:
        given = self._announce(lease, links, now, n_links)
        if given is None:  # the worker that has its shard now fetches the page again, and pays
            for link in links:
                if link.request:
                    self.seed(link, now, is_endowed=False)
        return given or []

    def settle(self, lease: Lease, links: Sequence[Link], now: float, found: Findings = ORDINARY) -> Settled:
        settled = self._settle(lease, links, now, found)
        if settled.ending == Ending.OK:
            self.counters.settled(found.outcome, found.wishes)
            if found.value:
                self.harvest.note(is_relevant=found.is_relevant)
        return settled

    def put_back(self, lease: Lease, link: Link, now: float, *, has_failed: bool = False) -> Ending:
        ending = self._put_back(lease, link, now, has_failed=has_failed)
        self.counters.put_back += ending == Ending.OK
        return ending

    def permit(self, host: str, lease: Lease | None) -> Callable[[], bool] | None:
        """See :meth:`.job.Job.permit`.

        The host of a page may not if its shard was lost meanwhile, even if this process has got it back: the page is queued again
        there. A host of another worker's shard always may; only callbacks' own downloads lead there.
        """
        held = self.held.get(self._number(host))
        if held is None and lease is None:
            return None
        return partial(self._is_safe, held, lease)

    def _is_safe(self, held: ClusterShard | None, lease: Lease | None) -> bool:
        return held is not None and self.held.get(held.number) is held and held.is_safe(lease)

    # -- hosts

    _transferred = _routed(Shard.transferred, None, changes=True)
    _hold = _routed(Shard.hold, None, changes=True)
    _defer = _routed(Shard.defer, None, changes=True)
    _charge = _routed(Shard.charge, None, changes=True)
    _lift = _routed(Shard.lift, inf, changes=True)
    _set_crawl_delay = _routed(Shard.set_crawl_delay, None, changes=True)
    _not_before = _routed(Shard.not_before, None)
    _longest_gap = _routed(Shard.longest_gap, None)
    _silent_until = _routed(Shard.silent_until, 0.0)
    allow = _routed(Shard.allow, None, changes=True)
    locate = _routed(Shard.locate, None, changes=True)
    allowed = _routed(Shard.allowed, 0)
    pages_left = _routed(Shard.pages_left, None)
    is_dead = _routed(Shard.is_dead, otherwise=False)
    down = _routed(Shard.down, 0)

    def transferred(self, name: str, result: TransferResult, now: float) -> Gap:
        self.counters.transferred(result)
        gap = self._transferred(name, result, now + self._clock.lag)
        if gap is not None:
            return gap
        if len(self._strangers) >= _MAX_STRANGERS:
            self._strangers.clear()
        pace, not_before = self._strangers.get(host_key(name)) or (Pace(name), 0.0)
        gap = self.politeness.after(
            pace, result.seconds, result.outcome, result.retry_after, is_of_proxy=result.is_of_proxy
        )
        self._strangers[host_key(name)] = pace, max(not_before, now + max(gap.own, result.at_least))
        return gap

    def hold(self, host: bytes, origin: str, not_before: float, *, is_for_all: bool) -> None:
        self._hold(host, origin, not_before + self._clock.lag, is_for_all=is_for_all)

    def defer(self, host: bytes, not_before: float) -> None:
        self._defer(host, not_before + self._clock.lag)

    def charge(self, host: bytes, seconds: float, before: float, now: float) -> None:
        self._charge(host, seconds, before, now + self._clock.lag)

    def lift(self, host: bytes, origin: str, now: float) -> float:
        return self._lift(host, origin, now + self._clock.lag)

    def set_crawl_delay(self, name: str, seconds: float, now: float) -> None:
        self._set_crawl_delay(name, seconds, now + self._clock.lag)

    def not_before(self, host: bytes) -> float:
        instant = self._not_before(host)
        return instant if instant is not None else self._strangers.get(host, (None, 0.0))[1]

    def longest_gap(self, name: str) -> float:
        gap = self._longest_gap(name)
        return gap if gap is not None else self.politeness.longest(Pace(name))

    def silent_until(self, host: bytes, origin: str) -> float:
        return self._silent_until(host, origin) - self._clock.lag

    @property
    def paused_until(self) -> float:
        """Instant before which no page of any shard is leased, because of crashes; 0 if there is none."""
        return min((shard.paused_until for shard in self._each()), default=0.0)

    # -- pages that are the same

    judge = _routed(Shard.judge, Judgement())
    give_way = _routed(Shard.give_way, otherwise=False)
    same_as = _routed(Shard.same_as, b"")

    # -- a topic

    def strategy(self) -> None:
        """Nothing: what was learned is kept for all shards together, see :mod:`.shared_learning`."""

    def keep_strategy(self, data: bytes) -> None:
        """Nothing: see :meth:`strategy`."""

    lead = _routed(Shard.lead, b"")
    gist = _routed(Shard.gist, b"")
    set_aside = _routed(Shard.set_aside, None)

    def revalue(
        self, worth: Callable[[Lead], int | None], now: float, begin: bytes, n: int
    ) -> tuple[int, bytes]:
        """Give waiting pages other values, of one shard after the other; see :meth:`scrapy_aopic.core.api.TopicCalls.revalue`.

        Shards that come or go meanwhile may be missed: their pages wait where they did until the next time.
        """
        at, key = int.from_bytes(begin[:_NUMBER_BYTES], "big"), begin[_NUMBER_BYTES:]
        n_seen = n_changed = 0

        def counted(lead: Lead) -> int | None:
            nonlocal n_seen
            n_seen += 1
            return worth(lead)

        until = time.perf_counter() + _VALUE_SECONDS
        numbers = sorted(number for number in self.held if number >= at)
        for number in numbers:
            if n_seen >= n or time.perf_counter() > until:
                return n_changed, number.to_bytes(_NUMBER_BYTES, "big")
            held = self.held[number]
            if not held.is_usable or held.commits.is_behind:
                continue
            changed, end = held.ask(Shard.revalue, counted, now, key if number == at else b"", n - n_seen)
            if changed:
                held.touch()
                n_changed += changed
            if end:
                return n_changed, number.to_bytes(_NUMBER_BYTES, "big") + end
        return n_changed, b""

    def begin_sample(self, size: int, chance: Chance) -> None:
        """Set aside up to *size* pages of each shard for people to label; see :func:`~scrapy_aopic.core.focus.sample.read_samples`."""
        self._sample = size, chance
        for held in self._usable():
            held.touch()
            held.shard.begin_sample(size, chance)

    # -- robots.txt

    robots = _routed(Shard.robots, None)
    keep_robots = _routed(Shard.keep_robots, None, changes=True)
