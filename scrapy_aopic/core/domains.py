"""The registered domains of a crawl: how much of each was visited, and which others link to it.

Rule: a domain is written when something of it has changed, and is known from its first link, seed or visit on. What is
known of one domain (:mod:`.domain`) is changed here and in :mod:`.sponsors` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .domain import KEY_BYTES, Domain, domain_key, note_same, note_supporter, pack_domain, unpack_domain
from .ports import Family, Store
from .shards.spread import DomainCounts
from .sponsors import FAMILY, Sponsors
from .tables import RecordTable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from .frontier.host_state import HostState

_CACHE = 50_000
"""Domains kept in memory, some 25 MB."""

_UNKNOWN = Domain()
"""Stands for a domain without a record."""


class Domains:
    """The registered domains of a crawl.

    Args:
        domain_of: Registered domain of a host name.
        budget: Part of all fetches that a domain with one supporter may take; 0 for no bound on what lies behind
            a link.
        allowance: Pages of such a domain that are free of the budget.
        budgets: Parts of all fetches that single domains may take, by name, regardless of links to them.
        is_own: Whether the domain under a key is in this shard; ``None`` if all are. Of domains in other shards, only the
            way to a seed's domain is known, and what was charged to it.
        spread: Names of domains of which other shards have hosts, too.

    Attributes:
        seeds: Number of seeds of all domains of this shard.
        seeds_elsewhere: Number of seeds in other shards.
        budgets: The budgets of single domains, by key.
        elsewhere: What other shards have of the domains that are spread, by key.
        sponsors: The sponsors of each domain.
    """

    def __init__(
        self,
        store: Store,
        domain_of: Callable[[str], str],
        budget: float = 0.0,
        allowance: float = 0.0,
        *,
        is_own: Callable[[bytes], bool] | None = None,
        budgets: Mapping[str, float] | None = None,
        spread: Collection[str] = (),
    ) -> None:
        self.table = RecordTable(store, Family.DOMAINS, pack_domain, unpack_domain, _CACHE)
        self._domain_of = domain_of
        self.seeds = self.seeds_elsewhere = 0
        self._spread = spread
        self.elsewhere: dict[bytes, DomainCounts] = {}
        self.budgets = {domain_key(name): part for name, part in (budgets or {}).items()}
        self.sponsors = Sponsors(self.get, self._put, FAMILY * budget, allowance, is_own)

    def _put(self, key: bytes, domain: Domain) -> None:
        self.table.put(key, domain)  # which is another function after each commit

    def key(self, host: HostState) -> bytes:
        """Key of the domain of *host*."""
        if not host.domain:
            host.domain = domain_key(self._domain_of(host.name))
        return host.domain

    def get(self, key: bytes) -> Domain:
        """The domain under *key*; not to be changed."""
        return self.table.get(key) or _UNKNOWN

    def whole(self, key: bytes) -> Domain | DomainCounts:
        """What all shards have of the domain under *key*, as far as this one knows."""
        elsewhere = self.elsewhere.get(key)
        return self.get(key) if elsewhere is None else elsewhere.plus(self.get(key))

    @property
    def spread(self) -> dict[str, DomainCounts]:
        """What this shard has of each domain that is spread, by name."""
        return {name: DomainCounts().plus(self.get(domain_key(name))) for name in self._spread}

    def learn(self, elsewhere: Mapping[str, DomainCounts]) -> list[bytes]:
        """Other shards have *elsewhere* by now of domains that are spread, by name.

        If one of its seeds is there, a domain is that of a seed here, too: it needs no sponsor.

        Returns:
            Keys of those that may take another part of all fetches by that.
        """
        changed = []
        for name, counts in elsewhere.items():
            key = domain_key(name)
            if self.elsewhere.get(key, DomainCounts())[1:] != counts[1:]:
                changed.append(key)
            self.elsewhere[key] = counts
            if counts.seeds and (domain := self.get(key)).sponsors:
                self._free(domain)
                self.table.put(key, domain)
        return changed

    def _own(self, key: bytes) -> Domain:
        """The domain under *key*, to be changed and put back."""
        return self.table.get(key) or Domain()

    def count(self, key: bytes, visits: int) -> None:
        """Let *visits* more pages of the domain under *key* be visited."""
        domain = self._own(key)
        domain.visited += visits
        self.table.put(key, domain)

    def note_same(self, key: bytes, origin: str, main: str, text: bytes, enough: int) -> None:
        """Note that two origins of the domain under *key* have the same page; see :func:`.domain.note_same`."""
        domain = self._own(key)
        if note_same(domain, origin, main, text, enough):
            self.table.put(key, domain)

    def introduce(self, way: bytes) -> None:
        """Know the domains of *way*, of another shard, whose first one was found from the second one, and so on."""
        keys = [way[at : at + KEY_BYTES] for at in range(0, len(way), KEY_BYTES)]
        for key, sponsor in zip(reversed(keys[:-1]), reversed(keys[1:]), strict=True):
            if self.table.get(key) is None:
                domain = Domain()
                self.sponsors.discover(key, domain, sponsor)
                self.table.put(key, domain)

    def support(self, key: bytes, supporter: bytes) -> bool:
        """Let the domain under *key* be linked to by *supporter*: another domain's key.

        Returns:
            Whether its number of supporters, as it is estimated, rose, or it has another sponsor.
        """
        known = self.table.get(key)
        domain = known or Domain()
        before = domain.supporters
        is_changed = note_supporter(domain, supporter)
        if is_changed or known is None:
            self.table.put(key, domain)
        if not self.sponsors:
            return domain.supporters > before
        if known is None:
            self.sponsors.discover(key, domain, supporter)
        elif self.sponsors.add(key, domain, supporter):
            self.table.put(key, domain)
            return True
        return domain.supporters > before

    def vouch(self, key: bytes, seed: bytes) -> None:
        """Let *seed*, a page key, be a seed of the domain under *key*; it counts as a supporter, too."""
        domain = self._own(key)
        domain.seeds += 1
        self.seeds += 1
        self._free(domain)
        note_supporter(domain, b"seed" + seed)
        self.table.put(key, domain)

    def _free(self, domain: Domain) -> None:
        """*domain* is a seed's: it needs no sponsor."""
        domain.sponsors, domain.charges, domain.level = [], [], 0
        self.sponsors.changed()

    def seeded(self, domain: Domain | DomainCounts) -> float:
        """Part of all seeds that *domain* has."""
        seeds = self.seeds + self.seeds_elsewhere
        return domain.seeds / seeds if seeds else 0.0
