"""Download: what the scheduler and its middlewares cost a page that is only fetched, beside a scheduler that is a deque."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from scrapy.core.scheduler import BaseScheduler

if TYPE_CHECKING:
    from measure import Runner
    from scrapy import Request


OURS = {
    "ours-download": "links not followed",
    "addon-download": "the add-on, links not followed",
    "addon-download-only": "the add-on, links not followed, texts not compared",
}
"""Kinds of :data:`crawls.KINDS`, and what they are called."""


class NullScheduler(BaseScheduler):
    """Hands out requests in the order in which they came. It remembers nothing and recognises nothing."""

    def __init__(self) -> None:
        self._waiting: deque[Request] = deque()

    @classmethod
    def from_crawler(cls, crawler: Any) -> NullScheduler:
        return cls()

    def has_pending_requests(self) -> bool:
        return bool(self._waiting)

    def enqueue_request(self, request: Request) -> bool:
        self._waiting.append(request)
        return True

    def next_request(self) -> Request | None:
        return self._waiting.popleft() if self._waiting else None


def part(run: Runner) -> None:
    """Crawls that follow no links."""
    for hosts, kilobytes in ((200, 0), (1000, 0), (1000, 100)):
        what = {
            "hosts": hosts,
            "links": 40,
            "kilobytes": kilobytes,
            "pages": run.options.pages,
            "settings": {"AOPIC_POLITENESS_FACTOR": 0},
        }
        *ours, null = run.rounds(
            *(("crawls:crawl", {**what, "kind": kind}) for kind in (*OURS, "null-download"))
        )
        size = f", {kilobytes} kB" if kilobytes else ""
        for found, name in zip(ours, OURS.values(), strict=True):
            run.add_paired(
                "download",
                f"{hosts:,} hosts{size}, {name}, to a scheduler that is a deque",
                "ms CPU/page",
                [each["ms"] for each in found],
                [each["ms"] for each in null],
                wanted=None if kilobytes else 1.15,
            )
