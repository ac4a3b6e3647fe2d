"""Crawl a web without end for a long time, and see whether anything grows.

    python benchmarks soak --job FOLDER [--pages 1000000] [--hosts 20000]

The real crawl (Scrapy, the add-on with its defaults, a store on the disk, robots.txt, politeness) of a web that is
computed in this process instead of being downloaded: --hosts hosts, pages without end, ten links a page of which about
half lead to pages that nobody has found yet. Pages are 2 KB; every twentieth answer is an error, a redirect or a copy.

Each ten seconds: pages visited, CPU time, resident memory, open descriptors, bytes of the job folder, and how late the
event loop was when it was to run each 20 ms (the most, and the 99.9th percentile). At the end the audit of the store.

"Flat" compares the last fifth of the samples with the second fifth, when the caches are full.

Exit status: 0 if the audit holds and nothing grew, 1 if not.
"""

from __future__ import annotations

import logging
import random
import sys
import time
from collections.abc import AsyncIterator, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

import options
from scrapy import Request, Spider, signals
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.crawler import AsyncCrawlerProcess, Crawler
from scrapy.http import HtmlResponse, Response, TextResponse

from scrapy_aopic import Links
from scrapy_aopic.core.audit import audit
from scrapy_aopic.place.folder_place import store_folder
from scrapy_aopic.storage import open_snapshot

sys.path.insert(0, str(Path(__file__).with_name("bench")))
from measure import descriptors, disk_bytes, resident

EVERY, TICK = 10.0, 0.02
LINKS = 10
PAGE = 2000
FIELDS = ["seconds", "pages", "cpu", "memory", "descriptors", "disk", "lag_max", "lag_999"]


class Endless:
    """A web in which what a page holds follows from its URL."""

    def __init__(self, hosts: int) -> None:
        self.hosts = hosts

    def host(self, draw: random.Random) -> str:
        number = int(self.hosts * draw.random() ** 3)  # some hosts are linked to more than others
        return f"http://h{number}.d{number // 4}.test"

    def links(self, draw: random.Random, home: str) -> Iterator[str]:
        for _ in range(LINKS):
            base = home if draw.random() < 0.7 else self.host(draw)
            # Every other link leads among the first pages of its host, which are soon known.
            number = int(200 * draw.random() ** 2) if draw.random() < 0.5 else draw.getrandbits(40)
            yield f"{base}/p{number}"

    def answer(self, request: Request) -> Response:
        url = request.url
        if url.endswith("/robots.txt"):
            return TextResponse(url, body=b"User-agent: *\nDisallow: /private/\n", request=request)
        draw = random.Random(blake2b(url.encode(), digest_size=8).digest())
        home = url[: url.index("/", 8)]
        kind = draw.random()
        if kind < 0.01:
            return HtmlResponse(url, status=404, request=request)
        if kind < 0.02:
            return HtmlResponse(url, status=500, request=request)
        if kind < 0.04:
            location = next(self.links(draw, home))
            return HtmlResponse(url, status=302, headers={"Location": location}, request=request)
        text = "the same everywhere " * 80 if kind < 0.05 else " ".join(str(draw.random()) for _ in range(40))
        anchors = "".join(f'<a href="{link}">{link}</a>' for link in self.links(draw, home))
        body = f"<html><body><p>{text}</p>{anchors}".ljust(PAGE).encode()
        return HtmlResponse(
            url, headers={"Content-Type": "text/html"}, body=body, encoding="utf-8", request=request
        )


class Offline(BaseDownloadHandler):
    """Answers every request with the page of the web that has no end."""

    lazy = False

    def __init__(self, crawler: Crawler) -> None:
        self._web: Endless = crawler.settings["SOAK_WEB"]

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Offline:
        return cls(crawler)

    async def download_request(self, request: Request) -> Response:
        return self._web.answer(request)

    async def close(self) -> None:
        pass


class Soak(Spider):
    """Follows all links."""

    name = "soak"
    custom_settings = {"DOWNLOAD_HANDLERS": {"http": Offline}}

    async def start(self) -> AsyncIterator[Any]:
        for number in range(50):
            yield Request(f"http://h{number}.d{number // 4}.test/")

    def parse(self, response: Response) -> Any:
        yield Links(response)


class Samples:
    """An extension that writes down each ten seconds what the process takes."""

    rows: ClassVar[list[dict[str, float]]] = []

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._late: list[float] = []
        self._every = crawler.settings.getfloat("SOAK_EVERY")
        crawler.signals.connect(self._begin, signal=signals.spider_opened)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Samples:
        return cls(crawler)

    def _begin(self) -> None:
        from twisted.internet import reactor

        self._reactor: Any = reactor
        self._began = self._sampled = time.perf_counter()
        self._sleep()

    def _sleep(self) -> None:
        self._due = time.perf_counter() + TICK
        self._reactor.callLater(TICK, self._tick)

    def _tick(self) -> None:
        now = time.perf_counter()
        self._late.append(now - self._due)
        if now - self._sampled >= self._every:
            self._sampled = now
            self._sample(now - self._began)
        self._sleep()

    def _sample(self, seconds: float) -> None:
        late = sorted(self._late)
        self._late = []
        job = Path(self._crawler.settings["JOBDIR"])
        assert self._crawler.stats is not None
        row = {
            "seconds": round(seconds, 1),
            "pages": self._crawler.stats.get_value("response_received_count", 0),
            "cpu": round(time.process_time(), 3),
            "memory": round(resident() * 1e6),
            "descriptors": descriptors(),
            "disk": disk_bytes(job),
            "lag_max": round(late[-1], 4),
            "lag_999": round(late[int(len(late) * 0.999)], 4),
        }
        self.rows.append(row)
        print(*row.values(), sep="\t", flush=True)


def judge(rows: list[dict[str, float]]) -> list[str]:
    """Print the fifths of the samples, and say what grew."""
    n = len(rows) // 5
    if n < 2:
        raise SystemExit(f"The crawl was too short to say anything: {len(rows)} samples; raise --pages.")
    fifths = [rows[part * n : (part + 1) * n] for part in range(5)]
    table = []
    for part in fifths:
        pages = part[-1]["pages"] - part[0]["pages"]
        table.append(
            {
                "pages": part[-1]["pages"],
                "memory, MB": sum(row["memory"] for row in part) / n / 1e6,
                "descriptors": max(row["descriptors"] for row in part),
                "pages a CPU second": pages / (part[-1]["cpu"] - part[0]["cpu"]),
                "lag, 99.9 %, ms": sorted(row["lag_999"] for row in part)[n // 2] * 1e3,
                "lag, most, ms": max(row["lag_max"] for row in part) * 1e3,
                "disk, MB": part[-1]["disk"] / 1e6,
            }
        )
    print("\n| " + " | ".join(table[0]) + " |\n|" + "---|" * len(table[0]))
    for line in table:
        print("| " + " | ".join(f"{value:,.0f}" for value in line.values()) + " |")
    early, late = table[1], table[-1]
    grown = []
    if late["memory, MB"] > early["memory, MB"] * 1.25:
        grown.append("memory")
    if late["descriptors"] > early["descriptors"] + 16:
        grown.append("descriptors")
    if late["pages a CPU second"] < early["pages a CPU second"] / 1.25:
        grown.append("CPU time a page")
    return grown


def main() -> int:
    args = options.read(__doc__, job=Path("soaked"), pages=1_000_000, hosts=20_000, every=EVERY)
    process = AsyncCrawlerProcess(
        {
            "ADDONS": {"scrapy_aopic.Addon": 500},
            "EXTENSIONS": {Samples: 0},
            "JOBDIR": str(args.job),
            "SOAK_WEB": Endless(args.hosts),
            "CLOSESPIDER_PAGECOUNT": args.pages,
            "SOAK_EVERY": args.every,
            "ROBOTSTXT_OBEY": True,
            "CONCURRENT_REQUESTS": 100,
            "DOWNLOAD_DELAY": 0,
            "LOGSTATS_INTERVAL": 0,
            "TELNETCONSOLE_ENABLED": False,
            "LOG_LEVEL": "WARNING",
        }
    )
    logging.getLogger("scrapy.downloadermiddlewares.retry").setLevel(logging.CRITICAL)
    print(*FIELDS, sep="\t")
    process.crawl(Soak)
    process.start()
    store = open_snapshot(store_folder(args.job))
    try:
        result = audit(store)
    finally:
        store.close()
    print(f"\n{result}"[:600])
    failures = [f"the audit: {each}" for each in result.violations[:5]]
    failures += [f"{name} grew" for name in judge(Samples.rows)]
    print("; ".join(failures) or "flat, and the audit holds")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
