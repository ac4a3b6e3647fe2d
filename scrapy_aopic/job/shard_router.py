"""The shards that a process holds, as one crawl for its session: each call goes to the shard that it is about.

It has the calls of :class:`~scrapy_aopic.core.crawl.Crawl`, and passes each to the shard of its lease, of its host, or of its page,
if the host of that was named before.

Rule 1: a call about a shard that this process does not hold, or no longer, changes nothing. A lease of such a shard is
``STALE``; a link to such a page goes out by mail.

Rule 2: a page of another shard than that of the visit in which it is found is taken for new, even if that shard is held
here, so that the link is sent with its request: the other shard may lose its last commit, and the page with it.

Rule 3: an instant before which a host must be left alone is later by as much as this process's clock may be behind, because the
shard may be handed over to a process whose clock is right.

Rule 4: a shard that raises a :class:`StorageError` is not used again: this process may have lost it without knowing yet, so that
others have changed its rows.
"""

from __future__ import annotations

import time
from functools import partial, wraps
from math import inf
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from scrapy_aopic.core.api import ORDINARY, Counts, Ending, Findings, HostsByPlace, Lease, Settled
from scrapy_aopic.core.counters import Counters
from scrapy_aopic.core.duplicates import Judgement, Text
from scrapy_aopic.core.frontier.frontier import Empty, NotBefore, Standing, Unlocated
from scrapy_aopic.core.ledger import TOTAL, Totals
from scrapy_aopic.core.politeness import Gap, Pace, TransferResult
from scrapy_aopic.core.records import HOST_BYTES, Link, Page, host_key
from scrapy_aopic.core.shards.cut import Cut, ShardId
from scrapy_aopic.exceptions import StorageError

from .shared_learning import HarvestOfJob

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from scrapy_aopic.core.focus.leads import Lead
    from scrapy_aopic.core.focus.sample import Sampled
    from scrapy_aopic.core.focus.strategy import Chance
    from scrapy_aopic.core.frontier.host_state import HostState
    from scrapy_aopic.core.policy import Policy
    from scrapy_aopic.core.shard import Shard

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


def _watched(
    method: Callable[Concatenate[ShardRouter, P], T],
) -> Callable[Concatenate[ShardRouter, P], T]:
    """Have *method* mark the shard as broken that raises a :class:`StorageError`: see rule 4."""

    @wraps(method)
    def watched(self: ShardRouter, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except StorageError as error:
            if self._last_called is not None:
                self._last_called.mark_broken(error)
            raise

    return watched


class ShardRouter:
    """The shards that this process holds of the *of* shards of a job.

    Methods without a docstring are those of :class:`~scrapy_aopic.core.api.SessionPort`, which describes them.

    Attributes:
        held: The shards by number.
        is_blocked: Says why the host of a name is blocked, ``""`` if it is not; ``None`` if no host is blocked.
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
        self._last_called: ClusterShard | None = None
        self.held: dict[int, ClusterShard] = {}
        self.is_blocked: Callable[[str], str] | None = None
        self.counters = Counters(since=now, is_whole=True)
        self.harvest = HarvestOfJob()
        self._sample: tuple[int, Chance] | None = None
        self.created_at = now
        self.order_name = type(policy.order).__name__
        self.politeness = policy.politeness
        self._cut = Cut(ShardId(0, of), policy.domain_of)
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

    def _of_name(self, name: str) -> ClusterShard | None:
        """The shard of the host called *name*, if it is held and may be changed."""
        held = self._last_called = self.held.get(self._number(name))
        return None if held is None or held.has_ended or held.is_broken else held

    def _of_key(self, key: bytes) -> ClusterShard | None:
        """The usable shard here of the host with whose key *key* begins, if the name of that host is known here."""
        number = self._by_host.get(key[:HOST_BYTES])
        held = self._last_called = self.held.get(number) if number is not None else None
        return None if held is None or held.has_ended or held.is_broken else held

    def _each(self) -> Iterator[Shard]:
        return (held.shard for held in self.held.values())

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
    def cache_hits(self) -> tuple[int, int]:
        hits = [shard.cache_hits for shard in self._each()]
        return sum(each[0] for each in hits), sum(each[1] for each in hits)

    @property
    def dead(self) -> tuple[int, int]:
        dead = [shard.dead for shard in self._each()]
        return sum(each[0] for each in dead), sum(each[1] for each in dead)

    @property
    def stranded(self) -> int:
        return sum(shard.stranded for shard in self._each())

    @property
    def blocked(self) -> tuple[int, int]:
        blocked = [shard.blocked for shard in self._each()]
        return sum(each[0] for each in blocked), sum(each[1] for each in blocked)

    def block(self, is_blocked: Callable[[str], str] | None, now: float) -> None:
        self.is_blocked = is_blocked
        for held in self.held.values():
            self.block_in(held, now)

    def block_in(self, held: ClusterShard, now: float) -> None:
        """Block in *held*, which may just have come, what is blocked in all shards."""
        if not held.has_ended:
            held.touch()
            held.shard.block(self.is_blocked, now)

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

    @_watched
    def find(self, key: bytes, host: str, lease: Lease | None = None) -> Page | None:
        """The page under *key* of the host called *host*, if a shard knows it that is held.

        Args:
            lease: Lease of the page that links to it: see rule 2.
        """
        number = self._number(host)
        if lease is not None and self._number(lease.host) != number:
            return None
        held = self._last_called = self.held.get(number)
        return held.shard.page(key) if held is not None and not held.is_broken else None

    @_watched
    def find_many(self, keys: Sequence[bytes], hosts: Sequence[str], lease: Lease) -> list[Page | None]:
        """The pages under *keys*, of the hosts called *hosts*, that the shard of *lease* knows, with one read."""
        held = self._of_name(lease.host)
        own = self._own(keys, hosts, lease) if held is not None else []
        if held is None or not own:
            return [None] * len(keys)
        pages = dict(zip(own, held.shard.pages.get_many(own), strict=True))
        return list(map(pages.get, keys))

    @_watched
    def page(self, key: bytes) -> Page | None:
        """The page under *key*, if its host was named before."""
        held = self._of_key(key)
        return held.shard.page(key) if held is not None else None

    @_watched
    def request(self, key: bytes) -> bytes:
        held = self._of_key(key)
        return held.shard.request(key) if held is not None else b""

    def is_from_before(self, page: Page | None) -> bool:
        """Yes: that another worker starts from a page, too, must not have it fetched again."""
        del page
        return True

    @_watched
    def worth(self, key: bytes, page: Page) -> tuple[float, int]:
        held = self._of_key(key)
        return held.shard.worth(key, page) if held is not None else (0.0, page.cash)

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

    @_watched
    def seed(
        self, link: Link, now: float, *, is_endowed: bool = True, worth: float = 1.0, found_on: bytes = b""
    ) -> bool:
        """Queue a page that no page in flight pays, in whatever shard; see :meth:`scrapy_aopic.core.shard.Shard.seed`."""
        held = self._of_key(found_on) if found_on else self._of_name(link.host)
        if held is None:
            usable = (each for each in self.held.values() if not (each.has_ended or each.is_broken))
            held = self._last_called = next(usable, None)
            found_on = b""
        if held is None:
            self._early.append((link, is_endowed, worth))
            return True
        held.touch()
        return held.shard.seed(link, now, is_endowed=is_endowed, worth=worth, found_on=found_on)

    def seed_early(self, now: float) -> None:
        """Queue the pages that came before any shard was held."""
        if self.held:
            early, self._early = self._early, []
            for link, is_endowed, worth in early:
                self.seed(link, now, is_endowed=is_endowed, worth=worth)

    # -- what will be wanted

    @property
    def prefetches(self) -> bool:
        return any(shard.prefetches for shard in self._each())

    def prefetch_text(self, lease: Lease, text: Text, key: bytes = b"") -> None:
        held = self._of_name(lease.host)
        if held is not None:
            held.shard.prefetch_text(lease, text, key)

    def prefetch_links(self, keys: Sequence[bytes], hosts: Sequence[str], lease: Lease) -> int:
        held = self._of_name(lease.host)
        return (
            held.shard.prefetch_links(self._own(keys, hosts, lease), hosts, lease) if held is not None else 0
        )

    def has_come(self, number: int, lease: Lease) -> bool:
        held = self._of_name(lease.host)
        return held is None or held.shard.has_come(number, lease)

    # -- leases

    @_watched
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
                self._last_called = held
                ready.append((held.shard.best(now), held))
            elif not held.is_leaving and held.has_work(now):
                first = min(first, now + _SOON)
        # A shard may have pages to visit again although nothing stands ready in its queues.
        ready.sort(key=lambda pair: (pair[0] is None, pair[0] or ()))
        if hold_late and ready and (ready[0][0] is None or ready[0][0].is_late):
            is_held = any(held.shard.expects(now, hold_late) for held in self.held.values())
        for standing, held in ready:
            if is_held and standing is not None:
                continue
            self._last_called = held
            found = held.shard.lease(now, hold_late)
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

    @_watched
    def release(self, lease: Lease, now: float) -> Ending:
        held = self._of_name(lease.host)
        if held is None:
            return Ending.STALE
        held.touch()
        return held.shard.release(lease, now)

    @_watched
    def announce(self, lease: Lease, links: Sequence[Link], now: float, n_links: int = 0) -> list[Link]:
        held = self._of_name(lease.host)
        if held is None:  # the worker that has its shard now fetches the page again, and pays
            for link in links:
                if link.request:
                    self.seed(link, now, is_endowed=False)
            return []
        held.touch()
        return held.shard.announce(lease, links, now, n_links)

    @_watched
    def settle(self, lease: Lease, links: Sequence[Link], now: float, found: Findings = ORDINARY) -> Settled:
        held = self._of_name(lease.host)
        if held is None:
            return Settled(Ending.STALE)
        held.touch()
        settled = held.shard.settle(lease, links, now, found)
        if settled.ending == Ending.OK:
            self.counters.settled(found.outcome, found.wishes)
            if found.value:
                self.harvest.note(is_relevant=found.is_relevant, expected=found.expected)
        return settled

    @_watched
    def put_back(self, lease: Lease, link: Link, now: float, *, has_failed: bool = False) -> Ending:
        held = self._of_name(lease.host)
        if held is None:
            return Ending.STALE
        held.touch()
        ending = held.shard.put_back(lease, link, now, has_failed=has_failed)
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

    @_watched
    def transferred(self, name: str, result: TransferResult, now: float) -> Gap:
        self.counters.transferred(result)
        held = self._of_name(name)
        if held is not None:
            held.touch()
            return held.shard.transferred(name, result, now + self._clock.lag)
        if len(self._strangers) >= _MAX_STRANGERS:
            self._strangers.clear()
        pace, not_before = self._strangers.get(host_key(name)) or (Pace(name), 0.0)
        gap = self.politeness.after(pace, result.seconds, result.outcome, result.retry_after)
        self._strangers[host_key(name)] = pace, max(not_before, now + max(gap.own, result.at_least))
        return gap

    @_watched
    def hold(self, host: bytes, origin: str, not_before: float, *, is_for_all: bool) -> None:
        held = self._of_key(host)
        if held is not None:
            held.touch()
            held.shard.hold(host, origin, not_before + self._clock.lag, is_for_all=is_for_all)

    @_watched
    def set_crawl_delay(self, name: str, seconds: float, now: float) -> None:
        held = self._of_name(name)
        if held is not None:
            held.touch()
            held.shard.set_crawl_delay(name, seconds, now + self._clock.lag)

    @_watched
    def allow(self, name: str, what: int) -> None:
        held = self._of_name(name)
        if held is not None:
            held.touch()
            held.shard.allow(name, what)

    @_watched
    def allowed(self, name: str) -> int:
        held = self._of_name(name)
        return held.shard.allowed(name) if held is not None else 0

    @_watched
    def locate(self, host: Unlocated, address: str, now: float) -> None:
        held = self._of_name(host.name)
        if held is not None:
            held.touch()
            held.shard.locate(host, address, now)

    @_watched
    def not_before(self, host: bytes) -> float:
        held = self._of_key(host)
        if held is not None:
            return held.shard.not_before(host)
        return self._strangers[host][1] if host in self._strangers else 0.0

    @property
    def paused_until(self) -> float:
        """Instant before which no page of any shard is leased, because of crashes; 0 if there is none."""
        return min((shard.paused_until for shard in self._each()), default=0.0)

    @_watched
    def pages_left(self, name: str) -> int | None:
        held = self._of_name(name)
        return held.shard.pages_left(name) if held is not None else None

    @_watched
    def longest_gap(self, name: str) -> float:
        held = self._of_name(name)
        return held.shard.longest_gap(name) if held is not None else self.politeness.longest(Pace(name))

    @_watched
    def is_dead(self, host: bytes, origin: str = "") -> bool:
        held = self._of_key(host)
        return held is not None and held.shard.is_dead(host, origin)

    @_watched
    def silent_until(self, host: bytes, origin: str) -> float:
        held = self._of_key(host)
        return held.shard.silent_until(host, origin) - self._clock.lag if held is not None else 0.0

    @_watched
    def down(self, host: bytes, origin: str = "") -> int:
        held = self._of_key(host)
        return held.shard.down(host, origin) if held is not None else 0

    # -- pages that are the same

    @_watched
    def judge(self, lease: Lease, text: Text | None, key: bytes = b"") -> Judgement:
        held = self._of_name(lease.host)
        return held.shard.judge(lease, text, key) if held is not None else Judgement()

    @_watched
    def give_way(self, lease: Lease, other: bytes, key: bytes = b"") -> bool:
        held = self._of_name(lease.host)
        return held is not None and held.shard.give_way(lease, other, key)

    @_watched
    def same_as(self, key: bytes) -> bytes:
        held = self._of_key(key)
        return held.shard.same_as(key) if held is not None else b""

    # -- a topic

    def strategy(self) -> None:
        """Nothing: what was learned is kept for all shards together, see :mod:`.shared_learning`."""

    def keep_strategy(self, data: bytes) -> None:
        """Nothing: see :meth:`strategy`."""

    @_watched
    def lead(self, key: bytes) -> bytes:
        held = self._of_key(key)
        return held.shard.lead(key) if held is not None else b""

    @_watched
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
            held = self._last_called = self.held[number]
            if held.has_ended or held.is_broken or held.commits.is_behind:
                continue
            changed, end = held.shard.revalue(counted, now, key if number == at else b"", n - n_seen)
            if changed:
                held.touch()
                n_changed += changed
            if end:
                return n_changed, number.to_bytes(_NUMBER_BYTES, "big") + end
        return n_changed, b""

    def begin_sample(self, size: int, chance: Chance) -> None:
        """Set aside up to *size* pages of each shard for people to label; see :func:`~scrapy_aopic.core.focus.sample.read_samples`."""
        self._sample = size, chance
        for held in self.held.values():
            self.sample_in(held)

    def sample_in(self, held: ClusterShard) -> None:
        """Set pages aside in *held*, too, which may just have come."""
        if self._sample is not None and not held.has_ended:
            held.touch()
            held.shard.begin_sample(*self._sample)

    @_watched
    def set_aside(self, key: bytes, page: Sampled, text: Callable[[], str]) -> None:
        held = self._of_key(key)
        if held is not None:
            held.shard.set_aside(key, page, text)

    # -- robots.txt

    @_watched
    def robots(self, key: bytes) -> bytes | None:
        held = self._of_key(key)
        return held.shard.robots(key) if held is not None else None

    @_watched
    def keep_robots(self, key: bytes, data: bytes) -> None:
        held = self._of_key(key)
        if held is not None:
            held.touch()
            held.shard.keep_robots(key, data)
