"""Crawl: the CPU of whole crawls of a web that a process of its own serves, so that only the crawler's counts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, NamedTuple

import spiders
from measure import HERE, Runner, Samples, number, samples
from scrapy.crawler import CrawlerProcess
from stage import OURS, STOCK
from tqdm import tqdm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Spider


class Kind(NamedTuple):
    """A way to crawl.

    Attributes:
        is_durable: Whether there is a job folder.
    """

    settings: dict[str, Any]
    spider: type[Spider]
    is_durable: bool


ADDON: dict[str, Any] = {
    "ADDONS": {"scrapy_aopic.Addon": 500},
    "LOGSTATS_INTERVAL": 0,
    "AOPIC_POLITENESS_FACTOR": 0,
}

NEIGHBOURS = {"CONCURRENT_REQUESTS": 32, "CONCURRENT_REQUESTS_PER_DOMAIN": 8}
"""The same for all; with the add-on, its own."""

ALIKE = {"AOPIC_POLITENESS_FACTOR": 10, "CONCURRENT_REQUESTS": 32, "ROBOTSTXT_OBEY": False}
"""What makes a crawl with the add-on comparable with one that has none."""

KINDS = {
    "ours": Kind(OURS, spiders.Broad, True),
    "ours-extractor": Kind(OURS, spiders.FastBroad, True),
    "addon-links-alike": Kind({**ADDON, **ALIKE}, spiders.Batch, True),
    "stock": Kind(STOCK, spiders.Broad, False),
    "jobdir": Kind(STOCK, spiders.Broad, True),
}
"""Ours with the spider unchanged, and with our extractor; ``Links`` with all that the add-on turns on; Scrapy's scheduler in
memory, and with JOBDIR."""


@contextmanager
def served(**web: Any) -> Iterator[str]:
    """Serve a web (:func:`webs.serve`) from another process, to crawls of this one; yields what its URLs begin with."""
    command = [sys.executable, str(HERE), "--task", "webs:serve", json.dumps(web)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        port, site = server.stdout.readline().split()
        if site.startswith("https:"):  # by a proxy, it would be another way of Scrapy's
            look_up = socket.getaddrinfo
            socket.getaddrinfo = lambda _, *rest, **words: look_up("127.0.0.1", *rest, **words)
        else:
            os.environ["http_proxy"] = f"http://127.0.0.1:{port}"
        yield site
        server.stdin.close()


def crawl(
    *,
    hosts: int,
    links: int,
    pages: int,
    kind: str,
    kilobytes: int = 0,
    new: int | None = None,
    has_queries: bool = False,
    tls: bool = False,
    settings: dict[str, Any] | None = None,
    in_parts: bool = False,
) -> dict[str, Any]:
    """CPU milliseconds a page of a crawl of this *kind* (:data:`KINDS`), all and by layer (:data:`LAYERS`)."""
    own, spider, is_durable = KINDS[kind]
    web = {"hosts": hosts, "links": links, "kilobytes": kilobytes, "new": new, "has_queries": has_queries}
    with tempfile.TemporaryDirectory() as folder, served(**web, tls=tls) as site:
        process = CrawlerProcess(
            {
                **({} if "ADDONS" in own else {**NEIGHBOURS, "AOPIC_POLITENESS_FACTOR": 10}),
                **own,
                **({"JOBDIR": folder} if is_durable else {}),
                # Files that say what robots may do count as pages there.
                "CLOSESPIDER_PAGECOUNT": pages + (hosts if own.get("ROBOTSTXT_OBEY", True) else 0),
                "LOG_LEVEL": "ERROR",
                "TELNETCONSOLE_ENABLED": False,
                **({"AOPIC_ALLOW_NETWORKS": ["127.0.0.0/8"]} if tls else {}),
                **(settings or {}),
            }
        )
        crawler = process.create_crawler(spider)
        process.crawl(crawler, hosts=hosts, site=site, has_queries=has_queries)
        began, main, wall = time.process_time(), time.thread_time(), time.perf_counter()
        with Samples() if in_parts else samples() as looked:
            process.start()
        cpu, seconds = time.process_time() - began, time.perf_counter() - wall
        main = time.thread_time() - main
    assert crawler.stats is not None
    n = crawler.stats.get_value("downloader/response_status_count/200", 0)
    assert n >= pages, f"only {n} pages were fetched"
    assert not crawler.stats.get_value("log_count/ERROR"), "there were errors"
    parts = _parts(looked, main / n, cpu / n) if looked else {}
    return {"ms": cpu / n * 1000, "rate": n / seconds, "pages": n, "parts": parts}


LAYERS = {
    "texts, links, URLs": ("scrapy_aopic/web",),
    "what becomes of a page and its links": ("scrapy_aopic/session",),
    "cash, queues, hosts": ("scrapy_aopic/core",),
    "commits and reads": ("scrapy_aopic/job", "scrapy_aopic/storage"),
    "downloads, Scrapy's private names": ("scrapy_aopic/_engine",),
    "the rest of this package": ("scrapy_aopic",),
    "Scrapy": ("scrapy",),
    "Twisted, asyncio": ("twisted", "asyncio"),
}
"""Where the time of a page goes, by the beginning of the package of the innermost frame."""

OTHERS, THREADS = "the spider, other libraries, Python", "other threads: commits"


def _parts(looked: Samples, main: float, cpu: float) -> dict[str, float]:
    """Milliseconds of a page by layer, of *main* seconds of the main thread and *cpu* of all; they add up to that."""
    parts = dict.fromkeys([*LAYERS, OTHERS], 0.0)
    for package, n in looked.of.items():
        layer = next((name for name, begins in LAYERS.items() if package.startswith(begins)), OTHERS)
        parts[layer] += 1000 * main * n / looked.of.total()
    return {**parts, THREADS: 1000 * (cpu - main)}


class Compared(NamedTuple):
    """A web, and which kinds are compared on it.

    Attributes:
        rows: Kind, the one that it is compared with, and the ratio that is wanted; 0 if none is.
        new: Links of a page that are on no other page, if that is always the same.
        has_queries: Whether the URLs of its pages have queries.
    """

    hosts: int
    links: int
    kilobytes: int
    rows: tuple[tuple[str, str, float], ...]
    new: int | None = None
    has_queries: bool = False

    @property
    def name(self) -> str:
        size = f", {self.kilobytes} kB" if self.kilobytes else ""
        new = f", {self.new} of them new" if self.new is not None else ""
        return f"{self.hosts:,} hosts, {self.links} links{new}{', queries' * self.has_queries}{size}"

    @property
    def option(self) -> str:
        """How it is called on the command line."""
        new = f"/{self.new}" if self.new is not None else ""
        return f"{self.hosts}x{self.links}{new}{'?' * self.has_queries}"


WEBS = (
    Compared(
        1000,
        40,
        0,
        (
            ("addon-links-alike", "stock", 0.45),
            ("addon-links-alike", "jobdir", 0.45),
            ("ours-extractor", "stock", 0.75),
            ("ours", "stock", 0.0),
            ("ours", "jobdir", 0.0),
        ),
    ),
    Compared(1000, 100, 100, (("addon-links-alike", "stock", 0.6), ("ours", "stock", 0.0))),
    *(
        Compared(100, 40, 0, (("addon-links-alike", "stock", 0.33), ("ours", "stock", 0.0)), 4, has_queries)
        for has_queries in (False, True)
    ),
)

_WORDS = {
    "ours": "Requests",
    "ours-extractor": "our LinkExtractor",
    "addon-links-alike": "the add-on and Links",
    "stock": "Scrapy in memory",
    "jobdir": "Scrapy with JOBDIR",
}


def _task(run: Runner, web: Compared) -> dict[str, Any]:
    """Arguments of :func:`crawl` for *web*, but for the kind."""
    what = {"hosts": web.hosts, "links": web.links, "kilobytes": web.kilobytes, "new": web.new}
    return {**what, "has_queries": web.has_queries, "pages": max(run.options.pages, web.hosts * 6 // 5)}


def part(run: Runner) -> None:
    """Whole crawls, ours with all on beside Scrapy's scheduler in memory and on disk."""
    wanted = run.options.webs or [web.option for web in WEBS]
    for web in WEBS:
        if web.option not in wanted:
            continue
        what = _task(run, web)
        kinds = [kind for kind in KINDS if any(kind in row for row in web.rows)]
        runs = dict(
            zip(kinds, run.rounds(*(("crawls:crawl", {**what, "kind": kind}) for kind in kinds)), strict=True)
        )
        for kind, other, ratio in web.rows:
            run.add_paired(
                "crawl",
                f"{web.name}, {_WORDS[kind]}, to {_WORDS[other]}",
                "ms CPU/page",
                [found["ms"] for found in runs[kind]],
                [found["ms"] for found in runs[other]],
                wanted=ratio or None,
            )
        rates = ", ".join(f"{kind} {median(found['rate'] for found in runs[kind]):.0f}" for kind in kinds)
        tqdm.write(f"{web.name}, pages/s on the clock: {rates}")


def beside(run: Runner, commit: str, python: str) -> None:
    """The same crawls now and as they were at *commit*, which *python* has installed."""
    for web in WEBS:
        if web.option not in run.options.webs:
            continue
        for kind in ("addon-links-alike", "ours"):
            task = {**_task(run, web), "kind": kind, "in_parts": run.options.parts}
            runs = run.rounds(("crawls:crawl", task), ("crawls:crawl", {**task, "python": python}))
            now, before = [[found["ms"] for found in each] for each in runs]
            run.add_paired("crawl", f"{web.name}, {_WORDS[kind]}, to {commit}", "ms CPU/page", now, before)
            for part in runs[0][0]["parts"]:
                means = [fmean(found["parts"][part] for found in each) for each in runs]
                tqdm.write(f"| | {part} | | {number(means[0])} | {number(means[1])} | | | |")
