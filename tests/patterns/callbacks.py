"""Callbacks of every kind."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, wraps

from scrapy import Field, Item, Request, Spider, signals
from twisted.internet.defer import inlineCallbacks, succeed

from .listing import FIRST, Plain, pattern, title, titles

callback = partial(pattern, "Callbacks")
GIVES = titles("item 1", "page 1")


@callback("returns a list", GIVES)
class ReturnsList(Plain):
    def parse(self, response):
        return [title(response), response.follow("/item/1", self.parse_item)]

    def parse_item(self, response):
        return [title(response)]


@callback("returns one item, or nothing", GIVES[1:])
class ReturnsItem(Spider):
    start_urls = [*FIRST, "http://shop.test/item/1"]

    def parse(self, response):
        return title(response) if "page" in response.url else None


@callback("returns one request", GIVES[:1])
class ReturnsRequest(Plain):
    def parse(self, response):
        return response.follow("/item/1", self.parse_item)

    def parse_item(self, response):
        return title(response)


@callback("generator", GIVES)
class Generator(Plain):
    def parse(self, response):
        yield title(response)
        yield response.follow("/item/1", self.parse_item)


@callback("coroutine", GIVES)
class Coroutine(Plain):
    async def parse(self, response):
        return [title(response), response.follow("/item/1", self.parse_item)]

    async def parse_item(self, response):
        return title(response)


@callback("asynchronous generator", GIVES)
class AsyncGenerator(Plain):
    async def parse(self, response):
        yield title(response)
        yield response.follow("/item/1", self.parse_item)

    async def parse_item(self, response):
        yield title(response)


@callback("returns a `Deferred`", GIVES)
class ReturnsDeferred(Plain):
    def parse(self, response):
        return succeed([title(response), response.follow("/item/1", self.parse_item)])

    @inlineCallbacks
    def parse_item(self, response):
        yield succeed(None)
        return [title(response)]


def parse_outside(response):
    yield title(response)


@callback("function outside the spider", GIVES)
class Outside(Plain):
    def parse(self, response):
        yield title(response)
        yield response.follow("/item/1", parse_outside)


@callback("function inside the callback", GIVES)
class Nested(Plain):
    def parse(self, response):
        def parse_item(item):
            yield title(response)
            yield title(item)

        yield response.follow("/item/1", parse_item)


@callback("lambda", GIVES)
class Lambda(Plain):
    def parse(self, response):
        yield title(response)
        yield response.follow("/item/1", lambda response: [title(response)])


@callback("`functools.partial`", GIVES)
class Partial(Plain):
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


@callback("decorated method", titles("ITEM 1", "PAGE 1"))
class Decorated(Plain):
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


@callback("method of another object", GIVES)
class OfAnother(Plain):
    def parse(self, response):
        yield title(response)
        yield response.follow("/item/1", Extractor().parse_item)


@callback("object that can be called", GIVES)
class OfCallable(Plain):
    def parse(self, response):
        yield title(response)
        yield response.follow("/item/1", Extractor())


@callback(
    "static method, class method and private method", [*GIVES, {"title": "item 1"}, {"title": "page 2"}]
)
class OtherMethods(Plain):
    def parse(self, response):
        yield title(response)
        yield response.follow("/item/1", self.parse_static)
        yield response.follow("/page/2", self.parse_class)

    @staticmethod
    def parse_static(response):
        yield title(response)

    @classmethod
    def parse_class(cls, response):
        yield title(response)
        yield response.follow("/item/1", cls(cls.name).__parse_private, dont_filter=True)

    def __parse_private(self, response):
        yield title(response)


class Base(Spider):
    def parse(self, response):
        yield response.follow("/item/1", self.parse_item)

    def parse_item(self, response):
        yield title(response)


@callback("inherited, and called by `super()`", GIVES)
class Inherits(Base):
    start_urls = FIRST

    def parse(self, response):
        yield title(response)
        yield from super().parse(response)


@callback("assigned to the spider in `__init__`", GIVES)
class Assigned(Plain):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.parse_item = parse_outside

    def parse(self, response):
        yield title(response)
        yield response.follow("/item/1", self.parse_item)


@callback("with `cb_kwargs`", [{"title": "item 1", "of": "page 1", "n": (1, None)}])
class CbKwargs(Plain):
    def parse(self, response):
        kwargs = {"of": title(response)["title"], "n": (1, None)}
        yield response.follow("/item/1", self.parse_item, cb_kwargs=kwargs)

    def parse_item(self, response, of, n):
        yield {**title(response), "of": of, "n": n}


class Titled(Item):
    title = Field()


@dataclass
class Data:
    title: str


@callback("yields `Item`s, dataclasses and `None`", GIVES)
class ItemKinds(Plain):
    def parse(self, response):
        yield Titled(title(response))
        yield None
        yield response.follow("/item/1", self.parse_item)

    def parse_item(self, response):
        yield Data(**title(response))


@callback(
    "raises between two items; the errback is not called", [{"n": 1}], noted={"error": "KeyError of page 1"}
)
class Raises(Plain):
    async def start(self):
        self.crawler.signals.connect(self.note, signals.spider_error)
        yield Request(FIRST[0], errback=self.failed)

    def parse(self, response):
        yield {"n": 1}
        yield {"n": {}[2]}
        yield {"n": 3}

    def note(self, failure, response):
        text = f"{failure.type.__name__} of {title(response)['title']}"
        self.crawler.stats.set_value("noted/error", text)


@callback(
    "`follow_all`, and requests without a callback",
    [{"title": f"{kind} {n}"} for kind in ("item", "page") for n in (1, 2, 3)],
)
class FollowsAll(Plain):
    def parse(self, response):
        yield title(response)
        yield from response.follow_all(css="a")
