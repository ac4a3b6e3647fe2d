"""Hostile URLs and pages through the whole package, without a network.

    python benchmarks fuzz [--urls 1000000] [--seed 1] [--html5lib FOLDER]

First as many URLs as are asked for go through the normaliser alone. Then as many, hostile ones and ordinary ones, are
judged the quick way and the slow one, which must come to the same normal forms, refusals and page keys. Then as many links go
through a crawl: pages made of malformed HTML with hostile links are read by Scrapy's LinkExtractor, and hostile URLs are yielded as they
are; LinkMiddleware and Scheduler do what they do in any crawl, and only the download handler is a stand-in.
``--html5lib`` is a checkout of html5lib-tests: the inputs in its *.dat and *.test files are the malformed HTML.

What must hold: nothing raises; a normal form is its own normal form, and scrapy.Request leaves it alone; each link
is queued, known or refused, and none is in two of these; the store knows as many pages as were queued; the
cash is all there; the downloader can parse each URL that was queued.

Exit status: 0 if it holds, 1 if not.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from scrapy import Request, Spider, signals
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.exceptions import CloseSpider
from scrapy.http import HtmlResponse, Response, TextResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.utils.misc import build_from_crawler
from scrapy.utils.request import fingerprint
from twisted.internet.endpoints import HostnameEndpoint
from twisted.web.client import URI
from w3lib.url import safe_url_string

from scrapy_aopic.core.audit import audit
from scrapy_aopic.place.paths import store_folder
from scrapy_aopic.settings import SETTINGS
from scrapy_aopic.storage import open_snapshot
from scrapy_aopic.web.url_rules import BROAD_RULES
from scrapy_aopic.web.urls import Normaliser

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.hostile_input import hostile_page, hostile_url
from support.ordinary_urls import judgements, ordinary_url, slow_way

LINKS = 1000
"""Links of a page."""

HOST = "start.test"


def read_html5lib(folder: Path) -> tuple[str, ...]:
    """The inputs of html5lib-tests."""
    inputs: list[str] = []
    for path in sorted(folder.rglob("*.dat")):
        text = path.read_bytes().decode("utf-8", "replace")
        inputs += re.findall(r"^#data\n(.*?)\n#(?:errors|encoding)", text, re.DOTALL | re.MULTILINE)
    for path in sorted(folder.rglob("*.test")):
        tests = json.loads(path.read_text(encoding="utf-8"))
        inputs += [str(test["input"]) for test in tests.get("tests", []) if "input" in test]
    return tuple(inputs)


class Failures:
    """What must not be, the first of each kind in full."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, kind: str, text: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= 3:
            print(f"FAILED: {kind}: {ascii(text)[:500]}")


def normalise(n: int, seed: int, failures: Failures) -> None:
    random, judge = Random(seed), Normaliser(last_year=2028)
    reasons: Counter[str] = Counter()
    took = 0.0
    for begin in range(0, n, LINKS):
        urls = [hostile_url(random) for _ in range(min(LINKS, n - begin))]
        began = time.process_time()
        verdicts = [judge(url) for url in urls]
        took += time.process_time() - began
        for url, verdict in zip(urls, verdicts, strict=True):
            reasons[verdict.reason or "in order"] += 1
            if verdict.reason:
                continue
            if judge(verdict.url)[:2] != verdict[:2]:
                failures.add("not its own normal form", f"{url} {verdict.url} {judge(verdict.url)}")
            if safe_url_string(verdict.url) != verdict.url:
                failures.add("changed by scrapy.Request", f"{url} {verdict.url}")
    print(f"normaliser: {n:,} URLs, {took / n * 1e6:.1f} us of CPU time each; {shown(reasons)}")


def some_urls(n: int, seed: int) -> Iterator[str]:
    """Ordinary URLs, and a fifth of hostile ones."""
    random = Random(seed)
    for _ in range(n):
        yield ordinary_url(random) if random.random() < 0.8 else hostile_url(random)


def compare(urls: Iterable[str], failures: Failures) -> None:
    n = n_quick = n_keys = 0
    urls = iter(urls)
    while some := list(islice(urls, LINKS)):
        n += len(some)
        quick = [judgements(url) for url in some]
        with slow_way():
            slow = [judgements(url) for url in some]
        for url, one, other in zip(some, quick, slow, strict=True):
            n_quick += one.n_quick
            n_keys += len(one.keys)
            if (one.judged, one.keys) != (other.judged, other.keys):
                failures.add("another result by the quick way", f"{url} {one} {other}")
    part = n_quick / max(n_keys, 1)
    print(f"forms: {n:,} URLs under four sets of rules, {n_keys:,} page keys, {part:.2%} by the quick way")


class Offline(BaseDownloadHandler):
    """Answers every request with the page that its spider has for it."""

    lazy = False

    def __init__(self, crawler: Any) -> None:
        self._crawler = crawler
        build_from_crawler(HTTP11DownloadHandler, crawler)  # teaches Twisted the host names that it can do

    @classmethod
    def from_crawler(cls, crawler: Any) -> Offline:
        return cls(crawler)

    async def download_request(self, request: Request) -> Response:
        body = self._crawler.spider.body(request)
        return HtmlResponse(request.url, status=200, body=body, request=request, encoding="utf-8")

    async def close(self) -> None:
        pass


class Fuzz(Spider):
    """Yields the links that LinkExtractor finds in hostile pages, and other hostile ones up to a thousand a page."""

    name = "fuzz"
    n_urls: int
    seed: int
    malformed: tuple[str, ...]
    failures: Failures

    async def start(self) -> AsyncIterator[Any]:
        self.n_pages = -(-self.n_urls // LINKS)
        self.given = self.unmade = self.unread = self.n_read = 0
        self.n_scheduled = 0
        self.pages: set[bytes] = set()
        self.crawler.signals.connect(self.check, signal=signals.request_scheduled)
        for number in range(self.n_pages):
            # Before anything that was found: few of the links are fetched, all of them are queued.
            yield Request(
                f"http://{HOST}/{number}",
                cb_kwargs={"number": number},
                meta={"dont_redirect": True},
                priority=63,
            )

    def body(self, request: Request) -> bytes:
        if "number" not in request.cb_kwargs:
            return b"<p>"
        random = Random(f"{self.seed} {request.url}")
        urls = [hostile_url(random) for _ in range(LINKS)]
        return hostile_page(random, urls, self.malformed).encode("utf-8", "replace")

    def parse(self, response: Response, number: int | None = None) -> Iterator[Any]:
        if number is None:
            return
        assert isinstance(response, TextResponse)
        random = Random(f"{self.seed} links of {number}")
        try:
            links = [link.url for link in LinkExtractor().extract_links(response)]
        except ValueError:  # Scrapy's own; the spider of a user would lose the page
            self.unread += 1
            links = []
        while len(links) < LINKS:
            links.append(hostile_url(random))
        for url in links:
            try:
                request = Request(url)
            except ValueError:  # no request of Scrapy
                self.unmade += 1
                continue
            self.given += 1
            yield request
        self.n_read += 1
        if self.n_read == self.n_pages:
            raise CloseSpider("read")

    def check(self, request: Request) -> None:
        url = request.url
        if "number" not in request.cb_kwargs:
            self.n_scheduled += 1
        self.pages.add(fingerprint(request))
        try:
            uri = URI.fromBytes(url.encode("ascii"))
            is_good = HostnameEndpoint._hostAsBytesAndText(uri.host)[0] is False and 0 < uri.port < 65536
            is_good = is_good and re.fullmatch(rb"[\x21-\x7e]+", uri.toBytes()) is not None
        except ValueError as error:
            self.failures.add("cannot be fetched", f"{url} {error}")
        else:
            if not is_good:
                self.failures.add("cannot be fetched", f"{url} {uri.host!r} {uri.port}")


class Errors(logging.Handler):
    """Takes every error in the log for a failure."""

    def __init__(self, failures: Failures) -> None:
        super().__init__(logging.ERROR)
        self._failures = failures

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            text += f" {record.exc_info[1]!r}"
        self._failures.add("error in the log", text)


def shown(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common())


def crawl(args: argparse.Namespace, malformed: tuple[str, ...], failures: Failures) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "SCHEDULER": "scrapy_aopic.Scheduler", "AOPIC_URL_RULES": BROAD_RULES, "AOPIC_URL_LIMITS": SETTINGS["AOPIC_URL_LIMITS"].default,
            "JOBDIR": folder, "AOPIC_POLITENESS_FACTOR": 0,
            "DOWNLOAD_HANDLERS": {"http": Offline, "https": Offline}, "CONCURRENT_REQUESTS": 1, "DEPTH_LIMIT": 0,
            "LOG_LEVEL": "ERROR", "LOGSTATS_INTERVAL": 0, "URLLENGTH_LIMIT": 0, "TELNETCONSOLE_ENABLED": False,
            "RETRY_ENABLED": False, "CONCURRENT_ITEMS": 8,
        }  # fmt: skip
        process = AsyncCrawlerProcess(settings)
        crawler = process.create_crawler(Fuzz)
        logging.getLogger().addHandler(Errors(failures))
        began = time.process_time()
        process.crawl(crawler, n_urls=args.urls, seed=args.seed, malformed=malformed, failures=failures)
        process.start()
        took = time.process_time() - began
        spider: Any = crawler.spider
        stats = crawler.stats.get_stats()
        refused = Counter(
            {
                name.rpartition("/")[2]: count
                for name, count in stats.items()
                if name.startswith("aopic/urls/refused/")
            }
        )
        print(
            f"crawl: {spider.given:,} links of {spider.n_read:,} pages in {took:.0f} s of CPU time; no request can be made of "
            f"{spider.unmade:,} URLs, LinkExtractor cannot read {spider.unread:,} pages\n"
            f"refused: {shown(refused)}"
        )
        counts = ("scheduler/enqueued", "dupefilter/filtered", "aopic/urls/changed", "aopic/pages/visited")
        print(", ".join(f"{name} {stats.get(name, 0):,}" for name in counts))
        if spider.n_read != spider.n_pages:
            failures.add("pages not read", f"{spider.n_read} of {spider.n_pages}")
        if spider.given != refused.total() + spider.n_scheduled:
            failures.add(
                "links lost", f"{spider.given} given, {refused.total()} refused, {spider.n_scheduled} let in"
            )
        known = stats.get("dupefilter/filtered", 0)
        enqueued = stats["scheduler/enqueued"] - spider.n_pages
        if spider.n_scheduled != known + enqueued:
            failures.add("links lost", f"{spider.n_scheduled} let in, {known} known, {enqueued} queued")
        for name in ("aopic/errors", "spider_exceptions/count"):
            if stats.get(name):
                failures.add(name, str(stats[name]))
        store = open_snapshot(store_folder(Path(folder)))
        try:
            result = audit(store)
        finally:
            store.close()
        print(f"store: {result}"[:1000])
        if result.pages != len(spider.pages):
            failures.add("pages lost", f"{result.pages} stored of {len(spider.pages)}")
        if result.violations:
            failures.add("audit", "; ".join(result.violations[:5]))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--urls", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--html5lib", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    malformed: tuple[str, ...] = (
        "<p>",
        "</p>",
        "<b><i></b>",
        "<table><td>",
        "</a>",
        "<a",
        "<!",
        "<![CDATA[",
        "\x00",
    )
    if args.html5lib is not None:
        malformed = read_html5lib(args.html5lib)
        print(f"{len(malformed):,} inputs of html5lib-tests")
    failures = Failures()
    normalise(args.urls, args.seed, failures)
    compare(some_urls(args.urls, args.seed), failures)
    crawl(args, malformed, failures)
    print("everything holds" if not failures.counts else f"FAILED: {shown(failures.counts)}")
    return 1 if failures.counts else 0


if __name__ == "__main__":
    sys.exit(main())
