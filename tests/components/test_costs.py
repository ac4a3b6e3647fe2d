"""What answers cost: a page that takes the processor is cut, its host waits, and others go on meanwhile. Judged by counts alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from demo_web.server import Answer
from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.http import HtmlResponse, Response
from support.core_crawl import Job, link
from support.naming import case
from support.small_web import Follow, Web, check, crawl, until

from scrapy_aopic import BroadSpider, Links
from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.frontier.frontier import ORDINARY
from scrapy_aopic.core.order import Aopic
from scrapy_aopic.core.politeness import Outcome, Politeness, TransferResult
from scrapy_aopic.core.records import Link, host_key
from scrapy_aopic.session import costs
from scrapy_aopic.session.waits_and_ends import Standstill
from scrapy_aopic.view.dropped import FILE_NAME, read_dropped
from scrapy_aopic.web.parse_limits import too_many_attributes

Serve = Callable[[dict[str, Any]], Web]

SETTINGS = {"ADDONS": {"scrapy_aopic.Addon": 1}, "AOPIC_REPORT": False, "ROBOTSTXT_OBEY": False}
N_GOOD = 12


def html(body: bytes) -> Answer:
    return Answer(headers={"Content-Type": "text/html"}, body=body)


GOOD = {
    f"http://good.test/{n or ''}": html(b"<a href=/%d>%d</a>" % (n + 1, n) if n < N_GOOD else b"")
    for n in range(N_GOOD + 1)
}
HANDLERS: dict[str, dict[str, Any]] = {
    "Scrapy's": {"AOPIC_FAST_DOWNLOADS": False},
    "fast": {"AOPIC_FAST_DOWNLOADS": True},
    "aiohttp": {
        "DOWNLOAD_HANDLERS": {"http": "scrapy.core.downloader.handlers._aiohttp.AiohttpDownloadHandler"}
    },
}
LINKS = b"".join(b"<a href=http://h%d.test/>x</a>" % n for n in range(3_000))


async def n_visited(crawler: Crawler) -> int:
    n: int = crawler.stats.get_value("aopic/pages/visited", 0)
    return n


class Waiting(Follow):
    """Reads the page of an evil host until all pages of a good one were asked for, or a minute is over."""

    start_urls = ["http://evil.test/", "http://good.test/"]

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.n_good, self.n_seen = 0, -1

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        if "evil" in response.url:
            for _ in range(600):
                if self.n_good > N_GOOD:
                    break
                await asyncio.sleep(0.1)
            self.n_seen = self.n_good
            return
        self.n_good += 1
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href)


class Searching(Waiting):
    """Looks for links in the page of the evil host until then."""

    name = "searching"

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        if "evil" in response.url:
            yield _Sought(response, self)
            self.n_seen = self.n_good
            return
        async for each in super().parse(response):
            yield each


class _Sought(Links):
    def __init__(self, response: Response, spider: Waiting) -> None:
        super().__init__(response)
        self._spider = spider

    def steps(self) -> Iterator[str]:
        ends_at = monotonic() + 60
        while self._spider.n_good <= N_GOOD and monotonic() < ends_at:
            yield ""


@pytest.mark.parametrize(("spider", "size"), [(Waiting, 6_000_000), (Waiting, 4_500_000), (Searching, 1)])
async def test_requests_go_out_while_a_page_is_read(serve: Serve, spider: type[Waiting], size: int) -> None:
    serve({"http://evil.test/": html(b"<p>" + b"x" * size), **GOOD})
    crawler = await crawl(spider, {**SETTINGS, "AOPIC_PAGE_SECONDS": 0})
    assert crawler.spider.n_seen == N_GOOD + 1


@pytest.mark.slow
def test_a_page_is_read_in_many_steps_whatever_it_is_made_of() -> None:
    for text in (
        b"<p>",
        b"<a href=a>",
        b"<a href='/a" + b"/.." * 650 + b"/b'>",
        b"<a href=mailto:a>",
    ):
        page = HtmlResponse("http://evil.test/", body=b"<a href=a>" + text * (1_200_000 // len(text)))
        with case(text[:20]):
            assert sum(not url for url in Links(page).steps()) > 70
    attributes = b" ".join(b"a%d=1" % n for n in range(900))
    assert (
        len(list(too_many_attributes(HtmlResponse("http://evil.test/", body=(b"<p " + attributes) * 200))))
        > 70
    )


class Clock:
    """A thread's clock by which each piece of work takes a tenth of a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.1
        return self.now


class Both(BroadSpider):
    """Follows all links of a page that has many."""

    name = "both"
    custom_settings = {"USER_AGENT": "both (+https://example.org)"}
    seeds = "http://evil.test/"


class OnPurpose(Both):
    """Requests its page with an errback, so that it learns of a failure."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.failures: list[object] = []

    async def start(self) -> AsyncIterator[Any]:
        yield Request("http://evil.test/", self.parse_page, errback=self.fails)

    def fails(self, failure: object) -> None:
        self.failures.append(failure)


async def test_the_rest_of_a_page_that_takes_too_long_is_left_out(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(costs, "thread_time", Clock())
    monkeypatch.setattr(costs.Costs, "is_ending", False)
    serve({"http://evil.test/": html(LINKS)})
    once = {"JOBDIR": str(tmp_path), "CLOSESPIDER_PAGECOUNT": 1, "AOPIC_STORE": "auto", **SETTINGS}
    crawler = await crawl(Both, {**once, "AOPIC_PAGE_SECONDS": 1.0})
    assert crawler.stats.get_value("aopic/links/cut_pages") == 1
    assert "http://evil.test/: its links took" in caplog.text
    audit = check(tmp_path)
    assert audit.holds, audit.violations
    # A tenth of a second for fifty links at most, so some hundred in all; the first of those left out are known to "why".
    assert 0 < audit.queued < 600
    dropped = read_dropped(tmp_path / FILE_NAME)
    assert 0 < dropped["costly"].n <= 50
    assert not dropped["costly"].is_whole


async def test_an_end_does_not_wait_for_a_page_and_loses_none_of_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve({"http://evil.test/": html(LINKS)})
    once = {"JOBDIR": str(tmp_path), "AOPIC_STORE": "auto", "CLOSESPIDER_PAGECOUNT": 1, **SETTINGS}
    with monkeypatch.context() as patch:
        patch.setattr(costs, "thread_time", Clock())
        patch.setattr(costs.Costs, "is_ending", property(lambda costs: costs._engine.is_closing))
        crawler = await crawl(Both, once)
    assert await n_visited(crawler) == 0
    monkeypatch.setattr(costs.Costs, "is_ending", False)  # however long it takes to read the page
    crawler = await crawl(Both, {**once, "AOPIC_PAGE_SECONDS": 0})
    assert await n_visited(crawler) == 1
    audit = check(tmp_path)
    assert audit.holds, audit.violations
    assert audit.queued == 3_000


@pytest.mark.parametrize("is_on_purpose", [False, True], ids=["a seed", "with an errback"])
@pytest.mark.parametrize(("cost", "n_bytes"), [(0.2, 0), (0.0, 300_000)], ids=["took long", "is large"])
async def test_a_page_that_takes_long_before_its_callback_is_not_read_at_an_end(
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    cost: float,
    n_bytes: int,
    is_on_purpose: bool,
) -> None:
    seen: list[str] = []

    class Sees(OnPurpose if is_on_purpose else Both):  # type: ignore[misc]
        def parse_page(self, response: Response) -> Any:
            seen.append(response.url)
            return super().parse_page(response)

    serve({"http://evil.test/": html(LINKS + b" " * n_bytes)})
    once = {"JOBDIR": str(tmp_path), "AOPIC_STORE": "auto", "CLOSESPIDER_PAGECOUNT": 1, **SETTINGS}
    with monkeypatch.context() as patch:
        patch.setattr(costs, "thread_time", Clock())
        patch.setattr(costs.Costs, "since", lambda *arguments: arguments[2].worked(cost))
        patch.setattr(costs.Costs, "is_ending", property(lambda costs: costs._engine.is_closing))
        crawler = await crawl(Sees, once)
    assert await n_visited(crawler) == 0
    assert seen == []
    audit = check(tmp_path)
    assert audit.holds, audit.violations
    assert audit.queued == 1


@pytest.mark.parametrize("handler", HANDLERS)
async def test_an_end_does_not_wait_for_a_large_page_that_is_on_its_way(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, handler: str
) -> None:
    """Its host sends without end. What is small and slow is waited for, as ever."""
    if handler == "aiohttp":
        pytest.importorskip("aiohttp")
    monkeypatch.setattr(costs.Costs, "is_ending", property(lambda costs: costs._engine.is_closing))
    as_html = {"Content-Type": "text/html"}
    evil = Answer(headers=as_html, body=b"<p>" * 100_000, body_delay=0.5, endless=True)
    slow = Answer(headers=as_html, body=b"A page", body_delay=1.5)
    web = serve({"http://evil.test/": evil, "http://slow.test/": slow})
    begun = {"evil.test": 0, "slow.test": 0}

    class Two(OnPurpose):
        async def start(self) -> AsyncIterator[Any]:
            yield Request("http://slow.test/", self.parse_page)
            async for each in super().start():
                yield each

    def received(data: bytes, request: Request) -> None:
        begun["evil.test"] += len(data)

    def headers_received(request: Request) -> None:
        begun["slow.test"] += "slow" in request.url

    once = {"JOBDIR": str(tmp_path), "AOPIC_STORE": "auto", **SETTINGS, **HANDLERS[handler]}
    ends = until(lambda: begun["evil.test"] >= len(evil.body) and begun["slow.test"], Two)
    told = {signals.bytes_received: received, signals.headers_received: headers_received}
    crawler = await asyncio.wait_for(crawl(ends, once, told=told), 60)
    assert crawler.spider.failures == []
    found = crawler.stats.get_stats()
    assert found["aopic/pages/visited"] == 1
    assert not [
        name
        for name in found
        if name.startswith(("retry/", "aopic/politeness/down", "aopic/politeness/put", "aopic/errors"))
    ]
    audit = check(tmp_path)
    assert audit.holds, audit.violations
    assert audit.queued == 1
    web.pages["http://evil.test/"] = html(b"")
    crawler = await crawl(Two, once)
    assert await n_visited(crawler) == 1
    assert web.asked.count("http://slow.test/") == 1


def test_a_host_waits_for_a_multiple_of_what_its_answer_cost() -> None:
    job, evil = Job(), link("evil.test")
    host = host_key("evil.test")
    job.seed(evil)
    job.crawl.charge(host, ORDINARY, 0.0, job.now)
    assert job.crawl.not_before(host) <= job.now
    job.crawl.charge(host, 2.0, ORDINARY, job.now)
    assert job.crawl.not_before(host) == job.now + job.crawl.politeness.gap(2.0)


def test_another_way_to_a_host_opens_no_sooner_than_its_answers_and_its_rules_let_it() -> None:
    origin = "http://evil.test"
    for cost, least, gap in [(0.0, 0.0, 1.0), (2.0, 0.0, 20.0), (0.0, 5.0, 5.0), (2.0, 30.0, 30.0)]:
        job, host = Job(), host_key("evil.test")
        job.seed(link("evil.test"))
        with case((cost, least)):
            job.crawl.charge(host, cost, 0.0, job.now)
            job.crawl.transferred(
                "evil.test", TransferResult(0.1, Outcome.DOWN, 3600.0, least, "", origin), job.now
            )
            assert job.crawl.not_before(host) == job.now + 3600
            assert job.crawl.lift(host, origin, job.now) == gap
            assert job.crawl.not_before(host) == job.now + gap
            assert isinstance(job.crawl.lease(job.now + gap), Lease)


def test_a_domain_has_less_of_a_crawl_by_names_that_do_not_exist() -> None:
    job = Job(order=Aopic(), politeness=Politeness(0.0), domain_of=lambda name: name[-9:])
    job.seed(link("a.evil.test"), link("good.test"))
    for _ in range(2):
        lease = job.lease()
        job.finish(lease, *[link(lease.host, number) for number in range(1, 60)])
    silent = TransferResult(0.1, Outcome.SILENT, 0.0, 0.0, "", "http://h.evil.test", is_nowhere=True)
    for n in range(100):
        job.crawl.transferred(f"h{n}.evil.test", silent, job.now)
    assert {job.visit().host for _ in range(15)} == {"good.test"}


def test_domains_that_do_not_exist_are_under_the_budget_of_the_one_that_names_them() -> None:
    """A page may name a quarter of a million; each is new, and none of them is late by itself."""
    job = Job(order=Aopic(), politeness=Politeness(0.0), domain_of=lambda name: name)
    job.seed(link("evil.test"), link("good.test"))
    names = [f"h{n}.test" for n in range(200)]
    for _ in range(2):
        lease = job.lease()
        job.crawl.release(lease, job.now)
        own = [link(lease.host, number) for number in range(1, 400)]
        job.settle(lease, *(map(link, names) if lease.host == "evil.test" else own))
    asked = Counter[bool]()
    for _ in range(300):
        lease = job.lease()
        is_good = lease.host == "good.test"
        asked[is_good] += 1
        if not is_good:
            silent = TransferResult(
                0.1, Outcome.SILENT, 0.0, 0.0, "", f"http://{lease.host}", is_nowhere=True
            )
            job.crawl.transferred(lease.host, silent, job.now)
        job.crawl.release(lease, job.now)
        if is_good:
            job.settle(lease)
        else:
            job.crawl.put_back(lease, Link(lease.key, lease.host, lease.request), job.now)
    assert asked[False] < 150


def test_the_time_without_a_request_counts_while_a_host_is_due() -> None:
    now = [0.0]
    standstill = Standstill(lambda: now[0])

    def after(seconds: float) -> float:
        now[0] += seconds
        standstill.look()
        return standstill.longest

    assert after(9.0) == 0.0  # nothing is known to be due
    standstill.next_due(5.0)
    assert after(5.0) == 0.0
    assert after(2.0) == 2.0
    standstill.next_due()
    assert after(3.0) == 3.0
    standstill.next_due(inf)
    assert after(9.0) == 3.0
    standstill.next_due()
    assert after(1000.0) == 3.0  # the process was stopped
    standstill.lately = 0.0
    assert after(1.0) == 3.0
    assert standstill.lately == 1.0


def test_domains_whose_answers_cost_more_come_after_another_however_many_they_are() -> None:
    job, evil = Job(order=Aopic(), politeness=Politeness(0.0)), [f"evil{n}.test" for n in range(12)]
    job.seed(*map(link, evil), link("good.test"))
    for _ in range(13):
        lease = job.lease()
        job.finish(lease, *[link(lease.host, number) for number in range(1, 60)])
    for host in evil:
        job.crawl.charge(host_key(host), 0.05, 0.0, job.now)
    assert {job.visit().host for _ in range(50)} == {"good.test"}
