"""A page waits lower once enough pages of its directory were fetched, and nothing else of a crawl depends on that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.core_crawl import Job, link

from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.layout import DIRECTORIES
from scrapy_aopic.core.order import Aopic, Focused
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import pack_page

if TYPE_CHECKING:
    from scrapy_aopic.core.order import Order
    from scrapy_aopic.core.records import Link


def directory_of(request: bytes) -> bytes:
    """What is between the first and the last slash of ``host/directory/page``."""
    return b"/".join(request.split(b"/")[1:-1])


def job(order: Order | None = None, *, full: int = 3) -> Job:
    """A crawl in which a directory is full after so many pages."""
    order = order or Aopic()
    order.directory_pages = full
    return Job(order=order, directory_of=directory_of)


def numbered(host: str, directory: str, n: int) -> list[Link]:
    """Links to *n* pages in *directory* of *host*."""
    return [
        link(host, sum(directory.encode()) << 16 | number, f"{host}/{directory}/{number}".encode())
        for number in range(n)
    ]


def seed(job: Job, *links: Link) -> None:
    """Queue *links* without cash, so that all are in one front queue."""
    job.seed(*links, is_endowed=False)
    for each in links:  # so that one front queue lower is another one
        page = job.page(each)
        page.shift = 5
        job.crawl.pages.rescore(each.key, page, page.score, job.now)


def fetched(job: Job) -> list[str]:
    return [request.decode() for request in job.drain()]


def rows(job: Job) -> dict[bytes, bytes]:
    """The counts of directories in the store, by key without the letter."""
    found = job.store.scan(Family.META, DIRECTORIES, bytes((DIRECTORIES[0] + 1,)))
    return {key[1:]: value for key, value in found}


def test_after_three_pages_of_a_directory_others_come_first_and_then_the_rest():
    web = job()
    seed(web, *numbered("a", "one", 5), *numbered("a", "two", 2))
    assert fetched(web) == ["a/one/0", "a/one/1", "a/one/2", "a/two/0", "a/two/1", "a/one/3", "a/one/4"]
    web.commit()


def test_on_other_hosts_and_in_the_root_nothing_is_counted_for_it():
    web = job()
    seed(web, *numbered("a", "one", 4), link("a", 9, b"a/root"), *numbered("b", "one", 3))
    assert fetched(web)[-1] == "a/one/3"
    root = job()
    seed(root, *(link("a", number, b"a/%d" % number) for number in range(5)))
    assert fetched(root) == [f"a/{number}" for number in range(5)]
    root.commit()
    assert not rows(root)


def test_without_the_rule_pages_come_as_they_were_found():
    for order in [Focused(), Aopic()]:
        web = job(order, full=0)
        seed(web, *numbered("a", "one", 5), *numbered("a", "two", 1))
        assert fetched(web) == [*(f"a/one/{number}" for number in range(5)), "a/two/0"], order
        web.commit()
        assert not rows(web), order


def test_a_directory_has_one_small_row_which_is_written_no_more_when_it_is_full():
    web = job()
    seed(web, *numbered("a", "one", 6), *numbered("a", "two", 1))
    for _ in range(5):
        web.visit()
    web.commit()
    assert sorted(rows(web).values()) == [b"\1", b"\3"]
    assert {len(key) for key in rows(web)} == {12}
    web.drain()
    assert not any(key[:1] == DIRECTORIES for key in web.crawl.take_changes(web.now)[Family.META])


def test_check_finds_what_no_crawl_writes():
    web = job()
    links = numbered("a", "one", 6)
    seed(web, *links, *numbered("a", "two", 1))
    for _ in range(4):
        web.visit()
    web.commit()
    (one,) = [key for key, value in rows(web).items() if value == b"\3"]
    page = web.page(links[0])
    page.lowered = 1
    counts = {DIRECTORIES + one: b"\0", DIRECTORIES + one[:-1]: b"\1"}
    web.store.write({Family.PAGES: {links[0].key: pack_page(page)}, Family.META: counts}, sync=True)
    found = " ".join(audit(web.store).violations)
    for fault in ("of no host", "a count that there cannot be", "was visited, but waits lower"):
        assert fault in found
