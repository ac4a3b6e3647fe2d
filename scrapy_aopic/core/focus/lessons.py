"""Lessons by which the processes of one crawl learn from each other's pages.

A *lesson* is a page that was fetched and graded, with its lead: all that a strategy learns from. So each process has a
strategy of its own, of any kind, that knows nearly the same, and nothing is lost with a process. Averaging weights
(McDonald, Hall and Mann, NAACL 2010) would need a merging rule for each strategy, and a megabyte at each exchange.

Rule 1: lessons are data from outside: :func:`read_lessons` checks them, in time in proportion to their bytes.

Rule 2: for each page of its own, a process gets at most :data:`OTHERS` pages of others, drawn at random, so that learning
costs the same however many processes there are.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Annotated, NamedTuple, TypeAlias

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import astuple

from scrapy_aopic.core.records import NO_RECORD, PAGE_BYTES, pack, unpack

from .harvest_results import Degrees
from .leads import bounded, whole_text
from .strategy import MOST_OF_MEMO, PageSeen
from .topic import LinkText

OTHERS = 2
"""Pages of other processes that one learns from, for each of its own: each costs a third of a millisecond."""

MOST_LESSONS = 64
"""Most lessons that are sent at once."""

MOST_GRADES = 10_000
"""Most grades that are sent at once."""

_URL_CHARACTERS = 200
_TEXT_CHARACTERS = 4_000
"""Characters of a page's URL, and of its text for a strategy that reads it: some 600 words say which topic it has."""

_MOST_OF_DEGREE = 100.0
"""More than the binary logarithm of any number of words."""

_MOST_BYTES = 2 << 20
"""Most bytes of lessons, unpacked: more than :data:`MOST_LESSONS` take with the longest texts at four bytes a character."""


class Lessons(NamedTuple):
    """A message of a process to the others.

    Attributes:
        teacher: The process that sends it.
        topic: The number of its topic (:attr:`.topic.Topic.sign`).
        grades: Whether each page that it has graded is relevant, oldest first.
        pages: Pages to learn from.
    """

    teacher: str
    topic: int
    grades: Sequence[bool]
    pages: Sequence[PageSeen]


_Grades: TypeAlias = Annotated[bytes, Meta(max_length=MOST_GRADES)]
_Part: TypeAlias = Annotated[float, Meta(ge=0.0, le=1.0)]
_Degree: TypeAlias = Annotated[float, Meta(gt=-_MOST_OF_DEGREE, lt=_MOST_OF_DEGREE)]


class _Told(Struct, array_like=True, gc=False):
    """A page as it is told, with the fields of :class:`.strategy.PageSeen`."""

    url: str
    grade: _Part
    value: _Part
    is_relevant: bool
    key: Annotated[bytes, Meta(min_length=PAGE_BYTES, max_length=PAGE_BYTES)]
    parent: bytes
    link: tuple[str, str, str, str] | None
    depth: Annotated[int, Meta(ge=0)]
    parent_grade: _Part
    text: str
    memo: Annotated[bytes, Meta(max_length=MOST_OF_MEMO)]
    degrees: tuple[_Degree, _Degree, _Degree] | None = None


def part_told(n_processes: int) -> float:
    """Part of its pages that each of *n_processes* tells the others of."""
    return min(OTHERS / (n_processes - 1), 1.0) if n_processes > 1 else 1.0


def write_lessons(lessons: Lessons) -> bytes:
    """*lessons* as bytes."""
    pages = [_packed(page) for page in lessons.pages[:MOST_LESSONS]]
    return zlib.compress(
        pack((lessons.teacher, lessons.topic, bytes(lessons.grades[-MOST_GRADES:]), pages)), 1
    )


def read_lessons(data: bytes) -> Lessons | None:
    """The lessons written as *data*, without those that cannot be understood; ``None`` if nothing can be."""
    try:
        inflater = zlib.decompressobj()
        plain = inflater.decompress(data, _MOST_BYTES)
        teacher, topic, grades, pages = convert(
            unpack(plain), tuple[str, int, _Grades, list[object]], builtin_types=(bytes,)
        )
        if not inflater.eof:
            return None
        read = map(_unpacked, pages[:MOST_LESSONS])
        return Lessons(teacher, topic, [*map(bool, grades)], [page for page in read if page])
    except (zlib.error, *NO_RECORD):
        return None


def _packed(page: PageSeen) -> PageSeen:
    link = LinkText(*map(whole_text, bounded(page.link))) if page.link is not None else None
    url, text = page.url[:_URL_CHARACTERS], page.text[:_TEXT_CHARACTERS]
    return page._replace(url=whole_text(url), link=link, text=whole_text(text))


def _unpacked(said: object) -> PageSeen | None:
    """The page that *said* describes; ``None`` if it is not valid."""
    try:
        row = convert(said, _Told, builtin_types=(bytes,))
    except ValidationError:
        return None
    if row.parent and len(row.parent) != PAGE_BYTES:
        return None
    return PageSeen(*astuple(row))._replace(
        link=bounded(LinkText(*row.link)) if row.link is not None else None,
        text=row.text[:_TEXT_CHARACTERS],
        degrees=Degrees(*row.degrees) if row.degrees is not None else None,
    )
