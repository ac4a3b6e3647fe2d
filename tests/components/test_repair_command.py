"""Damaged jobs: repaired, whole again at the end or as they were, and a crawl goes on."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import processes
from support.small_web import check
from support.stored_jobs import link, make_job, rows

from scrapy_aopic.copies.repairing import repair
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.ports import Family
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.job.job import Job
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.paths import store_folder
from scrapy_aopic.storage import open_snapshot, open_store

pytestmark = pytest.mark.slow

each_store = pytest.mark.parametrize("store", ["rocksdb", "sqlite"])


def repair_command(job: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scrapy", "aopic", "repair", str(job)]
    return processes.run(command, capture_output=True, text=True, check=False, cwd=job.parent)


def spoil(job: Path, number: int) -> None:
    """Overwrite a part of the largest file of rows, where rows are."""
    files = [path for path in store_folder(job).iterdir() if path.suffix in (".sst", ".sqlite3")]
    path = max(files, key=lambda path: path.stat().st_size)
    data = path.read_bytes()
    at = len(data) // 4 + 5_000 * number
    data = data[:at] + bytes(3_000) + data[at + 3_000 :]
    path.write_bytes(data.replace(b"http://h1/", b"http://hX/"))  # in SQLite, which compresses nothing


@each_store
def test_a_damaged_job_is_repaired_and_goes_on(tmp_path: Path, store: str) -> None:
    job = tmp_path / "job"
    make_job(job, store, 3_000)
    spoil(job, 1)
    damaged = {path.name: path.read_bytes() for path in store_folder(job).iterdir()}
    done = repair_command(job)
    assert done.returncode == 0, done.stderr
    result = check(job)
    assert f"Pages kept: {result.pages:,}, on" in done.stdout
    assert "units. The damaged store is in" in done.stdout
    assert result.violations == []
    if store == "rocksdb":  # it was a table of pages or of requests
        assert result.pages == 3_000
        assert "because only their requests are left: 0." not in done.stdout
    else:
        assert 2_000 < result.pages < 3_000
        assert f"Forgotten: {3_000 - result.pages:,}." in done.stdout
    assert {path.name: path.read_bytes() for path in (job / "aopic.damaged-1").iterdir()} == damaged
    assert sorted(path.name for path in job.iterdir()) == ["aopic", "aopic.damaged-1", "aopic.lock"]
    before = rows(job)
    assert "nothing to repair" in repair_command(job).stdout
    assert rows(job) == before


@each_store
def test_a_damaged_log_of_a_job_that_was_killed_is_refused_and_repaired(tmp_path: Path, store: str) -> None:
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
        with pytest.raises(StorageError):
            open_store(store_folder(job))
    ((done, *_),) = repair(FolderPlace(job))
    assert done is not None
    result = check(job)
    assert result.violations == []
    assert 100 < result.pages <= 271  # in SQLite the rows behind the damage are kept, too


@pytest.mark.parametrize("lost", ["CURRENT", "MANIFEST", ".log", "format"])
def test_a_rocksdb_store_that_has_lost_a_file_is_repaired(tmp_path: Path, lost: str) -> None:
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
    ((done, *_),) = repair(FolderPlace(job))
    assert done is not None
    result = check(job)
    assert (result.violations, result.pages) == ([], 3_000)


@each_store
def test_a_repair_without_room_for_a_copy_changes_nothing_and_says_so_in_a_sentence(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "job"
    make_job(job, store, 300)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", fail)
    with pytest.raises(
        StorageError, match=r"cannot be copied to .*the disk is full\. It was not changed\.$"
    ) as told:
        repair(FolderPlace(job))
    assert len(str(told.value)) < 1_000
    monkeypatch.undo()
    assert check(job).violations == []


@each_store
def test_a_job_of_another_format_is_no_damaged_one(tmp_path: Path, store: str) -> None:
    job = tmp_path / "job"
    make_job(job, store, 300)
    (store_folder(job) / "format").write_text("2\n")
    before = sorted((path.name, path.stat().st_size) for path in store_folder(job).iterdir())
    with pytest.raises(StorageError, match=r"was written in format 2, .* Nothing was changed"):
        repair(FolderPlace(job))
    (store_folder(job) / "format").write_text("1\n")
    assert sorted((path.name, path.stat().st_size) for path in store_folder(job).iterdir()) == before
    assert check(job).violations == []


@each_store
def test_a_repair_that_is_killed_ends_the_same_the_next_time(tmp_path: Path, store: str) -> None:
    job, other = tmp_path / "job", tmp_path / "other"
    make_job(job, store, 6_000)
    spoil(job, 2)
    shutil.copytree(job, other)
    repair(FolderPlace(other))
    command = [sys.executable, "-m", "scrapy", "aopic", "repair", str(job)]
    for sign in ("aopic.copy", "aopic.new", "aopic.new/CURRENT", "aopic.damaged-1"):
        with processes.start(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
            while not (job / sign).exists() and process.poll() is None:
                time.sleep(0.0005)
            process.kill()
    repair(FolderPlace(job))
    assert check(job).violations == []
    for family, mine, others in zip(Family, rows(job), rows(other), strict=True):
        if family not in (Family.HOSTS, Family.META):  # which hold the time of the repair
            assert mine == others


def test_a_job_that_was_killed_between_the_renames_is_put_in_place(tmp_path: Path) -> None:
    job = tmp_path / "job"
    make_job(job, "sqlite", 10)
    store_folder(job).rename(job / "aopic.new")
    assert repair(FolderPlace(job)) == []
    assert check(job).pages == 10


@each_store
def test_a_job_in_use_is_not_repaired(tmp_path: Path, store: str) -> None:
    job = tmp_path / "job"
    make_job(job, store, 10)
    opened = Job(job, Policy(), kind=store)
    with pytest.raises(StorageError, match=f"in use: process {os.getpid()} .*crawl"):
        repair(FolderPlace(job))
    opened.close()
    assert repair(FolderPlace(job)) == []
