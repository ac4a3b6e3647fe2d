"""Request: what a request costs in its download handler, with AOPIC_FAST_DOWNLOADS and with Scrapy's own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from measure import cpu
from scrapy import Request, Spider
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.utils.reactor import install_reactor
from scrapy.utils.test import get_crawler
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.testing import StringTransport

from scrapy_aopic._engine.fast_downloads import FastHandler

if TYPE_CHECKING:
    from measure import Runner

_BODY = b"<html>" + b"x" * 9000
_RESPONSE = (
    b"HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Thu, 26 Nov 2026 10:00:00 GMT\r\nContent-Type: text/html\r\n"
    b"Last-Modified: Thu, 26 Nov 2026 10:00:00 GMT\r\nConnection: keep-alive\r\nETag: x\r\nAccept-Ranges: bytes\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)
_HEADERS = {
    "Accept": "text/html,*/*;q=0.8",
    "Accept-Language": "en",
    "User-Agent": "bot",
    "Accept-Encoding": "gzip, deflate",
}
_PARTS = 40


def requests(*, n: int, is_fast: bool) -> dict[str, Any]:
    """CPU microseconds of a request whose response comes at once, without the network: the best of some parts of *n*."""
    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    return {"us": asyncio.get_event_loop().run_until_complete(_requests(n, is_fast=is_fast))}


async def _requests(n: int, *, is_fast: bool) -> float:
    crawler = get_crawler(Spider)
    crawler.spider = Spider("request")
    own: Any = HTTP11DownloadHandler(crawler)
    handler: Any = FastHandler(crawler, own) if is_fast else own
    at_hand: list[Any] = []

    def connect(key: object, endpoint: object) -> Deferred[Any]:
        protocol = own._pool._factory(lambda _: None, "").buildProtocol(None)
        protocol.makeConnection(StringTransport(peerAddress=IPv4Address("TCP", "192.0.2.7", 80)))
        at_hand.append(protocol)
        return succeed(protocol)

    own._pool.getConnection = connect

    async def fetch(request: Request) -> None:
        fetching = asyncio.ensure_future(handler.download_request(request))
        await asyncio.sleep(0)
        at_hand.pop().dataReceived(_RESPONSE)
        assert (await fetching).status == 200

    times = []
    for _ in range(_PARTS):
        some = [Request("http://a.test/page", headers=_HEADERS) for _ in range(-(-n // _PARTS))]
        with cpu(len(some)) as found:
            for request in some:
                await fetch(request)
        times.append(found["own_us"])
    return min(times)


def part(run: Runner) -> None:
    """A request whose response is there at once, so that nothing else counts."""
    ways = (("handlers:requests", {"n": 1200, "is_fast": is_fast}) for is_fast in (True, False))
    fast, slow = run.rounds(*ways)
    run.add_paired(
        "request",
        "a request without the network, to Scrapy's handler",
        "us CPU",
        [found["us"] for found in fast],
        [found["us"] for found in slow],
    )
