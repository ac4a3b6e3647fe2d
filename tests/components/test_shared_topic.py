"""A topic in a job with shards: what workers tell each other, and what a crawl of one worker after another finds."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, cast

import pytest
from demo_web.server import Answer
from msgspec.structs import replace
from scrapy.http import Response
from support import redis_server
from support.commands import run_here
from support.core_crawl import link
from support.crawls import on_server
from support.small_web import Follow, crawl

from scrapy_aopic.core.focus import harvest
from scrapy_aopic.core.focus.leads import Lead, LeadsOfPage, unpack_lead
from scrapy_aopic.core.focus.strategy import PageSeen
from scrapy_aopic.core.focus.topic import LinkText
from scrapy_aopic.core.order import LARGEST_VALUE, ORDERS
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.job.job import Job
from scrapy_aopic.job.shard_router import ShardRouter
from scrapy_aopic.place.cutting import begin_cut, new_sharding
from scrapy_aopic.session.topic import harvest_watch
from scrapy_aopic.storage import Address

if redis_server.find_server() is None:
    pytest.skip(redis_server.WHY_NOT, allow_module_level=True)
pytest.importorskip("hiredis")
redis = pytest.importorskip("redis")

from scrapy_aopic.job import shared_learning
from scrapy_aopic.job.shared_learning import HarvestOfJob, SharedLearning

HOME = "http://a.test/"
BREAD = "the baker opens the oven and sells bread"
ABOUT = "the database keeps each table, and a query in sql reads it"


def page(text: str, links: list[str]) -> Answer:
    anchors = "".join(f'<a href="{link}">on</a>' for link in links)
    return Answer(200, {"Content-Type": "text/html"}, f"<title>page</title><p>{text} {anchors}".encode())


HOSTS = [f"http://h{number}.test/" for number in range(40)]
TEXTS = {host: f"{ABOUT if number % 4 == 0 else BREAD} {number}" for number, host in enumerate(HOSTS)}
WEB = {HOME: page("all that there is", HOSTS), **{host: page(text, []) for host, text in TEXTS.items()}}
"""41 pages on as many hosts, 10 of which are about databases."""


@pytest.fixture
def settings(server: Any, client: Any) -> dict[str, Any]:
    topic = {"AOPIC_ORDER": "focused", "AOPIC_TOPIC": {"keywords": ["database", "sql"]}}
    middleware = {"SPIDER_MIDDLEWARES": {"scrapy_aopic.LinkMiddleware": 1000}}
    return on_server(server.url, 4, **topic, **middleware, AOPIC_MIN_GAP=0.01)


@contextmanager
def teachers(
    url: str, n: int, names: str = "worker", topic: int = 7
) -> Iterator[list[tuple[SharedLearning, HarvestOfJob]]]:
    address, each = Address("aopic:taught", url), []
    for number in range(n):
        harvest = HarvestOfJob()
        each.append((SharedLearning(address, f"{names} {number}", harvest, topic), harvest))
    try:
        yield each
    finally:
        for learning, _ in each:
            learning.close()


def until(holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := holds()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert found
    return found


def seen(number: int) -> PageSeen:
    link = LinkText(f"anchor {number}", path=f"/{number}")
    return PageSeen(
        f"http://a.test/{number}", 0.5, 0.1, True, number.to_bytes(16, "big"), bytes(16), link, 1, 0.5
    )


def test_what_one_worker_fetches_all_others_learn_from(server, client):
    with teachers(server.url, 3) as ((one, harvest), (two, _), (three, heard)):
        for number in range(5):
            one.tell(seen(number), Random(0))
            harvest.note(is_relevant=number < 2)
        for other in (two, three):
            assert [until(other.hear) for _ in range(5)] == [seen(number) for number in range(5)]
            assert other.hear() is None
        until(three.look)
        assert (heard.pages, heard.relevant, heard.rate_lately, heard.n_lately) == (5, 2, 0.4, 5)
        until(one.look)
        assert one.hear() is None, "nobody learns from a page twice"
        assert harvest.rate == 0.4


def test_whoever_comes_later_goes_on_with_what_was_kept_and_with_what_came_after(server, client):
    with teachers(server.url, 1) as ((first, harvest),):
        first.tell(seen(1), Random(0))
        harvest.note(is_relevant=True)
        until(first.look)
        first.keep(b"all of it")
        until(lambda: client.exists("{aopic:taught}:learned"))
        first.tell(seen(2), Random(0))
    with teachers(server.url, 1, "later") as ((later, _),):
        assert later.known == b"all of it"
        assert until(later.hear) == seen(2)
        assert later.hear() is None


def test_nothing_is_learned_from_a_worker_with_another_topic(server, client):
    with teachers(server.url, 1) as ((one, _),), teachers(server.url, 1, "baker", topic=8) as ((other, _),):
        one.tell(seen(1), Random(0))
        assert until(lambda: other.of_other_topic) == "worker 0"
        assert other.hear() is None
        other.tell(seen(2), Random(0))
        assert until(lambda: one.of_other_topic) == "baker 0"
        assert one.hear() is None


async def test_a_worker_with_another_topic_is_named(serve, settings, caplog):
    serve({HOME: page(ABOUT, [])})

    class Waits(Follow):
        async def parse(self, response: Response) -> None:
            address = Address("aopic:follow", settings["REDIS_URL"])
            stranger = SharedLearning(address, "baker", HarvestOfJob(), topic=8)
            stranger.tell(seen(1), Random(0))
            for _ in range(400):
                if "has another AOPIC_TOPIC" in caplog.text:
                    break
                await asyncio.sleep(0.05)
            stranger.close()

    crawler = await crawl(Waits, settings)
    assert "Worker baker of this job has another AOPIC_TOPIC" in caplog.text
    assert crawler.stats.get_value("aopic/topic/lessons") is None


def test_what_is_none_of_it_is_not_believed(server, client):
    client.xadd("{aopic:taught}:lessons", {"l": b"no lessons"})
    client.set("{aopic:taught}:learned", b"\x00\x01")
    client.hset("{aopic:taught}:grades", mapping={"pages": "many", "relevant": -3})
    with teachers(server.url, 2) as ((one, _), (two, heard)):
        assert one.known == b""
        one.tell(seen(1), Random(0))
        assert until(two.hear) == seen(1)
        assert (heard.rate, heard.rate_lately) == (0.0, 0.0)


def test_a_server_that_goes_away_stops_nobody(tmp_path):
    with redis_server.Server(tmp_path) as own, teachers(own.url, 2) as ((one, _), (two, _)):
        own.kill()
        for number in range(1000):
            one.tell(seen(number), Random(0))
        own.start()
        until(two.hear)


def test_waiting_pages_of_all_shards_are_valued_anew_a_few_at_a_time(server, client):
    address = Address("aopic:taught", server.url, lock_timeout=30.0)
    begin_cut(address, new_sharding(4, Policy()), lambda: None)
    policy = Policy(order=ORDERS["focused"]())
    job = Job(None, policy, address=address, shards=4, interval=0.05, topic=0)
    shards = cast("ShardRouter", job.crawl)

    def tick_until(holds: Callable[[], bool]) -> None:
        until(lambda: (job.tick(), holds())[1])

    tick_until(lambda: len(shards.held) == 4)
    shards.seed(link("home.test"), job.clock())
    tick_until(lambda: shards.counts.queued == 1)
    lease = shards.lease(job.clock())
    links = [link(f"host{number}.test", number) for number in range(40)]
    leads = LeadsOfPage(lease.key, 0.5, 1)
    found = [replace(of, value=100, lead=leads.pack(LinkText(of.host))) for of in links]
    shards.release(lease, job.clock())
    shards.settle(lease, found, job.clock())
    tick_until(lambda: shards.counts.queued == 40)
    job.commit_soon()
    commits = lambda held: held.shard.has_changes or held.commits.is_writing
    tick_until(lambda: not any(map(commits, shards.held.values())))
    valued, at, steps = list[str](), b"", 0

    def worth(lead: Lead) -> int:
        valued.append(lead.link.anchor)
        return 900

    while at or not steps:
        before = len(valued)
        _, at = shards.revalue(worth, job.clock(), at, 3)
        steps += 1
        assert len(valued) - before <= 3
    assert sorted(valued) == sorted(of.host for of in links)
    for of in links:
        page = shards.find(of.key, of.host)
        assert page.score & LARGEST_VALUE == 900
        assert unpack_lead(shards.lead(of.key)).link.anchor == of.host
    job.close()


@pytest.mark.slow
async def test_a_crawl_of_shards_for_a_topic_ends_whole_and_shows_it(serve, settings, capsys, tmp_path):
    web = serve(WEB)
    await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": 15})
    crawler = await crawl(Follow, settings)
    assert sorted(web.asked) == sorted(WEB)
    assert crawler.stats.get_value("aopic/topic/harvest") == pytest.approx(10 / 41)
    place = f"{settings['REDIS_URL']}#aopic:follow"

    def run(*arguments: object) -> str:
        return run_here(capsys, *arguments)[1]

    capsys.readouterr()
    topic = json.loads(run("status", place, "--json"))["topic"]
    assert (topic["pages"], topic["relevant"]) == (41, 10)
    assert topic["harvest"] == topic["lately"] == pytest.approx(10 / 41)
    assert json.loads(run("check", place, "--json"))["holds"]
    labels = tmp_path / "labels.jsonl"
    run("topic", "label", place, "--labels", labels, "--write", labels)
    assert len(labels.read_text().splitlines()) == 41


LINES = {
    f"{host}{n or ''}": page(f"{BREAD} {n}", [f"{host}{n + 1}"]) for host in HOSTS[:8] for n in range(400)
}
LONG = {HOME: page(ABOUT, HOSTS[:8]), **LINES}
"""Longer than what is fetched until the shards have heard of each other, also on a busy machine."""


@pytest.mark.slow
async def test_a_crawl_of_shards_ends_when_hardly_anything_is_relevant(serve, settings, monkeypatch):
    for module in (harvest, shared_learning, harvest_watch):
        monkeypatch.setattr(module, "LATELY", 100)
    web = serve(LONG)
    crawler = await crawl(Follow, {**settings, "AOPIC_MIN_HARVEST": 0.1, "AOPIC_MIN_GAP": 0})
    assert crawler.stats.get_value("finish_reason") == "aopic_harvest"
    assert 100 <= len(web.asked) < len(LONG)
