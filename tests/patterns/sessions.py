"""Cookies, logins and redirects."""

from __future__ import annotations

from scrapy import FormRequest, Request, Spider

from .listing import ADDON, ALL, SHOP, Differs, Plain, pattern, title

GROUP = "Cookies and logins"
COOKIES = {"COOKIES_ENABLED": True}


class Session(Spider):
    """Gets a cookie, and says which cookies it sends after that."""

    start_urls = [f"{SHOP}/set/session/a"]

    def parse(self, response):
        yield response.follow("/cookies", self.parse_cookies)

    def parse_cookies(self, response):
        yield title(response)


@pattern(
    GROUP,
    "cookies, with the default of `COOKIES_ENABLED`",
    [{"title": "cookies session=a"}],
    differs=[
        Differs(
            ADDON,
            "The add-on sets `COOKIES_ENABLED` to False unless you set it: what a broad crawl sees is to be what everybody sees.",
            {"items": [{"title": "cookies "}]},
        )
    ],
)
class CookiesByDefault(Session):
    pass


@pattern(GROUP, "cookies, with `COOKIES_ENABLED = True`", [{"title": "cookies session=a"}], settings=COOKIES)
class CookiesEnabled(Session):
    pass


@pattern(GROUP, "`COOKIES_ENABLED = False`", [{"title": "cookies "}], settings={"COOKIES_ENABLED": False})
class CookiesDisabled(Session):
    pass


@pattern(GROUP, "`Request(cookies=...)`", [{"title": "cookies a=1; b=2"}], settings=COOKIES)
class CookiesOfRequest(Plain):
    async def start(self):
        yield Request(f"{SHOP}/cookies", cookies={"a": "1", "b": "2"})


@pattern(
    GROUP,
    '`meta["cookiejar"]`: two sessions at once',
    [{"title": "cookies session=a"}, {"title": "cookies session=b"}],
    settings=COOKIES,
)
class CookieJars(Spider):
    async def start(self):
        for jar in "ab":
            yield Request(f"{SHOP}/set/session/{jar}", meta={"cookiejar": jar})

    def parse(self, response):
        meta = {"cookiejar": response.meta["cookiejar"]}
        yield response.follow("/cookies", self.parse_cookies, meta=meta, dont_filter=True)

    def parse_cookies(self, response):
        yield title(response)


@pattern(GROUP, '`meta["dont_merge_cookies"]`', [{"title": "cookies "}], settings=COOKIES)
class DontMergeCookies(Session):
    def parse(self, response):
        yield response.follow("/cookies", self.parse_cookies, meta={"dont_merge_cookies": True})


@pattern(
    GROUP,
    "log-in form with a hidden token, by `FormRequest.from_response`",
    [{"title": "account of ann"}],
    settings=COOKIES,
)
class LogsIn(Spider):
    start_urls = [f"{SHOP}/login"]

    def parse(self, response):
        formdata = {"user": "ann", "password": "secret"}
        yield FormRequest.from_response(response, formdata=formdata, callback=self.parse_account)

    def parse_account(self, response):
        yield title(response)


@pattern(
    GROUP, "log-in in `start()`, inline, before the seeds", [{"title": "account of ann"}], settings=COOKIES
)
class LogsInFirst(Plain):
    async def start(self):
        formdata = {"user": "ann", "password": "secret", "token": "t1"}
        await self.crawler.engine.download_async(FormRequest(f"{SHOP}/login", formdata=formdata))
        yield Request(f"{SHOP}/account")


@pattern(GROUP, "`http_user` and `http_pass`", [{"authorization": "Basic YW5uOnNlY3JldA=="}])
class HttpAuth(Spider):
    http_user, http_pass, http_auth_domain = "ann", "secret", "shop.test"
    start_urls = [f"{SHOP}/echo"]

    def parse(self, response):
        yield {"authorization": response.json()["headers"].get("authorization")}


GROUP_REDIRECT = "Redirects"


@pattern(
    GROUP_REDIRECT,
    "301, 302, 303, 307 and 308",
    [{"status": 200, "url": f"{SHOP}/item/{n}", "from": 1} for n in range(5)],
)
class Redirects(Spider):
    start_urls = [f"{SHOP}/redirect/{code}?to=/item/{n}" for n, code in enumerate((301, 302, 303, 307, 308))]

    def parse(self, response):
        urls = response.meta["redirect_urls"]
        yield {"status": response.status, "url": response.url, "from": len(urls)}


@pattern(
    GROUP_REDIRECT,
    "a form's, by 302 as GET and by 307 as POST",
    [{"body": "", "method": "GET"}, {"body": "a=1", "method": "POST"}],
)
class RedirectsForm(Spider):
    async def start(self):
        for code in (302, 307):
            yield FormRequest(f"{SHOP}/redirect/{code}?to=/echo", formdata={"a": "1"})

    def parse(self, response):
        sent = response.json()
        yield {"body": sent["body"], "method": sent["method"]}


@pattern(
    GROUP_REDIRECT,
    "to another host, whose callback and `cb_kwargs` are those of the request",
    [{"title": "item 1", "n": 1}],
)
class RedirectsHost(Plain):
    def parse(self, response):
        url = "/redirect/302?to=http://other.test/item/1"
        yield response.follow(url, self.parse_item, cb_kwargs={"n": 1})

    def parse_item(self, response, n):
        yield {**title(response), "n": n}


@pattern(
    GROUP_REDIRECT,
    '`meta["dont_redirect"]`: handled by the spider',
    [{"location": "/item/1"}, {"title": "item 1"}],
)
class RedirectsItself(Plain):
    async def start(self):
        meta = {"dont_redirect": True, "handle_httpstatus_list": [302]}
        yield Request(f"{SHOP}/redirect/302?to=/item/1", meta=meta)

    def parse(self, response):
        location = response.headers["Location"].decode()
        yield {"location": location}
        yield response.follow(location, self.parse_item)


@pattern(
    GROUP_REDIRECT,
    "`REDIRECT_ENABLED = False`",
    [{"failed": "HttpError"}],
    settings={"REDIRECT_ENABLED": False},
)
class RedirectDisabled(Plain):
    async def start(self):
        yield Request(f"{SHOP}/redirect/302?to=/item/1", errback=self.failed)


@pattern(
    GROUP_REDIRECT,
    "more than `REDIRECT_MAX_TIMES`",
    [{"failed": "IgnoreRequest"}],
    settings={"REDIRECT_MAX_TIMES": 2},
)
class RedirectsTooOften(Plain):
    async def start(self):
        yield Request(f"{SHOP}/onward/1", errback=self.failed)


@pattern(GROUP_REDIRECT, "to a page that is known", [{"title": "item 1"}, {"title": "page 1"}])
class RedirectsToKnown(Plain):
    def parse(self, response):
        yield title(response)
        yield response.follow("/item/1", self.parse_item)

        yield response.follow("/redirect/302?to=/item/1", self.parse_item)


@pattern(GROUP_REDIRECT, "to itself, until a cookie is sent", [{"title": "welcome"}], settings=COOKIES)
class RedirectsToItself(Plain):
    start_urls = [f"{SHOP}/wall"]


@pattern(GROUP_REDIRECT, "to itself, until a cookie is sent, with the default", [{"title": "welcome"}])
class RedirectsToItselfByDefault(RedirectsToItself):
    pass


@pattern(GROUP_REDIRECT, "to another page, which sets a cookie and leads back", [{"title": "let in"}])
class RedirectsThereAndBack(Plain):
    start_urls = [f"{SHOP}/gate"]


@pattern(GROUP_REDIRECT, "by `<meta http-equiv=refresh>`", [{"title": "item 1"}])
class MetaRefresh(Plain):
    start_urls = [f"{SHOP}/refresh?to=/item/1"]


@pattern(
    GROUP_REDIRECT,
    "by `<meta http-equiv=refresh>` to itself: eleven links to pages that reload themselves",
    [],
    differs=[
        Differs(
            ALL,
            "Scrapy drops them unread. Here each is reloaded once and then goes to the callback, as a browser shows it.",
            {
                "items": [{"title": f"refresh {n}"} for n in sorted(range(11), key=str)],
                "requests": {
                    "GET shop.test/page/1": 1,
                    **{f"GET shop.test/refresh/{n}": 2 for n in sorted(range(11), key=str)},
                },
                "dupefilter/filtered": 0,
            },
        )
    ],
)
class MetaRefreshItself(Plain):
    def parse(self, response):
        for n in range(11):
            yield response.follow(f"/refresh/{n}", self.parse_item)
