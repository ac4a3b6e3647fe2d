"""A loop over aiohttp and lexbor: python aiohttp_loop.py PAGES SEEDS CONCURRENCY"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from pathlib import Path
from urllib.parse import urljoin

from aiohttp import ClientSession, TCPConnector
from selectolax.lexbor import LexborHTMLParser


async def crawl(pages: int, seeds: list[str], concurrency: int) -> int:
    """Fetch *pages* pages, first found first, and follow all of their links; returns how many there were."""
    waiting, known, n = deque(seeds), set(seeds), 0

    async def work(session: ClientSession) -> None:
        nonlocal n
        while n < pages:
            if not waiting:
                await asyncio.sleep(0.001)
                continue
            n += 1
            page = waiting.popleft()
            async with session.get(page) as response:
                tree = LexborHTMLParser(await response.read())
            for node in tree.css("a[href]"):
                url = urljoin(page, node.attributes["href"])
                if url not in known:
                    known.add(url)
                    waiting.append(url)

    async with ClientSession(connector=TCPConnector(limit=concurrency)) as session:
        await asyncio.gather(*(work(session) for _ in range(concurrency)))
    return n


def main() -> None:
    pages, seeds, concurrency = sys.argv[1:]
    n = asyncio.run(crawl(int(pages), Path(seeds).read_text("utf-8").split(), int(concurrency)))
    print(json.dumps({"pages": n}))


main()
