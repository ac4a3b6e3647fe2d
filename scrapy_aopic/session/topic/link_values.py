"""What links are worth, by a strategy or by a user's function, and what is kept of what leads to their pages.

Rule: what a user's function raises costs the links of a page its values, and nothing else.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from scrapy_aopic.core.focus.leads import SIDE, LeadsOfPage, all_bounded, bounded_path
from scrapy_aopic.core.focus.learned import Learned
from scrapy_aopic.core.focus.strategy import FLOOR, ByFunction, PageSeen
from scrapy_aopic.core.focus.words import LINK_CHARACTERS
from scrapy_aopic.core.records import HOST_BYTES, Link
from scrapy_aopic.exceptions import ANY_ERROR

from .user_functions import note_time, part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy_aopic.core.focus.topic import LinkText, PageWords
    from scrapy_aopic.session.stats import FirstOnly, Stats
    from scrapy_aopic.session.visit import PageReading

    from .given_topic import GivenTopic
    from .learning import Learning


class LinkValues:
    """Values links.

    Attributes:
        are_wanted: Whether the order goes by what links are worth.
        strategy: What values links, alone or if the user's function does not.
        side: Characters on each side of a link that have to be read.
        reads_words: Whether links are read from the words of their page, which is faster than from their texts.
    """

    def __init__(
        self, given: GivenTopic, learning: Learning, *, are_wanted: bool, stats: Stats, first: FirstOnly
    ) -> None:
        self._stats = stats
        self._first = first
        self._leads_are_kept = learning.is_on
        self._has_own_scorer = given.has_own_scorer  # others give values from 0 to 1
        self._default = given.strategy_named("best-first")
        self.are_wanted = are_wanted
        self.strategy = learning.strategy
        self.side = SIDE if learning.is_on else LINK_CHARACTERS
        self.reads_words = are_wanted and isinstance(self.strategy, Learned) and given.topic.is_cut_plainly

    def of(
        self, page: PageSeen, seen: PageReading, links: Sequence[Link]
    ) -> tuple[Sequence[float], Callable[[int], bytes] | None]:
        """The values of *links* of *page*, and what packs the lead of the nth of them, if the strategy learns from leads."""
        strategy, keys = self.strategy, [link.key[HOST_BYTES:] for link in links]

        found: list[LinkText] = []
        said: PageWords | None = None

        def texts() -> list[LinkText]:
            if not found:
                said = list(map(seen.of, keys))
                # As it will learn from them.
                found.extend(all_bounded(said) if self._leads_are_kept else said)
            return found

        def value() -> Sequence[float]:
            if not isinstance(strategy, Learned):
                return strategy.values(page, texts())
            nonlocal said
            said = seen.cut(keys)
            paths = [bounded_path(seen.path(key)) for key in keys]
            read.extend(strategy.read_page(said, paths) if said is not None else strategy.read(texts()))
            return strategy.values_of(page, read)

        read: list[Any] = []  # nothing, if that fails
        values = self._values(page, len(links), texts, value)
        if not self._leads_are_kept:
            return values, None
        leads = LeadsOfPage(page.key, page.grade, page.depth + 1)
        if not isinstance(strategy, Learned) or not read:
            return values, lambda nth: leads.pack(texts()[nth])
        memo, words = strategy.memo, said.own if said is not None else lambda nth: texts()[nth].anchor
        return values, lambda nth: leads.pack_memo(memo(read[nth]), words(nth))

    def _values(
        self,
        page: PageSeen,
        n: int,
        texts: Callable[[], Sequence[LinkText]],
        value: Callable[[], Sequence[float]],
    ) -> list[float]:
        """What *value* says of the *n* links of *page*, which says these *texts* of them, or the grade of the page if that fails."""
        begin = perf_counter()
        try:
            values = list(value())
            if self._has_own_scorer:
                values = list(map(part, values))
            values = [max(FLOOR, value) for value in values]
            if len(values) != n:
                raise ValueError(f"{len(values)} values for {n} links")
        except ANY_ERROR:  # logged once, whatever the user's function raises
            self._stats.count("aopic/topic/unvalued")
            self._first.exception(
                "value",
                "AOPIC_LINK_SCORER gives no number from 0 to 1 for each link of %(page)s, which takes the grade of the page; "
                "further such pages are only counted (aopic/topic/unvalued)",
                page=page.url,
            )
            return [max(value, FLOOR) for value in self._default.values(page, texts())]
        if isinstance(self.strategy, ByFunction):
            note_time(self._first, "AOPIC_LINK_SCORER", page.url, perf_counter() - begin)
        return values
