"""CPU of a page in a crawl for a topic, over that in a crawl without one: real crawls of the demo web, by turns.

    python benchmarks/focused_cpu.py [--pages 1000] [--turns 5] [--profile] [--sites FOLDER [--most 100]] [--job] [--requests] [--instructions]

Each crawl is a process of its own; what counts is its CPU time from the first request to the end, by the pages that it has
fetched. The server is another process's work. Politeness hardly waits, so that little is spent on waiting. --profile shows
where a focused crawl spends its time.

With --sites the pages are real ones: FOLDER has saved web pages, one site in each of its folders, of which those with at most
so many pages are served. All of these are fetched, so that each crawl has the same, whatever its order. With --job a crawl
keeps a job folder, obeys robots.txt and is polite, as one is that nobody has set up for a measurement. With --requests
the spider is one that was written for Scrapy: with Scrapy's link extractor, and a request for each link.

Where other work makes times vary, --instructions counts instead what the process carries out, with Valgrind, which takes some
minutes: those of a crawl less those of one that ends with its first page.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import re
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "example_project"))

import demo_web
from demo_web.server import Server
from focus_webs.corpus import TOPICS
from real_pages import START, Sites

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.http import Response

KEYWORDS = ["comet", "galaxy", "stars", "telescope"]
REAL_KEYWORDS = TOPICS["xml"][0]
CRAWLS: dict[str, dict[str, Any]] = {
    "aopic": {},
    "aopic, graded": {"AOPIC_TOPIC": {}},
    "focused": {"AOPIC_TOPIC": {}, "AOPIC_ORDER": "focused", "AOPIC_LINK_SCORER": "focused"},
    "focused, default": {"AOPIC_TOPIC": {}, "AOPIC_ORDER": "focused"},
}
"""Settings by name; where a topic is, it is given by keywords."""

MEASURED = {
    "AOPIC_POLITENESS_FACTOR": 0,
    "AOPIC_MIN_GAP": 0.001,
    "AOPIC_REPORT": False,
    "AOPIC_STORE": "memory",
    "ROBOTSTXT_OBEY": False,
}
"""Settings of a crawl that does as little else as possible."""

POLITE = {"AOPIC_POLITENESS_FACTOR": 1, "AOPIC_MIN_GAP": 0.05, "ROBOTSTXT_OBEY": True}
"""Those of one that does all that crawls do."""


def crawl(name: str, folder: Path, options: argparse.Namespace) -> None:
    """Crawl, and print the CPU time and the number of pages."""
    from scrapy import Request, signals
    from scrapy.crawler import AsyncCrawlerProcess
    from scrapy.http import TextResponse
    from scrapy.linkextractors import LinkExtractor

    from scrapy_aopic import BroadSpider

    class Follow(BroadSpider):
        """Follows all links as spiders do that were written for Scrapy."""

        def parse(self, response: Response, **_: Any) -> Iterator[Any]:
            assert isinstance(response, TextResponse)
            yield {"url": response.url, "title": response.css("title::text").get()}
            for link in LinkExtractor().extract_links(response):
                yield Request(link.url)

    settings = {
        "CLOSESPIDER_PAGECOUNT": options.pages,
        "CLOSESPIDER_TIMEOUT": 3_600,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "ERROR",
        **(MEASURED if not options.job else {**POLITE, "JOBDIR": mkdtemp(dir=folder)}),
        **CRAWLS[name],
    }
    if "AOPIC_TOPIC" in settings:
        settings["AOPIC_TOPIC"] = {"keywords": REAL_KEYWORDS if options.sites else KEYWORDS}
    process = AsyncCrawlerProcess(settings)
    crawler = process.create_crawler(Follow if options.requests else BroadSpider)
    began: list[float] = []
    profile = cProfile.Profile()

    def opened() -> None:
        began.append(time.process_time())
        if options.profile:
            profile.enable()

    def closed() -> None:
        began.append(time.process_time())
        profile.disable()

    crawler.signals.connect(opened, signals.spider_opened)
    crawler.signals.connect(closed, signals.spider_closed)
    process.crawl(crawler, seeds=str(folder / "seeds.txt"), domains="test" if options.sites else "")
    process.start()
    assert crawler.stats is not None
    if options.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)
    n = crawler.stats.get_value("response_received_count", 0)
    sys.stdout.write(json.dumps({"seconds": began[1] - began[0], "pages": n}) + "\n")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=1_000, help="pages of each crawl (%(default)s)")
    parser.add_argument("--turns", type=int, default=5, help="times that each is done (%(default)s)")
    parser.add_argument("--profile", action="store_true", help="where a focused crawl spends its time")
    parser.add_argument("--sites", type=Path, metavar="FOLDER", help="serve real pages, not the demo web")
    parser.add_argument("--most", type=int, default=100, help="pages of a site, at most (%(default)s)")
    parser.add_argument("--job", action="store_true", help="with all that crawls do")
    parser.add_argument("--requests", action="store_true", help="with Scrapy's link extractor")
    parser.add_argument("--instructions", action="store_true", help="count instructions; takes Valgrind")
    parser.add_argument("--crawl", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.crawl:
        crawl(options.crawl[0], Path(options.crawl[1]), options)
        return
    if options.sites and not options.instructions:
        options.pages = 0  # all
    found: dict[str, list[float]] = {name: [] for name in CRAWLS}
    with TemporaryDirectory(prefix="focused-cpu-") as folder, served(Path(folder), options) as proxy:
        environment = {**os.environ, "http_proxy": proxy, "PYTHONHASHSEED": "0"}
        for _ in range(1 if options.profile or options.instructions else options.turns):
            for name in ["focused, default"] if options.profile else CRAWLS:
                if options.instructions:
                    (before, n_before), (all_, n) = (
                        instructions(name, folder, n, environment) for n in (1, options.pages)
                    )
                    found[name].append((all_ - before) / (n - n_before) / 1e6)
                    continue
                shown, result = crawled(name, folder, options.pages, environment)
                sys.stdout.write("\n".join([*shown, ""]) if options.profile else "")
                found[name].append(1000 * result["seconds"] / result["pages"])
    unit = "million instructions" if options.instructions else "ms"
    base = found["aopic"]
    for name, times in found.items():
        if times and base:
            ratios = sorted(each / one for each, one in zip(times, base, strict=True))
            sys.stdout.write(
                f"{name:18}{statistics.median(times):8.2f} {unit} a page{statistics.median(ratios):8.2f} of aopic"
                f" ({ratios[0]:.2f} to {ratios[-1]:.2f})\n"
            )


def crawled(
    name: str, folder: str, pages: int, environment: dict[str, str], *before: str
) -> tuple[list[str], dict[str, float]]:
    """Crawl in a process of its own, begun with what stands *before*; returns what it says, and its result."""
    command = [
        *before,
        sys.executable,
        __file__,
        *sys.argv[1:],
        "--pages",
        str(pages),
        "--crawl",
        name,
        folder,
    ]
    out = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    *shown, last = out.splitlines()
    return shown, json.loads(last)


def instructions(name: str, folder: str, pages: int, environment: dict[str, str]) -> tuple[int, float]:
    """Instructions of a crawl from its start to its end, and how many pages it has fetched."""
    log = Path(folder, "valgrind.log")
    valgrind = (
        "valgrind",
        "--tool=cachegrind",
        "--cache-sim=no",
        "--cachegrind-out-file=/dev/null",
        f"--log-file={log}",
    )
    _, result = crawled(name, folder, pages, environment, *valgrind)
    found = re.search(r"I *refs: *([\d,]+)", log.read_text("utf-8"))
    assert found is not None, "valgrind counts them"
    return int(found[1].replace(",", "")), result["pages"]


@contextmanager
def served(folder: Path, options: argparse.Namespace) -> Iterator[str]:
    """Serve the web behind the proxy that it yields, and write its seeds into *folder*."""
    seeds = folder / "seeds.txt"
    if options.sites:
        seeds.write_text(f"http://{START}/", "utf-8")
        with Server(Sites(options.sites, options.most).answer).run_in_thread() as web:
            yield web.url
        return
    seeds.write_text("\n".join(demo_web.DemoWeb(has_topics=True).seeds), "utf-8")
    with demo_web.served(log=folder / "web.log", has_topics=True) as proxy:
        yield proxy


if __name__ == "__main__":
    main()
