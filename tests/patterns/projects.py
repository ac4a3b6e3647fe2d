"""Spiders as they are in public projects: what they request, with what, and in which callback, on made-up pages.

Each is written anew after one that others have published, without what it scrapes.
"""

from __future__ import annotations

import datetime
import json
from functools import partial

from scrapy import FormRequest, Request, Spider
from scrapy.http import JsonRequest
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

from .listing import SHOP, Plain, pattern, title

public = partial(pattern, "Spiders of public projects")


def parse_long(response):
    """Is no method of the spider, as several have it in common."""
    yield {**response.meta["item"], "text": response.json()["text"]}


@public(
    "a timeline by pages until one is empty; half-filled items go on in `meta` to a function of another module",
    [
        {"id": f"{user}{n}{which}", "is_long": which == "a"}
        | ({"text": f"all of {user}{n}a"} if which == "a" else {})
        for user in "xy"
        for n in (1, 2)
        for which in "ab"
    ],
)
class TimelineByPages(Spider):
    async def start(self):
        for user in "xy":
            yield self.page_of(user, 1)

    def page_of(self, user, n):
        url = f"{SHOP}/statuses?user={user}&page={n}"
        return Request(url, callback=self.parse, meta={"user": user, "n": n})

    def parse(self, response):
        posts = response.json()["list"]
        for post in posts:
            if post["is_long"]:
                yield Request(f"{SHOP}/long-text?id={post['id']}", callback=parse_long, meta={"item": post})
            else:
                yield post
        if posts:
            yield self.page_of(response.meta["user"], response.meta["n"] + 1)


@public(
    "people who follow each other: known ones are filtered, lists and their pages are asked for with `dont_filter`",
    [{"title": f"person {n}"} for n in "1234"]
    + [{"fan": fan, "of": of} for fan, of in ("12", "13", "21", "23", "31", "41")] * 2,
)
class PeopleByLists(Spider):
    async def start(self):
        yield Request(f"{SHOP}/person/1/info", callback=self.parse_info)

    def parse_info(self, response):
        yield title(response)
        for what in ("follow", "fans"):
            yield response.follow(what, callback=self.parse_list, dont_filter=True)

    def parse_list(self, response):
        what, n = title(response)["title"].split()
        for other in response.css("b::text").getall():
            yield {"fan": n, "of": other} if what == "follow" else {"fan": other, "of": n}
            yield Request(f"{SHOP}/person/{other}/info", callback=self.parse_info)
        for url in response.css("a::attr(href)").getall():
            yield response.follow(url, callback=self.parse_list, dont_filter=True)


@public(
    "the first page says how many there are; each gets the whole `response.meta` of the first one, and `dont_filter`",
    [{"title": f"comments {which} {n}", "mark": which} for which in "ab" for n in (1, 2, 3)],
)
class PagesByNumber(Spider):
    async def start(self):
        for which in "ab":
            yield Request(f"{SHOP}/comments/{which}?page=1", meta={"mark": which})

    def parse(self, response):
        if response.url.endswith("page=1"):
            for n in range(2, int(response.css("i::text").get()) + 1):
                url = response.url.replace("page=1", f"page={n}")
                yield Request(url, self.parse, dont_filter=True, meta=response.meta)
        yield {**title(response), "mark": response.meta["mark"]}


@public(
    "a calendar: a token, and forms for each day to two addresses, with dates in `meta`",
    [
        {"issue": f"{kind} {day}", "date": datetime.date(2020, 1, day), "kind": kind}
        for kind in ("regular", "extra")
        for day in (2, 4)
    ],
)
class CalendarByForms(Spider):
    async def start(self):
        yield Request(f"{SHOP}/calendar", callback=self.parse_calendar)

    def parse_calendar(self, response):
        token = response.css("input::attr(value)").get()
        for day in range(1, 5):
            for url, kind in ((response.url, "regular"), (f"{response.url}/extra", "extra")):
                yield FormRequest(
                    url,
                    formdata={"token": token, "day": str(day)},
                    meta={"date": datetime.date(2020, 1, day), "kind": kind},
                    callback=self.parse_issues,
                )

    def parse_issues(self, response):
        body = json.loads(response.text)
        if "error" in body:
            return
        for issue in body["issues"]:
            yield {"issue": issue, "date": response.meta["date"], "kind": response.meta["kind"]}


@public(
    'a search by a form with `method="GET"`: the first page says how many there are, and is asked for again, with another '
    "callback and without `dont_filter`",
    [{"title": f"found x {n}"} for n in (2, 3)],
)
class SearchByForm(Plain):
    async def start(self):
        params = {"s": "x", "type": ""}
        yield self.page_of(1, params, self.parse_pages, cb_kwargs={"params": params})

    def page_of(self, n, params, callback, **more):
        return FormRequest(f"{SHOP}/search/{n}/", method="GET", formdata=params, callback=callback, **more)

    def parse_pages(self, response, params):
        for n in range(1, int(response.css("i::text").get()) + 1):
            yield self.page_of(n, params, self.parse)


@public(
    "an API with one address: `JsonRequest` for countries, and one for the shops of each, all with `dont_filter`",
    [{"shop": f"{country}{n}"} for country in ("de", "fr") for n in (1, 2)],
)
class ShopsByCountry(Spider):
    async def start(self):
        yield self.ask(self.parse_countries, {"of": "Country"})

    def ask(self, callback, data):
        return JsonRequest(f"{SHOP}/rest", data=data, callback=callback, dont_filter=True)

    def parse_countries(self, response):
        for country in response.json()["response"]:
            yield self.ask(self.parse_shops, {"of": "Shop", "where": country})

    def parse_shops(self, response):
        for shop in response.json()["response"]:
            yield {"shop": shop}


@public(
    "an API with one address by pages: `JsonRequest` with headers, the page in the body, no callback",
    [{"hit": f"secret {n}"} for n in range(3)],
)
class HitsByPages(Spider):
    async def start(self):
        yield self.ask(None)

    def ask(self, n):
        data = {"of": "Page"} if n is None else {"of": "Page", "page": n}
        return JsonRequest(f"{SHOP}/rest", headers={"X-Key": "secret"}, data=data)

    def parse(self, response):
        found = response.json()
        for hit in found["hits"]:
            yield {"hit": hit}
        if found["page"] + 1 < found["pages"]:
            yield self.ask(found["page"] + 1)


@public(
    "`CrawlSpider`: the start page matches a rule of its own, and all articles link to it; both rules follow",
    [{"index": "news index.html"}] + [{"title": f"news {n}.htm"} for n in range(1, 7)],
)
class NewsByRules(CrawlSpider):
    start_urls = [f"{SHOP}/news/index.html"]
    rules = [
        Rule(LinkExtractor(allow="index.html"), callback="parse_index", follow=True),
        Rule(LinkExtractor(allow=".*htm$"), callback="parse_article", follow=True),
    ]

    def parse_index(self, response):
        yield {"index": title(response)["title"]}

    def parse_article(self, response):
        yield title(response)


@public(
    "`CrawlSpider` with several start pages, each of which is a list that rules lead back to",
    [{"title": f"{kind} {which} {n}"} for kind in ("forum", "thread") for which in (1, 2) for n in (1, 2)],
)
class ForumsByRules(CrawlSpider):
    allowed_domains = ["shop.test"]
    start_urls = [f"{SHOP}/forum/forum-{which}-1" for which in (1, 2)]
    rules = [
        Rule(LinkExtractor(allow=r"/forum/thread-\d*-\d"), callback="parse_thread"),
        Rule(LinkExtractor(allow=r"/forum/forum-\d*-\d"), follow=True, callback="parse_forum"),
    ]

    def parse_thread(self, response):
        return [title(response)]

    def parse_forum(self, response):
        return [title(response)]


@public(
    "an archive by months: lists with a callback, posts without, older pages of the list last; it ends at a date",
    [{"title": f"post {month}-{n}"} for month in (2, 3) for n in (1, 2, 3, 4)],
)
class ArchiveByMonths(Plain):
    async def start(self):
        for month in (2, 3):
            yield Request(f"{SHOP}/archive/{month}", callback=self.parse_list)

    def parse_list(self, response):
        for url in response.css("a[href*=post]::attr(href)").getall():
            if url.startswith("/post/1-"):
                return
            yield response.follow(url)
        older = response.css("a[href*=archive]::attr(href)").get()
        if older:
            yield response.follow(older, callback=self.parse_list)


class Topics:
    """Callbacks that several spiders have in common."""

    def parse_topic(self, response, n):
        yield title(response)
        for name in response.css("b::text").getall():
            more = {"errback": self.failed, "cb_kwargs": {"name": name}}
            yield response.follow(f"/member/{name}", self.parse_member, **more)

    def parse_member(self, response, name):
        yield {"member": name}

    def failed(self, failure):
        yield {"missing": failure.request.cb_kwargs["name"], "status": failure.value.response.status}


@public(
    "a board whose topics are requested once all of its pages were read; callbacks and errbacks of another object",
    [{"title": f"topic {n}"} for n in range(1, 5)]
    + [{"member": name} for name in ("m1", "m2")]
    + [{"missing": "m0", "status": 404}],
)
class BoardByPages(Spider):
    async def start(self):
        self.topics, self.pending, self.found = Topics(), set(), set()
        yield Request(f"{SHOP}/board", callback=self.parse_first)

    def parse_first(self, response):
        self.pending = {1, 2, 3}
        for n in (2, 3):
            yield response.follow(f"?p={n}", callback=self.parse_page, cb_kwargs={"n": n})
        yield from self.parse_page(response, 1)

    def parse_page(self, response, n):
        self.found |= set(response.css("a::text").getall())
        self.pending.discard(n)
        if not self.pending:
            for url in sorted(self.found, reverse=True):
                yield response.follow(url, callback=self.topics.parse_topic, cb_kwargs={"n": url})
