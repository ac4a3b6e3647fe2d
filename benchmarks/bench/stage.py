"""A scheduler on a stage: the real one of a crawl, with an engine that downloads nothing."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import TextResponse
from scrapy.link import Link
from scrapy.utils.reactor import install_reactor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from scrapy.http import Response

    from scrapy_aopic.session.session import Session

OURS: dict[str, Any] = {
    "SCHEDULER": "scrapy_aopic.Scheduler",
    "AOPIC_POLITENESS_FACTOR": 0,
    "AOPIC_MIN_GAP": 0,
    "LOGSTATS_INTERVAL": 0,
    "ROBOTSTXT_OBEY": False,
}
STOCK: dict[str, Any] = {
    "SCHEDULER": "scrapy.core.scheduler.Scheduler",
    "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
    "ROBOTSTXT_OBEY": False,
}

_PATIENCE = 3000


class _Extracted:
    """Stands in for an extractor: links that were found before."""

    def __init__(self, urls: Iterable[str]) -> None:
        self._links = [Link(url) for url in urls]

    def extract_links(self, response: Any) -> list[Link]:
        return self._links


async def _each(*items: Any) -> AsyncIterator[Any]:
    for item in items:
        yield item


class BenchSpider(Spider):
    name = "bench"

    async def start(self) -> AsyncIterator[Any]:
        for request in list[Request]():
            yield request

    def parse(self, response: Response) -> None:
        pass


class Stage:
    """The scheduler that *settings* name, open."""

    def __init__(self, settings: dict[str, Any]) -> None:
        os.environ.setdefault("http_proxy", "http://127.0.0.1:9")  # so that no host is looked up first
        from scrapy_aopic.session import time_slices

        time_slices.SLICE = float("inf")  # there is no event loop that it could let go on
        install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
        from scrapy.core.engine import ExecutionEngine
        from scrapy.utils.misc import build_from_crawler, load_object

        crawler = Crawler(BenchSpider, {"LOG_LEVEL": "WARNING", **settings})
        crawler._apply_settings()
        self.crawler = crawler
        self.spider = crawler.spider = crawler._create_spider()
        crawler.engine = self.engine = ExecutionEngine(crawler, lambda _: None)
        self.engine.spider = self.spider
        nextcall = SimpleNamespace(schedule=lambda: None)
        self.in_progress: set[Request] = set()  # ours watches them
        self.engine._slot = cast("Any", SimpleNamespace(inprogress=self.in_progress, nextcall=nextcall))
        scheduler = load_object(crawler.settings["SCHEDULER"])
        self.scheduler: Any = build_from_crawler(scheduler, crawler)
        self.scheduler.open(self.spider)
        self.session: Session | None = getattr(self.scheduler, "session", None)
        self.downloading: set[Request] = self.engine.downloader.active

    def pop(self) -> Request:
        """The next request, which is being downloaded from now on."""
        request: Request | None = self.scheduler.next_request()
        for _ in range(_PATIENCE):
            if request is not None:
                break
            time.sleep(0.01)  # the disk is behind, or all hosts were asked just now
            request = self.scheduler.next_request()
        assert request is not None, "the queue is empty"
        self.in_progress.add(request)
        self.downloading.add(request)
        return request

    def done(self, request: Request) -> None:
        """The callback of *request* has ended."""
        self.downloading.discard(request)
        self.in_progress.discard(request)

    def transferred(self, request: Request) -> None:
        """The transfer of *request* is over: its host is left alone as a real one would be."""
        if self.session is not None:
            from scrapy_aopic.core.politeness import TransferResult
            from scrapy_aopic.web.meta import slot_key

            self.session.pacer.transferred(slot_key(request), TransferResult(0.02), ago=0.0)

    def request(self, url: str) -> Request:
        return Request(url, callback=self.spider.parse)

    def link(self, page: Request) -> Callable[[Request], bool]:
        """What makes requests links of *page*, as the spider middlewares and the engine do it."""
        push: Callable[[Request], bool] = self.scheduler.enqueue_request
        if self.session is None:
            return push
        from scrapy_aopic.session.links.found_link import FoundLink

        visit, targets = self.session.visits.of(page), self.session.targets
        assert visit is not None

        def link(request: Request) -> bool:
            found = FoundLink(request.url, request, is_link=True)
            targets.admit([found], page.url)
            assert not found.is_refused, "it is turned away"
            visit.count([found])
            visit.mark(found)
            return push(found.made())

        return link

    def follow(self, page: Request, urls: Iterable[str]) -> None:
        """The callback of *page* yields ``Links`` with *urls*, which go through the link middleware."""
        from scrapy_aopic import Links

        page.meta.setdefault("depth", 0)  # which Scrapy's middleware does
        response = TextResponse(page.url, request=page)  # no tree is built, which is not the work here
        links = Links(response, extractor=_Extracted(urls))
        steps = self.scheduler._components.links.process_spider_output(response, _each(links))
        try:
            while True:
                steps.__anext__().send(None)
        except StopIteration as item:
            raise AssertionError(f"{item.value} goes another way") from None
        except StopAsyncIteration:
            pass
