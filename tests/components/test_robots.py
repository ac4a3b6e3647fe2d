"""robots.txt as servers saw it: what is asked of whom, how often, and what is never asked."""

from __future__ import annotations

import asyncio
import gzip
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any

import pytest
from demo_web.server import Answer, Exchange
from demo_web.server_log import audit
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.robotstxt import ProtegoRobotParser, PythonRobotParser, RobotParser
from scrapy.settings import Settings
from support.crawls import ADDON, Visits, in_folder, logged, stat
from support.small_web import Follow, Web, ask, crawl, until

from scrapy_aopic import Addon, ContentTypeMiddleware, PolitenessMiddleware, RobotsMiddleware
from scrapy_aopic.core.robots.fetches import MAX_BYTES
from scrapy_aopic.downloadermiddlewares import robots as robots_middleware
from scrapy_aopic.session import sitemap_requests
from scrapy_aopic.session.pacer import JobPacer
from scrapy_aopic.view.url_settings import CrawlRules
from scrapy_aopic.view.why import why
from scrapy_aopic.web import sitemaps as of_web
from scrapy_aopic.web.robots_parser import Rfc9309RobotParser, crawl_delay_of, parse

SCHEDULER = {"SCHEDULER": "scrapy_aopic.Scheduler", "ROBOTSTXT_OBEY": True}
BESIDE = {
    "ROBOTSTXT_OBEY": True,
    "DOWNLOADER_MIDDLEWARES": {RobotsTxtMiddleware: None, RobotsMiddleware: 100},
}
DAY = 86_400


def rules(*forbidden: str, more: str = "") -> Answer:
    lines = "".join(f"Disallow: {path}\n" for path in forbidden)
    return Answer(headers={"Content-Type": "text/plain"}, body=f"User-agent: *\n{lines}{more}".encode())


def to(url: str, status: int = 301) -> Answer:
    return Answer(status, {"Location": url})


def in_turn(*answers: Answer) -> Callable[[Exchange], Answer]:
    """One answer after the other; the last one for ever."""
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def n_robots(web: Web) -> Counter[str]:
    """How often each host was asked for its robots.txt."""
    return Counter(entry.host for entry in web.log if entry.target == "/robots.txt")


def middleware(crawler: Crawler) -> RobotsMiddleware:
    found = crawler.get_downloader_middleware(RobotsMiddleware)
    assert found is not None
    return found


# -- each kind of answer


@pytest.mark.parametrize(
    "answer",
    [
        rules(),
        rules("/other"),
        Answer(204),
        *(Answer(status) for status in (304, 400, 401, 403, 404, 410, 451)),
    ],
    ids=lambda answer: f"{answer.status}-{len(answer.body)}",
)
async def test_a_robots_txt_that_does_not_forbid_a_page_or_is_not_there_allows_it(serve, answer):
    web = serve({"http://a.test/robots.txt": answer, "http://a.test/": ["/1"], "http://a.test/1": []})
    crawler = await crawl(Follow, SCHEDULER)
    assert web.asked == ["http://a.test/", "http://a.test/1"]
    assert n_robots(web) == {"a.test": 1}
    assert stat(crawler, f"robotstxt/response_status_count/{answer.status}") == 1
    assert stat(crawler, "robotstxt/request_count") == stat(crawler, "robotstxt/response_count") == 1


async def test_what_robots_txt_forbids_is_not_asked_and_its_cash_comes_back(serve, tmp_path, caplog):
    pages = {"http://a.test/": ["/private/1", "/a.php", "/2"], "http://a.test/2": []}
    web = serve({"http://a.test/robots.txt": rules("/private/", "/*.php$"), **pages})
    crawler = await crawl(Follow, {**SCHEDULER, "AOPIC_STORE": "sqlite", "JOBDIR": tmp_path})
    assert web.asked == ["http://a.test/", "http://a.test/2"]
    assert stat(crawler, "robotstxt/forbidden") == stat(crawler, "aopic/outcomes/robots.txt") == 2
    assert stat(crawler, "aopic/pages/failed") == 2
    (warning,) = logged(caplog, "WARNING")
    assert "ROBOTSTXT_OBEY" in warning


@pytest.mark.parametrize(
    "answer",
    [
        *(Answer(status) for status in (429, 500, 503, 599)),
        Answer(abort=True),
        to("http://b.test/robots.txt"),
    ],
    ids=lambda answer: f"{answer.status}-{answer.abort}",
)
async def test_while_robots_txt_is_unreachable_nothing_is_asked(serve, tmp_path, answer, monkeypatch):
    monkeypatch.setattr(robots_middleware, "RETRY", 0.01)
    robots = {"http://a.test/robots.txt": answer, "http://b.test/robots.txt": Answer(503)}
    web = serve({**robots, "http://a.test/": ["/1"]})
    settings = {"AOPIC_MAX_WAIT": 0.03, "AOPIC_STORE": "sqlite", "JOBDIR": tmp_path}
    crawler = await crawl(Follow, {**SCHEDULER, **settings})
    assert web.asked == []
    assert n_robots(web)["a.test"] == 3
    assert stat(crawler, "aopic/outcomes/robots.txt unreachable") == 1
    assert stat(crawler, "aopic/robots/unreachable") == 3
    assert stat(crawler, "aopic/robots/put_back") == 2
    assert stat(crawler, "aopic/robots/refused") == 1


@pytest.mark.slow
@pytest.mark.parametrize("failure", [Answer(503), Answer(abort=True)], ids=["503", "reset"])
async def test_pages_wait_until_robots_txt_is_back(serve, failure, monkeypatch):
    monkeypatch.setattr(robots_middleware, "RETRY", 0.05)
    tries: list[Answer] = []

    def until_others_were_asked(_: Exchange) -> Answer:
        tries.append(failure if len(tries) < 2 or not others else rules("/2"))
        return tries[-1]

    def other(exchange: Exchange) -> list[str]:
        others.append(exchange.host)
        return []

    others: list[str] = []
    web = serve(
        {
            "http://a.test/robots.txt": until_others_were_asked,
            "http://a.test/": ["/1", "/2"],
            "http://a.test/1": [],
            "http://b.test/": other,
        }
    )
    crawler = await crawl(Follow, SCHEDULER, start_urls=["http://a.test/", "http://b.test/"])
    assert web.asked == ["http://b.test/", "http://a.test/", "http://a.test/1"]  # nobody waits for a.test
    assert n_robots(web) == {"a.test": len(tries), "b.test": 1}
    assert len(tries) >= 3
    assert stat(crawler, "aopic/pages/failed") == 1  # what it forbids
    assert stat(crawler, "retry/count") is None


@pytest.mark.parametrize("failure", [Answer(503), Answer(abort=True)], ids=["503", "reset"])
async def test_the_log_and_why_tell_when_robots_txt_is_really_asked_for_again(
    serve, tmp_path, caplog, failure, monkeypatch
):
    """Its own pause is over at once, but its host, or its origin, must be left alone for longer."""
    monkeypatch.setattr(robots_middleware, "RETRY", 0.001)
    web = serve({"http://a.test/robots.txt": failure, "http://a.test/": []})
    settings = {"AOPIC_BACKOFF": 7000, "AOPIC_MAX_GAP": 7000}
    caplog.set_level("INFO")
    crawler = await crawl(Follow, in_folder(tmp_path / "job", SCHEDULER, **settings))
    assert (n_robots(web), stat(crawler, "finish_reason")) == ({"a.test": 1}, "aopic_waiting")
    said = " ".join(record.getMessage() for record in caplog.records)
    due = re.search(r"the next one is due in (\d+) s", said)
    assert 6990 <= int(due[1]) <= 7000
    for question in ("http://a.test/", "a.test"):
        answer = ask(tmp_path / "job", why, question, CrawlRules({}))
        times = re.findall(r"tried again at (.+?)\.", " ".join(answer.sentences))
        not_before = datetime.fromtimestamp(answer.facts["not_before"], timezone.utc)
        assert times == [not_before.isoformat(" ", "seconds")]


async def test_pages_of_a_dead_host_wait_for_ever_and_nobody_waits_for_them(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(robots_middleware, "RETRY", 0.001)
    web = serve({"http://a.test/robots.txt": Answer(abort=True), "http://b.test/": []})
    settings = in_folder(tmp_path, SCHEDULER, AOPIC_MAX_WAIT=0.01, AOPIC_BACKOFF=0.02)
    crawler = await crawl(Follow, settings, start_urls=["http://a.test/", "http://b.test/"])
    assert (web.asked, n_robots(web)) == (["http://b.test/"], {"a.test": 5, "b.test": 1})
    assert stat(crawler, "aopic/pages/failed") is None
    assert stat(crawler, "aopic/job/queued") == 1
    assert stat(crawler, "finish_reason") == "aopic_unreachable"


async def test_a_robots_txt_on_a_host_that_must_be_left_alone_is_unreachable(serve):
    def parse(response: Response) -> Iterator[Any]:
        if response.status == 429:
            yield Request("http://a.test/")

    meta = {"dont_obey_robotstxt": True, "dont_retry": True, "handle_httpstatus_list": [429]}
    web = serve(
        {
            "http://a.test/robots.txt": to("http://b.test/rules"),
            "http://a.test/": [],
            "http://b.test/": Answer(429, {"Retry-After": "3600"}),
        }
    )
    starts = [Request("http://b.test/", meta=meta)]
    crawler = await crawl(Visits, {**SCHEDULER, "AOPIC_MAX_WAIT": 1}, starts=starts, parse=parse)
    assert web.asked == ["http://b.test/"]
    assert stat(crawler, "aopic/outcomes/robots.txt unreachable") == 1


async def test_a_robots_txt_that_a_middleware_turns_down_counts_as_missing(serve):
    web = serve({"http://a.test/robots.txt": rules("/"), "http://a.test/": []})
    await crawl(Follow, {**SCHEDULER, "DOWNLOADER_MIDDLEWARES": {f"{__name__}.{NoRobots.__name__}": 200}})
    assert (web.asked, n_robots(web)) == (["http://a.test/"], {})


class NoRobots:
    def process_request(self, request: Request) -> None:
        if request.url.endswith("/robots.txt"):
            raise IgnoreRequest


# -- redirects


def chain(n: int, end: Answer) -> dict[str, Any]:
    """The robots.txt of a.test, *n* redirects away on hosts of its own."""
    names = ["a.test", *(f"r{number}.test" for number in range(n))]
    hops = {f"http://{name}/robots.txt": to(f"http://{after}/robots.txt") for name, after in pairwise(names)}
    return {**hops, f"http://{names[-1]}/robots.txt": end, "http://a.test/": ["/1"], "http://a.test/1": []}


@pytest.mark.parametrize("n", [1, 5])
async def test_redirects_are_followed_to_other_hosts(serve, n):
    """Also by a spider that stays on its domain."""
    web = serve(chain(n, rules("/1")))
    settings = {**SCHEDULER, "REDIRECT_ENABLED": False, "AOPIC_POLITENESS_FACTOR": 3}
    await crawl(Follow, settings, allowed_domains=["a.test"])
    assert web.asked == ["http://a.test/"]
    assert audit(web.log, 3).is_polite


async def test_hosts_that_share_a_robots_txt_do_not_ask_for_it_twice(serve):
    hosts = ["a.test", "www.a.test", "b.test"]
    web = serve(
        {
            "http://a.test/robots.txt": to("http://www.a.test/robots.txt"),
            "http://b.test/robots.txt": to("/robots2.txt"),
            "http://b.test/robots2.txt": to("http://www.a.test/robots.txt", 307),
            "http://www.a.test/robots.txt": Answer(body=rules("/1").body, delay=0.05),
            **{f"http://{host}/": ["/1"] for host in hosts},
            **{f"http://{host}/1": [] for host in hosts},
        }
    )
    await crawl(Follow, SCHEDULER, start_urls=[f"http://{host}/" for host in hosts])
    assert n_robots(web) == {"a.test": 1, "www.a.test": 1, "b.test": 1}
    assert sorted(web.asked) == sorted([*(f"http://{host}/" for host in hosts), "http://b.test/robots2.txt"])


@pytest.mark.parametrize("target", ["/robots.txt", "ftp://a.test/robots.txt", "http://[broken/robots.txt"])
async def test_redirects_that_lead_nowhere_count_as_missing(serve, target):
    web = serve({"http://a.test/": [], "http://a.test/robots.txt": to(target, 302)})
    await asyncio.wait_for(crawl(Follow, SCHEDULER), 60)
    assert web.asked == ["http://a.test/"]


# -- how much is read


async def test_of_a_huge_robots_txt_the_first_500_kib_are_read(serve):
    begin = b"User-agent: *\nDisallow: /1\n"
    padding = b"# padding\n" * (MAX_BYTES // 10)
    half_a_rule = b"Disallow: /"  # the file is cut behind the slash
    start = begin + padding[: MAX_BYTES - len(begin) - len(half_a_rule) - 1] + b"\n" + half_a_rule
    assert len(start) == MAX_BYTES
    body = start + b"else\nDisallow: /2\n" + b"# more\n" * 3_000_000
    pages = {"http://a.test/": ["/1", "/2", "/else"], "http://a.test/2": [], "http://a.test/else": []}
    web = serve({"http://a.test/robots.txt": Answer(body=body), **pages})
    await crawl(Follow, {**SCHEDULER, "DOWNLOAD_MAXSIZE": 1_000_000})  # the length is known beforehand
    assert web.asked == ["http://a.test/", "http://a.test/2", "http://a.test/else"]
    assert [entry.status for entry in web.log if entry.target == "/robots.txt"] == [0]  # we hung up


async def test_a_robots_txt_that_unpacks_to_too_much_is_unreachable_and_allows_nothing(serve):
    text = b"User-agent: *\nDisallow: /1\n" + bytes(5_000_000)
    packed = Answer(headers={"Content-Encoding": "gzip"}, body=gzip.compress(text))
    web = serve({"http://a.test/robots.txt": packed, "http://a.test/": ["/1"]})
    await crawl(Follow, {**SCHEDULER, "DOWNLOAD_MAXSIZE": 1_000_000, "AOPIC_MAX_WAIT": 1})
    assert web.asked == []


# 52 kB of the first stopped a crawl for 39 seconds; Protego reads the second in a minute.
HOSTILE = {
    "agents between other lines": b"user-agent:\nx\n",
    "as many agents as rules": b"".join(b"user-agent: %d\n" % n for n in range(15_000)),
    "wildcards": b"user-agent: *\n" + b"".join(b"allow: *1*%d*\n" % n for n in range(2000)),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_hostile_robots_txt_is_obeyed_like_any(serve, kind):
    hostile = HOSTILE[kind] * (250_000 // len(HOSTILE[kind]))
    rest = b"user-agent: *\n" + b"".join(b"allow: /x%d\n" % n for n in range(15_000)) + b"disallow: /1\n"
    robots = {"http://a.test/robots.txt": Answer(body=hostile + rest)}
    web = serve({**robots, "http://a.test/": ["/1", "/2"], "http://a.test/2": []})
    crawler = await crawl(Follow, SCHEDULER)
    assert web.asked == ["http://a.test/", "http://a.test/2"]
    assert stat(crawler, "aopic/robots/cut") == (1 if kind == "wildcards" else None)


async def test_the_first_robots_txt_with_too_many_wildcards_is_logged(serve, caplog):
    robots = Answer(body=b"user-agent: *\n" + b"".join(b"disallow: /x*%d\n" % n for n in range(5000)))
    hosts = ("a.test", "b.test")
    urls = [f"http://{host}/{path}" for host in hosts for path in ("y", "x")]
    web = serve({f"http://{host}/robots.txt": robots for host in hosts} | {url: [] for url in urls})
    crawler = await crawl(Follow, SCHEDULER, start_urls=urls)
    assert sorted(web.asked) == ["http://a.test/y", "http://b.test/y"]  # "x" is forbidden, too
    assert stat(crawler, "aopic/robots/cut") == 2
    assert [record.levelname for record in caplog.records if "wildcards" in record.message] == ["WARNING"]


async def test_another_parser_is_used_if_the_user_sets_one(serve):
    robots = {"http://a.test/robots.txt": rules("/*1")}  # to Python's parser no wildcard
    web = serve({**robots, "http://a.test/": ["/1", "/2"], "http://a.test/1": [], "http://a.test/2": []})
    crawler = await crawl(Follow, {**SCHEDULER, "ROBOTSTXT_PARSER": PythonRobotParser})
    assert web.asked == ["http://a.test/", "http://a.test/1", "http://a.test/2"]
    assert stat(crawler, "robotstxt/forbidden") is None


GROUPS = {
    "crawl delay": (b"User-agent: a\nCrawl-delay: 5\n\nUser-agent: b\nDisallow: /\n", {"a", "b"}),
    "unknown line": (b"user agent: a\nNoindex: /x\nSitemap: /s\nuser-agent: b\ndisallow: /\n", {"a", "b"}),
    "both": (b"User-agent: a\nHost: x\nUser-agent: b\nFoo\nUser-agent: c\nDisallow: /\n", {"a", "b", "c"}),
    "byte order mark": (
        b"\xef\xbb\xbfUser-agent: a\r\nFoo: 1\r\nUser-agent: b\r\nDisallow: /\r\n",
        {"a", "b"},
    ),
    "a rule ends it": (b"User-agent: a\nDisallow:\nCrawl-delay: 5\nUser-agent: b\nDisallow: /\n", {"b"}),
    "a comment does not": (b"User-agent: a\n# Disallow: /x\n\nUser-agent: b\nDisallow: /\n", {"a", "b"}),
    "and so are the agents before it": (
        b"User-agent: a\nAllow: /x\nUser-agent: b\nFoo: 1\nUser-agent: c\nDisallow: /\n",
        {"b", "c"},
    ),
    "rules of two groups": (b"User-agent: a\nAllow: /x\nUser-agent: b\nCrawl-delay: 1\nDisallow: /\n", {"b"}),
}


def by_protego(text: bytes) -> RobotParser:
    return parse(text, ProtegoRobotParser)


READERS = pytest.mark.parametrize("read", [Rfc9309RobotParser, by_protego], ids=["own", "protego"])


@READERS
@pytest.mark.parametrize("name", GROUPS)
def test_a_group_goes_on_until_the_first_user_agent_behind_a_rule(read, name):
    text, forbidden = GROUPS[name]
    rules = read(text)
    assert {agent for agent in "abc" if not rules.allowed("http://h.test/page", agent)} == forbidden


@READERS
def test_a_crawl_delay_is_that_of_the_agents_before_it(read):
    rules = read(b"User-agent: a\nCrawl-delay: 5\nUser-agent: b\nDisallow: /\n")
    assert [crawl_delay_of(rules, agent) for agent in "abc"] == [5, None, None]


def test_what_is_handed_to_another_parser_is_at_most_twice_as_long():
    class Kept(ProtegoRobotParser):
        @classmethod
        def from_crawler(cls, crawler: Any, robotstxt_body: bytes) -> Any:
            return robotstxt_body

    for text in (b"user-agent: a\nx\n" * 1000, b"user-agent: a\nx\nallow: /\n" * 1000):
        handed: Any = parse(text, Kept)
        assert len(handed) <= 2 * len(text)


# -- how often it is asked for


class Inline(Follow):
    """Asks one host for ten pages at once, inside a callback."""

    answered = 0

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        engine = self.crawler.engine
        if response.url != "http://a.test/":
            return
        wanted = [engine.download_async(Request(f"http://b.test/{n}")) for n in range(10)]
        for result in await asyncio.gather(*wanted, return_exceptions=True):
            self.answered += isinstance(result, Response)
        yield Request("http://b.test/9")


@pytest.mark.parametrize("settings", [SCHEDULER, BESIDE], ids=["scheduler", "beside"])
async def test_however_many_requests_wait_it_is_fetched_once(serve, settings):
    slow = {"http://b.test/robots.txt": Answer(body=rules("/1", "/2").body, delay=0.1)}
    pages = {"http://a.test/": [], **{f"http://b.test/{n}": [] for n in range(10)}}
    web = serve({**pages, **slow})
    crawler = await crawl(Inline, settings)
    assert n_robots(web) == {"a.test": 1, "b.test": 1}
    assert set(web.asked) == set(pages) - {"http://b.test/1", "http://b.test/2"}
    assert crawler.spider.answered == 8


async def test_beside_another_scheduler_what_is_unreachable_is_refused_after_retries(serve):
    web = serve({"http://a.test/robots.txt": Answer(503), "http://a.test/": ["/1"]})
    crawler = await crawl(Follow, {**BESIDE, "RETRY_TIMES": 2})
    assert web.asked == []
    assert n_robots(web) == {"a.test": 3}
    assert stat(crawler, "aopic/robots/refused") == 1


@pytest.mark.parametrize("settings", [SCHEDULER, BESIDE], ids=["scheduler", "beside"])
async def test_scheme_name_and_port_have_a_robots_txt_of_their_own(serve, settings):
    urls = [
        "http://a.test/",
        "http://a.test:80/1",
        "http://A.test/2",
        "http://a.test:8080/3",
        "http://x:y@a.test/4",
    ]
    web = serve({f"http://a.test/{path}": [] for path in ("", "1", "2", "3", "4")})
    await crawl(Follow, settings, start_urls=urls)
    assert len(web.asked) == 5
    assert n_robots(web) == {"a.test": 2}


# -- when it is asked for again


class Later(Follow):
    """Puts the middleware's clock forward in the callback of some pages."""

    steps: dict[str, float] = {}

    def parse(self, response: Response) -> Iterator[Any]:
        for path, days in self.steps.items():
            if response.url.endswith(path):
                middleware(self.crawler).clock = lambda days=days: time.time() + days * DAY
        yield from super().parse(response)


def later(**steps: float) -> type[Later]:
    return type("Days", (Later,), {"steps": {f"/{path}": days for path, days in steps.items()}})


def line(n: int) -> dict[str, Any]:
    """Pages one behind the other."""
    return {"http://a.test/": ["/p1"], **{f"http://a.test/p{i}": [f"/p{i + 1}"] for i in range(1, n + 1)}}


async def test_it_is_asked_for_again_when_it_has_expired_and_not_before(serve):
    web = serve({**line(4), "http://a.test/robots.txt": in_turn(rules(), rules("/p4"), rules())})
    await crawl(later(p1=0.99, p2=1.01), SCHEDULER)
    assert web.asked == [f"http://a.test/{path}" for path in ("", "p1", "p2", "p3")]
    order = [entry.target for entry in sorted(web.log, key=lambda entry: entry.start)]
    assert order == ["/robots.txt", "/", "/p1", "/p2", "/robots.txt", "/p3"]


async def test_a_page_that_waits_for_longer_than_the_rules_hold_is_fetched_all_the_same(serve):
    """Its host has a gap that is longer than its robots.txt is believed."""
    if not hasattr(signals, "robots_parsed"):
        pytest.skip("this Scrapy has no signal for it")

    def parsed(sender: Crawler) -> None:
        middleware(sender).clock = lambda: time.time() + DAY * 2

    web = serve({"http://a.test/": [], "http://a.test/robots.txt": rules()})
    await crawl(Follow, SCHEDULER, told={signals.robots_parsed: parsed})
    assert (web.asked, n_robots(web)) == (["http://a.test/"], {"a.test": 1})


# -- what is remembered


@pytest.mark.parametrize("store", ["rocksdb", "sqlite"])
async def test_a_restart_asks_for_no_robots_txt_again(serve, tmp_path, store):
    b = {"http://b.test/robots.txt": Answer(500), "http://b.test/": [], "http://b.test/2": []}
    web = serve({**line(3), "http://a.test/robots.txt": rules("/p3"), **b})
    settings = in_folder(tmp_path, SCHEDULER, AOPIC_STORE=store, AOPIC_MAX_WAIT=1)
    first = {**settings, "CLOSESPIDER_PAGECOUNT": 3, "CONCURRENT_REQUESTS": 1}
    await crawl(Follow, first, start_urls=["http://b.test/", "http://a.test/"])
    assert (web.asked, n_robots(web)) == (["http://a.test/"], {"a.test": 1, "b.test": 1})
    crawler = await crawl(Follow, settings, start_urls=["http://b.test/2"])
    assert web.asked == [f"http://a.test/{path}" for path in ("", "p1", "p2")]
    assert n_robots(web) == {"a.test": 1, "b.test": 1}
    assert stat(crawler, "aopic/robots/from_store") == 2
    assert stat(crawler, "aopic/outcomes/robots.txt unreachable") == 1


# -- a page that goes back keeps all that it had


class Careful(Spider):
    """Notes what comes back of what it gave."""

    name = "careful"
    seen: list[tuple[str, int, Any, Any, int]]

    async def start(self) -> AsyncIterator[Any]:
        self.seen = []
        for n, priority in enumerate((0, -1, 3)):
            yield Request(
                f"http://h{n}.test/",
                self.parse_page,
                priority=priority,
                cb_kwargs={"n": n},
                meta={"mine": [n]},
            )

    def parse_page(self, response: Response, n: int) -> None:
        request = response.request
        known = {key: value for key, value in request.meta.items() if "retry" in key}
        self.seen.append((request.url, request.priority, request.meta["mine"], known, n))


async def test_a_page_that_goes_back_keeps_priority_meta_and_arguments(serve, tmp_path):
    web = serve({f"http://h{n}.test/": [] for n in range(3)})
    crawler = await crawl(Careful, in_folder(tmp_path, SCHEDULER))
    assert sorted(crawler.spider.seen) == [
        (f"http://h{n}.test/", priority, [n], {}, n) for n, priority in enumerate((0, -1, 3))
    ]
    assert len(web.asked) == 3
    assert stat(crawler, "aopic/robots/put_back") == 3
    assert stat(crawler, "scheduler/dequeued") == stat(crawler, "scheduler/enqueued") == 6
    assert stat(crawler, "aopic/pages/visited") == 3


@pytest.mark.slow
async def test_it_does_not_change_the_order_of_pages(serve, monkeypatch):
    monkeypatch.setattr(robots_middleware, "RETRY", 0.3)
    urls = [f"http://a.test/{n}" for n in range(6)]
    web = serve({"http://a.test/robots.txt": in_turn(Answer(500), rules()), **{url: [] for url in urls}})
    crawler = await crawl(Follow, SCHEDULER, start_urls=urls)
    assert web.asked == urls
    assert stat(crawler, "aopic/robots/put_back") == 2


async def test_a_second_request_for_a_page_goes_back_as_one(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(robots_middleware, "RETRY", 0.01)
    robots = in_turn(Answer(500), Answer(500), rules())
    web = serve({"http://a.test/robots.txt": robots, "http://a.test/": []})
    starts = [Request("http://a.test/", dont_filter=True) for _ in range(3)]
    crawler = await crawl(Visits, in_folder(tmp_path, SCHEDULER), starts=starts)
    assert web.asked == ["http://a.test/"] * 3
    assert stat(crawler, "aopic/pages/visited") == 3
    assert stat(crawler, "aopic/outcomes/redirect") is None


@pytest.mark.slow
async def test_it_does_not_wait_inside_the_downloader(serve):
    slow = {"http://slow.test/robots.txt": Answer(404, delay=0.1), "http://slow.test/": []}
    web = serve({**slow, "http://fast.test/": ["/1"], "http://fast.test/1": []})
    settings = {**SCHEDULER, "CONCURRENT_REQUESTS": 1, "DOWNLOAD_SLOTS": {"slow.test": {"delay": 1e9}}}
    all_asked = until(lambda: len(web.asked) > 1 and n_robots(web)["slow.test"], Follow)
    await crawl(all_asked, settings, start_urls=["http://slow.test/", "http://fast.test/"])
    assert web.asked == ["http://fast.test/", "http://fast.test/1"]


# -- whom the rules are for


@pytest.mark.parametrize(
    ("settings", "headers", "allowed"),
    [
        ({"USER_AGENT": "mybot/1.0"}, {}, False),
        ({"USER_AGENT": "other"}, {}, True),
        ({"USER_AGENT": "other"}, {"User-Agent": "Mozilla/5.0 (compatible; MyBot/1.0)"}, False),
        ({"USER_AGENT": "mybot", "ROBOTSTXT_USER_AGENT": "other"}, {}, True),
        ({"USER_AGENT": "mybot", "ROBOTSTXT_PARSER": "scrapy.robotstxt.PythonRobotParser"}, {}, False),
        ({"USER_AGENT": "mybot", "ROBOTSTXT_OBEY": False}, {}, True),
    ],
)
async def test_the_user_agent_decides(serve, settings, headers, allowed):
    robots = Answer(body=b"User-agent: mybot\nDisallow: /\n")
    web = serve({"http://a.test/robots.txt": robots, "http://a.test/": []})
    await crawl(Visits, {**SCHEDULER, **settings}, starts=[Request("http://a.test/", headers=headers)])
    assert web.asked == ["http://a.test/"] * allowed


async def test_a_request_may_be_exempt(serve):
    web = serve({"http://a.test/robots.txt": rules("/"), "http://a.test/": []})
    starts = [Request("http://a.test/", meta={"dont_obey_robotstxt": True}), "data:,text"]
    crawler = await crawl(Visits, SCHEDULER, starts=starts)
    assert (web.asked, n_robots(web)) == (["http://a.test/"], {})
    assert stat(crawler, "aopic/pages/visited") == 2


@pytest.mark.slow
async def test_it_is_paced_in_the_slot_that_the_page_has(serve):
    web = serve(
        {f"http://h{n}.test/{path}": Answer(delay=0.02) for n in range(4) for path in ("", "robots.txt")}
    )
    starts = [Request(f"http://h{n}.test/", meta={"download_slot": "all"}) for n in range(4)]
    await crawl(Visits, {**SCHEDULER, "AOPIC_POLITENESS_FACTOR": 1}, starts=starts)
    as_one = [entry.__class__(**{**vars_of(entry), "host": "all"}) for entry in web.log]
    assert len(as_one) == 8
    assert audit(as_one, 1).is_polite


def vars_of(entry: Any) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in entry.__slots__}


# -- others are told


async def test_others_are_told_once_a_fetch(serve):
    if not hasattr(signals, "robots_parsed"):
        pytest.skip("this Scrapy has no signal for it")
    told: list[tuple[str, bool]] = []

    def parsed(robotparser: Any, request: Request) -> None:
        told.append((request.url, robotparser.allowed("http://a.test/1", "me")))

    serve({"http://a.test/robots.txt": rules("/1"), "http://a.test/": ["/2"], "http://a.test/2": []})
    await crawl(Follow, SCHEDULER, told={signals.robots_parsed: parsed})
    assert told == [("http://a.test/", False)]


@pytest.mark.parametrize(
    ("settings", "pacer"),
    [
        (SCHEDULER, JobPacer),
        ({**BESIDE, "DOWNLOADER_MIDDLEWARES": {**BESIDE["DOWNLOADER_MIDDLEWARES"], PolitenessMiddleware: 990}}, PolitenessMiddleware),
    ],
    ids=["scheduler", "beside"],
)  # fmt: skip
async def test_the_crawl_delay_is_handed_on(serve, monkeypatch, settings, pacer):
    told: list[tuple[str, float]] = []
    monkeypatch.setattr(
        pacer, "set_crawl_delay", lambda self, key, seconds: told.append((key, seconds)) or 0.0, raising=False
    )
    robots = in_turn(rules(more="Crawl-delay: 2.5\n"), rules())
    other = {"http://b.test/robots.txt": rules(), "http://b.test/": []}
    web = serve({**line(3), "http://a.test/robots.txt": robots, **other})
    await crawl(later(p1=2), settings)
    assert len(web.asked) == 4 + 1  # the last one is not there
    assert told == [("a.test", 2.5), ("a.test", 0.0)]


# -- sitemaps


def sitemap(*urls: str, of: str = "url") -> bytes:
    """One that has *urls*, or an index *of* each "sitemap"."""
    entries = "".join(f"<{of}><loc> {url} </loc></{of}>" for url in urls)
    kind = {"url": "urlset", "sitemap": "sitemapindex"}[of]
    head = f'<?xml version="1.0"?><{kind} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
    return f"{head}{entries}</{kind}>".encode()


def mapped() -> dict[str, Any]:
    names = ("http://a.com/two.xml.gz", "http://cdn.other/three.xml", "http://a.com/nested.xml")
    index = sitemap(*names, of="sitemap")
    xml = {"Content-Type": "application/xml"}
    lines = "Sitemap: http://a.com/one.xml?utm_source=robots\nSitemap: /index.xml\nSITEMAP: http://maps.example/a.xml\nSitemap: bad.xml\n"
    return {
        "http://a.com/robots.txt": rules("/no", more=lines),
        "http://a.com/": [],
        "http://a.com/one.xml?utm_source=robots": Answer(headers=xml, body=sitemap("http://a.com/1", "http://a.com/no", "ftp://a.com/")),
        "http://a.com/index.xml": Answer(headers=xml, body=index),
        "http://a.com/nested.xml": Answer(headers=xml, body=sitemap("http://a.com/deep.xml", of="sitemap")),
        "http://a.com/deep.xml": Answer(headers=xml, body=sitemap("http://a.com/6")),
        "http://a.com/two.xml.gz": Answer(
            headers={"Content-Type": "application/gzip"},
            body=gzip.compress(sitemap("http://a.com/2", "http://www.a.com/3")),
        ),
        "http://maps.example/a.xml": Answer(
            headers=xml, body=sitemap("http://a.com/4", "http://maps.example/5", "http://[/")
        ),
        "http://a.com/bad.xml": Answer(headers=xml, body=b"not a sitemap"),
        **{f"http://a.com/{n}": [] for n in (1, 2, 4, 6)},
        "http://www.a.com/3": [],
    }  # fmt: skip


@pytest.mark.parametrize("settings", [SCHEDULER, ADDON, BESIDE], ids=["scheduler", "addon", "beside"])
async def test_sitemaps_are_seeds_if_they_are_wanted(serve, settings):
    class Pages(Follow):
        start_urls = ["http://a.com/"]
        pages: list[str] = []

        def parse(self, response: Response) -> Iterator[Any]:
            self.pages.append(response.url)
            yield from super().parse(response)

    web = serve(mapped())
    crawler = await crawl(Pages, {**settings, "AOPIC_SITEMAPS": True})
    maps = ["one.xml?utm_source=robots", "index.xml", "bad.xml", "two.xml.gz", "nested.xml", "deep.xml"]
    pages = [*(f"http://a.com/{path}" for path in ("", "1", "2", "4", "6")), "http://www.a.com/3"]
    assert Counter(web.asked) == Counter(
        [*pages, *(f"http://a.com/{path}" for path in maps), "http://maps.example/a.xml"]
    )
    assert sorted(Pages.pages) == sorted(pages)  # the spider sees no sitemap
    assert stat(crawler, "aopic/sitemaps/read") == 6
    assert stat(crawler, "aopic/sitemaps/bad") == 1
    assert stat(crawler, "aopic/sitemaps/pages") == 6
    assert stat(crawler, "aopic/sitemaps/left_out/url") == 2
    assert stat(crawler, "aopic/sitemaps/left_out/domain") == 2


def of_robots_txt(host: str, answers: dict[str, Answer], *pages: str) -> dict[str, Any]:
    """A web whose robots.txt names *answers*, sitemaps by their paths."""
    lines = "".join(f"Sitemap: {path}\n" for path in answers)
    web: dict[str, Any] = {f"http://{host}/robots.txt": rules("/no", more=lines), f"http://{host}/": []}
    return {
        **web,
        **{f"http://{host}{path}": answer for path, answer in answers.items()},
        **{page: [] for page in pages},
    }


async def test_sitemaps_of_every_format_and_type_are_read(serve):
    alternates = '<xhtml:link rel="alternate" hreflang="de" href="http://de.a.com/1"/><xhtml:link rel="amphtml" href="http://a.com/no"/>'
    answers = {
        "/languages.xml": sitemap("http://a.com/1").replace(b"</url>", f"{alternates}</url>".encode()),
        "/list.txt": b"\xef\xbb\xbfhttp://a.com/2\r\n\r\nhttp://a.com/3?a=1&b=2",
        "/rss": b"<rss><channel><link>http://a.com/no</link><item><title>t</title><link>http://a.com/4</link></item></channel></rss>",
        "/atom": b"<feed xmlns='http://www.w3.org/2005/Atom'><link href='http://a.com/no'/><entry><link rel='self' href='/no'/><link href='/5'/></entry></feed>",
        "/rdf": b"<rdf:RDF><channel/><item rdf:about='x'><link>http://a.com/6</link></item></rdf:RDF>",
        "/x": gzip.compress(sitemap("http://a.com/7")),
    }
    types = ["text/html, text/html", "text/plain", "application/octet-stream", "image/png", "*/*", "text/xml"]
    served = {
        path: Answer(headers={"Content-Type": kind}, body=body)
        for kind, (path, body) in zip(types, answers.items(), strict=True)
    }
    pages = {
        "http://a.com/1",
        "http://de.a.com/1",
        "http://a.com/2",
        "http://a.com/3?a=1&b=2",
        *(f"http://a.com/{n}" for n in (4, 5, 6, 7)),
    }
    web = serve(of_robots_txt("a.com", served, *pages))
    crawler = await crawl(Follow, {**ADDON, "AOPIC_SITEMAPS": True}, start_urls=["http://a.com/"])
    assert set(web.asked) == {*pages, "http://a.com/", *(f"http://a.com{path}" for path in answers)}
    assert stat(crawler, "aopic/sitemaps/read") == len(answers)
    assert not [name for name in crawler.stats.get_stats() if "left_out" in name]  # type: ignore[union-attr]


async def test_what_is_left_out_of_sitemaps_is_counted_and_said_once(serve, caplog, monkeypatch):
    monkeypatch.setattr(sitemap_requests, "MAX_SITEMAPS", 3)
    monkeypatch.setattr(of_web, "MAX_ENTRIES", 4)
    index = sitemap(*(f"http://a.com/i{n}" for n in range(5)), of="sitemap")
    answers = {
        "/many": Answer(body=sitemap(*(f"http://a.com/{n}" for n in range(9)))),
        "/others": Answer(body=sitemap("http://b.com/", "a.com/no", "mailto:x", "http://a.com/1")),
        "/i0": Answer(body=index.replace(b"i0", b"cut").replace(b"i1", b"i0")),
        "/fourth": Answer(),
    }
    cut = Answer(body=sitemap("http://a.com/2", "http://a.com/3")[:-30])
    web = serve({**of_robots_txt("a.com", answers), "http://a.com/cut": cut})
    crawler = await crawl(Follow, {**SCHEDULER, "AOPIC_SITEMAPS": True}, start_urls=["http://a.com/"])
    counted = {
        reason: stat(crawler, f"aopic/sitemaps/left_out/{reason}") for reason in sitemap_requests.LEFT_OUT
    }
    left_out = {"sitemaps": 1 + 1, "entries": 5 + 1, "domain": 1, "url": 2, "rest": 1}
    assert counted == dict.fromkeys(sitemap_requests.LEFT_OUT) | left_out
    assert "http://a.com/fourth" not in web.asked
    said = [each.getMessage() for each in caplog.records if "is not followed in full" in each.getMessage()]
    assert len(said) == 5


async def test_indexes_above_each_other_have_an_end(serve):
    def index(exchange: Exchange) -> Answer:
        return Answer(body=sitemap(f"http://a.com/{exchange.target}x", of="sitemap"))

    endless = {f"http://a.com/{'/' * n}i{'x' * n}": index for n in range(10)}
    web = serve({**of_robots_txt("a.com", {"/i": Answer()}), **endless})
    crawler = await crawl(Follow, {**SCHEDULER, "AOPIC_SITEMAPS": True}, start_urls=["http://a.com/"])
    assert sum("i" in url.rpartition("/")[2] for url in web.asked) == sitemap_requests.MAX_DEPTH + 1
    assert stat(crawler, "aopic/sitemaps/left_out/depth") == 1


async def test_a_sitemap_may_be_elsewhere_and_name_others_beside_it_or_have_a_comment_or_a_space(
    serve, caplog
):
    lines = "Sitemap: http://a.com/one.xml # the first\nSitemap: http://a.com/two maps.xml\nSitemap: http://maps.example/\n"
    index = sitemap("http://maps.example/3.xml", "http://b.com/2.xml", of="sitemap")
    maps = {
        "http://a.com/one.xml": Answer(body=sitemap("http://a.com/1")),
        "http://a.com/two%20maps.xml": Answer(body=sitemap("http://a.com/2")),
        "http://maps.example/": Answer(body=index),
        "http://maps.example/3.xml": Answer(body=sitemap("http://a.com/3", "http://maps.example/no")),
    }
    pages: dict[str, Any] = {f"http://a.com/{path}": [] for path in ("", "1", "2", "3")}
    web = serve({"http://a.com/robots.txt": rules("/no", more=lines), **pages, **maps})
    await crawl(Follow, {**SCHEDULER, "AOPIC_SITEMAPS": True}, start_urls=["http://a.com/"])
    assert {*web.asked} == {*pages, *maps}
    assert "Traceback" not in caplog.text


async def test_sitemaps_are_left_alone_by_default(serve):
    web = serve(mapped())
    await crawl(Follow, SCHEDULER, start_urls=["http://a.com/"])
    assert web.asked == ["http://a.com/"]


async def test_the_pages_of_a_sitemap_are_its_links(serve, tmp_path):
    serve({**mapped(), "http://a.com/bad.xml": Answer(404)})
    settings = {"JOBDIR": tmp_path, "AOPIC_STORE": "sqlite", "AOPIC_SITEMAPS": True}
    crawler = await crawl(Follow, {**SCHEDULER, **settings}, start_urls=["http://a.com/"])
    assert stat(crawler, "aopic/outcomes/http 404") == 1
    assert stat(crawler, "scheduler/unserializable") is None


# -- it takes the place of Scrapy's


class Own(RobotsTxtMiddleware):
    """A user's own."""


def places(crawler: Crawler) -> list[str]:
    names = [type(each).__name__ for each in crawler.engine.downloader.middleware.middlewares]
    return [
        name for name in names if name not in {"Bodies", "ProxyWaits", "Responses"}
    ]  # which are before all others


@pytest.mark.parametrize("settings", [SCHEDULER, ADDON, BESIDE, {**ADDON, **BESIDE}])
async def test_it_takes_the_place_of_scrapys(serve, settings):
    web = serve({"http://a.test/robots.txt": rules("/1"), "http://a.test/": ["/1"]})
    stock = places(await crawl(Follow, {"ROBOTSTXT_OBEY": True}))
    ours = places(await crawl(Follow, settings))
    place = stock.index("RobotsTxtMiddleware")
    assert ours[: place + 2] == [*stock[:place], "RobotsMiddleware", stock[place + 1]]
    assert "RobotsTxtMiddleware" not in ours
    assert web.asked == ["http://a.test/"] * 2


@pytest.mark.parametrize("settings", [SCHEDULER, ADDON], ids=["scheduler", "addon"])
async def test_a_users_own_stays(serve, settings):
    serve({"http://a.test/": []})
    own = {"DOWNLOADER_MIDDLEWARES": {RobotsTxtMiddleware: None, Own: 100}}
    names = places(await crawl(Follow, {**settings, **own}))
    assert "Own" in names
    assert not {"RobotsMiddleware", "RobotsTxtMiddleware"} & set(names)


async def test_it_is_not_there_if_robots_txt_is_not_obeyed(serve):
    web = serve({"http://a.test/": []})
    for settings in ({"SCHEDULER": "scrapy_aopic.Scheduler"}, {**ADDON, "ROBOTSTXT_OBEY": False}):
        assert "RobotsMiddleware" not in places(await crawl(Follow, settings))
    assert n_robots(web) == {}


def test_the_addon_leaves_what_the_user_lists():
    for listed in ({RobotsTxtMiddleware: None, Own: 100}, {"scrapy_aopic.RobotsMiddleware": 90}):
        settings = Settings({"DOWNLOADER_MIDDLEWARES": listed})
        Addon().update_settings(settings)
        assert dict(settings["DOWNLOADER_MIDDLEWARES"]) == {
            **listed,
            PolitenessMiddleware: 990,
            ContentTypeMiddleware: 585,
        }
