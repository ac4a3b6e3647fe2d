"""Damaged jobs on a server are made whole: cash is right to the unit, what is left is kept, and the crawl goes on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from scrapy.exceptions import CloseSpider
from scrapy.http import Response
from scrapy.utils.defer import deferred_f_from_coro_f
from support import redis_server
from support.commands import run_aopic
from support.short_forms import some_of
from support.small_web import Follow, Web, crawl

from scrapy_aopic.copies.repairing import repair
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.shards.cut import Cut, ShardId
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.storage import Address
from scrapy_aopic.storage.opening import open_store_at
from scrapy_aopic.view.auditing import audit_job
from scrapy_aopic.view.job_view import open_view
from scrapy_aopic.web.suffixes import registered_domain

if redis_server.find_server() is None:
    pytest.skip(redis_server.WHY_NOT, allow_module_level=True)
pytest.importorskip("hiredis")
redis = pytest.importorskip("redis")

pytestmark = pytest.mark.slow

Serve = Callable[[dict[str, Any]], Web]

SHARDS = 3
HOSTS = [f"h{n}.test" for n in range(9)]
PAGES: dict[str, Any] = {
    "http://a.test/": [f"http://{host}/" for host in HOSTS],
    **{f"http://{host}/": [f"http://{host}/{n}" for n in range(4)] for host in HOSTS},
    **{f"http://{host}/{n}": [f"http://{other}/" for other in HOSTS] for host in HOSTS for n in range(4)},
}

CUT = Cut(ShardId(0, SHARDS), registered_domain)
DAMAGED = 1
"""Shard that is damaged; it has several hosts, none of which is in the seed."""


class UntilItIsThere(Follow):
    """Ends when the shard that will be damaged has two visited pages, however long its mail takes; others wait there then."""

    n_there = 0

    def parse(self, response: Response) -> Iterator[Any]:
        yield from super().parse(response)
        self.n_there += CUT.of_host(urlsplit(response.url).netloc) == DAMAGED
        if self.n_there >= 2:
            raise CloseSpider("two pages are there")


@pytest.fixture
def settings(server, client) -> dict[str, Any]:
    return {
        "SCHEDULER": "scrapy_aopic.Scheduler",
        "AOPIC_STORE": "redis",
        "AOPIC_SHARDS": SHARDS,
        "AOPIC_DURABILITY": 50,
        "REDIS_URL": server.url,
    }


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts are left alone for a minute after a repair, which is shown elsewhere."""
    monkeypatch.setattr("scrapy_aopic.core.rebuild._PAUSE", 0.05)


@pytest.fixture
def address(server) -> Address:
    return Address("aopic:follow", server.url)


def leaves(client: redis.Redis, shard: int, family: Family) -> list[bytes]:
    return sorted(client.scan_iter(f"{{aopic:follow}}:s{shard}:{family:d}:*"))


def lose(client: redis.Redis, shard: int, *families: Family) -> None:
    for family in families or tuple(Family):
        for leaf in leaves(client, shard, family):
            client.delete(leaf)


def lose_all(client: redis.Redis, shard: int) -> None:
    client.delete(*client.scan_iter(f"{{aopic:follow}}:s{shard}:*"))


def spoil(client: redis.Redis, shard: int) -> None:
    """Change a byte of every third value."""
    for family in Family:
        for leaf in leaves(client, shard, family):
            for key, value in sorted(client.hgetall(leaf).items())[::3]:
                client.hset(leaf, key, value[:-1] + bytes((value[-1] ^ 1,)))


def put_another_kind(client: redis.Redis, shard: int) -> None:
    for leaf in leaves(client, shard, Family.PAGES):
        client.set(leaf, "x")


DAMAGE: dict[str, Callable[[redis.Redis, int], None]] = {
    "pages": lambda client, shard: lose(client, shard, Family.PAGES),
    "requests": lambda client, shard: lose(client, shard, Family.REQUESTS),
    "queue": lambda client, shard: lose(client, shard, Family.QUEUE, Family.HOSTS),
    "totals and mail": lambda client, shard: lose(client, shard, Family.META),
    "all rows": lose,
    "all keys": lose_all,
    "which leaves there are": lambda client, shard: client.delete(
        *client.scan_iter(f"{{aopic:follow}}:s{shard}:leaves:*")
    ),
    "bytes": spoil,
    "another kind": put_another_kind,
}


@pytest.mark.parametrize("damage", DAMAGE)
@deferred_f_from_coro_f
async def test_a_damaged_shard_is_made_whole_and_the_others_are_left_alone(
    serve: Serve, settings, address, client, damage: str
) -> None:
    web = serve(PAGES)
    await crawl(UntilItIsThere, settings)
    assert repair(ServerPlace(address)) == [], "there is nothing to repair"
    with open_view(ServerPlace(address)) as view:
        others = {n: _rows(view.stores[n]) for n in range(SHARDS) if n != DAMAGED}
    DAMAGE[damage](client, DAMAGED)
    (*found,) = repair(ServerPlace(address))
    assert DAMAGED in {each.shard for each in found}
    whole = audit_job(ServerPlace(address))
    assert whole.violations == []
    assert whole.cash + whole.virtual + whole.in_transit == whole.total
    with open_view(ServerPlace(address)) as view:
        for number, rows in others.items():
            if number not in {each.shard for each in found}:
                assert _rows(view.stores[number]) == rows
    kept = next(each.kept for each in found if each.shard == DAMAGED)
    assert damage in ("all keys", "all rows") or [*client.scan_iter(f"{kept}*")], "the damaged one is there"
    assert repair(ServerPlace(address)) == []
    if damage in (
        "pages",
        "all keys",
    ):  # with others a page may be forgotten to which only visited pages link
        await crawl(Follow, settings)
        assert {*web.asked} == {*PAGES}
        assert audit_job(ServerPlace(address)).holds


def _rows(store: Any) -> dict[Family, dict[bytes, bytes]]:
    return {family: dict(store.store.scan(family)) for family in Family}


@pytest.mark.parametrize("seed", some_of(range(5), 2))
@deferred_f_from_coro_f
async def test_any_damage_anywhere_leaves_a_whole_job(
    serve: Serve, settings, address, client, seed: int
) -> None:
    web = serve(PAGES)
    await crawl(UntilItIsThere, settings)
    rng = random.Random(seed)
    names = sorted(name for name in client.scan_iter("{aopic:follow}:s?:*") if client.type(name) == b"hash")
    for name in rng.sample(names, len(names) // 4):
        client.delete(name)
    for name in rng.sample(names, len(names) // 4):
        rows = sorted(client.hgetall(name))
        for row in rng.sample(rows, len(rows) // 2):
            rng.choice((client.hdel, lambda leaf, key: client.hset(leaf, key, b"?")))(name, row)
    assert repair(ServerPlace(address))
    assert audit_job(ServerPlace(address)).violations == []
    assert repair(ServerPlace(address)) == []
    await crawl(Follow, {**settings, "start_urls": [*PAGES]})
    assert audit_job(ServerPlace(address)).violations == []
    assert len(web.asked) >= 20


@deferred_f_from_coro_f
async def test_a_job_in_one_piece_is_made_whole_by_the_command(
    serve: Serve, settings, address, client, tmp_path: Path
) -> None:
    web = serve(PAGES)
    settings = {**settings, "AOPIC_SHARDS": 1}
    await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": 20})
    assert "nothing to repair" in run_aopic("repair", str(address), folder=tmp_path).stdout
    client.delete(*client.scan_iter(f"{{aopic:follow}}:{Family.QUEUE:d}:*"))
    done = run_aopic("repair", str(address), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "The damaged store is in the keys that begin with {aopic:follow}:s514:" in done.stdout
    with open_view(ServerPlace(address)) as view:
        found = audit(view.stores[0])
    assert found.holds
    assert found.visited == len({*web.asked})
    assert found.queued > 0


@deferred_f_from_coro_f
async def test_a_job_that_is_crawled_is_not_repaired(
    serve: Serve, settings, address, client, tmp_path: Path
) -> None:
    serve(PAGES)
    await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": 5})
    lose(client, 0, Family.QUEUE)
    before = {name: client.dump(name) for name in client.scan_iter()}
    with (
        closing(open_store_at(address.of_shard(2), is_one_of_many=True)),
        pytest.raises(StorageError, match="is in use: process"),
    ):
        repair(ServerPlace(address))
    after = {name: client.dump(name) for name in client.scan_iter()}
    assert {n for n in before if after.get(n) != before[n]} <= {
        name for name in before if name.endswith(b":head")
    }
    missing = run_aopic("repair", f"{address}x", folder=tmp_path)
    assert missing.returncode == 2
    assert "There is no job in" in missing.stderr
