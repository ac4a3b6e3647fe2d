"""Callbacks of every kind."""

from __future__ import annotations

from functools import partial, wraps

from scrapy import Spider

from .table import pattern

SHOP = "http://shop.test"
FIRST = [f"{SHOP}/page/1"]
GIVES = [{"title": "item 1"}, {"title": "page 1"}]


def title(response):
    return {"title": response.css("title::text").get()}


@pattern("Callbacks", "returns a list", GIVES)
class ReturnsList(Spider):
    start_urls = FIRST

    def parse(self, response):
        return [title(response), response.follow("/item/1", self.parse_item)]

    def parse_item(self, response):
        return [title(response)]


@pattern("Callbacks", "returns one item", GIVES[1:])
class ReturnsItem(Spider):
    start_urls = FIRST

    def parse(self, response):
        return title(response)


@pattern("Callbacks", "generator", GIVES)
class Generator(Spider):
    start_urls = FIRST

    def parse(self, response):
        yield title(response)
        yield response.follow("/item/1", self.parse_item)

    def parse_item(self, response):
        yield title(response)


@pattern("Callbacks", "coroutine", GIVES)
class Coroutine(Spider):
    start_urls = FIRST

    async def parse(self, response):
        return [title(response), response.follow("/item/1", self.parse_item)]

    async def parse_item(self, response):
        return title(response)


@pattern("Callbacks", "asynchronous generator", GIVES)
class AsyncGenerator(Spider):
    start_urls = FIRST

    async def parse(self, response):
        yield title(response)
        yield response.follow("/item/1", self.parse_item)

    async def parse_item(self, response):
        yield title(response)


def parse_outside(response):
    yield title(response)


@pattern("Callbacks", "function outside the spider", GIVES)
class Outside(Spider):
    start_urls = FIRST

    def parse(self, response):
        yield title(response)
        yield response.follow("/item/1", parse_outside)


@pattern("Callbacks", "lambda", GIVES)
class Lambda(Spider):
    start_urls = FIRST

    def parse(self, response):
        yield title(response)
        yield response.follow("/item/1", lambda response: [title(response)])


@pattern("Callbacks", "`functools.partial`", GIVES)
class Partial(Spider):
    start_urls = FIRST

    def parse(self, response, title="page 1"):
        yield {"title": title}
        if title == "page 1":
            yield response.follow("/item/1", partial(self.parse, title="item 1"))


def shouted(callback):
    @wraps(callback)
    def decorated(self, response):
        for each in callback(self, response):
            yield {"title": each["title"].upper()} if isinstance(each, dict) else each

    return decorated


@pattern("Callbacks", "decorated method", [{"title": "ITEM 1"}, {"title": "PAGE 1"}])
class Decorated(Spider):
    start_urls = FIRST

    @shouted
    def parse(self, response):
        yield title(response)
        yield response.follow("/item/1", self.parse_item)

    @shouted
    def parse_item(self, response):
        yield title(response)


class Extractor:
    def parse_item(self, response):
        yield title(response)

    __call__ = parse_item


@pattern("Callbacks", "method of another object", GIVES)
class OfAnother(Spider):
    start_urls = FIRST

    def parse(self, response):
        yield title(response)
        yield response.follow("/item/1", Extractor().parse_item)
