"""How often pages change: a distribution over twelve rates for each page, learnt from its visits."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import NamedTuple

from scrapy_aopic.core.records import Changes

RATES = [1 / (3600 * 2.5**n) for n in range(12)]
"""Changes a second, a factor of 2.5 apart: from one an hour to one in 2.7 years."""

_PRIOR_PAGES = 12.0
"""Pages that are counted before any is known, one at each rate: they are soon outnumbered."""

_LEAST_PAGES = 0.1
"""Pages at each rate at least, so that no rate is ever ruled out."""

_MAX_PAGES = 10_000.0
"""Pages at all rates at most: beyond that each new page takes the weight of older ones, so that the counts can follow."""

_STEPS_A_NAT = 1000.0
"""Steps of the evidence in a factor of e: 16 bits hold likelihoods down to e^-65."""

_PACK, _UNPACK = struct.Struct(f">{len(RATES)}H").pack, struct.Struct(f">{len(RATES)}H").unpack

_LEAST = 1e-300
"""Below all likelihoods that matter."""

_JUST_NOW = 60.0
"""Seconds; a page that claims to have changed within them only says that it was made for this request."""


class Version(NamedTuple):
    """The version of a page that a response holds.

    Attributes:
        digest: Digest of the body.
        etag: ``ETag``.
        modified: ``Last-Modified``.
        is_same: Whether the server says that it is the version of the last visit (304), whose links then count.
        is_missing: Whether there was no such response, so that the links of the last visit count.
        changed_at: Instant of the last change according to the server, 0 if it does not say.
        at: Instant of the response; 0 for that at which its visit ends.
        basis: Digest of that in which what is compared was found.
    """

    digest: bytes = b""
    etag: bytes = b""
    modified: bytes = b""
    is_same: bool = False
    is_missing: bool = False
    changed_at: float = 0.0
    at: float = 0.0
    basis: bytes = b""

    def is_that_of(self, known: Changes) -> bool:
        """Whether it is the version that *known* was learnt from last."""
        return self.is_same or self.digest == known.digest


class Rates:
    """How often pages change, as far as their visits have shown.

    A page's rate is one of :data:`RATES`. The prior of each rate is its frequency among all pages that were visited
    more than once; each of those counts once, by what is known of it by now (incremental EM, Neal and Hinton 1998).
    What the visits of a page have found is kept as its evidence: the likelihood of that at each of the rates.

    Attributes:
        counts: Expected number of pages at each of the rates.
    """

    def __init__(self, counts: Sequence[float] = ()) -> None:
        self.counts = list(counts) or [_PRIOR_PAGES / len(RATES)] * len(RATES)

    def of(self, evidence: bytes) -> list[float]:
        """Probabilities of the rates for a page with *evidence*, but for a common factor."""
        if not evidence:
            return self.counts
        return [
            count * math.exp(-doubt / _STEPS_A_NAT)
            for count, doubt in zip(self.counts, _UNPACK(evidence), strict=True)
        ]

    def mean(self, evidence: bytes) -> float:
        """Mean rate of a page with *evidence*, in changes a second."""
        odds = self.of(evidence)
        return sum(part * rate for part, rate in zip(odds, RATES, strict=True)) / sum(odds)

    def phi(self, changes: Changes, now: float, ratio: float = 1.0) -> float:
        """Mean of phi(D S) for a page with *changes* at *now*: what a visit is worth.

        Args:
            ratio: How much likelier it is that the page is the same than its rate says, in odds, by what hints say of it.
        """
        passed = now - changes.seen_at
        if passed <= 0:
            return 0.0
        odds = self.of(changes.evidence)
        worth = whole = 0.0
        for part, rate in zip(odds, RATES, strict=True):
            x = rate * passed
            same = math.exp(-x)
            if ratio == 1.0:
                worth += part * (1 - (1 + x) * same) / x
                whole += part
                continue
            # As if the page had been seen when it would be the same with this likelihood; rates that expect the hint count more.
            likely = same * ratio + 1 - same
            same = same * ratio / likely
            worth += part * likely * (1 - same * (1 - math.log(max(same, _LEAST)))) / x
            whole += part * likely
        return worth / whole

    def same(self, changes: Changes, now: float) -> float:
        """Likelihood that a page with *changes* is at *now* as it was seen last, by its rate alone."""
        odds, passed = self.of(changes.evidence), max(now - changes.seen_at, 0.0)
        parts = (part * math.exp(-rate * passed) for part, rate in zip(odds, RATES, strict=True))
        return sum(parts) / sum(odds)

    def learn(
        self, known: Changes | None, version: Version, now: float, *, is_hinted: bool = False
    ) -> Changes:
        """The changes of a page after a response with *version* at *now*; *known* is ``None`` at its first visit.

        Args:
            is_hinted: Whether a hint that is to be believed has led to the visit.
        """
        at = version.at or now
        age = now - version.changed_at if version.changed_at else -1.0
        if known is None:
            evidence = self._weigh(b"", [_dated(rate, age) for rate in RATES]) if age > _JUST_NOW else b""
            known = Changes(
                0.0, at, evidence, version.digest, version.etag, version.modified, basis=version.basis
            )
            return known if version.is_missing else known._replace(first_seen=at, changed_at=at, noted_at=now)
        if version.is_missing:
            return known
        interval = max(now - known.seen_at, 1.0)
        if version.is_that_of(known):
            logs = [-rate * interval for rate in RATES]
        # Who comes because of a hint has seen how long there was none, and not how long ago the last change was.
        elif is_hinted and known.hinted_at > known.seen_at:
            logs = [_dated(rate, known.hinted_at - known.seen_at) for rate in RATES]
        # Many servers say of each page that it was made just now.
        elif max(_JUST_NOW, interval / 100) < age <= interval:
            logs = [_dated(rate, age) for rate in RATES]
        else:
            logs = [math.log(-math.expm1(-rate * interval)) for rate in RATES]
        known = known._replace(seen_at=at, evidence=self._weigh(known.evidence, logs))
        if version.is_same and version.digest != known.digest:  # a 304
            return known
        if version.digest != known.digest:
            known = known._replace(changed_at=at, previous=known.digest, noted_at=now)
        return known._replace(
            digest=version.digest, etag=version.etag, modified=version.modified, basis=version.basis
        )

    def _weigh(self, evidence: bytes, logs: list[float]) -> bytes:
        """Add to a page's *evidence* the logarithms of how likely it was, at each of the rates, what was found."""
        doubts = [-_STEPS_A_NAT * log for log in logs]
        if evidence:
            doubts = [doubt + old for doubt, old in zip(doubts, _UNPACK(evidence), strict=True)]
        least = min(doubts)
        found = _PACK(*(min(round(doubt - least), 0xFFFF) for doubt in doubts))
        changed = self._posterior(found)
        if evidence:
            changed = [part - old for part, old in zip(changed, self._posterior(evidence), strict=True)]
        self.counts = [
            max(count + part, _LEAST_PAGES) for count, part in zip(self.counts, changed, strict=True)
        ]
        if (total := sum(self.counts)) > _MAX_PAGES:
            self.counts = [count * _MAX_PAGES / total for count in self.counts]
        return found

    def _posterior(self, evidence: bytes) -> list[float]:
        odds = self.of(evidence)
        total = sum(odds)
        return [part / total for part in odds]


def _dated(rate: float, age: float) -> float:
    """Logarithm of how likely it is that the last change was *age* seconds ago."""
    return math.log(rate * 3600) - rate * age
