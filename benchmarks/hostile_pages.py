"""What a page that is hard to read, or twelve hosts with one each, take from a good host that is crawled beside them.

    python benchmarks hostile_pages [--kinds TEXT ...] [--evil 1 12] [--seconds 12] [--scale 1] [--set NAME=VALUE]

Each kind of page is at the limits of what is downloaded and read; --kinds takes those with one of the texts in their name. The real
crawl (``BroadSpider`` with its defaults, near duplicates, no least gap, and 10 ms for the good host) runs for --seconds, once
with Scrapy's download handler and once with fast downloads, which are the two figures of each column:

* *no request*: most seconds between two requests, to whomever, while the good host always has pages that are due; a server that
  has to wait for the processor counts, so look at an empty page first;
* *CPU between*: most seconds of the processor that the event loop took between two requests;
* *good*: pages of the good host, as a part of those that it has beside as many hosts with an empty page;
* *end*: seconds from a request to end the crawl to its end;
* *stall*: most seconds of the processor between two turns of the event loop;
* *CPU*: seconds of the whole process;
* *MB*: its most resident memory.

Seconds in which the system ran other processes instead of the crawl do not count. --scale makes all pages
smaller. The aims: at most a second without a request beside one host, and half of the pages beside twelve.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import options
from scrapy import Request, signals
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.http import Response
from scrapy.utils.asyncio import call_later

from scrapy_aopic import BroadSpider

LIMIT = 9_900_000
"""Bytes of a page: a little less than ``DOWNLOAD_MAXSIZE`` of the add-on."""

TICK = 0.01
"""Seconds between looks at whether the event loop is late."""

GAP = 0.01
"""Seconds between two requests to the good host, whatever a transfer takes: the server has to send the other pages, too."""

EMPTY = "an empty page"

_number = count().__next__

Body = Callable[[int, int], bytes]
"""A body of so many bytes at most, for the host of that number."""


class Kind(NamedTuple):
    """A page that is hard to read.

    Attributes:
        headers: Lines of its head, of which there may be so many bytes.
        before: What is sent before its head.
        path: The beginning of its path: what else is asked for is empty.
        is_new: Whether it is another one each time.
        options: Settings of the crawl, and attributes of its spider.
    """

    body: Body = lambda most, host: b""
    headers: Callable[[int], bytes] = lambda most: b""
    before: Callable[[int], bytes] = lambda most: b""
    content: str = "text/html"
    path: str = "/evil"
    status: int = 200
    is_chunked: bool = False
    is_new: bool = False
    options: dict[str, Any] = {}  # it is never changed

    def answer(self, most: int, host: int) -> bytes:
        """What a server sends."""
        body = self.body(most, host)
        framing = b"Transfer-Encoding: chunked" if self.is_chunked else b"Content-Length: %d" % len(body)
        head = f"HTTP/1.1 {self.status} OK\r\nContent-Type: {self.content}\r\n".encode() + self.headers(most)
        end = b"0\r\n\r\n" if self.is_chunked else b""
        return b"".join([self.before(most), head, framing, b"\r\n\r\n", body, end])


def each(text: bytes, before: bytes = b"", behind: bytes = b"") -> Body:
    """*text* as often as there is room, in which ``%d`` is another number each time, and ``%h`` that of the host."""

    def body(most: int, host: int) -> bytes:
        one = text.replace(b"%h", b"%d" % host)
        n = most // (len(one) + 4 * one.count(b"%d"))
        texts = (one.replace(b"%d", b"%d" % number) for number in range(n)) if b"%d" in one else [one * n]
        return before + b"".join(texts) + behind

    return body


def lines(text: bytes, most_bytes: int) -> Callable[[int], bytes]:
    return lambda most: each(text)(min(most, most_bytes), 0)


def packed(body: Body) -> Body:
    return lambda most, host: gzip.compress(body(most, host), 1)


def slow(request: Request, response: Response) -> float:
    """A function of the user's that takes 2 ms."""
    ends = time.perf_counter() + 0.002
    while time.perf_counter() < ends:
        pass
    return 1.0


WORDS = b"".join(b"<p>word %d of the text that all of these pages have" % n for n in range(5_000))
GZIP = b"Content-Encoding: gzip\r\n"
robots = partial(Kind, content="text/plain", path="/robots.txt")
sitemap = partial(Kind, content="text/xml", path="/sitemap", options={"AOPIC_SITEMAPS": True})

KINDS: dict[str, Kind] = {
    EMPTY: Kind(),
    "links to 250,000 hosts": Kind(each(b"<a href=//h%d.s%d.e%h.com>x</a>")),
    "links to 50,000 hosts": Kind(lambda most, host: each(b"<a href=//h%d.e%h.com>")(most // 7, host)),
    "links to domains that do not exist": Kind(each(b"<a href=http://h%d-e%h.com>")),
    "links to own pages": Kind(each(b"<a href=/%d>")),
    "one link a million times": Kind(each(b"<a href=a>")),
    "links with 990 times %25": Kind(each(b"<a href='/%d/%" + b"25" * 990 + b"41'>")),
    "links with 650 times /..": Kind(each(b"<a href='/%d" + b"/.." * 650 + b"/x'>")),
    "links with 1,000 letters beyond ASCII": Kind(each("<a href='/%d/{}'>".format("é" * 1000).encode())),
    "hosts beyond ASCII": Kind(each("<a href='http://{}%d.com/'>".format("ü" * 40).encode())),
    "links with 300 parameters": Kind(each(b"<a href='/%d?" + b"&".join(b"b%d=1" % n for n in range(300)) + b"'>")),
    "links of 60 kB": Kind(each(b"<a href='/%d/" + b"a/" * 30_000 + b"'>")),
    "900,000 elements in a link": Kind(each(b"<b>", b"<a href=x>", b"</a>")),
    "3,000,000 <p>": Kind(each(b"<p>")),
    "nested elements": Kind(each(b"<div>")),
    "nested tables": Kind(each(b"<table><td>")),
    "open formatting": Kind(each(b"<p><b><i><u>")),
    "700,000 attributes": Kind(each(b"<a " + b" ".join(b"a%03d=1" % n for n in range(900)) + b">")),
    "one element of attributes": Kind(each(b" a%d=1", b"<a ", b">")),
    "a value that does not end": Kind(each(b"x>\"", b"<a href='")),
    "entities": Kind(each(b"&amp;&#x41;&notin;")),
    "entities in links": Kind(each(b"<a href='/%d" + b"&amp;" * 300 + b"'>")),
    "comments": Kind(each(b"<!---->")),
    "comments that do not end": Kind(each(b"<!-- <!x ")),
    "scripts of JSON": Kind(each(b"<script type=json>{}</script>")),
    "titles": Kind(each(b"<title>%d</title>")),
    "bases": Kind(each(b"<base href=/%d>")),
    "forms and frames": Kind(each(b"<form action=/%d><iframe src=/%d>")),
    "marks for robots": Kind(each(b"<meta name=robots content=none>")),
    "canonicals": Kind(each(b"<link rel=canonical href=/%d>")),
    "refreshes": Kind(
        lambda most, host: b"<meta http-equiv=refresh content='0;url=/evil%d'>" % _number() + b"<meta>" * (most // 6),
        is_new=True,
    ),
    "words only": Kind(each(WORDS)),
    "zeros": Kind(each(b"\0")),
    "bytes of no charset": Kind(each(bytes(range(128, 256)))),
    "one byte of no charset": Kind(each(b"<p>hello word ", behind=b"\xe9")),
    "UTF-16": Kind(lambda most, host: ("<a href=/1>x" * (most // 24)).encode("utf-16")),
    "UTF-7": Kind(each(b"+AGE-"), content="text/html; charset=utf-7"),
    "ISO-2022-JP": Kind(each(b'\x1b$B$"\x1b(B'), content="text/html; charset=iso-2022-jp"),
    "XHTML": Kind(each(b"<a href='/%d'/>", b"<?xml version='1.0'?><a>", b"</a>"), content="application/xhtml+xml"),
    "entities of XML": Kind(
        lambda most, host: b"<!DOCTYPE a [<!ENTITY z 'a'>%s]><a>&z9;</a>"
        % b"".join(b"<!ENTITY z%d '%s'>" % (n, (b"&z%d;" % (n - 1) if n else b"&z;") * 10) for n in range(10)),
        content="text/xml",
    ),
    "a feed": Kind(each(b"<item><link>/%d</link></item>", b"<rss><channel>"), content="application/rss+xml"),
    "a bomb of zeros": Kind(packed(each(b"\0")), lambda most: GZIP),
    "a bomb of links": Kind(packed(each(b"<a href=//h%d.e%h.com>")), lambda most: GZIP),
    "10,000,000 chunks of a byte": Kind(lambda most, host: b"1\r\na\r\n" * most, is_chunked=True),
    "chunks of ten bytes": Kind(lambda most, host: b"a\r\nabcdefghij\r\n" * (most // 10), is_chunked=True),
    "extensions of chunks": Kind(
        lambda most, host: (b"80;" + b"e" * 500 + b"\r\n" + b"a" * 128 + b"\r\n") * (most // 128), is_chunked=True
    ),
    "a trailer": Kind(lambda most, host: b"1\r\na\r\n0\r\n" + b"a: b\r\n" * (most // 6), is_chunked=True),
    "headers": Kind(headers=lines(b"X-%d: a\r\n", LIMIT)),
    "a long header": Kind(headers=lambda most: b"X: " + b"a" * most + b"\r\n"),
    "cookies": Kind(headers=lines(b"Set-Cookie: c%d=1\r\n", 15_000), options={"COOKIES_ENABLED": True}),
    "canonicals in headers": Kind(headers=lines(b"Link: </%d>; rel=canonical\r\n", 15_000)),
    "answers 1xx": Kind(before=lambda most: b"HTTP/1.1 103 Early\r\nLink: a\r\n\r\n" * (most // 31)),
    "redirects": Kind(headers=lambda most: b"Location: /evil%d/%s\r\n" % (_number(), b"a/" * 7_000), status=302, is_new=True),
    "robots.txt: rules": robots(each(b"Disallow: /a%d\n", b"User-agent: *\n")),
    "robots.txt: stars": robots(each(b"Disallow: /" + b"*a" * 100 + b"b\n", b"User-agent: *\n")),
    "robots.txt: agents": robots(each(b"User-agent: a%d\n")),
    "robots.txt: sitemaps": robots(each(b"Sitemap: http://h%d.e%h.com/\n"), options={"AOPIC_SITEMAPS": True}),
    "a sitemap": sitemap(each(b"<url><loc>http://evil%h.test/%d</loc></url>", b"<urlset>")),
    "a sitemap of sitemaps": sitemap(each(b"<sitemap><loc>http://evil%h.test/sitemap%d</loc></sitemap>", b"<sitemapindex>")),
    "a sitemap of text": sitemap(each(b"http://evil%h.test/%d\n"), content="text/plain"),
    "near duplicates": Kind(
        lambda most, host: WORDS[: most // 20] + b"%d" % _number() + each(b"<a href=/evil%d>")(most // 1000, host), is_new=True
    ),
    "a pattern that backtracks": Kind(each(b"<a href=/%d/" + b"a" * 16 + b">"), options={"deny": r"/(a+)+b"}),
    "a slow function of the user's": Kind(each(b"<a href=/%d>"), options={"AOPIC_LINK_WEIGHTS": "hostile_pages.slow"}),
}  # fmt: skip


class Read(BroadSpider):
    """Follows all links."""

    name = "read"
    custom_settings = {"USER_AGENT": "read (+https://example.org)"}


def resolve(host: str, *_: Any, **__: Any) -> list[Any]:
    """What the system says of a name: all but those of the servers do not exist."""
    if not host.endswith(".test"):
        raise socket.gaierror(socket.EAI_NONAME, "there is no such name")
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]


def ready() -> float:
    """Seconds, without those for which this thread could have run and the system ran others."""
    try:
        waited = int(Path("/proc/thread-self/schedstat").read_text("ascii").split()[1]) / 1e9
    except (OSError, IndexError):
        waited = 0.0
    return time.perf_counter() - waited


class Gaps:
    """Most seconds of a clock between two calls of :meth:`note`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        self._at, self.longest = self._clock(), 0.0

    def note(self) -> None:
        before, self._at = self._at, self._clock()
        self.longest = max(self.longest, self._at - before)


def crawl(port: int, evil: int, seconds: float, given: dict[str, Any]) -> dict[str, float]:
    """Crawl in this process, once; what it cost."""
    socket.getaddrinfo = resolve  # type: ignore[assignment]
    socket.gethostbyname = lambda host: resolve(host)[0][4][0]
    for name in [name for name in given if name.islower()]:
        setattr(Read, name, given.pop(name))
    Read.seeds = [f"http://good.test:{port}/", *(f"http://evil{n}.test:{port}/evil" for n in range(evil))]
    process = AsyncCrawlerProcess(
        {
            "JOBDIR": "job",
            "AOPIC_ALLOW_NETWORKS": "127.0.0.0/8",
            "AOPIC_MIN_GAP": 0,
            "AOPIC_HOST_RULES": {"good.test": {"factor": 0, "min_gap": GAP}},
            "AOPIC_CONTENT_SEEN": "near",
            "LOG_LEVEL": "CRITICAL",
            **given,
        }
    )
    crawler = process.create_crawler(Read)
    requests, work, beats, began = Gaps(ready), Gaps(time.thread_time), Gaps(time.thread_time), [0.0]
    closing: list[Any] = []

    def begin() -> None:
        for gaps in (requests, work, beats):
            gaps.begin()
        began[0] = ready()
        beat()

    def beat() -> None:
        beats.note()
        if not closing and ready() - began[0] >= seconds:
            note_request()
            closing[:] = ready(), asyncio.ensure_future(crawler.engine.close_spider_async(reason="enough"))
        call_later(TICK, beat)

    def note_request() -> None:
        if not closing:
            requests.note()
            work.note()

    crawler.signals.connect(begin, signals.spider_opened, weak=False)
    crawler.signals.connect(note_request, signals.request_reached_downloader, weak=False)
    process.crawl(crawler)
    process.start()
    return {
        "no request": requests.longest,
        "CPU between": work.longest,
        "end": ready() - closing[0],
        "stall": beats.longest,
        "CPU": time.process_time(),
        "MB": int(Path("/proc/self/status").read_text("ascii").partition("VmHWM:")[2].split()[0]) / 1000,
    }


def measure(kind: Kind, evil: int, scale: float, seconds: float, given: dict[str, Any]) -> dict[str, float]:
    """Serve, and crawl in another process; what it cost, and pages of the good host."""
    most = int(LIMIT * scale)
    answers = {host: kind.answer(most, host) for host in range(0 if kind.is_new else evil)}
    moved = b"Sitemap: http://evil%d.test:%d/sitemap\n"

    def answer(host: str, target: str) -> bytes:
        number = int("0" + host.removeprefix("evil").removesuffix(".test")) if host.startswith("evil") else -1
        if number >= 0 and target.startswith(kind.path):
            return answers.get(number) or kind.answer(most, number)
        if target == "/robots.txt" and number >= 0 and kind.path == "/sitemap":
            body = moved % (number, server.server_port)
        elif target == "/robots.txt" or number >= 0:
            body = b""
        else:
            at = 3 * int(target.strip("/") or 0)
            body = b"".join(b"<a href=/%d>%d</a> text" % (at + n, at) for n in (1, 2, 3))
        content = "text/html" if target != "/robots.txt" else "text/plain"
        return Kind(lambda *_: body, content=content).answer(0, 0)

    good = 0

    class Handler(BaseHTTPRequestHandler):
        """Sends what *answer* says, byte by byte."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            nonlocal good
            host = self.headers["Host"].partition(":")[0]
            good += host.startswith("good")
            self.wfile.write(answer(host, self.path))

        def handle(self) -> None:
            with suppress(ConnectionError):  # the crawl has enough of it
                super().handle()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, tempfile.TemporaryDirectory() as folder:
        Thread(target=server.serve_forever, daemon=True).start()
        line = [sys.executable, __file__, "--crawl", json.dumps([server.server_port, evil, seconds, given])]
        environment = {
            name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")
        }
        done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        server.shutdown()
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return {**json.loads(done.stdout.splitlines()[-1]), "good": good}


def main() -> None:
    if sys.argv[1:2] == ["--crawl"]:
        print(json.dumps(crawl(*json.loads(sys.argv[2]))), flush=True)
        os._exit(0)
    given = options.read(__doc__, kinds=[""], evil=[1, 12], seconds=12.0, scale=1.0, set={})
    forms = ["{:.2f}", "{:.2f}", "{:.0%}", "{:.1f}", "{:.2f}", "{:.0f}", "{:.0f}"]
    columns = dict(
        zip(("no request", "CPU between", "good", "end", "stall", "CPU", "MB"), forms, strict=True)
    )
    print("| hosts | with | " + " | ".join(columns) + " |\n|---:|---|" + "---:|" * len(columns), flush=True)
    alone: dict[tuple[int, bool], float] = {}
    for name, kind in KINDS.items():
        if name != EMPTY and not any(text in name for text in given.kinds):
            continue
        for evil in given.evil:
            rows = []
            for fast in (False, True):
                options_ = {**kind.options, "AOPIC_FAST_DOWNLOADS": fast, **given.set}
                row = measure(kind, evil, given.scale, given.seconds, options_)
                row["good"] /= max(alone.setdefault((evil, fast), row["good"]), 1)
                rows.append(row)
            cells = (", ".join(form.format(row[column]) for row in rows) for column, form in columns.items())
            print(f"| {evil} | {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
