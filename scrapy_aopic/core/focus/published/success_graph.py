"""Which pages led to results, and how directly: the graph G_w of JLSE, with its Q values in closed form.

The paper works Q out by sweeps of Q-learning (equations 11 to 18). With results that are absorbing, what they converge to is known:
the value of a link to a page whose nearest result is n links away is *gamma* to the power of n, and the Q of a page (equation 18) is
that of the best link on it, *gamma* to the power of n - 1; a result has no link and no Q. So one walk from each result back to its
seed is enough, which ends as soon as it improves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from scrapy_aopic.core.focus.topic import LinkText

GAMMA = 0.9
"""Part of the worth of the best page after it that a page is worth (the paper's example; its experiments do not say)."""

MOST_PAGES = 10_000
"""Pages whose parents are remembered, the latest: some 10 MB with the texts of their links."""


class Step(NamedTuple):
    """A page on a path, and the worth of its link.

    Attributes:
        parent: The page that it was reached from.
        link: Texts of the link on that page.
        worth: 1 for a result, *gamma* times that of the best page after it, or 0 if it led to none.
    """

    parent: bytes
    link: LinkText | None
    worth: float


class SuccessGraph:
    """The paths of a crawl, and what each link on them was worth.

    Args:
        gamma: See :data:`GAMMA`.
        most: Pages that are remembered, the latest.

    Attributes:
        n_results: Results so far.
        pages: The pages that are remembered, by their keys, the oldest first.
    """

    def __init__(self, gamma: float = GAMMA, most: int = MOST_PAGES) -> None:
        self.n_results = 0
        self.pages: dict[bytes, Step] = {}
        self._gamma = gamma
        self._most = most

    def note(self, key: bytes, parent: bytes, link: LinkText | None, *, is_result: bool) -> None:
        """The page *key* was fetched by a *link* of *parent*."""
        before = self.pages.pop(key, None)
        worth = before.worth if before is not None else 0.0
        self.pages[key] = Step(parent, link, worth)
        if len(self.pages) > self._most:
            del self.pages[next(iter(self.pages))]
        if is_result:
            self.n_results += 1
            self._back(key)

    def _back(self, key: bytes) -> None:
        """Raise the worth of a result and of what led to it; no page twice, as each step improves."""
        worth = 1.0
        while (step := self.pages.get(key)) is not None and step.worth < worth:
            self.pages[key] = step._replace(worth=worth)
            key = step.parent
            worth *= self._gamma

    def successes(
        self, most: int, value: Callable[[float], float] = lambda worth: worth
    ) -> list[tuple[LinkText, float]]:
        """The links that led to results, each text once, with the *value* of its best worth: the *most* best and latest."""
        best: dict[LinkText, float] = {}
        for step in reversed(self.pages.values()):
            if step.worth and step.link is not None:
                best[step.link] = max(best.get(step.link, 0.0), value(step.worth))
        return sorted(best.items(), key=lambda item: -item[1])[:most]
