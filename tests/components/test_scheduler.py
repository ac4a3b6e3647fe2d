"""``SCHEDULER = "scrapy_aopic.Scheduler"`` alone: order, cash, pacing, duplicates, and what can go wrong."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from demo_web.server import Answer
from scrapy import Request, Spider, signals
from scrapy.exceptions import CloseSpider
from scrapy.http import Response
from scrapy.utils.misc import load_object
from support.crawls import OURS, Visits, in_folder
from support.small_web import Follow, ask_view, check, crawl

from scrapy_aopic.copies.salvaging import salvage_job
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.ports import Batch, Family, Store
from scrapy_aopic.place.folder_place import FolderPlace, store_folder
from scrapy_aopic.session import visit
from scrapy_aopic.storage import open_store
from scrapy_aopic.storage.memory import MemoryStore
from scrapy_aopic.version import DOCS
from scrapy_aopic.view.queries import top_pages
from scrapy_aopic.view.snapshot import PageCounts, SetAside
from scrapy_aopic.view.stored import count, snapshot_of

ALONE = OURS


def on_disk(folder: Path) -> dict[str, Any]:
    return in_folder(folder, CONCURRENT_REQUESTS=1)


async def test_missing_middlewares_are_put_in_place_and_said_once(serve, caplog):
    serve({"http://a.test/": []})
    with caplog.at_level("INFO"):
        await crawl(Follow, ALONE)
    said = [record.getMessage() for record in caplog.records if "Put in place" in record.getMessage()]
    assert said == ["Put in place by the scheduler: LinkMiddleware, PolitenessMiddleware, Progress"]


async def test_listed_middlewares_are_not_put_in_place_again(serve, caplog):
    web = serve({"http://a.test/": ["http://a.test/1"], "http://a.test/1": []})
    listed = {
        "SPIDER_MIDDLEWARES": {"scrapy_aopic.LinkMiddleware": 2000},
        "DOWNLOADER_MIDDLEWARES": {"scrapy_aopic.PolitenessMiddleware": 990},
        "EXTENSIONS": {"scrapy_aopic.Progress": 0},
    }
    with caplog.at_level("INFO"):
        await crawl(Follow, {**ALONE, **listed})
    assert "Put in place" not in caplog.text
    assert len(web.asked) == 2


@pytest.mark.slow
async def test_cash_is_conserved_whatever_the_pages_are(serve, tmp_path):
    links = [
        "/ok",
        "/gone",
        "/moved",
        "/loop",
        "/error",
        "/cut",
        "/ok",
        "/",
        "http://b.test/x#here",
        "mailto:x@a.test",
    ]
    serve(
        {
            "http://a.test/": links,
            "http://a.test/ok": ["/", "/new"],
            "http://a.test/new": [],
            "http://a.test/moved": Answer(301, {"Location": "http://b.test/x"}),
            "http://a.test/loop": Answer(302, {"Location": "/loop"}),
            "http://a.test/error": Answer(500),
            "http://a.test/cut": Answer(abort=True),
            "http://b.test/x": ["http://a.test/ok"],
        }
    )
    crawler = await crawl(Follow, {**on_disk(tmp_path), "RETRY_TIMES": 1})
    result = check(tmp_path)
    assert result.cash + result.virtual == TOTAL
    assert result.queued == 0
    outcomes = ask_view(tmp_path, count).outcomes
    assert (outcomes["http 404"], outcomes["http 500"], outcomes["redirect"]) == (1, 1, 1)
    pages = {"http://a.test/", "http://a.test/ok", "http://a.test/new", "http://b.test/x"}
    assert {row.url for row in ask_view(tmp_path, top_pages, 10)} == pages
    convergence = ask_view(tmp_path, snapshot_of).ledger.convergence
    assert crawler.stats.get_value("aopic/cash/convergence") == convergence > 0


@pytest.mark.parametrize("kind", ["generator", "list", "async", "raises late", "raises at once"])
async def test_links_are_paid_whatever_kind_of_callback_yields_them(serve, tmp_path, kind):
    class Callback(Follow):
        def parse(self, response: Response) -> Any:
            if kind == "generator":
                return super().parse(response)
            if kind == "list":
                return list(super().parse(response))
            if kind == "async":
                return self.slow(response)
            if kind == "raises late":
                return self.broken(response)
            raise RuntimeError("at once")

        async def slow(self, response: Response) -> AsyncIterator[Any]:
            for request in super().parse(response):
                await asyncio.sleep(0)
                yield request

        def broken(self, response: Response) -> Iterator[Any]:
            yield from super().parse(response)
            raise RuntimeError("late")

    web = serve({"http://a.test/": ["/1", "/2"], "http://a.test/1": ["/2"], "http://a.test/2": []})
    await crawl(Callback, on_disk(tmp_path))
    rows = {row.url: row for row in ask_view(tmp_path, top_pages, 10)}
    if kind == "raises at once":
        assert web.asked == ["http://a.test/"]
    else:
        assert sorted(web.asked) == ["http://a.test/", "http://a.test/1", "http://a.test/2"]
        assert rows["http://a.test/2"].cash + rows["http://a.test/2"].history > 0


async def test_an_inline_request_with_the_meta_of_its_page_does_not_fail_the_page(serve, tmp_path):
    class Inline(Follow):
        async def parse(self, response: Response) -> AsyncIterator[Any]:
            await self.crawler.engine.download_async(Request("http://a.test/gone", meta=response.meta))
            for item in ():
                yield item

    serve({"http://a.test/": []})
    await crawl(Inline, on_disk(tmp_path))
    assert ask_view(tmp_path, snapshot_of).pages == PageCounts(known=1, visited=1)


@pytest.mark.slow
async def test_an_endless_callback_is_crawled_in_bounded_memory(serve, tmp_path, monkeypatch):
    most, n = 300_000, 0  # a fault ends at so many links, and not when the memory is full

    class Endless(Follow):
        async def parse(self, response: Response) -> AsyncIterator[Any]:
            nonlocal n
            while response.url.endswith("/") and len(web.asked) < 30 and n < most:
                n += 1
                yield Request(f"http://h{n % 7}.test/{n}")
                if n % 50 == 0:
                    await asyncio.sleep(0)

    monkeypatch.setattr(visit, "MAX_LINKS", 100)
    web = serve({"http://a.test/": []})
    settings = {**on_disk(tmp_path), "CLOSESPIDER_PAGECOUNT": 30, "CONCURRENT_REQUESTS": 8,
                "HTTPERROR_ALLOW_ALL": True}  # fmt: skip
    crawler = await crawl(Endless, settings)
    assert crawler.stats.get_value("finish_reason") == "closespider_pagecount"
    assert n < most  # its links were fetched while it ran


@pytest.mark.slow
@pytest.mark.parametrize("where", ["start", "parse"])
async def test_links_without_end_wait_for_a_disk_that_is_behind(serve, monkeypatch, where):
    disk_goes_on, seen, most = threading.Event(), asyncio.Event(), 300_000
    made: list[int] = []

    class StuckDisk(MemoryStore):
        def write(self, batch: Batch, *, sync: bool) -> None:
            if web.asked:
                disk_goes_on.wait()
            super().write(batch, sync=sync)

    def links() -> Iterator[Request]:
        while not disk_goes_on.is_set() and len(made) < most:
            made.append(len(made))
            yield Request(f"http://h{len(made) % 7}.test/{len(made)}")

    class Endless(Visits):
        async def start(self) -> AsyncIterator[Any]:
            yield Request("http://a.test/", self.first)
            await seen.wait()
            for request in links() if where == "start" else ():
                yield request

        async def first(self, response: Response) -> AsyncIterator[Any]:
            seen.set()
            for request in links() if where == "parse" else ():
                yield request

        def parse(self, response: Response) -> None:
            if disk_goes_on.is_set():
                raise CloseSpider("the disk went on")

    async def release_the_disk_when_nothing_moves() -> int:
        n = 0
        try:
            while not n or n != len(made):
                n = len(made)
                await asyncio.sleep(1.0)
        finally:
            disk_goes_on.set()
        return n

    web = serve({"http://a.test/": []})
    monkeypatch.setattr("scrapy_aopic.job.job.open_store", lambda *_, **__: StuckDisk())
    watching = asyncio.ensure_future(release_the_disk_when_nothing_moves())
    settings = {**ALONE, "CONCURRENT_REQUESTS": 2, "HTTPERROR_ALLOW_ALL": True}
    crawler = await crawl(Endless, settings)
    assert 0 < await watching < most
    assert crawler.stats.get_value("finish_reason") == "the disk went on"


async def test_a_request_that_cannot_be_written_is_kept_in_memory(serve, tmp_path, caplog):
    class Lambda(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            yield Request("http://a.test/1", callback=lambda response: got.append(response.url))
            yield Request("http://a.test/2", self.kept, meta={"object": marker})

        def kept(self, response: Response) -> None:
            got.append(response.meta["object"])

    got: list[Any] = []
    marker = object()
    serve({"http://a.test/": [], "http://a.test/1": [], "http://a.test/2": []})
    crawler = await crawl(Lambda, {**on_disk(tmp_path), "SCHEDULER_DEBUG": True})
    assert "http://a.test/1" in got
    assert marker in got
    assert crawler.stats.get_value("scheduler/unserializable") == 2
    assert caplog.text.count("Unable to serialize request: <GET http://a.test/1>") == 1


async def test_a_callback_that_is_gone_sets_its_requests_aside(serve, tmp_path, caplog):
    class Before(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            yield Request("http://a.test/1", self.gone)
            yield Request("http://a.test/2", self.parse)

        def gone(self, response: Response) -> None:
            pass

    web = serve({"http://a.test/": [], "http://a.test/1": [], "http://a.test/2": []})
    await crawl(Before, {**on_disk(tmp_path), "CLOSESPIDER_PAGECOUNT": 1})
    assert len(web.asked) == 1
    crawler = await crawl(Visits, on_disk(tmp_path), name=Before.name)
    assert web.asked == ["http://a.test/", "http://a.test/2"]
    assert "the spider 'follow' has no callback 'gone'" in caplog.text
    assert crawler.stats.get_value("finish_reason") == "aopic_unreadable"
    assert "Pages set aside: 1, " in caplog.text
    assert crawler.spider is None  # exit code 1
    counted = ask_view(tmp_path, count)
    assert counted.outcomes == {"unreadable": 1}
    reason = "ValueError: the spider 'follow' has no callback 'gone'"
    assert counted.set_aside == [SetAside(reason=reason, pages=1, example="http://a.test/1")]
    rows = {row.url: row for row in ask_view(tmp_path, top_pages, 9, everything=True)}
    assert rows["http://a.test/1"].cash == 0


@pytest.mark.parametrize("store", ["rocksdb", "sqlite"])
async def test_the_queue_of_another_spider_is_left_to_that(serve, tmp_path, caplog, store):
    class Before(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            yield from (Request(f"http://a.test/{n}", self.read) for n in range(3))

        def read(self, response: Response) -> None:
            pass

    web = serve({"http://a.test/": [], **{f"http://a.test/{n}": [] for n in range(3)}})
    settings = {**on_disk(tmp_path), "AOPIC_STORE": store}
    await crawl(Before, {**settings, "CLOSESPIDER_PAGECOUNT": 1})
    crawler = await crawl(Visits, settings, name="other")
    assert "is not for this spider: 'other' has no callback 'read'" in caplog.text
    assert crawler.stats.get_value("finish_reason") == "aopic_storage"
    assert web.asked == ["http://a.test/"]
    crawler = await crawl(Before, settings)
    assert crawler.stats.get_value("finish_reason") == "finished"
    assert len(web.asked) == 4


async def test_a_request_that_was_never_written_is_not_taken_for_one_of_the_next_process(serve, tmp_path):
    def asks(url: str) -> Request:
        return Request(url, callback=lambda response: None)

    numbered = [f"http://a.test/{n}" for n in range(6)]
    web = serve({url: [] for url in ("http://a.test/", "http://a.test/old", *numbered)})
    settings, start = {**on_disk(tmp_path), "CLOSESPIDER_PAGECOUNT": 1}, ["http://a.test/"]
    await crawl(Visits, settings, start_urls=start, parse=lambda response: [asks("http://a.test/old")])
    await crawl(Visits, on_disk(tmp_path), starts=[*map(asks, numbered)])
    assert sorted(web.asked) == ["http://a.test/", *numbered]
    (row,) = ask_view(tmp_path, count).set_aside
    assert row.example == "http://a.test/old"
    assert "could not be written when it was queued" in row.reason


async def test_a_page_that_was_set_aside_is_fetched_when_a_request_for_it_can_be_made(serve, tmp_path):
    class Before(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            yield Request("http://a.test/1", callback=lambda response: None)
            yield Request("http://a.test/2", self.parse)

    class After(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            yield Request("http://a.test/1")

    web = serve({"http://a.test/": [], "http://a.test/1": [], "http://a.test/2": []})
    await crawl(Before, {**on_disk(tmp_path), "CLOSESPIDER_PAGECOUNT": 1})
    crawler = await crawl(After, on_disk(tmp_path), start_urls=[])
    assert web.asked == ["http://a.test/", "http://a.test/2", "http://a.test/1"]
    assert crawler.stats.get_value("finish_reason") == "finished"


async def test_a_crawl_that_lost_its_requests_is_no_success(serve, tmp_path, caplog):
    """As a bug of ours would write them: with right checksums."""
    web = serve({"http://a.test/": [f"http://a.test/{n}" for n in range(9)]})
    await crawl(Follow, {**on_disk(tmp_path), "CLOSESPIDER_PAGECOUNT": 1})
    edit_requests(tmp_path, lambda data: b"\xff")
    assert check(tmp_path).n_violations == 10
    crawler = await crawl(Follow, on_disk(tmp_path), is_damaged=True)
    assert web.asked == ["http://a.test/"]
    assert crawler.stats.get_value("finish_reason") == "aopic_unreadable"
    assert crawler.spider is None  # exit code 1
    assert "Pages set aside: 9, " in caplog.text
    assert check(tmp_path).n_violations == 1  # that of the visited page; of the others it is known


async def test_a_crawl_with_pages_that_nothing_leads_to_ends_and_says_so(serve, tmp_path, caplog):
    web = serve({"http://a.test/": [f"http://a.test/{n}" for n in range(9)]})
    await crawl(Follow, {**on_disk(tmp_path), "CLOSESPIDER_PAGECOUNT": 1})
    edit(tmp_path, lambda store: {Family.META: {row: None for row, _ in store.scan(Family.META, b"A", b"B")}})
    assert not check(tmp_path).holds
    crawler = await crawl(Follow, on_disk(tmp_path), is_damaged=True)
    assert web.asked == ["http://a.test/"]
    assert crawler.stats.get_value("finish_reason") == "aopic_stranded"
    assert crawler.spider is None
    assert "Pages said to wait: 9," in caplog.text
    salvage_job(FolderPlace(tmp_path), tmp_path / "new")
    await crawl(Follow, on_disk(tmp_path / "new"))
    assert sorted(web.asked) == ["http://a.test/", *(f"http://a.test/{n}" for n in range(9))]


def edit(job: Path, batch: Callable[[Store], Any]) -> None:
    """Write what *batch* gives to the store of *job*, as the store itself would."""
    store = open_store(store_folder(job), "sqlite", memory_mb=8)
    store.write(batch(store), sync=True)
    store.close()


def edit_requests(job: Path, edited: Callable[[bytes], bytes]) -> None:
    edit(
        job,
        lambda store: {Family.REQUESTS: {key: edited(value) for key, value in store.scan(Family.REQUESTS)}},
    )


async def test_a_wrong_setting_stops_the_start_with_one_sentence(serve, caplog):
    web = serve({"http://a.test/": []})
    crawler = await crawl(Follow, {**ALONE, "AOPIC_WINDOW": "often"})
    assert web.asked == []
    (error,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert error == (
        "AOPIC_WINDOW ('often') must be a number of turns such as 8, or a time such as \"36 hours\" or "
        f'"4 months". See {DOCS} settings#aopic_window. The crawl does not start.'
    )
    assert crawler.stats.get_value("finish_reason") == "aopic_setting"


async def test_an_error_inside_is_logged_once_and_never_reaches_the_engine(serve, monkeypatch, caplog):
    from scrapy_aopic.core.crawl import Crawl
    from scrapy_aopic.core.pages import Pages

    def breaks(method: Any) -> Any:
        def broken(*args: Any) -> Any:
            if failing:
                raise ZeroDivisionError
            return method(*args)

        return broken

    failing: list[int] = []

    class Breaks(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            failing.append(1)
            yield from super().parse(response)
            yield Request("http://a.test/after")

    monkeypatch.setattr(Crawl, "find", breaks(Crawl.find))
    monkeypatch.setattr(Pages, "get_many", breaks(Pages.get_many))
    serve({"http://a.test/": ["/1", "/2", "/3"]})
    crawler = await crawl(Breaks, ALONE, has_errors=True)
    assert crawler.stats.get_value("aopic/errors") == 5  # three links, one more, and the end of the visit
    assert crawler.stats.get_value("finish_reason") == "finished"
    assert caplog.text.count("The scheduler failed on") == 2  # the links, and the end


@pytest.mark.parametrize("base", ["scrapy.dupefilters.RFPDupeFilter", "scrapy_aopic.DupeFilter"])
async def test_a_subclass_of_a_duplicate_filter_decides_and_is_told(serve, base):
    class Mine(load_object(base)):  # type: ignore[misc]
        def request_seen(self, request: Request) -> bool:
            return request.url.endswith("/never") or bool(super().request_seen(request))

        def log(self, request: Request, spider: Spider) -> None:
            logged.append(request.url)
            super().log(request, spider)

    logged: list[str] = []
    web = serve({"http://a.test/": ["/1", "/never"], "http://a.test/1": ["/1"]})
    crawler = await crawl(Follow, {**ALONE, "DUPEFILTER_CLASS": Mine})
    assert web.asked == ["http://a.test/", "http://a.test/1"]
    assert sorted(logged) == ["http://a.test/1", "http://a.test/never"]
    assert crawler.stats.get_value("dupefilter/filtered") == 2


@pytest.mark.parametrize(("debug", "lines"), [(False, 1), (True, 3)])
async def test_duplicates_are_dropped_counted_signalled_and_logged_as_dupefilter_debug_says(
    serve, caplog, debug, lines
):
    dropped: list[str] = []

    serve({"http://a.test/": ["/1", "/2"], "http://a.test/1": ["/2"], "http://a.test/2": ["/1", "/"]})
    told = {signals.request_dropped: lambda request: dropped.append(request.url)}
    settings = {**ALONE, "DUPEFILTER_DEBUG": debug, "CONCURRENT_REQUESTS": 1}
    with caplog.at_level("DEBUG"):
        crawler = await crawl(Follow, settings, told=told)
    assert caplog.text.count("Filtered duplicate request") == lines
    assert sorted(dropped) == ["http://a.test/", "http://a.test/1", "http://a.test/2"]
    assert crawler.stats.get_value("dupefilter/filtered") == 3
    assert crawler.stats.get_value("scheduler/enqueued") == crawler.stats.get_value("scheduler/dequeued") == 3
