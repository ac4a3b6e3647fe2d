"""Hints that a page has changed, such as the dates in a sitemap, and how far those of a host are to be believed.

A hint is believed by what it has changed at the visits before. For pages of a host with dates, visits are counted by whether a
hint had come since the visit before, and by whether they found a change, beside how many would have been expected to by the
rates alone. The ratio of the two says how much likelier it is that the page is the same as the rates say: below 1 after a
hint that is right, above 1 without one if hints miss nothing, and 1 in both cases if they are chance, such as the day of a
build. So what is useless counts for nothing, and no choice of pages to visit disturbs what is learned.

Sources: Kolobov et al., "Staying up to date with online content changes using reinforcement learning for scheduling", NeurIPS
2019 (complete signals); Busa-Fekete et al., WWW 2025 (noisy ones).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.core.layout import HINTS
from scrapy_aopic.core.records import HOST_BYTES, Changes, pack, unpack

if TYPE_CHECKING:
    from scrapy_aopic.core.tables import BlobTable

_PRIOR = 2.0
"""Visits that are counted as expected before there are any."""

BELIEVED = 0.25
"""Ratio below which a hint is taken for the instant of a change."""

USEFUL = 0.7
"""Ratio below which hints of a host are worth reading again for."""

_MOST = 400.0
"""Visits that are remembered of a kind; then older ones count half."""

_HOSTS = 10_000
"""Hosts whose counts are kept in memory."""


class HintCounts(NamedTuple):
    """Visits of pages of a host, all of which a hint had come for, or none.

    Attributes:
        same: Those that found no change.
        changed: Those that found one.
        expected: Of both, how many would have been expected to find none.
    """

    same: float = 0.0
    changed: float = 0.0
    expected: float = 0.0

    @property
    def ratio(self) -> float:
        """How much likelier it is that a page is the same than its rate says, in odds."""
        otherwise = self.same + self.changed - self.expected
        same = (self.same + _PRIOR) / (self.expected + _PRIOR)
        return same * (otherwise + _PRIOR) / (self.changed + _PRIOR)

    def with_one(self, *, is_changed: bool, expected: float) -> HintCounts:
        """These and one more, of which *expected* would have found no change."""
        part = 0.5 if self.same + self.changed >= _MOST else 1.0
        same, changed, before = (part * count for count in self)
        return HintCounts(same + (not is_changed), changed + is_changed, before + expected)


class Hints:
    """What was learned of the hints of each host.

    Args:
        table: Its rows in the store.
    """

    def __init__(self, table: BlobTable) -> None:
        self._table = table
        self._hosts: dict[bytes, tuple[HintCounts, HintCounts]] = {}

    def of(self, host: bytes) -> tuple[HintCounts, HintCounts]:
        """Visits of the host under key *host* without a hint, and with one."""
        known = self._hosts.get(host)
        if known is None:
            row = self._table.get(HINTS + host)
            counts = unpack(row) if row else [0.0] * 6
            known = self._hosts[host] = HintCounts(*counts[:3]), HintCounts(*counts[3:])
        return known

    def ratio(self, key: bytes, changes: Changes) -> float:
        """How much likelier it is that the page under *key*, with *changes*, is the same than its rate says, in odds."""
        return self.of(key[:HOST_BYTES])[changes.hinted_at > 0].ratio if changes.dated_at else 1.0

    def learn(self, key: bytes, known: Changes, *, is_changed: bool, expected: float) -> None:
        """A visit has shown whether the page under *key*, *known* to be dated, *is_changed*; *expected*: that it would not be."""
        if len(self._hosts) > _HOSTS:
            self._hosts.clear()  # the store, or what waits for a commit, has them all
        host = key[:HOST_BYTES]
        visits = list(self.of(host))
        which = known.hinted_at > 0
        visits[which] = visits[which].with_one(is_changed=is_changed, expected=expected)
        self._hosts[host] = visits[0], visits[1]
        self._table.put(HINTS + host, pack([count for each in visits for count in each]))
