"""How soon a real crawl learns how often pages change, with and without Last-Modified.

    python benchmarks/revisits.py [--pages 200] [--visits 2 4 8] [--budget .5] [--rng 1] [--json FILE]

A server on loopback has --pages pages that change at known rates (``freshness.py`` has the rates, and what a page is),
half of which respond with 304 to a condition that still holds. Scrapy crawls them with AOPIC_RECRAWL until each was
visited --visits times on average, once with the headers ``Last-Modified`` and ``Date``, once without them. Only
the clock of the job is replaced: each response takes as much of it as --budget fetches a page and day leave.

* ``error``: mean factor between a page's true rate and what the job holds of it, read from its store;
* ``freshness``: share of the second half of the time in which copies were up to date, weighted by PageRank.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from freshness import BEGIN, DAY, HOUR, Task, Web
from scrapy import Spider, signals
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.utils.asyncio import create_looping_call

from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl_totals import read_totals
from scrapy_aopic.core.layout import Family
from scrapy_aopic.core.records import unpack_page
from scrapy_aopic.core.revisits.rates import RATES, Rates
from scrapy_aopic.job import clock
from scrapy_aopic.lab.graphs import pagerank
from scrapy_aopic.place.paths import store_folder
from scrapy_aopic.storage import open_snapshot
from scrapy_aopic.web.request_rows import url_of

sys.path.insert(0, str(Path(__file__).parents[1] / "example_project"))

from demo_web.server import Answer, Exchange, Server

N_LINKS, N_HOSTS = 6, 20
ALL = 50
"""Links of a page of the first ones, so that all pages are found at once."""

IDLE = 0.05
"""Seconds without a request after which the clock goes on by itself: nothing may be fetched yet."""


class Served:
    """The pages on a clock that goes on with each response.

    Attributes:
        freshness: Seconds for which copies were up to date, weighted.
    """

    def __init__(self, pages: int, budget: float, visits: float, rng: int, *, is_dated: bool) -> None:
        self._web = Web(pages, Task(Path(), "", budget, rng, "measured", 0, 0))
        self._is_dated = is_dated
        self._step = DAY / (budget * pages)
        self._first = HOUR / pages
        self._modified = [0.0] * pages
        self.fetches, self.limit = 0, int(pages * visits)
        self.passed, self.asked_at = 0.0, time.monotonic()
        self.freshness, self.begin = 0.0, math.inf
        drawn = random.Random(rng)
        self.links = [
            [drawn.randrange(pages) for _ in range(N_LINKS)] + list(range(n * ALL, min((n + 1) * ALL, pages)))
            for n in range(pages)
        ]
        indptr = np.cumsum([0, *map(len, self.links)])
        rank = pagerank(indptr, np.array([link for links in self.links for link in links]))
        self._weights = (rank / rank.sum()).tolist()
        # The job lives by this clock; all other waiting is by the machine's.
        clock.time = SimpleNamespace(  # type: ignore[attr-defined, assignment]
            time=self.now,
            monotonic=lambda: self.passed,
            clock_gettime=lambda _: self.passed,
            CLOCK_BOOTTIME=7,
        )

    @property
    def rates(self) -> list[float]:
        return self._web.rates

    def now(self) -> float:
        return BEGIN + self.passed

    def go_on(self) -> None:
        """Let time pass if the crawl has nothing to do."""
        if time.monotonic() - self.asked_at > IDLE:
            self.passed += self._step

    def answer(self, exchange: Exchange) -> Answer:
        page = int(exchange.target[1:])
        self.fetches += 1
        self.asked_at = time.monotonic()
        self.passed += self._step if self.fetches > len(self.links) else self._first
        now = self.now()
        if self.fetches > self.limit // 2:
            self.begin = min(self.begin, now)
            self.freshness += self._weights[page] * self._web.fresh(page, self.begin, now)
        content = self._web.visit(page, now, is_dated=True)
        headers = {"Content-Type": "text/html", "ETag": '"1"'} if page % 2 else {"Content-Type": "text/html"}
        if content.is_same:
            return Answer(304, headers)
        self._modified[page] = content.changed_at or self._modified[page]
        if self._is_dated:
            headers["Date"] = formatdate(now, usegmt=True)
            headers["Last-Modified"] = formatdate(self._modified[page], usegmt=True)
        anchors = "".join(f'<a href="http://h{link % N_HOSTS}.test/{link}">' for link in self.links[page])
        return Answer(headers=headers, body=f"<html>{content.digest.hex()}{anchors}</html>".encode())

    def fresh(self) -> float:
        """Freshness of the second half."""
        now, pages = self.now(), range(len(self.links))
        rest = sum(self._weights[page] * self._web.fresh(page, self.begin, now) for page in pages)
        return float((self.freshness + rest) / (now - self.begin))


class Follow(Spider):
    name = "follow"
    start_urls = ["http://h0.test/0"]
    served: Served

    async def start(self) -> Any:
        self.loop = create_looping_call(self.look)
        self.loop.start(IDLE / 5, now=False)
        self.crawler.signals.connect(self.loop.stop, signals.spider_closed, weak=False)
        async for request in super().start():
            yield request

    def look(self) -> None:
        self.served.go_on()
        if self.served.fetches >= self.served.limit and self.crawler.engine is not None:
            self.crawler.engine.close_spider(self, "enough")

    def parse(self, response: Any) -> Any:
        for url in re.findall(r'href="([^"]+)"', response.text):
            yield response.follow(url)


def learnt(folder: Path, true: list[float]) -> tuple[float, list[str]]:
    """Mean factor between the true rates and those that the job in *folder* holds; what its audit found."""
    store = open_snapshot(store_folder(folder))
    saved = read_totals(store)
    assert saved is not None
    rates, logs, errors = Rates(saved.rates), np.log(RATES), []
    for key, data in store.scan(Family.PAGES):
        page = unpack_page(data)
        if page.changes is not None:
            odds = np.array(rates.of(page.changes.evidence))
            number = int(url_of(store.get_many(Family.REQUESTS, [key])[0] or b"").rpartition("/")[2])
            errors.append(abs(float(odds @ logs / odds.sum()) - math.log(true[number])))
    found = audit(store).violations
    store.close()
    return math.exp(float(np.mean(errors))), found


def crawl(args: dict[str, Any]) -> dict[str, Any]:
    """One crawl, in a process of its own."""
    served = Served(**args)
    Follow.served = served
    with tempfile.TemporaryDirectory() as folder, Server(served.answer).run_in_thread() as running:
        between = served.limit * DAY / (args["budget"] * args["pages"] * args["visits"])
        process = AsyncCrawlerProcess(
            {
                "SCHEDULER": "scrapy_aopic.Scheduler",
                "JOBDIR": folder,
                "AOPIC_STORE": "sqlite",
                "AOPIC_DURABILITY": "close",  # the clock is so fast that a commit would always be late
                "AOPIC_POLITENESS_FACTOR": 0,
                "AOPIC_BACKOFF": 0,
                "AOPIC_RECRAWL": True,
                "AOPIC_RECRAWL_MIN_INTERVAL": HOUR + between / args["pages"],
                "AOPIC_RECRAWL_MAX_INTERVAL": 10 * DAY / args["budget"],
                "AOPIC_DOMAIN_BUDGET": 0,
                "CONCURRENT_REQUESTS": 1,
                "ROBOTSTXT_OBEY": False,
                "LOG_LEVEL": "ERROR",
                "TELNETCONSOLE_ENABLED": False,
                "HTTPPROXY_ENABLED": True,
            }
        )
        os.environ["http_proxy"] = running.url
        process.crawl(Follow)
        process.start()
        error, violations = learnt(Path(folder), served.rates)
    return {
        "error": error,
        "freshness": served.fresh(),
        "days": served.passed / DAY,
        "fetches": served.fetches,
        "violations": violations,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=200)
    parser.add_argument("--visits", nargs="+", type=float, default=[2, 4, 8])
    parser.add_argument("--budget", type=float, default=0.5, help="fetches a page and day")
    parser.add_argument("--rng", nargs="+", type=int, default=[1])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one is not None:
        print(json.dumps(crawl(args.one)))
        return
    found = []
    print("| visits a page | days | error without | error with | freshness without | freshness with |")
    print("|---|---|---|---|---|---|")
    for visits in args.visits:
        both = []
        for is_dated in (False, True):
            runs = []
            for rng in args.rng:
                one = {
                    "pages": args.pages,
                    "budget": args.budget,
                    "visits": visits,
                    "rng": rng,
                    "is_dated": is_dated,
                }
                line = [sys.executable, __file__, "--one", json.dumps(one)]
                run = json.loads(subprocess.run(line, capture_output=True, text=True, check=True).stdout)
                if run["violations"]:
                    raise SystemExit(f"{one}: the audit does not hold: {run['violations']}")
                runs.append(run)
                found.append({**one, **run})
            both.append(
                {name: float(np.mean([run[name] for run in runs])) for name in ("error", "freshness", "days")}
            )
        without, dated = both
        print(
            f"| {visits:g} | {without['days']:.1f} | {without['error']:.1f} | {dated['error']:.1f} | "
            f"{without['freshness']:.3f} | {dated['freshness']:.3f} |",
            flush=True,
        )
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
