"""What a server has to do for workers with shards in their job folders: how often, and how many commands; never how long."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from demo_web.server import Server
from support import processes, redis_server
from support.killed_crawl import N_HOSTS, N_PAGES, answer, command
from support.short_forms import some_of
from support.store_waits import PATTERN

from scrapy_aopic.storage import Address
from scrapy_aopic.storage.folder_workers import registry_of
from scrapy_aopic.storage.redis.mailboxes import Addressed, PostedLetter, read_bundle, write_bundle
from scrapy_aopic.storage.redis.sharding import Sharding, begin
from scrapy_aopic.storage.redis.worker_registry import ShardState

redis = redis_server.needed()

SHARDS = 16


def crawl(folder: Path, folders: int) -> Counter[str]:
    """How often the server did each command while workers with a folder each crawled all pages."""
    with redis_server.Server(folder / "server") as server, Server(answer).run_in_thread() as web:
        workers = []
        for number in range(folders):
            line, environment = command(
                folder / f"job-{number}",
                web.url,
                REDIS_URL=server.url,
                AOPIC_SHARDS=f"{folders}x{SHARDS // folders}",
            )
            workers.append(processes.start(line, env=environment, cwd=folder))
        assert [worker.wait(120) for worker in workers] == [0] * folders
        assert len({(entry.host, entry.target) for entry in web.log}) == N_HOSTS * N_PAGES
        with redis.Redis.from_url(server.url) as client:
            stats = client.info("commandstats")
    return Counter({name.removeprefix("cmdstat_"): each["calls"] for name, each in stats.items()})


@pytest.mark.slow
def test_a_worker_that_has_all_shards_sends_itself_no_letters(tmp_path):
    did = crawl(tmp_path, 1)
    assert 0 < did["xadd"] <= did["time"], "what it shows of its shards"
    assert did["xdel"] == 0


@pytest.mark.slow
def test_what_two_workers_let_the_server_do_does_not_grow_with_their_shards(tmp_path):
    did = crawl(tmp_path, 2)
    turns = did["time"]
    assert 0 < did["xadd"] <= 2 * turns, (
        "what a worker posts for another one is one bundle, and one entry for all"
    )
    assert did["xdel"] <= turns
    # Of a turn: one transaction, eight reads and five writes; and now and then seeds, and starts, the more of them the slower
    # the machine. With a command for each pair of shards there were some ninety.
    assert did.total() <= 30 * turns + 200, did


@pytest.mark.slow
@pytest.mark.parametrize("shards", some_of([16, 1]))
def test_a_crawl_seldom_asks_its_server(tmp_path, shards):
    """It waits once a page at most, though each page has a text to compare, links to look up, and a page that comes next.

    And it seldom writes, however many shards have something to store.
    """
    with redis_server.Server(tmp_path / "server") as server, Server(answer).run_in_thread() as web:
        line, environment = command(
            tmp_path,
            web.url,
            REDIS_URL=server.url,
            AOPIC_STORE="redis",
            AOPIC_SHARDS=shards,
            EXTENSIONS=json.dumps({"support.store_waits.StoreWaits": 0}),
        )
        processes.run(line, env=environment, cwd=tmp_path, check=True, timeout=300)
        (waits,) = tmp_path.glob(PATTERN)
        with redis.Redis.from_url(server.url) as client:
            n_reads = client.info("commandstats")["cmdstat_hmget"]["calls"]
    assert len(web.log) == N_HOSTS * N_PAGES
    assert n_reads > len(web.log), "there is something to wait for"
    noted = json.loads(waits.read_text())
    assert len(noted["waits"]) <= len(web.log)
    # Each commit for itself would be two requests at least: what is due at the same instant is written together.
    assert shards == 1 or 0 < noted["writes"] <= noted["commits"], noted["commits"]


def test_a_bundle_that_was_cut_short_is_none():
    letters = [Addressed(3, 0, 7, b"one"), Addressed(4, 1, 1 << 40, b"")]
    data = write_bundle(letters)
    assert read_bundle((b"letters", data)) == letters
    for end in {*range(1, len(data))} - {len(write_bundle(letters[:1]))}:
        with pytest.raises(ValueError, match="cut short"):
            read_bundle((b"letters", data[:end]))


def test_a_turn_is_one_request_and_a_bundle_for_each_worker(server, monkeypatch):
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    address, sharding = Address("job", server.url, lock_timeout=30.0), Sharding(SHARDS, "list", 4)
    begin(address, sharding, lambda: None)
    with ExitStack() as opened:
        workers = [
            opened.enter_context(closing(registry_of(address, sharding, {}, name, f"m:/{name}")))
            for name in "abcd"
        ]

        def states_of(registry: Any, numbers: Iterable[int]) -> dict[int, ShardState]:
            rest = (registry.token, False, [0] * 6, {}, {}, [0] * 4)
            return {number: ShardState(f"token {number}", *rest) for number in numbers}

        for n, registry in enumerate(workers):
            registry.exchange(states_of(registry, range(n, SHARDS, len(workers))), [], [], {})
        requests = []
        registry, mine = workers[0], dict.fromkeys(range(0, SHARDS, len(workers)), 1)
        registry.read(mine)
        exchange = registry._connection._exchange
        monkeypatch.setattr(
            registry._connection,
            "_exchange",
            lambda commands: (requests.append([each[0] for each in commands]), exchange(commands))[1],
        )
        others = {*range(SHARDS)} - {*mine}
        letters = [(to, PostedLetter(number, 1, b"text")) for number in mine for to in others]
        assert len(letters) > 30
        look = registry.exchange(states_of(registry, mine), letters, [], mine)
        assert len(look.states) == SHARDS
        registry.read(mine)
    assert len(requests) == 2, "one for each turn"
    assert requests[0].count(b"XADD") == 4, "three, and one for all states"
    assert all(len(each) <= 24 for each in requests), requests
