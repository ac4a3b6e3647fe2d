"""``AOPIC_ORDER`` and what the virtual page spends on, in real crawls: order, ends, stops, refusals."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.crawls import OURS, in_folder, logged
from support.small_web import Follow, Web, ask, ask_view, check, crawl

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.graph import KnownGraph, Ranking
from scrapy_aopic.core.order import BatchOrder, DepthFirst, Order, PageRank, PageView, front_queue
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.records import Link, host_key, page_key
from scrapy_aopic.job.job import Job
from scrapy_aopic.version import DOCS
from scrapy_aopic.view.queries import top_hosts
from scrapy_aopic.view.stored import snapshot_of

HOME = "http://a.test/"

SITES = {
    HOME: [f"http://{host}.test/{n}" for n in range(3) for host in "abcd"],
    **{
        f"http://{host}.test/{n}": [
            f"http://{host}.test/{n + 3}" if n < 6 else HOME,
            f"http://b.test/{(n + 1) % 9}",
            "http://a.test/0",
        ]
        for host in "abcd"
        for n in range(9)
    },
}
"""37 pages on four hosts, all reachable from the first."""

TREE = {
    HOME: ["/1", "/2", "/3", "/4"],
    "http://a.test/1": ["/11", "/12", "/4"],
    "http://a.test/2": ["/21", "/3"],
    "http://a.test/3": ["/31", "/11"],
    **{f"http://a.test/{n}": [] for n in (4, 11, 12, 21, 31)},
}


def on_disk(folder: Path, order: Any, **settings: Any) -> dict[str, Any]:
    return in_folder(folder, AOPIC_ORDER=order, **settings)


ONE_BY_ONE = {"CONCURRENT_REQUESTS": 1, "SCRAPER_SLOT_MAX_ACTIVE_SIZE": 1, "AOPIC_MIN_GAP": 0.02}
"""No page is asked for while another one is downloaded or parsed, so each is settled before the next is chosen."""


def paths(web: Web) -> list[str]:
    return [url.removeprefix(HOME) for url in web.asked]


def everything(store: Store) -> dict[Family, list[tuple[bytes, bytes]]]:
    return {family: list(store.scan(family)) for family in Family}


@pytest.mark.parametrize(
    ("order", "asked"),
    [
        ("breadth-first", ["", "1", "2", "3", "4", "11", "12", "21", "31"]),
        ("depth-first", ["", "4", "3", "11", "31", "2", "21", "1", "12"]),
        ("backlinks", ["", "1", "4", "2", "3", "11", "12", "21", "31"]),
        ("opic-cycle", ["", "1", "2", "3", "4", "11", "12", "21", "31"]),
    ],
)
async def test_pages_come_as_the_order_says(serve, order, asked):
    web = serve(TREE)
    await crawl(Follow, {**OURS, "AOPIC_ORDER": order, **ONE_BY_ONE})
    assert paths(web) == asked


# Orders of the user's own


class Deeper(Order):
    """What is farther inside its host comes first."""

    def front_queue(self, page: PageView, cash: int) -> int:
        return front_queue(1, page.clicks)


@pytest.mark.slow
@pytest.mark.parametrize("given", [Deeper, f"{__name__}.Deeper"], ids=["class", "path"])
async def test_an_order_of_the_users_own_decides(serve, tmp_path, given):
    web = serve(TREE)
    await crawl(Follow, on_disk(tmp_path, given, **ONE_BY_ONE))
    assert paths(web) == ["", "1", "11", "12", "2", "21", "3", "31", "4"]


async def test_a_job_keeps_its_order_and_refuses_another(serve, tmp_path, caplog):
    web = serve(SITES)
    await crawl(Follow, on_disk(tmp_path, "depth-first", CLOSESPIDER_PAGECOUNT=5))
    before, n_asked = ask(tmp_path, everything), len(web.asked)
    assert check(tmp_path).queued > 0
    assert ask_view(tmp_path, snapshot_of).order == "DepthFirst"

    crawler = await crawl(Follow, on_disk(tmp_path, Deeper))
    (text,) = logged(caplog, "ERROR")
    assert text == (
        "This job was crawled in the order scrapy_aopic.core.order.DepthFirst, and AOPIC_ORDER is now "
        f"{__name__}.Deeper: set AOPIC_ORDER back, or use a new job folder. Nothing was changed. "
        f"See {DOCS} troubleshooting#the-crawl-does-not-start. The crawl does not start."
    )
    assert crawler.stats.get_value("finish_reason") == "aopic_storage"
    assert len(web.asked) == n_asked
    assert ask(tmp_path, everything) == before

    await crawl(Follow, on_disk(tmp_path, DepthFirst))
    assert sorted(web.asked) == sorted(SITES)


# Orders that look at the whole graph


def links_of(numbers: range) -> list[Link]:
    """Links to pages of one host that are called by these *numbers*."""
    names = [b"%d" % number for number in numbers]
    return [Link(page_key(host_key("a.test"), name), "a.test", name) for name in names]


def job_of(order: BatchOrder, n: int, folder: Path | None = None) -> Job:
    """A job whose only visited page links to *n* others."""
    job = Job(folder, Policy(order=order, commit_within=1e9), kind="memory" if folder is None else "sqlite")
    links = links_of(range(n + 1))
    job.crawl.seed(links[0], job.clock())
    lease = job.crawl.lease(job.clock())
    assert isinstance(lease, Lease)
    job.crawl.release(lease, job.clock())
    job.crawl.settle(lease, links[1:], job.clock())
    return job


def next_pages(job: Job, n: int) -> list[int]:
    """The *n* pages that come next; none links anywhere."""
    found = []
    for _ in range(n):
        lease = job.crawl.lease(job.clock())
        found.append(int(lease.request))
        job.crawl.release(lease, job.clock())
        job.crawl.settle(lease, [], job.clock())
    return found


class Scored(BatchOrder):
    """Gives the pages scores that double from one number to the next; notes where it ran."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.may_end = threading.Event()
        self.error: Exception | None = None

    def ranking(self, graph: KnownGraph) -> Callable[[], Ranking]:
        n = len(graph)

        def compute() -> Ranking:
            self.threads.append(threading.current_thread().name)
            self.may_end.wait()
            if self.error is not None:
                raise self.error
            return [1 << (number + 8) for number in range(n)]

        return compute


def test_scores_are_computed_in_a_thread_while_the_crawl_goes_on():
    order = Scored()
    job = job_of(order, 8)
    for _ in range(3):
        job.rank()
    assert next_pages(job, 2) == [1, 2]  # as they were found: nobody knows better yet
    order.may_end.set()
    while not job.crawl.page(page_key(host_key("a.test"), b"8")).score:  # type: ignore[union-attr]
        job.rank()
    assert next_pages(job, 6) == [8, 7, 6, 5, 4, 3]
    assert len(order.threads) == 1
    assert order.threads[0].startswith("aopic-rank")
    job.close()


def test_scores_are_given_out_bit_by_bit():
    order = PageRank()
    job = job_of(order, 1200)
    pages = [link.key for link in links_of(range(1201))]

    def n_scored() -> int:
        return sum(bool(page and page.score) for page in map(job.crawl.page, pages))

    counts = [0]
    while counts[-1] < 1201:
        job.rank()
        if n_scored() != counts[-1]:
            counts.append(n_scored())
    assert counts == [0, 500, 1000, 1201]
    job.close()


def test_a_ranking_that_fails_is_told_once_and_is_tried_again_when_the_graph_has_grown():
    order = Scored()
    order.may_end.set()
    order.error = ZeroDivisionError()
    job = job_of(order, 8)
    job.rank()
    n_errors = 0
    for _ in range(1000):  # not again for the same graph
        try:
            job.rank()
        except ZeroDivisionError:
            n_errors += 1
        time.sleep(0 if n_errors else 0.01)
    assert n_errors == len(order.threads) == 1
    lease = job.crawl.lease(job.clock())
    assert isinstance(lease, Lease)
    order.error = None
    job.crawl.release(lease, job.clock())
    more = links_of(range(20, 30))
    job.crawl.settle(lease, more, job.clock())
    while len(order.threads) < 2 or not job.crawl.page(more[-1].key).score:  # type: ignore[union-attr]
        job.rank()
    assert next_pages(job, 2) == [29, 28]
    job.close()


@pytest.mark.parametrize("name", ["pagerank", "hits"])
async def test_batch_orders_know_the_links_of_earlier_runs(serve, tmp_path, monkeypatch, name):
    frozen: list[int] = []
    real = KnownGraph.frozen
    monkeypatch.setattr(KnownGraph, "frozen", lambda graph: frozen.append(len(graph)) or real(graph))
    serve(SITES)
    await crawl(Follow, on_disk(tmp_path, name, CLOSESPIDER_PAGECOUNT=20))
    assert frozen
    known = check(tmp_path).pages
    frozen.clear()
    await crawl(Follow, on_disk(tmp_path, name))
    assert frozen[0] >= known


async def test_batch_orders_say_that_they_need_numpy(serve, monkeypatch, caplog):
    web = serve(TREE)
    find = importlib.util.find_spec
    without = lambda name: None if name == "numpy" else find(name)
    monkeypatch.setattr("scrapy_aopic.settings.build.find_spec", without)
    await crawl(Follow, {**OURS, "AOPIC_ORDER": "hits"})
    (text,) = logged(caplog, "ERROR")
    assert text == (
        "AOPIC_ORDER ('hits') needs numpy: pip install numpy. "
        f"See {DOCS} settings#aopic_order. The crawl does not start."
    )
    assert web.asked == []
    await crawl(Follow, {**OURS, "AOPIC_ORDER": "backlinks"})
    assert sorted(web.asked) == sorted(TREE)


# What the virtual page spends on


async def test_chosen_domains_get_what_the_virtual_page_holds(serve, tmp_path):
    hosts = ["www.b.com", "c.com", "shop.b.com", "d.com", "news.e.org", "mail.e.org"]
    serve({HOME: [f"http://{host}/" for host in hosts], **{f"http://{host}/": [] for host in hosts}})
    settings = on_disk(tmp_path, "aopic", AOPIC_VIRTUAL_SPENDING={"chosen": ["B.com", "news.e.org"]})
    await crawl(Follow, settings)
    best = [row.host for row in ask_view(tmp_path, top_hosts, 3)]
    assert sorted(best) == ["news.e.org", "shop.b.com", "www.b.com"]
