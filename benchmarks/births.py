"""How soon new pages are fetched in real crawls, on a web whose pages change and publish while it is crawled.

    python benchmarks births [--pages 200] [--publishers 10] [--every 10] [--hosts 1] [--gap .07] [--seconds 150]

Scrapy crawls, with the add-on, a server on this machine: --pages pages on --hosts hosts with ten links each, all of them seeds.
Each page changes once in --change seconds on average, or with 0 whenever it is fetched. Each of --publishers publishes a page every
--every seconds, and lists its last twenty, which link back to it. A host is asked every --gap seconds. The first third of
--seconds is not measured.

* *delay*: seconds from the birth of a page to its fetch, those that are not fetched yet included;
* *in requests*: requests to all hosts in that time;
* *until seen*: seconds until its publisher was fetched, and *in the queue*, those after that;
* *fresh*: part of the time in which the copy of a page that is no new one is what the page is.

Kinds: ``discovery`` is the default, and ``no discovery`` is that without a share of revisits for what brings new pages.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "example_project"), str(ROOT)]

import options
from demo_web.server import Answer, Exchange, Server
from options import Among

KINDS = ["discovery", "no discovery"]
LINKS, LISTED = 10, 20


class Birth:
    """A page that is published while the web is crawled; instants of its birth, and when it was seen listed and fetched."""

    def __init__(self, at: float) -> None:
        self.at, self.n = at, 0
        self.seen = self.fetched = self.n_fetched = math.inf


class Result(NamedTuple):
    """What the server has seen of a crawl."""

    births: int
    delay: float
    requests: float
    unseen: float
    queued: float
    fresh: float
    rate: float


class Web:
    """Pages that change and publish, and what a crawl has of them."""

    def __init__(self, args: Any) -> None:
        self.args = args
        self.dice = random.Random(args.rng)
        self.began, self.n = 0.0, 0
        self.change = [0.0] * args.pages  # when a copy is out of date
        self.seen = [0.0] * args.pages
        self.version = [0] * args.pages
        self.fresh = 0.0
        self.links = [
            [self.url(self.dice.randrange(args.pages)) for _ in range(LINKS)] for _ in range(args.pages)
        ]
        self.births: dict[str, Birth] = {}

    def url(self, page: int) -> str:
        return f"http://h{page % self.args.hosts}.test/{page}"

    def published(self, page: int, now: float) -> list[str]:
        """What the *page* has published by *now*, the last first; its clock is its own."""
        first = self.began + self.args.every * page / self.args.publishers
        n = int((now - first) / self.args.every) + 1 if now >= first else 0
        urls = []
        for number in range(n - 1, max(n - LISTED, 0) - 1, -1):
            urls.append(url := f"{self.url(page)}-{number}")
            if url not in self.births:
                self.births[url] = Birth(first + number * self.args.every)
        return urls

    def answer(self, exchange: Exchange) -> Answer:
        """The page that is asked for."""
        if exchange.target == "/robots.txt":
            return Answer(404)
        now, self.n = time.time(), self.n + 1
        self.began = self.began or now
        for page in range(self.args.publishers):  # all births so far, seen or not
            for url in self.published(page, now):
                birth = self.births[url]
                birth.n = birth.n or self.n
        name, _, number = exchange.target[1:].partition("-")
        page = int(name)
        if number:
            birth = self.births[f"http://{exchange.host}{exchange.target}"]
            if birth.fetched == math.inf:
                birth.fetched, birth.n_fetched = now, self.n
            text, links = f"born {page} {number}", [self.url(page)]
        else:
            text, links = self._shown(page, now), [*self.links[page]]
            if page < self.args.publishers:
                links += (new := self.published(page, now))
                for url in new:
                    self.births[url].seen = min(self.births[url].seen, now)
        anchors = "".join(f'<a href="{link}">{link}</a> ' for link in links)
        body = f"<html><body><p>{text} and words of its own {page}</p>{anchors}</body></html>".encode()
        return Answer(headers={"Content-Type": "text/html"}, body=body)

    def _shown(self, page: int, now: float) -> str:
        self._count(page, now)
        if not self.args.change or now >= self.change[page]:
            self.version[page] += 1
            self.change[page] = now + (self.dice.expovariate(1 / self.args.change) if self.args.change else 0)
        self.seen[page] = now
        return f"version {self.version[page]}"

    def _count(self, page: int, now: float) -> None:
        """Count the time since the last fetch of *page* in which its copy was right."""
        begin = max(self.seen[page], self.began + self.args.seconds / 3)
        if self.seen[page]:
            self.fresh += max(min(self.change[page], now) - begin, 0.0)

    def result(self, end: float) -> Result:
        """What was seen, by *end*."""
        for page in range(self.args.pages):
            self._count(page, end)
        begin = self.began + self.args.seconds / 3
        found = [each for each in self.births.values() if begin <= each.at <= end - self.args.every]
        delays = [min(each.fetched, end) - each.at for each in found]
        unseen = [min(each.seen, end) - each.at for each in found]
        waits = [min(each.n_fetched, self.n) - each.n for each in found]
        mean, seconds = statistics.mean, end - self.began
        delay, seen = mean(delays), mean(unseen)
        fresh = self.fresh / self.args.pages / (end - begin)
        return Result(len(found), delay, mean(waits), seen, delay - seen, fresh, self.n / seconds)


def crawl(kind: str, args: Any) -> Result:
    """Crawl the web in this process, which is of no use for another crawl."""
    from scrapy.crawler import CrawlerProcess
    from support.links_spider import Follow

    from scrapy_aopic.core.revisits import due

    if kind == "no discovery":
        due._FRUITFUL_TURN = 1 << 60
    web = Web(args)
    with Server(web.answer).run_in_thread() as running, tempfile.TemporaryDirectory() as folder:
        os.environ["http_proxy"] = running.url
        process = CrawlerProcess(
            {
                "ADDONS": {"scrapy_aopic.Addon": 500},
                "JOBDIR": folder,
                "AOPIC_RECRAWL": [f"{args.least} seconds", "1 day"],
                "DOWNLOAD_DELAY": args.gap,
                "AOPIC_MIN_GAP": args.gap,
                "RANDOMIZE_DOWNLOAD_DELAY": False,
                "CLOSESPIDER_TIMEOUT": args.seconds,
                "LOG_LEVEL": "ERROR",
                "TELNETCONSOLE_ENABLED": False,
            }
        )
        Follow.start_urls = [web.url(page) for page in range(args.pages)]
        process.crawl(Follow)
        process.start()
        return web.result(time.time())


def main() -> None:
    args = options.read(
        __doc__, kinds=Among(KINDS, KINDS), pages=200, publishers=10, every=10.0, change=30.0, hosts=1, gap=0.07, least=1,
        seconds=150.0, rng=1,
    )  # fmt: skip
    print(
        "| kind | new pages | delay | in requests | until seen | in the queue | fresh | requests a second |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for kind in args.kinds:
        with ProcessPoolExecutor(1) as pool:
            found = pool.submit(crawl, kind, args).result()
        print(
            f"| {kind} | {found.births} | {found.delay:.1f} s | {found.requests:.1f} | {found.unseen:.1f} s | {found.queued:.1f} s"
            f" | {found.fresh:.3f} | {found.rate:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
