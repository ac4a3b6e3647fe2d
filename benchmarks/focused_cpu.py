"""CPU of a page in a crawl for a topic, over that in a crawl without one: real crawls of the demo web, by turns.

    python benchmarks/focused_cpu.py [--pages 1000] [--turns 5] [--profile]

Each crawl is a process of its own; what counts is its CPU time from the first request to the end, by the pages that it has
fetched. The server is another process's work. Politeness hardly waits, so that little is spent on waiting. --profile shows
where a focused crawl spends its time.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1] / "example_project"))

TOPIC = {"keywords": ["comet", "galaxy", "stars", "telescope"]}
CRAWLS = {
    "aopic": {},
    "aopic, graded": {"AOPIC_TOPIC": TOPIC},
    "focused": {"AOPIC_TOPIC": TOPIC, "AOPIC_ORDER": "focused", "AOPIC_LINK_SCORER": "focused"},
    "focused, default": {"AOPIC_TOPIC": TOPIC, "AOPIC_ORDER": "focused"},
}


def crawl(name: str, seeds: Path, pages: int, *, profiled: bool) -> None:
    """Crawl, and print the CPU time and the number of pages."""
    from scrapy import signals
    from scrapy.crawler import AsyncCrawlerProcess

    from scrapy_aopic import BroadSpider

    settings = {
        "AOPIC_REPORT": False,
        "AOPIC_STORE": "memory",
        "AOPIC_POLITENESS_FACTOR": 0,
        "AOPIC_MIN_GAP": 0.001,
        "ROBOTSTXT_OBEY": False,
        "CLOSESPIDER_PAGECOUNT": pages,
        "CLOSESPIDER_TIMEOUT": 120,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "ERROR",
        **CRAWLS[name],
    }
    process = AsyncCrawlerProcess(settings)
    crawler = process.create_crawler(BroadSpider)
    began: list[float] = []
    profile = cProfile.Profile()

    def opened() -> None:
        began.append(time.process_time())
        if profiled:
            profile.enable()

    def closed() -> None:
        began.append(time.process_time())
        profile.disable()

    crawler.signals.connect(opened, signals.spider_opened)
    crawler.signals.connect(closed, signals.spider_closed)
    process.crawl(crawler, seeds=str(seeds))
    process.start()
    assert crawler.stats is not None
    if profiled:
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
    parser.add_argument("--crawl", nargs=2, metavar=("NAME", "SEEDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.crawl:
        crawl(options.crawl[0], Path(options.crawl[1]), options.pages, profiled=options.profile)
        return
    import demo_web

    found: dict[str, list[float]] = {name: [] for name in CRAWLS}
    with TemporaryDirectory(prefix="focused-cpu-") as folder:
        seeds = Path(folder, "seeds.txt")
        seeds.write_text("\n".join(demo_web.DemoWeb(has_topics=True).seeds), encoding="utf-8")
        with demo_web.served(log=Path(folder, "web.log"), has_topics=True) as proxy:
            for _ in range(1 if options.profile else options.turns):
                for name in ["focused, default"] if options.profile else CRAWLS:
                    command = [
                        sys.executable,
                        __file__,
                        "--crawl",
                        name,
                        str(seeds),
                        "--pages",
                        str(options.pages),
                    ]
                    command += ["--profile"] * options.profile
                    env = {**os.environ, "http_proxy": proxy}
                    out = subprocess.run(
                        command, env=env, check=True, stdout=subprocess.PIPE, text=True
                    ).stdout
                    *shown, last = out.splitlines()
                    sys.stdout.write("\n".join([*shown, ""]) if options.profile else "")
                    result = json.loads(last)
                    found[name].append(1000 * result["seconds"] / result["pages"])
    base = found["aopic"]
    for name, times in found.items():
        if times and base:
            ratio = statistics.median(each / one for each, one in zip(times, base, strict=True))
            sys.stdout.write(f"{name:18}{statistics.median(times):8.2f} ms a page{ratio:8.2f} of aopic\n")


if __name__ == "__main__":
    main()
