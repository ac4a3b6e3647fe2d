"""What is left of a damaged job on a server goes on in another one, and fetches nothing twice."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest
from scrapy.exceptions import CloseSpider
from scrapy.http import Response
from support import redis_server
from support.commands import run_aopic, said
from support.small_web import Follow, crawl, until

from scrapy_aopic.core.ports import Family
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.storage import Address
from scrapy_aopic.storage.opening import open_store_at
from scrapy_aopic.view.auditing import audit_job

redis = redis_server.needed()

pytestmark = pytest.mark.slow


SHARDS = 3
DAMAGED = 1
HOSTS = [f"h{n}.test" for n in range(9)]
PAGES: dict[str, Any] = {
    "http://a.test/": [f"http://{host}/" for host in HOSTS],
    **{f"http://{host}/": [f"http://{host}/{n}" for n in range(4)] for host in HOSTS},
    **{f"http://{host}/{n}": [f"http://{other}/" for other in HOSTS] for host in HOSTS for n in range(4)},
}


def leaves(client: redis.Redis, shard: int, *families: Family) -> list[bytes]:
    return sorted(
        leaf
        for family in families or tuple(Family)
        for leaf in client.scan_iter(f"{{aopic:follow}}:s{shard}:{family:d}:*")
    )


def spoil(client: redis.Redis, shard: int) -> None:
    """Change a byte of every third value."""
    for leaf in leaves(client, shard):
        for key, value in sorted(client.hgetall(leaf).items())[::3]:
            client.hset(leaf, key, value[:-1] + bytes((value[-1] ^ 1,)))


DAMAGE: dict[str, Callable[[redis.Redis, int], object]] = {
    "records": lambda client, shard: client.delete(*leaves(client, shard, Family.PAGES)),
    "queue": lambda client, shard: client.delete(*leaves(client, shard, Family.QUEUE, Family.HOSTS)),
    "totals and mail": lambda client, shard: client.delete(*leaves(client, shard, Family.META)),
    "all keys": lambda client, shard: client.delete(*client.scan_iter(f"{{aopic:follow}}:s{shard}:*")),
    "bytes": spoil,
}


class SomeOfEachHost(Follow):
    """Ends when each host has given a page, and some have more: letters bring links to other shards soon or late."""

    name = Follow.name

    def parse(self, response: Response) -> Iterator[Any]:
        yield from super().parse(response)
        self.missing = getattr(self, "missing", {*HOSTS}) - {urlsplit(response.url).hostname}
        if not self.missing:
            raise CloseSpider("some of each")


@pytest.mark.parametrize("damage", DAMAGE)
async def test_shards_on_a_server_go_on_in_another_job(  # noqa: PLR0917  # fixtures
    serve, settings, address, client, tmp_path, damage
):
    web = serve(PAGES)
    await crawl(SomeOfEachHost, settings)
    before = [*web.asked]
    DAMAGE[damage](client, DAMAGED)
    kept = {name: client.dump(name) for name in client.scan_iter("*:s?:[0-9]:*")}
    said(tmp_path, "salvage", address, "new")
    assert {name: client.dump(name) for name in client.scan_iter("*:s?:[0-9]:*")} == kept
    assert "every invariant holds" in said(tmp_path, "check", "new")
    said(tmp_path, "move", "new", f"{address.url}#aopic:again")
    await crawl(Follow, {**settings, "AOPIC_REDIS_KEY": "aopic:again"})
    whole = audit_job(ServerPlace(Address("aopic:again", address.url)))
    assert whole.violations == []
    assert whole.cash + whole.virtual + whole.in_transit == whole.total
    after = web.asked[len(before) :]
    assert len({*after}) == len(after)
    if damage in ("records", "queue", "totals and mail"):
        assert not {*before} & {*after}
        assert {*before, *after} == {*PAGES}


async def test_any_damage_anywhere_leaves_a_whole_job(serve, settings, address, client, tmp_path):
    serve(PAGES)
    await crawl(SomeOfEachHost, settings)
    rng = random.Random(3)
    names = sorted(name for name in client.scan_iter("{aopic:follow}:s?:*") if client.type(name) == b"hash")
    client.delete(*rng.sample(names, len(names) // 4))
    for name in rng.sample(names, len(names) // 4):
        rows = sorted(client.hgetall(name))
        for row in rng.sample(rows, len(rows) // 2):
            rng.choice((client.hdel, lambda leaf, key: client.hset(leaf, key, b"?")))(name, row)
    said(tmp_path, "salvage", address, "new")
    assert "every invariant holds" in said(tmp_path, "check", "new")


async def test_a_job_on_a_server_that_is_crawled_is_not_salvaged(serve, settings, address, client, tmp_path):
    serve(PAGES)
    await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": 5})
    with closing(open_store_at(address.of_shard(2), is_one_of_many=True)):
        done = run_aopic("salvage", address, "new", folder=tmp_path)
    assert done.returncode == 2
    assert "is in use: process" in done.stderr
    missing = run_aopic("salvage", f"{address}x", "new", folder=tmp_path)
    assert "There is no job in" in missing.stderr
    assert [*tmp_path.iterdir()] == []


async def test_a_job_in_one_piece_on_a_server_is_cut_and_goes_on_with_shards_there(
    serve, settings, address, tmp_path
):
    web = serve(PAGES)
    await crawl(Follow, {**settings, "AOPIC_SHARDS": 1, "CLOSESPIDER_PAGECOUNT": 20})
    before = {*web.asked}
    assert "known as fetched" in said(tmp_path, "salvage", address, "new", "--shards", SHARDS)
    said(tmp_path, "move", "new", f"{address.url}#aopic:again")
    assert 20 <= len(before) < len(PAGES)
    for shards in (5, 2):  # of a server, and of a folder
        again = {**settings, "AOPIC_REDIS_KEY": "aopic:again", "AOPIC_SHARDS": SHARDS}
        if shards == 2:
            again |= {"AOPIC_STORE": "auto", "AOPIC_SHARDS": 1, "JOBDIR": tmp_path / "5"}
        n = len(web.asked)
        await crawl(until(lambda n=n: len(web.asked) >= n + 8, Follow), again)
        job = again.get("JOBDIR", f"{address.url}#aopic:again")
        said(tmp_path, "salvage", job, str(shards), "--shards", shards)
        assert audit_job(FolderPlace(tmp_path / str(shards))).violations == []
    await crawl(Follow, {**again, "JOBDIR": tmp_path / "2"})
    assert audit_job(FolderPlace(tmp_path / "2")).violations == []
    assert sorted(web.asked) == sorted(PAGES), "each page once, those of before among them"
