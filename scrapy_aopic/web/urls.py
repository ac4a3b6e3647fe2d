"""URLs in normal form, and the reason why one is not worth a place in the queue.

Parsing, host names and serialisation are those of the URL Standard (``ada_url``); the rest are the rules of
:mod:`.url_rules`. Nothing here raises, whatever the text: a URL that cannot be used is a value with a reason, too.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from ada_url import normalize_url

from .url_rules import BROAD_RULES, RULES, Default, Part, Rule, in_one_form, is_drawn, is_long

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .networks import Networks
    from .scope import Scope

    Test = tuple[str, int, Callable[[str], bool]]
    """A fault to look for: the reason that it is, the number of the part that it may be in, and whether it is in it."""

# What ada_url makes of an http URL; each part has its punctuation, so that a URL is their concatenation.
_HREF = re.compile(r"(https?://)([^/?#@]*@)?(\[[^\]]*\]|[^/?#:]*)(:[0-9]+)?(/[^?#]*)(\?[^#]*)?(#.*)?")

PORT = "(?:[1-5][0-9]{4}|[1-9][0-9]{0,3}|6(?:[0-4][0-9]{3}|5(?:[0-4][0-9]{2}|5(?:[0-2][0-9]|3[0-5]))))"
"""A port from 1 to 65,535, in the form that all its other forms come to."""

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IN_PATH = "[A-Za-z0-9_.~!$&'()*+,=:@/-]*"

# What nearly all URLs look like, with the same groups: nothing in them has another form by the URL Standard, but for dot
# segments and what may be wrong Punycode, and :mod:`.url_keys` knows what w3lib makes of them. A host whose last label begins
# with a digit may be a number. Left out is ";", which w3lib and its versions treat in ways of their own, and of escapes in paths
# those that its versions treat differently (of "%" and ";") or that may be dots.
_PLAIN = re.compile(
    rf"(https?://)()((?:[a-z0-9_][a-z0-9_-]*\.)*[a-z_][a-z0-9_-]*|{_OCTET}(?:\.{_OCTET}){{3}})(:(?!80/|443/){PORT})?"
    rf"(/{_IN_PATH}(?:%(?!2[5Ee]|3[Bb])[0-9A-Fa-f]{{2}}{_IN_PATH})*)(\?[!$%&(-:=?-~]*)?(#[!#-;=?-_a-~]*)?"
)

# Of these those that no rule changes but one that drops parameters, or sorts them: no port, escape, dot or session in the path.
_BARE = re.compile(
    r"(https?://(?!(?:[^/]*\.)?xn--))((?:[a-z0-9_][a-z0-9_-]*\.)*[a-z_][a-z0-9_-]*)"
    r"((?:/(?!\.)[A-Za-z0-9_.~!$&')*+,=:@-]*)*)(\?[A-Za-z0-9_.~!$&()*+,=:@/?-]*)?"
)

_DOT_SEGMENT = re.compile(r"[^?#]*?/\.\.?(?:[/?#]|\Z)").match

REMEMBERED = 20_000
"""URLs whose normal form, or page key, is remembered: some 8 MB."""

_LONGEST = 65_536
"""Characters of a URL that is parsed, if they are all ASCII: more than any server takes."""

_LONGEST_OTHER = 4096
"""Characters of a URL that is parsed if they are not: Python's parser takes 0.01 s for the worst."""

SHORT = 500
"""Characters of the longest URL that is remembered."""


class JudgedUrl(NamedTuple):
    """A URL in normal form, or why it is not to be queued.

    Attributes:
        url: Its normal form; the text itself if it has none.
        reason: Why it is not to be queued, in one word; ``""`` if it is.
        host: Name of its host if it is plain, so that :func:`~.url_keys.key_of_plain_url` gives its page key; ``""`` if not.
    """

    url: str
    reason: str = ""
    host: str = ""


_HOST, _PORT, _PATH = int(Part.HOST), int(Part.PORT), int(Part.PATH)


class Normaliser:
    """Gives a URL its normal form, or says why it is not to be queued. Never raises if *rewrite* does not.

    A normal form is its own normal form, and :class:`scrapy.Request` leaves it as it is.

    Args:
        rules: Names of rules (:data:`~scrapy_aopic.web.url_rules.RULES`).
        rewrite: Rule of the user: gets a URL in normal form and returns another one, or ``None`` to refuse it.
        networks: Where the crawl may go; ``None`` for anywhere.
        scope: Which links it follows; ``None`` for all.
        max_length: Longest URL, without its fragment; this limit and the next three do not count if they are 0.
        max_depth: Most segments of the path.
        max_repeats: Most times in a row that a segment, or a cycle of two or three, may come.
        max_parameters: Most parameters of the query.
        extensions: Endings of file names, in lower case and without their dot, that are refused.
        last_year: Last year that calendars are followed into; ``None`` for any.
    """

    def __init__(
        self,
        rules: Iterable[str] = BROAD_RULES,
        *,
        rewrite: Callable[[str], str | None] | None = None,
        networks: Networks | None = None,
        scope: Scope | None = None,
        max_length: int = 2083,
        max_depth: int = 20,
        max_repeats: int = 3,
        max_parameters: int = 20,
        extensions: frozenset[str] = frozenset(),
        last_year: int | None = None,
    ) -> None:
        limits = {
            "networks": networks,
            "scope": scope,
            "max_length": max_length,
            "max_depth": max_depth,
            "max_repeats": max_repeats,
            "max_parameters": max_parameters,
            "extensions": extensions,
            "last_year": last_year,
        }
        self._rewrite = rewrite
        self._max_length = max_length
        self._path_changes: list[Callable[[str], str]] = []
        self._cuts: list[Callable[[str], str]] = []
        self._changes: list[tuple[int, Callable[[str], str]]] = []
        self._dropped: frozenset[str] = frozenset()
        self._dropped_starts: tuple[str, ...] = ()
        self._dropped_if_drawn: frozenset[str] = frozenset()
        self._drops_empty = self._drops = False
        self._foreign_tests: list[Test] = []
        self._tests: list[Test] = []
        self._bare_tests: list[Test] = []
        self._of_hosts: list[Callable[[], None]] = []  # forget what is remembered of them
        on = frozenset(rules)
        for rule in RULES:
            if rule.default == Default.LIMIT or rule.name in on:
                self._take_up(rule, limits.get(rule.limit))
        starts = "|".join(map(re.escape, self._dropped_starts))
        self._starts = re.compile(f"[?&](?:{starts})").search if starts else None
        self._names = self._dropped | self._dropped_if_drawn | {""}
        # Most links are to pages that others link to as well.
        self._judged = lru_cache(REMEMBERED)(self.judge)
        self._query_changes = [
            change for part, change in self._changes if part == Part.QUERY and change is not in_one_form
        ]

    def _take_up(self, rule: Rule, limit: object) -> None:
        """Have *rule* in force, with its *limit* if it needs one."""
        for part, change in rule.changes.items():
            if part == Part.PATH:
                self._path_changes.append(change)
            else:
                self._changes.append((int(part), change))
        if rule.cuts is not None:
            self._cuts.append(rule.cuts)
        if rule.drops is not None:
            if not self._drops:  # once, for all rules
                self._drops = True
                self._changes.append((int(Part.QUERY), self._without_dropped))
            self._dropped |= rule.drops.names
            self._dropped_starts += rule.drops.starts
            self._dropped_if_drawn |= rule.drops.drawn
            self._drops_empty |= rule.drops.has_empty
        if rule.limit and not limit:
            return
        for fault in rule.faults:
            is_in = partial(fault.is_in, limit) if rule.limit else fault.is_in
            if fault.part == Part.HOST:
                is_in = remembered = lru_cache(REMEMBERED)(is_in)
                self._of_hosts.append(remembered.cache_clear)
            test = (rule.name, int(fault.part), is_in)
            (self._foreign_tests if fault.part == Part.SCHEME else self._tests).append(test)
            if fault.is_in_bare:
                self._bare_tests.append(test)

    def forget(self) -> None:
        """Forget remembered URLs, because the rules have changed."""
        for forget in (self._judged.cache_clear, *self._of_hosts):
            forget()

    def __call__(self, url: str) -> JudgedUrl:
        """The normal form of *url*, or why it is refused."""
        judge = self._judged if len(url) <= SHORT else self.judge
        judged = judge(url)
        if self._rewrite is None or judged.reason in ("invalid", "scheme"):
            return judged
        rewritten = self._rewrite(judged.url)
        if rewritten is None:
            return JudgedUrl(judged.url, "user")
        return judged if rewritten == judged.url else self.judge(rewritten)

    def judge(self, url: str) -> JudgedUrl:
        """The normal form of *url*, or why it is refused, by all rules but the user's; it is not remembered."""
        # Before anything looks at all of it.
        if 0 < self._max_length < len(url) and is_long(self._max_length, url):
            return JudgedUrl(url, "length")
        if (bare := _BARE.fullmatch(url)) is not None:  # as most are
            scheme, host, path, query = bare.groups("")
            before, path = path + query, path or "/"
            for change in self._query_changes if query else ():
                query = change(query) if query else ""
            if path + query != before:
                url = f"{scheme}{host}{path}{query}"
            texts = ("", "", host, "", path, query, "", url, "")
            for reason, part, is_in in self._bare_tests:
                if (text := texts[part]) and is_in(text):
                    return JudgedUrl(url, reason, host)
            return JudgedUrl(url, "", host)
        parsed = self._parse(url, _PLAIN.fullmatch(url))
        if isinstance(parsed, str):
            return JudgedUrl(url, parsed)
        parts, is_plain = parsed
        for part, change in self._changes:
            if parts[part]:
                parts[part] = change(parts[part])
        url = "".join(parts)
        port, host = parts[_PORT], parts[_HOST]
        parts += (url, host + port if port else "")
        return JudgedUrl(url, _first(self._tests, parts), host if is_plain else "")

    def _parse(self, url: str, match: re.Match[str] | None) -> tuple[list[str], bool] | str:
        """The parts of *url*, which has a *match* if it is plain; its path in normal form, and whether that is plain.

        Or why there are none.
        """
        while True:
            if match is None or "xn--" in url or "/." in url:
                try:
                    href = normalize_url(url)
                except ValueError:
                    return "invalid"
                match = _PLAIN.fullmatch(href) or _HREF.fullmatch(href)
                if match is None:
                    return _first(self._foreign_tests, (f"{href.partition(':')[0]}:",))
            parts = [*match.groups("")]
            path = parts[_PATH]
            if match.re is _PLAIN and "%" not in path and "(" not in path:
                return parts, True  # no rule changes it
            for change in self._path_changes:
                path = change(path)
            parts[_PATH] = path
            for cut in self._cuts:
                parts[_PATH] = cut(parts[_PATH])
            if parts[_PATH] == path:
                return parts, match.re is _PLAIN
            url = "".join(parts)  # may have new dot segments
            match = _PLAIN.fullmatch(url)

    def _without_dropped(self, query: str) -> str:
        """*query*, which begins with its question mark, without the parameters that the rules drop."""
        lower = query.lower()
        # Names and values alike, which takes half as long as to find the names, and is a wrong alarm for few.
        texts = lower[1:].replace("&", "=").split("=")
        if self._names.isdisjoint(texts) and not (self._starts and self._starts(lower)):
            return query  # as most do
        kept = [parameter for parameter in query[1:].split("&") if not self._is_dropped(parameter)]
        return f"?{'&'.join(kept)}" if kept else ""

    def _is_dropped(self, parameter: str) -> bool:
        if not parameter:
            return self._drops_empty
        name, _, value = parameter.partition("=")
        name = name.lower()
        return (
            name in self._dropped
            or name.startswith(self._dropped_starts)
            or (name in self._dropped_if_drawn and is_drawn(value) is not None)
        )


def _first(tests: Sequence[Test], parts: Sequence[str]) -> str:
    """Reason of the first of *tests* that finds its fault; ``""`` if none does."""
    for reason, part, is_in in tests:
        text = parts[part]
        if text and is_in(text):
            return reason
    return ""


def is_parsable(url: str) -> bool:
    """Whether *url*, which a stranger wrote, is short enough for any parser.

    Python brings host names to a normal form (NFKC) whenever it splits a URL, which takes quadratic time for some:
    0.01 s for what is allowed here, and minutes for a megabyte. No longer URL is a page: with its escapes it would be
    longer than any that servers take.
    """
    return len(url) <= (_LONGEST if url.isascii() else _LONGEST_OTHER)


def plain_host(url: str) -> str:
    """Host of *url* if it is plain, so that :func:`~.url_keys.key_of_plain_url` gives its page key; ``""`` if it may be not."""
    plain = _PLAIN.fullmatch(url)
    return "" if plain is None or ("/." in url and _DOT_SEGMENT(url)) else plain[_HOST + 1]
