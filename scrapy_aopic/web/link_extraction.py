"""Extracts the URLs that Scrapy's ``LinkExtractor`` would find, in its order, in a fraction of its time.

Three rules hold here:

- The tree is the one that ``response.selector`` has anyway, and it is only read: link by link; or, if the page is small and
  only its links are wanted, by one XPath that gives them as texts, without an object for each element. If only the links of a
  page of a megabyte or more are wanted, the same parser makes no tree.
- Nearly all links are plain: their absolute URL is a part of the page's own URL followed by the link's text, and no step of
  Scrapy's way (strip, join, escape, join again) would change a character of it. One regular expression decides that; links
  that it does not match go Scrapy's way, through the same public functions.
- Whatever a page consists of, time is linear in its size, and nothing raises. (With ``restrict_text``, nested regions are
  each searched, as their first links to a URL may differ in their text.)
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urljoin, urlparse
from weakref import WeakKeyDictionary

from lxml import etree  # type: ignore[import-untyped]  # has no types
from parsel import Selector
from parsel.csstranslator import HTMLTranslator
from scrapy import Request
from scrapy.http import HtmlResponse, Response, TextResponse, XmlResponse
from scrapy.linkextractors import IGNORED_EXTENSIONS
from scrapy.utils.misc import arg_to_iter
from scrapy.utils.response import get_base_url
from scrapy.utils.url import url_has_any_extension
from w3lib.html import strip_html5_whitespace
from w3lib.url import safe_url_string

from .parse_limits import HUGE, Elements, attributes_of, html_of, is_huge, look_at
from .urls import PORT

logger = logging.getLogger(__name__)

Texts: TypeAlias = "str | Iterable[str]"
"""One text, or several."""

Patterns: TypeAlias = "str | re.Pattern[str] | Iterable[str | re.Pattern[str]]"
"""One regular expression, or several, of which one has to match."""

Element: TypeAlias = Any
"""An element of lxml."""

EXTRACTIONS = 256
"""Sets of options whose compiled form is kept: more than a project has callbacks."""

LONGEST = 65_536
"""Characters of a link that takes Scrapy's steps, which need 70 bytes for each: more than any server takes."""

_SCHEMES = frozenset(("http", "https", "file", "ftp"))
"""Schemes of the URLs that Scrapy's extractor returns."""

_NOWHERE = "javascript:"
"""A link that has no URL."""

_XHTML = "{http://www.w3.org/1999/xhtml"
"""Prefix of the names of XHTML's elements in a tree of XML."""

_SAFE = r"A-Za-z0-9_~!$&()*+,=@%\-"
"""Characters that stay as they are in every part of a URL; "." and "/" are left out, and ":" and ";", which may part something."""

_HOST = rf"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*(?::{PORT})?"
"""A host in lower case, with a port that no other text means."""

_SEGMENT = f"[{_SAFE}'][{_SAFE}'.:]*"
"""A segment of a path that is neither empty nor made of dots."""

_PATH = f"(?:{_SEGMENT}/)*(?:{_SEGMENT})?"
_QUERY = rf"\?[{_SAFE}.:;/?]+"

_ABSOLUTE, _SAME_SCHEME, _FROM_ROOT, _UPWARDS, _RELATIVE, _QUERY_ONLY, _FRAGMENT_ONLY = range(1, 8)

_plain = re.compile(
    "(?:"
    rf"(?:https?://{_HOST}()|//{_HOST}())(?:/[{_SAFE}'.:/]*(?:{_QUERY})?)?"
    "|(?:"
    rf"/(){_PATH}"
    rf"|(\./|(?:\.\./)+){_PATH}"
    rf"|()[{_SAFE}'][{_SAFE}'.]*(?:/{_PATH})?"
    rf"|(?=\?)())(?:{_QUERY})?"
    "|(?=#)()"
    f")(?:#[{_SAFE}.:;/?]+)?"
).fullmatch
"""Matches a plain link. The number of the group that matches is its kind, one of those above.

An empty query, fragment or parameter (``a?``, ``a#``, ``a;``) is left out, as joining drops it, and so is ``'`` in a query,
which is escaped.
"""

_PLAIN_PAGE = re.compile(
    rf"((https?:)//{_HOST})(?=[/?#]|\Z)(?:/((?:{_SEGMENT}/)*)(?:{_SEGMENT})?(?=[?#]|\Z))?"
)
"""A URL that links are relative to: its origin, its scheme and, if its path is plain, the folders of that."""

_ORIGIN = re.compile(rf"https?://[\w.-]{{1,253}}(?::{PORT})?(?=[/?#]|\Z)", re.IGNORECASE)
"""The beginning of an absolute link that may be plain but for the spelling of its scheme and its host."""

_NETLOC = re.compile(r"[^:/?#]*://([^/?#]*)")
"""The authority of an absolute URL."""

_PLAIN_QUERY = re.compile(rf"(?:{_QUERY})?(?=#|\Z)")

_IN_URLS = "".join(chr(code) for code in range(128) if re.match(f"[{_SAFE}'.:;/?#]", chr(code)))
"""Every character of a plain link."""

_text_of = etree.XPath("string()", smart_strings=False)


@lru_cache(EXTRACTIONS)
def _path_to(tags: frozenset[str], attribute: str) -> Callable[[Element], list[str]]:
    """An XPath for the attributes of this name that elements of these names have, in document order."""
    steps = (f"descendant-or-self::{tag}/@{attribute}" for tag in sorted(tags))
    path: Callable[[Element], list[str]] = etree.XPath("|".join(steps), smart_strings=False)
    return path


SMALL = 65_536
"""Bytes of a page that an XPath is used for. It compares each link with all others, if two kinds of elements have any: 10 ms."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
"""A name that means itself to ``Element.iter`` and to XPath."""


@lru_cache(maxsize=64)
def _keeps_ascii(encoding: str) -> bool:
    """Whether the bytes of a plain URL in *encoding* are those of ASCII, so that escaping it by them changes nothing."""
    try:
        return _IN_URLS.encode(encoding) == _IN_URLS.encode()
    except (LookupError, UnicodeError):
        return False


_AS_IT_IS = {"verbatim_url": True}
"""Has Scrapy 2.17 or later take a request's URL as it is. Left in the request, it would give it another fingerprint."""


def request_for(url: str, **options: Any) -> Request:
    """``Request(url, **options)`` in a third of its time if *url* is plain, so that escaping it would change nothing.

    Raises:
        ValueError: If *url* is not a URL.
    """
    if "meta" in options or not is_absolute(url):
        return Request(url, **options)
    request = Request(url, meta=_AS_IT_IS, **options)
    del request.meta["verbatim_url"]
    return request


def is_absolute(url: str) -> bool:
    """Whether *url* is absolute and plain, so that neither escaping it nor joining it with any page's URL changes it."""
    return (match := _plain(url)) is not None and match.lastindex == _ABSOLUTE


_SHORT = 500
"""Characters of the longest text that is remembered: most links are met again, on the next page of their site."""

_met = lru_cache(10_000)(_plain)
"""Matches of links as plain ones; some 3 MB."""

_joined: WeakKeyDictionary[Response, Mapping[str, str | None]] = WeakKeyDictionary()
"""URLs of links as they stand in pages in work: a page that is read for a topic has them joined before its callback."""

_NONE: Mapping[str, str | None] = {}
"""Where no link has been joined yet."""


def note_joined(response: Response, joined: Mapping[str, str | None]) -> None:
    """Links of the page of *response* have been *joined*, by :meth:`LinkJoiner.join`, before its callback looks for them."""
    _joined[response] = joined


class LinkJoiner:
    """Makes the links of one page absolute.

    Args:
        url: Of the response.
        base: URL that its links are relative to.
        encoding: Of the page; queries are escaped in it.
        strips: Whether white space around a link is no part of it.
    """

    __slots__ = ("_base", "_encoding", "_folders", "_strips", "_url", "_whole", "starts")

    def __init__(self, url: str, base: str, encoding: str, *, strips: bool = True) -> None:
        self._url = url
        self._base = base
        self._encoding = encoding
        self._strips = strips
        self._folders: tuple[str, ...] = ()
        self._whole: str | None = None
        # By kind of a plain link, what goes before it; None if that is not all.
        self.starts: list[str | None] = [None] * 8
        at = _PLAIN_PAGE.match(base)
        if at is None or not (url == base or _PLAIN_PAGE.match(url)) or not _keeps_ascii(encoding):
            return
        origin, scheme, folders = at.groups()
        starts = self.starts
        starts[_ABSOLUTE] = ""
        starts[_SAME_SCHEME] = scheme
        starts[_FROM_ROOT] = origin
        if folders is None:
            return
        names = folders.split("/")[:-1]
        self._folders = tuple("/".join((origin, *names[:kept], "")) for kept in range(len(names), -1, -1))
        path = at.group()
        starts[_RELATIVE] = self._folders[0]
        starts[_QUERY_ONLY] = path
        if query := _PLAIN_QUERY.match(base, at.end()):
            starts[_FRAGMENT_ONLY] = whole = path + query.group()
            # A link to the page itself, "" or "#", has its URL, which so often is one of a page's links.
            self._whole = whole if whole == base else None

    def join(self, link: str) -> str | None:
        """The absolute URL of *link*; ``None`` if it has none that can be fetched."""
        match = _plain(link)
        start = self.starts[match.lastindex or 0] if match else None
        return self.resolve(link, match) if start is None else start + link

    def resolve(self, link: str, match: re.Match[str] | None) -> str | None:
        """The absolute URL of a *link* that is not plain as it stands; *match* is its match as a plain one."""
        if match and match.lastindex == _UPWARDS and self._folders:
            end = match.end(_UPWARDS)
            return self._folders[min(end // 3, len(self._folders) - 1)] + link[end:]
        if link in {"", "#"} and self._whole is not None:
            return self._whole
        if self.starts[_ABSOLUTE] is not None and (origin := _ORIGIN.match(link)):
            spelled = _spelled(origin.group()) + link[origin.end() :]
            if is_absolute(spelled):
                return spelled
        return self.join_by_all_steps(link)

    def join_by_all_steps(self, link: str) -> str | None:
        """The absolute URL of *link*, in Scrapy's way."""
        if len(link) > LONGEST:
            logger.debug("Left out a link of %s with %d characters", self._url, len(link))
            return None
        try:
            if self._strips:
                link = strip_html5_whitespace(link)
            url = urljoin(self._url, safe_url_string(urljoin(self._base, link), encoding=self._encoding))
        except ValueError:
            logger.debug("Left out a link of %s that is no URL: %.200r", self._url, link)
            return None
        return url if url.split("://", 1)[0] in _SCHEMES else None


@lru_cache(maxsize=1000)
def _spelled(origin: str) -> str:
    """*origin*, of an absolute URL, as Scrapy spells it: its host in lower case and in ASCII; ``""`` if it cannot be one."""
    try:
        return safe_url_string(origin)
    except ValueError:
        return ""


def _searches(patterns: Patterns | None) -> list[Callable[[str], Any]]:
    """Functions that search a text for each of *patterns*."""
    return [re.compile(pattern).search for pattern in arg_to_iter(patterns)]


def _refusal(
    allow: list[Callable[[str], Any]],
    deny: list[Callable[[str], Any]],
    allow_domains: Collection[str],
    deny_domains: Collection[str],
    extensions: Collection[str],
) -> Callable[[str], bool] | None:
    """A function that tells whether these options refuse an absolute URL; ``None`` if none is set."""
    tests: list[Callable[[str], bool]] = []
    if allow:
        tests.append(lambda url: not any(search(url) for search in allow))
    if deny:
        tests.append(lambda url: any(search(url) for search in deny))
    if allow_domains:
        is_allowed = _of_any_domain(allow_domains)
        tests.append(lambda url: not is_allowed(url))
    if deny_domains:
        tests.append(_of_any_domain(deny_domains))
    if extensions:
        tests.append(_with_any_extension(extensions))
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda url: any(test(url) for test in tests)


def _of_any_domain(domains: Collection[str]) -> Callable[[str], bool]:
    """A function that tells whether an absolute URL is of one of *domains*, like ``scrapy.utils.url.url_is_from_any_domain``."""
    names = frozenset(map(str.lower, domains))
    ends = tuple(f".{name}" for name in names)

    def is_of_any(url: str) -> bool:
        match = _NETLOC.match(url)
        host = match.group(1).lower() if match else ""
        return bool(host) and (host in names or host.endswith(ends))

    return is_of_any


def _with_any_extension(extensions: Collection[str]) -> Callable[[str], bool]:
    """A function that tells whether a URL's path has such an ending, like ``scrapy.utils.url.url_has_any_extension``."""
    ends = [f".{extension}" for extension in extensions]
    tails = frozenset(end.rpartition(".")[2] for end in ends)

    def has_any(url: str) -> bool:
        path = url.partition("#")[0].partition("?")[0]
        may_have = path.rpartition(".")[2].lower() in tails or ";" in path
        return may_have and url_has_any_extension(urlparse(url), ends)

    return has_any


class Extraction:
    """Finds the links that Scrapy's ``LinkExtractor`` with the same options finds, in the same order.

    Args:
        tags, attrs: Names of elements and of attributes that have links; ``"*"`` for any.
        allow, deny: Regular expressions of which one (none) must be found in the absolute URL.
        allow_domains, deny_domains: Domains, with their subdomains, that links may (may not) lead to.
        deny_extensions: Endings of paths, without their dot, that no link may have; ``None`` for Scrapy's list.
        restrict_css, restrict_xpaths: Regions of a page that are searched, one after the other; they may overlap, and be links
            themselves.
        restrict_text: Regular expressions of which one must be found in the text of the first link to a URL.
        unique: Whether a URL is found once, however often it is linked to.
        strip: Whether white space around a link is no part of it.

    Raises:
        ValueError: If a region is not a valid selector.
        re.error: If a regular expression is not valid.
    """

    def __init__(
        self,
        *,
        tags: Texts = ("a", "area"),
        attrs: Texts = ("href",),
        allow: Patterns = (),
        deny: Patterns = (),
        allow_domains: Texts = (),
        deny_domains: Texts = (),
        deny_extensions: Texts | None = None,
        restrict_css: Texts = (),
        restrict_xpaths: Texts = (),
        restrict_text: Patterns = (),
        unique: bool = True,
        strip: bool = True,
    ) -> None:
        self._tags = frozenset(arg_to_iter(tags))
        self._attrs = frozenset(arg_to_iter(attrs))
        css = HTMLTranslator()
        self._regions = (*arg_to_iter(restrict_xpaths), *map(css.css_to_xpath, arg_to_iter(restrict_css)))
        self._texts = _searches(restrict_text)
        self._unique = unique
        self._strips = strip
        self._refuses = _refusal(
            _searches(allow),
            _searches(deny),
            frozenset(arg_to_iter(allow_domains)),
            frozenset(arg_to_iter(deny_domains)),
            IGNORED_EXTENSIONS if deny_extensions is None else [*arg_to_iter(deny_extensions)],
        )
        self._refuses_short = lru_cache(10_000)(self._refuses) if self._refuses is not None else None
        self._are_names = bool(self._tags) and all(map(_NAME.fullmatch, self._tags | self._attrs))
        is_plain = self._are_names and len(self._attrs) == 1
        self._needs_no_tree = is_plain and not self._regions and not self._texts

    def urls(self, response: Response) -> Iterator[str]:
        """The absolute URLs that the page of *response* links to, in document order.

        A response that has no tree, like an image or JSON, links to nothing.

        Raises:
            ValueError: If a region is no element, but a text or an attribute.
        """
        return filter(None, self.steps(response))

    def steps(self, response: Response) -> Iterator[str]:
        """As :meth:`urls`, with an empty text wherever time has passed without a URL: so whoever waits may do something else."""
        if self._needs_no_tree and isinstance(response, HtmlResponse) and is_huge(response):
            page = LinkJoiner(response.url, _base_of(response), response.encoding, strips=self._strips)
            return self._joined(response, page, (self._skimmed(response),))
        if (tree := tree_of(response)) is None:
            return iter(())
        if self._texts:
            return (url for url, _, _ in self.links(tree))
        page = LinkJoiner(tree.url, tree.base, tree.encoding, strips=self._strips)
        parts = (self._links_in(region, tree) for region in self._regions_of(tree.selector))
        return self._joined(response, page, parts)

    def _joined(self, response: Response, page: LinkJoiner, parts: Iterable[Iterable[str]]) -> Iterator[str]:
        """The absolute URLs of the links in *parts* of *page*, as far as they are not refused."""
        refuses, short, unique, starts = self._refuses, self._refuses_short, self._unique, page.starts
        known = _joined.get(response, _NONE) if self._strips else _NONE
        links_seen, seen = set[str](), set[str]()
        for part in parts:
            for link in part:
                if unique:
                    if link in links_seen:
                        yield ""
                        continue
                    links_seen.add(link)
                joined = known.get(link)
                if not joined:  # page.join(link), without a call
                    match = _met(link) if len(link) <= _SHORT else _plain(link)
                    start = starts[match.lastindex or 0] if match else None
                    joined = page.resolve(link, match) if start is None else start + link
                if unique and joined is not None:
                    if joined in seen:
                        joined = None
                    else:
                        seen.add(joined)
                test = short if joined is not None and len(joined) <= _SHORT else refuses
                yield "" if joined is None or (test is not None and test(joined)) else joined

    def links(self, tree: Tree) -> Iterator[tuple[str, Element, str]]:
        """URL, element and text of each link, whatever its ``rel`` says; otherwise as :meth:`urls`.

        Of the links to a URL in one region only the first counts, even if it is its text that it is refused for.
        """
        page = LinkJoiner(tree.url, tree.base, tree.encoding, strips=self._strips)
        found: set[str] = set()
        for region in self._regions_of(tree.selector):
            seen: set[str] = set()
            for element, link in self._elements_in(region, tree.selector.type):
                url = page.join(link)
                if url is None:
                    continue
                if self._unique:
                    if url in seen:
                        continue
                    seen.add(url)
                if self._refuses is not None and self._refuses(url):
                    continue
                text: str = _text_of(element) if len(element) else element.text or ""
                if self._texts and not any(search(text) for search in self._texts):
                    continue
                if self._unique:
                    if url in found:
                        continue
                    found.add(url)
                yield url, element, text

    def _regions_of(self, selector: Selector) -> Iterator[Element]:
        """The elements that are searched, with all that is in them."""
        if not self._regions:
            yield selector.root
            return
        skips = self._unique and not self._texts  # all that is in a region within another one is known
        within: dict[Element, bool] = {}
        for xpath in self._regions:
            for region in selector.xpath(xpath):
                if not etree.iselement(region.root):
                    raise ValueError(
                        f"{xpath!r} selects texts or attributes, but links are looked for in elements"
                    )
                if not (skips and _is_within(region.root, within)):
                    yield region.root

    def _skimmed(self, response: HtmlResponse) -> Iterator[str]:
        """Links of a page, not yet absolute, without a tree of it, and :data:`_NOWHERE` after each step of its parser."""
        (only,) = self._attrs
        elements = Elements(self._tags, sys.maxsize)
        for _ in look_at(html_of(response), elements):
            for attributes in elements.take():
                if (link := attributes.get(only)) is not None:
                    yield link
            yield _NOWHERE

    def _links_in(self, region: Element, tree: Tree) -> Iterable[str]:
        """Links in *region*, not yet absolute."""
        if tree.is_small and self._are_names and len(self._attrs) == 1 and tree.selector.type == "html":
            (only,) = self._attrs
            return _path_to(self._tags, only)(region)
        return (link for _, link in self._elements_in(region, tree.selector.type))

    def _elements_in(self, region: Element, kind: str) -> Iterator[tuple[Element, str]]:
        """Links in *region*, not yet absolute, and their elements."""
        tags, attrs = self._tags, self._attrs
        if not self._are_names or kind != "html":
            names = [f"{{*}}{tag}" for tag in tags] if self._are_names else [etree.Element]
            for element in region.iter(*names):  # by lxml, as a feed has half a million others
                if "*" in tags or _local(element.tag) in tags:
                    for name, link in element.items():
                        if "*" in attrs or name in attrs:
                            yield element, link
        elif len(attrs) == 1:
            (only,) = attrs
            for element in region.iter(*tags):
                link = element.get(only)
                if link is not None:
                    yield element, link
        else:
            for element in region.iter(*tags):
                for name, link in element.items():
                    if name in attrs:
                        yield element, link


def _is_within(element: Element, within: dict[Element, bool]) -> bool:
    """Whether *element* is, or is in, one that this was called for before; *within* has what is known of others.

    Each element is looked at once, so that regions in regions cost no more than the tree has elements.
    """
    path = []
    at = element
    while at is not None and at not in within:
        path.append(at)
        at = at.getparent()
    is_within = at is not None and within[at]
    within.update(dict.fromkeys(path, is_within))
    within[element] = True
    return is_within


class Tree(NamedTuple):
    """A page as it is searched.

    Attributes:
        url: Of the response.
        base: URL that its links are relative to.
        encoding: Of its text.
        is_small: Whether it has few bytes.
    """

    selector: Selector
    url: str
    base: str
    encoding: str
    is_small: bool


def tree_of(response: Response) -> Tree | None:
    """*response* as it is searched; ``None`` if it is no markup.

    For a page with a ``<base>`` that is no URL, like one with a port above 65535, Scrapy has no selector. Browsers go by the
    page's own URL, and so does this.
    """
    if not isinstance(response, TextResponse):
        return None
    selector: Selector
    base = _base_of(response)
    try:
        selector = response.selector
    except ValueError:
        selector = Selector(response.text, type="xml" if isinstance(response, XmlResponse) else "html")
    if not etree.iselement(selector.root):
        return None
    return Tree(selector, response.url, base, response.encoding, len(response.body) <= SMALL)


def _base_of(response: TextResponse) -> str:
    """URL that the links of *response* are relative to."""
    try:
        return get_base_url(response)
    except ValueError:
        return response.url


def rels_of(response: Response) -> dict[str, set[str]]:
    """The words of ``rel``, in lower case, by the URL without its fragment that the page of *response* links to.

    Of several links to a URL only the words that all of them have: with one that lacks a word the page stands for it. Only
    HTML has such words, and its first :data:`~.parse_limits.HUGE` bytes are parsed for them, without a tree.
    """
    found: dict[str, set[str]] = {}
    if not isinstance(response, HtmlResponse):
        return found
    try:
        html = html_of(response)[:HUGE]
        page = LinkJoiner(response.url, _base_of(response), response.encoding)
    except (LookupError, ValueError):  # its charset does not exist
        return found
    for attributes in attributes_of(html, "a", "area", most=sys.maxsize):
        link = attributes.get("href")
        if link is not None and (url := page.join(link)) is not None:
            url = url.partition("#")[0]
            words = set((attributes.get("rel") or "").lower().split())
            found[url] = found[url] & words if url in found else words
    return found


def _local(tag: str) -> str:
    """The name of an element, without the namespace if it is that of XHTML."""
    return tag.rpartition("}")[2] if tag.startswith(_XHTML) else tag


@lru_cache(EXTRACTIONS)
def extraction(**options: Any) -> Extraction:
    """An :class:`Extraction`, the same one for the same options; these have to be hashable."""
    return Extraction(**options)
