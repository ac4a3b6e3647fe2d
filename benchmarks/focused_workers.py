"""A crawl for a topic by one process beside the same one shared by several workers: how many relevant pages each finds.

    python benchmarks/focused_workers.py [--pages 600] [--workers 1 2 3] [--turns 3] [--strategies contextual,focused]

Each is a crawl of the demo web as in ``make focus``, with politeness and a topic given by four keywords; ``one piece`` has its store
in memory, all others have theirs on a Redis or Valkey server that is started here. All have as many connections together,
few of them, so that the order decides. What is relevant is read from the log of the web's server. Printed are harvest after
each quarter of the pages, its mean over all prefixes, pages that a worker learned from that another one had fetched, and the
longest time for which an event loop was late, which is noisy on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "example_project"
sys.path[:0] = [str(EXAMPLE), str(ROOT / "tests")]

import demo_web
from demo_web.server_log import read_log
from focus import KEYWORDS, TOPIC
from support.redis_server import Server as Redis

CONNECTIONS = 6
"""Requests at once, of all workers together: divided by 1, 2 and 3."""
STEPS = 4


class Found(NamedTuple):
    """What a crawl has found.

    Attributes:
        relevant: Whether each page is, in the order in which they were fetched.
        lessons: Pages of others that workers learned from.
        late: Seconds for which an event loop was late, at most.
        seconds: For which it ran.
    """

    relevant: list[bool]
    lessons: int
    late: float
    seconds: float


def crawl(n_workers: int, scorer: str, options: argparse.Namespace) -> Found:
    """Crawl by so many workers, or in one piece by 0."""
    n, pages = max(n_workers, 1), options.pages
    with TemporaryDirectory(prefix="workers-") as place:
        folder = Path(place)
        log, seeds = folder / "web.log", folder / "seeds.txt"
        web = demo_web.DemoWeb(has_topics=True)
        seeds.write_text("\n".join(web.seeds), encoding="utf-8")
        (folder / "server").mkdir()
        with demo_web.served(log=log, has_topics=True) as proxy, Redis(folder / "server") as redis:
            settings = {
                "AOPIC_TOPIC": KEYWORDS,
                "AOPIC_ORDER": "breadth-first" if scorer == "breadth-first" else "focused",
                "AOPIC_REPORT": "False",
                "AOPIC_POLITENESS_FACTOR": "2",
                "CONCURRENT_REQUESTS": str(CONNECTIONS // n),
                "CLOSESPIDER_TIMEOUT": str(options.seconds),
                "AOPIC_DURABILITY": str(options.durability),
                "LOG_LEVEL": "INFO",
                "TELNETCONSOLE_ENABLED": "False",
            }
            if scorer != "breadth-first":
                settings["AOPIC_LINK_SCORER"] = scorer
            if n_workers:
                settings |= {
                    "AOPIC_STORE": "redis",
                    "AOPIC_SHARDS": str(options.shards),
                    "REDIS_URL": redis.url,
                }
            else:
                settings |= {"AOPIC_STORE": "memory"}
            command = [sys.executable, "-m", "scrapy", "crawl", "broad", "-a", f"seeds={seeds}"]
            command += [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
            began, processes = time.monotonic(), []
            for number in range(n):
                with (folder / f"log-{number}").open("wb") as errors:
                    processes.append(
                        subprocess.Popen(
                            command, cwd=EXAMPLE, env={**os.environ, "http_proxy": proxy}, stderr=errors
                        )
                    )
            while any(process.poll() is None for process in processes) and n_lines(log) < pages * 6 // 5:
                time.sleep(0.05)
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()
            lasted = time.monotonic() - began
        said = "".join((folder / f"log-{number}").read_text() for number in range(n))
        entries = [entry for entry in read_log(log) if entry.target != "/robots.txt" and entry.status == 200]
    entries.sort(key=lambda entry: entry.start)
    relevant = [web.topic(f"http://{entry.host}{entry.target}") == TOPIC for entry in entries][:pages]
    late = [float(found) for found in re.findall(r"'aopic/loop/late_seconds/max': ([\d.e-]+)", said)]
    lessons = sum(map(int, re.findall(r"'aopic/topic/lessons': (\d+)", said)))
    return Found(relevant, lessons, max(late, default=0.0), lasted)


def n_lines(log: Path) -> int:
    """Lines of *log* so far."""
    return log.read_bytes().count(b"\n") if log.exists() else 0


def row(name: str, each: list[Found], steps: list[int]) -> str:
    """What the crawls called *name* have found, on the average."""
    parts = [statistics.mean(sum(found.relevant[:step]) / step for found in each) for step in steps]
    means = [
        statistics.mean(sum(found.relevant[:n]) / n for n in range(10, max(len(found.relevant), 10) + 1, 10))
        for found in each
    ]
    spread = f" ± {statistics.stdev(means):.3f}" if len(means) > 1 else ""
    lessons = statistics.mean(found.lessons for found in each)
    late = 1000 * max(found.late for found in each)
    shown = "".join(f"{part:>9.3f}" for part in parts)
    seconds = statistics.mean(found.seconds for found in each)
    return f"{name:26}{shown}{statistics.mean(means):>9.3f}{spread}{lessons:>9.0f}{late:>9.0f} ms{seconds:>6.0f} s"


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=600)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--shards", type=int, default=12)
    parser.add_argument("--durability", type=int, default=500)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--strategies", default="contextual")
    options = parser.parse_args()
    steps = [options.pages * step // STEPS for step in range(1, STEPS + 1)]
    kept: dict[str, list[Found]] = {}
    for _ in range(options.turns):
        for scorer in options.strategies.split(","):
            for n in (0, *options.workers):
                name = f"{scorer}, {f'{n} workers' if n else 'one piece'}"
                found = crawl(n, scorer, options)
                kept.setdefault(name, []).append(found)
                print(row(name, [found], steps), flush=True)
    print(
        f"\n{'mean of all turns':26}"
        + "".join(f"{f'at {step}':>9}" for step in steps)
        + "     mean   lessons    late"
    )
    for name, each in kept.items():
        print(row(name, each, steps))


if __name__ == "__main__":
    main()
