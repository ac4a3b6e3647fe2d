"""A shard of a job: a crawl of some of its registered domains, which sends mail to the other shards and gets theirs.

A job that is too large for one process is cut into shards by registered domain, and a domain that is too large for one, by
host (:mod:`.shards.cut`). Each is a whole :class:`~.crawl.Crawl`
on a store of its own: ledger, frontier, seen-set. What a *worker* does with it, beside what :mod:`.api` says of any
crawl::

    shard = Shard(store, policy, now, ShardId(3, 32))
    for other, (first, last) in shard.mail.waiting().items():
        letters = shard.letters(other, after=...)   # bytes, to be brought to that shard, by whatever way
    shard.receive(letters, now)                     # letters from other shards, from whatever way
    shard.mail.received_landed()                    # {sender: number}, to be brought to the senders
    shard.acknowledged(other, number)               # what another shard said of ours
    shard.learn(sums, spread)                       # those of all other shards added up, from time to time
    min(shards, key=lambda shard: shard.best(now))  # where to lease next, of several that have anything

Rule 1: one process at a time writes a store (*fencing*): its batch is applied only if the commit before it is the last
one that this process knows. A process that finds that it is not drops the shard without writing. The store ensures
that, not the core; the core ensures that everything else may go wrong.

Rule 2: letters may be lost, doubled, late and out of order. Those that come too early or once more change nothing; the
worker sends what is not acknowledged again, from time to time and when a shard was opened.

Rule 3: a letter leaves only when the commit that wrote it has landed, and is acknowledged only when the commit that
applied it has. So a process may die at any moment, and another one open the shard at its last commit: no link is lost,
none is applied twice, and the cash of all shards and of the letters between them is the same as ever, with ``==``.

Rule 4: what one shard hears of others by :meth:`Shard.learn` (visits, seeds, sums of cash, and the same of domains that are
spread) only shifts budgets and estimates. It may be late, or wrong for a while.

Rule 5: a link may lead to any page, and a seed may be given to any shard: both go where they belong. Everything else is
for pages of the shard itself.

Rule 6: arguments are checked before anything is changed. A call that raises has done nothing.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from scrapy_aopic.exceptions import CallError

from .crawl import Crawl
from .ledger import Sums
from .records import HOST_BYTES, Link
from .settling import check_links
from .shards.cut import WHOLE, ShardId
from .shards.letters import MAX_WORTH
from .shards.receiving import Received

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .policy import Policy
    from .ports import Store
    from .shards.spread import DomainCounts

__all__ = ["Received", "Shard", "ShardId", "Sums"]


class Shard(Crawl):
    """One shard of a job; see the rules above.

    Args:
        store: Where it is remembered, it alone.
        policy: How cash is spent; the same for all shards of a job.
        now: Seconds since the epoch.
        shard: Which it is. A job that is not cut is shard 0 of 1, with the same rows as those of a plain crawl.

    Raises:
        CallError: If there is no such shard, or the policy needs one place for the whole job.
        StorageError: If the store holds another shard or job.
    """

    def __init__(self, store: Store, policy: Policy, now: float, shard: ShardId = WHOLE) -> None:
        super().__init__(store, policy, now, shard)
        self.id = shard

    # -- pages come in

    def shard_of(self, host: str) -> int:
        """Number of the shard of the host called *host*."""
        return self.mail.cut.of_host(host) if self.mail.cut.has_others else 0

    def seed(
        self,
        link: Link,
        now: float,
        *,
        is_endowed: bool = True,
        worth: float = 1.0,
        found_on: bytes = b"",
        enriches: bool = False,
    ) -> bool:
        """Queue a page that no page in flight pays, in whatever shard; see :meth:`.api.VisitCalls.seed`.

        Args:
            enriches: Whether a page of another shard gets the cash of *worth* seeds if it is known there.

        Returns:
            False if the page is of this shard, and known. Whether one of another shard is known only that shard knows.

        Raises:
            CallError: If the link leads nowhere.
        """
        if (other := self.shard_of(link.host)) == self.id.number:
            return super().seed(link, now, is_endowed=is_endowed, worth=worth, found_on=found_on)
        check_links("seed", (link,))
        if not 0 <= worth <= MAX_WORTH:
            raise CallError(f"seed: worth must be 0 to {MAX_WORTH:g}, not {worth!r}")
        finder = b""
        if self.domain_links is not None and found_on:
            finder = self.domain_links.domain_of(
                self.frontier.places.expect(found_on[:HOST_BYTES], "a page in flight")
            )
        self.mail.seed(other, link, worth, is_endowed=is_endowed, enriches=enriches, finder=finder)
        self.commits.has_changes = True
        return True

    # -- mail

    def letters(self, shard: int, after: int = 0, n: int = 16) -> list[bytes]:
        """Letters to *shard* that may leave, in order: *n* at most of those after number *after*.

        Raises:
            StorageError: If one of them is not there any more.
        """
        return self.mail.letters(shard, after, n)

    def acknowledged(self, shard: int, number: int) -> None:
        """*shard* has all letters up to *number* in a commit that has landed: they are deleted.

        Raises:
            StorageError: If it has received a letter that this shard has not written.
        """
        self._check_has_others("acknowledged: a job in one piece writes no letters")
        if self.mail.acknowledged(shard, number):
            self.commits.has_changes = True

    def receive(self, letters: Sequence[bytes], now: float) -> Received:
        """Apply *letters* from other shards, in whatever order they are given, each of them once ever.

        Raises:
            StorageError: If one of them is no letter, or is for another shard or job; nothing was changed.
        """
        self._check_has_others("receive: a job in one piece gets no letters")
        received = self.receiver.receive(letters, now)
        if received.applied:
            self.commits.has_changes = True
        return received

    def _check_has_others(self, error: str) -> None:
        if not self.mail.cut.has_others:
            raise CallError(error)

    def expect(self, letter: bytes) -> int:
        """Begin to read what *letter*, which will be received soon, is about; see :meth:`.api.PageCalls.has_come`.

        Raises:
            StorageError: If it is no letter, or is for another shard or job.
        """
        return self.receiver.prepare(letter)

    # -- the whole job

    @property
    def sums(self) -> Sums:
        """What this shard adds to the sums of the job."""
        return self.ledger.totals.sums(
            visits=self.frontier.budgets.own_visits,
            seeds=self.domains.seeds if self.domains is not None else 0,
        )

    @property
    def spread(self) -> dict[str, DomainCounts]:
        """What this shard has of the domains that are spread over all shards, by name."""
        return self.domains.spread if self.domains is not None else {}

    def learn(self, elsewhere: Sums, spread: Mapping[str, DomainCounts] | None = None) -> None:
        """All other shards together have the sums *elsewhere* by now, and *spread* of the domains that are spread.

        Raises:
            CallError: If one of them is below 0.
        """
        spread = spread or {}
        if min(*elsewhere, *chain(*spread.values())) < 0:
            raise CallError(f"learn: sums must be 0 or more, not {elsewhere} and {spread}")
        self.ledger.learn(elsewhere)
        self.frontier.budgets.learn(elsewhere.visits)
        if self.domains is not None:
            self.domains.seeds_elsewhere = elsewhere.seeds
            for key in self.domains.learn(spread):
                self.frontier.supported(key)
