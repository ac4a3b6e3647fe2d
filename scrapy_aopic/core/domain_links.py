"""Links between registered domains: which domain links to which, and how endowments depend on it.

The records of domains, and the budgets that follow from their supporters, are in :mod:`.domains` and :mod:`.sponsors`.
This module applies to them what a visit or a seed shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .domain import KEY_BYTES
from .records import HOST_BYTES
from .sponsors import FAMILY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .domains import Domains
    from .frontier.frontier import Frontier
    from .frontier.host_state import HostState

_MAX_NOTED = 50_000
"""Pairs of a host and a domain that links to it kept in memory, some 5 MB: most links repeat one of them."""


class DomainLinks:
    """The registered domains of a crawl whose order counts by domain."""

    def __init__(self, domains: Domains, frontier: Frontier) -> None:
        self._domains = domains
        self._frontier = frontier
        self._noted: set[bytes] = set()

    def vouch(self, seed: bytes, now: float) -> None:
        """*seed*, a page key, is a seed: whoever names a page vouches for its domain."""
        host = seed[:HOST_BYTES]
        domain = self._domain(host)
        self._domains.vouch(domain, seed)
        self._rose(domain, host, now)

    def linked(self, source: HostState, hosts: Iterable[bytes], now: float) -> None:
        """A page of *source* links to pages of *hosts*, by their keys."""
        supporter, noted = self._domains.key(source), self._noted
        for target in hosts:
            self._support(target, supporter, now)
            noted.add(target + supporter)
        if len(noted) > _MAX_NOTED:
            noted.clear()

    def preload(self, source: HostState, hosts: Iterable[bytes]) -> list[bytes]:
        """Those of *hosts* that *source* is not known to link to, few of them, for :meth:`linked`.

        The domains that this and the budgets need then are read, all at once.
        """
        domains, frontier = self._domains, self._frontier
        supporter, noted = domains.key(source), self._noted
        new = [target for target in hosts if target + supporter not in noted]
        known = [host for host in map(frontier.host, new) if host is not None]
        if keys := {domains.key(host) for host in known} - {supporter}:
            domains.table.get_many([supporter, *keys])
        return new

    def found(self, target: bytes, source: bytes, now: float) -> None:
        """A page of the host under key *source*, still in flight, links to one of the host under key *target*."""
        self._support(target, self._domain(source), now)

    def found_elsewhere(self, target: bytes, way: bytes, now: float) -> None:
        """A page of another shard links to one of the host under key *target*.

        Args:
            way: Key of that page's domain, and of its discoverers.
        """
        supporter = way[:KEY_BYTES]
        if target + supporter not in self._noted:
            self._domains.introduce(way)
            self._support(target, supporter, now)
            self._noted.add(target + supporter)
        if len(self._noted) > _MAX_NOTED:
            self._noted.clear()

    def prefetch_elsewhere(self, found: Iterable[tuple[bytes, bytes]]) -> int:
        """Begin to read the domains of the ways that :meth:`preload_elsewhere` will look at; returns the number of the request."""
        return self._domains.table.prefetch(
            list({key for target, way in found for key in self._unknown(target, way)})
        )

    def _unknown(self, target: bytes, way: bytes) -> list[bytes]:
        """Keys of the domains of *way*, unless it is known that the first one links to *target*."""
        if target + way[:KEY_BYTES] in self._noted:
            return []
        return [way[at : at + KEY_BYTES] for at in range(0, len(way), KEY_BYTES)]

    def preload_elsewhere(self, found: Iterable[tuple[bytes, bytes]]) -> None:
        """Bring the domains into memory, with one read, that :meth:`found_elsewhere` looks at for each target and way."""
        domains, frontier, keys = self._domains, self._frontier, set[bytes]()
        for target, way in found:
            if unknown := self._unknown(target, way):
                keys.update(unknown)
                host = frontier.host(target)
                if host is not None:
                    keys.add(domains.key(host))
        if len(keys) > 1:
            domains.table.get_many(list(keys))

    def domain_of(self, host: HostState) -> bytes:
        """Key of the registered domain of *host*."""
        return self._domains.key(host)

    def n_visited(self, host: HostState) -> int:
        """Visited pages of the registered domain of *host*; of those behind a link, its part of them if that is more."""
        domains, visits = self._domains, self._frontier.budgets.visits
        key = domains.key(host)
        route = domains.sponsors.known_route(key, visits)
        behind = route.charge // FAMILY if route.due > visits else 0
        return max(domains.whole(key).visited, behind)

    def is_outdone(self, host: HostState, copy: bytes) -> bool:
        """Whether the page under key *copy*, with the text of one of *host*, is of a domain with no fewer supporters.

        Such a page is not endowed: else the same text could be endowed under any number of names. Who was first does
        not matter, and nothing else depends on it, because supporters can be bought.
        """
        if not copy:
            return False
        own, other = self._domains.key(host), self._domain(copy[:HOST_BYTES])
        return self._domains.whole(own).supporters <= self._domains.whole(other).supporters

    def _support(self, host: bytes, supporter: bytes, now: float) -> None:
        """Let the domain of the host under key *host* be linked to by *supporter*."""
        domain = self._domain(host)
        if domain != supporter and self._domains.support(domain, supporter):
            self._rose(domain, host, now)

    def _rose(self, domain: bytes, host: bytes, now: float) -> None:
        """*domain* may be fetched from sooner than it seemed, and so may its host under key *host*."""
        self._frontier.supported(domain)
        self._frontier.look_again(host, now)

    def _domain(self, host: bytes) -> bytes:
        """Key of the domain of the host under key *host*."""
        return self._domains.key(self._frontier.places.expect(host, "a page"))
