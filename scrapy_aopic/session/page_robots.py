"""What pages say of themselves, as far as a crawl goes by it: links are not followed, items are left out, pages are skipped.

Their owners ask robots not to follow or to index them, say how they may be used, and declare a language.

A request that a spider makes on purpose (:func:`.links.found_link.link_test`) is its own affair, and so are its items unless it is a
:class:`scrapy_aopic.BroadSpider`: what the page asks is in ``response.meta["aopic_robots"]``, and how it may be used in
``response.meta["aopic_content_usage"]``.

A page in another language than those of ``AOPIC_SCOPE`` has it in ``response.meta["aopic_other_language"]``. One that declares
none is taken for one of those that are wanted: many do not. What was requested on purpose, such as a seed, leads on in any
language.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_aopic.exceptions import SettingError
from scrapy_aopic.request_errors import ContentUsageError
from scrapy_aopic.settings import read_values
from scrapy_aopic.web.content_usage import (
    NOTHING,
    POLICY,
    RESERVATION,
    TDM,
    TDMREP,
    USES,
    Stated,
    Usage,
    read_usage,
)
from scrapy_aopic.web.languages import declared_language
from scrapy_aopic.web.meta import CONTENT_USAGE, OTHER_LANGUAGE, ROBOTS_MARKS, SITEMAP, STATED_USAGE
from scrapy_aopic.web.request_rows import PURPOSE
from scrapy_aopic.web.robots_marks import Rules, joined, metas_of, read_marks, robot_name

from .stats import FirstOnly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scrapy import Request
    from scrapy.http import Response

    from .links.found_link import Drop, FoundLink
    from .parts import SessionParts
    from .visit import Visit

logger = logging.getLogger(__name__)

_COUNTED = frozenset(
    (
        "noindex",
        "nofollow",
        "noarchive",
        "nosnippet",
        "noimageindex",
        "notranslate",
        "unavailable_after",
        "noai",
        "noimageai",
    )
)
"""Rules whose pages are counted: a page may have any words."""


_HEADERS = frozenset((b"X-Robots-Tag", b"Content-Usage", b"Tdm-Reservation"))
"""Headers that are read, as Scrapy writes their names."""


class PageRobots:
    """Reads what owners of pages ask, and says which links are followed and which items are kept.

    Args:
        listeners: Told what pages ask, as texts by name.

    Attributes:
        may_skip: Whether there are pages that no callback gets because their owners ask for that.
        when_read: Called when a page was read and before *listeners* are, if anything needs to know: whether it is skipped
            then shows in its visit.

    Raises:
        SettingError: If one of its settings cannot be used.
    """

    def __init__(
        self, parts: SessionParts, listeners: Sequence[Callable[[Visit, dict[str, str]], None]]
    ) -> None:
        settings = parts.crawler.settings
        values = read_values(settings)
        obeyed = values.page_robots
        self._has_nofollow = "nofollow" in obeyed
        self._has_noindex = "noindex" in obeyed
        uses = values.content_usage
        if uses.get(TDMREP) and not settings.getbool("ROBOTSTXT_OBEY"):
            raise SettingError(
                f"AOPIC_CONTENT_USAGE: {TDMREP} is fetched only where robots.txt is: set ROBOTSTXT_OBEY = True, or leave it out."
            )
        self._obeyed = sorted(uses.keys() - {TDMREP})
        self._skipped = sorted(use for use, way in uses.items() if way == "skip")
        self.may_skip = bool(self._skipped)
        self.when_read: Callable[[Visit], None] | None = None
        scope = values.scope
        self._scope = scope if scope is not None and scope.languages else None
        self._user_agent: str | None = settings["ROBOTSTXT_USER_AGENT"]
        self._default_user_agent: str = settings["USER_AGENT"]
        self._clock = parts.job.clock
        self._stats = parts.stats
        self._dropped = parts.dropped
        self._listeners = listeners
        self._first = FirstOnly(logger, parts.crawler)

    def read(self, response: Response, request: Request, visit: Visit | None) -> None:
        """Read what the page of *response* asks, for the callback to see and for the methods below.

        Raises:
            ContentUsageError: If no callback is to get the page.
        """
        rules, usage = self._note(response, request)
        error = self._skip(response, rules, usage) if self.may_skip else None
        if visit is not None:
            if error is not None:
                visit.refused(error)
            if self.when_read is not None:
                self.when_read(visit)
            if rules or usage:
                self._tell(visit, joined(rules), joined(usage))
        if error is not None:
            raise error
        self._read_language(response, request, visit)

    def _read_language(self, response: Response, request: Request, visit: Visit | None) -> None:
        """Read in which language the page of *response* is, if that matters."""
        request.meta.pop(OTHER_LANGUAGE, None)  # a callback may have copied it from another page
        if self._scope is None or SITEMAP in request.meta:
            return
        language = declared_language(response)
        if not language:
            self._stats.count("aopic/scope/undeclared")
        elif self._scope.is_foreign(language):
            request.meta[OTHER_LANGUAGE] = language
            if visit is not None:
                visit.is_out_of_language()

    def _tell(self, visit: Visit, robots: str, usage: str) -> None:
        """The page of *visit* asks *robots*, and says its *usage*."""
        visit.wishes(robots, usage)
        facts = {"aopic-robots": robots, "aopic-content-usage": usage}
        for listener in self._listeners:
            listener(visit, {name: text for name, text in facts.items() if text})

    def _note(self, response: Response, request: Request) -> tuple[Rules, Usage]:
        """What the page of *response* asks, counted, and put where its callback sees it."""
        meta = request.meta
        meta.pop(ROBOTS_MARKS, None)  # a callback may have copied it from another page
        meta.pop(CONTENT_USAGE, None)
        stated = meta.pop(STATED_USAGE, NOTHING)
        if SITEMAP in meta:  # which is no page: that search engines should not show it is usual
            return {}, {}
        found = self._find(response, request, stated)
        if found is None:
            return {}, {}
        rules, usage, malformed = found
        if rules:
            meta[ROBOTS_MARKS] = rules
            for name in _COUNTED & rules.keys():
                self._stats.count(f"aopic/robots/pages/{name}")
        if usage:
            meta[CONTENT_USAGE] = usage
            for use in (*USES, TDM):
                if _is_unwanted(use, {}, usage):
                    self._stats.count(f"aopic/content_usage/pages/{use}")
        for text in malformed:
            self._stats.count("aopic/content_usage/malformed")
            self._first.warning(
                "malformed",
                '%(page)s says "%(text)s" of how it may be used, which means nothing (scrapy aopic docs robots#use-of-content), and is taken as not '
                "said. Further such statements are not logged (aopic/content_usage/malformed counts them)",
                page=response.url,
                text=text,
            )
        return rules, usage

    def _find(
        self, response: Response, request: Request, stated: Stated
    ) -> tuple[Rules, Usage, list[str]] | None:
        """What the page of *response* asks of robots, how it may be used, what means nothing; ``None`` if it asks nothing."""
        agent = self._user_agent or request.headers.get("User-Agent") or self._default_user_agent
        robot, headers = robot_name(agent), response.headers
        metas = metas_of(response, ("robots", robot, RESERVATION, POLICY))
        if not metas and stated is NOTHING and _HEADERS.isdisjoint(headers):  # as of most pages
            return None
        return read_marks(headers, metas, robot, self._clock()), *read_usage(headers, metas, stated)

    def _skip(self, response: Response, rules: Rules, usage: Usage) -> ContentUsageError | None:
        """The error for the errback, if no callback is to get the page of *response*; the first one is logged."""
        use = _first_unwanted(self._skipped, rules, usage)
        if not use:
            return None
        self._first.warning(
            "skip",
            "%(page)s asks not to be used for %(use)s, so that no callback gets it, and no archive: set AOPIC_CONTENT_USAGE to "
            '{"%(use)s": "obey"} to follow its links. Further such pages are not logged (aopic/outcomes/content usage '
            "counts them)",
            page=response.url,
            use=use,
        )
        return ContentUsageError(f"{response.url} asks not to be used for {use} (AOPIC_CONTENT_USAGE)")

    def is_skipped(self, response: Response, request: Request) -> bool:
        """Whether no callback is to get the page of *response*, as far as that shows before it is unpacked."""
        found = self._find(response, request, request.meta.get(STATED_USAGE, NOTHING))
        return found is not None and bool(_first_unwanted(self._skipped, found[0], found[1]))

    def keeps(self, response: Response) -> bool:
        """Whether there may be an item of the page of *response*; if not, that is counted, and the first one is logged."""
        meta = response.meta if response.request is not None else {}
        rules, usage = meta.get(ROBOTS_MARKS, {}), meta.get(CONTENT_USAGE, {})
        if self._has_noindex and "noindex" in rules:
            why, name, value = "robots not to index it", "AOPIC_PAGE_ROBOTS", "noindex"
        elif use := _first_unwanted(self._obeyed, rules, usage):
            why, name, value = f"not to be used for {use}", "AOPIC_CONTENT_USAGE", use
        else:
            return self._keeps_language(response.url, meta.get(OTHER_LANGUAGE, ""))
        self._stats.count("aopic/robots/items_dropped")
        self._first.warning(
            name,
            '%(page)s asks %(why)s, so that there is no item of it: leave "%(value)s" out of %(name)s to have one. Further '
            "such pages are not logged (aopic/robots/items_dropped counts them)",
            page=response.url,
            why=why,
            name=name,
            value=value,
        )
        return False

    def _keeps_language(self, page: str, other: str) -> bool:
        """Whether there may be an item of a *page* in the language *other*, empty if it is one that is wanted."""
        if other:
            self._stats.count("aopic/scope/items_dropped")
            self._first.warning(
                "language of items",
                '%(page)s is in another language (%(language)s) than "languages" of AOPIC_SCOPE has, so that there is no item of '
                "it. Further such pages are not logged (aopic/scope/items_dropped counts them)",
                page=page,
                language=other,
            )
        return not other

    def dropping(self, response: Response) -> Drop | None:
        """Drops links of the page of *response*; ``None`` if they are followed."""
        meta = response.meta if response.request is not None else {}
        if self._has_nofollow and "nofollow" in meta.get(ROBOTS_MARKS, ()):
            return self._drop
        return self._drop_of_language if OTHER_LANGUAGE in meta and PURPOSE not in meta else None

    def _drop_of_language(self, link: FoundLink, response: Response) -> None:
        """Count that *link* is dropped because its page is in another language; the first one is logged."""
        self._stats.count("aopic/scope/links_dropped")
        self._dropped.note("language", link.url, response.url)
        self._first.warning(
            "language of links",
            '%(page)s is in another language (%(language)s) than "languages" of AOPIC_SCOPE has, so that its links are not '
            "followed, the first of them %(link)s. Further such links are not logged (aopic/scope/links_dropped counts them)",
            page=response.url,
            language=response.meta[OTHER_LANGUAGE],
            link=link.url,
        )

    def _drop(self, link: FoundLink, response: Response) -> None:
        """Count that *link* is dropped because its page asks for that; the first one is logged."""
        self._stats.count("aopic/robots/links_dropped")
        self._dropped.note("nofollow", link.url, response.url)
        self._first.warning(
            "nofollow",
            "%(page)s asks robots not to follow its links (X-Robots-Tag, or meta robots), so that none is, the first of "
            'them %(link)s: leave "nofollow" out of AOPIC_PAGE_ROBOTS to follow them. Further such links are not logged '
            "(aopic/robots/links_dropped counts them)",
            page=response.url,
            link=link.url,
        )


def _first_unwanted(uses: Iterable[str], rules: Mapping[str, str], usage: Mapping[str, str]) -> str:
    """The first of *uses* that the owner of a page with these *rules* and this *usage* does not want; ``""`` for none."""
    return next((use for use in uses if _is_unwanted(use, rules, usage)), "")


def _is_unwanted(use: str, rules: Mapping[str, str], usage: Mapping[str, str]) -> bool:
    """Whether the owner of a page with these *rules* and this *usage* does not want it to be used so."""
    if use == TDM:
        return usage.get(RESERVATION) == "1"
    return usage.get(use) == "n" or (use == "train-ai" and "noai" in rules)
