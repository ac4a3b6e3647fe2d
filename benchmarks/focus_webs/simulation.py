"""A crawl for a topic in memory: one page at a time, without politeness, in the front queues of the core's focused order."""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from zlib import crc32

from scrapy_aopic.core.focus.shares import shares
from scrapy_aopic.core.focus.strategies import STRATEGIES
from scrapy_aopic.core.focus.strategy import FLOOR, REVALUED, PageSeen, Strategy, known_value
from scrapy_aopic.core.focus.topic import RELEVANT, LinkText, Topic
from scrapy_aopic.core.order import Focused, revalued, value_of, whole_value
from scrapy_aopic.core.records import HOST_BYTES, PAGE_BYTES, Page, PageState

from . import Web

SEED = 1 << 29
"""Units of cash that a seed gets in a real crawl."""


class Policy(NamedTuple):
    """An order of pages.

    Attributes:
        strategy: ``AOPIC_LINK_SCORER``, a name or a class; without one, the order is by the name of the policy.
        focus: ``AOPIC_FOCUS``.
    """

    strategy: str | type[Strategy] = ""
    focus: float = 0.9


class Remembered(Topic):
    """A topic that judges no text twice, so that many crawls for it take less time."""

    def __init__(self, topic: Topic) -> None:
        super().__init__((), topic.pages)
        vars(self).update(vars(topic))
        self._known: dict[LinkText, float] = {}
        self._grades: dict[int, float] = {}

    def match(self, link: LinkText) -> float:
        found = self._known.get(link)
        if found is None:
            found = self._known[link] = super().match(link)
        return found

    def grade_of(self, web: Web, number: int) -> float:
        found = self._grades.get(number)
        if found is None:
            page = web.pages[number]
            found = self.pages.score(page.features) if self.has_examples else self.grade(page.text)
            self._grades[number] = found
        return found


class Crawl:
    """One crawl by a named *policy*."""

    def __init__(
        self, web: Web, labels: Sequence[bool], topic: Remembered, policy: tuple[str, Policy], seed: int
    ) -> None:
        self.web, self.labels, self.topic = web, labels, topic
        self.name, (strategy, self.focus) = policy
        make: Any = STRATEGIES[strategy] if isinstance(strategy, str) and strategy else strategy
        self.strategy = make(topic, random.Random(seed)) if make else None
        self.queues = Focused(0.0 if self.strategy is not None and self.strategy.by_cash else self.focus)
        self.cash: dict[int, float] = {}
        self.value: dict[int, int] = {}
        self.order: dict[int, int] = {}
        self.found_on: dict[int, tuple[int, LinkText | None]] = {}
        self.grades: dict[int, float] = {}
        self.depth: dict[int, int] = {}
        self.stale: list[int] = []
        self.version = 0
        self.spent = 0.0
        self.heap: list[tuple[float, int, int]] = []

    def key(self, page: int) -> bytes:
        """Key of a *page*, as in a store: its host first."""
        host = urlsplit(self.web.pages[page].url).netloc
        return crc32(host.encode()).to_bytes(HOST_BYTES, "big") + page.to_bytes(
            PAGE_BYTES - HOST_BYTES, "big"
        )

    def score(self, page: int) -> float:
        if self.name == "breadth-first":
            return 0.0
        if self.name == "one-step oracle":
            return float(self.labels[page])
        if self.name == "cash":
            return self.cash[page]
        waiting = Page(PageState.QUEUED, 1, score=revalued(0, self.value[page]))
        return self.queues.front_queue(waiting, int(self.cash[page] * SEED))

    def push(self, page: int) -> None:
        heapq.heappush(self.heap, (-self.score(page), self.order[page], page))

    def begin(self, seeds: Sequence[int]) -> None:
        """Let *seeds* wait."""
        for seed in seeds:
            self.cash[seed], self.value[seed], self.order[seed] = 1.0, whole_value(1.0), len(self.order)
            self.found_on[seed], self.depth[seed] = (-1, None), 0
            self.push(seed)

    def run(self, seeds: Sequence[int], fetches: int) -> list[int]:
        """Numbers of the pages that it fetches, in their order."""
        done: dict[int, None] = {}
        self.begin(seeds)
        begin = time.process_time()
        while self.heap and len(done) < fetches:
            key, _, number = heapq.heappop(self.heap)
            if number in done or -key != self.score(number):
                continue  # its score has changed since: it is there once more
            done[number] = None
            self.visit(number, done)
        self.spent += time.process_time() - begin
        return list(done)

    def revalue(self, number: int) -> None:
        """Value a waiting page anew."""
        parent, link = self.found_on[number]
        if self.strategy is None or link is None:
            return
        value = self.strategy.revalue(self.grades[parent], link, self.key(parent))
        if value is not None:
            self.value[number] = whole_value(max(value, FLOOR))
            self.push(number)

    def visit(self, number: int, done: dict[int, None]) -> None:
        page = self.web.pages[number]
        values = [1.0] * len(page.links)
        if self.strategy is not None:
            grade = self.grades[number] = self.topic.grade_of(self.web, number)
            parent, link = self.found_on[number]
            seen = PageSeen(
                page.url, grade, value_of(self.value[number]), grade >= RELEVANT,
                self.key(number), self.key(parent) if parent >= 0 else b"", link, self.depth[number],
                self.grades.get(parent, 0.0), page.text, degrees=page.degrees,
            )  # fmt: skip
            self.strategy.learn(seen)
            if page.links:
                values = self.values(seen, page.links, done)
        split = shares(values, focus=self.focus)
        if self.strategy is not None:
            split = shares(
                values, focus=self.focus, null_mass=self.strategy.null_mass, power=self.strategy.power
            )
        cash = 0.85 * self.cash.get(number, 0.0)
        for (target, link), value, weight in zip(page.links, values, split.weights, strict=True):
            if target in done:
                continue
            self.order.setdefault(target, len(self.order))
            self.cash[target] = self.cash.get(target, 0.0) + cash * weight / split.whole
            whole = whole_value(value)
            if whole > self.value.get(target, 0):
                self.value[target] = whole
                self.found_on[target] = number, link
                self.depth[target] = self.depth[number] + 1
            self.push(target)
        if self.strategy is not None:
            self.sweep(done)

    def values(
        self, seen: PageSeen, links: Sequence[tuple[int, LinkText]], done: dict[int, None]
    ) -> list[float]:
        """Values of the *links* of the page that was *seen*, as a real crawl gives them."""
        assert self.strategy is not None
        known: list[float | None] = [None] * len(links)
        if not self.strategy.values_known:
            known = [known_value(self.page(target, done)) for target, _ in links]
        unknown = [text for (_, text), value in zip(links, known, strict=True) if value is None]
        valued = iter(self.strategy.values(seen, unknown) if unknown else ())
        return [max(next(valued), FLOOR) if value is None else value for value in known]

    def page(self, number: int, done: dict[int, None]) -> Page | None:
        """What a crawl knows of a page that it has read."""
        is_read = number in done
        return Page(PageState.VISITED, 1, score=whole_value(self.grades[number])) if is_read else None

    def sweep(self, done: dict[int, None]) -> None:
        assert self.strategy is not None
        if not self.stale and self.strategy.version != self.version:
            self.version = self.strategy.version
            self.stale = [page for page in self.value if page not in done]
        for _ in range(min(REVALUED, len(self.stale))):
            page = self.stale.pop()
            if page not in done:
                self.revalue(page)
