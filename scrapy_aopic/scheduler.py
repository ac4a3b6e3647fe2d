"""The Scrapy scheduler: what the engine calls, handed on to the session of an open job.

The three methods that the engine calls for each request never raise and never wait for the disk to take a write.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from scrapy import Request, Spider
from scrapy.core.scheduler import BaseScheduler
from scrapy.crawler import Crawler
from twisted.internet.defer import Deferred
from typing_extensions import Self

from ._engine import callback_tasks
from ._engine.closing import Closing
from ._engine.engine import is_operated_by_hand
from ._engine.process_memory import GarbageThreshold
from .components import Components
from .exceptions import SettingError, StorageError
from .session.open_job import OpenJob
from .session.session import Session

_GARBAGE_AFTER = 10_000
"""New objects after which Python looks for garbage in reference cycles: by its default, 700 until 3.12, that takes a fifth of a
crawl's CPU time."""


class Scheduler(BaseScheduler):
    """Crawls the most important pages first, politely, and remembers everything on disk.

    ``SCHEDULER = "scrapy_aopic.Scheduler"`` is all that is needed: the middlewares that pay cash and pace hosts
    are put in place if they are not listed. Settings: docs/settings.md.

    Attributes:
        session_class: What an open job becomes.
        session: That of the job while it is open.
    """

    session_class: ClassVar[type[Session]] = Session

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._components: Components | None = None
        self._garbage: GarbageThreshold | None = None
        self._by_hand: deque[Request] | None = None
        self.session: Session | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def open(self, spider: Spider) -> Deferred[None] | None:
        """Open the job and put in place what the user has not listed.

        If a setting or the job folder cannot be used, the log says which and why, and the spider is closed. In
        ``scrapy shell`` no job is opened, and requests are handed on as they are: it waits for the callback of the very
        request that it makes, and who looks at a page does not want those of a job to be fetched.
        """
        if is_operated_by_hand(self._crawler):
            self._by_hand = deque()
            return None
        closing = Closing(self._crawler)
        try:
            opened = OpenJob(self._crawler, spider)
        except (SettingError, StorageError) as error:
            closing.refuse(error)
            return None
        self._components = Components(self._crawler)
        self.session = self.session_class(
            self._crawler, spider, opened, closing=closing, addresses=self._components.politeness.addresses
        )
        enqueue = Scheduler.enqueue_request
        self.session.has_shortcuts = getattr(self.enqueue_request, "__func__", None) is enqueue
        self._components.serve(self.session)
        callback_tasks.make_as_needed(self._crawler)
        self._garbage = GarbageThreshold(_GARBAGE_AFTER)
        return self.session.start()

    def close(self, reason: str) -> Deferred[None] | None:
        """Settle what is left, commit it and release the store."""
        session, self.session = self.session, None
        if session is None:
            return None
        if self._garbage is not None:
            self._garbage.release()
        if self._components is not None:
            self._components.serve(None)
        return session.close(reason)

    def enqueue_request(self, request: Request) -> bool:
        """Take *request* as a link, a retry, a redirect or a seed; False if its page is known."""
        if self.session is None:
            if self._by_hand is not None:
                self._by_hand.append(request)
            return self._by_hand is not None
        return self.session.intake.enqueue(request)

    def next_request(self) -> Request | None:
        """The best request that may be made now; ``None`` if there is none, and then the engine is woken in time."""
        if self.session is None:
            return self._by_hand.popleft() if self._by_hand else None
        return self.session.next_request()

    def has_pending_requests(self) -> bool:
        """Whether any page or seed waits; O(1)."""
        return self.session.has_work() if self.session is not None else bool(self._by_hand)

    def __len__(self) -> int:
        """Pages that wait and are not being fetched."""
        return len(self.session.job.crawl if self.session is not None else self._by_hand or ())

    def __bool__(self) -> bool:
        return True  # also without a page
