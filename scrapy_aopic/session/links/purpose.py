"""What a spider requests on purpose, and what is only a link that a page happens to have.

Rules against traps, and against files that are no pages, apply to links, because anybody can write a link. A request made on
purpose is sent as it is, whatever its URL looks like and whatever type the response has.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from scrapy.http import HtmlResponse, JsonResponse, Response, TextResponse
from scrapy.spiders import CrawlSpider

from scrapy_aopic.web.meta import SITEMAP

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request, Spider

_HAS_ANCHOR = re.compile(r"<(?:[a-z]\w*:)?(?:a|area)\s", re.IGNORECASE).search


def link_test(response: Response, spider: Spider) -> Callable[[Request], bool]:
    """Returns a test whether a request that a callback yields for *response* is a link, and not made on purpose.

    It is a link if nothing distinguishes it from the page that it is on: an ordinary GET or HEAD with the page's own callback,
    from a page of the web that has links at all; or if a rule of a ``CrawlSpider`` made it. So an API's reference to its next
    page is no link, and neither are a list's entries for another callback, sitemaps and forms.
    """
    asked = response.request
    is_sitemap = SITEMAP in response.meta if asked is not None else False
    makes_links = is_sitemap or (response.url.startswith("http") and _has_links(response))
    default: Callable[..., object] | None = getattr(spider, "parse", None)
    own = asked.callback if asked is not None and asked.callback is not None else default
    has_rules = isinstance(spider, CrawlSpider)

    def is_link(request: Request) -> bool:
        if not makes_links or request.dont_filter or request.method not in ("GET", "HEAD"):
            return False
        meta = request.meta
        if meta.get("verbatim_url") or SITEMAP in meta:
            return False
        if is_sitemap or asked is None or (has_rules and "rule" in meta):
            return True
        callback = request.callback
        return (callback if callback is not None else default) == own

    return is_link


def _has_links(response: Response) -> bool:
    if isinstance(response, HtmlResponse):
        return True
    if isinstance(response, JsonResponse) or not isinstance(response, TextResponse):
        return False
    try:
        return _HAS_ANCHOR(response.text) is not None
    except (LookupError, ValueError):  # its charset is unknown: no parser finds a link in it
        return False
