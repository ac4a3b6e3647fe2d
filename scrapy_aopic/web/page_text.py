"""What a response says about its page: its visible text, where it leads to, and its canonical URL.

Only HTML has a text here: that of the title and of all elements but scripts, styles and templates. White space and case
are ignored. Numbers are not: the pages of a list or of a calendar may differ in nothing else.

Pages with the same text are the same only if they also have the same links, and the same data in their scripts, from
which a spider may make requests, too. Links are compared as seen from the site, so that ``http://www.a.com/b`` and
``/b`` on ``a.com`` are equal, and without session parameters.

Pages are read while the event loop waits, so each step has a bound: :data:`MAX_CLEANED`, :data:`MAX_ELEMENTS`. A page
beyond a bound may be taken for another page than a copy of it, and not for the same as a page with another text.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from lxml import etree  # type: ignore[import-untyped]  # has no types
from scrapy.http import HtmlResponse

from scrapy_aopic.core.duplicates import Text, text_of

from .urls import is_parsable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scrapy.http import Response

MIN_CHARACTERS = 200
"""Characters of text that a page must have to be compared by it: many pages say little more than "not found"."""

MAX_CLEANED = 500_000
"""Characters of a page's text, of its links and of its data out of which is taken what differs although the page is the
same, which takes 7, 7 and 20 ms; of more than that all counts."""

MAX_ELEMENTS = 10_000
"""Elements with a link or with data by which pages are compared, which takes 20 ms; further ones of a page do not count."""

MAX_LINKS = 1000
"""Links in the head of a page, or in its headers, among which its canonical one is looked for."""

MAX_CANONICALS = 10
"""Canonical links that a page may have; if it has more, none of them counts."""

# "descendant" takes a third of the time of "//"; the second expression takes twice as long as the first.
_TEXTS: Callable[[Any], list[str]] = etree.XPath("descendant::text()", smart_strings=False)
_TEXTS_SEEN: Callable[[Any], list[str]] = etree.XPath(
    "descendant::text()[not(parent::script or parent::style or parent::template)]", smart_strings=False
)
_LEADING_BUT_A = ("area", "base", "form", "frame", "iframe", "link", "script", "style", "template")
_LEADING = ("a", *_LEADING_BUT_A)
_HREFS_OF_A: Callable[[Any], list[str]] = etree.XPath("descendant-or-self::a/@href", smart_strings=False)
_HIDDEN = frozenset(("script", "style"))
_ADDRESS = {"form": "action", "frame": "src", "iframe": "src"}
_NEIGHBOURS = frozenset(("next", "prev"))
_NO_LINKS = ("#", "javascript:", "mailto:", "tel:", "data:")
_WHOLE = ("/", "http:", "https:", "HTTP:", "HTTPS:")

# A parameter, or a segment of the path, by which a site recognises its visitor.
_SESSION = re.compile(
    r"[?&;](?:amp;)?(?:(?:phpsessid|jsessionid|cfid|cftoken|oscsid|zenid|aspsessionid\w*|utm_\w*|gclid|fbclid)=[^?&;#/]*"
    r"|(?:[a-z]+[_-])?(?:sid|sess\w*|token|csrf\w*|nonce)=(?=[^?&;#/]*[0-9])[^?&;#/]{12,})"
    r"|/\((?:[A-Z]\()?[0-9a-z]{24}\)+(?=/)",
    re.IGNORECASE,
)

# Scripts that are data: JSON by their type, or the state that a page begins with (Next.js, Nuxt, Redux, ...).
_STATE = re.compile(
    r"\s*(?:(?:window|self|globalThis|var|let|const)\b[^=;(){}]{1,100}=\s*(?:[{\[(]|JSON\.parse|function)"
    r"|\(?self\.__next_f\b)"
)
# Data in it that differ from one response to the next.
_VOLATILE = re.compile(
    r"\"[\w-]{0,30}(?:nonce|csrf|token|session|time|trace_?id|request_?id)[\w-]{0,30}\"\s*:\s*(?:\"[^\"\\]*\"|[0-9.]+)",
    re.IGNORECASE,
)
_LINKS = f"/html/head/link[position() <= {MAX_LINKS}][@rel and @href]"

# RFC 8288: <URL>; rel="canonical"; other="..."
_LINK = re.compile(r"<([^<>]*)>([^<]*)")
_REL = re.compile(r";\s*rel\s*=\s*\"?([^\";,]*)", re.IGNORECASE)


def read_text(response: Response, *, has_sketch: bool = False) -> Text | None:
    """The text of *response*; one without a digest if it is short, ``None`` if the response is no page of HTML."""
    if not isinstance(response, HtmlResponse) or not 200 <= response.status < 300:
        return None
    try:
        root = response.selector.root
    except (LookupError, ValueError):  # Scrapy reads no page with an unknown charset or a bad base URL
        return None
    # An element takes three characters or more.
    texts, leads = _seen_and_leads(root, response.url, are_few=len(response.text) <= 3 * MAX_ELEMENTS)
    text = " ".join(texts).lower()
    is_long = len(text) > MAX_CLEANED
    # The first words of a long text, too: if it has no others, the page says little.
    text = " ".join(text.split(None, MIN_CHARACTERS if is_long else -1))
    return text_of(text, leads, has_sketch=has_sketch) if len(text) >= MIN_CHARACTERS else Text(b"")


def _seen_and_leads(root: Any, url: str, *, are_few: bool) -> tuple[list[str], str]:
    """The visible texts of the page at *url*, and a text that stands for its links and data.

    Args:
        are_few: Whether it has no more than :data:`MAX_ELEMENTS`, so that its anchors need not be counted among them: an XPath
            gives their links without an object for each.
    """
    links = {link for href in _HREFS_OF_A(root) if (link := href.strip())} if are_few else set()
    hidden: list[str] = []
    data: list[str] = []
    elements = root.iter(*(_LEADING_BUT_A if are_few else _LEADING))
    for element in islice(elements, MAX_ELEMENTS):
        tag = str(element.tag)
        if tag == "template":  # its other texts come after its children
            hidden += element.xpath("text()", smart_strings=False)
            continue
        if tag in _HIDDEN:
            if (text := element.text) is not None:
                hidden.append(text)
                if tag == "script" and ("json" in element.get("type", "").lower() or _STATE.match(text)):
                    data.append(text)
            continue
        link = element.get(_ADDRESS.get(tag, "href"), "").strip()
        if link and (tag != "link" or element.get("rel") in _NEIGHBOURS):
            links.add(link)
    if next(elements, None) is not None:  # behind which there may be scripts
        return _TEXTS_SEEN(root), _leads_of(links, data, url)
    texts = _TEXTS(root)
    at = 0
    try:
        for text in hidden:
            at = texts.index(text, at)
            texts[at] = ""
    except ValueError:  # one text in several pieces
        texts = _TEXTS_SEEN(root)
    return texts, _leads_of(links, data, url)


def _leads_of(links: set[str], data: list[str], url: str) -> str:
    """A text that stands for *links* and *data* of the page at *url*."""
    if sum(map(len, data)) <= MAX_CLEANED:
        data = [_VOLATILE.sub("", each) for each in data]
    return "\n".join([*sorted(_as_of_site(links, url)), *data])


def _as_of_site(links: Iterable[str], url: str) -> set[str]:
    """*links*, as they stand in the page at *url*, seen from its site and without sessions."""
    parts = urlsplit(url)
    host = parts.netloc.removeprefix("www.")
    own = tuple(f"{scheme}//{www}{host}" for scheme in ("http:", "https:", "") for www in ("", "www."))
    folder = parts.path.rpartition("/")[0]
    found = set()
    is_short = sum(map(len, links)) <= MAX_CLEANED
    for link in links:
        if link[0] == "/" and link[1:2] != "/":  # most are
            place = link
        elif link.startswith(own):
            place = link[link.index(host) + len(host) :] or "/"
        elif link.startswith(_WHOLE):
            place = link
        elif link.startswith(_NO_LINKS):
            continue
        else:
            place = f"{folder}/{link}" if link[0] != "?" else parts.path + link
        has_session = is_short and ("?" in place or ";" in place or "(" in place)
        found.add(_SESSION.sub("", place) if has_session else place)
    return found


def read_canonical(response: Response) -> str:
    """The URL that *response* names as canonical (RFC 6596); ``""`` if it names none, or more than one."""
    if not 200 <= response.status < 300:
        return ""
    try:
        links = list(islice(_canonicals(response), MAX_CANONICALS + 1))
        if len(links) > MAX_CANONICALS or not all(is_parsable(link) for _, link in links):
            return ""
        urls = {
            response.urljoin(link) if is_html else urljoin(response.url, link) for is_html, link in set(links)
        }
    except (LookupError, ValueError):  # no URL, or as in read_text
        return ""
    return urls.pop() if len(urls) == 1 else ""


def _canonicals(response: Response) -> Iterator[tuple[bool, str]]:
    """Canonical links of *response* as they stand in it, each after whether it is in the HTML."""
    for header in response.headers.getlist("Link"):
        for match in islice(_LINK.finditer(header.decode("latin-1")), MAX_LINKS):
            rel = _REL.search(match[2])
            if rel is not None and "canonical" in rel[1].lower().split():
                yield False, match[1].strip()
    if isinstance(response, HtmlResponse):
        for link in response.selector.root.xpath(_LINKS):
            if "canonical" in link.get("rel").lower().split():
                yield True, link.get("href").strip()
