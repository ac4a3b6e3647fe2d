"""The Scrapy scheduler: requests in, the most important one that may be asked now out.

Between Scrapy and :class:`~scrapy_aopic.core.crawl.Crawl` it keeps one :class:`Visit` for each request that the
engine was given, from then until the engine is done with the callback, the items and the links. Only then the
page is settled, so a process that dies in between fetches it again and pays its links once.

The three methods that the engine calls never raise and never wait for the disk to take a write.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ReferenceType, WeakKeyDictionary, ref

from msgspec.structs import replace
from scrapy import Request, signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter
from scrapy.exceptions import StopDownload
from scrapy.utils.asyncio import create_looping_call
from scrapy.utils.job import job_dir
from scrapy.utils.misc import build_from_crawler, load_object

from ._engine import middlewares
from ._engine.closing import Closing
from ._engine.engine import Engine
from .core.frontier.frontier import Empty, NotBefore, Unlocated
from .core.politeness import Gap
from .core.records import HOST_BYTES, Link, Page, host_key, repeat_key
from .core.revisits import Content
from .dupefilter import DupeFilter
from .exceptions import ExchangeError, LostError, SettingError, StorageError
from .job.folder import seeds_folder, store_folder
from .job.job import Job
from .job.output import OutputError, drop
from .job.report import print_report
from .job.seeds import START, Inbox, Seed, give
from .refusals import AttributesError, CodingsError, reason_of
from .session.admission import Admission
from .session.patience import WAITING, Patience
from .session.state import StateKeeper
from .session.visit import Visit
from .settings import read, read_policy, store_memory
from .storage import exists, lock_job
from .web.bounds import (
    MAX_ATTRIBUTES,
    MAX_CODINGS,
    has_too_many_attributes,
    is_packed_too_often,
)
from .web.http_dates import changed_at
from .web.meta import DOWN, PURPOSE, SEED, SITEMAP, TAG, slot_key
from .web.page_keys import Places
from .web.page_text import read_text
from .web.request_codec import UnreadableError, UnserialisableError, decode, encode, forget_transfer
from .web.request_rows import IN_MEMORY, UNREADABLE, encode_url, stand_in, url_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.http.headers import Headers
    from scrapy.statscollectors import StatsCollector
    from twisted.internet.defer import Deferred
    from typing_extensions import Self

    from .core.api import Lease
    from .core.crawl import Crawl
    from .core.politeness import Outcome
    from .storage.lock import Lock

logger = logging.getLogger(__name__)

_BEAT = 0.25
"""Seconds between beats when the engine asks for no request."""

_BEHIND = 0.02
"""Seconds between looks at a commit that the next lease waits for."""

_COMPONENTS = ("LinkMiddleware", "PolitenessMiddleware", "Progress", "RobotsMiddleware")
"""What the scheduler puts in place, by name as a user's settings would: they stand above it."""

_MAX_REASON = 100
"""Characters of why a request cannot be made that are kept with its page."""

_PERMANENT = (301, 308)
"""Redirects that make source and target one page."""

_GONE = (404, 410)
"""Answers to a repeated visit that retire the page."""

_CONDITIONS = ("If-None-Match", "If-Modified-Since")

_MAX_CONDITION = 256
"""Bytes of an ``ETag`` or ``Last-Modified`` that are worth keeping with each page."""

_BLIND = 60.0
"""Seconds for which a host is left alone when the store could not tell; the crawl stops meanwhile."""


class Scheduler(BaseScheduler):
    """Crawls the most important pages first, politely, and remembers everything on disk.

    ``SCHEDULER = "scrapy_aopic.Scheduler"`` is all that is needed: the middlewares that pay cash and pace hosts
    are put in place if they are not listed. Settings: docs/settings.md.
    """

    _of: ClassVar[WeakKeyDictionary[Crawler, ReferenceType[Scheduler]]] = WeakKeyDictionary()

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._engine = Engine(crawler)
        self._closing = Closing(crawler)
        self._visits: dict[Request, Visit] = {}
        self._by_number: dict[int, Visit] = {}
        self._staged: dict[bytes, int] = {}
        self._unwritten: dict[bytes, Request] = {}
        self._numbers = 0
        self._counts: dict[str, int] = {}
        self._complained: set[str] = set()
        self._filter: BaseDupeFilter | None = None
        self._job: Job | None = None
        self._inbox: Inbox | None = None
        self._are_seeds_seen: bool | None = None
        self._admission: Admission | None = None
        self._temporary: TemporaryDirectory[str] | None = None
        self._lock: Lock | None = None
        self._state: StateKeeper | None = None
        Scheduler._of[crawler] = ref(
            self
        )  # the engine keeps it: it would keep its crawler, the key, for ever

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    @classmethod
    def of(cls, crawler: Crawler) -> Scheduler | None:
        """The scheduler of *crawler*, if it is one of ours and has started."""
        scheduler = cls._of.get(crawler)
        return scheduler() if scheduler is not None else None

    # -- life

    def open(self, spider: Spider) -> Deferred[None] | None:
        """Open the job and put in place what the user has not listed.

        If a setting or the job folder cannot be used, the log says which and why, and the spider is closed.
        """
        assert self._crawler.stats is not None
        self._stats: StatsCollector = self._crawler.stats
        self._spider = spider
        try:
            self._open_job()
        except (SettingError, StorageError) as error:
            self._closing.refuse(error)
            self._forget_seeds()
            self._release()
            self._state = StateKeeper.replacing(self._crawler, None)
            return None
        self._state = StateKeeper.replacing(self._crawler, self._lock)
        assert self._crawler.request_fingerprinter is not None
        self._place = Places(self._crawler.request_fingerprinter)
        self._engine.probe()
        self._install()
        self._crawler.signals.connect(self._headers_received, signal=signals.headers_received)
        self._crawler.signals.connect(self._response_received, signal=signals.response_received)
        if self._recrawls:
            self._crawler.signals.connect(self._ask_for_changes, signal=signals.request_reached_downloader)
            self._crawler.signals.connect(self._unask_for_changes, signal=signals.request_left_downloader)
        self._beats = create_looping_call(self._guard, self._beat)
        self._beats.start(_BEAT, now=False)
        return self._open_filter()

    def _open_job(self) -> None:
        settings = self._crawler.settings
        policy = read_policy(settings, self._crawler.spider)
        policy.domain_of(
            ""
        )  # reads the public suffix list, a tenth of a second, before anything has to be in time
        self._admission = Admission(self._crawler)
        self._recrawls = policy.recrawl is not None
        self._max_links: int = read(settings, "AOPIC_MAX_LINKS")
        self._content_seen: str = read(settings, "AOPIC_CONTENT_SEEN")
        self._reports: bool = read(settings, "AOPIC_REPORT")
        kind = read(settings, "AOPIC_STORE")
        folder = job_dir(settings)
        # Before the seeds that it starts from: they are part of it.
        self._lock = lock_job(store_folder(Path(folder)), "crawl") if folder else None
        waiting = self._give_seeds(folder)
        self._job = Job(
            Path(folder) if folder else None,
            policy,
            lock=self._lock,
            kind=kind,
            interval=read(settings, "AOPIC_DURABILITY"),
            memory_mb=store_memory(settings),
        )
        self._clock = self._job.clock
        if waiting is not None:
            where = seeds_folder(self._lock.around.where) if self._lock is not None else waiting
            self._inbox = Inbox(waiting, self._job, self._ask_for, self._count, where=where)
        crawl = self._job.crawl
        self._persists = folder is not None and kind != "memory"
        self._patience = Patience(self._crawler, read(settings, "AOPIC_MAX_WAIT"), persists=self._persists)
        if crawl.is_resumed:
            counts = crawl.counts
            logger.info(
                "Resuming the crawl in %(folder)s%(how)s: %(queued)d pages queued, %(visited)d visited, %(hosts)d hosts",
                {
                    "folder": folder,
                    "how": ""
                    if crawl.was_clean
                    else ", which was not closed: what was in flight is queued again, and no host is asked for "
                    f"{max(crawl.not_before(b'') - self._clock(), 0.0):.0f} s",
                    "queued": counts.queued,
                    "visited": counts.visited,
                    "hosts": counts.hosts,
                },
                extra={"spider": self._spider},
            )
        elif folder and (Path(folder) / "requests.queue").exists():
            logger.warning(
                "%(folder)s holds a queue of another scheduler, which is not read; this crawl begins anew.",
                {"folder": folder},
                extra={"spider": self._spider},
            )

    def _give_seeds(self, folder: str | None) -> Path | None:
        """Let the seeds that the job starts from wait, unless it has begun; returns where seeds wait."""
        source: str = read(self._crawler.settings, "AOPIC_SEEDS")
        if folder is None and not source:
            return None
        if folder is None:
            self._temporary = TemporaryDirectory(prefix="scrapy-aopic-")
        waiting = Path(self._temporary.name) if self._temporary else seeds_folder(Path(folder or ""))
        if folder is not None and exists(store_folder(Path(folder))):
            if source:
                logger.info(
                    "AOPIC_SEEDS (%(source)s) is not read, because the job in %(folder)s has begun",
                    {"source": source, "folder": folder},
                    extra={"spider": self._spider},
                )
        elif source:
            # Before the job begins: a crash from here on leaves a job that knows of them, or none.
            try:
                given = give(waiting, [source], name=START)
            except ExchangeError as error:
                raise SettingError(f"AOPIC_SEEDS ({source!r}) cannot be used: {error}") from error
            logger.info(
                "The crawl starts from %(rows)d seeds of %(source)s",
                {"rows": given.rows, "source": source},
                extra={"spider": self._spider},
            )
        return waiting

    def _release(self) -> None:
        """Let others have the job, unless the state of the spider is still to be written to it."""
        if self._lock is not None and (self._state is None or self._crawler.engine is None):
            self._lock.release()

    def _forget_seeds(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

    def _install(self) -> None:
        """Put the middlewares in place that the user has not listed."""
        link_cls, politeness_cls, progress_cls, robots_cls = (
            load_object(f"scrapy_aopic.{name}") for name in _COMPONENTS
        )
        added = []
        if middlewares.find(self._crawler, link_cls) is None:
            middlewares.add_spider_middleware(self._crawler, build_from_crawler(link_cls, self._crawler))
            added.append(link_cls.__name__)
        politeness = middlewares.find(self._crawler, politeness_cls)
        if politeness is None:
            politeness = build_from_crawler(politeness_cls, self._crawler)
            middlewares.add_downloader_middleware(self._crawler, politeness)
            added.append(politeness_cls.__name__)
        self._politeness = politeness
        politeness.pacer = self
        robots = middlewares.find(self._crawler, robots_cls)
        if middlewares.replace(
            self._crawler,
            RobotsTxtMiddleware,
            lambda: robots or build_from_crawler(robots_cls, self._crawler),
        ):
            added.append(robots_cls.__name__)
        if not any(isinstance(extension, progress_cls) for extension in self._extensions()):
            self._progress = build_from_crawler(progress_cls, self._crawler)
            self._progress.start()
            added.append(progress_cls.__name__)
        if added:
            logger.info(
                "Put in place by the scheduler: %(names)s",
                {"names": ", ".join(added)},
                extra={"spider": self._spider},
            )

    def _extensions(self) -> tuple[Any, ...]:
        manager = self._crawler.extensions
        return tuple(manager.middlewares) if manager is not None else ()

    def _open_filter(self) -> Deferred[None] | None:
        """Use a duplicate filter of the user's own beside the page table, which is ours."""
        cls = load_object(self._crawler.settings["DUPEFILTER_CLASS"])
        self._log_duplicate = DupeFilter(self._crawler, self._count).log  # obeys DUPEFILTER_DEBUG
        if cls in (RFPDupeFilter, DupeFilter):  # a subclass decides by rules of its own
            if read(self._crawler.settings, "AOPIC_DUPEFILTER") == "bloom":
                logger.warning(
                    'AOPIC_DUPEFILTER = "bloom" has no effect here: the scheduler knows every page exactly.',
                    extra={"spider": self._spider},
                )
            return None
        self._filter = build_from_crawler(cls, self._crawler)
        if cls.log is not BaseDupeFilter.log:  # which only warns
            self._log_duplicate = self._filter.log
        logger.info(
            "%(name)s decides what is a duplicate",
            {"name": self._crawler.settings["DUPEFILTER_CLASS"]},
            extra={"spider": self._spider},
        )
        return self._filter.open()

    def close(self, reason: str) -> Deferred[None] | None:
        """Settle what is left, commit it and release the store."""
        job, self._job = self._job, None
        self._engine.sleep()
        if job is None:
            return None
        self._politeness.pacer = None
        self._beats.stop()
        try:
            with suppress(StorageError):  # a read that failed, which the job knows
                for visit in list(self._visits.values()):
                    if not job.is_torn:
                        self._finish(visit, job.crawl, self._clock())
            self._record(job)
            job.close(print_report if self._reports else None)
        except StorageError as error:
            self._closing.fail()
            if "storage" not in self._complained:
                logger.error(
                    "%(error)s The job folder holds the last commit; what was done since will be done again.",
                    {"error": error},
                    extra={"spider": self._spider},
                )
        except OutputError as error:  # all is closed by then
            drop()
            logger.error(
                "What AOPIC_REPORT asks for cannot be printed: %(error)s.",
                {"error": error},
                extra={"spider": self._spider},
            )
        finally:
            self._visits.clear()
            self._by_number.clear()
            if self._inbox is not None:
                self._inbox.close()
            self._forget_seeds()
            self._release()
        if job.crawl.counts.queued and self._persists:
            logger.info(
                "%(queued)d pages are queued, %(dead)d of them on hosts that do not answer; run the same command to go "
                "on",
                {"queued": job.crawl.counts.queued, "dead": job.crawl.dead[1]},
                extra={"spider": self._spider},
            )
        return self._filter.close(reason) if self._filter is not None else None

    # -- what the engine calls

    def has_pending_requests(self) -> bool:
        """Whether any page or seed waits; O(1) but for the requests in flight."""
        if self._job is None:
            return False
        self._guard(self._sweep)
        if self._job.failure is not None:
            return True  # the spider is being closed, and not because it has finished
        crawl = self._job.crawl
        if (self._recrawls and isinstance(crawl.when(), NotBefore)) or (
            self._inbox is not None and bool(self._guard(self._inbox.has_rows))
        ):
            return True
        has_work = crawl.has_work(self._clock())
        # The engine asks when it has nothing else to do; with visits in work, somebody else does.
        if has_work and not self._visits and self._guard(self._patience.ends, crawl, self._clock()):
            self._closing.close(WAITING)
        return has_work

    def __len__(self) -> int:
        """Pages that wait and are not being fetched."""
        return len(self._job.crawl) if self._job is not None else 0

    def __bool__(self) -> bool:
        return True  # also without a page

    def enqueue_request(self, request: Request) -> bool:
        """Take *request* as a link, a retry, a redirect or a seed; False if its page is known."""
        return bool(self._guard(self._enqueue, request))

    def next_request(self) -> Request | None:
        """The best request that may be made now; ``None`` if there is none, and then wake the engine in time."""
        request: Request | None = self._guard(self._next)
        return request

    def get_next_request_delay(self) -> float | None:
        """Seconds until a request may be made; ``None`` if nothing waits for its time.

        For engines that arm their own timer (Scrapy pull request 6931).
        """
        when = self._job.crawl.when() if self._job is not None else Empty()
        return max(when.instant - self._clock(), 0.0) if isinstance(when, NotBefore) else None

    def _guard(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call *method*; an error is logged and counted, because the engine cannot cope with one here.

        A store that cannot be read ends the crawl: see :attr:`Job.is_torn`.
        """
        try:
            return method(*args)
        except Exception as error:
            if isinstance(error, StorageError) and self._job is not None and self._job.is_torn:
                self._watch(self._job)
                return None
            self._stats.inc_value("aopic/errors")
            where = f"{method.__name__}: {type(error).__name__}"
            if where not in self._complained:
                self._complained.add(where)
                logger.exception(
                    "The scheduler failed on %(args)s; further errors of this kind are only counted (aopic/errors)",
                    {"args": args or method.__name__},
                    extra={"spider": self._spider},
                )
            return None

    # -- requests come in

    def _enqueue(self, request: Request) -> bool:
        job = self._job
        if job is None or job.is_torn:  # the crawl did not start, or is over
            return False
        if (seed := request.meta.pop(SEED, None)) is not None:
            return self._enqueue_seed(request, seed, job.crawl)
        kind, number, *weights = request.meta.get(TAG) or ("", 0)
        visit = self._by_number.get(number)
        if visit is not None and kind == "page":
            return self._enqueue_copy(request, visit, job.crawl)
        if visit is not None and kind == "canonical":
            visit.same_as = self._place(request)[1]
        # What a callback yields was admitted there.
        admitted = request if kind in ("link", "canonical") else self.admit(request)
        return admitted is not None and self._enqueue_page(admitted, visit, job.crawl, *weights)

    def _enqueue_copy(self, request: Request, visit: Visit, crawl: Crawl) -> bool:
        """Take what the downloader's middlewares make of the request of *visit*: a retry, or a redirect's target."""
        if visit.lease.request[:1] != IN_MEMORY:
            forget_transfer(request, visit.request, decode(visit.lease.request, self._spider))
        name, key = self._place(request)
        if self._is_of(key, visit, crawl):
            visit.retry = self._link(request, key, name)
            self._count_enqueued(visit.retry)
            return True
        visit.is_redirect = True
        assert self._admission is not None
        admitted = self._admission.admit_target(request)
        if admitted is not None and self._place(admitted)[1] == visit.lease.key:
            admitted = request  # a site that sends each page to itself with a session would be asked for ever
        if admitted is not None and (request.meta.get("redirect_reasons") or (0,))[-1] in _PERMANENT:
            visit.same_as = self._place(admitted)[1]
        return admitted is not None and self._enqueue_page(admitted, visit, crawl)

    def _enqueue_page(self, request: Request, visit: Visit | None, crawl: Crawl, *weights: int) -> bool:
        """Take *request* as a link of the page of *visit*, or as a seed."""
        name, key = self._place(request)
        page = crawl.page(key)
        again, is_new = self._judge(request, visit, key, page)
        if not is_new and not again:
            self._log_duplicate(request, self._spider)
            if visit is not None and (page is not None or key in self._staged):
                link = Link(key, name, b"") if page is not None else self._link(request, key, name)
                self._add_link(visit, replace(link, weight=weights[0]) if weights else link)
            return False
        link = self._link(request, key, name, again=again)
        if weights:
            link = replace(link, weight=weights[0])
        if visit is None or len(visit.links) >= self._max_links:
            found_on = visit.lease.key if visit is not None else b""
            if not crawl.seed(link, self._clock(), is_endowed=visit is None, found_on=found_on):
                return False
        else:
            self._add_link(visit, link)
        self._count_enqueued(link)
        return True

    def admit(self, request: Request, page: str = "", *, is_link: bool = False) -> Request | None:
        """*request*, of a callback for *page*, as it is to be queued; ``None`` if it is not."""
        return request if self._admission is None else self._admission.admit(request, page, is_link=is_link)

    @staticmethod
    def _is_of(key: bytes, visit: Visit, crawl: Crawl) -> bool:
        """Whether *visit* is of the page under *key*, or of a second request that waited beside it."""
        page = crawl.page(visit.lease.key)
        return key == visit.lease.key or (page is not None and repeat_key(key, page.place) == visit.lease.key)

    def _judge(
        self, request: Request, visit: Visit | None, key: bytes, page: Page | None
    ) -> tuple[bool, bool]:
        """Whether to fetch *request* even if its page is known, and whether the page is new."""
        is_new = page is None and key not in self._staged
        again = request.dont_filter or (page is not None and page.outcome.startswith(UNREADABLE))
        if self._filter is not None and not again:
            is_seen = self._filter.request_seen(request)
            again, is_new = (not is_seen, not is_seen)
            if is_seen:
                return False, False
        if again and page is not None and visit is None and request.meta.get("is_start_request"):
            assert self._job is not None
            # A resumed crawl does not begin anew, but logs in again: start_urls have neither callback nor form.
            is_plain = request.callback is None and request.method == "GET"
            again = not (is_plain and self._job.crawl.is_from_before(page))
        return again, is_new

    def _add_link(self, visit: Visit, link: Link) -> None:
        visit.links.append(link)
        if link.request:  # else its page is known
            self._staged[link.key] = self._staged.get(link.key, 0) + 1

    def _link(self, request: Request, key: bytes, name: str, *, again: bool = False) -> Link:
        try:
            data = encode(request, self._spider)
        except UnserialisableError as error:
            self._numbers += 1
            data = stand_in(request.url, self._numbers)
            self._unwritten[data] = request
            self._count("scheduler/unserializable")
            if self._persists or self._crawler.settings.getbool("SCHEDULER_DEBUG"):
                self._warn_once(
                    "unserializable",
                    "Unable to serialize request: %(error)s; it is kept in memory and lost if the process ends. No "
                    "more such requests will be logged (scheduler/unserializable counts them)",
                    {"error": error},
                )
        return Link(key, name, data, request.priority, again)

    def _count_enqueued(self, link: Link) -> None:
        is_on_disk = self._persists and link.request[:1] != IN_MEMORY
        self._count("scheduler/enqueued")
        self._count(f"scheduler/enqueued/{'disk' if is_on_disk else 'memory'}")

    # -- requests go out

    def _next(self) -> Request | None:
        job = self._job
        if job is None:
            return None
        self._beat()
        if job.is_torn:
            return None
        if job.is_behind or (self._inbox is not None and self._inbox.is_starting):
            self._engine.wake_in(_BEHIND)
            return None
        while True:
            now = self._clock()
            lease = job.crawl.lease(now)
            if isinstance(lease, Unlocated):
                self._politeness.addresses.look_up(lease.name, partial(self._located, lease))
                continue
            if isinstance(lease, NotBefore):
                self._engine.wake_in(lease.instant - now)
                return None
            if isinstance(lease, Empty):
                return None
            try:
                request = self._restore(lease)
            except UnreadableError as error:
                self._set_aside(job.crawl, lease, error, now)
                continue
            self._count("scheduler/dequeued")
            self._count("scheduler/dequeued/disk" if self._persists else "scheduler/dequeued/memory")
            return request

    def _beat(self) -> None:
        """Take note of what has ended, and commit if it is time: at each request, and when none is asked for."""
        if self._job is not None:
            self._sweep()
            rows = self._guard(self._take_seeds)
            self._guard(self._job.rank)
            self._job.tick(1 + (rows or 0))
            self._watch(self._job)
            self._tell_counts()

    # -- seeds come in from outside

    def _take_seeds(self) -> int:
        """Take up some of the seeds that wait; returns how many."""
        inbox, job, now = self._inbox, self._job, self._clock()
        if inbox is None or job is None or job.is_behind:
            return 0
        self._are_seeds_seen = None  # to be found out if there are any
        rows = inbox.turn(now)
        if rows:
            self._engine.wake()
        if inbox.is_open:
            self._engine.wake_in(max(inbox.turn_at - now, _BEHIND))
        return rows

    def _ask_for(self, seed: Seed) -> None:
        """Queue *seed* as a request of the spider would be: signals, filters and fingerprints apply."""
        self._count("aopic/seeds/rows")
        assert self._crawler.engine is not None
        assert self._admission is not None
        assert self._job is not None
        url = self._admission.admit_url(seed.url)
        if url is None:
            return
        if self._are_seeds_seen is None:
            self._are_seeds_seen = self._filter is not None or self._engine.is_told_of_requests()
        place = None if self._are_seeds_seen else self._place.of_url(url)
        if place is None or self._job.crawl.page(place[1]) is not None:
            self._crawler.engine.crawl(Request(url, meta={SEED: seed, PURPOSE: True}))
        else:  # nobody would look at the request, whose making takes longer than all the rest
            name, key = place
            self._take_seed(seed, key, None, Link(key, name, encode_url(url)))

    def _enqueue_seed(self, request: Request, seed: Seed, crawl: Crawl) -> bool:
        """Take *request* for *seed*."""
        name, key = self._place(request)
        page = crawl.page(key)
        again, is_new = self._judge(request, None, key, page)
        if self._filter is None:
            is_new = page is None  # a link of a page in work is only known when that is settled
        link = self._link(request, key, name, again=again) if is_new or again else None
        is_taken = self._take_seed(seed, key, page, link)
        if not is_taken:
            self._log_duplicate(request, self._spider)
        return is_taken

    def _take_seed(self, seed: Seed, key: bytes, page: Page | None, link: Link | None) -> bool:
        """Queue *link*, if there is one, with the cash that *seed* is worth; a *page* that is known gets it, too."""
        assert self._job is not None
        crawl, now = self._job.crawl, self._clock()
        is_taken = link is not None and crawl.seed(link, now, worth=1.0 if seed.worth is None else seed.worth)
        if is_taken and link is not None:
            self._count("aopic/seeds/queued")
            self._count_enqueued(link)
        else:
            self._count("aopic/seeds/known")
        if page is not None and seed.worth is not None:
            crawl.enrich(key, now, seed.worth)
        return is_taken

    def _restore(self, lease: Lease) -> Request:
        if lease.request[:1] == IN_MEMORY:
            request = self._unwritten.pop(lease.request, None)
            if request is None:
                raise UnreadableError(
                    "it could not be written when it was queued, and that process has ended"
                )
        else:
            request = decode(lease.request, self._spider)
        self._numbers += 1
        visit = Visit(request, lease, self._numbers, self._place, self._max_links)
        request.meta[TAG] = ("page", visit.number)
        self._visits[request] = self._by_number[visit.number] = visit
        return request

    def _ask_for_changes(self, request: Request) -> None:
        """Make a repeated request conditional, so that a page that has not changed costs little.

        Only while it is transferred: its copies, such as retries and redirects, may ask for something else.
        """
        visit = self._visits.get(request)
        if visit is None or not visit.lease.visits or self._job is None:
            return
        page = self._job.crawl.page(visit.lease.key)
        is_users = any(name in request.headers for name in _CONDITIONS)
        if page is None or page.changes is None or is_users or request.method not in ("GET", "HEAD"):
            return
        for name, value in zip(_CONDITIONS, (page.changes.etag, page.changes.modified), strict=True):
            if value:
                request.headers[name] = value
                visit.is_conditional = True

    def _unask_for_changes(self, request: Request) -> None:
        visit = self._visits.get(request)
        if visit is not None and visit.is_conditional:
            for name in _CONDITIONS:
                request.headers.pop(name, None)

    def _set_aside(self, crawl: Crawl, lease: Lease, error: UnreadableError, now: float) -> None:
        crawl.release(lease, now)
        crawl.settle(lease, (), now, outcome=f"{UNREADABLE}: {error}"[:_MAX_REASON], is_failure=True)
        self._count("aopic/pages/failed")
        self._count("aopic/pages/unreadable")
        self._count(f"aopic/outcomes/{UNREADABLE}")
        self._warn_once(
            "unreadable",
            "The queued request for %(url)s cannot be made and is set aside: %(error)s. Further ones are only "
            "counted (aopic/pages/unreadable); 'scrapy aopic status' says why",
            {"url": url_of(lease.request) or lease.host, "error": error},
        )

    # -- what becomes of them

    def visit_of(self, request: Request) -> Visit | None:
        """The visit that *request*, or a copy of it, belongs to."""
        visit = self._visits.get(request)
        return visit or self._by_number.get((request.meta.get(TAG) or ("", 0))[1])

    def note_named(self, visit: Visit, request: Request) -> None:
        """The page of *visit* says that it is the one of *request*, which counts if they have the same text."""
        visit.same_as, visit.is_if_same = self._place(request)[1], True

    def page_of(self, request: Request) -> Page | None:
        """What the crawl knows of the page of *request*; not to be changed."""
        if self._job is None:
            return None
        return self._job.crawl.page(self._place(request)[1])

    def judge(self, response: Response, named: Callable[[Response], Request | None]) -> tuple[str, str]:
        """Note the text of the page of *response*.

        Args:
            named: Makes a request for the page that it says it is; called if another site has the text, too.

        Returns:
            URL of the page that it is a duplicate of, and of a page of another site with its text; ``""`` for none.
        """
        return self._guard(self._judge_text, response, named) or ("", "")

    def _judge_text(self, response: Response, named: Callable[[Response], Request | None]) -> tuple[str, str]:
        request = response.request
        visit = self.visit_of(request) if request is not None else None
        if visit is None or request is None or self._job is None or self._content_seen == "off":
            return "", ""
        crawl, text = self._job.crawl, None
        if not (response.status == 304 and visit.lease.visits):
            text = read_text(response, has_sketch=self._content_seen == "near")
            if text is None:
                return "", ""
        key = self._place(request)[1]
        key = key if self._is_of(key, visit, crawl) else visit.lease.key
        twin, copy = crawl.judge(visit.lease, text, key), crawl.copy_of(visit.lease)
        if copy and (other := named(response)) is not None:
            it = self._place(other)[1]
            if crawl.give_way(visit.lease, it, key):
                twin, copy = it, b""
        visit.is_duplicate = bool(twin)
        visit.is_excess = visit.is_duplicate and not crawl.are_same(key, twin)
        if copy:
            self._count("aopic/content/copies")
        return self._url(crawl, twin) if twin else "", self._url(crawl, copy) if copy else ""

    def duplicate_of(self, request: Request) -> str:
        """URL of the page that the page of *request* was found to be the same as; ``""`` if none is known."""
        if self._job is None:
            return ""
        crawl = self._job.crawl
        other = crawl.same_as(self._place(request)[1])
        return self._url(crawl, other) if other else ""

    def _url(self, crawl: Crawl, key: bytes) -> str:
        """URL of the page under *key*."""
        return url_of(crawl.request(key))

    def is_leased(self, request: Request) -> bool:
        """Whether *request* is the very one that the engine was given: a copy of it puts its page back."""
        return request in self._visits

    def is_dead(self, request: Request) -> bool:
        """Whether nobody waits for the host of *request*."""
        return self._job is not None and bool(
            self._guard(self._job.crawl.is_dead, host_key(slot_key(request)))
        )

    def hold(self, request: Request, seconds: float) -> None:
        """Leave the host of *request* alone for *seconds* from now, if not longer."""
        if self._job is not None:
            self._guard(self._job.crawl.hold, host_key(slot_key(request)), self._clock() + seconds)

    def importance(self, page: Page) -> float:
        """Estimated importance of *page*, 0 to 1."""
        return self._job.crawl.importance(page, self._clock()) if self._job is not None else 0.0

    @property
    def job(self) -> Job | None:
        """The job while the crawl runs."""
        return self._job

    def _sweep(self) -> None:
        """Release hosts whose download is over and settle pages whose callbacks are."""
        if self._job is None or self._job.is_torn or not self._visits:
            return
        crawl, now = self._job.crawl, self._clock()
        downloading, in_progress = self._engine.downloading(), self._engine.in_progress()
        for request, visit in list(self._visits.items()):
            if visit.is_downloading and request not in downloading:
                visit.is_downloading = False
                crawl.release(visit.lease, now)
            if request not in in_progress and not visit.is_downloading:
                del self._visits[request]
                self._finish(visit, crawl, now)

    def _finish(self, visit: Visit, crawl: Crawl, now: float) -> None:
        """Settle the page of *visit*, with which the engine is done."""
        del self._by_number[visit.number]
        if visit.is_downloading:
            crawl.release(visit.lease, now)
        for link in visit.links:
            if not link.request:
                continue
            if self._staged[link.key] == 1:
                del self._staged[link.key]
            else:
                self._staged[link.key] -= 1
        if visit.retry is not None:
            if not visit.links:
                crawl.put_back(visit.lease, visit.retry, now)
                return
            visit.links.append(replace(visit.retry, again=True))  # an errback wants another try, and more
        outcome, is_failure = "", False
        if visit.status is None:
            outcome = visit.reason or ("redirect" if visit.is_redirect else "no answer")
            is_failure = not visit.is_redirect
        elif visit.status >= 400 and not visit.n_links:
            outcome, is_failure = f"http {visit.status}", True
        if visit.is_duplicate:
            outcome = outcome or "duplicate"
        content = visit.content
        if self._recrawls and visit.lease.visits:
            content, is_failure = self._compare(visit, crawl, is_failure=is_failure)
        crawl.settle(
            visit.lease,
            visit.links,
            now,
            n_links=visit.n_links,
            weight=visit.weight,
            outcome=outcome,
            is_failure=is_failure,
            content=content,
            same_as=visit.same_as,
            is_if_same=visit.is_if_same,
        )
        self._count(f"aopic/pages/{'failed' if is_failure else 'visited'}")
        if outcome:
            self._count(f"aopic/outcomes/{outcome}")

    def _compare(self, visit: Visit, crawl: Crawl, *, is_failure: bool) -> tuple[Content, bool]:
        """What a repeated visit shows of the page's content, and whether the page is retired."""
        if is_failure and visit.status not in _GONE:
            self._count("aopic/recrawl/errors")
            return Content(is_missing=True), False  # it may be there the next time
        self._count("aopic/recrawl/visits")
        content, page = visit.content or Content(), crawl.page(visit.lease.key)
        if is_failure:
            self._count("aopic/recrawl/retired")
        elif content.is_same:
            self._count("aopic/recrawl/not_modified")
        elif page is not None and page.changes is not None:
            is_changed = page.changes.digest != content.digest
            self._count(f"aopic/recrawl/{'changed' if is_changed else 'unchanged'}")
        return content, is_failure

    def _headers_received(self, headers: Headers, request: Request) -> None:
        """Read no more of an answer that would stop everything, or of a page that is not of a type that is wanted."""
        visit = self._visits.get(request)
        if is_packed_too_often(headers):
            self._warn_once(
                "codings",
                "%(url)s is packed more than %(n)d times (Content-Encoding) and is not read, because to unpack it would "
                "stop everything; further ones are only counted (aopic/hostile/codings)",
                {"url": request.url, "n": MAX_CODINGS},
            )
            self._count("aopic/hostile/codings")
            if visit is not None:
                visit.unwanted = CodingsError(f"{request.url} is packed too often")
            raise StopDownload(fail=visit is None)
        if visit is None or self._admission is None:
            return
        self._admission.note_answer(request, headers)
        if not self._is_wanted(request, headers):  # its status decides what becomes of it
            raise StopDownload(fail=False)

    def _is_wanted(self, request: Request, headers: Headers) -> bool:
        assert self._admission is not None
        return bool(request.meta.keys() & {PURPOSE, SITEMAP}) or self._admission.is_wanted(headers)

    def _response_received(self, response: Response, request: Request) -> None:
        visit = self._visits.get(request)  # not a copy: a callback may fetch one inline
        if visit is None:
            return
        if response.status in range(200, 300) and not self._is_wanted(request, response.headers):
            assert self._admission is not None
            visit.unwanted = self._admission.unwanted(response)
        elif has_too_many_attributes(response):
            self._warn_once(
                "attributes",
                "%(url)s has an element with more than %(n)d attributes and is not read, because to parse it would stop "
                "everything; further ones are only counted (aopic/hostile/attributes)",
                {"url": response.url, "n": MAX_ATTRIBUTES},
            )
            self._count("aopic/hostile/attributes")
            visit.unwanted = AttributesError(f"{response.url} has an element with too many attributes")
        if visit.unwanted is not None:
            visit.reason = visit.unwanted.reason
            return
        visit.status = response.status
        if not self._recrawls:
            return
        etag, modified, date = (
            response.headers.get(name) or b"" for name in ("ETag", "Last-Modified", "Date")
        )
        visit.content = Content(
            blake2b(response.body, digest_size=8).digest(),
            etag if len(etag) <= _MAX_CONDITION else b"",
            modified if len(modified) <= _MAX_CONDITION else b"",
            is_same=response.status == 304 and visit.lease.visits > 0,
            changed_at=changed_at(modified, date, self._clock()),
        )
        if visit.is_conditional and response.status == 304:
            # The spider did not ask whether anything has changed: to it, 304 would be an error.
            request.meta["handle_httpstatus_all"] = True
            request.callback = _nothing_new

    # -- what PolitenessMiddleware asks

    def transferred(
        self,
        key: str,
        seconds: float,
        outcome: Outcome,
        *,
        ago: float,
        retry_after: float,
        at_least: float,
        address: str,
    ) -> Gap:
        """Take note of a transfer that was over *ago*; returns for how long its host is left alone from then on."""
        assert self._job is not None, "only an open job paces hosts"
        if retry_after:
            self._job.hurry()  # a crash must not forget it
        try:
            return self._job.crawl.transferred(
                key,
                seconds,
                self._clock() - ago,
                outcome,
                retry_after=retry_after,
                at_least=at_least,
                address=address,
            )
        except StorageError:
            self._watch(self._job)
            return Gap(_BLIND, _BLIND)

    def waits(self, key: str) -> float:
        """Seconds for which the host under *key* must be left alone; for ever if the store cannot be read."""
        assert self._job is not None, "only an open job paces hosts"
        not_before: float | None = self._guard(self._job.crawl.not_before, host_key(key))
        return not_before - self._clock() if not_before is not None and not self._job.is_torn else inf

    def longest_gap(self, key: str) -> float:
        """Longest gap of the host under *key* after a transfer that shows nothing special."""
        assert self._job is not None, "only an open job paces hosts"
        return self._guard(self._job.crawl.longest_gap, key) or 0.0

    def set_crawl_delay(self, key: str, seconds: float) -> None:
        """Have *seconds* between the requests to a host, whose robots.txt was just read."""
        if self._job is not None:
            self._guard(self._job.crawl.set_crawl_delay, key, seconds, self._clock())
            self._politeness.look_again(key)

    def ask_later(self, request: Request, *, is_refused: bool) -> Request | None:
        """A copy of *request* that puts its page back, unless the page has a part in its host being down.

        It has if the host answered for other pages since it was asked for this one; then, and from then on, the retry
        middleware decides.
        """
        visit = self._visits.get(request)
        if visit is None or self._job is None:
            return None
        if not is_refused:
            meta, down = request.meta, self._guard(self._job.crawl.down, visit.lease.key[:HOST_BYTES])
            if not down or meta.get("dont_retry") or meta.get("retry_times") or down <= meta.get(DOWN, 0):
                return None
            meta[DOWN] = down
        self._count("aopic/politeness/put_back")
        return request.copy()

    def n_hosts(self) -> int:
        """Hosts that the crawl knows."""
        return self._job.crawl.counts.hosts if self._job is not None else 0

    def failed(self, request: Request, exception: Exception) -> None:
        """Note that *exception* ended *request*."""
        visit = self._visits.get(request)
        if visit is not None:
            visit.reason = reason_of(exception)

    def _located(self, host: Unlocated, address: str) -> None:
        """The address of *host* was looked up."""
        if self._job is not None:
            self._guard(self._job.crawl.locate, host, address, self._clock())
            self._engine.wake()

    def _warn_once(self, kind: str, text: str, args: dict[str, Any]) -> None:
        """Log the first warning of its *kind*."""
        if kind not in self._complained:
            self._complained.add(kind)
            logger.warning(text, args, extra={"spider": self._spider})

    def _watch(self, job: Job) -> None:
        """Close the spider if the store takes no more."""
        if job.failure is not None and "storage" not in self._complained:
            self._complained.add("storage")
            is_lost = isinstance(job.failure, LostError)
            logger.error(
                "%(error)s The crawl stops%(advice)s",
                {
                    "error": job.failure,
                    "advice": "."
                    if is_lost
                    else "; nothing that was committed is lost, run the same command to go on.",
                },
                extra={"spider": self._spider},
            )
            self._closing.abort("aopic_storage")

    def _count(self, name: str) -> None:
        """Increase a stat, at the next beat: a page makes some forty of these calls for a few names."""
        self._counts[name] = self._counts.get(name, 0) + 1

    def _tell_counts(self) -> None:
        counts, self._counts = self._counts, {}
        for name, n in counts.items():
            self._stats.inc_value(name, n)

    def _record(self, job: Job) -> None:
        """Set the stats that describe the crawl as a whole."""
        self._tell_counts()
        crawl, stats = job.crawl, self._stats
        hits, misses = crawl.cache_hits
        for name, value in (
            *crawl.counts._asdict().items(),
            ("dead_hosts", crawl.dead[0]),
            ("dead_pages", crawl.dead[1]),
            ("cash/virtual", crawl.ledger.totals.virtual),
            ("cash/turns", crawl.ledger.totals.turn),
            ("cash/convergence", 1 / crawl.ledger.totals.turn if crawl.ledger.totals.turn else None),
            ("cache/hits", hits),
            ("cache/misses", misses),
            ("content/united", crawl.n_united),
            ("commits", job.commits),
            ("commits/slowest_seconds", round(job.slowest_commit, 6)),
        ):
            stats.set_value(f"aopic/{name if '/' in name or name == 'commits' else f'job/{name}'}", value)


def _nothing_new(response: Response, **_: Any) -> None:
    """Callback of an answer that the spider is not told of."""
