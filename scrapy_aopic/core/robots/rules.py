"""The rules of a robots.txt for one user agent, by RFC 9309, in time and memory linear in its bytes.

1. A group begins with user agents, and goes on until the first user agent after a rule; anything else between them, such
   as a crawl delay, does not end it. Groups of the same user agent are merged.
2. The group that counts is that of the longest name that the user agent of the crawl contains, from the beginning of a
   word; if it contains none, that of ``*``.
3. Rules and URLs are compared in one form: characters that need not be escaped are not, all others are. The longest rule
   that matches counts; of two of the same length, the one that allows.
4. Rules without wildcards are looked up by their text, however many there are. Those with wildcards are tried one by one,
   so :data:`WILDCARDS` bounds them. Beyond it, rules that forbid are cut at their first wildcard and rules that allow are
   left out: everything that the file forbids stays forbidden, and more.

A robots.txt may have been written to be expensive. So only the rules for one user agent are kept, each of them once,
and a text is read in steps between which other work can be done.

5. ``Content-Usage`` rules are the update of RFC 9309 in draft-ietf-aipref-attach-05: a path, if there is one, and what is
   stated for it. The longest path that matches counts, and all rules with that path.

Sources: RFC 9309; https://developers.google.com/crawling/docs/robots-txt/robots-txt-spec for what it leaves open (the
length of a rule as its weight, ``index.html``); Protego for the misspellings that are understood.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator
from itertools import product
from typing import NamedTuple, TypeVar

T = TypeVar("T")

_BYTE_ORDER_MARK = "\ufeff".encode()

WILDCARDS = 65_536
"""Bytes of the rules with wildcards that are kept whole, each counted with 32 more: some 1,300 rules of 16 bytes. Of
4,231 real files the one with the most has 574, of 24,306 bytes, which counts 42,674."""

PER_RULE = 32
"""Bytes that a rule counts in addition to its own, so that many short ones are bounded, too."""

LONGEST_RULE = 16_664
"""Bytes of a rule that are read: eight times the longest URL of some browsers, 2,083, as in Google's parser."""

_STEP = 16_384
"""Bytes that are read in a step: five milliseconds of the most expensive."""

_LONGEST_NUMBER = 32
"""Bytes of a crawl delay that is read; no number of seconds needs more."""

_NO_BREAK_SPACE = b"\xc2\xa0"
"""In UTF-8, and its second byte alone in Latin-1."""

_AGENT_NAME = rb"user[- ]?agent"
_VALUE = rb"(?=[ \t:#\n]|\Z)[ \t]*:?[ \t]*([^\n#]*)"
_AGENT_LINE = re.compile(rb"^[ \t]*" + _AGENT_NAME + _VALUE, re.IGNORECASE | re.MULTILINE)
_LINE = re.compile(
    rb"^[ \t]*("
    + _AGENT_NAME
    + rb"|allow|diss?all?ow|diasllow|disallaw|crawl[- ]delay|content-usage)"
    + _VALUE,
    re.IGNORECASE | re.MULTILINE,
)

# Texts are Latin-1 here, a character for each byte.
_PLAIN = re.compile(r"[A-Za-z0-9_.~/=*-]*").fullmatch
_IN_RULES = re.compile(r"%[0-9A-Fa-f]{2}|[^A-Za-z0-9_.~/=%*-]")
_IN_URLS = re.compile(r"%[0-9A-Fa-f]{2}|[^A-Za-z0-9_.~/=%-]")
_UNESCAPED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.~=-")
_FORMS = {
    spelt: chr(code) if spelt[0] == "%" and chr(code) in _UNESCAPED else f"%{code:02X}"
    for code in range(256)
    for spelt in (chr(code), *map("".join, product("%", *zip(f"{code:02X}", f"{code:02x}", strict=True))))
    if spelt != "%"
}
"""The one form of each escape, and of each character that must be escaped."""

_STARS = re.compile(r"\*+")
_PATH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*([^#]*)").match
_ITSELF = "/robots.txt"
_INDEX = ("/index.html", "/index.htm")


class Pattern(NamedTuple):
    """What the path of a rule matches; it may have wildcards.

    Attributes:
        rank: Twice its length, and one more if it allows; of two rules, the one with the higher rank counts.
        pieces: What is between its wildcards.
        is_whole: Whether it must match up to the end.
    """

    rank: int
    pieces: list[str]
    is_whole: bool

    def fits(self, path: str) -> bool:
        """Whether it matches *path*. Each piece is searched for once, after the one before, so it takes linear time."""
        first, last = self.pieces[0], self.pieces[-1]
        if not path.startswith(first):
            return False
        if len(self.pieces) == 1:
            return not self.is_whole or path == first
        at = len(first)
        for piece in self.pieces[1:-1]:
            found = path.find(piece, at)
            if found < 0:
                return False
            at = found + len(piece)
        if self.is_whole:
            return len(path) - at >= len(last) and path.endswith(last)
        return path.find(last, at) >= 0


class AgentRules:
    """The rules for one user agent.

    Attributes:
        crawl_delay: Seconds; ``None`` if there is none.
        n_cut: Number of rules with wildcards, or on the use of content, that were cut or left out, as too many or too long.
    """

    __slots__ = ("_budget", "_lengths", "_parts", "_usages", "_wholes", "_wildcards", "crawl_delay", "n_cut")

    def __init__(self) -> None:
        self.crawl_delay: float | None = None
        self.n_cut = 0
        self._parts: dict[str, int] = {}  # ranks by the beginning of a path
        self._wholes: dict[str, int] = {}  # and by all of it
        self._wildcards: list[Pattern] = []
        self._usages: list[tuple[Pattern, bytes]] = []
        self._lengths: list[int] = []
        self._budget = WILDCARDS

    def allow(self, path: str) -> bool:
        """Whether *path*, as :func:`path_of` gives it, is allowed."""
        if path == _ITSELF or path.startswith(f"{_ITSELF}%3F"):
            return True
        best = max(1, self._wholes.get(path, 0))
        for length in self._lengths:
            if length > len(path):
                break
            best = max(best, self._parts.get(path[:length], 0))
        for wildcard in self._wildcards:
            if wildcard.rank <= best:
                break
            if wildcard.fits(path):
                return bool(wildcard.rank & 1)
        return bool(best & 1)

    def usage(self, url: str) -> list[bytes]:
        """What is stated on the use of the content at *url*."""
        if not self._usages:  # as in most files
            return []
        path = path_of(url)
        rank, found = -1, []
        for wildcard, statement in self._usages:
            if wildcard.rank < rank:
                break
            if wildcard.fits(path):
                rank = wildcard.rank
                found.append(statement)
        return found

    def add_usage(self, value: bytes) -> None:
        """Take up the rule on the use of content that is written as *value*."""
        path, statement = b"", value.strip()
        if statement.startswith(b"/"):
            path, _, statement = statement.replace(b"\t", b" ").partition(b" ")
        cost = len(path) + len(statement) + PER_RULE
        if cost > self._budget:
            self.n_cut += 1
            return
        self._budget -= cost
        self._usages.append((pattern_of(path.decode("latin-1")), statement.strip()))

    def add(self, value: bytes, *, allows: bool) -> None:
        """Take up the rule written as *value*."""
        pattern = value[:LONGEST_RULE].decode("latin-1")
        if pattern.startswith(("http://", "https://")):
            pattern = f"/{pattern}"
        if pattern[:1] not in ("/", "*"):
            return  # a path is nothing else
        if len(value) > LONGEST_RULE:
            self.n_cut += 1
            if not allows:
                # Not through an escape, and as the heaviest: what is left out could make it no heavier than that.
                self._keep(self._parts, _form(pattern.rpartition("%")[0] or pattern), 6 * len(value))
            return
        is_whole = pattern.endswith("$")
        pattern = _form(pattern.removesuffix("$"))
        self._put(pattern, allows=allows, is_whole=is_whole)
        if allows and not is_whole and pattern.endswith(_INDEX):
            self._put(pattern[: pattern.rindex("/") + 1], allows=True, is_whole=True)

    def _put(self, pattern: str, *, allows: bool, is_whole: bool) -> None:
        rank = 2 * (len(pattern) + is_whole) + allows
        if not is_whole:
            pattern = pattern.rstrip("*")
        if "*" not in pattern:
            self._keep(self._wholes if is_whole else self._parts, pattern, rank)
            return
        cost = len(pattern) + PER_RULE
        if cost <= self._budget:
            self._budget -= cost
            self._wildcards.append(Pattern(rank, _STARS.split(pattern), is_whole))
            return
        self.n_cut += 1
        if not allows:
            self._keep(self._parts, pattern, rank)

    @staticmethod
    def _keep(kept: dict[str, int], pattern: str, rank: int) -> None:
        pattern = pattern.partition("*")[0]
        if kept.get(pattern, 0) < rank:
            kept[pattern] = rank

    def finish(self) -> None:
        """All rules are there."""
        self._lengths = sorted(set(map(len, self._parts)))
        self._wildcards.sort(key=lambda wildcard: wildcard.rank, reverse=True)
        self._usages.sort(key=lambda usage: usage[0].rank, reverse=True)


def path_of(url: str) -> str:
    """The part of *url* that rules are about, path and query, in the form in which they are compared."""
    match = _PATH(url)
    path = url.partition("#")[0] if match is None else match[1]
    if not path.startswith("/"):
        path = f"/{path}"
    if not path.isascii():
        path = path.encode("utf-8", "surrogatepass").decode("latin-1")
    return _IN_URLS.sub(_normal, path)


def pattern_of(path: str) -> Pattern:
    """What the *path* of a rule matches, of which each character is a byte."""
    is_whole = path.endswith("$")
    pattern = _form(path.removesuffix("$"))
    pieces = _STARS.split(pattern if is_whole else pattern.rstrip("*"))
    return Pattern(2 * (len(pattern) + is_whole), pieces, is_whole)


def finish(steps: Generator[None, None, T]) -> T:
    """The result of *steps*, all of which are done at once."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result


def lines_of(text: bytes) -> bytes:
    """*text* with one kind of line end and no byte order mark, as the functions below want it."""
    return text.removeprefix(_BYTE_ORDER_MARK).replace(b"\r", b"\n")


def find_group(text: bytes, user_agent: str) -> Generator[None, None, str]:
    """Name of the user agent whose group in *text* is for *user_agent*; ``""`` if there is none. In steps."""
    agent = user_agent.lower()
    best = ""
    at = 0
    for match in _AGENT_LINE.finditer(text):
        if match.start() - at > _STEP:
            at = match.start()
            yield
        name = _name(match[1])
        if name == "*":
            best = best or name
        elif len(name) > (0 if best == "*" else len(best)) and _has_name(agent, name):
            best = name
    return best


def read_rules(text: bytes, name: str) -> Generator[None, None, AgentRules]:
    """The rules in *text* of the groups of the user agent called *name*, as :func:`find_group` gives it. In steps."""
    rules = AgentRules()
    is_named = has_rule = False
    at = 0
    for match in _LINE.finditer(text if name else b""):
        if match.start() - at > _STEP:
            at = match.start()
            yield
        kind, value = match.groups()
        first = kind[:1].lower()
        if first == b"u":
            if has_rule:
                is_named = has_rule = False
            is_named = is_named or _name(value) == name
        elif kind[:2].lower() == b"cr":
            if is_named:
                rules.crawl_delay = _seconds(value, rules.crawl_delay)
        elif first == b"c":
            has_rule = True
            if is_named:
                rules.add_usage(value)
        else:
            has_rule = True
            if is_named and (value := value.strip().lstrip(_NO_BREAK_SPACE)):
                rules.add(value, allows=first == b"a")
    rules.finish()
    return rules


def _normal(match: re.Match[str]) -> str:
    return _FORMS[match[0]]


def _form(pattern: str) -> str:
    """*pattern* as it is compared."""
    return pattern if _PLAIN(pattern) else _IN_RULES.sub(_normal, pattern)


def _name(value: bytes) -> str:
    """Name of a user agent; wildcards that are only a part of it mean nothing."""
    name = value.strip().lower().decode("utf-8", "ignore")
    return name if name == "*" else name.replace("*", "")


def _has_name(agent: str, name: str) -> bool:
    """Whether *name* is in *agent*, from the beginning of a word."""
    at = agent.find(name)
    while at > 0 and (agent[at - 1].isalnum() or agent[at - 1] in "-_"):
        at = agent.find(name, at + 1)
    return at >= 0


def _seconds(value: bytes, otherwise: float | None) -> float | None:
    """The crawl delay in *value*; *otherwise* if it is not valid."""
    if len(value) > _LONGEST_NUMBER:
        return otherwise
    try:
        seconds = float(value)
    except ValueError:
        return otherwise
    return seconds if 0 <= seconds < math.inf else otherwise
