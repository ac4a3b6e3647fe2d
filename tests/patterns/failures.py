"""Errbacks, statuses that a spider handles, and retries."""

from __future__ import annotations

from scrapy import Request, Spider
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.exceptions import IgnoreRequest

from .listing import FIRST, SHOP, pattern, title

CLOSED = "http://127.0.0.1:1"
NOWHERE = "http://gone.invalid"


class Failing(Spider):
    """Requests a page, and says what of it fails."""

    url = ""
    meta = {}

    async def start(self):
        yield Request(self.url, errback=self.failed, meta=self.meta)

    def parse(self, response):
        yield {"status": response.status}

    def failed(self, failure):
        yield {"failed": failure.type.__name__}


GROUP = "Errbacks"


@pattern(GROUP, "404", [{"failed": "HttpError", "status": 404}])
class FailsHttp(Failing):
    url = f"{SHOP}/status/404"

    def failed(self, failure):
        yield {"failed": failure.type.__name__, "status": failure.value.response.status}


@pattern(GROUP, "500, after the retries", [{"failed": "HttpError"}])
class FailsError(Failing):
    url = f"{SHOP}/status/500"


@pattern(GROUP, "503 with `Retry-After`, after the retries", [{"failed": "HttpError"}])
class FailsBusy(Failing):
    url = f"{SHOP}/later/503"


@pattern(GROUP, "429, after the retries", [{"failed": "HttpError"}])
class FailsTooMany(Failing):
    url = f"{SHOP}/status/429"


@pattern(GROUP, "host without an address, after the retries", [{"failed": "CannotResolveHostError"}])
class FailsName(Failing):
    url = f"{NOWHERE}/"


@pattern(GROUP, "port that is closed, after the retries", [{"failed": "DownloadConnectionRefusedError"}])
class FailsRefused(Failing):
    url = f"{CLOSED}/"


@pattern(GROUP, "time-out, after the retries", [{"failed": "DownloadTimeoutError"}])
class FailsTimeout(Failing):
    url, meta = f"{SHOP}/slow/60", {"download_timeout": 0.1}


@pattern(GROUP, "connection that is reset, after the retries", [{"failed": "DownloadFailedError"}])
class FailsReset(Failing):
    url = f"{SHOP}/reset"


@pattern(GROUP, "body that is cut off, after the retries", [{"failed": "ResponseDataLossError"}])
class FailsCut(Failing):
    url = f"{SHOP}/cut"


@pattern(GROUP, "body that is larger than `DOWNLOAD_MAXSIZE`", [{"failed": "DownloadCancelledError"}])
class FailsSize(Failing):
    url, meta = FIRST[0], {"download_maxsize": 10}


@pattern(GROUP, "scheme that nothing downloads", [{"failed": "NotSupported"}])
class FailsScheme(Failing):
    url = "gopher://shop.test/"


@pattern(
    GROUP, "page that robots.txt forbids", [{"failed": "IgnoreRequest"}], settings={"ROBOTSTXT_OBEY": True}
)
class FailsRobots(Failing):
    url = f"{SHOP}/forbidden"

    def failed(self, failure):
        yield {"failed": failure.check(IgnoreRequest).__name__}


@pattern(GROUP, "page outside `allowed_domains`, of which no errback is told", [{"title": "page 1"}])
class Offsite(Spider):
    allowed_domains = ["shop.test"]
    start_urls = FIRST

    def parse(self, response):
        yield title(response)
        yield Request("http://elsewhere.test/", self.parse, errback=self.failed)

    def failed(self, failure):
        yield {"failed": failure.type.__name__}


@pattern(GROUP, "yields a request for a mirror", [{"title": "item 1"}])
class Mirrors(Spider):
    async def start(self):
        yield Request(f"{CLOSED}/item/1", errback=self.failed)

    def parse(self, response):
        yield title(response)

    def failed(self, failure):
        yield failure.request.replace(url=f"{SHOP}/item/1", errback=None)


@pattern(GROUP, "coroutine", [{"failed": "HttpError"}])
class FailsCoroutine(Failing):
    url = f"{SHOP}/status/404"

    async def failed(self, failure):
        return [{"failed": failure.type.__name__}]


@pattern(
    GROUP,
    "of links that a page has, beside those that succeed",
    [{"failed": "HttpError"}, {"title": "item 1"}],
)
class FailsLinks(Spider):
    start_urls = FIRST

    def parse(self, response):
        for path in ("/item/1", "/status/404"):
            yield response.follow(path, self.parse_item, errback=self.failed)

    def parse_item(self, response):
        yield title(response)

    def failed(self, failure):
        yield {"failed": failure.type.__name__}


@pattern(
    GROUP,
    "dead-link checker: ten links to a closed port, ten to a host without an address",
    [{"dead": f"{host}/{n}"} for host in (CLOSED, NOWHERE) for n in range(10)],
)
class ChecksLinks(Spider):
    start_urls = FIRST

    def parse(self, response):
        for host in (CLOSED, NOWHERE):
            for n in range(10):
                yield Request(f"{host}/{n}", self.parse_link, errback=self.failed)

    def parse_link(self, response):
        yield {"alive": response.url}

    def failed(self, failure):
        yield {"dead": failure.request.url}


GROUP_STATUS = "Statuses that are handled"
CODES = (404, 429, 500, 503)
STATUSES = [{"status": code} for code in CODES]


@pattern(GROUP_STATUS, "`handle_httpstatus_list` of the spider", STATUSES)
class HandlesStatuses(Spider):
    handle_httpstatus_list = [*CODES]
    start_urls = [f"{SHOP}/status/{code}" for code in CODES]

    def parse(self, response):
        yield {"status": response.status}


@pattern(
    GROUP_STATUS,
    "`handle_httpstatus_list` of the spider, six pages, without retries",
    [{"status": code} for code in (429, 503) for _ in range(3)],
)
class HandlesManyStatuses(Spider):
    handle_httpstatus_list = [429, 503]
    custom_settings = {"RETRY_ENABLED": False}
    start_urls = [f"{SHOP}/later/{code}?{n}" for code in (429, 503) for n in range(3)]

    def parse(self, response):
        yield {"status": response.status}


@pattern(GROUP_STATUS, '`meta["handle_httpstatus_list"]`', STATUSES)
class HandlesInMeta(Spider):
    async def start(self):
        for code in CODES:
            yield Request(f"{SHOP}/status/{code}", meta={"handle_httpstatus_list": [code]})

    def parse(self, response):
        yield {"status": response.status}


@pattern(GROUP_STATUS, '`meta["handle_httpstatus_all"]` of links', STATUSES)
class HandlesAll(Spider):
    start_urls = FIRST

    def parse(self, response):
        for code in CODES:
            yield response.follow(f"/status/{code}", self.parse_status, meta={"handle_httpstatus_all": True})

    def parse_status(self, response):
        yield {"status": response.status}


@pattern(
    GROUP_STATUS, "`HTTPERROR_ALLOWED_CODES`", [{"status": 404}], settings={"HTTPERROR_ALLOWED_CODES": [404]}
)
class AllowsCodes(Spider):
    start_urls = [f"{SHOP}/status/404", f"{SHOP}/status/410"]

    def parse(self, response):
        yield {"status": response.status}


@pattern(GROUP_STATUS, "`HTTPERROR_ALLOW_ALL`", STATUSES, settings={"HTTPERROR_ALLOW_ALL": True})
class AllowsAll(Spider):
    start_urls = [f"{SHOP}/status/{code}" for code in CODES]

    def parse(self, response):
        yield {"status": response.status}


GROUP_RETRY = "Retries"


@pattern(GROUP_RETRY, "503 twice, then the page", [{"title": "at last 503", "retries": 2}])
class Retries(Spider):
    start_urls = [f"{SHOP}/status/503/2"]

    def parse(self, response):
        yield {**title(response), "retries": response.meta["retry_times"]}


@pattern(
    GROUP_RETRY,
    "connection that is reset twice, then the page",
    [{"title": "not reset any more", "retries": 2}],
)
class RetriesReset(Spider):
    start_urls = [f"{SHOP}/reset/x/2"]

    def parse(self, response):
        yield {**title(response), "retries": response.meta["retry_times"]}


@pattern(GROUP_RETRY, '`meta["dont_retry"]`', [{"failed": "HttpError"}])
class DontRetry(Failing):
    url, meta = f"{SHOP}/status/503", {"dont_retry": True}


@pattern(GROUP_RETRY, '`meta["max_retry_times"]`', [{"failed": "HttpError"}])
class MaxRetryTimes(Failing):
    url, meta = f"{SHOP}/status/503", {"max_retry_times": 1}


@pattern(GROUP_RETRY, "`RETRY_ENABLED = False`", [{"failed": "HttpError"}], settings={"RETRY_ENABLED": False})
class RetryDisabled(Failing):
    url = f"{SHOP}/status/503"


@pattern(GROUP_RETRY, "`RETRY_HTTP_CODES`", [{"failed": "HttpError"}], settings={"RETRY_HTTP_CODES": [404]})
class RetryCodes(Failing):
    url = f"{SHOP}/status/404"


@pattern(GROUP_RETRY, "`get_retry_request` in a callback, until the page is right", [{"state": "done"}])
class RetriesItself(Spider):
    start_urls = [f"{SHOP}/work"]

    def parse(self, response):
        if response.json()["state"] == "done":
            return response.json()
        return get_retry_request(response.request, spider=self, reason="busy")


@pattern(
    GROUP_RETRY,
    "`get_retry_request` in an errback",
    [{"title": "not reset any more"}],
    settings={"RETRY_ENABLED": False},
)
class RetriesInErrback(Spider):
    async def start(self):
        yield Request(f"{SHOP}/reset/x/2", errback=self.failed)

    def parse(self, response):
        yield title(response)

    def failed(self, failure):
        yield get_retry_request(failure.request, spider=self, reason=failure.type)
