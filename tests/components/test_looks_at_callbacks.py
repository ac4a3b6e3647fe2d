"""What looks at callbacks, or calls them by itself, finds those of the user, and requests where a crawl has ``Links``."""

from __future__ import annotations

import inspect
import json
import os
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest
from demo_web.server import Server
from itemadapter import ItemAdapter, is_item
from scrapy import Request, Spider, signals
from scrapy.commands.parse import Command
from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule
from scrapy.utils.test import get_crawler
from support import processes
from support.small_web import crawl

from scrapy_aopic import BroadSpider, Links, links

if TYPE_CHECKING:
    from page_objects import Nowhere  # nobody can import it


HOME = "http://a.test/"
PAGES: dict[str, Any] = {
    HOME: ["/1", "/2"],
    "http://a.test/1": ["/3"],
    "http://a.test/2": [],
    "http://a.test/3": [],
}
ADDON: dict[str, Any] = {"ADDONS": {"scrapy_aopic.Addon": 500}, "ROBOTSTXT_OBEY": False}
STOCK: dict[str, Any] = {"ADDONS": {"scrapy_aopic.Addon": None}}
OURS: dict[str, Any] = {**STOCK, "SCHEDULER": "scrapy_aopic.Scheduler"}
EVERYWHERE = pytest.mark.parametrize("settings", [STOCK, OURS, ADDON], ids=["stock", "alone", "addon"])


class Title:
    """What something like a page object is."""


# The parameters of a callback


class Typed(BroadSpider):
    name = "typed"

    def parse_page(self, response: HtmlResponse, title: Title, *, n: int = 1) -> Iterator[Any]:
        yield {"url": response.url, "title": title, "n": n}


class Untyped(BroadSpider):
    name = "untyped"

    async def parse_page(self, response, title):
        yield {"title": title}


class Later(Typed):
    """Another spider between it and the callback."""


class Mixed:
    def parse_page(self, response: Response, title: Title) -> None:
        """What a class that is no spider has for several of them."""


class WithMixed(Mixed, BroadSpider):
    name = "mixed"


class OwnParse(Typed):
    def parse(self, response: Response, own: str = "") -> Any:
        return super().parse(response, title=own)


class BelowOwnParse(OwnParse):
    def parse_page(self, response: Response, title: str) -> Any:
        return {"title": title}


def test_the_callback_that_scrapy_calls_has_the_parameters_of_the_users():
    for spider, parameters, hints in [
        (BroadSpider, ["response", "arguments"], {"response": Response, "arguments": Any, "return": Any}),
        (Typed, ["response", "title", "n"], {"response": HtmlResponse, "title": Title, "n": int, "return": Iterator[Any]}),
        (Later, ["response", "title", "n"], {"response": HtmlResponse, "title": Title, "n": int, "return": Iterator[Any]}),
        (Untyped, ["response", "title"], {}),
        (WithMixed, ["response", "title"], {"response": Response, "title": Title, "return": type(None)}),
        (OwnParse, ["response", "own"], {"response": Response, "own": str, "return": Any}),
        (BelowOwnParse, ["response", "own"], {"response": Response, "own": str, "return": Any}),
    ]:  # fmt: skip
        callback = spider().parse
        assert list(inspect.signature(callback).parameters) == parameters, spider
        assert get_type_hints(callback) == hints, spider
        assert callback.__name__ == "parse", spider
        assert "@" not in (callback.__doc__ or ""), (
            spider
        )  # else scrapy check would check the contracts of parse_page twice


def test_annotations_that_are_only_for_type_checkers_hinder_nothing():
    class Spider(BroadSpider):
        def parse_page(self, response: Response, page: Nowhere) -> Any:
            return {"page": page}

    assert list(inspect.signature(Spider().parse).parameters) == ["response", "page"]


@pytest.mark.crossed
@EVERYWHERE
@pytest.mark.parametrize("spider", [Typed, Untyped, Later, BelowOwnParse], ids=lambda cls: cls.__name__)
async def test_what_is_passed_to_the_callback_gets_to_the_users(serve, settings, spider):
    """scrapy-poet fills ``cb_kwargs`` in a downloader middleware; so does whoever makes a request."""
    web = serve(PAGES)
    items: list[Any] = []

    class Filling:
        def process_response(self, request: Request, response: Response) -> Response:
            request.cb_kwargs["own" if issubclass(spider, OwnParse) else "title"] = response.url
            return response

    await crawl(
        spider,
        {**settings, "DOWNLOADER_MIDDLEWARES": {Filling: 543}},
        told={signals.item_scraped: lambda item: items.extend([item])},
        seeds=HOME,
    )
    assert sorted(web.asked) == sorted(item["title"] for item in items) == sorted(PAGES)


async def test_a_canonical_page_does_not_get_what_was_made_for_another_one(serve, tmp_path):
    """Page objects cannot be written to the job folder, and are those of one response."""
    head = '<html><head><link rel="canonical" href="/other"></head><a href="/"></a></html>'
    web = serve({HOME: lambda _: html_answer(head), "http://a.test/other": []})
    given: dict[str, Any] = {}

    class Seeded(BroadSpider):
        name = "seeded"

        async def start(self) -> AsyncIterator[Any]:
            yield Request(HOME, cb_kwargs={"seed": "s"})

        def parse_page(self, response: Response, seed: str, title: Title) -> None:
            given[response.url] = seed, title

    class Filling:
        def process_response(self, request: Request, response: Response) -> Response:
            request.cb_kwargs["title"] = Title()
            return response

    crawler = await crawl(
        Seeded,
        {
            **ADDON,
            "DOWNLOADER_MIDDLEWARES": {Filling: 543},
            "JOBDIR": str(tmp_path / "job"),
            "AOPIC_STORE": "sqlite",
        },
    )
    assert web.asked == [HOME, "http://a.test/other"]
    assert [seed for seed, _ in given.values()] == ["s", "s"]
    assert len({title for _, title in given.values()}) == 2
    assert crawler.stats.get_value("scheduler/unserializable") is None


def html_answer(text: str) -> Any:
    from demo_web.server import Answer

    return Answer(headers={"Content-Type": "text/html"}, body=text.encode())


# Commands that call callbacks by themselves


class Yields(Spider):
    name = "yields"

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
        yield self.found(response)

    def found(self, response: Response) -> Links:
        return Links(response)


class Returns(Yields):
    name = "returns"

    def parse(self, response: Response) -> Any:
        return [{"url": response.url}, self.found(response)]


class Awaits(Yields):
    name = "awaits"

    async def parse(self, response: Response) -> Any:
        return [{"url": response.url}, await self.found_later(response)]

    async def found_later(self, response: Response) -> Any:
        found = self.found(response)
        assert isinstance(found, Links)
        return found


class YieldsLater(Awaits):
    name = "yields_later"

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        yield {"url": response.url}
        yield await self.found_later(response)


class Broad(BroadSpider):
    name = "broad"
    fields = "url"


class BroadLater(BroadSpider):
    name = "broad_later"

    async def parse_page(self, response: Response) -> dict[str, str]:
        return {"url": response.url}


class Rules(CrawlSpider):
    name = "rules"
    rules = [Rule(LinkExtractor(deny="."), callback="parse_item")]

    def parse_item(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
        yield Links(response, callback=self.parse_item)


def parse_command(spider: type[Spider], *, depth: int = 1, callback: str = "") -> Command:
    """``scrapy parse http://a.test/``, but for its process."""
    command = Command()
    command.items, command.requests = {}, {}  # type: ignore[misc]
    loader = SimpleNamespace(load=lambda _: spider)
    command.crawler_process = SimpleNamespace(spider_loader=loader)  # type: ignore[assignment]
    command.set_spidercls(
        HOME,
        Namespace(
            spider=spider.name, callback=callback, rules=False, depth=depth, meta=None, cbkwargs=None,
            pipelines=False, output=None,
        ),
    )  # fmt: skip
    return command


@pytest.mark.crossed
@pytest.mark.filterwarnings("ignore:.*returned a Deferred")  # Scrapy's command returns them
@pytest.mark.parametrize("settings", [STOCK, OURS, ADDON], ids=["stock", "alone", "addon"])
@pytest.mark.parametrize(
    ("cls", "callback"),
    [(Yields, ""), (Returns, ""), (Awaits, ""), (YieldsLater, ""), (Broad, ""), (BroadLater, ""), (Rules, "parse_item")],
    ids=lambda value: getattr(value, "name", ""),
)  # fmt: skip
async def test_scrapy_parse_shows_and_follows_requests(serve, cls, callback, settings):
    serve(PAGES)
    spider = type(cls.__name__, (cls,), {})  # the command changes the class
    command = parse_command(spider, depth=2, callback=callback)
    middleware = {"SPIDER_MIDDLEWARES": {"scrapy_aopic.LinkMiddleware": 2000}}
    await crawl(spider, {**middleware, **settings})
    assert [request.url for request in command.requests[1]] == ["http://a.test/1", "http://a.test/2"]
    assert [request.url for request in command.requests[2]] == ["http://a.test/3"]
    items = [ItemAdapter(item).asdict() for level in (1, 2) for item in command.items[level]]
    assert sorted(item["url"] for item in items) == sorted(PAGES.keys() - {"http://a.test/3"})


CHECKED = '''
from scrapy import Spider

from scrapy_aopic import BroadSpider, Links


class Plain(Spider):
    name = "plain"

    def parse(self, response):
        """
        @url {url}
        @returns requests 2 2
        @returns items 1 1
        @scrapes title
        """
        yield {{"title": ""}}
        yield Links(response)

    def parse_other(self, response):
        """
        @url {url}
        @returns requests 2 2
        """
        return Links(response)


class Broad(BroadSpider):
    name = "broad"

    def parse_page(self, response, title="none"):
        """
        @url {url}
        @cb_kwargs {{"title": "given"}}
        @returns items 1 1
        @returns requests 0 0
        @scrapes title
        """
        assert title == "given"
        yield {{"title": title}}
'''


@pytest.mark.slow
def test_contracts_hold_and_shell_and_fetch_get_pages_without_seeds(tmp_path):
    def run(*arguments: str) -> str:
        done = processes.run(
            [sys.executable, "-m", "scrapy", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
            timeout=300,
        )
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr + done.stdout
        return done.stdout + done.stderr

    server = Server(lambda _: html_answer("<title>t</title><a href=/1>1</a><a href=/2>2</a>"))
    with server.run_in_thread():
        settings = {
            "SPIDER_MODULES": ["checked"],
            "LOG_LEVEL": "ERROR",
            **ADDON,
            "AOPIC_POLITENESS_FACTOR": 0,
        }
        (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = chosen\n")
        (tmp_path / "chosen.py").write_text(
            "\n".join(f"{name} = {value!r}" for name, value in settings.items())
        )
        (tmp_path / "checked.py").write_text(CHECKED.format(url=server.url))
        assert "Ran 7 contracts" in run("check")
        code = (
            "print([response.status, [request.url for request in next(spider.parse(response)).requests()]])"
        )
        said = run("shell", server.url, "--spider", "broad", "-c", code)
        assert f"[200, ['{server.url}/1', '{server.url}/2']]" in said
        assert "<title>t</title>" in run("fetch", server.url, "--spider", "broad")


# Where nothing follows them


async def test_links_that_nothing_follows_are_items_and_the_log_says_so(serve, tmp_path, caplog):
    links._say_left.cache_clear()
    web = serve(PAGES)
    seen: list[Any] = []

    class Pipeline:
        def process_item(self, item: Any) -> Any:
            ItemAdapter(item)["seen"] = True
            seen.append(item)
            return item

    feed = tmp_path / "items.jsonl"
    await crawl(
        type("Stray", (Yields,), {"start_urls": [HOME]}),
        {"FEEDS": {feed: {"format": "jsonl"}}, "ITEM_PIPELINES": {Pipeline: 1}},
    )
    assert web.asked == [HOME]
    rows = [json.loads(line) for line in feed.read_text().splitlines()]
    assert {"url": HOME, "links": ["http://a.test/1", "http://a.test/2"]} in rows
    assert len(rows) == len(seen) == 2
    assert all(is_item(item) for item in seen)
    said = [record.getMessage() for record in caplog.records if "not followed" in record.getMessage()]
    assert len(said) == 1
    assert 'ADDONS = {"scrapy_aopic.Addon": 500}' in said[0]


def test_no_item_is_taken_for_links():
    assert not is_item(Response(HOME))
    assert dict(ItemAdapter({"url": HOME})) == {"url": HOME}
    assert get_crawler(Broad).spidercls is Broad
