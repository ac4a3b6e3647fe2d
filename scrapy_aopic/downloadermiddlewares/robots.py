"""Refuses what a robots.txt forbids, by RFC 9309: downloads each robots.txt, and asks the core what follows from it.

If ``AOPIC_CONTENT_USAGE`` says so, the ``tdmrep.json`` of an origin is fetched in the same way, before the first page that
robots.txt allows.

What is known is one row per origin in the store of the job, and is part of its commits
(:mod:`scrapy_aopic.core.robots.state`). In memory are the parsed rules of the origins that were used last.

A page whose robots.txt had to be fetched first, or is unreachable, goes back to the scheduler with all its cash, and
its host keeps its gap; so no page waits inside the downloader. Beside another scheduler it goes on after its
robots.txt, and is refused if that is unreachable.
"""

from __future__ import annotations

import logging
from functools import partial
from math import ceil, inf
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest, NotConfigured, StopDownload
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK
from scrapy.robotstxt import RobotParser
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.misc import load_object
from scrapy.utils.python import to_unicode
from twisted.internet.defer import Deferred
from typing_extensions import Self
from w3lib.url import safe_url_string

from scrapy_aopic._engine.closing import configured
from scrapy_aopic.core.robots.fetches import (
    MAX_BYTES,
    Download,
    Fetch,
    RobotsFetches,
    RobotsTarget,
    RobotsText,
    Step,
    Wait,
)
from scrapy_aopic.core.robots.state import KnownRobots, Refetching, RobotsTxt
from scrapy_aopic.exceptions import AopicError
from scrapy_aopic.job.clock import JobClock
from scrapy_aopic.request_errors import ForbiddenError, LeftAloneError, NothingAllowedError
from scrapy_aopic.session.pacer import JobPacer
from scrapy_aopic.session.sitemap_requests import Sitemaps
from scrapy_aopic.session.stats import FirstOnly
from scrapy_aopic.session.time_slices import in_time_slices
from scrapy_aopic.settings import read_values
from scrapy_aopic.web.content_usage import NOTHING, TDMREP, Stated
from scrapy_aopic.web.meta import OWN_SLOT, RECEIVED, STATED_USAGE, slot_key
from scrapy_aopic.web.origins import TDMREP_JSON, file_key, host_name, origin_of, origin_of_file
from scrapy_aopic.web.request_rows import SLOT
from scrapy_aopic.web.robots_parser import Rfc9309RobotParser, crawl_delay_of, parse
from scrapy_aopic.web.tdmrep import TdmRules

from .polite_downloads import PolitenessMiddleware

logger = logging.getLogger(__name__)

MOST_KNOWN = 1000
"""Parsed robots.txt files in memory, of 4 KiB each; the least recently used one leaves first."""

EXPIRY = 86_400.0
"""Age in seconds at which a robots.txt is fetched again: that of a cache by RFC 9309, 2.4."""

RETRY = 60.0
"""Seconds until an unreachable robots.txt is tried again; it doubles with each try."""

_PRIORITY = 1000
"""Priority of the request for a robots.txt in its download slot: before all pages of the host."""


class _DroppedError(AopicError):
    """The response was dropped before its end, such as one that unpacks to too much."""


class RobotsMiddleware:
    """Refuses what robots.txt forbids; takes the place of Scrapy's ``RobotsTxtMiddleware``.

    Order: that of the one that it replaces (100 in ``DOWNLOADER_MIDDLEWARES``).

    Attributes:
        pacer: Remembers what is known, and puts requests off; ``None`` beside other schedulers.
    """

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        if not settings.getbool("ROBOTSTXT_OBEY"):
            raise NotConfigured
        self._crawler = crawler
        self._user_agent: str | None = settings["ROBOTSTXT_USER_AGENT"]
        self._default_user_agent: str = settings["USER_AGENT"]
        self._kind: type[RobotParser] = Rfc9309RobotParser
        if settings.getpriority("ROBOTSTXT_PARSER"):
            self._kind = load_object(settings["ROBOTSTXT_PARSER"])
            self._kind.from_crawler(crawler, b"")  # says at once what is not installed
        values = read_values(settings)
        refetching = Refetching(EXPIRY, RETRY, values.max_wait or inf)
        self._known = KnownRobots(refetching, MOST_KNOWN, self._load, self._keep)
        self._fetches = RobotsFetches(self._known)
        self._tdm_fetches: RobotsFetches | None = None
        if TDMREP in values.content_usage:
            known = KnownRobots(refetching, MOST_KNOWN, self._load_tdm, self._keep_tdm)
            self._tdm_fetches = RobotsFetches(known, TDMREP_JSON)
        self._first = FirstOnly(logger, crawler)
        self._takes_sitemaps = values.sitemaps
        self._sitemaps = Sitemaps(crawler, takes_feeds=self._takes_sitemaps)
        self._own_clock = JobClock()
        self.pacer: JobPacer | None = None
        crawler.signals.connect(self._bytes_received, signal=signals.bytes_received)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        with configured(crawler):
            return cls(crawler)

    def clock(self) -> float:
        """The instant now: that of the job, in which the times of what is known are kept."""
        return self.pacer.clock() if self.pacer is not None else self._own_clock()

    # -- requests are judged

    async def process_request(self, request: Request) -> Request | None:
        request.meta.pop(STATED_USAGE, None)  # a redirect has copied it
        if request.meta.get("dont_obey_robotstxt") or not request.url.startswith(("http://", "https://")):
            return None
        url = urlparse_cached(request)
        origin = origin_of(url.scheme, url.netloc)
        robots, goes_back = self._known.get_current(origin, self.clock()), False
        if robots is None:
            robots, goes_back = await self._learn(origin, request), True
        pacer, tdm = self.pacer, None
        if pacer is not None and not pacer.is_leased(request):
            pacer = None  # it does not wait for this request
        if self._known.has_rules(robots, self.clock()):
            await self._judge(robots, request)
            if pacer is not None and self._tdm_fetches is not None:
                tdm = self._tdm_fetches.known.get_current(origin, self.clock())
                if tdm is None:
                    tdm = await self._learn_tdm(self._tdm_fetches, origin, request)
                    goes_back |= not tdm.failures  # a page does not wait for one that cannot be had
                self._state_tdm(tdm, request)
        elif pacer is not None and isinstance(robots.error, Exception) and not pacer.is_link(request):
            raise robots.error.with_traceback(None)  # what ended one request ends the other
        elif pacer is None or (self._known.is_given_up(robots) and not pacer.is_dead(request)):
            self._first.count("aopic/robots/refused")
            raise NothingAllowedError(f"Nothing is allowed while the robots.txt of {origin} is unreachable")
        else:
            pacer.hold(request, robots.retry_at - self.clock(), is_for_all=robots.error is None)
            goes_back = True
        if pacer is not None and goes_back:
            self._first.count("aopic/robots/put_back")
            pacer.crawl.counters.defer("robots.txt")
            return request.copy()
        robots.is_unused = False
        if tdm is not None:
            tdm.is_unused = False
        return None

    async def _judge(self, robots: RobotsTxt, request: Request) -> None:
        """Refuse *request* if *robots* forbids it, and have its host paced by the crawl delay."""
        if not robots.text:
            self._pace(robots, request, 0.0)
            return
        user_agent = self._agent_of(request)
        parser = self._parser(robots)
        if isinstance(parser, Rfc9309RobotParser):
            await self._read(parser, user_agent, request)
        self._pace(robots, request, crawl_delay_of(parser, user_agent) or 0.0)
        if parser.allowed(request.url, user_agent):
            if isinstance(parser, Rfc9309RobotParser) and (stated := parser.usage(request.url, user_agent)):
                request.meta[STATED_USAGE] = Stated(stated)
            return
        robots.is_unused = False
        self._first.each(
            logging.DEBUG,
            "forbidden",
            "Forbidden by robots.txt: %(request)s",
            " (ROBOTSTXT_OBEY); further ones are logged at level DEBUG (robotstxt/forbidden counts them)",
            request=request,
        )
        self._first.count("robotstxt/forbidden")
        raise ForbiddenError("Forbidden by robots.txt")

    def _agent_of(self, request: Request) -> str | bytes:
        """The user agent that *request* is judged by."""
        return self._user_agent or request.headers.get(b"User-Agent") or self._default_user_agent

    def _parser(self, robots: RobotsTxt) -> RobotParser:
        """The text of *robots*, parsed when it is first needed."""
        if robots.parser is None:
            robots.parser = parse(robots.text or b"", self._kind, self._crawler)
        return cast("RobotParser", robots.parser)  # of which the core knows less

    async def _read(self, parser: Rfc9309RobotParser, user_agent: str | bytes, request: Request) -> None:
        """Have *parser* read the rules for *user_agent*, in steps between which other requests go on."""
        if parser.knows(user_agent):
            return
        rules = await in_time_slices(parser.read(user_agent))
        if rules.n_cut:
            self._first.count("aopic/robots/cut")
            self._first.warning(
                "cut",
                "The robots.txt for %(url)s has more rules with wildcards, or longer ones, than are compared with "
                "every URL: of %(n)d only what is before the first wildcard counts if they forbid, and nothing if "
                "they allow. Further such files are only counted (aopic/robots/cut)",
                url=request.url,
                n=rules.n_cut,
            )

    def _pace(self, robots: RobotsTxt, request: Request, delay: float) -> None:
        """Have the host of *request* paced by its crawl delay of *delay* seconds, or no longer by one."""
        key = slot_key(request)
        if robots.paced == key or not (delay or robots.was_slow):
            return
        robots.paced = key
        politeness = self._crawler.get_downloader_middleware(PolitenessMiddleware)
        if politeness is not None:
            politeness.set_crawl_delay(key, delay)

    # -- what is known is kept in the store of the job, if there is one

    def _load(self, origin: str) -> bytes | None:
        data = self.pacer.crawl.robots(file_key(origin)) if self.pacer is not None else None
        if data is not None:
            self._first.count("aopic/robots/from_store")
        return data

    def _keep(self, origin: str, data: bytes) -> None:
        if self.pacer is not None:
            self.pacer.crawl.keep_robots(file_key(origin), data)

    def _load_tdm(self, origin: str) -> bytes | None:
        return self.pacer.crawl.robots(file_key(origin, TDMREP_JSON)) if self.pacer is not None else None

    def _keep_tdm(self, origin: str, data: bytes) -> None:
        # What failed is tried again by the next run, and would look like a robots.txt that is unreachable.
        if self.pacer is not None and not RobotsTxt.from_bytes(data).failures:
            self.pacer.crawl.keep_robots(file_key(origin, TDMREP_JSON), data)

    # -- robots.txt is fetched

    async def _learn(self, origin: str, request: Request) -> RobotsTxt:
        """Fetch the robots.txt of *origin* for *request*, or wait for the fetch that is under way."""
        if (found := await self._found_by_others(self._fetches, origin)) is not None:
            return found
        fetch = self._fetches.begin(origin)
        try:
            text, reason = await self._fetch(self._fetches, fetch, request)
            robots = self._fetches.learn(fetch, text, self.clock())
            robots.error = reason if isinstance(reason, Exception) else None
            if (
                robots.error is not None
                and self.pacer is not None
                and (due := self.pacer.silent_until(request))
            ):
                robots.retry_at = min(robots.retry_at, due)  # there is nothing that should be spared
        finally:
            self._fetches.end(fetch)
        if text is None:
            self._first.count("aopic/robots/unreachable")
            wait = self._wait(robots, request)  # infinite if the store has failed
            self._first.each(
                logging.INFO,
                "unreachable robots.txt",
                "The robots.txt of %(origin)s is unreachable (%(reason)s), try %(n)d; the next one is due %(when)s",
                ", and until then its pages wait, unless that is longer than AOPIC_MAX_WAIT; further ones are logged at level "
                "INFO (aopic/robots/unreachable counts them)",
                origin=origin,
                reason=_in_words(reason) if isinstance(reason, Exception) else reason,
                n=robots.failures,
                when=f"in {ceil(wait)} s" if wait < inf else "in the next run",
            )
        else:
            await self._announce(fetch.url, robots, request)
        return robots

    def _wait(self, robots: RobotsTxt, request: Request) -> float:
        """Seconds until a robots.txt that was unreachable is asked for again: its host and its origin must be due by then, too."""
        wait = robots.retry_at - self.clock()
        if self.pacer is not None:
            wait = max(wait, self.pacer.silent_until(request) - self.clock())
        politeness = self._crawler.get_downloader_middleware(PolitenessMiddleware)
        return wait if politeness is None else max(wait, politeness.wait(slot_key(request)))

    async def _found_by_others(self, fetches: RobotsFetches, origin: str) -> RobotsTxt | None:
        """What a fetch for *origin* that is under way finds; ``None`` if there is none, or it found nothing that holds."""
        while (fetch := fetches.get(origin)) is not None:
            await _ended(fetch)
            if (found := fetches.known.get_current(origin, self.clock())) is not None:
                return found
        return None

    async def _fetch(
        self, fetches: RobotsFetches, fetch: Fetch, page: Request
    ) -> tuple[bytes | None, str | Exception]:
        """The text that *fetch* finds, empty if there is no such file; or ``None``, and why it is unreachable."""
        try:
            step: Step = Download(fetch.url)
            while True:
                if isinstance(step, Download):
                    if fetches is not self._fetches and not await self._may_fetch(step.url, page):
                        return b"", ""
                    response = await self._download(step.url, page, is_robots=fetches is self._fetches)
                    target = _target(step.url, response, fetches.path)
                    step = fetches.responded(fetch, response.status, response.body, target, self.clock())
                elif isinstance(step, Wait):
                    await _ended(step.fetch)
                    step = fetches.resumed(fetch, self.clock())
                elif isinstance(step, RobotsText):
                    return step.text, ""
                else:
                    return None, step.reason
        except (LeftAloneError, _DroppedError) as error:
            return None, str(error)
        except IgnoreRequest:  # a middleware of the user's does not want it to be fetched
            return b"", ""
        except Exception as error:  # noqa: BLE001  # whatever went wrong, there is no response
            if fetches is self._fetches:
                self._first.count(f"robotstxt/exception_count/{type(error)}")
            return None, error

    async def _download(self, url: str, page: Request, *, is_robots: bool) -> Response:
        meta: dict[str, Any] = {
            "dont_obey_robotstxt": True,
            "dont_redirect": True,
            "allow_offsite": True,
            "download_maxsize": 0,  # however much there is, its beginning is read
            RECEIVED: 0,
        }
        if self.pacer is not None:
            meta["dont_retry"] = True  # later, and from the scheduler
        is_chosen = page.meta.get(SLOT) not in (None, page.meta.get(OWN_SLOT))
        if is_chosen and host_name(url) == urlparse_cached(page).hostname:
            meta[SLOT] = page.meta[SLOT]
        self._first.count("robotstxt/request_count" if is_robots else "aopic/tdmrep/requests")
        assert self._crawler.engine is not None
        request = Request(url, meta=meta, priority=_PRIORITY, callback=NO_CALLBACK)
        try:
            response = await self._crawler.engine.download_async(request)
        except IgnoreRequest as error:
            if request.meta[RECEIVED]:  # such as a little that unpacks to very much
                raise _DroppedError(f"it was dropped: {error}") from error
            raise
        if is_robots:
            self._first.count("robotstxt/response_count")
            self._first.count(f"robotstxt/response_status_count/{response.status}")
        return response

    def _bytes_received(self, data: bytes, request: Request) -> None:
        """Do not load more of a robots.txt than is read of it."""
        if RECEIVED in request.meta:
            request.meta.pop("download_maxsize", None)  # what it unpacks to has the bound of all pages
            request.meta[RECEIVED] += len(data)
            if request.meta[RECEIVED] > MAX_BYTES:
                raise StopDownload(fail=False)

    # -- and so is tdmrep.json, which is where robots.txt allows it

    async def _learn_tdm(self, fetches: RobotsFetches, origin: str, request: Request) -> RobotsTxt:
        """Fetch the tdmrep.json of *origin* for *request*, or wait for the fetch that is under way.

        One that cannot be had says nothing, as the protocol has it, or what it said before.
        """
        if (found := await self._found_by_others(fetches, origin)) is not None:
            return found
        fetch = fetches.begin(origin)
        try:
            text, reason = await self._fetch(fetches, fetch, request)
            tdm = fetches.learn(fetch, text, self.clock())
        finally:
            fetches.end(fetch)
        if text is None:
            self._first.count("aopic/tdmrep/unreachable")
            self._first.warning(
                "unreachable",
                "%(url)s cannot be had (%(reason)s), and says nothing until it can, or what it said before; it is tried "
                "again. Further ones are not logged (aopic/tdmrep/unreachable counts them)",
                url=fetch.url,
                reason=_in_words(reason) if isinstance(reason, Exception) else reason,
            )
            return tdm
        if text:
            self._first.count("aopic/tdmrep/files")
        if malformed := self._tdm_rules(tdm).malformed:
            self._first.count("aopic/tdmrep/malformed")
            self._first.warning(
                "malformed",
                "%(url)s has what means nothing (%(malformed)s), and is taken as not said (scrapy aopic docs robots#tdmrepjson). Further such files "
                "are not logged (aopic/tdmrep/malformed counts them)",
                url=fetch.url,
                malformed=malformed,
            )
        return tdm

    @staticmethod
    def _tdm_rules(tdm: RobotsTxt) -> TdmRules:
        """The text of *tdm*, parsed when it is first needed."""
        if not isinstance(tdm.parser, TdmRules):
            tdm.parser = TdmRules(tdm.text or b"")
        return tdm.parser

    def _state_tdm(self, tdm: RobotsTxt, request: Request) -> None:
        """Note what *tdm* says of the page of *request*."""
        if tdm.text and (said := self._tdm_rules(tdm).find(request.url)):
            stated: Stated = request.meta.get(STATED_USAGE, NOTHING)
            request.meta[STATED_USAGE] = stated._replace(file=said)

    async def _may_fetch(self, url: str, page: Request) -> bool:
        """Whether robots.txt allows the tdmrep.json at *url* to be fetched for *page*."""
        parts = urlsplit(url)
        origin = origin_of(parts.scheme, parts.netloc)
        robots = self._known.get_current(origin, self.clock()) or await self._learn(origin, page)
        if not self._known.has_rules(robots, self.clock()):
            return False
        parser, user_agent = self._parser(robots), self._agent_of(page)
        if isinstance(parser, Rfc9309RobotParser):
            await self._read(parser, user_agent, page)
        return parser.allowed(url, user_agent)

    async def _announce(self, url: str, robots: RobotsTxt, request: Request) -> None:
        """Say that the robots.txt at *url* was read, and queue the sitemaps that it names."""
        if hasattr(signals, "robots_parsed"):  # which older versions of Scrapy do not have
            await self._crawler.signals.send_catch_log_async(
                signal=signals.robots_parsed, robotparser=self._parser(robots), request=request
            )
        if self._takes_sitemaps and robots.text:
            assert self._crawler.engine is not None
            for sitemap in self._sitemaps.requests(robots.text, url):
                self._crawler.engine.crawl(sitemap)


async def _ended(fetch: Fetch) -> None:
    """Wait for the end of *fetch*."""
    waiting: Deferred[None] = Deferred()
    fetch.when_ended(partial(waiting.callback, None))
    await maybe_deferred_to_future(waiting)


_FAILURES = {
    "Resolve": "there is no host of that name",
    "DNSLookup": "there is no host of that name",
    "Refused": "nothing listens there",
    "Timeout": "it does not reply in time",
    "TimedOut": "it does not reply in time",
    "NoRoute": "it cannot be reached",
    "DataLoss": "the response ended too early",
    "ResponseFailed": "the connection broke",
    "NeverReceived": "the connection broke",
    "ConnectionLost": "the connection broke",
    "ConnectionDone": "the connection broke",
}
"""Meaning of failed transfers by a part of the error's class name: Scrapy and Twisted have several classes for each."""


def _in_words(error: Exception) -> str:
    """Why there was no response, as far as *error*, or what is behind it, has a name that is known; else what it says."""
    behind: BaseException | None = error
    while behind is not None:
        name = type(behind).__name__
        if words := next((words for part, words in _FAILURES.items() if part in name), ""):
            return words
        behind = behind.__cause__ or behind.__context__
    return " ".join(str(error).split()) or type(error).__name__


def _target(url: str, response: Response, path: str) -> RobotsTarget | None:
    """Where *response* for the file at *path*, which came from *url*, redirects to, if that is in the web."""
    location = response.headers.get(b"Location")
    if location is None or not 300 <= response.status < 400:
        return None
    try:
        to = urljoin(url, safe_url_string(to_unicode(location, errors="replace")))
        origin = origin_of_file(to, path)
    except ValueError:
        return None
    return RobotsTarget(to, origin) if to.startswith(("http://", "https://")) else None
