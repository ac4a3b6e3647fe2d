"""Keys of ``Request.meta`` and ``Response.meta`` that belong to this package, and the download slot of a request.

Scrapy copies ``meta`` from a request to its retries and redirects, and a spider may copy it from a page to its links.
Each key says what a copy of it means; :mod:`.request_codec` says which are written with a queued request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.utils.httpobj import urlparse_cached

from .origins import origin_of
from .request_rows import SLOT

if TYPE_CHECKING:
    from scrapy import Request

RECEIVED = "_aopic_received"
"""Key of ``Request.meta`` that counts the bytes of a robots.txt that have come."""

TAG = "_aopic"
"""Key of ``Request.meta`` under which the scheduler keeps its own mark; never written."""

DUPLICATE_OF = "aopic_duplicate_of"
"""Key of ``Response.meta`` that holds the URL of the page that this one is the same as; never written."""

COPY_OF = "aopic_copy_of"
"""Key of ``Response.meta`` that holds the URL of a page of another registered domain with the same text; never written."""

FOUND = "aopic_found"
"""Key of ``Response.meta`` that holds what the visit has found, if pages are revisited; never written."""

RELEVANCE = "aopic_relevance"
"""Key of ``Response.meta`` that holds how relevant the page is to the topic, 0 to 1; never written."""

ROBOTS_MARKS = "aopic_robots"
"""Key of ``Response.meta`` that holds what the page asks of robots, values by rule; never written."""

CONTENT_USAGE = "aopic_content_usage"
"""Key of ``Response.meta`` that holds how the owner wants the page to be used, as it is said; never written."""

OTHER_LANGUAGE = "aopic_other_language"
"""Key of ``Response.meta`` that holds the language of a page that is in none of those that are wanted; never written."""

STATED_USAGE = "_aopic_usage"
"""Key of ``Request.meta`` that holds what the origin states on the use of the page, while it is fetched; never written."""

SITEMAP = "_aopic_sitemap"
"""Key of ``Request.meta`` of a sitemap: the domain whose pages it may name, and how many indexes are above it."""

SEED = "_aopic_seed"
"""Key of ``Request.meta`` that makes a request one of the seeds that wait; taken away when it comes back."""

RELOADED = "_aopic_reloaded"
"""Key of ``Request.meta`` of a page that led to itself: its visits before, and a digest of the body that did."""

DOWN = "_aopic_down"
"""Key of ``Request.meta`` for how often in a row its origin was down when it failed last; -1 if it is to blame itself."""

PROXY_FAILURES = "_aopic_proxy_failures"
"""Key of ``Request.meta`` for how often its proxies failed while others brought answers."""

DONT_RETRY, NOT_YET = "dont_retry", "later"
"""Key of ``Request.meta`` that keeps Scrapy from retries, and its value where a link waits for its host instead."""

TRIES = "_aopic_tries"
"""Key of ``Request.meta`` for how often it was tried before answers to other requests were repeated to it."""

SERVER_SECONDS = "aopic_server_seconds"
"""Key of ``Request.meta`` for how long the server had to work, if whoever makes the transfer does more than to wait for it."""

OWN_SLOT = "_aopic_slot"
"""Key of ``Request.meta`` that tells a slot that was not the user's choice: copies for other hosts carry it along."""


def slot_key(request: Request) -> str:
    """Name of the download slot of *request*: what counts as its host."""
    slot = request.meta.get(SLOT)
    if slot is None or slot == request.meta.get(OWN_SLOT):
        return urlparse_cached(request).hostname or ""
    return str(slot)


def request_origin(request: Request) -> str:
    """Name of the origin that *request* is for."""
    url = urlparse_cached(request)
    return origin_of(url.scheme, url.netloc)
