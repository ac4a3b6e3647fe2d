"""Which requests are links of a page, and which the spider makes on purpose; what becomes of both under the add-on."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import pytest
from demo_web.server import Answer
from scrapy import FormRequest, Request
from scrapy.http import HtmlResponse, JsonResponse, Response, TextResponse, XmlResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule, SitemapSpider
from support import crawls
from support.crawls import Visits, in_folder, logged
from support.small_web import ask_view, crawl

from scrapy_aopic.request_errors import UnwantedTypeError
from scrapy_aopic.session.links.found_link import link_test
from scrapy_aopic.view.stored import count
from scrapy_aopic.web.meta import SITEMAP

HOME = "http://a.test/"
ADDON: dict[str, Any] = {**crawls.ADDON, "ROBOTSTXT_OBEY": False}
JSON = {"Content-Type": "application/json"}


class Two(Visits):
    """A spider with two callbacks."""

    def other(self, response: Response) -> None: ...


SPIDER = Two()
ANCHOR = b'<a href="/x">x</a>'


def page(kind: type[TextResponse] = HtmlResponse, body: bytes = ANCHOR, **options: Any) -> TextResponse:
    return kind(HOME, body=body, request=Request(HOME, **options))


def test_a_link_is_what_nothing_tells_from_its_page():
    for response, request_, is_link in [
        (page(), Request(HOME), True),
        (page(), Request(HOME, SPIDER.parse), True),
        (page(callback=SPIDER.parse), Request(HOME), True),
        (page(callback=SPIDER.other), Request(HOME, SPIDER.other, method="HEAD"), True),
        (page(callback=SPIDER.other), Request(HOME), False),
        (page(), Request(HOME, SPIDER.other), False),
        (page(), Request(HOME, callback=lambda response: None), False),
        (page(), Request(HOME, dont_filter=True), False),
        (page(), Request(HOME, meta={"verbatim_url": True}), False),
        (page(), FormRequest(HOME, formdata={"a": "b"}), False),
        (page(), Request(HOME, method="PUT"), False),
        (page(JsonResponse, b'{"html": "<a href=x>"}'), Request(HOME), False),
        (page(TextResponse, b"http://a.test/x"), Request(HOME), False),
        (page(TextResponse), Request(HOME), True),
        (page(XmlResponse, b"<urlset><url><loc>http://a.test/</loc></url></urlset>"), Request(HOME), False),
        (page(XmlResponse, b'<html xmlns="x">' + ANCHOR + b"</html>"), Request(HOME), True),
        (page(XmlResponse, b'<h:html xmlns:h="x"><h:A href="/x"/></h:html>'), Request(HOME), True),
        (page(XmlResponse, '<?xml encoding="utf-16"?><a href="/x"/>'.encode("utf-16")), Request(HOME), True),
        (Response(HOME, body=ANCHOR, request=Request(HOME)), Request(HOME), False),
        (HtmlResponse("data:text/html,x", request=Request("data:text/html,x")), Request(HOME), False),
        (page(meta={SITEMAP: ("a.test", False)}), Request(HOME, SPIDER.other), True),
        (page(meta={SITEMAP: ("a.test", False)}), Request(HOME, meta={SITEMAP: ("a.test", True)}), False),
        (HtmlResponse(HOME), Request(HOME), True),
    ]:
        assert link_test(response, SPIDER)(request_) is is_link


def test_what_a_rule_makes_is_a_link():
    class Rules(CrawlSpider):
        name = "rules"
        rules = [Rule(LinkExtractor(), callback="parse_item")]

        def parse_item(self, response: Response) -> None: ...

    spider = Rules()
    (made,) = spider._requests_to_follow(page())
    assert link_test(page(), spider)(made)
    assert not link_test(page(), spider)(Request(HOME, spider.parse_item))


# Under the add-on


class Maps(SitemapSpider):
    """Takes every page of a sitemap."""

    name = "maps"
    sitemap_urls = ["http://a.test/robots.txt"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}


async def test_a_compressed_sitemap_and_all_that_it_names_are_read(serve):
    def xml(kind: str, entry: str, urls: list[str]) -> bytes:
        entries = "".join(f"<{entry}><loc>{url}</loc></{entry}>" for url in urls)
        return f'<{kind} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</{kind}>'.encode()

    pages = ["http://a.test/1", "http://a.test/2.pdf", "http://a.test/a/a/a/a/a?utm_source=map"]
    packed = gzip.compress(xml("urlset", "url", pages))
    index = xml("sitemapindex", "sitemap", ["http://a.test/map.xml.gz"])
    web: dict[str, Any] = dict.fromkeys(
        pages, Answer(headers={"Content-Type": "application/pdf"}, body=b"%PDF")
    )
    web["http://a.test/robots.txt"] = Answer(body=b"Sitemap: http://a.test/index.xml")
    web["http://a.test/index.xml"] = Answer(headers={"Content-Type": "application/xml"}, body=index)
    web["http://a.test/map.xml.gz"] = Answer(headers={"Content-Type": "application/gzip"}, body=packed)
    serve(web)
    crawler = await crawl(Maps, ADDON)
    assert crawler.stats.get_value("item_scraped_count") == 3


async def test_an_api_is_read_whatever_type_its_answers_have(serve):
    def parse(response: Response) -> Iterator[Any]:
        yield response.json()
        if response.json()["n"] < 3:
            yield Request(f"http://a.test/api/{response.json()['n'] + 1}")
        elif response.json()["n"] == 3:
            yield FormRequest("http://a.test/api/form", formdata={"a": "b"})

    pages = {"api/1": 1, "api/2": 2, "api/3": 3, "api/form": 9}
    serve({f"{HOME}{path}": Answer(headers=JSON, body=f'{{"n": {n}}}'.encode()) for path, n in pages.items()})
    crawler = await crawl(Visits, ADDON, start_urls=["http://a.test/api/1"], parse=parse)
    assert crawler.stats.get_value("item_scraped_count") == 4


@pytest.mark.parametrize("has_errback", [True, False])
async def test_a_link_to_another_type_reaches_its_errback_and_the_log(serve, tmp_path, caplog, has_errback):
    told = []

    class Links(Visits):
        start_urls = [HOME]

        def parse(self, response: Response) -> Iterator[Any]:
            for link in LinkExtractor().extract_links(response):
                yield Request(link.url, errback=self.failed if has_errback else None)

        def failed(self, failure: Any) -> Iterator[Any]:
            told.append(failure)
            yield Request("http://a.test/html", self.parse)

    empty = Answer(headers=JSON, body=b"{}")
    json = {"http://a.test/json": empty, "http://a.test/data": empty}
    serve({HOME: ["/json", "/data"], "http://a.test/html": [], **json})
    crawler = await crawl(Links, in_folder(tmp_path, ADDON))
    assert [failure.check(UnwantedTypeError) is not None for failure in told] == [True] * 2 * has_errback
    (warning,) = logged(caplog, "WARNING")
    assert "AOPIC_CONTENT_TYPES" in warning
    assert logged(caplog, "ERROR") == []
    assert ask_view(tmp_path, count).outcomes["content type"] == 2
    assert crawler.stats.get_value("spider_exceptions/count") is None
    asked = 4 if has_errback else 3
    assert crawler.stats.get_value("downloader/request_count") == asked


async def test_the_purpose_of_a_request_is_remembered_by_the_job(serve, tmp_path):
    read = []

    class Files(Visits):
        start_urls = [HOME]

        def parse(self, response: Response) -> Iterator[Any]:
            yield Request("http://a.test/link")
            yield Request("http://a.test/purpose", self.save)

        def save(self, response: Response) -> None:
            read.append(response.url)

    answer = Answer(headers=JSON, body=b"{}")
    web = serve({HOME: [], "http://a.test/link": answer, "http://a.test/purpose": answer})
    settings = in_folder(tmp_path, ADDON, CONCURRENT_REQUESTS=1)
    await crawl(Files, {**settings, "CLOSESPIDER_PAGECOUNT": 1})
    assert web.asked == [HOME]
    await crawl(Files, settings)
    assert len(web.asked) == 3
    assert read == ["http://a.test/purpose"]


async def test_seeds_of_a_list_are_asked_for_on_purpose(serve, tmp_path):
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("http://a.test/a/a/a/a/a.json\n", encoding="utf-8")
    web = serve({"http://a.test/a/a/a/a/a.json": Answer(headers=JSON, body=b"{}")})
    settings = {**ADDON, "AOPIC_SEEDS": str(seeds)}
    crawler = await crawl(Maps, settings, sitemap_urls=[])
    assert web.asked == ["http://a.test/a/a/a/a/a.json"]
    assert crawler.stats.get_value("item_scraped_count") == 1
