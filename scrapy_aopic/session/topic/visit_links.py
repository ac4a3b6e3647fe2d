"""Gives the links of a page their values and shares when its visit ends, and has the strategy learn from the page.

Rule: values are worked out when all links are known, since a page may be relevant because of an item that comes last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from scrapy_aopic.core.focus.leads import is_led
from scrapy_aopic.core.focus.shares import UNIT, shares
from scrapy_aopic.core.focus.strategy import FLOOR, PageSeen, known_value
from scrapy_aopic.core.focus.topic import RELEVANT
from scrapy_aopic.core.order import value_of, whole_value
from scrapy_aopic.core.records import Link, Page
from scrapy_aopic.settings import read_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy_aopic.core.api import Findings
    from scrapy_aopic.session.parts import SessionParts
    from scrapy_aopic.session.visit import PageReading, Visit

    from .learning import Learning
    from .link_values import LinkValues


class VisitLinks:
    """Gives links what follows from their values.

    Args:
        counts: Whether a page with this grade and gist is relevant to people, whatever the order makes of it.
    """

    def __init__(
        self,
        parts: SessionParts,
        learning: Learning,
        values: LinkValues,
        counts: Callable[[float, bytes], bool],
    ) -> None:
        self._job = parts.job
        self._visits = parts.visits
        self._learning = learning
        self._values = values
        self._focus = read_values(parts.crawler.settings).focus
        self._counts = counts

    def value_early(self, visit: Visit, links: list[Link]) -> list[Link]:
        """*links*, some of those of *visit*, with what they seem worth before it ends."""
        if not self._values.are_wanted:
            return links
        seen, page = visit.reading, self._page(visit)
        if seen is None:
            return self._pass_on(visit, page.value, links)
        values, pack_lead = self._values.of(page, seen, links)
        wholes = list(map(whole_value, values))
        return [
            replace(
                link,
                value=whole,
                lead=pack_lead(nth) if pack_lead is not None and is_led(None, whole) else b"",
            )
            for nth, (link, whole) in enumerate(zip(links, wholes, strict=True))
        ]

    def value(self, visit: Visit, found: Findings, links: list[Link]) -> tuple[Findings, list[Link]]:
        """Learn from the page of *visit*, and give its *links* their values and shares.

        Returns:
            *found*, with what follows for the page, and the links.
        """
        seen = visit.reading
        if seen is not None:
            counts = self._counts(seen.grade, seen.gist) and not visit.is_duplicate
            gist = seen.gist if self._values.are_wanted else b""
            found = found._replace(value=whole_value(seen.grade), is_relevant=counts, gist=gist)
        if not self._values.are_wanted:
            return found, links
        page = self._page(visit)
        if seen is not None or found.is_failure:
            self._learning.learn(page)
        if seen is None:
            return found, self._pass_on(visit, page.value, links)
        return self._split(visit, found, page, seen, links) if links else (found, links)

    def _page(self, visit: Visit) -> PageSeen:
        """The page of *visit* in the form that a strategy reads."""
        key, seen = visit.lease.key, visit.reading
        known = self._job.crawl.page(key)
        value = value_of(known.score if known is not None else 0)
        grade, text, degrees = (seen.grade, seen.text, seen.degrees) if seen is not None else (0.0, "", None)
        is_relevant = grade >= RELEVANT and not visit.is_duplicate
        url, lead = visit.request.url, self._learning.lead(key)
        if lead is None:
            return PageSeen(url, grade, value, is_relevant, key, text=text, degrees=degrees)
        parent, parent_grade, depth, link, memo, _ = lead
        return PageSeen(
            url, grade, value, is_relevant, key, parent, link, depth, parent_grade, text, memo, degrees
        )

    def _pass_on(self, visit: Visit, value: float, links: list[Link]) -> list[Link]:
        """Let what a redirect, or a page that was not read, leads to be as promising as that was."""
        lead = self._job.crawl.lead(visit.lease.key) if self._learning.is_on else b""
        return [replace(link, value=whole_value(value), lead=lead) for link in links]

    def _split(
        self, visit: Visit, found: Findings, page: PageSeen, seen: PageReading, links: list[Link]
    ) -> tuple[Findings, list[Link]]:
        """Give the *links* of *visit*, of which *page* says what was *seen*, their values and shares."""
        targets = self._targets(visit, links)
        strategy = self._values.strategy
        known = [known_value(target) if not strategy.values_known else None for target in targets]
        unknown = [link for link, value in zip(links, known, strict=True) if value is None]
        valued, pack_lead = self._values.of(page, seen, unknown) if unknown else ([], None)
        each = iter(valued)
        values = [next(each) if value is None else value for value in known]
        split = shares(
            values,
            focus=1.0 if strategy.by_cash else self._focus,
            null_mass=strategy.null_mass,
            power=strategy.power,
        )
        wholes = list(map(whole_value, values))
        leads = [b""] * len(values)
        if pack_lead is not None:
            places = [place for place, value in enumerate(known) if value is None]
            for nth, place in enumerate(places):
                if is_led(targets[place], wholes[place]):
                    leads[place] = pack_lead(nth)
        given = sum([link.weight for link in links])
        links = [
            # As replace() does, in a third of its time.
            Link(
                link.key,
                link.host,
                link.request,
                link.shift,
                link.again,
                weight * link.weight,
                whole,
                lead,
                link.priority,
            )
            for link, weight, whole, lead in zip(links, split.weights, wholes, leads, strict=True)
        ]
        unit = given // len(values) if visit.weight else 1
        lost = max((visit.weight or found.n_links) - given, 0)  # of links that were dropped on their way
        null_mass = (split.whole - sum(split.weights)) * unit
        whole = sum([link.weight for link in links]) + null_mass + int(UNIT * FLOOR) * lost
        return found._replace(weight=max(whole, 1)), links

    def _targets(self, visit: Visit, links: Sequence[Link]) -> list[Page | None]:
        """The pages that *links* of *visit* lead to, as far as they are known, if anybody asks for them."""
        if self._values.strategy.values_known and not self._learning.is_on:
            return [None] * len(links)
        keys, hosts = [link.key for link in links], [link.host for link in links]
        return self._job.crawl.find_many(keys, hosts, visit.lease)
