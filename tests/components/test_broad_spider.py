"""``BroadSpider``: what it fetches and keeps, by its options, its overridden methods, and under any scheduler."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Any

import pytest
from demo_web.server import Answer, Exchange
from scrapy import Request, signals
from scrapy.crawler import AsyncCrawlerRunner
from scrapy.http import HtmlResponse, Response, TextResponse
from scrapy.utils.misc import load_object
from scrapy.utils.test import get_crawler
from support.crawls import in_folder, keep, logged
from support.small_web import crawl

from scrapy_aopic import BroadSpider, Links
from scrapy_aopic.exceptions import SettingError

HOME = "http://www.example.com/"
PAGES: dict[str, Any] = {
    HOME: ["/1", "/2?x=1", "http://blog.example.com/", "http://example.org/", "/login", "/gone"],
    "http://www.example.com/1": [HOME, "/3"],
    "http://www.example.com/2?x=1": [],
    "http://www.example.com/3": ["http://example.org/4"],
    "http://www.example.com/login": [],
    "http://blog.example.com/": ["http://www.example.com/", "/5"],
    "http://blog.example.com/5": [],
    "http://example.org/": ["/4"],
    "http://example.org/4": [],
}
ALONE: dict[str, Any] = {"ADDONS": {"scrapy_aopic.Addon": None}}
STOCK: dict[str, Any] = {"SCHEDULER": "scrapy.core.scheduler.Scheduler"}
OURS: dict[str, Any] = {"SCHEDULER": "scrapy_aopic.Scheduler", **ALONE}
ADDON: dict[str, Any] = {"ADDONS": {"scrapy_aopic.Addon": 500}, "ROBOTSTXT_OBEY": False}
SCHEDULERS = pytest.mark.parametrize(
    "scheduler", [ALONE, STOCK, OURS, ADDON], ids=["stock alone", "stock", "ours alone", "addon"]
)


async def run(
    settings: dict[str, Any], spider: type[BroadSpider] = BroadSpider, **arguments: Any
) -> list[Any]:
    """Items of a crawl."""
    items: list[Any] = []
    settings = {"HTTPERROR_ALLOW_ALL": False, **settings}
    await crawl(spider, settings, told={signals.item_scraped: keep(items)}, **arguments)
    return items


@SCHEDULERS
async def test_it_fetches_what_links_lead_to_and_keeps_an_item_of_each_page(serve, scheduler):
    web = serve(PAGES)
    items = await run(scheduler, seeds=HOME)
    assert sorted(item["url"] for item in items) == sorted(PAGES)
    assert sorted(web.asked) == sorted([*PAGES, "http://www.example.com/gone"])
    assert {tuple(item) for item in items} == {("url", "title", "language", "type")}
    assert {item["type"] for item in items} == {"text/html"}


@pytest.mark.crossed
@pytest.mark.parametrize(
    ("options", "not_fetched"),
    [
        ({"domains": "example.com"}, ["http://example.org/", "http://example.org/4"]),
        ({"domains": "example.com, example.org"}, []),
        ({"scope": "domain"}, ["http://example.org/", "http://example.org/4"]),
        ({"scope": "host"}, ["http://example.org/", "http://example.org/4", "http://blog.example.com/", "http://blog.example.com/5"]),
        ({"scope": "elsewhere"}, sorted(PAGES.keys() - {HOME, "http://example.org/"})),
        ({"deny": r"/login|\?"}, ["http://www.example.com/login", "http://www.example.com/2?x=1"]),
        ({"deny": [r"/login", re.compile(r"/[1-4]$")], "scope": "domain"},
         ["http://www.example.com/login", "http://www.example.com/1", "http://www.example.com/3", "http://example.org/", "http://example.org/4"]),
        ({"allow": "example.com/[0-9]"},
         ["http://www.example.com/login", "http://blog.example.com/", "http://blog.example.com/5", "http://example.org/", "http://example.org/4"]),
    ],
    ids=str,
)  # fmt: skip
@SCHEDULERS
async def test_options_bound_the_crawl(serve, scheduler, options, not_fetched):
    serve(PAGES)
    items = await run(scheduler, seeds=HOME, **options)
    assert sorted(item["url"] for item in items) == sorted(PAGES.keys() - set(not_fetched))


@SCHEDULERS
async def test_its_meta_is_that_of_seeds_and_links_also_from_a_job_folder(serve, scheduler, tmp_path):
    class Shelf(BroadSpider):
        def parse_page(self, response: Response) -> Iterator[Any]:
            yield {"url": response.url, "shelf": response.meta["shelf"]}

    serve(PAGES)
    options = {"seeds": HOME, "domains": "example.com", "meta": {"shelf": (1, 2), "note": {}}}
    settings, items = in_folder(tmp_path, scheduler), []
    for pages in (3, 3, 3, 0):
        items += await run({**settings, "CLOSESPIDER_PAGECOUNT": pages}, Shelf, **options)
    assert {item["shelf"] for item in items} == {(1, 2)}
    assert {item["url"] for item in items} == {url for url in PAGES if "example.com" in url}


@SCHEDULERS
async def test_a_redirect_leads_out_of_scope_only_from_a_seed(serve, scheduler):
    web = serve(
        {
            "http://example.com/": Answer(301, {"Location": "http://www.example.com/"}),
            "http://www.example.com/": ["/old", "http://example.com/1"],
            "http://www.example.com/old": Answer(301, {"Location": "http://example.org/"}),
            "http://example.org/": ["/secret"],
        }
    )
    await run(scheduler, seeds="http://example.com/", scope="host")
    asked = ["http://example.com/", HOME, "http://www.example.com/old", "http://example.org/"]
    assert web.asked == asked


@SCHEDULERS
async def test_no_page_makes_it_read_a_local_file(serve, scheduler, tmp_path):
    secret = tmp_path / "secret.html"
    secret.write_text("<title>secret</title>")
    one, links = "http://www.example.com/1", [secret.as_uri(), "javascript:a()", "mailto:a@example.org", "/1"]
    serve({HOME: links, one: []})
    assert [item["url"] for item in await run(scheduler, seeds=HOME)] == [HOME, one]


async def test_seeds_are_urls_and_lists_and_those_outside_the_domains_are_told(serve, tmp_path, caplog):
    web = serve({url: [] for url in PAGES})
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("# mine\nhttp://www.example.com/1\n\nhttp://example.org/\n", encoding="utf-8")
    await run(OURS, seeds=f"{HOME}, {seeds}", domains="example.com")
    assert sorted(web.asked) == [HOME, "http://www.example.com/1"]
    told = (
        "1 of 3 seeds lie outside of domains (example.com) and are not fetched, such as http://example.org/"
    )
    assert told in caplog.text


@SCHEDULERS
async def test_scrapys_own_attributes_hold_and_nothing_is_kept_if_nothing_is_wanted(serve, scheduler):
    web = serve(PAGES)
    bound = {"start_urls": [HOME], "allowed_domains": ["www.example.com"]}
    assert await run(scheduler, fields="", **bound) == []
    assert {url.split("/")[2] for url in web.asked} == {"www.example.com"}


async def test_fields_are_what_the_page_says(serve):
    body = b"<html xml:lang=' de '><title>\n Two \xfcmlauts\n</title><svg><title>no</title></svg><a href=/1>1</a>"
    plain = Answer(headers={"Content-Type": "text/plain", "Content-Language": "fr"})
    home = Answer(headers={"Content-Type": "Text/HTML; charset=latin-1"}, body=body)
    one = "http://www.example.com/1"
    serve({HOME: home, one: plain})
    items = await run(STOCK, seeds=HOME, fields="type,url,language,title,status,depth")
    assert items == [
        {"type": "text/html", "url": HOME, "language": "de", "title": "Two ümlauts", "status": 200, "depth": 0},
        {"type": "text/plain", "url": one, "language": "fr", "title": "", "status": 200, "depth": 1},
    ]  # fmt: skip


class Generates(BroadSpider):
    def parse_page(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
        yield Request(response.urljoin("/5"), self.parse_five)

    def parse_five(self, response: Response) -> None:
        pass


class Awaits(BroadSpider):
    async def parse_page(self, response: Response) -> Any:
        await asyncio.sleep(0)
        return {"url": response.url}


class AwaitsEach(BroadSpider):
    async def parse_page(self, response: Response) -> AsyncIterator[Any]:
        await asyncio.sleep(0)
        yield {"url": response.url}


@pytest.mark.crossed
@pytest.mark.parametrize("spider", [Generates, Awaits, AwaitsEach])
@SCHEDULERS
async def test_parse_page_may_be_a_coroutine_or_a_generator(serve, scheduler, spider):
    serve(PAGES)
    items = await run(scheduler, spider, seeds=HOME)
    assert {item["url"] for item in items} == PAGES.keys()


@SCHEDULERS
async def test_a_page_whose_items_fail_still_has_its_links(serve, scheduler, caplog):
    class Fails(BroadSpider):
        def parse_page(self, response: Response) -> Any:
            yield {"url": response.url[: 1 // (response.url != HOME)]}

    web = serve(PAGES)
    await run(scheduler, Fails, seeds=HOME)
    assert {*web.asked} > PAGES.keys()
    assert "ZeroDivisionError" in caplog.text


@SCHEDULERS
async def test_links_can_be_chosen_within_the_options(serve, scheduler):
    class Chooses(BroadSpider):
        def links(self, response: Response) -> Links | None:
            if response.url.endswith("/1"):
                return None
            return self.in_scope(response, deny=r"\?")

    web = serve(PAGES)
    await run(scheduler, Chooses, seeds=[HOME], scope="domain", deny="/login")
    blog, www = "http://blog.example.com", "http://www.example.com"
    assert sorted(web.asked) == [f"{blog}/", f"{blog}/5", HOME, f"{www}/1", f"{www}/gone"]


@pytest.mark.parametrize(
    ("options", "fetched"),
    [
        ({}, ["http://blog.example.com/5", "http://www.example.com/1", "http://www.example.com/login"]),
        ({"scope": "host"}, ["http://www.example.com/1", "http://www.example.com/login"]),
        ({"scope": "elsewhere"}, []),
        ({"deny": "/login", "allow": "/[0-9l]"}, ["http://blog.example.com/5", "http://www.example.com/1"]),
        ({"allow": "/login", "scope": "domain"}, ["http://www.example.com/login"]),
    ],
    ids=str,
)
async def test_options_bound_what_is_taken_from_sitemaps(serve, options, fetched):
    entries = ("http://www.example.com/1", "http://www.example.com/login", "http://blog.example.com/5")
    mapped = f"<urlset>{''.join(f'<url><loc>{url}</loc></url>' for url in (*entries, 'http://example.org/4'))}</urlset>"
    sitemap = Answer(headers={"Content-Type": "application/xml"}, body=mapped.encode())
    pages: dict[str, Any] = {url: [] for url in (HOME, *entries)} | {f"{HOME}sitemap.xml": sitemap}
    web = serve(pages | {f"{HOME}robots.txt": Answer(body=b"Sitemap: /sitemap.xml")})
    settings = {**ADDON, "ROBOTSTXT_OBEY": True, "AOPIC_SITEMAPS": True}
    await run(settings, seeds=HOME, **options)
    assert sorted({*web.asked} - {HOME, "http://www.example.com/sitemap.xml"}) == fetched


def test_the_links_of_a_page_are_those_in_scope():
    body = b"<a href=/1 rel=nofollow>1</a><a href=//example.org/>2</a><a href=/x.pdf>3</a>"
    links = BroadSpider(scope="host").links(HtmlResponse("http://example.com/", body=body))
    assert list(links.urls()) == ["http://example.com/1"]


@pytest.mark.parametrize("kind", [Response, TextResponse], ids=["binary", "text"])
def test_what_is_no_page_has_no_links(kind):
    links = BroadSpider().links(kind("http://example.com/", body=b"\x00 <x>"))
    assert list(links.urls()) == []


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"seeds": "example.com"}, 'did you mean "https://example.com"?'),
    ({"seeds": "nowhere.txt"}, '"nowhere.txt" is neither)'),
    ({"seeds": "ftp://example.com/"}, "'ftp://example.com/' is no http or https URL with a host"),
    ({"seeds": "http://"}, "'http://' is no http or https URL with a host"),
    ({"seeds": b"http://example.com/"}, "seeds (b'http://example.com/') must be URLs"),
    ({"seeds": 7}, "seeds (7) must be URLs"),
    ({"seeds": HOME, "domains": "https://example.com/1"}, 'did you mean "example.com"?'),
    ({"seeds": HOME, "domains": "*.example.com"}, 'did you mean "example.com"?'),
    ({"seeds": HOME, "domains": "example.org"}, "seeds: all of them lie outside of domains (example.org), such as http://www.example.com/"),
    ({"seeds": HOME, "scope": "hosts"}, 'must be "everywhere", "domain", "host" or "elsewhere" (did you mean "host"?)'),
    ({"seeds": HOME, "allow": "("}, "allow ('(') must be a regular expression"),
    ({"seeds": HOME, "deny": ["x", ""]}, "an empty one is found in every URL"),
    ({"seeds": HOME, "deny": rb"x"}, "deny (b'x') must be a regular expression"),
    ({"seeds": HOME, "fields": "url,titel"}, 'did you mean "title"?'),
]  # fmt: skip


def test_a_wrong_option_is_one_sentence():
    for options, said in WRONG:
        with pytest.raises(SettingError) as raised:
            BroadSpider(**options).check()
        assert said in str(raised.value), options
        assert str(raised.value).startswith(tuple(options))
        assert str(raised.value).endswith("."), options


REFUSED: list[tuple[dict[str, Any], str]] = [
    *WRONG[:2],
    ({}, "seeds (()) must be URLs"),
    ({"seed": HOME}, "seed is no argument of the spider 'broad' (did you mean \"seeds\"?)"),
    ({"seeds": HOME, "links": "all"}, "links is a method of the spider 'broad', and no argument"),
]


@pytest.mark.parametrize(("options", "said"), REFUSED, ids=str)
@SCHEDULERS
async def test_a_crawl_with_a_wrong_option_does_not_start(scheduler, options, said, tmp_path, caplog):
    settings = {**scheduler, "JOBDIR": str(tmp_path / "job"), "AOPIC_REPORT": True}
    runner = AsyncCrawlerRunner({**settings, "TELNETCONSOLE_ENABLED": False})
    await runner.crawl(BroadSpider, **options)
    (error,) = logged(caplog, "ERROR", "CRITICAL")
    assert said in error
    assert error.endswith(" The crawl does not start.")
    assert runner.bootstrap_failed  # exit code 1
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize("text", ["\x00\xff\xfe", "http://example.com/\nexample.org\n", "", "# nothing\n"])
def test_a_list_with_a_wrong_line_is_refused(tmp_path, text):
    path = tmp_path / "seeds.txt"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(SettingError, match=re.escape(str(path))):
        BroadSpider(seeds=str(path)).check()


def test_a_list_may_be_given_as_a_path(tmp_path):
    path = tmp_path / "with, a comma.txt"
    path.write_text("http://example.com/\nhttp://example.org/\n", encoding="utf-8")
    assert BroadSpider(seeds=path).check() == 2


def test_the_add_on_is_on_and_leaves_alone_what_the_user_sets():
    for settings, scheduler, obeys in [
        ({}, "scrapy_aopic.scheduler", True),
        (STOCK, "scrapy.core.scheduler", True),
        ({"ROBOTSTXT_OBEY": False}, "scrapy_aopic.scheduler", False),
        ({"ADDONS": {"scrapy_aopic.Addon": None}}, "scrapy.core.scheduler", False),
    ]:

        class Own(BroadSpider):
            custom_settings = {"USER_AGENT": "own"}

        runner = AsyncCrawlerRunner(settings)
        for crawler in (get_crawler(Own, settings), runner.create_crawler(runner.create_crawler(Own))):
            if not crawler.settings.frozen:  # as it is when the spider is made
                crawler.addons.load_settings(crawler.settings)
            assert load_object(crawler.settings["SCHEDULER"]).__module__ == scheduler, settings
            assert crawler.settings.getbool("ROBOTSTXT_OBEY") == obeys, settings
            assert crawler.settings["USER_AGENT"] == "own", settings


def test_a_subclass_may_have_arguments_of_its_own(serve):
    class Own(BroadSpider):
        def __init__(self, seedling: str = "", **arguments: Any) -> None:
            super().__init__(**arguments)
            self.seedling = seedling

    spider = Own(seedling="1", other="2", seeds=HOME)
    spider._check_names({"seedling": "1", "other": "2", "seeds": HOME})
    assert spider.check() == 1


async def test_seeds_may_come_from_elsewhere(serve, tmp_path):
    web = serve(PAGES)
    (tmp_path / "seeds.txt").write_text("http://example.org/4\n", encoding="utf-8")
    await run({**OURS, "AOPIC_SEEDS": str(tmp_path / "seeds.txt")})
    assert web.asked == ["http://example.org/4"]


async def test_every_page_gets_its_cash_through_it(serve):
    def page(exchange: Exchange) -> Answer:
        return Answer(headers={"Content-Type": "text/html"}, body=b"<a href=/1>1</a><a href=/2>2</a>")

    serve(dict.fromkeys((HOME, "http://www.example.com/1", "http://www.example.com/2"), page))
    settings = {**ADDON, "ITEM_PIPELINES": {"scrapy_aopic.ImportancePipeline": 1}}
    items = await run(settings, seeds=HOME, fields="url")
    assert all(0 < item["importance"] <= 1 for item in items)
    assert len(items) == 3


@SCHEDULERS
async def test_an_item_can_have_the_text_of_its_page_and_what_is_known_of_the_response(serve, scheduler):
    pytest.importorskip("trafilatura")
    story = (
        "<p>The river rose by two metres in one night, and the bridge was closed until the morning.</p>" * 3
    )
    body = f"<title>News</title><nav><a href='/1'>Menu</a></nav><article><h2>Flood</h2>{story}<ul><li>one</li></ul></article>".encode()
    serve({HOME: Answer(headers={"Content-Type": "text/html", "X-Own": "yes"}, body=body), f"{HOME}1": []})
    fields = "url, text, markdown, bytes, headers, fetched_at"
    items = {item["url"]: item for item in await run(scheduler, seeds=HOME, fields=fields)}
    item = items[HOME]
    assert ", ".join(item) == fields
    assert item["text"].startswith("Flood\nThe river rose by two metres")
    assert item["markdown"].startswith("## Flood\n\nThe river rose by two metres")
    assert "Menu" not in item["text"]
    assert item["bytes"] == len(body)
    assert item["headers"]["x-own"] == "yes"
    assert datetime.fromisoformat(item["fetched_at"]).tzinfo is not None
    assert items[f"{HOME}1"]["text"] == "", "which has none"


def test_text_without_what_finds_it_is_refused(monkeypatch):
    monkeypatch.setattr("scrapy_aopic.spiders.has_extractor", lambda: False)
    with pytest.raises(SettingError, match=r"fields \('url,text'\).*pip install trafilatura"):
        BroadSpider(fields="url,text", seeds=HOME).check()


async def test_a_spider_whose_own_parse_follows_nothing_is_told_why(serve, caplog):
    class Own(BroadSpider):
        name = "own"
        seeds = HOME

        def parse(self, response: Response, **_: Any) -> Iterator[Any]:
            yield {"url": response.url}

    web = serve(PAGES)
    for spider, n in ((Own, 1), (BroadSpider, 0)):
        caplog.clear()
        await crawl(spider, {}, seeds=HOME)
        assert caplog.text.count("takes the place of BroadSpider's, so parse_page() is not called") == n
    assert web.asked.count(HOME) == 2
