"""How the owners of content want it to be used: ``Content-Usage`` and ``TDM-Reservation``, as they are said.

1. ``Content-Usage`` states for a use, such as ``train-ai``, that it is wanted (``y``) or not (``n``). A page's header and the
   rule of its robots.txt are statements of their own: if one of several does not want a use, it is not wanted.
2. A statement is a dictionary of structured fields (RFC 9651). An invalid one states nothing, and neither does a value that is
   neither of these tokens.
3. ``TDM-Reservation`` is ``1`` or ``0``; anything else is as if it were not said. The header supersedes the file of the host
   (:mod:`.tdmrep`), a meta element supersedes both, and what is not said changes nothing. ``TDM-Policy`` counts only where
   rights are reserved.
4. Marks for robots such as ``noai`` are in :mod:`.robots_marks`.

Sources: draft-ietf-aipref-vocab-07 and draft-ietf-aipref-attach-05, which are drafts: what they say is read here, and in
:mod:`scrapy_aopic.core.robots.rules` for the paths in a robots.txt. "TDM Reservation Protocol", final report of the W3C
community group, 2024. The package ``http-sf`` reads structured fields; it was not used, as three patterns say which texts
are dictionaries, and of values only two tokens matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from scrapy_aopic.core.printable import printable

if TYPE_CHECKING:
    from scrapy.http.headers import Headers

Usage: TypeAlias = dict[str, str]
"""What is said, by name: ``y`` or ``n`` by use, ``tdm-reservation`` and ``tdm-policy`` as they are."""

USES = ("train-ai", "search")
"""The uses that the draft names."""

TDM = "tdm"
"""The use that ``TDM-Reservation`` is about."""

TDMREP = "tdmrep.json"
"""The file that an origin may have for it."""

RESERVATION, POLICY = "tdm-reservation", "tdm-policy"
"""Names of headers and of meta elements."""

_LONGEST = 4096
"""Bytes of a statement that is read, and characters of a policy's URL that is kept."""

_MOST = 16
"""Uses of one page that are kept; the draft has two."""

_KEY = r"[a-z*][a-z0-9_.*-]*"
_ITEM = (
    r"(?:-?[0-9]{1,15}(?:\.[0-9]{1,3})?"  # a number
    r'|"(?:[ !#-\[\]-~]|\\["\\])*"'
    r"|[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*"  # a token
    r"|:[A-Za-z0-9+/=]*:|\?[01]|@-?[0-9]{1,15}"
    r'|%"(?:[ !#$&-~]|%[0-9a-f]{2})*")'
)
_PARAMETERS = rf"(?:; *{_KEY}(?:={_ITEM})?)*"
_INNER = r"\((?:[^\"()]|\"(?:[^\"\\]|\\.)*\")*\)"  # a list, of which only its end matters
_MEMBER = re.compile(rf"({_KEY})(?:=((?:{_INNER}|{_ITEM})))?{_PARAMETERS}")
_COMMA = re.compile(r"[ \t]*,[ \t]*")


class Stated(NamedTuple):
    """What an origin states on the use of a page.

    Attributes:
        robots_txt: Statements of its robots.txt.
        file: What its ``tdmrep.json`` says, by the names of headers.
    """

    robots_txt: Sequence[bytes] = ()
    file: Mapping[str, str] = {}


NOTHING = Stated()


class Read(NamedTuple):
    """What was read of a response.

    Attributes:
        malformed: What cannot be understood, each after the name of what says it.
    """

    usage: Usage
    malformed: list[str]


def read_usage(headers: Headers, metas: Iterable[tuple[str, str]], stated: Stated = NOTHING) -> Read:
    """How the content of a response may be used.

    Args:
        metas: Names and contents of its meta elements.
        stated: What its origin states.
    """
    usage: Usage = {}
    malformed: list[str] = []
    statements = list(stated.robots_txt)
    if "Content-Usage" in headers:
        statements.append(b", ".join(headers.getlist("Content-Usage")))
    for statement in statements:
        wishes = read_statement(statement)
        if wishes is None:
            malformed.append(f"Content-Usage: {statement[:_LONGEST].decode('latin-1')}")
            continue
        for use, wanted in wishes.items():
            if wanted == "n" or use not in usage:
                usage[use] = wanted
    said: dict[str, str] = {}
    _reserve(said, stated.file, malformed)
    given = {
        name: b", ".join(dict.fromkeys(headers.getlist(name))).decode("latin-1")  # a proxy may say it again
        for name in (RESERVATION, POLICY)
        if name in headers
    }
    _reserve(said, given, malformed)
    _reserve(said, dict(metas), malformed)
    return Read(usage | said, malformed)


def _reserve(said: dict[str, str], given: Mapping[str, str], malformed: list[str]) -> None:
    """Add to what is *said* of text and data mining what is *given* now."""
    reservation = given.get(RESERVATION, "").strip()
    policy = given.get(POLICY, "").strip()
    if reservation in {"0", "1"}:
        said.clear()
        said[RESERVATION] = reservation
    elif RESERVATION in given:
        malformed.append(f"{RESERVATION}: {reservation[:_LONGEST]}")
    if policy and said.get(RESERVATION) == "1":
        said[POLICY] = printable(policy)[:_LONGEST]


def read_statement(statement: bytes) -> Usage | None:
    """``y`` or ``n`` by use, as *statement* says; ``None`` if it is no dictionary of structured fields."""
    text = statement.decode("latin-1").strip(" ")
    stated: Usage = {}
    at = 0
    if len(text) > _LONGEST:
        return None
    while at < len(text):
        member = _MEMBER.match(text, at)
        if member is None:
            return None
        use, value = member.groups()
        stated.pop(use, None)  # the last one counts
        if value in {"y", "n"} and len(stated) < _MOST:
            stated[use] = value
        at = member.end()
        if at == len(text):
            break
        comma = _COMMA.match(text, at)
        if comma is None or comma.end() == len(text):
            return None
        at = comma.end()
    return stated
