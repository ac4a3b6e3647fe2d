"""What budgets count of a domain that is spread over the shards of a job (:mod:`.cut`).

Each shard has a record of such a domain, with what it has seen itself. It tells the others, and counts with what all have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scrapy_aopic.core.domain import Domain


class DomainCounts(NamedTuple):
    """What budgets count of a domain that is spread over shards, in some of these.

    Attributes:
        visited, seeds: As of a :class:`Domain`.
        supporters: About how many the shard knows that knows most.
    """

    visited: int = 0
    seeds: int = 0
    supporters: float = 0.0

    def plus(self, other: DomainCounts | Domain) -> DomainCounts:
        """Those of other shards, too."""
        supporters = max(self.supporters, other.supporters)
        return DomainCounts(self.visited + other.visited, self.seeds + other.seeds, supporters)

    def less(self, other: DomainCounts) -> DomainCounts:
        """Without those of other shards, but not below 0, as the two may be of different moments."""
        visited, seeds = max(self.visited - other.visited, 0), max(self.seeds - other.seeds, 0)
        return DomainCounts(visited, seeds, self.supporters)


def counts_of(shards: Iterable[Mapping[str, DomainCounts]]) -> dict[str, DomainCounts]:
    """The counts of *shards* together, by the names of domains."""
    whole: dict[str, DomainCounts] = {}
    for shard in shards:
        for name, counts in shard.items():
            whole[name] = counts.plus(whole.get(name, DomainCounts()))
    return whole


def counts_without(
    whole: Mapping[str, DomainCounts], own: Mapping[str, DomainCounts]
) -> dict[str, DomainCounts]:
    """The counts of *whole* without those of one shard."""
    return {name: counts.less(own.get(name, DomainCounts())) for name, counts in whole.items()}
