"""How large each branch of a host is: what bounds an endless tree on a real host, and facets or a calendar.

A *branch* is what lies behind a page, its *head*, by links each of which is the only one that is known. A page is found by
one link of its host, and is in the branch of the page with this link until a page of another branch, or of another host,
links to it. At its visit it becomes the head of a branch of its own if two links or more are known to it, or if it is in
none; else what it links to is in its own branch, too.

Pages of one make, whose URLs :attr:`.policy.Policy.group_of` says are the same but for numbers and queries, are a *group*. What a
page links to of its own group is in the branch of the group, however many pages of the group link to it: the filters of a shop,
the months of a calendar and the diffs of a wiki all lead to each other. The first of them is not if the page is in another branch
by its only link: under ever new sessions each page leads to one more copy of itself, and would begin a branch each time. What else
they lead to is a branch of its own. What waits of
a crowded group waits lower even if it was found from elsewhere, unless the crawl entered its host there. The pages of a trap have one
link each, so all of it is one branch; most pages of a real host are linked from elsewhere, too.

Pages of a branch are counted as they are fetched, and those of a group as its pages show them: a shop has shown thousands of its
filters before a hundred are fetched. The branch is *crowded* once that is a hundredth of the fetched pages of its host, and
:attr:`.order.Order.branch_pages`; for each of its pages that got a link from elsewhere while it waited, and each new page of another
make that a group has shown, that is a fiftieth more, as nothing links into a trap, and it leads to nothing else. What waits of a
crowded branch waits :data:`QUEUES` front queues lower (:meth:`.pages.Pages.lower`, :meth:`.pages.Pages.pay`), and
:data:`_DOUBLED` more each time that the branch has twice as many pages as that: so real branches come before a trap, which never ends.

Rule 1: a branch has a row from the first page of it that is counted. Nothing supports it before, and pages of other branches that
link to it later are counted only as long as its pages wait.

Rule 2: branches of a host whose numbers are equal count as one; so 32 bits are enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .layout import BRANCHES
from .ports import Family, Store
from .records import HOST_BYTES, PART_BYTES, Page, pack, part_digest, unpack
from .tables import RecordTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .order import Order

QUEUES = 16
"""Front queues by which a page of a crowded branch waits lower: behind most that its host has, but not behind all that any
host has. With 8, single traps take twice as much; with 2 or 4, a tree of ten does in the mean (docs/decisions.md)."""

_DOUBLED = 2
"""Front queues more for each doubling. With 1 a history keeps twice as many real pages waiting; with 4 three times as many, as pages
with little cash are in the last front queue then, where branches are alike (docs/decisions.md)."""

_PART = 0.01
"""Part of the fetched pages of a host that a branch may have."""

_SUPPORT = 0.02
"""What each page that supports a branch adds to that, as a part of it."""


class Branches:
    """The counts of pages of branches.

    Args:
        order: Which says how large a branch may be, and what a link is.
        group_of: The group of a request, as bytes; empty if it is in none.
        capacity: Counts kept in memory.

    Attributes:
        are_bounded: Whether the order bounds them; else all pages are in none.
    """

    def __init__(self, store: Store, order: Order, group_of: Callable[[bytes], bytes], capacity: int) -> None:
        # Its pages, and those that support it: a list, since a record of a table is changed in place.
        self.table = RecordTable(store, Family.META, pack, _unpack, capacity)
        self._pages = order.branch_pages
        self._two_links = 2 * order.one_link
        self.are_bounded = order.branch_pages > 0
        self._group_of = group_of

    def behind(self, key: bytes, page: Page, group: int, *, is_new: bool) -> int:
        """Number of the branch of what *page*, under *key* and of *group*, which is visited, links to but for its group.

        Args:
            is_new: Whether nothing is known of its links before; then nothing is counted behind it if it is a head.
        """
        if self._is_inside(page):
            return page.branch ^ (page.branch == group)  # another number, for what is not of the group
        if not self.are_bounded:
            return 0
        branch = int.from_bytes(key[-PART_BYTES:], "big") or 1
        if is_new:
            self.table.expect_none(_row(key, branch))
        return branch

    def group_of(self, request: bytes) -> int:
        """Number of the branch that is the group of *request*; 0 if it is in none."""
        group = self._group_of(request) if self.are_bounded and request else b""
        return int.from_bytes(part_digest(group), "big") if group else 0

    def count(self, key: bytes, page: Page, group: int) -> None:
        """Count *page*, under *key* and of *group*, which was fetched for the first time, if it is no head, nor in the branch of its group."""
        if self.is_lone(page, group):
            self._add(_row(key, page.branch), 1, 0)

    def found(self, host: bytes, group: int, n_alike: int, n_others: int) -> None:
        """A page of *group* has shown so many new pages of it, and so many others of the *host*."""
        self._add(_row(host, group), n_alike, n_others)

    def _add(self, row: bytes, n: int, n_supporting: int) -> None:
        """Count so many pages more, and so many that support them, unless there are none."""
        counts = self.table.get(row) or ([0, 0] if n else None)
        if counts is not None:
            counts[0] += n
            counts[1] += n_supporting
            self.table.put(row, counts)

    def is_lone(self, page: Page, group: int) -> bool:
        """Whether *page*, which is of *group*, is in a branch that is not its group's by its only link."""
        return self._is_inside(page) and page.branch != group

    def _is_inside(self, page: Page) -> bool:
        """Whether *page* is in a branch, and no head of its own."""
        return page.branch > 0 and page.score < self._two_links

    def left(self, pages: Iterable[tuple[bytes, int]]) -> None:
        """Pages, by their keys, that wait are linked to from elsewhere, and were in these branches until now."""
        rows = [_row(key, branch) for key, branch in pages]
        self.table.get_many(rows)  # with one read of the store
        for row in rows:
            self._add(row, 0, 1)

    def may_be_crowded(self, visited: int) -> bool:
        """Whether any branch of a host may be crowded of which *visited* pages were fetched."""
        return 0 < self._pages <= visited

    def lowered(self, key: bytes, branch: int, visited: int) -> int:
        """Front queues by which pages of *branch* wait lower; *visited* pages of the host, that of *key*, were fetched."""
        counts = self.table.get(_row(key, branch)) if branch and self.may_be_crowded(visited) else None
        n, n_supporting = counts or (0, 0)
        times = int(n / (max(self._pages, _PART * visited, 1) * (1 + _SUPPORT * n_supporting)))
        return QUEUES + _DOUBLED * (times.bit_length() - 1) if times else 0

    def read_ahead(self, keys: Iterable[bytes], pages: Iterable[Page | None]) -> None:
        """Read the counts for *pages*, under their *keys*, with one read of the store."""
        if not self.are_bounded:
            return
        inside = zip(keys, pages, strict=True)
        rows = {_row(key, page.branch): None for key, page in inside if page is not None and page.branch}
        if rows:
            self.table.get_many(list(rows))


def _row(key: bytes, branch: int) -> bytes:
    """Key of the row of *branch* of the host of the page under *key*."""
    return BRANCHES + key[:HOST_BYTES] + branch.to_bytes(PART_BYTES, "big")


def _unpack(data: bytes) -> list[int]:
    n, supporting = unpack(data)
    return [n, supporting]
