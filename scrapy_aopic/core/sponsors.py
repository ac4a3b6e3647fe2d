"""The sponsors of registered domains: all domains behind one link are one family with one budget.

A *sponsor* of a domain is another one that links to it. Each fetch is charged to every link on a *route* of
sponsors from its domain up to a seed's, and each link carries at most a part of all fetches. So a farm behind some links,
of any number of domains that link to each other as they please, gets no more than these links carry: each of its routes
crosses one of them (max-flow and min-cut). Supporters that an owner invents add no link that leads to a seed, and an
honest site that is found a second time, elsewhere, has a second route.

Routes are found as in Korf's learning real-time A*: at each domain the first sponsor with room, as far as earlier routes
tell, is taken, and the route that results is remembered.

Sources: the flow network of Advogato (Levien and Aiken, "Attack-Resistant Trust Metrics for Public Key
Certification", USENIX Security 1998); Korf, "Real-Time Heuristic Search", Artificial Intelligence 42, 1990.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from .domain import KEY_BYTES, Domain

FAMILY = 5
"""Fetches that one link carries, in budgets of a domain with one supporter."""

MAX_SPONSORS = 8
"""Sponsors that are remembered of a domain."""

MAX_LEVEL = 6
"""Discoverers between a domain and a seed's; what is found further away hangs on one of these."""

SMALL = 64
"""One part in so many of what the busiest late link on a way has carried that another one must have, to be looked at by itself."""

_MAX_HOPS = 8
_MAX_WALKS = 4


class Hop(NamedTuple):
    """The link to the domain under *key* from its sponsor number *sponsor*."""

    key: bytes
    domain: Domain
    sponsor: int


class Route(NamedTuple):
    """A way from a domain to a seed's.

    Attributes:
        due: Visits of the whole crawl before which one of its links is over its budget; 0 if none is.
        hops: Its links, that to the domain itself first.
        dues: The same of each of its links.
    """

    due: float
    hops: list[Hop]
    dues: list[float]

    @property
    def charge(self) -> int:
        """Fetches that its busiest link has carried."""
        return max((hop.domain.charges[hop.sponsor] for hop in self.hops), default=0)

    def blocker(self, visits: int) -> tuple[bytes, int]:
        """Key of the nearest domain the link to which is over its budget, and the most that such a link has carried.

        Links with less than a sixty-fourth of that do not count, or a farm would have as many lanes as it has domains.
        """
        late = [
            (hop.domain.charges[hop.sponsor], hop.key)
            for hop, due in zip(self.hops, self.dues, strict=True)
            if due > visits
        ]
        most = max([charge for charge, _ in late], default=0)
        return next((key for charge, key in late if charge * SMALL >= most), b""), most


_OF_SEED = Route(0.0, [], [])
"""The way to a seed's domain."""


class Sponsors:
    """The links between domains that fetches are charged to.

    Args:
        get: The domain under a key, to look at.
        put: Keeps a domain that was changed.
        part: Part of all fetches that a link carries; 0 for no bound.
        free: Fetches that it carries in any case.
        is_own: Whether the domain under a key is in this shard; ``None`` if all are.
    """

    def __init__(
        self,
        get: Callable[[bytes], Domain],
        put: Callable[[bytes, Domain], None],
        part: float,
        free: float,
        is_own: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._get = get
        self._put = put
        self._part = part
        self._free = free
        self._is_own = is_own
        self._routes: dict[bytes, Route] = {}  # as they were found since anything changed
        self._under_way: dict[bytes, int] = {}  # fetches that are to be charged, by both ends of a link
        self._n_under_way = 0

    def __bool__(self) -> bool:
        """Whether links have budgets."""
        return self._part > 0

    # -- who sponsors whom

    def discover(self, key: bytes, domain: Domain, sponsor: bytes) -> None:
        """Let *domain*, under *key*, which was unknown, be found by the domain under *sponsor*.

        It stays without a sponsor, as a seed's domain does, if all that is known of *sponsor* was found from it: a page
        of it was queued that nothing vouches for, or its record was lost. So the way along discoverers always ends.
        """
        if self._origin(sponsor) == key:
            return
        self.changed()
        by = self._get(sponsor)
        if by.level >= MAX_LEVEL:  # so a chain of domains is no long way
            sponsor = by.sponsors[0]
            by = self._get(sponsor)
        domain.level = by.level + 1
        domain.sponsors.append(sponsor)
        domain.charges.append(0)

    def _origin(self, key: bytes) -> bytes:
        """Key of the domain at which the way along discoverers from that under *key* ends."""
        return self.way(key)[-KEY_BYTES:]

    def way(self, key: bytes) -> bytes:
        """Key of a domain with those of its discoverers, up to a seed's, for shards that do not know them."""
        keys = [key]
        while len(keys) <= MAX_LEVEL and (sponsors := self._get(keys[-1]).sponsors):
            keys.append(sponsors[0])
        return b"".join(keys)

    def add(self, key: bytes, domain: Domain, sponsor: bytes) -> bool:
        """Let *domain*, under *key*, be sponsored by the domain under *sponsor* as well.

        The discoverer always stays. Of the others, the one whose own way is blocked the longest gives way to a better
        one, which takes over what was charged: so no link is charged anew because it was forgotten.

        Returns:
            Whether it is a sponsor now that was none before.
        """
        if not domain.sponsors or sponsor in domain.sponsors:
            return False  # it is a seed's, or as good as that
        is_full = len(domain.sponsors) >= MAX_SPONSORS
        ways = [self._get(each).opens_at for each in domain.sponsors[1:]] if is_full else []
        longest = max(ways, default=0.0)
        if is_full and longest <= 0.0:
            return False
        self.changed()
        route = self.route(sponsor, 0, 0)
        if any(hop.key == key for hop in route.hops):
            return False  # it lives on what it would sponsor
        if not is_full:
            domain.sponsors.append(sponsor)
            domain.charges.append(0)
        elif route.due < longest:
            domain.sponsors[1 + ways.index(longest)] = sponsor
        else:
            return False
        domain.opens_at = 0.0
        self.changed()
        return True

    def changed(self) -> None:
        """A domain has other sponsors, seeds or charges now."""
        self._routes.clear()

    # -- routes

    def blocker(self, key: bytes, domain: Domain, visits: int) -> tuple[bytes, int]:
        """:meth:`Route.blocker` for the way to *domain*, under *key*; ``b""`` and 0 if nothing blocks it.

        Args:
            visits: Visits of the whole crawl so far.
        """
        if not domain.sponsors or not self._part:
            return b"", 0
        if self._part < 1 and visits + self._n_under_way / (1 - self._part) < domain.open_until:
            return b"", 0
        route = self.known_route(key, visits)
        if self._part < 1:
            # In time for as long as each visit of the crawl may be charged to the busiest link.
            spare = visits - route.charge / self._part
            domain.open_until = visits + spare * self._part / (1 - self._part)
        return route.blocker(visits)

    def charge(self, key: bytes, visits: int, stands_for: int = 1) -> None:
        """Charge a fetch of the domain under *key* to the links of a route.

        A link to a domain of another shard carries the fetches of every shard that has something behind it, and each
        knows only its own. So a fetch is charged to it as often as there are fetches of the whole job to one of this
        shard: all shards together then let it carry what one shard would, if all have something behind it. Most links
        have little behind them, in few shards. So no fetch more than doubles what was charged, the first one counts
        once, and a link is late by this only if there are several in one shard.

        Args:
            stands_for: Fetches of the whole job to one of this shard.
        """
        hops, is_own = self.known_route(key, visits).hops, self._is_own
        self.changed()
        for hop in hops:
            domain = self._get(hop.key)  # anew: that of the hop may have left the cache
            n = 1 if is_own is None or is_own(hop.key) else min(stands_for, domain.charges[hop.sponsor] + 1)
            domain.charges[hop.sponsor] += n
            self._put(hop.key, domain)

    def begin(self, key: bytes, visits: int) -> list[bytes]:
        """Reserve a fetch of the domain under *key*, which :meth:`charge` will charge; returns the argument of :meth:`end`.

        Its links carry it from now on: otherwise as many fetches as there are connections would pass before the first one
        is charged.
        """
        if not self._part:
            return []
        links = [hop.key + hop.domain.sponsors[hop.sponsor] for hop in self.known_route(key, visits).hops]
        for link in links:
            self._under_way[link] = self._under_way.get(link, 0) + 1
            self.changed()
        self._n_under_way += 1
        return links

    def end(self, links: list[bytes]) -> None:
        """A fetch over *links* is not under way any more."""
        if not self._part:
            return
        for link in links:
            self._under_way[link] -= 1
            if not self._under_way[link]:
                del self._under_way[link]
            self.changed()
        self._n_under_way -= 1

    def _load(self, domain: Domain, key: bytes, number: int) -> int:
        """Fetches that the link to *domain*, under *key*, from its sponsor of this *number* carries."""
        return domain.charges[number] + self._under_way.get(key + domain.sponsors[number], 0)

    def known_route(self, key: bytes, visits: int) -> Route:
        """As :meth:`route`; looked for once until something changes."""
        if (route := self._routes.get(key)) is None:
            route = self._routes[key] = self.route(key, visits, 0) if self._get(key).sponsors else _OF_SEED
        return route

    def route(self, key: bytes, visits: int, more: int) -> Route:
        """The best route that a few walks find for the domain under *key*: one that is in time, if there is."""
        best = Route(inf, [], [])
        for _ in range(_MAX_WALKS):
            hops = self._walk(key, visits, more)
            dues = [self._due(self._load(hop.domain, hop.key, hop.sponsor) + more) for hop in hops]
            due = 0.0
            for hop, of_link in zip(reversed(hops), reversed(dues), strict=True):
                due = max(due, of_link)
                if not more:
                    hop.domain.opens_at = due
            if due >= best.due:
                break
            best = Route(due, hops, dues)
            if due <= visits:
                break
        return best

    def _walk(self, key: bytes, visits: int, more: int) -> list[Hop]:
        hops: list[Hop] = []
        at, seen, get, free = key, {key}, self._get, self._free - more
        while (domain := get(at)).sponsors:
            chosen, least = -1, inf
            for number, sponsor in enumerate(domain.sponsors):
                if sponsor in seen:
                    continue
                by = get(sponsor)
                if by.level >= _MAX_HOPS - len(hops):
                    continue  # from there on discoverers lead to a seed's in as many hops as it has levels
                due, load = by.opens_at, self._load(domain, at, number)
                if load >= free:
                    due = max(due, self._due(load + more))
                if due < least:
                    chosen, least = number, due
                    if due <= visits:
                        break
            if chosen < 0:
                return self._discoverers(key)
            hops.append(Hop(at, domain, chosen))
            at = domain.sponsors[chosen]
            seen.add(at)
        return hops

    def _discoverers(self, key: bytes) -> list[Hop]:
        hops: list[Hop] = []
        # No more: what several shards knew may lead in a circle once it is in one (:mod:`.splitting`).
        while len(hops) < _MAX_HOPS and (domain := self._get(key)).sponsors:
            hops.append(Hop(key, domain, 0))
            key = domain.sponsors[0]
        return hops

    def _due(self, charge: int) -> float:
        return charge / self._part if self._part and charge >= self._free else 0.0
