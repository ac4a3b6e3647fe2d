"""The models of the example project, in real crawls: an encoder, links by it, and a service that is slow, wrong or down."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any

import pytest
from broad.judges import Encoder, LinkService, Nearness, Service
from demo_web.server import Answer, Exchange, Server
from scrapy.crawler import Crawler
from scrapy.http import HtmlResponse, Response
from support.redis_server import free_port
from support.small_web import Follow, check, crawl

from scrapy_aopic.core.focus.learned import StandIn
from scrapy_aopic.core.focus.strategy import PageSeen
from scrapy_aopic.core.focus.topic import LinkText, Topic
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.focus import BatchJudge, JudgedPage, LinkScorer, PageScorer
from scrapy_aopic.session.topic.user_functions import OutOfPatienceError, Valuing

STARS = "a comet and its tail beside two galaxies, seen in a telescope among the stars"
BREAD = "the baker opens the oven in the morning and sells bread"
N = 12


def page(text: str, links: list[str]) -> Answer:
    anchors = "".join(f'<a href="{link}">{link}</a>' for link in links)
    return Answer(200, {"Content-Type": "text/html"}, f"<body><p>{text}</p>{anchors}</body>".encode())


def web(exchange: Exchange) -> Answer:
    """A page that links to *N* others, each on a host of its own, every third of which is about stars."""
    if exchange.host == "a.test":
        return page("all of it", [f"http://h{number}.test/" for number in range(N)])
    return page(STARS if int(exchange.host[1:-5]) % 3 == 0 else BREAD, [])


class Kept(Follow):
    """Follows all links, and notes the relevance of each page when its callback is called."""

    seen: list[tuple[str, float]]

    def parse(self, response: Response) -> Iterator[Any]:
        self.seen.append((response.url, response.meta["aopic_relevance"]))
        yield from super().parse(response)


async def crawled(
    topic: object, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> tuple[dict[str, float], Crawler]:
    """Relevance by URL, and the crawler."""
    Kept.seen = []
    with Server(web).run_in_thread() as running:
        monkeypatch.setenv("http_proxy", running.url)
        crawler = await crawl(
            Kept,
            {
                "SCHEDULER": "scrapy_aopic.Scheduler",
                "AOPIC_TOPIC": {"function": topic},
                "AOPIC_ORDER": "focused",
                "AOPIC_MIN_GAP": 0.01,
                **settings,
            },
        )
    assert len(Kept.seen) == N + 1  # whatever became of the grades
    return dict(Kept.seen), crawler


def stat(crawler: Crawler, name: str) -> Any:
    assert crawler.stats is not None
    assert crawler.stats.get_value("aopic/errors") is None
    return crawler.stats.get_value(name)


def relevant(seen: dict[str, float]) -> set[str]:
    return {url for url, grade in seen.items() if grade >= 0.5}


ABOUT_STARS = {f"http://h{number}.test/" for number in range(0, N, 3)}


async def test_an_encoder_and_what_links_say(monkeypatch):
    seen, crawler = await crawled(
        "broad.judges.Encoder", monkeypatch, AOPIC_LINK_SCORER="broad.judges.Nearness"
    )
    assert relevant(seen) == ABOUT_STARS
    assert stat(crawler, "aopic/topic/relevant") == len(ABOUT_STARS)
    assert stat(crawler, "aopic/topic/unvalued") is None


class Stars(BatchJudge):
    """Notes its batches."""

    batches: list[list[str]]
    wait = 30.0

    def judge(self, pages: Sequence[JudgedPage]) -> Sequence[float]:
        self.batches.append([page.url for page in pages])
        return [0.9 if "comet" in page.text else 0.1 for page in pages]


async def test_a_judge_gets_batches_and_each_text_once(monkeypatch):
    monkeypatch.setattr(Stars, "batches", [], raising=False)
    seen, crawler = await crawled(Stars, monkeypatch)
    assert relevant(seen) == ABOUT_STARS
    assert (
        sum(map(len, Stars.batches)) < N
    )  # of equal texts only those are judged that come before the first is graded
    assert all(len(batch) <= Stars.size for batch in Stars.batches)
    assert stat(crawler, "aopic/topic/guessed") is None


class Hung(Stars):
    """Grades the first page, and never returns when it is asked for another, however late that comes."""

    wait = 0.01
    ended = threading.Event()

    def judge(self, pages: Sequence[JudgedPage]) -> Sequence[float]:
        if any(page.url != "http://a.test/" for page in pages):
            self.ended.wait()
        return super().judge(pages)


async def test_a_judge_that_never_returns_slows_nothing_and_pages_get_the_mean_of_their_host(monkeypatch):
    monkeypatch.setattr(Hung, "batches", [], raising=False)
    monkeypatch.setattr(Hung, "ended", threading.Event())
    seen, crawler = await crawled(Hung, monkeypatch)
    Hung.ended.set()
    assert stat(crawler, "aopic/topic/guessed") >= N
    assert stat(crawler, "aopic/topic/ungraded") is None
    assert set(seen.values()) <= {0.0, 0.1, 0.9}


class Silly(Stars):
    def judge(self, pages: Sequence[JudgedPage]) -> Sequence[float]:
        return [2.0 for _ in pages]


async def test_a_judge_that_gives_no_grades_costs_grades_and_no_pages(monkeypatch, caplog):
    _, crawler = await crawled(Silly, monkeypatch)
    assert stat(crawler, "aopic/topic/ungraded") == N + 1
    assert "not from 0 to 1" in caplog.text


@pytest.mark.parametrize("is_async", [False, True])
async def test_what_a_judge_of_batches_remembers_and_lets_wait_is_bounded(is_async):
    class Bounded(BatchJudge):
        size, queue, remembered, wait, fill = 2, 4, 3, 0.0, 0.0

    def judge(_: BatchJudge, pages: Sequence[JudgedPage]) -> list[float]:
        asked.append(len(pages))
        return [0.5] * len(pages)

    async def later(_: BatchJudge, pages: Sequence[JudgedPage]) -> list[float]:
        return judge(_, pages)

    asked: list[int] = []
    Bounded.judge = later if is_async else judge
    one = Bounded()
    pages = [HtmlResponse(f"http://a.test/{n}", body=f"<p>{n}</p>".encode()) for n in range(9)]
    assert set(await asyncio.gather(*map(one, pages))) <= {0.0, 0.5}
    assert one._worker is not None
    await one._worker
    assert asked == [2, 2]
    assert len(one._grades) == 3
    assert await one(pages[3]) == 0.5
    assert await one(pages[8]) == pytest.approx(0.5)


def test_the_examples_are_what_the_protocols_say():
    judge: PageScorer = Encoder()
    links: LinkScorer = Nearness()
    awaited: PageScorer = Service("http://127.0.0.1:9/", 1.0)
    awaited_links: LinkScorer = LinkService("http://127.0.0.1:9/", 1.0)
    assert callable(awaited)
    assert callable(awaited_links)
    assert callable(links)
    assert judge(HtmlResponse("http://a.test/", body=STARS.encode())) > 0.5
    assert judge(HtmlResponse("http://a.test/", body=b"")) == 0.0
    near, far = Nearness()(PageSeen("", 0.0, 0.0, False), [LinkText("galaxies and stars"), LinkText("bread")])
    assert near > far


class Judge(ThreadingHTTPServer):
    """A service that responds once it was asked of *enough* pages at once, but for the first page of the web.

    Args:
        bodies: What it responds with, one after the other, in place of an answer.
    """

    daemon_threads = True

    def __init__(self, enough: int, bodies: Sequence[bytes] = ()) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.enough, self.bodies = enough, bodies
        self.wait = threading.Event()
        self.lock = threading.Lock()
        self.now = self.most = 0
        self.asked: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Judge

    def do_POST(self) -> None:
        judge = self.server
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = question.get("text", "")
        with judge.lock:
            judge.asked.append(question)
            judge.now += 1
            judge.most = max(judge.most, judge.now)
            if judge.now >= judge.enough:
                judge.wait.set()
        is_first = "all of it" in text or question.get("url") == "http://a.test/"
        if not is_first or judge.enough > N:
            judge.wait.wait(30)
        with judge.lock:
            judge.now -= 1
        numbers = [int(re.sub(r"\D", "", link["anchor"])) for link in question.get("links", ())]
        answer = {
            "grade": 0.9 if "comet" in text else 0.1,
            "values": [0.1 if is_left(number) else 0.9 for number in numbers],
        }
        body = json.dumps(answer).encode()
        if judge.bodies:
            body = judge.bodies[len(judge.asked) % len(judge.bodies)]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Nothing: a test needs no log of it."""


@pytest.fixture
def judges() -> Iterator[list[Judge]]:
    """Services that a test starts by adding them to this list."""
    running: list[Judge] = []
    yield running
    for each in running:
        each.wait.set()
        each.shutdown()
        each.server_close()


def start(judges: list[Judge], enough: int, bodies: Sequence[bytes] = ()) -> Judge:
    judge = Judge(enough, bodies)
    threading.Thread(target=judge.serve_forever, daemon=True).start()
    judges.append(judge)
    return judge


async def test_a_service_is_awaited_before_the_callback_and_asked_of_several_pages_at_once(
    judges, monkeypatch
):
    judge = start(judges, enough=3)  # a crawl that waits for the first of them never gets there
    seen, crawler = await crawled("broad.judges.Service", monkeypatch, JUDGE_URL=judge.url, JUDGE_TIMEOUT=20)
    assert judge.most >= 3
    assert relevant(seen) == ABOUT_STARS
    assert set(seen.values()) == {0.1, 0.9}
    assert stat(crawler, "aopic/topic/ungraded") is None


async def test_a_service_that_never_responds_costs_grades_and_no_pages(judges, monkeypatch, caplog):
    judge = start(judges, enough=1_000)
    monkeypatch.setattr("scrapy_aopic.session.topic.user_functions.LONGEST", 0.2)
    seen, crawler = await crawled("broad.judges.Service", monkeypatch, JUDGE_URL=judge.url, JUDGE_TIMEOUT=2)
    assert set(seen.values()) == {0.0}
    assert stat(crawler, "aopic/topic/ungraded") == N + 1
    assert caplog.text.count("The function of AOPIC_TOPIC") == 1
    assert "within 0.2 seconds" in caplog.text


def wrong_service(judges: list[Judge], bodies: Sequence[bytes]) -> str:
    """URL of a service that responds with *bodies*, or of none at all without any."""
    if bodies:
        return start(judges, 1, bodies).url
    return f"http://127.0.0.1:{free_port()}/"


@pytest.mark.parametrize("bodies", [[], [b"{", b'{"grade": 2}', b'{"grade": NaN}', b"[]"]])
async def test_a_service_that_is_down_or_wrong_costs_grades_and_no_pages(judges, monkeypatch, caplog, bodies):
    url = wrong_service(judges, bodies)
    seen, crawler = await crawled("broad.judges.Service", monkeypatch, JUDGE_URL=url)
    assert set(seen.values()) == {0.0}
    assert stat(crawler, "aopic/topic/ungraded") == N + 1
    assert caplog.text.count("The function of AOPIC_TOPIC") == 1


async def test_what_cannot_be_made_is_refused_with_its_setting(monkeypatch, caplog):
    with Server(web).run_in_thread() as running:
        monkeypatch.setenv("http_proxy", running.url)
        await crawl(
            Follow,
            {"SCHEDULER": "scrapy_aopic.Scheduler", "AOPIC_TOPIC": {"function": "broad.judges.Service"}},
        )
    assert "AOPIC_TOPIC names broad.judges.Service, which cannot be made" in caplog.text
    assert "JUDGE_URL" in caplog.text


# -- links


def links_web(exchange: Exchange) -> Answer:
    """A binary tree of pages, each on a host of its own, of which the left half is about stars, and says nothing of it before."""
    number = 1 if exchange.host == "a.test" else int(exchange.host[1:-5])
    links = [f"http://h{child}.test/" for child in (2 * number, 2 * number + 1) if child < 2 * N]
    return page(STARS if is_left(number) else BREAD, links)


def is_left(number: int) -> bool:
    while number > 3:
        number //= 2
    return number == 2


LEFT = list(filter(is_left, range(1, 2 * N)))
N_LINKING = sum(2 * number < 2 * N for number in range(1, 2 * N))
"""Pages of it that have links."""


async def with_links(
    scorer: object, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> tuple[list[str], Crawler]:
    """URLs of that web in the order in which they were fetched, and the crawler."""
    Kept.seen = []
    with Server(links_web).run_in_thread() as running:
        monkeypatch.setenv("http_proxy", running.url)
        crawler = await crawl(
            Kept,
            {
                "SCHEDULER": "scrapy_aopic.Scheduler",
                "SPIDER_MIDDLEWARES": {"scrapy_aopic.LinkMiddleware": 1000},
                "AOPIC_TOPIC": {"keywords": ["galaxies", "comet"]},
                "AOPIC_ORDER": "focused",
                "AOPIC_LINK_SCORER": scorer,
                "AOPIC_FOCUS": 1,
                "AOPIC_MIN_GAP": 0.01,
                "CONCURRENT_REQUESTS": 1,
                "SCRAPER_SLOT_MAX_ACTIVE_SIZE": 1,  # so that the next page is chosen when links have their values
                **settings,
            },
        )
    urls = [url for url, _ in Kept.seen]
    assert len(urls) == len(set(urls)) == 2 * N - 1  # whatever became of the values
    return urls, crawler


def n_left(urls: list[str]) -> int:
    """How many of the first pages are of the left half, as far as it could be all of it."""
    numbers = [int(url[len("http://h") :].partition(".")[0]) for url in urls if "://h" in url]
    return sum(map(is_left, numbers[: len(LEFT)]))


async def test_a_service_says_which_links_come_first(judges, monkeypatch, tmp_path):
    judge = start(judges, enough=1)
    urls, crawler = await with_links(
        "broad.judges.LinkService",
        monkeypatch,
        JUDGE_LINKS_URL=judge.url,
        JUDGE_TIMEOUT=60,
        JOBDIR=str(tmp_path),
        AOPIC_STORE="sqlite",
    )
    # It prefers the right half, which no strategy of the package would.
    assert n_left(urls[: 2 * N - 1 - len(LEFT)]) == 0
    assert len(judge.asked) == N_LINKING  # once for all links of a page
    assert {"anchor", "around", "heading", "path"} == judge.asked[0]["links"][0].keys()
    assert judge.asked[0]["url"] == "http://a.test/"
    assert stat(crawler, "aopic/topic/unvalued") is None
    result = check(tmp_path)
    assert result.violations == []
    assert result.cash + result.virtual == TOTAL


async def test_pages_wait_for_the_values_of_their_links_and_nothing_else_does(judges, monkeypatch):
    judge = start(judges, enough=2)  # a crawl that waits for the first of them never gets there
    _, crawler = await with_links(
        "broad.judges.LinkService",
        monkeypatch,
        JUDGE_LINKS_URL=judge.url,
        JUDGE_TIMEOUT=60,
        CONCURRENT_REQUESTS=8,
        SCRAPER_SLOT_MAX_ACTIVE_SIZE=5_000_000,
    )
    assert judge.most >= 2
    assert stat(crawler, "aopic/topic/unvalued") is None


async def test_without_the_service_links_get_what_was_learned(judges, monkeypatch, caplog):
    judge = start(judges, enough=1_000)
    monkeypatch.setattr("scrapy_aopic.session.topic.user_functions.LONGEST", 0.2)
    urls, crawler = await with_links(
        "broad.judges.LinkService", monkeypatch, JUDGE_LINKS_URL=judge.url, JUDGE_TIMEOUT=2
    )
    assert n_left(urls) >= len(LEFT) - 2
    assert stat(crawler, "aopic/topic/unvalued") == N_LINKING
    assert [record.levelname for record in caplog.records if "AOPIC_LINK_SCORER" in record.getMessage()] == [
        "WARNING"
    ]
    assert "no values within 0.2 seconds" in caplog.text


@pytest.mark.parametrize(
    "bodies", [[], [b"{", b'{"values": [2, 2]}', b'{"values": [NaN, 0]}', b'{"values": []}', b"[]"]]
)
async def test_a_service_for_links_that_is_down_or_wrong_costs_values_and_no_pages(
    judges, monkeypatch, caplog, bodies
):
    url = wrong_service(judges, bodies)
    urls, crawler = await with_links("broad.judges.LinkService", monkeypatch, JUDGE_LINKS_URL=url)
    assert n_left(urls) >= len(LEFT) - 2
    assert stat(crawler, "aopic/topic/unvalued") == N_LINKING
    assert caplog.text.count("AOPIC_LINK_SCORER") == 1


async def test_a_service_that_is_late_again_and_again_holds_one_page_at_a_time(monkeypatch):
    is_up = asyncio.Event()

    async def score(page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        await is_up.wait()
        return [0.5] * len(links)

    monkeypatch.setattr("scrapy_aopic.session.topic.user_functions.LONGEST", 0.01)
    valuing = Valuing(score)
    seen, links = PageSeen("http://a.test/", 1.0, 1.0, True), {b"1": LinkText("one"), b"2": LinkText("two")}

    async def at_once(n: int) -> list[object]:
        return list(
            await asyncio.gather(*[valuing.values(seen, links) for _ in range(n)], return_exceptions=True)
        )

    assert [type(each) for each in await at_once(8)] == [TimeoutError] * 8
    assert [type(each) for each in await at_once(3)] == [TimeoutError, OutOfPatienceError, OutOfPatienceError]
    is_up.set()
    assert [type(each) for each in await at_once(3)] == [dict, OutOfPatienceError, OutOfPatienceError]
    assert await at_once(3) == [{b"1": 0.5, b"2": 0.5}] * 3


def test_what_a_service_has_valued_is_not_valued_anew():
    strategy = StandIn(Topic(["comet"]), Random(0))
    strategy.values(PageSeen("http://a.test/", 0.5, 0.5, True, b"own"), [LinkText("comet")])
    assert strategy.revalue(0.5, LinkText("comet"), b"own") is not None
    assert strategy.revalue(0.5, LinkText("comet"), b"of the service") is None


def slow_grade(response: Response) -> float:
    time.sleep(0.25 if response.url == "http://a.test/" else 0)
    return 0.5


def slow_value(page: PageSeen, links: Sequence[LinkText]) -> list[float]:
    time.sleep(0.25 if page.url == "http://a.test/" else 0)
    return [0.5] * len(links)


async def test_a_function_that_holds_the_crawl_up_is_named(monkeypatch, caplog):
    await crawled(slow_grade, monkeypatch, AOPIC_LINK_SCORER=slow_value)
    said = [record.getMessage() for record in caplog.records if "whole crawl waited" in record.getMessage()]
    assert [each.split(" took")[0] for each in said] == [
        "The function of AOPIC_TOPIC",
        "The function of AOPIC_LINK_SCORER",
    ]
    assert all("async def" in each for each in said)
