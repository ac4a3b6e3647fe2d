"""What a page pays each of its links: equal parts, or parts in proportion to ``AOPIC_LINK_WEIGHTS``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from demo_web.server import Answer
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import Response
from support.crawls import Visits, in_folder
from support.small_web import Follow, ask_view, check, crawl

from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.records import host_key, page_key
from scrapy_aopic.session import visit
from scrapy_aopic.session.links.found_link import FoundLink
from scrapy_aopic.session.links.link_targets import LinkTargets
from scrapy_aopic.session.visit import Visit
from scrapy_aopic.view.queries import top_pages
from scrapy_aopic.web.urls import JudgedUrl

HOME = "http://www.a.com/"
SEED = TOTAL >> 24
"""What the home page distributes: nothing is endowed, and the virtual page has no share."""


WWW = "http://www.a.com"


def page(body: str, kind: str = "text/html") -> Answer:
    return Answer(headers={"Content-Type": kind}, body=body.encode())


async def paid(folder: Path, spider: type[Spider] = Follow, **options: Any) -> tuple[dict[str, int], Crawler]:
    """Units that each page but the home page got; *options* are settings, in capitals, and arguments of the spider."""
    settings = {"AOPIC_ENDOWMENT": 0, "AOPIC_VIRTUAL_SHARE": 0, "CONCURRENT_REQUESTS": 1}
    settings |= {name: value for name, value in options.items() if name.isupper()}
    arguments = {name: value for name, value in options.items() if name.islower()}
    crawler = await crawl(spider, in_folder(folder, **settings), **{"start_urls": [HOME], **arguments})
    assert check(folder).queued == 0
    rows = ask_view(folder, top_pages, 100, everything=True)
    return {row.url: row.history for row in rows if row.url != HOME}, crawler


def parts(units: dict[str, int]) -> dict[str, float]:
    """*units* as parts of what the home page distributed, but for what a division leaves over."""
    return {url: round(cash / SEED, 4) for url, cash in units.items()}


@pytest.mark.parametrize("given", ["internal=1, external=4", {"external": 4}])
async def test_links_to_other_registered_domains_weigh_what_is_said(serve, tmp_path, given):
    serve({HOME: ["/1", "http://blog.a.com/", "http://b.com/", "http://a.org/"]})
    units, _ = await paid(tmp_path, AOPIC_LINK_WEIGHTS=given)
    inside = {f"{WWW}/1": 0.1, "http://blog.a.com/": 0.1}
    assert parts(units) == {**inside, "http://b.com/": 0.4, "http://a.org/": 0.4}


@pytest.mark.parametrize(
    ("home", "other"),
    [
        ("http://a.co.uk/", "http://b.co.uk/"),
        ("http://a.github.io/", "http://b.github.io/"),
        ("http://10.0.0.1/", "http://10.0.0.2/"),
        ("http://one/", "http://two/"),
    ],
)
async def test_names_below_a_public_suffix_are_domains_of_their_own(serve, tmp_path, home, other):
    serve({home: ["/inside", other]})
    units, _ = await paid(tmp_path, start_urls=[home], AOPIC_LINK_WEIGHTS="internal=1,external=3")
    assert parts(units)[f"{home}inside"] == 0.25
    assert parts(units)[other] == 0.75


@pytest.mark.parametrize(
    "body",
    [
        '<a href="/no" rel="nofollow">no</a> <a href="/yes">yes</a>',
        '<a href="/no" rel="NoFollow">no</a> <a href="/yes" rel="noopener">yes</a>',
        '<a href="/no" rel="ugc\tnofollow\nnoopener">no</a> <a href="/yes" rel="nofollowers">yes</a>',
        '<a href=" /no#part " rel="nofollow">no</a> <a href="/yes#nofollow">yes</a>',
        '<map><area href="/no" rel="nofollow"></map> <a href="/yes">yes</a>',
        '<base href="http://www.a.com/x/y/"> <a href="../../no" rel="nofollow">no</a> <a href="/yes">yes</a>',
        '<a href="/no" rel="nofollow">no</a> <a href="http://[" rel="nofollow">no URL</a> <a href="/yes">yes</a>',
        '<a rel="nofollow">nowhere</a> <a href="//www.a.com:80/no" rel="nofollow">no</a> <a href="/yes">yes</a>',
    ],
)  # fmt: skip
async def test_nofollow_is_found_however_it_is_written(serve, tmp_path, body):
    def parse(response: Response) -> Iterator[Any]:
        if response.url == HOME:
            yield Request(f"{WWW}/yes")
            yield Request(f"{WWW}/no" if ":80" not in body else f"{WWW}:80/no")

    serve({HOME: page(body), f"{WWW}/yes": [], f"{WWW}/no": []})
    units, crawler = await paid(tmp_path, Visits, parse=parse, AOPIC_LINK_WEIGHTS="nofollow=0.25")
    assert sorted(parts(units).values()) == [0.2, 0.8]
    assert parts(units)["http://www.a.com/yes"] == 0.8
    assert crawler.stats.get_value("aopic/links/unweighed") is None


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "application/pdf", "application/xml"])
async def test_only_html_can_say_nofollow(serve, tmp_path, kind):
    def parse(response: Response) -> Iterator[Any]:
        if response.url == HOME:
            yield from map(Request, (f"{WWW}/1", f"{WWW}/2"))

    serve({HOME: page('<x><a href="/1" rel="nofollow">1</a></x>', kind)})
    units, crawler = await paid(tmp_path, Visits, parse=parse, AOPIC_LINK_WEIGHTS="nofollow=0")
    assert set(parts(units).values()) == {0.5}
    assert crawler.stats.get_value("aopic/links/unweighed") is None


async def test_a_link_of_weight_0_is_not_followed(serve, tmp_path):
    home = page('<a href="/no" rel="nofollow">no</a> <a href="/yes">yes</a>')
    web = serve({HOME: home, f"{WWW}/no": [], f"{WWW}/yes": []})
    units, _ = await paid(tmp_path, AOPIC_LINK_WEIGHTS={"nofollow": 0, "internal": 2})
    assert parts(units) == {"http://www.a.com/yes": 1.0}
    assert web.asked == [HOME, "http://www.a.com/yes"]


def by_name(request: Request, response: Response) -> float:
    """The number that the URL of a link ends in."""
    assert response.url == HOME
    return float(request.url.rpartition("/")[2])


async def test_a_function_named_by_its_import_path_weighs_links(serve, tmp_path):
    serve({HOME: ["/1", "/2.5", "/0.5", "/0", "/0.0001"]})
    units, _ = await paid(tmp_path, AOPIC_LINK_WEIGHTS=f"{__name__}.by_name")
    assert parts(units) == {f"{WWW}/1": 0.25, f"{WWW}/2.5": 0.625, f"{WWW}/0.5": 0.125}


WRONG: list[Any] = [float("nan"), -1, float("inf"), 1e7, None, "much", ZeroDivisionError()]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
async def test_a_link_without_a_weight_counts_1_and_is_complained_of_once(serve, tmp_path, caplog, wrong):
    def weigh(request: Request, response: Response) -> Any:
        if request.url.endswith("/good"):
            return 2
        if isinstance(wrong, Exception):
            raise wrong
        return wrong

    serve({HOME: ["/good", "/1", "/2"], "http://www.a.com/good": ["/3"], "http://www.a.com/3": []})
    units, crawler = await paid(tmp_path, AOPIC_LINK_WEIGHTS=weigh)
    weighed = {f"{WWW}/good": 0.5, f"{WWW}/3": 0.5}
    assert parts(units) == {**weighed, f"{WWW}/1": 0.25, f"{WWW}/2": 0.25}
    assert crawler.stats.get_value("aopic/links/unweighed") == 3
    (said,) = [text for record in caplog.records if (text := record.getMessage()).startswith("AOPIC_")]
    assert said == (
        "AOPIC_LINK_WEIGHTS gives no weight from 0 to 1,000,000 for the link from http://www.a.com/ to "
        "http://www.a.com/1, which counts 1; further ones are only counted (aopic/links/unweighed)"
    )


async def test_a_redirect_passes_all_its_cash_on_whatever_links_weigh(serve, tmp_path):
    serve({HOME: ["/moved"], "http://www.a.com/moved": Answer(301, {"Location": "http://b.com/"})})
    units, _ = await paid(tmp_path, AOPIC_LINK_WEIGHTS="internal=1,external=0")
    assert parts(units) == {"http://www.a.com/moved": 1.0, "http://b.com/": 1.0}


async def test_links_beyond_the_limit_share_no_cash(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(visit, "MAX_LINKS", 2)
    serve({HOME: ["/1", "/2", "/3"]})
    units, _ = await paid(tmp_path, AOPIC_LINK_WEIGHTS=f"{__name__}.by_name")
    assert parts(units) == {f"{WWW}/1": 0.3333, f"{WWW}/2": 0.6667, f"{WWW}/3": 0}


async def test_a_page_of_many_links_lets_others_go_on(serve, monkeypatch):
    monkeypatch.setattr("scrapy_aopic.session.time_slices.SLICE", 0.0)
    serve({HOME: []})
    beats: list[int] = []

    class Many(Follow):
        start_urls = [HOME]

        def parse(self, response: Response) -> Iterator[Any]:
            self.beat()
            for n in range(200):
                beats.append(self.n_beats)
                yield Request(f"data:,{n}", self.nothing)

        n_beats = 0

        def beat(self) -> None:
            self.n_beats += 1
            self.timer = asyncio.get_running_loop().call_soon(self.beat)

        def nothing(self, response: Response) -> None:
            if len(beats) == 200:  # an answer may be there before the last request
                self.timer.cancel()

    await crawl(Many, {"SCHEDULER": "scrapy_aopic.Scheduler"})
    assert len(set(beats)) > 100  # the event loop made that many rounds while one callback yielded


def test_links_that_are_far_too_long_count_without_being_normalised():
    def key_of(request: Request) -> tuple[str, bytes]:
        assert len(request.url) < 100_000
        return "a.test", page_key(host_key("a.test"), request.url.encode())

    class Admits:
        """Everything, as it is."""

        has_own_rule = True
        judge_link = staticmethod(JudgedUrl)

        def admit_link(self, request: Request, page: str) -> Request:
            return request

    lease = SimpleNamespace(key=page_key(host_key("a.test"), b"http://a.test/"))
    visit = Visit(Request(HOME), cast("Any", lease), 1, key_of, 10_000)
    urls = [f"http://a.test/{path}" for path in ("", "1", *(letter * 1_000_000 for letter in "aab"))]
    found = [FoundLink(url, Request(url), is_link=True) for url in urls]
    LinkTargets(cast("Any", Admits()), cast("Any", key_of)).admit(found, HOME)
    visit.count(found)
    assert visit.n_links == 3
