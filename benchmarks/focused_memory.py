"""Memory of a crawl for a topic beside one without: real crawls of a large demo web, and what their processes hold as they go on.

    python benchmarks/focused_memory.py [--pages 20000] [--hosts 3000] [--most 60000] [--only aopic,contextual] [--memory-mb 32]

Each crawl is a process of its own with its job in a folder, one after the other. Printed are its resident memory (Linux) at each
eighth of its pages, its CPU time a page, the URLs that it knows, the bytes of its folder a URL when it was closed, and the mean
bytes of what it remembers of how a waiting page was found (key and row).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from scrapy_aopic._engine.process_memory import resident

sys.path.insert(0, str(Path(__file__).parents[1] / "example_project"))

TOPIC = {"keywords": ["comet", "galaxy", "stars", "telescope"]}
CRAWLS = {
    "aopic": {},
    **{
        name: {"AOPIC_TOPIC": TOPIC, "AOPIC_ORDER": "focused", "AOPIC_LINK_SCORER": name}
        for name in ("focused", "contextual", "jlse", "context-graph", "portfolio")
    },
}
STEPS = 8


def crawl(name: str, seeds: Path, job: Path, pages: int, memory_mb: int) -> None:
    """Crawl, and print what was measured."""
    from scrapy import signals
    from scrapy.crawler import AsyncCrawlerProcess

    from scrapy_aopic import BroadSpider
    from scrapy_aopic.core.layout import LEADS
    from scrapy_aopic.core.ports import Family
    from scrapy_aopic.place.paths import store_folder
    from scrapy_aopic.storage import open_snapshot

    settings = {
        "JOBDIR": str(job),
        "AOPIC_REPORT": False,
        "AOPIC_MEMORY_MB": memory_mb,
        "AOPIC_POLITENESS_FACTOR": 0,
        "AOPIC_MIN_GAP": 0.001,
        "ROBOTSTXT_OBEY": False,
        "CLOSESPIDER_PAGECOUNT": pages,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "CRITICAL",
        **CRAWLS[name],
    }
    process = AsyncCrawlerProcess(settings)
    crawler = process.create_crawler(BroadSpider)
    held: list[float] = []
    n = 0
    begin = time.process_time()

    def received() -> None:
        nonlocal n
        n += 1
        if n % (pages // STEPS) == 0 and len(held) < STEPS:
            held.append(resident() / 1e6)

    crawler.signals.connect(received, signals.response_received)
    process.crawl(crawler, seeds=str(seeds))
    process.start()
    assert crawler.stats is not None
    with closing(open_snapshot(store_folder(job))) as store:
        leads = [len(key) + len(row) for key, row in store.scan(Family.CONTENT) if key[:1] == LEADS]
    found = {
        "lead": sum(leads) / max(len(leads), 1),
        "held": held,
        "cpu_ms": 1000 * (time.process_time() - begin) / max(n, 1),
        "urls": sum(
            crawler.stats.get_value(f"aopic/job/{kind}", 0) for kind in ("queued", "visited", "failed")
        ),
        "bytes": sum(path.stat().st_size for path in job.rglob("*") if path.is_file()),
    }
    sys.stdout.write(json.dumps(found) + "\n")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=20_000, help="pages of each crawl (%(default)s)")
    parser.add_argument("--hosts", type=int, default=3_000, help="of the web (%(default)s)")
    parser.add_argument("--most", type=int, default=60_000, help="pages of the web (%(default)s)")
    parser.add_argument("--only", default="aopic,contextual", help="which crawls (%(default)s)")
    parser.add_argument(
        "--memory-mb",
        type=int,
        default=32,
        help="AOPIC_MEMORY_MB; with its default of 256, caches grow on for a hundred thousand URLs (%(default)s)",
    )
    parser.add_argument("--crawl", nargs=3, metavar=("NAME", "SEEDS", "JOB"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.crawl:
        name, seeds, job = options.crawl
        crawl(name, Path(seeds), Path(job), options.pages, options.memory_mb)
        return
    import demo_web

    steps = [options.pages // STEPS * step for step in range(1, STEPS + 1)]
    sys.stdout.write(
        f"{'MB at':16}"
        + "".join(f"{step:>8,}" for step in steps)
        + "  ms a page     URLs  bytes a URL  a lead\n"
    )
    with TemporaryDirectory(prefix="focused-memory-") as folder:
        web = demo_web.DemoWeb(n_hosts=options.hosts, n_pages=options.most, has_topics=True)
        seeds = Path(folder, "seeds.txt")
        seeds.write_text("\n".join(web.seeds), encoding="utf-8")
        served = demo_web.served(
            log=Path(folder, "web.log"), has_topics=True, n_hosts=options.hosts, n_pages=options.most
        )
        with served as proxy:
            for name in options.only.split(","):
                command = [sys.executable, __file__, "--pages", str(options.pages)]
                command += ["--memory-mb", str(options.memory_mb)]
                command += ["--crawl", name, str(seeds), str(Path(folder, name))]
                out = subprocess.run(
                    command,
                    env={**os.environ, "http_proxy": proxy},
                    check=True,
                    stdout=subprocess.PIPE,
                    text=True,
                ).stdout
                found = json.loads(out.splitlines()[-1])
                held = "".join(f"{each:>8.0f}" for each in found["held"])
                each_url = found["bytes"] / max(found["urls"], 1)
                sys.stdout.write(
                    f"{name:16}{held}{found['cpu_ms']:>11.2f}{found['urls']:>9,}{each_url:>13.0f}{found['lead']:>8.0f}\n"
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
