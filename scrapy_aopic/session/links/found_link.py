"""A link on its way from a callback to the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias
from weakref import ref

from msgspec import Struct
from scrapy import Request

from scrapy_aopic.links import Links

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.http import Response

Drop: TypeAlias = "Callable[[FoundLink, Response], None]"
"""Counts and logs that a link of a page is dropped."""


class FoundLink(Struct, gc=False):
    """A link of a page, or a request that its callback makes on purpose: found, admitted, sent.

    Attributes:
        url: Its URL: as the callback has it, and in normal form once it is admitted.
        request: The request for it; ``None`` if there is only a URL.
        is_link: Whether it is a link that the page happens to have, and not made on purpose.
        names: Names of its callback and errback, if it is for nothing but its URL and can be stored as a line of text;
            ``None`` if it is sent as a request.
        links: The object that yielded it, if there is only a URL.
        is_canonical: Whether the page names it as its canonical page.
        is_refused: Whether it is not to be queued.
        host: Name of the host; empty if *key* is no page key.
        key: Page key; other bytes that stand for its URL if it has none, and empty if it does not count as a link.
        weight: Weight in thousandths, ``None`` if links do not differ in weight.
        tail: The rest of its line after the URL, if it is stored as one.
        kept: The request for it, if the spider has made one with the same URL, as long as it has other references.
    """

    url: str
    request: Request | None
    is_link: bool
    names: tuple[str, str] | None = None
    links: Links | None = None
    is_canonical: bool = False
    is_refused: bool = False
    host: str = ""
    key: bytes = b""
    weight: int | None = None
    tail: str = ""
    kept: ref[Request] | None = None

    def made(self) -> Request:
        """The request for it, which is made if there is none with its URL.

        Raises:
            ValueError: If its URL is none.
        """
        request = self.request
        if request is None:
            assert self.links is not None
            self.request = request = self.links.request(self.url)
        elif request.url != self.url:
            self.request = request = request.replace(url=self.url)
        return request
