"""With the add-on, cookies live as long as a chain of redirects, and are sent where they belong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import requests
from demo_web.server import Answer, Exchange
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor
from scrapy.utils.test import get_crawler
from support.crawls import Visits
from support.small_web import Follow, crawl
from tldextract import TLDExtract

from scrapy_aopic.session import redirect_cookies
from scrapy_aopic.session.stats import Stats
from scrapy_aopic.web import chain_cookies

STOCK: dict[str, Any] = {}
ADDON: dict[str, Any] = {"ADDONS": {"scrapy_aopic.Addon": 500}, "ROBOTSTXT_OBEY": False}
HTML = {"Content-Type": "text/html"}
HOME = "http://a.test/"
WAYS = pytest.mark.parametrize("settings", [STOCK, ADDON], ids=["stock", "addon"])
SECRET = "s3cret"


class Note(Follow):
    seen: ClassVar[list[str]] = []

    def parse(self, response: Response) -> Iterator[Any]:
        self.seen.append(response.url)
        for link in LinkExtractor().extract_links(response):
            yield Request(link.url)


@pytest.fixture(autouse=True)
def none_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Note, "seen", [])


class Site:
    """Pages that are there for who has a cookie, and what cookies came with each request."""

    def __init__(self, refuse: Callable[[Exchange], Answer], links: list[str] | None = None) -> None:
        self._refuse = refuse
        self._links = "".join(f'<a href="{link}">x</a>' for link in links or [])
        self.sent: list[tuple[str, str]] = []

    def __call__(self, exchange: Exchange) -> Answer:
        cookie = exchange.headers.get("cookie", "")
        self.sent.append((f"{exchange.host}{exchange.target}", cookie))
        if SECRET in cookie:
            return Answer(headers=HTML, body=f"<p>{exchange.target}</p>{self._links}".encode())
        return self._refuse(exchange)


def to_itself(exchange: Exchange) -> Answer:
    return to(exchange.target)


def to(target: str, cookie: str = f"c={SECRET}", **more: str) -> Answer:
    return Answer(302, {"Location": target, **({"Set-Cookie": cookie} if cookie else {}), **more})


def refreshed(exchange: Exchange) -> Answer:
    body = f'<meta http-equiv="refresh" content="0; url={exchange.target}">'
    return Answer(headers={**HTML, "Set-Cookie": f"c={SECRET}"}, body=body.encode())


def count(crawler: Crawler, name: str) -> Any:
    return crawler.stats.get_value(name, 0)


PAGES = [f"{HOME}{n}" for n in range(10)]


@pytest.mark.crossed
@WAYS
@pytest.mark.parametrize("refuse", [to_itself, refreshed])
@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_host_that_wants_one_cookie_gets_it(serve, settings, refuse, tmp_path, store):
    site = Site(refuse, [f"/{n}" for n in range(10)])
    serve(dict.fromkeys([HOME, *PAGES], site))
    kept = {} if store == "memory" else {"JOBDIR": str(tmp_path), "AOPIC_STORE": store}
    crawler = await crawl(Note, {**settings, **kept})
    assert sorted(Note.seen) == sorted([HOME, *PAGES])
    assert count(crawler, "finish_reason") == "finished"
    if settings:
        each = [f"a.test/{n}" for n in ("", *range(10))]
        assert Counter(site.sent) == Counter((url, cookie) for url in each for cookie in ("", f"c={SECRET}"))
        assert count(crawler, "aopic/cookies/chains") == 11
        assert count(crawler, "aopic/cookies/in_vain") == 0
    if settings and kept:
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert files
        assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def consent(exchange: Exchange) -> Answer:
    """Pages lead to one that sets the cookie and leads back."""
    page, _, back = exchange.target.partition("?")
    return to(back) if page == "/consent" else to(f"/consent?{exchange.target}", "")


def common_consent(exchange: Exchange) -> Answer:
    """The same, with one page for all, which knows by another cookie where to lead."""
    if exchange.target != "/consent":
        return to("/consent", f"back={exchange.target}")
    back = exchange.headers.get("cookie", "").partition("back=")[2]
    return to(back or "/lost")


@WAYS
@pytest.mark.parametrize("refuse", [consent, common_consent])
async def test_a_page_that_leads_over_another_one_and_back_is_read(serve, settings, refuse):
    site = Site(refuse, [f"/{n}" for n in range(10)])
    targets = [f"{HOME}consent", *(f"{HOME}consent?/{n}" for n in ("", *range(10)))]
    serve(dict.fromkeys([HOME, *PAGES, *targets], site))
    crawler = await crawl(Note, settings)
    assert sorted(Note.seen) == sorted([HOME, *PAGES])
    assert count(crawler, "finish_reason") == "finished"


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_chains_over_a_page_that_is_still_queued_are_all_followed(serve, tmp_path, store):
    pages = [f"http://h{n}.a.test/" for n in range(10)]
    common, slow = "http://c.a.test/consent", "http://c.a.test/slow"

    def over_another_host(exchange: Exchange) -> Answer:
        if exchange.target == "/slow":  # which consent waits for, behind all pages
            return Answer(headers=HTML, body=b"slow", delay=0.5)
        back = exchange.headers.get("cookie", "").partition("back=")[2] or f"http://{exchange.host}/"
        target, cookie = (common, f"back={back}") if exchange.target == "/" else (back, f"c={SECRET}")
        return to(target, f"{cookie}; Domain=a.test")

    site = Site(over_another_host)
    serve({HOME: [slow, *pages], **dict.fromkeys([*pages, common, slow], site)})
    kept = {} if store == "memory" else {"JOBDIR": str(tmp_path), "AOPIC_STORE": store}
    crawler = await crawl(Note, {**ADDON, **kept})
    assert sorted(Note.seen) == sorted([HOME, slow, *pages])
    assert Counter(target for target, _ in site.sent)["c.a.test/consent"] == 10
    assert count(crawler, "finish_reason") == "finished"


@WAYS
@pytest.mark.parametrize("way", ["itself", "there and back"])
async def test_a_host_that_is_never_satisfied_is_asked_as_often_as_redirects_are_followed_and_said_once(
    serve, settings, way, caplog
):
    numbers = iter(range(1000))

    def again(exchange: Exchange) -> Answer:
        other = f"{exchange.target}x" if exchange.target[-1] != "x" else exchange.target[:-1]
        return to(exchange.target if way == "itself" else other, f"n={next(numbers)}")

    site = Site(again)
    urls = [f"{HOME}{n}" for n in range(2)]
    serve(dict.fromkeys([*urls, *(f"{url}x" for url in urls)], site))
    crawler = await crawl(Note, {**settings, "REDIRECT_MAX_TIMES": 4}, start_urls=urls)
    assert Note.seen == []
    assert len(site.sent) == 10
    said = [record for record in caplog.records if record.name == redirect_cookies.__name__]
    if settings:
        assert (len(said), said[0].levelname) == (1, "WARNING")
        assert count(crawler, "aopic/cookies/in_vain") == 2


async def test_cookies_go_where_they_belong_and_nowhere_else(serve):
    cookies = (
        f"host={SECRET}1",
        f"own={SECRET}2; Domain=a.co.uk",
        f"super={SECRET}3; Domain=co.uk",
        f"alien={SECRET}4; Domain=b.test",
        f"secure={SECRET}5; Secure",
        f"elsewhere={SECRET}6; Path=/elsewhere",
    )
    seen: list[tuple[str, set[str]]] = []

    def hop(exchange: Exchange) -> Answer:
        names = {each.partition("=")[0].strip() for each in exchange.headers.get("cookie", "").split(";")}
        seen.append((f"{exchange.host}{exchange.target}", names - {""}))
        n = len(seen)
        ends = ("http://www.a.co.uk/elsewhere/1", "http://a.co.uk/", "http://b.test/", "http://b.co.uk/")
        if n < 7:
            return to("http://www.a.co.uk/0", cookies[n - 1])
        return to(ends[n - 7], "") if n < 11 else Answer(headers=HTML)

    hosts = ("http://a.co.uk/", "http://b.test/", "http://b.co.uk/")
    serve(dict.fromkeys(["http://www.a.co.uk/0", "http://www.a.co.uk/elsewhere/1", *hosts], hop))
    await crawl(Note, {**ADDON, "REDIRECT_MAX_TIMES": 20}, start_urls=["http://www.a.co.uk/0"])
    assert seen[6:] == [
        ("www.a.co.uk/0", {"host", "own"}),
        ("www.a.co.uk/elsewhere/1", {"host", "own", "elsewhere"}),
        ("a.co.uk/", {"own"}),
        ("b.test/", set()),
        ("b.co.uk/", set()),
    ]
    assert Note.seen == ["http://b.co.uk/"]


async def test_nobody_is_asked_for_the_list_of_public_suffixes(serve, monkeypatch):
    """On a machine without Scrapy's copy of it, which has no Internet, that would stop the crawl for minutes."""
    asked: list[str] = []
    monkeypatch.setattr(requests.Session, "send", lambda _, request, **__: asked.append(request.url))
    monkeypatch.setattr("scrapy.downloadermiddlewares.cookies._split_domain", TLDExtract(None))
    serve({"http://www.a.co.uk/": Site(lambda _: to("/", f"c={SECRET}; Domain=a.co.uk"))})
    await crawl(Note, ADDON, start_urls=["http://www.a.co.uk/"])
    assert Note.seen == ["http://www.a.co.uk/"]
    assert asked == []


async def test_who_turns_cookies_off_has_none(serve):
    site = Site(to_itself)
    serve({HOME: site})
    crawler = await crawl(Note, {**ADDON, "COOKIES_ENABLED": False})
    assert [cookie for _, cookie in site.sent] == ["", ""]
    assert Note.seen == []
    assert count(crawler, "aopic/cookies/in_vain") == 1


@pytest.mark.parametrize("kept", [lambda: None, None], ids=["in memory", "written"])
async def test_cookies_that_a_spider_sends_itself_are_sent_too(serve, kept):
    starts = [Request(HOME, headers={"Cookie": "mine=1"}, meta={"kept": kept})]

    def twice(exchange: Exchange) -> Answer:
        return to(exchange.target) if "a=1" in exchange.headers["cookie"] else to(exchange.target, "a=1")

    site = Site(twice)
    serve({HOME: site})
    read: list[str] = []
    await crawl(Visits, ADDON, starts=starts, parse=lambda response: read.append(response.url))
    assert read == [HOME]
    assert [cookie for _, cookie in site.sent] == ["mine=1", "mine=1; a=1", f"mine=1; a=1; c={SECRET}"]


async def test_a_chain_goes_on_after_a_retry_and_keeps_no_more_than_its_bounds(serve, monkeypatch):
    failing = [Answer(503), Answer(503)]

    def refuse(exchange: Exchange) -> Answer:
        if "a=1" in exchange.headers.get("cookie", ""):
            return failing.pop() if failing else to(exchange.target)
        return to(exchange.target, f"a=1; Comment={'x' * 50}")

    site = Site(refuse)
    serve({HOME: site})
    await crawl(Note, ADDON)
    assert Note.seen == [HOME]
    assert [cookie for _, cookie in site.sent] == ["", *["a=1"] * 3, f"a=1; c={SECRET}"]

    monkeypatch.setattr(chain_cookies, "MAX_BYTES", 40)
    failing[:] = []
    site.sent.clear()
    crawler = await crawl(Note, ADDON)
    assert {cookie for _, cookie in site.sent} == {""}
    assert count(crawler, "aopic/cookies/in_vain") == 1


def test_chains_that_wait_are_bounded(monkeypatch):
    monkeypatch.setattr(redirect_cookies, "MAX_CHAINS", 3)
    crawler = get_crawler()
    cookies = redirect_cookies.RedirectCookies(crawler, Stats(crawler.stats), is_on=True)

    class Visited:
        cookies = None
        answer = Response("http://a.test", headers={"Set-Cookie": "a=1"})

        def __init__(self, url: str) -> None:
            self.request = Request(url)

    for n in range(10):
        url = f"http://a.test/{n}"
        request = Request(url, meta={"redirect_times": 1, "redirect_urls": [url]})
        assert cookies.keep(request, Visited(url))  # type: ignore[arg-type]
    assert [*cookies._waiting] == [f"http://a.test/{n}" for n in (7, 8, 9)]
