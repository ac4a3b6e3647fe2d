"""``AOPIC_HOST_RULES`` in real crawls: what servers see of it, what is counted, and what the log and ``why`` say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from demo_web.server import Answer
from demo_web.server_log import audit
from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider, StopDownload
from scrapy.http import Response
from support.crawls import ADDON, OURS, Visits, in_folder, logged, stat
from support.small_web import Follow, Web, ask, crawl

from scrapy_aopic.lab.site_traps import SITE_TRAPS
from scrapy_aopic.view.url_settings import CrawlRules
from scrapy_aopic.view.why import why

Serve = Callable[[dict[str, Any]], Web]

SCHEDULER = OURS
MIDDLEWARE = {"DOWNLOADER_MIDDLEWARES": {"scrapy_aopic.PolitenessMiddleware": 990}}


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SCHEDULER, MIDDLEWARE, ADDON], ids=["scheduler", "middleware", "addon"])
async def test_the_gap_of_a_host_grows_with_its_bytes_also_with_those_of_a_response_that_is_cut(
    serve, settings
):
    def cut(data: bytes, request: Request) -> None:
        if request.url.endswith("/cut"):
            raise StopDownload(fail=True)

    html = {"Content-Type": "text/html"}
    bodies = {"cut": bytes(4000), "1": bytes(3000), "2": bytes(10)}
    web = serve(
        {
            "http://a.test/": [*bodies, "http://b.test/1", "http://b.test/2"],
            **{f"http://a.test/{name}": Answer(headers=html, body=body) for name, body in bodies.items()},
            **{f"http://b.test/{n}": Answer(headers=html, body=bytes(100_000)) for n in (1, 2)},
        }
    )
    rules = {"a.test": {"bytes_per_second": 10_000}}
    settings = {**settings, "AOPIC_HOST_RULES": rules, "RETRY_ENABLED": False}
    crawler = await crawl(Follow, settings, told={signals.bytes_received: cut})
    assert len(web.asked) == 6
    dues = {f"/{name}": len(body) / 10_000 for name, body in bodies.items()}
    rest = lambda entry: dues.get(entry.target, 0.0) if entry.host == "a.test" else 0.0
    assert audit(web.log, 0, rest=rest).is_polite
    robots = sum(entry.target == "/robots.txt" and entry.host == "a.test" for entry in web.log)
    assert stat(crawler, "aopic/politeness/under_rules") == 4 + robots


@pytest.mark.slow
async def test_a_site_is_revisited_by_its_own_interval_and_the_others_by_theirs(serve, tmp_path):
    def parse(response: Response) -> Any:
        if [f"http://{entry.host}/" for entry in web.log].count("http://b.news.test/") == 3:
            raise CloseSpider("enough")

    urls = ["http://a.test/", "http://b.news.test/", "http://c.test/"]
    web = serve({url: [] for url in urls})
    rules = {"news.test": {"revisit": "1 second"}}
    settings = in_folder(tmp_path, AOPIC_RECRAWL=True, AOPIC_HOST_RULES=rules)
    crawler = await crawl(Visits, settings, start_urls=urls, parse=parse)
    assert stat(crawler, "finish_reason") == "enough"
    assert Counter(web.asked) == {"http://a.test/": 1, "http://b.news.test/": 3, "http://c.test/": 1}


async def test_a_site_with_cash_at_the_start_comes_first(serve, tmp_path):
    hosts = [f"http://{name}.test/" for name in "bcdefgh"]
    web = serve({"http://a.test/": hosts, **{host: [] for host in hosts}})
    settings = {"AOPIC_HOST_RULES": {"f.test": {"worth": 1000}}, "CONCURRENT_REQUESTS": 1}
    await crawl(Follow, in_folder(tmp_path, **settings))
    assert web.asked[:2] == ["http://a.test/", "http://f.test/"]
    assert len(web.asked) == 8


async def test_the_log_says_which_rules_were_for_nobody_and_which_options_change_nothing(serve, caplog):
    serve({"http://a.test/": []})
    rules = {"a.test": {"revisit": 60, "budget": 0.1}, "aa.test": {"min_gap": 1}, "*.tset": {"min_gap": 1}}
    await crawl(Follow, {**SCHEDULER, "AOPIC_HOST_RULES": rules, "AOPIC_ORDER": "breadth-first"})
    assert logged(caplog, "WARNING") == [
        "AOPIC_HOST_RULES: revisit needs AOPIC_RECRAWL, and changes nothing",
        "AOPIC_HOST_RULES: budget needs an order with budgets (AOPIC_ORDER), and changes nothing",
        "AOPIC_HOST_RULES: aa.test, *.tset matched no host in this run",
    ]


async def test_of_thousands_of_rules_for_nobody_the_log_names_ten(serve, caplog):
    serve({"http://a.test/": []})
    rules = {f"h{n}.test": {"min_gap": 1} for n in range(20_000)}
    await crawl(Follow, {**SCHEDULER, "AOPIC_HOST_RULES": rules})
    (said,) = logged(caplog, "WARNING")
    assert "h9.test and 19,990 more matched no host" in said
    assert len(said) < 300


async def test_why_says_which_options_a_host_has_and_by_which_rule(serve, tmp_path):
    serve({"http://www.a.test/": []})
    settings = {
        "AOPIC_HOST_RULES": {
            "a.test": {"budget": 0.02, "min_gap": 0},
            "www.a.test": {"min_gap": 0.01, "revisit": ["1 hour", "2 days"]},
            "*": {"bytes_per_second": 1_000_000},
        }
    }
    await crawl(Visits, in_folder(tmp_path, **settings), starts=["http://www.a.test/"])
    rules = CrawlRules(settings)
    said = (
        "AOPIC_HOST_RULES gives www.a.test options of its own: min_gap 0.01 (by www.a.test), revisit 1 h to 2 d (by www.a.test), "
        "budget 0.02 (by a.test), bytes_per_second 1,000,000 (by *)."
    )
    for question in ("http://www.a.test/", "www.a.test", "http://www.a.test/unknown"):
        answer = ask(tmp_path, why, question, rules)
        assert answer.sentences[-1] == said
        assert answer.facts["host_options"]["budget"] == {"value": 0.02, "by": "a.test"}
    other = ask(tmp_path, why, "other.test", rules)  # before the crawl knows of it
    assert "other.test options of its own: bytes_per_second" in other.sentences[-1]
    assert "host_options" not in ask(tmp_path, why, "www.a.test", CrawlRules({})).facts


async def limited(serve: Serve, folder: Path, **options: Any) -> tuple[list[str], Crawler]:
    """URLs that a crawl asked for with these options of ``a.test``, and the crawl: of a chain, and of pages of two hosts."""
    names = "bcdefg"
    web = serve(
        {
            "http://a.test/": [*[f"http://a.test/{name}" for name in names], "http://z.test/1"],
            **{f"http://a.test/{name}": [f"http://a.test/{name}/1"] for name in names},
            **{f"http://a.test/{name}/1": [f"http://a.test/{name}/2"] for name in names},
            **{f"http://a.test/{name}/2": [] for name in names},
            **{f"http://z.test/{n}": [f"http://z.test/{n + 1}"] for n in range(9)},
            "http://z.test/9": [],
        }
    )
    rules = {"AOPIC_HOST_RULES": {"a.test": options}}
    crawler = await crawl(Follow, in_folder(folder, ADDON, **rules, USER_AGENT="tester"))
    return web.asked, crawler


async def test_a_host_has_no_more_pages_than_it_may_have_and_the_others_wait(serve, tmp_path, caplog):
    asked, crawler = await limited(serve, tmp_path, pages=4)
    hosts = Counter(url.split("/")[2] for url in asked)
    assert hosts == {"a.test": 4, "z.test": 9}
    assert stat(crawler, "finish_reason") == "finished"
    assert stat(crawler, "aopic/hosts/full") == 1
    assert "a.test has had all the pages that AOPIC_HOST_RULES lets it have" in " ".join(
        logged(caplog, "WARNING")
    )
    rules = CrawlRules({"AOPIC_HOST_RULES": {"a.test": {"pages": 4}}})
    waits = next(f"http://a.test/{name}" for name in "bcdefg" if f"http://a.test/{name}" not in asked)
    had = "a.test has had 4 pages, and a.test of AOPIC_HOST_RULES lets it have 4:"
    for question in ("a.test", waits):
        assert ask(tmp_path, why, question, rules).sentences[0].startswith(had)
    more, _ = await limited(serve, tmp_path, pages=6)
    assert [url.split("/")[2] for url in more] == ["a.test"] * 2
    assert set(more).isdisjoint(asked)


async def test_links_that_are_deeper_than_their_host_may_go_are_not_followed(serve, tmp_path, caplog):
    asked, crawler = await limited(serve, tmp_path, depth=2)
    assert {url for url in asked if "a.test" in url} == {
        "http://a.test/",
        *(f"http://a.test/{name}" for name in "bcdefg"),
        *(f"http://a.test/{name}/1" for name in "bcdefg"),
    }
    assert sum("z.test" in url for url in asked) == 9
    assert stat(crawler, "aopic/scope/too_deep") == 6
    assert sum("(aopic/scope/too_deep counts them)" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["facets", "calendar"])
async def test_a_server_sees_few_requests_for_a_trap_whose_pages_lead_to_each_other(serve, kind):
    links_of, begin = SITE_TRAPS[kind]
    root, n = "http://a.test", 500
    names = [f"/{chr(97 + number // 26)}/{chr(97 + number % 26)}.html" for number in range(n)]

    class Site(dict[str, Any]):
        """Real pages, each of which leads to two others and three of which lead to the trap, and this without end."""

        def get(self, url: str, _: Any = None) -> list[str] | None:
            path = url.removeprefix(root)
            if path in self:
                number = self[path]
                links = [names[each] for each in (number + 1, 2 * number + 1, 2 * number + 2) if each < n]
                return ["/", *links, *([begin] if number < 3 else [])]
            if path == "/robots.txt" or not path.startswith(begin[:5]):
                return None
            return [f"{root}{each}" for each in links_of(path, 0, lambda _: []) if isinstance(each, str)]

    web = serve(Site({**{name: number for number, name in enumerate(names)}, "/": 0}))
    await crawl(Follow, {**ADDON, "CLOSESPIDER_PAGECOUNT": n})
    trapped = [url for url in web.asked[:n] if url.removeprefix(root).startswith(begin[:5])]
    assert 0 < len(trapped) < n / 6  # without the bound it is 343 for facets, and 153 for a calendar
