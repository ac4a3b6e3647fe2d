"""robots.txt by RFC 9309: asked for once a day and origin, remembered on the disk, and obeyed if it cannot be had.

An *origin* is a scheme, a name and a port, such as ``https://example.com``. Of its robots.txt is known:

* the rules, if it was answered: those of its text, or none at all if there is no such file (404 and the like);
* the tries that failed since then (time-outs, 5xx, 429): while no rules are known, all is forbidden.

What is known is one row in the store of the job, and goes with its commits. In memory are the parsed rules of the
origins that were asked of last.

A page that made its robots.txt be fetched, or that cannot be judged yet, goes back to the scheduler with all its cash,
and its host keeps its gap; so no page waits inside the downloader. Beside another scheduler it goes on after its
robots.txt, and is refused if that cannot be had.
"""

from __future__ import annotations

import logging
import re
import zlib
from codecs import BOM_UTF8
from collections import OrderedDict
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urljoin, urlsplit

from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest, NotConfigured, StopDownload
from scrapy.http.request import NO_CALLBACK
from scrapy.robotstxt import RobotParser
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.misc import load_object
from scrapy.utils.python import to_unicode
from twisted.internet.defer import Deferred
from w3lib.url import safe_url_string

from scrapy_aopic._engine.closing import configured
from scrapy_aopic.core.records import host_key, pack, page_key, unpack
from scrapy_aopic.core.robots import Rules, find_group, finish, lines_of, path_of, read_rules
from scrapy_aopic.exceptions import AopicError
from scrapy_aopic.job.clock import JobClock
from scrapy_aopic.refusals import ForbiddenError, NothingAllowedError
from scrapy_aopic.scheduler import Scheduler
from scrapy_aopic.session.turns import Turns, in_turns
from scrapy_aopic.settings import read
from scrapy_aopic.web.meta import OWN_SLOT, RECEIVED, SITEMAP, SLOT, slot_key
from scrapy_aopic.web.sitemaps import PAGES, Sitemap
from scrapy_aopic.web.suffixes import registered_domain
from scrapy_aopic.web.urls import is_parsable

from .politeness import LeftAloneError, PolitenessMiddleware

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from typing_extensions import Self

    from scrapy_aopic.core.crawl import Crawl

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_BYTES = 500 * 1024
"""Of a longer robots.txt this much is read, as RFC 9309 asks for at least."""

MAX_REDIRECTS = 5
"""After more, robots.txt counts as missing."""

MAX_AGE = 30 * 86_400
"""Seconds for which old rules are obeyed while robots.txt cannot be had."""

MAX_SITEMAPS = 100
"""Sitemaps that are taken up from one robots.txt, or from one index."""

_SITEMAP_PRIORITY = -3
"""A sitemap waits like a page with an eighth of its cash."""

_BYTES_AN_ENTRY = 4096
"""A robots.txt counts once more in the cache for each of these."""

_AGENTS = 8
"""User agents for which what a robots.txt says is remembered."""

_SITEMAP = re.compile(rb"^[ \t]*sitemap[ \t]*:([^\n]*)", re.IGNORECASE | re.MULTILINE)
_EACH_LINE = re.compile(rb"([^\r\n]*)(?:\r\n|\r|\n|(?<=[^\r\n])\Z)")
_AGENT = re.compile(rb"\s*user[- ]?agent\s*[:\s]", re.IGNORECASE)
_RULE = re.compile(rb"\s*(?:allow|dia?s)", re.IGNORECASE)  # as generous with spelling as Protego


class UnreachableError(AopicError):
    """robots.txt cannot be had now; the text says why."""


class RobotRules(RobotParser):
    """What a robots.txt says to whom, read by :mod:`scrapy_aopic.core.robots` when a user agent is first asked about."""

    def __init__(self, text: bytes) -> None:
        self._text = lines_of(text)
        self._names: dict[str, str] = {}
        self._rules: dict[str, Rules] = {}

    @classmethod
    def from_crawler(cls, crawler: Crawler | None, robotstxt_body: bytes) -> Self:
        return cls(robotstxt_body)

    def allowed(self, url: str | bytes, user_agent: str | bytes) -> bool:
        return finish(self.read(user_agent)).allow(path_of(to_unicode(url)))

    def crawl_delay(self, user_agent: str | bytes) -> float | None:
        return finish(self.read(user_agent)).crawl_delay

    def knows(self, user_agent: str | bytes) -> bool:
        """Whether the rules for *user_agent* were read."""
        return self._names.get(to_unicode(user_agent)) in self._rules

    def read(self, user_agent: str | bytes) -> Generator[None, None, Rules]:
        """The rules for *user_agent*, in steps if they were not read yet."""
        agent = to_unicode(user_agent)
        name = self._names.get(agent)
        if name is None:
            name = yield from find_group(self._text, agent)
            _remember(self._names, agent, name)
        rules = self._rules.get(name)
        if rules is None:
            rules = yield from read_rules(self._text, name)
            _remember(self._rules, name, rules)
        return rules


def _remember(known: dict[str, T], key: str, value: T) -> None:
    if len(known) >= _AGENTS:
        known.clear()
    known[key] = value


def parse(text: bytes, kind: type[RobotParser], crawler: Crawler | None = None) -> RobotParser:
    """The rules in *text*, as a parser of another *kind* reads them, with the groups that RFC 9309 wants.

    To it a group begins with user agents and goes on until the first user agent behind a rule. To parsers it often
    ends at a crawl delay, or at a line that they do not know; so the agents of a group with such a line are named
    once more before its first rule.
    """
    lines = bytearray()
    agents = bytearray()
    has_rule = is_interrupted = False
    for match in _EACH_LINE.finditer(text.removeprefix(BOM_UTF8)):
        line = match[1] + b"\n"
        if _AGENT.match(line):
            if has_rule:
                agents, has_rule, is_interrupted = bytearray(), False, False
            agents += line
        elif _RULE.match(line):
            if is_interrupted and not has_rule:
                lines += agents
            has_rule = True
        elif line.partition(b"#")[0].strip():
            is_interrupted = True
        lines += line
    return kind.from_crawler(crawler, bytes(lines))  # type: ignore[arg-type]  # None is for its log


class _Robots:
    """What is known of the robots.txt of one origin.

    Attributes:
        text: What was last answered, empty if there is no such file; ``None`` if nothing was.
        answered_at: When.
        failures: Tries since then, all in vain.
        retry_at: When to try again after these.
        is_unused: Whether no request was judged by it since it was fetched: then it is used even if it is too old by
            now, because the request that it was fetched for had to wait so long.
        was_slow: Whether the text before it may have had a crawl delay.
        told: Download slot that was told of the crawl delay.
    """

    __slots__ = ("_parser", "answered_at", "failures", "is_unused", "retry_at", "text", "told", "was_slow")

    def __init__(
        self, text: bytes | None, answered_at: float = 0.0, failures: int = 0, retry_at: float = 0.0
    ) -> None:
        self.text = text
        self.answered_at = answered_at
        self.failures = failures
        self.retry_at = retry_at
        self.is_unused = False
        self.was_slow = False
        self.told: str | None = None
        self._parser: RobotParser | None = None

    @property
    def size(self) -> int:
        """How many entries of the cache it takes."""
        return 1 + len(self.text or b"") // _BYTES_AN_ENTRY

    @property
    def is_slow(self) -> bool:
        """Whether the text may have a crawl delay."""
        return b"delay" in (self.text or b"").lower()

    def has_rules(self, now: float, expiry: float) -> bool:
        """Whether there are rules to go by: new ones or, while new ones cannot be had, old ones."""
        if self.text is None:
            return False
        age = now - self.answered_at
        is_new = self.is_unused or 0 <= age <= expiry
        return is_new or (self.failures > 0 and now < self.retry_at and age <= MAX_AGE)

    def parser(self, crawler: Crawler, kind: type[RobotParser]) -> RobotParser:
        """The rules, parsed when they are first needed."""
        if self._parser is None:
            text = self.text or b""
            self._parser = RobotRules(text) if kind is RobotRules else parse(text, kind, crawler)
        return self._parser

    def to_bytes(self) -> bytes:
        """What outlives the process."""
        text = None if self.text is None else zlib.compress(self.text)
        return pack((text, self.answered_at, self.failures, self.retry_at))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """What :meth:`to_bytes` has written."""
        text, *rest = unpack(data)
        return cls(None if text is None else zlib.decompress(text), *rest)


class _Fetch:
    """A robots.txt that is being fetched.

    Attributes:
        origins: Those that it came by, the first one included.
        follows: The fetch of another origin that it waits for.
    """

    def __init__(self, origin: str) -> None:
        self.origins = [origin]
        self.follows: _Fetch | None = None
        self._waiting: list[Deferred[None]] = []

    async def ended(self) -> None:
        """Wait for the end."""
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        await maybe_deferred_to_future(waiting)

    def end(self) -> None:
        """Let all go on that wait."""
        for waiting in self._waiting:
            waiting.callback(None)

    def depends_on(self, other: _Fetch) -> bool:
        """Whether it cannot end before *other* does."""
        fetch: _Fetch | None = self
        while fetch is not None and fetch is not other:
            fetch = fetch.follows
        return fetch is other


class RobotsMiddleware:
    """Refuses what robots.txt forbids; takes the place of Scrapy's ``RobotsTxtMiddleware``.

    Order: that of the one that it replaces (100 in ``DOWNLOADER_MIDDLEWARES``).

    Attributes:
        clock: Gives seconds since the epoch.
    """

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        if not settings.getbool("ROBOTSTXT_OBEY"):
            raise NotConfigured
        self._crawler = crawler
        self._user_agent: str | None = settings["ROBOTSTXT_USER_AGENT"]
        self._default_user_agent: str = settings["USER_AGENT"]
        self._kind: type[RobotParser] = RobotRules
        if settings.getpriority("ROBOTSTXT_PARSER"):
            self._kind = load_object(settings["ROBOTSTXT_PARSER"])
            self._kind.from_crawler(crawler, b"")  # says at once what is not installed
        self._capacity: int = read(settings, "AOPIC_ROBOTS_CACHE")
        self._expiry: float = read(settings, "AOPIC_ROBOTS_EXPIRY")
        self._retry: float = read(settings, "AOPIC_ROBOTS_RETRY")
        self._tries: int = read(settings, "AOPIC_ROBOTS_TRIES")
        self._takes_sitemaps: bool = read(settings, "AOPIC_SITEMAPS")
        self._cache: OrderedDict[str, _Robots] = OrderedDict()
        self._size = 0
        self._has_complained = self._has_forbidden = False
        self._fetches: dict[str, _Fetch] = {}
        self._own_clock = JobClock()
        crawler.signals.connect(self._bytes_received, signal=signals.bytes_received)
        crawler.signals.connect(self._response_received, signal=signals.response_received)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        with configured(crawler):
            return cls(crawler)

    def __len__(self) -> int:
        """Origins whose robots.txt is in memory."""
        return len(self._cache)

    def clock(self) -> float:
        """The instant now: that of the job, in which the times of what is known are kept."""
        scheduler = Scheduler.of(self._crawler)
        job = scheduler.job if scheduler is not None else None
        return job.clock() if job is not None else self._own_clock()

    def _count(self, name: str) -> None:
        assert self._crawler.stats is not None
        self._crawler.stats.inc_value(name)

    # -- requests are judged

    async def process_request(self, request: Request) -> Request | None:
        if request.meta.get("dont_obey_robotstxt") or not request.url.startswith(("http://", "https://")):
            return None
        url = urlparse_cached(request)
        origin = _origin(url.scheme, url.netloc)
        robots, goes_back = self._known(origin), False
        if robots is None or self._is_due(robots):
            robots, goes_back = await self._learn(origin, request), True
        scheduler = Scheduler.of(self._crawler)
        if scheduler is not None and not scheduler.is_leased(request):
            scheduler = None  # it is not the one who waits for this request
        if robots.has_rules(self.clock(), self._expiry):
            await self._judge(robots, request)
        elif scheduler is None or (robots.failures >= self._tries and not scheduler.is_dead(request)):
            self._count("aopic/robots/refused")
            raise NothingAllowedError(f"Nothing is allowed while the robots.txt of {origin} is unreachable")
        else:
            scheduler.hold(request, robots.retry_at - self.clock())
            goes_back = True
        if scheduler is not None and goes_back:
            self._count("aopic/robots/put_back")
            return request.copy()
        robots.is_unused = False
        return None

    async def _judge(self, robots: _Robots, request: Request) -> None:
        if not robots.text:
            self._tell(robots, request, 0.0)
            return
        user_agent = self._user_agent or request.headers.get(b"User-Agent") or self._default_user_agent
        parser = robots.parser(self._crawler, self._kind)
        if isinstance(parser, RobotRules):
            await self._read(parser, user_agent, request)
        self._tell(robots, request, _crawl_delay(parser, user_agent) or 0.0)
        if parser.allowed(request.url, user_agent):
            return
        robots.is_unused = False
        logger.log(
            logging.DEBUG if self._has_forbidden else logging.WARNING,
            "Forbidden by robots.txt: %(request)s%(more)s",
            {
                "request": request,
                "more": ""
                if self._has_forbidden
                else " (ROBOTSTXT_OBEY); further ones are logged at level DEBUG (robotstxt/forbidden counts them)",
            },
            extra={"spider": self._crawler.spider},
        )
        self._has_forbidden = True
        self._count("robotstxt/forbidden")
        raise ForbiddenError("Forbidden by robots.txt")

    async def _read(self, parser: RobotRules, user_agent: str | bytes, request: Request) -> None:
        """Have what *parser* says to *user_agent* read, and let others go on between the steps of it."""
        if parser.knows(user_agent):
            return
        rules = await in_turns(parser.read(user_agent))
        if rules.n_cut:
            self._count("aopic/robots/cut")
            if not self._has_complained:
                self._has_complained = True
                logger.warning(
                    "The robots.txt for %(url)s has more rules with wildcards, or longer ones, than are compared with "
                    "every URL: of %(n)d only what is before the first wildcard counts if they forbid, and nothing if "
                    "they allow. Further such files are only counted (aopic/robots/cut)",
                    {"url": request.url, "n": rules.n_cut},
                    extra={"spider": self._crawler.spider},
                )

    def _tell(self, robots: _Robots, request: Request, delay: float) -> None:
        """Tell whoever paces the host of *request* of its crawl delay, or that it has none any more."""
        key = slot_key(request)
        if robots.told == key or not (delay or robots.was_slow):
            return
        robots.told = key
        pacer: Scheduler | PolitenessMiddleware | None = Scheduler.of(self._crawler)
        if pacer is None:
            pacer = self._crawler.get_downloader_middleware(PolitenessMiddleware)
        if pacer is not None:
            pacer.set_crawl_delay(key, delay)

    # -- what is known

    @property
    def _crawl(self) -> Crawl | None:
        scheduler = Scheduler.of(self._crawler)
        return scheduler.job.crawl if scheduler is not None and scheduler.job is not None else None

    def _known(self, origin: str) -> _Robots | None:
        """What is known of *origin*, in memory or in the store."""
        robots = self._cache.get(origin)
        if robots is not None:
            self._cache.move_to_end(origin)
            return robots
        crawl = self._crawl
        data = crawl.robots(_key(origin)) if crawl is not None else None
        if data is None:
            return None
        self._count("aopic/robots/from_store")
        robots = _Robots.from_bytes(data)
        self._remember(origin, robots)
        return robots

    def _is_due(self, robots: _Robots) -> bool:
        """Whether it is time to ask again."""
        now = self.clock()
        return now >= robots.retry_at and not robots.has_rules(now, self._expiry)

    def _remember(self, origin: str, robots: _Robots) -> None:
        """Have *robots* in memory, and let go what was not asked of for the longest time."""
        old = self._cache.pop(origin, None)
        self._cache[origin] = robots
        self._size += robots.size - (old.size if old is not None else 0)
        while self._size > self._capacity and len(self._cache) > 1:
            self._size -= self._cache.popitem(last=False)[1].size

    def _learned(self, origin: str, text: bytes | None) -> _Robots:
        """Keep what *origin* answered, ``None`` if nothing."""
        old, now = self._known(origin), self.clock()
        if text is not None:
            robots = _Robots(text, now)
            robots.is_unused = True
            robots.was_slow = old is not None and old.is_slow
        else:
            robots = old or _Robots(None)
            robots.failures += 1
            growing = self._retry * 2.0 ** min(robots.failures - 1, 60)
            robots.retry_at = now + (
                min(growing, self._expiry) if robots.failures < self._tries else self._expiry
            )
        self._remember(origin, robots)
        crawl = self._crawl
        if crawl is not None:
            crawl.keep_robots(_key(origin), robots.to_bytes())
        return robots

    # -- robots.txt is fetched

    async def _learn(self, origin: str, request: Request) -> _Robots:
        """Fetch the robots.txt of *origin* for *request*, or wait for whoever does."""
        while (fetch := self._fetches.get(origin)) is not None:
            await fetch.ended()
            robots = self._known(origin)
            if robots is not None and not self._is_due(robots):
                return robots
        fetch = self._fetches[origin] = _Fetch(origin)
        try:
            try:
                text, reason = await self._follow(fetch, request), ""
            except Exception as error:  # noqa: BLE001  # whatever went wrong, there is no answer
                text, reason = None, str(error) or type(error).__name__
                if isinstance(error, IgnoreRequest) and not isinstance(error, LeftAloneError):
                    text = b""  # a middleware of the user's does not want it to be asked for
                elif not isinstance(error, (LeftAloneError, UnreachableError)):
                    self._count(f"robotstxt/exception_count/{type(error)}")
            learned = {each: self._learned(each, text) for each in fetch.origins}
        finally:
            for each in fetch.origins:
                del self._fetches[each]
            fetch.end()
        robots = learned[origin]
        if text is None:
            self._count("aopic/robots/unreachable")
            logger.info(
                "The robots.txt of %(origin)s is unreachable (%(reason)s), try %(n)d of %(tries)d; the next one is due "
                "in %(delay)d s",
                {
                    "origin": origin,
                    "reason": reason,
                    "n": robots.failures,
                    "tries": self._tries,
                    "delay": robots.retry_at - self.clock(),
                },
                extra={"spider": self._crawler.spider},
            )
        else:
            await self._announce(origin, robots, request)
        return robots

    async def _follow(self, fetch: _Fetch, request: Request) -> bytes:
        """The text of a robots.txt, also of one that is elsewhere; empty if there is none.

        Raises:
            UnreachableError: If that cannot be known now.
        """
        url = f"{fetch.origins[0]}/robots.txt"
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._ask(url, request)
            if response.status == 429 or response.status >= 500:
                raise UnreachableError(f"HTTP {response.status}")
            location = response.headers.get(b"Location")
            if not 300 <= response.status < 400 or location is None:
                return _cut(response.body) if 200 <= response.status < 300 else b""
            try:
                url = urljoin(url, safe_url_string(to_unicode(location, errors="replace")))
                origin = _origin_of(url)
            except ValueError:
                return b""
            if not url.startswith(("http://", "https://")):
                return b""
            if origin is None:
                continue
            while (other := self._fetches.get(origin)) is not None and not other.depends_on(fetch):
                fetch.follows = other
                await other.ended()
                fetch.follows = None
            if other is not None:
                break  # a circle
            known = self._known(origin)
            if known is not None and not self._is_due(known):
                if known.text is None or not known.has_rules(self.clock(), self._expiry):
                    raise UnreachableError(f"so is that of {origin}")
                return known.text
            fetch.origins.append(origin)
            self._fetches[origin] = fetch
        for origin in fetch.origins[1:]:  # which may have a right to be followed further
            del self._fetches[origin]
        del fetch.origins[1:]
        return b""

    async def _ask(self, url: str, page: Request) -> Response:
        meta: dict[str, Any] = {
            "dont_obey_robotstxt": True,
            "dont_redirect": True,
            "allow_offsite": True,
            "download_maxsize": 0,  # however much there is, its beginning is read
            RECEIVED: 0,
        }
        if Scheduler.of(self._crawler) is not None:
            meta["dont_retry"] = True  # later, and from the scheduler
        is_chosen = page.meta.get(SLOT) not in (None, page.meta.get(OWN_SLOT))
        if is_chosen and _name(url) == urlparse_cached(page).hostname:
            meta[SLOT] = page.meta[SLOT]
        self._count("robotstxt/request_count")
        assert self._crawler.engine is not None
        request = Request(url, meta=meta, priority=1000, callback=NO_CALLBACK)
        try:
            response = await self._crawler.engine.download_async(request)
        except IgnoreRequest as error:
            if request.meta[RECEIVED]:  # such as a little that unpacks to very much
                raise UnreachableError(f"it was dropped: {error}") from error
            raise
        self._count("robotstxt/response_count")
        self._count(f"robotstxt/response_status_count/{response.status}")
        return response

    def _bytes_received(self, data: bytes, request: Request) -> None:
        """Do not load more of a robots.txt than is read of it."""
        if RECEIVED in request.meta:
            request.meta.pop("download_maxsize", None)  # what it unpacks to has the bound of all pages
            request.meta[RECEIVED] += len(data)
            if request.meta[RECEIVED] > MAX_BYTES:
                raise StopDownload(fail=False)

    async def _announce(self, origin: str, robots: _Robots, request: Request) -> None:
        """Say that a robots.txt was read, and queue the sitemaps that it names."""
        if hasattr(signals, "robots_parsed"):  # which older versions of Scrapy do not have
            parser = robots.parser(self._crawler, self._kind)
            await self._crawler.signals.send_catch_log_async(
                signal=signals.robots_parsed, robotparser=parser, request=request
            )
        if self._takes_sitemaps and robots.text:
            assert self._crawler.engine is not None
            url = f"{origin}/robots.txt"
            domain = registered_domain(urlsplit(url).hostname or "")
            for sitemap in islice(sitemap_urls(robots.text, url), MAX_SITEMAPS):
                if sitemap.startswith(("http://", "https://")):
                    self._crawler.engine.crawl(_sitemap_request(sitemap, domain))

    # -- sitemaps

    def _response_received(self, request: Request) -> None:
        if SITEMAP in request.meta:
            request.callback = self._follow_sitemap

    async def _follow_sitemap(self, response: Response) -> AsyncIterator[Request]:
        """The pages that a sitemap names, as far as they are of the domain whose robots.txt named it."""
        domain, is_of_index = response.meta[SITEMAP]
        sitemap = Sitemap(response.body)
        turns = Turns()
        n_sitemaps = 0
        for url in sitemap:
            if url is None:
                await turns.step()
            elif not is_parsable(url):
                self._count("aopic/sitemaps/refused")
            elif url.startswith(("http://", "https://")) and registered_domain(_name(url)) == domain:
                if sitemap.kind == PAGES:
                    self._count("aopic/sitemaps/pages")
                    yield Request(url)
                elif not is_of_index and n_sitemaps < MAX_SITEMAPS:
                    n_sitemaps += 1
                    yield _sitemap_request(url, domain, is_of_index=True)
        self._count("aopic/sitemaps/read" if sitemap.kind else "aopic/sitemaps/bad")


def _origin(scheme: str, netloc: str) -> str:
    name = netloc.rpartition("@")[2].lower()
    return f"{scheme}://{name.removesuffix(':443' if scheme == 'https' else ':80')}"


def _origin_of(url: str) -> str | None:
    """The origin whose robots.txt *url* is, if it is one."""
    parts = urlsplit(url)
    is_one = parts.path == "/robots.txt" and not parts.query
    return _origin(parts.scheme, parts.netloc) if is_one else None


def _name(url: str) -> str:
    """Name of the host of *url*; ``""`` if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _key(origin: str) -> bytes:
    """Key of what is kept of *origin*, beside all else of its host."""
    return page_key(host_key(_name(origin)), origin.encode())


def _cut(body: bytes) -> bytes:
    """As many whole lines of *body* as are read: half a rule would forbid too much."""
    if len(body) <= MAX_BYTES:
        return body
    body = body[:MAX_BYTES]
    return body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1]


def _crawl_delay(parser: Any, user_agent: str | bytes) -> float | None:
    """The crawl delay that *parser* found, also of versions of Scrapy whose parsers do not tell it."""
    ask = getattr(parser, "crawl_delay", None) or getattr(getattr(parser, "rp", None), "crawl_delay", None)
    delay = ask(to_unicode(user_agent)) if ask is not None else None
    return None if delay is None else float(delay)


def sitemap_urls(text: bytes, base_url: str) -> Iterator[str]:
    """The sitemaps that the robots.txt *text* names."""
    for match in _SITEMAP.finditer(lines_of(text)):
        url = match[1].partition(b"#")[0].strip().decode("utf-8", "replace")
        if is_parsable(url):
            with suppress(ValueError):  # no URL
                yield urljoin(base_url, url)


def _sitemap_request(url: str, domain: str, *, is_of_index: bool = False) -> Request:
    meta = {SITEMAP: (domain, is_of_index), "verbatim_url": True}  # no rule on URLs of pages applies
    return Request(
        safe_url_string(url), priority=_SITEMAP_PRIORITY, meta=meta
    )  # verbatim, but one that can be asked for
