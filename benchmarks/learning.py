"""What learning from links costs a real crawl: processor time, bytes of the store, and stalls of the event loop.

    python benchmarks/learning.py DIR [--pages 1000] [--turns 3]

DIR/sites/<name> are unpacked sites, served by a local server as http://<name>.test/. Each crawl is a process of its own,
without politeness, on SQLite; the crawls take turns, and the least processor time of the turns counts. Printed for each:
ms of processor time a page, in all and relative to the first crawl; the size of the store; the most processor time
of the event loop that learning took at once; how late a timer of 2 ms was at most and in 999 of 1,000 cases, which other work of the loop
decides, such as parsing a large page; the part of the pages that its own topic finds relevant; and how many waiting pages got
another value.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from scrapy import Spider, signals
from scrapy.crawler import Crawler, CrawlerProcess
from scrapy.http import Response
from twisted.internet.task import LoopingCall

from scrapy_aopic import Links
from scrapy_aopic.session.session import Session

sys.path.insert(0, str(Path(__file__).parents[1] / "example_project"))

from demo_web.server import Answer, Exchange, Server

KEYWORDS = {"keywords": ["database", "sql", "query", "table"]}
CRAWLS: dict[str, dict[str, Any]] = {
    "no topic": {},
    **{
        name: {"AOPIC_ORDER": "focused", "AOPIC_TOPIC": KEYWORDS, "AOPIC_LINK_SCORER": name}
        for name in ("best-first", "focused", "jlse", "learned", "contextual")
    },
}
TICK = 0.002


class Sites:
    """The files of each site; its home links to its index pages."""

    def __init__(self, folder: Path) -> None:
        self.folders = {
            f"{site.name}.test": site for site in sorted((folder / "sites").iterdir()) if site.is_dir()
        }
        self.homes: dict[str, bytes] = {}
        for host, site in self.folders.items():
            indexes = sorted(
                (p for p in site.rglob("index.*htm*") if p.is_file()), key=lambda p: len(p.parts)
            )
            links = "".join(f'<a href="/{page.relative_to(site)}">go on</a>' for page in indexes[:5])
            self.homes[host] = f"<html><title>{host}</title>{links}".encode()

    def answer(self, exchange: Exchange) -> Answer:
        site = self.folders.get(exchange.host)
        path = unquote(exchange.target.partition("?")[0]).lstrip("/")
        if site is None or path == "robots.txt":
            return Answer(404)
        if not path:
            return Answer(200, {"Content-Type": "text/html"}, self.homes[exchange.host])
        try:
            return Answer(200, {"Content-Type": "text/html"}, (site / path).read_bytes())
        except OSError:
            return Answer(404)


class Probe(Spider):
    """Follows all links, and measures the process that it is in."""

    name = "probe"

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Probe:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.opened, signal=signals.spider_opened)
        crawler.signals.connect(spider.closed, signal=signals.spider_closed)
        return spider

    def opened(self) -> None:
        self.late: list[float] = []
        self.last = time.perf_counter()
        self.probe = LoopingCall(self.tick)
        self.probe.start(TICK, now=False)
        self.steps: list[float] = []
        session = Session.of(self.crawler)
        if session is not None and session.focus is not None:
            learning = session.focus.learning
            for name in ("learn", "step"):
                setattr(learning, name, self.timed(getattr(learning, name)))
        self.began = time.process_time()

    def timed(self, function: Callable[..., None]) -> Callable[..., None]:
        def timed(*args: Any) -> None:
            began = time.thread_time()
            function(*args)
            self.steps.append(time.thread_time() - began)

        return timed

    def tick(self) -> None:
        now = time.perf_counter()
        self.late.append(now - self.last - TICK)
        self.last = now

    def parse(self, response: Response) -> Iterator[Any]:
        yield Links(response)

    def closed(self) -> None:
        self.probe.stop()
        late = sorted(self.late)
        stats = self.crawler.stats.get_stats() if self.crawler.stats else {}
        pages = stats["aopic/pages/visited"]
        store = sum(
            path.stat().st_size for path in Path(self.settings["JOBDIR"]).rglob("*") if path.is_file()
        )
        print(json.dumps({
            "ms": 1000 * (time.process_time() - self.began) / pages,
            "store": store,
            "step": 1000 * max(self.steps, default=0.0),
            "late": 1000 * late[-1],
            "late_999": 1000 * late[int(0.999 * len(late))],
            "harvest": stats.get("aopic/topic/harvest", 0.0),
            "pages": pages,
            "revalued": stats.get("aopic/topic/revalued", 0),
        }))  # fmt: skip


def crawl_here(settings: dict[str, Any], seeds: list[str]) -> None:
    process = CrawlerProcess(settings)
    process.crawl(Probe, start_urls=seeds)
    process.start()


def crawl(proxy: str, settings: dict[str, Any], seeds: list[str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        values = {
            "SCHEDULER": "scrapy_aopic.Scheduler",
            "SPIDER_MIDDLEWARES": {"scrapy_aopic.LinkMiddleware": 1000},
            "JOBDIR": folder,
            "AOPIC_STORE": "sqlite",
            "AOPIC_POLITENESS_FACTOR": 0,
            "AOPIC_MIN_GAP": 0,
            "AOPIC_REPORT": False,
            "LOG_LEVEL": "ERROR",
            "TELNETCONSOLE_ENABLED": False,
            **settings,
        }
        done = subprocess.run(
            [
                sys.executable,
                __file__,
                "--settings",
                json.dumps(values),
                "--seeds",
                json.dumps(seeds),
                folder,
            ],
            env={**os.environ, "http_proxy": proxy},
            capture_output=True,
            text=True,
            check=True,
        )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", default="", help="names of crawls, with commas")
    parser.add_argument("--settings", help=argparse.SUPPRESS)
    parser.add_argument("--seeds", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.settings:
        crawl_here(json.loads(options.settings), json.loads(options.seeds))
        return
    sites = Sites(options.folder)
    seeds = [f"http://{host}/" for host in sites.folders]
    names = options.only.split(",") if options.only else list(CRAWLS)
    got: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with Server(sites.answer).run_in_thread() as running:
        for _ in range(options.turns):
            for name in names:
                settings = {**CRAWLS[name], "CLOSESPIDER_PAGECOUNT": options.pages}
                got[name].append(crawl(running.url, settings, seeds))
    print(
        f"{'crawl':12} ms a page  to the first  store kB  step ms  late ms, most  of 999  harvest  revalued"
    )
    base = min(each["ms"] for each in got[names[0]])
    for name, each in got.items():
        best = min(each, key=lambda one: one["ms"])
        print(
            f"{name:12} {best['ms']:9.2f} {best['ms'] / base:13.2f} {best['store'] / 1024:9.0f} {min(one['step'] for one in each):8.1f}"
            f" {min(one['late'] for one in each):14.1f} {min(one['late_999'] for one in each):7.1f} {best['harvest']:8.3f}"
            f" {best['revalued']:9.0f}"
        )


if __name__ == "__main__":
    main()
