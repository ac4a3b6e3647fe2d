"""``connections`` of ``AOPIC_HOST_RULES`` in real crawls: what servers see of it, and what is said of other settings."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from demo_web.server import Answer, Exchange
from support import redis_server
from support.crawls import ADDON, OURS, in_folder, on_server
from support.small_web import Follow, Web, crawl, html

from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.stored_control import change_control

MIDDLEWARE = {"DOWNLOADER_MIDDLEWARES": {"scrapy_aopic.PolitenessMiddleware": 990}}
EACH = pytest.mark.parametrize(
    "settings", [OURS, MIDDLEWARE, ADDON], ids=["scheduler", "middleware", "addon"]
)
RULES = {"AOPIC_HOST_RULES": {"a.test": {"connections": 4}}}


def slow(links: list[str] | None = None, delay: float = 0.25) -> Answer:
    """A page that takes so long that others are requested meanwhile, also on a busy machine."""
    return Answer(headers={"Content-Type": "text/html"}, body=html(links or []), delay=delay)


def pages_of(host: str, n: int = 12) -> dict[str, Any]:
    links = [f"http://{host}/{number}" for number in range(n)]
    return {f"http://{host}/": slow(links), **dict.fromkeys(links, slow())}


def at_once(web: Web) -> dict[str, int]:
    """Most requests that each host had under way at once."""
    most: dict[str, int] = {}
    for entry in web.log:
        most[entry.host] = max(most.get(entry.host, 0), entry.in_flight)
    return most


REDIS = pytest.mark.skipif(redis_server.find_server() is None, reason=redis_server.WHY_NOT)


BOTH = ["http://a.test/", "http://b.test/"]


@pytest.mark.slow
@EACH
async def test_a_host_gets_as_many_requests_at_once_as_its_rule_says_and_others_get_one(serve, settings):
    pages = {**pages_of("a.test"), **pages_of("b.test", 3)}
    web = serve(pages)
    await crawl(Follow, {**settings, **RULES}, start_urls=BOTH)
    assert at_once(web) == {"a.test": 4, "b.test": 1}
    assert Counter(web.asked) == dict.fromkeys(pages, 1)
    first = min(web.log, key=lambda entry: (entry.host, entry.start))
    assert (first.host, first.in_flight) == ("a.test", 1)


@REDIS
@pytest.mark.slow
async def test_a_job_in_shards_goes_by_the_rule_too(serve, server):
    pytest.importorskip("hiredis")
    pytest.importorskip("redis")
    pages = {**pages_of("a.test"), **pages_of("b.test", 3)}
    web = serve(pages)
    await crawl(Follow, on_server(server.url, 4, AOPIC_REDIS_KEY="own", **RULES), start_urls=BOTH)
    assert at_once(web) == {"a.test": 4, "b.test": 1}
    assert Counter(web.asked) == dict.fromkeys(pages, 1)


@pytest.mark.slow
async def test_a_host_that_an_operator_slows_down_gets_one_request_at_a_time(serve, tmp_path):
    web = serve(pages_of("a.test", 4))
    change_control(FolderPlace(tmp_path), lambda control: control.slowing(["a.test"], 0.1, 1.0))
    await crawl(Follow, in_folder(tmp_path, ADDON, **RULES))
    assert Counter(web.asked) == dict.fromkeys(web.pages, 1)
    assert at_once(web) == {"a.test": 1}


@pytest.mark.slow
@EACH
async def test_a_gap_is_that_of_the_whole_host(serve, settings):
    web = serve(pages_of("a.test", 12))
    await crawl(Follow, {**settings, "AOPIC_HOST_RULES": {"a.test": {"connections": 4, "min_gap": 0.2}}})
    log = sorted(web.log, key=lambda entry: entry.start)
    assert max(entry.in_flight for entry in log) == 4
    for number, entry in enumerate(log[4:]):  # of the four before it, one at least is known to be over
        ended = min(other.end for other in log[number : number + 4])
        assert entry.start - ended >= 0.2 - 0.005  # the server may see the end later than the crawler


@pytest.mark.slow
@EACH
async def test_a_host_that_asks_for_time_gets_one_request_at_a_time(serve, settings):
    robots = Answer(body=b"User-agent: *\nCrawl-delay: 0.1\nDisallow: /3\n")
    web = serve({**pages_of("a.test", 6), "http://a.test/robots.txt": robots})
    crawler = await crawl(Follow, {**settings, **RULES, "ROBOTSTXT_OBEY": True})
    if settings is not MIDDLEWARE:  # beside which Scrapy's middleware reads robots.txt, and no delay
        assert at_once(web) == {"a.test": 1}
    assert Counter(web.asked) == {f"http://a.test/{n}": 1 for n in ("", 0, 1, 2, 4, 5)}
    assert sum(entry.target == "/robots.txt" for entry in web.log) == 1
    assert crawler.stats.get_value("robotstxt/forbidden") == 1


@pytest.mark.slow
@EACH
async def test_what_fails_while_others_are_under_way_is_one_failure_and_holds_for_the_host(serve, settings):
    asked: Counter[str] = Counter()

    def busy(exchange: Exchange) -> Answer:
        asked[exchange.target] += 1
        if asked[exchange.target] > 1:
            return slow()
        return Answer(429, {"Retry-After": "1"}, delay=0.25)

    links = [f"http://a.test/{n}" for n in range(8)]
    web = serve(
        {"http://a.test/": slow(links), **dict.fromkeys(links[:4], busy), **dict.fromkeys(links[4:], slow())}
    )
    crawler = await crawl(Follow, {**settings, **RULES, "AOPIC_BACKOFF": 2, "RETRY_TIMES": 3})
    log = sorted((entry for entry in web.log if entry.target != "/robots.txt"), key=lambda entry: entry.start)
    told = max(entry.end for entry in log if entry.status == 429)
    again = min(entry.start for entry in log if entry.start > told)
    assert 2.0 <= again - told < 16.0  # not doubled for each of the four
    assert at_once(web) == {"a.test": 4}
    assert {entry.target for entry in log if entry.status == 200} == {"/", *(f"/{n}" for n in range(8))}
    assert crawler.stats.get_value("finish_reason") == "finished"


IDLE = {
    "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
    "CONCURRENT_REQUESTS_PER_IP": 2,
    "DOWNLOAD_SLOTS": {"a.test": {"concurrency": 4}},
    "AUTOTHROTTLE_TARGET_CONCURRENCY": 4.0,
    "RANDOMIZE_DOWNLOAD_DELAY": True,
    "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue",
    "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue",
}
"""Settings that change nothing, with values that would do something with stock Scrapy."""

WITHOUT_EFFECT = {
    "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
    "CONCURRENT_REQUESTS_PER_IP": 0,
    "DOWNLOAD_SLOTS": {"a.test": {"concurrency": 1, "delay": 0.01, "randomize_delay": False}},
    "RANDOMIZE_DOWNLOAD_DELAY": False,
}
"""The same with values that say what is so in any case."""


@pytest.mark.filterwarnings("ignore::scrapy.exceptions.ScrapyDeprecationWarning")
@EACH
async def test_settings_that_change_nothing_are_said_once_each_with_what_does(serve, caplog, settings):
    def said() -> dict[str, str]:
        texts = [text for text in caplog.messages if "changes nothing" in text]
        caplog.clear()
        found = {text.partition(" = ")[0]: text.partition(": ")[2] for text in texts}
        assert len(found) == len(texts)
        return found

    serve({"http://a.test/": []})
    await crawl(Follow, {**settings, **IDLE, "AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": 0.01})
    idle = said()
    of_scheduler = {name for name in IDLE if name.startswith("SCHEDULER_")}
    assert idle.keys() == (IDLE.keys() - of_scheduler if settings is MIDDLEWARE else IDLE.keys())
    for name, ways in {"connections": 3, "AOPIC_POLITENESS_KEY": 1, "AOPIC_MIN_GAP": 1}.items():
        assert sum(name in text for text in idle.values()) == ways, name
    await crawl(Follow, {**settings, **IDLE, **RULES})
    assert not any("connections" in text for text in said().values())
    await crawl(Follow, {**settings, **WITHOUT_EFFECT})
    assert said() == {}
