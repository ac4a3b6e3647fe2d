"""Names are looked up before hosts get connections, by threads that nothing waits for, and dead ones hold nobody up."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from demo_web.server import Answer, Exchange, Server
from scrapy.http import Response
from scrapy.utils.defer import deferred_f_from_coro_f
from support.small_web import Follow, Web, crawl, html

ADDON: dict[str, Any] = {
    "ADDONS": {"scrapy_aopic.Addon": 500},
    "AOPIC_ALLOW_NETWORKS": ["127.0.0.0/8"],
    "AOPIC_BACKOFF": 5,
    "RETRY_ENABLED": True,
}


class Names:
    """The system's resolver: names are those of this machine, but that of those with ``dead`` nothing is known.

    Attributes:
        asked: How often each was asked for.
        most: Look-ups at once.
        hold: What each dead name waits for.
    """

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.most = self.n = 0
        self.hold: Callable[[], object] = lambda: None
        self.error = socket.EAI_NONAME
        self.known: dict[str, list[str]] = {}
        self._lock = threading.Lock()

    def __call__(self, host: str, *_: Any, **__: Any) -> list[Any]:
        with self._lock:
            self.asked[host] += 1
            self.n += 1
            self.most = max(self.n, self.most)
        try:
            if "dead" in host:
                self.hold()
                raise socket.gaierror(self.error, "no such name")
            return [
                (
                    socket.AF_INET6 if ":" in address else socket.AF_INET,
                    socket.SOCK_STREAM,
                    6,
                    "",
                    (address, 0),
                )
                for address in self.known.get(host, ["127.0.0.1"])
            ]
        finally:
            with self._lock:
                self.n -= 1


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    from twisted.internet import reactor
    from twisted.internet._resolver import GAIResolver

    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    installed: Any = reactor
    before = installed.installNameResolver(GAIResolver(installed))
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names)
    yield names
    installed.installNameResolver(before)


@pytest.fixture
def web() -> Iterator[tuple[Web, dict[str, Any], int]]:
    pages: dict[str, Any] = {}

    def answer(exchange: Exchange) -> Answer:
        found = pages.get(f"{exchange.host}{exchange.target}")
        return (
            Answer(404) if found is None else Answer(headers={"Content-Type": "text/html"}, body=html(found))
        )

    server = Server(answer)
    with server.run_in_thread() as running:
        yield Web(server, pages), pages, running.port


@pytest.mark.slow
@deferred_f_from_coro_f
async def test_dead_names_hold_no_good_host(names: Names, web: tuple[Web, dict[str, Any], int]) -> None:
    """While 150 names are looked up, all pages of 15 good hosts are fetched; then each name is known to be dead."""
    log, pages, port = web
    good = [f"good{n}.test" for n in range(15)]
    pages["hub.test/"] = [f"http://dead{n}.test:{port}/" for n in range(150)]
    pages["hub.test/"] += [f"http://{host}:{port}/" for host in good]
    for host in good:
        pages[f"{host}/"] = [f"http://{host}:{port}/{n}" for n in range(1, 10)]
        pages |= {f"{host}/{n}": [] for n in range(1, 10)}
    all_there = threading.Event()
    names.hold = lambda: all_there.wait(30)

    class Hub(Follow):
        start_urls = [f"http://hub.test:{port}/"]
        n = 0

        def parse(self, response: Response) -> Iterator[Any]:
            self.n += 1
            if self.n == 151:
                assert names.most >= 150
                all_there.set()
            yield from super().parse(response)

    crawler = await crawl(Hub, {**ADDON, "AOPIC_MAX_WAIT": 1})
    assert len(log.asked) == 151
    assert all_there.is_set()
    assert max(names.asked.values()) == 1
    assert crawler.stats.get_value("finish_reason") == "aopic_unreachable"
    assert crawler.stats.get_value("retry/count") is None
