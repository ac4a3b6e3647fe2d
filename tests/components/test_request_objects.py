"""Which object comes out of the queue: without a job folder the request that went in, as far as anybody can tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from demo_web.server import Answer, Exchange
from scrapy import Request, Spider, signals
from scrapy.http import Response
from support.small_web import Follow, crawl, html

from scrapy_aopic import Links
from scrapy_aopic.session.session import Session

ADD_ON: dict[str, Any] = {"ADDONS": {"scrapy_aopic.Addon": 500}, "ROBOTSTXT_OBEY": False}
ALONE: dict[str, Any] = {"SCHEDULER": "scrapy_aopic.Scheduler"}
EITHER = pytest.mark.parametrize("how", [ADD_ON, ALONE], ids=["add-on", "alone"])

HOME = "http://a.test/"
PARTS = [f"http://a.test/{n}" for n in range(5)]
PAGES = {HOME: [], **{url: [] for url in PARTS}}


class Several(Follow):
    """Makes one item of several pages, by an object that their requests share."""

    way = "cb_kwargs"

    def parse(self, response: Response) -> Iterator[Any]:
        state = {"left": len(PARTS)}
        for url in PARTS:
            yield self.part_request(response, url, state)

    def part_request(self, response: Response, url: str, state: dict[str, int]) -> Any:
        if self.way == "links":
            return Links(response, [url], callback=self.part, cb_kwargs={"state": state})
        if self.way == "meta":
            return Request(url, self.by_meta, meta={"deep": [(state,)]})
        return Request(url, self.part, cb_kwargs={"state": state})

    def by_meta(self, response: Response) -> Iterator[Any]:
        yield from self.part(response, response.meta["deep"][0][0])

    def part(self, response: Response, state: dict[str, int]) -> Iterator[Any]:
        state["left"] -= 1
        if not state["left"]:
            yield {"url": "whole"}


@pytest.mark.crossed
@pytest.mark.parametrize("way", ["cb_kwargs", "meta", "links"])
@EITHER
async def test_one_item_is_made_of_several_pages(serve, how, way):
    serve(PAGES)
    crawler = await crawl(Several, how, way=way)
    assert crawler.stats.get_value("item_scraped_count") == 1
    assert crawler.stats.get_value("scheduler/unserializable") is None


@pytest.mark.crossed
@pytest.mark.parametrize(
    "more", [{}, {"meta": {"n": 1}}, {"method": "POST"}, {"cookies": {"a": "b"}}], ids=str
)
@EITHER
async def test_a_request_that_somebody_has_is_the_one_that_comes_back(serve, how, more):
    pending: dict[Request, str] = {}
    got = []

    class Holds(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            for url in PARTS:
                request = Request(url, self.part, **more)
                pending[request] = url
                yield request

        def part(self, response: Response) -> None:
            request = response.request
            got.append((pending.pop(request), response.meta["depth"], request.headers["Referer"]))

    serve(PAGES)
    await crawl(Holds, how)
    assert sorted(got) == [(url, 1, HOME.encode()) for url in PARTS]
    assert pending == {}


async def test_only_what_waits_is_kept(serve):
    """Nothing stays of requests that went out, were duplicates, or are text and numbers that nobody has any more."""
    kept: list[int] = []

    class Drops(Follow):
        start_urls = [HOME, "http://b.test/"]

        def parse(self, response: Response) -> Iterator[Any]:
            for url in [*PARTS, *PARTS]:  # twice on each of two pages
                yield Request(url, self.part, meta={"n": [1]})
                yield Request(f"{url}?{response.url}", self.part, meta={"n": 1})

        def part(self, response: Response) -> None: ...

    def look(spider: Spider) -> None:
        session = Session.of(spider.crawler)
        requests = session.intake._requests
        kept.append(len(requests._unwritten) + len(requests._live))

    serve({**PAGES, "http://b.test/": []})
    await crawl(Drops, {**ALONE, "CONCURRENT_REQUESTS": 2}, told={signals.spider_idle: look})
    assert kept[-1] == 0


@pytest.mark.slow
async def test_what_a_page_is_visited_again_with_is_as_it_was_queued(serve):
    got: list[Any] = []

    class Again(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            yield Request(PARTS[0], self.part, cb_kwargs={"seen": got}, meta={"first": [True]})

        def part(self, response: Response, seen: list[Any]) -> Iterator[Any]:
            seen.append((response.meta.pop("first"), response.request.headers.get("If-None-Match")))
            if len(seen) == 3:
                yield {"url": response.url}

    def page(exchange: Exchange) -> Answer:
        return Answer(headers={"Content-Type": "text/html", "ETag": '"1"'}, body=html([str(len(got))]))

    serve({HOME: [], PARTS[0]: page})
    await crawl(Again, {**ALONE, "AOPIC_RECRAWL": [1, "90 days"], "CLOSESPIDER_ITEMCOUNT": 1})
    assert len(got) == 3
    assert [first for first, _ in got] == [[True]] * 3


async def test_with_a_job_folder_a_shared_object_is_said_once(serve, tmp_path, caplog):
    serve(PAGES)
    await crawl(Several, {**ADD_ON, "JOBDIR": str(tmp_path), "AOPIC_STORE": "sqlite"})
    said = [record.getMessage() for record in caplog.records if "another request" in record.getMessage()]
    assert len(said) == 1
    assert "The dict in cb_kwargs['state'] of <GET http://a.test/1>" in said[0]


@pytest.mark.parametrize("way", ["cb_kwargs", "meta"])
async def test_objects_that_are_handed_on_are_not_shared(serve, tmp_path, caplog, way):
    class HandsOn(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            yield Request(PARTS[0], self.part, **{way: {"item": {"pages": []}}})

        def part(self, response: Response, item: Any = None) -> Iterator[Any]:
            item = item or response.meta["item"]
            item["pages"].append(response.url)
            n = len(item["pages"])
            if n < len(PARTS):
                yield Request(PARTS[n], self.part, **{way: {"item": item}})
            else:
                yield item

    pages = {**PAGES, PARTS[0]: Answer(302, headers={"Location": f"{PARTS[0]}?moved"})}
    serve({**pages, f"{PARTS[0]}?moved": []})
    crawler = await crawl(HandsOn, {**ADD_ON, "JOBDIR": str(tmp_path), "AOPIC_STORE": "sqlite"})
    assert crawler.stats.get_value("item_scraped_count") == 1
    assert "another request" not in caplog.text
