"""What the dashboard costs: CPU a page of crawls without one, with one that nobody watches, and with one that is watched.

    python benchmarks/dashboard.py [--pages 3000] [--repeats 5] [--hosts 400]

Crawls of the demo web, and with more than 4,000 hosts of one in which all of them are seeds and stay in memory, in processes of
their own, by turns. A dashboard that is watched has two viewers of the stream of
events and a scrape of /metrics each second, from another process. These figures are printed:

* the ratio of CPU a page to the crawl without a dashboard before it, as median of the pairs with the least and the largest;
* the CPU that the dashboard's own code took, in its threads and in the event loop, as part of the crawl's. It knows nothing
  of what the rest of the crawl loses to it, such as caches of the processor, but hardly varies;
* the same of what looks at a crawl whether there is a dashboard or not: notes, stats and the history;
* the longest that one look of the dashboard, and one of the rest, kept the event loop, in CPU time;
* how late the event loop was: the median, and the 99th and 99.9th percentile of samples every 10 ms by the clock, as medians
  over the crawls. On a machine that does other things, too, these are theirs as well;
* the same of the CPU time that turns of the loop took, in which nothing else has a part: what is due waits for such a turn.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from threading import Event, Thread
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "example_project"))
sys.path.insert(0, str(Path(__file__).parent.parent))

TOKEN = "a-token-of-the-benchmark"
MOST_OF_DEMO = 4000
"""Hosts that the demo web can have, about."""
MODES = ("none", "closed", "open")
PARTS = (500, 990, 999)
"""Thousandths of the samples: the median, and the 99th and 99.9th percentile."""

SAMPLE = 0.01
"""Seconds between samples of how late the event loop is."""


def child(mode: str, pages: int, hosts: int, folder: str) -> None:
    """Crawl, and print what it took as the last line."""
    import demo_web
    from scrapy import signals
    from scrapy.crawler import CrawlerProcess

    from scrapy_aopic import BroadSpider
    from scrapy_aopic.dashboard import http_server
    from scrapy_aopic.dashboard.feed import Feed
    from scrapy_aopic.view.live import Watch

    own = {"loop": 0.0, "threads": 0.0, "watch": 0.0}
    longest = {**own}

    def timed(owner: Any, name: str, where: str) -> None:
        method = getattr(owner, name)

        def call(self: Any) -> None:
            began = time.thread_time()
            try:
                method(self)
            finally:
                took = time.thread_time() - began
                own[where] += took
                longest[where] = max(longest[where], took)

        setattr(owner, name, call)

    timed(Feed, "beat", "loop")
    timed(http_server._Handler, "handle", "threads")
    timed(Watch, "_beat", "watch")

    class Spider(BroadSpider):
        name = "bench"
        seeds = (
            demo_web.DemoWeb(n_hosts=hosts).seeds
            if hosts <= MOST_OF_DEMO
            else [
                f"http://h{n}.test/{page}" for page in range(2) for n in range(hosts)
            ]  # so that all stay in memory
        )

    settings = {
        "ADDONS": {"scrapy_aopic.Addon": 500},
        "USER_AGENT": "bench (+https://example.org/)",
        "JOBDIR": folder,
        "CLOSESPIDER_PAGECOUNT": pages,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "WARNING",
        "AOPIC_MEMORY_MB": max(256, hosts // 20),
        "AOPIC_DASHBOARD": mode != "none" and "127.0.0.1:0",
        "AOPIC_DASHBOARD_TOKEN": TOKEN,
    }
    process = CrawlerProcess(settings)
    crawler = process.create_crawler(Spider)
    process.crawl(crawler)
    began, cpu = time.monotonic(), time.process_time()
    active: list[int] = []

    def count() -> None:
        _count_hosts(crawler, active)

    crawler.signals.connect(count, signal=signals.response_received)
    samples = Samples()
    crawler.signals.connect(samples.begin, signal=signals.spider_opened)
    process.start()
    assert crawler.stats is not None
    done = crawler.stats.get_value("aopic/pages/visited") + crawler.stats.get_value("aopic/pages/failed", 0)
    spent = time.process_time() - cpu
    result = {
        "cpu_ms_a_page": 1000 * spent / done,
        "pages_a_second": done / (time.monotonic() - began),
        "hosts": sum(active) / max(len(active), 1),
        **{f"own_{name}": seconds / spent for name, seconds in own.items()},
        **{f"longest_{name}": 1000 * seconds for name, seconds in longest.items()},
        **{f"late_{part}": 1000 * samples.late(part / 1000) for part in PARTS},
        **{f"turn_{part}": 1000 * quantile(samples.turns, part / 1000) for part in PARTS},
    }
    print(f"result {json.dumps(result)}", flush=True)


class Samples:
    """Samples how late the event loop is, and how long its turns take.

    Attributes:
        turns: CPU time of each turn of the loop, in seconds: what is due waits for the rest of one, whatever else runs on the
            machine.
    """

    def __init__(self) -> None:
        self._late: list[float] = []
        self._due = 0.0
        self.turns: list[float] = []

    def begin(self) -> None:
        """The loop runs."""
        loop: Any = asyncio.get_running_loop()
        run, turns, clock = loop._run_once, self.turns, time.thread_time

        def timed() -> None:
            began = clock()
            run()
            turns.append(clock() - began)

        loop._run_once = timed
        self._due = loop.time()
        self._tick()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._late.append(now - self._due)
        self._due = max(self._due + SAMPLE, now)
        loop.call_at(self._due, self._tick)

    def late(self, part: float) -> float:
        """Seconds by which the loop was late at most in *part* of the samples."""
        return quantile(self._late, part)


def quantile(values: list[float], part: float) -> float:
    """What *part* of the *values* is at most."""
    return sorted(values)[int(part * len(values))]


def _count_hosts(crawler: Any, active: list[int]) -> None:
    """Note how many hosts are in memory, once in 500 responses."""
    from scrapy_aopic.session.session import Session

    n = crawler.stats.get_value("response_received_count", 0)
    session = Session.of(crawler)
    if n % 500 == 0 and session is not None:
        active.append(sum(map(len, session.job.crawl.active_hosts)))


def answer(hosts: int, exchange: Any) -> Any:
    """A page of a web of *hosts*, with 20 links to any of them."""
    from demo_web.server import Answer

    if exchange.target == "/robots.txt":
        return Answer(404)
    rng = Random(f"{exchange.host}{exchange.target}")
    links = "".join(
        f'<a href="http://h{rng.randrange(hosts)}.test/{rng.randrange(50)}">x</a>' for _ in range(20)
    )
    body = f"<html><title>{exchange.host}{exchange.target}</title>{links}</html>"
    return Answer(headers={"Content-Type": "text/html"}, body=body.encode())


def watch(port: int, path: str, over: Event) -> None:
    """Read *path* again and again, or all of a stream."""
    while not over.is_set():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
            response = connection.getresponse()
            while response.read1(65536) and not over.is_set():
                pass
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        over.wait(1)


def run(mode: str, pages: int, hosts: int, proxy: str) -> dict[str, float]:
    """Figures of one crawl."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [sys.executable, __file__, "--child", mode, "--pages", str(pages), "--hosts", str(hosts)]
        process = subprocess.Popen(
            [*arguments, "--folder", folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "http_proxy": proxy},
        )
        assert process.stdout is not None
        over = Event()
        threads: list[Thread] = []
        result: dict[str, float] = {}
        for line in process.stdout:
            if mode == "open" and (match := re.search(r"Dashboard: http://127\.0\.0\.1:(\d+)/", line)):
                for path in ("/events", "/events", "/metrics"):
                    threads.append(Thread(target=watch, args=(int(match[1]), path, over)))
                    threads[-1].start()
            if line.startswith("result "):
                result = json.loads(line.removeprefix("result "))
        over.set()
        for thread in threads:
            thread.join()
        process.wait()
        assert process.returncode == 0
        return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--hosts", type=int, default=400)
    parser.add_argument("--child", choices=MODES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    opts = parser.parse_args()
    if opts.child:
        child(opts.child, opts.pages, opts.hosts, opts.folder)
        return
    import demo_web

    found: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    with ExitStack() as stack:
        if opts.hosts <= MOST_OF_DEMO:
            proxy = stack.enter_context(demo_web.served(n_hosts=opts.hosts))
        else:
            from demo_web.server import Server

            proxy = stack.enter_context(Server(partial(answer, opts.hosts)).run_in_thread()).url
        for n in range(opts.repeats):
            for mode in MODES[n % 3 :] + MODES[: n % 3]:
                found[mode].append(run(mode, opts.pages, opts.hosts, proxy))
    for mode, results in found.items():
        ratios = [
            each["cpu_ms_a_page"] / other["cpu_ms_a_page"]
            for each, other in zip(results, found["none"], strict=True)
        ]
        print(
            f"{mode:7} {median(each['cpu_ms_a_page'] for each in results):.3f} ms a page at "
            f"{median(each['pages_a_second'] for each in results):.0f} pages/s; {median(ratios):.3f} of none "
            f"with {median(each['hosts'] for each in results):,.0f} hosts in memory "
            f"({min(ratios):.3f} to {max(ratios):.3f}); own {100 * median(each['own_loop'] for each in results):.3f} % in the "
            f"event loop, {100 * median(each['own_threads'] for each in results):.3f} % in threads, and without it "
            f"{100 * median(each['own_watch'] for each in results):.3f} %; longest {max(each['longest_loop'] for each in results):.1f} "
            f"and {max(each['longest_watch'] for each in results):.1f} ms; late by "
            + ", ".join(f"{median(each[f'late_{part}'] for each in results):.1f}" for part in PARTS)
            + " ms; turns of "
            + ", ".join(f"{median(each[f'turn_{part}'] for each in results):.2f}" for part in PARTS)
            + " ms"
        )


if __name__ == "__main__":
    main()
