"""Crawlee for Python: python crawlee_parsel.py PAGES SEEDS CONCURRENCY [--keep], in a folder where it may store things."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

from crawlee import ConcurrencySettings
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.storage_clients import FileSystemStorageClient, MemoryStorageClient


async def crawl(pages: int, seeds: list[str], concurrency: int, *, keeps: bool) -> int:
    """Fetch *pages* pages and follow all of their links; returns how many there were."""
    crawler = ParselCrawler(
        storage_client=FileSystemStorageClient() if keeps else MemoryStorageClient(),
        concurrency_settings=ConcurrencySettings(
            min_concurrency=concurrency, max_concurrency=concurrency, desired_concurrency=concurrency
        ),
        max_requests_per_crawl=pages,
        configure_logging=False,
    )

    async def follow(context: ParselCrawlingContext) -> None:
        await context.enqueue_links(strategy="all")

    crawler.router.default_handler(follow)
    found = await crawler.run(seeds)
    return int(found.requests_finished)


def main() -> None:
    logging.disable(logging.WARNING)
    pages, seeds, concurrency, *keep = sys.argv[1:]
    urls = Path(seeds).read_text("utf-8").split()
    n = asyncio.run(crawl(int(pages), urls, int(concurrency), keeps=bool(keep)))
    print(json.dumps({"pages": n}))


main()
