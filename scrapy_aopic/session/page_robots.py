"""What owners of pages ask, as far as a crawl obeys it: links are not followed, and items are left out.

A request that a spider makes on purpose (:mod:`.links.purpose`) is its own affair, and so are its items unless it is a
:class:`scrapy_aopic.BroadSpider`: what the page asks is in ``response.meta["aopic_robots"]``, and how it may be used in
``response.meta["aopic_content_usage"]``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_aopic.settings import read
from scrapy_aopic.web.content_usage import POLICY, RESERVATION, USES, read_usage
from scrapy_aopic.web.link_extraction import rels_of
from scrapy_aopic.web.meta import CONTENT_USAGE, ROBOTS_MARKS, SITEMAP, STATED_USAGE
from scrapy_aopic.web.robots_marks import joined, metas_of, read_marks, robot_name

from .stats import FirstOnly

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_aopic.view.dropped import Dropped

    from .links.found_link import FoundLink
    from .stats import Stats
    from .visit import Visit

logger = logging.getLogger(__name__)

_COUNTED = frozenset(
    [
        "noindex",
        "nofollow",
        "noarchive",
        "nosnippet",
        "noimageindex",
        "notranslate",
        "unavailable_after",
        "noai",
        "noimageai",
    ]
)
"""Rules whose pages are counted: a page may have any words."""


_HEADERS = frozenset((b"X-Robots-Tag", b"Content-Usage", b"Tdm-Reservation"))
"""Headers that are read, as Scrapy writes their names."""


class PageRobots:
    """Reads what owners of pages ask, and says which links are followed and which items are kept.

    Args:
        clock: Gives the seconds since the epoch.
        listeners: Told what pages ask, as texts by name.

    Raises:
        SettingError: If one of its settings cannot be used.
    """

    def __init__(
        self,
        crawler: Crawler,
        clock: Callable[[], float],
        stats: Stats,
        dropped: Dropped,
        listeners: Sequence[Callable[[Visit, dict[str, str]], None]],
    ) -> None:
        settings = crawler.settings
        obeyed: tuple[str, ...] = read(settings, "AOPIC_PAGE_ROBOTS")
        self._has_nofollow = "nofollow" in obeyed
        self._has_noindex = "noindex" in obeyed
        self._uses: frozenset[str] = read(settings, "AOPIC_CONTENT_USAGE")
        self._rels = {name.removeprefix("rel=") for name in obeyed if name.startswith("rel=")}
        self._user_agent: str | None = settings["ROBOTSTXT_USER_AGENT"]
        self._default_user_agent: str = settings["USER_AGENT"]
        self._clock = clock
        self._stats = stats
        self._dropped = dropped
        self._listeners = listeners
        self._first = FirstOnly(logger, crawler)

    def read(self, response: Response, request: Request, visit: Visit | None) -> None:
        """Read what the page of *response* asks, for the callback to see and for the methods below."""
        meta = request.meta
        meta.pop(ROBOTS_MARKS, None)  # a callback may have copied it from another page
        meta.pop(CONTENT_USAGE, None)
        stated = meta.pop(STATED_USAGE, ())
        if SITEMAP in meta:  # which is no page: that search engines should not show it is usual
            return
        agent = self._user_agent or request.headers.get("User-Agent") or self._default_user_agent
        robot, headers = robot_name(agent), response.headers
        metas = metas_of(response, ("robots", robot, RESERVATION, POLICY))
        if not metas and not stated and _HEADERS.isdisjoint(headers):  # as of most pages
            return
        if rules := read_marks(headers, metas, robot, self._clock()):
            meta[ROBOTS_MARKS] = rules
            for name in _COUNTED & rules.keys():
                self._stats.count(f"aopic/robots/pages/{name}")
        usage, malformed = read_usage(headers, metas, stated)
        if usage:
            meta[CONTENT_USAGE] = usage
            for use in USES:
                if usage.get(use) == "n":
                    self._stats.count(f"aopic/content_usage/pages/{use}")
            if usage.get(RESERVATION) == "1":
                self._stats.count("aopic/content_usage/pages/tdm")
        if visit is not None and (rules or usage):
            facts = {"aopic-robots": joined(rules), "aopic-content-usage": joined(usage)}
            visit.wishes(*facts.values())
            for listener in self._listeners:
                listener(visit, {name: text for name, text in facts.items() if text})
        for text in malformed:
            self._stats.count("aopic/content_usage/malformed")
            self._first.warning(
                "malformed",
                '%(page)s says "%(text)s" of how it may be used, which means nothing (docs/robots.md), and is taken as not '
                "said. Further such statements are not logged (aopic/content_usage/malformed counts them)",
                page=response.url,
                text=text,
            )

    def keeps(self, response: Response) -> bool:
        """Whether there may be an item of the page of *response*; if not, that is counted, and the first one is logged."""
        meta = response.meta if response.request is not None else {}
        rules, usage = meta.get(ROBOTS_MARKS, {}), meta.get(CONTENT_USAGE, {})
        if self._has_noindex and "noindex" in rules:
            why, name, value = "robots not to index it", "AOPIC_PAGE_ROBOTS", "noindex"
        elif use := next((use for use in sorted(self._uses) if _is_unwanted(use, rules, usage)), ""):
            why, name, value = f"not to be used for {use}", "AOPIC_CONTENT_USAGE", use
        else:
            return True
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

    def follows(self, response: Response) -> bool:
        """Whether links of the page of *response* are followed."""
        return not (
            self._has_nofollow
            and response.request is not None
            and "nofollow" in response.meta.get(ROBOTS_MARKS, ())
        )

    def drop(self, link: FoundLink, response: Response) -> None:
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

    def unfollowed(self, response: Response) -> frozenset[str]:
        """URLs of the page of *response* that all of its links to them give a ``rel`` that is not followed."""
        if not self._rels:
            return frozenset()
        return frozenset(url for url, rels in rels_of(response).items() if rels & self._rels)

    def drop_by_rel(self, link: FoundLink, response: Response) -> None:
        """Count that *link* is dropped because of its ``rel``; the first one is logged."""
        self._stats.count("aopic/robots/links_dropped")
        self._dropped.note("rel", link.url, response.url)
        self._first.warning(
            "rel",
            "%(page)s gives its link to %(link)s a rel that AOPIC_PAGE_ROBOTS obeys (%(rels)s), so that it is not "
            "followed. Further such links are not logged (aopic/robots/links_dropped counts them)",
            page=response.url,
            link=link.url,
            rels=", ".join(sorted(self._rels)),
        )


def _is_unwanted(use: str, rules: Mapping[str, str], usage: Mapping[str, str]) -> bool:
    """Whether the owner of a page with these *rules* and this *usage* does not want it to be used so."""
    if use == "tdm":
        return usage.get(RESERVATION) == "1"
    return usage.get(use) == "n" or (use == "train-ai" and "noai" in rules)
