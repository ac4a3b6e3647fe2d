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
from .records import Host, pack, unpack
from .tables import RecordTable

if TYPE_CHECKING:
    from collections.abc import Callable

_REGISTERS = 64
_ALPHA = 0.709
_CACHE = 50_000
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
    """

    visited: int = 0
    sketch: bytearray = field(default_factory=lambda: bytearray(_REGISTERS))
    seeds: int = 0
    supporters: float = 0.0
    parts: int = _REGISTERS << _DIGITS


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
    return pack([domain.visited, bytes(domain.sketch) if any(domain.sketch) else b"", domain.seeds])


def _unpack(data: bytes) -> Domain:
    visited, sketch, seeds = unpack(data)
    domain = Domain(visited, seeds=seeds)
    if sketch:
        domain.sketch = bytearray(sketch)
        domain.parts = _parts(domain.sketch)
        domain.supporters = estimate(domain.sketch, domain.parts)
    return domain


class Domains:
    """The registered domains of a crawl.

    Args:
        domain_of: Registered domain of a host name.

    Attributes:
        seeds: Seeds of all domains together.
    """

    def __init__(self, store: Store, domain_of: Callable[[str], str]) -> None:
        self.table = RecordTable(store, Family.DOMAINS, _pack, _unpack, _CACHE)
        self._domain_of = domain_of
        self.seeds = 0

    def key(self, host: Host) -> bytes:
        """Key of the domain of *host*."""
        if not host.domain:
            name = self._domain_of(host.name)
            host.domain = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
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
            Whether its number of supporters, as it is estimated, rose.
        """
        domain = self._own(key)
        before = domain.supporters
        if not _note(domain, supporter):
            return False
        self.table.put(key, domain)
        return domain.supporters > before

    def vouch(self, key: bytes, seed: bytes) -> None:
        """Let *seed*, a page key, be a seed of the domain under *key*; it counts as a supporter, too."""
        domain = self._own(key)
        domain.seeds += 1
        self.seeds += 1
        _note(domain, b"seed" + seed)
        self.table.put(key, domain)

    def seeded(self, domain: Domain) -> float:
        """Part of all seeds that *domain* has."""
        return domain.seeds / self.seeds if self.seeds else 0.0
