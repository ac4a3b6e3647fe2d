"""Pages that a user's asynchronous function grades: each is waited for before its callback is called.

Rule 1: nothing but the page itself waits: the event loop goes on, and so does its host. The page counts as one of
``CONCURRENT_REQUESTS`` until it is graded, so that a slow service slows the crawl down rather than fill its memory.

Rule 2: no page waits for longer than ``AOPIC_TOPIC_TIMEOUT``, whatever the function does.
"""

from __future__ import annotations

import asyncio
from inspect import isawaitable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from scrapy import Request
    from scrapy.http import Response

    from scrapy_aopic.focus import PageScorer

    from .visit import Visits


class Judging:
    """A downloader middleware that has pages graded.

    Args:
        timeout: Seconds for which a page waits at most.
    """

    def __init__(self, visits: Visits, grade: PageScorer, timeout: float) -> None:
        self._visits = visits
        self._grade = grade
        self._timeout = timeout
        self._late: set[asyncio.Task[float]] = set()  # the loop itself does not keep them

    async def process_response(self, request: Request, response: Response) -> Response:
        """The same *response*, once it is graded, or it is known that it cannot be."""
        visit = self._visits.get(request)
        if visit is not None and visit.unwanted is None:
            if response.request is None:
                response.request = request
            try:
                visit.judged = await self._judged(response)
            except Exception as error:  # noqa: BLE001 - said when the page is read
                visit.judged = error
        return response

    async def _judged(self, response: Response) -> float:
        task = asyncio.ensure_future(_awaited(self._grade(response)))
        self._late.add(task)
        task.add_done_callback(self._done)
        await asyncio.wait(
            {task}, timeout=self._timeout
        )  # wait_for() waits for a task that is cancelled, too
        if not task.done():
            task.cancel()
            raise TimeoutError(f"no grade within {self._timeout:g} seconds (AOPIC_TOPIC_TIMEOUT)")
        return task.result()

    def _done(self, task: asyncio.Task[float]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # which was seen, or came too late


async def _awaited(grade: float | Awaitable[float]) -> float:
    return await grade if isawaitable(grade) else grade
