"""Rounds give the same answers in every store, in shards and with several workers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from demo_web.server import Answer, Exchange
from support import redis_server
from support.short_forms import some_of
from support.small_web import Follow, crawl, html

import scrapy_aopic
from scrapy_aopic.commands.common import job_place
from scrapy_aopic.view.exporting import export_pages
from scrapy_aopic.view.job_view import open_view
from scrapy_aopic.view.queries import rounds_in

redis = redis_server.needed()

HOME, SAME, GONE, MOVED, NEW = (f"http://{name}.test/" for name in ("home", "same", "gone", "moved", "new"))


class Web:
    """Five hosts; in the second round one has another link, one is gone until the fourth and one redirects."""

    def __init__(self) -> None:
        self.round = 1

    def __call__(self, exchange: Exchange) -> Answer:
        url = f"http://{exchange.host}{exchange.target}"
        if self.round in (2, 3) and url == GONE:
            return Answer(404)
        if self.round > 1 and url == MOVED:
            return Answer(301, {"Location": SAME})
        links = [SAME, GONE, MOVED, *[NEW] * (self.round > 1)] if url == HOME else []
        return Answer(headers={"Content-Type": "text/html"}, body=html(links))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shared", "workers"),
    some_of(
        {"sqlite": ("", 1), "shards": ("redis", 1), "workers": ("redis", 2), "rocksdb": ("rocksdb", 1)}, 3
    ),
)
async def test_changes_rounds_and_exports_are_the_same_everywhere(
    serve, server, tmp_path, shared, workers, *, caplog
):
    caplog.set_level("INFO", "scrapy_aopic.session.session")
    web, job = Web(), str(tmp_path / "job")
    serve(dict.fromkeys((HOME, SAME, GONE, MOVED, NEW), web))
    settings: dict[str, Any] = {"SCHEDULER": "scrapy_aopic.Scheduler", "AOPIC_RECRAWL": "once,changed,gone"}
    if shared == "redis":
        with redis.Redis.from_url(server.url) as client:
            client.flushall()
        job = f"{server.url}#aopic:follow"
        settings |= {
            "AOPIC_STORE": "redis",
            "AOPIC_SHARDS": 4,
            "AOPIC_DURABILITY": 50,
            "REDIS_URL": server.url,
        }
    else:
        settings |= {"AOPIC_STORE": shared or "sqlite", "JOBDIR": job}

    class Start(Follow):
        start_urls = [HOME]

    reader, given = scrapy_aopic.open_job(job), []
    cursor: str | int = 1
    for web.round in (1, 2, 3, 4):
        await asyncio.gather(*[crawl(Start, settings) for _ in range(workers)])
        changes = reader.changes(cursor)
        given.append(sorted((page.url, page.found) for page in changes))
        cursor = changes.cursor
    first = [(url, "new") for url in (GONE, HOME, MOVED, SAME)]
    second = [(GONE, "gone"), (HOME, "changed"), (MOVED, "moved"), (NEW, "new")]
    assert given == [first, second, [], [(GONE, "back")]]
    said = "Round 2: 1 of 4 known pages changed, 1 gone, 1 moved, 0 failed; 1 new."
    assert (said in caplog.text) == (shared != "redis"), "the log of a worker has no more than its part"
    with open_view(job_place(job)) as view:
        rounds = [(each.number, each.known, each.found) for each in rounds_in(view)]
        n = export_pages(view, str(tmp_path / "changed.jsonl"), since=2)
    assert rounds == [
        (1, 0, {"new": 4}),
        (2, 4, {"changed": 1, "unchanged": 1, "gone": 1, "moved": 1, "new": 1}),
        (3, 5, {"unchanged": 5}),
        (4, 5, {"unchanged": 4, "back": 1}),
    ]
    rows = [json.loads(line) for line in (tmp_path / "changed.jsonl").read_text("utf-8").splitlines()]
    assert sorted(row["url"] for row in rows) == [GONE, HOME, MOVED, NEW]
    assert n == len(rows)
