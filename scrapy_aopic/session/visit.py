"""A page in work: what the scheduler notes of it between the lease and the settlement."""

from __future__ import annotations

from hashlib import sha1
from typing import TYPE_CHECKING

from scrapy_aopic.core.records import HOST_BYTES
from scrapy_aopic.web.meta import TAG

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request

    from scrapy_aopic.core.api import Lease
    from scrapy_aopic.core.records import Link
    from scrapy_aopic.core.revisits import Content
    from scrapy_aopic.refusals import RefusedError

_LONG = 20_000
"""Characters of a URL from which on links are told apart by it as it is, and not by its normal form."""


class Visit:
    """A request that the engine has, and what became of it so far.

    Attributes:
        request: What the engine was given.
        lease: The page.
        links: Requests that came back as links of the page.
        retry: The request to make instead, if the downloader wants another try.
        status: Status of the answer that reached the callback.
        reason: Why there was none.
        unwanted: What the errback is told, if the answer is not read.
        content: What it says of the page's content, if pages are visited again.
        weight: Weight of all distinct links so far, 0 if they do not differ in weight.
        is_conditional: Whether the scheduler asked the host only for what has changed.
        is_duplicate: Whether another page had its text before.
        is_excess: Whether that one has other links, and there are too many such pages.
        same_as: Key of the page that it says it is.
        is_if_same: Whether that only counts if they have the same words.
    """

    __slots__ = ("_max_links", "_place", "_seen", "content", "is_conditional", "is_downloading", "is_duplicate",
                 "is_excess", "is_if_same", "is_redirect", "lease", "links", "number", "reason", "request", "retry", "same_as",
                 "status", "unwanted", "weight")  # fmt: skip

    def __init__(
        self,
        request: Request,
        lease: Lease,
        number: int,
        place: Callable[[Request], tuple[str, bytes]],
        max_links: int,
    ) -> None:
        self.request = request
        self.lease = lease
        self.number = number
        self.links: list[Link] = []
        self.retry: Link | None = None
        self.status: int | None = None
        self.reason = ""
        self.unwanted: RefusedError | None = None
        self.content: Content | None = None
        self.weight = 0
        self.is_conditional = False
        self.is_duplicate = False
        self.is_excess = False
        self.same_as = b""
        self.is_if_same = False
        self.is_downloading = True
        self.is_redirect = False
        self._seen: set[bytes] = set()
        self._place = place
        self._max_links = max_links

    @property
    def n_links(self) -> int:
        """Distinct links that the callback yielded so far, as far as they count."""
        return len(self._seen)

    def note(self, request: Request, weight: int | None = None, kind: str = "link") -> None:
        """Count *request*, which a callback yields, as a link of *weight*, if links differ in weight, and mark it."""
        request.meta[TAG] = (kind, self.number) if weight is None else (kind, self.number, weight)
        if len(self._seen) < self._max_links and len(self.links) < self._max_links:
            # Whoever is so long is refused, unless the user wants it, and takes a tenth of a second for a megabyte.
            is_long = len(request.url) > _LONG
            page = sha1(request.url.encode()).digest() if is_long else self._place(request)[1][HOST_BYTES:]  # noqa: S324
            # A page's link to itself is none, and of several links to one page the first counts.
            if page != self.lease.key[HOST_BYTES:] and page not in self._seen:
                self._seen.add(page)
                self.weight += weight or 0

    def is_itself(self, request: Request) -> bool:
        """Whether *request* is for the page itself, whatever counts as its host."""
        return self._place(request)[1][HOST_BYTES:] == self.lease.key[HOST_BYTES:]
