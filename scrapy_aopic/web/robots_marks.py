"""What a page asks of robots: ``X-Robots-Tag`` headers, and ``<meta name="robots">`` or the name of one's own robot.

1. A mark for one's own robot comes before those for all robots, separately for indexing and for following links: after
   ``robots: noindex, nofollow`` and ``ourbot: follow`` the page is not indexed, and its links are followed. What the own
   mark leaves open is as the others say, so ``robots: nofollow`` and ``ourbot: noindex`` add up, as with Google.
2. Among marks of the same rank, wherever they stand, the strictest counts.
3. A date of ``unavailable_after`` that has passed is ``noindex``; one that cannot be read means nothing.
4. ``meta`` elements count up to the beginning of the body: whoever writes a comment writes no mark.
5. A page without marks costs a look at the names of its headers and a search in the bytes of its head; a head that may
   have marks is parsed, without a tree and in linear time.

Sources: https://developers.google.com/search/docs/crawling-indexing/robots-meta-tag, and
https://developer.mozilla.org/docs/Web/HTTP/Reference/Headers/X-Robots-Tag for a robot's name in the middle of a list.
Google adds up all negative rules, so that a mark for one's own robot cannot lift one for all robots; Bing and Yandex let it.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from scrapy.http import HtmlResponse, Response

from scrapy_aopic.core.printable import printable

from .http_dates import read_date
from .parse_limits import attributes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scrapy.http.headers import Headers

Rules: TypeAlias = dict[str, str]
"""Rules of a page by name, such as ``noindex``, with their values, such as that of ``max-snippet``; ``""`` for none."""

EVERY_ROBOT = ("robots", "*")
"""Names that mean all robots."""

MOST_RULES = 32
"""Rules of a page that are kept; there are some fifteen."""

LONGEST_HEAD = 500_000
"""Bytes of a page in which marks are looked for, which takes 0.1 s at most."""

_MOST_METAS = 1000
"""``meta`` elements that are looked at."""

_LONGEST = 4096
"""Characters of a mark that are read."""

_LONGEST_VALUE = 100
"""Characters of a value that are kept; a date has some thirty."""

_VALUED = frozenset(("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"))
"""Rules that have a value after a colon; another word before a colon is the name of a robot."""

_NAMED = re.compile(r"\s*([\w.*/-]+)\s*:(.*)", re.DOTALL)
_DAYS = frozenset(("mon", "tue", "wed", "thu", "fri", "sat", "sun"))
_WORD = re.compile(r"[a-z][a-z_-]{1,39}")
_PRODUCT = re.compile(r"(?:.*?\bcompatible;\s*)?([\w-]+)", re.DOTALL)
_BEGINNING = 200
"""Bytes of a page among which a zero means that each character has more than one."""


@lru_cache(64)
def robot_name(user_agent: str | bytes | None) -> str:
    """Name of the robot with *user_agent*, in lower case: its first product, or the one after ``compatible;``.

    ``""`` if it has none, as where a download handler sends that of a browser.
    """
    text = user_agent.decode("latin-1") if isinstance(user_agent, bytes) else user_agent or ""
    found = _PRODUCT.match(text.strip())
    return found[1].lower() if found is not None else ""


def read_marks(headers: Headers, metas: Iterable[tuple[str, str]], robot: str, now: float) -> Rules:
    """What a response asks of the robot called *robot*; empty if it asks nothing.

    Args:
        metas: Names and contents of its meta elements.
        robot: As :func:`robot_name` gives it.
        now: Seconds since the epoch.
    """
    own: Rules = {}
    general: Rules = {}
    by_name = {robot: own, **dict.fromkeys(EVERY_ROBOT, general)}
    if "X-Robots-Tag" in headers:
        for value in headers.getlist("X-Robots-Tag"):
            _read_header(_cut(value.decode("latin-1")), by_name, now)
    for name, content in metas:
        if (rules := by_name.get(name)) is not None:
            _read_list(_cut(content).split(","), rules, now)
    return _resolve(own, general) if own or general else own


def _cut(text: str) -> str:
    """*text* without what begins beyond its bound."""
    return text if len(text) <= _LONGEST else text[:_LONGEST].rpartition(",")[0]


def _resolve(own: Rules, general: Rules) -> Rules:
    """What is asked, by the marks for one's *own* robot and by those for all."""
    rules = {**general, **own}
    for no, yes in (("noindex", "index"), ("nofollow", "follow")):
        if no not in own and yes in own:
            rules.pop(no, None)
        rules.pop(yes, None)
    return rules


def _read_header(text: str, by_name: dict[str, Rules], now: float) -> None:
    """Add the rules of a header to those of the robots in *by_name* that it names: all, before the first name."""
    rules: Rules | None = by_name["*"]
    pieces: list[str] = []
    for piece in text.split(","):
        named = _NAMED.match(piece)
        if named is not None and named[1].lower() not in _VALUED:
            _read_list(pieces, rules, now)
            rules, pieces = by_name.get(named[1].lower()), [named[2]]
        else:
            pieces.append(piece)
    _read_list(pieces, rules, now)


def _read_list(pieces: list[str], rules: Rules | None, now: float) -> None:
    """Add the rules in *pieces*, which stood between commas, to *rules*; ``None`` for those of another robot."""
    rest = iter(pieces if rules is not None else ())
    for piece in rest:
        assert rules is not None
        named = _NAMED.match(piece)
        if named is None:  # some write blanks or semicolons instead of commas
            for word in piece.lower().replace(";", " ").split():
                if _WORD.fullmatch(word):
                    _add(rules, word)
        elif (name := named[1].lower()) == "unavailable_after":
            text = named[2].strip()
            if text[:3].lower() in _DAYS and text.isalpha():  # as in RFC 822 and RFC 850
                text = f"{text},{next(rest, '')}"
            if (instant := _instant(text)) is not None:
                _add(rules, name, text)
                if instant <= now:
                    _add(rules, "noindex")
        elif name in _VALUED:
            _add(rules, name, named[2].strip().lower())


def _add(rules: Rules, word: str, value: str = "") -> None:
    for each in {"none": ("noindex", "nofollow"), "all": ("index", "follow")}.get(word, (word,)):
        if len(rules) < MOST_RULES or each in {"noindex", "nofollow"}:
            rules[each] = printable(value)[:_LONGEST_VALUE]


def _instant(text: str) -> float | None:
    """Seconds since the epoch at the date in *text*, as in mail, in HTTP or in ISO 8601; ``None`` if it is none."""
    instant = read_date(text.encode("latin-1", "replace"))
    if instant is not None:
        return instant
    try:
        date = datetime.fromisoformat(text.upper().replace("Z", "+00:00"))
        return (date if date.tzinfo is not None else date.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None


def joined(rules: Mapping[str, str]) -> str:
    """*rules*, or whatever else has values by name, as one text, such as ``noindex, max-snippet=50``."""
    return ", ".join(f"{name}={value}" if value else name for name, value in sorted(rules.items()))


# -- meta elements


def metas_of(response: Response, names: Iterable[str]) -> list[tuple[str, str]]:
    """Name in lower case and content of the ``meta`` elements in the head of *response* that have one of *names*."""
    if not isinstance(response, HtmlResponse):
        return []
    html = response.body
    is_ascii = b"\0" not in html[:_BEGINNING]  # else it is UTF-16 or UTF-32
    head = _head_of(html if is_ascii else in_utf8(response, html))
    lower = head.lower()
    wanted = {name for name in names if name and name.encode() in lower}
    if not wanted:
        return []
    metas = attributes_of(in_utf8(response, head) if is_ascii else head, "meta")
    pairs = (
        (each.get("name", "").strip().lower(), each.get("content")) for each in islice(metas, _MOST_METAS)
    )
    return [(name, content) for name, content in pairs if content and name in wanted]


def _head_of(html: bytes) -> bytes:
    """What stands in *html* before its body, but no more than :data:`LONGEST_HEAD`."""
    for tag in (b"<body", b"<BODY"):
        if (end := html.find(tag, 0, LONGEST_HEAD)) >= 0:
            return html[:end]
    return html[:LONGEST_HEAD]


def in_utf8(response: HtmlResponse, data: bytes) -> bytes:
    """*data*, of the body of *response*, in another charset."""
    try:
        text = data.decode(response.encoding, "replace")
    except (LookupError, ValueError):
        # Its charset does not exist; marks are ASCII, and so are most charsets as far as that.
        text = data.decode("latin-1")
    return text.replace("\0", "").encode("utf-8", "replace")
