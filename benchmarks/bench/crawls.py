"""Crawl: the CPU of whole crawls of a web that a process of its own serves, so that only the crawler's counts."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from typing import Any

from measure import HERE, Runner, samples
from scrapy import Spider
from scrapy.crawler import CrawlerProcess
from scrapy.linkextractors import LinkExtractor
from stage import OURS, STOCK
from tqdm import tqdm

from scrapy_aopic.testing.server import Answer, Exchange, Server

_TEXT = "<p>The quick brown fox jumps over the lazy dog, and does so for page {0} of {1} alone.</p>\n" * 20


class Web:
    """Hosts whose pages are made when they are asked for: links to the host's own pages, and a fifth to others."""

    def __init__(self, hosts: int, links: int) -> None:
        self.hosts = hosts
        self.links = links

    def answer(self, exchange: Exchange) -> Answer:
        host, page = int(exchange.host[1:-5]), int(exchange.target[3:])
        links = []
        for n in range(self.links):
            mixed = (host * 7919 + page * 104729 + n * 1299709) * 2654435761 >> 7
            if n % 5:
                links.append(f"/p/{n if n < self.links // 4 else mixed % 5000}")
            else:
                links.append(f"http://h{mixed % self.hosts}.test/p/{mixed // self.hosts % 50}")
        anchors = "\n".join(f'<a href="{link}">Link {link}</a>' for link in links)
        body = f"<html><head><title>Page {page}</title></head><body>{_TEXT.format(page, host)}{anchors}</body></html>"
        return Answer(headers={"Content-Type": "text/html; charset=utf-8"}, body=body.encode())


class Broad(Spider):
    """Follows every link."""

    name = "broad"

    def __init__(self, hosts: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [f"http://h{host}.test/p/0" for host in range(hosts)]
        self.extract = LinkExtractor()

    def parse(self, response: Any) -> Any:
        for link in self.extract.extract_links(response):
            yield response.follow(link)


def serve(hosts: int, links: int) -> None:
    """Serve until standard input ends."""
    with Server(Web(hosts, links).answer).run_in_thread() as running:
        print(running.port, flush=True)
        sys.stdin.read()
    os._exit(0)  # nobody reads what it would print


def crawl(hosts: int, links: int, pages: int, kind: str, watches: bool = False) -> dict[str, Any]:
    """CPU milliseconds a page of ``ours``, ``stock`` (in memory) or ``jobdir`` (stock on disk)."""
    arguments = f'{{"hosts": {hosts}, "links": {links}}}'
    command = [sys.executable, str(HERE), "--task", "crawls:serve", arguments]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server,
    ):
        assert server.stdout is not None
        os.environ["http_proxy"] = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        settings = {
            **(OURS if kind == "ours" else STOCK),
            "AOPIC_POLITENESS_FACTOR": 10,
            **({} if kind == "stock" else {"JOBDIR": folder}),
            "CLOSESPIDER_PAGECOUNT": pages,
            "CONCURRENT_REQUESTS": 32,
            "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
            "LOG_LEVEL": "ERROR",
            "TELNETCONSOLE_ENABLED": False,
        }
        process = CrawlerProcess(settings)
        crawler = process.create_crawler(Broad)
        calls = _watch() if watches else []
        process.crawl(crawler, hosts=hosts)
        began, wall = time.process_time(), time.perf_counter()
        with samples():
            process.start()
        cpu, seconds = time.process_time() - began, time.perf_counter() - wall
        assert server.stdin is not None
        server.stdin.close()
    assert crawler.stats is not None
    n = crawler.stats.get_value("downloader/response_status_count/200", 0)
    assert n >= pages, f"only {n} pages were fetched"
    calls.sort()
    found = {"ms": cpu / n * 1000, "rate": n / seconds, "pages": n}
    if calls:
        found |= {"p999": calls[int(len(calls) * 0.999)] * 1000, "longest": calls[-1] * 1000}
    return found


def _watch() -> list[float]:
    """Seconds that each call from the event loop into the scheduler takes."""
    from scrapy_aopic import Scheduler
    from scrapy_aopic.session.dispatch import Dispatch
    from scrapy_aopic.session.pacer import JobPacer
    from scrapy_aopic.session.responses import Responses
    from scrapy_aopic.session.session import Session

    calls: list[float] = []
    for cls, names in (
        (Scheduler, ("next_request", "enqueue_request", "has_pending_requests")),
        (Session, ("_beat",)),
        (Dispatch, ("_finished",)),
        (Responses, ("compare",)),
        (JobPacer, ("transferred",)),
    ):
        for name in names:
            _time(cls, name, calls)
    return calls


def _time(cls: Any, name: str, calls: list[float]) -> None:
    method = getattr(cls, name)

    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return method(*args, **kwargs)
        finally:
            calls.append(time.perf_counter() - began)

    setattr(cls, name, timed)


def part(run: Runner) -> None:
    """Whole crawls, ours with all on beside Scrapy's scheduler in memory and on disk."""
    for hosts, links, wanted in ((1000, 20, 1.1), (1000, 50, 1.1), (5000, 20, 1.0)):
        what = {"hosts": hosts, "links": links, "pages": max(run.options.pages, hosts * 6 // 5)}
        mine, other, on_disk = run.by_turns(
            *(("crawls:crawl", {**what, "kind": kind}) for kind in ("ours", "stock", "jobdir"))
        )
        name = f"{hosts:,} hosts, {links} links a page"
        run.add(
            "crawl",
            f"{name}, to Scrapy in memory",
            "ms CPU/page",
            mine["ms"],
            peer=other["ms"],
            wanted=wanted,
        )
        run.add(
            "crawl",
            f"{name}, to Scrapy with JOBDIR",
            "ms CPU/page",
            mine["ms"],
            peer=on_disk["ms"],
            wanted=0.8,
        )
        tqdm.write(f"{name}: {mine['rate']:.0f}, {other['rate']:.0f} and {on_disk['rate']:.0f} pages/s")
