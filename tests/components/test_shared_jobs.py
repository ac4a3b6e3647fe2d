"""Jobs in shards: what is refused, and what two crawls of one process after another find."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from demo_web.server import Exchange
from scrapy import Request, Spider
from scrapy.http import Response
from support import redis_server
from support.commands import run_aopic, said
from support.core_crawl import link
from support.small_web import Follow, crawl

from scrapy_aopic.copies.backing_up import backup, restore
from scrapy_aopic.core.api import Ending, Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.frontier.frontier import NotBefore
from scrapy_aopic.core.operator_control import Control
from scrapy_aopic.core.order import BreadthFirst, order_name
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.shards.all_shards import audit_shards
from scrapy_aopic.exceptions import StorageError, UnreachableError
from scrapy_aopic.job.cluster_worker import PartOfJob
from scrapy_aopic.job.exchange import Exchange as ServerExchange
from scrapy_aopic.job.job import Job
from scrapy_aopic.job.shard_router import ShardRouter
from scrapy_aopic.place.cutting import begin_cut, new_sharding
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.session.steering import Steering
from scrapy_aopic.storage import Address
from scrapy_aopic.storage.redis import server_lock
from scrapy_aopic.storage.redis.connection import Connection
from scrapy_aopic.storage.redis.frozen_view import RedisView
from scrapy_aopic.storage.redis.keys import Keys
from scrapy_aopic.storage.redis.sharding import Sharding, begin
from scrapy_aopic.view.auditing import audit_job
from scrapy_aopic.view.job_view import open_view
from scrapy_aopic.view.queries import rounds_in
from scrapy_aopic.web import suffixes
from scrapy_aopic.web.suffixes import registered_domain

redis = redis_server.needed()


PAGES = {
    "http://a.test/": ["/1", "http://b.test/", "http://c.test/1"],
    "http://a.test/1": ["/"],
    "http://b.test/": ["http://c.test/1", "http://d.test/"],
    "http://c.test/1": ["http://a.test/"],
    "http://d.test/": [],
}


SHARDS = 4


def check(url: str) -> int:
    """Pages that were visited; all shards and the mail between them hold what they must."""
    views = ServerPlace(Address("aopic:follow", url)).open_snapshots()
    try:
        audits = [audit(view) for view in views]
        whole = audit_shards(views, registered_domain)
    finally:
        for view in views:
            view.close()
    assert [violation for each in (*audits, whole) for violation in each.violations] == []
    assert len(views) == 4
    return sum(each.visited for each in audits)


@pytest.mark.slow
async def test_a_crawl_of_all_shards_goes_on_where_it_was_stopped(serve, settings):
    web = serve(PAGES)
    await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": 1})
    assert len(web.asked) < len(PAGES)
    assert check(settings["REDIS_URL"]) == len(web.asked)
    await crawl(Follow, settings)
    assert sorted(web.asked) == sorted(PAGES), "the second crawl goes on with what the first has left"
    assert check(settings["REDIS_URL"]) == len(PAGES)


@pytest.mark.slow
async def test_the_queue_of_another_spider_is_left_to_that(serve, settings, caplog):
    class Before(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            yield from (Request(f"http://{host}.test/", self.read) for host in "bcde")

        def read(self, response: Response) -> None:
            pass

    web = serve({f"http://{host}.test/": [] for host in "abcde"})
    settings = {**settings, "AOPIC_REDIS_KEY": "aopic:follow"}
    await crawl(Before, {**settings, "CLOSESPIDER_PAGECOUNT": 1})
    n = len(web.asked)
    await crawl(Follow, settings, name="other")
    assert "is not for this spider: 'other' has no callback 'read'" in caplog.text
    assert len(web.asked) == n
    await crawl(Before, settings)
    assert len(web.asked) == 5
    assert check(settings["REDIS_URL"]) == 5


@pytest.mark.slow
async def test_a_round_is_one_of_all_shards_and_goes_on_where_it_was_stopped(serve, settings, address):
    web = serve(PAGES)
    settings = {**settings, "AOPIC_RECRAWL": "once"}
    for most, n in ((0, 1), (2, 1), (0, 2), (0, 3)):
        await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": most})
        assert most or web.asked.count("http://d.test/") == n
    assert sorted(web.asked) == sorted([*PAGES] * 3), "none twice in a round"
    with open_view(ServerPlace(address)) as view:
        rounds = [(each.number, each.known, each.found, each.ended > each.began) for each in rounds_in(view)]
    again = {"unchanged": 5}
    assert rounds == [(1, 0, {"new": 5}, True), (2, 5, again, True), (3, 5, again, True)]


@pytest.mark.slow
async def test_a_crawl_of_shards_ends_when_the_estimates_of_the_job_hardly_change(serve, settings):
    serve(PAGES)
    rules = {"AOPIC_ENDOWMENT": 0, "AOPIC_RECRAWL": [1, "90 days"], "AOPIC_MIN_CONVERGENCE": 0.5}
    crawler = await crawl(Follow, {**settings, **rules, "CLOSESPIDER_TIMEOUT": 60})
    assert crawler.stats.get_value("finish_reason") == "aopic_convergence"
    assert crawler.stats.get_value("aopic/cash/convergence") < 0.5
    assert check(settings["REDIS_URL"]) > 0


@pytest.mark.slow
async def test_seeds_reach_their_shards_once(serve, settings, client, tmp_path):
    web = serve(PAGES)
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("http://d.test/\nhttp://c.test/1\nhttp://b.test/\n")
    for _ in range(2):
        await crawl(Follow, {**settings, "AOPIC_SEEDS": str(seeds)})
    assert sorted(web.asked) == sorted(PAGES)
    assert not client.exists("{aopic:follow}:seeds"), "what was taken up is gone from the server"
    assert not [*client.scan_iter("{aopic:follow}:mail:*")], "letters that were read are gone, too"
    assert check(settings["REDIS_URL"]) == len(PAGES)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"AOPIC_STORE": "auto"}, "AOPIC_SHARDS (4) needs AOPIC_WORKERS"),
        ({"AOPIC_SHARDS": "2x4"}, 'AOPIC_SHARDS with an "x" is for shards in job folders: set a JOBDIR'),
        (
            {"AOPIC_SHARDS": "2x129"},
            "AOPIC_SHARDS ('2x129') must be a whole number from 1 to 256, or two such as",
        ),
        ({"AOPIC_POLITENESS_KEY": "address"}, "AOPIC_POLITENESS_KEY has 'address'"),
        ({"AOPIC_ORDER": "pagerank"}, "PageRank) looks at the whole graph"),
        ({"AOPIC_DURABILITY": "close"}, 'AOPIC_DURABILITY = "close" stores nothing before the end'),
        ({"AOPIC_SHARDS": 257}, "AOPIC_SHARDS (257) must be a whole number from 1 to 256"),
    ],
)
async def test_settings_that_do_not_go_with_shards_are_refused(serve, settings, caplog, changed, said):
    web = serve(PAGES)
    await crawl(Follow, {**settings, **changed})
    assert said in caplog.text
    assert web.asked == []


@pytest.mark.parametrize(
    ("begun_with", "shards", "said"),
    [
        (
            4,
            8,
            "has 4 shards, and AOPIC_SHARDS is now 8: set AOPIC_SHARDS = 4, go on with NEW, which 'scrapy aopic salvage ",
        ),
        (4, 1, " NEW --shards 1' makes, or begin another job with another "),
        (1, 4, "is in one piece, and AOPIC_SHARDS is now 4"),
    ],
)
async def test_another_number_of_shards_is_refused_later(
    serve, settings, caplog, *, begun_with, shards, said
):
    web = serve(PAGES)
    await crawl(Follow, {**settings, "AOPIC_SHARDS": begun_with, "CLOSESPIDER_PAGECOUNT": 1})
    n = len(web.asked)
    await crawl(Follow, {**settings, "AOPIC_SHARDS": shards})
    assert said in caplog.text
    assert len(web.asked) == n


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"shards": 8}, "has 8 shards, and AOPIC_SHARDS is now "),
        ({"folders": 2}, "are in the job folders of its workers, which is fixed when a job begins"),
        (
            {"order": order_name(BreadthFirst())},
            "BreadthFirst, which is fixed when a job begins, and AOPIC_ORDER is now",
        ),
    ],
)
async def test_who_begins_at_the_same_moment_with_other_settings_is_refused(
    serve, settings, monkeypatch, caplog, *, other, said
):
    """Else each would hold shards that no other worker can open."""
    web = serve(PAGES)

    def begin_second(address: Address, cut: Sharding, *arguments: Any, **options: Any) -> bool:
        assert begin(address, cut._replace(**other), *arguments, **options)
        return begin(address, cut, *arguments, **options)

    monkeypatch.setattr("scrapy_aopic.place.cutting.begin", begin_second)
    await crawl(Follow, settings)
    assert said in caplog.text
    assert web.asked == []


@pytest.fixture
def own_list() -> Iterator[None]:
    """Whatever list of public suffixes is used meanwhile."""
    before = [*suffixes._given]
    yield
    suffixes._given[:] = before
    suffixes.forget()


@pytest.mark.usefixtures("own_list")
async def test_a_job_keeps_the_list_of_public_suffixes_that_it_began_with(
    serve, settings, client, address, *, caplog, monkeypatch, tmp_path
):
    web = serve(PAGES)

    older = "\n".join(sorted({*suffixes._rules().decode().split()} - {"co.uk"} | {"a.test"})).encode()
    with monkeypatch.context() as as_older:
        as_older.setattr(suffixes, "_given", [older])
        suffixes.forget()
        name, packed = suffixes.list_name(), suffixes.packed_list()
    suffixes.forget()
    assert zlib.decompress(packed) == older
    assert begin(address, Sharding(4, name), lambda: None, suffixes=packed)
    with caplog.at_level(logging.INFO):
        await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": 1})
    assert "Domains are cut by the list of public suffixes with which the job" in caplog.text
    assert suffixes.registered_domain("www.a.test") == "www.a.test"
    assert suffixes.registered_domain("x.y.co.uk") == "co.uk"
    backup(ServerPlace(address), tmp_path / "copy")
    client.flushall()
    restore(tmp_path / "copy", address)
    await crawl(Follow, settings)
    assert sorted(web.asked) == sorted(PAGES)
    assert audit_job(ServerPlace(address)).violations == []

    in_folder = {**settings, "AOPIC_STORE": "auto", "AOPIC_SHARDS": "1x4", "JOBDIR": tmp_path / "job"}
    for most in (1, 0):  # a server that has lost all of it is told of it by the folder
        client.flushall()
        if most:
            assert begin(address, Sharding(4, name, 1), lambda: None, suffixes=packed)
        suffixes._given.clear()
        suffixes.forget()
        await crawl(Follow, {**in_folder, "CLOSESPIDER_PAGECOUNT": most})
        sharding = ServerPlace(address).read_sharding()
        assert sharding.suffixes == name
    assert sorted(web.asked) == sorted([*PAGES] * 2)
    assert audit_job(FolderPlace(tmp_path / "job")).violations == []


@pytest.mark.parametrize(
    "what", [b"", b"noise", zlib.compress(b"com\norg")], ids=["none", "noise", "another"]
)
async def test_a_list_of_public_suffixes_that_is_not_there_is_refused(serve, settings, address, caplog, what):
    web = serve(PAGES)
    assert begin(address, Sharding(4, "0123456789abcdef, *"), lambda: None, suffixes=what)
    await crawl(Follow, settings)
    how = "damaged" if what else "not stored with it"
    assert f"public suffixes (0123456789abcdef, *), but that is {how}: use the version of" in caplog.text
    assert web.asked == []


async def test_what_reads_one_store_says_that_there_are_several(serve, settings, address):
    serve(PAGES)
    await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": 1})
    with pytest.raises(StorageError, match="is cut into shards"), closing(RedisView(address)):
        pass


@pytest.mark.slow
async def test_status_check_and_seed_take_the_whole_job(serve, settings, client, tmp_path):
    seeds = [f"http://s{n}.test/" for n in range(9)]
    web = serve({**PAGES, **{url: [] for url in seeds}})
    await crawl(Follow, settings)
    where = settings["REDIS_URL"] + "#aopic:follow"
    run = partial(said, tmp_path)
    state = json.loads(run("status", "--json", settings["REDIS_URL"]))
    assert (state["pages"]["queued"], state["pages"]["visited"]) == (0, len(PAGES))
    shards = state["shards"]
    assert shards["sent"] > shards["on_the_way"] == 0
    assert shards["is_quiet"]
    assert shards["workers"] == []
    assert len(shards["each"]) == shards["n"] == 4
    assert state["verdict"]["sentence"].startswith("Done: no shard")
    assert "on the way" in run("status", where)
    assert "every invariant holds" in run("check", where)
    assert json.loads(run("check", "--json", where))["holds"]
    (tmp_path / "seeds.txt").write_text("\n".join(seeds))
    assert "9 seeds added" in run("seed", where, "seeds.txt")
    for _ in range(2):
        crawler = await crawl(Follow, settings, start_urls=[])
        assert sorted(web.asked[len(PAGES) :]) == seeds
        assert crawler.stats.get_value("finish_reason") == "finished"
    assert check(settings["REDIS_URL"]) == len(web.asked)
    assert client.delete(*client.scan_iter("{aopic:follow}:s*:leaves:*"))
    assert run_aopic("check", where, folder=tmp_path).returncode != 0


def tick_until(job: Job, is_done: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not is_done():
        assert time.monotonic() < deadline
        job.tick()
        time.sleep(0.01)


def two_shards(
    url: str, lock_timeout: float = 300.0, *, n_held: int = 2, policy: Policy | None = None
) -> tuple[Job, ShardRouter]:
    """A new job of two shards on a server, and its crawl, which holds *n_held* of them."""
    address = Address("aopic:follow", url, lock_timeout=lock_timeout)
    begin_cut(address, new_sharding(2, Policy()), lambda: None)
    job = Job(None, policy or Policy(), address=address, shards=2, interval=0.05)
    shards = cast("ShardRouter", job.crawl)
    tick_until(job, lambda: len(shards.held) == n_held)
    return job, shards


def test_no_error_of_the_exchange_with_a_server_ends_it_without_a_word():
    registry = Mock(exchange=Mock(side_effect=KeyError("a reply that nobody expects")), is_over=False)
    with closing(ServerExchange(registry, lock_timeout=0.0)) as exchange:
        deadline = time.monotonic() + 120
        while exchange.failure is None:
            assert time.monotonic() < deadline
        assert str(exchange.failure) == "The server's reply is wrong (KeyError)"


def taken_over(client: Any, keys: Keys) -> None:
    """Say on the server that another worker has the shard of these *keys*."""
    head = client.get(keys.head)
    token = keys.read_head(head).token
    client.set(keys.head, head.replace(token.encode(), b"0" * len(token)))
    client.set(keys.owner, b"another worker")


@pytest.mark.parametrize(("held", "rate", "connections"), [([2, 1, 1], 10.0, 8), ([4, 0, 0], 10.0, 1)])
def test_workers_share_out_what_a_job_may_do(held, rate, connections):
    n_requests, n_under_way = 0, 0
    for n in held:  # each a worker that always has a page, for 100 seconds
        job: Any = SimpleNamespace(part=PartOfJob(4, n, len(held)), clock=lambda: 0.0)
        visits: Any = SimpleNamespace(n_downloading=0)
        steering = Steering(cast("Spider", None), job, visits, None, lambda _: None)
        steering.control = Control(rate=rate)
        now = 0.0
        while n and (now := now + steering.wait(now)) < 100:
            steering.requested(now)
            n_requests += 1
        steering.control = Control(connections=connections)
        while n and not steering.wait(100.0):
            visits.n_downloading += 1
        n_under_way += visits.n_downloading
    assert n_requests == pytest.approx(rate * 100, abs=len(held))
    assert n_under_way == connections


def emptied(client: Any) -> None:
    client.flushdb()


def renamed(client: Any) -> None:
    for name in client.keys("{aopic:follow}*"):
        client.rename(name, name.replace(b"follow", b"others"))


def replaced(client: Any) -> None:
    """By another job that is cut alike."""
    client.flushdb()
    where = client.connection_pool.connection_kwargs
    address = Address("aopic:follow", f"redis://{where['host']}:{where['port']}")
    assert begin_cut(address, new_sharding(4, Policy()), lambda: None)


@pytest.mark.parametrize("take_away", [emptied, renamed, replaced], ids=lambda each: each.__name__)
async def test_a_crawl_whose_job_is_taken_away_says_so_and_is_no_success(
    serve, settings, client, caplog, take_away
):
    def last(_: Exchange) -> list[str]:
        take_away(client)
        return ["http://a.test/2"]

    def endless(exchange: Exchange) -> list[str]:
        return [f"/{int(exchange.target[1:]) + 1}"]

    pages = {f"http://a.test/{n}": endless for n in range(2, 1_000)}
    serve({**PAGES, "http://d.test/": last, **pages})
    crawler = await crawl(Follow, {**settings, "AOPIC_MIN_GAP": 0.01})
    assert crawler.stats.get_value("finish_reason") == "aopic_gone"
    assert caplog.text.count("The job in redis://127.0.0.1") == 1
    assert "is gone: its keys are gone from the server, which was emptied" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("is_lost", [True, False])
def test_mail_of_a_shards_next_owner_ends_the_crawl_only_if_there_is_none(
    settings, client, address, caplog, *, is_lost
):
    job, shards = two_shards(settings["REDIS_URL"])
    held, lock = shards.held, shards.held[0].store.lock

    def states() -> dict[bytes, bytes]:
        return client.hgetall("{aopic:follow}:states")

    tick_until(job, lambda: len(states()) == 2)
    received = {**json.loads(states()[b"1"]), "got": {"0": 7}}
    client.hset("{aopic:follow}:states", "1", json.dumps(received))
    client.delete("{aopic:follow}:log", "{aopic:follow}:logged")  # so that all states are read
    for n in range(20):  # some are in shard 1, so that shard 0 has a letter to it
        job.seed(link(f"host{n}.test", n), job.clock(), worth=1.0, enriches=False)
    tick_until(job, lambda: not held[0].is_ready)
    assert job.failure is None, "it may be lost"
    if is_lost:
        taken_over(client, Keys(address.of_shard(0)))
        lock._keeper._renew()
    else:  # it fails for longer than a lock explains
        job._worker._failing_since[0] -= 1000
    tick_until(job, lambda: len(held) == 1 or job.failure)
    if is_lost:
        assert [*held] == [1]
        assert job.failure is None
        assert "This worker goes on " in caplog.text
        job.close()
    else:
        with pytest.raises(StorageError, match="Shard 1 has received letter 7 from shard 0 of 2"):
            job.close()


def test_a_lost_shard_that_seems_damaged_is_left_alone_and_dropped(settings, client, address, monkeypatch):
    job, shards = two_shards(settings["REDIS_URL"])
    for n in range(20):
        shards.seed(link(f"host{n}.test", n), job.clock())
    stale = shards.held[0]
    tick_until(job, lambda: stale.shard.counts.queued and shards.held[1].shard.counts.queued)
    leases = [found for _ in range(20) if isinstance(found := shards.lease(job.clock()), Lease)]
    lost = [lease for lease in leases if stale.shard.shard_of(lease.host) == 0]

    def settle(*_: object) -> None:
        raise StorageError("A page is queued of which there is no record.")

    monkeypatch.setattr(stale.shard._settling, "settle", settle)
    taken_over(client, Keys(address.of_shard(0)))
    with pytest.raises(StorageError, match="of which there is no record"):
        shards.settle(lost[0], [], job.clock())
    assert job.has_broken_shards, "so that the session takes it for what it is"
    for lease in lost:
        assert shards.settle(lease, [], job.clock()).ending == Ending.STALE, "its rows are left alone"
    stale.store.lock._keeper._renew()
    tick_until(job, lambda: len(shards.held) == 1 or job.failure)
    assert job.failure is None
    assert [*shards.held] == [1]
    for lease in leases:
        shards.release(lease, job.clock())
        is_lost = lease in lost
        assert shards.settle(lease, [], job.clock()).ending == (Ending.STALE if is_lost else Ending.OK)
    job.close()


def test_no_page_is_leased_whose_transfer_another_worker_may_not_wait_for(settings, monkeypatch):
    """In the second half of a lock's time that cannot be renewed, after which others take the shard."""
    job, shards = two_shards(settings["REDIS_URL"])
    for n in range(20):
        shards.seed(link(f"host{n}.test", n), job.clock())
    tick_until(job, lambda: all(held.shard.counts.queued for held in shards.held.values()))
    with monkeypatch.context() as patch:
        patch.setattr(server_lock.ServerLock, "is_fading", True)
        now = job.clock()
        found = shards.lease(now)
        assert isinstance(found, NotBefore)
        assert found.instant > now
        assert job.failure is None
    assert isinstance(shards.lease(job.clock()), Lease)
    job.close()


@pytest.mark.parametrize(
    "again", [UnreachableError("It broke again."), StorageError("It is damaged.")], ids=str
)
def test_a_worker_tries_again_to_open_its_first_shard_if_it_has_only_lost_a_reply(
    settings, monkeypatch, again
):
    job, shards = two_shards(settings["REDIS_URL"], n_held=0)
    opened = job._worker._places.open_store
    failures = [again, UnreachableError("The connection broke.")]

    def open_store(*args: Any) -> Any:
        if failures:
            raise failures.pop()
        return opened(*args)

    monkeypatch.setattr(job._worker._places, "open_store", open_store)
    tick_until(job, lambda: len(shards.held) == 2 or job.failure)
    assert not failures
    if isinstance(again, UnreachableError):
        assert job.failure is None
        job.close()
        return
    assert job.is_broken
    with pytest.raises(StorageError, match="damaged"):
        job.close()


def test_a_request_is_sent_only_while_nobody_else_can_have_its_host(settings, monkeypatch):
    job, shards = two_shards(settings["REDIS_URL"])
    shards.seed(link("host1.test", 1), job.clock())
    tick_until(job, lambda: sum(held.shard.counts.queued for held in shards.held.values()))
    lease = shards.lease(job.clock())
    of_page, of_robots = job.permit(lease.host, lease), job.permit(lease.host, None)
    assert of_page()
    assert of_robots()
    with monkeypatch.context() as patch:
        patch.setattr(server_lock.ServerLock, "is_fading", True)
        assert not of_page()
        assert not of_robots()
    assert of_page()
    held = next(held for held in shards.held.values() if len(held.shard.leases))
    held.shard.put_back(lease, link("host1.test", 1), job.clock())
    assert not of_page(), "it is queued again"
    assert of_robots()
    del shards.held[held.number]
    assert not of_robots(), "what began while the shard was held"
    assert job.permit(lease.host, None) is None, "a callback's own download, from a host of somebody else's"
    of_late = job.permit(lease.host, lease)
    assert not of_late()
    shards.held[held.number] = held
    job.close()


def test_letters_that_come_while_a_commit_is_tried_again_are_not_lost(settings, monkeypatch):
    job, shards = two_shards(settings["REDIS_URL"])
    receiver = shards.held[1]
    tick_until(job, lambda: 1 in job._worker._announced)  # before that, nobody sends it anything
    with monkeypatch.context() as broken:
        broken.setattr(receiver.commits, "failure", StorageError("The connection broke."))
        broken.setattr(receiver, "retry", lambda: None)
        for n in range(20):
            shards.held[0].shard.seed(link(f"host{n}.test", n), job.clock())
            shards.held[0].touch()
        tick_until(job, lambda: receiver._inbox)
        assert not receiver.shard.counts.queued
    tick_until(job, lambda: receiver.shard.counts.queued)
    job.close()


def test_letters_arrive_however_long_commits_take(settings):
    """Each may take longer than a lease waits for it, on a busy machine or server."""
    job, shards = two_shards(settings["REDIS_URL"], policy=Policy(commit_within=0.0))
    for n in range(20):
        shards.held[0].shard.seed(link(f"host{n}.test", n), job.clock())
    shards.held[0].touch()
    assert shards.held[1].commits.is_behind
    tick_until(job, lambda: shards.held[1].shard.counts.queued)
    job.close()


@pytest.mark.slow
@pytest.mark.parametrize("is_pinned", [True, False])
def test_only_the_run_of_its_server_keeps_a_letter_that_was_lost_from_being_paid_out(
    tmp_path, monkeypatch, is_pinned
):
    """A control: a server loses the commit that debits a letter; its receiver, whose own commits are all there, has applied it."""
    if not is_pinned:
        monkeypatch.setattr(Connection, "pin", lambda self, run=b"": b"any")
    with redis_server.Server(tmp_path / "server", appendfsync="always") as server:
        job, shards = two_shards(server.url)
        sender, receiver = shards.held[0], shards.held[1]
        hosts = [f"host{n}.test" for n in range(20)]
        of = {number: [host for host in hosts if sender.shard.shard_of(host) == number] for number in (0, 1)}
        shards.seed(link(of[0][0], 0, f"http://{of[0][0]}/".encode()), job.clock())
        lease = shards.lease(job.clock())
        assert isinstance(lease, Lease)
        is_told = lambda: not (sender.shard.has_changes or sender.commits.is_writing or sender.has_post)
        tick_until(job, is_told)
        file = server.append_only_file()
        size = file.stat().st_size
        with monkeypatch.context() as patch:
            # It applies the letter, and does not commit yet.
            patch.setattr(receiver, "tick", lambda now: None)
            links = [link(host, n, f"http://{host}/".encode()) for n, host in enumerate(of[1])]
            shards.release(lease, job.clock())
            shards.settle(lease, links, job.clock())
            tick_until(job, lambda: receiver.shard.counts.queued == len(links))
            tick_until(job, lambda: not sender.commits.is_writing)
            server.kill()
            os.truncate(file, size)
            server.start()
        # Its next commit is refused, or sooner.
        tick_until(job, lambda: shards.held.get(0) not in (None, sender))
        if is_pinned:
            tick_until(job, lambda: shards.held.get(1) not in (None, receiver))
        job.close()
        violations = audit_job(ServerPlace(Address("aopic:follow", server.url))).violations
        if is_pinned:
            assert violations == []
        else:
            assert any("cash" in violation for violation in violations), violations


@pytest.mark.slow
async def test_a_callback_gets_pages_of_every_shard_that_it_waits_for(serve, settings):
    got: list[str] = []

    class Waits(Follow):
        async def parse(self, response: Response) -> AsyncIterator[Any]:
            for url in PAGES:
                if url != response.url:
                    done = asyncio.Event()
                    again = url == "http://d.test/"
                    yield Request(url, self.part, cb_kwargs={"n": len(got)}, dont_filter=again)
                    self.done = done
                    await asyncio.wait_for(done.wait(), 60)

        def part(self, response: Response, n: int) -> None:
            got.append(response.url)
            self.done.set()

    serve(PAGES)
    await crawl(Waits, settings)
    assert got == [url for url in PAGES if url != "http://a.test/"]
    assert check(settings["REDIS_URL"]) == len(PAGES)
