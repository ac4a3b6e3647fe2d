"""An endless tree on a host waits behind what else the host has, and pages that are linked from elsewhere do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.core_crawl import Job, link

from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.branches import QUEUES
from scrapy_aopic.core.layout import BRANCHES
from scrapy_aopic.core.order import Aopic
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import QUEUED, pack, pack_page, unpack

if TYPE_CHECKING:
    from scrapy_aopic.core.records import Link

ROOT, FIRST = link("a", 1), 1000


class Web(Job):
    """A crawl in which a branch is crowded after so many fetched *pages*; *number* is that of the last page of a tree."""

    def __init__(self, pages: int = 3, **how: Any) -> None:
        order = Aopic()
        order.branch_pages = pages
        super().__init__(order=order, **how)
        self.number = 0


def tree(web: Web, width: int = 2) -> list[Link]:
    """Begin an endless tree on host ``a``: its root is visited; returns what that links to."""
    web.seed(ROOT)
    children = [link("a", FIRST + number) for number in range(width)]
    web.visit(*children)
    return children


def grow(web: Web, n: int, width: int = 2) -> list[Link]:
    """Visit *n* pages, each of which links to *width* new ones of the tree; returns these."""
    grown: list[Link] = []
    for _ in range(n):
        web.number += width
        new = [link("a", 10 * FIRST + web.number + number) for number in range(width)]
        assert web.visit(*new).host == "a"
        grown += new
    return grown


def rows(web: Web) -> list[list[int]]:
    """What the store has counted: pages of each branch, and those that support it."""
    found = web.store.scan(Family.META, BRANCHES, bytes((BRANCHES[0] + 1,)))
    return [unpack(value) for _, value in found]


def test_pages_of_a_tree_wait_lower_once_enough_of_it_was_fetched_and_others_come_first():
    web = Web()
    tree(web)
    before = grow(web, 3)
    honest = link("a", 2)
    web.seed(honest, is_endowed=False)
    page = web.page(honest)
    page.shift = 20  # below the tree, until this waits lower
    web.crawl.pages.rescore(honest.key, page, page.score, web.now)
    assert not any(web.page(each).lowered for each in before[:4])  # they find out when their turn comes
    assert web.visit().key == honest.key
    assert QUEUES in {web.page(each).lowered for each in before}
    (after,) = {web.page(each).lowered for each in grow(web, 1)}
    assert after == QUEUES  # at once, as it is known by then
    web.commit()
    assert rows(web) == [[4, 0]]


@pytest.mark.parametrize("host", ["a", "b"])
def test_a_link_from_elsewhere_moves_a_page_up_again(host):
    web = Web()
    tree(web)
    grow(web, 3)
    (page, *others) = grow(web, 1)
    assert web.page(page).lowered == QUEUES
    before = web.page(page).front_queue
    finder = link(host, 7)
    web.seed(finder)
    assert web.visit(page).key == finder.key
    assert (web.page(page).lowered, web.page(page).branch) == (0, 0)
    assert web.page(page).front_queue > before
    assert {web.page(each).lowered for each in others} == {QUEUES}
    web.commit()
    assert rows(web) == [[4, 1]]
    grown = link("a", 50)
    assert web.visit(grown).key == page.key
    assert web.page(grown).lowered == 0  # behind another head, as two links lead to that


def test_a_page_that_is_a_seed_by_now_waits_lower_no_more():
    web = Web()
    tree(web)
    grow(web, 3)
    page, _ = grow(web, 1)
    assert web.page(page).lowered == QUEUES
    web.crawl.enrich(page.key, web.now, 1.0)
    assert (web.page(page).lowered, web.page(page).branch) == (0, 0)
    web.commit()
    assert web.visit().key == page.key


def test_pages_that_were_linked_to_from_elsewhere_let_a_branch_be_larger():
    web = Web(4)
    children = tree(web, width=60)
    web.visit()
    web.seed(link("b", 7))
    web.visit(*children[5:])
    web.commit()
    ((fetched, supported),) = rows(web)
    assert (fetched, supported) == (1, len(children[5:]))
    of = web.crawl.pages.branches
    for n, crowded in ((8, 0), (9, QUEUES)):  # 4 pages, and 55 times a fiftieth of that
        of.table.put(BRANCHES + ROOT.key[:8] + (9).to_bytes(4, "big"), [n, supported])
        assert of.lowered(ROOT.key, 9, 10) == crowded
        of.table.take()


def test_a_branch_may_have_a_hundredth_of_what_was_fetched_of_its_host():
    web = Web(4)
    tree(web)
    of = web.crawl.pages.branches
    of.table.put(BRANCHES + ROOT.key[:8] + (9).to_bytes(4, "big"), [50, 0])
    lowered = [of.lowered(ROOT.key, 9, visited) for visited in (100, 5000, 5001, 10_000)]
    assert lowered == [QUEUES + 6, QUEUES, 0, 0]  # 50 of 4 pages are three times twice as many


def test_pages_wait_lower_each_time_that_their_branch_has_twice_as_many():
    web = Web()
    known_before = tree(web, width=30)
    ever_lower = [{web.page(each).lowered for each in grow(web, 1)} for _ in range(11)]
    assert ever_lower == [{0}] * 2 + [{QUEUES}] * 3 + [{QUEUES + 2}] * 6
    once = [each for each in known_before if web.page(each).lowered]
    assert {web.page(each).lowered for each in once} == {QUEUES + 2}
    grow(web, 4)
    assert QUEUES + 4 in {web.page(each).lowered for each in once}


def test_check_finds_what_no_crawl_writes():
    web = Web()
    tree(web)
    grow(web, 4)
    web.commit()
    assert audit(web.store).violations == []
    page = web.page(ROOT)
    page.branch = 5
    (row,) = [key for key, _ in web.store.scan(Family.META, BRANCHES, bytes((BRANCHES[0] + 1,)))]
    bad = {
        row[:-1]: pack([1, 0]),
        row[:-1] + b"x": b"\xc1",
        row[:-1] + b"y": pack([0, 0]),
        row[:-1] + b"z": pack(3),
    }
    web.store.write({Family.PAGES: {ROOT.key: pack_page(page)}, Family.META: bad}, sync=True)
    found = audit(web.store).violations
    assert sum("has a count that there cannot be" in each for each in found) == 3
    assert sum("is of no host" in each for each in found) == 1


def group_of(request: bytes) -> bytes:
    """Pages with numbers from 100 to 999 are of one make."""
    return b"made" if len(request.rpartition(b"/")[2]) == 3 else b""


def facets(web: Web) -> list[Link]:
    """Let a page lead to one of many pages that all lead to each other, until their group is crowded; returns them."""
    made = [link("a", 100 + number) for number in range(40)]
    web.seed(ROOT)
    web.visit(made[0])
    for shown in (4, 4, 40, 40, 40):
        web.visit(*made[:shown])
    return made


def test_pages_of_one_make_that_lead_to_each_other_are_bounded_too():
    web = Web(group_of=group_of)
    made = facets(web)
    assert {web.page(each).lowered for each in made[4:] if web.page(each).state == QUEUED} == {QUEUES + 6}
    web.commit()
    assert [39, 0] in rows(web)  # the first one was found from elsewhere
    seed, other, honest = link("a", 2), link("a", 999), link("a", 3)
    web.seed(seed)
    assert web.visit(other, honest).key == seed.key
    # The other one is of that make, too, though it was found from elsewhere.
    assert web.visit().key == honest.key
    web.commit()


def test_new_pages_of_another_make_support_a_group_and_are_a_branch_of_their_own():
    web = Web(group_of=group_of)
    made = [link("a", 100 + number) for number in range(40)]
    products = [link("a", 1000 + number) for number in range(620)]
    web.seed(ROOT)
    web.visit(made[0])
    web.visit(*made, *products)
    assert {web.page(each).lowered for each in made[1:]} == {0}  # 3 * (1 + 620 / 50) > 39
    assert len({web.page(each).branch for each in products} - {web.page(made[2]).branch}) == 1
    web.visit(*(link("a", 100 + number) for number in range(40, 80)))
    assert {web.page(each).lowered for each in made[2:]} == {0}
    web.commit()
    assert [79, 620] in rows(web)
    assert audit(web.store).violations == []


def test_copies_of_a_page_each_of_which_leads_to_one_more_stay_in_the_branch_that_they_are_behind():
    web = Web(group_of=group_of)
    tree(web, width=1)
    for number in range(100, 104):
        copy = link("a", number)
        web.visit(copy, link("a", 10 * FIRST + number))
    head = int.from_bytes(ROOT.key[-4:], "big")
    assert web.page(copy).branch == head
    assert web.page(copy).lowered == QUEUES


def test_a_page_of_a_crowded_group_that_is_a_seed_waits_lower_no_more():
    web = Web(group_of=group_of)
    page = next(each for each in facets(web) if web.page(each).state == QUEUED)
    web.crawl.enrich(page.key, web.now, 1.0)
    assert (web.page(page).lowered, web.page(page).branch) == (0, 0)
    assert web.visit().key == page.key
