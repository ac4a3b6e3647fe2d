"""Fast downloads: what comes of a request is what comes of it with Scrapy's own download handler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache, partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from demo_web.server import Answer
from scrapy import Request, Spider, signals, version_info
from scrapy.core.downloader.handlers import http11
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.exceptions import DownloadCancelledError, StopDownload
from scrapy.http import Response
from scrapy.utils.test import get_crawler
from support.certificate import tls_of
from support.crawls import ADDON, Visits
from support.small_web import Web, crawl
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.web._newclient import ParseError

from scrapy_aopic._engine import connections, fast_downloads
from scrapy_aopic._engine.fast_downloads import FastHandler, make_fast
from scrapy_aopic.request_errors import FramingError

as_in_2_19 = pytest.mark.skipif(
    version_info < (2, 19),
    reason="before 2.19, Scrapy takes no header line without a colon, and gives no address of an empty response",
)

Serve = Callable[[dict[str, Any]], Web]

PAGE = b"<html>A page</html>"
SIZED = b"Content-Type: text/html\r\nContent-Length: 19\r\n\r\n" + PAGE


class Wire(StringTransport):
    """A connection of which it is noted what became of it."""

    def __init__(self) -> None:
        super().__init__(peerAddress=IPv4Address("TCP", "192.0.2.7", 80))
        self.fate = ""

    def abortConnection(self) -> None:
        self.fate = self.fate or "aborted"

    def loseConnection(self) -> None:
        self.fate = self.fate or "closed"

    def stopProducing(self) -> None:
        self.loseConnection()


class Outcome:
    """What came of a request."""

    __hash__ = None

    def __init__(
        self, found: Response | BaseException, request: Request, wire: Wire, keys: list[Any], *, is_kept: bool
    ) -> None:
        self.sent = (keys, wire.value())
        self.is_plain = False
        self.connection = "kept" if is_kept else wire.fate
        if isinstance(found, BaseException):
            cause = "" if isinstance(found, DownloadCancelledError) else type(found.__cause__).__name__
            reasons = [each.value for each in getattr(found.__cause__, "reasons", ())]
            unread = [str(reason) for reason in reasons if isinstance(reason, ParseError)]
            self.what: tuple[Any, ...] = (type(found).__name__, cause, unread)
            found = getattr(found, "response", None) or Response(request.url)
        else:
            self.what = ("response",)
        self.what += (type(found), found.url, found.status, list(found.headers.items()))
        self.what += (found.body, found.flags)
        self.what += (found.ip_address, found.certificate, found.protocol, "download_latency" in request.meta)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outcome) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"{self.what} {self.connection} {self.sent}"


class Client:
    """A download handler whose connections get what a test says."""

    def __init__(self, *, is_fast: bool, is_wired: bool = False, **settings: Any) -> None:
        self.crawler = get_crawler(Spider, settings)
        self.crawler.spider = self.crawler._create_spider("client")
        handler = HTTP11DownloadHandler(self.crawler)
        self._pool: Any = handler._pool
        if is_wired:  # as with this package
            self._pool._factory = partial(connections._make_wired, self._pool._factory)
        self.handler: Any = FastHandler(self.crawler, handler) if is_fast else handler

    async def fetch(
        self,
        request: Request,
        pieces: list[bytes],
        reason: type[Exception],
        *,
        is_left_open: bool,
        is_cancelled: bool,
    ) -> Outcome:
        """What comes of *request* if the response comes in these *pieces*, and then the connection ends for *reason*."""
        wire, kept, keys = Wire(), [], []
        protocol = self._pool._factory(kept.append, "").buildProtocol(None)
        protocol.makeConnection(wire)

        def connect(key: tuple[Any, ...], endpoint: object) -> Deferred[Any]:
            keys.append(key[:3])
            return succeed(protocol)

        self._pool.getConnection = connect
        fetching = asyncio.ensure_future(self.handler.download_request(request))
        await asyncio.sleep(0)
        for piece in pieces:
            if wire.fate or kept:
                break
            protocol.dataReceived(piece)
        if is_cancelled:
            fetching.cancel()
        is_kept = bool(kept) and not wire.fate
        if not (is_left_open or is_cancelled):
            protocol.connectionLost(Failure(reason()))
        (found,) = await asyncio.gather(fetching, return_exceptions=True)
        return Outcome(found, request, wire, keys, is_kept=is_kept)


@cache
def client(*, is_fast: bool, **settings: Any) -> Client:
    return Client(is_fast=is_fast, **settings)


async def compare(
    pieces: list[bytes],
    *,
    reason: type[Exception] = ConnectionDone,
    told: dict[object, Callable[..., Any]] | None = None,
    settings: dict[str, Any] | None = None,
    is_left_open: bool = False,
    is_cancelled: bool = False,
    **request: Any,
) -> Outcome:
    """What came of a *request*, which is the same both ways."""
    outcomes = []
    for is_fast in (False, True):
        one = client(is_fast=is_fast, **(settings or {}))
        stats: Any = one.crawler.stats
        n_slow = stats.get_value("aopic/downloads/slow", 0)
        for signal, receiver in (told or {}).items():
            one.crawler.signals.connect(receiver, signal=signal)
        asked = Request(**{"url": "http://a.test/page?n=1#top", **request})
        outcome = await one.fetch(asked, pieces, reason, is_left_open=is_left_open, is_cancelled=is_cancelled)
        for signal, receiver in (told or {}).items():
            one.crawler.signals.disconnect(receiver, signal=signal)
        outcomes.append(outcome)
    assert outcomes[0] == outcomes[1], (pieces, request, outcomes)
    outcomes[1].is_plain = stats.get_value("aopic/downloads/slow", 0) == n_slow
    return outcomes[1]


# -- whatever is received


HEADS = (
    b"HTTP/1.1 200 OK\r\n" + SIZED,
    b"HTTP/1.0 200 OK\r\n" + SIZED,
    b"HTTP/1.1 200\r\n" + SIZED,
    b"HTTP/1.1 200 OK\n" + SIZED.replace(b"\r", b""),
    b"HTTP/1.1 404 Not Found\r\nConnection: close\r\n" + SIZED,
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n" + SIZED,
    b"HTTP/1.1 204 No Content\r\nETag: x\r\n\r\nand more",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 19\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + SIZED + b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 200 OK\r\n" + SIZED[:-4],
    b"HTTP/1.1 200 OK\r\n\r\n" + PAGE,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nContent-Length: 3\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX",
    *(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
        for chunks in (
            b"1\r\na\r\n01;x\r\nb\r\n000\r\n\r\n",
            b'5\r\nhello\r\nA;a="\xff\t"\r\n0123456789\r\n0\r\nX: y\r\nZ: z\r\n\r\nHTTP/1.1 200 OK\r\n',
            b"5\r\nhello\r\n0\r\nX: y\r\n",
            b"5\r\nhello\r\n0x1\r\na\r\n0\r\n\r\n",
            b"5\r\nhello\r\n\r\n\r\n0\r\n\r\n",
            b"5\r\nhello\r\n1;\0\r\na\r\n0\r\n\r\n",
            b"5\r\nhello\n0\r\n\r\n",
            b"5 \r\nhello\r\n0\r\n\r\n",
            b"5\r\nhello\r\n" + 1023 * b"0" + b"\r\n\r\n",
            b"5\r\nhello\r\n" + 1024 * b"0" + b"\r\n\r\n",
            b"5\r\nhello\r\n" + 1025 * b"0",
            b"5\r\nhello\r\n0\r\nX: " + 65_530 * b"y" + b"\r\n\r\n",
            b"5\r\nhello\r\n0\r\nX: " + 65_540 * b"y" + b"\r\n\r\n",
            b"5\r\nhello\r\n0\r\n" + 16_385 * b"X:\r\n",
        )
    ),
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 19\r\nContent-Length: 5\r\n\r\n" + PAGE,
    b"HTTP/1.1 200 OK\r\nContent-Length: 19, 19\r\n\r\n" + PAGE,
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n" + PAGE,
    b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nno colon\r\nX: a\rb\r\n\tc\r\nY:\r\nWWW-Authenticate: \xff\r\n"
    + SIZED,
    b"HTTP/1.1 200 OK\r\n folded: x\r\n" + SIZED,
    b"HTTP/1.1 200 OK\r\nX Y: z\r\n" + SIZED,
    b"HTTP/1.1 200 OK\r\nX: " + 16_400 * b"y" + b"\r\n" + SIZED,
    b"HTTP/1.1 200 OK\r\nX: " + 16_400 * b"y",
    b"ICY 200 OK\r\n" + SIZED,
    b"HTTP/1.-1 200 OK\r\n" + SIZED,
    b"\xff/1.1 200 OK\r\n" + SIZED,
    b"HTTP/1.1 many OK\r\n" + SIZED,
    b"HTTP/2 200\r\n" + SIZED,
    b"HTTP/1.x 200 OK\r\n" + SIZED,
    b"SSH-2.0-OpenSSH\r\n",
    b"HTTP/1.1 200 OK\r\nX: y",
    b"",
)

HOWS: tuple[dict[str, Any], ...] = (
    {},
    {"method": "HEAD"},
    {"reason": ConnectionLost},
    {"meta": {"download_maxsize": 7}},
    {"meta": {"download_warnsize": 7}},
    {"settings": {"DOWNLOAD_FAIL_ON_DATALOSS": False}},
)


@as_in_2_19
@pytest.mark.parametrize("how", HOWS, ids=str)
async def test_what_a_host_sends_has_the_same_outcome(how):
    for head in HEADS:
        await compare([head], **how)
        await compare([bytes([byte]) for byte in head[:100]] + [head[100:]], **how)


@as_in_2_19
async def test_what_a_host_sends_by_chance_has_the_same_outcome():
    chance = Random(35)
    lines = sorted({line for head in HEADS for line in head.splitlines(keepends=True) if len(line) < 1000})
    for _ in range(300):
        data = b"".join([chance.choice(HEADS[:5])[:17], *chance.choices(lines, k=4), chance.choice(lines)])
        where = chance.randrange(len(data))
        data = data[:where] + bytes([chance.choice([10, 13, 32, 48, 58, 255])]) + data[where + 1 :]
        await compare([data[:where], data[where:]], **chance.choice(HOWS))


@as_in_2_19
@pytest.mark.parametrize("signal", [signals.headers_received, signals.bytes_received])
@pytest.mark.parametrize("fail", [True, False])
async def test_a_receiver_of_a_signal_stops_the_same_downloads(signal, fail):
    def stop(**what: Any) -> None:
        raise StopDownload(fail=fail)

    for head in HEADS:
        # With the wire, or else it is asked for each chunk.
        await compare([head], told={signal: stop}, settings={"is_wired": True})


async def test_what_takes_too_long_or_is_no_longer_wanted_is_given_up():
    for pieces in ([], [HEADS[0][:30]], [HEADS[0][:-1]]):
        late = await compare(pieces, meta={"download_timeout": 0.01}, is_left_open=True)
        assert (late.what[0], late.connection) == ("DownloadTimeoutError", "aborted")
        given_up = await compare(pieces, is_cancelled=True)
        assert (given_up.what[0], given_up.connection) == ("CancelledError", "aborted")


# -- what is sent


async def test_a_request_is_sent_as_it_was():
    """Byte by byte, whether or not it is plain."""
    headers = {"X-Many": ["a", "b"], "dnt": "1", "Referer": "http://b.test/", "X-Empty": ""}
    plain: list[dict[str, Any]] = [
        {"url": "http://a.test"},
        {"url": "http://a.test/a;b?c=d;e=%20#f", "headers": headers},
        {"url": "http://a.test:80/", "headers": {"Host": "b.test"}},
        {"url": "https://A.test:8443/~a/%7e?b=/?&c=[]"},
        {"url": "https://a.test:443/"},
        {"url": "http://a.test/b?c#d", "meta": {"proxy": "http://p.test:8080"}},
    ]
    others: list[dict[str, Any]] = [
        {"url": "http://a.test/b;?c"},
        {"url": "http://a.test//b"},
        {"url": "http://a.test/b;"},
        {"url": "http://u:p@a.test/"},
        {"url": "http://a.test/", "method": "POST", "body": "b"},
        {"url": "http://a.test/", "body": "b"},
        {"url": "http://a.test/", "headers": {"X": "a\r\nY: b"}},
        {"url": "http://a.test/", "headers": {"Host": ["a", "b"]}},
        {"url": "http://a.test/", "headers": {"A b": "c"}},
        {"url": "https://a.test/", "meta": {"proxy": "http://p.test"}},
        {"url": "http://a.test/", "meta": {"bindaddress": "127.0.0.1"}},
    ]
    for number, request in enumerate([*plain, *others]):
        outcome = await compare([HEADS[0]], **request)
        assert outcome.is_plain == (number < len(plain)), request


async def test_a_site_with_tls_shows_its_certificate(tmp_path):
    tls, _ = tls_of(tmp_path)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEADS[4])
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    found = []
    for is_fast in (False, True):
        response = await Client(is_fast=is_fast).handler.download_request(Request(url))
        found.append((response.status, response.ip_address, response.certificate.digest(), response.body))
    server.close()
    assert found[0] == found[1]


# -- in chunks


@pytest.mark.parametrize("is_fast", [False, True])
async def test_chunks_cost_a_call_a_read_and_are_refused_if_they_are_mostly_framing(is_fast: bool) -> None:
    for chunk, is_refused in ((b"1\r\na", True), (b"1;" + 500 * b"x" + b"\r\na", True), (b"2\r\nab", False)):
        one = Client(is_fast=is_fast, is_wired=True)
        sizes: list[int] = []

        def note(data: bytes, sizes: list[int] = sizes, **what: Any) -> None:
            sizes.append(len(data))

        one.crawler.signals.connect(note, signal=signals.bytes_received)
        body = (1 << 20) // len(chunk) * (chunk + b"\r\n") + b"0\r\n\r\n"
        reads = [body[at : at + 0x10000] for at in range(0, len(body), 0x10000)]
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        outcome = await one.fetch(
            Request("http://a.test/"), [head, *reads], ConnectionDone, is_left_open=False, is_cancelled=False
        )
        if is_refused:
            assert (outcome.what[0], outcome.connection, len(sizes)) == ("FramingError", "aborted", 2)
        else:
            assert outcome.what[5] == (1 << 20) // len(chunk) * chunk[3:]
            assert (outcome.connection, len(sizes)) == ("kept", len(reads))


@pytest.mark.parametrize("is_fast", [False, True])
async def test_a_host_that_sends_framing_without_end_is_given_up_at_once_and_said(
    serve: Serve, is_fast: bool, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Any] = []

    urls = ["http://evil.test/1", "http://evil.test/2", "http://good.test/"]
    evil = Answer(headers={"Transfer-Encoding": "chunked"}, body=10_000 * b"1\r\na\r\n", endless=True)
    web = serve(dict.fromkeys(urls[:2], evil) | {urls[2]: Answer(body=PAGE)})
    settings = {**ADDON, "AOPIC_MIN_GAP": 0, "ROBOTSTXT_OBEY": False, "DOWNLOAD_FAIL_ON_DATALOSS": False}
    starts = [Request(url, errback=errors.append) for url in urls]
    crawler = await crawl(Visits, {**settings, "AOPIC_FAST_DOWNLOADS": is_fast}, starts=starts)
    assert sorted(web.asked) == urls  # and not again
    assert [type(failure.value) for failure in errors] == [FramingError, FramingError]
    assert crawler.stats.get_value("aopic/hostile/framing") == 2
    assert caplog.text.count("in chunks with") == 1


# -- whose requests they are


def test_the_handlers_of_users_stay_and_so_does_scrapys_if_anything_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Own(HTTP11DownloadHandler):
        """A user's."""

    def put(
        kind: type[HTTP11DownloadHandler] = HTTP11DownloadHandler, wire: Any = None, **settings: Any
    ) -> type:
        crawler = get_crawler(Spider, settings)
        made: Any = kind(crawler)
        if wire:
            made._pool._factory = lambda *args: SimpleNamespace(buildProtocol=lambda _: wire(made))
        of: Any = SimpleNamespace(_handlers={"http": made, "https": made}, _get_handler=lambda scheme: made)
        make_fast(crawler, SimpleNamespace(handlers=of))  # type: ignore[arg-type]
        assert of._handlers["https"] is made or "http" in settings.get("DOWNLOAD_HANDLERS", ("http",))
        return type(of._handlers["http"])

    assert put() is FastHandler
    assert put(Own) is Own
    own = {"http": "scrapy.core.downloader.handlers.http11.HTTP11DownloadHandler"}
    assert put(DOWNLOAD_HANDLERS=own) is HTTP11DownloadHandler
    with pytest.raises(RuntimeError, match="in another way"):
        put(
            wire=lambda made: SimpleNamespace(
                makeConnection=lambda _: None,
                transport=SimpleNamespace(write=lambda _: None),
                dataReceived=lambda _: None,
                _quiescentCallback=lambda _: None,
            )
        )
    with monkeypatch.context() as patched:
        patched.setattr(http11._ScrapyAgent, "_get_agent", lambda *_: None)
        with pytest.raises(RuntimeError, match="_ScrapyAgent was changed"):
            put()
    monkeypatch.setattr(fast_downloads, "_OF_HANDLER", ("_gone",))
    with pytest.raises(AttributeError, match="_gone"):
        put()


async def test_a_crawl_with_parts_that_are_missing_goes_on_and_says_so_once(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    urls = ["http://a.test/", "http://b.test/"]
    web = serve({url: Answer(body=PAGE) for url in urls})
    made: list[type] = []
    for is_broken in (False, True):
        if is_broken:
            monkeypatch.setattr(fast_downloads, "_OF_HANDLER", ("_gone",))
        crawler = await crawl(Visits, {**ADDON, "ROBOTSTXT_OBEY": False}, start_urls=urls)
        engine: Any = crawler.engine
        made.append(type(engine.downloader.handlers._get_handler("http")))
        assert crawler.stats.get_value("downloader/response_status_count/200") == 2
    assert made == [FastHandler, HTTP11DownloadHandler]
    assert len(web.asked) == 4
    assert caplog.text.count("AOPIC_FAST_DOWNLOADS = False is the same") == 1
