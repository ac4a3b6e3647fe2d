"""The models of the example project, in real crawls: an encoder, links by it, and a service that is slow, wrong or down."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from broad.judges import Encoder, Nearness, Service
from scrapy.crawler import Crawler
from scrapy.http import HtmlResponse, Response
from scrapy.utils.defer import deferred_f_from_coro_f
from support.small_web import Follow, crawl

from scrapy_aopic.core.focus.strategy import PageSeen
from scrapy_aopic.core.focus.topic import LinkText
from scrapy_aopic.focus import LinkScorer, PageScorer
from scrapy_aopic.testing.server import Answer, Exchange, Server

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


@deferred_f_from_coro_f
async def test_an_encoder_and_what_links_say(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, crawler = await crawled(
        "broad.judges.Encoder", monkeypatch, AOPIC_LINK_SCORER="broad.judges.Nearness"
    )
    assert relevant(seen) == ABOUT_STARS
    assert stat(crawler, "aopic/topic/relevant") == len(ABOUT_STARS)
    assert stat(crawler, "aopic/topic/unvalued") is None


def test_the_examples_are_what_the_protocols_say() -> None:
    judge: PageScorer = Encoder()
    links: LinkScorer = Nearness()
    awaited: PageScorer = Service("http://127.0.0.1:9/", 1.0)
    assert callable(awaited)
    assert judge(HtmlResponse("http://a.test/", body=STARS.encode())) > 0.5
    assert judge(HtmlResponse("http://a.test/", body=b"")) == 0.0
    near, far = links(PageSeen("", 0.0, 0.0, False), [LinkText("galaxies and stars"), LinkText("bread")])
    assert near > far


class Judge(ThreadingHTTPServer):
    """A service that responds once it was asked of *enough* pages at once, but for the first page of the web."""

    daemon_threads = True

    def __init__(self, enough: int, body: bytes | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.enough, self.body = enough, body
        self.wait = threading.Event()
        self.lock = threading.Lock()
        self.now = self.most = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Judge

    def do_POST(self) -> None:
        judge = self.server
        text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"]
        with judge.lock:
            judge.now += 1
            judge.most = max(judge.most, judge.now)
            if judge.now >= judge.enough:
                judge.wait.set()
        if "all of it" not in text or judge.enough > N:
            judge.wait.wait(30)
        with judge.lock:
            judge.now -= 1
        body = judge.body or json.dumps({"grade": 0.9 if "comet" in text else 0.1}).encode()
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


def start(judges: list[Judge], enough: int, body: bytes | None = None) -> Judge:
    judge = Judge(enough, body)
    threading.Thread(target=judge.serve_forever, daemon=True).start()
    judges.append(judge)
    return judge


@deferred_f_from_coro_f
async def test_a_service_is_awaited_before_the_callback_and_asked_of_several_pages_at_once(
    judges: list[Judge], monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = start(judges, enough=3)  # a crawl that waits for the first of them never gets there
    seen, crawler = await crawled("broad.judges.Service", monkeypatch, JUDGE_URL=judge.url, JUDGE_TIMEOUT=20)
    assert judge.most >= 3
    assert relevant(seen) == ABOUT_STARS
    assert set(seen.values()) == {0.1, 0.9}
    assert stat(crawler, "aopic/topic/ungraded") is None


@deferred_f_from_coro_f
async def test_a_service_that_never_responds_costs_grades_and_no_pages(
    judges: list[Judge], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    judge = start(judges, enough=1_000)
    seen, crawler = await crawled(
        "broad.judges.Service", monkeypatch, JUDGE_URL=judge.url, JUDGE_TIMEOUT=2, AOPIC_TOPIC_TIMEOUT=0.2
    )
    assert set(seen.values()) == {0.0}
    assert stat(crawler, "aopic/topic/ungraded") == N + 1
    assert caplog.text.count("The function of AOPIC_TOPIC") == 1
    assert "AOPIC_TOPIC_TIMEOUT" in caplog.text


@pytest.mark.parametrize("body", [b"", b"{", b'{"grade": 2}', b'{"grade": NaN}', b"[]"])
@deferred_f_from_coro_f
async def test_a_service_that_is_down_or_wrong_costs_grades_and_no_pages(
    judges: list[Judge], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    if body:
        url = start(judges, 1, body).url
    else:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}/"
    seen, crawler = await crawled("broad.judges.Service", monkeypatch, JUDGE_URL=url)
    assert set(seen.values()) == {0.0}
    assert stat(crawler, "aopic/topic/ungraded") == N + 1
    assert caplog.text.count("The function of AOPIC_TOPIC") == 1


@deferred_f_from_coro_f
async def test_what_cannot_be_made_is_refused_with_its_setting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Server(web).run_in_thread() as running:
        monkeypatch.setenv("http_proxy", running.url)
        await crawl(
            Follow,
            {"SCHEDULER": "scrapy_aopic.Scheduler", "AOPIC_TOPIC": {"function": "broad.judges.Service"}},
        )
    assert "AOPIC_TOPIC names broad.judges.Service, which cannot be made" in caplog.text
    assert "JUDGE_URL" in caplog.text


async def awaited(page: object, links: object) -> list[float]:
    return []


@deferred_f_from_coro_f
async def test_links_cannot_be_awaited(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Server(web).run_in_thread() as running:
        monkeypatch.setenv("http_proxy", running.url)
        await crawl(
            Follow,
            {
                "SCHEDULER": "scrapy_aopic.Scheduler",
                "AOPIC_ORDER": "focused",
                "AOPIC_TOPIC": {"keywords": ["x"]},
                "AOPIC_LINK_SCORER": awaited,
            },
        )
    assert "AOPIC_LINK_SCORER" in caplog.text
    assert "asynchronous" in caplog.text
