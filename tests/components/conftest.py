"""A small web for each test, and an eye on the stats that its crawls set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest
from demo_web.server import Answer, Exchange, Server
from scrapy.statscollectors import StatsCollector
from support import redis_server
from support.crawls import on_server
from support.small_web import Web, html

from scrapy_aopic import stats_table
from scrapy_aopic.session.topic import given_topic, harvest_watch, learning
from scrapy_aopic.storage import Address


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, Any]], Web]]:
    """Serve pages behind a proxy that all crawls of the test use."""
    with ExitStack() as stack:

        def start(pages: dict[str, Any]) -> Web:
            def answer(exchange: Exchange) -> Answer:
                page = pages.get(f"http://{exchange.host}{exchange.target}")
                if callable(page):
                    page = page(exchange)
                if page is None:
                    return Answer(404)
                if isinstance(page, Answer):
                    return page
                return Answer(headers={"Content-Type": "text/html"}, body=html(page))

            server = Server(answer)
            running = stack.enter_context(server.run_in_thread())
            monkeypatch.setenv("http_proxy", running.url)
            return Web(server, pages)

        yield start


@pytest.fixture(autouse=True)
def same_chance_in_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crawl for a topic draws the same in every run: by chance alone, what one learns may be of little use at first."""
    for module in (given_topic, harvest_watch, learning):
        monkeypatch.setattr(module, "Random", lambda: Random(0))


@pytest.fixture
def settings(server: redis_server.Server, client: Any, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Those of a job on the server, in as many shards as the module says."""
    return on_server(server.url, request.module.SHARDS)


@pytest.fixture
def address(server: redis_server.Server) -> Address:
    """Where the job of the spider ``follow`` is on it."""
    return Address("aopic:follow", server.url)


OF_THE_PACKAGE = ("aopic/", *{f"{stat.name.partition('/')[0]}/" for stat in stats_table.SCRAPY})


@pytest.fixture(autouse=True)
def only_stats_in_the_table(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No crawl sets a stat that scrapy_aopic/stats_table.py does not have, or counts what is no counter."""
    wrong: set[str] = set()

    def watch(method: str) -> None:
        change = getattr(StatsCollector, method)

        def watched(self: StatsCollector, key: str, *args: Any, **options: Any) -> None:
            stat = stats_table.find(key)
            if key.startswith(OF_THE_PACKAGE) and (
                stat is None or (method == "inc_value" and stat.kind != "counter")
            ):
                wrong.add(f"{method}({key!r})")
            change(self, key, *args, **options)

        monkeypatch.setattr(StatsCollector, method, watched)

    for method in ("set_value", "inc_value", "max_value", "min_value"):
        watch(method)
    yield
    assert wrong == set()
