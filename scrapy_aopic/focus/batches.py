"""A user's own functions that grade pages or value links; and a judge of pages that is asked for batches of them: asynchronous,
bounded, cached.

A function may also be a class whose instances are callable; one is made for each crawl, by ``from_crawler`` if it has that.

Rule: a judge that is slow, late or broken slows nothing but itself. A page waits for its grade for a moment only, and not at all
while the judge is late: then it gets the mean grade of its host, and its own one counts when the page is met again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any, NamedTuple, Protocol

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.http import Response, TextResponse
from typing_extensions import Self

from scrapy_aopic.core.focus.strategy import PageSeen
from scrapy_aopic.core.focus.topic import LinkText
from scrapy_aopic.web.context import page_context
from scrapy_aopic.web.origins import host_name

_MOST_LATE = 5
"""Pages in a row that waited in vain, after which none waits until the judge has graded one."""

_MOST_HOSTS = 10_000


class PageScorer(Protocol):
    """Says how relevant a page is: what ``AOPIC_TOPIC = {"function": ...}`` names."""

    def __call__(self, response: Response, /) -> float | Awaitable[float]:
        """The grade of the page, 0 to 1.

        A coroutine function (``async def``) is awaited before the page's callback is called, for at most
        30 seconds. Any other function is called in the event loop, which waits for it.

        If it raises, the page has no grade; nothing else happens.
        """


class LinkScorer(Protocol):
    """Says what links are worth: what ``AOPIC_LINK_SCORER`` names, if it is no strategy."""

    def __call__(self, page: PageSeen, links: Sequence[LinkText], /) -> Sequence[float]:
        """The value, 0 to 1, of each of the *links* of *page*, in their order.

        It is called in the event loop, which waits for it. If it raises, the links are worth as much as their page.
        """


class JudgedPage(NamedTuple):
    """What a judge is given of a page.

    Attributes:
        text: Its visible text, as far as it is judged.
    """

    url: str
    text: str


async def judged(
    judge: Callable[[Sequence[JudgedPage]], Sequence[float] | Awaitable[Sequence[float]]],
    pages: Sequence[JudgedPage],
) -> list[float]:
    """The grades of *pages* by *judge*, which is called in a thread if it is no coroutine function.

    Raises:
        ValueError: If they are not as many numbers from 0 to 1.
        Exception: Whatever the judge raises.
    """
    given: Any = await (judge(pages) if iscoroutinefunction(judge) else asyncio.to_thread(judge, pages))
    grades = [float(each) for each in given]
    if len(grades) != len(pages) or not all(0 <= each <= 1 for each in grades):
        raise ValueError(f"{len(grades)} grades for {len(pages)} pages, or not from 0 to 1")
    return grades


class BatchJudge:
    """A :class:`PageScorer` that judges pages in batches: subclass it, and say how in :meth:`judge`.

    One batch is judged at a time. What is graded is remembered by its text.

    Attributes:
        size: Pages of a batch at most.
        fill: Seconds for which a batch waits to become full.
        wait: Seconds for which a page waits for its grade.
        queue: Pages that wait for the judge at most; what comes then is graded by its host.
        remembered: Grades that are remembered, those that were not used for longest are forgotten.
        characters: Of a page that are judged.
    """

    size = 32
    fill = 0.05
    wait = 0.5
    queue = 512
    remembered = 100_000
    characters = 5_000

    def __init__(self) -> None:
        self._grades: OrderedDict[bytes, float] = OrderedDict()
        self._hosts: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._asked: OrderedDict[bytes, tuple[JudgedPage, asyncio.Future[float]]] = OrderedDict()
        self._worker: asyncio.Task[None] | None = None
        self._n_late = 0
        self._count: Callable[[str], object] = str

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """One for a crawl."""
        judge = cls()
        assert crawler.stats is not None
        judge._count = crawler.stats.inc_value
        crawler.signals.connect(judge.close, signals.spider_closed)
        return judge

    def close(self) -> None:
        """Ask the judge no more."""
        if self._worker is not None:
            self._worker.cancel()

    def judge(self, pages: Sequence[JudgedPage], /) -> Sequence[float] | Awaitable[Sequence[float]]:
        """The grades of *pages*, 0 to 1, in their order. Called in a thread, or awaited if it is ``async def``."""
        raise NotImplementedError

    async def __call__(self, response: Response, /) -> float:
        """The grade of the page, or that of its host if the judge is late.

        Raises:
            Exception: Whatever the judge has raised for it.
        """
        page = JudgedPage(response.url, self._text(response))
        key = hashlib.blake2b(page.text.encode("utf-8", "replace"), digest_size=16).digest()
        if key in self._grades:
            self._grades.move_to_end(key)
            return self._grades[key]
        if key not in self._asked:
            if len(self._asked) >= self.queue:
                return self._guess(page)
            self._asked[key] = page, asyncio.get_running_loop().create_future()
        answer = self._asked[key][1]
        if self._worker is None or self._worker.done():
            self._worker = asyncio.ensure_future(self._work())
        if self._n_late < _MOST_LATE:
            await asyncio.wait({answer}, timeout=self.wait)
        if answer.done():
            return answer.result()
        self._n_late += 1
        return self._guess(page)

    def _text(self, response: Response) -> str:
        root = response.selector.root if isinstance(response, TextResponse) else None
        if not hasattr(root, "iter"):  # JSON, say
            return response.text[: self.characters] if isinstance(response, TextResponse) else ""
        return page_context(root, response.url, has_links=False).text[: self.characters]

    def _guess(self, page: JudgedPage) -> float:
        self._count("aopic/topic/guessed")
        (n, total), (n_all, total_all) = (
            self._hosts.get(host, (0, 0.0)) for host in (host_name(page.url), "")
        )
        return (total + total_all / max(n_all, 1)) / (n + 1)  # the mean of all counts as one page more

    async def _work(self) -> None:
        """Judge what waits, batch after batch."""
        while self._asked:
            if len(self._asked) < self.size:
                await asyncio.sleep(self.fill)
            batch = list(self._asked.items())[: self.size]
            pages = [page for _, (page, _) in batch]
            try:
                grades = await judged(self.judge, pages)
            except Exception as error:  # noqa: BLE001 - whatever the user's judge raises; each page is told
                for key, (_, answer) in batch:
                    del self._asked[key]
                    answer.set_exception(error)
                    answer.exception()  # nobody may wait any more
                continue
            self._n_late = 0
            for (key, (page, answer)), grade in zip(batch, grades, strict=True):
                del self._asked[key]
                self._note(key, page, grade)
                answer.set_result(grade)

    def _note(self, key: bytes, page: JudgedPage, grade: float) -> None:
        self._grades[key] = grade
        if len(self._grades) > self.remembered:
            self._grades.popitem(last=False)
        for host in (host_name(page.url), ""):  # of all hosts last, so that it is not forgotten
            n, total = self._hosts.pop(host, (0, 0.0))
            self._hosts[host] = n + 1, total + grade
        if len(self._hosts) > _MOST_HOSTS:
            self._hosts.popitem(last=False)
