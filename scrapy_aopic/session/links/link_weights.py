"""How large a link's share of its page's cash is (``AOPIC_LINK_WEIGHTS``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.http import Response

from scrapy_aopic.exceptions import ANY_ERROR
from scrapy_aopic.web.link_extraction import rels_of
from scrapy_aopic.web.suffixes import registered_domain

if TYPE_CHECKING:
    from scrapy_aopic.session.stats import FirstOnly, Stats

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
        self._weigh = weigh
        self._first = first

    def of(self, request: Request, response: Response, stats: Stats) -> int:
        """Weight of *request* in thousandths; 1 if the function fails, which is counted and logged once."""
        try:
            return _whole(self._weigh(request, response))
        except ANY_ERROR:  # logged once, whatever the user's function raises
            stats.count("aopic/links/unweighed")
            self._first.exception(
                "weight",
                "AOPIC_LINK_WEIGHTS gives no weight from 0 to 1,000,000 for the link from %(page)s to %(link)s, "
                "which counts 1; further ones are only counted (aopic/links/unweighed)",
                page=response.url,
                link=request.url,
            )
            return _UNIT


def _whole(weight: float) -> int:
    if not 0 <= weight <= 1e6:
        raise ValueError(f"{weight!r} is no weight")
    return int(weight * _UNIT)


def by_kind(internal: float = 1.0, external: float = 1.0, nofollow: float | None = None) -> Weigh:
    """Weights of links inside a registered domain, to another one, and of those marked ``rel="nofollow"``."""
    rels: WeakKeyDictionary[Response, dict[str, set[str]]] = WeakKeyDictionary()

    def weigh(request: Request, response: Response) -> float:
        if nofollow is not None:
            if response not in rels:
                rels[response] = rels_of(response)
            if "nofollow" in rels[response].get(request.url.partition("#")[0], ()):
                return nofollow
        return internal if is_internal(request.url, response.url) else external

    return weigh


def is_internal(target: str, source: str) -> bool:
    """Whether the URLs *target* and *source* are of one registered domain."""
    one, two = (registered_domain(urlsplit(url).hostname or "") for url in (target, source))
    return one == two
