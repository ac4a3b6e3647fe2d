"""The visible text of a response, its links for comparison, and its canonical URL.

Only HTML has a text here: that of the title and of all elements but scripts, styles and templates. White space and case
are ignored. Numbers are not: the pages of a list or of a calendar may differ in nothing else.

Pages with the same text are the same only if they also have the same links, and the same data in their scripts, from
which a spider may make requests, too. Links are compared as seen from the site, so that ``http://www.a.com/b`` and
``/b`` on ``a.com`` are equal, and without session parameters.

Pages are read while the event loop waits, so there is a bound: :data:`MAX_SKIMMED`. A longer page may not be recognised as
a copy of another one, but is never taken for a page with another text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

from lxml import etree  # type: ignore[import-untyped]  # has no types
from scrapy.http import HtmlResponse, Response

from scrapy_aopic.core.duplicates import WHITE, Text, text_of

from .parse_limits import root_of
from .urls import is_parsable

MAX_SPECIAL = 10_000
"""Comments, scripts, styles, templates, forms, frames and elements of the head of a page that are looked at by themselves, which
takes 5 ms; further ones are taken for what is shown."""

# These are looked for in lower case; most tags are ruled out by their first letter.
_SPECIAL = re.compile(rb"<(?=[!stlfi])(?:!--|(script|style|template|link|form|i?frame)(?=[\s/>]))")
_ENDS = {name: re.compile(rb"</" + name + rb"(?=[\s/>])") for name in (b"script", b"style", b"template")}
_TAG = re.compile(rb"<[a-z/!?][^<>]*>")
_NEIGHBOUR = re.compile(rb"\srel\s*=\s*[\"']?(?:next|prev)[\"'\s/>]")

# And these in the page as it is.

_VALUE = rb"\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s<>\"']+)"
_HREF = re.compile(rb"href" + _VALUE)
_HREF_OF_ANY_CASE = re.compile(rb"href" + _VALUE, re.IGNORECASE)  # takes four times as long
_ADDRESS = re.compile(rb"(?:[^<>\"']|\"[^\"]*\"|'[^']*')*?\b(?:action|src)" + _VALUE, re.IGNORECASE)

# Scripts that are data: JSON by their type, or the state that a page begins with (Next.js, Nuxt, Redux, ...).
_STATE = re.compile(
    rb"\s*(?:(?:window|self|globalThis|var|let|const)\b[^=;(){}]{1,100}=\s*(?:[{\[(]|JSON\.parse|function)"
    rb"|\(?self\.__next_f\b)"
)


class Skimmed(NamedTuple):
    """The text, links and data of a page, as they stand there.

    Attributes:
        text: The page without tags, comments, scripts, styles and templates, with ASCII letters in lower case; white space
            is left as it is.
        links: Values, with their quotes, of ``href`` in any element but a ``link`` that is neither ``rel="next"`` nor ``"prev"``,
            of ``action`` in forms, and of ``src`` in frames.
        data: Scripts that hold data.
    """

    text: bytes
    links: list[bytes]
    data: list[bytes]


def skim(html: bytes) -> Skimmed:
    """Find the text, the links and the data of *html* without a parser, with at most :data:`MAX_SPECIAL` elements looked at by themselves.

    A parser takes twice as long, most of it for a tree that nothing else needs if no link of the page is followed. The result
    serves to compare pages with each other, so it need not be what a browser finds, but:

    1. The same bytes give the same result; pages that differ only in white space, comments, tags and attributes have one text.
    2. No link is overlooked, whatever is around it: pages with the same words may differ in a single link.
    3. It takes time linear in the bytes.
    """
    shown: list[slice] = []
    links, data = list[bytes](), list[bytes]()
    # What comes from *at* on is shown, as far as nothing is found from *begin* on that hides it.
    at = begin = 0
    has_end = True  # whether there may be one of a comment
    lower = html.lower()
    for _ in range(MAX_SPECIAL):
        if (found := _SPECIAL.search(lower, begin)) is None:
            break
        begin = found.end()
        name = found[1]
        if name is None:
            end = html.find(b"-->", begin) if has_end else -1
            if end < 0:
                has_end = False
                continue
            end += 3
        elif name in _ENDS:
            closing = _ENDS[name].search(lower, begin)
            end = len(html) if closing is None else closing.start()
            if name == b"script":
                tag, _, content = html[begin:end].partition(b">")
                if content and (b"json" in tag.lower() or _STATE.match(content)):
                    data.append(content)
        elif name == b"link":
            end = html.find(b">", begin) + 1 or len(html)
            if _NEIGHBOUR.search(lower, begin, end):
                continue
        else:
            address = _ADDRESS.match(html, begin)
            if address is not None:
                links.append(address[1])
            continue
        shown.append(slice(at, found.start()))
        at = begin = end
    shown.append(slice(at, None))
    rest, lower = (b" ".join(map(page.__getitem__, shown)) for page in (html, lower))
    href = _HREF if rest.count(b"href") == lower.count(b"href") else _HREF_OF_ANY_CASE
    return Skimmed(b" ".join(_TAG.split(lower)), links + href.findall(rest), data)


MIN_TEXT = 200
"""Bytes of text, without white space, that a page must have to be compared by it: many pages say little more than "not found"."""

MAX_SKIMMED = 500_000
"""Bytes of a page whose text, links and data are read, which takes at most 25 ms; after that, all bytes count as they are."""

_BEGINNING = 200
"""Bytes of a page among which a zero means that each character has more than one."""

MAX_LINKS = 1000
"""Links in the head of a page, or in its headers, among which its canonical one is looked for."""

MAX_CANONICALS = 10
"""Canonical links that a page may have; if it has more, none of them counts."""

_NO_LINKS = ("#", "javascript:", "mailto:", "tel:", "data:")
_WHOLE = ("/", "http:", "https:", "HTTP:", "HTTPS:")

# A parameter, or a segment of the path, by which a site recognises its visitor.
_SESSION = re.compile(
    r"[?&;](?:amp;)?(?:(?:phpsessid|jsessionid|cfid|cftoken|oscsid|zenid|aspsessionid\w*|utm_\w*|gclid|fbclid)=[^?&;#/]*"
    r"|(?:[a-z]+[_-])?(?:sid|sess\w*|token|csrf\w*|nonce)=(?=[^?&;#/]*[0-9])[^?&;#/]{12,})"
    r"|/\((?:[A-Z]\()?[0-9a-z]{24}\)+(?=/)",
    re.IGNORECASE,
)

# What differs in data from one response to the next.
_VOLATILE = re.compile(
    rb"\"[\w-]{0,30}(?:nonce|csrf|token|session|time|trace_?id|request_?id)[\w-]{0,30}\"\s*:\s*(?:\"[^\"\\]*\"|[0-9.]+)",
    re.IGNORECASE,
)
_links_in_head = etree.XPath(f"/html/head/link[position() <= {MAX_LINKS}][@rel and @href]")

# RFC 8288: <URL>; rel="canonical"; other="..."
_LINK = re.compile(r"<([^<>]*)>([^<]*)")
_REL = re.compile(r";\s*rel\s*=\s*\"?([^\";,]*)", re.IGNORECASE)


def read_text(response: Response, *, has_sketch: bool = False) -> Text | None:
    """The text of *response*; one without a digest if it is short, ``None`` if the response is no page of HTML."""
    if not isinstance(response, HtmlResponse) or not 200 <= response.status < 300:
        return None
    html = response.body
    if b"\0" in html[:_BEGINNING]:  # UTF-16 or UTF-32
        try:
            html = response.text.encode("utf-8", "replace")
        except (LookupError, ValueError):  # it names a charset that does not exist
            return None
    shown, links, data = skim(html[:MAX_SKIMMED])
    # Most have as much at their beginning.
    if all(len(part.translate(None, WHITE)) < MIN_TEXT for part in (shown[: 2 * MIN_TEXT], shown)):
        return Text(b"")
    return text_of(shown + html[MAX_SKIMMED:], _leads_of(links, data, response.url), has_sketch=has_sketch)


def comparable_text(response: Response) -> bytes:
    """Words, links and data of *response*, as those of duplicates are compared; empty if it is no page of HTML."""
    if not isinstance(response, HtmlResponse) or b"\0" in response.body[:_BEGINNING]:
        return b""
    shown, links, data = skim(response.body[:MAX_SKIMMED])
    words, leads = b" ".join(shown.split()), _leads_of(links, data, response.url)
    return b"\n".join((words, leads, response.body[MAX_SKIMMED:]))


def _leads_of(links: list[bytes], data: list[bytes], url: str) -> bytes:
    """Bytes that stand for *links* and *data* of the page at *url*."""
    whole = b"\n".join(links).decode("latin-1").replace('"', "").replace("'", "")
    places = _as_of_site(set(whole.split("\n")), url)
    if any(sign in whole for sign in "?;("):
        places = {_SESSION.sub("", place) for place in places}
    return b"\n".join(
        ["\n".join(sorted(places)).encode("latin-1", "replace"), *(_VOLATILE.sub(b"", each) for each in data)]
    )


def _as_of_site(links: Iterable[str], url: str) -> set[str]:
    """*links*, as they stand in the page at *url*, seen from its site."""
    parts = urlsplit(url)
    host, folder = parts.netloc.removeprefix("www."), parts.path.rpartition("/")[0]
    own = tuple(f"{scheme}//{www}{host}" for scheme in ("http:", "https:", "") for www in ("", "www."))
    found = set()
    for each in links:
        link = each.strip()
        if link[:1] == "/" and link[1:2] != "/":  # most are
            found.add(link)
        elif link.startswith(own):
            found.add(link[link.index(host) + len(host) :] or "/")
        elif link.startswith(_WHOLE):
            found.add(link)
        elif link and not link.startswith(_NO_LINKS):
            found.add(f"{folder}/{link}" if link[0] != "?" else parts.path + link)
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
        for link in _links_in_head(root_of(response)):
            if "canonical" in link.get("rel").lower().split():
                yield True, link.get("href").strip()
