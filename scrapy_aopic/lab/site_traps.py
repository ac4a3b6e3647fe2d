"""Endless parts that real sites have: what the pages of each link to, by their paths.

A page of a trap is its path, and a real page its number. A function gets the path of a page, the number of the home page, and
what gives the links of a real page to pages of the same host; it returns links.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

Links = Callable[[str, int, Callable[[int], list[int]]], Sequence[str | int]]

FILTERS, VALUES = 6, 6
"""Of facets: each page chooses a value of each filter."""

DIFFS = 30
"""Diffs of the history of a page."""

_SECTIONS = ("about", "blog", "contact", "events", "help", "legal", "news", "press", "shop", "team")
_SORTS = ("date", "name", "price", "size", "votes")


def _numbers(path: str) -> list[int]:
    return list(map(int, re.findall(r"\d+", path)))


def _facets(path: str, home: int, _: object) -> list[str | int]:
    """All pages that differ in the value of one filter."""
    chosen = _numbers(path)
    others = [
        [*chosen[:number], value, *chosen[number + 1 :]]
        for number in range(FILTERS)
        for value in range(VALUES)
        if value != chosen[number]
    ]
    return [home, *(_facet(each) for each in others)]


def _facet(values: Sequence[int]) -> str:
    return "/shop?" + "&".join(f"{chr(97 + number)}={value}" for number, value in enumerate(values))


def _history(path: str, _: int, __: object) -> list[str | int]:
    """All other diffs of the same real page, and that page."""
    page, own = _numbers(path)
    return [page, *(f"/index.php?title={page}&diff={each}" for each in range(DIFFS) if each != own)]


def _calendar(path: str, home: int, _: object) -> list[str | int]:
    """The months and years around a month, and its days; of a day the month, and the days around it."""
    year, month, *days = _numbers(path)

    def at(months: int) -> str:
        return f"/calendar/{year + (month - 1 + months) // 12}/{(month - 1 + months) % 12 + 1}/"

    if days:
        return [home, at(0), *(f"{at(0)}{each}" for each in (days[0] - 1, days[0] + 1) if 0 < each < 29)]
    return [home, *map(at, (-12, -1, 1, 12)), *(f"{at(0)}{each}" for each in range(1, 29))]


def _session(path: str, _: int, own: Callable[[int], list[int]]) -> list[str | int]:
    """The links of a real page, under a session that no other page has."""
    session, page = _numbers(path)
    new = (session * 1_000_003 + page + 1) % (1 << 40)
    return [f"/s{new}/p{each}" for each in own(page)]


def _soft404(path: str, home: int, _: object) -> list[str | int]:
    """The sections of the site, relative to a page that is not there."""
    return [home, *(f"{path}{each}/" for each in _SECTIONS)]


def _mirror(path: str, _: int, own: Callable[[int], list[int]]) -> list[str | int]:
    """The links of a real page, in the mirror."""
    return [f"/mirror/p{each}" for each in own(_numbers(path)[0])]


def _paging(path: str, home: int, _: object) -> list[str | int]:
    """The pages around one of a list, the first one, and the same in other orders."""
    number, sort = _numbers(path)[0], path.rpartition("=")[2]
    near = [each for each in range(number - 3, number + 4) if each > 0 and each != number]
    return [
        home,
        *(f"/list?page={each}&sort={sort}" for each in (1, *near)),
        *(f"/list?page={number}&sort={each}" for each in _SORTS if each != sort),
    ]


SITE_TRAPS: dict[str, tuple[Links, str]] = {
    "facets": (_facets, _facet([0] * FILTERS)),
    "history": (_history, "/index.php?title={0}&diff=0"),
    "calendar": (_calendar, "/calendar/2024/3/"),
    "session": (_session, "/s1/p{0}"),
    "soft404": (_soft404, "/no-such-page/"),
    "mirror": (_mirror, "/mirror/p{0}"),
    "paging": (_paging, "/list?page=1&sort=date"),
}
"""What each kind links to, and where it begins: with ``{0}``, at a page of its own for each page that leads there."""

EVERYWHERE = ("history",)
"""Kinds to which all real pages of their host link."""

COPIES = ("session", "mirror")
"""Kinds whose pages are copies of the real pages with the numbers behind ``/p``."""
