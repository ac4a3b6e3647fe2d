"""The power fails: what was not synchronised is gone, and each commit that had landed is there."""

from __future__ import annotations

import math
import shutil
import time
from pathlib import Path

import pytest

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.politeness import Politeness
from scrapy_aopic.core.records import Link, host_key, page_key
from scrapy_aopic.job.job import Job
from scrapy_aopic.place.folder_place import store_folder
from scrapy_aopic.storage import open_snapshot

WITHOUT_GAPS = Policy(politeness=Politeness(0.0, 0.0, 0.0))


def link(number: int) -> Link:
    host = f"h{number % 7}"
    return Link(page_key(host_key(host), b"%d" % number), host, b"%d" % number)


def visit(job: Job, n: int) -> None:
    for _ in range(n):
        lease = job.crawl.lease(job.clock())
        assert isinstance(lease, Lease)
        number = int(lease.request)
        job.crawl.release(lease, job.clock())
        job.crawl.settle(lease, [link(3 * number + each) for each in (1, 2, 3)], job.clock())
        job.tick()


def land(job: Job) -> None:
    """Tick until everything so far has landed, if anything lands before the end."""
    while not job.shards[0].commits.is_over:
        job.commit_soon()
        job.tick()
        time.sleep(0.001)


def sizes(folder: Path) -> dict[Path, int]:
    shutil.copy(store_folder(folder) / "landed", folder.with_name("landed"))
    return {path: path.stat().st_size for path in store_folder(folder).iterdir()}


def after_power_failure(folder: Path, synced: dict[Path, int]) -> Path:
    """The folder with no byte that came after the files had the sizes *synced*; SQLite makes its -shm anew."""
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    for path in list(store_folder(copy).iterdir()):
        size = synced.get(store_folder(folder) / path.name)
        if size is None or path.name.endswith("-shm"):
            path.unlink()
        elif path.stat().st_size > size:
            with path.open("r+b") as file:
                file.truncate(size)
    shutil.copy(folder.with_name("landed"), store_folder(copy))  # which is written in place
    return copy


@pytest.mark.crossed
@pytest.mark.parametrize("interval", [0.0, 0.05, math.inf], ids=["page", "50 ms", "close"])
@pytest.mark.parametrize("kind", ["rocksdb", "sqlite"])
def test_what_had_landed_when_the_power_fails_is_there_and_the_crawl_goes_on(tmp_path, kind, interval):
    if kind == "rocksdb":
        pytest.importorskip("rocksdict")
    folder = tmp_path / "job"
    job = Job(folder, WITHOUT_GAPS, kind=kind, interval=interval)
    job.crawl.seed(link(0), job.clock())
    visit(job, 20)
    land(job)
    synced = sizes(folder)
    visit(job, 15)
    land(job)  # on the disk, as far as the process knows, but the disk has lost it
    copy = after_power_failure(folder, synced)
    job.close()
    store = open_snapshot(store_folder(copy))
    result = audit(store)
    store.close()
    assert result.violations == []
    assert result.visited == (0 if interval == math.inf else 20)
    job = Job(copy, WITHOUT_GAPS, kind=kind, interval=interval)
    if interval == math.inf:
        job.crawl.seed(link(0), job.clock())
    while not isinstance(job.crawl.lease(job.clock()), Lease):  # the pause after the crash
        time.sleep(0.001)
    job.close()


def test_a_commit_of_sqlite_is_synchronised(tmp_path):
    """As ``test_a_store_that_could_not_sync_takes_no_more_writes`` shows of RocksDB."""
    job = Job(tmp_path / "job", WITHOUT_GAPS, kind="sqlite")
    assert job.shards[0].store._writer.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    job.close()
