"""Scrapy's ``LinkExtractor`` in a fraction of its time, for spiders that stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, wraps
from inspect import signature
from typing import Any, Final, TypeVar

from scrapy.http import TextResponse
from scrapy.link import Link
from scrapy.linkextractors import LinkExtractor as ScrapyLinkExtractor
from scrapy.utils.misc import arg_to_iter, rel_has_nofollow
from typing_extensions import ParamSpec

from .web.link_extraction import Extraction, tree_of

P = ParamSpec("P")
T = TypeVar("T")

_INIT: Final = ScrapyLinkExtractor.__init__
_DEFAULTS: Final = {name: option.default for name, option in signature(_INIT).parameters.items()}

_SERVED = frozenset(
    (
        "self",
        "allow",
        "deny",
        "allow_domains",
        "deny_domains",
        "deny_extensions",
        "restrict_xpaths",
        "restrict_css",
        "restrict_text",
        "tags",
        "attrs",
        "unique",
        "strip",
    )
)
"""Parameters that may have any value; with another one that is not its default, Scrapy's own code extracts the links."""

_FREE = frozenset(("extract_links", "matches"))
"""Methods of Scrapy's class that a subclass may have its own of, and still be served here."""


def _as(init: Callable[P, None]) -> Callable[[Callable[..., None]], Callable[P, None]]:
    """A method with the signature of *init*, which depends on the version of Scrapy."""
    return wraps(init)


class LinkExtractor(ScrapyLinkExtractor):
    """Drop-in for ``scrapy.linkextractors.LinkExtractor``: the same options, and the same links, with their text.

    ::

        from scrapy_aopic import LinkExtractor

        class Broad(CrawlSpider):
            rules = [Rule(LinkExtractor(deny=r"/login"), callback="parse_page", follow=True)]

    Scrapy's own code is used, in silence, where this one cannot know better: with ``process_value``, ``canonicalize``,
    ``deny_tags``, ``deny_attrs`` or a ``"*"`` among tags or attributes, in subclasses that override anything but
    ``extract_links`` and ``matches``, and for responses that are no markup.

    Where Scrapy's raises ``ValueError``, this one goes on: a ``<base>`` that is no URL does not count, and a link that cannot be
    joined with the URL of its page is left out.
    """

    @_as(_INIT)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        bound = signature(_INIT).bind(self, *args, **kwargs)
        bound.apply_defaults()
        options = bound.arguments
        self._names = {name: frozenset(arg_to_iter(options[name])) for name in ("tags", "attrs")}
        self._is_unique = bool(options["unique"])
        self._strips = bool(options["strip"])
        self._is_served = not any(
            value != _DEFAULTS[name] for name, value in options.items() if name not in _SERVED
        ) and not any("*" in names for names in self._names.values())

    def extract_links(self, response: TextResponse) -> list[Link]:
        """The links of *response*, as Scrapy's."""
        extraction = self._extraction
        tree = None if extraction is None else tree_of(response)
        if extraction is None or tree is None:
            return super().extract_links(response)
        return [
            Link(url, text, nofollow=rel_has_nofollow(element.get("rel")))
            for url, element, text in extraction.links(tree)
        ]

    @cached_property
    def _extraction(self) -> Extraction | None:
        """The extraction that finds the links; ``None`` if Scrapy's code does."""
        ours = type(self).__mro__[: type(self).__mro__.index(LinkExtractor)]
        changed = {name for each in ours for name in vars(each) if not name.startswith("__")} - _FREE
        if not self._is_served or any(hasattr(ScrapyLinkExtractor, name) for name in changed):
            return None
        # From the attributes, which a subclass may have changed since.
        return Extraction(
            tags=self._names["tags"],
            attrs=self._names["attrs"],
            allow=self.allow_res,
            deny=self.deny_res,
            allow_domains=self.allow_domains,
            deny_domains=self.deny_domains,
            deny_extensions={extension.removeprefix(".") for extension in self.deny_extensions},
            restrict_xpaths=self.restrict_xpaths,
            restrict_text=self.restrict_text,
            unique=self._is_unique,
            strip=self._strips,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_extraction"}
