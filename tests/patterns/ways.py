"""Runs a pattern in one of its ways, and says what came of it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from demo_web.server import Server
from itemadapter import ItemAdapter
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.http import Response
from support import processes
from support.small_web import crawler_of
from twisted.internet.abstract import isIPAddress
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import DNSLookupError
from twisted.internet.interfaces import IResolverSimple
from zope.interface import implementer

from .listing import WAYS, Pattern
from .shop import Site

QUICK = {"AOPIC_POLITENESS_FACTOR": 0, "AOPIC_BACKOFF": 0.01, "AOPIC_MAX_BACKOFF": 0.05, "AOPIC_MAX_WAIT": 1}
"""Gaps so short that nobody waits for them."""

COUNTED = (
    "retry/count", "retry/max_reached", "httperror/response_ignored_count", "item_dropped_count",
    "dupefilter/filtered", "offsite/filtered", "request_depth_max",
)  # fmt: skip
"""Stats of Scrapy's that are compared, besides those of the pattern."""


class StuckError(AssertionError):
    """A crawl did not end."""


@implementer(IResolverSimple)
class _Nowhere:
    """Knows no name: the hosts of the site are reached by a proxy."""

    def getHostByName(self, name: str, timeout: object = None) -> Deferred[str]:
        return succeed(name) if isIPAddress(name) else fail(DNSLookupError(name))


@contextmanager
def serve() -> Iterator[Site]:
    """The site, behind a proxy that all crawls use, but for names that do not exist and for this machine."""
    from twisted.internet import reactor

    site = Site()
    with Server(site.answer).run_in_thread() as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("http_proxy", running.url)
        patch.setenv("no_proxy", ".invalid,127.0.0.1")
        old = reactor.installResolver(_Nowhere())
        yield site
        reactor.installResolver(old)


def _in_folder(value: Any, folder: Path) -> Any:
    """A setting with the *folder* of the run in place of ``{folder}``."""
    if isinstance(value, str):
        return value.replace("{folder}", str(folder))
    if isinstance(value, dict):
        return {_in_folder(key, folder): _in_folder(each, folder) for key, each in value.items()}
    return value


async def run(pattern: Pattern, way: str, site: Site, folder: Path, patience: float) -> dict[str, Any]:
    """What comes of a *pattern* that is run in a *way* for *patience* seconds at most.

    ``items``, in any order; ``requests`` at the server, but for robots.txt; ``callbacks`` that responses are for, in any order;
    ``noted``; ``reason`` of its end; ``errors`` in the log; ``files`` in the folder ``out``; and some of Scrapy's stats.
    """
    agent = f"{pattern.name} ({way})"
    folder.mkdir(exist_ok=True)
    settings = {**QUICK, **_in_folder(dict(pattern.settings), folder), **WAYS[way], "USER_AGENT": agent}
    if way.endswith("job"):
        settings["JOBDIR"] = str(folder / "job")
    if pattern.command:
        result = _run_command(pattern, settings, folder)
    else:
        results = [await _crawl(pattern, settings, patience) for _ in range(pattern.runs)]
        result = {**results[-1], "items": [item for each in results for item in each["items"]]}
        result["reason"] = ", ".join(each["reason"] for each in results)
    return {
        **result,
        "items": sorted(result["items"], key=repr),
        "requests": dict(sorted(site.asked.pop(agent, {}).items())),
        "files": {
            path.relative_to(folder).as_posix(): (
                sorted(path.read_text().splitlines())
                if path.suffix in {".jl", ".csv"}
                else path.stat().st_size
            )
            for path in sorted((folder / "out").rglob("*"))
            if path.is_file()
        },
    }


def _run_command(pattern: Pattern, settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run the command of a *pattern* in a project of its own."""
    project = {**settings, "SPIDER_MODULES": [pattern.spider.__module__], "REMOTE_CONTROL_ENABLED": False}
    lines = [f"{name} = {value!r}" for name, value in project.items()]
    (folder / "project_settings.py").write_text("\n".join(lines))
    done = processes.run_and_read(
        [sys.executable, "-m", "scrapy", *pattern.command],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
            "SCRAPY_SETTINGS_MODULE": "project_settings",
        },
    )
    return {
        "items": list(filter(None, done.stdout.splitlines())),
        "noted": {},
        "reason": f"exit code {done.returncode}",
        "errors": done.stderr.count("] ERROR: "),
    }


async def _crawl(pattern: Pattern, settings: dict[str, Any], patience: float) -> dict[str, Any]:
    crawler = crawler_of(pattern.spider, settings)
    items: list[Any] = []
    callbacks: list[tuple[str, str]] = []
    reasons: list[str] = []

    def scraped(item: Any) -> None:
        items.append(ItemAdapter(item).asdict())

    def received(response: Response, request: Request) -> None:
        if not request.url.endswith("/robots.txt"):
            callback = request.callback
            name = "parse" if callback is None else getattr(callback, "__name__", type(callback).__name__)
            callbacks.append((name, request.url))

    def closed(spider: Spider, reason: str) -> None:
        reasons.append(reason)

    crawler.signals.connect(scraped, signal=signals.item_scraped)
    crawler.signals.connect(received, signal=signals.response_received)
    crawler.signals.connect(closed, signal=signals.spider_closed)
    await _end(crawler, patience)
    stats = crawler.stats.get_stats()
    return {
        "items": items,
        "callbacks": sorted(callbacks),
        "noted": {name.removeprefix("noted/"): stats[name] for name in stats if name.startswith("noted/")},
        "reason": ", ".join(reasons),
        "errors": stats.get("log_count/ERROR", 0),
        **{name: stats.get(name, 0) for name in COUNTED},
    }


async def _end(crawler: Crawler, patience: float) -> None:
    """Run *crawler* to its end, or raise when it does not end by itself."""
    crawl = asyncio.ensure_future(crawler.crawl_async())
    done, _ = await asyncio.wait({crawl}, timeout=patience)
    if not done:
        stopping = asyncio.ensure_future(crawler.stop_async())
        for _ in range(100):  # the next pattern begins with nothing left of this one, if that can be
            if crawl.done():
                await stopping
                break
            for each in vars(crawler.spider).values():
                if isinstance(each, asyncio.Event):
                    each.set()
                elif isinstance(each, asyncio.Queue):
                    each.put_nowait(None)
            await asyncio.wait({crawl}, timeout=0.1)
        raise StuckError(f"the crawl did not end by itself within {patience} seconds")
    crawl.result()
