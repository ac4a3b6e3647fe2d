"""What the tests of shards share: a job of several shards on stores in memory, and a post office that loses nothing."""

from __future__ import annotations

from functools import reduce
from typing import Any

from scrapy_aopic.core.api import Findings, Lease, Settled
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.focus.leads import LeadsOfPage
from scrapy_aopic.core.focus.topic import LinkText
from scrapy_aopic.core.ledger import NOWHERE, Sums
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.records import HOST_BYTES, PAGE_BYTES, Link, Page
from scrapy_aopic.core.shard import Shard, ShardId
from scrapy_aopic.core.shards.all_shards import audit_shards
from scrapy_aopic.core.shards.cut import Cut
from scrapy_aopic.core.shards.spread import counts_of
from scrapy_aopic.storage.memory import MemoryStore
from support.core_crawl import NOW, link


def hosts_of(shard: int, of: int, n: int) -> list[str]:
    """*n* names of hosts in a *shard*."""
    cut, found = Cut(ShardId(0, of), str), list[str]()
    number = 0
    while len(found) < n:
        number += 1
        if cut.of_host(f"h{number}") == shard:
            found.append(f"h{number}")
    return found


def lead(number: int) -> bytes:
    """What is kept of a link that says *number*."""
    return LeadsOfPage(b"p" * PAGE_BYTES, 0.5, 1).pack(LinkText(str(number)))


class ShardedJob:
    """A job of *of* shards in one process; what is written is in the stores, and everything else may be lost."""

    def __init__(self, of: int = 2, **policy: Any) -> None:
        self.policy = Policy(**{"share": 0.25, **policy})
        self.of = of
        self.now = NOW
        self.stores = [MemoryStore() for _ in range(of)]
        self.shards = [self.opened(number) for number in range(of)]

    def opened(self, number: int) -> Shard:
        return Shard(self.stores[number], self.policy, self.now, ShardId(number, self.of))

    def reopen(self, number: int) -> None:
        """Another process takes over a shard at its last commit."""
        self.shards[number] = self.opened(number)

    def shard_of(self, of: Link) -> Shard:
        return self.shards[self.shards[0].shard_of(of.host)]

    def page(self, of: Link) -> Page:
        page = self.shard_of(of).page(of.key)
        assert page is not None
        return page

    def cash(self, of: Link) -> int:
        return self.shard_of(of).ledger.cash(self.page(of))

    def visit(self, number: int, *links: Link, **found: Any) -> tuple[Lease, Settled]:
        """Visit the best page of a shard."""
        shard = self.shards[number]
        lease = shard.lease(self.now)
        while not isinstance(lease, Lease):
            self.now = lease.instant  # type: ignore[union-attr]  # a test that waits for nothing fails here
            lease = shard.lease(self.now)
        shard.defer(lease.key[:HOST_BYTES], self.now, 0.1)
        shard.release(lease, self.now)
        return lease, shard.settle(lease, links, self.now, Findings(**found))

    def commit(self, number: int | None = None) -> None:
        """Commit one shard, or all; what is stored then must keep every invariant."""
        for each in range(self.of) if number is None else (number,):
            shard = self.shards[each]
            self.stores[each].write(shard.take_changes(self.now), sync=True)
            shard.changes_landed()
        self.check()

    def check(self) -> None:
        for store in self.stores:
            assert audit(store).violations == []
        assert audit_shards(self.stores, self.policy.domain_of).violations == []

    def carry(self) -> int:
        """Carry all mail that may leave, once, without acknowledgement; returns the letters that were applied."""
        n = 0
        for sender in self.shards:
            for number in sender.mail.waiting():
                n += self.shards[number].receive(sender.letters(number, n=1000), self.now).applied
        return n

    def acknowledge(self) -> None:
        for receiver in self.shards:
            for sender, number in receiver.mail.received_landed().items():
                self.shards[sender].acknowledged(receiver.id.number, number)

    def exchange(self) -> None:
        """Commit, carry and acknowledge until no mail is left."""
        for _ in range(100):
            self.commit()
            self.acknowledge()
            if not self.carry() and not any(shard.mail.waiting() for shard in self.shards):
                self.commit()
                return
        raise AssertionError("mail goes round for ever")

    def learn(self) -> None:
        for shard in self.shards:
            others = [other for other in self.shards if other is not shard]
            shard.learn(
                reduce(Sums.plus, [other.sums for other in others], NOWHERE),
                counts_of(other.spread for other in others),
            )


__all__ = ["ShardedJob", "hosts_of", "lead", "link"]
