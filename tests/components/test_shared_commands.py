"""Commands on a job in shards: what each says of the whole, of letters on their way, and of copies."""

from __future__ import annotations

import csv
import json
from contextlib import closing
from typing import Any

import pytest
from demo_web.server import Answer
from support import redis_server
from support.commands import run_aopic, said
from support.small_web import Follow, crawl

import scrapy_aopic
from scrapy_aopic.copies.backing_up import backup, restore
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.shards.cut import Cut, ShardId
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.storage import Address
from scrapy_aopic.storage.opening import open_store_at
from scrapy_aopic.storage.redis.replacing import beside
from scrapy_aopic.view import queries
from scrapy_aopic.view.auditing import audit_job
from scrapy_aopic.view.job_view import open_view
from scrapy_aopic.view.stored import snapshot_of
from scrapy_aopic.web.suffixes import registered_domain

redis_server.needed()

pytestmark = pytest.mark.slow


SHARDS = 4
CUT = Cut(ShardId(0, SHARDS), registered_domain)
HOSTS = [f"h{n}.test" for n in range(8)]
PAGES: dict[str, Any] = {
    "http://a.test/": ["/1", *(f"http://{host}/" for host in HOSTS)],
    "http://a.test/1": ["/"],
    **{f"http://{host}/": [f"http://{host}/x", "http://a.test/"] for host in HOSTS},
    **{f"http://{host}/x": [] for host in HOSTS},
}
ABROAD = next(host for host in HOSTS if CUT.of_host(host) != CUT.of_host("a.test"))
"""A host of another shard than that of a.test."""


async def test_what_is_listed_is_that_of_all_shards_together(serve, settings, address):
    serve(PAGES)
    await crawl(Follow, settings)
    with open_view(ServerPlace(address)) as view:
        pages = queries.top_pages(view, 100)
        assert {row.url for row in pages} == PAGES.keys()
        assert pages[0].url == "http://a.test/", "which nine pages link to"
        importances = [row.importance for row in pages]
        assert importances == sorted(importances, reverse=True)
        assert sum(importances) == pytest.approx(1), "each is a part of the whole job"
        assert queries.top_pages(view, 3) == pages[:3]
        hosts = queries.top_hosts(view, 100)
        assert {row.host for row in hosts} == {"a.test", *HOSTS}
        assert sum(row.importance for row in hosts) == pytest.approx(1)
        assert hosts[0].host == "a.test"
        slow = queries.hosts_by(view, "slow", 100)
        assert {row.name for row in slow} == {"a.test", *HOSTS}
        assert [row.transfer for row in slow] == sorted((row.transfer for row in slow), reverse=True)
        assert queries.hosts_by(view, "slow", 2) == slow[:2]
        now = snapshot_of(view, name="all")
    job = scrapy_aopic.open_job(str(address))
    assert {page.url: page.importance for page in job.pages()} == {row.url: row.importance for row in pages}
    assert job.top(3) == pages[:3]
    assert job.why("http://a.test/1").kind == "fetched"
    assert (now.pages.visited, now.pages.queued, now.hosts.known) == (len(PAGES), 0, 1 + len(HOSTS))
    assert now.ledger.pages + now.ledger.virtual == now.ledger.total == SHARDS * TOTAL
    assert now.outcomes == {"page": len(PAGES)}
    assert now.transfers.n == len(PAGES)
    assert now.is_closed


async def test_an_export_names_pages_of_other_shards(serve, settings, address, tmp_path):
    old = {f"http://old{n}.test/": Answer(301, {"Location": f"http://new{n}.test/"}) for n in range(8)}
    new: dict[str, Any] = {f"http://new{n}.test/": [] for n in range(8)}
    serve({"http://a.test/": [*old, "/1"], "http://a.test/1": ["http://never.test/"], **old, **new})
    await crawl(Follow, {**settings, "AOPIC_KEEP_LINKS": True})
    said(tmp_path, "export", str(address), "--pages", "pages.csv", "--links", "links.csv")
    with (tmp_path / "pages.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    pages = {row["url"]: row for row in rows}
    assert len(rows) == len(pages) == 3 + len(old) + len(new)
    assert {url: row["merged_into"] for url, row in pages.items() if row["merged_into"]} == {
        f"http://old{n}.test/": f"http://new{n}.test/" for n in range(8)
    }
    assert sum(float(row["importance"]) for row in rows) == pytest.approx(1)
    assert sum(int(row["cash"]) for row in rows) <= SHARDS * TOTAL
    with (tmp_path / "links.csv").open(newline="") as file:
        links = {(row["source"], row["target"]) for row in csv.DictReader(file)}
    assert links == {
        *(("http://a.test/", url) for url in old),
        ("http://a.test/", "http://a.test/1"),
        ("http://a.test/1", "http://never.test/"),
    }
    assert set(scrapy_aopic.open_job(str(address)).links()) == links
    assert pages["http://a.test/"]["outlinks"] == str(1 + len(old))
    assert f"It links to {1 + len(old)} pages." in said(tmp_path, "why", str(address), "http://a.test/")


async def test_a_page_in_a_letter_is_known_to_be_there(serve, settings, address, tmp_path):
    serve(PAGES)
    # The page's visit is committed when the crawl is closed, so that nobody reads its letters.
    await crawl(
        Follow, {**settings, "AOPIC_DURABILITY": 2_000, "CLOSESPIDER_PAGECOUNT": 1, "AOPIC_KEEP_LINKS": True}
    )
    home, there = CUT.of_host("a.test"), CUT.of_host(ABROAD)
    url = f"http://{ABROAD}/"
    answers = json.loads(
        said(tmp_path, "why", "--json", str(address), url, ABROAD, "http://a.test/", "http://nowhere.test/")
    )
    in_letter, host, fetched, unknown = answers
    assert in_letter["kind"] == host["kind"] == "in a letter"
    assert f"It is in a letter from shard {home} to shard {there}" in in_letter["sentences"][0]
    assert f"A page of it is in a letter from shard {home}" in host["sentences"][0]
    assert in_letter["facts"]["letters"] == [[home, 1]]
    assert in_letter["facts"]["units"] > 0
    assert f"is in shard {there} of {SHARDS}, which no worker crawls now" in in_letter["sentences"][-1]
    assert fetched["kind"] == "fetched"
    assert fetched["facts"]["shard"] == home
    assert unknown["kind"] == "unknown"
    with open_view(ServerPlace(address)) as view:
        assert url not in {row.url for row in queries.top_pages(view, 100)}
    said(tmp_path, "export", str(address), "--links", "links.csv")
    assert f"http://a.test/,{url}" in (tmp_path / "links.csv").read_text(), "a letter says what it leads to"
    whole = audit_job(ServerPlace(address))
    assert whole.holds
    assert whole.letters > 0


async def test_every_command_takes_the_whole_job_and_its_copy(serve, settings, address, tmp_path):
    serve(PAGES)
    await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": 4})
    where = str(address)
    assert f"rows of {where} copied to copy." in said(tmp_path, "backup", where, "copy")
    assert "exists" in run_aopic("backup", where, "copy", folder=tmp_path).stderr
    for job in (where, "copy"):
        assert "http://a.test/" in said(tmp_path, "top", job)
        assert "a.test" in said(tmp_path, "top", "--hosts", job)
        assert "a.test" in said(tmp_path, "hosts", "--slow", job)
        assert "in shard" in said(tmp_path, "why", job, "http://a.test/")
        assert "every invariant holds" in said(tmp_path, "check", job)
        assert "on the way" in said(tmp_path, "status", job)
        assert "is written" in said(tmp_path, "report", job, "report.html")
        assert "http://a.test/" in (tmp_path / "report.html").read_text()
        assert "pages in pages.csv" in said(tmp_path, "export", job, "--pages", "pages.csv")
    states = [json.loads(said(tmp_path, "status", "--json", job)) for job in (where, "copy")]
    for name in ("pages", "hosts", "ledger", "counted", "outcomes", "transfers"):
        assert states[0][name] == states[1][name]
    rows, copied = (
        [{**row, "worker": None, "is_idle": None} for row in each["shards"]["each"]] for each in states
    )
    assert rows == copied
    assert states[0].keys() == states[1].keys()


async def test_a_restored_job_goes_on_where_its_copy_was(serve, settings, address, client, tmp_path):
    web = serve({**PAGES, "http://late.test/": []})
    await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": 4})
    said(tmp_path, "seed", str(address), "http://late.test/")
    rows = backup(ServerPlace(address), tmp_path / "copy")
    before = audit_job(ServerPlace(address))
    n = len(web.asked)
    refused = run_aopic("backup", "copy", str(address), folder=tmp_path)
    assert refused.returncode == 2
    assert "There is a job in" in refused.stderr
    client.flushall()
    assert f"{rows:,} rows of copy copied to {address}" in said(tmp_path, "backup", "copy", str(address))
    after = audit_job(ServerPlace(address))
    assert after.holds
    assert after == before
    await crawl(Follow, settings)
    assert len(web.asked[n:]) == len({*web.asked[n:]}), "nothing is fetched twice"
    assert {*web.asked} == {*PAGES, "http://late.test/"}
    assert len(web.asked) <= len(PAGES) + 2, "the page that was in flight at the most"
    assert audit_job(ServerPlace(address)).holds


async def test_a_restore_that_was_killed_leaves_no_job_and_is_done_again(
    serve, settings, client, tmp_path, monkeypatch
):
    address = Address("aopic:follow", settings["REDIS_URL"])
    serve(PAGES)
    await crawl(Follow, settings)
    backup(ServerPlace(address), tmp_path / "copy")
    whole = audit_job(ServerPlace(address))
    client.flushall()

    class Killed(BaseException):
        pass

    n = 0

    def kill(*arguments: Any, **options: Any) -> Any:
        nonlocal n
        n += 1
        if n == SHARDS:
            raise Killed
        return copy(*arguments, **options)

    copy = restore.__globals__["copy_rows"]
    monkeypatch.setattr("scrapy_aopic.copies.backing_up.copy_rows", kill)
    with pytest.raises(Killed):
        restore(tmp_path / "copy", address)
    monkeypatch.undo()
    client.set("{aopic:follow}:s0:0:stray", b"1")
    with pytest.raises(StorageError, match="There is no store"), open_view(ServerPlace(address)):
        pass
    restore(tmp_path / "copy", address)
    assert audit_job(ServerPlace(address)) == whole
    assert not client.exists("{aopic:follow}:s0:0:stray"), "what was left behind is gone"


async def test_a_job_in_one_piece_is_restored_as_a_whole(serve, settings, address, client, tmp_path):
    web = serve(PAGES)
    await crawl(Follow, {**settings, "AOPIC_SHARDS": 1, "CLOSESPIDER_PAGECOUNT": 4})
    n = backup(ServerPlace(address), tmp_path / "copy")
    with open_view(ServerPlace(address)) as view:
        (store,) = view.stores
        rows = {family: dict(store.scan(family)) for family in Family}
    client.flushall()
    with closing(
        open_store_at(beside(address), is_one_of_many=True)
    ) as of_another:  # restore, at the same time
        assert restore(tmp_path / "copy", address) == n
        with pytest.raises(StorageError, match=r"aopic:follow \(a store that is made beside it\)"):
            of_another.write({Family.META: {b"x": b"y"}}, sync=True)
    assert {name.split(b":s")[0] for name in client.scan_iter("*:s*:*")} == set()
    with open_view(ServerPlace(address)) as view:
        (store,) = view.stores
        assert {family: dict(store.scan(family)) for family in Family} == rows
    await crawl(Follow, {**settings, "AOPIC_SHARDS": 1})
    assert {*web.asked} == {*PAGES}


async def test_a_copy_in_shards_is_a_job_folder(serve, settings, address, tmp_path):
    web = serve(PAGES)
    await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": 1})
    backup(ServerPlace(address), tmp_path / "copy")
    await crawl(Follow, {"SCHEDULER": "scrapy_aopic.Scheduler", "JOBDIR": str(tmp_path / "copy")})
    assert {*PAGES} <= {*web.asked}
    assert audit_job(FolderPlace(tmp_path / "copy")).violations == []
