"""Workers of one machine, which share the shards in a job folder: who has which, and by what they hear of each other."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import core_crawl, redis_server

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.domain import domain_key
from scrapy_aopic.core.order import Opic
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.shards.all_shards import audit_shards
from scrapy_aopic.core.shards.cut import Cut, ShardId
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.job import cluster_worker
from scrapy_aopic.job.dealing import deal, good_hosts
from scrapy_aopic.job.job import Job
from scrapy_aopic.place.cutting import begin_in_folder, new_sharding
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.shard_places import InFolder
from scrapy_aopic.storage import closing_all, lock_job
from scrapy_aopic.storage.address import BOARD, Address
from scrapy_aopic.storage.board import FileBoard
from scrapy_aopic.storage.folder_workers import board_address, registry_of
from scrapy_aopic.storage.redis.connect import connect
from scrapy_aopic.view.auditing import audit_job
from scrapy_aopic.web.suffixes import registered_domain

SHARDS = 4


def open_worker(folder: Path, number: int, policy: Policy | None = None) -> Job:
    """One more worker of the job in *folder*."""
    policy = policy or Policy()
    place = FolderPlace(folder)
    sharding = place.read_sharding()
    assert sharding is not None
    lock = lock_job(place.of_worker(number) / "aopic", "crawl")
    board = board_address(folder)
    places = InFolder(place, board, lock, sharding, policy, kind="sqlite", memory_mb=16)
    job = Job(None, policy, address=board, shards=sharding.shards, places=places, lock=lock, interval=0.05)
    job._opened.callback(lock.release)
    return job


def tick_until_held(workers: Sequence[Job], *held: int) -> None:
    """Go on until each of *workers* holds so many shards."""
    deadline = time.monotonic() + 120
    while tuple(len(job.shards) for job in workers) != held:
        assert time.monotonic() < deadline, [sorted(job.shards) for job in workers]
        for job in workers:
            job.tick()
        time.sleep(0.01)


def test_a_worker_that_comes_late_takes_part_in_the_round_of_its_command(tmp_path):
    begin_in_folder(FolderPlace(tmp_path), new_sharding(SHARDS, Policy()), lambda: None)
    sharding = FolderPlace(tmp_path).read_sharding()
    assert sharding is not None

    def round_of(now: float, since: float, *last: float) -> tuple[int, float]:
        registry = registry_of(board_address(tmp_path), sharding)
        try:
            number, *times = last or (0, 0.0, 0.0)
            return registry.begin_round(now, lambda: (int(number), *times), since)
        finally:
            registry.close()

    assert round_of(120.0, 115.0, 1, 100.0, 110.0) == (2, 120.0), "it is over, and of an earlier command"
    assert round_of(130.0, 115.0) == (2, 120.0)
    registry = registry_of(board_address(tmp_path), sharding)
    registry.end_round(2, 120.0, 140.0)
    registry.close()
    assert round_of(150.0, 115.0) == (2, 120.0), "it is over, and of this command"
    assert round_of(150.0, float("inf")) == (3, 150.0)
    (board,) = tmp_path.rglob(BOARD)
    board.unlink()  # as if all others had ended
    assert round_of(150.0, 115.0, 2, 120.0, 140.0) == (2, 120.0)


@pytest.mark.parametrize(
    ("shards", "rounds"), [(SHARDS, 4), pytest.param(16, 63, marks=pytest.mark.long, id="a thousand times")]
)
def test_a_shard_that_was_handed_over_is_always_opened_by_somebody(tmp_path, shards, rounds):
    begin_in_folder(FolderPlace(tmp_path), new_sharding(shards, Policy()), lambda: None)
    first = open_worker(tmp_path, 1)
    tick_until_held([first], shards)
    for number in range(2, 2 + rounds):
        second = open_worker(tmp_path, number)
        tick_until_held([first, second], shards // 2, shards // 2)
        assert not {*first.shards} & {*second.shards}
        first.close()
        tick_until_held([second], shards)
        first = second
    first.close()
    assert audit_job(FolderPlace(tmp_path)).violations == []


@pytest.mark.parametrize("content", [b"", b'{"shards": 4, "suf', b"[]", b"{}", b'{"shards": "x"}'])
def test_a_job_that_does_not_say_how_it_is_cut_is_refused(tmp_path, content):
    begin_in_folder(FolderPlace(tmp_path), new_sharding(SHARDS, Policy()), lambda: None)
    (path,) = tmp_path.rglob("cut.json")
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"is cut cannot be read from .*cut\.json: it is damaged"):
        FolderPlace(tmp_path).read_sharding()


def test_two_workers_of_one_folder_crawl_one_domain_and_each_page_once(tmp_path):
    policy = Policy(domain_of=registered_domain, spread=frozenset({"big.test"}))
    begin_in_folder(FolderPlace(tmp_path), new_sharding(SHARDS, policy), lambda: None)
    workers = [open_worker(tmp_path, 1, policy)]
    tick_until_held(workers, SHARDS)
    pages = [core_crawl.link(f"h{n}.big.test", n) for n in range(100)]
    for page in pages:
        workers[0].seed(page, workers[0].clock(), worth=1.0, enriches=False)
    while sum(held.state.waiting for held in workers[0].shards.values()) < 100:  # type: ignore[attr-defined]
        workers[0].tick()
    workers.append(open_worker(tmp_path, 2, policy))
    tick_until_held(workers, SHARDS // 2, SHARDS // 2)
    fetched: list[Counter[str]] = [Counter(), Counter()]
    while sum(map(Counter.total, fetched)) < len(pages):
        for job, counts in zip(workers, fetched, strict=True):
            job.tick()
            lease = job.crawl.lease(job.clock())
            if isinstance(lease, Lease):
                counts[lease.host] += 1
                job.crawl.release(lease, job.clock())
                job.crawl.settle(lease, [page for page in pages if page.host == lease.host], job.clock())
    assert min(map(Counter.total, fetched)) > 10, "a shard may be handed over meanwhile"
    assert max((fetched[0] + fetched[1]).values()) == 1

    def known() -> set[int]:
        """Pages of the domain that were visited, as the shards that are open know it."""
        domains = [held.shard.domains for job in workers for held in job.shards.values()]
        return {each.whole(domain_key("big.test")).visited for each in domains if each is not None}

    deadline = time.monotonic() + 120
    while known() != {len(pages)}:
        assert time.monotonic() < deadline, "each hears what the others have fetched of it"
        for job in workers:
            job.tick()
    for job in workers:
        job.close()
    with closing_all(FolderPlace(tmp_path).open_snapshots()) as stores:
        assert [violation for store in stores for violation in audit(store).violations] == []
        assert audit_shards(stores, registered_domain).violations == []


def test_one_that_joins_gets_half_at_first_and_later_all_but_the_shard_of_a_large_domain_and_says_why_it_is_idle(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(cluster_worker, "_IDLE", 0.0)
    caplog.set_level("INFO")
    begin_in_folder(FolderPlace(tmp_path), new_sharding(SHARDS, Policy()), lambda: None)
    policy = Policy(domain_of=registered_domain)
    first = open_worker(tmp_path, 1, policy)
    tick_until_held([first], SHARDS)
    for n in range(100):
        first.seed(core_crawl.link(f"h{n}.big.test", n), first.clock(), worth=1.0, enriches=False)
    large = Cut(ShardId(0, SHARDS), registered_domain).of_host("h0.big.test")
    while first.shards[large].state.waiting < 100:  # type: ignore[attr-defined]
        first.tick()
    second = open_worker(tmp_path, 2, policy)
    tick_until_held([first, second], SHARDS // 2, SHARDS // 2)
    monkeypatch.setattr(cluster_worker, "_PATIENCE", 0.0)
    busy, idle = (first, second) if large in first.shards else (second, first)
    tick_until_held([busy, idle], 1, SHARDS - 1)
    assert [*busy.shards] == [large]
    while f"100 hosts of other workers' may, in shards {large};" not in caplog.text:
        idle.tick()
    workers = [first, second, *(open_worker(tmp_path, number, policy) for number in (3, 4, 5))]
    told = f"there are 5 workers and {SHARDS} shards. For more, stop the crawl, and go on with NEW, which "
    deadline = time.monotonic() + 120
    while f"{told}'scrapy aopic salvage {tmp_path} NEW --shards 10' makes" not in caplog.text:
        assert time.monotonic() < deadline
        for worker in workers:
            worker.tick()
    for worker in workers:
        worker.close()


@pytest.mark.parametrize(
    ("holders", "waiting", "then"),
    [
        ("....", {}, "abab"),
        ("aaaa", {}, "bbaa"),
        ("aaab", {}, "baab"),
        ("aabb", {0: 8, 2: 3}, "aabb"),
        ("aabb", {0: 800}, "abbb"),
        ("a.bb", {0: 800}, "abbb"),
        ("aabb", {0: 800, 1: 800}, "baab"),
        ("xxab", {0: 800}, "xxab"),
    ],
)
def test_shards_are_dealt_by_the_hosts_that_wait_and_stay_if_that_is_about_even(holders, waiting, then):
    before = {number: None if each == "." else each for number, each in enumerate(holders)}
    assert deal(before, waiting, ["a", "b"]) == dict(enumerate(then))


@pytest.mark.parametrize(
    ("waiting", "ranks", "good"),
    [
        ([4, 4], [{7: 2, 9: 2}, {8: 1, 9: 3}], [8, 0]),
        ([4, 4], [{7: 1, 9: 3}, {7: 1, 8: 3}], [4, 4]),
        ([1, 7], [{7: 1}, {9: 7}], [1, 7]),
        ([300, 20], [{9: 5}, {7: 20}], [0, 320]),
        ([3, 5], [{}, {}], [3, 5]),
        ([3, 0], [{}, {}], [3, 0]),
    ],
)
def test_of_the_hosts_that_wait_the_best_count_for_all(waiting, ranks, good):
    assert good_hosts(dict(enumerate(waiting)), dict(enumerate(ranks))) == dict(enumerate(good))


def test_a_shard_tells_the_ranks_of_the_hosts_that_wait(tmp_path):
    policy = Policy(order=Opic())
    begin_in_folder(FolderPlace(tmp_path), new_sharding(SHARDS, policy), lambda: None)
    worker = open_worker(tmp_path, 1, policy)
    tick_until_held([worker], SHARDS)
    for n in range(40):
        worker.seed(core_crawl.link(f"h{n}.test", n), worker.clock(), worth=1.0 + 3 * (n % 2), enriches=False)
    while sum(held.state.waiting for held in worker.shards.values()) < 40:  # type: ignore[attr-defined]
        worker.tick()
    states = [held.state for held in worker.shards.values()]  # type: ignore[attr-defined]
    assert [sum(state.ranks.values()) for state in states] == [state.waiting for state in states]
    assert len({rank for state in states for rank in state.ranks}) == 2
    worker.close()


KEYS = st.sampled_from([b"a", b"b"])
FIELDS = st.sampled_from([b"x", b"y", b"z"])
VALUES = st.binary(max_size=3)
COMMANDS = st.one_of(
    st.tuples(st.just(b"HSET"), KEYS, FIELDS, VALUES),
    st.tuples(st.just(b"HSET"), KEYS, st.just(b"x"), VALUES, st.just(b"y"), st.integers()),
    st.tuples(st.just(b"HDEL"), KEYS, FIELDS, FIELDS),
    st.tuples(st.just(b"HSETNX"), KEYS, FIELDS, VALUES),
    st.tuples(st.just(b"HGET"), KEYS, FIELDS),
    st.tuples(st.just(b"HGETALL"), KEYS),
    st.tuples(st.just(b"XADD"), st.just(b"box"), st.just(b"*"), st.just(b"l"), VALUES),
    st.tuples(st.just(b"PEXPIRE"), st.just(b"box"), st.just(60_000)),
    st.tuples(st.just(b"HMGET"), KEYS, FIELDS, FIELDS),
    st.tuples(st.just(b"HINCRBY"), st.just(b"n"), FIELDS, st.integers(0, 9)),
    st.tuples(st.just(b"SET"), st.just(b"text"), VALUES),
    st.tuples(st.just(b"GET"), st.sampled_from([b"text", b"none"])),
    st.tuples(
        st.just(b"XADD"),
        st.just(b"log"),
        st.just(b"MAXLEN"),
        st.just(3),
        st.just(b"*"),
        st.just(b"l"),
        VALUES,
    ),
)


def told(command: Sequence[Any], reply: Any) -> Any:
    """What a worker reads out of *reply*: not how many fields were new, for example."""
    if command[0] == b"HGETALL":
        return sorted(zip(reply[::2], reply[1::2], strict=True))
    return reply if command[0] in {b"HGET", b"HMGET", b"HINCRBY", b"GET"} else None


def test_the_board_answers_what_a_server_answers(tmp_path_factory, server):
    redis = redis_server.needed()

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.lists(COMMANDS, min_size=1, max_size=5), max_size=8))
    def compare(rounds):
        with redis.Redis.from_url(server.url) as client:
            client.flushall()
        board = FileBoard(tmp_path_factory.mktemp("board"))
        link = connect(Address("job", server.url))
        try:
            seen, place = [b"0-0", b"0-0"], 0
            for commands in rounds:
                there = link.ask(*commands)
                for command, one, other in zip(commands, board.ask(*commands), there, strict=True):
                    assert told(command, one) == told(command, other), command
                heard = []
                for place, each in enumerate((board, link)):
                    (rows,) = each.ask((b"XRANGE", b"log", b"(" + seen[place], b"+", b"COUNT", 2))
                    seen[place] = rows[-1][0] if rows else seen[place]
                    (letters,) = each.ask((b"XRANGE", b"box", b"-", b"+", b"COUNT", 2))
                    each.ask(*((b"XDEL", b"box", entry) for entry, _ in letters[:1]))
                    heard.append([values[1] for _, values in (*rows, *letters)])
                assert heard[0] == heard[1]
        finally:
            board.close()
            link.close()

    compare()


def test_what_is_asked_at_once_is_done_as_a_whole_or_not_at_all(tmp_path):
    one, other = FileBoard(tmp_path), FileBoard(tmp_path)
    with pytest.raises(AttributeError):
        one.ask((b"SET", b"a", b"1"), (b"NONE", b"a"))
    assert other.ask((b"GET", b"a")) == [None]
    one.ask((b"SET", b"a", b"2"))
    assert other.ask((b"GET", b"a")) == [b"2"]
    one.close()
    other.close()
