"""A spider that asks for pages on purpose, for processes of their own: ``scrapy runspider wish_spider.py``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from scrapy import Request
from scrapy.http import Response

from support.follow_spider import Follow

HOSTS = [f"h{n}.test" for n in range(1, 5)]
PRIORITIES = (20_261_128, 300, 5, 1, 0, -1)
PAGES = [f"http://{host}/{priority}" for host in HOSTS for priority in PRIORITIES]


class Wishes(Follow):
    """Asks for each page with a callback and arguments, follows a link to it, and writes which callbacks have got it with what."""

    start_urls = ["http://h0.test/home"]

    def parse(self, response: Response) -> Iterator[Any]:
        self.note(response, "parse")
        if response.url == self.start_urls[0]:
            for url in Random(1).sample(PAGES, len(PAGES)):
                priority = int(url.rpartition("/")[2])
                kwargs = {"n": priority, "tags": ["a", {"b": url}]}
                yield Request(url, self.detail, cb_kwargs=kwargs, dont_filter=True, priority=priority)
                yield Request(url, priority=priority)

    def detail(self, response: Response, n: int, tags: list[Any]) -> None:
        self.note(response, "detail", n, tags)

    def note(self, response: Response, *what: Any) -> None:
        with Path("seen.jsonl").open("a") as file:
            file.write(f"{json.dumps([response.url, *what])}\n")
