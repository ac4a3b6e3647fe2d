"""Commands look at a job, and copy it, while two workers crawl it: each sees one moment, and the crawl does not notice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import redis_server

if redis_server.find_server() is None:
    pytest.skip(redis_server.WHY_NOT, allow_module_level=True)
pytest.importorskip("redis")
pytest.importorskip("hiredis")

from support.commands import said
from support.workers import SHARDS, Workers, check_all, running

from scrapy_aopic.copies.backing_up import backup, restore
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.shards.all_shards import audit_shards
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.storage import Address
from scrapy_aopic.view import queries
from scrapy_aopic.view.auditing import audit_job
from scrapy_aopic.view.job_view import open_view
from scrapy_aopic.view.stored import snapshot_of
from scrapy_aopic.web.suffixes import registered_domain

pytestmark = pytest.mark.slow


def look(address: Address, folder: Path) -> int:
    """Everything that one look shows is of one moment; returns how many pages were visited then."""
    with open_view(ServerPlace(address)) as view:
        audited = audit_shards(view.stores, registered_domain)
        assert audited.violations == []
        pages = [page for chunk in queries.pages_in(view, 100) for page in chunk]
        now = snapshot_of(view)
        best = queries.top_pages(view, 5, everything=True)
    assert now is not None
    assert len(pages) == len({page.url for page in pages}) == now.pages.known
    assert sum(page.visits > 0 for page in pages) == now.pages.visited + now.pages.failed
    assert sum(page.importance for page in pages) == pytest.approx(1)
    assert sum(page.cash for page in pages) + now.ledger.virtual + audited.in_transit == SHARDS * TOTAL
    assert [row.importance for row in best] == sorted((page.importance for page in pages), reverse=True)[:5]
    copied = backup(ServerPlace(address), folder)
    assert copied > len(pages)
    assert audit_job(FolderPlace(folder)).holds
    return now.pages.visited


def test_looks_and_copies_of_a_job_that_two_workers_crawl(tmp_path):
    # slow pages, so that the crawl is seldom over when the last copy is made; on a busy machine it may be
    with running(tmp_path, delay=0.02) as workers:
        workers.start()
        workers.start()
        address = Address("aopic:follow", workers.redis.url)
        seen = []
        for n in (40, 80, 120):
            workers.wait_for(n)
            seen.append(look(address, tmp_path / f"copy-{n}"))
        assert seen == sorted(seen)
        assert seen[0] > 0
        _ask(workers, str(address), tmp_path)
        workers.wait()
        check_all(workers, [])
        _go_on_with(tmp_path / "copy-80", Address("aopic:copy", workers.redis.url))


def _ask(workers: Workers, where: str, folder: Path) -> None:
    url = f"http://{workers.web.log[0].host}{workers.web.log[0].target}"
    (answer,) = json.loads(said(folder, "why", "--json", where, url))
    assert answer["kind"] in ("fetched", "queued", "in flight")
    assert " is in shard " in answer["sentences"][-1]
    assert url.split("/")[2] in said(folder, "top", "--hosts", where)
    assert "is written" in said(folder, "report", where, "report.html")


def _go_on_with(copy: Path, place: Address) -> None:
    """The *copy* of a job that was being crawled is a whole job elsewhere."""
    before = audit_job(FolderPlace(copy))
    restore(copy, place)
    assert audit_job(ServerPlace(place)) == before
