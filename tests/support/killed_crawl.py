"""A small web, the command that crawls it in a process of its own, which a test may kill, and what its log shows then."""

from __future__ import annotations

import os
import random
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

from demo_web.server import Answer, Exchange
from demo_web.server_log import Entry, audit

from .small_web import html

N_HOSTS, N_PAGES, FACTOR = 20, 15, 2

TAKEN_UP = 2.0
"""Seconds after which the server takes up what was on its way at a kill, at most, on a busy machine."""

SPIDER = Path(__file__).parent / "follow_spider.py"


def answer(exchange: Exchange) -> Answer:
    """A page that links to others, all reachable from the first."""
    host, page = int(exchange.host[1:-5]), exchange.target[1:]
    if not page.isdigit():
        return Answer(404)
    rng = random.Random(f"{host}/{page}")
    links = [f"http://h{rng.randrange(N_HOSTS)}.test/{rng.randrange(N_PAGES)}" for _ in range(8)]
    links += [
        f"http://h{(host + 1) % N_HOSTS}.test/{page}",
        f"http://h{host}.test/{(int(page) + 1) % N_PAGES}",
    ]
    return Answer(headers={"Content-Type": "text/html"}, body=html(links), delay=0.005)


def pages_of(log: list[Entry]) -> dict[tuple[str, str], list[Entry]]:
    """What was fetched as a whole, by page."""
    pages = defaultdict(list)
    for entry in log:
        if entry.status == 200:
            pages[entry.host, entry.target].append(entry)
    return pages


def check_log(log: list[Entry], kills: list[float]) -> None:
    """Each page was fetched, and again only if something was killed in between, and no host was bothered.

    The server may take up a little later what was on its way at a kill.
    """
    pages = pages_of(log)
    assert len(pages) == N_HOSTS * N_PAGES
    for entries in pages.values():
        for first, second in pairwise(entries):
            is_between = any(first.start - TAKEN_UP <= kill <= second.start for kill in kills)
            assert is_between, (first, second, kills)
    polite = audit(log, FACTOR)
    assert (polite.n_overlaps, polite.n_short_gaps) == (0, 0), polite


def command(
    folder: Path, proxy: str, *, spider: Path = SPIDER, **settings: object
) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment of a crawl by way of *proxy*."""
    values = {
        "SCHEDULER": "scrapy_aopic.Scheduler", "JOBDIR": folder, "AOPIC_POLITENESS_FACTOR": FACTOR,
        "AOPIC_DURABILITY": 100, "LOG_LEVEL": "ERROR", "REMOTE_CONTROL_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False, **settings,
    }  # fmt: skip
    options = [option for name, value in values.items() for option in ("-s", f"{name}={value}")]
    line = [sys.executable, "-m", "scrapy", "runspider", str(spider), *options]
    return line, {**os.environ, "http_proxy": proxy, "PYTHONPATH": os.pathsep.join(sys.path)}
