"""What servers saw of a crawl: never two requests at once, and long enough a rest after each."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from email.utils import formatdate
from itertools import pairwise
from typing import Any

import pytest
from demo_web.server import Answer, Exchange, Server
from demo_web.server_log import Entry, audit
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import LinkExtractor
from support.crawls import ADDON, OURS, in_folder
from support.hostile_input import DATE_PIECES
from support.naming import case
from support.small_web import Follow, Web, ask_view, crawl, html, until
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import DNSLookupError
from twisted.internet.interfaces import IResolverSimple
from zope.interface import implementer

from scrapy_aopic import PolitenessMiddleware
from scrapy_aopic.core.politeness import Outcome, Pace, Politeness
from scrapy_aopic.downloadermiddlewares.polite_downloads import read_outcome
from scrapy_aopic.view.queries import hosts_by
from scrapy_aopic.view.stored import snapshot_of
from scrapy_aopic.web.http_dates import read_retry_after

FACTOR = 3
SCHEDULER = OURS
MIDDLEWARE = {"DOWNLOADER_MIDDLEWARES": {"scrapy_aopic.PolitenessMiddleware": 990}}


class Busy(Follow):
    """Follows links and asks for more inline."""

    start_urls = [f"http://h{n}.test/" for n in range(4)]

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        for link in LinkExtractor().extract_links(response):
            yield Request(link.url)
        if response.url.endswith("/"):
            inline = [Request(response.urljoin(f"inline{n}")) for n in range(2)]
            await asyncio.gather(*map(self.crawler.engine.download_async, inline))


def busy_pages() -> dict[str, Any]:
    pages: dict[str, Any] = {}
    for n in range(4):
        host = f"http://h{n}.test"
        links = [*(f"{host}/{page}" for page in range(4)), f"{host}/moved", f"{host}/error", f"{host}/cut"]
        pages[f"{host}/robots.txt"] = Answer(body=b"User-agent: *\nDisallow: /3\n", delay=0.01)
        pages[f"{host}/"] = slow(links)
        pages[f"{host}/moved"] = Answer(
            302, {"Location": f"http://h{(n + 1) % 4}.test/elsewhere"}, delay=0.01
        )
        pages[f"{host}/error"] = Answer(500, delay=0.01)
        pages[f"{host}/cut"] = Answer(abort=True, delay=0.02)
        for page in ("0", "1", "2", "3", "elsewhere", "inline0", "inline1"):
            pages[f"{host}/{page}"] = slow([f"{host}/"])
    return pages


def slow(links: list[str]) -> Answer:
    return Answer(headers={"Content-Type": "text/html"}, body=html(links), delay=0.01, body_delay=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SCHEDULER, MIDDLEWARE, ADDON], ids=["scheduler", "middleware", "addon"])
async def test_every_request_of_any_kind_keeps_the_gap(serve, settings):
    web = serve(busy_pages())
    await crawl(
        Busy, {**settings, "AOPIC_POLITENESS_FACTOR": FACTOR, "ROBOTSTXT_OBEY": True, "RETRY_TIMES": 1}
    )
    assert audit(web.log, FACTOR).is_polite
    asked = set(web.asked)
    each = ("0", "inline0", "inline1", "elsewhere")
    assert {f"http://h{n}.test/{page}" for n in range(4) for page in each} <= asked
    assert not any(url.endswith("/3") for url in asked)


async def test_a_connection_that_breaks_is_not_tried_again_behind_our_back(serve):
    web = serve({"http://a.test/": ["/cut"], "http://a.test/cut": Answer(abort=True)})
    await crawl(Follow, {**SCHEDULER, "RETRY_ENABLED": False})
    assert web.asked == ["http://a.test/", "http://a.test/cut"]


@pytest.mark.slow
async def test_the_engine_is_woken_as_soon_as_a_host_may_be_asked(serve):
    pages = {f"http://a.test/{n}": [] for n in range(20)}
    web = serve({"http://a.test/": [*pages], **pages})
    # By the engine's heartbeat alone, every 5 seconds, it would take 100.
    await asyncio.wait_for(crawl(Follow, {**SCHEDULER, "AOPIC_MIN_GAP": 0.05}), 50)
    assert len(web.asked) == 21
    assert audit(web.log, 0, floor=0.05).n_short_gaps == 0


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SCHEDULER, MIDDLEWARE, ADDON], ids=["scheduler", "middleware", "addon"])
async def test_the_download_delay_of_the_project_is_a_floor(serve, settings):
    web = serve({"http://a.test/": ["/1", "/2"], "http://a.test/1": [], "http://a.test/2": []})
    await crawl(Follow, {**settings, "DOWNLOAD_DELAY": 0.2})
    assert len(web.asked) == 3
    assert audit(web.log, 0, floor=0.2).n_short_gaps == 0


class Browser(BaseDownloadHandler):
    """A handler that does more than wait for the server."""

    async def download_request(self, request: Request) -> Response:
        request.meta["aopic_server_seconds"] = 7.25
        return HtmlResponse(request.url, request=request)


@pytest.mark.parametrize("settings", [SCHEDULER, ADDON], ids=["scheduler", "addon"])
async def test_a_handler_can_say_for_how_long_the_server_had_to_work(settings, tmp_path):
    more = {"ROBOTSTXT_OBEY": False, "DOWNLOAD_HANDLERS": {"http": Browser}}
    await crawl(Follow, in_folder(tmp_path, settings, **more))
    (row,) = ask_view(tmp_path, hosts_by, "slow", 1)
    assert row.transfer == 7.25


@pytest.mark.slow
async def test_waiting_hosts_take_no_room_from_others(serve):
    slow_hosts = {f"http://slow{n}.test/{page}": [] for n in range(5) for page in range(3)}
    fast = {f"http://fast.test/{page}": [] for page in range(10)}
    web = serve({"http://a.test/": [*slow_hosts, *fast], **slow_hosts, **fast})
    slots = {"DOWNLOAD_SLOTS": {f"slow{n}.test": {"delay": 1e9} for n in range(5)}}
    settings = {**SCHEDULER, **slots, "CONCURRENT_REQUESTS": 2}
    await asyncio.wait_for(crawl(until(lambda: fast.keys() <= {*web.asked}), settings), 100)
    assert fast.keys() <= {*web.asked}, "though a crawl that is cut off ends as any other"
    assert sum(url in slow_hosts for url in web.asked) <= 5, web.asked


@pytest.mark.slow
async def test_a_redirect_to_another_host_is_paced_there(serve):
    numbers, at_once = range(3), Answer(delay=0.03)
    web = serve(
        {
            "http://a.test/": [*(f"http://b.test/{n}" for n in numbers), *(f"/to/{n}" for n in numbers)],
            **{
                f"http://a.test/to/{n}": Answer(301, {"Location": f"http://b.test/from/{n}"}) for n in numbers
            },
            **{f"http://b.test/{path}{n}": at_once for path in ("", "from/") for n in numbers},
        }
    )
    await crawl(Follow, {**SCHEDULER, "AOPIC_POLITENESS_FACTOR": FACTOR})
    assert audit(web.log, FACTOR).is_polite
    assert len(web.asked) == 10


# -- what hosts say and show


def page(links: list[str], **how: Any) -> Answer:
    return Answer(headers={"Content-Type": "text/html"}, body=html(links), **how)


class Moody:
    """A page that asks to come back later, or does not answer at all, the first times that it is asked for."""

    def __init__(self, *moods: Answer | Callable[[], Answer], links: list[str] | None = None) -> None:
        self.moods = list(moods)
        self.links = links or []

    def __call__(self, exchange: Exchange) -> Answer:
        mood = self.moods.pop(0) if self.moods else page(self.links)
        return mood if isinstance(mood, Answer) else mood()


def later(seconds: object, status: int = 429) -> Answer:
    return Answer(status, {"Retry-After": str(seconds)})


def at_date() -> Answer:
    return later(formatdate(time.time() + 3600, usegmt=True), 503)


CUT = Answer(abort=True)
POLITE_ENOUGH = {"AOPIC_BACKOFF": 0.05}


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SCHEDULER, MIDDLEWARE, ADDON], ids=["scheduler", "middleware", "addon"])
async def test_a_host_is_left_alone_as_long_as_it_asks(serve, settings):
    there = Answer(302, {"Retry-After": "1", "Location": "http://moved.test/there"})
    hosts = {
        "seconds": [later(1), later(1, 503)],
        "date": [at_date],
        "both": [later("soon"), later(1)],
        "moved": [there],
    }
    links = [f"http://{host}.test/{n}" for host in hosts for n in range(3)]
    pages: dict[str, Any] = {"http://a.test/": links, **{link: [] for link in links}}
    for host, moods in hosts.items():
        pages[f"http://{host}.test/0"] = Moody(*moods)
    pages["http://moved.test/there"] = []
    web = serve(pages)
    crawler = await crawl(Follow, {**settings, **POLITE_ENOUGH, "AOPIC_MAX_BACKOFF": 1})
    assert crawler.stats.get_value("aopic/politeness/retry_after") == 5
    assert {url for url, entry in zip(web.asked, sorted(web.log, key=start), strict=False)} >= set(links)
    bad = {(entry.host, entry.start): entry for entry in web.log if entry.status in (302, 429, 503)}
    del bad[next(key for key in bad if key[0] == "both.test")]  # it says nothing that means anything
    assert len(bad) == 5
    rest = lambda entry: 1.0 if (entry.host, entry.start) in bad else 0.0
    assert audit(web.log, 0, rest=rest).is_polite


def start(entry: Entry) -> float:
    return entry.start


def test_no_redirect_asks_for_time_on_behalf_of_another_host():
    for target, wish in (("/b", 9.0), ("http://a.test/b", 9.0), ("http://b.test/b", 0.0), ("http://[", 0.0)):
        with case(target):
            answer = Response("http://a.test/", 302, {"Retry-After": "9", "Location": target})
            assert read_outcome(answer) == (Outcome.ANSWER, wish)


def test_retry_after_is_seconds_or_a_date_and_else_nothing():
    for values, seconds in [
        ([b"120"], 120.0),
        ([b" 7 "], 7.0),
        ([b"0"], 0.0),
        ([b"9" * 400], math.inf),
        ([b"Fri, 31 Dec 1999 23:59:59 GMT"], 59.0),
        ([b"Friday, 31-Dec-99 23:59:59 GMT"], 59.0),
        ([b"Fri Dec 31 23:59:59 1999"], 59.0),
        ([b"Fri, 31 Dec 1999 23:00:00 GMT"], 0.0),
        ([b"10", b"30", b"soon"], 30.0),
        ([], None),
        ([b""], None),
        ([b"soon"], None),
        ([b"-5"], None),
        ([b"1.5"], None),
        (["٣".encode()], None),
        ([b"Fri, 99 Dec 1999 99:99:99 GMT"], None),
        ([b"Fri, 31 Dec 99999999 23:59:59 GMT"], None),
        ([b"Mon, 1 Jan 99999999999999999999 00:00:00 GMT"], None),
        ([b"Mon, 1 Jan 2001 00:00:00 +99999999999999999999"], None),
        ([b"1" * 5000, b"20"], 20.0),
    ]:
        now = datetime(1999, 12, 31, 23, 59, 0, tzinfo=timezone.utc).timestamp()
        assert read_retry_after(values, now) == seconds


VALUES = st.lists(
    st.binary(max_size=40) | st.lists(st.sampled_from(DATE_PIECES), max_size=12).map(b"".join), max_size=3
)


@given(VALUES, st.integers(100, 999))
def test_whatever_a_host_sends_says_something_of_it_and_asks_for_no_time_that_is_not_one(values, status):
    response = Response("http://a.test/", status, headers={"Retry-After": values})
    outcome, wish = read_outcome(response)
    assert outcome in Outcome
    assert 0 <= wish <= math.inf
    gap = Politeness().after(Pace("a.test"), 0.1, outcome, wish)
    assert 1.0 <= gap.own <= 86_400
    assert 1.0 <= gap.shared <= 60


BREAK = {
    "count": "scrapy_aopic.downloadermiddlewares.polite_downloads.PolitenessMiddleware._count",
    "judge": "scrapy_aopic.downloadermiddlewares.polite_downloads.read_outcome",
    "header": "scrapy_aopic.downloadermiddlewares.polite_downloads.read_retry_after",
    "pacer": "scrapy_aopic.session.pacer.JobPacer.transferred",
    "memory": "scrapy_aopic.session.pacer.MemoryPacer.transferred",
    "frontier": "scrapy_aopic.core.frontier.frontier.Frontier.transferred",
    "gates": "scrapy_aopic.core.frontier.gates.Gates.defer",
    "rule": "scrapy_aopic.core.politeness.Politeness.after",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "step"),
    [(SCHEDULER, step) for step in BREAK if step != "memory"]
    + [(MIDDLEWARE, step) for step in ("count", "judge", "header", "memory", "rule")],
)
async def test_whatever_fails_at_the_end_of_a_transfer_hosts_are_left_alone_and_then_asked(
    serve, monkeypatch, caplog, settings, step
):
    hosts = [f"h{n}.example.com" for n in range(3)]
    links = [f"http://{host}/{n}" for host in hosts for n in range(2)]
    web = serve({"http://h0.example.com/": links, **{link: later(0) for link in links}})

    def fail(*args: Any, **_: Any) -> Any:
        if step == "judge" and args[0].status == 200:
            return Outcome.ANSWER, 0.0
        raise OverflowError("too large")

    monkeypatch.setattr(BREAK[step], fail)
    wanted = {"AOPIC_POLITENESS_KEY": "domain", "AOPIC_MAX_GAP": 0.2, "RETRY_ENABLED": False}
    crawler = await asyncio.wait_for(
        crawl(Follow, {**settings, **wanted}, has_errors=True, start_urls=["http://h0.example.com/"]), 50
    )
    assert set(web.asked) == {"http://h0.example.com/", *links}
    failed = {entry.start for entry in web.log if step not in ("judge", "header") or entry.status == 429}
    rest = lambda entry: 0.2 * (entry.start in failed)
    assert audit(web.log, 0, key=lambda _: "example.com", rest=rest).is_polite
    assert crawler.stats.get_value("finish_reason") == "finished"
    assert crawler.stats.get_value("aopic/errors") == len(failed)
    (record,) = [record for record in caplog.records if "was not understood" in record.getMessage()]
    assert record.levelname == "ERROR"
    assert record.getMessage().startswith("The end of a transfer from h")


@pytest.mark.slow
async def test_errors_in_a_row_double_the_gap(serve):
    web = serve({"http://a.test/": Moody(CUT, CUT, CUT, CUT, links=["/1"]), "http://a.test/1": []})
    crawler = await crawl(Follow, {**SCHEDULER, "AOPIC_BACKOFF": 0.1, "RETRY_TIMES": 1})
    # A seed waits for its host: it has its RETRY_TIMES again and again.
    assert web.asked == ["http://a.test/"] * 5 + ["http://a.test/1"]
    gaps = [after.start - before.end for before, after in pairwise(web.log)]
    assert all(gap >= due for gap, due in zip(gaps, (0.1, 0.2, 0.4, 0.8), strict=False)), gaps
    assert crawler.stats.get_value("aopic/politeness/down") == 4
    assert crawler.stats.get_value("aopic/politeness/put_back") == 2
    assert crawler.stats.get_value("retry/count") == 2
    assert crawler.stats.get_value("retry/max_reached") == 2
    assert crawler.stats.get_value("aopic/pages/visited") == 2


@pytest.mark.slow
async def test_errors_of_the_server_are_tried_again_as_ever_but_later_each_time(serve):
    web = serve({"http://a.test/": ["/1"], "http://a.test/1": Answer(500)})
    crawler = await crawl(Follow, {**SCHEDULER, "AOPIC_BACKOFF": 0.1, "RETRY_TIMES": 3})
    assert web.asked == ["http://a.test/"] + ["http://a.test/1"] * 4
    gaps = [after.start - before.end for before, after in pairwise(web.log)]
    assert all(gap >= due for gap, due in zip(gaps, (0, 0.1, 0.2, 0.4), strict=True)), gaps
    assert crawler.stats.get_value("aopic/politeness/errors") == 4
    assert crawler.stats.get_value("aopic/outcomes/http 500") == 1


@pytest.mark.slow
@pytest.mark.parametrize("way", ["stock", "scheduler", "add-on"])
async def test_a_page_with_a_servers_error_is_tried_again_later_by_the_add_on_alone(serve, tmp_path, way):
    """One is good at the sixth request, one never, and one is what the spider handles."""
    good = [f"http://a.test/{n}" for n in range(9)]
    broken = Moody(*[Answer(503)] * 5, links=["/behind"])
    ill, own = "http://a.test/ill", "http://a.test/own"
    pages: dict[str, Any] = {url: [] for url in (*good, "http://a.test/behind")}
    pages |= {"http://a.test/": [ill, own, "/never", *good], ill: broken}
    web = serve(pages | {own: Answer(500), "http://a.test/never": Answer(500)})

    class Takes(Follow):
        """Asks for one page on purpose, to see its errors."""

        def parse(self, response: Response) -> Iterator[Any]:
            for request in super().parse(response):
                yield request.replace(errback=self.failed) if request.url == own else request

        def failed(self, failure: Any) -> None:
            self.failure = failure

    ways = {"stock": {}, "scheduler": SCHEDULER, "add-on": {**ADDON, "REMOTE_CONTROL_ENABLED": False}}
    settings = {
        **ways[way], "AOPIC_BACKOFF": 0.02, "AOPIC_MAX_GAP": 0.4, "AOPIC_STORE": "sqlite", "ROBOTSTXT_OBEY": False,
        "JOBDIR": str(tmp_path) if way != "stock" else None, "AOPIC_ALLOW_NETWORKS": "all", "AOPIC_URL_RULES": [],
    }  # fmt: skip
    crawler = await crawl(Takes, settings)
    asked = Counter(url.rpartition("/")[2] for url in web.asked)
    is_later = way == "add-on"
    assert (asked["ill"], asked["never"], asked["own"]) == ((6, 7, 3) if is_later else (3, 3, 3))
    assert asked["behind"] == is_later
    assert all(asked[str(n)] == 1 for n in range(9))
    assert crawler.stats.get_value("finish_reason") == "finished"
    assert crawler.stats.get_value("aopic/pages/later_tries") == (7 if is_later else None)
    if way == "stock":
        return
    assert crawler.stats.get_value("aopic/job/failed") == (2 if is_later else 3)
    if is_later:
        last_good = max(entry.start for entry in web.log if entry.target[1:].isdigit())
        later = [entry for entry in web.log if entry.target == "/never"][3:]
        assert all(entry.start > last_good for entry in later)


async def test_a_bad_page_of_a_good_host_fails_after_its_retries(serve):
    pages = {f"http://a.test/{n}": [] for n in range(9)}
    web = serve({"http://a.test/": ["/cut", *pages], "http://a.test/cut": CUT, **pages})
    crawler = await crawl(Follow, {**SCHEDULER, "AOPIC_BACKOFF": 0.02, "RETRY_TIMES": 2})
    assert sorted(web.asked) == sorted(["http://a.test/", *pages, *["http://a.test/cut"] * 3])
    assert crawler.stats.get_value("aopic/politeness/put_back") is None
    assert web.asked[-2:] == ["http://a.test/cut"] * 2  # behind the others
    assert crawler.stats.get_value("aopic/job/failed") == 1


@pytest.mark.slow
@pytest.mark.parametrize("moods", [CUT, later(0), later(0, 503)], ids=["no answer", "429", "503"])
async def test_a_dead_host_is_not_waited_for_and_its_pages_are_there_the_next_time(serve, tmp_path, moods):
    dead = {f"http://dead.test/{n}": moods for n in range(4)}
    web = serve({"http://a.test/": [*dead, "/1"], "http://a.test/1": [], **dead})
    settings = in_folder(tmp_path, AOPIC_BACKOFF=0.05, AOPIC_MAX_BACKOFF=0.3)
    crawler = await crawl(Follow, settings)
    assert crawler.stats.get_value("finish_reason") == "aopic_unreachable"
    assert crawler.stats.get_value("aopic/job/dead_hosts") == 1
    assert crawler.stats.get_value("aopic/job/dead_pages") == 4
    assert crawler.stats.get_value("aopic/job/failed") == 0
    assert ask_view(tmp_path, snapshot_of).hosts.dead == 1
    web.pages.update({url: [] for url in dead})
    for _ in range(20):  # a crawl with nothing else to do does not wait for the host's time
        crawler = await crawl(Follow, settings)
        if not crawler.stats.get_value("aopic/job/queued"):
            break
        await asyncio.sleep(0.05)
    assert crawler.stats.get_value("aopic/job/dead_hosts") == 0
    assert crawler.stats.get_value("aopic/job/visited") == 6


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SCHEDULER, MIDDLEWARE], ids=["scheduler", "middleware"])
async def test_the_gap_after_a_time_out_counts_from_when_the_host_notices(serve, settings):
    hang = Moody(Answer(delay=60))
    web = serve({"http://a.test/": ["/hang", "/1"], "http://a.test/hang": hang, "http://a.test/1": []})

    class Impatient(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            for request in super().parse(response):
                yield request.replace(meta={"download_timeout": 0.2} if "hang" in request.url else {})

    await crawl(Impatient, {**settings, "AOPIC_POLITENESS_FACTOR": FACTOR, "RETRY_TIMES": 20})
    assert audit(web.log, FACTOR).is_polite
    n_late = [entry.status for entry in web.log].count(0)
    assert n_late >= 1  # more if this machine takes as long
    assert len(web.asked) == 3 + n_late


async def test_an_inline_request_to_a_host_that_wants_to_be_left_alone_for_long_fails_at_once(serve):
    failures: list[str] = []

    class Inline(Follow):
        async def parse(self, response: Response) -> AsyncIterator[Any]:
            yield {}
            first = await self.crawler.engine.download_async(Request("http://b.test/1"))
            assert first.status == 429
            try:
                await self.crawler.engine.download_async(Request("http://b.test/2"))
            except IgnoreRequest as error:
                failures.append(str(error))

    web = serve({"http://a.test/": [], "http://b.test/1": later(3600), "http://b.test/2": []})
    crawler = await asyncio.wait_for(crawl(Inline, {**SCHEDULER, "RETRY_ENABLED": False}), 50)
    assert web.asked == ["http://a.test/", "http://b.test/1"]
    (failure,) = failures
    assert failure.startswith("b.test must be left alone for ")
    assert crawler.stats.get_value("aopic/politeness/refused") == 1


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SCHEDULER, MIDDLEWARE, ADDON], ids=["scheduler", "middleware", "addon"])
async def test_a_crawl_delay_holds_from_the_request_that_told_it(serve, settings):
    class Told(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            if response.url.endswith("/"):
                politeness = self.crawler.get_downloader_middleware(PolitenessMiddleware)
                politeness.set_crawl_delay("a.test", 0.5)
            yield from super().parse(response)

    web = serve({"http://a.test/": ["/1", "/2"], "http://a.test/1": [], "http://a.test/2": []})
    await crawl(Told, settings)
    assert len(web.asked) == 3
    log = sorted((entry for entry in web.log if entry.target != "/robots.txt"), key=start)
    gaps = [after.start - before.end for before, after in pairwise(log)]
    assert gaps[1] >= 0.5, gaps  # the first may have been over before it was told


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SCHEDULER, MIDDLEWARE, ADDON], ids=["scheduler", "middleware", "addon"])
async def test_two_crawls_of_one_process_ask_a_host_one_after_the_other(serve, settings):
    hosts = [f"http://h{n}.test/" for n in range(2)]
    pages = {f"{host}{n}": slow([]) for host in hosts for n in range(6)}
    web = serve({**pages, **{host: slow([f"{host}{n}" for n in range(6)]) for host in hosts}})

    wanted = {**settings, "AOPIC_POLITENESS_FACTOR": FACTOR}
    both = [crawl(Follow, wanted, start_urls=hosts) for _ in range(2)]
    await asyncio.wait_for(asyncio.gather(*both), 100)
    log = [entry for entry in web.log if entry.target != "/robots.txt"]
    assert len(log) == 2 * 2 * 7
    assert audit(web.log, FACTOR).is_polite


@pytest.mark.slow
async def test_a_crawl_that_was_cut_off_keeps_no_host_from_the_next_ones(serve):
    web = serve({"http://a.test/": Moody(Answer(delay=60), links=[])})
    cut_off = until(lambda: web.n_under_way)
    settings = {**SCHEDULER, "DOWNLOAD_TIMEOUT": 3, "RETRY_ENABLED": False}
    first = asyncio.ensure_future(crawl(cut_off, settings))
    while not web.n_under_way:  # noqa: ASYNC110  # of a server in another thread
        await asyncio.sleep(0.01)
    await asyncio.wait_for(asyncio.gather(first, crawl(Follow, SCHEDULER)), 100)
    assert web.asked == ["http://a.test/", "http://a.test/"]
    assert audit(web.log, 0).n_overlaps == 0
    await asyncio.wait_for(crawl(Follow, SCHEDULER), 50)
    assert len(web.asked) == 3


@pytest.mark.parametrize("asks", ["Crawl-delay", "Retry-After"])
async def test_a_crawl_does_not_wait_for_ever_for_a_single_host(serve, tmp_path, caplog, asks):
    robots = Answer(body=b"User-agent: *\nCrawl-delay: 1000000000\n" if asks == "Crawl-delay" else b"")
    slow_page = [] if asks == "Crawl-delay" else later(10**8)
    pages = {"http://a.test/": ["http://slow.test/1", "http://slow.test/2", "http://b.test/"]}
    pages |= {"http://b.test/": ["/1"], "http://b.test/1": [], "http://slow.test/robots.txt": robots}
    web = serve(pages | {f"http://slow.test/{n}": slow_page for n in (1, 2)})
    settings = in_folder(tmp_path, ROBOTSTXT_OBEY=True)
    caplog.set_level("INFO", logger="scrapy_aopic")
    for run in range(2):
        crawler = await asyncio.wait_for(crawl(Follow, {**settings, "AOPIC_MIN_GAP": 0.01}), 50)
        assert crawler.stats.get_value("finish_reason") == "aopic_waiting"
        queued = crawler.stats.get_value("aopic/job/queued")
        assert queued >= 1
        said = [record for record in caplog.records if "AOPIC_MAX_WAIT" in record.getMessage()]
        assert len(said) == run + 1
        assert said[-1].levelname == "WARNING"
        assert "the first, slow.test, until " in said[-1].getMessage()
        assert f"Pages queued: {queued}; run the same command" in said[-1].getMessage()
    assert {"http://b.test/1"} <= set(web.asked)


@pytest.mark.slow
async def test_the_log_says_whom_a_crawl_waits_for(serve, caplog):
    serve({"http://a.test/": later(600)})
    caplog.set_level("INFO", logger="scrapy_aopic")
    is_said = until(lambda: "Every host must wait" in caplog.text)
    await asyncio.wait_for(crawl(is_said, SCHEDULER), 100)
    (record,) = [record for record in caplog.records if "Every host must wait" in record.getMessage()]
    assert "; the first, a.test, until " in record.getMessage()
    assert record.getMessage().endswith(". Pages queued: 1")


# -- other keys, and rules


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SCHEDULER, MIDDLEWARE, ADDON], ids=["scheduler", "middleware", "addon"])
async def test_hosts_of_one_domain_are_asked_one_after_the_other_if_so_wanted(serve, settings):
    pages = {url.replace(".test/", ".example.com/"): answer for url, answer in busy_pages().items()}
    for url, answer in pages.items():
        location = answer.headers.get("Location", "").replace(".test/", ".example.com/")
        body = answer.body.replace(b".test/", b".example.com/")
        headers = {**answer.headers, "Location": location} if location else answer.headers
        pages[url] = replace(answer, headers=headers, body=body)
    web = serve(pages)

    wanted = {"AOPIC_POLITENESS_FACTOR": 2, "AOPIC_POLITENESS_KEY": "domain", "ROBOTSTXT_OBEY": True}
    starts = [f"http://h{n}.example.com/" for n in range(4)]
    await crawl(Busy, {**settings, **wanted, "RETRY_TIMES": 1}, start_urls=starts)
    assert audit(web.log, 2, key=lambda _: "example.com").is_polite
    assert {f"{start}{page}" for start in starts for page in ("0", "inline0", "elsewhere")} <= set(web.asked)


@implementer(IResolverSimple)
class Resolver:
    """All names that end in .test: half of the hosts are at one address, half at another."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def getHostByName(self, name: str, timeout: object = None) -> Deferred[str]:
        self.asked.append(name)
        if not name.endswith(".test"):
            return fail(DNSLookupError(name))
        return succeed(f"127.0.0.{2 + ord(name[-6]) % 2}")


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Web, dict[str, Any]]]:
    """Hosts at two addresses of this machine, all on one port."""
    from twisted.internet import reactor

    monkeypatch.delenv("http_proxy", raising=False)
    pages: dict[str, Any] = {}

    def answer(exchange: Exchange) -> Answer:
        return pages.get(f"{exchange.host}{exchange.target}", Answer(404))

    resolver = Resolver()
    old = reactor.installResolver(resolver)
    server = Server(answer, host="0.0.0.0")
    with server.run_in_thread() as running:
        pages[""] = running.port
        yield Web(server, pages), pages
    reactor.installResolver(old)


@pytest.mark.crossed
@pytest.mark.slow
@pytest.mark.parametrize("settings", [SCHEDULER, MIDDLEWARE, ADDON], ids=["scheduler", "middleware", "addon"])
@pytest.mark.parametrize("key", ["address", "host+address"])
async def test_hosts_of_one_address_are_asked_one_after_the_other_if_so_wanted(addresses, key, settings):
    web, pages = addresses
    port = pages.pop("")
    hosts = [f"h{n}.test" for n in range(8)]
    for host in hosts:
        pages[f"{host}/"] = page([f"http://{host}:{port}/{n}" for n in range(3)], delay=0.01)
        for n in range(3):
            pages[f"{host}/{n}"] = page([], delay=0.01)

    starts = [f"http://{host}:{port}/" for host in (*hosts, "nowhere.invalid")]
    wanted = {"AOPIC_POLITENESS_FACTOR": 2, "AOPIC_POLITENESS_KEY": key, "RETRY_ENABLED": False}
    wanted["AOPIC_MAX_WAIT"] = 1  # for the robots.txt of the host that is nowhere
    wanted["AOPIC_ALLOW_NETWORKS"] = ["127.0.0.0/8"]
    await crawl(Follow, {**settings, **wanted}, start_urls=starts)
    log = [entry for entry in web.log if entry.target != "/robots.txt"]
    assert len(log) == 8 * 4
    result = audit(web.log, 2, key=lambda entry: str(ord(entry.host[-6]) % 2))
    assert result.is_polite
    assert result.n_hosts == 2


@pytest.mark.slow
async def test_rules_of_the_settings_and_of_the_spider_are_of_hosts(serve, caplog):
    names = ("fast", "ruled", "asked", "wrong")

    class Ruled(Follow):
        start_urls = [f"http://{name}.test/" for name in names]

        def politeness(self, host: str) -> Any:
            return {"asked.test": {"min_gap": 0.4}, "wrong.test": {"min_gap": "long"}}.get(host)

    pages: dict[str, list[str]] = {f"http://{name}.test/{n}": [] for name in names for n in (1, 2)}
    web = serve(pages | {f"http://{name}.test/": ["/1", "/2"] for name in names})
    rules = {"RULED.*": {"min_gap": 0.3}, "*.test": {"min_gap": 0.1}}
    await crawl(Ruled, {**SCHEDULER, "AOPIC_HOST_RULES": rules})
    assert len(web.asked) == 12
    dues = {"fast": 0.1, "ruled": 0.3, "asked": 0.4, "wrong": 0.1}
    assert audit(web.log, 0, rest=lambda entry: dues[entry.host[:-5]]).is_polite
    (record,) = [record for record in caplog.records if "politeness(" in record.getMessage()]
    assert "politeness('wrong.test') must return None or a mapping" in record.getMessage()


@pytest.mark.parametrize(
    ("settings", "is_said"),
    [
        ({**SCHEDULER, "DOWNLOAD_DELAY": 0.1, "DOWNLOAD_DELAY_JITTER": 0}, True),
        ({**ADDON, "DOWNLOAD_DELAY": 0.1}, True),
        ({**MIDDLEWARE, "DOWNLOAD_DELAY": 0.1}, True),
        ({**ADDON, "DOWNLOAD_DELAY": 0.1, "AOPIC_MIN_GAP": 0.11}, False),
        ({**ADDON, "DOWNLOAD_DELAY": 0.1, "CONCURRENT_REQUESTS": 1}, False),
        ({**ADDON, "DOWNLOAD_DELAY": 0.1, "AUTOTHROTTLE_ENABLED": True}, False),
        (ADDON, False),
    ],
    ids=["scheduler", "addon", "middleware", "longer gap", "enough hosts", "autothrottle", "default"],
)
async def test_a_delay_that_holds_the_crawl_back_is_said_once(serve, settings, is_said, caplog):
    pages = [f"http://a.test/{n}" for n in range(11)]
    web = serve({"http://a.test/": pages, **{page: [] for page in pages}})
    with caplog.at_level("INFO"):
        await crawl(Follow, {"ROBOTSTXT_OBEY": False, **settings})
    assert len(web.asked) == 12
    said = [text for record in caplog.records if "DOWNLOAD_DELAY =" in (text := record.getMessage())]
    assert len(said) == is_said
    assert all("DOWNLOAD_DELAY = 0.1 holds this crawl back" in text for text in said)
