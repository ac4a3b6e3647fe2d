"""How large a link's share of its page's cash is (``AOPIC_LINK_WEIGHTS``)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeAlias
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.http import Response

from scrapy_aopic.exceptions import ANY_ERROR
from scrapy_aopic.web.link_extraction import rels_of
from scrapy_aopic.web.suffixes import registered_domain

if TYPE_CHECKING:
    from scrapy_aopic.session.session import Session
    from scrapy_aopic.session.stats import FirstOnly, Stats

    from .found_link import FoundLink

Weigh: TypeAlias = Callable[[Request, Response], float]
"""Weight of a link, a request that a callback yields, on the page of a response."""

_UNIT = 1000
"""Weight of an ordinary link, so that weights are whole numbers of thousandths."""


class LinkWeights:
    """The weights of links, if they differ.

    Args:
        weigh: Says them.
    """

    def __init__(self, weigh: Weigh, first: FirstOnly) -> None:
        self._weigh: Weigh | ByKind = weigh
        self._first = first

    def of(self, link: FoundLink, response: Response, stats: Stats) -> int | None:
        """Weight of *link* in thousandths, 1 if the function fails, which is counted and logged once.

        ``None`` if its URL is invalid, and will be refused.
        """
        if isinstance(self._weigh, ByKind):
            with suppress(ValueError):
                return _whole(self._weigh(link, response))
            return None
        try:
            request = link.made()
        except ValueError:
            return None
        try:
            return _whole(self._weigh(request, response))
        except ANY_ERROR:  # logged once, whatever the user's function raises
            stats.count("aopic/links/unweighed")
            self._first.exception(
                "weight",
                "AOPIC_LINK_WEIGHTS gives no weight from 0 to 1,000,000 for the link from %(page)s to %(link)s, "
                "which counts 1; further ones are only counted (aopic/links/unweighed)",
                page=response.url,
                link=link.url,
            )
            return _UNIT

    def drop(self, link: FoundLink, response: Response, session: Session) -> None:
        """Count that *link* is dropped because it weighs nothing; the first one is logged."""
        session.stats.count("aopic/links/dropped")
        session.dropped.note("weight", link.url, response.url)
        self._first.warning(
            "weightless",
            "The link from %(page)s to %(link)s weighs 0 (AOPIC_LINK_WEIGHTS), so that it is not followed: give it a weight such as "
            "0.001 to follow it. Further such links are not logged (aopic/links/dropped counts them)",
            page=response.url,
            link=link.url,
        )


def _whole(weight: float) -> int:
    if not 0 <= weight <= 1e6:
        raise ValueError(f"{weight!r} is no weight")
    return int(weight * _UNIT)


class WithUrl(Protocol):
    """What has the URL of a link: a request, or a link that was found."""

    @property
    def url(self) -> str:
        """The URL."""


class ByKind:
    """Weights of links inside a registered domain, to another one, and of those that the page marks with some ``rel``.

    They follow from the URL of a link, so that no request is made to weigh it.
    """

    def __init__(self, internal: float = 1.0, external: float = 1.0, **marks: float) -> None:
        self._internal = internal
        self._external = external
        self._marks = marks
        self._rels: WeakKeyDictionary[Response, dict[str, set[str]]] = WeakKeyDictionary()

    def __call__(self, link: WithUrl, response: Response) -> float:
        if self._marks:
            if response not in self._rels:
                self._rels[response] = rels_of(response)
            found = self._marks.keys() & self._rels[response].get(link.url.partition("#")[0], ())
            if found:
                return min(self._marks[rel] for rel in found)
        if self._internal == self._external or is_internal(link.url, response.url):
            return self._internal
        return self._external


def is_internal(target: str, source: str) -> bool:
    """Whether the URLs *target* and *source* are of one registered domain."""
    one, two = (registered_domain(urlsplit(url).hostname or "") for url in (target, source))
    return one == two
