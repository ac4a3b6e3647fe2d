"""A crawl in Scrapy: an open job, and what happens in it from the spider's start to its end.

::

    seeding ----+                                   +---> engine, downloader, callback
    callback ---+--> intake --> crawl --> dispatch --+         |
    retries ----+     (job)                ^                   v
                                           +---- settle <--- visit <-- links, responses, pacer

================== =========================================================================================
file               what happens there
================== =========================================================================================
`intake`           requests come in: links, retries and redirects, and what the spider requests by itself
`seeding`          seeds come in that wait beside the job
`dispatch`         requests go out, and end
`visit`            what is known of a page in work, and how its visit ended
`bodies`           which pages are in memory
`footprint`        what the process takes of the machine's memory
`responses`        what responses show of a page in work
`compared`         what of a page is compared with the visit before
`conditional`      repeated requests ask only for what has changed
`page_robots`      what pages ask of robots
`reloads`          pages that lead to themselves
`redirect_cookies` cookies of redirect chains
`costs`            what answers take of the processor
`pacer`            what the downloader's middlewares need
`topic`            how relevant pages are, and what their links are worth for a topic
`queued`           requests as bytes
`stats`            what is counted, and logged once
`parts`            what most of these work with
`waits_and_ends`   when it ends by itself, and what requests wait for
`steering`         what an operator asks of the crawl while it runs
`error_handler`    what goes wrong
================== =========================================================================================

Rule 1: a session is an open job. It is made when the job is opened, and not there if that could not be done.

Rule 2: what the engine calls, and what is called at an event of the engine's, never raises and never waits for the disk to
take a write.

Rule 3: a page is settled when the engine is done with its callback, its items and its links, so a process that dies before
that fetches it again, and its links are paid once. They may be queued before, if anything waits for them (:meth:`.intake.Intake.announce`).
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, ClassVar
from weakref import ReferenceType, WeakKeyDictionary, ref

from scrapy import Request, Spider, signals
from scrapy.exceptions import CloseSpider
from scrapy.utils.asyncio import create_looping_call
from scrapy.utils.misc import load_object

from scrapy_aopic._engine.engine import Engine
from scrapy_aopic._engine.feeds import watch_feeds
from scrapy_aopic._engine.open_files import OpenFiles
from scrapy_aopic.core.frontier.frontier import NotBefore
from scrapy_aopic.exceptions import SALVAGE, StorageError
from scrapy_aopic.place.folder_place import worker_number
from scrapy_aopic.settings import read_values
from scrapy_aopic.storage.known_bodies import KnownBodies
from scrapy_aopic.view.live import Watch
from scrapy_aopic.view.output import OutputError, drop
from scrapy_aopic.view.text import round_sentence
from scrapy_aopic.view.text_report import print_report
from scrapy_aopic.web.page_keys import PageKeys

from .bodies import Bodies
from .conditional import ConditionalRequests
from .costs import Costs
from .dispatch import Dispatch
from .error_handler import ErrorHandler, guarded
from .footprint import Footprint
from .intake import Intake
from .lateness import Lateness
from .latest_failures import LatestFailures
from .links.known_pages import KnownPages
from .links.link_targets import LinkTargets
from .pacer import JobPacer
from .page_robots import PageRobots
from .parts import SessionParts
from .queued import QueuedRequests
from .redirect_cookies import RedirectCookies
from .reloads import Reloads
from .responses import Responses
from .seeding import SOON, Seeding
from .stats import Stats
from .steering import Steering
from .topic.focus import Focus
from .visit import Visit, Visits
from .waits_and_ends import CONVERGED, WAITING, Convergence, WaitLimit
from .worker_link import WorkerLink

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

    from scrapy_aopic._engine.addresses import Addresses
    from scrapy_aopic._engine.closing import Closing

    from .open_job import OpenJob

logger = logging.getLogger(__name__)

UNREACHABLE = "aopic_unreachable"
"""Reason of a spider that is closed with nothing left to fetch but pages of dead hosts."""

_SET_ASIDE = "aopic_unreadable"
"""Reason of a spider that has nothing left to fetch, and pages of which the requests could not be made."""

_STRANDED = "aopic_stranded"
"""Reason of a spider that is closed with pages that are said to wait, and that nothing in the job leads to."""

_BEAT = 0.25
"""Seconds between beats when the engine asks for no request."""

_LONG = 8
"""Beats for which links wait for the end of a visit at most."""


def has_session(crawler: Crawler) -> bool:
    """Whether the scheduler of *crawler* works with a session, as far as its job can be opened."""
    # Not issubclass(): Scrapy makes it true of every class with a scheduler's methods.
    return hasattr(load_object(crawler.settings["SCHEDULER"]), "session_class")


class Session:
    """What Scrapy's classes share while a crawl runs.

    Args:
        opened: The job.
        closing: Closes the spider if the store fails.
        addresses: Looks up the addresses of hosts.

    Attributes:
        is_open: Whether it has not been closed.
        job: The open job.
        keys: Finds the page keys of requests.
        admission: The rules on URLs and content types.
        targets: Admits links.
        visits: The visits under way.
        intake: Takes requests.
        bodies: Lets pages be read one after the other.
        costs: Counts what answers take of the processor.
        footprint: The memory of the process.
        responses: Reads responses.
        pacer: Paces hosts, for the downloader's middlewares.
        stats: Counts.
        errors: Deals with errors.
        page_robots: Reads what owners of pages ask.
        focus: Grades pages and values links for a topic; ``None`` if there is none.
        watch: Takes snapshots.
        dropped: Notes links that do not reach the queue.
        steering: Applies the control settings of an operator.
        recrawls: Whether pages are visited again.
        listeners: Told what is found out about the page of a visit, as texts by name.
    """

    has_shortcuts = True
    """Whether links may reach :attr:`intake` without being given to the scheduler; it says so if a subclass wants them."""

    dispatch_class: ClassVar[type[Dispatch]] = Dispatch
    """What hands out requests and ends their visits."""

    _of: ClassVar[WeakKeyDictionary[Crawler, ReferenceType[Session]]] = WeakKeyDictionary()

    def __init__(
        self, crawler: Crawler, spider: Spider, opened: OpenJob, *, closing: Closing, addresses: Addresses
    ) -> None:
        assert crawler.stats is not None
        assert crawler.request_fingerprinter is not None
        self.is_open = True
        self._crawler = crawler
        self._opened = opened
        self._extra = {"spider": spider}
        self._closing = closing
        self._link = WorkerLink(crawler, closing) if worker_number() else None
        self._engine = Engine(crawler)
        self._engine.probe()
        self._open_files = OpenFiles(crawler)
        self.job = job = opened.job
        self._feeds = watch_feeds(
            crawler, job.side_files, is_resumed=job.crawl.is_resumed, persists=opened.persists
        )
        self._never_ends = opened.never_ends
        self.stats = Stats(crawler.stats)
        self.errors = ErrorHandler(crawler, closing, job, self.stats)
        self.keys = keys = PageKeys(
            crawler.request_fingerprinter, partial(self.stats.count, "aopic/urls/slow")
        )
        self.admission = opened.admission
        self.dropped = opened.dropped
        self.targets = LinkTargets(opened.admission, keys)
        self.visits = Visits(keys)
        self._duplicates = KnownPages(crawler, spider, job.crawl, self.stats, earlier=opened.earlier)
        self.recrawls = opened.recrawl is not None
        requests = QueuedRequests(
            crawler, spider, self.stats, persists=opened.persists, recrawls=self.recrawls
        )
        self.bodies = Bodies(crawler, self.visits, self.stats, self._engine.make_room)
        parts = SessionParts(
            crawler,
            spider,
            self._engine,
            job,
            self.stats,
            self.errors,
            keys,
            self.admission,
            self.dropped,
            self.visits,
            requests,
            Reloads(
                self.visits,
                keeps_cookies=self.admission.lacks_cookies or crawler.settings.getbool("COOKIES_ENABLED"),
            ),
            RedirectCookies(crawler, self.stats, is_on=self.admission.lacks_cookies),
            self.bodies,
            recrawl=opened.recrawl,
            longest_of=opened.longest_of,
        )
        self._seeding = Seeding(parts, opened.seeds, self._duplicates) if opened.seeds is not None else None
        self.intake = Intake(parts, duplicates=self._duplicates, seeding=self._seeding)
        self.listeners: list[Callable[[Visit, dict[str, str]], None]] = []
        self.page_robots = PageRobots(parts, self.listeners)
        self.focus: Focus | None = None
        if opened.topic is not None:
            self.focus = Focus(
                parts, opened.topic, targets=self.targets, closing=closing, listeners=self.listeners
            )
            self.intake.value = self.focus.links.value_early
        self.footprint = Footprint(crawler, self.bodies, self.stats, read_values(crawler.settings).memory_mb)
        failures = LatestFailures()
        self.costs = Costs(parts)
        self._dispatch = self.dispatch_class(
            parts,
            costs=self.costs,
            intake=self.intake,
            look_up=addresses.look_up,
            failures=failures,
            focus=self.focus,
        )
        self.responses = Responses(
            parts, costs=self.costs, intake=self.intake, seen=opened.content_seen, compared=opened.compared
        )
        self._conditional = ConditionalRequests(parts) if self.recrawls else None
        self.watch = Watch(
            crawler,
            job,
            self.visits,
            stats=self.stats,
            lateness=partial(Lateness.of, crawler),
            standstill=self._dispatch.standstill,
            control=lambda: self.steering.figures,
            latest=failures,
            memory_limit=self.footprint.limit,
            labels=self.focus.calibration.labels if self.focus is not None else 0,
            history=opened.history,
            dropped=opened.dropped,
        )
        self._wait_limit = WaitLimit(crawler, opened.max_wait, persists=opened.persists)
        self._convergence = Convergence(crawler, opened.min_convergence)
        self.steering = Steering(spider, job, self.visits, opened.control, self._closing.close)
        self.pacer = JobPacer(parts, self.steering.gap)
        self._beats = create_looping_call(self._beat_alone)
        crawler.signals.connect(self._idle, signal=signals.spider_idle)
        self._of[crawler] = ref(self)  # a session keeps its crawler, the key: it would be kept for ever

    @classmethod
    def of(cls, crawler: Crawler) -> Session | None:
        """The session of *crawler* while it is open."""
        session = cls._of.get(crawler)
        return session() if session is not None else None

    def open_bodies(self) -> KnownBodies | None:
        """Bodies that an earlier crawl has archived, for the caller to close; ``None`` if none lie beside the job.

        Raises:
            StorageError: If they cannot be read.
        """
        path = self._opened.bodies_file
        return KnownBodies(path) if path is not None and path.exists() else None

    # -- life

    def start(self) -> Deferred[None] | None:
        """Begin."""
        self.admission.deny(self.steering.control.denies())
        self._beats.start(_BEAT, now=False)
        self.watch.start()
        return self._duplicates.open()

    def close(self, reason: str) -> Deferred[None] | None:
        """End the visits under way, commit what is left and release the store."""
        job, set_aside = self.job, 0
        self.is_open = False
        self._of.pop(self._crawler, None)
        self._engine.sleep()
        self._beats.stop()
        self.watch.stop(reason)
        try:
            with suppress(StorageError):  # a read that failed, which the job knows
                self._dispatch.close()
                set_aside = self._n_set_aside()
                if self.focus is not None:
                    self.focus.close()
            self.stats.describe(job)
            job.close(partial(print_report, self._opened.place) if self._opened.reports else None)
        except StorageError as error:
            self._closing.fail()
            if not self.errors.is_store_known:
                logger.error(
                    "%(error)s The job folder holds the last commit; what was done since will be done again.",
                    {"error": error},
                    extra=self._extra,
                )
        except OutputError as error:  # all is closed by then
            drop()
            logger.error(
                "What AOPIC_REPORT asks for cannot be printed: %(error)s.",
                {"error": error},
                extra=self._extra,
            )
        finally:
            if reason in (_SET_ASIDE, _STRANDED):
                self._closing.fail()
            self.visits.clear()
            if self._seeding is not None:
                self._seeding.close()
            self._opened.release()
        self._say_what_is_left(reason, set_aside)
        return self._duplicates.close(reason)

    def _say_what_is_left(self, reason: str, set_aside: int) -> None:
        """Log what a round has found, and what is still queued."""
        crawl, persists = self.job.crawl, self._opened.persists
        queued, blocked, (n_dead, dead) = crawl.counts.queued, crawl.blocked[1], crawl.dead
        if crawl.round is not None and self.job.part is None:  # of shards, nobody here has seen all of it
            logger.info(round_sentence(crawl.round), extra=self._extra)
        if set_aside:
            logger.warning(
                "Pages set aside: %(pages)d, because their queued requests could not be made (aopic/pages/unreadable), and "
                "with them what lies behind them; %(rest)s",
                {
                    "pages": set_aside,
                    "rest": "'scrapy aopic status' says why, and 'scrapy aopic check' whether the job is whole; a link to such a "
                    "page queues it again"
                    if persists
                    else "a link to such a page queues it again",
                },
                extra=self._extra,
            )
        if reason == _STRANDED:
            logger.warning(
                "Pages said to wait: %(pages)d, and nothing in the job leads to them: 'scrapy aopic check' says what is "
                f"wrong, and {SALVAGE}",
                {"pages": queued - dead},
                extra=self._extra,
            )
        if reason == UNREACHABLE:
            logger.warning(
                "The crawl ends with pages that it could not fetch (%(dead)d), as their hosts do not answer (%(hosts)d); "
                "%(rest)s",
                {
                    "dead": dead,
                    "hosts": n_dead,
                    "rest": "run the same command to try them again; 'scrapy aopic hosts JOB --failing' names the hosts"
                    if persists
                    else "without a JOBDIR they are lost",
                },
                extra=self._extra,
            )
        elif queued and persists:
            logger.info(
                "Pages queued: %(queued)d, %(dead)d of them on hosts that do not answer%(blocked)s; run the same command "
                "to go on",
                {
                    "queued": queued,
                    "dead": dead,
                    "blocked": f", and {blocked} on hosts that were blocked or have had all of their pages"
                    if blocked
                    else "",
                },
                extra=self._extra,
            )

    # -- what middlewares ask

    @property
    def prefetches(self) -> bool:
        """Whether callbacks may wait while the store reads what their links will be looked up in."""
        return self.is_open and self.job.crawl.prefetches

    @property
    def is_behind(self) -> bool:
        """Whether callbacks and ``start()`` wait before they yield more, since the disk is behind.

        Else one without end would fill the memory. None waits for a store that has failed: a crawl ends after its
        callbacks.
        """
        return self.is_open and self.job.is_behind and self.job.failure is None

    # -- what the engine calls

    @guarded(None)
    def next_request(self) -> Request | None:
        """The best request that may be made now; ``None`` if there is none, and then the engine is woken in time."""
        self._beat()
        if self.job.is_broken or self.job.side_files.failure is not None:
            return None
        # The engine asks again when a page is over.
        if self.bodies.is_full or not self._open_files.take(len(self.visits)):
            return None
        if self.job.is_behind or (self._seeding is not None and self._seeding.is_starting):
            self._engine.wake_in(SOON)
            return None
        steering = self.steering
        if not steering.holds_back:
            return self._dispatch.next()
        if wait := steering.wait(self.job.clock()):
            if wait != inf:
                self._engine.wake_in(wait)
            self._dispatch.standstill.next_due(inf)
            return None
        request = self._dispatch.next()
        if request is not None:
            steering.requested(self.job.clock())
        return request

    @guarded(True)
    def has_work(self) -> bool:
        """Whether any page or seed waits."""
        self._dispatch.look()
        job = self.job
        if job.failure is not None:
            return True  # the spider is being closed, and not because it has finished
        if (self._never_ends and isinstance(job.crawl.when(), NotBefore)) or self._has_seeds():
            return True
        has_work = job.crawl.has_work(job.clock())
        # The engine calls this when it is idle; with visits in work, others call it.
        if has_work and not len(self.visits) and self._is_impatient():
            self._closing.close(WAITING)
        return has_work or not job.is_quiet

    @guarded(False)
    def _has_seeds(self) -> bool:
        return self._seeding is not None and self._seeding.has_rows()

    @guarded(False)
    def _is_impatient(self) -> bool:
        return not self.steering.control.paused_since and self._wait_limit.ends(
            self.job.crawl, self.job.clock()
        )

    @guarded(0)
    def _n_set_aside(self) -> int:
        return self._dispatch.n_set_aside if not self.job.is_broken else 0

    def _idle(self) -> None:
        """Give a crawl its reason if pages are left when it ends; it goes on if a handler of another extension wants that."""
        if not self.is_open:
            return
        if self._n_set_aside():
            raise CloseSpider(_SET_ASIDE)
        if self.job.crawl.stranded:
            raise CloseSpider(_STRANDED)
        if self.job.crawl.dead[1]:
            raise CloseSpider(UNREACHABLE)

    # -- beats

    @guarded(None)
    def _beat_alone(self) -> None:
        self._beat()
        self.costs.beat()
        self.bodies.beat()
        self.footprint.beat()
        self._look_for_standstill()
        self._announce()
        if self._convergence.ends(self.job.crawl):
            self._closing.close(CONVERGED)

    def _beat(self) -> None:
        """Commit if it is time, and do what else is due: at each request, and when none is asked for."""
        self._dispatch.look()
        rows = self._take_seeds()
        self._rank()
        self._learn()
        if self.job.tick(1 + rows) | self._steer():
            self._engine.wake()
        self.errors.watch()
        self.stats.beat()

    def _look_for_standstill(self) -> None:
        standstill = self._dispatch.standstill
        if self._engine.is_closing or self.steering.holds_back:
            standstill.next_due(inf)
        elif standstill.is_known or self.job.is_broken:
            standstill.look()
        elif isinstance(when := self.job.crawl.when(), NotBefore):  # since it was asked last
            standstill.next_due(max(when.instant - self.job.clock(), 0.0))

    def _announce(self) -> None:
        """Let links go out whose pages take long, as their items do: these may wait for them."""
        due = [visit for visit in self.visits if visit.beat() >= _LONG]
        for visit in sorted(due, key=lambda visit: len(visit.links)):
            if visit.flush is not None:
                visit.flush()
            if self.intake.announce(visit):  # the rest at the next beat, as those of others that have as many
                break

    @guarded(0)
    def _take_seeds(self) -> int:
        return self._seeding.turn() if self._seeding is not None else 0

    @guarded(False)
    def _steer(self) -> bool:
        if has_changed := self.steering.look():
            self.admission.deny(self.steering.control.denies())
        return has_changed

    @guarded(None)
    def _rank(self) -> None:
        self.job.rank()

    @guarded(None)
    def _learn(self) -> None:
        if self.focus is not None:
            self.focus.step()
