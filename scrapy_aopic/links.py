"""All links of a page in one object: what a spider yields instead of a request for each of them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias

from itemadapter.adapter import DictAdapter, ItemAdapter
from scrapy import Request
from scrapy.http import Response, TextResponse

from .web.link_extraction import extraction, is_absolute, request_for

Patterns: TypeAlias = str | re.Pattern[str] | Iterable[str | re.Pattern[str]]
Names: TypeAlias = str | Iterable[str]


logger = logging.getLogger(__name__)

_SHOWN = 200
"""Characters of a URL that are shown in the log; hostile ones have a megabyte."""


class Links:
    """The links of a page, or some of them: yield it from a callback, and they are followed.

    ::

        def parse(self, response):
            yield {"url": response.url}
            yield Links(response, css="main", deny=r"/login")

    It stands for what this yields, in the same order, and costs a fraction of it::

        for link in LinkExtractor(restrict_css="main", deny=r"/login").extract_links(response):
            yield Request(link.url)

    :class:`~scrapy_aopic.LinkMiddleware` takes it, beside any scheduler; without that it is an item with the fields
    ``url`` and ``links``, and the log says so. With :class:`scrapy_aopic.Scheduler` no request is
    made before a page is about to be fetched. What it stands for are links in the sense of docs/urls.md, whatever their
    callback: rules against traps hold for them.

    Args:
        response: The page. One that is no text has no links.
        urls: The links themselves, absolute or relative, instead of those that the page has.
        css, xpath: Parts of the page whose links count; they may be the links themselves.
        allow, deny: Regular expressions of which some (none) must be found in the absolute URL.
        restrict_domains, deny_domains: Domains, with their subdomains, to which links count (do not count).
        deny_extensions: Endings of paths that do not count; ``None`` for ``scrapy.linkextractors.IGNORED_EXTENSIONS``.
        restrict_text: Regular expressions of which one must be found in the text of the link.
        tags, attrs: Elements and attributes that are links.
        extractor: What finds the links instead of all these options; anything with ``extract_links(response)``.
        dates: When pages were changed last, in seconds since the epoch, by URL as it stands in *urls*: hints for a crawl with
            revisits, which believes them as far as those of their host were right before.
        callback, errback, cb_kwargs, meta: Those of the requests. With *cb_kwargs* or *meta* a request is made of each link at once.

    Raises:
        TypeError, ValueError: If an argument cannot be used; it says which.
    """

    __slots__ = ("_find", "callback", "cb_kwargs", "dates", "errback", "meta", "response")

    def __init__(
        self,
        response: Response,
        urls: Iterable[str] | None = None,
        *,
        css: Names = (),
        xpath: Names = (),
        allow: Patterns = (),
        deny: Patterns = (),
        restrict_domains: Names = (),
        deny_domains: Names = (),
        deny_extensions: Names | None = None,
        restrict_text: Patterns = (),
        tags: Names = ("a", "area"),
        attrs: Names = ("href",),
        extractor: Any = None,
        dates: Mapping[str, float] | None = None,
        callback: Callable[..., Any] | None = None,
        errback: Callable[..., Any] | None = None,
        cb_kwargs: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self.response = response
        self.dates = dates
        self.callback = callback
        self.errback = errback
        self.cb_kwargs = dict(cb_kwargs) if cb_kwargs else None
        self.meta = dict(meta) if meta else None
        if urls is not None:
            self._find = _given(urls)
        elif extractor is None:
            self._find = extraction(
                allow=_frozen(allow),
                deny=_frozen(deny),
                allow_domains=_frozen(restrict_domains),
                deny_domains=_frozen(deny_domains),
                restrict_xpaths=_frozen(xpath),
                restrict_css=_frozen(css),
                restrict_text=_frozen(restrict_text),
                deny_extensions=None if deny_extensions is None else _frozen(deny_extensions),
                tags=_frozen(tags),
                attrs=_frozen(attrs),
            ).steps
        else:
            self._find = _extracted(extractor)

    def urls(self) -> Iterator[str]:
        """Their URLs as a request has them, in document order; each once, unless they were given."""
        return filter(None, self.steps())

    def steps(self) -> Iterator[str]:
        """As :meth:`urls`, with an empty text wherever time has passed without a URL."""
        return self._find(self.response)

    def requests(self) -> Iterator[Request]:
        """A request for each of them, in document order; what is no URL is left out, which is logged."""
        for url in self.urls():
            try:
                request = self.request(url)
            except ValueError:
                logger.warning(
                    "%(page)s is left without its link %(url)r, because it is no URL",
                    {"page": self.response.url, "url": url[:_SHOWN]},
                )
                continue
            yield request

    def request(self, url: str) -> Request:
        """The request for the one with *url*."""
        return request_for(
            url, callback=self.callback, errback=self.errback, cb_kwargs=self.cb_kwargs, meta=self.meta
        )

    def __repr__(self) -> str:
        return f"<Links of {self.response.url}; scrapy_aopic.LinkMiddleware follows them>"


class _AsItem(DictAdapter):
    """Adapter of :class:`Links` for item pipelines and exporters, which get them if nothing follows them."""

    @classmethod
    def is_item_class(cls, item_class: type) -> bool:
        return issubclass(item_class, Links)

    @classmethod
    def is_item(cls, item: Any) -> bool:
        return isinstance(item, Links)

    def __init__(self, links: Links) -> None:
        _say_left()
        super().__init__({"url": links.response.url, "links": list(links.urls())})


ItemAdapter.ADAPTER_CLASSES.append(_AsItem)  # type: ignore[attr-defined]  # it is a deque


@cache
def _say_left() -> None:
    """Say, once, that nothing follows what is taken for an item."""
    logger.warning(
        "Links that a callback yields are not followed, but get to item pipelines and exporters as items: set "
        'ADDONS = {"scrapy_aopic.Addon": 500}, or only SPIDER_MIDDLEWARES = {"scrapy_aopic.LinkMiddleware": 1000}, or '
        "yield what links.requests() iterates over"
    )


def _given(urls: Iterable[str]) -> Callable[[Response], Iterator[str]]:
    """A finder of links that gives *urls*."""
    if isinstance(urls, (str, bytes)):
        raise TypeError(f"Links: urls must be a list of URLs, not one alone ({urls!r})")
    found = list(urls)
    wrong = [url for url in found if not isinstance(url, str)]
    if wrong:
        raise TypeError(f"Links: urls must be strings, not {wrong[0]!r}")

    def find(response: Response) -> Iterator[str]:
        return (_absolute(url, response) for url in found)

    return find


def _absolute(url: str, response: Response) -> str:
    """*url* on the page of *response* as a request has it; *url* itself if it is not valid, and is refused later."""
    if is_absolute(url):
        return url
    try:
        return Request(response.urljoin(url)).url
    except ValueError:
        return url


def _extracted(extractor: Any) -> Callable[[Response], Iterator[str]]:
    """A finder of the links that *extractor* extracts."""

    def find(response: Response) -> Iterator[str]:
        if isinstance(response, TextResponse):
            for link in extractor.extract_links(response):
                yield link.url

    return find


def _frozen(values: Names | Patterns) -> tuple[Any, ...]:
    """*values*, one or several, as something that can be remembered."""
    return (values,) if isinstance(values, str) or not hasattr(values, "__iter__") else tuple(values)
