"""Spider classes that come with Scrapy, and what a spider says of itself."""

from __future__ import annotations

from functools import partial

from scrapy import Request
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, CSVFeedSpider, Rule, SitemapSpider, XMLFeedSpider

from scrapy_aopic import Links

from .listing import FIRST, SHOP, Plain, pattern, title, titles

spider_class = partial(pattern, "Spider classes")
ITEMS = titles("item 1", "item 2", "item 3")
PAGES = titles("page 1", "page 2", "page 3")


@spider_class("`CrawlSpider` with a rule to follow and one with a callback", ITEMS)
class Crawls(CrawlSpider):
    start_urls = FIRST
    rules = [Rule(LinkExtractor(r"/page/")), Rule(LinkExtractor(r"/item/"), callback="parse_item")]

    def parse_item(self, response):
        yield title(response)


@spider_class(
    "`CrawlSpider` with `follow=True`, `cb_kwargs` and `parse_start_url`",
    [{**each, "n": 1} for each in ITEMS + PAGES],
)
class CrawlsAll(CrawlSpider):
    start_urls = FIRST
    rules = [Rule(LinkExtractor(), callback="parse_page", follow=True, cb_kwargs={"n": 1})]

    def parse_start_url(self, response):
        return self.parse_page(response, 1)

    def parse_page(self, response, n):
        yield {**title(response), "n": n}


@spider_class(
    "`CrawlSpider` with one rule for all pages: its start page, which all link to, is an item, too",
    [{"title": f"linked {n}"} for n in range(20)],
)
class CrawlsLinked(CrawlSpider):
    start_urls = [f"{SHOP}/linked/0"]
    rules = [Rule(LinkExtractor(), callback="parse_item")]

    def parse_item(self, response):
        yield title(response)


@spider_class(
    "`CrawlSpider` with `process_links` and `process_request`", [{"title": "item 1", "by": "page 1"}]
)
class CrawlsChanged(CrawlSpider):
    start_urls = FIRST
    rules = [Rule(LinkExtractor(), callback="parse_item", process_links="items", process_request="mark")]

    def items(self, links):
        return [link for link in links if "/item/" in link.url]

    def mark(self, request, response):
        return request.replace(meta={**request.meta, "by": title(response)["title"]})

    def parse_item(self, response):
        yield {**title(response), "by": response.meta["by"]}


@spider_class("`CrawlSpider` with an errback", [{"failed": "HttpError"}])
class CrawlsFailing(CrawlSpider):
    start_urls = [f"{SHOP}/links?to=/status/404"]
    rules = [Rule(LinkExtractor(), callback="parse_item", errback="failed")]

    def parse_item(self, response):
        yield title(response)

    def failed(self, failure):
        yield {"failed": failure.type.__name__}


@spider_class("`CrawlSpider` with a coroutine as callback", ITEMS)
class CrawlsAsync(CrawlSpider):
    start_urls = FIRST
    rules = [Rule(LinkExtractor(r"/page/")), Rule(LinkExtractor(r"/item/"), callback="parse_item")]

    async def parse_item(self, response):
        return title(response)


@spider_class(
    "`scrapy_aopic.Links`, which `scrapy_aopic.LinkMiddleware` follows beside any scheduler",
    ITEMS + PAGES,
    settings={"SPIDER_MIDDLEWARES": {"scrapy_aopic.LinkMiddleware": 2000}},
)
class YieldsLinks(Plain):
    def parse(self, response):
        yield title(response)
        yield Links(response)


@spider_class(
    "`SitemapSpider` with an index and `sitemap_rules`",
    [{"kind": "item", **each} for each in ITEMS[:2]] + [{"kind": "page", **PAGES[0]}],
)
class Sitemap(SitemapSpider):
    sitemap_urls = [f"{SHOP}/sitemap-index.xml"]
    sitemap_rules = [("/item/", "parse_item"), ("/page/", "parse_page")]

    def parse_item(self, response):
        yield {"kind": "item", **title(response)}

    def parse_page(self, response):
        yield {"kind": "page", **title(response)}


@spider_class("`SitemapSpider` that begins at robots.txt, with `sitemap_filter`", ITEMS[1:2])
class SitemapOfRobots(SitemapSpider):
    sitemap_urls = ["http://mapped.test/robots.txt"]

    def sitemap_filter(self, entries):
        yield from (entry for entry in entries if not entry["loc"].endswith(("/item/1", "/page/1")))

    def parse(self, response):
        yield title(response)


@spider_class("`XMLFeedSpider`", [{"name": "a", "title": "item 1"}, {"name": "b", "title": "item 2"}])
class XmlFeed(XMLFeedSpider):
    start_urls = [f"{SHOP}/feed.xml"]
    itertag = "entry"

    def parse_node(self, response, node):
        url, name = node.xpath("url/text()").get(), node.xpath("name/text()").get()
        return Request(url, self.parse_item, cb_kwargs={"name": name})

    def parse_item(self, response, name):
        yield {"name": name, **title(response)}


@spider_class("`CSVFeedSpider`", [{"name": "a", "n": "1"}, {"name": "b", "n": "2"}])
class CsvFeed(CSVFeedSpider):
    start_urls = [f"{SHOP}/feed.csv"]
    headers = ["name", "n"]

    def parse_row(self, response, row):
        return row if row["n"] != "n" else None


@spider_class("`custom_settings`", [{"title": "page 1", "agent": "mine", "depth": 7}])
class CustomSettings(Plain):
    custom_settings = {"DEFAULT_REQUEST_HEADERS": {"X-Mine": "mine"}, "DEPTH_LIMIT": 7}

    def parse(self, response):
        agent = response.request.headers["X-Mine"].decode()
        yield {**title(response), "agent": agent, "depth": self.settings.getint("DEPTH_LIMIT")}


@spider_class("`update_settings` and `from_crawler`", [{"title": "page 1", "limit": 7}])
class UpdatesSettings(Plain):
    @classmethod
    def update_settings(cls, settings):
        super().update_settings(settings)
        settings.set("DEPTH_LIMIT", 7, priority="spider")

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.limit = crawler.settings.getint("DEPTH_LIMIT")
        return spider

    def parse(self, response):
        yield {**title(response), "limit": self.limit}


@spider_class("`allowed_domains`, for links, subdomains and redirects", titles("item 1", "page 1"))
class AllowedDomains(Plain):
    allowed_domains = ["shop.test"]

    def parse(self, response):
        yield title(response)
        urls = (
            "http://www.shop.test/item/1",
            "http://other.test/item/1",
            "/redirect/302?to=http://other.test/item/2",
        )
        for url in urls:
            yield response.follow(url, self.parse_item)


@spider_class("`allow_offsite` in `meta`", titles("item 1"))
class AllowsOffsite(Plain):
    allowed_domains = ["shop.test"]

    def parse(self, response):
        yield Request("http://other.test/item/1", self.parse_item, meta={"allow_offsite": True})


@spider_class(
    "`closed()`, and `self.crawler.stats`", titles("page 1"), noted={"closed": "finished", "pages": 1}
)
class Closed(Plain):
    def parse(self, response):
        self.crawler.stats.inc_value("noted/pages")
        yield title(response)

    def closed(self, reason):
        self.crawler.stats.set_value("noted/closed", reason)
