"""Which shard of a job each host is in: all hosts of a registered domain are in one, unless the domain is *spread*.

Budgets, endowments and politeness count by registered domain, so all of these stay inside a shard. A domain that is too
large for one is spread: each of its hosts is in a shard by its own name, and what counts by domain is added up
(:meth:`scrapy_aopic.core.domains.Domains.learn`). The number of shards, and which domains are spread, are fixed when a job
begins; :mod:`scrapy_aopic.core.splitting` makes another job with others.

An *address* is a page key followed by the number of the page's shard. The key alone does not tell the shard: it has
only a hash of the host's name, from which the registered domain cannot be computed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from scrapy_aopic.core.domain import domain_key
from scrapy_aopic.core.records import PAGE_BYTES
from scrapy_aopic.exceptions import CallError

MAX_SHARDS = 1024
"""Most shards of a job: a shard keeps two small rows for each other shard, and 2**53 units for each fit 64 bits."""

_SHARD_BYTES = 2
"""Bytes of the number of a shard."""

ADDRESS_BYTES = PAGE_BYTES + _SHARD_BYTES
"""Bytes of an address."""

_MAX_HOSTS = 50_000
"""Hosts whose shards are kept in memory, some 5 MB."""


class ShardId(NamedTuple):
    """Shard *number*, counted from 0, *of* so many.

    Attributes:
        number: 0 to ``of - 1``.
        of: Shards of the job.
    """

    number: int
    of: int

    def __str__(self) -> str:
        return f"shard {self.number} of {self.of}"


WHOLE = ShardId(0, 1)
"""The only shard of a job in one piece."""


def address(key: bytes, shard: int) -> bytes:
    """Address of the page under *key* in a *shard*."""
    return key + shard.to_bytes(_SHARD_BYTES, "big")


def shard_of_address(where: bytes) -> int:
    """The shard of the page at the address *where*."""
    return int.from_bytes(where[PAGE_BYTES:], "big")


class Cut:
    """How a job is cut into shards, from the point of view of one of them.

    Args:
        own: That shard.
        domain_of: Registered domain of a host name; it must be the same for all shards and all runs of a job.
        spread: Names of the domains that are spread; the same for all, too.

    Attributes:
        spread: Those domains.
        has_others: Whether there are other shards, to which pages may belong, and mail may go.

    Raises:
        CallError: If no job can have such a shard.
    """

    def __init__(self, own: ShardId, domain_of: Callable[[str], str], spread: Collection[str] = ()) -> None:
        if not 1 <= own.of <= MAX_SHARDS or not 0 <= own.number < own.of:
            raise CallError(
                f"There is no {own}: a job has 1 to {MAX_SHARDS} shards, and the first one is number 0."
            )
        self.own = own
        self.has_others = own.of > 1
        self._domain_of = domain_of
        self.spread = frozenset(spread)
        self._spread_keys = frozenset(map(domain_key, spread))
        self._of_hosts: dict[str, int] = {}

    def in_shard(self, number: int) -> Cut:
        """The same, from the point of view of the shard of that *number*."""
        return Cut(self.own._replace(number=number), self._domain_of, self.spread)

    def of_host(self, name: str) -> int:
        """The shard of the host called *name*."""
        shard = self._of_hosts.get(name)
        if shard is None:
            if len(self._of_hosts) >= _MAX_HOSTS:
                self._of_hosts.clear()
            domain = self._domain_of(name)
            # With www and without, most hosts have the same pages, which a shard notices.
            kept = name.removeprefix("www.") if domain in self.spread else domain
            shard = self._of_hosts[name] = self.of_domain(domain_key(kept))
        return shard

    def of_domain(self, key: bytes) -> int:
        """The shard of the registered domain under *key*; of one that is spread, that of what is kept of it once."""
        return int.from_bytes(key, "big") % self.own.of

    def is_own(self, domain: bytes) -> bool:
        """Whether all hosts of the registered domain under *domain* are in this shard."""
        return self.of_domain(domain) == self.own.number and domain not in self._spread_keys
