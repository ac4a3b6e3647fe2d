"""The record of a registered domain, and the estimate of how many others link to it.

The supporters of a domain are counted in 64 bytes by a HyperLogLog sketch with 64 registers: the same domain never
counts twice, and the standard error is some 12 %.

Source: Flajolet, Fusy, Gandouet and Meunier, "HyperLogLog", AofA 2007, with linear counting for small numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b

from .records import pack, unpack

KEY_BYTES = 8
"""Bytes of the key of a domain."""

_MOST_ORIGINS = 16
"""Most mirrors of a domain, and most origins that may become some, within one: it can have any number of hosts."""

_MOST_TEXTS = 8
"""Texts of an origin that are kept to compare them with those of others, the last ones."""

_REGISTERS = 64
"""Registers of a sketch, a byte each."""

_ALPHA = 0.709
"""Factor that corrects the mean of 64 registers (Flajolet et al., figure 3)."""

_DIGITS = 65
"""Binary digits behind the point of the sum for the harmonic mean: no register exceeds this number."""

_PARTS = [1 << (_DIGITS - register) for register in range(_DIGITS + 1)]
"""Part of the harmonic mean's sum by the value of a register: 2**-value, in units of 2**-65, so that sums are exact."""


def domain_key(name: str) -> bytes:
    """Key of the domain called *name*."""
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


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
        mirrors: The main origin of each of its origins that has the same pages as another one (:mod:`.mirrors`), if there are any.
        alike: Digests of the last texts that each of its origins shares with another one that is no mirror of it yet.
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
    mirrors: dict[str, str] | None = None
    alike: dict[str, list[bytes]] | None = None
    opens_at: float = 0.0
    open_until: float = 0.0


def _parts(sketch: bytes | bytearray) -> int:
    """Sum of what the registers of *sketch* add to the harmonic mean."""
    used = sketch.translate(None, b"\0")  # few, as most domains have few supporters
    return (len(sketch) - len(used)) * _PARTS[0] + sum(map(_PARTS.__getitem__, used))


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


def note_supporter(domain: Domain, supporter: bytes) -> bool:
    """Count *supporter* in the sketch of *domain*; returns whether that shows in it."""
    register, rank = _mark(supporter)
    if domain.sketch[register] >= rank:
        return False
    domain.parts += _PARTS[rank] - _PARTS[domain.sketch[register]]
    domain.sketch[register] = rank
    domain.supporters = estimate(domain.sketch, domain.parts)
    return True


def joined(one: Domain, other: Domain) -> Domain:
    """What two shards have of a domain that is spread over them; sponsors and mirrors are those of *one*."""
    sketch, seeds = bytearray(map(max, one.sketch, other.sketch)), one.seeds + other.seeds
    if seeds:
        one = replace(one, sponsors=[], charges=[], level=0)
    return replace(one, sketch=sketch, seeds=seeds)


def note_same(domain: Domain, origin: str, main: str, text: bytes, enough: int) -> bool:
    """Note that a page with *text* is the same at two origins of *domain*; returns whether that says anything new.

    Origins that share *enough* texts with *main* are its mirrors from then on, with all of their own.
    """
    mains, alike = dict(domain.mirrors or {}), dict(domain.alike or {})
    origin, main = mains.get(origin, origin), mains.get(main, main)
    texts = [alike.pop(each, []) for each in (origin, main)]
    if origin == main or len(mains) >= _MOST_ORIGINS or all(text in each for each in texts):
        return False
    for each, known in zip((origin, main), texts, strict=True):
        alike[each] = [*(other for other in known if other != text), text][-_MOST_TEXTS:]
    for each in [*alike]:
        if each != main and len({*alike[each]} & {*alike[main]}) >= enough:
            del alike[each]
            mains = {mirror: main if of == each else of for mirror, of in mains.items()} | {each: main}
    while len(alike) > _MOST_ORIGINS:
        del alike[next(iter(alike))]
    domain.mirrors, domain.alike = mains, alike
    return True


def pack_domain(domain: Domain) -> bytes:
    """Bytes of *domain*."""
    row = [domain.visited, bytes(domain.sketch) if any(domain.sketch) else b"", domain.seeds]
    has_mirrors = domain.mirrors or domain.alike
    if domain.sponsors or has_mirrors:
        row += [b"".join(domain.sponsors), domain.charges, domain.level]
    if has_mirrors:
        row += [domain.mirrors, domain.alike]
    return pack(row)


def unpack_domain(data: bytes) -> Domain:
    """The domain written as *data*."""
    visited, sketch, seeds, *route = unpack(data)
    domain = Domain(visited, seeds=seeds)
    if route:
        sponsors, charges, domain.level, *same = route
        domain.sponsors = [sponsors[at : at + KEY_BYTES] for at in range(0, len(sponsors), KEY_BYTES)]
        domain.charges = list(charges)
        domain.mirrors, domain.alike = same or (None, None)
    if sketch:
        domain.sketch = bytearray(sketch)
        domain.parts = _parts(domain.sketch)
        domain.supporters = estimate(domain.sketch, domain.parts)
    return domain
