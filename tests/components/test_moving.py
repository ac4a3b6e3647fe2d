"""Jobs that move between folders, several folders and a server, and grow on the way: nothing is lost, and nothing is fetched twice."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from demo_web.server import Answer
from support import redis_server
from support.commands import run_aopic, said
from support.crawls import in_folder
from support.small_web import Follow, Web, crawl, html, until

from scrapy_aopic.copies.backing_up import backup
from scrapy_aopic.copies.moving import copy_job, move_job
from scrapy_aopic.copies.salvaging import salvage_job
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.shards.cut import Cut, ShardId
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.place.folder_place import WORKER, FolderPart, FolderPlace
from scrapy_aopic.place.place import Place
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.storage import Address
from scrapy_aopic.view import queries
from scrapy_aopic.view.auditing import audit_job
from scrapy_aopic.view.job_view import open_view
from scrapy_aopic.web.suffixes import registered_domain

redis_server.needed()

pytestmark = pytest.mark.slow

SHARDS = 4
N_HOSTS, N_PAGES = 12, 5
LINKS = [f"http://{host}.test/" for host in "abcdefghijkl"] + [f"/{n}" for n in range(1, N_PAGES)]
PAGE = Answer(headers={"Content-Type": "text/html"}, body=html(LINKS), delay=0.02)
PAGES: dict[str, Any] = {
    f"http://{host}.test/{n or ''}": PAGE for host in "abcdefghijkl" for n in range(N_PAGES)
}


def rows(*places: Place) -> list[Any]:
    """All rows of all shards, which are each in one of *places*."""
    found: dict[int, Any] = {}
    for place in places:
        with ExitStack() as opened:
            stores = place.open_snapshots()
            for store in stores:
                opened.callback(store.close)
            found |= {
                number: [list(stores[number].scan(family)) for family in Family]
                for number in place.shards_here()
            }
    return [found[number] for number in sorted(found)]


def move(*arguments: object, folder: Path) -> str:
    """What the command says."""
    done = run_aopic("move", *arguments, "-s", "AOPIC_REDIS_LOCK_TIMEOUT=1", folder=folder)
    return done.stdout + done.stderr


async def go_on(
    web: Web, settings: dict[str, Any], *jobs: Path | None, most: int = N_HOSTS * N_PAGES
) -> None:
    """Crawl, with workers with these job folders, until so many pages were asked for."""
    spider = until(lambda: len(web.asked) >= most)
    own = [
        {**settings, "AOPIC_STORE": "auto", "JOBDIR": job} if job is not None else settings for job in jobs
    ]
    await asyncio.gather(*(crawl(spider, each) for each in own))


def check(*places: Place) -> None:
    """All that is in *places* holds, to the unit."""
    for place in places:
        assert audit_job(place).violations == []


def known(places: Sequence[Place]) -> list[str]:
    """URLs that the shards in *places* know."""
    found = []
    for place in places:
        with open_view(place) as view:
            found += [row.url for row in queries.top_pages(view, 1_000)]
    return sorted(found)


async def test_a_job_goes_from_a_server_to_one_folder_to_two_and_back(serve, settings, address, tmp_path):
    web = serve(PAGES)
    server, one, two = ServerPlace(address), FolderPlace(tmp_path / "one"), FolderPlace(tmp_path / "two")
    job = str(server)
    settings["AOPIC_REDIS_LOCK_TIMEOUT"] = 1
    await go_on(web, settings, None, most=10)

    before = rows(server)
    assert f"is now in {one}" in move(job, one, folder=tmp_path)
    assert rows(one) == before
    check(one)
    assert not server.has_job()
    await go_on(web, {**settings, "AOPIC_SHARDS": 1}, one.folder, most=20)

    before, urls = rows(one), known([one])
    assert "now in" in move(one, two, "--shards", "1,3", "--server", job, folder=tmp_path)
    assert (one.shards_here(), two.shards_here()) == ([0, 2], [1, 3])
    assert rows(one, two) == before
    check(one, two, server)
    assert known([one, two]) == known([server]) == urls
    assert rows(server) == before
    shard_of = Cut(ShardId(0, SHARDS), registered_domain).of_host
    away = next(url for url in PAGES if shard_of(url.split("/")[2]) == 1)
    answer = said(tmp_path, "why", one, away)
    assert "is in shard 1 of 4, whose store is not here." in answer
    assert "There is no job" not in answer
    assert "whose store" not in said(tmp_path, "why", two, away)
    whole, *parts = (json.loads(said(tmp_path, "status", "--json", each)) for each in (job, one, two))
    assert sum(each["shards"]["on_the_way"] for each in parts) <= whole["shards"]["on_the_way"]
    backup(two, tmp_path / "copy")
    copy = FolderPlace(tmp_path / "copy")
    assert (rows(copy), copy.read_part()) == (rows(two), two.read_part())
    with pytest.raises(StorageError, match=r"copy has only a part of the job in redis://"):
        copy_job(copy, ServerPlace(Address("aopic:other", address.url)))
    for place in (one, server):
        with pytest.raises(
            StorageError,
            match=r"are in several job folders: bring them to one of them first \('scrapy aopic move'\)",
        ):
            salvage_job(place, tmp_path / "new", shards=8)
    await go_on(web, {**settings, "AOPIC_SHARDS": 1}, one.folder, two.folder, most=35)
    check(one, two, server)

    before = rows(one, two)
    assert "now in" in move(two, one, folder=tmp_path)
    assert (one.read_part(), one.shards_here(), two.shards_here()) == (None, [0, 1, 2, 3], [])
    assert rows(one) == before
    assert not server.has_job()
    await go_on(web, {**settings, "AOPIC_SHARDS": 1}, one.folder, most=45)

    before = rows(one)
    assert f"is now in {job}" in move(one, job, folder=tmp_path)
    assert rows(server) == before
    check(server)
    await crawl(Follow, settings)
    check(server)
    assert sorted(web.asked) == sorted(PAGES), "each once"


async def test_a_crawl_does_not_begin_anew_where_a_job_was(serve, settings, address, tmp_path, caplog):
    web = serve(PAGES)
    await go_on(web, settings, None, most=5)
    server, folder = ServerPlace(address), FolderPlace(tmp_path / "job")
    move_job(server, folder)
    n = len(web.asked)
    await crawl(Follow, settings)
    assert f"The job in {address} was moved to {folder}: crawl it there." in caplog.text
    move_job(folder, ServerPlace(Address("aopic:other", address.url)))
    await crawl(Follow, {**settings, "AOPIC_STORE": "auto", "AOPIC_SHARDS": 1, "JOBDIR": folder.folder})
    assert f"The job in {folder} was moved to redis://" in caplog.text
    assert len(web.asked) == n


async def test_no_job_in_one_piece_begins_where_a_kill_left_only_the_name_of_a_part(serve, tmp_path, caplog):
    web = serve(PAGES)
    job = FolderPlace(tmp_path / "job")
    job.write_part(FolderPart("a", "redis://127.0.0.1:9/0#other"))
    await crawl(Follow, in_folder(job.folder, AOPIC_STORE="auto"))
    assert "is for shards of the job in redis://127.0.0.1:9/0#other: set AOPIC_SHARDS" in caplog.text
    assert web.log == []
    assert not job.has_job()


async def test_a_job_in_one_piece_is_refused_to_several_workers_with_a_way_out(
    serve, tmp_path, monkeypatch, caplog
):
    web = serve(PAGES)
    given = in_folder(tmp_path / "job", AOPIC_STORE="auto")
    await crawl(Follow, {**given, "CLOSESPIDER_PAGECOUNT": 1})
    n = len(web.log)
    monkeypatch.setenv(WORKER, "1")
    await crawl(Follow, given)
    assert "is in one piece, because it began with one worker" in caplog.text
    assert re.search(f"'scrapy aopic salvage {tmp_path / 'job'} NEW --shards [0-9]+' makes NEW", caplog.text)
    assert len(web.log) == n


def test_what_cannot_be_moved_is_left_as_it_is(address, tmp_path):
    assert "There is no job in the folder" in move(tmp_path / "none", tmp_path / "new", folder=tmp_path)
    job = FolderPlace(tmp_path / "job")
    job.add_seeds([])
    for arguments, told in [
        ((job, tmp_path / "new", "--shards", "1"), "if FROM has all shards so far, name a --server"),
        (
            (job, address, "--shards", "1", "--server", address),
            "--server a folder; both a folder as TO, and --shards",
        ),
        ((job, tmp_path / "new", "--shards", "1", "--server", address), "is in one piece, or there is none"),
    ]:
        assert told in move(*arguments, folder=tmp_path), arguments
    assert not (tmp_path / "new").exists()


async def test_a_round_goes_on_wherever_the_job_is(serve, settings, address, tmp_path):
    web = serve(PAGES)
    settings = {**settings, "AOPIC_RECRAWL": "once"}
    server, folder = ServerPlace(address), FolderPlace(tmp_path / "job")
    in_folder = {**settings, "AOPIC_STORE": "auto", "AOPIC_SHARDS": 1, "JOBDIR": folder.folder}
    n = len(PAGES)
    await crawl(Follow, settings)
    move_job(server, folder)
    await crawl(until(lambda: len(web.asked) >= n + 20), in_folder)
    assert n + 20 <= len(web.asked) < 2 * n
    await crawl(Follow, in_folder)
    assert sorted(web.asked) == sorted([*PAGES] * 2), "none twice in a round"
    await crawl(until(lambda: len(web.asked) >= 2 * n + 20), in_folder)
    move_job(folder, server)
    await crawl(Follow, settings)
    assert sorted(web.asked) == sorted([*PAGES] * 3)
    with open_view(server) as view:
        assert [(each.number, bool(each.ended)) for each in queries.rounds_in(view)] == [
            (1, True),
            (2, True),
            (3, True),
        ]
