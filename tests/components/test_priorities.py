"""``Request.priority`` is an order: beside stock Scrapy, on every store, through ends of the process, in shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.settings import Settings
from support import redis_server
from support.core_crawl import Job, link
from support.crawls import ADDON, OURS, Visits, in_folder, on_server
from support.small_web import ask, check, crawl

from scrapy_aopic.core.ports import Store
from scrapy_aopic.core.records import MOST_PRIORITY
from scrapy_aopic.storage import Address, open_store
from scrapy_aopic.storage.opening import open_store_at
from scrapy_aopic.view.url_settings import CrawlRules
from scrapy_aopic.view.why import why

pytestmark = pytest.mark.slow


HOME = "http://a.test/"
ONE_BY_ONE = {"CONCURRENT_REQUESTS": 1, "SCRAPER_SLOT_MAX_ACTIVE_SIZE": 1, "AOPIC_MIN_GAP": 0.02}
"""No page is requested while another one is read, so each is settled before the next is chosen."""

ALONE = OURS
WAYS: dict[str, dict[str, Any]] = {
    "alone": ALONE,
    "add-on": {**ADDON, "ROBOTSTXT_OBEY": False, "AOPIC_URL_RULES": []},
}
DATES = tuple(20_260_000 + day for day in range(1, 1200, 20))


async def crawl_given(priorities: tuple[int, ...], settings: dict[str, Any]) -> None:
    """Crawl a page that links to one for each number, with that as its priority."""

    def parse(response: Response) -> Iterator[Request]:
        if response.url == HOME:
            for number in Random(1).sample(priorities, len(priorities)):
                yield Request(f"{HOME}{number}", priority=number)

    await crawl(Visits, settings, start_urls=[HOME], parse=parse)


def numbers(urls: list[str]) -> list[int]:
    return [int(url.removeprefix(HOME)) for url in urls if url != HOME]


def given(priorities: tuple[int, ...]) -> dict[str, Any]:
    return {HOME: [], **{f"{HOME}{number}": [] for number in priorities}}


class Shop(Visits):
    """Lists of lists, three deep, each page of which has five items."""

    start_urls = [HOME]
    items_first = 1

    def parse(self, response: Response) -> Iterator[Request]:
        for url in response.css("a::attr(href)").getall():
            is_item = "item" in url
            yield response.follow(
                url, self.item if is_item else self.parse, priority=self.items_first * is_item
            )

    def item(self, response: Response) -> None:
        """Nothing."""


class Lists(dict[str, Any]):
    """The pages that :class:`Shop` crawls: 20 lists on the first, 20 on each of those, and 20 on each of those again."""

    def get(self, url: str, default: Any = None) -> Any:
        parts = [part for part in url.removeprefix(HOME).split("/") if part]
        if "item" in url:
            return []
        folder = HOME + "".join(f"{part}/" for part in parts)
        lists = [f"{folder}{n}/" for n in range(20)] if len(parts) < 3 else []
        return lists + [f"{folder}item{n}" for n in range(5)]


@pytest.mark.parametrize("priority", [1, pytest.param(10, marks=pytest.mark.long)])
async def test_as_many_items_as_with_stock_scrapy_are_among_the_first_300_pages(serve, priority):
    """Requested with a priority, items come before further lists. No list is requested while another one is read."""
    found = {}
    for way, settings in {"stock": {}, **WAYS}.items():
        web = serve(Lists())
        one = {"CONCURRENT_REQUESTS": 1, "SCRAPER_SLOT_MAX_ACTIVE_SIZE": 1, "CLOSESPIDER_PAGECOUNT": 300}
        await crawl(Shop, {**settings, **one}, start_urls=[HOME], items_first=priority)
        found[way] = sum("item" in url for url in web.asked[:300])
    assert found == {"stock": 250, "alone": 250, "add-on": 250}


@pytest.mark.parametrize("store", ["sqlite", "rocksdb"])
async def test_priorities_are_kept_when_a_crawl_goes_on(serve, tmp_path, store):
    edges = (MOST_PRIORITY, 1 << 62, 1 << 57, *DATES, 1, 0, -1, -(1 << 57), -MOST_PRIORITY)
    web = serve(given(edges))
    settings = in_folder(tmp_path, **ONE_BY_ONE | {"AOPIC_MIN_GAP": 0, "AOPIC_STORE": store})
    await crawl_given(edges, {**settings, "CLOSESPIDER_PAGECOUNT": 20})
    assert check(tmp_path).queued > 30
    waits = f"{HOME}{DATES[0]}"
    answer = ask(tmp_path, why, waits, CrawlRules(Settings()))
    assert answer.facts["priority"] == DATES[0]
    assert f"of the priority {DATES[0]} " in " ".join(answer.sentences)
    await crawl_given(edges, settings)
    assert numbers(web.asked) == sorted(edges, reverse=True)


async def test_a_priority_beyond_64_bits_counts_as_the_highest_or_the_lowest(serve):
    beyond = (-(10**30), -(10**20), 10**20, 10**30)
    web = serve(given((*beyond, 7)))
    await crawl_given((*beyond, 7), {**ALONE, **ONE_BY_ONE})
    found = numbers(web.asked)
    assert (set(found[:2]), found[2], set(found[3:])) == (set(beyond[2:]), 7, set(beyond[:2]))


@pytest.mark.parametrize("adjust", [1, -1])
async def test_depth_priority_is_an_order_as_with_stock_scrapy(serve, adjust):
    pages = {HOME: [f"{HOME}{n}/" for n in "123"]}
    for one in "123":
        pages[f"{HOME}{one}/"] = [f"{HOME}{one}/{n}/" for n in "123"]
        pages.update({f"{HOME}{one}/{two}/": [f"{HOME}{one}/{two}/{n}" for n in "12"] for two in "123"})
        pages.update({f"{HOME}{one}/{two}/{n}": [] for two in "123" for n in "12"})
    found = {}
    for way, settings in {"stock": {}, **WAYS}.items():
        serve(pages)
        depths: list[int] = []

        def parse(response: Response, depths: list[int] = depths) -> Iterator[Request]:
            depths.append(response.meta["depth"])
            yield from map(Request, response.css("a::attr(href)").getall())

        ordered = {**settings, **ONE_BY_ONE, "DEPTH_PRIORITY": adjust}
        await crawl(Visits, ordered, start_urls=[HOME], parse=parse)
        found[way] = depths
    assert found["stock"] == found["alone"] == found["add-on"]
    assert len(found["stock"]) == len(pages)
    assert (found["stock"] == sorted(found["stock"])) == (adjust > 0)


# -- what a kill and a server leave


@pytest.fixture(params=["sqlite", "rocksdb", "redis"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Opens the store of a job, again and again."""
    if request.param != "redis":
        yield lambda: open_store(tmp_path / "store", request.param)
        return
    redis_server.needed()
    with redis_server.Server(tmp_path) as server:
        yield lambda: open_store_at(Address("job", server.url))


def test_every_store_keeps_thousands_of_priorities_in_order_when_the_process_ends_at_once(opened):
    dice, job = Random(6), Job(max_active=3)
    links = [link(f"h{n % 40}", n, priority=dice.randrange(-(1 << 62), 1 << 62)) for n in range(1500)]
    wanted = [each.request for each in sorted(links, key=lambda each: -each.priority)]
    found: list[bytes] = []
    for n in range(4):
        job.store = opened()  # type: ignore[assignment]
        job.reopen()
        job.now += 600.0
        if not n:
            job.seed(*links)
        found += [job.visit().request for _ in range(300)]
        job.commit()
        [job.visit() for _ in range(10)]  # the next process knows nothing of these
        job.store.close()
    assert found == wanted[:1200]


async def test_in_shards_every_host_has_its_pages_by_priority(serve, tmp_path):
    redis_server.needed()
    hosts, priorities = [f"http://h{n}.test/" for n in range(12)], (-3, 0, 1, 20_261_128)
    urls = {f"{host}{priority}": priority for host in hosts for priority in priorities}

    def parse(response: Response) -> Iterator[Request]:
        if response.url == HOME:
            yield from (Request(url, priority=priority) for url, priority in urls.items())

    web = serve({url: [] for url in (HOME, *urls)})
    with redis_server.Server(tmp_path) as server:
        settings = on_server(server.url, 4)
        for pages in (20, 0):
            settings["CLOSESPIDER_PAGECOUNT"] = pages
            await crawl(Visits, settings, start_urls=[HOME], parse=parse)
    asked = web.asked[1:]
    assert sorted(asked) == sorted(urls)
    for host in hosts:
        own = [int(url.removeprefix(host)) for url in asked if url.startswith(host)]
        assert all(one > other for one, other in pairwise(own)), host
