"""A spider for broad crawls: seeds in, pages out, every link in scope followed.

1. Every option is checked before the first request; an error is one sentence that names the option.
2. It enables the add-on, so that a broad crawl is polite; the user's own settings hold.
3. It uses nothing that only :class:`scrapy_aopic.Scheduler` has: beside another scheduler the same pages are fetched, in
   another order.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import WRAPPER_ASSIGNMENTS, partial, wraps
from inspect import getattr_static, isfunction, signature
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import HtmlResponse, Response
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings
from scrapy.utils.misc import arg_to_iter, load_object
from scrapy.utils.url import url_is_from_any_domain
from typing_extensions import Self

from ._engine import middlewares
from ._engine.closing import Closing
from .addon import Addon
from .core.printable import printable
from .exceptions import ANY_ERROR, ExchangeError, SettingError, plainly
from .links import Links, Names, Patterns
from .seeds.seed_lists import read_seeds, url_error
from .session.session import Session
from .session.time_slices import TimeSlices
from .settings import parse, read_values
from .settings.parse import SHOWN, Check, Reason, reason, shown, similar
from .spidermiddlewares import LinkMiddleware
from .storage.named_files import is_file, is_list, read_entries
from .storage.registry import SERVER
from .web.content_types import declared_type
from .web.languages import declared_language
from .web.main_text import HOW_TO_INSTALL, has_extractor, main_text
from .web.meta import CONTENT_USAGE, ROBOTS_MARKS
from .web.origins import host_name
from .web.parse_limits import root_of
from .web.robots_marks import joined
from .web.suffixes import registered_domain

logger = logging.getLogger(__name__)

_PATIENCE = 0.005
"""Seconds between two looks at whether a thread is done."""

_WEB = ("http://", "https://")
"""Beginnings of the URLs that a page may make a crawler fetch; ``file:///etc/passwd`` is not among them."""


# What a page is reduced to


def _title(response: Response) -> str:
    """Text of the first ``<title>``, its white space as a browser shows it."""
    root = _root(response)
    title = next(root.iter("title"), None) if root is not None else None
    return " ".join(printable("".join(title.itertext())).split()) if title is not None else ""


def _root(response: Response) -> Any:
    """Root of the tree of a page, or of its beginning; ``None`` if it is no HTML, or in an encoding that does not exist."""
    if not isinstance(response, HtmlResponse):
        return None
    try:
        return root_of(response)
    except (LookupError, ValueError):
        return None


def _meta(response: Response) -> dict[str, Any]:
    return response.request.meta if response.request is not None else {}


def _headers(response: Response) -> dict[str, str]:
    """The headers of a response by their names in small letters; several of a name are joined by commas."""
    return {
        printable(name.decode("latin-1").lower()): printable(
            ", ".join(value.decode("latin-1") for value in values)
        )
        for name, values in response.headers.items()
    }


def _main_text(response: Response, form: str) -> str:
    root = _root(response)
    return main_text(root, form) if root is not None else ""


FIELDS: dict[str, Callable[[Response], str | int | dict[str, str]]] = {
    "url": lambda response: response.url,
    "title": _title,
    "language": declared_language,
    "type": lambda response: declared_type(response.headers).essence,
    "status": lambda response: response.status,
    "depth": lambda response: _meta(response).get("depth", 0),
    "bytes": lambda response: len(response.body),
    "fetched_at": lambda _: datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
    "headers": _headers,
    "robots": lambda response: joined(_meta(response).get(ROBOTS_MARKS, {})),
    "content_usage": lambda response: joined(_meta(response).get(CONTENT_USAGE, {})),
    "text": partial(_main_text, form="txt"),
    "markdown": partial(_main_text, form="markdown"),
}
"""Fields of an item, ``""`` where the page does not say them."""

_IN_THREAD = frozenset(("text", "markdown"))
"""The fields that take so long that the event loop must not wait for them."""


class Area(NamedTuple):
    """Which links of a page count, by where they lead.

    Attributes:
        of: What two hosts must have in common, as a function of a host's name.
        is_left: Whether the links that count are those that lead out of it.
    """

    of: Callable[[str], str]
    is_left: bool = False

    def has(self, url: str, page: str) -> bool:
        """Whether a link to *url* on *page* counts."""
        return (self.of(host_name(url)) != self.of(host_name(page))) is self.is_left


AREAS: dict[str, Area | None] = {
    "everywhere": None,
    "domain": Area(registered_domain),
    "host": Area(lambda host: host),
    "elsewhere": Area(registered_domain, is_left=True),
}
"""Which links count, by ``scope``; ``None`` for all of them."""


# Options


def _sources(value: Any) -> tuple[str, ...]:
    """URLs and paths of lists, each of which can be used."""
    sources = parse.texts([fspath(value)] if isinstance(value, PathLike) else value)
    for source in sources:
        if "://" in source:
            if error := url_error(source):
                raise Reason(error)
        elif not is_file(Path(source)):
            guess = f'; did you mean "https://{source}"?' if _is_like_host(source) else ""
            raise Reason(f'"{source}" is neither{guess}')
    return tuple(sources)


def _is_like_host(text: str) -> bool:
    """Whether *text* is probably a URL without its scheme, and not the name of a list that is not there."""
    return re.match(r"(localhost|[\w-]+(\.[\w-]+)+)(:\d+)?(/|$)", text) is not None and not is_list(text)


def _domains(value: Any) -> tuple[str, ...]:
    return tuple(sorted({*parse.each_listed(value, _domain)}))


def _domain(name: str) -> str:
    host = host_name(name if "://" in name else f"//{name}")
    if re.search(r"[/:*]", name) and host:
        meant = parse.domain(host.removeprefix("*."))
        raise Reason(f'did you mean "{meant}"?')
    return parse.domain(name)


def _patterns(value: Any) -> tuple[re.Pattern[str], ...]:
    """Compiled regular expressions; a text is one of them, whatever commas it has."""
    if value == "":
        return ()
    values = [value] if isinstance(value, (str, re.Pattern)) else list(value)
    values = [each for one in values for each in _patterns_of(one)]
    try:
        found = tuple(re.compile(each) for each in values)
    except re.error as error:
        raise Reason(str(error)) from error
    for pattern in found:
        if not isinstance(pattern.pattern, str):
            raise TypeError
        if not pattern.pattern:
            raise Reason("an empty one is found in every URL")
    return found


def _patterns_of(value: Any) -> list[Any]:
    """*value*, or the lines of the file that it names: one that is there, and whose name ends like that of a list."""
    if not (isinstance(value, str) and is_list(value) and is_file(Path(value))):
        return [value]
    try:
        return [entry for _, entry in read_entries(Path(value))]
    except ExchangeError as error:
        raise Reason(plainly(error)) from error


def _fields(value: Any) -> tuple[str, ...]:
    fields = tuple(dict.fromkeys(parse.some_of(*FIELDS).parse(value)))
    if (named := _IN_THREAD.intersection(fields)) and not has_extractor():
        raise Reason(f"{min(named)} needs trafilatura: {HOW_TO_INSTALL}")
    return fields


CHECKS: dict[str, Check] = {
    "seeds": Check("URLs with http:// or https://, or files that list them, one a line", _sources),
    "domains": Check(
        "names of domains such as example.org, example.com, or files that list them, one a line", _domains
    ),
    "scope": parse.one_of(*AREAS),
    "allow": Check('a regular expression such as "/news/", or a list of them', _patterns),
    "deny": Check('a regular expression such as "/login", or a list of them', _patterns),
    "fields": Check(f"some of {', '.join(FIELDS)}, or nothing", _fields),
}
"""The check of each option of :class:`BroadSpider`, which also converts its value."""


def check_option(name: str, value: Any, called: str = "") -> Any:
    """Check and convert *value* of the option *name*, which the user knows as *called*.

    Raises:
        SettingError: If it cannot be used.
    """
    check = CHECKS[name]
    try:
        return check.parse(value)
    except ANY_ERROR as error:
        one = value[0] if isinstance(value, list) and len(value) == 1 else value
        raise SettingError(f"{called or name} ({shown(one)}) must be {check.must}{reason(error)}.") from error


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of a spider, checked."""

    seeds: tuple[str, ...]
    domains: tuple[str, ...]
    scope: str
    allow: tuple[re.Pattern[str], ...]
    deny: tuple[re.Pattern[str], ...]
    fields: tuple[str, ...]


class _BoundedLinks(Links):
    """Those links of a page that lead to the web, and stay in an area, or lead out of it.

    Attributes:
        area: One of :data:`AREAS`.
    """

    __slots__ = ("area",)

    area: Area | None

    def steps(self) -> Iterator[str]:
        area = self.area
        found = super().steps()
        if area is None:
            for url in found:
                yield url if url.startswith(_WEB) else ""
            return
        of, is_left = area
        home = of(host_name(self.response.url))
        counts: dict[str, bool] = {}  # by authority, of which most links of a page have the same few
        for url in found:
            is_within = url.startswith(_WEB)
            if is_within:
                authority = url.split("/", 3)[2]
                if authority not in counts:
                    counts[authority] = (of(host_name(url)) != home) is is_left
                is_within = counts[authority]
            yield url if is_within else ""


def _is_led_out(response: Response, area: Area) -> bool:
    """Whether a redirect has led out of the *area* of a page that is no seed."""
    meta = _meta(response)
    redirected: list[str] = meta.get("redirect_urls") or []
    if area.is_left or not redirected or not meta.get("depth"):
        return False
    return not area.has(redirected[0], response.url)


_OWN_PARSE = "parse() of %r takes the place of BroadSpider's, so parse_page() is not called, and only links that it yields are followed"


class BroadSpider(Spider):
    """Crawls from some seeds wherever links lead, or only within bounds, and keeps an item of each page.

    It enables :class:`scrapy_aopic.Addon`, which leaves alone what the user sets; ``ADDONS = {"scrapy_aopic.Addon": None}``
    leaves out the add-on. The spider can be used as it is, or inherited from::

        class News(BroadSpider):
            name = "news"
            seeds = "https://example.org/, https://example.com/"
            deny = r"/(login|search)\\b"

            def parse_page(self, response):
                yield {"url": response.url, "headline": response.css("h1::text").get()}

    Each option is an attribute of the class, and on the command line an argument (``-a seeds=seeds.txt``), in which values
    are separated by commas.

    Attributes:
        seeds: URLs, and files with one URL a line; ``start_urls`` if there are none. For a list with scores, or of a
            million URLs, set ``AOPIC_SEEDS`` instead.
        domains: Domains to stay in, subdomains included; ``allowed_domains`` if there are none. Everywhere if there are
            none of these, either.
        scope: Which links are followed: ``"everywhere"``, ``"domain"`` (those to the registered domain of their page, and so
            of its seed), ``"host"``, or ``"elsewhere"`` (those to other registered domains than that of their page).
        allow: Regular expressions of which one must be found in the URL of a link.
        deny: Regular expressions of which none may be found there. On the command line, one without commas between several.
        fields: What the items hold (:data:`FIELDS`); no items if empty.
        meta: ``Request.meta`` of seeds and links, such as ``{"playwright": True}``; ``None`` for none. Lists of ``AOPIC_SEEDS`` are
            requested without.
    """

    name = "broad"
    seeds: Names = ()
    domains: Names = ()
    scope: str = "everywhere"
    allow: Patterns = ()
    deny: Patterns = ()
    fields: Names = ("url", "title", "language", "type")
    meta: Mapping[str, Any] | None = None

    allowed_domains: list[str]

    _checked: _Options | None = None
    _expands: bool | None = None
    _stand_in: ClassVar[Any] = None
    _thread: ThreadPoolExecutor | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        page, parse = (getattr_static(cls, name) for name in ("parse_page", "parse"))
        if parse in (BroadSpider.parse, cls._stand_in) and isfunction(page):
            cls.parse = cls._stand_in = _parse_like(page)  # type: ignore[method-assign]

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        super().update_settings(settings)
        addons = settings.getdict("ADDONS")
        if Addon not in map(load_object, addons):
            # At the default's own priority it would be lost when a runner is given a crawler instead of a class.
            priority = max(settings.getpriority("ADDONS") or 0, SETTINGS_PRIORITIES["spider"])
            settings.set("ADDONS", {**addons, Addon: 500}, priority)

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        spider = super().from_crawler(crawler, *args, **kwargs)
        try:
            cls._check_names(kwargs)
            n_seeds = spider.check()
            if not n_seeds and not spider._may_have_other_seeds():
                raise SettingError(
                    f"seeds ({shown(spider.seeds)}) must be {CHECKS['seeds'].must}; or set AOPIC_SEEDS."
                )
        except SettingError as error:
            spider._checked = _Options((), (), "everywhere", (), (), ())
            if not crawler.settings.frozen:  # no job begins with what was not meant
                crawler.settings.setdict({"JOBDIR": None, "AOPIC_REPORT": False}, "cmdline")
            Closing(crawler).refuse(error)
        if spider._options.domains:
            spider.allowed_domains = list(spider._options.domains)
        if cls.parse not in (BroadSpider.parse, cls._stand_in):
            spider.logger.warning(_OWN_PARSE, spider.name)
        return spider

    @classmethod
    def _check_names(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse what was probably meant as another name; a subclass may take any argument that is not."""
        known = {*dir(cls), *signature(cls.__init__).parameters}
        for name in arguments:
            question = similar(name.lower(), CHECKS) if name not in known else ""
            if question:
                raise SettingError(f"{name} is no argument of the spider {cls.name!r} ({question}).")
            if callable(getattr(cls, name, None)):
                raise SettingError(f"{name} is a method of the spider {cls.name!r}, and no argument.")

    @property
    def seed_domains(self) -> list[str]:
        """Hosts of the seeds, if the crawl stays in their domains by its scope."""
        options = self._options
        stays = options.scope in {"domain", "host"} and all("://" in seed for seed in options.seeds)
        return [host_name(seed) for seed in options.seeds] if stays else []

    @property
    def _options(self) -> _Options:
        if self._checked is None:
            given = {name: getattr(self, name) for name in CHECKS}
            given["seeds"] = given["seeds"] or self.start_urls
            given["domains"] = given["domains"] or getattr(self, "allowed_domains", None) or ()
            self._checked = _Options(**{name: check_option(name, value) for name, value in given.items()})
        return self._checked

    def check(self) -> int:
        """Read all options, and all seeds once, so that what is wrong is known before the crawl starts.

        Returns:
            The number of seeds.

        Raises:
            SettingError: If an option or a seed cannot be used, or all seeds lie outside of the domains.
        """
        options = self._options
        n_outside = n = 0
        first = ""
        for url, error in self._seeds(options):
            if error:
                raise SettingError(f"seeds: {error}.")
            n += 1
            if options.domains and not url_is_from_any_domain(url, options.domains):
                n_outside += 1
                first = first or url
        if options.seeds and not n:
            raise SettingError(f"seeds ({shown(self.seeds)}): there is no URL in it.")
        if n_outside:
            where = f"outside of domains ({', '.join(options.domains)[:SHOWN]})"
            if n_outside == n:
                raise SettingError(f"seeds: all of them lie {where}, such as {first[:SHOWN]}.")
            logger.warning(
                "%(n_outside)d of %(n)d seeds lie %(where)s and are not fetched, such as %(first)s",
                {"n_outside": n_outside, "n": n, "where": where, "first": first[:SHOWN]},
                extra={"spider": self},
            )
        return n

    def _may_have_other_seeds(self) -> bool:
        """Whether the crawl may have something to do without seeds of its own."""
        folder, values = self.settings.get("JOBDIR"), read_values(self.settings)
        return (
            bool(values.seeds)
            or values.store == SERVER
            or bool(folder and Path(folder).exists())
            or type(self).start is not BroadSpider.start
            or not self.crawler.crawling  # but in scrapy shell, which asks for pages by itself
        )

    def _seeds(self, options: _Options) -> Iterator[tuple[str, str]]:
        """All seeds, each with what is wrong with it, ``""`` for nothing."""
        for source in options.seeds:
            if "://" in source:
                yield source, ""
                continue
            try:
                yield from ((row.url, row.error) for row in read_seeds(source) if row.error or not row.reason)
            except ExchangeError as error:
                yield source, str(error).removesuffix(".")

    async def start(self) -> AsyncIterator[Any]:
        """A request for each seed.

        The engine takes them without a pause while all of its slots are full, so the pauses are made here.
        """
        slices = TimeSlices()
        for url, error in self._seeds(self._options):
            if error:  # the list was changed after it had been checked
                self.logger.warning("A seed is left out: %(error)s", {"error": error})
            else:
                self._note_seed(url)
                yield Request(url, meta=dict(self.meta) if self.meta else None)
            await slices.step()

    def _note_seed(self, url: str) -> None:
        """Let ``why`` know of the seed *url* if it lies outside of ``domains``: Scrapy drops it without a word."""
        domains = self._options.domains
        if domains and not url_is_from_any_domain(url, domains):
            session = Session.of(self.crawler)
            if session is not None:  # else there is another scheduler
                session.dropped.note("offsite", url, "")
                session.stats.count("aopic/seeds/dropped")

    def parse(self, response: Response, **arguments: Any) -> Any:
        """Yield the items of :meth:`parse_page` and the links of a page; a page whose items fail still has its links.

        Its signature shows the parameters of :meth:`parse_page`, to which *arguments* go: page objects of scrapy-poet, and
        the ``cb_kwargs`` of a request.
        """
        links = self._links(response)
        found: Any = self.parse_page(response, **arguments)
        if isinstance(found, (AsyncIterable, Awaitable)):
            return _with_awaited(links, found)
        return _with(links, found)

    if TYPE_CHECKING:
        parse_page: Callable[..., Any]  # it may be overridden with further parameters
    else:

        def parse_page(self, response: Response) -> Any:
            """Items of a page, and further requests if need be: to be overridden, by a coroutine or a generator, too.

            It may have more parameters than the page, if something passes arguments for them: see :meth:`parse`.

            Unless overridden: an item with :attr:`fields`, but none of a page whose owner asks for that
            (``AOPIC_PAGE_ROBOTS``, ``AOPIC_CONTENT_USAGE``), or that is in another language than those of ``AOPIC_SCOPE``.
            """
            fields = self._options.fields
            if not fields or not self._keeps(response):
                return None
            if not _IN_THREAD.isdisjoint(fields):
                return self._item_from_thread(response, fields)
            return {name: FIELDS[name](response) for name in fields}

    def _keeps(self, response: Response) -> bool:
        """Whether there may be an item of the page of *response*, by what its owner asks, and its language."""
        session = Session.of(self.crawler)
        return session is None or session.page_robots.keeps(response)  # without one, nothing has read it

    async def _item_from_thread(self, response: Response, fields: tuple[str, ...]) -> dict[str, Any]:
        """An item with *fields*, of which some are found in a thread, page by page."""
        item = {name: FIELDS[name](response) for name in fields if name not in _IN_THREAD}
        self._thread = self._thread or ThreadPoolExecutor(1, "aopic-text")
        found = {name: self._thread.submit(FIELDS[name], response) for name in fields if name not in item}
        slices = TimeSlices()
        while not all(each.done() for each in found.values()):
            await slices.pause(_PATIENCE)
        return {name: found[name].result() if name in found else item[name] for name in fields}

    def links(self, response: Response) -> Links | None:
        """The links of a page that are followed, ``None`` for none: to be overridden.

        Unless overridden: all that are in scope.
        """
        return self.in_scope(response)

    def in_scope(self, response: Response, **options: Any) -> Links | None:
        """The links of a page within ``scope``, ``allow`` and ``deny``, for what overrides :meth:`links`.

        A page that a redirect led out of scope has none, unless it is a seed: a seed is where it leads to.

        Args:
            options: Those of :class:`Links`: ``deny`` adds to that of the spider, ``allow`` takes its place.
        """
        own = self._options
        area = AREAS[own.scope]
        if area is not None and _is_led_out(response, area):
            return None
        deny = (*_patterns(options.pop("deny", ())), *own.deny)
        links = _BoundedLinks(response, **{"allow": own.allow, "meta": self.meta, **options}, deny=deny)
        links.area = area
        return links

    def wants_of_sitemap(self, url: str, sitemap: str) -> bool:
        """Whether the page *url* of the sitemap at the URL *sitemap* is within ``scope``, ``allow`` and ``deny``."""
        own = self._options
        area = AREAS[own.scope]
        return (
            (area is None or area.has(url, sitemap))
            and (not own.allow or any(pattern.search(url) for pattern in own.allow))
            and not any(pattern.search(url) for pattern in own.deny)
        )

    def _links(self, response: Response) -> Iterable[Any]:
        """The links of a page: as one object, or as requests if nothing would accept the object."""
        links = self.links(response)
        if links is None:
            return ()
        if self._expands is None:
            self._expands = middlewares.find(self.crawler, LinkMiddleware) is None
        return links.requests() if self._expands else (links,)


def _parse_like(page: Callable[..., Any]) -> Callable[..., Any]:
    """:meth:`BroadSpider.parse` with the parameters of *page*, which is the ``parse_page`` of a subclass."""

    @wraps(page, assigned=set(WRAPPER_ASSIGNMENTS) - {"__name__", "__qualname__", "__doc__"})
    def parse(self: BroadSpider, response: Response, **arguments: Any) -> Any:
        return BroadSpider.parse(self, response, **arguments)

    parse.__qualname__ = BroadSpider.parse.__qualname__
    return parse


def _with(links: Iterable[Any], found: Any) -> Iterator[Any]:
    yield from links
    yield from arg_to_iter(found)


async def _with_awaited(links: Iterable[Any], found: Any) -> AsyncIterator[Any]:
    for each in links:
        yield each
    if isinstance(found, AsyncIterable):
        async for each in found:
            yield each
    else:
        for each in arg_to_iter(await found):
            yield each
