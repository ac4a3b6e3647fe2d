"""Crawls a link graph with a job in shards that several workers share, each of which makes equally many fetches.

All shards are in this process, on stores in memory. Each worker has its part of the shards, and leases the best page of
these; they take turns. After a fixed number of fetches all shards commit, mail that has landed is carried, and each shard
learns the sums of the others: so a link to a page of another shard is late by one commit, and its acknowledgement by
another. Then shards are dealt anew, as real workers deal them if that is uneven for some seconds. No host has a gap.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.ledger import Sums
from scrapy_aopic.core.records import Link, host_key, page_key
from scrapy_aopic.core.shard import Shard, ShardId
from scrapy_aopic.core.shards.all_shards import audit_shards
from scrapy_aopic.core.shards.spread import counts_of, counts_without
from scrapy_aopic.job.dealing import deal, good_hosts
from scrapy_aopic.storage.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scrapy_aopic.core.policy import Policy

_LETTERS = 1000
"""Letters to one shard that are carried at once: all of them, for a shard writes some after each commit."""


class Sharing(NamedTuple):
    """How a crawl is shared.

    Attributes:
        order: Order of the crawl.
        workers: Number of workers.
        shards: Number of shards, not fewer than workers.
        late: Fetches of the whole job between two commits.
    """

    order: str
    workers: int
    shards: int
    late: int


class SharedSimulation:
    """One crawl of a graph by several workers.

    Args:
        out_links: Pages that a page links to.
        host_of: Host of a page.
        seeds: Pages to start from.
        fetches: Most visits of all workers together.
        policy: Makes the policy of a shard.
        sharing: How it is shared.
    """

    def __init__(
        self,
        out_links: Callable[[int], Sequence[int]],
        host_of: Callable[[int], str],
        seeds: Sequence[int],
        fetches: int,
        *,
        policy: Callable[[], Policy],
        sharing: Sharing,
    ) -> None:
        self._out_links, self._host_of = out_links, host_of
        self._fetches, self._late = fetches, sharing.late
        policies = [policy() for _ in range(sharing.shards)]
        self._policies = [replace(each, spread=each.rules.spread) for each in policies]
        self._stores = [MemoryStore() for _ in self._policies]
        self._shards = [
            Shard(store, policy, 0.0, ShardId(number, sharing.shards))
            for number, (store, policy) in enumerate(zip(self._stores, self._policies, strict=True))
        ]
        self._workers = [self._shards[number :: sharing.workers] for number in range(sharing.workers)]
        self._links: dict[int, Link] = {}
        for page in seeds:
            link = self._link(page)
            self._shards[self._shards[0].shard_of(link.host)].seed(link, 0.0)

    def run(self) -> Iterator[int]:
        """Crawl; yields the pages in the order of their visits."""
        done = turn = idle = 0
        # One round may find nothing because all that is left is in the mail, and another one because of that.
        while done < self._fetches and idle <= 2 * len(self._workers):
            found = self._lease(self._workers[turn % len(self._workers)])
            turn += 1
            if found is None:
                idle += 1
                if idle % len(self._workers) == 0:
                    self._exchange()
                continue
            idle = 0
            shard, lease = found
            page = int.from_bytes(lease.request, "big")
            shard.release(lease, 0.0)
            shard.settle(lease, [self._link(target) for target in self._out_links(page)], 0.0)
            done += 1
            if done % self._late == 0:
                self._exchange()
            yield page

    def violations(self) -> list[str]:
        """Invariants that do not hold at the end of the crawl, in a shard or between shards, a sentence each."""
        for _ in range(3):  # letters, acknowledgements, and their removal
            self._exchange()
        found = [
            violation
            for store, policy in zip(self._stores, self._policies, strict=True)
            for violation in audit(store, policy.order).violations
        ]
        return found + audit_shards(self._stores, self._policies[0].domain_of).violations

    def _link(self, page: int) -> Link:
        link = self._links.get(page)
        if link is None:
            host, request = self._host_of(page), page.to_bytes(6, "big")
            link = self._links[page] = Link(page_key(host_key(host), request), host, request)
        return link

    def _lease(self, worker: list[Shard]) -> tuple[Shard, Lease] | None:
        """The best page over all shards of a *worker*."""
        ranked = [(best, shard.id.number) for shard in worker if (best := shard.best(0.0)) is not None]
        if not ranked:
            return None
        shard = self._shards[min(ranked)[1]]
        found = shard.lease(0.0)
        return (shard, found) if isinstance(found, Lease) else None

    def _deal(self) -> None:
        """Deal the shards to the workers by what waits in each."""
        numbers = [str(number) for number in range(len(self._workers))]
        holders: dict[int, str | None] = {
            shard.id.number: number
            for number, held in zip(numbers, self._workers, strict=True)
            for shard in held
        }
        waiting = {shard.id.number: shard.n_waiting for shard in self._shards}
        ranks = {shard.id.number: shard.waiting_ranks for shard in self._shards}
        dealt = deal(holders, good_hosts(waiting, ranks), numbers)
        self._workers = [
            [shard for shard in self._shards if dealt[shard.id.number] == number] for number in numbers
        ]

    def _exchange(self) -> None:
        """Commit all shards, carry what has landed, and let each know the sums of the others."""
        for store, shard in zip(self._stores, self._shards, strict=True):
            store.write(shard.take_changes(0.0), sync=True)
            shard.changes_landed()
        for shard in self._shards:
            for sender, number in shard.mail.received_landed().items():
                self._shards[sender].acknowledged(shard.id.number, number)
        for shard in self._shards:
            for to in shard.mail.waiting():
                self._shards[to].receive(shard.letters(to, n=_LETTERS), 0.0)
        self._deal()
        sums = [(shard.sums, shard.spread) for shard in self._shards]
        whole = reduce(Sums.plus, [own for own, _ in sums])
        spread = counts_of(own for _, own in sums)
        for shard, (own, counts) in zip(self._shards, sums, strict=True):
            shard.learn(whole.less(own), counts_without(spread, counts))
