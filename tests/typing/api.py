"""What users write against this package, for mypy only: it is checked by ``make lint`` and never run.

A line with ``type: ignore`` must be an error: mypy complains of one that is none.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import Response
from support.crawl_contract import CrawlContract
from support.store_contract import StoreContract
from typing_extensions import assert_never, assert_type

import scrapy_aopic
from scrapy_aopic import (
    Addon,
    BroadSpider,
    DupeFilter,
    ImportancePipeline,
    LinkMiddleware,
    Links,
    PagesPipeline,
    PolitenessMiddleware,
    Progress,
    RobotsMiddleware,
    Scheduler,
)
from scrapy_aopic.core import (
    Batch,
    Crawl,
    CrawlPort,
    Empty,
    Ending,
    Family,
    Findings,
    Gap,
    Lease,
    Link,
    NotBefore,
    Outcome,
    Policy,
    Politeness,
    Recrawl,
    Settled,
    Store,
    TransferResult,
    Unlocated,
    Version,
    Window,
    audit,
    host_key,
    page_key,
)
from scrapy_aopic.core.order import HostView, Opic, PageView
from scrapy_aopic.exceptions import AopicError, CallError, StorageError
from scrapy_aopic.spidermiddlewares import Weigh
from scrapy_aopic.storage import Backend, Compacts, open_snapshot, open_store
from scrapy_aopic.storage.memory import MemoryStore

# Settings: classes may stand for import paths.


class Broad(Spider):
    name = "broad"
    custom_settings = {
        "ADDONS": {Addon: 500},
        "SCHEDULER": Scheduler,
        "DUPEFILTER_CLASS": DupeFilter,
        "SPIDER_MIDDLEWARES": {LinkMiddleware: 50},
        "DOWNLOADER_MIDDLEWARES": {PolitenessMiddleware: 990, RobotsMiddleware: 100},
        "ITEM_PIPELINES": {ImportancePipeline: 300, PagesPipeline: 400},
        "EXTENSIONS": {Progress: 0},
    }

    def parse(self, response: Response) -> Iterator[Request]:
        yield response.follow("/")


def components_are_made_from_a_crawler(crawler: Crawler) -> None:
    assert_type(Scheduler.from_crawler(crawler), Scheduler)
    assert_type(LinkMiddleware.from_crawler(crawler), LinkMiddleware)
    assert_type(PolitenessMiddleware.from_crawler(crawler), PolitenessMiddleware)
    assert_type(RobotsMiddleware.from_crawler(crawler), RobotsMiddleware)
    assert_type(ImportancePipeline.from_crawler(crawler), ImportancePipeline)
    assert_type(PagesPipeline.from_crawler(crawler), PagesPipeline)
    assert_type(Progress.from_crawler(crawler), Progress)
    assert_type(scrapy_aopic.__version__, str)


class Careful(Scheduler):
    """A scheduler that has more to say about requests."""

    def enqueue_request(self, request: Request) -> bool:
        return "logout" not in request.url and super().enqueue_request(request)


class News(BroadSpider):
    """A broad spider with options of every form that is taken."""

    name = "news"
    seeds = ["https://a.example/", "seeds.txt"]
    domains = "a.example, b.example"
    scope = "domain"
    allow = re.compile("/news/")
    deny = [r"/login", re.compile("/search")]
    fields = ("url", "title")

    def parse_page(self, response: Response) -> Iterator[dict[str, str]]:
        yield {"url": response.url}

    def links(self, response: Response) -> Links | None:
        links = self.in_scope(response, css="main")
        assert_type(links, Links | None)
        return links


class Wild(BroadSpider):
    seeds = 7  # type: ignore[assignment]

    async def parse_page(self, response: Response) -> AsyncIterator[Request]:
        yield Request(response.url)

    def links(self, response: Response) -> list[str]:  # type: ignore[override]
        return []


class Injected(BroadSpider):
    async def parse_page(self, response: Response, policy: Policy) -> dict[str, str]:
        return {"url": response.url}


# What settings name by import path.


class Shallow(Opic):
    """AOPIC_ORDER."""

    def rank(self, row: bytes, host: HostView, visited: int) -> bytes:
        assert_type(host.name, str)
        return host.visited.to_bytes(6, "big") + row

    def front_queue(self, page: PageView, cash: int) -> int:
        return super().front_queue(page, cash >> page.shift)


class Wrong(Opic):
    def front_queue(self, page: PageView, cash: str) -> int:  # type: ignore[override]
        return 0


def weigh(request: Request, response: Response) -> float:
    """AOPIC_LINK_WEIGHTS."""
    return 3.0 if "/blog/" in request.url else 1.0


weighs: Weigh = weigh


# The core without Scrapy.


def link(url: str) -> Link:
    host = url.partition("/")[0]
    return Link(page_key(host_key(host), url.encode()), host, request=url.encode())


def crawl(port: CrawlPort, store: Store, now: float) -> None:
    assert_type(port.seed(link("a.example/"), now, worth=2.0), bool)
    found = port.lease(now)
    if isinstance(found, Lease):
        gap = port.transferred(found.host, TransferResult(0.1, Outcome.ANSWER, retry_after=1.0), now)
        assert_type(gap, Gap)
        assert_type(port.release(found, now), Ending)
        version = Version(b"digest", etag=b'"1"', changed_at=now - 60)
        settled = port.settle(found, [link("b.example/")], now, Findings("redirect", version=version))
        assert_type(settled, Settled)
        assert_type(settled.paid, Sequence[int])
    elif isinstance(found, NotBefore):
        assert_type(found.instant, float)
    elif isinstance(found, Unlocated):
        assert_type(found.name, str)
    elif isinstance(found, Empty):
        pass
    else:
        assert_never(found)
    batch = port.take_changes(now, is_clean=True)
    assert_type(batch, Batch)
    store.write(batch, sync=True)
    port.changes_landed()
    port.settle(b"key", [], now)  # type: ignore[arg-type]
    port.seed(link("a.example/"), now, 2.0)  # type: ignore[call-arg, arg-type]


def a_crawl_is_a_port(store: Store) -> CrawlPort:
    policy = Policy(
        order=Shallow(),
        politeness=Politeness(factor=5.0),
        window=Window(4, "variable"),
        recrawl=Recrawl(min_interval=60.0),
    )
    return Crawl(store, policy, 0.0)


def ending_is_three_things(ending: Ending) -> str:
    if ending is Ending.OK:
        return "done"
    if ending is Ending.DUP:
        return "done before"
    if ending is Ending.STALE:
        return "of another run"
    assert_never(ending)


def errors_are_ours(error: AopicError) -> bool:
    return isinstance(error, (CallError, StorageError))


# Stores.


class Rows:
    """A store of somebody else's."""

    def __init__(self, folder: Path, *, memory_mb: int, read_only: bool) -> None: ...

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        return [None for _ in keys]

    def scan(
        self, family: Family, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        yield from ()

    def write(self, batch: Batch, *, sync: bool) -> None: ...

    def size_bytes(self) -> int:
        return 0

    def verify(self) -> None: ...

    def compact(self) -> None: ...

    def close(self) -> None: ...


class Half:
    """It cannot write."""

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        return []


backend: Backend = Rows
compacts: Compacts = Rows(Path(), memory_mb=8, read_only=False)
wrong_store: Store = Half()  # type: ignore[assignment]


def stores_are_opened(folder: Path) -> None:
    for store in (open_store(folder, "sqlite"), open_snapshot(folder), MemoryStore()):
        port = a_crawl_is_a_port(store)
        crawl(port, store, 0.0)
        assert_type(audit(store).violations, list[str])


# Jobs that are read.


def a_job_is_read(folder: Path) -> None:
    job = scrapy_aopic.open_job(folder)
    assert_type([page.url for page in job.top(3)], list[str])
    assert_type([page.changes_a_day for page in job.pages()], list[float | None])
    assert_type([host.queued for host in job.hosts()], list[int])
    assert_type([link.target for link in job.links()], list[str])
    assert_type(job.why("http://a.test/").sentences, list[str])
    assert_type(job.status().pages.known, int)


# Tests of users.


class TestRows(StoreContract):
    def make_store(self, folder: Path, *, read_only: bool = False) -> Rows:
        return Rows(folder, memory_mb=8, read_only=read_only)


class TestHalf(StoreContract):
    def make_store(self, folder: Path, *, read_only: bool = False) -> Half:  # type: ignore[override]
        return Half()


class TestCrawls(CrawlContract):
    def make_crawl(self, store: Store, now: float) -> CrawlPort:
        return a_crawl_is_a_port(store)
