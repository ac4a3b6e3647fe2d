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
from typing import NamedTuple

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
        teacher, topic, grades, pages = unpack(plain)
        if not inflater.eof or not isinstance(teacher, str) or len(grades) > MOST_GRADES:
            return None
        read = [_unpacked(page) for page in pages[:MOST_LESSONS]]
        return Lessons(
            teacher, int(topic), [bool(grade) for grade in bytes(grades)], [page for page in read if page]
        )
    except (zlib.error, *NO_RECORD):
        return None


def _packed(page: PageSeen) -> tuple[object, ...]:
    link = tuple(map(whole_text, bounded(page.link))) if page.link is not None else None
    return (
        whole_text(page.url[:_URL_CHARACTERS]),
        page.grade,
        page.value,
        page.is_relevant,
        page.key,
        page.parent,
        link,
        page.depth,
        page.parent_grade,
        whole_text(page.text[:_TEXT_CHARACTERS]),
        page.memo,
        *([page.degrees] if page.degrees is not None else []),
    )


def _unpacked(said: Sequence[object]) -> PageSeen | None:
    """The page that *said* describes; ``None`` if it is not valid."""
    url, grade, value, is_relevant, key, parent, link, depth, parent_grade, text, memo, *further = said
    texts = (*link,) if isinstance(link, list) else ("", "", "", "")
    parts = (grade, value, parent_grade)
    if not (
        all(isinstance(part, float | int) and 0.0 <= part <= 1.0 for part in parts)
        and all(isinstance(each, str) for each in (url, text, *texts))
        and len(texts) == len(LinkText._fields)
        and isinstance(key, bytes)
        and len(key) == PAGE_BYTES
        and isinstance(parent, bytes)
        and len(parent) in (0, PAGE_BYTES)
        and isinstance(depth, int)
        and depth >= 0
        and isinstance(memo, bytes)
        and len(memo) <= MOST_OF_MEMO
    ):
        return None
    return PageSeen(
        str(url),
        float(grade),  # type: ignore[arg-type]  # as was checked
        float(value),  # type: ignore[arg-type]
        bool(is_relevant),
        key,
        parent,
        bounded(LinkText(*map(str, texts))) if link is not None else None,
        depth,
        float(parent_grade),  # type: ignore[arg-type]
        str(text)[:_TEXT_CHARACTERS],
        memo=memo,
        degrees=_degrees(further[0]) if further else None,
    )


def _degrees(found: object) -> Degrees | None:
    """The degrees written as *found*; ``None`` if they cannot be right."""
    if not isinstance(found, list | tuple) or len(found) != len(Degrees._fields):
        return None
    return (
        Degrees(*found)
        if all(isinstance(each, float) and abs(each) < _MOST_OF_DEGREE for each in found)
        else None
    )
