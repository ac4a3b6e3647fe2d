"""``AOPIC_RECRAWL = True``: visited pages come back, changed pages are told from unchanged ones, none is lost.

A second is the shortest interval there is, so every repeated visit of these tests costs one. What is expected is
read from the server's log and from counts, and a crawl is stopped when the server has seen enough: no test measures
time.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from email.utils import formatdate
from hashlib import blake2b
from math import fsum
from pathlib import Path
from typing import Any

import pytest
from demo_web.server import Answer, Exchange
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.utils.test import get_crawler
from support import commands, processes
from support.core_crawl import ROUNDING
from support.crawls import Visits, in_folder, keep
from support.killed_crawl import command
from support.small_web import Follow, Web, ask, ask_view, check, crawl, html

from scrapy_aopic import Addon
from scrapy_aopic.core.layout import HINTS, Family
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.ports import Store
from scrapy_aopic.core.records import host_key, unpack, unpack_page
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.session import compared
from scrapy_aopic.view.job_view import open_view
from scrapy_aopic.view.queries import pages_in, top_hosts, top_pages
from scrapy_aopic.view.questions import top_domains
from scrapy_aopic.view.stored import snapshot_of
from scrapy_aopic.view.url_settings import CrawlRules
from scrapy_aopic.view.why import why
from scrapy_aopic.web.http_dates import read_stated_date
from scrapy_aopic.web.url_keys import key_of_url

pytestmark = pytest.mark.slow

Serve = Callable[[dict[str, Any]], Web]

HOME = "http://a.test/"
CONDITIONS = {"if-none-match", "if-modified-since"}


class Script:
    """A page that gives its answers in turn, the last one for ever, and keeps the headers of each request."""

    def __init__(self, *answers: Answer | list[str]) -> None:
        self._answers = [page(html(each)) if isinstance(each, list) else each for each in answers]
        self.asked: list[Exchange] = []

    def __call__(self, exchange: Exchange) -> Answer:
        self.asked.append(exchange)
        return self._answers[min(len(self.asked), len(self._answers)) - 1]

    @property
    def conditions(self) -> list[dict[str, str]]:
        """Conditional headers of each request."""
        return [{k: v for k, v in each.headers.items() if k in CONDITIONS} for each in self.asked]


def page(body: bytes, **headers: str) -> Answer:
    return Answer(headers={"Content-Type": "text/html", **headers}, body=body)


def tagged(links: list[str], etag: str = "", modified: str = "") -> Answer:
    headers = {"ETag": etag, "Last-Modified": modified}
    return page(html(links), **{k: v for k, v in headers.items() if v})


class Told(Follow):
    """Notes what its callback and errback are told."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.told: list[str] = []

    async def start(self) -> AsyncIterator[Any]:
        for url in self.start_urls:
            yield Request(url, errback=self.failed, dont_filter=True)

    def parse(self, response: Response) -> Iterator[Any]:
        self.told.append(f"{response.status} {response.url}")
        for request in super().parse(response):
            yield request.replace(errback=self.failed)

    def failed(self, failure: Any) -> None:
        response = getattr(failure.value, "response", None)
        self.told.append(f"{failure.type.__name__} {response.status if response is not None else ''}".strip())


async def crawl_until(
    enough: Callable[[], bool],
    folder: Path,
    spider: type[Spider] = Follow,
    *,
    visits: int = 0,
    items: list[Any] | None = None,
    **options: Any,
) -> Crawler:
    """Crawl until *enough* is true and so many *visits* have ended; the audit holds at the end.

    *items* gets the items, and *options* are settings, in capitals, and arguments of the spider.
    """
    settings = {"AOPIC_POLITENESS_FACTOR": 0, "AOPIC_BACKOFF": 0, "AOPIC_RECRAWL": [1, "90 days"]}
    settings |= {"RETRY_ENABLED": False, "CONCURRENT_REQUESTS": 1, "SCRAPER_SLOT_MAX_ACTIVE_SIZE": 1}
    settings |= {name: value for name, value in options.items() if name.isupper()}
    crawler = get_crawler(spider, in_folder(folder, **settings))
    crawler.signals.connect(keep([] if items is None else items), signal=signals.item_scraped, weak=False)

    async def watch() -> None:
        for _ in range(6000):  # a test that fails must end, too
            if enough() and (stats(crawler, "pages/visited") or 0) >= visits:
                break
            await asyncio.sleep(0.01)
        await crawler.stop_async()

    watching = asyncio.ensure_future(watch())
    await crawler.crawl_async(**{name: value for name, value in options.items() if name.islower()})
    watching.cancel()
    assert enough(), "the crawl ended by itself"
    assert check(folder).violations == []
    assert stats(crawler, "errors") is None
    return crawler


def stats(crawler: Crawler, name: str) -> Any:
    return crawler.stats.get_value(f"aopic/{name}")


def recrawled(crawler: Crawler) -> dict[str, int]:
    """The stats of repeated visits."""
    found = crawler.stats.get_stats().items()
    return {name.rpartition("/")[2]: n for name, n in found if name.startswith("aopic/recrawl/")}


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    return {row.url: row for row in ask_view(folder, top_pages, 100, everything=True)}


async def test_visited_pages_come_back_and_the_crawl_does_not_end(serve, tmp_path):
    pages = {HOME: ["/1", "http://b.test/"], "http://a.test/1": [], "http://b.test/": ["http://a.test/1"]}
    web = serve(pages)
    crawler = await crawl_until(lambda: min(web.asked.count(url) for url in pages) >= 3, tmp_path)
    assert {url: row.visits for url, row in rows(tmp_path).items()} == Counter(web.asked)
    n_again = len(web.asked) - 3
    assert recrawled(crawler) == {"new": 3, "visits": n_again, "unchanged": n_again}
    pages_of = ask_view(tmp_path, snapshot_of).pages
    assert (pages_of.queued + pages_of.visited, pages_of.failed) == (3, 0)


async def test_a_page_that_reloads_itself_is_one_at_every_visit(serve, tmp_path):
    texts = [f'<meta http-equiv="refresh" content="1; url=/"><a href="/end">{n // 2}</a>' for n in range(99)]
    reloads = Script(*(page(text.encode()) for text in texts))
    web = serve({HOME: reloads, "http://a.test/end": []})
    crawler = await crawl_until(lambda: len(reloads.asked) >= 10, tmp_path, REDIRECT_MAX_TIMES=2)
    assert "http://a.test/end" in web.asked
    assert recrawled(crawler)["visits"] >= 4
    assert stats(crawler, "outcomes/no answer") is None


async def test_a_crawl_ends_when_its_estimates_hardly_change(serve, tmp_path, caplog):
    pages = {HOME: ["/1", "/2"], "http://a.test/1": [HOME], "http://a.test/2": [HOME]}
    web = serve(pages)

    settings = in_folder(
        tmp_path,
        AOPIC_ENDOWMENT=0,
        AOPIC_VIRTUAL_SHARE=0,  # so each round of visits is two turns
        AOPIC_RECRAWL=[1, "90 days"],
        CLOSESPIDER_TIMEOUT=60,  # a crawl that does not end fails, and does not hang
    )
    caplog.set_level("INFO")
    for least in (0.9, 0.3, 0.3):  # the last one is there already
        crawler = await crawl(Follow, {**settings, "AOPIC_MIN_CONVERGENCE": least})
        assert crawler.stats.get_value("finish_reason") == "aopic_convergence"
        assert 0 < ask_view(tmp_path, snapshot_of).ledger.convergence < least
        assert f"AOPIC_MIN_CONVERGENCE is {least:g}" in caplog.text
    assert len(web.asked) > len(pages)
    assert check(tmp_path).violations == []


# Conditional requests


DATE = "Tue, 20 Oct 2026 07:28:00 GMT"


async def test_what_the_server_said_of_a_page_is_sent_back(serve, tmp_path):
    pages = {
        "both": (Script(tagged([], '"1"', DATE)), {"if-none-match": '"1"', "if-modified-since": DATE}),
        "weak": (Script(tagged([], 'W/"1"')), {"if-none-match": 'W/"1"'}),
        "date": (Script(tagged([], "", DATE)), {"if-modified-since": DATE}),
        "neither": (Script(tagged([])), {}),
        "long": (Script(tagged([], f'"{"x" * 300}"')), {}),  # too long to be kept with every page
    }
    serve({f"http://a.test/{name}": page for name, (page, _) in pages.items()})
    urls = [f"http://a.test/{name}" for name in pages]
    enough = lambda: all(len(page.asked) >= 3 for page, _ in pages.values())
    await crawl_until(enough, tmp_path, start_urls=urls)
    for page, sent in pages.values():
        assert page.conditions[:3] == [{}, sent, sent]


@pytest.mark.parametrize("settings", [{}, {"HTTPERROR_ALLOW_ALL": True}], ids=["default", "all are allowed"])
async def test_an_unchanged_page_costs_no_callback_and_pays_the_links_that_it_had(
    serve, tmp_path, caplog, settings
):
    home = Script(tagged(["/1", "/2"], '"1"'), Answer(304))
    serve({HOME: home, "http://a.test/1": [HOME], "http://a.test/2": [HOME]})
    closed = {"AOPIC_ENDOWMENT": 0, "AOPIC_VIRTUAL_SHARE": 0, **settings}
    with caplog.at_level("INFO"):
        crawler = await crawl_until(lambda: len(home.asked) >= 4, tmp_path, Told, **closed)
    assert crawler.spider.told.count(f"200 {HOME}") == 1
    assert [text for text in crawler.spider.told if not text.startswith("200 ")] == []
    assert "Ignoring response" not in caplog.text
    assert recrawled(crawler)["not_modified"] >= 2
    # Each unit that the three pages hold has gone round: nothing leaked to the virtual page but an odd unit a visit.
    visits = sum(row.visits for row in rows(tmp_path).values())
    assert 0 <= (TOTAL >> 24) - check(tmp_path).cash <= visits
    assert all(row.cash + row.history > 0 for row in rows(tmp_path).values())


async def test_a_changed_page_is_parsed_and_its_new_links_are_followed(serve, tmp_path):
    home = Script(tagged(["/1"], '"1"'), tagged(["/1", "/2"], '"2"'), Answer(304))
    web = serve({HOME: home, "http://a.test/1": [], "http://a.test/2": []})
    crawler = await crawl_until(lambda: len(home.asked) >= 3, tmp_path, Told)
    assert "http://a.test/2" in web.asked
    assert [each.get("if-none-match") for each in home.conditions[:3]] == [None, '"1"', '"2"']
    assert recrawled(crawler)["changed"] == 1
    assert crawler.spider.told.count(f"200 {HOME}") == 2


async def test_a_condition_is_not_passed_on_to_another_page(serve, tmp_path):
    class Copies(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            if response.url == HOME and len(home.asked) == 2:
                yield response.request.replace(url="http://a.test/copy")

    home = Script(tagged([], '"1"'), tagged([], '"2"'), Answer(302, {"Location": "/target", "ETag": '"3"'}))
    copy, target = Script(tagged([], '"1"')), Script(tagged([], '"2"'))
    serve({HOME: home, "http://a.test/copy": copy, "http://a.test/target": target})
    await crawl_until(
        lambda: len(copy.asked) >= 2 and len(target.asked) >= 2 and len(home.asked) >= 4, tmp_path, Copies
    )
    assert [each.get("if-none-match") for each in home.conditions[:4]] == [None, '"1"', '"2"', None]
    assert [each.get("if-none-match") for each in copy.conditions[:2]] == [None, '"1"']
    assert [each.get("if-none-match") for each in target.conditions[:2]] == [None, '"2"']


async def test_a_retry_keeps_no_old_condition(serve, tmp_path):
    home = Script(tagged([], '"1"'), Answer(503), tagged([], '"2"'), Answer(304))
    serve({HOME: home})
    crawler = await crawl_until(lambda: len(home.asked) >= 4, tmp_path, RETRY_ENABLED=True)
    assert [each.get("if-none-match") for each in home.conditions[:4]] == [None, '"1"', '"1"', '"2"']
    assert rows(tmp_path)[HOME].visits == 3
    assert stats(crawler, "recrawl/failed") is None


async def test_conditions_of_the_user_are_left_alone_and_their_304_is_told(serve, tmp_path):
    class Own(Told):
        async def start(self) -> AsyncIterator[Any]:
            yield Request(HOME, headers={"If-None-Match": '"mine"'}, errback=self.failed)

    home = Script(tagged([], '"1"', DATE), Answer(304))
    serve({HOME: home})
    crawler = await crawl_until(lambda: len(home.asked) >= 3, tmp_path, Own)
    assert home.conditions[:3] == [{"if-none-match": '"mine"'}] * 3
    assert crawler.spider.told[:2] == [f"200 {HOME}", "HttpError 304"]
    assert recrawled(crawler)["not_modified"] >= 2


async def test_a_request_with_a_body_is_made_again_as_it_was_and_without_conditions(serve, tmp_path):
    home = Script(tagged([], '"1"', DATE))
    serve({HOME: home})
    starts = [Request(HOME, method="POST", body=b"12345", headers={"X-Own": "kept"})]
    crawler = await crawl_until(lambda: len(home.asked) >= 3, tmp_path, Visits, starts=starts)
    asked = {(each.method, each.headers["content-length"], each.headers["x-own"]) for each in home.asked}
    assert asked == {("POST", "5", "kept")}
    assert home.conditions[:3] == [{}, {}, {}]
    assert recrawled(crawler)["unchanged"] >= 2


# What a visit found


class Finds(Follow):
    """Yields what it is told of each visit."""

    def parse(self, response: Response) -> Iterator[Any]:
        told = response.meta["aopic_found"]
        yield {"url": response.url, "told": told, "digest": blake2b(response.body, digest_size=8).hexdigest()}
        yield from super().parse(response)


async def test_callbacks_items_and_the_job_say_what_a_visit_found(serve, tmp_path):
    items: list[dict[str, Any]] = []
    home = Script(["/1"], ["/1"], ["/1", "/2"], Answer(503), ["/1", "/2"], ["/1"])
    serve({HOME: home, "http://a.test/1": Script([], Answer(404)), "http://a.test/2": []})
    names = ("found", "first_seen", "last_changed", "previous_digest")
    crawler = await crawl_until(
        lambda: len(home.asked) >= 7, tmp_path, Finds, AOPIC_ITEM_FIELDS=names,
        ITEM_PIPELINES={"scrapy_aopic.ImportancePipeline": 1}, items=items,
    )  # fmt: skip
    for item in items:
        assert {name: item[name] for name in names} == item["told"], item["url"]
    of_home = [item for item in items if item["url"] == HOME]
    words = ["new", "unchanged", "changed", "unchanged", "changed"]
    assert [item["found"] for item in of_home][:5] == words
    assert len({item["first_seen"] for item in of_home}) == 1
    before = [of_home[n]["digest"] if n is not None else None for n in (None, None, 1, 1, 2)]
    assert [item["previous_digest"] for item in of_home][:5] == before
    assert len({item["last_changed"] for item in of_home}) == 3
    assert (recrawled(crawler)["gone"], recrawled(crawler)["failed"]) == (1, 1)
    row = rows(tmp_path)["http://a.test/1"]
    assert (row.found, row.previous_digest) == ("gone", blake2b(html([]), digest_size=8).hexdigest())
    step = timedelta(milliseconds=2)  # of the time of a visit
    assert row.first_seen < row.last_changed <= row.visited_at + step
    with open_view(FolderPlace(tmp_path)) as view:
        answer = why(view.stores[0], HOME, CrawlRules(Settings()))
    if answer.kind == "fetched":  # and not queued for the next visit
        assert answer.facts["found"] in ("changed", "unchanged")


async def test_with_changed_each_change_gives_an_item_and_an_unchanged_page_none(serve, tmp_path):
    """Twenty pages without ``ETag``, four of which are others at each request; the crawl is stopped and goes on."""
    asked: Counter[str] = Counter()

    def numbered(exchange: Exchange) -> Answer:
        url = f"http://{exchange.host}{exchange.target}"
        asked[url] += 1
        n = asked[url] if int(exchange.target[1:]) % 5 == 1 else 0
        return page(b"%d " % n + html(urls))

    urls = [f"http://h{n}.test/{n}" for n in range(20)]
    items: list[dict[str, Any]] = []
    serve(dict.fromkeys(urls, numbered))

    class All(Finds):
        start_urls = urls
        start = Aged.start

    how: dict[str, Any] = {"AOPIC_RECRAWL": [1, "90 days", "changed"], "items": items}
    for n in (2, 4):
        await crawl_until(lambda n=n: len(asked) == 20 and min(asked.values()) >= n, tmp_path, All, **how)
    of_page = Counter(item["url"] for item in items)
    words = Counter(item["told"]["found"] for item in items)
    assert (words["new"], words.keys()) == (20, {"new", "changed"})
    changing = [url for n, url in enumerate(urls) if n % 5 == 1]
    same = {url: n for url, n in of_page.items() if url not in changing}
    assert same == {url: 1 for url in urls if url not in changing}
    visits = {url: row.visits for url, row in rows(tmp_path).items()}
    # A visit that did not count may have given one, too.
    assert all(of_page[url] >= visits[url] for url in changing)
    assert len({(item["url"], item["digest"]) for item in items}) == len(items)
    assert {row.outlinks for row in rows(tmp_path).values()} == {19}


class Priced(Told):
    """Notes what of a page is compared."""

    def price(self, response: Response) -> str | None:
        if response.url == f"{HOME}raises":
            raise LookupError("no price")
        return response.css("b::text").get()


@pytest.mark.parametrize("by", ["text", "main text", "spider.price", "bytes"])
async def test_what_is_compared_is_for_the_user_to_say(serve, tmp_path, by, caplog, monkeypatch):
    """Of each page something else moves with each request."""
    if by == "main text":
        pytest.importorskip("trafilatura")
    story = f"<p>{'A long story of a house by the sea that everybody wants to read to its end. ' * 9}</p>"
    moving = {
        "tag": lambda n: f"<!-- {n} --><article class=c{n}>{story}</article><b>5</b>",
        "menu": lambda n: f"<nav><a href=/{n}>Offer {n}</a></nav><article>{story}</article><b>5</b>",
        "price": lambda n: f"<article>{story}<p><b>{n}</b></p></article>",
        "raises": lambda n: f"<article>{story}</article>{' ' * n}",
    }
    found = {
        name: Script(*(page(f"<html><body>{each(n)}</body></html>".encode()) for n in range(99)))
        for name, each in moving.items()
    }

    class All(Priced):
        start_urls = [f"{HOME}{name}" for name in moving]

        def parse(self, response: Response) -> Iterator[Any]:
            self.told.append(response.url.removeprefix(HOME))
            yield from ()

    serve({f"{HOME}{name}": script for name, script in found.items()})
    searched: list[str] = []
    find = compared.main_text

    def counting(root: Any, form: str) -> str:
        searched.append(root.xpath("string(//article/@class)"))
        return find(root, form)

    monkeypatch.setattr(compared, "main_text", counting)
    words = ["changed", *([by] if by != "bytes" else [])]
    crawler = await crawl_until(
        lambda: min(len(script.asked) for script in found.values()) >= 3,
        tmp_path,
        All,
        AOPIC_RECRAWL=[1, "90 days", *words],
    )
    changed = {name for name, n in Counter(crawler.spider.told).items() if n > 1}
    expected = {"text": {"menu", "price"}, "main text": {"price"}, "spider.price": {"price", "raises"}}
    assert changed == (expected | {"bytes": {*moving}})[by]
    assert ("LookupError: no price" in caplog.text) == (by == "spider.price")
    assert len([name for name in searched if name]) == (by == "main text"), "of the same text once"


# When a page last changed, as its server says


YEAR = 365 * 86_400.0
AGES = {"http://a.test/old": 3 * YEAR, "http://a.test/older": 5 * YEAR, "http://a.test/new": 3600.0}
NONSENSE = ["Thu, 01 Jan 1970 00:00:00 GMT", "Tue, 20 Oct 2099 07:28:00 GMT", "yesterday"]


LINKED = html([*AGES, "/last"])


def aged(age: float, clock: float) -> Callable[[Exchange], Answer]:
    """A page that changed *age* seconds ago, on a server whose clock is *clock* seconds fast."""

    def answer(_: Exchange) -> Answer:
        now = time.time() + clock
        dates = {"Date": formatdate(now, usegmt=True), "Last-Modified": formatdate(now - age, usegmt=True)}
        return page(LINKED, **dates)

    return answer


class Aged(Follow):
    """Requests pages that link to each other, to be filtered, so that no link leads to a second visit."""

    start_urls = [*AGES, "http://a.test/last"]

    async def start(self) -> AsyncIterator[Any]:
        for url in self.start_urls:
            yield Request(url)


HOURLY = {"AOPIC_RECRAWL": [3600, "90 days"]}


@pytest.mark.parametrize(
    "clock", [0.0, -10 * YEAR, 10 * YEAR], ids=["right", "10 years slow", "10 years fast"]
)
async def test_pages_that_changed_lately_by_the_clock_of_their_server_seem_to_change_more_often(
    serve, tmp_path, clock
):
    web = serve({url: aged(age, clock) for url, age in AGES.items()} | {"http://a.test/last": []})
    await crawl_until(lambda: len(web.asked) >= 4, tmp_path, Aged, visits=4, **HOURLY)
    rates = {url: row.changes_a_day or 0.0 for url, row in rows(tmp_path).items() if url in AGES}
    assert sorted(rates, key=rates.__getitem__, reverse=True) == sorted(AGES, key=AGES.__getitem__)


@pytest.mark.parametrize("date", [DATE, "now", ""], ids=["date", "word", "none"])
async def test_dates_that_cannot_be_true_say_nothing_of_changes(serve, tmp_path, date):
    sent = {"Date": date} if date else {}
    modified = NONSENSE if date == DATE else [DATE, NONSENSE[0], "Tue, 20 Oct 2026 06:28:00 GMT"]
    pages: dict[str, Any] = {
        url: page(LINKED, **sent, **{"Last-Modified": text}) for url, text in zip(AGES, modified, strict=True)
    }
    web = serve(pages | {"http://a.test/last": []})
    await crawl_until(lambda: len(web.asked) >= 4, tmp_path, Aged, visits=4, **HOURLY)
    assert {url: row.changes_a_day for url, row in rows(tmp_path).items()} == dict.fromkeys(web.asked)


async def test_a_revisit_that_comes_too_late_is_said_with_how_much_and_what_would_hold(
    serve, tmp_path, caplog
):
    web = serve({HOME: ["/1", "/2"], "http://a.test/1": [], "http://a.test/2": []})
    rules = {"AOPIC_HOST_RULES": {"a.test": {"revisit": [1, 1], "min_gap": 0.5}}}
    crawler = await crawl_until(lambda: len(web.asked) >= 9, tmp_path, **rules)
    assert stats(crawler, "recrawl/late") >= 3
    assert stats(crawler, "recrawl/late_seconds/max") > 0
    said = [record.getMessage() for record in caplog.records if "fall behind" in record.getMessage()]
    assert len(said) == 1
    assert "visits a minute" in said[0]
    assert "http://a.test/" in said[0]
    given = f"AOPIC_HOST_RULES={json.dumps(rules['AOPIC_HOST_RULES'])}"
    plan = commands.said(tmp_path, "hosts", tmp_path, "--revisits", "-s", given)
    assert "3 pages take 259,200 revisits a day" in plan
    assert "times as late" in plan
    assert "a.test: 3 pages take 259,200 visits a day, and its gaps allow" in plan


def sitemap(dates: dict[str, str]) -> Answer:
    entries = "".join(f"<url><loc>{url}</loc><lastmod>{date}</lastmod></url>" for url, date in dates.items())
    return Answer(headers={"Content-Type": "text/xml"}, body=f"<urlset>{entries}</urlset>".encode())


def hints_of(store: Store) -> dict[bytes, Any]:
    """The dates of pages, and what is learned of those of a host, by their keys."""
    pages = {key: unpack_page(row).changes for key, row in store.scan(Family.PAGES)}
    counts = {key[1:]: unpack(row) for key, row in store.scan(Family.CONTENT, HINTS, bytes((HINTS[0] + 1,)))}
    return {**counts, **{key: changes.dated_at for key, changes in pages.items() if changes is not None}}


@pytest.mark.parametrize("named", ["by robots.txt", "by a page"])
async def test_dates_of_a_sitemap_are_compared_with_what_visits_find(serve, tmp_path, named):
    one, old = "http://a.test/1", "2020-01-01"
    maps = Script(sitemap({one: old, HOME: old}), sitemap({one: "2100-01-01T00:00:00Z", HOME: old}))
    is_in_robots = named == "by robots.txt"
    robots = Answer(
        headers={"Content-Type": "text/plain"}, body=b"Sitemap: http://a.test/map.xml" * is_in_robots
    )
    head = b'<link rel="alternate" type="application/rss+xml" href="map.xml">' * (not is_in_robots)
    home = page(head + html([]))
    pages = {HOME: home, one: Script([], [], ["/2"]), "http://a.test/2": []}
    web = serve({**pages, "http://a.test/robots.txt": robots, "http://a.test/map.xml": maps})
    settings = {
        "ROBOTSTXT_OBEY": True,
        "AOPIC_SITEMAPS": True,
        "AOPIC_RECRAWL": [1, 2],
        "SPIDER_MIDDLEWARES": {"scrapy_aopic.LinkMiddleware": 1000},
    }

    def enough() -> bool:
        n_maps = web.asked.count("http://a.test/map.xml")
        return n_maps >= 2 and web.asked.count(one) >= 4

    await crawl_until(enough, tmp_path, **settings)
    hints = ask(tmp_path, hints_of)
    found = {url: hints[key_of_url(url)[1]] for url in (HOME, one)}
    assert found[HOME] == read_stated_date(old)
    assert found[one] == read_stated_date("2100-01-01T00:00:00Z")
    silent_same, _, _, hinted_same, hinted_changed, _ = hints[host_key("a.test")]
    assert silent_same
    assert hinted_same + hinted_changed == 1  # of one hint, however often the sitemap is read again


# Pages that disappear, fail or move


async def test_a_page_that_is_gone_is_retired_and_its_cash_goes_back(serve, tmp_path):
    gone, other = {code: Script([], Answer(code)) for code in (404, 410)}, Script([])
    paths = {f"http://a.test/{code}": page for code, page in gone.items()}
    serve({HOME: Script([*paths, "/other"]), "http://a.test/other": other, **paths})
    retired_after: list[int] = []

    def enough() -> bool:
        if all(len(page.asked) == 2 for page in gone.values()) and not retired_after:
            retired_after.append(len(other.asked))
        return bool(retired_after) and len(other.asked) >= retired_after[0] + 3

    crawler = await crawl_until(enough, tmp_path)
    assert [len(page.asked) for page in gone.values()] == [2, 2]
    assert recrawled(crawler)["gone"] == 2
    assert ask_view(tmp_path, snapshot_of).pages.failed == 2
    for code in gone:
        row = rows(tmp_path)[f"http://a.test/{code}"]
        assert (row.cash, row.visits, row.outcome) == (0, 2, f"http {code}")


async def test_a_page_that_is_gone_is_asked_for_again_if_that_is_wanted_and_is_back(serve, tmp_path):
    items: list[dict[str, Any]] = []
    gone, other = Script(["/other"], Answer(404), Answer(404), Answer(404), ["/other"]), Script([])
    serve({HOME: ["/gone", "/other"], "http://a.test/gone": gone, "http://a.test/other": other})
    how: dict[str, Any] = {"AOPIC_RECRAWL": [1, "90 days", "changed", "gone"], "items": items}
    for n in (3, 6):  # the crawl is stopped while it is gone, and goes on
        crawler = await crawl_until(lambda n=n: len(gone.asked) >= n, tmp_path, Finds, **how)
    assert [item["told"]["found"] for item in items if "gone" in item["url"]] == ["new", "gone", "back"]
    assert {recrawled(crawler).get(name) for name in ("gone", "back")} == {None, 1}
    assert rows(tmp_path)["http://a.test/gone"].outcome == ""


@pytest.mark.parametrize("is_asked_for", [True, False])
async def test_a_missing_page_that_a_callback_finds_links_in_is_retired_if_pages_that_are_gone_are_asked_for(
    serve, tmp_path, is_asked_for
):
    class Handles(Told):
        handle_httpstatus_list = [] if is_asked_for else [404]

    home, linked = Script([], Answer(404, {"Content-Type": "text/html"}, html(["/1"]))), Script([])
    serve({HOME: home, "http://a.test/1": linked})
    how = [1, "90 days", *["changed", "gone"] * is_asked_for]
    enough = (lambda: len(linked.asked) >= 3) if is_asked_for else (lambda: len(home.asked) >= 3)
    crawler = await crawl_until(enough, tmp_path, Handles, AOPIC_RECRAWL=how)
    assert crawler.spider.told[:3] == [f"200 {HOME}", f"404 {HOME}", "200 http://a.test/1"]
    assert stats(crawler, "recrawl/gone") == (1 if is_asked_for else None)
    assert (crawler.spider.told.count(f"404 {HOME}") == 1) == is_asked_for


async def test_a_page_that_fails_for_a_time_is_not_retired_and_pays_the_links_that_it_had(serve, tmp_path):
    failures = {
        "http 503": Answer(503),
        "http 403": Answer(403),
        "ResponseNeverReceived": Answer(abort=True),
        "TimeoutError": Answer(delay=600),
    }
    homes = [
        Script([f"http://h{n}.test/1"], failure, [f"http://h{n}.test/1"])
        for n, failure in enumerate(failures.values())
    ]

    urls = [f"http://h{n}.test/" for n in range(len(failures))]

    class Impatient:
        """Does not wait for the answer that never comes."""

        def process_request(self, request: Request) -> None:
            is_last = request.url == urls[-1] and len(homes[-1].asked) == 1
            request.meta["download_timeout"] = 0.3 if is_last else 60

    pages: dict[str, Any] = dict(zip(urls, homes, strict=True)) | {f"{url}1": [url] for url in urls}
    serve(pages)
    closed = {"AOPIC_ENDOWMENT": 0, "AOPIC_VIRTUAL_SHARE": 0, "DOWNLOADER_MIDDLEWARES": {Impatient: 1}}
    enough = lambda: all(len(home.asked) >= 4 for home in homes)
    crawler = await crawl_until(enough, tmp_path, start_urls=urls, **closed)
    assert recrawled(crawler)["failed"] == 4
    assert stats(crawler, "recrawl/gone") is None
    for name in ("http 503", "http 403"):
        assert stats(crawler, f"outcomes/{name}") == 1
    assert {row.outcome or row.state for row in rows(tmp_path).values()} <= {"visited", "queued"}
    n_visits = sum(row.visits for row in rows(tmp_path).values())
    seeds = 0
    for _ in failures:
        seeds += (TOTAL - seeds) >> 24
    assert 0 <= seeds - check(tmp_path).cash <= n_visits


async def test_a_page_that_begins_to_redirect_passes_its_cash_on_and_still_comes_back(serve, tmp_path):
    home, new = Script(["/1"], Answer(301, {"Location": "/new"})), Script([HOME])
    serve({HOME: home, "http://a.test/1": [HOME], "http://a.test/new": new})
    crawler = await crawl_until(lambda: len(home.asked) >= 4 and len(new.asked) >= 2, tmp_path)
    row = rows(tmp_path)[HOME]
    assert (row.outcome or row.state) in ("redirect", "queued")
    assert recrawled(crawler)["moved"] == 1
    assert stats(crawler, "recrawl/gone") is None


async def test_the_importances_of_all_pages_add_up_to_one_and_are_the_same_everywhere(serve, tmp_path):
    items: list[dict[str, Any]] = []

    class Valued(Follow):
        start_urls = [HOME, "http://b.test/"]

        def parse(self, response: Response) -> Iterator[Any]:
            yield {"url": response.url}
            yield from super().parse(response)

    gone, moved = Script([HOME], Answer(404)), Script([HOME], Answer(301, {"Location": "/new"}))
    pages: dict[str, Any] = {
        HOME: ["/1", "/gone", "/moved"],
        "http://a.test/1": [HOME, "/gone"],
        "http://a.test/new": ["/1"],
        "http://b.test/": [HOME],
    }
    twice = {"http://a.test/gone": gone, "http://a.test/moved": moved}
    web = serve(pages | twice)

    def enough() -> bool:
        return min(web.asked.count(url) for url in (*pages, *twice)) >= 2

    settings = {
        "AOPIC_ORDER": "opic",
        "AOPIC_VIRTUAL_SPENDING": "visited",
        "AOPIC_ENDOWMENT": 0,
        "ITEM_PIPELINES": {"scrapy_aopic.ImportancePipeline": 300},
    }
    await crawl_until(enough, tmp_path, Valued, items=items, **settings)
    assert all(0 < item["importance"] <= 1 for item in items)
    listed = {url: row.importance for url, row in rows(tmp_path).items()}
    gone_or_moved = {"http://a.test/gone", "http://a.test/moved"}
    assert {url for url, each in listed.items() if not each} == gone_or_moved
    assert abs(fsum(listed.values()) - 1) <= ROUNDING
    addon = Settings()
    Addon().update_settings(addon)
    asked = {url: ask(tmp_path, why, url, CrawlRules(addon)).facts.get("importance") for url in listed}
    assert asked == {**listed, "http://a.test/moved": None}, "of which the new one is told"
    with open_view(FolderPlace(tmp_path)) as view:
        assert {page.url: page.importance for [*some] in pages_in(view, 2) for page in some} == listed
        hosts = {row.host: row.importance for row in top_hosts(view, 9)}
        assert fsum(hosts.values()) == pytest.approx(1, abs=1e-15)
        domains = top_domains(view, 1, has_importance=True)["domains"]
        assert [row["importance"] for row in domains] == pytest.approx([hosts["a.test"], hosts["b.test"]])


# Stops and crashes


def test_pages_come_back_after_a_kill(serve, tmp_path):
    pages = {f"http://h0.test/{n}": [f"http://h0.test/{n + 1}"] for n in range(5)} | {"http://h0.test/5": []}
    web = serve(pages)
    job = tmp_path / "job"
    again = {"AOPIC_RECRAWL": '[1, "90 days"]', "AOPIC_POLITENESS_FACTOR": 0, "AOPIC_BACKOFF": 0}
    line, environment = command(job, os.environ["http_proxy"], **again)
    for last, n in ((signal.SIGKILL, 2), (signal.SIGKILL, 3), (signal.SIGINT, 4)):
        with processes.start(line, env=environment, cwd=tmp_path) as process:
            while process.poll() is None and min(web.asked.count(url) for url in pages) < n:
                time.sleep(0.01)
            assert process.poll() is None, "the crawl ended by itself"
            process.send_signal(last)
        result = check(job)
        assert result.violations == []
        assert result.pages == len(pages)


async def test_a_page_that_was_asked_for_twice_comes_back_once(serve, tmp_path):
    class Polls(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            if response.url == HOME:
                yield Request("http://a.test/1", cb_kwargs={"n": 1}, callback=self.poll)
                if len(home.asked) == 1:
                    yield Request("http://a.test/1", dont_filter=True, cb_kwargs={"n": 2}, callback=self.poll)
                    yield Request("http://a.test/1", dont_filter=True, cb_kwargs={"n": 3}, callback=self.poll)

        def poll(self, response: Response, n: int) -> None:
            polled.append(n)

    polled: list[int] = []
    home = Script([])
    serve({HOME: home, "http://a.test/1": []})
    await crawl_until(lambda: len(home.asked) >= 3 and len(polled) >= 5, tmp_path, Polls)
    assert (polled.count(2), polled.count(3)) == (1, 1)
    assert polled.count(1) >= 3
