"""What hosts ask of one of several proxies: that proxy waits, and other ways to the host are open."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import pytest
from demo_web.server import Answer, Exchange, Server
from scrapy import Request
from scrapy.downloadermiddlewares.httpproxy import HttpProxyMiddleware
from scrapy.http import Response
from scrapy.utils.test import get_crawler
from support.small_web import Follow, crawl

from scrapy_aopic.core.politeness import Outcome, Politeness, TransferResult
from scrapy_aopic.downloadermiddlewares import polite_downloads, proxy_waits
from scrapy_aopic.downloadermiddlewares.proxy_waits import ProxyWaits
from scrapy_aopic.session.pacer import MemoryPacer
from scrapy_aopic.web.meta import TRIES

STOCK: dict[str, Any] = {}
ALONE: dict[str, Any] = {"SCHEDULER": "scrapy_aopic.Scheduler"}
ADDON: dict[str, Any] = {"ADDONS": {"scrapy_aopic.Addon": 500}}
OURS = pytest.mark.parametrize("settings", [ALONE, ADDON], ids=["alone", "addon"])
WAYS = pytest.mark.parametrize("settings", [STOCK, ALONE, ADDON], ids=["stock", "alone", "addon"])
URLS = [f"http://a.test/{n}" for n in range(6)]
LATER = Answer(429, {"Retry-After": "60"})
FINE = Answer(200, {"Content-Type": "text/html"}, b"<p>x</p>")


def _always(answer: Answer, _: Exchange) -> Answer:
    return answer


class Proxies:
    """Proxies by name, each with what it answers."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._servers: dict[str, Server] = {}
        self.urls: dict[str, str] = {"down": "http://127.0.0.1:1"}

    def add(self, **answers: Answer | Callable[[Exchange], Answer]) -> None:
        for name, answer in answers.items():
            server = Server(answer if callable(answer) else partial(_always, answer))
            self._servers[name] = server
            self.urls[name] = self._stack.enter_context(server.run_in_thread()).url

    def asked(self, name: str) -> list[str]:
        return [entry.target for entry in self._servers[name].entries if entry.target != "/robots.txt"]

    def gaps(self, name: str) -> list[float]:
        return [b.start - a.end for a, b in pairwise(self._servers[name].entries)]


@pytest.fixture
def proxies(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxies]:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(proxy_waits, "_FIRST_MOMENT", 0.001)
    with ExitStack() as stack:
        made = Proxies(stack)
        monkeypatch.setattr(Chooses, "urls", made.urls)
        monkeypatch.setattr(Items, "seen", [])
        monkeypatch.setattr(Items, "failed", [])
        yield made


class Chooses:
    """Gives requests the first proxy, and takes the next one if that fails."""

    urls: ClassVar[dict[str, str]] = {}

    def process_request(self, request: Request) -> None:
        if not request.meta.get("proxy"):
            request.meta["proxy"] = self.urls[self.first(request)]

    def first(self, request: Request) -> str:
        return "a" if "a" in self.urls else "down"

    def _next(self, request: Request) -> Request:
        return request.replace(meta={**request.meta, "proxy": self.urls["b"]}, dont_filter=True)

    def process_response(self, request: Request, response: Response) -> Request | Response:
        return self._next(request) if response.status in (403, 407, 429, 503) else response

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        return self._next(request) if request.meta["proxy"] != self.urls["b"] else None


class Impatient(Chooses):
    """Does not wait for long for what the first proxy says."""

    def process_request(self, request: Request) -> None:
        super().process_request(request)
        request.meta["download_timeout"] = 60 if request.meta["proxy"] == self.urls["b"] else 0.3


class ByPath(Chooses):
    """Odd pages go out by one proxy, even ones by another, whatever these answer."""

    def first(self, request: Request) -> str:
        return "ab"[int(request.url[-1], 36) % 2]

    def process_response(self, request: Request, response: Response) -> Response:
        return response


class Items(Follow):
    start_urls = URLS
    seen: ClassVar[list[str]] = []
    failed: ClassVar[list[object]] = []

    def parse(self, response: Response) -> None:
        self.seen.append(response.url)


def once(first: Answer) -> Callable[[Exchange], Answer]:
    """*first* to the first request of all, and then what is fine."""
    left = [first]
    return lambda _: left.pop() if left else FINE


def by(middleware: type, order: int = 740, **settings: Any) -> dict[str, Any]:
    return {"DOWNLOADER_MIDDLEWARES": {middleware: order}, "ROBOTSTXT_OBEY": False, **settings}


@pytest.mark.crossed
@WAYS
@pytest.mark.parametrize("order", [740, 543], ids=["before retries", "behind retries"])
@pytest.mark.parametrize("answer", [LATER, Answer(503, {"Retry-After": "60"})], ids=["429", "503"])
async def test_a_request_that_a_middleware_makes_of_an_answer_goes_out_at_once_by_another_proxy(
    proxies, settings, answer, order
):
    proxies.add(a=answer, b=FINE)
    crawler = await crawl(Items, {**settings, **by(Chooses, order, ROBOTSTXT_OBEY=True)})
    assert sorted(Items.seen) == URLS
    assert sorted(proxies.asked("b")) == [f"/{n}" for n in range(6)]
    assert crawler.stats.get_value("finish_reason") == "finished"
    if settings:  # the host has asked that proxy to wait for a minute
        assert len(proxies.asked("a")) <= 1


@pytest.mark.crossed
@WAYS
@pytest.mark.parametrize(
    "first",
    [None, Answer(407), Answer(403), Answer(abort=True), Answer(delay=600)],
    ids=["down", "407", "403", "breaks", "hangs"],
)
async def test_a_proxy_that_is_no_use_is_left_for_another_one(proxies, settings, first):
    proxies.add(b=FINE, **({"a": first} if first is not None else {}))
    settings = {**settings, **by(Impatient, AOPIC_BACKOFF=1000, RETRY_ENABLED=False)}
    crawler = await crawl(Items, settings, start_urls=URLS[:3])
    assert sorted(Items.seen) == URLS[:3]
    assert crawler.stats.get_value("finish_reason") == "finished"


class Others(Items):
    """Three pages by one proxy, and more that lead to one another by another one, until the three have failed."""

    async def start(self) -> AsyncIterator[Any]:
        for n in range(3):
            yield Request(f"{self.scheme}://a.test/{n}", meta={"proxy": Chooses.urls["a"]})  # type: ignore[attr-defined]
        yield Request("http://b.test/0", meta={"proxy": Chooses.urls["b"], "n": 1})

    def parse(self, response: Response) -> Iterator[Any]:
        self.seen.append(response.url)
        n, n_failed = response.meta["n"], self.crawler.stats.get_value("aopic/pages/failed", 0)  # type: ignore[union-attr]
        if n_failed < 3 and n < 5000:
            yield Request(f"http://b.test/{n}", meta={"proxy": Chooses.urls["b"], "n": n + 1})


@pytest.mark.crossed
@OURS
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("first", [None, Answer(407)], ids=["down", "407"])
@pytest.mark.parametrize("backoff", [0, 0.01])
async def test_a_page_whose_proxy_always_refuses_is_not_tried_without_end(
    proxies, settings, *, first, scheme, backoff, caplog, monkeypatch
):
    most = 6 if backoff else 0
    monkeypatch.setattr(polite_downloads, "_MOST_FAILURES", 6)
    monkeypatch.setattr(polite_downloads, "_PROXY_TRIES", 10**9)  # however slowly the other one answers
    proxies.add(b=FINE, **({"a": first} if first is not None else {}))
    proxies.urls.setdefault("a", proxies.urls["down"])
    bounds = {"ROBOTSTXT_OBEY": False, "AOPIC_BACKOFF": backoff}
    crawler = await crawl(Others, {**settings, **bounds}, scheme=scheme)
    stats = crawler.stats.get_stats()
    is_later = settings is ADDON
    assert (stats["finish_reason"], stats["aopic/pages/failed"]) == ("finished", 3)
    assert stats.get("aopic/pages/later_tries", 0) == (12 if is_later else 0)
    at_once = 1 if first is not None and scheme == "http" else 3  # Scrapy's retries are of exceptions only
    tries = stats["downloader/request_count"] - len(Others.seen) - (12 if is_later else 0)
    assert tries == 3 * (most + at_once)
    assert stats["aopic/politeness/proxy_failures"] >= 3
    warnings = sum("again and again, while others bring" in record.getMessage() for record in caplog.records)
    assert warnings == 1 or (not backoff and warnings == 0)  # then only later tries come to that many


class AtFirstNone(Chooses):
    """No proxy until a request fails without one."""

    def process_request(self, request: Request) -> None:
        """Leave it as it is."""

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        return None if request.meta.get("proxy") else self._next(request)


@pytest.mark.crossed
@OURS
@pytest.mark.parametrize(
    "answer", [LATER, Answer(503, {"Retry-After": "3600"}), Answer(abort=True)], ids=["429", "503", "none"]
)
async def test_no_proxy_is_one_of_the_ways(proxies, settings, answer, monkeypatch):
    proxies.add(a=answer, b=FINE)
    port = proxies.urls["a"].rpartition(":")[2]
    urls = [f"http://127.0.0.1:{port}/{n}" for n in range(6)]
    bounds = {
        "AOPIC_BACKOFF": 1000,
        "AOPIC_MAX_WAIT": 30,
        "AOPIC_ALLOW_NETWORKS": "all",
        "AOPIC_URL_RULES": [],
    }
    crawler = await crawl(Items, {**settings, **by(AtFirstNone), **bounds}, start_urls=urls)
    assert sorted(Items.seen) == urls
    assert crawler.stats.get_value("finish_reason") == "finished"
    assert len(proxies.asked("b")) == 6
    if answer.status != 200:
        assert len(proxies.asked("a")) == 1


@OURS
async def test_pages_by_another_proxy_do_not_wait_and_none_is_lost(proxies, settings):
    proxies.add(a=lambda _: FINE if len(Items.seen) >= 3 else Answer(429, {"Retry-After": "1"}), b=FINE)
    await crawl(Items, {**settings, **by(ByPath)})
    assert Counter(Items.seen) == Counter(URLS)
    assert {url[-1] for url in Items.seen[:3]} == set("135")
    assert proxies.gaps("a")[0] >= 1
    assert len(proxies.asked("a")) >= 4


class Wants(Items):
    """Asks on purpose, with an errback, by a proxy of its own."""

    async def start(self) -> AsyncIterator[Any]:
        for url in URLS:
            yield Request(url, meta={"proxy": Chooses.urls["a"]}, errback=self.note, dont_filter=True)

    def note(self, failure: Any) -> None:
        self.failed.append(failure.value)


@OURS
async def test_with_a_single_proxy_what_is_repeated_is_no_try(proxies, settings):
    proxies.add(a=once(Answer(429, {"Retry-After": "1"})))
    bounds = {"RETRY_TIMES": 1, "ROBOTSTXT_OBEY": False, "AOPIC_POLITENESS_FACTOR": 0}
    crawler = await crawl(Wants, {**settings, **bounds})
    assert (Counter(Wants.seen), Wants.failed) == (Counter(URLS), [])
    assert proxies.gaps("a")[0] >= 1
    assert len(proxies.asked("a")) == 7
    assert crawler.stats.get_value("aopic/politeness/repeated") > 6


@OURS
async def test_answers_that_are_repeated_reach_no_callback_and_leave_no_trace(proxies, settings):
    metas: list[dict[str, Any]] = []

    class Handles(Wants):
        handle_httpstatus_list = (429,)

        def parse(self, response: Response) -> None:
            super().parse(response)
            assert response.flags == []
            metas.append(response.meta)

    proxies.add(a=once(Answer(429, {"Retry-After": "1", "Content-Type": "text/html"})))
    await crawl(Handles, {**settings, "ROBOTSTXT_OBEY": False, "RETRY_ENABLED": False})
    assert (Counter(Handles.seen), Handles.failed) == (Counter(URLS), [])
    assert len(proxies.asked("a")) == 6
    assert proxies.gaps("a")[0] >= 1
    assert not [meta for meta in metas if TRIES in meta or "retry_times" in meta]


@OURS
async def test_with_the_setting_what_is_asked_of_one_proxy_holds_for_all(proxies, settings):
    proxies.add(a=once(Answer(429, {"Retry-After": "1"})), b=FINE)
    await crawl(Items, {**settings, **by(ByPath, AOPIC_POLITENESS_KEY="host+proxies")}, start_urls=URLS[:2])
    assert sorted(Items.seen) == URLS[:2]
    (first, *_), (other,) = (proxies._servers[name].entries for name in "ab")
    assert (first.status, other.start - first.end >= 1) == (429, True)


@OURS
async def test_a_host_that_no_proxy_gets_at_is_dead(proxies, settings):
    proxies.add(a=Answer(429), b=Answer(429))
    bounds = by(ByPath, AOPIC_BACKOFF=0.01, AOPIC_MAX_BACKOFF=1000, AOPIC_MAX_WAIT=3600)
    crawler = await crawl(Items, {**settings, **bounds})
    assert Items.seen == []
    assert crawler.stats.get_value("finish_reason") == "aopic_unreachable"


def test_what_is_remembered_of_proxies_is_bounded(monkeypatch):
    monkeypatch.setattr(proxy_waits, "REMEMBERED", 10)
    waits = ProxyWaits(get_crawler(), Politeness(), MemoryPacer(Politeness()))
    down, fine = TransferResult(0.1, Outcome.DOWN, 60.0), TransferResult(0.1)
    for n in range(100):
        waits.ended(f"pair {n}", Response("http://a.test"), fine, 0.0)
    assert not waits._statuses
    for n in range(100):
        waits.ended(f"pair {n}", Response("http://a.test", 429), down, 0.0)
    assert [*waits._statuses] == [f"pair {n}" for n in range(90, 100)]
    assert 59 < waits.wait("pair 99") <= 60
    assert waits.wait("pair 0") == 0
    waits.ended("pair 99", Response("http://a.test"), fine, 0.0)
    assert waits.wait("pair 99") == 0


def test_a_proxy_of_the_environment_is_the_way_of_all_and_sessions_of_a_proxy_are_apart(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://me:secret@p.test:8080")
    crawler = get_crawler()
    crawler.get_downloader_middleware = lambda _: HttpProxyMiddleware()  # type: ignore[method-assign,assignment,return-value]
    waits = ProxyWaits(crawler, Politeness(), MemoryPacer(Politeness()))
    names = [
        waits.pair("a.test", Request("http://a.test", meta={"proxy": proxy}, headers=headers))
        for proxy, headers in (
            (None, {}),
            ("http://p.test:8080", {}),
            ("http://q.test:8080", {}),
            ("http://q.test:8080", {"Proxy-Authorization": "Basic x"}),
        )
    ]
    assert names[:2] == ["", ""]
    assert len(set(names)) == 3
