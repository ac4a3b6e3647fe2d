"""Calls users' functions, which grade pages and value links: awaits asynchronous ones while the crawl goes on.

Rule 1: only the page itself waits: the event loop goes on, and so does its host. The page counts as one of those in work
until then (``CONCURRENT_REQUESTS`` before its callback, ``SCRAPER_SLOT_MAX_ACTIVE_SIZE`` after it), so that a slow service
slows the crawl down instead of filling its memory.

Rule 2: no page waits for longer than :data:`LONGEST`, whatever the function does.

Rule 3: links can be valued without the function, so pages do not queue for one that has ceased to respond.
"""

from __future__ import annotations

import asyncio
from inspect import isawaitable
from typing import TYPE_CHECKING, Generic, TypeVar

from scrapy_aopic.exceptions import ANY_ERROR

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from scrapy import Request
    from scrapy.http import Response

    from scrapy_aopic.core.focus.strategy import PageSeen
    from scrapy_aopic.core.focus.topic import LinkText
    from scrapy_aopic.focus import LinkScorer, PageScorer
    from scrapy_aopic.session.stats import FirstOnly
    from scrapy_aopic.session.visit import Visits

T = TypeVar("T")

_SLOW = 0.2
"""Seconds that a function may take in the event loop without a warning: a hundred times what a page takes otherwise."""

LONGEST = 30.0
"""Seconds for which a page waits for a function of the user's at most."""

_PATIENCE = 5
"""Pages in a row whose links a function has not valued in time, after which it is called for one page at a time: otherwise a
service that is down would hold each page of the crawl for the whole time-out."""


class OutOfPatienceError(Exception):
    """A function was not called, as it has not responded for a while."""


class _Awaiting(Generic[T]):
    """Awaits what a function gives, for :data:`LONGEST` at most.

    Args:
        what: What is missing if it is late.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._late: set[asyncio.Task[T]] = set()  # the loop itself does not keep them

    async def result(self, given: T | Awaitable[T]) -> T:
        """The result of *given*, which may be awaitable.

        Raises:
            TimeoutError: If it takes too long; it is cancelled.
        """
        task = asyncio.ensure_future(_awaited(given))
        self._late.add(task)
        task.add_done_callback(self._done)
        # wait_for() waits for a task that is cancelled, too
        await asyncio.wait({task}, timeout=LONGEST)
        if not task.done():
            task.cancel()
            raise TimeoutError(f"no {self._what} within {LONGEST:g} seconds")
        return task.result()

    def _done(self, task: asyncio.Task[T]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # which was seen, or came too late


class Judging:
    """A downloader middleware that has pages graded before their callbacks are called."""

    def __init__(self, visits: Visits, grade: PageScorer) -> None:
        self._visits = visits
        self._grade = grade
        self._awaiting: _Awaiting[float] = _Awaiting("grade")

    async def process_response(self, request: Request, response: Response) -> Response:
        """Return *response* once it is graded, or it is known that it cannot be."""
        visit = self._visits.get(request)
        if visit is not None and visit.unwanted is None:
            if response.request is None:
                response.request = request
            try:
                visit.graded(await self._awaiting.result(self._grade(response)))
            except ANY_ERROR as error:  # said when the page is read
                visit.graded(error)
        return response


class Valuing:
    """Has the links of pages valued, each page's at once."""

    def __init__(self, score: LinkScorer) -> None:
        self._score = score
        self._awaiting: _Awaiting[object] = _Awaiting("values")
        self._n_late = 0
        self._n_asked = 0

    async def values(self, page: PageSeen, links: Mapping[bytes, LinkText]) -> dict[bytes, float]:
        """The values of the *links* of *page* by their keys, each from 0 to 1.

        Raises:
            OutOfPatienceError: If the function was not called.
            Exception: Whatever the function raises, or if it gives no such numbers, or is late.
        """
        if self._n_late >= _PATIENCE and self._n_asked:
            raise OutOfPatienceError
        self._n_asked += 1
        try:
            given = await self._awaiting.result(self._score(page, list(links.values())))
            self._n_late = 0
        except TimeoutError:
            self._n_late += 1
            raise
        finally:
            self._n_asked -= 1
        values = list(map(part, given))  # type: ignore[call-overload]  # whatever it is, an error says so
        if len(values) != len(links):
            raise ValueError(f"{len(values)} values for {len(links)} links")
        return dict(zip(links, values, strict=True))


def note_time(first: FirstOnly, setting: str, url: str, seconds: float) -> None:
    """A user's function has taken so many *seconds* of the event loop: say so if that is too many."""
    if seconds > _SLOW:
        first.warning(
            f"slow {setting}",
            "The function of %(setting)s took %(seconds).1f s for %(page)s, and the whole crawl waited for it: if it is an "
            "'async def', only the page waits, for %(longest)g seconds at most. Further such pages are not logged",
            setting=setting,
            seconds=seconds,
            longest=LONGEST,
            page=url,
        )


def part(number: object) -> float:
    """*number* as one from 0 to 1.

    Raises:
        ValueError: If it is no such number.
        TypeError: The same.
    """
    if not 0.0 <= number <= 1.0:  # type: ignore[operator]
        raise ValueError(f"{number!r} is not from 0 to 1")
    return float(number)  # type: ignore[arg-type]


async def _awaited(given: T | Awaitable[T]) -> T:
    try:
        return await given if isawaitable(given) else given
    except (SystemExit, KeyboardInterrupt) as error:  # these would end the event loop, and not only the task
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
