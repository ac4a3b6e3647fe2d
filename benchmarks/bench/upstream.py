"""Upstream: what patches of Scrapy and w3lib, in benchmarks/upstream, save in a crawl with Scrapy's own scheduler.

Each process that is measured imports copies of the two packages from a folder of its own; what is installed stays as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import HERE, cpu

if TYPE_CHECKING:
    from collections.abc import Callable

    from measure import Runner

PATCHES = HERE.parent / "upstream"

NAMES = ("links", "parallel", "output", "stats", "offsite", "w3lib")
"""In the order in which they are applied."""

_MOST_PAGES = 3000
"""Files in which links are looked for: from all over the folder, if it has more."""


def patched(folder: Path, names: tuple[str, ...]) -> Path:
    """A folder with copies of Scrapy and w3lib to which the patches of these *names* were applied; made once."""
    target = folder / f"patched-{'-'.join(names) or 'nothing'}"
    if target.exists():
        return target
    begun = target.with_suffix(".part")
    for package in ("scrapy", "w3lib"):
        found = find_spec(package)
        assert found is not None
        assert found.origin is not None
        shutil.copytree(
            Path(found.origin).parent, begun / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in names:
        subprocess.run(
            ["git", "apply", str(PATCHES / f"{name}.patch")],
            cwd=begun,
            env={**os.environ, "GIT_CEILING_DIRECTORIES": str(begun.parent)},
            check=True,
        )
    # Else the first run would compile them.
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(begun)], check=True)
    begun.rename(target)
    return target


def apart(path: str, what: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What the task *what* returns in a process that imports from *path* first."""
    done = subprocess.run(
        [sys.executable, str(HERE), "--task", what, json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def found(pages: str) -> dict[str, Any]:
    """A digest of all links that Scrapy's extractor finds in the HTML files below *pages*, and how many."""
    import scrapy
    from scrapy.http import HtmlResponse
    from scrapy.linkextractors import LinkExtractor

    extractors = [
        LinkExtractor(),
        LinkExtractor(canonicalize=True, deny_extensions=["php"], restrict_text="e"),
        LinkExtractor(tags="*", attrs=("href", "src"), restrict_css=("div", "p"), unique=False),
    ]
    digest, n, n_pages = hashlib.sha256(), 0, 0
    paths = [path for path in sorted(Path(pages).rglob("*.htm*")) if path.is_file()]
    for path in paths[:: len(paths) // _MOST_PAGES + 1]:
        n_pages += 1
        page = HtmlResponse(f"http://example.com/{path.name}", body=path.read_bytes())
        for extractor in extractors:
            try:
                said: list[object] = [*extractor.extract_links(page)]
            except (LookupError, ValueError) as error:  # no encoding, or a bad base URL
                said = [type(error).__name__]
            n += len(said)
            digest.update(repr(said).encode("utf-8", "surrogatepass"))
    return {"from": scrapy.__file__, "digest": digest.hexdigest(), "links": n, "pages": n_pages}


def steps() -> dict[str, float]:
    """Microseconds of CPU that the single steps take: the least of twenty rounds."""
    import asyncio

    from demo_web.server import Exchange
    from scrapy import Request, Spider
    from scrapy.core.spidermw import SpiderMiddlewareManager
    from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
    from scrapy.http import HtmlResponse
    from scrapy.linkextractors import LinkExtractor
    from scrapy.utils.asyncio import _parallel_asyncio
    from scrapy.utils.test import get_crawler
    from w3lib.url import safe_url_string
    from webs import Web

    crawler = get_crawler(Spider, {"LOG_LEVEL": "ERROR"})
    spider = crawler.spider = crawler._create_spider("bench")
    body = Web(1000, 40).answer(Exchange("GET", "h1.test", "/p/7", {})).body
    page = HtmlResponse("http://h1.test/p/7", body=body, request=Request("http://h1.test/p/7"))
    extractor, stats = LinkExtractor(), crawler.stats
    offsite = OffsiteMiddleware.from_crawler(crawler)
    offsite.spider_opened(spider)
    middlewares = SpiderMiddlewareManager.from_crawler(crawler)
    assert stats is not None

    async def nothing(item: object) -> None:
        pass

    async def pass_on() -> None:
        async def found() -> Any:
            for n in range(40):
                yield Request(f"http://h1.test/p/{n}")

        async for _ in await middlewares._process_callback_output(page, found()):
            pass

    def run(coroutine: Any) -> None:
        loop.run_until_complete(coroutine)

    loop = asyncio.new_event_loop()
    tasks: dict[str, tuple[Callable[[], object], int]] = {
        "links of a page extracted": (lambda: extractor.extract_links(page), 20),
        "tasks for a response that yields nothing": (lambda: run(_parallel_asyncio([], 100, nothing)), 20),
        "40 requests made and passed through the spider middlewares": (lambda: run(pass_on()), 20),
        "a stat counted": (lambda: stats.inc_value("bench"), 5000),
        "a request looked at without allowed_domains": (
            lambda: offsite.process_request(Request("http://h1.test/p/1")),
            500,
        ),
        "a safe URL made safe": (lambda: safe_url_string("http://h1.test/articles/p/1?a=b"), 2000),
    }
    found = {}
    for name, (task, n) in tasks.items():
        least = float("inf")
        for _ in range(20):
            with cpu(n) as took:
                for _ in range(n):
                    task()
            least = min(least, took["own_us"])
        found[name] = least
    return found


def part(run: Runner) -> None:
    """Crawls with Scrapy's scheduler in memory, with each patch, with all, and without."""
    what = {"hosts": 1000, "links": 40, "pages": run.options.pages, "kind": "stock"}
    variants = [(), *((name,) for name in NAMES), NAMES]
    folders = [str(patched(run.scratch, names)) for names in variants]
    before, after = run.by_turns(
        *(
            ("upstream:apart", {"path": path, "what": "upstream:steps", "arguments": {}})
            for path in (folders[0], folders[-1])
        )
    )
    for name, us in after.items():
        run.add("upstream", f"{name}, patched, to Scrapy as it is", "us CPU", us, peer=before[name])
    plain, *others = run.rounds(
        *(("upstream:apart", {"path": path, "what": "crawls:crawl", "arguments": what}) for path in folders)
    )
    for names, runs in zip(variants[1:], others, strict=True):
        run.add_paired(
            "upstream",
            f"Scrapy in memory with {names[0] if len(names) == 1 else 'all patches'}, to Scrapy as it is",
            "ms CPU/page",
            [each["ms"] for each in runs],
            [each["ms"] for each in plain],
        )
    if run.options.html:
        results = [
            apart(path, "upstream:found", {"pages": str(run.options.html)})
            for path in (folders[0], folders[-1])
        ]
        same = results[0]["digest"] == results[1]["digest"]
        run.note(
            f"With all patches, Scrapy's extractor finds {'the same' if same else 'NOT the same'} links in "
            f"{results[0]['pages']:,} pages: {results[0]['links']:,} in three ways, {results[1]['links']:,} with patches."
        )
