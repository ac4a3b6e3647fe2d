"""Whether a crawl of real pages leaves the same job behind, whichever way it found and followed their links.

    python benchmarks/same_crawl.py FOLDER [--pages 2000] [--seed 1]

FOLDER has saved web pages, one site in each of its folders; they are served inside the process by one host.
Crawls, each in a process of its own, fetch so many pages one after the other, from a page with links to some of each site: with Scrapy's
LinkExtractor and a ``Request`` for each, with ours, with ``Links``, and with ``Links`` of ours as its extractor.
What they stored is compared row by row: pages with their cash and history to the unit, queued requests byte by byte, links.

Exit status: 0 if all jobs are the same, 1 if not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace
from scrapy import Request, Spider
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import LinkExtractor as ScrapyLinkExtractor

from scrapy_aopic import LinkExtractor, Links, Scheduler
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.layout import Family
from scrapy_aopic.core.records import unpack_page
from scrapy_aopic.place.paths import store_folder
from scrapy_aopic.storage import open_snapshot

SEEDS_A_SITE = 3
HOST = "docs.test"
"""One host for all: which of several is ready first depends on time, and on that depends which page is next."""

START = f"http://{HOST}/"
"""Links to the seeds: that all are known before the first is fetched must not depend on time, either."""

SCRAPYS, OURS = ScrapyLinkExtractor(), LinkExtractor()


def by_request(spider: Spider, page: HtmlResponse) -> Iterator[Any]:
    for link in SCRAPYS.extract_links(page):
        yield Request(link.url)


def by_our_extractor(spider: Spider, page: HtmlResponse) -> Iterator[Any]:
    for link in OURS.extract_links(page):
        yield Request(link.url)


def by_links(spider: Spider, page: HtmlResponse) -> Iterator[Any]:
    yield Links(page)


def by_links_of_our_extractor(spider: Spider, page: HtmlResponse) -> Iterator[Any]:
    yield Links(page, extractor=OURS)


WAYS: dict[str, Callable[[Spider, HtmlResponse], Iterator[Any]]] = {
    "request": by_request,
    "our-extractor": by_our_extractor,
    "links": by_links,
    "links-of-extractor": by_links_of_our_extractor,
}


class OnePageAtATime(Scheduler):
    """Chooses a page when all links of the last one are known, so that the order does not depend on who is how fast."""

    def next_request(self) -> Request | None:
        return None if self.session is not None and len(self.session.visits) else super().next_request()


class Saved(BaseDownloadHandler):
    """Answers with the saved pages."""

    lazy = False
    folder: ClassVar[Path]
    start: ClassVar[bytes]

    def __init__(self, crawler: Any) -> None:
        pass

    @classmethod
    def from_crawler(cls, crawler: Any) -> Saved:
        return cls(crawler)

    async def download_request(self, request: Request) -> Response:
        if request.url == START:
            return HtmlResponse(START, body=self.start, request=request)
        parts = urlsplit(request.url)
        path = self.folder / unquote(parts.path).lstrip("/")
        if not path.is_file() or ".." in path.parts:
            return Response(request.url, status=404, request=request)
        return HtmlResponse(request.url, body=path.read_bytes(), request=request)

    async def close(self) -> None:
        pass


class Follows(Spider):
    name = "follows"
    way: ClassVar[Callable[[Spider, HtmlResponse], Iterator[Any]]]

    def parse(self, response: Any) -> Iterator[Any]:
        if isinstance(response, HtmlResponse):
            yield from type(self).way(self, response)


def seeds(folder: Path, seed: int) -> list[str]:
    random = Random(seed)
    urls = []
    for site in sorted(each for each in folder.iterdir() if each.is_dir()):
        paths = sorted(path for path in site.rglob("*.htm*") if path.is_file())
        chosen = random.sample(paths, min(SEEDS_A_SITE, len(paths)))
        urls += [f"{START}{path.relative_to(folder).as_posix()}" for path in chosen]
    return urls


def crawl(way: str, folder: Path, job: Path, n_pages: int, seed: int) -> None:
    Saved.folder = folder.resolve()
    Saved.start = "".join(f'<a href="{url}">' for url in seeds(folder, seed)).encode()
    process = AsyncCrawlerProcess(
        {
            "SCHEDULER": OnePageAtATime, "JOBDIR": str(job), "AOPIC_STORE": "sqlite", "AOPIC_KEEP_LINKS": True, "AOPIC_POLITENESS_FACTOR": 0, "AOPIC_MIN_GAP": 0, "AOPIC_BACKOFF": 0,
            "SPIDER_MIDDLEWARES": {"scrapy_aopic.LinkMiddleware": 2000}, "DOWNLOAD_HANDLERS": {"http": Saved, "https": Saved},
            "CLOSESPIDER_PAGECOUNT": n_pages, "RETRY_ENABLED": False, "LOG_LEVEL": "ERROR", "AOPIC_PROGRESS": 0, "AOPIC_MAX_LINKS": 10**6,
            "ROBOTSTXT_OBEY": False, "TELNETCONSOLE_ENABLED": False, "DOWNLOAD_DELAY": 0,
        }
    )  # fmt: skip
    spider = type(
        "Follows",
        (Follows,),
        {"way": staticmethod(WAYS[way]), "start_urls": [START], "allowed_domains": [HOST]},
    )
    began = time.process_time()
    process.crawl(spider)
    process.start()
    print(f"{time.process_time() - began:.1f}")


def stored(job: Path) -> dict[str, dict[bytes, Any]]:
    store = open_snapshot(store_folder(job))
    try:
        violations = audit(store).violations
        if violations:
            raise SystemExit(f"{job.name}: {violations}")
        return {
            "pages": {
                key: replace(unpack_page(row), visited_at=0.0) for key, row in store.scan(Family.PAGES)
            },
            "requests": dict(store.scan(Family.REQUESTS)),
            "links": dict(store.scan(Family.LINKS)),
        }
    finally:
        store.close()


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("folder", type=Path, metavar="FOLDER")
    options.add_argument("--pages", type=int, default=2000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options.add_argument("--job", type=Path, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.way:
        crawl(given.way, given.folder, given.job, given.pages, given.seed)
        return 0
    print(
        "| links by | CPU, s | pages | visited | queued requests | rows of links | |\n|---|--:|--:|--:|--:|--:|---|"
    )
    expected = None
    differs = False
    with tempfile.TemporaryDirectory() as folder:
        for way in WAYS:
            job = Path(folder) / way
            done = subprocess.run(
                [sys.executable, *sys.argv, "--way", way, "--job", str(job)],
                stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
            found = stored(job)
            expected = expected or found
            wrong = [
                f"{sum(expected[name].get(key) != found[name].get(key) for key in expected[name].keys() | found[name].keys()):,} {name}"
                for name in found
                if found[name] != expected[name]
            ]
            differs = differs or bool(wrong)
            n_visited = sum(page.visits > 0 for page in found["pages"].values())
            print(
                f"| {way} | {done.stdout.strip()} | {len(found['pages']):,} | {n_visited:,} | {len(found['requests']):,} "
                f"| {len(found['links']):,} | {'DIFFERS: ' + ', '.join(wrong) if wrong else 'the same'} |",
                flush=True,
            )
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
