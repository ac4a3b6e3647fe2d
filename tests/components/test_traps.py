"""Answers that would never end, or grow without bound: each costs a bounded number of bytes and fetches.

What is not one page but a site without end (calendars, sessions in paths) is a matter of URLs and of budgets.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from demo_web.server import Answer
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from support.crawls import ADDON, in_folder
from support.small_web import Follow, ask_view, check, crawl, html

from scrapy_aopic.session import visit
from scrapy_aopic.view.stored import count

HOME = "http://a.test/"
TRAP = "http://trap.test/"
HTML = {"Content-Type": "text/html"}


class Note(Follow):
    """Notes what its callback is told."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.told: list[str] = []

    def parse(self, response: Response) -> Any:
        self.told.append(response.url)
        return super().parse(response)


async def run(folder: Path, spider: type[Note] = Note, **settings: Any) -> Crawler:
    """Crawl with the add-on, without retries; the audit holds at the end, and nothing waits."""
    crawler = await crawl(spider, in_folder(folder, ADDON, **{"RETRY_ENABLED": False, **settings}))
    assert check(folder).queued == 0
    return crawler


def told(crawler: Crawler) -> list[str]:
    return sorted(crawler.spider.told)


def outcomes(folder: Path) -> dict[str, int]:
    found: dict[str, int] = ask_view(folder, count).outcomes
    return found


def with_trap(answer: Answer) -> dict[str, Any]:
    """A site with a page that links to a trap and to one more page."""
    return {HOME: [TRAP, "/1"], "http://a.test/1": [], TRAP: answer}


# -- one answer


async def test_a_body_without_end_is_cut_off(serve, tmp_path):
    web = serve(with_trap(Answer(headers=HTML, body=b"<p>more</p>" * 10_000, endless=True)))
    crawler = await run(tmp_path, DOWNLOAD_TIMEOUT=600)
    assert told(crawler) == [HOME, "http://a.test/1"]
    assert outcomes(tmp_path) == {"DownloadCancelledError": 1}
    assert web.asked.count(TRAP) == 1


@pytest.mark.slow
async def test_a_body_that_drips_is_cut_off(serve, tmp_path):
    web = serve(with_trap(Answer(headers=HTML, body=b"x", body_delay=0.01, endless=True)))

    class Impatient(Note):
        def parse(self, response: Response) -> Any:
            for request in super().parse(response):
                yield request.replace(meta={"download_timeout": 1}) if request.url == TRAP else request

    crawler = await run(tmp_path, Impatient)
    assert told(crawler) == [HOME, "http://a.test/1"]
    assert outcomes(tmp_path) == {"DownloadTimeoutError": 1}
    assert web.asked.count(TRAP) == 1


@pytest.mark.parametrize(
    "headers",
    [{f"X-{number}": "x" * 10_000 for number in range(1000)}, {"X": "x" * 10_000_000}],
    ids=["many lines", "one line"],
)
async def test_ten_megabytes_of_headers_are_not_read(serve, tmp_path, headers):
    web = serve(with_trap(Answer(headers={**HTML, **headers}, body=b"read")))
    crawler = await run(tmp_path)
    assert told(crawler) == [HOME, "http://a.test/1"]
    assert outcomes(tmp_path) == {"DownloadFailedError": 1}
    assert [entry.status for entry in web.log if entry.target == "/" and "trap" in entry.host] == [0]


async def test_long_headers_that_any_browser_takes_are_read_also_on_a_kept_connection(serve, tmp_path):
    long = Answer(headers={**HTML, **{f"X-{number}": "x" * 10_000 for number in range(10)}})
    pages = {f"http://a.test/{number}": long for number in range(9)}
    serve({HOME: list(pages), **pages})
    crawler = await run(tmp_path)
    assert told(crawler) == [HOME, *pages]


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_body_that_unpacks_to_fifty_megabytes_is_not_unpacked(serve, tmp_path, encoding):
    zeros = bytes(50_000_000)
    body = gzip.compress(zeros) if encoding == "gzip" else zlib.compress(zeros)
    assert len(body) < 100_000
    serve(with_trap(Answer(headers={**HTML, "Content-Encoding": encoding}, body=body)))
    crawler = await run(tmp_path)
    assert told(crawler) == [HOME, "http://a.test/1"]
    assert sum(outcomes(tmp_path).values()) == 1


async def test_of_a_flood_of_links_no_more_are_followed_than_you_say(serve, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(visit, "MAX_LINKS", 5)
    web = serve({HOME: [f"/{number}" for number in range(300)], "http://a.test/7": ["/x"] * 3 + ["/y"] * 300})
    crawler = await run(tmp_path, AOPIC_URL_LIMITS={"links": 20})
    assert len(web.asked) == len(set(web.asked)) == 1 + 20 + 2
    assert (
        crawler.stats.get_value("aopic/links/dropped") == 280
    )  # LinkExtractor drops what it has seen on the page
    (warning,) = [
        record.getMessage() for record in caplog.records if "AOPIC_URL_LIMITS" in record.getMessage()
    ]
    assert HOME in warning


async def test_no_link_is_dropped_if_you_say_so(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(visit, "MAX_LINKS", 5)
    web = serve({HOME: [f"/{number}" for number in range(100)]})
    await run(tmp_path, AOPIC_URL_LIMITS={"links": 0})
    assert len(web.asked) == 101


# -- answers that lead to each other


def refresh(url: str, seconds: float) -> Answer:
    body = (
        f'<html><head><meta http-equiv="refresh" content="{seconds}; url={url}"></head><a href="/end">e</a>'
    )
    return Answer(headers=HTML, body=body.encode())


@pytest.mark.parametrize("kind", [301, 302, 307, 308, "refresh"])
async def test_a_circle_of_redirects_across_hosts_ends(serve, tmp_path, kind):
    def lead(url: str) -> Answer:
        return refresh(url, 0) if kind == "refresh" else Answer(kind, {"Location": url})

    web = serve(
        {
            HOME: [TRAP, "/1"],
            "http://a.test/1": [TRAP],
            TRAP: lead("http://b.test/"),
            "http://b.test/": lead("http://c.test/"),
            "http://c.test/": lead(TRAP),
        }
    )
    crawler = await run(tmp_path)
    assert told(crawler) == [HOME, "http://a.test/1"]
    assert max(Counter(web.asked).values()) == 1
    assert outcomes(tmp_path) == {"redirect": 3}


@pytest.mark.parametrize("dont_filter", [False, True])
async def test_a_chain_of_redirects_without_end_ends(serve, tmp_path, dont_filter):
    class Start(Note):
        async def start(self) -> Any:
            yield Request("http://h0.test/", dont_filter=dont_filter)

    web = serve(
        {
            f"http://h{number}.test/": Answer(301, {"Location": f"http://h{number + 1}.test/"})
            for number in range(100)
        }
    )
    await run(tmp_path, Start)
    assert web.asked == [f"http://h{number}.test/" for number in range(11)]
    assert sum(outcomes(tmp_path).values()) == 11


async def test_two_pages_that_are_asked_for_whatever_is_known_lead_to_each_other(serve, tmp_path):
    class Start(Note):
        async def start(self) -> Any:
            yield Request(HOME, dont_filter=True)

    web = serve({HOME: Answer(301, {"Location": TRAP}), TRAP: Answer(301, {"Location": HOME})})
    await run(tmp_path, Start)
    assert len(web.asked) == 11


# -- farms of domains


@pytest.mark.slow
async def test_a_farm_of_domains_behind_one_link_takes_little_while_honest_sites_may_be_asked(
    serve, tmp_path
):
    """The farm has 200 domains of three pages, each of which links to seven others; ten honest sites have 40 pages."""
    pages: dict[str, Any] = {}
    homes = [f"http://www.honest{site}.test/" for site in range(10)]
    for home in homes:
        links = [f"{home}{number}" for number in range(39)]
        pages[home] = links[:2]
        for number, link in enumerate(links):
            pages[link] = links[2 * number + 2 : 2 * number + 4]
    farm = [f"http://www.farm{number}.test/" for number in range(200)]
    for number, home in enumerate(farm):
        places = (*range(5 * number + 1, 5 * number + 6), number // 2, 7 * number)
        others = [farm[each % 200] for each in places]
        pages.update({home: [*others, f"{home}1", f"{home}2"], f"{home}1": others, f"{home}2": others})
    web = serve({HOME: [*homes, farm[0]], **pages})
    bounds = {"CONCURRENT_REQUESTS": 4, "CLOSESPIDER_PAGECOUNT": 650}  # with robots.txt
    await crawl(Follow, in_folder(tmp_path, ADDON, **bounds))
    is_farm = ["farm" in url for url in web.asked[:500]]
    assert len(is_farm) == 500
    assert is_farm.count(False) == 401  # then there is nothing but the farm, and it is asked
    last = len(is_farm) - is_farm[::-1].index(False)
    assert sum(is_farm[:last]) <= 0.1 * last


@pytest.mark.slow
@pytest.mark.parametrize("is_bounded", [True, False])
async def test_a_farm_stuffed_with_a_topic_s_words_gets_what_the_link_to_it_carries(
    serve, tmp_path, *, is_bounded
):
    """The farm has 60 domains of three pages that are nothing but the topic; ten honest sites have 30 pages without it."""
    stuffing = "galaxy comet " * 50
    pages: dict[str, Any] = {}
    homes = [f"http://www.honest{site}.test/" for site in range(10)]
    for home in homes:
        pages[home] = links = [f"{home}{number}" for number in range(29)]
        for link in links:
            pages[link] = []
    farm = [f"http://www.farm{number}.test/" for number in range(60)]
    for number, home in enumerate(farm):
        others = [farm[each % 60] for each in range(5 * number + 1, 5 * number + 6)]
        for page in (home, f"{home}galaxy/1", f"{home}galaxy/2"):
            links = [*others, f"{home}galaxy/1", f"{home}galaxy/2"]
            pages[page] = Answer(headers=HTML, body=html(links, f"{stuffing} {page}"))  # each another text
    web = serve({HOME: [*homes, farm[0]], **pages})
    topic = {"AOPIC_ORDER": "focused", "AOPIC_FOCUS": 0.5, "AOPIC_TOPIC": {"keywords": ["galaxy", "comet"]}}
    budget = {} if is_bounded else {"AOPIC_DOMAIN_BUDGET": 0}
    await crawl(Follow, in_folder(tmp_path, ADDON, CONCURRENT_REQUESTS=4, **topic, **budget))
    is_farm = ["farm" in url for url in web.asked]
    assert (len(is_farm), sum(is_farm)) == (481, 180)  # nothing is lost
    honest = [place for place, each in enumerate(is_farm) if not each]
    # At the end few honest sites have any pages left, and a connection takes one of the farm rather than none.
    while_honest_wait = is_farm[: honest[-60]]
    taken = sum(while_honest_wait)
    if is_bounded:  # 20 pages, and five times 0.4 %, both divided by 1 - 0.5; and what was in flight
        assert taken <= max(40, 0.04 * len(while_honest_wait)) + 4
    else:
        assert taken > 150


# -- farms of domains


FARM, SITES, SITE_PAGES = 100, 8, 20


class FromAllSites(Note):
    start_urls = [f"http://site{number}.test/0" for number in range(SITES)]


@pytest.mark.slow
async def test_a_farm_gets_connections_that_are_free_only_when_no_site_waits_for_the_processor(
    serve, tmp_path
):
    pages: dict[str, Any] = {}
    for site in range(SITES):
        own = [f"http://site{site}.test/{number}" for number in range(SITE_PAGES)]
        pages |= dict.fromkeys(own, own)
    pages["http://site0.test/0"] = [*pages["http://site0.test/0"], "http://farm0.test/"]
    homes = [f"http://farm{number}.test/" for number in range(FARM)]
    pages |= {home: (homes + homes)[number : number + 10] for number, home in enumerate(homes)}
    pages[homes[0]] = homes
    web = serve(pages)
    await run(tmp_path, FromAllSites, CONCURRENT_REQUESTS=100)
    honest = [number for number, url in enumerate(web.asked) if "site" in url]
    assert (len(honest), len(web.asked)) == (SITES * SITE_PAGES, SITES * SITE_PAGES + FARM)
    # Twenty pages behind the link are free, and two in a hundred.
    assert honest[-1] + 1 - len(honest) < FARM // 3
