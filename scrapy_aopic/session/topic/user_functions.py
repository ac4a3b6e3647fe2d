"""Calls users' functions: awaits asynchronous ones, which grade pages, while the crawl goes on.

Rule 1: only the page itself waits: the event loop goes on, and so does its host. The page counts as one of those in work
until then (``CONCURRENT_REQUESTS``), so that a slow service slows the crawl down instead of filling its memory.

Rule 2: no page waits for longer than :data:`LONGEST`, whatever the function does.
"""

from __future__ import annotations

import asyncio
from inspect import isawaitable
from typing import TYPE_CHECKING

from scrapy_aopic.exceptions import ANY_ERROR

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from scrapy import Request
    from scrapy.http import Response

    from scrapy_aopic.focus import PageScorer
    from scrapy_aopic.session.stats import FirstOnly
    from scrapy_aopic.session.visit import Visits

_SLOW = 0.2
"""Seconds that a function may take in the event loop without a warning: a hundred times what a page takes otherwise."""

LONGEST = 30.0
"""Seconds for which a page waits for a function of the user's at most."""


class Judging:
    """A downloader middleware that has pages graded before their callbacks are called."""

    def __init__(self, visits: Visits, grade: PageScorer) -> None:
        self._visits = visits
        self._grade = grade
        self._late: set[asyncio.Task[float]] = set()  # the loop itself does not keep them

    async def process_response(self, request: Request, response: Response) -> Response:
        """Return *response* once it is graded, or it is known that it cannot be."""
        visit = self._visits.get(request)
        if visit is not None and visit.unwanted is None:
            if response.request is None:
                response.request = request
            try:
                visit.graded(await self._graded(response))
            except ANY_ERROR as error:  # said when the page is read
                visit.graded(error)
        return response

    async def _graded(self, response: Response) -> float:
        """The grade of *response*.

        Raises:
            TimeoutError: If it takes too long; it is cancelled.
        """
        task = asyncio.ensure_future(_awaited(self._grade(response)))
        self._late.add(task)
        task.add_done_callback(self._done)
        # wait_for() waits for a task that is cancelled, too
        await asyncio.wait({task}, timeout=LONGEST)
        if not task.done():
            task.cancel()
            raise TimeoutError(f"no grade within {LONGEST:g} seconds")
        return task.result()

    def _done(self, task: asyncio.Task[float]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # which was seen, or came too late


def note_time(first: FirstOnly, setting: str, url: str, seconds: float) -> None:
    """A user's function has taken so many *seconds* of the event loop: say so if that is too many."""
    if seconds > _SLOW:
        first.warning(
            f"slow {setting}",
            "The function of %(setting)s took %(seconds).1f s for %(page)s, and the whole crawl waited for it: one that grades "
            "pages may be an 'async def', for which only the page waits. Further such pages are not logged",
            setting=setting,
            seconds=seconds,
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


async def _awaited(given: float | Awaitable[float]) -> float:
    try:
        return await given if isawaitable(given) else given
    except (SystemExit, KeyboardInterrupt) as error:  # these would end the event loop, and not only the task
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
