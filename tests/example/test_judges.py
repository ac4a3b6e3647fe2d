"""The models of the example project, in real crawls: an encoder, links by it, and a service that is slow, wrong or down."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from broad.judges import Encoder, Nearness, Service
from demo_web.server import Answer, Exchange, Server
from scrapy.crawler import Crawler
from scrapy.http import HtmlResponse, Response
from support.redis_server import free_port
from support.small_web import Follow, crawl

from scrapy_aopic.core.focus.strategy import PageSeen
from scrapy_aopic.core.focus.topic import LinkText
from scrapy_aopic.focus import BatchJudge, JudgedPage, LinkScorer, PageScorer

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
    assert callable(awaited)
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
        text = question["text"]
        with judge.lock:
            judge.asked.append(question)
            judge.now += 1
            judge.most = max(judge.most, judge.now)
            if judge.now >= judge.enough:
                judge.wait.set()
        if "all of it" not in text or judge.enough > N:
            judge.wait.wait(30)
        with judge.lock:
            judge.now -= 1
        body = json.dumps({"grade": 0.9 if "comet" in text else 0.1}).encode()
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


async def test_an_asynchronous_function_for_links_is_refused(monkeypatch, caplog):
    async def score(page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        return [0.5] * len(links)

    await crawl(
        Follow, {"SCHEDULER": "scrapy_aopic.Scheduler", "AOPIC_TOPIC": "items", "AOPIC_LINK_SCORER": score}
    )
    assert "AOPIC_LINK_SCORER" in caplog.text
    assert "links are valued by a plain function" in caplog.text


def slow_grade(response: Response) -> float:
    time.sleep(0.25 if response.url == "http://a.test/" else 0)
    return 0.5


def slow_value(page: PageSeen, links: Sequence[LinkText]) -> list[float]:
    time.sleep(0.25 if page.url == "http://a.test/" else 0)
    return [0.5] * len(links)


async def test_a_function_that_holds_the_crawl_up_is_named(monkeypatch, caplog):
    await crawled(slow_grade, monkeypatch, AOPIC_LINK_SCORER=slow_value)
    said = [record.getMessage() for record in caplog.records if "whole crawl waited" in record.getMessage()]
    whose = [each.split(" took")[0] for each in said]
    assert whose == ["The function of AOPIC_TOPIC", "The function of AOPIC_LINK_SCORER"]
    assert all("async def" in each for each in said)
