"""Cookies, logins and redirects."""

from __future__ import annotations

from functools import partial

from scrapy import FormRequest, Request, Spider

from .listing import ADDON, ALL, SHOP, Differs, Plain, pattern, title, titles

cookie = partial(pattern, "Cookies and logins")
COOKIES = {"COOKIES_ENABLED": True}


class Session(Spider):
    """Gets a cookie, and says which cookies it sends after that."""

    start_urls = [f"{SHOP}/set/session/a"]

    def parse(self, response):
        yield response.follow("/cookies", self.parse_cookies)

    def parse_cookies(self, response):
        yield title(response)


@cookie(
    "cookies, with the default of `COOKIES_ENABLED`",
    titles("cookies session=a"),
    differs=[
        Differs(
            ADDON,
            "The add-on sets `COOKIES_ENABLED` to False unless you set it: what a broad crawl sees is to be what everybody sees.",
            {"items": titles("cookies ")},
        )
    ],
)
class CookiesByDefault(Session):
    pass


@cookie("cookies, with `COOKIES_ENABLED = True`", titles("cookies session=a"), settings=COOKIES)
class CookiesEnabled(Session):
    pass


@cookie("`COOKIES_ENABLED = False`", titles("cookies "), settings={"COOKIES_ENABLED": False})
class CookiesDisabled(Session):
    pass


@cookie("`Request(cookies=...)`", titles("cookies a=1; b=2"), settings=COOKIES)
class CookiesOfRequest(Plain):
    async def start(self):
        yield Request(f"{SHOP}/cookies", cookies={"a": "1", "b": "2"})


@cookie(
    '`meta["cookiejar"]`: two sessions at once',
    titles("cookies session=a", "cookies session=b"),
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


@cookie('`meta["dont_merge_cookies"]`', titles("cookies "), settings=COOKIES)
class DontMergeCookies(Session):
    def parse(self, response):
        yield response.follow("/cookies", self.parse_cookies, meta={"dont_merge_cookies": True})


@cookie(
    "log-in form with a hidden token, by `FormRequest.from_response`",
    titles("account of ann"),
    settings=COOKIES,
)
class LogsIn(Spider):
    start_urls = [f"{SHOP}/login"]

    def parse(self, response):
        formdata = {"user": "ann", "password": "secret"}
        yield FormRequest.from_response(response, formdata=formdata, callback=self.parse_account)

    def parse_account(self, response):
        yield title(response)


@cookie("log-in in `start()`, inline, before the seeds", titles("account of ann"), settings=COOKIES)
class LogsInFirst(Plain):
    async def start(self):
        formdata = {"user": "ann", "password": "secret", "token": "t1"}
        await self.crawler.engine.download_async(FormRequest(f"{SHOP}/login", formdata=formdata))
        yield Request(f"{SHOP}/account")


@cookie("`http_user` and `http_pass`", [{"authorization": "Basic YW5uOnNlY3JldA=="}])
class HttpAuth(Spider):
    http_user, http_pass, http_auth_domain = "ann", "secret", "shop.test"
    start_urls = [f"{SHOP}/echo"]

    def parse(self, response):
        yield {"authorization": response.json()["headers"].get("authorization")}


redirect = partial(pattern, "Redirects")


@redirect(
    "301, 302, 303, 307 and 308", [{"status": 200, "url": f"{SHOP}/item/{n}", "from": 1} for n in range(5)]
)
class Redirects(Spider):
    start_urls = [f"{SHOP}/redirect/{code}?to=/item/{n}" for n, code in enumerate((301, 302, 303, 307, 308))]

    def parse(self, response):
        urls = response.meta["redirect_urls"]
        yield {"status": response.status, "url": response.url, "from": len(urls)}


@redirect(
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


@redirect(
    "to another host, whose callback and `cb_kwargs` are those of the request", [{"title": "item 1", "n": 1}]
)
class RedirectsHost(Plain):
    def parse(self, response):
        url = "/redirect/302?to=http://other.test/item/1"
        yield response.follow(url, self.parse_item, cb_kwargs={"n": 1})

    def parse_item(self, response, n):
        yield {**title(response), "n": n}


@redirect('`meta["dont_redirect"]`: handled by the spider', [{"location": "/item/1"}, {"title": "item 1"}])
class RedirectsItself(Plain):
    async def start(self):
        meta = {"dont_redirect": True, "handle_httpstatus_list": [302]}
        yield Request(f"{SHOP}/redirect/302?to=/item/1", meta=meta)

    def parse(self, response):
        location = response.headers["Location"].decode()
        yield {"location": location}
        yield response.follow(location, self.parse_item)


@redirect("`REDIRECT_ENABLED = False`", [{"failed": "HttpError"}], settings={"REDIRECT_ENABLED": False})
class RedirectDisabled(Plain):
    async def start(self):
        yield Request(f"{SHOP}/redirect/302?to=/item/1", errback=self.failed)


@redirect("more than `REDIRECT_MAX_TIMES`", [{"failed": "IgnoreRequest"}], settings={"REDIRECT_MAX_TIMES": 2})
class RedirectsTooOften(Plain):
    async def start(self):
        yield Request(f"{SHOP}/onward/1", errback=self.failed)


@redirect("to a page that is known", titles("item 1", "page 1"))
class RedirectsToKnown(Plain):
    def parse(self, response):
        yield title(response)
        yield response.follow("/item/1", self.parse_item)

        yield response.follow("/redirect/302?to=/item/1", self.parse_item)


@redirect("to itself, until a cookie is sent", titles("welcome"), settings=COOKIES)
class RedirectsToItself(Plain):
    start_urls = [f"{SHOP}/wall"]


@redirect("to itself, until a cookie is sent, with the default", titles("welcome"))
class RedirectsToItselfByDefault(RedirectsToItself):
    pass


@redirect("to another page, which sets a cookie and leads back", titles("let in"))
class RedirectsThereAndBack(Plain):
    start_urls = [f"{SHOP}/gate"]


@redirect("by `<meta http-equiv=refresh>`", titles("item 1"))
class MetaRefresh(Plain):
    start_urls = [f"{SHOP}/refresh?to=/item/1"]


@redirect(
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
