"""Counts the Python calls inside the package for one page: it is read, its links come, its transfer ends, it is settled.

    python benchmarks calls                 # a page of 40 requests, half of them to pages that are known
    python benchmarks calls --kind links    # the same as one object, scrapy_aopic.Links
    python benchmarks calls --by name       # and which functions they are

The scheduler is a real one on a store in memory, the engine downloads nothing, and the link middleware gets the page's
requests as Scrapy hands them over. The page counted is one in the middle of a crawl, so that caches are warm.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import options
from options import Among

sys.path.insert(0, str(Path(__file__).parent / "bench"))

from scrapy.http import HtmlResponse
from stage import OURS, Stage

import scrapy_aopic
from scrapy_aopic import LinkMiddleware, Links
from scrapy_aopic.session import time_slices

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from types import CodeType, FrameType

    from typing_extensions import Self

_INSIDE = str(Path(scrapy_aopic.__file__).parent)
_HOSTS = 13
_PARTS = ("page", "links", "transfer", "settle and next")
_WARM_UP = 60
"""Pages crawled before the one that is counted."""


class Calls:
    """Inside it, the calls of functions of the package are counted, generators once for each time they go on."""

    def __init__(self) -> None:
        self.of: Counter[CodeType] = Counter()

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_INSIDE):
            self.of[frame.f_code] += 1


def _now(items: AsyncIterator[Any]) -> Iterator[Any]:
    """What *items*, which wait for nothing, are."""
    while True:
        try:
            items.__anext__().__await__().send(None)
        except StopIteration as yielded:  # noqa: PERF203 - so a coroutine returns
            yield yielded.value
        except StopAsyncIteration:
            return


async def _each(items: list[Any]) -> Any:
    for item in items:
        yield item


class Pages:
    """Pages with links, half of them to pages that were linked to before.

    Args:
        kind: What callbacks yield: ``requests`` or ``links``.
    """

    def __init__(self, n_links: int, kind: str) -> None:
        self._kind = kind
        time_slices.SLICE = math.inf  # nobody else has anything to do
        self.stage = Stage({**OURS, "AOPIC_STORE": "memory"})
        self._links: LinkMiddleware = self.stage.scheduler._components.links
        self._n_links = n_links
        self._n = 0
        for host in range(_HOSTS):
            self.stage.scheduler.enqueue_request(self.stage.request(f"http://host{host}.example/"))

    def _urls(self) -> list[str]:
        half = self._n_links // 2
        numbers = [*range(max(self._n - half, 0), self._n), *range(self._n, self._n + self._n_links - half)]
        self._n += self._n_links - half
        return [f"http://host{each % _HOSTS}.example/page/{each}" for each in numbers]

    def crawl(self, parts: dict[str, Calls]) -> None:
        """Crawl a page; count what is done for it in *parts*."""
        stage = self.stage
        request = stage.pop()
        request.meta.setdefault("depth", 0)  # which Scrapy's middleware sets
        urls = self._urls()
        body = "".join(f'<a href="{url}">' for url in urls).encode()
        response = HtmlResponse(request.url, body=body, request=request)
        found: list[Any] = [stage.request(url) for url in urls]
        if self._kind == "links":
            found = [Links(response, callback=stage.spider.parse)]
        with parts["page"]:
            self._links.process_spider_input(response)
        with parts["links"]:
            for link in _now(self._links.process_spider_output(response, _each(found))):
                stage.scheduler.enqueue_request(link)
        with parts["transfer"]:
            stage.transferred(request)
        with parts["settle and next"]:
            stage.done(request)
            request = stage.pop()
        stage.done(request)


def main() -> None:
    args = options.read(
        __doc__, links=40, kind=Among("requests", ["requests", "links"]), by=Among("part", ["part", "name"])
    )
    pages = Pages(args.links, args.kind)
    for _ in range(_WARM_UP):
        pages.crawl({part: Calls() for part in _PARTS})
    parts = {part: Calls() for part in _PARTS}
    pages.crawl(parts)
    for part, calls in parts.items():
        print(f"{calls.of.total():>6} {part}")
        if args.by == "name":
            for code, n in calls.of.most_common():
                print(f"{n:>14} {Path(code.co_filename).relative_to(_INSIDE)} {code.co_qualname}")
    print(f"{sum(calls.of.total() for calls in parts.values()):>6} in all")
    pages.stage.scheduler.close("finished")


if __name__ == "__main__":
    main()
