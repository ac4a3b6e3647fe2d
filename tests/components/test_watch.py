"""Snapshots: of a crawl that runs, and of a store that nobody runs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from threading import Event
from typing import Any

import msgspec
import pytest
from demo_web.server import Answer
from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.http import Response
from support import crawls
from support.core_crawl import Job, link
from support.crawls import OURS, in_folder
from support.small_web import Follow, ask_view, crawl

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.layout import ACTIVE
from scrapy_aopic.core.politeness import Outcome, Politeness, Silence, TransferResult
from scrapy_aopic.core.ports import Batch
from scrapy_aopic.core.records import HostRecord
from scrapy_aopic.job.commit_thread import WatchedStore
from scrapy_aopic.session.session import Session
from scrapy_aopic.storage.memory import MemoryStore
from scrapy_aopic.view import live
from scrapy_aopic.view.host_walk import HostWalk, row_of
from scrapy_aopic.view.job_view import View
from scrapy_aopic.view.live import snapshot
from scrapy_aopic.view.snapshot import N_LISTED, PageCounts, Rate, Snapshot, TopicFigures, Verdict, forecast
from scrapy_aopic.view.stored import snapshot_of
from scrapy_aopic.view.verdict import verdict

ADDON = {**crawls.ADDON, "AOPIC_REPORT": False}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else runs on the machine that tests are run on is none of theirs."""
    monkeypatch.setattr(live, "_starved", lambda: 0.0)


class LooksAtTheEnd(Follow):
    """Takes a snapshot when there is nothing left to do."""

    seen: list[Snapshot]

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> LooksAtTheEnd:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.look, signal=signals.spider_idle)
        return spider

    def look(self) -> None:
        self.seen.append(snapshot(Session.of(self.crawler)))


class Looks(Follow):
    """Takes a snapshot in each callback."""

    seen: list[Snapshot]

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        self.seen.append(snapshot(Session.of(self.crawler)))
        for request in super().parse(response):
            yield request


async def test_a_snapshot_has_what_the_crawl_does_and_the_store_has_the_same_afterwards(serve, tmp_path):
    links = ["http://a.test/1", "http://b.test/", "http://c.test/none", "http://a.test/x/x/x/x/x/x"]
    pages = {"http://a.test/": links, "http://a.test/1": ["http://a.test/"]}
    serve({**pages, "http://b.test/": Answer(503)})
    seen: list[Snapshot] = []
    await crawl(Looks, in_folder(tmp_path, ADDON, RETRY_ENABLED=False), seen=seen)
    first = seen[0]
    assert first.is_live
    assert first.spider == "follow"
    assert first.pages == PageCounts(known=1, queued=1, in_flight=1, dead=0, merged=0)
    assert (first.connections.in_use, first.connections.callbacks) == (0, 1)
    assert first.machine.memory > 1_000_000
    assert first.store.name == str(tmp_path)
    assert first.ledger.pages + first.ledger.virtual == first.ledger.total
    last = ask_view(tmp_path, snapshot_of)
    assert last.is_closed
    assert not last.is_live
    assert last.pages == PageCounts(known=4, queued=0, visited=2, failed=2)
    assert last.outcomes == {"page": 2, "not found": 1, "5xx": 1}
    assert last.refused == {"repeats": 1}
    assert last.deferred == {"robots.txt": 3, "server error": 4}
    assert last.transfers.n == 11  # three robots.txt, and four later tries
    assert last.transfers.errors == 5
    assert last.transfers.bytes > 200
    assert last.queue_seconds is not None
    assert last.topic is None
    assert last.hosts.known == 3
    assert msgspec.json.decode(msgspec.json.encode(last), type=Snapshot) == last


async def test_a_snapshot_has_the_visits_that_failed_last_and_of_each_cause_some(serve):
    lost = [f"http://a.test/lost/{n}" for n in range(8)]
    broken, last = "http://a.test/broken", "http://a.test/last"
    serve({"http://a.test/": [broken, *lost, last], broken: Answer(status=500), last: []})
    seen: list[Snapshot] = []
    once = {"RETRY_ENABLED": False, "AOPIC_LATER_TRIES": 0}
    settings = {**ADDON, **once, "CONCURRENT_REQUESTS": 1, "AOPIC_POLITENESS_FACTOR": 0}
    await crawl(LooksAtTheEnd, settings, seen=seen)
    (end,) = seen
    assert Counter(row.cause for row in end.failures) == {"http 404": 3, "http 500": 1}
    assert {row.url for row in end.failures} <= {broken, *lost}
    instants = [row.at for row in end.failures]
    assert instants == sorted(instants, reverse=True)
    assert all(row.is_over for row in end.failures)
    assert end.pages.failed == 9


async def test_a_crawl_for_a_topic_says_how_relevant_its_pages_are(serve, tmp_path):
    def page(text: str, *links: str) -> Answer:
        found = "".join(f'<a href="{url}">{url}</a>' for url in links)
        return Answer(headers={"Content-Type": "text/html"}, body=f"<p>{text}</p>{found}".encode())

    urls = [f"http://{name}.test/" for name in "abc"]
    serve({urls[0]: page("a database", *urls[1:]), urls[1]: page("database"), urls[2]: page("fish")})
    seen: list[Snapshot] = []
    topic = {"AOPIC_TOPIC": {"keywords": ["database"]}, "JOBDIR": str(tmp_path), "AOPIC_STORE": "sqlite"}
    # One at a time: else the callback of the third may come before the visit of the second has ended.
    one_by_one = {"CONCURRENT_REQUESTS": 1, "SCRAPER_SLOT_MAX_ACTIVE_SIZE": 1}
    await crawl(Looks, {**ADDON, **topic, **one_by_one}, seen=seen)
    assert [each.topic.pages if each.topic is not None else 0 for each in seen] == [0, 1, 2]

    def looked(view: View) -> TopicFigures | None:
        found, both = snapshot_of(view), snapshot_of(View([*view.stores, *view.stores]))
        assert both.topic == TopicFigures(pages=6, relevant=4, harvest=2 / 3, lately=2 / 3)
        return found.topic

    assert ask_view(tmp_path, looked) == TopicFigures(pages=3, relevant=2, harvest=2 / 3, lately=2 / 3)


async def test_counts_are_of_all_runs(serve, tmp_path):
    pages = {"http://a.test/": ["http://a.test/1", "http://a.test/x/x/x/x/x/x"]}
    serve({**pages, "http://a.test/1": ["http://a.test/y/y/y/y/y/y"]})
    settings = in_folder(tmp_path, ADDON, CONCURRENT_REQUESTS=1)
    await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": 2})  # robots.txt and a page
    assert ask_view(tmp_path, snapshot_of).outcomes == {"page": 1}
    await crawl(Follow, settings)
    last = ask_view(tmp_path, snapshot_of)
    assert last.outcomes == {"page": 2}
    assert last.refused == {"repeats": 2}


def mixed_job() -> Job:
    job = Job(politeness=Politeness(backoff=5.0, dead_after=99))
    job.seed(
        *(
            link(f"{kind}{n}", page)
            for kind in ("down", "slow", "good")
            for n in range(20)
            for page in range(3)
        )
    )
    while isinstance(lease := job.crawl.lease(job.now), Lease):
        is_down, is_slow = lease.host.startswith("down"), lease.host.startswith("slow")
        number = int(lease.host[4:])
        job.crawl.transferred(
            lease.host,
            TransferResult(1.0 + number if is_slow else 0.1, Outcome.DOWN if is_down else Outcome.ANSWER),
            job.now,
        )
        job.finish(lease)
    return job


def test_the_hosts_of_a_walk_are_those_of_the_frontier_however_many_are_looked_at_at_once():
    job = mixed_job()
    active = job.crawl.frontier.active
    for n in (1, 7, 1000):
        walk = HostWalk(list(active.values()), job.crawl.politeness)
        while not walk.step(n, job.now):
            assert walk.n % n == 0
        assert walk.n == len(active) == 60
        assert walk.states == Counter(waiting=60)
        assert walk.waits == {"down": 20, "gap": 40}
        assert sum(walk.due_in) == 60
        assert sum(walk.front_queues.values()) == 60
        assert walk.backing_off == 20
        rows = walk.rows()
        assert [row.name for row in rows["slow"]] == [f"slow{19 - n}" for n in range(N_LISTED)]
        assert {row.name[:4] for row in rows["failing"]} == {"down"}
        assert len(rows["failing"]) == N_LISTED
        assert walk.unused == 0.0


def test_a_stored_host_whose_only_origin_is_silent_waits_and_is_not_ready():
    silent = {"http://a.test": Silence(2, 1060.0)}
    host = HostRecord(name="a.test", row=ACTIVE, queued=3, silent=silent)
    row = row_of(host, 1000.0)
    assert (row.state, row.wait, row.why, row.down) == ("waiting", 60.0, "down", 2)
    assert row_of(host, 1060.0).state == "ready"  # it is tried again
    answered = HostRecord(name="a.test", row=ACTIVE, queued=3, silent=silent, transfer=0.5)
    assert row_of(answered, 1000.0).state == "ready"  # another origin of it may have pages


def test_politeness_allows_what_ready_hosts_could_have_had():
    hosts = [
        HostRecord(name="ready", row=ACTIVE, transfer=1.0, queued=1),
        HostRecord(name="waits", row=ACTIVE, transfer=0.5, not_before=2000.0, queued=3),
        HostRecord(name="new", row=ACTIVE),
    ]
    walk = HostWalk(hosts, Politeness())
    walk.step(10, 1000.0)
    assert walk.states == {"ready": 2, "waiting": 1}
    assert walk.unused == pytest.approx(1 / (1.0 + 10.0) + 1 / ((11.0 + 5.5) / 2))
    assert walk.tail == [1000.0 + 3 * 5.5, 11.0]  # once it may be requested


def test_politeness_costs_the_order_by_how_far_pages_in_flight_are_below_the_best_that_waits():
    job = Job(*(link(host, page) for host in "abc" for page in range(2)), politeness=Politeness())
    leased = [job.lease() for _ in range(2)]
    hosts = job.crawl.frontier.active
    (waits,) = (host for host in hosts.values() if not host.in_flight)
    levels = [level for host in hosts.values() for level in host.in_flight.values()]
    assert len(levels) == len(leased) == 2

    def regret() -> tuple[int, int]:
        walk = HostWalk(list(hosts.values()), None)
        walk.step(10, job.now)
        return walk.regret

    assert regret() == (0, 2)
    waits.best += 3
    assert regret() == (sum(waits.best - level for level in levels), 2) == (6, 2)


def test_a_stored_job_has_the_same_hosts():
    job = mixed_job()
    job.commit()
    found = snapshot_of(View([job.store]))
    assert found.hosts.waiting == 60
    assert found.hosts.waits == {"down": 20, "gap": 40}
    assert [row.name for row in found.slow] == [f"slow{19 - n}" for n in range(N_LISTED)]
    assert found.slow[0].state == "waiting"


FIFTY = PageCounts(known=60, queued=50)


@pytest.mark.parametrize(
    ("pages", "rate", "limits", "seconds", "because"),
    [
        (PageCounts(), None, {}, None, "no page is queued yet"),
        (PageCounts(known=60, queued=0), None, {}, 0.0, "nothing is queued"),
        (PageCounts(known=60, queued=5, dead=5), Rate(pages=1.0), {}, 0.0, "only dead hosts"),
        (PageCounts(known=60, queued=5), None, {}, None, "no crawl is running"),
        (PageCounts(known=60, queued=5), Rate(pages=0.0), {}, None, "no page was fetched"),
        (FIFTY, Rate(pages=2.0, growth=3.25), {}, None, "grows by 3.2 pages for each"),
        (FIFTY, Rate(pages=2.0, growth=-0.5), {}, 50.0, "if it shrinks on"),
        # Of a network that is dead, what is given up says nothing; nor do gaps of hosts before the first page.
        (FIFTY, Rate(pages=2.0, growth=-1.0, transfers=3.0, down=3.0), {}, None, "no page was fetched"),
        (PageCounts(known=9, queued=9), Rate(), {"tail": [17.0]}, None, "no page was fetched"),
        (FIFTY, Rate(pages=2.0, growth=3.0), {"left": 10}, 5.0, "CLOSESPIDER_PAGECOUNT"),
        (FIFTY, Rate(pages=2.0), {"left": 10, "time_left": 3.0}, 3.0, "CLOSESPIDER_TIMEOUT"),
    ],
)
def test_the_end_is_forecast_or_why_it_is_not(pages, rate, limits, seconds, because):
    found = forecast(pages, rate, **limits)
    assert found.seconds == seconds
    assert because in found.because


async def test_rates_are_of_this_run_and_hosts_of_a_large_crawl_are_walked_in_slices(serve, monkeypatch):
    monkeypatch.setattr(live, "_BEAT", 0.02)
    monkeypatch.setattr(live, "_AT_ONCE", 2)
    hosts = [f"http://h{n}.test/" for n in range(9)]
    serve({"http://a.test/": [], **{f"{host}{n}": [] for host in hosts for n in range(3)}})
    found: list[Snapshot] = []

    class Waits(Follow):
        async def parse(self, response: Response) -> AsyncIterator[Any]:
            for host in hosts:
                for n in range(3):
                    yield Request(f"{host}{n}", self.done)

        async def done(self, response: Response) -> None:
            if not found:
                await asyncio.sleep(0.3)
                found.append(snapshot(Session.of(self.crawler)))

    await crawl(Waits, {**OURS, "CONCURRENT_REQUESTS": 1})
    assert found[0].hosts.seen >= 2
    assert found[0].rate.seconds > 0


# -- what limits a real crawl


class Judges(Follow):
    """Has verdicts made while it runs, until one *names* what is expected, or a minute is over."""

    found: list[Verdict]
    names = staticmethod(lambda verdict: "12 hosts must be left alone" in verdict.sentence)

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.judged = asyncio.Event()

    async def start(self) -> AsyncIterator[Any]:
        for n in range(12):
            for page in range(3):
                yield Request(f"http://h{n}.test/{page}", self.page)
        self.judging = asyncio.ensure_future(self.judge())

    async def judge(self) -> None:
        await self.judge_until(Session.of(self.crawler), self.names)
        self.judged.set()
        await self.end()

    async def judge_until(self, session: Session, names: Callable[[Verdict], object]) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            await asyncio.sleep(0.2)
            self.found.append(verdict(snapshot(session)))
            if names(self.found[-1]):
                break

    async def end(self) -> None:
        await self.crawler.engine.close_spider_async(reason="judged")

    async def page(self, response: Response) -> None:
        """Nothing is done with pages."""


class Sleeps(Judges):
    """Its callbacks take long."""

    async def page(self, response: Response) -> None:
        await self.judged.wait()


def named(limit: str, words: str) -> Callable[[Verdict], bool]:
    """Whether a verdict is of this *limit* and has these *words*."""
    return lambda verdict: verdict.limit == limit and words in verdict.sentence


WEB = {f"http://h{n}.test/{page}": [] for n in range(12) for page in range(3)}
SLOW = {url: Answer(headers={"Content-Type": "text/html"}, delay=2.5) for url in WEB}
DEAD = dict.fromkeys(WEB, Answer(429, headers={"Retry-After": "60"}))


@pytest.mark.parametrize(
    ("spider", "pages", "settings", "expected"),
    [
        (Judges, WEB, {"AOPIC_MIN_GAP": 1000}, ("politeness", "12 hosts must be left alone")),
        (Judges, SLOW, {"CONCURRENT_REQUESTS": 4}, ("connections", "more hosts wait")),
        (Sleeps, WEB, {"CONCURRENT_REQUESTS": 12}, ("spider", "pages wait for callbacks")),
        (Judges, DEAD, {"AOPIC_BACKOFF": 1000}, ("network", "Nothing answers: 12 hosts")),
    ],
)
async def test_the_limit_of_a_real_crawl_is_named(serve, spider, pages, settings, expected):
    serve(pages)
    found: list[Verdict] = []
    names = named(*expected)
    await crawl(spider, {**OURS, **settings}, found=found, names=names)
    assert names(found[-1]), found


def hold_up(seconds: float, *, computes: bool) -> float:
    """Take *seconds* of the event loop; returns the CPU seconds of it, on a processor that nobody else uses."""
    began = time.monotonic()
    if not computes:
        time.sleep(seconds)
        return 0.0
    while time.monotonic() < began + seconds:
        pass
    return time.monotonic() - began


class Endless(dict[str, Any]):
    """A web that has every page."""

    def get(self, url: str, default: Any = None) -> Any:
        return [] if url.startswith("http") else default


class GoesOn(Judges):
    """Finds one more page on each."""

    async def start(self) -> AsyncIterator[Any]:
        self.judging = asyncio.ensure_future(self.judge())
        for n in range(12):
            yield Request(f"http://h{n}.test/", self.page)

    async def page(self, response: Response) -> AsyncIterator[Any]:
        yield Request(f"{response.url}0", self.page)


class Busy(GoesOn):
    """Its callbacks take so many *cpu* seconds of a processor that nobody else uses, or hold it up without using it."""

    cpu = 0.0
    computes = True

    async def page(self, response: Response) -> AsyncIterator[Any]:
        Busy.cpu += hold_up(0.4, computes=self.computes)
        async for request in super().page(response):
            yield request


class Blocked(Busy):
    """Its callbacks wait without giving way."""

    computes = False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spider", "limit", "words"),
    [
        (Busy, "machine", "the process uses"),
        (Blocked, "spider", "callbacks or pipelines block the event loop"),
    ],
)
async def test_callbacks_that_compute_are_the_machines_and_those_that_block_the_spiders(
    serve, monkeypatch, spider, limit, words
):
    # What a busy machine gives to this process says nothing of the callbacks; that is all that is not real here.
    monkeypatch.setattr(Busy, "cpu", 0.0)
    monkeypatch.setattr(live, "process_time", lambda: Busy.cpu)
    serve(Endless())
    found: list[Verdict] = []

    names = named(limit, words)

    settings = {**OURS, "CONCURRENT_REQUESTS": 64}
    await crawl(spider, settings, found=found, names=names)
    assert names(found[-1]), found


class Stuck(GoesOn):
    """Judges until the disk has a name, and opens the gate that commits wait at then."""

    gate: Event

    async def judge(self) -> None:
        session = Session.of(self.crawler)
        await until_true(lambda: snapshot(session).pages.visited >= 12)  # so that there is something to do
        self.gate.clear()
        await self.judge_until(session, lambda verdict: verdict.limit == "disk")
        self.gate.set()
        while session.job.waits_for_disk:  # noqa: ASYNC110 (a state of the job, which has no event)
            await asyncio.sleep(0.05)
        self.found.append(verdict(snapshot(session)))
        await self.end()


@pytest.mark.slow
async def test_a_store_that_takes_no_commit_is_the_disks(serve, monkeypatch):
    gate = Event()
    gate.set()
    write = MemoryStore.write

    def slow(self: MemoryStore, batch: Batch, *, sync: bool) -> None:
        assert gate.wait(100)
        write(self, batch, sync=sync)

    monkeypatch.setattr(MemoryStore, "write", slow)
    monkeypatch.setattr(Stuck, "gate", gate, raising=False)
    serve(Endless())
    found: list[Verdict] = []
    settings = {**OURS, "AOPIC_DURABILITY": 50, "AOPIC_MIN_GAP": 0.05}
    await crawl(Stuck, settings, found=found)
    assert {each.limit for each in found[:-2]} <= {"none", "politeness", "connections", "machine", "spider"}
    assert found[-2].limit == "disk"
    assert "no page is requested until the next one has landed" in found[-2].sentence
    assert "no page is requested" not in found[-1].sentence  # it goes on


async def until_true(holds: Callable[[], object]) -> None:
    """Wait for something that comes with a later beat, for a minute at most."""
    for _ in range(3000):
        if holds():
            break
        await asyncio.sleep(0.02)


async def test_live_stats_and_those_of_the_job_are_there_while_the_crawl_runs(serve, monkeypatch):
    monkeypatch.setattr(live, "_PUBLISH_EVERY", 1)
    monkeypatch.setattr(live, "_BEAT", 0.05)
    serve(WEB)
    seen: list[dict[str, Any]] = []

    class Reads(Judges):
        async def end(self) -> None:
            await until_true(lambda: self.crawler.stats.get_value("aopic/live/limits/politeness") == 1)
            seen.append(dict(self.crawler.stats.get_stats()))
            await super().end()

    await crawl(Reads, {**OURS, "AOPIC_MIN_GAP": 1000}, found=[])
    stats = seen[0]
    assert stats["aopic/live/hosts/waiting"] == 12
    assert stats["aopic/live/limits/politeness"] == 1
    assert stats["aopic/live/limits/disk"] == 0
    assert stats["aopic/job/queued"] == 24
    assert stats["aopic/live/memory_bytes"] > 1_000_000
    assert stats["aopic/cash/virtual"] > 0


async def test_an_error_of_what_looks_at_the_crawl_is_none_of_the_crawl(serve, monkeypatch, caplog):
    def fail(*_: object) -> None:
        raise RuntimeError("too curious")

    monkeypatch.setattr(live, "_BEAT", 0.01)
    monkeypatch.setattr(live.Watch, "_publish", fail)
    monkeypatch.setattr(live, "_PUBLISH_EVERY", 1)
    web = serve({"http://a.test/": ["http://a.test/1"], "http://a.test/1": []})
    await crawl(Follow, OURS)
    assert len(web.asked) == 2
    assert caplog.text.count("The figures of the crawl cannot be updated") == 1


@pytest.mark.parametrize("every", [0, 0.05])
async def test_the_log_has_a_line_now_and_then_where_there_is_no_terminal(serve, caplog, every):
    serve(WEB)
    caplog.set_level("INFO", "scrapy_aopic.extensions")

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "scrapy_aopic.extensions"]

    class Logs(Judges):
        async def end(self) -> None:
            if every:
                await until_true(lambda: lines() and "Politeness is the limit" in lines()[-1])
            await super().end()

    settings = {**OURS, "AOPIC_MIN_GAP": 1000, "LOGSTATS_INTERVAL": every}
    await crawl(Logs, settings, found=[])
    assert bool(lines()) == bool(every)
    assert not every or "12 pages" in lines()[-1]
    assert not every or "Politeness is the limit" in lines()[-1]


async def test_a_snapshot_of_a_running_crawl_reads_nothing_of_the_store(serve, monkeypatch):
    n_reads: list[int] = []

    class Counts(Judges):
        async def judge(self) -> None:
            await asyncio.sleep(0.2)
            session = Session.of(self.crawler)
            reads: list[object] = []
            with monkeypatch.context() as patched:
                patched.setattr(WatchedStore, "get_many", lambda *args: reads.append(args))
                patched.setattr(WatchedStore, "scan", lambda *args: reads.append(args))
                session.watch.snapshot()
            n_reads.append(len(reads))
            await super().judge()

    serve(WEB)
    await crawl(Counts, {**OURS, "AOPIC_MIN_GAP": 1000}, found=[])
    assert n_reads == [0]
