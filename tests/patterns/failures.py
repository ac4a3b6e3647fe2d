"""Errbacks, statuses that a spider handles, and retries."""

from __future__ import annotations

import re
from functools import partial

from scrapy import Request, Spider
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.exceptions import IgnoreRequest

from .listing import FIRST, SHOP, Plain, pattern, title, titles

CLOSED = "http://127.0.0.1:1"
NOWHERE = "http://gone.invalid"


class Failing(Plain):
    """Requests a page, and says what of it fails."""

    url = ""
    meta = {}

    async def start(self):
        yield Request(self.url, errback=self.failed, meta=self.meta)

    def parse(self, response):
        yield {"status": response.status}


def failing(group, *cases):
    """Patterns of requests that fail: text, error, URL, and maybe meta and settings of each."""
    for text, error, url, *rest in cases:
        meta, settings = [*rest, {}, {}][:2]
        spider = type("".join(re.findall(r"\w+", text.title())), (Failing,), {"url": url, "meta": meta})
        group(text, [{"failed": error}], settings=settings)(spider)


errback = partial(pattern, "Errbacks")


@errback("404", [{"failed": "HttpError", "status": 404}])
class FailsHttp(Failing):
    url = f"{SHOP}/status/404"

    def failed(self, failure):
        yield {"failed": failure.type.__name__, "status": failure.value.response.status}


failing(
    errback,
    ("500, after the retries", "HttpError", f"{SHOP}/status/500"),
    ("503 with `Retry-After`, after the retries", "HttpError", f"{SHOP}/later/503"),
    ("429, after the retries", "HttpError", f"{SHOP}/status/429"),
    ("host without an address, after the retries", "CannotResolveHostError", f"{NOWHERE}/"),
    ("port that is closed, after the retries", "DownloadConnectionRefusedError", f"{CLOSED}/"),
    ("time-out, after the retries", "DownloadTimeoutError", f"{SHOP}/slow/60", {"download_timeout": 0.1}),
    ("connection that is reset, after the retries", "DownloadFailedError", f"{SHOP}/reset"),
    ("body that is cut off, after the retries", "ResponseDataLossError", f"{SHOP}/cut"),
    (
        "body that is larger than `DOWNLOAD_MAXSIZE`",
        "DownloadCancelledError",
        FIRST[0],
        {"download_maxsize": 10},
    ),
    ("scheme that nothing downloads", "NotSupported", "gopher://shop.test/"),
)


@errback("page that robots.txt forbids", [{"failed": "IgnoreRequest"}], settings={"ROBOTSTXT_OBEY": True})
class FailsRobots(Failing):
    url = f"{SHOP}/forbidden"

    def failed(self, failure):
        yield {"failed": failure.check(IgnoreRequest).__name__}


@errback("page outside `allowed_domains`, of which no errback is told", titles("page 1"))
class Offsite(Plain):
    allowed_domains = ["shop.test"]

    def parse(self, response):
        yield title(response)
        yield Request("http://elsewhere.test/", self.parse, errback=self.failed)


@errback("yields a request for a mirror", titles("item 1"))
class Mirrors(Plain):
    async def start(self):
        yield Request(f"{CLOSED}/item/1", errback=self.failed)

    def failed(self, failure):
        yield failure.request.replace(url=f"{SHOP}/item/1", errback=None)


@errback("coroutine", [{"failed": "HttpError"}])
class FailsCoroutine(Failing):
    url = f"{SHOP}/status/404"

    async def failed(self, failure):
        return [{"failed": failure.type.__name__}]


@errback(
    "of links that a page has, beside those that succeed", [{"failed": "HttpError"}, {"title": "item 1"}]
)
class FailsLinks(Plain):
    def parse(self, response):
        for path in ("/item/1", "/status/404"):
            yield response.follow(path, self.parse_item, errback=self.failed)


@errback(
    "dead-link checker: ten links to a closed port, ten to a host without an address",
    [{"dead": f"{host}/{n}"} for host in (CLOSED, NOWHERE) for n in range(10)],
)
class ChecksLinks(Plain):
    def parse(self, response):
        for host in (CLOSED, NOWHERE):
            for n in range(10):
                yield Request(f"{host}/{n}", self.parse_link, errback=self.failed)

    def parse_link(self, response):
        yield {"alive": response.url}

    def failed(self, failure):
        yield {"dead": failure.request.url}


status = partial(pattern, "Statuses that are handled")
CODES = (404, 429, 500, 503)
STATUSES = [{"status": code} for code in CODES]


class Statuses(Spider):
    """Says the status of each page that its callback gets."""

    start_urls = [f"{SHOP}/status/{code}" for code in CODES]

    def parse(self, response):
        yield {"status": response.status}


@status("`handle_httpstatus_list` of the spider", STATUSES)
class HandlesStatuses(Statuses):
    handle_httpstatus_list = [*CODES]


@status(
    "`handle_httpstatus_list` of the spider, six pages, without retries",
    [{"status": code} for code in (429, 503) for _ in range(3)],
)
class HandlesManyStatuses(Statuses):
    handle_httpstatus_list = [429, 503]
    custom_settings = {"RETRY_ENABLED": False}
    start_urls = [f"{SHOP}/later/{code}?{n}" for code in (429, 503) for n in range(3)]


@status('`meta["handle_httpstatus_list"]`', STATUSES)
class HandlesInMeta(Statuses):
    async def start(self):
        for code in CODES:
            yield Request(f"{SHOP}/status/{code}", meta={"handle_httpstatus_list": [code]})


@status('`meta["handle_httpstatus_all"]` of links', STATUSES)
class HandlesAll(Plain):
    def parse(self, response):
        for code in CODES:
            yield response.follow(f"/status/{code}", self.parse_status, meta={"handle_httpstatus_all": True})

    def parse_status(self, response):
        yield {"status": response.status}


@status("`HTTPERROR_ALLOWED_CODES`", [{"status": 404}], settings={"HTTPERROR_ALLOWED_CODES": [404]})
class AllowsCodes(Statuses):
    start_urls = [f"{SHOP}/status/404", f"{SHOP}/status/410"]


@status("`HTTPERROR_ALLOW_ALL`", STATUSES, settings={"HTTPERROR_ALLOW_ALL": True})
class AllowsAll(Statuses):
    pass


retry = partial(pattern, "Retries")


@retry("503 twice, then the page", [{"title": "at last 503", "retries": 2}])
class Retries(Spider):
    start_urls = [f"{SHOP}/status/503/2"]

    def parse(self, response):
        yield {**title(response), "retries": response.meta["retry_times"]}


@retry("connection that is reset twice, then the page", [{"title": "not reset any more", "retries": 2}])
class RetriesReset(Spider):
    start_urls = [f"{SHOP}/reset/x/2"]

    def parse(self, response):
        yield {**title(response), "retries": response.meta["retry_times"]}


failing(
    retry,
    ('`meta["dont_retry"]`', "HttpError", f"{SHOP}/status/503", {"dont_retry": True}),
    ('`meta["max_retry_times"]`', "HttpError", f"{SHOP}/status/503", {"max_retry_times": 1}),
    ("`RETRY_ENABLED = False`", "HttpError", f"{SHOP}/status/503", {}, {"RETRY_ENABLED": False}),
    ("`RETRY_HTTP_CODES`", "HttpError", f"{SHOP}/status/404", {}, {"RETRY_HTTP_CODES": [404]}),
)


@retry("`get_retry_request` in a callback, until the page is right", [{"state": "done"}])
class RetriesItself(Spider):
    start_urls = [f"{SHOP}/work"]

    def parse(self, response):
        if response.json()["state"] == "done":
            return response.json()
        return get_retry_request(response.request, spider=self, reason="busy")


@retry("`get_retry_request` in an errback", titles("not reset any more"), settings={"RETRY_ENABLED": False})
class RetriesInErrback(Plain):
    async def start(self):
        yield Request(f"{SHOP}/reset/x/2", errback=self.failed)

    def failed(self, failure):
        yield get_retry_request(failure.request, spider=self, reason=failure.type)
