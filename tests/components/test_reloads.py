"""Pages that redirect or refresh to themselves: followed once, and again only if something has changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from demo_web.server import Answer, Exchange
from scrapy import Request
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor
from support.crawls import in_folder
from support.small_web import Follow, check, crawl

ALONE: dict[str, Any] = {"SCHEDULER": "scrapy_aopic.Scheduler"}
ADDON: dict[str, Any] = {"ADDONS": {"scrapy_aopic.Addon": 500}, "ROBOTSTXT_OBEY": False}
HOME, PAGE, END = "http://a.test/", "http://a.test/page", "http://a.test/end"
HTML = {"Content-Type": "text/html"}
BOTH = pytest.mark.parametrize("settings", [ALONE, ADDON], ids=["alone", "addon"])


class Note(Follow):
    """Follows every link, and notes what its callback is given."""

    start_urls = [HOME]
    custom_settings = {"HTTPERROR_ALLOWED_CODES": []}
    seen: list[str]
    metas: list[set[str]]

    def parse(self, response: Response) -> Iterator[Any]:
        self.seen.append(response.url)
        self.metas.append(set(response.meta))
        for link in LinkExtractor().extract_links(response):
            yield Request(link.url)


async def run(settings: dict[str, Any], folder: Path, **others: Any) -> list[str]:
    """URLs of the pages that the callback was given, after a crawl without a violation."""
    Note.seen, Note.metas = [], []
    await crawl(Note, in_folder(folder, settings, **others))
    return Note.seen


def ticker(*links: str, text: str = "", to: str = "") -> Answer:
    """A page that reloads itself after a second."""
    anchors = "".join(f'<a href="{link}">x</a>' for link in links)
    body = f'<html><meta http-equiv="refresh" content="1; url={to}"><p>{text}</p>{anchors}</html>'
    return Answer(headers=HTML, body=body.encode())


@BOTH
async def test_pages_that_reload_themselves_are_asked_for_twice_and_read(serve, settings, tmp_path):
    tickers = {f"{HOME}{n}": ticker("/end", to=f"/{n}") for n in range(10)}
    web = serve({HOME: [*tickers], **tickers, END: []})
    seen = await run(settings, tmp_path)
    assert Counter(web.asked) == Counter([HOME, END, *tickers, *tickers])
    assert sorted(seen) == sorted([HOME, END, *tickers])
    assert not [meta for meta in Note.metas if "dont_redirect" in meta or "_aopic_reloaded" in meta]


@pytest.mark.crossed
@BOTH
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_to_itself_is_asked_for_twice_and_fails(serve, settings, tmp_path, status):
    web = serve({HOME: ["/page", "/end"], PAGE: Answer(status, {"Location": "/page#x"}), END: []})
    seen = await run(settings, tmp_path)
    assert Counter(web.asked) == {HOME: 1, PAGE: 2, END: 1}
    assert sorted(seen) == [HOME, END]
    assert check(tmp_path).failed == 1


def needs_cookies(n: int, way: str) -> Callable[[Exchange], Answer]:
    """A page that sets *n* cookies, one after the other, and leads to itself until it has them all."""

    def page(exchange: Exchange) -> Answer:
        has = exchange.headers.get("cookie", "").count("=")
        if has >= n:
            return Answer(headers=HTML, body=b'<a href="/end">x</a>')
        cookie = {"Set-Cookie": f"c{has}=1; Path=/"}
        if way == "refresh":
            answer = ticker(to=exchange.target)
            return Answer(headers={**answer.headers, **cookie}, body=answer.body)
        return Answer(302, {"Location": exchange.target, **cookie})

    return page


@BOTH
@pytest.mark.parametrize("then", [Answer(302, {"Location": "/end"}), Answer(503)], ids=["elsewhere", "error"])
async def test_what_leads_to_itself_may_lead_elsewhere_or_fail_after_that(serve, settings, tmp_path, then):
    answers = [Answer(302, {"Location": "/page"}), then, Answer(302, {"Location": "/end"})]
    web = serve({HOME: ["/page"], PAGE: lambda _: answers.pop(0), END: []})
    assert await run(settings, tmp_path) == [HOME, END]
    assert web.asked.count(PAGE) == (2 if then.status == 302 else 3)


@pytest.mark.crossed
@pytest.mark.parametrize("way", ["redirect", "refresh"])
@pytest.mark.parametrize(
    "settings", [ALONE, ADDON, {**ADDON, "COOKIES_ENABLED": True}], ids=["alone", "addon", "enabled"]
)
async def test_a_page_that_wants_cookies_gets_them(serve, settings, tmp_path, way):
    web = serve({HOME: ["/page"], PAGE: needs_cookies(3, way), END: []})
    seen = await run(settings, tmp_path)
    assert seen == [HOME, PAGE, END]
    assert web.asked == [HOME, *[PAGE] * 4, END]


async def test_cookies_that_are_never_sent_change_nothing(serve, tmp_path):
    number = count()

    def page(exchange: Exchange) -> Answer:
        return Answer(302, {"Location": exchange.target, "Set-Cookie": f"id={next(number)}"})

    web = serve({HOME: ["/page"], PAGE: page})
    assert await run({**ADDON, "COOKIES_ENABLED": False}, tmp_path) == [HOME]
    assert web.asked == [HOME, PAGE, PAGE]


@BOTH
async def test_another_body_is_another_try(serve, settings, tmp_path):
    number = count()

    def page(exchange: Exchange) -> Answer:
        return ticker("/end", text=f"{min(next(number), 3)}", to="/page")

    web = serve({HOME: ["/page"], PAGE: page, END: []})
    assert await run(settings, tmp_path) == [HOME, PAGE, END]
    assert Counter(web.asked) == {HOME: 1, PAGE: 5, END: 1}


@BOTH
async def test_pages_that_lead_to_each_other_are_asked_for_once_each(serve, settings, tmp_path):
    web = serve({HOME: ["/page"], PAGE: ticker(to="/end"), END: Answer(302, {"Location": "/page"})})
    assert await run(settings, tmp_path) == [HOME]
    assert web.asked == [HOME, PAGE, END]
