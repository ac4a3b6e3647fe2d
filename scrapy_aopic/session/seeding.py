"""Seeds that come in from outside, by ``AOPIC_SEEDS`` and ``scrapy aopic seed``, while the crawl runs."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace
from scrapy import Request
from scrapy.utils.url import url_is_from_any_domain

from scrapy_aopic.core.records import Link, Page
from scrapy_aopic.exceptions import ANY_ERROR, StorageError
from scrapy_aopic.seeds.inbox import Inbox
from scrapy_aopic.view.dropped import REASONS
from scrapy_aopic.web.meta import SEED
from scrapy_aopic.web.request_codec import UnreadableError, decode
from scrapy_aopic.web.request_rows import PURPOSE, SEEDED, encode_url

from .stats import FirstOnly

if TYPE_CHECKING:
    from scrapy_aopic.place.folder_place import FolderPlace
    from scrapy_aopic.seeds.adding import Seed

    from .links.known_pages import KnownPages
    from .parts import SessionParts

logger = logging.getLogger(__name__)

_DROPPED = (
    "The seed %(url)s is not fetched, because %(why)s. Further ones are only counted (aopic/seeds/dropped); 'scrapy aopic why' "
    "knows them"
)

SOON = 0.02
"""Seconds between looks at what the next lease waits for: a commit, or the seeds that a job starts from."""


class Seeding:
    """Takes up the seeds that wait beside a job, a few at a time.

    Args:
        place: The job folder in which they wait.
    """

    def __init__(self, parts: SessionParts, place: FolderPlace, duplicates: KnownPages) -> None:
        job = parts.job
        self._crawler = parts.crawler
        self._spider = parts.spider
        self._engine = parts.engine
        self._job = job
        self._keys = parts.keys
        self._requests = parts.requests
        self._admission = parts.admission
        self._duplicates = duplicates
        self._dropped = parts.dropped
        self._stats = parts.stats
        self._first = FirstOnly(logger, parts.crawler)
        self._are_seen: bool | None = None
        self._open_inbox = partial(Inbox, place, job, self._request, parts.stats.count)
        self._inbox: Inbox | None = self._open_inbox() if job.takes_seeds else None
        self._offsets = job.offsets

    @property
    def is_starting(self) -> bool:
        """Whether the list that the job starts from is being taken up."""
        return self._inbox is not None and self._inbox.is_starting

    def has_rows(self) -> bool:
        """Whether seeds wait."""
        return self._inbox is not None and self._job.takes_seeds and self._inbox.has_rows()

    def turn(self) -> int:
        """Take up some of the seeds that wait; returns how many."""
        self._follow()
        if self._inbox is None or self._job.is_behind:
            return 0
        self._are_seen = None  # to be found out if there are any
        now = self._job.clock()
        rows = self._inbox.turn(now)
        if rows:
            self._engine.wake()
        if self._inbox.is_open:
            self._engine.wake_in(max(self._inbox.turn_at - now, SOON))
        return rows

    def _follow(self) -> None:
        """Go on where the job is, if it became this process's to take up seeds, or stop if it no longer is."""
        job = self._job
        if self._inbox is not None and not (job.takes_seeds and job.offsets is self._offsets):
            self._inbox.close()
            self._inbox = None
        if self._inbox is None and job.takes_seeds:
            self._inbox, self._offsets = self._open_inbox(), job.offsets

    def close(self) -> None:
        """The job is closed."""
        if self._inbox is not None:
            self._inbox.close()

    def _request(self, seed: Seed) -> None:
        """Queue *seed*; one that fails costs none of the others."""
        self._stats.count("aopic/seeds/rows")
        try:
            self._queue(seed)
        except StorageError:
            raise
        except ANY_ERROR:  # logged, whatever the spider's classes raise
            self._stats.count("aopic/errors")
            self._dropped.note("error", seed.url, "")
            self._stats.count("aopic/seeds/dropped")
            self._first.exception("error", _DROPPED, url=seed.url, why="the error that follows has lost it")

    def _queue(self, seed: Seed) -> None:
        """Queue *seed* as a request of the spider would be: signals, filters and fingerprints apply."""
        if seed.request:
            self._whole_request(seed)
            return
        url = self._admission.admit_url(seed.url)
        if url is None:
            return
        if self._are_seen is None:
            self._are_seen = self._duplicates.are_users or self._engine.is_told_of_requests()
        place = None if self._are_seen else self._keys.of_url(url)
        if place is None or self._job.seeded(place[1], place[0]) is not None:
            self._send(Request(url, meta={SEED: seed, PURPOSE: SEEDED}))
        else:  # the request would not be looked at, and making it takes longer than all the rest
            host, key = place
            self._take(seed, key, None, Link(key, host, encode_url(url), is_unfiltered=True))

    def _whole_request(self, seed: Seed) -> None:
        """Queue *seed*, which is more than a URL."""
        try:
            request = decode(seed.request, self._spider)
        except UnreadableError as error:
            self._stats.count("aopic/seeds/unreadable")
            self._dropped.note("unreadable", seed.url, "")
            self._first.warning(
                "unreadable",
                "A request that was imported cannot be made by this spider, and is left out: %(url)s (%(error)s). Further ones are "
                "counted in the stat aopic/seeds/unreadable",
                url=seed.url,
                error=error,
            )
            return
        admitted = self._admission.admit(request)
        if admitted is not None:
            admitted.meta[SEED] = seed
            self._send(admitted)

    def _send(self, request: Request) -> None:
        """Let the engine give *request*, which was made of a seed, to the scheduler."""
        assert self._crawler.engine is not None
        self._crawler.engine.crawl(request)
        if request.meta.pop(SEED, None) is not None:  # :meth:`enqueue` takes it off, and was not called
            self.drop(request.url)

    def drop(self, url: str) -> None:
        """Note that the seed with *url* does not reach the queue: it is out of bounds, or a middleware has dropped it."""
        domains = getattr(self._spider, "allowed_domains", None)
        reason = "offsite" if domains and not url_is_from_any_domain(url, domains) else "signal"
        self._dropped.note(reason, url, "")
        self._stats.count("aopic/seeds/dropped")
        self._first.warning(reason, _DROPPED, url=url, why=REASONS[reason])

    def enqueue(self, request: Request, seed: Seed) -> bool:
        """Take *request*, which was made of *seed*; False if its page is known."""
        try:
            return self._enqueue(request, seed)
        except StorageError:
            raise
        except ANY_ERROR:
            self._dropped.note("error", request.url, "")
            self._stats.count("aopic/seeds/dropped")
            raise  # the guard of the scheduler logs it

    def _enqueue(self, request: Request, seed: Seed) -> bool:
        host, key = self._keys(request)
        page = self._job.seeded(key, host)
        # A link of a page in work is only known when the visit of that ends.
        is_new, again = self._duplicates.decide(request, page, is_new=page is None, is_link=False)
        link = None
        if is_new or again or not self._duplicates.are_users:
            link = self._requests.link(request, key, host, again=again)
            # A request that was imported says itself whether the links to its page are to know it.
            link = link if seed.request else replace(link, is_unfiltered=True)
        is_taken = self._take(seed, key, page, link)
        if not is_taken:
            self._duplicates.log(request, self._spider)
        return is_taken

    def _take(self, seed: Seed, key: bytes, page: Page | None, link: Link | None) -> bool:
        """Queue *link*, if there is one, with the cash that *seed* is worth; a *page* that is known gets it, too."""
        job, now = self._job, self._job.clock()
        worth, enriches = (1.0, False) if seed.worth is None else (seed.worth, True)
        is_taken = link is not None and job.seed(link, now, worth=worth, enriches=enriches)
        if is_taken and link is not None:
            self._stats.count("aopic/seeds/queued")
            self._requests.count_in(link)
        else:
            self._stats.count("aopic/seeds/known")
        if page is not None and seed.worth is not None:
            job.enrich(key, now, seed.worth)
        return is_taken
