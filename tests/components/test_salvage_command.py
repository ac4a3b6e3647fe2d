"""What can be read of a damaged job goes on as a new one: nothing waits in vain, nothing known as fetched is fetched again."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import processes
from support.commands import run_aopic, said
from support.small_web import Follow, check, crawl
from support.stored_jobs import link, make_job, rows

from scrapy_aopic.copies import backing_up, salvaging
from scrapy_aopic.copies.salvaging import salvage_job
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.crawl_totals import CrawlTotals, read_totals
from scrapy_aopic.core.layout import SHARD, TOTALS_KEY
from scrapy_aopic.core.operator_control import Control
from scrapy_aopic.core.order import PageRank, order_name
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import unpack_page
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.job.job import Job
from scrapy_aopic.place.folder_place import FolderPlace, store_folder
from scrapy_aopic.place.stored_control import change_control, read_control
from scrapy_aopic.seeds.adding import add_seeds
from scrapy_aopic.seeds.earlier_crawl import earlier_crawl_of, read_earlier_crawl, write_earlier_crawl
from scrapy_aopic.storage import open_snapshot, open_store
from scrapy_aopic.storage.lock import Lock
from scrapy_aopic.view.auditing import audit_job

pytestmark = pytest.mark.slow

each_store = pytest.mark.parametrize("store", ["rocksdb", "sqlite"])


HOSTS = [f"h{n}.test" for n in range(8)]
PAGES: dict[str, Any] = {
    "http://a.test/": [f"http://{host}/" for host in HOSTS],
    **{f"http://{host}/": [f"http://{host}/{n}" for n in range(40)] for host in HOSTS},
    **{f"http://{host}/{n}": [f"http://{other}/" for other in HOSTS] for host in HOSTS for n in range(40)},
}


def files_of(job: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below *job*, its bytes and its time."""
    return {
        str(path.relative_to(job)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in job.rglob("*")
        if path.is_file()
    }


def spoil(job: Path, number: int) -> None:
    """Overwrite a part of the largest file of rows, where rows are."""
    files = [path for path in store_folder(job).iterdir() if path.suffix in (".sst", ".sqlite3")]
    path = max(files, key=lambda path: path.stat().st_size)
    data = path.read_bytes()
    at = len(data) // 4 + 5_000 * number
    path.write_bytes(data[:at] + bytes(3_000) + data[at + 3_000 :])


def halve(job: Path) -> None:
    """Cut the largest file of rows in half."""
    files = [path for path in store_folder(job).iterdir() if path.suffix in (".sst", ".sqlite3")]
    path = max(files, key=lambda path: path.stat().st_size)
    os.truncate(path, path.stat().st_size // 2)


def fetched_of(job: Path) -> set[bytes]:
    """Keys of the pages that are known as fetched."""
    store = open_snapshot(store_folder(job))
    try:
        return {key for key, data in store.scan(Family.PAGES) if unpack_page(data).visits}
    finally:
        store.close()


@each_store
@pytest.mark.parametrize("damage", [spoil, halve], ids=["spoiled", "half"])
async def test_a_damaged_crawl_goes_on_in_a_new_job_and_fetches_nothing_twice(serve, tmp_path, store, damage):
    web = serve(PAGES)
    settings = {"SCHEDULER": "scrapy_aopic.Scheduler", "AOPIC_STORE": store}
    job, new = tmp_path / "job", tmp_path / "new"
    await crawl(Follow, {**settings, "JOBDIR": str(job), "CLOSESPIDER_PAGECOUNT": 100})
    before = [*web.asked]
    place = FolderPlace(job)
    add_seeds(place, ["http://seed.test/"])
    change_control(place, lambda _: Control(blocked={"x.test": 1.0}))
    write_earlier_crawl(place, earlier_crawl_of("scrapy", [7]))
    damage(job, 1) if damage is spoil else damage(job)
    files = files_of(job)
    done = run_aopic("salvage", job, new, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert files_of(job) == files, "the old folder is as it was"
    assert f"JOBDIR={new}" in done.stdout
    found = check(new)
    assert found.violations == []
    assert (
        f"{found.queued:,} pages wait and {found.visited + found.failed:,} are known as fetched"
        in done.stdout
    )
    known = fetched_of(new)
    assert read_control(FolderPlace(new)).blocked == {"x.test": 1.0}
    assert len(read_earlier_crawl(FolderPlace(new)) or ()) == 1
    assert [path.read_text() for path in (new / "aopic-seeds").iterdir()] == ['["http://seed.test/", null]\n']
    change_control(FolderPlace(new), lambda _: Control())
    web.pages["http://seed.test/"] = []
    await crawl(Follow, {**settings, "JOBDIR": str(new)})
    after = web.asked[len(before) :]
    assert len({*after}) == len(after)
    twice = {*before} & {*after}
    assert len(twice) <= len({*before}) - len(known), "only what is not known as fetched is fetched again"
    assert (store, damage) != ("rocksdb", spoil) or not twice
    assert "http://seed.test/" in after
    assert check(new).violations == []


@each_store
def test_a_sound_job_is_salvaged_as_it_is(tmp_path, store):
    job = tmp_path / "job"
    make_job(job, store, 3_000)
    assert "3,000 pages wait and 0 are known as fetched, on 50 hosts." in said(
        tmp_path, "salvage", job, "new"
    )
    kept, new = rows(job), rows(tmp_path / "new")
    assert [key for key, _ in new[Family.PAGES]] == [key for key, _ in kept[Family.PAGES]]
    assert new[Family.REQUESTS] == kept[Family.REQUESTS]
    done = run_aopic("salvage", job, "new", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "new exists; remove it, or name another folder." in done.stderr


@each_store
def test_a_damaged_log_of_a_job_that_was_killed_is_refused_and_salvaged(tmp_path, store):
    killed, job = tmp_path / "killed", tmp_path / "job"
    opened = open_store(store_folder(killed), store)
    crawl = Crawl(opened, Policy(), 0.0)
    for n in range(300):
        crawl.seed(link(f"h{n % 50}", n), 0.0)
        if n % 30 == 0:
            opened.write(crawl.take_changes(0.0), sync=True)
            crawl.changes_landed()
    shutil.copytree(killed, job)  # as a kill would leave it
    opened.close()
    log = max(store_folder(job).glob({"rocksdb": "*.log", "sqlite": "*-wal"}[store]), key=os.path.getsize)
    data = log.read_bytes()
    log.write_bytes(data[: len(data) // 2] + b"damage" + data[len(data) // 2 + 6 :])
    for _ in range(2):  # the first refusal must not tidy it away
        with pytest.raises(StorageError, match="scrapy aopic salvage"):
            open_store(store_folder(job))
    files = files_of(job)
    done = salvage_job(FolderPlace(job), tmp_path / "new")[0]
    assert files_of(job) == files
    result = check(tmp_path / "new")
    assert result.violations == []
    assert 100 < result.pages <= 271  # in SQLite the rows behind the damage are kept, too
    assert "is damaged" in done.reason


@pytest.mark.parametrize("lost", ["CURRENT", "MANIFEST", ".log", "format"])
def test_a_rocksdb_store_that_has_lost_a_file_is_salvaged(tmp_path, lost):
    pytest.importorskip("rocksdict")
    job = tmp_path / "job"
    make_job(job, "rocksdb", 3_000)
    for path in store_folder(job).iterdir():
        if lost in path.name:
            path.unlink()
    if lost == "CURRENT":
        # A new store in its place, the second time, would be the end of it.
        for opens in (open_store, open_store, open_snapshot):
            with pytest.raises(StorageError, match="CURRENT is gone"):
                opens(store_folder(job))
    salvage_job(FolderPlace(job), tmp_path / "new")
    result = check(tmp_path / "new")
    assert (result.violations, result.pages) == ([], 3_000)


@pytest.mark.parametrize("begin", [0, 40_000])
def test_a_database_without_its_beginning_is_read_as_far_as_possible(tmp_path, begin):
    job = tmp_path / "job"
    make_job(job, "sqlite", 3_000)
    path = store_folder(job) / "store.sqlite3"
    data = path.read_bytes()
    path.write_bytes(data[:begin] + bytes(4096) + data[begin + 4096 :])
    salvage_job(FolderPlace(job), tmp_path / "new")
    result = check(tmp_path / "new")
    assert result.violations == []
    assert 2_000 < result.pages <= 3_000


@each_store
def test_a_salvage_without_room_leaves_nothing_and_says_so_in_a_sentence(tmp_path, store, monkeypatch):
    job = tmp_path / "job"
    make_job(job, store, 300)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", fail)
    with pytest.raises(StorageError, match=r"cannot be copied to .*the disk is full\.$") as told:
        salvage_job(FolderPlace(job), tmp_path / "new")
    assert len(str(told.value)) < 1_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job"]


@each_store
def test_a_job_of_another_format_is_no_damaged_one(tmp_path, store):
    job = tmp_path / "job"
    make_job(job, store, 300)
    (store_folder(job) / "format").write_text("4\n")
    files = files_of(job)
    with pytest.raises(StorageError, match=r"was written in format 4, .* Nothing was changed"):
        salvage_job(FolderPlace(job), tmp_path / "new")
    assert files_of(job) == files
    assert not (tmp_path / "new").exists()


@each_store
@pytest.mark.parametrize(
    ("shards", "signs"),
    [
        (0, ("aopic.lock", "damaged", "aopic", "aopic/CURRENT")),
        (
            3,
            (
                "damaged/0",
                "damaged/cut",
                "damaged/3",
                "aopic-shards/0",
                "aopic-shards/2",
                "aopic-shards/cut.json",
            ),
        ),
    ],
    ids=["as it is", "cut anew"],
)
def test_a_salvage_that_is_killed_leaves_nothing_that_opens_and_ends_the_same_the_next_time(
    tmp_path, store, shards, signs
):
    job, new, part = tmp_path / "job", tmp_path / "new", tmp_path / "new.part"
    make_job(job, store, 6_000)
    spoil(job, 2)
    command = [sys.executable, "-m", "scrapy", "aopic", "salvage", str(job), str(new)]
    if shards:
        job.rename(tmp_path / "one")
        salvage_job(FolderPlace(tmp_path / "one"), job, shards=4)
        command += ["--shards", str(shards)]
    files = files_of(job)
    salvage_job(FolderPlace(job), tmp_path / "other", shards=shards)
    for sign in signs:
        with processes.start(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
            while not (part / sign).exists() and process.poll() is None:
                time.sleep(0.0005)
            process.kill()
        if new.exists():  # it was whole before it was killed
            shutil.rmtree(new)
        else:
            with pytest.raises(StorageError):
                open_snapshot(store_folder(part))
    salvage_job(FolderPlace(job), new, shards=shards)
    assert not part.exists()
    assert files_of(job) == files
    assert audit_job(FolderPlace(new)).violations == []
    mine, others = (FolderPlace(folder).open_snapshots() for folder in (new, tmp_path / "other"))
    for one, other in zip(mine, others, strict=True):
        for family in Family:
            if family not in (Family.HOSTS, Family.META):  # which hold the time of the salvage
                assert [*one.scan(family)] == [*other.scan(family)]
        one.close()
        other.close()


@each_store
def test_a_job_in_use_is_not_salvaged(tmp_path, store):
    job = tmp_path / "job"
    make_job(job, store, 10)
    opened = Job(job, Policy(), kind=store)
    with pytest.raises(StorageError, match=f"in use: process {os.getpid()} .*crawl"):
        salvage_job(FolderPlace(job), tmp_path / "new")
    opened.close()
    assert salvage_job(FolderPlace(job), tmp_path / "new")[0].waiting == 10


def test_an_order_of_your_own_must_be_named(tmp_path):
    job = tmp_path / "job"
    make_job(job, "sqlite", 10)
    store = open_store(store_folder(job))
    saved = read_totals(store)
    assert saved is not None
    store.write({Family.META: {TOTALS_KEY: replace(saved, order_name="mine.Own").pack()}}, sync=True)
    store.close()
    with pytest.raises(StorageError, match=r"in the order mine\.Own, .* -s AOPIC_ORDER="):
        salvage_job(FolderPlace(job), tmp_path / "new")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ({TOTALS_KEY: CrawlTotals(order_name(PageRank()), 0.0, 0.0).pack()}, "cannot be cut: .* whole graph"),
        ({SHARD: b"\x92\x01\x04"}, "This is one shard of a job"),
    ],
    ids=["order", "shard"],
)
def test_what_cannot_be_cut_is_refused_before_anything_is_divided(tmp_path, monkeypatch, rows, told):
    job = tmp_path / "job"
    make_job(job, "sqlite", 10)
    store = open_store(store_folder(job))
    store.write({Family.META: rows}, sync=True)
    store.close()
    monkeypatch.setattr(salvaging.Splitting, "add", pytest.fail)
    with pytest.raises(StorageError, match=told):
        salvage_job(FolderPlace(job), tmp_path / "new", shards=4)
    assert [path.name for path in tmp_path.iterdir()] == ["job"]


def test_a_copy_that_another_process_has_just_made_is_left_alone(tmp_path, monkeypatch):
    """A process that waited for the lock of the unfinished copy gets it when that is the target already."""
    target, taken = tmp_path / "new", backing_up.lock_job

    def taken_late(folder: Path, task: str) -> Lock:
        lock = taken(folder, task)
        store_folder(folder.parent).mkdir()
        (store_folder(folder.parent) / "rows").write_text("all of them")
        folder.parent.rename(target)
        return lock

    monkeypatch.setattr(backing_up, "lock_job", taken_late)
    with pytest.raises(StorageError, match="was moved"), backing_up.making(target, "move"):
        pass
    assert (store_folder(target) / "rows").read_text() == "all of them"
