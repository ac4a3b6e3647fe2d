"""What is known of registered domains: how much of each was visited, and about how many others link to it.

The supporters of a domain are counted in 64 bytes by a HyperLogLog sketch with 64 registers: the same domain never
counts twice, and the standard error is some 12 %.

Source: Flajolet, Fusy, Gandouet and Meunier, "HyperLogLog", AofA 2007, with linear counting for small numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from .ports import Family, Store
from .records import pack, unpack
from .sponsors import FAMILY, Sponsors
from .tables import RecordTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from .frontier.host_state import HostState

_REGISTERS = 64
_ALPHA = 0.709
_CACHE = 50_000
KEY_BYTES = 8
_DIGITS = 65
_PARTS = [1 << (_DIGITS - register) for register in range(_DIGITS + 1)]
"""What a register adds to the harmonic mean, by its value: 2**-value, in units of 2**-65, whose sums are exact."""


@dataclass(slots=True)
class Domain:
    """A registered domain.

    Attributes:
        visited: Pages of it that were visited or failed at least once.
        sketch: Registers of the sketch of its supporters.
        seeds: Pages of it that are seeds.
        supporters: About how many there are, in memory only.
        parts: Sum of what the registers add to the harmonic mean, in memory only.
        sponsors: Keys of domains that answer for it, the one that discovered it first; none of a seed's domain.
        charges: Fetches that were charged to the link from each sponsor.
        level: Discoverers between it and a seed's domain.
        opens_at: Visits of the crawl before which no route to it is in time, as far as is known, in memory only.
        open_until: Visits of the crawl before which one surely is, in memory only.
    """

    visited: int = 0
    sketch: bytearray = field(default_factory=lambda: bytearray(_REGISTERS))
    seeds: int = 0
    supporters: float = 0.0
    parts: int = _REGISTERS << _DIGITS
    sponsors: list[bytes] = field(default_factory=list)
    charges: list[int] = field(default_factory=list)
    level: int = 0
    opens_at: float = 0.0
    open_until: float = 0.0


_UNKNOWN = Domain()


def _parts(sketch: bytes | bytearray) -> int:
    return sum(map(_PARTS.__getitem__, sketch))


def estimate(sketch: bytes | bytearray, parts: int = 0) -> float:
    """About how many distinct things *sketch* has seen.

    Args:
        parts: Sum of what its registers add to the harmonic mean; 0 to add it up.
    """
    parts, zeros = parts or _parts(sketch), sketch.count(0)
    raw = _ALPHA * _REGISTERS**2 * 2.0**_DIGITS / parts
    return _REGISTERS * math.log(_REGISTERS / zeros) if zeros and raw <= 2.5 * _REGISTERS else raw


@lru_cache(1000)  # a page supports all domains that it links to
def _mark(supporter: bytes) -> tuple[int, int]:
    """The register that *supporter* is counted in, and its least value from then on."""
    bits = int.from_bytes(blake2b(supporter, digest_size=8).digest(), "big")
    return bits % _REGISTERS, 65 - 6 - (bits >> 6).bit_length()


def _note(domain: Domain, supporter: bytes) -> bool:
    """Count *supporter* in the sketch of *domain*; whether that shows in it."""
    register, rank = _mark(supporter)
    if domain.sketch[register] >= rank:
        return False
    domain.parts += _PARTS[rank] - _PARTS[domain.sketch[register]]
    domain.sketch[register] = rank
    domain.supporters = estimate(domain.sketch, domain.parts)
    return True


def _pack(domain: Domain) -> bytes:
    row = [domain.visited, bytes(domain.sketch) if any(domain.sketch) else b"", domain.seeds]
    if domain.sponsors:
        row += [b"".join(domain.sponsors), domain.charges, domain.level]
    return pack(row)


def _unpack(data: bytes) -> Domain:
    visited, sketch, seeds, *route = unpack(data)
    domain = Domain(visited, seeds=seeds)
    if route:
        sponsors, charges, domain.level = route
        domain.sponsors = [sponsors[at : at + KEY_BYTES] for at in range(0, len(sponsors), KEY_BYTES)]
        domain.charges = list(charges)
    if sketch:
        domain.sketch = bytearray(sketch)
        domain.parts = _parts(domain.sketch)
        domain.supporters = estimate(domain.sketch, domain.parts)
    return domain


class Domains:
    """The registered domains of a crawl.

    Args:
        domain_of: Registered domain of a host name.
        budget: Part of all fetches that a domain with one supporter may take; 0 for no bound on what lies behind
            a link.
        allowance: Pages of such a domain that are free of the budget.

    Attributes:
        seeds: Seeds of all domains together.
        sponsors: Who answers for which of them.
    """

    def __init__(
        self, store: Store, domain_of: Callable[[str], str], budget: float = 0.0, allowance: float = 0.0
    ) -> None:
        self.table = RecordTable(store, Family.DOMAINS, _pack, _unpack, _CACHE)
        self._domain_of = domain_of
        self.seeds = 0
        self.sponsors = Sponsors(self.get, self.table.put, FAMILY * budget, allowance)

    def key(self, host: HostState) -> bytes:
        """Key of the domain of *host*."""
        if not host.domain:
            name = self._domain_of(host.name)
            host.domain = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()
        return host.domain

    def get(self, key: bytes) -> Domain:
        """The domain under *key*; not to be changed."""
        return self.table.get(key) or _UNKNOWN

    def _own(self, key: bytes) -> Domain:
        """The domain under *key*, to be changed and put back."""
        return self.table.get(key) or Domain()

    def count(self, key: bytes, visits: int) -> None:
        """Let *visits* more pages of the domain under *key* be visited."""
        domain = self._own(key)
        domain.visited += visits
        self.table.put(key, domain)

    def support(self, key: bytes, supporter: bytes) -> bool:
        """Let the domain under *key* be linked to by *supporter*: another domain's key.

        Returns:
            Whether its number of supporters, as it is estimated, rose, or it has another sponsor.
        """
        known = self.table.get(key)
        domain = known or Domain()
        before = domain.supporters
        is_changed = _note(domain, supporter)
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
        domain.sponsors, domain.charges, domain.level = [], [], 0
        self.seeds += 1
        self.sponsors.changed()
        _note(domain, b"seed" + seed)
        self.table.put(key, domain)

    def seeded(self, domain: Domain) -> float:
        """Part of all seeds that *domain* has."""
        return domain.seeds / self.seeds if self.seeds else 0.0
